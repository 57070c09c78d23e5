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

/* picture.c */

// What was simulated as timelines: `span` of SimOptions, with this as `user`.
typedef struct SimPicture {
    const SimStage *stages; int32_t n;
    PlanTimeline *timelines; // [n], of one run
    Arena *arena;
} SimPicture;
SimPicture sim_picture(const Plan *const *plans, const SimStage *stages, int32_t n, const char *program,
                       Arena *arena);
void sim_picture_span(void *picture, int32_t stage, int32_t row, int32_t op, int64_t begin_ps, int64_t end_ps);
void sim_picture_end(SimPicture *picture, const Sim *sim);
// A line per stage, `width` columns of equal time: a digit is the last of the forward microbatch that took most
// of it, a letter of the backward one (a: 0, 10, 20, ..), + gradients of weights apart, u the update, ~ a wait for
// a crossing, a blank a wait for another stage. Ends with a line of these.
void sim_picture_print(const SimPicture *picture, const Sim *sim, int width, Text *out);
void sim_picture_svg(const SimPicture *picture, const Sim *sim, const char *title, Text *out);
// A table: milliseconds and share of every kind, for the mean of all stages and for the first and last few.
void sim_waterfall_print(const Sim *sim, Text *out);

#endif
