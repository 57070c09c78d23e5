// SPDX-License-Identifier: Apache-2.0
// route: from the chosen experts of every token to the rows of every expert, by a stable counting
// sort.
//
//   ids [rows, top_k] -> offsets [experts + 1], row_of_slot [rows, top_k] (-1: no row), slot_of_row
//
// Rows are expert-major, then by token, then by choice. Ids outside 0..experts-1 take no row; rows
// past offsets[experts] of slot_of_row are left alone. First rows are multiples of $align; if that is not 1,
// offsets [experts + 1 + e] is where expert e's rows end, and from there to its next multiple slot_of_row is -1.
// A block owns an expert, finds its first row by counting smaller ids, and hands out rows in the order of slots;
// block 0 also marks what takes none.
KERNEL($threads) $entry(const int32_t *ids, int32_t *row_of_slot, int32_t *slot_of_row, int32_t *offsets) {
    __shared__ int counts[$threads / WARP];
    const int32_t slots = $rows * $top_k, expert = (int32_t)blockIdx.x;
#if $align > 1
    __shared__ int rows[$experts]; // of every expert
    for (int32_t e = threadIdx.x; e < $experts; e += $threads) rows[e] = 0;
    __syncthreads();
    for (int32_t slot = threadIdx.x; slot < slots; slot += $threads)
        if (ids[slot] >= 0 && ids[slot] < expert) atomicAdd(&rows[ids[slot]], 1);
    __syncthreads();
    int next = 0;
    for (int32_t e = 0; e < expert; e++) next += (int)up(rows[e], $align) * $align;
#else
    int smaller = 0;
    for (int32_t slot = threadIdx.x; slot < slots; slot += $threads)
        smaller += ids[slot] >= 0 && ids[slot] < expert;
    for (int i = 16; i; i >>= 1) smaller += __shfl_xor_sync(0xffffffffu, smaller, i);
    if (lane_id() == 0) counts[warp_id()] = smaller;
    __syncthreads();
    int next = 0;
    for (int w = 0; w < $threads / WARP; w++) next += counts[w];
    __syncthreads();
#endif
    if (threadIdx.x == 0) offsets[expert] = next;
    for (int32_t at = 0; at < slots; at += $threads) {
        int32_t slot = at + (int32_t)threadIdx.x, id = slot < slots ? ids[slot] : -1;
        int found, rank = block_rank(id == expert, $threads / WARP, counts, &found);
        if (id == expert) {
            slot_of_row[next + rank] = slot;
            row_of_slot[slot] = next + rank;
        }
        if (expert == 0 && slot < slots && (id < 0 || id >= $experts)) row_of_slot[slot] = -1;
        next += found;
    }
#if $align > 1
    const int end = (int)up(next, $align) * $align;
    if (threadIdx.x == 0) offsets[$experts + 1 + expert] = next;
    for (int row = next + (int)threadIdx.x; row < end; row += $threads) slot_of_row[row] = -1;
    next = end;
#endif
    if (threadIdx.x == 0 && expert == $experts - 1) offsets[$experts] = next;
}
