// SPDX-License-Identifier: Apache-2.0
// Frames: the registers of one activation, and the constants that stand in them.
#include <stdlib.h>

#include "runtime/vgpu/async.h"
#include "runtime/vgpu/control.h"

static uint32_t special(const VgWarp *w, VgSpecial name, uint32_t lane) {
    const VgCta *cta = w->cta;
    const VgGrid *g = cta->grid;
    uint32_t thread = w->index * 32 + lane, bit = 1u << lane;
    const uint32_t *c = g->cluster;
    switch (name) {
    case VG_TID_X: return thread % g->block[0];
    case VG_TID_Y: return thread / g->block[0] % g->block[1];
    case VG_TID_Z: return thread / (g->block[0] * g->block[1]);
    case VG_NTID_X: return g->block[0];
    case VG_NTID_Y: return g->block[1];
    case VG_NTID_Z: return g->block[2];
    case VG_CTAID_X: return cta->id[0];
    case VG_CTAID_Y: return cta->id[1];
    case VG_CTAID_Z: return cta->id[2];
    case VG_NCTAID_X: return g->grid[0];
    case VG_NCTAID_Y: return g->grid[1];
    case VG_NCTAID_Z: return g->grid[2];
    case VG_LANEID: return lane;
    case VG_WARPID: return w->index;
    case VG_NWARPID: return cta->n_warps;
    case VG_LANEMASK_EQ: return bit;
    case VG_LANEMASK_LT: return bit - 1;
    case VG_LANEMASK_LE: return bit | (bit - 1);
    case VG_LANEMASK_GT: return ~(bit | (bit - 1));
    case VG_LANEMASK_GE: return ~(bit - 1);
    case VG_SMID: return (uint32_t)(cta->cluster->linear % (uint64_t)g->device->sm_count);
    case VG_NSMID: return (uint32_t)g->device->sm_count;
    case VG_GRIDID: return (uint32_t)g->id;
    case VG_CLUSTER_EXPLICIT: return g->ctas_per_cluster > 1;
    case VG_CLUSTERID_X: return cta->id[0] / c[0];
    case VG_CLUSTERID_Y: return cta->id[1] / c[1];
    case VG_CLUSTERID_Z: return cta->id[2] / c[2];
    case VG_NCLUSTERID_X: return g->grid[0] / c[0];
    case VG_NCLUSTERID_Y: return g->grid[1] / c[1];
    case VG_NCLUSTERID_Z: return g->grid[2] / c[2];
    case VG_CLUSTER_CTAID_X: return cta->id[0] % c[0];
    case VG_CLUSTER_CTAID_Y: return cta->id[1] % c[1];
    case VG_CLUSTER_CTAID_Z: return cta->id[2] % c[2];
    case VG_CLUSTER_NCTAID_X: return c[0];
    case VG_CLUSTER_NCTAID_Y: return c[1];
    case VG_CLUSTER_NCTAID_Z: return c[2];
    case VG_CLUSTER_CTARANK: return cta->cluster_rank;
    case VG_CLUSTER_NCTARANK: return g->ctas_per_cluster;
    case VG_TOTAL_SMEM: return cta->shared_bytes;
    case VG_DYNAMIC_SMEM: return g->launch->dynamic_shared;
    case VG_AGGR_SMEM: return cta->shared_bytes;
    case VG_ENVREG1: return (uint32_t)(g->workspace >> 32);
    case VG_ENVREG2: return (uint32_t)g->workspace;
    case VG_RESERVED_BEGIN:
    case VG_RESERVED_0:
    case VG_RESERVED_1: return vg_shared_address(&w->mem, g->reserved_at);
    case VG_RESERVED_END: return vg_shared_address(&w->mem, g->shared_end);
    case VG_RESERVED_CAP: return vg_shared_address(&w->mem, g->reserved_at + 1024);
    }
    return 0;
}

static uint64_t param_value(const VgGrid *g, const VgConst *c) {
    uint32_t at = (uint32_t)c->value, bytes = (uint32_t)(c->value >> 32);
    uint64_t v = 0;
    memcpy(&v, g->params + at, bytes);
    if (c->sign && bytes < 8) v = (uint64_t)((int64_t)(v << (64 - 8 * bytes)) >> (64 - 8 * bytes));
    return v;
}

static void fill_const(const VgWarp *w, VgFrame *frame, const VgConst *c) {
    uint64_t value = c->value;
    char *at = frame->at + c->at;
    switch (c->kind) {
    case VG_CONST_BITS: break;
    case VG_CONST_PARAM: value = param_value(w->cta->grid, c); break;
    case VG_CONST_SHARED: value = vg_shared_address(&w->mem, (uint32_t)value); break;
    case VG_CONST_DYNAMIC:
        value = vg_shared_address(&w->mem, w->cta->dynamic_at + (uint32_t)value);
        break;
    case VG_CONST_LOCAL: value += frame->local_base; break;
    case VG_CONST_SPECIAL:
        for (uint32_t l = 0; l < 32; l++) {
            uint32_t v = special(w, (VgSpecial)c->value, l);
            if (c->bytes == 8) ((uint64_t *)at)[l] = v;
            else ((uint32_t *)at)[l] = v;
        }
        return;
    }
    if (c->bytes == 8)
        for (int l = 0; l < 32; l++) ((uint64_t *)at)[l] = value;
    else
        for (int l = 0; l < 32; l++) ((uint32_t *)at)[l] = (uint32_t)value;
}

// Constants that stay the same for all warps of a launch are filled once per frame and launch.
VgFrame *vg_frame_new(VgWarp *w, const VgFunc *func, uint32_t local_base) {
    VgFrame *frame = NULL;
    for (VgFrame **p = &w->free_frames; *p; p = &(*p)->next_free) {
        if ((*p)->capacity < func->frame_bytes) continue;
        frame = *p;
        *p = frame->next_free;
        break;
    }
    if (!frame) {
        frame = calloc(1, sizeof *frame);
        char *at = aligned_alloc(128, func->frame_bytes);
        if (!frame || !at) abort(); // kilobytes: nothing sensible is left to do
        frame->at = at;
        frame->capacity = func->frame_bytes;
        frame->next_all = w->all_frames;
        w->all_frames = frame;
    }
    uint64_t launch = w->cta->grid->id;
    bool same = frame->func == func && frame->launch == launch;
    uint32_t consts = func->n_consts ? func->consts[0].at : func->frame_bytes;
    memset(frame->at, 0, consts);
    *(uint32_t *)frame->at = ~0u;
    frame->func = func;
    frame->launch = launch;
    frame->local_base = local_base;
    for (uint32_t k = 0; k < func->n_consts; k++) {
        const VgConst *c = &func->consts[k];
        if (!same || c->kind > VG_CONST_PARAM) fill_const(w, frame, c);
    }
    w->depth++;
    return frame;
}

void vg_frame_free(VgWarp *w, VgFrame *frame) {
    frame->next_free = w->free_frames;
    w->free_frames = frame;
    w->depth--;
}

void vg_warp_reset(VgWarp *w, const VgFunc *func, uint32_t lanes) {
    w->alive = w->mask = lanes;
    w->state = VG_READY;
    w->wait = (VgWait){ 0 };
    w->stall = w->depth = 0;
    w->running = 0;
    w->n_splits = 1;
    w->frame = vg_frame_new(w, func, 0);
    w->pc = func->code;
    w->splits[0] = (VgSplit){ .pc = w->pc, .mask = lanes, .frame = w->frame };
    vg_set_join(w, NULL);
    w->base = w->frame;
    vg_copies_reset(w);
}

void vg_warp_finish(VgWarp *w) {
    if (w->base) vg_frame_free(w, w->base);
    w->base = w->frame = NULL;
    w->n_splits = 0;
}

void vg_warp_destroy(VgWarp *w) {
    vg_copies_destroy(w);
    while (w->all_frames) {
        VgFrame *frame = w->all_frames;
        w->all_frames = frame->next_all;
        free(frame->at);
        free(frame);
    }
    while (w->all_joins) {
        VgJoin *join = w->all_joins;
        w->all_joins = join->next_all;
        free(join);
    }
}
