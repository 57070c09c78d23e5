// SPDX-License-Identifier: Apache-2.0
// Packed weights: made from the weights by program "pack", made again by a step that has changed
// the weights under them, only read by everything else. Of a plan of many ranks they are made from
// masters: this rank's own where it has all of them, else gathered ones, in act. Rules are listed in
// check.c.
#include "runtime/plan/check.h"

// A launch that makes one packed copy.
typedef struct Copy {
    uint32_t number;
    const PlanInstr *instr;
    const PlanBuffer *to;
} Copy;

// Where what an operand reads was before it was gathered.
typedef struct Origin {
    uint8_t region, group; // group: N_GROUPS of what was not gathered
    int64_t offset, bytes, within, n; // within, n: the part of all members' bytes, if not all
    int64_t gathered;      // instruction, -1: none
} Origin;

#define REFUSE_COPY(program, number, ...)                                                          \
    REFUSE("packed", "program \"%s\", instruction %u: %s", (program)->name, number, __VA_ARGS__)

static const PlanBuffer *operand_buffer(const PlanProgram *program, const PlanInstr *instr,
                                        uint32_t i) {
    return &program->buffers[program->operands[instr->operands + i].buffer];
}

static Origin origin_of(const PlanProgram *program, uint32_t number, uint32_t k) {
    const PlanInstr *instr = &program->instrs[number];
    const PlanOperand *operand = &program->operands[instr->operands + k];
    const PlanBuffer *buffer = &program->buffers[operand->buffer];
    Origin origin = { buffer->region, N_GROUPS, buffer->offset, buffer->bytes, operand->offset, operand->bytes, -1 };
    for (uint32_t i = 0; buffer->region == REGION_act && i < number; i++) {
        const PlanInstr *gather = &program->instrs[i];
        if (gather->op != PLAN_gather || gather->half == HALF_wait || program->operands[gather->operands + 1].buffer != operand->buffer)
            continue;
        const PlanBuffer *from = operand_buffer(program, gather, 0);
        origin = (Origin){ from->region, gather->group, from->offset, from->bytes, operand->offset, operand->bytes, i };
    }
    return origin;
}

static bool same_origin(const Origin *a, const Origin *b) {
    return a->region == b->region && a->group == b->group && a->offset == b->offset &&
           a->bytes == b->bytes && a->within == b->within && a->n == b->n;
}

static bool same_place(const PlanBuffer *a, const PlanBuffer *b) {
    return a->region == b->region && a->offset == b->offset && a->bytes == b->bytes &&
           a->dtype == b->dtype;
}

// What program "pack" does: weights in, one packed buffer out. *out has no buffer if it is a gather.
static Status read_copy(const PlanProgram *pack, uint32_t number, Copy *out) {
    const PlanInstr *instr = &pack->instrs[number];
    *out = (Copy){ .number = number, .instr = instr };
    if (instr->op == PLAN_gather && operand_buffer(pack, instr, 0)->region == REGION_master) return OK;
    for (uint32_t i = 0; i < instr->n_operands; i++) {
        const PlanBuffer *buffer = operand_buffer(pack, instr, i);
        uint8_t mode = pack->operands[instr->operands + i].mode;
        Origin from = origin_of(pack, number, i);
        if (mode == OPERAND_READ && (from.region == REGION_weights || from.region == REGION_master))
            continue;
        if (mode != OPERAND_WRITE || buffer->region != REGION_packed || out->to)
            REFUSE_COPY(pack, number, "expected weights to be read and one packed buffer written");
        out->to = buffer;
    }
    if (!out->to) REFUSE_COPY(pack, number, "expected a packed buffer to be written, found none");
    return OK;
}

static Status check_pack(const Plan *plan, const PlanProgram *pack, Arena *scratch, Copy *copies,
                         uint32_t *n) {
    Spans written = { 0 };
    int64_t sum = 0, joined = 0;
    for (uint32_t i = 0; i < pack->n_instrs; i++) {
        TRY(read_copy(pack, i, &copies[*n]));
        if (!copies[*n].to) continue;
        spans_add(&written, scratch, copies[*n].to->offset, copies[*n].to->bytes);
        sum += copies[(*n)++].to->bytes;
    }
    if (pack->n_metrics || pack->n_inputs || pack->n_outputs || pack->n_rows > 1 ||
        (pack->n_rows && pack->rows[0].microbatch >= 0))
        REFUSE("packed", "program \"pack\": expected one row without inputs and results");
    spans_merge(&written);
    for (uint32_t i = 0; i < written.n; i++)
        joined += written.items[i].end - written.items[i].begin;
    if (sum != joined)
        REFUSE("packed", "program \"pack\": expected copies apart, found %lld bytes over %lld",
               (long long)sum, (long long)joined);
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const PlanProgram *program = &plan->programs[p];
        for (uint32_t b = 0; b < program->n_buffers; b++) {
            const PlanBuffer *buffer = &program->buffers[b];
            uint32_t i = 0;
            if (buffer->region != REGION_packed) continue;
            while (i < *n && !same_place(copies[i].to, buffer)) i++;
            if (i == *n)
                REFUSE("packed",
                       "program \"%s\", buffer \"%s\": expected one that program \"pack\" makes",
                       program->name, buffer->name);
        }
    }
    return OK;
}

static bool writes(const PlanProgram *program, const PlanInstr *instr, const PlanBuffer *buffer) {
    for (uint32_t i = 0; i < instr->n_operands; i++) {
        const PlanBuffer *to = operand_buffer(program, instr, i);
        if (!operand_writes(program->operands[instr->operands + i].mode)) continue;
        if (to->region == buffer->region && to->offset < buffer->offset + buffer->bytes &&
            buffer->offset < to->offset + to->bytes)
            return true;
    }
    return false;
}

static bool is_copy(const PlanProgram *pack, const Copy *copy, const PlanProgram *step, uint32_t number) {
    const PlanInstr *instr = &step->instrs[number];
    if (copy->instr->op != instr->op || copy->instr->kernel != instr->kernel ||
        copy->instr->n_operands != instr->n_operands)
        return false;
    for (uint32_t i = 0; i < instr->n_operands; i++) {
        Origin a = origin_of(pack, copy->number, i), b = origin_of(step, number, i);
        if (!same_origin(&a, &b) || operand_buffer(pack, copy->instr, i)->dtype != operand_buffer(step, instr, i)->dtype)
            return false;
    }
    return true;
}

// The last instruction of the step that writes what the copy is made of; -1: none does.
static int64_t last_change(const PlanProgram *pack, const Copy *copy, const PlanProgram *step) {
    int64_t last = -1;
    for (uint32_t k = 0; k < copy->instr->n_operands; k++) {
        Origin from = origin_of(pack, copy->number, k);
        PlanBuffer place = { .region = from.region, .offset = from.offset, .bytes = from.bytes };
        if (from.region != REGION_weights && from.region != REGION_master) continue;
        for (uint32_t i = 0; i < step->n_instrs; i++)
            if (writes(step, &step->instrs[i], &place)) last = max_i64(last, i);
    }
    return last;
}

// When the copy that instruction `number` of the step makes was read from memory.
static int64_t read_at(const PlanProgram *step, uint32_t number) {
    int64_t at = number;
    for (uint32_t k = 0; k < step->instrs[number].n_operands; k++) {
        Origin from = origin_of(step, number, k);
        if (from.gathered >= 0) at = min_i64(at, from.gathered);
    }
    return at;
}

// The last instruction of a step that writes weights of the copy is followed by the copy itself.
static Status check_fresh(const PlanProgram *pack, const PlanProgram *step, const Copy *copy) {
    int64_t changed = last_change(pack, copy, step), again = -1;
    for (uint32_t i = 0; i < step->n_instrs; i++) {
        if (is_copy(pack, copy, step, i))
            again = read_at(step, i);
        else if (writes(step, &step->instrs[i], copy->to))
            REFUSE_COPY(step, i, "expected packed weights to be written as program \"pack\" does");
    }
    if (again < changed)
        REFUSE("packed",
               "program \"step\": expected \"%s\" to be packed again after instruction %lld has "
               "changed its weights",
               copy->to->name, (long long)changed);
    return OK;
}

Status check_packed(const Plan *plan, Arena *scratch) {
    const PlanProgram *pack = plan_program(plan, "pack"), *step = plan_program(plan, "step");
    PlanProgram none = { .name = "pack" };
    if (!pack) pack = &none;
    Copy *copies = ARENA_ARRAY(scratch, Copy, pack->n_instrs + 1);
    uint32_t n = 0;
    TRY(check_pack(plan, pack, scratch, copies, &n));
    for (uint32_t i = 0; step && i < n; i++) TRY(check_fresh(pack, step, &copies[i]));
    return OK;
}
