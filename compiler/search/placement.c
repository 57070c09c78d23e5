// SPDX-License-Identifier: Apache-2.0
// Copies of an expert are items of equal load to pack.h; how many each has is decided before, or searched through where
// that is few.
#include "compiler/search/placement.h"

#include <math.h>
#include <stdlib.h>

#include "compiler/search/pack.h"

// What is placed: copies of experts, the largest first.
typedef struct Item { double x; int32_t expert; } Item;

static int by_load(const void *left, const void *right) {
    const Item *a = left, *b = right;
    if (a->x != b->x) return a->x < b->x ? 1 : -1;
    return (a->expert > b->expert) - (a->expert < b->expert);
}

// One way to divide the experts into copies, packed.
typedef struct Trial {
    const PlacementJob *job;
    int32_t *copies;             // [n]
    Item *items;                 // [places]
    double *x;                   // of the items
    Pack pack;
} Trial;

static Trial trial_create(const PlacementJob *job, Arena *arena) {
    int32_t places = job->ranks * job->slots;
    Trial t = { .job = job,
                .copies = ARENA_ARRAY(arena, int32_t, job->n),
                .items = ARENA_ARRAY(arena, Item, places),
                .x = ARENA_ARRAY(arena, double, places) };
    t.pack = (Pack){ .x = t.x, .n = places, .ranks = job->ranks, .slots = job->slots,
                     .rank_of = ARENA_ARRAY(arena, int32_t, places),
                     .load = ARENA_ARRAY(arena, double, job->ranks) };
    return t;
}

static void trial_items(Trial *t) {
    int32_t n = 0;
    for (int32_t e = 0; e < t->job->n; e++)
        for (int32_t c = 0; c < t->copies[e]; c++)
            t->items[n++] = (Item){ t->job->load[e] / t->copies[e], e };
    qsort(t->items, (size_t)n, sizeof *t->items, by_load);
    for (int32_t i = 0; i < n; i++) t->x[i] = t->items[i].x;
}

static void trial_pack(Trial *t, Arena *arena) {
    pack_first(&t->pack, arena);
    pack_swap(&t->pack, 0);
}

static void trial_copy(Trial *to, const Trial *from) {
    memcpy(to->copies, from->copies, sizeof *to->copies * (size_t)to->job->n);
    memcpy(to->items, from->items, sizeof *to->items * (size_t)to->pack.n);
    memcpy(to->x, from->x, sizeof *to->x * (size_t)to->pack.n);
    memcpy(to->pack.rank_of, from->pack.rank_of, sizeof *to->pack.rank_of * (size_t)to->pack.n);
    memcpy(to->pack.load, from->pack.load, sizeof *to->pack.load * (size_t)to->pack.ranks);
    to->pack.most = from->pack.most;
}

/* Copies --------------------------------------------------------------------------------------- */

void placement_apportion(const double *load, int32_t n, int32_t places, int32_t most, int32_t *copies) {
    for (int32_t e = 0; e < n; e++) copies[e] = 1;
    for (int32_t left = places - n; left > 0; left--) {
        int32_t to = -1;
        for (int32_t e = 0; e < n; e++)
            if (copies[e] < most && (to < 0 || load[e] / copies[e] > load[to] / copies[to])) to = e;
        if (to < 0) return;
        copies[to]++;
    }
}

static bool is_on(const Trial *t, int32_t expert, int32_t rank) {
    for (int32_t i = 0; i < t->pack.n; i++)
        if (t->items[i].expert == expert && t->pack.rank_of[i] == rank) return true;
    return false;
}

// Gives an expert of the busiest rank a copy more and another one less, if that helps; the first that does.
static bool move_copy(Trial *best, Trial *next, int64_t *budget, Arena *arena) {
    const PlacementJob *job = best->job;
    int32_t busy = 0;
    for (int32_t r = 1; r < job->ranks; r++)
        if (best->pack.load[r] > best->pack.load[busy]) busy = r;
    for (int32_t more = 0; more < job->n; more++) {
        if (best->copies[more] == job->ranks || !is_on(best, more, busy)) continue;
        for (int32_t less = 0; less < job->n; less++) {
            if (less == more || best->copies[less] == 1) continue;
            if ((*budget -= best->pack.n) < 0) return false;
            memcpy(next->copies, best->copies, sizeof *next->copies * (size_t)job->n);
            next->copies[more]++;
            next->copies[less]--;
            trial_items(next);
            trial_pack(next, arena);
            if (next->pack.most >= best->pack.most * (1 - 1e-12)) continue;
            trial_copy(best, next);
            return true;
        }
    }
    return false;
}

// The next of all ways to have `places` copies of n experts, each 1 to `most`; false: that was the last.
static bool next_copies(int32_t *copies, int32_t n, int32_t places, int32_t most) {
    for (int32_t e = n - 2; e >= 0; e--) {
        if (++copies[e] <= most) {
            int32_t left = places;
            for (int32_t k = 0; k <= e; k++) left -= copies[k];
            for (int32_t k = e + 1; k < n - 1; k++) left -= copies[k] = 1;
            copies[n - 1] = left;
            if (left >= 1) return true;
        }
        copies[e] = 1;
    }
    return false;
}

// How many ways there are, without `most`.
static double count_copies(int32_t n, int32_t places) {
    double ways = 1;
    for (int32_t i = 1; i < n && ways < 1e9; i++) ways = ways * (places - i) / i;
    return ways;
}

// Every number of copies. Whether all were seen to the end.
static bool prove_copies(Trial *best, Trial *next, double bound, int64_t *budget) {
    enum { FEW = 20000 };
    const PlacementJob *job = best->job;
    int32_t n = job->n, places = best->pack.n;
    if (best->pack.most <= bound * (1 + 1e-12)) return true;
    if (count_copies(n, places) > FEW) return false;
    for (int32_t e = 0; e < n; e++) next->copies[e] = 1;
    next->copies[n - 1] = places - n + 1;
    bool through = true;
    do {
        if (next->copies[n - 1] > job->ranks) continue;
        Arena *scratch = arena_create();
        trial_items(next);
        double least = pack_bound(&next->pack, scratch);
        if (least < best->pack.most * (1 - 1e-12)) {
            trial_pack(next, scratch);
            next->pack.most = fmin(next->pack.most, best->pack.most); // to be beaten
            through &= pack_prove(&next->pack, least, budget, scratch);
            next->pack.most = pack_most(next->pack.load, job->ranks);
            if (next->pack.most < best->pack.most) trial_copy(best, next);
        }
        arena_destroy(scratch);
    } while (next_copies(next->copies, n, places, job->ranks) && *budget > 0);
    return through && *budget > 0;
}

/* Placement ------------------------------------------------------------------------------------ */

static int by_number(const void *left, const void *right) {
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

static void hand_out(const Trial *t, Arena *arena, Placement *out) {
    const PlacementJob *job = t->job;
    int32_t *taken = ARENA_ARRAY(arena, int32_t, job->ranks);
    for (int32_t i = 0; i < t->pack.n; i++) {
        int32_t rank = t->pack.rank_of[i];
        out->held[rank * job->slots + taken[rank]++] = t->items[i].expert;
        out->rank_load[rank] += t->items[i].x;
    }
    for (int32_t r = 0; r < job->ranks; r++)
        qsort(out->held + (int64_t)r * job->slots, (size_t)job->slots, sizeof *out->held, by_number);
    memcpy(out->copies, t->copies, sizeof *out->copies * (size_t)job->n);
    out->most = pack_most(out->rank_load, job->ranks);
}

// What few swaps make of where experts are, if that is as good.
static bool swap_from(Trial *near, const Trial *best) {
    const PlacementJob *job = near->job;
    double enough = best->pack.most * (1 + job->tolerance);
    trial_copy(near, best);
    memset(near->pack.load, 0, sizeof *near->pack.load * (size_t)job->ranks);
    for (int32_t i = 0; i < near->pack.n; i++) {
        near->pack.rank_of[i] = job->owner[near->items[i].expert];
        near->pack.load[near->pack.rank_of[i]] += near->x[i];
    }
    pack_swap(&near->pack, enough);
    return near->pack.most <= enough;
}

void placement_find(const PlacementJob *job, Arena *arena, Placement *out) {
    Arena *scratch = arena_create();
    int32_t places = job->ranks * job->slots;
    int64_t budget = job->budget;
    Trial best = trial_create(job, scratch), next = trial_create(job, scratch);
    *out = (Placement){ .n = job->n, .ranks = job->ranks, .slots = job->slots,
                        .copies = ARENA_ARRAY(arena, int32_t, job->n),
                        .held = ARENA_ARRAY(arena, int32_t, places),
                        .rank_load = ARENA_ARRAY(arena, double, job->ranks) };
    double sum = 0, largest = 0;
    placement_apportion(job->load, job->n, places, job->ranks, best.copies);
    for (int32_t e = 0; e < job->n; e++) {
        sum += job->load[e];
        largest = fmax(largest, job->load[e] / best.copies[e]);
    }
    trial_items(&best);
    trial_pack(&best, scratch);
    out->mean = sum / job->ranks;
    if (places == job->n) {
        out->bound = pack_bound(&best.pack, scratch);
        out->exact = pack_prove(&best.pack, out->bound, &budget, scratch);
    } else {
        out->bound = fmax(out->mean, largest) * (1 - 1e-12);
        for (int64_t left = budget * 10; move_copy(&best, &next, &left, scratch);) {}
        out->exact = prove_copies(&best, &next, out->bound, &budget);
    }
    if (out->exact) out->bound = best.pack.most;
    bool near = job->owner && places == job->n && swap_from(&next, &best);
    hand_out(near ? &next : &best, arena, out);
    out->bound = fmin(out->bound, out->most); // sums of other orders
    out->exact = out->most <= out->bound * (1 + 1e-12);
    arena_destroy(scratch);
}

void placement_owners(const Placement *placement, int32_t *owner) {
    for (int32_t r = 0; r < placement->ranks; r++)
        for (int32_t s = 0; s < placement->slots; s++)
            owner[placement->held[r * placement->slots + s]] = r;
}

double placement_busiest(const double *load, const int32_t *owner, int32_t n, int32_t ranks,
                         double *rank_load) {
    memset(rank_load, 0, sizeof *rank_load * (size_t)ranks);
    for (int32_t e = 0; e < n; e++) rank_load[owner[e]] += load[e];
    return pack_most(rank_load, ranks);
}

/* Numbers of ranks ----------------------------------------------------------------------------- */

// The assignment of rows to columns, both 1 .. n, with the least sum of cost [n + 1][n + 1]: the Hungarian
// method by shortest augmenting paths, O(n^3). row_of [n + 1].
static void assign(const int32_t *cost, int32_t n, int32_t *row_of, Arena *arena) {
    int32_t *u = ARENA_ARRAY(arena, int32_t, n + 1), *v = ARENA_ARRAY(arena, int32_t, n + 1),
            *least = ARENA_ARRAY(arena, int32_t, n + 1), *way = ARENA_ARRAY(arena, int32_t, n + 1);
    bool *used = ARENA_ARRAY(arena, bool, n + 1);
    for (int32_t row = 1; row <= n; row++) {
        row_of[0] = row;
        int32_t column = 0;
        for (int32_t j = 0; j <= n; j++) least[j] = INT32_MAX, used[j] = false;
        do {
            int32_t from = row_of[column], delta = INT32_MAX, next = 0;
            used[column] = true;
            for (int32_t j = 1; j <= n; j++) {
                if (used[j]) continue;
                int32_t reduced = cost[(int64_t)from * (n + 1) + j] - u[from] - v[j];
                if (reduced < least[j]) least[j] = reduced, way[j] = column;
                if (least[j] < delta) delta = least[j], next = j;
            }
            for (int32_t j = 0; j <= n; j++) {
                if (used[j]) u[row_of[j]] += delta, v[j] -= delta;
                else least[j] -= delta;
            }
            column = next;
        } while (row_of[column]);
        for (; column; column = way[column]) row_of[column] = row_of[way[column]];
    }
}

void placement_stay(Placement *placement, const int32_t *owner, Arena *arena) {
    int32_t n = placement->ranks, slots = placement->slots;
    Arena *scratch = arena_create();
    int32_t *cost = ARENA_ARRAY(scratch, int32_t, (int64_t)(n + 1) * (n + 1)),
            *row_of = ARENA_ARRAY(scratch, int32_t, n + 1),
            *held = ARENA_ARRAY(arena, int32_t, (int64_t)n * slots);
    double *load = ARENA_ARRAY(arena, double, n);
    for (int32_t r = 0; r < n; r++)
        for (int32_t s = 0; s < slots; s++)
            cost[(int64_t)(r + 1) * (n + 1) + owner[placement->held[r * slots + s]] + 1]--;
    assign(cost, n, row_of, scratch);
    for (int32_t r = 0; r < n; r++) {
        memcpy(held + (int64_t)r * slots, placement->held + (int64_t)(row_of[r + 1] - 1) * slots,
               sizeof *held * (size_t)slots);
        load[r] = placement->rank_load[row_of[r + 1] - 1];
    }
    placement->held = held;
    placement->rank_load = load;
    arena_destroy(scratch);
}
