// SPDX-License-Identifier: Apache-2.0
// The oracle's tests over wider ranges: hundreds of random graphs, every entry of every parameter, many
// shapes of a batch. Bounds and reasons are those of probe.h and test_lowered.c.
#include "tests/oracle/pair.h"
#include "tests/oracle/probe.h"
#include "tests/oracle/random.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const double MODEL_BOUND = 1.2e-5;

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

// true: within the bound
static bool lowered(Model *m, const char *title, uint64_t seed, int32_t sequences, int batches, double std,
                    bool no_fusion) {
    Step step = step_make(seed, m, sequences, batches);
    Interp *values = interp_create(m);
    interp_fill(values, seed, std);
    Pair p = pair_start(m, &step, values, sequences, (How){ .no_fusion = no_fusion }, 2);
    pair_compare(&p, NULL, MODEL_BOUND);
    bool good = p.worst <= 1;
    if (!good) {
        fprintf(stderr, "%s, seed %d%s: %.3g of the bound at %s\n", title, (int)seed, no_fusion ? ", not fused" : "",
                p.worst, p.where);
    }
    pair_end(&p);
    interp_destroy(values);
    step_free(&step);
    return good;
}

static void lowered_random_graphs(void **state) {
    (void)state;
    int failed = 0;
    for (uint64_t seed = 2000; seed < 2200; seed++) {
        static const int32_t lengths[] = { 1, 2, 7, 13, 64, 67 };
        Model *m = random_model(seed, 20 + (int)(seed % 30), lengths[seed % COUNT_OF(lengths)], false);
        failed += !lowered(m, "random graph", seed, 1 + (int32_t)(seed % 5), 1 + (int)(seed % 2), 0.7, seed % 3 == 0);
        model_destroy(m);
    }
    assert_int_equal(failed, 0);
}

static void lowered_specs_at_other_sizes(void **state) {
    (void)state;
    static const struct {
        int32_t sequence, sequences;
    } sizes[] = { { 1, 1 }, { 1, 3 }, { 2, 1 }, { 17, 1 }, { 64, 1 }, { 61, 5 } };
    int failed = 0;
    for (int i = 0; i < n_specs; i++) {
        for (int s = 0; s < COUNT_OF(sizes); s++) {
            Spec spec = specs[i];
            spec.sequence = sizes[s].sequence;
            Model *m = spec_model(&spec);
            assert_non_null(m);
            failed += !lowered(m, spec_title(&spec), 41 + (uint64_t)s, sizes[s].sequences, 3, spec.std, s % 2);
            model_destroy(m);
        }
    }
    assert_int_equal(failed, 0);
}

int main(void) {
    machine_use_cache();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences_of_random_graphs),
        cmocka_unit_test(every_entry_of_the_specs),
        cmocka_unit_test(lowered_random_graphs),
        cmocka_unit_test(lowered_specs_at_other_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
