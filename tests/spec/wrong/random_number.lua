local m = require "moec"
local noise = math.random()
