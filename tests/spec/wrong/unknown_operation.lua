local m = require "moec"
local x = m.swigul
