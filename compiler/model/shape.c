// SPDX-License-Identifier: Apache-2.0
// Shape rules of sources, maps, reductions, views and whole-row operations; the dispatcher.
//
// A rule reads the operands' types and fills `out`. Every refusal says what was expected and
// what was found, and blames the operands whose origin helps. Axes in messages count as in the
// language: from 1, or from -1 at the end where operands of different rank meet.
#include "compiler/model/private.h"

#include <math.h>
#include <stdio.h>

/* Helpers -------------------------------------------------------------------------------------- */

const char *shape_text(Shape *s, const Type *t) {
    char *text = s->texts[s->n_texts++ % COUNT_OF(s->texts)];
    type_format(s->m, t, text, sizeof s->texts[0]);
    return text;
}

bool shape_fail(Shape *s, int i, int j, const char *format, ...) {
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    diag_set(s->m, "%s: %s", op_info[s->op].text, text);
    if (i >= 0) s->m->diag.blame[0] = s->args[i];
    if (j >= 0) s->m->diag.blame[1] = s->args[j];
    return false;
}

static const char *ordinal(int i) {
    static const char *const words[] = { "first", "second", "third",   "fourth",
                                         "fifth", "sixth",  "seventh", "eighth" };
    return words[i];
}

static const char *with_article(uint8_t kind) {
    return kind == KIND_INT || kind == KIND_EFFECT ? "an" : "a";
}

static bool needs_tensor(Shape *s, int i) {
    uint8_t kind = shape_arg(s, i)->kind;
    if (kind <= KIND_BOOL) return true;
    return shape_fail(s, i, -1, "expected the %s operand to be a tensor, got %s %s", ordinal(i),
                      with_article(kind), kind_name[kind]);
}

static bool needs_number(Shape *s, int i) {
    if (shape_arg(s, i)->kind <= KIND_INT) return true;
    uint8_t kind = shape_arg(s, i)->kind;
    shape_fail(s, i, -1, "expected the %s operand to be real or int, got %s", ordinal(i),
               kind_name[kind]);
    if (kind == KIND_BOOL) diag_hint(s->m, "m.where(c, 1, 0) makes numbers of a bool");
    if (kind == KIND_ROUTE) diag_hint(s->m, "a route is read by m.dispatch and m.combine only");
    return false;
}

bool shape_needs_real(Shape *s, int i) {
    if (!needs_number(s, i)) return false;
    if (shape_arg(s, i)->kind == KIND_REAL) return true;
    shape_fail(s, i, -1, "expected the %s operand to be real, got int %s", ordinal(i),
               shape_text(s, shape_arg(s, i)));
    diag_hint(s->m, "x * 1.0 makes a real tensor of an int one");
    return false;
}

bool shape_needs_ids(Shape *s, int i) {
    if (shape_arg(s, i)->kind == KIND_INT) return true;
    shape_fail(s, i, -1, "expected int ids, got %s %s", kind_name[shape_arg(s, i)->kind],
               shape_text(s, shape_arg(s, i)));
    diag_hint(s->m, "ids come from m.top_k, m.tokens, m.labels or m.positions");
    return false;
}

static bool no_declared(Shape *s) {
    return shape_fail(s, -1, -1, "expected the result type to be declared, got none");
}

static bool fail_rows(Shape *s, int i, int j) {
    const Type *a = shape_arg(s, i), *b = shape_arg(s, j);
    if (a->row == b->row ||
        (a->row != ROW_T && a->row != ROW_S && b->row != ROW_T && b->row != ROW_S)) {
        shape_fail(s, i, j,
                   "%s and %s belong to different routes: expected %s of one route, got two",
                   shape_text(s, a), shape_text(s, b), row_name[a->row]);
        diag_hint(s->m, "m.combine(rows, weights) brings rows of a route back to tokens");
        return false;
    }
    shape_fail(s, i, j, "%s and %s lie along different axes: %s and %s", shape_text(s, a),
               shape_text(s, b), row_name[a->row], row_name[b->row]);
    if (a->row == ROW_S || b->row == ROW_S) {
        diag_hint(s->m, "a sum over \"sequence\" leaves sequences; values per token become so by "
                        "m.sum(x, \"sequence\")");
    } else {
        diag_hint(s->m, "m.dispatch(x, route) takes tokens to expert rows, m.combine(rows, "
                        "weights) brings them back");
    }
    return false;
}

// Equal row axes, or one absent, or E with R of the same route.
static bool join_row(Type *out, const Type *t) {
    if (t->row == ROW_NONE) return true;
    if (out->row != ROW_NONE) {
        if (out->route != t->route) return false;
        if (out->row == t->row) return true;
        bool expert_and_rows =
            (out->row == ROW_E && t->row == ROW_R) || (out->row == ROW_R && t->row == ROW_E);
        if (!expert_and_rows) return false;
        out->row = ROW_R;
        return true;
    }
    out->row = t->row;
    out->route = t->route;
    return true;
}

bool shape_join_rows(Shape *s, int i, int j) {
    const Type *a = shape_arg(s, i), *b = shape_arg(s, j);
    s->out.row = a->row;
    s->out.route = a->route;
    return join_row(&s->out, b) || fail_rows(s, i, j);
}

static bool fail_axis(Shape *s, int i, int j, int from_end, int32_t a, int32_t b) {
    const char *first = shape_text(s, shape_arg(s, i)), *second = shape_text(s, shape_arg(s, j));
    if (from_end == 1) {
        return shape_fail(s, i, j, "shapes %s and %s differ in the last axis: %d against %d", first,
                          second, a, b);
    }
    return shape_fail(s, i, j, "shapes %s and %s differ in axis -%d: %d against %d", first, second,
                      from_end, a, b);
}

// The joint shape of all operands: rows joined, features aligned at the right.
static bool broadcast_all(Shape *s) {
    Type *out = &s->out;
    int maker[MAX_RANK] = { 0 },
        row_maker = 0; // operands that gave each axis (counted from the end)
    for (int i = 0; i < s->n_args; i++) {
        const Type *t = shape_arg(s, i);
        if (!join_row(out, t)) return fail_rows(s, row_maker, i);
        if (t->row && t->row == out->row) row_maker = i;
        if (t->rank > out->rank) {
            memmove(out->dim + (t->rank - out->rank), out->dim, sizeof *out->dim * out->rank);
            for (int a = 0; a < t->rank - out->rank; a++) out->dim[a] = 1;
            out->rank = t->rank;
        }
        for (int e = 1; e <= t->rank; e++) {
            int32_t *have = &out->dim[out->rank - e], size = t->dim[t->rank - e];
            if (*have != size && *have != 1 && size != 1)
                return fail_axis(s, maker[e - 1], i, e, *have, size);
            if (*have == 1 && size != 1) {
                *have = size;
                maker[e - 1] = i;
            }
        }
    }
    return true;
}

/* Sources and generators ----------------------------------------------------------------------- */

static bool fits_source(const Shape *s) {
    const Type *d = s->declared;
    bool plain = d->row == ROW_NONE || d->row == ROW_E;
    switch (s->op) {
    case OP_PARAM:
    case OP_STATE: return d->kind == KIND_REAL && plain;
    case OP_CONST: return d->kind <= KIND_BOOL && d->row == ROW_NONE && d->rank == 0;
    case OP_CONSTANT:
        return d->kind == KIND_REAL && d->row == ROW_NONE && d->rank == 1 &&
               s->attr->index + (uint64_t)d->dim[0] <= s->m->n_constants;
    case OP_TOKENS:
    case OP_LABELS:
    case OP_POSITIONS:
    case OP_SEGMENTS: return d->kind == KIND_INT && d->row == ROW_T && d->rank == 0;
    case OP_VALID: return d->kind == KIND_REAL && d->row == ROW_T && d->rank == 0;
    case OP_UNIFORM:
        return d->kind == KIND_REAL && d->row == ROW_T && s->attr->index < s->m->n_names;
    case OP_N_VALID:
        return d->kind == KIND_REAL && d->rank == 0 &&
               ((s->attr->set == SET_MICROBATCH && d->row == ROW_NONE) ||
                (s->attr->set == SET_SEQUENCE && d->row == ROW_S));
    case OP_RECV: return d->kind <= KIND_BOOL;
    case OP_INV_STEP: return d->kind == KIND_REAL && d->row == ROW_NONE && d->rank == 0;
    default: return false;
    }
}

static bool positive_axes(Shape *s, const Type *d) {
    for (int i = 0; i < d->rank; i++) {
        if (d->dim[i] < 1)
            return shape_fail(s, -1, -1, "axis %d must be a positive integer, got %d", i + 1,
                              d->dim[i]);
    }
    return true;
}

static bool shape_declared(Shape *s) {
    const Type *d = s->declared;
    if (!d) return no_declared(s);
    if (d->rank > MAX_RANK)
        return shape_fail(s, -1, -1, "expected at most %d feature axes, got %d", MAX_RANK, d->rank);
    if (!positive_axes(s, d)) return false;
    if (!fits_source(s)) {
        return shape_fail(s, -1, -1,
                          "%s %s is no result of this operation: expected what ops.h says",
                          d->kind <= KIND_EFFECT ? kind_name[d->kind] : "?", shape_text(s, d));
    }
    if (s->op == OP_CONST && isnan(s->attr->num))
        return shape_fail(s, -1, -1, "expected a number, got NaN");
    s->out = *d;
    if (d->row == ROW_E &&
        (!d->route || d->route >= s->m->n_nodes || s->m->nodes[d->route].op != OP_ROUTE)) {
        return shape_fail(s, -1, -1, "expected the expert axis to name a route, got node %u",
                          d->route);
    }
    return true;
}

/* Maps ----------------------------------------------------------------------------------------- */

static bool numbers_together(Shape *s) {
    for (int i = 0; i < s->n_args; i++) {
        if (!needs_number(s, i)) return false;
    }
    return broadcast_all(s);
}

static bool shape_arithmetic(Shape *s) {
    if (!numbers_together(s)) return false;
    s->out.kind = KIND_INT;
    for (int i = 0; i < s->n_args; i++) {
        if (shape_arg(s, i)->kind == KIND_REAL) s->out.kind = KIND_REAL;
    }
    return true;
}

static bool shape_real1(Shape *s) {
    if (!numbers_together(s)) return false;
    if (s->op != OP_CAST || s->attr->precision == PRECISION_FP32 ||
        s->attr->precision == PRECISION_BF16)
        return true;
    return shape_fail(s, -1, -1, "expected \"fp32\" or \"bf16\", got precision %d",
                      s->attr->precision);
}

static bool shape_real2(Shape *s) { return numbers_together(s); }

static bool shape_integer2(Shape *s) {
    for (int i = 0; i < 2; i++) {
        const Type *t = shape_arg(s, i);
        if (t->kind == KIND_INT) continue;
        return shape_fail(s, i, -1, "expected int operands, got %s %s", kind_name[t->kind],
                          shape_text(s, t));
    }
    s->out.kind = KIND_INT;
    return broadcast_all(s);
}

static bool shape_compare(Shape *s) {
    s->out.kind = KIND_BOOL;
    return numbers_together(s);
}

static bool shape_where(Shape *s) {
    const Type *c = shape_arg(s, 0);
    if (c->kind != KIND_BOOL) {
        shape_fail(s, 0, -1, "expected the condition to be bool, got %s %s", kind_name[c->kind],
                   shape_text(s, c));
        diag_hint(s->m, "m.gt(x, 0), m.eq(x, y) and the like make a bool");
        return false;
    }
    if (!needs_number(s, 1) || !needs_number(s, 2)) return false;
    bool real = shape_arg(s, 1)->kind == KIND_REAL || shape_arg(s, 2)->kind == KIND_REAL;
    s->out.kind = real ? KIND_REAL : KIND_INT;
    return broadcast_all(s);
}

static bool shape_rotate(Shape *s) {
    const Type *x = shape_arg(s, 0), *freq = shape_arg(s, 1), *at = shape_arg(s, 2);
    if (!shape_needs_real(s, 0) || !shape_needs_real(s, 1)) return false;
    if (x->row != ROW_T || x->rank < 1) {
        return shape_fail(s, 0, -1, "expected x to be [T, ..., n], got %s", shape_text(s, x));
    }
    if (freq->row || freq->rank != 1) {
        return shape_fail(s, 1, -1, "expected the frequencies to be [n / 2], got %s",
                          shape_text(s, freq));
    }
    if (at->kind != KIND_INT || at->row != ROW_T || at->rank) {
        return shape_fail(s, 2, -1, "expected positions to be int [T], got %s %s",
                          kind_name[at->kind], shape_text(s, at));
    }
    int32_t n = x->dim[x->rank - 1];
    if (freq->dim[0] > n / 2) {
        return shape_fail(s, 0, 1, "%d frequencies turn %d features, x %s has %d", freq->dim[0],
                          2 * freq->dim[0], shape_text(s, x), n);
    }
    if ((s->attr->turn.sign != 1 && s->attr->turn.sign != -1) ||
        s->attr->turn.pairs > PAIRS_ADJACENT) {
        return shape_fail(s, -1, -1,
                          "expected sign 1 or -1 and pairs half or adjacent, got %d and %d",
                          s->attr->turn.sign, s->attr->turn.pairs);
    }
    s->out = *x;
    return true;
}

/* Reductions and views ------------------------------------------------------------------------- */

static bool shape_reduce(Shape *s) {
    const Type *x = shape_arg(s, 0);
    if (!needs_number(s, 0)) return false;
    uint32_t axes = s->attr->axes;
    if (!axes || axes >> x->rank) {
        int bad = x->rank + 1;
        while (axes && !(axes >> (bad - 1) & 1)) bad++;
        if (!axes)
            return shape_fail(s, 0, -1, "expected at least one feature axis of %s, got none",
                              shape_text(s, x));
        return shape_fail(s, 0, -1, "no feature axis %d in %s", bad, shape_text(s, x));
    }
    s->out = *x;
    for (int i = 0; i < x->rank; i++) {
        if (axes >> i & 1) s->out.dim[i] = 1;
    }
    return true;
}

static bool shape_same(Shape *s) {
    if (!needs_tensor(s, 0)) return false;
    s->out = *shape_arg(s, 0);
    return true;
}

// The declared type with the operand's kind; false if there is none or it is malformed.
static bool take_declared(Shape *s) {
    if (!s->declared) return no_declared(s);
    if (s->declared->rank > MAX_RANK) {
        return shape_fail(s, -1, -1, "expected at most %d feature axes, got %d", MAX_RANK,
                          s->declared->rank);
    }
    if (!needs_tensor(s, 0) || !positive_axes(s, s->declared)) return false;
    s->out = *s->declared;
    s->out.kind = shape_arg(s, 0)->kind;
    return true;
}

static bool shape_broadcast(Shape *s) {
    const Type *x = shape_arg(s, 0);
    if (!take_declared(s)) return false;
    const Type *to = &s->out;
    bool rows = (x->row == to->row && x->route == to->route) || x->row == ROW_NONE ||
                (x->row == ROW_E && to->row == ROW_R && x->route == to->route) ||
                (x->row == ROW_S && to->row == ROW_T);
    bool fits = rows && x->rank <= to->rank;
    for (int e = 1; fits && e <= x->rank; e++) {
        int32_t size = x->dim[x->rank - e];
        fits = size == 1 || size == to->dim[to->rank - e];
    }
    return fits ||
           shape_fail(s, 0, -1, "%s does not broadcast to %s", shape_text(s, x), shape_text(s, to));
}

static bool same_rows_as_x(Shape *s) {
    const Type *x = shape_arg(s, 0);
    if (s->out.row == x->row && s->out.route == x->route) return true;
    return shape_fail(s, 0, -1, "the row axis must stay: expected that of %s, got %s",
                      shape_text(s, x), shape_text(s, &s->out));
}

static bool shape_reshape(Shape *s) {
    const Type *x = shape_arg(s, 0);
    if (!take_declared(s) || !same_rows_as_x(s)) return false;
    int64_t have = type_features(x), want = type_features(&s->out);
    if (have == want) return true;
    return shape_fail(s, 0, -1, "%s holds %lld features, the new shape %s holds %lld",
                      shape_text(s, x), (long long)have, shape_text(s, &s->out), (long long)want);
}

static bool shape_transpose(Shape *s) {
    const Type *x = shape_arg(s, 0);
    if (!needs_tensor(s, 0)) return false;
    if (x->rank < 2)
        return shape_fail(s, 0, -1, "expected at least two feature axes, got %s", shape_text(s, x));
    s->out = *x;
    s->out.dim[x->rank - 1] = x->dim[x->rank - 2];
    s->out.dim[x->rank - 2] = x->dim[x->rank - 1];
    return true;
}

// slice and pad: `whole` and `part` differ in attr.cut.axis only, and part lies inside whole.
static bool cut_fits(Shape *s, const Type *whole, const Type *part) {
    const Type *x = shape_arg(s, 0);
    int32_t axis = s->attr->cut.axis, at = s->attr->cut.at;
    if (!same_rows_as_x(s)) return false;
    if (axis < 0 || axis >= x->rank || s->out.rank != x->rank) {
        return shape_fail(s, 0, -1, "no feature axis %d in %s", axis + 1, shape_text(s, x));
    }
    for (int i = 0; i < x->rank; i++) {
        if (i != axis && whole->dim[i] != part->dim[i]) {
            return shape_fail(s, 0, -1, "%s and %s must be equal but in axis %d", shape_text(s, x),
                              shape_text(s, &s->out), axis + 1);
        }
    }
    if (at >= 0 && (int64_t)at + part->dim[axis] <= whole->dim[axis]) return true;
    return shape_fail(s, 0, -1, "features %d to %lld of axis %d are outside: expected 1 to %d",
                      at + 1, (long long)at + part->dim[axis], axis + 1, whole->dim[axis]);
}

static bool shape_slice(Shape *s) {
    return take_declared(s) && cut_fits(s, shape_arg(s, 0), &s->out);
}
static bool shape_pad(Shape *s) {
    return take_declared(s) && cut_fits(s, &s->out, shape_arg(s, 0));
}

static bool shape_concat(Shape *s) {
    const Type *first = shape_arg(s, 0);
    int32_t axis = s->attr->cut.axis;
    for (int i = 0; i < s->n_args; i++) {
        const Type *t = shape_arg(s, i);
        if (!needs_tensor(s, i)) return false;
        if (t->kind != first->kind) {
            return shape_fail(s, 0, i, "expected equal kinds, got %s and %s",
                              kind_name[first->kind], kind_name[t->kind]);
        }
        if (t->row != first->row || t->route != first->route) {
            return t->row && first->row
                       ? fail_rows(s, 0, i)
                       : shape_fail(s, 0, i, "expected equal row axes, got %s and %s",
                                    shape_text(s, first), shape_text(s, t));
        }
        if (t->rank != first->rank || axis < 0 || axis >= t->rank) {
            return shape_fail(s, 0, i, "%s and %s have no common axis %d", shape_text(s, first),
                              shape_text(s, t), axis + 1);
        }
        for (int a = 0; a < t->rank; a++) {
            if (a != axis && t->dim[a] != first->dim[a])
                return fail_axis(s, 0, i, t->rank - a, first->dim[a], t->dim[a]);
        }
    }
    s->out = *first;
    int64_t size = 0;
    for (int i = 0; i < s->n_args; i++) size += shape_arg(s, i)->dim[axis];
    if (size > INT32_MAX)
        return shape_fail(s, -1, -1, "expected at most %d features, got %lld", INT32_MAX,
                          (long long)size);
    s->out.dim[axis] = (int32_t)size;
    return true;
}

/* Whole rows ----------------------------------------------------------------------------------- */

static bool shape_top_k(Shape *s) {
    const Type *x = shape_arg(s, 0);
    if (!needs_number(s, 0)) return false;
    if (x->rank < 1)
        return shape_fail(s, 0, -1, "expected at least one feature axis, got %s", shape_text(s, x));
    int32_t k = s->attr->k, n = x->dim[x->rank - 1];
    if (k < 1 || k > n) {
        shape_fail(s, 0, -1, "%d chosen out of %d", k, n);
        diag_hint(s->m, "expected between 1 and the size of the last axis of %s", shape_text(s, x));
        return false;
    }
    s->out = *x;
    s->out.kind = KIND_INT;
    s->out.dim[x->rank - 1] = k;
    return true;
}

static bool shape_one_hot(Shape *s) {
    const Type *ids = shape_arg(s, 0);
    if (!shape_needs_ids(s, 0)) return false;
    if (s->attr->k < 1)
        return shape_fail(s, -1, -1, "expected a positive width, got %d", s->attr->k);
    if (ids->rank == MAX_RANK) {
        return shape_fail(s, 0, -1, "expected at most %d feature axes, got %s", MAX_RANK - 1,
                          shape_text(s, ids));
    }
    s->out = *ids;
    s->out.kind = KIND_REAL;
    s->out.dim[s->out.rank++] = s->attr->k;
    return true;
}

static bool shape_gather(Shape *s) {
    const Type *x = shape_arg(s, 0), *ids = shape_arg(s, 1);
    if (!needs_number(s, 0) || !shape_needs_ids(s, 1) || !shape_join_rows(s, 0, 1)) return false;
    if (x->rank < 1 || ids->rank < x->rank) {
        return shape_fail(s, 0, 1, "expected x [a..., n] and ids [a..., k], got %s and %s",
                          shape_text(s, x), shape_text(s, ids));
    }
    for (int e = 2; e <= x->rank; e++) {
        int32_t size = x->dim[x->rank - e], want = ids->dim[ids->rank - e];
        if (size != want && size != 1) return fail_axis(s, 0, 1, e, size, want);
    }
    s->out.kind = x->kind;
    s->out.rank = ids->rank;
    memcpy(s->out.dim, ids->dim, sizeof ids->dim);
    return true;
}

static bool shape_scatter(Shape *s) {
    const Type *g = shape_arg(s, 0), *ids = shape_arg(s, 1);
    if (!shape_needs_real(s, 0) || !shape_needs_ids(s, 1) || !shape_join_rows(s, 0, 1))
        return false;
    if (g->rank < 1 || g->rank != ids->rank || memcmp(g->dim, ids->dim, sizeof g->dim)) {
        return shape_fail(s, 0, 1, "expected values and ids of equal shape [..., k], got %s and %s",
                          shape_text(s, g), shape_text(s, ids));
    }
    if (s->attr->k < 1)
        return shape_fail(s, -1, -1, "expected a positive width, got %d", s->attr->k);
    s->out.rank = g->rank;
    memcpy(s->out.dim, g->dim, sizeof g->dim);
    s->out.dim[g->rank - 1] = s->attr->k;
    return true;
}

/* Dispatch ------------------------------------------------------------------------------------- */

static bool (*const rules[N_OPS])(Shape *) = {
#define OP(name, text, lo, hi, class, shape, adjoint, flops) [OP_##name] = shape_##shape,
    OP_TABLE(OP)
#undef OP
};

bool model_shape(Model *m, Draft *draft, const Type *declared) {
    Shape s = {
        .m = m,
        .op = draft->op,
        .attr = &draft->attr,
        .declared = declared,
        .args = draft->args,
        .n_args = draft->n_args,
    };
    if (!rules[draft->op](&s)) return false;
    draft->type = s.out;
    return true;
}
