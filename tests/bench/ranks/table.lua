-- SPDX-License-Identifier: Apache-2.0
-- Layouts side by side on this machine: experts that stay against weights that move, few experts against
-- many, with the machine's own memory between ranks and with a link as slow, for its arithmetic, as the one
-- between GPUs. `./dev bench layouts [--quick]`.
--
--   lua5.4 table.lua BUILD [--quick] [--only TEXT]      lines whose name has TEXT

local build, quick, only = arg[1], false, nil
for i = 2, #arg do
  if arg[i] == "--quick" then quick = true
  elseif arg[i] == "--only" then only = arg[i + 1]
  elseif arg[i - 1] ~= "--only" then io.stderr:write("layouts: unknown option ", arg[i], "\n"); os.exit(2) end
end

-- Between eight B300s: 900 GB/s a direction and GPU over NVLink 5, 2250 TFLOP/s dense in bf16 (NVIDIA, DGX B300
-- datasheet and HGX B300 specifications).
local BYTES_PER_FLOP = 900e9 / 2250e12

-- A whole step takes over a minute: what a first one takes longer (pages that are new) does not show in it.
local size = quick and { layers = 3, sequence = 128, sequences = 2, microbatches = 2, warm_up = 1, experts = { 8, 32 }, ranks = { 2 } }
  or { layers = 8, sequence = 1024, sequences = 8, microbatches = 8, warm_up = 0, experts = { 8, 128 }, ranks = { 2, 4 } }

local function output(command)
  local pipe <close> = assert(io.popen(command, "r"))
  local text = pipe:read("a")
  local done = pipe:close()
  return text, done
end

-- GFLOP/s of all cores in bf16, as `./dev bench` measures them.
local function peak()
  local text = output(build .. "/moec-bench --quick --only none")
  return tonumber(text:match("bf16 dot%s+%S+%s+%S+%s+(%S+)")) or error("no peak in what moec-bench says")
end

local function run(ranks, layout, experts, link, routing)
  local command = ("tests/mpirun.sh %s %d %s/moec-layouts tests/bench/ranks/model.lua dp=%d,%s,microbatch=%d experts=%d layers=%d sequence=%d --microbatches %d --warm-up %d --routing %s --link %.0f 2>&1")
    :format(build, ranks, build, ranks, layout, size.sequences // ranks, experts, size.layers, size.sequence, size.microbatches, size.warm_up, routing, link)
  local text, done = output(command)
  local result = {}
  for name, value in text:gmatch("(%g+)=(%g+)") do result[name] = tonumber(value) end
  if not done or not result.tokens_per_s then
    io.stderr:write(command, "\n", text)
    os.exit(text:find("no MPI here", 1, true) and 77 or 1)
  end
  return result
end

local function mib(bytes) return ("%.1f"):format(bytes / 2^20) end

local moves = { "gather", "exchange", "put", "get" }
local function given(result, what)
  local sum = 0
  for _, move in ipairs(moves) do sum = sum + result[move .. what] end
  return sum
end

local gflops = peak()
print(("bf16 peak of all cores %.1f GFLOP/s; slow link %.3g bytes per FLOP"):format(gflops, BYTES_PER_FLOP))
print(("%d layers of width 512, %d tokens per microbatch of all ranks, %d microbatches a step")
  :format(size.layers, size.sequence * size.sequences, size.microbatches))
local head = "%-5s %-9s %7s %-7s %-8s %9s %9s %10s %10s %10s %10s"
print(head:format("ranks", "layout", "experts", "link", "routing", "s a step", "tokens/s", "MiB given", "planned", "MiB memory", "touched"))

local speed = {}
local function line(ranks, name, layout, experts, slow, routing)
  local rate = slow and gflops * 1e9 / ranks * BYTES_PER_FLOP or 0
  local title = ("%d %s %d %s %s"):format(ranks, name, experts, slow and "slow" or "memory", routing)
  if only and not title:find(only, 1, true) then return end
  local r = run(ranks, layout, experts, rate, routing)
  speed[title] = r.tokens_per_s
  -- How many rows go where is known ahead unless routing is drawn or learned.
  if (name == "fsdp" or routing == "uniform") and given(r, "_counted") ~= given(r, "_predicted") then
    error(("%s: %.0f bytes given, %.0f planned"):format(title, given(r, "_counted"), given(r, "_predicted")))
  end
  print(head:format(ranks, name, experts, slow and "slow" or "memory", routing, ("%.3f"):format(r.step_s),
    ("%.0f"):format(r.tokens_per_s), mib(given(r, "_counted")), mib(given(r, "_predicted")), mib(r.memory_predicted), mib(r.memory_touched)))
  io.stdout:flush()
end

for _, ranks in ipairs(size.ranks) do
  for _, slow in ipairs { false, true } do
    for _, experts in ipairs(size.experts) do
      line(ranks, "resident", ("ep=%d"):format(ranks), experts, slow, "random")
      line(ranks, "fsdp", "params=fsdp", experts, slow, "random")
    end
  end
end
for _, ranks in ipairs(size.ranks) do
  for _, routing in ipairs { "learned", "uniform" } do
    line(ranks, "resident", ("ep=%d"):format(ranks), size.experts[2], true, routing)
  end
end

local few, many = size.experts[1], size.experts[2]
for _, ranks in ipairs(size.ranks) do
  for _, link in ipairs { "memory", "slow" } do
    local function at(name, experts) return speed[("%d %s %d %s random"):format(ranks, name, experts, link)] end
    if at("resident", few) and at("resident", many) and at("fsdp", few) and at("fsdp", many) then
      print(("%d ranks, link %s: from %d to %d experts resident keeps %.0f %% of its speed, fsdp %.0f %%; at %d resident is %.2f times as fast")
        :format(ranks, link, few, many, 100 * at("resident", many) / at("resident", few),
          100 * at("fsdp", many) / at("fsdp", few), many, at("resident", many) / at("fsdp", many)))
    end
  end
end
