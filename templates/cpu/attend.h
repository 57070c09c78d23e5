// SPDX-License-Identifier: Apache-2.0
// What attention forward and backward share; each of their sources begins with a copy of its own.
//
// Operands of products lie in scratch as words of 4 bytes: a float, or (`$pairs`) two bf16 numbers
// that are neighbours along the sum, STEP rows or features per word. Rows and panels are padded
// with zeros to whole words, 16 words and 32 columns, so nothing here knows of partial vectors.
enum { STEP_$entry = $pairs ? 2 : 1 };

INLINE V number_$entry(const void *p, const int narrow, int64_t at, int64_t n) {
    return narrow ? vh_load_n((const bf16 *)p + at, n) : v_load_n((const float *)p + at, n);
}
INLINE void put_number_$entry(void *p, const int narrow, int64_t at, V x, int64_t n) {
    if (narrow)
        vh_store_n((bf16 *)p + at, x, n);
    else
        v_store_n((float *)p + at, x, n);
}
// Lanes at number `at` of a row of words.
INLINE void put_words_$entry(float *row, int64_t at, V x) {
#if $pairs
    v_store_bf16((bf16 *)row + at, x);
#else
    v_store(row + at, x);
#endif
}
// Words of two numbers from two rows (the earlier one low).
INLINE VI pair_words_$entry(VB a, VB b) {
    return (VI)(__builtin_convertvector(a, VU) | __builtin_convertvector(b, VU) << 16);
}

/* Which keys a query sees: [low, high). Documents are runs of equal, ascending numbers. -------- */

static void see_$entry(const int32_t *segments, int32_t *low, int32_t *high, int64_t padded) {
    enum { SEQUENCE = $sequence, CAUSAL = $causal, WINDOW = $window };
    for (int64_t q = 0, start = 0; q < SEQUENCE; q++) {
        if (q && segments[q] != segments[q - 1]) start = q;
        low[q] = (int32_t)(WINDOW ? max_of(start, q - WINDOW + 1) : start);
    }
    for (int64_t q = SEQUENCE - 1, end = SEQUENCE; q >= 0; q--) {
        if (q + 1 < SEQUENCE && segments[q] != segments[q + 1]) end = q + 1;
        high[q] = (int32_t)(CAUSAL ? q + 1 : end);
    }
    for (int64_t q = SEQUENCE; q < padded; q++) low[q] = 0x7fffffff, high[q] = 0;
}

/* Packing -------------------------------------------------------------------------------------- */

// to[i] = words of `width` numbers from[i * row ..] * factor, for i < rows; zeros up to `all` rows.
INLINE void take_rows_$entry(float *to, int64_t pitch, const void *from, const int narrow,
                             int64_t row, int64_t width, int64_t rows, int64_t all, float factor) {
    for (int64_t i = 0; i < all; i++) {
        for (int64_t j = 0; j < pitch * STEP_$entry; j += LANES) {
            int64_t n = i < rows ? width - j : 0;
            V x = n > 0 ? number_$entry(from, narrow, i * row + j, n) : v_splat(0.0f);
            put_words_$entry(to + i * pitch, j, factor == 1.0f ? x : x * v_splat(factor));
        }
    }
}
// Words along rows: for each 32 columns a panel [rows / STEP][32]; `panel_words` from one to the
// next.
static void weave_$entry(float *panel, int64_t panel_words, const float *from, int64_t pitch,
                         int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i += STEP_$entry, panel += PANEL, from += pitch * STEP_$entry) {
        for (int64_t j = 0; j < columns; j += LANES) {
            float *to = panel + j / PANEL * panel_words + j % PANEL;
#if $pairs
            VB a, b;
            __builtin_memcpy(&a, (const bf16 *)from + j, sizeof a);
            __builtin_memcpy(&b, (const bf16 *)(from + pitch) + j, sizeof b);
            vi_store((int32_t *)to, pair_words_$entry(a, b));
#else
            v_store(to, v_load(from + j));
#endif
        }
    }
}

/* Products: c[i, 0..32) = or += sum over s of a[i * a_row + s * a_step] * panel[s, 0..32) ------ */

#if $pairs
enum { BIG_$entry = PAIR_ROWS, WIDE_$entry = PAIR_WIDE };
#else
enum { BIG_$entry = FLOAT_ROWS, WIDE_$entry = FLOAT_WIDE };
#endif
enum { SMALL_$entry = BIG_$entry > 8 ? 8 : BIG_$entry > 4 ? 4 : BIG_$entry };

INLINE void product_rows_$entry(const int rows, const float *a, int64_t a_row, int64_t a_step,
                                const float *panel, int64_t steps, float *c, int64_t c_row,
                                int64_t live, int add) {
    enum { BIG = BIG_$entry, WIDE = WIDE_$entry };
    V acc[BIG][WIDE];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < WIDE; j++) acc[i][j] = v_splat(0.0f);
    }
#if $pairs
    uint64_t mode = denormals_off();
#endif
    for (int64_t s = 0; s < steps; s++, panel += PANEL, a += a_step) {
#if $pairs
        VI w[WIDE];
        UNROLL
        for (int j = 0; j < WIDE; j++) w[j] = vi_load((const int32_t *)panel + j * LANES);
        UNROLL
        for (int i = 0; i < rows; i++) {
            VI x = vi_splat(*(const Pair *)(a + i * a_row));
            UNROLL
            for (int j = 0; j < WIDE; j++) acc[i][j] = v_dot_pairs(acc[i][j], x, w[j]);
        }
#else
        V w[WIDE];
        UNROLL
        for (int j = 0; j < WIDE; j++) w[j] = v_load(panel + j * LANES);
        UNROLL
        for (int i = 0; i < rows; i++) {
            V x = v_splat(a[i * a_row]);
            UNROLL
            for (int j = 0; j < WIDE; j++) acc[i][j] = v_fma(x, w[j], acc[i][j]);
        }
#endif
    }
    _Alignas(64) float sums[BIG][WIDE * LANES];
    float *to = add ? sums[0] : c;
    int64_t to_row = add ? WIDE * LANES : c_row;
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < WIDE; j++) v_store(to + i * to_row + j * LANES, acc[i][j]);
    }
#if $pairs
    denormals_back(mode, to);
#endif
    for (int64_t i = 0; add && i < min_of(rows, live); i++) {
        UNROLL
        for (int j = 0; j < WIDE * LANES; j += LANES)
            v_store(c + i * c_row + j, v_load(c + i * c_row + j) + v_load(&sums[i][j]));
    }
}

// Rows in blocks of two heights: at most 7 rows of a behind the last are read, and as many of c
// written unless `add`.
SHARED void product_$entry(const float *a, int64_t a_row, int64_t a_step, const float *panel,
                           int64_t steps, int64_t rows, float *c, int64_t c_row, int add) {
    enum { BIG = BIG_$entry, SMALL = SMALL_$entry };
    for (int64_t j = 0; j < PANEL; j += WIDE_$entry * LANES) {
        for (int64_t i = 0; i < rows;) {
            int64_t left = rows - i;
            if (left > SMALL && (left <= BIG || left > 2 * SMALL)) {
                product_rows_$entry(BIG, a + i * a_row, a_row, a_step, panel + j, steps,
                                    c + i * c_row + j, c_row, left, add);
                i += BIG;
            } else {
                product_rows_$entry(SMALL, a + i * a_row, a_row, a_step, panel + j, steps,
                                    c + i * c_row + j, c_row, left, add);
                i += SMALL;
            }
        }
    }
}

/* 2^x, relative error 4e-6 for bf16 and 1e-7 for fp32; below 2^-125 that, NaN stays ------------ */

INLINE V exp2_$entry(V x) {
    x = v_max(v_splat(-125.0f), x);
    V shifted = x + v_splat(0x1.8p+23f), f = x - (shifted - v_splat(0x1.8p+23f));
#if $pairs
    V p = v_splat(0x1.409104p-7f);
    p = v_fma(p, f, v_splat(0x1.ca9008p-5f));
    p = v_fma(p, f, v_splat(0x1.ebf1b4p-3f));
    p = v_fma(p, f, v_splat(0x1.62dfcap-1f));
#else
    V p = v_splat(0x1.470b4ap-13f);
    p = v_fma(p, f, v_splat(0x1.5f7276p-10f));
    p = v_fma(p, f, v_splat(0x1.3b270ep-7f));
    p = v_fma(p, f, v_splat(0x1.c6ae72p-5f));
    p = v_fma(p, f, v_splat(0x1.ebfbe2p-3f));
    p = v_fma(p, f, v_splat(0x1.62e432p-1f));
#endif
    p = v_fma(p, f, v_splat(1.0f));
    return v_of_bits(v_bits(p) + (v_bits(shifted) << 23));
}
#define LOG2_E 0x1.715476p+0f
#define LN_2 0x1.62e43p-1f
