// SPDX-License-Identifier: Apache-2.0
// SPEC, its arguments and the options of `moec plan`, `moec kernels` and `moec simulate`.
#ifndef MOEC_DRIVER_PLAN_ARGS_H
#define MOEC_DRIVER_PLAN_ARGS_H

#include "compiler/driver/layout.h"
#include "compiler/driver/line.h"
#include "compiler/lower/lower.h"

typedef struct PlanArgs {
    int command;                      // FOR_..
    const Options *options;
    const char *spec, *dump;
    const char *target;               // NULL: not said
    const char *layout;               // NULL: one rank
    int64_t microbatch, microbatches; // tokens; per step. 0: not said
    uint8_t precision, recompute;
    SpecOptions spec_options;
} PlanArgs;

// `command`: FOR_PLAN, FOR_KERNELS or FOR_SIMULATE. *args points into options.
Status plan_args_read(PlanArgs *args, int command, Options *options, int argc, char **argv);
// The plans of all stages of a layout, in order.
typedef struct StagePlans {
    Layout layout;
    int32_t n_layers;
    Plan **plans; // [layout.pp]
} StagePlans;

// Loads and lowers, with the program "step" and, but for simulate, "eval". Prints what is wrong; returns the exit status.
int plan_args_lower(PlanArgs *args, Arena *arena, StagePlans *out);
void stage_plans_destroy(StagePlans *stages);

/* ranks.c, plan.c */

// The layout, and by rank what it holds and what it gives to others; ranks that are alike share a line.
void ranks_print(const StagePlans *stages, Text *out);
const char *bytes_text(int64_t bytes, char out[32]); // "1.5 MiB"

#endif
