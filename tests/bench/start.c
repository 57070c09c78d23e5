// SPDX-License-Identifier: Apache-2.0
// How long `moec train models/tiny.lua` takes until its first step: with an empty kernel cache and
// with a full one. Each start is a process of its own, since a process finds its libraries loaded the
// second time.
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/lower/lower.h"
#include "compiler/spec/spec.h"
#include "runtime/exec/exec.h"
#include "tests/bench/bench.h"

/* The child: prints what it spent on each part --------------------------------------------------- */

static Plan *lower_or_give_up(Model *model, const LowerOptions *options) {
    Plan *plan = lower_model(model, options);
    if (!plan) give_up("%s", model->diag.message);
    return plan;
}

int start_child(const char *spec) {
    double begin = time_seconds();
    Text error = {0};
    Model *model = spec_load(spec, &(SpecOptions){0}, &error);
    if (!model) give_up("%s", text_cstr(&error));
    double loaded = time_seconds();
    LowerOptions training = {.microbatch = 2048 / model->sequence, .microbatches = 1};
    training.programs[PROGRAM_STEP] = training.programs[PROGRAM_EVAL] = true;
    LowerOptions sampling = {.microbatch = 1, .microbatches = 1};
    sampling.programs[PROGRAM_PREFILL] = true;
    Plan *plan = lower_or_give_up(model, &training), *sample = lower_or_give_up(model, &sampling);
    double lowered = time_seconds();
    Exec *exec;
    must(exec_create(plan, &(ExecOptions){0}, &exec));
    double compiled = time_seconds();
    exec_init(exec, 1);
    double ready = time_seconds();
    printf("%.17g %.17g %.17g %.17g %u\n", loaded - begin, lowered - loaded, compiled - lowered,
           ready - compiled, plan->n_kernels);
    exec_destroy(exec);
    plan_destroy(plan);
    plan_destroy(sample);
    model_destroy(model);
    text_finish(&error);
    return 0;
}

/* The section ------------------------------------------------------------------------------------ */

typedef struct Start { double whole, spec, lower, compile, init, kernels; } Start;

static Start run_start(const Bench *bench, const char *cache) {
    Start s = {0};
    Text command = {0};
    text_printf(&command, "MOEC_CACHE_DIR='%s' '%s' --start models/tiny.lua", cache, bench->self);
    double begin = time_seconds();
    FILE *child = popen(text_cstr(&command), "r");
    if (!child) give_up("cannot start a process");
    int n = fscanf(child, "%lf %lf %lf %lf %lf", &s.spec, &s.lower, &s.compile, &s.init, &s.kernels);
    int status = pclose(child);
    s.whole = time_seconds() - begin;
    if (status || n != 5) give_up("starting models/tiny.lua failed");
    text_finish(&command);
    return s;
}

static void start_row(Bench *bench, const char *what, const Start *s) {
    report_row(&bench->report,
               (Cell[]){TEXT(what), NUMBER(s->kernels), NUMBER(s->whole), NUMBER(s->spec),
                        NUMBER(s->lower), NUMBER(s->compile), NUMBER(s->init)});
}

static void remove_folder(const char *folder) {
    Text command = {0};
    text_printf(&command, "rm -rf '%s'", folder);
    if (system(text_cstr(&command)) != 0) log_warn("%s could not be removed", folder);
    text_finish(&command);
}

void start_section(Bench *bench) {
    static const Column columns[] = {
        {"start", "start", -18, 0},       {"kernels", "kernels", 7, 0}, {"whole_s", "whole s", 8, 3},
        {"spec_s", "spec s", 8, 3},       {"lower_s", "lower s", 8, 3},
        {"compile_s", "compile s", 9, 3}, {"init_s", "weights s", 9, 3},
    };
    char cache[] = "/tmp/moec-bench-XXXXXX";
    if (!mkdtemp(cache)) give_up("cannot make a folder in /tmp");
    report_section(&bench->report, "start", "Start of models/tiny.lua, up to its first step", columns,
                   COUNT_OF(columns));
    Start cold = run_start(bench, cache), warm = {.whole = 1e30};
    start_row(bench, "empty kernel cache", &cold);
    for (int i = 0; i < 5; i++) {
        Start again = run_start(bench, cache);
        if (again.whole < warm.whole) warm = again;
    }
    start_row(bench, "warm (best of 5)", &warm);
    remove_folder(cache);
}
