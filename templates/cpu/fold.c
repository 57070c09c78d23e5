// SPDX-License-Identifier: Apache-2.0
// fold: the sum of $n numbers, in ascending order and in double.
void $entry(const float *x, float *sum, int64_t tile_begin, int64_t tile_end) {
    if (tile_begin >= tile_end) return;
    double all = 0.0;
    for (int64_t i = 0; i < $n; i++) all += x[i];
    sum[0] = (float)all;
}
