// SPDX-License-Identifier: Apache-2.0
// Leaves and the table of one-operation graphs.
#include "tests/oracle/cases.h"

#include <math.h>
#include <stdio.h>

#define DIMS(...) (const int32_t[]){ __VA_ARGS__ }, COUNT_OF(((const int32_t[]){ __VA_ARGS__ }))

static uint32_t int_const(Model *m, int value) {
    return model_const(m, value, KIND_INT);
}
static uint32_t real(Model *m, double value) {
    return model_const(m, value, KIND_REAL);
}

/* Leaves: values of each row axis that depend on a parameter ------------------------------------------- */

uint32_t case_param(Model *m, bool is_state, const int32_t *dims, int rank, uint32_t route) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s%u", model_name(m, m->addr), is_state ? "c" : "p", m->n_params);
    return model_param(m, model_intern(m, name), is_state, dims, rank, route);
}

static uint32_t tokens(Model *m, int k) {
    return model_generator(m, OP_TOKENS, k, NULL, 0);
}

static uint32_t segments(Model *m) {
    return model_generator(m, OP_SEGMENTS, 0, NULL, 0);
}

static uint32_t on_none(Model *m, const int32_t *dims, int rank) {
    return case_param(m, false, dims, rank, 0);
}

static uint32_t on_t(Model *m, const int32_t *dims, int rank) {
    int32_t table[MAX_RANK] = { CASE_VOCAB };
    for (int i = 0; i < rank; i++) table[i + 1] = dims[i];
    return model_op2(m, OP_EMBED, case_param(m, false, table, rank + 1, 0), tokens(m, 0));
}

static uint32_t on_s(Model *m, const int32_t *dims, int rank) {
    return model_row_sum(m, on_t(m, dims, rank), SET_SEQUENCE);
}

// int [T, 3]: expert 3 gets nothing; -1, ids past the last expert and duplicates within a token occur.
static uint32_t ids(Model *m) {
    static const double choice[CASE_TOP_K] = { 0, 1, 2 };
    uint32_t id = model_reshape(m, tokens(m, 0), DIMS(1));
    uint32_t first = model_op2(m, OP_MOD, id, int_const(m, 3));
    uint32_t other = model_op2(m, OP_SUB, model_op2(m, OP_MOD, id, int_const(m, 4)), int_const(m, 1));
    uint32_t last = model_op2(m, OP_ADD, model_op2(m, OP_IDIV, id, int_const(m, 3)), int_const(m, 3));
    last = model_op3(m, OP_WHERE, model_op2(m, OP_EQ, last, int_const(m, 3)), int_const(m, 4), last);
    uint32_t k = model_constant(m, choice, CASE_TOP_K);
    uint32_t tail = model_op3(m, OP_WHERE, model_op2(m, OP_LT, k, real(m, 1.5)), other, last);
    return model_op3(m, OP_WHERE, model_op2(m, OP_LT, k, real(m, 0.5)), first, tail);
}

uint32_t case_route(Model *m) {
    Attr attr = { 0 };
    attr.route.experts = CASE_EXPERTS;
    uint32_t from = ids(m);
    return model_node(m, OP_ROUTE, &attr, NULL, &from, 1);
}

static uint32_t per_choice(Model *m, const int32_t *dims, int rank) {
    int32_t wide[MAX_RANK] = { CASE_TOP_K };
    for (int i = 0; i < rank; i++) wide[i + 1] = dims[i];
    return on_t(m, wide, rank + 1);
}

static uint32_t on_r(Model *m, const int32_t *dims, int rank) {
    return model_op2(m, OP_DISPATCH, per_choice(m, dims, rank), case_route(m));
}

static uint32_t on_e(Model *m, const int32_t *dims, int rank) {
    return case_param(m, false, dims, rank, case_route(m));
}

uint32_t case_leaf(Model *m, RowKind row, const int32_t *dims, int rank) {
    switch (row) {
    case ROW_T: return on_t(m, dims, rank);
    case ROW_R: return on_r(m, dims, rank);
    case ROW_E: return on_e(m, dims, rank);
    case ROW_S: return on_s(m, dims, rank);
    default: return on_none(m, dims, rank);
    }
}

/* The scalar --------------------------------------------------------------------------------------------- */

static uint32_t uniform(Model *m, const int32_t *dims, int rank) {
    return model_generator(m, OP_UNIFORM, 0, dims, rank);
}

// Fixed numbers of a type.
static uint32_t numbers_like(Model *m, Type type) {
    switch (type.row) {
    case ROW_T: return uniform(m, type.dim, type.rank);
    case ROW_S: return model_row_sum(m, uniform(m, type.dim, type.rank), SET_SEQUENCE);
    case ROW_R: {
        int32_t wide[MAX_RANK] = { CASE_TOP_K };
        for (int i = 0; i < type.rank; i++) wide[i + 1] = type.dim[i];
        return model_op2(m, OP_DISPATCH, uniform(m, wide, type.rank + 1), type.route);
    }
    default: return case_param(m, true, type.dim, type.rank, type.row == ROW_E ? type.route : 0);
    }
}

uint32_t scalar_of(Model *m, uint32_t y, const char *name) {
    Type type = *model_type(m, y);
    uint32_t before = m->addr;
    char address[96];
    snprintf(address, sizeof address, "%s.%s", model_name(m, before), name);
    m->addr = model_intern(m, address);
    uint32_t z = model_op2(m, OP_MUL, y, numbers_like(m, type));
    if (type.rank) z = model_sum(m, z, (1u << type.rank) - 1);
    if (type.rank) z = model_reshape(m, z, NULL, 0);
    if (type.row != ROW_NONE) z = model_row_sum(m, z, SET_ALL);
    m->addr = before;
    return z;
}

void add_loss(Model *m, const char *name, uint32_t node, double weight) {
    Loss *loss = ARENA_PUSH(m->arena, m->losses, m->n_losses, m->cap_losses);
    *loss = (Loss){ .node = node, .addr = model_intern(m, name), .weight = weight };
}

Model *case_start(const char *name, int32_t sequence) {
    Model *m = model_create();
    m->name = name;
    m->vocab = CASE_VOCAB, m->width = 1, m->sequence = sequence;
    return m;
}

bool case_add(Model *m, const Case *c) {
    m->addr = model_intern(m, c->name);
    uint32_t y = c->build(m, c->a, c->b);
    uint32_t loss = y ? scalar_of(m, y, "weights") : 0;
    if (!loss) {
        fprintf(stderr, "case %s: %s\n  hint: %s\n", c->name, m->diag.message, m->diag.hint);
        return false;
    }
    add_loss(m, c->name, loss, 1);
    return true;
}

Model *case_model(const Case *c, int32_t sequence) {
    Model *m = case_start(c->name, sequence);
    if (case_add(m, c)) return m;
    model_destroy(m);
    return NULL;
}

bool case_owns(const Case *c, const char *address) {
    size_t n = strlen(c->name);
    return !strncmp(c->name, address, n) && (address[n] == '.' || !address[n]) && !strchr(address + n + 1, '.');
}

/* Maps -------------------------------------------------------------------------------------------------- */

static uint32_t unary(Model *m, int op, int shape) {
    switch (shape) {
    case 0: return model_op1(m, (Op)op, on_t(m, DIMS(3, 5)));
    case 1: return model_op1(m, (Op)op, on_r(m, DIMS(4)));
    case 2: return model_op1(m, (Op)op, on_e(m, DIMS(3)));
    case 3: return model_op1(m, (Op)op, on_s(m, DIMS(2)));
    case 4: return model_op1(m, (Op)op, on_none(m, DIMS(19)));
    default: return model_op1(m, (Op)op, on_t(m, NULL, 0));
    }
}

static uint32_t binary(Model *m, int op, int shape) {
    uint32_t a, b;
    switch (shape) {
    case 0: a = on_t(m, DIMS(3, 5)), b = on_t(m, DIMS(3, 5)); break;
    case 1: a = on_t(m, DIMS(3, 5)), b = on_none(m, DIMS(5)); break;
    case 2: a = on_none(m, DIMS(3, 1)), b = on_t(m, DIMS(5)); break;
    case 3: a = on_t(m, DIMS(3, 1)), b = on_t(m, DIMS(1, 17)); break;
    case 4: a = on_r(m, DIMS(5)), b = on_e(m, DIMS(5)); break;
    case 5: a = on_e(m, DIMS(3, 1)), b = on_r(m, DIMS(7)); break;
    case 6: a = on_e(m, DIMS(5)), b = on_none(m, NULL, 0); break;
    case 7: a = on_none(m, DIMS(3, 5)), b = on_none(m, DIMS(5)); break;
    case 8: a = on_s(m, DIMS(2)), b = on_s(m, NULL, 0); break;
    case 9: a = on_t(m, NULL, 0), b = on_t(m, DIMS(2, 3)); break;
    default: a = b = on_t(m, DIMS(5)); break; // one operand twice
    }
    return a && b ? model_op2(m, (Op)op, a, b) : 0;
}

static uint32_t where(Model *m, int shape, int b) {
    (void)b;
    uint32_t u = uniform(m, DIMS(3, 1));
    if (shape == 0)
        return model_op3(m, OP_WHERE, model_op2(m, OP_LT, u, real(m, 0.4)), on_t(m, DIMS(3, 5)), on_none(m, DIMS(5)));
    // Masked by -inf, as a softmax over some of the experts: exp and its gradient are 0 there, not NaN.
    return model_op1(
        m, OP_EXP,
        model_op3(m, OP_WHERE, model_op2(m, OP_LT, u, real(m, 0.4)), on_t(m, DIMS(3, 5)), real(m, -INFINITY)));
}

static uint32_t cast(Model *m, int precision, int row) {
    Attr attr = { 0 };
    attr.precision = (uint8_t)precision;
    uint32_t x = case_leaf(m, (RowKind)row, DIMS(5));
    return model_node(m, OP_CAST, &attr, NULL, &x, 1);
}

static uint32_t rotate(Model *m, int pairs, int sign) {
    static const double freq[3] = { 1, 0.31, 0.007 };
    Attr attr = { 0 };
    attr.turn.factor = 1.25f, attr.turn.sign = (int8_t)sign, attr.turn.pairs = (uint8_t)pairs;
    uint32_t args[3] = { on_t(m, DIMS(2, 8)), model_constant(m, freq, 3),
                         model_generator(m, OP_POSITIONS, 0, NULL, 0) };
    return model_node(m, OP_ROTATE, &attr, NULL, args, 3);
}

/* Shapes ------------------------------------------------------------------------------------------------- */

static Type with_axis(Type type, int axis, int32_t size) {
    type.dim[axis] = size;
    return type;
}

static uint32_t cut(Model *m, int op, int axis) {
    uint32_t x = axis == 2 ? on_r(m, DIMS(3, 5, 2)) : on_t(m, DIMS(3, 5, 2));
    Attr attr = { 0 };
    attr.cut.axis = axis % 3, attr.cut.at = 1;
    int32_t size = model_type(m, x)->dim[axis % 3];
    Type type = with_axis(*model_type(m, x), axis % 3, op == OP_SLICE ? max_i64(1, size - 2) : size + 4);
    if (op == OP_SLICE && size == 2) attr.cut.at = 1;
    return model_node(m, (Op)op, &attr, &type, &x, 1);
}

static uint32_t concat(Model *m, int axis, int twice) {
    Attr attr = { 0 };
    attr.cut.axis = axis;
    uint32_t a = on_t(m, DIMS(3, 5)), b = axis ? on_t(m, DIMS(3, 2)) : on_t(m, DIMS(1, 5));
    uint32_t args[3] = { a, b, twice ? a : b };
    return model_node(m, OP_CONCAT, &attr, NULL, args, 3);
}

static uint32_t split(Model *m, int axis, int b) // slices that tile an axis: their pads become one concat
{
    (void)b;
    uint32_t x = on_t(m, DIMS(4, 6));
    int32_t half = axis ? 3 : 2;
    uint32_t p = model_slice(m, x, axis, 0, half), q = model_slice(m, x, axis, half, half);
    return model_op2(m, OP_MUL, p, q);
}

static uint32_t broadcast(Model *m, int from, int to) {
    uint32_t x = case_leaf(m, (RowKind)from, DIMS(1, 3));
    Type type = *model_type(m, x);
    type.rank = 3, type.dim[0] = 2, type.dim[1] = 4, type.dim[2] = 3;
    if (from != to) type.row = (uint8_t)to;
    if (to == ROW_R || to == ROW_E) type.route = case_route(m);
    return model_broadcast(m, x, &type);
}

static uint32_t reshape(Model *m, int row, int b) {
    (void)b;
    return model_reshape(m, case_leaf(m, (RowKind)row, DIMS(2, 3, 5)), DIMS(6, 5));
}

static uint32_t transpose(Model *m, int row, int b) {
    (void)b;
    return model_op1(m, OP_TRANSPOSE, case_leaf(m, (RowKind)row, DIMS(2, 3, 5)));
}

static uint32_t mark(Model *m, int op, int b) {
    (void)b;
    uint32_t x = on_t(m, DIMS(5));
    uint32_t marked = model_op1(m, (Op)op, model_op2(m, OP_MUL, x, x));
    return model_op2(m, OP_MUL, marked, x);
}

/* Reductions --------------------------------------------------------------------------------------------- */

static uint32_t reduce(Model *m, int op, int which) {
    Attr attr = { 0 };
    static const uint32_t axes[] = { 4, 2, 1, 5, 7, 4, 4 };
    static const uint8_t rows[] = { ROW_T, ROW_T, ROW_T, ROW_T, ROW_R, ROW_E, ROW_NONE };
    attr.axes = axes[which];
    uint32_t x = case_leaf(m, rows[which], DIMS(2, 3, 19));
    return model_node(m, (Op)op, &attr, NULL, &x, 1);
}

static uint32_t row_reduce(Model *m, int op, int which) {
    static const uint8_t rows[] = { ROW_T, ROW_T, ROW_T, ROW_T, ROW_R, ROW_R, ROW_E, ROW_S };
    static const uint8_t sets[] = { SET_ALL,    SET_MICROBATCH, SET_SEQUENCE, SET_GLOBAL,
                                    SET_EXPERT, SET_ALL,        SET_ALL,      SET_ALL };
    Attr attr = { 0 };
    attr.set = sets[which];
    uint32_t x = case_leaf(m, rows[which], DIMS(2, 3));
    return model_node(m, (Op)op, &attr, NULL, &x, 1);
}

// Of one rank, which is all the interpreter knows.
static uint32_t across(Model *m, int a, int b) {
    (void)a, (void)b;
    uint32_t x = case_leaf(m, ROW_T, DIMS(2, 3));
    return model_op1(m, OP_ACROSS, model_row_sum(m, x, SET_GLOBAL));
}

static uint32_t softmax(Model *m, int row, int b) {
    (void)b;
    uint32_t x = case_leaf(m, (RowKind)row, DIMS(3, 11)), e = model_op2(m, OP_MUL, x, real(m, 4)), top;
    Attr attr = { 0 };
    attr.axes = 2;
    top = model_op1(m, OP_STOP_GRADIENT, model_node(m, OP_AMAX, &attr, NULL, &e, 1));
    e = model_op1(m, OP_EXP, model_op2(m, OP_SUB, e, top));
    return model_op2(m, OP_DIV, e, model_sum(m, e, 2));
}

/* Whole rows --------------------------------------------------------------------------------------------- */

static uint32_t gather(Model *m, int which, int b) {
    (void)b;
    Attr attr = { 0 };
    attr.k = 3;
    if (which == 2) return model_op2(m, OP_GATHER, on_t(m, DIMS(5)), ids(m));    // -1, past the end, twice
    if (which == 3) return model_op2(m, OP_GATHER, on_none(m, DIMS(5)), ids(m)); // rowless x
    uint32_t x = which == 4 ? on_t(m, DIMS(1, 7)) : on_t(m, DIMS(2, 7));
    uint32_t scores = which == 1 ? x : uniform(m, DIMS(2, 7));
    return model_op2(m, OP_GATHER, x, model_node(m, OP_TOP_K, &attr, NULL, &scores, 1));
}

static uint32_t scatter(Model *m, int b, int c) {
    (void)b, (void)c;
    Attr attr = { 0 };
    attr.k = 5;
    uint32_t args[2] = { on_t(m, DIMS(3)), ids(m) };
    return model_node(m, OP_SCATTER, &attr, NULL, args, 2);
}

static uint32_t one_hot(Model *m, int b, int c) {
    (void)b, (void)c;
    Attr attr = { 0 };
    attr.k = 5;
    uint32_t from = ids(m);
    uint32_t hot = model_node(m, OP_ONE_HOT, &attr, NULL, &from, 1);
    return model_op2(m, OP_MUL, hot, on_t(m, DIMS(3, 1)));
}

/* Contractions ------------------------------------------------------------------------------------------- */

typedef struct Shape {
    int rank;
    int32_t dim[MAX_RANK];
} Shape;
typedef struct Contraction {
    uint8_t x_row, w_row;
    int over, each;
    Shape x, w, g;
} Contraction;

static const Contraction contractions[] = {
    { ROW_T, ROW_NONE, 1, 0, { 1, { 17 } }, { 2, { 17, 5 } }, { 1, { 5 } } },
    { ROW_T, ROW_NONE, 2, 0, { 2, { 3, 5 } }, { 3, { 3, 5, 7 } }, { 1, { 7 } } },
    { ROW_T, ROW_NONE, 1, 1, { 2, { 3, 5 } }, { 3, { 3, 5, 2 } }, { 2, { 3, 2 } } },
    { ROW_T, ROW_NONE, 1, 0, { 2, { 3, 5 } }, { 3, { 5, 2, 3 } }, { 3, { 3, 2, 3 } } },
    { ROW_T, ROW_NONE, 1, 1, { 3, { 2, 3, 5 } }, { 3, { 2, 5, 4 } }, { 3, { 2, 3, 4 } } },
    { ROW_R, ROW_E, 1, 0, { 1, { 5 } }, { 2, { 5, 19 } }, { 1, { 19 } } },
    { ROW_R, ROW_E, 1, 0, { 1, { 3 } }, { 3, { 3, 2, 5 } }, { 2, { 2, 5 } } },
    { ROW_R, ROW_E, 2, 0, { 2, { 2, 3 } }, { 3, { 2, 3, 5 } }, { 1, { 5 } } },
    { ROW_R, ROW_NONE, 1, 0, { 1, { 5 } }, { 2, { 5, 3 } }, { 1, { 3 } } },
    { ROW_NONE, ROW_NONE, 1, 0, { 2, { 3, 5 } }, { 2, { 5, 2 } }, { 2, { 3, 2 } } },
    { ROW_T, ROW_NONE, 1, 0, { 1, { 1 } }, { 2, { 1, 1 } }, { 1, { 1 } } },
};

static uint32_t contract(Model *m, int op, int which) {
    const Contraction *c = &contractions[which];
    Attr attr = { 0 };
    attr.mm.over = c->over, attr.mm.each = c->each;
    const Shape *first = op == OP_MATMUL_T ? &c->g : &c->x, *second = op == OP_MATMUL_W ? &c->g : &c->w;
    uint8_t second_row = op == OP_MATMUL_W ? c->x_row : c->w_row;
    uint32_t args[2] = { case_leaf(m, c->x_row, first->dim, first->rank),
                         case_leaf(m, second_row, second->dim, second->rank) };
    if (op == OP_MATMUL_W && c->x_row == ROW_R && c->w_row == ROW_NONE) return 0;
    return model_node(m, (Op)op, &attr, NULL, args, 2);
}

// shape: bit 0 window, bit 1 sinks, bit 2 not causal, bit 3 one operand for q and k
static uint32_t attend(Model *m, int shape, int window) {
    Attr attr = { 0 };
    attr.attend.scale = 0.4f, attr.attend.causal = !(shape & 4), attr.attend.window = shape & 1 ? window : 0;
    uint32_t q = on_t(m, DIMS(4, 3)), k = shape & 8 ? q : on_t(m, DIMS(2, 3));
    uint32_t args[5] = { q, k, shape & 8 ? on_t(m, DIMS(4, 5)) : on_t(m, DIMS(2, 5)), segments(m), 0 };
    if (shape & 2) args[4] = on_none(m, DIMS(4));
    return model_node(m, OP_ATTEND, &attr, NULL, args, shape & 2 ? 5 : 4);
}

/* Moves -------------------------------------------------------------------------------------------------- */

static uint32_t embed(Model *m, int which, int b) {
    (void)b;
    switch (which) {
    case 0: return on_t(m, DIMS(3, 2));
    case 1: return model_op2(m, OP_EMBED, on_none(m, DIMS(5, 3)), ids(m));                // ids [T, 3]
    case 2: return model_op2(m, OP_EMBED, on_none(m, DIMS(CASE_VOCAB, 3)), tokens(m, 2)); // -1 past the document
    default: {
        uint32_t w = on_none(m, DIMS(CASE_VOCAB, 3)); // one table twice
        return model_op2(m, OP_MUL, model_op2(m, OP_EMBED, w, tokens(m, 0)), model_op2(m, OP_EMBED, w, tokens(m, 1)));
    }
    }
}

static uint32_t embed_w(Model *m, int which, int b) {
    (void)b;
    Attr attr = { 0 };
    attr.k = CASE_VOCAB;
    uint32_t args[2] = { which ? on_t(m, DIMS(3, 2)) : on_t(m, DIMS(4)), which ? ids(m) : tokens(m, 1) };
    return model_node(m, OP_EMBED_W, &attr, NULL, args, 2);
}

static uint32_t shift(Model *m, int k, int b) {
    (void)b;
    Attr attr = { 0 };
    attr.k = k;
    uint32_t args[2] = { on_t(m, DIMS(2, 3)), segments(m) };
    return model_node(m, OP_SHIFT, &attr, NULL, args, 2);
}

// Read at any row through views that strides cannot express together.
static uint32_t shift_reordered(Model *m, int rank, int b) {
    (void)b;
    Attr attr = { 0 };
    attr.k = 2;
    uint32_t x = model_op1(m, OP_TRANSPOSE, model_slice(m, on_t(m, DIMS(3, 4)), 1, 1, 2));
    x = rank == 1 ? model_reshape(m, x, DIMS(6)) : model_reshape(m, x, DIMS(3, 2));
    return model_op2(m, OP_MUL, model_node(m, OP_SHIFT, &attr, NULL, (uint32_t[]){ x, segments(m) }, 2), x);
}

static uint32_t dispatch(Model *m, int b, int c) {
    (void)b, (void)c;
    return on_r(m, DIMS(2, 3));
}

static uint32_t collect(Model *m, int twice, int b) {
    (void)b;
    uint32_t x = on_r(m, DIMS(2, 3)), y = model_op2(m, OP_COLLECT, x, case_route(m));
    return twice ? model_op2(m, OP_MUL, y, per_choice(m, DIMS(2, 3))) : y;
}

static uint32_t expert_mlp(Model *m, int b, int c) // dispatch, two grouped matmuls, bias, combine
{
    (void)b, (void)c;
    Attr attr = { 0 };
    attr.mm.over = 1;
    uint32_t in[2] = { on_r(m, DIMS(5)), on_e(m, DIMS(5, 7)) };
    uint32_t h =
        model_op1(m, OP_TANH, model_op2(m, OP_ADD, model_node(m, OP_MATMUL, &attr, NULL, in, 2), on_e(m, DIMS(7))));
    uint32_t out[2] = { h, on_e(m, DIMS(7, 5)) };
    uint32_t y = model_op2(m, OP_COLLECT, model_node(m, OP_MATMUL, &attr, NULL, out, 2), case_route(m));
    return model_sum(m, model_op2(m, OP_MUL, y, on_t(m, DIMS(3, 1))), 1);
}

/* The table ---------------------------------------------------------------------------------------------- */

#define UNARY(name, op, limit, positive)                                                                               \
    { name ".T", unary, op, 0, positive, limit }, { name ".R", unary, op, 1, positive, limit },                        \
        { name ".E", unary, op, 2, positive, limit }, { name ".S", unary, op, 3, positive, limit },                    \
        { name ".rowless", unary, op, 4, positive, limit }, {                                                          \
        name ".scalars", unary, op, 5, positive, limit                                                                 \
    }
#define BINARY(name, op, limit, positive)                                                                              \
    { name ".TT", binary, op, 0, positive, limit }, { name ".T-", binary, op, 1, positive, limit },                    \
        { name ".-T", binary, op, 2, positive, limit }, { name ".outer", binary, op, 3, positive, limit },             \
        { name ".RE", binary, op, 4, positive, limit }, { name ".ER", binary, op, 5, positive, limit },                \
        { name ".E-", binary, op, 6, positive, limit }, { name ".--", binary, op, 7, positive, limit },                \
        { name ".SS", binary, op, 8, positive, limit }, { name ".scalar", binary, op, 9, positive, limit }, {          \
        name ".same", binary, op, 10, positive, limit                                                                  \
    }
#define CONTRACT(name, op, which)                                                                                      \
    { name, contract, op, which, false, LIMIT_SUM }
#define CONTRACTION(name, op)                                                                                          \
    CONTRACT(name ".plain", op, 0), CONTRACT(name ".over", op, 1), CONTRACT(name ".each", op, 2),                      \
        CONTRACT(name ".mid", op, 3), CONTRACT(name ".mid_each", op, 4), CONTRACT(name ".grouped", op, 5),             \
        CONTRACT(name ".grouped_n", op, 6), CONTRACT(name ".grouped_k", op, 7), CONTRACT(name ".one", op, 10)

const Case cases[] = {
    BINARY("add", OP_ADD, LIMIT_MAP, false),
    BINARY("sub", OP_SUB, LIMIT_MAP, false),
    BINARY("mul", OP_MUL, LIMIT_MAP, false),
    BINARY("div", OP_DIV, LIMIT_MAP, true),
    BINARY("pow", OP_POW, LIMIT_MATH, true),
    BINARY("min", OP_MIN, LIMIT_MAP, false),
    BINARY("max", OP_MAX, LIMIT_MAP, false),
    UNARY("neg", OP_NEG, LIMIT_MAP, false),
    UNARY("recip", OP_RECIP, LIMIT_MAP, true),
    UNARY("exp", OP_EXP, LIMIT_MATH, false),
    UNARY("log", OP_LOG, LIMIT_MATH, true),
    UNARY("sqrt", OP_SQRT, LIMIT_MAP, true),
    UNARY("rsqrt", OP_RSQRT, LIMIT_MAP, true),
    UNARY("abs", OP_ABS, LIMIT_MAP, false),
    UNARY("sigmoid", OP_SIGMOID, LIMIT_MATH, false),
    UNARY("tanh", OP_TANH, LIMIT_MATH, false),
    UNARY("erf", OP_ERF, LIMIT_MATH, false),
    { "where.T", where, 0, 0, false, LIMIT_MAP },
    { "where.masked", where, 1, 0, false, LIMIT_MATH },
    { "cast.fp32", cast, PRECISION_FP32, ROW_T, false, LIMIT_MAP },
    // A value within fp32 rounding of a tie may fall on either side: one of bf16's 2^-8.
    { "cast.bf16", cast, PRECISION_BF16, ROW_T, false, 1e-2 },
    { "cast.bf16.E", cast, PRECISION_BF16, ROW_E, false, 1e-2 },
    { "rotate.half", rotate, PAIRS_HALF, 1, false, LIMIT_MATH },
    { "rotate.adjacent", rotate, PAIRS_ADJACENT, 1, false, LIMIT_MATH },
    { "rotate.back", rotate, PAIRS_HALF, -1, false, LIMIT_MATH },
    { "slice.0", cut, OP_SLICE, 0, false, LIMIT_MAP },
    { "slice.1", cut, OP_SLICE, 1, false, LIMIT_MAP },
    { "slice.R", cut, OP_SLICE, 2, false, LIMIT_MAP },
    { "pad.0", cut, OP_PAD, 0, false, LIMIT_MAP },
    { "pad.1", cut, OP_PAD, 1, false, LIMIT_MAP },
    { "pad.R", cut, OP_PAD, 2, false, LIMIT_MAP },
    { "concat.0", concat, 0, 0, false, LIMIT_MAP },
    { "concat.1", concat, 1, 0, false, LIMIT_MAP },
    { "concat.same", concat, 1, 1, false, LIMIT_MAP },
    { "split.0", split, 0, 0, false, LIMIT_MAP },
    { "split.1", split, 1, 0, false, LIMIT_MAP },
    { "broadcast.-T", broadcast, ROW_NONE, ROW_T, false, LIMIT_MAP },
    { "broadcast.-R", broadcast, ROW_NONE, ROW_R, false, LIMIT_MAP },
    { "broadcast.-E", broadcast, ROW_NONE, ROW_E, false, LIMIT_MAP },
    { "broadcast.-S", broadcast, ROW_NONE, ROW_S, false, LIMIT_MAP },
    { "broadcast.ER", broadcast, ROW_E, ROW_R, false, LIMIT_MAP },
    { "broadcast.ST", broadcast, ROW_S, ROW_T, false, LIMIT_MAP },
    { "broadcast.T", broadcast, ROW_T, ROW_T, false, LIMIT_MAP },
    { "broadcast.--", broadcast, ROW_NONE, ROW_NONE, false, LIMIT_MAP },
    { "reshape.T", reshape, ROW_T, 0, false, LIMIT_MAP },
    { "reshape.E", reshape, ROW_E, 0, false, LIMIT_MAP },
    { "reshape.-", reshape, ROW_NONE, 0, false, LIMIT_MAP },
    { "transpose.T", transpose, ROW_T, 0, false, LIMIT_MAP },
    { "transpose.R", transpose, ROW_R, 0, false, LIMIT_MAP },
    { "transpose.-", transpose, ROW_NONE, 0, false, LIMIT_MAP },
    { "stop_gradient", mark, OP_STOP_GRADIENT, 0, false, LIMIT_MAP },
    { "keep", mark, OP_KEEP, 0, false, LIMIT_MAP },
    { "recompute", mark, OP_RECOMPUTE, 0, false, LIMIT_MAP },
    { "sum.last", reduce, OP_SUM, 0, false, LIMIT_SUM },
    { "sum.middle", reduce, OP_SUM, 1, false, LIMIT_SUM },
    { "sum.first", reduce, OP_SUM, 2, false, LIMIT_SUM },
    { "sum.two", reduce, OP_SUM, 3, false, LIMIT_SUM },
    { "sum.all.R", reduce, OP_SUM, 4, false, LIMIT_SUM },
    { "sum.E", reduce, OP_SUM, 5, false, LIMIT_SUM },
    { "sum.-", reduce, OP_SUM, 6, false, LIMIT_SUM },
    { "amax.last", reduce, OP_AMAX, 0, false, LIMIT_MAP },
    { "amax.middle", reduce, OP_AMAX, 1, false, LIMIT_MAP },
    { "amax.first", reduce, OP_AMAX, 2, false, LIMIT_MAP },
    { "amax.two", reduce, OP_AMAX, 3, false, LIMIT_MAP },
    { "amax.all.R", reduce, OP_AMAX, 4, false, LIMIT_MAP },
    { "amax.E", reduce, OP_AMAX, 5, false, LIMIT_MAP },
    { "amax.-", reduce, OP_AMAX, 6, false, LIMIT_MAP },
    { "row_sum.all", row_reduce, OP_ROW_SUM, 0, false, LIMIT_SUM },
    { "row_sum.microbatch", row_reduce, OP_ROW_SUM, 1, false, LIMIT_SUM },
    { "row_sum.sequence", row_reduce, OP_ROW_SUM, 2, false, LIMIT_SUM },
    { "row_sum.global", row_reduce, OP_ROW_SUM, 3, false, LIMIT_SUM },
    { "across", across, 0, 0, false, LIMIT_SUM },
    { "row_sum.expert", row_reduce, OP_ROW_SUM, 4, false, LIMIT_SUM },
    { "row_sum.R", row_reduce, OP_ROW_SUM, 5, false, LIMIT_SUM },
    { "row_sum.E", row_reduce, OP_ROW_SUM, 6, false, LIMIT_SUM },
    { "row_sum.S", row_reduce, OP_ROW_SUM, 7, false, LIMIT_SUM },
    { "row_max.microbatch", row_reduce, OP_ROW_MAX, 1, false, LIMIT_MAP },
    { "row_max.sequence", row_reduce, OP_ROW_MAX, 2, false, LIMIT_MAP },
    { "softmax.T", softmax, ROW_T, 0, false, LIMIT_SUM },
    { "softmax.R", softmax, ROW_R, 0, false, LIMIT_SUM },
    { "gather.top_k", gather, 0, 0, false, LIMIT_MAP },
    { "gather.own_top_k", gather, 1, 0, false, LIMIT_MAP },
    { "gather.ids", gather, 2, 0, false, LIMIT_MAP },
    { "gather.rowless", gather, 3, 0, false, LIMIT_MAP },
    { "gather.unit", gather, 4, 0, false, LIMIT_MAP },
    { "scatter", scatter, 0, 0, false, LIMIT_MAP },
    { "one_hot", one_hot, 0, 0, false, LIMIT_MAP },
    CONTRACTION("matmul", OP_MATMUL),
    CONTRACTION("matmul_t", OP_MATMUL_T),
    CONTRACTION("matmul_w", OP_MATMUL_W),
    { "matmul.R-", contract, OP_MATMUL, 8, false, LIMIT_SUM },
    { "matmul_t.R-", contract, OP_MATMUL_T, 8, false, LIMIT_SUM },
    { "matmul.--", contract, OP_MATMUL, 9, false, LIMIT_SUM },
    { "attend", attend, 0, 0, false, LIMIT_SUM },
    { "attend.window1", attend, 1, 1, false, LIMIT_SUM },
    { "attend.window3", attend, 1, 3, false, LIMIT_SUM },
    { "attend.sinks", attend, 2, 0, false, LIMIT_SUM },
    { "attend.window_sinks", attend, 3, 4, false, LIMIT_SUM },
    { "attend.both_ways", attend, 4, 0, false, LIMIT_SUM },
    { "attend.both_sinks", attend, 6, 0, false, LIMIT_SUM },
    { "attend.same", attend, 8, 0, false, LIMIT_SUM },
    { "embed", embed, 0, 0, false, LIMIT_MAP },
    { "embed.ids", embed, 1, 0, false, LIMIT_MAP },
    { "embed.minus", embed, 2, 0, false, LIMIT_MAP },
    { "embed.twice", embed, 3, 0, false, LIMIT_MAP },
    { "embed_w", embed_w, 0, 0, false, LIMIT_MAP },
    { "embed_w.ids", embed_w, 1, 0, false, LIMIT_MAP },
    { "shift.1", shift, 1, 0, false, LIMIT_MAP },
    { "shift.3", shift, 3, 0, false, LIMIT_MAP },
    { "shift.back", shift, -2, 0, false, LIMIT_MAP },
    { "shift.0", shift, 0, 0, false, LIMIT_MAP },
    { "shift.reordered", shift_reordered, 1, 0, false, LIMIT_MAP },
    { "shift.reordered2", shift_reordered, 2, 0, false, LIMIT_MAP },
    { "dispatch", dispatch, 0, 0, false, LIMIT_MAP },
    { "collect", collect, 0, 0, false, LIMIT_MAP },
    { "collect.weighted", collect, 1, 0, false, LIMIT_MAP },
    { "expert_mlp", expert_mlp, 0, 0, false, LIMIT_MATH },
};
const int n_cases = COUNT_OF(cases);
