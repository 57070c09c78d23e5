// SPDX-License-Identifier: Apache-2.0
// Plans whose ranks read and write each other's memory: their text, and what is refused of them.
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

static PlanBuffer *buffer(Plan *plan, const char *name) {
    PlanProgram *program = EVAL(plan);
    for (uint32_t i = 0; i < program->n_buffers; i++)
        if (!strcmp(program->buffers[i].name, name)) return &program->buffers[i];
    return NULL;
}

// The i-th operand of an instruction.
static PlanOperand *operand(Plan *plan, int instr, int i) {
    return &EVAL(plan)->operands[EVAL(plan)->instrs[instr].operands + (uint32_t)i];
}

// A barrier that these ranks do not share.
static void lose(Plan *plan, int instr) {
    EVAL(plan)->instrs[instr].op = PLAN_barrier;
    EVAL(plan)->instrs[instr].group = GROUP_edp;
}

EDIT(sound, (void)plan)
EDIT(put_into_act, buffer(plan, "rows")->region = REGION_act; buffer(plan, "rows")->offset = 4096)
EDIT(far_put_group, operand(plan, 3, 2)->group = N_GROUPS)
EDIT(put_to_stages, operand(plan, 3, 2)->group = GROUP_world)
EDIT(two_groups, operand(plan, 3, 2)->group = GROUP_dp; operand(plan, 7, 0)->group = GROUP_ep;
     operand(plan, 9, 2)->buffer = operand(plan, 3, 2)->buffer)
EDIT(put_of_an_address, plan->kernels[2].args[2].dtype = DTYPE_F32)
EDIT(put_to_mutable, plan->kernels[2].args[2].is_const = false)
EDIT(lost_first, lose(plan, 8))
EDIT(unread_put, lose(plan, 4))
EDIT(early_get, lose(plan, 6))
EDIT(early_read, lose(plan, 10))
// Without the barrier of backward a put may overtake the get of forward, and of the row before.
EDIT(shared_at_once, buffer(plan, "back")->first = 6)
EDIT(shared_alive, buffer(plan, "back")->offset = 0)
// What is sent in forward is still read at the end of the row, while the next row's puts may come.
static void next_row(Plan *plan) {
    PlanProgram *p = EVAL(plan);
    PlanInstr exchange = p->instrs[2];
    p->instrs[2] = p->instrs[3];
    p->instrs[3] = exchange; // the put is before it
    operand(plan, 2, 1)->buffer = operand(plan, 3, 0)->buffer;
    buffer(plan, "all")->last = 3;
}

typedef struct Case {
    const char *what;
    void (*edit)(Plan *plan);
    const char *rule, *message;
} Case;
static const Case cases[] = {
#define CASE(edit, rule, message) { #edit, edit, rule, message }
    CASE(sound, NULL, NULL),
    CASE(put_into_act, "sizes", "to end inside"),
    CASE(far_put_group, "references", "a group below 7"),
    CASE(put_to_stages, "remote", "a group of ranks of one stage behind >> \"rows\", found world"),
    CASE(two_groups, "remote", "to be reached by one group"),
    CASE(put_of_an_address, "launch", "expected f32 for parameter \"rows\""),
    CASE(put_to_mutable, "launch", "expected mode > or += or = for the written"),
    CASE(lost_first, "remote", "put into \"back\" (bytes 256..288): expected the ranks of ep to meet "
                               "after the last get from \"more\""),
    CASE(unread_put, "remote", "read of \"rows\""),
    CASE(early_get, "remote", "get from \"more\" (bytes 256..272): expected the ranks of ep to meet "
                              "after the last write to \"more\""),
    CASE(early_read, "remote", "read of \"back\""),
    CASE(shared_at_once, "clash", "\"more\""),
    CASE(shared_alive, "clash", "\"rows\""),
    CASE(next_row, "remote", "put into \"rows\" (bytes 0..32): expected the ranks of ep to meet after "
                             "the last use of"),
};

static void check_cases(Plan *(*sample)(int), int microbatches, const Case *list, int n) {
    for (int i = 0; i < n; i++) {
        Plan *plan = sample(microbatches);
        list[i].edit(plan);
        Status status = plan_check(plan);
        if (!list[i].rule) {
            if (status != OK) fail_msg("%s: %s", list[i].what, status_message());
        } else {
            if (status == OK) fail_msg("%s passes", list[i].what);
            char rule[64];
            snprintf(rule, sizeof rule, "plan check, %s:", list[i].rule);
            if (!strstr(status_message(), rule) || !strstr(status_message(), list[i].message))
                fail_msg("%s: expected \"%s\" of rule %s, found \"%s\"", list[i].what,
                         list[i].message, list[i].rule, status_message());
        }
        plan_destroy(plan);
    }
}

static void test_rules(void **state) {
    (void)state;
    check_cases(sample_remote, 2, cases, COUNT_OF(cases));
}

/* Counted repeats ------------------------------------------------------------------------------ */

static void count_by(Plan *plan, const char *name) {
    EVAL(plan)->repeats[0].count = (uint32_t)(buffer(plan, name) - EVAL(plan)->buffers) + 1;
}

EDIT(never_counted, EVAL(plan)->repeats[0].count = 0)
EDIT(counted_by_nothing, EVAL(plan)->repeats[0].count = 99)
EDIT(counted_by_reals, count_by(plan, "x"))
EDIT(counted_by_inputs, count_by(plan, "tokens"))
EDIT(counted_by_one, count_by(plan, "wished"); buffer(plan, "wished")->last = 6)
EDIT(counted_by_parts, count_by(plan, "own"))
EDIT(counted_under_way, EVAL(plan)->instrs[4].half = HALF_start)
EDIT(half_inside, EVAL(plan)->instrs[7] = EVAL(plan)->instrs[2]; EVAL(plan)->instrs[7].half = HALF_start)
EDIT(counts_itself, EVAL(plan)->repeats[0].first = 4; EVAL(plan)->repeats[0].n = 6)
EDIT(forgotten, buffer(plan, "rounds")->last = 5)
EDIT(in_pieces, operand(plan, 8, 1)->step = 4)
// The next round's puts overtake the reads of this one.
EDIT(next_round, EVAL(plan)->instrs[9] = EVAL(plan)->instrs[8]) // instead of the barrier
EDIT(this_round, EVAL(plan)->instrs[7] = EVAL(plan)->instrs[8])
// What meets in a repeat may never meet.
EDIT(may_not_meet, EVAL(plan)->repeats[0].first = 7; EVAL(plan)->repeats[0].n = 1;
     buffer(plan, "rounds")->last = 7)
EDIT(meets_behind, EVAL(plan)->repeats[0].n = 3)
EDIT(counted_elsewhere, EVAL(plan)->instrs[7].group = GROUP_world)
static void sends_inside(Plan *plan) {
    plan->mesh.size[AXIS_pp] = 2;
    EVAL(plan)->instrs[9] = (PlanInstr){ .op = PLAN_send, .group = GROUP_pp, .peer = 1 };
}

static const Case counted[] = {
    CASE(sound, NULL, NULL),
    CASE(never_counted, "remote", "expected >> \"rows\" outside of repeats"),
    CASE(counted_by_nothing, "repeats", "expected a buffer below 8 to count trips, found 98"),
    CASE(counted_by_reals, "repeats", "expected i32 of act to count trips, found \"x\", f32 of act"),
    CASE(counted_by_inputs, "repeats", "found \"tokens\", i32 of io"),
    CASE(counted_by_one, "remote", "a repeat whose trips the ranks of ep agree on: counted by \"wished\""),
    CASE(counted_by_parts, "remote", "a repeat whose trips the ranks of ep agree on: counted by \"own\""),
    CASE(counted_under_way, "remote", "a repeat whose trips the ranks of ep agree on: counted by \"rounds\""),
    CASE(half_inside, "crossing", "instruction 7 (exchange): expected it outside of repeats"),
    CASE(counts_itself, "repeats", "expected \"rounds\" to be written before what it counts"),
    CASE(forgotten, "lives", "instruction 6: expected buffer \"rounds\" only in its life 4..5"),
    CASE(in_pieces, "repeats", "buffer \"y\": expected no writes in pieces"),
    CASE(next_round, "remote", "put into \"rows\" (bytes 0..32): expected the ranks of ep to meet after the "
                               "last use of \"rows\" (bytes 0..32), of instruction 9"),
    CASE(this_round, "remote", "instruction 7: read of \"rows\""),
    CASE(may_not_meet, "remote", "instruction 8: read of \"rows\""),
    CASE(meets_behind, "remote", "put into \"rows\" (bytes 0..32): expected the ranks of ep to meet after the "
                                 "last use of"),
    CASE(counted_elsewhere, "crossing", "a repeat whose trips the ranks of world agree on"),
    CASE(sends_inside, "crossing", "instruction 9 (send): expected it outside of repeats"),
};
#undef CASE

static void test_counted(void **state) {
    (void)state;
    for (int n = 1; n <= 9; n += 4) check_cases(sample_rounds, n, counted, COUNT_OF(counted));
}

// However many rows there are.
static void test_rows(void **state) {
    (void)state;
    for (int n = 1; n <= 9; n += 4) {
        Plan *plan = sample_remote(n);
        assert_int_equal(plan_check(plan), OK);
        lose(plan, 8); // the put of backward may overtake the get of forward
        assert_int_equal(plan_check(plan), ERR_FORMAT);
        // At addresses of their own they may: before the next row's put there is the exchange.
        buffer(plan, "back")->offset = 2 * PLAN_GRAIN;
        plan->region_bytes[REGION_sym] = plan_window(plan) + plan_tables(plan);
        if (plan_check(plan) != OK) fail_msg("%s", status_message());
        plan_destroy(plan);
    }
}

static void test_text(void **state) {
    (void)state;
    Plan *plan = sample_remote(2), *again;
    Text first = { 0 }, second = { 0 };
    plan_print(plan, &first);
    assert_non_null(strstr(first.at, "\nregion sym 560\n")); // 288, in whole grains, and 3 tables
    assert_non_null(strstr(first.at, "\ninstr 3 spread < x < own >> rows ep\n"));
    assert_non_null(strstr(first.at, "\ninstr 7 fetch << more ep > y\n"));
    if (plan_parse(first.at, first.bytes, &again) != OK) fail_msg("%s", status_message());
    plan_print(again, &second);
    assert_string_equal(first.at, second.at);
    assert_int_equal(plan_peak(plan), plan_peak(again));
    text_finish(&first);
    text_finish(&second);
    plan_destroy(plan);
    plan_destroy(again);
    plan = sample_plan(8, 2); // nothing of it where there is none
    plan_print(plan, &first);
    assert_null(strstr(first.at, "sym"));
    text_finish(&first);
    plan_destroy(plan);
    plan = sample_rounds(2);
    first = second = (Text){ 0 };
    plan_print(plan, &first);
    assert_non_null(strstr(first.at, "\nrepeat 3 of 4 by rounds\ninstr 6 spread < x < own >> rows ep\n"));
    if (plan_parse(first.at, first.bytes, &again) != OK) fail_msg("%s", status_message());
    plan_print(again, &second);
    assert_string_equal(first.at, second.at);
    assert_int_equal(plan_check(again), OK);
    count_by(again, "own");
    assert_false(hash_equal(plan_hash(plan), plan_hash(again)));
    text_finish(&first);
    text_finish(&second);
    plan_destroy(plan);
    plan_destroy(again);
}

// Experts by number: in order, and as a map says.
static void test_experts(void **state) {
    (void)state;
    static const int32_t owner[] = { 1, 0, 0, 1, 1, 0 };
    PlanParam param = { .name = "w", .per_expert = true, .n_dims = 2, .dims = { 3, 5 }, .experts = 6 };
    assert_int_equal(plan_whole_numbers(&param), 30);
    assert_int_equal(plan_expert(&param, 1, 2), 5);
    assert_int_equal(plan_whole_number(&param, 1, 7), 4 * 5 + 2);
    param.owner = owner;
    static const int32_t here[2][3] = { { 1, 2, 5 }, { 0, 3, 4 } };
    for (int rank = 0; rank < 2; rank++)
        for (int i = 0; i < 3; i++) {
            assert_int_equal(plan_expert(&param, rank, i), here[rank][i]);
            assert_int_equal(plan_whole_number(&param, rank, i * 5 + 4), here[rank][i] * 5 + 4);
        }
    param.experts = 0; // all are here
    assert_int_equal(plan_whole_number(&param, 0, 14), 14);
    assert_int_equal(plan_whole_numbers(&param), 15);

    Plan *plan = sample_plan(8, 2), *again;
    PlanParam *first = &plan->params[0];
    first->per_expert = true;
    first->experts = 6;
    first->owner = owner;
    Text text = { 0 };
    plan_print(plan, &text);
    assert_non_null(strstr(text.at, " expert of 6 on 1,0,0,1,1,0\n"));
    if (plan_parse(text.at, text.bytes, &again) != OK) fail_msg("%s", status_message());
    assert_int_equal(again->params[0].experts, 6);
    assert_memory_equal(again->params[0].owner, owner, sizeof owner);
    text_finish(&text);
    plan_destroy(again);
    assert_int_equal(plan_check(plan), ERR_FORMAT);
    assert_non_null(strstr(status_message(), "expected 8 experts on each of 1 ranks, found 6 in all"));
    plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_counted),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests_name("plan.remote", tests, NULL, NULL);
}
