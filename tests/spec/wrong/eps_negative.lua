local m = require "moec"
return m.model { name = "a", vocab = 32, width = 64, sequence = 16, eps = -1e-6,
  layers = {} }
