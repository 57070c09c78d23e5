// SPDX-License-Identifier: Apache-2.0
// Splits and joins: how the lanes of a warp part and meet (warp.h has the idea).
//
// Invariants. Masks of splits and of lanes that have arrived at joins partition the lanes alive. A
// join's pending lanes are those whose chain of joins goes through it; arrived is a subset. A join
// whose pending lanes have all arrived does not exist: it became a split. Lanes may leave a join
// without arriving (exit, convergence at a `.sync`, a stall): pending shrinks, nothing else
// changes.
#include <stdlib.h>

#include "runtime/vgpu/control.h"

void vg_set_join(VgWarp *w, VgJoin *join) {
    w->join = join;
    w->meet = join && !join->call ? join->pc : NULL;
}

VgJoin *vg_join_new(VgWarp *w, const VgInstr *pc, uint32_t pending) {
    VgJoin *j = w->free_joins;
    if (j) {
        w->free_joins = j->next_free;
    } else {
        j = calloc(1, sizeof *j);
        if (!j) abort(); // a hundred bytes: nothing sensible is left to do
        j->next_all = w->all_joins;
        w->all_joins = j;
    }
    *j = (VgJoin){ .parent = w->join, .frame = w->frame, .pc = pc, .pending = pending,
                   .next_all = j->next_all };
    return j;
}

static void join_free(VgWarp *w, VgJoin *j) {
    if (j->callee) vg_frame_free(w, j->callee);
    j->next_free = w->free_joins;
    w->free_joins = j;
}

void vg_split_add(VgWarp *w, uint32_t mask, const VgInstr *pc, VgJoin *join, VgFrame *frame) {
    w->splits[w->n_splits++] = (VgSplit){ .pc = pc, .mask = mask, .join = join, .frame = frame };
}

void vg_split_save(VgWarp *w, const VgInstr *pc) {
    VgSplit *s = &w->splits[w->running];
    s->pc = pc;
    s->mask = w->mask;
    s->join = w->join;
    s->frame = w->frame;
}

const VgInstr *vg_split_resume(VgWarp *w, uint32_t n) {
    VgSplit *s = &w->splits[n];
    w->running = n;
    w->mask = s->mask;
    w->frame = s->frame;
    vg_set_join(w, s->join);
    return s->pc;
}

static void split_remove(VgWarp *w, uint32_t n) {
    w->splits[n] = w->splits[--w->n_splits];
    if (w->running == w->n_splits) w->running = n;
}

// All pending lanes have arrived: they go on as one split, which may be at the parent's place too.
// Adds the split, or arrives at the parent and looks there.
static void join_complete(VgWarp *w, VgJoin *j) {
    while (j && j->pending == j->arrived) {
        VgJoin *parent = j->parent;
        uint32_t lanes = j->arrived;
        const VgInstr *pc = j->pc;
        VgFrame *frame = j->frame;
        join_free(w, j);
        w->stall = 0;
        if (!lanes) {
            j = parent;
        } else if (parent && !parent->call && parent->pc == pc && parent->frame == frame) {
            parent->arrived |= lanes;
            j = parent;
        } else {
            vg_split_add(w, lanes, pc, parent, frame);
            return;
        }
    }
}

// `lanes` will not arrive at the joins from `from` up to, not including, `until`.
void vg_join_leave(VgWarp *w, uint32_t lanes, VgJoin *from, const VgJoin *until) {
    while (from != until) {
        VgJoin *parent = from->parent;
        from->pending &= ~lanes;
        if (!from->pending) join_free(w, from);
        else if (from->pending == from->arrived) {
            join_complete(w, from);
        }
        from = parent;
    }
}

static bool sync_ready(const VgWarp *w, const VgSplit *s, uint32_t *group) {
    uint32_t here = 0, need = s->sync_aligned ? w->alive : s->sync_mask & w->alive;
    *group = 0;
    for (uint32_t k = 0; k < w->n_splits; k++) {
        const VgSplit *o = &w->splits[k];
        if (!o->sync_mask || o->sync_mask != s->sync_mask || o->frame != s->frame) continue;
        if (o->pc != s->pc && !(s->sync_any && o->sync_any)) continue;
        here |= o->mask;
        *group |= 1u << k;
    }
    return (need & ~here) == 0;
}

// A split that waits and may go on, or -1. Splits that wait together at one place become one.
static int sync_wake(VgWarp *w) {
    for (uint32_t k = 0; k < w->n_splits; k++) {
        uint32_t group;
        if (!w->splits[k].sync_mask || !sync_ready(w, &w->splits[k], &group)) continue;
        for (uint32_t o = 0; o < w->n_splits; o++)
            if (group >> o & 1) w->splits[o].sync_mask = 0;
        return (int)k;
    }
    return -1;
}

static const VgInstr *stuck(VgWarp *w) {
    Text text = { 0 };
    for (uint32_t k = 0; k < w->n_splits; k++) {
        const VgSplit *s = &w->splits[k];
        const PtxInstr *p = vg_source_at(s->frame->func, s->pc);
        text_printf(&text, "%slanes %08x wait at PTX line %u (%s)", k ? "; " : "", s->mask,
                    p ? p->line : 0, p ? p->root : "?");
    }
    uint32_t here = 0;
    for (uint32_t k = 0; k < w->n_splits; k++) here |= w->splits[k].mask;
    if (w->alive & ~here) text_printf(&text, "; lanes %08x are elsewhere", w->alive & ~here);
    const VgInstr *pc = w->splits[0].pc;
    vg_split_resume(w, 0);
    vg_fault(w, pc, VG_DIVERGED, w->mask, "lanes that must execute it together have diverged: %s",
             text_cstr(&text));
    text_finish(&text);
    return NULL;
}

const VgInstr *vg_split_pick(VgWarp *w) {
    for (uint32_t k = w->n_splits; k-- > 0;)
        if (!w->splits[k].sync_mask) return vg_split_resume(w, k);
    if (!w->n_splits && !w->alive) {
        w->state = VG_DONE;
        w->mask = 0;
        return NULL;
    }
    int woken = sync_wake(w);
    if (woken >= 0) return vg_split_resume(w, (uint32_t)woken);
    return w->n_splits ? stuck(w) : NULL;
}

const VgInstr *vg_arrive(VgWarp *w) {
    VgJoin *j = w->join;
    j->arrived |= w->mask;
    split_remove(w, w->running);
    if (j->arrived == j->pending) join_complete(w, j);
    return vg_split_pick(w);
}

const VgInstr *vg_diverge(VgWarp *w, const VgBlock *b, const VgInstr *i, uint32_t taken) {
    (void)i;
    uint32_t rest = w->mask & ~taken;
    VgJoin *j = w->join;
    w->stall = 0;
    if (b->join && !(j && w->meet == b->join)) j = vg_join_new(w, b->join, w->mask);
    const VgInstr *meet = j && !j->call ? j->pc : NULL;
    split_remove(w, w->running);
    if (b->target == meet) j->arrived |= taken;
    else vg_split_add(w, taken, b->target, j, w->frame);
    if (b->next == meet) j->arrived |= rest;
    else vg_split_add(w, rest, b->next, j, w->frame);
    return vg_split_resume(w, w->n_splits - 1);
}

const VgInstr *vg_lanes_exit(VgWarp *w, const VgInstr *next, uint32_t lanes) {
    w->alive &= ~lanes;
    w->mask &= ~lanes;
    VgJoin *join = w->join;
    if (!w->mask) {
        split_remove(w, w->running);
        vg_join_leave(w, lanes, join, NULL);
        return vg_split_pick(w);
    }
    vg_join_leave(w, lanes, join, NULL);
    return next;
}

// Lanes that have waited long at joins of the running split while it keeps running may be what it
// waits for: they go on alone.
bool vg_split_release(VgWarp *w) {
    for (VgJoin *j = w->join; j; j = j->parent) {
        if (!j->arrived) continue;
        uint32_t lanes = j->arrived;
        j->pending &= ~lanes;
        j->arrived = 0;
        vg_split_add(w, lanes, j->pc, j->parent, j->frame);
        return true;
    }
    return false;
}

// At the end of a quantum. False: nothing else to run.
bool vg_split_rotate(VgWarp *w) {
    vg_split_save(w, w->pc);
    if (w->stall > VG_STALL) {
        w->stall = 0;
        vg_split_release(w);
    }
    for (uint32_t k = 1; k < w->n_splits; k++) {
        uint32_t n = (w->running + k) % w->n_splits;
        if (w->splits[n].sync_mask) continue;
        w->pc = vg_split_resume(w, n);
        return true;
    }
    return false;
}

/* convergence at .sync and .aligned ------------------------------------------------------------ */

static bool is_ancestor(const VgJoin *a, const VgJoin *of) {
    for (;; of = of->parent) {
        if (a == of) return true;
        if (!of) return false;
    }
}

// The running split takes in the splits `group` that wait at the same place.
static void absorb(VgWarp *w, uint32_t group) {
    for (uint32_t k = w->n_splits; k-- > 0;) {
        if (!(group >> k & 1) || k == w->running) continue;
        VgSplit o = w->splits[k];
        VgJoin *common = w->join;
        while (!is_ancestor(common, o.join)) common = common->parent;
        split_remove(w, k);
        vg_join_leave(w, w->mask, w->join, common);
        vg_join_leave(w, o.mask, o.join, common);
        w->mask |= o.mask;
        vg_set_join(w, common);
        group &= (1u << k) - 1;
    }
    vg_split_save(w, NULL);
}

static bool meet_lanes(const VgInstr *i, VgWarp *w, uint32_t members, bool any, bool aligned,
                       const VgInstr **next) {
    VgSplit *s = &w->splits[w->running];
    vg_split_save(w, i);
    s->sync_mask = members;
    s->sync_any = any;
    s->sync_aligned = aligned;
    uint32_t group;
    if (!sync_ready(w, s, &group)) {
        *next = vg_split_pick(w);
        return false;
    }
    uint32_t same = 0;
    for (uint32_t k = 0; k < w->n_splits; k++) {
        if (!(group >> k & 1)) continue;
        w->splits[k].sync_mask = 0;
        if (w->splits[k].pc == i) same |= 1u << k;
        else w->splits[k].pc++; // at another bar.warp.sync: past it
    }
    absorb(w, same);
    return true;
}

bool vg_converge(const VgInstr *i, VgWarp *w, uint32_t mask, uint32_t members, bool any,
                 const VgInstr **next) {
    if (mask & ~members) {
        *next = vg_fault(w, i, VG_DIVERGED, mask & ~members,
                         "the executing lanes are not in the membermask %08x", members);
        return false;
    }
    if (!(members & w->alive & ~mask)) return true;
    return meet_lanes(i, w, members, any, false, next);
}

bool vg_aligned(const VgInstr *i, VgWarp *w, const VgInstr **next) {
    if (w->mask == w->alive) return true;
    return meet_lanes(i, w, ~0u, false, true, next);
}
