// SPDX-License-Identifier: Apache-2.0
// segment_sum: y[s] = or += the sum of x's rows of segment s: a sequence's tokens, or an expert's
// rows by `offsets`. A block is a segment and $threads columns, a thread one column. Rows ascend in
// blocks of 64, each summed from zero, then added.
KERNEL($threads) $entry(const $x_type *x,
#if $experts
                        const int32_t *offsets,
#endif
                        float *y) {
    enum { N = $n, GROUPS = (N + $threads - 1) / $threads, BLOCK = 64 };
    int64_t segment = blockIdx.x / GROUPS, column = (int64_t)(blockIdx.x % GROUPS) * $threads + threadIdx.x;
    if (column >= N) return;
#if $experts
    int64_t begin = offsets[segment], end = offsets[segment + 1];
#else
    int64_t begin = segment * $sequence, end = begin + $sequence;
#endif
    float sum = $accumulate ? y[segment * N + column] : 0.0f;
    for (int64_t r = begin; r < end; r += BLOCK) {
        float part = 0.0f;
        for (int64_t i = r; i < min_of(r + BLOCK, end); i++) part += f_of(x[i * N + column]);
        sum += part;
    }
    y[segment * N + column] = sum;
}
