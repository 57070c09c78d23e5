-- Sums, means and maxima over sets of tokens, a global balance loss, noise, shift, concat and split,
-- transpose, weights shared between layers, metrics of every row axis.
local m = require "moec"

local function noisy(x, count, top_k)
  local logits = m.linear("score", x, count) + 0.05 * m.uniform(count)
  local score = m.softmax(logits)
  local ids = m.top_k(score, top_k)
  local load = m.histogram(ids, count, "global")
  local prob = m.mean(score, "global")
  m.loss("balance", count * m.sum(load / m.max(m.sum(load), 1) * prob), 0.1)
  m.metric("load", load)
  m.metric("entropy", -m.sum(score * m.log(score)))
  return ids, m.gather(score, ids)
end

local function mix(x)
  local width = x:size()
  local before = m.concat(x, m.shift(x, 1), m.shift(x, 2))
  local h = m.linear("in", before, { 2, width })
  local a, b = m.split(m.reshape(m.transpose(h), 2 * width), { width - 1, width + 1 })
  local y = m.concat(m.tanh(a), m.erf(b))
  return m.linear("out", y, width)
end

local function pooled(x)
  local mean = m.mean(x, "sequence")                 -- [S, width]
  m.loss("flat", m.sum(mean ^ 2), 0.3)               -- [S]
  m.metric("sequence_mean", m.mean(mean))
  local all = m.sum(x, "microbatch")
  m.loss("centre", m.sum(all ^ 2) / (1 + m.abs(m.mean(all))), 0.01)
  local strength = m.sqrt(1 + m.mean(x ^ 2, "global"))
  return x / strength
end

local shared = m.shared("both", m.mlp { hidden = 9, activation = m.tanh })

return m.model {
  name = "sets", vocab = 13, width = 8, sequence = 7, norm = { gain = false },
  layers = m.stack(2, function(i)
    return m.block {
      attention = i == 2 and { heads = 2, rope = { dims = 2, theta = 20 }, bias = "qkv" },
      ffn = function(x)
        local y = m.scope("mix", mix, x) + shared(x)
        y = y + m.scope("moe", m.experts { count = 3, top_k = 2, expert = { hidden = 4 }, router = noisy }, x)
        return i == 1 and m.scope("pool", pooled, y) or y
      end,
    }
  end),
}
