local m = require "moec"
local function any(...) return (...) end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { m.block {
  ffn = { hidden = 64, activation = any },
} } }
