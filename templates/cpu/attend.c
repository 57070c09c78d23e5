// SPDX-License-Identifier: Apache-2.0
// Attention, forward: y = softmax(scale q k' over the visible keys) v, by blocks with a running
// maximum.
//
//   q [T, heads, qk], k [T, kv_heads, qk], v [T, kv_heads, v], segments [T]
//   -> y [T, heads, v], lse [T, heads]
//
// A tile is (sequence, key head, block of queries) for all heads that share the key head. Per block
// of keys: scores by the GEMM block, then per row maximum, exponentials and their sum, then y += p
// v, kept in y itself and rescaled where the maximum grew. Key blocks start at multiples of BLOCK
// of the sequence and ascend, so bits depend on nothing else. A query sees the keys of its segment,
// none after it if causal, the last `window` ones if there is a window. A sink is one more logit
// without a value.
typedef struct {
    float max[$chunk], sum[$chunk];
} State_$entry;

// Scores of one query become weights; its running maximum and sum move on, and y's row with them.
static void row_$entry(float *score, const int32_t *segments, int64_t query, int64_t key, int whole,
                       float *max, float *sum, float *y, int first) {
    enum { BLOCK = $chunk, SEQUENCE = $sequence, CAUSAL = $causal, WINDOW = $window, VALUE = $v };
    V top = v_splat(*max);
    for (int64_t j = 0; j < BLOCK; j += LANES) {
        V x = v_load(score + j) * v_splat($scale);
        if (!whole) {
            VI at = vi_splat((int32_t)(key + j)) + vi_iota();
            VI seen = at < vi_splat(SEQUENCE);
            int64_t left = max_of(min_of(SEQUENCE - key - j, LANES), 0);
            seen &= vi_load_part(segments + key + j, left) == vi_splat(segments[query]);
            if (CAUSAL) seen &= at <= vi_splat((int32_t)query);
            if (WINDOW) seen &= at > vi_splat((int32_t)query - WINDOW);
            x = v_select(seen, x, v_splat(-INFINITE));
        }
        top = v_max(x, top);
        v_store(score + j, x);
    }
    float grown = v_max_lane(top);
    V total = v_splat(0.0f), shift = v_splat(grown == -INFINITE ? 0.0f : grown);
    for (int64_t j = 0; j < BLOCK; j += LANES) {
        V p = v_exp(v_load(score + j) - shift);
        total += p;
        v_store(score + j, p);
    }
    float kept = f_exp(*max - shift[0]);
    if (grown != *max && !first) {
        for (int64_t d = 0; d < VALUE; d++) y[d] *= kept;
    }
    *sum = f_fma(*sum, kept, v_sum(total));
    *max = grown;
}

static void tile_$entry(const float *q, const float *k, const float *v, const int32_t *segments,
                        const float *sinks, float *y, float *lse, int64_t tile) {
    enum {
        BLOCK = $chunk,
        SEQUENCE = $sequence,
        HEADS = $heads,
        KEYS = $kv_heads,
        QK = $qk,
        VALUE = $v
    };
    enum {
        CAUSAL = $causal,
        WINDOW = $window,
        GROUP = HEADS / KEYS,
        BLOCKS = (SEQUENCE + BLOCK - 1) / BLOCK
    };
    // Later blocks see more keys if causal: largest first.
    int64_t block = BLOCKS - 1 - tile % BLOCKS, head = tile / BLOCKS % KEYS,
            sequence = tile / BLOCKS / KEYS;
    int64_t q0 = block * BLOCK, queries = min_of(BLOCK, SEQUENCE - q0), q1 = q0 + queries - 1;
    q += sequence * SEQUENCE * HEADS * QK + head * GROUP * QK;
    k += sequence * SEQUENCE * KEYS * QK + head * QK;
    v += sequence * SEQUENCE * KEYS * VALUE + head * VALUE;
    y += sequence * SEQUENCE * HEADS * VALUE + head * GROUP * VALUE;
    lse += sequence * SEQUENCE * HEADS + head * GROUP;
    segments += sequence * SEQUENCE;

    _Alignas(64) float turned[BLOCK * QK], values[BLOCK * (VALUE + PANEL)], score[BLOCK * BLOCK];
    State_$entry state[GROUP];
    for (int64_t h = 0; h < GROUP; h++) {
        for (int64_t i = 0; i < queries; i++) {
            state[h].max[i] = sinks ? sinks[head * GROUP + h] : -INFINITE;
            state[h].sum[i] = sinks ? 1.0f : 0.0f;
        }
    }
    int first = 1;
    int64_t lowest = WINDOW ? max_of(q0 - WINDOW + 1, 0) / BLOCK * BLOCK : 0,
            limit = CAUSAL ? q1 + 1 : SEQUENCE;
    for (int64_t k0 = lowest; k0 < limit; k0 += BLOCK) {
        int64_t keys = min_of(BLOCK, SEQUENCE - k0), k1 = k0 + keys - 1;
        if (segments[k1] < segments[q0] || segments[k0] > segments[q1]) continue;
        int whole = keys == BLOCK && segments[k0] == segments[q1] && segments[k1] == segments[q0] &&
                    (!CAUSAL || k1 <= q0) && (!WINDOW || k0 > q1 - WINDOW);
        for (int64_t j = 0; j < BLOCK; j += PANEL)
            pack_turned(turned + j * QK, k + (k0 + min_of(j, keys - 1)) * KEYS * QK, KEYS * QK, QK,
                        max_of(min_of(keys - j, PANEL), 0));
        for (int64_t j = 0; j < VALUE; j += PANEL)
            pack_rows(values + j * BLOCK, v + k0 * KEYS * VALUE + j, KEYS * VALUE, keys,
                      min_of(VALUE - j, PANEL));
        for (int64_t h = 0; h < GROUP; h++) {
            const float *from = q + (q0 * HEADS + h) * QK;
            float *to = y + (q0 * HEADS + h) * VALUE;
            for (int64_t j = 0; j < BLOCK; j += PANEL)
                gemm_block(from, HEADS * QK, 1, turned + j * QK, QK, queries, score + j, BLOCK,
                           PANEL, GEMM_START);
            for (int64_t i = 0; i < queries; i++)
                row_$entry(score + i * BLOCK, segments, q0 + i, k0, whole, &state[h].max[i],
                           &state[h].sum[i], to + i * HEADS * VALUE, first);
            for (int64_t j = 0; j < VALUE; j += PANEL)
                gemm_block(score, BLOCK, 1, values + j * BLOCK, keys, queries, to + j,
                           HEADS * VALUE, min_of(VALUE - j, PANEL),
                           first ? GEMM_START : GEMM_CONTINUE);
        }
        first = 0;
    }
    for (int64_t h = 0; h < GROUP; h++) {
        for (int64_t i = 0; i < queries; i++) {
            float sum = state[h].sum[i], *to = y + ((q0 + i) * HEADS + h) * VALUE;
            for (int64_t d = 0; d < VALUE; d++) to[d] /= sum;
            lse[(q0 + i) * HEADS + h] = state[h].max[i] + f_log(sum);
        }
    }
}

void $entry(const float *q, const float *k, const float *v, const int32_t *segments,
#if $sinks
            const float *sinks,
#endif
            float *y, float *lse, int64_t tile_begin, int64_t tile_end) {
#if !$sinks
    const float *sinks = 0;
#endif
    for (int64_t tile = tile_begin; tile < tile_end; tile++)
        tile_$entry(q, k, v, segments, sinks, y, lse, tile);
}
