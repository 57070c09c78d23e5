// SPDX-License-Identifier: Apache-2.0
// Small graphs by hand. Leaves along tokens are `uniform` nodes, so that they carry a name.
#include "helper.h"

#include <stdio.h>

static int rank_of(const int32_t *dims) {
    int rank = 0;
    while (dims[rank]) rank++;
    return rank;
}

Type type_of_dims(RowKind row, const int32_t *dims) {
    Type type = { .kind = KIND_REAL, .row = (uint8_t)row, .rank = (uint8_t)rank_of(dims) };
    for (int i = 0; i < type.rank; i++) type.dim[i] = dims[i];
    return type;
}

uint32_t leaf(Model *m, const char *name, const int32_t *dims, RowKind row, uint32_t route) {
    uint32_t addr = model_intern(m, name);
    if (row == ROW_T) return model_generator(m, OP_UNIFORM, (int32_t)addr, dims, rank_of(dims));
    return model_param(m, addr, true, dims, rank_of(dims), route); // a state: no gradient
}

uint32_t param(Model *m, const char *name, const int32_t *dims, uint32_t route) {
    return model_param(m, model_intern(m, name), false, dims, rank_of(dims), route);
}

uint32_t node_k(Model *m, Op op, int32_t k, uint32_t a, uint32_t b) {
    Attr attr = { .raw = { 0, 0 } };
    attr.k = k;
    return model_node(m, op, &attr, NULL, (uint32_t[]){ a, b }, b ? 2 : 1);
}

uint32_t ids_of(Model *m, int32_t k) { return node_k(m, OP_TOP_K, k, TOKENS_OF(m, "score", 8), 0); }

uint32_t route_of(Model *m, int32_t k, int32_t experts) {
    Attr attr = { .raw = { 0, 0 } };
    attr.route.experts = experts;
    uint32_t ids = ids_of(m, k);
    return model_node(m, OP_ROUTE, &attr, NULL, &ids, 1);
}

uint32_t rows_of_route(Model *m, const char *name, uint32_t route, int32_t n) {
    Type rows = { .row = ROW_R, .route = route };
    uint32_t x = LEAF(m, name, ROW_T, 0, model_top_k(m, &rows), n);
    return model_op2(m, OP_DISPATCH, x, route);
}

uint32_t matmul(Model *m, Op op, int over, int each, uint32_t x, uint32_t w) {
    Attr attr = { .raw = { 0, 0 } };
    attr.mm.over = over;
    attr.mm.each = each;
    return model_node(m, op, &attr, NULL, (uint32_t[]){ x, w }, 2);
}

uint32_t attend(Model *m, uint32_t q, uint32_t k, uint32_t v, uint32_t sinks, int32_t window) {
    Attr attr = { .raw = { 0, 0 } };
    attr.attend.scale = 0.125f;
    attr.attend.causal = 1;
    attr.attend.window = window;
    uint32_t segments = model_generator(m, OP_SEGMENTS, 0, NULL, 0);
    return model_node(m, OP_ATTEND, &attr, NULL, (uint32_t[]){ q, k, v, segments, sinks },
                      sinks ? 5 : 4);
}

uint32_t cut(Model *m, Op op, int axis, int at, int size, uint32_t x) {
    Attr attr = { .raw = { 0, 0 } };
    attr.cut.axis = axis;
    attr.cut.at = at;
    Type to = *model_type(m, x);
    if (axis >= 0 && axis < to.rank) to.dim[axis] = size;
    return model_node(m, op, &attr, &to, &x, 1);
}

uint32_t concat(Model *m, int axis, const uint32_t *parts, int n) {
    Attr attr = { .raw = { 0, 0 } };
    attr.cut.axis = axis;
    return model_node(m, OP_CONCAT, &attr, NULL, parts, n);
}

static void write(Model *m, uint32_t id, Text *out) {
    const Node *n = model_at(m, id);
    if (n->op == OP_CONST) {
        text_add_decimal(out, n->attr.num);
        return;
    }
    if (n->op == OP_PARAM || n->op == OP_STATE || n->op == OP_UNIFORM) {
        text_add(out, model_name(m, n->op == OP_UNIFORM ? n->attr.index : n->addr));
        return;
    }
    text_add(out, op_info[n->op].name);
    if (!n->n_args) return;
    text_add(out, "(");
    for (int i = 0; i < n->n_args; i++) {
        if (i) text_add(out, ", ");
        write(m, model_arg(m, id, i), out);
    }
    text_add(out, ")");
}

const char *text_of(Model *m, uint32_t id) {
    if (!id) return m->diag.message;
    Text out = { 0 };
    write(m, id, &out);
    const char *text = arena_strdup(m->arena, text_cstr(&out));
    text_finish(&out);
    return text;
}

const char *type_text(Model *m, uint32_t id) {
    static const char *const kinds[] = { "real", "int", "bool", "route", "effect" };
    if (!id) return m->diag.message;
    Text out = { 0 };
    text_printf(&out, "%s ", kinds[model_type(m, id)->kind]);
    type_print(m, model_type(m, id), &out);
    const char *text = arena_strdup(m->arena, text_cstr(&out));
    text_finish(&out);
    return text;
}

int count_op(const Model *m, Op op) {
    int n = 0;
    for (uint32_t id = 1; id < m->n_nodes; id++) n += m->nodes[id].op == op;
    return n;
}

uint32_t find_op(const Model *m, Op op) {
    for (uint32_t id = m->n_nodes - 1; id > 0; id--) {
        if (m->nodes[id].op == op) return id;
    }
    return 0;
}
