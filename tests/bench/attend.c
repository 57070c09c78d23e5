// SPDX-License-Identifier: Apache-2.0
// Attention, causal, four query heads to a key head. FLOPs are the model's: half of the square, two
// products forward, four backward; the kernel computes a fifth, the scores again.
#include <stdlib.h>

#include "tests/bench/bench.h"

enum { SEQUENCES = 8, SEQUENCE = 1024, HEADS = 8, KV_HEADS = 2, SIZE = 64 };

static KernelDesc describe(Family family, uint8_t precision) {
    uint8_t narrow = precision_dtype(precision);
    return (KernelDesc){.family = family, .rows = SEQUENCES * SEQUENCE, .sequence = SEQUENCE,
                        .heads = HEADS, .kv_heads = KV_HEADS, .qk = SIZE, .v = SIZE, .causal = true,
                        .scale = 0.125f, .precision = precision, .x = narrow, .g = narrow,
                        .y = narrow};
}

static void run_case(Bench *bench, const Kit *kit, uint32_t kernel, Family family, int precision,
                     const int32_t *segments) {
    int64_t tokens = SEQUENCES * SEQUENCE, q = tokens * HEADS * SIZE, k = tokens * KV_HEADS * SIZE;
    const Bound bound[] = {{"q", q, NULL},   {"k", k, NULL},  {"v", k, NULL},
                           {"y", q, NULL},   {"g", q, NULL},  {"lse", tokens * HEADS, NULL},
                           {"dq", q, NULL},  {"dk", k, NULL}, {"dv", k, NULL},
                           {"segments", tokens, segments}};
    Trial trial;
    trial_open(&trial, bench, kit, kernel, bound, COUNT_OF(bound));
    trial_run(&trial);
    trial_check_finite(&trial);
    bool backward = family == FAMILY_ATTEND_GRAD;
    double product = 2.0 * SEQUENCES * HEADS * SIZE * SEQUENCE * (SEQUENCE / 2.0);
    double flops = product * (backward ? 4 : 2);
    Timing t = time_runs(bench, precision_limit(precision), flops, bench->quick ? 0.5 : 3, 5,
                         trial_run, &trial);
    report_row(&bench->report,
               (Cell[]){TEXT(backward ? "backward" : "forward"), TEXT(precision_text(precision)),
                        NUMBER(t.best * 1e3), NUMBER(flops / t.best / 1e9), NUMBER(t.best_share),
                        NUMBER(t.median_share), NUMBER(t.best_share * (backward ? 1.25 : 1)),
                        NUMBER(trial.n_sets), NUMBER(t.rounds)});
    trial_close(&trial);
}

void attend_section(Bench *bench) {
    static const Column columns[] = {
        {"direction", "direction", -9, 0}, {"precision", "type", -5, 0},
        {"ms", "ms", 9, 3},                {"gflops", "GFLOP/s", 9, 1},
        {"best", "% best", 7, 1},          {"median", "% median", 8, 1},
        {"done", "% done", 7, 1},          {"sets", "sets", 5, 0},
        {"rounds", "rounds", 6, 0},
    };
    uint32_t kernels[2][2];
    static int32_t segments[SEQUENCES * SEQUENCE];
    for (int i = 0; i < COUNT_OF(segments); i++) segments[i] = i / SEQUENCE;
    Kit kit;
    kit_open(&kit);
    for (int p = 0; p < 2; p++) {
        for (int f = 0; f < 2; f++) {
            KernelDesc d = describe((Family)(FAMILY_ATTEND + f), (uint8_t)(PRECISION_FP32 + p));
            kernels[p][f] = kit_add(&kit, &d);
        }
    }
    kit_compile(&kit);
    report_section(&bench->report, "attention",
                   "Attention: 8 sequences of 1024, 8 heads of 64, 2 key heads, causal FLOPs (% done "
                   "counts the scores that backward computes again)",
                   columns, COUNT_OF(columns));
    for (int p = 0; p < 2; p++)
        for (int f = 0; f < 2; f++)
            run_case(bench, &kit, kernels[p][f], (Family)(FAMILY_ATTEND + f), PRECISION_FP32 + p,
                     segments);
    kit_close(&kit);
}
