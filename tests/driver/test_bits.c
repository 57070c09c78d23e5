// SPDX-License-Identifier: Apache-2.0
// The bits of a run depend on model, options and data, in both precisions: not on threads, not on the
// run, not on an interruption, and not on whether the machine has the instruction for products of
// bf16 or the portable kernels do its arithmetic.
#include <stdio.h>
#include <stdlib.h>

#include "tests/driver/small.h"

static Small small;
static char *reference[2]; // of each precision
static const char *const precisions[] = { "fp32", "bf16" };

static char *run_named(const char *what, int precision) {
    char name[64];
    snprintf(name, sizeof name, "%s-%s", what, precisions[precision]);
    return path_in(small.folder, name);
}

static void train(char *run, int precision, const char *steps, const char *threads) {
    char *const more[] = { "--precision", (char *)(uintptr_t)precisions[precision], "--threads",
                           (char *)(uintptr_t)threads, "--eval-interval", "2", NULL };
    expect_exit(0, small_train(&small, run, steps, more));
}

static int make(void **state) {
    (void)state;
    small = small_make();
    for (int i = 0; i < 2; i++) train(reference[i] = run_named("reference", i), i, "6", "1");
    return 0;
}

static void same_as_reference(const char *run, int precision) {
    same_state(reference[precision], run, 3);
    same_state(reference[precision], run, 6);
    same_history(reference[precision], run);
}

// Once more with one thread, then with others.
static void runs_and_threads(void **state) {
    (void)state;
    static const char *const threads[] = { "1", "2", "3" };
    for (int precision = 0; precision < 2; precision++) {
        for (int i = 0; i < COUNT_OF(threads); i++) {
            char *run = run_named(threads[i], precision);
            train(run, precision, "6", threads[i]);
            same_as_reference(run, precision);
        }
    }
}

// A schedule knows its end, so the run is stopped by the loss of its newest checkpoint.
static void resuming(void **state) {
    (void)state;
    for (int precision = 0; precision < 2; precision++) {
        char *run = run_named("2", precision);
        COMMAND("/bin/rm", "-r", path_in(run, "checkpoints/step-6"));
        expect_exit(0, COMMAND(small.moec, "resume", run, "--threads", "3"));
        expect_error("from step-3");
        same_as_reference(run, precision);
    }
}

// The precisions differ, or the rest says nothing of the second.
static void precisions_differ(void **state) {
    (void)state;
    size_t n, m;
    char *a = read_whole(path_in(reference[0], "checkpoints/step-6/weights.safetensors"), &n);
    char *b = read_whole(path_in(reference[1], "checkpoints/step-6/weights.safetensors"), &m);
    assert_int_equal(n, m);
    assert_memory_not_equal(a, b, n);
}

static void portable_kernels(void **state) {
    (void)state;
    if (!__builtin_cpu_supports("avx512bf16")) skip(); // the portable ones made the reference
    setenv("MOEC_ISA", "x86-64-v4", 1);
    for (int precision = 0; precision < 2; precision++) {
        char *run = run_named("portable", precision);
        train(run, precision, "6", "2");
        same_as_reference(run, precision);
    }
    unsetenv("MOEC_ISA");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_and_threads),
        cmocka_unit_test(resuming),
        cmocka_unit_test(precisions_differ),
        cmocka_unit_test(portable_kernels),
    };
    return cmocka_run_group_tests_name("bits", tests, make, NULL);
}
