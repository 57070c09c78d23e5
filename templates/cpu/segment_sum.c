// SPDX-License-Identifier: Apache-2.0
// segment_sum: y[s] = or += the sum of x's rows of segment s: a sequence's tokens, or an expert's
// rows by `offsets`. A tile is a segment. Rows ascend in blocks of 64, each summed from zero, then
// added.
INLINE void add_block_$entry(const $x_type *x, int64_t rows, float *to, int64_t columns) {
    V sum = v_splat(0.0f);
    for (int64_t r = 0; r < rows; r++, x += $n)
        sum += columns == LANES ? $load(x) : $load_part(x, columns);
    if (columns == LANES)
        v_store(to, v_load(to) + sum);
    else
        v_store_part(to, v_load_part(to, columns) + sum, columns);
}

void $entry(const $x_type *x,
#if $experts
            const int32_t *offsets,
#endif
            float *y, int64_t tile_begin, int64_t tile_end) {
    enum { N = $n, ADD = $accumulate, BLOCK = 64 };
    for (int64_t tile = tile_begin; tile < tile_end; tile++) {
#if $experts
        int64_t begin = offsets[tile], end = offsets[tile + 1];
#else
        int64_t begin = tile * $sequence, end = begin + $sequence;
#endif
        float *to = y + tile * N;
        for (int64_t i = 0; !ADD && i < N; i++) to[i] = 0.0f;
        for (int64_t i = 0; i < N; i += LANES) {
            for (int64_t r = begin; r < end; r += BLOCK)
                add_block_$entry(x + r * N + i, min_of(BLOCK, end - r), to + i,
                                 min_of(LANES, N - i));
        }
    }
}
