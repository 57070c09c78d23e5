// SPDX-License-Identifier: Apache-2.0
// A simulation to look at: what every stage was at when, for terminals, as an SVG, as events of a trace; and where the
// step went.
#ifndef MOEC_SEARCH_PICTURE_H
#define MOEC_SEARCH_PICTURE_H

#include "compiler/search/simulate.h"

// The second op of an instruction (SimOp.instr, trip) goes on where the first has ended, and has no span of its own.
typedef struct SimSpan { int32_t row, op /* or SPAN_TAKEN */; double begin_s, end_s; } SimSpan;
typedef struct SimSpans { SimSpan *at; int64_t n, cap; } SimSpans; // of a stage, by begin but for transfers

// `span` of SimOptions is sim_picture_span, with this as `user`. Pictures of it are made when the step has ended.
typedef struct SimPicture {
    const SimStage *stages; int32_t n;
    SimSpans *spans; // [n]
    Arena *arena;
} SimPicture;
SimPicture sim_picture(const SimStage *stages, int32_t n, Arena *arena);
void sim_picture_span(void *picture, int32_t stage, int32_t row, int32_t op, int64_t begin_ps, int64_t end_ps);

// A line per stage, `width` columns of equal time: a digit is the last of the forward microbatch that took most
// of it, a letter of the backward one (a: 0, 10, 20, ..), + gradients of weights apart, u the update, ~ a wait for
// a crossing, a blank a wait for another stage. Ends with a line of these. Segments are told by how their names begin.
void sim_picture_print(const SimPicture *picture, const Sim *sim, int width, Text *out);
void sim_picture_svg(const SimPicture *picture, const Sim *sim, const char *title, Text *out);
// A table: milliseconds and share of every kind, for the mean of all stages and for the first and last few.
void sim_waterfall_print(const Sim *sim, Text *out);

// Of stages that were made of plans (sim_stages): one as a timeline of its plan, of one run, in the picture's arena.
PlanTimeline sim_picture_timeline(const SimPicture *picture, const Sim *sim, int32_t stage, const Plan *plan,
                                  const PlanProgram *program);
// Of others: a stage as the process `process` of a trace. Threads: "steps"; "compute", where a row holds its kinds;
// "link", where what crosses ranks stands, with arrows from sends to what received them.
void sim_picture_trace(const SimPicture *picture, const Sim *sim, int32_t stage, int32_t process, const char *name,
                       Text *out);

#endif
