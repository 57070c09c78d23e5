// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/pair.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void note(Pair *p, double error, double bound, const char *what) {
    double ratio = error == 0 ? 0 : error / bound;
    if (ratio <= p->worst) return;
    p->worst = isnan(ratio) ? INFINITY : ratio;
    snprintf(p->where, sizeof p->where, "%s: error %.3g, allowed %.3g", what, error, bound);
}

void pair_compare(Pair *p, const Case *only, double bound) {
    const Interp *want = p->want;
    p->largest = p->change = p->worst = 0;
    p->where[0] = 0;
    for (uint32_t i = 0; i < p->plan->n_params; i++) {
        const PlanParam *param = &p->plan->params[i];
        if (param->is_state || (only && !case_owns(only, param->name))) continue;
        uint32_t j = param_of(want->m, param->name);
        double g = norm(want->gradients[j], want->param_n[j]);
        p->largest = fmax(p->largest, g);
        p->change += g * norm(want->params[j], want->param_n[j]);
    }
    for (uint32_t i = 0; i < p->plan->n_params; i++) {
        const PlanParam *param = &p->plan->params[i];
        if (only && !case_owns(only, param->name)) continue;
        uint32_t j = param_of(want->m, param->name);
        int64_t n = want->param_n[j];
        double *got = param->is_state ? machine_weights(p->exec, p->plan, i) : machine_gradient(p->exec, p->plan, i);
        const double *expected = !param->is_state ? want->gradients[j]
                                 : want->next[j]  ? want->next[j]
                                                  : want->params[j];
        double floor = param->is_state ? 1e-6 : 1e-2 * p->largest;
        note(p, distance(got, expected, n), bound * (norm(expected, n) + floor), param->name);
        free(got);
    }
    for (uint32_t i = 0; i < p->program->n_metrics; i++) {
        const PlanMetric *metric = &p->program->metrics[i];
        if (only && !case_owns(only, metric->name)) continue;
        int64_t n;
        const float *got = exec_metric(p->exec, p->program, i, &n);
        uint32_t slot = 0;
        while (slot < want->n_records && strcmp(model_name(want->m, want->m->records[slot].addr), metric->name)) slot++;
        assert_true(slot < want->n_records);
        assert_int_equal(n, want->records[slot].n);
        double error = 0, size = norm(want->records[slot].x, n);
        for (int64_t k = 0; k < n; k++) error += pow(got[k] - want->records[slot].x[k], 2);
        note(p, sqrt(error), bound * (size + p->change), metric->name);
    }
}

Pair pair_start(Model *m, const Step *step, const Interp *values, int32_t sequences, How how, int threads) {
    Pair p = { 0 };
    Model *program = model_program(m, PROGRAM_STEP);
    assert_non_null(program);
    p.want = interp_create(program);
    params_copy(p.want, values);
    interp_run(p.want, step->batch, step->n);
    p.plan = machine_plan(m, sequences, step->n, how);
    p.program = plan_program(p.plan, "step");
    p.exec = machine_exec(p.plan, threads, true);
    machine_load(p.exec, p.plan, values);
    machine_step(p.exec, p.plan, step);
    return p;
}

void pair_end(Pair *p) {
    Model *program = (Model *)p->want->m;
    exec_destroy(p->exec);
    plan_destroy(p->plan);
    interp_destroy(p->want);
    model_destroy(program);
}
