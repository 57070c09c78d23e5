// SPDX-License-Identifier: Apache-2.0
// mma.sync: products of small matrices that lie in the registers of a warp (PTX ISA 9.7.15).
//
// With g = lane / 4, q = lane % 4 and e elements per 32-bit register, register r of A holds rows
// g + 8 (r & 1), columns 4e (r >> 1) + e q and on: read in the order of lanes it is eight rows of
// 4e elements, contiguous. So is B, by columns. Fragments are widened into such blocks of fp32, B
// is turned, and C[row] += A[row][k] * B[k] goes over vectors of eight columns.
//
// Products are a chain of fp32 fused multiply-adds over ascending k, rounded once more for f16
// results: what hardware does in between is not documented and differs between architectures.
// Integers of 8 and 4 bits go the same way: sums of at most 64 such products are exact in fp32.
#include <stdio.h>

#include "runtime/vgpu/exec_aligned.h"
#include "runtime/vgpu/tiny.h"

typedef void Widen(float *to, const void *from, int n); // n elements, a multiple of 32
typedef enum MmaAcc { ACC_F32, ACC_F16, ACC_S32, ACC_S32_SAT } MmaAcc;
typedef struct Mma {
    Widen *a, *b;
    MmaAcc acc;
    uint8_t rows, wide;    // 8 or 16; 4e: columns of a register's block
    uint8_t n_a, n_b, n_c; // registers
    bool and_bits;         // of single bits: and, not xor
    uint32_t at[20];       // frame offsets: d[n_c], a[n_a], b[n_b], c[n_c]
} Mma;

/* widening ------------------------------------------------------------------------------------- */

#define WIDEN(name, T, EXPR)                                                                       \
    static void name(float *to, const void *from, int n) {                                         \
        const T *x = from;                                                                         \
        for (int k = 0; k < n; k++) to[k] = (EXPR);                                                \
    }
WIDEN(widen_tf32, uint32_t, as_f32(x[k] & 0xffffe000u)) // the low bits are ignored
WIDEN(widen_bf16, uint16_t, as_f32((uint32_t)x[k] << 16))
WIDEN(widen_e4m3, uint8_t, e4m3_to_float(x[k]))
WIDEN(widen_e5m2, uint8_t, e5m2_to_float(x[k]))
WIDEN(widen_e3m2, uint8_t, e3m2_to_float(x[k]))
WIDEN(widen_e2m3, uint8_t, e2m3_to_float(x[k]))
WIDEN(widen_e2m1, uint8_t, e2m1_to_float(x[k] >> 2)) // in the middle of its byte
WIDEN(widen_u8, uint8_t, (float)x[k])
WIDEN(widen_s8, int8_t, (float)x[k])

static void widen_f16(float *to, const void *from, int n) {
    for (int k = 0; k < n; k += 8)
        _mm256_storeu_ps(to + k, _mm256_cvtph_ps(_mm_loadu_si128(
                                     (const __m128i *)((const uint16_t *)from + k))));
}
static void widen_u4(float *to, const void *from, int n) {
    const uint8_t *x = from;
    for (int k = 0; k < n; k += 2)
        to[k] = (float)(x[k / 2] & 15), to[k + 1] = (float)(x[k / 2] >> 4);
}
static void widen_s4(float *to, const void *from, int n) {
    const uint8_t *x = from;
    for (int k = 0; k < n; k += 2)
        to[k] = (float)((int8_t)(x[k / 2] << 4) >> 4), to[k + 1] = (float)((int8_t)x[k / 2] >> 4);
}

/* the product ---------------------------------------------------------------------------------- */

enum { MOST_K = 64 };

// Values move between loops as whole vectors: a load that spans several recent stores would wait.

// `from` is eight rows of `wide` floats; to[k][8].
ALWAYS_INLINE void turn(float *to, const float *from, int wide) {
    for (int k = 0; k < wide; k += 4) {
        __m256 x[4], y[4];
        for (int n = 0; n < 4; n++)
            x[n] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + n * wide + k)),
                                        _mm_loadu_ps(from + (n + 4) * wide + k), 1);
        y[0] = _mm256_unpacklo_ps(x[0], x[1]), y[1] = _mm256_unpackhi_ps(x[0], x[1]);
        y[2] = _mm256_unpacklo_ps(x[2], x[3]), y[3] = _mm256_unpackhi_ps(x[2], x[3]);
        _mm256_storeu_ps(to + 8 * k, _mm256_shuffle_ps(y[0], y[2], 0x44));
        _mm256_storeu_ps(to + 8 * k + 8, _mm256_shuffle_ps(y[0], y[2], 0xee));
        _mm256_storeu_ps(to + 8 * k + 16, _mm256_shuffle_ps(y[1], y[3], 0x44));
        _mm256_storeu_ps(to + 8 * k + 24, _mm256_shuffle_ps(y[1], y[3], 0xee));
    }
}

// Eight rows of c; `a` is their first block, the next ones `step` floats apart.
ALWAYS_INLINE void multiply(__m256 c[8], const float *a, size_t step, const float *b, int blocks,
                            int wide) {
    __m256 sum[8];
    for (int g = 0; g < 8; g++) sum[g] = c[g];
    for (int block = 0; block < blocks; block++, a += step)
        for (int k = 0; k < wide; k++, b += 8) {
            __m256 row = _mm256_loadu_ps(b);
#pragma GCC unroll 8
            for (int g = 0; g < 8; g++)
                sum[g] = _mm256_fmadd_ps(_mm256_set1_ps(a[g * wide + k]), row, sum[g]);
        }
    for (int g = 0; g < 8; g++) c[g] = sum[g];
}

// Registers of columns 2q and 2q + 1 to eight rows, and back.
ALWAYS_INLINE void get_pairs(__m256 to[8], const float *even, const float *odd) {
    for (int g = 0; g < 8; g++) {
        __m128 x = _mm_loadu_ps(even + 4 * g), y = _mm_loadu_ps(odd + 4 * g);
        to[g] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_unpacklo_ps(x, y)),
                                     _mm_unpackhi_ps(x, y), 1);
    }
}
ALWAYS_INLINE void put_pairs(float *even, float *odd, const __m256 from[8]) {
    for (int g = 0; g < 8; g += 2) {
        __m256 low = _mm256_permute2f128_ps(from[g], from[g + 1], 0x20);
        __m256 high = _mm256_permute2f128_ps(from[g], from[g + 1], 0x31);
        _mm256_storeu_ps(even + 4 * g, _mm256_shuffle_ps(low, high, 0x88));
        _mm256_storeu_ps(odd + 4 * g, _mm256_shuffle_ps(low, high, 0xdd));
    }
}
ALWAYS_INLINE void one_nan(__m256 c[8]) {
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    for (int g = 0; g < 8; g++)
        c[g] = _mm256_blendv_ps(c[g], nan, _mm256_cmp_ps(c[g], c[g], _CMP_UNORD_Q));
}

// Rows 8 half and on of the accumulator.
ALWAYS_INLINE void get_rows(const Mma *x, const char *f, __m256 c[8], int half) {
    const uint32_t *at = x->at + x->n_c + x->n_a + x->n_b;
    float rows[64];
    if (x->acc == ACC_F32) {
        get_pairs(c, (const float *)(f + at[2 * half]), (const float *)(f + at[2 * half + 1]));
        return;
    }
    if (x->acc == ACC_F16) widen_f16(rows, f + at[half], 64);
    for (int g = 0; g < 8; g++)
        c[g] = x->acc == ACC_F16 ? _mm256_loadu_ps(rows + 8 * g) : _mm256_setzero_ps();
}

static void add_integers(const Mma *x, const char *f, const float *sum, int reg, uint32_t *r) {
    const int32_t *c = (const int32_t *)(f + x->at[x->n_c + x->n_a + x->n_b + reg]);
    for (int l = 0; l < 32; l++) {
        int64_t v = (int64_t)c[l] + (int64_t)sum[l];
        if (x->acc == ACC_S32_SAT) v = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v;
        r[l] = (uint32_t)v;
    }
}

static uint32_t half_of(float v) {
    return v == v ? _cvtss_sh(v, _MM_FROUND_TO_NEAREST_INT) : 0x7fff;
}

// The registers of the result that rows 8 half and on make, where they are not f32.
static void results(const Mma *x, const char *f, const __m256 c[8], int half, uint32_t r[4][32]) {
    float sums[2][32], rows[64];
    if (x->acc == ACC_F16) {
        for (int g = 0; g < 8; g++) _mm256_storeu_ps(rows + 8 * g, c[g]);
        for (int k = 0; k < 32; k++)
            r[half][k] = half_of(rows[2 * k]) | half_of(rows[2 * k + 1]) << 16;
        return;
    }
    put_pairs(sums[0], sums[1], c);
    for (int k = 0; k < 2; k++) add_integers(x, f, sums[k], 2 * half + k, r[2 * half + k]);
}

ALWAYS_INLINE void put_rows(const Mma *x, char *f, __m256 (*c)[8], int halves, uint32_t m) {
    uint32_t r[4][32] __attribute__((aligned(64)));
    for (int half = 0; half < halves && x->acc == ACC_F32; half++) {
        const uint32_t *at = x->at + 2 * half;
        one_nan(c[half]);
        if (m == ~0u)
            put_pairs((float *)(f + at[0]), (float *)(f + at[1]), c[half]);
        else
            put_pairs((float *)r[2 * half], (float *)r[2 * half + 1], c[half]);
    }
    if (m == ~0u && x->acc == ACC_F32) return;
    for (int half = 0; half < halves && x->acc != ACC_F32; half++) results(x, f, c[half], half, r);
    for (int reg = 0; reg < x->n_c; reg++) keep_register(f + x->at[reg], r[reg], m);
}

ALWAYS_INLINE void product(const Mma *x, char *f, uint32_t m, Widen *wide_a, Widen *wide_b,
                           int wide) {
    float a[4 * 8 * MOST_K / 2] __attribute__((aligned(64))),
        b[8 * MOST_K] __attribute__((aligned(64)));
    float turned[MOST_K * 8] __attribute__((aligned(64)));
    __m256 c[2][8];
    const uint32_t *at = x->at + x->n_c;
    int halves = x->rows / 8;
    for (int r = 0; r < x->n_a; r++) wide_a(a + r * 8 * wide, f + at[r], 8 * wide);
    for (int r = 0; r < x->n_b; r++) {
        wide_b(b, f + at[x->n_a + r], 8 * wide);
        turn(turned + r * 8 * wide, b, wide);
    }
    for (int half = 0; half < halves; half++) {
        get_rows(x, f, c[half], half);
        multiply(c[half], a + half * 8 * wide, (size_t)(halves * 8 * wide), turned, x->n_b, wide);
    }
    put_rows(x, f, c, halves, m);
}

#define MMA(name, a, b, wide)                                                                      \
    HANDLER(name) {                                                                                \
        uint32_t m;                                                                                \
        const VgInstr *next;                                                                       \
        if (!begin_aligned(i, w, f, &m, &next)) return next;                                       \
        const Mma *x = i->extra;                                                                   \
        product(x, f, m, a, b, wide);                                                              \
        VG_NEXT(i, w, f);                                                                          \
    }
MMA(mma_any, x->a, x->b, x->wide)
MMA(mma_bf16, widen_bf16, widen_bf16, 8)
MMA(mma_f16, widen_f16, widen_f16, 8)

// Single bits: a register is 32 elements of a row.
HANDLER(mma_bits) {
    uint32_t m, r[4][32] __attribute__((aligned(64)));
    const VgInstr *next;
    if (!begin_aligned(i, w, f, &m, &next)) return next;
    const Mma *x = i->extra;
    const uint32_t *at_a = x->at + x->n_c, *at_b = at_a + x->n_a, *at_c = at_b + x->n_b;
    int halves = x->rows / 8;
    for (int reg = 0; reg < x->n_c; reg++)
        for (int l = 0; l < 32; l++) {
            int row = l / 4, column = 2 * (l % 4) + reg % 2, sum = 0;
            for (int block = 0; block < x->n_b; block++)
                for (int q = 0; q < 4; q++) {
                    uint32_t a =
                        ((const uint32_t *)(f + at_a[block * halves + reg / 2]))[4 * row + q];
                    uint32_t b = ((const uint32_t *)(f + at_b[block]))[4 * column + q];
                    sum += __builtin_popcount(x->and_bits ? a & b : a ^ b);
                }
            r[reg][l] = ((const uint32_t *)(f + at_c[reg]))[l] + (uint32_t)sum;
        }
    for (int reg = 0; reg < x->n_c; reg++) keep_register(f + x->at[reg], r[reg], m);
    VG_NEXT(i, w, f);
}

// f64: a register is one element.
HANDLER(mma_double) {
    uint32_t m;
    double r[4][32];
    const VgInstr *next;
    if (!begin_aligned(i, w, f, &m, &next)) return next;
    const Mma *x = i->extra;
    const uint32_t *at_a = x->at + x->n_c, *at_b = at_a + x->n_a, *at_c = at_b + x->n_b;
    int halves = x->rows / 8;
    for (int reg = 0; reg < x->n_c; reg++)
        for (int l = 0; l < 32; l++) {
            int row = l / 4, column = 2 * (l % 4) + reg % 2;
            double sum = ((const double *)(f + at_c[reg]))[l];
            for (int k = 0; k < 4 * x->n_b; k++) {
                const double *a = (const double *)(f + at_a[k / 4 * halves + reg / 2]);
                const double *b = (const double *)(f + at_b[k / 4]);
                sum = __builtin_fma(a[4 * row + k % 4], b[4 * column + k % 4], sum);
            }
            r[reg][l] = canon64(sum);
        }
    for (int reg = 0; reg < x->n_c; reg++)
        for (int l = 0; l < 32; l++)
            if (m >> l & 1) ((double *)(f + x->at[reg]))[l] = r[reg][l];
    VG_NEXT(i, w, f);
}

// m8n8k4 of f16: four products, each of lanes 4p.. and 16 + 4p.. (PTX ISA 9.7.15.5.1). imm: A by
// rows, | 2: B by rows.
static float quarter_element(const char *f, const uint32_t *at, uint32_t lane, int k) {
    uint32_t word = ((const uint32_t *)(f + at[k / 2]))[lane];
    return half_to_float(word >> k % 2 * 16 & 0xffff);
}
HANDLER(mma_quarter) {
    uint32_t m;
    float r[8][32];
    const VgInstr *next;
    if (!begin_aligned(i, w, f, &m, &next)) return next;
    const Mma *x = i->extra;
    const uint32_t *at_a = x->at + x->n_c, *at_b = at_a + x->n_a, *at_c = at_b + x->n_b;
    bool wide = x->acc == ACC_F32;
    for (uint32_t l = 0; l < 32; l++)
        for (int k = 0; k < 8; k++) {
            uint32_t pair = l & 12, upper = l & 16;
            uint32_t row = (wide ? (l & 1) + ((uint32_t)k & 2) : l & 3) + upper / 4;
            uint32_t column = wide ? ((uint32_t)k & 4) + (l & 2) + ((uint32_t)k & 1) : (uint32_t)k;
            float sum = wide ? ((const float *)(f + at_c[k]))[l] : quarter_element(f, at_c, l, k);
            for (uint32_t n = 0; n < 4; n++) {
                uint32_t from_a = pair + row / 4 * 16 + (i->imm & 1 ? row % 4 : n);
                uint32_t from_b = pair + column / 4 * 16 + (i->imm & 2 ? n : column % 4);
                float a = quarter_element(f, at_a, from_a, (int)(i->imm & 1 ? n : row % 4));
                sum = __builtin_fmaf(
                    a, quarter_element(f, at_b, from_b, (int)(i->imm & 2 ? column % 4 : n)), sum);
            }
            r[k][l] = sum;
        }
    for (int reg = 0; reg < x->n_c; reg++) {
        uint32_t bits[32] __attribute__((aligned(64)));
        for (int l = 0; l < 32; l++)
            bits[l] = wide ? as_u32(canon(r[reg][l]))
                           : half_of(r[2 * reg][l]) | half_of(r[2 * reg + 1][l]) << 16;
        keep_register(f + x->at[reg], bits, m);
    }
    VG_NEXT(i, w, f);
}

/* decoding ------------------------------------------------------------------------------------- */

// Element types and what they need. `bits` 0: of a byte in a register.
static const struct Element {
    PtxType type;
    Widen *widen;
    int bits;
    char kind;
} elements[] = {
    { PTX_F16, widen_f16, 16, 'h' },   { PTX_BF16, widen_bf16, 16, 'b' },
    { PTX_TF32, widen_tf32, 32, 't' }, { PTX_E4M3, widen_e4m3, 8, '8' },
    { PTX_E5M2, widen_e5m2, 8, '8' },  { PTX_E3M2, widen_e3m2, 8, '6' },
    { PTX_E2M3, widen_e2m3, 8, '6' },  { PTX_E2M1, widen_e2m1, 8, '6' },
    { PTX_U8, widen_u8, 8, 'i' },      { PTX_S8, widen_s8, 8, 'i' },
    { PTX_U4, widen_u4, 4, 'n' },      { PTX_S4, widen_s4, 4, 'n' },
    { PTX_B1, NULL, 1, 'x' },          { PTX_F64, NULL, 64, 'd' },
};
typedef struct Element Element;

// Shapes by kind of element, and the first compute capability that has them.
static const struct {
    char kind;
    int rows, k, cc;
} shapes[] = {
    { 'h', 8, 4, 70 },   { 'h', 16, 8, 75 },   { 'h', 16, 16, 80 },  { 'b', 16, 8, 80 },
    { 'b', 16, 16, 80 }, { 't', 16, 4, 80 },   { 't', 16, 8, 80 },   { '8', 16, 16, 89 },
    { '8', 16, 32, 89 }, { '6', 16, 32, 120 }, { 'i', 8, 16, 75 },   { 'i', 16, 16, 80 },
    { 'i', 16, 32, 80 }, { 'n', 8, 32, 75 },   { 'n', 16, 32, 80 },  { 'n', 16, 64, 80 },
    { 'x', 8, 128, 75 }, { 'x', 16, 128, 80 }, { 'x', 16, 256, 80 }, { 'd', 8, 4, 80 },
    { 'd', 16, 4, 90 },  { 'd', 16, 8, 90 },   { 'd', 16, 16, 90 },
};

static const Element *element_of(PtxType type) {
    for (int k = 0; k < COUNT_OF(elements); k++)
        if (elements[k].type == type) return &elements[k];
    return NULL;
}

static Status fragment(VgDecoder *d, const PtxOperand *op, int n, int bits, bool written,
                       uint32_t *refs) {
    const PtxOperand *items = op->kind == PTX_OP_VECTOR ? op->items : op;
    int have = op->kind == PTX_OP_VECTOR ? (int)op->n_items : 1;
    if (have != n) return vg_bad(d, "expected %d registers in { }", n);
    for (int k = 0; k < n; k++) {
        if (written)
            TRY(vg_dst(d, &items[k], bits, false, &refs[k]));
        else
            TRY(vg_src_float(d, &items[k], bits, &refs[k]));
    }
    return OK;
}

static bool take_shape(VgDecoder *d, int *rows, int *k) {
    for (int s = 0; s < COUNT_OF(shapes); s++) {
        char name[24];
        snprintf(name, sizeof name, "m%dn8k%d", shapes[s].rows, shapes[s].k);
        if (!vg_take(d, name)) continue;
        *rows = shapes[s].rows, *k = shapes[s].k;
        return true;
    }
    return false;
}

static Status check_types(VgDecoder *d, const Element *a, const Element *b, PtxType to, PtxType c,
                          int rows, int k) {
    bool bytes = a && b && (a->kind == '8' || a->kind == '6') && (b->kind == '8' || b->kind == '6');
    if (!a || !b || (a->kind != b->kind && !bytes))
        return vg_bad(d, "no mma of these types of A and B");
    if ((a->kind == 'h' || a->kind == 'b' || a->kind == 't') && a != b)
        return vg_bad(d, "A and B must be of one type");
    char kind = a->kind == '8' && b->kind != '8' ? b->kind : a->kind;
    PtxType acc = strchr("inx", kind) ? PTX_S32 : kind == 'd' ? PTX_F64 : PTX_F32;
    bool half = to == PTX_F16 && strchr("h86", kind);
    if ((to != acc && !half) || c != to) return vg_bad(d, "no mma with such an accumulator");
    for (int s = 0; s < COUNT_OF(shapes); s++) {
        if (shapes[s].kind != kind || shapes[s].rows != rows || shapes[s].k != k) continue;
        if (shapes[s].cc <= vg_cc(d)) return OK;
        return vg_bad(d, "needs sm_%d, this is sm_%d", shapes[s].cc, vg_cc(d));
    }
    return vg_bad(d, "these types have no shape m%dn8k%d", rows, k);
}

static void set_registers(Mma *x, const Element *a, int rows, int k, PtxType to) {
    int per = a->bits == 64 ? 1 : 32 / a->bits; // elements of a register
    x->rows = (uint8_t)rows;
    x->wide = (uint8_t)(4 * per);
    x->n_b = (uint8_t)(k / (4 * per));
    x->n_a = (uint8_t)(x->n_b * rows / 8);
    x->n_c = (uint8_t)(to == PTX_F16 ? rows / 8 : rows / 4);
    if (a->kind != 'h' || rows != 8) return;
    x->n_a = x->n_b = 2;
    x->n_c = to == PTX_F16 ? 4 : 8;
}

static Status decode_mma(VgDecoder *d, const PtxInstr *p) {
    static const char *const orders[] = { "row", "col", NULL };
    int rows, k, bits_op = -1;
    if (!vg_take(d, "sync") || !vg_take(d, "aligned") || !take_shape(d, &rows, &k))
        return vg_bad(d, "expected .sync.aligned and a shape, as .m16n8k16");
    vg_take(d, "kind::f8f6f4");
    int order_a = vg_take_one(d, orders), order_b = vg_take_one(d, orders);
    bool sat = vg_take(d, "satfinite");
    if (vg_take(d, "popc")) bits_op = vg_take(d, "and") ? 1 : vg_take(d, "xor") ? 0 : -1;
    PtxType to = vg_take_type(d), ta = vg_take_type(d), tb = vg_take_type(d), c = vg_take_type(d);
    const Element *a = element_of(ta), *b = element_of(tb);
    TRY(check_types(d, a, b, to, c, rows, k));
    bool quarter = a->kind == 'h' && rows == 8;
    if (order_a < 0 || order_b < 0 || (!quarter && (order_a || !order_b)))
        return vg_bad(d, "expected .row.col");
    if (sat && to != PTX_S32) return vg_bad(d, ".satfinite is for integers");
    if ((a->kind == 'x') != (bits_op >= 0))
        return vg_bad(d, "expected .xor.popc or .and.popc with .b1, and only there");
    Mma *x = ARENA_NEW(vg_arena(d), Mma);
    x->a = a->widen, x->b = b->widen, x->and_bits = bits_op == 1;
    x->acc = to == PTX_F16 ? ACC_F16 : to == PTX_S32 ? (sat ? ACC_S32_SAT : ACC_S32) : ACC_F32;
    set_registers(x, a, rows, k, to);
    int bits = a->kind == 'd' ? 64 : 32, n = x->n_a + x->n_b + x->n_c;
    TRY(vg_count(d, 4, 4));
    TRY(fragment(d, &p->operands[1], x->n_a, bits, false, x->at + x->n_c));
    TRY(fragment(d, &p->operands[2], x->n_b, bits, false, x->at + x->n_c + x->n_a));
    TRY(fragment(d, &p->operands[3], x->n_c, bits, false, x->at + x->n_c + x->n_a + x->n_b));
    TRY(fragment(d, &p->operands[0], x->n_c, bits, true, x->at));
    VgHandler run = quarter          ? mma_quarter
                    : a->kind == 'd' ? mma_double
                    : a->kind == 'x' ? mma_bits
                    : a->kind == 'b' ? mma_bf16
                    : a->kind == 'h' ? mma_f16
                                     : mma_any;
    VgInstr *i = vg_emit(d, run);
    i->extra = x;
    i->imm = (order_a == 0) | (order_b == 0) << 1;
    vg_emit_list(d, x->at, x->n_c, 0);
    vg_emit_reads(d, x->at + x->n_c, (uint32_t)n);
    return OK;
}

const VgRoot VG_NAME(vg_roots_tensor)[] = {
    { "mma", decode_mma,
      "mma.sync.aligned.SHAPE.row.col{.satfinite}{.xor.popc,.and.popc}.dtype.atype.btype.ctype "
      "with shapes "
      "m16n8k{8,16} of f16 and bf16, m16n8k{4,8} of tf32, m16n8k{16,32} of e4m3 and e5m2, m16n8k32 "
      "of kind::f8f6f4, "
      "m8n8k16 and m16n8k{16,32} of u8 and s8, m8n8k32 and m16n8k{32,64} of u4 and s4, m8n8k128 "
      "and "
      "m16n8k{128,256} of b1, m8n8k4 and m16n8k{4,8,16} of f64, m8n8k4 of f16" },
    { NULL, NULL, NULL },
};
