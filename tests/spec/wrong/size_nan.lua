local m = require "moec"
return m.model {
  name = "a", vocab = 256, width = 0 / 0, sequence = 16,
  layers = m.stack(1, m.block { attention = { heads = 1 } }),
}
