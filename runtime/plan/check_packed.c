// SPDX-License-Identifier: Apache-2.0
// Packed weights: made from the weights by program "pack", made again by a step that has changed
// the weights under them, only read by everything else. Rules are listed in check.c.
#include "runtime/plan/check.h"

// A launch that makes one packed copy.
typedef struct Copy {
    const PlanInstr *instr;
    const PlanBuffer *to;
} Copy;

#define REFUSE_COPY(program, number, ...)                                                          \
    REFUSE("packed", "program \"%s\", instruction %u: %s", (program)->name, number, __VA_ARGS__)

static const PlanBuffer *operand_buffer(const PlanProgram *program, const PlanInstr *instr,
                                        uint32_t i) {
    return &program->buffers[program->operands[instr->operands + i].buffer];
}

static bool same_place(const PlanBuffer *a, const PlanBuffer *b) {
    return a->region == b->region && a->offset == b->offset && a->bytes == b->bytes &&
           a->dtype == b->dtype;
}

// What program "pack" does: weights in, one packed buffer out.
static Status read_copy(const PlanProgram *pack, uint32_t number, Copy *out) {
    const PlanInstr *instr = &pack->instrs[number];
    *out = (Copy){ .instr = instr };
    for (uint32_t i = 0; i < instr->n_operands; i++) {
        const PlanBuffer *buffer = operand_buffer(pack, instr, i);
        uint8_t mode = pack->operands[instr->operands + i].mode;
        if (mode == OPERAND_READ && buffer->region == REGION_weights) continue;
        if (mode != OPERAND_WRITE || buffer->region != REGION_packed || out->to)
            REFUSE_COPY(pack, number, "expected weights to be read and one packed buffer written");
        out->to = buffer;
    }
    if (!out->to) REFUSE_COPY(pack, number, "expected a packed buffer to be written, found none");
    return OK;
}

static Status check_pack(const Plan *plan, const PlanProgram *pack, Arena *scratch, Copy *copies) {
    Spans written = { 0 };
    int64_t sum = 0, joined = 0;
    for (uint32_t i = 0; i < pack->n_instrs; i++) {
        TRY(read_copy(pack, i, &copies[i]));
        spans_add(&written, scratch, copies[i].to->offset, copies[i].to->bytes);
        sum += copies[i].to->bytes;
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
            while (i < pack->n_instrs && !same_place(copies[i].to, buffer)) i++;
            if (i == pack->n_instrs)
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

static bool is_copy(const PlanProgram *pack, const PlanInstr *copy, const PlanProgram *step,
                    const PlanInstr *instr) {
    if (copy->op != instr->op || copy->kernel != instr->kernel || copy->n_operands != instr->n_operands) return false;
    for (uint32_t i = 0; i < copy->n_operands; i++) {
        if (!same_place(operand_buffer(pack, copy, i), operand_buffer(step, instr, i)))
            return false;
    }
    return true;
}

// The last instruction of a step that writes weights of the copy is followed by the copy itself.
static Status check_fresh(const PlanProgram *pack, const PlanProgram *step, const Copy *copy) {
    int64_t changed = -1, again = -1;
    for (uint32_t i = 0; i < step->n_instrs; i++) {
        const PlanInstr *instr = &step->instrs[i];
        for (uint32_t k = 0; k < copy->instr->n_operands; k++) {
            const PlanBuffer *from = operand_buffer(pack, copy->instr, k);
            if (from->region == REGION_weights && writes(step, instr, from)) changed = i;
        }
        if (is_copy(pack, copy->instr, step, instr))
            again = i;
        else if (writes(step, instr, copy->to))
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
    TRY(check_pack(plan, pack, scratch, copies));
    for (uint32_t i = 0; step && i < pack->n_instrs; i++) TRY(check_fresh(pack, step, &copies[i]));
    return OK;
}
