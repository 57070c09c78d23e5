// SPDX-License-Identifier: Apache-2.0
// Experts on other ranks without drops, in rounds, against room for all rows at once: what the quick tests and
// the long ones share. Tails of expert rows, and places of rows that come in no round, hold NaN throughout
// (poison).
#ifndef MOEC_TEST_LAYOUTS_ROUNDS_H
#define MOEC_TEST_LAYOUTS_ROUNDS_H

#include "tests/layouts/world.h"

typedef struct Rounds {
    int dp, ep;
    double round;
    const char *mode, *count, *top_k, *sequence, *bias; // of experts.lua; or mode is another spec, and they NULL
    bool turned, bf16;           // experts on other ranks than in order
    uint8_t recompute;           // LayoutRecompute
    int pp;                      // 0: 1
    uint8_t schedule;            // LayoutSchedule
    bool fsdp;
    int node;                    // transport=blocks between nodes of so many ranks; 0: rows
} Rounds;

WorldJob rounds_job(const Rounds *c);
WorldJob rounds_at_once(WorldJob job);
uint32_t rounds_counted(const PlanProgram *program); // counted repeats
// Runs both, and the rounds again. Losses of the first step have the same bits in fp32 (not in blocks, where a node's
// rows of a round are added up there), gradients and what follows agree to rounding; what runs again has the same bits. Returns how far gradients are apart.
double rounds_compare(const Rounds *c);

#endif
