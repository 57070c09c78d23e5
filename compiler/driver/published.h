// SPDX-License-Identifier: Apache-2.0
// Published training speeds beside what the cost model predicts of them.
#ifndef MOEC_DRIVER_PUBLISHED_H
#define MOEC_DRIVER_PUBLISHED_H

#include "compiler/cost/profile.h"
#include "compiler/search/profile.h"

// How another stack keeps and moves parameters (compiler/cost/profile.h).
// Both: bf16 weights once, fp32 gradients and master; Megatron's products add to fp32 gradients, in OLMo-core 3 and
// others a kernel does so afterwards.
extern const CostStack published_fused, published_apart;

// Models with their profiles, made once each. `models` is the folder of specs.
typedef struct Bench Bench;
Bench *bench_create(const char *models);
void bench_destroy(Bench *bench); // NULL is fine

typedef struct BenchRun {
    const char *spec, *args, *cluster; // "olmo3moe_8l", "experts=8" (by spaces), "b300x8"
    const char *layout;                // short form, microbatch included
    const CostStack *stack;
    uint8_t precision, routing;        // Precision, CostRouting
    uint8_t habits;                    // CostHabit
    int64_t sequences;                 // of a step; 0: 16 microbatches of every rank
    int32_t sequence;                  // 0: the spec's
    double rows_hidden, params_hidden, sends_hidden; // CostRun
} BenchRun;

typedef struct BenchResult {
    CostStep step;
    double tokens_per_s, flop_per_s; // of a device
    double flops_per_token;
} BenchResult;

// ERR_INPUT with a message when the spec, the cluster or the layout is refused.
Status bench_predict(Bench *bench, const BenchRun *run, BenchResult *out);

// The fastest layout that a search over all of them finds for the same run, on the cluster's devices, and what is
// predicted of it. Its short form lives in `arena`.
Status bench_search(Bench *bench, const BenchRun *run, Arena *arena, const char **layout, BenchResult *out);

// Reads rows of tests/search/published.csv's form, predicts all, and prints the tables.
int published_print(Bench *bench, const char *path);

#endif
