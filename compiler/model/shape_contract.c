// SPDX-License-Identifier: Apache-2.0
// Shape rules of contractions, attention, moves, sums over rows and effects.
#include "compiler/model/private.h"

/* Contractions --------------------------------------------------------------------------------- */

// matmul x [e.., a.., k..] x w [e.., k.., n..], counts of axes; matmul_t and matmul_w permute
// the three.
typedef struct Axes {
    int each, over, mid, n;
} Axes;

static bool axes_positive(Shape *s) {
    const Attr *a = s->attr;
    if (a->mm.over >= 1 && a->mm.each >= 0 && a->mm.precision <= PRECISION_MXFP8) return true;
    return shape_fail(s, -1, -1, "expected over >= 1 and each >= 0, got over = %d, each = %d",
                      a->mm.over, a->mm.each);
}

// The axes `count` from `i` of a equal those from `j` of b.
static bool axes_equal(const Type *a, int i, const Type *b, int j, int count) {
    return !memcmp(a->dim + i, b->dim + j, sizeof *a->dim * (size_t)count);
}

static bool weight_rows(Shape *s, int x, int w) {
    const Type *tx = shape_arg(s, x), *tw = shape_arg(s, w);
    if (tw->row == ROW_NONE) {
        s->out.row = tx->row;
        s->out.route = tx->route;
        return true;
    }
    if (tw->row != ROW_E) {
        shape_fail(s, w, -1,
                   "expected the second operand to be a weight without row axis or per expert, got "
                   "%s along %s",
                   shape_text(s, tw), row_name[tw->row]);
        diag_hint(s->m, "m.sum(a * b) multiplies two per-token tensors");
        return false;
    }
    if (tx->row != ROW_R || tx->route != tw->route) {
        shape_fail(s, x, w,
                   "weight %s is per expert: expected x to be expert rows of that route, got %s",
                   shape_text(s, tw), shape_text(s, tx));
        diag_hint(s->m, "m.dispatch(x, route) takes tokens to expert rows");
        return false;
    }
    s->out.row = ROW_R;
    s->out.route = tx->route;
    return true;
}

static void append_axes(Type *out, const Type *from, int first, int count) {
    for (int i = 0; i < count; i++) out->dim[out->rank++] = from->dim[first + i];
}

static bool rank_fits(Shape *s, int rank) {
    if (rank <= MAX_RANK) return true;
    return shape_fail(s, 0, 1, "expected a result of at most %d feature axes, got %d", MAX_RANK,
                      rank);
}

static bool ranks_reach(Shape *s, const Type *x, int need_x, const Type *w, int need_w) {
    if (x->rank >= need_x && w->rank >= need_w) return true;
    return shape_fail(
        s, 0, 1, "over = %d, each = %d: expected at least %d and %d feature axes, got %s and %s",
        s->attr->mm.over, s->attr->mm.each, need_x, need_w, shape_text(s, x), shape_text(s, w));
}

// Both operands real, shared axes equal.
static bool contract_start(Shape *s, int need_x, int need_w) {
    const Type *x = shape_arg(s, 0), *w = shape_arg(s, 1);
    if (!axes_positive(s) || !shape_needs_real(s, 0) || !shape_needs_real(s, 1)) return false;
    if (!ranks_reach(s, x, need_x, w, need_w)) return false;
    for (int i = 0; i < s->attr->mm.each; i++) {
        if (x->dim[i] == w->dim[i]) continue;
        return shape_fail(s, 0, 1, "shapes %s and %s differ in shared axis %d: %d against %d",
                          shape_text(s, x), shape_text(s, w), i + 1, x->dim[i], w->dim[i]);
    }
    return true;
}

bool shape_matmul(Shape *s) {
    int each = s->attr->mm.each, over = s->attr->mm.over;
    if (!contract_start(s, each + over, each + over) || !weight_rows(s, 0, 1)) return false;
    const Type *x = shape_arg(s, 0), *w = shape_arg(s, 1);
    if (!axes_equal(x, x->rank - over, w, each, over)) {
        Type ends = { .rank = (uint8_t)over }, begins = { .rank = (uint8_t)over };
        memcpy(ends.dim, x->dim + x->rank - over, sizeof *x->dim * (size_t)over);
        memcpy(begins.dim, w->dim + each, sizeof *w->dim * (size_t)over);
        return shape_fail(s, 0, 1, "x %s ends in %s, weight %s begins with %s", shape_text(s, x),
                          shape_text(s, &ends), shape_text(s, w), shape_text(s, &begins));
    }
    int mid = x->rank - each - over, n = w->rank - each - over;
    if (!rank_fits(s, each + mid + n)) return false;
    append_axes(&s->out, x, 0, each + mid);
    append_axes(&s->out, w, each + over, n);
    return true;
}

bool shape_matmul_t(Shape *s) {
    int each = s->attr->mm.each, over = s->attr->mm.over;
    if (!contract_start(s, each, each + over) || !weight_rows(s, 0, 1)) return false;
    const Type *g = shape_arg(s, 0), *w = shape_arg(s, 1);
    int n = w->rank - each - over, mid = g->rank - each - n;
    if (mid < 0 || !axes_equal(g, each + mid, w, each + over, n)) {
        return shape_fail(s, 0, 1, "expected the gradient %s to end as the weight %s does",
                          shape_text(s, g), shape_text(s, w));
    }
    if (!rank_fits(s, each + mid + over)) return false;
    append_axes(&s->out, g, 0, each + mid);
    append_axes(&s->out, w, each, over);
    return true;
}

bool shape_matmul_w(Shape *s) {
    int each = s->attr->mm.each, over = s->attr->mm.over;
    if (!contract_start(s, each + over, each)) return false;
    const Type *x = shape_arg(s, 0), *g = shape_arg(s, 1);
    if (x->row != g->row || x->route != g->route) {
        return shape_fail(s, 0, 1, "expected equal rows, got %s and %s", shape_text(s, x),
                          shape_text(s, g));
    }
    int mid = x->rank - each - over, n = g->rank - each - mid;
    if (n < 0 || !axes_equal(x, each, g, each, mid)) {
        return shape_fail(s, 0, 1, "expected x and its gradient to begin alike, got %s and %s",
                          shape_text(s, x), shape_text(s, g));
    }
    if (!rank_fits(s, each + over + n)) return false;
    if (x->row == ROW_R) {
        s->out.row = ROW_E;
        s->out.route = x->route;
    }
    append_axes(&s->out, x, 0, each);
    append_axes(&s->out, x, each + mid, over);
    append_axes(&s->out, g, each + mid, n);
    return true;
}

/* Attention ------------------------------------------------------------------------------------ */

static void hint_divisors(Model *m, int32_t heads, int32_t groups) {
    int32_t below = 0, above = INT32_MAX; // the nearest divisors of heads
    for (int32_t i = 1; i <= heads / i; i++) {
        if (heads % i) continue;
        const int32_t pair[] = { i, heads / i };
        for (int k = 0; k < 2; k++) {
            if (pair[k] < groups && pair[k] > below) below = pair[k];
            if (pair[k] > groups && pair[k] < above) above = pair[k];
        }
    }
    if (groups > heads)
        diag_hint(m, "%d does not divide %d; %d does", groups, heads, heads);
    else if (below < 1)
        diag_hint(m, "%d does not divide %d; %d does", groups, heads, above);
    else
        diag_hint(m, "%d does not divide %d; %d and %d do", groups, heads, below, above);
}

static bool attend_heads(Shape *s, const Type *q, const Type *k, const Type *v) {
    static const char *const names[] = { "q", "k", "v" };
    for (int i = 0; i < 3; i++) {
        const Type *t = shape_arg(s, i);
        if (!shape_needs_real(s, i)) return false;
        if (t->row == ROW_T && t->rank == 2) continue;
        return shape_fail(s, i, -1, "expected %s to be [T, heads, size], got %s", names[i],
                          shape_text(s, t));
    }
    for (int i = 0; i < 3; i++) {
        int32_t size = shape_arg(s, i)->dim[1];
        if (size <= MODEL_MAX_HEAD) continue;
        return shape_fail(s, i, -1, "heads of %s have %d features, expected up to %d",
                          names[i], size, MODEL_MAX_HEAD);
    }
    if (q->dim[0] % k->dim[0]) {
        shape_fail(s, 0, 1, "%d query heads cannot share %d key heads evenly", q->dim[0],
                   k->dim[0]);
        hint_divisors(s->m, q->dim[0], k->dim[0]);
        return false;
    }
    if (k->dim[0] != v->dim[0]) {
        return shape_fail(s, 1, 2, "expected as many value heads as key heads, got %s and %s",
                          shape_text(s, v), shape_text(s, k));
    }
    if (q->dim[1] != k->dim[1]) {
        return shape_fail(s, 0, 1, "expected q and k of equal head size, got %s and %s",
                          shape_text(s, q), shape_text(s, k));
    }
    return true;
}

static bool attend_segments(Shape *s, int i) {
    const Type *t = shape_arg(s, i);
    if (t->kind == KIND_INT && t->row == ROW_T && !t->rank) return true;
    return shape_fail(s, i, -1, "expected segments to be int [T], got %s %s", kind_name[t->kind],
                      shape_text(s, t));
}

static bool attend_operands(Shape *s, int sinks) {
    const Type *q = shape_arg(s, 0);
    if (!attend_heads(s, q, shape_arg(s, 1), shape_arg(s, 2)) || !attend_segments(s, 3))
        return false;
    if (s->attr->attend.window < 0) {
        return shape_fail(s, -1, -1, "expected a positive window, or 0 for none, got %d",
                          s->attr->attend.window);
    }
    if (sinks >= s->n_args) return true;
    const Type *t = shape_arg(s, sinks);
    if (!shape_needs_real(s, sinks)) return false;
    if (!t->row && t->rank == 1 && t->dim[0] == q->dim[0]) return true;
    return shape_fail(s, sinks, -1, "expected sinks to be [%d], one per query head, got %s",
                      q->dim[0], shape_text(s, t));
}

bool shape_attend(Shape *s) {
    if (!attend_operands(s, 4)) return false;
    s->out = *shape_arg(s, 0);
    if (s->op == OP_ATTEND) {
        s->out.dim[1] = shape_arg(s, 2)->dim[1];
    } else {
        s->out.rank = 1;
        s->out.dim[1] = 0;
    }
    return true;
}

bool shape_attend_grad(Shape *s) {
    if (!attend_operands(s, 7)) return false;
    const Type *q = shape_arg(s, 0), *v = shape_arg(s, 2);
    Type y = *q, lse = *q;
    y.dim[1] = v->dim[1];
    lse.rank = 1;
    lse.dim[1] = 0;
    for (int i = 4; i < 7; i++) {
        const Type *want = i == 5 ? &lse : &y;
        if (type_equal(shape_arg(s, i), want)) continue;
        return shape_fail(s, i, -1, "expected operand %d to be %s, got %s", i + 1,
                          shape_text(s, want), shape_text(s, shape_arg(s, i)));
    }
    int part = s->attr->attend.part, last = s->n_args == 8 ? 3 : 2;
    if (part > last) return shape_fail(s, -1, -1, "expected part 0 to %d, got %d", last, part);
    s->out = *shape_arg(s, part == 3 ? 7 : part);
    return true;
}

/* Moves ---------------------------------------------------------------------------------------- */

bool shape_embed(Shape *s) {
    const Type *w = shape_arg(s, 0), *ids = shape_arg(s, 1);
    if (!shape_needs_real(s, 0) || !shape_needs_ids(s, 1)) return false;
    if (w->row || w->rank < 1) {
        return shape_fail(s, 0, -1,
                          "expected the table to be [rows, n...] without row axis, got %s",
                          shape_text(s, w));
    }
    if (!rank_fits(s, ids->rank + w->rank - 1)) return false;
    s->out = *ids;
    s->out.kind = KIND_REAL;
    append_axes(&s->out, w, 1, w->rank - 1);
    return true;
}

bool shape_embed_w(Shape *s) {
    const Type *g = shape_arg(s, 0), *ids = shape_arg(s, 1);
    if (!shape_needs_real(s, 0) || !shape_needs_ids(s, 1)) return false;
    if (g->row != ids->row || g->route != ids->route || g->rank < ids->rank ||
        !axes_equal(g, 0, ids, 0, ids->rank)) {
        return shape_fail(s, 0, 1, "expected the gradient to begin as the ids do, got %s and %s",
                          shape_text(s, g), shape_text(s, ids));
    }
    if (s->attr->k < 1)
        return shape_fail(s, -1, -1, "expected a positive number of rows, got %d", s->attr->k);
    if (!rank_fits(s, 1 + g->rank - ids->rank)) return false;
    s->out.dim[s->out.rank++] = s->attr->k;
    append_axes(&s->out, g, ids->rank, g->rank - ids->rank);
    return true;
}

bool shape_shift(Shape *s) {
    const Type *x = shape_arg(s, 0);
    if (x->kind > KIND_INT || x->row != ROW_T) {
        return shape_fail(s, 0, -1, "expected x to be real or int along tokens, got %s %s",
                          kind_name[x->kind], shape_text(s, x));
    }
    if (!attend_segments(s, 1)) return false;
    s->out = *x;
    return true;
}

bool shape_route(Shape *s) {
    const Type *ids = shape_arg(s, 0);
    if (!shape_needs_ids(s, 0)) return false;
    if (ids->row != ROW_T || ids->rank != 1) {
        return shape_fail(s, 0, -1, "expected ids to be int [T, k], got int %s",
                          shape_text(s, ids));
    }
    if (s->attr->route.experts < 1) {
        return shape_fail(s, -1, -1, "expected at least one expert, got %d",
                          s->attr->route.experts);
    }
    if (!(s->attr->route.capacity >= 0)) {
        return shape_fail(s, -1, -1,
                          "expected a positive capacity factor, or 0 for dropless, got %g",
                          (double)s->attr->route.capacity);
    }
    if (s->n_args == 2 && shape_arg(s, 1)->kind != KIND_ROUTE)
        return shape_fail(s, 1, -1, "expected the route of which this is a round, got %s %s",
                          kind_name[shape_arg(s, 1)->kind], shape_text(s, shape_arg(s, 1)));
    s->out.kind = KIND_ROUTE;
    return true;
}

static bool needs_route(Shape *s) {
    const Type *t = shape_arg(s, 1);
    if (t->kind == KIND_ROUTE) return true;
    shape_fail(s, 1, -1, "expected a route, got %s %s", kind_name[t->kind], shape_text(s, t));
    diag_hint(s->m, "m.route(ids, experts) makes one");
    return false;
}

bool shape_dispatch(Shape *s) {
    const Type *x = shape_arg(s, 0);
    if (!needs_route(s)) return false;
    Type rows = { .row = ROW_R, .route = s->args[1] };
    int32_t k = model_top_k(s->m, &rows);
    if (x->kind > KIND_INT || x->row != ROW_T || x->rank < 1 || x->dim[0] != k) {
        return shape_fail(s, 0, 1, "expected x to be [T, %d, ...], one per choice, got %s %s", k,
                          kind_name[x->kind], shape_text(s, x));
    }
    s->out = rows;
    s->out.kind = x->kind;
    append_axes(&s->out, x, 1, x->rank - 1);
    return true;
}

bool shape_collect(Shape *s) {
    const Type *x = shape_arg(s, 0);
    if (!needs_route(s)) return false;
    if (x->kind > KIND_INT || x->row != ROW_R || x->route != s->args[1]) {
        shape_fail(s, 0, 1, "expected x to be expert rows of the route, got %s %s",
                   kind_name[x->kind], shape_text(s, x));
        diag_hint(s->m, "m.dispatch(x, route) makes rows");
        return false;
    }
    if (!rank_fits(s, x->rank + 1)) return false;
    s->out.row = ROW_T;
    s->out.kind = x->kind;
    s->out.dim[s->out.rank++] = model_top_k(s->m, x);
    append_axes(&s->out, x, 0, x->rank);
    if (s->n_args < 3 || type_equal(shape_arg(s, 2), &s->out)) return true;
    return shape_fail(s, 0, 2, "expected what rows of further rounds give to be %s, got %s",
                      shape_text(s, &s->out), shape_text(s, shape_arg(s, 2)));
}

/* Over rows ------------------------------------------------------------------------------------ */

bool shape_row_sum(Shape *s) {
    const Type *x = shape_arg(s, 0);
    if (!shape_needs_real(s, 0)) return false;
    s->out = *x;
    s->out.row = ROW_NONE;
    s->out.route = 0;
    switch (s->attr->set) {
    case SET_ALL:
        if (x->row) return true;
        return shape_fail(s, 0, -1, "expected a row axis to reduce over, got %s", shape_text(s, x));
    case SET_MICROBATCH:
    case SET_GLOBAL:
        if (x->row == ROW_T) return true;
        return shape_fail(s, 0, -1, "a set of tokens needs a token axis, the tensor is %s",
                          shape_text(s, x));
    case SET_SEQUENCE:
        s->out.row = ROW_S;
        if (x->row == ROW_T) return true;
        return shape_fail(s, 0, -1, "\"sequence\" needs a token axis, the tensor is %s",
                          shape_text(s, x));
    case SET_EXPERT:
        s->out.row = ROW_E;
        s->out.route = x->route;
        if (x->row == ROW_R) return true;
        return shape_fail(s, 0, -1, "expected expert rows, got %s", shape_text(s, x));
    default: return shape_fail(s, -1, -1, "expected a set, got number %d", s->attr->set);
    }
}

bool shape_across(Shape *s) {
    const Type *x = shape_arg(s, 0);
    if (!shape_needs_real(s, 0)) return false;
    s->out = *x;
    return !x->row || shape_fail(s, 0, -1, "expected a value without row axis, got %s", shape_text(s, x));
}

bool shape_total(Shape *s) {
    const Type *x = shape_arg(s, 0);
    if (!shape_needs_real(s, 0)) return false;
    s->out = *x;
    if (!x->row) return true;
    shape_fail(s, 0, -1, "expected a contribution reduced over %s, got %s", row_name[x->row],
               shape_text(s, x));
    diag_hint(s->m, "m.histogram(ids, count) or m.sum(x, \"microbatch\") reduce over tokens");
    return false;
}

/* Effects -------------------------------------------------------------------------------------- */

static bool effect_target(Shape *s, Op target) {
    const Node *node = &s->m->nodes[s->args[0]];
    if (node->op != target) {
        return shape_fail(s, 0, -1, "expected the first operand to be a %s, got %s",
                          op_info[target].name, op_info[node->op].text);
    }
    if (type_equal(shape_arg(s, 0), shape_arg(s, 1))) return true;
    return shape_fail(s, 0, 1, "expected %s %s, got %s %s", kind_name[shape_arg(s, 0)->kind],
                      shape_text(s, shape_arg(s, 0)), kind_name[shape_arg(s, 1)->kind],
                      shape_text(s, shape_arg(s, 1)));
}

bool shape_effect(Shape *s) {
    const Type *last = shape_arg(s, s->n_args - 1);
    s->out.kind = KIND_EFFECT;
    switch (s->op) {
    case OP_ACCUMULATE: return effect_target(s, OP_PARAM);
    case OP_UPDATE: return effect_target(s, OP_STATE);
    case OP_RECORD:
        if (last->kind == KIND_REAL && !last->row && last->rank <= 1) return true;
        return shape_fail(s, 0, -1,
                          "expected a real number or a vector without row axis, got %s %s",
                          kind_name[last->kind], shape_text(s, last));
    default:
        if (last->kind <= KIND_BOOL) return true;
        return shape_fail(s, 0, -1, "expected a tensor, got %s", kind_name[last->kind]);
    }
}
