// SPDX-License-Identifier: Apache-2.0
// Executes a plan: allocates one block per region, compiles the sources, binds addresses, walks rows.
// Nothing is allocated, compiled or looked up during a step.
#ifndef MOEC_EXEC_H
#define MOEC_EXEC_H

#include "runtime/plan/plan.h"

typedef struct Exec Exec;

typedef struct ExecOptions {
    int threads;                 // 0: all cores
    bool poison;                 // debug: act starts as NaN before every row "forward"
    bool small_pages;            // 4 KiB pages: exec_touched is exact; slower
    bool profile;                // time every launch: see exec_profile
    // Progress of compilation, may be NULL: `done` of `total` kernels ready, `cached` of them from disk.
    void (*progress)(void *user, int done, int total, int cached);
    void *user;
} ExecOptions;

// Fills the inputs of one microbatch: called right before the first row of each microbatch. Write through
// exec_input. `microbatch` counts within the step.
typedef Status (*ExecFill)(void *user, Exec *exec, const PlanProgram *program, int microbatch);

// Runs plan_check first. The plan must outlive the Exec.
Status exec_create(const Plan *plan, const ExecOptions *options, Exec **out);
void exec_destroy(Exec *exec);                                 // NULL is fine
// All rows of a program. Metrics start from zero.
Status exec_run(Exec *exec, const PlanProgram *program, ExecFill fill, void *user);
// Parameters from their init rule: a pure function of (seed, parameter name, element). Moments zero.
void exec_init(Exec *exec, uint64_t seed);
// What is derived from the weights (program "pack"), after the host has written them; exec_init does so.
void exec_pack(Exec *exec);

void *exec_region(const Exec *exec, Region region);
void *exec_buffer(const Exec *exec, const PlanProgram *program, uint32_t buffer);
void *exec_input(const Exec *exec, const PlanProgram *program, InputKind kind, int32_t k); // NULL if unused
float *exec_scalars(const Exec *exec);                         // [N_SCALARS]
float *exec_metric(const Exec *exec, const PlanProgram *program, uint32_t metric, int64_t *n);
int exec_threads(const Exec *exec);
// Seconds each instruction of the program has taken so far, which the caller may set to zero; NULL
// without ExecOptions.profile.
double *exec_profile(const Exec *exec, const PlanProgram *program);
// Bytes of each region that are resident (mincore), for the check of predicted peak against use.
int64_t exec_touched(const Exec *exec, Region region);

#endif
