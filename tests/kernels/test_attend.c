// SPDX-License-Identifier: Apache-2.0
// Attention and its gradient against plain sums in double: odd lengths and head sizes, groups of
// heads, causal or not, windows, documents, sinks, sequences; products in fp32 and bf16, numbers in
// memory as either. Where the machine has the bf16 instruction, lab_run compares it with the levels
// that emulate it.
#include "tests/kernels/lab.h"

#include <math.h>
#include <stdlib.h>

typedef struct Case {
    int32_t sequences, sequence, heads, kv_heads, qk, v, window;
    bool causal, sinks;
    int32_t document; // mean length; 0: one per sequence
    float scale;
    uint8_t precision, x, g, y;
} Case;

#define FP32 PRECISION_FP32, DTYPE_F32, DTYPE_F32, DTYPE_F32
#define NARROW DTYPE_BF16
#define BF16 PRECISION_BF16, NARROW, NARROW, NARROW
static const Case cases[] = {
    {1, 1, 1, 1, 1, 1, 0, true, false, 0, 1.0f, FP32},
    {2, 1, 2, 1, 3, 5, 0, true, true, 0, 0.5f, FP32},
    {1, 67, 3, 3, 17, 17, 0, true, false, 0, 0.3f, FP32},
    {2, 131, 4, 2, 32, 32, 0, true, true, 0, 0.17f, FP32},
    {2, 128, 4, 1, 64, 64, 0, true, true, 0, 0.125f, FP32},
    {1, 150, 2, 1, 24, 40, 0, false, false, 0, 0.2f, FP32},
    {3, 97, 2, 2, 16, 8, 5, true, false, 0, 0.25f, FP32},
    {1, 200, 2, 1, 12, 33, 70, true, true, 0, 0.3f, FP32},
    {1, 193, 2, 1, 8, 8, 30, false, false, 0, 0.3f, FP32},
    {2, 210, 6, 2, 20, 20, 0, true, false, 13, 0.2f, FP32},
    {2, 211, 2, 1, 20, 20, 40, true, true, 90, 0.2f, FP32},
    {1, 160, 1, 1, 16, 16, 0, false, true, 50, 4.0f, FP32}, // sharp: large scores
    {1, 70, 2, 1, 5, 7, 1, true, false, 0, 1.0f, FP32},     // each token sees itself alone
    {1, 600, 2, 1, 16, 16, 0, true, false, 0, -0.25f, FP32}, // more than a span of keys
    {1, 77, 2, 1, 16, 9, 0, true, true, 20, 0.3f, PRECISION_FP32, NARROW, NARROW, NARROW},
    {1, 1, 1, 1, 1, 1, 0, true, false, 0, 1.0f, BF16},
    {2, 67, 3, 3, 17, 17, 0, true, false, 0, 0.3f, BF16},
    {2, 131, 4, 2, 32, 32, 0, true, true, 0, 0.17f, BF16},
    {1, 150, 2, 1, 24, 40, 0, false, false, 0, 0.2f, BF16},
    {3, 97, 2, 2, 16, 8, 5, true, false, 0, 0.25f, BF16},
    {2, 210, 6, 2, 20, 21, 0, true, false, 13, 0.2f, BF16},
    {2, 211, 2, 1, 20, 20, 40, true, true, 90, 0.2f, BF16},
    {1, 600, 4, 1, 64, 64, 0, true, true, 200, -0.125f, BF16},
    {1, 160, 1, 1, 16, 16, 0, false, true, 50, 4.0f, BF16},
    {2, 90, 2, 1, 16, 16, 0, true, true, 0, 0.25f, PRECISION_BF16, DTYPE_F32, NARROW, DTYPE_F32},
    {2, 90, 2, 1, 16, 16, 0, true, true, 0, 0.25f, PRECISION_BF16, NARROW, DTYPE_F32, DTYPE_F32},
};

static KernelDesc describe(const Case *c, Family family) {
    return (KernelDesc){.family = family,
                        .rows = (int64_t)c->sequences * c->sequence,
                        .sequence = c->sequence,
                        .heads = c->heads,
                        .kv_heads = c->kv_heads,
                        .qk = c->qk,
                        .v = c->v,
                        .window = c->window,
                        .causal = c->causal,
                        .sinks = c->sinks,
                        .scale = c->scale,
                        .precision = c->precision,
                        .x = c->x,
                        .g = c->g,
                        .y = c->y};
}

typedef struct Data {
    int64_t tokens, nq, nk, nv, ny, nl;
    float *q, *k, *v, *g, *sinks, *y, *lse, *dq, *dk, *dv, *dsinks;
    int32_t *segments;
    double *ry, *rlse, *rdq, *rdk, *rdv, *rdsinks; // references
} Data;

// Numbers as the kernel has them in memory: the array itself, or a bf16 copy of it.
typedef struct Stored {
    float *wide;
    uint16_t *narrow;
} Stored;

static Stored stored(float *x, uint8_t dtype) {
    return (Stored){x, dtype == DTYPE_BF16 ? lab_narrow(x) : NULL};
}

static Binding bind(const char *name, const Stored *s, bool is_const) {
    return (Binding){name, s->narrow ? DTYPE_BF16 : DTYPE_F32, is_const,
                     s->narrow ? (void *)s->narrow : s->wide};
}

// After a run: the floats become what the bf16 copy holds.
static void settle(Stored *s, int64_t n) {
    for (int64_t i = 0; s->narrow && i < n; i++) s->wide[i] = lab_wide(s->narrow[i]);
    if (s->narrow) lab_free(s->narrow);
}

static bool sees(const Case *c, const Data *d, int64_t i, int64_t j) {
    if (i / c->sequence != j / c->sequence || d->segments[i] != d->segments[j]) return false;
    if (c->causal && j > i) return false;
    return !c->window || j > i - c->window;
}

static double score(const Case *c, const Data *d, int64_t i, int64_t j, int64_t h) {
    double sum = 0;
    int64_t head = h / (c->heads / c->kv_heads);
    for (int x = 0; x < c->qk; x++)
        sum += (double)d->q[(i * c->heads + h) * c->qk + x] *
               d->k[(j * c->kv_heads + head) * c->qk + x];
    return sum * c->scale;
}

static double value(const Case *c, const float *g, const float *v, int64_t i, int64_t j,
                    int64_t h) {
    double sum = 0;
    int64_t head = h / (c->heads / c->kv_heads);
    for (int x = 0; x < c->v; x++)
        sum += (double)g[(i * c->heads + h) * c->v + x] * v[(j * c->kv_heads + head) * c->v + x];
    return sum;
}

// Forward and backward of one query and head, in double.
static void reference(const Case *c, Data *d, int64_t i, int64_t h) {
    int64_t head = h / (c->heads / c->kv_heads), at = i * c->heads + h;
    double top = c->sinks ? d->sinks[h] : -INFINITY, total = 0, delta = 0;
    double *p = calloc((size_t)d->tokens, sizeof *p);
    for (int64_t j = 0; j < d->tokens; j++)
        if (sees(c, d, i, j)) top = fmax(top, p[j] = score(c, d, i, j, h));
    for (int64_t j = 0; j < d->tokens; j++)
        if (sees(c, d, i, j)) total += p[j] = exp(p[j] - top);
    if (c->sinks) total += exp(d->sinks[h] - top);
    d->rlse[at] = top + log(total);
    for (int64_t j = 0; j < d->tokens; j++) {
        p[j] /= total;
        for (int x = 0; x < c->v; x++)
            d->ry[at * c->v + x] += p[j] * d->v[(j * c->kv_heads + head) * c->v + x];
    }
    for (int x = 0; x < c->v; x++) delta += d->g[at * c->v + x] * d->ry[at * c->v + x];
    if (c->sinks) d->rdsinks[h] -= exp(d->sinks[h] - d->rlse[at]) * delta;
    for (int64_t j = 0; j < d->tokens; j++) {
        if (p[j] == 0) continue;
        double ds = p[j] * (value(c, d->g, d->v, i, j, h) - delta) * c->scale;
        int64_t key = j * c->kv_heads + head;
        for (int x = 0; x < c->v; x++) d->rdv[key * c->v + x] += p[j] * d->g[at * c->v + x];
        for (int x = 0; x < c->qk; x++) {
            d->rdq[at * c->qk + x] += ds * d->k[key * c->qk + x];
            d->rdk[key * c->qk + x] += ds * d->q[at * c->qk + x];
        }
    }
    free(p);
}

// What bf16 can hold, so that reference and kernel begin with equal numbers.
static float *random_numbers(int64_t n, uint64_t seed, uint8_t dtype) {
    float *x = lab_random(n, seed);
    for (int64_t i = 0; dtype == DTYPE_BF16 && i < n; i++) x[i] = lab_wide(lab_bf16(x[i]));
    return x;
}

static Data make(const Case *c) {
    int64_t T = (int64_t)c->sequences * c->sequence;
    Data d = {.tokens = T,
              .nq = T * c->heads * c->qk,
              .nk = T * c->kv_heads * c->qk,
              .nv = T * c->kv_heads * c->v,
              .ny = T * c->heads * c->v,
              .nl = T * c->heads};
    d.q = random_numbers(d.nq, 1, c->x), d.k = random_numbers(d.nk, 2, c->x);
    d.v = random_numbers(d.nv, 3, c->x), d.g = random_numbers(d.ny, 4, c->g);
    d.sinks = lab_random(c->heads, 5);
    d.y = lab_filled(d.ny, NAN), d.lse = lab_filled(d.nl, NAN);
    d.dq = lab_filled(d.nq, NAN), d.dk = lab_filled(d.nk, NAN), d.dv = lab_filled(d.nv, NAN);
    d.dsinks = lab_filled(c->heads, NAN);
    d.segments = lab_array(T);
    for (int64_t t = 0, document = -1; t < T; t++) {
        bool starts = c->document && hash_uniform(7, 0, (uint64_t)t) * (float)c->document < 1.0f;
        document += starts || t % c->sequence == 0;
        d.segments[t] = (int32_t)document;
    }
    double **all[] = {&d.ry, &d.rlse, &d.rdq, &d.rdk, &d.rdv, &d.rdsinks};
    int64_t counts[] = {d.ny, d.nl, d.nq, d.nk, d.nv, c->heads};
    for (int i = 0; i < COUNT_OF(all); i++) *all[i] = calloc((size_t)counts[i], sizeof(double));
    return d;
}

static void drop(Data *d) {
    void *arrays[] = {d->q,   d->k,  d->v,  d->g,  d->sinks,  d->y,
                      d->lse, d->dq, d->dk, d->dv, d->dsinks, d->segments};
    void *references[] = {d->ry, d->rlse, d->rdq, d->rdk, d->rdv, d->rdsinks};
    for (int i = 0; i < COUNT_OF(arrays); i++) lab_free(arrays[i]);
    for (int i = 0; i < COUNT_OF(references); i++) free(references[i]);
}

// Within `relative` of the largest number of the array.
static void compare(const float *got, const double *want, int64_t n, double relative,
                    const char *what) {
    double largest = 1e-30;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) lab_near(got[i], want[i], relative * largest, what, i);
}

enum { Q, K, V, G, Y, Y_AGAIN, DQ, DK, DV, N_STORED };

static void run(Lab *lab, const uint32_t kernels[2], const Case *c, Data *d) {
    Stored s[N_STORED] = {
        [Q] = stored(d->q, c->x), [K] = stored(d->k, c->x), [V] = stored(d->v, c->x),
        [G] = stored(d->g, c->g), [Y] = stored(d->y, c->y),
    };
    const int64_t sizes[N_STORED] = {d->nq, d->nk, d->nv, d->ny, d->ny, d->ny, d->nq, d->nk, d->nv};
    Binding forward[] = {bind("q", &s[Q], true),       bind("k", &s[K], true),
                         bind("v", &s[V], true),       READ_I32("segments", d->segments),
                         bind("y", &s[Y], false),      WRITE_F32("lse", d->lse),
                         READ_F32("sinks", d->sinks)};
    lab_run(lab, kernels[0], forward, c->sinks ? 7 : 6);
    settle(&s[Y], d->ny);
    s[Y_AGAIN] = stored(d->y, c->x);
    s[DQ] = stored(d->dq, c->y), s[DK] = stored(d->dk, c->y), s[DV] = stored(d->dv, c->y);
    Binding backward[] = {bind("q", &s[Q], true),       bind("k", &s[K], true),
                          bind("v", &s[V], true),       READ_I32("segments", d->segments),
                          bind("y", &s[Y_AGAIN], true), READ_F32("lse", d->lse),
                          bind("g", &s[G], true),       bind("dq", &s[DQ], false),
                          bind("dk", &s[DK], false),    bind("dv", &s[DV], false),
                          READ_F32("sinks", d->sinks),  WRITE_F32("dsinks", d->dsinks)};
    lab_run(lab, kernels[1], backward, c->sinks ? 12 : 10);
    for (int i = 0; i < N_STORED; i++)
        if (i != Y) settle(&s[i], sizes[i]);
}

static void check(Lab *lab, const uint32_t kernels[2], const Case *c) {
    Data d = make(c);
    for (int64_t i = 0; i < d.tokens; i++)
        for (int64_t h = 0; h < c->heads; h++) reference(c, &d, i, h);
    run(lab, kernels, c, &d);
    // Weights and their gradients pass through bf16, then sums of them: 2^-9 each, partly averaged.
    bool rounded = c->precision == PRECISION_BF16 || c->x || c->y || c->g;
    double more = rounded ? 8e-3 : 0;
    double lse = 1e-6; // q and k in f32 are rounded before they meet
    if (c->precision == PRECISION_BF16) lse = c->x == DTYPE_BF16 ? 1e-5 : more;
    compare(d.y, d.ry, d.ny, 3e-6 + more, "y");
    compare(d.lse, d.rlse, d.nl, lse, "lse");
    compare(d.dv, d.rdv, d.nv, 5e-6 + more, "dv");
    // With one visible key the gradient of the scores is zero but for rounding.
    double floor = c->window == 1 || d.tokens <= 2 ? 1e-6 + more : 0;
    if (floor > 0) {
        for (int64_t i = 0; i < d.nq; i++) lab_near(d.dq[i], d.rdq[i], floor, "dq", i);
        for (int64_t i = 0; i < d.nk; i++) lab_near(d.dk[i], d.rdk[i], floor, "dk", i);
    } else {
        compare(d.dq, d.rdq, d.nq, 1e-5 + more, "dq");
        compare(d.dk, d.rdk, d.nk, 1e-5 + more, "dk");
    }
    if (c->sinks) compare(d.dsinks, d.rdsinks, c->heads, 1e-5 + more, "dsinks");
    drop(&d);
}

static void test_attention(void **state) {
    (void)state;
    Lab lab;
    uint32_t kernels[COUNT_OF(cases)][2];
    lab_open(&lab);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        for (int f = 0; f < 2; f++) {
            KernelDesc desc = describe(&cases[i], (Family)(FAMILY_ATTEND + f));
            kernels[i][f] = lab_add(&lab, &desc);
        }
    }
    lab_compile(&lab);
    for (int i = 0; i < COUNT_OF(cases); i++) check(&lab, kernels[i], &cases[i]);
    lab_close(&lab);
}

// Nine copies of a sequence are tiles of their own; one is cut into parts. The bits are the same.
static void test_parts(void **state) {
    (void)state;
    if (lab_gpu()) return; // cuts of the CPU
    static const Case one = {1, 300, 4, 1, 32, 32, 0, true, false, 0, 0.2f, BF16};
    Case nine = one;
    nine.sequences = 9;
    Lab lab;
    uint32_t kernels[2][2];
    lab_open(&lab);
    for (int f = 0; f < 2; f++) {
        KernelDesc a = describe(&one, (Family)(FAMILY_ATTEND + f));
        KernelDesc b = describe(&nine, (Family)(FAMILY_ATTEND + f));
        kernels[0][f] = lab_add(&lab, &a), kernels[1][f] = lab_add(&lab, &b);
    }
    assert_true(lab.plan->kernels[kernels[0][0]].tiles > 1);
    assert_true(lab.plan->kernels[kernels[0][1]].tiles > 1);
    assert_int_equal(lab.plan->kernels[kernels[1][1]].tiles, 9);
    lab_compile(&lab);
    Data a = make(&one), b = make(&nine);
    float *from[] = {a.q, a.k, a.v, a.g}, *to[] = {b.q, b.k, b.v, b.g};
    const int64_t sizes[] = {a.nq, a.nk, a.nv, a.ny};
    for (int i = 0; i < COUNT_OF(from); i++)
        for (int copy = 0; copy < nine.sequences; copy++)
            memcpy(to[i] + copy * sizes[i], from[i], (size_t)sizes[i] * sizeof(float));
    run(&lab, kernels[0], &one, &a);
    run(&lab, kernels[1], &nine, &b);
    for (int copy = 0; copy < nine.sequences; copy += 8) {
        lab_equal_bits(a.y, b.y + copy * a.ny, a.ny);
        lab_equal_bits(a.dq, b.dq + copy * a.nq, a.nq);
        lab_equal_bits(a.dk, b.dk + copy * a.nk, a.nk);
        lab_equal_bits(a.dv, b.dv + copy * a.nv, a.nv);
    }
    drop(&a), drop(&b);
    lab_close(&lab);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
