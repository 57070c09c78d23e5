// SPDX-License-Identifier: Apache-2.0
// route_ranks: from the chosen experts and everybody's counts to rows on the ranks that hold the experts;
// templates/cpu/route_ranks.c says what is computed. The numbers are the same.
//
// A block owns the expert at one place of the order (rank by rank, on a rank ascending): it shares the
// rows of that expert's rank among all (expert, source rank) of it, finds its own first row, and hands
// out rows in the order of slots. Block 0 also marks ids that take none.
enum { RANKS = $ranks, EXPERTS = $experts, HERE = EXPERTS / RANKS, WARPS = $threads / WARP };
__constant__ const int32_t expert_at[EXPERTS] = { $at };

DEVICE int64_t block_sum(int64_t x, int64_t *sums) {
    for (int i = 16; i; i >>= 1) x += __shfl_xor_sync(0xffffffffu, x, i);
    __syncthreads(); // sums may be in use
    if (lane_id() == 0) sums[warp_id()] = x;
    __syncthreads();
    int64_t all = 0;
    for (int w = 0; w < WARPS; w++) all += sums[w];
    return all;
}

DEVICE uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// How many rows the rank's expert e takes of kept [HERE][RANKS], pads among them.
DEVICE int64_t rows_of(const int32_t *kept, int32_t e) {
    int64_t rows = 0;
    for (int32_t s = 0; s < RANKS; s++) rows += kept[e * RANKS + s];
    return up(rows, $align) * $align;
}

#if $drops
DEVICE uint64_t key_of(const float *scalars, uint64_t a, uint64_t b) {
    uint64_t seed = __float_as_uint(scalars[SCALAR_seed]), step = __float_as_uint(scalars[SCALAR_step]);
    uint64_t start = mixed(mixed(seed + 0x9e3779b97f4a7c15u) ^ ((step ^ $stream) + 0x9e3779b97f4a7c15u));
    return mixed(mixed(start ^ (a + 0x9e3779b97f4a7c15u)) ^ (b + 0x9e3779b97f4a7c15u));
}

DEVICE uint64_t slot_key(const float *scalars, const int32_t *index, int32_t slot) {
    return key_of(scalars, (uint32_t)index[slot / $top_k], slot % $top_k);
}

// kept [HERE][RANKS], as asked for: what each gets of rank d's rows.
DEVICE void share(const float *scalars, int32_t d, int32_t *kept, int32_t *got, int64_t *sums) {
    const int64_t rows = $limit;
    int64_t asked = 0, given = 0;
    for (int32_t i = threadIdx.x; i < EXPERTS; i += $threads) asked += kept[i];
    asked = block_sum(asked, sums);
    if (asked <= rows) return;
    for (int32_t i = threadIdx.x; i < EXPERTS; i += $threads) given += kept[i] * rows / asked;
    int64_t left = rows - block_sum(given, sums);
    for (int32_t i = threadIdx.x; i < EXPERTS; i += $threads) {
        int64_t rest = kept[i] * rows % asked, before = 0;
        uint64_t tie = key_of(scalars, expert_at[d * HERE + i / RANKS], i % RANKS);
        for (int32_t k = 0; k < EXPERTS; k++) {
            int64_t other = kept[k] * rows % asked;
            if (k == i || other < rest) continue;
            before += other > rest ||
                      key_of(scalars, expert_at[d * HERE + k / RANKS], k % RANKS) < tie;
        }
        got[i] = (int32_t)(kept[i] * rows / asked) + (before < left);
    }
    __syncthreads();
    for (int32_t i = threadIdx.x; i < EXPERTS; i += $threads) kept[i] = got[i];
    __syncthreads();
}

// The largest key of the `stay` smallest among the expert's copies: digits of 4 bits from the top.
DEVICE uint64_t limit_of(const int32_t *ids, const int32_t *index, const float *scalars, int32_t expert,
                         int32_t stay, int *among) {
    uint64_t limit = 0;
    for (int shift = 60; shift >= 0; shift -= 4) {
        __syncthreads();
        if (threadIdx.x < 16) among[threadIdx.x] = 0;
        __syncthreads();
        for (int32_t slot = threadIdx.x; slot < $rows * $top_k; slot += $threads) {
            if (ids[slot] != expert) continue;
            uint64_t key = slot_key(scalars, index, slot);
            if (shift == 60 || key >> (shift + 4) == limit >> (shift + 4))
                atomicAdd(&among[key >> shift & 15], 1);
        }
        __syncthreads();
        int digit = 0;
        for (; stay > among[digit]; digit++) stay -= among[digit];
        limit |= (uint64_t)digit << shift;
    }
    return limit;
}
#endif

// Row `row` of the experts' rows is number i of what says where they lie: with rounds, before and after the cut.
DEVICE void set_offset(int32_t *offsets $starts_parameter, int32_t i, int32_t row) {
#if $rounds
    starts[i] = row;
    if (row > $capacity) row = $capacity;
#endif
    offsets[i] = row;
}

KERNEL($threads) $entry(const int32_t *ids, const int32_t *counts, $drop_parameters int32_t *row_of_slot,
                        int32_t *offsets $round_parameters) {
    __shared__ int32_t kept[EXPERTS];
    __shared__ int64_t sums[WARPS];
    __shared__ int ranks[WARPS];
    const int32_t slots = $rows * $top_k, own = counts[0], place = (int32_t)blockIdx.x,
                  expert = expert_at[place], d = place / HERE, here = place % HERE;
    for (int32_t i = threadIdx.x; i < EXPERTS; i += $threads)
        kept[i] = counts[i % RANKS * (1 + EXPERTS) + 1 + expert_at[d * HERE + i / RANKS]];
    __syncthreads();
#if $drops
    __shared__ int32_t got[EXPERTS];
    __shared__ int among[16];
    const int32_t asked = kept[here * RANKS + own];
    share(scalars, d, kept, got, sums);
#endif
    const int32_t mine = here * RANKS + own, stay = kept[mine];
    int64_t before = 0, rows = 0;
    for (int32_t i = here * RANKS + threadIdx.x; i < mine; i += $threads) before += kept[i];
    for (int32_t e = threadIdx.x; e < here; e += $threads) rows += rows_of(kept, e);
    const int32_t first = (int32_t)block_sum(rows, sums);
    int32_t next = first + (int32_t)block_sum(before, sums);
    if (d == own && threadIdx.x == 0) {
        set_offset(offsets $starts, here, first);
        if (here == HERE - 1) set_offset(offsets $starts, HERE, first + (int32_t)rows_of(kept, here));
#if $align > 1
        int32_t end = first;
        for (int32_t s = 0; s < RANKS; s++) end += kept[here * RANKS + s];
        set_offset(offsets $starts, HERE + 1 + here, end);
#endif
    }
#if $rounds
    if (place == 0) { // all threads of the block
        int64_t most = 0;
        for (int32_t rank = 0; rank < RANKS; rank++) {
            int64_t asked = 0;
            for (int32_t e = threadIdx.x; e < HERE; e += $threads) {
                int64_t own_rows = 0;
                for (int32_t s = 0; s < RANKS; s++)
                    own_rows += counts[s * (1 + EXPERTS) + 1 + expert_at[rank * HERE + e]];
                asked += up(own_rows, $align) * $align;
            }
            asked = block_sum(asked, sums);
            most = asked > most ? asked : most;
        }
        for (int32_t i = threadIdx.x; i < $rounds; i += $threads) numbers[i] = i + 1;
        if (threadIdx.x == 0) rounds[0] = most > 0 ? (int32_t)((most - 1) / $capacity) : 0;
    }
#endif
#if $drops
    const uint64_t limit = stay < asked && stay > 0
                               ? limit_of(ids, index, scalars, expert, stay, among) : 0;
#endif
#if $accumulate
    int64_t lost = 0;
#endif
    for (int32_t at = 0; at < slots; at += $threads) {
        int32_t slot = at + (int32_t)threadIdx.x, id = slot < slots ? ids[slot] : -1;
        bool fits = id == expert;
#if $drops
        if (fits && stay < asked) fits = stay > 0 && slot_key(scalars, index, slot) <= limit;
        if (id == expert && !fits) row_of_slot[slot] = -1;
#if $accumulate
        if (id == expert && !fits) lost += labels[slot / $top_k] >= 0;
#endif
#endif
        int found, rank = block_rank(fits, WARPS, ranks, &found);
#if $rounds
        int32_t row = next + rank, round = row / $capacity, place_there = d * $capacity + row % $capacity;
        if (fits) row_of_slot[slot] = round ? -2 - ((round - 1) * RANKS * $capacity + place_there) : place_there;
#else
        if (fits) row_of_slot[slot] = d * $capacity + next + rank;
#endif
        if (place == 0 && slot < slots && (id < 0 || id >= EXPERTS)) row_of_slot[slot] = -1;
        next += found;
    }
#if $accumulate
    lost = block_sum(lost, sums);
    if (threadIdx.x == 0 && lost) {
        load[expert] -= (float)lost;
        atomicAdd(dropped, (float)lost); // whole numbers: exact in any order
    }
#endif
}
