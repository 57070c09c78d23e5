local m = require "moec"
local layer = m.block { ffn = { hidden = 64 } }
layer.norm = "peri"
