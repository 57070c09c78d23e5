// SPDX-License-Identifier: Apache-2.0
// Adjoints of views and moves. dispatch and collect are the two directions of a partial
// bijection between slots (token, choice) and rows, so each is the other's adjoint: dropped
// copies get zero.
#include "compiler/model/adjoint.h"

void adjoint_broadcast(Adj *a) { give(a, 0, a->g); } // `give` sums it back

void adjoint_reshape(Adj *a) {
    Type x = type_of(a, 0);
    give(a, 0, model_reshape(a->m, a->g, x.dim, x.rank));
}

void adjoint_transpose(Adj *a) { give(a, 0, model_op1(a->m, OP_TRANSPOSE, a->g)); }

void adjoint_slice(Adj *a) {
    Type x = type_of(a, 0);
    Attr attr = attr_of(a);
    give(a, 0, model_node(a->m, OP_PAD, &attr, &x, &a->g, 1));
}

void adjoint_pad(Adj *a) {
    Attr attr = attr_of(a);
    give(a, 0,
         model_slice(a->m, a->g, attr.cut.axis, attr.cut.at, type_of(a, 0).dim[attr.cut.axis]));
}

void adjoint_concat(Adj *a) {
    int32_t axis = attr_of(a).cut.axis, at = 0;
    for (int i = 0; i < a->m->nodes[a->node].n_args; i++) {
        int32_t size = type_of(a, i).dim[axis];
        if (wants(a, i)) give(a, i, model_slice(a->m, a->g, axis, at, size));
        at += size;
    }
}

void adjoint_embed(Adj *a) {
    Attr attr = { .raw = { 0, 0 } };
    attr.k = type_of(a, 0).dim[0];
    give(a, 0, model_node(a->m, OP_EMBED_W, &attr, NULL, (uint32_t[]){ a->g, arg(a, 1) }, 2));
}

void adjoint_embed_w(Adj *a) { give(a, 0, model_op2(a->m, OP_EMBED, a->g, arg(a, 1))); }

void adjoint_shift(Adj *a) {
    Attr attr = attr_of(a);
    attr.k = -attr.k;
    give(a, 0, model_node(a->m, OP_SHIFT, &attr, NULL, (uint32_t[]){ a->g, arg(a, 1) }, 2));
}

void adjoint_dispatch(Adj *a) { give(a, 0, model_op2(a->m, OP_COLLECT, a->g, arg(a, 1))); }
void adjoint_collect(Adj *a) { give(a, 0, model_op2(a->m, OP_DISPATCH, a->g, arg(a, 1))); }
