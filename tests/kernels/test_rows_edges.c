// SPDX-License-Identifier: Apache-2.0
// Row programs at the edges: ties and NaN in top_k, rows of a vocabulary, what is refused and how
// it is said.
#include "tests/kernels/lab.h"
#include "tests/kernels/rows_graph.h"

#include <math.h>
#include <stdlib.h>

// One load x [T, dims], stores of the given nodes.
typedef struct Edge {
    Model *m;
    RowLoad load;
    RowStore stores[4];
    uint32_t nodes[32];
    KernelDesc desc;
} Edge;

static uint32_t start(Edge *e, int32_t rows, Dims d) {
    memset(e, 0, sizeof *e);
    e->m = model_create();
    uint32_t x = model_generator(e->m, OP_UNIFORM, 0, d.at, d.rank);
    assert_true(x);
    e->load = (RowLoad){ x, WHAT_VALUE, DTYPE_F32, 0 };
    e->desc = (KernelDesc){ .family = FAMILY_ROW, .rows = rows };
    return x;
}

static const KernelDesc *finish(Edge *e, const uint32_t *roots, int n) {
    uint32_t n_nodes = 0;
    for (uint32_t id = 1; id < e->m->n_nodes; id++) {
        int class = op_info[e->m->nodes[id].op].class;
        if (class == CLASS_SOURCE || class == CLASS_GENERATOR || class == CLASS_PARTIAL) continue;
        assert_true(n_nodes < COUNT_OF(e->nodes));
        e->nodes[n_nodes++] = id;
    }
    for (int i = 0; i < n; i++) {
        assert_true(roots[i]);
        bool real = model_type(e->m, roots[i])->kind == KIND_REAL;
        e->stores[i] =
            (RowStore){ .node = roots[i],
                        .dtype = real ? DTYPE_F32 : DTYPE_I32,
                        .partial = op_info[e->m->nodes[roots[i]].op].class == CLASS_PARTIAL };
    }
    e->desc.body = (RowBody){ .model = e->m,
                              .row = ROW_T,
                              .nodes = e->nodes,
                              .n_nodes = n_nodes,
                              .loads = &e->load,
                              .n_loads = 1,
                              .stores = e->stores,
                              .n_stores = (uint32_t)n };
    return &e->desc;
}

/* top_k ---------------------------------------------------------------------------------------- */

static float awkward(int64_t i) {
    static const float values[] = { 1,         1,        -0.0f, 0.0f,      NAN,
                                    -INFINITY, INFINITY, -1,    0x1p-149f, -0x1.fffffep127f };
    return values[hash_mix(5, 6, (uint64_t)i) % COUNT_OF(values)];
}

// The reference: NaN counts as -inf, ties go to the lower id.
static void choose(const float *x, int n, int k, int32_t *ids) {
    bool taken[64] = { 0 };
    for (int c = 0; c < k; c++) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            if (taken[i]) continue;
            float a = isnan(x[i]) ? -INFINITY : x[i], b = best < 0         ? 0
                                                          : isnan(x[best]) ? -INFINITY
                                                                           : x[best];
            if (best < 0 || a > b) best = i;
        }
        taken[best] = true;
        ids[c] = best;
    }
}

static void test_top_k(void **state) {
    (void)state;
    static const int shape[][2] = { { 1, 1 },   { 6, 6 },   { 8, 3 }, { 15, 15 },
                                    { 16, 16 }, { 33, 33 }, { 50, 4 } };
    enum { ROWS = 77, CASES = COUNT_OF(shape) };
    Lab lab;
    lab_open(&lab);
    Edge edges[CASES];
    uint32_t kernel[CASES];
    for (int c = 0; c < CASES; c++) {
        uint32_t x = start(&edges[c], ROWS, DIMS(shape[c][0])),
                 root = g_k(edges[c].m, OP_TOP_K, x, 0, shape[c][1]);
        kernel[c] = lab_add(&lab, finish(&edges[c], &root, 1));
    }
    lab_compile(&lab);
    for (int c = 0; c < CASES; c++) {
        int n = shape[c][0], k = shape[c][1];
        float *x = lab_array(ROWS * n);
        int32_t *ids = lab_array(ROWS * k), want[64];
        for (int i = 0; i < ROWS * n; i++) x[i] = i < n ? NAN : awkward(i);
        Binding b[] = { READ_F32("l0", x), WRITE_I32("s0", ids) };
        lab_run(&lab, kernel[c], b, 2);
        for (int row = 0; row < ROWS; row++) {
            choose(x + row * n, n, k, want);
            assert_memory_equal(ids + row * k, want, sizeof *want * (size_t)k);
        }
        lab_free(x), lab_free(ids);
        model_destroy(edges[c].m);
    }
    lab_close(&lab);
}

/* Numbers that are no numbers ------------------------------------------------------------------ */

// Masked softmax: -inf as a constant; a row that is all masked is NaN, and only that row.
static void test_infinities(void **state) {
    (void)state;
    static const int32_t sizes[] = { 5, 40 };
    enum { ROWS = 35 };
    Lab lab;
    lab_open(&lab);
    Edge edges[2];
    uint32_t kernel[2];
    for (int c = 0; c < 2; c++) {
        uint32_t x = start(&edges[c], ROWS, DIMS(sizes[c]));
        Model *m = edges[c].m;
        Attr attr = { .raw = { 0, 0 } };
        attr.axes = 1;
        uint32_t masked = model_op3(m, OP_WHERE, model_op2(m, OP_LT, x, g_number(m, 0)),
                                    g_number(m, -INFINITY), x);
        uint32_t e = model_op1(m, OP_EXP, g_sub(m, masked, g_attr(m, OP_AMAX, attr, masked, 0, 0)));
        uint32_t roots[2] = { g_div(m, e, model_sum(m, e, 1)),
                              g_attr(m, OP_ROW_MAX, (Attr){ .raw = { 0, 0 } }, masked, 0, 0) };
        kernel[c] = lab_add(&lab, finish(&edges[c], roots, 2));
    }
    lab_compile(&lab);
    for (int c = 0; c < 2; c++) {
        int n = sizes[c];
        float *x = lab_random(ROWS * n, 3), *y = lab_array(ROWS * n), *most = lab_array(n);
        for (int j = 0; j < n; j++) x[7 * n + j] = -1, x[9 * n + j] = j == 2 ? 5 : -1;
        for (int row = 0; row < ROWS; row++) {
            x[row * n + 1] = -2; // masked in every row
            if (row != 7) x[row * n + 3] = 0.5f;
        }
        Binding b[] = { READ_F32("l0", x), WRITE_F32("s0", y), WRITE_F32("s1", most) };
        lab_run(&lab, kernel[c], b, 3);
        for (int row = 0; row < ROWS; row++) {
            double sum = 0, total = 0;
            for (int j = 0; j < n; j++) sum += x[row * n + j] < 0 ? 0 : exp(x[row * n + j]);
            for (int j = 0; j < n; j++) {
                float got = y[row * n + j];
                if (row == 7)
                    assert_true(isnan(got));
                else
                    lab_near(got, x[row * n + j] < 0 ? 0 : exp(x[row * n + j]) / sum, 1e-6,
                             "softmax", j);
                total += got;
            }
            if (row != 7) lab_near(total, 1, 1e-5, "total", row);
        }
        assert_true(most[1] == -INFINITY);
        assert_true(most[2] == 5);
        lab_free(x), lab_free(y), lab_free(most);
        model_destroy(edges[c].m);
    }
    lab_close(&lab);
}

/* Wide rows ------------------------------------------------------------------------------------ */

enum { VOCAB = 100003, WIDE_ROWS = 3 };

static void check_loss(const float *x, const float *loss, const float *grad) {
    for (int row = 0; row < WIDE_ROWS; row++) {
        const float *at = x + (int64_t)row * VOCAB;
        double top = -INFINITY, sum = 0;
        for (int j = 0; j < VOCAB; j++) top = fmax(top, at[j]);
        for (int j = 0; j < VOCAB; j++) sum += exp(at[j] - top);
        lab_near(loss[row], log(sum) + top, 1e-5, "log_sum_exp", row);
        for (int j = 0; j < VOCAB; j++)
            lab_near(grad[(int64_t)row * VOCAB + j], exp(at[j] - top) / sum, 1e-9, "softmax", j);
    }
}

static void test_vocabulary(void **state) {
    (void)state;
    Edge e, turned;
    uint32_t x = start(&e, WIDE_ROWS, DIMS(VOCAB));
    Model *m = e.m;
    Attr attr = { .raw = { 0, 0 } };
    attr.axes = 1;
    uint32_t top = g_attr(m, OP_AMAX, attr, x, 0, 0),
             power = model_op1(m, OP_EXP, g_sub(m, x, top)), sum = model_sum(m, power, 1);
    uint32_t roots[2] = { g_add(m, model_op1(m, OP_LOG, sum), top), g_div(m, power, sum) };
    const KernelDesc *desc = finish(&e, roots, 2);
    Text source = { 0 };
    assert_int_equal(row_source(desc, "row_wide", &source), OK);
    assert_null(strstr(text_cstr(&source), "float m")); // nothing as wide as a row is kept
    Text again = { 0 };
    assert_int_equal(row_source(desc, "row_wide", &again), OK);
    assert_string_equal(text_cstr(&source), text_cstr(&again));
    text_finish(&source), text_finish(&again);

    uint32_t y =
        start(&turned, WIDE_ROWS, DIMS(2, VOCAB)); // what must be kept lies outside the stack
    uint32_t flat =
        g_reshape(turned.m, model_op1(turned.m, OP_TRANSPOSE, model_op1(turned.m, OP_NEG, y)),
                  DIMS(2 * VOCAB));
    uint32_t root = g_add(turned.m, flat, g_number(turned.m, 1));
    const KernelDesc *turned_desc = finish(&turned, &root, 1);
    assert_int_equal(row_source(turned_desc, "row_turned", &source), OK);
    assert_non_null(strstr(text_cstr(&source), "_Thread_local"));
    text_finish(&source);

    Lab lab;
    lab_open(&lab);
    uint32_t kernel = lab_add(&lab, desc), turned_kernel = 0;
    if (!lab_gpu()) turned_kernel = lab_add(&lab, turned_desc); // more than a block's shared memory
    lab_compile(&lab);
    float *in = lab_random(WIDE_ROWS * VOCAB, 1), *loss = lab_array(WIDE_ROWS),
          *grad = lab_array(WIDE_ROWS * VOCAB);
    Binding b[] = { READ_F32("l0", in), WRITE_F32("s0", loss), WRITE_F32("s1", grad) };
    lab_run(&lab, kernel, b, 3);
    check_loss(in, loss, grad);
    float *pairs = lab_random(2 * WIDE_ROWS * VOCAB, 2), *out = lab_array(2 * WIDE_ROWS * VOCAB);
    Binding t[] = { READ_F32("l0", pairs), WRITE_F32("s0", out) };
    if (!lab_gpu()) lab_run(&lab, turned_kernel, t, 2);
    for (int64_t i = 0; !lab_gpu() && i < 2L * WIDE_ROWS * VOCAB; i++) {
        int64_t row = i / (2 * VOCAB), j = i % (2 * VOCAB);
        if (out[i] != 1 - pairs[row * 2 * VOCAB + j % 2 * VOCAB + j / 2])
            fail_msg("number %lld", (long long)i);
    }
    lab_free(in), lab_free(loss), lab_free(grad), lab_free(pairs), lab_free(out);
    lab_close(&lab);
    model_destroy(e.m), model_destroy(turned.m);
}

/* Refusals ------------------------------------------------------------------------------------- */

static void refused(const KernelDesc *desc, Status status, const char *says) {
    Text source = { 0 };
    assert_int_equal(row_source(desc, "row_no", &source), status);
    if (!strstr(status_message(), says)) fail_msg("expected '%s' in: %s", says, status_message());
    text_finish(&source);
}

static void test_refusals(void **state) {
    (void)state;
    Edge e;
    uint32_t x = start(&e, 8, DIMS(6)), segments = model_generator(e.m, OP_SEGMENTS, 0, NULL, 0);
    e.m->addr = model_intern(e.m, "layers.1.ffn");
    uint32_t root = g_k(e.m, OP_SHIFT, x, segments, 1);
    refused(finish(&e, &root, 1), ERR_INPUT,
            "shift in layers.1.ffn: no row kernel: its segments must be loaded");
    model_destroy(e.m);

    x = start(&e, 8, DIMS(2, 6));
    uint32_t route = g_route(e.m, 4, 2, false);
    root = model_op2(e.m, OP_DISPATCH, model_op1(e.m, OP_NEG, x), route);
    finish(&e, &root, 1);
    e.desc.body.row = ROW_R, e.desc.body.route = route;
    refused(&e.desc, ERR_INTERNAL, "expected experts that divide 4, got 0");
    e.desc.experts = 4;
    refused(&e.desc, ERR_INPUT, "the offsets of its route are not loaded");
    model_destroy(e.m);

    x = start(&e, 8, DIMS(6));
    root = model_op1(e.m, OP_EXP, g_add(e.m, x, g_tokens(e.m, DIMS(6))));
    refused(finish(&e, &root, 1), ERR_INPUT, "no row kernel");
    model_destroy(e.m);

    x = start(&e, 8, DIMS(6));
    root = model_op1(e.m, OP_EXP, x);
    finish(&e, &root, 1);
    e.load.dtype = DTYPE_I32;
    refused(&e.desc, ERR_INPUT, "load l0 must be f32, is i32");
    e.load.dtype = DTYPE_F32;
    e.stores[0].dtype = DTYPE_I32;
    refused(&e.desc, ERR_INPUT, "reals are stored as f32");
    e.stores[0].dtype = DTYPE_F32;
    e.stores[0].partial = true;
    refused(&e.desc, ERR_INPUT, "only row_sum and row_max");
    model_destroy(e.m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_infinities),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
