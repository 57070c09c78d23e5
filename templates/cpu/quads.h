// SPDX-License-Identifier: Apache-2.0
// Source 0: sums over rows in pairs (matmul_w in bf16); pairs are two successive rows.

// Blocks are 4 x 64: few rows of the result, which is read and written, and long ones. The left
// operand lies as [k / 4][pairs, up to a multiple of 4][4], the right one as [pairs][64].
enum { QUAD = 4, WIDE_PANEL = 4 * LANES };

INLINE VB row_float_(const float *row, int64_t n) {
    return vb_of(n >= LANES ? v_load(row) : v_load_part(row, max_of(n, 0)));
}
INLINE VB row_bf16_(const bf16 *row, int64_t n) {
    return n >= LANES ? vb_load(row) : vb_load_part(row, max_of(n, 0));
}

// Quarters (4 lanes) of 4 vectors turned: result j has quarter j of each.
#define EVEN_QUARTERS_(a, b)                                                                       \
    __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
#define ODD_QUARTERS_(a, b)                                                                        \
    __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)
INLINE void turn_quarters_(VI q[QUAD]) {
    VI even0 = EVEN_QUARTERS_(q[0], q[1]), even1 = EVEN_QUARTERS_(q[2], q[3]);
    VI odd0 = ODD_QUARTERS_(q[0], q[1]), odd1 = ODD_QUARTERS_(q[2], q[3]);
    q[0] = EVEN_QUARTERS_(even0, even1), q[2] = ODD_QUARTERS_(even0, even1);
    q[1] = EVEN_QUARTERS_(odd0, odd1), q[3] = ODD_QUARTERS_(odd0, odd1);
}

// 16 columns from `at` on of all rows, `n` of them there, as 4 tiles of `a`.
#define PACK_QUADS_(type)                                                                          \
    SHARED void pack_quads_##type(int32_t *to, const type *const *row, int64_t rows, int64_t at,   \
                                  int64_t n) {                                                     \
        int64_t padded = up(up(rows, 2), QUAD) * QUAD;                                             \
        for (int64_t p = 0; p < padded; p += QUAD, to += QUAD * QUAD) {                            \
            VI q[QUAD];                                                                            \
            UNROLL                                                                                 \
            for (int i = 0; i < QUAD; i++) {                                                       \
                int64_t r = 2 * (p + i);                                                           \
                VB zero = {0}, low = zero, high = zero;                                            \
                if (r < rows) low = row_##type##_(row[r] + at, n);                                 \
                if (r + 1 < rows) high = row_##type##_(row[r + 1] + at, n);                        \
                q[i] = pair_lanes(low, high);                                                      \
            }                                                                                      \
            turn_quarters_(q);                                                                     \
            UNROLL                                                                                 \
            for (int j = 0; j < QUAD; j++) vi_store(to + j * QUAD * padded, q[j]);                 \
        }                                                                                          \
    }
PACK_QUADS_(float)
PACK_QUADS_(bf16)

// 64 columns from `at` on, `n` of them there.
#define PACK_WIDE_(type)                                                                           \
    SHARED void pack_wide_##type(int32_t *to, const type *const *row, int64_t rows, int64_t at,    \
                                 int64_t n) {                                                      \
        for (int64_t r = 0; r < rows; r += 2) {                                                    \
            for (int64_t j = 0; j < WIDE_PANEL; j += LANES, to += LANES) {                         \
                VB zero = {0}, low = row_##type##_(row[r] + at + j, n - j);                        \
                VB high = r + 1 < rows ? row_##type##_(row[r + 1] + at + j, n - j) : zero;         \
                vi_store(to, pair_lanes(low, high));                                               \
            }                                                                                      \
        }                                                                                          \
    }
PACK_WIDE_(float)
PACK_WIDE_(bf16)

// c[rows <= 4, columns <= 64]. The blocks below, which come next, are fetched meanwhile: the second
// one, since with few pairs a block takes less time than memory does.
SHARED void gemm_quad(const int32_t *a, const int32_t *panel, int64_t pairs, int64_t rows, float *c,
                      int64_t c_row, int64_t columns, int mode) {
    for (int64_t i = 2 * QUAD; i < 3 * QUAD; i++) {
        for (int64_t j = 0; j < columns; j += LANES) __builtin_prefetch(c + i * c_row + j, 1);
    }
#if defined __AVX512BF16__
    if (rows == QUAD && columns == WIDE_PANEL) {
        V acc[QUAD][QUAD];
        UNROLL
        for (int i = 0; i < QUAD * QUAD; i++) acc[i / QUAD][i % QUAD] = v_splat(0.0f);
        for (int64_t p = 0; p < pairs; p++, a += QUAD, panel += WIDE_PANEL) {
            UNROLL
            for (int i = 0; i < QUAD; i++) {
                VI x = vi_splat(a[i]);
                UNROLL
                for (int j = 0; j < QUAD; j++)
                    acc[i][j] = v_dot_pairs(acc[i][j], x, vi_load(panel + j * LANES));
            }
        }
        UNROLL
        for (int i = 0; i < QUAD; i++, c += c_row) {
            UNROLL
            for (int j = 0; j < QUAD; j++) {
                float *to = c + j * LANES;
                v_store(to, mode == GEMM_ADD ? v_load(to) + acc[i][j] : acc[i][j]);
            }
        }
        return;
    }
#endif
    enum { WIDE = PAIR_WIDE == 2 ? QUAD : 1 };
    for (int64_t j = 0; j < columns; j += WIDE * LANES) {
        Block b = {.a = a,
                   .a_row = 1,
                   .a_step = QUAD,
                   .panel = panel + j,
                   .steps = pairs,
                   .c = c + j,
                   .c_row = c_row,
                   .columns = columns - j,
                   .mode = mode,
                   .ahead = (const char *)a};
        pair_rows_(QUAD, WIDE, WIDE_PANEL, rows, &b);
    }
}
