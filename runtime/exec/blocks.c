// SPDX-License-Identifier: Apache-2.0
// Rows in blocks: parts of any size, of which the plan knows the room and a buffer the sizes. Only where
// kernels work in the host's memory, which reads them.
#include "runtime/exec/private.h"

Status blocks_create(Exec *exec) {
    bool any = false;
    for (uint32_t p = 0; p < exec->plan->n_programs; p++) {
        const PlanProgram *program = &exec->plan->programs[p];
        for (uint32_t i = 0; i < program->n_instrs; i++) any |= program->instrs[i].op == PLAN_blocks;
    }
    if (!any) return OK;
    if (!exec->api->on_host || !exec->comm->api->blocks)
        return status_fail(ERR_ARGUMENT,
                           "%s does not send rows in blocks, which the plan asks for\n"
                           "  hint: a layout with transport=rows, the ranks of ep where they reach each other",
                           exec->api->on_host ? exec->comm->api->name : exec->api->info(exec->device).name);
    exec->parts = ARENA_ARRAY(exec->arena, int64_t, 2 * comm_members(exec->comm, GROUP_world));
    return OK;
}

// Rows to bytes; the sum, or -1 if that is more than there is room for.
static int64_t take_sizes(const int32_t *rows, int n, int64_t row_bytes, int64_t room, int64_t *bytes) {
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        if (rows[i] < 0) return -1;
        sum += bytes[i] = rows[i] * row_bytes;
    }
    return sum <= room ? sum : -1;
}

Status blocks_run(Exec *exec, const PlanProgram *program, const PlanInstr *instr, void *const *args) {
    const PlanBuffer *from = &program->buffers[program->operands[instr->operands + 1].buffer],
                     *to = &program->buffers[program->operands[instr->operands + 2].buffer];
    PlanGroup group = (PlanGroup)instr->group;
    int n = comm_members(exec->comm, group), own = comm_member(exec->comm, group);
    int64_t *out = exec->parts, *in = out + n, row_bytes = from->bytes / from->dims[0];
    const int32_t *sizes = args[0];
    int64_t gives = take_sizes(sizes, n, row_bytes, from->bytes, out),
            takes = take_sizes(sizes + n, n, row_bytes, to->bytes, in);
    if (gives < 0 || takes < 0)
        return status_fail(ERR_INTERNAL, "internal error: blocks of \"%s\" and \"%s\" do not fit", from->name,
                           to->name);
    exec->moved.bytes[MOVE_blocks][LINK_stage] += (double)(gives - out[own]);
    return exec->comm->api->blocks(exec->comm, group, args[1], out, args[2], in);
}
