// SPDX-License-Identifier: Apache-2.0
// Autodiff: the structure of gradients, and the slopes of all maps, twice, on scalars.
#include "helper.h"

#include <math.h>

static uint32_t gradient_of(Model *m, uint32_t root, uint32_t seed, uint32_t p) {
    uint32_t *gradients = ARENA_ARRAY(m->arena, uint32_t, m->n_params + 1);
    if (!model_gradients(m, &root, &seed, 1, gradients)) fail_msg("%s", m->diag.message);
    return gradients[m->nodes[p].attr.index];
}

static uint32_t seed_like(Model *m, uint32_t root) {
    uint32_t one = model_const(m, 1, KIND_REAL);
    return model_broadcast(m, one, model_type(m, root));
}

/* Structure ------------------------------------------------------------------------------------ */

static void test_sums_to_operands(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t x = TOKENS_OF(m, "x", 3, 4), g = TOKENS_OF(m, "g", 3, 4), t = TOKENS_OF(m, "t");
    uint32_t gain = PARAM(m, "gain", 4), scale = PARAM(m, "scale"), flat = PARAM(m, "flat", 3, 1);
    uint32_t d = gradient_of(m, model_op2(m, OP_MUL, x, gain), g, gain);
    assert_text(m, d, "row_sum(reshape(sum(mul(x, g))))");
    assert_type(m, d, "real [4]");
    assert_int_equal(m->nodes[model_arg(m, model_arg(m, model_arg(m, d, 0), 0), 0)].part,
                     PART_BACKWARD);
    d = gradient_of(m, model_op2(m, OP_ADD, x, scale), g, scale);
    assert_text(m, d, "row_sum(reshape(sum(g)))");
    assert_type(m, d, "real []");
    d = gradient_of(m, model_op2(m, OP_ADD, x, flat), g, flat);
    assert_text(m, d, "row_sum(sum(g))");
    assert_type(m, d, "real [3, 1]");
    // a seed smaller than its root is broadcast to it
    d = gradient_of(m, model_op2(m, OP_MUL, x, gain), t, gain);
    assert_text(m, d, "row_sum(reshape(sum(mul(x, broadcast(t)))))");
    model_destroy(m);
}

static void test_rows(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t route = route_of(m, 2, 8), rows = rows_of_route(m, "r", route, 4),
             shared = PARAM(m, "shared", 4);
    uint32_t bias = EXPERT_PARAM(m, "bias", route, 4), g = rows_of_route(m, "g", route, 4);
    assert_text(m, gradient_of(m, model_op2(m, OP_ADD, rows, bias), g, bias),
                "row_sum(dispatch(g, route(top_k(score))))");
    assert_int_equal(m->nodes[find_op(m, OP_ROW_SUM)].attr.set, SET_EXPERT);
    assert_type(m, find_op(m, OP_ROW_SUM), "real [E=8, 4]");
    gradient_of(m, model_op2(m, OP_ADD, rows, shared), g, shared);
    assert_int_equal(m->nodes[find_op(m, OP_ROW_SUM)].attr.set, SET_ALL);
    // an expert's parameter meets a shared one: experts are summed
    uint32_t root = model_op2(m, OP_ADD, rows, model_op2(m, OP_MUL, bias, shared));
    assert_type(m, gradient_of(m, root, g, shared), "real [4]");
    // sequences: the gradient of a sum over each is read by all its tokens
    uint32_t x = model_op2(m, OP_MUL, TOKENS_OF(m, "x", 4), shared),
             s = model_row_sum(m, x, SET_SEQUENCE);
    uint32_t d = gradient_of(m, s, model_row_sum(m, TOKENS_OF(m, "h", 4), SET_SEQUENCE), shared);
    assert_text(m, d, "row_sum(mul(x, broadcast(row_sum(h))))");
    model_destroy(m);
}

static void test_contractions(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t x = TOKENS_OF(m, "x", 4), w = PARAM(m, "w", 4, 5), v = PARAM(m, "v", 5, 6),
             g = TOKENS_OF(m, "g", 6);
    uint32_t y = matmul(m, OP_MATMUL, 1, 0, matmul(m, OP_MATMUL, 1, 0, x, w), v);
    assert_text(m, gradient_of(m, y, g, w), "matmul_w(x, matmul_t(g, v))");
    assert_text(m, gradient_of(m, y, g, v), "matmul_w(matmul(x, w), g)");
    uint32_t route = route_of(m, 2, 8), rows = rows_of_route(m, "r", route, 4),
             we = EXPERT_PARAM(m, "we", route, 4, 3);
    uint32_t ge = rows_of_route(m, "ge", route, 3), gs = rows_of_route(m, "gs", route, 5);
    assert_type(m, gradient_of(m, matmul(m, OP_MATMUL, 1, 0, rows, we), ge, we),
                "real [E=8, 4, 3]");
    // a weight that all experts share: their gradients are summed
    uint32_t d = gradient_of(m, matmul(m, OP_MATMUL, 1, 0, rows, w), gs, w);
    assert_type(m, d, "real [4, 5]");
    assert_int_equal(m->nodes[d].op, OP_ROW_SUM);
    model_destroy(m);
}

static void test_no_path_no_gradient(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t x = TOKENS_OF(m, "x", 4), w = PARAM(m, "w", 4), v = PARAM(m, "v", 4),
             s = SCALARS_OF(m, "s", 4);
    uint32_t one = model_const(m, 1, KIND_REAL);
    uint32_t y = model_op2(m, OP_MUL, x, w), score = model_op2(m, OP_ADD, y, s);
    // stop_gradient, ids, comparisons and signs pass nothing on; states take nothing
    uint32_t ids = node_k(m, OP_TOP_K, 2, score, 0);
    uint32_t hot = model_sum(m, node_k(m, OP_ONE_HOT, 4, ids, 0), 1);
    hot = model_reshape(m, hot, (int32_t[]){ 4 }, 1);
    uint32_t root = model_op2(m, OP_MUL, model_op1(m, OP_STOP_GRADIENT, y), x);
    root = model_op2(m, OP_ADD, root, model_op1(m, OP_SIGN, y));
    root = model_op2(m, OP_ADD, root, hot);
    root = model_op2(m, OP_ADD, root, model_op3(m, OP_WHERE, model_op2(m, OP_GT, y, s), one, s));
    uint32_t n = m->n_nodes;
    uint32_t seed = seed_like(m, root);
    assert_int_equal(gradient_of(m, root, seed, w), 0);
    assert_int_equal(gradient_of(m, root, seed, v), 0);
    assert_int_equal(gradient_of(m, root, seed, s), 0);
    assert_in_range(m->n_nodes, n, n + 1); // the seed; nothing was built in vain
    model_destroy(m);
}

static void test_operands_without_path_are_skipped(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t x = TOKENS_OF(m, "x", 4), w = PARAM(m, "w", 4, 4), g = TOKENS_OF(m, "g", 4);
    gradient_of(m, matmul(m, OP_MATMUL, 1, 0, x, w), g, w);
    assert_int_equal(count_op(m, OP_MATMUL_T), 0); // x is data
    model_destroy(m);
}

static void test_fan_in_order(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t w = PARAM(m, "w", 4), x = TOKENS_OF(m, "x", 4), g = TOKENS_OF(m, "g", 4);
    uint32_t y = model_op2(m, OP_MUL, x, w);
    uint32_t a = model_op1(m, OP_TANH, y), b = model_op1(m, OP_SIGMOID, y),
             c = model_op1(m, OP_EXP, y);
    uint32_t root = model_op2(m, OP_ADD, model_op2(m, OP_ADD, a, b), c);
    gradient_of(m, root, g, w);
    // readers are visited from the last: exp, sigmoid, tanh; the sum leans to the left
    uint32_t sum = find_op(m, OP_ADD), inner = model_arg(m, sum, 0);
    if (m->nodes[inner].op != OP_ADD) inner = model_arg(m, sum, 1);
    assert_int_equal(m->nodes[inner].op, OP_ADD);
    const char *first = text_of(m, model_arg(m, inner, 0)),
               *second = text_of(m, model_arg(m, inner, 1));
    assert_non_null(strstr(first, "exp("));
    assert_non_null(strstr(second, "sigmoid("));
    model_destroy(m);
}

static void test_pads_become_concat(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t w = PARAM(m, "w", 6), x = model_op2(m, OP_MUL, TOKENS_OF(m, "x", 6), w),
             g = TOKENS_OF(m, "g", 3);
    uint32_t up = model_slice(m, x, 0, 3, 3), gate = model_slice(m, x, 0, 0, 3);
    gradient_of(m, model_op2(m, OP_MUL, gate, up), g, w);
    assert_int_equal(count_op(m, OP_CONCAT), 1);
    assert_text(m, find_op(m, OP_CONCAT),
                "concat(mul(g, slice(mul(w, x))), mul(g, slice(mul(w, x))))");
    assert_int_equal(count_op(m, OP_ADD), 0);
    uint32_t first = model_arg(m, model_arg(m, find_op(m, OP_CONCAT), 0), 1);
    assert_int_equal(m->nodes[first].attr.cut.at,
                     3); // gate's gradient is up * g, and gate lies first
    model_destroy(m);
}

static void test_many_pads(void **state) {
    (void)state;
    Model *m = model_create();
    enum { PARTS = 20 }; // more than one concat takes
    uint32_t w = PARAM(m, "w", PARTS, 2), root = 0;
    for (int i = 0; i < PARTS; i++) {
        uint32_t part = model_op1(m, OP_TANH, model_slice(m, w, 0, i, 1));
        root = root ? model_op2(m, OP_ADD, root, part) : part;
    }
    uint32_t d = gradient_of(m, root, model_const(m, 1, KIND_REAL), w);
    assert_int_equal(m->nodes[d].op, OP_CONCAT);
    assert_type(m, d, "real [20, 2]");
    assert_int_equal(count_op(m, OP_CONCAT), 4); // 8 + 8 + 4, then the three
    model_destroy(m);
}

static void test_pads_that_do_not_tile(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t w = PARAM(m, "w", 6);
    uint32_t a = model_op1(m, OP_TANH, model_slice(m, w, 0, 0, 3)),
             b = model_op1(m, OP_EXP, model_slice(m, w, 0, 2, 3));
    uint32_t d = gradient_of(m, model_op2(m, OP_ADD, a, b), model_const(m, 1, KIND_REAL), w);
    assert_int_equal(m->nodes[d].op, OP_ADD);
    assert_int_equal(m->nodes[model_arg(m, d, 0)].op, OP_PAD);
    assert_int_equal(count_op(m, OP_CONCAT), 0);
    model_destroy(m);
}

static void test_inherits_place(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t file = model_add_file(m, "model.lua", NULL);
    uint32_t w = PARAM(m, "w", 4), x = TOKENS_OF(m, "x", 4), g = TOKENS_OF(m, "g", 4);
    m->addr = model_intern(m, "layers.3.ffn");
    m->loc = (Loc){ file, 42, 1, 1 };
    uint32_t y = model_op2(m, OP_MUL, x, w);
    m->addr = 0;
    m->loc = (Loc){ 0 };
    uint32_t d = gradient_of(m, y, g, w);
    uint32_t product = model_arg(m, d, 0);
    assert_string_equal(model_name(m, m->nodes[product].addr), "layers.3.ffn");
    assert_int_equal(m->nodes[product].loc.line, 42);
    assert_int_equal(m->addr, 0); // the builder's state is as it was
    assert_int_equal(m->part, PART_FORWARD);
    model_destroy(m);
}

static void test_attention(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t w = PARAM(m, "w", 4, 4, 8), sinks = PARAM(m, "sinks", 4), x = TOKENS_OF(m, "x", 4);
    uint32_t q = matmul(m, OP_MATMUL, 1, 0, x, w), k = TOKENS_OF(m, "k", 2, 8),
             v = TOKENS_OF(m, "v", 2, 6);
    uint32_t y = attend(m, q, k, v, sinks, 0), seed = TOKENS_OF(m, "g", 4, 6);
    uint32_t d = gradient_of(m, y, seed, w);
    assert_int_equal(count_op(m, OP_ATTEND_GRAD), 2); // of q and of the sinks: k and v are data
    assert_int_equal(count_op(m, OP_ATTEND_LSE), 1);
    assert_int_equal(m->nodes[find_op(m, OP_ATTEND_LSE)].part,
                     PART_FORWARD); // comes with the attention
    assert_type(m, model_arg(m, d, 1), "real [T, 4, 8]");
    assert_type(m, find_op(m, OP_ATTEND_GRAD), "real [4]");
    assert_true(model_verify(m));
    // its own gradient has none: an error, not a silent zero
    uint32_t gradients[2], norm = model_op2(m, OP_MUL, d, d), one = model_const(m, 1, KIND_REAL);
    assert_false(model_gradients(m, &norm, &one, 1, gradients));
    assert_string_equal(
        m->diag.message,
        "attend_grad: expected an operation that can be differentiated, this one has no gradient");
    model_destroy(m);
}

// The gradient of a squared gradient norm, through every operation whose adjoint is differentiable.
static void test_twice(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t route = route_of(m, 2, 8), segments = model_generator(m, OP_SEGMENTS, 0, NULL, 0);
    uint32_t table = PARAM(m, "table", 100, 6), w = PARAM(m, "w", 6, 2, 6),
             we = EXPERT_PARAM(m, "we", route, 6, 6);
    uint32_t x = model_op2(m, OP_EMBED, table, model_generator(m, OP_TOKENS, 0, NULL, 0));
    x = model_op2(m, OP_MUL, x,
                  model_op1(m, OP_RSQRT, model_sum(m, model_op2(m, OP_MUL, x, x), 1)));
    uint32_t h = matmul(m, OP_MATMUL, 1, 0, x, w);
    Type wide = TYPE(ROW_T, 2, 6);
    uint32_t freq = model_constant(m, (double[]){ 1, 0.5 }, 2);
    Attr turn = { .raw = { 0, 0 } };
    turn.turn.factor = 1;
    turn.turn.sign = 1;
    h = model_node(m, OP_ROTATE, &turn, NULL,
                   (uint32_t[]){ h, freq, model_generator(m, OP_POSITIONS, 0, NULL, 0) }, 3);
    h = model_op2(
        m, OP_SUB, h,
        model_op1(m, OP_STOP_GRADIENT, model_broadcast(m, model_op2(m, OP_MAX, h, x), &wide)));
    h = model_op1(m, OP_EXP, node_k(m, OP_SHIFT, 1, h, segments));
    uint32_t rows = matmul(m, OP_MATMUL, 1, 0, model_op2(m, OP_DISPATCH, h, route), we);
    uint32_t y = model_op2(m, OP_COLLECT, model_op1(m, OP_SIGMOID, rows), route);
    uint32_t picked = model_op2(m, OP_GATHER, y, node_k(m, OP_TOP_K, 3, y, 0));
    uint32_t top = model_op1(m, OP_LOG, model_op2(m, OP_ADD, picked, model_const(m, 1, KIND_REAL)));
    uint32_t loss = model_row_sum(m, model_sum(m, top, 3), SET_ALL);
    uint32_t gradients[3], norm = 0, one = model_const(m, 1, KIND_REAL), again[3];
    assert_true(model_gradients(m, &loss, &one, 1, gradients));
    for (int i = 0; i < 3; i++) {
        assert_int_not_equal(gradients[i], 0);
        assert_true(type_equal(model_type(m, gradients[i]), model_type(m, m->params[i].node)));
        uint32_t square = model_op2(m, OP_MUL, gradients[i], gradients[i]);
        square = model_sum(m, square, (1u << model_type(m, square)->rank) - 1);
        if (model_type(m, square)->row) square = model_row_sum(m, square, SET_ALL);
        square = model_reshape(m, square, NULL, 0);
        norm = norm ? model_op2(m, OP_ADD, norm, square) : square;
    }
    if (!model_gradients(m, &norm, &one, 1, again)) fail_msg("%s", m->diag.message);
    for (int i = 0; i < 3; i++) {
        assert_int_not_equal(again[i], 0);
        assert_true(type_equal(model_type(m, again[i]), model_type(m, m->params[i].node)));
    }
    if (!model_verify(m)) fail_msg("%s", m->diag.message);
    model_destroy(m);
}

/* Slopes --------------------------------------------------------------------------------------- */

// The value of a scalar expression, with the only parameter at p.
static double value(const Model *m, uint32_t id, double p) {
    const Node *n = model_at(m, id);
    double v[3] = { 0 };
    for (int i = 0; i < n->n_args && i < 3; i++) v[i] = value(m, model_arg(m, id, i), p);
    switch (n->op) {
    case OP_PARAM: return p;
    case OP_CONST: return n->attr.num;
    case OP_ADD: return v[0] + v[1];
    case OP_SUB: return v[0] - v[1];
    case OP_MUL: return v[0] * v[1];
    case OP_DIV: return v[0] / v[1];
    case OP_NEG: return -v[0];
    case OP_RECIP: return 1 / v[0];
    case OP_POW: return pow(v[0], v[1]);
    case OP_EXP: return exp(v[0]);
    case OP_LOG: return log(v[0]);
    case OP_SQRT: return sqrt(v[0]);
    case OP_RSQRT: return 1 / sqrt(v[0]);
    case OP_ABS: return fabs(v[0]);
    case OP_SIGN: return (v[0] > 0) - (v[0] < 0);
    case OP_SIGMOID: return 1 / (1 + exp(-v[0]));
    case OP_TANH: return tanh(v[0]);
    case OP_ERF: return erf(v[0]);
    case OP_MIN: return v[0] < v[1] ? v[0] : v[1];
    case OP_MAX: return v[0] > v[1] ? v[0] : v[1];
    case OP_LT: return v[0] < v[1];
    case OP_GT: return v[0] > v[1];
    case OP_EQ: return v[0] == v[1];
    case OP_WHERE: return v[0] != 0 ? v[1] : v[2];
    case OP_CAST:
    case OP_KEEP:
    case OP_RECOMPUTE: return v[0];
    default: fail_msg("no value for %s", op_info[n->op].name); return 0;
    }
}

static uint32_t expression(Model *m, int which, uint32_t p) {
    uint32_t c = model_const(m, 0.7, KIND_REAL);
    Attr bf16 = { .raw = { 0, 0 } };
    bf16.precision = PRECISION_BF16;
    static const Op unary[] = { OP_NEG, OP_RECIP,   OP_EXP,  OP_LOG, OP_SQRT, OP_RSQRT,
                                OP_ABS, OP_SIGMOID, OP_TANH, OP_ERF, OP_KEEP, OP_RECOMPUTE };
    static const Op binary[] = { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_POW, OP_MIN, OP_MAX };
    if (which < COUNT_OF(unary)) return model_op1(m, unary[which], p);
    which -= COUNT_OF(unary);
    if (which < COUNT_OF(binary)) return model_op2(m, binary[which], p, c);
    which -= COUNT_OF(binary);
    if (which < COUNT_OF(binary)) return model_op2(m, binary[which], c, p);
    which -= COUNT_OF(binary);
    switch (which) {
    case 0: return model_op2(m, OP_POW, p, p);
    case 1: return model_op2(m, OP_DIV, p, model_op1(m, OP_SQRT, p));
    case 2:
        return model_op3(m, OP_WHERE, model_op2(m, OP_GT, p, c), model_op1(m, OP_EXP, p),
                         model_op1(m, OP_LOG, p));
    case 3: return model_node(m, OP_CAST, &bf16, NULL, &p, 1);
    default: return 0;
    }
}

static void near(int which, int order, double got, double want) {
    if (fabs(got - want) > 1e-6 * (1 + fabs(want)))
        fail_msg("expression %d, order %d: got %.12g, expected %.12g", which, order, got, want);
}

static void test_slopes(void **state) {
    (void)state;
    for (int which = 0;; which++) {
        Model *m = model_create();
        uint32_t p = PARAM(m, "p"), root = expression(m, which, p),
                 one = model_const(m, 1, KIND_REAL);
        if (!root) {
            model_destroy(m);
            assert_int_equal(which, 12 + 14 + 4);
            return;
        }
        uint32_t square = model_op2(m, OP_MUL, root, root), first = gradient_of(m, square, one, p);
        assert_int_not_equal(first, 0);
        uint32_t second = gradient_of(m, first, one, p);
        assert_int_not_equal(second, 0);
        for (int i = 0; i < 2; i++) {
            double at = i ? 1.3 : 0.4, step = 1e-5;
            near(which, 1, value(m, first, at),
                 (value(m, square, at + step) - value(m, square, at - step)) / (2 * step));
            near(which, 2, value(m, second, at),
                 (value(m, first, at + step) - value(m, first, at - step)) / (2 * step));
        }
        model_destroy(m);
    }
}

static void test_slopes_at_edges(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t p = PARAM(m, "p"), zero = model_const(m, 0, KIND_REAL),
             one = model_const(m, 1, KIND_REAL);
    uint32_t relu = gradient_of(m, model_op2(m, OP_MAX, p, zero), one, p);
    assert_true(value(m, relu, 0) == 0 && value(m, relu, -1) == 0 && value(m, relu, 1) == 1);
    // a masked infinity gives no NaN
    uint32_t inf = model_op1(m, OP_LOG, p);
    uint32_t masked = model_op3(m, OP_WHERE, model_op2(m, OP_GT, p, one), inf, zero);
    assert_true(value(m, gradient_of(m, masked, one, p), 0.5) == 0);
    // 0^c with a tensor exponent
    uint32_t power = model_op2(m, OP_POW, zero, p);
    assert_true(value(m, gradient_of(m, power, one, p), 2) == 0);
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_to_operands),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_contractions),
        cmocka_unit_test(test_no_path_no_gradient),
        cmocka_unit_test(test_operands_without_path_are_skipped),
        cmocka_unit_test(test_fan_in_order),
        cmocka_unit_test(test_pads_become_concat),
        cmocka_unit_test(test_many_pads),
        cmocka_unit_test(test_pads_that_do_not_tile),
        cmocka_unit_test(test_inherits_place),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_slopes),
        cmocka_unit_test(test_slopes_at_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
