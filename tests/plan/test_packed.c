// SPDX-License-Identifier: Apache-2.0
// Rules of packed weights: who makes them, who may write them, and that a step leaves none stale.
#include "tests/plan/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define STEP(plan) plan_program(plan, "step")
#define PACK(plan) plan_program(plan, "pack")

static PlanBuffer *buffer(PlanProgram *program, const char *name) {
    uint32_t i = 0;
    while (i < program->n_buffers && strcmp(program->buffers[i].name, name)) i++;
    assert_true(i < program->n_buffers);
    return &program->buffers[i];
}

static PlanOperand *operand(PlanProgram *program, uint32_t instr, uint32_t i) {
    return &program->operands[program->instrs[instr].operands + i];
}

static void no_program(Plan *plan) {
    plan->n_programs--;
}
static void never_again(Plan *plan) { // the step's last instruction packs
    STEP(plan)->n_instrs--;
    STEP(plan)->segments[3].n--;
    sample_finish(plan);
}
static void again_too_early(Plan *plan) { // before "descend" changes the weights
    PlanProgram *step = STEP(plan);
    PlanInstr packs = step->instrs[10];
    for (int i = 10; i > 8; i--) step->instrs[i] = step->instrs[i - 1];
    step->instrs[8] = packs;
    buffer(step, "squares")->last = 9;
    sample_finish(plan);
}
static void again_otherwise(Plan *plan) {
    sample_kernel(plan, "thrice", "const f32 w, mut f32 packed", "    packed[0] = 3 * w[0];", 1);
    STEP(plan)->instrs[10].kernel = plan->n_kernels - 1;
}
static void of_other_weights(Plan *plan) {
    buffer(STEP(plan), "scale")->offset = 256;
}
static void another_place(Plan *plan) {
    buffer(STEP(plan), "packed")->offset = 256;
    sample_finish(plan);
}
static void packed_in_forward(Plan *plan) {
    operand(STEP(plan), 2, 3)->buffer =
        (uint32_t)(buffer(STEP(plan), "packed") - STEP(plan)->buffers);
}
static void packed_in_eval(Plan *plan) {
    PlanProgram *eval = plan_program(plan, "eval");
    PlanBuffer *dy = buffer(eval, "dy");
    dy->region = REGION_packed;
    dy->first = 0;
    sample_finish(plan);
}
static void reads_gradients(Plan *plan) {
    buffer(PACK(plan), "scale")->region = REGION_grads;
}
static void writes_weights(Plan *plan) {
    buffer(PACK(plan), "packed")->region = REGION_weights;
    sample_finish(plan);
}
static void adds(Plan *plan) {
    operand(PACK(plan), 0, 1)->mode = OPERAND_ADD;
}
static void in_a_microbatch(Plan *plan) {
    PACK(plan)->rows[0].microbatch = 0;
}

static const struct Case {
    const char *what;
    void (*edit)(Plan *);
    const char *message;
} cases[] = {
#define CASE(edit, message)                                                                        \
    { #edit, edit, message }
    CASE(no_program, "packed: program \"step\", buffer \"packed\": expected one that program"),
    CASE(never_again, "expected \"packed\" to be packed again after instruction 8"),
    CASE(again_too_early, "expected \"packed\" to be packed again after instruction 9"),
    CASE(again_otherwise, "instruction 10: expected packed weights to be written as program"),
    CASE(of_other_weights, "instruction 10: expected packed weights to be written as program"),
    CASE(another_place, "program \"step\", buffer \"packed\": expected one that program \"pack\""),
    CASE(packed_in_forward, "order: program \"step\", instruction 2, buffer \"packed\": expected"),
    CASE(packed_in_eval, "order: program \"eval\", instruction 1, buffer \"dy\": expected packed"),
    CASE(reads_gradients, "program \"pack\", instruction 0: expected weights to be read"),
    CASE(writes_weights, "order: program \"pack\", instruction 0"),
    CASE(adds, "order: program \"pack\", instruction 0, buffer \"packed\": expected packed"),
    CASE(in_a_microbatch, "program \"pack\": expected one row without inputs and results"),
};

static void test_good(void **state) {
    (void)state;
    Plan *plan = sample_plan(8, 2);
    sample_pack(plan);
    if (plan_check(plan) != OK) fail_msg("%s", status_message());
    Text text = { 0 }, again = { 0 };
    Plan *parsed = NULL;
    plan_print(plan, &text);
    assert_int_equal(plan_parse(text.at, text.bytes, &parsed), OK);
    plan_print(parsed, &again);
    assert_string_equal(text_cstr(&text), text_cstr(&again));
    text_finish(&text), text_finish(&again);
    plan_destroy(parsed);
    plan_destroy(plan);
}

static void test_bad(void **state) {
    (void)state;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Plan *plan = sample_plan(8, 2);
        sample_pack(plan);
        cases[i].edit(plan);
        if (plan_check(plan) == OK) fail_msg("%s: accepted", cases[i].what);
        if (!strstr(status_message(), cases[i].message))
            fail_msg("%s: expected \"%s\", found \"%s\"", cases[i].what, cases[i].message,
                     status_message());
        plan_destroy(plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_good), cmocka_unit_test(test_bad) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
