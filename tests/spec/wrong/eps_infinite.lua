local m = require "moec"
return m.model { name = "a", vocab = 32, width = 64, sequence = 16, eps = math.huge,
  layers = {} }
