// SPDX-License-Identifier: Apache-2.0
// Rows between nodes in parts of one size, as GPUs have them: the bits of blocks, and the bytes that the plan says
// whatever tokens choose; on virtual GPUs, through their hosts, what CPUs compute. layouts.blocks has more shapes.
#include "tests/layouts/blocks.h"

#include <stdio.h>
#include <stdlib.h>

static const Blocks cases[] = {
    { 4, 4, 2, "some", "8", "3", "5", "false", 1, 0, true, false },   // tokens without experts
    { 2, 2, 1, "hot", "4", "2", "5", "true", 1, 1, false, false },    // copies are dropped
};

// Nothing goes in blocks: what crosses nodes has one size.
static void check_bytes(const WorldJob *job, const World *world) {
    PlanTraffic plan;
    plan_traffic(world->plans[0], plan_program(world->plans[0], "step"), &plan);
    assert_true(plan.bytes[MOVE_blocks][LINK_stage] == 0 && plan.bytes[MOVE_exchange][LINK_stage] > 0);
    for (int r = 0; r < world->n_ranks; r++)
        for (int move = MOVE_gather; move <= MOVE_exchange; move++)
            if (world->ranks[r].moved.bytes[move][LINK_stage] != job->steps * plan.bytes[move][LINK_stage])
                fail_msg("rank %d: %g bytes of move %d in %d steps, planned %g a step", r,
                         world->ranks[r].moved.bytes[move][LINK_stage], move, job->steps, plan.bytes[move][LINK_stage]);
}

static void test_bits(void **state) {
    (void)state;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        WorldJob blocks = blocks_layout(blocks_job(&cases[i]), cases[i].node), whole;
        blocks.steps = 2;
        whole = blocks;
        whole.whole_blocks = true;
        World *a = world_run(&whole), *b = world_run(&blocks);
        world_equal_bits(a, b);
        check_bytes(&whole, a);
        world_free(a), world_free(b);
    }
}

// A token crosses once for each other node, a sum comes back once, and kernels reach ranks of the node only.
static void test_plan(void **state) {
    (void)state;
    WorldJob job = blocks_layout(blocks_job(&cases[0]), 2);
    job.whole_blocks = true;
    Plan *plan = world_plan(&job, 0);
    PlanProgram *step = plan_program(plan, "step");
    int gathers = 0, sums = 0;
    for (uint32_t i = 0; i < step->n_instrs; i++) {
        const PlanInstr *instr = &step->instrs[i];
        const PlanBuffer *from = &step->buffers[step->operands[instr->operands].buffer];
        assert_int_not_equal(instr->op, PLAN_blocks);
        for (uint32_t k = 0; k < instr->n_operands; k++) {
            const PlanOperand *operand = &step->operands[instr->operands + k];
            if (operand_is_remote(operand->mode)) assert_int_equal(operand->group, GROUP_node);
        }
        if (instr->op == PLAN_launch || instr->group != GROUP_rail || strstr(from->name, "route")) continue;
        gathers += instr->op == PLAN_gather && from->dims[0] == plan->tokens;
        sums += instr->op == PLAN_exchange && from->dims[0] == 2 * plan->tokens;
    }
    assert_true(gathers >= 2 && sums >= 2); // forward and backward
    plan_destroy(plan);
}

static void on_gpus(const Blocks *c, int steps) {
    WorldJob rows = blocks_job(c), job;
    rows.steps = steps;
    rows.microbatches = 1;
    job = blocks_layout(rows, c->node);
    job.device = "vgpu:sm_80";
    job.poison = c->node == 1; // else what is read, or sent, was written
    World *a = world_run(&job), *b = world_run(&rows);
    const char *where = "";
    double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b);
    printf("%s, nodes of %d of %d: gradients within %.2g (%s) of CPUs' by rows, losses within %.2g\n", job.device,
           c->node, c->ep, gradient, where, loss);
    assert_true(gradient <= (c->bf16 ? 2e-2 : 1e-5));
    assert_true(loss <= (c->bf16 ? 1e-3 : 1e-6));
    for (int s = 0; s < steps; s++) assert_true(a->served[s] == b->served[s] && a->dropped[s] == b->dropped[s]);
    check_bytes(&job, a);
    world_free(b);
    b = world_run(&job);
    world_equal_bits(a, b);
    world_free(a), world_free(b);
}

static void test_gpus(void **state) {
    (void)state;
    world_needs_gpus();
    for (int i = 0; i < COUNT_OF(cases); i++) on_gpus(&cases[i], 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_gpus),
    };
    return cmocka_run_group_tests_name("layouts.rails", tests, world_setup, world_teardown);
}
