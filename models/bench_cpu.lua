-- SPDX-License-Identifier: Apache-2.0
-- What ./dev bench trains: a MoE model whose step takes seconds on two cores. dense=true is its twin of
-- equal active size: one MLP as wide as a token's experts together.
local m = require "moec"

local dense = m.arg("dense", false)
local top_k, hidden, shared = 4, 512, 512

return m.model {
  name = dense and "bench-cpu-dense" or "bench-cpu", vocab = 16384, width = 512, sequence = 1024,
  layers = m.stack(4, m.block {
    attention = { heads = 8, kv_heads = 2, head_dim = 64, rope = true },
    ffn = dense and { hidden = top_k * hidden + shared } or m.experts {
      count = 32, top_k = top_k, expert = { hidden = hidden }, shared = { hidden = shared },
      router = { normalize = true, balance_loss = 0.01 },
    },
  }),
}
