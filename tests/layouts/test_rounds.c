// SPDX-License-Identifier: Apache-2.0
// Experts on other ranks without drops, in rounds: whatever the tokens choose, results are those of room for
// all rows at once. Forward has the same bits; gradients of experts whose rows are cut into rounds are sums in
// another order; what runs again has the same bits. Tails of expert rows, and places of rows that come in no
// round, hold NaN throughout (poison).
#include "tests/layouts/world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/jit/jit.h"

typedef struct Case {
    int dp, ep;
    double round;
    const char *mode, *count, *top_k, *sequence, *bias; // of experts.lua; or mode is another spec, and they NULL
    bool turned, bf16;           // experts on other ranks than in order
    uint8_t recompute;           // LayoutRecompute
    int pp;                      // 0: 1
    uint8_t schedule;            // LayoutSchedule
    bool fsdp;
} Case;
static const Case cases[] = {
    { 2, 2, 1, "learned", "4", "2", "7", "false", false, false },
    { 2, 2, 0.5, "hot", "4", "1", "7", "false", true, false },    // one expert takes all, over all rounds
    { 4, 4, 0.4, "lower", "8", "3", "5", "true", true, false },   // ranks without rows; three of a token
    { 4, 2, 0.3, "some", "6", "3", "7", "false", true, false, RECOMPUTE_NONE }, // tokens without experts
    { 2, 2, 1, "some", "6", "2", "13", "true", false, true },
    { 4, 4, 0.5, "moe.lua", NULL, NULL, NULL, NULL, false, false, RECOMPUTE_BLOCK },
    { 2, 2, 0.4, "returns.lua", NULL, NULL, NULL, NULL, false, false }, // weights that all experts share
    { 2, 2, 0.5, "learned", "4", "2", "5", "false", true, false, RECOMPUTE_CHEAP, 2, SCHEDULE_1F1B },
    { 2, 2, 0.5, "some", "4", "2", "5", "false", false, false, RECOMPUTE_CHEAP, 2, SCHEDULE_ZERO_BUBBLE },
    { 4, 2, 0.5, "learned", "4", "2", "7", "true", false, false, RECOMPUTE_CHEAP, 0, 0, true },
};

static int32_t owners[8 * 8]; // of every layer

static WorldJob job_of(const Case *c) {
    bool own = c->count != NULL;
    WorldJob job = { .spec = own ? "experts.lua" : c->mode, .microbatch = own ? 1 : 2, .microbatches = 2,
                     .steps = 3, .clip = 0.5, .lr = 3e-3, .decay = 0.1, .poison = true };
    const char *const set[][2] = { { "mode", own ? c->mode : NULL }, { "count", c->count }, { "top_k", c->top_k },
                                   { "sequence", c->sequence }, { "bias", c->bias } };
    for (int i = 0; i < COUNT_OF(set); i++)
        if (set[i][1]) job.args[job.n_args++] = (SpecArg){ set[i][0], set[i][1] };
    job.precision = c->bf16 ? PRECISION_BF16 : PRECISION_OPEN;
    if (c->bf16) job.args[job.n_args++] = (SpecArg){ "width", "70" }; // rows that lie in bf16
    job.layout = layout_single();
    job.layout.dp = c->dp;
    job.layout.ep = c->ep;
    job.layout.capacity = INFINITY;
    job.layout.round = c->round;
    job.layout.recompute = c->recompute;
    job.layout.params = job.layout.expert_params = c->fsdp ? PARAMS_FSDP : PARAMS_RESIDENT;
    if (c->pp) {
        job.args[job.n_args++] = (SpecArg){ "layers", "2" };
        job.layout.pp = c->pp;
        job.layout.schedule = c->schedule;
        job.microbatches = 3;
    }
    if (!c->turned) return job;
    int32_t experts = atoi(c->count);
    for (int32_t i = 0; i < COUNT_OF(owners); i++) owners[i] = (i * 3 + i / experts + 1) % c->ep;
    job.layout.placement = owners;
    job.layout.experts = experts;
    return job;
}

static WorldJob at_once(WorldJob job) {
    job.layout.round = INFINITY;
    return job;
}

static uint32_t n_counted(const PlanProgram *program) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < program->n_repeats; r++) n += program->repeats[r].count > 0;
    return n;
}

static double compare(const Case *c) {
    WorldJob job = job_of(c), whole = at_once(job);
    World *a = world_run(&job), *b = world_run(&whole), *again = world_run(&job);
    const char *where = "", *heavy = "";
    double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b),
           weight = world_weight_error(a, b, &heavy);
    printf("%s pp %d dp %d ep %d round %g: gradients within %.2g (%s), losses within %.2g, weights within %.2g (%s)\n",
           c->mode, c->pp ? c->pp : 1, c->dp, c->ep, c->round, gradient, where, loss, weight, heavy);
    assert_true(n_counted(plan_program(a->plans[0], "step")) > 0);
    assert_int_equal(n_counted(plan_program(b->plans[0], "step")), 0);
    assert_memory_equal(a->losses, b->losses, sizeof *a->losses); // of the first step
    assert_true(gradient <= (c->bf16 ? 2e-2 : 1e-6));
    assert_true(loss <= (c->bf16 ? 1e-3 : 1e-6));
    assert_true(weight <= (c->bf16 ? 1e-2 : 1e-5));
    for (int s = 0; s < job.steps; s++) {
        assert_true(c->bf16 || a->served[s] == b->served[s]);
        assert_true(c->bf16 || a->dropped[s] == b->dropped[s]);
    }
    world_equal_bits(a, again);
    world_free(a), world_free(b), world_free(again);
    return gradient;
}

static void test_equal(void **state) {
    (void)state;
    int cut = 0;
    for (int i = 0; i < COUNT_OF(cases); i++) cut += compare(&cases[i]) > 0;
    assert_true(cut > COUNT_OF(cases) / 2); // further rounds did run
}

// Two virtual GPUs: how often rounds run is read from them.
static void test_gpus(void **state) {
    (void)state;
    static const char library[] = MOEC_BINARY_DIR "/libmoec-vgpu.so";
    int major, minor;
    setenv("MOEC_VGPU_LIBRARY", library, 0);
    if (access(getenv("MOEC_VGPU_LIBRARY"), R_OK) != 0 || jit_cuda_compiler(&major, &minor) != OK) {
        print_message("skipped: %s and NVRTC are needed\n", library);
        skip();
    }
    static const Case two = { 2, 2, 0.5, "some", "6", "2", "5", "false", true, false };
    WorldJob job = job_of(&two), whole = at_once(job);
    job.steps = whole.steps = 2;
    job.device = "vgpu:sm_80";
    World *a = world_run(&job), *b = world_run(&whole), *again = world_run(&job);
    const char *where = "";
    double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b);
    printf("%s: gradients within %.2g (%s) of a CPU's at once, losses within %.2g\n", job.device, gradient, where,
           loss);
    assert_true(gradient <= 1e-5);
    assert_true(loss <= 1e-6);
    world_equal_bits(a, again);
    world_free(a), world_free(b), world_free(again);
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
    static const Case eight = { 8, 8, 1.25, "learned", "16", "2", "32", "false", false, false };
    WorldJob job = job_of(&eight), whole = at_once(job);
    job.microbatch = whole.microbatch = 8;
    Plan *a = world_plan(&job, 0), *b = world_plan(&whole, 0), *again;
    const PlanProgram *step = plan_program(a, "step"), *step_whole = plan_program(b, "step");
    printf("peak %lld of %lld bytes; act %lld of %lld, sym %lld of %lld\n", (long long)plan_peak(a),
           (long long)plan_peak(b), (long long)a->region_bytes[REGION_act], (long long)b->region_bytes[REGION_act],
           (long long)a->region_bytes[REGION_sym], (long long)b->region_bytes[REGION_sym]);
    assert_true(2 * plan_peak(a) < plan_peak(b));
    assert_int_equal(n_counted(step), 2);
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
    for (uint32_t r = 0; r < 2; r++) {
        WorldJob job = job_of(&cases[0]);
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
        for (int32_t i = was.first; i < was.first + was.n; i++) {
            PlanInstr *instr = &step->instrs[i], kept = *instr;
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
        cmocka_unit_test(test_gpus),
    };
    return cmocka_run_group_tests_name("layouts.rounds", tests, world_setup, world_teardown);
}
