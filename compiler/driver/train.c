// SPDX-License-Identifier: Apache-2.0
// `moec train`: spec -> Model -> two plans, for training and evaluation and for sampling a sequence
// at a time. The run keeps the plans, so nothing after this needs the spec.
#include <stdio.h>

#include "compiler/driver/layout.h"
#include "compiler/lower/lower.h"
#include "compiler/spec/spec.h"
#include "runtime/train/train.h"

// SPEC [key=value...]
static Status read_words(Options *options, const char **words, int n, const char **spec,
                         SpecArg **args) {
    if (!n)
        return status_fail(
            ERR_ARGUMENT,
            "no SPEC given\n  hint: moec train models/tiny.lua --data FILE --out RUN");
    *spec = words[0];
    *args = ARENA_ARRAY(options->arena, SpecArg, n);
    for (int i = 1; i < n; i++) {
        const char *equals = strchr(words[i], '=');
        if (!equals || equals == words[i])
            return status_fail(
                ERR_ARGUMENT,
                "unexpected '%s': after SPEC come key=value arguments of the spec, then options",
                words[i]);
        (*args)[i - 1] =
            (SpecArg){ arena_strndup(options->arena, words[i], (size_t)(equals - words[i])),
                       equals + 1 };
    }
    return OK;
}

// The --set that are not the table's.
static const SpecArg *spec_sets(Options *options) {
    const OptionFiles *texts = &options->spec_sets;
    SpecArg *sets = ARENA_ARRAY(options->arena, SpecArg, texts->n + 1);
    for (int i = 0; i < texts->n; i++) {
        size_t n = strcspn(texts->at[i], "=");
        sets[i] =
            (SpecArg){ arena_strndup(options->arena, texts->at[i], n), texts->at[i] + n + 1 };
    }
    return sets;
}

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

static const uint8_t policies[] = { [CHOICE_CHEAP] = RECOMPUTE_CHEAP,
                                    [CHOICE_NONE] = RECOMPUTE_NONE,
                                    [CHOICE_BLOCK] = RECOMPUTE_BLOCK };

// What the options say of ranks and microbatches becomes *training; *layout is where its layout is, if it
// has one. Returns the exit status.
static int choose_layout(Model *model, Options *options, Layout *layout, LowerOptions *training) {
    int32_t n = 0;
    training->recompute = policies[options->recompute];
    if (options->layout[0]) {
        LayoutArgs args = { .text = options->layout,
                            .ranks = 1,
                            .microbatch = options->microbatch,
                            .batch = options->batch,
                            .recompute = training->recompute };
        int result = driver_layout(&args, model, options->arena, layout, &n);
        if (result) return result;
        training->layout = layout;
        options->microbatch = (int64_t)layout->microbatch * model->sequence;
        options->batch = options->microbatch * layout->dp * n;
    } else {
        Status status = choose_batch(options, model->sequence);
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

static int train_model(Model *model, const char *spec, const SpecOptions *spec_options,
                       Options *options) {
    Layout layout;
    LowerOptions training = { 0 };
    int result = choose_layout(model, options, &layout, &training);
    if (result) return result;
    uint8_t precision = options->precision == CHOICE_BF16 ? PRECISION_BF16 : PRECISION_FP32;
    const char *target;
    Status status = exec_target(options->device, options->arena, &target);
    if (status != OK) return driver_fail(status);
    training.target = target;
    training.precision = precision;
    training.programs[PROGRAM_STEP] = training.programs[PROGRAM_EVAL] = true;
    LowerOptions sampling = { .microbatch = 1, .microbatches = 1, .target = target,
                              .precision = precision };
    sampling.programs[PROGRAM_PREFILL] = true;
    Plan *plan = lower(model, &training), *sample_plan = plan ? lower(model, &sampling) : NULL;
    result = 2;
    if (sample_plan) {
        json_t *origin = json_pack("{s:s, s:o, s:o, s:f}", "spec", spec, "arguments",
                                   pairs(spec_options->args, spec_options->n_args), "set",
                                   pairs(spec_options->sets, spec_options->n_sets),
                                   "flops per token", model_counts(model).train_flops_per_token);
        RunSource source = { .plan = plan, .sample_plan = sample_plan, .origin = origin };
        source.files = spec_files(options->arena, model, spec, &source.n_files);
        status = command_train(&source, options);
        result = status == OK ? 0 : driver_fail(status);
        json_decref(origin);
    }
    plan_destroy(plan);
    plan_destroy(sample_plan);
    return result;
}

static int load_and_train(int argc, char **argv, Options *options) {
    const char **words = ARENA_ARRAY(options->arena, const char *, argc), *spec = NULL;
    int n;
    SpecArg *args = NULL;
    options->takes_spec_sets = true;
    Status status = options_parse(options, FOR_TRAIN, argc, argv, words, &n);
    if (status == OK) status = read_words(options, words, n, &spec, &args);
    if (status == OK && !options->out[0])
        status = status_fail(ERR_ARGUMENT, "no place for the run\n  hint: --out FOLDER");
    if (status == OK && !options->data.n)
        status = status_fail(ERR_ARGUMENT, "no training data\n  hint: --data FILE...");
    if (status == OK) status = schedule_check(options);
    if (status != OK) return driver_fail(status);
    static const Routing routings[] = { [CHOICE_LEARNED] = ROUTING_LEARNED,
                                        [CHOICE_UNIFORM] = ROUTING_UNIFORM,
                                        [CHOICE_RANDOM] = ROUTING_RANDOM };
    SpecOptions spec_options = { .args = args,
                                 .n_args = n - 1,
                                 .routing = routings[options->routing],
                                 .sets = spec_sets(options),
                                 .n_sets = options->spec_sets.n };
    Text error = { 0 };
    Model *model = spec_load(spec, &spec_options, &error);
    if (!model) {
        fputs(text_cstr(&error), stderr);
        text_finish(&error);
        return 2;
    }
    int result = train_model(model, spec, &spec_options, options);
    model_destroy(model);
    text_finish(&error);
    return result;
}

int cmd_train(int argc, char **argv) {
    Options *options = options_create();
    int result = load_and_train(argc, argv, options);
    options_destroy(options);
    return result;
}
