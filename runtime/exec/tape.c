// SPDX-License-Identifier: Apache-2.0
// A run's times, instruction by instruction, into room made before it. A CPU's are taken around each; a
// GPU's where each has ended, in the device's own order, so that there one begins where the one before it
// has ended: what the host takes to launch shows in the launch that came late.
#include "runtime/exec/private.h"

Status exec_trace(Exec *exec, const PlanProgram *program, int32_t runs) {
    uint32_t number = exec_number(exec, program);
    if (number == exec->plan->n_programs || runs < 1)
        return status_fail(ERR_ARGUMENT, "exec_trace: expected a program of the plan and 1 or more runs");
    int64_t of_run = plan_timeline_spans(program);
    Tape *tape = exec->tape = ARENA_NEW(exec->arena, Tape);
    tape->number = number;
    tape->timeline = (PlanTimeline){ .plan = exec->plan,
                                     .program = program,
                                     .cap = of_run * runs,
                                     .cap_runs = runs };
    tape->timeline.spans = ARENA_ARRAY(exec->arena, PlanSpan, of_run * runs);
    tape->timeline.runs = ARENA_ARRAY(exec->arena, PlanRun, runs);
    return exec->api->stamps(exec->device, of_run + 2);
}

const PlanTimeline *exec_timeline(const Exec *exec) {
    return exec->tape ? &exec->tape->timeline : NULL;
}

static PlanRun *run_of(Tape *tape) {
    return &tape->timeline.runs[tape->timeline.n_runs];
}

bool tape_wants(const Exec *exec, uint32_t number) {
    return exec->tape && exec->tape->number == number && exec->tape->timeline.n_runs < exec->tape->timeline.cap_runs;
}

Status tape_start(Exec *exec, uint32_t number) {
    if (!tape_wants(exec, number)) return OK;
    Tape *tape = exec->tape;
    tape->on = true;
    *run_of(tape) = (PlanRun){ .step = exec->step + 1, .first = tape->timeline.n };
    return exec->api->stamp(exec->device, &run_of(tape)->begin);
}

Status tape_begin(Exec *exec, const PlanRow *row, int32_t instr, int32_t trip) {
    Tape *tape = exec->tape;
    if (!tape || !tape->on) return OK;
    PlanSpan *span = &tape->timeline.spans[tape->timeline.n++];
    *span = (PlanSpan){ .row = (int32_t)(row - tape->timeline.program->rows), .instr = instr, .trip = trip };
    return exec->api->on_host ? exec->api->stamp(exec->device, &span->begin) : OK;
}

Status tape_end(Exec *exec) {
    Tape *tape = exec->tape;
    if (!tape || !tape->on) return OK;
    return exec->api->stamp(exec->device, &tape->timeline.spans[tape->timeline.n - 1].end);
}

// The device has done all that the run gave it.
void tape_stop(Exec *exec) {
    Tape *tape = exec->tape;
    if (!tape || !tape->on) return;
    PlanRun *run = run_of(tape);
    tape->on = false;
    tape->timeline.n_runs++;
    run->n = tape->timeline.n - run->first;
    run->end = time_seconds();
    double at = run->begin;
    for (int64_t i = run->first; i < tape->timeline.n && !exec->api->on_host; i++) {
        tape->timeline.spans[i].begin = at;
        at = tape->timeline.spans[i].end;
    }
}

// A run that failed leaves nothing behind.
void tape_drop(Exec *exec) {
    if (!exec->tape || !exec->tape->on) return;
    exec->tape->on = false;
    exec->tape->timeline.n = run_of(exec->tape)->first;
}
