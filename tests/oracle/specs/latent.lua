-- The research model: experts in a narrow latent space, cosine router with an entropy bonus over the
-- microbatch, own activation, tied and capped head, layers without positions.
local m = require "moec"

local function relu_cubed(gate, up) return m.relu(gate) ^ 3 * up end

local cosine_router = m.define("cosine_router", {
  { "heat",   "number", 10,   doc = "logits are heat * cosine" },
  { "spread", "number", 1e-1, doc = "weight of the entropy bonus on the mean choice" },
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
  name = "latent", vocab = 29, width = 12, sequence = 13,
  head = { tied = true, cap = 3 },
  layers = m.stack(2, function(i)
    return m.block {
      norm = "peri",
      attention = { heads = 2, kv_heads = 1, rope = i % 4 ~= 0 },
      ffn = latent_moe { latent = 5, count = 17, top_k = 4, router = cosine_router(),
                         expert = { hidden = 7, activation = relu_cubed } },
    }
  end),
}
