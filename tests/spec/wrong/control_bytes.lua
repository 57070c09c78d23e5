local m = require "moec"
local x = "[31m" .. nil -- 
