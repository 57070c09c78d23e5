// SPDX-License-Identifier: Apache-2.0
// What goes on while other instructions run: gathers and exchanges in two halves, and what is done in the
// last row of a segment only. Rules are listed in check.c.
//
// All ranks of a stage run one plan, so that all begin the same calls in the same order and end them in
// the same order; no start waits for anybody. A rank that stands at a wait therefore waits for ranks
// which are on their way to its start, and a plan that comes to an end with whole calls does so with halves.
//
// Proved by walking rows. Halves that every microbatch runs lie in one segment: each of those is walked
// once. Then all rows from the first on that does something but once, to the end, are walked in order.
#include "runtime/plan/check.h"

#define REFUSE_HALF(c, number, format, ...)                                                        \
    REFUSE("halves", "program \"%s\", instruction %u: " format, (c)->program->name, number,        \
           __VA_ARGS__)
#define REFUSE_LAST(c, number, format, ...)                                                        \
    REFUSE("last", "program \"%s\", instruction %u: " format, (c)->program->name, number, __VA_ARGS__)

/* Last rows ----------------------------------------------------------------------------------- */

static bool is_kept(uint8_t region) {
    return region != REGION_act && region != REGION_grads;
}

static Status check_last_operand(const ProgramCheck *c, uint32_t number, const PlanOperand *operand,
                                 bool *late) {
    const PlanBuffer *buffer = &c->program->buffers[operand->buffer];
    if (operand->mode != OPERAND_READ && is_kept(buffer->region))
        REFUSE_LAST(c, number, "expected to write act or grads in a last row, found \"%s\" of %s",
                    buffer->name, plan_region_words[buffer->region]);
    if (!plan_region_is_placed(buffer->region)) return OK;
    if (buffer->region == REGION_sym || buffer->n_further)
        REFUSE_LAST(c, number, "expected one place for \"%s\" in act, found %d in %s", buffer->name,
                    1 + buffer->n_further, plan_region_words[buffer->region]);
    late[operand->buffer] = true;
    return OK;
}

// Values of last rows are made and read in last rows, or after all microbatches.
Status check_last(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    bool *late = ARENA_ARRAY(c->scratch, bool, program->n_buffers + 1), any = false;
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        if (!instr->last) continue;
        any = true;
        if (!c->is_step || c->phase[i] != PHASE_BODY || plan_repeat(program, i))
            REFUSE_LAST(c, i, "expected it in a microbatch of a step, outside of repeats, found it in \"%s\"",
                        program->segments[c->segment[i]].name);
        for (uint32_t k = 0; k < instr->n_operands; k++)
            TRY(check_last_operand(c, i, &program->operands[instr->operands + k], late));
    }
    for (uint32_t i = 0; any && i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        for (uint32_t k = 0; !instr->last && c->phase[i] != PHASE_AFTER && k < instr->n_operands; k++) {
            uint32_t buffer = program->operands[instr->operands + k].buffer;
            if (late[buffer])
                REFUSE_LAST(c, i, "expected \"%s\" in last rows and after them only, found it in every row",
                            program->buffers[buffer].name);
        }
    }
    return OK;
}

uint32_t check_once_from(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    uint32_t first = program->n_rows;
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        bool once = program->instrs[i].last || c->phase[i] == PHASE_AFTER;
        uint32_t row = c->last_row[c->segment[i]];
        if (once && row < first) first = row;
    }
    return first;
}

/* Halves -------------------------------------------------------------------------------------- */

typedef struct Pair {
    uint32_t start; // instruction
    const PlanBuffer *from, *to;
} Pair;

typedef struct Walk {
    const ProgramCheck *c;
    Pair *open; // begun and not waited for
    uint32_t n, cap;
    int32_t slot; // of the row; -1: of any
} Walk;

static const PlanBuffer *buffer_of(const Walk *w, uint32_t number, uint32_t k) {
    return &w->c->program->buffers[w->c->program->operands[w->c->program->instrs[number].operands + k].buffer];
}

// Of all trips.
static bool touches(const Walk *w, const PlanBuffer *buffer, const PlanOperand *operand, const PlanBuffer *other) {
    int64_t bytes = operand->bytes ? operand->bytes : buffer->bytes;
    if (buffer->region != other->region) return false;
    for (int32_t slot = 0; slot <= buffer->n_further; slot++) {
        if (buffer->n_further && w->slot >= 0 && slot != w->slot) continue;
        int64_t at = plan_offset(buffer, slot) + (operand->bytes ? operand->offset : 0);
        if (at < other->offset + other->bytes && other->offset < at + bytes) return true;
    }
    return false;
}

static Status check_apart(const Walk *w, uint32_t number, const PlanOperand *operand) {
    const PlanBuffer *buffer = &w->c->program->buffers[operand->buffer];
    for (uint32_t i = 0; i < w->n; i++) {
        const Pair *pair = &w->open[i];
        if (touches(w, buffer, operand, pair->to))
            REFUSE_HALF(w->c, number,
                        "expected the wait of instruction %u before \"%s\" is touched, which comes into \"%s\"",
                        pair->start, buffer->name, pair->to->name);
        if (operand_writes(operand->mode) && touches(w, buffer, operand, pair->from))
            REFUSE_HALF(w->c, number,
                        "expected the wait of instruction %u before \"%s\" is written, which sends \"%s\"",
                        pair->start, buffer->name, pair->from->name);
    }
    return OK;
}

static Status take_start(Walk *w, uint32_t number) {
    Pair pair = { number, buffer_of(w, number, 0), buffer_of(w, number, 1) };
    if (pair.from->n_further || pair.to->n_further || pair.from->region == REGION_sym ||
        pair.to->region == REGION_sym)
        REFUSE_HALF(w->c, number,
                    "expected source and result outside of sym, with one place each, found \"%s\" and \"%s\"",
                    pair.from->name, pair.to->name);
    *ARENA_PUSH(w->c->scratch, w->open, w->n, w->cap) = pair;
    return OK;
}

// The pair that a wait ends is taken out first: its operands are the wait's own.
static Status take_wait(Walk *w, uint32_t number) {
    const PlanInstr *wait = &w->c->program->instrs[number];
    for (uint32_t i = 0; i < w->n; i++) {
        const PlanInstr *start = &w->c->program->instrs[w->open[i].start];
        if (start->op != wait->op || start->group != wait->group ||
            w->open[i].from != buffer_of(w, number, 0) || w->open[i].to != buffer_of(w, number, 1))
            continue;
        memmove(&w->open[i], &w->open[i + 1], (w->n - i - 1) * sizeof *w->open);
        w->n--;
        return OK;
    }
    REFUSE_HALF(w->c, number, "expected a start of this %s into \"%s\" before its wait, found none",
                plan_op_words[wait->op], buffer_of(w, number, 1)->name);
}

static Status walk_instr(Walk *w, uint32_t number) {
    const PlanInstr *instr = &w->c->program->instrs[number];
    const PlanOperand *operands = check_operands(w->c->program, instr);
    if (instr->half == HALF_wait) TRY(take_wait(w, number));
    for (uint32_t k = 0; w->n && k < instr->n_operands; k++) TRY(check_apart(w, number, &operands[k]));
    return instr->half == HALF_start ? take_start(w, number) : OK;
}

static Status expect_none_open(const Walk *w, const char *where) {
    if (!w->n) return OK;
    REFUSE_HALF(w->c, w->open[0].start, "expected a wait for what comes into \"%s\" by the end of %s, found none",
                w->open[0].to->name, where);
}

static Status walk_segment(const ProgramCheck *c, const PlanSegment *segment) {
    Walk w = { .c = c, .slot = -1 };
    for (int64_t i = segment->first; i < (int64_t)segment->first + segment->n; i++)
        if (!c->program->instrs[i].last) TRY(walk_instr(&w, (uint32_t)i));
    return expect_none_open(&w, "its row");
}

Status check_halves(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    Walk w = { .c = c };
    bool any = false;
    for (uint32_t i = 0; i < program->n_instrs; i++) any |= program->instrs[i].half != HALF_whole;
    if (!any) return OK;
    for (uint32_t s = 0; s < program->n_segments; s++) {
        const PlanSegment *segment = &program->segments[s];
        if (segment->n && c->phase[segment->first] != PHASE_AFTER) TRY(walk_segment(c, segment));
    }
    for (uint32_t r = check_once_from(c); r < program->n_rows; r++) {
        const PlanSegment *segment = &program->segments[program->rows[r].segment];
        w.slot = program->rows[r].slot;
        for (int64_t i = segment->first; i < (int64_t)segment->first + segment->n; i++)
            if (check_runs(c, &program->instrs[i], r)) TRY(walk_instr(&w, (uint32_t)i));
    }
    return expect_none_open(&w, "the program");
}
