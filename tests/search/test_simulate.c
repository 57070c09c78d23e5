// SPDX-License-Identifier: Apache-2.0
// The simulator against closed forms, against times worked out by hand, and against what must hold always.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "compiler/layout/pipeline.h"
#include "compiler/search/simulate.h"

enum { MOST_OPS = 64 };

// Seconds in small whole numbers: a test counts in picoseconds.
typedef struct Times { int64_t forward, backward, wgrad, link; } Times;

/* Pipelines ------------------------------------------------------------------------------------ */

// Ops of one unit of a virtual stage `at` of `n`: what comes in, the work, what goes out.
static int32_t add_unit(SimOp *ops, int32_t n_ops, const Layout *layout, const Times *times, int kind, int32_t at) {
    int32_t n = layout->pp * layout->chunks, way = kind == PIPELINE_FORWARD ? 1 : -1;
    bool forward = kind == PIPELINE_FORWARD, wgrad = kind == PIPELINE_WGRAD;
    uint8_t lane = forward ? LANE_forward : LANE_back;
    int64_t ps = forward ? times->forward : wgrad ? times->wgrad : times->backward;
    if (!wgrad && at - way >= 0 && at - way < n)
        ops[n_ops++] = (SimOp){ .what = SIM_RECV, .work = WORK_messages, .lane = lane,
                                .peer = (at - way) % layout->pp };
    ops[n_ops++] = (SimOp){ .what = SIM_COMPUTE, .work = forward ? WORK_dense : wgrad ? WORK_experts : WORK_attention,
                            .ps = ps };
    if (!wgrad && at + way >= 0 && at + way < n)
        ops[n_ops++] = (SimOp){ .what = SIM_SEND, .work = WORK_messages, .lane = lane,
                                .peer = (at + way) % layout->pp, .ps = times->link };
    return n_ops;
}

static SimStage *pipeline(const Layout *layout, int32_t microbatches, const Times *times, Arena *arena) {
    SimStage *stages = ARENA_ARRAY(arena, SimStage, layout->pp);
    for (int32_t s = 0; s < layout->pp; s++) {
        PipelineUnit *units;
        uint32_t n = pipeline_units(layout, s, microbatches, arena, &units);
        int32_t slots = pipeline_slots(units, n);
        SimOp *ops = ARENA_ARRAY(arena, SimOp, layout->chunks * 9);
        PlanSegment *segments = ARENA_ARRAY(arena, PlanSegment, layout->chunks * 3);
        PlanRow *rows = ARENA_ARRAY(arena, PlanRow, n);
        int32_t n_ops = 0;
        for (int32_t i = 0; i < layout->chunks * 3; i++) {
            int32_t end = add_unit(ops, n_ops, layout, times, i % 3, i / 3 * layout->pp + s);
            segments[i] = (PlanSegment){ "unit", n_ops, end - n_ops };
            n_ops = end;
        }
        for (uint32_t i = 0; i < n; i++)
            rows[i] = (PlanRow){ (uint32_t)(units[i].chunk * 3 + units[i].kind), units[i].microbatch,
                                 units[i].microbatch % slots };
        stages[s] = (SimStage){ .ops = ops, .n_ops = n_ops, .segments = segments,
                                .n_segments = (uint32_t)(layout->chunks * 3), .rows = rows, .n_rows = n };
    }
    return stages;
}

static Layout layout_of(int32_t pp, int schedule, int32_t chunks) {
    Layout layout = layout_single();
    layout.pp = pp;
    layout.schedule = (uint8_t)schedule;
    layout.chunks = chunks;
    return layout;
}

static void must(Status status) {
    if (status != OK) fail_msg("%s", status_message());
}

// Every stage's waterfall is the step, to the picosecond; no order is busier than the step is long.
static void check_sums(const Sim *sim) {
    double sum = 0;
    for (int kind = 0; kind < N_SIM_KINDS; kind++) sum += sim_share_s(sim, kind);
    assert_true(sum > (double)sim->step_ps * (1 - 1e-12) * 1e-12 && sum < (double)sim->step_ps * (1 + 1e-12) * 1e-12);
    for (int32_t s = 0; s < sim->n; s++) {
        int64_t all = 0;
        for (int kind = 0; kind < N_SIM_KINDS; kind++) {
            assert_true(sim->stage_ps[s][kind] >= 0);
            all += sim->stage_ps[s][kind];
        }
        assert_int_equal(all, sim->step_ps);
        assert_true(sim->busy_ps[s] <= sim->step_ps);
        for (int link = 0; link < SIM_LINKS; link++) assert_true(sim->link_ps[s][link] <= sim->step_ps);
    }
}

static Sim run_pipeline(int32_t pp, int schedule, int32_t chunks, int32_t microbatches, Times times, bool posted,
                        Arena *arena) {
    Layout layout = layout_of(pp, schedule, chunks);
    Sim sim;
    must(simulate(pipeline(&layout, microbatches, &times, arena), pp, &(SimOptions){ .posted = posted }, arena, &sim));
    check_sums(&sim);
    return sim;
}

// Links of no cost. 1f1b: (m + p - 1)(F + B); interleaved: the bubble is that of one virtual stage; zero bubble
// with F = B = W: p - 1 of one of them are left.
static void test_closed_forms(void **state) {
    (void)state;
    for (int32_t p = 2; p <= 8; p *= 2) {
        for (int32_t m = p; m <= 4 * p; m += p) {
            for (int posted = 0; posted < 2; posted++) {
                Arena *arena = arena_create();
                Sim sim = run_pipeline(p, SCHEDULE_1F1B, 1, m, (Times){ 300, 700, 0, 0 }, posted, arena);
                assert_int_equal(sim.step_ps, (m + p - 1) * 1000);
                for (int32_t s = 0; s < p; s++) assert_int_equal(sim.stage_ps[s][SIM_BUBBLE], (p - 1) * 1000);
                sim = run_pipeline(p, SCHEDULE_INTERLEAVED, 2, m, (Times){ 300, 700, 0, 0 }, posted, arena);
                assert_int_equal(sim.step_ps, (2 * m + p - 1) * 1000);
                sim = run_pipeline(p, SCHEDULE_INTERLEAVED, 3, m, (Times){ 500, 500, 0, 0 }, posted, arena);
                assert_int_equal(sim.step_ps, (3 * m + p - 1) * 1000);
                if (m >= 2 * p) { // so that there is a steady part
                    sim = run_pipeline(p, SCHEDULE_ZERO_BUBBLE, 1, m, (Times){ 100, 100, 100, 0 }, posted, arena);
                    assert_int_equal(sim.step_ps, (3 * m + p - 1) * 100);
                }
                arena_destroy(arena);
            }
        }
    }
}

// Stages of unequal length: the longest never waits between its first forward and its last backward, so what
// takes time besides is one forward of those before it and one backward.
static void test_uneven_stages(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Layout layout = layout_of(4, SCHEDULE_1F1B, 1);
    Times times = { 100, 200, 0, 0 };
    SimStage *stages = pipeline(&layout, 12, &times, arena);
    for (int32_t s = 0; s < 4; s++)
        for (int32_t i = 0; i < stages[s].n_ops; i++) ((SimOp *)stages[s].ops)[i].ps *= s == 2 ? 3 : 1;
    Sim sim;
    must(simulate(stages, 4, &(SimOptions){ 0 }, arena, &sim));
    check_sums(&sim);
    assert_int_equal(sim.step_ps, 2 * 100 + 12 * 900 + 2 * 200);
    arena_destroy(arena);
}

// Two stages, two microbatches, a message takes 10, F = 100, B = 200.
//   stage 0  F0 [0,100)  F1 [100,200)                 B0 [420,620)  B1 [630,830)
//   stage 1  recv to 110, F0 [110,210), B0 [210,410), recv to 420, F1 [420,520), B1 [520,720)
// A message begins when both ends are there: stage 1 takes F1 at 410, stage 0 takes B0 at 410 and B1 at 720.
// Posted ahead, F1 is there at 210, and B1's gradient does not wait.
static void test_by_hand(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Sim sim = run_pipeline(2, SCHEDULE_1F1B, 1, 2, (Times){ 100, 200, 0, 10 }, false, arena);
    assert_int_equal(sim.stage_ps[1][WORK_messages], 10 + 10 + 10); // F0, F1, and until B1's gradient is taken
    assert_int_equal(sim.stage_ps[1][WORK_dense], 200);
    assert_int_equal(sim.stage_ps[1][WORK_attention], 400);
    assert_int_equal(sim.step_ps, 930);                             // 720 + 10 + 200
    assert_int_equal(sim.stage_ps[0][WORK_messages], 10 + 10);
    assert_int_equal(sim.stage_ps[0][SIM_BUBBLE], 930 - 600 - 20);
    sim = run_pipeline(2, SCHEDULE_1F1B, 1, 2, (Times){ 100, 200, 0, 10 }, true, arena);
    assert_int_equal(sim.stage_ps[1][WORK_messages], 10 + 10);      // F0, B1's gradient
    assert_int_equal(sim.step_ps, 110 + 600 + 10 + 200);
    arena_destroy(arena);
}

/* One rank ------------------------------------------------------------------------------------- */

static Sim run_ops(const SimOp *ops, int32_t n, int32_t rows, SimOptions options, Arena *arena) {
    PlanSegment *segment = ARENA_NEW(arena, PlanSegment);
    PlanRow *all = ARENA_ARRAY(arena, PlanRow, rows);
    *segment = (PlanSegment){ "work", 0, n };
    for (int32_t i = 0; i < rows; i++) all[i] = (PlanRow){ 0, i, 0 };
    SimStage stage = { .ops = ops, .n_ops = n, .segments = segment, .n_segments = 1, .rows = all,
                       .n_rows = (uint32_t)rows };
    Sim sim;
    must(simulate(&stage, 1, &options, arena, &sim));
    check_sums(&sim);
    return sim;
}

// A transfer of 100 beside work of 400: the first 100 have 80 of the work in them at a contention of 1.25.
static void test_overlap(void **state) {
    (void)state;
    Arena *arena = arena_create();
    const SimOp ops[] = {
        { .what = SIM_START, .work = WORK_exchange, .ps = 100 },
        { .what = SIM_COMPUTE, .work = WORK_dense, .ps = 300 },
        { .what = SIM_COMPUTE, .work = WORK_dense, .ps = 100 },
        { .what = SIM_WAIT, .work = WORK_exchange, .start = 0 },
    };
    Sim sim = run_ops(ops, 4, 1, (SimOptions){ .contention = 1.25 }, arena);
    assert_int_equal(sim.step_ps, 420);
    assert_int_equal(sim.stage_ps[0][WORK_exchange], 20); // what it costs
    assert_int_equal(sim.link_ps[0][0], 100);
    sim = run_ops(ops, 4, 1, (SimOptions){ 0 }, arena);
    assert_int_equal(sim.step_ps, 400);
    // Longer than the work: what is left over is waited for.
    SimOp longer[4];
    memcpy(longer, ops, sizeof ops);
    longer[0].ps = 1000;
    sim = run_ops(longer, 4, 1, (SimOptions){ .contention = 1.25 }, arena);
    assert_int_equal(sim.step_ps, 1000);
    assert_int_equal(sim.stage_ps[0][WORK_exchange], 600);
    // Two of one link go one after the other, of two links at once.
    SimOp two[] = {
        { .what = SIM_START, .work = WORK_gather, .ps = 100 },
        { .what = SIM_START, .work = WORK_exchange, .ps = 100, .link = 0 },
        { .what = SIM_WAIT, .work = WORK_gather, .start = 0 },
        { .what = SIM_WAIT, .work = WORK_exchange, .start = 1 },
    };
    assert_int_equal(run_ops(two, 4, 1, (SimOptions){ 0 }, arena).step_ps, 200);
    two[1].link = 1;
    assert_int_equal(run_ops(two, 4, 1, (SimOptions){ 0 }, arena).step_ps, 100);
    arena_destroy(arena);
}

// Rows of the last microbatch only: a start that the rows before it skip, and so does its wait.
static void test_last(void **state) {
    (void)state;
    Arena *arena = arena_create();
    const SimOp ops[] = {
        { .what = SIM_COMPUTE, .work = WORK_dense, .ps = 10 },
        { .what = SIM_CROSS, .work = WORK_exchange, .ps = 5, .last = true },
    };
    assert_int_equal(run_ops(ops, 2, 4, (SimOptions){ 0 }, arena).step_ps, 45);
    arena_destroy(arena);
}

static double load_of(void *user, int32_t stage, int32_t row, int32_t op) {
    (void)user, (void)stage, (void)op;
    return row == 1 ? 2 : 1.5;
}

// At each crossing all wait for the busiest: the step takes the sum of what is largest.
static void test_imbalance(void **state) {
    (void)state;
    Arena *arena = arena_create();
    SimOp ops[] = {
        { .what = SIM_CROSS, .work = WORK_rows, .ps = 10, .uneven = true },
        { .what = SIM_COMPUTE, .work = WORK_experts, .ps = 100, .uneven = true },
        { .what = SIM_COMPUTE, .work = WORK_dense, .ps = 40 },
        { .what = SIM_CROSS, .work = WORK_barrier, .ps = 1 },
    };
    Sim sim = run_ops(ops, 4, 3, (SimOptions){ .load = 1.5 }, arena);
    assert_int_equal(sim.step_ps, 3 * (15 + 150 + 40 + 1));
    assert_int_equal(sim.stage_ps[0][SIM_IMBALANCE], 3 * 55);
    sim = run_ops(ops, 4, 3, (SimOptions){ .load_of = load_of }, arena);
    assert_int_equal(sim.stage_ps[0][SIM_IMBALANCE], 55 + 110 + 55);
    assert_int_equal(run_ops(ops, 4, 3, (SimOptions){ .load = 0.5 }, arena).step_ps, 3 * 151); // never below even
    // A transfer that nobody waits for hides what the busiest is behind; what it does not hide is imbalance.
    SimOp hidden[] = {
        { .what = SIM_COMPUTE, .work = WORK_experts, .ps = 100, .uneven = true },
        { .what = SIM_START, .work = WORK_exchange, .ps = 30 },
        { .what = SIM_COMPUTE, .work = WORK_dense, .ps = 40 },
        { .what = SIM_WAIT, .work = WORK_exchange, .start = 1 },
    };
    sim = run_ops(hidden, 4, 1, (SimOptions){ .load = 1.5 }, arena);
    assert_int_equal(sim.stage_ps[0][SIM_IMBALANCE], 50);  // 40 of it at the wait, 10 at the end
    assert_int_equal(sim.stage_ps[0][WORK_exchange], 0);
    assert_int_equal(sim.step_ps, 190);
    // A barrier does not wait for what moves bytes, nor the other way round.
    SimOp beside[] = {
        { .what = SIM_START, .work = WORK_gather, .ps = 100 },
        { .what = SIM_CROSS, .work = WORK_barrier, .ps = 1 },
        { .what = SIM_COMPUTE, .work = WORK_dense, .ps = 40 },
        { .what = SIM_WAIT, .work = WORK_gather },
    };
    sim = run_ops(beside, 4, 1, (SimOptions){ 0 }, arena);
    assert_int_equal(sim.stage_ps[0][WORK_barrier], 1);
    assert_int_equal(sim.step_ps, 100);
    arena_destroy(arena);
}

/* Meetings and what never ends ------------------------------------------------------------------ */

static void test_meeting(void **state) {
    (void)state;
    Arena *arena = arena_create();
    SimOp ops[2][2] = { { { .what = SIM_COMPUTE, .work = WORK_dense, .ps = 70 },
                          { .what = SIM_MEET, .work = WORK_gather, .ps = 5 } },
                        { { .what = SIM_COMPUTE, .work = WORK_dense, .ps = 100 },
                          { .what = SIM_MEET, .work = WORK_gather, .ps = 7 } } };
    PlanSegment segment = { "work", 0, 2 };
    PlanRow row = { 0, -1, 0 };
    SimStage stages[2];
    for (int s = 0; s < 2; s++)
        stages[s] = (SimStage){ .ops = ops[s], .n_ops = 2, .segments = &segment, .n_segments = 1, .rows = &row,
                                .n_rows = 1 };
    Sim sim;
    must(simulate(stages, 2, &(SimOptions){ 0 }, arena, &sim));
    check_sums(&sim);
    assert_int_equal(sim.step_ps, 107);
    assert_int_equal(sim.stage_ps[0][SIM_BUBBLE], 30);
    assert_int_equal(sim.stage_ps[1][WORK_gather], 7);
    arena_destroy(arena);
}

static void expect_refused(const SimStage *stages, int32_t n, const char *why) {
    Arena *arena = arena_create();
    Sim sim;
    assert_int_equal(simulate(stages, n, &(SimOptions){ 0 }, arena, &sim), ERR_INPUT);
    if (!strstr(status_message(), why)) fail_msg("expected '%s' in '%s'", why, status_message());
    arena_destroy(arena);
}

static void test_deadlocks(void **state) {
    (void)state;
    // Both wait for what the other would send.
    SimOp crossed[2][2];
    PlanSegment segment = { "forward", 0, 2 };
    PlanRow rows[] = { { 0, 0, 0 }, { 0, 1, 0 } };
    SimStage stages[2];
    for (int s = 0; s < 2; s++) {
        crossed[s][0] = (SimOp){ .what = SIM_RECV, .work = WORK_messages, .peer = 1 - s };
        crossed[s][1] = (SimOp){ .what = SIM_SEND, .work = WORK_messages, .peer = 1 - s };
        stages[s] = (SimStage){ .ops = crossed[s], .n_ops = 2, .segments = &segment, .n_segments = 1, .rows = rows,
                                .n_rows = 1 };
    }
    expect_refused(stages, 2, "stage 0 waits for ever in \"forward\" of microbatch 0, for a message from stage 1");
    // A message that nobody takes: at the end, and where its slot comes again.
    crossed[0][0] = crossed[0][1];
    crossed[1][0] = (SimOp){ .what = SIM_COMPUTE };
    crossed[1][1] = (SimOp){ .what = SIM_COMPUTE };
    expect_refused(stages, 2, "stage 0 waits for ever at its end: nobody takes what it sent");
    stages[0].n_rows = 2;
    expect_refused(stages, 2, "stage 0 waits for ever before \"forward\" of microbatch 1");
    // A meeting that one does not come to.
    stages[0].n_rows = 1;
    crossed[0][0] = (SimOp){ .what = SIM_MEET };
    expect_refused(stages, 2, "for all stages to come to its op 0");
    // What 64 bits of picoseconds do not hold, in one op or in all together.
    crossed[0][0] = (SimOp){ .what = SIM_COMPUTE, .ps = sim_ps(1e300) };
    expect_refused(stages, 2, "days, expected up to 93");
    crossed[0][0].ps = crossed[0][1].ps = sim_ps(5e6);
    expect_refused(stages, 2, "a step of 116 days");
}

/* What always holds ---------------------------------------------------------------------------- */

typedef struct Spans { int64_t busy[8], end[8]; int n; } Spans;

static void count_span(void *user, int32_t stage, int32_t row, int32_t op, int64_t begin, int64_t end) {
    Spans *spans = user;
    (void)row, (void)op;
    assert_true(begin <= end);
    spans->n++;
    if (end > spans->end[stage]) spans->end[stage] = end;
}

// Random pipelines with crossings of all kinds: sums, bounds, the same again, and no span behind the end.
static void test_random(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        Arena *arena = arena_create();
        int32_t p = 1 + (int32_t)(hash_mix(seed, 1, 0) % 4), chunks = 1 + (int32_t)(hash_mix(seed, 2, 0) % 2);
        if (p == 1) chunks = 1;
        int32_t m = p * (1 + (int32_t)(hash_mix(seed, 3, 0) % 3));
        Layout layout = layout_of(p, chunks > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B, chunks);
        Times times = { (int64_t)(hash_mix(seed, 4, 0) % 1000), (int64_t)(hash_mix(seed, 5, 0) % 1000), 0,
                        (int64_t)(hash_mix(seed, 6, 0) % 100) };
        SimStage *stages = pipeline(&layout, m, &times, arena);
        for (int32_t s = 0; s < p; s++) { // of what computes, some crosses ranks instead
            SimOp *ops = (SimOp *)stages[s].ops;
            for (int32_t i = 0; i < stages[s].n_ops; i++) {
                uint64_t random = hash_mix(seed, 7, (uint64_t)(s * MOST_OPS + i));
                if (ops[i].what != SIM_COMPUTE) continue;
                ops[i].uneven = random % 2;
                if (random % 3 == 0) {
                    ops[i].what = SIM_CROSS;
                    ops[i].work = WORK_exchange;
                    ops[i].link = (uint8_t)(random / 8 % SIM_LINKS);
                } else if (random % 3 == 1) {
                    ops[i].what = SIM_START;
                    ops[i].work = WORK_gather;
                }
            }
        }
        Spans spans = { 0 };
        SimOptions options = { .contention = 1 + (double)hash_uniform(seed, 8, 0), .load = 1.25,
                               .posted = seed % 2, .span = count_span, .user = &spans };
        Sim first, again;
        must(simulate(stages, p, &options, arena, &first));
        check_sums(&first);
        for (int32_t s = 0; s < p; s++) assert_true(spans.end[s] <= first.step_ps);
        options.span = NULL;
        must(simulate(stages, p, &options, arena, &again));
        assert_int_equal(first.step_ps, again.step_ps);
        assert_memory_equal(first.stage_ps, again.stage_ps, sizeof *first.stage_ps * (size_t)p);
        assert_true(spans.n > 0);
        arena_destroy(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_forms), cmocka_unit_test(test_uneven_stages), cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_overlap),      cmocka_unit_test(test_last),          cmocka_unit_test(test_imbalance),
        cmocka_unit_test(test_meeting),      cmocka_unit_test(test_deadlocks),     cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
