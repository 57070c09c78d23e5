// SPDX-License-Identifier: Apache-2.0
// What crosses ranks while kernels run. Kernels are in order by now; this pass says where in that order what
// is sent begins, and where it is waited for. It changes no kernel and none of their order, so no bit.
//
//   resident gradients     a bucket's exchange starts when the last microbatch has made the last of its gradients,
//                          in last rows; the oldest ones are waited for and added up when too much is under way (but
//                          where a stage before waits for what this one sends: then no more start), the rest after the
//                          microbatches. Buckets go in the order of their numbers, in which they
//                          get ready (buckets.c), and their sums come to lie over what is through (plan.h)
//   gathered weights       start while the ones before them are used, in each segment
//   gradients of           are waited for and added up when too much is under way, or the segment ends
//   sharded weights
//
// What is under way holds memory. Of resident gradients it starts no earlier than the values of backward
// leave room for it below their peak.
#include <stdlib.h>

#include "compiler/lower/pass.h"

enum { MOST_UNDER_WAY = 128 << 20 /* bytes of resident gradients, or one bucket */ };

// A kernel behind what was at a time in the order before; first those that were there.
typedef struct Place {
    int32_t after;
    uint32_t segment, sequence, kernel;
} Place;

typedef struct Overlap {
    Lower *l;
    int32_t n_before; // kernels in order when the pass began
    Place *places;    // of those that come in or move
    uint32_t n_places, cap_places;
    bool *moved;      // by kernel
    int64_t *live, peak; // [n_before] bytes of act in use at a time; the most
} Overlap;

static bool is_off(const Lower *l) {
    return l->layout->overlap == OVERLAP_OFF;
}

static void put(Overlap *o, int32_t after, uint32_t kernel) {
    uint32_t n = o->n_places;
    *ARENA_PUSH(o->l->arena, o->places, o->n_places, o->cap_places) =
        (Place){ after, o->l->kernels[kernel].segment, n, kernel };
}

static void move(Overlap *o, int32_t after, uint32_t kernel) {
    o->moved[kernel] = true;
    put(o, after, kernel);
}

static int by_place(const void *left, const void *right) {
    const Place *a = left, *b = right;
    if (a->after != b->after) return a->after < b->after ? -1 : 1;
    if (a->segment != b->segment) return a->segment < b->segment ? -1 : 1;
    return a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}

static void put_in_order(Overlap *o) {
    Lower *l = o->l;
    uint32_t *order = ARENA_ARRAY(l->arena, uint32_t, l->n_kernels), n = 0;
    if (o->n_places) qsort(o->places, o->n_places, sizeof *o->places, by_place);
    for (int32_t t = -1, p = 0; t < o->n_before; t++) {
        if (t >= 0 && !o->moved[l->order[t]]) order[n++] = l->order[t];
        for (; (uint32_t)p < o->n_places && o->places[p].after == t; p++) order[n++] = o->places[p].kernel;
    }
    l->order = order;
    memset(l->segment_first, 0, sizeof l->segment_first);
    for (uint32_t t = 0; t < n; t++) {
        l->kernels[order[t]].time = (int32_t)t;
        l->segment_first[l->kernels[order[t]].segment + 1]++;
    }
    for (int s = 0; s < N_SEGMENTS; s++) l->segment_first[s + 1] += l->segment_first[s];
}

// The other half of a crossing that becomes a start.
static uint32_t wait_of(Lower *l, uint32_t start) {
    Kernel *kernel = &l->kernels[start];
    kernel->half = HALF_start;
    uint32_t from = kernel->binds[0].buffer, to = kernel->binds[1].buffer;
    uint32_t wait = lower_add_crossing(l, (SegmentKind)kernel->segment, 0, (PlanOp)kernel->op,
                                       (PlanGroup)kernel->group);
    l->kernels[wait].half = HALF_wait;
    lower_bind(l, wait, "from", from, OPERAND_READ);
    lower_bind(l, wait, "to", to, OPERAND_INPLACE);
    return wait;
}

// Does the kernel gather masters, or exchange gradients that this segment made?
static bool crosses(const Lower *l, uint32_t kernel, PlanOp op) {
    const Kernel *k = &l->kernels[kernel];
    if (k->op != op || k->group == GROUP_world) return false;
    const Buffer *from = &l->buffers[k->binds[0].buffer];
    return from->kind == BUFFER_RANGE &&
           (from->region == REGION_act || (op == PLAN_gather && from->region == REGION_master));
}

static int64_t bytes_to(const Lower *l, uint32_t kernel) {
    return l->buffers[l->kernels[kernel].binds[1].buffer].bytes;
}

static void find_live(Overlap *o) {
    Lower *l = o->l;
    o->live = ARENA_ARRAY(l->arena, int64_t, o->n_before + 1);
    for (uint32_t b = 0; b < l->n_buffers; b++) {
        const Buffer *buffer = &l->buffers[b];
        if (buffer->region != REGION_act) continue;
        o->live[buffer->first] += round_up(buffer->bytes, PLAN_GRAIN);
        o->live[buffer->last + 1] -= round_up(buffer->bytes, PLAN_GRAIN);
    }
    for (int32_t t = 0; t < o->n_before; t++) {
        if (t) o->live[t] += o->live[t - 1];
        o->peak = max_i64(o->peak, o->live[t]);
    }
}

/* Weights -------------------------------------------------------------------------------------- */

// Gathers of masters of one segment: times, ascending.
static uint32_t list_crossings(const Overlap *o, int segment, bool gathers, int32_t *times, int64_t *most) {
    const Lower *l = o->l;
    uint32_t n = 0;
    *most = 0;
    for (int32_t t = l->segment_first[segment]; t < l->segment_first[segment + 1]; t++) {
        uint32_t kernel = l->order[t];
        if (!crosses(l, kernel, gathers ? PLAN_gather : PLAN_exchange)) continue;
        times[n++] = t;
        *most = max_i64(*most, bytes_to(l, kernel));
    }
    return n;
}

// May as many bytes more be in use from `from` until right before `to`? Of sharded weights always.
static bool fits(const Overlap *o, int segment, int32_t from, int32_t to, int64_t bytes) {
    for (int32_t t = from; segment == SEGMENT_UPDATE && t < to; t++)
        if (o->live[t] + bytes > o->peak) return false;
    return true;
}

// When the k-th is waited for, later ones start: as many as come to no more bytes than the largest, or one.
static void split_gathers(Overlap *o, int segment, int32_t *times) {
    Lower *l = o->l;
    int64_t most, ahead = 0;
    uint32_t n = list_crossings(o, segment, true, times, &most), started = 1;
    uint32_t *kernels = ARENA_ARRAY(l->arena, uint32_t, n + 1);
    for (uint32_t k = 0; k < n; k++) kernels[k] = l->order[times[k]];
    for (uint32_t k = 0; k < n; k++) {
        int32_t at = times[k];
        if (k && started > k) {
            put(o, at, wait_of(l, kernels[k]));
            ahead -= bytes_to(l, kernels[k]);
        } else started = k + 1; // it is whole
        for (; started < n && (started == k + 1 || ahead + bytes_to(l, kernels[started]) <= most); started++) {
            int64_t more = ahead + bytes_to(l, kernels[started]);
            if (!fits(o, segment, at + 1, times[started], more)) break;
            ahead = more;
            // What rounds this rank's masters goes with it.
            const Buffer *from = &l->buffers[l->kernels[kernels[started]].binds[0].buffer];
            if (from->region == REGION_act) move(o, at, from->writer - 1);
            move(o, at, kernels[started]);
        }
    }
}

/* Gradients of sharded weights ----------------------------------------------------------------- */

static uint32_t reader_of(const Lower *l, uint32_t buffer) {
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        const Kernel *kernel = &l->kernels[k];
        if (kernel->desc.family != FAMILY_REDUCE || kernel->op != PLAN_launch) continue;
        for (uint32_t i = 0; i < kernel->n_binds; i++)
            if (kernel->binds[i].buffer == buffer && kernel->binds[i].mode == OPERAND_READ) return k;
    }
    return NO_KERNEL;
}

static void end_exchange(Overlap *o, int32_t after, uint32_t exchange) {
    Lower *l = o->l;
    uint32_t reduce = reader_of(l, l->kernels[exchange].binds[1].buffer);
    put(o, after, wait_of(l, exchange));
    move(o, after, reduce);
}

// The last time before `t` behind which something may come in: not within a repeat.
static int32_t before(const Lower *l, int32_t t) {
    while (t > 0 && l->kernels[l->order[t]].repeat &&
           l->kernels[l->order[t]].repeat == l->kernels[l->order[t - 1]].repeat)
        t--;
    return t - 1;
}

static void split_exchanges(Overlap *o, int segment, int32_t *times) {
    Lower *l = o->l;
    int64_t most, under_way = 0;
    uint32_t n = list_crossings(o, segment, false, times, &most), ended = 0;
    uint32_t *kernels = ARENA_ARRAY(l->arena, uint32_t, n + 1);
    for (uint32_t k = 0; k < n; k++) kernels[k] = l->order[times[k]];
    for (uint32_t k = 0; k < n; k++) {
        int64_t bytes = bytes_to(l, kernels[k]);
        for (; ended < k && under_way + bytes > most; ended++) {
            under_way -= bytes_to(l, kernels[ended]);
            end_exchange(o, before(l, times[k]), kernels[ended]);
        }
        under_way += bytes;
    }
    for (; ended < n; ended++) end_exchange(o, l->segment_first[segment + 1] - 1, kernels[ended]);
}

/* Resident gradients --------------------------------------------------------------------------- */

typedef struct Sum {
    uint32_t bucket, exchange, parts;
    int32_t ready; // time of the last kernel that adds to its gradients
} Sum;

typedef struct Sums {
    Overlap *o;
    Sum *items;
    uint32_t n;
    int32_t update, end;    // time of who reads the sums; of the end of microbatches
    int64_t *later;         // [end + 1] most bytes in use from a time on
    int64_t under_way;
    uint32_t started, ended;
} Sums;

static void find_ready(const Sums *s) {
    const Lower *l = s->o->l;
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        for (uint32_t i = 0; i < l->kernels[k].n_binds; i++) {
            const Buffer *buffer = &l->buffers[l->kernels[k].binds[i].buffer];
            if (buffer->kind != BUFFER_GRADIENT) continue;
            const PlanBucket *bucket =
                plan_bucket(l->plan, lower_param(l, l->m->nodes[buffer->node].attr.index));
            for (uint32_t j = 0; j < s->n; j++)
                if (bucket == &l->plan->buckets[s->items[j].bucket] && l->kernels[k].time > s->items[j].ready)
                    s->items[j].ready = l->kernels[k].time;
        }
    }
    for (uint32_t j = 1; j < s->n; j++)
        s->items[j].ready = (int32_t)max_i64(s->items[j].ready, s->items[j - 1].ready);
}

static void find_room(Sums *s) {
    s->later = ARENA_ARRAY(s->o->l->arena, int64_t, s->end + 1);
    for (int32_t t = s->end; t-- > 0;) s->later[t] = max_i64(s->o->live[t], s->later[t + 1]);
}

static uint32_t add_reduce(Sums *s, const Sum *sum, SegmentKind segment) {
    Lower *l = s->o->l;
    const PlanBucket *bucket = &l->plan->buckets[sum->bucket];
    int32_t ranks = lower_bucket_ranks(l, bucket);
    uint32_t shard = lower_range(l, arena_printf(l->arena, "bucket.%u.sum", sum->bucket), REGION_grads,
                                 bucket->shard, bucket->bytes / ranks);
    uint32_t reduce = lower_add_reduce(l, segment, 0, sum->parts, shard, ranks, false);
    l->kernels[reduce].last = segment != SEGMENT_UPDATE;
    return reduce;
}

static void add_exchange(Sums *s, Sum *sum, SegmentKind segment) {
    Lower *l = s->o->l;
    const PlanBucket *bucket = &l->plan->buckets[sum->bucket];
    const char *name = arena_printf(l->arena, "bucket.%u", sum->bucket);
    uint32_t all = lower_range(l, arena_printf(l->arena, "%s.gradient", name), REGION_grads, bucket->grads,
                               bucket->bytes);
    sum->parts = lower_range(l, arena_printf(l->arena, "%s.parts", name), REGION_act, 0, bucket->bytes);
    sum->exchange = lower_add_crossing(l, segment, 0, PLAN_exchange, (PlanGroup)bucket->group);
    l->kernels[sum->exchange].last = segment != SEGMENT_UPDATE;
    lower_bind(l, sum->exchange, "from", all, OPERAND_READ);
    lower_bind(l, sum->exchange, "to", sum->parts, OPERAND_WRITE);
}

// Waits for the oldest one and adds it up.
static void end_oldest(Sums *s, int32_t after, SegmentKind segment) {
    Lower *l = s->o->l;
    const Sum *sum = &s->items[s->ended++];
    uint32_t wait = wait_of(l, sum->exchange);
    l->kernels[wait].segment = (uint8_t)segment;
    l->kernels[wait].last = segment != SEGMENT_UPDATE;
    put(s->o, after, wait);
    put(s->o, after, add_reduce(s, sum, segment));
    s->under_way -= bytes_to(l, sum->exchange);
}

// False: there is no room before the end of the microbatches.
static bool start_early(Sums *s, Sum *sum, int32_t *at) {
    Lower *l = s->o->l;
    int64_t bytes = l->plan->buckets[sum->bucket].bytes;
    int32_t t = (int32_t)max_i64(sum->ready, *at);
    bool sends = l->plan->mesh.stage > 0 || l->layout->chunks > 1; // what the stage before waits for
    if (sum->ready < 0 || is_off(l)) return false;
    for (; t < s->end; t++) {
        const Kernel *here = &l->kernels[l->order[t]];
        if (here->repeat && t + 1 < s->end && l->kernels[l->order[t + 1]].repeat == here->repeat) continue;
        SegmentKind segment = (SegmentKind)here->segment;
        while (s->under_way && (s->under_way + bytes > MOST_UNDER_WAY ||
                                s->later[t + 1] + s->under_way + bytes > s->o->peak)) {
            if (sends) return false;
            end_oldest(s, t, segment);
        }
        if (s->later[t + 1] + bytes > s->o->peak) continue;
        add_exchange(s, sum, segment);
        put(s->o, t, sum->exchange);
        s->under_way += bytes;
        *at = t;
        return true;
    }
    return false;
}

static void make_sums(Sums *s) {
    int32_t at = 0;
    while (s->started < s->n && start_early(s, &s->items[s->started], &at)) s->started++;
    while (s->ended < s->started) end_oldest(s, s->update - 1, SEGMENT_UPDATE);
    for (uint32_t k = s->started; k < s->n; k++) {
        add_exchange(s, &s->items[k], SEGMENT_UPDATE);
        put(s->o, s->update - 1, s->items[k].exchange);
        put(s->o, s->update - 1, add_reduce(s, &s->items[k], SEGMENT_UPDATE));
    }
}

// Times rise as last rows do: segments of a step stand in that order.
static void sum_resident(Overlap *o) {
    Lower *l = o->l;
    Sums s = { .o = o, .end = l->segment_first[SEGMENT_UPDATE] };
    s.items = ARENA_ARRAY(l->arena, Sum, l->plan->n_buckets + 1);
    for (uint32_t i = 0; i < l->plan->n_buckets; i++) {
        const PlanBucket *bucket = &l->plan->buckets[i];
        if (lower_bucket_ranks(l, bucket) > 1 && !bucket->sharded)
            s.items[s.n++] = (Sum){ .bucket = i, .ready = -1 };
    }
    if (!s.n) return;
    for (s.update = s.end; l->kernels[l->order[s.update]].desc.family != FAMILY_SUMSQ ||
                           l->kernels[l->order[s.update]].op != PLAN_launch;)
        s.update++;
    find_ready(&s);
    find_room(&s);
    make_sums(&s);
}

void overlap_crossings(Lower *l) {
    Overlap o = { .l = l, .n_before = (int32_t)l->n_kernels };
    int32_t *times = ARENA_ARRAY(l->arena, int32_t, l->n_kernels + 1);
    o.moved = ARENA_ARRAY(l->arena, bool, l->n_kernels + 1);
    bool step = l->program == PROGRAM_STEP;
    if (!l->plan->n_buckets) return;
    find_live(&o);
    for (int segment = 0; segment < N_SEGMENTS && !is_off(l); segment++) {
        split_gathers(&o, segment, times);
        if (step && segment < SEGMENT_UPDATE) split_exchanges(&o, segment, times);
    }
    if (step && !l->probe) sum_resident(&o);
    if (!o.n_places) return;
    put_in_order(&o);
    schedule_lives(l);
}
