-- More layers than any pipeline of the tests has stages, odd sizes; skips from the embedding and from the
-- second layer straight to later ones, a correction that the load moves, losses of every layer, a second
-- token predicted, weights that the first and the last stage share.
local m = require "moec"

local layers, tied, depth, skips = m.arg("layers", 5), m.arg("tied", true), m.arg("mtp", 1), m.arg("skips", true)

local function block(i)
  return m.block {
    norm = i % 2 == 0 and "output" or "pre",
    attention = { heads = 2, kv_heads = 1, qk_norm = "head", rope = { theta = 50 } },
    ffn = i == 1 and { hidden = 13 } or m.experts {
      count = 4, top_k = 2, expert = { hidden = 7 }, shared = { hidden = 5 },
      router = { normalize = true, scale = 2, balance_loss = 0.05, z_loss = 1e-2, correction = 0.01 },
    },
  }
end

local first, second
return m.model {
  name = "deep", vocab = 23, width = 12, sequence = 11, z_loss = 1e-3,
  embedding = { scale = 3, norm = true },
  head = { tied = tied },
  layers = m.stack(layers, function(i)
    local layer = block(i)
    return function(x)
      first = first or x
      local y = layer(x)
      if i == 2 then second = y end
      if skips and i > 2 then y = y + m.param("mix", { 12 }, { init = 0.5 }) * second + 0.1 * first end
      return y
    end
  end),
  mtp = depth > 0 and { depth = depth, weight = 0.3, layer = block(2) } or nil,
}
