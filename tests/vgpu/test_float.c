// SPDX-License-Identifier: Apache-2.0
// Floats over edge values: four roundings against the host's own, flushing, saturation, NaN,
// minimum and maximum, conversions (16 bits exhaustively), approximations within the documented
// bounds.
#include "tests/vgpu/gpu.h"

#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static Gpu gpu;

static const uint32_t edges[] = {
    0, 0x80000000, 1, 0x80000001, 0x7fffff, 0x800000, 0x80800000, 0x33800000, 0x33800001,
    0x3f000000, 0x3f7fffff, 0x3f800000, 0xbf800000, 0x3f800001, 0x3fc00000, 0x40490fdb, 0x4b000000,
    0x4b7fffff, 0xcb000001, 0x4f000000, 0xcf000000, 0x4effffff, 0x4f800000, 0x5f000000, 0xdf000000,
    0x5f800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f800001,
    0x00ffffff, 0x01000001, 0x477fe000, 0x477ff000, 0x38800000, 0x387fc000, 0x33000000, 0x33000001,
    0x42f00000, 0xc2f00000, 0x3dcccccd, 0x7effffff, 0x3e99999a,
};
enum { EDGES = COUNT_OF(edges), PAIRS = EDGES * EDGES };

static float f32(uint64_t u) { uint32_t v = (uint32_t)u; float f; memcpy(&f, &v, 4); return f; }
static uint32_t u32(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
static double f64(uint64_t u) { double f; memcpy(&f, &u, 8); return f; }
static uint64_t u64(double f) { uint64_t u; memcpy(&u, &f, 8); return u; }
static float ftz(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
static bool same32(uint64_t got, float want) {
    return want != want ? got == 0x7fffffff : (uint32_t)got == u32(want);
}

static const struct { const char *name; int mode; } rounds[] = {
    { "rn", FE_TONEAREST }, { "rz", FE_TOWARDZERO }, { "rm", FE_DOWNWARD }, { "rp", FE_UPWARD },
};

typedef float Op32(volatile float a, volatile float b, volatile float c);
#define OP(name, expr) \
    static float name(volatile float a, volatile float b, volatile float c) { \
        (void)a, (void)b, (void)c; \
        return expr; \
    }
OP(o_add, a + b)
OP(o_sub, a - b) OP(o_mul, a *b) OP(o_div, a / b) OP(o_fma, fmaf(a, b, c)) OP(o_sqrt, sqrtf(a))
    OP(o_rcp, 1 / a) static const struct {
    const char *name, *args;
    Op32 *op;
    int n;
    bool sat;
} ops[] = {
    { "add", "d, a, b", o_add, 2, true },  { "sub", "d, a, b", o_sub, 2, true },
    { "mul", "d, a, b", o_mul, 2, true },  { "fma", "d, a, b, c", o_fma, 3, true },
    { "div", "d, a, b", o_div, 2, false }, { "sqrt", "d, a", o_sqrt, 1, false },
    { "rcp", "d, a", o_rcp, 1, false },
};

static void arithmetic(void **state) {
    (void)state;
    static uint64_t a[PAIRS], b[PAIRS], c[PAIRS], d[PAIRS];
    for (int o = 0; o < COUNT_OF(ops); o++)
        for (int r = 0; r < 4; r++)
            for (int f = 0; f < (ops[o].sat ? 4 : 2); f++) {
                char text[80];
                snprintf(text, sizeof text, "%s.%s%s%s.f32 %s;", ops[o].name, rounds[r].name,
                         f & 1 ? ".ftz" : "", f & 2 ? ".sat" : "", ops[o].args);
                for (int k = 0; k < PAIRS; k++)
                    a[k] = edges[k / EDGES], b[k] = edges[k % EDGES],
                    c[k] = edges[(k * 5 + 3) % EDGES], d[k] = 0;
                gpu_op(&gpu, &(GpuOp){ text, 32, 32, ops[o].n > 1 ? 32 : 0, ops[o].n > 2 ? 32 : 0 },
                       PAIRS, a, b, c, d);
                for (int k = 0; k < PAIRS; k++) {
                    float x = f32(a[k]), y = f32(b[k]), z = f32(c[k]);
                    if (f & 1) x = ftz(x), y = ftz(y), z = ftz(z);
                    fesetround(rounds[r].mode);
                    float want = ops[o].op(x, y, z);
                    fesetround(FE_TONEAREST);
                    if (f & 1) want = ftz(want);
                    if (f & 2) want = want > 0 ? want < 1 ? want : 1 : 0;
                    if (!same32(d[k], want))
                        fail_msg("%s a=%llx b=%llx c=%llx: %llx, expected %x", text,
                                 (unsigned long long)a[k], (unsigned long long)b[k],
                                 (unsigned long long)c[k], (unsigned long long)d[k], u32(want));
                }
            }
}

static void double_arithmetic(void **state) {
    (void)state;
    static uint64_t a[PAIRS], b[PAIRS], d[PAIRS];
    for (int r = 0; r < 4; r++) {
        char text[60];
        snprintf(text, sizeof text, "fma.%s.f64 d, a, b, a; div.%s.f64 d, d, b;", rounds[r].name,
                 rounds[r].name);
        for (int k = 0; k < PAIRS; k++) {
            a[k] = u64(f32(edges[k / EDGES]) * 1.1);
            b[k] = (uint64_t)edges[k % EDGES] << 32 | 12345;
            d[k] = 0;
        }
        gpu_op(&gpu, &(GpuOp){ text, 64, 64, 64, 0 }, PAIRS, a, b, NULL, d);
        for (int k = 0; k < PAIRS; k++) {
            volatile double x = f64(a[k]), y = f64(b[k]);
            fesetround(rounds[r].mode);
            volatile double want = fma(x, y, x);
            want = want / y;
            fesetround(FE_TONEAREST);
            if (want != want) assert_int_equal(d[k], 0x7ff8000000000000);
            else assert_int_equal(d[k], u64(want));
        }
    }
}

static float pick(float x, float y, bool max, bool nan) {
    if (x != x || y != y) return nan || (x != x && y != y) ? NAN : x != x ? y : x;
    if (x == y) return signbit(x) == max ? y : x;
    return (x < y) == max ? y : x;
}

static void minimum_and_compare(void **state) {
    (void)state;
    static uint64_t a[PAIRS], b[PAIRS], d[PAIRS];
    static const char *const picks[] = { "min.f32 d, a, b;",     "max.f32 d, a, b;",
                                         "min.NaN.f32 d, a, b;", "max.NaN.f32 d, a, b;",
                                         "min.ftz.f32 d, a, b;", "max.xorsign.abs.f32 d, a, b;" };
    for (int k = 0; k < PAIRS; k++) a[k] = edges[k / EDGES], b[k] = edges[k % EDGES];
    for (int t = 0; t < COUNT_OF(picks); t++) {
        gpu_op(&gpu, &(GpuOp){ picks[t], 32, 32, 32, 0 }, PAIRS, a, b, NULL, d);
        for (int k = 0; k < PAIRS; k++) {
            float x = f32(a[k]), y = f32(b[k]), want;
            if (t == 4) x = ftz(x), y = ftz(y);
            want = t == 5 ? pick(fabsf(x), fabsf(y), true, false)
                          : pick(x, y, t & 1, t == 2 || t == 3);
            if (t == 5 && want == want) want = copysignf(want, signbit(x) != signbit(y) ? -1 : 1);
            if (!same32(d[k], want))
                fail_msg("%s %llx %llx: %llx", picks[t], (unsigned long long)a[k],
                         (unsigned long long)b[k], (unsigned long long)d[k]);
        }
    }
    static const char *const names[] = { "eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                         "neu", "ltu", "leu", "gtu", "geu", "num", "nan" };
    for (int t = 0; t < 14; t++) {
        char text[60];
        snprintf(text, sizeof text, "setp.%s.f32 d, a, b;", names[t]);
        gpu_op(&gpu, &(GpuOp){ text, 1, 32, 32, 0 }, PAIRS, a, b, NULL, d);
        for (int k = 0; k < PAIRS; k++) {
            float x = f32(a[k]), y = f32(b[k]);
            bool nan = x != x || y != y;
            bool base[] = { x == y, x != y && !nan, x < y, x <= y, x > y, x >= y };
            bool want = t < 6 ? base[t] : t < 12 ? base[t - 6] || nan : t == 12 ? !nan : nan;
            if (d[k] != want)
                fail_msg("%s %llx %llx: %llu", text, (unsigned long long)a[k],
                         (unsigned long long)b[k], (unsigned long long)d[k]);
        }
    }
}

// Every 16-bit value widens to what its definition says; between two neighbours the middle goes to
// the even one and what is next to the middle to the nearer.
static double half_value(uint32_t h, int mant, int bias) {
    int e = (int)(h & 0x7fff) >> mant;
    double m = h & ((1 << mant) - 1),
           v = e ? ldexp(1 + m / (1 << mant), e - bias) : ldexp(m / (1 << mant), 1 - bias);
    return h & 0x8000 ? -v : v;
}
static void sixteen_bits(void **state) {
    (void)state;
    enum { N = 65536 };
    uint64_t *a = calloc(N * 3, 8), *d = calloc(N * 3, 8);
    for (int bf = 0; bf < 2; bf++) {
        int mant = bf ? 7 : 10, bias = bf ? 127 : 15;
        uint32_t inf = bf ? 0x7f80 : 0x7c00;
        for (int k = 0; k < N; k++) a[k] = (uint64_t)k;
        gpu_op(&gpu, &(GpuOp){ bf ? "cvt.f32.bf16 d, a;" : "cvt.f32.f16 d, a;", 32, 16, 0, 0 }, N,
               a, NULL, NULL, d);
        for (uint32_t k = 0; k < N; k++) {
            uint32_t h = k & 0x7fff;
            if (h > inf) assert_int_equal(d[k], 0x7fffffff);
            else if (h == inf) assert_int_equal(d[k], k & 0x8000 ? 0xff800000 : 0x7f800000);
            else assert_int_equal(d[k], u32((float)half_value(k, mant, bias)));
        }
        int n = 0;
        for (uint32_t h = 0; h + 1 < inf; h++) {
            float low = (float)half_value(h, mant, bias),
                  high = (float)half_value(h + 1, mant, bias);
            float middle = (float)(((double)low + high) / 2);
            a[n++] = u32(middle);
            a[n++] = u32(nextafterf(middle, 0));
            a[n++] = u32(-nextafterf(middle, INFINITY));
        }
        gpu_op(&gpu,
               &(GpuOp){ bf ? "cvt.rn.bf16.f32 d, a;" : "cvt.rn.f16.f32 d, a;", 16, 32, 0, 0 }, n,
               a, NULL, NULL, d);
        for (int k = 0; k < n; k += 3) {
            uint32_t h = (uint32_t)k / 3;
            if (bf && h < 1) continue; // the middle itself is no f32
            assert_int_equal(d[k], h + (h & 1));
            assert_int_equal(d[k + 1], h);
            assert_int_equal(d[k + 2], (h + 1) | 0x8000);
        }
        gpu_op(&gpu,
               &(GpuOp){ bf ? "cvt.rz.bf16.f32 d, a;" : "cvt.rz.f16.f32 d, a;", 16, 32, 0, 0 }, n,
               a, NULL, NULL, d);
        for (int k = 0; k < n; k += 3) assert_int_equal(d[k + 2], (uint32_t)k / 3 | 0x8000);
    }
    static const struct { const char *text; uint32_t a, b, want;
    } pairs[] = {
        { "cvt.rn.bf16x2.f32 d, a, b;", 0x3f800000, 0x40000000, 0x3f804000 },
        { "cvt.rn.f16x2.f32 d, a, b;", 0x3f800000, 0xc7800000, 0x3c00fc00 },
        { "cvt.rn.satfinite.f16x2.f32 d, a, b;", 0x7f800000, 0xc7800000, 0x7bfffbff },
        { "cvt.rn.relu.bf16x2.f32 d, a, b;", 0xbf800000, 0x7fc00000, 0x00007fff },
        { "cvt.rn.bf16x2.f32 d, a, b;", 0x7f7fffff, 0xffffffff, 0x7f807fff },
        { "cvt.rna.tf32.f32 d, a;", 0x3f801000, 0, 0x3f802000 },
        { "cvt.rna.tf32.f32 d, a;", 0x3f800fff, 0, 0x3f800000 },
    };
    for (int k = 0; k < COUNT_OF(pairs); k++) {
        a[0] = pairs[k].a, a[1] = pairs[k].b;
        gpu_op(&gpu, &(GpuOp){ pairs[k].text, 32, 32, 32, 0 }, 1, a, a + 1, NULL, d);
        if (d[0] != pairs[k].want)
            fail_msg("%s: %llx, expected %x", pairs[k].text, (unsigned long long)d[0],
                     pairs[k].want);
    }
    free(a);
    free(d);
}

static void
half_arithmetic(void **state) { // f16 through exact doubles; fma where two roundings differ
    (void)state;
    enum { N = 4096 };
    static uint64_t a[N], b[N], c[N], d[N];
    static const char *const texts[] = { "add.f16 d, a, b;", "mul.f16 d, a, b;",
                                         "fma.rn.f16 d, a, b, c;" };
    for (int t = 0; t < 3; t++) {
        for (uint32_t k = 0; k < N; k++) {
            a[k] = hash_mix(1, k, 0) & 0xbfff, b[k] = hash_mix(2, k, 0) & 0xbfff,
            c[k] = hash_mix(3, k, 0) & 0xbfff;
            if (k < 64)
                a[k] = 0x0400 + k, b[k] = 0x3c01,
                c[k] = 0x7bff; // product far below the sum's last bit
        }
        gpu_op(&gpu, &(GpuOp){ texts[t], 16, 16, 16, 16 }, N, a, b, c, d);
        for (int k = 0; k < N; k++) {
            // Sums and products of two are exact here; an x87 fma has 64 bits, enough below 2^15.
            long double x = half_value((uint32_t)a[k], 10, 15),
                        y = half_value((uint32_t)b[k], 10, 15),
                        z = half_value((uint32_t)c[k], 10, 15);
            long double want = t == 0 ? x + y : t == 1 ? x * y : x * y + z, best = INFINITY;
            if (fabsl(want) >= 65520) {
                assert_int_equal(d[k], want < 0 ? 0xfc00 : 0x7c00);
                continue;
            }
            long double got = half_value((uint32_t)d[k], 10, 15);
            for (int s = -1; s <= 1; s++) { // no neighbour is nearer, and of two the even one
                uint32_t h = (uint32_t)d[k] + (uint32_t)s;
                if ((h & 0x7fff) > 0x7c00 || (h ^ d[k]) & 0x8000) continue;
                long double near = fabsl(half_value(h, 10, 15) - want);
                if (near < best) best = near;
                if (s && near == fabsl(got - want)) assert_int_equal(d[k] & 1, 0);
            }
            assert_true(fabsl(got - want) == best);
        }
    }
}

static void to_integers(void **state) {
    (void)state;
    static uint64_t a[EDGES], d[EDGES];
    static const struct { const char *text; int bits; bool sign; int mode;
    } rows[] = {
        { "cvt.rzi.s32.f32 d, a;", 32, true, FE_TOWARDZERO },
        { "cvt.rni.s32.f32 d, a;", 32, true, FE_TONEAREST },
        { "cvt.rmi.s32.f32 d, a;", 32, true, FE_DOWNWARD },
        { "cvt.rpi.u32.f32 d, a;", 32, false, FE_UPWARD },
        { "cvt.rzi.u64.f32 d, a;", 64, false, FE_TOWARDZERO },
        { "cvt.rzi.s64.f32 d, a;", 64, true, FE_TOWARDZERO },
        { "cvt.rzi.s16.f32 d, a;", 16, true, FE_TOWARDZERO },
        { "cvt.rni.u16.f32 d, a;", 16, false, FE_TONEAREST },
    };
    for (int k = 0; k < EDGES; k++) a[k] = edges[k];
    for (int r = 0; r < COUNT_OF(rows); r++) {
        gpu_op(&gpu, &(GpuOp){ rows[r].text, rows[r].bits, 32, 0, 0 }, EDGES, a, NULL, NULL, d);
        for (int k = 0; k < EDGES; k++) {
            float x = f32(a[k]);
            fesetround(rows[r].mode);
            long double v = rintl(x);
            fesetround(FE_TONEAREST);
            long double high = ldexpl(1, rows[r].bits - rows[r].sign),
                        low = rows[r].sign ? -high : 0;
            uint64_t mask = rows[r].bits == 64 ? ~0ull : (1ull << rows[r].bits) - 1, want;
            if (x != x) want = rows[r].bits == 64 ? 1ull << 63 : 0;
            else if (v >= high) want = mask >> rows[r].sign;
            else if (v < low) want = rows[r].sign ? (mask >> 1) + 1 : 0;
            else want = rows[r].sign ? (uint64_t)(int64_t)v & mask : (uint64_t)v;
            if (d[k] != want)
                fail_msg("%s %llx: %llx, expected %llx", rows[r].text, (unsigned long long)a[k],
                         (unsigned long long)d[k], (unsigned long long)want);
        }
    }
    static const uint64_t ints[] = {
    0, 1, 0xffffffffffffffff, 0x7fffffffffffffff, 0x8000000000000000, 0x1000001, 0x1000003,
    0xffffff80, 0x7fffffff, 0x80000000, 0x8000008000000001, 0x20000000000001,
};
    for (int r = 0; r < 4; r++)
        for (int sign = 0; sign < 2; sign++) {
            char text[60];
            uint64_t v[COUNT_OF(ints)], out[COUNT_OF(ints)];
            snprintf(text, sizeof text, "cvt.%s.f32.%c64 d, a;", rounds[r].name, sign ? 's' : 'u');
            memcpy(v, ints, sizeof v);
            gpu_op(&gpu, &(GpuOp){ text, 32, 64, 0, 0 }, COUNT_OF(ints), v, NULL, NULL, out);
            for (int k = 0; k < COUNT_OF(ints); k++) {
                fesetround(rounds[r].mode);
                volatile long double exact =
                    sign ? (long double)(int64_t)ints[k] : (long double)ints[k];
                volatile float want = (float)exact;
                fesetround(FE_TONEAREST);
                assert_int_equal(out[k], u32(want));
            }
        }
    static const struct { const char *text; int d, a; uint64_t in, out;
    } exact[] = {
        { "cvt.s32.s8 d, a;", 32, 32, 0x180, 0xffffff80 },
        { "cvt.u32.u8 d, a;", 32, 32, 0x180, 0x80 },
        { "cvt.s64.s32 d, a;", 64, 32, 0x80000000, 0xffffffff80000000 },
        { "cvt.u64.u32 d, a;", 64, 32, 0x80000000, 0x80000000 },
        { "cvt.sat.s8.s32 d, a;", 32, 32, 300, 127 },
        { "cvt.sat.u8.s32 d, a;", 32, 32, 0xfffffff0, 0 },
        { "cvt.sat.u32.s64 d, a;", 32, 64, 0x100000000, 0xffffffff },
        { "cvt.sat.s32.u64 d, a;", 32, 64, ~0ull, 0x7fffffff },
        { "cvt.u16.u32 d, a;", 16, 32, 0x12345678, 0x5678 },
        { "cvt.rn.f16.s32 d, a;", 16, 32, 2049, 0x6800 },
        { "cvt.rni.f32.f32 d, a;", 32, 32, 0x40200000, 0x40000000 },
        { "cvt.sat.f32.f32 d, a;", 32, 32, 0x40200000, 0x3f800000 },
        { "cvt.rn.f32.f64 d, a;", 32, 64, 0x3ff0000010000000, 0x3f800000 },
        { "cvt.rp.f32.f64 d, a;", 32, 64, 0x3ff0000010000000, 0x3f800001 },
        { "cvt.ftz.f64.f32 d, a;", 64, 32, 0x80000001, 0x8000000000000000 },
        { "cvt.rn.f32.f64 d, a;", 32, 64, 0x3690000000000000, 0 },
    };
    for (int k = 0; k < COUNT_OF(exact); k++) {
        uint64_t in = exact[k].in, out = 0;
        gpu_op(&gpu, &(GpuOp){ exact[k].text, exact[k].d, exact[k].a, 0, 0 }, 1, &in, NULL, NULL,
               &out);
        if (out != exact[k].out)
            fail_msg("%s %llx: %llx", exact[k].text, (unsigned long long)in,
                     (unsigned long long)out);
    }
}

static void approximations(void **state) {
    (void)state;
    enum { N = 20000 };
    uint64_t *a = calloc(N, 8), *d = calloc(N, 8);
    // Relative and absolute bounds: the tighter ones of what we promise (correct rounding but for
    // ties).
    static const struct { const char *text; double (*of)(double); double low, high;
    } rows[] = {
        { "ex2.approx.f32 d, a;", exp2, -126, 127 }, { "lg2.approx.f32 d, a;", log2, 1e-30, 1e30 },
        { "sin.approx.f32 d, a;", sin, -300, 300 },  { "cos.approx.f32 d, a;", cos, -300, 300 },
        { "tanh.approx.f32 d, a;", tanh, -10, 10 },  { "sqrt.approx.f32 d, a;", sqrt, 0, 1e20 },
    };
    for (int r = 0; r < COUNT_OF(rows); r++) {
        for (int k = 0; k < N; k++) {
            double u = hash_uniform(7, (uint64_t)r, (uint64_t)k);
            a[k] = u32((float)(rows[r].low > 0
                                   ? exp(log(rows[r].low) + u * log(rows[r].high / rows[r].low))
                                   : rows[r].low + u * (rows[r].high - rows[r].low)));
        }
        gpu_op(&gpu, &(GpuOp){ rows[r].text, 32, 32, 0, 0 }, N, a, NULL, NULL, d);
        for (int k = 0; k < N; k++) {
            double want = rows[r].of(f32(a[k])), got = f32(d[k]);
            if (fabs(got - want) > fabs(want) * 0x1.01p-24 + 0x1p-149)
                fail_msg("%s %a: %a, expected %a", rows[r].text, f32(a[k]), got, want);
        }
    }
    static const struct { const char *text; uint32_t in, out;
    } special[] = {
        { "ex2.approx.f32 d, a;", 0xff800000, 0 },
        { "ex2.approx.f32 d, a;", 0x7f800000, 0x7f800000 },
        { "ex2.approx.f32 d, a;", 0xc3150000, 1 },
        { "ex2.approx.ftz.f32 d, a;", 0xc3150000, 0 },
        { "lg2.approx.f32 d, a;", 0, 0xff800000 },
        { "lg2.approx.f32 d, a;", 0xbf800000, 0x7fffffff },
        { "lg2.approx.ftz.f32 d, a;", 1, 0xff800000 },
        { "lg2.approx.f32 d, a;", 1, 0xc3150000 },
        { "sin.approx.f32 d, a;", 0x7f800000, 0x7fffffff },
        { "sin.approx.f32 d, a;", 0x80000000, 0x80000000 },
        { "cos.approx.f32 d, a;", 0, 0x3f800000 },
        { "rcp.approx.f32 d, a;", 0x80000000, 0xff800000 },
        { "rcp.approx.ftz.f32 d, a;", 1, 0x7f800000 },
        { "rsqrt.approx.f32 d, a;", 0, 0x7f800000 },
        { "rsqrt.approx.f32 d, a;", 0xbf800000, 0x7fffffff },
        { "tanh.approx.f32 d, a;", 0xff800000, 0xbf800000 },
        { "tanh.approx.f32 d, a;", 0x80000000, 0x80000000 },
    };
    for (int k = 0; k < COUNT_OF(special); k++) {
        a[0] = special[k].in;
        gpu_op(&gpu, &(GpuOp){ special[k].text, 32, 32, 0, 0 }, 1, a, NULL, NULL, d);
        if (d[0] != special[k].out)
            fail_msg("%s %x: %llx, expected %x", special[k].text, special[k].in,
                     (unsigned long long)d[0], special[k].out);
    }
    free(a);
    free(d);
}

static int setup(void **state) { (void)state; gpu = gpu_open("sm_80", 1); return 0; }
static int teardown(void **state) { (void)state; gpu_close(&gpu); return 0; }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arithmetic),          cmocka_unit_test(double_arithmetic),
        cmocka_unit_test(minimum_and_compare), cmocka_unit_test(sixteen_bits),
        cmocka_unit_test(half_arithmetic),     cmocka_unit_test(to_integers),
        cmocka_unit_test(approximations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
