// SPDX-License-Identifier: Apache-2.0
// The frame of a row program on a GPU. What fills it is written by compiler/codegen/row_emit.c.
//
// A warp works on $per_warp rows, $step at a time (one with its features on lanes, or a row per lane);
// values kept in memory are its own part of shared memory. Rows past `rows` do not exist: nothing of
// them is read or written. With partial records ($partial) a block is a tile of $tile rows: every warp
// makes records of its rows in shared memory, which are joined in the order of warps.
KERNEL($threads) $entry($parameters) {
    extern __shared__ __align__(16) unsigned char memory[];
    float *const scratch = (float *)memory + warp_id() * $scratch;
$memory
    const int64_t rows = $rows;
    const int64_t first = ((int64_t)blockIdx.x * ($threads / WARP) + warp_id()) * $per_warp;
    const int64_t last = min_of(first + $per_warp, rows);
#if !$partial
    if (first >= last) return;
#endif
$before
    {
$start
        for (int64_t row = first; row < last; row += $step) {
            __syncwarp(); // kept values of the row before are free
$row
        }
$finish
    }
}
