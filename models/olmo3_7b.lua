-- SPDX-License-Identifier: Apache-2.0
-- OLMo 3 7B: dense; three of four layers see a window of 4,096 tokens. Sources: OLMo-core 3.0.0,
-- TransformerConfig.olmo3_7B (theta 500,000, eps 1e-6, window and pattern; transformers' class has eps
-- 1e-5, for another checkpoint) and its script OLMo-3-1025-7B-pretrain-1.py (8,192 tokens, z loss
-- 1e-5). The vocabulary is the tokenizer's, not padded to 100,352 as in training.
local m = require "moec"

return m.model {
  name = "olmo3-7b", vocab = 100278, width = 4096, sequence = 8192, z_loss = 1e-5,
  layers = m.stack(32, function(i)
    return m.block {
      norm = "output",
      attention = { heads = 32, qk_norm = "full", rope = { theta = 5e5 }, window = i % 4 ~= 0 and 4096 },
      ffn = { hidden = 11008 },
    }
  end),
}
