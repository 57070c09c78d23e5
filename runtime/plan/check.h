// SPDX-License-Identifier: Apache-2.0
// Private to runtime/plan: the two halves of the checker. check.c has the list of rules.
#ifndef MOEC_PLAN_CHECK_H
#define MOEC_PLAN_CHECK_H

#include "runtime/plan/words.h"

#define REFUSE(rule, ...) return status_fail(ERR_FORMAT, "plan check, " rule ": " __VA_ARGS__)

// Ranges of bytes.
typedef struct Span {
    int64_t begin, end;
} Span;
typedef struct Spans {
    Span *items;
    uint32_t n, cap;
} Spans;
void spans_add(Spans *spans, Arena *arena, int64_t begin, int64_t bytes);
void spans_merge(Spans *spans); // sorts; joins what touches
bool spans_cover(const Spans *merged, int64_t begin, int64_t bytes);

int64_t checked_bytes(const int64_t *dims, int n_dims,
                      int64_t item); // -1: a dimension < 1, or too large

// When a segment runs: before all microbatches, in each, after all.
typedef enum Phase { PHASE_BEFORE, PHASE_BODY, PHASE_AFTER } Phase;

typedef struct ProgramCheck {
    const Plan *plan;
    const PlanProgram *program;
    Arena *scratch;
    bool is_step, is_pack;
    uint8_t *phase;         // per instruction, after check_rows
    int32_t n_microbatches; // that the rows run
    int32_t slots;          // that the rows use, before they have been checked
    bool pipelined;         // rows may interleave microbatches: a stage of several
    bool *precedes;         // [segments][segments]: in every microbatch? of a pipelined program
    uint32_t *segment;      // per instruction
    uint32_t *last_row;     // per segment
} ProgramCheck;

// NULL when it has none: a program without operands has no table of them.
static inline const PlanOperand *check_operands(const PlanProgram *program,
                                                const PlanInstr *instr) {
    return instr->n_operands ? &program->operands[instr->operands] : NULL;
}

Status check_program(const Plan *plan, const PlanProgram *program, Arena *scratch);
/* check_rows.c */
Status check_pipelined_rows(ProgramCheck *c);
/* check_memory.c */
Status check_lives(const ProgramCheck *c);
Status check_clashes(const ProgramCheck *c);
/* check_flow.c */
Status check_interface(const ProgramCheck *c);
Status check_order(const ProgramCheck *c);
Status check_gradients(const ProgramCheck *c);
/* check_crossing.c */
Status check_crossing(const ProgramCheck *c, uint32_t number);
/* check_halves.c */
Status check_last(const ProgramCheck *c);         // what runs in last rows only: before lives are read
Status check_halves(const ProgramCheck *c);       // starts and waits; needs phases, lives
// Whether an instruction runs in row r.
static inline bool check_runs(const ProgramCheck *c, const PlanInstr *instr, uint32_t r) {
    return !instr->last || c->last_row[c->program->rows[r].segment] == r;
}
// From this row on the program does what it does but once.
uint32_t check_once_from(const ProgramCheck *c);
/* check_remote.c */
Status check_remote_operand(const ProgramCheck *c, uint32_t number, const PlanOperand *operand);
Status check_remote(const ProgramCheck *c);       // needs phases, lives
/* check_align.c */
Status check_align(const ProgramCheck *c);        // pads of expert rows
/* check_repeat.c */
Status check_repeats(const ProgramCheck *c);      // their form: before anything else reads them
Status check_repeat_flow(const ProgramCheck *c);
// Do all ranks of the group run a counted repeat equally often?
bool check_agreed(const ProgramCheck *c, const PlanRepeat *repeat, PlanGroup group);
/* check_buckets.c */
Status check_buckets(const Plan *plan, Arena *scratch); // the table, and parameters in it
Status check_shards(const ProgramCheck *c);             // of a step
// Writes of gathered masters into weights: the i-th instruction fills the weights of a bucket.
const PlanBucket *check_gathers(const ProgramCheck *c, uint32_t number);
/* check_sharded.c */
Status check_sharded(const ProgramCheck *c); // buckets that no rank keeps whole
/* check_packed.c */
Status check_packed(const Plan *plan, Arena *scratch);

#endif
