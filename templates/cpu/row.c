// SPDX-License-Identifier: Apache-2.0
// The frame of a row program. What fills it is written by compiler/codegen/row_emit.c.
//
// Rows are independent of each other but for partial records (one per tile, rows in ascending order), so any
// partition into tiles gives the same bits. Rows past `rows` do not exist: nothing of them is read or written.
void $entry($parameters, int64_t tile_begin, int64_t tile_end) {
$memory
    const int64_t rows = $rows;
$before
    for (int64_t tile = tile_begin; tile < tile_end; tile++) {
        const int64_t first = tile * $tile, last = min_of(first + $tile, rows);
$start
        for (int64_t row = first; row < last; row += $step) {
$row
        }
$finish
    }
}
