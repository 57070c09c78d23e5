// SPDX-License-Identifier: Apache-2.0
// pack, matmul, matmul_t, matmul_w against sums in double over odd shapes, dense and grouped, in
// fp32 and bf16, from and to memory of either type, with siblings and with several terms.
//
// Bound of an element: the worst case of a sum of n products in fp32, (n + 2) 2^-24 sum |a b|. The
// order of summation is part of the contract, so the same sum by fmaf in that order must have equal
// bits. Rows that do not exist hold NaN in the inputs and a mark in the outputs: neither may move.
#include "tests/kernels/lab.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_EXPERTS = 8, MAX_PARTS = 4 };
typedef struct Case {
    int32_t rows, experts, mid, each, k, n;
    int32_t of[MAX_EXPERTS]; // rows per expert
    bool accumulate;
    uint8_t precision, x, g, y; // g: of the gradient, which matmul_t reads as its left operand
    int32_t parts;
    int64_t part_n[MAX_PARTS];
    bool both; // a GPU's kernels that read panels of the other order, too
} Case;

#define PAIRS .precision = PRECISION_BF16
#define NARROW .x = DTYPE_BF16, .g = DTYPE_BF16, .y = DTYPE_BF16
static const Case cases[] = {
    {.rows = 1, .mid = 1, .each = 1, .k = 37, .n = 3, .accumulate = true},
    {.rows = 97, .mid = 1, .each = 1, .k = 53, .n = 71, .accumulate = true, NARROW, .both = true},
    {.rows = 300, .mid = 1, .each = 1, .k = 131, .n = 97},
    {.rows = 70, .mid = 1, .each = 1, .k = 2048, .n = 65, .y = DTYPE_BF16}, // rows 8 KB apart: in
                                                                            // two pieces
    {.rows = 101, .mid = 3, .each = 2, .k = 17, .n = 34},
    {.rows = 64, .experts = 5, .mid = 1, .each = 1, .k = 9, .n = 70, .of = {1, 2, 3, 5, 7}},
    {.rows = 600,
     .experts = 4,
     .mid = 1,
     .each = 1,
     .k = 48,
     .n = 40,
     .of = {0, 521, 0, 0},
     .accumulate = true},
    {.rows = 50,
     .experts = 2,
     .mid = 3,
     .each = 2,
     .k = 11,
     .n = 13,
     .of = {17, 30},
     .accumulate = true,
     .both = true},
    {.rows = 1, .mid = 1, .each = 1, .k = 1, .n = 1, PAIRS, NARROW},
    {.rows = 97, .mid = 1, .each = 1, .k = 53, .n = 71, .accumulate = true, PAIRS, NARROW, .both = true},
    // Blocks of 128 x 128 on GPUs.
    {.rows = 66, .mid = 1, .each = 64, .k = 133, .n = 35, .both = true},
    {.rows = 66, .mid = 1, .each = 64, .k = 133, .n = 35, PAIRS, NARROW, .both = true},
    {.rows = 519,
     .mid = 1,
     .each = 1,
     .k = 64,
     .n = 66,
     .accumulate = true,
     PAIRS,
     .x = DTYPE_BF16},
    {.rows = 70, .mid = 1, .each = 1, .k = 4096, .n = 33, PAIRS, NARROW}, // the same for pairs
    {.rows = 23, .mid = 3, .each = 1, .k = 19, .n = 29, PAIRS},
    {.rows = 101, .mid = 3, .each = 2, .k = 18, .n = 34, PAIRS, NARROW},
    {.rows = 300,
     .experts = 4,
     .mid = 1,
     .each = 1,
     .k = 48,
     .n = 130,
     .of = {0, 259, 1, 28},
     PAIRS,
     NARROW,
     .both = true},
    {.rows = 32,
     .experts = 2,
     .mid = 1,
     .each = 1,
     .k = 20,
     .n = 20,
     .of = {0, 0},
     PAIRS,
     .g = DTYPE_BF16},
    {.rows = 50,
     .experts = 2,
     .mid = 1,
     .each = 4,
     .k = 8,
     .n = 12,
     .of = {9, 0},
     .accumulate = true,
     PAIRS,
     NARROW},
    {.rows = 77, .mid = 1, .each = 1, .k = 40, .n = 50, .parts = 3, .part_n = {64, 7, 34}},
    {.rows = 77,
     .experts = 2,
     .of = {40, 33},
     .mid = 1,
     .each = 1,
     .k = 40,
     .n = 50,
     PAIRS,
     NARROW,
     .parts = 4,
     .part_n = {64, 8, 34, 2}},
    {.rows = 77,
     .mid = 1,
     .each = 1,
     .k = 40,
     .n = 50,
     PAIRS,
     .y = DTYPE_BF16,
     .parts = 2,
     .part_n = {3, 35}},
};

static int parts(const Case *c) { return c->parts ? c->parts : 1; }
static int64_t part_n(const Case *c, int part) { return c->parts ? c->part_n[part] : c->n; }

// GPUs pack a weight in one order, which matmul_t reads across.
static bool reads_across(Family family) { return lab_gpu() && family == FAMILY_MATMUL_T; }

static KernelDesc describe(const Case *c, Family family) {
    KernelDesc d = {.family = family,
                    .across = reads_across(family),
                    .rows = c->rows,
                    .experts = c->experts,
                    .mid = c->mid,
                    .each = c->each,
                    .k = c->k,
                    .n = c->n,
                    .precision = c->precision};
    d.x = family == FAMILY_MATMUL_T ? c->g : c->x;
    if (family == FAMILY_MATMUL_W)
        d.g = c->g, d.accumulate = c->accumulate;
    else
        d.y = c->y, d.parts = c->parts, memcpy(d.part_n, c->part_n, sizeof d.part_n);
    return d;
}

/* operands ----------------------------------------------------------------------------------- */

// An array in memory, and the same numbers as its kernel computes with them.
typedef struct Array {
    void *at;
    float *value;
    uint8_t dtype;
} Array;

static Array array(float *value, uint8_t dtype, uint8_t precision) {
    Array a = {.at = value, .value = value, .dtype = dtype};
    size_t n = lab_bytes(value) / sizeof *value;
    if (dtype == DTYPE_BF16) a.at = lab_narrow(value);
    if (dtype == DTYPE_BF16 || precision == PRECISION_BF16) {
        a.value = lab_array((int64_t)n);
        for (size_t i = 0; i < n; i++) a.value[i] = lab_wide(lab_bf16(value[i]));
        if (a.at != value) lab_free(value);
    }
    return a;
}

static void drop(Array *a) {
    if (a->at != a->value) lab_free(a->at);
    lab_free(a->value);
}

static Binding bind(const char *name, const Array *a, bool is_const) {
    return (Binding){name, a->dtype, is_const, a->at};
}

// Panels of a weight [matrices][k][n], as kernel.h says.
static Array pack(const float *w, int64_t matrices, int64_t k, int64_t n, bool turned,
                  uint8_t precision) {
    int64_t steps = turned ? n : k, columns = turned ? k : n, panels = (columns + 31) / 32;
    bool pairs = precision == PRECISION_BF16;
    int64_t padded = pairs ? (steps + 1) / 2 * 2 : steps, count = matrices * panels * padded * 32;
    Array a = {.at = lab_memory((size_t)count * (pairs ? 2 : 4)),
               .dtype = pairs ? DTYPE_BF16 : DTYPE_F32};
    for (int64_t i = 0; i < count; i++) {
        int64_t m = i / (panels * padded * 32), p = i / (padded * 32) % panels,
                in = i % (padded * 32);
        int64_t s = pairs ? in / 64 * 2 + in % 2 : in / 32,
                j = p * 32 + (pairs ? in / 2 % 32 : in % 32);
        float x = s < steps && j < columns ? w[m * k * n + (turned ? j * n + s : s * n + j)] : 0;
        if (pairs)
            ((uint16_t *)a.at)[i] = lab_bf16(x);
        else
            ((float *)a.at)[i] = x;
    }
    a.value = lab_array(0);
    return a;
}

/* sums --------------------------------------------------------------------------------------- */

typedef struct Sum {
    double exact, magnitude;
    int64_t terms;
    float ordered;
    float a, b; // the pair's first element
    uint8_t precision;
} Sum;

// Denormal sums are zero in bf16.
static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

static void add_pair(Sum *s, float a, float b) {
    s->ordered = flushed(fmaf(a, b, s->ordered));
    s->ordered = flushed(fmaf(s->a, s->b, s->ordered));
}

static void add(Sum *s, float a, float b) {
    s->exact += (double)a * b;
    s->magnitude += fabs((double)a * b);
    s->terms++;
    if (s->precision != PRECISION_BF16)
        s->ordered = fmaf(a, b, s->ordered);
    else if (s->terms % 2 == 0)
        add_pair(s, a, b);
    else
        s->a = a, s->b = b;
}

// An odd end is paired with zeros.
static void end_run(Sum *s) {
    if (s->precision == PRECISION_BF16 && s->terms % 2) add_pair(s, 0, 0), s->terms++;
}

// In which order a GPU's matrix instructions add is not documented, and it sums weights' gradients in
// one chain where the CPU has several.
static bool has_order(const Sum *s, const char *what) {
    return !lab_gpu() || (s->precision != PRECISION_BF16 && *what != 'w');
}

static void check_sum(const Array *out, int64_t at, const Sum *s, const char *what) {
    double bound = ((double)s->terms + 2) * 0x1p-24 * s->magnitude + 0x1p-120;
    if (out->dtype == DTYPE_BF16) {
        uint16_t got = ((const uint16_t *)out->at)[at];
        lab_near(lab_wide(got), s->exact, bound + 0x1p-8 * fabs(s->exact), what, at);
        if (has_order(s, what)) assert_int_equal(got, lab_bf16(s->ordered));
    } else {
        lab_near(((const float *)out->at)[at], s->exact, bound, what, at);
        if (has_order(s, what)) lab_equal_bits((const float *)out->at + at, &s->ordered, 1);
    }
}

/* rows --------------------------------------------------------------------------------------- */

typedef struct Data {
    int32_t *offsets;
    int64_t valid, experts;
    float *w[MAX_PARTS];
    Array in[MAX_PARTS], packed[MAX_PARTS], out[MAX_PARTS];
} Data;

static Array output(const Case *c, int64_t count) {
    float *mark = lab_filled(count, 77.0f);
    return array(mark, c->y, PRECISION_FP32);
}

static float *rows_of(const Case *c, const Data *d, int64_t width, uint64_t seed) {
    float *x = lab_random(c->rows * width, seed);
    for (int64_t i = d->valid * width; i < c->rows * width; i++) x[i] = NAN;
    return x;
}

static void set_offsets(const Case *c, Data *d) {
    d->experts = c->experts ? c->experts : 1;
    d->offsets = lab_array(d->experts + 1);
    d->offsets[0] = 0;
    for (int64_t e = 0; e < d->experts; e++)
        d->offsets[e + 1] = d->offsets[e] + (c->experts ? c->of[e] : c->rows);
    d->valid = d->offsets[d->experts];
}

// One row of one result: sum over terms.
static void check_row(const Case *c, const Data *d, bool turned, int64_t r, int expert, int64_t ea,
                      int part) {
    int64_t places = (int64_t)c->each * c->mid, e = ea / c->mid;
    int64_t N = turned ? c->k : part_n(c, part);
    for (int64_t j = 0; j < N; j++) {
        Sum s = {.precision = c->precision};
        for (int t = turned ? 0 : part; t < (turned ? parts(c) : part + 1); t++) {
            int64_t K = turned ? part_n(c, t) : c->k, n = part_n(c, t);
            const float *w = d->w[t] + (expert * c->each + e) * c->k * n;
            const float *x = d->in[turned ? t : 0].value + (r * places + ea) * K;
            for (int64_t k = 0; k < K; k++) {
                float b = turned ? w[j * n + k] : w[k * n + j];
                add(&s, x[k], c->precision == PRECISION_BF16 ? lab_wide(lab_bf16(b)) : b);
            }
            end_run(&s);
        }
        check_sum(&d->out[part], (r * places + ea) * N + j, &s, turned ? "x" : "y");
    }
}

// Panels of the other order give the same bits. `b`: what the first kernel, which has run, was given.
static void check_other(Lab *lab, uint32_t kernel, const Case *c, bool turned, const Data *d,
                        const Binding *b, int n) {
    bool across = !reads_across(turned ? FAMILY_MATMUL_T : FAMILY_MATMUL);
    Array w = pack(d->w[0], d->experts * c->each, c->k, c->n, turned != across, c->precision);
    Array out = output(c, c->rows * c->each * c->mid * (turned ? c->k : c->n));
    Binding other[4];
    for (int i = 0; i < n; i++) {
        other[i] = b[i];
        if (b[i].at == d->packed[0].at) other[i].at = w.at;
        if (b[i].at == d->out[0].at) other[i].at = out.at;
    }
    lab_run(lab, kernel, other, n);
    assert_memory_equal(out.at, d->out[0].at, lab_bytes(out.at));
    drop(&w), drop(&out);
}

// `other`: the kernel that reads the other order, or 0.
static void check_rows(Lab *lab, uint32_t kernel, uint32_t other, const Case *c, bool turned) {
    static const char *const names[4][MAX_PARTS] = {{"x", "x1", "x2", "x3"},
                                                    {"g", "g1", "g2", "g3"},
                                                    {"w", "w1", "w2", "w3"},
                                                    {"y", "y1", "y2", "y3"}};
    Data d = {0};
    Binding b[3 * MAX_PARTS + 1];
    int n = 0, ins = turned ? parts(c) : 1, outs = turned ? 1 : parts(c);
    int64_t places = (int64_t)c->each * c->mid;
    bool across = reads_across(turned ? FAMILY_MATMUL_T : FAMILY_MATMUL);
    set_offsets(c, &d);
    for (int i = 0; i < ins; i++) {
        int64_t width = places * (turned ? part_n(c, i) : c->k);
        d.in[i] = array(rows_of(c, &d, width, 1 + (uint64_t)i), turned ? c->g : c->x, c->precision);
        b[n++] = bind(names[turned][i], &d.in[i], true);
    }
    for (int i = 0; i < parts(c); i++) {
        int64_t matrices = d.experts * c->each;
        d.w[i] = lab_random(matrices * c->k * part_n(c, i), 20 + (uint64_t)i);
        d.packed[i] = pack(d.w[i], matrices, c->k, part_n(c, i), turned != across, c->precision);
        b[n++] = bind(names[2][i], &d.packed[i], true);
    }
    for (int i = 0; i < outs; i++) {
        d.out[i] = output(c, c->rows * places * (turned ? c->k : part_n(c, i)));
        b[n++] = bind(names[turned ? 0 : 3][i], &d.out[i], false);
    }
    if (c->experts) b[n++] = (Binding)READ_I32("offsets", d.offsets);
    lab_run(lab, kernel, b, n);
    int expert = 0;
    for (int64_t r = 0; r < d.valid; r++) {
        while (r >= d.offsets[expert + 1]) expert++;
        for (int64_t ea = 0; ea < places; ea++)
            for (int i = 0; i < outs; i++) check_row(c, &d, turned, r, expert, ea, i);
    }
    for (int o = 0; o < outs; o++) {
        int64_t width = places * (turned ? c->k : part_n(c, o));
        for (int64_t i = d.valid * width; i < c->rows * width; i++)
            assert_true(c->y == DTYPE_BF16 ? ((uint16_t *)d.out[o].at)[i] == lab_bf16(77.0f)
                                           : ((float *)d.out[o].at)[i] == 77.0f);
    }
    if (other) check_other(lab, other, c, turned, &d, b, n);
    for (int i = 0; i < ins; i++) drop(&d.in[i]);
    for (int i = 0; i < outs; i++) drop(&d.out[i]);
    for (int i = 0; i < parts(c); i++) drop(&d.packed[i]), lab_free(d.w[i]);
    lab_free(d.offsets);
}

/* weights ------------------------------------------------------------------------------------ */

static void check_weights(Lab *lab, uint32_t kernel, const Case *c) {
    Data d = {0};
    set_offsets(c, &d);
    int64_t places = (int64_t)c->each * c->mid, matrix = (int64_t)c->each * c->k * c->n;
    Array x = array(rows_of(c, &d, places * c->k, 1), c->x, c->precision);
    Array g = array(rows_of(c, &d, places * c->n, 3), c->g, c->precision);
    float *before = lab_random(d.experts * matrix, 9), *w = lab_random(d.experts * matrix, 9);
    Array result = {.at = w, .value = w, .dtype = DTYPE_F32};
    Binding b[] = {bind("x", &x, true), bind("g", &g, true), bind("w", &result, false),
                   READ_I32("offsets", d.offsets)};
    lab_run(lab, kernel, b, c->experts ? 4 : 3);
    for (int64_t at = 0; at < d.experts * matrix; at++) {
        int64_t n = at % c->n, k = at / c->n % c->k, e = at / c->n / c->k % c->each,
                expert = at / matrix,
                rows = (int64_t)(d.offsets[expert + 1] - d.offsets[expert]) * c->mid;
        Sum whole = {.exact = c->accumulate ? before[at] : 0, .terms = 1};
        whole.magnitude = fabs(whole.exact), whole.ordered = (float)whole.exact;
        for (int64_t from = 0; from < rows;
             from += 256) { // chunks of 256 rows from zero, then added
            Sum chunk = {.precision = c->precision};
            for (int64_t i = from; i < rows && i < from + 256; i++) {
                int64_t row =
                    ((d.offsets[expert] + i / c->mid) * c->each + e) * c->mid + i % c->mid;
                add(&chunk, x.value[row * c->k + k], g.value[row * c->n + n]);
            }
            end_run(&chunk);
            whole.exact += chunk.exact, whole.magnitude += chunk.magnitude,
                whole.terms += chunk.terms;
            whole.ordered = from || c->accumulate ? whole.ordered + chunk.ordered : chunk.ordered;
        }
        check_sum(&result, at, &whole, "w");
        if (!rows) assert_true(w[at] == (c->accumulate ? before[at] : 0.0f));
    }
    drop(&x), drop(&g);
    lab_free(before), lab_free(w), lab_free(d.offsets);
}

// Several products in one kernel: the CPU only.
static bool is_joined(const Case *c) { return lab_gpu() && c->parts > 1; }

static void test_contractions(void **state) {
    (void)state;
    Lab lab;
    uint32_t kernels[COUNT_OF(cases)][3], others[COUNT_OF(cases)][2] = {0};
    lab_open(&lab);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        if (is_joined(&cases[i])) continue;
        for (int f = 0; f < (cases[i].parts ? 2 : 3); f++) {
            KernelDesc desc = describe(&cases[i], (Family)(FAMILY_MATMUL + f));
            kernels[i][f] = lab_add(&lab, &desc);
            desc.across = !desc.across;
            if (lab_gpu() && cases[i].both && f < 2) others[i][f] = lab_add(&lab, &desc);
        }
    }
    lab_compile(&lab);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        if (is_joined(&cases[i])) continue;
        check_rows(&lab, kernels[i][0], others[i][0], &cases[i], false);
        check_rows(&lab, kernels[i][1], others[i][1], &cases[i], true);
        if (!cases[i].parts) check_weights(&lab, kernels[i][2], &cases[i]);
    }
    lab_close(&lab);
}

/* pack --------------------------------------------------------------------------------------- */

static const struct {
    int32_t experts, each, k, n;
    uint8_t precision;
} packs[] = {
    {0, 1, 1, 1, PRECISION_FP32},   {3, 2, 45, 71, PRECISION_FP32}, {0, 1, 1, 1, PRECISION_BF16},
    {3, 2, 45, 71, PRECISION_BF16}, {2, 1, 64, 96, PRECISION_BF16},
};

// In which weights are packed.
static int orders(void) { return lab_gpu() ? 1 : 2; }

static void test_pack(void **state) {
    (void)state;
    Lab lab;
    uint32_t kernels[COUNT_OF(packs)][2], from_half[COUNT_OF(packs)][2] = {0};
    lab_open(&lab);
    for (int i = 0; i < COUNT_OF(packs); i++) {
        for (int turned = 0; turned < orders(); turned++) {
            KernelDesc d = {.family = FAMILY_PACK,
                            .experts = packs[i].experts,
                            .each = packs[i].each,
                            .k = packs[i].k,
                            .n = packs[i].n,
                            .turned = turned,
                            .precision = packs[i].precision};
            kernels[i][turned] = lab_add(&lab, &d);
            d.x = DTYPE_BF16;
            if (d.precision == PRECISION_BF16) from_half[i][turned] = lab_add(&lab, &d);
        }
    }
    lab_compile(&lab);
    for (int i = 0; i < COUNT_OF(packs); i++) {
        int64_t matrices = (int64_t)(packs[i].experts ? packs[i].experts : 1) * packs[i].each;
        float *w = lab_random(matrices * packs[i].k * packs[i].n, 5);
        w[0] = lab_gpu() ? 0x1p-120f : 0x1p-130f; // a denormal, which GPUs keep; a tie, and what rounds to infinity
        if (matrices > 1) w[1] = 1.00390625f, w[2] = 3.3999e38f, w[3] = -0.0f;
        for (int turned = 0; turned < orders(); turned++) {
            Array want = pack(w, matrices, packs[i].k, packs[i].n, turned, packs[i].precision);
            Array got = {
                .at = lab_memory(lab_bytes(want.at)), .value = lab_array(0), .dtype = want.dtype};
            memset(got.at, 0x7f, lab_bytes(got.at));
            Binding b[] = {READ_F32("w", w), bind("packed", &got, false)};
            lab_run(&lab, kernels[i][turned], b, 2);
            assert_memory_equal(got.at, want.at, lab_bytes(got.at));
            if (packs[i].precision == PRECISION_BF16) { // weights that were rounded before: the same copies
                uint16_t *half = lab_narrow(w);
                Binding from[] = {{"w", DTYPE_BF16, true, half}, bind("packed", &got, false)};
                memset(got.at, 0x7f, lab_bytes(got.at));
                lab_run(&lab, from_half[i][turned], from, 2);
                assert_memory_equal(got.at, want.at, lab_bytes(got.at));
                lab_free(half);
            }
            drop(&want), drop(&got);
        }
        lab_free(w);
    }
    lab_close(&lab);
}

/* bf16 at the ends of the range ---------------------------------------------------------------- */

// Denormals, overflow, infinities, zeros of either sign: every level has the bits of the first one,
// and the first one, where it has the instruction, is the instruction. lab_run compares.
static void test_range(void **state) {
    (void)state;
    if (lab_gpu()) return; // the instruction is the CPU's
    Lab lab;
    lab_open(&lab);
    const Case c = {.rows = 60, .mid = 1, .each = 1, .k = 70, .n = 45, PAIRS, NARROW};
    KernelDesc forward = describe(&c, FAMILY_MATMUL), weights = describe(&c, FAMILY_MATMUL_W);
    forward.y = DTYPE_F32;
    uint32_t kernels[] = {lab_add(&lab, &forward), lab_add(&lab, &weights)};
    lab_compile(&lab);
    if (!lab_has_bf16()) print_message("skipped: this machine has no VDPBF16PS to compare with\n");
    for (int kind = 0; kind < 4; kind++) {
        int64_t nx = c.rows * c.k, nw = ((c.n + 31) / 32) * 32 * c.k, ng = c.rows * c.n;
        uint16_t *x = lab_memory((size_t)nx * 2), *w = lab_memory((size_t)nw * 2),
                 *g = lab_memory((size_t)ng * 2);
        uint16_t *all[] = {x, w, g};
        int64_t counts[] = {nx, nw, ng};
        for (int a = 0; a < 3; a++) {
            for (int64_t i = 0; i < counts[a]; i++) {
                uint64_t bits = hash_mix(7 + (uint64_t)kind, (uint64_t)a, (uint64_t)i);
                // any but NaN; products near the least normal number; tiny; products near overflow
                static const int low[] = {0, 60, 0, 188}, span[] = {255, 6, 3, 6};
                uint64_t exponent = (uint64_t)low[kind] + (bits >> 20) % (uint64_t)span[kind];
                all[a][i] = (uint16_t)((bits & 0x807f) | exponent << 7);
                if (kind == 0 && bits >> 40 & 1) all[a][i] &= 0x8000;
            }
        }
        float *y = lab_filled(ng, 7.0f), *dw = lab_filled((int64_t)c.k * c.n, 0.0f);
        Binding rows[] = {
            {"x", DTYPE_BF16, true, x}, {"w", DTYPE_BF16, true, w}, WRITE_F32("y", y)};
        lab_run(&lab, kernels[0], rows, 3);
        Binding sums[] = {
            {"x", DTYPE_BF16, true, x}, {"g", DTYPE_BF16, true, g}, WRITE_F32("w", dw)};
        lab_run(&lab, kernels[1], sums, 3);
        int64_t special = 0;
        for (int64_t i = 0; i < ng; i++)
            special += y[i] == 0 || !isfinite(y[i]) || fabsf(y[i]) < 0x1p-120f;
        assert_true(special > 0);
        lab_free(x), lab_free(w), lab_free(g), lab_free(y), lab_free(dw);
    }
    lab_close(&lab);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pack),
                                       cmocka_unit_test(test_contractions),
                                       cmocka_unit_test(test_range)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
