// SPDX-License-Identifier: Apache-2.0
// matmul, matmul_t, matmul_w against sums in double over odd shapes, dense and grouped.
//
// Bound of an element: the worst case of a sum of n products in fp32, (n + 2) 2^-24 sum |a b|. The
// order of summation is part of the contract, so the same sum by fmaf in that order must have equal
// bits. Rows that do not exist hold NaN in the inputs and a mark in the outputs: neither may move.
#include "tests/kernels/lab.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_EXPERTS = 8 };
typedef struct Case {
    int32_t rows, experts, mid, each, k, n;
    int32_t of[MAX_EXPERTS]; // rows per expert
    bool accumulate;
} Case;

static const Case cases[] = {
    {.rows = 1, .mid = 1, .each = 1, .k = 1, .n = 1},
    {.rows = 1, .mid = 1, .each = 1, .k = 37, .n = 3, .accumulate = true},
    {.rows = 7, .mid = 1, .each = 1, .k = 31, .n = 33},
    {.rows = 97, .mid = 1, .each = 1, .k = 53, .n = 71, .accumulate = true},
    {.rows = 300, .mid = 1, .each = 1, .k = 131, .n = 97},
    {.rows = 130, .mid = 1, .each = 1, .k = 1100, .n = 65}, // more than one piece of k
    {.rows = 17, .mid = 1, .each = 1, .k = 65, .n = 1100},  // the same for matmul_t
    {.rows = 519, .mid = 1, .each = 1, .k = 64, .n = 64, .accumulate = true},
    // three chunks of rows
    {.rows = 23, .mid = 3, .each = 1, .k = 19, .n = 29},
    {.rows = 23, .mid = 1, .each = 5, .k = 19, .n = 29, .accumulate = true},
    {.rows = 101, .mid = 3, .each = 2, .k = 17, .n = 34},
    {.rows = 40, .experts = 3, .mid = 1, .each = 1, .k = 16, .n = 32, .of = {13, 0, 27}},
    {.rows = 600,
     .experts = 4,
     .mid = 1,
     .each = 1,
     .k = 48,
     .n = 40,
     .of = {0, 521, 0, 0},
     .accumulate = true},
    {.rows = 600, .experts = 4, .mid = 1, .each = 1, .k = 48, .n = 41, .of = {0, 0, 0, 600}},
    {.rows = 64, .experts = 5, .mid = 1, .each = 1, .k = 9, .n = 70, .of = {1, 2, 3, 5, 7}},
    {.rows = 32, .experts = 2, .mid = 1, .each = 1, .k = 20, .n = 20, .of = {0, 0}},
    {.rows = 50,
     .experts = 2,
     .mid = 3,
     .each = 2,
     .k = 11,
     .n = 13,
     .of = {17, 30},
     .accumulate = true},
    {.rows = 50, .experts = 2, .mid = 1, .each = 4, .k = 8, .n = 12, .of = {9, 0}},
};

static KernelDesc describe(const Case *c, Family family) {
    return (KernelDesc){.family = family,
                        .rows = c->rows,
                        .experts = c->experts,
                        .mid = c->mid,
                        .each = c->each,
                        .k = c->k,
                        .n = c->n,
                        .accumulate = family == FAMILY_MATMUL_W && c->accumulate};
}

typedef struct Data {
    int32_t offsets[MAX_EXPERTS + 1];
    int32_t *bound_offsets;
    int64_t valid, in, out,
        matrix;       // rows that exist; numbers of a row of x and of y; numbers of one w
    float *x, *w, *y; // y stands for g too
} Data;

static Data make(const Case *c) {
    int experts = c->experts ? c->experts : 1;
    Data d = {.in = (int64_t)c->each * c->mid * c->k,
              .out = (int64_t)c->each * c->mid * c->n,
              .matrix = (int64_t)c->each * c->k * c->n};
    for (int e = 0; e < experts; e++)
        d.offsets[e + 1] = d.offsets[e] + (c->experts ? c->of[e] : c->rows);
    d.valid = d.offsets[experts];
    d.bound_offsets = lab_array(experts + 1);
    memcpy(d.bound_offsets, d.offsets, sizeof(int32_t) * (size_t)(experts + 1));
    d.x = lab_random(c->rows * d.in, 1);
    d.w = lab_random(experts * d.matrix, 2);
    d.y = lab_random(c->rows * d.out, 3);
    for (int64_t i = d.valid * d.in; i < c->rows * d.in; i++) d.x[i] = NAN;
    for (int64_t i = d.valid * d.out; i < c->rows * d.out; i++) d.y[i] = NAN;
    return d;
}

static void drop(Data *d) {
    lab_free(d->bound_offsets);
    lab_free(d->x);
    lab_free(d->w);
    lab_free(d->y);
}

static void run(Lab *lab, uint32_t kernel, const Case *c, const Data *d, Binding in0, Binding in1,
                Binding out) {
    Binding b[4] = {in0, in1, out, READ_I32("offsets", d->bound_offsets)};
    lab_run(lab, kernel, b, c->experts ? 4 : 3);
}

static double bound(int64_t terms, double magnitude) {
    return ((double)terms + 2) * 0x1p-24 * magnitude + 0x1p-140;
}

// y (or, turned, x) row by row.
static void check_rows(Lab *lab, uint32_t kernel, const Case *c, bool turned) {
    Data d = make(c);
    int64_t width = turned ? d.in : d.out, K = turned ? c->n : c->k, N = turned ? c->k : c->n;
    float *out = lab_filled(c->rows * width, 77.0f);
    if (turned)
        run(lab, kernel, c, &d, (Binding)READ_F32("g", d.y), (Binding)READ_F32("w", d.w),
            (Binding)WRITE_F32("x", out));
    else
        run(lab, kernel, c, &d, (Binding)READ_F32("x", d.x), (Binding)READ_F32("w", d.w),
            (Binding)WRITE_F32("y", out));
    const float *in = turned ? d.y : d.x;
    int expert = 0;
    for (int64_t r = 0; r < d.valid; r++) {
        while (r >= d.offsets[expert + 1]) expert++;
        for (int64_t ea = 0; ea < c->each * c->mid; ea++) {
            const float *w = d.w + expert * d.matrix + ea / c->mid * c->k * c->n;
            for (int64_t n = 0; n < N; n++) {
                double sum = 0, magnitude = 0;
                float ordered = 0;
                for (int64_t k = 0; k < K; k++) {
                    float a = in[(r * c->each * c->mid + ea) * K + k];
                    float b = turned ? w[n * c->n + k] : w[k * c->n + n];
                    double term = (double)a * b;
                    ordered = fmaf(a, b, ordered);
                    sum += term;
                    magnitude += fabs(term);
                }
                int64_t at = (r * c->each * c->mid + ea) * N + n;
                lab_near(out[at], sum, bound(K, magnitude), turned ? "x" : "y", at);
                lab_equal_bits(&out[at], &ordered, 1);
            }
        }
    }
    for (int64_t i = d.valid * width; i < c->rows * width; i++) assert_true(out[i] == 77.0f);
    lab_free(out);
    drop(&d);
}

static void check_weights(Lab *lab, uint32_t kernel, const Case *c) {
    Data d = make(c);
    int64_t experts = c->experts ? c->experts : 1;
    float *before = lab_random(experts * d.matrix, 9), *w = lab_random(experts * d.matrix, 9);
    run(lab, kernel, c, &d, (Binding)READ_F32("x", d.x), (Binding)READ_F32("g", d.y),
        (Binding)WRITE_F32("w", w));
    for (int64_t at = 0; at < experts * d.matrix; at++) {
        int64_t n = at % c->n, k = at / c->n % c->k, e = at / c->n / c->k % c->each,
                expert = at / d.matrix;
        double sum = c->accumulate ? before[at] : 0, magnitude = fabs(sum);
        float ordered = (float)sum, chunk = 0; // chunks of 256 rows from zero, then added
        int64_t terms = 0, end = (int64_t)(d.offsets[expert + 1] - d.offsets[expert]) * c->mid;
        for (int64_t r = d.offsets[expert]; r < d.offsets[expert + 1]; r++) {
            for (int64_t a = 0; a < c->mid; a++, terms++) {
                int64_t row = (r * c->each + e) * c->mid + a;
                double term = (double)d.x[row * c->k + k] * d.y[row * c->n + n];
                sum += term;
                magnitude += fabs(term);
                chunk = fmaf(d.x[row * c->k + k], d.y[row * c->n + n], chunk);
                if ((terms + 1) % 256 && terms + 1 < end) continue;
                ordered = terms < 256 && !c->accumulate ? chunk : ordered + chunk;
                chunk = 0;
            }
        }
        lab_near(w[at], sum, bound(terms, magnitude), "w", at);
        lab_equal_bits(&w[at], &ordered, 1);
        if (terms == 0) assert_true(w[at] == (c->accumulate ? before[at] : 0.0f));
    }
    lab_free(before);
    lab_free(w);
    drop(&d);
}

static void test_contractions(void **state) {
    (void)state;
    Lab lab;
    uint32_t kernels[COUNT_OF(cases)][3];
    lab_open(&lab);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        for (int f = 0; f < 3; f++) {
            KernelDesc desc = describe(&cases[i], (Family)(FAMILY_MATMUL + f));
            kernels[i][f] = lab_add(&lab, &desc);
        }
    }
    lab_compile(&lab);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        check_rows(&lab, kernels[i][0], &cases[i], false);
        check_rows(&lab, kernels[i][1], &cases[i], true);
        check_weights(&lab, kernels[i][2], &cases[i]);
    }
    lab_close(&lab);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_contractions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
