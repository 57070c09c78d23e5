// SPDX-License-Identifier: Apache-2.0
// From a bound to a proof: what none can beat, a first packing, swaps, then branch and bound, each only as far as the
// one before has left something to gain.
#include "compiler/search/pack.h"

#include <math.h>

// Of numbers that are sums in another order.
static const double tiny = 1e-12;

double pack_most(const double *load, int32_t ranks) {
    double most = load[0];
    for (int32_t r = 1; r < ranks; r++) most = fmax(most, load[r]);
    return most;
}

static bool are_whole(const Pack *pack) {
    for (int32_t i = 0; i < pack->n; i++)
        if (pack->x[i] != nearbyint(pack->x[i])) return false;
    return true;
}

/* The bound ------------------------------------------------------------------------------------ */

// Sums of the i largest and of the i smallest, [n + 1] each.
typedef struct Sums { double *largest, *smallest; } Sums;

static Sums sum_up(const Pack *pack, Arena *arena) {
    int32_t n = pack->n;
    Sums sums = { ARENA_ARRAY(arena, double, n + 1), ARENA_ARRAY(arena, double, n + 1) };
    sums.largest[0] = sums.smallest[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        sums.largest[i + 1] = sums.largest[i] + pack->x[i];
        sums.smallest[i + 1] = sums.smallest[i] + pack->x[n - 1 - i];
    }
    return sums;
}

static double bound_of_largest(const Pack *pack, Sums sums, int32_t i) {
    double least = INFINITY;
    for (int32_t j = (i + pack->slots - 1) / pack->slots; j <= pack->ranks && j <= i; j++)
        least = fmin(least, (sums.largest[i] + sums.smallest[j * pack->slots - i]) / j);
    return least;
}

double pack_bound(const Pack *pack, Arena *arena) {
    Sums sums = sum_up(pack, arena);
    double bound = 0;
    for (int32_t i = 1; i <= pack->n; i++) bound = fmax(bound, bound_of_largest(pack, sums, i));
    for (int32_t k = 0; k < pack->slots; k++) {
        int32_t last = k * pack->ranks;
        bound = fmax(bound, sums.largest[last + 1] - sums.largest[last - k] +
                                sums.smallest[pack->slots - k - 1]);
    }
    bound *= 1 - tiny;
    return are_whole(pack) ? ceil(bound) : bound;
}

/* First, and swaps ----------------------------------------------------------------------------- */

void pack_first(Pack *pack, Arena *arena) {
    int32_t *taken = ARENA_ARRAY(arena, int32_t, pack->ranks);
    for (int32_t r = 0; r < pack->ranks; r++) {
        pack->load[r] = 0;
        taken[r] = 0;
    }
    for (int32_t i = 0; i < pack->n; i++) {
        int32_t to = -1;
        for (int32_t r = 0; r < pack->ranks; r++)
            if (taken[r] < pack->slots && (to < 0 || pack->load[r] < pack->load[to])) to = r;
        pack->rank_of[i] = to;
        pack->load[to] += pack->x[i];
        taken[to]++;
    }
    pack->most = pack_most(pack->load, pack->ranks);
}

static int32_t busiest(const Pack *pack) {
    int32_t most = 0;
    for (int32_t r = 1; r < pack->ranks; r++)
        if (pack->load[r] > pack->load[most]) most = r;
    return most;
}

// One swap, the one that leaves the busier of both ranks least; false: none helps.
static bool swap_once(Pack *pack) {
    int32_t from = busiest(pack), a = -1, b = -1;
    double before = pack->load[from], least = before * (1 - tiny);
    for (int32_t i = 0; i < pack->n; i++) {
        if (pack->rank_of[i] != from) continue;
        for (int32_t k = i + 1; k < pack->n; k++) { // smaller ones
            int32_t to = pack->rank_of[k];
            double gain = pack->x[i] - pack->x[k];
            double both = to == from ? before : fmax(before - gain, pack->load[to] + gain);
            if (both < least) least = both, a = i, b = k;
        }
    }
    if (a < 0) return false;
    int32_t to = pack->rank_of[b];
    double gain = pack->x[a] - pack->x[b];
    pack->load[from] -= gain;
    pack->load[to] += gain;
    pack->rank_of[a] = to;
    pack->rank_of[b] = from;
    return true;
}

void pack_swap(Pack *pack, double enough) {
    // Each swap lowers the sorted loads, so this ends; the limit is for numbers that round.
    for (int64_t i = 0; i < (int64_t)pack->n * pack->n; i++) {
        pack->most = pack_most(pack->load, pack->ranks);
        if (pack->most <= enough || !swap_once(pack)) return;
    }
    pack->most = pack_most(pack->load, pack->ranks);
}

/* Branch and bound ----------------------------------------------------------------------------- */

// Loads are placed largest first. What a full rank leaves below the limit is lost, and what all ranks lose
// together is known beforehand: ranks * limit - the sum of all loads.
typedef struct Prover {
    Pack *pack;
    Sums sums;
    double gap;                  // better is by at least so much
    double *load;                // of the packing under way
    int32_t *rank_of, *free;     // places
    int64_t *budget;
    double bound;
    bool done;                   // nothing can be better than what was found
} Prover;

static double limit_of(const Prover *p) {
    return p->pack->most - p->gap;
}

// Whether the loads from i on may fit below the limit. A rank with places gets at most the next ones.
static bool may_fit(const Prover *p, int32_t i) {
    const Pack *pack = p->pack;
    double limit = limit_of(p), spare = limit * pack->ranks - p->sums.largest[pack->n];
    for (int32_t r = 0; r < pack->ranks && spare >= -limit * tiny; r++) {
        double most = p->load[r] + p->sums.largest[i + p->free[r]] - p->sums.largest[i];
        if (most < limit) spare -= limit - most;
    }
    return spare >= -limit * tiny;
}

static void keep(Prover *p) {
    Pack *pack = p->pack;
    if (pack_most(p->load, pack->ranks) >= pack->most) return; // sums too large for the gap
    memcpy(pack->rank_of, p->rank_of, sizeof *p->rank_of * (size_t)pack->n);
    memcpy(pack->load, p->load, sizeof *p->load * (size_t)pack->ranks);
    pack->most = pack_most(pack->load, pack->ranks);
    p->done = pack->most <= p->bound * (1 + tiny);
}

// Ranks from the least on that differ from all before: [ranks], and how many.
static int32_t order_ranks(const Prover *p, double x, int32_t *order) {
    int32_t n = 0;
    double limit = limit_of(p) * (1 + tiny);
    for (int32_t r = 0; r < p->pack->ranks; r++) {
        bool fits = p->free[r] > 0 && p->load[r] + x + p->sums.smallest[p->free[r] - 1] <= limit;
        for (int32_t k = 0; k < n && fits; k++)
            fits = p->load[order[k]] != p->load[r] || p->free[order[k]] != p->free[r];
        if (!fits) continue;
        int32_t at = n++;
        for (; at > 0 && p->load[order[at - 1]] > p->load[r]; at--) order[at] = order[at - 1];
        order[at] = r;
    }
    return n;
}

static void descend(Prover *p, int32_t i, int32_t *orders) {
    const Pack *pack = p->pack;
    if (i == pack->n) {
        keep(p);
        return;
    }
    if (--*p->budget < 0 || !may_fit(p, i)) return;
    double x = pack->x[i];
    int32_t *order = orders + (int64_t)i * pack->ranks, n = order_ranks(p, x, order);
    for (int32_t k = 0; k < n && *p->budget >= 0 && !p->done; k++) {
        int32_t r = order[k];
        double before = p->load[r];
        // What was found meanwhile may have lowered the limit.
        if (before + x + p->sums.smallest[p->free[r] - 1] > limit_of(p) * (1 + tiny)) continue;
        p->load[r] += x;
        p->free[r]--;
        p->rank_of[i] = r;
        descend(p, i + 1, orders);
        p->load[r] = before;
        p->free[r]++;
    }
}

bool pack_prove(Pack *pack, double bound, int64_t *budget, Arena *arena) {
    enum { DEEPEST = 2000 };
    if (pack->most <= bound * (1 + tiny)) return true;
    if (pack->n > DEEPEST || *budget <= 0) return false;
    Prover p = { .pack = pack,
                 .sums = sum_up(pack, arena),
                 .gap = are_whole(pack) ? 1 : pack->most * 4 * tiny,
                 .load = ARENA_ARRAY(arena, double, pack->ranks),
                 .rank_of = ARENA_ARRAY(arena, int32_t, pack->n),
                 .free = ARENA_ARRAY(arena, int32_t, pack->ranks),
                 .budget = budget,
                 .bound = bound };
    for (int32_t r = 0; r < pack->ranks; r++) {
        p.load[r] = 0;
        p.free[r] = pack->slots;
    }
    descend(&p, 0, ARENA_ARRAY(arena, int32_t, (int64_t)pack->n * pack->ranks));
    return p.done || *budget >= 0;
}
