// SPDX-License-Identifier: Apache-2.0
// What recomputation can do for a run of layers: all ways that are not worse in both seconds and bytes.
//
// Layers of a class are alike, so a way is how many of them take each recompute. Frontiers are sums: of n
// layers that of n - 1 plus one layer, of a vector that of its rest plus that of its last class. A part of
// a way on a frontier is on the frontier of its part, so dropping what is worse at each sum loses nothing.
// The largest transient counts once per rank: a frontier is made for each limit that some recompute
// reaches, from the recomputes that stay within it.
#include <stdlib.h>

#include "compiler/search/private.h"

typedef struct Pick { uint16_t n[SEARCH_RECOMPUTES]; } Pick;

typedef struct ClassFrontier {
    Frontier frontier;
    Pick *picks;
} ClassFrontier;

struct Frontiers {
    const Search *s;
    const Table *table;
    double bytes[SEARCH_MOST_CLASSES][SEARCH_RECOMPUTES];
    Arena *arena;
    double *limits; int32_t n_limits;
    ClassFrontier **classes; // [limit * classes + class]: [0 .. layers of the class]
    int32_t *made;           // [the same]: how many of them
    Frontier *vectors;       // [limit * vectors + vector]
    Way *scratch; uint32_t cap_scratch;
};

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

Frontiers *frontiers_create(const Weights *w, int32_t stage, Arena *arena) {
    Frontiers *f = ARENA_NEW(arena, Frontiers);
    const Search *s = w->s;
    const Table *table = w->table;
    bool late = w->point.schedule == SCHEDULE_ZERO_BUBBLE;
    int32_t classes = s->profile.n_classes;
    *f = (Frontiers){ .s = s, .table = table, .arena = arena };
    for (int32_t c = 0; c < classes; c++)
        for (int r = 0; r < SEARCH_RECOMPUTES; r++)
            f->bytes[c][r] = late ? flight_bytes(&w->point, &w->flights[stage], &table->parts[c], r)
                                  : table->parts[c].saved_bytes[r];
    f->limits = ARENA_ARRAY(arena, double, classes * SEARCH_RECOMPUTES + 1);
    int32_t n = 0;
    for (int32_t c = 0; c < classes; c++)
        for (int r = 0; r < SEARCH_RECOMPUTES; r++)
            if (table->parts[c].seconds[r] < INFINITY) f->limits[n++] = table->parts[c].transient_bytes[r];
    qsort(f->limits, (size_t)n, sizeof *f->limits, compare_doubles);
    for (int32_t i = 0; i < n; i++)
        if (!i || f->limits[i] > f->limits[f->n_limits - 1]) f->limits[f->n_limits++] = f->limits[i];
    f->classes = ARENA_ARRAY(arena, ClassFrontier *, f->n_limits * classes);
    f->made = ARENA_ARRAY(arena, int32_t, f->n_limits * classes);
    f->vectors = ARENA_ARRAY(arena, Frontier, (int64_t)f->n_limits * s->vectors.n);
    return f;
}

int32_t frontiers_limits(const Frontiers *f, const double **limits) {
    *limits = f->limits;
    return f->n_limits;
}

/* Dropping what is worse --------------------------------------------------------------------------- */

// Order: fewer seconds first, of equal ones fewer bytes; the rest makes it one order.
static inline bool comes_first(const Way *x, const Way *y) {
    if (x->extra_s != y->extra_s) return x->extra_s < y->extra_s;
    if (x->saved_bytes != y->saved_bytes) return x->saved_bytes < y->saved_bytes;
    return x->rest != y->rest ? x->rest < y->rest : x->mine < y->mine;
}

static uint32_t end_of_run(const Way *ways, uint32_t from, uint32_t n) {
    uint32_t to = from + 1;
    while (to < n && !comes_first(&ways[to], &ways[to - 1])) to++;
    return to < n ? to : n;
}

// Merges neighbouring runs in order until there is one: sums of frontiers are a run for each way of one of
// the two. `other` has room for as many. Where the result lies is returned.
static Way *sort_ways(Way *ways, Way *other, uint32_t n) {
    while (n && end_of_run(ways, 0, n) < n) {
        for (uint32_t at = 0; at < n;) {
            uint32_t middle = end_of_run(ways, at, n), end = middle < n ? end_of_run(ways, middle, n) : n;
            for (uint32_t a = at, b = middle; at < end; at++)
                other[at] = b >= end || (a < middle && comes_first(&ways[a], &ways[b])) ? ways[a++] : ways[b++];
        }
        Way *swap = ways;
        ways = other;
        other = swap;
    }
    return ways;
}

// `other`: room for as many, for sorting.
static Frontier keep_best(Arena *arena, Way *ways, Way *other, uint32_t n) {
    ways = sort_ways(ways, other, n);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!kept || ways[i].saved_bytes < ways[kept - 1].saved_bytes) ways[kept++] = ways[i];
    Way *at = ARENA_ARRAY(arena, Way, kept + 1);
    memcpy(at, ways, sizeof *at * kept);
    return (Frontier){ at, kept };
}

// Room for n, and in the second half of what there is for n more.
static Way *scratch(Frontiers *f, uint32_t n) {
    if (n > f->cap_scratch / 2) {
        f->cap_scratch = n * 4;
        f->scratch = ARENA_ARRAY(f->arena, Way, f->cap_scratch);
    }
    return f->scratch;
}

/* Of layers of one class ----------------------------------------------------------------------------- */

// From n - 1 layers to n.
static void add_layer(Frontiers *f, double limit, int32_t class, const ClassFrontier *from,
                      ClassFrontier *to) {
    const SearchLayer *layer = &f->table->parts[class];
    double base_s = layer->seconds[f->table->base[class]];
    Way *ways = scratch(f, from->frontier.n * SEARCH_RECOMPUTES);
    uint32_t n = 0;
    for (uint32_t i = 0; i < from->frontier.n; i++) {
        for (int r = 0; r < SEARCH_RECOMPUTES; r++) {
            if (!(layer->seconds[r] < INFINITY) || layer->transient_bytes[r] > limit) continue;
            const Way *way = &from->frontier.at[i];
            ways[n++] = (Way){ way->extra_s + (layer->seconds[r] - base_s),
                               way->saved_bytes + f->bytes[class][r], i, (uint32_t)r };
        }
    }
    to->frontier = keep_best(f->arena, ways, ways + f->cap_scratch / 2, n);
    to->picks = ARENA_ARRAY(f->arena, Pick, to->frontier.n);
    for (uint32_t i = 0; i < to->frontier.n; i++) {
        Way *way = &to->frontier.at[i];
        to->picks[i] = from->picks[way->rest];
        to->picks[i].n[way->mine]++;
        *way = (Way){ way->extra_s, way->saved_bytes, 0, i };
    }
}

static const ClassFrontier *of_class(Frontiers *f, int32_t limit, int32_t class, int32_t count) {
    int32_t at = limit * f->s->profile.n_classes + class;
    if (!f->classes[at]) {
        f->classes[at] = ARENA_ARRAY(f->arena, ClassFrontier, f->s->per_class[class] + 1);
        f->classes[at][0] = (ClassFrontier){ { ARENA_NEW(f->arena, Way), 1 }, ARENA_NEW(f->arena, Pick) };
    }
    for (; f->made[at] < count; f->made[at]++)
        add_layer(f, f->limits[limit], class, &f->classes[at][f->made[at]], &f->classes[at][f->made[at] + 1]);
    return &f->classes[at][count];
}

/* Of vectors ------------------------------------------------------------------------------------------ */

const Frontier *frontiers_of(Frontiers *f, int32_t limit, int32_t vector) {
    Frontier *out = &f->vectors[(int64_t)limit * f->s->vectors.n + vector];
    if (out->at) return out;
    const Vector *v = &f->s->vectors.at[vector];
    const Frontier *mine = &of_class(f, limit, v->class, v->count)->frontier;
    if (v->rest < 0) return *out = *mine, out;
    const Frontier *rest = frontiers_of(f, limit, v->rest);
    Way *ways = scratch(f, rest->n * mine->n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < rest->n; i++) {
        for (uint32_t k = 0; k < mine->n; k++)
            ways[n++] = (Way){ rest->at[i].extra_s + mine->at[k].extra_s,
                               rest->at[i].saved_bytes + mine->at[k].saved_bytes, i, k };
    }
    *out = keep_best(f->arena, ways, ways + f->cap_scratch / 2, n);
    return out;
}

Frontier frontier_sum(const Frontier *before, const Frontier *more, double flight, double room,
                      double most_s, Arena *arena) {
    static const Way nothing = { 0 };
    const Frontier none = { (Way *)(uintptr_t)&nothing, 1 };
    if (!before) before = &none;
    int64_t most = (int64_t)before->n * more->n + 1;
    Way *ways = ARENA_ARRAY(arena, Way, 2 * most);
    uint32_t n = 0;
    for (uint32_t i = 0; i < before->n; i++) {
        for (uint32_t k = 0; k < more->n; k++) {
            double saved = before->at[i].saved_bytes + flight * more->at[k].saved_bytes;
            double extra = before->at[i].extra_s + more->at[k].extra_s;
            if (extra > most_s) break; // of the later ones too
            if (saved <= room) ways[n++] = (Way){ extra, saved, i, k };
        }
    }
    return keep_best(arena, ways, ways + most, n);
}

void frontiers_pick(Frontiers *f, int32_t limit, int32_t vector, uint32_t way, Picks *out) {
    memset(out, 0, sizeof *out);
    for (; vector >= 0; vector = f->s->vectors.at[vector].rest) {
        const Vector *v = &f->s->vectors.at[vector];
        const Way *w = &frontiers_of(f, limit, vector)->at[way];
        memcpy(out->n[v->class], of_class(f, limit, v->class, v->count)->picks[w->mine].n,
               sizeof out->n[v->class]);
        way = w->rest;
    }
}
