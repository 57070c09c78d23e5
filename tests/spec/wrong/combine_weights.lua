local m = require "moec"
local function moe(x)
  local score = m.softmax(m.linear("score", x, 16))
  local rows = m.dispatch(x, m.route(m.top_k(score, 2), 16))
  return m.combine(rows, score)
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { moe } }
