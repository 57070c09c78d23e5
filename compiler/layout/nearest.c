// SPDX-License-Identifier: Apache-2.0
// The nearest layout that works, for the hint of one that does not.
//
// Every combination of plausible values of each field is tried against the rules, and the cheapest kept:
// an axis costs the logarithm of the factor by which it changes, so 4 is as far from 8 as from 2; what is
// dropped (a list of stages, a placement) costs a fixed price. The number of ranks weighs most: machines
// are what they are. Axes are tried from the outside in, and a branch whose price alone is too high is
// cut.
#include <math.h>
#include <stdlib.h>

#include "compiler/layout/private.h"

// Prices of a factor of two ...
static const double price_ranks = 8, price_pp = 2, price_dp = 1, price_ep = 2, price_microbatch = 0.5;
// ... and of a change.
static const double price_schedule = 3, price_slots = 1, price_stages = 1, price_capacity = 1,
                    price_recompute = 1, price_placement = 2, price_node = 1;

typedef struct Search {
    const Facts *facts;
    const Layout *from;
    int32_t dp;     // that the price counts from: ep implies as many ranks
    Arena *arena;
    Layout best;
    double price;   // of the best; infinite at first
    bool started;   // the number of ranks is given
} Search;

static double distance(double a, double b) {
    return fabs(log2(a / b));
}

/* Candidates ----------------------------------------------------------------------------------- */

typedef struct Numbers {
    int32_t *at;
    uint32_t n, cap;
} Numbers;

static void add(Search *s, Numbers *list, int64_t value, int64_t most) {
    if (value < 1 || value > most) return;
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i] == value) return;
    *ARENA_PUSH(s->arena, list->at, list->n, list->cap) = (int32_t)value;
}

static void add_divisors(Search *s, Numbers *list, int64_t of, int64_t most) {
    for (int64_t d = 1; d * d <= of; d++) {
        if (of % d) continue;
        add(s, list, d, most);
        add(s, list, of / d, most);
    }
}

// As it was, every number of stages that the layers could fill up to a bound, and what divides the ranks.
static Numbers candidates_pp(Search *s) {
    enum { MOST = 64 };
    Numbers list = { 0 };
    add(s, &list, s->from->pp, LAYOUT_MOST_STAGES);
    for (int32_t pp = 1; pp <= s->facts->n_layers && pp <= MOST; pp++)
        add(s, &list, pp, LAYOUT_MOST_STAGES);
    int64_t ranks = s->started ? s->facts->ranks : (int64_t)s->from->pp * s->from->dp;
    add_divisors(s, &list, ranks, LAYOUT_MOST_STAGES);
    return list;
}

static Numbers candidates_dp(Search *s, int32_t pp) {
    Numbers list = { 0 };
    if (s->started) {
        if (s->facts->ranks % pp == 0) add(s, &list, s->facts->ranks / pp, LAYOUT_MOST_RANKS);
        return list;
    }
    int64_t ranks = (int64_t)s->from->pp * s->dp;
    add(s, &list, s->dp, LAYOUT_MOST_RANKS);
    add(s, &list, s->from->dp, LAYOUT_MOST_RANKS);
    if (ranks % pp == 0) add(s, &list, ranks / pp, LAYOUT_MOST_RANKS);
    add(s, &list, round_up(s->dp, s->from->ep), LAYOUT_MOST_RANKS);
    int64_t all = s->facts->batch / s->facts->sequence;
    if (s->facts->batch) add_divisors(s, &list, all, LAYOUT_MOST_RANKS);
    return list;
}

// The microbatches of a rank's share of the batch; open stays open.
static Numbers candidates_microbatch(Search *s, int32_t dp) {
    Numbers list = { 0 };
    int64_t share = s->facts->batch / s->facts->sequence / dp;
    add(s, &list, s->from->microbatch, LAYOUT_MOST_SEQUENCES);
    if (s->facts->batch) add_divisors(s, &list, share, LAYOUT_MOST_SEQUENCES);
    else // only too many rows can be wrong with one
        for (int64_t n = s->from->microbatch / 2; n >= 1; n /= 2)
            add(s, &list, n, LAYOUT_MOST_SEQUENCES);
    return list;
}

/* The search ----------------------------------------------------------------------------------- */

static bool keeps(const Search *s, const Layout *layout, int rule) {
    return layout_rules[rule](s->facts, layout, NULL);
}

// What can only be kept or dropped, then all rules.
static void try_rest(Search *s, Layout layout, double price) {
    if (!keeps(s, &layout, RULE_recompute)) {
        layout.layer_recompute = NULL;
        layout.n_layer_recompute = 0;
        price += price_recompute;
    }
    if (!keeps(s, &layout, RULE_node)) {
        int32_t node = layout.transport == TRANSPORT_BLOCKS ? layout.node : 1;
        while (layout.ep % node) node--;
        layout.node = node;
        price += price_node;
    }
    if (layout.placement && (layout.ep != s->from->ep || !keeps(s, &layout, RULE_placement))) {
        layout.placement = NULL;
        layout.experts = 0;
        price += price_placement;
    }
    static const double capacities[] = { 1, 1.25, 2, INFINITY };
    for (int i = 0; i < COUNT_OF(capacities) && !keeps(s, &layout, RULE_capacity); i++) {
        if (!i) price += price_capacity;
        layout.capacity = capacities[i];
    }
    if (price >= s->price || layout_first_broken(s->facts, &layout, NULL) < N_RULES) return;
    s->best = layout;
    s->price = price;
}

static void try_microbatches(Search *s, Layout layout, double price) {
    if (!s->from->microbatch) { // open
        try_rest(s, layout, price);
        return;
    }
    Numbers list = candidates_microbatch(s, layout.dp);
    for (uint32_t i = 0; i < list.n; i++) {
        double more = price_microbatch * distance(list.at[i], s->from->microbatch);
        if (list.at[i] > s->from->microbatch) more *= 2; // it may not fit
        layout.microbatch = list.at[i];
        if (price + more < s->price) try_rest(s, layout, price + more);
    }
}

// The schedule as it was, else with two stages on each rank, else a plain one; stages as they were, else
// even.
static void try_schedules(Search *s, Layout layout, double price) {
    const struct { uint8_t schedule; int32_t chunks; } ways[] = {
        { s->from->schedule, s->from->chunks },
        { SCHEDULE_INTERLEAVED, s->from->chunks },
        { SCHEDULE_INTERLEAVED, 2 },
        { s->from->schedule, 1 },
        { SCHEDULE_1F1B, 1 },
    };
    for (int i = 0; i < COUNT_OF(ways); i++) {
        layout.schedule = ways[i].schedule;
        layout.chunks = ways[i].chunks;
        double more = price;
        if (layout.schedule != s->from->schedule) more += price_schedule;
        if (layout.chunks != s->from->chunks) more += price_slots;
        layout.stages = s->from->stages;
        layout.n_stages = s->from->n_stages;
        if (!keeps(s, &layout, RULE_schedule)) continue;
        if (!keeps(s, &layout, RULE_stages)) {
            if (layout.stages) more += price_stages;
            layout.stages = NULL;
            layout.n_stages = 0;
        }
        if (more < s->price && keeps(s, &layout, RULE_stages)) try_microbatches(s, layout, more);
    }
}

static void try_axes(Search *s, int32_t pp, int32_t dp) {
    Layout layout = *s->from;
    layout.pp = pp;
    layout.dp = dp;
    double price = price_pp * distance(pp, s->from->pp) + price_dp * distance(dp, s->dp);
    if (!s->started)
        price += price_ranks * distance((double)pp * dp, (double)s->from->pp * s->dp);
    if (price >= s->price) return;
    Numbers list = { 0 };
    add(s, &list, s->from->ep, LAYOUT_MOST_RANKS);
    add_divisors(s, &list, dp, LAYOUT_MOST_RANKS);
    for (uint32_t i = 0; i < list.n; i++) {
        layout.ep = list.at[i];
        double more = price + price_ep * distance(layout.ep, s->from->ep);
        if (more < s->price && keeps(s, &layout, RULE_ep) && keeps(s, &layout, RULE_experts))
            try_schedules(s, layout, more);
    }
}

bool layout_nearest(const Facts *facts, const Layout *from, Arena *arena, Layout *out) {
    Search search = { .facts = facts, .from = from, .arena = arena, .price = INFINITY };
    Search *s = &search;
    s->dp = from->dp < from->ep ? from->ep : from->dp;
    s->started = facts->ranks > 0;
    Numbers pp = candidates_pp(s);
    for (uint32_t i = 0; i < pp.n; i++) {
        Numbers dp = candidates_dp(s, pp.at[i]);
        for (uint32_t k = 0; k < dp.n; k++) try_axes(s, pp.at[i], dp.at[k]);
    }
    *out = s->best;
    return s->price < INFINITY;
}
