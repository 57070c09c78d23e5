-- GPT-OSS's parts: sinks, alternating windows, biases everywhere, clamped activation, yarn. The clamps
-- are tight enough to act.
local m = require "moec"

local function clamped(gate, up)
  gate, up = m.min(gate, 0.3), m.clamp(up, -0.4, 0.4)
  return gate * m.sigmoid(1.702 * gate) * (up + 1)
end

return m.model {
  name = "gpt-oss", vocab = 19, width = 11, sequence = 13, eps = 1e-5,
  layers = m.stack(2, function(i)
    return m.block {
      attention = {
        heads = 4, kv_heads = 2, head_dim = 6, bias = true, sinks = true, window = i % 2 == 1 and 3,
        rope = { theta = 100, scaling = m.yarn { factor = 4, original = 16, truncate = false } },
      },
      ffn = m.experts {
        count = 7, top_k = 3, expert = { hidden = 5, activation = clamped, bias = true },
        router = { normalize = true, bias = true },
      },
    }
  end),
}
