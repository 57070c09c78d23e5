// SPDX-License-Identifier: Apache-2.0
// `moec place RUN|FILE`: the experts of each layer onto the ranks of ep, so that the busiest has least, by the
// load that the trainer recorded; and a layout that `moec plan`, `train` and `resume` take. Of a run its plan
// says which experts there are, how large, and where they are now.
#include "compiler/driver/place.h"

#include <stdio.h>
#include <sys/stat.h>

#include "compiler/driver/driver.h"
#include "compiler/driver/line.h"

/* The command line ----------------------------------------------------------------------------- */

typedef struct PlaceArgs {
    const Options *options;
    const char *source, *layout, *cluster, *out; // NULL: not given, but for source
} PlaceArgs;

static Status read_args(PlaceArgs *args, Options *options, int argc, char **argv) {
    *args = (PlaceArgs){ .options = options };
    TRY(line_word(options, FOR_PLACE, argc, argv, &args->source));
    args->layout = line_text(options->rest);
    args->cluster = line_text(options->cluster);
    args->out = line_text(options->placed_out);
    if (args->source && args->out) TRY(driver_lua_name("-o", args->out));
    const char *const needed[] = { args->source, args->layout, args->cluster };
    for (int i = 0; args->source && i < COUNT_OF(needed); i++) TRY(driver_apart("-o", args->out, needed[i]));
    if (args->source) return OK;
    return status_fail(ERR_ARGUMENT, "no RUN or file of loads given\n  hint: moec place runs/tiny");
}

/* What is known of a run ----------------------------------------------------------------------- */

static PlaceLayer *layer_of(Place *place, int32_t layer) {
    for (int32_t i = 0; i < place->n_layers; i++)
        if (place->layers[i].layer == layer) return &place->layers[i];
    return NULL;
}

// A layer of so many experts, in ascending order.
static PlaceLayer *add_layer(Place *place, Arena *arena, int32_t layer, int32_t experts) {
    int32_t at = place->n_layers;
    ARENA_PUSH(arena, place->layers, place->n_layers, place->cap_layers);
    for (; at > 0 && place->layers[at - 1].layer > layer; at--) place->layers[at] = place->layers[at - 1];
    place->layers[at] = (PlaceLayer){ .layer = layer, .experts = experts };
    return &place->layers[at];
}

static Status see_param(Place *place, const PlanParam *param, Arena *arena) {
    int layer;
    if (!param->per_expert || sscanf(param->name, "layers.%9d.", &layer) != 1 || layer < 1) return OK;
    int32_t experts = param->experts ? param->experts : (int32_t)param->dims[0];
    PlaceLayer *found = layer_of(place, layer);
    if (!found) {
        found = add_layer(place, arena, layer, experts);
        found->owner = ARENA_ARRAY(arena, int32_t, experts);
        for (int32_t e = 0; e < experts; e++)
            found->owner[e] = !param->experts ? 0 : param->owner ? param->owner[e] : e / (int32_t)param->dims[0];
    }
    if (found->experts != experts)
        return status_fail(ERR_ARGUMENT, "layer %d has routes of %d and of %d experts, expected one number",
                           layer, found->experts, experts);
    if (!param->is_state) found->numbers += (double)plan_numbers(param) / (double)param->dims[0];
    return OK;
}

// Experts, their sizes and ranks, from the plans of all stages; the axes, for a run that was begun with those.
static Status read_plans(Place *place, const char *run, Arena *arena) {
    const char *path = arena_printf(arena, "%s/plan.txt", run);
    for (int32_t stage = 0, stages = 1; stage < stages; stage++) {
        Plan *plan;
        TRY(plan_read(path, stage, &plan));
        stages = plan->mesh.size[AXIS_pp];
        place->layout.pp = stages;
        place->layout.dp = plan_group_size(plan, GROUP_dp);
        if (!place->ranks) place->ranks = plan->mesh.size[AXIS_ep];
        Status status = OK;
        for (uint32_t i = 0; i < plan->n_params && status == OK; i++)
            status = see_param(place, &plan->params[i], arena);
        plan_destroy(plan);
        TRY(status);
    }
    if (place->n_layers) return OK;
    return status_fail(ERR_INPUT, "%s has no layer with experts", run);
}

static bool ends_in_lua(const char *text) {
    size_t n = strlen(text);
    return n >= 4 && !strcmp(text + n - 4, ".lua");
}

// A file of Lua says all it says for a model only: the run's.
static Status read_lua(Place *place, const char *run, const char *path, Arena *arena) {
    if (!place->of_run)
        return status_fail(ERR_ARGUMENT, "--layout %s: a file of Lua is read for a model, and loads have none\n"
                           "  hint: --layout dp=8,ep=8 or so", path);
    const char *slash = strrchr(path, '/');
    const char *copy = arena_printf(arena, "%s/spec/%s", run, slash ? slash + 1 : path);
    Text said = { 0 };
    driver_hold(&said);
    Model *model = driver_run_model(run);
    bool done = model && spec_load_layout(file_exists(path) ? path : copy, model, arena, &place->layout, &said);
    driver_hold(NULL);
    model_destroy(model);
    if (!done) return driver_quote(arena_printf(arena, "the layout %s of %s cannot be read:\n", path, run), &said);
    text_finish(&said);
    return OK;
}

static Status read_layout(Place *place, const PlaceArgs *args, const char *of_run, Arena *arena) {
    const char *text = args->layout ? args->layout : of_run;
    Layout *layout = &place->layout;
    if (*text) *layout = layout_single();
    if (*text) TRY(ends_in_lua(text) ? read_lua(place, args->source, text, arena) : layout_parse(text, arena, layout));
    if (!args->options->place_ranks && (args->layout || !place->ranks)) place->ranks = layout->ep;
    if (args->layout && args->options->place_ranks && layout->ep != args->options->place_ranks)
        return status_fail(ERR_ARGUMENT, "--ranks %lld and --layout with ep=%d: one of them is too much",
                           (long long)args->options->place_ranks, layout->ep);
    layout->ep = place->ranks;
    if (layout->dp % layout->ep) layout->dp = layout->ep;
    place->edp = layout->dp / layout->ep;
    return OK;
}

/* Loads ---------------------------------------------------------------------------------------- */

// The loads of a layer over all steps.
static Status take_load(Place *place, const LoadLayer *of, const double *sum) {
    PlaceLayer *layer = layer_of(place, of->layer);
    if (!layer)
        return status_fail(ERR_INPUT, "%s has loads of layer %d, and %s no experts there", place->loads, of->layer,
                           place->source);
    if (layer->experts != of->experts)
        return status_fail(ERR_INPUT, "%s has loads of %d experts of layer %d, and %s has %d there", place->loads,
                           of->experts, of->layer, place->source, layer->experts);
    memcpy(layer->load, sum + of->at, sizeof *sum * (size_t)of->experts);
    layer->even = false;
    return OK;
}

static Status take_loads(Place *place, Arena *arena) {
    const Load *load = &place->load;
    double *sum = ARENA_ARRAY(arena, double, load->width + 1);
    load_sum(load, 0, load->n_steps, sum);
    if (!place->of_run)
        for (int32_t i = 0; i < load->n_layers; i++) {
            const LoadLayer *of = &load->layers[i];
            add_layer(place, arena, of->layer, of->experts);
        }
    for (int32_t i = 0; i < place->n_layers; i++) {
        PlaceLayer *layer = &place->layers[i];
        layer->load = ARENA_ARRAY(arena, double, layer->experts);
        layer->even = true;
        for (int32_t e = 0; e < layer->experts; e++) layer->load[e] = 1;
    }
    for (int32_t i = 0; i < load->n_layers; i++) TRY(take_load(place, &load->layers[i], sum));
    return OK;
}

static Status read_loads(Place *place, const PlaceArgs *args, Arena *arena) {
    place->loads = args->source;
    if (place->of_run) place->loads = arena_printf(arena, "%s/metrics.jsonl", args->source);
    if (!place->of_run || file_exists(place->loads)) {
        char *text;
        size_t bytes;
        TRY(file_read(place->loads, arena, &text, &bytes));
        TRY(load_parse(place->loads, text, bytes, args->options->last, arena, &place->load));
    }
    if (!place->of_run && !place->load.n_steps)
        return status_fail(ERR_INPUT, "%s has no loads", args->source);
    return take_loads(place, arena);
}

/* Ranks ---------------------------------------------------------------------------------------- */

static Status check_ranks(const Place *place) {
    for (int32_t i = 0; i < place->n_layers; i++) {
        const PlaceLayer *layer = &place->layers[i];
        int32_t ranks = place->ranks, near = ranks;
        while (near > 1 && (near > layer->experts || layer->experts % near)) near--;
        if (layer->experts % ranks)
            return status_fail(ERR_ARGUMENT, "%d ranks do not divide the %d experts of layer %d\n  hint: --ranks %d",
                               ranks, layer->experts, layer->layer, near);
        if (!place->slots) continue;
        int64_t places = (int64_t)ranks * place->slots;
        if (places < layer->experts || place->slots > layer->experts || places > PLACEMENT_MOST)
            return status_fail(ERR_ARGUMENT, "--slots %d: layer %d has %d experts, expected %d to %d places on each "
                               "of %d ranks", place->slots, layer->layer, layer->experts, layer->experts / ranks,
                               (int)min_i64(layer->experts, PLACEMENT_MOST / ranks), ranks);
    }
    if (place->ranks > 1) return OK;
    return status_fail(ERR_ARGUMENT, "%s has all experts on one rank\n  hint: --ranks N, of the ep axis",
                       place->source);
}

// Where nobody says otherwise experts are in order. What was of other ranks does not count.
static void fill_owners(Place *place, Arena *arena) {
    for (int32_t i = 0; i < place->n_layers; i++) {
        PlaceLayer *layer = &place->layers[i];
        int32_t share = layer->experts / place->ranks, highest = 0;
        for (int32_t e = 0; e < layer->experts && layer->owner; e++)
            highest = (int32_t)max_i64(highest, layer->owner[e]);
        if (layer->owner && highest == place->ranks - 1) continue;
        layer->owner = ARENA_ARRAY(arena, int32_t, layer->experts);
        for (int32_t e = 0; e < layer->experts; e++) layer->owner[e] = e / share;
        place->in_order = true;
    }
}

/* The layout ----------------------------------------------------------------------------------- */

static void put_into_layout(Place *place, Arena *arena) {
    Layout *layout = &place->layout;
    layout->experts = 0;
    for (int32_t i = 0; i < place->n_layers; i++)
        layout->experts = (int32_t)max_i64(layout->experts, place->layers[i].experts);
    place->model_layers = place->layers[place->n_layers - 1].layer;
    int64_t n = (int64_t)place->model_layers * layout->experts;
    layout->placement = ARENA_ARRAY(arena, int32_t, n);
    for (int64_t i = 0; i < n; i++) layout->placement[i] = -1;
    for (int32_t i = 0; i < place->n_layers; i++) {
        const PlaceLayer *layer = &place->layers[i];
        memcpy(layout->placement + (int64_t)(layer->layer - 1) * layout->experts, layer->place,
               sizeof *layer->place * (size_t)layer->experts);
    }
}

static Status write_layout(const Place *place, const char *path) {
    Text text = { 0 };
    const Load *load = &place->load;
    text_printf(&text, "-- moec place %s: ", place->source);
    if (load->n_steps)
        text_printf(&text, "by the loads of steps %lld to %lld.\n", (long long)load->steps[0],
                    (long long)load->steps[load->n_steps - 1]);
    else text_add(&text, "no load was recorded.\n");
    layout_print_lua(&place->layout, place->model_layers, &text);
    Status status = file_write_atomic(path, text.at, text.bytes);
    text_finish(&text);
    return status;
}

/* The command ---------------------------------------------------------------------------------- */

// The mean speed of a rank in FLOP/s, by what its run recorded.
static double speed_of(const Place *place, const json_t *record) {
    const json_t *origin = json_object_get(record, "origin");
    return place->load.tokens_per_s * json_number_value(json_object_get(origin, "flops per token"));
}

// What large products of experts reach there, in the run's precision.
static Status read_cluster(Place *place, const PlaceArgs *args, bool bf16, Arena *arena) {
    if (!args->cluster) return OK;
    Text error = { 0 };
    place->cluster = ARENA_NEW(arena, CostCluster);
    bool done = spec_load_cluster(args->cluster, arena, place->cluster, &error);
    if (!done) return driver_quote(arena_printf(arena, "--cluster %s cannot be read:\n", args->cluster), &error);
    text_finish(&error);
    int64_t devices = cost_cluster_devices(place->cluster);
    if (place->ranks > devices)
        return status_fail(ERR_ARGUMENT, "--cluster %s: %d ranks on %lld devices", args->cluster, place->ranks,
                           (long long)devices);
    const CostMatmul *matmul = &place->cluster->device.matmul[bf16 ? PRECISION_BF16 : PRECISION_FP32];
    if (!args->options->flops_per_s) place->flops_per_s = matmul->flop_per_s * matmul->reach * matmul->experts;
    return OK;
}

static Status read_all(Place *place, const PlaceArgs *args, Arena *arena) {
    struct stat info;
    const Options *o = args->options;
    Options *options = options_create(); // the run's
    json_t *record = NULL;
    Status status = OK;
    *place = (Place){ .source = args->source, .ranks = (int32_t)o->place_ranks, .slots = (int32_t)o->place_slots,
                      .shown = (int32_t)o->place_layer, .layout = layout_single(), .bytes_per_s = o->bytes_per_s,
                      .flops_per_s = o->flops_per_s };
    place->of_run = stat(args->source, &info) == 0 && S_ISDIR(info.st_mode);
    if (place->of_run) {
        TRY_GOTO(run_read_options(args->source, options, &record), done);
        TRY_GOTO(read_plans(place, args->source, arena), done);
    }
    TRY_GOTO(read_loads(place, args, arena), done);
    TRY_GOTO(read_layout(place, args, place->of_run ? options->layout : "", arena), done);
    if (!place->flops_per_s) place->flops_per_s = speed_of(place, record);
    TRY_GOTO(check_ranks(place), done);
    TRY_GOTO(read_cluster(place, args, options->precision == CHOICE_BF16, arena), done);
    if (place->shown && !layer_of(place, place->shown))
        status = status_fail(ERR_ARGUMENT, "--layer %d: that layer has no experts", place->shown);
done:
    json_decref(record);
    options_destroy(options);
    return status;
}

static void say_next(const Place *place, const char *path, Text *out) {
    int64_t ranks = (int64_t)place->layout.pp * place->layout.dp;
    text_printf(out, "written  %s; next: ", path);
    if (place->of_run)
        text_printf(out, "mpirun -n %lld moec resume %s --layout %s --steps N\n", (long long)ranks, place->source, path);
    else text_printf(out, "moec plan SPEC --layout %s\n", path);
}

static Status place_experts(int argc, char **argv, Options *options) {
    Arena *arena = options->arena;
    PlaceArgs args;
    Place place;
    TRY(read_args(&args, options, argc, argv));
    TRY(read_all(&place, &args, arena));
    fill_owners(&place, arena);
    place_all(&place, arena);
    put_into_layout(&place, arena);
    Text text = { 0 };
    place_print(&place, &text);
    if (args.out) {
        Status status = write_layout(&place, args.out);
        if (status == OK)
            say_next(&place, args.out, &text);
        else text_finish(&text);
        TRY(status);
    } else {
        text_add(&text, "next     -o FILE.lua writes the layout\n");
    }
    fputs(text_cstr(&text), stdout);
    text_finish(&text);
    return OK;
}

int cmd_place(int argc, char **argv) {
    Options *options = options_create();
    Status status = place_experts(argc, argv, options);
    options_destroy(options);
    return status == OK ? 0 : driver_fail(status);
}
