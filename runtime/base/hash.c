// SPDX-License-Identifier: Apache-2.0
// Identities (XXH3, 128 bits) and counter-based random numbers.
#define XXH_INLINE_ALL
#include <math.h>
#include <stdio.h>
#include <xxhash.h>

#include "runtime/base/base.h"

Hash hash_bytes(const void *bytes, size_t n) {
    XXH128_hash_t hash = XXH3_128bits(bytes, n);
    return (Hash){ hash.low64, hash.high64 };
}

Hash hash_long(const void *bytes, size_t n, void (*pulse)(void *user), void *user) {
    enum { PART = 64 << 20 };
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    for (size_t at = 0; at < n; at += PART) {
        XXH3_128bits_update(&state, (const char *)bytes + at, n - at < PART ? n - at : PART);
        pulse(user);
    }
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    return (Hash){ hash.low64, hash.high64 };
}

void hash_hex(Hash hash, char hex[33]) {
    snprintf(hex, 33, "%016llx%016llx", (unsigned long long)hash.high, (unsigned long long)hash.low);
}

bool hash_parse(const char *hex, size_t n, Hash *hash) {
    uint64_t part[2] = { 0, 0 };
    if (n != 32) return false;
    for (int i = 0; i < 32; i++) {
        char c = hex[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        part[i / 16] = part[i / 16] << 4 | (uint64_t)digit;
    }
    *hash = (Hash){ part[1], part[0] };
    return true;
}

// The finaliser of MurmurHash3 as improved by David Stafford (variant 13), applied after each input:
// a pure function with full avalanche. Templates that draw numbers use the same (ORDER MIX).
static uint64_t avalanche(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t hash_mix(uint64_t seed, uint64_t a, uint64_t b) {
    uint64_t x = avalanche(seed + 0x9e3779b97f4a7c15u);
    x = avalanche(x ^ (a + 0x9e3779b97f4a7c15u));
    return avalanche(x ^ (b + 0x9e3779b97f4a7c15u));
}

float hash_uniform(uint64_t seed, uint64_t a, uint64_t b) {
    return (float)(hash_mix(seed, a, b) >> 40) * 0x1p-24f;
}

// Box-Muller on two 32-bit halves; the first is moved off zero.
double hash_normal(uint64_t seed, uint64_t a, uint64_t b) {
    uint64_t bits = hash_mix(seed, a, b);
    double u = ((double)(bits >> 32) + 0.5) * 0x1p-32, v = (double)(bits & 0xffffffffu) * 0x1p-32;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
