// SPDX-License-Identifier: Apache-2.0
// One layout at work: every rank is a process that mpirun has started. Lowers a spec, runs steps on
// made-up tokens, and tells (rank 0, a line of name=value): speed; bytes that ranks have given each
// other, from the plan and counted; memory, from the plan and touched. table.lua makes tables of it.
//
//   moec-layouts SPEC LAYOUT [key=value...] [--microbatches N] [--warm-up STEPS] [--steps N]
//                [--precision fp32|bf16] [--routing learned|uniform|random] [--link BYTES/S]
//                [--overlap yes|no]
#include <stdio.h>
#include <stdlib.h>

#include "compiler/layout/layout.h"
#include "compiler/lower/lower.h"
#include "compiler/spec/spec.h"
#include "runtime/exec/exec.h"

enum { MOST_ARGS = 16 };

typedef struct Run {
    const char *spec, *layout;
    SpecArg args[MOST_ARGS];
    int n_args, microbatches, warm_up, steps;
    uint8_t precision, routing;
    bool no_overlap; // what crosses ranks does so alone
    double link;
    Comm *comm;
    Plan *plan;
    const PlanProgram *program;
    Exec *exec;
    int64_t step;
    double flops; // of a token, to train on it
} Run;

_Noreturn static void give_up(const char *what) {
    fprintf(stderr, "moec-layouts: %s\n", what);
    exit(1);
}

static void must(Status status) {
    if (status != OK) give_up(status_message());
}

/* What to run ---------------------------------------------------------------------------------- */

static int word_of(const char *text, const char *const *words, int n) {
    for (int i = 0; i < n; i++)
        if (!strcmp(text, words[i])) return i;
    fprintf(stderr, "moec-layouts: %s: expected %s ..\n", text, words[0]);
    exit(2);
}

static void read_option(Run *run, const char *flag, const char *value) {
    static const char *const routings[] = { "learned", "uniform", "random" };
    static const char *const types[] = { "fp32", "bf16" }, *const answers[] = { "yes", "no" };
    if (!strcmp(flag, "--microbatches")) run->microbatches = atoi(value);
    else if (!strcmp(flag, "--warm-up")) run->warm_up = atoi(value);
    else if (!strcmp(flag, "--steps")) run->steps = atoi(value);
    else if (!strcmp(flag, "--link")) run->link = atof(value);
    else if (!strcmp(flag, "--routing")) run->routing = (uint8_t)word_of(value, routings, 3);
    else if (!strcmp(flag, "--overlap")) run->no_overlap = word_of(value, answers, 2);
    else if (!strcmp(flag, "--precision"))
        run->precision = word_of(value, types, 2) ? PRECISION_BF16 : PRECISION_OPEN;
    else give_up("unknown option");
}

static void read_args(Run *run, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char *equal = strchr(argv[i], '=');
        if (!strncmp(argv[i], "--", 2) && i + 1 < argc) {
            read_option(run, argv[i], argv[i + 1]);
            i++;
        } else if (!run->spec) {
            run->spec = argv[i];
        } else if (!run->layout) {
            run->layout = argv[i];
        } else if (equal && run->n_args < MOST_ARGS) {
            *equal = 0;
            run->args[run->n_args++] = (SpecArg){ argv[i], equal + 1 };
        } else {
            give_up("expected SPEC LAYOUT key=value.. and options");
        }
    }
    if (!run->layout || run->microbatches < 1 || run->steps < 1)
        give_up("expected SPEC LAYOUT, 1 or more microbatches and steps");
}

static void make_plan(Run *run, Arena *arena) {
    Text error = { 0 };
    SpecOptions spec = { .args = run->args, .n_args = run->n_args, .routing = (Routing)run->routing };
    Model *model = spec_load(run->spec, &spec, &error);
    if (!model) give_up(text_cstr(&error));
    Layout layout = layout_single();
    must(layout_parse(run->layout, arena, &layout));
    if (layout.pp != 1 || !layout.microbatch) give_up("expected a layout of one stage, with its microbatch");
    if (run->no_overlap) layout.overlap = OVERLAP_OFF;
    LayoutRun checked = { .ranks = run->comm->n_ranks,
                          .batch = (int64_t)run->microbatches * layout.dp * layout.microbatch * model->sequence };
    must(layout_check(&layout, model, &checked));
    LowerOptions options = { .microbatch = layout.microbatch, .microbatches = run->microbatches,
                             .precision = run->precision, .layout = &layout };
    options.programs[PROGRAM_STEP] = true;
    run->plan = lower_model(model, &options);
    if (!run->plan) give_up(model->diag.message);
    run->flops = model_counts(model).train_flops_per_token;
    model_destroy(model);
}

/* Steps ---------------------------------------------------------------------------------------- */

// Token `at` of the run; the next is its label, but for a sequence's last.
static int32_t token(const Run *run, int64_t at) {
    return (int32_t)(hash_mix(9, 9, (uint64_t)at) % (uint64_t)run->plan->vocab);
}

static void fill_ints(const Run *run, const PlanInput *input, int32_t *to, int64_t first) {
    int64_t sequence = run->plan->sequence;
    for (int64_t t = 0; t < run->plan->tokens; t++) {
        bool past = t % sequence + input->k >= sequence;
        switch ((InputKind)input->kind) {
        case INPUT_tokens:
        case INPUT_labels: to[t] = past ? -1 : token(run, first + t + input->k); break;
        case INPUT_positions: to[t] = (int32_t)(t % sequence); break;
        case INPUT_segments: to[t] = (int32_t)(t / sequence); break;
        default: to[t] = (int32_t)(first + t); break;
        }
    }
}

static Status fill(void *user, Exec *exec, const PlanProgram *program, int microbatch) {
    const Run *run = user;
    int64_t sequences = run->plan->tokens / run->plan->sequence, valid = run->plan->sequence - 1;
    int64_t dp = comm_members(run->comm, GROUP_dp), own = comm_member(run->comm, GROUP_dp);
    int64_t first = ((run->step * run->microbatches + microbatch) * dp + own) * run->plan->tokens;
    for (uint32_t i = 0; i < program->n_inputs; i++) {
        const PlanInput *input = &program->inputs[i];
        void *at = exec_input(exec, program, (InputKind)input->kind, input->k);
        float *counts = at;
        if (input->kind == INPUT_n_valid) counts[0] = (float)(sequences * valid);
        else if (input->kind == INPUT_n_valid_sequence)
            for (int64_t s = 0; s < sequences; s++) counts[s] = (float)valid;
        else fill_ints(run, input, at, first);
    }
    return OK;
}

static void set_scalars(const Run *run) {
    float *scalars = exec_scalars(run->exec);
    double dp = comm_members(run->comm, GROUP_dp), sequences = (double)(run->plan->tokens / run->plan->sequence);
    double targets = dp * run->microbatches * sequences * (double)(run->plan->sequence - 1);
    scalars[SCALAR_lr] = 1e-3f;
    scalars[SCALAR_beta1] = 0.9f;
    scalars[SCALAR_beta2] = 0.95f;
    scalars[SCALAR_eps] = 1e-8f;
    scalars[SCALAR_correction1] = scalars[SCALAR_correction2] = 1;
    scalars[SCALAR_clip] = 1;
    scalars[SCALAR_inv_step] = (float)(1 / targets);
    const int32_t step = (int32_t)run->step, seed = 1;
    memcpy(&scalars[SCALAR_step], &step, sizeof step);
    memcpy(&scalars[SCALAR_seed], &seed, sizeof seed);
}

static void run_steps(Run *run, int n) {
    for (int i = 0; i < n; i++, run->step++) {
        set_scalars(run);
        must(exec_run(run->exec, run->program, fill, run));
        if (exec_scalars(run->exec)[SCALAR_skipped] != 0) give_up("a step was skipped: it is not finite");
    }
}

/* Results -------------------------------------------------------------------------------------- */

// Of all ranks; `most`: the largest, else the sum.
static double of_all(const Run *run, double mine, bool most) {
    double all[256], result = 0;
    must(run->comm->api->gather(run->comm, GROUP_world, &mine, all, sizeof mine));
    for (int i = 0; i < run->comm->n_ranks; i++)
        result = most ? (all[i] > result ? all[i] : result) : result + all[i];
    return result;
}

static void tell(const Run *run, const char *name, const char *what, double value) {
    if (run->comm->rank == 0) printf("%s%s=%.17g ", name, what, value);
}

static void tell_traffic(const Run *run, const PlanTraffic *before) {
    static const char *const names[N_MOVES] = {
#define X(name) #name,
        PLAN_MOVES(X)
#undef X
    };
    PlanTraffic plan, now = exec_moved(run->exec);
    plan_traffic(run->plan, run->program, &plan);
    for (int move = 0; move < N_MOVES; move++) {
        double counted = (now.bytes[move][LINK_stage] - before->bytes[move][LINK_stage]) / run->steps;
        tell(run, names[move], "_predicted", of_all(run, plan.bytes[move][LINK_stage], false));
        tell(run, names[move], "_counted", of_all(run, counted, false));
    }
}

static void tell_memory(const Run *run) {
    double predicted = 0, touched = 0;
    for (int region = 0; region < N_REGIONS; region++) {
        predicted += (double)run->plan->region_bytes[region];
        touched += (double)exec_touched(run->exec, (Region)region);
    }
    tell(run, "memory", "_predicted", of_all(run, predicted, true));
    tell(run, "memory", "_touched", of_all(run, touched, true));
}

int main(int argc, char **argv) {
    Run run = { .microbatches = 8, .warm_up = 1, .steps = 1, .precision = PRECISION_BF16 };
    Arena *arena = arena_create();
    read_args(&run, argc, argv);
    must(comm_open(&(CommOptions){ .deadline = 600 }, &run.comm));
    if (run.comm->n_ranks > 256) give_up("expected up to 256 ranks");
    make_plan(&run, arena);
    run.program = plan_program(run.plan, "step");
    ExecOptions options = { .threads = 1, .comm = run.comm, .small_pages = true, .count_rows = true,
                            .link = run.link };
    must(exec_create(run.plan, &options, &run.exec));
    must(exec_init(run.exec, 1));
    run_steps(&run, run.warm_up);
    PlanTraffic before = exec_moved(run.exec);
    of_all(&run, 0, false); // together
    double begin = time_seconds();
    run_steps(&run, run.steps);
    double seconds = of_all(&run, time_seconds() - begin, true) / run.steps;
    double tokens = (double)run.plan->tokens * run.microbatches * comm_members(run.comm, GROUP_dp);
    tell(&run, "step", "_s", seconds);
    tell(&run, "tokens_per_s", "", tokens / seconds);
    tell(&run, "gflop_per_s", "", tokens / seconds * run.flops / 1e9);
    tell_traffic(&run, &before);
    tell_memory(&run);
    if (run.comm->rank == 0) printf("\n");
    exec_destroy(run.exec);
    plan_destroy(run.plan);
    comm_close(run.comm);
    arena_destroy(arena);
    return 0;
}
