// SPDX-License-Identifier: Apache-2.0
// Attention, backward, from y, its logsumexp and the gradient g of y (shapes as in attend.c):
//
//   p = exp(scale q k' - lse)      dp = g v'      ds = p (dp - delta) scale     delta[t] = sum of g y
//   dv = p' g     dq = ds k     dk = ds' q     dsinks = - sum of exp(sink - lse) delta
//
// A tile is one (sequence, key head), which owns dk, dv and dq of its heads: blocks of keys ascend,
// under each the heads, under each the blocks of queries, all five products on the GEMM block. The
// scores never leave a BLOCK x BLOCK square. With sinks, one more tile per head sums over all
// tokens.
INLINE float dot_$entry(const float *a, const float *b) {
    enum { VALUE = $v };
    V sum = v_splat(0.0f);
    int64_t d = 0;
    for (; d + LANES <= VALUE; d += LANES) sum = v_fma(v_load(a + d), v_load(b + d), sum);
    if (d < VALUE) sum = v_fma(v_load_part(a + d, VALUE - d), v_load_part(b + d, VALUE - d), sum);
    return v_sum(sum);
}

// One query: scores become p, dp becomes ds.
static void row_$entry(float *score, float *dp, const int32_t *segments, int64_t query, int64_t key,
                       int whole, float lse, float delta) {
    enum { BLOCK = $chunk, SEQUENCE = $sequence, CAUSAL = $causal, WINDOW = $window };
    for (int64_t j = 0; j < BLOCK; j += LANES) {
        V p = v_exp(v_fma(v_load(score + j), v_splat($scale), v_splat(-lse)));
        V ds = p * (v_load(dp + j) - v_splat(delta)) * v_splat($scale);
        if (!whole) {
            VI at = vi_splat((int32_t)(key + j)) + vi_iota();
            VI seen = at < vi_splat(SEQUENCE);
            int64_t left = max_of(min_of(SEQUENCE - key - j, LANES), 0);
            seen &= vi_load_part(segments + key + j, left) == vi_splat(segments[query]);
            if (CAUSAL) seen &= at <= vi_splat((int32_t)query);
            if (WINDOW) seen &= at > vi_splat((int32_t)query - WINDOW);
            p = v_select(seen, p, v_splat(0.0f));
            ds = v_select(seen, ds, v_splat(0.0f));
        }
        v_store(score + j, p);
        v_store(dp + j, ds);
    }
}

static void clear_$entry(float *at, int64_t row, int64_t width) {
    for (int64_t i = 0; i < $sequence; i++)
        for (int64_t d = 0; d < width; d++) at[i * row + d] = 0.0f;
}

static void tile_$entry(const float *q, const float *k, const float *v, const int32_t *segments,
                        const float *y, const float *lse, const float *g, float *dq, float *dk,
                        float *dv, int64_t tile) {
    enum {
        BLOCK = $chunk,
        SEQUENCE = $sequence,
        HEADS = $heads,
        KEYS = $kv_heads,
        QK = $qk,
        VALUE = $v
    };
    enum { CAUSAL = $causal, WINDOW = $window, GROUP = HEADS / KEYS };
    int64_t head = tile % KEYS, t0 = tile / KEYS * SEQUENCE;
    q += t0 * HEADS * QK + head * GROUP * QK, dq += t0 * HEADS * QK + head * GROUP * QK;
    k += t0 * KEYS * QK + head * QK, dk += t0 * KEYS * QK + head * QK;
    v += t0 * KEYS * VALUE + head * VALUE, dv += t0 * KEYS * VALUE + head * VALUE;
    y += t0 * HEADS * VALUE + head * GROUP * VALUE, g += t0 * HEADS * VALUE + head * GROUP * VALUE;
    lse += t0 * HEADS + head * GROUP;
    segments += t0;

    _Alignas(64) float k_turned[BLOCK * QK], v_turned[BLOCK * VALUE];
    _Alignas(64) float k_rows[BLOCK * (QK + PANEL)], q_rows[BLOCK * PANEL], g_rows[BLOCK * PANEL];
    _Alignas(64) float score[BLOCK * BLOCK], dp[BLOCK * BLOCK];
    clear_$entry(dq, HEADS * QK, GROUP * QK);
    clear_$entry(dk, KEYS * QK, QK);
    clear_$entry(dv, KEYS * VALUE, VALUE);
    for (int64_t k0 = 0; k0 < SEQUENCE; k0 += BLOCK) {
        int64_t keys = min_of(BLOCK, SEQUENCE - k0), k1 = k0 + keys - 1;
        for (int64_t j = 0; j < BLOCK; j += PANEL) {
            int64_t columns = max_of(min_of(keys - j, PANEL), 0), at = k0 + min_of(j, keys - 1);
            pack_turned(k_turned + j * QK, k + at * KEYS * QK, KEYS * QK, QK, columns);
            pack_turned(v_turned + j * VALUE, v + at * KEYS * VALUE, KEYS * VALUE, VALUE, columns);
        }
        for (int64_t j = 0; j < QK; j += PANEL)
            pack_rows(k_rows + j * BLOCK, k + k0 * KEYS * QK + j, KEYS * QK, keys,
                      min_of(QK - j, PANEL));
        int64_t lowest = CAUSAL ? k0 : 0, limit = WINDOW ? min_of(SEQUENCE, k1 + WINDOW) : SEQUENCE;
        for (int64_t h = 0; h < GROUP; h++) {
            for (int64_t q0 = lowest; q0 < limit; q0 += BLOCK) {
                int64_t queries = min_of(BLOCK, SEQUENCE - q0), q1 = q0 + queries - 1;
                if (segments[k1] < segments[q0] || segments[k0] > segments[q1]) continue;
                int whole = keys == BLOCK && segments[k0] == segments[q1] &&
                            segments[k1] == segments[q0] && (!CAUSAL || k1 <= q0) &&
                            (!WINDOW || k0 > q1 - WINDOW);
                const float *qh = q + (q0 * HEADS + h) * QK, *gh = g + (q0 * HEADS + h) * VALUE;
                const float *yh = y + (q0 * HEADS + h) * VALUE;
                for (int64_t j = 0; j < BLOCK; j += PANEL) {
                    gemm_block(qh, HEADS * QK, 1, k_turned + j * QK, QK, queries, score + j, BLOCK,
                               PANEL, GEMM_START);
                    gemm_block(gh, HEADS * VALUE, 1, v_turned + j * VALUE, VALUE, queries, dp + j,
                               BLOCK, PANEL, GEMM_START);
                }
                for (int64_t i = 0; i < queries; i++)
                    row_$entry(score + i * BLOCK, dp + i * BLOCK, segments, q0 + i, k0, whole,
                               lse[(q0 + i) * HEADS + h],
                               dot_$entry(gh + i * HEADS * VALUE, yh + i * HEADS * VALUE));
                for (int64_t j = 0; j < VALUE; j += PANEL) {
                    int64_t columns = min_of(VALUE - j, PANEL);
                    pack_rows(g_rows, gh + j, HEADS * VALUE, queries, columns);
                    gemm_block(score, 1, BLOCK, g_rows, queries, keys, dv + k0 * KEYS * VALUE + j,
                               KEYS * VALUE, columns, GEMM_CONTINUE);
                }
                for (int64_t j = 0; j < QK; j += PANEL) {
                    int64_t columns = min_of(QK - j, PANEL);
                    pack_rows(q_rows, qh + j, HEADS * QK, queries, columns);
                    gemm_block(dp, 1, BLOCK, q_rows, queries, keys, dk + k0 * KEYS * QK + j,
                               KEYS * QK, columns, GEMM_CONTINUE);
                    gemm_block(dp, BLOCK, 1, k_rows + j * BLOCK, keys, queries,
                               dq + (q0 * HEADS + h) * QK + j, HEADS * QK, columns, GEMM_CONTINUE);
                }
            }
        }
    }
}

void $entry(const float *q, const float *k, const float *v, const int32_t *segments, const float *y,
            const float *lse, const float *g,
#if $sinks
            const float *sinks,
#endif
            float *dq, float *dk, float *dv,
#if $sinks
            float *dsinks,
#endif
            int64_t tile_begin, int64_t tile_end) {
    const int64_t units = $rows / $sequence * $kv_heads;
    for (int64_t tile = tile_begin; tile < min_of(tile_end, units); tile++)
        tile_$entry(q, k, v, segments, y, lse, g, dq, dk, dv, tile);
#if $sinks
    for (int64_t tile = max_of(tile_begin, units); tile < tile_end; tile++) {
        int64_t head = tile - units;
        double sum = 0.0;
        for (int64_t t = 0; t < $rows; t++) {
            int64_t at = t * $heads + head;
            sum -= (double)f_exp(sinks[head] - lse[at]) * dot_$entry(g + at * $v, y + at * $v);
        }
        dsinks[head] = (float)sum;
    }
#endif
}
