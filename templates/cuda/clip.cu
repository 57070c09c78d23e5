// SPDX-License-Identifier: Apache-2.0
// clip: from the partials of sumsq to the gradient's norm, its scale (at most `clip` if that is
// positive), and whether the update is skipped because the norm is not finite. One block.
KERNEL($threads) $entry(const float *partials, float *scalars) {
    __shared__ double sums[$threads];
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < $n; i += $threads) sum += partials[i];
    sums[threadIdx.x] = sum;
    for (int half = $threads / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x != 0) return;
    double norm = sqrt(sums[0]), limit = scalars[SCALAR_clip];
    bool finite = norm - norm == 0.0;
    scalars[SCALAR_grad_norm] = (float)norm;
    scalars[SCALAR_grad_scale] = finite && limit > 0.0 && norm > limit ? (float)(limit / norm)
                                                                       : 1.0f;
    scalars[SCALAR_skipped] = finite ? 0.0f : 1.0f;
}
