local m = require "moec"
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = {},
  parameters = { { "*", std = 0.01 } } }
