// SPDX-License-Identifier: Apache-2.0
// Made-up models on made-up clusters for tests of the search: costs with the shape of real ones (work
// divided by ranks, rows that cross links, parameters gathered or exchanged, imbalance that grows with ep,
// recomputation that trades seconds for bytes), numbers from a seed.
#ifndef MOEC_TEST_SEARCH_MADE_UP_H
#define MOEC_TEST_SEARCH_MADE_UP_H

#include "compiler/search/search.h"

enum { MADE_UP_CLASSES = 3, MADE_UP_LAYERS = 130 };

typedef struct MadeUpClass {
    double dense_s, expert_s;      // of a sequence, forward, on one rank
    double dense_n, expert_n;      // parameters
    double saved_bytes, row_bytes; // of a sequence
    double cheap_s, cheap_saves;   // of recompute=cheap, as shares
    double block_saves, waits, ends;
} MadeUpClass;

typedef struct MadeUp {
    uint64_t seed;
    SearchProfile profile;
    SearchSpace space;
    uint8_t class_of[MADE_UP_LAYERS];
    int32_t experts[2];
    MadeUpClass classes[MADE_UP_CLASSES + 2]; // with what precedes and follows the layers
    int32_t node;                             // ranks of the fast link
    double fast, slow, hidden;                // bytes per second; share of talk that overlap hides
} MadeUp;

// A small one: up to 64 ranks and 6 layers, with few enough layouts to try them all.
void made_up_small(MadeUp *m, uint64_t seed);
// As large as a real one: layers, of these dense ones first, experts, ranks, sequences of a step.
void made_up_large(MadeUp *m, uint64_t seed, int32_t layers, int32_t dense, int32_t experts, int64_t ranks,
                   int64_t sequences);

#endif
