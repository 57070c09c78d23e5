// SPDX-License-Identifier: Apache-2.0
// move: rows by a table; where it is negative, nothing, or zeros ($whole). x and y have $n numbers to a row; CAPACITY rows lie on
// each rank that is reached.
//
//   $way 0  y[i] = x[table[i]]                                                         here
//   $way 1  y[table[i, k]] = x[i], or of rows with $each parts one for each k, its part    y on several ranks
//   $way 2  y[i] = x[table[i]]                                                         x on several ranks
//   $way 3  y[i] = sum of x[table[i, k]], in the order of k, in fp32                   x on several ranks
//
// table [rows * top_k] of ways 0 and 2, [rows, top_k] of the others.
#define ROW_$entry(at, row) (($type *)(at)[(row) / $capacity] + (row) % $capacity * (int64_t)$n)

#if $way == 3
static void sum_$entry(const int64_t *x, const int32_t *rows, $type *to) {
    for (int64_t j = 0; j < $n; j += LANES) {
        int64_t n = min_of(LANES, $n - j);
        V sum = { 0 };
        int any = 0;
        for (int64_t k = 0; k < $top_k; k++) {
            if (rows[k] < 0) continue;
            const $type *from = ROW_$entry(x, (int64_t)rows[k]) + j;
            V v = n == LANES ? $load(from) : $load_part(from, n);
            sum = any ? sum + v : v;
            any = 1;
        }
        if (!any && !$whole) return;
        if (n == LANES) $store(to + j, sum);
        else $store_part(to + j, sum, n);
    }
}
#endif

void $entry(const $x_type *x, const int32_t *table, $y_type *y, int64_t tile_begin, int64_t tile_end) {
    enum { N = $n, K = $top_k, PARTS = $each };
    int64_t end = min_of(tile_end * $chunk, $rows);
#if $way == 3
    for (int64_t i = tile_begin * $chunk; i < end; i++) sum_$entry(x, table + i * K, y + i * N);
#else
    for (int64_t i = tile_begin * $chunk * K; i < end * K; i++) {
        int64_t row = table[i];
#if $whole
        for (int64_t j = 0; row < 0 && j < N; j++) y[i * N + j] = ($type){ 0 };
#endif
        if (row < 0) continue;
#if $way == 0
        const $type *from = x + row * N;
        $type *to = y + i * N;
#elif $way == 1
        const $type *from = x + (PARTS > 1 ? i : i / K) * N;
        $type *to = ROW_$entry(y, row);
#else
        const $type *from = ROW_$entry(x, row);
        $type *to = y + i * N;
#endif
        for (int64_t j = 0; j < N; j++) to[j] = from[j];
    }
#endif
}
