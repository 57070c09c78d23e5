// SPDX-License-Identifier: Apache-2.0
// count: how many copies each expert is asked to take: ids [rows, top_k] -> counts [ranks, 1 + experts].
//
// Record m is for rank m of the group: its number, then the counts, the same in every record. An
// exchange brings each rank the counts of all, and its own number with each. Ids outside of
// 0..experts-1 count nowhere. A block counts one expert.
KERNEL($threads) $entry(const int32_t *ids, int32_t *counts) {
    __shared__ int sums[$threads / WARP];
    const int32_t slots = $rows * $top_k, expert = (int32_t)blockIdx.x;
    int n = 0;
    for (int32_t slot = threadIdx.x; slot < slots; slot += $threads) n += ids[slot] == expert;
    for (int i = 16; i; i >>= 1) n += __shfl_xor_sync(0xffffffffu, n, i);
    if (lane_id() == 0) sums[warp_id()] = n;
    __syncthreads();
    int all = 0;
    for (int w = 0; w < $threads / WARP; w++) all += sums[w];
    for (int32_t m = threadIdx.x; m < $ranks; m += $threads) {
        counts[m * (1 + $experts) + 1 + expert] = all;
        if (expert == 0) counts[m * (1 + $experts)] = m;
    }
}
