local m = require "moec"
return m.model { name = "a", vocab = 512, width = 512, sequence = 128,
  layers = { m.block { attention = { heads = 8, rope = { dims = 128 } } } } }
