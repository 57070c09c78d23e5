-- One layer of experts after a narrow attention, with sizes and a choice of experts that the caller sets:
-- learned; hot, where all tokens choose the last expert first; lower, where the upper half stays empty;
-- some, where a token keeps only the experts it is sure of.
local m = require "moec"

local mode = m.arg("mode", "learned")
local width, bias = m.arg("width", 12), m.arg("bias", false)

local function chooser(x, count, top_k)
  local score = m.softmax(m.linear("score", x, count, { precision = "fp32" }))
  local last = m.one_hot(m.top_k(score, 1) * 0 + (count - 1), count)
  local choice = score
  if mode == "hot" then choice = score + m.reshape(last, { count }) * 10 end
  local ids = m.top_k(choice, top_k)
  if mode == "lower" then ids = ids % (count // 2) end
  local weights = m.gather(score, ids)
  if mode == "some" then ids = m.where(m.gt(weights, 1.02 / count), ids, -1) end
  m.loss("balance", m.sum(m.mean(score, "microbatch") * m.histogram(ids, count)) * count, 1e-2)
  return ids, weights / m.sum(weights)
end

return m.model {
  name = "experts", vocab = 23, width = width, sequence = m.arg("sequence", 7),
  layers = m.stack(m.arg("layers", 1), m.block {
    attention = { heads = 1, kv_heads = 1 },
    ffn = m.experts {
      count = m.arg("count", 4), top_k = m.arg("top_k", 2), router = chooser,
      expert = { hidden = m.arg("hidden", 8), bias = bias },
    },
  }),
}
