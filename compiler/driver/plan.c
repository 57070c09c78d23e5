// SPDX-License-Identifier: Apache-2.0
// `moec plan`: lowers a spec and prints what the plan holds: memory by region, kernels by segment
// with their FLOPs and bytes, and the largest buffers with the lines of the spec they come from.
#include <stdio.h>
#include <stdlib.h>

#include "compiler/driver/driver.h"
#include "compiler/lower/lower.h"
#include "compiler/spec/spec.h"

enum { USUAL_MICROBATCH = 2048 /* tokens */, LARGEST = 10 /* buffers */ };

typedef struct PlanArgs {
    const char *spec, *out, *dump;
    int64_t microbatch, microbatches; // tokens; per step
    uint8_t precision, recompute, routing;
    SpecArg *args, *sets;
    int n_args, n_sets;
} PlanArgs;

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

static const Choice precisions[] = { { "fp32", PRECISION_FP32 }, { "bf16", PRECISION_BF16 } };
static const Choice policies[] = { { "cheap", RECOMPUTE_CHEAP }, { "none", RECOMPUTE_NONE } };

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

// Takes the flag at argv[*i] and its value: `--flag value` or `--flag=value`.
static Status read_flag(PlanArgs *args, Arena *arena, int argc, char **argv, int *i) {
    const char *flag = argv[*i], *value = NULL;
    const char *equals = !strncmp(flag, "--", 2) ? strchr(flag, '=') : NULL;
    if (equals) {
        flag = arena_strndup(arena, flag, (size_t)(equals - flag));
        value = equals + 1;
    }
    static const char *const flags[] = { "-o", "-d", "--microbatch", "--microbatches", "--precision",
                                         "--recompute", "--routing", "--set" };
    int which = 0;
    while (which < COUNT_OF(flags) && strcmp(flags[which], flag)) which++;
    if (which == COUNT_OF(flags)) {
        const char *near = text_nearest(flag, flags, COUNT_OF(flags));
        return status_fail(ERR_ARGUMENT, "unknown option '%s'\n  hint: %s%s", flag,
                           near ? "did you mean " : "moec plan --help", near ? near : "");
    }
    if (!value && ++*i >= argc)
        return status_fail(ERR_ARGUMENT, "%s: expected a value after it, got nothing", flag);
    if (!value) value = argv[*i];
    switch (which) {
    case 0: args->out = value; return OK;
    case 1: args->dump = value; return OK;
    case 2: return read_count(flag, value, &args->microbatch);
    case 3: return read_count(flag, value, &args->microbatches);
    case 4: return read_choice(flag, value, precisions, COUNT_OF(precisions), &args->precision);
    case 5: return read_choice(flag, value, policies, COUNT_OF(policies), &args->recompute);
    case 6: return read_choice(flag, value, routings, COUNT_OF(routings), &args->routing);
    default: return read_set(args, arena, value);
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

static Status read_args(PlanArgs *args, Arena *arena, int argc, char **argv) {
    *args = (PlanArgs){ .microbatches = 1,
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
        return status_fail(ERR_ARGUMENT, "no SPEC given\n  hint: moec plan models/tiny.lua");
    return OK;
}

/* The summary ---------------------------------------------------------------------------------- */

static const char *bytes_text(int64_t bytes, char out[32]) {
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < COUNT_OF(units) - 1; unit++) value /= 1024;
    snprintf(out, 32, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return out;
}

static void print_regions(const Plan *plan) {
    static const char *const names[] = {
#define X(name) #name,
        PLAN_REGIONS(X)
#undef X
    };
    char text[32];
    printf("peak    %s\n", bytes_text(plan_peak(plan), text));
    for (int i = 0; i < N_REGIONS; i++) {
        if (plan->region_bytes[i])
            printf("  %-8s %s\n", names[i], bytes_text(plan->region_bytes[i], text));
    }
}

typedef struct Family {
    const char *name;
    int launches;
    double flops, bytes;
} Family;

// Launches of a segment, summed by kernel family, in the order of first use.
static void print_segment(const Plan *plan, const PlanProgram *program,
                          const PlanSegment *segment) {
    Family families[32];
    int n = 0;
    Family sum = { .name = segment->name };
    for (int32_t i = segment->first; i < segment->first + segment->n; i++) {
        const PlanKernel *kernel = &plan->kernels[program->instrs[i].kernel];
        int f = 0;
        while (f < n && strcmp(families[f].name, kernel->family)) f++;
        if (f == COUNT_OF(families)) f--; // more families than exist
        if (f == n) families[n++] = (Family){ .name = kernel->family };
        Family *to[] = { &families[f], &sum };
        const PlanRepeat *repeat = plan_repeat(program, i);
        int trips = repeat ? repeat->trip : 1;
        for (int k = 0; k < 2; k++) {
            to[k]->launches += trips;
            to[k]->flops += kernel->flops * trips;
            to[k]->bytes += kernel->bytes * trips;
        }
    }
    char text[32];
    printf("  %-12s %5d launches %9.2f GFLOP %12s\n", sum.name, sum.launches, sum.flops / 1e9,
           bytes_text((int64_t)sum.bytes, text));
    for (int f = 0; f < n; f++) {
        printf("    %-12s %3d          %9.2f       %12s\n", families[f].name, families[f].launches,
               families[f].flops / 1e9, bytes_text((int64_t)families[f].bytes, text));
    }
}

static int by_size(const void *a, const void *b) {
    const PlanBuffer *x = *(const PlanBuffer *const *)a, *y = *(const PlanBuffer *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return strcmp(x->name, y->name);
}

static void print_largest(const PlanProgram *program, Arena *scratch) {
    const PlanBuffer **act = ARENA_ARRAY(scratch, const PlanBuffer *, program->n_buffers);
    size_t n = 0;
    for (uint32_t i = 0; i < program->n_buffers; i++) {
        if (program->buffers[i].region == REGION_act) act[n++] = &program->buffers[i];
    }
    qsort(act, n, sizeof *act, by_size);
    if (n) printf("  largest buffers of act\n");
    for (size_t i = 0; i < n && i < LARGEST; i++) {
        char text[32];
        printf("    %10s  live %4d..%-4d  %s%s%s\n", bytes_text(act[i]->bytes, text), act[i]->first,
               act[i]->last, act[i]->name, act[i]->loc ? "  " : "", act[i]->loc ? act[i]->loc : "");
    }
}

static void print_program(const Plan *plan, const PlanProgram *program, Arena *scratch) {
    char act[32], bound[32];
    double ratio = program->act_bound ? (double)program->act_bytes / (double)program->act_bound : 1;
    printf("program %s: %u launches, act %s, lower bound %s (%.4f)\n", program->name,
           program->n_instrs, bytes_text(program->act_bytes, act),
           bytes_text(program->act_bound, bound), ratio);
    for (uint32_t i = 0; i < program->n_segments; i++)
        print_segment(plan, program, &program->segments[i]);
    print_largest(program, scratch);
}

static void print_plan(const Plan *plan, Arena *scratch) {
    printf("plan    %s on %s, %lld tokens in sequences of %lld, %d microbatch%s a step\n",
           plan->model, plan->target, (long long)plan->tokens, (long long)plan->sequence,
           plan->microbatches, plan->microbatches == 1 ? "" : "es");
    int64_t launches = 0;
    for (uint32_t i = 0; i < plan->n_programs; i++) launches += plan->programs[i].n_instrs;
    printf("kernels %u distinct, %lld launches\n", plan->n_kernels, (long long)launches);
    print_regions(plan);
    for (uint32_t i = 0; i < plan->n_programs; i++)
        print_program(plan, &plan->programs[i], scratch);
}

/* The command ---------------------------------------------------------------------------------- */

static Status choose_microbatch(PlanArgs *args, int64_t sequence) {
    if (!args->microbatch)
        args->microbatch = max_i64(sequence, USUAL_MICROBATCH / sequence * sequence);
    if (args->microbatch % sequence == 0) return OK;
    return status_fail(ERR_ARGUMENT,
                       "--microbatch is %lld tokens, expected a multiple of the sequence of %lld",
                       (long long)args->microbatch, (long long)sequence);
}

static int write_plan(const Plan *plan, const char *path) {
    Text text = { 0 };
    plan_print(plan, &text);
    Status status = file_write_atomic(path, text_cstr(&text), text.bytes);
    text_finish(&text);
    return status == OK ? 0 : driver_fail(status);
}

static int plan_model(Model *model, PlanArgs *args, Arena *arena) {
    Status status = choose_microbatch(args, model->sequence);
    if (status != OK) return driver_fail(status);
    Text dump = { 0 };
    LowerOptions options = { .microbatch = (int32_t)(args->microbatch / model->sequence),
                             .microbatches = (int32_t)args->microbatches,
                             .precision = args->precision,
                             .recompute = args->recompute,
                             .dump = args->dump,
                             .dump_out = &dump };
    options.programs[PROGRAM_STEP] = options.programs[PROGRAM_EVAL] = true;
    Plan *plan = lower_model(model, &options);
    fputs(text_cstr(&dump), stdout);
    text_finish(&dump);
    if (!plan) return driver_refuse(model);
    int result = args->out ? write_plan(plan, args->out) : 0;
    if (!result) print_plan(plan, arena);
    plan_destroy(plan);
    return result;
}

static int load_and_plan(PlanArgs *args, Arena *arena) {
    SpecOptions options = { .args = args->args,
                            .n_args = args->n_args,
                            .routing = args->routing,
                            .sets = args->sets,
                            .n_sets = args->n_sets };
    Text error = { 0 };
    Model *model = spec_load(args->spec, &options, &error);
    if (!model) fputs(text_cstr(&error), stderr);
    int result = model ? plan_model(model, args, arena) : status_exit(ERR_INPUT);
    model_destroy(model);
    text_finish(&error);
    return result;
}

int cmd_plan(int argc, char **argv) {
    Arena *arena = arena_create();
    PlanArgs args;
    Status status = read_args(&args, arena, argc, argv);
    int result = status == OK ? load_and_plan(&args, arena) : driver_fail(status);
    arena_destroy(arena);
    return result;
}
