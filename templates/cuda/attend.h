// SPDX-License-Identifier: Apache-2.0
// What attention's kernels share: which keys a query sees, and rows of one head into shared memory.
enum {
    SEQUENCE_$entry = $sequence, HEADS_$entry = $heads, KEYS_$entry = $kv_heads,
    GROUP_$entry = HEADS_$entry / KEYS_$entry, QK_$entry = $qk, VALUE_$entry = $v,
};
#define LOG2_E 1.4426950408889634f
#define LN_2 0.69314718055994531f

// Query i of a sequence sees keys [low, high): those of its document, none after it if causal, the last
// `window` ones if there is a window. Document numbers ascend, so both bounds never fall.
DEVICE void see_$entry(const int32_t *segments, int query, int *low, int *high) {
    int document = segments[query], begin = 0, end = query; // the first of the document in [begin, end]
    while (begin < end) {
        int middle = (begin + end) / 2;
        if (segments[middle] < document)
            begin = middle + 1;
        else
            end = middle;
    }
    *low = $window && query - $window + 1 > begin ? query - $window + 1 : begin;
    if ($causal) {
        *high = query + 1;
        return;
    }
    int last = query, past = SEQUENCE_$entry; // segments[last] is of the document, segments[past] is not
    while (last + 1 < past) {
        int middle = (last + past) / 2;
        *(segments[middle] == document ? &last : &past) = middle;
    }
    *high = past;
}

// The queries [*first, *end) that see one of the keys [k0, k1).
DEVICE void seen_by_$entry(const int32_t *segments, int k0, int k1, int *first, int *end) {
    int low, high, begin = 0, past = SEQUENCE_$entry;
    while (begin < past) {
        int middle = (begin + past) / 2;
        see_$entry(segments, middle, &low, &high);
        if (high > k0)
            past = middle;
        else
            begin = middle + 1;
    }
    *first = begin;
    past = SEQUENCE_$entry;
    while (begin < past) {
        int middle = (begin + past) / 2;
        see_$entry(segments, middle, &low, &high);
        if (low < k1)
            begin = middle + 1;
        else
            past = middle;
    }
    *end = begin;
}

// Rows [at, at + ROWS) of one head of `from` (rows `stride` numbers apart, WIDTH of them used) to shared
// rows of PITCH numbers, PADDED of them written; what does not exist becomes zero. The head starts at
// a multiple of WIDTH numbers.
template <int ROWS, int WIDTH, int PADDED, int PITCH, int THREADS, typename T>
DEVICE void take_rows(bf16 *to, const T *from, int64_t stride, int64_t at, int64_t rows) {
    for (int c = threadIdx.x; c < ROWS * (PADDED / 8); c += THREADS) {
        int row = c / (PADDED / 8), column = c % (PADDED / 8) * 8;
        bool is = at + row < rows;
        int n = is ? part_of(column, WIDTH, 8) : 0;
        load_piece<WIDTH % 8 == 0>(to + row * PITCH + column, from + (is ? at + row : 0) * stride + (n ? column : 0), n);
    }
}
template <int ROWS, int WIDTH, int PITCH, int THREADS, typename T>
DEVICE void take_rows(float *to, const T *from, int64_t stride, int64_t at, int64_t rows) {
    // The padding too: compilers read it along with what stands before it.
    for (int c = threadIdx.x; c < ROWS * PITCH; c += THREADS) {
        int row = c / PITCH, column = c % PITCH;
        to[c] = at + row < rows && column < WIDTH ? f_of(from[(at + row) * stride + column]) : 0.0f;
    }
}
