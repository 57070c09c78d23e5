// SPDX-License-Identifier: Apache-2.0
// What adjoint rules see: one forward node, the gradient of its result, and `give`.
//
// A rule receives g, of the type of the node's result, and gives each differentiable operand its
// share; `give` drops what cannot reach a parameter and sums the rest to the operand's type. A
// rule is built from ordinary nodes, so it can be differentiated again wherever its own
// operations can.
#ifndef MOEC_MODEL_ADJOINT_H
#define MOEC_MODEL_ADJOINT_H

#include "compiler/model/private.h"

typedef struct Adj {
    Model *m;
    uint32_t node, g;       // the forward node, the gradient of its result
    const uint8_t *reaches; // per forward node: does it depend on a parameter, differentiably?
    struct Share **shares;  // per forward node: what it was given, in order
    bool failed;            // m->diag says why
} Adj;

void give(Adj *a, int i, uint32_t gradient);           // to operand i; 0: its making failed
uint32_t sum_to(Model *m, uint32_t g, const Type *to); // autodiff.c

static inline uint32_t arg(const Adj *a, int i) { return model_arg(a->m, a->node, i); }
static inline bool wants(const Adj *a, int i) { return a->reaches[arg(a, i)]; }
static inline Attr attr_of(const Adj *a) { return a->m->nodes[a->node].attr; }
static inline Type type_of(const Adj *a, int i) { return a->m->nodes[arg(a, i)].type; }
static inline uint32_t number(Adj *a, double value) { return model_const(a->m, value, KIND_REAL); }
static inline uint32_t mul(Adj *a, uint32_t x, uint32_t y) { return model_op2(a->m, OP_MUL, x, y); }
static inline uint32_t neg(Adj *a, uint32_t x) { return model_op1(a->m, OP_NEG, x); }
static inline uint32_t where(Adj *a, uint32_t c, uint32_t x, uint32_t y) {
    return model_op3(a->m, OP_WHERE, c, x, y);
}

#define OP(name, text, lo, hi, class, shape, adjoint, flops) void adjoint_##adjoint(Adj *a);
OP_TABLE(OP)
#undef OP

#endif
