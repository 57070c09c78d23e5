-- Sums over all ranks and what hangs on them: gradients through them, losses and metrics made of them, a
-- state updated from one and a state updated from a sum of the microbatch's own.
local m = require "moec"

local function scaled(x)
  local strength = m.sqrt(1 + m.mean(x ^ 2, "global"))
  m.loss("strength", m.sum(strength ^ 2), 0.05)
  m.metric("mean_strength", m.mean(strength))
  m.metric("strengths", strength, { sum = true })
  return x / strength
end

local function noisy(x, count, top_k)
  local score = m.softmax(m.linear("score", x, count) + 0.05 * m.uniform(count))
  local seen, drift = m.state("seen", { count }), m.state("drift", { count })
  local ids = m.top_k(score + 1e-3 * seen, top_k)
  local load = m.histogram(ids, count, "global")
  m.update(seen, m.histogram(ids, count), function(old, total) return old + m.sign(m.mean(total) - total) end)
  m.update(drift, load, function(old, total) return old + total end)
  m.loss("balance", count * m.sum(load / m.max(m.sum(load), 1) * m.mean(score, "global")), 0.1)
  m.metric("load", load, { sum = true })
  m.metric("entropy", -m.sum(score * m.log(score)))
  return ids, m.gather(score, ids)
end

return m.model {
  name = "sums", vocab = 17, width = 12, sequence = 9,
  layers = m.stack(2, function(i)
    return m.block {
      attention = i == 2 and { heads = 2 } or nil,
      ffn = function(x)
        local y = m.scope("moe", m.experts { count = 3, top_k = 2, expert = { hidden = 5 }, router = noisy }, x)
        return m.scope("scale", scaled, y + m.linear("side", x, 12))
      end,
    }
  end),
}
