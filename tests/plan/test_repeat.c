// SPDX-License-Identifier: Apache-2.0
// Rules of repeats, and their text.
#include "tests/plan/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define HALVES(plan) plan_program(plan, "halves")

static PlanBuffer *buffer(Plan *plan, const char *name) {
    PlanProgram *program = HALVES(plan);
    uint32_t i = 0;
    while (i < program->n_buffers && strcmp(program->buffers[i].name, name)) i++;
    assert_true(i < program->n_buffers);
    return &program->buffers[i];
}

#define EDIT(name, ...)                                                                            \
    static void name(Plan *plan) {                                                                 \
        __VA_ARGS__;                                                                               \
    }

EDIT(no_trips, HALVES(plan)->repeats[0].trip = 0)
EDIT(no_instructions, HALVES(plan)->repeats[0].n = 0)
EDIT(past_the_segment, HALVES(plan)->repeats[0].n = 3)
EDIT(outside, HALVES(plan)->repeats[0].first = 7)
EDIT(negative, HALVES(plan)->repeats[0].first = -1)
EDIT(three_trips, HALVES(plan)->repeats[0].trip = 3)
EDIT(huge_trips, HALVES(plan)->repeats[0].trip = INT32_MAX;
     HALVES(plan)->operands[0].step = INT64_MAX / 4)
EDIT(step_outside, HALVES(plan)->n_repeats = 0)
EDIT(step_back, HALVES(plan)->operands[0].step *= -1)
EDIT(short_step, HALVES(plan)->operands[3].step -= 4)
EDIT(short_life, HALVES(plan)->repeats[0].n = 1; HALVES(plan)->operands[3].step = 0)
EDIT(late_life, buffer(plan, "t")->last = 0)
static void two_steps(Plan *plan) { // reads t in pieces that are written whole
    PlanBuffer *t = buffer(plan, "t");
    t->dims[0] = plan->tokens;
    t->bytes = plan->tokens * 4;
    HALVES(plan)->operands[1].step = plan->tokens * 2;
    sample_finish(plan);
}
static void read_after(Plan *plan) { // an instruction behind the repeat reads t
    PlanProgram *program = HALVES(plan);
    HALVES(plan)->repeats[0].n = 1;
    program->operands[3].step = 0;
    sample_finish(plan);
}

static const struct Case {
    const char *what;
    void (*edit)(Plan *);
    const char *message;
} cases[] = {
#define CASE(edit, message)                                                                        \
    { #edit, edit, "plan check, repeats: program \"halves\", " message }
    CASE(no_trips, "instruction 0: expected 1 or more trips of 1 or more"),
    CASE(no_instructions, "instruction 0: expected 1 or more trips of 1 or more"),
    CASE(past_the_segment, "instruction 0: expected a repeat inside of one segment, found 3"),
    CASE(outside, "instruction 7: expected a repeat inside of one segment"),
    CASE(negative, "instruction -1: expected 1 or more trips"),
    CASE(three_trips,
         "instruction 0: buffer \"scale\": expected steps that add up to its 32 bytes "),
    CASE(huge_trips, "instruction 0: buffer \"scale\": expected steps"),
    CASE(step_outside, "instruction 0: buffer \"scale\": expected steps"),
    CASE(step_back, "instruction 0: buffer \"scale\": expected steps"),
    CASE(short_step, "instruction 1: buffer \"y\": expected steps"),
    CASE(short_life, "instruction 1: buffer \"t\": expected what every trip writes anew only in"),
    CASE(two_steps, "instruction 1: buffer \"t\": expected one step for what is written in pieces"),
    CASE(read_after, "instruction 1: buffer \"t\": expected what every trip writes anew only in"),
};

static void test_bad(void **state) {
    (void)state;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Plan *plan = sample_plan(8, 2);
        sample_halves(plan);
        cases[i].edit(plan);
        if (plan_check(plan) == OK) fail_msg("%s: accepted", cases[i].what);
        const char *found = strstr(status_message(), "instruction");
        const char *expected = strstr(cases[i].message, "instruction");
        if (!strstr(status_message(), "plan check, repeats: program \"halves\"") || !found ||
            strncmp(found, expected, strlen(expected)))
            fail_msg("%s: expected \"%s\", found \"%s\"", cases[i].what, cases[i].message,
                     status_message());
        plan_destroy(plan);
    }
    Plan *plan = sample_plan(8, 2);
    sample_halves(plan);
    late_life(plan);
    assert_int_not_equal(plan_check(plan), OK); // whichever rule sees it first
    plan_destroy(plan);
}

static void test_text(void **state) {
    (void)state;
    Plan *plan = sample_plan(8, 2), *again = NULL;
    sample_halves(plan);
    if (plan_check(plan) != OK) fail_msg("%s", status_message());
    Text text = { 0 }, second = { 0 };
    plan_print(plan, &text);
    assert_non_null(strstr(text_cstr(&text), "segment forward\nrepeat 2 of 2\n"
                                             "instr 0 doubled < scale step 0x10 > t\n"
                                             "instr 1 plus < t > y step 0x10\nrow "));
    assert_int_equal(plan_parse(text.at, text.bytes, &again), OK);
    plan_print(again, &second);
    assert_string_equal(text_cstr(&text), text_cstr(&second));
    assert_int_equal(plan_check(again), OK);
    assert_true(hash_equal(plan_hash(plan), plan_hash(again)));
    HALVES(again)->repeats[0].trip = 1;
    assert_false(hash_equal(plan_hash(plan), plan_hash(again)));
    text_finish(&text), text_finish(&second);
    plan_destroy(again);
    plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bad), cmocka_unit_test(test_text) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
