// SPDX-License-Identifier: Apache-2.0
// Source 0: packing operands of matrix products into panels (gemm.h says how they lie), and rows from
// one type to another.

/* Panels of several results side by side: each begins with a panel of its own ----------------- */

typedef struct PanelPlace {
    int64_t part, number, column; // the result, its panel, the panel's first column
} PanelPlace;
INLINE PanelPlace panel_place(const int64_t *sizes, int64_t panel) {
    int64_t part = 0;
    while (panel >= up(sizes[part], PANEL)) panel -= up(sizes[part++], PANEL);
    return (PanelPlace){part, panel, panel * PANEL};
}

/* Packing ------------------------------------------------------------------------------------ */

// panel[s][j] = b[s * row + j], columns past `columns` zero.
SHARED void pack_rows(float *panel, const float *b, int64_t row, int64_t steps, int64_t columns) {
    for (int64_t s = 0; s < steps; s++, b += row, panel += PANEL) {
        for (int64_t j = 0; j < PANEL; j += LANES) {
            int64_t left = columns - j;
            v_store(panel + j, left >= LANES ? v_load(b + j) : v_load_part(b + j, max_of(left, 0)));
        }
    }
}

// 16 rows of 16 lanes turned in place: four rounds of interleaving row i with row i + 8.
INLINE void turn16_(V t[16]) {
    for (int round = 0; round < 4; round++) {
        V u[16];
        UNROLL
        for (int i = 0; i < 8; i++) {
            u[2 * i] = __builtin_shufflevector(t[i], t[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                               21, 6, 22, 7, 23);
            u[2 * i + 1] = __builtin_shufflevector(t[i], t[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12,
                                                   28, 13, 29, 14, 30, 15, 31);
        }
        UNROLL
        for (int i = 0; i < 16; i++) t[i] = u[i];
    }
}

// panel[s][j] = b[j * row + s], columns past `columns` zero.
SHARED void pack_turned(float *panel, const float *b, int64_t row, int64_t steps, int64_t columns) {
    for (int64_t j = 0; j < PANEL; j += LANES) {
        for (int64_t s = 0; s < steps; s += LANES) {
            V t[16];
            int64_t wide = min_of(steps - s, LANES);
            for (int i = 0; i < LANES; i++) {
                const float *at = b + (j + i) * row + s;
                t[i] = j + i >= columns ? v_splat(0.0f)
                       : wide == LANES  ? v_load(at)
                                        : v_load_part(at, wide);
            }
            turn16_(t);
            for (int64_t i = 0; i < wide; i++) v_store(panel + (s + i) * PANEL + j, t[i]);
        }
    }
}

// Two rows of bf16 in pairs: lane j is (low[j], high[j]).
INLINE VI pair_lanes(VB low, VB high) {
    return (VI)(__builtin_convertvector(low, VU) | __builtin_convertvector(high, VU) << 16);
}

// to[p][j] is the pair (b[2p * row + j], b[(2p + 1) * row + j]) rounded to bf16; zero past the
// ends.
SHARED void pack_pairs(bf16 *to, const float *b, int64_t row, int64_t steps, int64_t columns) {
    for (int64_t s = 0; s < steps; s += 2, b += 2 * row) {
        for (int64_t j = 0; j < PANEL; j += LANES, to += 2 * LANES) {
            int64_t n = min_of(max_of(columns - j, 0), LANES), odd = s + 1 < steps ? n : 0;
            V low = n == LANES ? v_load(b + j) : v_load_part(b + j, n),
              high = odd == LANES ? v_load(b + row + j) : v_load_part(b + row + j, odd);
            vi_store((int32_t *)to, pair_lanes(vb_of(low), vb_of(high)));
        }
    }
}

// to[p][j] is the pair (b[j * row + 2p], b[j * row + 2p + 1]) rounded to bf16; zero past the ends.
SHARED void pack_pairs_turned(bf16 *to, const float *b, int64_t row, int64_t steps,
                              int64_t columns) {
    int32_t *pairs = (int32_t *)to;
    for (int64_t j = 0; j < PANEL; j += LANES) {
        for (int64_t s = 0; s < steps; s += 2 * LANES) {
            V t[16];
            int64_t n = min_of(steps - s, 2 * LANES);
            for (int i = 0; i < LANES; i++) {
                bf16 line[2 * LANES] = {0};
                const float *at = b + (j + i) * row + s;
                if (j + i < columns && n == 2 * LANES) {
                    v_store_bf16(line, v_load(at));
                    v_store_bf16(line + LANES, v_load(at + LANES));
                } else if (j + i < columns) {
                    v_store_bf16(line, v_load_part(at, min_of(n, LANES)));
                    v_store_bf16(line + LANES, v_load_part(at + LANES, max_of(n - LANES, 0)));
                }
                __builtin_memcpy(&t[i], line, sizeof line);
            }
            turn16_(t);
            for (int64_t i = 0; i < up(n, 2); i++)
                v_store((float *)(pairs + (s / 2 + i) * PANEL + j), t[i]);
        }
    }
}

/* Rows from one type to another, n numbers of each ------------------------------------------- */

SHARED void rows_float_float(float *to, int64_t to_row, const float *from, int64_t from_row,
                             int64_t rows, int64_t n) {
    for (int64_t i = 0; i < rows; i++)
        __builtin_memcpy(to + i * to_row, from + i * from_row, sizeof(float) * (uint64_t)n);
}
SHARED void rows_bf16_bf16(bf16 *to, int64_t to_row, const bf16 *from, int64_t from_row,
                           int64_t rows, int64_t n) {
    for (int64_t i = 0; i < rows; i++)
        __builtin_memcpy(to + i * to_row, from + i * from_row, sizeof(bf16) * (uint64_t)n);
}
SHARED void rows_float_bf16(bf16 *to, int64_t to_row, const float *from, int64_t from_row,
                            int64_t rows, int64_t n) {
    for (int64_t i = 0; i < rows; i++, to += to_row, from += from_row) {
        int64_t j = 0;
        for (; j + LANES <= n; j += LANES) v_store_bf16(to + j, v_load(from + j));
        if (j < n) v_store_bf16_part(to + j, v_load_part(from + j, n - j), n - j);
    }
}
SHARED void rows_bf16_float(float *to, int64_t to_row, const bf16 *from, int64_t from_row,
                            int64_t rows, int64_t n) {
    for (int64_t i = 0; i < rows; i++, to += to_row, from += from_row) {
        int64_t j = 0;
        for (; j + LANES <= n; j += LANES) v_store(to + j, v_load_bf16(from + j));
        if (j < n) v_store_part(to + j, v_load_bf16_part(from + j, n - j), n - j);
    }
}
