-- Odd sizes of everything: dense first layer, shared expert, tied table, balance losses over a set that the
-- caller chooses, a bias that the load corrects, gains and rates of their own.
local m = require "moec"

local set = m.arg("set", "microbatch")

return m.model {
  name = "moe", vocab = 29, width = 20, sequence = 11, z_loss = 1e-3,
  embedding = { scale = 3, norm = true },
  layers = m.stack(2, function(i)
    return m.block {
      norm = "output",
      attention = { heads = 2, kv_heads = 1, qk_norm = "head", rope = { theta = 50 } },
      ffn = i == 1 and { hidden = 17 } or m.experts {
        count = 4, top_k = 2, expert = { hidden = 9 }, shared = { hidden = 7 },
        router = { normalize = true, scale = 2, balance = set, balance_loss = 0.05, z_loss = 1e-2 },
      },
    }
  end),
}
