// SPDX-License-Identifier: Apache-2.0
// What the files of the search share. search.h has the idea and the formulas.
#ifndef MOEC_SEARCH_PRIVATE_H
#define MOEC_SEARCH_PRIVATE_H

#include <math.h>

#include "compiler/search/search.h"

/* Vectors: how many layers of each class -------------------------------------------------------- */

// Two contiguous runs of layers with the same numbers of each class cost the same. A vector is the vector
// `rest` and `count` layers of `class`, the last class that it has.
typedef struct Vector {
    uint16_t counts[SEARCH_MOST_CLASSES];
    int32_t rest;       // -1: no others
    int32_t class, count;
} Vector;

typedef struct Vectors {
    Vector *at;
    uint32_t n, cap;
    int32_t *of;        // [(n_layers + 1)^2]: of layers a .. b - 1 at a * (n_layers + 1) + b; -1: a >= b
} Vectors;

/* Tables: what layers cost under one choice ------------------------------------------------------ */

typedef struct Table {
    SearchChoice choice;
    bool possible;
    SearchLayer parts[SEARCH_MOST_CLASSES + 2];
    SearchRest rest;
    uint8_t base[SEARCH_MOST_CLASSES];     // the fastest recompute; of equal ones the one that saves least
    double least_saved[SEARCH_MOST_CLASSES], least_transient[SEARCH_MOST_CLASSES];
} Table;

// A point of the space, in the order in which it has them.
typedef struct Entry {
    double bound0, bound;  // bound0: without memory; bound: what is known for the current memory
    uint32_t table;
    int32_t microbatches;
    uint16_t family;         // of the same number of layouts
    uint8_t schedule, chunks;
    uint8_t level;         // of `bound`: 0 as bound0, 1 tight
} Entry;

// Points with the same number of layouts.
typedef struct Family {
    int32_t pp, chunks;
    uint8_t offered[SEARCH_MOST_CLASSES]; // recomputes of each class
    SearchCount layouts;
} Family;

struct Search {
    SearchProfile profile;
    SearchSpace space;
    Arena *arena;
    Table *tables; uint32_t n_tables, cap_tables;
    Entry *entries; uint32_t n_entries, cap_entries;
    Family *families; uint32_t n_families, cap_families;
    Vectors vectors;
    struct SplitLists *splits;
    struct FlightLists *flights;
    int32_t per_class[SEARCH_MOST_CLASSES];
    SearchPulse pulse;
    void *pulse_user;
};

/* space.c: points -------------------------------------------------------------------------------- */

void space_settle(Search *s); // defaults of the space
// Fills tables, entries and families.
Status space_fill(Search *s);
// Fields that make no difference have one value: where one rank holds something, nothing is divided.
SearchChoice space_canonical(const Search *s, SearchChoice choice);
// The costs of a choice, asked for anew.
bool table_fill(const Search *s, const SearchChoice *choice, Table *out);
// The splits of an interleaved schedule, made when first asked for.
typedef struct Splits {
    int32_t pp, chunks, n;
    int32_t *stages; // [n][pp * chunks]
} Splits;
enum { MOST_SPLITS = (SEARCH_MOST_GIVEN + 1) * (SEARCH_MOST_GIVEN + 1) };
const Splits *space_splits(const Search *s, int32_t pp, int32_t chunks);

// The flights of a point's schedule, made when first asked for.
const struct Flight *space_flights(const Search *s, const SearchPoint *point);

/* flight.c ---------------------------------------------------------------------------------------- */

// Microbatches in flight in each chunk of a rank at the moment when most pairs of both are.
void flight_count(const SearchPoint *point, int32_t stage, int32_t *chunks /* [point->chunks] */);
// Of a virtual stage. What lives from unit to unit has an address for each of its rank's slots, which microbatches take in
// turn (pipeline.h), but where slots are never taken at once by what it is.
typedef struct Flight {
    int32_t slots;
    double saved;         // addresses of what layers save for backward
    int32_t waits;        // zero bubble: of what waits behind it
    double crossings;     // of inputs of stages: this one's, its gradients that went back, outputs that went on
} Flight;
void flight_fill(const SearchPoint *point, Flight *out /* [pp * chunks] */);
// What a layer keeps there. In zero bubble a slot has what is saved, then what waits, in the same bytes or beside.
static inline double flight_bytes(const SearchPoint *point, const Flight *f, const SearchLayer *layer, int recompute) {
    double saved = layer->saved_bytes[recompute], wait = layer->wait_bytes[recompute], both = layer->both_bytes[recompute];
    if (point->schedule != SCHEDULE_ZERO_BUBBLE) return f->saved * saved;
    return fmin(f->slots * fmax(saved, wait), f->slots * both + f->saved * (saved - both) + f->waits * (wait - both));
}

/* frontier.c: seconds against bytes of what recomputation can do ----------------------------------- */

// One way to choose recomputes for the layers of a vector: no other takes less time and saves less.
typedef struct Way {
    double extra_s, saved_bytes; // extra: over the fastest
    uint32_t rest, mine;         // numbers in the frontiers of the vector's rest, of its class; of a class
                                 // alone `mine` is its number in `picks`
} Way;
typedef struct Frontier { Way *at; uint32_t n; } Frontier; // saved falling, extra rising

// Frontiers of one table, made when asked for. A frontier exists per limit of transient bytes: only
// recomputes within it take part.
typedef struct Frontiers Frontiers;
typedef struct Weights Weights;
// Bytes are of one microbatch, or in zero bubble, where they follow no one number, all that virtual stage `stage` keeps.
Frontiers *frontiers_create(const Weights *w, int32_t stage, Arena *arena);
int32_t frontiers_limits(const Frontiers *f, const double **limits); // ascending
const Frontier *frontiers_of(Frontiers *f, int32_t limit, int32_t vector);
// Of two runs of layers together, `more` held by `flight` microbatches; ways over `room` bytes or `most_s`
// seconds left out. before: NULL for none. A way's `mine` is its number in `more`.
Frontier frontier_sum(const Frontier *before, const Frontier *more, double flight, double room,
                      double most_s, Arena *arena);
// How many layers of each class take each recompute.
typedef struct Picks { uint16_t n[SEARCH_MOST_CLASSES][SEARCH_RECOMPUTES]; } Picks;
void frontiers_pick(Frontiers *f, int32_t limit, int32_t vector, uint32_t way, Picks *out);

/* bound.c ------------------------------------------------------------------------------------------ */

// What a point's layouts are weighed by. All per rank: A = sum of work of its layers + slope * extra.
typedef struct Kept { double base, least; } Kept; // bytes that a layer keeps: with the fastest recompute; at least
struct Weights {
    const Search *s;
    const Table *table;                 // in zero bubble with its transients
    SearchPoint point;
    double slope;                       // of extra seconds in a rank's time: m - 1 / v
    double work[SEARCH_MOST_CLASSES + 2]; // m t - fill / v + step, with the fastest recompute
    double constant;                    // fill of all / v and what talk adds
    double sharing, even;               // SearchProfile.sharing, at least 1; mean work of a rank, with the fastest recompute
    double *sum_work, *sum_state, *sum_saved, *sum_least; // [n_layers + 1] of the first so many layers
    const Flight *flights;              // [pp * chunks], by virtual stage
    const double *rates;                // [the same]: most bytes that a second of recomputation saves
    const Kept *held;                   // [the same][n_classes]
    const double *crossing_bytes;       // [the same]: of what comes from other stages and goes there
    double memory;                      // of a rank, less what is fixed
};
// Arrays live in `arena`.
void weights_fill(Weights *w, const Search *s, const Table *table, const SearchPoint *point, double memory,
                  Arena *arena);
// What a step takes in which the slowest rank and all waits take `seconds`, and layers `extra` seconds of a microbatch
// more than with the fastest recomputes; and the most of these seconds with which it takes less than `limit`.
double weights_step_s(const Weights *w, double seconds, double extra);
double weights_most_s(const Weights *w, double limit);
double bound_without_memory(const Search *s, const Table *table, const SearchPoint *point);
// INFINITY: no layout fits. What is not below `limit` is not made exact: then some bound from there on.
double bound_tight(const Weights *w, double limit);
// The same of one split of an interleaved schedule, without what is constant.
double bound_split(const Weights *w, const int32_t *stages);

/* split.c ------------------------------------------------------------------------------------------ */

// The best layout of a point that takes less than `limit` seconds; false: there is none.
bool split_best(const Weights *w, double limit, Arena *arena, SearchLayout *out);
// The layout of a point with the least peak, and that peak.
double split_smallest(const Weights *w, Arena *arena, SearchLayout *out);
// Seconds and bytes of layout->stages with layout->recompute. False: a recompute is not offered.
bool split_weigh(const Weights *w, SearchLayout *layout);

#endif
