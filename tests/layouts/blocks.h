// SPDX-License-Identifier: Apache-2.0
// Small models whose experts are on ranks of several nodes.
#ifndef MOEC_TEST_LAYOUTS_BLOCKS_H
#define MOEC_TEST_LAYOUTS_BLOCKS_H

#include "tests/layouts/world.h"

typedef struct Blocks {
    int dp, ep, node;            // node: ranks that share memory
    const char *mode, *count, *top_k, *sequence, *bias;
    int microbatch;
    double capacity;
    bool turned, bf16;           // turned: experts on other ranks than in order
    uint8_t recompute;           // LayoutRecompute
    int pp;                      // 0: 1
    uint8_t schedule;            // LayoutSchedule
    uint8_t params;              // LayoutParams
} Blocks;

// Rows one by one, as between ranks that all share memory. Valid until the next call.
WorldJob blocks_job(const Blocks *c);
// The same in blocks, by ranks that share memory with their node only.
WorldJob blocks_layout(WorldJob job, int node);

#endif
