-- SPDX-License-Identifier: Apache-2.0
-- A small sibling of the OLMo-core 3 family that trains on bytes within minutes on a CPU.
local m = require "moec"

local experts = m.arg("experts", 8)
local top_k = m.arg("top_k", 2)
local layers = m.arg("layers", 4)
local width, hidden, shared, sequence = 256, 256, 256, m.arg("sequence", 256)

return m.model {
  name = "tiny", vocab = 256, width = width, sequence = sequence, z_loss = 1e-4,
  embedding = { scale = math.sqrt(width), norm = true },
  layers = m.stack(layers, function(i)
    return m.block {
      norm = "output",
      attention = { heads = 4, kv_heads = 2, qk_norm = "head", rope = { theta = 5e5 } },
      ffn = i == 1 and { hidden = top_k * hidden + shared } or m.experts {
        count = experts, top_k = top_k, expert = { hidden = hidden }, shared = { hidden = shared },
        router = { normalize = true, scale = top_k, balance_loss = 0.015, z_loss = 1e-4 },
      },
    }
  end),
}
