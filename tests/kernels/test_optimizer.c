// SPDX-License-Identifier: Apache-2.0
// sumsq, clip, adamw against double: odd counts, several tiles, tables of rates, skipped steps.
#include "tests/kernels/lab.h"

#include <math.h>
#include <stdlib.h>

enum { N = 2 * SUMSQ_TILE + 12345, TILES = 3 };

// Runs sumsq and clip on x; scalars as the host left them.
static void clip(Lab *lab, const uint32_t kernels[2], float *x, float *scalars) {
    float *partials = lab_filled(TILES, NAN);
    Binding first[] = {READ_F32("x", x), WRITE_F32("partials", partials)};
    lab_run(lab, kernels[0], first, 2);
    Binding second[] = {READ_F32("partials", partials), WRITE_F32("scalars", scalars)};
    lab_run(lab, kernels[1], second, 2);
    lab_free(partials);
}

static void test_clip(void **state) {
    (void)state;
    Lab lab;
    lab_open(&lab);
    KernelDesc sumsq = {.family = FAMILY_SUMSQ, .n = N},
               finish = {.family = FAMILY_CLIP, .n = TILES};
    uint32_t kernels[] = {lab_add(&lab, &sumsq), lab_add(&lab, &finish)};
    assert_int_equal(lab.plan->kernels[kernels[0]].tiles, TILES);
    lab_compile(&lab);
    float *x = lab_random(N, 1), *scalars = lab_filled(N_SCALARS, 0.25f);
    double sum = 0;
    for (int i = 0; i < N; i++) sum += (double)x[i] * x[i];
    double norm = sqrt(sum);

    scalars[SCALAR_clip] = 1.0f;
    clip(&lab, kernels, x, scalars);
    lab_near(scalars[SCALAR_grad_norm], norm, 2e-7 * norm, "norm", 0);
    lab_near(scalars[SCALAR_grad_scale], 1 / norm, 2e-7 / norm, "scale", 0);
    assert_true(scalars[SCALAR_skipped] == 0.0f);
    for (int i = 0; i < N_SCALARS; i++)
        if (i < SCALAR_grad_norm && i != SCALAR_clip) assert_true(scalars[i] == 0.25f);

    scalars[SCALAR_clip] = (float)norm * 2;
    clip(&lab, kernels, x, scalars);
    assert_true(scalars[SCALAR_grad_scale] == 1.0f);
    scalars[SCALAR_clip] = 0;
    clip(&lab, kernels, x, scalars);
    assert_true(scalars[SCALAR_grad_scale] == 1.0f);

    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    for (int i = 0; i < COUNT_OF(bad); i++) {
        scalars[SCALAR_clip] = 1.0f;
        x[N - 1] = bad[i];
        clip(&lab, kernels, x, scalars);
        assert_true(scalars[SCALAR_skipped] == 1.0f);
        assert_false(isfinite(scalars[SCALAR_grad_norm]));
        assert_true(isfinite(scalars[SCALAR_grad_scale]));
    }
    lab_free(x), lab_free(scalars);
    lab_close(&lab);
}

// Out of order, with a state in between and a gap of padding before the last.
static const PlanParam params[] = {
    {.name = "late", .offset = 64000 * 4, .lr = 0.5, .decay = 0.0},
    {.name = "a", .offset = 0, .lr = 1.0, .decay = 1.0},
    {.name = "s", .offset = 1 << 20, .lr = 7.0, .decay = 7.0, .is_state = true},
    {.name = "b", .offset = 37 * 4, .lr = 2.0, .decay = 0.25},
};
enum { WEIGHTS = 70001 };

static void rates(int64_t i, double *lr, double *decay) {
    const PlanParam *p = i >= 64000 ? &params[0] : i >= 37 ? &params[3] : &params[1];
    *lr = p->lr, *decay = p->decay;
}

static void test_adamw(void **state) {
    (void)state;
    Lab lab;
    lab_open(&lab);
    KernelDesc desc = {
        .family = FAMILY_ADAMW, .n = WEIGHTS, .params = params, .n_params = COUNT_OF(params)};
    uint32_t kernel = lab_add(&lab, &desc);
    lab_compile(&lab);
    float *scalars = lab_filled(N_SCALARS, NAN);
    double lr = scalars[SCALAR_lr] = 0.01f, wd = scalars[SCALAR_decay] = 0.1f;
    double b1 = scalars[SCALAR_beta1] = 0.9f, b2 = scalars[SCALAR_beta2] = 0.95f;
    double eps = scalars[SCALAR_eps] = 1e-8f, scale = scalars[SCALAR_grad_scale] = 0.5f;
    double c1 = scalars[SCALAR_correction1] = 0.271f, c2 = scalars[SCALAR_correction2] = 0.142625f;
    float *g = lab_random(WEIGHTS, 1), *w = lab_random(WEIGHTS, 2), *m = lab_random(WEIGHTS, 3);
    float *v = lab_random(WEIGHTS, 4), *w0 = lab_random(WEIGHTS, 2), *m0 = lab_random(WEIGHTS, 3);
    float *v0 = lab_array(WEIGHTS);
    for (int i = 0; i < WEIGHTS; i++) v0[i] = v[i] = fabsf(v[i]);
    Binding b[] = {READ_F32("grads", g), WRITE_F32("weights", w), WRITE_F32("moment1", m),
                   WRITE_F32("moment2", v), READ_F32("scalars", scalars)};

    scalars[SCALAR_skipped] = 1.0f;
    lab_run(&lab, kernel, b, 5);
    lab_equal_bits(w, w0, WEIGHTS), lab_equal_bits(m, m0, WEIGHTS), lab_equal_bits(v, v0, WEIGHTS);

    scalars[SCALAR_skipped] = 0.0f;
    lab_run(&lab, kernel, b, 5);
    for (int64_t i = 0; i < WEIGHTS; i++) {
        double grad = g[i] * scale, rate, decay;
        rates(i, &rate, &decay);
        double mi = b1 * m0[i] + (1 - b1) * grad, vi = b2 * v0[i] + (1 - b2) * grad * grad;
        double step = lr * rate * (mi / c1) / (sqrt(vi / c2) + eps);
        double wi = w0[i] * (1 - lr * rate * wd * decay) - step;
        lab_near(m[i], mi, 3e-7, "moment1", i);
        lab_near(v[i], vi, 3e-7, "moment2", i);
        lab_near(w[i], wi, 2e-7 + 2e-6 * fabs(step), "weights", i);
    }
    float *all[] = {scalars, g, w, m, v, w0, m0, v0};
    for (int i = 0; i < COUNT_OF(all); i++) lab_free(all[i]);
    lab_close(&lab);
}

// A table of buckets: places are those of shards.
static void test_adamw_of_shards(void **state) {
    (void)state;
    Lab lab;
    lab_open(&lab);
    static const PlanBucket buckets[] = {{.offset = 0, .shard = 0, .lr = 1, .decay = 1},
                                         {.offset = 512 * 4, .shard = 37 * 4, .lr = 2, .decay = 0.25},
                                         {.offset = 1 << 20, .shard = 64000 * 4, .lr = 0.5, .decay = 0}};
    KernelDesc desc[] = {
        {.family = FAMILY_ADAMW, .n = WEIGHTS, .params = params, .n_params = COUNT_OF(params)},
        {.family = FAMILY_ADAMW, .n = WEIGHTS, .buckets = buckets, .n_buckets = COUNT_OF(buckets)}};
    uint32_t kernels[] = {lab_add(&lab, &desc[0]), lab_add(&lab, &desc[1])};
    lab_compile(&lab);
    float *scalars = lab_filled(N_SCALARS, 0.5f), *g = lab_random(WEIGHTS, 1), *w[2], *m[2], *v[2];
    scalars[SCALAR_skipped] = 0.0f;
    for (int i = 0; i < 2; i++) {
        w[i] = lab_random(WEIGHTS, 2), m[i] = lab_random(WEIGHTS, 3), v[i] = lab_filled(WEIGHTS, 0.1f);
        Binding b[] = {READ_F32("grads", g), WRITE_F32("weights", w[i]), WRITE_F32("moment1", m[i]),
                       WRITE_F32("moment2", v[i]), READ_F32("scalars", scalars)};
        lab_run(&lab, kernels[i], b, 5);
    }
    lab_equal_bits(w[0], w[1], WEIGHTS), lab_equal_bits(m[0], m[1], WEIGHTS);
    lab_free(scalars), lab_free(g);
    for (int i = 0; i < 2; i++) lab_free(w[i]), lab_free(m[i]), lab_free(v[i]);
    lab_close(&lab);
}

// In the order of ranks: fp32 sums of these differ in another order.
static void test_reduce(void **state) {
    (void)state;
    static const struct {
        int ranks, n;
        bool add;
    } cases[] = {{1, 5}, {2, 1}, {3, 17, true}, {8, 33000}, {2, 70001, true}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Lab lab;
        lab_open(&lab);
        int ranks = cases[i].ranks, n = cases[i].n;
        KernelDesc reduce = {.family = FAMILY_REDUCE, .ranks = ranks, .n = n, .accumulate = cases[i].add};
        uint32_t kernel = lab_add(&lab, &reduce);
        lab_compile(&lab);
        float *parts = lab_random(ranks * n, 5), *y = lab_filled(n, cases[i].add ? 0.75f : NAN), *expected = lab_array(n);
        for (int k = 0; k < n; k++) {
            expected[k] = parts[k];
            for (int r = 1; r < ranks; r++) expected[k] += parts[(int64_t)r * n + k];
            if (cases[i].add) expected[k] = 0.75f + expected[k];
        }
        Binding b[] = {READ_F32("parts", parts), WRITE_F32("y", y)};
        lab_run(&lab, kernel, b, 2);
        lab_equal_bits(y, expected, n);
        lab_free(parts), lab_free(y), lab_free(expected);
        lab_close(&lab);
    }
}

// One rank's numbers rounded to bf16.
static void test_round(void **state) {
    (void)state;
    for (int n = 5; n < 40000; n = n * 13 + 3) {
        Lab lab;
        lab_open(&lab);
        KernelDesc round = {.family = FAMILY_REDUCE, .ranks = 1, .n = n, .y = DTYPE_BF16};
        uint32_t kernel = lab_add(&lab, &round);
        lab_compile(&lab);
        float *x = lab_random(n, 7);
        x[0] = 1.00390625f, x[1] = 3.3999e38f, x[2] = -0.0f; // a tie, what rounds to infinity
        uint16_t *want = lab_narrow(x), *got = lab_memory((size_t)n * sizeof *got);
        Binding b[] = {READ_F32("parts", x), {"y", DTYPE_BF16, false, got}};
        lab_run(&lab, kernel, b, 2);
        assert_memory_equal(got, want, (size_t)n * sizeof *got);
        lab_free(x), lab_free(want), lab_free(got);
        lab_close(&lab);
    }
}

static void test_fold(void **state) {
    (void)state;
    static const int counts[] = {1, 2, 300, 5001};
    for (int i = 0; i < COUNT_OF(counts); i++) {
        Lab lab;
        lab_open(&lab);
        KernelDesc fold = {.family = FAMILY_FOLD, .n = counts[i]};
        uint32_t kernel = lab_add(&lab, &fold);
        lab_compile(&lab);
        float *x = lab_random(counts[i], 6), *sum = lab_filled(1, NAN);
        double expected = 0;
        for (int k = 0; k < counts[i]; k++) expected += x[k];
        Binding b[] = {READ_F32("x", x), WRITE_F32("sum", sum)};
        lab_run(&lab, kernel, b, 2);
        lab_near(sum[0], expected, 1e-7 * fabs(expected) + 1e-12, "sum", 0);
        lab_free(x), lab_free(sum);
        lab_close(&lab);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clip), cmocka_unit_test(test_adamw), cmocka_unit_test(test_adamw_of_shards),
        cmocka_unit_test(test_reduce), cmocka_unit_test(test_round), cmocka_unit_test(test_fold)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
