-- Experts written by hand. Weights that rows of all experts share: a matrix and a gain ("shared"). Rows that
-- are sent on a route after others of it have come back, which no further round can serve ("twice").
local m = require "moec"

local way = m.arg("way", "shared")

local function ffn(x)
  local width, count = 12, 4
  local score = m.softmax(m.linear("score", x, count, { precision = "fp32" }))
  local ids = m.top_k(score, 2)
  local weights, route = m.gather(score, ids), m.route(ids, count)
  local rows = m.dispatch(x, route)
  local y = m.tanh(m.matmul(rows, m.param("w", { width, width }, { on = rows })))
  if way == "shared" then
    y = m.matmul(m.rms_norm(y, m.param("gain", { width }, { init = 1 })), m.param("shared", { width, width }))
  end
  y = m.combine(y, weights)
  if way == "twice" then y = m.combine(m.tanh(m.dispatch(y, route)), weights) end
  return y
end

return m.model {
  name = "returns", vocab = 23, width = 12, sequence = 7,
  layers = m.stack(m.arg("layers", 1), m.block { attention = { heads = 1, kv_heads = 1 }, ffn = ffn }),
}
