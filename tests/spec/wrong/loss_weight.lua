local m = require "moec"
return m.model { name = "a", vocab = 32, width = 64, sequence = 16,
  layers = { function(x)
    m.loss("size", m.mean(x * x), math.huge)
    return x
  end } }
