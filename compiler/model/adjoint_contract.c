// SPDX-License-Identifier: Apache-2.0
// Adjoints of contractions: matmul, matmul_t and matmul_w are closed under differentiation.
//
//   y = x w      matmul(x, w)        dx = matmul_t(g, w)   dw = matmul_w(x, g)
//   x = g w'     matmul_t(g, w)      dg = matmul(d, w)     dw = matmul_w(d, g)
//   w = x' g     matmul_w(x, g)      dx = matmul_t(g, d)   dg = matmul(x, d)
#include "compiler/model/adjoint.h"

static uint32_t contract(Adj *a, Op op, uint32_t x, uint32_t w) {
    Attr attr = attr_of(a);
    return model_node(a->m, op, &attr, NULL, (uint32_t[]){ x, w }, 2);
}

// matmul_w on expert rows gives one result per expert; `give` adds them up for a weight all
// experts share.
void adjoint_matmul(Adj *a) {
    if (wants(a, 0)) give(a, 0, contract(a, OP_MATMUL_T, a->g, arg(a, 1)));
    if (wants(a, 1)) give(a, 1, contract(a, OP_MATMUL_W, arg(a, 0), a->g));
}

void adjoint_matmul_t(Adj *a) {
    if (wants(a, 0)) give(a, 0, contract(a, OP_MATMUL, a->g, arg(a, 1)));
    if (wants(a, 1)) give(a, 1, contract(a, OP_MATMUL_W, a->g, arg(a, 0)));
}

void adjoint_matmul_w(Adj *a) {
    if (wants(a, 0)) give(a, 0, contract(a, OP_MATMUL_T, arg(a, 1), a->g));
    if (wants(a, 1)) give(a, 1, contract(a, OP_MATMUL, arg(a, 0), a->g));
}

// The log-sum-exp belongs to the attention itself (one kernel makes both), so it is made in its
// part.
void adjoint_attend(Adj *a) {
    Attr attr = attr_of(a);
    int n = a->m->nodes[a->node].n_args;
    uint32_t in[5] = { 0 };
    for (int i = 0; i < n; i++) in[i] = arg(a, i);
    uint8_t part = a->m->part;
    a->m->part = a->m->nodes[a->node].part;
    uint32_t lse = model_node(a->m, OP_ATTEND_LSE, &attr, NULL, in, n);
    a->m->part = part;
    uint32_t all[8] = { in[0], in[1], in[2], in[3], a->node, lse, a->g, in[4] };
    for (int i = 0; i < 4; i++) {
        int operand = i == 3 ? 4 : i; // operand 3 is the segments, the sinks come after them
        if (operand >= n || !wants(a, operand)) continue;
        attr.attend.part = (uint8_t)i;
        give(a, operand, model_node(a->m, OP_ATTEND_GRAD, &attr, NULL, all, n + 3));
    }
}
