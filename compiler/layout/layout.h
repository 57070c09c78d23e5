// SPDX-License-Identifier: Apache-2.0
// A layout: how one model's work is divided among ranks. Small, printable, written by hand, by a
// search, or as the short form of --layout ("pp=2,dp=8,ep=4"). It changes speed and memory, never
// what is computed.
//
//   world = pp x dp ranks;  dp = edp x ep: the ranks of a pipeline stage divide the tokens, and of
//   the experts each holds count / ep. plan.h has the order of ranks.
#ifndef MOEC_LAYOUT_H
#define MOEC_LAYOUT_H

#include "compiler/model/model.h"
#include "runtime/plan/plan.h"

typedef enum LayoutSchedule { SCHEDULE_1F1B, SCHEDULE_INTERLEAVED, SCHEDULE_ZERO_BUBBLE } LayoutSchedule;
// Where parameters live: whole on every rank of their group, with the optimizer's state divided; or
// divided themselves, gathered by every microbatch before use.
typedef enum LayoutParams { PARAMS_RESIDENT, PARAMS_FSDP } LayoutParams;
// Rows to experts on other ranks: row by row into their memory, or in blocks that carry a token once
// per destination node.
typedef enum LayoutTransport { TRANSPORT_ROWS, TRANSPORT_BLOCKS } LayoutTransport;
// What backward computes again: row operations where that saves memory, nothing, or all of a layer.
typedef enum LayoutRecompute { RECOMPUTE_CHEAP, RECOMPUTE_NONE, RECOMPUTE_BLOCK } LayoutRecompute;

// What crosses ranks does so while kernels run, which takes memory for what is gathered ahead; or alone.
typedef enum LayoutOverlap { OVERLAP_ON, OVERLAP_OFF } LayoutOverlap;

// Globs over addresses of parameters, and the Precision of their contractions.
typedef struct LayoutPrecision { const char *addresses; uint8_t precision; } LayoutPrecision;

typedef struct Layout {
    int32_t pp, dp, ep;
    uint8_t schedule;             // LayoutSchedule
    int32_t chunks;               // virtual stages of a rank; 1 unless interleaved
    int32_t *stages, n_stages;    // layers of virtual stage i, which is chunk i / pp of stage i % pp;
                                  // [pp * chunks]; NULL: as even as can be, the last ones less
    uint8_t params, expert_params; // LayoutParams, of dense ones and of experts
    uint8_t transport;            // LayoutTransport
    int32_t node;                 // ranks of ep on a node, which reach each other's memory; blocks go between nodes
    int32_t row_align;            // first rows of experts are multiples of it, a power of two; 0: 1
    uint8_t recompute;            // LayoutRecompute, of every layer ...
    uint8_t *layer_recompute;     // ... or of each, [layers]; NULL: all alike
    int32_t n_layer_recompute;
    int32_t microbatch;           // sequences; 0: the run's
    double capacity;              // rows of a rank over its even share; 0: what the spec says,
                                  // INFINITY: none is dropped
    uint8_t overlap;              // LayoutOverlap
    double round;                 // if none is: rows of a rank in one round over its even share; INFINITY: there
                                  // is but one, which has room for all
    int32_t *placement;           // [layers][experts]: the rank of axis ep that holds it, count / ep on each;
    int32_t experts;              // row length of placement. NULL: expert e on rank e / (count / ep)
    LayoutPrecision *precision;   // rules of a file, in its order; the model they were read for has them
    int32_t n_precision;
} Layout;

/* layout.c: arithmetic */

// One rank.
Layout layout_single(void);
// Virtual stage of a layer (from 0) of `n_layers`; what precedes layers belongs to the first, what follows
// to the last.
int32_t layout_stage_of_layer(const Layout *layout, int32_t layer, int32_t n_layers);
int32_t layout_stages(const Layout *layout); // how many numbers `stages` has, or would have
int32_t layout_ranks(const Layout *layout);
PlanMesh layout_mesh(const Layout *layout, int32_t stage);

/* check.c, nearest.c: layouts of a model */

// Experts of each layer, from 0; 0 for a layer without any. The largest of its routes counts.
void layout_experts(const Model *m, int32_t *experts /* [n_layers] */);
// What the run says besides.
typedef struct LayoutRun {
    int64_t ranks; // that were started; 0: as many as the layout has
    int64_t batch; // tokens per step, of all ranks; 0: as few microbatches as the schedule needs
    bool devices;  // `ranks` are those of a machine that is described: nothing was started
} LayoutRun;
// Whether the model can be laid out so. The message says which rule is broken and, as a hint, the nearest
// layout that works. A microbatch of 0 is open: any number of sequences will do.
Status layout_check(const Layout *layout, const Model *model, const LayoutRun *run);
// Sequences of a microbatch that is open: the most up to `usual` that the batch allows.
int32_t layout_choose_microbatch(const Layout *layout, const Model *model, const LayoutRun *run,
                                 int64_t usual /* tokens */);
// Microbatches of a rank in a step, once the layout's microbatch is known.
int64_t layout_microbatches(const Layout *layout, const Model *model, const LayoutRun *run);

/* text.c: the short form "pp=2,dp=8,ep=4,stages=4:3", and the fields that the Lua form shares with it */

enum {
    LAYOUT_MOST_RANKS = 1 << 20,
    LAYOUT_MOST_STAGES = 1 << 10,
    LAYOUT_MOST_SEQUENCES = 1 << 20,
};

// X(name, kind, member, largest number, choices, what it says). The kind says how a value is written:
// SIZE a whole number from 1, POWER such a power of two, CHOICE a word, COUNTS whole numbers with ':'
// between, POLICY a word or one word per layer with ':' between, ROOM a number or a word for infinity.
#define LAYOUT_FIELDS(X)                                                                           \
    X(pp, SIZE, pp, LAYOUT_MOST_STAGES, "", "pipeline stages")                                     \
    X(dp, SIZE, dp, LAYOUT_MOST_RANKS, "", "ranks of a stage; they divide the sequences")          \
    X(ep, SIZE, ep, LAYOUT_MOST_RANKS, "", "ranks of dp that divide the experts; divides dp")      \
    X(params, CHOICE, params, 0, "resident|fsdp",                                                  \
      "weights: whole on every rank, or divided over dp and gathered before use")                  \
    X(expert_params, CHOICE, expert_params, 0, "resident|fsdp",                                    \
      "the same of experts' weights, divided over dp / ep; as params if not given")                \
    X(schedule, CHOICE, schedule, 0, "1f1b|interleaved|zb", "of the pipeline")                     \
    X(slots, SIZE, chunks, LAYOUT_MOST_STAGES, "", "stages on each rank, if interleaved")          \
    X(stages, COUNTS, stages, 1 << 20, "", "layers of each stage, in order; even if not given")    \
    X(microbatch, SIZE, microbatch, LAYOUT_MOST_SEQUENCES, "",                                     \
      "sequences that a rank computes at once")                                                    \
    X(recompute, POLICY, recompute, 0, "cheap|none|block",                                         \
      "what backward computes again, of all layers or of each")                                    \
    X(capacity, ROOM, capacity, 1 << 20, "dropless",                                                 \
      "room for rows over the even share of a rank, or dropless; the spec's if not given")         \
    X(round, ROOM, round, 1 << 20, "whole",                                                        \
      "if dropless: room of one round; what does not fit comes in further ones")                   \
    X(transport, CHOICE, transport, 0, "rows|blocks",                                              \
      "how rows reach experts: one by one into memory; between nodes in blocks")                   \
    X(node, SIZE, node, LAYOUT_MOST_RANKS, "",                                                     \
      "with transport=blocks: ranks of ep that reach each other's memory; divides ep")             \
    X(row_align, POWER, row_align, PLAN_MOST_ALIGN, "",                                            \
      "first rows of experts are multiples of it; rows between them are zero")                     \
    X(overlap, CHOICE, overlap, 0, "on|off",                                                       \
      "what crosses ranks does so while kernels run, weights gathered ahead; or alone")

typedef enum LayoutField {
#define X(name, ...) LAYOUT_##name,
    LAYOUT_FIELDS(X)
#undef X
    N_LAYOUT_FIELDS
} LayoutField;
extern const char *const layout_field_name[N_LAYOUT_FIELDS];

// One field from the text of its value; arrays live in the arena.
Status layout_set(Layout *layout, Arena *arena, LayoutField field, const char *value);
// After the last layout_set: fills in what follows from others. given: bit i for field i.
void layout_settle(Layout *layout, uint32_t given);
// Fields that the text does not name keep what *layout says.
Status layout_parse(const char *text, Arena *arena, Layout *layout);
// The short form, canonical: fields in the order of the table, those that layout_single() has left out
// (dp never). What it cannot say, placement and precision, is left out.
void layout_print(const Layout *layout, Text *out);
void layout_print_value(const Layout *layout, LayoutField field, Text *out); // of one field
// lua.c: a file of Lua that gives the layout back, after `local m = require "moec"`; all of it.
void layout_print_lua(const Layout *layout, int32_t n_layers /* rows of placement */, Text *out);
void layout_help(Text *out);      // a line per field: "pp=N", what it says
void layout_reference(Text *out); // the same as rows of a Markdown table

#endif
