local m = require "moec"
return m.model { name = "a", vocab = 32, width = 64, sequence = 16,
  layers = { m.block {
    attention = m.mla { heads = 2, kv_rank = 8, nope_dim = 4, rope_dim = 3, v_dim = 4 },
  } } }
