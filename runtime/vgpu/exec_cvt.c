// SPDX-License-Identifier: Apache-2.0
// Conversions between integers and floats of 16, 32 and 64 bits. (8 bits and less: exec_tiny.c.)
//
// Every source is exact as int64, uint64 or double, so a conversion is: read, flush, round once,
// clamp, write. Handlers are made for each pair of types; rounding of floats into narrower ones is
// done in integers (narrow.h), to integers by the processor's rounding instructions.
#include "runtime/vgpu/exec.h"
#include "runtime/vgpu/narrow.h"
#include "runtime/vgpu/tiny.h"

/* integer to integer --------------------------------------------------------------------------- */

// X(type, slot type, value of lane x)
#define INTS(X)                                                                                    \
    X(s8, uint32_t, (int64_t)(int8_t)x) X(u8, uint32_t, (int64_t)(uint8_t)x)                       \
    X(s16, uint32_t, (int64_t)(int16_t)x) X(u16, uint32_t, (int64_t)(uint16_t)x)                   \
    X(s32, uint32_t, (int64_t)(int32_t)x) X(u32, uint32_t, (int64_t)x)                             \
    X(s64, uint64_t, (int64_t)x) X(u64, uint64_t, (int64_t)x)
#define READER(type, slot, value)                                                                  \
    static inline int64_t read_##type(slot x) { return value; }
INTS(READER)
typedef uint32_t slot_s8, slot_u8, slot_s16, slot_u16, slot_s32, slot_u32;
typedef uint64_t slot_s64, slot_u64;

static inline int64_t clamp(int64_t v, int64_t low, int64_t high) {
    return v < low ? low : v > high ? high : v;
}
static inline int64_t from_u64(int64_t v) { return v < 0 ? INT64_MAX : v; } // for limits below 2^63
#define SAME(v) (v)

// To the low 32 bits of a slot: signed types are extended, unsigned ones cut.
#define TO_ALL(from, FIX) \
    UNARY(from##_to_s8, uint32_t, slot_##from, (uint32_t)(int8_t)read_##from(a[l])) \
    UNARY(from##_to_u8, uint32_t, slot_##from, (uint8_t)read_##from(a[l])) \
    UNARY(from##_to_s16, uint32_t, slot_##from, (uint32_t)(int16_t)read_##from(a[l])) \
    UNARY(from##_to_u16, uint32_t, slot_##from, (uint16_t)read_##from(a[l])) \
    UNARY(from##_to_32, uint32_t, slot_##from, (uint32_t)read_##from(a[l])) \
    UNARY(from##_to_64, uint64_t, slot_##from, (uint64_t)read_##from(a[l])) \
    UNARY(from##_sat_s8, uint32_t, slot_##from, \
          (uint32_t)clamp(FIX(read_##from(a[l])), -128, 127)) \
    UNARY(from##_sat_u8, uint32_t, slot_##from, (uint32_t)clamp(FIX(read_##from(a[l])), 0, 255)) \
    UNARY(from##_sat_s16, uint32_t, slot_##from, \
          (uint32_t)clamp(FIX(read_##from(a[l])), INT16_MIN, INT16_MAX)) \
    UNARY(from##_sat_u16, uint32_t, slot_##from, \
          (uint32_t)clamp(FIX(read_##from(a[l])), 0, 65535)) \
    UNARY(from##_sat_s32, uint32_t, slot_##from, \
          (uint32_t)clamp(FIX(read_##from(a[l])), INT32_MIN, INT32_MAX)) \
    UNARY(from##_sat_u32, uint32_t, slot_##from, \
          (uint32_t)clamp(FIX(read_##from(a[l])), 0, UINT32_MAX)) \
    UNARY(from##_sat_s64, uint64_t, slot_##from, (uint64_t)FIX(read_##from(a[l]))) \
    UNARY(from##_sat_u64, uint64_t, slot_##from, \
          (uint64_t)(read_##from(a[l]) < 0 ? 0 : read_##from(a[l])))
TO_ALL(s8, SAME)
TO_ALL(u8, SAME) TO_ALL(s16, SAME) TO_ALL(u16, SAME) TO_ALL(s32, SAME) TO_ALL(u32, SAME)
    TO_ALL(s64, SAME) TO_ALL(u64, from_u64)

    /* integer to float
       ---------------------------------------------------------------------------------- */

    typedef int64_t wide_s8,
    wide_u8, wide_s16, wide_u16, wide_s32, wide_u32, wide_s64;
typedef uint64_t wide_u64;
#define SIGNED(T) ((T)-1 < (T)1)
// imm = VgRound
#define TO_FLOAT(from, T)                                                                          \
    UNARY(from##_to_##T, T, slot_##from, (T)(wide_##from)read_##from(a[l]))                        \
    UNARY(from##_to_##T##_round, T, slot_##from,                                                   \
          VG_NAME(round_##T)(SIGNED(wide_##from) && read_##from(a[l]) < 0,                         \
                             (uint64_t)read_##from(a[l]), (int)i->imm))
// An integer into a float of `mant` fraction bits, rounded as said, in integers.
static inline uint64_t round_int(bool negative, uint64_t v, int mant, int bias, int mode) {
    uint64_t magnitude = negative ? 0 - v : v, sign = negative;
    if (!magnitude) return 0;
    int e = 63 - __builtin_clzll(magnitude), shift = e - mant;
    uint64_t q = shift <= 0 ? magnitude << -shift : magnitude >> shift;
    uint64_t rest = shift <= 0 ? 0 : magnitude & ((1ull << shift) - 1);
    uint64_t half = shift <= 0 ? 1 : 1ull << (shift - 1);
    bool up = mode == VG_RN ? rest > half || (rest == half && q & 1 && rest)
              : mode == VG_RM ? rest && negative : mode == VG_RP ? rest && !negative : false;
    return (sign << (mant == 52 ? 63 : 31)) | (((uint64_t)(e + bias - 1) << mant) + q + up);
}
static float VG_NAME(round_float)(bool negative, uint64_t v, int mode) {
    return as_f32((uint32_t)round_int(negative, v, 23, 127, mode));
}
static double VG_NAME(round_double)(bool negative, uint64_t v, int mode) {
    return as_f64(round_int(negative, v, 52, 1023, mode));
}
#define TO_FLOATS(from) TO_FLOAT(from, float) TO_FLOAT(from, double)
TO_FLOATS(s8)
TO_FLOATS(u8) TO_FLOATS(s16) TO_FLOATS(u16) TO_FLOATS(s32) TO_FLOATS(u32) TO_FLOATS(s64)
    TO_FLOATS(u64)

    /* float to integer
       ------------------------------------------------------------------------------------ */

    static inline double round_to_int(double x, int mode) {
    switch (mode) {
    case VG_RNI: return __builtin_rint(x);
    case VG_RZI: return __builtin_trunc(x);
    case VG_RMI: return __builtin_floor(x);
    default: return __builtin_ceil(x);
    }
}
static inline uint64_t to_int(double x, int mode, int bits, bool sign, uint64_t nan) {
    double r = round_to_int(x, mode), low = sign ? -as_f64((uint64_t)(1023 + bits - 1) << 52) : 0;
    double high = as_f64((uint64_t)(1023 + bits - (sign ? 1 : 0)) << 52); // first value too large
    uint64_t most = (bits == 64 ? ~0ull : (1ull << bits) - 1) >> (sign ? 1 : 0);
    uint64_t least = sign ? ~0ull << (bits - 1) : 0;
    if (x != x) return nan;
    if (r >= high) return most;
    if (r <= low) return least;
    return sign ? (uint64_t)(int64_t)r : (uint64_t)r;
}
static inline double lane_float(const float *a, int l, bool ftz) {
    return ftz ? flush(a[l]) : a[l];
}
static inline double lane_double(const double *a, int l, bool ftz) { (void)ftz; return a[l]; }
static inline double lane_f16(const uint32_t *a, int l, bool ftz) {
    (void)ftz;
    return half_to_float(a[l]);
}
static inline double lane_bf16(const uint32_t *a, int l, bool ftz) {
    (void)ftz;
    return bf16_to_float(a[l]);
}
// imm = VgRound | bits << 8 | sign << 16 | ftz << 17 | (NaN gives the top bit) << 18
#define TO_INT(from, slot, reader)                                                                 \
    HANDLER(from##_to_int32) {                                                                     \
        const slot *a = SLOT(const slot, a);                                                       \
        int mode = i->imm & 255, bits = i->imm >> 8 & 255;                                         \
        bool sign = i->imm >> 16 & 1, ftz = i->imm >> 17 & 1;                                      \
        uint64_t nan = i->imm >> 18 & 1 ? 1ull << (bits - 1) : 0;                                  \
        MAP(uint32_t, (uint32_t)to_int(reader(a, l, ftz), mode, bits, sign, nan));                 \
    }                                                                                              \
    HANDLER(from##_to_int64) {                                                                     \
        const slot *a = SLOT(const slot, a);                                                       \
        int mode = i->imm & 255;                                                                   \
        bool sign = i->imm >> 16 & 1, ftz = i->imm >> 17 & 1;                                      \
        MAP(uint64_t, to_int(reader(a, l, ftz), mode, 64, sign, 1ull << 63));                      \
    }
TO_INT(f32, float, lane_float)
TO_INT(f64, double, lane_double)
TO_INT(f16, uint32_t, lane_f16)
TO_INT(bf16, uint32_t, lane_bf16)

// The usual one: f32 to s32 toward zero or to nearest, in vectors.
static inline uint32_t fast_s32(float x) {
    float c = x < -2147483648.0f ? -2147483648.0f : x > 2147483520.0f ? 2147483520.0f : x;
    int32_t r = (int32_t)(x == x ? c : 0);
    return (uint32_t)(x >= 2147483648.0f ? INT32_MAX : r);
}
UNARY(f32_rzi_s32, uint32_t, float, fast_s32(a[l]))
UNARY(f32_rni_s32, uint32_t, float, fast_s32(__builtin_rintf(a[l])))

/* float to float ------------------------------------------------------------------------------- */

// imm = VgRound | ftz << 8 | sat << 9 | relu << 10 | satfinite << 11 | (source is to be flushed) <<
// 12
static inline uint32_t store_f32(double x, int64_t imm) {
    uint32_t u = narrow_float(x, 23, 127, imm & 255, false);
    float v = as_f32(u);
    if (imm >> 8 & 1) v = flush(v);
    if (imm >> 9 & 1) v = saturate(v);
    return v == v ? as_u32(v) : 0x7fffffff;
}
static inline uint32_t store_16(double x, int64_t imm, int mant, int bias) {
    if (imm >> 9 & 1) x = x > 0 ? (x < 1 ? x : 1) : 0;
    if (imm >> 10 & 1 && !(x > 0) && x == x) x = 0;
    return narrow_float(x, mant, bias, imm & 255, imm >> 11 & 1);
}
static inline uint32_t store_f16(double x, int64_t imm) { return store_16(x, imm, 10, 15); }
static inline uint32_t store_bf16(double x, int64_t imm) { return store_16(x, imm, 7, 127); }
#define FROM_ALL(to, T, STORE)                                                                     \
    UNARY(f32_to_##to, T, float, STORE(lane_float(a, l, i->imm >> 12 & 1), i->imm))                \
    UNARY(f64_to_##to, T, double, STORE(a[l], i->imm))                                             \
    UNARY(f16_to_##to, T, uint32_t, STORE(half_to_float(a[l]), i->imm))                            \
    UNARY(bf16_to_##to, T, uint32_t, STORE(bf16_to_float(a[l]), i->imm))
FROM_ALL(f32, uint32_t, store_f32)
FROM_ALL(f16, uint32_t, store_f16)
FROM_ALL(bf16, uint32_t, store_bf16)
static inline uint64_t store_f64(double x, int64_t imm) {
    if (imm >> 9 & 1) x = x > 0 ? (x < 1 ? x : 1) : 0;
    return as_u64(canon64(x));
}
FROM_ALL(f64, uint64_t, store_f64)

// Two f32 into one register: a is the upper half.
BINARY(f32_to_f16x2, uint32_t, float, float,
       store_f16(a[l], i->imm) << 16 | store_f16(b[l], i->imm))
BINARY(f32_to_bf16x2, uint32_t, float, float,
       store_bf16(a[l], i->imm) << 16 | store_bf16(b[l], i->imm))
// The usual ones, to nearest.
static inline uint32_t bf16_rn(uint32_t u) {
    return (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
BINARY(f32_rn_bf16x2, uint32_t, uint32_t, uint32_t, bf16_rn(a[l]) << 16 | bf16_rn(b[l]))
UNARY(f32_rn_bf16, uint32_t, uint32_t, bf16_rn(a[l]))
UNARY(f32_from_bf16, uint32_t, uint32_t, as_u32(canon(bf16_to_float(a[l]))))
// tf32: 10 fraction bits in a 32-bit pattern.
static inline uint32_t tf32_of(float x, int64_t imm) {
    uint32_t u = as_u32(x), low = u & 0x1fff;
    if (x != x) return 0x7fffffff;
    if (imm >> 10 & 1 && u >> 31) return 0;
    if ((u & 0x7f800000) == 0x7f800000) return imm >> 11 & 1 ? (u & 0x80000000) | 0x7f7fe000 : u;
    int mode = imm & 255;
    uint32_t up = mode == VG_RNA  ? low >= 0x1000
                  : mode == VG_RN ? low > 0x1000 || (low == 0x1000 && u >> 13 & 1)
                                  : 0;
    u = (u & ~0x1fffu) + up * 0x2000;
    return imm >> 11 & 1 && (u & 0x7f800000) == 0x7f800000 ? (u & 0x80000000) | 0x7f7fe000 : u;
}
UNARY(f32_to_tf32, uint32_t, float, tf32_of(a[l], i->imm))

// To an integral value of the same type; imm as above with the rounding to integers.
static inline float integral(float x, int64_t imm) {
    if (imm >> 12 & 1) x = flush(x);
    float r = (float)round_to_int(x, imm & 255);
    if (imm >> 9 & 1) r = saturate(r);
    return canon(r);
}
UNARY(f32_integral, float, float, integral(a[l], i->imm))
UNARY(f64_integral, double, double, canon64(round_to_int(a[l], i->imm & 255)))
UNARY(f16_integral, uint32_t, uint32_t,
      store_f16(round_to_int(half_to_float(a[l]), i->imm & 255), i->imm & ~255))
UNARY(bf16_integral, uint32_t, uint32_t,
      store_bf16(round_to_int(bf16_to_float(a[l]), i->imm & 255), i->imm & ~255))

/* decoding ------------------------------------------------------------------------------------- */

typedef struct IntRow {
    PtxType type;
    VgHandler plain[6], sat[8], to_float[2], to_float_round[2];
} IntRow;
#define ROW(ptx, t) \
    { \
        ptx, { t##_to_s8, t##_to_u8, t##_to_s16, t##_to_u16, t##_to_32, t##_to_64 }, \
            { t##_sat_s8,  t##_sat_u8,  t##_sat_s16, t##_sat_u16, \
              t##_sat_s32, t##_sat_u32, t##_sat_s64, t##_sat_u64 }, \
            { t##_to_float, t##_to_double }, { \
            t##_to_float_round, t##_to_double_round \
        } \
    }
static const IntRow ints[] = {
    ROW(PTX_S8, s8), ROW(PTX_U8, u8), ROW(PTX_S16, s16), ROW(PTX_U16, u16),
    ROW(PTX_S32, s32), ROW(PTX_U32, u32), ROW(PTX_S64, s64), ROW(PTX_U64, u64),
};
static const PtxType int_types[] = { PTX_S8,  PTX_U8,  PTX_S16, PTX_U16,
                                     PTX_S32, PTX_U32, PTX_S64, PTX_U64 };

static int int_index(PtxType type) {
    for (int k = 0; k < COUNT_OF(int_types); k++)
        if (int_types[k] == type) return k;
    return -1;
}
static int float_index(PtxType type) {
    static const PtxType types[] = { PTX_F32, PTX_F64, PTX_F16, PTX_BF16 };
    for (int k = 0; k < 4; k++)
        if (types[k] == type) return k;
    return -1;
}

static Status emit_convert(VgDecoder *d, const PtxInstr *p, VgHandler run, PtxType to, PtxType from,
                           int64_t imm) {
    uint32_t a, r;
    TRY(vg_count(d, 2, 2));
    TRY(vg_src_float(d, &p->operands[1], ptx_type_bits(from), &a));
    bool sign = ptx_type_class(to) == 's';
    TRY(vg_dst(d, &p->operands[0], ptx_type_bits(to), sign, &r));
    VgInstr *i = vg_emit(d, run);
    i->d = r, i->a = a, i->imm = imm;
    const PtxOperand *op = &p->operands[0];
    if (sign && ptx_type_bits(to) < 32 && op->kind == PTX_OP_REG &&
        ptx_type_bits(op->var->type) == 16) {
        i = vg_emit(d, VG_NAME(vg_low16));
        i->d = i->a = r;
    }
    return OK;
}

static VgHandler int_to_int(int from, int to, bool sat) {
    const IntRow *row = &ints[from];
    if (sat && from != to) return row->sat[to]; // to itself nothing is cut, not even 64 bits
    return to < 4 ? row->plain[to] : to < 6 ? row->plain[4] : row->plain[5];
}

static VgHandler float_to_int(int from, bool wide) {
    static const VgHandler runs[4][2] = { { f32_to_int32, f32_to_int64 },
                                          { f64_to_int32, f64_to_int64 },
                                          { f16_to_int32, f16_to_int64 },
                                          { bf16_to_int32, bf16_to_int64 } };
    return runs[from][wide];
}

static VgHandler float_to_float(int from, int to) {
    static const VgHandler runs[4][4] = {
        { f32_to_f32, f32_to_f64, f32_to_f16, f32_to_bf16 },
        { f64_to_f32, f64_to_f64, f64_to_f16, f64_to_bf16 },
        { f16_to_f32, f16_to_f64, f16_to_f16, f16_to_bf16 },
        { bf16_to_f32, bf16_to_f64, bf16_to_f16, bf16_to_bf16 },
    };
    return runs[from][to];
}

static VgHandler integral_of(int type) {
    static const VgHandler runs[4] = { f32_integral, f64_integral, f16_integral, bf16_integral };
    return runs[type];
}

static Status decode_pair(VgDecoder *d, const PtxInstr *p, PtxType to, int64_t imm) {
    uint32_t a, b, r;
    TRY(vg_count(d, 3, 3));
    TRY(vg_src_float(d, &p->operands[1], 32, &a));
    TRY(vg_src_float(d, &p->operands[2], 32, &b));
    TRY(vg_dst(d, &p->operands[0], 32, false, &r));
    VgInstr *i = vg_emit(d, to == PTX_F16X2 ? f32_to_f16x2
                            : imm == VG_RN  ? f32_rn_bf16x2
                                            : f32_to_bf16x2);
    i->d = r, i->a = a, i->b = b, i->imm = imm;
    return OK;
}

// 16-bit floats from integers: through double, whose 53 bits hold all 32-bit integers; 64-bit ones
// are beyond the range of f16 long before they are inexact, and for bf16 lose only ties.
static Status decode_int_to_half(VgDecoder *d, const PtxInstr *p, PtxType to, int from,
                                 int64_t imm) {
    uint32_t a, r, t = vg_temp(d, 64);
    TRY(vg_count(d, 2, 2));
    TRY(vg_src(d, &p->operands[1], ptx_type_bits(int_types[from]), &a));
    TRY(vg_dst(d, &p->operands[0], 16, false, &r));
    VgInstr *i = vg_emit(d, ints[from].to_float_round[1]);
    i->d = t, i->a = a, i->imm = VG_RZ;
    i = vg_emit(d, to == PTX_F16 ? f64_to_f16 : f64_to_bf16);
    i->d = r, i->a = t, i->imm = imm;
    return OK;
}

static Status decode_cvt(VgDecoder *d, const PtxInstr *p) {
    static const char *const rounds[] = { "rn",  "rz",  "rm",  "rp",  "rna",
                                          "rni", "rzi", "rmi", "rpi", NULL };
    int round = vg_take_one(d, rounds);
    bool ftz = vg_take(d, "ftz"), sat = vg_take(d, "sat"), relu = vg_take(d, "relu"),
         finite = vg_take(d, "satfinite");
    PtxType to = vg_take_type(d), from = vg_take_type(d);
    int ti = int_index(to), fi = int_index(from), tf = float_index(to), ff = float_index(from);
    int64_t imm = (round < 0 ? VG_RN : round) | (int64_t)ftz << 8 | (int64_t)sat << 9 |
                  (int64_t)relu << 10 | (int64_t)finite << 11 | (int64_t)ftz << 12;
    if (to != PTX_NONE && from != PTX_NONE &&
        (ptx_type_class(to) == 'x' || ptx_type_class(from) == 'x')) {
        TinyMods mods = { round == VG_RN, round == VG_RZ, round == VG_RP, relu, finite };
        return VG_NAME(vg_decode_tiny)(d, p, to, from, &mods);
    }
    if ((to == PTX_F16X2 || to == PTX_BF16X2) && from == PTX_F32) return decode_pair(d, p, to, imm);
    if (to == PTX_TF32 && from == PTX_F32)
        return emit_convert(d, p, f32_to_tf32, PTX_B32, from, imm);
    if (ti >= 0 && fi >= 0) return emit_convert(d, p, int_to_int(fi, ti, sat), to, from, 0);
    if (ti >= 0 && ff >= 0) {
        if (round < VG_RNI) return vg_bad(d, "expected .rni, .rzi, .rmi or .rpi");
        if (from == PTX_F32 && to == PTX_S32 && !ftz && (round == VG_RZI || round == VG_RNI))
            return emit_convert(d, p, round == VG_RZI ? f32_rzi_s32 : f32_rni_s32, to, from, 0);
        int bits = ptx_type_bits(to);
        imm = round | bits << 8 | (ptx_type_class(to) == 's') << 16 | ftz << 17 |
              (from == PTX_F64) << 18;
        return emit_convert(d, p, float_to_int(ff, bits == 64), to, from, imm);
    }
    if (tf >= 0 && fi >= 0) {
        if (round >= VG_RNA || round < 0) return vg_bad(d, "expected .rn, .rz, .rm or .rp");
        if (tf >= 2) return decode_int_to_half(d, p, to, fi, imm);
        bool plain = round == VG_RN && !sat;
        if (sat) return vg_bad(d, ".sat of an integer converted to a float");
        return emit_convert(d, p, plain ? ints[fi].to_float[tf] : ints[fi].to_float_round[tf], to,
                            from, round);
    }
    if (tf >= 0 && ff >= 0) {
        if (round >= VG_RNI && tf == ff) return emit_convert(d, p, integral_of(tf), to, from, imm);
        if (round == VG_RNA) return vg_bad(d, ".rna is for tf32");
        if (round >= VG_RNI) return vg_bad(d, "rounding to integers between different types");
        if (imm == VG_RN && from == PTX_F32 && to == PTX_BF16)
            return emit_convert(d, p, f32_rn_bf16, to, from, 0);
        if (imm == VG_RN && from == PTX_BF16 && to == PTX_F32)
            return emit_convert(d, p, f32_from_bf16, to, from, 0);
        return emit_convert(d, p, float_to_float(ff, tf), to, from, imm);
    }
    return vg_bad(d, "no such conversion");
}

const VgRoot VG_NAME(vg_roots_cvt)[] = {
    { "cvt", decode_cvt,
      "cvt{.rn,.rz,.rm,.rp,.rni,.rzi,.rmi,.rpi,.rna}{.relu}{.ftz}{.sat}{.satfinite}.to.from" },
    { NULL, NULL, NULL },
};
