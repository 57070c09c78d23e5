// SPDX-License-Identifier: Apache-2.0
// Shape rules: the types they give, and the message of every refusal.
#include "helper.h"

static void refused(Model *m, uint32_t id, const char *message, const char *hint) {
    assert_int_equal(id, 0);
    assert_string_equal(m->diag.message, message);
    assert_string_equal(m->diag.hint, hint);
}

static void test_broadcast(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t route = route_of(m, 2, 8);
    uint32_t scalar = TOKENS_OF(m, "t"), x = TOKENS_OF(m, "x", 4, 64), gain = PARAM(m, "gain", 64);
    uint32_t rows = rows_of_route(m, "rows", route, 64), bias = EXPERT_PARAM(m, "bias", route, 64);
    assert_type(m, model_op2(m, OP_ADD, x, gain), "real [T, 4, 64]");
    assert_type(m, model_op2(m, OP_MUL, scalar, x), "real [T, 4, 64]");
    assert_type(m, model_op2(m, OP_MUL, gain, scalar), "real [T, 64]");
    assert_type(m, model_op2(m, OP_ADD, rows, bias), "real [R, 64]");
    assert_type(m, model_op2(m, OP_ADD, bias, rows), "real [R, 64]");
    assert_type(m, model_op2(m, OP_ADD, bias, gain), "real [E=8, 64]");
    assert_type(m, model_op2(m, OP_ADD, TOKENS_OF(m, "u", 4, 1), TOKENS_OF(m, "v", 1, 5)),
                "real [T, 4, 5]");
    model_destroy(m);
}

static void test_kinds(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t i = model_generator(m, OP_POSITIONS, 0, NULL, 0), x = TOKENS_OF(m, "x");
    uint32_t two = model_const(m, 2, KIND_INT), c = model_op2(m, OP_LT, i, two);
    assert_type(m, model_op2(m, OP_ADD, i, two), "int [T]");
    assert_type(m, model_op2(m, OP_ADD, i, x), "real [T]");
    assert_type(m, model_op2(m, OP_DIV, i, two), "real [T]");
    assert_type(m, model_op2(m, OP_IDIV, i, two), "int [T]");
    assert_type(m, c, "bool [T]");
    assert_type(m, model_op3(m, OP_WHERE, c, i, two), "int [T]");
    assert_type(m, model_op3(m, OP_WHERE, c, x, two), "real [T]");
    assert_type(m, model_op1(m, OP_EXP, i), "real [T]");
    refused(m, model_op2(m, OP_MOD, x, two), "'%': expected int operands, got real [T]", "");
    refused(m, model_op2(m, OP_ADD, c, x),
            "'+': expected the first operand to be real or int, got bool",
            "m.where(c, 1, 0) makes numbers of a bool");
    refused(m, model_op3(m, OP_WHERE, x, x, x),
            "where: expected the condition to be bool, got real [T]",
            "m.gt(x, 0), m.eq(x, y) and the like make a bool");
    refused(m, model_op2(m, OP_ADD, route_of(m, 2, 8), x),
            "'+': expected the first operand to be real or int, got route",
            "a route is read by m.dispatch and m.combine only");
    model_destroy(m);
}

static void test_differing_axes(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t a = TOKENS_OF(m, "a", 1024), b = TOKENS_OF(m, "b", 1042);
    refused(m, model_op2(m, OP_MUL, a, b),
            "'*': shapes [T, 1024] and [T, 1042] differ in the last axis: 1024 against 1042", "");
    assert_int_equal(m->diag.blame[0], a);
    assert_int_equal(m->diag.blame[1], b);
    refused(m, model_op2(m, OP_ADD, TOKENS_OF(m, "c", 4, 8), TOKENS_OF(m, "d", 5, 8)),
            "'+': shapes [T, 4, 8] and [T, 5, 8] differ in axis -2: 4 against 5", "");
    // the operand to blame is the one that gave the axis, not the one before it
    uint32_t c = model_op2(m, OP_LT, a, a);
    refused(m, model_op3(m, OP_WHERE, c, TOKENS_OF(m, "one", 1), b),
            "where: shapes [T, 1024] and [T, 1042] differ in the last axis: 1024 against 1042", "");
    assert_int_equal(m->diag.blame[0], c);
    model_destroy(m);
}

static void test_differing_rows(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t route = route_of(m, 2, 8), other = route_of(m, 3, 8);
    uint32_t x = TOKENS_OF(m, "x", 512), rows = rows_of_route(m, "r", route, 512);
    const char *hint = "m.dispatch(x, route) takes tokens to expert rows, m.combine(rows, weights) "
                       "brings them back";
    refused(m, model_op2(m, OP_ADD, x, rows),
            "'+': [T, 512] and [R, 512] lie along different axes: tokens and expert rows", hint);
    assert_int_equal(m->diag.blame[0], x);
    assert_int_equal(m->diag.blame[1], rows);
    refused(m, model_op2(m, OP_ADD, EXPERT_PARAM(m, "e", route, 512), x),
            "'+': [E=8, 512] and [T, 512] lie along different axes: experts and tokens", hint);
    refused(m, model_op2(m, OP_ADD, rows, rows_of_route(m, "o", other, 512)),
            "'+': [R, 512] and [R, 512] belong to different routes: expected expert rows of one "
            "route, got two",
            "m.combine(rows, weights) brings rows of a route back to tokens");
    refused(m, model_op2(m, OP_ADD, model_row_sum(m, x, SET_SEQUENCE), x),
            "'+': [S, 512] and [T, 512] lie along different axes: sequences and tokens",
            "a sum over \"sequence\" leaves sequences; values per token become so by m.sum(x, "
            "\"sequence\")");
    model_destroy(m);
}

static void test_arity(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t x = TOKENS_OF(m, "x", 4);
    refused(m, model_node(m, OP_ADD, NULL, NULL, &x, 1), "'+': expected 2 operands, got 1", "");
    refused(m, model_node(m, OP_CONCAT, NULL, NULL, &x, 1),
            "concat: expected 2 to 8 operands, got 1", "");
    refused(m, model_op1(m, OP_NEG, 99), "neg: expected operand 1 to be a node, got id 99 of 1",
            "");
    refused(m, model_node(m, OP_NONE, NULL, NULL, NULL, 0), "expected an operation, got number 0",
            "");
    // a failed operand keeps the message of its own failure
    diag_set(m, "the first failure");
    refused(m, model_op2(m, OP_ADD, x, 0), "the first failure", "");
    model_destroy(m);
}

static void test_sources(void **state) {
    (void)state;
    Model *m = model_create();
    refused(m, PARAM(m, "w", 4, -1), "param: axis 2 must be a positive integer, got -1", "");
    refused(m, model_const(m, __builtin_nan(""), KIND_REAL), "const: expected a number, got NaN",
            "");
    refused(m, model_constant(m, NULL, 0), "constant: expected at least one number, got 0", "");
    refused(m, model_generator(m, OP_N_VALID, SET_GLOBAL, NULL, 0),
            "n_valid: real [] is no result of this operation: expected what ops.h says", "");
    assert_type(m, model_generator(m, OP_N_VALID, SET_SEQUENCE, NULL, 0), "real [S]");
    assert_type(m, model_generator(m, OP_N_VALID, SET_MICROBATCH, NULL, 0), "real []");
    assert_type(m, model_generator(m, OP_TOKENS, 1, NULL, 0), "int [T]");
    assert_type(m, model_generator(m, OP_UNIFORM, 0, (int32_t[]){ 3, 5 }, 2), "real [T, 3, 5]");
    refused(m, model_param(m, 0, false, (int32_t[7]){ 1, 1, 1, 1, 1, 1, 1 }, 7, 0),
            "parameter '': expected at most 6 axes, got 7", "");
    assert_int_equal(m->n_params, 0);
    model_destroy(m);
}

static void test_views(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t x = TOKENS_OF(m, "x", 4, 6);
    assert_type(m, model_reshape(m, x, (int32_t[]){ 8, 3 }, 2), "real [T, 8, 3]");
    assert_type(m, model_op1(m, OP_TRANSPOSE, x), "real [T, 6, 4]");
    assert_type(m, model_slice(m, x, 1, 2, 3), "real [T, 4, 3]");
    assert_type(m, cut(m, OP_PAD, 0, 1, 7, x), "real [T, 7, 6]");
    assert_type(m, concat(m, 1, (uint32_t[]){ x, TOKENS_OF(m, "y", 4, 1) }, 2), "real [T, 4, 7]");
    refused(m, model_reshape(m, x, (int32_t[]){ 5, 5 }, 2),
            "reshape: [T, 4, 6] holds 24 features, the new shape [T, 5, 5] holds 25", "");
    refused(m, model_reshape(m, x, (int32_t[]){ 24, 0 }, 2),
            "reshape: axis 2 must be a positive integer, got 0", "");
    refused(m, model_op1(m, OP_TRANSPOSE, TOKENS_OF(m, "v", 4)),
            "transpose: expected at least two feature axes, got [T, 4]", "");
    refused(m, model_slice(m, x, 1, 4, 3),
            "slice: features 5 to 7 of axis 2 are outside: expected 1 to 6", "");
    refused(m, model_slice(m, x, 2, 0, 1), "slice: no feature axis 3 in [T, 4, 6]", "");
    refused(m, concat(m, 1, (uint32_t[]){ x, TOKENS_OF(m, "z", 5, 1) }, 2),
            "concat: shapes [T, 4, 6] and [T, 5, 1] differ in axis -2: 4 against 5", "");
    refused(m, concat(m, 0, (uint32_t[]){ x, PARAM(m, "p", 4, 6) }, 2),
            "concat: expected equal row axes, got [T, 4, 6] and [4, 6]", "");
    refused(m, concat(m, 2, (uint32_t[]){ x, x }, 2),
            "concat: [T, 4, 6] and [T, 4, 6] have no common axis 3", "");
    refused(m,
            concat(m, 0,
                   (uint32_t[]){ TOKENS_OF(m, "s", 1),
                                 model_reshape(m, model_generator(m, OP_POSITIONS, 0, NULL, 0),
                                               (int32_t[]){ 1 }, 1) },
                   2),
            "concat: expected equal kinds, got real and int", "");
    Type to = TYPE(ROW_T, 3, 4, 6);
    assert_type(m, model_broadcast(m, x, &to), "real [T, 3, 4, 6]");
    to = TYPE(ROW_NONE, 4, 6);
    refused(m, model_broadcast(m, x, &to), "broadcast: [T, 4, 6] does not broadcast to [4, 6]", "");
    to = TYPE(ROW_T, 4, 6);
    assert_type(m, model_broadcast(m, model_row_sum(m, x, SET_SEQUENCE), &to), "real [T, 4, 6]");
    refused(m, model_node(m, OP_RESHAPE, NULL, NULL, &x, 1),
            "reshape: expected the result type to be declared, got none", "");
    model_destroy(m);
}

static void test_reductions(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t route = route_of(m, 2, 8), x = TOKENS_OF(m, "x", 4, 6),
             rows = rows_of_route(m, "r", route, 5);
    assert_type(m, model_sum(m, x, 2), "real [T, 4, 1]");
    assert_type(m, model_sum(m, x, 3), "real [T, 1, 1]");
    refused(m, model_sum(m, x, 4), "sum: no feature axis 3 in [T, 4, 6]", "");
    refused(m, model_sum(m, x, 0), "sum: expected at least one feature axis of [T, 4, 6], got none",
            "");
    assert_type(m, model_row_sum(m, x, SET_ALL), "real [4, 6]");
    assert_type(m, model_row_sum(m, x, SET_SEQUENCE), "real [S, 4, 6]");
    assert_type(m, model_row_sum(m, rows, SET_EXPERT), "real [E=8, 5]");
    assert_type(m, model_row_sum(m, model_row_sum(m, rows, SET_EXPERT), SET_ALL), "real [5]");
    refused(m, model_row_sum(m, rows, SET_MICROBATCH),
            "row_sum: a set of tokens needs a token axis, the tensor is [R, 5]", "");
    refused(m, model_row_sum(m, rows, SET_SEQUENCE),
            "row_sum: \"sequence\" needs a token axis, the tensor is [R, 5]", "");
    refused(m, model_row_sum(m, x, SET_EXPERT), "row_sum: expected expert rows, got [T, 4, 6]", "");
    refused(m, model_row_sum(m, PARAM(m, "p", 3), SET_ALL),
            "row_sum: expected a row axis to reduce over, got [3]", "");
    refused(m, model_row_sum(m, ids_of(m, 2), SET_ALL),
            "row_sum: expected the first operand to be real, got int [T, 2]",
            "x * 1.0 makes a real tensor of an int one");
    refused(m, model_op1(m, OP_TOTAL, x),
            "total: expected a contribution reduced over tokens, got [T, 4, 6]",
            "m.histogram(ids, count) or m.sum(x, \"microbatch\") reduce over tokens");
    model_destroy(m);
}

static void test_whole_rows(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t x = TOKENS_OF(m, "x", 4, 6), ids = node_k(m, OP_TOP_K, 3, x, 0);
    assert_type(m, ids, "int [T, 4, 3]");
    assert_type(m, node_k(m, OP_ONE_HOT, 6, ids, 0), "real [T, 4, 3, 6]");
    assert_type(m, model_op2(m, OP_GATHER, x, ids), "real [T, 4, 3]");
    assert_type(m, model_op2(m, OP_GATHER, PARAM(m, "row", 6), ids), "real [T, 4, 3]");
    assert_type(m, node_k(m, OP_SCATTER, 6, model_op2(m, OP_GATHER, x, ids), ids),
                "real [T, 4, 6]");
    refused(m, node_k(m, OP_TOP_K, 7, x, 0), "top_k: 7 chosen out of 6",
            "expected between 1 and the size of the last axis of [T, 4, 6]");
    refused(m, node_k(m, OP_TOP_K, 0, x, 0), "top_k: 0 chosen out of 6",
            "expected between 1 and the size of the last axis of [T, 4, 6]");
    refused(m, node_k(m, OP_ONE_HOT, 0, ids, 0), "one_hot: expected a positive width, got 0", "");
    refused(m, node_k(m, OP_ONE_HOT, 4, x, 0), "one_hot: expected int ids, got real [T, 4, 6]",
            "ids come from m.top_k, m.tokens, m.labels or m.positions");
    refused(m, model_op2(m, OP_GATHER, TOKENS_OF(m, "y", 5, 6), ids),
            "gather: shapes [T, 5, 6] and [T, 4, 3] differ in axis -2: 5 against 4", "");
    refused(m, model_op2(m, OP_GATHER, TOKENS_OF(m, "z", 2, 4, 6), ids),
            "gather: expected x [a..., n] and ids [a..., k], got [T, 2, 4, 6] and [T, 4, 3]", "");
    refused(m, node_k(m, OP_SCATTER, 6, x, ids),
            "scatter: expected values and ids of equal shape [..., k], got [T, 4, 6] and [T, 4, 3]",
            "");
    model_destroy(m);
}

static uint32_t rotate(Model *m, uint32_t x, uint32_t freq, uint32_t at, int sign) {
    Attr attr = { .raw = { 0, 0 } };
    attr.turn.factor = 1;
    attr.turn.sign = (int8_t)sign;
    return model_node(m, OP_ROTATE, &attr, NULL, (uint32_t[]){ x, freq, at }, 3);
}

static void test_rotate(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t x = TOKENS_OF(m, "x", 2, 6), freq = model_constant(m, (double[]){ 1, 0.5, 0.25 }, 3);
    uint32_t at = model_generator(m, OP_POSITIONS, 0, NULL, 0),
             four = model_constant(m, (double[]){ 1, 2, 3, 4 }, 4);
    assert_type(m, rotate(m, x, freq, at, 1), "real [T, 2, 6]");
    refused(m, rotate(m, x, four, at, 1),
            "rotate: 4 frequencies turn 8 features, x [T, 2, 6] has 6", "");
    refused(m, rotate(m, PARAM(m, "p", 6), freq, at, 1),
            "rotate: expected x to be [T, ..., n], got [6]", "");
    refused(m, rotate(m, x, PARAM(m, "f", 1, 3), at, 1),
            "rotate: expected the frequencies to be [n / 2], got [1, 3]", "");
    refused(m, rotate(m, x, freq, TOKENS_OF(m, "t"), 1),
            "rotate: expected positions to be int [T], got real [T]", "");
    refused(m, rotate(m, x, freq, at, 0),
            "rotate: expected sign 1 or -1 and pairs half or adjacent, got 0 and 0", "");
    model_destroy(m);
}

static void test_matmul(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t route = route_of(m, 2, 8), x = TOKENS_OF(m, "x", 3, 4, 5), w = PARAM(m, "w", 4, 5, 7);
    uint32_t rows = rows_of_route(m, "r", route, 5), we = EXPERT_PARAM(m, "we", route, 5, 2, 6);
    uint32_t y = matmul(m, OP_MATMUL, 2, 0, x, w);
    assert_type(m, y, "real [T, 3, 7]");
    assert_type(m, matmul(m, OP_MATMUL_T, 2, 0, y, w), "real [T, 3, 4, 5]");
    assert_type(m, matmul(m, OP_MATMUL_W, 2, 0, x, y), "real [4, 5, 7]");
    uint32_t ye = matmul(m, OP_MATMUL, 1, 0, rows, we);
    assert_type(m, ye, "real [R, 2, 6]");
    assert_type(m, matmul(m, OP_MATMUL_T, 1, 0, ye, we), "real [R, 5]");
    assert_type(m, matmul(m, OP_MATMUL_W, 1, 0, rows, ye), "real [E=8, 5, 2, 6]");
    // block-diagonal: the first axis is shared
    uint32_t wb = PARAM(m, "wb", 3, 5, 2), yb = matmul(m, OP_MATMUL, 1, 1, x, wb);
    assert_type(m, yb, "real [T, 3, 4, 2]");
    assert_type(m, matmul(m, OP_MATMUL_T, 1, 1, yb, wb), "real [T, 3, 4, 5]");
    assert_type(m, matmul(m, OP_MATMUL_W, 1, 1, x, yb), "real [3, 5, 2]");
    assert_true(m->params[m->nodes[w].attr.index].is_weight);
    assert_true(m->params[m->nodes[we].attr.index].is_weight);

    refused(m, matmul(m, OP_MATMUL, 1, 0, x, w),
            "matmul: x [T, 3, 4, 5] ends in [5], weight [4, 5, 7] begins with [4]", "");
    refused(m, matmul(m, OP_MATMUL, 1, 1, x, w),
            "matmul: shapes [T, 3, 4, 5] and [4, 5, 7] differ in shared axis 1: 3 against 4", "");
    refused(m, matmul(m, OP_MATMUL, 0, 0, x, w),
            "matmul: expected over >= 1 and each >= 0, got over = 0, each = 0", "");
    refused(m, matmul(m, OP_MATMUL, 3, 1, x, w),
            "matmul: over = 3, each = 1: expected at least 4 and 4 feature axes, got [T, 3, 4, 5] "
            "and [4, 5, 7]",
            "");
    refused(m, matmul(m, OP_MATMUL, 1, 0, TOKENS_OF(m, "t", 5), we),
            "matmul: weight [E=8, 5, 2, 6] is per expert: expected x to be expert rows of that "
            "route, got [T, 5]",
            "m.dispatch(x, route) takes tokens to expert rows");
    refused(m, matmul(m, OP_MATMUL, 1, 0, x, TOKENS_OF(m, "u", 5, 4)),
            "matmul: expected the second operand to be a weight without row axis or per expert, "
            "got [T, 5, 4] along tokens",
            "m.sum(a * b) multiplies two per-token tensors");
    refused(m, matmul(m, OP_MATMUL_W, 1, 0, TOKENS_OF(m, "t", 5), rows),
            "matmul_w: expected equal rows, got [T, 5] and [R, 5]", "");
    refused(m, matmul(m, OP_MATMUL_T, 2, 0, x, w),
            "matmul_t: expected the gradient [T, 3, 4, 5] to end as the weight [4, 5, 7] does", "");
    uint32_t deep = PARAM(m, "deep", 5, 1, 1, 1, 1);
    refused(m, matmul(m, OP_MATMUL, 1, 0, TOKENS_OF(m, "d", 1, 1, 1, 5), deep),
            "matmul: expected a result of at most 6 feature axes, got 7", "");
    model_destroy(m);
}

static void test_weight_through_views(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t table = PARAM(m, "embedding.w", 10, 4), gain = PARAM(m, "gain", 4);
    uint32_t x = model_op2(
        m, OP_MUL, model_op2(m, OP_EMBED, table, model_generator(m, OP_TOKENS, 0, NULL, 0)), gain);
    assert_false(m->params[0].is_weight);
    matmul(m, OP_MATMUL, 1, 0, x, model_op1(m, OP_TRANSPOSE, table));
    assert_true(m->params[0].is_weight);
    assert_false(m->params[1].is_weight);
    model_destroy(m);
}

static void test_attend(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t q = TOKENS_OF(m, "q", 32, 16), k = TOKENS_OF(m, "k", 8, 16),
             v = TOKENS_OF(m, "v", 8, 24);
    assert_type(m, attend(m, q, k, v, 0, 0), "real [T, 32, 24]");
    assert_type(m, attend(m, q, k, v, PARAM(m, "sinks", 32), 4), "real [T, 32, 24]");
    refused(m, attend(m, q, TOKENS_OF(m, "k6", 6, 16), TOKENS_OF(m, "v6", 6, 16), 0, 0),
            "attend: 32 query heads cannot share 6 key heads evenly",
            "6 does not divide 32; 4 and 8 do");
    refused(m,
            attend(m, TOKENS_OF(m, "q7", 7, 16), TOKENS_OF(m, "k6", 6, 16),
                   TOKENS_OF(m, "v6", 6, 16), 0, 0),
            "attend: 7 query heads cannot share 6 key heads evenly",
            "6 does not divide 7; 1 and 7 do");
    refused(m, attend(m, TOKENS_OF(m, "q7", 7, 16), k, v, 0, 0),
            "attend: 7 query heads cannot share 8 key heads evenly", "8 does not divide 7; 7 does");
    refused(m, attend(m, q, k, TOKENS_OF(m, "v4", 4, 24), 0, 0),
            "attend: expected as many value heads as key heads, got [T, 4, 24] and [T, 8, 16]", "");
    refused(m, attend(m, q, TOKENS_OF(m, "k12", 8, 12), v, 0, 0),
            "attend: expected q and k of equal head size, got [T, 32, 16] and [T, 8, 12]", "");
    refused(m, attend(m, TOKENS_OF(m, "flat", 512), k, v, 0, 0),
            "attend: expected q to be [T, heads, size], got [T, 512]", "");
    refused(m, attend(m, q, k, v, PARAM(m, "sinks8", 8), 0),
            "attend: expected sinks to be [32], one per query head, got [8]", "");
    refused(m, attend(m, q, k, v, 0, -1),
            "attend: expected a positive window, or 0 for none, got -1", "");
    refused(m, model_node(m, OP_ATTEND, NULL, NULL, (uint32_t[]){ q, k, v, q }, 4),
            "attend: expected segments to be int [T], got real [T, 32, 16]", "");
    model_destroy(m);
}

static void test_moves(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t route = route_of(m, 2, 8), other = route_of(m, 3, 8),
             ids = model_generator(m, OP_TOKENS, 0, NULL, 0);
    uint32_t table = PARAM(m, "table", 100, 3, 4), x = TOKENS_OF(m, "x", 2, 5),
             rows = model_op2(m, OP_DISPATCH, x, route);
    uint32_t segments = model_generator(m, OP_SEGMENTS, 0, NULL, 0);
    assert_type(m, model_op2(m, OP_EMBED, table, ids), "real [T, 3, 4]");
    assert_type(m, model_op2(m, OP_EMBED, table, ids_of(m, 2)), "real [T, 2, 3, 4]");
    assert_type(m, node_k(m, OP_EMBED_W, 100, TOKENS_OF(m, "g", 2, 3), ids_of(m, 2)),
                "real [100, 3]");
    assert_type(m, rows, "real [R, 5]");
    assert_type(m, model_op2(m, OP_COLLECT, rows, route), "real [T, 2, 5]");
    assert_type(m, node_k(m, OP_SHIFT, 1, x, segments), "real [T, 2, 5]");
    assert_type(m, route, "route []");
    assert_int_equal(model_experts(m, model_type(m, rows)), 8);
    assert_int_equal(model_top_k(m, model_type(m, rows)), 2);
    refused(m, model_op2(m, OP_EMBED, x, ids),
            "embed: expected the table to be [rows, n...] without row axis, got [T, 2, 5]", "");
    refused(m, model_op2(m, OP_EMBED, table, x), "embed: expected int ids, got real [T, 2, 5]",
            "ids come from m.top_k, m.tokens, m.labels or m.positions");
    refused(m, node_k(m, OP_EMBED_W, 100, TOKENS_OF(m, "h", 3), ids_of(m, 2)),
            "embed_w: expected the gradient to begin as the ids do, got [T, 3] and [T, 2]", "");
    refused(m, model_op2(m, OP_DISPATCH, x, other),
            "dispatch: expected x to be [T, 3, ...], one per choice, got real [T, 2, 5]", "");
    refused(m, model_op2(m, OP_DISPATCH, x, x), "dispatch: expected a route, got real [T, 2, 5]",
            "m.route(ids, experts) makes one");
    refused(m, model_op2(m, OP_COLLECT, rows, other),
            "collect: expected x to be expert rows of the route, got real [R, 5]",
            "m.dispatch(x, route) makes rows");
    refused(m, node_k(m, OP_SHIFT, 1, rows, segments),
            "shift: expected x to be real or int along tokens, got real [R, 5]", "");
    Attr attr = { .raw = { 0, 0 } };
    uint32_t choice = ids_of(m, 2);
    refused(m, model_node(m, OP_ROUTE, &attr, NULL, &choice, 1),
            "route: expected at least one expert, got 0", "");
    attr.route.experts = 8;
    refused(m, model_node(m, OP_ROUTE, &attr, NULL, &ids, 1),
            "route: expected ids to be int [T, k], got int [T]", "");
    attr.route.capacity = -1;
    refused(m, model_node(m, OP_ROUTE, &attr, NULL, &choice, 1),
            "route: expected a positive capacity factor, or 0 for dropless, got -1", "");
    model_destroy(m);
}

static void test_effects(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t w = PARAM(m, "w", 3), s = SCALARS_OF(m, "s", 3), x = TOKENS_OF(m, "x", 3);
    assert_type(m, model_op2(m, OP_ACCUMULATE, w, s), "effect []");
    refused(m, model_op2(m, OP_ACCUMULATE, s, w),
            "accumulate: expected the first operand to be a param, got state", "");
    refused(m, model_op2(m, OP_UPDATE, s, x), "update: expected real [3], got real [T, 3]", "");
    refused(m, model_op2(m, OP_UPDATE, w, w),
            "update: expected the first operand to be a state, got param", "");
    refused(m, model_op1(m, OP_RECORD, x),
            "record: expected a real number or a vector without row axis, got real [T, 3]", "");
    refused(m, model_op1(m, OP_OUTPUT, route_of(m, 2, 8)), "output: expected a tensor, got route",
            "");
    refused(m, model_op1(m, OP_KEEP, route_of(m, 2, 8)),
            "keep: expected the first operand to be a tensor, got a route", "");
    refused(m, model_op1(m, OP_CAST, x), "cast: expected \"fp32\" or \"bf16\", got precision 0",
            "");
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broadcast),      cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_differing_axes), cmocka_unit_test(test_differing_rows),
        cmocka_unit_test(test_arity),          cmocka_unit_test(test_sources),
        cmocka_unit_test(test_views),          cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_whole_rows),     cmocka_unit_test(test_rotate),
        cmocka_unit_test(test_matmul),         cmocka_unit_test(test_weight_through_views),
        cmocka_unit_test(test_attend),         cmocka_unit_test(test_moves),
        cmocka_unit_test(test_effects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
