// SPDX-License-Identifier: Apache-2.0
// models/tiny.lua for 50 steps on 2 and 4 ranks: whole parameters, sharded ones, and a balance loss
// over all ranks, against one rank.
#include "tests/layouts/world.h"

#include <stdio.h>

enum { STEPS = 50 };

static void run(const char *what, LayoutParams params, int dp) {
    WorldJob job = { .spec = "models/tiny.lua",
                     .microbatch = 1,
                     .microbatches = 2,
                     .steps = STEPS,
                     .clip = 1,
                     .lr = 1e-3,
                     .decay = 0.1 };
    job.args[job.n_args++] = (SpecArg){ "layers", "2" };
    job.layout = layout_single();
    job.layout.dp = dp;
    job.layout.params = job.layout.expert_params = params;
    WorldJob single = job;
    single.layout = layout_single();
    single.microbatches *= dp;
    World *a = world_run(&job), *b = world_run(&single), *again = world_run(&job);
    const char *where = "", *heavy = "";
    double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b),
           weight = world_weight_error(a, b, &heavy);
    printf("tiny, %s dp %d: loss %.4f to %.4f, gradients within %.2g (%s), losses of %d steps "
           "within %.2g, weights %.2g (%s)\n",
           what, dp, b->losses[0], b->losses[STEPS - 1], gradient, where, STEPS, loss, weight,
           heavy);
    assert_true(gradient <= 1e-5);
    assert_true(loss <= 1e-6);
    assert_true(b->losses[STEPS - 1] < b->losses[0]);
    world_equal_bits(a, again);
    world_free(a), world_free(b), world_free(again);
}

static void test_resident(void **state) {
    (void)state;
    run("resident,", PARAMS_RESIDENT, 2);
    run("resident,", PARAMS_RESIDENT, 4);
}

static void test_fsdp(void **state) {
    (void)state;
    run("fsdp,", PARAMS_FSDP, 2);
    run("fsdp,", PARAMS_FSDP, 4);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_resident),
                                        cmocka_unit_test(test_fsdp) };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
