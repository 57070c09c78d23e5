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
  { "mesh", "list", doc = "axes and their sizes, outermost first: \"pp=2\"" },
  { "dense", '"resident"|"fsdp"', "resident", doc = "where dense parameters live" },
  { "experts", '"resident"|"fsdp"', "resident", doc = "where expert parameters live" },
  { "optimizer", '"sharded"|"replicated"', "sharded", doc = "master weights and moments" },
  { "schedule", '"1f1b"|"interleaved"|"zb"', "1f1b", doc = "of the pipeline" },
  { "slots", "size", 1, doc = "virtual stages per rank" },
  { "stages", "list", false, doc = "layers per virtual stage; none: even" },
  { "microbatch", "size", 1, doc = "sequences" },
  { "recompute", '"none"|"cheap"|"block"', "none", doc = "what backward computes again" },
  { "capacity", 'number|"dropless"', false, doc = "rows per rank over the even share; none: as the model says" },
  { "transport", '"auto"|"rowwise"|"alltoall"', "auto", doc = "of rows between ranks" },
  { "placement", "function", false, doc = "(layer, expert) to the rank on the ep axis" },
  { "precision", "list", {}, doc = "rules { addresses, precision } for contractions" },
}, describes)
