local m = require "moec"
return m.model { name = "a", vocab = 32, width = 64, sequence = 16, layers = { m.block {
  ffn = m.experts { count = 4, top_k = 3, expert = { hidden = 8 }, router = { groups = 2, keep_groups = 1 } },
} } }
