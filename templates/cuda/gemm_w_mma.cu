// SPDX-License-Identifier: Apache-2.0
// matmul_w in bf16: w [K, N] = or += the sum over rows of x [rows, K]^T g [rows, N], w in fp32 row-major,
// [experts, EACH, K, N]. Rows ascend in steps of 16 into fp32 accumulators, which are added to w once; an
// expert without rows gives zero.
//
// A block makes BM x BN of one w. STAGES tiles of 32 rows are on their way, both operands by rows as
// they lie in memory, each padded by 16 bytes so that the rows ldmatrix reads lie in different banks;
// ldmatrix turns both.
enum { BM_$entry = $bm, BN_$entry = $bn, STAGES_$entry = $stages };
typedef struct Stage_$entry {
    bf16 x[32][BM_$entry + 8], g[32][BN_$entry + 8];
} Stage_$entry;

// Both operands' 32 problem rows from `at`, at columns k0 and n0.
DEVICE void load_$entry(Stage_$entry *s, const $x_type *x, const $g_type *g, const Problem &p, int each, int64_t at,
                        int64_t k0, int64_t n0) {
    load_tile<32, BM_$entry, BM_$entry + 8, $k, $each, $mid, $threads>(&s->x[0][0], x, p, each, at, k0);
    load_tile<32, BN_$entry, BN_$entry + 8, $n, $each, $mid, $threads>(&s->g[0][0], g, p, each, at, n0);
}

KERNEL($threads) $entry(const $x_type *x, const $g_type *g,
#if $experts
                        const int32_t *offsets,
#endif
                        float *w) {
    enum { K = $k, N = $n, K_TILES = (K + BM_$entry - 1) / BM_$entry, N_TILES = (N + BN_$entry - 1) / BN_$entry };
    enum { TM = BM_$entry / $warps_m / 16, TN = BN_$entry / $warps_n / 8 };
    extern __shared__ __align__(16) unsigned char memory[];
    Stage_$entry *stages = (Stage_$entry *)memory;
    int64_t k0 = (int64_t)(blockIdx.x / N_TILES % K_TILES) * BM_$entry, n0 = (int64_t)(blockIdx.x % N_TILES) * BN_$entry;
    int matrix = blockIdx.x / N_TILES / K_TILES, each = matrix % $each;
    Problem p = {0, (int64_t)$rows * $mid, 0, matrix / $each};
#if $experts
    p.first = offsets[p.expert];
    p.rows = (int64_t)(offsets[p.expert + 1] - offsets[p.expert]) * $mid;
#endif
    const int steps = (int)up(p.rows, 32);
    for (int i = 0; i < STAGES_$entry - 1; i++) {
        if (i < steps) load_$entry(&stages[i], x, g, p, each, i * 32, k0, n0);
        copy_commit();
    }
    const int lane = lane_id();
    const int row0 = warp_id() / $warps_n * (TM * 16), column0 = warp_id() % $warps_n * (TN * 8);
    float sum[TM][TN][4];
    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++)
            for (int v = 0; v < 4; v++) sum[i][j][v] = 0.0f;
    for (int step = 0; step < steps; step++) {
        copy_wait<STAGES_$entry - 2>();
        __syncthreads(); // this stage is there for all; the one before is free
        int next = step + STAGES_$entry - 1;
        if (next < steps)
            load_$entry(&stages[next % STAGES_$entry], x, g, p, each, (int64_t)next * 32, k0, n0);
        copy_commit();
        const Stage_$entry *s = &stages[step % STAGES_$entry];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t a[TM][4], b[TN][2];
#pragma unroll
            for (int i = 0; i < TM; i++)
                load_matrices_turned(a[i], &s->x[half * 16 + (lane & 7) + (lane >> 4) * 8]
                                              [row0 + i * 16 + (lane >> 3 & 1) * 8]);
#pragma unroll
            for (int j = 0; j < TN; j += 2) {
                uint32_t two[4];
                load_matrices_turned(two, &s->g[half * 16 + (lane & 15)][column0 + j * 8 + (lane >> 4) * 8]);
                b[j][0] = two[0], b[j][1] = two[1], b[j + 1][0] = two[2], b[j + 1][1] = two[3];
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
        for (int j = 0; j < TN; j++)
#pragma unroll
            for (int v = 0; v < 4; v++) {
                int64_t k = k0 + row0 + i * 16 + lane / 4 + v / 2 * 8, n = n0 + column0 + j * 8 + lane % 4 * 2 + v % 2;
                if (k >= K || n >= N) continue;
                float *to = w + ((int64_t)matrix * K + k) * N + n;
                *to = $accumulate ? *to + sum[i][j][v] : sum[i][j][v];
            }
}
