-- SPDX-License-Identifier: Apache-2.0
-- GPT-OSS 120B: the 20B's layers, 36 of 128 experts. Sources: openai/gpt-oss, gpt_oss/jax/config.py and
-- gpt_oss/torch/model.py, whose defaults are this checkpoint's; the rest as in gpt_oss_20b.
local m = require "moec"

local function clamped(gate, up)
  gate, up = m.min(gate, 7), m.clamp(up, -7, 7)
  return gate * m.sigmoid(1.702 * gate) * (up + 1)
end

return m.model {
  name = "gpt-oss-120b", vocab = 201088, width = 2880, sequence = 4096, eps = 1e-5,
  layers = m.stack(36, function(i)
    return m.block {
      attention = {
        heads = 64, kv_heads = 8, head_dim = 64, bias = true, sinks = true, window = i % 2 == 1 and 128,
        rope = { theta = 150000, scaling = m.yarn { factor = 32, original = 4096, truncate = false } },
      },
      ffn = m.experts {
        count = 128, top_k = 4, expert = { hidden = 2880, activation = clamped, bias = true },
        router = { normalize = true, bias = true },
      },
    }
  end),
}
