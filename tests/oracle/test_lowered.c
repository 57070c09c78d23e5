// SPDX-License-Identifier: Apache-2.0
// Lowered plans against the float64 interpreter: every kernel of every operation, then whole models. The
// act region starts as NaN before every microbatch, so a value read before it was written is seen.
//
// Bounds B (pair.h says of what). For one operation B is the case's own (cases.h). For a model every value passes some
// 100 roundings forward and back, and normalisations divide by numbers of order one: B = 200 u = 1.2e-5, u = 2^-24.
#include "tests/oracle/pair.h"
#include "tests/oracle/random.h"

#include "compiler/kernel/kernel.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const double MODEL_BOUND = 1.2e-5;

/* Operations ------------------------------------------------------------------------------------------------ */

// Cases whose graph has an operation without a kernel; the plan refuses them by name.
static bool refused(const Case *c, char why[128]) {
    Model *m = case_model(c, 13);
    assert_non_null(m);
    Model *program = model_program(m, PROGRAM_STEP);
    assert_non_null(program);
    bool covers = true;
    const char *text = NULL;
    for (uint32_t id = 1; id < program->n_nodes && covers; id++) covers = kernel_covers(program, id, &text);
    if (!covers) {
        assert_non_null(text);
        snprintf(why, 128, "%s", text);
        LowerOptions options = { .microbatch = 1, .microbatches = 1, .programs = { [PROGRAM_STEP] = true } };
        Plan *plan = lower_model(m, &options);
        assert_null(plan);
        if (!strstr(m->diag.message, why)) fail_msg("%s: refused with '%s', not '%s'", c->name, m->diag.message, why);
    }
    model_destroy(program);
    model_destroy(m);
    return !covers;
}

enum { CHUNK = 40, SEQUENCES = 6 }; // 78 tokens: a full tile of rows and a part of one

// Cases [from, from + CHUNK) as the losses of one model: one compilation for all of them.
static int run_chunk(int from, bool no_fusion, int *covered) {
    Model *m = case_start("cases", 13);
    bool in[CHUNK] = { 0 };
    int failed = 0;
    for (int i = from; i < min_i64(n_cases, from + CHUNK); i++) {
        char why[128];
        if (refused(&cases[i], why)) continue;
        in[i - from] = true;
        assert_true(case_add(m, &cases[i]));
    }
    Interp *values = interp_create(m);
    interp_fill(values, 3, 0.7);
    for (uint32_t i = 0; i < m->n_params; i++) {
        for (int c = from; c < min_i64(n_cases, from + CHUNK); c++) {
            if (!cases[c].positive || !case_owns(&cases[c], param_name(m, i))) continue;
            for (int64_t j = 0; j < values->param_n[i]; j++) {
                values->params[i][j] = (float)(0.6 + fabs(values->params[i][j]));
            }
        }
    }
    Step step = step_make(11, m, SEQUENCES, 2);
    Pair p = pair_start(m, &step, values, SEQUENCES, (How){ .no_fusion = no_fusion }, 2);
    for (int i = 0; i < CHUNK; i++) {
        if (!in[i]) continue;
        ++*covered;
        pair_compare(&p, &cases[from + i], cases[from + i].limit);
        if (p.worst <= 1) continue;
        failed++;
        fprintf(stderr, "%s%s: %.3g of the bound at %s\n", cases[from + i].name, no_fusion ? ", not fused" : "",
                p.worst, p.where);
    }
    pair_end(&p);
    step_free(&step);
    interp_destroy(values);
    model_destroy(m);
    return failed;
}

static void every_operation(bool no_fusion) {
    int failed = 0, covered = 0;
    for (int from = 0; from < n_cases; from += CHUNK) failed += run_chunk(from, no_fusion, &covered);
    printf("%d of %d cases have kernels\n", covered, n_cases);
    assert_int_equal(failed, 0);
}

static void every_operation_alone(void **state) {
    (void)state;
    every_operation(true);
}
static void every_operation_fused(void **state) {
    (void)state;
    every_operation(false);
}

static void only_these_are_refused(void **state) {
    (void)state;
    static const char *const known[] = { "row_max.sequence" };
    for (int i = 0; i < n_cases; i++) {
        char why[128] = "";
        bool expected = false;
        for (int k = 0; k < COUNT_OF(known); k++) expected |= !strcmp(known[k], cases[i].name);
        if (refused(&cases[i], why) != expected) {
            fail_msg("%s: %s %s", cases[i].name, expected ? "has a kernel now" : "is refused:", why);
        }
    }
}

/* Models ------------------------------------------------------------------------------------------------------ */

static const Spec tiny = { "models/tiny.lua", 17, 2, 2, 0.05 };

static int run_spec(const Spec *spec, bool no_fusion) {
    Model *m = spec_model(spec);
    assert_non_null(m);
    Step step = step_make(23, m, spec->sequences, spec->batches);
    Interp *values = interp_create(m);
    interp_fill(values, 5, spec->std);
    Pair p = pair_start(m, &step, values, spec->sequences, (How){ .no_fusion = no_fusion }, 1);
    pair_compare(&p, NULL, MODEL_BOUND);
    printf("%s%s: %u kernels, %u launches, worst error %.2g of the bound at %s\n", spec_title(spec),
           no_fusion ? ", not fused" : "", p.plan->n_kernels, p.program->n_instrs, p.worst, p.where);

    Hash bits = machine_results(p.exec, p.plan);
    machine_load(p.exec, p.plan, values); // states as they were
    machine_step(p.exec, p.plan, &step);
    bool equal = hash_equal(bits, machine_results(p.exec, p.plan)); // a second run
    for (int threads = 2; threads <= 3; threads++) {
        Exec *exec = machine_exec(p.plan, threads, threads == 2);
        machine_load(exec, p.plan, values);
        machine_step(exec, p.plan, &step);
        equal &= hash_equal(bits, machine_results(exec, p.plan));
        exec_destroy(exec);
    }
    if (!equal) fprintf(stderr, "%s: bits depend on the run or the number of threads\n", spec_title(spec));
    int failed = p.worst > 1 || !equal;
    pair_end(&p);
    interp_destroy(values);
    step_free(&step);
    model_destroy(m);
    return failed;
}

static void every_spec(bool no_fusion) {
    int failed = run_spec(&tiny, no_fusion);
    for (int i = 0; i < n_specs; i++) failed += run_spec(&specs[i], no_fusion);
    assert_int_equal(failed, 0);
}

static void every_spec_fused(void **state) {
    (void)state;
    every_spec(false);
}
static void every_spec_not_fused(void **state) {
    (void)state;
    every_spec(true);
}

/* Random graphs ----------------------------------------------------------------------------------------------- */

static void random_graphs(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        Model *m = random_model(seed, 30, 13, false);
        Step step = step_make(seed, m, SEQUENCES, 1);
        Interp *values = interp_create(m);
        interp_fill(values, seed, 0.7);
        Pair p = pair_start(m, &step, values, SEQUENCES, (How){ .no_fusion = seed % 4 == 3 }, 2);
        pair_compare(&p, NULL, MODEL_BOUND);
        if (p.worst > 1) fail_msg("random graph %d: %.3g of the bound at %s", (int)seed, p.worst, p.where);
        pair_end(&p);
        interp_destroy(values);
        step_free(&step);
        model_destroy(m);
    }
}

int main(void) {
    machine_use_cache();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_these_are_refused), cmocka_unit_test(every_operation_alone),
        cmocka_unit_test(every_operation_fused),  cmocka_unit_test(random_graphs),
        cmocka_unit_test(every_spec_fused),       cmocka_unit_test(every_spec_not_fused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
