// SPDX-License-Identifier: Apache-2.0
// One row program, three uses: a kernel of its own, the post of a contraction, its pre. The weight
// is the identity, so the accumulators hold what the kernel of its own reads from memory: stores
// must have equal bits. What is stored twice, as f32 and bf16, must be equal but for rounding.
#include "tests/kernels/lab.h"
#include "tests/kernels/rows_graph.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_NODES = 40, N_STORES = 5, PANEL = 32 };

// ORDER loads: x, residual (bf16), [gain of the expert, offsets]
typedef struct Sample {
    Model *m;
    int32_t n, rows, experts;
    uint32_t x, y;
    RowLoad loads[4];
    RowStore stores[N_STORES];
    uint32_t nodes[MAX_NODES];
    RowBody body;
    RowStore operand;
} Sample;

static uint32_t generator(Model *m, int32_t n, const char *name) {
    return model_generator(m, OP_UNIFORM, (int32_t)model_intern(m, name), &n, 1);
}

// y = x / rms x + r (times a gain of the expert). Stores y twice, its mean square, the top 2 ids,
// and (not over experts' rows) the sum of y over rows.
static void make(Sample *p, int32_t n, int32_t rows, int32_t experts) {
    memset(p, 0, sizeof *p);
    Model *m = p->m = model_create();
    p->n = n, p->rows = rows, p->experts = experts;
    Attr all = { .raw = { 0, 0 } };
    all.axes = 1;
    uint32_t route = experts ? g_route(m, experts, 2, false) : 0;
    p->x = experts ? g_rows(m, route, DIMS(n)) : generator(m, n, "x");
    uint32_t r = experts ? g_rows(m, route, DIMS(n)) : generator(m, n, "r");
    uint32_t gain = experts ? g_expert(m, route, DIMS(n)) : 0, begin = m->n_nodes;
    uint32_t square = model_sum(m, g_mul(m, p->x, p->x), 1);
    uint32_t mean = g_add(m, g_mul(m, square, g_number(m, 1.0 / n)), g_number(m, 1e-6));
    uint32_t y = g_add(m, g_mul(m, p->x, model_op1(m, OP_RSQRT, mean)), r);
    if (gain) y = g_mul(m, y, gain);
    p->y = y;
    uint32_t ids = g_k(m, OP_TOP_K, y, 0, 2);
    const uint32_t roots[] = { y, y, mean, ids, experts ? 0 : model_row_sum(m, y, SET_MICROBATCH) };
    uint32_t n_nodes = 0, n_stores = experts ? 4 : 5;
    for (uint32_t id = begin; id < m->n_nodes; id++) {
        int class = op_info[m->nodes[id].op].class;
        if (class != CLASS_SOURCE && class != CLASS_PARTIAL) p->nodes[n_nodes++] = id;
    }
    p->loads[0] = (RowLoad){ p->x, WHAT_VALUE, DTYPE_F32, 0 };
    p->loads[1] = (RowLoad){ r, WHAT_VALUE, DTYPE_BF16, 0 };
    p->loads[2] = (RowLoad){ gain, WHAT_VALUE, DTYPE_F32, 0 };
    p->loads[3] = (RowLoad){ route, WHAT_OFFSETS, DTYPE_I32, 0 };
    for (uint32_t i = 0; i < n_stores; i++) {
        if (!roots[i]) fail_msg("root %u: %s", i, m->diag.message);
        p->stores[i] = (RowStore){ .node = roots[i],
                                   .dtype = i == 1 ? DTYPE_BF16 : i == 3 ? DTYPE_I32 : DTYPE_F32,
                                   .partial = i == 4 };
    }
    p->body = (RowBody){ .model = m,
                         .row = experts ? ROW_R : ROW_T,
                         .route = route,
                         .nodes = p->nodes,
                         .n_nodes = n_nodes,
                         .loads = p->loads,
                         .n_loads = experts ? 4 : 2,
                         .stores = p->stores,
                         .n_stores = n_stores };
}

typedef enum Use { ALONE, POST, PRE, N_USES } Use;

// PRE: the operand is y; the product with the identity is stored as f32, or bf16 pairs are summed.
static KernelDesc describe(Sample *p, Use use, RowLoad *loads, uint8_t precision) {
    KernelDesc d = { .family = use == ALONE ? FAMILY_ROW : FAMILY_MATMUL,
                     .rows = p->rows,
                     .experts = p->experts,
                     .body = p->body };
    if (use == ALONE) return d;
    d.mid = d.each = 1;
    d.k = p->n, d.n = p->n, d.precision = precision;
    memcpy(loads, p->loads, sizeof p->loads);
    if (use == POST) {
        loads[0].what = WHAT_ACC;
        d.body.loads = loads;
        return d;
    }
    p->operand = (RowStore){ .node = p->y,
                             .dtype = precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32,
                             .operand = true };
    d.pre = p->body;
    d.pre.stores = &p->operand, d.pre.n_stores = 1;
    d.body = (RowBody){ 0 };
    return d;
}

/* Data ----------------------------------------------------------------------------------------- */

// The identity as matmul reads it: panels of 32 columns, in pairs along the sum or not.
static void *identity(int32_t n, int32_t experts, bool pairs) {
    int64_t panels = div_up(n, PANEL), steps = pairs ? div_up(n, 2) : n;
    int64_t one = panels * steps * PANEL;
    float *w = lab_filled(max_i64(experts, 1) * one, 0);
    for (int e = 0; e < (experts ? experts : 1); e++) {
        for (int32_t i = 0; i < n; i++) {
            int64_t at = e * one + (i / PANEL * steps + (pairs ? i / 2 : i)) * PANEL + i % PANEL;
            uint32_t pair = 0x3f80u << (i % 2 * 16);
            if (pairs)
                memcpy(&w[at], &pair, 4);
            else
                w[at] = 1;
        }
    }
    return w;
}

static int64_t store_bytes(const Sample *p, int i) {
    static const int8_t bytes[N_STORES] = { 4, 2, 4, 4, 4 };
    int64_t numbers = i == 2 ? p->rows : i == 3 ? 2 * p->rows : p->rows * p->n;
    if (i == 4) numbers = div_up(p->rows, ROW_TILE) * p->n;
    return numbers * bytes[i];
}

typedef struct Data {
    float *x, *r, *gain;
    uint16_t *narrow;
    int32_t *offsets;
    void *stores[N_USES][N_STORES];
} Data;

static int64_t live_rows(const Sample *p, const Data *d) {
    return p->experts ? d->offsets[p->experts] : p->rows;
}

static Data data_of(const Sample *p) {
    int64_t count = (int64_t)p->rows * p->n;
    Data d = { .x = lab_random(count, 1),
               .r = lab_random(count, 2),
               .gain = lab_random((p->experts + 1) * p->n, 3),
               .offsets = lab_array(p->experts + 1) };
    d.narrow = lab_narrow(d.r);
    // No rows, a few, none, most of them: some at the end do not exist.
    for (int e = 0; e <= p->experts; e++)
        d.offsets[e] = e < 1 ? 0 : e < 3 ? 5 : e < 4 ? p->rows / 2 : p->rows - 7;
    for (int64_t i = live_rows(p, &d) * p->n; i < count; i++) d.x[i] = NAN, d.narrow[i] = 0x7fc0;
    for (int use = 0; use < N_USES; use++) {
        for (int i = 0; i < N_STORES; i++) {
            d.stores[use][i] = lab_memory((size_t)store_bytes(p, i));
            memset(d.stores[use][i], 0x5b, (size_t)store_bytes(p, i));
        }
    }
    return d;
}

static void drop(Data *d) {
    lab_free(d->x), lab_free(d->r), lab_free(d->gain), lab_free(d->narrow), lab_free(d->offsets);
    for (int use = 0; use < N_USES; use++)
        for (int i = 0; i < N_STORES; i++) lab_free(d->stores[use][i]);
}

/* Runs ----------------------------------------------------------------------------------------- */

static int body_bindings(const Sample *p, Data *d, Use use, const char *loads, Binding *b) {
    static const char *const names[2][4] = { { "l0", "l1", "l2", "l3" },
                                             { "a0", "a1", "a2", "a3" } };
    static const char *const outs[] = { "s0", "s1", "s2", "s3", "s4" };
    const char *const *name = names[*loads == 'a'];
    int n = 0;
    if (use != POST) b[n++] = (Binding)READ_F32(name[0], d->x);
    b[n++] = (Binding){ name[1], DTYPE_BF16, true, d->narrow };
    if (p->experts) {
        b[n++] = (Binding)READ_F32(name[2], d->gain);
        b[n++] = (Binding)READ_I32(name[3], d->offsets);
    }
    for (uint32_t i = 0; use != PRE && i < p->body.n_stores; i++)
        b[n++] = (Binding){ outs[i], p->stores[i].dtype, false, d->stores[use][i] };
    return n;
}

static void run(Lab *lab, const Sample *p, Data *d, Use use, uint32_t kernel, bool pairs) {
    Binding b[24];
    void *w = identity(p->n, p->experts, pairs);
    int n = body_bindings(p, d, use, use == PRE ? "a" : "l", b);
    if (use != ALONE) {
        if (use == POST) b[n++] = (Binding)READ_F32("x", d->x);
        if (use == PRE) b[n++] = (Binding)WRITE_F32("y", d->stores[PRE][0]);
        b[n++] = (Binding){ "w", pairs ? DTYPE_BF16 : DTYPE_F32, true, w };
        if (p->experts) b[n++] = (Binding)READ_I32("offsets", d->offsets);
    }
    lab_run(lab, kernel, b, n);
    lab_free(w);
}

static void compare(const Sample *p, const Data *d) {
    const float *y = d->stores[ALONE][0], *product = d->stores[PRE][0];
    const uint16_t *narrow = d->stores[ALONE][1];
    int64_t live = live_rows(p, d) * p->n;
    for (int64_t i = 0; i < live; i++) {
        if (narrow[i] != lab_bf16(y[i]))
            fail_msg("bf16 of %.9g: found %.9g", y[i], lab_wide(narrow[i]));
        if (product[i] != y[i]) fail_msg("pre: expected %.9g, found %.9g", y[i], product[i]);
    }
    for (int i = 0; i < (int)p->body.n_stores; i++)
        assert_memory_equal(d->stores[ALONE][i], d->stores[POST][i], (size_t)store_bytes(p, i));
}

static void test_uses(void **state) {
    (void)state;
    // Lanes along features with and without a tail, lanes along rows; one expert axis each.
    static const int32_t cases[][3] = { { 64, 200, 0 }, { 45, 131, 0 }, { 5, 150, 0 },
                                        { 40, 170, 4 }, { 7, 333, 4 } };
    static Sample p[COUNT_OF(cases)];
    static RowLoad loads[COUNT_OF(cases)][N_USES][4];
    uint32_t kernels[COUNT_OF(cases)][N_USES];
    Lab lab;
    lab_open(&lab);
    for (int c = 0; c < COUNT_OF(cases); c++) {
        make(&p[c], cases[c][0], cases[c][1], cases[c][2]);
        for (int use = 0; use < N_USES; use++) {
            KernelDesc d = describe(&p[c], use, loads[c][use], PRECISION_FP32);
            kernels[c][use] = lab_add(&lab, &d);
        }
    }
    lab_compile(&lab);
    for (int c = 0; c < COUNT_OF(cases); c++) {
        Data d = data_of(&p[c]);
        for (int use = 0; use < N_USES; use++) run(&lab, &p[c], &d, use, kernels[c][use], false);
        compare(&p[c], &d);
        drop(&d);
        model_destroy(p[c].m);
    }
    lab_close(&lab);
}

// The operand in bf16: the product with the identity is the rounded y.
static void test_pairs(void **state) {
    (void)state;
    static const int32_t sizes[] = { 64, 45, 9 };
    static Sample p[COUNT_OF(sizes)];
    RowLoad loads[4];
    uint32_t kernels[COUNT_OF(sizes)][N_USES];
    Lab lab;
    lab_open(&lab);
    for (int c = 0; c < COUNT_OF(sizes); c++) {
        make(&p[c], sizes[c], 140, 0);
        for (int use = 0; use < N_USES; use += 2) {
            KernelDesc d = describe(&p[c], use, loads, PRECISION_BF16);
            kernels[c][use] = lab_add(&lab, &d);
        }
    }
    lab_compile(&lab);
    for (int c = 0; c < COUNT_OF(sizes); c++) {
        Data d = data_of(&p[c]);
        for (int use = 0; use < N_USES; use += 2)
            run(&lab, &p[c], &d, use, kernels[c][use], use == PRE);
        const float *product = d.stores[PRE][0];
        const uint16_t *narrow = d.stores[ALONE][1];
        for (int64_t i = 0; i < (int64_t)p[c].rows * p[c].n; i++)
            if (product[i] != lab_wide(narrow[i]))
                fail_msg("pre: expected %.9g, found %.9g", lab_wide(narrow[i]), product[i]);
        drop(&d);
        model_destroy(p[c].m);
    }
    lab_close(&lab);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_uses), cmocka_unit_test(test_pairs) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
