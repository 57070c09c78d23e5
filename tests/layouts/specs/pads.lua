-- Experts that make something of zero rows: without a norm's epsilon no number, with a bias and an activation that is
-- 1 at 0 another row, and a gradient for a gain that rows of all experts share.
local m = require "moec"

local function ffn(x)
  local width, hidden, count = 12, 40, 4
  local score = m.softmax(m.linear("score", x, count, { precision = "fp32" }))
  local ids = m.top_k(score, 2)
  local rows = m.dispatch(x, m.route(ids, count))
  local h = m.linear("up", rows * m.rsqrt(m.sum(rows ^ 2)), hidden, { bias = true })
  h = m.exp(-m.abs(h)) * m.param("gain", { hidden }, { init = 1 })
  local y = m.linear("down", m.exp(-m.abs(m.linear("middle", h, hidden, { bias = true }))), width, { bias = true })
  return m.combine(y, m.gather(score, ids))
end

return m.model {
  name = "pads", vocab = 23, width = 12, sequence = 7,
  layers = m.stack(1, m.block { attention = { heads = 1, kv_heads = 1 }, ffn = ffn }),
}
