// SPDX-License-Identifier: Apache-2.0
// Experts on other ranks without drops, in rounds: whatever the tokens choose, results are those of room for
// all rows at once, and memory is that of a round. layouts.long_rounds has more shapes.
#include "tests/layouts/rounds.h"

#include <math.h>
#include <stdio.h>

static const Rounds cases[] = {
    { 2, 2, 0.5, "hot", "4", "1", "7", "false", true, false },  // one expert takes all, over all rounds
    { 4, 4, 0.4, "lower", "8", "3", "5", "true", true, false }, // ranks without rows; three of a token
    { 4, 4, 0.4, "lower", "8", "3", "5", "true", true, false, .node = 2 },
};

static void test_equal(void **state) {
    (void)state;
    for (int i = 0; i < COUNT_OF(cases); i++) assert_true(rounds_compare(&cases[i]) > 0); // further rounds did run
}

/* Plans ---------------------------------------------------------------------------------------- */

static void count_crossings(const PlanProgram *program, int out[2]) {
    out[0] = out[1] = 0;
    for (uint32_t i = 0; i < program->n_instrs; i++)
        out[plan_repeat(program, i) != NULL] += program->instrs[i].op != PLAN_launch;
}

// Rounds cost memory of one round, and when all rows fit no call more than room for all does.
static void test_plan(void **state) {
    (void)state;
    static const Rounds eight = { 8, 8, 1.25, "learned", "16", "2", "32", "false", false, false };
    WorldJob job = rounds_job(&eight), whole = rounds_at_once(job);
    job.microbatch = whole.microbatch = 8;
    Plan *a = world_plan(&job, 0), *b = world_plan(&whole, 0), *again;
    const PlanProgram *step = plan_program(a, "step"), *step_whole = plan_program(b, "step");
    printf("peak %lld of %lld bytes; act %lld of %lld, sym %lld of %lld\n", (long long)plan_peak(a),
           (long long)plan_peak(b), (long long)a->region_bytes[REGION_act], (long long)b->region_bytes[REGION_act],
           (long long)a->region_bytes[REGION_sym], (long long)b->region_bytes[REGION_sym]);
    assert_true(2 * plan_peak(a) < plan_peak(b));
    assert_int_equal(rounds_counted(step), 2);
    for (uint32_t r = 0; r < step->n_repeats; r++)
        if (step->repeats[r].count) assert_int_equal(step->repeats[r].trip, 6); // 8 / 1.25 rounds up to 7
    int met[2], met_whole[2];
    count_crossings(step, met);
    count_crossings(step_whole, met_whole);
    assert_int_equal(met[0], met_whole[0]);
    assert_int_equal(met[1], 4); // two a set
    PlanTraffic moved, moved_whole;
    plan_traffic(a, step, &moved);
    plan_traffic(b, step_whole, &moved_whole);
    assert_true(moved.bytes[MOVE_put][LINK_stage] == moved_whole.bytes[MOVE_put][LINK_stage]);
    assert_true(moved.bytes[MOVE_get][LINK_stage] == moved_whole.bytes[MOVE_get][LINK_stage]);
    Text text = { 0 }, second = { 0 };
    plan_print(a, &text);
    if (plan_parse(text.at, text.bytes, &again) != OK) fail_msg("%s", status_message());
    plan_print(again, &second);
    assert_string_equal(text_cstr(&text), text_cstr(&second));
    assert_int_equal(plan_check(again), OK);
    text_finish(&text), text_finish(&second);
    plan_destroy(a), plan_destroy(b), plan_destroy(again);
}

// Every meeting in a repeat is needed, and every count.
static void test_mutated(void **state) {
    (void)state;
    Plan *plan;
    for (uint32_t i = 0; i < 4; i++) { // of rows one by one, and in blocks
        WorldJob job = rounds_job(&cases[i / 2 * 2]);
        uint32_t r = i % 2;
        plan = world_plan(&job, 0);
        PlanProgram *step = plan_program(plan, "step");
        PlanRepeat *repeat = &step->repeats[r], was = *repeat;
        assert_true(was.count > 0);
        assert_int_equal(plan_check(plan), OK);
        repeat->count = 0;
        assert_int_equal(plan_check(plan), ERR_FORMAT);
        for (uint32_t b = 0; b < step->n_buffers; b++) { // by any other buffer
            repeat->count = b + 1;
            if (repeat->count != was.count) assert_int_equal(plan_check(plan), ERR_FORMAT);
        }
        *repeat = was;
        for (int32_t k = was.first; k < was.first + was.n; k++) {
            PlanInstr *instr = &step->instrs[k], kept = *instr;
            if (instr->op != PLAN_barrier) continue;
            *instr = step->instrs[was.first]; // the round again: harmless by itself
            assert_int_equal(plan_check(plan), ERR_FORMAT);
            assert_non_null(strstr(status_message(), "plan check, remote"));
            *instr = kept;
        }
        repeat->n--; // the last kernel runs once
        assert_int_equal(plan_check(plan), ERR_FORMAT);
        *repeat = was;
        assert_int_equal(plan_check(plan), OK);
        plan_destroy(plan);
    }
}

// What rounds cannot do is refused by name, with what can be done.
static void test_refused(void **state) {
    (void)state;
    Text error = { 0 };
    SpecArg args[] = { { "way", "twice" } };
    SpecOptions options = { .args = args, .n_args = 1 };
    Model *model = spec_load(MOEC_SOURCE_DIR "/tests/layouts/specs/returns.lua", &options, &error);
    assert_non_null(model);
    Layout layout = layout_single();
    layout.dp = layout.ep = 4;
    layout.capacity = INFINITY;
    layout.round = 1;
    LowerOptions lower = { .microbatch = 1, .microbatches = 1, .programs = { [PROGRAM_STEP] = true },
                           .layout = &layout };
    assert_null(lower_model(model, &lower));
    assert_string_equal(model->diag.message,
                        "further rounds of expert rows: rows of a route come back before others are sent on it");
    assert_non_null(strstr(model->diag.hint, "round=whole"));
    layout.round = INFINITY;
    Plan *plan = lower_model(model, &lower);
    assert_non_null(plan);
    plan_destroy(plan);
    model_destroy(model);
    text_finish(&error);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_mutated),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_equal),
    };
    return cmocka_run_group_tests_name("layouts.rounds", tests, world_setup, world_teardown);
}
