// SPDX-License-Identifier: Apache-2.0
// Region sym: memory that the ranks of a stage read and write in each other while kernels run. Its
// tables hold addresses as this rank's kernels see them.
#include "runtime/exec/private.h"

// The number among the ranks of dp of member `member` of this rank's `group`.
static int in_stage(const Comm *comm, PlanGroup group, int member) {
    int rank = comm_world_rank(comm, group, member), ranks = comm_members(comm, GROUP_dp);
    for (int i = 0; i < ranks; i++)
        if (comm_world_rank(comm, GROUP_dp, i) == rank) return i;
    return 0; // every group of a put or a get lies in a stage: plan_check
}

// Members of a group whose memory is reached from here.
static int count_near(const Comm *comm, PlanGroup group, void *const *peers) {
    int near = 0;
    for (int i = 0, n = comm_members(comm, group); i < n; i++) near += peers[in_stage(comm, group, i)] != NULL;
    return near;
}

static bool crosses_nodes(const Plan *plan) {
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const PlanProgram *program = &plan->programs[p];
        for (uint32_t i = 0; i < program->n_instrs; i++)
            if (program->instrs[i].op != PLAN_launch && program->instrs[i].group == GROUP_rail) return true;
    }
    return false;
}

// Blocks between ranks that share memory: right, and more bytes than there need be.
static void hint_near(const Exec *exec, void *const *peers) {
    const Comm *comm = exec->comm;
    int node = plan_side(&exec->plan->mesh, SIDE_node), n = comm_members(comm, GROUP_ep),
        near = count_near(comm, GROUP_ep, peers);
    if (!crosses_nodes(exec->plan) || comm->rank || near <= node || n % near) return;
    if (near == n) log_info("layout: all ranks of ep share memory here: transport=rows sends nothing in blocks");
    else log_info("layout: node=%d, and %d ranks of ep share memory here: node=%d sends them a token once", node, near,
                  near);
}

// The next step: rows in blocks, between nodes of as many ranks as are here.
static Status out_of_reach(const Comm *comm, PlanGroup group, int member, void *const *peers) {
    int n = comm_members(comm, group), near = count_near(comm, group, peers);
    return status_fail(ERR_ARGUMENT,
                       "rank %d cannot write into the memory of rank %d by address: they are on two nodes\n"
                       "  hint: a layout with transport=blocks,node=%d: rows go in blocks between nodes of so many "
                       "ranks of ep",
                       comm->rank, comm_world_rank(comm, group, member), n % near ? 1 : near);
}

static Status fill_table(Exec *exec, const PlanOperand *operand, const PlanBuffer *buffer, int32_t slot,
                         void *const *peers, int64_t at) {
    PlanGroup group = (PlanGroup)operand->group;
    int n = comm_members(exec->comm, group);
    int64_t *table = ARENA_ARRAY(exec->arena, int64_t, n);
    for (int i = 0; i < n; i++) {
        const char *window = peers[in_stage(exec->comm, group, i)];
        if (!window) return out_of_reach(exec->comm, group, i, peers);
        table[i] = (int64_t)(uintptr_t)window + plan_offset(buffer, slot);
    }
    return exec->api->copy_in(exec->device, exec->regions[REGION_sym] + at, table, 8 * n);
}

static Status fill_tables(Exec *exec, void *const *peers) {
    const Plan *plan = exec->plan;
    int64_t at = plan_window(plan);
    exec->tables = ARENA_ARRAY(exec->arena, int64_t *, plan->n_programs);
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const PlanProgram *program = &plan->programs[p];
        exec->tables[p] = ARENA_ARRAY(exec->arena, int64_t, program->n_operands);
        for (uint32_t i = 0; i < program->n_operands; i++) {
            const PlanOperand *operand = &program->operands[i];
            if (!operand_is_remote(operand->mode)) continue;
            exec->tables[p][i] = at;
            const PlanBuffer *buffer = &program->buffers[operand->buffer];
            for (int32_t slot = 0; slot <= buffer->n_further; slot++) {
                TRY(fill_table(exec, operand, buffer, slot, peers, at));
                at += 8 * comm_members(exec->comm, (PlanGroup)operand->group);
            }
        }
    }
    return together_wait(exec);
}

// Memory of a device that the transport knows nothing of: ranks tell each other where theirs lies.
static Status open_on_device(Exec *exec, int64_t bytes, void **peers) {
    Comm *comm = exec->comm;
    int n = comm_members(comm, GROUP_dp), own = comm_member(comm, GROUP_dp), node = comm_node(comm, GROUP_dp, own);
    void *at = NULL;
    DeviceHandle mine;
    TRY(exec->api->alloc(exec->device, bytes, false, "the plan's region sym", &at));
    exec->regions[REGION_sym] = at;
    TRY(exec->api->fill(exec->device, at, 0, bytes / 4 * 4));
    TRY(together_wait(exec));
    TRY(exec->api->share(exec->device, at, &mine));
    DeviceHandle *all = ARENA_ARRAY(exec->arena, DeviceHandle, n);
    TRY(comm->api->gather(comm, GROUP_dp, &mine, all, sizeof mine));
    exec->windows = all;
    exec->peers = peers;
    peers[own] = at;
    for (int i = 0; i < n; i++) // those of other nodes are out of reach
        if (i != own && comm_node(comm, GROUP_dp, i) == node) TRY(exec->api->reach(exec->device, &all[i], &peers[i]));
    return OK;
}

Status window_open(Exec *exec) {
    int64_t bytes = exec->plan->region_bytes[REGION_sym];
    if (!bytes) return OK;
    void **peers = ARENA_ARRAY(exec->arena, void *, comm_members(exec->comm, GROUP_dp)), *own = NULL;
    if (!exec->api->on_host && !exec->comm->api->on_device) {
        TRY(open_on_device(exec, bytes, peers));
    } else {
        TRY(exec->comm->api->window(exec->comm, bytes, &own, peers));
        exec->regions[REGION_sym] = own;
    }
    hint_near(exec, peers);
    return fill_tables(exec, peers);
}

// Nobody reads or writes here while it happens: everybody waits.
Status window_poison(Exec *exec, uint32_t word) {
    int64_t bytes = plan_window(exec->plan);
    if (!bytes) return OK;
    TRY(together_wait(exec));
    TRY(exec->comm->api->barrier(exec->comm, GROUP_dp));
    TRY(exec->api->fill(exec->device, exec->regions[REGION_sym], word, bytes));
    TRY(together_wait(exec));
    return exec->comm->api->barrier(exec->comm, GROUP_dp);
}

void window_close(Exec *exec) {
    void *own = exec->regions[REGION_sym];
    int64_t bytes = exec->plan->region_bytes[REGION_sym];
    if (!own) return;
    if (exec->api->on_host || exec->comm->api->on_device) {
        exec->comm->api->release(exec->comm, own, bytes);
    } else {
        int n = comm_members(exec->comm, GROUP_dp);
        for (int i = 0; exec->peers && i < n; i++)
            if (exec->peers[i] && exec->peers[i] != own) exec->api->leave(exec->device, &exec->windows[i], exec->peers[i]);
        exec->api->release(exec->device, own, bytes);
    }
    exec->regions[REGION_sym] = NULL;
}
