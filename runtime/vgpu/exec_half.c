// SPDX-License-Identifier: Apache-2.0
// f16, bf16 and their pairs.
//
// Values are widened exactly, computed, and rounded once. Sums and products of two are exact enough
// in f32 (24 bits hold 2 x 11 + 2); fma goes through double with the sum rounded to odd, so that
// the final rounding is the only one.
#include "runtime/vgpu/exec.h"
#include "runtime/vgpu/narrow.h"

HANDLER_OUT(vg_half_widen) { // imm: flush subnormals of f16
    const uint32_t *a = SLOT(const uint32_t, a);
    MAP(float, half_to_float(i->imm && !(a[l] & 0x7c00) ? a[l] & 0x8000 : a[l]));
}
HANDLER_OUT(vg_bf16_widen) {
    const uint32_t *a = SLOT(const uint32_t, a);
    MAP(float, bf16_to_float(a[l]));
}

// Flags of imm.
#define FTZ 1
#define SAT 2
#define RELU 4
#define NAN_WINS 8
#define XORSIGN 16

static inline float in_f16(uint32_t h, int flags) {
    if (flags & FTZ && !(h & 0x7c00)) h &= 0x8000;
    return half_to_float(h & 0xffff);
}
static inline float in_bf16(uint32_t h, int flags) {
    (void)flags;
    return bf16_to_float(h & 0xffff);
}
static inline uint32_t out_16(double x, int flags, int mant, int bias) {
    if (flags & SAT) x = x > 0 ? (x < 1 ? x : 1) : 0;
    if (flags & RELU && !(x > 0) && x == x) x = 0;
    uint32_t h = narrow_float(x, mant, bias, VG_RN, false);
    if (flags & FTZ && bias == 15 && !(h & 0x7c00)) h &= 0x8000;
    return h;
}
static inline uint32_t out_f16(double x, int flags) { return out_16(x, flags, 10, 15); }
static inline uint32_t out_bf16(double x, int flags) { return out_16(x, flags, 7, 127); }

// x * y + z with x * y exact in double: the sum, its last bit set when it is inexact.
static inline double fma_odd(float x, float y, float z) {
    double product = (double)x * y, sum = product + z;
    double back = sum - product, error = (product - (sum - back)) + (z - back);
    uint64_t u = as_u64(sum);
    if (error == 0 || sum - sum != 0 || u & 1) return sum;
    bool away = (error > 0) == (sum > 0);
    return as_f64(away ? u + 1 : u - 1);
}

static inline float pick16(float x, float y, bool max, int flags) {
    if (flags & XORSIGN) {
        uint32_t sign = (as_u32(x) ^ as_u32(y)) & 0x80000000;
        float r = pick16(as_f32(as_u32(x) & 0x7fffffff), as_f32(as_u32(y) & 0x7fffffff), max,
                         flags & ~XORSIGN);
        return r == r ? as_f32(as_u32(r) | sign) : r;
    }
    if (x != x || y != y)
        return flags & NAN_WINS || (x != x && y != y) ? as_f32(0x7fffffff) : x != x ? y : x;
    if (x == y) return (as_u32(x) >> 31 != 0) == max ? y : x; // zeros
    return (x < y) == max ? y : x;
}

// OPERATION(name, expression of x y z): for f16, bf16 and pairs of both.
#define LOOP(T, EXPR)                                                                              \
    uint32_t m = VG_MASK(i, w, f);                                                                 \
    uint32_t *d = SLOT(uint32_t, d);                                                               \
    int flags = (int)i->imm;                                                                       \
    (void)flags;                                                                                   \
    for (int l = 0; l < 32; l++) {                                                                 \
        uint32_t r = (EXPR);                                                                       \
        d[l] = m >> l & 1 ? r : d[l];                                                              \
    }                                                                                              \
    VG_NEXT(i, w, f)
#define HALF2(name, in, out, EXPR) \
    static inline uint32_t name##_one(uint32_t a, uint32_t b, int flags) { \
        float x = in(a, flags), y = in(b, flags); \
        return out(EXPR, flags); \
    } \
    HANDLER(name) { \
        const uint32_t *a = SLOT(const uint32_t, a), *b = SLOT(const uint32_t, b); \
        LOOP(uint32_t, name##_one(a[l], b[l], flags)); \
    } \
    HANDLER(name##x2) { \
        const uint32_t *a = SLOT(const uint32_t, a), *b = SLOT(const uint32_t, b); \
        LOOP(uint32_t, name##_one(a[l], b[l], flags) | name##_one(a[l] >> 16, b[l] >> 16, flags) \
                                                           << 16); \
    }
#define BOTH2(name, EXPR) \
    HALF2(name##_f16, in_f16, out_f16, EXPR) HALF2(name##_bf16, in_bf16, out_bf16, EXPR)
BOTH2(add, (double)x + y)
BOTH2(sub, (double)x - y)
BOTH2(mul, (double)x * y)
BOTH2(min, pick16(x, y, false, flags))
BOTH2(max, pick16(x, y, true, flags))

#define HALF3(name, in, out, EXPR) \
    static inline uint32_t name##_one(uint32_t a, uint32_t b, uint32_t c, int flags) { \
        float x = in(a, flags), y = in(b, flags), z = in(c, flags); \
        return out(EXPR, flags); \
    } \
    HANDLER(name) { \
        const uint32_t *a = SLOT(const uint32_t, a), *b = SLOT(const uint32_t, b), \
                       *c = SLOT(const uint32_t, c); \
        LOOP(uint32_t, name##_one(a[l], b[l], c[l], flags)); \
    } \
    HANDLER(name##x2) { \
        const uint32_t *a = SLOT(const uint32_t, a), *b = SLOT(const uint32_t, b), \
                       *c = SLOT(const uint32_t, c); \
        LOOP(uint32_t, name##_one(a[l], b[l], c[l], flags) | \
                           name##_one(a[l] >> 16, b[l] >> 16, c[l] >> 16, flags) << 16); \
    }
HALF3(fma_f16, in_f16, out_f16, fma_odd(x, y, z))
HALF3(fma_bf16, in_bf16, out_bf16, fma_odd(x, y, z))

// Signs are bits; .ftz of abs and neg flushes.
static inline uint32_t flush_h(uint32_t h, int flags) {
    return flags & FTZ && !(h & 0x7c00) ? h & 0x8000 : h;
}
HANDLER(abs_16) {
    const uint32_t *a = SLOT(const uint32_t, a);
    LOOP(uint32_t, flush_h(a[l] & 0xffff, flags) & 0x7fff);
}
HANDLER(abs_16x2) {
    const uint32_t *a = SLOT(const uint32_t, a);
    LOOP(uint32_t, (flush_h(a[l] & 0xffff, flags) | flush_h(a[l] >> 16, flags) << 16) & 0x7fff7fff);
}
HANDLER(neg_16) {
    const uint32_t *a = SLOT(const uint32_t, a);
    LOOP(uint32_t, flush_h(a[l] & 0xffff, flags) ^ 0x8000);
}
HANDLER(neg_16x2) {
    const uint32_t *a = SLOT(const uint32_t, a);
    LOOP(uint32_t, (flush_h(a[l] & 0xffff, flags) | flush_h(a[l] >> 16, flags) << 16) ^ 0x80008000);
}

// Approximations: through the f32 ones, rounded once more (their error bounds are far wider).
static inline uint32_t approx_one(uint32_t h, int flags, bool bf16, bool tanh) {
    float x = bf16 ? in_bf16(h, 0) : in_f16(h, flags);
    float r = tanh ? VG_NAME(vg_tanh)(x) : VG_NAME(vg_exp2)(x);
    return bf16 ? out_bf16(r, 0) : out_f16(r, flags);
}
#define APPROX(name, bf16, tanh) \
    HANDLER(name) { \
        const uint32_t *a = SLOT(const uint32_t, a); \
        LOOP(uint32_t, approx_one(a[l], flags, bf16, tanh)); \
    } \
    HANDLER(name##x2) { \
        const uint32_t *a = SLOT(const uint32_t, a); \
        LOOP(uint32_t, approx_one(a[l], flags, bf16, tanh) | \
                           approx_one(a[l] >> 16, flags, bf16, tanh) << 16); \
    }
APPROX(ex2_f16, false, false)
APPROX(ex2_bf16, true, false)
APPROX(tanh_f16, false, true)
APPROX(tanh_bf16, true, true)

/* comparison of pairs --------------------------------------------- */

HANDLER(pair_part) { // imm: 0 low, 1 high; | 2 bf16; | 4 ftz
    const uint32_t *a = SLOT(const uint32_t, a);
    int flags = i->imm & 4 ? FTZ : 0;
    MAP(float, i->imm & 2 ? in_bf16(i->imm & 1 ? a[l] >> 16 : a[l], 0)
                          : in_f16(i->imm & 1 ? a[l] >> 16 : a[l], flags));
}

Status VG_NAME(vg_compare_pair)(VgDecoder *d, const PtxInstr *p, PtxType type, int comparison,
                                bool ftz, int op, const uint32_t to[2]) {
    uint32_t a, b, c = 0;
    bool negate = false;
    VgHandler compare = VG_NAME(vg_comparer)(PTX_F32, comparison, false);
    if (!compare) return vg_bad(d, "no such comparison");
    TRY(vg_src(d, &p->operands[1], 32, &a));
    TRY(vg_src(d, &p->operands[2], 32, &b));
    if (op) TRY(vg_pred(d, &p->operands[3], &c, &negate));
    for (int k = 0; k < 2; k++) {
        uint32_t part[2] = { vg_temp(d, 32), vg_temp(d, 32) };
        for (int n = 0; n < 2; n++) {
            VgInstr *i = vg_emit(d, pair_part);
            i->d = part[n], i->a = n ? b : a;
            i->imm = k | (type == PTX_BF16X2 ? 2 : 0) | (ftz ? 4 : 0);
        }
        VgInstr *i = vg_emit(d, compare);
        i->d = to[k], i->a = part[0], i->b = part[1], i->c = c;
        i->imm = op | (op && negate ? 4 : 0);
    }
    return OK;
}

/* forms ---------------------------------------------------------------------------------------- */

#define F(root, mods, run, imm, ...) { root, mods, run, { __VA_ARGS__ }, imm, 1 }
#define F2(root, pre, post, name, imm)                                                             \
    F(root, pre "f16" post, name##_f16, imm, 16, 16, 16),                                          \
    F(root, pre "f16x2" post, name##_f16x2, imm, 32, 32, 32),                                      \
    F(root, pre "bf16" post, name##_bf16, (imm) & ~FTZ, 16, 16, 16),                               \
    F(root, pre "bf16x2" post, name##_bf16x2, (imm) & ~FTZ, 32, 32, 32)
#define F3(pre, imm) \
    F("fma", pre "f16", fma_f16, imm, 16, 16, 16, 16), \
        F("fma", pre "f16x2", fma_f16x2, imm, 32, 32, 32, 32), \
        F("fma", pre "bf16", fma_bf16, (imm) & ~FTZ, 16, 16, 16, 16), \
        F("fma", pre "bf16x2", fma_bf16x2, (imm) & ~FTZ, 32, 32, 32, 32)
#define ARITH(root, name) \
    F2(root, "", "", name, 0), F2(root, "rn.", "", name, 0), F2(root, "ftz.", "", name, FTZ), \
        F2(root, "rn.ftz.", "", name, FTZ), F2(root, "sat.", "", name, SAT), \
        F2(root, "rn.sat.", "", name, SAT), F2(root, "ftz.sat.", "", name, FTZ | SAT), \
        F2(root, "rn.ftz.sat.", "", name, FTZ | SAT)
#define PICK(root, name) \
    F2(root, "", "", name, 0), F2(root, "ftz.", "", name, FTZ), \
        F2(root, "NaN.", "", name, NAN_WINS), F2(root, "ftz.NaN.", "", name, FTZ | NAN_WINS), \
        F2(root, "xorsign.abs.", "", name, XORSIGN), \
        F2(root, "NaN.xorsign.abs.", "", name, NAN_WINS | XORSIGN)

const VgForm VG_NAME(vg_forms_half)[] = {
    ARITH("add", add),
    ARITH("sub", sub),
    ARITH("mul", mul),
    PICK("min", min),
    PICK("max", max),
    F3("rn.", 0),
    F3("rn.ftz.", FTZ),
    F3("rn.sat.", SAT),
    F3("rn.ftz.sat.", FTZ | SAT),
    F3("rn.relu.", RELU),
    F3("rn.ftz.relu.", FTZ | RELU),
    F("abs", "f16", abs_16, 0, 16, 16),
    F("abs", "ftz.f16", abs_16, FTZ, 16, 16),
    F("abs", "bf16", abs_16, 0, 16, 16),
    F("abs", "f16x2", abs_16x2, 0, 32, 32),
    F("abs", "ftz.f16x2", abs_16x2, FTZ, 32, 32),
    F("abs", "bf16x2", abs_16x2, 0, 32, 32),
    F("neg", "f16", neg_16, 0, 16, 16),
    F("neg", "ftz.f16", neg_16, FTZ, 16, 16),
    F("neg", "bf16", neg_16, 0, 16, 16),
    F("neg", "f16x2", neg_16x2, 0, 32, 32),
    F("neg", "ftz.f16x2", neg_16x2, FTZ, 32, 32),
    F("neg", "bf16x2", neg_16x2, 0, 32, 32),
    F("ex2", "approx.f16", ex2_f16, 0, 16, 16),
    F("ex2", "approx.f16x2", ex2_f16x2, 0, 32, 32),
    F("ex2", "approx.ftz.f16", ex2_f16, FTZ, 16, 16),
    F("ex2", "approx.ftz.f16x2", ex2_f16x2, FTZ, 32, 32),
    F("ex2", "approx.ftz.bf16", ex2_bf16, 0, 16, 16),
    F("ex2", "approx.ftz.bf16x2", ex2_bf16x2, 0, 32, 32),
    F("tanh", "approx.f16", tanh_f16, 0, 16, 16),
    F("tanh", "approx.f16x2", tanh_f16x2, 0, 32, 32),
    F("tanh", "approx.bf16", tanh_bf16, 0, 16, 16),
    F("tanh", "approx.bf16x2", tanh_bf16x2, 0, 32, 32),
    { 0 },
};
