// SPDX-License-Identifier: Apache-2.0
// Matrices between shared memory and the registers of a warp: ldmatrix, stmatrix, movmatrix.
//
// A matrix has eight rows of 16 bytes, an address each. With g = lane / 4 and q = lane % 4 its
// register holds word q of row g: in the order of lanes, the rows one after the other. Turned, it
// is the same of the matrix of halves [column][row]. Matrices of 16 rows of bytes are two
// registers, always turned.
#include "runtime/vgpu/exec_aligned.h"

typedef enum Format { FORMAT_PLAIN, FORMAT_6_BITS, FORMAT_4_BITS } Format; // of a row in memory
typedef struct MatrixSite {
    VgSite *site;       // 16 bytes a lane, from and to Rows taken for the frame
    uint32_t address;   // frame offset, 0: none
    uint32_t reg[4];    // frame offsets of the registers
    int n;              // registers
    uint32_t lanes;     // whose addresses count
    bool turned, bytes; // bytes: stmatrix m16n8, ldmatrix m16n16
    Format format;
} MatrixSite;
typedef struct Rows {
    uint8_t at[4][8][16] __attribute__((aligned(64)));
} Rows;

// Halves [row][column] to [column][row].
static void turn_halves(void *to, const void *from) {
    __m128i x[8], y[8];
    for (int k = 0; k < 8; k++) x[k] = _mm_loadu_si128((const __m128i *)from + k);
    for (int k = 0; k < 4; k++) {
        y[2 * k] = _mm_unpacklo_epi16(x[k], x[k + 4]);
        y[2 * k + 1] = _mm_unpackhi_epi16(x[k], x[k + 4]);
    }
    for (int k = 0; k < 4; k++) {
        x[2 * k] = _mm_unpacklo_epi16(y[k], y[k + 4]);
        x[2 * k + 1] = _mm_unpackhi_epi16(y[k], y[k + 4]);
    }
    for (int k = 0; k < 4; k++) {
        _mm_storeu_si128((__m128i *)to + 2 * k, _mm_unpacklo_epi16(x[k], x[k + 4]));
        _mm_storeu_si128((__m128i *)to + 2 * k + 1, _mm_unpackhi_epi16(x[k], x[k + 4]));
    }
}

// 16 elements of 6 or 4 bits, packed at the start of a row, to bytes.
static void unpack_row(uint8_t row[16], Format format) {
    uint64_t low, high;
    memcpy(&low, row, 8);
    memcpy(&high, row + 8, 8);
    for (int k = 0; k < 16; k++) {
        int bit = format == FORMAT_4_BITS ? 4 * k : 6 * k;
        uint64_t x =
            bit >= 64 ? high >> (bit - 64) : low >> bit | (bit > 58 ? high << (64 - bit) : 0);
        row[k] = (uint8_t)(x & (format == FORMAT_4_BITS ? 15 : 63));
    }
}

// Registers 2n and 2n + 1 of matrix n of 16 x 16 bytes: byte j of register r is row 4q + 2r + j %
// 2, column g + 8 (j / 2).
static void turn_bytes(uint8_t to[8][16], const Rows *rows, int reg) {
    for (int l = 0; l < 32; l++)
        for (int j = 0; j < 4; j++) {
            int row = 4 * (l % 4) + 2 * (reg % 2) + j % 2, column = l / 4 + 8 * (j / 2);
            to[l / 4][l % 4 * 4 + j] = rows->at[reg / 2 * 2 + row / 8][row % 8][column];
        }
}

// stmatrix of 16 x 8 bytes: byte j is in memory row 2q + j % 2, column g + 8 (j / 2).
static void spread_bytes(uint8_t to[8][16], const uint8_t from[8][16]) {
    for (int l = 0; l < 32; l++)
        for (int j = 0; j < 4; j++)
            to[2 * (l % 4) + j % 2][l / 4 + 8 * (j / 2)] = from[l / 4][l % 4 * 4 + j];
}

static VgFault access_rows(VgWarp *w, const MatrixSite *site, const char *f, uint32_t m,
                           Rows *rows) {
    const void *address = site->address ? f + site->address : NULL;
    return site->site->run(&w->mem, site->site, site->lanes & m, address, (char *)rows);
}

HANDLER(load_matrix) {
    uint32_t m;
    const VgInstr *next;
    if (!begin_aligned(i, w, f, &m, &next)) return next;
    const MatrixSite *site = i->extra;
    Rows rows;
    VgFault fault = access_rows(w, site, f, m, &rows);
    if (fault != VG_OK) return vg_fault_record(w, i, fault);
    for (int k = 0; k < 32 && site->format; k++)
        if (site->lanes & m & 1u << k) unpack_row(rows.at[k / 8][k % 8], site->format);
    for (int k = 0; k < site->n; k++) {
        uint8_t turned[8][16] __attribute__((aligned(64)));
        if (site->bytes)
            turn_bytes(turned, &rows, k);
        else if (site->turned)
            turn_halves(turned, rows.at[k]);
        keep_register(f + site->reg[k], site->turned ? turned : rows.at[k], m);
    }
    VG_NEXT(i, w, f);
}

HANDLER(store_matrix) {
    uint32_t m;
    const VgInstr *next;
    if (!begin_aligned(i, w, f, &m, &next)) return next;
    const MatrixSite *site = i->extra;
    Rows rows;
    for (int k = 0; k < site->n; k++) {
        const void *from = f + site->reg[k];
        if (site->bytes)
            spread_bytes(rows.at[k], from);
        else if (site->turned)
            turn_halves(rows.at[k], from);
        else
            memcpy(rows.at[k], from, sizeof rows.at[k]);
    }
    VgFault fault = access_rows(w, site, f, m, &rows);
    if (fault != VG_OK) return vg_fault_record(w, i, fault);
    VG_NEXT(i, w, f);
}

HANDLER(move_matrix) {
    uint32_t m, r[32];
    const VgInstr *next;
    if (!begin_aligned(i, w, f, &m, &next)) return next;
    turn_halves(r, f + i->a);
    keep_register(f + i->d, r, m);
    VG_NEXT(i, w, f);
}

/* decoding ------------------------------------------------------------------------------------- */

static const char *const counts[] = { "x1", "x2", "x4", NULL };

static Status take_format(VgDecoder *d, MatrixSite *site, bool *b16) {
    *b16 = vg_take(d, "b16");
    if (*b16 || vg_take(d, "b8")) return OK;
    if (!vg_take(d, "b8x16")) return vg_bad(d, "expected .b16, .b8 or .b8x16");
    site->format = vg_take(d, "b6x16_p32") ? FORMAT_6_BITS : FORMAT_4_BITS;
    if (site->format == FORMAT_4_BITS && !vg_take(d, "b4x16_p64"))
        return vg_bad(d, "expected .b6x16_p32 or .b4x16_p64");
    return OK;
}

// Shapes: m8n8 of b16; m16n16 of bytes and m8n16 of packed ones when loading, m16n8 of bytes when
// storing.
static Status take_shape(VgDecoder *d, MatrixSite *site, bool store) {
    static const char *const shapes[] = { "m8n8", "m16n16", "m8n16", "m16n8", NULL };
    int shape = vg_take_one(d, shapes), n = vg_take_one(d, counts);
    bool b16;
    site->turned = vg_take(d, "trans");
    if (shape < 0 || n < 0) return vg_bad(d, "expected a shape, as .m8n8, and .x1, .x2 or .x4");
    TRY(take_format(d, site, &b16));
    if (b16 != (shape == 0)) return vg_bad(d, ".b16 goes with .m8n8, bytes with the other shapes");
    if (shape && vg_cc(d) < 100)
        return vg_bad(d, "matrices of bytes need sm_100a, this is sm_%d", vg_cc(d));
    site->n = 1 << n;
    site->bytes = shape == 1 || shape == 3;
    if (shape > 0 && store != (shape == 3)) return vg_bad(d, "no such shape of this instruction");
    if (site->bytes != site->turned && shape)
        return vg_bad(d, "bytes of this shape are %s",
                      site->bytes ? "always .trans" : "never .trans");
    if (shape == 2 && !site->format) return vg_bad(d, "expected .b6x16_p32 or .b4x16_p64");
    if (shape == 1 && n > 1) return vg_bad(d, "expected .x1 or .x2");
    if (shape == 1) site->n *= 2;
    site->lanes = site->n == 4 ? ~0u : (1u << 8 * site->n) - 1;
    return OK;
}

static Status decode_matrix(VgDecoder *d, const PtxInstr *p) {
    bool store = *p->root == 's';
    MatrixSite *site = ARENA_NEW(vg_arena(d), MatrixSite);
    if (!vg_take(d, "sync") || !vg_take(d, "aligned")) return vg_bad(d, "expected .sync.aligned");
    TRY(take_shape(d, site, store));
    if (store && vg_cc(d) < 90) return vg_bad(d, "needs sm_90, this is sm_%d", vg_cc(d));
    bool shared = vg_take(d, "shared") || vg_take(d, "shared::cta");
    TRY(vg_count(d, 2, 2));
    const PtxOperand *regs = &p->operands[store ? 1 : 0];
    if (regs->kind != PTX_OP_VECTOR && site->n == 1) return vg_bad(d, "expected a register in { }");
    if (regs->kind != PTX_OP_VECTOR || (int)regs->n_items != site->n)
        return vg_bad(d, "expected %d registers in { }", site->n);
    VgSite *rows = site->site = vg_site(d);
    rows->space = shared ? VG_SHARED : VG_GENERIC, rows->access = store ? VG_WRITE : VG_READ;
    rows->scope = VG_SCOPE_SYS;
    rows->reg_bytes = 4, rows->bytes = 4, rows->vector = 4;
    rows->rows = true;
    for (uint32_t k = 0; k < 4; k++)
        rows->reg[k] = rows->source[k] = k * (uint32_t)sizeof(uint32_t[32]);
    int bytes;
    TRY(vg_address(d, &p->operands[store ? 0 : 1], &site->address, &rows->offset, &bytes));
    rows->address_bytes = (uint8_t)bytes;
    rows->run = vg_access_select(rows);
    for (int k = 0; k < site->n; k++)
        TRY(store ? vg_src(d, &regs->items[k], 32, &site->reg[k])
                  : vg_dst(d, &regs->items[k], 32, false, &site->reg[k]));
    VgInstr *i = vg_emit(d, store ? store_matrix : load_matrix);
    i->extra = site;
    vg_emit_list(d, site->reg, store ? 0 : (uint32_t)site->n, store ? (uint32_t)site->n : 0);
    vg_emit_reads(d, &site->address, 1);
    return OK;
}

static Status decode_movmatrix(VgDecoder *d, const PtxInstr *p) {
    uint32_t a, r;
    if (!vg_take(d, "sync") || !vg_take(d, "aligned") || !vg_take(d, "m8n8") ||
        !vg_take(d, "trans") || !vg_take(d, "b16"))
        return vg_bad(d, "expected .sync.aligned.m8n8.trans.b16");
    TRY(vg_count(d, 2, 2));
    TRY(vg_src(d, &p->operands[1], 32, &a));
    TRY(vg_dst(d, &p->operands[0], 32, false, &r));
    VgInstr *i = vg_emit(d, move_matrix);
    i->d = r, i->a = a;
    return OK;
}

const VgRoot VG_NAME(vg_roots_matrix)[] = {
    { "ldmatrix", decode_matrix,
      "ldmatrix.sync.aligned.{m8n8.{x1,x2,x4}{.trans}{.shared}.b16, "
      "m16n16.{x1,x2}.trans.shared.b8, "
      "m8n16.{x1,x2,x4}.shared.b8x16.{b6x16_p32,b4x16_p64}}" },
    { "stmatrix", decode_matrix,
      "stmatrix.sync.aligned.{m8n8.{x1,x2,x4}{.trans}{.shared}.b16, "
      "m16n8.{x1,x2,x4}.trans.shared.b8}" },
    { "movmatrix", decode_movmatrix, "movmatrix.sync.aligned.m8n8.trans.b16" },
    { NULL, NULL, NULL },
};
