// SPDX-License-Identifier: Apache-2.0
// Plans of many ranks: their text, and each rule about what crosses ranks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/plan/sample.h"

#define EVAL(plan) (&(plan)->programs[0])
#define EDIT(name, ...) static void name(Plan *plan) { __VA_ARGS__; }

EDIT(no_axis, plan->mesh.size[AXIS_edp] = 0)
EDIT(many_ranks, plan->mesh.size[AXIS_edp] = plan->mesh.size[AXIS_ep] = 1 << 16)
EDIT(far_stage, plan->mesh.stage = 1)
EDIT(far_op, EVAL(plan)->instrs[1].op = N_PLAN_OPS)
EDIT(far_group, EVAL(plan)->instrs[1].group = N_GROUPS)
EDIT(one_operand, EVAL(plan)->instrs[1].n_operands = 1)
EDIT(added, EVAL(plan)->operands[3].mode = OPERAND_ADD)
EDIT(stepped, EVAL(plan)->operands[2].step = 4)
EDIT(onto_itself, EVAL(plan)->operands[3].buffer = EVAL(plan)->operands[2].buffer)
EDIT(smaller_group, EVAL(plan)->instrs[1].group = GROUP_ep)
EDIT(other_exchange, EVAL(plan)->instrs[3].op = PLAN_gather)
EDIT(other_gather, EVAL(plan)->instrs[1].op = PLAN_exchange)
EDIT(with_operands, EVAL(plan)->instrs[3].op = PLAN_barrier)
EDIT(own_stage, EVAL(plan)->instrs[1].op = PLAN_send; EVAL(plan)->instrs[1].n_operands = 1)
static void in_repeat(Plan *plan) {
    PlanProgram *p = EVAL(plan);
    *ARENA_PUSH(plan->arena, p->repeats, p->n_repeats, p->cap_repeats) = (PlanRepeat){ 1, 1, 2 };
}

typedef struct Case {
    const char *what;
    void (*edit)(Plan *plan);
    const char *rule, *message;
} Case;
static const Case cases[] = {
#define CASE(edit, rule, message) { #edit, edit, rule, message }
    CASE(no_axis, "head", "found edp of 0"),
    CASE(many_ranks, "head", "1048576 ranks at most"),
    CASE(far_stage, "head", "expected a stage below 1, found 1"),
    CASE(far_op, "references", "an operation below 7"),
    CASE(far_group, "references", "a group below 7"),
    CASE(one_operand, "crossing", "(gather): expected 2 operands, found 1"),
    CASE(added, "crossing", "operand 1: expected mode > without a step or an offset, found +="),
    CASE(stepped, "repeats", "expected steps that add up"),
    CASE(onto_itself, "alias", "found \"x\" twice"),
    CASE(smaller_group, "crossing", "the parts of 1 ranks, found 16 bytes of f32 and 48 of f32"),
    CASE(other_exchange, "crossing", "the parts of 3 ranks, found 12 bytes of f32 and 12 of f32"),
    CASE(other_gather, "crossing", "as large as x of 3 ranks"),
    CASE(with_operands, "crossing", "(barrier): expected 0 operands, found 2"),
    CASE(own_stage, "crossing", "expected another stage than 0 below 1, found 0"),
    CASE(in_repeat, "crossing", "outside of repeats"),
#undef CASE
};

static void test_rules(void **state) {
    (void)state;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Plan *plan = sample_ranks(1, 3, 0);
        if (plan_check(plan) != OK) fail_msg("%s", status_message());
        cases[i].edit(plan);
        if (plan_check(plan) == OK) fail_msg("%s passes", cases[i].what);
        char rule[64];
        snprintf(rule, sizeof rule, "plan check, %s:", cases[i].rule);
        if (!strstr(status_message(), rule) || !strstr(status_message(), cases[i].message))
            fail_msg("%s: expected \"%s\" of rule %s, found \"%s\"", cases[i].what, cases[i].message,
                     cases[i].rule, status_message());
        plan_destroy(plan);
    }
}

static void test_text(void **state) {
    (void)state;
    static const int shapes[][3] = { { 1, 3, 0 }, { 2, 1, 0 }, { 2, 1, 1 } };
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        Plan *plan = sample_ranks(shapes[i][0], shapes[i][1], shapes[i][2]), *again;
        if (plan_check(plan) != OK) fail_msg("%s", status_message());
        Text first = { 0 }, second = { 0 };
        plan_print(plan, &first);
        if (plan_parse(first.at, first.bytes, &again) != OK) fail_msg("%s", status_message());
        plan_print(again, &second);
        assert_string_equal(first.at, second.at);
        text_finish(&first);
        text_finish(&second);
        plan_destroy(plan);
        plan_destroy(again);
    }
    Plan *plan = sample_ranks(2, 3, 1);
    Text text = { 0 };
    plan_print(plan, &text);
    assert_non_null(strstr(text.at, "\nmesh pp 2 edp 3 ep 1 stage 1\npeak "));
    assert_non_null(strstr(text.at, "\ninstr 1 @recv 0 > got\n"));
    assert_non_null(strstr(text.at, "\ninstr 5 @barrier world\n"));
    assert_non_null(strstr(text.at, "\ninstr 3 @send 0 back < more\n"));
    text_finish(&text);
    plan_destroy(plan);
}

// A place in the mesh tells plans apart.
static void test_hash(void **state) {
    (void)state;
    Plan *a = sample_ranks(1, 3, 0), *b = sample_ranks(1, 3, 0);
    assert_true(hash_equal(plan_hash(a), plan_hash(b)));
    b->mesh = (PlanMesh){ { 1, 1, 3 }, 0 };
    assert_int_equal(plan_check(b), OK); // dp is both
    assert_false(hash_equal(plan_hash(a), plan_hash(b)));
    plan_destroy(a);
    plan_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests_name("plan.crossing", tests, NULL, NULL);
}
