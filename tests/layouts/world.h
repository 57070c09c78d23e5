// SPDX-License-Identifier: Apache-2.0
// A model trained under a layout: one plan per stage, a thread per rank over the local transport (or this
// process as one of its ranks), made-up data that depends on the number of the sequence only. What comes back
// has no trace of the layout, so that two layouts can be compared: losses of the world, and whole parameters
// by name.
#ifndef MOEC_TEST_LAYOUTS_WORLD_H
#define MOEC_TEST_LAYOUTS_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compiler/lower/lower.h"
#include "compiler/spec/spec.h"
#include "runtime/exec/exec.h"

typedef struct WorldJob {
    const char *spec;            // a file of tests/layouts/specs, "dense.lua", or of models
    SpecArg args[10]; int n_args;
    Layout layout;               // pp = 0: one rank
    int microbatch, microbatches; // sequences of a rank's microbatch, microbatches of a rank's step
    int steps;
    double clip, lr, decay;      // of the run
    uint8_t precision;
    int64_t bucket, piece;       // LowerOptions
    bool whole_blocks; // LowerOptions
    bool poison, eval;           // eval: program "eval" of one microbatch after the last step
    const char *device;          // NULL: the CPU
    int node_ranks;              // so many ranks share memory; 0: all
    bool count_rows;             // of ExecOptions
    Routing routing;             // of SpecOptions
    bool whole;                  // a sequence is one document
    Comm *comm;                  // this process's end of ranks that are processes; NULL: threads
    int spoil;                   // step (from 1) whose gradient is not finite on the last rank; 0: none
} WorldJob;

// What jobs of experts on other ranks have in common.
typedef struct WorldExperts {
    const char *spec;            // NULL: experts.lua, which alone takes these arguments but count:
    const char *mode, *count, *top_k, *sequence, *bias;
    int dp, ep, microbatch;
    bool turned, bf16;           // turned: experts on other ranks than in order
    uint8_t recompute;           // LayoutRecompute
    int pp;                      // 0: 1
    uint8_t schedule;            // LayoutSchedule
} WorldExperts;
// Two microbatches, with stages more; tails of rows hold NaN. Valid until the next call.
WorldJob world_experts(const WorldExperts *of);

typedef struct WorldParam {
    const char *name;
    bool is_state;
    int64_t n;
    float *gradient;             // of step 1, summed over the step; NULL of a state
    float *weights;              // after the last step
    uint8_t *seen;               // by number: how many ranks have its master
} WorldParam;

typedef struct WorldMetric {
    const char *name;
    int64_t n;
    double *values;              // of the last step, over all ranks
} WorldMetric;

// What a rank's run touched and moved, for the predictions of its plan.
typedef struct WorldRank {
    int64_t touched[N_REGIONS];
    PlanTraffic moved;           // by all steps
    float skipped, grad_norm;    // of the last step
} WorldRank;

typedef struct World {
    Arena *arena;
    int n_ranks, n_stages, steps;
    Plan **plans;                // by stage
    WorldRank *ranks;
    double *losses;              // [steps], all losses with their weights, over all ranks
    double *norms;               // [steps], of the gradient
    double eval;                 // losses of that program, over all ranks
    double *served, *dropped;    // [steps], copies with and without a row, over all routes and ranks
    WorldParam *params; uint32_t n_params, cap_params;
    WorldMetric *metrics; uint32_t n_metrics, cap_metrics; // losses too
} World;

// Fails the test when something does not work. Free with world_free. With job->comm all ranks call it and all
// get the same (norms: rank 0), but for metrics and `ranks`, which are this rank's.
World *world_run(const WorldJob *job);
void world_free(World *world);
Plan *world_plan(const WorldJob *job, int stage);              // alone, without running it
WorldParam *world_param(const World *world, const char *name); // NULL: none

// The largest of |a - b| / |b| over parameters, in the Euclidean norm; `where` names it.
double world_gradient_error(const World *a, const World *b, const char **where);
double world_weight_error(const World *a, const World *b, const char **where);
double world_loss_error(const World *a, const World *b);       // largest of |a - b| / |b|
double world_metric_error(const World *a, const World *b, const char **where);
void world_equal_bits(const World *a, const World *b);         // losses, gradients, weights; or the test fails
// Losses, norms and gradients; what is read has no more.
void world_save(const World *world, const char *path);
World *world_read(const char *path);

// Skips the test where the virtual GPU's library or NVRTC is missing; devices "vgpu:ARCH" are there afterwards.
void world_needs_gpus(void);

// The fixtures of a test program: a kernel cache of its own. world_caches is a group's setup.
int world_setup(void **state);
int world_teardown(void **state);

#endif
