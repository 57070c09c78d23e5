// SPDX-License-Identifier: Apache-2.0
// The command line of what lowers a spec without training it, and the way from there to a Plan.
#include <stdio.h>
#include <stdlib.h>

#include "compiler/driver/plan_args.h"
#include "runtime/exec/exec.h"


/* The command line ----------------------------------------------------------------------------- */

static Status read_count(const char *flag, const char *text, int64_t *out) {
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*end || end == text || value < 1 || value > INT32_MAX)
        return status_fail(ERR_ARGUMENT, "%s: expected a whole number from 1, got '%s'", flag,
                           text);
    *out = value;
    return OK;
}

typedef struct Choice {
    const char *word;
    uint8_t value;
} Choice;

// The last one is known to the model of costs only.
static const Choice precisions[] = { { "fp32", PRECISION_FP32 }, { "bf16", PRECISION_BF16 },
                                     { "mxfp8", PRECISION_MXFP8 } };
static const Choice policies[] = { { "cheap", RECOMPUTE_CHEAP },
                                   { "none", RECOMPUTE_NONE },
                                   { "block", RECOMPUTE_BLOCK } };

static const Choice routings[] = { { "learned", ROUTING_LEARNED },
                                   { "uniform", ROUTING_UNIFORM },
                                   { "random", ROUTING_RANDOM } };

static Status read_choice(const char *flag, const char *text, const Choice *choices, int n,
                          uint8_t *out) {
    Text words = { 0 };
    for (int i = 0; i < n; i++) {
        if (!strcmp(choices[i].word, text)) {
            *out = choices[i].value;
            text_finish(&words);
            return OK;
        }
        text_printf(&words, "%s%s", !i ? "" : i + 1 < n ? ", " : " or ", choices[i].word);
    }
    status_fail(ERR_ARGUMENT, "%s: expected %s, got '%s'", flag, text_cstr(&words), text);
    text_finish(&words);
    return ERR_ARGUMENT;
}

static Status read_set(PlanArgs *args, Arena *arena, const char *text) {
    const char *equals = strchr(text, '=');
    if (!equals)
        return status_fail(ERR_ARGUMENT, "--set: expected ADDRESS.FIELD=VALUE, got '%s'", text);
    args->sets[args->n_sets++] =
        (SpecArg){ arena_strndup(arena, text, (size_t)(equals - text)), equals + 1 };
    return OK;
}

static Status read_target(const char *flag, const char *value, const char *target, PlanArgs *args) {
    PlanTarget parsed;
    args->target = target;
    if (plan_target(target, &parsed) && (!parsed.cuda || parsed.sm >= PLAN_OLDEST_SM)) return OK;
    bool plan = args->command != ARGS_OF_KERNELS;
    return status_fail(ERR_ARGUMENT,
                       "%s: expected %s from sm_80 on, got '%s'\n  hint: for example %s", flag,
                       plan ? "cpu or cuda:ARCH" : "an architecture", value,
                       plan ? "cuda:sm_90a" : "sm_90a");
}

static const char *help_of(int command) {
    return command == ARGS_OF_PLAN      ? "moec plan --help"
           : command == ARGS_OF_KERNELS ? "moec kernels --help"
                                        : "moec simulate --help";
}

static Status read_load(const char *flag, const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    if (!*end && end != text && *out >= 1 && *out <= 1e6) return OK;
    return status_fail(ERR_ARGUMENT, "%s: expected a number from 1 to 1e6, got '%s'", flag, text);
}

// Takes the flag at argv[*i] and its value: `--flag value` or `--flag=value`.
static Status read_flag(PlanArgs *args, Arena *arena, int argc, char **argv, int *i) {
    const char *flag = argv[*i], *value = NULL;
    if (args->command == ARGS_OF_SIMULATE && !strcmp(flag, "--quick")) {
        args->quick = true;
        return OK;
    }
    const char *equals = !strncmp(flag, "--", 2) ? strchr(flag, '=') : NULL;
    if (equals) {
        flag = arena_strndup(arena, flag, (size_t)(equals - flag));
        value = equals + 1;
    }
    static const char *const flags[] = {
        "-o",        "-d",    "--microbatch", "--microbatches", "--precision", "--recompute",
        "--routing", "--set", "--layout",     "--device",       "--target",    "--arch",
        "--cluster", "--trace", "--svg",      "--times",        "--load"
    };
    enum { WRITES = ARGS_OF_PLAN | ARGS_OF_KERNELS, ALL = WRITES | ARGS_OF_SIMULATE,
           PLANS = ARGS_OF_PLAN | ARGS_OF_SIMULATE };
    static const int takers[COUNT_OF(flags)] = {
        WRITES, WRITES, ALL,   ALL,          ALL,   ALL,
        ALL,    ALL,    PLANS, ARGS_OF_PLAN, PLANS, ARGS_OF_KERNELS,
        ARGS_OF_SIMULATE, ARGS_OF_SIMULATE, ARGS_OF_SIMULATE, ARGS_OF_SIMULATE, ARGS_OF_SIMULATE
    };
    int which = 0;
    while (which < COUNT_OF(flags) && strcmp(flags[which], flag)) which++;
    if (which == COUNT_OF(flags) || !(takers[which] & args->command)) {
        const char *near = text_nearest(flag, flags, COUNT_OF(flags));
        return status_fail(ERR_ARGUMENT, "unknown option '%s'\n  hint: %s%s", flag,
                           near && strcmp(near, flag) ? "did you mean " : help_of(args->command),
                           near && strcmp(near, flag) ? near : "");
    }
    if (!value && ++*i >= argc)
        return status_fail(ERR_ARGUMENT, "%s: expected a value after it, got nothing", flag);
    if (!value) value = argv[*i];
    switch (which) {
    case 0: args->out = value; return OK;
    case 1: args->dump = value; return OK;
    case 2: return read_count(flag, value, &args->microbatch);
    case 3: return read_count(flag, value, &args->microbatches);
    case 4:
        return read_choice(flag, value, precisions,
                           args->command == ARGS_OF_SIMULATE ? COUNT_OF(precisions) : COUNT_OF(precisions) - 1,
                           &args->precision);
    case 5: return read_choice(flag, value, policies, COUNT_OF(policies), &args->recompute);
    case 6: return read_choice(flag, value, routings, COUNT_OF(routings), &args->routing);
    case 7: return read_set(args, arena, value);
    case 8: args->layout = value; return OK;
    case 9: return exec_target(value, arena, &args->target);
    case 10: return read_target(flag, value, value, args);
    case 11: return read_target(flag, value, arena_printf(arena, "cuda:%s", value), args);
    case 12: args->cluster = value; return OK;
    case 13: args->trace = value; return OK;
    case 14: args->svg = value; return OK;
    case 15: args->times = value; return OK;
    default: return read_load(flag, value, &args->load);
    }
}

static Status read_word(PlanArgs *args, Arena *arena, const char *word) {
    if (!args->spec) {
        args->spec = word;
        return OK;
    }
    const char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return status_fail(
            ERR_ARGUMENT, "unexpected '%s': after SPEC come key=value arguments of the spec", word);
    args->args[args->n_args++] =
        (SpecArg){ arena_strndup(arena, word, (size_t)(equals - word)), equals + 1 };
    return OK;
}

Status plan_args_read(PlanArgs *args, int command, Arena *arena, int argc, char **argv) {
    *args = (PlanArgs){ .command = command,
                         .args = ARENA_ARRAY(arena, SpecArg, argc),
                         .sets = ARENA_ARRAY(arena, SpecArg, argc) };
    bool words = false; // after `--`
    for (int i = 1; i < argc; i++) {
        if (!words && !strcmp(argv[i], "--"))
            words = true;
        else if (!words && argv[i][0] == '-')
            TRY(read_flag(args, arena, argc, argv, &i));
        else
            TRY(read_word(args, arena, argv[i]));
    }
    if (!args->spec)
        return status_fail(ERR_ARGUMENT, "no SPEC given\n  hint: moec %s models/tiny.lua",
                           command == ARGS_OF_PLAN      ? "plan"
                           : command == ARGS_OF_KERNELS ? "kernels --arch sm_90a -o kernels"
                                                        : "simulate");
    return OK;
}

/* The plans ------------------------------------------------------------------------------------ */

static Status choose_microbatch(PlanArgs *args, int64_t sequence) {
    if (!args->microbatch)
        args->microbatch = max_i64(sequence, USUAL_MICROBATCH / sequence * sequence);
    if (args->microbatch % sequence == 0) return OK;
    return status_fail(ERR_ARGUMENT,
                       "--microbatch is %lld tokens, expected a multiple of the sequence of %lld",
                       (long long)args->microbatch, (long long)sequence);
}

// Fills in the layout and what it says of microbatches.
static int choose_layout(Model *model, PlanArgs *args, Arena *arena, Layout *layout,
                         LowerOptions *options) {
    *layout = layout_single();
    if (args->layout) {
        LayoutArgs given = { .text = args->layout,
                             .microbatch = args->microbatch,
                             .microbatches = args->microbatches,
                             .recompute = args->recompute };
        int result = driver_layout(&given, model, arena, layout, &options->microbatches);
        options->microbatch = layout->microbatch;
        options->layout = layout;
        return result;
    }
    Status status = choose_microbatch(args, model->sequence);
    if (status != OK) return driver_fail(status);
    options->microbatch = (int32_t)(args->microbatch / model->sequence);
    options->microbatches = (int32_t)max_i64(args->microbatches, 1);
    return 0;
}

static int lower(Model *model, PlanArgs *args, Arena *arena, StagePlans *out) {
    Text dump = { 0 };
    LowerOptions options = { .target = args->target,
                             .precision = args->precision,
                             .recompute = args->recompute,
                             .dump = args->dump,
                             .dump_out = &dump };
    options.programs[PROGRAM_STEP] = true;
    options.programs[PROGRAM_EVAL] = args->command != ARGS_OF_SIMULATE;
    int result = choose_layout(model, args, arena, &out->layout, &options);
    out->n_layers = model->n_layers;
    out->plans = ARENA_ARRAY(arena, Plan *, out->layout.pp);
    for (; !result && options.stage < out->layout.pp; options.stage++) {
        Plan *plan = out->plans[options.stage] = lower_model(model, &options);
        if (!plan) result = driver_refuse(model);
    }
    if (!result && plan_check_stages((const Plan *const *)out->plans, out->layout.pp) != OK) {
        fprintf(stderr, "moec: internal error: %s\n", status_message());
        result = 1;
    }
    fputs(text_cstr(&dump), stdout);
    text_finish(&dump);
    if (result) stage_plans_destroy(out);
    return result;
}

void stage_plans_destroy(StagePlans *stages) {
    for (int32_t i = 0; i < stages->layout.pp; i++) plan_destroy(stages->plans[i]);
}

int plan_args_lower(PlanArgs *args, Arena *arena, StagePlans *out) {
    SpecOptions options = { .args = args->args,
                            .n_args = args->n_args,
                            .routing = args->routing,
                            .sets = args->sets,
                            .n_sets = args->n_sets };
    Text error = { 0 };
    Model *model = spec_load(args->spec, &options, &error);
    if (!model) fputs(text_cstr(&error), stderr);
    int result = model ? lower(model, args, arena, out) : status_exit(ERR_INPUT);
    model_destroy(model);
    text_finish(&error);
    return result;
}
