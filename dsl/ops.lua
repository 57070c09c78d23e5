-- SPDX-License-Identifier: Apache-2.0
-- Named operations over the primitives of compiler/model/ops.h. The graph knows only primitives: a
-- spec that writes one of these out by hand gets the same nodes, and what two of them share is made
-- once.
local m = require "moec"
local core = ...          -- what the language does not show: row axes, routes, reductions over rows

-- Reductions ------------------------------------------------------------------------------------------

local sets = { microbatch = true, sequence = true, global = true }

-- x with feature axis i of size 1 removed
local function without(x, i)
  local sizes = {}
  for k = 1, core.rank(x) do
    if k ~= i then sizes[#sizes + 1] = x:size(k) end
  end
  return m.reshape(x, sizes)
end

local function feature_reduce(name, how, x, axis, options)
  local i = core.axis(name, x, axis)
  local y = core.reduce(how, x, i, i)
  return core.options(name, options, "keep").keep and y or without(y, i)
end

local function need_tokens(name, x, set)
  if core.row(x) == "T" then return end
  core.fail(("%s over \"%s\" needs a token axis, the tensor is %s"):format(name, set, core.shape(x)))
end

-- Rows whose label is masked count in no set.
local function masked(name, x, set)
  need_tokens(name, x, set)
  local valid, ones = core.valid(), {}
  for k = 1, core.rank(x) do ones[k] = 1 end
  return #ones > 0 and m.reshape(valid, ones) or valid
end

function m.sum(x, axis, options)
  core.tensor("sum", "x", x)
  if not sets[axis] then return feature_reduce("sum", "sum", x, axis, options) end
  return core.rows("sum", x * masked("sum", x, axis), axis)
end

function m.mean(x, axis, options)
  core.tensor("mean", "x", x)
  if sets[axis] then return m.sum(x, axis) / m.max(core.n_valid(axis), 1) end
  return feature_reduce("mean", "sum", x, axis, options) * (1 / x:size(core.axis("mean", x, axis)))
end

function m.amax(x, axis, options)
  core.tensor("amax", "x", x)
  if not sets[axis] then return feature_reduce("amax", "amax", x, axis, options) end
  local valid = m.gt(masked("amax", x, axis), 0)
  return m.where(m.gt(core.n_valid(axis), 0), core.rows("amax", m.where(valid, x, -math.huge), axis), 0)
end

-- Rows -------------------------------------------------------------------------------------------------

function m.relu(x)
  return m.max(core.tensor("relu", "x", x), 0)
end

function m.clamp(x, lo, hi)
  return m.min(m.max(core.tensor("clamp", "x", x), lo), hi)
end

-- A reduction over the last axis in the form in which one writes it: [T] meets [T, n] as it is,
-- more axes need the last one kept.
local function along(name, how, x)
  return feature_reduce(name, how, x, -1, { keep = core.rank(x) > 1 })
end

-- e^(x - max x), its sum, and max x; the maximum only keeps the powers small, so it has no gradient
local function powers(name, x)
  local top = m.stop_gradient(along(name, "amax", x))
  local e = m.exp(x - top)
  return e, along(name, "sum", e), top
end

function m.softmax(x)
  local e, sum = powers("softmax", core.tensor("softmax", "x", x))
  return e / sum
end

function m.log_sum_exp(x)
  local _, sum, top = powers("log_sum_exp", core.tensor("log_sum_exp", "x", x))
  local y = m.log(sum) + top
  return core.rank(x) > 1 and without(y, core.rank(x)) or y
end

function m.rms_norm(x, gain, options)
  core.tensor("rms_norm", "x", x)
  local o = core.options("rms_norm", options, "over eps")
  local over, rank, count = o.over or 1, core.rank(x), 1
  if over > rank then
    core.fail(("rms_norm: %d axes to normalise, x is %s"):format(over, core.shape(x)), nil, "over")
  end
  for i = rank - over + 1, rank do count = count * x:size(i) end
  local eps = o.eps or core.eps()
  if type(eps) ~= "number" or not (eps >= 0 and eps < 3.4e38) then
    core.fail("rms_norm: eps must be a finite number from 0, got " .. core.describe(eps), nil, "eps")
  end
  local square = over > 1 and core.reduce("sum", x * x, rank - over + 1, rank) or along("rms_norm", "sum", x * x)
  local y = x * m.rsqrt(square * (1 / count) + eps)
  if not gain then return y end
  core.tensor("rms_norm", "gain", gain)
  for i = 1, over do
    if core.rank(gain) < over or gain:size(-i) ~= x:size(-i) then
      core.fail(("rms_norm: gain %s does not fit x %s"):format(core.shape(gain), core.shape(x)))
    end
  end
  return y * gain
end

function m.cross_entropy(logits, labels)
  core.tensor("cross_entropy", "logits", logits)
  core.tensor("cross_entropy", "labels", labels)
  local picked = m.sum(logits * m.one_hot(labels, logits:size()))
  return m.where(m.ge(labels, 0), m.log_sum_exp(logits) - picked, 0)
end

-- Contractions -----------------------------------------------------------------------------------------

function m.linear(name, x, n, options)
  core.tensor("linear", "x", x)
  local o = core.options("linear", options, "bias over each init precision")
  local over, each, rank = o.over or 1, o.each or 0, core.rank(x)
  if over + each > rank then
    core.fail(("linear: over = %d and each = %d need %d feature axes, x is %s"):format(over, each, over + each,
                                                                                      core.shape(x)))
  end
  local sizes = {}
  for i = 1, each do sizes[i] = x:size(i) end
  for i = rank - over + 1, rank do sizes[#sizes + 1] = x:size(i) end
  for _, size in ipairs(type(n) == "table" and n or { n }) do sizes[#sizes + 1] = size end
  if #sizes == over + each and n == nil then core.fail("linear: the third argument is the size of the result") end
  local w = m.param("w_" .. name, sizes, { on = x, init = o.init })
  local y = m.matmul(x, w, { over = over, each = each, precision = o.precision })
  if not o.bias then return y end
  local ends = {}
  for i = 1, core.rank(y) do ends[i] = y:size(i) end
  return y + m.param("b_" .. name, ends, { on = x, init = "zeros" })
end

-- Shapes -----------------------------------------------------------------------------------------------

function m.split(x, parts)
  core.tensor("split", "x", x)
  local axis = core.axis("split", x, -1)
  local n, sizes = x:size(), parts
  if type(parts) == "number" then
    if parts < 1 or n % parts ~= 0 then
      core.fail(("split: %s does not fall into %s equal parts"):format(core.shape(x), core.describe(parts)))
    end
    sizes = {}
    for i = 1, parts do sizes[i] = n // parts end
  elseif type(parts) ~= "table" then
    core.fail("split: expected a number of parts or a list of sizes, got " .. core.describe(parts))
  end
  local sum = 0
  for _, size in ipairs(sizes) do sum = sum + size end
  if sum ~= n then
    local list = table.concat(sizes, ", ")
    core.fail(("split: parts { %s } add up to %s, the last axis of %s is %d"):format(list, core.describe(sum),
                                                                                    core.shape(x), n))
  end
  local out, at = {}, 0
  for i, size in ipairs(sizes) do
    out[i] = core.slice(x, axis, at, size)
    at = at + size
  end
  return table.unpack(out)
end

function m.unbind(x)
  core.tensor("unbind", "x", x)
  core.axis("unbind", x, 1)
  local out = {}
  for i = 1, x:size(1) do out[i] = without(core.slice(x, 1, i - 1, 1), 1) end
  return table.unpack(out)
end

-- Routing ----------------------------------------------------------------------------------------------

function m.histogram(ids, n, set)
  core.tensor("histogram", "ids", ids)
  core.axis("histogram", ids, -1)
  local counts = m.sum(m.one_hot(ids, n), -2)
  return m.sum(counts, set or "microbatch")
end

function m.route(ids, experts, options)
  core.tensor("route", "ids", ids)
  local capacity = core.options("route", options, "capacity").capacity or "dropless"
  if capacity == "dropless" then
    capacity = 0
  elseif type(capacity) ~= "number" or capacity <= 0 then
    core.fail("route: capacity must be \"dropless\" or a positive number, got " .. core.describe(capacity), nil,
              "capacity")
  end
  local route = core.route(ids, experts, capacity)
  local load = m.histogram(ids, experts)
  local chosen = ids:size(-1) * core.n_valid("microbatch")
  core.metric("load", load, { sum = true })
  core.metric("dropped", chosen - m.sum(load), { sum = true })
  return route
end

function m.dispatch(x, route, options)
  return core.dispatch(x, route, core.options("dispatch", options, "each").each)
end

function m.combine(rows, weights)
  local y = core.collect(rows)
  if weights then
    local experts, k = core.experts(rows)
    core.tensor("combine", "weights", weights)
    if core.row(weights) ~= "T" or core.rank(weights) ~= 1 or weights:size() ~= k then
      local all = core.rank(weights) == 1 and weights:size() == experts
      local message = "combine: the weights must be [T, %d], one per chosen expert; they are %s"
      core.fail(message:format(k, core.shape(weights)), all and "m.gather(score, ids) picks the chosen scores" or nil)
    end
    local sizes = { k }
    for i = 1, core.rank(rows) do sizes[i + 1] = 1 end
    y = y * m.reshape(weights, sizes)
  end
  return m.sum(y, 1)
end
