// SPDX-License-Identifier: Apache-2.0
// Plans in the simulator: made by hand, with times worked out by hand; and those of models, of every layout.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "compiler/lower/lower.h"
#include "compiler/search/picture.h"
#include "compiler/search/simulate_plan.h"
#include "compiler/spec/spec.h"
#include "tests/plan/sample.h"

static void must(Status status) {
    if (status != OK) fail_msg("%s", status_message());
}

static void check_sums(const Sim *sim) {
    for (int32_t s = 0; s < sim->n; s++) {
        int64_t all = 0;
        for (int kind = 0; kind < N_SIM_KINDS; kind++) all += sim->stage_ps[s][kind];
        assert_int_equal(all, sim->step_ps);
    }
}

// Kernels take their number + 1 seconds, crossings and messages half a second.
static SimSeconds *seconds_of(const Plan *plan, const PlanProgram *program, Arena *arena) {
    SimSeconds *all = ARENA_ARRAY(arena, SimSeconds, program->n_instrs);
    for (uint32_t i = 0; i < program->n_instrs; i++)
        all[i].here = program->instrs[i].op == PLAN_launch ? program->instrs[i].kernel + 1 : 0.5;
    (void)plan;
    return all;
}

static Sim run(const Plan *const *plans, int32_t n, const char *program, SimPicture *picture, Arena *arena) {
    SimSeconds **seconds = ARENA_ARRAY(arena, SimSeconds *, n);
    for (int32_t s = 0; s < n; s++) seconds[s] = seconds_of(plans[s], plan_program(plans[s], program), arena);
    SimStage *stages;
    must(sim_stages(plans, n, program, seconds, arena, &stages));
    *picture = sim_picture(stages, n, arena);
    Sim sim;
    must(simulate(stages, n, &(SimOptions){ .span = sim_picture_span, .user = picture }, arena, &sim));
    check_sums(&sim);
    return sim;
}

// Kernels in order: real 1, keep 2, twice 3.
//   stage 0   real [0,1), send, recv (to 4.5, transfer [4.5,5)), meet at 6.5 until 7, keep [7,9)
//   stage 1   real [0,1), recv [1,1.5), twice [1.5,4.5), send, keep [4.5,6.5), meet until 7
static void test_stages(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Plan *plans[2] = { sample_ranks(2, 1, 0), sample_ranks(2, 1, 1) };
    SimPicture picture;
    Sim sim = run((const Plan *const *)plans, 2, "eval", &picture, arena);
    assert_int_equal(sim.step_ps, sim_ps(9));
    assert_int_equal(sim.stage_ps[0][WORK_memory], sim_ps(3));
    assert_int_equal(sim.stage_ps[0][WORK_messages], sim_ps(0.5));
    assert_int_equal(sim.stage_ps[0][WORK_barrier], sim_ps(0.5));
    assert_int_equal(sim.stage_ps[0][SIM_BUBBLE], sim_ps(5)); // 3.5 for the message, 1.5 for the meeting
    assert_int_equal(sim.stage_ps[1][WORK_memory], sim_ps(6));
    assert_int_equal(sim.stage_ps[1][SIM_BUBBLE], sim_ps(2));
    // The same, to look at.
    Text text = { 0 };
    sim_picture_print(&picture, &sim, 18, &text);
    assert_string_equal(text_cstr(&text),
                        "  stage 0   |00            0000|\n"
                        "  stage 1   |00 0000000000     |\n"
                        "  0-9 forward of a microbatch, a-j backward, + gradients of weights,\n"
                        "  u update, ~ between ranks\n");
    PlanTimeline t = sim_picture_timeline(&picture, &sim, 1, plans[1], plan_program(plans[1], "eval"));
    assert_int_equal(t.n, 6); // real, recv, twice, send, keep, barrier
    assert_true(t.spans[2].begin == 1.5 && t.spans[2].end == 4.5);
    assert_true(t.spans[3].begin == 4.5 && t.spans[3].end == 4.5);
    assert_true(t.spans[5].end == 7);
    text_finish(&text);
    for (int s = 0; s < 2; s++) plan_destroy(plans[s]);
    arena_destroy(arena);
}

// Trips of a repeat count, rows of experts take what is left of their seconds, a gather waits for nobody else.
static void test_instrs(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Plan *plan = sample_plan(400, 1);
    sample_halves(plan);
    const PlanProgram *halves = plan_program(plan, "halves");
    double want = 0;
    for (uint32_t i = 0; i < halves->n_instrs; i++) {
        const PlanRepeat *repeat = plan_repeat(halves, i);
        want += (halves->instrs[i].kernel + 1) * (repeat ? repeat->trip : 1);
    }
    SimPicture picture;
    assert_int_equal(run((const Plan *const[]){ plan }, 1, "halves", &picture, arena).step_ps, sim_ps(want));
    plan_destroy(plan);
    plan = sample_ranks(1, 4, 0); // real, gather, cut, exchange, weigh: kernels 0, 2, 1
    Sim sim = run((const Plan *const[]){ plan }, 1, "eval", &picture, arena);
    assert_int_equal(sim.step_ps, sim_ps(1 + 0.5 + 3 + 0.5 + 2));
    assert_int_equal(sim.stage_ps[0][WORK_gather], sim_ps(0.5));
    assert_int_equal(sim.stage_ps[0][WORK_exchange], sim_ps(0.5));
    plan_destroy(plan);
    plan = sample_remote(2);
    const PlanProgram *eval = plan_program(plan, "eval");
    SimSeconds *seconds = seconds_of(plan, eval, arena);
    uint8_t *work = plan_work(plan, eval, arena);
    want = 0;
    for (uint32_t i = 0; i < eval->n_instrs; i++) {
        if (work[i] == WORK_rows) seconds[i] = (SimSeconds){ .here = 2, .rows = 5 };
        if (work[i] == WORK_rows) want += 2 * (5 - 2);
    }
    SimStage *stage;
    must(sim_stages((const Plan *const[]){ plan }, 1, "eval", &seconds, arena, &stage));
    must(simulate(stage, 1, &(SimOptions){ 0 }, arena, &sim));
    check_sums(&sim);
    assert_true(want > 0);
    assert_int_equal(sim.stage_ps[0][WORK_rows], sim_ps(want));
    must(simulate(stage, 1, &(SimOptions){ .load = 1.5 }, arena, &sim));
    assert_int_equal(sim.stage_ps[0][SIM_IMBALANCE], sim_ps(want / 2));
    assert_int_equal(sim_stages((const Plan *const[]){ plan }, 1, "step", &seconds, arena, &stage), ERR_INPUT);
    plan_destroy(plan);
    arena_destroy(arena);
}

// Every wait has its start; who waits at once for what a start begins is no faster.
static void check_halves(const SimStage *stages, int32_t n, bool beside, const char *text, Arena *arena) {
    Sim apart, whole;
    must(simulate(stages, n, &(SimOptions){ 0 }, arena, &apart));
    for (int32_t s = 0; s < n; s++) {
        int starts = 0, waits = 0;
        int64_t ps = 0;
        for (int32_t i = 0; i < stages[s].n_ops; i++) {
            SimOp *op = (SimOp *)&stages[s].ops[i];
            starts += op->what == SIM_START;
            waits += op->what == SIM_WAIT;
            if (op->what == SIM_WAIT) assert_int_equal(stages[s].ops[op->start].what, SIM_START);
            if (op->what == SIM_START) ps += op->ps;
        }
        if (beside != (starts > 0)) fail_msg("%s: %d starts", text, starts);
        assert_true(starts == waits && (!starts || (ps > 0 && apart.link_ps[s][0] >= ps)));
    }
    for (int32_t s = 0; s < n; s++) {
        for (int32_t i = 0; i < stages[s].n_ops; i++) {
            SimOp *op = (SimOp *)&stages[s].ops[i];
            if (op->what == SIM_WAIT) *op = (SimOp){ .what = SIM_COMPUTE, .work = op->work };
        }
        for (int32_t i = 0; i < stages[s].n_ops; i++) {
            SimOp *op = (SimOp *)&stages[s].ops[i];
            if (op->what == SIM_START) op->what = SIM_CROSS;
        }
    }
    must(simulate(stages, n, &(SimOptions){ 0 }, arena, &whole));
    assert_true(beside ? apart.step_ps < whole.step_ps : apart.step_ps == whole.step_ps);
}

// Plans of lowering come to an end, and twice as fast a machine takes half the time.
static void simulate_layout(Model *model, const char *text, bool beside, Arena *arena) {
    Layout layout = layout_single();
    must(layout_parse(text, arena, &layout));
    Plan *plans[4];
    SimSeconds *seconds[4];
    CostCluster cluster;
    Text error = { 0 };
    if (!spec_load_cluster("cpux8", arena, &cluster, &error)) fail_msg("%s", text_cstr(&error));
    text_finish(&error);
    for (int32_t s = 0; s < layout.pp; s++) {
        LowerOptions options = { .microbatch = 1, .microbatches = 2 * layout.pp, .layout = &layout, .stage = s,
                                 .programs[PROGRAM_STEP] = true };
        layout.microbatch = 1;
        plans[s] = lower_model(model, &options);
        if (!plans[s]) fail_msg("%s: %s", text, model->diag.message);
        seconds[s] = sim_seconds(plans[s], plan_program(plans[s], "step"), &cluster, arena);
    }
    SimStage *stages;
    Sim sim, faster;
    must(sim_stages((const Plan *const *)plans, layout.pp, "step", seconds, arena, &stages));
    must(simulate(stages, layout.pp, &(SimOptions){ .contention = 1.2, .load = 1.1 }, arena, &sim));
    check_sums(&sim);
    for (int32_t s = 0; s < layout.pp; s++) {
        assert_true(sim.busy_ps[s] > 0 && sim.busy_ps[s] <= sim.step_ps);
        for (int32_t i = 0; i < stages[s].n_ops; i++) ((SimOp *)stages[s].ops)[i].ps /= 2;
    }
    must(simulate(stages, layout.pp, &(SimOptions){ .contention = 1.2, .load = 1.1 }, arena, &faster));
    assert_true(faster.step_ps > sim.step_ps * 0.499 && faster.step_ps < sim.step_ps * 0.501);
    check_halves(stages, layout.pp, beside, text, arena);
    for (int32_t s = 0; s < layout.pp; s++) plan_destroy(plans[s]);
}

// Of a stage's step: exchanges that its microbatches start, and those that they wait for.
static void count_exchanges(Model *model, const char *text, int32_t stage, int *started, int *waited) {
    Layout layout = layout_single();
    Arena *arena = arena_create();
    must(layout_parse(text, arena, &layout));
    LowerOptions options = { .microbatch = 1, .microbatches = 4, .layout = &layout, .stage = stage,
                             .precision = PRECISION_BF16, .programs[PROGRAM_STEP] = true };
    Plan *plan = lower_model(model, &options);
    if (!plan) fail_msg("%s: %s", text, model->diag.message);
    const PlanProgram *step = plan_program(plan, "step");
    *started = *waited = 0;
    for (uint32_t k = 0; k < step->n_segments; k++) {
        const PlanSegment *segment = &step->segments[k];
        for (int32_t i = 0; i < segment->n && strcmp(segment->name, "update"); i++) {
            const PlanInstr *instr = &step->instrs[segment->first + i];
            if (instr->op != PLAN_exchange || instr->group == GROUP_ep) continue;
            *started += instr->half == HALF_start;
            *waited += instr->half == HALF_wait;
        }
    }
    plan_destroy(plan);
    arena_destroy(arena);
}

// More gradients than may be under way: a stage that others wait for waits for none of its exchanges meanwhile, the
// first one does.
static void test_exchanges(void **state) {
    (void)state;
    Text error = { 0 };
    Model *model = spec_load(MOEC_SOURCE_DIR "/models/olmo3moe_8l.lua", &(SpecOptions){ 0 }, &error);
    if (!model) fail_msg("%s", text_cstr(&error));
    static const struct { const char *text; int stage; bool waits; } cases[] = {
        { "dp=4", 0, true }, { "pp=2,dp=4", 0, true }, { "pp=2,dp=4", 1, false },
        { "pp=2,dp=4,schedule=zb", 1, false }, { "pp=2,dp=4,schedule=interleaved,slots=2", 0, false },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        int started, waited;
        count_exchanges(model, cases[i].text, cases[i].stage, &started, &waited);
        if (!started || (waited > 0) != cases[i].waits)
            fail_msg("%s, stage %d: %d started, %d waited for", cases[i].text, cases[i].stage, started, waited);
    }
    model_destroy(model);
    text_finish(&error);
}

static void test_layouts(void **state) {
    (void)state;
    Text error = { 0 };
    Model *model = spec_load(MOEC_SOURCE_DIR "/models/tiny.lua", &(SpecOptions){ 0 }, &error);
    if (!model) fail_msg("%s", text_cstr(&error));
    Arena *arena = arena_create();
    static const struct { const char *text; bool beside; } layouts[] = {
        { "dp=1", false }, { "pp=2,schedule=zb", false }, { "pp=2,schedule=interleaved,slots=2", false },
        { "pp=2,dp=4,ep=2", true }, { "dp=4,ep=4,params=fsdp", true },
    };
    for (int i = 0; i < COUNT_OF(layouts); i++) simulate_layout(model, layouts[i].text, layouts[i].beside, arena);
    arena_destroy(arena);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_stages), cmocka_unit_test(test_instrs),
                                        cmocka_unit_test(test_layouts), cmocka_unit_test(test_exchanges) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
