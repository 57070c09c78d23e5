// SPDX-License-Identifier: Apache-2.0
// Segments and depths of units (pass.h), and where what may wait is put.
#include "compiler/lower/pass.h"

enum { NARROW = 8 /* features */ };

static int segment_of(const Lower *l, uint32_t u) {
    const Unit *unit = &l->units[u];
    const Node *node = model_at(l->m, unit->node);
    int newest = SEGMENT_FORWARD;
    bool reads = false;
    for (uint32_t i = 0; i < unit->n_reads; i++) {
        uint32_t from = fuse_dependency(l, u, i);
        if (!from) continue;
        reads = true;
        if (l->units[from].segment > newest) newest = l->units[from].segment;
    }
    if (node->op == OP_TOTAL || node->op == OP_ATTEND_LSE || unit->kind == UNIT_FINISH)
        return newest;
    if (unit->kind == UNIT_EFFECT && node->op != OP_UPDATE && reads) return newest;
    int own = unit->kind == UNIT_STORE ? l->info[unit->node].forced_segment
                                       : lower_segment(l, unit->node);
    return own > newest ? own : newest;
}

// How much deeper than what it reads a unit lies.
static int32_t gap_of(const Lower *l, const Unit *unit) {
    return unit->kind == UNIT_KERNEL || unit->kind == UNIT_FINISH || fuse_is_indexed(l, unit);
}

// What is put is there in a later kernel.
static int32_t gap_after(const Lower *l, uint32_t from) {
    return l->units[from].kind == UNIT_ROW && l->info[l->units[from].node].put;
}

// `least`: by unit, before what it reads counts.
static void fill_depths(Lower *l, const int32_t *least) {
    for (uint32_t at = 2; at < l->n_units; at++) {
        uint32_t u = fuse_unit_at(l, at);
        Unit *unit = &l->units[u];
        if (unit->kind == UNIT_NONE) continue;
        unit->segment = (uint8_t)segment_of(l, u);
        unit->depth = least[u];
        for (uint32_t i = 0; i < unit->n_reads; i++) {
            uint32_t from = fuse_dependency(l, u, i);
            if (!from || l->units[from].segment != unit->segment) continue;
            int32_t depth = l->units[from].depth + gap_after(l, from);
            if (depth > unit->depth) unit->depth = depth;
        }
        unit->depth += gap_of(l, unit);
    }
}

// The least depth of a reader in the same segment, by unit; `weights`: all its readers are products of
// rows, which nothing waits for.
static void find_readers(const Lower *l, int32_t *first, bool *weights) {
    for (uint32_t u = 0; u < l->n_units; u++) {
        first[u] = INT32_MAX;
        weights[u] = true;
    }
    for (uint32_t u = 1; u < l->n_units; u++) {
        const Unit *unit = &l->units[u];
        for (uint32_t i = 0; unit->kind != UNIT_NONE && i < unit->n_reads; i++) {
            uint32_t from = fuse_dependency(l, u, i);
            if (!from || l->units[from].segment != unit->segment) continue;
            if (unit->depth < first[from]) first[from] = unit->depth;
            weights[from] &= unit->kind == UNIT_KERNEL && l->m->nodes[unit->node].op == OP_MATMUL_W;
        }
    }
}

// What backward computes again for gradients of weights alone is made beside other row programs on
// the same values, at the depth these gradients have; they follow.
static void push_weights(Lower *l, int32_t *least) {
    int32_t *first = ARENA_ARRAY(l->arena, int32_t, l->n_units);
    bool *weights = ARENA_ARRAY(l->arena, bool, l->n_units);
    find_readers(l, first, weights);
    for (uint32_t u = 1; u < l->n_units; u++) {
        const Unit *unit = &l->units[u];
        if (unit->kind == UNIT_STORE && unit->depth == 0 && is_backward(unit->segment) &&
            first[u] != INT32_MAX && weights[u])
            least[u] = first[u];
    }
    fill_depths(l, least);
}

// Sums over rows that only add to gradients end together, once per layer.
static void gather_finishes(Lower *l) {
    const Model *m = l->m;
    int32_t *most = ARENA_ARRAY(l->arena, int32_t, (uint32_t)m->n_layers + 2);
    bool *only = ARENA_ARRAY(l->arena, bool, l->n_units);
    memset(only, true, sizeof *only * l->n_units);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t u = 1; u < l->n_units; u++) {
            Unit *unit = &l->units[u];
            uint32_t from = unit->kind == UNIT_EFFECT && unit->n_reads == 1 &&
                                    m->nodes[unit->node].op == OP_ACCUMULATE
                                ? fuse_dependency(l, u, 0)
                                : 0;
            bool sum = from && l->units[from].kind == UNIT_FINISH && only[from] &&
                       is_backward(l->units[from].segment);
            int layer = lower_layer(l, unit->node) + 1;
            if (layer < 0 || layer > m->n_layers + 1 || !sum) continue;
            if (pass)
                unit->depth = l->units[from].depth = most[layer];
            else if (l->units[from].depth > most[layer])
                most[layer] = l->units[from].depth;
        }
    }
}

// Of what backward computes again.
static bool is_again(const Lower *l, const Unit *unit) {
    return unit->kind == UNIT_KERNEL && unit->node >= l->first_again && unit->node < l->end_again;
}

// Row units, and kernels of what is computed again, that hang on values of earlier segments only, through
// others like them.
static void find_hanging(const Lower *l, bool *hanging) {
    for (uint32_t at = 2; at < l->n_units; at++) {
        uint32_t u = fuse_unit_at(l, at);
        const Unit *unit = &l->units[u];
        hanging[u] = unit->kind == UNIT_ROW || unit->kind == UNIT_STORE || is_again(l, unit);
        for (uint32_t i = 0; unit->kind != UNIT_NONE && i < unit->n_reads; i++) {
            uint32_t from = fuse_dependency(l, u, i);
            if (from && l->units[from].segment == unit->segment) hanging[u] &= hanging[from];
        }
    }
}

// What hangs is computed with its first reader, not at the start of the segment, where its result
// would wait in memory. So are moves of a few numbers per row, which then need no kernel of their
// own.
static void delay(Lower *l) {
    int32_t *need = ARENA_ARRAY(l->arena, int32_t, l->n_units);
    bool *hanging = ARENA_ARRAY(l->arena, bool, l->n_units);
    find_hanging(l, hanging);
    for (uint32_t u = 0; u < l->n_units; u++) need[u] = INT32_MAX;
    for (uint32_t at = l->n_units - 1; at >= 2; at--) {
        uint32_t u = fuse_unit_at(l, at);
        Unit *unit = &l->units[u];
        if (unit->kind == UNIT_NONE) continue;
        bool narrow = !l->options->no_fusion && fuse_is_indexed(l, unit) &&
                      type_features(&l->m->nodes[unit->node].type) <= NARROW;
        if ((hanging[u] || narrow) && need[u] != INT32_MAX && need[u] > unit->depth)
            unit->depth = need[u];
        for (uint32_t i = 0; i < unit->n_reads; i++) {
            uint32_t from = fuse_dependency(l, u, i);
            if (!from || l->units[from].segment != unit->segment) continue;
            int32_t at_most = unit->depth - gap_of(l, unit) - gap_after(l, from);
            if (at_most < need[from]) need[from] = at_most;
        }
    }
}

// attend_lse comes out of the kernel of its attend: at one depth they are siblings (fuse.c).
static void join_statistics(Lower *l) {
    const Model *m = l->m;
    for (uint32_t n = l->first_again; n < l->end_again; n++) {
        if (m->nodes[n].op != OP_ATTEND_LSE || l->units[n].kind != UNIT_KERNEL) continue;
        for (uint32_t k = l->first_again; k < l->end_again; k++) {
            const Node *a = model_at(m, n), *b = model_at(m, k);
            if (b->op == OP_ATTEND && l->units[k].kind == UNIT_KERNEL && a->n_args == b->n_args &&
                !memcmp(m->args + a->args, m->args + b->args, sizeof *m->args * a->n_args))
                l->units[n].depth = l->units[k].depth;
        }
    }
}

void fuse_depths(Lower *l) {
    int32_t *least = ARENA_ARRAY(l->arena, int32_t, l->n_units);
    fill_depths(l, least);
    if (!l->options->no_fusion) push_weights(l, least);
    delay(l);
    join_statistics(l);
    if (!l->options->no_fusion) gather_finishes(l);
}
