local m = require "moec"
local t = {}
while true do t[#t + 1] = { 1 } end
