local m = require "moec"
return m.model { name = "a", vocab = 32, width = 64, sequence = 16,
  layers = m.stack(100000, m.block { ffn = { hidden = 8 } }) }
