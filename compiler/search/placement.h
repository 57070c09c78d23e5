// SPDX-License-Identifier: Apache-2.0
// Which rank holds which experts of a layer, so that the rank with most rows has least. Every rank has as
// many places. An expert is in one of them or, where there are more places than experts, has copies that
// share its rows evenly. Layers are alone: between two of them all ranks of ep meet.
//
//   start     the largest first, onto the rank with least that has a place
//   improve   swaps with the busiest rank; with copies, places that change their expert
//   prove     branch and bound until it is through or its budget is spent; with copies over every number
//             of copies, where those are few
//
// Results are functions of the input alone.
#ifndef MOEC_SEARCH_PLACEMENT_H
#define MOEC_SEARCH_PLACEMENT_H

#include "runtime/base/base.h"

enum {
    PLACEMENT_BUDGET = 100000,   // nodes: some 10 ms
    PLACEMENT_MOST = 1 << 16,    // places of a layer
};

typedef struct PlacementJob {
    const double *load;          // [n] rows of each expert: finite, 0 or more
    int32_t n, ranks, slots;     // n <= ranks * slots <= n * ranks
    int64_t budget;              // nodes of the branch and bound
    // Without copies: where the experts are, [n], slots on each rank; NULL: nowhere. What few swaps make of it
    // is taken, ranks as they are, if its busiest rank has at most 1 + tolerance times what else was found.
    const int32_t *owner;
    double tolerance;
} PlacementJob;

typedef struct Placement {
    int32_t n, ranks, slots;
    int32_t *copies;             // [n]; all 1 if there are n places. Each has load / copies
    int32_t *held;               // [ranks][slots] expert, ascending on a rank
    double *rank_load;           // [ranks] rows
    double most, mean;           // rows: of the busiest rank, of all together / ranks
    double bound;                // no placement has a busiest rank with less
    bool exact;                  // `most` is the bound
} Placement;

// Arrays live in the arena. With copies every place is used, and how many copies an expert has is part
// of what is searched: placement_apportion has the least largest copy, yet not always the least busiest rank.
void placement_find(const PlacementJob *job, Arena *arena, Placement *out);

// Copies of each expert, [n], 1 to `most` each, `places` >= n in all, so that the largest load of a copy is
// least: one more in turn to the expert with most rows per copy.
void placement_apportion(const double *load, int32_t n, int32_t places, int32_t most, int32_t *copies);

// Numbers the ranks so that as many experts as can be stay on their rank, owner [n]. Loads do not change.
void placement_stay(Placement *placement, const int32_t *owner, Arena *arena);

// Without copies: the rank of each expert, [n].
void placement_owners(const Placement *placement, int32_t *owner);
// Rows of the busiest rank, expert e on owner[e] of `ranks`; rank_load [ranks].
double placement_busiest(const double *load, const int32_t *owner, int32_t n, int32_t ranks,
                         double *rank_load);

#endif
