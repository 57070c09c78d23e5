// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/random.h"

#include "tests/oracle/cases.h"

#include <stdio.h>

enum { POOL = 256, WIDEST = 60 };

typedef struct Growth {
    Model *m;
    uint64_t seed, drawn;
    bool smooth;
    uint32_t pool[POOL];
    bool read[POOL];
    int n;
} Growth;

static int draw(Growth *g, int n) {
    return (int)(hash_uniform(g->seed, 17, g->drawn++) * (float)n) % n;
}

static void keep(Growth *g, uint32_t id) {
    for (int i = 0; i < g->n; i++) {
        if (g->pool[i] == id) return;
    }
    if (id && g->n < POOL && type_features(model_type(g->m, id)) <= WIDEST) g->pool[g->n++] = id;
}

// A value of the pool, newer ones more often.
static int pick(Growth *g) {
    int a = draw(g, g->n), b = draw(g, g->n);
    int i = a > b ? a : b;
    g->read[i] = true;
    return i;
}

static uint32_t real(Growth *g, double x) {
    return model_const(g->m, x, KIND_REAL);
}
static uint32_t scaled(Growth *g, uint32_t x, double by) {
    return x ? model_op2(g->m, OP_MUL, x, real(g, by)) : 0;
}
static uint32_t bounded(Growth *g, uint32_t x) {
    return x ? model_op1(g->m, OP_TANH, x) : 0;
}

static uint32_t grow_map(Growth *g, uint32_t x) {
    Model *m = g->m;
    switch (draw(g, g->smooth ? 5 : 8)) {
    case 0: return model_op1(m, OP_SIGMOID, x);
    case 1: return model_op1(m, OP_ERF, x);
    case 2: return model_op1(m, OP_EXP, bounded(g, x));
    case 3: return model_op1(m, OP_RSQRT, model_op2(m, OP_ADD, model_op2(m, OP_MUL, x, x), real(g, 0.5)));
    case 4: return model_op1(m, OP_RECIP, model_op2(m, OP_ADD, model_op2(m, OP_MUL, x, x), real(g, 1)));
    case 5: return model_op1(m, OP_LOG, model_op2(m, OP_ADD, model_op1(m, OP_ABS, x), real(g, 0.7)));
    case 6: return model_op2(m, OP_MAX, x, real(g, 0));
    default: return model_op3(m, OP_WHERE, model_op2(m, OP_GT, x, real(g, 0.1)), x, scaled(g, x, 0.3));
    }
}

static uint32_t grow_pair(Growth *g, uint32_t x) {
    static const Op ops[] = { OP_ADD, OP_SUB, OP_MUL, OP_MUL, OP_MIN, OP_MAX };
    Op op = ops[draw(g, g->smooth ? 4 : COUNT_OF(ops))];
    for (int tries = 0; tries < 20; tries++) {
        int other = draw(g, g->n);
        uint32_t y = model_op2(g->m, op, draw(g, 2) ? x : g->pool[other], draw(g, 2) ? g->pool[other] : x);
        if (!y) continue;
        g->read[other] = true;
        return bounded(g, y);
    }
    return 0;
}

static uint32_t grow_reduction(Growth *g, uint32_t x) {
    Type type = *model_type(g->m, x);
    if (!type.rank) return 0;
    Attr attr = { 0 };
    attr.axes = 1u << draw(g, type.rank);
    uint32_t y = model_node(g->m, g->smooth || draw(g, 3) ? OP_SUM : OP_AMAX, &attr, NULL, &x, 1);
    switch (draw(g, 3)) {
    case 0: return bounded(g, y);
    case 1: return bounded(g, model_op2(g->m, OP_SUB, x, y)); // as a norm or a softmax reads it
    default: return model_op2(g->m, OP_MUL, x, model_op1(g->m, OP_SIGMOID, y));
    }
}

static uint32_t grow_view(Growth *g, uint32_t x) {
    Type type = *model_type(g->m, x);
    if (!type.rank) return 0;
    int axis = draw(g, type.rank);
    int32_t n = (int32_t)type_features(&type), size = type.dim[axis];
    Attr attr = { 0 };
    switch (draw(g, 6)) {
    case 0: return model_reshape(g->m, x, &n, 1);
    case 1: return model_reshape(g->m, x, (int32_t[]){ n, 1 }, 2);
    case 2: return type.rank >= 2 ? model_op1(g->m, OP_TRANSPOSE, x) : 0;
    case 3: return size > 1 ? model_slice(g->m, x, axis, draw(g, size - 1), 1 + draw(g, size - 1)) : 0;
    case 4:
        attr.cut.axis = axis;
        return model_node(g->m, OP_CONCAT, &attr, NULL, (uint32_t[]){ x, scaled(g, x, 0.5), x }, 2 + draw(g, 2));
    default:
        attr.cut.axis = axis, attr.cut.at = draw(g, 3);
        type.dim[axis] += 3;
        return model_node(g->m, OP_PAD, &attr, &type, &x, 1);
    }
}

static uint32_t grow_rows(Growth *g, uint32_t x) {
    Type type = *model_type(g->m, x);
    Set set = type.row == ROW_T ? (Set[]){ SET_ALL, SET_MICROBATCH, SET_SEQUENCE, SET_GLOBAL }[draw(g, 4)]
              : type.row == ROW_R && draw(g, 2) ? SET_EXPERT
                                                : SET_ALL;
    if (type.row == ROW_NONE) return 0;
    uint32_t y = bounded(g, scaled(g, model_row_sum(g->m, x, set), 0.1));
    if (set == SET_SEQUENCE && draw(g, 2)) return model_broadcast(g->m, y, &type);
    return y;
}

static uint32_t grow_matmul(Growth *g, uint32_t x) {
    Type type = *model_type(g->m, x);
    if (!type.rank || (type.row != ROW_T && type.row != ROW_R)) return 0;
    Attr attr = { 0 };
    attr.mm.over = 1 + (type.row == ROW_T ? draw(g, type.rank) : type.rank - 1); // rows of experts have no middle
    attr.mm.each = type.rank > attr.mm.over && type.row == ROW_T ? draw(g, 2) : 0;
    int32_t dims[MAX_RANK], n = 0;
    for (int i = 0; i < attr.mm.each; i++) dims[n++] = type.dim[i];
    for (int i = type.rank - attr.mm.over; i < type.rank; i++) dims[n++] = type.dim[i];
    if (n + 2 > MAX_RANK) return 0;
    dims[n++] = 1 + draw(g, 7);
    if (draw(g, 3) == 0) dims[n++] = 2;
    uint32_t w = case_param(g->m, false, dims, n, type.row == ROW_R ? case_route(g->m) : 0);
    return bounded(g, model_node(g->m, OP_MATMUL, &attr, NULL, (uint32_t[]){ x, w }, 2));
}

static uint32_t grow_move(Growth *g, uint32_t x) {
    Model *m = g->m;
    Type type = *model_type(m, x);
    Attr attr = { 0 };
    if (type.row == ROW_R) {
        uint32_t y = model_op2(m, OP_COLLECT, x, case_route(m));
        return draw(g, 2) ? y : model_sum(m, y, 1);
    }
    if (type.row != ROW_T) return 0;
    if (draw(g, 2) && type.rank < MAX_RANK) { // to the experts
        Type wide = type;
        memmove(wide.dim + 1, type.dim, sizeof *type.dim * type.rank);
        wide.dim[0] = CASE_TOP_K, wide.rank++;
        int32_t unit[MAX_RANK] = { 1 };
        memcpy(unit + 1, type.dim, sizeof *type.dim * type.rank);
        uint32_t copies = model_broadcast(m, model_reshape(m, x, unit, type.rank + 1), &wide);
        return model_op2(m, OP_DISPATCH, copies, case_route(m));
    }
    attr.k = draw(g, 7) - 3;
    return model_node(m, OP_SHIFT, &attr, NULL, (uint32_t[]){ x, model_generator(m, OP_SEGMENTS, 0, NULL, 0) }, 2);
}

static uint32_t grow_attention(Growth *g, uint32_t x) {
    Type type = *model_type(g->m, x);
    if (type.row != ROW_T || type.rank != 2) return 0;
    Attr attr = { 0 };
    attr.attend.scale = 0.5f, attr.attend.causal = (uint8_t)draw(g, 2),
    attr.attend.window = draw(g, 2) * (1 + draw(g, 4));
    if (!attr.attend.causal) attr.attend.window = 0;
    uint32_t k = draw(g, 2) ? x : case_leaf(g->m, ROW_T, (int32_t[]){ 1, type.dim[1] }, 2);
    uint32_t v = case_leaf(g->m, ROW_T, (int32_t[]){ model_type(g->m, k)->dim[0], 1 + draw(g, 5) }, 2);
    return model_node(g->m, OP_ATTEND, &attr, NULL,
                      (uint32_t[]){ x, k, v, model_generator(g->m, OP_SEGMENTS, 0, NULL, 0) }, 4);
}

static uint32_t grow_gather(Growth *g, uint32_t x) {
    Type type = *model_type(g->m, x);
    if (type.row != ROW_T || !type.rank || type.dim[type.rank - 1] < 2) return 0;
    Attr attr = { 0 };
    attr.k = 1 + draw(g, 2);
    uint32_t noise = model_generator(g->m, OP_UNIFORM, (int32_t)model_intern(g->m, "noise"), type.dim, type.rank);
    uint32_t ids = model_node(g->m, OP_TOP_K, &attr, NULL, &noise, 1);
    return model_op2(g->m, OP_GATHER, x, ids);
}

static uint32_t grow(Growth *g) {
    static uint32_t (*const ways[])(Growth *, uint32_t) = {
        grow_map,  grow_map,    grow_pair,   grow_pair, grow_pair, grow_reduction, grow_view,   grow_view,
        grow_rows, grow_matmul, grow_matmul, grow_move, grow_move, grow_attention, grow_gather,
    };
    uint32_t y = 0;
    while (!y) {
        uint32_t x = g->pool[pick(g)];
        y = ways[draw(g, COUNT_OF(ways))](g, x);
    }
    return y;
}

static void end(Growth *g, uint32_t id) {
    char loss[48], weights[48];
    snprintf(loss, sizeof loss, "loss%u", g->m->n_losses);
    snprintf(weights, sizeof weights, "weights%u", g->m->n_losses);
    add_loss(g->m, loss, scalar_of(g->m, id, weights), 0.5);
}

// Does a loss depend on the node?
static bool is_read(const Model *m, uint32_t node) {
    bool *live = ARENA_ARRAY(m->arena, bool, m->n_nodes);
    for (uint32_t i = 0; i < m->n_losses; i++) live[m->losses[i].node] = true;
    for (uint32_t id = m->n_nodes - 1; id > node; id--) {
        for (int i = 0; live[id] && i < m->nodes[id].n_args; i++) live[model_arg(m, id, i)] = true;
    }
    return live[node];
}

Model *random_model(uint64_t seed, int n_ops, int32_t sequence, bool smooth) {
    char name[32];
    snprintf(name, sizeof name, "random%llu", (unsigned long long)seed);
    Model *m = case_start("random", sequence);
    Growth g = { .m = m, .seed = seed, .smooth = smooth };
    m->addr = model_intern(m, name);
    keep(&g, case_leaf(m, ROW_T, (int32_t[]){ 6 }, 1));
    keep(&g, case_leaf(m, ROW_T, (int32_t[]){ 2, 4 }, 2));
    keep(&g, case_leaf(m, ROW_R, (int32_t[]){ 5 }, 1));
    keep(&g, case_leaf(m, ROW_E, (int32_t[]){ 5 }, 1));
    keep(&g, case_leaf(m, ROW_NONE, (int32_t[]){ 6 }, 1));
    for (int i = 0; i < n_ops; i++) keep(&g, grow(&g));
    for (int i = 0; i < g.n; i++) {
        if (!g.read[i] || draw(&g, 6) == 0) end(&g, g.pool[i]);
    }
    for (uint32_t i = 0; i < m->n_params; i++) { // what only dropped values read
        if (!m->params[i].is_state && !is_read(m, m->params[i].node)) end(&g, m->params[i].node);
    }
    return m;
}
