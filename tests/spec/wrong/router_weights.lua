local m = require "moec"
local function route(x, count, k)
  local score = m.softmax(m.linear("score", x, count))
  return m.top_k(score, k), score
end
return m.model {
  name = "a", vocab = 512, width = 512, sequence = 128,
  layers = m.stack(2, function()
    return m.block { ffn = m.experts { count = 8, top_k = 2, expert = { hidden = 64 }, router = route } }
  end),
}
