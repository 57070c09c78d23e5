// SPDX-License-Identifier: Apache-2.0
// Lives of buffers and their addresses. Rules are listed in check.c.
#include "runtime/plan/check.h"

#include <stdlib.h>

/* Lives --------------------------------------------------------------------------------------- */

static Status check_life(const ProgramCheck *c, const PlanBuffer *buffer) {
    int32_t last = (int32_t)c->program->n_instrs - 1;
    if (!plan_region_is_placed(buffer->region)) {
        if (buffer->first == 0 && buffer->last == max_i64(last, 0)) return OK;
        REFUSE("lives", "program \"%s\", buffer \"%s\": expected to live 0..%d in %s, found %d..%d",
               c->program->name, buffer->name, last, plan_region_words[buffer->region],
               buffer->first, buffer->last);
    }
    if (buffer->first >= 0 && buffer->first <= buffer->last && buffer->last <= last) return OK;
    REFUSE("lives", "program \"%s\", buffer \"%s\": expected a life within 0..%d, found %d..%d",
           c->program->name, buffer->name, last, buffer->first, buffer->last);
}

static Status check_alive(const ProgramCheck *c, uint32_t number, uint32_t index) {
    const PlanBuffer *buffer = &c->program->buffers[index];
    if ((int64_t)number >= buffer->first && (int64_t)number <= buffer->last) return OK;
    REFUSE("lives",
           "program \"%s\", instruction %u: expected buffer \"%s\" only in its life "
           "%d..%d",
           c->program->name, number, buffer->name, buffer->first, buffer->last);
}

Status check_lives(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    for (uint32_t i = 0; i < program->n_buffers; i++) TRY(check_life(c, &program->buffers[i]));
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        for (uint32_t j = 0; j < instr->n_operands; j++)
            TRY(check_alive(c, i, program->operands[instr->operands + j].buffer));
    }
    for (uint32_t r = 0; r < program->n_repeats; r++) // what counts trips is read when they begin
        if (program->repeats[r].count)
            TRY(check_alive(c, (uint32_t)program->repeats[r].first, program->repeats[r].count - 1));
    return OK;
}

/* Clashes ------------------------------------------------------------------------------------- */

// Sweep over time. `live` holds what is alive now by address; since it does not overlap, a newcomer
// can only clash with its two neighbours.
typedef struct Tenant {
    const PlanBuffer *buffer;
    int32_t slot; // -1: there is only one
    int64_t offset, first, last;
} Tenant;

typedef struct Sweep {
    const ProgramCheck *c;
    const Tenant **live;
    uint32_t n_live;
    int64_t bytes, rounded; // alive now: as they are; in whole grains
    int64_t max_bytes, max_rounded, end;
} Sweep;

static int by_first(const void *left, const void *right) {
    const Tenant *a = *(const Tenant *const *)left, *b = *(const Tenant *const *)right;
    return (a->first > b->first) - (a->first < b->first);
}

static int by_last(const void *left, const void *right) {
    const Tenant *a = *(const Tenant *const *)left, *b = *(const Tenant *const *)right;
    return (a->last > b->last) - (a->last < b->last);
}

// Index of the first live tenant at or above `offset`.
static uint32_t live_at(const Sweep *sweep, int64_t offset) {
    uint32_t low = 0, high = sweep->n_live;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (sweep->live[middle]->offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void describe_tenant(const Tenant *t, Text *out) {
    text_printf(out, "\"%s\"%s", t->buffer->name, t->slot < 0 ? "" : " of slot ");
    if (t->slot >= 0) text_printf(out, "%d", t->slot);
    text_printf(out, " (bytes %lld..%lld, life %lld..%lld)", (long long)t->offset,
                (long long)(t->offset + t->buffer->bytes), (long long)t->first, (long long)t->last);
}

static Status clash(const Sweep *sweep, const Tenant *a, const Tenant *b) {
    Text first = { 0 }, second = { 0 };
    describe_tenant(a, &first);
    describe_tenant(b, &second);
    Status status = status_fail(ERR_FORMAT,
                                "plan check, clash: program \"%s\": expected buffers that live at once "
                                "apart, found %s and %s",
                                sweep->c->program->name, text_cstr(&first), text_cstr(&second));
    text_finish(&first);
    text_finish(&second);
    return status;
}

static Status sweep_in(Sweep *sweep, const Tenant *tenant) {
    uint32_t at = live_at(sweep, tenant->offset);
    int64_t bytes = tenant->buffer->bytes;
    if (at < sweep->n_live && tenant->offset + bytes > sweep->live[at]->offset) {
        return clash(sweep, sweep->live[at], tenant);
    }
    if (at > 0 && sweep->live[at - 1]->offset + sweep->live[at - 1]->buffer->bytes > tenant->offset) {
        return clash(sweep, sweep->live[at - 1], tenant);
    }
    memmove(sweep->live + at + 1, sweep->live + at, (sweep->n_live - at) * sizeof *sweep->live);
    sweep->live[at] = tenant;
    sweep->n_live++;
    sweep->bytes += bytes;
    sweep->rounded += round_up(bytes, PLAN_GRAIN);
    sweep->max_bytes = max_i64(sweep->max_bytes, sweep->bytes);
    sweep->max_rounded = max_i64(sweep->max_rounded, sweep->rounded);
    sweep->end = max_i64(sweep->end, tenant->offset + bytes);
    return OK;
}

static void sweep_out(Sweep *sweep, const Tenant *tenant) {
    uint32_t at = live_at(sweep, tenant->offset);
    sweep->n_live--;
    memmove(sweep->live + at, sweep->live + at + 1, (sweep->n_live - at) * sizeof *sweep->live);
    sweep->bytes -= tenant->buffer->bytes;
    sweep->rounded -= round_up(tenant->buffer->bytes, PLAN_GRAIN);
}

// Rows one after another in the order of segments, for every microbatch alike: one of them tells all.
static Tenant *list_plain(const ProgramCheck *c, Region region, uint32_t *n) {
    const PlanProgram *program = c->program;
    Tenant *tenants = ARENA_ARRAY(c->scratch, Tenant, program->n_buffers);
    for (uint32_t i = 0; i < program->n_buffers; i++) {
        const PlanBuffer *buffer = &program->buffers[i];
        if (buffer->region == region)
            tenants[(*n)++] = (Tenant){ buffer, -1, buffer->offset, buffer->first, buffer->last };
    }
    return tenants;
}

static Tenant *list_in_rows(const ProgramCheck *c, Region region, uint32_t *n) {
    PlanLives lives;
    plan_lives(c->program, region, c->scratch, &lives);
    Tenant *tenants = ARENA_ARRAY(c->scratch, Tenant, lives.n);
    for (uint32_t i = 0; i < lives.n; i++) {
        const PlanLife *life = &lives.items[i];
        const PlanBuffer *buffer = &c->program->buffers[life->buffer];
        tenants[(*n)++] =
            (Tenant){ buffer, life->slot, plan_offset(buffer, life->slot), life->first, life->last };
    }
    return tenants;
}

// The sweep over the buffers of one region.
static Status sweep_region(const ProgramCheck *c, Region region, Sweep *sweep) {
    uint32_t n = 0;
    const Tenant *tenants = c->pipelined ? list_in_rows(c, region, &n) : list_plain(c, region, &n);
    const Tenant **in = ARENA_ARRAY(c->scratch, const Tenant *, n);
    const Tenant **out = ARENA_ARRAY(c->scratch, const Tenant *, n);
    *sweep = (Sweep){ .c = c, .live = ARENA_ARRAY(c->scratch, const Tenant *, n) };
    for (uint32_t i = 0; i < n; i++) in[i] = out[i] = &tenants[i];
    if (n) {
        qsort(in, n, sizeof *in, by_first);
        qsort(out, n, sizeof *out, by_last);
    }
    for (uint32_t i = 0, o = 0; i < n; i++) {
        while (out[o]->last < in[i]->first) sweep_out(sweep, out[o++]);
        TRY(sweep_in(sweep, in[i]));
    }
    return OK;
}

Status check_clashes(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    Sweep sweep;
    TRY(sweep_region(c, REGION_sym, &sweep));
    TRY(sweep_region(c, REGION_act, &sweep));
    // The planner may count bytes or whole grains; both are honest.
    if (program->act_bytes < sweep.end || program->act_bytes > round_up(sweep.end, PLAN_GRAIN)) {
        REFUSE("clash",
               "program \"%s\": expected act of %lld bytes (end of the highest buffer), found %lld",
               program->name, (long long)sweep.end, (long long)program->act_bytes);
    }
    if (program->act_bound < sweep.max_bytes || program->act_bound > sweep.max_rounded) {
        REFUSE("clash",
               "program \"%s\": expected a lower bound of act of %lld bytes, or %lld in whole "
               "grains, found "
               "%lld",
               program->name, (long long)sweep.max_bytes, (long long)sweep.max_rounded,
               (long long)program->act_bound);
    }
    return OK;
}
