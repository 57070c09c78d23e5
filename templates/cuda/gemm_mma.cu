// SPDX-License-Identifier: Apache-2.0
// matmul, matmul_t in bf16: y [rows, N] = x [rows, K] w, w packed in panels of 32 columns as pairs of
// contraction rows, [experts, EACH, N / 32, K / 2, 32, 2]. fp32 accumulators, K ascending in steps of
// 16, so bits depend on nothing but the operands.
//
// A block makes BM x BN of y, a warp (BM / WARPS_M) x (BN / WARPS_N) in tiles of 16 x 8. STAGES tiles
// of BK columns are on their way: x as rows of BK + 8 (rows are 80 bytes apart: the 16-byte rows that
// ldmatrix reads lie in different banks), w as pair rows of 32 + 8 words: a fragment of w is one word
// per lane, in different banks.
enum {
    BM_$entry = $bm, BN_$entry = $bn, STAGES_$entry = $stages,
};
typedef struct Stage_$entry {
    bf16 x[BM_$entry][32 + 8];
    uint32_t w[BN_$entry / 32][16][32 + 8];
} Stage_$entry;

DEVICE void load_$entry(Stage_$entry *s, const $x_type *x, const bf16 *w, const Problem &p, int each,
                        int panel, int64_t k) {
    enum { K = $k, PAIRS = (K + 1) / 2, PANELS = ($n + 31) / 32 };
    load_tile<BM_$entry, 32, 32 + 8, K, $each, $mid, $threads>(&s->x[0][0], x, p, each, p.at, k);
    for (int c = threadIdx.x; c < BN_$entry / 32 * 16 * 8; c += $threads) {
        int which = c / 128, pair = c / 8 % 16, word = c % 8 * 4;
        bool is = panel + which < PANELS && k / 2 + pair < PAIRS;
        const bf16 *from = w + (((int64_t)(p.expert * $each + each) * PANELS + panel + which) * PAIRS + k / 2 + pair) * 64 + word * 2;
        copy_async(&s->w[which][pair][word], is ? from : w, is ? 16 : 0);
    }
    copy_commit();
}

DEVICE void store_pair_$entry($y_type *y, int64_t column, float a, float b) {
    if (column < $n) put(y + column, a);
    if (column + 1 < $n) put(y + column + 1, b);
}

KERNEL($threads) $entry(const $x_type *$left, const bf16 *w,
#if $experts
                        const int32_t *offsets,
#endif
                        $y_type *$result) {
    enum { K = $k, N = $n, STEPS = (K + 31) / 32, COLUMN_TILES = (N + BN_$entry - 1) / BN_$entry };
    enum { TM = BM_$entry / $warps_m / 16, TN = BN_$entry / $warps_n / 8 };
    extern __shared__ __align__(16) unsigned char memory[];
    Stage_$entry *stages = (Stage_$entry *)memory;
    int column_tile = blockIdx.x % COLUMN_TILES, each = blockIdx.x / COLUMN_TILES % $each;
    int64_t row_tile = blockIdx.x / COLUMN_TILES / $each;
    Problem p = {0, (int64_t)$rows * $mid, row_tile * BM_$entry, 0};
#if $experts
    if (!find_tile<$experts, $mid, BM_$entry>(offsets, row_tile, &p)) return;
#endif
    const int panel = column_tile * (BN_$entry / 32);
    for (int i = 0; i < STAGES_$entry - 1; i++) {
        if (i < STEPS)
            load_$entry(&stages[i], $left, w, p, each, panel, i * 32);
        else
            copy_commit();
    }
    const int lane = lane_id(), group = lane / 4, quad = lane % 4; // PTX ISA's names
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
            load_$entry(&stages[next % STAGES_$entry], $left, w, p, each, panel, (int64_t)next * 32);
        else
            copy_commit();
        const Stage_$entry *s = &stages[step % STAGES_$entry];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t a[TM][4], b[TN][2];
#pragma unroll
            for (int i = 0; i < TM; i++)
                load_matrices(a[i], &s->x[row0 + i * 16 + (lane & 15)][half * 16 + (lane >> 4) * 8]);
#pragma unroll
            for (int j = 0; j < TN; j++) {
                int column = column0 + j * 8 + group;
                b[j][0] = s->w[column / 32][half * 8 + quad][column % 32];
                b[j][1] = s->w[column / 32][half * 8 + quad + 4][column % 32];
            }
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
            int64_t row = p.at + row0 + i * 16 + group + high * 8;
            if (row >= p.rows) continue;
            $y_type *to = $result + row_place<$each, $mid>(p, each, row) * N;
#pragma unroll
            for (int j = 0; j < TN; j++)
                store_pair_$entry(to, (int64_t)column_tile * BN_$entry + column0 + j * 8 + quad * 2,
                                  sum[i][j][high * 2], sum[i][j][high * 2 + 1]);
        }
}
