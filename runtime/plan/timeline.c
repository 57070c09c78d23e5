// SPDX-License-Identifier: Apache-2.0
// Timelines as events of a trace.
//
// A rank's threads: "steps"; "compute", where a row holds its launches; "link GROUP", where what crosses
// ranks stands. So a wait for others is a hole in "compute" below which "link" says for what.
#include "runtime/plan/timeline.h"

#include <stdio.h>

#include "runtime/base/trace.h"
#include "runtime/plan/words.h"

const char *const plan_work_names[N_WORK] = {
#define X(name, text) text,
    PLAN_WORK(X)
#undef X
};

static const char *const work_words[N_WORK] = {
#define X(name, text) #name,
    PLAN_WORK(X)
#undef X
};

/* What an instruction is ----------------------------------------------------------------------- */

static bool has_arg(const PlanKernel *kernel, const char *name) {
    for (uint32_t i = 0; i < kernel->n_args; i++)
        if (!strcmp(kernel->args[i].name, name)) return true;
    return false;
}

static bool moves_rows(const PlanProgram *program, const PlanInstr *instr) {
    for (uint32_t i = 0; i < instr->n_operands; i++)
        if (operand_is_remote(program->operands[instr->operands + i].mode)) return true;
    return false;
}

static PlanWork work_of_launch(const Plan *plan, const PlanProgram *program, const PlanInstr *instr, bool apart) {
    const PlanKernel *kernel = &plan->kernels[instr->kernel];
    if (moves_rows(program, instr)) return WORK_rows;
    if (apart) return WORK_optimizer;
    if (!strncmp(kernel->family, "matmul", 6)) return has_arg(kernel, "offsets") ? WORK_experts : WORK_dense;
    if (!strncmp(kernel->family, "attend", 6)) return WORK_attention;
    return WORK_memory;
}

// Of a rail: rows, in parts of one size. What is not is a table.
static bool crosses_rows(const PlanProgram *program, const PlanInstr *instr) {
    return instr->group == GROUP_rail && program->buffers[program->operands[instr->operands].buffer].dtype != DTYPE_I32;
}

static PlanWork work_of(const Plan *plan, const PlanProgram *program, const PlanInstr *instr, bool apart) {
    switch ((PlanOp)instr->op) {
    case PLAN_launch: return work_of_launch(plan, program, instr, apart);
    case PLAN_gather: return crosses_rows(program, instr) ? WORK_rows : WORK_gather;
    case PLAN_exchange: return crosses_rows(program, instr) ? WORK_rows : WORK_exchange;
    case PLAN_blocks: return WORK_rows;
    case PLAN_send:
    case PLAN_recv: return WORK_messages;
    default: return WORK_barrier;
    }
}

uint8_t *plan_work(const Plan *plan, const PlanProgram *program, Arena *arena) {
    uint8_t *work = ARENA_ARRAY(arena, uint8_t, program->n_instrs + 1);
    bool *apart = ARENA_ARRAY(arena, bool, program->n_segments + 1);
    for (uint32_t r = 0; r < program->n_rows; r++)
        apart[program->rows[r].segment] |= program->rows[r].microbatch < 0;
    for (uint32_t s = 0; s < program->n_segments; s++) {
        const PlanSegment *segment = &program->segments[s];
        for (int32_t i = segment->first; i < segment->first + segment->n; i++)
            work[i] = (uint8_t)work_of(plan, program, &program->instrs[i], apart[s]);
    }
    return work;
}

void plan_work_title(const Plan *plan, const PlanProgram *program, int32_t i, Text *out) {
    const PlanInstr *instr = &program->instrs[i];
    bool launch = instr->op == PLAN_launch;
    if (instr->half) text_printf(out, "%s ", plan_half_words[instr->half]);
    text_add(out, launch ? plan->kernels[instr->kernel].family : plan_op_words[instr->op]);
    for (uint32_t k = 0; k < instr->n_operands; k++) {
        const PlanOperand *operand = &program->operands[instr->operands + k];
        if (!operand_writes(operand->mode) && (launch || k + 1 < instr->n_operands)) continue;
        text_printf(out, " %s", program->buffers[operand->buffer].name);
        return;
    }
}

int64_t plan_timeline_spans(const PlanProgram *program) {
    int64_t n = 0;
    for (uint32_t r = 0; r < program->n_rows; r++) {
        const PlanSegment *segment = &program->segments[program->rows[r].segment];
        n += 2; // SPAN_INPUTS, SPAN_TAKEN
        for (int32_t i = segment->first; i < segment->first + segment->n; i++) {
            const PlanRepeat *repeat = plan_repeat(program, i);
            n += repeat ? repeat->trip : 1;
        }
    }
    return n + 1; // the end of a program waits for its sends
}

/* Printing ------------------------------------------------------------------------------------- */

// Behind the links: transfers that go on beside the rank, `BESIDE` of a group at once at most before they share.
enum { THREAD_STEPS, THREAD_COMPUTE, THREAD_LINKS /* + group */, BESIDE = 8,
       THREAD_BESIDE = THREAD_LINKS + N_GROUPS /* + BESIDE * group */ };

// A transfer whose wait has not come.
typedef struct Begun { int32_t instr; double begin; } Begun;

typedef struct Printer {
    const PlanTimeline *timeline;
    const PlanTimelineOf *of;
    const Plan *plan;
    const PlanProgram *program;
    Arena *arena;
    Text *out;
    const char **titles, **args; // by instruction
    uint8_t *work;
    int32_t *messages;           // so far: [stages][lanes][sent, received]
    int64_t *row_tick, *act;     // act: bytes in use, by tick
    int64_t shown;               // of act; -1: nothing yet
    bool links[N_GROUPS];        // that have a name
    bool beside[N_GROUPS][BESIDE];
    double beside_end[N_GROUPS][BESIDE];
    Begun *begun; uint32_t n_begun, cap_begun;
} Printer;

static TracePlace thread_of(const Printer *p, int32_t thread) {
    return (TracePlace){ p->of->process, thread };
}

static double time_of(const Printer *p, double seconds) {
    return seconds - p->of->origin;
}

static void name_instrs(Printer *p) {
    Text text = { 0 };
    p->titles = ARENA_ARRAY(p->arena, const char *, p->program->n_instrs + 1);
    p->args = ARENA_ARRAY(p->arena, const char *, p->program->n_instrs + 1);
    for (uint32_t i = 0; i < p->program->n_instrs; i++) {
        const PlanInstr *instr = &p->program->instrs[i];
        text.bytes = 0;
        plan_work_title(p->plan, p->program, (int32_t)i, &text);
        p->titles[i] = arena_strdup(p->arena, text_cstr(&text));
        text.bytes = 0;
        text_printf(&text, "\"instr\":%u", i);
        if (instr->op == PLAN_launch) {
            const PlanKernel *kernel = &p->plan->kernels[instr->kernel];
            text_printf(&text, ",\"kernel\":\"%s\",\"flops\":", kernel->entry);
            text_add_decimal(&text, kernel->flops);
            text_add(&text, ",\"bytes\":");
            text_add_decimal(&text, kernel->bytes);
        } else if (instr->op != PLAN_blocks && instr->n_operands) {
            const PlanOperand *first = &p->program->operands[instr->operands];
            text_printf(&text, ",\"bytes\":%lld", (long long)p->program->buffers[first->buffer].bytes);
        }
        p->args[i] = arena_strdup(p->arena, text_cstr(&text));
    }
    text_finish(&text);
}

static void count_act(Printer *p) {
    PlanLives lives;
    plan_lives(p->program, REGION_act, p->arena, &lives);
    p->row_tick = lives.row;
    int64_t ticks = lives.row[p->program->n_rows];
    p->act = ARENA_ARRAY(p->arena, int64_t, ticks + 1);
    for (uint32_t i = 0; i < lives.n; i++) {
        int64_t bytes = p->program->buffers[lives.items[i].buffer].bytes;
        p->act[lives.items[i].first] += bytes;
        if (lives.items[i].last < ticks) p->act[lives.items[i].last + 1] -= bytes;
    }
    for (int64_t t = 1; t <= ticks; t++) p->act[t] += p->act[t - 1];
}

static void name_process(Printer *p) {
    const PlanMesh *mesh = &p->plan->mesh;
    int32_t rank = p->of->rank, ep = mesh->size[AXIS_ep], edp = mesh->size[AXIS_edp];
    const char *label = p->of->label ? p->of->label : "";
    const char *name = plan_ranks(p->plan) == 1
                           ? arena_printf(p->arena, "%srank %d", label, rank)
                           : arena_printf(p->arena, "%srank %d: stage %d, edp %d, ep %d", label, rank, mesh->stage,
                                          rank / ep % edp, rank % ep);
    trace_process(p->out, p->of->process, name);
    trace_thread(p->out, thread_of(p, THREAD_STEPS), "steps");
    trace_thread(p->out, thread_of(p, THREAD_COMPUTE), "compute");
}

static int32_t thread_of_span(Printer *p, const PlanSpan *span) {
    if (span->instr == SPAN_INPUTS) return THREAD_COMPUTE;
    const PlanInstr *instr = span->instr < 0 ? NULL : &p->program->instrs[span->instr];
    if (instr && instr->op == PLAN_launch) return THREAD_COMPUTE;
    int group = !instr || instr->op == PLAN_send || instr->op == PLAN_recv ? GROUP_pp : instr->group;
    int32_t thread = THREAD_LINKS + group;
    if (!p->links[group]) {
        char name[32];
        snprintf(name, sizeof name, "link %s", plan_group_words[group]);
        trace_thread(p->out, thread_of(p, thread), name);
        p->links[group] = true;
    }
    return thread;
}

// On the first thread that is free by then.
static void print_transfer(Printer *p, int32_t instr, double begin, double end) {
    int group = p->program->instrs[instr].group, k = 0;
    while (k + 1 < BESIDE && p->beside_end[group][k] > begin) k++;
    p->beside_end[group][k] = end;
    TracePlace at = thread_of(p, THREAD_BESIDE + BESIDE * group + k);
    if (!p->beside[group][k]) {
        char name[48];
        snprintf(name, sizeof name, "link %s, beside%s", plan_group_words[group], k ? " too" : "");
        trace_thread(p->out, at, name);
        p->beside[group][k] = true;
    }
    const char *title = strchr(p->titles[instr], ' ') + 1; // without the half
    trace_span(p->out, at, title, "beside", time_of(p, begin), time_of(p, end), p->args[instr]);
}

static bool same_transfer(const Printer *p, int32_t start, int32_t wait) {
    const PlanInstr *a = &p->program->instrs[start], *b = &p->program->instrs[wait];
    const PlanOperand *x = &p->program->operands[a->operands], *y = &p->program->operands[b->operands];
    return a->op == b->op && a->group == b->group && x[0].buffer == y[0].buffer && x[1].buffer == y[1].buffer;
}

static void print_half(Printer *p, const PlanSpan *span) {
    bool start = p->program->instrs[span->instr].half == HALF_start;
    if (start && p->timeline->transfers) {
        print_transfer(p, span->instr, span->begin, span->end);
    } else if (start) {
        *ARENA_PUSH(p->arena, p->begun, p->n_begun, p->cap_begun) = (Begun){ span->instr, span->begin };
    } else {
        uint32_t i = 0;
        while (i < p->n_begun && !same_transfer(p, p->begun[i].instr, span->instr)) i++;
        if (i == p->n_begun) return;
        print_transfer(p, p->begun[i].instr, p->begun[i].begin, span->end);
        memmove(&p->begun[i], &p->begun[i + 1], (--p->n_begun - i) * sizeof *p->begun);
    }
}

// The k-th send between two ranks on a lane is the k-th recv there: the same name on both sides.
static void print_arrow(Printer *p, const PlanSpan *span, const PlanRun *run) {
    const PlanInstr *instr = &p->program->instrs[span->instr];
    bool sends = instr->op == PLAN_send;
    if (!sends && instr->op != PLAN_recv) return;
    int32_t peer = p->of->rank + (instr->peer - p->plan->mesh.stage) * plan_group_size(p->plan, GROUP_dp);
    int32_t k = p->messages[(instr->peer * N_LANES + instr->lane) * 2 + !sends]++;
    char id[160];
    snprintf(id, sizeof id, "%s%d>%d %s %d of %d", p->of->label ? p->of->label : "", sends ? p->of->rank : peer,
             sends ? peer : p->of->rank, plan_lane_words[instr->lane], k, run->step);
    double inside = (span->end - span->begin) / 2 < 1e-9 ? (span->end - span->begin) / 2 : 1e-9;
    trace_arrow(p->out, thread_of(p, THREAD_LINKS + GROUP_pp), id, sends,
                time_of(p, sends ? span->begin + inside : span->end - inside));
}

static void print_act(Printer *p, const PlanSpan *span) {
    if (span->instr < 0) return;
    const PlanSegment *segment = &p->program->segments[p->program->rows[span->row].segment];
    int64_t bytes = p->act[p->row_tick[span->row] + span->instr - segment->first];
    if (bytes == p->shown) return;
    p->shown = bytes;
    trace_counter(p->out, p->of->process, "act", time_of(p, span->begin), "MiB", (double)bytes / 1048576);
}

static void print_span(Printer *p, const PlanSpan *span, const PlanRun *run) {
    bool half = span->instr >= 0 && p->program->instrs[span->instr].half;
    if (half) print_half(p, span);
    if (half && p->program->instrs[span->instr].half == HALF_start && p->timeline->transfers) return;
    TracePlace at = thread_of(p, thread_of_span(p, span));
    print_act(p, span);
    if (span->instr < 0) {
        bool inputs = span->instr == SPAN_INPUTS;
        trace_span(p->out, at, inputs ? "inputs" : "sends are taken", inputs ? "inputs" : work_words[WORK_messages],
                   time_of(p, span->begin), time_of(p, span->end), NULL);
        return;
    }
    trace_span(p->out, at, p->titles[span->instr], work_words[p->work[span->instr]], time_of(p, span->begin),
               time_of(p, span->end), p->args[span->instr]);
    print_arrow(p, span, run);
}

// Spans [first, first + n) of one row.
static void print_row(Printer *p, int64_t first, int64_t n) {
    const PlanSpan *spans = &p->timeline->spans[first];
    const PlanRow *row = &p->program->rows[spans->row];
    const char *name = p->program->segments[row->segment].name;
    char title[160], args[64];
    double end = spans->begin;
    for (int64_t i = 0; i < n; i++) {
        bool beside = p->timeline->transfers && spans[i].instr >= 0 &&
                      p->program->instrs[spans[i].instr].half == HALF_start;
        if (!beside && spans[i].end > end) end = spans[i].end;
    }
    if (row->microbatch < 0) snprintf(title, sizeof title, "%s", name);
    else snprintf(title, sizeof title, "%s %d", name, row->microbatch);
    snprintf(args, sizeof args, "\"microbatch\":%d,\"slot\":%d", row->microbatch, row->slot);
    trace_span(p->out, thread_of(p, THREAD_COMPUTE), title, "row", time_of(p, spans->begin), time_of(p, end), args);
}

static void print_run(Printer *p, const PlanRun *run) {
    char title[96], args[32];
    snprintf(title, sizeof title, "%.64s %d", p->program->name, run->step);
    snprintf(args, sizeof args, "\"step\":%d", run->step);
    trace_span(p->out, thread_of(p, THREAD_STEPS), title, "step", time_of(p, run->begin), time_of(p, run->end), args);
    memset(p->messages, 0, sizeof *p->messages * (size_t)p->plan->mesh.size[AXIS_pp] * N_LANES * 2);
    const PlanSpan *spans = p->timeline->spans;
    for (int64_t i = run->first, end = run->first + run->n; i < end;) {
        int64_t n = 1;
        while (i + n < end && spans[i + n].row == spans[i].row) n++;
        print_row(p, i, n);
        for (; n > 0; n--) print_span(p, &spans[i++], run);
    }
}

void plan_timeline_print(const PlanTimeline *timeline, const PlanTimelineOf *of, Text *out) {
    Printer p = { .timeline = timeline,
                  .of = of,
                  .plan = timeline->plan,
                  .program = timeline->program,
                  .arena = arena_create(),
                  .out = out,
                  .shown = -1 };
    p.messages = ARENA_ARRAY(p.arena, int32_t, p.plan->mesh.size[AXIS_pp] * N_LANES * 2);
    name_instrs(&p);
    p.work = plan_work(p.plan, p.program, p.arena);
    count_act(&p);
    name_process(&p);
    for (int32_t i = 0; i < timeline->n_runs; i++) print_run(&p, &timeline->runs[i]);
    arena_destroy(p.arena);
}
