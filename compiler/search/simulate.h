// SPDX-License-Identifier: Apache-2.0
// The simulator: what a step takes, from what each stage of a pipeline does in what order.
//
// Discrete events over one rank of every stage, which stands for all ranks of the stage: they do the same at
// the same time, but for the load of experts. A rank has an order of compute and orders of transfers (links),
// first come first served; stages say things to each other in messages. Time is whole picoseconds, so that a
// step is the exact sum of what its waterfall lists, and equal inputs give equal bits. What stages do is told by
// plans (simulate_plan.h) or by the costs of a layout (search_stages of search.h).
//
//   compute   the rank computes; beside a transfer under way it does so `contention` times slower
//   cross     all ranks of a group within the stage, which waits for it; in the order of its link, if it moves bytes
//   start     the same, which waits for nobody: the transfer queues in its link; `wait` ends when it has ended
//   send      a message to a stage; the row that next runs the same segment and slot waits until it is taken
//   recv      the next message of that stage and lane. A transfer begins when both ends are there; with
//             `posted`, when the sender is
//   meet      all ranks of all stages
//
// Uneven loads. What is `uneven` takes `load` times as long on the busiest rank of the group as on the mean one,
// which this one is. Until the next crossing the busy one falls behind; there all wait for it, and that is the
// waterfall's imbalance. So a step takes the sum of the largest, not the largest sum.
//
// Ranks that share cores (`sharing` above 1) are faster while others wait for another stage: as many times as there are
// stages for one that does not, up to `sharing`.
#ifndef MOEC_SIMULATE_H
#define MOEC_SIMULATE_H

#include "runtime/plan/timeline.h"

// Kinds of a waterfall: PlanWork, where of what crosses ranks only what is waited for counts, and compute that it
// slows down; then
enum { SIM_IMBALANCE = N_WORK, SIM_BUBBLE /* waits for other stages */, N_SIM_KINDS };
const char *sim_kind_name(int kind);

typedef enum SimWhat { SIM_COMPUTE, SIM_CROSS, SIM_START, SIM_WAIT, SIM_SEND, SIM_RECV, SIM_MEET } SimWhat;
enum { SIM_LINKS = 8 };

typedef struct SimOp {
    uint8_t what;          // SimWhat
    uint8_t work;          // kind of the waterfall that it counts as: PlanWork, or of compute SIM_IMBALANCE
    uint8_t lane;          // send, recv: PlanLane
    uint8_t link;          // cross, start: which order of transfers, below SIM_LINKS
    bool uneven;           // compute, cross
    bool last;             // done only in the last row of its segment
    int32_t peer;          // send, recv: the other stage
    int32_t start;         // wait: the op that it ends
    int64_t ps;            // at even loads; of a wait 0; of messages the sender's counts
    int32_t instr, trip;   // of a plan, for pictures
} SimOp;

typedef struct SimStage {
    const SimOp *ops; int32_t n_ops;
    const PlanSegment *segments; uint32_t n_segments; // of ops
    const PlanRow *rows; uint32_t n_rows;
} SimStage;

typedef struct SimOptions {
    double contention;     // 1 or more; 0: 1
    double sharing;        // ranks share cores: how much faster one is while the others wait (CostDevice); 0: 1
    bool posted;           // receives are posted ahead of their instruction
    double load;           // busiest rank over mean; 0: 1
    // The same of one row and op; NULL: `load` everywhere.
    double (*load_of)(void *user, int32_t stage, int32_t row, int32_t op);
    // Told of all that takes time: of what a rank does, and of transfers beside it (the op is a start). In the
    // order in which stages get there, each stage's by begin, but for transfers.
    void (*span)(void *user, int32_t stage, int32_t row, int32_t op /* or SPAN_TAKEN */, int64_t begin_ps,
                 int64_t end_ps);
    void *user;
} SimOptions;

typedef struct Sim {
    int64_t step_ps;
    int32_t n;                          // stages
    int64_t (*stage_ps)[N_SIM_KINDS];   // [n]: each adds up to step_ps
    int64_t *busy_ps;                   // [n]: computing; a lower bound of the step
    int64_t (*link_ps)[SIM_LINKS];      // [n]: of transfers in each link
} Sim;

// ERR_INPUT if some stage would wait for ever: which one, where, and for what; or if all that the stages do, one after
// another, is longer than SIM_LONGEST_S.
Status simulate(const SimStage *stages, int32_t n, const SimOptions *options, Arena *arena, Sim *out);
// Of all stages together, each counted as much: adds up to step_ps too, but for rounding.
double sim_share_s(const Sim *sim, int kind);
#define SIM_LONGEST_S 8e6 // of a step: 64 bits of picoseconds are 107 days
// Times of one op beyond that are cut, and their step is refused.
static inline int64_t sim_ps(double seconds) {
    return (int64_t)((seconds < SIM_LONGEST_S ? seconds : SIM_LONGEST_S) * 1e12 + 0.5);
}

#endif
