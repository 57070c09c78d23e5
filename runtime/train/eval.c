// SPDX-License-Identifier: Apache-2.0
// Held-out loss: the eval program over a set's sequences, each seeing its own past only. Means of
// the runs are weighed by their targets and added in double, in order. Ranks divide the sequences of
// a run as they divide those of a step.
#include <math.h>
#include <stdlib.h>

#include "runtime/train/train.h"

static int program_microbatches(const PlanProgram *program) {
    int n = 1;
    for (uint32_t i = 0; i < program->n_rows; i++)
        if (program->rows[i].microbatch >= n) n = program->rows[i].microbatch + 1;
    return n;
}

typedef struct Evaluation {
    Exec *exec;
    const PlanProgram *program;
    MetricSet metrics;
    int loss;                    // of them
    DataBatch batch;
    int64_t *sequences, n_sequences; // of this rank in a run
    int64_t used;                // sequences of the set
    Progress *progress;
    double sum;                  // nats
} Evaluation;

// Sequences [first, ...) of those used, evenly spaced in the set; empty past the last.
static Status run_some(Evaluation *e, int64_t first, EvalResult *out) {
    Comm *comm = e->metrics.comm;
    const DataSet *set = e->batch.set;
    for (int64_t i = 0; i < e->n_sequences; i++) {
        int64_t at = first + data_batch_number(&e->batch, i);
        e->sequences[i] = at < e->used ? (int64_t)((__int128)at * set->n_sequences / e->used) : -1;
    }
    int64_t targets = data_batch_targets(&e->batch, e->n_sequences);
    TRY(comm_sum(comm, GROUP_dp, &targets, 1));
    e->batch.first_index = first * set->sequence;
    exec_scalars(e->exec)[SCALAR_inv_step] = 1.0f / (float)max_i64(targets, 1);
    TRY(exec_run(e->exec, e->program, data_fill, &e->batch));
    TRY(metric_set_read(&e->metrics));
    e->sum += (double)e->metrics.parts[e->loss].at[0] * (double)targets;
    out->n_targets += targets;
    if (e->progress)
        progress_show(e->progress, false, "evaluating: %lld of %lld tokens",
                      (long long)out->n_targets, (long long)(e->used * set->sequence));
    int64_t stopping = train_stopping();
    TRY(comm_sum(comm, GROUP_world, &stopping, 1));
    if (!stopping) return OK;
    return comm_agree(comm, status_fail(ERR_INTERRUPTED, "interrupted while evaluating"));
}

static Status run_all(Evaluation *e, Arena *arena, EvalResult *out) {
    TRY(metric_set_open(e->exec, e->program, arena, &e->metrics));
    e->loss = metrics_main_loss(e->metrics.metrics, e->metrics.n);
    if (e->loss < 0) return status_fail(ERR_INPUT, "the plan's program 'eval' reports no loss");
    e->batch.ranks = comm_members(e->metrics.comm, GROUP_dp);
    e->batch.rank = comm_member(e->metrics.comm, GROUP_dp);
    e->n_sequences = e->batch.per_microbatch * program_microbatches(e->program);
    e->batch.sequences = e->sequences = ARENA_ARRAY(arena, int64_t, e->n_sequences);
    float *scalars = exec_scalars(e->exec);
    memset(scalars, 0,
           N_SCALARS * sizeof *scalars); // step and seed too: what it says is of the weights
    for (int64_t first = 0; first < e->used; first += e->n_sequences * e->batch.ranks)
        TRY(run_some(e, first, out));
    return OK;
}

Status eval_run(Exec *exec, const Plan *plan, const DataSet *set, int64_t limit, Progress *progress,
                EvalResult *out) {
    *out = (EvalResult) { 0 };
    PlanProgram *program = plan_program(plan, "eval");
    if (!program) return status_fail(ERR_INPUT, "the plan has no program 'eval'");
    if (!set->n_sequences)
        return status_fail(ERR_ARGUMENT,
                           "nothing to evaluate on\n  hint: --held-out N or --eval-data FILE...");
    Evaluation e = { .exec = exec,
                     .program = program,
                     .batch = { .set = set, .per_microbatch = plan->tokens / plan->sequence },
                     .used = limit ? min_i64(set->n_sequences, div_up(limit, set->sequence))
                                   : set->n_sequences,
                     .progress = progress };
    Arena *arena = arena_create();
    Status status = run_all(&e, arena, out);
    arena_destroy(arena);
    out->nats = e.sum / (double)max_i64(out->n_targets, 1);
    return status;
}

double eval_bits(const EvalResult *result) {
    return result->nats / 0.69314718055994530942;
}

void eval_print(const EvalResult *result, bool bytes, Text *out) {
    text_printf(out, "held out: %.4f bits per %s over %lld %s (loss %.4f, perplexity %.3f)",
                eval_bits(result), bytes ? "byte" : "token", (long long)result->n_targets,
                bytes ? "bytes" : "tokens", result->nats, exp(result->nats));
}
