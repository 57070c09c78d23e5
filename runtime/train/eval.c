// SPDX-License-Identifier: Apache-2.0
// Held-out loss: the eval program over a set's sequences, each seeing its own past only. Means of
// the microbatches are weighed by their targets and added in double, in order.
#include <math.h>
#include <stdlib.h>

#include "runtime/train/train.h"

static int program_microbatches(const PlanProgram *program) {
    int n = 1;
    for (uint32_t i = 0; i < program->n_rows; i++)
        if (program->rows[i].microbatch >= n) n = program->rows[i].microbatch + 1;
    return n;
}

Status eval_run(Exec *exec, const Plan *plan, const DataSet *set, int64_t limit, Progress *progress,
                EvalResult *out) {
    *out = (EvalResult) { 0 };
    PlanProgram *program = plan_program(plan, "eval");
    int loss = program ? metrics_main_loss(program) : -1;
    if (loss < 0)
        return status_fail(ERR_INPUT, "the plan has no program 'eval' with a loss to report");
    if (!set->n_sequences)
        return status_fail(ERR_ARGUMENT,
                           "nothing to evaluate on\n  hint: --held-out N or --eval-data FILE...");
    int64_t per_microbatch = plan->tokens / plan->sequence,
            per_run = per_microbatch * program_microbatches(program);
    int64_t used =
        limit ? min_i64(set->n_sequences, div_up(limit, set->sequence)) : set->n_sequences;
    int64_t *sequences = memory_alloc(sizeof *sequences * (size_t)per_run);
    DataBatch batch = { set, sequences, per_microbatch, 0 };
    float *scalars = exec_scalars(exec);
    memset(scalars, 0,
           N_SCALARS * sizeof *scalars); // step and seed too: what it says is of the weights
    double sum = 0;
    Status status = OK;
    for (int64_t first = 0; first < used && status == OK; first += per_run) {
        for (int64_t i = 0; i < per_run; i++) // evenly spaced; empty past the last
            sequences[i] =
                first + i < used ? (int64_t)((__int128)(first + i) * set->n_sequences / used) : -1;
        int64_t targets = data_batch_targets(&batch, per_run), n;
        batch.first_index = first * set->sequence;
        scalars[SCALAR_inv_step] = 1.0f / (float)max_i64(targets, 1);
        status = exec_run(exec, program, data_fill, &batch);
        if (status != OK) break;
        sum += (double)exec_metric(exec, program, (uint32_t)loss, &n)[0] * (double)targets;
        out->n_targets += targets;
        if (progress)
            progress_show(progress, false, "evaluating: %lld of %lld tokens",
                          (long long)out->n_targets, (long long)(used * set->sequence));
        if (train_stopping()) status = status_fail(ERR_INTERRUPTED, "interrupted while evaluating");
    }
    memory_free(sequences);
    out->nats = sum / (double)max_i64(out->n_targets, 1);
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
