-- SPDX-License-Identifier: Apache-2.0
-- Qwen3-235B-A22B. Sources: Megatron-LM arguments of THUDM/slime, scripts/models/qwen3-235B-A22B.sh, after the
-- published config.json (94 layers, 64 heads of 128, 4 of keys, theta 1e6, eps 1e-6, experts of 1,536);
-- transformers 5.24.0, Qwen3MoeConfig (balance loss 0.001). Otherwise as qwen3_30b_a3b.
local m = require "moec"

return m.model {
  name = "qwen3-235b-a22b", vocab = 151936, width = 4096, sequence = 4096,
  layers = m.stack(94, m.block {
    attention = { heads = 64, kv_heads = 4, head_dim = 128, qk_norm = "head", rope = { theta = 1e6 } },
    ffn = m.experts { count = 128, top_k = 8, expert = { hidden = 1536 },
                      router = { normalize = true, balance_loss = 0.001, balance = "global" } },
  }),
}
