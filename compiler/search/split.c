// SPDX-License-Identifier: Apache-2.0
// The best of all splits and recomputes of one point.
//
// A rank with a run of layers takes work + slope * x, x the least extra seconds with which it fits. A point
// takes M + (constant + sum of x / v), M the slowest rank. Both M and the sum matter, and pull apart: a
// split with a slower slowest rank may recompute less. Of splits with M below a cap, dynamic programming
// over stages finds the least sum, and of these the least M. Lowering the cap below each M in turn walks
// down all trades, until the least M there is, with the sum reached, is no better than what was found.
#include <stdlib.h>

#include "compiler/search/private.h"

// A virtual stage of a rank: layers from .. to - 1, of which `flight` microbatches are held.
typedef struct Run { int32_t from, to, stage; double flight; } Run; // flight: 1 where frontiers are of all that is kept

// How a rank fits: recomputes within limits[limit]; `ways` by run.
typedef struct Fit {
    int32_t limit;                  // -1: every layer with its fastest
    uint32_t ways[SEARCH_MOST_CHUNKS];
} Fit;

typedef struct Job {
    const Weights *w;
    Arena *arena;
    Frontiers **frontiers;          // made when first needed; in zero bubble by stage, else one
    int32_t pp, v, n_layers, longest; // longest: most layers of a stage, so that others have one
    double limit, most;             // seconds of a step; of a rank, to be better
    double *extra;                  // [pp][n_layers][longest]: of layers from .. from + length; NAN: not asked
} Job;

/* One rank ------------------------------------------------------------------------------------------ */

static const Vector *vector_of(const Job *j, const Run *run, int32_t *number) {
    const Search *s = j->w->s;
    *number = s->vectors.of[run->from * (s->profile.n_layers + 1) + run->to];
    return &s->vectors.at[*number];
}

static double flight_at(const Job *j, int32_t stage) {
    return j->w->point.schedule == SCHEDULE_ZERO_BUBBLE ? 1 : j->w->flights[stage].saved;
}

static bool is_last(const Job *j, const Run *run) {
    return run->stage == j->pp * j->v - 1;
}

// Bytes that no recompute changes; *transient: the most of what is no layer's.
static double fixed_bytes(const Job *j, const Run *runs, double *transient) {
    const Weights *w = j->w;
    const SearchLayer *before = &w->table->parts[w->s->profile.n_classes], *after = before + 1;
    double bytes = 0;
    *transient = 0;
    for (int32_t c = 0; c < j->v; c++) {
        const Run *run = &runs[c];
        bytes += w->sum_state[run->to] - w->sum_state[run->from];
        if (run->stage == 0) {
            bytes += before->state_bytes + flight_bytes(&w->point, &w->flights[0], before, 0);
            *transient = fmax(*transient, before->transient_bytes[0]);
        }
        bytes += w->crossing_bytes[run->stage];
        if (is_last(j, run)) {
            bytes += after->state_bytes + flight_bytes(&w->point, &w->flights[run->stage], after, 0);
            *transient = fmax(*transient, after->transient_bytes[0]);
        }
    }
    return bytes;
}

// What a rank has at the end of a step.
static double end_bytes(const Job *j, const Run *runs) {
    const Weights *w = j->w;
    int32_t classes = w->s->profile.n_classes;
    const SearchLayer *parts = w->table->parts;
    double bytes = 0, most = 0;
    for (int32_t c = 0; c < j->v; c++) {
        int32_t number;
        const Vector *v = vector_of(j, &runs[c], &number);
        bytes += w->sum_state[runs[c].to] - w->sum_state[runs[c].from];
        for (int32_t k = 0; k < classes; k++)
            if (v->counts[k]) most = fmax(most, parts[k].update_bytes);
        for (int32_t k = classes; k < classes + 2; k++) {
            if (k == classes ? runs[c].stage != 0 : !is_last(j, &runs[c])) continue;
            bytes += parts[k].state_bytes;
            most = fmax(most, parts[k].update_bytes);
        }
    }
    return bytes + most;
}

static double work_of(const Job *j, const Run *runs) {
    const Weights *w = j->w;
    double work = 0;
    for (int32_t c = 0; c < j->v; c++) {
        work += w->sum_work[runs[c].to] - w->sum_work[runs[c].from];
        if (runs[c].stage == 0) work += w->work[w->s->profile.n_classes];
        if (is_last(j, &runs[c])) work += w->work[w->s->profile.n_classes + 1];
    }
    return work;
}

// With the fastest recomputes, or with those that save least.
static double layer_bytes(const Job *j, const Run *runs, bool least, double transient) {
    const Weights *w = j->w;
    const Table *t = w->table;
    const double *sum = least ? w->sum_least : w->sum_saved;
    bool late = w->point.schedule == SCHEDULE_ZERO_BUBBLE;
    double bytes = 0;
    for (int32_t c = 0; c < j->v; c++) {
        int32_t number, classes = w->s->profile.n_classes;
        const Vector *v = vector_of(j, &runs[c], &number);
        const Kept *held = &w->held[runs[c].stage * classes];
        if (!late) bytes += runs[c].flight * (sum[runs[c].to] - sum[runs[c].from]);
        for (int32_t k = 0; k < classes; k++) {
            if (!v->counts[k]) continue;
            if (late) bytes += v->counts[k] * (least ? held[k].least : held[k].base);
            transient = fmax(transient, least ? t->least_transient[k]
                                              : t->parts[k].transient_bytes[t->base[k]]);
        }
    }
    return bytes + transient;
}

static Frontiers *frontiers_at(Job *j, int32_t stage) {
    bool late = j->w->point.schedule == SCHEDULE_ZERO_BUBBLE;
    if (!j->frontiers) j->frontiers = ARENA_ARRAY(j->arena, Frontiers *, late ? j->pp : 1);
    Frontiers **at = &j->frontiers[late ? stage : 0];
    if (!*at) *at = frontiers_create(j->w, stage, j->arena);
    return *at;
}

// Of one run: the first way that fits.
static double fit_one(Job *j, const Run *run, int32_t limit, double room, Fit *fit) {
    int32_t vector;
    vector_of(j, run, &vector);
    const Frontier *f = frontiers_of(frontiers_at(j, run->stage), limit, vector);
    uint32_t low = 0, high = f->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (run->flight * f->at[middle].saved_bytes <= room) high = middle;
        else low = middle + 1;
    }
    fit->ways[0] = low;
    return low < f->n ? f->at[low].extra_s : INFINITY;
}

// Of several runs: sums of their frontiers, each run's bytes times its microbatches in flight.
static double fit_several(Job *j, const Run *runs, int32_t limit, double room, double most_s, Fit *fit) {
    Arena *scratch = arena_create();
    Frontier sums[SEARCH_MOST_CHUNKS];
    for (int32_t c = 0; c < j->v; c++) {
        int32_t vector;
        vector_of(j, &runs[c], &vector);
        const Frontier *f = frontiers_of(frontiers_at(j, runs[c].stage), limit, vector);
        sums[c] = frontier_sum(c ? &sums[c - 1] : NULL, f, runs[c].flight, room, most_s, scratch);
    }
    const Frontier *all = &sums[j->v - 1];
    double extra = all->n ? all->at[0].extra_s : INFINITY; // what does not fit was dropped
    uint32_t at = 0;
    for (int32_t c = j->v - 1; c >= 0 && all->n; c--) {
        fit->ways[c] = sums[c].at[at].mine;
        at = sums[c].at[at].rest;
    }
    arena_destroy(scratch);
    return extra;
}

// The least extra seconds with which a rank fits; INFINITY: it does not, or only with more than most_s.
static double rank_extra(Job *j, const Run *runs, double most_s, Fit *fit) {
    double transient, room = j->w->memory - fixed_bytes(j, runs, &transient);
    *fit = (Fit){ .limit = -1 };
    if (end_bytes(j, runs) > j->w->memory) return INFINITY;
    if (layer_bytes(j, runs, false, transient) <= room) return 0;
    if (layer_bytes(j, runs, true, transient) > room) return INFINITY;
    const double *limits;
    int32_t n = frontiers_limits(frontiers_at(j, runs[0].stage), &limits);
    double best = INFINITY;
    for (int32_t i = 0; i < n; i++) {
        double left = room - fmax(transient, limits[i]);
        if (left < 0) break;
        Fit with = { .limit = i };
        double extra = j->v == 1 ? fit_one(j, runs, i, left, &with)
                                 : fit_several(j, runs, i, left, fmin(most_s, best), &with);
        if (!(extra < best)) continue;
        best = extra;
        *fit = with;
    }
    return best;
}

/* Plain schedules ------------------------------------------------------------------------------------- */

static Run plain_run(const Job *j, int32_t stage, int32_t from, int32_t to) {
    return (Run){ from, to, stage, flight_at(j, stage) };
}

static double extra_of(Job *j, int32_t stage, int32_t from, int32_t to) {
    double *at = &j->extra[((int64_t)stage * j->n_layers + from) * j->longest + to - from - 1];
    if (isnan(*at)) {
        Run run = plain_run(j, stage, from, to);
        Fit fit;
        *at = rank_extra(j, &run, INFINITY, &fit);
    }
    return *at;
}

static double plain_work(const Job *j, int32_t stage, int32_t from, int32_t to) {
    Run run = { from, to, stage, 0 };
    return work_of(j, &run);
}

typedef struct Cell {
    double sum, most; // extra seconds of the stages so far; their slowest
    int32_t from;     // first layer of the last of them; -1: impossible
} Cell;

// Which is better: by sum then by most, or by most alone.
static bool better(const Cell *a, const Cell *b, bool by_most) {
    if (b->from < 0) return true;
    if (by_most) return a->most < b->most;
    return a->sum < b->sum || (a->sum == b->sum && a->most < b->most);
}

// The best cut of the first `to` layers into stages up to `stage`, the slowest below `cap` seconds.
static Cell best_cell(Job *j, const Cell *before, int32_t stage, int32_t to, double cap, bool by_most) {
    Cell best = { .from = -1 };
    int32_t first = stage ? stage : 0;
    for (int32_t from = to - 1; from >= first && to - from <= j->longest; from--) {
        if (!stage && from) continue;
        double work = plain_work(j, stage, from, to);
        if (!(work < cap)) break; // more layers take longer
        if (stage && before[from].from < 0) continue;
        double extra = extra_of(j, stage, from, to);
        double time = work + j->w->slope * extra;
        if (!(extra < INFINITY) || !(time < cap)) continue;
        Cell cell = { extra, time, from };
        if (stage) {
            cell.sum += before[from].sum;
            cell.most = fmax(cell.most, before[from].most);
        }
        if (better(&cell, &best, by_most)) best = cell;
    }
    return best;
}

// Every stage has a layer at least, and the last one what is left.
static bool can_end(const Job *j, int32_t stage, int32_t to) {
    return to > stage && to <= j->n_layers - (j->pp - 1 - stage) && (stage < j->pp - 1 || to == j->n_layers);
}

// The layers of each stage, from cells [stages][n_layers + 1].
static void read_cells(const Job *j, const Cell *cells, int32_t *stages) {
    for (int32_t stage = j->pp - 1, to = j->n_layers; stage >= 0; stage--) {
        int32_t from = cells[(int64_t)stage * (j->n_layers + 1) + to].from;
        stages[stage] = to - from;
        to = from;
    }
}

// False: none below the cap. Layers of stages go to `stages`.
static bool cut(Job *j, double cap, bool by_most, int32_t *stages, Cell *out) {
    int32_t width = j->n_layers + 1;
    Arena *scratch = arena_create();
    Cell *cells = ARENA_ARRAY(scratch, Cell, (int64_t)j->pp * width);
    for (int32_t stage = 0; stage < j->pp; stage++) {
        Cell *row = cells + (int64_t)stage * width, *before = stage ? row - width : NULL;
        for (int32_t to = 0; to < width; to++)
            row[to] = can_end(j, stage, to) ? best_cell(j, before, stage, to, cap, by_most) : (Cell){ .from = -1 };
    }
    *out = cells[(int64_t)j->pp * width - 1];
    if (out->from >= 0) read_cells(j, cells, stages);
    arena_destroy(scratch);
    return out->from >= 0;
}

static double seconds_of(const Job *j, double most, double sum) {
    return weights_step_s(j->w, most + j->w->constant + sum / j->v, sum);
}

static bool best_plain(Job *j, int32_t *stages, double *seconds) {
    int32_t *trial = ARENA_ARRAY(j->arena, int32_t, j->pp);
    Cell least, cell;
    if (!cut(j, j->most, true, stages, &least)) return false;
    // The least sum with the least M: the smallest cap above it.
    cut(j, nextafter(least.most, INFINITY), false, stages, &cell);
    *seconds = seconds_of(j, cell.most, cell.sum);
    double cap = j->most;
    while (cut(j, cap, false, trial, &cell)) {
        double reached = seconds_of(j, cell.most, cell.sum);
        if (reached < *seconds) {
            *seconds = reached;
            memcpy(stages, trial, sizeof *stages * (size_t)j->pp);
        }
        if (!(seconds_of(j, least.most, cell.sum) < *seconds)) break;
        cap = cell.most;
    }
    return true;
}

/* Interleaved schedules --------------------------------------------------------------------------------- */

static void fill_runs(const Job *j, int32_t stage, const int32_t *stages, Run *runs) {
    int32_t from = 0;
    for (int32_t i = 0; i < j->pp * j->v; i++) {
        if (i % j->pp == stage) runs[i / j->pp] = (Run){ from, from + stages[i], i, flight_at(j, i) };
        from += stages[i];
    }
}

// Seconds of a split; INFINITY: it does not fit or takes `limit` seconds or more.
static double time_split(Job *j, const int32_t *stages, double limit) {
    double most = 0, sum = 0, cap = weights_most_s(j->w, limit) - j->w->constant;
    if (!(bound_split(j->w, stages) < cap)) return INFINITY;
    for (int32_t stage = 0; stage < j->pp; stage++) {
        Run runs[SEARCH_MOST_CHUNKS];
        Fit fit;
        fill_runs(j, stage, stages, runs);
        double work = work_of(j, runs);
        // A little more than what makes `limit`, for rounding.
        double most_s = j->w->slope > 0 ? (cap - work) / j->w->slope * (1 + 1e-9) : INFINITY;
        double extra = rank_extra(j, runs, most_s, &fit);
        if (!(extra < INFINITY)) return INFINITY;
        most = fmax(most, work + j->w->slope * extra);
        sum += extra;
    }
    return seconds_of(j, most, sum);
}

static bool best_interleaved(Job *j, int32_t *stages, double *seconds) {
    const Splits *splits = space_splits(j->w->s, j->pp, j->v);
    int32_t n = j->pp * j->v;
    *seconds = INFINITY;
    for (int32_t i = 0; i < splits->n; i++) {
        const int32_t *trial = splits->stages + (int64_t)i * n;
        double reached = time_split(j, trial, fmin(*seconds, j->limit));
        if (!(reached < *seconds)) continue;
        *seconds = reached;
        memcpy(stages, trial, sizeof *stages * (size_t)n);
    }
    return *seconds < INFINITY;
}

/* The layout -------------------------------------------------------------------------------------------- */

static Job start(const Weights *w, double limit, Arena *scratch) {
    int32_t pp = w->point.choice.pp, n = w->s->profile.n_layers;
    Job j = { .w = w, .arena = scratch, .pp = pp, .v = w->point.chunks, .n_layers = n,
              .longest = n - pp + 1, .limit = limit, .most = weights_most_s(w, limit) - w->constant };
    if (j.v > 1) return j;
    int64_t cells = (int64_t)pp * n * j.longest;
    j.extra = ARENA_ARRAY(scratch, double, cells);
    for (int64_t i = 0; i < cells; i++) j.extra[i] = NAN;
    return j;
}

static SearchLayout make_layout(const Weights *w, Arena *arena) {
    SearchLayout out = { .point = w->point };
    out.stages = ARENA_ARRAY(arena, int32_t, w->point.choice.pp * w->point.chunks);
    out.recompute = ARENA_ARRAY(arena, uint8_t, w->s->profile.n_layers);
    out.stage_bytes = ARENA_ARRAY(arena, double, w->point.choice.pp);
    return out;
}

// Gives the layers of a run their recomputes: of a class, the first ones those that come last.
static void assign(const Job *j, const Run *run, const Picks *picks, uint8_t *recompute) {
    Picks left = *picks;
    for (int32_t i = run->from; i < run->to; i++) {
        int32_t c = j->w->s->profile.class_of[i], r = SEARCH_RECOMPUTES - 1;
        while (r > 0 && !left.n[c][r]) r--;
        left.n[c][r]--;
        recompute[i] = (uint8_t)r;
    }
}

static void assign_rank(Job *j, int32_t stage, const int32_t *stages, uint8_t *recompute) {
    Run runs[SEARCH_MOST_CHUNKS];
    Fit fit;
    fill_runs(j, stage, stages, runs);
    rank_extra(j, runs, INFINITY, &fit);
    for (int32_t c = 0; c < j->v; c++) {
        int32_t vector;
        const Vector *v = vector_of(j, &runs[c], &vector);
        Picks picks = { 0 };
        for (int32_t k = 0; k < SEARCH_MOST_CLASSES; k++) picks.n[k][j->w->table->base[k]] = v->counts[k];
        if (fit.limit >= 0) frontiers_pick(frontiers_at(j, runs[c].stage), fit.limit, vector, fit.ways[c], &picks);
        assign(j, &runs[c], &picks, recompute);
    }
}

bool split_weigh(const Weights *w, SearchLayout *layout) {
    Job j = { .w = w, .pp = w->point.choice.pp, .v = w->point.chunks };
    double most = 0, sum = 0;
    layout->peak_bytes = 0;
    for (int32_t stage = 0; stage < j.pp; stage++) {
        Run runs[SEARCH_MOST_CHUNKS];
        fill_runs(&j, stage, layout->stages, runs);
        double transient, extra = 0, bytes = fixed_bytes(&j, runs, &transient);
        for (int32_t c = 0; c < j.v; c++) {
            for (int32_t i = runs[c].from; i < runs[c].to; i++) {
                int32_t class = w->s->profile.class_of[i], r = layout->recompute[i];
                const SearchLayer *layer = &w->table->parts[class];
                if (!(layer->seconds[r] < INFINITY)) return false;
                extra += layer->seconds[r] - layer->seconds[w->table->base[class]];
                bytes += flight_bytes(&w->point, &w->flights[runs[c].stage], layer, r);
                transient = fmax(transient, layer->transient_bytes[r]);
            }
        }
        layout->stage_bytes[stage] = fmax(bytes + transient, end_bytes(&j, runs)) + w->table->rest.fixed_bytes;
        layout->peak_bytes = fmax(layout->peak_bytes, layout->stage_bytes[stage]);
        most = fmax(most, work_of(&j, runs) + w->slope * extra);
        sum += extra;
    }
    layout->step_s = seconds_of(&j, most, sum);
    return true;
}

bool split_best(const Weights *w, double limit, Arena *arena, SearchLayout *out) {
    Arena *scratch = arena_create();
    Job j = start(w, limit, scratch);
    int32_t *stages = ARENA_ARRAY(scratch, int32_t, j.pp * j.v);
    double seconds;
    bool found = j.v > 1 ? best_interleaved(&j, stages, &seconds) : best_plain(&j, stages, &seconds);
    found = found && seconds < limit;
    if (found) {
        *out = make_layout(w, arena);
        memcpy(out->stages, stages, sizeof *stages * (size_t)(j.pp * j.v));
        for (int32_t stage = 0; stage < j.pp; stage++) assign_rank(&j, stage, stages, out->recompute);
        split_weigh(w, out);
        out->step_s = seconds;
    }
    arena_destroy(scratch);
    return found;
}

/* The smallest -------------------------------------------------------------------------------------------- */

// Of all layers of a class.
static double kept_bytes(const Job *j, const Run *runs, int32_t class, int recompute) {
    double bytes = 0;
    for (int32_t c = 0; c < j->v; c++) {
        int32_t number;
        bytes += vector_of(j, &runs[c], &number)->counts[class] *
                 flight_bytes(&j->w->point, &j->w->flights[runs[c].stage], &j->w->table->parts[class], recompute);
    }
    return bytes;
}

static bool has_class(const Job *j, const Run *runs, int32_t class) {
    int32_t number;
    for (int32_t c = 0; c < j->v; c++)
        if (vector_of(j, &runs[c], &number)->counts[class]) return true;
    return false;
}

// Of the recomputes within `limit` transient bytes the one that keeps least of a rank's layers of a class; INFINITY:
// there is none.
static double least_kept(const Job *j, const Run *runs, int32_t class, double limit, uint8_t *pick) {
    const SearchLayer *layer = &j->w->table->parts[class];
    double least = INFINITY;
    for (int r = 0; r < SEARCH_RECOMPUTES; r++) {
        if (!(layer->seconds[r] < INFINITY) || layer->transient_bytes[r] > limit) continue;
        double kept = kept_bytes(j, runs, class, r);
        if (kept >= least) continue;
        least = kept;
        *pick = (uint8_t)r;
    }
    return least;
}

// Least bytes within the limit, `fixed` and `transient` included.
static double bytes_within(const Job *j, const Run *runs, double limit, double fixed, double transient,
                           uint8_t *picks) {
    double bytes = fixed;
    for (int32_t k = 0; k < j->w->s->profile.n_classes; k++) {
        if (!has_class(j, runs, k)) continue;
        double kept = least_kept(j, runs, k, limit, &picks[k]);
        bytes += kept;
        if (kept < INFINITY) transient = fmax(transient, j->w->table->parts[k].transient_bytes[picks[k]]);
    }
    return bytes + transient;
}

// The recompute of every class with which a rank that has runs as these needs least: of each limit of
// transient bytes, the least saved within it.
static double least_bytes(const Job *j, const Run *runs, uint8_t *picks) {
    const Weights *w = j->w;
    double transient, fixed = fixed_bytes(j, runs, &transient), best = INFINITY;
    for (int32_t k = 0; k < w->s->profile.n_classes; k++) {
        const SearchLayer *by = &w->table->parts[k];
        for (int r = 0; r < SEARCH_RECOMPUTES; r++) {
            if (!(by->seconds[r] < INFINITY)) continue;
            uint8_t with[SEARCH_MOST_CLASSES] = { 0 };
            double bytes = bytes_within(j, runs, by->transient_bytes[r], fixed, transient, with);
            if (!(bytes < best)) continue;
            best = bytes;
            memcpy(picks, with, sizeof with);
        }
    }
    return fmax(best, end_bytes(j, runs)) + w->table->rest.fixed_bytes;
}

// Fewest bytes of the fullest of stages up to `stage`, of the first `to` layers.
static Cell smallest_cell(const Job *j, const Cell *before, int32_t stage, int32_t to) {
    Cell best = { .most = INFINITY, .from = -1 };
    for (int32_t from = stage; from < to && (stage || !from); from++) {
        if (stage && before[from].from < 0) continue;
        Run run = plain_run(j, stage, from, to);
        uint8_t picks[SEARCH_MOST_CLASSES];
        double bytes = least_bytes(j, &run, picks);
        if (stage) bytes = fmax(bytes, before[from].most);
        if (bytes < best.most) best = (Cell){ .most = bytes, .from = from };
    }
    return best;
}

static void smallest_plain(const Job *j, int32_t *stages) {
    int32_t width = j->n_layers + 1;
    Arena *scratch = arena_create();
    Cell *cells = ARENA_ARRAY(scratch, Cell, (int64_t)j->pp * width);
    for (int32_t stage = 0; stage < j->pp; stage++) {
        Cell *row = cells + (int64_t)stage * width, *before = stage ? row - width : NULL;
        for (int32_t to = 0; to < width; to++)
            row[to] = can_end(j, stage, to) ? smallest_cell(j, before, stage, to) : (Cell){ .from = -1 };
    }
    read_cells(j, cells, stages);
    arena_destroy(scratch);
}

static double peak_of(const Job *j, const int32_t *stages, uint8_t *recompute) {
    double peak = 0;
    for (int32_t stage = 0; stage < j->pp; stage++) {
        Run runs[SEARCH_MOST_CHUNKS];
        uint8_t picks[SEARCH_MOST_CLASSES];
        fill_runs(j, stage, stages, runs);
        peak = fmax(peak, least_bytes(j, runs, picks));
        for (int32_t c = 0; c < j->v; c++)
            for (int32_t i = runs[c].from; i < runs[c].to; i++)
                recompute[i] = picks[j->w->s->profile.class_of[i]];
    }
    return peak;
}

double split_smallest(const Weights *w, Arena *arena, SearchLayout *out) {
    Job j = { .w = w, .pp = w->point.choice.pp, .v = w->point.chunks, .n_layers = w->s->profile.n_layers };
    *out = make_layout(w, arena);
    int32_t n = j.pp * j.v;
    const Splits *splits = j.v > 1 ? space_splits(w->s, j.pp, j.v) : NULL;
    if (!splits) smallest_plain(&j, out->stages);
    double best = INFINITY;
    for (int32_t i = 0; splits && i < splits->n; i++) {
        const int32_t *trial = splits->stages + (int64_t)i * n;
        double peak = peak_of(&j, trial, out->recompute);
        if (!(peak < best)) continue;
        best = peak;
        memcpy(out->stages, trial, sizeof *trial * (size_t)n);
    }
    best = peak_of(&j, out->stages, out->recompute);
    split_weigh(w, out);
    return best;
}
