// SPDX-License-Identifier: Apache-2.0
// Experts on other ranks: ep ranks compute what one rank computes.
#include "tests/layouts/world.h"

#include <math.h>
#include <stdio.h>

static WorldJob job_of(const char *spec, const char *set, int dp, int ep) {
    WorldJob job = { .spec = spec, .microbatch = 2, .microbatches = 2, .steps = 6, .clip = 0.5, .lr = 3e-3, .decay = 0.1, .poison = true };
    if (set) job.args[job.n_args++] = (SpecArg){ "set", set };
    job.layout = layout_single();
    job.layout.dp = dp;
    job.layout.ep = ep;
    return job;
}

// The same step on one rank. With sums over the microbatch its microbatches are the ranks', in turn; with
// sums over all ranks' microbatches they are as large as these together.
static WorldJob alone(WorldJob job) {
    int dp = job.layout.dp;
    job.layout = layout_single();
    job.microbatches *= dp;
    return job;
}

static void compare(const char *what, const WorldJob *job) {
    WorldJob single = alone(*job);
    World *a = world_run(job), *b = world_run(&single), *again = world_run(job);
    const char *where = "", *heavy = "";
    double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b),
           weight = world_weight_error(a, b, &heavy);
    printf("%s dp %d ep %d: gradients within %.2g (%s), losses within %.2g, weights after %d steps within %.2g (%s)\n",
           what, job->layout.dp, job->layout.ep, gradient, where, loss, job->steps, weight, heavy);
    assert_true(gradient <= 1e-5);
    assert_true(loss <= 1e-6);
    assert_true(weight <= 1e-4);
    assert_true(b->norms[0] > job->clip); // clipping is at work
    world_equal_bits(a, again);
    world_free(a), world_free(b), world_free(again);
}

static void test_moe(void **state) {
    (void)state;
    static const int shapes[][2] = { { 2, 2 }, { 4, 4 }, { 4, 2 } };
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        WorldJob job = job_of("moe.lua", "microbatch", shapes[i][0], shapes[i][1]);
        compare("moe", &job);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_moe) };
    return cmocka_run_group_tests_name("layouts.ep", tests, world_setup, world_teardown);
}
