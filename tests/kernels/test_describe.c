// SPDX-License-Identifier: Apache-2.0
// A description's text is a kernel's identity: every size is in it, node numbers and names are not.
// And which operations are refused for lack of a kernel.
#include "tests/kernels/lab.h"

static char *describe(Arena *arena, const KernelDesc *desc) {
    Text text = {0};
    kernel_describe(desc, &text);
    char *copy = arena_strdup(arena, text_cstr(&text));
    text_finish(&text);
    return copy;
}

static void test_sizes(void **state) {
    (void)state;
    static const PlanParam table[] = {{.name = "a", .lr = 1, .decay = 1}};
    const KernelDesc base = {.family = FAMILY_ATTEND, .rows = 8, .sequence = 4};
    KernelDesc d[28];
    int n = 0;
#define CHANGED(field, value) d[n] = base, d[n].field = value, n++
    CHANGED(family, FAMILY_ATTEND_GRAD);
    CHANGED(rows, 9), CHANGED(sequence, 8), CHANGED(experts, 2), CHANGED(mid, 2), CHANGED(each, 2),
        CHANGED(k, 2);
    CHANGED(n, 2), CHANGED(heads, 2), CHANGED(kv_heads, 2), CHANGED(qk, 2), CHANGED(v, 2),
        CHANGED(window, 2);
    CHANGED(top_k, 2), CHANGED(vocab, 2), CHANGED(ids, 2), CHANGED(scale, 0.3f),
        CHANGED(causal, true);
    CHANGED(sinks, true), CHANGED(accumulate, true), CHANGED(turned, true),
        CHANGED(across, true);
    CHANGED(precision, PRECISION_BF16), CHANGED(x, DTYPE_BF16), CHANGED(g, DTYPE_BF16);
    CHANGED(y, DTYPE_BF16);
    d[n] = base, d[n].parts = 2, d[n].part_n[0] = 3, d[n].part_n[1] = 4, n++;
    d[n] = base, d[n].parts = 2, d[n].part_n[0] = 4, d[n].part_n[1] = 3, n++;
    assert_int_equal(n, COUNT_OF(d));
    Arena *arena = arena_create();
    const char *texts[COUNT_OF(d) + 1] = {describe(arena, &base)};
    for (int i = 0; i < n; i++) {
        texts[i + 1] = describe(arena, &d[i]);
        for (int j = 0; j <= i; j++) assert_string_not_equal(texts[j], texts[i + 1]);
    }
    KernelDesc adamw = {.family = FAMILY_ADAMW, .n = 16, .params = table, .n_params = 1};
    PlanParam other = table[0];
    const char *first = describe(arena, &adamw);
    adamw.params = &other;
    other.name = "b"; // not in the source
    assert_string_equal(first, describe(arena, &adamw));
    other.lr = 0.5;
    assert_string_not_equal(first, describe(arena, &adamw));
    arena_destroy(arena);
}

// y = exp(x) * c on T, as node numbers fall.
typedef struct Made {
    Model *m;
    uint32_t x, exp, c, y;
} Made;

static Made make(int unrelated, const char *name, double constant) {
    Made made = {.m = model_create()};
    Model *m = made.m;
    int32_t dims[] = {6}, odd[] = {5};
    for (int i = 0; i < unrelated; i++) {
        odd[0] = 5 + 2 * i;
        model_param(m, model_intern(m, "other"), false, odd, 1, 0);
    }
    m->addr = model_intern(m, name);
    made.x = model_generator(m, OP_UNIFORM, 0, dims, 1);
    made.exp = model_op1(m, OP_EXP, made.x);
    made.c = model_const(m, constant, KIND_REAL);
    made.y = model_op2(m, OP_MUL, made.exp, made.c);
    assert_int_not_equal(made.y, 0);
    return made;
}

static char *describe_row(Arena *arena, const Made *made, uint8_t what) {
    uint32_t nodes[] = {made->exp, made->y};
    RowLoad loads[] = {{.node = made->x, .what = what}};
    RowStore stores[] = {{.node = made->y}};
    KernelDesc desc = {.family = FAMILY_ROW, .rows = 64};
    desc.body = (RowBody){.model = made->m,
                          .row = ROW_T,
                          .nodes = nodes,
                          .n_nodes = 2,
                          .loads = loads,
                          .n_loads = 1,
                          .stores = stores,
                          .n_stores = 1};
    return describe(arena, &desc);
}

static void test_row_bodies(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Made a = make(0, "a", 3.0), b = make(4, "b", 3.0), c = make(4, "b", 3.5);
    assert_int_not_equal(a.exp, b.exp);
    const char *text = describe_row(arena, &a, WHAT_VALUE);
    assert_string_equal(text, describe_row(arena, &b, WHAT_VALUE));
    assert_string_not_equal(text, describe_row(arena, &c, WHAT_VALUE));
    assert_string_not_equal(text, describe_row(arena, &a, WHAT_INDEX));
    model_destroy(a.m), model_destroy(b.m), model_destroy(c.m);
    arena_destroy(arena);
}

static void refused(const Model *m, uint32_t node, const char *expected) {
    const char *why = NULL;
    assert_int_not_equal(node, 0);
    assert_false(kernel_covers(m, node, &why));
    assert_non_null(strstr(why, expected));
}

static void test_covers(void **state) {
    (void)state;
    Model *m = model_create();
    int32_t dims[] = {6}, matrix[] = {6, 5};
    const char *why = NULL;
    uint32_t x = model_generator(m, OP_UNIFORM, 0, dims, 1);
    uint32_t w = model_param(m, model_intern(m, "w"), false, matrix, 2, 0);
    Attr attr = {.raw = {0, 0}};
    attr.mm.over = 1;
    uint32_t args[] = {x, w};
    assert_true(kernel_covers(m, model_node(m, OP_MATMUL, &attr, NULL, args, 2), &why));
    attr.mm.precision = PRECISION_FP32;
    assert_true(kernel_covers(m, model_node(m, OP_MATMUL, &attr, NULL, args, 2), &why));
    attr.mm.precision = PRECISION_BF16;
    assert_true(kernel_covers(m, model_node(m, OP_MATMUL, &attr, NULL, args, 2), &why));
    attr.mm.precision = PRECISION_MXFP8;
    refused(m, model_node(m, OP_MATMUL, &attr, NULL, args, 2), "mxfp8");
    Attr set = {.raw = {0, 0}};
    set.set = SET_SEQUENCE;
    assert_true(kernel_covers(m, model_node(m, OP_ROW_SUM, &set, NULL, &x, 1), &why));
    refused(m, model_node(m, OP_ROW_MAX, &set, NULL, &x, 1),
            "row_max over the tokens of a sequence");
    set.set = SET_MICROBATCH;
    assert_true(kernel_covers(m, model_node(m, OP_ROW_MAX, &set, NULL, &x, 1), &why));
    Attr k = {.raw = {0, 0}};
    k.k = 2;
    uint32_t ids = model_node(m, OP_TOP_K, &k, NULL, &x, 1);
    Attr route = {.raw = {0, 0}};
    route.route.experts = 6;
    assert_true(kernel_covers(m, model_node(m, OP_ROUTE, &route, NULL, &ids, 1), &why));
    route.route.capacity = 1.25f;
    assert_true(kernel_covers(m, model_node(m, OP_ROUTE, &route, NULL, &ids, 1), &why)); // of many ranks
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_row_bodies),
                                       cmocka_unit_test(test_covers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
