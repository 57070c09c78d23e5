// SPDX-License-Identifier: Apache-2.0
// What lives when, over all rows of a program (plan.h).
#include "runtime/plan/words.h"

typedef struct Touch {
    int32_t first, last; // instructions, in one segment; first > last: none
    bool sent;
} Touch;

typedef struct Walk {
    const PlanProgram *program;
    Arena *arena;
    PlanLives *out;
    uint32_t *segment_of; // by instruction
    int32_t batches;
    int32_t *row_at;     // by segment and microbatch (of a row outside microbatches: 0); -1: none
    int64_t *sent_until; // by row: what it sends is not written before
    bool *late;          // by buffer: instructions touch it that run in last rows only
} Walk;

static int32_t *row_of(const Walk *w, uint32_t segment, int32_t microbatch) {
    return &w->row_at[segment * (uint32_t)w->batches + (uint32_t)(microbatch < 0 ? 0 : microbatch)];
}

static int64_t tick(const Walk *w, int32_t row, int32_t instr) {
    const PlanSegment *segment = &w->program->segments[w->program->rows[row].segment];
    return w->out->row[row] + instr - segment->first;
}

static void find_rows(Walk *w) {
    const PlanProgram *program = w->program;
    int64_t at = 0;
    w->batches = 1;
    for (uint32_t r = 0; r < program->n_rows; r++)
        if (program->rows[r].microbatch >= w->batches) w->batches = program->rows[r].microbatch + 1;
    w->row_at = ARENA_ARRAY(w->arena, int32_t, (size_t)program->n_segments * (size_t)w->batches + 1);
    memset(w->row_at, 0xff, sizeof *w->row_at * program->n_segments * (size_t)w->batches);
    w->out->row = ARENA_ARRAY(w->arena, int64_t, program->n_rows + 1);
    for (uint32_t r = 0; r < program->n_rows; r++) {
        const PlanRow *row = &program->rows[r];
        *row_of(w, row->segment, row->microbatch) = (int32_t)r;
        w->out->row[r] = at;
        at += program->segments[row->segment].n;
    }
    w->out->row[program->n_rows] = at;
}

static void find_sent(Walk *w) {
    const PlanProgram *program = w->program;
    int32_t slots = plan_slots(program);
    int64_t *next = ARENA_ARRAY(w->arena, int64_t, (size_t)program->n_segments * (size_t)slots + 1);
    w->sent_until = ARENA_ARRAY(w->arena, int64_t, program->n_rows + 1);
    for (size_t i = 0; i < (size_t)program->n_segments * (size_t)slots; i++) next[i] = w->out->row[program->n_rows];
    for (uint32_t r = program->n_rows; r-- > 0;) {
        const PlanRow *row = &program->rows[r];
        int64_t *of = &next[row->segment * (uint32_t)slots + (uint32_t)row->slot];
        w->sent_until[r] = *of;
        *of = w->out->row[r];
    }
}

static void find_segments(Walk *w) {
    const PlanProgram *program = w->program;
    w->segment_of = ARENA_ARRAY(w->arena, uint32_t, program->n_instrs + 1);
    for (uint32_t s = 0; s < program->n_segments; s++)
        for (int32_t i = 0; i < program->segments[s].n; i++) w->segment_of[program->segments[s].first + i] = s;
}

static void touch(Touch *of, int32_t instr, bool sent) {
    if (of->last < of->first) of->first = of->last = instr;
    if (instr < of->first) of->first = instr;
    if (instr > of->last) of->last = instr;
    of->sent |= sent;
}

// By buffer and segment.
static Touch *find_touches(Walk *w) {
    const PlanProgram *program = w->program;
    Touch *touches = ARENA_ARRAY(w->arena, Touch, (size_t)program->n_buffers * program->n_segments + 1);
    for (size_t i = 0; i < (size_t)program->n_buffers * program->n_segments; i++) touches[i].last = -1;
    w->late = ARENA_ARRAY(w->arena, bool, program->n_buffers + 1);
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        for (uint32_t k = 0; k < instr->n_operands; k++) {
            uint32_t buffer = program->operands[instr->operands + k].buffer;
            touch(&touches[buffer * program->n_segments + w->segment_of[i]], (int32_t)i, instr->op == PLAN_send);
            w->late[buffer] |= instr->last;
        }
    }
    for (uint32_t b = 0; b < program->n_buffers; b++) {
        const PlanBuffer *buffer = &program->buffers[b];
        Touch *of = &touches[b * program->n_segments];
        if (!plan_region_is_placed(buffer->region) || !program->n_instrs) continue;
        touch(&of[w->segment_of[buffer->first]], buffer->first, false);
        touch(&of[w->segment_of[buffer->last]], buffer->last, false);
    }
    return touches;
}

// The life of a buffer in one microbatch; false: it has none there.
static bool life_in(const Walk *w, uint32_t buffer, const Touch *touches, int32_t microbatch, PlanLife *life) {
    const PlanProgram *program = w->program;
    bool any = false;
    *life = (PlanLife){ .buffer = buffer, .first = INT64_MAX, .last = -1 };
    for (uint32_t s = 0; s < program->n_segments; s++) {
        const Touch *of = &touches[buffer * program->n_segments + s];
        int32_t row = *row_of(w, s, microbatch);
        if (of->last < of->first || row < 0) continue;
        any = true;
        int64_t last = tick(w, row, of->last);
        if (of->sent && w->sent_until[row] - 1 > last) last = w->sent_until[row] - 1;
        life->first = min_i64(life->first, tick(w, row, of->first));
        life->last = max_i64(life->last, last);
        life->slot = program->buffers[buffer].n_further ? program->rows[row].slot : 0;
    }
    return any;
}

// What last rows make and what follows them reads: one life, from row to row.
static bool late_life(const Walk *w, uint32_t buffer, const Touch *touches, PlanLife *life) {
    const PlanProgram *program = w->program;
    *life = (PlanLife){ .buffer = buffer, .first = INT64_MAX, .last = -1 };
    for (uint32_t s = 0; s < program->n_segments; s++) {
        const Touch *of = &touches[buffer * program->n_segments + s];
        int32_t row = -1;
        for (int32_t m = 0; m < w->batches; m++)
            if (*row_of(w, s, m) > row) row = *row_of(w, s, m);
        if (of->last < of->first || row < 0) continue;
        life->first = min_i64(life->first, tick(w, row, of->first));
        life->last = max_i64(life->last, tick(w, row, of->last));
    }
    return life->last >= 0;
}

void plan_lives(const PlanProgram *program, Region region, Arena *arena, PlanLives *out) {
    Walk w = { .program = program, .arena = arena, .out = out };
    *out = (PlanLives){ 0 };
    find_rows(&w);
    find_sent(&w);
    find_segments(&w);
    const Touch *touches = find_touches(&w);
    for (uint32_t b = 0; b < program->n_buffers; b++) {
        PlanLife life;
        if (program->buffers[b].region != region) continue;
        if (w.late[b]) {
            if (late_life(&w, b, touches, &life)) *ARENA_PUSH(arena, out->items, out->n, out->cap) = life;
            continue;
        }
        for (int32_t m = 0; m < w.batches; m++)
            if (life_in(&w, b, touches, m, &life)) *ARENA_PUSH(arena, out->items, out->n, out->cap) = life;
    }
}
