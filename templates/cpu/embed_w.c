// SPDX-License-Identifier: Apache-2.0
// embed_w: w[id] = or += the sum of g's rows with that id, in ascending token order. g [rows * ids,
// n], ids [rows * ids]; ids outside 0..vocab-1 are skipped. A tile owns a range of the vocabulary.
void $entry(const $x_type *g, const int32_t *ids, float *w, int64_t tile_begin, int64_t tile_end) {
    enum { N = $n, ADD = $accumulate };
    for (int64_t tile = tile_begin; tile < tile_end; tile++) {
        int64_t first = tile * $chunk, end = min_of(first + $chunk, $vocab);
        for (int64_t i = first * N; !ADD && i < end * N; i++) w[i] = 0.0f;
        for (int64_t t = 0; t < (int64_t)$rows * $ids; t++) {
            if (ids[t] < first || ids[t] >= end) continue;
            const $x_type *from = g + t * N;
            float *to = w + (int64_t)ids[t] * N;
            int64_t i = 0;
            for (; i + LANES <= N; i += LANES) v_store(to + i, v_load(to + i) + $load(from + i));
            if (i < N)
                v_store_part(to + i, v_load_part(to + i, N - i) + $load_part(from + i, N - i), N - i);
        }
    }
}
