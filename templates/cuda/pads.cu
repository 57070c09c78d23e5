// SPDX-License-Identifier: Apache-2.0
// pads: what lies between an expert's last row and the next one's first becomes zero. A block is an expert.
//
//   offsets [2 experts + 1]: first rows, and where they end; x [rows, n]
KERNEL($threads) $entry(const int32_t *offsets, $x_type *x) {
    const int64_t first = offsets[$experts + 1 + blockIdx.x], end = offsets[blockIdx.x + 1];
    for (int64_t i = first * $n + threadIdx.x; i < end * $n; i += $threads) x[i] = $x_type{};
}
