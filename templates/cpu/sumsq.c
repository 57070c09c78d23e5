// SPDX-License-Identifier: Apache-2.0
// sumsq: partials[tile] = the sum of squares of the tile's numbers, by lanes in double.
void $entry(const float *x, float *partials, int64_t tile_begin, int64_t tile_end) {
    for (int64_t tile = tile_begin; tile < tile_end; tile++) {
        VD low = {0}, high = {0};
        int64_t end = min_of((tile + 1) * $chunk, $n);
        for (int64_t i = tile * $chunk; i < end; i += LANES) {
            V v = end - i >= LANES ? v_load(x + i) : v_load_part(x + i, end - i);
            VD a = v_low(v), b = v_high(v);
            low += a * a;
            high += b * b;
        }
        low += high;
        double sum = 0.0;
        for (int i = 0; i < LANES / 2; i++) sum += low[i];
        partials[tile] = (float)sum;
    }
}
