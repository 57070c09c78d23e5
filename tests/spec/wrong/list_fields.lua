local m = require "moec"
return m.model {
  name = "a", vocab = 256, width = 64, sequence = 16,
  layers = m.stack(1, m.block { attention = { heads = 1 } }),
  parameters = { init = 0.01 },
}
