// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/probe.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

double probe_scalar(Probe *p) {
    interp_run(p->in, p->step->batch, p->step->n);
    return p->node ? p->in->values[p->node].x[0] : p->in->loss;
}

static double difference(Probe *p, double *x, double h) {
    const double at = *x;
    double f[4];
    static const double steps[4] = { 1, -1, 2, -2 };
    for (int i = 0; i < 4; i++) {
        *x = at + steps[i] * h;
        f[i] = probe_scalar(p);
    }
    *x = at;
    return (8 * (f[0] - f[1]) - (f[2] - f[3])) / (12 * h);
}

// The error relative to the bound. A step over a kink, or a jump of a higher derivative (the cube of a
// relu), is mended by a shorter step, which rounding makes no better than 1e-15 / h; a wrong gradient
// is wrong at every step.
static double error_at(Probe *p, double *x, double gradient, double largest, double f, double *d) {
    double error = INFINITY;
    for (double h = 1e-4; h > 5e-7 && !(error <= 1); h /= 10) {
        double bound = 1e-8 * largest + fmax(1e-10, 1e-15 / h) * (1 + fabs(f));
        *d = difference(p, x, h);
        error = fabs(*d - gradient) / bound;
    }
    return isnan(error) ? INFINITY : error;
}

void probe(Probe *p, uint32_t param, const double *gradient, int samples, double f) {
    int64_t n = p->in->param_n[param];
    double largest = 0, d;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(gradient[i]));
    for (int64_t s = 0; s < min_i64(n, samples); s++) {
        int64_t i = n <= samples ? s : (int64_t)(hash_uniform(7, param, (uint64_t)s) * (float)n);
        double error = error_at(p, &p->in->params[param][i], gradient[i], largest, f, &d);
        p->entries++;
        if (error <= p->worst) continue;
        p->worst = error;
        snprintf(p->where, sizeof p->where, "%s[%lld]: gradient %.12g, difference %.12g", param_name(p->in->m, param),
                 (long long)i, gradient[i], d);
    }
}

Probe probe_model(Model *m, Interp *in, const Step *step, int samples) {
    Model *program = model_program(m, PROGRAM_STEP);
    if (!program) fail_msg("no step program: %s", m->diag.message);
    Interp *back = interp_create(program);
    params_copy(back, in);
    interp_run(back, step->batch, step->n);
    if (m->n_losses) {
        uint32_t roots[64];
        assert_true(m->n_losses <= 64);
        for (uint32_t i = 0; i < m->n_losses; i++) roots[i] = m->losses[i].node;
        interp_need(in, roots, (int)m->n_losses);
    }
    Probe p = { .in = in, .step = step };
    in->hold = false;
    double f = probe_scalar(&p);
    in->hold = true;
    assert_true(isfinite(f));
    for (uint32_t i = 0; i < m->n_losses; i++) { // the program's records are the traced graph's losses
        assert_string_equal(model_name(program, program->records[i].addr), model_name(m, m->losses[i].addr));
        double record = back->records[i].x[0];
        if (fabs(record - in->losses[i]) > 1e-12 * (1 + fabs(record))) {
            fail_msg("loss %s: record %.17g, traced graph %.17g", model_name(m, m->losses[i].addr), record,
                     in->losses[i]);
        }
    }
    for (uint32_t i = 0; i < m->n_params; i++) {
        if (!in->params[i] || m->params[i].is_state) continue;
        uint32_t j = 0;
        while (j < program->n_params && strcmp(param_name(program, j), param_name(m, i))) j++;
        double *zeros = calloc((size_t)in->param_n[i], sizeof *zeros);
        probe(&p, i, j < program->n_params && back->gradients[j] ? back->gradients[j] : zeros, samples, f);
        free(zeros);
    }
    in->hold = false;
    interp_destroy(back);
    model_destroy(program);
    return p;
}
