// SPDX-License-Identifier: Apache-2.0
// Source 0: sums over rows (matmul_w), of floats or of pairs of bf16; a pair is two successive rows.

// Blocks are 4 x 64: few rows of the result, which is read and written, and long ones. A step is a
// row, or a pair of them. The left operand lies as [k / 4][steps, up to a multiple of 4][4], the
// right one as [steps][64].
enum { QUAD = 4, WIDE_PANEL = 4 * LANES };

INLINE VB narrow_float_(const float *row, int64_t n) {
    return vb_of(n >= LANES ? v_load(row) : v_load_part(row, max_of(n, 0)));
}
INLINE VB narrow_bf16_(const bf16 *row, int64_t n) {
    return n >= LANES ? vb_load(row) : vb_load_part(row, max_of(n, 0));
}
INLINE VI full_float_(const float *row, int64_t n) {
    return (VI)(n >= LANES ? v_load(row) : v_load_part(row, max_of(n, 0)));
}
INLINE VI full_bf16_(const bf16 *row, int64_t n) {
    return (VI)(n >= LANES ? v_load_bf16(row) : v_load_bf16_part(row, max_of(n, 0)));
}

// 16 columns from `at` on, `n` of them there, of a step; zeros past the last row.
#define STEP_(type)                                                                                \
    INLINE VI step_pairs_##type##_(const type *const *row, int64_t rows, int64_t step, int64_t at, \
                                   int64_t n) {                                                    \
        VB zero = {0}, low = zero, high = zero;                                                    \
        if (2 * step < rows) low = narrow_##type##_(row[2 * step] + at, n);                        \
        if (2 * step + 1 < rows) high = narrow_##type##_(row[2 * step + 1] + at, n);               \
        return pair_lanes(low, high);                                                              \
    }                                                                                              \
    INLINE VI step_floats_##type##_(const type *const *row, int64_t rows, int64_t step,            \
                                    int64_t at, int64_t n) {                                       \
        return step < rows ? full_##type##_(row[step] + at, n) : vi_splat(0);                      \
    }
STEP_(float)
STEP_(bf16)

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

// 16 columns of all rows as 4 tiles of `a`.
#define PACK_QUADS_(kind, type)                                                                    \
    SHARED void pack_quads_##kind##_##type(int32_t *to, const type *const *row, int64_t rows,      \
                                           int64_t steps, int64_t at, int64_t n) {                 \
        int64_t padded = up(steps, QUAD) * QUAD;                                                   \
        for (int64_t s = 0; s < padded; s += QUAD, to += QUAD * QUAD) {                            \
            VI q[QUAD];                                                                            \
            UNROLL                                                                                 \
            for (int i = 0; i < QUAD; i++)                                                         \
                q[i] = step_##kind##_##type##_(row, rows, s + i, at, n);                           \
            turn_quarters_(q);                                                                     \
            UNROLL                                                                                 \
            for (int j = 0; j < QUAD; j++) vi_store(to + j * QUAD * padded, q[j]);                 \
        }                                                                                          \
    }
PACK_QUADS_(pairs, float)
PACK_QUADS_(pairs, bf16)
PACK_QUADS_(floats, float)
PACK_QUADS_(floats, bf16)

// 64 columns of all rows.
#define PACK_WIDE_(kind, type)                                                                     \
    SHARED void pack_wide_##kind##_##type(int32_t *to, const type *const *row, int64_t rows,       \
                                          int64_t steps, int64_t at, int64_t n) {                  \
        for (int64_t s = 0; s < steps; s++) {                                                      \
            for (int64_t j = 0; j < WIDE_PANEL; j += LANES, to += LANES)                           \
                vi_store(to, step_##kind##_##type##_(row, rows, s, at + j, n - j));                \
        }                                                                                          \
    }
PACK_WIDE_(pairs, float)
PACK_WIDE_(pairs, bf16)
PACK_WIDE_(floats, float)
PACK_WIDE_(floats, bf16)

// Operands of a block of the result, c[rows <= 4, columns <= 64]. `ahead`: the one after the next,
// which is fetched meanwhile. With few steps a block takes less time than memory does: then it is
// one farther off, and fetched into the second cache, since rows at a multiple of 4096 bytes share
// few sets of the first.
enum { FEW_STEPS = 32 };
INLINE int64_t rows_ahead(int64_t steps) { return (steps > FEW_STEPS ? 2 : 4) * QUAD; }
typedef struct Quad {
    const int32_t *a, *panel;
    int64_t steps, rows, columns;
    float *c;
    const float *ahead;
    int64_t c_row;
    int mode;
} Quad;

INLINE void quad_fetch_(const Quad *q, const int64_t columns, const int few) {
    UNROLL
    for (int64_t i = 0; i < QUAD; i++) {
        UNROLL
        for (int64_t j = 0; j < WIDE_PANEL; j += LANES) {
            if (j >= columns) continue;
            const float *at = q->ahead + i * q->c_row + j;
            if (few)
                __builtin_prefetch(at, 0, 2);
            else
                __builtin_prefetch(at, 1);
        }
    }
}

// A full block.
INLINE void quad_full_(const int pairs, const Quad *q) {
    const int32_t *a = q->a, *panel = q->panel;
    float *c = q->c;
    const int64_t c_row = q->c_row;
    const int add = q->mode == GEMM_ADD;
    V acc[QUAD][QUAD];
    if (q->steps > FEW_STEPS)
        quad_fetch_(q, WIDE_PANEL, 0);
    else
        quad_fetch_(q, WIDE_PANEL, 1);
    UNROLL
    for (int i = 0; i < QUAD * QUAD; i++) acc[i / QUAD][i % QUAD] = v_splat(0.0f);
    for (int64_t s = q->steps; s > 0; s--, a += QUAD, panel += WIDE_PANEL) {
        UNROLL
        for (int i = 0; i < QUAD; i++) {
            VI x = vi_splat(a[i]);
            UNROLL
            for (int j = 0; j < QUAD; j++)
                acc[i][j] = v_dot(pairs, acc[i][j], x, vi_load(panel + j * LANES));
        }
    }
    UNROLL
    for (int i = 0; i < QUAD; i++, c += c_row) {
        UNROLL
        for (int j = 0; j < QUAD; j++) {
            float *to = c + j * LANES;
            v_store(to, add ? v_load(to) + acc[i][j] : acc[i][j]);
        }
    }
}

INLINE void quad_(const int pairs, const Quad *whole) {
    const Quad q = *whole;
    const int at_once = pairs ? PAIRS_AT_ONCE : FLOAT_WIDE == 2;
    if (at_once && q.rows == QUAD && q.columns == WIDE_PANEL) {
        quad_full_(pairs, &q);
        return;
    }
    quad_fetch_(&q, q.columns, 0);
    const int wide = (pairs ? PAIR_WIDE : FLOAT_WIDE) == 2 ? QUAD : 1;
    for (int64_t j = 0; j < q.columns; j += wide * LANES) {
        Block b = {.a = q.a,
                   .a_row = 1,
                   .a_step = QUAD,
                   .panel = q.panel + j,
                   .steps = q.steps,
                   .c = q.c + j,
                   .c_row = q.c_row,
                   .columns = q.columns - j,
                   .mode = q.mode,
                   .ahead = (const char *)q.a};
        block_rows_(pairs, QUAD, wide, WIDE_PANEL, q.rows, &b);
    }
}
INLINE void gemm_quad_floats(const Quad *q) { quad_(0, q); }
INLINE void gemm_quad_pairs(const Quad *q) { quad_(1, q); }
