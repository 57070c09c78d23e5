// SPDX-License-Identifier: Apache-2.0
// matmul_w: the weight's gradient, dense or grouped by expert.
//
//   w[e, k, n] = or += sum over rows r and positions a of x[r, e, a, k] g[r, e, a, n]
//
// A tile is (expert, e, range of k, range of n). Rows go in chunks of 256 (r, a) pairs, counted
// from the expert's first: each chunk is summed from zero, then added, which is the order of the
// result. In bf16 two successive rows of a chunk make the pairs; a row that is missing at its end
// is zero in both operands. Both operands of a chunk are packed. An expert without rows gets zeros,
// or keeps what it has.
$functions
static void tile_$entry($parameters int64_t tile) {
    enum { EXPERTS = $experts, MID = $mid, EACH = $each, K = $k, N = $n, ADD = $accumulate };
    enum { RANGE_K = $range_k, RANGE_N = $range_n, ROWS = 256 };
    enum { PAIRS = $pairs, PRE = $pre, MAX_STEPS = PAIRS ? ROWS / 2 : ROWS };
    const $x_type *const x_rows = $x;
    const int32_t *const bounds = $offsets;
    const int64_t ranges_k = up(K, RANGE_K), ranges_n = up(N, RANGE_N);
    int64_t n0 = tile % ranges_n * RANGE_N, k0 = tile / ranges_n % ranges_k * RANGE_K;
    int64_t matrix = tile / ranges_n / ranges_k, e = matrix % EACH; // matrix: (expert, e)
    int64_t begin = EXPERTS ? bounds[matrix / EACH] * (int64_t)MID : 0;
    int64_t end = EXPERTS ? bounds[matrix / EACH + 1] * (int64_t)MID : $rows * (int64_t)MID;
    int64_t wide_k = min_of(RANGE_K, K - k0), wide_n = min_of(RANGE_N, N - n0);
    float *to = w + matrix * K * N + k0 * N + n0;

    $storage $x_type made[PRE ? ROWS * K : 1];
    const $x_type *x_at[ROWS];
    const $g_type *g_at[ROWS];
    for (int64_t i = 0; begin == end && !ADD && i < wide_k; i++)
        for (int64_t n = 0; n < wide_n; n++) to[i * N + n] = 0.0f;
    for (int64_t from = begin; from < end; from += ROWS) {
        int64_t rows = min_of(ROWS, end - from);
        $make_operand
        for (int64_t i = 0; i < rows; i++) {
            int64_t row = ((from + i) / MID * EACH + e) * MID + (from + i) % MID;
            x_at[i] = PRE ? made + i * K + k0 : x_rows + row * K + k0;
            g_at[i] = g + row * N + n0;
        }
        int mode = ADD || from > begin ? GEMM_ADD : GEMM_START;
        _Alignas(64) int32_t a[RANGE_K * MAX_STEPS], b[WIDE_PANEL * MAX_STEPS];
        const int64_t steps = PAIRS ? up(rows, 2) : rows, padded = up(steps, QUAD) * QUAD;
        const int64_t ahead = rows_ahead(steps);
        for (int64_t k = 0; k < wide_k; k += LANES)
            $pack_x(a + k * padded, x_at, rows, steps, k, wide_k - k);
        for (int64_t n = 0; n < wide_n; n += WIDE_PANEL) {
            int64_t columns = min_of(WIDE_PANEL, wide_n - n);
            $pack_g(b, g_at, rows, steps, n, columns);
            for (int64_t k = 0; k < wide_k; k += QUAD) {
                float *c = to + k * N + n;
                int last = k + ahead >= wide_k; // then the next columns' first rows
                Quad q = {.a = a + k * padded,
                          .panel = b,
                          .steps = steps,
                          .rows = min_of(QUAD, wide_k - k),
                          .columns = columns,
                          .c = c,
                          .ahead = c + ahead * N + (last ? WIDE_PANEL - wide_k * N : 0),
                          .c_row = N,
                          .mode = mode};
                gemm_quad_$kind(&q);
            }
        }
    }
}

void $entry($parameters int64_t tile_begin, int64_t tile_end) {
    for (int64_t tile = tile_begin; tile < tile_end; tile++) tile_$entry($arguments tile);
}
