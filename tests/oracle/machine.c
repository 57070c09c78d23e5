// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/machine.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

void machine_use_cache(void) {
    setenv("MOEC_CACHE_DIR", MOEC_BINARY_DIR "/test-cache", 0);
}

bool machine_has_gpu(const char *arch) {
    char device[32], target[32];
    setenv("MOEC_VGPU_LIBRARY", MOEC_BINARY_DIR "/libmoec-vgpu.so", 0);
    snprintf(device, sizeof device, "vgpu:%s", arch);
    snprintf(target, sizeof target, "cuda:%s", arch);
    return exec_fits(device, target) == OK;
}

Plan *machine_plan(Model *m, int32_t sequences, int batches, How how) {
    LowerOptions options = { .microbatch = sequences, .microbatches = batches, .no_fusion = how.no_fusion,
                             .precision = how.precision, .recompute = how.recompute,
                             .piece = how.piece };
    options.programs[PROGRAM_STEP] = true;
    char target[32];
    snprintf(target, sizeof target, "cuda:%s", how.gpu ? how.gpu : "");
    if (how.gpu) options.target = target;
    Plan *plan = lower_model(m, &options);
    if (!plan) fail_msg("%s: not lowered: %s\n  hint: %s", m->name, m->diag.message, m->diag.hint);
    return plan;
}

static void must(Status status) {
    if (status != OK) fail_msg("%s (%s)", status_message(), status_trail_text());
}

Exec *machine_exec(const Plan *plan, int threads, bool poison) {
    Exec *exec = NULL;
    char device[32] = "cpu";
    if (!strncmp(plan->target, "cuda:", 5)) snprintf(device, sizeof device, "vgpu:%s", plan->target + 5);
    must(exec_create(plan, &(ExecOptions){ .device = device, .threads = threads, .poison = poison, .small_pages = true }, &exec));
    if (strcmp(device, "cpu")) must(exec_init(exec, 1)); // a GPU's memory holds nothing before
    return exec;
}

int64_t plan_param_n(const PlanParam *param) {
    int64_t n = 1;
    for (int i = 0; i < param->n_dims; i++) n *= param->dims[i];
    return n;
}

void machine_load(Exec *exec, const Plan *plan, const Interp *from) {
    char *weights = exec_region(exec, REGION_weights);
    for (uint32_t i = 0; i < plan->n_params; i++) {
        uint32_t param = param_of(from->m, plan->params[i].name);
        float *at = (float *)(weights + plan->params[i].offset);
        assert_int_equal(plan_param_n(&plan->params[i]), from->param_n[param]);
        for (int64_t j = 0; j < from->param_n[param]; j++) at[j] = (float)from->params[param][j];
    }
    must(exec_upload(exec, REGION_weights));
    must(exec_pack(exec));
}

/* Inputs ------------------------------------------------------------------------------------------------ */

static void fill_input(const Batch *b, const PlanInput *input, void *to) {
    size_t bytes = (size_t)b->tokens * sizeof(int32_t);
    float *counts = to;
    assert_true(input->k >= 0 && input->k < INTERP_AHEAD);
    switch ((InputKind)input->kind) {
    case INPUT_tokens: memcpy(to, b->ahead[input->k], bytes); return;
    case INPUT_labels: memcpy(to, b->labels[input->k], bytes); return;
    case INPUT_positions: memcpy(to, b->positions, bytes); return;
    case INPUT_segments: memcpy(to, b->segments, bytes); return;
    case INPUT_index: memcpy(to, b->index, bytes); return;
    case INPUT_n_valid: counts[0] = (float)batch_valid(b, 0, b->tokens); return;
    case INPUT_n_valid_sequence:
        for (int64_t s = 0; s < b->tokens / b->sequence; s++) {
            counts[s] = (float)batch_valid(b, s * b->sequence, (s + 1) * b->sequence);
        }
        return;
    default: fail_msg("input kind %d", input->kind);
    }
}

static Status fill(void *user, Exec *exec, const PlanProgram *program, int microbatch) {
    const Step *step = user;
    assert_in_range(microbatch, 0, step->n - 1);
    for (uint32_t i = 0; i < program->n_inputs; i++) {
        const PlanInput *input = &program->inputs[i];
        fill_input(&step->batch[microbatch], input,
                   exec_input(exec, program, (InputKind)input->kind, input->k));
    }
    return OK;
}

static void set_scalars(Exec *exec, const Step *step) {
    int64_t valid = 0;
    for (int b = 0; b < step->n; b++) valid += batch_valid(&step->batch[b], 0, step->batch[b].tokens);
    float *scalars = exec_scalars(exec);
    static const struct {
        ScalarSlot slot;
        float value;
    } fixed[] = {
        { SCALAR_lr, 0 },      { SCALAR_decay, 0 },       { SCALAR_beta1, 0.9f },    { SCALAR_beta2, 0.95f },
        { SCALAR_eps, 1e-8f }, { SCALAR_correction1, 1 }, { SCALAR_correction2, 1 }, { SCALAR_clip, 1e30f },
    };
    for (int i = 0; i < COUNT_OF(fixed); i++) scalars[fixed[i].slot] = fixed[i].value;
    scalars[SCALAR_inv_step] = (float)(1.0 / (double)max_i64(1, valid));
    const int32_t step_number = TEST_STEP, seed = TEST_SEED; // stored as bits
    memcpy(&scalars[SCALAR_step], &step_number, sizeof step_number);
    memcpy(&scalars[SCALAR_seed], &seed, sizeof seed);
}

void machine_step(Exec *exec, const Plan *plan, const Step *step) {
    const PlanProgram *program = plan_program(plan, "step");
    assert_non_null(program);
    assert_int_equal(plan->microbatches, step->n);
    set_scalars(exec, step);
    must(exec_run(exec, program, fill, (void *)step));
    must(exec_download(exec, REGION_weights));
    must(exec_download(exec, REGION_grads));
}

/* Results ------------------------------------------------------------------------------------------------- */

Hash machine_bits(const Exec *exec, const Plan *plan, Region region) {
    return hash_bytes(exec_region(exec, region), (size_t)plan->region_bytes[region]);
}

Hash machine_results(const Exec *exec, const Plan *plan) {
    const PlanProgram *program = plan_program(plan, "step");
    Hash parts[2 + 256] = { machine_bits(exec, plan, REGION_weights), machine_bits(exec, plan, REGION_grads) };
    assert_in_range(program->n_metrics, 1, 256);
    for (uint32_t i = 0; i < program->n_metrics; i++) {
        int64_t n;
        float *values = exec_metric(exec, program, i, &n);
        parts[2 + i] = hash_bytes(values, (size_t)n * sizeof *values);
    }
    return hash_bytes(parts, (2 + program->n_metrics) * sizeof *parts);
}

static double *doubles(const Exec *exec, const Plan *plan, uint32_t param, Region region) {
    int64_t n = plan_param_n(&plan->params[param]);
    const float *from = (const float *)((const char *)exec_region(exec, region) + plan->params[param].offset);
    double *to = malloc((size_t)(n + 1) * sizeof *to);
    for (int64_t i = 0; i < n; i++) to[i] = from[i];
    return to;
}

double *machine_gradient(const Exec *exec, const Plan *plan, uint32_t param) {
    return doubles(exec, plan, param, REGION_grads);
}

double *machine_weights(const Exec *exec, const Plan *plan, uint32_t param) {
    return doubles(exec, plan, param, REGION_weights);
}
