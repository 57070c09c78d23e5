// SPDX-License-Identifier: Apache-2.0
#include "tests/search/brute.h"

#include <math.h>

#include "compiler/search/private.h"

typedef struct Weigher {
    const MadeUp *m;
    double memory;
    SearchLayer layers[8], before, after;
    SearchRest rest;
    Flight flights[64]; // of virtual stages: test_parts.c compares them with the orders themselves
    BrutePoint *at;
} Weigher;

/* One layout -------------------------------------------------------------------------------------- */

static double fill(const Weigher *w, double seconds, const SearchLayer *layer) {
    if (w->at->point.schedule != SCHEDULE_ZERO_BUBBLE) return seconds;
    return seconds > 2 * layer->wgrad_s ? seconds - 2 * layer->wgrad_s : 0;
}

// Zero bubble: slots that have what is saved and then what waits, or what is both beside what is one of them.
static double kept(const Weigher *w, const Flight *f, const SearchLayer *l, int r) {
    double saved = l->saved_bytes[r], waits = l->wait_bytes[r], both = l->both_bytes[r];
    if (w->at->point.schedule != SCHEDULE_ZERO_BUBBLE) return f->saved * saved;
    double one = f->slots * (saved > waits ? saved : waits);
    double apart = f->slots * both + f->saved * (saved - both) + f->waits * (waits - both);
    return one < apart ? one : apart;
}

// Seconds: a rank works on every microbatch, on what is due once a step, and waits while one microbatch
// passes the others. The wait in zero bubble is what the fastest recompute leaves, and all that is
// computed again.
static double weigh_layout(Weigher *w, const int32_t *stages, const uint8_t *recompute, double *peak) {
    const SearchPoint *p = &w->at->point;
    int32_t pp = p->choice.pp, v = p->chunks, layers = w->m->profile.n_layers;
    double rank_s[64] = { 0 }, rank_fill[64] = { 0 }, bytes[64], most[64] = { 0 }, slowest = 0, fills = 0;
    double state[64], update[64] = { 0 };
    for (int32_t r = 0; r < pp; r++) bytes[r] = state[r] = w->rest.fixed_bytes;
    for (int32_t vs = 0, layer = 0; vs < pp * v; vs++) {
        int32_t rank = vs % pp;
        bytes[rank] += w->flights[vs].crossings * w->rest.boundary_bytes;
        for (int32_t i = -1; i <= stages[vs]; i++) {
            bool first = vs == 0 && i < 0, last = vs == pp * v - 1 && i == stages[vs];
            if ((i < 0 && !first) || (i == stages[vs] && !last)) continue;
            const SearchLayer *l = first ? &w->before : last ? &w->after : &w->layers[layer];
            int r = first || last ? 0 : recompute[layer];
            double fastest = l->seconds[0];
            for (int k = 1; k < 3 && !first && !last; k++)
                if (l->seconds[k] < fastest) fastest = l->seconds[k];
            rank_s[rank] += p->microbatches * l->seconds[r] + l->step_s;
            rank_fill[rank] += (fill(w, fastest, l) + l->seconds[r] - fastest) / v;
            state[rank] += l->state_bytes;
            if (l->update_bytes > update[rank]) update[rank] = l->update_bytes;
            bytes[rank] += l->state_bytes + kept(w, &w->flights[vs], l, r);
            double transient = p->schedule == SCHEDULE_ZERO_BUBBLE ? l->late_bytes[r] : l->transient_bytes[r];
            if (transient > most[rank]) most[rank] = transient;
            if (!first && !last) layer++;
        }
        (void)layers;
    }
    for (int32_t r = 0; r < pp; r++) fills += rank_fill[r];
    *peak = 0;
    for (int32_t r = 0; r < pp; r++) {
        double waits = fills - rank_fill[r] + (pp > 1 ? p->microbatches * v * w->rest.sent_s : 0);
        if (rank_s[r] + waits > slowest) slowest = rank_s[r] + waits;
        if (bytes[r] + most[r] > *peak) *peak = bytes[r] + most[r];
        if (state[r] + update[r] > *peak) *peak = state[r] + update[r];
    }
    double step = slowest + 2 * (pp - 1) * w->rest.send_s, sharing = w->m->profile.sharing, mean = 0;
    if (!(sharing > 1)) return step;
    // Ranks that share cores: all have the work of all, and none is faster than with a core of its own.
    for (int32_t r = 0; r < pp; r++) mean += rank_s[r] / pp;
    return step / sharing > mean ? step / sharing : mean;
}

/* All of a point ------------------------------------------------------------------------------------ */

static void try_recomputes(Weigher *w, const int32_t *stages) {
    int32_t layers = w->m->profile.n_layers;
    uint8_t recompute[8] = { 0 };
    for (;;) {
        bool can = true;
        for (int32_t i = 0; i < layers; i++) can &= w->layers[i].seconds[recompute[i]] < INFINITY;
        if (can) {
            double peak, seconds = weigh_layout(w, stages, recompute, &peak);
            w->at->layouts++;
            if (peak < w->at->least_bytes) w->at->least_bytes = peak;
            w->at->fits += peak <= w->memory;
            if (peak <= w->memory && seconds < w->at->seconds) {
                w->at->seconds = seconds;
                memcpy(w->at->stages, stages, sizeof *stages * (size_t)(w->at->point.choice.pp *
                                                                        w->at->point.chunks));
                memcpy(w->at->recompute, recompute, sizeof recompute);
            }
        }
        int32_t i = 0;
        while (i < layers && ++recompute[i] == 3) recompute[i++] = 0;
        if (i == layers) return;
    }
}

// Even but for up to three layers less in the first and the last.
static bool is_near_even(const int32_t *stages, int32_t n, int32_t layers) {
    for (int32_t first = 0; first <= SEARCH_MOST_GIVEN; first++) {
        for (int32_t last = 0; last <= SEARCH_MOST_GIVEN; last++) {
            int32_t all = layers + first + last;
            bool same = true;
            for (int32_t i = 0; i < n; i++) {
                int32_t even = all / n + (i < all % n) - (i ? 0 : first) - (i == n - 1 ? last : 0);
                same &= stages[i] == even;
            }
            if (same) return true;
        }
    }
    return false;
}

static void try_splits(Weigher *w, int32_t *stages, int32_t at, int32_t left) {
    int32_t n = w->at->point.choice.pp * w->at->point.chunks;
    if (at == n) {
        if (left == 0 && (w->at->point.chunks == 1 || is_near_even(stages, n, w->m->profile.n_layers)))
            try_recomputes(w, stages);
        return;
    }
    for (int32_t k = 1; k <= left; k++) {
        stages[at] = k;
        try_splits(w, stages, at + 1, left - k);
    }
}

// False: the costs know of no such layout.
static bool ask(Weigher *w, const SearchProfile *profile, const SearchChoice *choice) {
    bool known = profile->rest(profile->user, choice, &w->rest);
    for (int32_t i = 0; i < profile->n_layers; i++) {
        known &= profile->part(profile->user, choice, profile->class_of[i], &w->layers[i]);
        for (int r = 0; r < 3 && w->m->space.recomputes; r++)
            if (!(w->m->space.recomputes & 1 << r)) w->layers[i].seconds[r] = INFINITY;
    }
    known &= profile->part(profile->user, choice, profile->n_classes, &w->before);
    return profile->part(profile->user, choice, profile->n_classes + 1, &w->after) && known;
}

static void weigh_point(Brute *out, const MadeUp *m, double memory, const SearchPoint *p, Arena *arena) {
    BrutePoint *at = ARENA_PUSH(arena, out->points, out->n, out->cap);
    *at = (BrutePoint){ .point = *p, .seconds = INFINITY, .least_bytes = INFINITY };
    Weigher w = { .m = m, .memory = memory, .at = at };
    if (!ask(&w, &m->profile, &p->choice)) {
        out->n--;
        return;
    }
    flight_fill(p, w.flights);
    int32_t stages[64];
    try_splits(&w, stages, 0, m->profile.n_layers);
    out->layouts += at->layouts;
    out->fits += at->fits;
    if (at->seconds < INFINITY && (out->best < 0 || at->seconds < out->points[out->best].seconds))
        out->best = (int32_t)out->n - 1;
}

/* All points ------------------------------------------------------------------------------------------ */

static int lowest(uint8_t set) {
    int i = 0;
    while (set && !(set >> i & 1)) i++;
    return i;
}

static bool in(uint8_t set, int value) {
    return !set || (set >> value & 1);
}

// A field that makes no difference has its first value only.
static bool is_told_once(const MadeUp *m, const SearchChoice *c) {
    const SearchSpace *s = &m->space;
    if (c->dp == 1 && c->params != lowest(s->params)) return false;
    if (c->ep == c->dp && c->expert_params != lowest(s->expert_params)) return false;
    if (c->ep == 1 && (c->transport != lowest(s->transports) || c->capacity != s->capacities[0] ||
                       c->placement))
        return false;
    // Rounds are of rows that are not dropped.
    bool drops = (c->capacity == 0 ? m->profile.capacity : c->capacity) < INFINITY;
    if (c->ep == 1 || drops) {
        if (c->round != s->rounds[0]) return false;
    } else if (c->round >= c->ep) {
        for (int32_t i = 0; s->rounds[i] != c->round; i++)
            if (s->rounds[i] >= c->ep) return false; // room for all, as this one
    }
    // What is off takes longer and, where nothing is gathered, as much memory.
    bool dense = c->params == 1 && c->dp > 1, experts = c->expert_params == 1 && c->dp > c->ep;
    return dense || experts || c->overlap == (s->overlaps >= 2);
}

typedef void (*OnPoint)(void *user, const SearchPoint *p);

static void each_schedule(const MadeUp *m, const SearchChoice *c, int32_t microbatches, OnPoint on, void *user) {
    for (int schedule = 0; schedule < 3; schedule++) {
        for (int32_t v = 1; v <= 16; v++) {
            bool interleaved = schedule == SCHEDULE_INTERLEAVED;
            if (!in(m->space.schedules, schedule) || interleaved != (v > 1)) continue;
            if ((schedule && c->pp == 1) || c->pp * v > m->profile.n_layers) continue;
            if (interleaved && microbatches % c->pp) continue;
            on(user, &(SearchPoint){ *c, (uint8_t)schedule, v, microbatches });
        }
    }
}

static void each_choice(const MadeUp *m, SearchChoice c, int32_t microbatches, OnPoint on, void *user) {
    const SearchSpace *s = &m->space;
    for (int i = 0; i < s->n_precisions * s->n_capacities * s->n_rounds * s->placements * 16; i++) {
        int k = i;
        c.params = k % 2, k /= 2;
        c.expert_params = k % 2, k /= 2;
        c.transport = k % 2, k /= 2;
        c.overlap = k % 2, k /= 2;
        c.precision = s->precisions[k % s->n_precisions], k /= s->n_precisions;
        c.capacity = s->capacities[k % s->n_capacities], k /= s->n_capacities;
        c.round = s->rounds[k % s->n_rounds], k /= s->n_rounds;
        c.placement = (uint8_t)k;
        if (in(s->params, c.params) && in(s->expert_params, c.expert_params) &&
            in(s->transports, c.transport) && in(s->overlaps, c.overlap) && is_told_once(m, &c))
            each_schedule(m, &c, microbatches, on, user);
    }
}

static void each_point(const MadeUp *m, OnPoint on, void *user) {
    const SearchSpace *s = &m->space;
    for (int32_t pp = 1; pp <= m->profile.n_layers; pp++) {
        int32_t dp = (int32_t)(s->ranks / pp);
        if (pp * dp != s->ranks || s->sequences % dp) continue;
        for (int32_t ep = 1; ep <= dp; ep++) {
            if (dp % ep || m->profile.experts[0] % ep) continue;
            for (int32_t b = 1; b <= s->most_microbatch; b++) {
                if (s->sequences / dp % b) continue;
                SearchChoice c = { .pp = pp, .dp = dp, .ep = ep, .microbatch = b };
                each_choice(m, c, (int32_t)(s->sequences / dp / b), on, user);
            }
        }
    }
}

typedef struct Count { const MadeUp *m; double layouts; } Count;

static void count_point(void *user, const SearchPoint *p) {
    Count *c = user;
    int32_t layers = c->m->profile.n_layers, splits = 1;
    for (int32_t i = 1; i < p->choice.pp && p->chunks == 1; i++) splits = splits * (layers - i) / i;
    int offered = c->m->space.recomputes ? __builtin_popcount(c->m->space.recomputes) : 3;
    c->layouts += splits * pow(offered, layers);
}

typedef struct Walk { Brute *out; const MadeUp *m; double memory; Arena *arena; } Walk;

static void take_point(void *user, const SearchPoint *p) {
    Walk *w = user;
    weigh_point(w->out, w->m, w->memory, p, w->arena);
}

bool brute_force(const MadeUp *m, double memory, int64_t most, Arena *arena, Brute *out) {
    *out = (Brute){ .best = -1 };
    Count count = { m, 0 };
    each_point(m, count_point, &count);
    if (count.layouts > (double)most) return false;
    Walk walk = { out, m, memory, arena };
    each_point(m, take_point, &walk);
    return true;
}
