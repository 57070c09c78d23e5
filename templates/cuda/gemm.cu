// SPDX-License-Identifier: Apache-2.0
// matmul, matmul_t in fp32: y [rows, N] = x [rows, K] w. Every number of y is one chain of fused
// multiply-adds over ascending K, as on the CPU. w is packed in panels of 32 columns: as it is, [experts,
// EACH, N / 32, K, 32], or, ACROSS, its transpose, [experts, EACH, K / 32, N, 32]. So one copy of a weight
// serves forward and the gradient of its input.
//
// A block of 16 x 16 threads makes BM x BN of y: a thread the rows ty + 16 i and the columns 4 tx + 64 j
// .. + 3, ACROSS tx + 64 j, + 16, + 32, + 48. x is read by rows of BK + 4, four columns at a time: the two
// rows a warp reads lie in different banks; and so, ACROSS, is w, eight rows of which fill all banks.
enum { BM_$entry = $bm, BN_$entry = $bn, STAGES_$entry = $stages };
typedef struct Stage_$entry {
    float x[BM_$entry][16 + 4];
#if $across
    float w[BN_$entry][16 + 4]; // [column][depth]
#else
    float w[16][BN_$entry]; // [depth][column]
#endif
} Stage_$entry;

DEVICE void load_$entry(Stage_$entry *s, const $x_type *x, const float *w, const Problem &p, int each,
                        int column, int k) {
    enum { K = $k, N = $n, LINES = $across ? N : K, PANELS = (($across ? K : N) + 31) / 32 };
    enum { PIECES = ($across ? 16 : BN_$entry) / 4 };
    load_tile<BM_$entry, 16, 16 + 4, K, $each, $mid, $threads>(&s->x[0][0], x, p, each, p.at, k);
    for (int c = threadIdx.x; c < 4 * BN_$entry; c += $threads) {
        int row = c / PIECES, inner = c % PIECES * 4;
        int line = row + ($across ? column : k), at = inner + ($across ? k : column);
        bool is = at / 32 < PANELS && line < LINES;
        const float *from = w + (((int64_t)(p.expert * $each + each) * PANELS + at / 32) * LINES + line) * 32 + at % 32;
        copy_async(&s->w[row][inner], is ? from : w, is ? 16 : 0);
    }
    copy_commit();
}

// Column v of four of a thread's, in the block.
DEVICE int column_$entry(int tx, int j, int v) { return 64 * j + ($across ? tx + 16 * v : 4 * tx + v); }

DEVICE float part_$entry(const float4 &four, int i) { return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w; }

KERNEL($threads) $entry(const $x_type *$left, const float *w,
#if $experts
                        const int32_t *offsets,
#endif
                        $y_type *$result) {
    enum { K = $k, N = $n, STEPS = (K + 15) / 16, COLUMN_TILES = (N + BN_$entry - 1) / BN_$entry };
    enum { TM = BM_$entry / 16, TN = BN_$entry / 64 };
    extern __shared__ __align__(16) unsigned char memory[];
    Stage_$entry *stages = (Stage_$entry *)memory;
    int column_tile = blockIdx.x % COLUMN_TILES, each = blockIdx.x / COLUMN_TILES % $each;
    int64_t row_tile = blockIdx.x / COLUMN_TILES / $each;
    Problem p = {0, (int64_t)$rows * $mid, row_tile * BM_$entry, 0};
#if $experts
    if (!find_tile<$experts, $mid, BM_$entry>(offsets, row_tile, &p)) return;
#endif
    const int column = column_tile * BN_$entry, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (int i = 0; i < STAGES_$entry - 1; i++) {
        if (i < STEPS)
            load_$entry(&stages[i], $left, w, p, each, column, i * 16);
        else
            copy_commit();
    }
    float sum[TM][TN][4];
    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++)
            for (int v = 0; v < 4; v++) sum[i][j][v] = 0.0f;
    for (int step = 0; step < STEPS; step++) {
        copy_wait<STAGES_$entry - 2>();
        __syncthreads(); // this stage is there for all; the one before is free
        int next = step + STAGES_$entry - 1;
        if (next < STEPS)
            load_$entry(&stages[next % STAGES_$entry], $left, w, p, each, column, next * 16);
        else
            copy_commit();
        const Stage_$entry *s = &stages[step % STAGES_$entry];
// ACROSS, all four at once would take all registers.
#pragma unroll $across ? 1 : 4
        for (int k = 0; k < 16; k += 4) {
            float4 a[TM];
#pragma unroll
            for (int i = 0; i < TM; i++) a[i] = *(const float4 *)&s->x[ty + 16 * i][k];
#if $across
#pragma unroll
            for (int jv = 0; jv < 4 * TN; jv++) {
                float4 b = *(const float4 *)&s->w[column_$entry(tx, jv / 4, jv % 4)][k];
#pragma unroll
                for (int u = 0; u < 4; u++)
#pragma unroll
                    for (int i = 0; i < TM; i++) {
                        float *to = &sum[i][jv / 4][jv % 4];
                        *to = fmaf(part_$entry(a[i], u), part_$entry(b, u), *to);
                    }
            }
#else
#pragma unroll
            for (int u = 0; u < 4; u++) {
                float4 b[TN];
#pragma unroll
                for (int j = 0; j < TN; j++) b[j] = *(const float4 *)&s->w[k + u][4 * tx + 64 * j];
#pragma unroll
                for (int i = 0; i < TM; i++)
#pragma unroll
                    for (int jv = 0; jv < 4 * TN; jv++) {
                        float *to = &sum[i][jv / 4][jv % 4];
                        *to = fmaf(part_$entry(a[i], u), part_$entry(b[jv / 4], jv % 4), *to);
                    }
            }
#endif
        }
    }
#pragma unroll
    for (int i = 0; i < TM; i++) {
        int64_t row = p.at + ty + 16 * i;
        if (row >= p.rows) continue;
        $y_type *to = $result + row_place<$each, $mid>(p, each, row) * N;
#pragma unroll
        for (int j = 0; j < TN; j++)
#pragma unroll
            for (int v = 0; v < 4; v++) {
                int64_t at = column + column_$entry(tx, j, v);
                if (at < N) put(to + at, sum[i][j][v]);
            }
    }
}
