-- SPDX-License-Identifier: Apache-2.0
-- The built-in blocks, written in the language they belong to.
local m = require "moec"
local core = ...

local function need_positive(name, x)
  if x and x <= 0 then
    core.fail(("%s must be above 0, got %s"):format(name, core.describe(x)), nil, name:match "%w+$")
  end
end

local function need_eps(name, x)
  if x and x < 0 then core.fail(("%s must be 0 or more, got %s"):format(name, core.describe(x)), nil, "eps") end
end

-- Activations: the number of their arguments is the number of input projections.

function m.silu(x) return x * m.sigmoid(x) end
function m.gelu(x) return 0.5 * x * (1 + m.erf(x * 0.7071067811865476)) end
function m.relu2(x) return m.relu(x) ^ 2 end
function m.swiglu(gate, up) return m.silu(gate) * up end
function m.geglu(gate, up) return m.gelu(gate) * up end

m.norm = m.define("norm", {
  { "over", "size", 1, doc = "how many trailing axes are normalised together" },
  { "gain", "boolean", true, doc = "learn a gain" },
  { "eps", "number", false, doc = "default: the model's `eps`" },
}, function(f, x)
  need_eps("norm.eps", f.eps)
  local axes = {}
  for i = 1, f.over do axes[i] = x:size(i - f.over - 1) end
  local gain = f.gain and m.param("gain", axes, { on = x, init = "ones" }) or nil
  return m.rms_norm(x, gain, { over = f.over, eps = f.eps or nil })
end)

-- Attention --------------------------------------------------------------------------------------------

m.rope = m.define("rope", {
  { "theta", "number", 10000, doc = "base of the frequencies" },
  { "dims", "size", false, doc = "the first features, which turn; default all" },
  { "pairs", '"half"|"adjacent"', "half", doc = "a feature's partner: half the width away, or its neighbour" },
  { "scaling", "function", false, doc = "(frequencies, theta) to frequencies and an optional factor" },
}, function(f, x)
  local n, freq, factor = f.dims or x:size(), {}, nil
  need_positive("rope.theta", f.theta)
  if n % 2 ~= 0 then
    local field = f.dims and "dims" or core.field("head_dim", "rope_dim")
    core.fail(("rope turns features in pairs: %s must be even, got %d"):format(field or "the last axis", n), nil,
              field)
  end
  for i = 1, n // 2 do freq[i] = f.theta ^ (-2 * (i - 1) / n) end
  if f.scaling then freq, factor = f.scaling(freq, f.theta) end
  return m.rotate(x, m.constant(freq), { pairs = f.pairs, factor = factor })
end)

m.yarn = m.define("yarn", {
  { "factor", "number", doc = "how much longer the context becomes" },
  { "original", "size", doc = "sequence length before" },
  { "fast", "number", 32, doc = "turns within `original` from which a frequency stays" },
  { "slow", "number", 1, doc = "turns up to which it is divided by `factor`" },
  { "truncate", "boolean", true, doc = "round both limits outwards to whole features" },
}, function(f, freq, theta)
  need_positive("yarn.factor", f.factor)
  local function index(turns) return #freq * math.log(f.original / (turns * 2 * math.pi)) / math.log(theta) end
  local low, high = index(f.fast), index(f.slow)
  if f.truncate then low, high = math.floor(low), math.ceil(high) end
  low, high = math.max(low, 0), math.min(high, 2 * #freq - 1)
  local out = {}
  for i, w in ipairs(freq) do
    local ramp = math.min(math.max((i - 1 - low) / math.max(high - low, 1e-3), 0), 1)
    out[i] = w * (1 - ramp) + w / f.factor * ramp
  end
  return out, 0.1 * math.log(f.factor) + 1
end)

m.attention = m.define("attention", {
  { "heads", "size", doc = "query heads" },
  { "kv_heads", "size", false, doc = "key and value heads; default `heads`" },
  { "head_dim", "size", false, doc = "default width // heads" },
  { "rope", "rope", false, doc = "rotary positions; none: no positions" },
  { "qk_norm", '"head"|"full"', false, doc = "RMS norm of q and k, per head or across all heads" },
  { "window", "size", false, doc = "keys a query may see, itself included" },
  { "causal", "boolean", true, doc = "no key after the query" },
  { "sinks", "boolean", false, doc = "a learned logit per head that takes part in the softmax" },
  { "bias", 'boolean|"qkv"', false, doc = "biases on q, k, v and o, or on the first three" },
  { "scale", "number", false, doc = "of the logits; default head_dim ^ -0.5" },
}, function(f, x)
  local width, H = x:size(), f.heads
  need_positive("attention.scale", f.scale)
  if not f.head_dim and H > width then
    core.fail(("attention.head_dim is 0: a width of %d leaves nothing for each of %d heads"):format(width, H),
              "fewer heads, or give head_dim", "heads")
  end
  local G, n = f.kv_heads or H, f.head_dim or width // H
  local q = m.linear("q", x, { H, n }, { bias = f.bias })
  local k = m.linear("k", x, { G, n }, { bias = f.bias })
  local v = m.linear("v", x, { G, n }, { bias = f.bias })
  if f.qk_norm then
    local norm = m.norm { over = f.qk_norm == "full" and 2 or 1 }
    q, k = m.scope("q_norm", norm, q), m.scope("k_norm", norm, k)
  end
  if f.rope then q, k = f.rope(q), f.rope(k) end
  local sinks = f.sinks and m.param("sinks", { H }, { init = "zeros" }) or nil
  local y = m.attend(q, k, v, { causal = f.causal, window = f.window, scale = f.scale, sinks = sinks })
  return m.linear("o", y, width, { over = 2, bias = f.bias == true })
end)

m.mla = m.define("mla", {
  { "heads", "size", doc = "query, key and value heads" },
  { "q_rank", "size", false, doc = "latent width of q; none: q straight from x" },
  { "kv_rank", "size", doc = "latent width of k and v; what a cache holds" },
  { "nope_dim", "size", doc = "features per head without position" },
  { "rope_dim", "size", doc = "features per head with position; one such key for all heads" },
  { "v_dim", "size", doc = "features per value head" },
  { "rope", "rope", true, doc = "applied to the second part" },
}, function(f, x)
  local norm, H = m.norm {}, f.heads
  local c = f.q_rank and m.scope("q_norm", norm, m.linear("q_down", x, f.q_rank)) or x
  local q, q_pos = m.split(m.linear("q_up", c, { H, f.nope_dim + f.rope_dim }), { f.nope_dim, f.rope_dim })
  local latent, k_pos = m.split(m.linear("kv_down", x, f.kv_rank + f.rope_dim), { f.kv_rank, f.rope_dim })
  latent = m.scope("kv_norm", norm, latent)
  local k, v = m.split(m.linear("kv_up", latent, { H, f.nope_dim + f.v_dim }), { f.nope_dim, f.v_dim })
  q = m.concat(q, f.rope(q_pos))
  k = m.concat(k, f.rope(m.reshape(k_pos, 1, f.rope_dim)))
  return m.linear("o", m.attend(q, k, v), x:size(), { over = 2 })
end)

-- Feed-forward -----------------------------------------------------------------------------------------

m.mlp = m.define("mlp", {
  { "hidden", "size", doc = "inner width" },
  { "activation", "function", m.swiglu, doc = "of (h): plain; of (gate, up): two input projections" },
  { "bias", "boolean", false, doc = "on every projection" },
}, function(f, x)
  local h = m.linear("in", x, { m.arity(f.activation), f.hidden }, { bias = f.bias })
  return m.linear("out", f.activation(m.unbind(h)), x:size(), { bias = f.bias })
end)

-- With fewer experts left than a token chooses, it would take some that its groups rule out.
local function check_groups(f, count, top_k)
  local each = count // f.groups
  if count % f.groups ~= 0 then
    core.fail(("router.groups must divide the %d experts, got %d"):format(count, f.groups), nil, "groups")
  elseif each < 2 then
    core.fail(("router.groups leaves %d expert per group, expected 2 or more"):format(each), nil, "groups")
  elseif f.keep_groups > f.groups then
    core.fail(("router.keep_groups must be up to the %d groups, got %d"):format(f.groups, f.keep_groups), nil,
              "keep_groups")
  elseif top_k > f.keep_groups * each then
    core.fail(("router.keep_groups = %d leaves a token %d experts (%d per group), top_k chooses %d"):format(
              f.keep_groups, f.keep_groups * each, each, top_k), "more keep_groups, fewer groups or a smaller top_k",
              "keep_groups")
  end
end

m.router = m.define("router", {
  { "score", "function", m.softmax, doc = "logits to scores: m.softmax, m.sigmoid or yours" },
  { "normalize", "boolean", false, doc = "make the chosen weights sum to 1" },
  { "scale", "number", 1, doc = "then multiply them" },
  { "bias", "boolean", false, doc = "learned bias on the logits" },
  { "correction", "number", false, doc = "rate of a balancing bias that ranks experts but does not weigh them" },
  { "groups", "size", false, doc = "experts lie in that many groups" },
  { "keep_groups", "size", 1, doc = "groups a token may use, by the sum of their two best ranks" },
  { "balance_loss", "number", 0, doc = "weight of the load-balancing loss; key `balance`" },
  { "balance", '"microbatch"|"sequence"|"global"', "microbatch", doc = "set of tokens it is taken over" },
  { "z_loss", "number", 0, doc = "weight of the mean squared log-partition; key `z`" },
}, function(f, x, count, top_k)
  local logits = m.linear("score", x, count, { bias = f.bias, precision = "fp32" })
  local score = f.score(logits)
  local rank, correction = score, nil
  if f.correction then
    correction = m.state("correction", { count })
    rank = rank + correction
  end
  if f.groups then
    check_groups(f, count, top_k)
    local grouped = m.reshape(rank, f.groups, count // f.groups)
    local best = m.top_k(m.sum(m.gather(grouped, m.top_k(grouped, 2))), f.keep_groups)
    local open = m.reshape(m.sum(m.one_hot(best, f.groups), 1), f.groups, 1)
    rank = m.reshape(m.where(m.gt(open, 0), grouped, -math.huge), count)
  end
  local ids = m.top_k(rank, top_k)
  local weights = m.gather(score, ids)
  if f.normalize then weights = weights / (m.sum(weights) + 1e-20) end

  if f.balance_loss ~= 0 then
    local load = m.histogram(ids, count, f.balance)
    local prob = m.mean(score / (m.sum(score) + 1e-20), f.balance)
    m.loss("balance", count * m.sum(load / m.max(m.sum(load), 1) * prob), f.balance_loss)
  end
  if f.z_loss ~= 0 then m.loss("z", m.log_sum_exp(logits) ^ 2, f.z_loss) end
  if correction then
    m.update(correction, m.histogram(ids, count), function(old, load)
      return old + f.correction * m.sign(m.mean(load) - load)
    end)
  end
  return ids, weights * f.scale
end)

m.experts = m.define("experts", {
  { "count", "size", doc = "routed experts" },
  { "top_k", "size", doc = "experts per token" },
  { "expert", "mlp", doc = "one expert; any block" },
  { "router", "router", true, doc = "(x, count, top_k) to ids, weights" },
  { "shared", "mlp", false, doc = "a block every token passes; added" },
  { "capacity", 'number|"dropless"', "dropless", doc = "rows per rank over the even share; a layout may override" },
}, function(f, x)
  local ids, weights = m.scope("router", f.router, x, f.count, f.top_k)
  m.expect("the router's ids", ids, f.top_k)
  m.expect("the router's weights", weights, f.top_k)
  local rows = m.dispatch(x, m.route(ids, f.count, { capacity = f.capacity }))
  local y = m.combine(m.scope("experts", f.expert, rows), weights)
  if f.shared then y = y + m.scope("shared", f.shared, x) end
  return y
end)

-- The model --------------------------------------------------------------------------------------------

m.block = m.define("block", {
  { "attention", "attention", false, doc = "first branch; m.mla or any block" },
  { "ffn", "mlp", false, doc = "second branch; m.experts or any block" },
  { "norm", '"pre"|"output"|"peri"|"none"', "pre",
    doc = '"pre": x + f(norm(x)); "output": x + norm(f(x)); "peri": both norms' },
}, function(f, x)
  local before, after = f.norm == "pre" or f.norm == "peri", f.norm == "output" or f.norm == "peri"
  local function branch(name, block)
    local y = x
    if before then y = m.scope(name .. "_norm", m.norm {}, y) end
    y = m.scope(name, block, y)
    if after then y = m.scope(name .. "_out_norm", m.norm {}, y) end
    return x + y
  end
  if f.attention then x = branch("attention", f.attention) end
  if f.ffn then x = branch("ffn", f.ffn) end
  return x
end)

m.embedding = m.define("embedding", {
  { "scale", "number", 1, doc = "multiplies the rows of the table" },
  { "norm", "norm", false, doc = "after scaling" },
}, function(f, ids, vocab, width)
  local x = m.embed(m.param("w", { vocab, width }), ids) * f.scale
  if f.norm then x = m.scope("norm", f.norm, x) end
  return x
end)

m.head = m.define("head", {
  { "tied", "boolean", false, doc = "use the embedding's table, transposed" },
  { "cap", "number", false, doc = "soft limit: cap * tanh(logits / cap)" },
}, function(f, x, vocab)
  need_positive("head.cap", f.cap)
  local w = f.tied and m.transpose(m.get "embedding.w") or m.param("w", { x:size(), vocab })
  local logits = m.matmul(x, w)
  if f.cap then logits = f.cap * m.tanh(logits / f.cap) end
  return logits
end)

m.mtp = m.define("mtp", {
  { "layer", "block", doc = "a layer of each depth" },
  { "depth", "size", 1, doc = "tokens predicted beyond the next" },
  { "weight", "number", 0.3, doc = "of their mean loss" },
}, function(f, x, embed, head)
  local norm, width = m.norm {}, x:size()
  for k = 1, f.depth do
    m.scope(k, function()
      local pair = m.concat(m.scope("state_norm", norm, x), m.scope("token_norm", norm, embed(m.tokens(k))))
      x = m.scope("layer", f.layer, m.linear("join", pair, width))
      m.expect("the output of the mtp layer", x, width)
      m.loss("ce", m.cross_entropy(head(m.scope("norm", norm, x)), m.labels(k + 1)), f.weight / f.depth)
    end)
  end
end)

m.model = m.define("model", {
  { "name", "string", doc = "in logs, plans and checkpoints" },
  { "vocab", "size", doc = "rows of the embedding; padded by you, never silently" },
  { "width", "size", doc = "of the residual stream" },
  { "sequence", "size", doc = "tokens per training sequence" },
  { "layers", "list", doc = "blocks or functions; pipeline stages are cut between them" },
  { "embedding", "embedding", true, doc = "(ids, vocab, width) to x" },
  { "norm", "norm", true, doc = "before the head" },
  { "head", "head", true, doc = "(x, vocab) to logits" },
  { "z_loss", "number", 0, doc = "on the logits" },
  { "mtp", "mtp", false, doc = "multi-token prediction; training only" },
  { "eps", "number", 1e-6, doc = "of every norm that gives none" },
  { "parameters", "list", {}, doc = "rules for init, decay, lr, precision" },
}, function(f)
  need_eps("model.eps", f.eps)
  local embed = m.shared("embedding", function(ids) return f.embedding(ids, f.vocab, f.width) end)
  local head = m.shared("head", function(x) return f.head(x, f.vocab) end)
  local x = m.expect("the embedding's output", embed(m.tokens()), f.width)
  for i, layer in ipairs(f.layers) do
    x = m.scope("layers." .. i, function(h) return m.expect("a layer's output", layer(h), f.width) end, x)
  end
  local logits = head(m.scope("norm", f.norm, x))
  m.expect("the head's output", logits, f.vocab)
  m.loss("ce", m.cross_entropy(logits, m.labels()))
  if f.z_loss ~= 0 then m.loss("z", m.log_sum_exp(logits) ^ 2, f.z_loss) end
  if f.mtp then m.scope("mtp", f.mtp, x, embed, head) end
  return logits
end)
