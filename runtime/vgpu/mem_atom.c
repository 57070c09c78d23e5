// SPDX-License-Identifier: Apache-2.0
// Atomics and reductions: atom and red, scalar, vector and packed, in lane order.
//
// Global memory is shared by host threads: each element is changed by a compare-and-swap of its own
// width (a packed f16x2 or bf16x2 as one 32-bit word, which is more than is promised). 128 bits go
// under a lock, which makes them atomic against each other. Shared memory belongs to one host
// thread. Floats: add.f32 flushes subnormals in global memory and keeps them in shared, as
// documented; f16 and bf16 keep them (.noftz is the only form there is). Sums are rounded once.
#include <math.h>

#include "runtime/vgpu/shadow.h"

/* Values --------------------------------------------------------------------------------------- */

static float f32_of(uint64_t bits) {
    uint32_t word = (uint32_t)bits;
    float value;
    memcpy(&value, &word, 4);
    return value;
}

static uint64_t f32_bits(float value) {
    uint32_t word;
    memcpy(&word, &value, 4);
    return value != value ? 0x7fffffff : word;
}

static float flush(float value) { return fabsf(value) < 0x1p-126f ? copysignf(0, value) : value; }

static double f64_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static uint64_t f64_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

// A 16-bit float with `mantissa` bits of fraction as a double: f16 has 10, bf16 7.
static double half_of(uint64_t bits, int mantissa) {
    int exponent_bits = 15 - mantissa, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (int)(bits >> mantissa) & ((1 << exponent_bits) - 1);
    uint32_t fraction = (uint32_t)bits & ((1u << mantissa) - 1);
    double value;
    if (exponent == (1 << exponent_bits) - 1)
        value = fraction ? NAN : INFINITY;
    else if (!exponent)
        value = ldexp((double)fraction, 1 - bias - mantissa);
    else
        value = ldexp((double)(fraction | 1u << mantissa), exponent - bias - mantissa);
    return bits >> 15 & 1 ? -value : value;
}

// Rounded to nearest even. A double holds the sum of two exactly (f16) or well enough for a second
// rounding to do no harm (bf16: 53 >= 2 * 8 + 2 bits).
static uint64_t half_bits(double value, int mantissa) {
    int exponent_bits = 15 - mantissa, bias = (1 << (exponent_bits - 1)) - 1, exponent;
    uint64_t sign = signbit(value) ? 0x8000 : 0, infinity = ((1u << exponent_bits) - 1u)
                                                            << mantissa;
    if (isnan(value)) return 0x7fff;
    if (isinf(value)) return sign | infinity;
    if (value == 0) return sign;
    frexp(value, &exponent); // 0.5 <= |v| * 2^-exponent < 1
    int lowest = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    double steps = nearbyint(ldexp(fabs(value), mantissa - lowest)); // default rounding: to even
    uint64_t bits = (uint64_t)steps + ((uint64_t)(lowest + bias - 1) << mantissa);
    return sign | (bits > infinity ? infinity : bits);
}

static double pick(VgAtomOp op, double a, double b) {
    if (op == VG_ATOM_ADD) return a + b;
    if (isnan(a) || isnan(b)) return isnan(a) ? b : a;
    if (a == b) return (op == VG_ATOM_MIN) == (signbit(a) != 0) ? a : b; // -0 below +0
    return (op == VG_ATOM_MIN) == (a < b) ? a : b;
}

static uint64_t half_op(VgAtomOp op, uint64_t a, uint64_t b, int mantissa) {
    return half_bits(pick(op, half_of(a & 0xffff, mantissa), half_of(b & 0xffff, mantissa)),
                     mantissa);
}

static uint64_t float_op(const VgSite *s, bool shared, uint64_t old, uint64_t b) {
    VgAtomOp op = (VgAtomOp)s->atom;
    int mantissa = s->type == VG_ATOM_BF16 || s->type == VG_ATOM_BF16X2 ? 7 : 10;
    float x, y;
    switch (s->type) {
    case VG_ATOM_F32:
        x = f32_of(old);
        y = f32_of(b);
        if (op != VG_ATOM_ADD) return f32_bits((float)pick(op, x, y));
        return f32_bits(shared ? x + y : flush(flush(x) + flush(y)));
    case VG_ATOM_F64: return f64_bits(pick(op, f64_of(old), f64_of(b)));
    case VG_ATOM_F16X2:
    case VG_ATOM_BF16X2:
        return half_op(op, old, b, mantissa) | half_op(op, old >> 16, b >> 16, mantissa) << 16;
    default: return half_op(op, old, b, mantissa);
    }
}

// The new value. All operands zero-extended.
static uint64_t new_value(const VgSite *s, bool shared, uint64_t old, uint64_t b,
                          uint64_t compare) {
    uint64_t keep = s->bytes == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * s->bytes) - 1;
    bool is_signed = s->type == VG_ATOM_S32 || s->type == VG_ATOM_S64;
    switch (s->atom) {
    case VG_ATOM_EXCH: return b;
    case VG_ATOM_CAS: return old == compare ? b : old;
    case VG_ATOM_AND: return old & b;
    case VG_ATOM_OR: return old | b;
    case VG_ATOM_XOR: return old ^ b;
    case VG_ATOM_INC: return old >= b ? 0 : (old + 1) & keep;
    case VG_ATOM_DEC: return old == 0 || old > b ? b : old - 1;
    default: break;
    }
    if (s->type >= VG_ATOM_F32 && s->type <= VG_ATOM_BF16X2) return float_op(s, shared, old, b);
    if (s->atom == VG_ATOM_ADD) return (old + b) & keep;
    bool less = old < b;
    if (is_signed)
        less = s->bytes == 8 ? (int64_t)old < (int64_t)b
                             : (int32_t)(uint32_t)old < (int32_t)(uint32_t)b;
    return (s->atom == VG_ATOM_MIN) == less ? old : b;
}

/* One element ---------------------------------------------------------------------------------- */

static uint64_t peek(const uint8_t *at, uint32_t bytes) {
    if (bytes == 8) return __atomic_load_n((const uint64_t *)at, __ATOMIC_SEQ_CST);
    if (bytes == 4) return __atomic_load_n((const uint32_t *)at, __ATOMIC_SEQ_CST);
    return __atomic_load_n((const uint16_t *)at, __ATOMIC_SEQ_CST);
}

static bool swap(uint8_t *at, uint32_t bytes, uint64_t old, uint64_t to) {
    uint32_t old32 = (uint32_t)old;
    uint16_t old16 = (uint16_t)old;
    if (bytes == 8)
        return __atomic_compare_exchange_n((uint64_t *)at, &old, to, false, __ATOMIC_SEQ_CST,
                                           __ATOMIC_SEQ_CST);
    if (bytes == 4)
        return __atomic_compare_exchange_n((uint32_t *)at, &old32, (uint32_t)to, false,
                                           __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return __atomic_compare_exchange_n((uint16_t *)at, &old16, (uint16_t)to, false,
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static uint64_t change(const VgSite *s, uint8_t *at, bool shared, uint64_t b, uint64_t compare) {
    for (;;) {
        uint64_t old = peek(at, s->bytes), to = new_value(s, shared, old, b, compare);
        if (shared) {
            memcpy(at, &to, s->bytes);
            return old;
        }
        if (swap(at, s->bytes, old, to)) return old;
    }
}

static void change_wide(const VgSite *s, uint8_t *at, const uint64_t b[2],
                        const uint64_t compare[2], uint64_t old[2]) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    memcpy(old, at, 16);
    if (s->atom == VG_ATOM_EXCH || (old[0] == compare[0] && old[1] == compare[1]))
        memcpy(at, b, 16);
    pthread_mutex_unlock(&lock);
}

static uint64_t reg_get(const char *frame, uint32_t at, uint32_t bytes, uint32_t l) {
    if (bytes >= 8) return ((const uint64_t *)(frame + at))[l];
    uint64_t value = ((const uint32_t *)(frame + at))[l];
    return bytes == 2 ? value & 0xffff : value;
}

static void element(const VgSite *s, char *frame, uint32_t e, uint32_t l, uint8_t *at,
                    bool shared) {
    bool cas = s->atom == VG_ATOM_CAS, keep = s->result && s->reg[e] != VG_SINK;
    uint64_t b = reg_get(frame, s->source[e], s->bytes, l);
    uint64_t compare = cas ? reg_get(frame, s->compare, s->bytes, l) : 0;
    if (s->bytes == 16) {
        uint64_t wide[2] = { b, ((const uint64_t *)(frame + s->source[e]))[32 + l] }, old[2];
        uint64_t other[2] = { compare, cas ? ((const uint64_t *)(frame + s->compare))[32 + l] : 0 };
        change_wide(s, at, wide, other, old);
        if (!keep) return;
        ((uint64_t *)(frame + s->reg[e]))[l] = old[0];
        ((uint64_t *)(frame + s->reg[e]))[32 + l] = old[1];
        return;
    }
    uint64_t old = change(s, at, shared, b, compare);
    if (!keep) return;
    if (s->reg_bytes == 8)
        ((uint64_t *)(frame + s->reg[e]))[l] = old;
    else
        ((uint32_t *)(frame + s->reg[e]))[l] = (uint32_t)old;
}

/* A warp's ------------------------------------------------------------------------------------- */

VgFault vg_atom_access(VgWarpMem *w, const VgSite *s, uint32_t mask, const void *address,
                       char *frame) {
    uint32_t total = (uint32_t)s->bytes * s->vector;
    bool races = w->team->thread->launch->races;
    bool learns = races && s->result, done[32] = { false };
    VgPlaceMem place[32];
    uint64_t at[32], offset[32];
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(m);
        VgSpace space;
        at[l] =
            (s->address_bytes == 8 ? ((const uint64_t *)address)[l] + (uint64_t)s->offset
             : s->address_bytes ? (uint32_t)(((const uint32_t *)address)[l] + (uint64_t)s->offset)
                                : (uint64_t)s->offset);
        VgFault fault = vg_resolve(w, s, l, at[l], total, &place[l], &offset[l], &space);
        if (fault == VG_OK && (space == VG_LOCAL || space == VG_PARAM))
            fault = vg_mem_fault(w, s, VG_ILLEGAL_ADDRESS, l, at[l],
                                 "atomics work on global and shared memory");
        if (fault != VG_OK) return fault;
    }
    // The shadow knows warps, not lanes: one touch per place is enough.
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(m);
        for (uint32_t k = mask & ((1u << l) - 1); k && !done[l]; k &= k - 1)
            done[l] = at[__builtin_ctz(k)] == at[l];
        if (done[l]) continue;
        VgFault fault = vg_touch_run(w, s, VG_ATOMIC, l, &place[l], offset[l], total);
        if (fault != VG_OK) return fault;
        if (races) vg_message_publish(w, s, at[l]);
    }
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(m);
        for (uint32_t e = 0; e < s->vector; e++)
            element(s, frame, e, l, place[l].host + offset[l] + e * (uint64_t)s->bytes,
                    place[l].shared);
        if (learns && !done[l]) vg_message_learn(w, s, at[l]);
    }
    return VG_OK;
}
