// SPDX-License-Identifier: Apache-2.0
// Adjoints of maps. y is the node's own result: rules read it where that saves a recomputation.
#include "compiler/model/adjoint.h"

void adjoint_add(Adj *a) {
    give(a, 0, a->g);
    give(a, 1, a->g);
}

void adjoint_sub(Adj *a) {
    give(a, 0, a->g);
    if (wants(a, 1)) give(a, 1, neg(a, a->g));
}

void adjoint_mul(Adj *a) {
    if (wants(a, 0)) give(a, 0, mul(a, a->g, arg(a, 1)));
    if (wants(a, 1)) give(a, 1, mul(a, a->g, arg(a, 0)));
}

void adjoint_div(Adj *a) {
    uint32_t share = model_op2(a->m, OP_DIV, a->g, arg(a, 1));
    give(a, 0, share);
    if (wants(a, 1)) give(a, 1, neg(a, mul(a, share, a->node)));
}

void adjoint_neg(Adj *a) { give(a, 0, neg(a, a->g)); }

void adjoint_recip(Adj *a) { give(a, 0, neg(a, mul(a, a->g, mul(a, a->node, a->node)))); }

// x^c: c x^(c-1); with a tensor for c also y log x, which is 0 at x = 0, where the limit of y
// log x is.
void adjoint_pow(Adj *a) {
    uint32_t x = arg(a, 0), c = arg(a, 1);
    if (wants(a, 0)) {
        uint32_t lower = model_op2(a->m, OP_POW, x, model_op2(a->m, OP_SUB, c, number(a, 1)));
        give(a, 0, mul(a, a->g, mul(a, c, lower)));
    }
    if (wants(a, 1)) {
        uint32_t zero = number(a, 0);
        uint32_t slope = mul(a, a->node, model_op1(a->m, OP_LOG, x));
        slope = where(a, model_op2(a->m, OP_EQ, x, zero), zero, slope);
        give(a, 1, mul(a, a->g, slope));
    }
}

void adjoint_exp(Adj *a) { give(a, 0, mul(a, a->g, a->node)); }

void adjoint_log(Adj *a) { give(a, 0, model_op2(a->m, OP_DIV, a->g, arg(a, 0))); }

void adjoint_sqrt(Adj *a) {
    give(a, 0, model_op2(a->m, OP_DIV, mul(a, a->g, number(a, 0.5)), a->node));
}

void adjoint_rsqrt(Adj *a) {
    uint32_t cube = mul(a, a->node, mul(a, a->node, a->node));
    give(a, 0, mul(a, a->g, mul(a, number(a, -0.5), cube)));
}

void adjoint_abs(Adj *a) { give(a, 0, mul(a, a->g, model_op1(a->m, OP_SIGN, arg(a, 0)))); }

void adjoint_sigmoid(Adj *a) {
    uint32_t rest = model_op2(a->m, OP_SUB, number(a, 1), a->node);
    give(a, 0, mul(a, a->g, mul(a, a->node, rest)));
}

void adjoint_tanh(Adj *a) {
    uint32_t rest = model_op2(a->m, OP_SUB, number(a, 1), mul(a, a->node, a->node));
    give(a, 0, mul(a, a->g, rest));
}

void adjoint_erf(Adj *a) {
    uint32_t x = arg(a, 0);
    uint32_t bell = model_op1(a->m, OP_EXP, neg(a, mul(a, x, x)));
    give(a, 0, mul(a, a->g, mul(a, number(a, 1.12837916709551257390) /* 2 / sqrt(pi) */, bell)));
}

// To the first operand where it is strictly smaller (greater), else to the second: so relu'(0) =
// 0. A choice, never a product with the mask: 0 * inf would poison the gradient.
static void give_chosen(Adj *a, Op strictly) {
    uint32_t zero = number(a, 0), first = model_op2(a->m, strictly, arg(a, 0), arg(a, 1));
    if (wants(a, 0)) give(a, 0, where(a, first, a->g, zero));
    if (wants(a, 1)) give(a, 1, where(a, first, zero, a->g));
}

void adjoint_min(Adj *a) { give_chosen(a, OP_LT); }
void adjoint_max(Adj *a) { give_chosen(a, OP_GT); }

void adjoint_where(Adj *a) {
    uint32_t zero = number(a, 0), c = arg(a, 0);
    if (wants(a, 1)) give(a, 1, where(a, c, a->g, zero));
    if (wants(a, 2)) give(a, 2, where(a, c, zero, a->g));
}

void adjoint_cast(Adj *a) { give(a, 0, a->g); } // rounding counts as identity
void adjoint_same(Adj *a) { give(a, 0, a->g); }

// The transposed rotation: the same angles backwards. Positions and frequencies are data.
void adjoint_rotate(Adj *a) {
    Attr attr = attr_of(a);
    attr.turn.sign = (int8_t)-attr.turn.sign;
    give(a, 0,
         model_node(a->m, OP_ROTATE, &attr, NULL, (uint32_t[]){ a->g, arg(a, 1), arg(a, 2) }, 3));
}

// Reached only where a gradient arrives at an operation that has none: attention's own gradient.
void adjoint_none(Adj *a) {
    diag_set(a->m, "%s: expected an operation that can be differentiated, this one has no gradient",
             op_info[a->m->nodes[a->node].op].text);
    diag_hint(a->m, "m.stop_gradient(x) cuts the path");
    a->m->diag.blame[0] = a->node;
    a->failed = true;
}
