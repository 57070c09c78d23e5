// SPDX-License-Identifier: Apache-2.0
// Conversions of 8-, 6- and 4-bit floats: every pattern out, every f16 in, and f32 around every
// value and every middle, against a search of the nearest; powers of two at their edges.
#include "tests/vgpu/gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Tiny {
    const char *name;
    int bits, exponent, fraction, apart;
    uint32_t most, nan;
} Tiny;
static const Tiny all[] = {
    { "e4m3x2", 8, 4, 3, 8, 0x7e, 0x7f }, { "e5m2x2", 8, 5, 2, 8, 0x7b, 0x7f },
    { "e3m2x2", 6, 3, 2, 8, 0x1f, 0x1f }, { "e2m3x2", 6, 2, 3, 8, 0x1f, 0x1f },
    { "e2m1x2", 4, 2, 1, 4, 7, 7 },
};

static double value_of(const Tiny *t, uint32_t x) { // of finite patterns
    uint32_t e = x >> t->fraction & ((1u << t->exponent) - 1), m = x & ((1u << t->fraction) - 1);
    int bias = (1 << (t->exponent - 1)) - 1;
    double v = e ? ldexp(m + (1 << t->fraction), (int)e - bias - t->fraction)
                 : ldexp(m, 1 - bias - t->fraction);
    return x >> (t->bits - 1) & 1 ? -v : v;
}

// The nearest pattern, of two as near the even one.
static uint32_t nearest(const Tiny *t, double x, bool relu) {
    uint32_t best = 0, sign = signbit(x) ? 1u << (t->bits - 1) : 0;
    if (x != x) return t->nan;
    if (relu && sign) return 0;
    x = fabs(x);
    if (x > value_of(t, t->most)) return t->most | sign; // saturates
    for (uint32_t k = 1; k <= t->most; k++) {
        double old = fabs(value_of(t, best) - x), now = fabs(value_of(t, k) - x);
        if (now < old || (now == old && !(k & 1))) best = k;
    }
    return best | sign;
}

static float half_value(uint32_t h) {
    uint16_t bits = (uint16_t)h;
    _Float16 v;
    memcpy(&v, &bits, 2);
    return (float)v;
}
static uint32_t half_bits(double v) {
    _Float16 h = (_Float16)v;
    uint16_t bits;
    memcpy(&bits, &h, 2);
    return bits;
}
static uint32_t bits_of(float v) {
    uint32_t u;
    memcpy(&u, &v, 4);
    return u;
}

enum { N = 65536 };
static uint64_t a[N], b[N], d[N];

static void from_halves(Gpu *gpu, const Tiny *t, bool relu) {
    char text[120];
    snprintf(text, sizeof text, "cvt.rn.satfinite%s.%s.f16x2 d, a;", relu ? ".relu" : "", t->name);
    for (uint32_t k = 0; k < N; k++) a[k] = k | (uint64_t)(k * 40503u & 0xffff) << 16, d[k] = 0;
    gpu_op(gpu, &(GpuOp){ text, 2 * t->apart, 32, 0, 0 }, N, a, NULL, NULL, d);
    for (uint32_t k = 0; k < N; k++) {
        uint32_t want = nearest(t, half_value(k), relu) |
                        nearest(t, half_value((uint32_t)(a[k] >> 16)), relu) << t->apart;
        if (d[k] != want)
            fail_msg("%s of %08llx: %02llx, not %02x", text, (unsigned long long)a[k],
                     (unsigned long long)d[k], want);
    }
}

// Around all values and all middles between neighbours, and at the ends of the range.
static void from_floats(Gpu *gpu, const Tiny *t, bool relu) {
    char text[120];
    int n = 0;
    snprintf(text, sizeof text, "cvt.rn.satfinite%s.%s.f32 d, a, b;", relu ? ".relu" : "", t->name);
    for (uint32_t k = 0; k <= t->most; k++)
        for (int half = 0; half < 2; half++)
            for (int step = -1; step <= 1; step++) {
                double v = half ? (value_of(t, k) +
                                   (k < t->most ? value_of(t, k + 1) : 2 * value_of(t, k))) /
                                      2
                                : value_of(t, k);
                float x = step < 0 ? nextafterf((float)v, -INFINITY)
                          : step   ? nextafterf((float)v, INFINITY)
                                   : (float)v;
                a[n++] = bits_of(x), a[n++] = bits_of(-x);
            }
    static const uint32_t ends[] = { 0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff, 0x7f7fffff,
                                     0xff7fffff, 1,          0x80000001, 0x80000000, 0x00800000 };
    for (int k = 0; k < COUNT_OF(ends); k++) a[n++] = ends[k];
    for (int k = 0; k < n; k++) b[k] = a[(k * 7 + 3) % n], d[k] = 0;
    gpu_op(gpu, &(GpuOp){ text, 2 * t->apart, 32, 32, 0 }, n, a, b, NULL, d);
    for (int k = 0; k < n; k++) {
        float x, y;
        memcpy(&x, &a[k], 4), memcpy(&y, &b[k], 4);
        uint32_t want = nearest(t, x, relu) << t->apart | nearest(t, y, relu);
        if (d[k] != want)
            fail_msg("%s of %08llx, %08llx: %02llx, not %02x", text, (unsigned long long)a[k],
                     (unsigned long long)b[k], (unsigned long long)d[k], want);
    }
}

static uint32_t want_half(const Tiny *t, uint32_t x, bool relu) {
    uint32_t magnitude = x & ((1u << (t->bits - 1)) - 1), sign = x >> (t->bits - 1) & 1;
    if (t->bits == 8 && magnitude > t->most) {
        if (magnitude != 0x7c || t->exponent != 5) return 0x7fff;
        return sign ? (relu ? 0 : 0xfc00) : 0x7c00;
    }
    return relu && sign ? 0 : half_bits(value_of(t, x));
}

static void to_halves(Gpu *gpu, const Tiny *t, bool relu) {
    char text[120];
    int n = 1 << 2 * t->bits;
    snprintf(text, sizeof text, "cvt.rn%s.f16x2.%s d, a;", relu ? ".relu" : "", t->name);
    uint32_t low = (1u << t->bits) - 1;
    for (uint32_t k = 0; k < (uint32_t)n; k++)
        a[k] = (k & low) | k >> t->bits << t->apart, d[k] = 0;
    gpu_op(gpu, &(GpuOp){ text, 32, 2 * t->apart, 0, 0 }, n, a, NULL, NULL, d);
    for (uint32_t k = 0; k < (uint32_t)n; k++) {
        uint32_t want = want_half(t, k & low, relu) | want_half(t, k >> t->bits, relu) << 16;
        if (d[k] != want)
            fail_msg("%s of %04llx: %08llx, not %08x", text, (unsigned long long)a[k],
                     (unsigned long long)d[k], want);
    }
}

static void narrow_types(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_100a", 1);
    for (int k = 0; k < COUNT_OF(all); k++)
        for (int relu = 0; relu < 2; relu++) {
            if (k < 2 || !relu) from_halves(&gpu, &all[k], relu);
            from_floats(&gpu, &all[k], relu);
            to_halves(&gpu, &all[k], relu);
        }
    gpu_close(&gpu);
}

static uint32_t power_of(double x, bool up, bool finite) {
    int e;
    if (x != x) return 255;
    x = fabs(x);
    if (isinf(x)) return finite ? 254 : 255;
    if (x <= ldexp(1, -127)) return 0;
    double m = frexp(x, &e); // x = m 2^e, m in [1/2, 1)
    int p = e - 1 + 127 + (up && m != 0.5);
    if (p < 0) p = 0;
    return p > 254 ? (finite ? 254 : 255) : (uint32_t)p;
}

static void powers(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_100a", 1);
    int n = 0;
    for (uint32_t e = 0; e < 256; e++)
        for (int k = 0; k < 6; k++) {
            static const uint32_t fractions[] = { 0, 1, 0x3fffff, 0x400000, 0x400001, 0x7fffff };
            a[n++] = e << 23 | fractions[k] | (uint32_t)(k & 1) << 31;
        }
    for (int k = 0; k < n; k++) b[k] = a[(k * 11 + 5) % n];
    for (int mode = 0; mode < 4; mode++) {
        char text[80];
        snprintf(text, sizeof text, "cvt.%s%s.ue8m0x2.f32 d, a, b;", mode & 1 ? "rp" : "rz",
                 mode & 2 ? ".satfinite" : "");
        memset(d, 0, sizeof d);
        gpu_op(&gpu, &(GpuOp){ text, 16, 32, 32, 0 }, n, a, b, NULL, d);
        for (int k = 0; k < n; k++) {
            float x, y;
            memcpy(&x, &a[k], 4), memcpy(&y, &b[k], 4);
            uint32_t want = power_of(x, mode & 1, mode & 2) << 8 | power_of(y, mode & 1, mode & 2);
            if (d[k] != want)
                fail_msg("%s of %08llx, %08llx: %04llx, not %04x", text, (unsigned long long)a[k],
                         (unsigned long long)b[k], (unsigned long long)d[k], want);
        }
    }
    uint64_t bf[N], r[N] = { 0 };
    for (uint32_t k = 0; k < N; k++) bf[k] = k | (uint64_t)(k * 40503u & 0xffff) << 16;
    gpu_op(&gpu, &(GpuOp){ "cvt.rp.satfinite.ue8m0x2.bf16x2 d, a;", 16, 32, 0, 0 }, N, bf, NULL,
           NULL, r);
    for (uint32_t k = 0; k < N; k++) {
        uint32_t low = (uint32_t)bf[k] << 16, high = (uint32_t)bf[k] & 0xffff0000u;
        float x, y;
        memcpy(&x, &high, 4), memcpy(&y, &low, 4);
        assert_int_equal(r[k], power_of(x, true, true) << 8 | power_of(y, true, true));
    }
    for (uint32_t k = 0; k < N; k++) r[k] = 0;
    gpu_op(&gpu, &(GpuOp){ "cvt.rn.bf16x2.ue8m0x2 d, a;", 32, 16, 0, 0 }, N, bf, NULL, NULL, r);
    for (uint32_t k = 0; k < N; k++)
        for (int half = 0; half < 2; half++) {
            uint32_t e = k >> 8 * half & 255, have = (uint32_t)(r[k] >> 16 * half & 0xffff);
            assert_int_equal(have,
                             e == 255 ? 0x7fff : bits_of((float)ldexp(1, (int)e - 127)) >> 16);
        }
    gpu_close(&gpu);
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *arch, *text, *says;
    } rows[] = {
        { "sm_80", "cvt.rn.satfinite.e4m3x2.f32 h, f, f;", "sm_89" },
        { "sm_90", "cvt.rn.satfinite.e2m1x2.f32 c, f, f;", "sm_100" },
        { "sm_90", "cvt.rn.e4m3x2.f32 h, f, f;", "satfinite" },
        { "sm_100a", "cvt.rn.satfinite.ue8m0x2.f32 h, f, f;", ".rz or .rp" },
        { "sm_90", "cvt.rn.satfinite.e4m3x2.f32 h, f;", "3 operands" },
        { "sm_100a", "cvt.rn.f32.e4m3x2 f, h;", "no such conversion" },
    };
    for (int r = 0; r < COUNT_OF(rows); r++) {
        Gpu gpu = gpu_open(rows[r].arch, 1);
        Text t = { 0 };
        text_printf(&t, ".visible .entry k() { .reg .b16 h; .reg .b8 c; .reg .f32 f; %s ret; }",
                    rows[r].text);
        assert_int_equal(gpu_try_load(&gpu, t.at), ERR_INPUT);
        if (!strstr(status_message(), rows[r].says))
            fail_msg("%s: %s", rows[r].text, status_message());
        text_finish(&t);
        gpu_close(&gpu);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(narrow_types), cmocka_unit_test(powers),
                                        cmocka_unit_test(refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
