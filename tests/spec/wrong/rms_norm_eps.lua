local m = require "moec"
return m.model { name = "a", vocab = 32, width = 64, sequence = 16,
  layers = { function(x) return m.rms_norm(x, nil, { eps = math.huge }) end } }
