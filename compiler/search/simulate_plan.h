// SPDX-License-Identifier: Apache-2.0
// Plans as what is simulated (simulate.h): an op for each instruction, or two where rows cross ranks.
#ifndef MOEC_SIMULATE_PLAN_H
#define MOEC_SIMULATE_PLAN_H

#include "compiler/cost/launch.h"
#include "compiler/search/simulate.h"

// Of an instruction, at even loads. A launch takes `here` on its rank, and moving rows takes until `rows` after its
// begin; a crossing takes `here` in an order of transfers. `work`: of a launch that moves rows, the PlanWork that
// `here` counts as.
typedef struct SimSeconds { double here, rows; uint8_t link, work; } SimSeconds;

// By instruction, on a described machine.
SimSeconds *sim_seconds(const Plan *plan, const PlanProgram *program, const CostCluster *cluster, Arena *arena);
// Plans of all stages, in order, with the seconds of each one's instructions of that program. ERR_INPUT if
// a plan has no such program. A repeat whose trips are counted makes one.
Status sim_stages(const Plan *const *plans, int32_t n, const char *program, SimSeconds *const *seconds,
                  Arena *arena, SimStage **out);

#endif
