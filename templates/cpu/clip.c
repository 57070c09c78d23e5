// SPDX-License-Identifier: Apache-2.0
// clip: from the partials of sumsq to the gradient's norm, its scale (at most `clip` if that is
// positive), and whether the update is skipped because the norm is not finite.
void $entry(const float *partials, float *scalars, int64_t tile_begin, int64_t tile_end) {
    if (tile_begin >= tile_end) return;
    double sum = 0.0;
    for (int64_t i = 0; i < $n; i++) sum += partials[i];
    double norm = __builtin_sqrt(sum), limit = scalars[SCALAR_clip];
    int finite = norm - norm == 0.0;
    scalars[SCALAR_grad_norm] = (float)norm;
    scalars[SCALAR_grad_scale] = finite && limit > 0.0 && norm > limit ? (float)(limit / norm)
                                                                       : 1.0f;
    scalars[SCALAR_skipped] = finite ? 0.0f : 1.0f;
}
