local m = require "moec"
return m.model {
  name = "a", vocab = 512, width = 512, sequence = 128,
  layers = { function(x) m.metric("size", m.mean(x ^ 2), { sum = 1 }) return x end },
}
