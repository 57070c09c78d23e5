// SPDX-License-Identifier: Apache-2.0
// Predictions of runs by the names of spec and cluster; models and profiles are made once.
#include <stdio.h>
#include <stdlib.h>

#include "compiler/driver/driver.h"
#include "compiler/driver/published.h"
#include "compiler/search/costed.h"
#include "compiler/spec/spec.h"

#define OTHERS                                                                                     \
    .master = 12, .gradient = 4, .weight = 2, .orders = 1, .narrow_orders = 1, .other = 2, .gathered = 2, .exchanged = 4,                \
    .shard_traffic = 36, .whole_traffic = 10
const CostStack published_fused = { .name = "gradients added by products", OTHERS };
const CostStack published_apart = { .name = "gradients added apart", .accumulated = 12, OTHERS };

typedef struct Made {
    const char *key;
    Model *model;
    CostProfile *profile;
    CostCluster cluster;
    double flops_per_token;
} Made;

struct Bench {
    Arena *arena;
    const char *models;
    Made **made;
    uint32_t n_made, cap_made;
};

Bench *bench_create(const char *models) {
    Arena *arena = arena_create();
    Bench *bench = ARENA_NEW(arena, Bench);
    bench->arena = arena;
    bench->models = models;
    return bench;
}

void bench_destroy(Bench *bench) {
    if (!bench) return;
    for (uint32_t i = 0; i < bench->n_made; i++) {
        profile_destroy(bench->made[i]->profile);
        model_destroy(bench->made[i]->model);
    }
    arena_destroy(bench->arena);
}

static Status refuse(Text *error) {
    return driver_quote("", error);
}

// "experts=8 layers=2": arguments of the spec.
static Status split_args(Arena *arena, const char *text, SpecArg *args, int most, int *n) {
    char *at = arena_strdup(arena, text ? text : "");
    *n = 0;
    for (char *save, *word = strtok_r(at, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');
        if (!equals || *n == most)
            return status_fail(ERR_INPUT, "args is '%s', expected up to %d of key=value, a space between\n  hint: for example "
                                          "experts=8 layers=2", text, most);
        *equals = 0;
        args[(*n)++] = (SpecArg){ word, equals + 1 };
    }
    return OK;
}

static Status make(Bench *bench, const BenchRun *run, Made **out) {
    Made *made = ARENA_NEW(bench->arena, Made);
    Text error = { 0 };
    SpecArg args[8];
    SpecOptions options = { .args = args };
    TRY(split_args(bench->arena, run->args, args, COUNT_OF(args), &options.n_args));
    if (!spec_load_cluster(run->cluster, bench->arena, &made->cluster, &error)) return refuse(&error);
    const char *path = arena_printf(bench->arena, "%s/%s.lua", bench->models, run->spec);
    made->model = spec_load(path, &options, &error);
    if (!made->model) return refuse(&error);
    text_finish(&error);
    if (run->sequence) made->model->sequence = run->sequence;
    made->profile = profile_create(made->model, &made->cluster);
    if (!made->profile) {
        Status status = status_fail(ERR_INPUT, "%s: %s", path, made->model->diag.message);
        model_destroy(made->model);
        return status;
    }
    made->flops_per_token = made->profile->flops_per_token;
    *ARENA_PUSH(bench->arena, bench->made, bench->n_made, bench->cap_made) = made;
    *out = made;
    return OK;
}

static Status made_for(Bench *bench, const BenchRun *run, Made **out) {
    const char *key = arena_printf(bench->arena, "%s %s %s %d", run->spec, run->args ? run->args : "", run->cluster,
                                   run->sequence);
    for (uint32_t i = 0; i < bench->n_made; i++) {
        *out = bench->made[i];
        if (!strcmp((*out)->key, key)) return OK;
    }
    TRY(make(bench, run, out));
    (*out)->key = key;
    return OK;
}

// Whether stages that are given are those of the layout, and hold the model's layers.
static Status check_stages(const Layout *layout, int32_t n_layers) {
    int32_t sum = 0;
    for (int32_t i = 0; i < layout->n_stages; i++) sum += layout->stages[i];
    if (layout->n_stages && (layout->n_stages != layout->pp * layout->chunks || sum != n_layers))
        return status_fail(ERR_INPUT, "expected %d stages of %d layers together, got %d of %d", layout->pp * layout->chunks,
                           n_layers, layout->n_stages, sum);
    return OK;
}

static Status step_of(Bench *bench, Made *made, const BenchRun *run, Layout *layout, BenchResult *out) {
    TRY(check_stages(layout, made->profile->n_layers));
    CostRun step = { .layout = layout, .precision = run->precision, .routing = run->routing,
                     .habits = run->habits, .sends_hidden = run->sends_hidden,
                     .sequences = run->sequences ? run->sequences : (int64_t)16 * layout->dp * layout->microbatch,
                     .rows_hidden = run->rows_hidden, .params_hidden = run->params_hidden };
    if (layout->pp > 1 && !layout->stages) { // stages as even in time as can be
        layout->stages = cost_split(made->profile, &made->cluster, run->stack, &step, bench->arena);
        layout->n_stages = layout->stages ? layout->pp * layout->chunks : 0;
    }
    if (!cost_step(made->profile, &made->cluster, run->stack, &step, &out->step))
        return status_fail(ERR_INPUT, "%s on %s: %lld sequences cannot be laid out so\n  hint: ep divides dp=%d, dp x "
                                      "microbatch=%d the sequences, and pp x slots are at most %d, as there are layers",
                           run->spec, run->cluster, (long long)step.sequences, layout->dp, layout->microbatch,
                           made->profile->n_layers);
    double tokens = (double)step.sequences * made->profile->sequence, ranks = layout_ranks(layout);
    out->tokens_per_s = tokens / out->step.seconds / ranks;
    out->flops_per_token = made->flops_per_token;
    out->flop_per_s = out->tokens_per_s * made->flops_per_token;
    return OK;
}

Status bench_predict(Bench *bench, const BenchRun *run, BenchResult *out) {
    Made *made;
    TRY(made_for(bench, run, &made));
    Layout layout = layout_single();
    TRY(layout_parse(run->layout, bench->arena, &layout));
    return step_of(bench, made, run, &layout, out);
}

/* Searching ------------------------------------------------------------------------------------ */

// The short form, with recomputations counted where layers differ.
static const char *short_form(const Layout *found, Arena *arena) {
    static const char *const words[] = { "cheap", "none", "block" };
    Layout layout = *found;
    Text text = { 0 };
    int32_t of[3] = { 0 };
    for (int32_t i = 0; i < found->n_layer_recompute; i++) of[found->layer_recompute[i] % 3]++;
    layout.layer_recompute = NULL;
    layout.n_layer_recompute = 0;
    if (found->n_layer_recompute) layout.recompute = RECOMPUTE_CHEAP;
    layout_print(&layout, &text);
    for (int r = 0; r < 3 && found->n_layer_recompute; r++) {
        if (of[r]) text_printf(&text, ", %s of %d", words[r], of[r]);
    }
    const char *copy = arena_strdup(arena, text_cstr(&text));
    text_finish(&text);
    return copy;
}

Status bench_search(Bench *bench, const BenchRun *run, Arena *arena, const char **layout, BenchResult *out) {
    Made *made;
    TRY(made_for(bench, run, &made));
    Costed costed = { .profile = made->profile, .cluster = &made->cluster, .stack = *run->stack,
                      .routing = run->routing, .load = 1, .params_hidden = run->params_hidden,
                      .rows_hidden = run->rows_hidden };
    SearchProfile profile;
    Search *search;
    SearchSpace space = { .ranks = cost_cluster_devices(&made->cluster), .sequences = run->sequences,
                          .memory_bytes = made->cluster.device.memory_bytes,
                          .precisions = { run->precision }, .n_precisions = 1 };
    TRY(costed_start(&costed, &profile));
    TRY(search_create(&profile, &space, &search));
    SearchFound found;
    search_run(search, (double)space.memory_bytes, 1, arena, &found);
    Status status = found.n ? OK : status_fail(ERR_INPUT, "%s on %s: nothing fits", run->spec, run->cluster);
    if (status == OK) {
        Layout best = search_to_layout(&found.best[0], &profile, arena);
        *layout = short_form(&best, arena);
        status = step_of(bench, made, run, &best, out);
    }
    search_destroy(search);
    return status;
}
