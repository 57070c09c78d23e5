// SPDX-License-Identifier: Apache-2.0
// Floats of 8, 6 and 4 bits: their values, for conversions and matrices.
//
// A pattern moved to the top of a float's exponent and fraction is that float times a power of two,
// subnormals included, so one multiplication by 2^(127 - bias) is exact. e4m3 has a NaN (0x7f) and
// no infinity, e5m2 is the upper half of an f16, the smaller ones have neither; ue8m0 is 2^(x -
// 127), 255 NaN.
#ifndef MOEC_VGPU_TINY_H
#define MOEC_VGPU_TINY_H

#include "runtime/vgpu/exec.h"

#define TINY(name, exponent, fraction, bias_scale)                                                 \
    ALWAYS_INLINE float name##_to_float(uint32_t x) {                                              \
        uint32_t sign = x >> (exponent + fraction) & 1,                                            \
                 rest = x & ((1u << (exponent + fraction)) - 1);                                   \
        float v = as_f32(rest << (23 - fraction)) * bias_scale;                                    \
        return as_f32(as_u32(v) | sign << 31);                                                     \
    }
TINY(e3m2, 3, 2, 0x1p124f)
TINY(e2m3, 2, 3, 0x1p126f)
TINY(e2m1, 2, 1, 0x1p126f)
TINY(e4m3_finite, 4, 3, 0x1p120f)
#undef TINY

ALWAYS_INLINE float e4m3_to_float(uint32_t x) {
    return as_f32((x & 0x7f) == 0x7f ? 0x7fffffff : as_u32(e4m3_finite_to_float(x)));
}
ALWAYS_INLINE float e5m2_to_float(uint32_t x) {
    uint32_t rest = x & 0x7f; // 0x7c: infinity, above: NaN
    float v = as_f32(rest << 21) * 0x1p112f;
    uint32_t u = rest > 0x7c ? 0x7fffffff : rest == 0x7c ? 0x7f800000 : as_u32(v);
    return as_f32(rest > 0x7c ? u : u | (x >> 7 & 1) << 31);
}
ALWAYS_INLINE float ue8m0_to_float(uint32_t x) {
    return as_f32(x == 255 ? 0x7fffffff : x ? x << 23 : 0x400000);
}

// cvt with one of these types (exec_tiny.c); the modifiers that were there.
typedef struct TinyMods {
    bool nearest, zero, up, relu, finite;
} TinyMods;
Status VG_NAME(vg_decode_tiny)(VgDecoder *d, const PtxInstr *p, PtxType to, PtxType from,
                               const TinyMods *mods);

#endif
