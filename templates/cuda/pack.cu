// SPDX-License-Identifier: Apache-2.0
// pack: weights [matrices, K, N] in fp32, or bf16, to panels of 32 columns as contractions read them
// (kernel.h), in either order. A panel is [K, 32] in fp32, [K / 2, 32, 2] in bf16; what lies outside is zero.
//
// A block makes 32 lines of one panel; a warp reads neighbours and writes neighbours.
KERNEL($threads) $entry(const $x_type *w, $w_type *packed) {
    enum { K = $k, N = $n, EACH = $pairs ? 2 : 1, LINES = (K + EACH - 1) / EACH, PANELS = (N + 31) / 32, SLABS = (LINES + 31) / 32 };
    int64_t matrix = blockIdx.x / SLABS / PANELS, panel = blockIdx.x / SLABS % PANELS, column = panel * 32 + threadIdx.x % 32;
    int end = (int)min_of(blockIdx.x % SLABS * 32 + 32, LINES);
    for (int line = (int)(blockIdx.x % SLABS * 32 + threadIdx.x / 32); line < end; line += $threads / 32) {
        float x[2] = {0.0f, 0.0f};
        for (int i = 0; i < EACH; i++) {
            int64_t k = (int64_t)line * EACH + i;
            if (k < K && column < N) x[i] = f_of(w[(matrix * K + k) * N + column]);
        }
        int64_t to = ((matrix * PANELS + panel) * LINES + line) * 32 + threadIdx.x % 32;
#if $pairs
        ((uint32_t *)packed)[to] = bf16_pair(x[0], x[1]);
#else
        packed[to] = x[0];
#endif
    }
}
