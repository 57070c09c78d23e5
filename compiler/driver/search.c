// SPDX-License-Identifier: Apache-2.0
// `moec search SPEC --cluster C`: the fastest layout that fits, proved, with reasons.
#include "compiler/driver/search.h"

#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The command line ----------------------------------------------------------------------------- */

const char *const hunt_precision[] = { "", "fp32", "bf16", "mxfp8" };

// "1.25,dropless", "1.25,whole": each value once.
static Status read_rooms(Arena *arena, const char *flag, LayoutField field, const char *text, double *out, int32_t *n) {
    Layout layout = layout_single();
    char *words = arena_strdup(arena, text), *rest = NULL;
    for (char *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (layout_set(&layout, arena, field, word) != OK)
            return status_fail(ERR_ARGUMENT, "%s has '%s', expected a number above 0, up to 1048576, or %s", flag, word,
                               field == LAYOUT_capacity ? "dropless" : "whole");
        double value = field == LAYOUT_capacity ? layout.capacity : layout.round;
        int32_t same = 0;
        while (same < *n && out[same] != value) same++;
        if (same < *n) continue;
        if (*n == SEARCH_MOST_LISTED)
            return status_fail(ERR_ARGUMENT, "%s: expected up to %d values", flag, SEARCH_MOST_LISTED);
        out[(*n)++] = value;
    }
    if (*n) return OK;
    return status_fail(ERR_ARGUMENT, "%s: expected numbers or %s, got '%s'", flag,
                       field == LAYOUT_capacity ? "dropless" : "whole", text);
}

// "bf16,mxfp8"
static Status read_precisions(HuntArgs *args, Arena *arena, const char *text) {
    args->any_precision = !strcmp(text, "any");
    if (args->any_precision) return OK;
    static const char *const near[] = { "fp32", "bf16", "mxfp8", "any" };
    char *words = arena_strdup(arena, text), *rest = NULL;
    for (char *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        uint8_t precision = PRECISION_FP32, known = 0;
        while (precision <= PRECISION_MXFP8 && strcmp(hunt_precision[precision], word)) precision++;
        if (!strcmp(word, "any"))
            return status_fail(ERR_ARGUMENT, "--precision is '%s', expected a list of fp32|bf16|mxfp8, or any\n"
                               "  hint: 'any' stands alone: it is all that the devices have", text);
        if (precision > PRECISION_MXFP8) {
            const char *meant = text_nearest(word, near, COUNT_OF(near));
            return status_fail(ERR_ARGUMENT, "--precision is '%s', expected a list of fp32|bf16|mxfp8, or any%s%s%s",
                               word, meant ? "\n  hint: did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
        }
        while (known < args->n_precisions && args->precisions[known] != precision) known++;
        if (known == args->n_precisions) args->precisions[args->n_precisions++] = precision;
    }
    if (args->n_precisions) return OK;
    return status_fail(ERR_ARGUMENT, "--precision is '%s', expected a list of fp32|bf16|mxfp8, or any\n"
                       "  hint: --precision bf16,mxfp8", text);
}

static const char usual_rounds[] = "whole,1.25,2";

static Status read_args(HuntArgs *args, Options *options, int argc, char **argv) {
    *args = (HuntArgs){ .options = options };
    TRY(line_spec(options, FOR_SEARCH, argc, argv, "search models/tiny.lua --cluster h100x8", &args->spec,
                  &args->spec_options));
    args->cluster = line_text(options->cluster);
    args->layout = line_text(options->why_not);
    args->out = line_text(options->best_out);
    args->gpus = options->gpus;
    args->tokens = options->step_tokens;
    args->top = options->top;
    args->memory_gib = options->memory_gib;
    args->brief = options->brief;
    args->planned = options->planned;
    if (!args->cluster) return status_fail(ERR_ARGUMENT, "no --cluster given\n  hint: --cluster h100x8, or a file of Lua");
    if (options->given[OPT_capacities])
        TRY(read_rooms(options->arena, "--capacity", LAYOUT_capacity, options->capacities, args->capacities,
                       &args->n_capacities));
    TRY(read_rooms(options->arena, "--round", LAYOUT_round, options->given[OPT_rounds] ? options->rounds : usual_rounds,
                   args->rounds, &args->n_rounds));
    if (options->given[OPT_precisions]) TRY(read_precisions(args, options->arena, options->precisions));
    if (!args->out) return OK;
    TRY(driver_lua_name("-o", args->out));
    TRY(driver_writable(args->out));
    const char *const needed[] = { args->spec, args->cluster, args->layout, line_text(options->recorded) };
    for (int i = 0; i < COUNT_OF(needed); i++) TRY(driver_apart("-o", args->out, needed[i]));
    return OK;
}

/* Interruptions -------------------------------------------------------------------------------------- */

// While points are decided the search stops by itself and shows the best so far; in anything else it ends at once.
static volatile sig_atomic_t interrupted, deciding;
static const char *volatile doing;

static void on_interrupt(int number) {
    (void)number;
    interrupted = 1;
    if (deciding) return;
    const char *const parts[] = { "\nmoec: interrupted while it was ", doing, "\n" };
    for (int i = 0; i < COUNT_OF(parts); i++)
        if (write(2, parts[i], strlen(parts[i])) < 0) break;
    _exit(128 + SIGINT);
}

/* What is searched ------------------------------------------------------------------------------- */

static bool ends_in_lua(const char *text) {
    size_t n = strlen(text);
    return n >= 4 && !strcmp(text + n - 4, ".lua");
}

// "b300" with --gpus 64 is "b300x64".
static int load_cluster(const HuntArgs *args, Arena *arena, CostCluster *out) {
    const char *name = args->cluster;
    const char *x = strrchr(name, 'x');
    bool counted = x && strspn(x + 1, "0123456789") == strlen(x + 1) && strncmp(name, "rtx", (size_t)(x + 1 - name));
    if (args->gpus && !ends_in_lua(name) && !counted)
        name = arena_printf(arena, "%sx%lld", name, (long long)args->gpus);
    Text error = { 0 };
    bool done = spec_load_cluster(name, arena, out, &error);
    if (!done) driver_say(text_cstr(&error));
    text_finish(&error);
    if (!done) return status_exit(ERR_INPUT);
    int64_t devices = cost_cluster_devices(out);
    if (args->gpus <= devices) return 0;
    return driver_fail(status_fail(ERR_ARGUMENT, "--gpus %lld: the cluster has %lld\n  hint: %s%s%s", (long long)args->gpus,
                                   (long long)devices, counted ? "--cluster " : "",
                                   counted ? arena_strndup(arena, name, (size_t)(x - name)) : "",
                                   counted ? " has as many as --gpus says" : "a larger cluster, or fewer --gpus"));
}

int hunt_ground(const Hunt *h, const CostCluster *cluster, double load, bool bare, Ground *out) {
    *out = (Ground){ .cluster = *cluster };
    out->costs = out == &h->at ? profile_create(h->model, &out->cluster) : profile_on(h->at.costs, &out->cluster);
    if (!out->costs) return driver_refuse(h->model);
    // Weights and gradients cross beside compute; rows are waited for.
    out->costed = (Costed){ .profile = out->costs,
                            .cluster = &out->cluster,
                            .stack = *cost_stack_moec(&out->cluster.device),
                            .routing = h->args->spec_options.routing == ROUTING_UNIFORM  ? COST_UNIFORM
                                       : h->args->spec_options.routing == ROUTING_RANDOM ? COST_RANDOM
                                                                                         : COST_LEARNED,
                            .plans = h->args->planned ? profile_plans : NULL,
                            .plans_known = ARENA_ARRAY(h->arena, uint8_t, COSTED_PLANS),
                            .placed = h->placed,
                            .load = load,
                            .params_hidden = 1 };
    Status status = costed_start(&out->costed, &out->profile);
    if (status == OK)
        status = (bare ? search_create_bare : search_create)(&out->profile, &h->space, &out->search);
    if (status != OK && h->args->planned && h->model->diag.message[0])
        status = status_fail(ERR_ARGUMENT, "--planned: there is no plan of any layout: %s", h->model->diag.message);
    return status == OK ? 0 : driver_fail(status);
}

void ground_finish(Ground *ground) {
    search_destroy(ground->search);
    profile_destroy(ground->costs);
}

enum { USUAL_SEQUENCES = 8 /* of a device in a step, where --tokens does not say */ };

// Of those that are asked for, else the usual one.
static Status fill_precisions(HuntArgs *args, const CostCluster *cluster) {
    const CostMatmul *matmul = cluster->device.matmul;
    bool cpu = !strcmp(cluster->device.arch, "cpu");
    uint8_t last = args->planned ? PRECISION_BF16 : PRECISION_MXFP8;
    for (uint8_t p = PRECISION_BF16; args->any_precision && p <= last; p++)
        if (matmul[p].flop_per_s > 0) args->precisions[args->n_precisions++] = p;
    if (args->any_precision && matmul[PRECISION_FP32].flop_per_s > 0)
        args->precisions[args->n_precisions++] = PRECISION_FP32;
    if (!args->n_precisions) args->precisions[args->n_precisions++] = cpu ? PRECISION_FP32 : PRECISION_BF16;
    for (int32_t i = 0; i < args->n_precisions; i++)
        if (matmul[args->precisions[i]].flop_per_s <= 0)
            return status_fail(ERR_ARGUMENT, "--precision %s: %s of %s has no products in it\n  hint: --precision bf16",
                               hunt_precision[args->precisions[i]], cluster->device.name, cluster->name);
    return OK;
}

// RUN, a folder, or a file of loads.
static Status read_load(Hunt *h) {
    const char *source = h->args->options->recorded;
    if (!*source) return OK;
    struct stat info;
    bool run = stat(source, &info) == 0 && S_ISDIR(info.st_mode);
    const char *path = run ? arena_printf(h->arena, "%s/metrics.jsonl", source) : source;
    TRY(load_read(path, h->args->options->last, h->arena, &h->load));
    return placed_create(h->model, path, &h->load, h->arena, &h->placed);
}

static Status fill_space(Hunt *h, const CostCluster *cluster) {
    HuntArgs *args = h->args;
    int64_t ranks = args->gpus ? args->gpus : cost_cluster_devices(cluster), sequence = h->model->sequence;
    if (args->tokens % sequence)
        return status_fail(ERR_ARGUMENT,
                           "--tokens: %lld is no whole number of sequences of %lld\n  hint: %lld tokens are",
                           (long long)args->tokens, (long long)sequence,
                           (long long)round_up(args->tokens, sequence));
    TRY(fill_precisions(args, cluster));
    TRY(read_load(h));
    h->space = (SearchSpace){ .ranks = ranks,
                              .sequences = args->tokens ? args->tokens / sequence : ranks * USUAL_SEQUENCES,
                              .placements = h->placed ? 2 : 1,
                              .n_precisions = args->n_precisions,
                              .n_capacities = args->n_capacities,
                              .n_rounds = args->n_rounds };
    memcpy(h->space.precisions, args->precisions, sizeof args->precisions);
    memcpy(h->space.capacities, args->capacities, sizeof args->capacities);
    memcpy(h->space.rounds, args->rounds, sizeof args->rounds);
    h->memory = args->memory_gib ? args->memory_gib * 0x1p30 : (double)cluster->device.memory_bytes;
    h->space.memory_bytes = (int64_t)h->memory;
    return OK;
}

// --layout, before anything takes time. Read for a model of its own: what a file says of precision is not of
// the model that is searched.
static int read_named(Hunt *h) {
    LayoutArgs args = { .text = h->args->layout, .ranks = h->space.ranks, .devices = true,
                        .batch = h->space.sequences * h->model->sequence };
    Text error = { 0 };
    int32_t microbatches;
    Model *model = spec_load(h->args->spec, &h->args->spec_options, &error);
    if (!model) driver_say(text_cstr(&error));
    text_finish(&error);
    int result = model ? driver_layout(&args, model, h->arena, &h->named, &microbatches) : status_exit(ERR_INPUT);
    model_destroy(model);
    return result;
}

Layout hunt_layout(const Hunt *h, const SearchLayout *found) {
    Layout layout = search_to_layout(found, &h->at.profile, h->arena);
    if (layout.transport == TRANSPORT_BLOCKS && h->at.cluster.n_links) {
        int32_t node = h->at.cluster.links[0].size;
        while (layout.ep % node) node--;
        layout.node = node;
    }
    if (found->point.choice.placement) layout.placement = placed_ranks(h->placed, layout.ep, &layout.experts);
    return layout;
}

double hunt_tokens_per_s(const Hunt *h, double step_s) {
    return (double)h->space.sequences * h->model->sequence / step_s / (double)h->space.ranks;
}

bool hunt_same_layout(const SearchLayout *a, const SearchLayout *b, int32_t layers) {
    size_t stages = (size_t)a->point.choice.pp * (size_t)a->point.chunks;
    return search_same_point(&a->point, &b->point) && !memcmp(a->stages, b->stages, stages * sizeof *a->stages) &&
           !memcmp(a->recompute, b->recompute, (size_t)layers);
}

/* Searching ---------------------------------------------------------------------------------------- */

typedef struct Watch { double began, said; bool terminal; } Watch;

static bool report(void *user, int64_t decided, int64_t points, double best_s, double lower_s) {
    Watch *p = user;
    double now = time_seconds(), every = p->terminal ? 0.2 : 5;
    if (now - p->began > 1 && now - p->said > every) {
        p->said = now;
        char best[64] = "none yet";
        if (best_s < INFINITY) snprintf(best, sizeof best, "%.4g s, gap %.2g %%", best_s, 100 * (best_s / lower_s - 1));
        fprintf(stderr, "%ssearch: %lld of %lld points, best %s%s", p->terminal ? "\r\033[K" : "", (long long)decided,
                (long long)points, best, p->terminal ? "" : "\n");
    }
    return !interrupted;
}

// What was found, in the order of the simulator's seconds.
static void play_all(Hunt *h) {
    SearchLayout *best = h->found.best;
    for (int32_t i = 0; i < h->found.n; i++) {
        SearchLayout layout = best[i];
        double played = search_play(&h->at.profile, &layout);
        layout.played_s = isnan(played) ? layout.step_s : played;
        int32_t at = i;
        for (; at > 0 && best[at - 1].played_s > layout.played_s; at--) best[at] = best[at - 1];
        best[at] = layout;
    }
}

// Room of a round that is never full changes bytes only: the same layout, of which the smallest is shown.
static bool same_but_rounds(const SearchLayout *a, const SearchLayout *b, int32_t layers) {
    SearchLayout x = *a, y = *b;
    x.point.choice.round = y.point.choice.round = 0;
    return a->step_s == b->step_s && hunt_same_layout(&x, &y, layers);
}

static void fold_rounds(Hunt *h) {
    SearchLayout *best = h->found.best;
    int32_t n = 0;
    for (int32_t i = 0; i < h->found.n; i++) {
        int32_t same = 0;
        while (same < n && !same_but_rounds(&best[same], &best[i], h->model->n_layers)) same++;
        if (same == n) best[n++] = best[i];
        else if (best[i].peak_bytes < best[same].peak_bytes) best[same] = best[i];
    }
    h->found.n = n;
}

static void search_all(Hunt *h) {
    Watch progress = { .began = time_seconds(), .terminal = isatty(2) };
    deciding = 1;
    search_on_pulse(h->at.search, report, &progress);
    search_run(h->at.search, h->memory, HUNT_KEPT, h->arena, &h->found);
    play_all(h);
    fold_rounds(h);
    if (!interrupted) search_front(h->at.search, h->memory, HUNT_STEPS, h->arena, &h->front);
    if (progress.said && progress.terminal) fputs("\r\033[K", stderr);
    search_on_pulse(h->at.search, NULL, NULL);
    deciding = 0;
}

// What is predicted may be less than a plan takes, and the first has to fit by its plan: as much is left free and the search
// runs again, without that first. Where nothing is left then, the first stays, and is said not to fit.
static void leave_room(Hunt *h) {
    enum { TIMES = 8 };
    SearchFound found = h->found;
    SearchFront front = h->front;
    double all = h->memory;
    for (int i = 0; i < TIMES && !interrupted; i++) {
        deciding = 1; // what was found is shown
        double more = hunt_short(h);
        deciding = 0;
        if (more <= 0 || interrupted) return;
        h->left_bytes = more; // than which the one before was less: it left this one
        h->memory = all - more;
        search_all(h);
        if (!h->found.n) break;
    }
    if (h->found.n && interrupted) return;
    h->found = found, h->front = front;
    h->memory = all, h->left_bytes = 0;
}

static int write_layout(const Hunt *h) {
    Layout layout = hunt_layout(h, &h->found.best[0]);
    Text text = { 0 };
    const SearchPoint *point = &h->found.best[0].point;
    text_printf(&text, "-- moec search, for --precision %s and steps of %lld tokens: --microbatches %d.\n",
                hunt_precision[point->choice.precision], (long long)h->space.sequences * h->model->sequence,
                point->microbatches);
    layout_print_lua(&layout, h->model->n_layers, &text);
    Status status = file_write_atomic(h->args->out, text_cstr(&text), text.bytes);
    text_finish(&text);
    return status == OK ? 0 : driver_fail(status);
}

// What is known stands, should what comes next be interrupted.
static void print_out(Text *out) {
    driver_print(text_cstr(out));
    fflush(stdout);
    text_finish(out);
    *out = (Text){ 0 };
}

// 0 also when nothing fits, that was the question, and of what was found when it is interrupted. With nothing to show, and in
// all that cannot show anything, it ends as by the signal.
static int show_all(Hunt *h) {
    Text out = { 0 };
    int result = 0;
    doing =
        h->found.n ? "looking for reasons: what was found stands above" : "looking for what would fit: nothing does";
    if (!h->found.n && interrupted) {
        driver_say("moec: interrupted before a layout was found that fits\n");
    } else if (!h->found.n) {
        hunt_nothing(h, &out);
        print_out(&out);
        if (h->args->out) result = driver_fail(status_fail(ERR_ARGUMENT, "-o %s: there is no layout to write", h->args->out));
    } else {
        if (h->args->out) result = write_layout(h);
        hunt_show(h, &out);
        print_out(&out);
    }
    if (h->found.n && !interrupted && !h->args->brief) {
        hunt_confirm(h, &out);
        hunt_neighbours(h, &out);
        print_out(&out);
        hunt_binding(h, &out);
    }
    if (h->args->layout) hunt_why_not(h, &out);
    print_out(&out);
    if (h->found.n && !result) {
        hunt_next(h, &out);
        fputs(text_cstr(&out), stdout); // a terminal's own folds leave commands whole
        text_finish(&out);
    }
    return result ? result : interrupted && !h->found.n ? 128 + SIGINT : 0;
}

static void choose_unit(Hunt *h) {
    double step_s = h->found.n ? h->found.best[0].step_s : 1;
    h->unit = step_s >= 0.1 ? "s" : step_s >= 1e-4 ? "ms" : "us";
    h->units = step_s >= 0.1 ? 1 : step_s >= 1e-4 ? 1e3 : 1e6;
}

static int search_model(Hunt *h) {
    CostCluster cluster;
    int result = load_cluster(h->args, h->arena, &cluster);
    if (result) return result;
    Status status = fill_space(h, &cluster);
    if (status != OK) return driver_fail(status);
    if (h->args->layout) result = read_named(h);
    if (result) return result;
    double began = time_seconds();
    doing = "learning from probes what layers cost: no layout was weighed yet";
    result = hunt_ground(h, &cluster, 1, false, &h->at);
    if (!result) {
        search_all(h);
        if (h->found.n && !h->args->brief) leave_room(h);
        h->seconds = time_seconds() - began;
        choose_unit(h);
        result = show_all(h);
    }
    ground_finish(&h->at);
    return result;
}

int cmd_search(int argc, char **argv) {
    // What one probe of lowering frees the next one takes.
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
    struct sigaction action = { .sa_handler = on_interrupt }, before;
    doing = "reading what to search";
    sigaction(SIGINT, &action, &before);
    HuntArgs args;
    Options *options = options_create();
    Status status = read_args(&args, options, argc, argv);
    int result = status == OK ? 0 : driver_fail(status);
    if (!result) {
        Text error = { 0 };
        Hunt h = { .args = &args, .arena = options->arena, .model = spec_load(args.spec, &args.spec_options, &error) };
        if (!h.model) driver_say(text_cstr(&error));
        text_finish(&error);
        result = h.model ? search_model(&h) : status_exit(ERR_INPUT);
        model_destroy(h.model);
    }
    options_destroy(options);
    sigaction(SIGINT, &before, NULL);
    return result;
}
