// SPDX-License-Identifier: Apache-2.0
// Source 0: blocks of matrix products, c[i, j] = sum over s of a[i, s] * panel[s, j]. panels.h packs
// their operands.
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

// One multiply-add, of floats or pairs.
INLINE V v_dot(const int pairs, V sum, VI a, VI b) {
    return pairs ? v_dot_pairs(sum, a, b) : v_fma((V)a, (V)b, sum);
}

// `panel_step`: floats or pairs from one step of the panel to the next. `there`: rows that are in c.
INLINE void block_rows_(const int pairs, const int rows, const int wide, const int64_t panel_step,
                        int64_t there, const Block *b) {
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
    uint64_t mode = pairs ? denormals_off() : 0;
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
            for (int j = 0; j < wide; j++) acc[i][j] = v_dot(pairs, acc[i][j], x, w[j]);
        }
        a += b->a_step, panel += panel_step, ahead += b->ahead_step;
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < wide; j++) v_store(sums + (i * wide + j) * LANES, acc[i][j]);
    }
    if (pairs) denormals_back(mode, sums);
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
        if (n <= FLOAT_ROWS) block_rows_(0, n, FLOAT_WIDE, PANEL, n, &b);                                       \
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
        if (n <= PAIR_ROWS) block_rows_(1, n, PAIR_WIDE, PANEL, n, &b);                                \
        break;
                BLOCK_CASES_(CASE_)
#undef CASE_
            }
        }
    }
}
