// SPDX-License-Identifier: Apache-2.0
// embed_w, route, pads, segment_sum, clear: against plain loops; sums in double, orders exact.
#include "tests/kernels/lab.h"

#include <math.h>
#include <stdlib.h>

/* route -------------------------------------------------------------------------------------- */

typedef struct Routing {
    int32_t rows, top_k, experts;
    int kind;
    int32_t align; // of experts' first rows; 0: 1
} Routing;
enum { ANY, ONE_TAKES_ALL, NONE, SOME_OUTSIDE };
static const Routing routings[] = {
    {1, 1, 1, ANY},
    {13, 2, 5, ANY},
    {101, 3, 7, SOME_OUTSIDE},
    {64, 2, 4, ONE_TAKES_ALL},
    {9, 2, 3, NONE},
    {257, 8, 128, SOME_OUTSIDE},
    {13, 2, 5, ANY, 4},
    {101, 3, 7, SOME_OUTSIDE, 32},
    {64, 2, 4, ONE_TAKES_ALL, 128},
    {9, 2, 3, NONE, 32},
    {257, 8, 128, SOME_OUTSIDE, 128},
};

static int32_t pick(const Routing *r, int64_t slot) {
    if (r->kind == ONE_TAKES_ALL) return r->experts - 1;
    if (r->kind == NONE) return -1;
    int32_t outside = r->kind == SOME_OUTSIDE ? 2 : 0;
    return (int32_t)(hash_mix(3, 0, (uint64_t)slot) % (uint64_t)(r->experts + outside)) -
           outside / 2;
}

static void check_route(Lab *lab, uint32_t kernel, const Routing *r) {
    int32_t align = r->align ? r->align : 1;
    int64_t slots = (int64_t)r->rows * r->top_k, rows = slots + r->experts * (align - 1);
    int32_t *ids = lab_array(slots), *row_of_slot = lab_array(slots),
            *slot_of_row = lab_array(rows);
    int32_t *offsets = lab_array((align > 1 ? 2 : 1) * r->experts + 1);
    for (int64_t s = 0; s < slots; s++) ids[s] = pick(r, s), row_of_slot[s] = -7;
    for (int64_t s = 0; s < rows; s++) slot_of_row[s] = -7;
    Binding b[] = {READ_I32("ids", ids), WRITE_I32("row_of_slot", row_of_slot),
                   WRITE_I32("slot_of_row", slot_of_row), WRITE_I32("offsets", offsets)};
    lab_run(lab, kernel, b, 4);
    int32_t row = 0;
    assert_int_equal(offsets[0], 0);
    for (int32_t e = 0; e < r->experts; e++) {
        for (int64_t s = 0; s < slots; s++) {
            if (ids[s] != e) continue;
            assert_int_equal(slot_of_row[row], s);
            assert_int_equal(row_of_slot[s], row);
            row++;
        }
        if (align > 1) assert_int_equal(offsets[r->experts + 1 + e], row);
        for (; row % align; row++) assert_int_equal(slot_of_row[row], -1);
        assert_int_equal(offsets[e + 1], row);
    }
    for (int64_t s = 0; s < slots; s++)
        if (ids[s] < 0 || ids[s] >= r->experts) assert_int_equal(row_of_slot[s], -1);
    for (int64_t s = row; s < rows; s++) assert_int_equal(slot_of_row[s], -7);
    lab_free(ids), lab_free(row_of_slot), lab_free(slot_of_row), lab_free(offsets);
}

static void test_route(void **state) {
    (void)state;
    Lab lab;
    uint32_t kernels[COUNT_OF(routings)];
    lab_open(&lab);
    for (int i = 0; i < COUNT_OF(routings); i++) {
        KernelDesc desc = {.family = FAMILY_ROUTE,
                           .rows = routings[i].rows,
                           .top_k = routings[i].top_k,
                           .experts = routings[i].experts,
                           .align = routings[i].align};
        kernels[i] = lab_add(&lab, &desc);
    }
    lab_compile(&lab);
    for (int i = 0; i < COUNT_OF(routings); i++) check_route(&lab, kernels[i], &routings[i]);
    lab_close(&lab);
}

/* pads --------------------------------------------------------------------------------------- */

// Of three experts' rows, the second without any and the last whole, those between are zero and no others touched.
static void test_pads(void **state) {
    (void)state;
    static const int32_t firsts[] = {0, 8, 8, 12, 3, 8, 12};
    static const struct {
        int64_t n;
        Dtype dtype;
    } kinds[] = {{1, DTYPE_F32}, {7, DTYPE_BF16}, {3, DTYPE_I32}, {300, DTYPE_F32}};
    enum { ROWS = 16, FILL = 0x5a };
    Lab lab;
    uint32_t kernels[COUNT_OF(kinds)];
    lab_open(&lab);
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        KernelDesc desc = {.family = FAMILY_PADS, .rows = ROWS, .experts = 3, .n = kinds[i].n, .align = 4,
                           .x = (uint8_t)kinds[i].dtype};
        kernels[i] = lab_add(&lab, &desc);
    }
    lab_compile(&lab);
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        size_t row_bytes = (size_t)kinds[i].n * (size_t)dtype_bytes(kinds[i].dtype);
        int32_t *offsets = lab_array(COUNT_OF(firsts));
        uint8_t *x = lab_memory(ROWS * row_bytes);
        memcpy(offsets, firsts, sizeof firsts);
        memset(x, FILL, ROWS * row_bytes);
        Binding b[] = {READ_I32("offsets", offsets), {"x", kinds[i].dtype, false, x}};
        lab_run(&lab, kernels[i], b, 2);
        for (size_t k = 0; k < ROWS * row_bytes; k++)
            assert_int_equal(x[k], k / row_bytes >= 3 && k / row_bytes < 8 ? 0 : FILL);
        lab_free(offsets), lab_free(x);
    }
    lab_close(&lab);
}

/* embed_w ------------------------------------------------------------------------------------ */

typedef struct Table {
    int32_t rows, ids, vocab, n;
    bool accumulate;
} Table;
static const Table tables[] = {
    {1, 1, 1, 1, false},    {37, 1, 11, 7, false},  {37, 1, 11, 7, true},
    {50, 3, 101, 16, true}, {20, 2, 40, 33, false},
};

static void check_embed_w(Lab *lab, uint32_t kernel, const Table *t) {
    int64_t entries = (int64_t)t->rows * t->ids, numbers = (int64_t)t->vocab * t->n;
    float *g = lab_random(entries * t->n, 1), *w = lab_random(numbers, 2),
          *want = lab_random(numbers, 2);
    int32_t *ids = lab_array(entries);
    // -1 is skipped; its row of g may hold anything. Some ids never occur.
    for (int64_t i = 0; i < entries; i++) {
        ids[i] = (int32_t)(hash_mix(4, 0, (uint64_t)i) % (uint64_t)(t->vocab + 1)) - 1;
        for (int64_t n = 0; ids[i] < 0 && n < t->n; n++) g[i * t->n + n] = NAN;
    }
    Binding b[] = {READ_F32("g", g), READ_I32("ids", ids), WRITE_F32("w", w)};
    lab_run(lab, kernel, b, 3);
    for (int64_t i = 0; !t->accumulate && i < numbers; i++) want[i] = 0;
    for (int64_t i = 0; i < entries; i++) // the order is part of the contract: equal bits
        for (int64_t n = 0; ids[i] >= 0 && n < t->n; n++)
            want[ids[i] * (int64_t)t->n + n] += g[i * t->n + n];
    lab_equal_bits(w, want, numbers);
    lab_free(g), lab_free(w), lab_free(want), lab_free(ids);
}

static void test_embed_w(void **state) {
    (void)state;
    Lab lab;
    uint32_t kernels[COUNT_OF(tables)];
    lab_open(&lab);
    for (int i = 0; i < COUNT_OF(tables); i++) {
        const Table *t = &tables[i];
        KernelDesc desc = {.family = FAMILY_EMBED_W,
                           .rows = t->rows,
                           .ids = t->ids,
                           .vocab = t->vocab,
                           .n = t->n,
                           .accumulate = t->accumulate};
        kernels[i] = lab_add(&lab, &desc);
    }
    lab_compile(&lab);
    for (int i = 0; i < COUNT_OF(tables); i++) check_embed_w(&lab, kernels[i], &tables[i]);
    lab_close(&lab);
}

/* segment_sum -------------------------------------------------------------------------------- */

typedef struct Sum {
    int32_t rows, sequence, experts, n;
    int32_t of[4];
    bool accumulate;
} Sum;
static const Sum sums[] = {
    {.rows = 1, .sequence = 1, .n = 1},
    {.rows = 3 * 131, .sequence = 131, .n = 1},
    {.rows = 2 * 70, .sequence = 70, .n = 37, .accumulate = true},
    {.rows = 200, .experts = 4, .n = 19, .of = {3, 0, 150, 7}},
    {.rows = 200, .experts = 4, .n = 32, .of = {0, 0, 200, 0}, .accumulate = true},
};

static void check_segment_sum(Lab *lab, uint32_t kernel, const Sum *s) {
    int segments = s->experts ? s->experts : s->rows / s->sequence;
    int32_t *offsets = lab_array(segments + 1);
    offsets[0] = 0;
    for (int i = 0; i < segments; i++)
        offsets[i + 1] = offsets[i] + (s->experts ? s->of[i] : s->sequence);
    float *x = lab_random((int64_t)s->rows * s->n, 1), *y = lab_random((int64_t)segments * s->n, 2);
    float *before = lab_random((int64_t)segments * s->n, 2);
    for (int64_t i = (int64_t)offsets[segments] * s->n; i < (int64_t)s->rows * s->n; i++)
        x[i] = NAN;
    Binding b[] = {READ_F32("x", x), WRITE_F32("y", y), READ_I32("offsets", offsets)};
    lab_run(lab, kernel, b, s->experts ? 3 : 2);
    for (int64_t at = 0; at < (int64_t)segments * s->n; at++) {
        double sum = s->accumulate ? before[at] : 0, magnitude = fabs(sum);
        for (int64_t r = offsets[at / s->n]; r < offsets[at / s->n + 1]; r++) {
            sum += x[r * s->n + at % s->n];
            magnitude += fabsf(x[r * s->n + at % s->n]);
        }
        lab_near(y[at], sum, 70 * 0x1p-24 * magnitude, "y", at); // blocks of 64, then a few blocks
    }
    lab_free(x), lab_free(y), lab_free(before), lab_free(offsets);
}

static void test_segment_sum(void **state) {
    (void)state;
    Lab lab;
    uint32_t kernels[COUNT_OF(sums)];
    lab_open(&lab);
    for (int i = 0; i < COUNT_OF(sums); i++) {
        const Sum *s = &sums[i];
        KernelDesc desc = {.family = FAMILY_SEGMENT_SUM,
                           .rows = s->rows,
                           .sequence = s->sequence,
                           .experts = s->experts,
                           .n = s->n,
                           .accumulate = s->accumulate};
        kernels[i] = lab_add(&lab, &desc);
    }
    lab_compile(&lab);
    for (int i = 0; i < COUNT_OF(sums); i++) check_segment_sum(&lab, kernels[i], &sums[i]);
    lab_close(&lab);
}

/* clear -------------------------------------------------------------------------------------- */

static void test_clear(void **state) {
    (void)state;
    static const int64_t counts[] = {1, 33, 70001};
    Lab lab;
    uint32_t kernels[COUNT_OF(counts)];
    lab_open(&lab);
    for (int i = 0; i < COUNT_OF(counts); i++) {
        KernelDesc desc = {.family = FAMILY_CLEAR, .n = counts[i]};
        kernels[i] = lab_add(&lab, &desc);
    }
    lab_compile(&lab);
    for (int i = 0; i < COUNT_OF(counts); i++) {
        float *x = lab_filled(counts[i], NAN);
        Binding b[] = {WRITE_F32("x", x)};
        lab_run(&lab, kernels[i], b, 1);
        for (int64_t k = 0; k < counts[i]; k++) assert_true(x[k] == 0.0f && !signbit(x[k]));
        lab_free(x);
    }
    lab_close(&lab);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route),
        cmocka_unit_test(test_pads),
        cmocka_unit_test(test_embed_w),
        cmocka_unit_test(test_segment_sum),
        cmocka_unit_test(test_clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
