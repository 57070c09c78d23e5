// SPDX-License-Identifier: Apache-2.0
// rail: where rows go and come back when every rank of a rail has the tokens of all; templates/cpu/rail.c says what is
// computed. The numbers are the same.
//
// A block takes $chunk choices of all tokens, a thread one at a time.
KERNEL($threads) $entry(const int32_t *all, const int32_t *counts, int32_t *here, int32_t *first, int32_t *place) {
    enum { K = $top_k };
    const int32_t node_rows = $each * $capacity, own = counts[0] / $each;
    const int64_t rows = $rows, begin = (int64_t)blockIdx.x * $chunk,
                  end = min_of(begin + $chunk, $ranks * rows * K);
    for (int64_t i = begin + threadIdx.x; i < end; i += $threads) {
        const int32_t row = all[i], node = row < 0 ? -1 : row / node_rows;
        here[i] = node == own ? row - own * node_rows : -1;
        const int64_t slot = i - own * rows * K, t = slot / K;
        if (slot < 0 || t >= rows) continue;
        const bool later = row < -1;
        bool is_first = row != -1;
        for (int64_t j = i - slot % K; j < i; j++) {
            const int32_t other = all[j];
            if (later) is_first &= other >= -1 || (-2 - other) / node_rows != (-2 - row) / node_rows;
            else is_first &= other < 0 || other / node_rows != node;
        }
        first[slot] = !is_first ? -1 : later ? -2 : (int32_t)(node * rows + t);
        place[slot] = node >= 0 ? (int32_t)((node * rows + t) * K + slot % K) : later ? -2 : -1;
    }
}
