local m = require "moec"
return m.model { name = "a", vocab = 32, width = 64, sequence = 16, layers = { m.block {
  attention = m.mla { heads = 2, kv_rank = 32, nope_dim = 32, rope_dim = 16, v_dim = 2^30 } } } }
