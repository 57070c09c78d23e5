// SPDX-License-Identifier: Apache-2.0
// How handlers are written: plain loops over 32 lanes that compilers turn into vectors.
//
// MAP computes EXPR for every lane and keeps the lanes of the mask; full masks store plainly. EXPR
// may be evaluated for lanes outside the mask: it must have no effect and no trap. Destinations are
// a source exactly or disjoint from it, so loops carry no dependence.
#ifndef MOEC_VGPU_EXEC_H
#define MOEC_VGPU_EXEC_H

#include <immintrin.h>

#include "runtime/vgpu/warp.h"

#if defined(__clang__)
// Not unrolled before it is vectorised, else nothing is left to vectorise.
#define LANES                                                                                      \
    _Pragma("clang loop vectorize(assume_safety) interleave_count(2) unroll(disable)")             \
    for (int l = 0; l < 32; l++)
#else
#define LANES _Pragma("GCC ivdep") for (int l = 0; l < 32; l++)
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline)) // calls hinder vectors
#define HANDLER(name) static const VgInstr *name(const VgInstr *i, VgWarp *w, char *f)
#define HANDLER_OUT(name) /* of VG_SHARED_HANDLERS */                                              \
    const VgInstr *VG_NAME(name)(const VgInstr *i, VgWarp *w, char *f)
#define SLOT(type, field) ((type *)__builtin_assume_aligned(f + i->field, 64))

#define MAP(T, EXPR)                                                                               \
    uint32_t m = VG_MASK(i, w, f);                                                                 \
    T *d = SLOT(T, d);                                                                             \
    if (__builtin_expect(m == ~0u, 1)) {                                                           \
        LANES d[l] = (EXPR);                                                                       \
    } else {                                                                                       \
        LANES {                                                                                    \
            T r_ = (EXPR);                                                                         \
            d[l] = m >> l & 1 ? r_ : d[l];                                                         \
        }                                                                                          \
    }                                                                                              \
    VG_NEXT(i, w, f)

#define UNARY(name, TD, TA, EXPR)                                                                  \
    HANDLER(name) {                                                                                \
        const TA *a = SLOT(const TA, a);                                                           \
        MAP(TD, EXPR);                                                                             \
    }
#define BINARY(name, TD, TA, TB, EXPR)                                                             \
    HANDLER(name) {                                                                                \
        const TA *a = SLOT(const TA, a);                                                           \
        const TB *b = SLOT(const TB, b);                                                           \
        MAP(TD, EXPR);                                                                             \
    }
#define TERNARY(name, TD, TA, TB, TC, EXPR)                                                        \
    HANDLER(name) {                                                                                \
        const TA *a = SLOT(const TA, a);                                                           \
        const TB *b = SLOT(const TB, b);                                                           \
        const TC *c = SLOT(const TC, c);                                                           \
        MAP(TD, EXPR);                                                                             \
    }

// One bit per lane from 0 / -1 flags.
ALWAYS_INLINE uint32_t mask_of(const int32_t *t) {
#ifdef VG_V4
    return (uint32_t)_mm512_movepi32_mask(_mm512_load_si512(t)) |
           (uint32_t)_mm512_movepi32_mask(_mm512_load_si512(t + 16)) << 16;
#else
    uint32_t r = 0;
    for (int k = 0; k < 4; k++)
        r |= (uint32_t)_mm256_movemask_ps(_mm256_load_ps((const float *)(t + 8 * k))) << 8 * k;
    return r;
#endif
}

static inline void put_pred(char *f, uint32_t at, uint32_t m, uint32_t value) {
    uint32_t *p = (uint32_t *)(f + at);
    *p = (*p & ~m) | (value & m);
}

ALWAYS_INLINE float as_f32(uint32_t u) {
    float v;
    memcpy(&v, &u, 4);
    return v;
}
ALWAYS_INLINE uint32_t as_u32(float v) {
    uint32_t u;
    memcpy(&u, &v, 4);
    return u;
}
ALWAYS_INLINE double as_f64(uint64_t u) {
    double v;
    memcpy(&v, &u, 8);
    return v;
}
ALWAYS_INLINE uint64_t as_u64(double v) {
    uint64_t u;
    memcpy(&u, &v, 8);
    return u;
}
// Subnormals become zeros of their sign.
ALWAYS_INLINE float flush(float x) {
    uint32_t u = as_u32(x);
    return as_f32(u & 0x7f800000 ? u : u & 0x80000000);
}
// NaN results are one pattern.
ALWAYS_INLINE float canon(float x) { return as_f32(x == x ? as_u32(x) : 0x7fffffff); }
ALWAYS_INLINE double canon64(double x) { return as_f64(x == x ? as_u64(x) : 0x7ff8000000000000); }
ALWAYS_INLINE float saturate(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; } // NaN: 0

ALWAYS_INLINE float half_to_float(uint32_t h) { return (float)_cvtsh_ss((uint16_t)h); }
ALWAYS_INLINE float bf16_to_float(uint32_t h) { return as_f32(h << 16); }

#endif
