// SPDX-License-Identifier: Apache-2.0
// Why `moec search` chose what it chose: neighbours, what binds, what other machines would change, why not the
// layout that the user names, and what is the least that must change when nothing fits.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/driver/search.h"

static double gib(double bytes) {
    return bytes / 0x1p30;
}

/* Neighbours ---------------------------------------------------------------------------------------- */

static void say_neighbour(Hunt *h, const char *change, const SearchPoint *point, Text *out) {
    SearchEvaluated e;
    search_point(h->at.search, point, h->memory, h->arena, &e);
    if (e.verdict == VERDICT_IMPOSSIBLE) return;
    text_printf(out, "  %-30s ", change);
    double best = h->found.best[0].step_s;
    if (e.verdict == VERDICT_FITS) text_printf(out, "%+7.1f %%   %.1f GiB", 100 * (e.layout.step_s / best - 1), gib(e.layout.peak_bytes));
    else text_printf(out, "does not fit: %.1f GiB too many at least", gib(e.short_bytes));
    text_add(out, "\n");
}

static void each_factor(Hunt *h, const char *name, int32_t value, int32_t *field, SearchPoint *point, bool dp, Text *out) {
    for (int up = 0; up < 2; up++) {
        if (!up && value % 2) continue;
        *field = up ? value * 2 : value / 2;
        if (dp) point->choice.dp = (int32_t)(h->space.ranks / point->choice.pp);
        char change[64];
        snprintf(change, sizeof change, "%s %d -> %d", name, value, *field);
        say_neighbour(h, change, point, out);
        *field = value;
        if (dp) point->choice.dp = (int32_t)(h->space.ranks / point->choice.pp);
    }
}

// Both orders of a field of two values.
static void flip(Hunt *h, const char *name, const char *const words[2], uint8_t *field, SearchPoint *point, Text *out) {
    char change[64];
    *field = !*field;
    snprintf(change, sizeof change, "%s=%s", name, words[*field]);
    say_neighbour(h, change, point, out);
    *field = !*field;
}

// Every other value of what was offered.
static void each_offered(Hunt *h, SearchPoint *p, Text *out) {
    const SearchSpace *space = &h->space;
    const SearchChoice was = p->choice;
    char change[64];
    for (int32_t i = 0; i < space->n_precisions; i++) {
        if (space->precisions[i] == was.precision) continue;
        p->choice.precision = space->precisions[i];
        snprintf(change, sizeof change, "%s", hunt_precision[p->choice.precision]);
        say_neighbour(h, change, p, out);
    }
    p->choice = was;
    for (int32_t i = 0; i < space->n_capacities && was.ep > 1; i++) {
        if (space->capacities[i] == was.capacity) continue;
        p->choice.capacity = space->capacities[i];
        if (isfinite(p->choice.capacity)) snprintf(change, sizeof change, "capacity=%g", p->choice.capacity);
        say_neighbour(h, isfinite(p->choice.capacity) ? change : "capacity=dropless", p, out);
    }
    p->choice = was;
    double capacity = was.capacity > 0 ? was.capacity : h->at.costs->capacity;
    bool rounds = was.ep > 1 && !isfinite(capacity);
    for (int32_t i = 0; i < space->n_rounds && rounds; i++) {
        bool whole = !(space->rounds[i] < was.ep);
        if (space->rounds[i] == was.round || (whole && !(was.round < was.ep))) continue;
        p->choice.round = space->rounds[i];
        snprintf(change, sizeof change, "round=%g", p->choice.round);
        say_neighbour(h, whole ? "round=whole" : change, p, out);
    }
    p->choice = was;
    p->choice.placement = !was.placement;
    if (h->placed && was.ep > 1) say_neighbour(h, was.placement ? "experts in order" : "experts placed", p, out);
    p->choice = was;
}

static void each_schedule(Hunt *h, const SearchPoint *best, Text *out) {
    static const char *const words[] = { "1f1b", "interleaved", "zb" };
    for (int32_t schedule = 0; schedule < 3; schedule++) {
        for (int32_t v = 1; v <= SEARCH_MOST_CHUNKS; v++) {
            SearchPoint p = *best;
            p.schedule = (uint8_t)schedule;
            p.chunks = v;
            if ((schedule == SCHEDULE_INTERLEAVED) != (v > 1)) continue;
            if (schedule == best->schedule && v == best->chunks) continue;
            char change[64];
            snprintf(change, sizeof change, v > 1 ? "schedule=%s,slots=%d" : "schedule=%s", words[schedule], v);
            say_neighbour(h, change, &p, out);
        }
    }
}

// All layers alike, the split free or even: what mixing and uneven splits are worth.
static void say_plain(Hunt *h, Text *out) {
    static const char *const words[] = { "recompute=cheap of all", "recompute=none of all", "recompute=block of all" };
    const SearchLayout *best = &h->found.best[0];
    int32_t n = best->point.choice.pp * best->point.chunks, layers = h->model->n_layers;
    for (int what = 0; what < 4; what++) {
        SearchLayout l = *best;
        l.stages = ARENA_ARRAY(h->arena, int32_t, n);
        l.recompute = ARENA_ARRAY(h->arena, uint8_t, layers);
        l.stage_bytes = NULL;
        bool same = true;
        for (int32_t i = 0; i < n; i++) {
            l.stages[i] = what < 3 ? best->stages[i] : layers / n + (i < layers % n);
            same &= l.stages[i] == best->stages[i];
        }
        for (int32_t i = 0; i < layers; i++) {
            l.recompute[i] = what < 3 ? (uint8_t)what : best->recompute[i];
            same &= l.recompute[i] == best->recompute[i];
        }
        SearchEvaluated e;
        if (same) continue;
        search_layout(h->at.search, &l, h->memory, h->arena, &e);
        if (e.verdict == VERDICT_IMPOSSIBLE) continue;
        text_printf(out, "  %-30s %+7.1f %%   %.1f GiB%s\n", what < 3 ? words[what] : "even stages",
                    100 * (e.layout.step_s / best->step_s - 1), gib(e.layout.peak_bytes),
                    e.verdict == VERDICT_MEMORY ? ", too many" : "");
    }
}

void hunt_neighbours(Hunt *h, Text *out) {
    static const char *const params[] = { "resident", "fsdp" }, *const transports[] = { "rows", "blocks" };
    SearchPoint p = h->found.best[0].point;
    text_add(out, "\none step away, by the formula, with the best stages and recomputes there\n");
    each_factor(h, "pp", p.choice.pp, &p.choice.pp, &p, true, out);
    each_factor(h, "ep", p.choice.ep, &p.choice.ep, &p, false, out);
    each_factor(h, "microbatch", p.choice.microbatch, &p.choice.microbatch, &p, false, out);
    each_schedule(h, &p, out);
    if (p.choice.dp > 1) flip(h, "params", params, &p.choice.params, &p, out);
    if (p.choice.dp > p.choice.ep && h->at.costs->experts > 0)
        flip(h, "expert_params", params, &p.choice.expert_params, &p, out);
    if (p.choice.ep > 1) flip(h, "transport", transports, &p.choice.transport, &p, out);
    bool gathers = (p.choice.params && p.choice.dp > 1) || (p.choice.expert_params && p.choice.dp > p.choice.ep);
    static const char *const overlaps[] = { "off", "on" };
    if (gathers) flip(h, "overlap", overlaps, &p.choice.overlap, &p, out);
    each_offered(h, &p, out);
    say_plain(h, out);
}

/* What binds ------------------------------------------------------------------------------------------ */

// By the formula, as what is found elsewhere is.
static const SearchLayout *fastest(const Hunt *h) {
    const SearchLayout *best = &h->found.best[0];
    for (int32_t i = 1; i < h->found.n; i++)
        if (h->found.best[i].step_s < best->step_s) best = &h->found.best[i];
    return best;
}

static void say_changed(const Hunt *h, const char *what, const SearchFound *then, Text *out) {
    text_printf(out, "  %-34s ", what);
    if (!then->n) {
        text_add(out, "nothing fits\n");
        return;
    }
    const SearchLayout *best = fastest(h), *now = &then->best[0];
    double change = 100 * (now->step_s / best->step_s - 1);
    text_printf(out, "%+6.1f %%  ", fabs(change) < 0.05 ? 0 : change);
    if (hunt_same_layout(best, now, h->model->n_layers)) {
        text_add(out, "the same layout\n");
        return;
    }
    hunt_name(h, now, out);
    text_add(out, "\n");
}

static double say_memory(Hunt *h, double gibs, Text *out) {
    SearchFound then;
    char what[64];
    search_run(h->at.search, h->memory + gibs * 0x1p30, 1, h->arena, &then);
    snprintf(what, sizeof what, "%g GiB %s a device", fabs(gibs), gibs > 0 ? "more" : "less");
    say_changed(h, what, &then, out);
    return then.n ? then.best[0].step_s : INFINITY;
}

// Another machine: which of the best 64 would be first there.
static void say_ground(Hunt *h, const char *what, const CostCluster *cluster, double load, Text *out) {
    Ground other;
    SearchFound then = { .best = ARENA_NEW(h->arena, SearchLayout) };
    if (!hunt_ground(h, cluster, load, true, &other)) {
        for (int32_t i = 0; i < h->found.n; i++) {
            SearchEvaluated e;
            search_point(other.search, &h->found.best[i].point, h->memory, h->arena, &e);
            if (e.verdict != VERDICT_FITS || (then.n && e.layout.step_s >= then.best[0].step_s)) continue;
            then.best[0] = e.layout;
            then.n = 1;
        }
        say_changed(h, what, &then, out);
    }
    ground_finish(&other);
}

static void say_links(Hunt *h, Text *out) {
    const CostCluster *c = &h->at.cluster;
    static const double factors[] = { 2, 1.2, 0.8 };
    for (int32_t i = 0; i < c->n_links; i++) {
        for (int k = 0; k < COUNT_OF(factors); k++) {
            CostCluster scaled = cost_cluster_scaled(c, i, factors[k]);
            for (int32_t j = i + 1; j < c->n_links; j++) scaled.links[j] = c->links[j];
            char what[64];
            snprintf(what, sizeof what, "%s x %g", c->links[i].name, factors[k]);
            say_ground(h, what, &scaled, 1, out);
        }
    }
}

static void say_bound_by(const Hunt *h, double more_s, double gibs, Text *out) {
    CostedStep step;
    const SearchLayout *best = &h->found.best[0];
    costed_step(&h->at.costed, best, &step);
    int most = COSTED_rows;
    for (int i = COSTED_rows; i < N_COSTED_KINDS; i++)
        if (step.seconds[i] > step.seconds[most]) most = i;
    double change = more_s / fastest(h)->step_s - 1; // as say_changed rounds it
    if (change <= -5e-4) text_printf(out, "  memory binds: %g GiB more make the best %.1f %% faster\n", gibs, -100 * change);
    else text_printf(out, "  memory does not bind: with %g GiB more the best stays as fast\n", gibs);
    text_printf(out, "  beside compute, most goes to %s, %.1f %% of the step\n", costed_kind_name[most],
                100 * step.seconds[most] / best->step_s);
}

void hunt_binding(Hunt *h, Text *out) {
    text_add(out, "\nother machines and loads, by the formula: how much longer the best step is, and which is best\n");
    double step = h->memory > 64 * 0x1p30 ? 10 : round(gib(h->memory) / 8 * 10) / 10; // GiB
    double more = say_memory(h, step, out);
    say_memory(h, -step, out);
    say_links(h, out);
    if (h->at.costs->experts > 0 && h->args->spec_options.routing != ROUTING_UNIFORM) {
        say_ground(h, "experts' loads even", &h->at.cluster, 0, out);
        say_ground(h, "twice the imbalance", &h->at.cluster, 2, out);
    }
    say_bound_by(h, more, step, out);
}

/* Why not the one that is named ------------------------------------------------------------------------- */

// Rows go through memory inside a node and in blocks between nodes; everything else layout_check has seen to.
static void say_impossible(const Hunt *h, Text *out) {
    const CostCluster *c = &h->at.cluster;
    int32_t node = c->n_links ? c->links[0].size : 1;
    if (h->named.ep > node && h->named.transport == TRANSPORT_ROWS)
        text_printf(out, "impossible here: ep=%d crosses nodes of %d, and rows one by one do not: transport=blocks\n",
                    h->named.ep, node);
    else if (h->named.ep > 1 && h->named.ep <= node && h->named.transport == TRANSPORT_BLOCKS)
        text_printf(out, "not weighed: ep=%d lies within a node of %d, where transport=rows is\n", h->named.ep, node);
    else text_add(out, "impossible here: not of the layouts that are searched\n");
}

static void say_verdict(const Hunt *h, const char *what, const SearchEvaluated *e, Text *out) {
    text_printf(out, "  %-28s ", what);
    double best = h->found.n ? h->found.best[0].step_s : INFINITY;
    if (e->verdict == VERDICT_IMPOSSIBLE) {
        say_impossible(h, out);
        return;
    }
    text_printf(out, "%.4f %s", e->layout.step_s * h->units, h->unit);
    if (best < INFINITY) text_printf(out, " (%+.1f %%)", 100 * (e->layout.step_s / best - 1));
    text_printf(out, ", %.1f GiB", gib(e->layout.peak_bytes));
    if (e->verdict == VERDICT_MEMORY) text_printf(out, ": %.1f GiB too many", gib(e->short_bytes));
    else {
        int32_t faster = 0;
        for (int32_t i = 0; i < h->found.n; i++) faster += h->found.best[i].step_s < e->layout.step_s * (1 - 1e-9);
        text_printf(out, faster < HUNT_KEPT ? ": %d points are faster" : ": %d points and more are faster", faster);
    }
    text_add(out, "\n");
}

// Seconds by kind, the named one less the best.
static void say_kinds(const Hunt *h, const SearchLayout *named, Text *out) {
    CostedStep ours, theirs;
    costed_step(&h->at.costed, &h->found.best[0], &ours);
    costed_step(&h->at.costed, named, &theirs);
    text_add(out, "  it differs from the first by\n");
    for (int i = 0; i < N_COSTED_KINDS; i++) {
        double more = theirs.seconds[i] - ours.seconds[i];
        if (fabs(more) > 2e-3 * h->found.best[0].step_s)
            text_printf(out, "    %-31s %+9.4f %s\n", costed_kind_name[i], more * h->units, h->unit);
    }
}

void hunt_why_not(Hunt *h, Text *out) {
    SearchEvaluated as_is, free_there;
    uint8_t precision = h->found.n ? h->found.best[0].point.choice.precision : h->space.precisions[0];
    SearchLayout named = search_from_layout(&h->named, precision, h->model->n_layers, h->arena);
    search_layout(h->at.search, &named, h->memory, h->arena, &as_is);
    search_point(h->at.search, &named.point, h->memory, h->arena, &free_there);
    text_printf(out, "\nwhy not %s\n", h->args->layout);
    say_verdict(h, "as it is", &as_is, out);
    say_verdict(h, "stages and recomputes free", &free_there, out);
    if (as_is.verdict != VERDICT_IMPOSSIBLE && h->found.n) say_kinds(h, &as_is.layout, out);
}

/* When nothing fits --------------------------------------------------------------------------------------- */

// The least memory with which anything fits, by halving.
static double least_memory(Hunt *h, SearchLayout *out) {
    double low = h->memory, high = fmax(2 * low, 0x1p30);
    SearchFound found;
    for (int i = 0; i < 12; i++, high *= 2) {
        search_run(h->at.search, high, 1, h->arena, &found);
        if (found.n) break;
        low = high;
    }
    if (!found.n) return INFINITY;
    for (int i = 0; i < 20 && high - low > 0x1p26; i++) {
        double middle = 0.5 * (low + high);
        search_run(h->at.search, middle, 1, h->arena, &found);
        if (found.n) high = middle, *out = found.best[0];
        else low = middle;
    }
    search_run(h->at.search, high, 1, h->arena, &found);
    *out = found.best[0];
    return out->peak_bytes;
}

static void say_more_ranks(Hunt *h, Text *out) {
    SearchSpace was = h->space;
    for (int64_t factor = 2; factor <= 64; factor *= 2) {
        Ground other;
        SearchFound then = { 0 };
        h->space.ranks = was.ranks * factor;
        if (h->space.ranks > LAYOUT_MOST_RANKS) break;
        h->space.sequences = max_i64(was.sequences, round_up(was.sequences, h->space.ranks));
        CostCluster more = h->at.cluster;
        if (more.n_links) more.links[more.n_links - 1].size *= (int32_t)factor;
        if (!hunt_ground(h, &more, 1, false, &other)) search_run(other.search, h->memory, 1, h->arena, &then);
        if (then.n) {
            text_printf(out, "  %lld devices of this kind: ", (long long)h->space.ranks);
            hunt_name(h, &then.best[0], out);
            text_add(out, "\n");
        }
        ground_finish(&other);
        if (then.n) break;
    }
    h->space = was;
}

static void say_capacity(Hunt *h, Text *out) {
    const CostProfile *costs = h->at.costs;
    if (!(costs->experts > 0) || h->args->n_capacities || costs->capacity < INFINITY) return;
    SearchSpace was = h->space;
    h->space.n_capacities = 1;
    h->space.capacities[0] = 1.25;
    Ground other;
    SearchFound then = { 0 };
    if (!hunt_ground(h, &h->at.cluster, 1, false, &other)) search_run(other.search, h->memory, 1, h->arena, &then);
    if (then.n) {
        text_add(out, "  --capacity 1.25, which drops rows over it, where the spec drops none: ");
        hunt_name(h, &then.best[0], out);
        text_add(out, "\n");
    }
    ground_finish(&other);
    h->space = was;
}

void hunt_nothing(Hunt *h, Text *out) {
    const SearchCertificate *c = &h->found.certificate;
    text_printf(out, "%s on %lld x %s: no layout fits %.4g GiB a device (", h->model->name, (long long)h->space.ranks,
                h->at.cluster.device.name, gib(h->memory));
    if (search_count_double(&c->layouts) < 1e15) search_count_print(&c->layouts, out);
    else text_printf(out, "%.3e", search_count_double(&c->layouts));
    text_printf(out, " layouts of %lld points)\nthe least that must change, one of\n", (long long)c->points);
    SearchLayout least;
    double bytes = least_memory(h, &least);
    if (bytes < INFINITY) {
        text_printf(out, "  %.2f GiB a device, %.2f more: ", gib(bytes), gib(bytes - h->memory));
        hunt_name(h, &least, out);
        text_add(out, "\n");
    }
    say_more_ranks(h, out);
    say_capacity(h, out);
}
