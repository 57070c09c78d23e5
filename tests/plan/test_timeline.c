// SPDX-License-Identifier: Apache-2.0
// Timelines as events: what is in the picture of a stage that sends and receives.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "runtime/plan/timeline.h"
#include "tests/plan/sample.h"

// Every instruction of every row takes a second, one after the other.
static PlanTimeline fill(const Plan *plan, const PlanProgram *program, PlanSpan *spans, PlanRun *run) {
    PlanTimeline timeline = { .plan = plan, .program = program, .spans = spans, .runs = run, .n_runs = 1 };
    for (uint32_t r = 0; r < program->n_rows; r++) {
        const PlanSegment *segment = &program->segments[program->rows[r].segment];
        for (int32_t i = segment->first; i < segment->first + segment->n; i++) {
            double at = 10 + (double)timeline.n;
            spans[timeline.n++] = (PlanSpan){ .row = (int32_t)r, .instr = i, .begin = at, .end = at + 1 };
        }
    }
    *run = (PlanRun){ .step = 7, .begin = 10, .end = 10 + (double)timeline.n, .n = timeline.n };
    return timeline;
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

static void expect(const char *text, const char *what) {
    if (!strstr(text, what)) fail_msg("expected %s in:\n%s", what, text);
}

// Of both stages in one picture each arrow has a tail and a head, and nothing precedes its beginning.
static void test_stages(void **state) {
    (void)state;
    Text text = { 0 };
    for (int stage = 0; stage < 2; stage++) {
        Plan *plan = sample_ranks(2, 2, stage);
        const PlanProgram *program = plan_program(plan, "eval");
        PlanSpan spans[64];
        PlanRun run;
        assert_true(plan_timeline_spans(program) < 64);
        PlanTimeline timeline = fill(plan, program, spans, &run);
        PlanTimelineOf of = { .rank = 2 * stage + 1, .process = 100 + stage, .origin = 10, .label = "simulated " };
        plan_timeline_print(&timeline, &of, &text);
        plan_destroy(plan);
    }
    const char *all = text_cstr(&text);
    expect(all, "\"name\":\"simulated rank 1: stage 0, edp 1, ep 0\"");
    expect(all, "\"name\":\"simulated rank 3: stage 1, edp 1, ep 0\"");
    expect(all, "\"name\":\"eval 7\",\"cat\":\"step\",\"ts\":0.000");
    expect(all, "\"name\":\"link pp\"");
    assert_int_equal(count(all, "\"id\":\"simulated 1>3 forward 0 of 7\""), 2);
    assert_int_equal(count(all, "\"id\":\"simulated 3>1 forward 0 of 7\"") +
                         count(all, "\"id\":\"simulated 3>1 back 0 of 7\""), 2);
    assert_int_equal(count(all, "\"ph\":\"s\""), 2);
    assert_int_equal(count(all, "\"ph\":\"f\""), 2);
    assert_int_equal(count(all, "\"ts\":-"), 0);
    text_finish(&text);
}

// Work by kind: products with offsets are experts'; what runs outside microbatches is the optimizer's.
static void test_work(void **state) {
    (void)state;
    Plan *plan = sample_plan(8, 2);
    const PlanProgram *step = plan_program(plan, "step");
    Arena *arena = arena_create();
    const uint8_t *work = plan_work(plan, step, arena);
    for (uint32_t r = 0; r < step->n_rows; r++) {
        const PlanSegment *segment = &step->segments[step->rows[r].segment];
        for (int32_t i = segment->first; i < segment->first + segment->n; i++)
            assert_int_equal(work[i], step->rows[r].microbatch < 0 ? WORK_optimizer : WORK_memory);
    }
    PlanKernel *kernel = &plan->kernels[step->instrs[step->segments[1].first].kernel];
    kernel->family = "matmul_w";
    work = plan_work(plan, step, arena);
    assert_int_equal(work[step->segments[1].first], WORK_dense);
    kernel->args[0].name = "offsets";
    work = plan_work(plan, step, arena);
    assert_int_equal(work[step->segments[1].first], WORK_experts);
    kernel->family = "attend_grad";
    work = plan_work(plan, step, arena);
    assert_int_equal(work[step->segments[1].first], WORK_attention);
    arena_destroy(arena);
    plan_destroy(plan);
    plan = sample_remote(1);
    arena = arena_create();
    const PlanProgram *eval = plan_program(plan, "eval");
    work = plan_work(plan, eval, arena);
    int rows = 0, barriers = 0;
    for (uint32_t i = 0; i < eval->n_instrs; i++) {
        rows += work[i] == WORK_rows;
        barriers += work[i] == WORK_barrier;
    }
    assert_true(rows > 0 && barriers > 0);
    arena_destroy(arena);
    plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_stages), cmocka_unit_test(test_work) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
