// SPDX-License-Identifier: Apache-2.0
// Made-up choices of experts, for tests of routes over ranks.
#ifndef MOEC_TEST_CHOICES_H
#define MOEC_TEST_CHOICES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum Choices {
    ANY,
    ONE_TAKES_ALL,
    NONE,         // nobody chooses anything
    SOME_OUTSIDE, // negative ids and ids past the last expert
    ONE_RANK,     // only the last rank has tokens
    SAME,         // the same expert twice in a token
    UPPER_HALF,   // the other experts stay empty
} Choices;

typedef struct Chooser {
    Choices kind;
    int32_t ranks, top_k, experts;
    bool turned; // an expert map other than in order
    uint64_t seed;
} Chooser;

int32_t choose(Chooser c, int rank, int64_t slot); // the expert of a rank's slot
int32_t choice_owner(Chooser c, int32_t expert);   // the rank that holds it

#endif
