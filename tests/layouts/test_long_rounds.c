// SPDX-License-Identifier: Apache-2.0
// Rounds of expert rows under other layouts: pipelines, weights that are gathered, recompute policies, bf16; and
// on virtual GPUs. layouts.rounds has what plans of rounds are.
#include "tests/layouts/rounds.h"

#include <stdio.h>
#include <stdlib.h>

static const Rounds cases[] = {
    { 2, 2, 1, "learned", "4", "2", "7", "false", false, false },
    { 4, 2, 0.3, "some", "6", "3", "7", "false", true, false, RECOMPUTE_NONE }, // tokens without experts
    { 2, 2, 1, "some", "6", "2", "13", "true", false, true },
    { 4, 4, 0.5, "moe.lua", NULL, NULL, NULL, NULL, false, false, RECOMPUTE_BLOCK },
    { 2, 2, 0.4, "returns.lua", NULL, NULL, NULL, NULL, false, false }, // weights that all experts share
    { 2, 2, 0.5, "learned", "4", "2", "5", "false", true, false, RECOMPUTE_CHEAP, 2, SCHEDULE_1F1B },
    { 2, 2, 0.5, "some", "4", "2", "5", "false", false, false, RECOMPUTE_CHEAP, 2, SCHEDULE_ZERO_BUBBLE },
    { 2, 2, 0.5, "learned", "4", "2", "5", "false", false, false, RECOMPUTE_CHEAP, 2, SCHEDULE_INTERLEAVED },
    { 4, 2, 0.5, "learned", "4", "2", "7", "true", false, false, RECOMPUTE_CHEAP, 0, 0, true },
    // Between nodes.
    { 2, 2, 0.5, "hot", "4", "1", "7", "false", true, false, .node = 1 },
    { 4, 4, 0.5, "some", "8", "3", "7", "true", true, false, RECOMPUTE_NONE, .node = 1 },
    { 4, 4, 0.5, "moe.lua", NULL, NULL, NULL, NULL, false, false, RECOMPUTE_BLOCK, .node = 2 },
    { 4, 4, 0.7, "some", "8", "3", "13", "false", false, true, .node = 2 },
    { 8, 4, 0.5, "learned", "8", "3", "5", "false", true, false, .node = 2 },
    { 2, 2, 0.5, "learned", "4", "2", "5", "false", true, false, RECOMPUTE_CHEAP, 2, SCHEDULE_1F1B, .node = 1 },
    { 2, 2, 0.5, "some", "4", "2", "5", "false", false, false, RECOMPUTE_CHEAP, 2, SCHEDULE_ZERO_BUBBLE, .node = 1 },
    { 4, 2, 0.5, "learned", "4", "2", "7", "true", false, false, RECOMPUTE_CHEAP, 0, 0, true, .node = 1 },
};

static void test_equal(void **state) {
    (void)state;
    int cut = 0;
    for (int i = 0; i < COUNT_OF(cases); i++) cut += rounds_compare(&cases[i]) > 0;
    assert_true(cut > COUNT_OF(cases) / 2); // further rounds did run
}

static void on_gpus(const Rounds *c) {
    WorldJob job = rounds_job(c), whole = rounds_at_once(job);
    job.steps = whole.steps = 2;
    job.device = "vgpu:sm_80";
    World *a = world_run(&job), *b = world_run(&whole), *again = world_run(&job);
    const char *where = "";
    double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b);
    printf("%s: gradients within %.2g (%s) of a CPU's at once, losses within %.2g\n", job.device, gradient, where,
           loss);
    assert_true(gradient <= 1e-5);
    assert_true(loss <= 1e-6);
    world_equal_bits(a, again);
    world_free(a), world_free(b), world_free(again);
}

// Two virtual GPUs, also as if each were a node: how often rounds run is read from them.
static void test_gpus(void **state) {
    (void)state;
    static const Rounds two[] = { { 2, 2, 0.5, "some", "6", "2", "5", "false", true, false },
                                  { 2, 2, 0.5, "some", "6", "2", "5", "false", true, false, .node = 1 } };
    world_needs_gpus();
    for (int i = 0; i < COUNT_OF(two); i++) on_gpus(&two[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),
        cmocka_unit_test(test_gpus),
    };
    return cmocka_run_group_tests_name("layouts.long_rounds", tests, world_setup, world_teardown);
}
