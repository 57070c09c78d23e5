// SPDX-License-Identifier: Apache-2.0
// clear: n numbers become zero.
void $entry(float *x, int64_t tile_begin, int64_t tile_end) {
    int64_t end = min_of(tile_end * $chunk, $n);
    for (int64_t i = tile_begin * $chunk; i < end; i++) x[i] = 0.0f;
}
