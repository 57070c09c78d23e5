// SPDX-License-Identifier: Apache-2.0
// All stages of a pipeline together: do they say to each other what each expects, and do they all come to
// an end? Their rows are walked at once as ranks run them: a send only begins, and must have been taken
// when its segment and slot run again; a recv waits for the next message of its stage and lane; a call of a
// group that holds several stages waits for all of them.
#include "runtime/plan/check.h"

typedef struct Message {
    int64_t bytes;
    uint8_t dtype;
    uint32_t instr; // of the sender
    int32_t row;
} Message;

typedef struct Channel { // of two stages, one lane
    Message *items;
    uint32_t n, cap, taken;
} Channel;

typedef struct Stage {
    const PlanProgram *program;
    int32_t row;   // that it is in
    int32_t instr; // next, within the segment
    bool begun;    // the row: what it sent the last time has been taken
    bool arrived;  // at a call of several stages
} Stage;

typedef struct Together {
    const Plan *const *plans;
    int32_t n;
    const char *name; // of the program
    Stage *stages;
    Channel *channels; // [from][to][lane]
    Arena *arena;
} Together;

#define REFUSE_STAGES(t, format, ...) REFUSE("stages", "program \"%s\": " format, (t)->name, __VA_ARGS__)

static Channel *channel(const Together *t, int32_t from, int32_t to, int lane) {
    return &t->channels[(from * t->n + to) * N_LANES + lane];
}

static const PlanInstr *instr_at(const Stage *stage) {
    if ((uint32_t)stage->row >= stage->program->n_rows) return NULL;
    const PlanSegment *segment = &stage->program->segments[stage->program->rows[stage->row].segment];
    return stage->instr < segment->n ? &stage->program->instrs[segment->first + stage->instr] : NULL;
}

static const PlanBuffer *operand_buffer(const Stage *stage, const PlanInstr *instr, uint32_t k) {
    return &stage->program->buffers[stage->program->operands[instr->operands + k].buffer];
}

// What this segment and slot sent before has been taken.
static bool is_settled(const Together *t, int32_t s) {
    const Stage *stage = &t->stages[s];
    const PlanRow *row = &stage->program->rows[stage->row];
    for (int32_t to = 0; to < t->n; to++) {
        for (int lane = 0; lane < N_LANES; lane++) {
            const Channel *c = channel(t, s, to, lane);
            for (uint32_t i = c->taken; i < c->n; i++) {
                const PlanRow *of = &stage->program->rows[c->items[i].row];
                if (of->segment == row->segment && of->slot == row->slot) return false;
            }
        }
    }
    return true;
}

static Status take(const Together *t, int32_t s, const PlanInstr *instr, bool *moved) {
    const Stage *stage = &t->stages[s];
    Channel *c = channel(t, instr->peer, s, instr->lane);
    const PlanBuffer *to = operand_buffer(stage, instr, 0);
    *moved = c->taken < c->n;
    if (!*moved) return OK;
    const Message *m = &c->items[c->taken++];
    if (m->bytes == to->bytes && m->dtype == to->dtype) return OK;
    const Stage *from = &t->stages[instr->peer];
    REFUSE_STAGES(t,
                  "expected what stage %d sends and stage %d receives to be alike, found %lld bytes of %s "
                  "(\"%s\") and %lld of %s (\"%s\")",
                  instr->peer, s, (long long)m->bytes, dtype_name(m->dtype),
                  operand_buffer(from, &from->program->instrs[m->instr], 0)->name, (long long)to->bytes,
                  dtype_name(to->dtype), to->name);
}

static bool spans_stages(const PlanInstr *instr) {
    return instr->op != PLAN_launch && instr->op != PLAN_send && instr->op != PLAN_recv &&
           plan_group_holds((PlanGroup)instr->group, GROUP_pp);
}

// One step of a stage; `moved`: it could.
static Status step(Together *t, int32_t s, bool *moved) {
    Stage *stage = &t->stages[s];
    *moved = false;
    if ((uint32_t)stage->row >= stage->program->n_rows) return OK;
    if (!stage->begun && !is_settled(t, s)) return OK;
    stage->begun = *moved = true;
    const PlanInstr *instr = instr_at(stage);
    if (!instr) {
        stage->row++;
        stage->instr = 0;
        stage->begun = false;
        return OK;
    }
    if (spans_stages(instr)) { // all go on together: meet
        stage->arrived = true;
        *moved = false;
        return OK;
    }
    if (instr->op == PLAN_send) {
        Channel *c = channel(t, s, instr->peer, instr->lane);
        const PlanBuffer *from = operand_buffer(stage, instr, 0);
        *ARENA_PUSH(t->arena, c->items, c->n, c->cap) =
            (Message){ from->bytes, from->dtype, (uint32_t)(instr - stage->program->instrs), stage->row };
    } else if (instr->op == PLAN_recv) {
        TRY(take(t, s, instr, moved));
        if (!*moved) return OK;
    }
    stage->instr++;
    return OK;
}

static int64_t bytes_of_call(const Stage *stage, const PlanInstr *instr) {
    return instr->n_operands ? operand_buffer(stage, instr, 0)->bytes : 0;
}

static Status meet(Together *t, bool *moved) {
    const PlanInstr *first = instr_at(&t->stages[0]);
    *moved = true;
    for (int32_t s = 0; s < t->n; s++) *moved &= t->stages[s].arrived;
    if (!*moved) return OK;
    for (int32_t s = 0; s < t->n; s++) {
        Stage *stage = &t->stages[s];
        const PlanInstr *instr = instr_at(stage);
        if (instr->op != first->op || instr->group != first->group ||
            bytes_of_call(stage, instr) != bytes_of_call(&t->stages[0], first))
            REFUSE_STAGES(t,
                          "expected stages to make the same calls of all in one order, found @%s %s of %lld "
                          "bytes on stage 0 and @%s %s of %lld on stage %d",
                          plan_op_words[first->op], plan_group_words[first->group],
                          (long long)bytes_of_call(&t->stages[0], first), plan_op_words[instr->op],
                          plan_group_words[instr->group], (long long)bytes_of_call(stage, instr), s);
    }
    for (int32_t s = 0; s < t->n; s++) {
        t->stages[s].arrived = false;
        t->stages[s].instr++;
    }
    return OK;
}

static Status all_ended(const Together *t) {
    for (int32_t s = 0; s < t->n; s++) {
        const Stage *stage = &t->stages[s];
        if ((uint32_t)stage->row >= stage->program->n_rows) continue;
        const PlanRow *row = &stage->program->rows[stage->row];
        const PlanSegment *segment = &stage->program->segments[row->segment];
        if (!stage->begun)
            REFUSE_STAGES(t, "stage %d waits for ever for what \"%s\" of microbatch %d sends to be taken", s,
                          segment->name, row->microbatch);
        REFUSE_STAGES(t, "stage %d waits for ever at instruction %d, in \"%s\" of microbatch %d", s,
                      segment->first + stage->instr, segment->name, row->microbatch);
    }
    for (int32_t from = 0; from < t->n; from++) {
        for (int32_t i = 0; i < t->n * N_LANES; i++) {
            const Channel *c = &t->channels[from * t->n * N_LANES + i];
            if (c->taken < c->n)
                REFUSE_STAGES(t, "expected stage %d to take what stage %d sends, found %u messages left over",
                              i / N_LANES, from, c->n - c->taken);
        }
    }
    return OK;
}

static Status check_program_of_stages(Together *t) {
    t->stages = ARENA_ARRAY(t->arena, Stage, t->n);
    t->channels = ARENA_ARRAY(t->arena, Channel, t->n * t->n * N_LANES);
    for (int32_t s = 0; s < t->n; s++) {
        t->stages[s].program = plan_program(t->plans[s], t->name);
        if (!t->stages[s].program)
            REFUSE_STAGES(t, "expected it in the plan of every stage, found none in that of stage %d", s);
    }
    for (bool any = true; any;) {
        any = false;
        for (int32_t s = 0; s < t->n; s++) {
            for (bool moved = true; moved;) {
                TRY(step(t, s, &moved));
                any |= moved;
            }
        }
        bool met;
        TRY(meet(t, &met));
        any |= met;
    }
    return all_ended(t);
}

Status plan_check_stages(const Plan *const *plans, int32_t n) {
    if (n < 1 || plans[0]->mesh.size[AXIS_pp] != n)
        REFUSE("stages", "expected a plan for each of %d stages, found %d", n ? plans[0]->mesh.size[AXIS_pp] : 1, n);
    for (int32_t s = 0; s < n; s++) {
        const PlanMesh *mesh = &plans[s]->mesh;
        if (mesh->stage != s || memcmp(mesh->size, plans[0]->mesh.size, sizeof mesh->size) ||
            plans[s]->tokens != plans[0]->tokens || plans[s]->microbatches != plans[0]->microbatches)
            REFUSE("stages", "expected plans of one mesh, in the order of stages, found another at %d", s);
    }
    Arena *arena = arena_create();
    Status status = OK;
    for (uint32_t p = 0; p < plans[0]->n_programs && status == OK; p++) {
        Together t = { .plans = plans, .n = n, .name = plans[0]->programs[p].name, .arena = arena };
        if (strcmp(t.name, "pack")) status = check_program_of_stages(&t);
    }
    arena_destroy(arena);
    return status;
}
