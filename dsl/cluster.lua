-- SPDX-License-Identifier: Apache-2.0
-- Descriptions of machines and of how a model lies on them. They compute nothing: their fields are
-- read.
local m = require "moec"

local function describes() end

m.link = m.define("link", {
  { "name", "string", doc = "in reports" },
  { "size", "size", doc = "devices or groups it joins" },
  { "rate", "number", doc = "bytes per second, per device and direction" },
  { "latency", "number", 2e-6, doc = "seconds" },
}, describes)

m.device = m.define("device", {
  { "name", "string", doc = "in reports" },
  { "arch", "string", doc = "instruction set that kernels are compiled for" },
  { "units", "size", doc = "multiprocessors or cores" },
  { "memory", "number", doc = "bytes" },
  { "bandwidth", "number", doc = "bytes per second" },
  { "bf16", "number", doc = "dense FLOP per second" },
  { "mxfp8", "number", false, doc = "dense FLOP per second; none: not supported" },
  { "fp32", "number", false, doc = "FLOP per second" },
  { "shared", "size", 49152, doc = "bytes of shared memory per unit" },
  { "l2", "size", false, doc = "bytes of the last cache" },
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
  { "transport", '"rows"|"blocks"', "rows", doc = "how rows reach experts: one by one; in blocks, no plan yet" },
  { "placement", "function", false,
    doc = "(layer, expert) to the rank on the ep axis; none: expert e on e // (count / ep)" },
  { "precision", "list", {}, doc = "rules { addresses, precision } for what the spec leaves open" },
}, describes)
