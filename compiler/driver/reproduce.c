// SPDX-License-Identifier: Apache-2.0
// `moec reproduce`: published results beside what the cost model predicts of them, from hardware descriptions
// alone.
#include <math.h>
#include <stdio.h>

#include "compiler/driver/driver.h"
#include "compiler/driver/line.h"
#include "compiler/driver/published.h"

/* OLMo-core 3 ---------------------------------------------------------------------------------- */

// One published result of the technical report of OLMo-core 3: models/SPEC.lua ARGS on MACHINE.
typedef struct Reported {
    const char *what, *spec, *args, *machine, *layout;
    uint8_t precision, routing;
    bool waits;        // their previous stack gathers a block's weights before use and waits (prefetch 0)
    int64_t sequences; // of a step
    double tokens_per_s, tflop_per_s, gib; // published; 0: not stated
} Reported;

#define MB2 "microbatch=2"
#define PIPELINE ",recompute=block,schedule=interleaved,slots=2,stages=4:4:4:4:4:4:4:4:4:4:4:4:4:4:4:3"
enum { BF16 = PRECISION_BF16, MXFP8 = PRECISION_MXFP8, RANDOM = COST_RANDOM, UNIFORM = COST_UNIFORM };

static const Reported reported[] = {
    { "8 experts, resident, EP 8", "olmo3moe_8l", "experts=8", "b300x8", "dp=8,ep=8," MB2, BF16, RANDOM, false,
      512, 54500, 0, 0 },
    { "128 experts, resident, EP 8", "olmo3moe_8l", "experts=128", "b300x8", "dp=8,ep=8," MB2, BF16, RANDOM, false,
      512, 52000, 0, 0 },
    { "8 experts, fsdp", "olmo3moe_8l", "experts=8", "b300x8", "dp=8,params=fsdp," MB2, BF16, RANDOM, true, 512,
      50500, 0, 0 },
    { "128 experts, fsdp", "olmo3moe_8l", "experts=128", "b300x8", "dp=8,params=fsdp," MB2, BF16, RANDOM, true, 512,
      19400, 0, 0 },
    { "48 experts, no EP", "olmo3moe_8l", "experts=48", "b300x8", "dp=8," MB2, BF16, RANDOM, false, 512, 53512, 0,
      129.3 },
    { "48 experts, EP 8", "olmo3moe_8l", "experts=48", "b300x8", "dp=8,ep=8," MB2, BF16, RANDOM, false, 512, 54063,
      0, 77.85 },
    { "32 experts on 4, bf16", "olmo3moe_8l", "experts=32", "b300x4", "dp=4,ep=4," MB2, BF16, UNIFORM, false, 64,
      54740, 0, 103.4 },
    { "32 experts on 4, mxfp8", "olmo3moe_8l", "experts=32", "b300x4", "dp=4,ep=4," MB2, MXFP8, UNIFORM, false, 64,
      66200, 0, 95 },
    { "32 experts on 4, bf16, recompute", "olmo3moe_8l", "experts=32", "b300x4", "dp=4,ep=4,recompute=block," MB2,
      BF16, UNIFORM, false, 64, 43220, 0, 76.9 },
    { "ultra on 512", "olmo3moe", "size=ultra", "b300x512", "pp=8,dp=64,ep=8,microbatch=1" PIPELINE, MXFP8, RANDOM,
      false, 8192, 0, 858, 0 },
    { "ultra, 256 experts, on 512", "olmo3moe", "size=ultra experts=256", "b300x512",
      "pp=8,dp=64,ep=32,transport=blocks," MB2 PIPELINE, MXFP8, RANDOM, false, 8192, 0, 689, 0 },
};
enum { N_REPORTED = COUNT_OF(reported) };


static double published_speed(const Reported *r, const BenchResult *p) {
    return r->tokens_per_s ? r->tokens_per_s : r->tflop_per_s * 1e12 / p->flops_per_token;
}

static BenchRun run_of(const Reported *r) {
    return (BenchRun){ .spec = r->spec, .args = r->args, .cluster = r->machine, .layout = r->layout,
                     .stack = &published_apart, .habits = COST_WHOLE_HEAD | COST_SHORT_ROUTER,
                     .precision = r->precision, .routing = r->routing, .sequences = r->sequences,
                       .params_hidden = r->waits ? 0 : 1 };
}

static double print_reported(const Reported *r, const BenchResult *p) {
    double published = published_speed(r, p), error = p->tokens_per_s / published - 1;
    printf("  %-34s %7.0f of %7.0f %6.0f of %5.0f %8.1f", r->what, p->tokens_per_s, published, p->flop_per_s * 1e-12,
           published * p->flops_per_token * 1e-12, (double)(p->step.state_bytes + p->step.moving_bytes) / 0x1p30);
    if (r->gib) printf(" of %5.1f", r->gib);
    else printf("         ");
    printf("  %+6.1f %%\n", 100 * error);
    return error;
}

// What changes from one of them to another.
static const struct { const char *what; int from, to; } changes[] = {
    { "8 to 128 experts, resident", 0, 1 }, { "8 to 128 experts, fsdp", 2, 3 }, { "mxfp8 against bf16", 6, 7 },
    { "recomputation", 6, 8 },              { "ultra: 128 to 256 experts", 9, 10 },
};

// Where a step of `to` takes less than one of `from`, and where more.
static void print_reasons(const CostStep *from, const CostStep *to) {
    struct { const char *name; double from, to; } parts[] = {
        { "products", from->class_s[COST_dense] + from->class_s[COST_experts],
          to->class_s[COST_dense] + to->class_s[COST_experts] },
        { "attention", from->class_s[COST_attention], to->class_s[COST_attention] },
        { "memory-bound", from->class_s[COST_row] + from->class_s[COST_move],
          to->class_s[COST_row] + to->class_s[COST_move] },
        { "imbalance", from->imbalance_s, to->imbalance_s },
        { "rows to experts and back", from->rows_s, to->rows_s },
        { "parameters and gradients", from->params_s, to->params_s },
        { "between stages", from->send_s, to->send_s },
        { "waiting for stages", from->bubble_s, to->bubble_s },
        { "optimizer", from->optimizer_s, to->optimizer_s },
    };
    for (int i = 0; i < COUNT_OF(parts); i++) {
        double change = (parts[i].to - parts[i].from) / from->seconds;
        if (fabs(change) >= 0.005) printf("      %+6.1f %% of the step  %s\n", 100 * change, parts[i].name);
    }
}

// Is there anything faster than what they used?
static int search_for(Bench *bench, const Reported *r, const BenchResult *theirs) {
    Arena *arena = arena_create();
    const char *layout;
    BenchResult best;
    BenchRun run = run_of(r);
    double start = time_seconds();
    Status status = bench_search(bench, &run, arena, &layout, &best);
    if (status == OK) {
        driver_print(arena_printf(arena, "  %s: %s\n    against %s\n    %.0f tokens/s, %+.1f %%; %.1f GiB; found in %.1f s\n",
                                  r->what, layout, r->layout, best.tokens_per_s,
                                  100 * (best.tokens_per_s / theirs->tokens_per_s - 1),
                                  (double)(best.step.state_bytes + best.step.moving_bytes) / 0x1p30,
                                  time_seconds() - start));
        print_reasons(&theirs->step, &best.step);
    }
    arena_destroy(arena);
    return status == OK ? 0 : driver_fail(status);
}

static int olmo_core_3(Bench *bench, bool searches) {
    BenchResult results[N_REPORTED];
    int within = 0;
    printf("OLMo-core 3, technical report: predicted and published; from the description of the machine,\n"
           "nothing fitted\n\n  %-34s %18s %15s %17s\n", "", "tokens/s of a device", "TFLOP/s", "GiB");
    for (int i = 0; i < N_REPORTED; i++) {
        BenchRun run = run_of(&reported[i]);
        Status status = bench_predict(bench, &run, &results[i]);
        if (status != OK) return driver_fail(status);
        within += fabs(print_reported(&reported[i], &results[i])) <= 0.1;
    }
    printf("\n  %d of %d within 10 %%\n\n", within, N_REPORTED);
    for (int i = 0; i < COUNT_OF(changes); i++) {
        const BenchResult *from = &results[changes[i].from], *to = &results[changes[i].to];
        double published = published_speed(&reported[changes[i].to], to) /
                           published_speed(&reported[changes[i].from], from);
        printf("  %-28s %+6.1f %% predicted, %+6.1f %% published\n", changes[i].what,
               100 * (to->tokens_per_s / from->tokens_per_s - 1), 100 * (published - 1));
    }
    printf("\nmxfp8 is known to the cost model; moec has no kernels for it.\n");
    static const int searched[] = { 1, 7, 9, 10 };
    if (searches) printf("\nfastest of all layouts, as predicted, with the same sequences in a step, precision and capacity:\n"
                        "of pp, dp, ep, microbatch, schedule, slots, stages, each layer's recomputation, where parameters\n"
                        "live, transport and overlap; memory is that of moec's plans\n");
    for (int i = 0; searches && i < COUNT_OF(searched); i++) {
        int result = search_for(bench, &reported[searched[i]], &results[searched[i]]);
        if (result) return result;
    }
    return 0;
}

/* The command ---------------------------------------------------------------------------------- */

static int reproduce(const char *what, const Options *o) {
    static const char *const known[] = { "olmo-core-3", "published" };
    bool olmo = what && !strcmp(what, known[0]);
    if (!olmo && !(what && !strcmp(what, known[1]))) {
        const char *near = what ? text_nearest(what, known, COUNT_OF(known)) : NULL;
        return driver_fail(status_fail(ERR_ARGUMENT, "expected olmo-core-3 or published, got %s%s%s\n  hint: %s%s%s",
                                       what ? "'" : "", what ? what : "nothing", what ? "'" : "",
                                       near ? "did you mean '" : "moec reproduce published", near ? near : "",
                                       near ? "'?" : ""));
    }
    const char *needed = olmo ? o->models : o->rows;
    if (!file_exists(needed) || !file_exists(o->models))
        return driver_fail(status_fail(ERR_INPUT, "cannot find %s\n  hint: run it where moec's sources are, or say where "
                                                  "with --models and --rows", file_exists(needed) ? o->models : needed));
    Bench *bench = bench_create(o->models);
    int result = olmo ? olmo_core_3(bench, !o->brief) : published_print(bench, o->rows);
    bench_destroy(bench);
    return result;
}

int cmd_reproduce(int argc, char **argv) {
    Options *options = options_create();
    const char *what;
    Status status = line_word(options, FOR_REPRODUCE, argc, argv, &what);
    int result = status == OK ? reproduce(what, options) : driver_fail(status);
    options_destroy(options);
    return result;
}
