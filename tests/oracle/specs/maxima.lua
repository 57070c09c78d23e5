-- Maxima over tokens of a microbatch and of a sequence, the largest feature, soft limits by them.
local m = require "moec"

return m.model {
  name = "maxima", vocab = 7, width = 6, sequence = 5,
  layers = { m.block { ffn = function(x)
    local y = m.linear("a", x, x:size())
    local top = m.amax(y, "microbatch")
    m.loss("top", m.sum(top), 0.1)
    m.loss("tops", m.sum(m.amax(y, "sequence") ^ 2), 0.1)
    return m.linear("b", y - m.amax(y, -1, { keep = true }), x:size())
  end } },
}
