// SPDX-License-Identifier: Apache-2.0
// `moec train`: spec -> Model -> two plans, for training and evaluation and for sampling a sequence
// at a time. The run keeps the plans, so nothing after this needs the spec, unless the run changes its
// layout: then its plans are made again, from the copy of the spec in its folder.
//
// Every rank does this for its stage; what it would print is held until all are through, and said once.
#include <stdio.h>

#include "compiler/driver/layout.h"
#include "compiler/driver/line.h"
#include "compiler/lower/lower.h"
#include "compiler/spec/spec.h"
#include "runtime/train/train.h"

static json_t *pairs(const SpecArg *args, int n) {
    json_t *object = json_object();
    for (int i = 0; i < n; i++)
        json_object_set_new(object, args[i].key, json_string(args[i].value));
    return object;
}

// Fills in --batch and --microbatch, in tokens, and checks that they fit the sequence.
static Status choose_batch(Options *options, int64_t sequence) {
    int64_t batch = options->batch, microbatch = options->microbatch;
    if (batch % sequence)
        return status_fail(ERR_ARGUMENT,
                           "--batch is %lld tokens, expected a multiple of the sequence of %lld",
                           (long long)batch, (long long)sequence);
    if (microbatch % sequence)
        return status_fail(
            ERR_ARGUMENT,
            "--microbatch is %lld tokens, expected a multiple of the sequence of %lld",
            (long long)microbatch, (long long)sequence);
    if (!microbatch) { // the largest up to the usual size that divides the batch
        microbatch = max_i64(sequence, USUAL_MICROBATCH / sequence * sequence);
        while (batch && batch % microbatch) microbatch -= sequence;
    }
    if (!batch) batch = microbatch;
    if (batch % microbatch)
        return status_fail(ERR_ARGUMENT,
                           "--batch is %lld tokens, expected a multiple of the microbatch of %lld",
                           (long long)batch, (long long)microbatch);
    if (batch / microbatch > LOWER_MOST_MICROBATCHES)
        return status_fail(ERR_ARGUMENT,
                           "--batch is %lld tokens, %lld microbatches of %lld, expected up to %d\n"
                           "  hint: a smaller --batch or a larger --microbatch",
                           (long long)batch, (long long)(batch / microbatch), (long long)microbatch,
                           LOWER_MOST_MICROBATCHES);
    options->batch = batch;
    options->microbatch = microbatch;
    return OK;
}

// What the options say of ranks and microbatches becomes *training; *layout is where its layout is, if it
// has one. Returns the exit status.
static int choose_layout(Model *model, Options *options, int ranks, Layout *layout,
                         LowerOptions *training) {
    int32_t n = 0;
    training->recompute = (uint8_t)options->recompute;
    if (options->layout[0]) {
        LayoutArgs args = { .text = options->layout,
                            .ranks = ranks,
                            .microbatch = options->microbatch,
                            .batch = options->batch,
                            .recompute = training->recompute };
        int result = driver_layout(&args, model, options->arena, layout, &n);
        if (result) return result;
        training->layout = layout;
        options->microbatch = (int64_t)layout->microbatch * model->sequence;
        options->batch = options->microbatch * layout->dp * n;
    } else {
        Status status = ranks == 1 ? choose_batch(options, model->sequence)
                                   : status_fail(ERR_ARGUMENT,
                                                 "%d ranks were started, and no layout says how to use "
                                                 "them\n  hint: for example --layout dp=%d",
                                                 ranks, ranks);
        if (status != OK) return driver_fail(status);
        n = (int32_t)(options->batch / options->microbatch);
    }
    training->microbatch = (int32_t)(options->microbatch / model->sequence);
    training->microbatches = n;
    return 0;
}

static Plan *lower(Model *model, const LowerOptions *options) {
    Plan *plan = lower_model(model, options);
    if (!plan) driver_refuse(model);
    return plan;
}

static bool leads_out(const char *path) {
    return path[0] == '/' || !strncmp(path, "../", 3) || strstr(path, "/../");
}

// Copies of the source files, for the record: paths below the spec's folder stay.
static RunFile *spec_files(Arena *arena, const Model *model, const char *spec, int *n) {
    const char *slash = strrchr(spec, '/');
    size_t base = slash ? (size_t)(slash - spec) + 1 : 0;
    RunFile *files = ARENA_ARRAY(arena, RunFile, model->n_files + 1);
    *n = 0;
    for (uint32_t i = 0; i < model->n_files; i++) {
        const SourceFile *file = &model->files[i];
        if (!file->path || !file->text) continue;
        const char *name = file->path;
        if (!strncmp(name, spec, base)) name += base;
        if (leads_out(name)) name = strrchr(file->path, '/') + 1;
        files[(*n)++] =
            (RunFile){ arena_printf(arena, "spec/%s", name), file->text, strlen(file->text) };
    }
    return files;
}

// What a run is lowered with, for this rank.
typedef struct Lowering {
    Layout layout;
    LowerOptions options;
} Lowering;

static int choose(Model *model, Options *options, const Comm *comm, Lowering *out) {
    *out = (Lowering){ 0 };
    int result = choose_layout(model, options, comm->n_ranks, &out->layout, &out->options);
    if (result) return result;
    if (out->options.layout) out->options.stage = comm->rank / out->layout.dp;
    out->options.precision = options->precision == CHOICE_BF16 ? PRECISION_BF16 : PRECISION_FP32;
    Status status = exec_target(options->device, options->arena, &out->options.target);
    return status == OK ? 0 : driver_fail(status);
}

static Plan *lower_training(Model *model, const Lowering *lowering) {
    LowerOptions training = lowering->options;
    training.programs[PROGRAM_STEP] = training.programs[PROGRAM_EVAL] = true;
    return lower(model, &training);
}

// Sampling takes one rank, whatever trains.
static Plan *lower_sampling(Model *model, const Lowering *lowering) {
    LowerOptions sampling = { .microbatch = 1, .microbatches = 1, .target = lowering->options.target,
                              .precision = lowering->options.precision };
    sampling.programs[PROGRAM_PREFILL] = true;
    return lower(model, &sampling);
}

// Also for a model of a spec that asks for something else while it is traced.
static Model *load(const char *spec, const SpecOptions *options) {
    Text error = { 0 };
    Model *model = spec_load(spec, options, &error);
    if (!model) driver_say(text_cstr(&error));
    text_finish(&error);
    return model;
}

// What `make` did on all ranks. With several, they print nothing meanwhile.
static Status together(Command *command, int (*make)(void *user), void *user) {
    Comm *comm = command->comm;
    Text said = { 0 };
    if (comm->n_ranks > 1) driver_hold(&said);
    int result = make(user);
    driver_hold(NULL);
    Status status = !result ? OK : result == 2 ? ERR_INPUT : ERR_INTERNAL;
    if (status != OK) status_fail(status, "%s", text_cstr(&said));
    text_finish(&said);
    status = comm_agree(comm, status);
    command->bare = status != OK && status != ERR_RANK;
    return status;
}

/* train ---------------------------------------------------------------------------------------- */

typedef struct Training {
    int argc;
    char **argv;
    Options *options;
    const Comm *comm;
    const char *spec;
    SpecOptions spec_options;
    Model *model;
    Plan *plan, *sample_plan;
} Training;

static Status read_command(Training *t) {
    Options *options = t->options;
    TRY(line_spec(options, FOR_TRAIN, t->argc, t->argv, "train models/tiny.lua --data FILE --out RUN", &t->spec,
                  &t->spec_options));
    if (!options->out[0])
        return status_fail(ERR_ARGUMENT, "no place for the run\n  hint: --out FOLDER");
    if (!options->data.n)
        return status_fail(ERR_ARGUMENT, "no training data\n  hint: --data FILE...");
    return schedule_check(options);
}

// The model, and this rank's plans.
static int make_plans(void *user) {
    Training *t = user;
    Text unread = { 0 };
    Lowering lowering;
    Status status = read_command(t);
    if (status != OK) return driver_fail(status);
    if (t->comm->rank) t->spec_options.log = &unread; // rank 0 prints what the spec prints
    t->model = load(t->spec, &t->spec_options);
    text_finish(&unread);
    if (!t->model) return 2;
    int result = choose(t->model, t->options, t->comm, &lowering);
    if (result) return result;
    t->plan = lower_training(t->model, &lowering);
    if (t->plan && t->comm->rank == 0) t->sample_plan = lower_sampling(t->model, &lowering);
    return t->plan && (t->sample_plan || t->comm->rank) ? 0 : 2;
}

static Status start_run(const Command *command, Training *t) {
    json_t *origin = json_pack("{s:s, s:o, s:o, s:f}", "spec", t->spec, "arguments",
                               pairs(t->spec_options.args, t->spec_options.n_args), "set",
                               pairs(t->spec_options.sets, t->spec_options.n_sets),
                               "flops per token", model_counts(t->model).train_flops_per_token);
    RunSource source = { .plan = t->plan, .sample_plan = t->sample_plan, .origin = origin };
    source.files = spec_files(t->options->arena, t->model, t->spec, &source.n_files);
    Status status = command_train(command, &source, t->options);
    json_decref(origin);
    return status;
}

static Status train(Command *command, int argc, char **argv) {
    Training t = { .argc = argc, .argv = argv, .options = options_create(), .comm = command->comm };
    Status status = together(command, make_plans, &t);
    if (status == OK) status = start_run(command, &t);
    plan_destroy(t.plan);
    plan_destroy(t.sample_plan);
    model_destroy(t.model);
    options_destroy(t.options);
    return status;
}

int cmd_train(int argc, char **argv) {
    return command_on_ranks("moec", train, NULL, argc, argv);
}

/* Plans made again ----------------------------------------------------------------------------- */

static SpecArg *read_pairs(Arena *arena, const json_t *object, int *n) {
    SpecArg *args = ARENA_ARRAY(arena, SpecArg, json_object_size(object) + 1);
    const char *key;
    json_t *value;
    *n = 0;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        const char *text = json_string_value(value);
        args[(*n)++] = (SpecArg){ arena_strdup(arena, key), arena_strdup(arena, text ? text : "") };
    }
    return args;
}

// The spec as it was when the run began.
static Status find_spec(const char *run, Options *options, const char **spec, SpecOptions *out) {
    Options *old = options_create();
    json_t *record = NULL;
    Status status = run_read_options(run, old, &record);
    const json_t *origin = json_object_get(record, "origin");
    const char *name = json_string_value(json_object_get(origin, "spec"));
    const char *slash = name ? strrchr(name, '/') : NULL;
    *spec = arena_printf(options->arena, "%s/spec/%s", run, slash ? slash + 1 : name ? name : "");
    *out = (SpecOptions){ .routing = line_routing(options) };
    out->args = read_pairs(options->arena, json_object_get(origin, "arguments"), &out->n_args);
    out->sets = read_pairs(options->arena, json_object_get(origin, "set"), &out->n_sets);
    json_decref(record);
    options_destroy(old);
    TRY(status);
    if (name && file_exists(*spec)) return OK;
    return status_fail(ERR_INPUT, "%s has no spec to make a plan of: it was begun with a plan\n"
                       "  hint: start as many ranks as its plan is for", run);
}

Model *driver_run_model(const char *run) {
    Options *options = options_create();
    const char *spec = NULL;
    SpecOptions spec_options;
    Model *model = NULL;
    Status status = run_read_options(run, options, NULL);
    if (status == OK) status = find_spec(run, options, &spec, &spec_options);
    if (status == OK) model = load(spec, &spec_options);
    else driver_fail(status);
    options_destroy(options);
    return model;
}

// The microbatch that the run had, unless the new layout cannot have it.
static int choose_again(Model *model, Options *options, const Comm *comm, Lowering *lowering,
                        Text *said) {
    if (!choose(model, options, comm, lowering)) return 0;
    said->bytes = 0;
    options->microbatch = 0;
    return choose(model, options, comm, lowering);
}

static Plan *plan_again(Model *model, Options *options, const Comm *comm, bool evaluates, Text *said) {
    Lowering lowering;
    if (evaluates) options->layout = "";
    if (choose_again(model, options, comm, &lowering, said)) return NULL;
    if (!evaluates) return lower_training(model, &lowering);
    lowering.options.microbatches = 1;
    lowering.options.programs[PROGRAM_EVAL] = true;
    return lower(model, &lowering.options);
}

Status driver_plan_again(const Command *command, const char *run, Options *options, bool evaluates,
                         Plan **out) {
    const char *spec;
    SpecOptions spec_options;
    Text said = { 0 };
    *out = NULL;
    TRY(find_spec(run, options, &spec, &spec_options));
    driver_hold(&said);
    Model *model = load(spec, &spec_options);
    if (model) *out = plan_again(model, options, command->comm, evaluates, &said);
    driver_hold(NULL);
    model_destroy(model);
    Status status = *out ? OK : status_fail(ERR_INPUT, "the plan of %s cannot be made again:\n%s", run,
                                            text_cstr(&said));
    text_finish(&said);
    return status;
}
