// SPDX-License-Identifier: Apache-2.0
// Ranks that start at the same time with the same cache would all compile the same sources. Instead
// each tells which it lacks, before anyone compiles; all then deal them out alike: a source goes to
// the rank among those that lack it which has the fewest so far. What others compiled comes from the
// cache.
#include "runtime/jit/jit.h"

#include <stdlib.h>

typedef struct Wanted {
    Hash key;
    int rank;
} Wanted;

static int by_key_and_rank(const void *left, const void *right) {
    const Wanted *a = left, *b = right;
    if (a->key.high != b->key.high) return a->key.high < b->key.high ? -1 : 1;
    if (a->key.low != b->key.low) return a->key.low < b->key.low ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

// How many sources a rank lacks, and where its cache is.
typedef struct Need {
    int64_t n;
    uint64_t place;
} Need;

// What the ranks with this one's cache want, sorted; a rank's keys as they were gathered.
static Wanted *list_wanted(const JitShare *share, const Need *needs, const Hash *all, int64_t most,
                           Arena *arena, int64_t *n) {
    Wanted *wanted = ARENA_ARRAY(arena, Wanted, most * share->n + 1);
    *n = 0;
    for (int rank = 0; rank < share->n; rank++)
        for (int64_t i = 0; i < needs[rank].n && needs[rank].place == share->place; i++)
            wanted[(*n)++] = (Wanted){ all[rank * most + i], rank };
    qsort(wanted, (size_t)*n, sizeof *wanted, by_key_and_rank);
    return wanted;
}

static bool *find(const Hash *keys, int64_t n, bool *mine, Hash key) {
    for (int64_t i = 0; i < n; i++)
        if (hash_equal(keys[i], key)) return &mine[i];
    return NULL;
}

Status share_deal(const JitShare *share, const Hash *keys, int64_t n, Arena *arena, bool *mine) {
    Need need = { n, share->place }, *needs = ARENA_ARRAY(arena, Need, share->n);
    TRY(share->gather(share->user, &need, needs, sizeof need));
    int64_t most = 0, n_wanted;
    for (int rank = 0; rank < share->n; rank++) most = max_i64(most, needs[rank].n);
    if (!most) return OK;
    Hash *own = ARENA_ARRAY(arena, Hash, most), *all = ARENA_ARRAY(arena, Hash, most * share->n);
    if (n) memcpy(own, keys, sizeof *keys * (size_t)n);
    TRY(share->gather(share->user, own, all, most * (int64_t)sizeof *own));
    const Wanted *wanted = list_wanted(share, needs, all, most, arena, &n_wanted);
    int64_t *dealt = ARENA_ARRAY(arena, int64_t, share->n);
    for (int64_t i = 0, end; i < n_wanted; i = end) {
        int64_t to = i;
        for (end = i; end < n_wanted && hash_equal(wanted[end].key, wanted[i].key); end++)
            if (dealt[wanted[end].rank] < dealt[wanted[to].rank]) to = end;
        dealt[wanted[to].rank]++;
        if (wanted[to].rank == share->rank) *find(keys, n, mine, wanted[i].key) = true;
    }
    return OK;
}
