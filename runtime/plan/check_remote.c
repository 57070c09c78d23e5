// SPDX-License-Identifier: Apache-2.0
// What other ranks read and write of a rank's memory, and when. Rules are listed in check.c.
//
// All ranks of a stage run the same instructions, each at its own pace. What orders one's accesses
// against another's are crossings that nobody leaves before all of a group have come: a barrier, a
// gather, an exchange (the group *meets*). Between two accesses of the same bytes of sym, at least one
// of them by another rank and at least one of them a write, the ranks must have met:
//
//   at                    the ranks met after the last
//   a put                 access of any kind to any buffer that shares bytes
//   a write by the owner  put, get of any that shares bytes
//   a read by the owner   put into this one
//   a get                 write by its owner, put into this one
//   the end               put, get: the memory may be given back
//
// This is proved by walking all rows in order, over the buffers of sym only. What ran before the
// program counts as having used all bytes in all ways.
#include "runtime/plan/check.h"

#include <stdio.h>

typedef struct Moment {
    int64_t clock; // instructions that have run; 0: before the program
    uint32_t instr;
} Moment;

typedef struct Tenant {
    const PlanBuffer *buffer; // NULL: not of sym
    uint8_t group;            // of its puts and gets
    bool remote;              // has some
    Moment touched, written, put, got; // the last ones: by the owner, by the owner, by all, by all
    uint32_t *others, n_others, cap_others; // that share bytes, itself included
} Tenant;

typedef struct Walk {
    const ProgramCheck *c;
    Tenant *tenants; // by buffer
    int64_t clock, met[N_GROUPS];
} Walk;

#define REFUSE_REMOTE(c, number, format, ...)                                                      \
    REFUSE("remote", "program \"%s\", instruction %u: " format, (c)->program->name, number,        \
           __VA_ARGS__)

Status check_remote_operand(const ProgramCheck *c, uint32_t number, const PlanOperand *operand) {
    const PlanBuffer *buffer = &c->program->buffers[operand->buffer];
    if (buffer->region != REGION_sym)
        REFUSE_REMOTE(c, number, "expected a buffer of sym behind %s, found \"%s\" of %s",
                      plan_mode_words[operand->mode], buffer->name,
                      plan_region_words[buffer->region]);
    if (operand->step || plan_repeat(c->program, number))
        REFUSE_REMOTE(c, number, "expected %s \"%s\" outside of repeats",
                      plan_mode_words[operand->mode], buffer->name);
    if (!plan_group_holds(GROUP_dp, (PlanGroup)operand->group))
        REFUSE_REMOTE(c, number, "expected a group of ranks of one stage behind %s \"%s\", found %s",
                      plan_mode_words[operand->mode], buffer->name,
                      plan_group_words[operand->group]);
    return OK;
}

static Status find_groups(const Walk *walk) {
    const PlanProgram *program = walk->c->program;
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        for (uint32_t k = 0; k < instr->n_operands; k++) {
            const PlanOperand *operand = &program->operands[instr->operands + k];
            Tenant *tenant = &walk->tenants[operand->buffer];
            if (!operand_is_remote(operand->mode)) continue;
            if (tenant->remote && tenant->group != operand->group)
                REFUSE_REMOTE(walk->c, i, "expected \"%s\" to be reached by one group, found %s and %s",
                              tenant->buffer->name, plan_group_words[tenant->group],
                              plan_group_words[operand->group]);
            tenant->remote = true;
            tenant->group = operand->group;
        }
    }
    for (uint32_t b = 0; b < program->n_buffers; b++)
        if (walk->tenants[b].buffer && !walk->tenants[b].remote)
            REFUSE("remote", "program \"%s\", buffer \"%s\": expected a put or a get of what lies in "
                             "sym, found none", program->name, program->buffers[b].name);
    return OK;
}

// False where the program has no buffer in sym.
static bool find_tenants(Walk *walk) {
    const PlanProgram *program = walk->c->program;
    Arena *scratch = walk->c->scratch;
    bool any = false;
    walk->tenants = ARENA_ARRAY(scratch, Tenant, program->n_buffers);
    for (uint32_t a = 0; a < program->n_buffers; a++) {
        const PlanBuffer *buffer = &program->buffers[a];
        if (buffer->region != REGION_sym) continue;
        any = true;
        walk->tenants[a].buffer = buffer;
        for (uint32_t b = 0; b <= a; b++) {
            const PlanBuffer *other = walk->tenants[b].buffer;
            if (!other || other->offset >= buffer->offset + buffer->bytes ||
                buffer->offset >= other->offset + other->bytes)
                continue;
            Tenant *both[] = { &walk->tenants[a], &walk->tenants[b] };
            *ARENA_PUSH(scratch, both[0]->others, both[0]->n_others, both[0]->cap_others) = b;
            if (a == b) continue;
            *ARENA_PUSH(scratch, both[1]->others, both[1]->n_others, both[1]->cap_others) = a;
        }
    }
    return any;
}

// Have all ranks that reach either buffer met since?
static bool met_since(const Walk *walk, const Tenant *a, const Tenant *b, Moment then) {
    for (int group = 0; group < N_GROUPS; group++) {
        bool all = plan_group_holds((PlanGroup)group, (PlanGroup)a->group) &&
                   plan_group_holds((PlanGroup)group, (PlanGroup)b->group);
        if (all && walk->met[group] > then.clock) return true;
    }
    return false;
}

static Status expect_met(const Walk *walk, uint32_t number, const char *what, const Tenant *at,
                         const Tenant *other, const char *before, Moment then) {
    if (met_since(walk, at, other, then)) return OK;
    char where[64];
    snprintf(where, sizeof where, then.clock ? "of instruction %u" : "before the program", then.instr);
    REFUSE_REMOTE(walk->c, number,
                  "%s \"%s\" (bytes %lld..%lld): expected the ranks of %s to meet after the last %s "
                  "\"%s\" (bytes %lld..%lld), %s, found no barrier, gather or exchange between",
                  what, at->buffer->name, (long long)at->buffer->offset,
                  (long long)(at->buffer->offset + at->buffer->bytes), plan_group_words[at->group],
                  before, other->buffer->name, (long long)other->buffer->offset,
                  (long long)(other->buffer->offset + other->buffer->bytes), where);
}

static Status check_put(const Walk *walk, uint32_t number, const Tenant *at) {
    for (uint32_t i = 0; i < at->n_others; i++) {
        const Tenant *other = &walk->tenants[at->others[i]];
        TRY(expect_met(walk, number, "put into", at, other, "use of", other->touched));
        TRY(expect_met(walk, number, "put into", at, other, "put into", other->put));
        TRY(expect_met(walk, number, "put into", at, other, "get from", other->got));
    }
    return OK;
}

static Status check_own_write(const Walk *walk, uint32_t number, const Tenant *at) {
    for (uint32_t i = 0; i < at->n_others; i++) {
        const Tenant *other = &walk->tenants[at->others[i]];
        TRY(expect_met(walk, number, "write to", at, other, "put into", other->put));
        TRY(expect_met(walk, number, "write to", at, other, "get from", other->got));
    }
    return OK;
}

static Status check_get(const Walk *walk, uint32_t number, const Tenant *at) {
    TRY(expect_met(walk, number, "get from", at, at, "write to", at->written));
    return expect_met(walk, number, "get from", at, at, "put into", at->put);
}

static Status walk_operand(Walk *walk, uint32_t number, const PlanOperand *operand) {
    Tenant *at = &walk->tenants[operand->buffer];
    Moment now = { walk->clock, number };
    if (!at->buffer) return OK;
    if (operand->mode == OPERAND_PUT) {
        TRY(check_put(walk, number, at));
        at->put = now;
    } else if (operand->mode == OPERAND_GET) {
        TRY(check_get(walk, number, at));
        at->got = now;
    } else {
        if (operand_reads(operand->mode))
            TRY(expect_met(walk, number, "read of", at, at, "put into", at->put));
        if (operand_writes(operand->mode)) {
            TRY(check_own_write(walk, number, at));
            at->written = now;
        }
        at->touched = now;
    }
    return OK;
}

static bool meets(const PlanInstr *instr) {
    return instr->op == PLAN_barrier || instr->op == PLAN_gather || instr->op == PLAN_exchange;
}

static Status walk_instr(Walk *walk, uint32_t number) {
    const PlanInstr *instr = &walk->c->program->instrs[number];
    const PlanOperand *operands = check_operands(walk->c->program, instr);
    walk->clock++;
    for (uint32_t k = 0; k < instr->n_operands; k++) TRY(walk_operand(walk, number, &operands[k]));
    if (meets(instr)) walk->met[instr->group] = ++walk->clock;
    return OK;
}

// Does the row end a fourth turn of the same two segments? Whether ranks have met since an access that a
// turn repeats is settled within the turn; since one that it does not, after the first meeting in it.
static bool is_old(const PlanProgram *program, uint32_t r) {
    for (uint32_t i = 2; i <= 6; i += 2) {
        if (r < i + 1 || program->rows[r - i].segment != program->rows[r].segment ||
            program->rows[r - i - 1].segment != program->rows[r - 1].segment)
            return false;
    }
    return true;
}

Status check_remote(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    Walk walk = { .c = c };
    if (!find_tenants(&walk)) return OK;
    TRY(find_groups(&walk));
    for (uint32_t r = 0; r < program->n_rows; r++) {
        const PlanSegment *segment = &program->segments[program->rows[r].segment];
        if (r + 1 < program->n_rows && is_old(program, r) && is_old(program, r + 1)) {
            r++; // whole turns
            continue;
        }
        for (int64_t i = segment->first; i < (int64_t)segment->first + segment->n; i++)
            TRY(walk_instr(&walk, (uint32_t)i));
    }
    for (uint32_t b = 0; b < program->n_buffers; b++) {
        const Tenant *at = &walk.tenants[b];
        if (!at->buffer) continue;
        TRY(expect_met(&walk, program->n_instrs, "end of", at, at, "put into", at->put));
        TRY(expect_met(&walk, program->n_instrs, "end of", at, at, "get from", at->got));
    }
    return OK;
}
