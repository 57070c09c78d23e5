// SPDX-License-Identifier: Apache-2.0
// count: how many copies each expert is asked to take: ids [rows, top_k] -> counts [ranks, 1 + experts].
//
// Record m is for rank m of the group: its number, then the counts, the same in every record. An
// exchange brings each rank the counts of all, and its own number with each. Ids outside of
// 0..experts-1 count nowhere.
void $entry(const int32_t *ids, int32_t *counts, int64_t tile_begin, int64_t tile_end) {
    enum { EXPERTS = $experts, RANKS = $ranks };
    const int64_t slots = (int64_t)$rows * $top_k;
    if (tile_begin >= tile_end) return;
    for (int32_t e = 0; e <= EXPERTS; e++) counts[e] = 0;
    for (int64_t slot = 0; slot < slots; slot++)
        if (ids[slot] >= 0 && ids[slot] < EXPERTS) counts[1 + ids[slot]]++;
    for (int32_t m = RANKS - 1; m >= 0; m--) {
        int32_t *record = counts + m * (1 + EXPERTS);
        for (int32_t e = 1; e <= EXPERTS; e++) record[e] = counts[e];
        record[0] = m;
    }
}
