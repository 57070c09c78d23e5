// SPDX-License-Identifier: Apache-2.0
// embed_w: w[id] = or += the sum of g's rows with that id, in ascending token order. g [rows * ids,
// n], ids [rows * ids]; ids outside 0..vocab-1 are skipped. A block owns $chunk rows of the table: it
// looks through all ids, $threads at a time, lists those that are its own in their order, and adds
// their rows, a thread to the columns that are its own.
KERNEL($threads) $entry(const $x_type *g, const int32_t *ids, float *w) {
    enum { N = $n, ADD = $accumulate };
    __shared__ int32_t list[$threads];
    __shared__ int counts[$threads / WARP];
    int64_t first = (int64_t)blockIdx.x * $chunk, end = min_of(first + $chunk, $vocab);
    const int64_t tokens = (int64_t)$rows * $ids;
    for (int64_t i = first * N + threadIdx.x; !ADD && i < end * N; i += $threads) w[i] = 0.0f;
    __syncthreads(); // a row's columns are cleared by other threads than add to them
    for (int64_t at = 0; at < tokens; at += $threads) {
        int64_t t = at + threadIdx.x;
        int64_t id = t < tokens ? ids[t] : -1;
        bool own = id >= first && id < end;
        int found, rank = block_rank(own, $threads / WARP, counts, &found);
        if (own) list[rank] = threadIdx.x;
        __syncthreads();
        for (int k = 0; k < found; k++) {
            int64_t from = at + list[k];
            float *to = w + (int64_t)ids[from] * N;
            for (int i = threadIdx.x; i < N; i += $threads) to[i] += f_of(g[from * N + i]);
        }
        __syncthreads(); // the list may be written again
    }
}
