-- SPDX-License-Identifier: Apache-2.0
-- Mixtral 8x7B. Sources: transformers 5.24.0, MixtralConfig (shapes, theta 1e6, eps 1e-5, no window);
-- config.json of Mixtral-8x7B-v0.1 as TensorRT-LLM's test_modeling_mixtral.py repeats it (32,768
-- tokens, balance loss 0.02, where the class's default is 0.001).
local m = require "moec"

return m.model {
  name = "mixtral-8x7b", vocab = 32000, width = 4096, sequence = 32768, eps = 1e-5,
  layers = m.stack(32, m.block {
    attention = { heads = 32, kv_heads = 8, rope = { theta = 1e6 } },
    ffn = m.experts { count = 8, top_k = 2, expert = { hidden = 14336 },
                      router = { normalize = true, balance_loss = 0.02 } },
  }),
}
