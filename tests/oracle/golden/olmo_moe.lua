-- The spec behind olmo_moe.txt; olmo_moe.py is the same model in JAX.
local m = require "moec"

return m.model {
  name = "golden", vocab = 11, width = 8, sequence = 9, eps = 1e-6, z_loss = 0.03,
  embedding = { scale = 3, norm = true },
  layers = m.stack(2, function(i)
    return m.block {
      norm = "output",
      attention = { heads = 4, kv_heads = 2, head_dim = 4, qk_norm = i == 1 and "head" or "full",
                    rope = { theta = 100 } },
      ffn = i == 1 and { hidden = 5 } or m.experts {
        count = 5, top_k = 2, expert = { hidden = 3 }, shared = { hidden = 4 },
        router = { normalize = true, scale = 2, balance_loss = 0.2, z_loss = 0.05 },
      },
    }
  end),
}
