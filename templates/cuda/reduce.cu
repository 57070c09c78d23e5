// SPDX-License-Identifier: Apache-2.0
// reduce: y[i] = what $ranks ranks have of number i, added in their order; += if $accumulate. parts is
// [$ranks, $n]; a block takes $chunk numbers. y in bf16: rounded, to nearest even.
KERNEL($threads) $entry(const float *parts, $y_type *y) {
    int64_t at = (int64_t)blockIdx.x * $chunk, end = min_of(at + $chunk, $n);
    for (int64_t i = at + threadIdx.x; i < end; i += $threads) {
        float sum = parts[i];
        for (int rank = 1; rank < $ranks; rank++) sum += parts[rank * (int64_t)$n + i];
        put(y + i, $accumulate ? f_of(y[i]) + sum : sum);
    }
}
