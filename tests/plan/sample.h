// SPDX-License-Identifier: Apache-2.0
// A small plan made by hand: a step (clear, forward, backward, update) and an evaluation of a model
// with a parameter per token, y[t] = scale[t] * token[t] + bias[t % n], loss = sum of y * y / 2
// over the valid. Kernels are written here in C; nothing of the compiler takes part.
#ifndef MOEC_TESTS_SAMPLE_H
#define MOEC_TESTS_SAMPLE_H

#include "runtime/plan/plan.h"

enum { SAMPLE_BIAS = 70, SAMPLE_COUNTS = 4, SAMPLE_ROUNDS = 3 };

// `tokens` is a multiple of 4.
Plan *sample_plan(int tokens, int microbatches);

uint32_t sample_source(Plan *plan, const char *text);
// `args`: "const f32 x, mut i32 y": the launch table; the source's launcher is generated from it.
uint32_t sample_kernel(Plan *plan, const char *entry, const char *args, const char *body,
                       int64_t tiles);
// `live`: first and last instruction of an act buffer; -1, -1 elsewhere (sample_finish fills them
// in).
uint32_t sample_buffer(PlanProgram *program, const char *name, Dtype dtype, Region region,
                       int64_t offset, int64_t n, int first, int last);
void sample_segment(PlanProgram *program, const char *name);
// `operands`: "< x, += y", names of buffers.
void sample_instr(Plan *plan, PlanProgram *program, const char *kernel, const char *operands);
void sample_row(PlanProgram *program, uint32_t segment, int microbatch);
// "gather", "exchange", ..; `peer` of send and recv.
void sample_crossing(PlanProgram *program, PlanOp op, PlanGroup group, int peer, const char *operands);
// Lives outside act, sizes of regions, act_bytes and act_bound: call when all is added.
void sample_finish(Plan *plan);
PlanProgram *sample_program(Plan *plan, const char *name);
// Gives a sample plan a packed copy of `scale`, each number twice, made by program "pack" and again
// at the end of the step.
void sample_pack(Plan *plan);
// Gives it a program "halves": y = 2 scale + 1, a half at a time, through half a buffer of act.
void sample_halves(Plan *plan);

// A plan of one stage whose only program, "eval", takes tokens [4] to y [4]:
// - pp of 1: all ranks of dp give their numbers to all, then to each its own part: y[j % n] counts, with
//   the weight 1 + j, what member j gave this one;
// - pp of 2: stage 0 sends its numbers to stage 1, which sends twice of them back; y is what was received.
Plan *sample_ranks(int pp, int dp, int stage);
// Gathers and exchanges of group dp become a start and, right behind it, a wait.
void sample_begun(Plan *plan, PlanProgram *program);
// A plan of two ranks of ep that read and write each other's memory: tokens [4] to y [4], over two segments
// a microbatch. With x0, x1 the numbers of rank 0 and 1, rank m ends with
// 5 * (x0 + 10 * x1) + x0 * (1 + m) + x1 * (1 + m).
Plan *sample_remote(int microbatches);
// A plan of two ranks of ep with a counted repeat around puts and barriers. Both ask for as many trips as the
// token says: t = tokens[0], t / 1000 * (t % 1000 / 100), at most SAMPLE_ROUNDS. Rank m ends with
// trips * (x0 + x1) * (1 + m).
Plan *sample_rounds(int microbatches);

#endif
