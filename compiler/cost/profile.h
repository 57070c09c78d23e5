// SPDX-License-Identifier: Apache-2.0
// A model as a search sees it: parts (classes of equal layers, what precedes them, what follows them), and for
// each part and choice its seconds and bytes on one rank. Looking up is cheap; everything is per microbatch or
// per step as said. Who makes one: compiler/search/profile.h, from probes of lowering. Tests make their own.
#ifndef MOEC_COST_PROFILE_H
#define MOEC_COST_PROFILE_H

#include "compiler/cost/cost.h"
#include "compiler/layout/layout.h"

// What other stacks do that moec does not.
typedef enum CostHabit {
    // mxfp8: experts' wgrads too (Transformer Engine); not in bf16 (moec, OLMo-core 3)
    COST_NARROW_WGRAD = 1,
    // mxfp8: rows of experts cross ranks in bf16 (Megatron Core: its dispatchers have fp8 switched off)
    COST_WIDE_ROWS = 2,
    // blocks: a library's all-to-all with a copy of a row for each of its experts, which permutations put in order of
    // ranks before and of experts behind (Megatron Core's "alltoall")
    COST_ALL_TO_ALL = 4,
    // products over the vocabulary at once, not in pieces of rows: logits are in memory
    COST_WHOLE_HEAD = 8,
    // fp32 products of routers on tensor cores, from tf32 or bf16
    COST_SHORT_ROUTER = 16,
    // experts with biases: gate and value are clamped, and biases of results, times the weights of their rows, added, by
    // kernels of their own (Megatron Core's TEGroupedMLP, where its parts are not fused)
    COST_BIAS_APART = 32,
    // rotary positions whose cosines have a factor (YaRN) by kernels of their own, one per operation (Megatron Core: TE's
    // kernel has no factor)
    COST_ROPE_APART = 64,
} CostHabit;

// What changes seconds and bytes of a part. How many ranks divide parameters is not here: see cost_state.
typedef struct CostChoice {
    int32_t microbatch;           // sequences
    int32_t ep;                   // innermost: ranks 1 apart
    uint8_t precision;            // PRECISION_BF16, PRECISION_MXFP8 (known to the model only), PRECISION_FP32
    uint8_t recompute;            // LayoutRecompute
    uint8_t transport;            // LayoutTransport
    bool whole_blocks;            // CostRows.whole: moec's plans for GPUs
    uint8_t params, expert_params; // LayoutParams: what fsdp gathers is in transient_bytes
    uint8_t routing;              // CostRouting
    double imbalance; // busiest rank's rows over the mean, as recorded over steps; 0: as routing lets expect
    bool alone;                   // nothing crosses ranks while kernels run: nothing is gathered ahead
    uint8_t habits;               // CostHabit
    int32_t row_align;            // first rows of experts are multiples of it; 0: 1
    double capacity;              // 0: the spec's; INFINITY: none is dropped
    double round;                 // Layout.round, where none is dropped; 0, INFINITY: room for all at once
} CostChoice;

#define COST_PASSES(X) X(forward) X(dgrad) X(wgrad) X(again)
typedef enum CostPass {
#define X(name) PASS_##name,
    COST_PASSES(X)
#undef X
    N_COST_PASSES
} CostPass; // again: what backward computes once more; before dgrad

// Of a part, on one rank.
typedef struct CostPart {
    double s[N_COST_PASSES][N_COST_CLASSES]; // kernels of one microbatch, at the busiest rank's load
    double imbalance_s[N_COST_PASSES];       // of these, what even loads would not take
    double rows_s[N_COST_PASSES];            // dispatch and combine, nothing hidden
    double packs_s;                          // of a microbatch: packing what is gathered, adding up what was exchanged; not in s
    double flops;                            // of the model, of one microbatch, forward and backward
    // Memory, of activations [0] and of what other ranks reach [1] (regions act and sym): what a microbatch keeps
    // between forward and backward; what it keeps between backward and its gradients of weights, where those are made
    // later; and the most that lives besides all saves up to this part, while a microbatch is computed here. See
    // cost_stage_bytes.
    int64_t saved_bytes[2], wait_bytes[2], transient_bytes[2];
    // The same most where what waits stays after this part's backward, besides the larger of both; later parts' waits
    // are not in it. And of what waits, what is saved, too.
    int64_t late_bytes[2], both_bytes[2];
    // Numbers of parameters. Of matrices, which kernels read packed, and others, read as they are.
    double dense_matrix, dense_other;        // held by all ranks of dp
    double expert_matrix, expert_other;      // of this rank's experts; held by dp / ep ranks
    double dense_largest, expert_largest;    // of one parameter
} CostPart;

// Regions act and sym together of a stage whose parts are in order, with `in_flight` microbatches saved at most:
// while one is at part i, the others keep all and it keeps what parts up to i save.
int64_t cost_stage_bytes(const CostPart *parts, int32_t n, int32_t in_flight);

typedef struct CostProfile CostProfile;
struct CostProfile {
    const char *model;
    int32_t n_layers, sequence, vocab, width;
    int32_t n_classes;
    const int32_t *class_of;   // [n_layers]: 0 .. n_classes - 1
    double experts, top_k;     // of the layer with most experts; 0: none
    double capacity;           // what the spec says; INFINITY: dropless
    double dense_numbers, expert_numbers; // parameters of the model, experts' of all ranks
    double flops_per_token;    // of training, forward and backward, without recomputation
    // Part p: a class, n_classes: before the first layer, n_classes + 1: after the last one. False: that choice
    // is impossible (ep does not divide experts).
    bool (*part)(const CostProfile *profile, int32_t part, const CostChoice *choice, CostPart *out);
    void *user;
};
static inline int32_t cost_part_before(const CostProfile *p) { return p->n_classes; }
static inline int32_t cost_part_after(const CostProfile *p) { return p->n_classes + 1; }

// How a stack keeps and moves parameters, in bytes a number: moec's own, or another's for comparison.
typedef struct CostStack {
    const char *name;
    double master;             // master and moments, divided over the ranks that have the parameter: 12
    double gradient;           // 4; divided where sharded
    double weight;             // what kernels read, per order, of matrices: 2 in bf16
    int32_t orders;            // in which kernels read a matrix: 1, or 2 with a copy for the gradient of its input
    int32_t narrow_orders;     // the same in mxfp8, whose blocks lie along what is summed: 2
    bool packs;                // what is gathered is packed, what is exchanged added up, by kernels
    bool gathers_last;         // resident weights are gathered when a step ends, beside no compute; else beside forward
    bool exchanges_parts;      // gradients go to the ranks that add them up, as between nodes so within: an all-to-all;
                               // else a reduce-scatter, which adds them up within nodes first
    double other;              // what kernels read of other parameters: 4
    double gathered, exchanged; // bytes a number that cross ranks: weights 4, gradients 4
    double accumulated;        // of memory, each microbatch: 0 where products add to gradients; gradients that are
                               // written, then added to fp32 sums in a kernel of its own: 2 + 2 + 8
    double shard_traffic;      // of memory, in a step, per number of a rank's shard: AdamW 28, norm 4, sums 4
    double whole_traffic;      // per number that a rank holds: gradients' parts 4, packing (4 + 2) an order
} CostStack;
// moec's own, in bf16: GPUs read one copy of a matrix in both orders, CPUs have two.
const CostStack *cost_stack_moec(const CostDevice *device);

// How `dp` ranks of a stage live with a choice: what one rank holds is resident, whatever the choice says of it, since
// there is nothing to gather.
CostChoice cost_settled(CostChoice choice, int32_t dp);
// Bytes of parameters of a part that lie on a rank all the time (docs/layouts.md, "Where parameters live").
int64_t cost_state_bytes(const CostStack *stack, const CostPart *part, const CostChoice *choice, int32_t dp);
// What the end of a step takes of act, where nothing else is in it: the largest bucket of resident parameters that
// several ranks share, whole, as it comes to be added up and as it is gathered again (compiler/lower/buckets.c).
int64_t cost_update_bytes(const CostProfile *profile, const CostPart *part, const CostChoice *choice, int32_t dp);
// Seconds that parameters of a part take on one rank, nothing hidden.
typedef struct CostState {
    double step_s;       // crossing ranks, once a step (resident)
    double gather_s;     // of these, of weights, the rest of gradients
    double exchanged_bytes; // of gradients, once a step
    double microbatch_s; // crossing ranks, each time a microbatch passes forward and backward (fsdp)
    double work_s;       // of memory, each of these times: packs_s, adding gradients apart
    double optimizer_s;  // of memory, once a step
} CostState;
CostState cost_state(const CostCluster *cluster, const CostStack *stack, const CostPart *part,
                     const CostChoice *choice, int32_t dp);

/* step.c: one layout ------------------------------------------------------------------------------ */

// Parts in the order of a layout, i from 0 to n_layers + 1: which one, on which virtual stage, with which recomputation.
typedef struct CostPlace { int32_t part, stage; uint8_t recompute; } CostPlace;
CostPlace cost_place(const CostProfile *profile, const Layout *layout, int32_t i);
// Bytes of a microbatch between two stages.
double cost_boundary_bytes(const CostProfile *profile, int32_t microbatch, uint8_t precision);

// What a layout's step is made of, for the rank of the slowest stage, in seconds.
typedef struct CostStep {
    double seconds;
    double class_s[N_COST_CLASSES]; // kernels, at even loads
    double imbalance_s;             // what the busiest rank's kernels take more
    double rows_s, params_s, send_s; // exposed: rows to and from experts; parameters and gradients; stages
    double optimizer_s, bubble_s;
    double flops;                   // of the model, all ranks
    int64_t state_bytes, moving_bytes; // of the fullest stage: parameters; all else
    int32_t fullest;
} CostStep;

typedef struct CostRun {
    const Layout *layout;      // microbatch is set; layer_recompute may be
    uint8_t precision, routing; // Precision; CostRouting
    uint8_t habits;            // CostHabit
    int64_t sequences;         // of a step, all ranks
    double rows_hidden;        // share of rows' seconds that other work runs beside (0: none)
    double params_hidden;      // the same of what parameters and gradients take
    double sends_hidden;       // and of what goes between interleaved stages, if that is more than rows_hidden
} CostRun;

// False: the layout is impossible for the model (sequences are no multiple of dp x microbatch, ep does not divide
// experts, a precision that the device has not). T = max over ranks of (m sum t + once - sum t / v) + (sum of all
// t) / v + sends, with m microbatches and v virtual stages; zero bubble fills with gradients of weights.
bool cost_step(const CostProfile *profile, const CostCluster *cluster, const CostStack *stack, const CostRun *run,
               CostStep *out);
// What of a part depends on the run: its layout's fields, precision, routing; recompute is the layout's.
CostChoice cost_run_choice(const CostRun *run);
// What moves through a rank of a stage that has these parts: saved by all microbatches in flight, the most that lives
// besides, and what lies between stages.
int64_t cost_moving_bytes(const CostProfile *profile, const CostRun *run, int32_t stage, const CostPart *parts,
                          int32_t n);
// Layers of each virtual stage [pp * chunks] that make the largest of them fastest: the smallest limit under which
// stages can be filled from the first on. In `arena`; NULL: impossible, as above.
int32_t *cost_split(const CostProfile *profile, const CostCluster *cluster, const CostStack *stack,
                    const CostRun *run, Arena *arena);

/* account.c: memory as another stack accounts for it ---------------------------------------------- */

typedef struct CostAccount CostAccount;
const CostAccount *cost_account(const char *name); // olmo-core, megatron, torchtitan; else NULL
const char *cost_account_name(const CostAccount *account);

// Of a rank of the fullest stage. Contexts and transports are in none of them.
typedef struct CostMemory {
    int64_t bytes;             // the sum
    int64_t state_bytes;       // weights, gradients, masters, moments
    int64_t gathered_bytes;    // of divided weights and gradients, what is whole while a layer is computed
    int64_t moving_bytes;      // activations, and logits of a microbatch
    int32_t stage;
} CostMemory;
// False: as of cost_step. The layout's microbatch is set.
bool cost_memory(const CostProfile *profile, const CostAccount *account, const CostRun *run, CostMemory *out);

#endif
