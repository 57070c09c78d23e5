// SPDX-License-Identifier: Apache-2.0
// Which of a block's threads have a flag set, in thread order.

// The number of flagged threads before this one; `*total`: of all. Two words per warp in `counts`.
// Every thread of the block calls it.
DEVICE int block_rank(bool flag, int warps, int *counts, int *total) {
    unsigned set = __ballot_sync(0xffffffffu, flag);
    if (lane_id() == 0) counts[warp_id()] = __popc(set);
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < warps; w++) {
        before += w < warp_id() ? counts[w] : 0;
        all += counts[w];
    }
    __syncthreads(); // counts may be written again
    *total = all;
    return before + __popc(set & ((1u << lane_id()) - 1));
}
