// SPDX-License-Identifier: Apache-2.0
// move: rows by a table; where it is negative, nothing, or zeros ($whole). templates/cpu/move.c says what the ways are; the numbers are the
// same, a sum's are added in one order.
//
// A row is units of 16 or 4 bytes ($unit_words) where it can be cut into those, else numbers. A block takes $chunk
// units of all rows that the table names, a thread one at a time, so that neighbours read and write side by side.
#if $unit_words == 4
typedef uint4 Unit;
#elif $unit_words == 1
typedef uint32_t Unit;
#else
typedef $type Unit;
#endif
enum { N = $n, K = $top_k, UNITS = $units };

// Row `row` of those on several ranks, $capacity on each.
DEVICE Unit *unit_apart(const int64_t *ranks, int64_t row, int64_t unit) {
    return (Unit *)(($type *)ranks[row / $capacity] + row % $capacity * N) + unit;
}

#if $way == 3
#if $unit_words
DEVICE void word_add(float *sum, uint32_t word, bool any, float) {
    sum[0] = any ? sum[0] + __uint_as_float(word) : __uint_as_float(word);
}
DEVICE void word_add(float *sum, uint32_t word, bool any, bf16) {
    sum[0] = any ? sum[0] + low_of(word) : low_of(word);
    sum[1] = any ? sum[1] + high_of(word) : high_of(word);
}
DEVICE uint32_t word_of(const float *sum, float) { return __float_as_uint(sum[0]); }
DEVICE uint32_t word_of(const float *sum, bf16) { return bf16_pair(sum[0], sum[1]); }
#endif

// sum [words][2]: of a unit.
DEVICE void unit_add(float *sum, Unit x, bool any) {
#if $unit_words == 4
    const uint32_t words[4] = { x.x, x.y, x.z, x.w };
    for (int w = 0; w < 4; w++) word_add(sum + 2 * w, words[w], any, $type());
#elif $unit_words == 1
    word_add(sum, x, any, $type());
#else
    sum[0] = any ? sum[0] + f_of(x) : f_of(x);
#endif
}

DEVICE void unit_put(Unit *to, const float *sum) {
#if $unit_words == 4
    *to = make_uint4(word_of(sum, $type()), word_of(sum + 2, $type()), word_of(sum + 4, $type()), word_of(sum + 6, $type()));
#elif $unit_words == 1
    *to = word_of(sum, $type());
#else
    put(to, sum[0]);
#endif
}
#endif

KERNEL($threads) $entry(const $x_type *x, const int32_t *table, $y_type *y) {
    const int64_t begin = (int64_t)blockIdx.x * $chunk, end = min_of(begin + $chunk, (int64_t)$slots * UNITS);
    for (int64_t at = begin + threadIdx.x; at < end; at += $threads) {
        const int64_t i = at / UNITS, unit = at % UNITS;
#if $way == 3
        float sum[8] = { 0.0f };
        bool any = false;
        for (int k = 0; k < K; k++) {
            const int32_t row = table[i * K + k];
            if (row < 0) continue;
            unit_add(sum, *unit_apart(x, row, unit), any);
            any = true;
        }
        if (any || $whole) unit_put((Unit *)y + at, sum);
#else
        const int32_t row = table[i];
#if $whole
        if (row < 0) ((Unit *)y)[at] = Unit{};
#endif
        if (row < 0) continue;
#if $way == 0
        ((Unit *)y)[at] = ((const Unit *)x)[row * (int64_t)UNITS + unit];
#elif $way == 1
        *unit_apart(y, row, unit) = ((const Unit *)x)[($each > 1 ? i : i / K) * UNITS + unit];
#else
        ((Unit *)y)[at] = *unit_apart(x, row, unit);
#endif
#endif
    }
}
