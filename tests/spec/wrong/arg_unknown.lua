-- args: exprts=8
local m = require "moec"
local n = m.arg("experts", 8)
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = {} }
