-- SPDX-License-Identifier: Apache-2.0
-- Descriptions of machines and of how a model lies on them. They compute nothing: their fields are
-- read.
local m = require "moec"

local function describes() end

-- A number with where it is from. A plain number in its place counts as a specification.
m.figure = m.define("figure", {
  { "value", "number", doc = "in the unit of the field" },
  { "evidence", '"measured"|"same_gpu"|"same_generation"|"specification"', "specification", doc = "how it is known" },
  { "source", "string", false, doc = "where it is from" },
}, describes)

m.curve = m.define("curve", {
  { "points", "list", doc = "pairs { x, y }, x ascending; lines between them in log-log" },
  { "ranks", "size", 2, doc = "of a collective: among how many it was measured" },
  { "evidence", '"measured"|"same_gpu"|"same_generation"|"specification"', "specification", doc = "how it is known" },
  { "source", "string", false, doc = "where it is from" },
}, describes)

m.products = m.define("products", {
  { "peak", "number", doc = "dense FLOP per second" },
  { "reach", "number", 0.75, doc = "share of it that large products reach" },
  { "depth", "number", 128, doc = "length of the contraction that reaches half of that" },
  { "edge", "number", 0, doc = "a tile of m x n takes 1 + edge (1/m + 1/n) times its arithmetic" },
  { "tile", "list", { 256, 128 }, doc = "largest tile of a unit: rows, columns" },
  { "experts", "number", 0.95, doc = "reach of grouped products over that of dense ones" },
  { "experts_depth", "number", 512, doc = "depth of grouped products" },
  { "wgrad", "number", 1, doc = "reach of wgrads over that of forward" },
  { "quantise_bytes", "number", 0, doc = "traffic per number of the left operand before it can be used" },
  { "quantise_launch", "number", 0, doc = "seconds to launch that" },
  { "evidence", '"measured"|"same_gpu"|"same_generation"|"specification"', "specification", doc = "how it is known" },
  { "source", "string", false, doc = "where it is from" },
}, describes)

m.link = m.define("link", {
  { "name", "string", doc = "in reports" },
  { "size", "size", doc = "devices or groups it joins" },
  { "rate", "number|figure", doc = "bytes per second, per device and direction" },
  { "latency", "number|figure", 2e-6, doc = "seconds" },
  { "share", "number|figure", 0.8, doc = "of the rate, where there is no curve" },
  { "gather", "list", {}, doc = "m.curve, by ranks: seconds by bytes that leave a rank" },
  { "reduce_scatter", "list", {}, doc = "the same" },
  { "all_to_all", "list", {}, doc = "the same" },
  { "send", "list", {}, doc = "the same" },
  { "row_fixed", "number|figure", false, doc = "seconds of a dispatch or combine of few rows; none: latency" },
  { "rows_out", "number|figure", false, doc = "bytes per second of rows put to experts; none: share of rate" },
  { "rows_back", "number|figure", false, doc = "of rows fetched from experts" },
  { "blocks_out", "number|figure", false, doc = "of rows that cross once per node" },
  { "blocks_back", "number|figure", false, doc = "of these, back" },
}, describes)

m.device = m.define("device", {
  { "name", "string", doc = "in reports" },
  { "arch", "string", doc = "instruction set that kernels are compiled for" },
  { "units", "size", doc = "multiprocessors or cores" },
  { "memory", "number|figure", doc = "bytes" },
  { "reserved", "number|figure", 2^30, doc = "bytes of it that contexts and transports take" },
  { "bandwidth", "number|figure", doc = "bytes per second" },
  { "bf16", "number|products", doc = "dense FLOP per second" },
  { "mxfp8", "number|products", false, doc = "dense FLOP per second; none: not supported" },
  { "fp32", "number|figure|products", false, doc = "FLOP per second" },
  { "shared", "size", 49152, doc = "bytes of shared memory per unit" },
  { "l2", "size", false, doc = "bytes of the last cache" },
  { "sustained", "number|figure", 0.95, doc = "share of the rates of products and attention under load that lasts" },
  { "overlap", "number|figure", 1,
    doc = "of a product's arithmetic and its traffic, the share of the shorter that the longer hides" },
  { "launch", "number|figure", 3e-6, doc = "seconds of a kernel beside others" },
  { "row_rate", "number|figure", false,
    doc = "FLOP per second of row operations, of which an exponential has 8; none: their bytes decide" },
  { "stream", "number|figure", 0.8, doc = "share of bandwidth that row operations reach" },
  { "move", "number|figure", 0.5, doc = "share that moves of rows reach" },
  { "adam", "number|figure", 0.8, doc = "share that the optimizer reaches" },
  { "cached", "curve", false,
    doc = "how many times as fast traffic is, by a kernel's bytes, which caches still have; none: as memory" },
  { "attention", "curve", false, doc = "share of the peak by sequence length, heads of 128; none: half of reach" },
  { "attention_back", "curve", false, doc = "of its backward" },
  -- 1: heads of 64 reach two thirds (cuDNN on Blackwell, forward: 650 against 1000 TFLOP/s, Triton pull request 891)
  { "attention_narrow", "number|figure", 1,
    doc = "of heads of 128, time that all widths take, over time that grows with it" },
  { "attention_block", "number|figure", 128, doc = "n keys reach n / (n + block) of the curve; 0: the curve has it" },
  { "sharing", "number|figure", 1, doc = "how much faster it is while others that share its cores wait" },
  { "contention", "number|figure", 1.2, doc = "how much slower compute is beside communication" },
  { "source", "string", false, doc = "where its plain numbers are from" },
}, describes)

m.cluster = m.define("cluster", {
  { "name", "string", doc = "in reports" },
  { "device", "device", doc = "all devices are alike" },
  { "links", "list", doc = "m.link, innermost first" },
}, describes)

m.layout = m.define("layout", {
  { "mesh", "list", {}, doc = "axes and their sizes, outermost first: \"pp=2\", \"dp=8\", \"ep=4\"" },
  { "params", '"resident"|"fsdp"', "resident",
    doc = "weights: whole on every rank, or divided over dp and gathered before use" },
  { "expert_params", '"resident"|"fsdp"', false, doc = "the same of experts' weights, over dp / ep; none: as params" },
  { "schedule", '"1f1b"|"interleaved"|"zb"', "1f1b", doc = "of the pipeline" },
  { "slots", "size", 1, doc = "stages on each rank, if interleaved" },
  { "stages", "list", false, doc = "layers of each stage, in order; none: even" },
  { "microbatch", "size", false, doc = "sequences that a rank computes at once; none: the run's" },
  { "recompute", '"cheap"|"none"|"block"|list', false,
    doc = "what backward computes again, of all layers or of each; none: the run's" },
  { "capacity", 'number|"dropless"', false, doc = "room for rows over the even share of a rank; none: the spec's" },
  { "round", 'number|"whole"', false, doc = "if dropless: room of one round; what does not fit comes in further ones" },
  { "transport", '"rows"|"blocks"', "rows",
    doc = "how rows reach experts: one by one into memory; between nodes in blocks" },
  { "node", "size", 1, doc = "with transport=blocks: ranks of ep that reach each other's memory; divides ep" },
  { "row_align", "size", 1, doc = "first rows of experts are multiples of it, a power of two; rows between are zero" },
  { "overlap", '"on"|"off"', "on", doc = "what crosses ranks does so while kernels run, or alone" },
  { "placement", "function", false,
    doc = "(layer, expert) to the rank on the ep axis; none: expert e on e // (count / ep)" },
  { "precision", "list", {}, doc = "rules { addresses, precision } for what the spec leaves open" },
}, describes)
