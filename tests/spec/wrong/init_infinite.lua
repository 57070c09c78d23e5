local m = require "moec"
return m.model { name = "a", vocab = 32, width = 64, sequence = 16,
  layers = { function(x) return x * m.param("gain", { 64 }, { init = math.huge }) end } }
