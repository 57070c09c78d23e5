// SPDX-License-Identifier: Apache-2.0
// Attention, backward, from y, its logsumexp and the gradient g of y:
//
//   p = exp(scale q k' - lse)      dp = g v'      ds = p (dp - delta)      delta[t] = sum of g y
//   dv = p' g     dq = scale ds k     dk = scale ds' q     dsinks = - sum of exp(sink - lse) delta
//
// Blocks of three kinds, in this order. Of keys: ROWS keys of one key head, over all queries of its
// group that see them, give dk and dv. Of queries: ROWS queries of one head, over the keys they see,
// give dq. Of sinks: one per head. Scores and dp are made twice, and every result is summed by one
// block in one order, so nothing is added atomically.

DEVICE float delta_$entry(const $g_type *g, const $x_type *y, int64_t row) {
    float sum = 0.0f;
    for (int d = 0; d < VALUE_$entry; d++)
        sum = fmaf(f_of(g[row * VALUE_$entry + d]), f_of(y[row * VALUE_$entry + d]), sum);
    return sum;
}

// A block of queries' bounds, lse (times log2 e) and delta to shared memory; what does not exist sees
// nothing.
template <int ROWS, int THREADS>
DEVICE void take_queries_$entry(int (*sees)[2], float (*numbers)[2], const int32_t *segments, const float *lse,
                                const $g_type *g, const $x_type *y, int64_t t0, int head, int q0) {
    for (int i = threadIdx.x; i < ROWS; i += THREADS) {
        int query = q0 + i;
        sees[i][0] = sees[i][1] = 0;
        numbers[i][0] = numbers[i][1] = 0.0f;
        if (query >= SEQUENCE_$entry) continue;
        int64_t row = (t0 + query) * HEADS_$entry + head;
        see_$entry(segments, query, &sees[i][0], &sees[i][1]);
        numbers[i][0] = lse[row] * LOG2_E;
        numbers[i][1] = delta_$entry(g, y, row);
    }
}

#if $sinks
DEVICE void sink_$entry(const float *sinks, const $x_type *y, const float *lse, const $g_type *g, float *dsinks,
                        int head, double *sums) {
    double sum = 0.0;
    for (int64_t t = threadIdx.x; t < $rows; t += $threads) {
        int64_t row = t * HEADS_$entry + head;
        sum -= (double)expf(sinks[head] - lse[row]) * delta_$entry(g, y, row);
    }
    sums[threadIdx.x] = sum;
    for (int half = $threads / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) dsinks[head] = (float)sums[0];
}
#endif
