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
// This is proved by walking all rows in order, over the buffers of sym only, each slot's by itself. What ran before the
// program counts as having used all bytes in all ways. A counted repeat may run never, once or often: its
// instructions are walked from what holds before it, then from what holds before it or after a trip; and what
// follows must be right after any of these.
#include "runtime/plan/check.h"

#include <stdio.h>

typedef struct Moment {
    uint8_t unmet;  // bit g: the ranks of group g may not have met since
    int64_t instr;  // -1: before the program
} Moment;
_Static_assert(N_GROUPS <= 8, "a bit for every group");

// The last ones: by the owner, of any kind and writes; by all.
typedef enum Access { TOUCHED, WRITTEN, PUT, GOT, N_ACCESSES } Access; // ORDER ACCESS

// A buffer of sym in one slot, or in all of them.
typedef struct Tenant {
    const PlanBuffer *buffer; // NULL: not of sym
    int64_t begin, end;       // bytes
    uint8_t group;            // of its puts and gets
    bool remote;              // has some
    Moment last[N_ACCESSES]; // ORDER ACCESS
    uint32_t *others, n_others, cap_others; // that share bytes, itself included
} Tenant;

typedef struct Walk {
    const ProgramCheck *c;
    Tenant *tenants; // by buffer and slot
    uint32_t *found, n_found; // of them, buffers of sym
    Moment (*before)[N_ACCESSES]; // [n_found] a counted repeat
    int32_t slots, slot; // of the row
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
    const PlanRepeat *repeat = plan_repeat(c->program, number);
    if (operand->step || (repeat && !repeat->count))
        REFUSE_REMOTE(c, number, "expected %s \"%s\" outside of repeats",
                      plan_mode_words[operand->mode], buffer->name);
    if (repeat && operand->group < N_GROUPS && !check_agreed(c, repeat, (PlanGroup)operand->group))
        REFUSE_REMOTE(c, number,
                      "expected %s \"%s\" in a repeat whose trips the ranks of %s agree on: counted by \"%s\", "
                      "which gathers of theirs alone make",
                      plan_mode_words[operand->mode], buffer->name, plan_group_words[operand->group],
                      c->program->buffers[repeat->count - 1].name);
    if (!plan_group_holds(GROUP_dp, (PlanGroup)operand->group))
        REFUSE_REMOTE(c, number, "expected a group of ranks of one stage behind %s \"%s\", found %s",
                      plan_mode_words[operand->mode], buffer->name,
                      plan_group_words[operand->group]);
    return OK;
}

static Tenant *tenant_of(const Walk *walk, uint32_t buffer, int32_t slot) {
    const PlanBuffer *at = &walk->c->program->buffers[buffer];
    return &walk->tenants[(size_t)buffer * (size_t)walk->slots + (size_t)(at->n_further ? slot : 0)];
}

static Status find_groups(const Walk *walk) {
    const PlanProgram *program = walk->c->program;
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        for (uint32_t k = 0; k < instr->n_operands; k++) {
            const PlanOperand *operand = &program->operands[instr->operands + k];
            Tenant *tenant = tenant_of(walk, operand->buffer, 0);
            if (!operand_is_remote(operand->mode)) continue;
            if (tenant->remote && tenant->group != operand->group)
                REFUSE_REMOTE(walk->c, i, "expected \"%s\" to be reached by one group, found %s and %s",
                              tenant->buffer->name, plan_group_words[tenant->group],
                              plan_group_words[operand->group]);
            for (int32_t slot = 0; slot < walk->slots; slot++) {
                tenant_of(walk, operand->buffer, slot)->remote = true;
                tenant_of(walk, operand->buffer, slot)->group = operand->group;
            }
        }
    }
    for (uint32_t b = 0; b < program->n_buffers; b++)
        if (tenant_of(walk, b, 0)->buffer && !tenant_of(walk, b, 0)->remote)
            REFUSE("remote", "program \"%s\", buffer \"%s\": expected a put or a get of what lies in "
                             "sym, found none", program->name, program->buffers[b].name);
    return OK;
}

// False where the program has no buffer in sym.
static bool find_tenants(Walk *walk) {
    const PlanProgram *program = walk->c->program;
    Arena *scratch = walk->c->scratch;
    uint32_t n = 0, cap = 0, *found = NULL;
    walk->slots = plan_slots(program);
    walk->tenants = ARENA_ARRAY(scratch, Tenant, (size_t)program->n_buffers * (size_t)walk->slots);
    for (uint32_t b = 0; b < program->n_buffers; b++) {
        const PlanBuffer *buffer = &program->buffers[b];
        if (buffer->region != REGION_sym) continue;
        for (int32_t slot = 0; slot < (buffer->n_further ? walk->slots : 1); slot++) {
            Tenant *tenant = tenant_of(walk, b, slot);
            tenant->buffer = buffer;
            tenant->begin = plan_offset(buffer, slot);
            tenant->end = tenant->begin + buffer->bytes;
            for (int i = 0; i < N_ACCESSES; i++) tenant->last[i] = (Moment){ UINT8_MAX, -1 };
            *ARENA_PUSH(scratch, found, n, cap) = (uint32_t)(tenant - walk->tenants);
        }
    }
    for (uint32_t a = 0; a < n; a++) {
        for (uint32_t b = 0; b < n; b++) {
            Tenant *at = &walk->tenants[found[a]];
            const Tenant *other = &walk->tenants[found[b]];
            if (other->begin >= at->end || at->begin >= other->end) continue;
            *ARENA_PUSH(scratch, at->others, at->n_others, at->cap_others) = found[b];
        }
    }
    walk->found = found;
    walk->n_found = n;
    walk->before = arena_alloc(scratch, sizeof *walk->before * n);
    return n > 0;
}

// Have all ranks that reach either buffer met since?
static bool met_since(const Tenant *a, const Tenant *b, Moment then) {
    for (int group = 0; group < N_GROUPS; group++) {
        bool all = plan_group_holds((PlanGroup)group, (PlanGroup)a->group) &&
                   plan_group_holds((PlanGroup)group, (PlanGroup)b->group);
        if (all && !(then.unmet >> group & 1)) return true;
    }
    return false;
}

static Status expect_met(const Walk *walk, uint32_t number, const char *what, const Tenant *at,
                         const Tenant *other, Access access) {
    static const char *const words[N_ACCESSES] = { "use of", "write to", "put into", "get from" };
    Moment then = other->last[access];
    if (met_since(at, other, then)) return OK;
    char where[64];
    snprintf(where, sizeof where, then.instr >= 0 ? "of instruction %lld" : "before the program",
             (long long)then.instr);
    REFUSE_REMOTE(walk->c, number,
                  "%s \"%s\" (bytes %lld..%lld): expected the ranks of %s to meet after the last %s "
                  "\"%s\" (bytes %lld..%lld), %s, found no barrier, gather or exchange between",
                  what, at->buffer->name, (long long)at->begin, (long long)at->end,
                  plan_group_words[at->group], words[access], other->buffer->name,
                  (long long)other->begin, (long long)other->end, where);
}

static Status check_put(const Walk *walk, uint32_t number, const Tenant *at) {
    for (uint32_t i = 0; i < at->n_others; i++) {
        const Tenant *other = &walk->tenants[at->others[i]];
        TRY(expect_met(walk, number, "put into", at, other, TOUCHED));
        TRY(expect_met(walk, number, "put into", at, other, PUT));
        TRY(expect_met(walk, number, "put into", at, other, GOT));
    }
    return OK;
}

static Status check_own_write(const Walk *walk, uint32_t number, const Tenant *at) {
    for (uint32_t i = 0; i < at->n_others; i++) {
        const Tenant *other = &walk->tenants[at->others[i]];
        TRY(expect_met(walk, number, "write to", at, other, PUT));
        TRY(expect_met(walk, number, "write to", at, other, GOT));
    }
    return OK;
}

static Status check_get(const Walk *walk, uint32_t number, const Tenant *at) {
    TRY(expect_met(walk, number, "get from", at, at, WRITTEN));
    return expect_met(walk, number, "get from", at, at, PUT);
}

static Status walk_operand(Walk *walk, uint32_t number, const PlanOperand *operand) {
    Tenant *at = tenant_of(walk, operand->buffer, walk->slot);
    Moment now = { UINT8_MAX, number };
    if (!at->buffer) return OK;
    if (operand->mode == OPERAND_PUT) {
        TRY(check_put(walk, number, at));
        at->last[PUT] = now;
    } else if (operand->mode == OPERAND_GET) {
        TRY(check_get(walk, number, at));
        at->last[GOT] = now;
    } else {
        if (operand_reads(operand->mode)) TRY(expect_met(walk, number, "read of", at, at, PUT));
        if (operand_writes(operand->mode)) {
            TRY(check_own_write(walk, number, at));
            at->last[WRITTEN] = now;
        }
        at->last[TOUCHED] = now;
    }
    return OK;
}

// What is begun here and ends elsewhere orders nothing but itself.
static bool meets(const PlanInstr *instr) {
    bool whole = instr->half == HALF_whole;
    return whole && (instr->op == PLAN_barrier || instr->op == PLAN_gather || instr->op == PLAN_exchange);
}

static Status walk_instr(Walk *walk, uint32_t number) {
    const PlanInstr *instr = &walk->c->program->instrs[number];
    const PlanOperand *operands = check_operands(walk->c->program, instr);
    for (uint32_t k = 0; k < instr->n_operands; k++) TRY(walk_operand(walk, number, &operands[k]));
    uint8_t met = 0; // where a group meets, so do those within it
    for (int group = 0; meets(instr) && group < N_GROUPS; group++)
        if (plan_group_holds((PlanGroup)instr->group, (PlanGroup)group)) met |= (uint8_t)(1u << group);
    for (uint32_t i = 0; met && i < walk->n_found; i++)
        for (int k = 0; k < N_ACCESSES; k++) walk->tenants[walk->found[i]].last[k].unmet &= (uint8_t)~met;
    return OK;
}

// What may hold now, or held before.
static void join(Walk *walk) {
    for (uint32_t i = 0; i < walk->n_found; i++) {
        for (int k = 0; k < N_ACCESSES; k++) {
            Moment *now = &walk->tenants[walk->found[i]].last[k], before = walk->before[i][k];
            if (!now->unmet) now->instr = before.instr;
            now->unmet |= before.unmet;
        }
    }
}

static Status walk_counted(Walk *walk, const PlanRepeat *repeat) {
    for (uint32_t i = 0; i < walk->n_found; i++)
        memcpy(walk->before[i], walk->tenants[walk->found[i]].last, sizeof walk->before[i]);
    for (int trip = 0; trip < 2; trip++) {
        for (int32_t i = 0; i < repeat->n; i++) TRY(walk_instr(walk, (uint32_t)(repeat->first + i)));
        join(walk);
    }
    return OK;
}

static Status walk_segment(Walk *walk, const PlanSegment *segment) {
    for (int64_t i = segment->first; i < (int64_t)segment->first + segment->n;) {
        const PlanRepeat *repeat = plan_repeat(walk->c->program, i);
        bool counted = repeat && repeat->count;
        TRY(counted ? walk_counted(walk, repeat) : walk_instr(walk, (uint32_t)i));
        i += counted ? repeat->n : 1;
    }
    return OK;
}

// Does the row end a fourth turn of the same two segments? Whether ranks have met since an access that a
// turn repeats is settled within the turn; since one that it does not, after the first meeting in it.
static bool is_old(const PlanProgram *program, uint32_t r) {
    for (uint32_t i = 2; i <= 6; i += 2) {
        if (r < i + 1) return false;
        for (uint32_t k = r - 1; k <= r; k++)
            if (program->rows[k - i].segment != program->rows[k].segment ||
                program->rows[k - i].slot != program->rows[k].slot)
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
        walk.slot = program->rows[r].slot;
        TRY(walk_segment(&walk, segment));
    }
    for (size_t i = 0; i < (size_t)program->n_buffers * (size_t)walk.slots; i++) {
        const Tenant *at = &walk.tenants[i];
        if (!at->buffer) continue;
        TRY(expect_met(&walk, program->n_instrs, "end of", at, at, PUT));
        TRY(expect_met(&walk, program->n_instrs, "end of", at, at, GOT));
    }
    return OK;
}
