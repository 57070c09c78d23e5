// SPDX-License-Identifier: Apache-2.0
// Lives of buffers over the rows of a program.
//
// What lives inside a row lives in every row of its segment, at one address. What lives from row to row
// lives once per microbatch, from the first row that touches it to the last, at an address per slot. So does
// what is sent: it stays until the next row of its segment and slot, which waits until it has been taken.
//
// Schedules repeat: what clashes does so within some first microbatches, and only those are looked at. The
// plan's checker looks at all of them.
#include "compiler/layout/pipeline.h"
#include "compiler/lower/pass.h"

typedef struct Use {
    int32_t first, last; // times within one segment; first > last: none
    bool sent;
} Use;

typedef struct Walk {
    Lower *l;
    PlanRow *rows;
    uint32_t n_rows;
    int32_t batches;
    int32_t *begin; // by row, and the end
    int32_t *at;    // [segment][microbatch] row, -1
    int32_t *until; // by row: begin of the next row of its segment and slot
    Use *uses;      // [buffer][segment]
    bool *late;     // [buffer] touched in last rows and after them only
} Walk;

bool place_needs_rows(const Lower *l) {
    for (uint32_t k = 0; k < l->n_kernels; k++)
        if (l->kernels[k].op == PLAN_send) return true;
    return l->slots > 1 || l->chunks > 1;
}

// Enough microbatches to see every pair that meets: the slots several times over, in whole groups. The last of them is in the
// slot, and in the place of its group, of the step's last: what lives at the end only meets others' slots there.
static int32_t enough(const Lower *l) {
    int64_t pp = l->layout->pp, all = l->plan->microbatches, period = l->slots;
    while (l->chunks > 1 && period % pp) period += l->slots;
    int64_t least = (div_up(3 * (int64_t)l->slots, pp) + 2) * pp;
    return (int32_t)(least < all ? all - (all - least) / period * period : all);
}

static void take_rows(Walk *w) {
    Lower *l = w->l;
    w->rows = ARENA_ARRAY(l->arena, PlanRow, l->n_rows);
    w->batches = l->program == PROGRAM_STEP ? enough(l) : 1;
    bool all = w->batches == l->plan->microbatches || l->program != PROGRAM_STEP;
    if (!all) { // a shorter step, unless it needs fewer slots
        PlanRow *rows = l->rows;
        uint32_t n_rows = l->n_rows;
        int32_t slots = l->slots, microbatches = l->plan->microbatches;
        l->plan->microbatches = w->batches;
        lower_list_rows(l);
        all = l->slots != slots;
        if (!all) {
            w->rows = l->rows;
            w->n_rows = l->n_rows;
        }
        l->rows = rows;
        l->n_rows = n_rows;
        l->slots = slots;
        l->plan->microbatches = microbatches;
    }
    if (!all) return;
    w->batches = l->program == PROGRAM_STEP ? l->plan->microbatches : 1;
    w->rows = l->rows;
    w->n_rows = l->n_rows;
}

static int32_t *row_at(const Walk *w, uint32_t segment, int32_t microbatch) {
    return &w->at[segment * (uint32_t)w->batches + (uint32_t)(microbatch < 0 ? 0 : microbatch)];
}

static void time_rows(Walk *w) {
    Lower *l = w->l;
    int64_t at = 0;
    size_t n = (size_t)N_SEGMENTS * (size_t)w->batches;
    int32_t *next = ARENA_ARRAY(l->arena, int32_t, (size_t)N_SEGMENTS * (size_t)l->slots);
    w->begin = ARENA_ARRAY(l->arena, int32_t, w->n_rows + 1);
    w->until = ARENA_ARRAY(l->arena, int32_t, w->n_rows + 1);
    w->at = ARENA_ARRAY(l->arena, int32_t, n);
    memset(w->at, 0xff, sizeof *w->at * n);
    for (uint32_t r = 0; r < w->n_rows; r++) {
        uint32_t segment = w->rows[r].segment;
        *row_at(w, segment, w->rows[r].microbatch) = (int32_t)r;
        w->begin[r] = (int32_t)at;
        at += l->segment_first[segment + 1] - l->segment_first[segment];
    }
    w->begin[w->n_rows] = (int32_t)at;
    for (size_t i = 0; i < (size_t)N_SEGMENTS * (size_t)l->slots; i++) next[i] = (int32_t)at;
    for (uint32_t r = w->n_rows; r-- > 0;) {
        int32_t *of = &next[w->rows[r].segment * (uint32_t)l->slots + (uint32_t)w->rows[r].slot];
        w->until[r] = *of;
        *of = w->begin[r];
    }
}

static void use(Use *of, int32_t time, bool sent) {
    if (of->last < of->first) of->first = of->last = time;
    if (time < of->first) of->first = time;
    if (time > of->last) of->last = time;
    of->sent |= sent;
}

static int segment_of(const Lower *l, int32_t time) {
    int segment = 0;
    while (segment + 1 < N_SEGMENTS && l->segment_first[segment + 1] <= time) segment++;
    return segment;
}

static void find_uses(Walk *w) {
    Lower *l = w->l;
    w->uses = ARENA_ARRAY(l->arena, Use, (size_t)l->n_buffers * N_SEGMENTS);
    for (size_t i = 0; i < (size_t)l->n_buffers * N_SEGMENTS; i++) w->uses[i].last = -1;
    w->late = ARENA_ARRAY(l->arena, bool, l->n_buffers);
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        const Kernel *kernel = &l->kernels[k];
        for (uint32_t i = 0; i < kernel->n_binds; i++) w->late[kernel->binds[i].buffer] |= kernel->last;
        for (uint32_t i = 0; i < kernel->n_binds; i++)
            use(&w->uses[kernel->binds[i].buffer * N_SEGMENTS + kernel->segment], kernel->time,
                kernel->op == PLAN_send);
    }
    for (uint32_t b = 0; b < l->n_buffers; b++) {
        const Buffer *buffer = &l->buffers[b];
        if (buffer->region != REGION_act && buffer->region != REGION_sym) continue;
        use(&w->uses[b * N_SEGMENTS + (uint32_t)segment_of(l, buffer->first)], buffer->first, false);
        use(&w->uses[b * N_SEGMENTS + (uint32_t)segment_of(l, buffer->last)], buffer->last, false);
    }
}

// The life of a buffer in one microbatch; false: none. A row outside microbatches counts as of the first.
static bool life_in(const Walk *w, uint32_t buffer, int32_t microbatch, Span *life) {
    bool any = false;
    for (uint32_t s = 0; s < N_SEGMENTS; s++) {
        const Use *of = &w->uses[buffer * N_SEGMENTS + s];
        int32_t row = of->last < of->first ? -1 : *row_at(w, s, microbatch);
        if (row < 0) continue;
        int32_t base = w->begin[row] - w->l->segment_first[s];
        Span here = { base + of->first, base + of->last };
        if (of->sent && w->until[row] - 1 > here.last) here.last = w->until[row] - 1;
        if (!any || here.first < life->first) life->first = here.first;
        if (!any || here.last > life->last) life->last = here.last;
        any = true;
    }
    return any;
}

// Does it live from row to row?
static bool crosses_rows(const Walk *w, uint32_t buffer) {
    int segments = 0;
    bool sent = false;
    for (uint32_t s = 0; s < N_SEGMENTS; s++) {
        const Use *of = &w->uses[buffer * N_SEGMENTS + s];
        segments += of->first <= of->last;
        sent |= of->sent;
    }
    return segments > 1 || sent;
}

// From the last row of a segment to that of another, or to the end.
static void add_late(const Walk *w, uint32_t buffer, Interval *item) {
    Span *life = ARENA_ARRAY(w->l->arena, Span, 1);
    bool any = false;
    for (uint32_t s = 0; s < N_SEGMENTS; s++) {
        const Use *of = &w->uses[buffer * N_SEGMENTS + s];
        int32_t row = -1;
        for (int32_t m = 0; of->first <= of->last && m < w->batches; m++)
            row = (int32_t)max_i64(row, *row_at(w, s, m));
        if (row < 0) continue;
        int32_t base = w->begin[row] - w->l->segment_first[s];
        if (!any || base + of->first < life->first) life->first = base + of->first;
        if (!any || base + of->last > life->last) life->last = base + of->last;
        any = true;
    }
    *item = (Interval){ .bytes = w->l->buffers[buffer].bytes, .lives = life, .n_lives = any,
                        .first = life->first, .last = life->last };
}

static void add_tenant(const Walk *w, uint32_t buffer, int32_t slot, bool slotted, Interval *item) {
    Lower *l = w->l;
    Span *lives = ARENA_ARRAY(l->arena, Span, w->batches);
    uint32_t n = 0;
    for (int32_t m = 0; m < w->batches; m++) {
        Span life;
        if (slotted && m % l->slots != slot) continue;
        if (!life_in(w, buffer, m, &life)) continue;
        uint32_t to = n++;
        for (; to > 0 && lives[to - 1].first > life.first; to--) lives[to] = lives[to - 1];
        lives[to] = life;
    }
    *item = (Interval){ .bytes = l->buffers[buffer].bytes, .lives = lives, .n_lives = n };
    if (!n) return; // a slot that no microbatch takes
    item->first = lives[0].first;
    item->last = lives[n - 1].last;
}

Interval *place_over_rows(Lower *l, Region region, Tenant **tenants, uint32_t *n) {
    Walk w = { .l = l };
    take_rows(&w);
    time_rows(&w);
    find_uses(&w);
    uint32_t most = l->n_buffers * (uint32_t)l->slots;
    Interval *items = ARENA_ARRAY(l->arena, Interval, most + 1);
    *tenants = ARENA_ARRAY(l->arena, Tenant, most + 1);
    *n = 0;
    for (uint32_t b = 0; b < l->n_buffers; b++) {
        Buffer *buffer = &l->buffers[b];
        if (buffer->region != region) continue;
        bool slotted = l->slots > 1 && !w.late[b] && crosses_rows(&w, b);
        buffer->n_further = slotted ? l->slots - 1 : 0;
        if (slotted) buffer->further = ARENA_ARRAY(l->arena, int64_t, buffer->n_further);
        for (int32_t slot = 0; slot <= buffer->n_further; slot++) {
            (*tenants)[*n] = (Tenant){ b, slot };
            if (w.late[b]) add_late(&w, b, &items[(*n)++]);
            else add_tenant(&w, b, slot, slotted, &items[(*n)++]);
        }
    }
    return items;
}
