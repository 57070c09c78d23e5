// SPDX-License-Identifier: Apache-2.0
// matmul and matmul_t: rows times a weight, dense or grouped by expert.
//
//   matmul    y[r, e, a, n] = sum over k of x[r, e, a, k] w[e, k, n]
//   matmul_t  x[r, e, a, k] = sum over n of g[r, e, a, n] w[e, k, n]       (`turned`)
//
// A tile is (problem, chunk of rows of one expert, range of columns). The weight's panel is packed
// to the stack, turned where needed, so that both run on one GEMM block. Sums ascend in one
// accumulator each, over the pieces of STEPS too, so bits do not depend on the cut. Only rows
// inside `offsets` are touched.
//
// Problems: where an operation has both `each` and `mid` axes, rows of one (e, a) lie at one
// distance, rows of one e do not; then every pair is a problem. Else mid's positions are further
// rows, and e the problem.
static void tile_$entry(const float *in, const float *w, const int32_t *offsets, float *out,
                        int64_t tile) {
    enum { EXPERTS = $experts, MID = $mid, EACH = $each, K = $k, N = $n, CHUNK = $chunk };
    enum { IN = $turned ? N : K, OUT = $turned ? K : N, BOTH = MID > 1 && EACH > 1 };
    const int64_t span = BOTH ? 1 : MID, all = $rows * span, range = $range;
    const int64_t in_row = (int64_t)EACH * (BOTH ? MID : 1) * IN,
                  out_row = (int64_t)EACH * (BOTH ? MID : 1) * OUT;
    const int64_t ranges = up(OUT, range),
                  chunks = EXPERTS ? all / CHUNK + EXPERTS : up(all, CHUNK);

    int64_t column = tile % ranges * range, chunk = tile / ranges % chunks,
            problem = tile / ranges / chunks;
    int64_t begin = 0, end = all;
    if (EXPERTS) {
        int64_t expert = 0;
        for (;; expert++) {
            if (expert == EXPERTS) return;
            begin = offsets[expert] * span, end = offsets[expert + 1] * span;
            if (chunk < up(end - begin, CHUNK)) break;
            chunk -= up(end - begin, CHUNK);
        }
        w += expert * EACH * K * N;
    }
    w += (BOTH ? problem / MID : problem) * K * N;
    begin += chunk * CHUNK;
    int64_t rows = min_of(CHUNK, end - begin), last = min_of(column + range, OUT);
    in += begin * in_row + problem * IN;
    out += begin * out_row + problem * OUT;

    // Rows at multiples of 4 KB would share one set of the first cache: those are copied side by
    // side.
    enum {
        SETS = 1024,
        ALIKE = (int64_t)EACH * (BOTH ? MID : 1) * IN % SETS == 0,
        STEPS = ALIKE ? 256 : 512
    };
    enum { COPY_ROW = STEPS + LANES };
    _Alignas(64) float panel[STEPS * PANEL], copy[ALIKE ? CHUNK * COPY_ROW : 1];
    for (int64_t s = 0; s < IN; s += STEPS) {
        int64_t steps = min_of(STEPS, IN - s), a_row = ALIKE ? COPY_ROW : in_row;
        const float *a = ALIKE ? copy : in + s;
        for (int64_t i = 0; ALIKE && i < rows; i++)
            __builtin_memcpy(copy + i * COPY_ROW, in + i * in_row + s,
                             sizeof(float) * (uint64_t)steps);
        for (int64_t j = column; j < last; j += PANEL) {
            int64_t columns = min_of(PANEL, last - j);
            if ($turned)
                pack_turned(panel, w + j * N + s, N, steps, columns);
            else
                pack_rows(panel, w + s * N + j, N, steps, columns);
            gemm_block(a, a_row, 1, panel, steps, rows, out + j, out_row, columns,
                       s ? GEMM_CONTINUE : GEMM_START);
        }
    }
}

#if $turned
void $entry(const float *g, const float *w,
#if $experts
            const int32_t *offsets,
#endif
            float *x, int64_t tile_begin, int64_t tile_end) {
    const float *in = g;
    float *out = x;
#else
void $entry(const float *x, const float *w,
#if $experts
            const int32_t *offsets,
#endif
            float *y, int64_t tile_begin, int64_t tile_end) {
    const float *in = x;
    float *out = y;
#endif
#if !$experts
    const int32_t *offsets = 0;
#endif
    for (int64_t tile = tile_begin; tile < tile_end; tile++) tile_$entry(in, w, offsets, out, tile);
}
