// SPDX-License-Identifier: Apache-2.0
// See rows_case.h.
#include "tests/kernels/rows_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const float untouched = -12345.678f;

/* The group ------------------------------------------------------------------------------------ */

typedef struct Collector {
    RowsCase *c;
    const RowsHow *how;
    uint8_t row;
    uint8_t *state; // by node: 1 computed, 2 loaded
    uint8_t *far;   // by node: read at any row
} Collector;

static void add_load(Collector *g, uint32_t node, int what, int dtype, int32_t partials) {
    KernelDesc *d = &g->c->desc;
    for (uint32_t i = 0; i < d->body.n_loads; i++) {
        if (g->c->loads[i].node == node && g->c->loads[i].what == what) return;
    }
    if (d->body.n_loads == 16) fail_msg("%s: too many loads", g->c->name);
    g->c->loads[d->body.n_loads++] = (RowLoad){ node, (uint8_t)what, (uint8_t)dtype, partials };
}

static int64_t rows_of(const RowsCase *c, uint8_t row, uint32_t route) {
    const Model *m = c->m;
    switch (row) {
    case ROW_T: return c->batch.tokens;
    case ROW_S: return c->batch.tokens / c->batch.sequence;
    case ROW_R:
        return c->batch.tokens * m->nodes[model_arg(m, route, 0)].type.dim[0] + 5; // 5 never exist
    case ROW_E: return m->nodes[route].attr.route.experts;
    default: return 1;
    }
}

static void load_node(Collector *g, uint32_t node) {
    const Model *m = g->c->m;
    const Type *t = model_type(m, node);
    bool sum = op_info[m->nodes[node].op].class == CLASS_PARTIAL;
    const Type *x = sum ? model_type(m, model_arg(m, node, 0)) : NULL;
    if (sum && g->how->partials && t->row == ROW_NONE) {
        int64_t tiles = div_up(rows_of(g->c, x->row, x->route), ROW_TILE);
        add_load(g, node, WHAT_PARTIALS, DTYPE_F32, (int32_t)tiles);
    } else {
        bool real = t->kind == KIND_REAL && m->nodes[node].op != OP_VALID;
        add_load(g, node, WHAT_VALUE, real ? DTYPE_F32 : DTYPE_I32, 0);
    }
}

static uint32_t view_base(const Model *m, uint32_t node) {
    while (op_info[m->nodes[node].op].class == CLASS_VIEW) node = model_arg(m, node, 0);
    return node;
}

static bool is_loaded(const Collector *g, uint32_t node, bool root) {
    const Node *n = model_at(g->c->m, node);
    int class = op_info[n->op].class;
    bool other_row = n->type.row != g->row && n->type.row != ROW_NONE;
    if (class == CLASS_VIEW) return false;
    return g->far[node] || class == CLASS_CONTRACT || (class == CLASS_PARTIAL && !root) ||
           n->op == OP_PARAM || n->op == OP_STATE ||
           (class == CLASS_GENERATOR && n->op != OP_INV_STEP && n->op != OP_UNIFORM) ||
           (other_row && class != CLASS_SOURCE);
}

static void visit(Collector *g, uint32_t node, bool root) {
    const Model *m = g->c->m;
    const Node *n = model_at(m, node);
    if (g->state[node] || n->type.kind == KIND_ROUTE || n->op == OP_CONST || n->op == OP_CONSTANT)
        return;
    if (is_loaded(g, node, root)) {
        g->state[node] = 2;
        load_node(g, node);
        return;
    }
    g->state[node] = 1;
    if (n->op == OP_UNIFORM) add_load(g, node, WHAT_INDEX, DTYPE_I32, 0);
    if (n->op == OP_UNIFORM || n->op == OP_INV_STEP) {
        add_load(g, node, WHAT_SCALARS, DTYPE_F32, 0);
        return;
    }
    if (n->op == OP_DISPATCH) add_load(g, model_arg(m, node, 1), WHAT_SLOT_OF_ROW, DTYPE_I32, 0);
    if (n->op == OP_COLLECT) add_load(g, model_arg(m, node, 1), WHAT_ROW_OF_SLOT, DTYPE_I32, 0);
    for (int i = 0; i < n->n_args; i++) visit(g, model_arg(m, node, i), false);
}

// Far operands first: they are loads even where they could be computed.
static void find_far(Collector *g) {
    const Model *m = g->c->m;
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        if (op_info[m->nodes[id].op].class == CLASS_INDEX)
            g->far[view_base(m, model_arg(m, id, 0))] = 1;
    }
}

KernelDesc rows_desc(RowsCase *c, Arena *arena, const uint32_t *roots, int n_roots,
                     const RowsHow *how) {
    Model *m = c->m;
    const Node *first = model_at(m, roots[0]);
    bool partial = op_info[first->op].class == CLASS_PARTIAL && !how->partials;
    const Type *type = partial ? model_type(m, model_arg(m, roots[0], 0)) : &first->type;
    Collector g = { .c = c, .how = how, .row = type->row };
    g.state = ARENA_ARRAY(arena, uint8_t, m->n_nodes);
    g.far = ARENA_ARRAY(arena, uint8_t, m->n_nodes);
    RowBody *b = &c->desc.body;
    *b = (RowBody){
        .model = m, .row = type->row, .route = type->route, .loads = c->loads, .stores = c->stores
    };
    find_far(&g);
    for (int i = 0; i < n_roots; i++) visit(&g, roots[i], partial);
    if (type->row == ROW_R) add_load(&g, type->route, WHAT_OFFSETS, DTYPE_I32, 0);
    uint32_t *nodes = ARENA_ARRAY(arena, uint32_t, m->n_nodes);
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        if (g.state[id] == 1 && op_info[m->nodes[id].op].class != CLASS_PARTIAL)
            nodes[b->n_nodes++] = id;
    }
    b->nodes = nodes;
    for (int i = 0; i < n_roots; i++) {
        bool real = model_type(m, roots[i])->kind == KIND_REAL;
        c->stores[b->n_stores++] = (RowStore){ .node = roots[i],
                                               .dtype = real ? DTYPE_F32 : DTYPE_I32,
                                               .partial = partial,
                                               .add = how->add && !partial };
    }
    c->desc.family = FAMILY_ROW;
    c->desc.rows = rows_of(c, type->row, type->route);
    c->desc.sequence = c->batch.sequence;
    if (type->route) c->desc.experts = m->nodes[type->route].attr.route.experts;
    return c->desc;
}

/* Cases ---------------------------------------------------------------------------------------- */

void rows_open(Rows *rows) {
    memset(rows, 0, sizeof *rows);
    lab_open(&rows->lab);
}

RowsCase *rows_add(Rows *rows, const char *name, Model *m, const uint32_t *roots, int n_roots,
                   const RowsHow *how) {
    static const RowsHow plain;
    if (!how) how = &plain;
    for (int i = 0; i < n_roots; i++) {
        if (!roots[i]) fail_msg("%s: root %d: %s", name, i, m->diag.message);
    }
    assert_true(rows->n < ROWS_MAX_CASES);
    RowsCase *c = calloc(1, sizeof *c);
    rows->cases[rows->n++] = c;
    c->name = name;
    c->m = m;
    c->bound = how->bound > 0 ? how->bound : 1e-5;
    int32_t tokens = how->tokens ? how->tokens : 100;
    c->batch =
        batch_make((uint64_t)rows->n, tokens, how->sequence ? how->sequence : tokens, 11, 1000);
    c->interp = interp_create(m);
    c->interp->seed = 77, c->interp->step = 5;
    interp_fill(c->interp, (uint64_t)rows->n, 1.0);
    if (how->fill) how->fill(c->interp);
    rows_desc(c, m->arena, roots, n_roots, how);
    c->kernel = lab_add(&rows->lab, &c->desc);
    return c;
}

/* Numbers -------------------------------------------------------------------------------------- */

static int32_t *ints_of(const int32_t *from, int64_t n) {
    int32_t *to = lab_array(n);
    memcpy(to, from, (size_t)n * 4);
    return to;
}

static void *value_array(const RowsCase *c, uint32_t node, int dtype) {
    const Node *n = model_at(c->m, node);
    if (n->op == OP_VALID) return ints_of(c->batch.labels[1], c->batch.tokens);
    const Value *v = &c->interp->values[node];
    int64_t rows = rows_of(c, n->type.row, n->type.route), features_n = type_features(&n->type);
    float *to = lab_array(rows * features_n);
    for (int64_t i = 0; i < rows * features_n; i++) {
        int32_t whole = 1 << 30;
        if (i < v->rows * v->n && dtype == DTYPE_I32) whole = (int32_t)v->x[i];
        float real = i < v->rows * v->n ? (float)v->x[i] : NAN;
        memcpy(&to[i], dtype == DTYPE_I32 ? (void *)&whole : (void *)&real, 4);
    }
    return to;
}

static void *records_array(const RowsCase *c, uint32_t node, int32_t tiles) {
    uint32_t x = model_arg(c->m, node, 0);
    const Value *v = &c->interp->values[x];
    float *to = lab_array(tiles * v->n);
    bool max = c->m->nodes[node].op == OP_ROW_MAX;
    for (int64_t t = 0; t < tiles; t++) {
        for (int64_t j = 0; j < v->n; j++) {
            double sum = max ? -INFINITY : 0;
            for (int64_t row = t * ROW_TILE; row < min_i64((t + 1) * ROW_TILE, v->rows); row++) {
                double one = v->x[row * v->n + j];
                sum = max ? fmax(sum, one) : sum + one;
            }
            int32_t none = -1;
            to[t * v->n + j] = (float)sum;
            if (max && t * ROW_TILE >= v->rows) memcpy(&to[t * v->n + j], &none, 4);
        }
    }
    return to;
}

static void *scalars_array(const RowsCase *c) {
    float *to = lab_filled(N_SCALARS, NAN);
    to[SCALAR_inv_step] = (float)c->interp->inv_step;
    memcpy(&to[SCALAR_seed], &c->interp->seed, 4);
    memcpy(&to[SCALAR_step], &c->interp->step, 4);
    return to;
}

static void *offsets_array(const RowsCase *c, const RouteMap *route) {
    int32_t *to = lab_array(route->experts + 1);
    int64_t row = 0;
    for (int e = 0; e <= route->experts; e++) {
        while (row < route->rows && route->expert_of_row[row] < e) row++;
        to[e] = (int32_t)row;
    }
    (void)c;
    return to;
}

static void *load_array(const RowsCase *c, const RowLoad *l) {
    const RouteMap *route = &c->interp->routes[l->node];
    switch (l->what) {
    case WHAT_VALUE: return value_array(c, l->node, l->dtype);
    case WHAT_PARTIALS: return records_array(c, l->node, l->partials);
    case WHAT_SCALARS: return scalars_array(c);
    case WHAT_INDEX: return ints_of(c->batch.index, c->batch.tokens);
    case WHAT_OFFSETS: return offsets_array(c, route);
    case WHAT_SLOT_OF_ROW: {
        int32_t *to = lab_array(route->slots + 5);
        for (int64_t i = 0; i < route->slots + 5; i++)
            to[i] = i < route->rows ? (int32_t)route->slot_of_row[i] : 1 << 30;
        return to;
    }
    default: {
        int32_t *to = lab_array(route->slots);
        for (int64_t i = 0; i < route->slots; i++) to[i] = (int32_t)route->row_of_slot[i];
        return to;
    }
    }
}

/* Comparison ----------------------------------------------------------------------------------- */

static void compare_numbers(const RowsCase *c, int store, const float *got, const Value *want,
                            double start, double bound) {
    const RowStore *s = &c->stores[store];
    int64_t all = lab_count(got), exists = want->rows * want->n;
    double most = 0;
    for (int64_t i = 0; i < exists; i++) {
        if (isfinite(want->x[i])) most = fmax(most, fabs(want->x[i]));
    }
    for (int64_t i = 0; i < all; i++) {
        int32_t whole;
        memcpy(&whole, &got[i], 4);
        if (i >= exists) {
            float old = s->add ? (float)start : untouched;
            if (memcmp(&got[i], &old, 4))
                fail_msg("%s: store %d wrote number %lld of a row that does not exist", c->name,
                         store, (long long)i);
        } else if (s->dtype == DTYPE_I32) {
            if (whole != (int32_t)want->x[i])
                fail_msg("%s: store %d[%lld]: expected %d, found %d", c->name, store, (long long)i,
                         (int32_t)want->x[i], whole);
        } else if (isfinite(want->x[i])) {
            double expected = start + want->x[i];
            if (!(fabs(got[i] - expected) <= bound * fmax(most, 1e-30) + fabs(start) * 1e-6)) {
                fail_msg("%s: store %d[%lld] of %lld: expected %.9g, found %.9g (largest %.3g)",
                         c->name, store, (long long)i, (long long)exists, expected, got[i], most);
            }
        } else if (isnan(want->x[i]) ? !isnan(got[i]) : got[i] != want->x[i]) {
            fail_msg("%s: store %d[%lld]: expected %g, found %g", c->name, store, (long long)i,
                     want->x[i], got[i]);
        }
    }
}

// Records are summed here; a record of a tile without rows is zero, or the mark of no rows.
static void compare_records(const RowsCase *c, int store, const float *got) {
    uint32_t node = c->stores[store].node;
    const Value *x = &c->interp->values[model_arg(c->m, node, 0)], *want = &c->interp->values[node];
    bool max = c->m->nodes[node].op == OP_ROW_MAX;
    int64_t tiles = div_up(c->desc.rows, ROW_TILE), n = want->n;
    for (int64_t j = 0; j < n; j++) {
        double total = max ? -INFINITY : 0, size = 1e-30;
        for (int64_t t = 0; t < tiles; t++) {
            float record = got[t * n + j];
            int32_t bits;
            memcpy(&bits, &record, 4);
            if (t * ROW_TILE >= x->rows)
                assert_int_equal(bits, max ? -1 : 0);
            else
                total = max ? fmax(total, record) : total + record;
        }
        for (int64_t row = 0; row < x->rows; row++) size += fabs(x->x[row * n + j]);
        if (max && !x->rows) continue;
        lab_near(total, want->x[j], c->bound * size, c->name, j);
    }
}

static void run(Rows *rows, RowsCase *c) {
    static char names[2][16][8];
    Binding b[32];
    int n = 0;
    interp_run(c->interp, &c->batch, 1);
    const RowBody *body = &c->desc.body;
    for (uint32_t i = 0; i < body->n_loads; i++) {
        snprintf(names[0][i], 8, "l%u", i);
        b[n++] = (Binding){ names[0][i], c->loads[i].dtype, true, load_array(c, &c->loads[i]) };
    }
    for (uint32_t i = 0; i < body->n_stores; i++) {
        const RowStore *s = &c->stores[i];
        int64_t per_row = type_features(model_type(c->m, s->node));
        int64_t count = s->partial ? div_up(c->desc.rows, ROW_TILE) : c->desc.rows;
        snprintf(names[1][i], 8, "s%u", i);
        b[n++] = (Binding){ names[1][i], s->dtype, false,
                            lab_filled(count * per_row, s->add ? 0.75f : untouched) };
    }
    lab_run(&rows->lab, c->kernel, b, n);
    for (uint32_t i = 0; i < body->n_stores; i++) {
        const float *got = b[body->n_loads + i].at;
        if (c->stores[i].partial)
            compare_records(c, (int)i, got);
        else
            compare_numbers(c, (int)i, got, &c->interp->values[c->stores[i].node],
                            c->stores[i].add ? 0.75 : 0, c->bound);
    }
    for (int i = 0; i < n; i++) lab_free(b[i].at);
}

void rows_check(Rows *rows) {
    lab_compile(&rows->lab);
    for (int i = 0; i < rows->n; i++) run(rows, rows->cases[i]);
    lab_close(&rows->lab);
    for (int i = 0; i < rows->n; i++) {
        batch_free(&rows->cases[i]->batch);
        interp_destroy(rows->cases[i]->interp);
        model_destroy(rows->cases[i]->m);
        free(rows->cases[i]);
    }
}
