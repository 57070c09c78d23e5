// SPDX-License-Identifier: Apache-2.0
// The points of a space, in a fixed order: axes outermost, then microbatch, then what else costs follow
// from, then schedules. What makes no difference has one value, so that no layout is counted twice.
#include "compiler/search/private.h"

static uint8_t allowed(uint8_t set, uint8_t all) {
    return set ? set & all : all;
}

static uint8_t first_of(uint8_t set) {
    return (uint8_t)__builtin_ctz(set);
}

// One rank has room for every row, so any capacity is as good, but for one that drops some: no kernel does.
static double undropped(const SearchSpace *space) {
    for (int32_t i = 0; i < space->n_capacities; i++)
        if (!(space->capacities[i] > 0 && space->capacities[i] < 1)) return space->capacities[i];
    return space->capacities[0];
}

// Of rounds that make no difference here the first; those of ep and more have room for all rows at once.
static double canonical_round(const Search *s, const SearchChoice *c) {
    const SearchSpace *space = &s->space;
    double capacity = c->capacity > 0 ? c->capacity : s->profile.capacity;
    if (c->ep == 1 || isfinite(capacity)) return space->rounds[0];
    if (c->round < c->ep) return c->round;
    int32_t i = 0;
    while (space->rounds[i] < c->ep && i < space->n_rounds - 1) i++;
    return space->rounds[i];
}

static bool gathers(const SearchChoice *c) {
    return (c->params == PARAMS_FSDP && c->dp > 1) || (c->expert_params == PARAMS_FSDP && c->dp > c->ep);
}

SearchChoice space_canonical(const Search *s, SearchChoice c) {
    const SearchSpace *space = &s->space;
    if (c.dp == 1) c.params = first_of(space->params);
    if (c.dp == c.ep) c.expert_params = first_of(space->expert_params);
    if (c.ep == 1) {
        c.transport = first_of(space->transports);
        c.capacity = undropped(space);
        c.placement = 0;
    }
    c.round = canonical_round(s, &c);
    if (!gathers(&c)) c.overlap = space->overlaps >> 1;
    return c;
}

static bool same_choice(const SearchChoice *a, const SearchChoice *b) {
    return a->params == b->params && a->expert_params == b->expert_params &&
           a->transport == b->transport && a->capacity == b->capacity &&
           a->placement == b->placement && a->overlap == b->overlap && a->round == b->round;
}

/* Tables --------------------------------------------------------------------------------------- */

static void settle_class(Table *t, int32_t c) {
    const SearchLayer *layer = &t->parts[c];
    int best = 0;
    double saved = INFINITY, transient = INFINITY;
    for (int r = 0; r < SEARCH_RECOMPUTES; r++) {
        double s = layer->seconds[r], b = layer->seconds[best];
        if (s < b || (s == b && layer->saved_bytes[r] < layer->saved_bytes[best])) best = r;
        if (s == INFINITY) continue;
        saved = fmin(saved, layer->saved_bytes[r]);
        transient = fmin(transient, layer->transient_bytes[r]);
    }
    t->base[c] = (uint8_t)best;
    t->least_saved[c] = saved;
    t->least_transient[c] = transient;
}

bool table_fill(const Search *s, const SearchChoice *choice, Table *out) {
    const SearchProfile *p = &s->profile;
    *out = (Table){ .choice = *choice };
    if (!p->rest(p->user, choice, &out->rest)) return false;
    for (int32_t i = 0; i < p->n_classes + 2; i++) {
        if (!p->part(p->user, choice, i, &out->parts[i])) return false;
        if (i >= p->n_classes) break;
        bool any = false;
        for (int r = 0; r < SEARCH_RECOMPUTES; r++) {
            if (!(s->space.recomputes >> r & 1)) out->parts[i].seconds[r] = INFINITY;
            any |= out->parts[i].seconds[r] < INFINITY;
        }
        if (!any) return false;
        settle_class(out, i);
    }
    if (!p->part(p->user, choice, p->n_classes + 1, &out->parts[p->n_classes + 1])) return false;
    return out->possible = true;
}

/* Splits of interleaved schedules ---------------------------------------------------------------- */

static bool fill_split(int32_t layers, int32_t n, int32_t given, int32_t *stages) {
    int32_t first = given % (SEARCH_MOST_GIVEN + 1), last = given / (SEARCH_MOST_GIVEN + 1);
    int32_t all = layers + first + last;
    for (int32_t i = 0; i < n; i++) stages[i] = all / n + (i < all % n);
    stages[0] -= first;
    stages[n - 1] -= last;
    return stages[0] >= 1 && stages[n - 1] >= 1;
}

struct SplitLists { Splits *at; uint32_t n, cap; };

static void fill_splits(const Search *s, Splits *out) {
    int32_t n = out->pp * out->chunks;
    out->stages = ARENA_ARRAY(s->arena, int32_t, MOST_SPLITS * n);
    for (int32_t given = 0; given < MOST_SPLITS; given++) {
        int32_t *stages = out->stages + (int64_t)out->n * n;
        bool is_new = fill_split(s->profile.n_layers, n, given, stages);
        for (int32_t k = 0; k < out->n && is_new; k++)
            is_new = memcmp(out->stages + (int64_t)k * n, stages, sizeof *stages * (size_t)n);
        out->n += is_new;
    }
}

const Splits *space_splits(const Search *s, int32_t pp, int32_t chunks) {
    struct SplitLists *lists = s->splits;
    for (uint32_t i = 0; i < lists->n; i++)
        if (lists->at[i].pp == pp && lists->at[i].chunks == chunks) return &lists->at[i];
    Splits *made = ARENA_PUSH(s->arena, lists->at, lists->n, lists->cap);
    *made = (Splits){ .pp = pp, .chunks = chunks };
    fill_splits(s, made);
    return made;
}

// Of points with so many stages, chunks and microbatches.
typedef struct FlightList { int32_t pp, chunks, microbatches; uint8_t schedule; Flight *at; } FlightList;
struct FlightLists { FlightList *at; uint32_t n, cap; };

const Flight *space_flights(const Search *s, const SearchPoint *point) {
    struct FlightLists *lists = s->flights;
    SearchPoint same = *point;
    int32_t pp = point->choice.pp;
    same.microbatches = (int32_t)min_i64(point->microbatches, 12 * (int64_t)pp); // of more than are looked at any
    for (uint32_t i = 0; i < lists->n; i++) {
        const FlightList *l = &lists->at[i];
        if (l->pp == pp && l->chunks == same.chunks && l->microbatches == same.microbatches && l->schedule == same.schedule)
            return l->at;
    }
    FlightList *made = ARENA_PUSH(s->arena, lists->at, lists->n, lists->cap);
    *made = (FlightList){ pp, same.chunks, same.microbatches, same.schedule,
                          ARENA_ARRAY(s->arena, Flight, pp * same.chunks) };
    flight_fill(&same, made->at);
    return made->at;
}

static SearchCount count_splits(const Search *s, int32_t pp, int32_t chunks) {
    if (chunks == 1) return search_count_choose(s->profile.n_layers - 1, pp - 1);
    return search_count((uint64_t)space_splits(s, pp, chunks)->n);
}

/* Points ------------------------------------------------------------------------------------------ */

static uint16_t find_family(Search *s, const Table *t, int32_t chunks) {
    Family family = { .pp = t->choice.pp, .chunks = chunks };
    for (int32_t c = 0; c < s->profile.n_classes; c++)
        for (int r = 0; r < SEARCH_RECOMPUTES; r++) family.offered[c] += t->parts[c].seconds[r] < INFINITY;
    for (uint32_t i = s->n_families; i-- > 0;) {
        const Family *k = &s->families[i];
        if (k->pp == family.pp && k->chunks == chunks && !memcmp(k->offered, family.offered, sizeof family.offered))
            return (uint16_t)i;
    }
    family.layouts = count_splits(s, family.pp, chunks);
    for (int32_t c = 0; c < s->profile.n_classes; c++)
        for (int32_t i = 0; i < s->per_class[c]; i++) search_count_times(&family.layouts, family.offered[c]);
    *ARENA_PUSH(s->arena, s->families, s->n_families, s->cap_families) = family;
    return (uint16_t)(s->n_families - 1);
}

static void add_entry(Search *s, uint32_t table, uint8_t schedule, int32_t chunks, int32_t microbatches) {
    const Table *t = &s->tables[table];
    if (!(s->space.schedules >> schedule & 1)) return;
    SearchPoint point = { t->choice, schedule, chunks, microbatches };
    Entry entry = { .table = table,
                    .microbatches = microbatches,
                    .family = find_family(s, t, chunks),
                    .schedule = schedule,
                    .chunks = (uint8_t)chunks,
                    .bound0 = bound_without_memory(s, t, &point) };
    *ARENA_PUSH(s->arena, s->entries, s->n_entries, s->cap_entries) = entry;
}

static void add_choice(Search *s, const SearchChoice *choice, int32_t microbatches) {
    SearchChoice same = space_canonical(s, *choice);
    if (!same_choice(&same, choice)) return;
    Table table;
    if (!table_fill(s, choice, &table)) return;
    uint32_t at = s->n_tables;
    *ARENA_PUSH(s->arena, s->tables, s->n_tables, s->cap_tables) = table;
    int32_t pp = choice->pp;
    add_entry(s, at, SCHEDULE_1F1B, 1, microbatches);
    if (pp == 1) return;
    add_entry(s, at, SCHEDULE_ZERO_BUBBLE, 1, microbatches);
    for (int32_t v = 2; v <= s->space.most_chunks && pp * v <= s->profile.n_layers; v++)
        if (microbatches % pp == 0) add_entry(s, at, SCHEDULE_INTERLEAVED, v, microbatches);
}

// What is neither axis nor microbatch: a mixed-radix number, its last digit the fastest.
static void add_choices(Search *s, SearchChoice c, int32_t microbatches) {
    const SearchSpace *space = &s->space;
    int32_t n = space->n_precisions * space->n_capacities * space->n_rounds * space->placements * 16;
    for (int32_t i = 0; i < n; i++) {
        int32_t bits = i % 16, rest = i / 16;
        c.overlap = bits & 1;
        c.transport = bits >> 1 & 1;
        c.expert_params = bits >> 2 & 1;
        c.params = bits >> 3 & 1;
        c.placement = (uint8_t)(rest % space->placements);
        rest /= space->placements;
        c.round = space->rounds[rest % space->n_rounds];
        rest /= space->n_rounds;
        c.capacity = space->capacities[rest % space->n_capacities];
        c.precision = space->precisions[rest / space->n_capacities];
        if ((space->overlaps >> c.overlap & 1) && (space->transports >> c.transport & 1) &&
            (space->expert_params >> c.expert_params & 1) && (space->params >> c.params & 1))
            add_choice(s, &c, microbatches);
    }
}

static bool ep_fits(const Search *s, int64_t dp, int32_t ep) {
    if (dp % ep || (ep > 1 && !s->profile.n_experts)) return false;
    for (int32_t i = 0; i < s->profile.n_experts; i++)
        if (s->profile.experts[i] % ep) return false;
    return true;
}

static void add_axes(Search *s, int32_t pp, int32_t dp) {
    const SearchSpace *space = &s->space;
    if (space->sequences % dp) return;
    int64_t share = space->sequences / dp;
    int32_t most_ep = 1;
    for (int32_t i = 0; i < s->profile.n_experts; i++)
        most_ep = s->profile.experts[i] > most_ep ? s->profile.experts[i] : most_ep;
    for (int32_t ep = 1; ep <= dp && ep <= most_ep; ep++) {
        if (!ep_fits(s, dp, ep)) continue;
        for (int32_t b = 1; b <= share && b <= space->most_microbatch; b++) {
            if (share % b || share / b > INT32_MAX) continue;
            SearchChoice choice = { .pp = pp, .dp = dp, .ep = ep, .microbatch = b };
            add_choices(s, choice, (int32_t)(share / b));
        }
    }
}

void space_settle(Search *s) {
    SearchSpace *space = &s->space;
    s->splits = ARENA_NEW(s->arena, struct SplitLists);
    s->flights = ARENA_NEW(s->arena, struct FlightLists);
    space->schedules = allowed(space->schedules, 7);
    space->params = allowed(space->params, 3);
    space->expert_params = allowed(space->expert_params, 3);
    space->transports = allowed(space->transports, 3);
    space->overlaps = allowed(space->overlaps, 3);
    space->recomputes = allowed(space->recomputes, 7);
    if (!space->most_pp || space->most_pp > SEARCH_MOST_STAGES) space->most_pp = SEARCH_MOST_STAGES;
    if (!space->most_chunks || space->most_chunks > SEARCH_MOST_CHUNKS)
        space->most_chunks = SEARCH_MOST_CHUNKS;
    if (!space->most_microbatch) space->most_microbatch = 64;
    if (!space->n_capacities) space->n_capacities = 1;
    if (!space->n_rounds) space->rounds[space->n_rounds++] = INFINITY;
    if (!space->placements) space->placements = 1;
    if (!space->n_precisions) space->n_precisions = 1;
}

// Why there is no point: the batch is what does not divide most often.
static Status no_point(const Search *s) {
    const SearchSpace *space = &s->space;
    int64_t least = 0; // ranks of a stage that the batch and the ranks allow
    for (int64_t pp = 1; pp <= s->profile.n_layers && pp <= space->most_pp; pp++)
        if (space->ranks % pp == 0) least = space->ranks / pp;
    if (space->sequences % (least ? least : 1))
        return status_fail(ERR_ARGUMENT,
                           "search: a step of %lld sequences is no multiple of the %lld ranks of a stage\n"
                           "  hint: a step of %lld sequences is",
                           (long long)space->sequences, (long long)least,
                           (long long)round_up(space->sequences, least));
    return status_fail(ERR_ARGUMENT, "search: no layout of %lld ranks is possible for this model\n"
                                     "  hint: %s",
                       (long long)space->ranks,
                       space->capacities[0] > 0 && space->capacities[0] < 1
                           ? "a capacity of 1 or more: one rank drops no rows, and others need one for each expert"
                           : "another number of ranks, with more divisors");
}

Status space_fill(Search *s) {
    for (int32_t pp = 1; pp <= s->profile.n_layers && pp <= s->space.most_pp; pp++)
        if (s->space.ranks % pp == 0) add_axes(s, pp, (int32_t)(s->space.ranks / pp));
    return s->n_entries ? OK : no_point(s);
}
