-- SPDX-License-Identifier: Apache-2.0
-- Kimi K2: DeepSeek-V3's layers with half the heads, one dense layer and 384 experts in no groups. Sources:
-- Megatron-Bridge, kimi_provider.py (shapes, theta 50,000, eps 1e-6, scale 2.827, balance loss 0.001 per
-- sequence, rate of the bias 0.001, init 0.006, no multi-token prediction; later checkpoints of the family
-- have eps 1e-5); technical report, arXiv 2507.20534 (4,096 tokens before the context grows).
local m = require "moec"

return m.model {
  name = "kimi-k2", vocab = 163840, width = 7168, sequence = 4096,
  layers = m.stack(61, function(i)
    return m.block {
      attention = m.mla { heads = 64, q_rank = 1536, kv_rank = 512, nope_dim = 128, rope_dim = 64, v_dim = 128,
                          rope = { theta = 50000, pairs = "adjacent" } },
      ffn = i == 1 and { hidden = 18432 } or m.experts {
        count = 384, top_k = 8, expert = { hidden = 2048 }, shared = { hidden = 2048 },
        router = { score = m.sigmoid, normalize = true, scale = 2.827, correction = 0.001,
                   balance_loss = 0.001, balance = "sequence" },
      },
    }
  end),
  parameters = { { "*", init = 0.006 } },
}
