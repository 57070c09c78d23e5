// SPDX-License-Identifier: Apache-2.0
// How many microbatches a rank holds at once: pipeline.c's orders in closed form (a test compares).
#include "compiler/search/private.h"

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
