// SPDX-License-Identifier: Apache-2.0
// reduce: y[i] = what $ranks ranks have of number i, added in their order; += if $accumulate. parts is
// [$ranks, $n]. y in bf16: rounded, to nearest even.
void $entry(const float *parts, $y_type *y, int64_t tile_begin, int64_t tile_end) {
    int64_t end = min_of(tile_end * $chunk, $n);
    for (int64_t i = tile_begin * $chunk; i < end; i += LANES) {
        int64_t n = min_of(LANES, end - i);
        V sum = n == LANES ? v_load(parts + i) : v_load_part(parts + i, n);
        for (int64_t rank = 1; rank < $ranks; rank++) {
            const float *part = parts + rank * $n + i;
            sum += n == LANES ? v_load(part) : v_load_part(part, n);
        }
#if $accumulate
        sum = (n == LANES ? v_load(y + i) : v_load_part(y + i, n)) + sum;
#endif
        if (n == LANES) $store(y + i, sum);
        else $store_part(y + i, sum, n);
    }
}
