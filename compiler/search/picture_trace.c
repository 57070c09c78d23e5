// SPDX-License-Identifier: Apache-2.0
// A simulated stage as events of a trace, where there is no plan with names for what it does: a row by its segment and
// microbatch, an op by its kind.
#include <math.h>
#include <stdio.h>

#include "compiler/search/picture.h"
#include "runtime/base/trace.h"
#include "runtime/plan/words.h"

enum { THREAD_STEPS, THREAD_COMPUTE, THREAD_LINK };

typedef struct Printer {
    const SimStage *stage;
    int32_t number, process;
    int32_t *messages; // so far: [stages][lanes][sent, received]
    Text *out;
} Printer;

static TracePlace thread_of(const Printer *p, int32_t thread) {
    return (TracePlace){ p->process, thread };
}

// The k-th send between two stages on a lane is the k-th recv there: the same name on both sides.
static void print_arrow(Printer *p, const SimOp *op, const SimSpan *span) {
    bool sends = op->what == SIM_SEND;
    if (!sends && op->what != SIM_RECV) return;
    int32_t k = p->messages[(op->peer * N_LANES + op->lane) * 2 + !sends]++;
    char id[96];
    snprintf(id, sizeof id, "stage %d>%d %s %d", sends ? p->number : op->peer, sends ? op->peer : p->number,
             plan_lane_words[op->lane], k);
    double inside_s = fmin((span->end_s - span->begin_s) / 2, 1e-9);
    double at_s = sends ? span->begin_s + inside_s : span->end_s - inside_s;
    trace_arrow(p->out, thread_of(p, THREAD_LINK), id, sends, at_s);
}

static void print_span(Printer *p, const SimSpan *span) {
    if (span->op < 0) {
        trace_span(p->out, thread_of(p, THREAD_LINK), "sends are taken", "link", span->begin_s, span->end_s, NULL);
        return;
    }
    const SimOp *op = &p->stage->ops[span->op];
    bool computes = op->what == SIM_COMPUTE;
    const char *name = op->what == SIM_SEND ? "send" : op->what == SIM_RECV ? "recv" : sim_kind_name(op->work);
    trace_span(p->out, thread_of(p, computes ? THREAD_COMPUTE : THREAD_LINK), name, computes ? "compute" : "link",
               span->begin_s, span->end_s, NULL);
    print_arrow(p, op, span);
}

static void print_row(Printer *p, const SimSpan *spans, int64_t n) {
    const PlanRow *row = &p->stage->rows[spans->row];
    const char *name = p->stage->segments[row->segment].name;
    char title[96], args[64];
    if (row->microbatch < 0) snprintf(title, sizeof title, "%.64s", name);
    else snprintf(title, sizeof title, "%.64s %d", name, row->microbatch);
    snprintf(args, sizeof args, "\"microbatch\":%d,\"slot\":%d", row->microbatch, row->slot);
    trace_span(p->out, thread_of(p, THREAD_COMPUTE), title, "row", spans->begin_s, spans[n - 1].end_s, args);
    for (int64_t i = 0; i < n; i++) print_span(p, &spans[i]);
}

void sim_picture_trace(const SimPicture *picture, const Sim *sim, int32_t stage, int32_t process, const char *name,
                       Text *out) {
    Arena *arena = arena_create();
    Printer p = { .stage = &picture->stages[stage], .number = stage, .process = process, .out = out,
                  .messages = ARENA_ARRAY(arena, int32_t, picture->n * N_LANES * 2) };
    trace_process(out, process, name);
    trace_thread(out, thread_of(&p, THREAD_STEPS), "steps");
    trace_thread(out, thread_of(&p, THREAD_COMPUTE), "compute");
    trace_thread(out, thread_of(&p, THREAD_LINK), "link");
    trace_span(out, thread_of(&p, THREAD_STEPS), "step 1", "step", 0, (double)sim->step_ps * 1e-12, "\"step\":1");
    const SimSpans *spans = &picture->spans[stage];
    for (int64_t i = 0, n; i < spans->n; i += n) {
        for (n = 1; i + n < spans->n && spans->at[i + n].row == spans->at[i].row;) n++;
        print_row(&p, &spans->at[i], n);
    }
    arena_destroy(arena);
}
