// SPDX-License-Identifier: Apache-2.0
// Clusters of blocks: addresses in each other's shared memory, the cluster's barrier, and the
// objects that live with a cluster (engine.h). Also griddepcontrol: grids run one after the other
// here, so what it waits for has happened.
#include <stdlib.h>

#include "runtime/vgpu/engine.h"

/* the engine ----------------------------------------------------------------------------------- */

static void bulk_list_free(VgBulk *op) {
    while (op) {
        VgBulk *next = op->next;
        vg_bulk_free(op);
        op = next;
    }
}

static void engine_clear(VgEngine *e) {
    while (e->mbarriers) {
        VgMbarrier *b = e->mbarriers;
        e->mbarriers = b->next;
        bulk_list_free(b->flying);
        free(b);
    }
    for (uint32_t k = 0; k < e->n_warps; k++) {
        bulk_list_free(e->warps[k].bulk);
        e->warps[k] = (struct VgWarpEngine){ 0 };
    }
    e->barrier = (struct VgClusterBarrier){ 0 };
}

VgEngine *vg_engine(VgWarp *w) {
    VgCluster *c = w->cta->cluster;
    VgEngine *e = c->async;
    if (!e) {
        e = calloc(1, sizeof *e);
        if (!e) return NULL;
        e->n_warps = c->n * w->cta->n_warps;
        e->warps = calloc(e->n_warps, sizeof *e->warps);
        e->linear = c->linear;
        c->async = e;
        if (!e->warps) {
            vg_engine_destroy(c);
            return NULL;
        }
    }
    if (e->linear != c->linear) { // the cluster before has retired
        engine_clear(e);
        e->linear = c->linear;
    }
    return e;
}

struct VgWarpEngine *vg_warp_engine(VgWarp *w) {
    VgEngine *e = vg_engine(w);
    return e ? &e->warps[w->mem.agent] : NULL;
}

void vg_engine_destroy(VgCluster *c) {
    VgEngine *e = c->async;
    if (!e) return;
    if (e->warps) engine_clear(e);
    free(e->warps);
    free(e);
    c->async = NULL;
}

/* the barrier ---------------------------------------------------------------------------------- */

static uint32_t live_warps(const VgCluster *c) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < c->n; k++)
        for (uint32_t x = 0; x < c->ctas[k].n_warps; x++) n += c->ctas[k].warps[x].state != VG_DONE;
    return n;
}

static void check_barrier(VgWarp *w, VgEngine *e) {
    struct VgClusterBarrier *b = &e->barrier;
    uint32_t arrived = 0; // of those that have not exited
    for (uint32_t k = 0; k < e->n_warps; k++) {
        const VgWarp *o = &w->cta->cluster->ctas[k / w->cta->n_warps].warps[k % w->cta->n_warps];
        arrived += o->state != VG_DONE && e->warps[k].arrived == b->phase + 1;
    }
    b->arrived = arrived;
    if (!arrived || arrived < live_warps(w->cta->cluster)) return;
    vg_clock_join(w->mem.team, b->done, b->clock);
    vg_clock_clear(b->clock);
    b->phase++;
    b->arrived = 0;
    w->cta->progress++;
}

static void describe(VgWarp *w, Text *text) {
    const VgEngine *e = w->wait.object;
    text_printf(text, "the cluster's barrier: %u of %u warps have arrived", e->barrier.arrived,
                live_warps(w->cta->cluster));
}

static bool passed(VgWarp *w) {
    const VgEngine *e = w->wait.object;
    return e->barrier.phase >= e->warps[w->mem.agent].arrived;
}

static const VgInstr *cluster_arrive(const VgInstr *i, VgWarp *w, char *f) {
    const VgInstr *next;
    if (!VG_MASK(i, w, f)) return i + 1;
    if (!vg_aligned(i, w, &next)) return next;
    VgEngine *e = vg_engine(w);
    if (!e) return vg_fault(w, i, VG_NO_MEMORY, w->mask, "no memory for a cluster's barrier");
    struct VgWarpEngine *mine = &e->warps[w->mem.agent];
    if (VG_MASK(i, w, f) != w->mask)
        return vg_fault(w, i, VG_DIVERGED, w->mask,
                        "the guard of a barrier must hold for all lanes or none");
    if (mine->arrived)
        return vg_fault(w, i, VG_BARRIER, w->mask,
                        "barrier.cluster.arrive twice without a wait in between");
    if (!e->barrier.clock) {
        e->barrier.clock = vg_clock_create(w->mem.team);
        e->barrier.done = vg_clock_create(w->mem.team);
    }
    if (i->imm) vg_clock_release(e->barrier.clock, &w->mem);
    mine->arrived = e->barrier.phase + 1;
    check_barrier(w, e);
    return i + 1;
}

static const VgInstr *cluster_wait(const VgInstr *i, VgWarp *w, char *f) {
    const VgInstr *next;
    if (!VG_MASK(i, w, f)) return i + 1;
    if (!vg_aligned(i, w, &next)) return next;
    VgEngine *e = vg_engine(w);
    if (!e) return vg_fault(w, i, VG_NO_MEMORY, w->mask, "no memory for a cluster's barrier");
    struct VgWarpEngine *mine = &e->warps[w->mem.agent];
    if (!mine->arrived)
        return vg_fault(w, i, VG_BARRIER, w->mask,
                        "barrier.cluster.wait without an arrive before it");
    if (e->barrier.phase < mine->arrived) return vg_wait(w, i, passed, describe, e);
    vg_clock_acquire(e->barrier.done, &w->mem);
    mine->arrived = 0;
    return i + 1;
}

// A warp that has exited counts as arrived. Of a block that has exited nothing may be in flight.
bool vg_engine_warp_exit(VgWarp *w) {
    VgEngine *e = w->cta->cluster->async;
    if (!e || e->linear != w->cta->cluster->linear) return true;
    if (!vg_bulk_warp_exit(w, &e->warps[w->mem.agent])) return false;
    if (e->barrier.clock) check_barrier(w, e);
    bool last = w->cta->n_done + 1 == w->cta->n_warps;
    for (const VgMbarrier *b = e->mbarriers; b && last; b = b->next) {
        const VgBulk *op = b->flying;
        while (op && !op->site) op = op->next; // arrivals may be late for ever
        if (b->rank != w->mem.rank || !op) continue;
        vg_fault(w, op->instr, VG_BARRIER, 1u << op->lane,
                 "the block ends, and nobody has waited for this copy at the mbarrier at offset %u",
                 b->offset);
        return false;
    }
    return true;
}

/* addresses ------------------------------------------------------------------------------------ */

// imm: 1 generic, | 2: 64 bits.
static const VgInstr *map_address(const VgInstr *i, VgWarp *w, char *f) {
    uint32_t m = VG_MASK(i, w, f), n = w->cta->grid->ctas_per_cluster;
    for (uint32_t rest = m; rest; rest &= rest - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(rest);
        uint64_t a = vg_lane(f, i->a, i->imm & 2 ? 8 : 4, l), rank = vg_lane(f, i->b, 4, l);
        if (rank >= n)
            return vg_fault(w, i, VG_ILLEGAL_ADDRESS, 1u << l,
                            "mapa: block %llu of a cluster of %u", (unsigned long long)rank, n);
        if (i->imm & 1 && vg_space_of(a) != VG_SHARED)
            return vg_fault(w, i, VG_ILLEGAL_ADDRESS, 1u << l,
                            "mapa: 0x%llx is not in shared memory", (unsigned long long)a);
        a = (a & ~0xff000000ull) | rank << 24;
        if (i->imm & 2)
            ((uint64_t *)(f + i->d))[l] = a;
        else
            ((uint32_t *)(f + i->d))[l] = (uint32_t)a;
    }
    return i + 1;
}

static const VgInstr *rank_of_address(const VgInstr *i, VgWarp *w, char *f) {
    uint32_t m = VG_MASK(i, w, f), *to = (uint32_t *)(f + i->d);
    for (uint32_t rest = m; rest; rest &= rest - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(rest);
        uint64_t a = vg_lane(f, i->a, i->imm & 2 ? 8 : 4, l);
        if (i->imm & 1 && vg_space_of(a) != VG_SHARED)
            return vg_fault(w, i, VG_ILLEGAL_ADDRESS, 1u << l,
                            "getctarank: 0x%llx is not in shared memory", (unsigned long long)a);
        to[l] = (uint32_t)(a >> 24 & 0xff);
    }
    return i + 1;
}

static const VgInstr *nothing(const VgInstr *i, VgWarp *w, char *f) {
    (void)w, (void)f;
    return i + 1;
}

/* decoding ------------------------------------------------------------------------------------- */

static Status needs_90(VgDecoder *d) {
    return vg_cc(d) < 90 ? vg_bad(d, "needs sm_90, this is sm_%d", vg_cc(d)) : OK;
}

static Status decode_mapa(VgDecoder *d, const PtxInstr *p) {
    bool rank = *p->root == 'g', shared = vg_take(d, "shared::cluster");
    PtxType type = vg_take_type(d);
    uint32_t a, b = 0, r;
    TRY(needs_90(d));
    if (type != PTX_U32 && type != PTX_U64) return vg_bad(d, "expected .u32 or .u64");
    bool wide = type == PTX_U64;
    TRY(vg_count(d, rank ? 2 : 3, rank ? 2 : 3));
    TRY(vg_src(d, &p->operands[1], wide ? 64 : 32, &a));
    if (!rank) TRY(vg_src(d, &p->operands[2], 32, &b));
    TRY(vg_dst(d, &p->operands[0], wide && !rank ? 64 : 32, false, &r));
    VgInstr *i = vg_emit(d, rank ? rank_of_address : map_address);
    i->d = r, i->a = a, i->b = b, i->imm = (shared ? 0 : 1) | wide << 1;
    return OK;
}

Status vg_decode_cluster_barrier(VgDecoder *d, const PtxInstr *p) {
    (void)p;
    bool arrives = vg_take(d, "arrive"), waits = vg_take(d, "wait");
    bool relaxed = vg_take(d, "relaxed");
    vg_take(d, "release"), vg_take(d, "acquire"), vg_take(d, "aligned");
    TRY(needs_90(d));
    if (arrives == waits) return vg_bad(d, "expected .arrive or .wait");
    TRY(vg_count(d, 0, 0));
    vg_emit(d, arrives ? cluster_arrive : cluster_wait)->imm = !relaxed;
    return OK;
}

static Status decode_dependent(VgDecoder *d, const PtxInstr *p) {
    (void)p;
    TRY(needs_90(d));
    if (!vg_take(d, "wait") && !vg_take(d, "launch_dependents"))
        return vg_bad(d, "expected .wait or .launch_dependents");
    TRY(vg_count(d, 0, 0));
    vg_emit(d, nothing);
    return OK;
}

const VgRoot vg_roots_engine[] = {
    { "mbarrier", vg_decode_mbarrier,
      "mbarrier.{init,inval,arrive{.expect_tx,.noComplete},arrive_drop{.expect_tx,.noComplete},"
      "expect_tx,"
      "complete_tx,test_wait{.parity},try_wait{.parity},pending_count}{.sem}{.scope}{.shared}."
      "b64" },
    { "mapa", decode_mapa, "mapa{.shared::cluster}.{u32,u64}" },
    { "getctarank", decode_mapa, "getctarank{.shared::cluster}.{u32,u64}" },
    { "griddepcontrol", decode_dependent, "griddepcontrol.{wait,launch_dependents}" },
    { NULL, NULL, NULL },
};
