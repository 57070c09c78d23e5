-- Every token goes to expert 2 of 4: three experts are empty.
local m = require "moec"

local function always_two(x, count, top_k)
  local ids = m.reshape(m.tokens() * 0 + 2, top_k)
  return ids, m.reshape(m.sigmoid(m.sum(m.linear("score", x, count))), top_k)
end

return m.model {
  name = "one-expert", vocab = 11, width = 6, sequence = 7,
  layers = m.stack(1, m.block {
    attention = { heads = 2, head_dim = 3, causal = true, qk_norm = "full" },
    ffn = m.experts { count = 4, top_k = 1, expert = { hidden = 3, activation = m.relu2 }, router = always_two },
  }),
}
