// SPDX-License-Identifier: Apache-2.0
// Rounding of a double into a narrower float, in integers: one rounding, all modes, subnormals.
#ifndef MOEC_VGPU_NARROW_H
#define MOEC_VGPU_NARROW_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef enum VgRound { VG_RN, VG_RZ, VG_RM, VG_RP, VG_RNA, VG_RNI, VG_RZI, VG_RMI, VG_RPI } VgRound;

// The pattern with `mant` fraction bits and exponent bias `bias` (all ones: infinity). NaN gives
// the one pattern of NaN (0x7f..f). finite: overflow and infinities give the largest finite value.
static inline uint32_t narrow_float(double x, int mant, int bias, int mode, bool finite) {
    uint64_t u;
    memcpy(&u, &x, 8);
    uint32_t top = (uint32_t)(2 * bias + 1), infinite = top << mant;
    int width = mant + (bias == 15 ? 5 : 8);
    uint32_t sign = (uint32_t)(u >> 63) << width, negative = (uint32_t)(u >> 63);
    int e = (int)(u >> 52 & 0x7ff);
    uint64_t m = u & 0xfffffffffffff;
    if (e == 0x7ff) return m ? (1u << width) - 1 : sign | (finite ? infinite - 1 : infinite);
    if (e) m |= 1ull << 52;
    else e = 1;
    int scale = e - 1075;                        // x = m * 2^scale
    int lsb = e - 1023 - mant;                   // of the result
    if (lsb < 1 - bias - mant) lsb = 1 - bias - mant;
    int shift = lsb - scale;                     // 29 or more for f32: never negative
    uint64_t q, rest, half;
    if (shift > 62) {
        q = 0;
        rest = m != 0;
        half = 2;
    } else {
        q = m >> shift;
        rest = m & ((1ull << shift) - 1);
        half = 1ull << (shift - 1);
    }
    bool up = mode == VG_RN ? rest > half || (rest == half && q & 1)
              : mode == VG_RNA ? rest >= half
              : mode == VG_RM ? rest && negative : mode == VG_RP ? rest && !negative : false;
    uint32_t bits = ((uint32_t)(lsb + mant + bias - 1) << mant) + (uint32_t)q + up;
    if (lsb + mant + bias - 1 >= (int)top || bits >= infinite) {
        bool toward = mode == VG_RZ || (mode == VG_RM && !negative) || (mode == VG_RP && negative);
        bits = toward || finite ? infinite - 1 : infinite;
    }
    return sign | bits;
}

#endif
