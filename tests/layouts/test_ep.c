// SPDX-License-Identifier: Apache-2.0
// Experts on other ranks: ep ranks compute what one rank computes, whatever the tokens choose; tails of
// expert rows hold NaN throughout (poison) and change nothing.
#include "tests/layouts/world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Case {
    int dp, ep;
    const char *spec, *mode, *count, *top_k, *sequence, *bias;
    int microbatch;
    bool turned;                 // experts on other ranks than in order
    bool bf16;
    uint8_t recompute;           // LayoutRecompute
    int pp;                      // 0: 1
    uint8_t schedule;            // LayoutSchedule
    int row_align;               // 0: 1
} Case;
static const Case cases[] = {
    { 2, 2, "moe.lua", NULL, "4", NULL, NULL, NULL, 2, false, false },
    { 4, 2, "moe.lua", NULL, "4", NULL, NULL, NULL, 2, true, false },
    { 4, 4, "experts.lua", "learned", "8", "3", "7", "true", 2, true, false },
    { 2, 2, "experts.lua", "hot", "4", "1", "7", "false", 1, false, false },   // one expert takes all
    { 4, 4, "experts.lua", "lower", "8", "2", "5", "true", 1, false, false },  // ranks without rows
    { 4, 2, "experts.lua", "some", "6", "3", "7", "false", 1, true, false },   // tokens without experts
    { 2, 2, "experts.lua", "learned", "2", "1", "1", "false", 1, false, false }, // one token, without a label
    { 2, 2, "experts.lua", "learned", "2", "1", "2", "false", 1, false, false }, // two
    { 2, 2, "experts.lua", "some", "6", "2", "13", "true", 1, false, true },
    { 4, 2, "experts.lua", "some", "6", "3", "7", "true", 1, false, false, RECOMPUTE_NONE },
    { 4, 2, "moe.lua", NULL, "4", NULL, NULL, NULL, 2, true, false, RECOMPUTE_BLOCK },
    // Several microbatches are under way: what is put for one has a place of its own.
    { 2, 2, "experts.lua", "learned", "4", "2", "5", "false", 1, true, false, RECOMPUTE_CHEAP, 2, SCHEDULE_1F1B },
    { 2, 2, "experts.lua", "some", "4", "2", "5", "false", 1, false, false, RECOMPUTE_CHEAP, 2, SCHEDULE_ZERO_BUBBLE },
    // layouts.align has more of these.
    { 2, 2, "experts.lua", "some", "6", "2", "13", "true", 1, false, true, .row_align = 32 },
    { 2, 2, "experts.lua", "some", "4", "2", "5", "true", 1, false, false, RECOMPUTE_CHEAP, 2, SCHEDULE_1F1B, 8 },
};

static WorldJob job_of(const Case *c) {
    WorldJob job = world_experts(&(WorldExperts){ .spec = c->mode ? NULL : c->spec, .microbatch = c->microbatch,
                                        .mode = c->mode, .count = c->count, .top_k = c->top_k, .sequence = c->sequence,
                                        .bias = c->bias, .dp = c->dp, .ep = c->ep, .turned = c->turned, .bf16 = c->bf16,
                                        .recompute = c->recompute, .pp = c->pp, .schedule = c->schedule });
    job.steps = 6;
    job.layout.row_align = c->row_align;
    return job;
}

// The same step on one rank: its microbatches are the ranks', in turn.
static WorldJob alone(WorldJob job) {
    int dp = job.layout.dp;
    job.layout = layout_single();
    job.microbatches *= dp;
    return job;
}

static void check_masters(const World *world) {
    for (uint32_t i = 0; i < world->n_params; i++) {
        const WorldParam *param = &world->params[i];
        for (int64_t k = 0; k < param->n; k++)
            assert_int_equal(param->seen[k], param->is_state ? world->n_ranks / world->n_stages : 1);
    }
}

static void compare(const Case *c, int steps, bool again) {
    WorldJob job = job_of(c);
    job.steps = steps;
    WorldJob single = alone(job);
    World *a = world_run(&job), *b = world_run(&single);
    const char *where = "", *heavy = "";
    double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b),
           weight = world_weight_error(a, b, &heavy);
    printf("%s %s pp %d dp %d ep %d: gradients within %.2g (%s), losses within %.2g, weights after %d steps within "
           "%.2g (%s)\n", c->spec, c->mode ? c->mode : "", c->pp ? c->pp : 1, c->dp, c->ep, gradient, where, loss, steps, weight,
           heavy);
    assert_true(gradient <= (c->bf16 ? 2e-2 : 1e-5));
    assert_true(loss <= (c->bf16 ? 1e-3 : 1e-6));
    assert_true(weight <= (c->bf16 ? 1e-2 : 1e-4));
    for (int s = 0; s < steps; s++) {
        assert_true(c->bf16 || a->served[s] == b->served[s]);
        assert_true(c->bf16 || a->dropped[s] == b->dropped[s]);
    }
    check_masters(a);
    if (again) {
        World *second = world_run(&job);
        world_equal_bits(a, second);
        world_free(second);
    }
    world_free(a), world_free(b);
}

static void test_invariance(void **state) {
    (void)state;
    for (int i = 0; i < COUNT_OF(cases); i++) compare(&cases[i], 6, true);
}

static void test_steps(void **state) {
    (void)state;
    compare(&cases[2], 50, false);
}

// With rows for an even share some copies have no place: they are counted, the others go on, and the same
// run drops the same.
static void test_drops(void **state) {
    (void)state;
    WorldJob job = job_of(&cases[2]);
    job.steps = 12;
    World *free_run = world_run(&job);
    job.layout.capacity = 1;
    World *a = world_run(&job), *b = world_run(&job);
    world_equal_bits(a, b);
    double dropped = 0;
    for (int s = 0; s < job.steps; s++) {
        assert_true(isfinite(a->losses[s]));
        assert_true(free_run->dropped[s] == 0);
        assert_true(a->served[s] + a->dropped[s] == free_run->served[s]);
        dropped += a->dropped[s];
    }
    printf("capacity 1: %g copies dropped in %d steps, loss %g to %g\n", dropped, job.steps, a->losses[0],
           a->losses[job.steps - 1]);
    assert_true(dropped > 0);
    assert_true(a->losses[job.steps - 1] < a->losses[0]);
    // Computed again, nothing is counted twice or dropped otherwise.
    job.layout.recompute = RECOMPUTE_BLOCK;
    World *block = world_run(&job);
    assert_memory_equal(block->dropped, a->dropped, sizeof *a->dropped * (size_t)job.steps);
    assert_memory_equal(block->served, a->served, sizeof *a->served * (size_t)job.steps);
    assert_true(world_loss_error(block, a) <= 1e-6);
    job.layout.recompute = RECOMPUTE_CHEAP;
    // As many rows as can be asked for: capacity changes nothing.
    job.layout.capacity = 4;
    World *whole = world_run(&job);
    world_equal_bits(whole, free_run);
    world_free(free_run), world_free(a), world_free(b), world_free(block), world_free(whole);
}

// Two virtual GPUs, whose kernels reach into each other's memory.
static void test_gpus(void **state) {
    (void)state;
    static const char device[] = "vgpu:sm_80";
    world_needs_gpus();
    static const Case two = { 2, 2, "experts.lua", "some", "6", "2", "5", "false", 1, true, false };
    WorldJob job = job_of(&two), single;
    job.steps = 2;
    job.device = device;
    single = alone(job);
    single.device = NULL;
    World *a = world_run(&job), *b = world_run(&single), *again = world_run(&job);
    const char *where = "";
    double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b);
    printf("%s: gradients within %.2g (%s) of a CPU's, losses within %.2g\n", device, gradient, where, loss);
    assert_true(gradient <= 1e-5);
    assert_true(loss <= 1e-6);
    world_equal_bits(a, again);
    world_free(a), world_free(b), world_free(again);
}

// Ranks meet as often as the routes ask: per layer after counting, after the puts and before the gets;
// in backward after the puts and before the gets, and once before the first. All rows of a layer that
// go one way go in one kernel, from where they are computed.
static void test_plan(void **state) {
    (void)state;
    enum { LAYERS = 3 };
    WorldJob job = job_of(&cases[5]); // without biases: weights go with the rows
    job.args[job.n_args++] = (SpecArg){ "layers", "3" };
    job.steps = 1;
    World *world = world_run(&job);
    const Plan *plan = world->plans[0];
    const PlanProgram *step = plan_program(plan, "step");
    int met[4] = { 0 }, puts[4] = { 0 }, senders[4] = { 0 };
    assert_int_equal(step->n_segments, 4);
    for (int s = 0; s < 4; s++) {
        const PlanSegment *segment = &step->segments[s];
        for (int32_t i = segment->first; i < segment->first + segment->n; i++) {
            const PlanInstr *instr = &step->instrs[i];
            int here = 0;
            met[s] += instr->op != PLAN_launch && instr->half == HALF_whole; // gradients begin to cross besides
            for (uint32_t k = 0; k < instr->n_operands; k++)
                here += step->operands[instr->operands + k].mode == OPERAND_PUT;
            puts[s] += here;
            senders[s] += here > 0;
        }
    }
    assert_int_equal(met[1], 3 * LAYERS);
    assert_int_equal(met[2], 2 * LAYERS + 1);
    assert_int_equal(senders[1], LAYERS);
    assert_int_equal(senders[2], LAYERS);
    assert_true(puts[1] > senders[1] || puts[2] > senders[2]); // rows and their weights
    assert_int_equal(plan->region_bytes[REGION_sym], plan_window(plan) + plan_tables(plan));
    for (uint32_t i = 0; i < step->n_buffers; i++)
        assert_null(strstr(step->buffers[i].name, "slot_of_row")); // nobody gathers
    world_free(world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_invariance),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_drops),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_gpus),
    };
    return cmocka_run_group_tests_name("layouts.ep", tests, world_setup, world_teardown);
}
