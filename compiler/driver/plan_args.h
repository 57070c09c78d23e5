// SPDX-License-Identifier: Apache-2.0
// SPEC, its arguments and the options of `moec plan` and `moec kernels`.
#ifndef MOEC_DRIVER_PLAN_ARGS_H
#define MOEC_DRIVER_PLAN_ARGS_H

#include "compiler/driver/driver.h"
#include "compiler/lower/lower.h"
#include "compiler/spec/spec.h"

enum { ARGS_OF_PLAN = 1, ARGS_OF_KERNELS = 2 };

typedef struct PlanArgs {
    int command;                      // ARGS_OF_..
    const char *spec, *out, *dump;
    const char *target;               // NULL: not said
    int64_t microbatch, microbatches; // tokens; per step
    uint8_t precision, recompute, routing;
    SpecArg *args, *sets;
    int n_args, n_sets;
} PlanArgs;

Status plan_args_read(PlanArgs *args, int command, Arena *arena, int argc, char **argv);
// Loads and lowers, with programs "step" and "eval". Prints what is wrong; returns the exit status.
int plan_args_lower(PlanArgs *args, Plan **out);

#endif
