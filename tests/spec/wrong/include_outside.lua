local m = require "moec"
local base = m.include "../secret.lua"
