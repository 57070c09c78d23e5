// SPDX-License-Identifier: Apache-2.0
// Lanes as vectors, for exec_access*.c: what differs between host instruction sets is here.
#ifndef MOEC_VGPU_EXEC_ACCESS_H
#define MOEC_VGPU_EXEC_ACCESS_H

#ifdef VG_V4
#include <immintrin.h>
#endif

#include "runtime/vgpu/code.h"
#include "runtime/vgpu/shadow.h"

#define INLINE static inline __attribute__((always_inline))

typedef struct Lanes { _Alignas(64) uint32_t at[32]; } Lanes;

// Lanes whose value is x.
INLINE uint32_t lanes_equal(const Lanes *v, uint32_t x) {
#ifdef VG_V4
    __m512i all = _mm512_set1_epi32((int)x);
    return _mm512_cmpeq_epi32_mask(_mm512_load_si512(v->at), all) |
           (uint32_t)_mm512_cmpeq_epi32_mask(_mm512_load_si512(v->at + 16), all) << 16;
#else
    uint32_t mask = 0;
    for (int l = 0; l < 32; l++) mask |= (uint32_t)(v->at[l] == x) << l;
    return mask;
#endif
}

// Lanes whose line is that of x.
INLINE uint32_t lanes_in_line(const Lanes *v, uint32_t x) {
#ifdef VG_V4
    __m512i line = _mm512_set1_epi32((int)(x & ~(VG_LINE - 1))),
            clear = _mm512_set1_epi32((int)~(VG_LINE - 1));
    return _mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_load_si512(v->at), clear), line) |
           (uint32_t)_mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_load_si512(v->at + 16), clear),
                                             line)
               << 16;
#else
    uint32_t mask = 0;
    for (int l = 0; l < 32; l++) mask |= (uint32_t)(v->at[l] / VG_LINE == x / VG_LINE) << l;
    return mask;
#endif
}

// Lanes that are first + step * lane.
INLINE uint32_t lanes_in_step(const Lanes *v, uint32_t first, uint32_t step) {
#ifdef VG_V4
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i low = _mm512_add_epi32(_mm512_mullo_epi32(lane, _mm512_set1_epi32((int)step)),
                                   _mm512_set1_epi32((int)first));
    __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32((int)step * 16));
    return _mm512_cmpeq_epi32_mask(_mm512_load_si512(v->at), low) |
           (uint32_t)_mm512_cmpeq_epi32_mask(_mm512_load_si512(v->at + 16), high) << 16;
#else
    uint32_t mask = 0;
    for (uint32_t l = 0; l < 32; l++) mask |= (uint32_t)(v->at[l] == first + step * l) << l;
    return mask;
#endif
}

// Lanes of `mask` whose value is above `limit` or has bits of `low`.
INLINE uint32_t lanes_outside(const Lanes *v, uint32_t mask, uint32_t limit, uint32_t low) {
#ifdef VG_V4
    __m512i a = _mm512_load_si512(v->at), b = _mm512_load_si512(v->at + 16);
    __m512i most = _mm512_set1_epi32((int)limit), bits = _mm512_set1_epi32((int)low);
    uint32_t bad = (uint32_t)(_mm512_cmpgt_epu32_mask(a, most) | _mm512_test_epi32_mask(a, bits)) |
                   (uint32_t)(_mm512_cmpgt_epu32_mask(b, most) | _mm512_test_epi32_mask(b, bits))
                       << 16;
#else
    uint32_t bad = 0;
    for (int l = 0; l < 32; l++) bad |= (uint32_t)(v->at[l] > limit || (v->at[l] & low)) << l;
#endif
    return bad & mask;
}

// From 64-bit addresses: offsets from `start`. Lanes that do not fit into 32 bits.
INLINE uint32_t lanes_narrow(Lanes *v, const uint64_t *address, uint64_t start) {
#ifdef VG_V4
    uint32_t wide = 0;
    __m512i from = _mm512_set1_epi64((long long)start), most = _mm512_set1_epi64(UINT32_MAX);
    for (int i = 0; i < 4; i++) {
        __m512i x = _mm512_sub_epi64(_mm512_load_si512(address + 8 * i), from);
        wide |= (uint32_t)_mm512_cmpgt_epu64_mask(x, most) << 8 * i;
        _mm256_store_si256((__m256i *)(v->at + 8 * i), _mm512_cvtepi64_epi32(x));
    }
    return wide;
#else
    uint32_t wide = 0;
    for (int l = 0; l < 32; l++) {
        uint64_t x = address[l] - start;
        wide |= (uint32_t)(x > UINT32_MAX) << l;
        v->at[l] = (uint32_t)x;
    }
    return wide;
#endif
}

INLINE void lanes_add(Lanes *v, const uint32_t *address, uint32_t add) {
    for (int l = 0; l < 32; l++) v->at[l] = address[l] + add;
}

// Map of the granules that lanes `sel`, all of one line, touch; each `n` granules from its offset
// on.
INLINE uint64_t lanes_map(const Lanes *v, uint32_t sel, uint32_t n) {
#ifdef VG_V4
    __m512i run = _mm512_set1_epi64((long long)(((uint64_t)1 << n) - 1)),
            map = _mm512_setzero_si512();
    for (int i = 0; i < 4; i++) {
        __m512i at = _mm512_cvtepu32_epi64(_mm256_load_si256((const __m256i *)(v->at + 8 * i)));
        at = _mm512_and_si512(_mm512_srli_epi64(at, 2), _mm512_set1_epi64(63));
        map = _mm512_or_si512(map, _mm512_maskz_sllv_epi64((__mmask8)(sel >> 8 * i), run, at));
    }
    return (uint64_t)_mm512_reduce_or_epi64(map);
#else
    uint64_t map = 0, run = ((uint64_t)1 << n) - 1;
    for (; sel; sel &= sel - 1) map |= run << (v->at[__builtin_ctz(sel)] / 4 % 64);
    return map;
#endif
}

// Granules of `map` whose word is `word`.
INLINE uint64_t words_equal(const uint32_t *words, uint64_t map, uint32_t word) {
#ifdef VG_V4
    uint64_t equal = 0;
    __m512i all = _mm512_set1_epi32((int)word);
    for (int q = 0; q < 4; q++) {
        __mmask16 part = (__mmask16)(map >> 16 * q);
        if (part)
            equal |= (uint64_t)_mm512_mask_cmpeq_epi32_mask(part,
                                                            _mm512_loadu_si512(words + 16 * q), all)
                     << 16 * q;
    }
    return equal;
#else
    uint64_t equal = 0;
    for (uint64_t m = map; m; m &= m - 1) {
        int g = __builtin_ctzll(m);
        equal |= (uint64_t)(words[g] == word) << g;
    }
    return equal;
#endif
}

INLINE void words_put(uint32_t *words, uint64_t map, uint32_t word) {
#ifdef VG_V4
    __m512i all = _mm512_set1_epi32((int)word);
    for (int q = 0; q < 4; q++) {
        __mmask16 part = (__mmask16)(map >> 16 * q);
        if (part) _mm512_mask_storeu_epi32(words + 16 * q, part, all);
    }
#else
    for (; map; map &= map - 1) words[__builtin_ctzll(map)] = word;
#endif
}

INLINE void sites_put(uint16_t *sites, uint64_t map, uint16_t site) {
#ifdef VG_V4
    __m512i all = _mm512_set1_epi16((short)site);
    for (int q = 0; q < 2; q++) {
        __mmask32 part = (__mmask32)(map >> 32 * q);
        if (part) _mm512_mask_storeu_epi16(sites + 32 * q, part, all);
    }
#else
    for (; map; map &= map - 1) sites[__builtin_ctzll(map)] = site;
#endif
}

#endif
