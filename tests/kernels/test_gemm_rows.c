// SPDX-License-Identifier: Apache-2.0
// Row programs inside contractions: with a post or a pre, a contraction gives the bits of the
// contraction and the same row program one after the other, dense and grouped.
//
//   post   a, b siblings: s0 = a sigmoid(b), s1 = a + l2, s2 = partial sums over rows of s0
//   pre    operand = x p,  b1 = x - p
#include "tests/kernels/lab.h"

#include "tests/kernels/rows_graph.h"

#include <math.h>
#include <stdlib.h>

typedef struct Case {
    int32_t rows, experts, k, n;
    int32_t of[4];
    uint8_t precision, x;
    bool turned; // matmul_t of two terms, which has one result
    int32_t each;
} Case;

static const Case cases[] = {
    {.rows = 1, .k = 3, .n = 1, .precision = PRECISION_FP32},
    {.rows = 333, .k = 45, .n = 70, .precision = PRECISION_FP32},
    {.rows = 200, .k = 45, .n = 70, .precision = PRECISION_BF16, .x = DTYPE_BF16},
    {.rows = 130, .k = 32, .n = 1100, .precision = PRECISION_BF16}, // scratch of its own
    {.rows = 90, .experts = 3, .of = {70, 0, 13}, .k = 45, .n = 70, .precision = PRECISION_BF16},
    {.rows = 70, .experts = 2, .of = {0, 0}, .k = 8, .n = 8, .precision = PRECISION_FP32},
    {.rows = 77, .k = 40, .n = 38, .precision = PRECISION_BF16, .x = DTYPE_BF16, .turned = true},
};

enum { MAX_LIST = 8 };
typedef struct Rows {
    Model *m;
    uint32_t nodes[MAX_LIST];
    RowLoad loads[MAX_LIST];
    RowStore stores[MAX_LIST];
    RowBody body;
} Rows;

static void list_node(Rows *p, uint32_t node) {
    assert_int_not_equal(node, 0);
    p->nodes[p->body.n_nodes++] = node;
}
static void list_load(Rows *p, uint32_t node, RowWhat what, Dtype dtype) {
    p->loads[p->body.n_loads++] =
        (RowLoad){.node = node, .what = (uint8_t)what, .dtype = (uint8_t)dtype};
}
static void list_store(Rows *p, uint32_t node, Dtype dtype) {
    p->stores[p->body.n_stores++] = (RowStore){.node = node, .dtype = (uint8_t)dtype};
}

static uint32_t rows_node(Rows *p, const Case *c, int32_t features) {
    return c->experts ? g_rows(p->m, p->body.route, DIMS(features))
                      : g_tokens(p->m, DIMS(features));
}

static void start(Rows *p, const Case *c) {
    *p = (Rows){.m = model_create()};
    p->body.row = c->experts ? ROW_R : ROW_T;
    if (c->experts) p->body.route = g_route(p->m, c->experts, 1, false);
    p->body.model = p->m, p->body.nodes = p->nodes, p->body.loads = p->loads,
    p->body.stores = p->stores;
}

static void make_post(Rows *p, const Case *c, RowWhat what) {
    start(p, c);
    uint32_t a = rows_node(p, c, c->n), b = c->turned ? a : rows_node(p, c, c->n);
    uint32_t old = rows_node(p, c, c->n), gate = model_op1(p->m, OP_SIGMOID, b);
    uint32_t y = g_mul(p->m, a, gate), z = g_add(p->m, a, old);
    list_load(p, a, what, DTYPE_F32);
    if (!c->turned) list_load(p, b, what, DTYPE_F32);
    list_load(p, old, WHAT_VALUE, DTYPE_F32);
    if (c->experts) list_load(p, 0, WHAT_OFFSETS, DTYPE_I32);
    list_node(p, gate), list_node(p, y), list_node(p, z);
    list_store(p, y, DTYPE_BF16), list_store(p, z, DTYPE_F32);
    if (c->experts) return;
    list_store(p, model_row_sum(p->m, y, SET_MICROBATCH), DTYPE_F32);
    p->stores[2].partial = true;
}

static void make_pre(Rows *p, const Case *c, bool inside, bool other) {
    start(p, c);
    uint32_t x = rows_node(p, c, c->k), scale = g_param(p->m, DIMS(c->k));
    uint32_t like = g_broadcast(p->m, scale, DIMS(c->k), x), y = g_mul(p->m, x, like);
    uint32_t z = g_sub(p->m, x, like);
    list_load(p, x, WHAT_VALUE, DTYPE_F32), list_load(p, scale, WHAT_VALUE, DTYPE_F32);
    if (c->experts) list_load(p, 0, WHAT_OFFSETS, DTYPE_I32);
    if (like != scale) list_node(p, like);
    list_node(p, y);
    if (other) list_node(p, z);
    list_store(p, y, c->precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32);
    p->stores[0].operand = inside;
    if (other) list_store(p, z, DTYPE_F32);
}

/* running ------------------------------------------------------------------------------------ */

typedef struct Data {
    int32_t *offsets;
    void *x, *w[2];
    float *y[2];
} Data;

static Data make_data(const Case *c) {
    Data d = {.offsets = lab_array((c->experts ? c->experts : 1) + 1)};
    d.offsets[0] = 0;
    for (int e = 0; e < c->experts; e++) d.offsets[e + 1] = d.offsets[e] + c->of[e];
    float *x = lab_random((int64_t)c->rows * c->k, 1);
    d.x = c->x == DTYPE_BF16 ? (void *)lab_narrow(x) : x;
    if (d.x != x) lab_free(x);
    int64_t steps = c->precision == PRECISION_BF16 ? (c->k + 1) / 2 * 2 : c->k;
    for (int i = 0; i < 2; i++) {
        // Any panels will do; an odd row's partner is zero.
        float *w = lab_random((c->experts ? c->experts : 1) * ((c->n + 31) / 32) * 32 * steps,
                              2 + (uint64_t)i);
        for (size_t j = 0; steps > c->k && j < lab_bytes(w) / 4; j++)
            if (j % 2 && (int64_t)j / 64 % (steps / 2) == steps / 2 - 1) w[j] = 0;
        d.w[i] = c->precision == PRECISION_BF16 ? (void *)lab_narrow(w) : w;
        if (d.w[i] != w) lab_free(w);
        d.y[i] = lab_filled((int64_t)c->rows * c->n, 7.0f);
    }
    return d;
}

static void drop_data(Data *d) {
    lab_free(d->offsets), lab_free(d->x);
    for (int i = 0; i < 2; i++) lab_free(d->w[i]), lab_free(d->y[i]);
}

static KernelDesc describe(const Case *c) {
    KernelDesc d = {.family = c->turned ? FAMILY_MATMUL_T : FAMILY_MATMUL,
                    .rows = c->rows,
                    .experts = c->experts,
                    .mid = 1,
                    .each = 1,
                    .k = c->k,
                    .n = c->n,
                    .precision = c->precision,
                    .x = c->x,
                    .parts = 2,
                    .part_n = {c->n, c->n}};
    if (c->turned) d.k = c->n, d.n = c->k, d.part_n[0] = d.part_n[1] = c->k;
    return d;
}

static Binding operand(const char *name, uint8_t dtype, void *at) {
    return (Binding){name, dtype, true, at};
}
static Dtype w_type(const Case *c) {
    return c->precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32;
}

static int bind_contraction(const Case *c, const Data *d, Binding *b) {
    int n = 0;
    b[n++] = operand(c->turned ? "g" : "x", c->x, d->x);
    if (c->turned) b[n++] = operand("g1", c->x, d->x);
    b[n++] = operand("w", w_type(c), d->w[0]), b[n++] = operand("w1", w_type(c), d->w[1]);
    if (c->experts) b[n++] = (Binding)READ_I32("offsets", d->offsets);
    return n;
}

typedef struct Stored {
    uint16_t *y;
    float *z, *sums;
} Stored;

static Stored make_stored(const Case *c) {
    int64_t n = (int64_t)c->rows * c->n;
    Stored s = {lab_memory((size_t)n * 2), lab_filled(n, 7.0f),
                lab_filled((c->rows + ROW_TILE - 1) / ROW_TILE * c->n, 7.0f)};
    memset(s.y, 0x11, lab_bytes(s.y));
    return s;
}

static int bind_post(const Case *c, Binding *b, const char *const names[3], const char *offsets,
                     float *old, const Data *d, const Stored *s) {
    int n = 0;
    b[n++] = (Binding)READ_F32(c->turned ? "l1" : "l2", old);
    if (c->experts) b[n++] = (Binding)READ_I32(offsets, d->offsets);
    b[n++] = (Binding){names[0], DTYPE_BF16, false, s->y};
    b[n++] = (Binding)WRITE_F32(names[1], s->z);
    if (!c->experts) b[n++] = (Binding)WRITE_F32(names[2], s->sums);
    return n;
}

static void check_post(Lab *lab, const Case *c, const uint32_t kernels[3]) {
    static const char *const names[] = {"s0", "s1", "s2"};
    Data d = make_data(c);
    Stored apart = make_stored(c), fused = make_stored(c);
    float *old = lab_random((int64_t)c->rows * c->n, 8);
    Binding b[16];
    int n = bind_contraction(c, &d, b);
    b[n++] = (Binding)WRITE_F32(c->turned ? "x" : "y", d.y[0]);
    if (!c->turned) b[n++] = (Binding)WRITE_F32("y1", d.y[1]);
    lab_run(lab, kernels[0], b, n);
    b[0] = (Binding)READ_F32("l0", d.y[0]), n = 1;
    if (!c->turned) b[n++] = (Binding)READ_F32("l1", d.y[1]);
    n += bind_post(c, b + n, names, c->turned ? "l2" : "l3", old, &d, &apart);
    lab_run(lab, kernels[1], b, n);
    n = bind_contraction(c, &d, b);
    n += bind_post(c, b + n, names, c->turned ? "l2" : "l3", old, &d, &fused);
    lab_run(lab, kernels[2], b, n);
    assert_memory_equal(apart.y, fused.y, lab_bytes(apart.y));
    assert_memory_equal(apart.z, fused.z, lab_bytes(apart.z));
    assert_memory_equal(apart.sums, fused.sums, lab_bytes(apart.sums));
    lab_free(apart.y), lab_free(apart.z), lab_free(apart.sums), lab_free(old);
    lab_free(fused.y), lab_free(fused.z), lab_free(fused.sums);
    drop_data(&d);
}

static void test_post(void **state) {
    (void)state;
    Lab lab;
    uint32_t kernels[COUNT_OF(cases)][3];
    lab_open(&lab);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const Case *c = &cases[i];
        Rows program;
        KernelDesc d = describe(c),
                   row = {.family = FAMILY_ROW, .rows = c->rows, .experts = c->experts};
        kernels[i][0] = lab_add(&lab, &d);
        make_post(&program, c, WHAT_VALUE);
        row.body = program.body;
        kernels[i][1] = lab_add(&lab, &row);
        model_destroy(program.m);
        make_post(&program, c, WHAT_ACC);
        d.body = program.body;
        kernels[i][2] = lab_add(&lab, &d);
        model_destroy(program.m);
    }
    lab_compile(&lab);
    for (int i = 0; i < COUNT_OF(cases); i++) check_post(&lab, &cases[i], kernels[i]);
    lab_close(&lab);
}

/* pre ---------------------------------------------------------------------------------------- */

static void check_pre(Lab *lab, const Case *c, const uint32_t kernels[5]) {
    Data d = make_data(c);
    int64_t nx = (int64_t)c->rows * c->k, nw = (int64_t)(c->experts ? c->experts : 1) * c->k * c->n;
    float *scale = lab_random(c->k, 5), *z = lab_filled(nx, 7.0f), *z2 = lab_filled(nx, 7.0f);
    float *y2 = lab_filled((int64_t)c->rows * c->n, 7.0f), *x = lab_random(nx, 1);
    float *g = lab_random((int64_t)c->rows * c->n, 6), *dw = lab_random(nw, 7),
          *dw2 = lab_random(nw, 7);
    void *made = lab_memory((size_t)nx * (c->precision == PRECISION_BF16 ? 2 : 4));
    memset(made, 0x11, lab_bytes(made));
    Binding offsets = READ_I32("offsets", d.offsets), l2 = READ_I32("l2", d.offsets),
            a2 = READ_I32("a2", d.offsets);
    Binding row[] = {READ_F32("l0", x),
                     READ_F32("l1", scale),
                     {"s0", w_type(c), false, made},
                     WRITE_F32("s1", z),
                     l2};
    lab_run(lab, kernels[0], row, c->experts ? 5 : 4);
    Binding apart[] = {operand("x", w_type(c), made), operand("w", w_type(c), d.w[0]),
                       WRITE_F32("y", d.y[0]), offsets};
    lab_run(lab, kernels[1], apart, c->experts ? 4 : 3);
    Binding fused[] = {READ_F32("a0", x),
                       READ_F32("a1", scale),
                       WRITE_F32("b1", z2),
                       operand("w", w_type(c), d.w[0]),
                       WRITE_F32("y", y2),
                       offsets,
                       a2};
    lab_run(lab, kernels[2], fused, c->experts ? 7 : 5);
    lab_equal_bits(y2, d.y[0], (int64_t)c->rows * c->n);
    lab_equal_bits(z2, z, nx);
    Binding apart_w[] = {operand("x", w_type(c), made), READ_F32("g", g), WRITE_F32("w", dw),
                         offsets};
    lab_run(lab, kernels[3], apart_w, c->experts ? 4 : 3);
    Binding fused_w[] = {READ_F32("a0", x), READ_F32("a1", scale),
                         READ_F32("g", g),  WRITE_F32("w", dw2),
                         offsets,           a2};
    lab_run(lab, kernels[4], fused_w, c->experts ? 6 : 4);
    lab_equal_bits(dw2, dw, nw);
    void *all[] = {scale, z, z2, y2, x, g, dw, dw2, made};
    for (int i = 0; i < COUNT_OF(all); i++) lab_free(all[i]);
    drop_data(&d);
}

static void test_pre(void **state) {
    (void)state;
    enum { N = 3 };
    static const int which[N] = {1, 2, 4};
    Lab lab;
    uint32_t kernels[N][5];
    lab_open(&lab);
    for (int i = 0; i < N; i++) {
        const Case *c = &cases[which[i]];
        Rows apart, fused, alone;
        make_pre(&apart, c, false, true), make_pre(&fused, c, true, true),
            make_pre(&alone, c, true, false);
        KernelDesc row = {
            .family = FAMILY_ROW, .rows = c->rows, .experts = c->experts, .body = apart.body};
        KernelDesc d = describe(c);
        d.parts = 0, d.x = (uint8_t)w_type(c);
        KernelDesc w = d, d_pre = d;
        w.family = FAMILY_MATMUL_W, w.accumulate = true;
        KernelDesc w_pre = w;
        d_pre.pre = fused.body, w_pre.pre = alone.body;
        const KernelDesc *all[] = {&row, &d, &d_pre, &w, &w_pre};
        for (int k = 0; k < 5; k++) kernels[i][k] = lab_add(&lab, all[k]);
        model_destroy(apart.m), model_destroy(fused.m), model_destroy(alone.m);
    }
    lab_compile(&lab);
    for (int i = 0; i < N; i++) check_pre(&lab, &cases[which[i]], kernels[i]);
    lab_close(&lab);
}

/* refusals ----------------------------------------------------------------------------------- */

static void refused(const KernelDesc *desc, const char *message) {
    Plan *plan = plan_create();
    Codegen *codegen = codegen_create(plan);
    uint32_t kernel;
    assert_non_null(codegen);
    assert_int_not_equal(codegen_kernel(codegen, desc, &kernel), OK);
    if (!strstr(status_message(), message))
        fail_msg("expected a message with\n  %s\nfound\n  %s", message, status_message());
    assert_int_equal(plan->n_kernels, 0);
    codegen_destroy(codegen);
    plan_destroy(plan);
}

static void test_refused(void **state) {
    (void)state;
    Rows post, pre;
    const Case dense = {.rows = 70, .k = 8, .n = 8},
               grouped = {.rows = 70, .experts = 2, .k = 8, .n = 8};
    KernelDesc d = describe(&dense), g = describe(&grouped);
    make_post(&post, &dense, WHAT_ACC);
    make_pre(&pre, &dense, true, true);
    KernelDesc c = d;
    c.precision = PRECISION_MXFP8, refused(&c, "mxfp8");
    c = d, c.parts = 5, refused(&c, "5 parts");
    c = d, c.mid = 2, refused(&c, "mid and each 1");
    c = g, c.body = post.body, refused(&c, "no partial stores");
    c = d, c.family = FAMILY_MATMUL_W, c.parts = 0, c.y = DTYPE_BF16, refused(&c, "result is f32");
    c = d, c.family = FAMILY_MATMUL_W, c.parts = 0, c.pre = pre.body, refused(&c, "operand only");
    c = d, c.family = FAMILY_MATMUL_T, c.pre = pre.body, refused(&c, "operand of one term");
    pre.stores[0].operand = false;
    c = d, c.pre = pre.body, refused(&c, "one operand");
    model_destroy(post.m), model_destroy(pre.m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_post), cmocka_unit_test(test_pre),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
