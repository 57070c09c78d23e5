local m = require "moec"
return m.model { name = "a", vocab = 32, width = 1, sequence = 16,
  layers = { m.block { attention = { heads = 2 } } } }
