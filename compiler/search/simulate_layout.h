// SPDX-License-Identifier: Apache-2.0
// A layout in the simulator without its plans: the stages' work from a profile (compiler/cost/profile.h), the order
// from the pipeline's (compiler/layout/pipeline.h). So many can be simulated in the time that one takes to lower;
// what it knows less of than a plan does is what goes on beside what: shares say that.
#ifndef MOEC_SIMULATE_LAYOUT_H
#define MOEC_SIMULATE_LAYOUT_H

#include "compiler/cost/profile.h"
#include "compiler/search/simulate.h"

typedef struct SimLayout {
    const CostProfile *profile;
    const CostCluster *cluster;
    const CostStack *stack;
    CostChoice choice;         // `recompute` is not read
    int32_t pp, dp, chunks, microbatches;
    uint8_t schedule;          // LayoutSchedule
    const int32_t *stages;     // [pp * chunks] layers of each virtual stage
    const uint8_t *recompute;  // [n_layers] LayoutRecompute
    // Of rows to experts, and of weights and gradients, how much runs beside a layer's compute; 0: nothing.
    double rows_hidden, params_hidden;
    bool posted;               // messages between stages are waited for by nobody but their readers
} SimLayout;

// ERR_ARGUMENT: the profile has no costs for a part of the layout.
Status sim_layout(const SimLayout *layout, Arena *arena, Sim *out);

#endif
