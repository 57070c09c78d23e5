// SPDX-License-Identifier: Apache-2.0
// `moec simulate --quick`: a layout from the profile of a model instead of its plans, as a search plays it. Large
// models in a second, and precisions that plans do not have yet; pictures show units of the pipeline, as there are no
// instructions.
#include <stdio.h>
#include <string.h>

#include "compiler/driver/simulate.h"
#include "compiler/search/costed.h"
#include "compiler/search/profile.h"
#include "runtime/base/trace.h"

typedef struct Quick {
    PlanArgs *args;
    Arena *arena;
    Model *model;
    Layout layout;
    int32_t microbatches;
    CostCluster cluster;
    SimPicture picture;
    Sim sim;
    double most_bytes; // of a rank of stage `fullest`, contexts apart
    int32_t fullest;
} Quick;

static int choose_layout(Quick *q) {
    q->layout = layout_single();
    LayoutArgs given = { .text = q->args->layout ? q->args->layout : "dp=1",
                         .microbatch = q->args->microbatch,
                         .microbatches = q->args->microbatches,
                         .recompute = q->args->recompute };
    return driver_layout(&given, q->model, q->arena, &q->layout, &q->microbatches);
}

// As a search counts them.
static void find_fullest(Quick *q, const Costed *costed, const SearchLayout *layout) {
    double (*bytes)[N_COSTED_BYTES] = (void *)ARENA_ARRAY(q->arena, double, q->layout.pp * N_COSTED_BYTES);
    costed_bytes(costed, layout, bytes);
    for (int32_t stage = 0; stage < q->layout.pp; stage++) {
        double all = 0;
        for (int k = 0; k < N_COSTED_BYTES; k++) all += k == COSTED_BYTES_fixed ? 0 : bytes[stage][k];
        if (all <= q->most_bytes) continue;
        q->most_bytes = all;
        q->fullest = stage;
    }
}

// Weights and gradients cross beside compute; rows are waited for.
static Status run(Quick *q, const CostProfile *profile) {
    Costed costed = { .profile = profile,
                      .cluster = &q->cluster,
                      .stack = *cost_stack_moec(&q->cluster.device),
                      .routing = (uint8_t)q->args->spec_options.routing,
                      .load = 1,
                      .params_hidden = 1,
                      .any_transport = true };
    uint8_t precision = q->args->precision ? q->args->precision : PRECISION_FP32;
    SearchLayout layout = search_from_layout(&q->layout, precision, q->model->n_layers, q->arena);
    layout.point.microbatches = q->microbatches;
    SearchProfile costs;
    SimStage *stages;
    TRY(costed_start(&costed, &costs));
    find_fullest(q, &costed, &layout);
    TRY(search_stages(&costs, &layout, q->arena, &stages));
    q->picture = sim_picture(stages, q->layout.pp, q->arena);
    SimOptions options = { .posted = true, .sharing = costs.sharing, .span = sim_picture_span, .user = &q->picture };
    return simulate(stages, q->layout.pp, &options, q->arena, &q->sim);
}

void simulate_account(const CostAccount *account, const CostProfile *profile, const CostRun *run) {
    CostMemory m;
    if (!account || !cost_memory(profile, account, run, &m)) return;
    char text[4][32];
    printf("%-9s %s: %s weights and optimizer, %s gathered, %s activations\n",
           cost_account_name(account), bytes_text(m.bytes, text[0]), bytes_text(m.state_bytes, text[1]),
           bytes_text(m.gathered_bytes, text[2]), bytes_text(m.moving_bytes, text[3]));
}

// moec's, and another stack's beside it.
static void print_memory(const Quick *q, const CostProfile *profile) {
    CostRun run = { .layout = &q->layout, .precision = q->args->precision ? q->args->precision : PRECISION_FP32,
                    .routing = (uint8_t)q->args->spec_options.routing,
                    .sequences = (int64_t)q->layout.microbatch * q->microbatches * q->layout.dp };
    char text[2][32];
    printf("peak      about %s of %s a rank, on stage %d\n", bytes_text((int64_t)q->most_bytes, text[0]),
           bytes_text(q->cluster.device.memory_bytes - q->cluster.device.reserved_bytes, text[1]), q->fullest);
    simulate_account(line_account(q->args->options), profile, &run);
}

static const char *title(const Quick *q) {
    Text layout = { 0 };
    layout_print(&q->layout, &layout);
    const char *text = arena_printf(q->arena, "%s on %s, %s", q->model->name, q->cluster.name, text_cstr(&layout));
    text_finish(&layout);
    return text;
}

static void print(const Quick *q, const CostProfile *profile) {
    static const char *const words[] = { "fp32", "fp32", "bf16", "mxfp8 (costs are known, plans cannot yet)" };
    Text text = { 0 };
    double seconds = (double)q->sim.step_ps * 1e-12;
    int32_t ranks = layout_ranks(&q->layout);
    double tokens = (double)q->layout.microbatch * q->model->sequence * q->microbatches * q->layout.dp;
    text_printf(&text, "simulate  %s, %s, without plans\n", title(q), words[q->args->precision]);
    text_printf(&text, "step      %.3f ms, %.0f tokens, %.0f tokens/s, %.0f of each of %d rank%s\n", seconds * 1e3,
                tokens, tokens / seconds, tokens / seconds / ranks, ranks, ranks == 1 ? "" : "s");
    driver_print(text_cstr(&text));
    print_memory(q, profile);
    text.bytes = 0;
    sim_waterfall_print(&q->sim, &text);
    if (q->sim.n > 1) sim_picture_print(&q->picture, &q->sim, PICTURE_COLUMNS, &text);
    fputs(text_cstr(&text), stdout);
    text_finish(&text);
}

static Status write_trace(const Quick *q, const char *path) {
    Text text = { 0 };
    trace_open(&text);
    for (int32_t i = 0; i < q->sim.n; i++)
        sim_picture_trace(&q->picture, &q->sim, i, SIMULATED + i, arena_printf(q->arena, "simulated stage %d", i),
                          &text);
    trace_close(&text);
    Status status = file_write_atomic(path, text_cstr(&text), text.bytes);
    text_finish(&text);
    return status;
}

static Status show(const Quick *q, const CostProfile *profile) {
    const char *trace = line_text(q->args->options->picture), *svg = line_text(q->args->options->svg);
    print(q, profile);
    if (trace) TRY(write_trace(q, trace));
    return svg ? simulate_svg(&q->picture, &q->sim, title(q), svg, q->arena) : OK;
}

static int simulate_model(Quick *q) {
    int result = choose_layout(q);
    if (!result) result = simulate_cluster(q->args, q->arena, layout_ranks(&q->layout), &q->cluster);
    if (result) return result;
    if (q->args->precision == PRECISION_MXFP8 && q->cluster.device.matmul[PRECISION_MXFP8].flop_per_s <= 0)
        return driver_fail(status_fail(ERR_ARGUMENT, "--precision mxfp8: %s of %s has no products in it\n"
                                                     "  hint: --cluster b300, or --precision bf16",
                                       q->cluster.device.name, q->cluster.name));
    CostProfile *profile = profile_create(q->model, &q->cluster);
    if (!profile) return driver_refuse(q->model);
    Status status = run(q, profile);
    if (status == OK) status = show(q, profile);
    profile_destroy(profile);
    return status == OK ? 0 : driver_fail(status);
}

int simulate_quick(PlanArgs *args, Arena *arena) {
    const Options *o = args->options;
    if (o->given[OPT_times] || args->target || o->load > 0)
        return driver_fail(status_fail(ERR_ARGUMENT,
                                       "--quick has no instructions: --times, --target and --load need plans\n"
                                       "  hint: without --quick"));
    size_t n = strlen(args->spec);
    if (n < 4 || strcmp(args->spec + n - 4, ".lua"))
        return driver_fail(status_fail(ERR_ARGUMENT,
                                       "--quick: expected a SPEC, a file of Lua that ends in .lua, got '%s'\n"
                                       "  hint: a saved plan is simulated without --quick", args->spec));
    Text error = { 0 };
    Quick q = { .args = args, .arena = arena, .model = spec_load(args->spec, &args->spec_options, &error) };
    if (!q.model) driver_say(text_cstr(&error));
    text_finish(&error);
    int result = q.model ? simulate_model(&q) : status_exit(ERR_INPUT);
    model_destroy(q.model);
    return result;
}
