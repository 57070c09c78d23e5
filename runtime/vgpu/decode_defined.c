// SPDX-License-Identifier: Apache-2.0
// Registers that are read where nothing can have written them.
//
// Forward data flow over what some path from the function's start has written. A read of a register
// outside of that set finds nothing, on whatever path one comes: the instruction is replaced by one
// that faults when a lane executes it, so correct code pays nothing. What only some paths have
// written is not looked at. Copies pass on: compilers move undefined values about where nobody
// looks at them (a half of a pair, the padding of an argument). A copy's result counts as written
// when one of its sources does.
#include "runtime/vgpu/decode.h"

struct VgUndefined {
    const char *name;
    bool guard;             // it is the guard itself
};

static const VgInstr *undefined(const VgInstr *i, VgWarp *w, char *f) {
    const VgFunc *func = w->frame->func;
    const VgUndefined *it = func->undefined[i - func->code];
    uint32_t lanes = it->guard ? w->mask : VG_MASK(i, w, f);
    if (!lanes) VG_NEXT(i, w, f);
    return vg_fault(w, i, VG_UNINITIALISED, lanes, "register %s, which nothing has written",
                    it->name ? it->name : "?");
}

static bool is_copy(const VgDecoder *d, const VgEmit *e) {
    static const char *const roots[] = { "mov", "selp", "prmt", "bfi" };
    const VgIsa *isa = d->isa;
    VgHandler run = e->i.run;
    if (run == isa->move32 || run == isa->move64 || run == isa->narrow || run == isa->widen ||
        run == isa->widen_signed)
        return true;
    if (!e->from) return false;
    if (!strcmp(e->from->root, "st"))
        return e->from->n_mods && !strncmp(e->from->mods[0], "param", 5);
    for (int k = 0; k < COUNT_OF(roots); k++)
        if (!strcmp(e->from->root, roots[k])) return true;
    return false;
}

static bool written(const uint64_t *set, uint32_t ref) {
    uint32_t v = ref & ~REF_KIND;
    return (ref & REF_KIND) != REF_VALUE || (set[v / 64] >> (v & 63) & 1);
}

static void add(uint64_t *set, uint32_t ref) {
    uint32_t v = ref & ~REF_KIND;
    if ((ref & REF_KIND) == REF_VALUE) set[v / 64] |= 1ull << (v & 63);
}

typedef struct Reads { uint32_t n, n_empty, first_empty; } Reads;

static void count(Reads *r, const uint64_t *set, uint32_t ref) {
    if ((ref & REF_KIND) == 0 || ref == VG_SINK) return;
    r->n++;
    if (written(set, ref)) return;
    if (!r->n_empty++) r->first_empty = ref;
}

static Reads reads_of(const VgEmit *e, const uint64_t *set) {
    Reads r = { 0 };
    count(&r, set, e->i.a);
    count(&r, set, e->i.b);
    count(&r, set, e->i.c);
    for (uint32_t k = 0; k < e->list.n_src; k++) count(&r, set, e->list.refs[e->list.n_dst + k]);
    for (uint32_t k = 0; k < e->reads.n_src; k++) count(&r, set, e->reads.refs[k]);
    return r;
}

static const char *origin(const VgDecoder *d, uint32_t ref) {
    const VgValue *v = &d->values[ref & ~REF_KIND];
    return v->origin ? v->origin : v->name;
}

// The set after instruction k.
static void pass(VgDecoder *d, uint32_t k, uint64_t *set) {
    const VgEmit *e = &d->emits[k];
    if (is_copy(d, e)) {
        Reads r = reads_of(e, set);
        if (r.n && r.n == r.n_empty) {
            if ((e->i.d & REF_KIND) == REF_VALUE)
                d->values[e->i.d & ~REF_KIND].origin = origin(d, r.first_empty);
            return;
        }
    }
    add(set, e->i.d);
    for (uint32_t r = 0; r < e->list.n_dst; r++) add(set, e->list.refs[r]);
}

// What a path writes before each block: in[block * words...].
static uint64_t *flow(VgDecoder *d, uint32_t words) {
    uint64_t *in = ARENA_ARRAY(d->scratch, uint64_t, (size_t)d->n_blocks * words + 1);
    uint64_t *set = ARENA_ARRAY(d->scratch, uint64_t, words);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t b = 0; b < d->n_blocks; b++) {
            const VgFlow *block = &d->blocks[b];
            memcpy(set, in + b * words, words * 8);
            for (uint32_t k = 0; k < block->n; k++) pass(d, block->first + k, set);
            for (uint32_t s = 0; s < block->n_to; s++)
                for (uint32_t x = 0; x < words; x++) {
                    uint64_t *to = &in[block->to[s] * words + x], more = *to | set[x];
                    changed |= more != *to;
                    *to = more;
                }
        }
    }
    return in;
}

static void replace(VgDecoder *d, uint32_t k, const char *name, bool guard) {
    VgFunc *f = d->func;
    if (!f->undefined) f->undefined = ARENA_ARRAY(d->arena, VgUndefined *, d->n_emits);
    f->undefined[k] = ARENA_NEW(d->arena, VgUndefined);
    *f->undefined[k] = (VgUndefined){ name, guard };
    d->emits[k].i.run = undefined;
}

static void check(VgDecoder *d, uint32_t k, const uint64_t *set) {
    const VgEmit *e = &d->emits[k];
    Reads r = reads_of(e, set);
    if (!r.n_empty || is_copy(d, e) || (e->terminator && e->i.guard)) return;
    // Of a vector that is stored some parts may be padding.
    if (e->from && !strcmp(e->from->root, "st") && e->list.n_src > 1 &&
        r.first_empty != e->i.a && r.n_empty < e->list.n_src)
        return;
    replace(d, k, origin(d, r.first_empty), false);
}

// Predicates are words of the frame, not values: of those only guards that nothing ever writes.
static void mark(const PtxOperand *op, bool *written_to) {
    if (op->kind == PTX_OP_REG) written_to[op->var->index] = true;
    for (uint32_t k = 0; op->kind != PTX_OP_ADDRESS && k < op->n_items; k++)
        mark(&op->items[k], written_to);
}

static void check_guards(VgDecoder *d) {
    bool *written_to = ARENA_ARRAY(d->scratch, bool, d->ptx->n_regs + 1);
    for (uint32_t k = 0; k < d->ptx->n_instrs; k++)
        if (d->ptx->instrs[k].n_operands) mark(&d->ptx->instrs[k].operands[0], written_to);
    for (uint32_t k = 0; k < d->n_emits; k++) {
        const PtxInstr *p = d->emits[k].from;
        if (p && p->guard && d->emits[k].i.guard && !written_to[p->guard->index])
            replace(d, k, p->guard->name, true);
    }
}

void vg_decode_defined(VgDecoder *d, const uint64_t *live_in) {
    uint32_t words = (d->n_values + 63) / 64;
    uint64_t any = 0;
    for (uint32_t x = 0; x < words; x++) any |= live_in[x];
    if (any) { // read before they are written, on some path at least
        uint64_t *in = flow(d, words);
        for (uint32_t b = 0; b < d->n_blocks; b++) {
            const VgFlow *block = &d->blocks[b];
            for (uint32_t k = block->first; k < block->first + block->n; k++) {
                check(d, k, in + b * words);
                pass(d, k, in + b * words);
            }
        }
    }
    check_guards(d);
}
