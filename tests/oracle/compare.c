// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/compare.h"

#include "compiler/spec/spec.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

const Spec specs[] = {
    { "olmo.lua", 0, 2, 2, 0.3, 1, true, false },
    { "olmo.lua", 1, 1, 1, 0.3, 1, true, false }, // one token
    { "gpt_oss.lua", 0, 2, 2, 0.4, 1, true, false },
    { "deepseek.lua", 0, 2, 2, 0.4, 1, true, false },
    // Logits are 10 times a cosine of nearly parallel vectors, and the activation is a cube.
    { "latent.lua", 0, 2, 2, 0.4, 4, true, false },
    { "ids.lua", 0, 1, 2, 0.5, 1, false, true },
    { "one_expert.lua", 0, 3, 2, 0.5, 1, true, true },
    { "sets.lua", 0, 3, 2, 0.4, 1, true, false },
    { "sets.lua", 1, 5, 1, 0.4, 1, true, false }, // sequences of one token: nothing to shift
};
const int n_specs = COUNT_OF(specs);
const Spec spec_maxima = { "maxima.lua", 0, 2, 2, 0.5, 1, false, false };
const Spec spec_tiny = { "models/tiny.lua", 17, 2, 2, 0.05, 1, true, false };

const char *spec_title(const Spec *spec) {
    static char title[128];
    if (spec->sequence)
        snprintf(title, sizeof title, "%s %d x %d", spec->file, spec->sequences, spec->sequence);
    else
        snprintf(title, sizeof title, "%s %d x own", spec->file, spec->sequences);
    return title;
}

Model *spec_model(const Spec *spec) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s%s", MOEC_SOURCE_DIR, strchr(spec->file, '/') ? "" : "tests/oracle/specs/",
             spec->file);
    Text error = { 0 };
    Model *m = spec_load(path, &(SpecOptions){ 0 }, &error);
    if (!m) fprintf(stderr, "%s", text_cstr(&error));
    text_finish(&error);
    if (m && spec->sequence) m->sequence = spec->sequence;
    return m;
}

Step step_make(uint64_t seed, const Model *m, int32_t sequences, int batches) {
    Step step = { .n = batches };
    int64_t tokens = (int64_t)sequences * m->sequence;
    for (int b = 0; b < batches; b++) {
        step.batch[b] = batch_make(seed + (uint64_t)b, tokens, m->sequence, m->vocab, (int32_t)(b * tokens));
    }
    // Unequal counts, whatever chance gave: the last microbatch loses half of its labels.
    for (int k = 0; k < INTERP_AHEAD && batches > 1; k++) {
        for (int64_t t = 0; t < tokens / 2; t++) step.batch[batches - 1].labels[k][t] = -1;
    }
    return step;
}

void step_free(Step *step) {
    for (int b = 0; b < step->n; b++) batch_free(&step->batch[b]);
}

const char *param_name(const Model *m, uint32_t param) {
    return model_name(m, m->params[param].addr);
}

uint32_t param_of(const Model *m, const char *name) {
    for (uint32_t i = 0; i < m->n_params; i++) {
        if (!strcmp(param_name(m, i), name)) return i;
    }
    fail_msg("no parameter '%s'", name);
    return 0;
}

void params_copy(Interp *to, const Interp *from) {
    for (uint32_t i = 0; i < to->m->n_params; i++) {
        if (!to->params[i]) continue;
        uint32_t j = param_of(from->m, param_name(to->m, i));
        assert_int_equal(to->param_n[i], from->param_n[j]);
        memcpy(to->params[i], from->params[j], (size_t)to->param_n[i] * sizeof(double));
    }
}

double norm(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

double distance(const double *x, const double *y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sqrt(sum);
}
