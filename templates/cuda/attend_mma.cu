// SPDX-License-Identifier: Apache-2.0
// Attention, forward, in bf16: y = softmax(scale q k' over the visible keys) v with a running maximum.
//
//   q [T, heads, qk], k [T, kv_heads, qk], v [T, kv_heads, v], segments [T]
//   -> y [T, heads, v], lse [T, heads]
//
// A block is 64 queries of one head, a warp 16 of them; keys come 64 at a time. Scores stay in the
// warp's accumulators; as weights they are already what the second product reads on its left. A sink
// is one more logit without a value.
KERNEL($threads) $entry(const $x_type *q, const $x_type *k, const $x_type *v, const int32_t *segments,
#if $sinks
                        const float *sinks,
#endif
                        $y_type *y, float *lse) {
    enum { S = SEQUENCE_$entry, QK = QK_$entry, V = VALUE_$entry, BLOCK = 64 };
    enum { QKP = (QK + 15) / 16 * 16, VP = (V + 15) / 16 * 16, QK_PITCH = QKP + 8, V_PITCH = VP + 8 };
    enum { BLOCKS = (S + BLOCK - 1) / BLOCK, QK_ROW = HEADS_$entry * QK, K_ROW = KEYS_$entry * QK, V_ROW = KEYS_$entry * V };
    extern __shared__ __align__(16) unsigned char memory[];
    bf16 *queries = (bf16 *)memory, *keys = queries + BLOCK * QK_PITCH, *values = keys + BLOCK * QK_PITCH;
    int q0 = (int)(blockIdx.x % BLOCKS) * BLOCK, head = blockIdx.x / BLOCKS % HEADS_$entry;
    int64_t t0 = (int64_t)(blockIdx.x / BLOCKS / HEADS_$entry) * S;
    q += t0 * QK_ROW + head * QK;
    k += t0 * K_ROW + head / GROUP_$entry * QK;
    v += t0 * V_ROW + head / GROUP_$entry * V;
    segments += t0;
    take_rows<BLOCK, QK, QKP, QK_PITCH, $threads>(queries, q, QK_ROW, q0, S);

    const int lane = lane_id(), group = lane / 4, quad = lane % 4, row0 = warp_id() * 16;
    const float factor = $scale * LOG2_E;
    int low[2], high[2], begin, end, unused;
    float top[2], sum[2], out[VP / 8][4];
    for (int i = 0; i < 2; i++) {
        int query = q0 + row0 + group + 8 * i;
        low[i] = high[i] = 0;
        if (query < S) see_$entry(segments, query, &low[i], &high[i]);
#if $sinks
        top[i] = sinks[head] * LOG2_E, sum[i] = quad == 0 ? 1.0f : 0.0f;
#else
        top[i] = -INFINITE, sum[i] = 0.0f;
#endif
    }
    for (int j = 0; j < VP / 8; j++)
        for (int i = 0; i < 4; i++) out[j][i] = 0.0f;
    see_$entry(segments, q0, &begin, &unused);
    see_$entry(segments, q0 + BLOCK < S ? q0 + BLOCK - 1 : S - 1, &unused, &end);

    for (int k0 = begin / BLOCK * BLOCK; k0 < end; k0 += BLOCK) {
        __syncthreads(); // all have read the keys before
        take_rows<BLOCK, QK, QKP, QK_PITCH, $threads>(keys, k, K_ROW, k0, S);
        copy_commit();
        take_rows<BLOCK, V, VP, V_PITCH, $threads>(values, v, V_ROW, k0, S);
        copy_commit();
        copy_wait<1>(); // queries and keys
        __syncthreads();
        float score[8][4];
#pragma unroll
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < 4; i++) score[j][i] = 0.0f;
#pragma unroll 4
        for (int d = 0; d < QKP; d += 16) {
            uint32_t a[4], b[4];
            load_matrices(a, queries + (row0 + (lane & 15)) * QK_PITCH + d + (lane >> 4) * 8);
#pragma unroll
            for (int j = 0; j < 8; j += 2) {
                load_matrices(b, keys + (j * 8 + (lane & 7) + (lane >> 4) * 8) * QK_PITCH + d + (lane >> 3 & 1) * 8);
                mma_bf16(score[j], a, b);
                mma_bf16(score[j + 1], a, b + 2);
            }
        }
        // Scores, hidden ones at minus infinity, to weights against the maximum so far.
        float kept[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float best = top[i];
#pragma unroll
            for (int j = 0; j < 8; j++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    int key = k0 + j * 8 + quad * 2 + c;
                    float x = key >= low[i] && key < high[i] ? score[j][2 * i + c] * factor : -INFINITE;
                    score[j][2 * i + c] = x;
                    best = fmaxf(best, x);
                }
            best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 1));
            best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 2));
            float base = best == -INFINITE ? 0.0f : best;
            kept[i] = exp2f(top[i] - base);
            top[i] = best, sum[i] *= kept[i];
#pragma unroll
            for (int j = 0; j < 8; j++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float p = exp2f(score[j][2 * i + c] - base);
                    score[j][2 * i + c] = p;
                    sum[i] += p;
                }
        }
#pragma unroll
        for (int j = 0; j < VP / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) out[j][i] *= kept[i / 2];
        copy_wait<0>(); // values
        __syncthreads();
#pragma unroll
        for (int step = 0; step < 4; step++) {
            uint32_t a[4] = {bf16_pair(score[2 * step][0], score[2 * step][1]),
                             bf16_pair(score[2 * step][2], score[2 * step][3]),
                             bf16_pair(score[2 * step + 1][0], score[2 * step + 1][1]),
                             bf16_pair(score[2 * step + 1][2], score[2 * step + 1][3])};
#pragma unroll
            for (int j = 0; j < VP / 8; j += 2) {
                uint32_t b[4];
                load_matrices_turned(b, values + (step * 16 + (lane & 15)) * V_PITCH + j * 8 + (lane >> 4) * 8);
                mma_bf16(out[j], a, b);
                mma_bf16(out[j + 1], a, b + 2);
            }
        }
    }
    copy_wait<0>(); // of a block whose queries see nothing
#pragma unroll
    for (int i = 0; i < 2; i++) {
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 1);
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 2);
        int query = q0 + row0 + group + 8 * i;
        if (query >= S) continue;
        int64_t row = (t0 + query) * HEADS_$entry + head;
        float share = 1.0f / sum[i];
#pragma unroll
        for (int j = 0; j < VP / 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                int d = j * 8 + quad * 2 + c;
                if (d < V) put(y + row * V + d, out[j][2 * i + c] * share);
            }
        if (quad == 0) lse[row] = top[i] * LN_2 + logf(sum[i]);
    }
}
