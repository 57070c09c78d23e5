// SPDX-License-Identifier: Apache-2.0
// Arithmetic and comparison of f32 and f64.
//
// IEEE operations with the rounding written; .ftz flushes subnormal inputs and results keeping
// their sign, .sat clamps to [0, 1] with NaN to 0, NaN results are one pattern. The flags of the
// processor are as the ABI leaves them: flushing is done in code, and directed rounding sets and
// restores MXCSR around one handler. The approximations are correctly rounded from double, the same
// on every host.
#include <math.h>

#include "runtime/vgpu/exec.h"

#define ROUND_DOWN 0x2000u
#define ROUND_UP 0x4000u
#define ROUND_ZERO 0x6000u

static inline uint32_t round_set(uint32_t mode) {
    uint32_t old = _mm_getcsr();
    _mm_setcsr((old & ~0x6000u) | mode);
    __asm__ volatile("" ::: "memory");
    return old;
}
static inline void round_back(uint32_t old) {
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(old);
}

/* arithmetic: every operation in four roundings, plain, ftz, sat ------------------------------- */

#define KEEP(x) (x)
// OP2(name, expression of x and y): f32 with inputs through IN, result through OUT.
#define ONE2(name, T, IN, OUT, EXPR)                                                               \
    ALWAYS_INLINE T name##_one(T x0, T y0) {                                                       \
        T x = IN(x0), y = IN(y0);                                                                  \
        return OUT(EXPR);                                                                          \
    }                                                                                              \
    BINARY(name, T, T, T, name##_one(a[l], b[l]))
#define DIRECTED2(name, base, T, mode)                                                             \
    HANDLER(name) {                                                                                \
        uint32_t m = VG_MASK(i, w, f), old = round_set(mode);                                      \
        const T *a = SLOT(const T, a), *b = SLOT(const T, b);                                      \
        T r[32] __attribute__((aligned(64))), *d = SLOT(T, d);                                     \
        LANES r[l] = base##_one(a[l], b[l]);                                                       \
        round_back(old);                                                                           \
        LANES d[l] = m >> l & 1 ? r[l] : d[l];                                                     \
        VG_NEXT(i, w, f);                                                                          \
    }
#define ROUNDED2(name, T)                                                                          \
    DIRECTED2(name##_rz, name, T, ROUND_ZERO)                                                      \
    DIRECTED2(name##_rm, name, T, ROUND_DOWN)                                                      \
    DIRECTED2(name##_rp, name, T, ROUND_UP)
#define FLUSHED(x) canon(flush(x))
#define SAT_FLUSHED(x) saturate(flush(x))
#define FAMILY2(name, EXPR)                                                                        \
    ONE2(name, float, KEEP, canon, EXPR) ROUNDED2(name, float)                                     \
    ONE2(name##_ftz, float, flush, FLUSHED, EXPR) ROUNDED2(name##_ftz, float)                      \
    ONE2(name##_sat, float, KEEP, saturate, EXPR) ROUNDED2(name##_sat, float)                      \
    ONE2(name##_ftz_sat, float, flush, SAT_FLUSHED, EXPR) ROUNDED2(name##_ftz_sat, float)
#define FAMILY2D(name, EXPR) ONE2(name, double, KEEP, canon64, EXPR) ROUNDED2(name, double)

FAMILY2(add_f32, x + y)
FAMILY2(sub_f32, x - y)
FAMILY2(mul_f32, x * y)
FAMILY2D(add_f64, x + y)
FAMILY2D(sub_f64, x - y)
FAMILY2D(mul_f64, x * y)
ONE2(div_f32, float, KEEP, canon, x / y)
ROUNDED2(div_f32, float) ONE2(div_f32_ftz, float, flush, FLUSHED, x / y)
    ROUNDED2(div_f32_ftz, float) FAMILY2D(div_f64, x / y)

#define ONE3(name, T, IN, OUT, FMA)                                                                \
    ALWAYS_INLINE T name##_one(T x, T y, T z) { return OUT(FMA(IN(x), IN(y), IN(z))); }            \
    TERNARY(name, T, T, T, T, name##_one(a[l], b[l], c[l]))
#define DIRECTED3(name, base, T, mode)                                                             \
    HANDLER(name) {                                                                                \
        uint32_t m = VG_MASK(i, w, f), old = round_set(mode);                                      \
        const T *a = SLOT(const T, a), *b = SLOT(const T, b), *c = SLOT(const T, c);               \
        T r[32] __attribute__((aligned(64))), *d = SLOT(T, d);                                     \
        LANES r[l] = base##_one(a[l], b[l], c[l]);                                                 \
        round_back(old);                                                                           \
        LANES d[l] = m >> l & 1 ? r[l] : d[l];                                                     \
        VG_NEXT(i, w, f);                                                                          \
    }
#define FAMILY3(name, T, IN, OUT, FMA) \
    ONE3(name, T, IN, OUT, FMA) \
    DIRECTED3(name##_rz, name, T, ROUND_ZERO) \
    DIRECTED3(name##_rm, name, T, ROUND_DOWN) \
    DIRECTED3(name##_rp, name, T, ROUND_UP)
        FAMILY3(fma_f32, float, KEEP, canon, __builtin_fmaf)
            FAMILY3(fma_f32_ftz, float, flush, FLUSHED, __builtin_fmaf)
                FAMILY3(fma_f32_sat, float, KEEP, saturate, __builtin_fmaf)
                    FAMILY3(fma_f32_ftz_sat, float, flush, SAT_FLUSHED, __builtin_fmaf)
                        FAMILY3(fma_f64, double, KEEP, canon64, __builtin_fma)

    // Two f32 in 64 bits (sm_100): both halves.
    ALWAYS_INLINE uint64_t two(float low, float high) {
    return as_u32(low) | (uint64_t)as_u32(high) << 32;
}
ALWAYS_INLINE float low_f32(uint64_t v) { return as_f32((uint32_t)v); }
ALWAYS_INLINE float high_f32(uint64_t v) { return as_f32((uint32_t)(v >> 32)); }
#define PAIR2(name, base)                                                                          \
    BINARY(name, uint64_t, uint64_t, uint64_t, two(base##_one(low_f32(a[l]), low_f32(b[l])),       \
                                                   base##_one(high_f32(a[l]), high_f32(b[l]))))
PAIR2(add_f32x2, add_f32)
PAIR2(add_f32x2_ftz, add_f32_ftz)
PAIR2(sub_f32x2, sub_f32)
PAIR2(mul_f32x2, mul_f32)
PAIR2(mul_f32x2_ftz, mul_f32_ftz)
TERNARY(fma_f32x2, uint64_t, uint64_t, uint64_t, uint64_t,
        two(fma_f32_one(low_f32(a[l]), low_f32(b[l]), low_f32(c[l])),
            fma_f32_one(high_f32(a[l]), high_f32(b[l]), high_f32(c[l]))))
TERNARY(fma_f32x2_ftz, uint64_t, uint64_t, uint64_t, uint64_t,
        two(fma_f32_ftz_one(low_f32(a[l]), low_f32(b[l]), low_f32(c[l])),
            fma_f32_ftz_one(high_f32(a[l]), high_f32(b[l]), high_f32(c[l]))))

/* one operand ---------------------------------------------------------------------------------- */

#define ONE1(name, T, IN, OUT, EXPR)                                                               \
    ALWAYS_INLINE T name##_one(T x0) {                                                             \
        T x = IN(x0);                                                                              \
        return OUT(EXPR);                                                                          \
    }                                                                                              \
    UNARY(name, T, T, name##_one(a[l]))
#define DIRECTED1(name, base, T, mode)                                                             \
    HANDLER(name) {                                                                                \
        uint32_t m = VG_MASK(i, w, f), old = round_set(mode);                                      \
        const T *a = SLOT(const T, a);                                                             \
        T r[32] __attribute__((aligned(64))), *d = SLOT(T, d);                                     \
        LANES r[l] = base##_one(a[l]);                                                             \
        round_back(old);                                                                           \
        LANES d[l] = m >> l & 1 ? r[l] : d[l];                                                     \
        VG_NEXT(i, w, f);                                                                          \
    }
#define FAMILY1(name, T, IN, OUT, EXPR)                                                            \
    ONE1(name, T, IN, OUT, EXPR)                                                                   \
    DIRECTED1(name##_rz, name, T, ROUND_ZERO)                                                      \
    DIRECTED1(name##_rm, name, T, ROUND_DOWN)                                                      \
    DIRECTED1(name##_rp, name, T, ROUND_UP)
FAMILY1(sqrt_f32, float, KEEP, canon, __builtin_sqrtf(x))
FAMILY1(sqrt_f32_ftz, float, flush, FLUSHED, __builtin_sqrtf(x))
FAMILY1(sqrt_f64, double, KEEP, canon64, __builtin_sqrt(x))
FAMILY1(rcp_f32, float, KEEP, canon, 1 / x)
FAMILY1(rcp_f32_ftz, float, flush, FLUSHED, 1 / x)
FAMILY1(rcp_f64, double, KEEP, canon64, 1 / x)
UNARY(abs_f32, uint32_t, uint32_t, a[l] & 0x7fffffff)
UNARY(neg_f32, uint32_t, uint32_t, a[l] ^ 0x80000000)
UNARY(abs_f32_ftz, uint32_t, float, as_u32(canon(flush(a[l]))) & 0x7fffffff)
UNARY(neg_f32_ftz, uint32_t, float, a[l] == a[l] ? as_u32(flush(a[l])) ^ 0x80000000 : 0x7fffffff)
UNARY(abs_f64, uint64_t, uint64_t, a[l] & 0x7fffffffffffffff)
UNARY(neg_f64, uint64_t, uint64_t, a[l] ^ 0x8000000000000000)
BINARY(copysign_f32, uint32_t, uint32_t, uint32_t, (a[l] & 0x80000000) | (b[l] & 0x7fffffff))
BINARY(copysign_f64, uint64_t, uint64_t, uint64_t,
       (a[l] & 0x8000000000000000) | (b[l] & 0x7fffffffffffffff))

/* minimum and maximum: NaN loses (.NaN: wins), -0 < +0 ----------------------------------------- */

// Order of the bits as signed integers, so that zeros differ.
ALWAYS_INLINE int32_t order32(float x) {
    int32_t u = (int32_t)as_u32(x);
    return u < 0 ? (int32_t)(0x80000000u - (uint32_t)u) - 1 : u;
}
ALWAYS_INLINE int64_t order64(double x) {
    int64_t u = (int64_t)as_u64(x);
    return u < 0 ? (int64_t)(0x8000000000000000u - (uint64_t)u) - 1 : u;
}
ALWAYS_INLINE float pick(float x, float y, bool max, bool nan) {
    bool nx = x != x, ny = y != y, less = order32(x) < order32(y);
    float r = less != max ? x : y;
    r = nx ? y : r;
    r = ny ? x : r;
    r = nan && (nx || ny) ? as_f32(0x7fffffff) : r;
    return canon(r);
}
ALWAYS_INLINE double pick64(double x, double y, bool max) {
    double r = (order64(x) < order64(y)) != max ? x : y;
    r = x != x ? y : r;
    r = y != y ? x : r;
    return canon64(r);
}
ALWAYS_INLINE float pick_xor(float x, float y, bool max, bool nan) { // .xorsign.abs
    float r = pick(as_f32(as_u32(x) & 0x7fffffff), as_f32(as_u32(y) & 0x7fffffff), max, nan);
    return r == r ? as_f32(as_u32(r) | ((as_u32(x) ^ as_u32(y)) & 0x80000000)) : r;
}
#define PICKS(name, max) \
    BINARY(name, float, float, float, pick(a[l], b[l], max, false)) \
    BINARY(name##_ftz, float, float, float, pick(flush(a[l]), flush(b[l]), max, false)) \
    BINARY(name##_nan, float, float, float, pick(a[l], b[l], max, true)) \
    BINARY(name##_ftz_nan, float, float, float, pick(flush(a[l]), flush(b[l]), max, true)) \
    BINARY(name##_xor, float, float, float, pick_xor(a[l], b[l], max, false)) \
    BINARY(name##_ftz_xor, float, float, float, pick_xor(flush(a[l]), flush(b[l]), max, false)) \
    BINARY(name##_nan_xor, float, float, float, pick_xor(a[l], b[l], max, true)) \
    BINARY(name##_ftz_nan_xor, float, float, float, pick_xor(flush(a[l]), flush(b[l]), max, true)) \
    TERNARY(name##3, float, float, float, float, \
            pick(pick(a[l], b[l], max, false), c[l], max, false)) \
    TERNARY(name##3_nan, float, float, float, float, \
            pick(pick(a[l], b[l], max, true), c[l], max, true))
PICKS(min_f32, false)
PICKS(max_f32, true)
BINARY(min_f64, double, double, double, pick64(a[l], b[l], false))
BINARY(max_f64, double, double, double, pick64(a[l], b[l], true))

/* approximations ------------------------------------------------------------------------------- */

// 2^x in double: 2^n times a polynomial of the fraction; exact zeros and infinities at the ends.
ALWAYS_INLINE double exp2_d(double x) {
    x = x < -1100 ? -1100 : x > 1100 ? 1100 : x; // NaN stays
    double n = __builtin_rint(x), r = (x - n) * 0.693147180559945309417;
    double p = 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1;
    p = p * r + 1;
    int64_t k = n == n ? (int64_t)n : 0; // in two steps: 2^k may be subnormal
    double half = as_f64((uint64_t)(1023 + (k >> 1)) << 52),
           rest = as_f64((uint64_t)(1023 + k - (k >> 1)) << 52);
    return p * half * rest;
}
// log2 of a positive finite float: exponent and an atanh series of the mantissa in [sqrt 1/2, sqrt
// 2).
ALWAYS_INLINE double log2_d(float x) {
    double v = x;
    uint64_t u = as_u64(v);
    int64_t e = (int64_t)(u >> 52 & 0x7ff) - 1023;
    double mantissa = as_f64((u & 0xfffffffffffff) | 0x3ff0000000000000);
    bool high = mantissa > 1.41421356237309504880;
    mantissa = high ? mantissa * 0.5 : mantissa;
    e += high;
    double s = (mantissa - 1) / (mantissa + 1), z = s * s, p = 1.0 / 21;
    p = p * z + 1.0 / 19;
    p = p * z + 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    p = p * z + 1;
    return (double)e + 2 * s * p * 1.44269504088896340736;
}
ALWAYS_INLINE float log2_f(float x) {
    double r = log2_d(x);
    float v = (float)r;
    v = x == __builtin_inff() ? x : v;
    v = x == 0 ? -__builtin_inff() : v;
    return x < 0 || x != x ? as_f32(0x7fffffff) : v;
}
ALWAYS_INLINE double poly_sin(double r) {
    double z = r * r, p = -1.0 / 1307674368000;
    p = p * z + 1.0 / 6227020800;
    p = p * z - 1.0 / 39916800;
    p = p * z + 1.0 / 362880;
    p = p * z - 1.0 / 5040;
    p = p * z + 1.0 / 120;
    p = p * z - 1.0 / 6;
    return r + r * z * p;
}
ALWAYS_INLINE double poly_cos(double r) {
    double z = r * r, p = 1.0 / 20922789888000;
    p = p * z - 1.0 / 87178291200;
    p = p * z + 1.0 / 479001600;
    p = p * z - 1.0 / 3628800;
    p = p * z + 1.0 / 40320;
    p = p * z - 1.0 / 720;
    p = p * z + 1.0 / 24;
    p = p * z - 0.5;
    return 1 + z * p;
}
// Reduction by pi / 2 in two parts: good to 2^-40 below 2^30, whatever beyond (as the ISA allows).
ALWAYS_INLINE float sincos_f(float x, int shift) {
    double v = x, n = __builtin_rint(v * 0.63661977236758134308);
    double r =
        __builtin_fma(n, -6.12323399573676603587e-17, __builtin_fma(n, -1.57079632679489655800, v));
    n = n < 9e15 && n > -9e15 ? n : 0;
    int64_t q = (int64_t)n + shift;
    r = r < 1 && r > -1 ? r : 0;
    double s = q & 1 ? poly_cos(r) : poly_sin(r);
    s = q & 2 ? -s : s;
    s = x == 0 && !shift ? v : s; // the sign of zero
    return x - x == 0 ? (float)s : as_f32(0x7fffffff); // NaN and infinities
}
ALWAYS_INLINE float tanh_f(float x) {
    double e = exp2_d(-2.88539008177792681472 * (x < 0 ? -(double)x : (double)x)); // e^-2|x|
    double ax = x < 0 ? -(double)x : (double)x, z = (double)x * x;
    double big = (1 - e) / (1 + e);
    double small =
        ax * (1 + z * (-1.0 / 3 + z * (2.0 / 15 + z * (-17.0 / 315 + z * (62.0 / 2835)))));
    double r = ax < 0.05 ? small : big;
    return x == x ? as_f32(as_u32((float)r) | (as_u32(x) & 0x80000000)) : as_f32(0x7fffffff);
}
ALWAYS_INLINE float div_full(float x, float y) { return canon((float)((double)x / (double)y)); }
float VG_NAME(vg_exp2)(float x) { return canon((float)exp2_d(x)); }
float VG_NAME(vg_tanh)(float x) { return tanh_f(x); }
#define APPROX1(name, EXPR)                                                                        \
    ALWAYS_INLINE float name##_one(float x) { return (EXPR); }                                     \
    UNARY(name, float, float, name##_one(a[l]))                                                    \
    UNARY(name##_ftz, float, float, flush(name##_one(flush(a[l]))))
APPROX1(ex2, canon((float)exp2_d(x)))
APPROX1(lg2, log2_f(x))
APPROX1(sin_f32, sincos_f(x, 0))
APPROX1(cos_f32, sincos_f(x, 1))
UNARY(tanh_f32, float, float, tanh_f(a[l]))
APPROX1(rsqrt_f32, canon((float)(1 / __builtin_sqrt((double)x))))
UNARY(rsqrt_f64, double, double, canon64(1 / __builtin_sqrt(a[l])))
BINARY(div_approx, float, float, float, div_full(a[l], b[l]))
BINARY(div_approx_ftz, float, float, float, flush(div_full(flush(a[l]), flush(b[l]))))

/* comparison ----------------------------------------------------------------------------------- */

// VgInstr of setp: d = p, a, b; c = third predicate, imm: 1 and, 2 or, 3 xor, | 4 not c, | 8 q =
// ops[0].
ALWAYS_INLINE const VgInstr *set_preds(const VgInstr *i, VgWarp *w, char *f, uint32_t r) {
    uint32_t m = VG_MASK(i, w, f);
    if (__builtin_expect(i->imm == 0, 1)) {
        put_pred(f, i->d, m, r);
        return i + 1;
    }
    uint32_t c = *(uint32_t *)(f + i->c) ^ (i->imm & 4 ? ~0u : 0), no = ~r;
    int op = (int)i->imm & 3;
    if (op == 1) r &= c, no &= c;
    else if (op == 2) r |= c, no |= c;
    else if (op == 3) r ^= c, no ^= c;
    put_pred(f, i->d, m, r);
    if (i->imm & 8) put_pred(f, i->ops[0], m, no);
    return i + 1;
}
#define COMPARE(name, T, IN, COND)                                                                 \
    HANDLER(name) {                                                                                \
        const T *a = SLOT(const T, a), *b = SLOT(const T, b);                                      \
        int32_t t[32] __attribute__((aligned(64)));                                                \
        LANES {                                                                                    \
            T x = IN(a[l]), y = IN(b[l]);                                                          \
            t[l] = -(int32_t)(COND);                                                               \
        }                                                                                          \
        const VgInstr *next = set_preds(i, w, f, mask_of(t));                                      \
        VG_GOTO(next, w, f);                                                                       \
    }
#define ORDERED(name, T, IN)                                                                       \
    COMPARE(name##_eq, T, IN, x == y) COMPARE(name##_ne, T, IN, x != y)                            \
    COMPARE(name##_lt, T, IN, x < y) COMPARE(name##_le, T, IN, x <= y)                             \
    COMPARE(name##_gt, T, IN, x > y) COMPARE(name##_ge, T, IN, x >= y)
#define UNORDERED(name, T, IN)                                                                     \
    COMPARE(name##_eq, T, IN, x == y) COMPARE(name##_ne, T, IN, x == x && y == y && x != y)        \
    COMPARE(name##_lt, T, IN, x < y) COMPARE(name##_le, T, IN, x <= y)                             \
    COMPARE(name##_gt, T, IN, x > y) COMPARE(name##_ge, T, IN, x >= y)                             \
    COMPARE(name##_equ, T, IN, !(x < y || x > y)) COMPARE(name##_neu, T, IN, x != y)               \
    COMPARE(name##_ltu, T, IN, !(x >= y)) COMPARE(name##_leu, T, IN, !(x > y))                     \
    COMPARE(name##_gtu, T, IN, !(x <= y)) COMPARE(name##_geu, T, IN, !(x < y))                     \
    COMPARE(name##_num, T, IN, x == x && y == y) COMPARE(name##_nan, T, IN, x != x || y != y)
#define SIGN16(x) ((int32_t)(int16_t)(x))
#define ZERO16(x) ((uint32_t)(uint16_t)(x))
ORDERED(set_s32, int32_t, KEEP)
ORDERED(set_u32, uint32_t, KEEP)
ORDERED(set_s64, int64_t, KEEP)
ORDERED(set_u64, uint64_t, KEEP)
ORDERED(set_s16, int32_t, SIGN16)
ORDERED(set_u16, uint32_t, ZERO16)
UNORDERED(set_f32, float, KEEP)
UNORDERED(set_f32_ftz, float, flush)
UNORDERED(set_f64, double, KEEP)

static const char *const comparisons[] = { "eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                           "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
                                           "lo",  "ls",  "hi",  "hs",  NULL };
#define ROW6(name) { name##_eq, name##_ne, name##_lt, name##_le, name##_gt, name##_ge }
#define ROW14(name)                                                                                \
    { name##_eq, name##_ne, name##_lt, name##_le, name##_gt, name##_ge, name##_equ, name##_neu,    \
      name##_ltu, name##_leu, name##_gtu, name##_geu, name##_num, name##_nan }
static const struct { PtxType type; VgHandler run[14]; } comparers[] = {
    { PTX_S16, ROW6(set_s16) }, { PTX_U16, ROW6(set_u16) }, { PTX_B16, ROW6(set_u16) },
    { PTX_S32, ROW6(set_s32) }, { PTX_U32, ROW6(set_u32) }, { PTX_B32, ROW6(set_u32) },
    { PTX_S64, ROW6(set_s64) }, { PTX_U64, ROW6(set_u64) }, { PTX_B64, ROW6(set_u64) },
    { PTX_F32, ROW14(set_f32) }, { PTX_F64, ROW14(set_f64) },
};
static const VgHandler compare_ftz[14] = ROW14(set_f32_ftz);

VgHandler VG_NAME(vg_comparer)(PtxType type, int comparison, bool ftz) {
    if (comparison >= 14) comparison = comparison - 14 + 2; // lo ls hi hs: lt le gt ge of unsigned
    if (ftz) return type == PTX_F32 ? compare_ftz[comparison] : NULL;
    for (int k = 0; k < COUNT_OF(comparers); k++)
        if (comparers[k].type == type) return comparers[k].run[comparison];
    return NULL;
}

// The comparison part of setp and set: emits into predicates p and q (q 0: none).
static Status emit_compare(VgDecoder *d, const PtxInstr *p, PtxType type, int comparison, bool ftz,
                           int op, uint32_t to, uint32_t second) {
    uint32_t a, b, c = 0;
    bool negate = false;
    int bits = ptx_type_bits(type);
    VgHandler run = VG_NAME(vg_comparer)(type, comparison, ftz);
    if (!run && (type == PTX_F16 || type == PTX_BF16)) { // compared as f32, exactly
        uint32_t wide[2];
        for (int k = 0; k < 2; k++) {
            uint32_t h;
            TRY(vg_src(d, &p->operands[1 + k], 16, &h));
            wide[k] = vg_temp(d, 32);
            VgInstr *i =
                vg_emit(d, type == PTX_F16 ? VG_NAME(vg_half_widen) : VG_NAME(vg_bf16_widen));
            i->d = wide[k], i->a = h, i->imm = ftz;
        }
        a = wide[0], b = wide[1];
        run = VG_NAME(vg_comparer)(PTX_F32, comparison, false);
    } else {
        if (!run) return vg_bad(d, "no such comparison");
        TRY(vg_src(d, &p->operands[1], bits, &a));
        TRY(vg_src(d, &p->operands[2], bits, &b));
    }
    if (!run) return vg_bad(d, "no such comparison");
    if (op) TRY(vg_pred(d, &p->operands[3], &c, &negate));
    uint32_t *ops = ARENA_ARRAY(vg_arena(d), uint32_t, 1);
    ops[0] = second;
    VgInstr *i = vg_emit(d, run);
    i->d = to, i->a = a, i->b = b, i->c = c, i->ops = ops;
    i->imm = op | (negate ? 4 : 0) | (second ? 8 : 0);
    if (i->imm && !op) i->imm = 8;
    return OK;
}

static const char *const boolean_ops[] = { "and", "or", "xor", NULL };

static Status decode_setp(VgDecoder *d, const PtxInstr *p) {
    int comparison = vg_take_one(d, comparisons), op = vg_take_one(d, boolean_ops) + 1;
    bool ftz = vg_take(d, "ftz");
    PtxType type = vg_take_type(d);
    uint32_t to, second = 0;
    if (comparison < 0) return vg_bad(d, "expected a comparison");
    TRY(vg_count(d, op ? 4 : 3, op ? 4 : 3));
    const PtxOperand *first = &p->operands[0];
    if (type == PTX_F16X2 || type == PTX_BF16X2) {
        uint32_t both[2];
        if (first->kind != PTX_OP_PAIR) return vg_bad(d, "expected p|q");
        for (int k = 0; k < 2; k++) TRY(vg_pred_dst(d, &first->items[k], &both[k]));
        return VG_NAME(vg_compare_pair)(d, p, type, comparison, ftz, op, both);
    }
    if (first->kind == PTX_OP_PAIR) {
        TRY(vg_pred_dst(d, &first->items[1], &second));
        first = &first->items[0];
    }
    TRY(vg_pred_dst(d, first, &to));
    return emit_compare(d, p, type, comparison, ftz, op, to, second);
}

static void emit_select(VgDecoder *d, uint32_t to, uint32_t yes, uint32_t pred) {
    uint32_t value = vg_const_bits(d, yes, 32), no = vg_const_bits(d, 0, 32);
    VgInstr *i = vg_emit(d, VG_NAME(vg_select32));
    i->d = to, i->a = value, i->b = no, i->c = pred;
}

// What stands for true in a result of this type; 0: no such result.
static uint32_t true_value(PtxType type) {
    switch (type) {
    case PTX_U32: case PTX_S32: return 0xffffffff;
    case PTX_U16: case PTX_S16: return 0xffff;
    case PTX_F32: return 0x3f800000;
    case PTX_F16: case PTX_F16X2: return 0x3c00;
    case PTX_BF16: case PTX_BF16X2: return 0x3f80;
    default: return 0;
    }
}

static Status decode_set(VgDecoder *d, const PtxInstr *p) {
    int comparison = vg_take_one(d, comparisons), op = vg_take_one(d, boolean_ops) + 1;
    bool ftz = vg_take(d, "ftz");
    PtxType result = vg_take_type(d), type = vg_take_type(d);
    uint32_t yes = true_value(result), to, preds[2] = { vg_temp_pred(d), vg_temp_pred(d) };
    if (comparison < 0) return vg_bad(d, "expected a comparison");
    if (!yes) return vg_bad(d, "no such result of a comparison");
    TRY(vg_count(d, op ? 4 : 3, op ? 4 : 3));
    if (type != PTX_F16X2 && type != PTX_BF16X2) {
        TRY(emit_compare(d, p, type, comparison, ftz, op, preds[0], 0));
        TRY(vg_dst(d, &p->operands[0], ptx_type_bits(result), false, &to));
        emit_select(d, to, yes, preds[0]);
        return OK;
    }
    uint32_t halves[2] = { vg_temp(d, 32), vg_temp(d, 32) };
    TRY(VG_NAME(vg_compare_pair)(d, p, type, comparison, ftz, op, preds));
    TRY(vg_dst(d, &p->operands[0], 32, false, &to));
    for (int k = 0; k < 2; k++) emit_select(d, halves[k], yes & 0xffff, preds[k]);
    VgInstr *i = vg_emit(d, VG_NAME(vg_pack16));
    i->d = to, i->a = halves[0], i->b = halves[1];
    return OK;
}

/* testp ---------------------------------------------------------------------------------------- */

HANDLER(testp32) { // imm: index in test_names
    const uint32_t *a = SLOT(const uint32_t, a);
    uint32_t m = VG_MASK(i, w, f), r = 0;
    for (int l = 0; l < 32; l++) {
        uint32_t u = a[l] & 0x7fffffff, e = u >> 23;
        bool results[] = { e != 255, u == 0x7f800000, e == 255, u <= 0x7f800000, u > 0x7f800000,
                           e && e != 255, !e && u, };
        bool v = i->imm == 2 ? false : results[i->imm];
        r |= (uint32_t)v << l;
    }
    put_pred(f, i->d, m, r);
    VG_NEXT(i, w, f);
}
HANDLER(testp64) {
    const uint64_t *a = SLOT(const uint64_t, a);
    uint32_t m = VG_MASK(i, w, f), r = 0;
    for (int l = 0; l < 32; l++) {
        uint64_t u = a[l] & 0x7fffffffffffffff, e = u >> 52, inf = 0x7ff0000000000000;
        bool results[] = {
            e != 0x7ff, u == inf, false, u <= inf, u > inf, e && e != 0x7ff, !e && u
        };
        r |= (uint32_t)results[i->imm] << l;
    }
    put_pred(f, i->d, m, r);
    VG_NEXT(i, w, f);
}

static Status decode_testp(VgDecoder *d, const PtxInstr *p) {
    static const char *const names[] = { "finite",     "infinite", "unused",    "number",
                                         "notanumber", "normal",   "subnormal", NULL };
    int test = vg_take_one(d, names);
    PtxType type = vg_take_type(d);
    uint32_t to, a;
    if (test < 0 || test == 2) return vg_bad(d, "expected a class");
    if (type != PTX_F32 && type != PTX_F64) return vg_bad(d, "expected .f32 or .f64");
    TRY(vg_count(d, 2, 2));
    TRY(vg_pred_dst(d, &p->operands[0], &to));
    TRY(vg_src(d, &p->operands[1], ptx_type_bits(type), &a));
    VgInstr *i = vg_emit(d, type == PTX_F32 ? testp32 : testp64);
    i->d = to, i->a = a, i->imm = test;
    return OK;
}

/* forms ---------------------------------------------------------------------------------------- */

#define F(root, mods, run, ...) { root, mods, run, { __VA_ARGS__ }, 0, 1 }
#define ROUNDS(root, tail, run, ...)                                                               \
    F(root, "rn" tail, run, __VA_ARGS__), F(root, "rz" tail, run##_rz, __VA_ARGS__),               \
    F(root, "rm" tail, run##_rm, __VA_ARGS__), F(root, "rp" tail, run##_rp, __VA_ARGS__)
#define FOUR(root, run, ...)                                                                       \
    ROUNDS(root, ".f32", run, __VA_ARGS__), ROUNDS(root, ".ftz.f32", run##_ftz, __VA_ARGS__),      \
    ROUNDS(root, ".sat.f32", run##_sat, __VA_ARGS__),                                              \
    ROUNDS(root, ".ftz.sat.f32", run##_ftz_sat, __VA_ARGS__)
#define PLAIN(root, run, ...)                                                                      \
    F(root, "f32", run, __VA_ARGS__), F(root, "ftz.f32", run##_ftz, __VA_ARGS__),                  \
    F(root, "sat.f32", run##_sat, __VA_ARGS__), F(root, "ftz.sat.f32", run##_ftz_sat, __VA_ARGS__)
#define APPROX(root, run, bits)                                                                    \
    F(root, "approx.f32", run, 32, 32), F(root, "approx.ftz.f32", run##_ftz, 32, 32)
#define PICK(root, run)                                                                            \
    F(root, "f32", run, 32, 32, 32), F(root, "ftz.f32", run##_ftz, 32, 32, 32),                    \
    F(root, "NaN.f32", run##_nan, 32, 32, 32), F(root, "ftz.NaN.f32", run##_ftz_nan, 32, 32, 32),  \
    F(root, "xorsign.abs.f32", run##_xor, 32, 32, 32),                                             \
    F(root, "ftz.xorsign.abs.f32", run##_ftz_xor, 32, 32, 32),                                     \
    F(root, "NaN.xorsign.abs.f32", run##_nan_xor, 32, 32, 32),                                     \
    F(root, "ftz.NaN.xorsign.abs.f32", run##_ftz_nan_xor, 32, 32, 32),                             \
    F(root, "f32", run##3, 32, 32, 32, 32), F(root, "NaN.f32", run##3_nan, 32, 32, 32, 32)

const VgForm VG_NAME(vg_forms_float)[] = {
    PLAIN("add", add_f32, 32, 32, 32),
    FOUR("add", add_f32, 32, 32, 32),
    PLAIN("sub", sub_f32, 32, 32, 32),
    FOUR("sub", sub_f32, 32, 32, 32),
    PLAIN("mul", mul_f32, 32, 32, 32),
    FOUR("mul", mul_f32, 32, 32, 32),
    F("add", "f64", add_f64, 64, 64, 64),
    ROUNDS("add", ".f64", add_f64, 64, 64, 64),
    F("sub", "f64", sub_f64, 64, 64, 64),
    ROUNDS("sub", ".f64", sub_f64, 64, 64, 64),
    F("mul", "f64", mul_f64, 64, 64, 64),
    ROUNDS("mul", ".f64", mul_f64, 64, 64, 64),
    FOUR("fma", fma_f32, 32, 32, 32, 32),
    ROUNDS("fma", ".f64", fma_f64, 64, 64, 64, 64),
    FOUR("mad", fma_f32, 32, 32, 32, 32),
    ROUNDS("mad", ".f64", fma_f64, 64, 64, 64, 64),
    ROUNDS("div", ".f32", div_f32, 32, 32, 32),
    ROUNDS("div", ".ftz.f32", div_f32_ftz, 32, 32, 32),
    ROUNDS("div", ".f64", div_f64, 64, 64, 64),
    F("div", "approx.f32", div_approx, 32, 32, 32),
    F("div", "approx.ftz.f32", div_approx_ftz, 32, 32, 32),
    F("div", "full.f32", div_approx, 32, 32, 32),
    F("div", "full.ftz.f32", div_approx_ftz, 32, 32, 32),
    ROUNDS("rcp", ".f32", rcp_f32, 32, 32),
    ROUNDS("rcp", ".ftz.f32", rcp_f32_ftz, 32, 32),
    ROUNDS("rcp", ".f64", rcp_f64, 64, 64),
    F("rcp", "approx.ftz.f64", rcp_f64, 64, 64),
    APPROX("rcp", rcp_f32, 32),
    APPROX("sqrt", sqrt_f32, 32),
    APPROX("rsqrt", rsqrt_f32, 32),
    ROUNDS("sqrt", ".f32", sqrt_f32, 32, 32),
    ROUNDS("sqrt", ".ftz.f32", sqrt_f32_ftz, 32, 32),
    ROUNDS("sqrt", ".f64", sqrt_f64, 64, 64),
    F("rsqrt", "approx.f64", rsqrt_f64, 64, 64),
    F("rsqrt", "approx.ftz.f64", rsqrt_f64, 64, 64),
    APPROX("ex2", ex2, 32),
    APPROX("lg2", lg2, 32),
    APPROX("sin", sin_f32, 32),
    APPROX("cos", cos_f32, 32),
    F("tanh", "approx.f32", tanh_f32, 32, 32),
    F("abs", "f32", abs_f32, 32, 32),
    F("abs", "ftz.f32", abs_f32_ftz, 32, 32),
    F("abs", "f64", abs_f64, 64, 64),
    F("neg", "f32", neg_f32, 32, 32),
    F("neg", "ftz.f32", neg_f32_ftz, 32, 32),
    F("neg", "f64", neg_f64, 64, 64),
    F("copysign", "f32", copysign_f32, 32, 32, 32),
    F("copysign", "f64", copysign_f64, 64, 64, 64),
    PICK("min", min_f32),
    PICK("max", max_f32),
    F("min", "f64", min_f64, 64, 64, 64),
    F("max", "f64", max_f64, 64, 64, 64),
    F("add", "f32x2", add_f32x2, 64, 64, 64),
    F("add", "rn.f32x2", add_f32x2, 64, 64, 64),
    F("add", "rn.ftz.f32x2", add_f32x2_ftz, 64, 64, 64),
    F("sub", "rn.f32x2", sub_f32x2, 64, 64, 64),
    F("mul", "f32x2", mul_f32x2, 64, 64, 64),
    F("mul", "rn.f32x2", mul_f32x2, 64, 64, 64),
    F("mul", "rn.ftz.f32x2", mul_f32x2_ftz, 64, 64, 64),
    F("fma", "rn.f32x2", fma_f32x2, 64, 64, 64, 64),
    F("fma", "rn.ftz.f32x2", fma_f32x2_ftz, 64, 64, 64, 64),
    { 0 },
};

const VgRoot VG_NAME(vg_roots_float)[] = {
    { "setp", decode_setp,
      "setp.{eq,ne,lt,le,gt,ge,lo,ls,hi,hs,equ,...,num,nan}{.and,.or,.xor}{.ftz}.type" },
    { "set", decode_set, "set.CMP{.BOOL}{.ftz}.{u32,s32,u16,s16,f32,f16,f16x2,bf16,bf16x2}.type" },
    { "testp", decode_testp,
      "testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}" },
    { NULL, NULL, NULL },
};
