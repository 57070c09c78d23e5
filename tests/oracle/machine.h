// SPDX-License-Identifier: Apache-2.0
// A lowered plan at work beside the interpreter: lower, execute one step on given microbatches, compare.
#ifndef MOEC_TEST_MACHINE_H
#define MOEC_TEST_MACHINE_H

#include "compiler/lower/lower.h"
#include "runtime/exec/exec.h"
#include "tests/oracle/compare.h"

// Is there what kernels for a virtual GPU need?
bool machine_has_gpu(const char *arch);
// Kernels of these tests are cached in the build folder, never in the user's cache.
void machine_use_cache(void);

// How to lower: zero is fused, in fp32, with cheap recomputation.
typedef struct How {
    bool no_fusion;
    uint8_t precision, recompute;
    int64_t piece; // numbers of logits at a time; 0: all of such small models
    const char *gpu; // architecture of the virtual GPU to run on; NULL: the CPU
} How;
Plan *machine_plan(Model *m, int32_t sequences, int batches, How how); // step only; fails the test
// Parameters and scalars (lr = 0: gradients stay in their region, weights do not move), then one step.
// Fails the test when the executor does.
// On the virtual GPU if the plan is for GPUs.
Exec *machine_exec(const Plan *plan, int threads, bool poison);
void machine_load(Exec *exec, const Plan *plan, const Interp *from);
void machine_step(Exec *exec, const Plan *plan, const Step *step);

int64_t plan_param_n(const PlanParam *param);
// The region's hash: equal hashes, equal bits.
Hash machine_bits(const Exec *exec, const Plan *plan, Region region);
Hash machine_results(const Exec *exec, const Plan *plan); // of weights, gradients and metrics together

// Copies of results in double. Caller frees.
double *machine_gradient(const Exec *exec, const Plan *plan, uint32_t param);
double *machine_weights(const Exec *exec, const Plan *plan, uint32_t param);

#endif
