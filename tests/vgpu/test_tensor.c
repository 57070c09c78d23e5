// SPDX-License-Identifier: Apache-2.0
// mma.sync of every type and shape against loops over the matrices that the fragments stand for,
// bit for bit; ldmatrix, stmatrix and movmatrix; lanes that do not all come. Prints speed, and
// asserts none.
#include "tests/vgpu/gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t seed = 12345;
static uint32_t rnd(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

/* elements ------------------------------------------------------------------------------------- */

// f: e4m3 and so on by exponent and fraction bits; i: integers. `bits` are those in a register.
typedef struct Type {
    const char *name;
    char kind;
    int bits, exponent, fraction, shift;
} Type;
static const Type types[] = {
    { "f16", 'f', 16, 5, 10, 0 }, { "bf16", 'f', 16, 8, 7, 0 }, { "tf32", 'f', 32, 8, 10, 13 },
    { "e4m3", 'f', 8, 4, 3, 0 },  { "e5m2", 'f', 8, 5, 2, 0 },  { "e3m2", 'f', 8, 3, 2, 0 },
    { "e2m3", 'f', 8, 2, 3, 0 },  { "e2m1", 'f', 8, 2, 1, 2 },  { "u8", 'u', 8, 0, 0, 0 },
    { "s8", 's', 8, 0, 0, 0 },    { "u4", 'u', 4, 0, 0, 0 },    { "s4", 's', 4, 0, 0, 0 },
    { "b1", 'x', 1, 0, 0, 0 },
};
static const Type *type_of(const char *name) {
    for (int k = 0; k < COUNT_OF(types); k++)
        if (!strcmp(types[k].name, name)) return &types[k];
    fail_msg("no type %s", name);
    return NULL;
}

static double value_of(const Type *t, uint32_t bits) {
    if (t->kind == 'u') return bits;
    if (t->kind == 's')
        return bits >> (t->bits - 1) ? (double)bits - (double)(1u << t->bits) : bits;
    bits >>= t->shift;
    uint32_t e = bits >> t->fraction & ((1u << t->exponent) - 1),
             m = bits & ((1u << t->fraction) - 1);
    int bias = (1 << (t->exponent - 1)) - 1;
    double v = e ? ldexp(m + (double)(1u << t->fraction), (int)e - bias - t->fraction)
                 : ldexp(m, 1 - bias - t->fraction);
    return bits >> (t->exponent + t->fraction) & 1 ? -v : v;
}

// Any pattern that is a number; wide exponents kept near the middle, so that sums stay in range.
static uint32_t random_bits(const Type *t) {
    uint32_t bits = rnd() & (t->bits == 32 ? ~0u : (1u << t->bits) - 1);
    if (t->kind != 'f') return bits;
    uint32_t e = bits >> t->shift >> t->fraction & ((1u << t->exponent) - 1), keep = bits;
    if (t->exponent == 8)
        e = 110 + e % 30;
    else if (t->exponent == 5)
        e = e % (t->fraction == 10 ? 20 : 31);
    else if (t->exponent == 4 && e == 15)
        e = 7;
    uint32_t field = ((1u << t->exponent) - 1) << t->fraction << t->shift;
    return (keep & ~field) | e << t->fraction << t->shift;
}

/* mma ------------------------------------------------------------------------------------------ */

typedef struct Form {
    const char *arch, *mods;
    int m, k;
    const char *a, *b, *c;
} Form;
static const Form forms[] = {
    { "sm_80", "", 16, 8, "f16", "f16", "f32" },
    { "sm_80", "", 16, 16, "f16", "f16", "f32" },
    { "sm_80", "", 16, 8, "f16", "f16", "f16" },
    { "sm_80", "", 16, 16, "f16", "f16", "f16" },
    { "sm_80", "", 16, 8, "bf16", "bf16", "f32" },
    { "sm_80", "", 16, 16, "bf16", "bf16", "f32" },
    { "sm_80", "", 16, 4, "tf32", "tf32", "f32" },
    { "sm_80", "", 16, 8, "tf32", "tf32", "f32" },
    { "sm_89", "", 16, 16, "e4m3", "e4m3", "f32" },
    { "sm_89", "", 16, 32, "e4m3", "e5m2", "f32" },
    { "sm_89", "", 16, 32, "e5m2", "e4m3", "f32" },
    { "sm_89", "", 16, 32, "e5m2", "e5m2", "f16" },
    { "sm_89", "", 16, 16, "e4m3", "e5m2", "f16" },
    { "sm_120a", ".kind::f8f6f4", 16, 32, "e4m3", "e2m1", "f32" },
    { "sm_120a", ".kind::f8f6f4", 16, 32, "e3m2", "e2m3", "f32" },
    { "sm_120a", ".kind::f8f6f4", 16, 32, "e2m1", "e2m1", "f16" },
    { "sm_120a", ".kind::f8f6f4", 16, 32, "e2m3", "e5m2", "f32" },
    { "sm_80", "", 8, 16, "u8", "u8", "s32" },
    { "sm_80", ".satfinite", 8, 16, "s8", "u8", "s32" },
    { "sm_80", "", 16, 16, "s8", "s8", "s32" },
    { "sm_80", ".satfinite", 16, 32, "u8", "s8", "s32" },
    { "sm_80", "", 16, 32, "s8", "s8", "s32" },
    { "sm_80", "", 8, 32, "s4", "u4", "s32" },
    { "sm_80", ".satfinite", 16, 32, "u4", "u4", "s32" },
    { "sm_80", "", 16, 64, "s4", "s4", "s32" },
    { "sm_80", ".xor.popc", 8, 128, "b1", "b1", "s32" },
    { "sm_80", ".and.popc", 16, 128, "b1", "b1", "s32" },
    { "sm_80", ".xor.popc", 16, 256, "b1", "b1", "s32" },
};

typedef struct Counts {
    int a, b, c;
} Counts;
static Counts counts_of(const Form *x) {
    int per = 32 / type_of(x->a)->bits; // elements of a register
    return (Counts){ x->m * x->k / 32 / per, 8 * x->k / 32 / per,
                     x->m * 8 / 32 / (strcmp(x->c, "f16") ? 1 : 2) };
}

static void list(Text *t, char name, int n) {
    text_add(t, "{");
    for (int k = 0; k < n; k++) text_printf(t, "%s%%%c%d", k ? ", " : "", name, k);
    text_add(t, "}");
}

// Registers lie in memory as [register][lane]: a, b, c, then d.
static void mma_text(Text *t, const char *instr, Counts n, int bytes) {
    text_add(t, ".visible .entry k(.param .u64 data) {\n.reg .b64 %p, %o; .reg .b32 %t;\n");
    int at = 0;
    text_printf(t,
                ".reg .b%d %%a<9>, %%b<9>, %%c<9>, %%d<9>;\nld.param.u64 %%p, [data]; mov.u32 %%t, "
                "%%tid.x; mul.wide.u32 %%o, %%t, %d; add.u64 %%p, %%p, %%o;\n",
                8 * bytes, bytes);
    for (int k = 0; k < n.a; k++, at += 32 * bytes)
        text_printf(t, "ld.global.b%d %%a%d, [%%p+%d];\n", 8 * bytes, k, at);
    for (int k = 0; k < n.b; k++, at += 32 * bytes)
        text_printf(t, "ld.global.b%d %%b%d, [%%p+%d];\n", 8 * bytes, k, at);
    for (int k = 0; k < n.c; k++, at += 32 * bytes)
        text_printf(t, "ld.global.b%d %%c%d, [%%p+%d];\n", 8 * bytes, k, at);
    text_printf(t, "%s ", instr);
    list(t, 'd', n.c), text_add(t, ", "), list(t, 'a', n.a), text_add(t, ", ");
    list(t, 'b', n.b), text_add(t, ", "), list(t, 'c', n.c), text_add(t, ";\n");
    for (int k = 0; k < n.c; k++, at += 32 * bytes)
        text_printf(t, "st.global.b%d [%%p+%d], %%d%d;\n", 8 * bytes, at, k);
    text_add(t, "ret; }\n");
}

// Element (row, column) of a fragment whose registers are `regs`, for A by rows and for B by
// columns: `major` is the row of A, the column of B.
static uint32_t element(const uint32_t (*regs)[32], int bits, int halves, int major, int k) {
    int per = 32 / bits, block = k / (4 * per), lane = major % 8 * 4 + k % (4 * per) / per;
    uint32_t word = regs[block * halves + major / 8][lane];
    return word >> k % per * bits & (bits == 32 ? ~0u : (1u << bits) - 1);
}

static float half_value(uint32_t h) {
    return (float)value_of(type_of("f16"), h & 0xffff);
}
static uint32_t to_half(float v) {
    _Float16 h = (_Float16)v;
    uint16_t bits;
    memcpy(&bits, &h, 2);
    return bits;
}

static uint32_t want_float(const Form *x, const uint32_t (*a)[32], const uint32_t (*b)[32],
                           float sum, int row, int column) {
    const Type *ta = type_of(x->a), *tb = type_of(x->b);
    for (int k = 0; k < x->k; k++)
        sum = fmaf((float)value_of(ta, element(a, ta->bits, x->m / 8, row, k)),
                   (float)value_of(tb, element(b, tb->bits, 1, column, k)), sum);
    uint32_t bits;
    memcpy(&bits, &sum, 4);
    return !strcmp(x->c, "f16") ? to_half(sum) : bits;
}

static uint32_t want_int(const Form *x, const uint32_t (*a)[32], const uint32_t (*b)[32], int32_t c,
                         int row, int column) {
    const Type *ta = type_of(x->a), *tb = type_of(x->b);
    int64_t sum = c;
    for (int k = 0; k < x->k; k++) {
        uint32_t ea = element(a, ta->bits, x->m / 8, row, k),
                 eb = element(b, tb->bits, 1, column, k);
        if (ta->kind == 'x')
            sum += strstr(x->mods, "and") ? ea & eb : ea ^ eb;
        else
            sum += (int64_t)value_of(ta, ea) * (int64_t)value_of(tb, eb);
    }
    if (strstr(x->mods, "satfinite"))
        sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
    return (uint32_t)sum;
}

static uint32_t random_word(const Type *t) {
    uint32_t word = 0;
    for (int s = 0; s < 32; s += t->bits) word |= random_bits(t) << s;
    return word;
}

static uint32_t random_acc(const Form *x, int round) {
    if (!strcmp(x->c, "f16"))
        return to_half((float)(rnd() % 200) / 8 - 12) | to_half((float)(rnd() % 200) / 8) << 16;
    if (!strcmp(x->c, "s32"))
        return round % 2 ? 0x7fffffffu - rnd() % 500 : 0x80000000u + rnd() % 500; // near both ends
    float v = (float)((int)(rnd() % 2001) - 1000) / 512;
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return bits;
}

static void check_form(const Form *x) {
    Gpu gpu = gpu_open(x->arch, 1);
    Counts n = counts_of(x);
    Text t = { 0 }, instr = { 0 };
    bool half = !strcmp(x->c, "f16");
    const char *kind = strstr(x->mods, "kind") ? x->mods : "", *op = *kind ? "" : x->mods;
    bool popc = strstr(op, "popc"), floats = strcmp(x->c, "s32") != 0;
    text_printf(&instr, "mma.sync.aligned.m%dn8k%d.row.col%s%s.%s.%s.%s.%s%s", x->m, x->k, kind,
                popc ? "" : op, x->c, x->a, x->b, x->c, popc ? op : "");
    mma_text(&t, instr.at, n, 4);
    gpu_load(&gpu, t.at);
    for (int round = 0; round < 6; round++) {
        uint32_t words[24][32] = { 0 };
        for (int r = 0; r < n.a + n.b + n.c; r++)
            for (int l = 0; l < 32; l++)
                words[r][l] = r < n.a         ? random_word(type_of(x->a))
                              : r < n.a + n.b ? random_word(type_of(x->b))
                                              : random_acc(x, round);
        uint64_t data = gpu_put(&gpu, words, sizeof words);
        if (gpu_launch(&gpu, "k", 1, 32, 1, data) != VG_OK)
            fail_msg("%s\n%s", instr.at, gpu_report(&gpu));
        const uint32_t(*a)[32] = words, (*b)[32] = words + n.a, (*c)[32] = words + n.a + n.b;
        uint32_t got[24][32];
        gpu_get(&gpu, data, got, sizeof got);
        const uint32_t(*d)[32] = got + n.a + n.b + n.c;
        for (int row = 0; row < x->m; row++)
            for (int column = 0; column < 8; column++) {
                int lane = row % 8 * 4 + column / 2,
                    reg = half ? row / 8 : row / 8 * 2 + column % 2,
                    shift = half ? column % 2 * 16 : 0;
                uint32_t have = d[reg][lane] >> shift & (half ? 0xffff : ~0u),
                         old = c[reg][lane] >> shift, want;
                float f;
                memcpy(&f, &old, 4);
                want = floats ? want_float(x, a, b, half ? half_value(old) : f, row, column)
                              : want_int(x, a, b, (int32_t)old, row, column);
                if (have != want)
                    fail_msg("%s: (%d, %d) is %08x, not %08x", instr.at, row, column, have, want);
            }
    }
    text_finish(&t), text_finish(&instr);
    gpu_close(&gpu);
}

static void all_forms(void **state) {
    (void)state;
    for (int k = 0; k < COUNT_OF(forms); k++) check_form(&forms[k]);
}

static void doubles(void **state) {
    (void)state;
    static const int shapes[][2] = { { 8, 4 }, { 16, 4 }, { 16, 8 }, { 16, 16 } };
    Gpu gpu = gpu_open("sm_90", 1);
    for (int s = 0; s < 4; s++) {
        int m = shapes[s][0], depth = shapes[s][1];
        Counts n = { m * depth / 32, 8 * depth / 32, m * 8 / 32 };
        Text t = { 0 };
        char instr[80];
        snprintf(instr, sizeof instr, "mma.sync.aligned.m%dn8k%d.row.col.f64.f64.f64.f64", m,
                 depth);
        mma_text(&t, instr, n, 8);
        gpu_load(&gpu, t.at);
        double words[24][32] = { 0 }, got[24][32];
        for (int r = 0; r < n.a + n.b + n.c; r++)
            for (int l = 0; l < 32; l++)
                words[r][l] = ldexp((double)rnd() - 1e9, (int)(rnd() % 20) - 30);
        uint64_t data = gpu_put(&gpu, words, sizeof words);
        if (gpu_launch(&gpu, "k", 1, 32, 1, data) != VG_OK)
            fail_msg("%s\n%s", instr, gpu_report(&gpu));
        gpu_get(&gpu, data, got, sizeof got);
        for (int row = 0; row < m; row++)
            for (int column = 0; column < 8; column++) {
                int reg = row / 8 * 2 + column % 2, lane = row % 8 * 4 + column / 2;
                double sum = words[n.a + n.b + reg][lane];
                for (int k = 0; k < depth; k++)
                    sum = fma(words[k / 4 * (m / 8) + row / 8][row % 8 * 4 + k % 4],
                              words[n.a + k / 4][column * 4 + k % 4], sum);
                if (memcmp(&got[n.a + n.b + n.c + reg][lane], &sum, 8))
                    fail_msg("%s (%d, %d)", instr, row, column);
            }
        text_finish(&t);
    }
    gpu_close(&gpu);
}

// m8n8k4: four products, by lanes 4p + {0..3} and 16 + 4p + {0..3}; every order and accumulator.
static void quarters(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_80", 1);
    for (int variant = 0; variant < 8; variant++) {
        bool row_a = variant & 1, row_b = variant & 2, wide = variant & 4;
        Counts n = { 2, 2, wide ? 8 : 4 };
        const char *acc = wide ? "f32" : "f16";
        char instr[100];
        snprintf(instr, sizeof instr, "mma.sync.aligned.m8n8k4.%s.%s.%s.f16.f16.%s",
                 row_a ? "row" : "col", row_b ? "row" : "col", acc, acc);
        Text t = { 0 };
        mma_text(&t, instr, n, 4);
        gpu_load(&gpu, t.at);
        uint32_t words[24][32] = { 0 }, got[24][32];
        for (int r = 0; r < n.a + n.b; r++)
            for (int l = 0; l < 32; l++) words[r][l] = random_word(type_of("f16"));
        uint64_t data = gpu_put(&gpu, words, sizeof words); // c is zero
        if (gpu_launch(&gpu, "k", 1, 32, 1, data) != VG_OK)
            fail_msg("%s\n%s", instr, gpu_report(&gpu));
        gpu_get(&gpu, data, got, sizeof got);
        for (int p = 0; p < 4; p++) {
            float a[8][4], b[4][8];
            for (int lane = 0; lane < 32; lane++) {
                if (lane % 16 / 4 != p) continue;
                int upper = lane >= 16 ? 4 : 0;
                for (int i = 0; i < 4; i++) {
                    float va = half_value(words[i / 2][lane] >> i % 2 * 16),
                          vb = half_value(words[2 + i / 2][lane] >> i % 2 * 16);
                    if (row_a)
                        a[lane % 4 + upper][i] = va;
                    else
                        a[i + upper][lane % 4] = va;
                    if (row_b)
                        b[lane % 4][i + upper] = vb;
                    else
                        b[i][lane % 4 + upper] = vb;
                }
            }
            for (int lane = 0; lane < 32; lane++)
                for (int i = 0; i < 8 && lane % 16 / 4 == p; i++) {
                    int row = wide ? (lane & 1) + (i & 2) + (lane >= 16 ? 4 : 0)
                                   : lane % 4 + (lane >= 16 ? 4 : 0);
                    int column = wide ? (i & 4) + (lane & 2) + (i & 1) : i;
                    float sum = 0;
                    for (int k = 0; k < 4; k++) sum = fmaf(a[row][k], b[k][column], sum);
                    uint32_t bits, have = wide ? got[4 + 8 + i][lane]
                                               : got[4 + 4 + i / 2][lane] >> i % 2 * 16 & 0xffff;
                    memcpy(&bits, &sum, 4);
                    if (have != (wide ? bits : to_half(sum)))
                        fail_msg("%s lane %d element %d", instr, lane, i);
                }
        }
        text_finish(&t);
    }
    gpu_close(&gpu);
}

/* matrices in shared memory -------------------------------------------------------------------- */

// 4096 bytes of shared memory from data, one instruction with an address per lane (at data + 4096),
// its registers to data + 8192; shared memory back to data.
static void matrix_text(Text *t, const char *instr, int n, bool store) {
    text_add(t, ".visible .entry k(.param .u64 data) {\n.reg .b64 %p, %q; .reg .b32 %t, %s, %x, "
                "%v, %r<4>; .reg .pred %m;\n"
                ".shared .align 128 .b8 buffer[4096];\nld.param.u64 %p, [data]; mov.u32 %t, "
                "%tid.x; mul.wide.u32 %q, %t, 4; add.u64 %p, %p, %q;\n"
                "mov.u32 %s, buffer; mad.lo.u32 %s, %t, 4, %s; mov.u32 %x, 0; mov.u64 %q, %p;\n"
                "FILL: ld.global.u32 %v, [%q]; st.shared.u32 [%s], %v; add.u64 %q, %q, 128; "
                "add.u32 %s, %s, 128; add.u32 %x, %x, 1;\n"
                "setp.lt.u32 %m, %x, 32; @%m bra FILL; bar.sync 0;\nld.global.u32 %v, [%p+4096]; "
                "mov.u32 %s, buffer; add.u32 %v, %v, %s;\n");
    for (int k = 0; k < n && store; k++)
        text_printf(t, "ld.global.u32 %%r%d, [%%p+%d];\n", k, 8192 + 128 * k);
    char format[200];
    snprintf(format, sizeof format, "%s;\n", instr);
    text_add(t, format);
    for (int k = 0; k < n && !store; k++)
        text_printf(t, "st.global.u32 [%%p+%d], %%r%d;\n", 8192 + 128 * k, k);
    text_add(t, "bar.sync 0; mad.lo.u32 %s, %t, 4, %s; mov.u32 %x, 0; mov.u64 %q, %p;\n"
                "BACK: ld.shared.u32 %v, [%s]; st.global.u32 [%q], %v; add.u64 %q, %q, 128; "
                "add.u32 %s, %s, 128; add.u32 %x, %x, 1;\n"
                "setp.lt.u32 %m, %x, 32; @%m bra BACK; ret; }\n");
}

static const char *const registers[] = { "", "{%r0}", "{%r0, %r1}", "", "{%r0, %r1, %r2, %r3}" };

// Rows at scattered places; lanes whose addresses are not looked at have wild ones.
static void run_matrix(Gpu *gpu, const char *name, int n, bool store, uint8_t *data, int lanes,
                       int rows_of[32]) {
    Text t = { 0 };
    char instr[160];
    if (store)
        snprintf(instr, sizeof instr, "%s [%%v], %s", name, registers[n]);
    else
        snprintf(instr, sizeof instr, "%s %s, [%%v]", name, registers[n]);
    matrix_text(&t, instr, n, store);
    gpu_load(gpu, t.at);
    for (int k = 0; k < 8192 + 512; k++) data[k] = (uint8_t)rnd();
    for (int l = 0; l < 32; l++) {
        rows_of[l] = (l * 37 + 11) % 256 * 16;
        uint32_t address = l < lanes ? (uint32_t)rows_of[l] : 0x12345;
        memcpy(data + 4096 + 4 * l, &address, 4);
    }
    uint64_t at = gpu_put(gpu, data, 8192 + 512);
    uint8_t before[8192 + 512];
    memcpy(before, data, sizeof before);
    if (gpu_launch(gpu, "k", 1, 32, 1, at) != VG_OK) fail_msg("%s\n%s", instr, gpu_report(gpu));
    gpu_get(gpu, at, data, 8192 + 512);
    if (!store) assert_memory_equal(data, before, 8192);
    text_finish(&t);
}

static void load_matrices(void **state) {
    (void)state;
    uint8_t data[8192 + 512];
    int rows[32];
    Gpu gpu = gpu_open("sm_100a", 1);
    for (int n = 1; n <= 4; n *= 2)
        for (int trans = 0; trans < 2; trans++) {
            char name[100];
            snprintf(name, sizeof name, "ldmatrix.sync.aligned.m8n8.x%d%s.shared.b16", n,
                     trans ? ".trans" : "");
            run_matrix(&gpu, name, n, false, data, 8 * n, rows);
            for (int r = 0; r < n; r++)
                for (int l = 0; l < 32; l++)
                    for (int h = 0; h < 2; h++) {
                        int row = trans ? l % 4 * 2 + h : l / 4,
                            column = trans ? l / 4 : l % 4 * 2 + h;
                        assert_memory_equal(data + 8192 + r * 128 + l * 4 + h * 2,
                                            data + rows[8 * r + row] + 2 * column, 2);
                    }
        }
    for (int n = 1; n <= 2; n++) { // m16n16 of bytes: two registers each
        char name[100];
        snprintf(name, sizeof name, "ldmatrix.sync.aligned.m16n16.x%d.trans.shared.b8", n);
        run_matrix(&gpu, name, 2 * n, false, data, 16 * n, rows);
        for (int r = 0; r < 2 * n; r++)
            for (int l = 0; l < 32; l++)
                for (int j = 0; j < 4; j++) {
                    int row = l % 4 * 4 + r % 2 * 2 + j % 2, column = l / 4 + j / 2 * 8;
                    assert_int_equal(data[8192 + r * 128 + l * 4 + j],
                                     data[rows[r / 2 * 16 + row] + column]);
                }
    }
    for (int n = 1; n <= 4; n *= 2)
        for (int bits = 4; bits <= 6; bits += 2) {
            char name[100];
            snprintf(name, sizeof name, "ldmatrix.sync.aligned.m8n16.x%d.shared.b8x16.%s", n,
                     bits == 4 ? "b4x16_p64" : "b6x16_p32");
            run_matrix(&gpu, name, n, false, data, 8 * n, rows);
            for (int r = 0; r < n; r++)
                for (int k = 0; k < 128; k++) {
                    const uint8_t *row = data + rows[8 * r + k / 16];
                    uint32_t value = 0;
                    for (int b = 0; b < bits; b++)
                        value |=
                            (uint32_t)(row[(k % 16 * bits + b) / 8] >> (k % 16 * bits + b) % 8 & 1)
                            << b;
                    assert_int_equal(data[8192 + r * 128 + k], value);
                }
        }
    gpu_close(&gpu);
}

static void store_matrices(void **state) {
    (void)state;
    uint8_t data[8192 + 512];
    int rows[32];
    Gpu gpu = gpu_open("sm_100a", 1);
    for (int n = 1; n <= 4; n *= 2)
        for (int kind = 0; kind < 3; kind++) {
            char name[100];
            static const char *const forms_of[] = { "m8n8.x%d.shared.b16",
                                                    "m8n8.x%d.trans.shared.b16",
                                                    "m16n8.x%d.trans.shared.b8" };
            int at = snprintf(name, sizeof name, "stmatrix.sync.aligned.");
            snprintf(name + at, sizeof name - (size_t)at,
                     kind == 0   ? forms_of[0]
                     : kind == 1 ? forms_of[1]
                                 : forms_of[2],
                     n);
            run_matrix(&gpu, name, n, true, data, 8 * n, rows);
            for (int r = 0; r < n; r++)
                for (int l = 0; l < 32; l++)
                    for (int j = 0; j < 4; j++) {
                        uint8_t from = data[8192 + r * 128 + l * 4 + j];
                        int h = j / 2,
                            row = kind == 0 ? l / 4 : l % 4 * 2 + (kind == 1 ? h : j % 2);
                        int byte = kind == 0   ? l % 4 * 4 + j
                                   : kind == 1 ? l / 4 * 2 + j % 2
                                               : l / 4 + 8 * h;
                        assert_int_equal(data[rows[8 * r + row] + byte], from);
                    }
        }
    uint64_t a[32], d[32] = { 0 };
    for (int l = 0; l < 32; l++) a[l] = rnd();
    gpu_op(&gpu, &(GpuOp){ "movmatrix.sync.aligned.m8n8.trans.b16 d, a;", 32, 32, 0, 0 }, 32, a,
           NULL, NULL, d);
    for (int row = 0; row < 8; row++)
        for (int column = 0; column < 8; column++)
            assert_int_equal(d[row * 4 + column / 2] >> column % 2 * 16 & 0xffff,
                             a[column * 4 + row / 2] >> row % 2 * 16 & 0xffff);
    gpu_close(&gpu);
}

/* misuse --------------------------------------------------------------------------------------- */

static void faults(void **state) {
    (void)state;
    static const struct {
        const char *body;
        VgFault fault;
        const char *says;
    } rows[] = {
        { "setp.lt.u32 %p, %t, 16; @%p mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f, %f, "
          "%f, %f}, {%z, %z, %z, %z}, {%z, %z}, {%f, %f, %f, %f};",
          VG_DIVERGED, "the guard of an .aligned" },
        { "setp.lt.u32 %p, %t, 16; @%p bra OUT; movmatrix.sync.aligned.m8n8.trans.b16 %z, %z; "
          "OUT: st.shared.u32 [%s], %z;",
          VG_DIVERGED, "movmatrix" },
        { "setp.lt.u32 %p, %t, 16; @%p exit; movmatrix.sync.aligned.m8n8.trans.b16 %z, %z;", VG_OK,
          "" },
        { "setp.lt.u32 %p, %t, 16; @%p ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%z}, [%s];",
          VG_DIVERGED, "guard" },
        { "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%z}, [%s];", VG_UNINITIALISED,
          "read of 16 bytes at shared" },
        { "st.shared.v4.u32 [%s], {%z, %z, %z, %z}; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%z}, "
          "[%s+4];",
          VG_MISALIGNED, "multiple of 16" },
        { "st.shared.v4.u32 [%s], {%z, %z, %z, %z}; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%z}, "
          "[%s+2048];",
          VG_ILLEGAL_ADDRESS, "lane 0" },
    };
    Gpu gpu = gpu_open("sm_90", 1);
    for (int r = 0; r < COUNT_OF(rows); r++) {
        Text t = { 0 };
        text_add(&t, ".visible .entry k() { .reg .b32 %t, %s, %z; .reg .f32 %f; .reg .pred %p; "
                     ".shared .align 128 .b8 buffer[1024];\n"
                     "mov.u32 %t, %tid.x; mov.u32 %s, buffer; mad.lo.u32 %s, %t, 16, %s; mov.u32 "
                     "%z, 0; mov.f32 %f, 0f00000000;\n");
        text_add(&t, rows[r].body);
        text_add(&t, "\nret; }");
        gpu_load(&gpu, t.at);
        VgFault fault = gpu_launch(&gpu, "k", 1, 32, 0);
        if (fault != rows[r].fault || (fault && !strstr(gpu_report(&gpu), rows[r].says)))
            fail_msg("%s: %d\n%s", rows[r].body, fault, gpu_report(&gpu));
        text_finish(&t);
    }
    static const char *const refused[][2] = {
        { "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f,%f,%f,%f}, {%z,%z,%z,%z}, "
          "{%z,%z}, {%f,%f,%f,%f};",
          "" },
        { "mma.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%f,%f,%f,%f}, {%z,%z,%z,%z}, "
          "{%z,%z}, {%f,%f,%f,%f};",
          "no shape m16n8k32" },
        { "mma.sync.aligned.m16n8k16.row.col.f32.bf16.f16.f32 {%f,%f,%f,%f}, {%z,%z,%z,%z}, "
          "{%z,%z}, {%f,%f,%f,%f};",
          "types of A and B" },
        { "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16 {%z,%z}, {%z,%z,%z,%z}, {%z,%z}, "
          "{%z,%z};",
          "accumulator" },
        { "mma.sync.aligned.m16n8k16.row.row.f32.bf16.bf16.f32 {%f,%f,%f,%f}, {%z,%z,%z,%z}, "
          "{%z,%z}, {%f,%f,%f,%f};",
          ".row.col" },
        { "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f,%f,%f,%f}, {%z,%z}, {%z,%z}, "
          "{%f,%f,%f,%f};",
          "4 registers" },
        { "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e2m1.f32 {%f,%f,%f,%f}, {%z,%z,%z,%z}, "
          "{%z,%z}, {%f,%f,%f,%f};",
          "sm_120" },
        { "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%z, %z}, [%z];", "sm_100a" },
    };
    for (int r = 0; r < COUNT_OF(refused); r++) {
        Text t = { 0 };
        text_add(&t, ".visible .entry k() { .reg .b32 %z; .reg .f32 %f; ");
        text_add(&t, refused[r][0]);
        text_add(&t, " ret; }");
        assert_int_equal(gpu_try_load(&gpu, t.at), *refused[r][1] ? ERR_INPUT : OK);
        if (*refused[r][1] && !strstr(status_message(), refused[r][1]))
            fail_msg("%s: %s", refused[r][0], status_message());
        text_finish(&t);
    }
    gpu_close(&gpu);
}

// NaN and infinities: one pattern of NaN, infinities kept.
static void specials(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_80", 1);
    Text t = { 0 };
    mma_text(&t, "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", (Counts){ 2, 1, 4 }, 4);
    gpu_load(&gpu, t.at);
    static const struct {
        uint32_t a, b, c, want;
    } rows[] = {
        // in every element of k = 0, nothing else
        { 0x7fc0, 0x3f80, 0, 0x7fffffff }, { 0x7f80, 0x3f80, 0, 0x7f800000 },
        { 0x7f80, 0, 0, 0x7fffffff },      { 0x7f80, 0x3f80, 0xff800000, 0x7fffffff },
        { 0x8001, 0x3f80, 0, 0x80010000 }, { 0x3f80, 0x3f80, 0x7f812345, 0x7fffffff },
        { 0x7f7f, 0x7f7f, 0, 0x7f800000 },
    };
    for (int r = 0; r < COUNT_OF(rows); r++) {
        uint32_t words[11][32] = { 0 }, got[11][32];
        for (int l = 0; l < 32; l++) {
            if (l % 4 == 0) words[0][l] = words[1][l] = rows[r].a, words[2][l] = rows[r].b;
            for (int k = 3; k < 7; k++) words[k][l] = rows[r].c;
        }
        uint64_t data = gpu_put(&gpu, words, sizeof words);
        assert_int_equal(gpu_launch(&gpu, "k", 1, 32, 1, data), VG_OK);
        gpu_get(&gpu, data, got, sizeof got);
        for (int k = 7; k < 11; k++)
            for (int l = 0; l < 32; l++) assert_int_equal(got[k][l], rows[r].want);
    }
    text_finish(&t);
    gpu_close(&gpu);
}

/* speed ---------------------------------------------------------------------------------------- */

// A warp's tile of 64 x 32, k = 16: 16 mma after 4 ldmatrix.x4 of A and 2 .x4.trans of B; or the
// mma alone.
static void speed_of(const char *type, const char *acc, int k, bool loads) {
    Gpu gpu = gpu_open("sm_89", 1);
    Text t = { 0 };
    text_add(&t,
             ".visible .entry k() { .reg .b32 %i, %s, %t, %a<16>, %b<8>; .reg .b32 %c<64>; .reg "
             ".pred %p; .shared .align 128 .b8 buffer[4096];\n"
             "mov.u32 %t, %tid.x; mov.u32 %s, buffer; mad.lo.u32 %s, %t, 16, %s; mov.u32 %i, 0;\n");
    for (int r = 0; r < 64; r++) text_printf(&t, "mov.b32 %%c%d, 0;%s", r, r < 8 ? "" : "\n");
    for (int r = 0; r < 16; r++) text_printf(&t, "mov.b32 %%a%d, 0; mov.b32 %%b%d, 0;\n", r, r % 8);
    for (int r = 0; r < 6; r++)
        text_printf(&t, "st.shared.v4.b32 [%%s+%d], {%%a0, %%a1, %%a2, %%a3};\n", 512 * r);
    text_add(&t, "bar.sync 0;\nLOOP:\n");
    for (int r = 0; r < 4 && loads; r++)
        text_printf(
            &t,
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%%a%d, %%a%d, %%a%d, %%a%d}, [%%s+%d];\n",
            4 * r, 4 * r + 1, 4 * r + 2, 4 * r + 3, 512 * r);
    for (int r = 0; r < 2 && loads; r++)
        text_printf(&t,
                    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%%b%d, %%b%d, %%b%d, %%b%d}, "
                    "[%%s+%d];\n",
                    4 * r, 4 * r + 1, 4 * r + 2, 4 * r + 3, 2048 + 512 * r);
    for (int m = 0; m < 4; m++)
        for (int n = 0; n < 4; n++) {
            int c = (m * 4 + n) * 4;
            text_printf(
                &t,
                "mma.sync.aligned.m16n8k%d.row.col.%s.%s.%s.%s {%%c%d, %%c%d, %%c%d, %%c%d}, "
                "{%%a%d, %%a%d, %%a%d, %%a%d}, {%%b%d, %%b%d}, {%%c%d, %%c%d, %%c%d, %%c%d};\n",
                k, acc, type, type, acc, c, c + 1, c + 2, c + 3, 4 * m, 4 * m + 1, 4 * m + 2,
                4 * m + 3, 2 * n, 2 * n + 1, c, c + 1, c + 2, c + 3);
        }
    text_add(&t, "add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 4000; @%p bra LOOP; ret; }\n");
    gpu_load(&gpu, t.at);
    double best = 1e9;
    for (int round = 0; round < 3; round++) {
        clock_t start = clock(); // of this processor, not of others that run on it
        if (gpu_launch(&gpu, "k", 1, 32, 0) != VG_OK) fail_msg("%s", gpu_report(&gpu));
        double took = (double)(clock() - start) / CLOCKS_PER_SEC;
        if (took < best) best = took;
    }
    double macs = 4000.0 * 16 * 16 * 8 * k;
    print_message("%s, %s: %.1f GMAC/s (per 16 mma: %s)\n", type, acc, macs / best * 1e-9,
                  loads ? "6 ldmatrix.x4, 3 others" : "3 others");
    text_finish(&t);
    gpu_close(&gpu);
}

static void speed(void **state) {
    (void)state;
    speed_of("bf16", "f32", 16, true);
    speed_of("bf16", "f32", 16, false);
    speed_of("f16", "f32", 16, true);
    speed_of("e4m3", "f32", 32, true);
    speed_of("s8", "s32", 32, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms),      cmocka_unit_test(doubles),
        cmocka_unit_test(quarters),       cmocka_unit_test(load_matrices),
        cmocka_unit_test(store_matrices), cmocka_unit_test(faults),
        cmocka_unit_test(specials),       cmocka_unit_test(speed)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
