// SPDX-License-Identifier: Apache-2.0
// Memory of a profile. In a part's kernels the live bytes, less what earlier parts save, are sums of what stays, what
// grows with tokens, with rows of experts and with experts; those that no other moment exceeds in all terms are kept,
// and the largest is taken for each choice.
#include <stdlib.h>

#include "compiler/search/profile_private.h"

/* Moments of a probe --------------------------------------------------------------------------- */

static void grow(Grows *to, const ProbeBuffer *b, double sign) {
    double bytes = sign * (double)b->bytes;
    if (b->rows == ROW_T || b->rows == ROW_S) to->tokens += bytes;
    else if (b->rows == ROW_R) to->rows += bytes;
    else if (b->rows == ROW_E) to->experts += bytes;
    else to->stays += bytes;
}

static void add_grows(Grows *to, const Grows *more, double sign) {
    to->stays += sign * more->stays;
    to->tokens += sign * more->tokens;
    to->rows += sign * more->rows;
    to->experts += sign * more->experts;
}

static void keep_moment(Arena *arena, Moments *m, Grows g) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        const Grows *o = &m->items[i];
        if (o->stays >= g.stays && o->tokens >= g.tokens && o->rows >= g.rows && o->experts >= g.experts) return;
    }
    for (uint32_t i = 0; i < m->n; i++) {
        Grows o = m->items[i];
        if (!(g.stays >= o.stays && g.tokens >= o.tokens && g.rows >= o.rows && g.experts >= o.experts))
            m->items[n++] = o;
    }
    m->n = n;
    *ARENA_PUSH(arena, m->items, m->n, m->cap) = g;
}

// The layer whose turn it is when a kernel runs: its own, but in backward some run ahead of layers that come
// first, while all that those save is there (updates of states; the table's gradient of further predictions).
// due: the layer that products of backward have yet to come to then, whatever else is left of those before.
typedef struct Turn { int32_t layer, due; } Turn;

static Turn *find_turns(const Seen *s) {
    Turn *turns = ARENA_ARRAY(s->scratch, Turn, s->n_kernels + 1);
    int32_t latest = -1;
    for (uint32_t i = s->n_kernels; i-- > 0;) {
        const CostKernel *k = &s->kernels[i].cost;
        bool backward = s->kernels[i].at.backward;
        int32_t layer = s->kernels[i].at.layer;
        bool product = k->class == COST_dense || k->class == COST_experts || k->class == COST_attention;
        if (!backward) latest = -1;
        else if (product && k->role != COST_WGRAD && layer > latest) latest = layer;
        turns[i].layer = layer > latest ? layer : latest;
        turns[i].due = backward ? latest : turns[i].layer;
    }
    return turns;
}

// Bytes of a region: by layer, and how they change at the time of a kernel.
typedef struct Lives {
    Grows *saved;     // [layer + 1]: of layers before it
    Grows *waits;     // [layer + 2]: of it and of those after it, what gradients of weights read
    Grows *live;      // [time]: all
    Grows *late;      // of these, what later gradients of weights have yet to read
    Grows *gradients; // of weights, there when nothing else is under way
} Lives;

static void fill_layers(const Seen *s, int region, Probe *probe, Lives *l) {
    int32_t n_layers = s->p->base.n_layers, wanted = region ? REGION_sym : REGION_act;
    l->saved = ARENA_ARRAY(s->scratch, Grows, n_layers + 3);
    l->waits = ARENA_ARRAY(s->scratch, Grows, n_layers + 4);
    Grows *both = ARENA_ARRAY(s->scratch, Grows, n_layers + 4);
    for (uint32_t i = 0; i < s->n_buffers; i++) {
        const ProbeBuffer *b = &s->buffers[i];
        if (b->region != wanted) continue;
        if (b->saved) grow(&l->saved[b->layer + 2], b, 1);
        if (b->waits) grow(&l->waits[b->layer + 2], b, 1);
        if (b->waits && b->saved) grow(&both[b->layer + 2], b, 1);
    }
    for (int32_t layer = -1; layer <= n_layers; layer++) {
        int32_t part = part_of(s->p, s->few->middle, layer);
        if (part < 0) continue;
        probe->parts[part].saved[region] = l->saved[layer + 2];
        probe->parts[part].waits[region] = l->waits[layer + 2];
        probe->parts[part].both[region] = both[layer + 2];
    }
    for (int32_t i = 1; i < n_layers + 3; i++) add_grows(&l->saved[i], &l->saved[i - 1], 1);
    for (int32_t i = n_layers + 1; i >= 0; i--) add_grows(&l->waits[i], &l->waits[i + 1], 1);
}

static void fill_changes(const Seen *s, int region, Lives *l) {
    int32_t wanted = region ? REGION_sym : REGION_act, end = 1;
    for (uint32_t i = 0; i < s->n_buffers; i++) end = s->buffers[i].last >= end ? s->buffers[i].last + 1 : end;
    for (uint32_t i = 0; i < s->n_kernels; i++) end = s->kernels[i].at.time >= end ? s->kernels[i].at.time + 1 : end;
    l->live = ARENA_ARRAY(s->scratch, Grows, end + 1);
    l->late = ARENA_ARRAY(s->scratch, Grows, end + 1);
    l->gradients = ARENA_ARRAY(s->scratch, Grows, end + 1);
    for (uint32_t i = 0; i < s->n_buffers; i++) {
        const ProbeBuffer *b = &s->buffers[i];
        if (b->region != wanted || b->first < 0) continue;
        grow(&l->live[b->first], b, 1);
        grow(&l->live[b->last + 1], b, -1);
        if (b->waits) grow(&l->late[b->last + 1], b, 1);
        if (b->gradient) grow(&l->gradients[b->first], b, 1), grow(&l->gradients[b->last + 1], b, -1);
    }
}

// A region from kernel to kernel.
typedef struct Sweep {
    const Seen *s;
    Arena *arena;
    Probe *probe;
    int region;
    Lives lives;
    Grows live, late, gradients; // sums of their changes so far
} Sweep;

static ProbePart *part_at(const Sweep *w, int32_t layer) {
    int32_t part = part_of(w->s->p, w->s->few->middle, layer);
    return part < 0 ? NULL : &w->probe->parts[part];
}

// Where gradients of weights are made at once: what lives, less what parts before the one whose turn it is save.
static void keep_plain(const Sweep *w, int32_t turn) {
    ProbePart *part = part_at(w, turn);
    if (!part) return;
    Grows here = w->live;
    add_grows(&here, &w->lives.saved[turn + 1], -1);
    keep_moment(w->arena, &part->moments[w->region], here);
}

// Where they are made later, of this layer alone: all of its own that waits for them, and they themselves.
static void keep_own(const Sweep *w, const ProbeKernel *kernel) {
    ProbePart *part = kernel->backward ? part_at(w, kernel->layer) : NULL;
    if (!part) return;
    Grows here = w->gradients;
    add_grows(&here, &w->lives.waits[kernel->layer + 2], 1);
    add_grows(&here, &w->lives.waits[kernel->layer + 3], -1);
    keep_moment(w->arena, &part->late[w->region], here);
}

// And of all else: without gradients of weights, with what waits for those of this layer.
static void keep_late(const Sweep *w, const ProbeKernel *kernel, int32_t due) {
    ProbePart *part = kernel->weights ? NULL : part_at(w, due);
    if (!part) return;
    Grows here = w->live;
    add_grows(&here, &w->gradients, -1);
    add_grows(&here, &w->lives.saved[due + 1], -1);
    if (kernel->backward) {
        add_grows(&here, &w->late, 1);
        add_grows(&here, &w->lives.waits[due + 3], -1);
    }
    keep_moment(w->arena, &part->late[w->region], here);
}

static void sweep(Sweep *w) {
    const Seen *s = w->s;
    const Turn *turns = find_turns(s);
    int32_t t = 0;
    for (uint32_t i = 0; i < s->n_kernels; i++) {
        const ProbeKernel *kernel = &s->kernels[i].at;
        for (; t <= kernel->time; t++) {
            add_grows(&w->live, &w->lives.live[t], 1);
            add_grows(&w->late, &w->lives.late[t], 1);
            add_grows(&w->gradients, &w->lives.gradients[t], 1);
        }
        keep_plain(w, turns[i].layer);
        keep_own(w, kernel);
        keep_late(w, kernel, turns[i].due);
    }
}

static int by_first(const void *a, const void *b) {
    const ProbeBuffer *x = a, *y = b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : 0;
}

void profile_see_memory(const Seen *s, Arena *arena, Probe *probe) {
    qsort(s->buffers, s->n_buffers, sizeof *s->buffers, by_first);
    for (int region = 0; region < 2; region++) {
        Sweep w = { .s = s, .arena = arena, .probe = probe, .region = region };
        fill_layers(s, region, probe, &w.lives);
        fill_changes(s, region, &w.lives);
        sweep(&w);
    }
}

/* Bytes of a choice ---------------------------------------------------------------------------- */

static int64_t bytes_at(const Grows *g, const Scale *s) {
    return (int64_t)ceil(g->stays + g->tokens * s->tokens + g->rows * s->room + g->experts * s->experts);
}

// What further rounds take that probes, which have none, do not know (docs/layouts.md, "Rows that do not fit"): what they
// have brought back of every choice, a round's rows beside the first's, and what backward starts from.
static void add_rounds(const Profile *p, int32_t part, const CostChoice *c, const Scale *s, CostPart *out) {
    double capacity = c->capacity > 0 ? c->capacity : p->base.capacity;
    if (!p->experts[part] || c->ep == 1 || isfinite(capacity) || !(c->round > 0 && c->round < c->ep)) return;
    double row = p->base.width * (c->precision == PRECISION_FP32 ? 4 : 2), chosen = s->n_tokens * p->base.top_k;
    int64_t kept = c->recompute == RECOMPUTE_CHEAP ? 0 : (int64_t)ceil(s->n_tokens * row);
    int64_t moving = (int64_t)ceil((1 + fmin(c->round, c->ep)) * chosen * row);
    out->saved_bytes[0] += kept;
    out->transient_bytes[0] += moving;
    out->late_bytes[0] += moving;
}

static int64_t largest(const Moments *m, const Scale *s, int64_t least) {
    for (uint32_t i = 0; i < m->n; i++) least = max_i64(least, bytes_at(&m->items[i], s));
    return least;
}

void profile_memory(const Profile *p, const ProbePart *from, int32_t part, const CostChoice *c, const Scale *s,
                    CostPart *out) {
    for (int region = 0; region < 2; region++) {
        Scale here = *s;
        if (region && c->precision == PRECISION_MXFP8) here.room *= (1 + 1.0 / 32) / 2;
        int64_t saved = bytes_at(&from->saved[region], &here), waits = bytes_at(&from->waits[region], &here);
        int64_t larger = max_i64(saved, waits);
        out->saved_bytes[region] = saved;
        out->wait_bytes[region] = waits;
        out->both_bytes[region] = bytes_at(&from->both[region], &here);
        out->transient_bytes[region] = largest(&from->moments[region], &here, saved) - saved;
        out->late_bytes[region] = largest(&from->late[region], &here, larger) - larger;
    }
    add_rounds(p, part, c, s, out);
}
