// SPDX-License-Identifier: Apache-2.0
// route: from the chosen experts of every token to the rows of every expert, by a stable counting
// sort.
//
//   ids [rows, top_k] -> offsets [experts + 1], row_of_slot [rows, top_k] (-1: no row), slot_of_row
//
// Rows are expert-major, then by token, then by choice. Ids outside 0..experts-1 take no row; rows
// past offsets[experts] of slot_of_row are left alone. First rows are multiples of $align; if that is not 1,
// offsets [experts + 1 + e] is where expert e's rows end, and from there to its next multiple slot_of_row is -1.
void $entry(const int32_t *ids, int32_t *row_of_slot, int32_t *slot_of_row, int32_t *offsets,
            int64_t tile_begin, int64_t tile_end) {
    enum { EXPERTS = $experts };
    const int32_t slots = $rows * $top_k;
    if (tile_begin >= tile_end) return;
    for (int32_t e = 0; e <= EXPERTS; e++) offsets[e] = 0;
    for (int32_t slot = 0; slot < slots; slot++)
        if (ids[slot] >= 0 && ids[slot] < EXPERTS) offsets[ids[slot] + 1]++;
    for (int32_t e = 0; e < EXPERTS; e++) offsets[e + 1] = offsets[e] + (int32_t)up(offsets[e + 1], $align) * $align;
    // offsets[e] is the next row of expert e while rows are given out: at the end where they end, so that the first
    // of e + 1 is the next multiple.
    for (int32_t slot = 0; slot < slots; slot++) {
        int32_t e = ids[slot];
        row_of_slot[slot] = -1;
        if (e < 0 || e >= EXPERTS) continue;
        slot_of_row[offsets[e]] = slot;
        row_of_slot[slot] = offsets[e]++;
    }
#if $align > 1
    for (int32_t e = 0; e < EXPERTS; e++) {
        offsets[EXPERTS + 1 + e] = offsets[e];
        for (int32_t row = offsets[e]; row % $align; row++) slot_of_row[row] = -1;
    }
#endif
    for (int32_t e = EXPERTS - 1; e > 0; e--) offsets[e] = (int32_t)up(offsets[e - 1], $align) * $align;
    offsets[0] = 0;
}
