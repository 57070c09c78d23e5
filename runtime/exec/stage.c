// SPDX-License-Identifier: Apache-2.0
// What travels between the host and a GPU. io and scalars have pinned images, so that their copies
// can be recorded; the other regions' images are address space until somebody asks for them.
#include <errno.h>
#include <sys/mman.h>

#include "runtime/exec/private.h"

static bool is_pinned(int region) {
    return region == REGION_io || region == REGION_scalars;
}

Status stage_images(Exec *exec) {
    for (int region = 0; region < N_REGIONS; region++) {
        int64_t bytes = exec->plan->region_bytes[region];
        void *at = exec->regions[region];
        if (exec->api->on_host || !at) {
            exec->images[region] = at;
        } else if (is_pinned(region)) {
            TRY(exec->api->alloc_host(exec->device, bytes, "cannot allocate the host's part of io",
                                      &at));
            exec->images[region] = at;
        } else {
            at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (at == MAP_FAILED)
                return status_fail(ERR_MEMORY, "cannot map %lld bytes for a region's image: %s",
                                   (long long)bytes, strerror(errno));
            exec->images[region] = at;
        }
    }
    return OK;
}

void stage_release(Exec *exec) {
    if (!exec->device || exec->api->on_host) return;
    for (uint32_t i = 0; exec->stages && i < exec->plan->n_programs; i++) {
        const Stage *stage = &exec->stages[i];
        exec->api->release_host(exec->device, stage->slots, stage->slot_bytes * stage->n_slots);
    }
    for (int region = 0; region < N_REGIONS; region++) {
        int64_t bytes = exec->plan->region_bytes[region];
        if (!exec->images[region]) continue;
        if (is_pinned(region)) exec->api->release_host(exec->device, exec->images[region], bytes);
        else munmap(exec->images[region], (size_t)bytes);
    }
}

/* Spans --------------------------------------------------------------------------------------- */

// Adds a buffer to spans in order of address. `gap`: how far the next may begin behind the last.
static void add_span(Arena *arena, const PlanProgram *program, const PlanBuffer *buffer, int64_t gap,
                     Span **spans, uint32_t *n, uint32_t *cap) {
    Span *last = *n ? &(*spans)[*n - 1] : NULL;
    if (last && buffer->offset - (last->at + last->bytes) <= gap) {
        last->bytes = max_i64(last->bytes, buffer->offset + buffer->bytes - last->at);
        return;
    }
    *ARENA_PUSH(arena, *spans, *n, *cap) = (Span){ .at = buffer->offset,
                                                   .bytes = buffer->bytes,
                                                   .buffer = (uint32_t)(buffer - program->buffers) };
}

// The buffer of lowest address at or behind `from` among those listed; NULL: none.
static const PlanBuffer *next_buffer(const PlanProgram *program, const uint32_t *list, uint32_t n,
                                     int64_t from) {
    const PlanBuffer *best = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const PlanBuffer *b = &program->buffers[list[i]];
        if (b->region == REGION_io && b->offset >= from && (!best || b->offset < best->offset))
            best = b;
    }
    return best;
}

// Padding between inputs may travel with them: the slots hold zeros there. Padding between results
// has never been written on the device and stays there. Where microbatches have inputs of their own on
// the device, each travels alone.
static void find_spans(Exec *exec, const PlanProgram *program, Stage *stage) {
    uint32_t n_out = program->n_metrics + program->n_outputs;
    uint32_t *in = ARENA_ARRAY(exec->arena, uint32_t, program->n_inputs + 1),
             *out = ARENA_ARRAY(exec->arena, uint32_t, n_out + 1);
    for (uint32_t i = 0; i < program->n_inputs; i++) in[i] = program->inputs[i].buffer;
    for (uint32_t i = 0; i < program->n_metrics; i++) out[i] = program->metrics[i].buffer;
    for (uint32_t i = 0; i < program->n_outputs; i++)
        out[program->n_metrics + i] = program->outputs[i].buffer;
    const PlanBuffer *b;
    int64_t gap = plan_slots(program) > 1 ? -1 : PLAN_GRAIN - 1;
    for (int64_t from = 0; (b = next_buffer(program, in, program->n_inputs, from));
         from = b->offset + 1)
        add_span(exec->arena, program, b, gap, &stage->in, &stage->n_in, &stage->cap_in);
    for (int64_t from = 0; (b = next_buffer(program, out, n_out, from)); from = b->offset + 1)
        add_span(exec->arena, program, b, 0, &stage->out, &stage->n_out, &stage->cap_out);
}

Status stage_program(Exec *exec, uint32_t number) {
    if (exec->api->on_host) return OK;
    const PlanProgram *program = &exec->plan->programs[number];
    Stage *stage = &exec->stages[number];
    find_spans(exec, program, stage);
    stage->n_slots = 1;
    for (uint32_t i = 0; i < program->n_rows; i++)
        stage->n_slots = (int)max_i64(stage->n_slots, program->rows[i].microbatch + 1);
    for (uint32_t i = 0; i < stage->n_in; i++) {
        stage->in[i].slot_at = stage->slot_bytes;
        stage->slot_bytes += round_up(stage->in[i].bytes, PLAN_GRAIN);
    }
    void *at = NULL;
    if (stage->slot_bytes)
        TRY(exec->api->alloc_host(exec->device, stage->slot_bytes * stage->n_slots,
                                  "cannot allocate the host's inputs", &at));
    stage->slots = at;
    return OK;
}

char *stage_input(const Exec *exec, uint32_t number, const PlanBuffer *buffer) {
    const Stage *stage = &exec->stages[number];
    if (buffer->region != REGION_io || !stage->slots) return NULL;
    for (uint32_t i = 0; i < stage->n_in; i++) {
        const Span *span = &stage->in[i];
        if (buffer->offset >= span->at && buffer->offset < span->at + span->bytes)
            return stage->slots + exec->slot * stage->slot_bytes + span->slot_at + buffer->offset -
                   span->at;
    }
    return NULL;
}

/* A run --------------------------------------------------------------------------------------- */

// exec_input shows slot 0 outside of this.
Status stage_fill(Exec *exec, uint32_t number, ExecFill fill, void *user) {
    const PlanProgram *program = &exec->plan->programs[number];
    const Stage *stage = &exec->stages[number];
    if (exec->api->on_host) return OK;
    int filled = -1;
    Status status = OK;
    for (uint32_t r = 0; r < program->n_rows && status == OK; r++) {
        if (program->rows[r].microbatch <= filled) continue;
        filled = program->rows[r].microbatch;
        exec->slot = filled;
        if (fill) status = fill(user, exec, program, filled);
        else if (filled && stage->slots)
            memcpy(stage->slots + filled * stage->slot_bytes, stage->slots,
                   (size_t)stage->slot_bytes);
    }
    exec->slot = 0;
    return status;
}

Status stage_begin(Exec *exec) {
    if (exec->api->on_host || !exec->images[REGION_scalars]) return OK;
    return exec->api->copy_in(exec->device, exec->regions[REGION_scalars],
                              exec->images[REGION_scalars], N_SCALARS * sizeof(float));
}

Status stage_in(Exec *exec, uint32_t number, int microbatch, int32_t slot) {
    const PlanProgram *program = &exec->plan->programs[number];
    const Stage *stage = &exec->stages[number];
    for (uint32_t i = 0; i < stage->n_in; i++) {
        const Span *span = &stage->in[i];
        int64_t at = plan_offset(&program->buffers[span->buffer], slot);
        TRY(exec->api->copy_in(exec->device, exec->regions[REGION_io] + at,
                               stage->slots + microbatch * stage->slot_bytes + span->slot_at,
                               span->bytes));
    }
    return OK;
}

Status stage_out(Exec *exec, uint32_t number) {
    const Stage *stage = &exec->stages[number];
    if (exec->api->on_host) return OK;
    for (uint32_t i = 0; i < stage->n_out; i++)
        TRY(exec->api->copy_out(exec->device, exec->images[REGION_io] + stage->out[i].at,
                                exec->regions[REGION_io] + stage->out[i].at, stage->out[i].bytes));
    if (!exec->images[REGION_scalars]) return OK;
    return exec->api->copy_out(exec->device, exec->images[REGION_scalars],
                               exec->regions[REGION_scalars], N_SCALARS * sizeof(float));
}

Status exec_upload(Exec *exec, Region region) {
    if (exec->api->on_host || !exec->regions[region]) return OK;
    TRY(exec->api->copy_in(exec->device, exec->regions[region], exec->images[region],
                           exec->plan->region_bytes[region]));
    return together_wait(exec);
}

Status exec_download(Exec *exec, Region region) {
    if (exec->api->on_host || !exec->regions[region]) return OK;
    TRY(exec->api->copy_out(exec->device, exec->images[region], exec->regions[region],
                            exec->plan->region_bytes[region]));
    return together_wait(exec);
}
