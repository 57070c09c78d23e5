-- SPDX-License-Identifier: Apache-2.0
-- Qwen3-30B-A3B. Sources: transformers 5.24.0, Qwen3MoeConfig (shapes, eps 1e-6, balance loss 0.001);
-- Megatron-Bridge, test_qwen3_moe_bridge.py after the published config.json (48 layers, heads of 128,
-- theta 1e6, normalised choices; its successors of 2507 have theta 1e7). That balance is taken over the
-- whole batch is the Qwen3 report's.
local m = require "moec"

return m.model {
  name = "qwen3-30b-a3b", vocab = 151936, width = 2048, sequence = 4096,
  layers = m.stack(48, m.block {
    attention = { heads = 32, kv_heads = 4, head_dim = 128, qk_norm = "head", rope = { theta = 1e6 } },
    ffn = m.experts { count = 128, top_k = 8, expert = { hidden = 768 },
                      router = { normalize = true, balance_loss = 0.001, balance = "global" } },
  }),
}
