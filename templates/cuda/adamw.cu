// SPDX-License-Identifier: Apache-2.0
// adamw: one step of AdamW with decoupled decay over n numbers; nothing when the step is skipped.
//
//   g = grad scale;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g g
//   w = w - lr decay w;  w = w - lr (m / correction1) / (sqrt(v / correction2) + eps)
//
// correction i is 1 - beta_i^step. lr and decay are the run's times the parameter's, from the
// table, whose rows hold from their first number to the next row's.
static __device__ const struct {
    int64_t first;
    float lr, decay;
} table_$entry[$n_table + 1] = {
    $table{$n, 0.0f, 0.0f},
};

KERNEL($threads) $entry(const float *grads, float *weights, float *moment1, float *moment2,
                        const float *scalars) {
    if (scalars[SCALAR_skipped] != 0.0f) return;
    const float scale = scalars[SCALAR_grad_scale], eps = scalars[SCALAR_eps];
    const float beta1 = scalars[SCALAR_beta1], beta2 = scalars[SCALAR_beta2];
    const float fold1 = 1.0f / scalars[SCALAR_correction1], fold2 = 1.0f / scalars[SCALAR_correction2];
    int64_t at = (int64_t)blockIdx.x * $chunk, end = min_of(at + $chunk, $n);
    at = max_of(at, table_$entry[0].first);
    int row = 0, past = $n_table; // table[row].first <= at < table[past].first
    while (row + 1 < past) {
        int middle = (row + past) / 2;
        *(table_$entry[middle].first <= at ? &row : &past) = middle;
    }
    for (int64_t i = at + threadIdx.x; i < end; i += $threads) {
        while (table_$entry[row + 1].first <= i) row++;
        float rate = -scalars[SCALAR_lr] * table_$entry[row].lr;
        float shrink = rate * (scalars[SCALAR_decay] * table_$entry[row].decay);
        float g = grads[i] * scale, w = weights[i];
        float m = fmaf(beta1, moment1[i], (1.0f - beta1) * g);
        float v = fmaf(beta2, moment2[i], (1.0f - beta2) * g * g);
        w = fmaf(shrink, w, w);
        w = fmaf(rate, m * fold1 / (sqrtf(v * fold2) + eps), w);
        moment1[i] = m, moment2[i] = v, weights[i] = w;
    }
}
