// SPDX-License-Identifier: Apache-2.0
// The learning rate over a run, and the scalars a step's kernels read.
#include <math.h>

#include "runtime/train/train.h"

Status schedule_check(const Options *options) {
    if (options->steps || options->seconds > 0) return OK;
    return status_fail(ERR_ARGUMENT, "no end to the run\n  hint: give --steps N or --seconds S");
}

double schedule_progress(const Options *options, int64_t step, double seconds) {
    double by_steps = options->steps ? (double)step / (double)options->steps : 0;
    double by_time = options->seconds > 0 ? seconds / options->seconds : 0;
    return fmin(1, fmax(by_steps, by_time));
}

double schedule_lr(const Options *options, int64_t step, double seconds) {
    double progress = schedule_progress(options, step, seconds), fall = 1;
    double part = options->decay_fraction; // of the run, at its end
    double rise = options->warmup ? fmin(1, (double)(step + 1) / (double)options->warmup) : 1;
    switch (options->schedule) {
    case SCHEDULE_COSINE: fall = (1 + cos(progress * 3.14159265358979323846)) / 2; break;
    case SCHEDULE_LINEAR: fall = 1 - progress; break;
    case SCHEDULE_WSD: fall = progress + part <= 1 ? 1 : (1 - progress) / part; break;
    default: return options->lr * rise;
    }
    return options->lr * rise * (options->min_lr + (1 - options->min_lr) * fall);
}

static float int_bits(int64_t value) {
    uint32_t bits = (uint32_t)value;
    float as_float;
    memcpy(&as_float, &bits, sizeof as_float);
    return as_float;
}

void schedule_scalars(const Options *options, int64_t step, double lr, int64_t targets,
                      float *scalars) {
    scalars[SCALAR_lr] = (float)lr;
    scalars[SCALAR_decay] = (float)options->decay;
    scalars[SCALAR_beta1] = (float)options->beta1;
    scalars[SCALAR_beta2] = (float)options->beta2;
    scalars[SCALAR_eps] = (float)options->eps;
    scalars[SCALAR_correction1] = (float)(1 - pow(options->beta1, (double)(step + 1)));
    scalars[SCALAR_correction2] = (float)(1 - pow(options->beta2, (double)(step + 1)));
    scalars[SCALAR_clip] = (float)options->clip;
    scalars[SCALAR_inv_step] = 1.0f / (float)max_i64(targets, 1);
    scalars[SCALAR_step] = int_bits(step);
    scalars[SCALAR_seed] = int_bits(options->seed);
    scalars[SCALAR_grad_norm] = scalars[SCALAR_skipped] = 0;
    scalars[SCALAR_grad_scale] = 1;
}
