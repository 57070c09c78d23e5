// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic, logic, shifts, bit fields and moves.
//
// Values of 16 bits are zero-extended in their slots; handlers cast what they read. Shifts clamp at
// the width, division by zero gives all ones (as the hardware does), and nothing here traps.
#include "runtime/vgpu/exec.h"

/* moves ---------------------------------------------------------------------------------------- */

HANDLER_OUT(vg_move32) {
    const uint32_t *a = SLOT(const uint32_t, a);
    MAP(uint32_t, a[l]);
}
HANDLER_OUT(vg_move64) {
    const uint64_t *a = SLOT(const uint64_t, a);
    MAP(uint64_t, a[l]);
}
HANDLER_OUT(vg_narrow) {
    const uint64_t *a = SLOT(const uint64_t, a);
    MAP(uint32_t, (uint32_t)a[l]);
}
HANDLER_OUT(vg_widen) {
    const uint32_t *a = SLOT(const uint32_t, a);
    MAP(uint64_t, a[l]);
}
HANDLER_OUT(vg_widen_signed) {
    const int32_t *a = SLOT(const int32_t, a);
    MAP(uint64_t, (uint64_t)(int64_t)a[l]);
}
HANDLER(move128) {
    uint32_t m = VG_MASK(i, w, f);
    const uint64_t *a = SLOT(const uint64_t, a);
    uint64_t *d = SLOT(uint64_t, d);
    for (int l = 0; l < 64; l++) d[l] = m >> (l & 31) & 1 ? a[l] : d[l];
    VG_NEXT(i, w, f);
}
HANDLER(move_pred) {
    uint32_t m = VG_MASK(i, w, f), v = *(uint32_t *)(f + i->a) ^ (i->imm ? ~0u : 0);
    put_pred(f, i->d, m, v);
    VG_NEXT(i, w, f);
}
HANDLER(logic_pred) { // imm: 0 and, 1 or, 2 xor; bit 2: not a; bit 3: not b
    uint32_t m = VG_MASK(i, w, f);
    uint32_t a = *(uint32_t *)(f + i->a) ^ (i->imm & 4 ? ~0u : 0);
    uint32_t b = *(uint32_t *)(f + i->b) ^ (i->imm & 8 ? ~0u : 0);
    int op = (int)i->imm & 3;
    put_pred(f, i->d, m, op == 0 ? a & b : op == 1 ? a | b : a ^ b);
    VG_NEXT(i, w, f);
}
// {a, b, ...} packed into a wider value and back.
HANDLER_OUT(vg_pack16) {
    const uint32_t *a = SLOT(const uint32_t, a), *b = SLOT(const uint32_t, b);
    MAP(uint32_t, (a[l] & 0xffff) | b[l] << 16);
}
BINARY(pack32x2, uint64_t, uint32_t, uint32_t, a[l] | (uint64_t)b[l] << 32)
HANDLER_OUT(vg_low16) {
    const uint32_t *a = SLOT(const uint32_t, a);
    MAP(uint32_t, a[l] & 0xffff);
}
UNARY(high16, uint32_t, uint32_t, a[l] >> 16)
UNARY(high32, uint32_t, uint64_t, (uint32_t)(a[l] >> 32))
HANDLER(pack64x2) { // 128 bits: all low halves, then all high ones
    uint32_t m = VG_MASK(i, w, f);
    uint64_t *d = (uint64_t *)(f + i->ops[0]);
    const uint64_t *a = (const uint64_t *)(f + i->ops[1]), *b = (const uint64_t *)(f + i->ops[2]);
    for (int l = 0; l < 32; l++) {
        uint64_t low = a[l], high = b[l];
        if (!(m >> l & 1)) continue;
        d[l] = low;
        d[32 + l] = high;
    }
    VG_NEXT(i, w, f);
}
HANDLER(low64) {
    uint32_t m = VG_MASK(i, w, f);
    for (int l = 0; l < 32; l++)
        if (m >> l & 1) ((uint64_t *)(f + i->ops[0]))[l] = ((const uint64_t *)(f + i->ops[1]))[l];
    VG_NEXT(i, w, f);
}
HANDLER(high64) {
    uint32_t m = VG_MASK(i, w, f);
    for (int l = 0; l < 32; l++)
        if (m >> l & 1)
            ((uint64_t *)(f + i->ops[0]))[l] = ((const uint64_t *)(f + i->ops[1]))[32 + l];
    VG_NEXT(i, w, f);
}
BINARY(pack8x2, uint32_t, uint32_t, uint32_t, (a[l] & 0xff) | (b[l] & 0xff) << 8)
UNARY(low8, uint32_t, uint32_t, a[l] & 0xff)
UNARY(high8, uint32_t, uint32_t, a[l] >> 8 & 0xff)

/* arithmetic ----------------------------------------------------------------------------------- */

#define S16(x) ((int32_t)(int16_t)(x))
#define U16(x) ((uint32_t)(uint16_t)(x))
typedef unsigned __int128 u128;
typedef __int128 s128;

BINARY(add16, uint32_t, uint32_t, uint32_t, U16(a[l] + b[l]))
BINARY(add32, uint32_t, uint32_t, uint32_t, a[l] + b[l])
BINARY(add64, uint64_t, uint64_t, uint64_t, a[l] + b[l])
BINARY(sub16, uint32_t, uint32_t, uint32_t, U16(a[l] - b[l]))
BINARY(sub32, uint32_t, uint32_t, uint32_t, a[l] - b[l])
BINARY(sub64, uint64_t, uint64_t, uint64_t, a[l] - b[l])
static inline uint32_t clamp_s32(int64_t v) {
    return (uint32_t)(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v);
}
BINARY(add_sat, uint32_t, int32_t, int32_t, clamp_s32((int64_t)a[l] + b[l]))
BINARY(sub_sat, uint32_t, int32_t, int32_t, clamp_s32((int64_t)a[l] - b[l]))
BINARY(add16x2, uint32_t, uint32_t, uint32_t,
       U16(a[l] + b[l]) | ((a[l] >> 16) + (b[l] >> 16)) << 16)

BINARY(mul_lo16, uint32_t, uint32_t, uint32_t, U16(a[l] * b[l]))
BINARY(mul_lo32, uint32_t, uint32_t, uint32_t, a[l] * b[l])
BINARY(mul_lo64, uint64_t, uint64_t, uint64_t, a[l] * b[l])
BINARY(mul_hi_s16, uint32_t, uint32_t, uint32_t, U16(S16(a[l]) * S16(b[l]) >> 16))
BINARY(mul_hi_u16, uint32_t, uint32_t, uint32_t, U16(a[l]) * U16(b[l]) >> 16)
BINARY(mul_hi_s32, uint32_t, int32_t, int32_t, (uint32_t)((int64_t)a[l] * b[l] >> 32))
BINARY(mul_hi_u32, uint32_t, uint32_t, uint32_t, (uint32_t)((uint64_t)a[l] * b[l] >> 32))
BINARY(mul_hi_s64, uint64_t, int64_t, int64_t, (uint64_t)((s128)a[l] * b[l] >> 64))
BINARY(mul_hi_u64, uint64_t, uint64_t, uint64_t, (uint64_t)((u128)a[l] * b[l] >> 64))
BINARY(mul_wide_s16, uint32_t, uint32_t, uint32_t, (uint32_t)(S16(a[l]) * S16(b[l])))
BINARY(mul_wide_u16, uint32_t, uint32_t, uint32_t, U16(a[l]) * U16(b[l]))
BINARY(mul_wide_s32, uint64_t, int32_t, int32_t, (uint64_t)((int64_t)a[l] * b[l]))
BINARY(mul_wide_u32, uint64_t, uint32_t, uint32_t, (uint64_t)a[l] * b[l])
TERNARY(mad_lo16, uint32_t, uint32_t, uint32_t, uint32_t, U16(a[l] * b[l] + c[l]))
TERNARY(mad_lo32, uint32_t, uint32_t, uint32_t, uint32_t, a[l] * b[l] + c[l])
TERNARY(mad_lo64, uint64_t, uint64_t, uint64_t, uint64_t, a[l] * b[l] + c[l])
TERNARY(mad_wide_s16, uint32_t, uint32_t, uint32_t, uint32_t,
        (uint32_t)(S16(a[l]) * S16(b[l])) + c[l])
TERNARY(mad_wide_u16, uint32_t, uint32_t, uint32_t, uint32_t, U16(a[l]) * U16(b[l]) + c[l])
TERNARY(mad_wide_s32, uint64_t, int32_t, int32_t, uint64_t, (uint64_t)((int64_t)a[l] * b[l]) + c[l])
TERNARY(mad_wide_u32, uint64_t, uint32_t, uint32_t, uint64_t, (uint64_t)a[l] * b[l] + c[l])
static inline int64_t s24(uint32_t x) { return (int32_t)(x << 8) >> 8; }
static inline uint64_t u24(uint32_t x) { return x & 0xffffff; }
BINARY(mul24_lo_s, uint32_t, uint32_t, uint32_t, (uint32_t)(s24(a[l]) * s24(b[l])))
BINARY(mul24_lo_u, uint32_t, uint32_t, uint32_t, (uint32_t)(u24(a[l]) * u24(b[l])))
BINARY(mul24_hi_s, uint32_t, uint32_t, uint32_t, (uint32_t)(s24(a[l]) * s24(b[l]) >> 16))
BINARY(mul24_hi_u, uint32_t, uint32_t, uint32_t, (uint32_t)(u24(a[l]) * u24(b[l]) >> 16))
TERNARY(mad24_lo_s, uint32_t, uint32_t, uint32_t, uint32_t,
        (uint32_t)(s24(a[l]) * s24(b[l])) + c[l])
TERNARY(mad24_lo_u, uint32_t, uint32_t, uint32_t, uint32_t,
        (uint32_t)(u24(a[l]) * u24(b[l])) + c[l])
TERNARY(mad24_hi_s, uint32_t, uint32_t, uint32_t, uint32_t,
        (uint32_t)(s24(a[l]) * s24(b[l]) >> 16) + c[l])
TERNARY(mad24_hi_u, uint32_t, uint32_t, uint32_t, uint32_t,
        (uint32_t)(u24(a[l]) * u24(b[l]) >> 16) + c[l])
TERNARY(mad24_hi_sat, uint32_t, uint32_t, uint32_t, int32_t,
        clamp_s32((int32_t)(s24(a[l]) * s24(b[l]) >> 16) + (int64_t)c[l]))
TERNARY(mad_hi_s16, uint32_t, uint32_t, uint32_t, uint32_t,
        U16((S16(a[l]) * S16(b[l]) >> 16) + (int32_t)c[l]))
TERNARY(mad_hi_u16, uint32_t, uint32_t, uint32_t, uint32_t,
        U16((U16(a[l]) * U16(b[l]) >> 16) + c[l]))

static inline int32_t div_s32(int32_t a, int32_t b) {
    return b == 0 ? -1 : b == -1 ? (int32_t)(0u - (uint32_t)a) : a / b;
}
static inline int32_t rem_s32(int32_t a, int32_t b) { return b == 0 ? a : b == -1 ? 0 : a % b; }
static inline int64_t div_s64(int64_t a, int64_t b) {
    return b == 0 ? -1 : b == -1 ? (int64_t)(0u - (uint64_t)a) : a / b;
}
static inline int64_t rem_s64(int64_t a, int64_t b) { return b == 0 ? a : b == -1 ? 0 : a % b; }
BINARY(div_s16, uint32_t, uint32_t, uint32_t, U16(div_s32(S16(a[l]), S16(b[l]))))
BINARY(div_u16, uint32_t, uint32_t, uint32_t, U16(b[l]) ? U16(a[l]) / U16(b[l]) : 0xffff)
BINARY(div_s32x, uint32_t, int32_t, int32_t, (uint32_t)div_s32(a[l], b[l]))
BINARY(div_u32, uint32_t, uint32_t, uint32_t, b[l] ? a[l] / b[l] : ~0u)
BINARY(div_s64x, uint64_t, int64_t, int64_t, (uint64_t)div_s64(a[l], b[l]))
BINARY(div_u64, uint64_t, uint64_t, uint64_t, b[l] ? a[l] / b[l] : ~0ull)
BINARY(rem_s16, uint32_t, uint32_t, uint32_t, U16(rem_s32(S16(a[l]), S16(b[l]))))
BINARY(rem_u16, uint32_t, uint32_t, uint32_t, U16(b[l]) ? U16(a[l]) % U16(b[l]) : U16(a[l]))
BINARY(rem_s32x, uint32_t, int32_t, int32_t, (uint32_t)rem_s32(a[l], b[l]))
BINARY(rem_u32, uint32_t, uint32_t, uint32_t, b[l] ? a[l] % b[l] : a[l])
BINARY(rem_s64x, uint64_t, int64_t, int64_t, (uint64_t)rem_s64(a[l], b[l]))
BINARY(rem_u64, uint64_t, uint64_t, uint64_t, b[l] ? a[l] % b[l] : a[l])

UNARY(abs16, uint32_t, uint32_t, U16(S16(a[l]) < 0 ? -S16(a[l]) : S16(a[l])))
UNARY(abs32, uint32_t, uint32_t, (int32_t)a[l] < 0 ? 0u - a[l] : a[l])
UNARY(abs64, uint64_t, uint64_t, (int64_t)a[l] < 0 ? 0u - a[l] : a[l])
UNARY(neg16, uint32_t, uint32_t, U16(0u - a[l]))
UNARY(neg32, uint32_t, uint32_t, 0u - a[l])
UNARY(neg64, uint64_t, uint64_t, 0u - a[l])
#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define MAX(x, y) ((x) > (y) ? (x) : (y))
BINARY(min_s16, uint32_t, uint32_t, uint32_t, U16(MIN(S16(a[l]), S16(b[l]))))
BINARY(min_u16, uint32_t, uint32_t, uint32_t, MIN(U16(a[l]), U16(b[l])))
BINARY(min_s32, uint32_t, int32_t, int32_t, (uint32_t)MIN(a[l], b[l]))
BINARY(min_u32, uint32_t, uint32_t, uint32_t, MIN(a[l], b[l]))
BINARY(min_s64, uint64_t, int64_t, int64_t, (uint64_t)MIN(a[l], b[l]))
BINARY(min_u64, uint64_t, uint64_t, uint64_t, MIN(a[l], b[l]))
BINARY(max_s16, uint32_t, uint32_t, uint32_t, U16(MAX(S16(a[l]), S16(b[l]))))
BINARY(max_u16, uint32_t, uint32_t, uint32_t, MAX(U16(a[l]), U16(b[l])))
BINARY(max_s32, uint32_t, int32_t, int32_t, (uint32_t)MAX(a[l], b[l]))
BINARY(max_u32, uint32_t, uint32_t, uint32_t, MAX(a[l], b[l]))
BINARY(max_s64, uint64_t, int64_t, int64_t, (uint64_t)MAX(a[l], b[l]))
BINARY(max_u64, uint64_t, uint64_t, uint64_t, MAX(a[l], b[l]))
UNARY(relu32, uint32_t, uint32_t, (int32_t)a[l] < 0 ? 0 : a[l])
#define HALVES(op, x, y, T) \
    ((uint16_t)op((T)(x), (T)(y)) | (uint32_t)(uint16_t)op((T)((x) >> 16), (T)((y) >> 16)) << 16)
BINARY(min_s16x2, uint32_t, uint32_t, uint32_t, HALVES(MIN, a[l], b[l], int16_t))
BINARY(min_u16x2, uint32_t, uint32_t, uint32_t, HALVES(MIN, a[l], b[l], uint16_t))
BINARY(max_s16x2, uint32_t, uint32_t, uint32_t, HALVES(MAX, a[l], b[l], int16_t))
BINARY(max_u16x2, uint32_t, uint32_t, uint32_t, HALVES(MAX, a[l], b[l], uint16_t))
UNARY(relu16x2, uint32_t, uint32_t,
      (a[l] & 0x8000 ? 0 : a[l] & 0xffff) | (a[l] >> 31 ? 0 : a[l] & 0xffff0000))
#define DISTANCE(x, y) ((x) < (y) ? (y) - (x) : (x) - (y))
TERNARY(sad_s32, uint32_t, int32_t, int32_t, uint32_t,
        c[l] + (uint32_t)DISTANCE((int64_t)a[l], (int64_t)b[l]))
TERNARY(sad_u32, uint32_t, uint32_t, uint32_t, uint32_t, c[l] + DISTANCE(a[l], b[l]))
TERNARY(sad_s16, uint32_t, uint32_t, uint32_t, uint32_t,
        U16(c[l] + (uint32_t)DISTANCE(S16(a[l]), S16(b[l]))))
TERNARY(sad_u16, uint32_t, uint32_t, uint32_t, uint32_t, U16(c[l] + DISTANCE(U16(a[l]), U16(b[l]))))
TERNARY(sad_s64, uint64_t, int64_t, int64_t, uint64_t,
        c[l] + (a[l] < b[l] ? (uint64_t)b[l] - (uint64_t)a[l] : (uint64_t)a[l] - (uint64_t)b[l]))
TERNARY(sad_u64, uint64_t, uint64_t, uint64_t, uint64_t, c[l] + DISTANCE(a[l], b[l]))

// Extended precision: the carry is a predicate word of its own (i->c; in and out).
#define CARRY_OP(name, T, WIDE, EXPR)                                                              \
    HANDLER(name) { /* imm: 1 = carry in, 2 = carry out */                                         \
        uint32_t m = VG_MASK(i, w, f), in = i->imm & 1 ? *(uint32_t *)(f + 4) : 0, out = 0;        \
        const T *a = SLOT(const T, a), *b = SLOT(const T, b), *c = SLOT(const T, c);               \
        T *d = SLOT(T, d);                                                                         \
        (void)c;                                                                                   \
        for (int l = 0; l < 32; l++) {                                                             \
            WIDE k = in >> l & 1, r = (EXPR);                                                      \
            out |= (uint32_t)(r >> (8 * sizeof(T)) & 1) << l;                                      \
            if (m >> l & 1) d[l] = (T)r;                                                           \
        }                                                                                          \
        if (i->imm & 2) put_pred(f, 4, m, out);                                                    \
        VG_NEXT(i, w, f);                                                                          \
    }
CARRY_OP(add_carry32, uint32_t, uint64_t, (uint64_t)a[l] + b[l] + k)
CARRY_OP(add_carry64, uint64_t, u128, (u128)a[l] + b[l] + k)
CARRY_OP(sub_carry32, uint32_t, uint64_t, (uint64_t)a[l] - b[l] - k)
CARRY_OP(sub_carry64, uint64_t, u128, (u128)a[l] - b[l] - k)
CARRY_OP(mad_lo_carry32, uint32_t, uint64_t, (uint64_t)(a[l] * b[l]) + c[l] + k)
CARRY_OP(mad_lo_carry64, uint64_t, u128, (u128)(a[l] * b[l]) + c[l] + k)
CARRY_OP(mad_hi_carry_u32, uint32_t, uint64_t, ((uint64_t)a[l] * b[l] >> 32) + c[l] + k)
CARRY_OP(mad_hi_carry_u64, uint64_t, u128, ((u128)a[l] * b[l] >> 64) + c[l] + k)
CARRY_OP(mad_hi_carry_s32, uint32_t, uint64_t,
         (uint64_t)(uint32_t)((int64_t)(int32_t)a[l] * (int32_t)b[l] >> 32) + c[l] + k)
CARRY_OP(mad_hi_carry_s64, uint64_t, u128,
         (u128)(uint64_t)((s128)(int64_t)a[l] * (int64_t)b[l] >> 64) + c[l] + k)
TERNARY(mad_hi_sat, uint32_t, int32_t, int32_t, int32_t,
        clamp_s32(((int64_t)a[l] * b[l] >> 32) + c[l]))

/* logic and shifts -------------------------------------------------------------------------------
 */

BINARY(and32, uint32_t, uint32_t, uint32_t, a[l] & b[l])
BINARY(and64, uint64_t, uint64_t, uint64_t, a[l] & b[l])
BINARY(or32, uint32_t, uint32_t, uint32_t, a[l] | b[l])
BINARY(or64, uint64_t, uint64_t, uint64_t, a[l] | b[l])
BINARY(xor32, uint32_t, uint32_t, uint32_t, a[l] ^ b[l])
BINARY(xor64, uint64_t, uint64_t, uint64_t, a[l] ^ b[l])
UNARY(not16, uint32_t, uint32_t, U16(~a[l]))
UNARY(not32, uint32_t, uint32_t, ~a[l])
UNARY(not64, uint64_t, uint64_t, ~a[l])
UNARY(cnot16, uint32_t, uint32_t, U16(a[l]) == 0)
UNARY(cnot32, uint32_t, uint32_t, a[l] == 0)
UNARY(cnot64, uint64_t, uint64_t, a[l] == 0)
BINARY(shl16, uint32_t, uint32_t, uint32_t, b[l] > 15 ? 0 : U16(a[l] << (b[l] & 15)))
BINARY(shl32, uint32_t, uint32_t, uint32_t, b[l] > 31 ? 0 : a[l] << (b[l] & 31))
BINARY(shl64, uint64_t, uint64_t, uint32_t, b[l] > 63 ? 0 : a[l] << (b[l] & 63))
BINARY(shr_u16, uint32_t, uint32_t, uint32_t, b[l] > 15 ? 0 : U16(a[l]) >> (b[l] & 15))
BINARY(shr_u32, uint32_t, uint32_t, uint32_t, b[l] > 31 ? 0 : a[l] >> (b[l] & 31))
BINARY(shr_u64, uint64_t, uint64_t, uint32_t, b[l] > 63 ? 0 : a[l] >> (b[l] & 63))
BINARY(shr_s16, uint32_t, uint32_t, uint32_t, U16(S16(a[l]) >> MIN(b[l], 15)))
BINARY(shr_s32, uint32_t, int32_t, uint32_t, (uint32_t)(a[l] >> MIN(b[l], 31)))
BINARY(shr_s64, uint64_t, int64_t, uint32_t, (uint64_t)(a[l] >> MIN(b[l], 63)))
static inline uint64_t join64(uint32_t low, uint32_t high) { return low | (uint64_t)high << 32; }
TERNARY(shf_l_wrap, uint32_t, uint32_t, uint32_t, uint32_t,
        (uint32_t)(join64(a[l], b[l]) << (c[l] & 31) >> 32))
TERNARY(shf_r_wrap, uint32_t, uint32_t, uint32_t, uint32_t,
        (uint32_t)(join64(a[l], b[l]) >> (c[l] & 31)))
TERNARY(shf_l_clamp, uint32_t, uint32_t, uint32_t, uint32_t,
        c[l] > 31 ? a[l] : (uint32_t)(join64(a[l], b[l]) << (c[l] & 31) >> 32))
TERNARY(shf_r_clamp, uint32_t, uint32_t, uint32_t, uint32_t,
        c[l] > 31 ? b[l] : (uint32_t)(join64(a[l], b[l]) >> (c[l] & 31)))
static inline uint32_t lop3_bits(uint32_t x, uint32_t y, uint32_t z, uint32_t table) {
    uint32_t r = 0;
    for (uint32_t k = 0; k < 8; k++) {
        uint32_t term = (k & 4 ? x : ~x) & (k & 2 ? y : ~y) & (k & 1 ? z : ~z);
        r |= table >> k & 1 ? term : 0;
    }
    return r;
}
TERNARY(lop3, uint32_t, uint32_t, uint32_t, uint32_t, lop3_bits(a[l], b[l], c[l], (uint32_t)i->imm))

/* bit fields ----------------------------------------------------------------------------------- */

UNARY(popc32, uint32_t, uint32_t, (uint32_t)__builtin_popcount(a[l]))
UNARY(popc64, uint32_t, uint64_t, (uint32_t)__builtin_popcountll(a[l]))
UNARY(clz32, uint32_t, uint32_t, a[l] ? (uint32_t)__builtin_clz(a[l]) : 32)
UNARY(clz64, uint32_t, uint64_t, a[l] ? (uint32_t)__builtin_clzll(a[l]) : 64)
static inline uint32_t reverse32(uint32_t x) {
    x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
    x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
    return x >> 24 | (x >> 8 & 0xff00) | (x << 8 & 0xff0000) | x << 24;
}
UNARY(brev32, uint32_t, uint32_t, reverse32(a[l]))
UNARY(brev64, uint64_t, uint64_t,
      join64(reverse32((uint32_t)(a[l] >> 32)), reverse32((uint32_t)a[l])))
static inline uint32_t find_high(uint64_t x, int width,
                                 bool shift) { // highest one, ~0 when there is none
    if (!x) return ~0u;
    uint32_t at = 63u - (uint32_t)__builtin_clzll(x);
    return shift ? (uint32_t)width - 1 - at : at;
}
UNARY(bfind_u32, uint32_t, uint32_t, find_high(a[l], 32, i->imm))
UNARY(bfind_s32, uint32_t, int32_t, find_high((uint32_t)(a[l] < 0 ? ~a[l] : a[l]), 32, i->imm))
UNARY(bfind_u64, uint32_t, uint64_t, find_high(a[l], 64, i->imm))
UNARY(bfind_s64, uint32_t, int64_t, find_high((uint64_t)(a[l] < 0 ? ~a[l] : a[l]), 64, i->imm))
// Position and length are 8 bits; bits beyond the value are copies of the sign (signed) or zero.
static inline uint64_t extract(uint64_t x, uint32_t position, uint32_t length, int width,
                               bool sign) {
    uint32_t p = position & 255, n = length & 255, top = (uint32_t)width - 1;
    uint64_t r = 0, s;
    if (!n) return 0;
    uint32_t last = MIN(p + n - 1, top);
    s = sign ? x >> last & 1 : 0;
    if (p <= top) r = x >> p;
    uint32_t have = p > top ? 0 : last - p + 1;
    uint64_t mask = have > 63 ? ~0ull : (1ull << have) - 1;
    r &= mask;
    if (s) r |= ~mask;
    return r;
}
TERNARY(bfe_u32, uint32_t, uint32_t, uint32_t, uint32_t,
        (uint32_t)extract(a[l], b[l], c[l], 32, false))
TERNARY(bfe_s32, uint32_t, uint32_t, uint32_t, uint32_t,
        (uint32_t)extract(a[l], b[l], c[l], 32, true))
TERNARY(bfe_u64, uint64_t, uint64_t, uint32_t, uint32_t, extract(a[l], b[l], c[l], 64, false))
TERNARY(bfe_s64, uint64_t, uint64_t, uint32_t, uint32_t, extract(a[l], b[l], c[l], 64, true))
static inline uint64_t insert(uint64_t x, uint64_t into, uint32_t position, uint32_t length,
                              int width) {
    uint32_t p = position & 255, n = length & 255;
    if (p >= (uint32_t)width || !n) return into;
    uint64_t mask = (n > 63 ? ~0ull : (1ull << n) - 1) << p;
    return (into & ~mask) | (x << p & mask);
}
HANDLER(bfi32) {
    const uint32_t *a = SLOT(const uint32_t, a), *b = SLOT(const uint32_t, b),
                   *c = SLOT(const uint32_t, c);
    const uint32_t *n = (const uint32_t *)(f + i->ops[0]);
    MAP(uint32_t, (uint32_t)insert(a[l], b[l], c[l], n[l], 32));
}
HANDLER(bfi64) {
    const uint64_t *a = SLOT(const uint64_t, a), *b = SLOT(const uint64_t, b);
    const uint32_t *c = SLOT(const uint32_t, c), *n = (const uint32_t *)(f + i->ops[0]);
    MAP(uint64_t, insert(a[l], b[l], c[l], n[l], 64));
}
BINARY(bmsk_clamp, uint32_t, uint32_t, uint32_t,
       a[l] > 31 ? 0 : (b[l] > 31 ? ~0u : (1u << (b[l] & 31)) - 1) << (a[l] & 31))
BINARY(bmsk_wrap, uint32_t, uint32_t, uint32_t, ((1u << (b[l] & 31)) - 1) << (a[l] & 31))
static inline uint32_t extend(uint32_t x, uint32_t n, bool sign, bool wrap) {
    n = wrap ? n & 31 : MIN(n, 32);
    if (n == 0) return 0;
    if (n >= 32) return x;
    return sign ? (uint32_t)((int32_t)(x << (32 - n)) >> (32 - n)) : x & ((1u << n) - 1);
}
BINARY(szext, uint32_t, uint32_t, uint32_t, extend(a[l], b[l], i->imm & 1, i->imm & 2))
static inline uint32_t nth_set(uint32_t mask, uint32_t base, int32_t offset) {
    if (base > 31) return ~0u;
    if (offset == 0) return mask >> base & 1 ? base : ~0u;
    int step = offset > 0 ? 1 : -1;
    int64_t count = (offset > 0 ? (int64_t)offset : -(int64_t)offset) - 1;
    for (int at = (int)base; at >= 0 && at < 32; at += step)
        if (mask >> at & 1 && count-- == 0) return (uint32_t)at;
    return ~0u;
}
TERNARY(fns, uint32_t, uint32_t, uint32_t, int32_t, nth_set(a[l], b[l], c[l]))

// prmt: selectors of 4 bits; bit 3 replicates the sign of the byte.
static inline uint32_t permute(uint64_t x, uint32_t selector) {
    uint32_t r = 0;
    for (int k = 0; k < 4; k++) {
        uint32_t s = selector >> 4 * k & 15;
        uint32_t byte = (uint32_t)(x >> 8 * (s & 7)) & 255;
        if (s & 8) byte = byte & 128 ? 255 : 0;
        r |= byte << 8 * k;
    }
    return r;
}
static inline uint32_t mode_selector(int mode, uint32_t c) {
    static const uint16_t table[7][4] = {
        { 0x3210, 0x4321, 0x5432, 0x6543 }, { 0x5670, 0x6701, 0x7012, 0x0123 }, // f4e, b4e
        { 0x0000, 0x1111, 0x2222, 0x3333 }, { 0x3210, 0x3211, 0x3222, 0x3333 }, // rc8, ecl
        { 0x0000, 0x1110, 0x2210, 0x3210 }, { 0x1010, 0x3232, 0x1010, 0x3232 }, // ecr, rc16
        { 0, 0, 0, 0 },
    };
    return table[mode][c & 3];
}
TERNARY(prmt, uint32_t, uint32_t, uint32_t, uint32_t, permute(join64(a[l], b[l]), c[l]))
TERNARY(prmt_mode, uint32_t, uint32_t, uint32_t, uint32_t,
        permute(join64(a[l], b[l]), mode_selector((int)i->imm, c[l])))

// Dot products; imm: bit 0 = a signed, bit 1 = b signed, bit 2 = high half (dp2a).
static inline int32_t byte_at(uint32_t x, int k, bool sign) {
    return sign ? (int8_t)(x >> 8 * k) : (uint8_t)(x >> 8 * k);
}
static inline uint32_t dot4(uint32_t x, uint32_t y, bool sx, bool sy) {
    int32_t sum = 0;
    for (int k = 0; k < 4; k++) sum += byte_at(x, k, sx) * byte_at(y, k, sy);
    return (uint32_t)sum;
}
static inline uint32_t dot2(uint32_t x, uint32_t y, bool sx, bool sy, bool high) {
    uint32_t sum = 0;
    for (int k = 0; k < 2; k++) {
        int32_t half = sx ? (int16_t)(x >> 16 * k) : (uint16_t)(x >> 16 * k);
        sum += (uint32_t)half * (uint32_t)byte_at(y, k + (high ? 2 : 0), sy);
    }
    return sum;
}
TERNARY(dp4a, uint32_t, uint32_t, uint32_t, uint32_t,
        c[l] + dot4(a[l], b[l], i->imm & 1, i->imm & 2))
TERNARY(dp2a, uint32_t, uint32_t, uint32_t, uint32_t,
        c[l] + dot2(a[l], b[l], i->imm & 1, i->imm & 2, i->imm & 4))

/* selection ------------------------------------------------------------------------------------ */

HANDLER_OUT(vg_select32) { // imm = ~0: by the complement
    const uint32_t *a = SLOT(const uint32_t, a), *b = SLOT(const uint32_t, b);
    uint32_t p = *(uint32_t *)(f + i->c) ^ (uint32_t)i->imm;
    MAP(uint32_t, p >> l & 1 ? a[l] : b[l]);
}
HANDLER(selp64) {
    const uint64_t *a = SLOT(const uint64_t, a), *b = SLOT(const uint64_t, b);
    uint32_t p = *(uint32_t *)(f + i->c) ^ (uint32_t)i->imm;
    MAP(uint64_t, p >> l & 1 ? a[l] : b[l]);
}
HANDLER(selp_pred) {
    uint32_t m = VG_MASK(i, w, f), p = *(uint32_t *)(f + i->c) ^ (uint32_t)i->imm;
    put_pred(f, i->d, m, (p & *(uint32_t *)(f + i->a)) | (~p & *(uint32_t *)(f + i->b)));
    VG_NEXT(i, w, f);
}
TERNARY(slct32, uint32_t, uint32_t, uint32_t, int32_t, c[l] >= 0 ? a[l] : b[l])
TERNARY(slct64, uint64_t, uint64_t, uint64_t, int32_t, c[l] >= 0 ? a[l] : b[l])
TERNARY(slct32_f32, uint32_t, uint32_t, uint32_t, float,
        (i->imm ? flush(c[l]) : c[l]) >= 0 ? a[l] : b[l])
TERNARY(slct64_f32, uint64_t, uint64_t, uint64_t, float,
        (i->imm ? flush(c[l]) : c[l]) >= 0 ? a[l] : b[l])

/* forms: everything whose operands are plain registers ----------------------------------------- */

// F(root, modifiers, handler, bits of d, a, b, c): one form per type of a size.
#define F(root, mods, run, ...) { root, mods, run, { __VA_ARGS__ }, 0, 0 }
#define FI(root, mods, run, imm, ...) { root, mods, run, { __VA_ARGS__ }, imm, 0 }
#define SIZES2(root, mods, op)                                                                     \
    F(root, mods "s16", op##16, 16, 16, 16), F(root, mods "u16", op##16, 16, 16, 16),              \
    F(root, mods "s32", op##32, 32, 32, 32), F(root, mods "u32", op##32, 32, 32, 32),              \
    F(root, mods "s64", op##64, 64, 64, 64), F(root, mods "u64", op##64, 64, 64, 64)
#define SIGNED2(root, mods, op, s32x, s64x)                                                        \
    F(root, mods "s16", op##_s16, 16, 16, 16), F(root, mods "u16", op##_u16, 16, 16, 16),          \
    F(root, mods "s32", s32x, 32, 32, 32), F(root, mods "u32", op##_u32, 32, 32, 32),              \
    F(root, mods "s64", s64x, 64, 64, 64), F(root, mods "u64", op##_u64, 64, 64, 64)
#define BITS(root, op) /* b16 as b32 */ \
    F(root, "b16", op##32, 16, 16, 16), F(root, "b32", op##32, 32, 32, 32), \
        F(root, "b64", op##64, 64, 64, 64)

const VgForm VG_NAME(vg_forms_int)[] = {
    SIZES2("add", "", add),
    SIZES2("sub", "", sub),
    F("add", "sat.s32", add_sat, 32, 32, 32),
    F("sub", "sat.s32", sub_sat, 32, 32, 32),
    F("add", "u16x2", add16x2, 32, 32, 32),
    F("add", "s16x2", add16x2, 32, 32, 32),
    SIZES2("mul", "lo.", mul_lo),
    SIGNED2("mul", "hi.", mul_hi, mul_hi_s32, mul_hi_s64),
    F("mul", "wide.s16", mul_wide_s16, 32, 16, 16),
    F("mul", "wide.u16", mul_wide_u16, 32, 16, 16),
    F("mul", "wide.s32", mul_wide_s32, 64, 32, 32),
    F("mul", "wide.u32", mul_wide_u32, 64, 32, 32),
    F("mad", "lo.s16", mad_lo16, 16, 16, 16, 16),
    F("mad", "lo.u16", mad_lo16, 16, 16, 16, 16),
    F("mad", "lo.s32", mad_lo32, 32, 32, 32, 32),
    F("mad", "lo.u32", mad_lo32, 32, 32, 32, 32),
    F("mad", "lo.s64", mad_lo64, 64, 64, 64, 64),
    F("mad", "lo.u64", mad_lo64, 64, 64, 64, 64),
    F("mad", "wide.s16", mad_wide_s16, 32, 16, 16, 32),
    F("mad", "wide.u16", mad_wide_u16, 32, 16, 16, 32),
    F("mad", "wide.s32", mad_wide_s32, 64, 32, 32, 64),
    F("mad", "wide.u32", mad_wide_u32, 64, 32, 32, 64),
    F("mad", "hi.s32", mad_hi_carry_s32, 32, 32, 32, 32),
    F("mad", "hi.u32", mad_hi_carry_u32, 32, 32, 32, 32),
    F("mad", "hi.s64", mad_hi_carry_s64, 64, 64, 64, 64),
    F("mad", "hi.u64", mad_hi_carry_u64, 64, 64, 64, 64),
    F("mad", "hi.sat.s32", mad_hi_sat, 32, 32, 32, 32),
    F("mul24", "lo.s32", mul24_lo_s, 32, 32, 32),
    F("mul24", "lo.u32", mul24_lo_u, 32, 32, 32),
    F("mul24", "hi.s32", mul24_hi_s, 32, 32, 32),
    F("mul24", "hi.u32", mul24_hi_u, 32, 32, 32),
    F("mad24", "lo.s32", mad24_lo_s, 32, 32, 32, 32),
    F("mad24", "lo.u32", mad24_lo_u, 32, 32, 32, 32),
    F("mad24", "hi.s32", mad24_hi_s, 32, 32, 32, 32),
    F("mad24", "hi.u32", mad24_hi_u, 32, 32, 32, 32),
    F("mad24", "hi.sat.s32", mad24_hi_sat, 32, 32, 32, 32),
    F("mad", "hi.s16", mad_hi_s16, 16, 16, 16, 16),
    F("mad", "hi.u16", mad_hi_u16, 16, 16, 16, 16),
    SIGNED2("div", "", div, div_s32x, div_s64x),
    SIGNED2("rem", "", rem, rem_s32x, rem_s64x),
    F("abs", "s16", abs16, 16, 16),
    F("abs", "s32", abs32, 32, 32),
    F("abs", "s64", abs64, 64, 64),
    F("neg", "s16", neg16, 16, 16),
    F("neg", "s32", neg32, 32, 32),
    F("neg", "s64", neg64, 64, 64),
    SIGNED2("min", "", min, min_s32, min_s64),
    SIGNED2("max", "", max, max_s32, max_s64),
    F("min", "s16x2", min_s16x2, 32, 32, 32),
    F("min", "u16x2", min_u16x2, 32, 32, 32),
    F("max", "s16x2", max_s16x2, 32, 32, 32),
    F("max", "u16x2", max_u16x2, 32, 32, 32),
    F("sad", "s16", sad_s16, 16, 16, 16, 16),
    F("sad", "u16", sad_u16, 16, 16, 16, 16),
    F("sad", "s32", sad_s32, 32, 32, 32, 32),
    F("sad", "u32", sad_u32, 32, 32, 32, 32),
    F("sad", "s64", sad_s64, 64, 64, 64, 64),
    F("sad", "u64", sad_u64, 64, 64, 64, 64),
#define CC(bits)                                                                                   \
    FI("add", "cc.s" #bits, add_carry##bits, 2, bits, bits, bits),                                 \
    FI("add", "cc.u" #bits, add_carry##bits, 2, bits, bits, bits),                                 \
    FI("addc", "s" #bits, add_carry##bits, 1, bits, bits, bits),                                   \
    FI("addc", "u" #bits, add_carry##bits, 1, bits, bits, bits),                                   \
    FI("addc", "cc.s" #bits, add_carry##bits, 3, bits, bits, bits),                                \
    FI("addc", "cc.u" #bits, add_carry##bits, 3, bits, bits, bits),                                \
    FI("sub", "cc.s" #bits, sub_carry##bits, 2, bits, bits, bits),                                 \
    FI("sub", "cc.u" #bits, sub_carry##bits, 2, bits, bits, bits),                                 \
    FI("subc", "s" #bits, sub_carry##bits, 1, bits, bits, bits),                                   \
    FI("subc", "u" #bits, sub_carry##bits, 1, bits, bits, bits),                                   \
    FI("subc", "cc.s" #bits, sub_carry##bits, 3, bits, bits, bits),                                \
    FI("subc", "cc.u" #bits, sub_carry##bits, 3, bits, bits, bits),                                \
    FI("mad", "lo.cc.s" #bits, mad_lo_carry##bits, 2, bits, bits, bits, bits),                     \
    FI("mad", "lo.cc.u" #bits, mad_lo_carry##bits, 2, bits, bits, bits, bits),                     \
    FI("mad", "hi.cc.s" #bits, mad_hi_carry_s##bits, 2, bits, bits, bits, bits),                   \
    FI("mad", "hi.cc.u" #bits, mad_hi_carry_u##bits, 2, bits, bits, bits, bits),                   \
    FI("madc", "lo.s" #bits, mad_lo_carry##bits, 1, bits, bits, bits, bits),                       \
    FI("madc", "lo.u" #bits, mad_lo_carry##bits, 1, bits, bits, bits, bits),                       \
    FI("madc", "hi.s" #bits, mad_hi_carry_s##bits, 1, bits, bits, bits, bits),                     \
    FI("madc", "hi.u" #bits, mad_hi_carry_u##bits, 1, bits, bits, bits, bits),                     \
    FI("madc", "lo.cc.s" #bits, mad_lo_carry##bits, 3, bits, bits, bits, bits),                    \
    FI("madc", "lo.cc.u" #bits, mad_lo_carry##bits, 3, bits, bits, bits, bits),                    \
    FI("madc", "hi.cc.s" #bits, mad_hi_carry_s##bits, 3, bits, bits, bits, bits),                  \
    FI("madc", "hi.cc.u" #bits, mad_hi_carry_u##bits, 3, bits, bits, bits, bits)
    CC(32),
    CC(64),
    BITS("and", and),
    BITS("or", or),
    BITS("xor", xor),
    F("not", "b16", not16, 16, 16),
    F("not", "b32", not32, 32, 32),
    F("not", "b64", not64, 64, 64),
    F("cnot", "b16", cnot16, 16, 16),
    F("cnot", "b32", cnot32, 32, 32),
    F("cnot", "b64", cnot64, 64, 64),
    F("shl", "b16", shl16, 16, 16, 32),
    F("shl", "b32", shl32, 32, 32, 32),
    F("shl", "b64", shl64, 64, 64, 32),
    F("shr", "b16", shr_u16, 16, 16, 32),
    F("shr", "b32", shr_u32, 32, 32, 32),
    F("shr", "b64", shr_u64, 64, 64, 32),
    F("shr", "u16", shr_u16, 16, 16, 32),
    F("shr", "u32", shr_u32, 32, 32, 32),
    F("shr", "u64", shr_u64, 64, 64, 32),
    F("shr", "s16", shr_s16, 16, 16, 32),
    F("shr", "s32", shr_s32, 32, 32, 32),
    F("shr", "s64", shr_s64, 64, 64, 32),
    F("shf", "l.wrap.b32", shf_l_wrap, 32, 32, 32, 32),
    F("shf", "r.wrap.b32", shf_r_wrap, 32, 32, 32, 32),
    F("shf", "l.clamp.b32", shf_l_clamp, 32, 32, 32, 32),
    F("shf", "r.clamp.b32", shf_r_clamp, 32, 32, 32, 32),
    F("popc", "b32", popc32, 32, 32),
    F("popc", "b64", popc64, 32, 64),
    F("clz", "b32", clz32, 32, 32),
    F("clz", "b64", clz64, 32, 64),
    F("brev", "b32", brev32, 32, 32),
    F("brev", "b64", brev64, 64, 64),
    FI("bfind", "u32", bfind_u32, 0, 32, 32),
    FI("bfind", "s32", bfind_s32, 0, 32, 32),
    FI("bfind", "u64", bfind_u64, 0, 32, 64),
    FI("bfind", "s64", bfind_s64, 0, 32, 64),
    FI("bfind", "shiftamt.u32", bfind_u32, 1, 32, 32),
    FI("bfind", "shiftamt.s32", bfind_s32, 1, 32, 32),
    FI("bfind", "shiftamt.u64", bfind_u64, 1, 32, 64),
    FI("bfind", "shiftamt.s64", bfind_s64, 1, 32, 64),
    F("bfe", "u32", bfe_u32, 32, 32, 32, 32),
    F("bfe", "s32", bfe_s32, 32, 32, 32, 32),
    F("bfe", "u64", bfe_u64, 64, 64, 32, 32),
    F("bfe", "s64", bfe_s64, 64, 64, 32, 32),
    F("bmsk", "clamp.b32", bmsk_clamp, 32, 32, 32),
    F("bmsk", "wrap.b32", bmsk_wrap, 32, 32, 32),
    FI("szext", "clamp.u32", szext, 0, 32, 32, 32),
    FI("szext", "clamp.s32", szext, 1, 32, 32, 32),
    FI("szext", "wrap.u32", szext, 2, 32, 32, 32),
    FI("szext", "wrap.s32", szext, 3, 32, 32, 32),
    F("fns", "b32", fns, 32, 32, 32, 32),
    F("prmt", "b32", prmt, 32, 32, 32, 32),
    FI("prmt", "b32.f4e", prmt_mode, 0, 32, 32, 32, 32),
    FI("prmt", "b32.b4e", prmt_mode, 1, 32, 32, 32, 32),
    FI("prmt", "b32.rc8", prmt_mode, 2, 32, 32, 32, 32),
    FI("prmt", "b32.ecl", prmt_mode, 3, 32, 32, 32, 32),
    FI("prmt", "b32.ecr", prmt_mode, 4, 32, 32, 32, 32),
    FI("prmt", "b32.rc16", prmt_mode, 5, 32, 32, 32, 32),
    F("slct", "b16.s32", slct32, 16, 16, 16, 32),
    F("slct", "u16.s32", slct32, 16, 16, 16, 32),
    F("slct", "s16.s32", slct32, 16, 16, 16, 32),
    F("slct", "b32.s32", slct32, 32, 32, 32, 32),
    F("slct", "u32.s32", slct32, 32, 32, 32, 32),
    F("slct", "s32.s32", slct32, 32, 32, 32, 32),
    F("slct", "f32.s32", slct32, 32, 32, 32, 32),
    F("slct", "b64.s32", slct64, 64, 64, 64, 32),
    F("slct", "u64.s32", slct64, 64, 64, 64, 32),
    F("slct", "s64.s32", slct64, 64, 64, 64, 32),
    F("slct", "f64.s32", slct64, 64, 64, 64, 32),
    FI("slct", "b16.f32", slct32_f32, 0, 16, 16, 16, 32),
    FI("slct", "u16.f32", slct32_f32, 0, 16, 16, 16, 32),
    FI("slct", "s16.f32", slct32_f32, 0, 16, 16, 16, 32),
    FI("slct", "b32.f32", slct32_f32, 0, 32, 32, 32, 32),
    FI("slct", "u32.f32", slct32_f32, 0, 32, 32, 32, 32),
    FI("slct", "s32.f32", slct32_f32, 0, 32, 32, 32, 32),
    FI("slct", "f32.f32", slct32_f32, 0, 32, 32, 32, 32),
    FI("slct", "ftz.b32.f32", slct32_f32, 1, 32, 32, 32, 32),
    FI("slct", "ftz.f32.f32", slct32_f32, 1, 32, 32, 32, 32),
    FI("slct", "b64.f32", slct64_f32, 0, 64, 64, 64, 32),
    FI("slct", "f64.f32", slct64_f32, 0, 64, 64, 64, 32),
    { 0 },
};

/* decoding of the rest ------------------------------------------------------------------------- */

static Status decode_mov_vector(VgDecoder *d, const PtxInstr *p, int bits) {
    const PtxOperand *to = &p->operands[0], *from = &p->operands[1];
    bool pack = from->kind == PTX_OP_VECTOR;
    const PtxOperand *vector = pack ? from : to;
    uint32_t n = vector->n_items, refs[8], whole;
    if (to->kind == PTX_OP_VECTOR && from->kind == PTX_OP_VECTOR)
        return vg_bad(d, "only one side may be { }");
    if (n != 2 && n != 4) return vg_bad(d, "expected 2 or 4 elements in { }");
    int each = bits / (int)n;
    if (each != 8 && each != 16 && each != 32 && each != 64)
        return vg_bad(d, "elements of %d bits", each);
    if (pack) {
        for (uint32_t k = 0; k < n; k++) TRY(vg_src(d, &from->items[k], each, &refs[k]));
        TRY(vg_dst(d, to, bits, false, &whole));
        if (bits == 128 && n == 4) {
            uint32_t half[2];
            for (int k = 0; k < 2; k++) {
                half[k] = vg_temp(d, 64);
                VgInstr *i = vg_emit(d, pack32x2);
                i->d = half[k], i->a = refs[2 * k], i->b = refs[2 * k + 1];
            }
            refs[0] = half[0], refs[1] = half[1], n = 2;
        }
        if (n == 4) { // 4 x 16 or 4 x 8: two pairs first
            for (int k = 0; k < 2; k++) {
                uint32_t pair = vg_temp(d, 32);
                VgInstr *i = vg_emit(d, each == 8 ? pack8x2 : VG_NAME(vg_pack16));
                i->d = pair, i->a = refs[2 * k], i->b = refs[2 * k + 1];
                refs[k] = pair;
            }
            each *= 2;
        }
        if (bits == 128) {
            uint32_t *list = ARENA_ARRAY(vg_arena(d), uint32_t, 3);
            list[0] = whole, list[1] = refs[0], list[2] = refs[1];
            vg_emit(d, pack64x2)->ops = list;
            vg_emit_list(d, list, 1, 2);
            return OK;
        }
        VgInstr *i = vg_emit(d, each == 8 ? pack8x2 : each == 16 ? VG_NAME(vg_pack16) : pack32x2);
        i->d = whole, i->a = refs[0], i->b = refs[1];
        return OK;
    }
    TRY(vg_src(d, from, bits, &whole));
    uint32_t halves[2] = { whole, whole };
    int half = bits / 2;
    bool two = n == 4;
    if (bits == 128 || two) { // halves first
        for (int k = 0; k < 2; k++) {
            uint32_t part = vg_temp(d, half);
            VgHandler run = bits == 128  ? (k ? high64 : low64)
                            : bits == 64 ? (k ? high32 : VG_NAME(vg_narrow))
                                         : (k ? high16 : VG_NAME(vg_low16));
            if (n == 2) TRY(vg_dst(d, &to->items[k], half, false, &part));
            uint32_t *list = ARENA_ARRAY(vg_arena(d), uint32_t, 2);
            list[0] = part, list[1] = whole;
            VgInstr *i = vg_emit(d, run);
            i->d = part, i->a = whole;
            if (bits == 128) {
                i->d = i->a = 0;
                i->ops = list;
                vg_emit_list(d, list, 1, 1);
            }
            halves[k] = part;
        }
        if (n == 2) return OK;
    }
    for (uint32_t k = 0; k < n; k++) {
        if (to->items[k].kind == PTX_OP_SINK) continue;
        uint32_t part, source = two ? halves[k / 2] : whole;
        bool high = k & 1;
        TRY(vg_dst(d, &to->items[k], each, false, &part));
        VgInstr *i = vg_emit(d, each == 32   ? (high ? high32 : VG_NAME(vg_narrow))
                                : each == 16 ? (high ? high16 : VG_NAME(vg_low16))
                                             : (high ? high8 : low8));
        i->d = part, i->a = source;
    }
    return OK;
}

static Status decode_mov(VgDecoder *d, const PtxInstr *p) {
    PtxType type = vg_take_type(d);
    int bits = ptx_type_bits(type);
    TRY(vg_count(d, 2, 2));
    if (type == PTX_PRED) {
        uint32_t to, from;
        bool negate;
        TRY(vg_pred_dst(d, &p->operands[0], &to));
        TRY(vg_pred(d, &p->operands[1], &from, &negate));
        VgInstr *i = vg_emit(d, move_pred);
        i->d = to, i->a = from, i->imm = negate;
        return OK;
    }
    if (bits != 16 && bits != 32 && bits != 64 && bits != 128)
        return vg_bad(d, "no mov of this type");
    if (p->operands[0].kind == PTX_OP_VECTOR || p->operands[1].kind == PTX_OP_VECTOR)
        return decode_mov_vector(d, p, bits);
    uint32_t to, from;
    bool done;
    TRY(VG_NAME(vg_decode_clock)(d, p, &done));
    if (done) return OK;
    TRY(vg_src(d, &p->operands[1], bits, &from));
    TRY(vg_dst(d, &p->operands[0], bits, false, &to));
    VgInstr *i = vg_emit(d, bits == 128  ? move128
                            : bits == 64 ? VG_NAME(vg_move64)
                                         : VG_NAME(vg_move32));
    i->d = to, i->a = from;
    return OK;
}

static Status decode_logic_pred(VgDecoder *d, const PtxInstr *p) {
    uint32_t to, a, b = 0;
    bool na, nb = false, is_not = !strcmp(p->root, "not");
    if (!vg_take(d, "pred")) return vg_bad(d, "no such type");
    TRY(vg_count(d, is_not ? 2 : 3, is_not ? 2 : 3));
    TRY(vg_pred_dst(d, &p->operands[0], &to));
    TRY(vg_pred(d, &p->operands[1], &a, &na));
    if (!is_not) TRY(vg_pred(d, &p->operands[2], &b, &nb));
    VgInstr *i = vg_emit(d, is_not ? move_pred : logic_pred);
    i->d = to, i->a = a, i->b = b;
    i->imm = is_not ? !na : (*p->root == 'a' ? 0 : *p->root == 'o' ? 1 : 2) | na << 2 | nb << 3;
    return OK;
}

static Status decode_lop3(VgDecoder *d, const PtxInstr *p) {
    uint32_t to, s[3];
    if (!vg_take(d, "b32")) return vg_bad(d, "expected .b32");
    TRY(vg_count(d, 5, 5));
    for (int k = 0; k < 3; k++) TRY(vg_src(d, &p->operands[1 + k], 32, &s[k]));
    if (p->operands[4].kind != PTX_OP_IMM) return vg_bad(d, "the table must be an immediate");
    TRY(vg_dst(d, &p->operands[0], 32, false, &to));
    VgInstr *i = vg_emit(d, lop3);
    i->d = to, i->a = s[0], i->b = s[1], i->c = s[2];
    i->imm = (int64_t)p->operands[4].bits;
    return OK;
}

static Status decode_bfi(VgDecoder *d, const PtxInstr *p) {
    PtxType type = vg_take_type(d);
    int bits = ptx_type_bits(type);
    uint32_t *list = ARENA_ARRAY(vg_arena(d), uint32_t, 1), to, a, b, c;
    if (type != PTX_B32 && type != PTX_B64) return vg_bad(d, "expected .b32 or .b64");
    TRY(vg_count(d, 5, 5));
    TRY(vg_src(d, &p->operands[1], bits, &a));
    TRY(vg_src(d, &p->operands[2], bits, &b));
    TRY(vg_src(d, &p->operands[3], 32, &c));
    TRY(vg_src(d, &p->operands[4], 32, &list[0]));
    TRY(vg_dst(d, &p->operands[0], bits, false, &to));
    VgInstr *i = vg_emit(d, bits == 64 ? bfi64 : bfi32);
    i->d = to, i->a = a, i->b = b, i->c = c, i->ops = list;
    vg_emit_list(d, list, 0, 1);
    return OK;
}

static Status decode_selp(VgDecoder *d, const PtxInstr *p) {
    PtxType type = vg_take_type(d);
    int bits = ptx_type_bits(type);
    uint32_t to, a, b, c;
    bool negate, na, nb;
    TRY(vg_count(d, 4, 4));
    TRY(vg_pred(d, &p->operands[3], &c, &negate));
    if (type == PTX_PRED) {
        TRY(vg_pred_dst(d, &p->operands[0], &to));
        TRY(vg_pred(d, &p->operands[1], &a, &na));
        TRY(vg_pred(d, &p->operands[2], &b, &nb));
        if (na || nb) return vg_bad(d, "negated predicates as values");
    } else {
        if (bits < 16 || bits > 64) return vg_bad(d, "no selp of this type");
        TRY(vg_src(d, &p->operands[1], bits, &a));
        TRY(vg_src(d, &p->operands[2], bits, &b));
        TRY(vg_dst(d, &p->operands[0], bits, false, &to));
    }
    VgInstr *i = vg_emit(d, type == PTX_PRED ? selp_pred
                            : bits == 64     ? selp64
                                             : VG_NAME(vg_select32));
    i->d = to, i->a = a, i->b = b, i->c = c;
    i->imm = negate ? 0xffffffff : 0;
    return OK;
}

static Status decode_dot(VgDecoder *d, const PtxInstr *p) {
    int flags = 0, types[2];
    uint32_t s[3], to;
    bool two = !strcmp(p->root, "dp2a");
    for (int k = 0; k < 2; k++) {
        types[k] = vg_take_type(d);
        if (types[k] != PTX_S32 && types[k] != PTX_U32)
            return vg_bad(d, "expected .u32 or .s32 twice");
        flags |= types[k] == PTX_S32 ? 1 << k : 0;
    }
    if (two && vg_take(d, "hi")) flags |= 4;
    else if (two && !vg_take(d, "lo")) return vg_bad(d, "expected .lo or .hi");
    TRY(vg_count(d, 4, 4));
    for (int k = 0; k < 3; k++) TRY(vg_src(d, &p->operands[1 + k], 32, &s[k]));
    TRY(vg_dst(d, &p->operands[0], 32, false, &to));
    VgInstr *i = vg_emit(d, two ? dp2a : dp4a);
    i->d = to, i->a = s[0], i->b = s[1], i->c = s[2], i->imm = flags;
    return OK;
}

// min.relu.s32 and the like: the operation, then the clamp.
static Status decode_relu(VgDecoder *d, const PtxInstr *p) {
    bool is_min = !strcmp(p->root, "min"), pair = vg_take(d, "s16x2");
    if (!vg_take(d, "relu") || (!pair && !vg_take(d, "s32"))) return vg_bad(d, "no such form");
    uint32_t a, b, to, t = vg_temp(d, 32);
    TRY(vg_count(d, 3, 3));
    TRY(vg_src(d, &p->operands[1], 32, &a));
    TRY(vg_src(d, &p->operands[2], 32, &b));
    TRY(vg_dst(d, &p->operands[0], 32, true, &to));
    VgInstr *i = vg_emit(d, pair ? (is_min ? min_s16x2 : max_s16x2) : is_min ? min_s32 : max_s32);
    i->d = t, i->a = a, i->b = b;
    i = vg_emit(d, pair ? relu16x2 : relu32);
    i->d = to, i->a = t;
    return OK;
}

const VgRoot VG_NAME(vg_roots_int)[] = {
    { "mov", decode_mov,
      "mov.{pred,b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64,b128}, { } on one side" },
    { "and", decode_logic_pred, "and.{pred,b16,b32,b64}" },
    { "or", decode_logic_pred, "or.{pred,b16,b32,b64}" },
    { "xor", decode_logic_pred, "xor.{pred,b16,b32,b64}" },
    { "not", decode_logic_pred, "not.{pred,b16,b32,b64}" },
    { "lop3", decode_lop3, "lop3.b32" },
    { "bfi", decode_bfi, "bfi.{b32,b64}" },
    { "selp", decode_selp, "selp.{pred,b16,b32,b64,u32,s32,f32,...}" },
    { "dp4a", decode_dot, "dp4a.{u32,s32}.{u32,s32}" },
    { "dp2a", decode_dot, "dp2a.{lo,hi}.{u32,s32}.{u32,s32}" },
    { "min", decode_relu, "min{.relu}.{s16,u16,s32,u32,s64,u64,s16x2,u16x2,f16,...}" },
    { "max", decode_relu, "max{.relu}.{s16,u16,s32,u32,s64,u64,s16x2,u16x2,f16,...}" },
    { NULL, NULL, NULL },
};
