// SPDX-License-Identifier: Apache-2.0
// mbarrier objects (PTX ISA 9.7.13.15): phases that complete when all expected arrivals have come
// and no transaction is outstanding.
//
// A state token is phase << 32 | pending count. A wait that cannot succeed parks its warp when all
// its lanes wait together, so that a phase that never completes is a deadlock with names and
// numbers; else it returns false and gives up the quantum.
#include <stdlib.h>

#include "runtime/vgpu/async.h"
#include "runtime/vgpu/engine.h"

enum { MOST = (1 << 20) - 1 }; // arrivals and bytes

/* objects -------------------------------------------------------------------------------------- */

static VgMbarrier *find(const VgEngine *e, uint32_t rank, uint32_t offset) {
    VgMbarrier *b = e->mbarriers;
    while (b && (b->rank != rank || b->offset != offset)) b = b->next;
    return b;
}

static VgFault place_of(VgWarp *w, const VgSite *site, uint32_t lane, uint64_t address,
                        uint32_t *rank, uint32_t *offset) {
    VgPlaceMem place;
    VgSpace space;
    uint64_t at;
    VgFault fault = vg_resolve(&w->mem, site, lane, address, 8, &place, &at, &space);
    if (fault != VG_OK) return fault;
    if (!place.shared)
        return vg_mem_fault(&w->mem, site, VG_ILLEGAL_ADDRESS, lane, address,
                            "an mbarrier lies in shared memory");
    *rank = place.rank;
    *offset = (uint32_t)at;
    return VG_OK;
}

static VgMbarrier *no_barrier(VgWarp *w, const VgInstr *i, uint32_t lane, const VgInstr **next,
                              uint32_t offset) {
    *next = vg_fault(w, i, VG_BARRIER, 1u << lane,
                     "no mbarrier has been initialised at offset %u of shared memory", offset);
    return NULL;
}

VgMbarrier *vg_mbarrier_at(VgWarp *w, const VgInstr *i, const VgSite *site, uint32_t lane,
                           uint64_t address, const VgInstr **next) {
    VgEngine *e = vg_engine(w);
    uint32_t rank, offset;
    if (!e) {
        *next = vg_fault(w, i, VG_NO_MEMORY, 1u << lane, "no memory for an mbarrier");
        return NULL;
    }
    VgFault fault = place_of(w, site, lane, address, &rank, &offset);
    if (fault != VG_OK) {
        *next = vg_fault_record(w, i, fault);
        return NULL;
    }
    VgMbarrier *b = find(e, rank, offset);
    if (!b) return no_barrier(w, i, lane, next, offset);
    if (b->gen < w->mem.team->gen || vg_ordered(&w->mem, b->agent, b->at)) return b;
    *next = vg_fault(w, i, VG_RACE, 1u << lane,
                     "the mbarrier at offset %u is used without a barrier after its initialisation",
                     offset);
    return NULL;
}

static void describe(VgWarp *w, Text *text) {
    const VgMbarrier *b = w->wait.object;
    int64_t flying = 0;
    for (const VgBulk *op = b->flying; op; op = op->next) flying += op->bytes;
    text_printf(text, "mbarrier at shared offset %u%s: phase %llu, %u of %u arrivals are missing, ",
                b->offset, b->rank == w->mem.rank ? "" : " of another block",
                (unsigned long long)b->phase, b->pending, b->expected);
    text_printf(text, "%lld bytes are expected and %lld in flight", (long long)b->tx,
                (long long)flying);
}

/* phases --------------------------------------------------------------------------------------- */

static void check_phase(VgTeam *team, VgCta *cta, VgMbarrier *b) {
    if (b->pending || b->tx) return;
    vg_clock_join(team, b->done, b->clock);
    vg_clock_clear(b->clock);
    b->phase++;
    b->pending = b->expected;
    cta->progress++;
}

// Lands everything if that completes the phase. A fault stops the launch; *ok false then.
static void land(VgWarp *w, VgMbarrier *b, bool *ok) {
    int64_t bytes = 0, arrivals = 0;
    for (const VgBulk *op = b->flying; op; op = op->next)
        bytes += op->bytes, arrivals += op->arrivals;
    *ok = true;
    if (!b->flying || b->pending != arrivals || b->tx != bytes) return;
    while (b->flying) {
        VgBulk *op = b->flying;
        VgFault fault = vg_bulk_land(op);
        if (fault != VG_OK) {
            vg_fault_record(w, op->instr, fault); // who issued it may have exited
            *ok = false;
            return;
        }
        vg_clock_join(w->mem.team, b->clock, &op->clock);
        b->tx -= op->bytes;
        b->pending -= op->arrivals;
        b->flying = op->next;
        vg_bulk_free(op);
    }
    check_phase(w->mem.team, w->cta, b);
}

void vg_mbarrier_fly(VgMbarrier *b, VgBulk *op) {
    VgBulk **last = &b->flying;
    while (*last) last = &(*last)->next;
    *last = op;
}

static bool ready(const VgMbarrier *b, uint64_t value, bool parity) {
    return parity ? (b->phase & 1) != (value & 1) : b->phase != value >> 32;
}

static bool poll(VgWarp *w) {
    VgMbarrier *b = (VgMbarrier *)(uintptr_t)w->wait.object;
    bool ok;
    land(w, b, &ok);
    return ok && ready(b, w->wait.value[0], w->wait.value[1]);
}

/* instructions --------------------------------------------------------------------------------- */

typedef enum Op { OP_INIT, OP_INVAL, OP_ARRIVE, OP_DROP, OP_EXPECT, OP_COMPLETE, OP_WAIT } Op;
typedef struct Mbar {
    VgSite *site;
    Op op;
    uint32_t address, count, tx, state, to; // frame offsets, 0: none
    bool releases, expects, no_complete, parity, blocks, acquires;
} Mbar;

static uint64_t address_of(const Mbar *x, const char *f, uint32_t lane) {
    uint64_t at = vg_lane(f, x->address, x->site->address_bytes, lane) + (uint64_t)x->site->offset;
    return x->site->address_bytes == 4 ? (uint32_t)at : at;
}

static const VgInstr *init(const VgInstr *i, VgWarp *w, char *f, uint32_t lane) {
    const Mbar *x = i->extra;
    VgEngine *e = vg_engine(w);
    uint32_t rank, offset, count = (uint32_t)vg_lane(f, x->count, 4, lane);
    uint8_t *host;
    uint64_t address = address_of(x, f, lane);
    VgFault fault = place_of(w, x->site, lane, address, &rank, &offset);
    if (fault != VG_OK) return vg_fault_record(w, i, fault);
    if (!e || !count || count > MOST)
        return vg_fault(w, i, VG_BARRIER, 1u << lane, "mbarrier.init: a count of %u", count);
    if (find(e, rank, offset))
        return vg_fault(w, i, VG_BARRIER, 1u << lane, "the mbarrier at offset %u is in use already",
                        offset);
    fault = vg_range(&w->mem, x->site, VG_WRITE, lane, address, 8, &host);
    if (fault != VG_OK) return vg_fault_record(w, i, fault);
    VgMbarrier *b = calloc(1, sizeof *b);
    if (!b) return vg_fault(w, i, VG_NO_MEMORY, 1u << lane, "no memory for an mbarrier");
    *b = (VgMbarrier){ .next = e->mbarriers,
                       .rank = rank,
                       .offset = offset,
                       .expected = count,
                       .pending = count,
                       .agent = w->mem.agent,
                       .gen = w->mem.team->gen,
                       .at = w->mem.clock->at[w->mem.agent] };
    b->clock = vg_clock_create(w->mem.team);
    b->done = vg_clock_create(w->mem.team);
    e->mbarriers = b;
    return i + 1;
}

static const VgInstr *inval(const VgInstr *i, VgWarp *w, VgMbarrier *b, uint32_t lane,
                            uint64_t address) {
    VgSite site = *((const Mbar *)i->extra)->site;
    uint8_t *host;
    if (b->flying)
        return vg_fault(w, i, VG_BARRIER, 1u << lane, "mbarrier.inval while copies are in flight");
    site.flight = VG_LANDING;
    VgWarpMem by = w->mem; // the touch is of who made it
    by.agent = b->agent;
    VgFault fault = vg_range(&by, &site, VG_WRITE, lane, address, 8, &host);
    if (fault != VG_OK) return vg_fault_record(w, i, fault);
    for (VgMbarrier **p = &vg_engine(w)->mbarriers; *p; p = &(*p)->next)
        if (*p == b) {
            *p = b->next;
            free(b);
            break;
        }
    return i + 1;
}

// Arrivals and transactions of one lane; the clock has been released.
static const VgInstr *count(const VgInstr *i, VgWarp *w, char *f, VgMbarrier *b, uint32_t lane) {
    const Mbar *x = i->extra;
    int64_t tx = (int64_t)vg_lane(f, x->tx, 4, lane);
    uint32_t n = x->op > OP_DROP ? 0 : x->count ? (uint32_t)vg_lane(f, x->count, 4, lane) : 1;
    b->tx += x->op == OP_COMPLETE ? -tx : tx;
    if (b->tx > MOST || b->tx < -MOST)
        return vg_fault(w, i, VG_BARRIER, 1u << lane,
                        "mbarrier: %lld bytes outstanding, %d are possible", (long long)b->tx,
                        MOST);
    if (n > b->pending || (x->op <= OP_DROP && !n))
        return vg_fault(
            w, i, VG_BARRIER, 1u << lane,
            "%u arrivals at an mbarrier at offset %u that expects %u more in phase %llu", n,
            b->offset, b->pending, (unsigned long long)b->phase);
    if (x->to) ((uint64_t *)(f + x->to))[lane] = b->phase << 32 | b->pending;
    if (x->op == OP_DROP) b->expected -= n;
    b->pending -= n;
    if (x->no_complete && !b->pending)
        return vg_fault(w, i, VG_BARRIER, 1u << lane,
                        "an arrival with .noComplete completes the phase");
    check_phase(w->mem.team, w->cta, b);
    return i + 1;
}

static const VgInstr *arrive(const VgInstr *i, VgWarp *w, char *f) {
    const Mbar *x = i->extra;
    const VgInstr *next = i + 1;
    const VgMbarrier *released = NULL;
    uint64_t phase = 0;
    for (uint32_t m = VG_MASK(i, w, f); m; m &= m - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(m);
        if (x->op == OP_INIT) {
            next = init(i, w, f, lane);
        } else {
            uint64_t address = address_of(x, f, lane);
            VgMbarrier *b = vg_mbarrier_at(w, i, x->site, lane, address, &next);
            if (!b) return next;
            if (x->releases && (released != b || phase != b->phase))
                vg_clock_release(b->clock, &w->mem);
            released = b, phase = b->phase;
            next = x->op == OP_INVAL ? inval(i, w, b, lane, address) : count(i, w, f, b, lane);
        }
        if (!next) return NULL;
    }
    return next;
}

static const VgInstr *wait(const VgInstr *i, VgWarp *w, char *f) {
    const Mbar *x = i->extra;
    const VgInstr *next = i + 1;
    uint32_t m = VG_MASK(i, w, f), yes = 0;
    VgMbarrier *first = NULL;
    bool one = w->mask == w->alive;
    uint64_t value = 0;
    for (uint32_t rest = m; rest; rest &= rest - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(rest);
        uint64_t v = vg_lane(f, x->state, x->parity ? 4 : 8, lane);
        VgMbarrier *b = vg_mbarrier_at(w, i, x->site, lane, address_of(x, f, lane), &next);
        if (!b) return next;
        if (first != b) {
            bool ok;
            land(w, b, &ok);
            if (!ok) return NULL;
        }
        uint64_t same = x->parity ? v : v >> 32 << 32; // tokens differ in their counts
        one = one && (!first || (first == b && value == same));
        first = b, value = same;
        if (!x->parity && (v >> 32 > b->phase || b->phase - (v >> 32) > 1))
            return vg_fault(w, i, VG_BARRIER, 1u << lane,
                            "a state of phase %llu, the mbarrier is in phase %llu",
                            (unsigned long long)(v >> 32), (unsigned long long)b->phase);
        if (ready(b, v, x->parity)) {
            yes |= 1u << lane;
            if (x->acquires) vg_clock_acquire(b->done, &w->mem);
        }
    }
    if (m && !yes && x->blocks && one) {
        vg_wait(w, i, poll, describe, first);
        w->wait.value[0] = value, w->wait.value[1] = x->parity;
        return NULL;
    }
    if (yes != m) w->budget = 0;
    uint32_t *p = (uint32_t *)(f + i->d);
    *p = (*p & ~m) | yes;
    return i + 1;
}

static const VgInstr *pending_count(const VgInstr *i, VgWarp *w, char *f) {
    uint32_t m = VG_MASK(i, w, f), *to = (uint32_t *)(f + i->d);
    for (int l = 0; l < 32; l++)
        if (m >> l & 1) to[l] = (uint32_t)((const uint64_t *)(f + i->a))[l] & MOST;
    return i + 1;
}

// cp.async.mbarrier.arrive: when all copies of these lanes so far have landed, each arrives.
static const VgInstr *arrive_later(const VgInstr *i, VgWarp *w, char *f) {
    const Mbar *x = i->extra;
    const VgInstr *next = i + 1;
    const VgCopies *copies = w->async;
    VgBulk *op = NULL;
    VgMbarrier *of = NULL;
    for (uint32_t m = VG_MASK(i, w, f); m; m &= m - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(m);
        VgMbarrier *b = vg_mbarrier_at(w, i, x->site, lane, address_of(x, f, lane), &next);
        if (!b) return next;
        if (x->expects && b->pending++ == MOST)
            return vg_fault(w, i, VG_BARRIER, 1u << lane, "more than %d arrivals pending", MOST);
        if (!op || of != b) {
            op = vg_bulk_new(w, i, NULL, lane, 0);
            if (!op)
                return vg_fault(w, i, VG_NO_MEMORY, m, "no memory for an asynchronous arrival");
            op->copies = copies ? copies->issued : 0;
            vg_mbarrier_fly(b, op);
            of = b;
        }
        op->lanes |= 1u << lane;
        op->arrivals++;
    }
    return next;
}

/* decoding ------------------------------------------------------------------------------------- */

static Status take_address(VgDecoder *d, const PtxOperand *op, Mbar *x) {
    bool cluster = vg_take(d, "shared::cluster"),
         own = vg_take(d, "shared") || vg_take(d, "shared::cta");
    int bytes;
    VgSite *site = x->site = vg_site(d);
    site->space = cluster || own ? VG_SHARED : VG_GENERIC;
    site->cluster = cluster;
    site->access = VG_WRITE;
    site->bytes = 8, site->vector = 1;
    site->flight = VG_TAKES_OFF;
    TRY(vg_address(d, op, &x->address, &site->offset, &bytes));
    site->address_bytes = (uint8_t)bytes;
    return OK;
}

static void emit(VgDecoder *d, Mbar *x, VgHandler run, uint32_t pred) {
    VgInstr *i = vg_emit(d, run);
    i->extra = x, i->d = pred;
    vg_emit_list(d, &x->to, x->to ? 1 : 0, 0);
    vg_emit_reads(d, &x->address, 4); // address, count, tx, state
}

static Status decode_wait(VgDecoder *d, const PtxInstr *p, Mbar *x) {
    uint32_t to;
    x->op = OP_WAIT;
    x->parity = vg_take(d, "parity");
    x->acquires = !vg_take(d, "relaxed");
    vg_take(d, "acquire");
    TRY(vg_count(d, 3, x->blocks ? 4 : 3));
    TRY(vg_pred_dst(d, &p->operands[0], &to));
    TRY(take_address(d, &p->operands[1], x));
    TRY(vg_src(d, &p->operands[2], x->parity ? 32 : 64, &x->state));
    emit(d, x, wait, to);
    return OK;
}

static Status decode_arrive(VgDecoder *d, const PtxInstr *p, Mbar *x) {
    TRY(vg_count(d, 1, 3));
    bool has_state = x->op <= OP_DROP && p->operands[0].kind != PTX_OP_ADDRESS;
    uint32_t at = has_state;
    x->expects = vg_take(d, "expect_tx");
    x->no_complete = vg_take(d, "noComplete");
    x->releases = !vg_take(d, "relaxed") && x->op <= OP_DROP;
    vg_take(d, "release");
    bool needs = x->expects || x->op > OP_DROP || x->no_complete;
    TRY(vg_count(d, at + 1 + needs, at + 2));
    TRY(take_address(d, &p->operands[at], x));
    if (at + 1 < p->n_operands)
        TRY(vg_src(d, &p->operands[at + 1], 32,
                   x->expects || x->op > OP_DROP ? &x->tx : &x->count));
    if (has_state && p->operands[0].kind != PTX_OP_SINK)
        TRY(vg_dst(d, &p->operands[0], 64, false, &x->to));
    emit(d, x, arrive, 0);
    return OK;
}

Status vg_decode_mbarrier(VgDecoder *d, const PtxInstr *p) {
    static const char *const scopes[] = { "cta", "cluster", NULL };
    static const char *const ops[] = { "init",          "inval",       "arrive",    "arrive_drop",
                                       "expect_tx",     "complete_tx", "test_wait", "try_wait",
                                       "pending_count", NULL };
    Mbar *x = ARENA_NEW(vg_arena(d), Mbar);
    bool arrives =
        vg_has(d, "arrive") || vg_has(d, "arrive_drop"); // .expect_tx is a modifier of theirs
    int op =
        arrives ? (vg_take(d, "arrive") ? 2 : (vg_take(d, "arrive_drop"), 3)) : vg_take_one(d, ops);
    if (op < 0) return vg_bad(d, "expected an operation, as .init or .arrive");
    vg_take_one(d, scopes);
    vg_take(d, "b64");
    if (vg_cc(d) < 90 && (op == 4 || op == 5 || op == 7))
        return vg_bad(d, "needs sm_90, this is sm_%d", vg_cc(d));
    x->op = op <= 5 ? (Op)op : OP_WAIT;
    x->blocks = op == 7;
    if (op == 6 || op == 7) return decode_wait(d, p, x);
    if (op == 8) {
        uint32_t a, r;
        TRY(vg_count(d, 2, 2));
        TRY(vg_src(d, &p->operands[1], 64, &a));
        TRY(vg_dst(d, &p->operands[0], 32, false, &r));
        VgInstr *i = vg_emit(d, pending_count);
        i->d = r, i->a = a;
        return OK;
    }
    if (op >= 2) return decode_arrive(d, p, x);
    TRY(vg_count(d, op ? 1 : 2, op ? 1 : 2));
    TRY(take_address(d, &p->operands[0], x));
    if (!op) TRY(vg_src(d, &p->operands[1], 32, &x->count));
    emit(d, x, arrive, 0);
    return OK;
}

Status vg_decode_async_arrive(VgDecoder *d, const PtxInstr *p) {
    Mbar *x = ARENA_NEW(vg_arena(d), Mbar);
    vg_take(d, "arrive");
    x->expects = !vg_take(d, "noinc");
    vg_take(d, "b64");
    TRY(vg_count(d, 1, 1));
    TRY(take_address(d, &p->operands[0], x));
    emit(d, x, arrive_later, 0);
    return OK;
}
