// SPDX-License-Identifier: Apache-2.0
// matmul_w in fp32: w [K, N] = or += the sum over rows of x [rows, K]^T g [rows, N], w row-major,
// [experts, EACH, K, N]. Every number is one chain of fused multiply-adds over ascending rows, added to
// w once; an expert without rows gives zero.
//
// A block of 16 x 16 threads makes BM x BN of one w: a thread the numbers 4 ty + 64 i .. + 3 of K and 4
// tx + 64 j .. + 3 of N.
enum { BM_$entry = $bm, BN_$entry = $bn, STAGES_$entry = $stages };
typedef struct Stage_$entry {
    float x[16][BM_$entry], g[16][BN_$entry];
} Stage_$entry;

// Both operands' 16 problem rows from `at`, at columns k0 and n0.
DEVICE void load_$entry(Stage_$entry *s, const $x_type *x, const $g_type *g, const Problem &p, int each, int64_t at,
                        int64_t k0, int64_t n0) {
    load_tile<16, BM_$entry, BM_$entry, $k, $each, $mid, $threads>(&s->x[0][0], x, p, each, at, k0);
    load_tile<16, BN_$entry, BN_$entry, $n, $each, $mid, $threads>(&s->g[0][0], g, p, each, at, n0);
}

KERNEL($threads) $entry(const $x_type *x, const $g_type *g,
#if $experts
                        const int32_t *offsets,
#endif
                        float *w) {
    enum { K = $k, N = $n, K_TILES = (K + BM_$entry - 1) / BM_$entry, N_TILES = (N + BN_$entry - 1) / BN_$entry };
    enum { TM = BM_$entry / 64, TN = BN_$entry / 64 };
    extern __shared__ __align__(16) unsigned char memory[];
    Stage_$entry *stages = (Stage_$entry *)memory;
    int64_t k0 = (int64_t)(blockIdx.x / N_TILES % K_TILES) * BM_$entry, n0 = (int64_t)(blockIdx.x % N_TILES) * BN_$entry;
    int matrix = blockIdx.x / N_TILES / K_TILES, each = matrix % $each;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    Problem p = {0, (int64_t)$rows * $mid, 0, matrix / $each};
#if $experts
    p.first = offsets[p.expert];
    p.rows = (int64_t)(offsets[p.expert + 1] - offsets[p.expert]) * $mid;
#endif
    const int steps = (int)up(p.rows, 16);
    for (int i = 0; i < STAGES_$entry - 1; i++) {
        if (i < steps) load_$entry(&stages[i], x, g, p, each, i * 16, k0, n0);
        copy_commit();
    }
    float sum[TM][4][TN][4];
    for (int i = 0; i < TM * 16 * TN; i++) (&sum[0][0][0][0])[i] = 0.0f;
    for (int step = 0; step < steps; step++) {
        copy_wait<STAGES_$entry - 2>();
        __syncthreads(); // this stage is there for all; the one before is free
        int next = step + STAGES_$entry - 1;
        if (next < steps)
            load_$entry(&stages[next % STAGES_$entry], x, g, p, each, (int64_t)next * 16, k0, n0);
        copy_commit();
        const Stage_$entry *s = &stages[step % STAGES_$entry];
#pragma unroll
        for (int r = 0; r < 16; r++) {
            float4 b[TN];
#pragma unroll
            for (int j = 0; j < TN; j++) b[j] = *(const float4 *)&s->g[r][4 * tx + 64 * j];
#pragma unroll
            for (int i = 0; i < TM; i++) {
                float4 four = *(const float4 *)&s->x[r][4 * ty + 64 * i];
                float a[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int u = 0; u < 4; u++)
#pragma unroll
                    for (int j = 0; j < TN; j++) {
                        sum[i][u][j][0] = fmaf(a[u], b[j].x, sum[i][u][j][0]);
                        sum[i][u][j][1] = fmaf(a[u], b[j].y, sum[i][u][j][1]);
                        sum[i][u][j][2] = fmaf(a[u], b[j].z, sum[i][u][j][2]);
                        sum[i][u][j][3] = fmaf(a[u], b[j].w, sum[i][u][j][3]);
                    }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < TM * 4; i++)
#pragma unroll
        for (int j = 0; j < TN * 4; j++) {
            int64_t k = k0 + 4 * ty + i / 4 * 64 + i % 4, n = n0 + 4 * tx + j / 4 * 64 + j % 4;
            if (k >= K || n >= N) continue;
            float *to = w + ((int64_t)matrix * K + k) * N + n;
            float x = sum[i / 4][i % 4][j / 4][j % 4];
            *to = $accumulate ? *to + x : x;
        }
}
