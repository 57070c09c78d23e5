// SPDX-License-Identifier: Apache-2.0
// Lowered plans against the float64 interpreter: every kernel of every operation, random graphs, whole
// models. The act region starts as NaN before every microbatch, so a value read before it was written is
// seen. Bounds: of an operation in cases.h, of a model in trial.h, of what in pair.h. Here operations run
// fused, and each spec one way or both; test_long_sweeps.c runs all ways.
#include "tests/oracle/trial.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void only_these_are_refused(void **state) {
    (void)state;
    static const char *const known[] = { "row_max.sequence" };
    for (int i = 0; i < n_cases; i++) {
        char why[128] = "";
        bool expected = false;
        for (int k = 0; k < COUNT_OF(known); k++) expected |= !strcmp(known[k], cases[i].name);
        if (trial_refused(&cases[i], why) != expected) {
            fail_msg("%s: %s %s", cases[i].name, expected ? "has a kernel now" : "is refused:", why);
        }
    }
}

static void a_spec_is_refused_by_name_and_line(void **state) {
    (void)state;
    Model *m = spec_model(&spec_maxima);
    assert_non_null(m);
    LowerOptions options = { .microbatch = 1, .microbatches = 1, .programs = { [PROGRAM_STEP] = true } };
    assert_null(lower_model(m, &options));
    assert_non_null(strstr(m->diag.message, "row_max over the tokens of a sequence"));
    assert_int_equal(m->diag.loc.line, 10); // m.amax(y, "sequence")
    assert_true(m->diag.loc.file > 0);
    model_destroy(m);
}

static void operations_fused(void **state) {
    (void)state;
    assert_int_equal(trial_cases(0, 1, false), 0);
}

static void random_graphs(void **state) {
    (void)state;
    int failed = 0;
    for (uint64_t seed = 2; seed < 4; seed++) failed += trial_random(seed, 30, 13, 6, 1, seed == 3);
    assert_int_equal(failed, 0);
}

static void tiny_model(void **state) {
    (void)state;
    assert_int_equal(trial_spec(&spec_tiny, false), 0);
}

static void small_specs(void **state) {
    (void)state;
    int failed = 0;
    for (int i = 0; i < n_specs; i++) {
        if (specs[i].fused) failed += trial_spec(&specs[i], false);
        if (specs[i].alone) failed += trial_spec(&specs[i], true);
    }
    assert_int_equal(failed, 0);
}

// Every label masked: no division by the number of valid tokens, and every gradient is exactly zero.
static void nothing_is_valid(void **state) {
    (void)state;
    Model *m = spec_model(&specs[0]);
    assert_non_null(m);
    Step step = step_make(1, m, 2, 2);
    for (int b = 0; b < step.n; b++) {
        for (int k = 0; k < INTERP_AHEAD; k++) memset(step.batch[b].labels[k], 0xff, 26 * sizeof(int32_t));
    }
    Interp *values = interp_create(m);
    interp_fill(values, 5, specs[0].std);
    Pair p = pair_start(m, &step, values, 2, (How){ 0 }, 2);
    pair_compare(&p, NULL, 0);
    if (p.worst > 0) fail_msg("%s", p.where);
    pair_end(&p);
    interp_destroy(values);
    step_free(&step);
    model_destroy(m);
}

int main(void) {
    machine_use_cache();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_these_are_refused),
        cmocka_unit_test(a_spec_is_refused_by_name_and_line),
        cmocka_unit_test(operations_fused),
        cmocka_unit_test(random_graphs),
        cmocka_unit_test(tiny_model),
        cmocka_unit_test(small_specs),
        cmocka_unit_test(nothing_is_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
