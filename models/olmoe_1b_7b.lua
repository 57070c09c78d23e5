-- SPDX-License-Identifier: Apache-2.0
-- OLMoE-1B-7B. Sources: transformers 5.24.0, OlmoeConfig (shapes, eps 1e-5, balance loss 0.01, choices not
-- normalised); allenai/OLMoE, configs/OLMoE-1B-7B-0924.yml (losses 0.01 and 0.001, init 0.02, 4,096
-- tokens); allenai/OLMo, olmo/config.py (theta 10,000 and eps 1e-5 where that file says nothing).
-- Its trainer averages both losses over the 16 layers; here the losses of layers add.
local m = require "moec"

return m.model {
  name = "olmoe-1b-7b", vocab = 50304, width = 2048, sequence = 4096, eps = 1e-5,
  layers = m.stack(16, m.block {
    attention = { heads = 16, qk_norm = "full", rope = true },
    ffn = m.experts { count = 64, top_k = 8, expert = { hidden = 1024 },
                      router = { balance_loss = 0.01, z_loss = 0.001 } },
  }),
}
