// SPDX-License-Identifier: Apache-2.0
// Makes the profile of a model on a cluster (compiler/cost/profile.h) from probes of lowering.
#ifndef MOEC_SEARCH_PROFILE_H
#define MOEC_SEARCH_PROFILE_H

#include "compiler/cost/profile.h"
#include "compiler/lower/lower.h"

// Probes are made when first needed, one per precision, recomputation and whether experts are on other ranks,
// of one sequence a microbatch; other choices follow from how kernels and buffers grow. `model` and `cluster` must
// outlive the profile. NULL when lowering refuses the model: model->diag says why.
CostProfile *profile_create(Model *model, const CostCluster *cluster);
// As profile_create, from probes of all layers, where that one leaves out most of those that are alike: for tests.
CostProfile *profile_create_whole(Model *model, const CostCluster *cluster);
// The same model on another cluster of the same devices' architecture, from the probes that `profile` has made;
// it must outlive this one.
CostProfile *profile_on(const CostProfile *profile, const CostCluster *cluster);
// Whether moec makes plans of such layouts today: one of few layers and ranks is lowered, with its sources. False:
// the model's diag says why not.
bool profile_plans(const CostProfile *profile, const CostChoice *choice);
void profile_destroy(CostProfile *profile); // NULL is fine

#endif
