// SPDX-License-Identifier: Apache-2.0
// pack: weights [matrices, K, N] in fp32, or bf16, to panels of 32 columns as contractions read them (kernel.h).
// With DEPTH the contraction's length and WIDTH the result's: turned 0: DEPTH = K, WIDTH = N; turned 1 the
// other way round. A panel is [DEPTH, 32] in fp32, [DEPTH / 2, 32, 2] in bf16; what lies outside is zero.
//
// A block makes 64 rows of depth of one panel, through shared memory, so that reading and writing both
// run along memory.
KERNEL($threads) $entry(const $x_type *w, $w_type *packed) {
    enum { K = $k, N = $n, DEPTH = $turned ? N : K, WIDTH = $turned ? K : N, PANELS = (WIDTH + 31) / 32, SLABS = (DEPTH + 63) / 64 };
    __shared__ float tile[64][33]; // [depth][column]
    int64_t matrix = blockIdx.x / SLABS / PANELS, panel = blockIdx.x / SLABS % PANELS, depth = (int64_t)(blockIdx.x % SLABS) * 64;
    for (int i = threadIdx.x; i < 64 * 32; i += $threads) {
        int d = $turned ? i % 64 : i / 32, c = $turned ? i / 64 : i % 32;
        int64_t column = panel * 32 + c;
        bool is = depth + d < DEPTH && column < WIDTH;
        int64_t k = $turned ? column : depth + d, n = $turned ? depth + d : column;
        tile[d][c] = is ? f_of(w[(matrix * K + k) * N + n]) : 0.0f;
    }
    __syncthreads();
#if $pairs
    enum { PAIRS = (DEPTH + 1) / 2 };
    uint32_t *to = (uint32_t *)packed + ((matrix * PANELS + panel) * PAIRS + depth / 2) * 32;
    for (int i = threadIdx.x; i < 32 * 32; i += $threads)
        if (depth / 2 + i / 32 < PAIRS) to[i] = bf16_pair(tile[i / 32 * 2][i % 32], tile[i / 32 * 2 + 1][i % 32]);
#else
    float *to = packed + ((matrix * PANELS + panel) * DEPTH + depth) * 32;
    for (int i = threadIdx.x; i < 64 * 32; i += $threads)
        if (depth + i / 32 < DEPTH) to[i] = tile[i / 32][i % 32];
#endif
}
