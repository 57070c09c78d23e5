// SPDX-License-Identifier: Apache-2.0
// Rows in blocks between nodes: the plan's text, and each rule about them. Four ranks of ep on nodes of two:
// each sends its number's rows along its rail, then reads what came.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/plan/sample.h"

#define EVAL(plan) (&(plan)->programs[0])
#define SERIAL "    (void)tile_begin; (void)tile_end;\n"

static uint32_t buffer_of(PlanProgram *program, const char *name) {
    uint32_t i = 0;
    while (strcmp(program->buffers[i].name, name)) i++;
    return i;
}

static PlanBuffer *buffer(Plan *plan, const char *name) {
    return &EVAL(plan)->buffers[buffer_of(EVAL(plan), name)];
}

static void rows(PlanProgram *program, const char *name, int64_t offset, int64_t n, int first, int last) {
    PlanBuffer *at = &program->buffers[sample_buffer(program, name, DTYPE_F32, REGION_act, offset, n * 2, first, last)];
    at->n_dims = 2;
    at->dims[0] = n;
    at->dims[1] = 2;
}

static Plan *make(void) {
    Plan *plan = plan_create();
    plan->model = "blocks";
    plan->tokens = plan->sequence = 4;
    plan->microbatches = 1;
    plan->mesh = (PlanMesh){ { 1, 1, 4 }, 0, 2 };
    PlanProgram *program = sample_program(plan, "eval");
    sample_source(plan, "");
    sample_kernel(plan, "plan", "const i32 tokens, mut i32 sizes",
                  SERIAL "    for (int i = 0; i < 4; i++) sizes[i] = tokens[i];", 1);
    sample_kernel(plan, "fill", "const i32 tokens, mut f32 out",
                  SERIAL "    for (int i = 0; i < 8; i++) out[i] = (float)tokens[i / 2];", 1);
    sample_kernel(plan, "take", "const f32 in, const f32 out, mut f32 y",
                  SERIAL "    for (int i = 0; i < 4; i++) y[i] = in[2 * i] + out[0];", 1);
    sample_buffer(program, "tokens", DTYPE_I32, REGION_io, 0, 4, -1, -1);
    sample_buffer(program, "y", DTYPE_F32, REGION_io, PLAN_GRAIN, 4, -1, -1);
    *ARENA_PUSH(plan->arena, program->inputs, program->n_inputs, program->cap_inputs) =
        (PlanInput){ INPUT_tokens, 0, 0 };
    *ARENA_PUSH(plan->arena, program->outputs, program->n_outputs, program->cap_outputs) = (PlanOutput){ "y", 1 };
    sample_buffer(program, "sizes", DTYPE_I32, REGION_act, 0, 4, 0, 2);
    rows(program, "out", PLAN_GRAIN, 4, 1, 3);
    rows(program, "in", 2 * PLAN_GRAIN, 8, 2, 3);
    sample_segment(program, "forward");
    sample_instr(plan, program, "plan", "< tokens, > sizes");
    sample_instr(plan, program, "fill", "< tokens, > out");
    sample_crossing(program, PLAN_blocks, GROUP_rail, 0, "< sizes, < out, > in");
    program->instrs[2].even = 2.5;
    sample_instr(plan, program, "take", "< in, < out, > y");
    sample_row(program, 0, 0);
    sample_finish(plan);
    return plan;
}

#define EDIT(name, ...) static void name(Plan *plan) { __VA_ARGS__; }
EDIT(uneven_nodes, plan->mesh.node = 3)
EDIT(no_node, plan->mesh.node = -2)
EDIT(real_sizes, buffer(plan, "sizes")->dtype = DTYPE_F32; plan->kernels[0].args[1].dtype = DTYPE_F32)
EDIT(all_of_ep, EVAL(plan)->instrs[2].group = GROUP_ep)
EDIT(wider_rows, buffer(plan, "in")->dims[0] = 4; buffer(plan, "in")->dims[1] = 4)
EDIT(many_rows, EVAL(plan)->instrs[2].even = 4.5)
EDIT(no_number, EVAL(plan)->instrs[2].even = (double)NAN)
EDIT(no_sizes, EVAL(plan)->operands[EVAL(plan)->instrs[2].operands].mode = OPERAND_WRITE)
EDIT(onto_itself, EVAL(plan)->operands[EVAL(plan)->instrs[2].operands + 2].buffer = buffer_of(EVAL(plan), "out"))
// What arrives lands where the rows that are sent are still read.
EDIT(onto_read, buffer(plan, "in")->offset = PLAN_GRAIN)
EDIT(short_life, buffer(plan, "in")->last = 2)

typedef struct Case {
    const char *what;
    void (*edit)(Plan *plan);
    const char *rule, *message;
} Case;
static const Case cases[] = {
#define CASE(edit, rule, message) { #edit, edit, rule, message }
    CASE(uneven_nodes, "head", "expected nodes that divide 4 ranks of ep, found nodes of 3"),
    CASE(no_node, "head", "found nodes of -2"),
    CASE(real_sizes, "crossing", "expected \"sizes\" to be i32 of 2 x 2 ranks, found 16 bytes of f32"),
    CASE(all_of_ep, "crossing", "expected \"sizes\" to be i32 of 2 x 4 ranks"),
    CASE(wider_rows, "crossing", "expected rows of \"out\" and \"in\" alike, found 8 bytes of f32 and 16 of f32"),
    CASE(many_rows, "crossing", "expected at most the 4 rows of \"out\" at even loads, found 4.5"),
    CASE(no_number, "crossing", "at even loads, found nan"),
    CASE(no_sizes, "crossing", "operand 0: expected mode <"),
    CASE(onto_itself, "alias", "found \"out\" twice"),
    CASE(onto_read, "clash", "\"in\""),
    CASE(short_life, "lives", "\"in\""),
#undef CASE
};

static void test_rules(void **state) {
    (void)state;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Plan *plan = make();
        if (plan_check(plan) != OK) fail_msg("%s", status_message());
        cases[i].edit(plan);
        if (plan_check(plan) == OK) fail_msg("%s passes", cases[i].what);
        char rule[64];
        snprintf(rule, sizeof rule, "plan check, %s:", cases[i].rule);
        if (!strstr(status_message(), rule) || !strstr(status_message(), cases[i].message))
            fail_msg("%s: expected \"%s\" of rule %s, found \"%s\"", cases[i].what, cases[i].message, cases[i].rule,
                     status_message());
        plan_destroy(plan);
    }
}

static void test_text(void **state) {
    (void)state;
    Plan *plan = make(), *again;
    Text first = { 0 }, second = { 0 };
    plan_print(plan, &first);
    assert_non_null(strstr(first.at, "\nmesh pp 1 edp 1 ep 4 node 2 stage 0\npeak "));
    assert_non_null(strstr(first.at, "\ninstr 2 @blocks rail even 0x1.4p+1 < sizes < out > in\n"));
    if (plan_parse(first.at, first.bytes, &again) != OK) fail_msg("%s", status_message());
    plan_print(again, &second);
    assert_string_equal(first.at, second.at);
    text_finish(&first);
    text_finish(&second);
    plan_destroy(plan);
    plan_destroy(again);
}

// A rank gives the one other member of its rail 2.5 rows of 8 bytes.
static void test_traffic(void **state) {
    (void)state;
    Plan *plan = make();
    PlanTraffic traffic;
    plan_traffic(plan, EVAL(plan), &traffic);
    assert_true(traffic.bytes[MOVE_blocks][LINK_stage] == 20);
    assert_int_equal(plan_group_size(plan, GROUP_rail), 2);
    assert_int_equal(plan_group_size(plan, GROUP_node), 2);
    assert_int_equal(plan_group_size(plan, GROUP_ep), 4);
    assert_true(plan_group_holds(GROUP_ep, GROUP_rail) && plan_group_holds(GROUP_dp, GROUP_node));
    assert_false(plan_group_holds(GROUP_rail, GROUP_node));
    plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_traffic),
    };
    return cmocka_run_group_tests_name("plan.blocks", tests, NULL, NULL);
}
