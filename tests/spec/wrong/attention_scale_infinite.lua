local m = require "moec"
return m.model { name = "a", vocab = 32, width = 64, sequence = 16,
  layers = { m.block { attention = { heads = 2, scale = math.huge } } } }
