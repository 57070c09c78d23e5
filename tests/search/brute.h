// SPDX-License-Identifier: Apache-2.0
// All layouts of a small space, one after another, each weighed by itself from the costs of its layers: no
// bounds, no sums kept, nothing of the search's but its types and, for microbatches in flight, the orders
// of compiler/layout/pipeline.h.
#ifndef MOEC_TEST_SEARCH_BRUTE_H
#define MOEC_TEST_SEARCH_BRUTE_H

#include "tests/search/made_up.h"

typedef struct BrutePoint {
    SearchPoint point;
    double seconds;             // of its best layout that fits; INFINITY: none
    double least_bytes;         // the least peak of all of its layouts
    int64_t layouts, fits;
    int32_t stages[64];
    uint8_t recompute[8];
} BrutePoint;

typedef struct Brute {
    BrutePoint *points; uint32_t n, cap;
    int64_t layouts, fits;
    int32_t best;               // point; -1: none
} Brute;

// False: more than `most` layouts; nothing was weighed.
bool brute_force(const MadeUp *m, double memory_bytes, int64_t most, Arena *arena, Brute *out);

#endif
