-- SPDX-License-Identifier: Apache-2.0
-- The 8-layer benchmark model of OLMo-core 3 (its src/examples/olmo_ddp/moe_8l_common.py): one dense layer as
-- wide as a token's experts together, seven MoE layers; experts=8, 32, 48, 64 or 128.
local m = require "moec"

local experts = m.arg("experts", 128)

return m.model {
  name = "olmo3moe-8l", vocab = 100352, width = 4096, sequence = 8192, z_loss = 1e-4,
  embedding = { scale = 64, norm = true },
  layers = m.stack(8, function(i)
    return m.block {
      norm = "output",
      attention = { heads = 32, kv_heads = 8, qk_norm = "head", rope = { theta = 5e5 } },
      ffn = i == 1 and { hidden = 20480 } or m.experts {
        count = experts, top_k = 4, expert = { hidden = 4096 }, shared = { hidden = 4096 }, capacity = 1.25,
        router = { normalize = true, scale = 4, balance_loss = 0.015, z_loss = 1e-4 },
      },
    }
  end),
  parameters = { { "*", init = 0.01 } },
}
