// SPDX-License-Identifier: Apache-2.0
// route_ranks: from the chosen experts and everybody's counts to rows on the ranks that hold the experts.
//
//   ids [rows, top_k], counts [ranks, 1 + experts] (count's records, exchanged: own number, counts)
//   -> row_of_slot [rows, top_k]: owner * CAPACITY + row, or -1; offsets [experts here + 1] of own experts
//
// Rows on a rank are ordered by its experts, then source rank, then slot; every rank computes the same
// from the same counts. Ids outside of 0..experts-1 take no row. An expert's first row is a multiple of $align; if
// that is not 1, offsets [experts here + 1 + e] is where the rows of own expert e end.
//
// A rank takes $limit copies for all its experts. Where more are asked for, every (source rank, expert)
// gets its part of them by largest remainder, ties by a hash of both; of a source's copies for an
// expert those with the smallest hash of (seed, step, route, token of the run, choice) stay. What is
// dropped of valid tokens is taken off `load` and added to `dropped`.
//
// With rounds nothing is dropped: a rank's rows in order are cut into rounds of CAPACITY. row_of_slot and
// offsets are of the first; -2 - at says that a slot has its row in a further one, at = ((round - 1) * ranks +
// owner) * CAPACITY + row. starts, as offsets, are own experts' rows before the cut, numbers
// [$rounds] are 1, 2, .., rounds [1] is how many further rounds the fullest rank asks for.
enum { RANKS_$entry = $ranks, EXPERTS_$entry = $experts };
enum { HERE_$entry = EXPERTS_$entry / RANKS_$entry };
enum { OFFSETS_$entry = $align > 1 ? 2 * HERE_$entry + 1 : HERE_$entry + 1 };
// Experts by place: rank by rank, on a rank in ascending order.
static const int32_t at_$entry[EXPERTS_$entry] = { $at };
// counts of rank s for the expert at a place
#define COUNT_$entry(s, place) counts[(s) * (1 + EXPERTS_$entry) + 1 + at_$entry[place]]

#if $drops
static uint64_t key_$entry(const float *scalars, uint64_t a, uint64_t b) {
    union { float f; uint32_t u; } seed = { scalars[SCALAR_seed] }, step = { scalars[SCALAR_step] };
    uint64_t start = avalanche(avalanche(seed.u + 0x9e3779b97f4a7c15u) ^
                               ((step.u ^ $stream) + 0x9e3779b97f4a7c15u));
    return avalanche(avalanche(start ^ (a + 0x9e3779b97f4a7c15u)) ^ (b + 0x9e3779b97f4a7c15u));
}

// kept [experts of rank d][source rank]: how many rows each gets of the rank's.
static void share_$entry(const int32_t *counts, const float *scalars, int32_t d, int32_t *kept) {
    enum { RANKS = RANKS_$entry, HERE = HERE_$entry, CELLS = HERE * RANKS };
    const int64_t rows = $limit;
    int64_t rest[CELLS], asked = 0, left = rows;
    uint64_t tie[CELLS];
    for (int32_t i = 0; i < CELLS; i++) asked += kept[i];
    if (asked <= rows) return;
    for (int32_t i = 0; i < CELLS; i++) {
        int64_t part = kept[i] * rows;
        kept[i] = (int32_t)(part / asked);
        rest[i] = part % asked;
        tie[i] = key_$entry(scalars, (uint64_t)at_$entry[d * HERE + i / RANKS], (uint64_t)(i % RANKS));
        left -= kept[i];
    }
    for (; left > 0; left--) { // one more to those with the largest rest
        int32_t best = 0;
        for (int32_t i = 1; i < CELLS; i++)
            if (rest[i] > rest[best] || (rest[i] == rest[best] && tie[i] < tie[best])) best = i;
        kept[best]++;
        rest[best] = -1;
    }
}

// limit [places]: the largest key that stays, where `stay` [places] are fewer than asked for: digits of
// 4 bits from the top, counting among the copies that agree with the limit so far.
static void limits_$entry(const int32_t *ids, const int32_t *index, const float *scalars,
                          const int32_t *place_of, const int32_t *counts, int32_t own,
                          const int32_t *stay, uint64_t *limit) {
    enum { EXPERTS = EXPERTS_$entry };
    int32_t need[EXPERTS], among[EXPERTS][16];
    for (int32_t p = 0; p < EXPERTS; p++) {
        limit[p] = 0;
        need[p] = stay[p] < COUNT_$entry(own, p) ? stay[p] : 0;
    }
    for (int shift = 60; shift >= 0; shift -= 4) {
        for (int32_t p = 0; p < EXPERTS; p++)
            for (int i = 0; i < 16; i++) among[p][i] = 0;
        for (int64_t slot = 0; slot < (int64_t)$rows * $top_k; slot++) {
            int32_t e = ids[slot], p = e >= 0 && e < EXPERTS ? place_of[e] : -1;
            if (p < 0 || !need[p]) continue;
            uint64_t key = key_$entry(scalars, (uint32_t)index[slot / $top_k], slot % $top_k);
            if (shift == 60 || key >> (shift + 4) == limit[p] >> (shift + 4))
                among[p][key >> shift & 15]++;
        }
        for (int32_t p = 0; p < EXPERTS; p++) {
            int digit = 0;
            if (!need[p]) continue;
            for (; need[p] > among[p][digit]; digit++) need[p] -= among[p][digit];
            limit[p] |= (uint64_t)digit << shift;
        }
    }
}
#endif

void $entry(const int32_t *ids, const int32_t *counts, $drop_parameters int32_t *row_of_slot,
            int32_t *offsets $round_parameters, int64_t tile_begin, int64_t tile_end) {
    enum { RANKS = RANKS_$entry, EXPERTS = EXPERTS_$entry, HERE = HERE_$entry };
    if (tile_begin >= tile_end) return;
    const int32_t own = counts[0];
    int32_t kept[EXPERTS], next[EXPERTS], stay[EXPERTS], place_of[EXPERTS];
#if $rounds
    int32_t most = 0;
#endif
    for (int32_t p = 0; p < EXPERTS; p++) place_of[at_$entry[p]] = p;
    for (int32_t d = 0; d < RANKS; d++) {
        for (int32_t i = 0; i < EXPERTS; i++) kept[i] = COUNT_$entry(i % RANKS, d * HERE + i / RANKS);
#if $drops
        share_$entry(counts, scalars, d, kept);
#endif
        int32_t row = 0;
        for (int32_t e = 0; e < HERE; e++) {
            if (d == own) offsets[e] = row;
            for (int32_t s = 0; s < RANKS; s++) {
                if (s == own) next[d * HERE + e] = row;
                if (s == own) stay[d * HERE + e] = kept[e * RANKS + s];
                row += kept[e * RANKS + s];
            }
#if $align > 1
            if (d == own) offsets[HERE + 1 + e] = row;
            row = (int32_t)up(row, $align) * $align;
#endif
        }
        if (d == own) offsets[HERE] = row;
#if $rounds
        most = row > most ? row : most;
#endif
    }
#if $rounds
    for (int32_t i = 0; i < OFFSETS_$entry; i++) {
        starts[i] = offsets[i];
        offsets[i] = starts[i] < $capacity ? starts[i] : $capacity;
    }
    for (int32_t i = 0; i < $rounds; i++) numbers[i] = i + 1;
    rounds[0] = most > 0 ? (most - 1) / $capacity : 0;
#endif
#if $drops
    uint64_t limit[EXPERTS];
    limits_$entry(ids, index, scalars, place_of, counts, own, stay, limit);
#endif
    for (int64_t slot = 0; slot < (int64_t)$rows * $top_k; slot++) {
        int32_t e = ids[slot];
        row_of_slot[slot] = -1;
        if (e < 0 || e >= EXPERTS) continue;
        int32_t p = place_of[e];
#if $drops
        int fits = stay[p] == COUNT_$entry(own, p) ||
                    key_$entry(scalars, (uint32_t)index[slot / $top_k], slot % $top_k) <= limit[p];
        if (!fits || stay[p] == 0) {
#if $accumulate
            if (labels[slot / $top_k] >= 0) {
                load[e] -= 1;
                dropped[0] += 1;
            }
#endif
            continue;
        }
#endif
#if $rounds
        int32_t row = next[p]++, round = row / $capacity, at = p / HERE * $capacity + row % $capacity;
        row_of_slot[slot] = round ? -2 - ((round - 1) * RANKS * $capacity + at) : at;
#else
        row_of_slot[slot] = p / HERE * $capacity + next[p]++;
#endif
    }
}
