local m = require "moec"
local gain = m.param("gain", { 64 })
