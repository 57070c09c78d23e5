local m = require "moec"
local layer = m.block { ffn = { hidden = 64 } }
local other = layer:with { ffn = layer.ffn:with { bais = true } }
