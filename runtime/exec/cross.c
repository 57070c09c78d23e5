// SPDX-License-Identifier: Apache-2.0
// Instructions that cross ranks. Most transports work in the host's memory: where kernels do not, what is
// sent comes out of the device first and what is received goes in, through two buffers made for it;
// messages have one for each instruction and slot, since a send only begins.
// One that works on the device is given addresses there, and what it does is queued like a launch.
//
// A gather or an exchange in two halves begins and ends with the transport where that can work beside the rank
// in the memory of kernels; else its start does all of it.
//
// A send only begins. What it sends is not written before the next row of its segment and slot: that
// row begins by waiting for the sends of the one before it, and a program ends by waiting for all.
#include "runtime/exec/private.h"

static const PlanBuffer *operand_buffer(const PlanProgram *program, const PlanInstr *instr, uint32_t k) {
    return &program->buffers[program->operands[instr->operands + k].buffer];
}

// Whether the transport takes the addresses that kernels have.
static bool reaches(const Exec *exec) {
    return exec->api->on_host || exec->comm->api->on_device;
}

// Programs share them: all messages of one have been taken when it ends.
static Status make_copies(Exec *exec) {
    const Plan *plan = exec->plan;
    exec->copy_at = ARENA_ARRAY(exec->arena, int64_t *, plan->n_programs);
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const PlanProgram *program = &plan->programs[p];
        int64_t at = 0;
        exec->copy_at[p] = ARENA_ARRAY(exec->arena, int64_t, program->n_instrs + 1);
        for (uint32_t i = 0; i < program->n_instrs; i++) {
            if (program->instrs[i].op != PLAN_send) continue;
            exec->copy_at[p][i] = at;
            at += round_up(operand_buffer(program, &program->instrs[i], 0)->bytes, PLAN_GRAIN) *
                  plan_slots(program);
        }
        exec->copies_bytes = max_i64(exec->copies_bytes, at);
    }
    void *copies = NULL;
    if (exec->copies_bytes)
        TRY(exec->api->alloc_host(exec->device, exec->copies_bytes, "what goes to other stages", &copies));
    exec->copies = copies;
    return OK;
}

Status cross_create(Exec *exec) {
    int64_t bytes = 0, sends = 0, starts = 0;
    for (uint32_t p = 0; p < exec->plan->n_programs; p++) {
        const PlanProgram *program = &exec->plan->programs[p];
        int64_t slots = 1, own = 0, begun = 0;
        for (uint32_t r = 0; r < program->n_rows; r++)
            slots = max_i64(slots, program->rows[r].slot + 1);
        for (uint32_t i = 0; i < program->n_instrs; i++) {
            const PlanInstr *instr = &program->instrs[i];
            if (instr->op == PLAN_launch) continue;
            exec->crosses = true;
            own += instr->op == PLAN_send;
            begun += instr->half == HALF_start;
            for (uint32_t k = 0; k < instr->n_operands; k++)
                bytes = max_i64(bytes, operand_buffer(program, instr, k)->bytes);
        }
        sends = max_i64(sends, own * slots);
        starts = max_i64(starts, begun);
    }
    exec->begun = ARENA_ARRAY(exec->arena, Begun, starts + 1);
    exec->sends = ARENA_ARRAY(exec->arena, Send, sends + 1);
    TRY(blocks_create(exec));
    if (reaches(exec)) return OK;
    TRY(make_copies(exec));
    exec->bounce_bytes = bytes;
    for (int i = 0; bytes && i < COUNT_OF(exec->bounce); i++)
        TRY(exec->api->alloc_host(exec->device, bytes, "what other ranks send", &exec->bounce[i]));
    return OK;
}

void cross_release(Exec *exec) {
    if (exec->device && exec->copies)
        exec->api->release_host(exec->device, exec->copies, exec->copies_bytes);
    for (int i = 0; exec->device && i < COUNT_OF(exec->bounce); i++)
        if (exec->bounce[i])
            exec->api->release_host(exec->device, exec->bounce[i], exec->bounce_bytes);
}

static bool reaches_stages(const Comm *comm, PlanGroup group) {
    return comm->mesh.size[AXIS_pp] > 1 && (group == GROUP_pp || group == GROUP_world);
}

// What this rank gives others.
static void count(Exec *exec, const PlanInstr *instr, int64_t bytes) {
    PlanMove move = instr->op == PLAN_gather ? MOVE_gather : instr->op == PLAN_exchange ? MOVE_exchange : MOVE_send;
    PlanGroup group = (PlanGroup)instr->group;
    const Comm *comm = exec->comm;
    bool gives = instr->op == PLAN_gather || instr->op == PLAN_exchange || instr->op == PLAN_send;
    for (int i = 0, n = comm_members(comm, group); gives && i < n; i++) {
        int rank = comm_world_rank(comm, group, i);
        if (instr->op == PLAN_send ? rank != comm_on_stage(comm, instr->peer) : rank == comm->rank) continue;
        exec->moved.bytes[move][reaches_stages(comm, group)] += instr->op == PLAN_exchange ? (double)(bytes / n) : (double)bytes;
    }
}

static Status move(Exec *exec, const PlanInstr *instr, const void *from, void *to, int64_t bytes,
                   void **ticket) {
    Comm *comm = exec->comm;
    PlanGroup group = (PlanGroup)instr->group;
    count(exec, instr, bytes);
    switch ((PlanOp)instr->op) {
    case PLAN_barrier: return comm->api->barrier(comm, group);
    case PLAN_gather: return comm->api->gather(comm, group, from, to, bytes);
    case PLAN_exchange:
        return comm->api->exchange(comm, group, from, to, bytes / comm_members(comm, group));
    case PLAN_send:
        return comm->api->send(comm, comm_on_stage(comm, instr->peer), (PlanLane)instr->lane, from,
                                bytes, ticket);
    case PLAN_recv:
        return comm->api->recv(comm, comm_on_stage(comm, instr->peer), (PlanLane)instr->lane, to,
                               bytes);
    default: return status_fail(ERR_INTERNAL, "internal error: instruction %d", instr->op);
    }
}

/* Halves --------------------------------------------------------------------------------------- */

static Status start(Exec *exec, const PlanInstr *instr, void *const *args, int64_t bytes) {
    Comm *comm = exec->comm;
    PlanGroup group = (PlanGroup)instr->group;
    Begun *begun = &exec->begun[exec->n_begun];
    *begun = (Begun){ .start = instr, .from = args[0], .to = args[1] };
    int64_t each = instr->op == PLAN_exchange ? bytes / comm_members(comm, group) : bytes;
    count(exec, instr, bytes);
    TRY(comm->api->begin(comm, group, (PlanOp)instr->op, args[0], args[1], each, &begun->ticket));
    exec->n_begun++;
    return OK;
}

// The checker has made sure that it has begun; if not here, its start has done all.
static Status wait_for(Exec *exec, const PlanInstr *instr, void *const *args) {
    uint32_t i = 0;
    while (i < exec->n_begun &&
           (exec->begun[i].start->op != instr->op || exec->begun[i].start->group != instr->group ||
            exec->begun[i].from != args[0] || exec->begun[i].to != args[1]))
        i++;
    if (i == exec->n_begun) return OK;
    Begun begun = exec->begun[i];
    memmove(&exec->begun[i], &exec->begun[i + 1], (exec->n_begun - i - 1) * sizeof begun);
    exec->n_begun--;
    TRY(exec->comm->api->ended(exec->comm, begun.ticket));
    link_wait(begun.due);
    return OK;
}

/* ---------------------------------------------------------------------------------------------- */

// args: the addresses of the operands, sources first.
Status cross_run(Exec *exec, uint32_t number, int32_t i, void *const *args, const PlanRow *row) {
    const PlanProgram *program = &exec->plan->programs[number];
    const PlanInstr *instr = &program->instrs[i];
    if (instr->op == PLAN_blocks) return blocks_run(exec, program, instr, args);
    bool reads = instr->op != PLAN_recv && instr->n_operands,
         writes = instr->op != PLAN_send && instr->n_operands, direct = reaches(exec);
    void *from = reads ? args[0] : NULL, *to = writes ? args[reads] : NULL, *into = to, *ticket;
    int64_t in = reads ? operand_buffer(program, instr, 0)->bytes : 0,
            out = writes ? operand_buffer(program, instr, reads)->bytes : 0;
    if (instr->half == HALF_wait) return wait_for(exec, instr, args);
    if (instr->half == HALF_start && direct && exec->comm->api->begin) return start(exec, instr, args, in);
    if (!direct) TRY(together_wait(exec));
    if (!direct && reads) {
        void *out_of = exec->bounce[0];
        if (instr->op == PLAN_send)
            out_of = exec->copies + exec->copy_at[number][i] + row->slot * round_up(in, PLAN_GRAIN);
        TRY(exec->api->copy_out(exec->device, out_of, from, in));
        TRY(together_wait(exec));
        from = out_of;
    }
    if (!direct && writes) into = exec->bounce[1];
    TRY(move(exec, instr, from, into, reads ? in : out, &ticket));
    if (!direct && writes) TRY(exec->api->copy_in(exec->device, to, into, out));
    if (instr->op != PLAN_send) return OK;
    exec->sends[exec->n_sends++] = (Send){ row->segment, row->slot, ticket };
    return OK;
}

Status cross_settle(Exec *exec, const PlanRow *row) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < exec->n_sends; i++) {
        const Send *send = &exec->sends[i];
        bool of_row = !row || (send->segment == row->segment && send->slot == row->slot);
        if (of_row) TRY(exec->comm->api->sent(exec->comm, send->ticket));
        else exec->sends[kept++] = *send;
    }
    exec->n_sends = kept;
    return OK;
}

Status cross_wait(Exec *exec) {
    if (exec->comm->api->settle) TRY(exec->comm->api->settle(exec->comm));
    return together_wait(exec);
}
