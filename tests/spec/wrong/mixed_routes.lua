local m = require "moec"
local function f(x)
  local ids = m.top_k(m.linear("score", x, 4), 2)
  local a, b = m.route(ids, 4), m.route(ids, 8)
  return m.combine(m.dispatch(x, a) + m.dispatch(x, b))
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { f } }
