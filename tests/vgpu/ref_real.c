// SPDX-License-Identifier: Apache-2.0
// Real numbers as integers. Every operation gives the exact value or a value with "something more"
// below its last bit; rounding is the last step, once.
#include "tests/vgpu/ref.h"

typedef struct Format { int precision, least; uint64_t largest, infinity, nan; } Format;

// precision with the hidden bit; exponent of the last bit of subnormals; bits of special values.
static Format format_of(RefType type) {
    if (type.kind == 'h') return (Format){ 8, -133, 0x7f7f, 0x7f80, 0x7fff };
    if (type.bits == 16) return (Format){ 11, -24, 0x7bff, 0x7c00, 0x7fff };
    if (type.bits == 32) return (Format){ 24, -149, 0x7f7fffff, 0x7f800000, 0x7fffffff };
    return (Format){ 53, -1074, 0x7fefffffffffffff, 0x7ff0000000000000, 0x7fffffffffffffff };
}

static int top_bit(RefWide value) { // -1 for 0
    int n = -1;
    for (; value; value >>= 1) n++;
    return n;
}

static uint64_t mask_of(int bits) {
    return bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
}

RefReal ref_real(uint64_t bits, RefType type, bool ftz) {
    Format f = format_of(type);
    bits &= mask_of(type.bits);
    RefReal value = { .negative = bits >> (type.bits - 1) & 1 };
    uint64_t magnitude = bits & mask_of(type.bits - 1);
    if (magnitude > f.infinity) value.class = REF_NAN;
    else if (magnitude == f.infinity) value.class = REF_INFINITE;
    if (magnitude >= f.infinity) return value;
    uint64_t exponent = magnitude >> (f.precision - 1);
    uint64_t fraction = magnitude & mask_of(f.precision - 1);
    if (!exponent && (ftz || !fraction)) return value; // zero of its sign
    value.class = REF_FINITE;
    value.mantissa = exponent ? fraction | 1ull << (f.precision - 1) : fraction;
    value.exponent = f.least + (exponent ? (int)exponent - 1 : 0);
    return value;
}

RefReal ref_real_int(uint64_t bits, RefType type) {
    RefReal value = { .class = REF_FINITE };
    bits &= mask_of(type.bits);
    if (type.kind == 's' && bits >> (type.bits - 1)) {
        value.negative = true;
        bits = (0 - bits) & mask_of(type.bits);
    }
    value.mantissa = bits;
    if (!bits) value.class = REF_ZERO;
    return value;
}

// Drops `n` low bits, by `round`.
static RefReal drop(RefReal value, int n, RefRound round) {
    RefWide rest, half;
    bool more = value.inexact;
    if (n <= 0) {
        rest = 0;
        half = 1; // what is left below is less than a half of nothing: it only counts as more
        n = 0;
    } else if (n > 127) {
        rest = value.mantissa ? 1 : 0;
        half = (RefWide)1 << 126;
        value.mantissa = 0;
    } else {
        rest = value.mantissa & (((RefWide)1 << n) - 1);
        half = (RefWide)1 << (n - 1);
        value.mantissa >>= n;
    }
    value.exponent += n;
    bool any = rest || more;
    bool up = round == REF_RN    ? rest > half || (rest == half && (more || (value.mantissa & 1)))
              : round == REF_RNA ? rest >= half
              : round == REF_RM  ? any && value.negative
              : round == REF_RP  ? any && !value.negative
                                 : false;
    if (up) value.mantissa++;
    value.inexact = any;
    return value;
}

uint64_t ref_round(RefReal value, RefType type, RefRound round, bool ftz, bool sat) {
    Format f = format_of(type);
    uint64_t sign = value.negative ? 1ull << (type.bits - 1) : 0;
    if (value.class == REF_NAN) return sat ? 0 : f.nan;
    if (sat && value.negative) return 0;
    uint64_t magnitude = 0;
    if (value.class == REF_INFINITE) {
        magnitude = f.infinity;
    } else if (value.class == REF_FINITE) {
        int n = top_bit(value.mantissa) + 1 - f.precision; // so many are too many
        if (value.exponent + n < f.least) n = f.least - value.exponent;
        // A value with something below it has bits enough: see the operations.
        if (n < 0) {
            value.mantissa <<= -n;
            value.exponent += n;
            n = 0;
        }
        value = drop(value, n, round);
        if (top_bit(value.mantissa) == f.precision) {
            value.mantissa >>= 1;
            value.exponent++;
        }
        bool normal = top_bit(value.mantissa) == f.precision - 1;
        uint64_t exponent = normal ? (uint64_t)(value.exponent - f.least + 1) : 0;
        magnitude = (exponent << (f.precision - 1)) +
                    ((uint64_t)value.mantissa & mask_of(f.precision - 1));
        if (magnitude >= f.infinity) {
            bool to_infinity = round == REF_RN || round == REF_RNA ||
                               round == (value.negative ? REF_RM : REF_RP);
            magnitude = to_infinity ? f.infinity : f.largest;
        }
        if (ftz && !exponent) magnitude = 0;
    }
    if (sat) { // to [0, 1]
        uint64_t one = (uint64_t)((1 << (type.bits == 64 ? 10 : type.kind == 'h' ||
                                         type.bits == 32 ? 7 : 4)) - 1)
                       << (f.precision - 1);
        if (magnitude > one) magnitude = one;
    }
    return sign | magnitude;
}

/* Operations ----------------------------------------------------------------------------------- */

static RefReal special(RefClass class, bool negative) {
    return (RefReal){ .class = class, .negative = negative };
}

// The larger is shifted up as far as it goes; what of the smaller does not meet it becomes "more".
static RefReal add_finite(RefReal a, RefReal b, RefRound round) {
    if (a.exponent + top_bit(a.mantissa) < b.exponent + top_bit(b.mantissa)) {
        RefReal swap = a;
        a = b;
        b = swap;
    }
    int room = 124 - top_bit(a.mantissa);
    a.mantissa <<= room;
    a.exponent -= room;
    int down = a.exponent - b.exponent;
    bool lost = false;
    if (down > 0) {
        lost = down > 127 || (b.mantissa & (((RefWide)1 << down) - 1));
        b.mantissa = down > 127 ? 0 : b.mantissa >> down;
    } else {
        b.mantissa <<= -down; // it fits: its top bit is not above the other's
    }
    RefReal sum = a;
    sum.inexact = lost;
    if (a.negative == b.negative) {
        sum.mantissa = a.mantissa + b.mantissa;
    } else if (a.mantissa > b.mantissa || (a.mantissa == b.mantissa && !lost)) {
        sum.mantissa = a.mantissa - b.mantissa - lost; // a - b - x = (a - b - 1) + (1 - x)
    } else {
        sum.mantissa = b.mantissa - a.mantissa;
        sum.negative = b.negative;
    }
    if (!sum.mantissa && !lost) return special(REF_ZERO, round == REF_RM);
    return sum;
}

RefReal ref_add(RefReal a, RefReal b, RefRound round) {
    if (a.class == REF_NAN || b.class == REF_NAN) return special(REF_NAN, false);
    if (a.class == REF_INFINITE && b.class == REF_INFINITE && a.negative != b.negative)
        return special(REF_NAN, false);
    if (a.class == REF_INFINITE) return a;
    if (b.class == REF_INFINITE) return b;
    if (a.class == REF_ZERO && b.class == REF_ZERO)
        return special(REF_ZERO, a.negative == b.negative ? a.negative : round == REF_RM);
    if (a.class == REF_ZERO) return b;
    if (b.class == REF_ZERO) return a;
    return add_finite(a, b, round);
}

RefReal ref_mul(RefReal a, RefReal b) {
    bool negative = a.negative != b.negative;
    if (a.class == REF_NAN || b.class == REF_NAN) return special(REF_NAN, false);
    if (a.class == REF_INFINITE || b.class == REF_INFINITE) {
        bool zero = a.class == REF_ZERO || b.class == REF_ZERO;
        return special(zero ? REF_NAN : REF_INFINITE, negative);
    }
    if (a.class == REF_ZERO || b.class == REF_ZERO) return special(REF_ZERO, negative);
    return (RefReal){ REF_FINITE, negative, false, a.mantissa * b.mantissa,
                      a.exponent + b.exponent };
}

// The dividend goes up as far as it can, so that the quotient of two mantissas of at most 53 bits
// has 72 bits or more; those and whether there is a remainder decide any rounding.
RefReal ref_div(RefReal a, RefReal b) {
    bool negative = a.negative != b.negative;
    if (a.class == REF_NAN || b.class == REF_NAN || (a.class == b.class && a.class != REF_FINITE))
        return special(REF_NAN, false);
    if (a.class == REF_INFINITE || b.class == REF_ZERO) return special(REF_INFINITE, negative);
    if (a.class == REF_ZERO || b.class == REF_INFINITE) return special(REF_ZERO, negative);
    int up = 125 - top_bit(a.mantissa);
    a.mantissa <<= up;
    return (RefReal){ REF_FINITE, negative, a.mantissa % b.mantissa != 0, a.mantissa / b.mantissa,
                      a.exponent - b.exponent - up };
}

RefReal ref_sqrt(RefReal a) {
    if (a.class == REF_NAN || (a.negative && a.class != REF_ZERO)) return special(REF_NAN, false);
    if (a.class != REF_FINITE) return a;
    int up = 120 - top_bit(a.mantissa);
    if ((a.exponent - up) & 1) up--;
    RefWide value = a.mantissa << up, root = 0;
    for (int bit = 62; bit >= 0; bit--) {
        RefWide next = root | (RefWide)1 << bit;
        if (next * next <= value) root = next;
    }
    return (RefReal){ REF_FINITE, false, root * root != value, root, (a.exponent - up) / 2 };
}

int ref_compare(RefReal a, RefReal b) {
    if (a.class == REF_NAN || b.class == REF_NAN) return 2;
    if (a.class == REF_ZERO && b.class == REF_ZERO) return 0;
    if (a.class == REF_INFINITE && b.class == REF_INFINITE && a.negative == b.negative) return 0;
    b.negative = !b.negative;
    RefReal difference = ref_add(a, b, REF_RN);
    if (difference.class == REF_ZERO) return 0;
    return difference.negative ? -1 : 1;
}

RefReal ref_integral(RefReal a, RefRound round) {
    if (a.class != REF_FINITE || a.exponent >= 0) return a;
    RefReal value = drop(a, -a.exponent, round);
    value.exponent = 0;
    value.inexact = false;
    if (!value.mantissa) value.class = REF_ZERO;
    return value;
}

// Out of range goes to the nearest end; a NaN is the caller's.
uint64_t ref_to_int(RefReal a, RefType type) {
    uint64_t all = mask_of(type.bits);
    uint64_t largest = type.kind == 's' ? all >> 1 : all,
    least = type.kind == 's' ? largest + 1 : 0;
    if (a.class == REF_NAN || a.class == REF_ZERO) return 0;
    bool big = a.class == REF_INFINITE || top_bit(a.mantissa) + a.exponent >= 64;
    RefWide value = big ? 0 : a.mantissa << a.exponent;
    if (a.negative) {
        if (big || value > least) return least & all;
        return (0 - (uint64_t)value) & all;
    }
    return big || value > largest ? largest : (uint64_t)value;
}

RefRound ref_rounding(const RefInstr *instr, RefRound otherwise) {
    static const char *const words[2][5] = { { "rn", "rz", "rm", "rp", "rna" },
                                             { "rni", "rzi", "rmi", "rpi", "" } };
    for (int i = 0; i < 5; i++)
        if (ref_has(instr, words[0][i]) || ref_has(instr, words[1][i])) return (RefRound)i;
    return otherwise;
}
