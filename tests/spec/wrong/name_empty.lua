local m = require "moec"
return m.model {
  name = "", vocab = 256, width = 64, sequence = 16,
  layers = m.stack(1, m.block { attention = { heads = 1 } }),
}
