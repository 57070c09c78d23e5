// SPDX-License-Identifier: Apache-2.0
// sumsq: partials[block] = the sum of squares of the block's $chunk numbers, in double: threads over
// numbers in ascending order, then a tree over threads.
KERNEL($threads) $entry(const float *x, float *partials) {
    __shared__ double sums[$threads];
    int64_t at = (int64_t)blockIdx.x * $chunk, end = min_of(at + $chunk, $n);
    double sum = 0.0;
    for (int64_t i = at + threadIdx.x; i < end; i += $threads) sum += (double)x[i] * x[i];
    sums[threadIdx.x] = sum;
    for (int half = $threads / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) partials[blockIdx.x] = (float)sums[0];
}
