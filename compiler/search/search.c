// SPDX-License-Identifier: Apache-2.0
// Best first: a heap of points by their bounds. A point comes up with its loose bound and goes back with
// the tight one, comes up again and is decided; when the bound that comes up is no better than the k-th
// best layout, what is left cannot be. search.h has the whole idea.
#include <stdlib.h>

#include "compiler/search/private.h"

/* Making one ----------------------------------------------------------------------------------------- */

// The vector with these counts, made where there is none. Vectors of one prefix share their rest.
static int32_t find_vector(Search *s, const uint16_t *counts) {
    Vectors *v = &s->vectors;
    for (uint32_t i = v->n; i-- > 0;)
        if (!memcmp(v->at[i].counts, counts, sizeof v->at[i].counts)) return (int32_t)i;
    Vector made = { .rest = -1 };
    memcpy(made.counts, counts, sizeof made.counts);
    int32_t class = SEARCH_MOST_CLASSES - 1;
    while (!counts[class]) class--;
    made.class = class;
    made.count = counts[class];
    Vector rest = made;
    rest.counts[class] = 0;
    bool any = false;
    for (int32_t c = 0; c < class; c++) any |= counts[c] != 0;
    if (any) made.rest = find_vector(s, rest.counts);
    *ARENA_PUSH(s->arena, v->at, v->n, v->cap) = made;
    return (int32_t)v->n - 1;
}

static void fill_vectors(Search *s) {
    int32_t n = s->profile.n_layers, width = n + 1;
    s->vectors.of = ARENA_ARRAY(s->arena, int32_t, width * width);
    for (int32_t i = 0; i < width * width; i++) s->vectors.of[i] = -1;
    for (int32_t from = 0; from < n; from++) {
        uint16_t counts[SEARCH_MOST_CLASSES] = { 0 };
        for (int32_t to = from + 1; to <= n; to++) {
            counts[s->profile.class_of[to - 1]]++;
            s->vectors.of[from * width + to] = find_vector(s, counts);
        }
        s->per_class[s->profile.class_of[from]]++;
    }
}

static Status check_profile(const SearchProfile *p, const SearchSpace *space) {
    if (p->n_layers < 1 || p->n_layers > SEARCH_MOST_LAYERS)
        return status_fail(ERR_ARGUMENT, "search: a model of %d layers, expected 1 to %d", p->n_layers,
                           SEARCH_MOST_LAYERS);
    if (p->n_classes < 1 || p->n_classes > SEARCH_MOST_CLASSES)
        return status_fail(ERR_ARGUMENT, "search: layers of %d different families, expected 1 to %d",
                           p->n_classes, SEARCH_MOST_CLASSES);
    if (space->ranks < 1 || space->ranks > LAYOUT_MOST_RANKS)
        return status_fail(ERR_ARGUMENT, "search: %lld ranks, expected 1 to %d", (long long)space->ranks,
                           LAYOUT_MOST_RANKS);
    if (space->sequences < 1)
        return status_fail(ERR_ARGUMENT, "search: a step of %lld sequences, expected 1 or more",
                           (long long)space->sequences);
    return OK;
}

static Status create(const SearchProfile *profile, const SearchSpace *space, bool bare, Search **out) {
    *out = NULL;
    TRY(check_profile(profile, space));
    Arena *arena = arena_create();
    Search *s = ARENA_NEW(arena, Search);
    *s = (Search){ .profile = *profile, .space = *space, .arena = arena };
    fill_vectors(s);
    space_settle(s);
    Status status = bare ? OK : space_fill(s);
    if (status == OK) *out = s;
    else arena_destroy(arena);
    return status;
}

Status search_create(const SearchProfile *profile, const SearchSpace *space, Search **out) {
    return create(profile, space, false, out);
}

Status search_create_bare(const SearchProfile *profile, const SearchSpace *space, Search **out) {
    return create(profile, space, true, out);
}

void search_destroy(Search *search) {
    if (search) arena_destroy(search->arena);
}

void search_on_pulse(Search *search, SearchPulse pulse, void *user) {
    search->pulse = pulse;
    search->pulse_user = user;
}

/* The heap --------------------------------------------------------------------------------------------- */

// Points still open, the least bound first, of equal ones the first number.
typedef struct Heap {
    const Entry *entries;
    uint32_t *at, n;
} Heap;

static bool comes_before(const Heap *h, uint32_t a, uint32_t b) {
    double x = h->entries[a].bound, y = h->entries[b].bound;
    return x != y ? x < y : a < b;
}

static void sift_down(Heap *h, uint32_t i) {
    uint32_t what = h->at[i];
    for (uint32_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && comes_before(h, h->at[child + 1], h->at[child])) child++;
        if (!comes_before(h, h->at[child], what)) break;
        h->at[i] = h->at[child];
    }
    h->at[i] = what;
}

static void pop(Heap *h) {
    h->at[0] = h->at[--h->n];
    if (h->n) sift_down(h, 0);
}

/* The best k --------------------------------------------------------------------------------------------- */

static bool faster(const SearchLayout *a, const SearchLayout *b) {
    return a->step_s != b->step_s ? a->step_s < b->step_s : a->number < b->number;
}

static void keep(SearchFound *found, int32_t top, const SearchLayout *layout) {
    int32_t i = found->n < top ? found->n++ : top - 1;
    for (; i > 0 && faster(layout, &found->best[i - 1]); i--) found->best[i] = found->best[i - 1];
    found->best[i] = *layout;
}

static SearchPoint point_of(const Search *s, const Entry *entry) {
    return (SearchPoint){ s->tables[entry->table].choice, entry->schedule, entry->chunks, entry->microbatches };
}

typedef struct Tally { int64_t memory, bound, decided, open; } Tally; // points of a family

typedef struct Run {
    Search *s;
    double memory, limit;   // seconds of the k-th best
    int32_t top;
    Arena *arena, *scratch;
    SearchFound *out;
    Tally *tallies;         // [families]
    Heap heap;
} Run;

static void tighten(Run *r, Entry *entry) {
    Arena *scratch = arena_create();
    SearchPoint point = point_of(r->s, entry);
    Weights w;
    weights_fill(&w, r->s, &r->s->tables[entry->table], &point, r->memory, scratch);
    entry->bound = fmax(entry->bound, bound_tight(&w, r->limit));
    entry->level = 1;
    arena_destroy(scratch);
}

static void decide(Run *r, uint32_t number) {
    const Entry *entry = &r->s->entries[number];
    Arena *scratch = arena_create();
    SearchPoint point = point_of(r->s, entry);
    Weights w;
    SearchLayout layout;
    weights_fill(&w, r->s, &r->s->tables[entry->table], &point, r->memory, scratch);
    if (split_best(&w, r->limit, r->arena, &layout)) {
        layout.number = (int32_t)number;
        layout.bound_s = entry->bound;
        keep(r->out, r->top, &layout);
        if (r->out->n == r->top) r->limit = r->out->best[r->top - 1].step_s;
    }
    r->tallies[entry->family].decided++;
    arena_destroy(scratch);
}

static bool goes_on(Run *r, int64_t *turns, double lower) {
    if (!r->s->pulse || ++*turns % 16) return true;
    int64_t open = r->heap.n;
    double best = r->out->n ? r->out->best[0].step_s : INFINITY;
    return r->s->pulse(r->s->pulse_user, r->s->n_entries - open, r->s->n_entries, best, lower);
}

// False: stopped by the pulse.
static bool walk(Run *r) {
    Heap *heap = &r->heap;
    int64_t turns = 0;
    while (heap->n) {
        uint32_t number = heap->at[0];
        Entry *entry = &r->s->entries[number];
        if (!(entry->bound < r->limit)) break;
        if (!goes_on(r, &turns, entry->bound)) return false;
        if (!entry->level) {
            tighten(r, entry);
            if (entry->bound < INFINITY) {
                sift_down(heap, 0);
                continue;
            }
            r->tallies[entry->family].memory++;
        } else {
            decide(r, number);
        }
        pop(heap);
    }
    return true;
}

/* The certificate ------------------------------------------------------------------------------------------ */

static void add_points(SearchCount *sum, int64_t *points, const SearchCount *layouts, int64_t n) {
    SearchCount product = *layouts;
    search_count_times(&product, (uint32_t)n);
    search_count_add(sum, &product);
    *points += n;
}

static void certify(Run *r, bool complete) {
    Search *s = r->s;
    SearchCertificate *c = &r->out->certificate;
    *c = (SearchCertificate){ .choices = s->n_tables, .complete = complete };
    for (uint32_t i = 0; i < r->heap.n; i++) {
        const Entry *entry = &s->entries[r->heap.at[i]];
        Tally *t = &r->tallies[entry->family];
        ++*(complete || entry->bound >= r->limit ? &t->bound : &t->open);
    }
    for (uint32_t k = 0; k < s->n_families; k++) {
        const SearchCount *each = &s->families[k].layouts;
        const Tally *t = &r->tallies[k];
        add_points(&c->layouts, &c->points, each, t->memory + t->bound + t->decided + t->open);
        add_points(&c->cut_memory, &c->points_memory, each, t->memory);
        add_points(&c->cut_bound, &c->points_bound, each, t->bound);
        add_points(&c->decided, &c->points_decided, each, t->decided);
        add_points(&c->open, &c->points_open, each, t->open);
    }
    double best = r->out->n ? r->out->best[0].step_s : INFINITY;
    double open = !complete && r->heap.n ? s->entries[r->heap.at[0]].bound : INFINITY;
    c->lower_s = fmin(best, open);
    c->gap = best < INFINITY ? best / c->lower_s - 1 : complete ? 0 : INFINITY;
}

void search_run(Search *s, double memory_bytes, int32_t top, Arena *arena, SearchFound *out) {
    Arena *scratch = arena_create();
    *out = (SearchFound){ .best = ARENA_ARRAY(arena, SearchLayout, top) };
    Run r = { .s = s, .memory = memory_bytes, .limit = INFINITY, .top = top, .arena = arena,
              .scratch = scratch, .out = out,
              .tallies = ARENA_ARRAY(scratch, Tally, s->n_families),
              .heap = { s->entries, ARENA_ARRAY(scratch, uint32_t, s->n_entries), s->n_entries } };
    for (uint32_t i = 0; i < s->n_entries; i++) {
        s->entries[i].bound = s->entries[i].bound0;
        s->entries[i].level = 0;
        r.heap.at[i] = i;
    }
    for (uint32_t i = s->n_entries / 2; i-- > 0;) sift_down(&r.heap, i);
    bool complete = walk(&r);
    certify(&r, complete);
    arena_destroy(scratch);
}

/* Speed against memory --------------------------------------------------------------------------------------- */

void search_front(Search *s, double memory_bytes, int32_t steps, Arena *arena, SearchFront *out) {
    *out = (SearchFront){ ARENA_ARRAY(arena, SearchLayout, steps), 0 };
    double cap = memory_bytes;
    for (int32_t i = 1; i <= steps && cap > 0; i++) {
        SearchFound found;
        search_run(s, cap, 1, arena, &found);
        if (!found.n) break;
        const SearchLayout *layout = &found.best[0];
        // As fast and smaller than the one before: that one is not on the front.
        if (out->n && layout->step_s <= out->at[out->n - 1].step_s) out->n--;
        out->at[out->n++] = *layout;
        if (!found.certificate.complete) break;
        cap = fmin(layout->peak_bytes * (steps - 1), memory_bytes * (steps - i)) / steps;
    }
}

/* One point, one layout ---------------------------------------------------------------------------------------- */

static bool count_microbatches(const Search *s, SearchPoint *p) {
    const SearchSpace *space = &s->space;
    int64_t dp = p->choice.dp, b = p->choice.microbatch;
    if (p->choice.pp < 1 || dp < 1 || b < 1 || p->chunks < 1) return false;
    if (p->choice.pp * dp != space->ranks || space->sequences % (dp * b)) return false;
    if ((int64_t)p->choice.pp * p->chunks > s->profile.n_layers || p->chunks > SEARCH_MOST_CHUNKS)
        return false;
    if (p->choice.ep < 1 || dp % p->choice.ep || (p->choice.ep > 1 && !s->profile.n_experts)) return false;
    for (int32_t i = 0; i < s->profile.n_experts; i++)
        if (s->profile.experts[i] % p->choice.ep) return false;
    p->microbatches = (int32_t)(space->sequences / dp / b);
    bool interleaved = p->schedule == SCHEDULE_INTERLEAVED;
    if (interleaved != (p->chunks > 1) || (p->choice.pp == 1 && p->schedule != SCHEDULE_1F1B)) return false;
    return !interleaved || p->microbatches % p->choice.pp == 0;
}

bool search_same_point(const SearchPoint *a, const SearchPoint *b) {
    const SearchChoice *x = &a->choice, *y = &b->choice;
    return x->pp == y->pp && x->dp == y->dp && x->ep == y->ep && x->microbatch == y->microbatch &&
           x->params == y->params && x->expert_params == y->expert_params && x->transport == y->transport &&
           x->capacity == y->capacity && x->round == y->round && x->overlap == y->overlap &&
           x->precision == y->precision && x->placement == y->placement && a->schedule == b->schedule && a->chunks == b->chunks;
}

static int32_t number_of(const Search *s, const SearchPoint *p) {
    for (uint32_t i = 0; i < s->n_entries; i++) {
        SearchPoint q = point_of(s, &s->entries[i]);
        if (search_same_point(p, &q)) return (int32_t)i;
    }
    return -1;
}

// The table and the weights of a point; false: the point is impossible.
static bool weigh(Search *s, SearchPoint *point, double memory, Table *table, Weights *w, Arena *arena) {
    point->choice = space_canonical(s, point->choice);
    if (!count_microbatches(s, point) || !table_fill(s, &point->choice, table)) return false;
    weights_fill(w, s, table, point, memory, arena);
    return true;
}

static void judge(SearchEvaluated *out, double memory) {
    out->short_bytes = fmax(0, out->layout.peak_bytes - memory);
    out->verdict = out->short_bytes > 0 ? VERDICT_MEMORY : VERDICT_FITS;
}

void search_point(Search *s, const SearchPoint *given, double memory, Arena *arena, SearchEvaluated *out) {
    *out = (SearchEvaluated){ .verdict = VERDICT_IMPOSSIBLE };
    SearchPoint point = *given;
    Table table;
    Weights w;
    if (!weigh(s, &point, memory, &table, &w, arena)) return;
    if (!split_best(&w, INFINITY, arena, &out->layout)) {
        split_smallest(&w, arena, &out->layout);
        judge(out, memory);
        out->verdict = VERDICT_MEMORY;
    } else {
        out->verdict = VERDICT_FITS;
    }
    out->layout.number = number_of(s, &point);
}

void search_layout(Search *s, SearchLayout *layout, double memory, Arena *arena, SearchEvaluated *out) {
    *out = (SearchEvaluated){ .verdict = VERDICT_IMPOSSIBLE };
    Table table;
    Weights w;
    if (!weigh(s, &layout->point, memory, &table, &w, arena)) return;
    if (!layout->stage_bytes) layout->stage_bytes = ARENA_ARRAY(arena, double, layout->point.choice.pp);
    if (!split_weigh(&w, layout)) return;
    layout->number = number_of(s, &layout->point);
    out->layout = *layout;
    judge(out, memory);
}

double search_bound(Search *s, const SearchPoint *given, double memory) {
    Arena *scratch = arena_create();
    SearchPoint point = *given;
    Table table;
    Weights w;
    double bound = INFINITY;
    if (weigh(s, &point, memory, &table, &w, scratch))
        bound = fmax(bound_without_memory(s, &table, &point), bound_tight(&w, INFINITY));
    arena_destroy(scratch);
    return bound;
}

SearchLayout search_from_layout(const Layout *l, uint8_t precision, int32_t n_layers, Arena *arena) {
    SearchLayout out = { .point = { .choice = { .pp = l->pp,
                                                .dp = l->dp,
                                                .ep = l->ep,
                                                .microbatch = l->microbatch,
                                                .precision = precision,
                                                .params = l->params,
                                                .expert_params = l->expert_params,
                                                .transport = l->transport,
                                                .overlap = l->overlap == OVERLAP_ON,
                                                .row_align = l->row_align,
                                                .capacity = l->capacity,
                                                .round = l->round > 0 ? l->round : INFINITY },
                                    .schedule = l->schedule,
                                    .chunks = l->chunks },
                         .stages = ARENA_ARRAY(arena, int32_t, l->pp * l->chunks),
                         .recompute = ARENA_ARRAY(arena, uint8_t, n_layers) };
    for (int32_t i = 0; i < n_layers; i++) {
        out.stages[layout_stage_of_layer(l, i, n_layers)]++;
        out.recompute[i] = l->layer_recompute ? l->layer_recompute[i] : l->recompute;
    }
    return out;
}

Layout search_to_layout(const SearchLayout *found, const SearchProfile *profile, Arena *arena) {
    const SearchPoint *p = &found->point;
    Layout out = layout_single();
    out.pp = p->choice.pp;
    out.dp = p->choice.dp;
    out.ep = p->choice.ep;
    out.schedule = p->schedule;
    out.chunks = p->chunks;
    out.params = p->choice.params;
    out.expert_params = p->choice.expert_params;
    out.transport = p->choice.transport;
    out.microbatch = p->choice.microbatch;
    out.capacity = p->choice.capacity;
    out.overlap = p->choice.overlap ? OVERLAP_ON : OVERLAP_OFF;
    double capacity = out.capacity > 0 ? out.capacity : profile->capacity;
    if (!isfinite(capacity) && p->choice.round < out.ep) out.round = p->choice.round;
    int32_t n = out.pp * out.chunks;
    bool even = true;
    for (int32_t i = 0; i < n; i++)
        even &= found->stages[i] == profile->n_layers / n + (i < profile->n_layers % n);
    if (!even) {
        out.stages = ARENA_ARRAY(arena, int32_t, n);
        memcpy(out.stages, found->stages, sizeof *out.stages * (size_t)n);
        out.n_stages = n;
    }
    out.recompute = found->recompute[0];
    bool alike = true;
    for (int32_t i = 0; i < profile->n_layers; i++) alike &= found->recompute[i] == out.recompute;
    if (!alike) {
        out.layer_recompute = ARENA_ARRAY(arena, uint8_t, profile->n_layers);
        memcpy(out.layer_recompute, found->recompute, (size_t)profile->n_layers);
        out.n_layer_recompute = profile->n_layers;
    }
    return out;
}
