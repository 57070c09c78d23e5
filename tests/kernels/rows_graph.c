// SPDX-License-Identifier: Apache-2.0
// See rows_graph.h.
#include "tests/kernels/rows_graph.h"

#include <stdio.h>

static uint32_t fresh(Model *m) {
    char name[32];
    snprintf(name, sizeof name, "n%u", m->n_names);
    return model_intern(m, name);
}

static Attr contract(int over) {
    Attr attr = { .raw = { 0, 0 } };
    attr.mm.over = over;
    attr.mm.precision = PRECISION_FP32;
    return attr;
}

uint32_t g_param(Model *m, Dims d) {
    return model_param(m, fresh(m), false, d.at, d.rank, 0);
}

uint32_t g_tokens(Model *m, Dims d) {
    int32_t three = 3, dims[MAX_RANK] = { 3 };
    for (int i = 0; i < d.rank; i++) dims[1 + i] = d.at[i];
    uint32_t u = model_generator(m, OP_UNIFORM, (int32_t)fresh(m), &three, 1);
    uint32_t w = model_param(m, fresh(m), false, dims, d.rank + 1, 0);
    Attr attr = contract(1);
    return model_node(m, OP_MATMUL, &attr, NULL, (uint32_t[]){ g_sub(m, u, g_number(m, 0.5)), w },
                      2);
}

uint32_t g_ids(Model *m, int32_t k, int32_t below) {
    uint32_t u = model_generator(m, OP_UNIFORM, (int32_t)fresh(m), &k, 1);
    // ids from comparisons with exact thresholds: no cast from real to int exists
    uint32_t ids = g_int(m, -1);
    for (int32_t i = 0; i < below; i++) {
        uint32_t over =
            model_op2(m, OP_GT, u, g_number(m, (double)((i + 1) * 1024 / (below + 1)) / 1024));
        ids = model_op3(m, OP_WHERE, over, g_int(m, i), ids);
    }
    return ids;
}

uint32_t g_route(Model *m, int32_t experts, int32_t k, bool skewed) {
    Attr attr = { .raw = { 0, 0 } };
    attr.route.experts = experts;
    uint32_t ids = skewed ? g_ids(m, k, 1) : g_ids(m, k, experts);
    return model_node(m, OP_ROUTE, &attr, NULL, &ids, 1);
}

uint32_t g_expert(Model *m, uint32_t route, Dims d) {
    return model_param(m, fresh(m), false, d.at, d.rank, route);
}

uint32_t g_rows(Model *m, uint32_t route, Dims d) {
    int32_t k = m->nodes[model_arg(m, route, 0)].type.dim[0];
    uint32_t x = model_op2(m, OP_DISPATCH, g_tokens(m, DIMS(k, 3)), route);
    int32_t dims[MAX_RANK] = { 3 };
    for (int i = 0; i < d.rank; i++) dims[1 + i] = d.at[i];
    Attr attr = contract(1);
    uint32_t w = g_expert(m, route, (Dims){ d.rank + 1, { dims[0], dims[1], dims[2], dims[3] } });
    return model_node(m, OP_MATMUL, &attr, NULL, (uint32_t[]){ x, w }, 2);
}

uint32_t g_sequences(Model *m, Dims d) {
    return model_row_sum(m, g_tokens(m, d), SET_SEQUENCE);
}
uint32_t g_number(Model *m, double value) {
    return model_const(m, value, KIND_REAL);
}
uint32_t g_int(Model *m, int32_t value) {
    return model_const(m, value, KIND_INT);
}

uint32_t g_attr(Model *m, Op op, Attr attr, uint32_t a, uint32_t b, uint32_t c) {
    return model_node(m, op, &attr, NULL, (uint32_t[]){ a, b, c }, c ? 3 : b ? 2 : 1);
}

uint32_t g_k(Model *m, Op op, uint32_t a, uint32_t b, int32_t k) {
    Attr attr = { .raw = { 0, 0 } };
    attr.k = k;
    return g_attr(m, op, attr, a, b, 0);
}

uint32_t g_reshape(Model *m, uint32_t x, Dims d) {
    return model_reshape(m, x, d.at, d.rank);
}

uint32_t g_broadcast(Model *m, uint32_t x, Dims d, uint32_t row_like) {
    Type type = *model_type(m, x);
    if (row_like)
        type.row = model_type(m, row_like)->row, type.route = model_type(m, row_like)->route;
    memset(type.dim, 0, sizeof type.dim);
    type.rank = (uint8_t)d.rank;
    for (int i = 0; i < d.rank; i++) type.dim[i] = d.at[i];
    return model_broadcast(m, x, &type);
}

uint32_t g_pad(Model *m, uint32_t x, int axis, int32_t at, int32_t size) {
    Type type = *model_type(m, x);
    type.dim[axis] = size;
    Attr attr = { .raw = { 0, 0 } };
    attr.cut.axis = axis, attr.cut.at = at;
    return model_node(m, OP_PAD, &attr, &type, &x, 1);
}

uint32_t g_concat(Model *m, int axis, uint32_t a, uint32_t b) {
    Attr attr = { .raw = { 0, 0 } };
    attr.cut.axis = axis;
    return g_attr(m, OP_CONCAT, attr, a, b, 0);
}
