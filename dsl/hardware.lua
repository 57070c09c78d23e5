-- SPDX-License-Identifier: Apache-2.0
-- Machines that can be named: m.hardware "b300x64". Every number says where it is from and how it is known:
-- measured on the machine at hand, on the same device elsewhere, on one of its generation, or specified.
--
-- Sources. AIC: the tables of latencies published with NVIDIA's AIConfigurator (GEMM, NCCL, DeepEP), to which
-- reach, depth, edge and the curves are fitted; moec-tables compares. Sheet: NVIDIA's data sheets
-- (dense peaks, no sparsity). OC3: the technical report of OLMo-core 3. SimuMax: its published B200 system.
local m = require "moec"

local function known(evidence, source)
  return function(value) return m.figure { value = value, evidence = evidence, source = source } end
end
local sheet = known("specification", "NVIDIA data sheet")
local nccl = "AIC, NCCL inside a node"
-- Blocks of rows, what leaves a device: published bandwidths count what stays on it too, so of R ranks R - 1 in R of
-- them. H100, H200: AIC, DeepEP 1 inside a node (a dispatch in fp8 and its combine in bf16 agree). Blackwell: HybridEP
-- in bf16 as its calls take it, as published with it: 8 B200 (536 and 531 GB/s), 32 GB200 of a rack (484 and 465).
-- Rows one by one: OC3, table 7, on B300; others by the rate of NVLink.
local dep = "DeepEP and HybridEP inside a node; rows: OC3, table 7"
-- Between nodes. H100: AIC, DeepEP over 2 to 8 nodes. B200: DeepEP 2 over two nodes of ConnectX-7 (90 GB/s, half of
-- it stays). B300: DeepEP 2 over two nodes with 800 Gb/s for a device, awsome-distributed-ai, pull request 1234 (115 to
-- 118 GB/s, half of it stays); HybridEP over ConnectX-8 reaches no more (DeepEP, issue 590).
local dep_net = "DeepEP between nodes"

-- Microseconds in which each of n ranks comes to have, or gives, `sizes` bytes: { n, us, us, .. }.
local sizes = { 2^16, 2^20, 2^22, 2^24, 2^26, 2^27, 2^29 }
local function curves()
  return {
  a100 = {
      gather = {
        { 2, 12.5, 19.9, 43.3, 93.4, 266, 496, 1790 },
        { 4, 15.4, 22.5, 60.7, 118, 325, 578, 2100 },
        { 8, 21.1, 26.8, 48, 135, 352, 660, 2290 },
      },
      reduce_scatter = {
        { 2, 11.8, 19.4, 41.2, 82.3, 230, 434, 1610 },
        { 4, 13.9, 21.1, 56.7, 109, 303, 539, 1980 },
        { 8, 18, 23.4, 52, 123, 327, 624, 2210 },
      },
      all_to_all = {
        { 2, 13.9, 22.8, 38.2, 98.3, 243, 446, 1640 },
        { 4, 14.5, 25.2, 41.4, 104, 312, 574, 2070 },
        { 8, 14.2, 25.8, 64.3, 114, 348, 640, 2310 },
      },
    },
    h100 = {
      gather = {
        { 2, 6.37, 11.3, 27, 56, 159, 293, 1040 },
        { 4, 8.97, 13.6, 37, 66.2, 195, 350, 1270 },
        { 8, 13.1, 17.1, 33.4, 68.9, 208, 393, 1400 },
      },
      reduce_scatter = {
        { 2, 6.28, 10.7, 23.8, 53.2, 169, 312, 1080 },
        { 4, 8.17, 11.6, 32.9, 59.3, 195, 355, 1300 },
        { 8, 11.7, 14.6, 29.9, 69.7, 201, 382, 1400 },
      },
      all_to_all = {
        { 2, 12, 14.8, 21.2, 53, 140, 260, 959 },
        { 4, 9.57, 15.6, 24.8, 68.9, 192, 365, 1400 },
        { 8, 8.71, 15.6, 26.2, 75.7, 221, 402, 1490 },
      },
    },
    h200 = {
      gather = {
        { 2, 6.18, 11.3, 26.4, 54.1, 156, 288, 1040 },
        { 4, 8.78, 13.5, 35.9, 63.9, 188, 344, 1270 },
        { 8, 13.1, 17, 41.3, 66.9, 206, 380, 1390 },
      },
      reduce_scatter = {
        { 2, 6.29, 10.4, 23.4, 50.6, 164, 305, 1080 },
        { 4, 8.15, 11.7, 32.8, 58, 189, 349, 1290 },
        { 8, 13, 14.4, 30.4, 69.5, 199, 376, 1390 },
      },
      all_to_all = {
        { 2, 11.5, 13.5, 19.8, 51.8, 137, 251, 902 },
        { 4, 10.8, 14.5, 23, 64.8, 185, 342, 1260 },
        { 8, 12.1, 16.2, 26.6, 73.4, 219, 404, 1510 },
      },
    },
    b200 = {
      gather = {
        { 2, 10.3, 12.7, 23.2, 37.5, 95, 170, 612 },
        { 4, 14.4, 14.9, 25.2, 57.9, 108, 196, 711 },
        { 8, 19.5, 18.7, 29.2, 104, 138, 207, 761 },
      },
      reduce_scatter = {
        { 2, 9.89, 12, 22, 37.8, 99, 185, 651 },
        { 4, 12.6, 14.2, 24.4, 54.7, 108, 200, 729 },
        { 8, 19.9, 20.4, 27.2, 97, 136, 208, 766 },
      },
      all_to_all = {
        { 2, 13.6, 16.7, 21.8, 49, 127, 225, 810 },
        { 4, 12.8, 17.7, 24.2, 46.9, 125, 231, 825 },
        { 8, 13.4, 18.8, 26.5, 50.1, 139, 237, 834 },
      },
    },
    b300 = {
      gather = {
        { 2, 9.51, 12, 23, 36.9, 94.3, 167, 604 },
        { 4, 13.3, 14.7, 25.1, 56.9, 107, 194, 703 },
        { 8, 17.9, 19.1, 29, 100, 136, 204, 757 },
      },
      reduce_scatter = {
        { 2, 10.2, 11.6, 21.1, 36.5, 98.9, 183, 645 },
        { 4, 12.2, 13.7, 23.5, 53.5, 106, 199, 722 },
        { 8, 17.8, 18.6, 27, 95.4, 135, 205, 765 },
      },
      all_to_all = {
        { 2, 13.4, 16.2, 20.5, 38, 124, 219, 787 },
        { 4, 12.3, 17.6, 23.6, 45.5, 122, 222, 802 },
        { 8, 12.6, 19, 23.5, 48.9, 131, 229, 810 },
      },
    },
    gb200 = {
      gather = {
        { 2, 10.5, 12.9, 23.9, 38.2, 95.2, 170, 615 },
        { 4, 13.3, 15.1, 25.9, 59.1, 108, 195, 714 },
      },
      reduce_scatter = {
        { 2, 10.4, 12.5, 22.5, 37.7, 99.4, 186, 657 },
        { 4, 13, 14.6, 25, 55.5, 108, 200, 733 },
      },
      all_to_all = {
        { 2, 14.6, 18.2, 21.6, 50, 127, 225, 808 },
        { 4, 13.3, 17.9, 23.1, 46.7, 125, 228, 825 },
      },
    },
    gb300 = {
      gather = {
        { 2, 9.77, 12.4, 22.8, 36.9, 92.8, 166, 599 },
        { 4, 12.9, 14.6, 25, 57.9, 106, 192, 704 },
      },
      reduce_scatter = {
        { 2, 9.63, 12, 21.4, 36.5, 97.3, 183, 644 },
        { 4, 12.5, 14.1, 23.7, 54.5, 107, 197, 725 },
      },
      all_to_all = {
        { 2, 14, 17.1, 20.6, 46.3, 121, 215, 768 },
        { 4, 12.9, 17.1, 22.6, 46.1, 120, 217, 786 },
      },
    },
    l40s = {
      gather = {
        { 2, 9.31, 48.5, 122, 439, 1730, 3480, 13700 },
        { 4, 21, 155, 674, 2650, 10600, 21400, 85000 },
        { 8, 86, 510, 2910, 12300, 49500, 99300, 400000 },
      },
      reduce_scatter = {
        { 2, 9.15, 47.5, 125, 459, 1820, 3640, 14200 },
        { 4, 23.1, 152, 644, 2600, 10400, 20700, 81000 },
        { 8, 98.4, 540, 2520, 9470, 36300, 67000, 284000 },
      },
      all_to_all = {
        { 2, 11.5, 43.4, 112, 401, 1520, 3010, 12000 },
        { 4, 29.9, 186, 698, 2690, 10900, 21900, 88600 },
        { 8, 82.5, 862, 3230, 11900, 38300, 57800, 238000 },
      },
    },
    rtx_pro_6000 = {
      gather = {
        { 2, 8.29, 31.2, 80.2, 277, 1070, 2110, 8310 },
        { 4, 12.3, 51.5, 134, 550, 2170, 4320, 17200 },
        { 8, 19.1, 75.3, 183, 655, 2590, 5140, 20400 },
      },
      reduce_scatter = {
        { 2, 7.88, 31.2, 84, 294, 1130, 2210, 7970 },
        { 4, 12.1, 51.3, 137, 546, 2170, 4340, 16900 },
        { 8, 18.8, 72, 177, 647, 2540, 5140, 19900 },
      },
      all_to_all = {
        { 2, 9.29, 29.7, 90.5, 326, 1290, 2620, 10400 },
        { 4, 16.4, 52.3, 167, 569, 2140, 4150, 16600 },
        { 8, 26.4, 77.9, 260, 986, 3810, 6620, 25500 },
      },
    },
  }
end

local function curve_list(rows, evidence)
  local list = {}
  for i, row in ipairs(rows) do
    local points = {}
    for k, size in ipairs(sizes) do points[k] = { size * (row[1] - 1) / row[1], row[k + 1] * 1e-6 } end
    list[i] = m.curve { ranks = row[1], points = points, evidence = evidence, source = nccl }
  end
  return list
end

-- Share of the bf16 peak that attention reaches, causal, 32 heads of 128 over 8, by sequence length; the products
-- above the diagonal are not counted. Backward reaches what forward does.
local function attention(evidence, a, b, c)
  return m.curve { points = { { 4096, a }, { 8192, b }, { 16384, c } }, evidence = evidence,
                   source = "AIC, attention of contexts" }
end
-- Kernels of training on Blackwell, forward and backward: shares of the peak by length, causal, the products above the
-- diagonal not counted. `simumax` is Transformer Engine on B200, 64 heads of 128 over 8 at 4096 and 16 over 2 at 32768
-- (its own shares count all products, so these are half of them); `cudnn` the library's own benchmark on GB200 and
-- GB300, 64 heads of 128 over 8, cuDNN 9.19. Shares at 128 and 1024 are of windows that long: measured there with heads
-- of 64 (cuDNN 9.22 at 4096; 9.19 at 8192), times 1.5, as such heads are taken to reach two thirds of wider ones.
local simumax = { source = "SimuMax, B200, Transformer Engine; windows: cuDNN frontend, sdpa_benchmark_training",
                  lengths = { 128, 1024, 4096, 32768 } }
local cudnn = { source = "cuDNN frontend, sdpa_benchmark_training",
                lengths = { 128, 1024, 2048, 4096, 8192, 16384, 32768 } }
local function trained(by, evidence, forward, back)
  local function curve(shares)
    local points = {}
    for i, share in ipairs(shares) do points[i] = { by.lengths[i], share } end
    return m.curve { points = points, evidence = evidence, source = by.source }
  end
  return curve(forward), curve(back)
end

local function bf16(peak, reach, depth, edge, experts, experts_depth, evidence)
  return m.products { peak = peak, reach = reach, depth = depth, edge = edge, experts = experts,
                      experts_depth = experts_depth, evidence = evidence or "same_gpu",
                      source = "peak: data sheet; the rest fitted to AIC, GEMM and fused MoE" }
end

local function mxfp8(peak, reach, depth, edge, experts, experts_depth, evidence)
  return m.products { peak = peak, reach = reach, depth = depth, edge = edge, experts = experts,
                      experts_depth = experts_depth, quantise_bytes = 3, quantise_launch = 3e-6,
                      evidence = evidence or "same_gpu",
                      source = "peak: data sheet; the rest fitted to AIC, FP8 in blocks" }
end

local GB, TB, MiB = 1e9, 1e12, 2^20
local ethernet = known("specification", "Ethernet of 10 Gb/s")(1.25 * GB)
local in_curve = known("specification", "the curve of attention has it")(0)

-- Fields of m.device; then of the links: those inside a node and the network. `node`: devices of a node.
local machines = {
  a100 = function()
    local at = attention("same_generation", 0.55, 0.60, 0.64)
    return { name = "A100", arch = "sm_80", units = 108, memory = sheet(81920 * MiB), bandwidth = sheet(2.04 * TB),
             bf16 = bf16(312e12, 0.98, 64, 16, 0.95, 512), fp32 = sheet(19.5e12), shared = 163 * 1024, l2 = 40 * MiB,
             attention = at, attention_back = at },
           { node = 8, inside = "nvlink", rate = 300 * GB, curves = "a100", blocks = { 150 * GB, 150 * GB },
             rows = { 68 * GB, 65 * GB }, row_evidence = "same_generation", network = 25 * GB }
  end,
  h100 = function()
    local at = attention("same_gpu", 0.41, 0.51, 0.51)
    return { name = "H100", arch = "sm_90a", units = 132, memory = sheet(81559 * MiB), bandwidth = sheet(3.35 * TB),
             bf16 = bf16(989e12, 0.94, 128, 8, 0.95, 512), fp32 = sheet(67e12), shared = 227 * 1024, l2 = 50 * MiB,
             attention = at, attention_back = at },
           { node = 8, inside = "nvlink", rate = 450 * GB, curves = "h100", blocks = { 280 * GB, 281 * GB },
             rows = { 102 * GB, 97 * GB }, row_evidence = "same_generation", network = 50 * GB, net_blocks = 43 * GB }
  end,
  h200 = function()
    local at = attention("same_gpu", 0.415, 0.52, 0.54)
    return { name = "H200", arch = "sm_90a", units = 132, memory = sheet(143771 * MiB), bandwidth = sheet(4.8 * TB),
             bf16 = bf16(989e12, 0.98, 128, 16, 1, 512), fp32 = sheet(67e12), shared = 227 * 1024, l2 = 50 * MiB,
             attention = at, attention_back = at },
           { node = 8, inside = "nvlink", rate = 450 * GB, curves = "h200", blocks = { 280 * GB, 281 * GB },
             rows = { 102 * GB, 97 * GB }, row_evidence = "same_generation", network = 50 * GB, net_blocks = 43 * GB }
  end,
  b200 = function()
    local at, back = trained(simumax, "same_gpu", { 0.097, 0.365, 0.43, 0.58 }, { 0.109, 0.388, 0.37, 0.44 })
    return { name = "B200", arch = "sm_100a", units = 148, memory = sheet(183359 * MiB), bandwidth = sheet(8 * TB),
             bf16 = bf16(2250e12, 0.84, 0, 16, 0.95, 512), mxfp8 = mxfp8(4500e12, 0.94, 256, 32, 0.80, 512),
             fp32 = sheet(75e12), shared = 227 * 1024, l2 = 126 * MiB, attention = at, attention_back = back,
             attention_block = in_curve },
           { node = 8, inside = "nvlink", rate = 900 * GB, curves = "b200", blocks = { 469 * GB, 464 * GB },
             rows = { 204 * GB, 194 * GB }, row_evidence = "same_generation", network = 50 * GB, net_blocks = 45 * GB }
  end,
  b300 = function()
    local at, back = trained(simumax, "same_generation", { 0.100, 0.431, 0.43, 0.58 },
                             { 0.115, 0.401, 0.37, 0.44 })
    return { name = "B300", arch = "sm_103a", units = 148, memory = sheet(275040 * MiB), bandwidth = sheet(8 * TB),
             bf16 = bf16(2250e12, 0.90, 0, 16, 0.95, 512), mxfp8 = mxfp8(4500e12, 0.92, 256, 16, 0.70, 512),
             fp32 = sheet(75e12), shared = 227 * 1024, l2 = 126 * MiB, attention = at, attention_back = back,
             attention_block = in_curve },
           { node = 8, inside = "nvlink", rate = 900 * GB, curves = "b300", blocks = { 469 * GB, 464 * GB },
             rows = { 204 * GB, 194 * GB }, row_evidence = "same_gpu", network = 100 * GB, net_blocks = 58 * GB }
  end,
  gb200 = function()
    local at, back = trained(cudnn, "same_gpu", { 0.097, 0.365, 0.417, 0.534, 0.639, 0.675, 0.688 },
                             { 0.109, 0.388, 0.334, 0.453, 0.524, 0.561, 0.589 })
    return { name = "GB200", arch = "sm_100a", units = 148, memory = sheet(189 * 2^30), bandwidth = sheet(8 * TB),
             bf16 = bf16(2500e12, 0.80, 0, 16, 1, 512), mxfp8 = mxfp8(5000e12, 0.98, 512, 32, 0.75, 512),
             fp32 = sheet(80e12), shared = 227 * 1024, l2 = 126 * MiB, attention = at, attention_back = back,
             attention_block = in_curve },
           { node = 72, used = 64, inside = "nvlink", rate = 900 * GB, curves = "gb200",
             blocks = { 469 * GB, 450 * GB },
             rows = { 204 * GB, 194 * GB }, row_evidence = "same_generation", network = 50 * GB, net_blocks = 45 * GB,
             net_evidence = "same_generation" }
  end,
  gb300 = function()
    local at, back = trained(cudnn, "same_gpu", { 0.100, 0.431, 0.506, 0.669, 0.755, 0.787, 0.806 },
                             { 0.115, 0.401, 0.362, 0.478, 0.554, 0.596, 0.620 })
    return { name = "GB300", arch = "sm_103a", units = 148, memory = sheet(279 * GB), bandwidth = sheet(8 * TB),
             bf16 = bf16(2500e12, 0.92, 0, 16, 0.95, 512), mxfp8 = mxfp8(5000e12, 0.96, 512, 16, 0.65, 512),
             fp32 = sheet(80e12), shared = 227 * 1024, l2 = 126 * MiB, attention = at, attention_back = back,
             attention_block = in_curve },
           { node = 72, used = 64, inside = "nvlink", rate = 900 * GB, curves = "gb300",
             blocks = { 469 * GB, 450 * GB },
             rows = { 204 * GB, 194 * GB }, row_evidence = "same_generation", network = 100 * GB, net_blocks = 58 * GB,
             net_evidence = "same_generation" }
  end,
  l40s = function()
    local at = attention("same_gpu", 0.365, 0.381, 0.40)
    return { name = "L40S", arch = "sm_89", units = 142, memory = sheet(46068 * MiB), bandwidth = sheet(0.864 * TB),
             bf16 = bf16(362e12, 0.64, 128, 0, 0.65, 0), fp32 = sheet(91.6e12), shared = 99 * 1024, l2 = 48 * MiB,
             attention = at, attention_back = at },
           { node = 8, inside = "pcie", rate = 32 * GB, curves = "l40s", network = 25 * GB }
  end,
  rtx4090 = function()
    local at = attention("same_generation", 0.70, 0.75, 0.78)
    return { name = "RTX 4090", arch = "sm_89", units = 128, memory = sheet(24564 * MiB), bandwidth = sheet(1.01 * TB),
             bf16 = bf16(165e12, 0.95, 128, 0, 0.65, 0, "same_generation"), fp32 = sheet(82.6e12),
             shared = 99 * 1024, l2 = 72 * MiB, attention = at, attention_back = at },
           { node = 8, inside = "pcie", rate = 32 * GB, curves = "l40s", network = ethernet,
             evidence = "same_generation" }
  end,
  rtx5090 = function()
    local at = attention("same_generation", 0.80, 0.85, 0.90)
    return { name = "RTX 5090", arch = "sm_120", units = 170, memory = sheet(32607 * MiB), bandwidth = sheet(1.79 * TB),
             bf16 = bf16(210e12, 0.98, 64, 16, 0.80, 256, "same_generation"),
             mxfp8 = mxfp8(419e12, 0.94, 128, 16, 0.85, 0, "same_generation"), fp32 = sheet(104.8e12),
             shared = 99 * 1024, l2 = 96 * MiB, attention = at, attention_back = at },
           { node = 8, inside = "pcie", rate = 64 * GB, curves = "rtx_pro_6000", network = ethernet,
             evidence = "same_generation" }
  end,
  rtxpro6000 = function()
    local at = attention("same_gpu", 0.36, 0.40, 0.43)
    return { name = "RTX PRO 6000", arch = "sm_120", units = 188, memory = sheet(97887 * MiB),
             bandwidth = sheet(1.79 * TB), bf16 = bf16(504e12, 0.98, 64, 16, 0.80, 256),
             mxfp8 = mxfp8(1008e12, 0.94, 128, 16, 0.85, 0), fp32 = sheet(126e12), shared = 99 * 1024, l2 = 128 * MiB,
             attention = at, attention_back = at },
           { node = 8, inside = "pcie", rate = 64 * GB, curves = "rtx_pro_6000", network = 50 * GB }
  end,
}

-- A process on one core of the reference machine (2 cores with AVX-512 BF16); `moec calibrate` writes others.
function machines.cpu()
  local source = "moec calibrate on the reference machine, one core"
  local here = known("measured", source)
  local function products(peak, depth, wgrad)
    return m.products { peak = peak, reach = 0.98, depth = depth, tile = { 64, 32 }, experts = 0.99,
                        experts_depth = depth, wgrad = wgrad, evidence = "measured", source = source }
  end
  local function shares(points)
    return m.curve { points = points, evidence = "measured", source = source }
  end
  return { name = "CPU core", arch = "cpu", units = 1, memory = here(8 * 2^30), bandwidth = here(35e9),
           launch = here(1e-8), stream = here(0.89), move = here(0.62), adam = here(0.89), row_rate = here(21e9),
           bf16 = products(229e9, 13, 0.87), fp32 = products(111e9, 6, 0.89), shared = 32768, contention = here(1),
           sustained = here(1), overlap = here(0), sharing = here(1),
           source = "the reference machine: a core, its first data cache",
           reserved = known("specification", "taken: what else runs there")(2^30),
           cached = shares { { 2^20, 2.8 }, { 2^22, 2.75 }, { 2^24, 2.1 }, { 2^26, 1.1 } },
           attention = shares { { 64, 0.385 }, { 256, 0.61 }, { 1024, 0.79 }, { 4096, 0.855 } },
           attention_back = shares { { 64, 0.325 }, { 256, 0.63 }, { 1024, 0.51 }, { 4096, 0.60 } },
           attention_narrow = here(0.12), attention_block = here(0) },
         { node = 64, inside = "memory", rate = here(15e9), latency = here(10e-6), network = ethernet,
           evidence = "measured", rows = { 15e9, 5.6e9 }, row_evidence = "measured", row_source = source }
end

-- What nothing above says. SimuMax's constants are of B200. What is taken has no public measurement.
local function usual(device, at)
  if device.arch == "cpu" then return end
  local blackwell = device.arch == "sm_100a" or device.arch == "sm_103a"
  local b200 = device.name == "B200" and "same_gpu" or blackwell and "same_generation" or "specification"
  local simu = function(source) return known(b200, "SimuMax, B200: " .. source) end
  local figures = {
    reserved = known("specification", "taken: a context, and NCCL's buffers, 0.4 GB in SimuMax")(2^30),
    sustained = simu "kernels measured one by one foretell steps 4 to 7 % too fast, longer ones more" (0.95),
    launch = simu "of a kernel" (3e-6), stream = simu "row operations" (0.8), move = simu "permutations" (0.5),
    adam = simu "row operations" (0.8),
    contention = known("specification", "published slowdowns beside NCCL, 1.1 to 1.3 (Galvatron)")(1.2),
    sharing = known("specification", "a device is one rank's")(1),
    overlap = known("specification", "taken: tiles are fetched while others are multiplied")(1),
    attention_narrow = known(blackwell and "same_generation" or "specification",
                             "cuDNN on Blackwell, heads of 64 and 128, Triton pull request 891")(1),
    attention_block = known("specification", "blocks of keys of FlashAttention")(128),
    source = "units, shared memory and caches: NVIDIA's data sheet and CUDA programming guide",
  }
  for field, figure in pairs(figures) do
    if device[field] == nil then device[field] = figure end
  end
  at.latency = known(at.evidence or "same_gpu", "taken: under the shortest of NCCL's times inside a node, AIC")(5e-6)
  at.rate = sheet(at.rate)
end

local function link_inside(at, size)
  local all = curves()[at.curves]
  local evidence = at.evidence or "same_gpu"
  local function list(what) return all and curve_list(all[what], evidence) or {} end
  local row = at.row_evidence or "specification"
  local function pair(t, i, level)
    return t and m.figure { value = t[i], evidence = level, source = at.row_source or dep } or false
  end
  return m.link {
    name = at.inside, size = size, rate = at.rate, latency = at.latency,
    share = known("specification", "taken: NCCL's large collectives reach 0.7 to 0.75, AIC")(0.8),
    gather = list "gather", reduce_scatter = list "reduce_scatter", all_to_all = list "all_to_all",
    row_fixed = known(row, "AIC, DeepEP inside a node: 64 tokens; cores: taken")(30e-6),
    rows_out = pair(at.rows, 1, row), rows_back = pair(at.rows, 2, row),
    blocks_out = pair(at.blocks, 1, evidence), blocks_back = pair(at.blocks, 2, evidence),
  }
end

local function link_between(at, nodes)
  local rate = type(at.network) == "number" and sheet(at.network) or at.network
  local evidence = at.net_evidence or at.net_blocks and "same_gpu" or "specification"
  local blocks = known(evidence, dep_net)(at.net_blocks or 0.86 * rate.value)
  return m.link {
    name = "network", size = nodes, rate = rate,
    latency = known("specification", "taken: two adapters and a switch")(10e-6),
    share = known("specification", "as DeepEP reaches between nodes, 43 of 50 GB/s")(0.85),
    row_fixed = known("specification", "AIC, DeepEP over two nodes: 64 tokens, 44 us")(40e-6),
    blocks_out = blocks, blocks_back = blocks,
  }
end

local function names()
  local list = {}
  for name in pairs(machines) do list[#list + 1] = name end
  table.sort(list)
  return table.concat(list, ", ")
end

-- "b300x64": 64 devices in nodes as they are built, with the network that is usual for them. Racks of 72 are used
-- by 64 where there are several. The name in lower case, without spaces.
function m.hardware(text)
  local name, count = string.match(text, "^(%w-)x(%d+)$")
  if not machines[name] then
    name, count = text, "1"
    if not machines[name] then
      error(("no machine '%s': expected NAMExCOUNT with one of %s"):format(text, names()), 0)
    end
  end
  local n = math.tointeger(tonumber(count)) or 0
  if n < 1 or n > 2 ^ 20 then error(("%s: expected 1 to 1048576 devices"):format(text), 0) end
  local device, at = machines[name]()
  local node = n <= at.node and n or at.used or at.node
  if n % node ~= 0 then
    error(("%s: a node has %d devices, expected fewer or a multiple of it"):format(text, node), 0)
  end
  usual(device, at)
  local links = { link_inside(at, node) }
  if n > node then links[2] = link_between(at, n // node) end
  return m.cluster { name = text, device = m.device(device), links = links }
end
