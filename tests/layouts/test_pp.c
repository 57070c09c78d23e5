// SPDX-License-Identifier: Apache-2.0
// Pipelines: stages compute together what one rank computes.
#include "tests/layouts/world.h"

#include <math.h>
#include <stdio.h>

typedef struct Case {
    const char *spec, *arg, *value;
    int pp, chunks;
    uint8_t schedule;
    int32_t stages[8]; // all 0: even
    int microbatches;
} Case;

static WorldJob job_of(const Case *c, int steps) {
    WorldJob job = { .spec = c->spec, .microbatch = 2, .microbatches = c->microbatches, .steps = steps, .clip = 0.5, .lr = 3e-3, .decay = 0.1, .poison = true };
    if (c->arg) job.args[job.n_args++] = (SpecArg){ c->arg, c->value };
    job.layout = layout_single();
    job.layout.pp = c->pp;
    job.layout.chunks = c->chunks;
    job.layout.schedule = c->schedule;
    if (c->stages[0]) {
        job.layout.stages = (int32_t *)c->stages;
        job.layout.n_stages = c->pp * c->chunks;
    }
    return job;
}

static void compare(const Case *c, int steps) {
    WorldJob job = job_of(c, steps), single = job;
    single.layout = layout_single();
    World *a = world_run(&job), *b = world_run(&single), *again = world_run(&job);
    const char *where = "", *heavy = "";
    double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b),
           weight = world_weight_error(a, b, &heavy);
    printf("%s pp %d chunks %d schedule %d: gradients within %.2g (%s), losses within %.2g, weights after %d steps within %.2g (%s)\n",
           c->spec, c->pp, c->chunks, c->schedule, gradient, where, loss, steps, weight, heavy);
    assert_true(gradient <= 1e-5);
    assert_true(loss <= 1e-6);
    assert_true(weight <= 1e-4);
    assert_true(b->norms[0] > job.clip); // clipping is at work
    world_equal_bits(a, again);
    world_free(a), world_free(b), world_free(again);
}

static void test_schedules(void **state) {
    (void)state;
    static const Case cases[] = {
        { "moe.lua", NULL, NULL, 2, 1, SCHEDULE_1F1B, { 0 }, 3 },
        { "deep.lua", NULL, NULL, 2, 1, SCHEDULE_1F1B, { 0 }, 3 },
        { "deep.lua", NULL, NULL, 3, 1, SCHEDULE_1F1B, { 0 }, 4 },
        { "deep.lua", NULL, NULL, 4, 1, SCHEDULE_1F1B, { 0 }, 5 },
        { "deep.lua", NULL, NULL, 3, 1, SCHEDULE_1F1B, { 1, 3, 1 }, 4 },
        { "deep.lua", NULL, NULL, 2, 2, SCHEDULE_INTERLEAVED, { 0 }, 3 },
        { "deep.lua", NULL, NULL, 3, 1, SCHEDULE_ZERO_BUBBLE, { 0 }, 4 },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) compare(&cases[i], 4);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_schedules) };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
