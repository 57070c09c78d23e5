-- SPDX-License-Identifier: Apache-2.0
-- models/olmo3moe_8l.lua an eighth as wide: what is measured when layouts are compared on one machine.
-- The vocabulary is small, so that experts are most of the weights, as they are there.
local m = require "moec"

local experts, layers, sequence = m.arg("experts", 128), m.arg("layers", 8), m.arg("sequence", 1024)

return m.model {
  name = "layouts", vocab = 4096, width = 512, sequence = sequence, z_loss = 1e-4,
  embedding = { scale = 22.6, norm = true },
  layers = m.stack(layers, function(i)
    return m.block {
      norm = "output",
      attention = { heads = 8, kv_heads = 2, qk_norm = "head", rope = { theta = 5e5 } },
      ffn = i == 1 and { hidden = 2560 } or m.experts {
        count = experts, top_k = 4, expert = { hidden = 512 }, shared = { hidden = 512 }, capacity = 1.25,
        router = { normalize = true, scale = 4, balance_loss = 0.015, z_loss = 1e-4 },
      },
    }
  end),
  parameters = { { "*", init = 0.01 } },
}
