// SPDX-License-Identifier: Apache-2.0
// Bulk copies: cp.async.bulk between global memory and shared memory of the cluster.
//
// engine.h says when they happen. Both ends are multiples of 16 bytes. A copy into shared memory
// counts its bytes down at an mbarrier of the block it writes to; a copy out of it belongs to a
// group of its thread, whose .read wait gives the source back and whose full wait writes the
// destination.
#include <stdlib.h>

#include "runtime/vgpu/async.h"
#include "runtime/vgpu/engine.h"

typedef struct BulkSite {
    VgSite *source, *issue, *land; // of the source; of the destination, twice
    VgSite *give_back;             // of a source in shared memory
    VgSite *mbarrier;
    uint32_t to, from, size, at, ranks; // frame offsets, 0: none; `at`: the mbarrier's address
    int size_bytes;
    bool multicast;
} BulkSite;

VgBulk *vg_bulk_new(VgWarp *w, const VgInstr *i, const VgSite *site, uint32_t lane,
                    uint32_t bytes) {
    size_t agents = w->mem.team->thread->launch->n_agents * sizeof(uint32_t);
    VgBulk *op = calloc(1, sizeof *op + agents);
    if (!op) return NULL;
    *op = (VgBulk){ .warp = w, .instr = i, .site = site, .lane = lane, .bytes = bytes };
    if (bytes && !(op->data = malloc(bytes))) {
        free(op);
        return NULL;
    }
    vg_agent_save(&op->agent, &op->clock, op->at, &w->mem);
    return op;
}

void vg_bulk_free(VgBulk *op) {
    free(op->data);
    free(op);
}

static VgFault give_back(VgBulk *op, VgWarpMem *by) {
    uint8_t *host;
    if (op->read_done || !op->source) return VG_OK;
    op->read_done = true;
    return vg_range(by, op->source, VG_READ, op->lane, op->from, op->bytes, &host);
}

VgFault vg_bulk_land(VgBulk *op) {
    uint8_t *host;
    vg_agent_wake(&op->agent);
    const VgInstr *copy = op->instr;
    if (!op->site) { // arrivals
        if (!op->warp->async) return VG_OK;
        VgFault fault = vg_copies_land(op->warp, &op->agent, op->copies, op->lanes, NULL, &copy);
        op->instr = copy;
        return fault;
    }
    if (op->flight > op->warp->mem.landed) op->warp->mem.landed = op->flight;
    VgFault fault = give_back(op, &op->agent);
    if (fault == VG_OK)
        fault = vg_range(&op->agent, op->site, VG_WRITE, op->lane, op->to, op->bytes, &host);
    if (fault == VG_OK) memcpy(host, op->data, op->bytes);
    return fault;
}

/* issue ---------------------------------------------------------------------------------------- */

static uint64_t address_of(const VgSite *site, const char *f, uint32_t at, uint32_t lane) {
    uint64_t a = vg_lane(f, at, site->address_bytes, lane) + (uint64_t)site->offset;
    return site->address_bytes == 4 ? (uint32_t)a : a;
}

static VgFault aligned(VgWarp *w, const VgSite *site, uint32_t lane, uint64_t address) {
    if (!(address & 15)) return VG_OK;
    return vg_mem_fault(&w->mem, site, VG_MISALIGNED, lane, address,
                        "bulk copies need addresses that are multiples of 16");
}

// Reads the source and marks both ends.
static VgFault take_off(VgWarp *w, const BulkSite *site, VgBulk *op) {
    uint8_t *host;
    VgFault fault = aligned(w, site->source, op->lane, op->from);
    if (fault == VG_OK) fault = aligned(w, site->issue, op->lane, op->to);
    op->flight = ++w->mem.flight;
    w->mem.turn++;
    if (fault == VG_OK)
        fault = vg_range(&w->mem, site->source, VG_READ, op->lane, op->from, op->bytes, &host);
    if (fault == VG_OK) memcpy(op->data, host, op->bytes);
    if (fault == VG_OK)
        fault = vg_range(&w->mem, site->issue, VG_WRITE, op->lane, op->to, op->bytes, &host);
    return fault;
}

static uint32_t rank_of(const VgWarp *w, uint64_t address) {
    return w->mem.team->thread->launch->shape.ranked ? (uint32_t)(address >> 24 & 0xff) : 0;
}

// One copy into the shared memory of one block.
static const VgInstr *into_shared(const VgInstr *i, VgWarp *w, uint32_t lane, uint32_t bytes,
                                  uint64_t from, uint64_t to, uint64_t at) {
    const BulkSite *site = i->extra;
    const VgInstr *next = i + 1;
    VgMbarrier *b = vg_mbarrier_at(w, i, site->mbarrier, lane, at, &next);
    if (!b) return next;
    if (rank_of(w, to) != b->rank && w->mem.team->n_ctas > 1)
        return vg_fault(w, i, VG_BARRIER, 1u << lane,
                        "the mbarrier is in block %u of the cluster, the destination in block %u",
                        b->rank, rank_of(w, to));
    VgBulk *op = vg_bulk_new(w, i, site->land, lane, bytes);
    if (!op) return vg_fault(w, i, VG_NO_MEMORY, 1u << lane, "no memory for a bulk copy");
    op->to = to, op->from = from, op->source = site->give_back;
    VgFault fault = take_off(w, site, op);
    if (fault != VG_OK) {
        vg_bulk_free(op);
        return vg_fault_record(w, i, fault);
    }
    vg_mbarrier_fly(b, op);
    return next;
}

static const VgInstr *out_of_shared(const VgInstr *i, VgWarp *w, uint32_t lane, uint32_t bytes,
                                    uint64_t from, uint64_t to) {
    const BulkSite *site = i->extra;
    struct VgWarpEngine *e = vg_warp_engine(w);
    VgBulk *op = e ? vg_bulk_new(w, i, site->land, lane, bytes) : NULL;
    if (!op) return vg_fault(w, i, VG_NO_MEMORY, 1u << lane, "no memory for a bulk copy");
    op->to = to, op->from = from, op->source = site->give_back, op->group = e->groups[lane];
    VgBulk **last = &e->bulk;
    while (*last) last = &(*last)->next;
    *last = op;
    VgFault fault = take_off(w, site, op);
    return fault == VG_OK ? i + 1 : vg_fault_record(w, i, fault);
}

static const VgInstr *copy_bulk(const VgInstr *i, VgWarp *w, char *f) {
    const BulkSite *site = i->extra;
    const VgInstr *next = i + 1;
    for (uint32_t m = VG_MASK(i, w, f); m && next; m &= m - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(m),
                 bytes = (uint32_t)vg_lane(f, site->size, 4, lane);
        uint64_t from = address_of(site->source, f, site->from, lane);
        uint64_t to = address_of(site->issue, f, site->to, lane);
        if (bytes % 16)
            return vg_fault(w, i, VG_MISALIGNED, 1u << lane,
                            "a bulk copy of %u bytes: expected a multiple of 16", bytes);
        if (!site->mbarrier) {
            next = out_of_shared(i, w, lane, bytes, from, to);
            continue;
        }
        uint64_t at = address_of(site->mbarrier, f, site->at, lane);
        if (!site->multicast) {
            next = into_shared(i, w, lane, bytes, from, to, at);
            continue;
        }
        uint32_t ranks = (uint32_t)vg_lane(f, site->ranks, 4, lane) & 0xffff;
        for (uint64_t rank = 0; rank < 16 && next; rank++)
            if (ranks >> rank & 1)
                next = into_shared(i, w, lane, bytes, from, (to & ~0xff000000ull) | rank << 24,
                                   (at & ~0xff000000ull) | rank << 24);
    }
    return next;
}

static const VgInstr *prefetch(const VgInstr *i, VgWarp *w, char *f) {
    (void)w, (void)f;
    return i + 1;
}

/* groups --------------------------------------------------------------------------------------- */

static const VgInstr *commit(const VgInstr *i, VgWarp *w, char *f) {
    uint32_t m = VG_MASK(i, w, f);
    struct VgWarpEngine *e = vg_warp_engine(w);
    if (!e) return vg_fault(w, i, VG_NO_MEMORY, m, "no memory for bulk copies");
    for (int l = 0; l < 32; l++) e->groups[l] += m >> l & 1;
    return i + 1;
}

static VgFault finish(VgWarp *w, VgBulk *op) {
    static VgSite plain; // a write like any other from here on
    uint8_t *host;
    VgSite site = op->site ? *op->site : plain;
    if (op->flight > w->mem.landed) w->mem.landed = op->flight;
    site.flight = VG_NO_FLIGHT;
    VgFault fault = vg_range(&w->mem, &site, VG_WRITE, op->lane, op->to, op->bytes, &host);
    if (fault == VG_OK) memcpy(host, op->data, op->bytes);
    return fault;
}

// imm: groups that may be left | 1 << 32: only the sources are waited for.
static const VgInstr *wait_bulk(const VgInstr *i, VgWarp *w, char *f) {
    uint32_t m = VG_MASK(i, w, f), left = (uint32_t)i->imm;
    bool read = i->imm >> 32;
    struct VgWarpEngine *e = vg_warp_engine(w);
    if (!e) return vg_fault(w, i, VG_NO_MEMORY, m, "no memory for bulk copies");
    for (VgBulk **p = &e->bulk, *op; (op = *p) != NULL;) {
        bool mine = m >> op->lane & 1 && (uint64_t)op->group + left < e->groups[op->lane];
        VgFault fault = mine ? give_back(op, &w->mem) : VG_OK;
        if (fault == VG_OK && mine && !read) fault = finish(w, op);
        if (fault != VG_OK) return vg_fault_record(w, op->instr, fault);
        if (mine && !read) {
            *p = op->next;
            vg_bulk_free(op);
        } else {
            p = &op->next;
        }
    }
    return i + 1;
}

// At the end of a warp: what has been read is written; what has not been read is lost with shared
// memory.
bool vg_bulk_warp_exit(VgWarp *w, struct VgWarpEngine *e) {
    bool ok = true;
    while (e->bulk) {
        VgBulk *op = e->bulk;
        e->bulk = op->next;
        VgFault fault = VG_OK;
        if (ok && !op->read_done) {
            vg_fault(w, op->instr, VG_BARRIER, 1u << op->lane,
                     "the thread exits before its bulk copy has read shared memory: "
                     "cp.async.bulk.wait_group.read is missing");
            ok = false;
        } else if (ok) {
            fault = finish(w, op);
        }
        if (fault != VG_OK) {
            vg_fault_record(w, op->instr, fault);
            ok = false;
        }
        vg_bulk_free(op);
    }
    return ok;
}

/* decoding ------------------------------------------------------------------------------------- */

static VgSite *site_of(VgDecoder *d, VgSpace space, bool cluster, VgAccess access,
                       VgFlight flight) {
    VgSite *site = vg_site(d);
    site->space = (uint8_t)space, site->cluster = cluster;
    site->access = (uint8_t)access, site->flight = (uint8_t)flight;
    site->scope = VG_SCOPE_SYS;
    site->bytes = 16, site->vector = 1;
    return site;
}

static VgSite *again(VgDecoder *d, const VgSite *site, VgFlight flight) {
    VgSite *copy = ARENA_NEW(vg_arena(d), VgSite);
    *copy = *site;
    copy->flight = (uint8_t)flight;
    return copy;
}

static Status address(VgDecoder *d, const PtxOperand *op, VgSite *site, uint32_t *at) {
    int bytes;
    TRY(vg_address(d, op, at, &site->offset, &bytes));
    site->address_bytes = (uint8_t)bytes;
    return OK;
}

static Status decode_copy(VgDecoder *d, const PtxInstr *p) {
    BulkSite *x = ARENA_NEW(vg_arena(d), BulkSite);
    bool group = vg_take(d, "bulk_group"), counts = vg_take(d, "mbarrier::complete_tx::bytes");
    bool hint = vg_take(d, "L2::cache_hint"), cluster = vg_take(d, "shared::cluster");
    bool own = vg_take(d, "shared::cta"), global = vg_take(d, "global");
    x->multicast = vg_take(d, "multicast::cluster");
    if (vg_cc(d) < 90) return vg_bad(d, "needs sm_90, this is sm_%d", vg_cc(d));
    if (group == counts || (global ? cluster && own : !cluster || !own) ||
        (group && (!own || !global)) || (x->multicast && (!cluster || !global)))
        return vg_bad(
            d, "no such pair of spaces, or neither .bulk_group nor .mbarrier::complete_tx::bytes");
    TRY(vg_count(d, 3u + counts + x->multicast + hint, 3u + counts + x->multicast + hint));
    x->source = site_of(d, counts && global ? VG_GLOBAL : VG_SHARED, false, VG_READ, VG_TAKES_OFF);
    x->issue = site_of(d, group ? VG_GLOBAL : VG_SHARED, cluster, VG_WRITE, VG_TAKES_OFF);
    TRY(address(d, &p->operands[0], x->issue, &x->to));
    TRY(address(d, &p->operands[1], x->source, &x->from));
    TRY(vg_src(d, &p->operands[2], 32, &x->size));
    x->land = again(d, x->issue, VG_LANDING);
    if (x->source->space == VG_SHARED) x->give_back = again(d, x->source, VG_LANDING);
    if (counts) {
        x->mbarrier = site_of(d, VG_SHARED, cluster, VG_WRITE, VG_NO_FLIGHT);
        TRY(address(d, &p->operands[3], x->mbarrier, &x->at));
    }
    if (x->multicast) TRY(vg_src(d, &p->operands[4], 32, &x->ranks));
    vg_emit(d, copy_bulk)->extra = x;
    vg_emit_reads(d, &x->to, 5); // to, from, size, at, ranks
    return OK;
}

Status vg_decode_bulk(VgDecoder *d, const PtxInstr *p) {
    vg_take(d, "bulk");
    if (vg_take(d, "commit_group")) {
        TRY(vg_count(d, 0, 0));
        vg_emit(d, commit);
        return OK;
    }
    if (vg_take(d, "wait_group")) {
        bool read = vg_take(d, "read");
        uint64_t n;
        uint32_t ref;
        TRY(vg_count(d, 1, 1));
        TRY(vg_src(d, &p->operands[0], 32, &ref));
        if (!vg_is_const(d, ref, &n)) return vg_bad(d, "expected a number of groups");
        vg_emit(d, wait_bulk)->imm = (int64_t)(n | (uint64_t)read << 32);
        return OK;
    }
    if (vg_take(d, "prefetch")) { // a hint
        bool spaces = vg_take(d, "L2") && vg_take(d, "global"), hint = vg_take(d, "L2::cache_hint");
        if (!spaces) return vg_bad(d, "expected .prefetch.L2.global");
        TRY(vg_count(d, 2u + hint, 2u + hint));
        vg_emit(d, prefetch);
        return OK;
    }
    return decode_copy(d, p);
}
