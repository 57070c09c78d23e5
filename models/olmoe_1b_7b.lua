-- SPDX-License-Identifier: Apache-2.0
-- OLMoE-1B-7B. Source: configuration of the published checkpoint OLMoE-1B-7B-0924 (theta, eps,
-- balance loss); the z loss is the OLMoE paper's.
local m = require "moec"

return m.model {
  name = "olmoe-1b-7b", vocab = 50304, width = 2048, sequence = 4096, eps = 1e-5,
  layers = m.stack(16, m.block {
    attention = { heads = 16, qk_norm = "full", rope = true },
    ffn = m.experts { count = 64, top_k = 8, expert = { hidden = 1024 },
                      router = { balance_loss = 0.01, z_loss = 0.001 } },
  }),
}
