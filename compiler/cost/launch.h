// SPDX-License-Identifier: Apache-2.0
// Costs of what a plan says, from the plan alone.
#ifndef MOEC_COST_LAUNCH_H
#define MOEC_COST_LAUNCH_H

#include "compiler/cost/cost.h"
#include "runtime/plan/plan.h"

// A launch of a plan at even loads of experts.
typedef struct CostLaunch {
    CostKernel kernel;
    CostRows rows;  // that it puts or gets, over `group`; tokens 0: none
    double room;    // rows that products of its experts have room for, over the even ones; 0: it has no experts
    double tokens, top_k, experts; // of products of experts: of this rank, of which each chooses, that this rank has
    uint8_t group;  // PlanGroup
} CostLaunch;
// By instruction; of others than launches all is zero.
CostLaunch *cost_of_program(const Plan *plan, const PlanProgram *program, Arena *arena);
CostGroup cost_plan_group(const Plan *plan, PlanGroup group);
// Of a barrier, gather, exchange, blocks (at even loads) or send. A recv has the seconds of its send.
double cost_crossing_s(const CostCluster *cluster, const Plan *plan, const PlanProgram *program,
                       const PlanInstr *instr);

#endif
