// SPDX-License-Identifier: Apache-2.0
// Canonical form: one table of rewrites, applied to every node before it is made.
//
// Rules. A row may return an existing or new node of exactly the draft's type, or reorder the
// draft's operands in place. No row changes a finite result beyond rounding (signs of zeros
// aside), none reassociates. Termination: what a row makes is a constant, an operand, or
// operations with a smaller rank in the order pow > div > mul, transpose and reshape, broadcast,
// slice chains only ever shrink.
#include "compiler/model/private.h"

#include <math.h>

static uint32_t arg_of(const Model *m, uint32_t id, Op op) {
    return m->nodes[id].op == op ? model_arg(m, id, 0) : 0;
}

// Operand i, if the draft may be replaced by it: an operand of another shape or kind is not its
// equal.
static uint32_t same(const Model *m, const Draft *d, int i) {
    return type_equal(&m->nodes[d->args[i]].type, &d->type) ? d->args[i] : 0;
}

static uint32_t order_operands(Model *m, Draft *d) {
    (void)m;
    if (d->args[0] > d->args[1]) {
        uint32_t first = d->args[0];
        d->args[0] = d->args[1];
        d->args[1] = first;
    }
    return 0;
}

/* Constant folding ----------------------------------------------------------------------------- */

static double floor_mod(double a, double b) { return a - b * floor(a / b); }

static double fold_value(Op op, const double *v) {
    switch (op) {
    case OP_ADD: return v[0] + v[1];
    case OP_SUB: return v[0] - v[1];
    case OP_MUL: return v[0] * v[1];
    case OP_DIV: return v[0] / v[1];
    case OP_NEG: return -v[0];
    case OP_RECIP: return 1 / v[0];
    case OP_POW: return pow(v[0], v[1]);
    case OP_IDIV: return floor(v[0] / v[1]);
    case OP_MOD: return floor_mod(v[0], v[1]);
    case OP_EXP: return exp(v[0]);
    case OP_LOG: return log(v[0]);
    case OP_SQRT: return sqrt(v[0]);
    case OP_RSQRT: return 1 / sqrt(v[0]);
    case OP_ABS: return fabs(v[0]);
    case OP_SIGN: return (v[0] > 0) - (v[0] < 0);
    case OP_SIGMOID: return 1 / (1 + exp(-v[0]));
    case OP_TANH: return tanh(v[0]);
    case OP_ERF: return erf(v[0]);
    case OP_MIN: return v[0] < v[1] ? v[0] : v[1];
    case OP_MAX: return v[0] > v[1] ? v[0] : v[1];
    case OP_LT: return v[0] < v[1];
    case OP_LE: return v[0] <= v[1];
    case OP_GT: return v[0] > v[1];
    case OP_GE: return v[0] >= v[1];
    case OP_EQ: return v[0] == v[1];
    case OP_NE: return v[0] != v[1];
    case OP_WHERE: return v[0] != 0 ? v[1] : v[2];
    default: return NAN; // not folded
    }
}

static uint32_t fold_constants(Model *m, Draft *d) {
    double v[MAX_ARGS] = { 0 };
    for (int i = 0; i < d->n_args; i++) {
        const Node *n = &m->nodes[d->args[i]];
        if (n->op != OP_CONST) return 0;
        v[i] = n->attr.num;
    }
    double value = fold_value(d->op, v);
    if (isnan(value)) return 0;
    if (d->type.kind == KIND_INT && !(fabs(value) <= INT32_MAX)) return 0;
    return model_const(m, value, d->type.kind);
}

/* Identities ----------------------------------------------------------------------------------- */

static uint32_t add_zero(Model *m, Draft *d) {
    if (model_is_const(m, d->args[1], 0) && same(m, d, 0)) return d->args[0];
    return model_is_const(m, d->args[0], 0) ? same(m, d, 1) : 0;
}

static uint32_t sub_zero(Model *m, Draft *d) {
    return model_is_const(m, d->args[1], 0) ? same(m, d, 0) : 0;
}

static uint32_t mul_one(Model *m, Draft *d) {
    if (model_is_const(m, d->args[1], 1) && same(m, d, 0)) return d->args[0];
    return model_is_const(m, d->args[0], 1) ? same(m, d, 1) : 0;
}

static uint32_t div_one(Model *m, Draft *d) {
    return model_is_const(m, d->args[1], 1) ? same(m, d, 0) : 0;
}

static uint32_t pow_one(Model *m, Draft *d) {
    return model_is_const(m, d->args[1], 1) ? same(m, d, 0) : 0;
}

static uint32_t pow_two(Model *m, Draft *d) {
    uint32_t x = d->args[0];
    return model_is_const(m, d->args[1], 2) && same(m, d, 0) ? model_op2(m, OP_MUL, x, x) : 0;
}

static uint32_t div_sqrt(Model *m, Draft *d) {
    uint32_t b = arg_of(m, d->args[1], OP_SQRT);
    return b ? model_op2(m, OP_MUL, d->args[0], model_op1(m, OP_RSQRT, b)) : 0;
}

// The operation undoes itself: --x, and the transpose of a transpose.
static uint32_t twice_undone(Model *m, Draft *d) { return arg_of(m, d->args[0], d->op); }

static uint32_t twice_once(Model *m, Draft *d) {
    return m->nodes[d->args[0]].op == d->op ? d->args[0] : 0;
}

static uint32_t view_identity(Model *m, Draft *d) { return same(m, d, 0); }

static uint32_t view_of_view(Model *m, Draft *d) {
    uint32_t x = arg_of(m, d->args[0], d->op);
    return x ? model_node(m, d->op, NULL, &d->type, &x, 1) : 0;
}

static uint32_t slice_of_slice(Model *m, Draft *d) {
    uint32_t x = arg_of(m, d->args[0], OP_SLICE);
    if (!x || m->nodes[d->args[0]].attr.cut.axis != d->attr.cut.axis) return 0;
    Attr attr = d->attr;
    attr.cut.at += m->nodes[d->args[0]].attr.cut.at;
    return model_node(m, OP_SLICE, &attr, &d->type, &x, 1);
}

/* The table ------------------------------------------------------------------------------------ */

// `op` OP_NONE: every map. Rows are tried in order; the first that yields a node wins.
static const struct Rewrite {
    Op op;
    uint32_t (*apply)(Model *m, Draft *d);
} rewrites[] = {
    { OP_NONE, fold_constants },
    { OP_ADD, add_zero },
    { OP_ADD, order_operands },
    { OP_SUB, sub_zero },
    { OP_MUL, mul_one },
    { OP_MUL, order_operands },
    { OP_EQ, order_operands },
    { OP_NE, order_operands },
    { OP_DIV, div_one },
    { OP_DIV, div_sqrt },
    { OP_POW, pow_one },
    { OP_POW, pow_two },
    { OP_NEG, twice_undone },
    { OP_TRANSPOSE, twice_undone },
    { OP_RESHAPE, view_identity },
    { OP_RESHAPE, view_of_view },
    { OP_BROADCAST, view_identity },
    { OP_BROADCAST, view_of_view },
    { OP_SLICE, view_identity },
    { OP_SLICE, slice_of_slice },
    { OP_PAD, view_identity },
    { OP_STOP_GRADIENT, twice_once },
};

uint32_t model_rewrite(Model *m, Draft *d) {
    bool map = op_info[d->op].class == CLASS_MAP;
    for (int i = 0; i < COUNT_OF(rewrites); i++) {
        if (rewrites[i].op != d->op && !(map && rewrites[i].op == OP_NONE)) continue;
        uint32_t id = rewrites[i].apply(m, d);
        if (id) return id;
    }
    return 0;
}
