// SPDX-License-Identifier: Apache-2.0
// Integer instructions over all pairs of edge values, against plain C; a guard that holds for some
// lanes.
#include "tests/vgpu/gpu.h"

#include <stdio.h>

static Gpu gpu;

static const uint64_t edges[] = {
    0, 1, 2, 3, 7, 15, 16, 31, 32, 33, 63, 64, 65, 255, 256, 0x7f, 0x80, 0x7fff, 0x8000, 0xffff,
    0x10000, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 0xfffffffe, 0x12345678, 0x100000000,
    0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff, 0xfedcba9876543210,
};
enum { EDGES = COUNT_OF(edges), PAIRS = EDGES * EDGES };

typedef uint64_t Ref(uint64_t a, uint64_t b, uint64_t c);
#define REF(name, expr)                                                                            \
    static uint64_t name(uint64_t a, uint64_t b, uint64_t c) {                                     \
        (void)a, (void)b, (void)c;                                                                 \
        return (uint64_t)(expr);                                                                   \
    }
typedef __int128 s128;
typedef unsigned __int128 u128;
#define A32 ((int32_t)a)
#define B32 ((int32_t)b)
#define C32 ((int32_t)c)
#define A64 ((int64_t)a)
#define B64 ((int64_t)b)
#define A16 ((int16_t)a)
#define B16 ((int16_t)b)
REF(add, a + b)
REF(sub, a - b)
REF(mul, a * b)
REF(mad, a * b + c)
REF(add_sat,
    (int64_t)A32 + B32 > INT32_MAX   ? INT32_MAX
    : (int64_t)A32 + B32 < INT32_MIN ? INT32_MIN : A32 + (int64_t)B32)
REF(sub_sat,
    (int64_t)A32 - B32 > INT32_MAX   ? INT32_MAX
    : (int64_t)A32 - B32 < INT32_MIN ? INT32_MIN : A32 - (int64_t)B32)
REF(hi_s32, (int64_t)A32 * B32 >> 32)
REF(hi_u32, (uint64_t)(uint32_t)a * (uint32_t)b >> 32)
REF(hi_s64, (uint64_t)((s128)A64 * B64 >> 64))
REF(hi_u64, (uint64_t)((u128)a * b >> 64))
REF(hi_s16, (int32_t)A16 * B16 >> 16)
REF(hi_u16, (uint32_t)(uint16_t)a * (uint16_t)b >> 16)
REF(wide_s32, (int64_t)A32 * B32)
REF(wide_u32, (uint64_t)(uint32_t)a * (uint32_t)b)
REF(wide_s16, (int32_t)A16 * B16)
REF(wide_u16, (uint32_t)(uint16_t)a * (uint16_t)b)
REF(mad_wide, (uint64_t)((int64_t)A32 * B32) + c)
REF(mad_hi, ((int64_t)A32 * B32 >> 32) + C32)
REF(div_s32, B32 ? (int64_t)A32 / B32 : 0)
REF(div_u32, (uint32_t)b ? (uint32_t)a / (uint32_t)b : 0)
REF(rem_s32, B32 ? (int64_t)A32 % B32 : 0)
REF(rem_u64, b ? a % b : 0)
REF(div_u64, b ? a / b : 0)
REF(div_s64, b ? (uint64_t)((s128)A64 / B64) : 0)
REF(div_s16, B16 ? A16 / B16 : 0)
REF(min_s32, A32 < B32 ? A32 : B32)
REF(max_u32, (uint32_t)a > (uint32_t)b ? a : b)
REF(min_s64, A64 < B64 ? a : b)
REF(max_s16, A16 > B16 ? A16 : B16)
REF(min_u64, a < b ? a : b)
REF(and, a & b)
REF(or, a | b)
REF(xor, a ^ b)
REF(not, ~a)
REF(cnot, (uint32_t)a == 0)
REF(shl32, (uint32_t)b > 31 ? 0 : a << b)
REF(shl64, (uint32_t)b > 63 ? 0 : a << (b & 63))
REF(shl16, (uint32_t)b > 15 ? 0 : a << b)
REF(shr_u32, (uint32_t)b > 31 ? 0 : (uint32_t)a >> b)
REF(shr_s32, A32 >> ((uint32_t)b > 31 ? 31 : b))
REF(shr_s64, A64 >> ((uint32_t)b > 63 ? 63 : b & 63))
REF(shr_s16, A16 >> ((uint32_t)b > 15 ? 15 : b))
REF(shr_u64, (uint32_t)b > 63 ? 0 : a >> (b & 63))
REF(shf_l_wrap, (((b & 0xffffffff) << 32 | (uint32_t)a) << (c & 31)) >> 32)
REF(shf_r_wrap, ((b & 0xffffffff) << 32 | (uint32_t)a) >> (c & 31))
REF(shf_l_clamp, (uint32_t)c > 31 ? a : (((b & 0xffffffff) << 32 | (uint32_t)a) << (c & 31)) >> 32)
REF(shf_r_clamp, (uint32_t)c > 31 ? b : ((b & 0xffffffff) << 32 | (uint32_t)a) >> (c & 31))
REF(popc, __builtin_popcountll(a))
REF(popc32, __builtin_popcount((uint32_t)a))
REF(clz32, (uint32_t)a ? __builtin_clz((uint32_t)a) : 32)
REF(clz64, a ? __builtin_clzll(a) : 64)
REF(bfind_s,
    A32 == 0 || A32 == -1 ? ~0ull : 31 - (uint64_t)__builtin_clz((uint32_t)(A32 < 0 ? ~a : a)))
REF(bfind_shift, (uint32_t)a ? (uint64_t)__builtin_clz((uint32_t)a) : ~0ull)
static uint64_t brev_ref(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t r = 0;
    (void)b, (void)c;
    for (int k = 0; k < 32; k++) r |= (a >> k & 1) << (31 - k);
    return r;
}
// As the manual writes it.
static uint64_t bfe_s32(uint64_t a, uint64_t b, uint64_t c) {
    int msb = 31, pos = b & 255, len = c & 255;
    int last = pos + len - 1 < msb ? pos + len - 1 : msb;
    int sbit = len == 0 ? 0 : (uint32_t)a >> last & 1;
    uint32_t d = 0;
    for (int k = 0; k <= msb; k++)
        d |= (uint32_t)(k < len && pos + k <= msb ? (uint32_t)a >> (pos + k) & 1 : (uint32_t)sbit)
             << k;
    return d;
}
static uint64_t bfe_u64(uint64_t a, uint64_t b, uint64_t c) {
    int pos = b & 255, len = c & 255;
    uint64_t d = 0;
    for (int k = 0; k < 64; k++) d |= (k < len && pos + k <= 63 ? a >> (pos + k) & 1 : 0) << k;
    return d;
}
static uint64_t bfi_ref(uint64_t a, uint64_t b, uint64_t c) { // into b at position c, 5 bits
    uint32_t f = (uint32_t)b, pos = c & 255;
    for (uint32_t k = 0; k < 5 && pos + k <= 31; k++)
        f = (f & ~(1u << (pos + k))) | ((uint32_t)a >> k & 1) << (pos + k);
    return f;
}
static uint64_t prmt_ref(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t bytes = (b & 0xffffffff) << 32 | (uint32_t)a, r = 0;
    for (int k = 0; k < 4; k++) {
        int s = c >> 4 * k & 15;
        uint64_t v = bytes >> 8 * (s & 7) & 255;
        r |= (s & 8 ? (v & 128 ? 255u : 0) : v) << 8 * k;
    }
    return r;
}
static uint64_t dp4a_ref(uint64_t a, uint64_t b, uint64_t c) {
    int32_t sum = 0;
    for (int k = 0; k < 4; k++) sum += (int8_t)(a >> 8 * k) * (uint8_t)(b >> 8 * k);
    return (uint32_t)sum + (uint32_t)c;
}
REF(lop_maj, (a & b) | (a & c) | (b & c))
REF(sad, (uint32_t)c + (uint32_t)(A32 > B32 ? (int64_t)A32 - B32 : (int64_t)B32 - A32))
REF(neg, 0 - a)
REF(abs32, A32 < 0 ? 0 - (uint64_t)(int64_t)A32 : a)
REF(selp, c & 1 ? a : b)
REF(slct, C32 >= 0 ? a : b)
REF(lt_s, A32 < B32)
REF(ge_u, (uint32_t)a >= (uint32_t)b)
REF(ne_64, a != b)
REF(le_s64, A64 <= B64)
REF(gt_s16, A16 > B16)
REF(and_c, A32 < B32 && (c & 1))
REF(xor_nc, (A32 == B32) != !(c & 1))
REF(mul24, ((int64_t)(int32_t)(a << 8) >> 8) * ((int64_t)(int32_t)(b << 8) >> 8))

typedef struct Row { GpuOp op; Ref *ref; bool no_zero; } Row;
static const Row rows[] = {
    { { "add.s32 d, a, b;", 32, 32, 32, 0 }, add, 0 },
    { { "add.u64 d, a, b;", 64, 64, 64, 0 }, add, 0 },
    { { "add.s16 d, a, b;", 16, 16, 16, 0 }, add, 0 },
    { { "sub.s32 d, a, b;", 32, 32, 32, 0 }, sub, 0 },
    { { "sub.s64 d, a, b;", 64, 64, 64, 0 }, sub, 0 },
    { { "sub.u16 d, a, b;", 16, 16, 16, 0 }, sub, 0 },
    { { "add.sat.s32 d, a, b;", 32, 32, 32, 0 }, add_sat, 0 },
    { { "sub.sat.s32 d, a, b;", 32, 32, 32, 0 }, sub_sat, 0 },
    { { "mul.lo.s32 d, a, b;", 32, 32, 32, 0 }, mul, 0 },
    { { "mul.lo.u64 d, a, b;", 64, 64, 64, 0 }, mul, 0 },
    { { "mul.lo.s16 d, a, b;", 16, 16, 16, 0 }, mul, 0 },
    { { "mul.hi.s32 d, a, b;", 32, 32, 32, 0 }, hi_s32, 0 },
    { { "mul.hi.u32 d, a, b;", 32, 32, 32, 0 }, hi_u32, 0 },
    { { "mul.hi.s64 d, a, b;", 64, 64, 64, 0 }, hi_s64, 0 },
    { { "mul.hi.u64 d, a, b;", 64, 64, 64, 0 }, hi_u64, 0 },
    { { "mul.hi.s16 d, a, b;", 16, 16, 16, 0 }, hi_s16, 0 },
    { { "mul.hi.u16 d, a, b;", 16, 16, 16, 0 }, hi_u16, 0 },
    { { "mul.wide.s32 d, a, b;", 64, 32, 32, 0 }, wide_s32, 0 },
    { { "mul.wide.u32 d, a, b;", 64, 32, 32, 0 }, wide_u32, 0 },
    { { "mul.wide.s16 d, a, b;", 32, 16, 16, 0 }, wide_s16, 0 },
    { { "mul.wide.u16 d, a, b;", 32, 16, 16, 0 }, wide_u16, 0 },
    { { "mad.lo.s32 d, a, b, c;", 32, 32, 32, 32 }, mad, 0 },
    { { "mad.lo.u64 d, a, b, c;", 64, 64, 64, 64 }, mad, 0 },
    { { "mad.wide.s32 d, a, b, c;", 64, 32, 32, 64 }, mad_wide, 0 },
    { { "mad.hi.s32 d, a, b, c;", 32, 32, 32, 32 }, mad_hi, 0 },
    { { "mul24.lo.s32 d, a, b;", 32, 32, 32, 0 }, mul24, 0 },
    { { "div.s32 d, a, b;", 32, 32, 32, 0 }, div_s32, 1 },
    { { "div.u32 d, a, b;", 32, 32, 32, 0 }, div_u32, 1 },
    { { "rem.s32 d, a, b;", 32, 32, 32, 0 }, rem_s32, 1 },
    { { "rem.u64 d, a, b;", 64, 64, 64, 0 }, rem_u64, 1 },
    { { "div.u64 d, a, b;", 64, 64, 64, 0 }, div_u64, 1 },
    { { "div.s64 d, a, b;", 64, 64, 64, 0 }, div_s64, 1 },
    { { "div.s16 d, a, b;", 16, 16, 16, 0 }, div_s16, 1 },
    { { "min.s32 d, a, b;", 32, 32, 32, 0 }, min_s32, 0 },
    { { "max.u32 d, a, b;", 32, 32, 32, 0 }, max_u32, 0 },
    { { "min.s64 d, a, b;", 64, 64, 64, 0 }, min_s64, 0 },
    { { "max.s16 d, a, b;", 16, 16, 16, 0 }, max_s16, 0 },
    { { "min.u64 d, a, b;", 64, 64, 64, 0 }, min_u64, 0 },
    { { "and.b32 d, a, b;", 32, 32, 32, 0 }, and, 0 },
    { { "or.b64 d, a, b;", 64, 64, 64, 0 }, or, 0 },
    { { "xor.b16 d, a, b;", 16, 16, 16, 0 }, xor, 0 },
    { { "not.b16 d, a;", 16, 16, 0, 0 }, not, 0 },
    { { "not.b64 d, a;", 64, 64, 0, 0 }, not, 0 },
    { { "cnot.b32 d, a;", 32, 32, 0, 0 }, cnot, 0 },
    { { "shl.b32 d, a, b;", 32, 32, 32, 0 }, shl32, 0 },
    { { "shl.b64 d, a, b;", 64, 64, 32, 0 }, shl64, 0 },
    { { "shl.b16 d, a, b;", 16, 16, 32, 0 }, shl16, 0 },
    { { "shr.u32 d, a, b;", 32, 32, 32, 0 }, shr_u32, 0 },
    { { "shr.s32 d, a, b;", 32, 32, 32, 0 }, shr_s32, 0 },
    { { "shr.s64 d, a, b;", 64, 64, 32, 0 }, shr_s64, 0 },
    { { "shr.s16 d, a, b;", 16, 16, 32, 0 }, shr_s16, 0 },
    { { "shr.b64 d, a, b;", 64, 64, 32, 0 }, shr_u64, 0 },
    { { "shf.l.wrap.b32 d, a, b, c;", 32, 32, 32, 32 }, shf_l_wrap, 0 },
    { { "shf.r.wrap.b32 d, a, b, c;", 32, 32, 32, 32 }, shf_r_wrap, 0 },
    { { "shf.l.clamp.b32 d, a, b, c;", 32, 32, 32, 32 }, shf_l_clamp, 0 },
    { { "shf.r.clamp.b32 d, a, b, c;", 32, 32, 32, 32 }, shf_r_clamp, 0 },
    { { "popc.b64 d, a;", 32, 64, 0, 0 }, popc, 0 },
    { { "popc.b32 d, a;", 32, 32, 0, 0 }, popc32, 0 },
    { { "clz.b32 d, a;", 32, 32, 0, 0 }, clz32, 0 },
    { { "clz.b64 d, a;", 32, 64, 0, 0 }, clz64, 0 },
    { { "bfind.s32 d, a;", 32, 32, 0, 0 }, bfind_s, 0 },
    { { "bfind.shiftamt.u32 d, a;", 32, 32, 0, 0 }, bfind_shift, 0 },
    { { "brev.b32 d, a;", 32, 32, 0, 0 }, brev_ref, 0 },
    { { "bfe.s32 d, a, b, c;", 32, 32, 32, 32 }, bfe_s32, 0 },
    { { "bfe.u64 d, a, b, c;", 64, 64, 32, 32 }, bfe_u64, 0 },
    { { "bfi.b32 d, a, b, c, 5;", 32, 32, 32, 32 }, bfi_ref, 0 },
    { { "prmt.b32 d, a, b, c;", 32, 32, 32, 32 }, prmt_ref, 0 },
    { { "dp4a.s32.u32 d, a, b, c;", 32, 32, 32, 32 }, dp4a_ref, 0 },
    { { "lop3.b32 d, a, b, c, 0xE8;", 32, 32, 32, 32 }, lop_maj, 0 },
    { { "sad.s32 d, a, b, c;", 32, 32, 32, 32 }, sad, 0 },
    { { "neg.s32 d, a;", 32, 32, 0, 0 }, neg, 0 },
    { { "abs.s32 d, a;", 32, 32, 0, 0 }, abs32, 0 },
    { { "{ .reg .pred q; and.b32 c, c, 1; setp.ne.s32 q, c, 0; selp.b64 d, a, b, q; }", 64, 64, 64,
        32 },
      selp,
      0 },
    { { "slct.u32.s32 d, a, b, c;", 32, 32, 32, 32 }, slct, 0 },
    { { "setp.lt.s32 d, a, b;", 1, 32, 32, 0 }, lt_s, 0 },
    { { "setp.hs.u32 d, a, b;", 1, 32, 32, 0 }, ge_u, 0 },
    { { "setp.ne.b64 d, a, b;", 1, 64, 64, 0 }, ne_64, 0 },
    { { "setp.le.s64 d, a, b;", 1, 64, 64, 0 }, le_s64, 0 },
    { { "setp.gt.s16 d, a, b;", 1, 16, 16, 0 }, gt_s16, 0 },
    { { "{ .reg .pred q; and.b32 c, c, 1; setp.ne.s32 q, c, 0; setp.lt.and.s32 d, a, b, q; }", 1,
        32, 32, 32 },
      and_c,
      0 },
    { { "{ .reg .pred q; and.b32 c, c, 1; setp.ne.s32 q, c, 0; setp.eq.xor.s32 d, a, b, !q; }", 1,
        32, 32, 32 },
      xor_nc,
      0 },
    // A destination that is a source, through a wider and a narrower one, and immediates.
    { { "mov.b64 d, a; add.s64 d, d, d; sub.s64 d, d, a; add.s64 d, d, b;", 64, 64, 64, 0 },
      add,
      0 },
    { { "{ .reg .b32 l, h; mov.b64 {l, h}, a; mov.b64 d, {h, l}; mov.b64 {l, h}, d; mov.b64 d, {h, "
        "l}; add.s64 d, d, b; }",
        64, 64, 64, 0 },
      add,
      0 },
    { { "{ .reg .b16 l, h; mov.b32 {l, h}, a; mov.b32 d, {l, h}; xor.b32 d, d, b; }", 32, 32, 32,
        0 },
      xor,
      0 },
    { { "{ .reg .b64 x; .reg .b32 l, h, m, n; mov.b64 x, a; mov.b128 w, {x, x}; mov.b128 {l, h, m, "
        "n}, w; mov.b64 d, {m, h}; add.s64 d, d, b; }",
        64, 64, 64, 0 },
      add,
      0 },
};

static uint64_t cut(uint64_t v, int bits) {
    return bits == 1 ? v & 1 : bits >= 64 ? v : v & ((1ull << bits) - 1);
}

static void all_pairs(void **state) {
    (void)state;
    static uint64_t a[PAIRS], b[PAIRS], c[PAIRS], d[PAIRS];
    for (int r = 0; r < COUNT_OF(rows); r++) {
        int n = 0;
        const GpuOp *op = &rows[r].op;
        for (int k = 0; k < PAIRS; k++) {
            uint64_t y = edges[k % EDGES];
            if (rows[r].no_zero && !cut(y, op->b)) continue;
            a[n] = edges[k / EDGES];
            b[n] = y;
            c[n] = edges[(k * 7 + k / EDGES) % EDGES];
            d[n++] = 0xdddddddddddddddd;
        }
        GpuOp with = *op;
        char text[400];
        if (strstr(op->text, "mov.b128")) { // needs a register of its own
            snprintf(text, sizeof text, ".reg .b128 w; %s", op->text);
            with.text = text;
        }
        gpu_op(&gpu, &with, n, a, b, c, d);
        for (int k = 0; k < n; k++) {
            uint64_t want =
                cut(rows[r].ref(cut(a[k], op->a), cut(b[k], op->b), cut(c[k], op->c)), op->d);
            if (cut(d[k], op->d) != want)
                fail_msg("%s a=%llx b=%llx c=%llx: %llx, expected %llx", op->text,
                         (unsigned long long)a[k], (unsigned long long)b[k],
                         (unsigned long long)c[k], (unsigned long long)d[k],
                         (unsigned long long)want);
        }
    }
}

static void division_by_zero(void **state) {
    (void)state;
    uint64_t a[3] = { 5, 0xffffffff, 0 }, b[3] = { 0 }, d[3] = { 0 };
    gpu_op(&gpu, &(GpuOp){ "div.u32 d, a, b;", 32, 32, 32, 0 }, 3, a, b, NULL, d);
    for (int k = 0; k < 3; k++) assert_int_equal(d[k], 0xffffffff);
    gpu_op(&gpu, &(GpuOp){ "rem.u32 d, a, b;", 32, 32, 32, 0 }, 3, a, b, NULL, d);
    for (int k = 0; k < 3; k++) assert_int_equal(d[k], a[k]);
}

// Lanes whose guard is false keep the old value, whichever handler it is.
static void guards(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{ .reg .pred q; setp.ne.s32 q, c, 0; @q add.s32 d, a, b; }",
        "{ .reg .pred q; setp.eq.s32 q, c, 0; @!q add.s32 d, a, b; }",
        "{ .reg .pred q; setp.eq.s32 q, c, 0; @q bra SKIP; add.s32 d, a, b; SKIP: }",
    };
    uint64_t a[64], b[64], c[64], d[64];
    for (int t = 0; t < COUNT_OF(texts); t++) {
        for (int k = 0; k < 64; k++) {
            a[k] = (uint64_t)k * 1000;
            b[k] = 7;
            c[k] = k * 5 % 3 == 1;
            d[k] = 99;
        }
        gpu_op(&gpu, &(GpuOp){ texts[t], 32, 32, 32, 32 }, 64, a, b, c, d);
        for (int k = 0; k < 64; k++) assert_int_equal(d[k], c[k] ? a[k] + 7 : 99);
    }
}

// 128-bit arithmetic through the carry.
static void carries(void **state) {
    (void)state;
    uint64_t a[EDGES], b[EDGES], d[EDGES];
    for (int k = 0; k < EDGES; k++) a[k] = edges[k], b[k] = edges[EDGES - 1 - k], d[k] = 0;
    // High halves of a + b, a - b (as 0 - borrow) and of the 64 x 64 product from 32-bit steps.
    gpu_op(&gpu,
           &(GpuOp){ "{ .reg .b64 t; add.cc.u64 t, a, b; addc.u64 d, 0, 0; }", 64, 64, 64, 0 },
           EDGES, a, b, NULL, d);
    for (int k = 0; k < EDGES; k++) assert_int_equal(d[k], (uint64_t)(((u128)a[k] + b[k]) >> 64));
    gpu_op(&gpu,
           &(GpuOp){ "{ .reg .b64 t; sub.cc.u64 t, a, b; subc.u64 d, 0, 0; }", 64, 64, 64, 0 },
           EDGES, a, b, NULL, d);
    for (int k = 0; k < EDGES; k++) assert_int_equal(d[k], (uint64_t)(((u128)a[k] - b[k]) >> 64));
    gpu_op(&gpu,
           &(GpuOp){
               "{ .reg .b32 a0, a1, b0, b1, r1, r2, r3; mov.b64 {a0, a1}, a; mov.b64 {b0, b1}, b;"
               "mul.hi.u32 r1, a0, b0; mad.lo.cc.u32 r1, a0, b1, r1; madc.hi.u32 r2, a0, b1, 0;"
               "mad.lo.cc.u32 r1, a1, b0, r1; madc.hi.cc.u32 r2, a1, b0, r2; madc.hi.u32 r3, a1, "
               "b1, 0;"
               "mad.lo.cc.u32 r2, a1, b1, r2; addc.u32 r3, r3, 0; mov.b64 d, {r2, r3}; }",
               64, 64, 64, 0 },
           EDGES, a, b, NULL, d);
    for (int k = 0; k < EDGES; k++) assert_int_equal(d[k], (uint64_t)(((u128)a[k] * b[k]) >> 64));
}

static int setup(void **state) { (void)state; gpu = gpu_open("sm_80", 1); return 0; }
static int teardown(void **state) { (void)state; gpu_close(&gpu); return 0; }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pairs), cmocka_unit_test(division_by_zero), cmocka_unit_test(guards),
        cmocka_unit_test(carries),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
