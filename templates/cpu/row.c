// SPDX-License-Identifier: Apache-2.0
// The frame of a row program. What fills it is written by compiler/codegen/row_emit.c.
//
// Rows are independent of each other but for partial records (one per $tile rows, rows in ascending
// order), so any partition into calls at multiples of $tile gives the same bits. Rows past `rows`
// do not exist: nothing of them is read or written.
static void $name($parameters
                  int64_t row_begin, int64_t row_end) {
$memory
    const int64_t rows = $rows;
$before
    for (int64_t first = row_begin; first < row_end; first += $tile) {
        const int64_t last = min_of(min_of(first + $tile, row_end), rows), tile = first / $tile;
$start
        for (int64_t row = first; row < last; row += $step) {
$row
        }
$finish
    }
}
