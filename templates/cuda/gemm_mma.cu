// SPDX-License-Identifier: Apache-2.0
// matmul, matmul_t in bf16: y [rows, N] = x [rows, K] w. fp32 accumulators, K ascending in steps of 16, so
// bits depend on nothing but the operands.
//
// w is packed in panels of 32 columns, words of which are pairs along the other axis: as it is, [experts,
// EACH, N / 32, K / 2, 32, 2], or, ACROSS, its transpose, [experts, EACH, K / 32, N / 2, 32, 2]. So one copy
// of a weight serves forward and the gradient of its input.
//
// A block makes BM x BN of y, a warp (BM / WARPS_M) x (BN / WARPS_N) in tiles of 16 x 8. STAGES tiles
// of BK columns are on their way: x as rows of BK + 8 (rows are 80 bytes apart: the 16-byte rows that
// ldmatrix reads lie in different banks), w as lines of 32 + 8 words, lanes' words in different banks:
//   as it is  a line is 32 columns of y at two depths, in order of panels; a fragment is a word a lane
//   ACROSS    a line is two columns of y, 2 c and 2 c + 1, at 32 depths. Words of two depths hold fragments of
//             both: even columns go to one tile, odd ones to the next, and a lane has four columns in a row
enum {
    BM_$entry = $bm, BN_$entry = $bn, STAGES_$entry = $stages, TN_$entry = BN_$entry / $warps_n / 8,
};
typedef struct Stage_$entry {
    bf16 x[BM_$entry][32 + 8];
    uint32_t w[BN_$entry / 2][32 + 8];
} Stage_$entry;

DEVICE void load_$entry(Stage_$entry *s, const $x_type *x, const bf16 *w, const Problem &p, int each,
                        int column, int k) {
    enum { K = $k, N = $n, PAIRS = (($across ? N : K) + 1) / 2, PANELS = (($across ? K : N) + 31) / 32 };
    load_tile<BM_$entry, 32, 32 + 8, K, $each, $mid, $threads>(&s->x[0][0], x, p, each, p.at, k);
    for (int c = threadIdx.x; c < BN_$entry / 2 * 8; c += $threads) {
        int line = c / 8, word = c % 8 * 4;
        int panel = $across ? k / 32 : column / 32 + line / 16, pair = $across ? column / 2 + line : k / 2 + line % 16;
        bool is = panel < PANELS && pair < PAIRS;
        const bf16 *from = w + (((int64_t)(p.expert * $each + each) * PANELS + panel) * PAIRS + pair) * 64 + word * 2;
        copy_async(&s->w[line][word], is ? from : w, is ? 16 : 0);
    }
    copy_commit();
}

// Fragments of a warp's tiles, from column `column` of the block on, at depths `depth` .. + 15.
DEVICE void fragments_$entry(uint32_t b[TN_$entry][2], const Stage_$entry *s, int column, int depth) {
    const int group = lane_id() / 4, quad = lane_id() % 4; // PTX ISA's names
#pragma unroll
    for (int j = 0; j < TN_$entry; j += 2) {
#pragma unroll
        for (int high = 0; high < 2; high++) {
#if $across
            uint2 two = *(const uint2 *)&s->w[column / 2 + j * 4 + group][depth + high * 8 + quad * 2];
            b[j][high] = __byte_perm(two.x, two.y, 0x5410);
            b[j + 1][high] = __byte_perm(two.x, two.y, 0x7632);
#else
            for (int odd = 0; odd < 2; odd++) {
                int at = column + (j + odd) * 8 + group;
                b[j + odd][high] = s->w[at / 32 * 16 + depth / 2 + high * 4 + quad][at % 32];
            }
#endif
        }
    }
}

// What a lane has of row `high` of two neighbouring tiles whose first column is `column`.
DEVICE void store_$entry($y_type *y, int64_t column, const float even[4], const float odd[4], int high) {
    const int quad = lane_id() % 4;
    const float four[4] = {even[high * 2], $across ? odd[high * 2] : even[high * 2 + 1],
                           $across ? even[high * 2 + 1] : odd[high * 2], odd[high * 2 + 1]};
#pragma unroll
    for (int v = 0; v < 4; v++) {
        int64_t at = column + ($across ? quad * 4 + v : v / 2 * 8 + quad * 2 + v % 2);
        if (at < $n) put(y + at, four[v]);
    }
}

KERNEL($threads) $entry(const $x_type *$left, const bf16 *w,
#if $experts
                        const int32_t *offsets,
#endif
                        $y_type *$result) {
    enum { K = $k, N = $n, STEPS = (K + 31) / 32, COLUMN_TILES = (N + BN_$entry - 1) / BN_$entry };
    enum { TM = BM_$entry / $warps_m / 16, TN = TN_$entry };
    extern __shared__ __align__(16) unsigned char memory[];
    Stage_$entry *stages = (Stage_$entry *)memory;
    int column_tile = blockIdx.x % COLUMN_TILES, each = blockIdx.x / COLUMN_TILES % $each;
    int64_t row_tile = blockIdx.x / COLUMN_TILES / $each;
    Problem p = {0, (int64_t)$rows * $mid, row_tile * BM_$entry, 0};
#if $experts
    if (!find_tile<$experts, $mid, BM_$entry>(offsets, row_tile, &p)) return;
#endif
    const int column = column_tile * BN_$entry;
    for (int i = 0; i < STAGES_$entry - 1; i++) {
        if (i < STEPS)
            load_$entry(&stages[i], $left, w, p, each, column, i * 32);
        else
            copy_commit();
    }
    const int lane = lane_id();
    const int row0 = warp_id() / $warps_n * (TM * 16), column0 = warp_id() % $warps_n * (TN * 8);
    float sum[TM][TN][4];
    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++)
            for (int v = 0; v < 4; v++) sum[i][j][v] = 0.0f;
    for (int step = 0; step < STEPS; step++) {
        copy_wait<STAGES_$entry - 2>();
        __syncthreads(); // this stage is there for all; the one before is free
        int next = step + STAGES_$entry - 1;
        if (next < STEPS)
            load_$entry(&stages[next % STAGES_$entry], $left, w, p, each, column, next * 32);
        else
            copy_commit();
        const Stage_$entry *s = &stages[step % STAGES_$entry];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t a[TM][4], b[TN][2];
#pragma unroll
            for (int i = 0; i < TM; i++)
                load_matrices(a[i], &s->x[row0 + i * 16 + (lane & 15)][half * 16 + (lane >> 4) * 8]);
            fragments_$entry(b, s, column0, half * 16);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) mma_bf16(sum[i][j], a[i], b[j]);
        }
    }
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int high = 0; high < 2; high++) {
            int64_t row = p.at + row0 + i * 16 + lane / 4 + high * 8;
            if (row >= p.rows) continue;
            $y_type *to = $result + row_place<$each, $mid>(p, each, row) * N;
#pragma unroll
            for (int j = 0; j < TN; j += 2)
                store_$entry(to, (int64_t)column + column0 + j * 8, sum[i][j], sum[i][j + 1], high);
        }
}
