// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/trial.h"

#include "compiler/kernel/kernel.h"
#include "tests/oracle/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Operations ------------------------------------------------------------------------------------------- */

bool trial_refused(const Case *c, char why[128]) {
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

static void make_positive(Interp *values, const Case *const *in, int n) {
    for (uint32_t i = 0; i < values->n_params; i++) {
        for (int c = 0; c < n; c++) {
            if (!in[c]->positive || !case_owns(in[c], param_name(values->m, i))) continue;
            for (int64_t j = 0; j < values->param_n[i]; j++) {
                values->params[i][j] = (float)(0.6 + fabs(values->params[i][j]));
            }
        }
    }
}

static int run_chunk(const Case *const *in, int n, bool no_fusion) {
    Model *m = case_start("cases", 13);
    for (int i = 0; i < n; i++) assert_true(case_add(m, in[i]));
    Interp *values = interp_create(m);
    interp_fill(values, 3, 0.7);
    make_positive(values, in, n);
    Step step = step_make(11, m, SEQUENCES, 2);
    Pair p = pair_start(m, &step, values, SEQUENCES, (How){ .no_fusion = no_fusion }, 2);
    int failed = 0;
    double worst = 0;
    const char *where = "";
    for (int i = 0; i < n; i++) {
        pair_compare(&p, in[i], in[i]->limit);
        if (p.worst > worst) worst = p.worst, where = in[i]->name;
        if (p.worst <= 1) continue;
        failed++;
        fprintf(stderr, "%s%s: %.3g of the bound at %s\n", in[i]->name, no_fusion ? ", not fused" : "", p.worst,
                p.where);
    }
    printf("%s to %s%s: worst error %.2g of the bound at %s\n", in[0]->name, in[n - 1]->name,
           no_fusion ? ", not fused" : "", worst, where);
    pair_end(&p);
    step_free(&step);
    interp_destroy(values);
    model_destroy(m);
    return failed;
}

int trial_cases(int first, int every, bool no_fusion) {
    const Case *in[CHUNK];
    int n = 0, failed = 0;
    for (int i = first; i < n_cases; i += every) {
        char why[128];
        if (!trial_refused(&cases[i], why)) in[n++] = &cases[i];
        if (n < CHUNK && i + every < n_cases) continue;
        failed += run_chunk(in, n, no_fusion);
        n = 0;
    }
    return failed;
}

/* Models ----------------------------------------------------------------------------------------------- */

int trial_spec(const Spec *spec, bool no_fusion) {
    Model *m = spec_model(spec);
    assert_non_null(m);
    Step step = step_make(24, m, spec->sequences, spec->batches);
    Interp *values = interp_create(m);
    interp_fill(values, 5, spec->std);
    Pair p = pair_start(m, &step, values, spec->sequences, (How){ .no_fusion = no_fusion }, 1);
    pair_compare(&p, NULL, TRIAL_BOUND * spec->amplified);
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

int trial_random(uint64_t seed, int n_ops, int32_t sequence, int32_t sequences, int batches, bool no_fusion) {
    Model *m = random_model(seed, n_ops, sequence, false);
    Step step = step_make(seed, m, sequences, batches);
    Interp *values = interp_create(m);
    interp_fill(values, seed, 0.7);
    Pair p = pair_start(m, &step, values, sequences, (How){ .no_fusion = no_fusion }, 2);
    pair_compare(&p, NULL, TRIAL_BOUND);
    bool failed = p.worst > 1;
    if (failed) {
        fprintf(stderr, "random graph %d%s: %.3g of the bound at %s\n", (int)seed, no_fusion ? ", not fused" : "",
                p.worst, p.where);
    }
    pair_end(&p);
    interp_destroy(values);
    step_free(&step);
    model_destroy(m);
    return failed;
}
