// SPDX-License-Identifier: Apache-2.0
// Short names for building small graphs, and values that a row program must load.
#ifndef MOEC_TESTS_ROWS_GRAPH_H
#define MOEC_TESTS_ROWS_GRAPH_H

#include "compiler/model/model.h"

typedef struct Dims {
    int rank;
    int32_t at[MAX_RANK];
} Dims;
#define DIMS(...) ((Dims){ COUNT_OF(((int32_t[]){ __VA_ARGS__ })), { __VA_ARGS__ } })
#define NO_DIMS ((Dims){ 0, { 0 } })

uint32_t g_param(Model *m, Dims dims);  // rowless
uint32_t g_tokens(Model *m, Dims dims); // real [T, dims], the result of a contraction
uint32_t g_route(Model *m, int32_t experts, int32_t k, bool skewed);
uint32_t g_rows(Model *m, uint32_t route, Dims dims); // real [R, dims], the result of a contraction
uint32_t g_expert(Model *m, uint32_t route, Dims dims);
uint32_t g_sequences(Model *m, Dims dims);          // real [S, dims]
uint32_t g_ids(Model *m, int32_t k, int32_t below); // int [T, k], some -1
uint32_t g_number(Model *m, double value);
uint32_t g_int(Model *m, int32_t value);
uint32_t g_attr(Model *m, Op op, Attr attr, uint32_t a, uint32_t b, uint32_t c);
uint32_t g_k(Model *m, Op op, uint32_t a, uint32_t b, int32_t k);
uint32_t g_reshape(Model *m, uint32_t x, Dims dims);
uint32_t g_broadcast(Model *m, uint32_t x, Dims dims, uint32_t row_like); // row axis of `row_like`
uint32_t g_pad(Model *m, uint32_t x, int axis, int32_t at, int32_t size);
uint32_t g_concat(Model *m, int axis, uint32_t a, uint32_t b);
#define g_add(m, a, b) model_op2(m, OP_ADD, a, b)
#define g_sub(m, a, b) model_op2(m, OP_SUB, a, b)
#define g_mul(m, a, b) model_op2(m, OP_MUL, a, b)
#define g_div(m, a, b) model_op2(m, OP_DIV, a, b)

#endif
