local m = require "moec"
return m.model {
  name = "a", vocab = 2^40, width = 64, sequence = 16,
  layers = m.stack(1, m.block { attention = { heads = 1 } }),
}
