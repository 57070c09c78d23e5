// SPDX-License-Identifier: Apache-2.0
// What work costs on a machine: descriptions of devices and links, seconds of kernels and of what ranks say
// to each other. Nothing here knows a model; profile.h does.
//
// A kernel takes the longer of its arithmetic and its traffic, what of the other is not hidden behind it (on a core,
// which does one after the other, most of it), and a launch:
//
//   t = max(arithmetic, traffic) + (1 - overlap) * min(arithmetic, traffic) + launch
//   arithmetic = flops / (peak * sustained * reach * tile * wave * depth) + flops of row operations / row_rate
//   traffic    = bytes / (bandwidth * share * cached(bytes))
//   tile   of the tiles that cover the result, how much is result (a group of experts' rows ends in a
//          tile of its own)
//   wave   of the rounds in which units take tiles, how much is taken
//   depth  k / (k + depth_k): filling and draining a tile
//
// (Products of few tiles are cut along k too, as libraries do, at the price of adding the parts up.)
//
// `reach` and `share` are what large problems reach of the peak, `sustained` what remains of it under load that lasts;
// every number says how it is known (CostEvidence). Never faster than the peak or the bandwidth.
//
// Ranks are numbered as plan.h numbers them, so a group is `members` ranks `stride` apart. Links are listed
// innermost first; link i joins size[i] of what link i - 1 joins. A group that spans several links moves
// bytes through all of them at once; the slowest decides.
#ifndef MOEC_COST_H
#define MOEC_COST_H

#include "compiler/model/model.h"
#include "runtime/base/base.h"

typedef struct KernelDesc KernelDesc; // compiler/kernel/kernel.h

/* Devices -------------------------------------------------------------------------------------- */

#define COST_EVIDENCES(X)                                                                          \
    X(measured, "measured here") X(same_gpu, "same device elsewhere")                              \
    X(same_generation, "same generation") X(specification, "specification")
typedef enum CostEvidence {
#define X(name, text) EVIDENCE_##name,
    COST_EVIDENCES(X)
#undef X
    N_EVIDENCES
} CostEvidence;
extern const char *const cost_evidence_name[N_EVIDENCES];
// How far off a number of this evidence may be: 0.05, 0.10, 0.20, 0.30 (shared prediction intervals).
double cost_evidence_error(CostEvidence evidence);

// y by x, both positive: straight lines between points in log-log; level before the first, and after the last
// level or, of seconds by bytes, growing with x. n = 0: none.
enum { COST_MOST_POINTS = 24, COST_MOST_SIZES = 4 };
typedef struct CostCurve {
    int32_t n;
    int32_t ranks;    // of collectives: among how many it was measured
    uint8_t evidence; // CostEvidence
    double x[COST_MOST_POINTS], y[COST_MOST_POINTS];
} CostCurve;
double cost_curve(const CostCurve *curve, double x);   // level on both sides
double cost_curve_s(const CostCurve *curve, double x); // seconds by bytes

// Products in one precision.
typedef struct CostMatmul {
    double flop_per_s;        // dense peak; 0: the device has none
    double reach;             // of it, by large products
    double depth_k;           // k at which half of that is reached
    double edge;              // a tile of m x n takes 1 + edge (1/m + 1/n) times its arithmetic
    int32_t tile_m, tile_n;   // the largest of a unit; products that it does not suit have smaller ones
    double experts;           // reach of grouped products over dense ones
    double wgrad;             // reach of wgrads over forward
    double experts_depth_k;   // their depth_k
    double quantise_bytes;    // traffic per number of the left operand before it can be used; bf16: 0
    double quantise_s;        // and its launch
    uint8_t evidence;
} CostMatmul;

typedef struct CostDevice {
    const char *name, *arch;  // "B300", "sm_103a"
    int32_t units;            // multiprocessors; cores
    int64_t memory_bytes;     // that a program can have
    int64_t reserved_bytes;   // of it, what contexts and transports take
    double bytes_per_s;       // of memory, peak
    double sustained;         // of the rates of products and attention, under load that lasts: clocks fall, ranks wait
    double overlap;           // of a product's arithmetic and traffic, the share of the shorter that the longer hides
    double launch_s;          // of a kernel, beside others
    double row_flop_per_s;    // of row operations (exponentials count 8), where memory does not decide; 0: it does
    double stream, move, adam; // share of bytes_per_s: row programs, permuted rows, the optimizer
    CostMatmul matmul[PRECISION_MXFP8 + 1]; // by Precision; [PRECISION_OPEN] is unused
    CostCurve cached;         // how many times as fast, by the bytes a kernel moves, which caches still have from the one before
    CostCurve attention[2];   // forward, backward: share of the peak by sequence length, heads of 128
    double attention_narrow;  // of their time, what does not grow with the width of heads, over what does
    double attention_block;   // keys of a block: a sequence of n reaches n / (n + block) of the curve; 0: the curve has it
    double sharing;           // how much faster it is while others that share its cores wait; 1: it has its own
    double contention;        // how much slower compute runs beside communication, 1.1 .. 1.3
    uint8_t evidence[4];      // of bytes_per_s, launch_s, stream .. adam, contention
} CostDevice;

/* Links ---------------------------------------------------------------------------------------- */

#define COST_COLLECTIVES(X) X(gather) X(reduce_scatter) X(all_to_all) X(send)
typedef enum CostCollective {
#define X(name) COLLECTIVE_##name,
    COST_COLLECTIVES(X)
#undef X
    N_COLLECTIVES
} CostCollective;
extern const char *const cost_collective_name[N_COLLECTIVES];

typedef struct CostLink {
    const char *name;
    int32_t size;             // of what the link before joins (first: devices)
    double bytes_per_s;       // per device and direction, peak
    double latency_s;
    double share;             // of bytes_per_s, where there is no curve
    // Seconds by bytes that leave a rank, by ascending `ranks`; between numbers of ranks in log-log.
    CostCurve curves[N_COLLECTIVES][COST_MOST_SIZES];
    int32_t n_curves[N_COLLECTIVES];
    // Rows to experts (dispatch) and back (combine): fixed_s + bytes / rate.
    double row_fixed_s, row_bytes_per_s[2], block_bytes_per_s[2];
    uint8_t evidence, row_evidence;
} CostLink;

enum { COST_MOST_LINKS = 4 };
typedef struct CostCluster {
    const char *name;
    CostDevice device;
    CostLink links[COST_MOST_LINKS];
    int32_t n_links;
} CostCluster;
int64_t cost_cluster_devices(const CostCluster *cluster); // product of sizes
// A copy with every link's rate times `factor` from link `first` on: for sensitivity.
CostCluster cost_cluster_scaled(const CostCluster *cluster, int32_t first, double factor);

/* Kernels -------------------------------------------------------------------------------------- */

#define COST_CLASSES(X) X(dense) X(experts) X(attention) X(row) X(move) X(optimizer)
typedef enum CostClass {
#define X(name) COST_##name,
    COST_CLASSES(X)
#undef X
    N_COST_CLASSES
} CostClass;
extern const char *const cost_class_name[N_COST_CLASSES];

typedef enum CostRole { COST_FORWARD, COST_DGRAD, COST_WGRAD } CostRole;
typedef enum CostRemote { COST_HERE, COST_PUTS, COST_GETS } CostRemote;

// m, n, k: of a product [m, k] x [k, n]; of experts m counts the rows of all `groups`, and each has its own
// second operand; of a wgrad [m, k] x [k, n] is one group's result, and k counts the rows of all groups.
// Attention: m rows, n = sequence or window, groups = heads, k = heads x (qk + v). Else unused.
typedef struct CostKernel {
    uint8_t class, precision, role; // CostClass, Precision, CostRole
    uint8_t remote;                 // a move to (COST_PUTS) or from (COST_GETS) other ranks: cost_rows_s has
                                    // the seconds of what crosses, cost_remote_s those beyond
    double row_bytes;               // of a remote move: of one row
    double m, n, k, groups;
    double flops, bytes;
} CostKernel;

// What kernels of a Family (compiler/kernel/kernel.h) are where nothing says more: products are of experts if they have
// offsets, row programs moves if they read a table or other ranks' memory.
CostClass cost_family_class(int family);
CostRole cost_family_role(int family);
// From what codegen is asked for. `load`: of the rows of experts (KernelDesc.rows is their capacity), how many
// there are; 1 where all are.
void cost_of_kernel(const KernelDesc *desc, double load, CostKernel *out);
double cost_kernel_s(const CostDevice *device, const CostKernel *kernel);
// Of a remote move beside whose rows others cross for rows_s: its launch, and what its own memory takes longer. Bytes count all
// of its rows, those that stay too.
double cost_remote_s(const CostDevice *device, const CostKernel *kernel, double rows_s);
// Of a kernel over rows of experts, when only `load` of the rows that it has room for exist.
void cost_of_rows(CostKernel *kernel, double load);

/* Between ranks -------------------------------------------------------------------------------- */

typedef struct CostGroup { int32_t members, stride; /* in ranks */ } CostGroup;

// Seconds of a collective. bytes: gather: of what each has afterwards; reduce_scatter: of what each had
// before; all_to_all: of what each gives, its own part included; send: of the message, between ranks `stride`
// apart. A group of one: 0.
double cost_collective_s(const CostCluster *cluster, CostCollective what, CostGroup group, double bytes);
// Of a group of R ranks, at how many of G equal parts of its experts a token's choices fall, on average:
// G (1 - C(E - E/G, k) / C(E, k)).
double cost_reached(double experts, double top_k, double parts);

typedef struct CostRows {
    double tokens, top_k, experts; // tokens of a rank; experts of the whole layer
    double row_bytes;              // of one row, scales included
    double load;                   // busiest rank over mean, from 1
    bool combine;                  // back from experts
    bool blocks;                   // a token crosses once per node and is spread there (LayoutTransport)
    bool whole;                    // of blocks: as moec's plans for GPUs: first to every node, whether it has experts of
                                   // the token or not, then within nodes
    double part_tokens;            // of whole blocks, what goes to each node whatever share of them a round has; 0: tokens
} CostRows;
// Dispatch or combine over the ranks of ep.
double cost_rows_s(const CostCluster *cluster, CostGroup group, const CostRows *rows);
bool cost_whole_blocks(const CostCluster *cluster); // do moec's plans for these devices send whole blocks? GPUs do

// As Routing of compiler/spec/spec.h: ORDER ROUTING
typedef enum CostRouting { COST_LEARNED, COST_UNIFORM, COST_RANDOM } CostRouting;
// Expected busiest rank over mean. Uniform: 1. Random: every choice of experts alike. Learned: popularities
// Dirichlet(COST_POPULARITY) on top.
#define COST_POPULARITY 32.0
double cost_imbalance(CostRouting routing, double tokens /* of the group */, double top_k, double experts,
                      double ranks);

// Seconds that communication adds to compute if a share of it (0 to 1) runs beside that: compute is slower by
// device->contention meanwhile.
double cost_exposed_s(const CostDevice *device, double share, double compute_s, double communication_s);

#endif
