// SPDX-License-Identifier: Apache-2.0
// Lowered plans against the float64 interpreter: every kernel of every operation, then whole models. The
// act region starts as NaN before every microbatch, so a value read before it was written is seen.
//
// Bounds. A parameter's gradient g has error e with  |e| <= B (|g| + 1e-2 max over parameters |g|), in
// 2-norms: entries that cancel within a parameter, and parameters whose gradient nearly vanishes (a key's
// bias, an ideally balanced router), carry the rounding of what cancelled. A loss L has error at most
// B (|L| + sum over parameters |g| |p|), the change that a relative rounding B of every parameter makes.
// For one operation B is the case's own (cases.h). For a model every value passes some 100 roundings
// forward and back, and normalisations divide by numbers of order one: B = 200 u = 1.2e-5, u = 2^-24.
#include "tests/oracle/cases.h"
#include "tests/oracle/machine.h"

#include "compiler/kernel/kernel.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const double MODEL_BOUND = 1.2e-5;

// One step of both, ready to compare.
typedef struct Pair {
    Interp *want;
    Plan *plan;
    Exec *exec;
    const PlanProgram *program;
    double largest;              // of the norms of gradients
    double change;               // sum of |g| |p|
    double worst;                // error / bound
    char where[160];
} Pair;

static void note(Pair *p, double error, double bound, const char *what)
{
    double ratio = error == 0 ? 0 : error / bound;
    if (ratio <= p->worst) return;
    p->worst = isnan(ratio) ? INFINITY : ratio;
    snprintf(p->where, sizeof p->where, "%s: error %.3g, allowed %.3g", what, error, bound);
}

static const char *last_dot(const char *name) { return strrchr(name, '.') ? strrchr(name, '.') : name; }

// Compares what belongs to the case, or everything.
static void compare(Pair *p, const Case *only, double bound)
{
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
        const double *expected = !param->is_state ? want->gradients[j] : want->next[j] ? want->next[j] : want->params[j];
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

static Pair pair_start(Model *m, const Step *step, const Interp *values, int32_t sequences, bool no_fusion, int threads)
{
    Pair p = { 0 };
    Model *program = model_program(m, PROGRAM_STEP);
    assert_non_null(program);
    p.want = interp_create(program);
    params_copy(p.want, values);
    interp_run(p.want, step->batch, step->n);
    p.plan = machine_plan(m, sequences, step->n, no_fusion);
    p.program = plan_program(p.plan, "step");
    p.exec = machine_exec(p.plan, threads, true);
    machine_load(p.exec, p.plan, values);
    machine_step(p.exec, p.plan, step);
    return p;
}

static void pair_end(Pair *p)
{
    Model *program = (Model *)p->want->m;
    exec_destroy(p->exec);
    plan_destroy(p->plan);
    interp_destroy(p->want);
    model_destroy(program);
}

/* Operations ------------------------------------------------------------------------------------------------ */

// Cases whose graph has an operation without a kernel; the plan refuses them by name.
static bool refused(const Case *c, char why[128])
{
    Model *m = case_model(c, 13);
    assert_non_null(m);
    Model *program = model_program(m, PROGRAM_STEP);
    assert_non_null(program);
    bool covers = true;
    const char *text = NULL;
    for (uint32_t id = 1; id < program->n_nodes && covers; id++) covers = kernel_covers(program, id, &text);
    if (!covers) {
        assert_non_null(text);
        snprintf(why, 128, "%s", text);
        LowerOptions options = { .microbatch = 1, .microbatches = 1, .programs = { [PROGRAM_STEP] = true } };
        Plan *plan = lower_model(m, &options);
        assert_null(plan);
        if (!strstr(m->diag.message, why)) fail_msg("%s: refused with '%s', not '%s'", c->name, m->diag.message, why);
    }
    model_destroy(program);
    model_destroy(m);
    return !covers;
}

enum { CHUNK = 40, SEQUENCES = 6 }; // 78 tokens: a full tile of rows and a part of one

// Cases [from, from + CHUNK) as the losses of one model: one compilation for all of them.
static int run_chunk(int from, bool no_fusion, int *covered)
{
    Model *m = case_start("cases", 13);
    bool in[CHUNK] = { 0 };
    int failed = 0;
    for (int i = from; i < min_i64(n_cases, from + CHUNK); i++) {
        char why[128];
        if (refused(&cases[i], why)) continue;
        in[i - from] = true;
        assert_true(case_add(m, &cases[i]));
    }
    Interp *values = interp_create(m);
    interp_fill(values, 3, 0.7);
    for (uint32_t i = 0; i < m->n_params; i++) {
        for (int c = from; c < min_i64(n_cases, from + CHUNK); c++) {
            if (!cases[c].positive || !case_owns(&cases[c], param_name(m, i))) continue;
            for (int64_t j = 0; j < values->param_n[i]; j++) {
                values->params[i][j] = (float)(0.6 + fabs(values->params[i][j]));
            }
        }
    }
    Step step = step_make(11, m, SEQUENCES, 2);
    Pair p = pair_start(m, &step, values, SEQUENCES, no_fusion, 2);
    for (int i = 0; i < CHUNK; i++) {
        if (!in[i]) continue;
        ++*covered;
        compare(&p, &cases[from + i], cases[from + i].limit);
        if (p.worst <= 1) continue;
        failed++;
        fprintf(stderr, "%s%s: %.3g of the bound at %s\n", cases[from + i].name, no_fusion ? ", not fused" : "",
                p.worst, last_dot(p.where));
    }
    pair_end(&p);
    step_free(&step);
    interp_destroy(values);
    model_destroy(m);
    return failed;
}

static void every_operation(bool no_fusion)
{
    int failed = 0, covered = 0;
    for (int from = 0; from < n_cases; from += CHUNK) failed += run_chunk(from, no_fusion, &covered);
    printf("%d of %d cases have kernels\n", covered, n_cases);
    assert_int_equal(failed, 0);
}

static void every_operation_alone(void **state) { (void)state; every_operation(true); }
static void every_operation_fused(void **state) { (void)state; every_operation(false); }

static void only_these_are_refused(void **state)
{
    (void)state;
    static const char *const known[] = { "row_max.sequence" };
    for (int i = 0; i < n_cases; i++) {
        char why[128] = "";
        bool expected = false;
        for (int k = 0; k < COUNT_OF(known); k++) expected |= !strcmp(known[k], cases[i].name);
        if (refused(&cases[i], why) != expected) {
            fail_msg("%s: %s %s", cases[i].name, expected ? "has a kernel now" : "is refused:", why);
        }
    }
}

/* Models ------------------------------------------------------------------------------------------------------ */

static const Spec tiny = { "models/tiny.lua", 17, 2, 2, 0.05 };

static int run_spec(const Spec *spec, bool no_fusion)
{
    Model *m = spec_model(spec);
    assert_non_null(m);
    Step step = step_make(23, m, spec->sequences, spec->batches);
    Interp *values = interp_create(m);
    interp_fill(values, 5, spec->std);
    Pair p = pair_start(m, &step, values, spec->sequences, no_fusion, 1);
    compare(&p, NULL, MODEL_BOUND);
    printf("%s%s: %u kernels, %u launches, worst error %.2g of the bound at %s\n", spec_title(spec),
           no_fusion ? ", not fused" : "", p.plan->n_kernels, p.program->n_instrs, p.worst, p.where);

    Hash bits = machine_results(p.exec, p.plan);
    machine_load(p.exec, p.plan, values); // states as they were
    machine_step(p.exec, p.plan, &step);
    bool equal = hash_equal(bits, machine_results(p.exec, p.plan)); // a second run
    for (int threads = 2; threads <= 3; threads++) {
        Exec *exec = machine_exec(p.plan, threads, threads == 2);
        machine_load(exec, p.plan, values);
        machine_step(exec, p.plan, &step);
        equal &= hash_equal(bits, machine_results(exec, p.plan));
        exec_destroy(exec);
    }
    if (!equal) fprintf(stderr, "%s: bits depend on the run or the number of threads\n", spec_title(spec));
    int failed = p.worst > 1 || !equal;
    pair_end(&p);
    interp_destroy(values);
    step_free(&step);
    model_destroy(m);
    return failed;
}

static void every_spec(bool no_fusion)
{
    int failed = run_spec(&tiny, no_fusion);
    for (int i = 0; i < n_specs; i++) failed += run_spec(&specs[i], no_fusion);
    assert_int_equal(failed, 0);
}

static void every_spec_fused(void **state) { (void)state; every_spec(false); }
static void every_spec_not_fused(void **state) { (void)state; every_spec(true); }

int main(void)
{
    machine_use_cache();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_these_are_refused),
        cmocka_unit_test(every_operation_alone),
        cmocka_unit_test(every_operation_fused),
        cmocka_unit_test(every_spec_fused),
        cmocka_unit_test(every_spec_not_fused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
