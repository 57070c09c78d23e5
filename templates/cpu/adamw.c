// SPDX-License-Identifier: Apache-2.0
// adamw: one step of AdamW with decoupled decay over n numbers; nothing when the step is skipped.
//
//   g = grad scale;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g g
//   w = w - lr decay w;  w = w - lr (m / correction1) / (sqrt(v / correction2) + eps)
//
// correction i is 1 - beta_i^step. lr and decay are the run's times the parameter's, from the
// table, whose rows hold from their first number to the next row's.
static const struct {
    int64_t first;
    float lr, decay;
} table_$entry[$n_table + 1] = {
    $table{$n, 0.0f, 0.0f},
};

static void part_$entry(const float *grads, float *weights, float *moment1, float *moment2,
                        const float *scalars, int64_t begin, int64_t end, float lr, float decay) {
    const V scale = v_splat(scalars[SCALAR_grad_scale]), eps = v_splat(scalars[SCALAR_eps]);
    const V beta1 = v_splat(scalars[SCALAR_beta1]), beta2 = v_splat(scalars[SCALAR_beta2]);
    const V rest1 = v_splat(1.0f) - beta1, rest2 = v_splat(1.0f) - beta2;
    // Their reciprocals: divisions are what a step has least time for.
    const V fold1 = v_splat(1.0f / scalars[SCALAR_correction1]),
            fold2 = v_splat(1.0f / scalars[SCALAR_correction2]);
    const V rate = v_splat(-scalars[SCALAR_lr] * lr),
            shrink = rate * v_splat(scalars[SCALAR_decay] * decay);
    for (int64_t i = begin; i < end; i += LANES) {
        int64_t n = min_of(LANES, end - i);
        V g = (n == LANES ? v_load(grads + i) : v_load_part(grads + i, n)) * scale;
        V m = n == LANES ? v_load(moment1 + i) : v_load_part(moment1 + i, n);
        V v = n == LANES ? v_load(moment2 + i) : v_load_part(moment2 + i, n);
        V w = n == LANES ? v_load(weights + i) : v_load_part(weights + i, n);
        m = v_fma(beta1, m, rest1 * g);
        v = v_fma(beta2, v, rest2 * g * g);
        w = v_fma(shrink, w, w);
        w = v_fma(rate, m * fold1 / (v_sqrt(v * fold2) + eps), w);
        if (n == LANES) {
            v_store(moment1 + i, m), v_store(moment2 + i, v), v_store(weights + i, w);
        } else {
            v_store_part(moment1 + i, m, n), v_store_part(moment2 + i, v, n),
                v_store_part(weights + i, w, n);
        }
    }
}

void $entry(const float *grads, float *weights, float *moment1, float *moment2,
            const float *scalars, int64_t tile_begin, int64_t tile_end) {
    if (scalars[SCALAR_skipped] != 0.0f) return;
    int64_t at = tile_begin * $chunk, end = min_of(tile_end * $chunk, $n), row = 0;
    at = max_of(at, table_$entry[0].first);
    while (at < end) {
        while (table_$entry[row + 1].first <= at) row++;
        int64_t stop = min_of(end, table_$entry[row + 1].first);
        part_$entry(grads, weights, moment1, moment2, scalars, at, stop, table_$entry[row].lr,
                    table_$entry[row].decay);
        at = stop;
    }
}
