// SPDX-License-Identifier: Apache-2.0
// blocks: what goes to other nodes in blocks, and what comes back, from the rows of all on this rail.
//
//   all [nodes, rows, top_k]: row_of_slot of the rail's members, rank of ep * CAPACITY + row, or -1
//   counts: count's records, exchanged: the first number is this rank's of ep
//
// A token's row goes to every node where it has copies, once, to the member there:
//   there [2, nodes]        rows that go to each member, that come from each
//   token [rows, PARTS]     of each row that goes, node by node and on it by token
//   put [COME, top_k]       of each row that comes, by member and its token: where each choice has a copy on
//                           this node, rank of the node * CAPACITY + row, or -1
// What comes back of a row that went is the sum over its copies on that node, in the same order:
//   home [2, nodes]         rows that go to each member, that come from each
//   first [rows, top_k]     where the sum is among what has come, of the first of its copies; -1: of the others
// or each copy by itself, in the order of node, token, choice:
//   back [2, nodes]         copies that go to each member, that come from each
//   get [COPIES, top_k]     of each copy that goes: where it is, as above
//   place [rows, top_k]     where each copy is among what has come; -1: nowhere
// Where a choice has its row in a further round (route_ranks.c) place is -2, and so is first at the first choice of
// those of one round and node, whose sum that round brings back.
// Behind the last row or copy a table is -1. A token has copies on PARTS nodes at most.
void $entry(const int32_t *all, const int32_t *counts, int32_t *there, int32_t *token, int32_t *put, int32_t *home,
            int32_t *first, int32_t *back, int32_t *get, int32_t *place, int64_t tile_begin, int64_t tile_end) {
    enum { NODES = $ranks, K = $top_k, PARTS = NODES < K ? NODES : K };
    const int64_t rows = $rows, node_rows = (int64_t)$each * $capacity;
    const int64_t come = min_of(NODES * rows, node_rows), copies = up(min_of(NODES * rows * K, node_rows), K) * K;
    if (tile_begin >= tile_end) return;
    const int64_t here = counts[0] / $each;
    const int32_t *own = all + here * rows * K;
    int64_t goes = 0, returns = 0, comes = 0, asked = 0;
    for (int64_t i = 0; i < rows * K; i++) {
        place[i] = first[i] = own[i] < -1 ? -2 : -1;
        for (int64_t j = i - i % K; own[i] < -1 && j < i; j++)
            if (own[j] < -1 && (-2 - (int64_t)own[j]) / node_rows == (-2 - (int64_t)own[i]) / node_rows) first[i] = -1;
    }
    for (int64_t node = 0; node < NODES; node++) {
        int64_t goes_before = goes, returns_before = returns;
        for (int64_t t = 0; t < rows; t++) {
            int64_t before = returns;
            for (int64_t i = t * K; i < t * K + K; i++) {
                if (own[i] < 0 || own[i] / node_rows != node) continue;
                if (returns == before) first[i] = (int32_t)goes;
                place[i] = (int32_t)returns++;
            }
            if (returns > before) token[goes++] = (int32_t)t;
        }
        there[node] = home[NODES + node] = (int32_t)(goes - goes_before);
        back[NODES + node] = (int32_t)(returns - returns_before);
    }
    for (int64_t member = 0; member < NODES; member++) {
        const int32_t *theirs = all + member * rows * K;
        int64_t comes_before = comes, asked_before = asked;
        for (int64_t t = 0; t < rows; t++) {
            int64_t before = asked;
            for (int64_t k = 0; k < K; k++)
                if (theirs[t * K + k] >= 0 && theirs[t * K + k] / node_rows == here)
                    get[asked++] = (int32_t)(theirs[t * K + k] - here * node_rows);
            if (asked == before) continue;
            for (int64_t k = 0; k < K; k++) {
                int32_t row = theirs[t * K + k];
                put[comes * K + k] = row >= 0 && row / node_rows == here ? (int32_t)(row - here * node_rows) : -1;
            }
            comes++;
        }
        there[NODES + member] = home[member] = (int32_t)(comes - comes_before);
        back[member] = (int32_t)(asked - asked_before);
    }
    for (; goes < rows * PARTS; goes++) token[goes] = -1;
    for (int64_t i = comes * K; i < come * K; i++) put[i] = -1;
    for (; asked < copies; asked++) get[asked] = -1;
}
