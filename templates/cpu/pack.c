// SPDX-License-Identifier: Apache-2.0
// pack: weights [matrices, k, n] to panels of 32 columns as blocks of matrix products read them.
//
//   not turned  packed[matrix, j / 32, s, j % 32] = w[matrix, s, j]     (sums over k: matmul)
//   turned      packed[matrix, j / 32, s, j % 32] = w[matrix, j, s]     (sums over n: matmul_t)
//
// In bf16 two neighbours along s lie side by side: [matrix, j / 32, s / 2, j % 32, s % 2]. What a
// panel has beyond the weight is zero. A tile is a few panels.
void $entry(const float *w, $w_type *packed, int64_t tile_begin, int64_t tile_end) {
    enum { K = $k, N = $n, TURNED = $turned, PAIRS = $pairs };
    enum { STEPS = TURNED ? N : K, COLUMNS = TURNED ? K : N };
    const int64_t panels = up(COLUMNS, PANEL), all = $matrices * panels;
    const int64_t numbers = (PAIRS ? (STEPS + 1) / 2 * 2 : STEPS) * (int64_t)PANEL;
    for (int64_t p = tile_begin * $chunk; p < min_of(tile_end * $chunk, all); p++) {
        int64_t column = p % panels * PANEL, columns = min_of(PANEL, COLUMNS - column);
        const float *from = w + p / panels * K * N + column * (TURNED ? N : 1);
        $pack(packed + p * numbers, from, N, STEPS, columns);
    }
}
