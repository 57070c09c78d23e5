// SPDX-License-Identifier: Apache-2.0
// The oracle's tests over wider ranges: hundreds of random graphs, every entry of every parameter, many
// shapes of a batch. Bounds and reasons are those of probe.h and trial.h.
#include "tests/oracle/probe.h"
#include "tests/oracle/random.h"
#include "tests/oracle/trial.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void differences_of_random_graphs(void **state) {
    (void)state;
    int failed = 0;
    for (uint64_t seed = 1000; seed < 1400; seed++) {
        Model *m = random_model(seed, 40, 7, true);
        Step step = step_make(seed, m, 2, 2);
        Interp *in = interp_create(m);
        interp_fill(in, seed, 0.7);
        Probe p = probe_model(m, in, &step, 10);
        if (p.worst > 1) fprintf(stderr, "random graph %d: %.3g of the bound at %s\n", (int)seed, p.worst, p.where);
        failed += p.worst > 1;
        interp_destroy(in);
        step_free(&step);
        model_destroy(m);
    }
    assert_int_equal(failed, 0);
}

static void every_entry_of_the_specs(void **state) {
    (void)state;
    int failed = 0;
    for (int i = 0; i < n_specs; i++) {
        Model *m = spec_model(&specs[i]);
        assert_non_null(m);
        Step step = step_make(29, m, specs[i].sequences, specs[i].batches);
        Interp *in = interp_create(m);
        interp_fill(in, 15, specs[i].std);
        Probe p = probe_model(m, in, &step, 1000000);
        printf("%s: %lld entries, worst %.2g of the bound at %s\n", spec_title(&specs[i]), (long long)p.entries,
               p.worst, p.where);
        failed += p.worst > 1;
        interp_destroy(in);
        step_free(&step);
        model_destroy(m);
    }
    assert_int_equal(failed, 0);
}

static void lowered_random_graphs(void **state) {
    (void)state;
    static const int32_t lengths[] = { 1, 2, 7, 13, 64, 67 };
    int failed = 0;
    for (uint64_t seed = 2000; seed < 2060; seed++) {
        failed += trial_random(seed, 20 + (int)(seed % 30), lengths[seed % COUNT_OF(lengths)], 1 + (int32_t)(seed % 5),
                               1 + (int)(seed % 2), seed % 3 == 0);
    }
    assert_int_equal(failed, 0);
}

static void every_operation_both_ways(void **state) {
    (void)state;
    assert_int_equal(trial_cases(0, 1, false) + trial_cases(0, 1, true), 0);
}

static void every_spec_at_other_sizes(void **state) {
    (void)state;
    static const struct {
        int32_t sequence, sequences;
    } sizes[] = { { 1, 1 }, { 1, 3 }, { 2, 1 }, { 17, 1 }, { 64, 1 }, { 61, 5 } };
    int failed = trial_spec(&spec_tiny, true);
    for (int i = 0; i < n_specs; i++) {
        failed += trial_spec(&specs[i], false) + trial_spec(&specs[i], true);
        for (int s = 0; s < COUNT_OF(sizes) && !specs[i].sequence; s++) {
            Spec spec = specs[i];
            spec.sequence = sizes[s].sequence, spec.sequences = sizes[s].sequences, spec.batches = 3;
            failed += trial_spec(&spec, s % 2);
        }
    }
    assert_int_equal(failed, 0);
}

int main(void) {
    machine_use_cache();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences_of_random_graphs), cmocka_unit_test(every_entry_of_the_specs),
        cmocka_unit_test(lowered_random_graphs),        cmocka_unit_test(every_operation_both_ways),
        cmocka_unit_test(every_spec_at_other_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
