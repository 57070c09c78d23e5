// SPDX-License-Identifier: Apache-2.0
// Integer, logical, selecting and comparing instructions, bit by bit where the manual says it so.
#include <string.h>

#include "tests/vgpu/ref.h"

static uint64_t low(uint64_t value, int bits) {
    return bits >= 64 ? value : value & ((1ull << bits) - 1);
}

static int64_t sign(uint64_t value, int bits) {
    value = low(value, bits);
    if (bits < 64 && value >> (bits - 1)) value |= ~((1ull << bits) - 1);
    return (int64_t)value;
}

// The value as the type sees it, in 128 bits.
static __int128 wide(uint64_t value, RefType type) {
    return type.kind == 's' ? (__int128)sign(value, type.bits) : (__int128)low(value, type.bits);
}

static bool is(const RefInstr *i, const char *root) {
    return !strcmp(i->word[0], root);
}

/* Comparisons ---------------------------------------------------------------------------------- */

bool ref_holds(const RefInstr *i, RefType type, uint64_t a, uint64_t b) {
    const char *word = NULL;
    static const char *const words[] = { "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs",
                                         "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan" };
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
        if (ref_has(i, words[k])) word = words[k];
    int order;
    if (type.kind == 'f' || type.kind == 'h') {
        bool ftz = ref_has(i, "ftz");
        order = ref_compare(ref_real(a, type, ftz), ref_real(b, type, ftz));
    } else {
        __int128 x = wide(a, type), y = wide(b, type);
        order = x < y ? -1 : x > y;
    }
    if (!strcmp(word, "num")) return order != 2;
    if (!strcmp(word, "nan")) return order == 2;
    if (order == 2) return strlen(word) == 3; // equ ... geu
    switch (word[0]) {
    case 'e': return order == 0;
    case 'n': return order != 0;
    case 'l': return word[1] == 't' || word[1] == 'o' ? order < 0 : order <= 0;
    case 'h': return word[1] == 'i' ? order > 0 : order >= 0;
    default: return word[1] == 't' ? order > 0 : order >= 0;
    }
}

static uint64_t combine(const RefInstr *i, bool held, bool with) {
    if (ref_has(i, "and")) return held && with;
    if (ref_has(i, "or")) return held || with;
    return ref_has(i, "xor") ? held != with : held;
}

// setp.cmp[.bool].type p|q, a, b, c;  set.cmp[.bool].dtype.type d, a, b, c
static bool compare(const RefInstr *i, const uint64_t a[4], uint64_t d[2]) {
    bool setp = is(i, "setp");
    RefType type = ref_nth_type(i, setp ? 0 : 1);
    bool held = ref_holds(i, type, a[0], a[1]);
    uint64_t value = combine(i, held, a[2] & 1);
    if (setp) {
        d[0] = value;
        d[1] = combine(i, !held, a[2] & 1);
        return true;
    }
    RefType to = ref_nth_type(i, 0);
    d[0] = !value ? 0 : to.kind == 'f' ? 0x3f800000 : low(UINT64_MAX, to.bits);
    return true;
}

/* Arithmetic ----------------------------------------------------------------------------------- */

static uint64_t clamp(__int128 value, RefType type) {
    __int128 most = ((__int128)1 << (type.bits - (type.kind == 's'))) - 1;
    __int128 least = type.kind == 's' ? -most - 1 : 0;
    return low((uint64_t)(value > most ? most : value < least ? least : value), type.bits);
}

// add, sub, addc, subc with carries: sub works with the complement, its carry is a borrow.
static void sum(const RefInstr *i, RefType t, const uint64_t a[4], uint64_t d[2], bool *carry) {
    bool minus = i->word[0][0] == 's', in = i->word[0][3] == 'c' && *carry;
    if (ref_has(i, "sat")) {
        d[0] = clamp(minus ? wide(a[0], t) - wide(a[1], t) : wide(a[0], t) + wide(a[1], t), t);
        return;
    }
    RefWide x = low(a[0], t.bits), y = low(a[1], t.bits);
    RefWide result = minus ? x - y - in : x + y + in;
    d[0] = low((uint64_t)result, t.bits);
    if (ref_has(i, "cc")) *carry = result >> t.bits & 1;
}

// mul, mad, mul24, mad24 and with carries madc.
static bool product(const RefInstr *i, RefType t, const uint64_t a[4], uint64_t d[2], bool *carry) {
    bool add = i->word[0][1] == 'a', narrow = strstr(i->word[0], "24") != NULL;
    RefType from = t;
    if (narrow) from.bits = 24;
    // Of two unsigned 64-bit numbers the product wraps here and is made anew below.
    __int128 p = (__int128)((RefWide)wide(a[0], from) * (RefWide)wide(a[1], from));
    if (t.kind == 'u' && t.bits == 64 && !narrow) p = (__int128)((RefWide)a[0] * a[1]);
    if (ref_has(i, "wide")) {
        d[0] = low((uint64_t)p + (add ? a[2] : 0), 2 * t.bits);
        return true;
    }
    int up = !ref_has(i, "hi") ? 0 : narrow ? 16 : t.bits; // 24-bit: the upper 32 of 48 bits
    uint64_t part = low((uint64_t)((RefWide)p >> up), t.bits);
    if (!add) {
        d[0] = part;
        return true;
    }
    if (ref_has(i, "sat")) {
        d[0] = clamp((__int128)sign(part, t.bits) + sign(a[2], t.bits), t);
        return true;
    }
    RefWide result = (RefWide)part + low(a[2], t.bits) + (is(i, "madc") && *carry);
    d[0] = low((uint64_t)result, t.bits);
    if (ref_has(i, "cc")) *carry = result >> t.bits & 1;
    return true;
}

static uint64_t dot(const RefInstr *i, const uint64_t a[4]) {
    RefType ta = ref_nth_type(i, 0), tb = ref_nth_type(i, 1);
    bool two = is(i, "dp2a");
    uint64_t total = a[2];
    for (int k = 0; k < (two ? 2 : 4); k++) {
        int width = two ? 16 : 8, from = two && ref_has(i, "hi") ? 2 : 0;
        uint64_t x = a[0] >> (k * width), y = a[1] >> ((k + from) * 8);
        int64_t left = ta.kind == 's' ? sign(x, width) : (int64_t)low(x, width);
        int64_t right = tb.kind == 's' ? sign(y, 8) : (int64_t)low(y, 8);
        total += (uint64_t)(left * right);
    }
    return low(total, 32);
}

/* Bits ----------------------------------------------------------------------------------------- */

static int leading(uint64_t value, int bits) {
    int n = 0;
    while (n < bits && !(value >> (bits - 1 - n) & 1)) n++;
    return n;
}

static uint64_t count_bits(uint64_t value) {
    uint64_t n = 0;
    for (; value; value &= value - 1) n++;
    return n;
}

static uint64_t find_leading(const RefInstr *i, RefType t, uint64_t a) {
    if (t.kind == 's' && sign(a, t.bits) < 0) a = ~a;
    int at = t.bits - 1 - leading(low(a, t.bits), t.bits);
    if (at < 0) return 0xffffffff;
    return (uint64_t)(ref_has(i, "shiftamt") ? t.bits - 1 - at : at);
}

// fns: the n-th set bit, from bit `base`, upward for n > 0 and downward for n < 0.
static uint64_t find_nth(uint32_t mask, uint32_t base, int32_t n) {
    if (n == 0) return mask >> base & 1 ? base : 0xffffffff;
    int step = n > 0 ? 1 : -1;
    int64_t left = n > 0 ? n : -(int64_t)n;
    for (int at = (int)base; at >= 0 && at < 32; at += step)
        if ((mask >> at & 1) && --left == 0) return (uint64_t)at;
    return 0xffffffff;
}

static uint64_t extract(RefType t, const uint64_t a[4]) {
    int pos = (int)(a[1] & 0xff), len = (int)(a[2] & 0xff), msb = t.bits - 1;
    if (!len) return 0;
    bool fill = t.kind == 's' && (a[0] >> (pos + len - 1 < msb ? pos + len - 1 : msb) & 1);
    uint64_t d = 0;
    for (int k = 0; k <= msb; k++) {
        bool bit = k < len && pos + k <= msb ? a[0] >> (pos + k) & 1 : fill;
        d |= (uint64_t)bit << k;
    }
    return d;
}

static uint64_t insert(RefType t, const uint64_t a[4]) {
    int pos = (int)(a[2] & 0xff), len = (int)(a[3] & 0xff);
    uint64_t d = low(a[1], t.bits);
    for (int k = 0; k < len && pos + k < t.bits; k++) {
        d &= ~(1ull << (pos + k));
        d |= (a[0] >> k & 1) << (pos + k);
    }
    return d;
}

static uint64_t funnel(const RefInstr *i, const uint64_t a[4]) { // a low, b high
    uint32_t n = (uint32_t)a[2];
    n = ref_has(i, "wrap") ? n & 31 : n > 32 ? 32 : n;
    uint64_t both = low(a[1], 32) << 32 | low(a[0], 32);
    if (ref_has(i, "r")) return low(n == 0 ? both : both >> n, 32);
    return n == 32 ? low(a[0], 32) : low(both << n >> 32, 32);
}

static uint64_t permute(const RefInstr *i, const uint64_t a[4]) {
    uint64_t both = low(a[1], 32) << 32 | low(a[0], 32), d = 0;
    unsigned c = (unsigned)a[2] & 3;
    static const struct { const char *mode; unsigned char pick[4][4]; } modes[] = { // byte 0 first
        { "f4e", { { 0, 1, 2, 3 }, { 1, 2, 3, 4 }, { 2, 3, 4, 5 }, { 3, 4, 5, 6 } } },
        { "b4e", { { 0, 7, 6, 5 }, { 1, 0, 7, 6 }, { 2, 1, 0, 7 }, { 3, 2, 1, 0 } } },
        { "rc8", { { 0, 0, 0, 0 }, { 1, 1, 1, 1 }, { 2, 2, 2, 2 }, { 3, 3, 3, 3 } } },
        { "ecl", { { 0, 1, 2, 3 }, { 1, 1, 2, 3 }, { 2, 2, 2, 3 }, { 3, 3, 3, 3 } } },
        { "ecr", { { 0, 0, 0, 0 }, { 0, 1, 1, 1 }, { 0, 1, 2, 2 }, { 0, 1, 2, 3 } } },
        { "rc16", { { 0, 1, 0, 1 }, { 2, 3, 2, 3 }, { 0, 1, 0, 1 }, { 2, 3, 2, 3 } } },
    };
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        if (!ref_has(i, modes[m].mode)) continue;
        for (int k = 0; k < 4; k++) d |= (both >> (8 * modes[m].pick[c][k]) & 0xff) << (8 * k);
        return d;
    }
    for (int k = 0; k < 4; k++) { // selectors of 4 bits; the highest replicates the sign
        unsigned pick = (unsigned)(a[2] >> (4 * k)) & 15;
        uint64_t byte = both >> (8 * (pick & 7)) & 0xff;
        if (pick & 8) byte = byte & 0x80 ? 0xff : 0;
        d |= byte << (8 * k);
    }
    return d;
}

static uint64_t shift(const RefInstr *i, RefType t, const uint64_t a[4]) {
    uint32_t n = (uint32_t)a[1];
    bool left = is(i, "shl"), negative = t.kind == 's' && sign(a[0], t.bits) < 0;
    uint64_t d = 0;
    for (int k = 0; k < t.bits; k++) {
        int64_t from = left ? k - (int64_t)n : k + (int64_t)n;
        bool bit = from < 0 ? false : from >= t.bits ? negative && !left : a[0] >> from & 1;
        d |= (uint64_t)bit << k;
    }
    return d;
}

static uint64_t table(const uint64_t a[4]) { // lop3: bit k of d is entry (a, b, c) of the table
    uint64_t d = 0;
    for (int k = 0; k < 32; k++) {
        unsigned entry = (unsigned)((a[0] >> k & 1) << 2 | (a[1] >> k & 1) << 1 | (a[2] >> k & 1));
        d |= (a[3] >> entry & 1) << k;
    }
    return d;
}

static uint64_t bit_mask(const RefInstr *i, const uint64_t a[4]) { // bmsk: b ones from bit a on
    uint32_t from = (uint32_t)a[0], n = (uint32_t)a[1];
    if (ref_has(i, "wrap")) from &= 31, n &= 31;
    uint64_t d = 0;
    for (uint64_t k = from; k < 32 && k < (uint64_t)from + n; k++) d |= 1ull << k;
    return d;
}

static uint64_t extend(const RefInstr *i, RefType t, const uint64_t a[4]) { // szext
    uint32_t n = (uint32_t)a[1];
    if (ref_has(i, "wrap")) n &= 31;
    if (n >= 32) return low(a[0], 32);
    if (n == 0) return 0;
    return low(t.kind == 's' ? (uint64_t)sign(a[0], (int)n) : low(a[0], (int)n), 32);
}

/* All of them ---------------------------------------------------------------------------------- */

static bool of_bits(const RefInstr *i, RefType t, const uint64_t a[4], uint64_t d[2]) {
    if (is(i, "and")) d[0] = a[0] & a[1];
    else if (is(i, "or")) d[0] = a[0] | a[1];
    else if (is(i, "xor")) d[0] = a[0] ^ a[1];
    else if (is(i, "not")) d[0] = t.kind == 'p' ? !a[0] : ~a[0];
    else if (is(i, "cnot")) d[0] = !low(a[0], t.bits);
    else if (is(i, "lop3")) d[0] = table(a);
    else if (is(i, "shl") || is(i, "shr")) d[0] = shift(i, t, a);
    else if (is(i, "shf")) d[0] = funnel(i, a);
    else if (is(i, "prmt")) d[0] = permute(i, a);
    else if (is(i, "popc")) d[0] = count_bits(low(a[0], t.bits));
    else if (is(i, "clz")) d[0] = (uint64_t)leading(low(a[0], t.bits), t.bits);
    else if (is(i, "bfind")) d[0] = find_leading(i, t, a[0]);
    else if (is(i, "fns")) d[0] = find_nth((uint32_t)a[0], (uint32_t)a[1], (int32_t)a[2]);
    else if (is(i, "bfe")) d[0] = extract(t, a);
    else if (is(i, "bfi")) d[0] = insert(t, a);
    else if (is(i, "bmsk")) d[0] = bit_mask(i, a);
    else if (is(i, "szext")) d[0] = extend(i, t, a);
    else if (is(i, "brev")) {
        d[0] = 0;
        for (int k = 0; k < t.bits; k++) d[0] |= (a[0] >> k & 1) << (t.bits - 1 - k);
    } else return false;
    bool counts = is(i, "popc") || is(i, "clz") || is(i, "bfind");
    d[0] = low(d[0], counts ? 32 : t.bits);
    return true;
}

static bool of_numbers(const RefInstr *i, RefType t, const uint64_t a[4], uint64_t d[2]) {
    __int128 x = wide(a[0], t), y = wide(a[1], t), r;
    if (is(i, "min")) r = x < y ? x : y;
    else if (is(i, "max")) r = x > y ? x : y;
    else if (is(i, "abs")) r = x < 0 ? -x : x;
    else if (is(i, "neg")) r = -x;
    else if (is(i, "sad")) r = (x > y ? x - y : y - x) + wide(a[2], t);
    else if (is(i, "div")) r = y ? x / y : 0;
    else if (is(i, "rem")) r = y ? x % y : 0;
    else return false;
    if (ref_has(i, "relu") && r < 0) r = 0;
    d[0] = low((uint64_t)r, t.bits);
    return true;
}

bool ref_int(const RefInstr *i, const uint64_t a[4], uint64_t d[2], bool *carry) {
    RefType t = ref_nth_type(i, 0);
    if (is(i, "setp") || is(i, "set")) return compare(i, a, d);
    if (is(i, "selp")) {
        d[0] = low(a[2] & 1 ? a[0] : a[1], t.bits);
        return true;
    }
    if (is(i, "slct")) { // by the sign of c; of a float: c >= 0, which NaN is not
        RefType of = ref_nth_type(i, 1);
        RefReal zero = { 0 };
        int order = of.kind == 'f' ? ref_compare(ref_real(a[2], of, ref_has(i, "ftz")), zero) : 0;
        bool first = of.kind == 'f' ? order == 0 || order == 1 : sign(a[2], 32) >= 0;
        d[0] = low(first ? a[0] : a[1], t.bits);
        return true;
    }
    if (is(i, "dp4a") || is(i, "dp2a")) {
        d[0] = dot(i, a);
        return true;
    }
    if (t.kind == 'f' || t.kind == 'h' || t.kind == 't' || t.lanes > 1) return false;
    static const char *const sums[] = { "add", "sub", "addc", "subc" };
    for (int k = 0; k < 4; k++) {
        if (!is(i, sums[k])) continue;
        sum(i, t, a, d, carry);
        return true;
    }
    static const char *const products[] = { "mul", "mad", "madc", "mul24", "mad24" };
    for (int k = 0; k < 5; k++)
        if (is(i, products[k])) return product(i, t, a, d, carry);
    return of_bits(i, t, a, d) || of_numbers(i, t, a, d);
}
