// SPDX-License-Identifier: Apache-2.0
// matmul_w: the weight's gradient, dense or grouped by expert.
//
//   w[e, k, n] = or += sum over rows r and positions a of x[r, e, a, k] g[r, e, a, n]
//
// A tile is (expert, e, range of k, range of n). Rows go in chunks of 256 (r, a) pairs, counted
// from the expert's first: each chunk is summed from zero, then added, which is the order of the
// result. Both operands of a chunk are packed to the stack. An expert without rows gets zeros, or
// keeps what it has.
void $entry(const float *x, const float *g,
#if $experts
            const int32_t *offsets,
#endif
            float *w, int64_t tile_begin, int64_t tile_end) {
    enum { EXPERTS = $experts, MID = $mid, EACH = $each, K = $k, N = $n, ADD = $accumulate };
    enum { RANGE_K = $chunk, RANGE_N = $range, ROWS = 256 };
    const int64_t ranges_k = up(K, RANGE_K), ranges_n = up(N, RANGE_N);
    _Alignas(64) float a[ROWS * RANGE_K], panel[ROWS * PANEL];

    for (int64_t tile = tile_begin; tile < tile_end; tile++) {
        int64_t n0 = tile % ranges_n * RANGE_N, k0 = tile / ranges_n % ranges_k * RANGE_K;
        int64_t matrix = tile / ranges_n / ranges_k, e = matrix % EACH; // matrix: (expert, e)
        int64_t begin = 0, end = $rows * (int64_t)MID;
#if $experts
        begin = offsets[matrix / EACH] * (int64_t)MID,
        end = offsets[matrix / EACH + 1] * (int64_t)MID;
#endif
        int64_t wide_k = min_of(RANGE_K, K - k0), last = min_of(n0 + RANGE_N, N);
        float *to = w + matrix * K * N + k0 * N;
        if (begin == end && !ADD) {
            for (int64_t i = 0; i < wide_k; i++)
                for (int64_t n = n0; n < last; n++) to[i * N + n] = 0.0f;
        }
        for (int64_t from = begin; from < end; from += ROWS) {
            int64_t rows = min_of(ROWS, end - from);
            for (int64_t i = 0; i < rows; i++) {
                int64_t row = ((from + i) / MID * EACH + e) * MID + (from + i) % MID;
                __builtin_memcpy(a + i * RANGE_K, x + row * K + k0,
                                 sizeof(float) * (uint64_t)wide_k);
            }
            for (int64_t n = n0; n < last; n += PANEL) {
                int64_t columns = min_of(PANEL, last - n);
                // Without one of the two axes the rows lie at one distance.
                if (MID == 1 || EACH == 1)
                    pack_rows(panel, g + (from * EACH + e) * N + n, EACH * N, rows, columns);
                for (int64_t i = 0; MID > 1 && EACH > 1 && i < rows; i++) {
                    int64_t row = ((from + i) / MID * EACH + e) * MID + (from + i) % MID;
                    pack_rows(panel + i * PANEL, g + row * N + n, N, 1, columns);
                }
                gemm_block(a, 1, RANGE_K, panel, rows, wide_k, to + n, N, columns,
                           from == begin && !ADD ? GEMM_START : GEMM_ADD);
            }
        }
    }
}
