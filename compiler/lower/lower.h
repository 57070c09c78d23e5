// SPDX-License-Identifier: Apache-2.0
// From Model to Plan: an ordered list of passes (lower.c).
#ifndef MOEC_LOWER_H
#define MOEC_LOWER_H

#include "compiler/layout/layout.h"
#include "compiler/model/model.h"
#include "runtime/plan/plan.h"

enum { LOWER_MOST_MICROBATCHES = 1000000 }; // per step: a plan has rows for each

typedef struct LowerOptions {
    int32_t microbatch;          // sequences per microbatch
    int32_t microbatches;        // per step
    bool programs[N_PROGRAMS];   // which to build
    const char *target;          // where it runs: plan.h, PlanTarget; NULL: "cpu"
    uint8_t precision;           // of the run: PRECISION_OPEN means fp32; PRECISION_BF16
    uint8_t recompute;           // LayoutRecompute, where there is no layout
    const Layout *layout;        // NULL: one rank
    int32_t stage;               // of the layout: whose plan to make
    int64_t piece;               // numbers of a loss's product at a time; 0: what suits caches
    int64_t bucket;              // most bytes of a bucket of parameters; 0: what suits memory
    bool no_fusion;              // one kernel per operation: for tests
    const char *dump;            // letters of passes to dump to `dump_out`, or NULL
    Text *dump_out;
} LowerOptions;

// NULL when refused: model->diag has message, hint and location.
Plan *lower_model(Model *model, const LowerOptions *options);

#endif
