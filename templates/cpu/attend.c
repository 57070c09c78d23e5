// SPDX-License-Identifier: Apache-2.0
// Attention, forward: y = softmax(scale q k' over the visible keys) v, by blocks with a running
// maximum.
//
//   q [T, heads, qk], k [T, kv_heads, qk], v [T, kv_heads, v], segments [T]
//   -> y [T, heads, v], lse [T, heads]
//
// A tile is (sequence, key head, part): it packs the keys and values once for all heads of the
// group and takes every PARTS-th block of BLOCK queries. Per SPAN of keys: scores to a buffer; per
// row the maximum, powers of two with the scale folded in, their sum, the weights as words; then
// y += p v, y in scratch and rescaled only where the maximum grew. Spans start at multiples of SPAN
// of the sequence and ascend, and a row sees nothing of its block's other rows, so bits depend on
// nothing else. A query sees the keys of its document, none after it if causal, the last `window`
// ones if there is a window. A sink is one more logit without a value.
typedef struct {
    float top, sum; // top: the maximum so far, times log2 e
} State_$entry;

// One score block of a row: 16 scores to weights, which are returned.
INLINE V weigh_$entry(const float *score, float *weights, int64_t j, V factor, V top, int edge) {
    V x = v_load(score + j), p = exp2_$entry(v_fma(x, factor, -top));
    if (edge) p = v_select(x == v_splat(-INFINITE), v_splat(0.0f), p);
    put_words_$entry(weights, j, p);
    return p;
}

// Scores [0, width) of one query, of which it sees [low, high), become weights; its state moves on,
// and y's row with it.
static void row_$entry(float *score, float *weights, int64_t low, int64_t high, int64_t width,
                       State_$entry *state, float *y, int first) {
    enum { COLUMNS = ($v + PANEL - 1) / PANEL * PANEL };
    low = max_of(low, 0), high = min_of(high, width);
    int64_t begin = low / LANES * LANES, end = up(high, LANES) * LANES;
    if (low >= high) begin = end = width;
    for (int64_t j = 0; j < begin; j += LANES) put_words_$entry(weights, j, v_splat(0.0f));
    for (int64_t j = end; j < width; j += LANES) put_words_$entry(weights, j, v_splat(0.0f));
    if (begin == end) return;
    VI at = vi_splat((int32_t)begin) + vi_iota();
    V x = v_load(score + begin);
    v_store(score + begin, v_select(at >= vi_splat((int32_t)low), x, v_splat(-INFINITE)));
    at = vi_splat((int32_t)end - LANES) + vi_iota();
    x = v_load(score + end - LANES);
    v_store(score + end - LANES, v_select(at < vi_splat((int32_t)high), x, v_splat(-INFINITE)));

    V best = v_load(score + begin), best2 = best;
    for (int64_t j = begin + LANES; j + LANES < end; j += 2 * LANES) {
        best = v_max(v_load(score + j), best);
        best2 = v_max(v_load(score + j + LANES), best2);
    }
    best = v_max(v_load(score + end - LANES), v_max(best2, best));
    V factor = v_splat($scale * LOG2_E < 0.0f ? -($scale * LOG2_E) : $scale * LOG2_E);
    float grown = v_max_lane(best) * factor[0], kept = 1.0f;
    if (grown > state->top) {
        kept = exp2_$entry(v_splat(state->top - grown))[0];
        for (int64_t d = 0; !first && d < COLUMNS; d += LANES)
            v_store(y + d, v_load(y + d) * v_splat(kept));
        state->top = grown;
    }
    V top = v_splat(state->top == -INFINITE ? 0.0f : state->top);
    V total = weigh_$entry(score, weights, begin, factor, top, 1);
    for (int64_t j = begin + LANES; j < end - LANES; j += LANES)
        total += weigh_$entry(score, weights, j, factor, top, 0);
    if (end - begin > LANES) total += weigh_$entry(score, weights, end - LANES, factor, top, 1);
    state->sum = f_fma(state->sum, kept, v_sum(total));
}

static void tile_$entry(const $x_type *q, const $x_type *k, const $x_type *v,
                        const int32_t *segments, const float *sinks, $y_type *y, float *lse,
                        int64_t tile) {
    enum { SEQUENCE = $sequence, HEADS = $heads, KEYS = $kv_heads, QK = $qk, VALUE = $v };
    enum { STEP = STEP_$entry, BLOCK = 28, ROWS = 32, SPAN = 512, GROUP = HEADS / KEYS };
    enum { PARTS = $parts, BLOCKS = (SEQUENCE + BLOCK - 1) / BLOCK };
    enum { ALL = (SEQUENCE + PANEL - 1) / PANEL * PANEL };
    enum { QK_STEPS = (QK + STEP - 1) / STEP, QK_PITCH = (QK + PANEL - 1) / PANEL * PANEL / STEP };
    enum { COLUMNS = (VALUE + PANEL - 1) / PANEL * PANEL, VALUE_PITCH = COLUMNS / STEP };
    enum { WIDE = SPAN < ALL ? SPAN : ALL, SCORE_ROW = WIDE + LANES };
    static _Thread_local _Alignas(64) float turned[ALL * QK_STEPS], values[ALL / STEP * COLUMNS];
    static _Thread_local int32_t low[ALL], high[ALL];
    _Alignas(64) float queries[ROWS * QK_PITCH], weights[$pairs ? ROWS * SCORE_ROW / 2 : 1];
    _Alignas(64) float score[ROWS * SCORE_ROW], sums[ROWS * COLUMNS];
    _Alignas(64) float some[PANEL * (QK_PITCH > VALUE_PITCH ? QK_PITCH : VALUE_PITCH)];
    State_$entry state[BLOCK];

    int64_t part = tile % PARTS, head = tile / PARTS % KEYS, sequence = tile / PARTS / KEYS;
    q += sequence * SEQUENCE * HEADS * QK + head * GROUP * QK;
    k += sequence * SEQUENCE * KEYS * QK + head * QK;
    v += sequence * SEQUENCE * KEYS * VALUE + head * VALUE;
    y += sequence * SEQUENCE * HEADS * VALUE + head * GROUP * VALUE;
    lse += sequence * SEQUENCE * HEADS + head * GROUP;
    see_$entry(segments + sequence * SEQUENCE, low, high, ALL);
    for (int64_t i = 0; i < ALL; i += PANEL) {
        int64_t n = min_of(PANEL, SEQUENCE - i);
        take_rows_$entry(some, QK_PITCH, k + i * KEYS * QK, $x_narrow, KEYS * QK, QK, n, PANEL,
                         1.0f);
        pack_turned(turned + i * QK_STEPS, some, QK_PITCH, QK_STEPS, PANEL);
        take_rows_$entry(some, VALUE_PITCH, v + i * KEYS * VALUE, $x_narrow, KEYS * VALUE, VALUE, n,
                         PANEL, 1.0f);
        weave_$entry(values + i / STEP * PANEL, ALL / STEP * PANEL, some, VALUE_PITCH, PANEL,
                     COLUMNS);
    }
    for (int64_t block = part; block < BLOCKS; block += PARTS) {
        int64_t q0 = block * BLOCK, n = min_of(BLOCK, SEQUENCE - q0);
        int64_t begin = low[q0] / PANEL * PANEL, end = up(high[q0 + n - 1], PANEL) * PANEL;
        for (int64_t h = 0; h < GROUP; h++) {
            take_rows_$entry(queries, QK_PITCH, q + (q0 * HEADS + h) * QK, $x_narrow, HEADS * QK,
                             QK, n, n, $scale < 0.0f ? -1.0f : 1.0f);
            for (int64_t i = 0; i < n; i++) {
                state[i].top = sinks ? sinks[head * GROUP + h] * LOG2_E : -INFINITE;
                state[i].sum = sinks ? 1.0f : 0.0f;
            }
            int first = 1;
            for (int64_t k0 = begin, k1; k0 < end; k0 = k1, first = 0) {
                k1 = min_of(k0 / SPAN * SPAN + SPAN, end);
                for (int64_t j = k0; j < k1; j += PANEL)
                    product_$entry(queries, QK_PITCH, 1, turned + j * QK_STEPS, QK_STEPS, n,
                                   score + j - k0, SCORE_ROW, 0);
                float *words = $pairs ? weights : score;
                for (int64_t i = 0; i < n; i++)
                    row_$entry(score + i * SCORE_ROW, words + i * (SCORE_ROW / STEP),
                               low[q0 + i] - k0, high[q0 + i] - k0, k1 - k0, &state[i],
                               sums + i * COLUMNS, first);
                for (int64_t j = 0; j < COLUMNS; j += PANEL)
                    product_$entry(words, SCORE_ROW / STEP, 1,
                                   values + (j / PANEL * ALL + k0) / STEP * PANEL, (k1 - k0) / STEP,
                                   n, sums + j, COLUMNS, !first);
            }
            for (int64_t i = 0; i < n; i++) {
                int64_t row = (q0 + i) * HEADS + h;
                for (int64_t d = 0; d < VALUE; d += LANES)
                    put_number_$entry(y, $y_narrow, row * VALUE + d,
                                      v_load(sums + i * COLUMNS + d) / v_splat(state[i].sum),
                                      VALUE - d);
                lse[row] = f_fma(state[i].top, LN_2, f_log(state[i].sum));
            }
        }
    }
}

void $entry(const $x_type *q, const $x_type *k, const $x_type *v, const int32_t *segments,
#if $sinks
            const float *sinks,
#endif
            $y_type *y, float *lse, int64_t tile_begin, int64_t tile_end) {
#if !$sinks
    const float *sinks = 0;
#endif
    for (int64_t tile = tile_begin; tile < tile_end; tile++)
        tile_$entry(q, k, v, segments, sinks, y, lse, tile);
}
