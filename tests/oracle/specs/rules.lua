-- Precision by rule, either way: some contractions state bf16, others fp32, the rest is the run's.
local m = require "moec"

return m.model {
  name = "rules", vocab = 13, width = 8, sequence = 11,
  layers = m.stack(2, function() return m.block {
    attention = { heads = 2, kv_heads = 1, head_dim = 4, qk_norm = "head" },
    ffn = m.experts { count = 2, top_k = 2, expert = { hidden = 6 }, shared = { hidden = 5 } },
  } end),
  parameters = {
    { "layers.1.attention.w_*", precision = "bf16" }, { "layers.2.attention.w_*", precision = "fp32" },
    { "layers.1.*.experts.w_in", precision = "fp32" }, { "layers.1.*.experts.w_out", precision = "bf16" },
    { "layers.2.*.shared.w_in", precision = "bf16" },
  },
}
