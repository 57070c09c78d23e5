// SPDX-License-Identifier: Apache-2.0
// Source 0: vector functions beyond exp and log, and ints.
//
// No libm: own polynomials with explicit v_fma and IEEE operations only, so that every
// instruction-set level gives the same bits. sin, cos and pow pass through double (no fma there).
// Bounds, in units in the last place, held by tests/kernels/test_rows_math.c: sigmoid, tanh, erf,
// sin and cos 2 up to |x| = 1e6 (then worse, slowly), pow 0.51. Infinities and NaN behave as in C's
// <math.h>.

/* Lanes and masks ------------------------------------------------------------------------------ */

INLINE VI vi_below(int64_t n) {
    return vi_iota() < vi_splat((int32_t)n);
} // mask of the first n lanes
INLINE VI vi_bool(VI mask) { return mask & vi_splat(1); }
INLINE int32_t f_bits(float x) {
    int32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Ints: wrapping; floor division as Lua's; by zero 0, the rest by zero is the number ---------- */

INLINE VI vi_max(VI a, VI b) { return vi_select(a > b, a, b); }
INLINE VI vi_min(VI a, VI b) { return vi_select(a < b, a, b); }
INLINE VI vi_abs(VI a) { return vi_select(a < vi_splat(0), -a, a); }
INLINE int32_t vi_sum(VI a) {
    a += V_FOLD_(a, 8);
    a += V_FOLD_(a, 4);
    a += V_FOLD_(a, 2);
    a += V_FOLD_(a, 1);
    return a[0];
}
INLINE int32_t vi_max_lane(VI a) {
    a = vi_max(a, V_FOLD_(a, 8));
    a = vi_max(a, V_FOLD_(a, 4));
    a = vi_max(a, V_FOLD_(a, 2));
    a = vi_max(a, V_FOLD_(a, 1));
    return a[0];
}
INLINE VI vi_div(VI a, VI b) {
    for (int i = 0; i < LANES; i++) {
        int64_t n = a[i], d = b[i], q = d ? n / d : 0;
        if (d && n % d && (n < 0) != (d < 0)) q--;
        a[i] = (int32_t)q;
    }
    return a;
}
INLINE VI vi_mod(VI a, VI b) {
    for (int i = 0; i < LANES; i++) {
        int64_t n = a[i], d = b[i], r = d ? n % d : n;
        if (d && r && (r < 0) != (d < 0)) r += d;
        a[i] = (int32_t)r;
    }
    return a;
}

/* Simple functions ----------------------------------------------------------------------------- */

INLINE V v_abs(V x) { return v_of_bits(v_bits(x) & vi_splat(0x7fffffff)); }
INLINE V v_copysign(V x, V sign) {
    return v_of_bits((v_bits(x) & vi_splat(0x7fffffff)) | (v_bits(sign) & ~vi_splat(0x7fffffff)));
}
INLINE V v_sign(V x) {
    return v_select(x != v_splat(0.0f), v_select(x == x, v_copysign(v_splat(1.0f), x), x), x);
}
INLINE V v_bf16(V x) { return v_of_bf16(vb_of(x)); } // rounded to bf16
// An int that orders as the number: NaN lowest of all with -inf, -0 equal to 0; never the smallest
// int.
INLINE VI v_key(V x) {
    VI bits = v_bits(v_select(x == x, x + v_splat(0.0f), v_splat(-INFINITE)));
    return bits ^ ((bits >> 31) & vi_splat(0x7fffffff));
}

/* Functions of exp ----------------------------------------------------------------------------- */

// From exp(-|x|), which cannot overflow, so that both tails keep their precision.
INLINE V v_sigmoid(V x) {
    V e = v_exp(-v_abs(x)), one = v_splat(1.0f);
    return v_select(x >= v_splat(0.0f), one, e) / (one + e);
}
INLINE V v_tanh(V x) {
    V a = v_abs(x), s = x * x;
    V p = v_splat(-0x1.76abf6p-8f);
    p = v_fma(p, s, v_splat(0x1.5256cep-6f));
    p = v_fma(p, s, v_splat(-0x1.b84448p-5f));
    p = v_fma(p, s, v_splat(0x1.110768p-3f));
    p = v_fma(p, s, v_splat(-0x1.555534p-2f));
    V small = v_fma(p * s, x, x), one = v_splat(1.0f);
    V large = one - v_splat(2.0f) / (v_exp(a + a) + one);
    return v_copysign(v_select(a < v_splat(0.625f), small, large), x); // -0 stays
}
// Below 15/16 an odd polynomial, above 1 - exp(a polynomial that is log erfc), from 4 on 1.
INLINE V v_erf(V x) {
    V a = v_abs(x), s = x * x;
    V p = v_splat(0x1.5bfc2cp-14f);
    p = v_fma(p, s, v_splat(-0x1.aa06bap-11f));
    p = v_fma(p, s, v_splat(0x1.54c2dp-8f));
    p = v_fma(p, s, v_splat(-0x1.b80e3p-6f));
    p = v_fma(p, s, v_splat(0x1.ce2e06p-4f));
    p = v_fma(p, s, v_splat(-0x1.812742p-2f));
    p = v_fma(p, s, v_splat(0x1.06eba8p-3f));
    V small = v_fma(p, x, x), t = v_min(a, v_splat(4.0f));
    V q = v_splat(-0x1.66682cp-16f);
    q = v_fma(q, t, v_splat(0x1.cace52p-12f));
    q = v_fma(q, t, v_splat(-0x1.12558p-8f));
    q = v_fma(q, t, v_splat(0x1.9c3352p-6f));
    q = v_fma(q, t, v_splat(-0x1.bbc38cp-4f));
    q = v_fma(q, t, v_splat(-0x1.443ed2p-1f));
    q = v_fma(q, t, v_splat(-0x1.2129aep+0f));
    q = v_fma(q, t, v_splat(0x1.7a388ap-13f));
    V large = v_copysign(v_splat(1.0f) - v_exp(q), x);
    return v_select(x == x, v_select(a < v_splat(0.9375f), small, large), x);
}

/* Functions that pass through double ----------------------------------------------------------- */

INLINE VD vd_splat(double x) { return (VD){ x, x, x, x, x, x, x, x }; }
INLINE VD vd_select(VL mask, VD a, VD b) { return (VD)(((VL)a & mask) | ((VL)b & ~mask)); }
// Nearest whole number of |x| < 2^51, and that number as an int of at least 32 bits.
INLINE VD vd_round(VD x) { return (x + vd_splat(0x1.8p+52)) - vd_splat(0x1.8p+52); }
INLINE VL vd_int(VD whole) { return (VL)(whole + vd_splat(0x1.8p+52)) - (VL)vd_splat(0x1.8p+52); }

// x - k pi/2 with the nearest k. pi/2 in two parts, the first of 33 bits: products with k < 2^20
// are exact.
INLINE VD vd_turn_(VD x, VL *quadrant) {
    VD k = vd_round(x * vd_splat(0x1.45f306dc9c883p-1));
    *quadrant = vd_int(k);
    return (x - k * vd_splat(0x1.921fb544p+0)) - k * vd_splat(0x1.0b4611a626331p-34);
}
// sin(x + turns pi/2)
INLINE V v_sin_turned_(V x, int turns) {
    V bounded = v_select(v_abs(x) < v_splat(0x1p+31f), x, v_splat(0.0f));
    VL low, high;
    VD r_low = vd_turn_(v_low(bounded), &low), r_high = vd_turn_(v_high(bounded), &high);
    V r = v_of_doubles(r_low, r_high), s = r * r;
    VI k = __builtin_convertvector(__builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
                                                           10, 11, 12, 13, 14, 15),
                                   VI) +
           vi_splat(turns);
    V p = v_splat(0x1.6cd1f4p-19f);
    p = v_fma(p, s, v_splat(-0x1.a00f84p-13f));
    p = v_fma(p, s, v_splat(0x1.111108p-7f));
    p = v_fma(p, s, v_splat(-0x1.555556p-3f));
    V sine = v_fma(p * s, r, r);
    V q = v_splat(0x1.99fa7p-16f);
    q = v_fma(q, s, v_splat(-0x1.6c0c72p-10f));
    q = v_fma(q, s, v_splat(0x1.55554ap-5f));
    V cosine = v_fma(q, s * s, v_fma(s, v_splat(-0.5f), v_splat(1.0f)));
    V y = v_select((k & vi_splat(1)) != vi_splat(0), cosine, sine);
    y = v_of_bits(v_bits(y) ^ ((k & vi_splat(2)) << 30));
    return v_select(v_abs(x) < v_splat(INFINITE), y, x - x); // infinities and NaN give NaN
}
INLINE V v_sin(V x) { return v_sin_turned_(x, 0); }
INLINE V v_cos(V x) { return v_sin_turned_(x, 1); }

// |a|^c by exp2(c log2 |a|): log2 by the atanh series of (m - 1) / (m + 1), relative error below
// 1e-11.
INLINE VD vd_pow_(VD x, VD y) {
    VL bits = (VL)x - 0x3fe6a09e667f3bcd; // sqrt(1/2): the mantissa lies in [sqrt(1/2), sqrt 2)
    VL e = bits >> 52;
    VD m = (VD)((bits & 0xfffffffffffff) + 0x3fe6a09e667f3bcd);
    VD t = (m - 1.0) / (m + 1.0), z = t * t;
    VD p = vd_splat(1.0 / 15);
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    p = p * z + 1.0;
    VD lg = t * p * 0x1.71547652b82fep+1 + __builtin_convertvector(e, VD);
    lg = vd_select(x == vd_splat(0), vd_splat(-__builtin_inf()), lg);
    lg = vd_select(x == vd_splat(__builtin_inf()), x, lg);
    VD w = y * lg;
    w = vd_select(w < 300.0, w, vd_splat(300.0)); // NaN too: its result is replaced by the caller
    w = vd_select(w > -300.0, w, vd_splat(-300.0));
    VD k = vd_round(w), f = (w - k) * 0x1.62e42fefa39efp-1;
    VD q = vd_splat(1.0 / 3628800);
    q = q * f + 1.0 / 362880;
    q = q * f + 1.0 / 40320;
    q = q * f + 1.0 / 5040;
    q = q * f + 1.0 / 720;
    q = q * f + 1.0 / 120;
    q = q * f + 1.0 / 24;
    q = q * f + 1.0 / 6;
    q = q * f + 0.5;
    q = q * f + 1.0;
    q = q * f + 1.0;
    return q * (VD)((vd_int(k) + 1023) << 52);
}
INLINE V v_pow(V x, V c) {
    V a = v_abs(x), b = v_abs(c), zero = v_splat(0.0f), one = v_splat(1.0f);
    V y = v_of_doubles(vd_pow_(v_low(a), v_low(c)), vd_pow_(v_high(a), v_high(c)));
    VI small = b < v_splat(0x1p+23f),
       whole_int = __builtin_convertvector(v_select(small, b, zero), VI);
    VI whole = ~small | (v_of_int(whole_int) == b);
    VI odd = whole & -vi_bool(v_select(b < v_splat(0x1p+24f), b, zero) != zero) &
             -(vi_select(small, whole_int, v_bits(b)) &
               vi_splat(1)); // from 2^23 on the last bit counts ones
    VI negative = v_bits(x) < vi_splat(0);
    y = v_of_bits(v_bits(y) | (negative & odd & ~vi_splat(0x7fffffff)));
    VI wrong = ((x < zero) & (a != v_splat(INFINITE)) & ~whole) | (x != x) | (c != c);
    y = v_select(wrong, v_splat(__builtin_nanf("")), y);
    VI unit = (c == zero) | (x == one) | ((a == one) & (b == v_splat(INFINITE)));
    return v_select(unit, one, y);
}
