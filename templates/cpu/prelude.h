// SPDX-License-Identifier: Apache-2.0
// Source 0 of every plan, first part: types, 16-lane vectors, bf16 in memory, exact fused
// multiply-add, exp, log.
//
// No system header: this text is read by libclang and compiled in front of every translation unit,
// so it is small. Bits are the same at every instruction-set level: fused multiply-adds are
// explicit, nothing else may be contracted (-ffp-contract=off), divisions and roots are IEEE, lane
// folds have one order.
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef uint16_t bf16; // the upper half of a float

#define INLINE static inline __attribute__((always_inline, unused))
#define SHARED static __attribute__((noinline, unused))
#if defined __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

// The scalars region (plan.h): SCALAR_lr, ...
enum { $scalars };

enum { LANES = 16 };
typedef float V __attribute__((vector_size(64)));
typedef int32_t VI __attribute__((vector_size(64)));
typedef uint32_t VU __attribute__((vector_size(64)));
typedef float VH __attribute__((vector_size(32)));  // half a V
typedef double VD __attribute__((vector_size(64))); // half a V in double
typedef int64_t VL __attribute__((vector_size(64)));
typedef uint16_t VB __attribute__((vector_size(32))); // bf16 lanes

#define INFINITE __builtin_inff()

INLINE int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Memory: any address; the part forms touch the first n of 16 numbers only, n in 0..16 ------- */

INLINE V v_load(const float *p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
INLINE void v_store(float *p, V v) { __builtin_memcpy(p, &v, sizeof v); }
INLINE VI vi_load(const int32_t *p) {
    VI v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
INLINE void vi_store(int32_t *p, VI v) { __builtin_memcpy(p, &v, sizeof v); }
INLINE V v_load_part(const float *p, int64_t n) {
    float lane[LANES] = {0};
    for (int64_t i = 0; i < n; i++) lane[i] = p[i];
    return v_load(lane);
}
INLINE void v_store_part(float *p, V v, int64_t n) {
    float lane[LANES];
    v_store(lane, v);
    for (int64_t i = 0; i < n; i++) p[i] = lane[i];
}
INLINE VI vi_load_part(const int32_t *p, int64_t n) {
    int32_t lane[LANES] = {0};
    for (int64_t i = 0; i < n; i++) lane[i] = p[i];
    return vi_load(lane);
}
INLINE void vi_store_part(int32_t *p, VI v, int64_t n) {
    int32_t lane[LANES];
    vi_store(lane, v);
    for (int64_t i = 0; i < n; i++) p[i] = lane[i];
}

/* bf16: widening is exact; narrowing is to nearest even, denormals become zeros, NaN stays NaN, as
   VCVTNEPS2BF16 does ------------------------------------------------------------------------- */

INLINE V v_of_bf16(VB x) { return (V)(__builtin_convertvector(x, VU) << 16); }
#if defined __AVX512BF16__ && defined __clang__
typedef __bf16 VB_ __attribute__((vector_size(32)));
INLINE VB vb_of(V x) { return (VB)__builtin_convertvector(x, VB_); }
#else
INLINE VB vb_of(V x) {
    VU u = (VU)x, sign = u & 0x80000000u, size = u ^ sign;
    VU tiny = (VU)(size < 0x00800000u), nan = (VU)(size > 0x7f800000u);
    VU rounded = (u + 0x7fff + ((u >> 16) & 1)) & ~nan;
    return __builtin_convertvector((((rounded | (nan & (u | 0x400000))) & ~tiny) | sign) >> 16, VB);
}
#endif
INLINE VB vb_load(const bf16 *p) {
    VB v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
INLINE VB vb_load_part(const bf16 *p, int64_t n) {
    bf16 lane[LANES] = {0};
    for (int64_t i = 0; i < n; i++) lane[i] = p[i];
    return vb_load(lane);
}
INLINE V v_load_bf16(const bf16 *p) { return v_of_bf16(vb_load(p)); }
INLINE void v_store_bf16(bf16 *p, V v) {
    VB narrow = vb_of(v);
    __builtin_memcpy(p, &narrow, sizeof narrow);
}
INLINE V v_load_bf16_part(const bf16 *p, int64_t n) { return v_of_bf16(vb_load_part(p, n)); }
INLINE void v_store_bf16_part(bf16 *p, V v, int64_t n) {
    bf16 lane[LANES];
    v_store_bf16(lane, v);
    for (int64_t i = 0; i < n; i++) p[i] = lane[i];
}

/* Lanes -------------------------------------------------------------------------------------- */

INLINE V v_splat(float x) { return (V){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
INLINE VI vi_splat(int32_t x) { return (VI){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
INLINE VI vi_iota(void) { return (VI){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
INLINE V v_of_int(VI x) { return __builtin_convertvector(x, V); }
INLINE VI v_bits(V x) { return (VI)x; }
INLINE V v_of_bits(VI x) { return (V)x; }
// Masks are lanes of 0 or -1, as comparisons of vectors give them.
INLINE V v_select(VI mask, V a, V b) { return (V)(((VI)a & mask) | ((VI)b & ~mask)); }
INLINE VI vi_select(VI mask, VI a, VI b) { return (a & mask) | (b & ~mask); }
INLINE V v_max(V a, V b) { return v_select(a > b, a, b); } // b where either is NaN
INLINE V v_min(V a, V b) { return v_select(a < b, a, b); }

INLINE V v_sqrt(V v) {
#if defined __clang__
    return __builtin_elementwise_sqrt(v);
#else
    UNROLL
    for (int i = 0; i < LANES; i++) v[i] = __builtin_sqrtf(v[i]);
    return v;
#endif
}
INLINE VH v_low_half(V v) { return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7); }
INLINE VH v_high_half(V v) { return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15); }
INLINE VD v_low(V v) { return __builtin_convertvector(v_low_half(v), VD); }
INLINE VD v_high(V v) { return __builtin_convertvector(v_high_half(v), VD); }
INLINE V v_of_doubles(VD low, VD high) {
    return __builtin_shufflevector(__builtin_convertvector(low, VH),
                                   __builtin_convertvector(high, VH), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
                                   10, 11, 12, 13, 14, 15);
}

#define V_FOLD_(v, i)                                                                              \
    __builtin_shufflevector(v, v, 0 ^ i, 1 ^ i, 2 ^ i, 3 ^ i, 4 ^ i, 5 ^ i, 6 ^ i, 7 ^ i, 8 ^ i,   \
                            9 ^ i, 10 ^ i, 11 ^ i, 12 ^ i, 13 ^ i, 14 ^ i, 15 ^ i)
// Lanes folded 8, 4, 2, 1: the one order of summation across lanes.
INLINE float v_sum(V v) {
    v += V_FOLD_(v, 8);
    v += V_FOLD_(v, 4);
    v += V_FOLD_(v, 2);
    v += V_FOLD_(v, 1);
    return v[0];
}
INLINE float v_max_lane(V v) {
    v = v_max(v, V_FOLD_(v, 8));
    v = v_max(v, V_FOLD_(v, 4));
    v = v_max(v, V_FOLD_(v, 2));
    v = v_max(v, V_FOLD_(v, 1));
    return v[0];
}

/* a * b + c, rounded once -------------------------------------------------------------------- */

#if defined __FMA__ || defined __ARM_FEATURE_FMA
INLINE float f_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#if defined __clang__
INLINE V v_fma(V a, V b, V c) { return __builtin_elementwise_fma(a, b, c); }
#elif defined __AVX512F__
INLINE V v_fma(V a, V b, V c) { return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4); }
#else
INLINE V v_fma(V a, V b, V c) {
    V r;
    UNROLL
    for (int i = 0; i < LANES; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
}
#endif
#else
// The product of two floats is exact in double. The sum is not, and rounding it to nearest twice is
// wrong near ties, so it is rounded to odd: an inexact sum (its error by TwoSum) gets an odd last
// bit, which 53 >= 24 + 2 bits make harmless. NaN errors (infinities) leave the sum alone.
INLINE VD fma_odd_(VD a, VD b, VD c) {
    VD p = a * b, s = p + c, back = s - p, error = (p - (s - back)) + (c - back), zero = {0};
    VL inexact = (error > zero) | (error < zero);
    VL outward = (error > zero) ^ (s < zero); // the exact sum is larger in magnitude
    VL even = ((VL)s & 1) - 1;                // -1 where the last bit is 0
    VL step = (outward & 1) | ~outward;       // +1 or -1
    return (VD)((VL)s + (step & inexact & even));
}
INLINE V v_fma(V a, V b, V c) {
    return v_of_doubles(fma_odd_(v_low(a), v_low(b), v_low(c)),
                        fma_odd_(v_high(a), v_high(b), v_high(c)));
}
INLINE float f_fma(float a, float b, float c) {
    return v_fma(v_splat(a), v_splat(b), v_splat(c))[0];
}
#endif

/* exp and log, within 2 units in the last place ---------------------------------------------- */

// x = n ln 2 + r, |r| <= ln 2 / 2; 2^n in two factors so that results near the ends of the range
// round once. Polynomials are minimax fits over their interval.
INLINE V v_exp(V x) {
    // NaN becomes -104 here and is restored at the end.
    V clamped = v_min(v_max(x, v_splat(-104.0f)), v_splat(89.0f));
    V shifted = v_fma(clamped, v_splat(0x1.715476p+0f), v_splat(0x1.8p+23f));
    VI n = v_bits(shifted) - vi_splat(0x4b400000);
    V whole = shifted - v_splat(0x1.8p+23f);
    V r = v_fma(whole, v_splat(-0x1.62e4p-1f), clamped);
    r = v_fma(whole, v_splat(-0x1.7f7d1cp-20f), r);
    V p = v_splat(0x1.6a2434p-10f);
    p = v_fma(p, r, v_splat(0x1.1239e2p-7f));
    p = v_fma(p, r, v_splat(0x1.5558f2p-5f));
    p = v_fma(p, r, v_splat(0x1.555492p-3f));
    p = v_fma(p, r, v_splat(0x1.fffffcp-2f));
    p = v_fma(p * r, r, r) + v_splat(1.0f);
    VI half = n >> 1;
    V scale1 = v_of_bits((half + vi_splat(127)) << 23),
      scale2 = v_of_bits((n - half + vi_splat(127)) << 23);
    return v_select(x == x, p * scale1 * scale2, x);
}
// x = 2^e m, m in [sqrt(1/2), sqrt 2). Subnormals are scaled first; 0 gives -inf, negative numbers
// NaN.
INLINE V v_log(V x) {
    VI tiny = x < v_splat(0x1p-126f);
    V y = v_select(tiny, x * v_splat(0x1p+24f), x);
    VI bits = v_bits(y) - vi_splat(0x3f3504f3);
    VI e = (bits >> 23) - (tiny & vi_splat(24));
    V m = v_of_bits((bits & vi_splat(0x7fffff)) + vi_splat(0x3f3504f3)) - v_splat(1.0f);
    V z = m * m;
    V p = v_splat(0x1.1457aep-4f);
    p = v_fma(p, m, v_splat(-0x1.de3c18p-4f));
    p = v_fma(p, m, v_splat(0x1.e6f068p-4f));
    p = v_fma(p, m, v_splat(-0x1.fc2206p-4f));
    p = v_fma(p, m, v_splat(0x1.233768p-3f));
    p = v_fma(p, m, v_splat(-0x1.555c4ep-3f));
    p = v_fma(p, m, v_splat(0x1.99a4b6p-3f));
    p = v_fma(p, m, v_splat(-0x1.000006p-2f));
    p = v_fma(p, m, v_splat(0x1.555548p-2f));
    V ef = v_of_int(e), tail = v_fma(m * z, p, ef * v_splat(0x1.7f7d1cp-20f));
    tail = v_fma(z, v_splat(-0.5f), tail);
    V result = v_fma(ef, v_splat(0x1.62e4p-1f), m + tail);
    result = v_select(x == v_splat(INFINITE), x, result);
    result = v_select(x == v_splat(0.0f), v_splat(-INFINITE), result);
    return v_select(x >= v_splat(0.0f), result, v_splat(__builtin_nanf("")));
}
INLINE float f_exp(float x) { return v_exp(v_splat(x))[0]; }
INLINE float f_log(float x) { return v_log(v_splat(x))[0]; }
