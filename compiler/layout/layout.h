// SPDX-License-Identifier: Apache-2.0
// A layout: how one model's work is divided among ranks. Small, printable, written by hand, by a
// search, or as the short form of --layout ("pp=2,dp=8,ep=4"). It changes speed and memory, never
// what is computed.
//
//   world = pp x dp ranks;  dp = edp x ep: the ranks of a pipeline stage divide the tokens, and of
//   the experts each holds count / ep. plan.h has the order of ranks.
#ifndef MOEC_LAYOUT_H
#define MOEC_LAYOUT_H

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

typedef struct Layout {
    int32_t pp, dp, ep;
    uint8_t schedule;             // LayoutSchedule
    int32_t chunks;               // virtual stages of a rank; 1 unless interleaved
    int32_t *stages;              // layers of virtual stage i, which is chunk i / pp of stage i % pp;
                                  // [pp * chunks]; NULL: as even as can be, the last ones less
    uint8_t params, expert_params; // LayoutParams, of dense ones and of experts
    uint8_t transport;            // LayoutTransport
    uint8_t recompute;            // LayoutRecompute, of every layer ...
    uint8_t *layer_recompute;     // ... or of each, [layers]; NULL: all alike
    int32_t microbatch;           // sequences; 0: the run's
    double capacity;              // rows of a rank over its even share; 0: what the spec says,
                                  // INFINITY: none is dropped
    int32_t *placement;           // [layers][experts]: the rank of axis ep that holds it, count / ep on each;
    int32_t experts;              // row length of placement. NULL: expert e on rank e / (count / ep)
} Layout;

// One rank.
Layout layout_single(void);
// Virtual stage of a layer (from 0) of `n_layers`; what precedes layers belongs to the first, what follows
// to the last.
int32_t layout_stage_of_layer(const Layout *layout, int32_t layer, int32_t n_layers);
int32_t layout_ranks(const Layout *layout);
PlanMesh layout_mesh(const Layout *layout, int32_t stage);

#endif
