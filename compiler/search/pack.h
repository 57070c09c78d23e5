// SPDX-License-Identifier: Apache-2.0
// Loads onto ranks that have as many places each, all of which are used: the rank with most is to have
// least. Under placement.h, which has experts and copies.
#ifndef MOEC_SEARCH_PACK_H
#define MOEC_SEARCH_PACK_H

#include "runtime/base/base.h"

typedef struct Pack {
    const double *x;             // [n] loads, descending
    int32_t n, ranks, slots;     // n = ranks * slots
    int32_t *rank_of;            // [n]
    double *load;                // [ranks]
    double most;                 // of load
} Pack;

// No packing has a busiest rank with less. The largest of:
//   the i largest lie on some j ranks, which have at least the j * slots - i smallest besides: their mean,
//   at the best j. (i = n: the mean of all; i = 1: the largest, with the smallest)
//   of the k * ranks + 1 largest, k + 1 share a rank: the least of them, with the slots - k - 1 smallest
// rounded up where all loads are whole.
double pack_bound(const Pack *pack, Arena *arena);

// The largest first, onto the rank with least that has a place: within 4/3 of the least (Babel, Kellerer,
// Kotov: The k-partitioning problem, 1998).
void pack_first(Pack *pack, Arena *arena);
// Swaps two loads between the busiest rank and another while that helps, or until no rank has more than
// `enough`.
void pack_swap(Pack *pack, double enough);
// Improves what is there by branch and bound, at most *budget nodes, which are taken off. Whether it was
// through, so that nothing better exists; at once if `most` is the bound.
bool pack_prove(Pack *pack, double bound, int64_t *budget, Arena *arena);
double pack_most(const double *load, int32_t ranks);           // the largest

#endif
