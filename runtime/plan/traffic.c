// SPDX-License-Identifier: Apache-2.0
// Bytes that cross ranks, from the plan alone.
#include "runtime/plan/words.h"

// Does it reach the ranks of its node only? Then its table is of rows, or copies, of all on its rail.
static bool is_of_node(const PlanProgram *program, const PlanInstr *instr) {
    for (uint32_t i = 0; i < instr->n_operands; i++) {
        const PlanOperand *operand = &program->operands[instr->operands + i];
        if (operand_is_remote(operand->mode)) return operand->group == GROUP_node;
    }
    return false;
}

int32_t plan_row_table(const Plan *plan, const PlanProgram *program, const PlanInstr *instr) {
    int64_t most = 0;
    int32_t found = -1;
    bool any = is_of_node(program, instr);
    for (uint32_t i = 0; i < instr->n_operands; i++) {
        const PlanOperand *operand = &program->operands[instr->operands + i];
        const PlanBuffer *b = &program->buffers[operand->buffer];
        bool table = b->dtype == DTYPE_I32 && b->n_dims == 2 && (any || b->dims[0] == plan->tokens);
        if (!table || operand->mode != OPERAND_READ || b->dims[0] * b->dims[1] <= most) continue;
        most = b->dims[0] * b->dims[1];
        found = (int32_t)i;
    }
    return found;
}

// Copies that a kernel of moves may hand on, at even loads those of a rank's tokens; 0: it has no table of them.
static int64_t slots_of(const Plan *plan, const PlanProgram *program, const PlanInstr *instr) {
    int32_t table = plan_row_table(plan, program, instr);
    if (table < 0) return 0;
    const PlanBuffer *b =
        &program->buffers[program->operands[instr->operands + (uint32_t)table].buffer];
    return (is_of_node(program, instr) ? plan->tokens : b->dims[0]) * b->dims[1];
}

static double remote_bytes(const PlanBuffer *buffer, int64_t slots, int32_t members) {
    int64_t rows = buffer->n_dims ? buffer->dims[0] : 0;
    double bytes = slots && rows ? (double)slots * (double)(buffer->bytes / rows)
                                 : (double)buffer->bytes;
    return bytes * (members - 1) / members;
}

static void add_launch(const Plan *plan, const PlanProgram *program, const PlanInstr *instr,
                       double times, PlanTraffic *out) {
    int64_t slots = slots_of(plan, program, instr);
    for (uint32_t i = 0; i < instr->n_operands; i++) {
        const PlanOperand *operand = &program->operands[instr->operands + i];
        if (!operand_is_remote(operand->mode)) continue;
        int32_t members = plan_group_size(plan, (PlanGroup)operand->group);
        out->bytes[operand->mode == OPERAND_PUT ? MOVE_put : MOVE_get][LINK_stage] +=
            times * remote_bytes(&program->buffers[operand->buffer], slots, members);
    }
}

static void add_crossing(const Plan *plan, const PlanProgram *program, const PlanInstr *instr,
                         double times, PlanTraffic *out) {
    if (!instr->n_operands || instr->half == HALF_wait) return; // a barrier; what has been counted
    double bytes = times * (double)program->buffers[program->operands[instr->operands].buffer].bytes;
    int32_t n = plan_group_size(plan, (PlanGroup)instr->group);
    bool far = instr->group == GROUP_pp || (instr->group == GROUP_world && plan->mesh.size[AXIS_pp] > 1);
    if (instr->op == PLAN_gather) out->bytes[MOVE_gather][far] += bytes * (n - 1);
    if (instr->op == PLAN_exchange) out->bytes[MOVE_exchange][far] += bytes * (n - 1) / n;
    if (instr->op == PLAN_send) out->bytes[MOVE_send][far] += bytes;
    if (instr->op != PLAN_blocks) return;
    const PlanBuffer *from = &program->buffers[program->operands[instr->operands + 1].buffer];
    out->bytes[MOVE_blocks][far] += times * instr->even * (double)(from->bytes / from->dims[0]) * (n - 1);
}

void plan_traffic(const Plan *plan, const PlanProgram *program, PlanTraffic *out) {
    Arena *scratch = arena_create();
    const bool *last = plan_last_rows(program, scratch);
    *out = (PlanTraffic){ 0 };
    for (uint32_t r = 0; r < program->n_rows; r++) {
        const PlanSegment *segment = &program->segments[program->rows[r].segment];
        for (int32_t i = segment->first; i < segment->first + segment->n; i++) {
            const PlanInstr *instr = &program->instrs[i];
            if (instr->last && !last[r]) continue;
            double times = plan_trips(program, i);
            if (instr->op == PLAN_launch) add_launch(plan, program, instr, times, out);
            else add_crossing(plan, program, instr, times, out);
        }
    }
    arena_destroy(scratch);
}
