local m = require "moec"
local function moe(x)
  local ids = m.top_k(m.linear("score", x, 16), 2)
  local rows = m.dispatch(x, m.route(ids, 16))
  local y = m.scope("experts", m.mlp { hidden = 256 }, rows)
  return x + y
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = { m.block { ffn = moe } } }
