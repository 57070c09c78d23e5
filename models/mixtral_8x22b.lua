-- SPDX-License-Identifier: Apache-2.0
-- Mixtral 8x22B. Source: config.json of Mixtral-8x22B-v0.1 as scaleapi/llm-engine's
-- test_llm_use_cases.py repeats it (shapes, 65,536 tokens, theta 1e6, eps 1e-5, no window, balance loss
-- 0.001; the tokenizer of the instructed version has 32,768 entries).
local m = require "moec"

return m.model {
  name = "mixtral-8x22b", vocab = 32000, width = 6144, sequence = 65536, eps = 1e-5,
  layers = m.stack(56, m.block {
    attention = { heads = 48, kv_heads = 8, rope = { theta = 1e6 } },
    ffn = m.experts { count = 8, top_k = 2, expert = { hidden = 16384 },
                      router = { normalize = true, balance_loss = 0.001 } },
  }),
}
