-- SPDX-License-Identifier: Apache-2.0
-- GPT-OSS 20B: sinks, clamped gated activation with biases, windows in every other layer. Sources:
-- transformers 5.24.0, GptOssConfig (theta 150,000, stretching, window 128, clamp 7, gain 1.702, eps 1e-5),
-- and openai/gpt-oss, gpt_oss/torch/model.py, which agrees; 24 layers of 32 experts are the smaller
-- checkpoint's. How it was trained is not published: no balance loss (transformers' 0.001 and the
-- 0.9 that OLMo-core 3.0.0 takes are for tuning).
local m = require "moec"

local function clamped(gate, up)
  gate, up = m.min(gate, 7), m.clamp(up, -7, 7)
  return gate * m.sigmoid(1.702 * gate) * (up + 1)
end

return m.model {
  name = "gpt-oss-20b", vocab = 201088, width = 2880, sequence = 4096, eps = 1e-5,
  layers = m.stack(24, function(i)
    return m.block {
      attention = {
        heads = 64, kv_heads = 8, head_dim = 64, bias = true, sinks = true, window = i % 2 == 1 and 128,
        rope = { theta = 150000, scaling = m.yarn { factor = 32, original = 4096, truncate = false } },
      },
      ffn = m.experts {
        count = 32, top_k = 4, expert = { hidden = 2880, activation = clamped, bias = true },
        router = { normalize = true, bias = true },
      },
    }
  end),
}
