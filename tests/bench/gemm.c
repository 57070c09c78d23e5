// SPDX-License-Identifier: Apache-2.0
// Grouped matrix products of a MoE layer, forward, back to the rows, and to the weights, by rows per
// expert. Packed weights as the plan keeps them; what a kernel packs of its rows is in its time.
#include <math.h>

#include "tests/bench/bench.h"

enum { EXPERTS = 32, WIDTH = 1024, PANEL = 32, CHECKS = 64, MAX_TRIALS = 32 };

static const struct {
    Family family;
    const char *name;
} kinds[] = {{FAMILY_MATMUL, "forward"}, {FAMILY_MATMUL_T, "dgrad"}, {FAMILY_MATMUL_W, "wgrad"}};

static KernelDesc describe(Family family, int64_t per_expert, uint8_t precision) {
    Dtype narrow = precision_dtype(precision);
    KernelDesc d = {.family = family, .rows = EXPERTS * per_expert, .experts = EXPERTS, .mid = 1,
                    .each = 1, .k = WIDTH, .n = WIDTH, .precision = precision, .x = narrow};
    if (family == FAMILY_MATMUL_W)
        d.g = narrow, d.accumulate = true;
    else
        d.y = narrow;
    return d;
}

// Element (s, j) of an expert's packed matrix.
static double packed_number(const Trial *t, int arg, int64_t expert, int64_t s, int64_t j) {
    int64_t panel = (expert * (WIDTH / PANEL) + j / PANEL) * WIDTH;
    if (t->kernel->args[arg].dtype == DTYPE_F32)
        return trial_number(t, arg, (panel + s) * PANEL + j % PANEL);
    return trial_number(t, arg, ((panel / 2 + s / 2) * PANEL + j % PANEL) * 2 + s % 2);
}

static void check_number(const Trial *t, int out, int64_t at, double want, double size) {
    double got = trial_number(t, out, at);
    double step = t->kernel->args[out].dtype == DTYPE_BF16 ? 0x1p-7 : 0x1p-12;
    if (fabs(got - want) <= step * size) return;
    give_up("%s: number %lld is %g, expected %g", t->kernel->entry, (long long)at, got, want);
}

// A few results of the first run against sums in double.
static void check(const Trial *t, Family family, int64_t per_expert) {
    bool weights = family == FAMILY_MATMUL_W, turned = family == FAMILY_MATMUL_T;
    int x = trial_arg(t, turned ? "g" : "x"), w = trial_arg(t, weights ? "g" : "w");
    int out = trial_arg(t, weights ? "w" : turned ? "x" : "y");
    for (int c = 0; c < CHECKS; c++) {
        int64_t expert = (int64_t)(hash_mix(1, 1, (uint64_t)c) % EXPERTS);
        int64_t i = (int64_t)(hash_mix(1, 2, (uint64_t)c) % (uint64_t)(weights ? WIDTH : per_expert));
        int64_t j = (int64_t)(hash_mix(1, 3, (uint64_t)c) % WIDTH), row = expert * per_expert;
        double sum = 0, size = 0;
        for (int64_t s = 0; s < (weights ? per_expert : WIDTH); s++) {
            double a = trial_number(t, x, weights ? (row + s) * WIDTH + i : (row + i) * WIDTH + s);
            double b = weights ? trial_number(t, w, (row + s) * WIDTH + j)
                               : packed_number(t, w, expert, s, j);
            sum += a * b, size += fabs(a * b);
        }
        check_number(t, out, ((weights ? expert * WIDTH : row) + i) * WIDTH + j, sum, size);
    }
}

typedef struct Case {
    int kind, precision;
    int64_t per_expert;
    uint32_t kernel;
} Case;

static void run_case(Bench *bench, const Kit *kit, const Case *c) {
    Family family = kinds[c->kind].family;
    int64_t rows = EXPERTS * c->per_expert, matrix = (int64_t)EXPERTS * WIDTH * WIDTH;
    int32_t offsets[EXPERTS + 1];
    for (int e = 0; e <= EXPERTS; e++) offsets[e] = (int32_t)(e * c->per_expert);
    const Bound bound[] = {{"x", rows * WIDTH, NULL}, {"g", rows * WIDTH, NULL},
                           {"y", rows * WIDTH, NULL}, {"w", matrix, NULL},
                           {"offsets", EXPERTS + 1, offsets}};
    Trial trial;
    trial_open(&trial, bench, kit, c->kernel, bound, COUNT_OF(bound));
    trial_run(&trial);
    check(&trial, family, c->per_expert);
    double flops = 2.0 * (double)rows * WIDTH * WIDTH;
    Timing t = time_runs(bench, precision_limit(c->precision), flops, bench->quick ? 0.3 : 2, 5,
                         trial_run, &trial);
    double moved = (double)trial.bytes[trial_arg(&trial, "w")];
    report_row(&bench->report,
               (Cell[]){TEXT(kinds[c->kind].name), TEXT(precision_text(c->precision)),
                        NUMBER(c->per_expert), NUMBER(t.best * 1e3), NUMBER(flops / t.best / 1e9),
                        NUMBER(t.best_share), NUMBER(t.median_share),
                        NUMBER(moved * (family == FAMILY_MATMUL_W ? 2 : 1) / t.best / 1e9),
                        NUMBER(trial.n_sets), NUMBER(t.rounds)});
    trial_close(&trial);
}

void gemm_section(Bench *bench) {
    static const Column columns[] = {
        {"product", "product", -8, 0},      {"precision", "type", -5, 0},
        {"rows", "rows/expert", 11, 0},     {"ms", "ms", 9, 3},
        {"gflops", "GFLOP/s", 9, 1},        {"best", "% best", 7, 1},
        {"median", "% median", 8, 1},       {"weights_gbs", "weights GB/s", 12, 1},
        {"sets", "sets", 5, 0},             {"rounds", "rounds", 6, 0},
    };
    static const int64_t all[] = {8, 32, 128, 512}, few[] = {32, 128};
    const int64_t *sizes = bench->quick ? few : all;
    int n_sizes = bench->quick ? COUNT_OF(few) : COUNT_OF(all), n = 0;
    Case cases[MAX_TRIALS];
    Kit kit;
    kit_open(&kit);
    for (int precision = PRECISION_FP32; precision <= PRECISION_BF16; precision++) {
        for (int kind = 0; kind < COUNT_OF(kinds); kind++) {
            for (int i = 0; i < n_sizes; i++) {
                if (!line_wanted(bench, "%s %s %lld", kinds[kind].name, precision_text(precision),
                                 (long long)sizes[i]))
                    continue;
                KernelDesc d = describe(kinds[kind].family, sizes[i], (uint8_t)precision);
                cases[n++] = (Case){kind, precision, sizes[i], kit_add(&kit, &d)};
            }
        }
    }
    kit_compile(&kit);
    report_section(&bench->report, "gemm",
                   "Grouped GEMM: 32 experts, K = N = 1024 (% of the measured peak of the type; wgrad "
                   "adds to fp32 gradients)",
                   columns, COUNT_OF(columns));
    for (int i = 0; i < n; i++) run_case(bench, &kit, &cases[i]);
    kit_close(&kit);
}
