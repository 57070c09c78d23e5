// SPDX-License-Identifier: Apache-2.0
// Repeats: instructions that run over pieces of their operands, or as often as a buffer says. Rules are listed
// in check.c.
#include "runtime/plan/check.h"

#define REFUSE_REPEAT(c, number, format, ...)                                                      \
    REFUSE("repeats", "program \"%s\", instruction %lld: " format, (c)->program->name,             \
           (long long)(number), __VA_ARGS__)

static const PlanSegment *segment_of(const PlanProgram *program, int32_t instr) {
    for (uint32_t i = 0; i < program->n_segments; i++) {
        const PlanSegment *segment = &program->segments[i];
        if (instr >= segment->first && instr < segment->first + segment->n) return segment;
    }
    return NULL;
}

// How often a counted repeat runs is the same on all ranks of a group: only gathers of groups that hold it,
// each in one instruction, make the number.
bool check_agreed(const ProgramCheck *c, const PlanRepeat *repeat, PlanGroup group) {
    const PlanProgram *program = c->program;
    bool any = false;
    for (uint32_t i = 0; repeat->count && i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        for (uint32_t k = 0; k < instr->n_operands; k++) {
            const PlanOperand *operand = &program->operands[instr->operands + k];
            if (operand->buffer != repeat->count - 1 || !operand_writes(operand->mode)) continue;
            if (instr->op != PLAN_gather || instr->half || !plan_group_holds((PlanGroup)instr->group, group))
                return false;
            any = true;
        }
    }
    return any;
}

static Status check_count(const ProgramCheck *c, const PlanRepeat *repeat) {
    const PlanProgram *program = c->program;
    if (!repeat->count) return OK;
    if (repeat->count > program->n_buffers)
        REFUSE_REPEAT(c, repeat->first, "expected a buffer below %u to count trips, found %u",
                      program->n_buffers, repeat->count - 1);
    const PlanBuffer *buffer = &program->buffers[repeat->count - 1];
    if (buffer->region != REGION_act || buffer->dtype != DTYPE_I32)
        REFUSE_REPEAT(c, repeat->first, "expected i32 of act to count trips, found \"%s\", %s of %s",
                      buffer->name, dtype_name(buffer->dtype), plan_region_words[buffer->region]);
    for (int64_t i = repeat->first; i < (int64_t)repeat->first + repeat->n; i++) {
        const PlanInstr *instr = &program->instrs[i];
        for (uint32_t k = 0; k < instr->n_operands; k++) {
            const PlanOperand *operand = &program->operands[instr->operands + k];
            if (operand->buffer == repeat->count - 1 && operand_writes(operand->mode))
                REFUSE_REPEAT(c, i, "expected \"%s\" to be written before what it counts, found it inside",
                              buffer->name);
            if (operand->step && operand_writes(operand->mode))
                REFUSE_REPEAT(c, i,
                              "buffer \"%s\": expected no writes in pieces where trips are counted: "
                              "some may not come",
                              program->buffers[operand->buffer].name);
        }
    }
    return OK;
}

static Status check_steps(const ProgramCheck *c, int64_t number) {
    const PlanProgram *program = c->program;
    const PlanInstr *instr = &program->instrs[number];
    const PlanRepeat *repeat = plan_repeat(program, number);
    for (uint32_t i = 0; i < instr->n_operands; i++) {
        const PlanOperand *operand = &program->operands[instr->operands + i];
        const PlanBuffer *buffer = &program->buffers[operand->buffer];
        int64_t trip = repeat ? repeat->trip : 1, whole = 0;
        if (!operand->step) continue;
        if (!repeat || operand->step < 0 || __builtin_mul_overflow(operand->step, trip, &whole) ||
            whole != buffer->bytes || operand->step % dtype_bytes(buffer->dtype)) {
            REFUSE_REPEAT(c, number,
                          "buffer \"%s\": expected steps that add up to its %lld bytes in a "
                          "repeat, found %lld trips of %lld",
                          buffer->name, (long long)buffer->bytes, (long long)trip,
                          (long long)operand->step);
        }
    }
    return OK;
}

Status check_repeats(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    int64_t end = 0;
    for (uint32_t i = 0; i < program->n_repeats; i++) {
        const PlanRepeat *repeat = &program->repeats[i];
        if (repeat->n < 1 || repeat->trip < 1 || repeat->first < end) {
            REFUSE_REPEAT(c, repeat->first,
                          "expected 1 or more trips of 1 or more instructions from %lld on, found "
                          "%d of %d",
                          (long long)end, repeat->trip, repeat->n);
        }
        end = (int64_t)repeat->first + repeat->n;
        const PlanSegment *segment = segment_of(program, repeat->first);
        if (!segment || end > (int64_t)segment->first + segment->n)
            REFUSE_REPEAT(c, repeat->first,
                          "expected a repeat inside of one segment, found %d "
                          "instructions",
                          repeat->n);
        TRY(check_count(c, repeat));
    }
    for (int64_t i = 0; i < program->n_instrs; i++) TRY(check_steps(c, i));
    return OK;
}

// How the trips of one repeat use a buffer.
typedef struct Use {
    bool wrote_pieces, wrote_anew, touched;
    int64_t step; // of the last access
} Use;

static Status check_access(const ProgramCheck *c, const PlanRepeat *repeat, int64_t number,
                           const PlanOperand *operand, Use *use) {
    const PlanBuffer *buffer = &c->program->buffers[operand->buffer];
    int64_t last = (int64_t)repeat->first + repeat->n - 1;
    if (plan_region_is_placed(buffer->region) && (buffer->first > repeat->first || buffer->last < last))
        REFUSE_REPEAT(c, number,
                      "buffer \"%s\": expected a life over the whole repeat %d..%lld, found %d..%d",
                      buffer->name, repeat->first, (long long)last, buffer->first, buffer->last);
    bool writes = operand_writes(operand->mode), pieces = operand->step != 0;
    if (use->touched && (use->wrote_pieces || (writes && pieces)) && use->step != operand->step)
        REFUSE_REPEAT(c, number,
                      "buffer \"%s\": expected one step for what is written in pieces, found %lld "
                      "and %lld",
                      buffer->name, (long long)use->step, (long long)operand->step);
    use->touched = true;
    use->step = operand->step;
    use->wrote_pieces |= writes && pieces;
    use->wrote_anew |= operand->mode == OPERAND_WRITE && !pieces;
    return OK;
}

static Status check_outside(const ProgramCheck *c, const PlanRepeat *repeat, const Use *uses) {
    const PlanProgram *program = c->program;
    for (int64_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        if (i >= repeat->first && i < (int64_t)repeat->first + repeat->n) continue;
        for (uint32_t k = 0; k < instr->n_operands; k++) {
            uint32_t buffer = program->operands[instr->operands + k].buffer;
            if (!uses[buffer].wrote_anew) continue;
            REFUSE_REPEAT(c, i,
                          "buffer \"%s\": expected what every trip writes anew only in the repeat, "
                          "found it at %lld",
                          program->buffers[buffer].name, (long long)i);
        }
    }
    return OK;
}

Status check_repeat_flow(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    for (uint32_t r = 0; r < program->n_repeats; r++) {
        const PlanRepeat *repeat = &program->repeats[r];
        Use *uses = ARENA_ARRAY(c->scratch, Use, program->n_buffers);
        for (int64_t i = repeat->first; i < (int64_t)repeat->first + repeat->n; i++) {
            const PlanInstr *instr = &program->instrs[i];
            for (uint32_t k = 0; k < instr->n_operands; k++) {
                const PlanOperand *operand = &program->operands[instr->operands + k];
                TRY(check_access(c, repeat, i, operand, &uses[operand->buffer]));
            }
        }
        TRY(check_outside(c, repeat, uses));
    }
    return OK;
}
