// SPDX-License-Identifier: Apache-2.0
// Losses and gradients of a small OLMo-style mixture of experts against numbers from another world: JAX,
// in float64, from a description of the model and not from ours (golden/olmo_moe.py wrote the file).
#include "tests/oracle/compare.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

// Both sides are float64; they differ in the order of sums of at most a few hundred terms (1e-14) and
// in 1e-20 that the router adds to a denominator.
#define TOLERANCE 1e-11

// The script's `mixed`: FNV-1a of the name, then a finalizer of 32 bits.
static uint32_t mixed(const char *name, uint32_t i) {
    uint32_t x = 2166136261u;
    for (; *name; name++) x = (x ^ (uint8_t)*name) * 16777619u;
    x ^= i * 2654435761u;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

static void set_numbers(Interp *in) {
    for (uint32_t i = 0; i < in->m->n_params; i++) {
        const char *name = param_name(in->m, i);
        size_t bytes = strlen(name);
        double middle = bytes >= 4 && !strcmp(name + bytes - 4, "gain") ? 1 : 0;
        for (int64_t j = 0; j < in->param_n[i]; j++) {
            in->params[i][j] = middle + (mixed(name, (uint32_t)j) / 4294967296.0 - 0.5) * 0.9;
        }
    }
}

static void read_ints(FILE *file, int32_t *into, int64_t n) {
    int count;
    assert_int_equal(fscanf(file, "%d", &count), 1);
    assert_int_equal(count, n);
    for (int i = 0; i < count; i++) assert_int_equal(fscanf(file, "%d", &into[i]), 1);
}

static void close_to(const char *what, double got, double want, double scale) {
    if (!(fabs(got - want) <= TOLERANCE * scale)) fail_msg("%s: got %.17g, expected %.17g", what, got, want);
}

static double loss_named(const Interp *in, const char *name) {
    for (uint32_t i = 0; i < in->m->n_losses; i++) {
        if (!strcmp(model_name(in->m, in->m->losses[i].addr), name)) return in->losses[i];
    }
    fail_msg("no loss '%s'", name);
    return 0;
}

static void check_gradient(FILE *file, const Interp *in, const char *name) {
    int n;
    uint32_t param = param_of(in->m, name);
    assert_int_equal(fscanf(file, "%d", &n), 1);
    assert_int_equal(n, in->param_n[param]);
    double *want = calloc((size_t)n, sizeof *want), largest = 0;
    for (int i = 0; i < n; i++) {
        assert_int_equal(fscanf(file, "%lf", &want[i]), 1);
        largest = fmax(largest, fabs(want[i]));
    }
    assert_true(in->accumulated[param]);
    for (int i = 0; i < n; i++) close_to(name, in->gradients[param][i], want[i], largest);
    free(want);
}

static void losses_and_gradients(void **state) {
    (void)state;
    Model *m = spec_model(&(Spec){ .file = "tests/oracle/golden/olmo_moe.lua" });
    assert_non_null(m);
    Model *program = model_program(m, PROGRAM_STEP);
    assert_non_null(program);
    FILE *file = fopen(MOEC_SOURCE_DIR "/tests/oracle/golden/olmo_moe.txt", "r");
    assert_non_null(file);
    const int64_t tokens = 18;
    Batch batch = batch_make(0, tokens, 9, 11, 0);
    Interp *forward = interp_create(m), *step = interp_create(program);
    set_numbers(forward), set_numbers(step);
    char word[32], name[128];
    int losses = 0, gradients = 0;
    while (fscanf(file, "%31s", word) == 1) {
        if (!strcmp(word, "total")) { // after the inputs
            double want;
            interp_run(forward, &batch, 1), interp_run(step, &batch, 1);
            assert_int_equal(fscanf(file, "%lf", &want), 1);
            close_to("total", forward->loss, want, fabs(want));
            continue;
        }
        assert_int_equal(fscanf(file, "%127s", name), 1);
        if (!strcmp(word, "input")) {
            read_ints(file,
                      !strcmp(name, "tokens")     ? batch.ahead[0]
                      : !strcmp(name, "labels")   ? batch.labels[1]
                      : !strcmp(name, "segments") ? batch.segments
                                                  : batch.positions,
                      tokens);
        } else if (!strcmp(word, "loss")) {
            double want;
            assert_int_equal(fscanf(file, "%lf", &want), 1);
            close_to(name, loss_named(forward, name), want, fabs(want));
            losses++;
        } else {
            assert_string_equal(word, "gradient");
            check_gradient(file, step, name);
            gradients++;
        }
    }
    assert_int_equal(losses, m->n_losses);
    assert_int_equal(gradients, m->n_params);
    fclose(file);
    interp_destroy(forward), interp_destroy(step);
    batch_free(&batch);
    model_destroy(program), model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(losses_and_gradients) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
