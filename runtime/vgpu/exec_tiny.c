// SPDX-License-Identifier: Apache-2.0
// Conversions to and from floats of 8, 6 and 4 bits, two at a time: the first operand, or the upper
// half, is the upper element.
//
// Into a narrow type: one rounding to nearest from f32 or f16, saturating; NaN stays NaN where
// there is one, else becomes the largest value. ue8m0 is a power of two, rounded to zero or up, its
// sign lost.
#include "runtime/vgpu/tiny.h"

typedef struct Narrow {
    PtxType type;
    int exponent, fraction;
    uint32_t most, nan;
    int apart;
} Narrow;
static const Narrow narrow[] = {
    // apart: bits from one element to the next
    { PTX_E4M3X2, 4, 3, 0x7e, 0x7f, 8 }, { PTX_E5M2X2, 5, 2, 0x7b, 0x7f, 8 },
    { PTX_E3M2X2, 3, 2, 0x1f, 0x1f, 8 }, { PTX_E2M3X2, 2, 3, 0x1f, 0x1f, 8 },
    { PTX_E2M1X2, 2, 1, 0x07, 0x07, 4 },
};

static uint32_t encode(float x, const Narrow *n, bool relu) {
    uint32_t u = as_u32(x), sign = u >> 31;
    int bias = (1 << (n->exponent - 1)) - 1, e = (int)(u >> 23 & 255) - 127;
    if (x != x) return n->nan;
    if (relu && sign) return 0;
    if (e < 1 - bias) e = 1 - bias;
    double lsb = as_f64((uint64_t)(1023 + e - n->fraction) << 52);
    double r = __builtin_rint((double)as_f32(u & 0x7fffffff) / lsb);
    uint32_t bits = e > 100 ? n->most : (uint32_t)r + ((uint32_t)(e + bias - 1) << n->fraction);
    if (bits > n->most) bits = n->most;
    return bits | sign << (n->exponent + n->fraction);
}

static uint32_t encode_power(float x, bool up, bool finite) {
    uint32_t u = as_u32(x) & 0x7fffffff, e = u >> 23, m = u & 0x7fffff;
    if (u > 0x7f800000) return 255;
    if (up && e < 255) e += e ? m != 0 : m > 0x400000;
    return e == 255 && finite ? 254 : e;
}

static float decode_value(PtxType type, uint32_t x) {
    switch (type) {
    case PTX_E4M3X2: return e4m3_to_float(x);
    case PTX_E5M2X2: return e5m2_to_float(x);
    case PTX_E3M2X2: return e3m2_to_float(x & 63);
    case PTX_E2M3X2: return e2m3_to_float(x & 63);
    default: return e2m1_to_float(x & 15);
    }
}

static uint32_t to_half(float v, bool relu) {
    if (v != v) return 0x7fff;
    return relu && as_u32(v) >> 31 ? 0 : _cvtss_sh(v, _MM_FROUND_TO_NEAREST_INT);
}

// Elements of a lane: two registers of f32, or the halves of one.
static void lane_values(const VgInstr *i, const char *f, int l, PtxType from, float *upper,
                        float *lower) {
    uint32_t a = ((const uint32_t *)(f + i->a))[l];
    if (from == PTX_F32)
        *upper = as_f32(a), *lower = as_f32(((const uint32_t *)(f + i->b))[l]);
    else if (from == PTX_BF16X2)
        *upper = bf16_to_float(a >> 16), *lower = bf16_to_float(a & 0xffff);
    else
        *upper = half_to_float(a >> 16), *lower = half_to_float(a & 0xffff);
}

// imm: index in `narrow` | relu << 8 | PtxType of the source << 16. b = 0: halves of a.
HANDLER(to_narrow) {
    const Narrow *n = &narrow[i->imm & 255];
    bool relu = i->imm >> 8 & 1;
    PtxType from = (PtxType)(i->imm >> 16);
    uint32_t m = VG_MASK(i, w, f), *d = SLOT(uint32_t, d), r[32];
    for (int l = 0; l < 32; l++) {
        float upper, lower;
        lane_values(i, f, l, from, &upper, &lower);
        r[l] = encode(upper, n, relu) << n->apart | encode(lower, n, relu);
    }
    for (int l = 0; l < 32; l++) d[l] = m >> l & 1 ? r[l] : d[l];
    VG_NEXT(i, w, f);
}

// imm: up | finite << 1 | PtxType of the source << 16.
HANDLER(to_powers) {
    PtxType from = (PtxType)(i->imm >> 16);
    bool up = i->imm & 1, finite = i->imm & 2;
    uint32_t m = VG_MASK(i, w, f), *d = SLOT(uint32_t, d), r[32];
    for (int l = 0; l < 32; l++) {
        float upper, lower;
        lane_values(i, f, l, from, &upper, &lower);
        r[l] = encode_power(upper, up, finite) << 8 | encode_power(lower, up, finite);
    }
    for (int l = 0; l < 32; l++) d[l] = m >> l & 1 ? r[l] : d[l];
    VG_NEXT(i, w, f);
}

// imm: as to_narrow, the source's index.
HANDLER(from_narrow) {
    const Narrow *n = &narrow[i->imm & 255];
    bool relu = i->imm >> 8 & 1;
    const uint32_t *a = SLOT(const uint32_t, a);
    MAP(uint32_t, to_half(decode_value(n->type, a[l] >> n->apart & ((1u << n->apart) - 1)), relu)
                          << 16 |
                      to_half(decode_value(n->type, a[l] & ((1u << n->apart) - 1)), relu));
}

HANDLER(from_powers) {
    const uint32_t *a = SLOT(const uint32_t, a);
    MAP(uint32_t, (as_u32(ue8m0_to_float(a[l] >> 8 & 255)) & 0xffff0000u) |
                      as_u32(ue8m0_to_float(a[l] & 255)) >> 16);
}

/* decoding ------------------------------------------------------------------------------------- */

static int narrow_index(PtxType type) {
    for (int k = 0; k < COUNT_OF(narrow); k++)
        if (narrow[k].type == type) return k;
    return -1;
}

static Status emit(VgDecoder *d, const PtxInstr *p, VgHandler run, int to_bits, int from_bits,
                   bool pair, int64_t imm) {
    uint32_t a, b = 0, r;
    TRY(vg_count(d, pair ? 3 : 2, pair ? 3 : 2));
    TRY(pair ? vg_src_float(d, &p->operands[1], 32, &a)
             : vg_src(d, &p->operands[1], from_bits, &a));
    if (pair) TRY(vg_src_float(d, &p->operands[2], 32, &b));
    TRY(vg_dst(d, &p->operands[0], to_bits, false, &r));
    VgInstr *i = vg_emit(d, run);
    i->d = r, i->a = a, i->b = b, i->imm = imm;
    return OK;
}

Status VG_NAME(vg_decode_tiny)(VgDecoder *d, const PtxInstr *p, PtxType to, PtxType from,
                               const TinyMods *mods) {
    int into = narrow_index(to), out_of = narrow_index(from);
    int cc =
        to == PTX_E4M3X2 || to == PTX_E5M2X2 || from == PTX_E4M3X2 || from == PTX_E5M2X2 ? 89 : 100;
    if (vg_cc(d) < cc) return vg_bad(d, "needs sm_%d, this is sm_%d", cc, vg_cc(d));
    int64_t imm = (int64_t)mods->relu << 8 | (int64_t)from << 16;
    if (into >= 0) {
        bool pair = from == PTX_F32;
        if (!pair && from != PTX_F16X2 && from != PTX_BF16X2)
            return vg_bad(d, "expected .f32, .f16x2 or .bf16x2");
        if (!mods->nearest || !mods->finite) return vg_bad(d, "expected .rn.satfinite");
        return emit(d, p, to_narrow, 2 * narrow[into].apart, 32, pair, imm | into);
    }
    if (to == PTX_UE8M0X2) {
        if (from != PTX_F32 && from != PTX_BF16X2) return vg_bad(d, "expected .f32 or .bf16x2");
        if (mods->up == mods->zero || mods->relu) return vg_bad(d, "expected .rz or .rp");
        return emit(d, p, to_powers, 16, 32, from == PTX_F32,
                    mods->up | mods->finite << 1 | (int64_t)from << 16);
    }
    if (!mods->nearest || mods->finite) return vg_bad(d, "expected .rn");
    if (out_of >= 0 && to == PTX_F16X2)
        return emit(d, p, from_narrow, 32, 2 * narrow[out_of].apart, false, imm | out_of);
    if (from == PTX_UE8M0X2 && to == PTX_BF16X2 && !mods->relu)
        return emit(d, p, from_powers, 32, 16, false, 0);
    return vg_bad(d, "no such conversion");
}
