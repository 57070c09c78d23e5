// SPDX-License-Identifier: Apache-2.0
// Construction: names, hash-consing, every rewrite, the printed form, diagnostics with a caret.
#include "helper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_names(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t first = model_intern(m, "layers.1.w");
    char name[32];
    for (int i = 0; i < 1000; i++) { // past several growths of the table
        snprintf(name, sizeof name, "n%d", i);
        model_intern(m, name);
    }
    assert_int_equal(model_intern(m, ""), 0);
    assert_int_equal(model_intern(m, "layers.1.w"), first);
    assert_int_equal(model_intern(m, "n999"), m->n_names - 1);
    assert_string_equal(model_name(m, first), "layers.1.w");
    model_destroy(m);
    model_destroy(NULL);
}

static char *printed(const Model *m) {
    Text text = { 0 };
    model_print(m, &text, true);
    char *out = strdup(text_cstr(&text));
    text_finish(&text);
    return out;
}

static void a_copy_is_equal_and_stands_alone(void **state) {
    (void)state;
    Model *m = model_create();
    m->name = "copied";
    uint32_t file = model_add_file(m, "model.lua", "a line\n");
    model_add_file(m, "lost.lua", NULL);
    m->loc = (Loc){ file, 1, 1, 1 };
    m->addr = model_intern(m, "layers.1.w");
    uint32_t x = TOKENS_OF(m, "x", 4), w = model_constant(m, (double[]){ 1, 2, 3, 4 }, 4);
    uint32_t y = model_op2(m, OP_MUL, x, w);
    char *before = printed(m);
    Model *copy = model_copy(m);
    char *same = printed(copy);
    assert_string_equal(same, before);
    uint32_t n = copy->n_nodes;
    assert_int_equal(model_op2(copy, OP_MUL, x, w), y); // found, not made
    assert_int_equal(model_intern(copy, "layers.1.w"), m->addr);
    assert_int_equal(copy->n_nodes, n);
    for (int i = 0; i < 1000; i++) model_op2(copy, OP_ADD, y, model_const(copy, i + 2, KIND_REAL)); // tables grow
    char *after = printed(m);
    assert_string_equal(after, before);
    model_destroy(m);
    assert_string_equal(copy->name, "copied");
    assert_string_equal(copy->files[0].text, "a line\n");
    assert_null(copy->files[1].text);
    assert_string_equal(model_name(copy, model_at(copy, y)->addr), "layers.1.w");
    model_destroy(copy);
    free(before), free(same), free(after);
}

static void test_consing(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t x = TOKENS_OF(m, "x", 4), y = TOKENS_OF(m, "y", 4);
    m->addr = model_intern(m, "first");
    m->part = PART_FORWARD;
    uint32_t a = model_op2(m, OP_SUB, x, y);
    m->addr = model_intern(m, "second");
    m->part = PART_BACKWARD;
    m->loc.line = 7;
    assert_int_equal(model_op2(m, OP_SUB, x, y),
                     a); // address, location and part are not in the key
    assert_string_equal(model_name(m, model_at(m, a)->addr), "first");
    assert_int_equal(model_at(m, a)->part, PART_FORWARD);
    assert_int_equal(model_at(m, a)->loc.line, 0);
    assert_int_not_equal(model_op2(m, OP_SUB, y, x), a);
    assert_int_equal(model_sum(m, x, 1), model_sum(m, x, 1));
    assert_int_not_equal(node_k(m, OP_TOP_K, 1, x, 0),
                         node_k(m, OP_TOP_K, 2, x, 0)); // the attribute is
    assert_int_equal(model_const(m, 2, KIND_REAL), model_const(m, 2, KIND_REAL));
    assert_int_not_equal(model_const(m, 2, KIND_REAL), model_const(m, 2, KIND_INT)); // and the type
    assert_int_equal(model_constant(m, (double[]){ 1, 2, 3 }, 3),
                     model_constant(m, (double[]){ 1, 2, 3 }, 3));
    assert_int_not_equal(model_constant(m, (double[]){ 1, 2, 4 }, 3),
                         model_constant(m, (double[]){ 1, 2, 3 }, 3));
    uint32_t n = m->n_nodes;
    for (int i = 0; i < 1000; i++) model_op2(m, OP_MUL, model_const(m, i, KIND_REAL), x);
    for (int i = 0; i < 1000; i++) model_op2(m, OP_MUL, model_const(m, i, KIND_REAL), x);
    // x * 1 is x, the constants 0 to 999 are new but for 2
    assert_int_equal(m->n_nodes - n, 999 + 999);
    model_destroy(m);
}

static void test_not_consed(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t a = PARAM(m, "a", 4), b = PARAM(m, "b", 4), s = SCALARS_OF(m, "s", 4);
    assert_int_not_equal(a, b);
    assert_int_not_equal(model_op2(m, OP_UPDATE, s, a), model_op2(m, OP_UPDATE, s, a));
    assert_int_equal(m->params[m->nodes[b].attr.index].node, b);
    assert_string_equal(model_name(m, m->nodes[b].addr), "b");
    model_destroy(m);
}

static uint32_t x, y;

static uint32_t real(Model *m, double v) { return model_const(m, v, KIND_REAL); }
static uint32_t op2(Model *m, Op op, uint32_t a, double v) {
    return model_op2(m, op, a, real(m, v));
}
static uint32_t fold1(Model *m, Op op, double v) { return model_op1(m, op, real(m, v)); }
static uint32_t fold2(Model *m, Op op, double a, double b) {
    return model_op2(m, op, real(m, a), real(m, b));
}

static void test_identities(void **state) {
    (void)state;
    Model *m = model_create();
    x = TOKENS_OF(m, "x", 4), y = TOKENS_OF(m, "y", 4);
    uint32_t i = model_generator(m, OP_POSITIONS, 0, NULL, 0), one = TOKENS_OF(m, "t");
    assert_text(m, model_op2(m, OP_ADD, y, x), "add(x, y)");
    assert_text(m, model_op2(m, OP_MUL, y, x), "mul(x, y)");
    assert_text(m, model_op2(m, OP_EQ, y, x), "eq(x, y)");
    assert_text(m, model_op2(m, OP_NE, y, x), "ne(x, y)");
    assert_text(m, model_op2(m, OP_MAX, y, x), "max(y, x)"); // ties go to the second: order matters
    assert_text(m, model_op2(m, OP_LT, y, x), "lt(y, x)");
    assert_int_equal(op2(m, OP_ADD, x, 0), x);
    assert_int_equal(model_op2(m, OP_ADD, real(m, 0), x), x);
    assert_int_equal(op2(m, OP_SUB, x, 0), x);
    assert_text(m, model_op2(m, OP_SUB, real(m, 0), x), "sub(0, x)");
    assert_int_equal(op2(m, OP_MUL, x, 1), x);
    assert_int_equal(model_op2(m, OP_MUL, real(m, 1), x), x);
    assert_int_equal(op2(m, OP_DIV, x, 1), x);
    assert_text(m, op2(m, OP_MUL, x, 0), "mul(x, 0)"); // inf * 0 is not 0
    assert_int_equal(op2(m, OP_POW, x, 1), x);
    assert_text(m, op2(m, OP_POW, x, 2), "mul(x, x)");
    assert_text(m, op2(m, OP_POW, x, 3), "pow(x, 3)");
    assert_text(m, model_op2(m, OP_DIV, x, model_op1(m, OP_SQRT, y)), "mul(x, rsqrt(y))");
    assert_text(m, model_op2(m, OP_DIV, real(m, 1), model_op1(m, OP_SQRT, y)), "rsqrt(y)");
    assert_int_equal(model_op1(m, OP_NEG, model_op1(m, OP_NEG, x)), x);
    uint32_t stopped = model_op1(m, OP_STOP_GRADIENT, x);
    assert_int_equal(model_op1(m, OP_STOP_GRADIENT, stopped), stopped);
    // not where the result has another type than the operand
    assert_type(m, op2(m, OP_MUL, i, 1), "real [T]");
    assert_text(m, op2(m, OP_MUL, i, 1), "mul(positions, 1)");
    assert_text(m, op2(m, OP_DIV, i, 1), "div(positions, 1)");
    assert_int_equal(model_op2(m, OP_MUL, i, model_const(m, 1, KIND_INT)), i);
    assert_text(m, model_op2(m, OP_MUL, model_op2(m, OP_ADD, one, x), y), "mul(y, add(x, t))");
    model_destroy(m);
}

static void test_views(void **state) {
    (void)state;
    Model *m = model_create();
    x = TOKENS_OF(m, "x", 4, 6), y = TOKENS_OF(m, "y");
    Type mid = TYPE(ROW_T, 3), to = TYPE(ROW_T, 2, 3), same = *model_type(m, x);
    uint32_t reshaped = model_reshape(m, x, (int32_t[]){ 24 }, 1);
    assert_int_equal(model_reshape(m, x, (int32_t[]){ 4, 6 }, 2), x);
    assert_int_equal(model_reshape(m, reshaped, (int32_t[]){ 4, 6 }, 2), x);
    assert_text(m, model_reshape(m, reshaped, (int32_t[]){ 8, 3 }, 2), "reshape(x)");
    assert_int_equal(model_broadcast(m, x, &same), x);
    assert_text(m, model_broadcast(m, model_broadcast(m, y, &mid), &to), "broadcast(y)");
    assert_int_equal(model_op1(m, OP_TRANSPOSE, model_op1(m, OP_TRANSPOSE, x)), x);
    assert_int_equal(model_slice(m, x, 1, 0, 6), x);
    assert_int_equal(cut(m, OP_PAD, 1, 0, 6, x), x);
    uint32_t inner = model_slice(m, model_slice(m, x, 1, 1, 4), 1, 2, 2);
    assert_int_equal(inner, model_slice(m, x, 1, 3, 2));
    assert_text(m, model_slice(m, model_slice(m, x, 1, 1, 4), 0, 2, 2),
                "slice(slice(x))"); // other axis
    model_destroy(m);
}

static void test_folding(void **state) {
    (void)state;
    Model *m = model_create();
    const struct {
        Op op;
        double a, b, want;
    } two[] = {
        { OP_ADD, 2, 3, 5 },     { OP_SUB, 2, 3, -1 }, { OP_MUL, 2, 3, 6 }, { OP_DIV, 3, 2, 1.5 },
        { OP_POW, 2, 10, 1024 }, { OP_MIN, 2, 3, 2 },  { OP_MAX, 2, 3, 3 },
    };
    for (int i = 0; i < COUNT_OF(two); i++)
        assert_int_equal(fold2(m, two[i].op, two[i].a, two[i].b), real(m, two[i].want));
    const struct {
        Op op;
        double a, want;
    } one[] = {
        { OP_NEG, 2, -2 },      { OP_RECIP, 4, 0.25 }, { OP_EXP, 0, 1 },  { OP_LOG, 1, 0 },
        { OP_SQRT, 9, 3 },      { OP_RSQRT, 4, 0.5 },  { OP_ABS, -3, 3 }, { OP_SIGN, -3, -1 },
        { OP_SIGMOID, 0, 0.5 }, { OP_TANH, 0, 0 },     { OP_ERF, 0, 0 },
    };
    for (int i = 0; i < COUNT_OF(one); i++)
        assert_int_equal(fold1(m, one[i].op, one[i].a), real(m, one[i].want));
    const struct {
        Op op;
        int want;
    } compare[] = {
        { OP_LT, 1 }, { OP_LE, 1 }, { OP_GT, 0 }, { OP_GE, 0 }, { OP_EQ, 0 }, { OP_NE, 1 },
    };
    for (int i = 0; i < COUNT_OF(compare); i++) {
        assert_int_equal(fold2(m, compare[i].op, 2, 3), model_const(m, compare[i].want, KIND_BOOL));
    }
    uint32_t a = model_const(m, -7, KIND_INT), b = model_const(m, 2, KIND_INT),
             yes = model_const(m, 1, KIND_BOOL);
    assert_int_equal(model_op2(m, OP_IDIV, a, b), model_const(m, -4, KIND_INT));
    assert_int_equal(model_op2(m, OP_MOD, a, b), model_const(m, 1, KIND_INT));
    assert_int_equal(model_op3(m, OP_WHERE, yes, real(m, 2), real(m, 3)), real(m, 2));
    // in double: fp32 would give 0.30000001192...
    assert_true(m->nodes[fold2(m, OP_ADD, 0.1, 0.2)].attr.num == 0.1 + 0.2);
    // not numbers, and beyond the range of an int: left for the run
    assert_text(m, fold1(m, OP_LOG, -1), "log(-1)");
    assert_text(m, fold1(m, OP_LOG, 0), "-inf");
    uint32_t big = model_const(m, 2000000000, KIND_INT);
    assert_text(m, model_op2(m, OP_ADD, big, big), "add(2e+09, 2e+09)");
    model_destroy(m);
}

static void test_print(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t file = model_add_file(m, "model.lua", "one\ntwo\n");
    uint32_t in = TOKENS_OF(m, "x", 4, 6);
    m->addr = model_intern(m, "layers.1.ffn");
    m->loc = (Loc){ file, 2, 1, 3 };
    uint32_t w = PARAM(m, "layers.1.ffn.w", 6, 5);
    uint32_t h = matmul(m, OP_MATMUL, 1, 0, in, w);
    uint32_t sum = model_sum(m, h, 2);
    model_op2(m, OP_MUL, sum, model_const(m, -0.1, KIND_REAL));
    uint32_t route = route_of(m, 2, 4), z = TOKENS_OF(m, "z", 2, 3);
    model_op2(m, OP_DISPATCH, z, route);
    Text out = { 0 };
    model_print(m, &out, false);
    assert_string_equal(text_cstr(&out), "%1 = uniform at=x : real [T, 4, 6]\n"
                                         "%2 = param : real [6, 5]  layers.1.ffn.w\n"
                                         "%3 = matmul %1 %2 over=1 : real [T, 4, 5]  layers.1.ffn\n"
                                         "%4 = sum %3 axes=2 : real [T, 4, 1]  layers.1.ffn\n"
                                         "%5 = const -0.1 : real []  layers.1.ffn\n"
                                         "%6 = mul %4 %5 : real [T, 4, 1]  layers.1.ffn\n"
                                         "%7 = uniform at=score : real [T, 8]  layers.1.ffn\n"
                                         "%8 = top_k %7 k=2 : int [T, 2]  layers.1.ffn\n"
                                         "%9 = route %8 experts=4 : route  layers.1.ffn\n"
                                         "%10 = uniform at=z : real [T, 2, 3]  layers.1.ffn\n"
                                         "%11 = dispatch %10 %9 : real [R, 3]  layers.1.ffn\n");
    text_finish(&out);
    model_print(m, &out, true);
    assert_non_null(
        strstr(text_cstr(&out), "%6 = mul %4 %5 : real [T, 4, 1]  layers.1.ffn  @model.lua:2\n"));
    text_finish(&out);
    model_destroy(m);
}

static void test_names_of_ops(void **state) {
    (void)state;
    assert_string_equal(op_info[OP_MUL].name, "mul");
    assert_string_equal(op_info[OP_MUL].text, "'*'");
    assert_string_equal(op_info[OP_IDIV].name, "idiv");
    for (int i = 0; i < N_OPS; i++) {
        assert_null(strchr(op_info[i].name, '\''));
        for (int j = 0; j < i; j++) assert_string_not_equal(op_info[i].name, op_info[j].name);
    }
}

static const char *diagnostic(Model *m, Loc loc, const char *in, const char *const *notes,
                              int n_notes, const char *hint) {
    static Text out;
    text_finish(&out);
    out = (Text){ 0 };
    diag_print(m, loc, "what is wrong", in, notes, n_notes, hint, &out);
    const char *text = arena_strdup(m->arena, text_cstr(&out));
    text_finish(&out);
    return text;
}

static void test_diagnostics(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t file = model_add_file(m, "model.lua", "first\r\n\tlocal x = y + z\nlast");
    uint32_t lost = model_add_file(m, "lost.lua", NULL);
    const char *notes[] = { "one", "two" };
    assert_string_equal(diagnostic(m, (Loc){ file, 2, 12, 5 }, "layers.1", notes, 2, "do this"),
                        "model.lua:2:12: error: what is wrong\n"
                        "   2 | \tlocal x = y + z\n"
                        "     | \t          ^~~~~\n"
                        "  in:   layers.1\n"
                        "  note: one\n"
                        "  note: two\n"
                        "  hint: do this\n");
    // no end of line in the excerpt, the underline ends with the line
    assert_string_equal(diagnostic(m, (Loc){ file, 1, 1, 40 }, NULL, NULL, 0, NULL),
                        "model.lua:1:1: error: what is wrong\n   1 | first\n     | ^~~~~\n");
    assert_string_equal(diagnostic(m, (Loc){ file, 3, 4, 0 }, "", NULL, 0, ""),
                        "model.lua:3:4: error: what is wrong\n   3 | last\n     |    ^\n");
    assert_string_equal(diagnostic(m, (Loc){ file, 3, 0, 0 }, NULL, NULL, 0, NULL),
                        "model.lua:3: error: what is wrong\n   3 | last\n");
    assert_string_equal(diagnostic(m, (Loc){ file, 9, 1, 1 }, NULL, NULL, 0, NULL),
                        "model.lua:9:1: error: what is wrong\n");
    assert_string_equal(diagnostic(m, (Loc){ lost, 1, 1, 1 }, NULL, NULL, 0, NULL),
                        "lost.lua:1:1: error: what is wrong\n");
    assert_string_equal(diagnostic(m, (Loc){ 0 }, NULL, NULL, 0, "h"),
                        "error: what is wrong\n  hint: h\n");
    diag_set(m, "a %d", 1);
    diag_hint(m, "b");
    m->diag.blame[0] = 3;
    diag_set(m, "c");
    assert_string_equal(m->diag.message, "c");
    assert_string_equal(m->diag.hint, "");
    assert_int_equal(m->diag.blame[0], 0);
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),       cmocka_unit_test(test_consing),
        cmocka_unit_test(a_copy_is_equal_and_stands_alone),
        cmocka_unit_test(test_not_consed),  cmocka_unit_test(test_identities),
        cmocka_unit_test(test_views),       cmocka_unit_test(test_folding),
        cmocka_unit_test(test_print),       cmocka_unit_test(test_names_of_ops),
        cmocka_unit_test(test_diagnostics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
