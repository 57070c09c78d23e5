// SPDX-License-Identifier: Apache-2.0
// clear: n numbers become zero. A block clears $chunk of them, whole vectors where they are whole.
KERNEL($threads) $entry(float *x) {
    int64_t at = (int64_t)blockIdx.x * $chunk, end = min_of(at + $chunk, $n);
    for (int64_t i = at + 4 * threadIdx.x; i < end; i += 4 * $threads) {
        if (i + 4 <= end)
            *(float4 *)(x + i) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        else
            for (int64_t k = i; k < end; k++) x[k] = 0.0f;
    }
}
