// SPDX-License-Identifier: Apache-2.0
// How many microbatches a rank holds at once: pipeline.c's orders in closed form (a test compares).
#include <stdlib.h>

#include "compiler/layout/pipeline.h"
#include "compiler/search/private.h"

// Of the first n units of a list that goes through groups of pp microbatches chunk by chunk, those of one chunk, the
// `turn`-th of each group.
static int64_t units_of_chunk(const SearchPoint *p, int64_t n, int32_t turn) {
    int64_t pp = p->choice.pp, round = pp * p->chunks;
    int64_t units = n / round * pp + min_i64(max_i64(n % round - turn * pp, 0), pp);
    return min_i64(units, p->microbatches);
}

// Places of a rank: the most microbatches that have begun there and not ended.
static int32_t count_slots(const SearchPoint *point, int32_t stage) {
    int64_t pp = point->choice.pp, v = point->chunks, behind = pp - stage - 1, most = 0;
    if (point->schedule == SCHEDULE_ZERO_BUBBLE) return (int32_t)min_i64(pp, point->microbatches);
    if (v == 1) return (int32_t)min_i64(behind + 1, point->microbatches);
    int64_t first = 2 * behind + (v - 1) * pp, all = round_up(point->microbatches, pp) * v;
    for (int64_t i = 0; i < all && i <= 2 * pp * v; i++) { // from group to group it repeats
        int64_t begun = units_of_chunk(point, min_i64(first + i + 1, all), 0);
        most = max_i64(most, begun - units_of_chunk(point, i, (int32_t)v - 1));
    }
    return (int32_t)most;
}

// Addresses for what `most` microbatches keep at once, where microbatches take slots in turn and a slot has one address:
// slots `most` apart are never taken at once, and share it as far as they come to whole rounds.
static int32_t places(int32_t slots, int32_t most) {
    if (most >= slots) return slots;
    int32_t share = slots / most;
    return (slots + share - 1) / share;
}

/* Interleaved: chunks of a rank share addresses, too ------------------------------------------------ */

// What one chunk keeps in one slot: the units of its microbatches between forward and backward.
typedef struct Tenant { int32_t n, length, *first, *last; } Tenant;

static bool meet(const Tenant *a, const Tenant *b) {
    for (int32_t i = 0, k = 0; i < a->n && k < b->n;) {
        if (a->last[i] < b->first[k]) i++;
        else if (b->last[k] < a->first[i]) k++;
        else return true;
    }
    return false;
}

static int by_length(const void *a, const void *b) {
    const Tenant *const *x = a, *const *y = b;
    if ((*x)->length != (*y)->length) return (*x)->length > (*y)->length ? -1 : 1;
    return *x < *y ? -1 : *x > *y;
}

static Tenant *list_tenants(const Layout *layout, int32_t stage, int32_t microbatches, int32_t slots, Arena *arena) {
    PipelineUnit *units;
    uint32_t n = pipeline_units(layout, stage, microbatches, arena, &units);
    Tenant *tenants = ARENA_ARRAY(arena, Tenant, layout->chunks * slots);
    for (int32_t i = 0; i < layout->chunks * slots; i++) {
        tenants[i].first = ARENA_ARRAY(arena, int32_t, microbatches / slots + 1);
        tenants[i].last = ARENA_ARRAY(arena, int32_t, microbatches / slots + 1);
    }
    for (uint32_t u = 0; u < n; u++) {
        Tenant *t = &tenants[units[u].chunk * slots + units[u].microbatch % slots];
        if (units[u].kind == PIPELINE_FORWARD) t->first[t->n] = (int32_t)u;
        else t->last[t->n] = (int32_t)u, t->length += (int32_t)u - t->first[t->n], t->n++;
    }
    return tenants;
}

// How many addresses tenants of one size take, the longest lives first (place.c).
static int32_t pack_tenants(const SearchPoint *point, int32_t stage, int32_t slots) {
    Arena *arena = arena_create();
    Layout layout = layout_single();
    layout.pp = point->choice.pp;
    layout.chunks = point->chunks;
    layout.schedule = point->schedule;
    int32_t n = layout.chunks * slots, n_places = 0;
    int64_t enough = (div_up(3 * (int64_t)slots, layout.pp) + 2) * layout.pp; // as place_rows.c has it
    Tenant *tenants = list_tenants(&layout, stage, (int32_t)min_i64(point->microbatches, enough), slots, arena);
    const Tenant **order = ARENA_ARRAY(arena, const Tenant *, n);
    int32_t *place = ARENA_ARRAY(arena, int32_t, n);
    for (int32_t i = 0; i < n; i++) order[i] = &tenants[i];
    qsort(order, (size_t)n, sizeof *order, by_length);
    for (int32_t i = 0; i < n; i++) {
        bool *taken = ARENA_ARRAY(arena, bool, n_places + 1);
        for (int32_t k = 0; k < i; k++)
            if (!taken[place[k]] && meet(order[k], order[i])) taken[place[k]] = true;
        while (taken[place[i]]) place[i]++;
        if (place[i] == n_places) n_places++;
    }
    arena_destroy(arena);
    return n_places;
}

/* All of a point --------------------------------------------------------------------------------------- */

void flight_fill(const SearchPoint *point, Flight *out) {
    int32_t pp = point->choice.pp, n = pp * point->chunks;
    for (int32_t stage = 0; stage < pp; stage++) {
        int32_t chunks[SEARCH_MOST_CHUNKS], slots = count_slots(point, stage), all = 0;
        bool late = point->schedule == SCHEDULE_ZERO_BUBBLE;
        flight_count(point, stage, chunks);
        for (int32_t c = 0; c < point->chunks; c++) all += chunks[c];
        double share = point->chunks > 1 ? (double)pack_tenants(point, stage, slots) / all : 1;
        for (int32_t i = stage; i < n; i += pp) {
            double saved = late ? places(slots, pp - stage) : chunks[i / pp] * share;
            // Inputs, gradients and outputs; of the last layer's output what is in flight is among what it saves.
            double inputs = late ? slots : saved, outputs = i < n - 1 ? fmax(slots - inputs, 0) : 0;
            out[i] = (Flight){ .slots = slots,
                               .saved = saved,
                               .waits = places(slots, stage + 1),
                               .crossings = (i ? inputs + slots : 0) + outputs };
        }
    }
}

void flight_count(const SearchPoint *point, int32_t stage, int32_t *chunks) {
    int32_t pp = point->choice.pp, v = point->chunks, behind = pp - stage - 1;
    int64_t all = (int64_t)point->microbatches * v, most;
    if (point->schedule == SCHEDULE_ZERO_BUBBLE) most = pp; // what gradients of weights wait for stays
    else if (v > 1) most = 2 * (int64_t)behind + (int64_t)(v - 1) * pp + 1;
    else most = behind + 1;
    most = min_i64(most, all);
    // Forward units come in groups of pp microbatches, chunk after chunk.
    int64_t group = v > 1 ? pp : 1, round = group * v;
    for (int32_t c = 0; c < v; c++)
        chunks[c] = (int32_t)(most / round * group + min_i64(max_i64(most % round - c * group, 0), group));
}
