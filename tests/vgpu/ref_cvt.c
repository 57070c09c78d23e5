// SPDX-License-Identifier: Apache-2.0
// cvt between integers, floating point and both, and the packing forms from two floats.
#include <string.h>

#include "tests/vgpu/ref.h"

static uint64_t low(uint64_t value, int bits) {
    return bits >= 64 ? value : value & ((1ull << bits) - 1);
}

static bool floating(RefType t) {
    return t.kind == 'f' || t.kind == 'h';
}

static uint64_t int_to_int(RefType to, RefType from, uint64_t a, bool sat) {
    uint64_t bits = low(a, from.bits);
    __int128 value = bits;
    if (from.kind == 's' && bits >> (from.bits - 1)) value -= (__int128)1 << from.bits;
    if (sat) {
        __int128 most = ((__int128)1 << (to.bits - (to.kind == 's'))) - 1;
        __int128 least = to.kind == 's' ? -most - 1 : 0;
        value = value > most ? most : value < least ? least : value;
    }
    // A result narrower than its register is extended by its own type.
    bits = low((uint64_t)value, to.bits);
    if (to.kind == 's' && to.bits < 64 && bits >> (to.bits - 1)) bits |= ~low(UINT64_MAX, to.bits);
    return bits;
}

static uint64_t float_to_float(const RefInstr *i, RefType to, RefType from, uint64_t a) {
    bool ftz = ref_has(i, "ftz");
    RefReal value = ref_real(a, from, ftz);
    static const char *const integral[] = { "rni", "rzi", "rmi", "rpi" };
    for (int k = 0; k < 4; k++)
        if (ref_has(i, integral[k])) value = ref_integral(value, (RefRound)k);
    uint64_t bits = ref_round(value, to, ref_rounding(i, REF_RN), ftz && to.bits == 32,
                              ref_has(i, "sat"));
    if (ref_has(i, "relu") && value.class != REF_NAN && bits >> (to.bits - 1)) bits = 0;
    return bits;
}

bool ref_cvt(const RefInstr *i, const uint64_t a[4], uint64_t d[2]) {
    if (strcmp(i->word[0], "cvt")) return false;
    RefType to = ref_nth_type(i, 0), from = ref_nth_type(i, 1);
    RefRound round = ref_rounding(i, REF_RN);
    if (to.lanes > 1) { // d = {a high, b low}
        RefType one = { to.kind, to.bits, 1 };
        d[0] = float_to_float(i, one, from, a[0]) << 16 | float_to_float(i, one, from, a[1]);
    } else if (floating(to) && floating(from)) {
        d[0] = float_to_float(i, to, from, a[0]);
    } else if (floating(to)) {
        d[0] = ref_round(ref_real_int(a[0], from), to, round, false, ref_has(i, "sat"));
    } else if (floating(from)) {
        RefReal value = ref_integral(ref_real(a[0], from, ref_has(i, "ftz")), round);
        d[0] = ref_to_int(value, to);
        // NaN: 0, but the highest bit alone when either side has 64 bits.
        if (value.class == REF_NAN)
            d[0] = from.bits == 64 || to.bits == 64 ? 1ull << (to.bits - 1) : 0;
        if (to.kind == 's') d[0] = int_to_int(to, to, d[0], false);
    } else {
        d[0] = int_to_int(to, from, a[0], ref_has(i, "sat"));
    }
    return true;
}
