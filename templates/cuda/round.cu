// SPDX-License-Identifier: Apache-2.0
// round: what one further round serves of a route over ranks; templates/cpu/round.c says what is computed.
//
// A block takes $chunk slots; block 0 also cuts the experts' rows.
KERNEL($threads) $entry(const int32_t *table, const int32_t *starts, const int32_t *number, int32_t *row_of_slot,
                        int32_t *offsets) {
    const int32_t round = number[0], all = $ranks * $capacity, slots = $rows * $top_k,
                  first = (int32_t)blockIdx.x * $chunk;
    for (int32_t slot = first + (int32_t)threadIdx.x; slot < first + $chunk && slot < slots; slot += $threads) {
        int32_t at = -2 - table[slot];
        row_of_slot[slot] = at >= 0 && at / all == round - 1 ? at % all : -1;
    }
    const int32_t here = $experts / $ranks, n = $align > 1 ? 2 * here + 1 : here + 1;
    for (int32_t i = (int32_t)threadIdx.x; blockIdx.x == 0 && i < n; i += $threads) {
        int64_t row = starts[i] - (int64_t)round * $capacity;
        offsets[i] = (int32_t)(row < 0 ? 0 : row < $capacity ? row : $capacity);
    }
}
