// SPDX-License-Identifier: Apache-2.0
// Matrices of a warp: ldmatrix and mma.sync.
//
// With g = lane / 4 and q = lane % 4, fragments are as PTX ISA 9.7.14 draws them. Products are chains of
// fp32 fused multiply-adds over ascending k: what hardware does in between is not documented, and
// differs between architectures.
#include "runtime/vgpu/exec.h"

typedef float VF __attribute__((vector_size(64)));
typedef uint32_t VW __attribute__((vector_size(64)));

/* ldmatrix ---------------------------------------------------------------------------------------------- */

typedef struct MatrixSite {
    VgSite *read;            // 16 bytes a lane, into Rows taken for the frame
    uint32_t address;        // frame offset, 0: none
    uint32_t to[4];          // frame offsets of the results
    int n;                   // matrices: 1, 2, 4
    bool turned;
} MatrixSite;
typedef struct Rows { uint32_t word[4][32] __attribute__((aligned(64))); } Rows;

// Matrix m: lane (g, q) gets words q of row g, or the halves of rows 2q and 2q + 1 in column g.
static void take_matrix(const Rows *rows, int m, bool turned, uint32_t mask, uint32_t *to) {
    for (int l = 0; l < 32; l++) {
        int g = l / 4, q = l % 4, shift = g % 2 * 16;
        uint32_t x = rows->word[q][8 * m + g];
        if (turned) {
            uint32_t low = rows->word[g / 2][8 * m + 2 * q] >> shift & 0xffff;
            uint32_t high = rows->word[g / 2][8 * m + 2 * q + 1] >> shift & 0xffff;
            x = low | high << 16;
        }
        to[l] = mask >> l & 1 ? x : to[l];
    }
}

HANDLER(load_matrix) {
    uint32_t m = VG_MASK(i, w, f);
    if (!m) VG_NEXT(i, w, f);
    const VgInstr *next;
    if (!vg_aligned(i, w, &next)) return next;
    m = VG_MASK(i, w, f);
    const MatrixSite *site = i->extra;
    Rows rows;
    uint32_t used = site->n == 4 ? ~0u : (1u << 8 * site->n) - 1;
    VgFault fault = site->read->run(&w->mem, site->read, used, site->address ? f + site->address : NULL, (char *)&rows);
    if (fault != VG_OK) return vg_fault_record(w, i, fault);
    for (int k = 0; k < site->n; k++) take_matrix(&rows, k, site->turned, m, (uint32_t *)(f + site->to[k]));
    VG_NEXT(i, w, f);
}

static Status decode_ldmatrix(VgDecoder *d, const PtxInstr *p) {
    static const char *const counts[] = { "x1", "x2", "x4", NULL };
    MatrixSite *site = ARENA_NEW(vg_arena(d), MatrixSite);
    bool whole = vg_take(d, "sync") && vg_take(d, "aligned") && vg_take(d, "m8n8");
    int n = vg_take_one(d, counts);
    site->turned = vg_take(d, "trans");
    whole = whole && (vg_take(d, "shared") || vg_take(d, "shared::cta"));
    if (!whole || n < 0 || !vg_take(d, "b16")) return vg_bad(d, "expected .sync.aligned.m8n8.{x1,x2,x4}.shared.b16");
    site->n = 1 << n;
    TRY(vg_count(d, 2, 2));
    const PtxOperand *to = &p->operands[0];
    if (to->kind != PTX_OP_VECTOR && site->n == 1) return vg_bad(d, "expected a register in { }");
    if (to->kind != PTX_OP_VECTOR || (int)to->n_items != site->n) return vg_bad(d, "expected %d registers in { }", site->n);
    VgSite *read = site->read = vg_site(d);
    read->space = VG_SHARED, read->access = VG_READ, read->scope = VG_SCOPE_SYS;
    read->reg_bytes = 4, read->bytes = 4, read->vector = 4;
    for (uint32_t k = 0; k < 4; k++) read->reg[k] = (uint32_t)(k * sizeof(uint32_t[32]));
    int bytes;
    TRY(vg_address(d, &p->operands[1], &site->address, &read->offset, &bytes));
    read->address_bytes = (uint8_t)bytes;
    read->run = vg_access_select(read);
    for (int k = 0; k < site->n; k++) TRY(vg_dst(d, &to->items[k], 32, false, &site->to[k]));
    VgInstr *i = vg_emit(d, load_matrix);
    i->extra = site;
    vg_emit_list(d, site->to, (uint32_t)site->n, 0);
    vg_emit_reads(d, &site->address, 1);
    return OK;
}

/* mma.m16n8k16 and k8 of 16-bit floats, fp32 accumulators --------------------------------------------------- */

// ops: d[4], a[4], b[2], c[4].
enum { MMA_D = 0, MMA_A = 4, MMA_B = 8, MMA_C = 10, MMA_OPS = 14 };

// In every group of four lanes, lane T of it.
#define QUAD(x, T)                                                                                 \
    __builtin_shufflevector(x, x, T, T, T, T, 4 + T, 4 + T, 4 + T, 4 + T, 8 + T, 8 + T, 8 + T,     \
                            8 + T, 12 + T, 12 + T, 12 + T, 12 + T)
// Column 2q + ODD of B at word T: one of eight groups of four lanes for each q.
#define COLUMN(low, high, T, ODD)                                                                  \
    __builtin_shufflevector(low, high, 4 * ODD + T, 8 + 4 * ODD + T, 16 + 4 * ODD + T,             \
                            24 + 4 * ODD + T, 4 * ODD + T, 8 + 4 * ODD + T, 16 + 4 * ODD + T,      \
                            24 + 4 * ODD + T, 4 * ODD + T, 8 + 4 * ODD + T, 16 + 4 * ODD + T,      \
                            24 + 4 * ODD + T, 4 * ODD + T, 8 + 4 * ODD + T, 16 + 4 * ODD + T,      \
                            24 + 4 * ODD + T)

ALWAYS_INLINE VW words(const char *f, uint32_t at, int half) {
    VW x;
    memcpy(&x, f + at + 64 * half, sizeof x);
    return x;
}

ALWAYS_INLINE VF floats_of(VW word, bool high, bool bf16) {
    if (bf16) return (VF)(high ? word & 0xffff0000u : word << 16);
    VF x;
    VW half = high ? word >> 16 : word & 0xffff;
#ifdef VG_V4
    x = (VF)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)half));
#else
    for (int l = 0; l < 16; l++) x[l] = half_to_float(half[l]);
#endif
    return x;
}

ALWAYS_INLINE VF fma16(VF a, VF b, VF c) {
#ifdef VG_V4
    return (VF)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    VF r;
    for (int l = 0; l < 16; l += 8) {
        __m256 x = _mm256_loadu_ps((float *)&a + l), y = _mm256_loadu_ps((float *)&b + l),
               z = _mm256_loadu_ps((float *)&c + l);
        _mm256_storeu_ps((float *)&r + l, _mm256_fmadd_ps(x, y, z));
    }
    return r;
#endif
}

// The two products of word T of a row and of a column.
#define STEP(T, a_upper, a_lower, b_low, b_high)                                                   \
    {                                                                                              \
        VW even = COLUMN(b_low, b_high, T, 0), odd = COLUMN(b_low, b_high, T, 1);                  \
        for (int up = 0; up < 2; up++) {                                                           \
            VF e = floats_of(even, up, bf16), o = floats_of(odd, up, bf16);                        \
            for (int half = 0; half < 2; half++) {                                                 \
                VF one = floats_of(QUAD(a_upper[half], T), up, bf16);                              \
                VF two = floats_of(QUAD(a_lower[half], T), up, bf16);                              \
                sum[0][half] = fma16(one, e, sum[0][half]);                                        \
                sum[1][half] = fma16(one, o, sum[1][half]);                                        \
                sum[2][half] = fma16(two, e, sum[2][half]);                                        \
                sum[3][half] = fma16(two, o, sum[3][half]);                                        \
            }                                                                                      \
        }                                                                                          \
    }

// Eight of k: words of a in `upper` (rows g) and `lower` (rows g + 8).
ALWAYS_INLINE void mma_half(const char *f, uint32_t upper, uint32_t lower, uint32_t b, VF sum[4][2], bool bf16) {
    VW a_upper[2] = { words(f, upper, 0), words(f, upper, 1) };
    VW a_lower[2] = { words(f, lower, 0), words(f, lower, 1) };
    VW low = words(f, b, 0), high = words(f, b, 1);
    STEP(0, a_upper, a_lower, low, high)
    STEP(1, a_upper, a_lower, low, high)
    STEP(2, a_upper, a_lower, low, high)
    STEP(3, a_upper, a_lower, low, high)
}

ALWAYS_INLINE const VgInstr *mma_16(const VgInstr *i, VgWarp *w, char *f, bool bf16, bool k16) {
    const VgInstr *next;
    if (!VG_MASK(i, w, f)) return i + 1;
    if (!vg_aligned(i, w, &next)) return next;
    uint32_t m = VG_MASK(i, w, f);
    const uint32_t *ops = i->ops;
    VF sum[4][2];
    for (int r = 0; r < 4; r++)
        for (int half = 0; half < 2; half++) sum[r][half] = (VF)words(f, ops[MMA_C + r], half);
    mma_half(f, ops[MMA_A], ops[MMA_A + 1], ops[MMA_B], sum, bf16);
    if (k16) mma_half(f, ops[MMA_A + 2], ops[MMA_A + 3], ops[MMA_B + 1], sum, bf16);
    for (int r = 0; r < 4; r++) {
        float *to = (float *)(f + ops[MMA_D + r]);
        const float *from = (const float *)sum[r];
        LANES {
            float x = canon(from[l]);
            to[l] = m >> l & 1 ? x : to[l];
        }
    }
    return i + 1;
}

// musttail needs the call here; mma_16 says where to go.
#define MMA(name, bf16, k16)                                                                       \
    HANDLER(name) {                                                                                \
        const VgInstr *next = mma_16(i, w, f, bf16, k16);                                          \
        if (next != i + 1) return next;                                                            \
        VG_NEXT(i, w, f);                                                                          \
    }
MMA(mma_bf16_k16, true, true)
MMA(mma_bf16_k8, true, false)
MMA(mma_f16_k16, false, true)
MMA(mma_f16_k8, false, false)

static Status fragment(VgDecoder *d, const PtxOperand *op, uint32_t n, uint32_t *refs, bool written) {
    if (op->kind != PTX_OP_VECTOR || op->n_items != n) return vg_bad(d, "expected %u registers in { }", n);
    for (uint32_t k = 0; k < n; k++) {
        if (written) TRY(vg_dst(d, &op->items[k], 32, false, &refs[k]));
        else TRY(vg_src_float(d, &op->items[k], 32, &refs[k]));
    }
    return OK;
}

static Status decode_mma(VgDecoder *d, const PtxInstr *p) {
    bool whole = vg_take(d, "sync") && vg_take(d, "aligned"), k16 = vg_take(d, "m16n8k16");
    whole = whole && (k16 || vg_take(d, "m16n8k8")) && vg_take(d, "row") && vg_take(d, "col");
    PtxType to = vg_take_type(d), a = vg_take_type(d), b = vg_take_type(d), c = vg_take_type(d);
    if (!whole || to != PTX_F32 || c != PTX_F32 || a != b || (a != PTX_BF16 && a != PTX_F16))
        return vg_bad(d, "expected mma.sync.aligned.{m16n8k16,m16n8k8}.row.col.f32.{bf16,f16}.{bf16,f16}.f32");
    TRY(vg_count(d, 4, 4));
    uint32_t *ops = ARENA_ARRAY(vg_arena(d), uint32_t, MMA_OPS);
    TRY(fragment(d, &p->operands[1], k16 ? 4 : 2, ops + MMA_A, false));
    TRY(fragment(d, &p->operands[2], k16 ? 2 : 1, ops + MMA_B, false));
    TRY(fragment(d, &p->operands[3], 4, ops + MMA_C, false));
    TRY(fragment(d, &p->operands[0], 4, ops + MMA_D, true));
    VgInstr *i = vg_emit(d, a == PTX_BF16 ? (k16 ? mma_bf16_k16 : mma_bf16_k8) : (k16 ? mma_f16_k16 : mma_f16_k8));
    i->ops = ops;
    vg_emit_list(d, ops + MMA_D, 4, 0);
    vg_emit_reads(d, ops + MMA_A, MMA_OPS - MMA_A);
    return OK;
}

const VgRoot VG_NAME(vg_roots_tensor)[] = {
    { "ldmatrix", decode_ldmatrix, "ldmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans}.shared.b16" },
    { "mma", decode_mma, "mma.sync.aligned.{m16n8k16,m16n8k8}.row.col.f32.{bf16,f16}.{bf16,f16}.f32" },
    { NULL, NULL, NULL },
};
