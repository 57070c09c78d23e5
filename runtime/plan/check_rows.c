// SPDX-License-Identifier: Apache-2.0
// Rows of a pipeline's stage, where microbatches are under way at once. Rules are listed in check.c.
#include "runtime/plan/check.h"

#include <stdio.h>
#include <stdlib.h>

#define REFUSE_ROW(c, number, format, ...)                                                                             \
    REFUSE("rows", "program \"%s\", row %u: " format, (c)->program->name, number, __VA_ARGS__)

// Segments of the body, in the order of the file; the rest runs once.
typedef struct Body {
    uint32_t first, n; // rows
    uint32_t segment, n_segments;
    int32_t batches;
    uint32_t *at; // [segments of the program][batches] row, UINT32_MAX: none yet
} Body;

static uint32_t *row_at(const Body *body, uint32_t segment, int32_t microbatch) {
    return &body->at[segment * (uint32_t)body->batches + (uint32_t)microbatch];
}

static Status find_body(ProgramCheck *c, Body *body) {
    const PlanProgram *program = c->program;
    uint32_t n = program->n_rows, before = 0, after = 0;
    while (before < n && program->rows[before].microbatch < 0) before++;
    while (after < n - before && program->rows[n - 1 - after].microbatch < 0) after++;
    *body = (Body){ .first = before, .n = n - before - after, .segment = before };
    if (before + after > program->n_segments)
        REFUSE("rows",
               "program \"%s\": expected at most a row for each of %u segments outside of microbatches, found %u",
               program->name, program->n_segments, before + after);
    body->n_segments = program->n_segments - before - after;
    for (uint32_t i = 0; i < before + after; i++) {
        uint32_t row = i < before ? i : n - after + i - before;
        uint32_t segment = i < before ? i : program->n_segments - after + i - before;
        if (program->rows[row].segment != segment || program->rows[row].slot)
            REFUSE_ROW(c, row, "expected segment \"%s\" in slot 0, found \"%s\" in slot %d",
                       program->segments[segment].name, program->segments[program->rows[row].segment].name,
                       program->rows[row].slot);
    }
    body->batches = body->n_segments ? (int32_t)(body->n / body->n_segments) : 0;
    if ((int64_t)body->batches * body->n_segments != body->n || (body->n_segments && !body->batches))
        REFUSE("rows", "program \"%s\": expected a row for each of %u segments in every microbatch, found %u rows",
               program->name, body->n_segments, body->n);
    return OK;
}

// Every segment in every microbatch, once, microbatches in order.
static Status list_rows(ProgramCheck *c, Body *body) {
    const PlanProgram *program = c->program;
    size_t n = (size_t)program->n_segments * (size_t)(body->batches + 1);
    body->at = ARENA_ARRAY(c->scratch, uint32_t, n + 1);
    memset(body->at, 0xff, sizeof *body->at * n);
    int32_t *next = ARENA_ARRAY(c->scratch, int32_t, program->n_segments);
    for (uint32_t r = body->first; r < body->first + body->n; r++) {
        const PlanRow *row = &program->rows[r];
        if (row->segment < body->segment || row->segment >= body->segment + body->n_segments)
            REFUSE_ROW(c, r, "expected a segment of microbatches, found \"%s\"", program->segments[row->segment].name);
        int32_t expected = next[row->segment]++;
        if (row->microbatch != expected || expected >= body->batches)
            REFUSE_ROW(c, r, "expected microbatch %d of segment \"%s\", found %d", expected,
                       program->segments[row->segment].name, row->microbatch);
        *row_at(body, row->segment, row->microbatch) = r;
    }
    return OK;
}

// A slot belongs to one microbatch from its first row to its last.
static Status check_slots(const ProgramCheck *c, const Body *body) {
    int32_t *holder = ARENA_ARRAY(c->scratch, int32_t, c->slots);
    uint32_t *left = ARENA_ARRAY(c->scratch, uint32_t, c->slots);
    for (uint32_t r = body->first; r < body->first + body->n; r++) {
        const PlanRow *row = &c->program->rows[r];
        if (!left[row->slot]) {
            for (uint32_t s = body->segment; s < body->segment + body->n_segments; s++)
                if (*row_at(body, s, row->microbatch) < r)
                    REFUSE_ROW(c, r, "expected microbatch %d in the slot of its first row, found slot %d",
                               row->microbatch, row->slot);
            holder[row->slot] = row->microbatch;
            left[row->slot] = body->n_segments;
        }
        if (holder[row->slot] != row->microbatch)
            REFUSE_ROW(c, r, "expected slot %d to stay with microbatch %d until its last row, found microbatch %d",
                       row->slot, holder[row->slot], row->microbatch);
        left[row->slot]--;
    }
    return OK;
}

static void fill_precedes(ProgramCheck *c, const Body *body) {
    const PlanProgram *program = c->program;
    uint32_t n = program->n_segments;
    c->precedes = ARENA_ARRAY(c->scratch, bool, (size_t)n *n + 1);
    for (uint32_t a = 0; a < n; a++) {
        for (uint32_t b = 0; b < n; b++) {
            bool inside = a >= body->segment && a < body->segment + body->n_segments && b >= body->segment &&
                          b < body->segment + body->n_segments;
            bool first = a < b;
            for (int32_t m = 0; inside && m < body->batches; m++) {
                if (!m) first = true;
                first &= *row_at(body, a, m) < *row_at(body, b, m);
            }
            c->precedes[a * n + b] = first;
        }
    }
}

/* Names of a step ------------------------------------------------------------------------------ */

typedef enum Kind { KIND_FORWARD, KIND_BACKWARD, KIND_WGRAD, N_KINDS } Kind;
static const char *const kind_words[N_KINDS] = { "forward", "backward", "wgrad" };

// "forward.1" is chunk 1; one chunk has no number. False: neither.
static bool read_name(const char *name, Kind *kind, uint32_t *chunk) {
    for (int k = 0; k < N_KINDS; k++) {
        size_t n = strlen(kind_words[k]);
        if (strncmp(name, kind_words[k], n)) continue;
        *kind = (Kind)k;
        *chunk = name[n] == '.' ? (uint32_t)atoi(name + n + 1) : 0;
        char again[32];
        snprintf(again, sizeof again, "%s.%u", kind_words[k], *chunk);
        return !name[n] || !strcmp(again, name);
    }
    return false;
}

static Status check_step_segments(const ProgramCheck *c, const Body *body) {
    const PlanProgram *program = c->program;
    uint32_t n = program->n_segments, of[N_KINDS] = { 0 };
    if (body->segment != 1 || body->n_segments + 2 != n || strcmp(program->segments[0].name, "clear") ||
        strcmp(program->segments[n - 1].name, "update") || body->batches != c->plan->microbatches)
        REFUSE("rows", "program \"%s\": expected clear, %d microbatches, update, found %d microbatches and %u segments",
               program->name, c->plan->microbatches, body->batches, n);
    for (uint32_t s = 1; s + 1 < n; s++) {
        Kind kind;
        uint32_t chunk;
        if (!read_name(program->segments[s].name, &kind, &chunk))
            REFUSE("rows",
                   "program \"%s\", segment %u: expected forward, backward or wgrad with a number, found \"%s\"",
                   program->name, s, program->segments[s].name);
        of[kind]++;
    }
    if (!of[KIND_FORWARD] || of[KIND_BACKWARD] != of[KIND_FORWARD] ||
        (of[KIND_WGRAD] && of[KIND_WGRAD] != of[KIND_FORWARD]))
        REFUSE("rows",
               "program \"%s\": expected as many segments backward (and wgrad, if any) as forward, found %u, %u, %u",
               program->name, of[KIND_BACKWARD], of[KIND_WGRAD], of[KIND_FORWARD]);
    for (uint32_t a = 1; a + 1 < n; a++)
        for (uint32_t b = 1; b + 1 < n; b++) {
            Kind x = N_KINDS, y = N_KINDS;
            uint32_t i = 0, j = 0;
            read_name(program->segments[a].name, &x, &i);
            read_name(program->segments[b].name, &y, &j);
            bool before = i == j ? x < y : x == y && x != KIND_WGRAD && (x == KIND_FORWARD ? i < j : i > j);
            if (before && !c->precedes[a * n + b])
                REFUSE("rows", "program \"%s\": expected \"%s\" before \"%s\" in every microbatch", program->name,
                       program->segments[a].name, program->segments[b].name);
        }
    return OK;
}

Status check_pipelined_rows(ProgramCheck *c) {
    const PlanProgram *program = c->program;
    Body body;
    for (uint32_t r = 0; r < program->n_rows; r++)
        if (program->rows[r].segment >= program->n_segments || program->rows[r].slot < 0 ||
            (uint32_t)program->rows[r].slot >= program->n_rows)
            REFUSE_ROW(c, r, "expected a segment below %u and a slot below the rows' number, found %u and %d",
                       program->n_segments, program->rows[r].segment, program->rows[r].slot);
    TRY(find_body(c, &body));
    TRY(list_rows(c, &body));
    TRY(check_slots(c, &body));
    fill_precedes(c, &body);
    if (c->is_step) TRY(check_step_segments(c, &body));
    c->n_microbatches = body.batches;
    c->phase = arena_alloc(c->scratch, program->n_instrs);
    for (uint32_t s = 0; s < program->n_segments; s++) {
        const PlanSegment *segment = &program->segments[s];
        Phase phase = s < body.segment ? PHASE_BEFORE : s < body.segment + body.n_segments ? PHASE_BODY : PHASE_AFTER;
        memset(c->phase + segment->first, phase, (size_t)segment->n);
    }
    return OK;
}
