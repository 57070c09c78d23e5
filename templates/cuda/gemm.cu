// SPDX-License-Identifier: Apache-2.0
// matmul, matmul_t in fp32: y [rows, N] = x [rows, K] w, w packed in panels of 32 columns, [experts,
// EACH, N / 32, K, 32]. Every number of y is one chain of fused multiply-adds over ascending K, as on
// the CPU.
//
// A block of 16 x 16 threads makes BM x BN of y: a thread the rows ty + 16 i and the columns 4 tx + 64 j
// .. + 3. x is read by rows of BK + 4, four columns at a time: the two rows a warp reads lie in
// different banks.
enum { BM_$entry = $bm, BN_$entry = $bn, STAGES_$entry = $stages };
typedef struct Stage_$entry {
    float x[BM_$entry][16 + 4];
    float w[16][BN_$entry];
} Stage_$entry;

DEVICE void load_$entry(Stage_$entry *s, const $x_type *x, const float *w, const Problem &p, int each,
                        int panel, int64_t k) {
    enum { K = $k, PANELS = ($n + 31) / 32 };
    load_tile<BM_$entry, 16, 16 + 4, K, $each, $mid, $threads>(&s->x[0][0], x, p, each, p.at, k);
    for (int c = threadIdx.x; c < 16 * (BN_$entry / 4); c += $threads) {
        int row = c / (BN_$entry / 4), column = c % (BN_$entry / 4) * 4, which = panel + column / 32;
        bool is = which < PANELS && k + row < K;
        const float *from = w + (((int64_t)(p.expert * $each + each) * PANELS + which) * K + k + row) * 32 + column % 32;
        copy_async(&s->w[row][column], is ? from : w, is ? 16 : 0);
    }
    copy_commit();
}

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
    const int panel = column_tile * (BN_$entry / 32), tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (int i = 0; i < STAGES_$entry - 1; i++) {
        if (i < STEPS)
            load_$entry(&stages[i], $left, w, p, each, panel, i * 16);
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
            load_$entry(&stages[next % STAGES_$entry], $left, w, p, each, panel, (int64_t)next * 16);
        else
            copy_commit();
        const Stage_$entry *s = &stages[step % STAGES_$entry];
#pragma unroll
        for (int k = 0; k < 16; k += 4) {
            float4 a[TM];
#pragma unroll
            for (int i = 0; i < TM; i++) a[i] = *(const float4 *)&s->x[ty + 16 * i][k];
#pragma unroll
            for (int u = 0; u < 4; u++) {
                float4 b[TN];
#pragma unroll
                for (int j = 0; j < TN; j++) b[j] = *(const float4 *)&s->w[k + u][4 * tx + 64 * j];
#pragma unroll
                for (int i = 0; i < TM; i++) {
                    float x = u == 0 ? a[i].x : u == 1 ? a[i].y : u == 2 ? a[i].z : a[i].w;
#pragma unroll
                    for (int j = 0; j < TN; j++) {
                        sum[i][j][0] = fmaf(x, b[j].x, sum[i][j][0]);
                        sum[i][j][1] = fmaf(x, b[j].y, sum[i][j][1]);
                        sum[i][j][2] = fmaf(x, b[j].z, sum[i][j][2]);
                        sum[i][j][3] = fmaf(x, b[j].w, sum[i][j][3]);
                    }
                }
            }
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
                int64_t column = (int64_t)column_tile * BN_$entry + 4 * tx + 64 * j + v;
                if (column < N) put(to + column, sum[i][j][v]);
            }
    }
}
