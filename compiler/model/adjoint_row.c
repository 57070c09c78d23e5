// SPDX-License-Identifier: Apache-2.0
// Adjoints of reductions, of operations on whole rows, and of sums over rows.
#include "compiler/model/adjoint.h"

// The gradient of a sum is the same for every addend: `give` broadcasts it back to the operand.
void adjoint_sum(Adj *a) { give(a, 0, a->g); }
void adjoint_row_sum(Adj *a) { give(a, 0, a->g); }

// Every rank's result is made of every rank's operand.
void adjoint_across(Adj *a) { give(a, 0, model_op1(a->m, OP_ACROSS, a->g)); }

// Ones where the operand equals the largest value `y` (of the operand's type), as reals.
static uint32_t ties(Adj *a, uint32_t equal) {
    uint32_t one = number(a, 1);
    return where(a, equal, one, number(a, 0));
}

static void give_ties(Adj *a, uint32_t equal, uint32_t count) {
    Type type = type_of(a, 0);
    uint32_t share = model_op2(a->m, OP_DIV, a->g, count);
    if (share) share = model_broadcast(a->m, share, &type);
    give(a, 0, where(a, equal, share, number(a, 0)));
}

void adjoint_amax(Adj *a) {
    uint32_t equal = model_op2(a->m, OP_EQ, arg(a, 0), a->node);
    give_ties(a, equal, model_sum(a->m, ties(a, equal), attr_of(a).axes));
}

void adjoint_row_max(Adj *a) {
    Type type = type_of(a, 0);
    uint32_t equal = model_op2(a->m, OP_EQ, arg(a, 0), model_broadcast(a->m, a->node, &type));
    give_ties(a, equal, model_row_sum(a->m, ties(a, equal), (Set)attr_of(a).set));
}

void adjoint_gather(Adj *a) {
    Type x = type_of(a, 0);
    Attr attr = { .raw = { 0, 0 } };
    attr.k = x.dim[x.rank - 1];
    if (!wants(a, 0)) return;
    give(a, 0, model_node(a->m, OP_SCATTER, &attr, NULL, (uint32_t[]){ a->g, arg(a, 1) }, 2));
}

void adjoint_scatter(Adj *a) { give(a, 0, model_op2(a->m, OP_GATHER, a->g, arg(a, 1))); }
