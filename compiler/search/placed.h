// SPDX-License-Identifier: Apache-2.0
// What a search knows of experts' loads that were recorded: for every number of ranks of ep the placement that leaves
// the busiest rank of each layer the least, and what that, and the order of experts, leave.
#ifndef MOEC_SEARCH_PLACED_H
#define MOEC_SEARCH_PLACED_H

#include "compiler/model/model.h"
#include "compiler/search/load.h"

typedef struct Placed Placed;

// Layers of the record are the model's, with as many experts; others of the model have none recorded: even loads are
// taken, in order. *load outlives the result, which lives in `arena`. ERR_INPUT: the record is of another model, or
// empty.
Status placed_create(const Model *model, const char *name, const Load *load, Arena *arena, Placed **out);
// The busiest rank's rows over the mean: the mean over recorded layers of `class` and over steps, for each step its own
// loads. 0: no layer of the class is recorded. class_of [layers of the model]. Made when first asked for.
double placed_imbalance(Placed *placed, const int32_t *class_of, int32_t class, int32_t ep, bool in_order);
// The same over all recorded layers; and what no placement can be below by the sums of all steps.
double placed_left(Placed *placed, int32_t ep, bool in_order, double *bound);
// [layers][*experts]: the rank of each expert; -1 where a layer has none.
int32_t *placed_ranks(Placed *placed, int32_t ep, int32_t *experts);

#endif
