-- The OLMo-core 3 family at odd sizes: dense first layer, shared expert, normalised and scaled router
-- weights, balance and z losses, z loss on the logits, scaled and normalised embedding.
local m = require "moec"

return m.model {
  name = "olmo", vocab = 23, width = 13, sequence = 13, z_loss = 1e-2,
  embedding = { scale = 4, norm = true },
  layers = m.stack(3, function(i)
    return m.block {
      norm = "output",
      attention = { heads = 4, kv_heads = 2, head_dim = 6, qk_norm = "head", rope = { theta = 50 } },
      ffn = i == 1 and { hidden = 17 } or m.experts {
        count = 5, top_k = 2, expert = { hidden = 7 }, shared = { hidden = 5 }, capacity = 1.25,
        router = { normalize = true, scale = 4, balance_loss = 0.15, z_loss = 1e-2 },
      },
    }
  end),
}
