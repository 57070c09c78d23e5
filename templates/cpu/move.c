// SPDX-License-Identifier: Apache-2.0
// move: rows by a table; where it is negative, nothing. x and y have $n numbers to a row; CAPACITY rows lie on
// each rank that is reached.
//
//   $way 0  y[i] = x[table[i]]                                                         here
//   $way 1  y[table[i, k]] = x[i], or of rows with $each parts one for each k, its part    y on several ranks
//   $way 2  y[i] = x[table[i]]                                                         x on several ranks
//
// table [rows * top_k] of ways 0 and 2, [rows, top_k] of way 1.
#define ROW_$entry(at, row) (($type *)(at)[(row) / $capacity] + (row) % $capacity * (int64_t)$n)

void $entry(const $x_type *x, const int32_t *table, $y_type *y, int64_t tile_begin, int64_t tile_end) {
    enum { N = $n, K = $top_k, PARTS = $each };
    int64_t end = min_of(tile_end * $chunk, $rows);
    for (int64_t i = tile_begin * $chunk * K; i < end * K; i++) {
        int64_t row = table[i];
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
}
