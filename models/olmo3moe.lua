-- SPDX-License-Identifier: Apache-2.0
-- The production family of OLMo-core 3 (scripts OLMoE3-dev; technical report, appendix B.10):
-- size=tiny, small, medium, large or ultra; experts= for the medium sweep (64, 96 or 128) and for the
-- 2.4 T ultra (256). Leading layers are dense, as wide as a token's experts together.
local m = require "moec"

local sizes = {
  tiny   = { layers = 16, dense = 1, width = 2048, heads = 16, kv_heads = 4,  experts = 64,  hidden = 2048, balance = 0.01 },
  small  = { layers = 32, dense = 1, width = 2560, heads = 24, kv_heads = 6,  experts = 64,  hidden = 2560, balance = 0.01 },
  medium = { layers = 39, dense = 2, width = 3072, heads = 32, kv_heads = 8,  experts = 64,  hidden = 3072, balance = 0.01 },
  large  = { layers = 47, dense = 2, width = 4096, heads = 40, kv_heads = 10, experts = 128, hidden = 4096, balance = 0.005 },
  ultra  = { layers = 63, dense = 2, width = 6144, heads = 64, kv_heads = 32, experts = 128, hidden = 8192, balance = 0.005 },
}

local size = m.arg("size", "tiny")
local s = sizes[size]
if not s then error(("size=%s: expected tiny, small, medium, large or ultra"):format(size), 0) end
local experts = m.arg("experts", s.experts)
local top_k = 4

return m.model {
  name = "olmo3moe-" .. size, vocab = 100352, width = s.width, sequence = 8192, z_loss = 1e-4,
  embedding = { scale = math.sqrt(s.width), norm = true },
  layers = m.stack(s.layers, function(i)
    return m.block {
      norm = "peri",
      attention = { heads = s.heads, kv_heads = s.kv_heads, head_dim = 128, qk_norm = "head", rope = { theta = 5e5 } },
      ffn = i <= s.dense and { hidden = (top_k + 1) * s.hidden } or m.experts {
        count = experts, top_k = top_k, expert = { hidden = s.hidden }, shared = { hidden = s.hidden },
        capacity = 1.1875,
        router = { normalize = true, scale = top_k, balance_loss = s.balance, z_loss = 2e-4 },
      },
    }
  end),
  parameters = { { "*", init = 0.01 } },
}
