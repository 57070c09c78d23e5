// SPDX-License-Identifier: Apache-2.0
// What this rank gives others, rows included, and how long a slower link would take for it.
#include "runtime/exec/link.h"

#include <time.h>

#include "runtime/exec/private.h"

static const double BURST_SECONDS = 0.002;

Link link_make(double rate, double now) {
    return (Link){ rate, rate * BURST_SECONDS, rate * BURST_SECONDS, now };
}

double link_take(Link *link, double now, double bytes) {
    link->level += (now - link->then) * link->rate;
    if (link->level > link->burst) link->level = link->burst;
    link->level -= bytes;
    link->then = now;
    return link->level < 0 ? -link->level / link->rate : 0;
}

static double sum(const PlanTraffic *moved) {
    double bytes = 0;
    for (int move = 0; move < N_MOVES; move++)
        for (int link = 0; link < N_LINKS; link++) bytes += moved->bytes[move][link];
    return bytes;
}

// Rows that a launch has put to others, or got from them: what its table says.
static void count_rows(Exec *exec, const PlanProgram *program, const PlanInstr *instr,
                       void *const *args) {
    int32_t at = plan_row_table(exec->plan, program, instr);
    if (at < 0) return;
    const PlanBuffer *b = &program->buffers[program->operands[instr->operands + (uint32_t)at].buffer];
    const int32_t *table = args[at];
    for (uint32_t i = 0; i < instr->n_operands; i++) {
        const PlanOperand *operand = &program->operands[instr->operands + i];
        if (operand->mode != OPERAND_PUT && operand->mode != OPERAND_GET) continue;
        const PlanBuffer *rows = &program->buffers[operand->buffer];
        int64_t own = comm_member(exec->comm, (PlanGroup)operand->group), n = 0;
        for (int64_t k = 0; k < b->dims[0] * b->dims[1]; k++)
            n += table[k] >= 0 && table[k] / rows->dims[0] != own;
        PlanMove move = operand->mode == OPERAND_PUT ? MOVE_put : MOVE_get;
        exec->moved.bytes[move][LINK_stage] += (double)(n * (rows->bytes / rows->dims[0]));
    }
}

// Bytes of what has only begun hold up what is moved after them.
void link_moved(Exec *exec, uint32_t number, int32_t i, void *const *args) {
    const PlanProgram *program = &exec->plan->programs[number];
    const PlanInstr *instr = &program->instrs[i];
    if (!exec->counts_rows) return;
    if (instr->op == PLAN_launch) count_rows(exec, program, instr, args);
    double bytes = sum(&exec->moved) - exec->paid;
    if (!exec->link.rate || !bytes) return;
    exec->paid += bytes;
    double now = time_seconds(), due = now + link_take(&exec->link, now, bytes);
    const Begun *newest = exec->n_begun ? &exec->begun[exec->n_begun - 1] : NULL;
    if (newest && newest->start == instr) exec->begun[exec->n_begun - 1].due = due;
    else link_wait(due);
}

void link_wait(double due) {
    double wait = due - time_seconds();
    struct timespec time = { (time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9) };
    if (wait > 0) nanosleep(&time, NULL);
}
