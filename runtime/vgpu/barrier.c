// SPDX-License-Identifier: Apache-2.0
// Named barriers of a block: bar, barrier, and bar.warp.sync.
//
// A barrier counts threads, a warp for 32 whatever lanes are left; a phase begins with its first
// arrival and ends when `expected` have arrived. A warp that has exited counts as arrived at
// barriers for the whole block. All lanes of a warp arrive together (vg_aligned).
#include "runtime/vgpu/control.h"
#include "runtime/vgpu/decode.h"
#include "runtime/vgpu/engine.h"

enum { BAR_SYNC, BAR_ARRIVE, BAR_POPC, BAR_AND, BAR_OR };
// VgInstr: a = barrier, b = thread count or 0, c = source predicate, d = result; imm = kind |
// negate << 8.

static uint32_t all_threads(const VgCta *cta) { return cta->n_warps * 32; }

static void describe(VgWarp *w, Text *text) {
    const VgBarrier *b = w->wait.object;
    text_printf(text, "barrier %d: %u of %u threads arrived", (int)(b - w->cta->barriers),
                b->arrived, b->expected);
    text_add(text, ", missing warps");
    for (uint32_t k = 0; k < w->cta->n_warps; k++)
        if (!(b->arrived_warps >> k & 1) && w->cta->warps[k].state != VG_DONE)
            text_printf(text, " %u", k);
}

static void set_result(VgWarp *w, const VgInstr *i, const VgBarrier *b) {
    char *f = w->frame->at;
    uint32_t kind = i->imm & 255, m = VG_MASK(i, w, f);
    if (kind == BAR_POPC) {
        for (int l = 0; l < 32; l++)
            if (m >> l & 1) ((uint32_t *)(f + i->d))[l] = b->reduce_count;
    } else if (kind == BAR_AND || kind == BAR_OR) {
        uint32_t *p = (uint32_t *)(f + i->d),
                 v = (kind == BAR_AND ? b->reduce_and : b->reduce_or) ? m : 0;
        *p = (*p & ~m) | v;
    }
}

// Threads of warps that have exited without arriving in this phase.
static uint32_t exited(const VgCta *cta, const VgBarrier *b) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < cta->n_warps; k++)
        n += cta->warps[k].state == VG_DONE && !(b->arrived_warps >> k & 1) ? 32 : 0;
    return b->expected == all_threads(cta) ? n : 0;
}

static VgClock *clock_of(VgWarp *w, VgBarrier *b) {
    if (!b->clock) b->clock = vg_clock_create(w->cta->team);
    return b->clock;
}

// The phase is complete: everybody who waits goes on.
static void complete(VgCta *cta, VgBarrier *b) {
    uint64_t live = 0;
    for (uint32_t k = 0; k < cta->n_warps; k++)
        if (cta->warps[k].state != VG_DONE) live |= 1ull << k;
    bool whole = b->synced_warps == live && cta->grid->ctas_per_cluster == 1 && !b->clock;
    if (whole) vg_team_barrier(cta->team);
    for (uint32_t k = 0; k < cta->n_warps; k++) {
        VgWarp *w = &cta->warps[k];
        if (!(b->synced_warps >> k & 1)) continue;
        if (!whole) vg_clock_acquire(clock_of(w, b), &w->mem);
        set_result(w, w->pc - 1, b);
        if (w->state == VG_WAITING) w->state = VG_READY;
        w->wait.object = NULL;
    }
    if (b->clock) vg_clock_clear(b->clock);
    VgClock *clock = b->clock;
    *b = (VgBarrier){ .clock = clock, .phase = b->phase + 1 };
    cta->progress++;
}

// Arrivals for the whole block at a plain bar.sync need no clock: vg_team_barrier does it at once.
// The others release at arrival.
static void release(VgWarp *w, VgBarrier *b, bool plain) {
    VgCta *cta = w->cta;
    if (plain && !b->clock && cta->grid->ctas_per_cluster == 1) return;
    if (!b->clock) // earlier arrivals of this phase have released nothing yet
        for (uint32_t k = 0; k < cta->n_warps; k++)
            if (b->arrived_warps >> k & 1) vg_clock_release(clock_of(w, b), &cta->warps[k].mem);
    vg_clock_release(clock_of(w, b), &w->mem);
}

static bool uniform_value(const uint32_t *v, uint32_t m, uint32_t *value) {
    *value = v[__builtin_ctz(m)];
    for (int l = 0; l < 32; l++)
        if (m >> l & 1 && v[l] != *value) return false;
    return true;
}

static const VgInstr *barrier(const VgInstr *i, VgWarp *w, char *f) {
    uint32_t m = VG_MASK(i, w, f), id, count = all_threads(w->cta), kind = i->imm & 255;
    const VgInstr *next;
    if (!m) return i + 1;
    if (!vg_aligned(i, w, &next)) return next;
    m = VG_MASK(i, w, f);
    if (m != w->mask)
        return vg_fault(w, i, VG_DIVERGED, m,
                        "the guard of a barrier must hold for all lanes or none");
    if (!uniform_value((const uint32_t *)(f + i->a), m, &id) ||
        (i->b && !uniform_value((const uint32_t *)(f + i->b), m, &count)))
        return vg_fault(w, i, VG_BARRIER, m, "operands of a barrier differ between lanes");
    if (id >= 16) return vg_fault(w, i, VG_BARRIER, m, "barrier %u: there are 16", id);
    if (!count || count % 32 || count > all_threads(w->cta))
        return vg_fault(w, i, VG_BARRIER, m,
                        "thread count %u: expected a multiple of 32 up to the block's %u", count,
                        all_threads(w->cta));
    VgBarrier *b = &w->cta->barriers[id];
    uint64_t bit = 1ull << w->index;
    if (b->expected && b->expected != count)
        return vg_fault(w, i, VG_BARRIER, m, "barrier %u: this phase began with %u threads, not %u",
                        id, b->expected, count);
    if (b->arrived_warps & bit)
        return vg_fault(w, i, VG_BARRIER, m,
                        "barrier %u: the warp has arrived in this phase already", id);
    if (!b->expected) {
        b->expected = count;
        b->reduce_and = 1;
        b->kind = kind == BAR_ARRIVE ? BAR_SYNC : kind;
    } else if (kind != BAR_ARRIVE && b->kind != kind && (b->kind != BAR_SYNC || b->synced_warps)) {
        return vg_fault(w, i, VG_BARRIER, m, "barrier %u: bar.red and bar.sync meet in one phase",
                        id);
    } else if (kind != BAR_ARRIVE) {
        b->kind = kind;
    }
    release(w, b, kind != BAR_ARRIVE && count == all_threads(w->cta));
    b->arrived_warps |= bit;
    b->arrived += 32;
    if (kind >= BAR_POPC) {
        uint32_t p = (*(uint32_t *)(f + i->c) ^ (i->imm >> 8 ? ~0u : 0)) & m;
        b->reduce_count += (uint32_t)__builtin_popcount(p);
        b->reduce_or |= p != 0;
        b->reduce_and &= p == m;
    }
    w->pc = i + 1;
    if (kind != BAR_ARRIVE) {
        b->synced_warps |= bit;
        w->state = VG_WAITING;
        w->wait = (VgWait){ .describe = describe, .object = b };
        vg_split_save(w, i + 1);
    }
    if (b->arrived + exited(w->cta, b) >= b->expected) complete(w->cta, b);
    // Whoever completes a phase goes on at once; the others wait to be scheduled.
    if (w->state == VG_READY) return i + 1;
    return NULL;
}

void vg_barriers_warp_exit(VgWarp *w) {
    VgCta *cta = w->cta;
    for (int k = 0; k < 16; k++) {
        VgBarrier *b = &cta->barriers[k];
        if (b->expected && b->arrived + exited(cta, b) >= b->expected) complete(cta, b);
    }
}

static const VgInstr *warp_sync(const VgInstr *i, VgWarp *w, char *f) {
    uint32_t m = VG_MASK(i, w, f), members;
    const VgInstr *next;
    if (!m) return i + 1;
    const uint32_t *v = (const uint32_t *)(f + i->a);
    if (!uniform_value(v, m, &members)) // each lane names its own group
        for (uint32_t l = 0; l < 32; l++)
            if (m >> l & 1 && (v[l] & w->alive & ~m))
                return vg_fault(w, i, VG_DIVERGED, 1u << l,
                                "groups of one instruction are not all here");
    if (!(m & ~members) && !vg_converge(i, w, m, members, true, &next)) return next;
    return i + 1;
}

/* decoding ------------------------------------------------------------------------------------ */

Status vg_decode_bar(VgDecoder *d, const PtxInstr *p) {
    static const char *const kinds[] = { "sync", "arrive", "red", NULL };
    static const char *const ops[] = { "popc", "and", "or", NULL };
    uint32_t id, count = 0, pred = 0, result = 0;
    bool negate = false, flip = false;
    if (vg_take(d, "cluster")) return vg_decode_cluster_barrier(d, p);
    vg_take(d, "cta");
    vg_take(d, "aligned");
    bool warp = vg_take(d, "warp");
    int kind = vg_take_one(d, kinds);
    if (kind < 0) return vg_bad(d, "expected .sync, .arrive or .red");
    if (warp) {
        TRY(vg_count(d, 1, 1));
        TRY(vg_src(d, &p->operands[0], 32, &id));
        vg_emit(d, warp_sync)->a = id;
        return OK;
    }
    uint32_t first = 0, last = p->n_operands;
    if (kind == 2) {
        TRY(vg_count(d, 3, 4));
        kind = BAR_POPC + vg_take_one(d, ops);
        if (kind < BAR_POPC) return vg_bad(d, "expected .popc, .and or .or");
        vg_take_type(d);
        if (kind == BAR_POPC) TRY(vg_dst(d, &p->operands[0], 32, false, &result));
        else TRY(vg_pred_dst(d, &p->operands[0], &result));
        TRY(vg_pred(d, &p->operands[p->n_operands - 1], &pred, &negate));
        flip = negate;
        first = 1;
        last--;
    } else {
        TRY(vg_count(d, kind == BAR_ARRIVE ? 2 : 1, 2));
    }
    TRY(vg_src(d, &p->operands[first], 32, &id));
    if (last - first > 1) TRY(vg_src(d, &p->operands[first + 1], 32, &count));
    VgInstr *i = vg_emit(d, barrier);
    i->a = id;
    i->b = count;
    i->c = pred;
    i->d = result;
    i->imm = kind | (int64_t)flip << 8;
    return OK;
}
