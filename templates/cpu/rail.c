// SPDX-License-Identifier: Apache-2.0
// rail: where rows go and come back when every rank of a rail has the tokens of all, in parts of one size, from the
// rows of all on the rail.
//
//   all [nodes, rows, top_k]: row_of_slot of the rail's members, rank of ep * CAPACITY + row, or -1
//   counts: count's records, exchanged: the first number is this rank's of ep
//
//   here [nodes * rows, top_k]  of each token of each member: where each choice has a copy on this node, rank of the
//                               node * CAPACITY + row, or -1
// A part that comes back has a row for every token of this rank, the sum over its copies on that node:
//   first [rows, top_k]     where the sum is among the parts, of the first of its copies; -1: of the others
// or one for every choice:
//   place [rows, top_k]     where the copy is among the parts; -1: nowhere
// Where a choice has its row in a further round (route_ranks.c) place is -2, and so is first at the first choice of
// those of one round and node, whose sum that round brings back.
void $entry(const int32_t *all, const int32_t *counts, int32_t *here, int32_t *first, int32_t *place, int64_t tile_begin,
            int64_t tile_end) {
    enum { K = $top_k };
    const int64_t rows = $rows, node_rows = (int64_t)$each * $capacity, own = counts[0] / $each;
    const int64_t end = min_of(tile_end * $chunk, $ranks * rows);
    for (int64_t i = tile_begin * $chunk; i < end; i++) {
        int64_t t = i - own * rows;
        for (int64_t k = 0; k < K; k++) {
            int64_t row = all[i * K + k], node = row < 0 ? -1 : row / node_rows;
            here[i * K + k] = node == own ? (int32_t)(row - own * node_rows) : -1;
            if (t < 0 || t >= rows) continue;
            int is_first = row != -1, later = row < -1;
            for (int64_t j = 0; j < k; j++) {
                int64_t other = all[i * K + j];
                if (later) is_first &= other >= -1 || (-2 - other) / node_rows != (-2 - row) / node_rows;
                else is_first &= other < 0 || other / node_rows != node;
            }
            first[t * K + k] = !is_first ? -1 : later ? -2 : (int32_t)(node * rows + t);
            place[t * K + k] = node >= 0 ? (int32_t)((node * rows + t) * K + k) : later ? -2 : -1;
        }
    }
}
