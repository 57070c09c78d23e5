-- SPDX-License-Identifier: Apache-2.0
-- DeepSeek-V3: latent attention, groups of experts with a balancing bias, multi-token prediction.
-- Sources: deepseek-ai/DeepSeek-V3, inference/configs/config_671B.json and inference/model.py (shapes,
-- groups, scale 2.5, theta 10,000, eps 1e-6); transformers 5.24.0, DeepseekV3Config, which agrees and
-- has neighbours as pairs. Training constants are the technical report's (section 4.2: balance loss 1e-4,
-- as Megatron-Bridge has it, rate of the bias 0.001, weight of MTP 0.3 for the first 10 T tokens, init
-- 0.006, 4,096 tokens before the context grows).
local m = require "moec"

local depth = m.arg("mtp", 1)

local function layer(ffn)
  return m.block {
    attention = m.mla { heads = 128, q_rank = 1536, kv_rank = 512, nope_dim = 128, rope_dim = 64, v_dim = 128,
                        rope = { pairs = "adjacent" } },
    ffn = ffn,
  }
end
local moe = m.experts {
  count = 256, top_k = 8, expert = { hidden = 2048 }, shared = { hidden = 2048 },
  router = {
    score = m.sigmoid, normalize = true, scale = 2.5, correction = 0.001,
    groups = 8, keep_groups = 4, balance_loss = 1e-4, balance = "sequence",
  },
}

return m.model {
  name = "deepseek-v3", vocab = 129280, width = 7168, sequence = 4096,
  layers = m.stack(61, function(i) return layer(i <= 3 and { hidden = 18432 } or moe) end),
  mtp = depth > 0 and { depth = depth, weight = 0.3, layer = layer(moe) },
  parameters = { { "*", init = 0.006 } },
}
