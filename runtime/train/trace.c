// SPDX-License-Identifier: Apache-2.0
// --trace: some steps of a run as one picture of all ranks.
//
// Ranks of one machine have one clock. Those of others are set by a barrier before the first step of the
// picture: it ends for all at about the same time.
#include "runtime/base/trace.h"

#include "runtime/train/train.h"

enum { USUAL_STEP = 3 /* of a session: the first ones touch their memory for the first time */ };

Status step_trace_open(const Options *options, int64_t done, bool writes, StepTrace *out) {
    *out = (StepTrace){ .file = options->trace, .n = options->trace_steps, .first = options->trace_step };
    if (!out->file[0]) return OK;
    int64_t last = options->steps ? options->steps : INT64_MAX;
    if (!out->first) out->first = max_i64(done + 1, min_i64(done + USUAL_STEP, last - out->n + 1));
    if (out->first + out->n - 1 > last || out->first <= done)
        return status_fail(ERR_ARGUMENT,
                           "--trace: expected steps %lld to %lld among those of this run, which are %lld to %lld\n"
                           "  hint: --trace-step and --trace-steps choose others",
                           (long long)out->first, (long long)(out->first + out->n - 1), (long long)(done + 1),
                           (long long)last);
    if (!writes) return OK;
    TRY(trace_may_replace(out->file));
    Text empty = { 0 }; // whether it can be written at all should show before the run
    trace_open(&empty);
    trace_close(&empty);
    Status status = file_write_atomic(out->file, text_cstr(&empty), empty.bytes);
    text_finish(&empty);
    return status;
}

// What this rank's clock says when the picture's does zero.
static Status set_clock(Comm *comm, double *origin) {
    typedef struct Clock { uint64_t machine; double met; } Clock;
    TRY(comm->api->barrier(comm, GROUP_world));
    Clock own = { comm_machine(), time_seconds() }, *all = memory_alloc(sizeof own * (size_t)comm->n_ranks);
    Status status = comm->api->gather(comm, GROUP_world, &own, all, sizeof own);
    int first = 0; // rank of this machine
    while (status == OK && all[first].machine != own.machine) first++;
    *origin = all[first].met;
    memory_free(all);
    return status;
}

Status step_trace_before(StepTrace *trace, Exec *exec, const PlanProgram *program, Comm *comm, int64_t step) {
    if (!trace->file[0] || step != trace->first) return OK;
    TRY(comm_agree(comm, exec_trace(exec, program, (int32_t)trace->n)));
    return set_clock(comm, &trace->origin);
}

static Status write(const StepTrace *trace, char *const *texts, int n) {
    Text text = { 0 };
    trace_open(&text);
    for (int i = 0; i < n; i++) text_add(&text, texts[i]);
    trace_close(&text);
    Status status = file_write_atomic(trace->file, text_cstr(&text), text.bytes);
    text_finish(&text);
    return status;
}

Status step_trace_after(StepTrace *trace, const Exec *exec, Comm *comm, int64_t step) {
    if (!trace->file[0] || step != trace->first + trace->n - 1) return OK;
    Text own = { 0 };
    char **texts = NULL;
    Arena *arena = arena_create();
    PlanTimelineOf of = { .rank = comm->rank, .process = comm->rank, .origin = trace->origin };
    plan_timeline_print(exec_timeline(exec), &of, &own);
    Status status = comm_texts(comm, GROUP_world, text_cstr(&own), arena, &texts);
    text_finish(&own);
    if (status == OK) status = comm_agree(comm, comm->rank ? OK : write(trace, texts, comm->n_ranks));
    arena_destroy(arena);
    trace->done = status == OK;
    return status;
}
