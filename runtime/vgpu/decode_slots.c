// SPDX-License-Identifier: Apache-2.0
// Slots of a frame: liveness of the virtual registers, linear scan, and the final renumbering.
//
// Liveness is that of one thread. It holds for a warp because handlers write only lanes of their
// mask and a lane's part of a slot is the same whatever lives there; hence values of 32 and of 64
// bits, whose lanes lie differently, never share slots. A guarded definition keeps the old value of
// the other lanes' threads, so it counts as a use. A value's interval is the hull of where it is
// live.
#include <stdlib.h>

#include "runtime/vgpu/decode.h"

#define POS_USE(k) (2 * (k))
#define POS_DEF(k) (2 * (k) + 1)

typedef void VisitFn(VgDecoder *d, uint32_t k, uint32_t value, bool def, void *data);

static void visit_ref(VgDecoder *d, uint32_t k, uint32_t ref, bool def, VisitFn *fn, void *data) {
    if ((ref & REF_KIND) == REF_VALUE) fn(d, k, ref & ~REF_KIND, def, data);
}

// Uses first, then definitions; a guarded definition is both.
static void visit(VgDecoder *d, uint32_t k, VisitFn *fn, void *data) {
    VgEmit *e = &d->emits[k];
    VgInstr *i = &e->i;
    visit_ref(d, k, i->a, false, fn, data);
    visit_ref(d, k, i->b, false, fn, data);
    visit_ref(d, k, i->c, false, fn, data);
    bool keeps = i->guard;
    if (keeps) visit_ref(d, k, i->d, false, fn, data);
    for (uint32_t r = 0; r < e->list.n_dst + e->list.n_src; r++)
        if (keeps || r >= e->list.n_dst) visit_ref(d, k, e->list.refs[r], false, fn, data);
    for (uint32_t r = 0; r < e->reads.n_src; r++)
        visit_ref(d, k, e->reads.refs[r], false, fn, data);
    visit_ref(d, k, i->d, true, fn, data);
    for (uint32_t r = 0; r < e->list.n_dst; r++) visit_ref(d, k, e->list.refs[r], true, fn, data);
}

static void local_sets(VgDecoder *d, uint32_t k, uint32_t v, bool def, void *data) {
    VgFlow *b = data;
    (void)d, (void)k;
    uint64_t bit = 1ull << (v & 63);
    if (def) b->defs[v / 64] |= bit;
    else if (!(b->defs[v / 64] & bit)) b->uses[v / 64] |= bit;
}

static void liveness(VgDecoder *d) {
    uint32_t words = (d->n_values + 63) / 64;
    for (uint32_t n = 0; n < d->n_blocks; n++) {
        VgFlow *b = &d->blocks[n];
        uint64_t *sets = ARENA_ARRAY(d->scratch, uint64_t, 4 * words + 1);
        b->live_in = sets;
        b->live_out = sets + words;
        b->uses = sets + 2 * words;
        b->defs = sets + 3 * words;
        for (uint32_t k = 0; k < b->n; k++) visit(d, b->first + k, local_sets, b);
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t n = d->n_blocks; n-- > 0;) {
            VgFlow *b = &d->blocks[n];
            for (uint32_t x = 0; x < words; x++) {
                uint64_t out = 0;
                for (uint32_t s = 0; s < b->n_to; s++) out |= d->blocks[b->to[s]].live_in[x];
                uint64_t in = b->uses[x] | (out & ~b->defs[x]);
                if (in != b->live_in[x]) changed = true;
                b->live_out[x] = out;
                b->live_in[x] = in;
            }
        }
    }
}

static void touch(VgValue *v, uint32_t position) {
    if (position < v->first) v->first = position;
    if (position > v->last) v->last = position;
}

static void touch_at(VgDecoder *d, uint32_t k, uint32_t v, bool def, void *data) {
    (void)data;
    // Instructions with lists write some operands before they have read others: nothing is reused.
    const VgEmit *e = &d->emits[k];
    bool late = def || e->list.n_dst + e->list.n_src + e->reads.n_src;
    touch(&d->values[v], late ? POS_DEF(k) : POS_USE(k));
    if (late && !def) touch(&d->values[v], POS_USE(k));
}

static void intervals(VgDecoder *d) {
    for (uint32_t v = 0; v < d->n_values; v++) {
        d->values[v].first = UINT32_MAX;
        d->values[v].last = 0;
    }
    for (uint32_t k = 0; k < d->n_emits; k++) visit(d, k, touch_at, NULL);
    for (uint32_t n = 0; n < d->n_blocks; n++) {
        VgFlow *b = &d->blocks[n];
        for (uint32_t v = 0; v < d->n_values; v++) {
            if (b->live_in[v / 64] >> (v & 63) & 1) touch(&d->values[v], POS_USE(b->first));
            if (b->live_out[v / 64] >> (v & 63) & 1)
                touch(&d->values[v], POS_DEF(b->first + b->n - 1));
        }
    }
}

/* linear scan ------------------------------------------------------------------------------------
 */

// Pools by width; 128 bits take two neighbours of the 64-bit pool. `until` is the end of the
// interval that holds the slot.
typedef struct Pool { uint32_t *until; uint32_t n, cap; } Pool;

static uint32_t take_slots(Pool *pool, Arena *arena, uint32_t count, uint32_t first,
                           uint32_t last) {
    for (uint32_t s = 0;; s++) {
        while (s + count > pool->n) *ARENA_PUSH(arena, pool->until, pool->n, pool->cap) = 0;
        bool fits = true;
        for (uint32_t k = 0; k < count; k++) fits = fits && pool->until[s + k] <= first;
        if (!fits) continue;
        for (uint32_t k = 0; k < count; k++) pool->until[s + k] = last + 1;
        return s;
    }
}

static _Thread_local const VgValue *sorting_values; // qsort has no context

static int by_first(const void *a, const void *b) {
    const VgValue *x = &sorting_values[*(const uint32_t *)a],
                  *y = &sorting_values[*(const uint32_t *)b];
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1;
}

static void scan(VgDecoder *d, Pool pools[2]) {
    uint32_t *order = ARENA_ARRAY(d->scratch, uint32_t, d->n_values + 1), n = 0;
    for (uint32_t v = 0; v < d->n_values; v++)
        if (d->values[v].first != UINT32_MAX) order[n++] = v;
    sorting_values = d->values;
    qsort(order, n, sizeof *order, by_first);
    for (uint32_t k = 0; k < n; k++) {
        VgValue *v = &d->values[order[k]];
        Pool *pool = &pools[v->bits > 32];
        v->slot = take_slots(pool, d->scratch, v->bits == 128 ? 2 : 1, v->first, v->last);
    }
}

/* final form -------------------------------------------------------------------------------------
 */

typedef struct Layout { uint32_t area, small, large, consts, end; } Layout;

static uint32_t fixed(const VgDecoder *d, const Layout *at, uint32_t ref) {
    uint32_t n = ref & ~REF_KIND;
    if (ref == VG_SINK) return ref;
    switch (ref & REF_KIND) {
    case REF_VALUE:
        return d->values[n].bits > 32 ? at->large + d->values[n].slot * 256
                                      : at->small + d->values[n].slot * 128;
    case REF_CONST: return d->consts[n].at + at->consts;
    case REF_AREA: return at->area + n;
    default: return ref;
    }
}

static void lay_out_frame(VgDecoder *d, const Pool pools[2], Layout *at) {
    VgFunc *f = d->func;
    at->area = (uint32_t)round_up(4 * d->n_preds, 128);
    at->small = at->area + d->area_bytes * 32;
    at->large = at->small + pools[0].n * 128;
    at->consts = at->large + pools[1].n * 256;
    uint32_t end = 0;
    for (uint32_t k = 0; k < d->n_consts; k++) {
        d->consts[k].at = end;
        end += d->consts[k].bytes * 32;
    }
    at->end = at->consts + end;
    f->area_at = at->area;
    f->area_bytes = d->area_bytes;
    f->frame_bytes = (uint32_t)round_up(at->end, 128);
    f->pred_bytes = at->area;
    f->slots = pools[0].n + 2 * pools[1].n;
    f->n_consts = d->n_consts;
    f->consts = ARENA_ARRAY(d->arena, VgConst, d->n_consts);
    for (uint32_t k = 0; k < d->n_consts; k++) {
        f->consts[k] = d->consts[k];
        f->consts[k].at += at->consts;
    }
}

static const VgInstr *block_first(const VgDecoder *d, uint32_t block) {
    return &d->func->code[d->blocks[block].first];
}

static void terminator(VgDecoder *d, VgEmit *e, VgInstr *i, VgBlock *b) {
    const VgFlow *flow = &d->blocks[e->block];
    b->first = block_first(d, e->block);
    b->n = flow->n;
    b->next = e->block + 1 < d->n_blocks ? block_first(d, e->block + 1) : NULL;
    if (e->label >= 0) b->target = &d->func->code[d->at_label[e->label]];
    if (flow->join >= 0 && flow->join < (int32_t)d->n_blocks)
        b->join = block_first(d, (uint32_t)flow->join);
    if (e->table) {
        b->targets = ARENA_ARRAY(d->arena, const VgInstr *, e->table->n);
        b->n_targets = e->table->n;
        for (uint32_t k = 0; k < e->table->n; k++)
            b->targets[k] = &d->func->code[d->at_label[e->table->labels[k]]];
    }
    i->extra = b;
}

static void finish_code(VgDecoder *d, const Layout *at) {
    VgFunc *f = d->func;
    f->code = ARENA_ARRAY(d->arena, VgInstr, d->n_emits + 1); // one more, to align
    f->code = (VgInstr *)(((uintptr_t)f->code + 63) & ~(uintptr_t)63);
    f->source = ARENA_ARRAY(d->arena, const PtxInstr *, d->n_emits);
    f->blocks = ARENA_ARRAY(d->arena, VgBlock, d->n_blocks);
    f->n_code = d->n_emits;
    f->n_blocks = d->n_blocks;
    for (uint32_t k = 0; k < d->n_emits; k++) {
        VgEmit *e = &d->emits[k];
        VgInstr *i = &f->code[k];
        *i = e->i;
        f->source[k] = e->from;
        i->d = fixed(d, at, i->d);
        i->a = fixed(d, at, i->a);
        i->b = fixed(d, at, i->b);
        i->c = fixed(d, at, i->c);
        for (uint32_t r = 0; r < e->list.n_dst + e->list.n_src; r++)
            e->list.refs[r] = fixed(d, at, e->list.refs[r]);
        for (uint32_t r = 0; r < e->reads.n_src; r++)
            e->reads.refs[r] = fixed(d, at, e->reads.refs[r]);
        if (e->terminator) terminator(d, e, i, &f->blocks[e->block]);
    }
}

Status vg_decode_slots(VgDecoder *d) {
    liveness(d);
    vg_decode_defined(d, d->blocks[0].live_in);
    intervals(d);
    Pool pools[2] = { { 0 }, { 0 } };
    scan(d, pools);
    Layout at;
    lay_out_frame(d, pools, &at);
    finish_code(d, &at);
    return OK;
}
