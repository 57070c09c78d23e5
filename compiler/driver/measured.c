// SPDX-License-Identifier: Apache-2.0
// Reads a trace. Kernels are known by name, which says what they are whatever the layout; crossings by title.
#include "compiler/driver/measured.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/train/train.h"

enum { MOST_TURNS = 1 << 26 };

typedef struct MeasuredTime {
    const char *name;
    double sum, least;
    int64_t n;
} MeasuredTime;

static MeasuredTime *time_of(Measured *m, Arena *arena, const char *name) {
    for (uint32_t i = 0; i < m->n_times; i++)
        if (!strcmp(m->times[i].name, name)) return &m->times[i];
    MeasuredTime *made = ARENA_PUSH(arena, m->times, m->n_times, m->cap_times);
    *made = (MeasuredTime){ .name = arena_strdup(arena, name), .least = INFINITY };
    return made;
}

/* Loads ---------------------------------------------------------------------------------------- */

// One run of an instruction. The turn-th time that ranks of one stage run it is the same microbatch of the same
// step.
typedef struct Sample { int32_t stage, instr, turn; double seconds; } Sample;

static int by_occasion(const void *left, const void *right) {
    const Sample *a = left, *b = right;
    if (a->stage != b->stage) return a->stage < b->stage ? -1 : 1;
    if (a->instr != b->instr) return a->instr < b->instr ? -1 : 1;
    return (a->turn > b->turn) - (a->turn < b->turn);
}

static double load_of(Sample *samples, uint32_t n) {
    double most = 0, mean = 0;
    qsort(samples, n, sizeof *samples, by_occasion);
    for (uint32_t i = 0; i < n;) {
        uint32_t first = i;
        double sum = 0, largest = 0;
        for (; i < n && !by_occasion(&samples[first], &samples[i]); i++) {
            sum += samples[i].seconds;
            largest = fmax(largest, samples[i].seconds);
        }
        mean += sum / (i - first);
        most += largest;
    }
    return mean > 0 ? most / mean : 1;
}

/* Events --------------------------------------------------------------------------------------- */

static const char *const words[N_WORK] = {
#define X(name, text) #name,
    PLAN_WORK(X)
#undef X
};

typedef struct Reading {
    Measured *m;
    Arena *arena;
    Sample *samples;           // of experts' products
    uint32_t n_samples, cap_samples;
    int32_t *turns;            // [ranks][instrs]
    int32_t *stages;           // by rank
    double *steps;             // by number of the step in the trace: of the slowest rank
    int32_t *n_steps;          // by rank
    int64_t ranks, instrs;
} Reading;

static const char *text_of(const json_t *event, const char *key) {
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

static void see_span(Reading *r, const json_t *event, int64_t rank) {
    const char *category = text_of(event, "cat");
    const json_t *args = json_object_get(event, "args"), *instr = json_object_get(args, "instr");
    double seconds = json_number_value(json_object_get(event, "dur")) * 1e-6;
    if (!strcmp(category, "step")) {
        int32_t k = r->n_steps[rank]++;
        r->steps[k] = fmax(r->steps[k], seconds);
        r->m->steps = (int32_t)max_i64(r->m->steps, k + 1);
        return;
    }
    int work = 0;
    while (work < N_WORK && strcmp(words[work], category)) work++;
    if (work == N_WORK) return;
    r->m->work_s[work] += seconds;
    if (!instr) return;
    const char *kernel = text_of(args, "kernel");
    MeasuredTime *t = time_of(r->m, r->arena, kernel[0] ? kernel : text_of(event, "name"));
    t->sum += seconds;
    t->least = fmin(t->least, seconds);
    t->n++;
    if (work != WORK_experts) return;
    int64_t number = json_integer_value(instr);
    int32_t turn = r->turns[rank * r->instrs + number]++;
    *ARENA_PUSH(r->arena, r->samples, r->n_samples, r->cap_samples) =
        (Sample){ r->stages[rank], (int32_t)number, turn, seconds };
}

static void see_name(Reading *r, const json_t *event, int64_t rank) {
    const char *name = text_of(json_object_get(event, "args"), "name"), *stage = strstr(name, ": stage ");
    if (strcmp(text_of(event, "name"), "process_name") || !stage) return;
    r->stages[rank] = atoi(stage + 8);
}

static Status count_events(const json_t *events, Reading *r) {
    size_t i;
    json_t *event;
    r->ranks = r->instrs = 1;
    json_array_foreach((json_t *)(uintptr_t)events, i, event) {
        int64_t rank = json_integer_value(json_object_get(event, "pid")),
                instr = json_integer_value(json_object_get(json_object_get(event, "args"), "instr"));
        if (rank < 0 || rank >= PLAN_MOST_RANKS || instr < 0 || instr > INT32_MAX)
            return status_fail(ERR_FORMAT, "expected numbers of a rank and an instruction, found %lld and %lld\n"
                               "  hint: give the trace that 'moec train ... --trace FILE' has written; those of "
                               "'moec simulate' have simulated ranks, too",
                               (long long)rank, (long long)instr);
        r->ranks = max_i64(r->ranks, rank + 1);
        r->instrs = max_i64(r->instrs, instr + 1);
    }
    if (r->ranks * r->instrs <= MOST_TURNS) return OK;
    return status_fail(ERR_FORMAT, "expected fewer than %d instructions of all ranks, found %lld of %lld ranks",
                       MOST_TURNS, (long long)r->instrs, (long long)r->ranks);
}

static Status read_events(const json_t *events, Reading *r) {
    size_t i;
    json_t *event;
    TRY(count_events(events, r));
    r->steps = ARENA_ARRAY(r->arena, double, json_array_size(events) + 1);
    r->stages = ARENA_ARRAY(r->arena, int32_t, r->ranks);
    r->n_steps = ARENA_ARRAY(r->arena, int32_t, r->ranks);
    r->turns = ARENA_ARRAY(r->arena, int32_t, r->ranks * r->instrs);
    json_array_foreach((json_t *)(uintptr_t)events, i, event) {
        int64_t rank = json_integer_value(json_object_get(event, "pid"));
        const char *phase = text_of(event, "ph");
        if (!strcmp(phase, "M")) see_name(r, event, rank);
        if (!strcmp(phase, "X")) see_span(r, event, rank);
    }
    return OK;
}

static void take_lines(const char *text, size_t bytes, Measured *out) {
    const char *first = strstr(text, "\n{"), *second = first ? strstr(first + 2, "\n{") : NULL,
               *end = bytes > 4 ? text + bytes - 4 : text; // before "]}\n", and the comma's newline
    if (!second || strcmp(end + 1, "]}\n") || second > end) return;
    out->lines = second;
    out->n_lines = (size_t)(end + 1 - second);
}

Status measured_read(const char *path, Arena *arena, Measured *out) {
    *out = (Measured){ 0 };
    char *text;
    size_t bytes;
    TRY(file_read(path, arena, &text, &bytes));
    json_error_t error;
    json_t *trace = json_loadb(text, bytes, 0, &error);
    const json_t *events = json_object_get(trace, "traceEvents");
    Reading r = { .m = out, .arena = arena };
    Status status = OK;
    if (!trace)
        status = status_fail(ERR_FORMAT, "%s:%d: expected a trace in JSON: %s\n"
                             "  hint: 'moec train ... --trace FILE' makes such a trace", path, error.line, error.text);
    else status = read_events(events, &r);
    json_decref(trace);
    TRY(status);
    if (!out->steps)
        return status_fail(ERR_FORMAT,
                           "%s has no step of a run\n  hint: 'moec train ... --trace FILE' makes such a trace", path);
    for (int32_t k = 0; k < out->steps; k++) out->step_s += r.steps[k] / out->steps;
    out->ranks = (int32_t)r.ranks;
    for (int work = 0; work < N_WORK; work++) out->work_s[work] /= (double)r.ranks * out->steps;
    out->load = load_of(r.samples, r.n_samples);
    take_lines(text, bytes, out);
    return OK;
}

double measured_s(const Measured *m, const Plan *plan, const PlanProgram *program, int32_t i) {
    const PlanInstr *instr = &program->instrs[i];
    bool launch = instr->op == PLAN_launch;
    Text title = { 0 };
    if (launch) text_add(&title, plan->kernels[instr->kernel].entry);
    else plan_work_title(plan, program, i, &title);
    double seconds = -1;
    for (uint32_t k = 0; k < m->n_times; k++) {
        const MeasuredTime *t = &m->times[k];
        if (!strcmp(t->name, text_cstr(&title))) seconds = launch ? t->sum / (double)t->n : t->least;
    }
    text_finish(&title);
    return seconds;
}
