local m = require "moec"
local a = m.attention { 8 }
