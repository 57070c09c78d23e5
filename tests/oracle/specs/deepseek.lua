-- DeepSeek-V3's parts: latent attention with adjacent rope pairs, groups, sigmoid scores, correction with
-- its update, balance loss per sequence, two extra prediction depths.
local m = require "moec"

local function layer(ffn)
  return m.block {
    attention = m.mla { heads = 3, q_rank = 5, kv_rank = 4, nope_dim = 3, rope_dim = 4, v_dim = 5,
                        rope = { pairs = "adjacent", theta = 30 } },
    ffn = ffn,
  }
end
local moe = m.experts {
  count = 8, top_k = 2, expert = { hidden = 5 }, shared = { hidden = 3 },
  router = {
    score = m.sigmoid, normalize = true, scale = 2.5, correction = 0.01,
    groups = 4, keep_groups = 2, balance_loss = 0.1, balance = "sequence",
  },
}

return m.model {
  name = "deepseek", vocab = 17, width = 10, sequence = 13,
  layers = m.stack(2, function(i) return layer(i == 1 and { hidden = 7 } or moe) end),
  mtp = { depth = 2, weight = 0.3, layer = layer(moe) },
}
