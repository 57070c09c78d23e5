// SPDX-License-Identifier: Apache-2.0
// round: what one further round serves of a route over ranks (route_ranks with rounds).
//
//   table [rows, top_k] of the route, its starts, number [1] of the round, from 1
//   -> row_of_slot [rows, top_k]: owner * CAPACITY + row in this round, or -1; offsets, as starts are
//
// A rank's rows in order are cut into rounds of CAPACITY, a multiple of $align; so its rows of a round are a dense
// prefix, by experts ascending, of whom some have none.
void $entry(const int32_t *table, const int32_t *starts, const int32_t *number, int32_t *row_of_slot,
            int32_t *offsets, int64_t tile_begin, int64_t tile_end) {
    enum { HERE = $experts / $ranks, OFFSETS = $align > 1 ? 2 * HERE + 1 : HERE + 1 };
    const int32_t round = number[0], all = $ranks * $capacity;
    const int64_t slots = (int64_t)$rows * $top_k;
    for (int64_t slot = tile_begin * $chunk; slot < tile_end * $chunk && slot < slots; slot++) {
        int32_t at = -2 - table[slot];
        row_of_slot[slot] = at >= 0 && at / all == round - 1 ? at % all : -1;
    }
    if (tile_begin > 0) return;
    for (int32_t i = 0; i < OFFSETS; i++) {
        int64_t row = starts[i] - (int64_t)round * $capacity;
        offsets[i] = (int32_t)(row < 0 ? 0 : row < $capacity ? row : $capacity);
    }
}
