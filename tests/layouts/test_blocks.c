// SPDX-License-Identifier: Apache-2.0
// Rows in blocks between nodes: ranks that share no memory, or share it with their node only, compute what
// ranks that reach each other compute, and give each other the bytes that the plan says.
#include "tests/layouts/blocks.h"

#include <math.h>
#include <stdio.h>

static const Blocks cases[] = {
    { 2, 2, 1, "learned", "4", "2", "7", "true", 2, 0, false, false },
    { 4, 4, 2, "learned", "8", "3", "7", "false", 2, 0, true, false },
    { 4, 4, 1, "some", "8", "3", "7", "true", 1, 0, true, false },            // tokens without experts
    { 4, 4, 2, "lower", "8", "2", "5", "false", 1, 0, false, false },         // a node without rows
    { 4, 4, 2, "hot", "4", "1", "7", "false", 1, 0, false, false },           // one expert takes all
    { 4, 2, 1, "learned", "6", "3", "7", "false", 1, 0, true, false },        // two groups of ep
    { 2, 2, 1, "learned", "2", "1", "1", "false", 1, 0, false, false },       // a token
    { 2, 2, 2, "some", "6", "3", "7", "false", 1, 0, false, false },          // nobody is elsewhere
    { 4, 4, 2, "learned", "8", "3", "7", "false", 2, 1, true, false },        // copies are dropped
    { 4, 4, 2, "hot", "8", "2", "7", "false", 2, 1.25, false, false },
    { 4, 4, 2, "some", "8", "3", "13", "true", 1, 0, false, true },           // bf16
    { 4, 4, 2, "learned", "8", "2", "7", "false", 1, 0, true, false, RECOMPUTE_BLOCK },
    { 4, 4, 1, "learned", "4", "2", "7", "true", 1, 0, false, false, RECOMPUTE_NONE },
    { 8, 8, 2, "learned", "8", "3", "5", "false", 1, 0, true, false },        // four nodes
    { 8, 4, 2, "some", "8", "3", "5", "true", 1, 1.25, false, false },
    { 4, 2, 1, "learned", "6", "3", "7", "false", 1, 0, false, false, RECOMPUTE_CHEAP, 0, SCHEDULE_1F1B, PARAMS_FSDP },
    // Several microbatches are under way.
    { 4, 4, 2, "learned", "8", "2", "5", "false", 1, 0, true, false, RECOMPUTE_BLOCK, 2, SCHEDULE_1F1B },
    { 2, 2, 1, "learned", "4", "2", "5", "false", 1, 0, true, false, RECOMPUTE_CHEAP, 2, SCHEDULE_1F1B },
    { 2, 2, 1, "some", "4", "2", "5", "false", 1, 0, false, false, RECOMPUTE_CHEAP, 2, SCHEDULE_ZERO_BUBBLE },
};

static void test_same(void **state) {
    (void)state;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const Blocks *c = &cases[i];
        WorldJob job = blocks_job(c), blocks = blocks_layout(job, c->node);
        World *a = world_run(&blocks), *b = world_run(&job), *whole;
        double dropped = 0, apart = world_loss_error(a, b);
        for (int s = 0; s < job.steps; s++) {
            assert_true(isfinite(a->losses[s]));
            assert_true(c->bf16 || (a->served[s] == b->served[s] && a->dropped[s] == b->dropped[s]));
            dropped += a->dropped[s];
        }
        printf("%s, dp %d ep %d, nodes of %d: losses apart %g, %g copies dropped\n", c->mode, c->dp, c->ep, c->node,
               apart, dropped);
        const char *where = "";
        assert_true(apart <= (c->bf16 ? 1e-3 : 1e-6));
        assert_true(world_gradient_error(a, b, &where) <= (c->bf16 ? 2e-2 : 1e-5));
        if (c->capacity > 0) assert_true(dropped > 0);
        blocks.whole_blocks = true;
        whole = world_run(&blocks);
        world_equal_bits(whole, a);
        world_free(a), world_free(b), world_free(whole);
    }
}

// The one rank that all layouts are measured by.
static void test_invariance(void **state) {
    (void)state;
    for (int i = 1; i <= 2; i++) {
        WorldJob job = blocks_layout(blocks_job(&cases[i]), cases[i].node), single = blocks_job(&cases[i]);
        single.layout = layout_single();
        single.microbatches *= cases[i].dp;
        World *a = world_run(&job), *b = world_run(&single), *again = world_run(&job);
        const char *where = "";
        double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b);
        printf("nodes of %d: gradients within %.2g (%s), losses within %.2g\n", cases[i].node, gradient, where, loss);
        assert_true(gradient <= 1e-5);
        assert_true(loss <= 1e-6);
        world_equal_bits(a, again);
        world_free(a), world_free(b), world_free(again);
    }
}

// Given by each rank in a step as the plan says, where experts are chosen evenly: each token's one, or all.
static void test_bytes(void **state) {
    (void)state;
    static const struct { int ep, node; const char *top_k; } even[] = {
        { 4, 1, "1" }, { 4, 2, "1" }, { 4, 2, "8" }, { 2, 1, "8" }, { 4, 4, "1" },
    };
    for (int i = 0; i < COUNT_OF(even); i++) {
        Blocks c = { even[i].ep, even[i].ep, even[i].node, "learned", "8", even[i].top_k, "8", "false", 2 };
        WorldJob job = blocks_layout(blocks_job(&c), c.node);
        job.steps = 2;
        job.count_rows = true;
        job.routing = ROUTING_UNIFORM;
        job.whole = true;
        World *world = world_run(&job);
        PlanTraffic plan;
        plan_traffic(world->plans[0], plan_program(world->plans[0], "step"), &plan);
        for (int r = 0; r < world->n_ranks; r++)
            for (int move = 0; move < N_MOVES; move++)
                if (world->ranks[r].moved.bytes[move][LINK_stage] != job.steps * plan.bytes[move][LINK_stage])
                    fail_msg("ep %d, nodes of %d, rank %d: %g bytes of move %d in %d steps, planned %g a step", c.ep,
                             c.node, r, world->ranks[r].moved.bytes[move][LINK_stage], move, job.steps,
                             plan.bytes[move][LINK_stage]);
        assert_true((plan.bytes[MOVE_blocks][LINK_stage] > 0) == (c.node < c.ep));
        assert_true((plan.bytes[MOVE_put][LINK_stage] > 0) == (c.node > 1));
        world_free(world);
    }
}

// A token goes to a node once: rows that choose every expert cost no more than those that choose one.
static void test_once(void **state) {
    (void)state;
    double bytes[2];
    for (int i = 0; i < 2; i++) {
        Blocks c = { 4, 4, 2, "learned", "8", i ? "8" : "4", "8", "false", 2 };
        WorldJob job = blocks_layout(blocks_job(&c), 2);
        job.steps = 1;
        job.args[job.n_args++] = (SpecArg){ "width", "64" };
        Plan *plan = world_plan(&job, 0);
        const PlanProgram *step = plan_program(plan, "step");
        bytes[i] = 0;
        for (uint32_t k = 0; k < step->n_instrs; k++) {
            const PlanInstr *instr = &step->instrs[k];
            if (instr->op != PLAN_blocks) continue;
            const PlanBuffer *from = &step->buffers[step->operands[instr->operands + 1].buffer];
            if (strstr(from->name, "dispatch") && from->dims[1] == 64) bytes[i] += instr->even * 4 * 64;
        }
        assert_true(bytes[i] > 0 && bytes[i] <= 2.0 * (double)plan->tokens * 4 * 64);
        plan_destroy(plan);
    }
    assert_true(bytes[1] <= bytes[0] * 70 / 69); // one choice of 4 in 70 misses a node
}

// Ranks of a node meet before what they have put is read, and before it is put again: without one of these
// meetings, or with those of other ranks, no plan passes. Nor does one whose blocks land on what is still read.
static void test_checked(void **state) {
    (void)state;
    WorldJob job = blocks_layout(blocks_job(&cases[1]), 2);
    Plan *plan = world_plan(&job, 0);
    PlanProgram *step = plan_program(plan, "step");
    int meetings = 0, landings = 0;
    assert_int_equal(plan_check(plan), OK);
    for (uint32_t i = 0; i < step->n_instrs; i++) {
        PlanInstr *instr = &step->instrs[i];
        if (instr->op == PLAN_barrier && instr->group == GROUP_node) {
            instr->group = GROUP_rail;
            assert_int_not_equal(plan_check(plan), OK);
            assert_non_null(strstr(status_message(), "plan check, remote:"));
            instr->group = GROUP_node;
            meetings++;
        }
        if (instr->op != PLAN_blocks) continue;
        PlanBuffer *from = &step->buffers[step->operands[instr->operands + 1].buffer],
                   *to = &step->buffers[step->operands[instr->operands + 2].buffer];
        int64_t offset = to->offset;
        to->offset = from->offset;
        assert_int_not_equal(plan_check(plan), OK);
        assert_non_null(strstr(status_message(), "plan check, clash:"));
        to->offset = offset;
        landings++;
    }
    assert_true(meetings >= 4 && landings >= 4);
    assert_int_equal(plan_check(plan), OK);
    plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_checked),
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_invariance),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests_name("layouts.blocks", tests, world_setup, world_teardown);
}
