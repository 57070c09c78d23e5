// SPDX-License-Identifier: Apache-2.0
// What backward computes again changes memory and not one bit of what ranks compute together, losses and
// metrics included: dispatches of a block are put again, and ranks meet for it.
#include "tests/layouts/world.h"

#include <stdio.h>

static WorldJob job_of(int dp, int ep, const char *fields, Arena *arena) {
    WorldJob job = { .spec = "moe.lua", .microbatch = 2, .microbatches = 4 / dp, .steps = 3,
                     .clip = 0.5, .lr = 3e-3, .decay = 0.1, .poison = true };
    job.args[job.n_args++] = (SpecArg){ "set", "microbatch" };
    job.layout = layout_single();
    if (layout_parse(fields, arena, &job.layout) != OK) fail_msg("%s", status_message());
    job.layout.dp = dp;
    job.layout.ep = ep;
    return job;
}

static void policies(void **state) {
    (void)state;
    static const char *const fields[] = { "recompute=none", "recompute=cheap", "recompute=block",
                                          "recompute=block:none" };
    static const struct { int dp, ep; const char *more; } shapes[] = {
        { 2, 1, "" }, { 2, 2, "" }, { 4, 2, ",params=fsdp" }, { 1, 1, ",pp=2" }, { 2, 2, ",pp=2,schedule=zb" },
    };
    Arena *arena = arena_create();
    WorldJob one = job_of(1, 1, fields[0], arena);
    World *single = world_run(&one);
    for (int s = 0; s < COUNT_OF(shapes); s++) {
        int64_t bytes[COUNT_OF(fields)];
        World *saved = NULL;
        for (int i = 0; i < COUNT_OF(fields); i++) {
            const char *all = arena_printf(arena, "%s%s", fields[i], shapes[s].more);
            WorldJob job = job_of(shapes[s].dp, shapes[s].ep, all, arena);
            World *world = world_run(&job);
            const char *where = "", *measured = "";
            double gradient = world_gradient_error(world, single, &where);
            double loss = world_loss_error(world, single), metric = world_metric_error(world, single, &measured);
            bytes[i] = 0;
            for (int stage = 0; stage < world->n_stages; stage++)
                bytes[i] += world->plans[stage]->region_bytes[REGION_act];
            printf("dp %d ep %d %s: gradients within %.2g (%s), losses %.2g, metrics %.2g (%s), act %lld bytes\n",
                   shapes[s].dp, shapes[s].ep, all, gradient, where, loss, metric, measured,
                   (long long)bytes[i]);
            assert_true(gradient <= 1e-5 && loss <= 1e-6 && metric <= 1e-5);
            if (!saved) saved = world;
            else world_equal_bits(world, saved), world_free(world);
        }
        world_free(saved);
        if (strstr(shapes[s].more, "fsdp")) continue; // weights gathered ahead are more than rows here
        assert_true(bytes[2] < bytes[1] && bytes[1] < bytes[0]);
        assert_true(bytes[2] <= bytes[3] && bytes[3] <= bytes[0]);
    }
    world_free(single);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(policies) };
    return cmocka_run_group_tests_name("layouts.recompute", tests, world_setup, world_teardown);
}
