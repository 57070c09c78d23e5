// SPDX-License-Identifier: Apache-2.0
// Source 0, second part: blocks of matrix products, c[i, j] = sum over s of a[i, s] * panel[s, j],
// and the packing of their operands.
//
// A panel is 32 columns, [steps][PANEL] floats or [pairs][PANEL] pairs of bf16 (one pair is two
// neighbours along the sum in 4 bytes, the earlier one low); columns past the true width are zero.
// Every element is one accumulator over ascending s, so bits do not depend on the shape of blocks,
// which differs by instruction-set level. A pair is summed as VDPBF16PS does: odd element first,
// two fused multiply-adds, denormals of operands and sums taken as zero; levels without the
// instruction do the same with that mode set for the duration of a block.
enum { PANEL = 2 * LANES };
// c = sum; sum starts from c; c += sum; c is bf16 and becomes the rounded sum.
enum { GEMM_START, GEMM_CONTINUE, GEMM_ADD, GEMM_ROUND };

// Rows and vectors of accumulators, by the registers there are: rows * wide + operands.
#if defined __AVX512F__
#define FLOAT_ROWS 14
#define FLOAT_WIDE 2
#elif defined __AVX2__ && defined __FMA__
#define FLOAT_ROWS 6
#define FLOAT_WIDE 1
#else
#define FLOAT_ROWS 2
#define FLOAT_WIDE 1
#endif
#if defined __AVX512BF16__
#define PAIR_ROWS 14
#define PAIR_WIDE 2
#elif defined __AVX512F__
#define PAIR_ROWS 12
#define PAIR_WIDE 2
#elif defined __AVX2__ && defined __FMA__
#define PAIR_ROWS 4
#define PAIR_WIDE 1
#else
#define PAIR_ROWS 2
#define PAIR_WIDE 1
#endif
enum { MAX_BLOCK_ROWS = 14, MAX_WIDE = 4 };

/* Pairs -------------------------------------------------------------------------------------- */

typedef int32_t Pair __attribute__((aligned(2), may_alias));

#if defined __AVX512BF16__
INLINE V v_dot_pairs(V sum, VI a, VI b) {
#if defined __clang__
    typedef __bf16 Operand __attribute__((vector_size(64)));
    return __builtin_ia32_dpbf16ps_512(sum, (Operand)a, (Operand)b);
#else
    typedef short Operand __attribute__((vector_size(64)));
    return __builtin_ia32_dpbf16ps_v16sf(sum, (Operand)a, (Operand)b);
#endif
}
#else
INLINE V v_dot_pairs(V sum, VI a, VI b) {
    VI odd = vi_splat(-65536);
    sum = v_fma((V)(a & odd), (V)(b & odd), sum);
    return v_fma((V)(a << 16), (V)(b << 16), sum);
}
#endif

// Denormals are zero between these two. `result` is where sums computed in between lie: it keeps
// the compiler from moving them out.
INLINE uint64_t denormals_off(void) {
    uint64_t old = 0;
#if defined __AVX512BF16__
#elif defined __x86_64__
    uint32_t mode, off;
    __asm__ volatile("stmxcsr %0" : "=m"(mode));
    off = mode | 0x8040;
    __asm__ volatile("ldmxcsr %0" : : "m"(off) : "memory");
    old = mode;
#elif defined __aarch64__
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" : : "r"(old | 1 << 24) : "memory");
#endif
    return old;
}
INLINE void denormals_back(uint64_t old, const void *result) {
#if defined __AVX512BF16__
    (void)old, (void)result;
#elif defined __x86_64__
    uint32_t mode = (uint32_t)old;
    __asm__ volatile("ldmxcsr %0" : : "m"(mode), "r"(result) : "memory");
#elif defined __aarch64__
    __asm__ volatile("msr fpcr, %0" : : "r"(old), "r"(result) : "memory");
#endif
}

/* Blocks ------------------------------------------------------------------------------------- */

// What a block reads and writes. `a` and its strides count floats, or pairs. `ahead`: memory that
// the next block will read, one prefetch of it per step, `ahead_step` bytes apart.
typedef struct Block {
    const void *a;
    int64_t a_row, a_step;
    const void *panel;
    int64_t steps;
    void *c;
    int64_t c_row, columns;
    int mode;
    const char *ahead;
    int64_t ahead_step;
} Block;

// `sums`: [rows][wide * LANES]; accumulators move between registers and it in straight code,
// between it and c in these loops.
SHARED void block_load(int64_t rows, int64_t wide, float *sums, const Block *b) {
    for (int64_t i = 0; i < rows; i++) {
        const float *from = (const float *)b->c + i * b->c_row;
        for (int64_t j = 0; j < wide * LANES; j += LANES, sums += LANES) {
            int64_t left = max_of(b->columns - j, 0);
            v_store(sums, left >= LANES ? v_load(from + j) : v_load_part(from + j, left));
        }
    }
}

INLINE void block_put_(const Block *b, int64_t row, int64_t column, V sum) {
    int64_t left = b->columns - column;
    if (left <= 0) return;
    if (b->mode == GEMM_ROUND) {
        bf16 *to = (bf16 *)b->c + row * b->c_row + column;
        if (left >= LANES)
            v_store_bf16(to, sum);
        else
            v_store_bf16_part(to, sum, left);
        return;
    }
    float *to = (float *)b->c + row * b->c_row + column;
    if (left >= LANES)
        v_store(to, b->mode == GEMM_ADD ? v_load(to) + sum : sum);
    else
        v_store_part(to, b->mode == GEMM_ADD ? v_load_part(to, left) + sum : sum, left);
}

SHARED void block_store(int64_t rows, int64_t wide, const float *sums, const Block *b) {
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < wide * LANES; j += LANES, sums += LANES)
            block_put_(b, i, j, v_load(sums));
    }
}

INLINE void float_rows_(const int rows, const int wide, const Block *b) {
    _Alignas(64) float sums[MAX_BLOCK_ROWS * MAX_WIDE * LANES];
    V acc[MAX_BLOCK_ROWS][MAX_WIDE];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < wide; j++) acc[i][j] = v_splat(0.0f);
    }
    if (b->mode == GEMM_CONTINUE) {
        block_load(rows, wide, sums, b);
        UNROLL
        for (int i = 0; i < rows; i++) {
            UNROLL
            for (int j = 0; j < wide; j++) acc[i][j] = v_load(sums + (i * wide + j) * LANES);
        }
    }
    const float *a = b->a, *panel = b->panel;
    const char *ahead = b->ahead;
    for (int64_t s = 0; s < b->steps; s++) {
        __builtin_prefetch(ahead);
        V w[MAX_WIDE];
        UNROLL
        for (int j = 0; j < wide; j++) w[j] = v_load(panel + j * LANES);
        UNROLL
        for (int i = 0; i < rows; i++) {
            V x = v_splat(a[i * b->a_row]);
            UNROLL
            for (int j = 0; j < wide; j++) acc[i][j] = v_fma(x, w[j], acc[i][j]);
        }
        a += b->a_step, panel += PANEL, ahead += b->ahead_step;
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < wide; j++) v_store(sums + (i * wide + j) * LANES, acc[i][j]);
    }
    block_store(rows, wide, sums, b);
}

// `panel_step`: pairs from one step of the panel to the next.
// `there`: rows that are in c.
INLINE void pair_rows_(const int rows, const int wide, const int64_t panel_step, int64_t there,
                       const Block *b) {
    _Alignas(64) float sums[MAX_BLOCK_ROWS * MAX_WIDE * LANES];
    V acc[MAX_BLOCK_ROWS][MAX_WIDE];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < wide; j++) acc[i][j] = v_splat(0.0f);
    }
    if (b->mode == GEMM_CONTINUE) {
        block_load(rows, wide, sums, b);
        UNROLL
        for (int i = 0; i < rows; i++) {
            UNROLL
            for (int j = 0; j < wide; j++) acc[i][j] = v_load(sums + (i * wide + j) * LANES);
        }
    }
    uint64_t mode = denormals_off();
    const Pair *a = b->a;
    const int32_t *panel = b->panel;
    const char *ahead = b->ahead;
    for (int64_t s = 0; s < b->steps; s++) {
        __builtin_prefetch(ahead);
        VI w[MAX_WIDE];
        UNROLL
        for (int j = 0; j < wide; j++) w[j] = vi_load(panel + j * LANES);
        UNROLL
        for (int i = 0; i < rows; i++) {
            VI x = vi_splat(a[i * b->a_row]);
            UNROLL
            for (int j = 0; j < wide; j++) acc[i][j] = v_dot_pairs(acc[i][j], x, w[j]);
        }
        a += b->a_step, panel += panel_step, ahead += b->ahead_step;
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < wide; j++) v_store(sums + (i * wide + j) * LANES, acc[i][j]);
    }
    denormals_back(mode, sums);
    block_store(there, wide, sums, b);
}

// Rows in blocks of nearly equal height: 16 is 8 + 8, not 14 + 2, whose few accumulators would wait
// for each other. Every step prefetches a part of the next panel, whose loads would be waited for
// where a panel is passed over only a few times. (With hardly any rows the bandwidth of memory is
// the limit, and prefetches only disturb.)
enum { FEW_ROWS = 8 };

INLINE Block block_pass_(const Block *whole, int64_t first, int64_t half, int64_t bytes,
                         int64_t pass, int64_t passes, int64_t rows) {
    Block b = *whole;
    int64_t number = b.mode == GEMM_ROUND ? sizeof(bf16) : sizeof(float);
    b.a = (const char *)b.a + first * b.a_row * 4;
    b.panel = (const char *)b.panel + half * 4;
    b.c = (char *)b.c + (first * b.c_row + half) * number;
    b.columns -= half;
    if (b.ahead && rows > FEW_ROWS) {
        b.ahead_step = bytes / passes;
        b.ahead += pass * b.steps * b.ahead_step;
    } else {
        b.ahead = b.panel, b.ahead_step = 0;
    }
    return b;
}

#define BLOCK_CASES_(CASE)                                                                         \
    CASE(1)                                                                                        \
    CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)     \
        CASE(13) CASE(14)

// c[rows, columns] by a panel of floats. `a_row`, `a_step` count floats; `ahead` may be null;
// `ahead_step` is set here.
SHARED void gemm_floats(const Block *whole, int64_t rows) {
    int64_t blocks = up(rows, FLOAT_ROWS);
    for (int64_t half = 0; half < PANEL && half < whole->columns; half += FLOAT_WIDE * LANES) {
        for (int64_t i = 0; i < blocks; i++) {
            int64_t first = rows * i / blocks, n = rows * (i + 1) / blocks - first;
            Block b = block_pass_(whole, first, half, PANEL * 4, i, blocks, rows);
            switch (n) {
#define CASE_(n)                                                                                   \
    case n:                                                                                        \
        if (n <= FLOAT_ROWS) float_rows_(n, FLOAT_WIDE, &b);                                       \
        break;
                BLOCK_CASES_(CASE_)
#undef CASE_
            }
        }
    }
}

// The same by a panel of pairs; strides of `a` count pairs.
SHARED void gemm_pairs(const Block *whole, int64_t rows) {
    int64_t blocks = up(rows, PAIR_ROWS);
    for (int64_t half = 0; half < PANEL && half < whole->columns; half += PAIR_WIDE * LANES) {
        for (int64_t i = 0; i < blocks; i++) {
            int64_t first = rows * i / blocks, n = rows * (i + 1) / blocks - first;
            Block b = block_pass_(whole, first, half, PANEL * 4, i, blocks, rows);
            switch (n) {
#define CASE_(n)                                                                                   \
    case n:                                                                                        \
        if (n <= PAIR_ROWS) pair_rows_(n, PAIR_WIDE, PANEL, n, &b);                                \
        break;
                BLOCK_CASES_(CASE_)
#undef CASE_
            }
        }
    }
}

SHARED void gemm_block(const float *a, int64_t a_row, int64_t a_step, const float *panel,
                       int64_t steps, int64_t rows, float *c, int64_t c_row, int64_t columns,
                       int mode) {
    Block b = {.a = a,
               .a_row = a_row,
               .a_step = a_step,
               .panel = panel,
               .steps = steps,
               .c = c,
               .c_row = c_row,
               .columns = columns,
               .mode = mode};
    gemm_floats(&b, rows);
}

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

/* Sums over rows (matmul_w): pairs are two successive rows ----------------------------------- */

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
