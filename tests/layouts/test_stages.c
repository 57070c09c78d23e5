// SPDX-License-Identifier: Apache-2.0
// Plans of a pipeline's stages: their text, and edits of rows, slots, places and messages that the checker
// refuses.
#include <stdio.h>
#include <stdlib.h>

#include "tests/layouts/world.h"

enum { STAGES = 2 };

typedef struct Made {
    Plan *plans[STAGES];
} Made;

static Made make(int chunks, uint8_t schedule) {
    Made made;
    Layout layout = layout_single();
    layout.pp = STAGES;
    layout.chunks = chunks;
    layout.schedule = schedule;
    for (int s = 0; s < STAGES; s++) {
        Text error = { 0 };
        SpecArg arg = { "tied", "false" };
        SpecOptions spec = { .args = &arg, .n_args = 1 };
        Model *model = spec_load(MOEC_SOURCE_DIR "/tests/layouts/specs/deep.lua", &spec, &error);
        if (!model) fail_msg("%s", text_cstr(&error));
        LowerOptions options = { .microbatch = 1, .microbatches = 4, .programs = { true, true, true },
                                 .layout = &layout, .stage = s };
        made.plans[s] = lower_model(model, &options);
        if (!made.plans[s]) fail_msg("%s", model->diag.message);
        model_destroy(model);
        text_finish(&error);
    }
    return made;
}

static void drop(Made *made) {
    for (int s = 0; s < STAGES; s++) plan_destroy(made->plans[s]);
}

static PlanProgram *step_of(Made *made, int stage) {
    return plan_program(made->plans[stage], "step");
}

static void test_text(void **state) {
    (void)state;
    for (int chunks = 1; chunks <= 2; chunks++) {
        Made made = make(chunks, chunks == 1 ? SCHEDULE_ZERO_BUBBLE : SCHEDULE_INTERLEAVED);
        for (int s = 0; s < STAGES; s++) {
            Text first = { 0 }, second = { 0 };
            Plan *again;
            plan_print(made.plans[s], &first);
            if (plan_parse(first.at, first.bytes, &again) != OK) fail_msg("%s", status_message());
            plan_print(again, &second);
            assert_string_equal(first.at, second.at);
            if (plan_check(again) != OK) fail_msg("%s", status_message());
            assert_int_equal(plan_slots(step_of(&made, s)), plan_slots(plan_program(again, "step")));
            plan_destroy(again);
            text_finish(&first);
            text_finish(&second);
        }
        if (plan_check_stages((const Plan *const *)made.plans, STAGES) != OK) fail_msg("%s", status_message());
        drop(&made);
    }
}

// Places are found from some first microbatches of a step; they hold for however many it has, whichever slots the last ones are
// in, beside whom gradients are exchanged.
static void test_microbatches(void **state) {
    (void)state;
    Text error = { 0 };
    static const SpecArg args[] = { { "layers", "8" }, { "sequence", "32" } };
    SpecOptions spec = { .args = args, .n_args = 2 };
    Model *model = spec_load(MOEC_SOURCE_DIR "/models/tiny.lua", &spec, &error);
    if (!model) fail_msg("%s", text_cstr(&error));
    for (int i = 0; i < 2 * 3 * 4; i++) {
        Layout layout = layout_single();
        layout.pp = 3 + i % 2;
        layout.dp = 2;
        layout.schedule = (uint8_t)(i / 2 % 3);
        layout.chunks = layout.schedule == SCHEDULE_INTERLEAVED ? 2 : 1;
        int32_t microbatches = layout.chunks > 1 ? layout.pp * (5 + i / 6) : 20 + i / 6;
        for (int stage = 0; stage < 2; stage++) {
            LowerOptions options = { .microbatch = 1, .microbatches = microbatches, .layout = &layout, .stage = stage,
                                     .programs[PROGRAM_STEP] = true };
            Plan *plan = lower_model(model, &options);
            if (!plan) fail_msg("pp=%d, schedule %d, %d microbatches: %s", layout.pp, layout.schedule, microbatches, model->diag.message);
            plan_destroy(plan);
        }
    }
    model_destroy(model);
    text_finish(&error);
}

// What goes back further than to the stage before keeps its slot for up to pp microbatches; other stages have the slots of
// their schedule.
static void test_far(void **state) {
    (void)state;
    static const struct { const char *mtp, *skips; int slots[4]; } cases[] = {
        { "0", "false", { 4, 3, 2, 1 } }, { "1", "false", { 4, 3, 2, 4 } }, { "0", "true", { 4, 3, 2, 1 } },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Text error = { 0 };
        SpecArg args[] = { { "tied", "false" }, { "mtp", cases[i].mtp }, { "skips", cases[i].skips } };
        Model *model = spec_load(MOEC_SOURCE_DIR "/tests/layouts/specs/deep.lua",
                                 &(SpecOptions){ .args = args, .n_args = COUNT_OF(args) }, &error);
        if (!model) fail_msg("%s", text_cstr(&error));
        Layout layout = layout_single();
        layout.pp = 4;
        for (int stage = 0; stage < 4; stage++) {
            LowerOptions options = { .microbatch = 1, .microbatches = 8, .layout = &layout, .stage = stage,
                                     .programs[PROGRAM_STEP] = true };
            Plan *plan = lower_model(model, &options);
            if (!plan) fail_msg("%s", model->diag.message);
            int slots = plan_slots(plan_program(plan, "step"));
            if (slots != cases[i].slots[stage]) fail_msg("case %d, stage %d: %d slots", i, stage, slots);
            plan_destroy(plan);
        }
        model_destroy(model);
        text_finish(&error);
    }
}

/* Edits ---------------------------------------------------------------------------------------- */

static PlanBuffer *slotted(PlanProgram *program, Region region) {
    for (uint32_t i = 0; i < program->n_buffers; i++)
        if (program->buffers[i].region == region && program->buffers[i].n_further) return &program->buffers[i];
    fail_msg("no buffer has a place per slot");
    return NULL;
}

static uint32_t row_named(const PlanProgram *program, const char *name, int32_t microbatch) {
    for (uint32_t r = 0; r < program->n_rows; r++)
        if (program->rows[r].microbatch == microbatch &&
            !strcmp(program->segments[program->rows[r].segment].name, name))
            return r;
    fail_msg("no row %s of microbatch %d", name, microbatch);
    return 0;
}

static void swap_rows(PlanProgram *program, uint32_t a, uint32_t b) {
    PlanRow row = program->rows[a];
    program->rows[a] = program->rows[b];
    program->rows[b] = row;
}

static uint32_t message(const PlanProgram *program, PlanOp op) {
    for (uint32_t i = 0; i < program->n_instrs; i++)
        if (program->instrs[i].op == op) return i;
    fail_msg("no message");
    return 0;
}

// Two microbatches' copies of one value at one address.
static void share_slots(PlanProgram *p) {
    PlanBuffer *buffer = slotted(p, REGION_act);
    buffer->further[0] = buffer->offset;
}
// A value of one microbatch where another's lies.
static void share_values(PlanProgram *p) {
    PlanBuffer *buffer = slotted(p, REGION_act), *other = buffer + 1;
    while (other->region != REGION_act || !other->n_further || other->bytes > buffer->bytes) other++;
    other->further[0] = buffer->offset;
}
static void share_inputs(PlanProgram *p) {
    PlanBuffer *buffer = slotted(p, REGION_io);
    buffer->further[0] = buffer->offset;
}
static void lose_place(PlanProgram *p) { slotted(p, REGION_act)->n_further = 0; }
static void move_slot(PlanProgram *p) { p->rows[row_named(p, "backward", 0)].slot = 1; }
static void take_slot(PlanProgram *p) {
    for (uint32_t r = 0; r < p->n_rows; r++)
        if (p->rows[r].microbatch == 1) p->rows[r].slot = 0;
}
static void turn_back(PlanProgram *p) { swap_rows(p, row_named(p, "forward", 3), row_named(p, "backward", 3)); }
static void turn_order(PlanProgram *p) { swap_rows(p, row_named(p, "forward", 0), row_named(p, "forward", 1)); }
static void run_twice(PlanProgram *p) { p->rows[row_named(p, "backward", 2)].microbatch = 1; }
static void rename_segment(PlanProgram *p) { p->segments[1].name = "sideways"; }
static void strange_slot(PlanProgram *p) { p->rows[2].slot = INT32_MAX; }

static const struct {
    const char *what, *rule;
    void (*edit)(PlanProgram *);
} edits[] = {
    { "two microbatches at one address", "clash", share_slots },
    { "values of two microbatches at one address", "clash", share_values },
    { "inputs of two microbatches at one address", "interface", share_inputs },
    { "one place for several slots", "clash", lose_place },
    { "a microbatch that changes its slot", "rows", move_slot },
    { "a slot taken while in use", "rows", take_slot },
    { "backward before forward", "rows", turn_back },
    { "microbatches out of order", "rows", turn_order },
    { "a microbatch twice", "rows", run_twice },
    { "a segment of no kind", "rows", rename_segment },
    { "a slot beyond all rows", "rows", strange_slot },
};

static void test_edits(void **state) {
    (void)state;
    for (int i = 0; i < COUNT_OF(edits); i++) {
        Made made = make(1, SCHEDULE_1F1B);
        edits[i].edit(step_of(&made, 0));
        if (plan_check(made.plans[0]) == OK) fail_msg("%s passes", edits[i].what);
        char rule[64];
        snprintf(rule, sizeof rule, "plan check, %s:", edits[i].rule);
        if (!strstr(status_message(), rule))
            fail_msg("%s: expected rule %s, found \"%s\"", edits[i].what, edits[i].rule, status_message());
        drop(&made);
    }
}

static void lose_send(Made *m) { step_of(m, 0)->instrs[message(step_of(m, 0), PLAN_send)].op = PLAN_launch; }
// The last one: of a parameter that both stages read.
static void lose_recv(Made *m) {
    PlanProgram *p = step_of(m, 1);
    uint32_t i = p->n_instrs - 1;
    while (p->instrs[i].op != PLAN_recv) i--;
    p->instrs[i].op = PLAN_launch;
}
static void change_lane(Made *m) { step_of(m, 0)->instrs[message(step_of(m, 0), PLAN_send)].lane = LANE_back; }
static void change_bytes(Made *m) {
    PlanProgram *p = step_of(m, 1);
    p->buffers[p->operands[p->instrs[message(p, PLAN_recv)].operands].buffer].bytes *= 2;
}
// The first stage wants a gradient before it has sent what the last one makes it of.
static void wait_in_circle(Made *m) {
    PlanProgram *p = step_of(m, 0);
    swap_rows(p, row_named(p, "forward", 0), row_named(p, "backward", 0));
}
static void lose_call(Made *m) { step_of(m, 1)->instrs[message(step_of(m, 1), PLAN_gather)].op = PLAN_launch; }
static void swap_stages(Made *m) { m->plans[0] = m->plans[1]; }

static void test_pairs(void **state) {
    (void)state;
    static const struct {
        void (*edit)(Made *);
        const char *message;
    } cases[] = {
        { lose_send, "waits for ever at instruction" },
        { lose_recv, "messages left over" },
        { change_lane, "waits for ever" },
        { change_bytes, "to be alike" },
        { wait_in_circle, "waits for ever" },
        { lose_call, "waits for ever" },
        { swap_stages, "in the order of stages" },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Made made = make(1, SCHEDULE_1F1B), kept = made;
        cases[i].edit(&made);
        if (plan_check_stages((const Plan *const *)made.plans, STAGES) == OK) fail_msg("case %d passes", i);
        if (!strstr(status_message(), cases[i].message))
            fail_msg("case %d: expected \"%s\", found \"%s\"", i, cases[i].message, status_message());
        drop(&kept);
    }
}

static void test_refused(void **state) {
    (void)state;
    Layout layout = layout_single();
    int32_t stages[3] = { 3, 0, 2 };
    layout.pp = layout.n_stages = 3;
    layout.stages = stages;
    Text error = { 0 };
    Model *model = spec_load(MOEC_SOURCE_DIR "/tests/layouts/specs/deep.lua", &(SpecOptions){ 0 }, &error);
    if (!model) fail_msg("%s", text_cstr(&error));
    LowerOptions options = { .microbatch = 1, .microbatches = 4, .programs = { true }, .layout = &layout, .stage = 1 };
    assert_null(lower_model(model, &options));
    assert_string_equal(model->diag.message, "stage 1 of the pipeline trains no parameter");
    model_destroy(model);
    text_finish(&error);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_microbatches),
        cmocka_unit_test(test_far),
        cmocka_unit_test(test_edits),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
