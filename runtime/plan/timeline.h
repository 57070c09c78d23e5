// SPDX-License-Identifier: Apache-2.0
// What a rank did when, in runs of a program: filled by the executor as it was, by the simulator as it
// expects it to be, and printed in one way, so that both open side by side.
#ifndef MOEC_TIMELINE_H
#define MOEC_TIMELINE_H

#include "runtime/plan/plan.h"

// What an instruction spends time on. X(name, what it says)
#define PLAN_WORK(X)                                                                               \
    X(dense, "dense GEMM") X(experts, "expert GEMM") X(attention, "attention")                     \
    X(memory, "memory-bound") X(optimizer, "optimizer")                                            \
    X(rows, "rows to experts") X(gather, "gather") X(exchange, "exchange")                         \
    X(messages, "between stages") X(barrier, "barrier")
typedef enum PlanWork {
#define X(name, text) WORK_##name,
    PLAN_WORK(X)
#undef X
    N_WORK
} PlanWork;
extern const char *const plan_work_names[N_WORK];

// Of each instruction of the program, in the arena. Launches: products with or without offsets of experts,
// attention, and the optimizer's: what runs in a row outside microbatches; the others are bound by memory.
// Those that put or get rows are WORK_rows.
uint8_t *plan_work(const Plan *plan, const PlanProgram *program, Arena *arena);
// "matmul layers.2.ffn.matmul", "exchange bucket.1.gradient": what it does, and the first buffer it writes.
void plan_work_title(const Plan *plan, const PlanProgram *program, int32_t instr, Text *out);

enum { SPAN_INPUTS = -1 /* written by the host */, SPAN_TAKEN = -2 /* a wait for what was sent before */ };

typedef struct PlanSpan {
    int32_t row;         // of the program
    int32_t instr;       // of the program, or SPAN_..
    int32_t trip;        // of a repeat
    double begin, end;   // seconds
} PlanSpan;

typedef struct PlanRun { int32_t step; /* from 1 */ double begin, end; int64_t first, n; /* spans */ } PlanRun;

typedef struct PlanTimeline {
    const Plan *plan;
    const PlanProgram *program;
    bool transfers;      // the span of a start is all of its transfer; else it only begins there, and the picture
                         // shows it until its wait has ended
    PlanSpan *spans; int64_t n, cap; // by begin
    PlanRun *runs; int32_t n_runs, cap_runs;
} PlanTimeline;

// How many spans a run has at most.
int64_t plan_timeline_spans(const PlanProgram *program);
// Whose it is in a picture, and from which second the picture counts.
typedef struct PlanTimelineOf {
    int32_t rank, process;
    double origin;
    const char *label;   // before the rank's place: "simulated "; NULL: nothing
} PlanTimelineOf;
// Events: threads "steps", "compute" (rows, and launches within them) and one per group of ranks it talks
// to; act in use; arrows from sends to recvs, where both ends are in the picture under the same label.
void plan_timeline_print(const PlanTimeline *timeline, const PlanTimelineOf *of, Text *out);

#endif
