// SPDX-License-Identifier: Apache-2.0
// Instructions that cross ranks. Every rank runs the same plan of its stage, so what holds of one
// holds of all: both ends of a gather or an exchange agree when source and result agree here. Rules
// are listed in check.c.
#include "runtime/plan/check.h"

#define REFUSE_CROSSING(c, number, format, ...)                                                    \
    REFUSE("crossing", "program \"%s\", instruction %u (%s): " format, (c)->program->name, number, \
           plan_op_words[(c)->program->instrs[number].op], __VA_ARGS__)

// Sources come first, then results.
typedef struct Form {
    uint8_t n_sources, n_results;
} Form;
static const Form forms[N_PLAN_OPS] = {
    [PLAN_gather] = { 1, 1 },
    [PLAN_exchange] = { 1, 1 },
    [PLAN_send] = { 1, 0 },
    [PLAN_recv] = { 0, 1 },
    [PLAN_blocks] = { 2, 1 },
};

static Status check_form(const ProgramCheck *c, uint32_t number) {
    const PlanInstr *instr = &c->program->instrs[number];
    const PlanOperand *operands = check_operands(c->program, instr);
    const Form *form = &forms[instr->op];
    uint32_t n = (uint32_t)form->n_sources + form->n_results;
    uint8_t result = instr->half == HALF_wait ? OPERAND_INPLACE : OPERAND_WRITE;
    if (instr->n_operands != n)
        REFUSE_CROSSING(c, number, "expected %u operands, found %u", n, instr->n_operands);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t mode = i < form->n_sources ? OPERAND_READ : result;
        if (operands[i].mode != mode || operands[i].step || operands[i].offset ||
            operands[i].bytes)
            REFUSE_CROSSING(c, number, "operand %u: expected mode %s without a step or an offset, found %s", i,
                            plan_mode_words[mode], plan_mode_words[operands[i].mode]);
    }
    for (uint32_t i = 0; form->n_results && i + 1 < n; i++)
        if (operands[i].buffer == operands[n - 1].buffer)
            REFUSE("alias", "instruction %u: expected a written buffer once, found \"%s\" twice", number,
                   c->program->buffers[operands[i].buffer].name);
    return OK;
}

static int64_t row_bytes(const PlanBuffer *buffer) {
    return buffer->n_dims && buffer->dims[0] ? buffer->bytes / buffer->dims[0] : 0;
}

// Both ends of a part: rows of one kind, and who gets how many.
static Status check_blocks(const ProgramCheck *c, uint32_t number) {
    const PlanInstr *instr = &c->program->instrs[number];
    const PlanOperand *operands = check_operands(c->program, instr);
    int64_t n = plan_group_size(c->plan, (PlanGroup)instr->group);
    const PlanBuffer *sizes = &c->program->buffers[operands[0].buffer],
                     *from = &c->program->buffers[operands[1].buffer],
                     *to = &c->program->buffers[operands[2].buffer];
    if (sizes->dtype != DTYPE_I32 || sizes->bytes != 2 * n * dtype_bytes(DTYPE_I32))
        REFUSE_CROSSING(c, number, "expected \"%s\" to be i32 of 2 x %lld ranks, found %lld bytes of %s", sizes->name,
                        (long long)n, (long long)sizes->bytes, dtype_name(sizes->dtype));
    if (from->dtype != to->dtype || !row_bytes(from) || row_bytes(from) != row_bytes(to))
        REFUSE_CROSSING(c, number, "expected rows of \"%s\" and \"%s\" alike, found %lld bytes of %s and %lld of %s",
                        from->name, to->name, (long long)row_bytes(from), dtype_name(from->dtype),
                        (long long)row_bytes(to), dtype_name(to->dtype));
    if (!(instr->even >= 0) || instr->even > (double)from->dims[0])
        REFUSE_CROSSING(c, number, "expected at most the %lld rows of \"%s\" at even loads, found %g",
                        (long long)from->dims[0], from->name, instr->even);
    return OK;
}

static Status check_bytes(const ProgramCheck *c, uint32_t number) {
    const PlanInstr *instr = &c->program->instrs[number];
    const PlanOperand *operands = check_operands(c->program, instr);
    if (instr->op == PLAN_blocks) return check_blocks(c, number);
    if (instr->op != PLAN_gather && instr->op != PLAN_exchange) return OK;
    int64_t n = plan_group_size(c->plan, (PlanGroup)instr->group);
    const PlanBuffer *from = &c->program->buffers[operands[0].buffer],
                     *to = &c->program->buffers[operands[1].buffer];
    bool gather = instr->op == PLAN_gather;
    int64_t part = gather ? from->bytes : from->bytes / n;
    if (from->dtype == to->dtype && to->bytes == part * n && (gather || from->bytes == to->bytes))
        return OK;
    REFUSE_CROSSING(c, number,
                    "expected \"%s\" to be %s%s of %lld ranks, found %lld bytes of %s and %lld of %s",
                    to->name, gather ? "the parts" : "as large as ", gather ? "" : from->name,
                    (long long)n, (long long)from->bytes, dtype_name(from->dtype),
                    (long long)to->bytes, dtype_name(to->dtype));
}

Status check_crossing(const ProgramCheck *c, uint32_t number) {
    const PlanInstr *instr = &c->program->instrs[number];
    int32_t stages = c->plan->mesh.size[AXIS_pp], own = c->plan->mesh.stage;
    const PlanRepeat *repeat = plan_repeat(c->program, number);
    if (repeat && (!repeat->count || instr->half || instr->op == PLAN_send || instr->op == PLAN_recv))
        REFUSE_CROSSING(c, number, "expected it outside of repeats%s", "");
    if (repeat && !check_agreed(c, repeat, (PlanGroup)instr->group))
        REFUSE_CROSSING(c, number,
                        "expected a repeat whose trips the ranks of %s agree on: counted by \"%s\", which "
                        "gathers of theirs alone make",
                        plan_group_words[instr->group], c->program->buffers[repeat->count - 1].name);
    if ((instr->op == PLAN_send || instr->op == PLAN_recv) &&
        (instr->peer < 0 || instr->peer >= stages || instr->peer == own))
        REFUSE_CROSSING(c, number, "expected another stage than %d below %d, found %d", own, stages,
                        instr->peer);
    if (instr->half && !plan_group_holds(GROUP_dp, (PlanGroup)instr->group))
        REFUSE_CROSSING(c, number, "expected a group of ranks of one stage, found %s",
                        plan_group_words[instr->group]);
    TRY(check_form(c, number));
    return check_bytes(c, number);
}
