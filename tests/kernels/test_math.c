// SPDX-License-Identifier: Apache-2.0
// The prelude's arithmetic at every instruction-set level: v_fma is one rounding (also where the
// level has no such instruction), exp and log are within 2 units in the last place, at the ends of
// their ranges too.
#include "tests/kernels/lab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N = 1 << 20 };

// Takes the place of the template clear.c.
static const char kernel[] =
    "void $entry(const float *a, const float *b, const float *c, float *fused, float *exps, float "
    "*logs,\n"
    "            int64_t tile_begin, int64_t tile_end) {\n"
    "    for (int64_t i = tile_begin * $chunk; i < min_of(tile_end * $chunk, $n); i += LANES) {\n"
    "        v_store(fused + i, v_fma(v_load(a + i), v_load(b + i), v_load(c + i)));\n"
    "        v_store(exps + i, v_exp(v_load(a + i)));\n"
    "        v_store(logs + i, v_log(v_load(a + i)));\n"
    "    }\n"
    "}\n";

typedef struct Arrays {
    float *a, *b, *c, *fused, *exps, *logs;
} Arrays;

static float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void evaluate(const Arrays *x) {
    char dir[] = "/tmp/moec-templates-XXXXXX";
    assert_non_null(mkdtemp(dir));
    Text path = {0};
    Text cpu = {0};
    text_printf(&cpu, "%s/cpu", dir);
    assert_int_equal(mkdir(text_cstr(&cpu), 0700), 0);
    text_printf(&path, "%s/clear.c", text_cstr(&cpu));
    assert_int_equal(file_write_atomic(text_cstr(&path), kernel, sizeof kernel - 1), OK);
    setenv("MOEC_TEMPLATES", dir, 1);
    Lab lab;
    lab_open(&lab);
    KernelDesc desc = {.family = FAMILY_CLEAR, .n = N};
    uint32_t id = lab_add(&lab, &desc);
    unsetenv("MOEC_TEMPLATES");
    unlink(text_cstr(&path));
    rmdir(text_cstr(&cpu));
    rmdir(dir);
    text_finish(&cpu);
    text_finish(&path);
    lab_compile(&lab);
    Binding b[] = {READ_F32("a", x->a),        READ_F32("b", x->b),
                   READ_F32("c", x->c),        WRITE_F32("fused", x->fused),
                   WRITE_F32("exps", x->exps), WRITE_F32("logs", x->logs)};
    lab_run(&lab, id, b, COUNT_OF(b));
    lab_close(&lab);
}

static Arrays make(void) {
    return (Arrays){lab_array(N), lab_array(N), lab_array(N),
                    lab_array(N), lab_array(N), lab_array(N)};
}

static void drop(Arrays *x) {
    lab_free(x->a), lab_free(x->b), lab_free(x->c), lab_free(x->fused), lab_free(x->exps),
        lab_free(x->logs);
}

// Any finite bits; and products on or beside a tie between two floats with an addend that decides,
// or cancels.
static void test_fma(void **state) {
    (void)state;
    Arrays x = make();
    for (uint32_t i = 0; i < N; i++) {
        uint64_t r = hash_mix(1, 0, i), s = hash_mix(2, 0, i);
        x.a[i] = of_bits((uint32_t)r), x.b[i] = of_bits((uint32_t)(r >> 32)),
        x.c[i] = of_bits((uint32_t)s);
        if (i % 4 == 1) { // 24-bit times 2-bit mantissas are exact or tie in 24 bits
            x.a[i] = ldexpf(1.0f + (float)(r & 0x7fffff) * 0x1p-23f, (int)(s >> 40) % 30);
            x.b[i] = 1.5f;
            x.c[i] = ldexpf((s & 1) ? 1.0f : -1.0f, -(int)((s >> 8) % 120));
        }
        if (i % 4 == 2) x.b[i] = 1.0f + (float)(r & 7) * 0x1p-23f, x.c[i] = -x.a[i];
        if (i % 4 == 3) { // results among the subnormals
            x.a[i] = ldexpf(1.0f + (float)(r & 0x7fffff) * 0x1p-23f, -70);
            x.b[i] = ldexpf(1.0f + (float)(s & 0x7fffff) * 0x1p-23f, -70);
            x.c[i] = of_bits((uint32_t)(s >> 40) & 0x80ffffff);
        }
        if (isnan(x.a[i])) x.a[i] = 1;
        if (isnan(x.b[i])) x.b[i] = 1;
        if (isnan(x.c[i])) x.c[i] = 1;
    }
    evaluate(&x);
    for (int i = 0; i < N; i++) {
        float want = fmaf(x.a[i], x.b[i], x.c[i]);
        if (isnan(want) ? isnan(x.fused[i]) : bits_of(want) == bits_of(x.fused[i])) continue;
        fail_msg("fma(%a, %a, %a): expected %a, found %a", x.a[i], x.b[i], x.c[i], want,
                 x.fused[i]);
    }
    drop(&x);
}

// In units of the last place of `want`, not smaller than the least subnormal.
static double error_in_ulps(double got, double want) {
    int exponent;
    frexp(want, &exponent);
    return fabs(got - want) / ldexp(1.0, exponent - 24 > -149 ? exponent - 24 : -149);
}

static void test_exp_log(void **state) {
    (void)state;
    static const float special[] = {0.0f,   -0.0f,  1.0f,      -1.0f,   INFINITY, -INFINITY,
                                    NAN,    1e-45f, 0x1p-126f, 3.4e38f, -3.4e38f, 88.72f,
                                    88.73f, -87.4f, -103.9f,   -104.0f, 1e-8f,    0.99999994f};
    Arrays x = make();
    for (int i = 0; i < N; i++) {
        x.b[i] = x.c[i] = 0.0f;
        x.a[i] = i < COUNT_OF(special) ? special[i]
                 : i % 4 == 1          ? 2.0f * hash_uniform(4, 0,
                                                             (uint64_t)i) // log near 1, exp near 0
                 : i % 2               ? of_bits((uint32_t)hash_mix(3, 0, (uint64_t)i) & 0x7fffffff)
                                       : -106.0f + 196.0f * hash_uniform(5, 0, (uint64_t)i);
    }
    evaluate(&x);
    double worst_exp = 0, worst_log = 0;
    for (int i = 0; i < N; i++) {
        float e = x.exps[i], l = x.logs[i];
        double in = x.a[i], want_e = exp(in), want_l = log(in);
        if (isnan(in))
            assert_true(isnan(e) && isnan(l));
        else if (want_e >= 0x1.ffffffp+127)
            assert_true(isinf(e) && e > 0);
        else
            worst_exp = fmax(worst_exp, error_in_ulps(e, want_e));
        if (isnan(in)) continue;
        if (in < 0)
            assert_true(isnan(l));
        else if (in == 0 || isinf(in))
            assert_true(l == (float)want_l);
        else
            worst_log = fmax(worst_log, error_in_ulps(l, want_l));
    }
    print_message("exp within %.3f, log within %.3f units\n", worst_exp, worst_log);
    assert_true(worst_exp <= 2.0);
    assert_true(worst_log <= 2.0);
    assert_true(x.exps[0] == 1.0f && x.exps[5] == 0.0f && bits_of(x.logs[2]) == 0);
    drop(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fma), cmocka_unit_test(test_exp_log)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
