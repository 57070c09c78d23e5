local m = require "moec"
return m.model { name = "a", vocab = 32, width = 64, sequence = 16, norm = { eps = -1 },
  layers = {} }
