// SPDX-License-Identifier: Apache-2.0
// Gradients against central differences, all in float64 through the interpreter: every operation's
// adjoint over odd shapes, every parameter of the small specs, and gradients of gradients.
#include "tests/oracle/cases.h"
#include "tests/oracle/probe.h"
#include "tests/oracle/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void make_positive(Interp *in) {
    for (uint32_t i = 0; i < in->m->n_params; i++) {
        for (int64_t j = 0; j < in->param_n[i]; j++) in->params[i][j] = 0.6 + fabs(in->params[i][j]);
    }
}

static void every_operation(void **state) {
    (void)state;
    int failed = 0;
    for (int i = 0; i < n_cases; i++) {
        Model *m = case_model(&cases[i], 13);
        if (!m) {
            failed++;
            continue;
        }
        Step step = step_make(11, m, 2, 2);
        Interp *in = interp_create(m);
        interp_fill(in, 3, 0.7);
        if (cases[i].positive) make_positive(in);
        Probe p = probe_model(m, in, &step, 100);
        if (p.worst > 1 || p.entries == 0) {
            failed++;
            fprintf(stderr, "%s: error %.3g of the bound at %s\n", cases[i].name, p.worst, p.where);
        }
        interp_destroy(in);
        step_free(&step);
        model_destroy(m);
    }
    assert_int_equal(failed, 0);
}

// A new row of the operation table that has an adjoint comes with a case.
static void every_operation_has_a_case(void **state) {
    (void)state;
    static const char *const adjoint[] = {
#define OP(name, text, lo, hi, class, shape, adjoint, flops) [OP_##name] = #adjoint,
        OP_TABLE(OP)
#undef OP
    };
    bool met[N_OPS] = { 0 };
    int missing = 0;
    for (int i = 0; i < n_cases; i++) {
        Model *m = case_model(&cases[i], 13);
        assert_non_null(m);
        for (uint32_t n = 1; n < m->n_nodes; n++) met[m->nodes[n].op] = true;
        model_destroy(m);
    }
    for (int op = 0; op < COUNT_OF(adjoint); op++) {
        if (!adjoint[op] || !strcmp(adjoint[op], "none") || met[op]) continue;
        printf("no case in tests/oracle/cases.c has %s\n", op_info[op].name);
        missing++;
    }
    assert_int_equal(missing, 0);
}

static void random_graphs(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        Model *m = random_model(seed, 25, 5, true);
        Step step = step_make(seed, m, 2, 1);
        Interp *in = interp_create(m);
        interp_fill(in, seed, 0.7);
        Probe p = probe_model(m, in, &step, 6);
        if (p.worst > 1) fail_msg("random graph %d: error %.3g of the bound at %s", (int)seed, p.worst, p.where);
        assert_true(p.entries > 0);
        interp_destroy(in);
        step_free(&step);
        model_destroy(m);
    }
}

static void every_parameter_of_the_specs(void **state) {
    (void)state;
    int failed = 0;
    for (int i = 0; i <= n_specs; i++) {
        const Spec *spec = i < n_specs ? &specs[i] : &spec_maxima;
        Model *m = spec_model(spec);
        assert_non_null(m);
        Step step = step_make(24, m, spec->sequences, spec->batches);
        Interp *in = interp_create(m);
        interp_fill(in, 5, spec->std);
        Probe p = probe_model(m, in, &step, 6);
        printf("%s: %lld entries, worst error %.2g of the bound at %s\n", spec_title(spec), (long long)p.entries,
               p.worst, p.where);
        failed += p.worst > 1;
        interp_destroy(in);
        step_free(&step);
        model_destroy(m);
    }
    assert_int_equal(failed, 0);
}

// The gradient of sum_i (gradient_i * c_i), which is a graph like any other: autodiff is closed.
static void gradients_of_gradients(void **state) {
    (void)state;
    static const char *const names[] = {
        "mul.T-",           "div.TT",         "pow.TT",           "exp.T",      "sigmoid.R",
        "tanh.T",           "sqrt.T",         "softmax.T",        "softmax.R",  "matmul.over",
        "matmul.grouped",   "matmul_t.plain", "matmul_w.plain",   "rsqrt.T",    "log.T",
        "gather.own_top_k", "embed.twice",    "collect.weighted", "expert_mlp", "row_sum.sequence",
        "mul.RE",
    };
    for (int i = 0; i < COUNT_OF(names); i++) {
        int at = 0;
        while (at < n_cases && strcmp(cases[at].name, names[i])) at++;
        assert_true(at < n_cases);
        Model *m = case_model(&cases[at], 13);
        assert_non_null(m);
        // Squared, so that linear operations have second derivatives.
        uint32_t root = m->losses[0].node, sum = 0, n = m->n_params;
        root = model_op2(m, OP_MUL, root, root);
        uint32_t one = model_const(m, 1, KIND_REAL);
        uint32_t first[32] = { 0 }, second[32] = { 0 };
        assert_true(n + 8 <= COUNT_OF(first));
        assert_true(model_gradients(m, &root, &one, 1, first));
        for (uint32_t k = 0; k < n; k++) {
            if (!first[k]) continue;
            uint32_t part = scalar_of(m, first[k], "second");
            sum = sum ? model_op2(m, OP_ADD, sum, part) : part;
        }
        assert_true(model_gradients(m, &sum, &one, 1, second));

        Step step = step_make(31, m, 2, 1);
        Interp *in = interp_create(m);
        interp_fill(in, 9, 0.7);
        if (cases[at].positive) make_positive(in);
        Probe p = { .in = in, .node = sum, .step = &step };
        double f = probe_scalar(&p);
        double *want[32] = { 0 };
        for (uint32_t k = 0; k < n; k++) {
            if (!second[k]) continue;
            want[k] = malloc((size_t)in->param_n[k] * sizeof(double));
            memcpy(want[k], in->values[second[k]].x, (size_t)in->param_n[k] * sizeof(double));
        }
        interp_need(in, &sum, 1);
        in->hold = true;
        for (uint32_t k = 0; k < n; k++) {
            if (want[k]) probe(&p, k, want[k], 10, f);
        }
        if (p.worst > 1) fail_msg("%s, twice: error %.3g of the bound at %s", names[i], p.worst, p.where);
        assert_true(p.entries > 0);
        for (uint32_t k = 0; k < n; k++) free(want[k]);
        interp_destroy(in);
        step_free(&step);
        model_destroy(m);
    }
}

// The comparison itself can fail: a gradient that is wrong by one part in a million is seen.
static void a_wrong_gradient_is_seen(void **state) {
    (void)state;
    Model *m = case_model(&cases[0], 13);
    assert_non_null(m);
    Step step = step_make(11, m, 2, 1);
    uint32_t gradients[32] = { 0 }, one = model_const(m, 1, KIND_REAL);
    uint32_t param = 0;
    assert_true(model_gradients(m, &m->losses[0].node, &one, 1, gradients));
    Interp *in = interp_create(m);
    interp_fill(in, 3, 0.7);
    Probe p = { .in = in, .node = m->losses[0].node, .step = &step };
    double f = probe_scalar(&p);
    double wrong[256];
    assert_true(in->param_n[param] <= COUNT_OF(wrong));
    for (int64_t i = 0; i < in->param_n[param]; i++) wrong[i] = in->values[gradients[param]].x[i];
    probe(&p, param, wrong, 200, f);
    assert_true(p.worst <= 1);
    for (int64_t i = 0; i < in->param_n[param]; i++) wrong[i] *= 1 + 1e-6;
    probe(&p, param, wrong, 200, f);
    assert_true(p.worst > 1);
    interp_destroy(in);
    step_free(&step);
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_gradient_is_seen),     cmocka_unit_test(every_operation),
        cmocka_unit_test(every_operation_has_a_case),
        cmocka_unit_test(gradients_of_gradients),       cmocka_unit_test(random_graphs),
        cmocka_unit_test(every_parameter_of_the_specs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
