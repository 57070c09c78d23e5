// SPDX-License-Identifier: Apache-2.0
// Addresses of buffers that live for a part of a program only.
//
// Best fit: buffers in some order, each into the smallest gap between those already placed whose
// lives overlap its own, else on top of them. Three orders are tried and the lowest peak is kept;
// no placement can be lower than the bound, the largest sum of bytes alive at one time.
#include <stdlib.h>

#include "compiler/lower/pass.h"

typedef struct Key {
    uint32_t item;
    int64_t first, second, third;
} Key; // descending

static int compare_keys(const void *a, const void *b) {
    const Key *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? 1 : -1;
    if (x->second != y->second) return x->second < y->second ? 1 : -1;
    if (x->third != y->third) return x->third < y->third ? 1 : -1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static int64_t lower_bound(const Interval *items, uint32_t n, Arena *scratch) {
    int32_t end = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (items[i].last + 1 > end) end = items[i].last + 1;
    }
    int64_t *change = ARENA_ARRAY(scratch, int64_t, end + 1);
    for (uint32_t i = 0; i < n; i++) {
        int64_t bytes = round_up(items[i].bytes, PLAN_GRAIN);
        const Span whole = { items[i].first, items[i].last }, *lives = items[i].lives;
        for (uint32_t k = 0; k < (lives ? items[i].n_lives : 1); k++) {
            const Span *life = lives ? &lives[k] : &whole;
            change[life->first] += bytes;
            change[life->last + 1] -= bytes;
        }
    }
    int64_t alive = 0, most = 0;
    for (int32_t t = 0; t < end; t++) {
        alive += change[t];
        most = max_i64(most, alive);
    }
    return most;
}

static bool overlaps(const Interval *a, const Interval *b) {
    if (a->first > b->last || b->first > a->last) return false;
    const Span one = { a->first, a->last }, two = { b->first, b->last };
    const Span *x = a->lives ? a->lives : &one, *y = b->lives ? b->lives : &two;
    uint32_t n_x = a->lives ? a->n_lives : 1, n_y = b->lives ? b->n_lives : 1;
    for (uint32_t i = 0, k = 0; i < n_x && k < n_y;) {
        if (x[i].last < y[k].first) i++;
        else if (y[k].last < x[i].first) k++;
        else return true;
    }
    return false;
}

static int64_t length(const Interval *item) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < item->n_lives; i++) sum += item->lives[i].last - item->lives[i].first + 1;
    return item->lives ? sum : item->last - item->first + 1;
}

// Offset of one item; `placed` are those before it, by address.
static int64_t best_fit(const Interval *items, const Interval *item, const int64_t *at,
                        const uint32_t *placed, uint32_t n_placed) {
    int64_t bytes = round_up(item->bytes, PLAN_GRAIN), top = 0, best = -1, best_gap = INT64_MAX;
    for (uint32_t i = 0; i < n_placed; i++) {
        uint32_t other = placed[i];
        if (!overlaps(item, &items[other])) continue;
        int64_t gap = at[other] - top;
        if (gap >= bytes && gap < best_gap) {
            best = top;
            best_gap = gap;
        }
        top = max_i64(top, at[other] + round_up(items[other].bytes, PLAN_GRAIN));
    }
    return best >= 0 ? best : top;
}

static int64_t place_in_order(const Interval *items, uint32_t n, const Key *keys, uint32_t *placed,
                              int64_t *at) {
    int64_t peak = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t item = keys[i].item, to = i;
        at[item] = best_fit(items, &items[item], at, placed, i);
        peak = max_i64(peak, at[item] + round_up(items[item].bytes, PLAN_GRAIN));
        for (; to > 0 && at[placed[to - 1]] > at[item]; to--) placed[to] = placed[to - 1];
        placed[to] = item;
    }
    return peak;
}

static Key key_of(const Interval *item, uint32_t index, int order) {
    int64_t bytes = round_up(item->bytes, PLAN_GRAIN), life = length(item);
    if (order == 0) return (Key){ index, bytes, life, 0 };
    // Above 2^31 units of grain times life the product would not fit; sizes stay well below.
    if (order == 1) return (Key){ index, bytes / PLAN_GRAIN * life, bytes, 0 };
    return (Key){ index, -(int64_t)item->first, bytes, life };
}

int64_t place_intervals(Interval *items, uint32_t n, Arena *scratch, int64_t *bound) {
    *bound = lower_bound(items, n, scratch);
    Key *keys = ARENA_ARRAY(scratch, Key, n);
    uint32_t *placed = ARENA_ARRAY(scratch, uint32_t, n);
    int64_t *at = ARENA_ARRAY(scratch, int64_t, n), best = INT64_MAX;
    for (int order = 0; order < 3 && best > *bound; order++) {
        for (uint32_t i = 0; i < n; i++) keys[i] = key_of(&items[i], i, order);
        qsort(keys, n, sizeof *keys, compare_keys);
        int64_t peak = place_in_order(items, n, keys, placed, at);
        if (peak >= best) continue;
        best = peak;
        for (uint32_t i = 0; i < n; i++) items[i].offset = at[i];
    }
    return n ? best : 0;
}

static int64_t place_rows(Lower *l, Region region, int64_t *bound) {
    Tenant *tenants;
    uint32_t n;
    Interval *items = place_over_rows(l, region, &tenants, &n);
    int64_t peak = place_intervals(items, n, l->arena, bound);
    for (uint32_t i = 0; i < n; i++) {
        Buffer *buffer = &l->buffers[tenants[i].buffer];
        *(tenants[i].slot ? &buffer->further[tenants[i].slot - 1] : &buffer->offset) = items[i].offset;
    }
    return peak;
}

// Places the buffers of one region.
static int64_t place_region(Lower *l, Region region, int64_t *bound) {
    if (place_needs_rows(l)) return place_rows(l, region, bound);
    Interval *items = ARENA_ARRAY(l->arena, Interval, l->n_buffers);
    uint32_t *which = ARENA_ARRAY(l->arena, uint32_t, l->n_buffers), n = 0;
    for (uint32_t b = 0; b < l->n_buffers; b++) {
        const Buffer *buffer = &l->buffers[b];
        if (buffer->region != region) continue;
        items[n] =
            (Interval){ .bytes = buffer->bytes, .first = buffer->first, .last = buffer->last };
        which[n++] = b;
    }
    int64_t peak = place_intervals(items, n, l->arena, bound);
    for (uint32_t i = 0; i < n; i++) l->buffers[which[i]].offset = items[i].offset;
    return peak;
}

bool pass_place(Lower *l) {
    int64_t bound;
    l->act_bytes = place_region(l, REGION_act, &l->act_bound);
    l->sym_bytes = place_region(l, REGION_sym, &bound);
    return true;
}

void dump_place(const Lower *l, Text *out) {
    for (uint32_t b = 0; b < l->n_buffers; b++) {
        const Buffer *buffer = &l->buffers[b];
        if (buffer->region != REGION_act) continue;
        text_printf(out, "act+0x%llx %lld bytes %d..%d %s\n", (unsigned long long)buffer->offset,
                    (long long)buffer->bytes, buffer->first, buffer->last,
                    buffer->node ? op_info[l->m->nodes[buffer->node].op].name : "norm");
    }
    text_printf(out, "peak %lld bound %lld\n", (long long)l->act_bytes, (long long)l->act_bound);
}
