// SPDX-License-Identifier: Apache-2.0
// What a row program keeps in memory, and the order of its loops.
//
// A value is a root if it is stored, kept in memory, or can only be made by a loop of its own.
// Every root is a task of one loop; the other maps are computed, in registers, in each loop that
// needs them. A map is kept where somebody reads it in another order than its own, or where two
// loops need it (unless it is trivial, or so wide that reading its operands again is better than a
// scratch array that leaves the cache, or does not fit: row_keep_less). One-element values are always
// roots: they are variables.
#include "compiler/codegen/row.h"

static RowVal *at(const Row *row, uint32_t val) {
    return &row->vals[val];
}

static bool shape_equal(const RowShape *a, const RowShape *b) {
    return a->rank == b->rank && !memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->rank);
}

static RowUse use(const Row *row, uint32_t arg, const RowShape *space, bool address) {
    return (RowUse){
        .arg = arg, .space = *space, .map = row_onto(at(row, arg), space), .address = address
    };
}

// Reductions, scatters and copies read an operand in its own space, maps in the space of the result.
int row_uses(const Row *row, uint32_t val, RowUse uses[MAX_ARGS]) {
    const RowVal *v = at(row, val);
    for (int i = 0; i < v->n_args; i++) {
        const RowVal *arg = at(row, v->args[i]);
        switch (v->op) {
        case OP_SUM:
        case OP_AMAX:
        case ROW_COPY: uses[i] = use(row, v->args[i], &arg->shape, false); break;
        case ROW_PIECES: uses[i] = use(row, v->args[i], &v->pieces[i].shape, false); break;
        case OP_TOP_K:
        case OP_SCATTER: uses[i] = use(row, v->args[i], &arg->shape, true); break;
        case ROW_FAR:
            if (i == 0)
                uses[i] = use(row, v->args[i], &arg->shape, v->near);
            else
                uses[i] = use(row, v->args[i], &v->shape, false);
            break;
        default: uses[i] = use(row, v->args[i], &v->shape, false);
        }
    }
    return v->n_args;
}

bool row_identity(const Row *row, const RowMap *map, const RowShape *space) {
    RowShape a = row_strip(space), b = row_strip(&at(row, map->base)->shape);
    if (map->offset || !shape_equal(&a, &b)) return false;
    int64_t major[MAX_RANK];
    row_major(space, major);
    for (int i = 0; i < space->rank; i++) {
        if (space->dim[i] != 1 && map->stride[i] != major[i]) return false;
    }
    return true;
}

static bool is_root(const RowVal *v) {
    if (row_leaf(v) || v->op == ROW_VIEW) return false;
    return v->stored || v->memory || !row_inline(v) || row_features(&v->shape) == 1;
}

/* What is kept --------------------------------------------------------------------------------- */

static void mark_live(Row *row) {
    for (uint32_t i = 0; i < row->n_sinks; i++) {
        at(row, row->sinks[i].val)->live = true;
        at(row, row->sinks[i].val)->stored = true;
    }
    for (uint32_t val = row->n_vals; val-- > 1;) {
        if (!at(row, val)->live) continue;
        for (int i = 0; i < at(row, val)->n_args; i++) at(row, at(row, val)->args[i])->live = true;
        if (at(row, val)->op == ROW_VIEW) at(row, at(row, val)->map.base)->live = true;
    }
}

static void mark_memory(Row *row) {
    RowUse uses[MAX_ARGS];
    for (uint32_t val = 1; val < row->n_vals; val++) {
        const RowVal *v = at(row, val);
        if (!v->live || v->op == ROW_VIEW) continue;
        int n = row_uses(row, val, uses);
        for (int i = 0; i < n; i++) {
            RowVal *base = at(row, uses[i].map.base);
            if (row_leaf(base)) continue;
            base->array |= v->op == OP_TOP_K || (v->op == ROW_FAR && i == 0 && v->near);
            bool hoisted = base->rowless && !v->rowless;
            base->memory |= !row_inline(base) || uses[i].address || hoisted ||
                            !row_identity(row, &uses[i].map, &uses[i].space);
        }
    }
}

/* Loops ---------------------------------------------------------------------------------------- */

// The first loop in which all that `val` (or one piece of it) reads is there. Operands come before:
// their `loop` is known, where they are no roots it is their own first loop.
static int ready(const Row *row, uint32_t val, int piece) {
    RowUse uses[MAX_ARGS];
    int n = row_uses(row, val, uses), first = 0;
    for (int i = piece < 0 ? 0 : piece; i < (piece < 0 ? n : piece + 1); i++) {
        uint32_t base = uses[i].map.base;
        const RowVal *b = at(row, base);
        if (row_leaf(b)) continue;
        bool same = !is_root(b) || (row_inline(b) && !uses[i].address &&
                                    row_identity(row, &uses[i].map, &uses[i].space));
        int from = b->loop + !same;
        if (from > first) first = from;
    }
    return first;
}

static int place(Row *row, uint32_t val, int piece, const RowShape *space, bool alone) {
    RowShape shape = row_strip(space);
    int loop = ready(row, val, piece);
    for (; loop < (int)row->n_loops; loop++) {
        const RowLoop *l = &row->loops[loop];
        if (!alone && !l->alone && l->rowless == at(row, val)->rowless &&
            shape_equal(&l->space, &shape))
            break;
    }
    if (loop >= (int)row->n_loops) {
        loop = (int)row->n_loops;
        RowLoop *l = ARENA_PUSH(row->arena, row->loops, row->n_loops, row->cap_loops);
        l->space = shape;
        l->alone = alone;
        l->rowless = at(row, val)->rowless;
    }
    RowLoop *l = &row->loops[loop];
    *ARENA_PUSH(row->arena, l->tasks, l->n_tasks, l->cap_tasks) = (RowTask){ val, piece };
    return loop;
}

static void schedule(Row *row) {
    row->loops = NULL;
    row->n_loops = row->cap_loops = 0;
    for (uint32_t val = 1; val < row->n_vals; val++) {
        RowVal *v = at(row, val);
        if (!v->live || row_leaf(v) || v->op == ROW_VIEW) continue;
        if (!is_root(v)) {
            v->loop = ready(row, val, -1);
        } else if (v->op == ROW_PIECES) {
            v->loop = 0;
            for (int i = 0; i < v->n_pieces; i++) {
                v->pieces[i].loop = place(row, val, i, &v->pieces[i].shape, false);
                if (v->pieces[i].loop > v->loop) v->loop = v->pieces[i].loop;
            }
        } else if (v->op == ROW_COPY || ((v->op == OP_SUM || v->op == OP_AMAX) && !v->serial)) {
            v->loop = place(row, val, -1, &at(row, v->args[0])->shape, false);
        } else {
            v->loop = place(row, val, -1, &v->shape, v->op == OP_TOP_K);
        }
    }
}

// Cheaper to compute again than to store and load.
static bool trivial(const Row *row, uint32_t val) {
    const RowVal *v = at(row, val);
    bool light = v->op < N_OPS ? op_info[v->op].class == CLASS_MAP && op_info[v->op].flops <= 1
                               : v->op == ROW_FLOAT || v->op == ROW_COPY;
    if (!light) return false;
    RowUse uses[MAX_ARGS];
    for (int i = 0, n = row_uses(row, val, uses); i < n; i++) {
        const RowVal *base = at(row, uses[i].map.base);
        if (!row_leaf(base) && !is_root(base)) return false;
    }
    return true;
}

// Counts, for the maps that are computed in `loop` on the way to `val`, the loops that do so.
static bool count_loops(Row *row, uint32_t val, int piece, int loop) {
    RowUse uses[MAX_ARGS];
    bool changed = false;
    int n = row_uses(row, val, uses);
    for (int i = piece < 0 ? 0 : piece; i < (piece < 0 ? n : piece + 1); i++) {
        uint32_t base = uses[i].map.base;
        RowVal *b = at(row, base);
        if (row_leaf(b) || b->seen == loop + 1 || b->memory || !row_inline(b)) continue;
        if (is_root(b) && (b->loop == loop || row_features(&b->shape) == 1)) continue;
        bool again = b->seen != 0 || b->stored;
        b->seen = loop + 1;
        if (again && row_features(&b->shape) < row->wide && !trivial(row, base))
            b->memory = b->saved = changed = true;
        else
            changed |= count_loops(row, base, -1, loop);
    }
    return changed;
}

static bool keep_shared(Row *row) {
    bool changed = false;
    for (uint32_t val = 1; val < row->n_vals; val++) at(row, val)->seen = 0;
    for (uint32_t i = 0; i < row->n_loops; i++) {
        const RowLoop *l = &row->loops[i];
        for (uint32_t t = 0; t < l->n_tasks; t++)
            changed |= count_loops(row, l->tasks[t].val, l->tasks[t].piece, (int)i);
    }
    return changed;
}

static void plan(Row *row) {
    for (uint32_t val = 1; val < row->n_vals; val++) {
        RowVal *v = at(row, val);
        v->live = v->stored = v->memory = v->array = v->saved = false;
    }
    mark_live(row);
    mark_memory(row);
    do schedule(row);
    while (keep_shared(row));
}

void row_plan(Row *row) {
    row->wide = ROW_WIDE;
    plan(row);
}

bool row_keep_less(Row *row) {
    int64_t widest = 1; // variables take no room
    for (uint32_t val = 1; val < row->n_vals; val++)
        if (at(row, val)->saved) widest = max_i64(widest, row_features(&at(row, val)->shape));
    if (widest == 1) return false;
    row->wide = widest;
    plan(row);
    return true;
}
