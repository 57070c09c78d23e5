// SPDX-License-Identifier: Apache-2.0
// Attention, backward, from y, its logsumexp and the gradient g of y (shapes as in attend.c):
//
//   p = exp(scale q k' - lse)      dp = g v'      ds = p (dp - delta)      delta[t] = sum of g y
//   dv = p' g     dq = scale ds k     dk = scale ds' q     dsinks = - sum of exp(sink - lse) delta
//
// Per head, blocks of QUERIES ascend, under each the blocks of BLOCK keys. Scores and dp are made
// turned, 32 queries to a panel, so lse and delta are lanes; p' and ds' become words key by key,
// and ds once more with two keys to a word, which is how the last product reads it. Every block's
// sum over its queries (keys) starts from zero and is added to what the blocks before gave.
//
// A tile is one (sequence, key head), which owns dk, dv and dq of its heads. If those are few, its
// work is cut in PARTS tiles that own every PARTS-th block of keys (dk, dv) and as many that own
// every PARTS-th block of queries (dq): scores and dp are then made twice, with the same bits. With
// sinks, one more tile per head sums over all tokens.
enum { QUERIES_$entry = 128, BLOCK_$entry = 64 };

INLINE float dot_$entry(const $g_type *g, const $x_type *y) {
    enum { VALUE = $v };
    V sum = v_splat(0.0f);
    for (int64_t d = 0; d < VALUE; d += LANES)
        sum = v_fma(number_$entry(g, $g_narrow, d, VALUE - d),
                    number_$entry(y, $x_narrow, d, VALUE - d), sum);
    return v_sum(sum);
}

// What a block of queries brings, and where its products go.
typedef struct {
    int64_t first; // query number
    int32_t low[QUERIES_$entry], high[QUERIES_$entry];
    _Alignas(64) float lse[QUERIES_$entry], delta[QUERIES_$entry]; // lse times log2 e
} Queries_$entry;

// Scores and dp of BLOCK keys from `key` and one panel of queries become words of p' and ds'.
INLINE void weights_$entry(const float *score, const float *dp, const Queries_$entry *b,
                           int64_t panel, int64_t key, const int whole, float *p_words,
                           float *ds_words, float *ds_pairs) {
    enum { BLOCK = BLOCK_$entry, ROW = QUERIES_$entry / STEP_$entry + LANES };
    for (int64_t j = 0; j < PANEL; j += LANES) {
        int64_t at = panel * PANEL + j;
        V lse = v_load(b->lse + at), delta = v_load(b->delta + at);
        VI low = vi_load(b->low + at), high = vi_load(b->high + at);
        for (int64_t i = 0; i < BLOCK; i += 2) {
            V ds[2];
            UNROLL
            for (int two = 0; two < 2; two++) {
                V x = v_load(score + (i + two) * PANEL + j);
                V p = exp2_$entry(v_fma(x, v_splat($scale * LOG2_E), -lse));
                ds[two] = p * (v_load(dp + (i + two) * PANEL + j) - delta);
                if (!whole) {
                    VI number = vi_splat((int32_t)(key + i + two));
                    VI seen = (number >= low) & (number < high);
                    p = v_select(seen, p, v_splat(0.0f));
                    ds[two] = v_select(seen, ds[two], v_splat(0.0f));
                }
                put_words_$entry(p_words + (i + two) * ROW, at, p);
            }
#if $pairs
            VB a = vb_of(ds[0]), c = vb_of(ds[1]);
            __builtin_memcpy((bf16 *)(ds_words + i * ROW) + at, &a, sizeof a);
            __builtin_memcpy((bf16 *)(ds_words + (i + 1) * ROW) + at, &c, sizeof c);
            vi_store((int32_t *)ds_pairs + i / 2 * QUERIES_$entry + at, pair_words_$entry(a, c));
#else
            v_store(ds_words + i * ROW + at, ds[0]);
            v_store(ds_words + (i + 1) * ROW + at, ds[1]);
#endif
        }
    }
}

static void tile_$entry(const $x_type *q, const $x_type *k, const $x_type *v,
                        const int32_t *segments, const $x_type *y, const float *lse,
                        const $g_type *g, $y_type *dq, $y_type *dk, $y_type *dv, int64_t tile) {
    enum { SEQUENCE = $sequence, HEADS = $heads, KEYS = $kv_heads, QK = $qk, VALUE = $v };
    enum { STEP = STEP_$entry, QUERIES = QUERIES_$entry, BLOCK = BLOCK_$entry };
    enum { GROUP = HEADS / KEYS, PARTS = $parts, PANELS = QUERIES / PANEL };
    enum { ALL = (SEQUENCE + BLOCK - 1) / BLOCK * BLOCK };
    enum { ALL_QUERIES = (SEQUENCE + QUERIES - 1) / QUERIES * QUERIES };
    enum { QK_STEPS = (QK + STEP - 1) / STEP, QK_COLUMNS = (QK + PANEL - 1) / PANEL * PANEL };
    enum { V_STEPS = (VALUE + STEP - 1) / STEP, V_COLUMNS = (VALUE + PANEL - 1) / PANEL * PANEL };
    enum { QK_PITCH = QK_COLUMNS / STEP, V_PITCH = V_COLUMNS / STEP };
    enum { WIDE = QK_PITCH > V_PITCH ? QK_PITCH : V_PITCH, ROW = QUERIES / STEP + LANES };
    static _Thread_local _Alignas(64) float k_rows[ALL * QK_PITCH], v_rows[ALL * V_PITCH];
    static _Thread_local _Alignas(64) float k_woven[ALL * QK_PITCH];
    static _Thread_local _Alignas(64) float dk_sum[ALL * QK_COLUMNS], dv_sum[ALL * V_COLUMNS];
    static _Thread_local int32_t low[ALL_QUERIES], high[ALL_QUERIES];
    _Alignas(64) float q_turned[QUERIES * QK_STEPS], g_turned[QUERIES * V_STEPS];
    _Alignas(64) float q_woven[QUERIES * QK_PITCH], g_woven[QUERIES * V_PITCH];
    _Alignas(64) float some[QUERIES * WIDE], score[BLOCK * PANEL], dp[BLOCK * PANEL];
    _Alignas(64) float p_words[BLOCK * ROW], ds_words[BLOCK * ROW + LANES];
    _Alignas(64) float ds_pairs[$pairs ? BLOCK / 2 * QUERIES + LANES : 1];
    _Alignas(64) float dq_sum[QUERIES * QK_COLUMNS];
    Queries_$entry b;

    // Of a tile: which blocks of queries, which blocks of keys, from `of` by `step`.
    int64_t part = tile % (PARTS > 1 ? 2 * PARTS : 1), unit = tile / (PARTS > 1 ? 2 * PARTS : 1);
    int makes_keys = PARTS == 1 || part < PARTS, makes_queries = PARTS == 1 || part >= PARTS;
    int64_t head = unit % KEYS, t0 = unit / KEYS * SEQUENCE;
    q += t0 * HEADS * QK + head * GROUP * QK, dq += t0 * HEADS * QK + head * GROUP * QK;
    k += t0 * KEYS * QK + head * QK, dk += t0 * KEYS * QK + head * QK;
    v += t0 * KEYS * VALUE + head * VALUE, dv += t0 * KEYS * VALUE + head * VALUE;
    y += t0 * HEADS * VALUE + head * GROUP * VALUE;
    g += t0 * HEADS * VALUE + head * GROUP * VALUE;
    lse += t0 * HEADS + head * GROUP;

    see_$entry(segments + t0, low, high, ALL_QUERIES);
    take_rows_$entry(k_rows, QK_PITCH, k, $x_narrow, KEYS * QK, QK, SEQUENCE, ALL, 1.0f);
    take_rows_$entry(v_rows, V_PITCH, v, $x_narrow, KEYS * VALUE, VALUE, SEQUENCE, ALL, 1.0f);
    weave_$entry(k_woven, ALL / STEP * PANEL, k_rows, QK_PITCH, ALL, QK_COLUMNS);
    __builtin_memset(dk_sum, 0, sizeof dk_sum);
    __builtin_memset(dv_sum, 0, sizeof dv_sum);

    for (int64_t h = 0; h < GROUP; h++) {
        for (int64_t q0 = 0; q0 < SEQUENCE; q0 += QUERIES) {
            if (!makes_keys && q0 / QUERIES % PARTS != part - PARTS) continue;
            int64_t n = min_of(QUERIES, SEQUENCE - q0), row = q0 * HEADS + h;
            take_rows_$entry(some, QK_PITCH, q + row * QK, $x_narrow, HEADS * QK, QK, n, QUERIES,
                             1.0f);
            for (int64_t j = 0; j < QUERIES; j += PANEL)
                pack_turned(q_turned + j * QK_STEPS, some + j * QK_PITCH, QK_PITCH, QK_STEPS,
                            PANEL);
            weave_$entry(q_woven, QUERIES / STEP * PANEL, some, QK_PITCH, QUERIES, QK_COLUMNS);
            take_rows_$entry(some, V_PITCH, g + row * VALUE, $g_narrow, HEADS * VALUE, VALUE, n,
                             QUERIES, 1.0f);
            for (int64_t j = 0; j < QUERIES; j += PANEL)
                pack_turned(g_turned + j * V_STEPS, some + j * V_PITCH, V_PITCH, V_STEPS, PANEL);
            weave_$entry(g_woven, QUERIES / STEP * PANEL, some, V_PITCH, QUERIES, V_COLUMNS);
            for (int64_t i = 0; i < QUERIES; i++) {
                int64_t at = row + i * HEADS;
                b.low[i] = low[q0 + i], b.high[i] = high[q0 + i];
                b.lse[i] = i < n ? lse[at] * LOG2_E : 0.0f;
                b.delta[i] = i < n ? dot_$entry(g + at * VALUE, y + at * VALUE) : 0.0f;
            }
            __builtin_memset(dq_sum, 0, sizeof dq_sum);

            for (int64_t k0 = low[q0] / BLOCK * BLOCK; k0 < high[q0 + n - 1]; k0 += BLOCK) {
                if (!makes_queries && k0 / BLOCK % PARTS != part) continue;
                int64_t begin = PANELS, end = 0; // panels of queries that see some of these keys
                for (int64_t panel = 0; panel * PANEL < n; panel++) {
                    int64_t first = panel * PANEL, last = min_of(first + PANEL, n) - 1;
                    if (b.high[last] <= k0 || b.low[first] >= k0 + BLOCK) continue;
                    begin = min_of(begin, panel), end = panel + 1;
                    int whole = b.low[first + PANEL - 1] <= k0 && b.high[first] >= k0 + BLOCK;
                    product_$entry(k_rows + k0 * QK_PITCH, QK_PITCH, 1,
                                   q_turned + first * QK_STEPS, QK_STEPS, BLOCK, score, PANEL, 0);
                    product_$entry(v_rows + k0 * V_PITCH, V_PITCH, 1, g_turned + first * V_STEPS,
                                   V_STEPS, BLOCK, dp, PANEL, 0);
                    if (whole)
                        weights_$entry(score, dp, &b, panel, k0, 1, p_words, ds_words, ds_pairs);
                    else
                        weights_$entry(score, dp, &b, panel, k0, 0, p_words, ds_words, ds_pairs);
                }
                if (begin >= end) continue;
                int64_t first = begin * PANEL, steps = (end - begin) * PANEL / STEP;
                for (int64_t j = 0; makes_keys && j < V_COLUMNS; j += PANEL)
                    product_$entry(p_words + first / STEP, ROW, 1,
                                   g_woven + (j * QUERIES + first * PANEL) / STEP, steps, BLOCK,
                                   dv_sum + k0 * V_COLUMNS + j, V_COLUMNS, 1);
                for (int64_t j = 0; makes_keys && j < QK_COLUMNS; j += PANEL)
                    product_$entry(ds_words + first / STEP, ROW, 1,
                                   q_woven + (j * QUERIES + first * PANEL) / STEP, steps, BLOCK,
                                   dk_sum + k0 * QK_COLUMNS + j, QK_COLUMNS, 1);
                const float *ds = $pairs ? ds_pairs : ds_words;
                for (int64_t j = 0; makes_queries && j < QK_COLUMNS; j += PANEL)
                    product_$entry(ds + first, 1, $pairs ? QUERIES : ROW,
                                   k_woven + (j * ALL + k0 * PANEL) / STEP, BLOCK / STEP,
                                   (end - begin) * PANEL, dq_sum + first * QK_COLUMNS + j,
                                   QK_COLUMNS, 1);
            }
            for (int64_t i = 0; makes_queries && i < n; i++)
                for (int64_t d = 0; d < QK; d += LANES)
                    put_number_$entry(dq, $y_narrow, (row + i * HEADS) * QK + d,
                                      v_load(dq_sum + i * QK_COLUMNS + d) * v_splat($scale),
                                      QK - d);
        }
    }
    for (int64_t i = 0; makes_keys && i < SEQUENCE; i++) {
        if (!makes_queries && i / BLOCK % PARTS != part) continue;
        for (int64_t d = 0; d < QK; d += LANES)
            put_number_$entry(dk, $y_narrow, i * KEYS * QK + d,
                              v_load(dk_sum + i * QK_COLUMNS + d) * v_splat($scale), QK - d);
        for (int64_t d = 0; d < VALUE; d += LANES)
            put_number_$entry(dv, $y_narrow, i * KEYS * VALUE + d,
                              v_load(dv_sum + i * V_COLUMNS + d), VALUE - d);
    }
}

void $entry(const $x_type *q, const $x_type *k, const $x_type *v, const int32_t *segments,
            const $x_type *y, const float *lse, const $g_type *g,
#if $sinks
            const float *sinks,
#endif
            $y_type *dq, $y_type *dk, $y_type *dv,
#if $sinks
            float *dsinks,
#endif
            int64_t tile_begin, int64_t tile_end) {
    const int64_t units = $rows / $sequence * $kv_heads * ($parts > 1 ? 2 * $parts : 1);
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
