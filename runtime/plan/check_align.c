// SPDX-License-Identifier: Apache-2.0
// Expert rows at multiples of row_align (plan.h), whose pads must be zero. Rules are listed in check.c.
//
// What a rank's own kernels store they store whole segments of. What other ranks put are rows only: between the put
// and the first read of such a buffer a launch of "pads" lies. Of a microbatch instructions run in the order of
// their numbers, so one walk over them proves it, trips of a repeat included: each begins with its own puts.
#include "runtime/plan/check.h"

#define REFUSE_ALIGN(c, number, format, ...)                                                                 \
    REFUSE("align", "program \"%s\", instruction %u: " format, (c)->program->name, number, __VA_ARGS__)

static bool is_pads(const ProgramCheck *c, const PlanInstr *instr) {
    return instr->op == PLAN_launch && !strcmp(c->plan->kernels[instr->kernel].family, "pads");
}

// What says where experts' rows lie says where they end.
static Status check_offsets(const ProgramCheck *c, uint32_t number, const PlanOperand *operand) {
    const PlanBuffer *buffer = &c->program->buffers[operand->buffer];
    bool numbers = buffer->dtype == DTYPE_I32 && buffer->n_dims == 1;
    if (!numbers || buffer->dims[0] % 2 == 0)
        REFUSE_ALIGN(c, number,
                     "expected i32 [2 experts + 1] as offsets, firsts and ends of rows aligned to %d, found "
                     "\"%s\" of %lld bytes", c->plan->row_align, buffer->name, (long long)buffer->bytes);
    return OK;
}

static Status check_put(const ProgramCheck *c, uint32_t number, const PlanBuffer *buffer) {
    if (buffer->n_dims && buffer->dims[0] % c->plan->row_align == 0) return OK;
    REFUSE_ALIGN(c, number, "expected a multiple of row_align %d as rows of \"%s\", found %lld", c->plan->row_align,
                 buffer->name, buffer->n_dims ? (long long)buffer->dims[0] : 0);
}

static Status check_instr(const ProgramCheck *c, uint32_t number, uint32_t *put /* by buffer: instruction + 1 */) {
    const PlanInstr *instr = &c->program->instrs[number];
    const PlanOperand *operands = check_operands(c->program, instr);
    const PlanKernel *kernel = instr->op == PLAN_launch ? &c->plan->kernels[instr->kernel] : NULL;
    for (uint32_t k = 0; k < instr->n_operands; k++) {
        const PlanBuffer *buffer = &c->program->buffers[operands[k].buffer];
        uint32_t *at = &put[operands[k].buffer];
        if (kernel && !strcmp(kernel->args[k].name, "offsets")) TRY(check_offsets(c, number, &operands[k]));
        if (operands[k].mode == OPERAND_PUT) {
            TRY(check_put(c, number, buffer));
            *at = number + 1;
        } else if (operands[k].mode == OPERAND_SOME && is_pads(c, instr)) {
            *at = 0;
        } else if (operand_reads(operands[k].mode) && operands[k].mode != OPERAND_GET && *at) {
            REFUSE_ALIGN(c, number,
                         "expected the pads of \"%s\" to be zero when it is read, found no launch of \"pads\" after "
                         "instruction %u put rows there", buffer->name, *at - 1);
        }
    }
    return OK;
}

Status check_align(const ProgramCheck *c) {
    if (c->plan->row_align == 1) return OK;
    uint32_t *put = ARENA_ARRAY(c->scratch, uint32_t, c->program->n_buffers + 1);
    for (uint32_t i = 0; i < c->program->n_instrs; i++) TRY(check_instr(c, i, put));
    return OK;
}
