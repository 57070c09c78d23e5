// SPDX-License-Identifier: Apache-2.0
// Attention, forward, in fp32 (shapes as in attend_mma.cu). A block is 32 queries of one head, eight
// threads a query; keys come 32 at a time, four to a thread. Of y a thread owns every eighth number.
KERNEL($threads) $entry(const $x_type *q, const $x_type *k, const $x_type *v, const int32_t *segments,
#if $sinks
                        const float *sinks,
#endif
                        $y_type *y, float *lse) {
    enum { S = SEQUENCE_$entry, QK = QK_$entry, V = VALUE_$entry, BLOCK = 32, OWN = (V + 7) / 8 };
    enum { BLOCKS = (S + BLOCK - 1) / BLOCK, QK_ROW = HEADS_$entry * QK, K_ROW = KEYS_$entry * QK, V_ROW = KEYS_$entry * V };
    extern __shared__ __align__(16) unsigned char memory[];
    float *queries = (float *)memory, *keys = queries + BLOCK * (QK + 1), *values = keys + BLOCK * (QK + 1);
    float *weights = values + BLOCK * (V + 1); // [query][key], rows of 33
    int q0 = (int)(blockIdx.x % BLOCKS) * BLOCK, head = blockIdx.x / BLOCKS % HEADS_$entry;
    int64_t t0 = (int64_t)(blockIdx.x / BLOCKS / HEADS_$entry) * S;
    q += t0 * QK_ROW + head * QK;
    k += t0 * K_ROW + head / GROUP_$entry * QK;
    v += t0 * V_ROW + head / GROUP_$entry * V;
    segments += t0;
    take_rows<BLOCK, QK, QK + 1, $threads>(queries, q, QK_ROW, q0, S);

    const int row = threadIdx.x / 8, part = threadIdx.x % 8;
    int low = 0, high = 0, begin, end, unused;
    if (q0 + row < S) see_$entry(segments, q0 + row, &low, &high);
    see_$entry(segments, q0, &begin, &unused);
    see_$entry(segments, q0 + BLOCK < S ? q0 + BLOCK - 1 : S - 1, &unused, &end);
#if $sinks
    float top = sinks[head], sum = part == 0 ? 1.0f : 0.0f;
#else
    float top = -INFINITE, sum = 0.0f;
#endif
    float out[OWN];
    for (int j = 0; j < OWN; j++) out[j] = 0.0f;
    for (int k0 = begin / BLOCK * BLOCK; k0 < end; k0 += BLOCK) {
        __syncthreads(); // all have read the keys before
        take_rows<BLOCK, QK, QK + 1, $threads>(keys, k, K_ROW, k0, S);
        take_rows<BLOCK, V, V + 1, $threads>(values, v, V_ROW, k0, S);
        __syncthreads();
        float score[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int d = 0; d < QK; d++) {
            float x = queries[row * (QK + 1) + d];
#pragma unroll
            for (int i = 0; i < 4; i++) score[i] = fmaf(x, keys[(part + 8 * i) * (QK + 1) + d], score[i]);
        }
        float best = top;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int key = k0 + part + 8 * i;
            score[i] = key >= low && key < high ? score[i] * $scale : -INFINITE;
            best = fmaxf(best, score[i]);
        }
        for (int i = 1; i < 8; i *= 2) best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, i));
        float base = best == -INFINITE ? 0.0f : best, kept = expf(top - base);
        top = best, sum *= kept;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float p = expf(score[i] - base);
            weights[row * 33 + part + 8 * i] = p;
            sum += p;
        }
        __syncwarp(); // a row's threads are of one warp
#pragma unroll 8
        for (int j = 0; j < OWN; j++) out[j] *= kept;
        for (int key = 0; key < BLOCK; key++) {
            float p = weights[row * 33 + key];
#pragma unroll 8
            for (int j = 0; j < OWN; j++)
                if (part + 8 * j < V) out[j] = fmaf(p, values[key * (V + 1) + part + 8 * j], out[j]);
        }
    }
    for (int i = 1; i < 8; i *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
    if (q0 + row >= S) return;
    int64_t at = (t0 + q0 + row) * HEADS_$entry + head;
#pragma unroll 8
    for (int j = 0; j < OWN; j++)
        if (part + 8 * j < V) put(y + at * V + part + 8 * j, out[j] / sum);
    if (part == 0) lse[at] = top + logf(sum);
}
