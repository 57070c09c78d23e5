// SPDX-License-Identifier: Apache-2.0
// What no layout of a point can beat. Two bounds, the second dearer and tighter:
//
// 1. Work divided over ranks evenly, everything with its fastest recompute, memory unlimited.
// 2. The least M for which a greedy cut into stages succeeds, each stage taking layers while its time is
//    at most M and its bytes can fit. A stage that would not fit with the fastest recomputes pays for
//    bytes over at the best rate that any recompute of any layer has. What a stage may take only grows
//    with fewer layers and with later stages, which hold fewer microbatches, so taking the most is right.
#include <float.h>

#include "compiler/search/private.h"

static double fill_of(const SearchPoint *point, const SearchLayer *layer, double seconds) {
    return point->schedule == SCHEDULE_ZERO_BUBBLE ? fmax(0, seconds - 2 * layer->wgrad_s) : seconds;
}

// Work of every part; returns what all layers and the rest add beside.
static double fill_work(const Search *s, const Table *t, const SearchPoint *point, double *work) {
    int32_t classes = s->profile.n_classes;
    double m = point->microbatches, v = point->chunks, fills = 0;
    for (int32_t i = 0; i < classes + 2; i++) {
        const SearchLayer *layer = &t->parts[i];
        double seconds = layer->seconds[i < classes ? t->base[i] : 0];
        double fill = fill_of(point, layer, seconds);
        work[i] = m * seconds - fill / v + layer->step_s;
        fills += fill * (i < classes ? s->per_class[i] : 1);
    }
    double talk = 2.0 * (point->choice.pp - 1) * t->rest.send_s;
    if (point->choice.pp > 1) talk += m * v * t->rest.sent_s;
    return fills / v + talk;
}

// Ranks that share cores: none is faster than alone, and all together work as long as they would apart.
static void fill_sharing(Weights *w, const Search *s, const Table *t, const SearchPoint *point) {
    int32_t classes = s->profile.n_classes;
    w->sharing = fmax(s->profile.sharing, 1);
    w->even = 0;
    for (int32_t i = 0; i < classes + 2 && w->sharing > 1; i++) {
        const SearchLayer *layer = &t->parts[i];
        double busy = point->microbatches * layer->seconds[i < classes ? t->base[i] : 0] + layer->step_s;
        w->even += busy * (i < classes ? s->per_class[i] : 1) / point->choice.pp;
    }
}

double weights_step_s(const Weights *w, double seconds, double extra) {
    if (w->sharing <= 1) return seconds;
    return fmax(seconds / w->sharing, w->even + w->point.microbatches * extra / w->point.choice.pp);
}

double weights_most_s(const Weights *w, double limit) {
    return w->sharing <= 1 ? limit : limit * w->sharing * (1 + 1e-12); // for rounding
}

double bound_without_memory(const Search *s, const Table *t, const SearchPoint *point) {
    int32_t classes = s->profile.n_classes;
    double work[SEARCH_MOST_CLASSES + 2], all = 0;
    double constant = fill_work(s, t, point, work);
    for (int32_t i = 0; i < classes + 2; i++) all += work[i] * (i < classes ? s->per_class[i] : 1);
    Weights w = { .point = *point };
    fill_sharing(&w, s, t, point);
    return weights_step_s(&w, all / point->choice.pp + constant, 0);
}

// What layers keep on a virtual stage, and the best rate at which recomputation of any saves that.
static double fill_held(const Weights *w, int32_t stage, Kept *held) {
    const Table *t = w->table;
    const Flight *f = &w->flights[stage];
    double best = 0;
    for (int32_t c = 0; c < w->s->profile.n_classes; c++) {
        const SearchLayer *layer = &t->parts[c];
        held[c] = (Kept){ flight_bytes(&w->point, f, layer, t->base[c]), INFINITY };
        for (int r = 0; r < SEARCH_RECOMPUTES; r++) {
            if (layer->seconds[r] == INFINITY) continue;
            double seconds = layer->seconds[r] - layer->seconds[t->base[c]], bytes = flight_bytes(&w->point, f, layer, r);
            held[c].least = fmin(held[c].least, bytes);
            if (held[c].base > bytes) best = fmax(best, (held[c].base - bytes) / seconds);
        }
    }
    return best;
}

static void fill_flights(Weights *w, Arena *arena) {
    const SearchPoint *point = &w->point;
    int32_t n = point->choice.pp * point->chunks, classes = w->s->profile.n_classes;
    const Flight *flights = space_flights(w->s, point);
    double *rates = ARENA_ARRAY(arena, double, n), *crossings = ARENA_ARRAY(arena, double, n);
    Kept *held = ARENA_ARRAY(arena, Kept, n * classes);
    w->flights = flights;
    w->rates = rates;
    w->held = held;
    w->crossing_bytes = crossings;
    for (int32_t i = 0; i < n; i++) {
        rates[i] = fill_held(w, i, held + i * classes);
        crossings[i] = flights[i].crossings * w->table->rest.boundary_bytes;
    }
}

// The table of a zero bubble's transients.
static const Table *late_table(const Search *s, const Table *t, Arena *arena) {
    Table *late = ARENA_NEW(arena, Table);
    *late = *t;
    for (int32_t i = 0; i < s->profile.n_classes + 2; i++)
        memcpy(late->parts[i].transient_bytes, t->parts[i].late_bytes, sizeof t->parts[i].late_bytes);
    for (int32_t c = 0; c < s->profile.n_classes; c++) {
        late->least_transient[c] = INFINITY;
        for (int r = 0; r < SEARCH_RECOMPUTES; r++)
            if (late->parts[c].seconds[r] < INFINITY)
                late->least_transient[c] = fmin(late->least_transient[c], late->parts[c].transient_bytes[r]);
    }
    return late;
}

void weights_fill(Weights *w, const Search *s, const Table *t, const SearchPoint *point, double memory,
                  Arena *arena) {
    int32_t n = s->profile.n_layers;
    if (point->schedule == SCHEDULE_ZERO_BUBBLE) t = late_table(s, t, arena);
    *w = (Weights){ .s = s, .table = t, .point = *point,
                    .slope = point->microbatches - 1.0 / point->chunks,
                    .memory = memory - t->rest.fixed_bytes };
    w->constant = fill_work(s, t, point, w->work);
    fill_sharing(w, s, t, point);
    fill_flights(w, arena);
    double **sums[] = { &w->sum_work, &w->sum_state, &w->sum_saved, &w->sum_least };
    for (int i = 0; i < COUNT_OF(sums); i++) *sums[i] = ARENA_ARRAY(arena, double, n + 1);
    for (int32_t i = 0; i < n; i++) {
        int32_t c = s->profile.class_of[i];
        const SearchLayer *layer = &t->parts[c];
        w->sum_work[i + 1] = w->sum_work[i] + w->work[c];
        w->sum_state[i + 1] = w->sum_state[i] + layer->state_bytes;
        w->sum_saved[i + 1] = w->sum_saved[i] + layer->saved_bytes[t->base[c]];
        w->sum_least[i + 1] = w->sum_least[i] + t->least_saved[c];
    }
}

/* What a rank needs at least ----------------------------------------------------------------------- */

typedef struct Need {
    double work, fixed;      // fixed: bytes that no recompute changes
    double saved, least;     // of all in flight: with the fastest recomputes, with the most
    double transient;        // least
    double state, update;    // of the end of a step
    double rate;             // bytes that a second of recomputation saves at most
} Need;

static void need_part(const Weights *w, Need *need, int32_t part, int32_t stage) {
    const SearchLayer *layer = &w->table->parts[part];
    need->work += w->work[part];
    need->state += layer->state_bytes;
    need->update = fmax(need->update, layer->update_bytes);
    need->fixed += layer->state_bytes + flight_bytes(&w->point, &w->flights[stage], layer, 0);
    need->transient = fmax(need->transient, layer->transient_bytes[0]);
}

// What virtual stage `stage` adds beside its layers.
static void need_ends(const Weights *w, Need *need, int32_t stage) {
    if (stage == 0) need_part(w, need, w->s->profile.n_classes, stage);
    need->fixed += w->crossing_bytes[stage];
    if (stage == w->point.choice.pp * w->point.chunks - 1)
        need_part(w, need, w->s->profile.n_classes + 1, stage);
    need->rate = fmax(need->rate, w->rates[stage]);
}

static inline void need_layer(const Weights *w, Need *need, int32_t class, int32_t stage) {
    const Table *t = w->table;
    const Kept *held = &w->held[stage * w->s->profile.n_classes + class];
    need->work += w->work[class];
    need->fixed += t->parts[class].state_bytes;
    need->state += t->parts[class].state_bytes;
    if (t->parts[class].update_bytes > need->update) need->update = t->parts[class].update_bytes;
    need->saved += held->base;
    need->least += held->least;
    if (t->least_transient[class] > need->transient) need->transient = t->least_transient[class];
}

// Least time of the rank; INFINITY: it does not fit. Rounding must not make a bound of what is none.
static inline double need_time(const Weights *w, const Need *need) {
    double memory = w->memory + 1e-9 * fabs(w->memory), room = memory - need->fixed - need->transient;
    if (need->least > room || need->state + need->update > memory) return INFINITY;
    if (need->saved <= room) return need->work;
    return need->work + w->slope * (need->saved - room) / need->rate;
}

/* Plain schedules ------------------------------------------------------------------------------------ */

// Whether stages of at most `most` seconds can hold all layers.
static bool greedy(const Weights *w, double most) {
    const uint8_t *class_of = w->s->profile.class_of;
    int32_t pp = w->point.choice.pp, n = w->s->profile.n_layers, at = 0;
    for (int32_t stage = 0; stage < pp; stage++) {
        bool last = stage == pp - 1;
        Need need = { 0 };
        need_ends(w, &need, stage);
        for (int32_t end = last ? n : n - 1; at < end; at++) {
            Need more = need;
            need_layer(w, &more, class_of[at], stage);
            if (!(need_time(w, &more) <= most)) break;
            need = more;
        }
    }
    return at == n;
}

// The least M to a thousandth, from below; from `limit` on only that it is no less.
static double bound_plain(const Weights *w, double limit) {
    double all = w->work[w->s->profile.n_classes] + w->work[w->s->profile.n_classes + 1];
    for (int32_t c = 0; c < w->s->profile.n_classes; c++) all += w->work[c] * w->s->per_class[c];
    double low = all / w->point.choice.pp * (1 - 1e-9), high = low;
    if (!greedy(w, fmin(limit, DBL_MAX))) return greedy(w, DBL_MAX) ? limit : INFINITY;
    while (!greedy(w, high)) low = high, high *= 1.1;
    while (high - low > 1e-3 * low) {
        double middle = 0.5 * (low + high);
        if (greedy(w, middle)) high = middle;
        else low = middle;
    }
    return low;
}

/* Interleaved schedules ------------------------------------------------------------------------------ */

double bound_split(const Weights *w, const int32_t *stages) {
    int32_t pp = w->point.choice.pp, n = pp * w->point.chunks;
    Need needs[SEARCH_MOST_STAGES];
    double most = 0;
    memset(needs, 0, sizeof *needs * (size_t)pp);
    const uint8_t *class = w->s->profile.class_of;
    for (int32_t i = 0; i < n; i++) {
        Need *need = &needs[i % pp];
        need_ends(w, need, i);
        for (int32_t k = 0; k < stages[i]; k++) need_layer(w, need, *class++, i);
    }
    for (int32_t stage = 0; stage < pp; stage++) most = fmax(most, need_time(w, &needs[stage]));
    return most;
}

static double bound_interleaved(const Weights *w) {
    const Splits *splits = space_splits(w->s, w->point.choice.pp, w->point.chunks);
    double best = INFINITY;
    for (int32_t i = 0; i < splits->n; i++)
        best = fmin(best, bound_split(w, splits->stages + (int64_t)i * splits->pp * splits->chunks));
    return best;
}

double bound_tight(const Weights *w, double limit) {
    double most = weights_most_s(w, limit) - w->constant;
    return weights_step_s(w, (w->point.chunks > 1 ? bound_interleaved(w) : bound_plain(w, most)) + w->constant, 0);
}
