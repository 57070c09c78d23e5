// SPDX-License-Identifier: Apache-2.0
// Sampling: the last tokens, at most a sequence, go through the prefill program; the logits of the
// last one give the next. Only the first sequence of the program's microbatch is used.
#include <math.h>
#include <stdlib.h>

#include "runtime/train/train.h"

/* Drawing -------------------------------------------------------------------------------------- */

static _Thread_local const float *sort_logits;

static int by_logit(const void *left, const void *right) {
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    if (sort_logits[a] != sort_logits[b]) return sort_logits[a] > sort_logits[b] ? -1 : 1;
    return a - b; // equal logits: the lower id first
}

int32_t sample_draw(const float *logits, int32_t n, double temperature, double top_p,
                    double uniform, int32_t *work) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    if (temperature <= 0) return best;
    for (int32_t i = 0; i < n; i++) work[i] = i;
    sort_logits = logits;
    qsort(work, (size_t)n, sizeof *work, by_logit);
    double total = 0, kept = 0, most = logits[best];
    for (int32_t i = 0; i < n; i++) total += exp((logits[i] - most) / temperature);
    int32_t n_kept = 0; // the likeliest that reach top_p, at least one
    while (n_kept < n && (n_kept == 0 || kept < top_p * total))
        kept += exp((logits[work[n_kept++]] - most) / temperature);
    double left = uniform * kept;
    for (int32_t i = 0; i < n_kept; i++) {
        left -= exp((logits[work[i]] - most) / temperature);
        if (left < 0) return work[i];
    }
    return work[n_kept - 1];
}

static bool all_finite(const float *logits, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(logits[i])) return false;
    return true;
}

/* The window ----------------------------------------------------------------------------------- */

typedef struct Window { int32_t *tokens; int64_t n, sequence, rows /* T */; } Window;

static Status fill_window(void *user, Exec *exec, const PlanProgram *program, int microbatch) {
    const Window *w = user;
    for (uint32_t i = 0; i < program->n_inputs; i++) {
        const PlanInput *input = &program->inputs[i];
        void *at = exec_input(exec, program, (InputKind)input->kind, input->k);
        if (!at)
            return status_fail(ERR_INTERNAL, "the program %s has no buffer for its input %u",
                               program->name, i);
        int32_t *ids = at;
        float *counts = at;
        if (input->kind == INPUT_n_valid || input->kind == INPUT_n_valid_sequence) {
            int64_t n = input->kind == INPUT_n_valid ? 1 : w->rows / w->sequence;
            for (int64_t s = 0; s < n; s++) counts[s] = s || microbatch > 0 ? 0 : (float)(w->n - 1);
            continue;
        }
        for (int64_t t = 0; t < w->rows; t++) {
            bool inside = microbatch <= 0 && t + input->k < w->n; // w->n is at most one sequence
            switch (input->kind) {
            case INPUT_tokens:
            case INPUT_labels: ids[t] = inside ? w->tokens[t + input->k] : -1; break;
            case INPUT_positions: ids[t] = (int32_t)(t % w->sequence); break;
            case INPUT_segments: ids[t] = (int32_t)(t / w->sequence); break;
            default: ids[t] = (int32_t)t; break; // index
            }
        }
    }
    return OK;
}

static Status logits_of(const Plan *plan, const PlanProgram *program, uint32_t *buffer) {
    for (uint32_t i = 0; i < program->n_outputs; i++) {
        *buffer = program->outputs[i].buffer;
        const PlanBuffer *b = &program->buffers[*buffer];
        if (b->dtype == DTYPE_F32 && b->n_dims == 2 && b->dims[0] == plan->tokens &&
            b->dims[1] == plan->vocab)
            return OK;
    }
    return status_fail(ERR_INPUT, "the program 'prefill' has no output of logits [%lld, %lld]",
                       (long long)plan->tokens, (long long)plan->vocab);
}

Status sample_run(Exec *exec, const Plan *plan, const SampleOptions *options) {
    PlanProgram *program = plan_program(plan, "prefill");
    if (!program)
        return status_fail(ERR_INPUT, "the plan has no program 'prefill', which sampling runs");
    uint32_t buffer = 0;
    TRY(logits_of(plan, program, &buffer));
    int64_t size = plan->sequence, known = options->n_prompt;
    Arena *arena = arena_create();
    int32_t *tokens = ARENA_ARRAY(arena, int32_t, known + options->length + 1);
    int32_t *work = ARENA_ARRAY(arena, int32_t, plan->vocab);
    for (int64_t i = 0; i < known; i++) tokens[i] = options->prompt[i];
    // Without a prompt a newline begins the text, or token 0 where there is none.
    if (!known) tokens[known++] = plan->vocab > '\n' ? '\n' : 0;
    Status status = OK;
    for (int64_t i = 0; i < options->length && status == OK; i++, known++) {
        int64_t n = min_i64(known, size);
        Window window = { tokens + known - n, n, size, plan->tokens };
        status = exec_run(exec, program, fill_window, &window);
        if (status != OK) break;
        const float *logits =
            (const float *)exec_buffer(exec, program, buffer) + (n - 1) * plan->vocab;
        if (!all_finite(logits, plan->vocab)) {
            status = status_fail(ERR_NUMERIC, "the logits are not finite: the model has diverged\n"
                                              "  hint: train with a lower --lr, or sample from an "
                                              "earlier checkpoint");
            break;
        }
        double uniform = hash_uniform(options->seed, (uint64_t)i, 0x73616d706c65); // "sample"
        tokens[known] = sample_draw(logits, (int32_t)plan->vocab, options->temperature,
                                    options->top_p, uniform, work);
        status = options->emit(options->user, tokens[known]);
        if (status == OK && train_stopping())
            status = status_fail(ERR_INTERRUPTED, "interrupted while sampling");
    }
    arena_destroy(arena);
    return status;
}
