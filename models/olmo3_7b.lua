-- SPDX-License-Identifier: Apache-2.0
-- OLMo 3 7B: dense; three of four layers see a window of 4,096 tokens. Source: configuration of the
-- published checkpoint and transformers' Olmo3Config (theta, window, pattern); pretraining at 8,192
-- tokens, before the stretching of the rotary positions.
local m = require "moec"

return m.model {
  name = "olmo3-7b", vocab = 100278, width = 4096, sequence = 8192,
  layers = m.stack(32, function(i)
    return m.block {
      norm = "output",
      attention = { heads = 32, qk_norm = "full", rope = { theta = 5e5 }, window = i % 4 ~= 0 and 4096 },
      ffn = { hidden = 11008 },
    }
  end),
}
