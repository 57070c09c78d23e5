// SPDX-License-Identifier: Apache-2.0
// Pipelines: stages compute together what one rank computes.
#include "tests/layouts/world.h"

#include <math.h>
#include <stdio.h>

typedef struct Case {
    const char *spec;
    SpecArg args[2];
    int pp, chunks;
    uint8_t schedule;
    int32_t stages[8]; // all 0: even
    int microbatches, dp, ep, steps;
    bool same_bits; // gradients of step 1 as one rank has them: what stages cut apart is summed in the same order
    bool bf16;
} Case;

static WorldJob job_of(const Case *c) {
    WorldJob job = { .spec = c->spec, .microbatch = 2, .microbatches = c->microbatches, .steps = c->steps ? c->steps : 4,
                     .clip = 0.5, .lr = 3e-3, .decay = 0.1, .poison = true };
    for (int i = 0; i < COUNT_OF(c->args) && c->args[i].key; i++) job.args[job.n_args++] = c->args[i];
    job.precision = c->bf16 ? PRECISION_BF16 : PRECISION_OPEN;
    job.layout = layout_single();
    job.layout.pp = c->pp;
    job.layout.dp = c->dp ? c->dp : 1;
    job.layout.ep = c->ep ? c->ep : 1;
    job.layout.chunks = c->chunks;
    job.layout.schedule = c->schedule;
    if (c->stages[0]) {
        job.layout.stages = (int32_t *)c->stages;
        job.layout.n_stages = c->pp * c->chunks;
    }
    return job;
}

static void compare(const Case *c) {
    WorldJob job = job_of(c), single = job;
    single.layout = layout_single();
    single.microbatches *= job.layout.dp;
    World *a = world_run(&job), *b = world_run(&single), *again = world_run(&job);
    const char *where = "", *heavy = "";
    double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b),
           weight = world_weight_error(a, b, &heavy);
    printf("%s pp %d dp %d ep %d chunks %d schedule %d%s: gradients within %.2g (%s), losses of %d steps within %.2g, weights within %.2g (%s)\n",
           c->spec, c->pp, job.layout.dp, job.layout.ep, c->chunks, c->schedule, c->bf16 ? " bf16" : "", gradient, where, job.steps,
           loss, weight, heavy);
    assert_true(gradient <= (c->bf16 ? 2e-2 : 1e-5));
    assert_true(loss <= (c->bf16 ? 1e-3 : 1e-6));
    assert_true(c->bf16 || weight <= 1e-4);
    assert_true(b->norms[0] > job.clip); // clipping is at work
    if (c->same_bits) assert_true(gradient == 0);
    world_equal_bits(a, again);
    world_free(a), world_free(b), world_free(again);
}

static void test_schedules(void **state) {
    (void)state;
    static const Case cases[] = {
        { "moe.lua", { { 0 } }, 2, 1, SCHEDULE_1F1B, { 0 }, 3, .steps = 50, .same_bits = true },
        { "deep.lua", { { "mtp", "0" }, { "skips", "false" } }, 4, 1, SCHEDULE_1F1B, { 0 }, 3 },
        { "deep.lua", { { 0 } }, 2, 1, SCHEDULE_1F1B, { 0 }, 3, .steps = 50 },
        { "deep.lua", { { "tied", "false" } }, 3, 1, SCHEDULE_1F1B, { 0 }, 4 },
        { "deep.lua", { { 0 } }, 4, 1, SCHEDULE_1F1B, { 0 }, 5 },
        { "deep.lua", { { 0 } }, 3, 1, SCHEDULE_1F1B, { 1, 3, 1 }, 4 },
        { "deep.lua", { { 0 } }, 2, 2, SCHEDULE_INTERLEAVED, { 0 }, 3, .steps = 50 },
        { "deep.lua", { { 0 } }, 2, 2, SCHEDULE_INTERLEAVED, { 1, 2, 1, 1 }, 4 },
        { "deep.lua", { { "layers", "6" } }, 3, 2, SCHEDULE_INTERLEAVED, { 0 }, 5 },
        { "deep.lua", { { 0 } }, 3, 1, SCHEDULE_ZERO_BUBBLE, { 0 }, 4, .steps = 50 },
        { "deep.lua", { { 0 } }, 2, 2, SCHEDULE_ZERO_BUBBLE, { 0 }, 4 },
        { "deep.lua", { { 0 } }, 2, 1, SCHEDULE_1F1B, { 0 }, 2, .dp = 2 },
        { "deep.lua", { { 0 } }, 2, 2, SCHEDULE_INTERLEAVED, { 0 }, 2, .dp = 2 },
        { "deep.lua", { { 0 } }, 2, 1, SCHEDULE_1F1B, { 0 }, 3, .dp = 2, .ep = 2 },
        { "deep.lua", { { 0 } }, 2, 2, SCHEDULE_INTERLEAVED, { 0 }, 2, .dp = 2, .ep = 2 },
        { "deep.lua", { { 0 } }, 2, 1, SCHEDULE_ZERO_BUBBLE, { 0 }, 3, .bf16 = true },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) compare(&cases[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_schedules) };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
