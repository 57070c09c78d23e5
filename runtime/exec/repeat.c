// SPDX-License-Identifier: Apache-2.0
// How often a counted repeat runs: the one number of a step that the host reads while it runs. All ranks
// of the group have the same ones, for a gather has made them, and so come to the same number, or the same
// failure. Where kernels do not work in the host's memory it is copied out when all before it is done, and
// so such a plan runs launch by launch, never as one graph.
#include "runtime/device/fence.h"
#include "runtime/exec/private.h"

bool repeat_create(Exec *exec) {
    const Plan *plan = exec->plan;
    int64_t bytes = 0;
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const PlanProgram *program = &plan->programs[p];
        for (uint32_t r = 0; r < program->n_repeats; r++)
            if (program->repeats[r].count)
                bytes = max_i64(bytes, program->buffers[program->repeats[r].count - 1].bytes);
    }
    exec->counts = arena_alloc(exec->arena, (size_t)bytes);
    return bytes > 0;
}

static Status read_counts(Exec *exec, const PlanBuffer *buffer, const PlanRow *row, int32_t *counts) {
    char *at = exec->regions[buffer->region] + plan_offset(buffer, row->slot);
    if (exec->api->on_host) {
        if (FENCED) fence(at, buffer->bytes, false);
        memcpy(counts, at, (size_t)buffer->bytes);
        if (FENCED) fence(at, buffer->bytes, true);
        return OK;
    }
    TRY(cross_wait(exec));
    TRY(exec->api->copy_out(exec->device, counts, at, buffer->bytes));
    return exec->api->synchronize(exec->device);
}

Status repeat_trips(Exec *exec, uint32_t number, const PlanRepeat *repeat, const PlanRow *row, int32_t *trips) {
    const PlanProgram *program = &exec->plan->programs[number];
    const PlanBuffer *buffer = &program->buffers[repeat->count - 1];
    int64_t n = buffer->bytes / dtype_bytes(DTYPE_I32);
    int32_t most = 0;
    TRY(read_counts(exec, buffer, row, exec->counts));
    for (int64_t i = 0; i < n; i++)
        if (exec->counts[i] > most) most = exec->counts[i];
    *trips = most;
    if (most <= repeat->trip) return OK;
    return status_fail(ERR_INTERNAL,
                       "program \"%s\", instruction %d: \"%s\" asks for %d trips, expected at most %d",
                       program->name, repeat->first, buffer->name, most, repeat->trip);
}
