// SPDX-License-Identifier: Apache-2.0
// What `moec search` prints of what it found: the best, the certificate, speed against memory, where the
// seconds and the bytes of the best one go, and the bytes of its plan.
#include <math.h>
#include <stdio.h>

#include "compiler/driver/search.h"

static const char *const recompute_words[] = { "cheap", "none", "block" };

enum { LONGEST_RECOMPUTE = 32 /* that is shown layer by layer */ };

static double gib(double bytes) {
    return bytes / 0x1p30;
}

void hunt_name(const Hunt *h, const SearchLayout *found, Text *out) {
    Layout layout = hunt_layout(h, found);
    int32_t of[SEARCH_RECOMPUTES] = { 0 }, n = layout.n_layer_recompute;
    for (int32_t i = 0; i < n; i++) of[found->recompute[i]]++;
    Text each = { 0 };
    if (n) layout_print_value(&layout, LAYOUT_recompute, &each);
    if (each.bytes <= LONGEST_RECOMPUTE) n = 0; // as --layout takes it
    text_finish(&each);
    if (n) {
        layout.layer_recompute = NULL;
        layout.n_layer_recompute = 0;
        layout.recompute = RECOMPUTE_CHEAP;
    }
    uint8_t precision = found->point.choice.precision;
    if (h->space.n_precisions > 1)
        text_printf(out, "%s%s ", hunt_precision[precision], precision == PRECISION_MXFP8 ? "*" : "");
    layout_print(&layout, out);
    for (int r = SEARCH_RECOMPUTES - 1, any = 0; r >= 0 && n; r--)
        if (of[r]) text_printf(out, "%s%s of %d", any++ ? ", " : ",recompute=", recompute_words[r], of[r]);
    if (layout.placement) text_add(out, " and experts placed");
}

/* The best ----------------------------------------------------------------------------------------- */

static void show_head(const Hunt *h, Text *out) {
    const CostCluster *c = &h->at.cluster;
    text_printf(out, "%s on %lld x %s, %s; a step is %lld sequence%s of %d tokens, %s", h->model->name,
                (long long)h->space.ranks, c->device.name, c->name, (long long)h->space.sequences,
                h->space.sequences == 1 ? "" : "s", h->model->sequence,
                hunt_precision[h->space.precisions[0]]);
    for (int32_t i = 1; i < h->space.n_precisions; i++)
        text_printf(out, " or %s", hunt_precision[h->space.precisions[i]]);
    text_add(out, "\n");
    for (int32_t i = 0; i < h->space.n_precisions; i++)
        if (h->space.precisions[i] == PRECISION_MXFP8)
            text_add(out, "  mxfp8*: costs are known, moec has no plans in it yet\n");
    if (!h->args->tokens)
        text_add(out, "  --tokens was not given: 8 sequences a device are taken; speed and layout depend on it\n");
}

static void show_left(const Hunt *h, Text *out) {
    if (h->left_bytes > 0)
        text_printf(out, "  searched with %.5g of %.5g GiB: what came first takes %.2g more by its plan than predicted\n",
                    gib(h->memory), gib(h->memory + h->left_bytes), gib(h->left_bytes));
}

// Predictions nearer than this are a tie: no model of costs is as exact.
static const double tie = 0.01;

static void show_table(const Hunt *h, Text *out) {
    const SearchLayout *best = &h->found.best[0];
    text_printf(out, "\n%3s %*s %s %*s %s %10s %7s %9s  layout\n", "#", 9 - (int)strlen(h->unit), "formula", h->unit,
                9 - (int)strlen(h->unit), "played", h->unit, "tokens/s", "", "GiB");
    int32_t ties = 0;
    for (int32_t i = 0; i < h->found.n && i < h->args->top; i++) {
        const SearchLayout *l = &h->found.best[i];
        double more = l->played_s / best->played_s - 1;
        ties += i && more < tie;
        text_printf(out, "%3d %10.4f %10.4f %10.0f %+6.1f%% %9.1f  ", i + 1, l->step_s * h->units, l->played_s * h->units,
                    hunt_tokens_per_s(h, l->played_s), 100 * more, gib(l->peak_bytes));
        hunt_name(h, l, out);
        text_add(out, i && more < tie ? "  (tie)\n" : "\n");
    }
    text_add(out, "    the best 64 by the formula, in the order of the simulator; tokens/s of a device; GiB of the\n"
                  "    fullest one, whatever the load of experts\n");
    if (ties)
        text_printf(out, "    %d within 1 %% of the first: run %s and keep the fastest\n", ties + 1,
                    ties > 1 ? "them" : "both");
}

static void show_count(const char *label, const SearchCount *count, int64_t points, const char *what, Text *out) {
    double n = search_count_double(count);
    text_printf(out, "  %-10s ", label);
    if (n < 1e15) search_count_print(count, out);
    else text_printf(out, "%.3e", n);
    text_printf(out, " layouts of %lld points%s\n", (long long)points, what);
}

static void show_certificate(const Hunt *h, Text *out) {
    const SearchCertificate *c = &h->found.certificate;
    text_add(out, "\ncertificate\n");
    show_count("exist", &c->layouts, c->points, ", each with all cuts into stages and recomputes", out);
    show_count("no memory", &c->cut_memory, c->points_memory, " cannot fit", out);
    show_count("bound", &c->cut_bound, c->points_bound, " cannot be among the best 64", out);
    show_count("decided", &c->decided, c->points_decided, " by their exact best", out);
    if (!c->complete) show_count("open", &c->open, c->points_open, " were not looked at", out);
    if (c->complete)
        text_printf(out, "  no layout is faster than %.4f %s by the formula, which is reached; found in %.2f s\n",
                    c->lower_s * h->units, h->unit, h->seconds);
    else
        text_printf(out, "  interrupted after %.2f s: no layout is faster than %.4f %s, a gap of %.2f %%\n", h->seconds,
                    c->lower_s * h->units, h->unit, 100 * c->gap);
}

/* Speed against memory -------------------------------------------------------------------------------- */

static void show_front(const Hunt *h, Text *out) {
    enum { WIDTH = 24 };
    if (h->front.n < 2) return;
    double most = hunt_tokens_per_s(h, h->front.at[0].step_s);
    text_add(out, "\nspeed against memory, by the formula\n      free GiB   tokens/s\n");
    for (int32_t i = 0; i < h->front.n; i++) {
        const SearchLayout *l = &h->front.at[i];
        double speed = hunt_tokens_per_s(h, l->step_s);
        int bar = (int)lround(WIDTH * speed / most);
        text_printf(out, "  %12.1f %10.0f  %.*s%*s  ", gib(h->memory - l->peak_bytes), speed, bar,
                    "########################", WIDTH - bar, "");
        hunt_name(h, l, out);
        text_add(out, "\n");
    }
}

/* Experts ------------------------------------------------------------------------------------------------ */

static void show_placement(const Hunt *h, Text *out) {
    const SearchChoice *best = &h->found.best[0].point.choice;
    if (!h->placed) return;
    text_printf(out, "\nexperts by the loads of steps %lld to %lld\n", (long long)h->load.steps[0],
                (long long)h->load.steps[h->load.n_steps - 1]);
    if (best->ep == 1) {
        text_add(out, "  the first has all experts on every rank: nothing waits for the busiest\n");
        return;
    }
    double bound, in_order = placed_left(h->placed, best->ep, true, &bound),
                  placed = placed_left(h->placed, best->ep, false, &bound);
    text_printf(
        out, "  ep=%d, busiest rank over the mean: in order %.4f, placed %.4f, no placement below %.4f by the sums\n",
        best->ep, in_order, placed, bound);
    text_printf(out, "  the first has them %s\n", best->placement ? "placed: -o FILE writes it" : "in order");
}

/* Where seconds and bytes go ---------------------------------------------------------------------------- */

static void show_waterfall(const Hunt *h, Text *out) {
    enum { WIDTH = 40 };
    const SearchLayout *best = &h->found.best[0];
    CostedStep step;
    costed_step(&h->at.costed, best, &step);
    double peak = h->at.cluster.device.matmul[best->point.choice.precision].flop_per_s;
    double reached = step.flops / best->step_s / (double)h->space.ranks;
    text_printf(out, "\nstep of the first, on stage %d, which decides: %.4f %s, %.4g TFLOP/s a device", step.rank,
                best->step_s * h->units, h->unit, reached / 1e12);
    if (peak > 0) text_printf(out, ", %.1f %% of the peak", 100 * reached / peak);
    text_add(out, "\n");
    double before = 0;
    for (int i = 0; i < N_COSTED_KINDS; i++) {
        double share = step.seconds[i] / best->step_s;
        if (share < 5e-4) continue;
        int from = (int)lround(WIDTH * before), to = (int)lround(WIDTH * (before + share));
        text_printf(out, "  %-31s %9.4f %s %5.1f %%  %*s%.*s\n", costed_kind_name[i], step.seconds[i] * h->units,
                    h->unit, 100 * share, from, "", to > from ? to - from : 1, "########################################");
        before += share;
    }
}

static int32_t layers_of(const SearchLayout *l, int32_t rank) {
    int32_t layers = 0;
    for (int32_t c = 0; c < l->point.chunks; c++) layers += l->stages[c * l->point.choice.pp + rank];
    return layers;
}

// Stages that are alike share a line.
static void show_memory(const Hunt *h, Text *out) {
    const SearchLayout *best = &h->found.best[0];
    int32_t pp = best->point.choice.pp;
    double (*bytes)[N_COSTED_BYTES] = (void *)ARENA_ARRAY(h->arena, double, pp * N_COSTED_BYTES);
    costed_bytes(&h->at.costed, best, bytes);
    text_printf(out, "\nmemory of a device of each stage, GiB of %.1f\n  %7s %7s", gib(h->memory), "stage", "layers");
    for (int k = 0; k < N_COSTED_BYTES; k++) text_printf(out, "  %s", costed_bytes_name[k]);
    text_printf(out, " %8s\n", "all");
    for (int32_t r = 0, first = 0; r < pp; r++) {
        bool more = r + 1 < pp && layers_of(best, r) == layers_of(best, r + 1) &&
                    !memcmp(bytes[r], bytes[r + 1], sizeof bytes[r]);
        if (more) continue;
        char name[32];
        snprintf(name, sizeof name, first < r ? "%d-%d" : "%d", first, r);
        text_printf(out, "  %7s %7d", name, layers_of(best, r));
        for (int k = 0; k < N_COSTED_BYTES; k++)
            text_printf(out, "  %*.2f", (int)strlen(costed_bytes_name[k]), gib(bytes[r][k]));
        text_printf(out, " %8.2f\n", gib(best->stage_bytes[r]));
        first = r + 1;
    }
}

// The listed layouts as another stack accounts for its memory. Its contexts are in none of its figures.
static void show_account(const Hunt *h, Text *out) {
    const CostAccount *account = line_account(h->args->options);
    if (!account) return;
    text_printf(out, "\nmemory as %s accounts for it, GiB of the fullest stage (docs/search.md)\n"
                     "%3s %9s %10s %22s %9s %12s %6s\n", cost_account_name(account), "#", "moec", cost_account_name(account),
                "weights and optimizer", "gathered", "activations", "stage");
    for (int32_t i = 0; i < h->found.n && i < h->args->top; i++) {
        Layout layout = hunt_layout(h, &h->found.best[i]);
        CostRun run = { .layout = &layout,
                        .precision = h->found.best[i].point.choice.precision,
                        .routing = h->at.costed.routing,
                        .sequences = h->space.sequences };
        CostMemory m;
        if (!cost_memory(h->at.costs, account, &run, &m)) continue;
        text_printf(out, "%3d %9.1f %10.1f %22.1f %9.1f %12.1f %6d\n", i + 1, gib(h->found.best[i].peak_bytes),
                    gib((double)m.bytes), gib((double)m.state_bytes), gib((double)m.gathered_bytes),
                    gib((double)m.moving_bytes), m.stage);
    }
}

void hunt_show(const Hunt *h, Text *out) {
    show_head(h, out);
    show_left(h, out);
    show_table(h, out);
    show_certificate(h, out);
    show_front(h, out);
    show_placement(h, out);
    show_waterfall(h, out);
    show_memory(h, out);
    show_account(h, out);
}

/* The plan -------------------------------------------------------------------------------------------------- */

// Memory does not grow with microbatches beyond those that are held at once.
static int32_t enough_microbatches(const SearchPoint *p) {
    int64_t most = round_up(2 * (int64_t)p->choice.pp * p->chunks, p->choice.pp);
    return (int32_t)min_i64(p->microbatches, most);
}

static Plan *plan_of(const Hunt *h, const SearchLayout *found, int32_t stage) {
    Layout layout = hunt_layout(h, found);
    const char *arch = h->at.cluster.device.arch;
    LowerOptions options = { .microbatch = layout.microbatch,
                             .microbatches = enough_microbatches(&found->point),
                             .target = strcmp(arch, "cpu") ? arena_printf(h->arena, "cuda:%s", arch) : "cpu",
                             .precision = found->point.choice.precision,
                             .recompute = layout.recompute,
                             .layout = &layout,
                             .stage = stage };
    options.programs[PROGRAM_STEP] = true;
    return lower_model(h->model, &options);
}

static int32_t fullest_stage(const SearchLayout *found) {
    int32_t fullest = 0;
    for (int32_t r = 0; r < found->point.choice.pp; r++)
        if (found->stage_bytes[r] > found->stage_bytes[fullest]) fullest = r;
    return fullest;
}

// Bytes of a device by the plan of its fullest stage; 0: there is none.
static double planned_bytes(Hunt *h, const SearchLayout *found, int32_t stage) {
    if (h->planned == found->stages) return h->planned_bytes;
    Plan *plan = plan_of(h, found, stage);
    h->planned = found->stages;
    h->planned_bytes = plan ? (double)plan_peak(plan) + (double)h->at.cluster.device.reserved_bytes : 0;
    plan_destroy(plan);
    return h->planned_bytes;
}

static void confirm_stage(Hunt *h, int32_t number, int32_t stage, Text *out) {
    const SearchLayout *found = &h->found.best[number];
    if (found->point.choice.precision == PRECISION_MXFP8) {
        text_printf(out, "  %-2d no plan yet: none is in mxfp8\n", number + 1);
        return;
    }
    double planned = planned_bytes(h, found, stage);
    if (planned <= 0) {
        text_printf(out, "  %-2d no plan yet: %s\n", number + 1, h->model->diag.message);
        return;
    }
    text_printf(out, "  %-2d stage %-3d %9.2f GiB by its plan, %9.2f predicted, %+.1f %%%s\n", number + 1, stage,
                gib(planned),
                gib(found->stage_bytes[stage]), 100 * (found->stage_bytes[stage] / planned - 1),
                planned > h->memory + h->left_bytes ? "  DOES NOT FIT" : "");
}

double hunt_short(Hunt *h) {
    const SearchLayout *first = &h->found.best[0];
    int32_t stage = fullest_stage(first);
    if (first->point.choice.precision == PRECISION_MXFP8) return 0;
    double planned = planned_bytes(h, first, stage);
    return planned > h->memory + h->left_bytes ? planned - first->stage_bytes[stage] : 0;
}

// The first of those listed, and of small models the others.
void hunt_confirm(Hunt *h, Text *out) {
    enum { MOST_LAYERS = 64 };
    text_add(out, "\nlowered: bytes of the fullest stage\n");
    for (int32_t i = 0; i < h->found.n && i < h->args->top; i++) {
        if (i && h->model->n_layers * (i + 1) > MOST_LAYERS) break;
        confirm_stage(h, i, fullest_stage(&h->found.best[i]), out);
    }
}

/* What comes next --------------------------------------------------------------------------------------------- */

// As a word of a command: in quotes if a shell would read more into it.
static void add_word(Text *out, const char *word) {
    bool plain = *word && !word[strcspn(word, " \t\n\"'\\$`*?[]{}()<>|&;!#~")];
    text_add(out, " ");
    if (!plain) text_add(out, "'");
    for (; *word; word++) {
        if (*word == '\'') text_add(out, "'\\''");
        else text_add_n(out, word, 1);
    }
    if (!plain) text_add(out, "'");
}

static void add_pair(const Hunt *h, const char *flag, const SpecArg *arg, Text *out) {
    text_add(out, flag);
    add_word(out, arena_printf(h->arena, "%s=%s", arg->key, arg->value));
}

// The model, the layout and what it was found for.
static void add_command(const Hunt *h, const char *command, Text *out) {
    const SpecOptions *spec = &h->args->spec_options;
    static const char *const routings[] = { NULL, "uniform", "random" };
    text_printf(out, "moec %s", command);
    add_word(out, h->args->spec);
    for (int i = 0; i < spec->n_args; i++) add_pair(h, "", &spec->args[i], out);
    for (int i = 0; i < spec->n_sets; i++) add_pair(h, " --set", &spec->sets[i], out);
    if (routings[spec->routing]) text_printf(out, " --routing %s", routings[spec->routing]);
    text_add(out, " --layout");
    add_word(out, h->args->out);
    text_printf(out, " --precision %s", hunt_precision[h->found.best[0].point.choice.precision]);
}

void hunt_next(const Hunt *h, Text *out) {
    const SearchPoint *point = &h->found.best[0].point;
    const char *arch = h->at.cluster.device.arch;
    bool gpu = strcmp(arch, "cpu"), plans = point->choice.precision != PRECISION_MXFP8;
    if (!h->args->out) {
        text_add(out, "\nnext: -o FILE.lua writes the first, and says what takes it\n");
        return;
    }
    text_printf(out, "\nwritten %s; next\n  ", h->args->out);
    add_command(h, "simulate", out);
    text_add(out, " --cluster");
    add_word(out, h->args->cluster);
    text_printf(out, " --microbatches %d%s\n", point->microbatches, plans ? "" : " --quick");
    if (!plans) return;
    text_add(out, "  ");
    add_command(h, "plan", out);
    if (gpu) text_printf(out, " --target cuda:%s", arch);
    text_printf(out, " --microbatches %d\n  ", point->microbatches);
    if (h->space.ranks > 1) text_printf(out, "mpirun -n %lld ", (long long)h->space.ranks);
    add_command(h, "train", out);
    text_printf(out, "%s --batch %lld --data FILE --out RUN\n", gpu ? " --device cuda" : "",
                (long long)h->space.sequences * h->model->sequence);
}
