-- SPDX-License-Identifier: Apache-2.0
-- A MoE layer that no built-in block covers: experts act in a narrow latent space; the router sees
-- the full width and scores by cosine.
local m = require "moec"

local function relu_cubed(gate, up) return m.relu(gate) ^ 3 * up end

local cosine_router = m.define("cosine_router", {
  { "heat", "number", 10, doc = "logits are heat * cosine" },
  { "spread", "number", 1e-3, doc = "weight of the entropy bonus on the mean choice" },
}, function(f, x, count, top_k)
  local unit = function(v) return v / m.sqrt(m.sum(v ^ 2) + 1e-12) end
  local logits = f.heat * m.linear("key", unit(x), count, { precision = "fp32" })
  local score = m.softmax(logits)
  local mean = m.mean(score, "microbatch")
  m.loss("spread", m.sum(mean * m.log(mean + 1e-9)), f.spread)
  local ids = m.top_k(score, top_k)
  local weights = m.gather(score, ids)
  return ids, weights / m.sum(weights)
end)

local latent_moe = m.define("latent_moe", {
  { "latent", "size" }, { "count", "size" }, { "top_k", "size" },
  { "expert", "mlp" }, { "router", "block" },
}, function(f, x)
  local ids, weights = m.scope("router", f.router, x, f.count, f.top_k)
  local z = m.scope("norm", m.norm {}, m.linear("down", x, f.latent))
  local rows = m.dispatch(z, m.route(ids, f.count))
  local y = m.combine(m.scope("experts", f.expert, rows), weights)
  return m.linear("up", y, x:size())
end)

return m.model {
  name = "latent-moe", vocab = 100352, width = 1024, sequence = 8192,
  head = { tied = true },
  layers = m.stack(16, function(i)
    return m.block {
      norm = "peri",
      attention = { heads = 16, kv_heads = 4, rope = i % 4 ~= 0 },
      ffn = latent_moe { latent = 512, count = 512, top_k = 16, router = cosine_router(),
                         expert = { hidden = 512, activation = relu_cubed } },
    }
  end),
}
