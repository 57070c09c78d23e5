// SPDX-License-Identifier: Apache-2.0
// `moec plan`: lowers a spec and prints what the plan holds: memory by region, kernels by segment
// with their FLOPs and bytes, and the largest buffers with the lines of the spec they come from.
#include <stdio.h>
#include <stdlib.h>

#include "compiler/driver/plan_args.h"

enum { LARGEST = 10 /* buffers */ };

/* The summary ---------------------------------------------------------------------------------- */

const char *bytes_text(int64_t bytes, char out[32]) {
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

// Repeats that are counted: the sums have none of them.
static void print_counted(const PlanProgram *program, const PlanSegment *segment) {
    int places = 0, instrs = 0, most = 0;
    for (uint32_t r = 0; r < program->n_repeats; r++) {
        const PlanRepeat *repeat = &program->repeats[r];
        bool here = repeat->first >= segment->first && repeat->first < segment->first + segment->n;
        if (!repeat->count || !here) continue;
        places++;
        instrs += repeat->n;
        if (repeat->trip > most) most = repeat->trip;
    }
    if (places)
        printf("    further rounds in %d place%s, %d instructions, up to %d times; none at even loads\n", places,
               places == 1 ? "" : "s", instrs, most);
}

// Launches of a segment, summed by kernel family, in the order of first use.
static void print_segment(const Plan *plan, const PlanProgram *program,
                          const PlanSegment *segment) {
    Family families[32];
    int n = 0;
    Family sum = { .name = segment->name };
    for (int32_t i = segment->first; i < segment->first + segment->n; i++) {
        if (program->instrs[i].op != PLAN_launch) continue;
        const PlanKernel *kernel = &plan->kernels[program->instrs[i].kernel];
        int f = 0;
        while (f < n && strcmp(families[f].name, kernel->family)) f++;
        if (f == COUNT_OF(families)) f--; // more families than exist
        if (f == n) families[n++] = (Family){ .name = kernel->family };
        Family *to[] = { &families[f], &sum };
        int trips = plan_trips(program, i);
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
    print_counted(program, segment);
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

static int write_plans(const StagePlans *stages, const char *path) {
    Text text = { 0 };
    for (int32_t i = 0; i < stages->layout.pp; i++) plan_print(stages->plans[i], &text);
    Status status = file_write_atomic(path, text_cstr(&text), text.bytes);
    text_finish(&text);
    return status == OK ? 0 : driver_fail(status);
}

static void print_stages(const StagePlans *stages, bool ranks, Arena *scratch) {
    if (ranks) {
        Text text = { 0 };
        ranks_print(stages, &text);
        fputs(text_cstr(&text), stdout);
        text_finish(&text);
    }
    for (int32_t i = 0; i < stages->layout.pp; i++) {
        if (stages->layout.pp > 1) printf("stage %d\n", i);
        print_plan(stages->plans[i], scratch);
    }
}

static int lower_and_print(PlanArgs *args, Arena *arena) {
    StagePlans stages;
    int result = plan_args_lower(args, arena, &stages);
    if (result) return result;
    const char *out = args->options->plan_out;
    result = out[0] ? write_plans(&stages, out) : 0;
    if (!result) print_stages(&stages, args->layout != NULL, arena);
    stage_plans_destroy(&stages);
    return result;
}

// What is read is not written over, and a file that cannot be written is refused before anything takes time.
static Status check_out(const PlanArgs *args) {
    const char *out = line_text(args->options->plan_out);
    if (!out) return OK;
    TRY(driver_writable(out));
    TRY(driver_apart("-o", out, args->spec));
    return driver_apart("-o", out, args->layout);
}

int cmd_plan(int argc, char **argv) {
    Options *options = options_create();
    PlanArgs args;
    Status status = plan_args_read(&args, FOR_PLAN, options, argc, argv);
    if (status == OK) status = check_out(&args);
    int result = status == OK ? lower_and_print(&args, options->arena) : driver_fail(status);
    options_destroy(options);
    return result;
}
