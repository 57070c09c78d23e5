// SPDX-License-Identifier: Apache-2.0
// Floating point: every operation exact, rounded once; the packed types element by element.
#include <string.h>

#include "tests/vgpu/ref.h"

typedef struct Mode { RefType type; RefRound round; bool ftz, sat, relu; } Mode;

static bool is(const RefInstr *i, const char *root) {
    return !strcmp(i->word[0], root);
}

static uint64_t finish(const Mode *m, RefReal value) {
    uint64_t bits = ref_round(value, m->type, m->round, m->ftz, m->sat);
    if (m->relu && value.class != REF_NAN && bits >> (m->type.bits - 1)) return 0;
    return bits;
}

static uint64_t sign_of(RefType t) {
    return 1ull << (t.bits - 1);
}

// The smaller or larger; a NaN loses unless .NaN. -0 is less than +0.
static uint64_t extremum(const RefInstr *i, const Mode *m, uint64_t a, uint64_t b) {
    bool max = is(i, "max");
    RefReal x = ref_real(a, m->type, m->ftz), y = ref_real(b, m->type, m->ftz);
    bool negative = x.negative != y.negative, either = x.class == REF_NAN || y.class == REF_NAN;
    if (ref_has(i, "abs")) x.negative = y.negative = false;
    RefReal chosen;
    if (either && (ref_has(i, "NaN") || x.class == y.class)) {
        chosen = (RefReal){ .class = REF_NAN };
    } else if (either) {
        chosen = x.class == REF_NAN ? y : x;
    } else {
        int order = ref_compare(x, y);
        if (!order) order = (int)y.negative - (int)x.negative;
        chosen = (order < 0) != max ? x : y;
    }
    uint64_t bits = finish(m, chosen);
    if (ref_has(i, "xorsign") && chosen.class != REF_NAN)
        bits = (bits & ~sign_of(m->type)) | (negative ? sign_of(m->type) : 0);
    return bits;
}

static bool element(const RefInstr *i, const Mode *m, const uint64_t a[4], uint64_t *d) {
    RefReal x = ref_real(a[0], m->type, m->ftz), y = ref_real(a[1], m->type, m->ftz);
    RefReal z = ref_real(a[2], m->type, m->ftz), one = { REF_FINITE, false, false, 1, 0 };
    uint64_t all = sign_of(m->type) | (sign_of(m->type) - 1);
    if (is(i, "add")) {
        *d = finish(m, ref_add(x, y, m->round));
    } else if (is(i, "sub")) {
        y.negative = !y.negative;
        *d = finish(m, ref_add(x, y, m->round));
    } else if (is(i, "mul")) {
        *d = finish(m, ref_mul(x, y));
    } else if (is(i, "fma") || is(i, "mad")) {
        *d = finish(m, ref_add(ref_mul(x, y), z, m->round));
    } else if (is(i, "div")) {
        *d = finish(m, ref_div(x, y));
    } else if (is(i, "rcp")) {
        *d = finish(m, ref_div(one, x));
    } else if (is(i, "sqrt")) {
        *d = finish(m, ref_sqrt(x));
    } else if (is(i, "min") || is(i, "max")) {
        *d = extremum(i, m, a[0], a[1]);
    } else if (is(i, "abs") || is(i, "neg")) {
        uint64_t bits = a[0] & all;
        if (m->ftz && x.class == REF_ZERO) bits &= sign_of(m->type);
        *d = is(i, "abs") ? bits & ~sign_of(m->type) : bits ^ sign_of(m->type);
        // A NaN's result is some NaN. This is the one the virtual GPU gives.
        if (x.class == REF_NAN && m->ftz && m->type.bits == 32) *d = 0x7fffffff;
    } else if (is(i, "copysign")) { // the sign of a on b
        *d = (a[1] & (all >> 1)) | (a[0] & sign_of(m->type));
    } else {
        return false;
    }
    return true;
}

static bool test(const RefInstr *i, RefType t, uint64_t a) {
    RefReal x = ref_real(a, t, false);
    bool normal = x.class == REF_FINITE && ref_real(a, t, true).class == REF_FINITE;
    if (ref_has(i, "finite")) return x.class == REF_FINITE || x.class == REF_ZERO;
    if (ref_has(i, "infinite")) return x.class == REF_INFINITE;
    if (ref_has(i, "number")) return x.class != REF_NAN;
    if (ref_has(i, "notanumber")) return x.class == REF_NAN;
    if (ref_has(i, "normal")) return normal;
    return x.class == REF_FINITE && !normal; // subnormal
}

bool ref_float(const RefInstr *i, const uint64_t a[4], uint64_t d[2]) {
    RefType t = ref_nth_type(i, 0);
    if (t.kind != 'f' && t.kind != 'h') return false;
    if (is(i, "testp")) {
        d[0] = test(i, t, a[0]);
        return true;
    }
    Mode m = { .type = t, .round = ref_rounding(i, REF_RN), .ftz = ref_has(i, "ftz"),
               .sat = ref_has(i, "sat"), .relu = ref_has(i, "relu") };
    m.type.lanes = 1;
    d[0] = 0;
    for (int k = 0; k < t.lanes; k++) {
        uint64_t part[4], value = 0;
        for (int n = 0; n < 4; n++) part[n] = a[n] >> (16 * k * (t.lanes > 1));
        if (!element(i, &m, part, &value)) return false;
        d[0] |= value << (16 * k);
    }
    return true;
}
