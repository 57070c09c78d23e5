// SPDX-License-Identifier: Apache-2.0
// fold: the sum of $n numbers in double: threads over numbers in ascending order, then a tree over
// threads. One block.
KERNEL($threads) $entry(const float *x, float *sum) {
    __shared__ double sums[$threads];
    double own = 0.0;
    for (int64_t i = threadIdx.x; i < $n; i += $threads) own += x[i];
    sums[threadIdx.x] = own;
    for (int half = $threads / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sum[0] = (float)sums[0];
}
