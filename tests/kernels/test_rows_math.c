// SPDX-License-Identifier: Apache-2.0
// templates/cpu/math.h: errors in units in the last place over each function's whole range, and its
// edges. Evaluated by row programs, so at every instruction-set level with equal bits.
#include "tests/kernels/lab.h"

#include <math.h>
#include <stdlib.h>

enum { N = 1 << 18 };

static float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Distance from the exact value in units of the last place of its float, subnormals included.
static double ulps(float got, double want) {
    if (isnan(want)) return isnan(got) ? 0 : INFINITY;
    if (isinf((float)want)) {
        // The largest float counts as one unit away from infinity, infinity from numbers just below
        // it.
        if (got == (float)want) return 0;
        return fabsf(got) == 0x1.fffffep127f && (got < 0) == (want < 0) ? 1 : INFINITY;
    }
    if (isinf(got)) return fabs(want) >= 0x1.fffffdp127 ? 1 : INFINITY;
    int exponent;
    frexp(want == 0 ? 0x1p-140 : want, &exponent);
    double unit = ldexp(1, exponent - 24 > -149 ? exponent - 24 : -149);
    return fabs((double)got - want) / unit;
}

/* Cases: a function of one or two arguments as a row program over [T] -------------------------- */

typedef double (*Exact)(double a, double b);
static double exact_sigmoid(double a, double b) {
    (void)b;
    return a >= 0 ? 1 / (1 + exp(-a)) : exp(a) / (1 + exp(a));
}
static double exact_tanh(double a, double b) {
    (void)b;
    return tanh(a);
}
static double exact_erf(double a, double b) {
    (void)b;
    return erf(a);
}
static double exact_pow(double a, double b) {
    return pow(a, b);
}
static double exact_sqrt(double a, double b) {
    (void)b;
    return sqrt(a);
}
static double exact_div(double a, double b) {
    return a / b;
}
static double exact_exp(double a, double b) {
    (void)b;
    return exp(a);
}
static double exact_log(double a, double b) {
    (void)b;
    return log(a);
}

static const float edges[] = { 0.0f,
                               -0.0f,
                               1.0f,
                               -1.0f,
                               0.5f,
                               -0.5f,
                               2.0f,
                               -2.0f,
                               3.0f,
                               -3.0f,
                               0x1p-149f,
                               -0x1p-149f,
                               0x1p-126f,
                               -0x1p-126f,
                               0x1.fffffcp-127f,
                               0x1p-60f,
                               88.7228f,
                               88.8f,
                               -87.3f,
                               -88.0f,
                               -103.9f,
                               -104.5f,
                               0x1.fffffep127f,
                               -0x1.fffffep127f,
                               INFINITY,
                               -INFINITY,
                               NAN,
                               0.625f,
                               0.9375f,
                               4.0f,
                               9.0f,
                               0x1.fffffep-1f,
                               0x1.000002p0f,
                               16777216.0f,
                               16777215.0f,
                               8388609.0f };

static float sample(uint64_t i, double range) {
    if (i < COUNT_OF(edges)) return edges[i];
    if (i % 3 == 0)
        return of_bits((uint32_t)hash_mix(1, 2, i)); // any bits: all exponents, NaN, subnormals
    return (float)((hash_uniform(1, 3, i) - 0.5) * 2 * (i % 3 == 1 ? range : 1.5));
}

static float *make(int which, double range) {
    float *x = lab_array(N);
    for (uint64_t i = 0; i < N; i++) {
        uint64_t pair =
            which ? i / COUNT_OF(edges) : i % COUNT_OF(edges); // all pairs of edges first
        x[i] = i < COUNT_OF(edges) * COUNT_OF(edges) ? edges[pair]
                                                     : sample(i * 2 + (uint64_t)which + 100, range);
    }
    return x;
}

static uint32_t add_case(Lab *lab, Model *m, Op op, uint32_t *nodes) {
    uint32_t a = model_generator(m, OP_N_VALID, SET_SEQUENCE, NULL, 0); // any loaded real along S
    uint32_t b = model_row_sum(m, model_generator(m, OP_VALID, 0, NULL, 0), SET_SEQUENCE);
    nodes[0] = op_info[op].lo == 2 ? model_op2(m, op, a, b) : model_op1(m, op, a);
    RowLoad loads[] = { { a, WHAT_VALUE, DTYPE_F32, 0 }, { b, WHAT_VALUE, DTYPE_F32, 0 } };
    RowStore store = { .node = nodes[0], .dtype = DTYPE_F32 };
    KernelDesc desc = { .family = FAMILY_ROW, .rows = N };
    desc.body = (RowBody){ .model = m,
                           .row = ROW_S,
                           .nodes = nodes,
                           .n_nodes = 1,
                           .loads = loads,
                           .n_loads = op_info[op].lo,
                           .stores = &store,
                           .n_stores = 1 };
    return lab_add(lab, &desc);
}

typedef struct Function {
    const char *name;
    Op op;
    Exact exact;
    double bound, range;
} Function;
static const Function functions[] = {
    { "sigmoid", OP_SIGMOID, exact_sigmoid, 2, 110 },
    { "tanh", OP_TANH, exact_tanh, 2, 12 },
    { "erf", OP_ERF, exact_erf, 2, 5 },
    { "pow", OP_POW, exact_pow, 0.51, 30 },
    { "sqrt", OP_SQRT, exact_sqrt, 0.501, 1e6 },
    { "div", OP_DIV, exact_div, 0.501, 1e6 },
    { "exp", OP_EXP, exact_exp, 2, 100 },
    { "log", OP_LOG, exact_log, 2, 1e6 },
};

static void compare(const Function *f, const float *a, const float *b, const float *y) {
    double worst = 0;
    for (int64_t i = 0; i < N; i++) {
        double want = f->exact(a[i], b[i]), error = ulps(y[i], want);
        // CUDA's own functions, whose bounds its Programming Guide states, one within another.
        if (error > f->bound + (lab_gpu() ? 2 : 0))
            fail_msg("%s(%a, %a): expected %a, found %a: %.3f units", f->name, a[i], b[i], want,
                     y[i], error);
        if (want == 0 && (f->op == OP_TANH || f->op == OP_ERF || f->op == OP_POW))
            assert_int_equal(signbit(want) != 0, signbit(y[i]) != 0);
        if (error > worst) worst = error;
    }
    print_message("%s: %.3f units in the last place\n", f->name, worst);
}

static void test_functions(void **state) {
    (void)state;
    Lab lab;
    lab_open(&lab);
    Model *m[COUNT_OF(functions)];
    uint32_t nodes[COUNT_OF(functions)], kernel[COUNT_OF(functions)];
    for (int i = 0; i < COUNT_OF(functions); i++) {
        m[i] = model_create();
        kernel[i] = add_case(&lab, m[i], functions[i].op, &nodes[i]);
    }
    lab_compile(&lab);
    for (int i = 0; i < COUNT_OF(functions); i++) {
        const Function *f = &functions[i];
        float *a = make(0, f->range), *b = make(1, f->range), *y = lab_array(N);
        Binding bindings[] = { READ_F32("l0", a), WRITE_F32("s0", y), READ_F32("l1", b) };
        lab_run(&lab, kernel[i], bindings, op_info[f->op].lo + 1);
        compare(f, a, b, y);
        lab_free(a), lab_free(b), lab_free(y);
        model_destroy(m[i]);
    }
    lab_close(&lab);
}

/* sin and cos, through rotate: (1, 0) turns into (cos, sin) ------------------------------------ */

enum { PAIRS = 64, TOKENS = 4096 };

static void test_turns(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t positions = model_generator(m, OP_POSITIONS, 0, NULL, 0);
    int32_t two = 2 * PAIRS, half = PAIRS;
    uint32_t freq = model_param(m, model_intern(m, "freq"), false, &half, 1, 0);
    uint32_t x = model_generator(m, OP_UNIFORM, 0, &two, 1);
    Attr attr = { .raw = { 0, 0 } };
    attr.turn.factor = 1, attr.turn.sign = 1;
    uint32_t turned = model_node(m, OP_ROTATE, &attr, NULL, (uint32_t[]){ x, freq, positions }, 3);
    assert_true(turned);
    RowLoad loads[] = { { x, WHAT_VALUE, DTYPE_F32, 0 },
                        { freq, WHAT_VALUE, DTYPE_F32, 0 },
                        { positions, WHAT_VALUE, DTYPE_I32, 0 } };
    RowStore store = { .node = turned, .dtype = DTYPE_F32 };
    KernelDesc desc = { .family = FAMILY_ROW, .rows = TOKENS };
    desc.body = (RowBody){ .model = m,
                           .row = ROW_T,
                           .nodes = &turned,
                           .n_nodes = 1,
                           .loads = loads,
                           .n_loads = 3,
                           .stores = &store,
                           .n_stores = 1 };
    Lab lab;
    lab_open(&lab);
    uint32_t kernel = lab_add(&lab, &desc);
    lab_compile(&lab);
    float *unit = lab_array(TOKENS * two), *f = lab_array(PAIRS), *y = lab_array(TOKENS * two);
    int32_t *place = lab_array(TOKENS);
    for (int64_t i = 0; i < (int64_t)TOKENS * two; i++) unit[i] = i % two < PAIRS;
    for (int i = 0; i < PAIRS; i++)
        f[i] = i < 4 ? (float[]){ 1, 0x1p-140f, 1.5707964f, -0.25f }[i]
                     : powf(1e4f, -(float)i / PAIRS);
    for (int i = 0; i < TOKENS; i++)
        place[i] = i < 1000 ? i : (int32_t)(hash_mix(3, 4, (uint64_t)i) % 600000);
    Binding b[] = { READ_F32("l0", unit), READ_F32("l1", f), READ_I32("l2", place),
                    WRITE_F32("s0", y) };
    lab_run(&lab, kernel, b, COUNT_OF(b));
    double worst = 0;
    for (int64_t t = 0; t < TOKENS; t++) {
        for (int i = 0; i < PAIRS; i++) {
            double angle = (float)place[t] * f[i]; // the product is rounded to a float
            double error =
                fmax(ulps(y[t * two + i], cos(angle)), ulps(y[t * two + PAIRS + i], sin(angle)));
            if (error > 2)
                fail_msg("angle %a: found %a and %a: %.3f units", angle, y[t * two + i],
                         y[t * two + PAIRS + i], error);
            if (error > worst) worst = error;
        }
    }
    print_message("sin and cos: %.3f units in the last place\n", worst);
    lab_free(unit), lab_free(f), lab_free(y), lab_free(place);
    lab_close(&lab);
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_functions),
                                        cmocka_unit_test(test_turns) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
