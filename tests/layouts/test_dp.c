// SPDX-License-Identifier: Apache-2.0
// Data parallelism with resident parameters: dp ranks compute what one rank computes.
#include "tests/layouts/world.h"

#include <math.h>
#include <stdio.h>

static WorldJob job_of(const char *spec, const char *set, int dp) {
    WorldJob job = { .spec = spec, .microbatch = 2, .microbatches = 2, .steps = 6, .clip = 0.5, .lr = 3e-3, .decay = 0.1, .poison = true };
    if (set) job.args[job.n_args++] = (SpecArg){ "set", set };
    job.layout = layout_single();
    job.layout.dp = dp;
    return job;
}

// The same step on one rank. With sums over the microbatch its microbatches are the ranks', in turn; with
// sums over all ranks' microbatches they are as large as these together.
static WorldJob alone(WorldJob job, bool global) {
    int dp = job.layout.dp;
    job.layout = layout_single();
    if (global) job.microbatch *= dp;
    else job.microbatches *= dp;
    return job;
}

static void compare(const char *what, const WorldJob *job, bool global) {
    WorldJob single = alone(*job, global);
    World *a = world_run(job), *b = world_run(&single), *again = world_run(job);
    const char *where = "", *heavy = "", *measured = "";
    double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b),
           weight = world_weight_error(a, b, &heavy), metric = world_metric_error(a, b, &measured);
    printf("%s dp %d: gradients within %.2g (%s), losses %.2g, metrics %.2g (%s), weights after %d steps %.2g (%s)\n",
           what, job->layout.dp, gradient, where, loss, metric, measured, job->steps, weight, heavy);
    assert_true(gradient <= 1e-5);
    assert_true(loss <= 1e-6);
    assert_true(metric <= 1e-5);
    assert_true(weight <= 1e-4);
    assert_true(b->norms[0] > job->clip); // clipping is at work
    world_equal_bits(a, again);
    for (uint32_t i = 0; i < a->n_params; i++) {
        const WorldParam *param = &a->params[i];
        for (int64_t k = 0; k < param->n; k++)
            assert_int_equal(param->seen[k], param->is_state ? a->n_ranks : 1);
    }
    world_free(a), world_free(b), world_free(again);
}

static void test_moe(void **state) {
    (void)state;
    for (int dp = 2; dp <= 4; dp++) {
        WorldJob job = job_of("moe.lua", "microbatch", dp);
        compare("moe", &job, false);
    }
}

static void test_global_balance(void **state) {
    (void)state;
    WorldJob job = job_of("moe.lua", "global", 3);
    compare("moe, global balance,", &job, true);
}

static void test_sums(void **state) {
    (void)state;
    for (int dp = 2; dp <= 3; dp++) {
        WorldJob job = job_of("sums.lua", NULL, dp);
        compare("sums", &job, true);
    }
}

// A state that the load corrects, balance per sequence, several predictions.
static void test_deepseek(void **state) {
    (void)state;
    WorldJob job = job_of("tests/oracle/specs/deepseek.lua", NULL, 2);
    compare("deepseek", &job, false);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_moe), cmocka_unit_test(test_global_balance),
                                        cmocka_unit_test(test_sums), cmocka_unit_test(test_deepseek) };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
