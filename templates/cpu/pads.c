// SPDX-License-Identifier: Apache-2.0
// pads: what lies between an expert's last row and the next one's first becomes zero. A tile is an expert.
//
//   offsets [2 experts + 1]: first rows, and where they end; x [rows, n]
void $entry(const int32_t *offsets, $x_type *x, int64_t tile_begin, int64_t tile_end) {
    enum { EXPERTS = $experts };
    const int64_t row_bytes = $n * (int64_t)sizeof *x;
    for (int64_t e = tile_begin; e < tile_end; e++) {
        int64_t first = offsets[EXPERTS + 1 + e], end = offsets[e + 1];
        __builtin_memset((char *)x + first * row_bytes, 0, (uint64_t)((end - first) * row_bytes));
    }
}
