// SPDX-License-Identifier: Apache-2.0
// Row programs by operation and by shape of group, each against the interpreter, at every
// instruction-set level, in several orders of tiles (tests/kernels/lab.h).
#include "tests/kernels/rows_case.h"
#include "tests/kernels/rows_graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Maps ----------------------------------------------------------------------------------------- */

// Every map on [T, n], many roots in one kernel.
static void maps_of(Rows *rows, const char *name, int32_t n) {
    static const Op unary[] = { OP_NEG,  OP_RECIP,   OP_EXP,  OP_ABS,
                                OP_SIGN, OP_SIGMOID, OP_TANH, OP_ERF };
    Model *m = model_create();
    uint32_t a = g_tokens(m, DIMS(n)), b = g_tokens(m, DIMS(n)), roots[12];
    int at = 0;
    for (int i = 0; i < COUNT_OF(unary); i++) roots[at++] = model_op1(m, unary[i], a);
    uint32_t positive = model_op1(m, OP_ABS, b);
    roots[at++] = model_op1(m, OP_LOG, positive);
    roots[at++] = model_op1(m, OP_SQRT, positive);
    roots[at++] = model_op1(m, OP_RSQRT, positive);
    RowsHow how = { .bound = 3e-6 };
    rows_add(rows, name, m, roots, at, &how);

    static const Op binary[] = { OP_ADD, OP_SUB, OP_MUL, OP_MIN, OP_MAX, OP_LT,
                                 OP_LE,  OP_GT,  OP_GE,  OP_EQ,  OP_NE };
    m = model_create();
    a = g_tokens(m, DIMS(n)), b = g_tokens(m, DIMS(n)), at = 0;
    for (int i = 0; i < COUNT_OF(binary); i++) roots[at++] = model_op2(m, binary[i], a, b);
    rows_add(rows, name, m, roots, at, NULL);

    m = model_create();
    a = g_tokens(m, DIMS(n)), b = g_tokens(m, DIMS(n)), at = 0;
    positive = model_op1(m, OP_ABS, a);
    roots[at++] = g_div(m, a, g_add(m, model_op1(m, OP_ABS, b), g_number(m, 0.25)));
    roots[at++] = model_op2(m, OP_POW, positive, b);
    roots[at++] = model_op2(m, OP_POW, a, g_number(m, 3));
    Attr cast = { .raw = { 0, 0 } };
    cast.precision = PRECISION_BF16;
    roots[at++] = g_attr(m, OP_CAST, cast, a, 0, 0);
    roots[at++] = model_op3(m, OP_WHERE, model_op2(m, OP_LT, a, b), a, g_number(m, -INFINITY));
    roots[at++] = model_op3(m, OP_WHERE, model_op2(m, OP_LT, a, b), g_int(m, 3), g_int(m, -7));
    rows_add(rows, name, m, roots, at, NULL);
}

static void int_maps(Rows *rows, const char *name, int32_t k) {
    Model *m = model_create();
    uint32_t a = g_sub(m, g_ids(m, k, 9), g_int(m, 4)), b = g_sub(m, g_ids(m, k, 5), g_int(m, 6)),
             roots[12];
    int at = 0;
    static const Op ops[] = {
        OP_ADD, OP_SUB, OP_MUL, OP_IDIV, OP_MOD, OP_MIN, OP_MAX, OP_LT, OP_EQ
    };
    for (int i = 0; i < COUNT_OF(ops); i++) roots[at++] = model_op2(m, ops[i], a, b);
    roots[at++] = model_op1(m, OP_NEG, a);
    roots[at++] = model_op1(m, OP_ABS, a);
    roots[at++] = g_mul(m, a, g_number(m, 0.5)); // an int meets a real
    rows_add(rows, name, m, roots, at, NULL);
}

/* Common bodies -------------------------------------------------------------------------------- */

static uint32_t softmax(Model *m, uint32_t x) {
    uint32_t last = 1u << (model_type(m, x)->rank - 1);
    Attr attr = { .raw = { 0, 0 } };
    attr.axes = last;
    uint32_t e = model_op1(m, OP_EXP, g_sub(m, x, g_attr(m, OP_AMAX, attr, x, 0, 0)));
    return g_div(m, e, model_sum(m, e, last));
}

static uint32_t rms_norm(Model *m, uint32_t x, uint32_t gain) {
    const Type *t = model_type(m, x);
    uint32_t last = 1u << (t->rank - 1);
    uint32_t mean =
        g_mul(m, model_sum(m, g_mul(m, x, x), last), g_number(m, 1.0 / t->dim[t->rank - 1]));
    uint32_t r = model_op1(m, OP_RSQRT, g_add(m, mean, g_number(m, 1e-6)));
    return g_mul(m, g_mul(m, x, r), gain);
}

static void bodies_of(Rows *rows, const char *name, int32_t n, int32_t tokens) {
    RowsHow how = { .tokens = tokens };
    Model *m = model_create();
    uint32_t root = softmax(m, g_tokens(m, DIMS(n)));
    rows_add(rows, name, m, &root, 1, &how);

    m = model_create();
    uint32_t x = g_tokens(m, DIMS(n)), y = g_tokens(m, DIMS(n)), sum = g_add(m, x, y);
    uint32_t roots[3] = { sum, rms_norm(m, sum, g_param(m, DIMS(n))), softmax(m, sum) };
    rows_add(rows, name, m, roots, 3, &how);

    m = model_create(); // heads
    x = g_tokens(m, DIMS(3, n));
    roots[0] = rms_norm(m, x, g_param(m, DIMS(n)));
    roots[1] = model_sum(m, x, 1);
    roots[2] = model_sum(m, x, 3);
    rows_add(rows, name, m, roots, 3, &how);

    m = model_create(); // cross entropy
    x = g_tokens(m, DIMS(n));
    uint32_t labels = model_generator(m, OP_LABELS, 1, NULL, 0);
    Attr attr = { .raw = { 0, 0 } };
    attr.axes = 1;
    uint32_t top = g_attr(m, OP_AMAX, attr, x, 0, 0), hot = g_k(m, OP_ONE_HOT, labels, 0, n);
    uint32_t lse = g_add(
        m, model_op1(m, OP_LOG, model_sum(m, model_op1(m, OP_EXP, g_sub(m, x, top)), 1)), top);
    uint32_t valid = model_generator(m, OP_VALID, 0, NULL, 0);
    uint32_t loss =
        g_mul(m, g_sub(m, lse, model_sum(m, g_mul(m, x, hot), 1)), g_reshape(m, valid, DIMS(1)));
    roots[0] = loss;
    roots[1] = g_mul(m, g_sub(m, model_op1(m, OP_EXP, g_sub(m, x, lse)), hot),
                     model_generator(m, OP_INV_STEP, 0, NULL, 0));
    rows_add(rows, name, m, roots, 2, &how);
}

/* Views, pieces, reductions -------------------------------------------------------------------- */

static void views_of(Rows *rows, const char *name, int32_t a, int32_t b) {
    Model *m = model_create();
    uint32_t x = g_tokens(m, DIMS(a, b)), y = model_op1(m, OP_TANH, x), roots[8];
    int at = 0;
    roots[at++] = g_mul(m, model_op1(m, OP_TRANSPOSE, x), g_number(m, 2));
    roots[at++] = g_reshape(m, model_op1(m, OP_TRANSPOSE, y), DIMS(a * b));
    roots[at++] = g_add(m, g_reshape(m, x, DIMS(b, a)), g_reshape(m, y, DIMS(b, a)));
    roots[at++] = g_add(m, model_slice(m, y, 1, b / 3, b - b / 3), g_param(m, DIMS(b - b / 3)));
    roots[at++] = model_slice(m, x, 0, a - 1, 1);
    roots[at++] = g_broadcast(m, g_param(m, DIMS(b)), DIMS(a, b), x);
    roots[at++] = g_reshape(m, model_slice(m, y, 1, 0, (b + 1) / 2), DIMS(a * ((b + 1) / 2)));
    roots[at++] = x;
    rows_add(rows, name, m, roots, at, NULL);
}

static void pieces_of(Rows *rows, const char *name, int32_t a, int32_t b) {
    Model *m = model_create();
    uint32_t x = g_tokens(m, DIMS(a, b)), y = g_tokens(m, DIMS(a, b)), roots[6];
    uint32_t s = model_op1(m, OP_SIGMOID, x);
    int at = 0;
    roots[at++] = g_concat(m, 1, g_mul(m, s, y), g_sub(m, y, s));
    roots[at++] = g_concat(m, 0, y, s);
    roots[at++] = g_pad(m, s, 1, 2, b + 3);
    roots[at++] = g_add(m, g_pad(m, s, 0, 1, a + 1), g_number(m, 1));
    roots[at++] = model_sum(m, g_concat(m, 1, x, s), 2);
    roots[at++] = model_sum(m, g_pad(m, s, 0, 0, a + 2), 1);
    rows_add(rows, name, m, roots, at, NULL);
}

static void reductions_of(Rows *rows, const char *name, int32_t a, int32_t b, int32_t c) {
    Model *m = model_create();
    uint32_t x = g_tokens(m, DIMS(a, b, c)), y = model_op1(m, OP_TANH, x), roots[12];
    int at = 0;
    for (uint32_t axes = 1; axes < 8; axes++) roots[at++] = model_sum(m, axes & 1 ? x : y, axes);
    Attr attr = { .raw = { 0, 0 } };
    attr.axes = 5;
    roots[at++] = g_attr(m, OP_AMAX, attr, y, 0, 0);
    attr.axes = 2;
    roots[at++] = g_attr(m, OP_AMAX, attr, x, 0, 0);
    roots[at++] =
        g_mul(m, model_sum(m, g_mul(m, x, y), 1), model_sum(m, x, 1)); // a sum inside an expression
    rows_add(rows, name, m, roots, at, NULL);
}

static void rotations_of(Rows *rows, const char *name, int32_t heads, int32_t n, int32_t pairs,
                         bool half, int sign) {
    Model *m = model_create();
    double freq[64];
    for (int i = 0; i < pairs; i++) freq[i] = pow(10000, -(double)i / pairs);
    Attr attr = { .raw = { 0, 0 } };
    attr.turn.factor = half ? 1 : 1.5f, attr.turn.sign = (int8_t)sign,
    attr.turn.pairs = half ? PAIRS_HALF : PAIRS_ADJACENT;
    uint32_t f = model_constant(m, freq, pairs),
             positions = model_generator(m, OP_POSITIONS, 0, NULL, 0);
    uint32_t x = g_tokens(m, DIMS(heads, n));
    uint32_t roots[2] = { g_attr(m, OP_ROTATE, attr, x, f, positions),
                          g_mul(m, g_attr(m, OP_ROTATE, attr, g_add(m, x, x), f, positions),
                                g_number(m, 0.5)) };
    rows_add(rows, name, m, roots, 2, NULL);
}

/* Whole rows, picks ---------------------------------------------------------------------------- */

static void top_k_of(Rows *rows, const char *name, int32_t n, int32_t k) {
    Model *m = model_create();
    uint32_t x = g_tokens(m, DIMS(n)), s = softmax(m, x), ids = g_k(m, OP_TOP_K, x, 0, k), roots[6];
    int at = 0;
    roots[at++] = ids;
    roots[at++] = model_op2(m, OP_GATHER, s, ids);
    roots[at++] = model_op2(m, OP_GATHER, x, ids);
    roots[at++] = model_sum(m, g_k(m, OP_ONE_HOT, ids, 0, n), 1);
    roots[at++] = g_k(m, OP_SCATTER, model_op2(m, OP_GATHER, s, ids), ids, n);
    rows_add(rows, name, m, roots, at, NULL);

    m = model_create(); // ids with -1 and duplicates; x without row axis
    ids = g_ids(m, k, n);
    roots[0] = model_op2(m, OP_GATHER, g_param(m, DIMS(n)), ids);
    roots[1] = g_k(m, OP_SCATTER, g_tokens(m, DIMS(k)), ids, n);
    roots[2] = g_k(m, OP_ONE_HOT, ids, 0, n);
    rows_add(rows, name, m, roots, 3, NULL);
}

static void top_k_groups(Rows *rows, const char *name, int32_t groups, int32_t n, int32_t k) {
    Model *m = model_create();
    uint32_t x = g_tokens(m, DIMS(groups, n)), ids = g_k(m, OP_TOP_K, x, 0, k);
    uint32_t roots[3] = { ids, model_op2(m, OP_GATHER, x, ids),
                          model_sum(m, model_op2(m, OP_GATHER, x, ids), 2) };
    rows_add(rows, name, m, roots, 3, NULL);
}

static void embeds_of(Rows *rows, const char *name, int32_t n) {
    Model *m = model_create();
    uint32_t tokens = model_generator(m, OP_TOKENS, 1, NULL, 0), w = g_param(m, DIMS(11, n)),
             roots[4];
    roots[0] = model_op2(m, OP_EMBED, w, tokens);
    roots[1] = g_mul(m, model_op2(m, OP_EMBED, g_param(m, DIMS(11)), tokens), g_number(m, 3));
    roots[2] = model_op2(m, OP_EMBED, w, g_ids(m, 3, 11));
    roots[3] = model_op2(m, OP_EMBED, model_op1(m, OP_TRANSPOSE, g_param(m, DIMS(n, 11))), tokens);
    rows_add(rows, name, m, roots, 4, NULL);
}

static void shifts_of(Rows *rows, const char *name, int32_t n) {
    Model *m = model_create();
    uint32_t segments = model_generator(m, OP_SEGMENTS, 0, NULL, 0), x = g_tokens(m, DIMS(n)),
             roots[3];
    roots[0] = g_k(m, OP_SHIFT, x, segments, 2);
    roots[1] = g_mul(m, g_k(m, OP_SHIFT, x, segments, -3), g_number(m, 2));
    roots[2] = g_k(m, OP_SHIFT, model_generator(m, OP_TOKENS, 0, NULL, 0), segments, 1);
    RowsHow how = { .tokens = 90, .sequence = 18 };
    rows_add(rows, name, m, roots, 3, &how);
}

static void uniforms_of(Rows *rows, const char *name, int32_t a, int32_t b) {
    Model *m = model_create();
    int32_t dims[2] = { a, b };
    uint32_t u = model_generator(m, OP_UNIFORM, (int32_t)model_intern(m, "noise"), dims, 2);
    uint32_t roots[2] = { u, model_op1(m, OP_TRANSPOSE, model_op1(m, OP_NEG, u)) };
    RowsHow how = { .bound = 1e-9 };
    rows_add(rows, name, m, roots, 2, &how);
}

/* Row axes ------------------------------------------------------------------------------------- */

static void routed(Rows *rows, const char *name, int32_t n, bool skewed) {
    RowsHow how = { .tokens = 75 };
    Model *m = model_create(); // expert rows: a bias per expert, a weight per row, a swiglu
    uint32_t route = g_route(m, 5, 2, skewed), w = g_tokens(m, DIMS(2)),
             h = g_rows(m, route, DIMS(2, n));
    uint32_t biased = g_add(m, h, g_expert(m, route, DIMS(2, n)));
    uint32_t gate = g_reshape(m, model_slice(m, biased, 0, 0, 1), DIMS(n));
    uint32_t up = g_reshape(m, model_slice(m, biased, 0, 1, 1), DIMS(n));
    uint32_t act = g_mul(m, g_mul(m, gate, model_op1(m, OP_SIGMOID, gate)), up);
    uint32_t scaled = g_mul(m, act, g_reshape(m, model_op2(m, OP_DISPATCH, w, route), DIMS(1)));
    uint32_t roots[3] = { scaled, act, model_sum(m, scaled, 1) };
    rows_add(rows, name, m, roots, 3, &how);

    m = model_create(); // to rows: every token's copy, and each choice its own
    route = g_route(m, 5, 2, skewed);
    uint32_t x = g_tokens(m, DIMS(n));
    uint32_t copies = g_broadcast(m, g_reshape(m, x, DIMS(1, n)), DIMS(2, n), x);
    roots[0] = model_op2(m, OP_DISPATCH, copies, route);
    roots[1] = model_op1(m, OP_NEG, model_op2(m, OP_DISPATCH, g_tokens(m, DIMS(2, n)), route));
    rows_add(rows, name, m, roots, 2, &how);

    m = model_create(); // back, weighted and summed, onto a residual
    route = g_route(m, 5, 2, skewed);
    uint32_t back = model_op2(m, OP_COLLECT, g_rows(m, route, DIMS(n)), route);
    x = g_tokens(m, DIMS(n));
    uint32_t weighted = g_mul(m, back, g_reshape(m, g_tokens(m, DIMS(2)), DIMS(2, 1)));
    roots[0] = g_add(m, x, g_reshape(m, model_sum(m, weighted, 1), DIMS(n)));
    roots[1] = back;
    roots[2] = model_op2(m, OP_COLLECT, g_rows(m, route, NO_DIMS), route);
    rows_add(rows, name, m, roots, 3, &how);

    m = model_create(); // partial sums of expert rows; tiles without rows
    route = g_route(m, 5, 2, skewed);
    h = g_rows(m, route, DIMS(n));
    roots[0] = model_row_sum(m, h, SET_ALL);
    roots[1] = model_row_sum(m, g_mul(m, h, h), SET_ALL);
    Attr attr = { .raw = { 0, 0 } };
    roots[2] =
        g_attr(m, OP_ROW_MAX, attr,
               g_sub(m, model_op1(m, OP_NEG, model_op1(m, OP_ABS, h)), g_number(m, 1)), 0, 0);
    rows_add(rows, name, m, roots, 3, &how);

    m = model_create(); // experts
    route = g_route(m, 5, 2, skewed);
    roots[0] = g_add(m, g_expert(m, route, DIMS(n)), g_param(m, DIMS(n)));
    roots[1] = model_sum(m, g_expert(m, route, DIMS(n)), 1);
    rows_add(rows, name, m, roots, 2, &how);
}

static void sequences(Rows *rows, const char *name, int32_t n) {
    RowsHow how = { .tokens = 130, .sequence = 13 };
    Model *m = model_create();
    uint32_t s = g_sequences(m, DIMS(n)), x = g_tokens(m, DIMS(n));
    uint32_t counts = model_generator(m, OP_N_VALID, SET_SEQUENCE, NULL, 0);
    uint32_t roots[2] = { g_mul(m, x, g_broadcast(m, s, DIMS(n), x)),
                          g_mul(m, x, g_broadcast(m, counts, DIMS(n), x)) };
    rows_add(rows, name, m, roots, 2, &how);
    m = model_create();
    roots[0] = softmax(m, g_sequences(m, DIMS(n)));
    rows_add(rows, name, m, roots, 1, &how);
}

static void partial_sums(Rows *rows, const char *name, int32_t n, int32_t tokens) {
    RowsHow how = { .tokens = tokens };
    Model *m = model_create();
    uint32_t x = g_tokens(m, DIMS(n)), y = model_op1(m, OP_EXP, x);
    Attr attr = { .raw = { 0, 0 } };
    uint32_t roots[4] = { model_row_sum(m, x, SET_ALL), model_row_sum(m, y, SET_MICROBATCH),
                          g_attr(m, OP_ROW_MAX, attr, x, 0, 0),
                          model_row_sum(m, model_sum(m, y, 1), SET_ALL) };
    rows_add(rows, name, m, roots, 4, &how);

    how.partials = true; // the other end: a rowless group, and a token group that reads records
    m = model_create();
    uint32_t sums = model_row_sum(m, g_tokens(m, DIMS(n)), SET_ALL);
    uint32_t most = g_attr(m, OP_ROW_MAX, attr, g_tokens(m, DIMS(n)), 0, 0);
    roots[0] = g_mul(m, sums, g_number(m, 1.0 / tokens));
    roots[1] = sums;
    roots[2] = model_sum(m, g_mul(m, sums, most), 1);
    roots[3] = most;
    how.bound = 1e-4;
    rows_add(rows, name, m, roots, 4, &how);
    m = model_create();
    sums = model_row_sum(m, g_tokens(m, DIMS(n)), SET_ALL);
    roots[0] = g_mul(m, g_tokens(m, DIMS(n)), softmax(m, sums));
    rows_add(rows, name, m, roots, 1, &how);
}

/* Tests ---------------------------------------------------------------------------------------- */

static const int32_t odd_sizes[] = { 1, 3, 15, 16, 17, 31, 257 };

static void test_maps(void **state) {
    (void)state;
    Rows rows;
    rows_open(&rows);
    maps_of(&rows, "maps of 1", 1);
    maps_of(&rows, "maps of 13", 13);
    maps_of(&rows, "maps of 16", 16);
    maps_of(&rows, "maps of 37", 37);
    int_maps(&rows, "ints of 3", 3);
    int_maps(&rows, "ints of 18", 18);
    rows_check(&rows);
}

static void test_bodies(void **state) {
    (void)state;
    Rows rows;
    rows_open(&rows);
    for (int i = 0; i < COUNT_OF(odd_sizes); i++) bodies_of(&rows, "body", odd_sizes[i], 70 + i);
    rows_check(&rows);
}

static void test_shapes(void **state) {
    (void)state;
    Rows rows;
    rows_open(&rows);
    views_of(&rows, "narrow views", 2, 5);
    views_of(&rows, "views", 3, 17);
    views_of(&rows, "wide views", 16, 32);
    pieces_of(&rows, "narrow pieces", 1, 3);
    pieces_of(&rows, "pieces", 2, 17);
    pieces_of(&rows, "aligned pieces", 3, 16);
    reductions_of(&rows, "narrow sums", 2, 3, 2);
    reductions_of(&rows, "sums", 2, 3, 19);
    reductions_of(&rows, "aligned sums", 4, 1, 32);
    reductions_of(&rows, "one column", 17, 2, 1);
    rotations_of(&rows, "rotate", 2, 16, 8, true, 1);
    rotations_of(&rows, "rotate back", 3, 21, 7, true, -1);
    rotations_of(&rows, "rotate pairs", 2, 20, 10, false, 1);
    rotations_of(&rows, "rotate few pairs", 1, 5, 2, false, -1);
    rows_check(&rows);
}

static void test_picks(void **state) {
    (void)state;
    Rows rows;
    rows_open(&rows);
    top_k_of(&rows, "top 2 of 8", 8, 2);
    top_k_of(&rows, "top 1 of 1", 1, 1);
    top_k_of(&rows, "top 3 of 17", 17, 3);
    top_k_of(&rows, "top 16 of 64", 64, 16);
    top_k_groups(&rows, "groups", 4, 16, 2);
    top_k_groups(&rows, "narrow groups", 3, 4, 2);
    embeds_of(&rows, "embed", 24);
    embeds_of(&rows, "narrow embed", 3);
    shifts_of(&rows, "shift", 33);
    shifts_of(&rows, "narrow shift", 2);
    uniforms_of(&rows, "uniform", 3, 7);
    uniforms_of(&rows, "narrow uniform", 2, 3);
    rows_check(&rows);
}

static void test_row_axes(void **state) {
    (void)state;
    Rows rows;
    rows_open(&rows);
    routed(&rows, "routed", 20, false);
    routed(&rows, "routed, narrow", 3, false);
    routed(&rows, "empty experts", 16, true);
    routed(&rows, "empty experts, narrow", 4, true);
    sequences(&rows, "sequences", 17);
    sequences(&rows, "sequences, narrow", 2);
    partial_sums(&rows, "partial sums", 33, 200);
    partial_sums(&rows, "partial sums, narrow", 5, 130);
    partial_sums(&rows, "partial sums, one row", 18, 1);
    rows_check(&rows);
}

// The template `name` with every `from` replaced, in `dir`.
static void change_template(const char *dir, const char *name, const char *from, const char *to) {
    Arena *arena = arena_create();
    const char *text;
    assert_int_equal(template_read(name, arena, &text), OK);
    Text out = { 0 };
    int found = 0;
    for (const char *at; (at = strstr(text, from)); text = at + strlen(from), found++) {
        text_add_n(&out, text, (size_t)(at - text));
        text_add(&out, to);
    }
    text_add(&out, text);
    assert_true(found > 0);
    char *path = arena_printf(arena, "%s/%s", dir, name);
    assert_int_equal(file_write_atomic(path, out.at, out.bytes), OK);
    text_finish(&out);
    arena_destroy(arena);
}

// Lanes past the last feature or row hold NaN instead of the usual 0: nothing may depend on them.
static void test_dead_lanes(void **state) {
    (void)state;
    char dir[] = "/tmp/moec-templates-XXXXXX";
    assert_non_null(mkdtemp(dir));
    static const char zeros[] = "float lane[LANES] = ";
    static const char nans[] = "float lane[LANES];\n"
                               "for (int i = 0; i < LANES; i++) lane[i] = __builtin_nanf(\"\");"
                               "float unused[1] = ";
    static const char *const parts[] = { "cpu/prelude.h", "cpu/rows.h" };
    char cpu[80];
    snprintf(cpu, sizeof cpu, "%s/cpu", dir);
    assert_int_equal(mkdir(cpu, 0700), 0);
    for (int i = 0; i < COUNT_OF(parts); i++) change_template(dir, parts[i], zeros, nans);
    setenv("MOEC_TEMPLATES", dir, 1);
    Rows rows;
    rows_open(&rows);
    bodies_of(&rows, "dead features", 17, 40);
    bodies_of(&rows, "dead rows", 3, 37);
    partial_sums(&rows, "partial sums, dead features", 18, 70);
    partial_sums(&rows, "partial sums, dead rows", 3, 70);
    routed(&rows, "routed, dead rows", 3, false);
    pieces_of(&rows, "pieces, dead features", 2, 17);
    rows_check(&rows);
    unsetenv("MOEC_TEMPLATES");
    for (int i = 0; i < COUNT_OF(parts); i++) {
        Text path = { 0 };
        text_printf(&path, "%s/%s", dir, parts[i]);
        unlink(text_cstr(&path));
        text_finish(&path);
    }
    rmdir(cpu);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps),     cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_shapes),   cmocka_unit_test(test_picks),
        cmocka_unit_test(test_row_axes), cmocka_unit_test(test_dead_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
