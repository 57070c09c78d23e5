local m = require "moec"
return m.model { name = "a", vocab = 32, width = 14, sequence = 16,
  layers = { m.block { attention = { heads = 2, rope = true } } } }
