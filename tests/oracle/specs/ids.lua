-- Routes made by hand: -1 (a token with fewer experts), the same expert twice for a token, one expert that
-- never gets a row, ids past the last expert; one route for two dispatches; per-copy dispatch.
local m = require "moec"

local function odd_router(x, count, top_k)
  local id = m.tokens()
  local first = id % (count - 2)
  local second = m.where(m.eq(id % 3, 0), first, id % 4 - 1)   -- the same again, or -1 .. 2
  local third = m.where(m.lt(id, 5), -1, count + id % 2 - 1)   -- none, the last one, or past it
  local ids = m.concat(m.reshape(first, 1), m.reshape(second, 1), m.reshape(third, 1))
  local score = m.sigmoid(m.linear("score", x, top_k))
  return ids, score
end

local function twice(x)
  local ids, weights = m.scope("router", odd_router, x, 6, 3)
  local route = m.route(ids, 6)
  local rows = m.dispatch(x, route)
  local copies = m.reshape(x, 1, x:size()) * m.reshape(weights, 3, 1)
  local own = m.dispatch(copies, route, { each = true })
  return m.combine(m.scope("experts", m.mlp { hidden = 5, bias = true, activation = m.geglu }, rows), weights)
       + m.combine(m.scope("others", m.mlp { hidden = 3, activation = m.gelu }, own))
end

return m.model {
  name = "ids", vocab = 13, width = 7, sequence = 11,
  layers = m.stack(2, function() return m.block { ffn = twice } end),
}
