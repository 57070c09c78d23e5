-- SPDX-License-Identifier: Apache-2.0
-- The production family of OLMo-core 3 (scripts OLMoE3-dev; technical report, appendix B.10):
-- size=tiny, small, medium, large or ultra; experts= for the medium sweep (64, 96 or 128) and for
-- the 2.4 T ultra (256). Leading layers are dense, as wide as a token's experts together.
local m = require "moec"

local sizes = { -- layers, leading dense ones, width, heads, kv heads, experts, hidden, balance loss
  tiny   = { 16, 1, 2048, 16,  4,  64, 2048, 0.01 },
  small  = { 32, 1, 2560, 24,  6,  64, 2560, 0.01 },
  medium = { 39, 2, 3072, 32,  8,  64, 3072, 0.01 },
  large  = { 47, 2, 4096, 40, 10, 128, 4096, 0.005 },
  ultra  = { 63, 2, 6144, 64, 32, 128, 8192, 0.005 },
}

local size = m.arg("size", "tiny")
if not sizes[size] then error(("size=%s: expected tiny, small, medium, large or ultra"):format(size), 0) end
local layers, dense, width, heads, kv_heads, count, hidden, balance = table.unpack(sizes[size])
local experts = m.arg("experts", count)
local top_k = 4

return m.model {
  name = "olmo3moe-" .. size, vocab = 100352, width = width, sequence = 8192, z_loss = 1e-4,
  embedding = { scale = math.sqrt(width), norm = true },
  layers = m.stack(layers, function(i)
    return m.block {
      norm = "peri",
      attention = { heads = heads, kv_heads = kv_heads, head_dim = 128, qk_norm = "head", rope = { theta = 5e5 } },
      ffn = i <= dense and { hidden = (top_k + 1) * hidden } or m.experts {
        count = experts, top_k = top_k, expert = { hidden = hidden }, shared = { hidden = hidden },
        capacity = 1.1875,
        router = { normalize = true, scale = top_k, balance_loss = balance, z_loss = 2e-4 },
      },
    }
  end),
  parameters = { { "*", init = 0.01 } },
}
