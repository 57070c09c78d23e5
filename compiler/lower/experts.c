// SPDX-License-Identifier: Apache-2.0
// Experts on other ranks (ep > 1): how many rows a rank has, the route over ranks, and when ranks meet.
//
// A rank holds experts / ep of a route's experts and CAPACITY rows for them. A dispatch is a row program
// over tokens that puts rows into the owners' memory; a collect gets them from there. Both read
// row_of_slot (owner * CAPACITY + row, or -1), which every rank computes from everybody's counts; where ranks are
// on several nodes, blocks.c is in between:
//
//   count -> @exchange ep -> route_ranks -> put .. @barrier .. experts .. @barrier .. get
//
// Without drops a layout may give a rank rows for a round only: rounds.c has what becomes of the others.
//
// With row_align (plan.h) an expert's first row is a multiple of it: CAPACITY is of rows and pads, every rank computes
// the same places, and pads.c zeroes what nobody has put.
//
// Barriers are no kernels of the graph: the scheduler asks, before it runs a kernel, whether ranks must
// have met since what has run, and lets everything else go first. So what does not depend on other
// ranks fills the time until the last of them comes, and all that waits for a meeting shares it.
#include <math.h>
#include <stdlib.h>

#include "compiler/lower/pass.h"

int32_t lower_ep(const Lower *l) {
    return l->layout->ep;
}

int32_t lower_experts(const Lower *l, const Type *type) {
    return model_experts(l->m, type) / lower_ep(l);
}

// Rows that all ranks' tokens can ask of one.
static int64_t most_rows(const Lower *l, uint32_t route) {
    Type rows = { .row = ROW_R, .route = route };
    return l->tokens * model_top_k(l->m, &rows) * lower_ep(l);
}

// The layout's factor, else the spec's; 0: no limit.
static double capacity_of(const Lower *l, uint32_t route) {
    double own = l->layout->capacity, spec = (double)l->m->nodes[route].attr.route.capacity;
    return own > 0 ? isinf(own) ? 0 : own : spec;
}

int32_t lower_align(const Lower *l) {
    return l->layout->row_align > 1 ? l->layout->row_align : 1;
}

// So many rows of any experts, with pads: every expert that has some ends up to align - 1 rows before a multiple.
static int64_t with_pads(const Lower *l, uint32_t route, int64_t rows) {
    Type type = { .row = ROW_R, .route = route };
    int64_t align = lower_align(l), ends = min_i64(lower_experts(l, &type), rows);
    return (rows + ends * (align - 1)) / align * align;
}

// Copies that a rank takes.
static int64_t limit_of(const Lower *l, uint32_t route) {
    int64_t most = most_rows(l, route), even = most / lower_ep(l);
    double factor = capacity_of(l, route);
    if (factor <= 0 && isfinite(l->layout->round)) factor = l->layout->round; // 0: one for all
    if (factor <= 0 || factor * (double)even >= (double)most) return most;
    // Factors are fp32 numbers: 1.1 of 10 rows is 11, not 12.
    return max_i64((int64_t)ceil(factor * (double)even * (1 - 0x1p-23)), 1);
}

int64_t lower_capacity(const Lower *l, uint32_t route) {
    return with_pads(l, route, lower_ep(l) > 1 ? limit_of(l, route) : most_rows(l, route));
}

// Rounds are cuts of the rows with their pads.
int32_t lower_rounds(const Lower *l, uint32_t route) {
    bool drops = capacity_of(l, route) > 0 || lower_ep(l) == 1;
    return drops ? 0
                 : (int32_t)(div_up(with_pads(l, route, most_rows(l, route)), lower_capacity(l, route)) - 1);
}

bool lower_check_route(Lower *l, uint32_t n) {
    Type rows = { .row = ROW_R, .route = n };
    int32_t experts = model_experts(l->m, &rows), ep = lower_ep(l);
    double capacity = capacity_of(l, n);
    if (ep == 1 && capacity > 0 && capacity < 1) {
        lower_fail(l, n, "route: a capacity factor of %g drops copies, and no kernel drops any on one rank",
                   capacity);
        diag_hint(l->from, "give 1 or more, or leave capacity out: one rank has room for every copy");
        return false;
    }
    if (experts % ep) {
        lower_fail(l, n, "route: expected experts in equal numbers on %d ranks of ep, got %d", ep, experts);
        return false;
    }
    int64_t places = max_i64(lower_capacity(l, n) * (lower_rounds(l, n) + 1) * ep, // of all rounds
                             blocks_most_places(l, n));
    if (places > INT32_MAX - 2) {
        lower_fail(l, n, "route: expected at most %d rows on all ranks of ep, got %lld", INT32_MAX - 2,
                   (long long)places);
        diag_hint(l->from, "a smaller microbatch, or a capacity factor");
        return false;
    }
    return true;
}

/* The route ------------------------------------------------------------------------------------ */

const int32_t *lower_owners(const Lower *l, const char *address) {
    int layer = strncmp(address, "layers.", 7) ? 0 : atoi(address + 7); // from 1
    if (!l->layout->placement || layer < 1) return NULL;
    return l->layout->placement + (int64_t)(layer - 1) * l->layout->experts;
}

// The record of a metric beside the route; -1: this program does not keep it.
static int32_t record_of(const Lower *l, uint32_t route, const char *name) {
    const Model *m = l->m;
    const char *scope = model_name(m, m->nodes[route].addr);
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        const Node *node = &m->nodes[n];
        if (node->op != OP_RECORD || l->info[n].role == ROLE_DEAD) continue;
        const char *address = model_name(m, m->records[node->attr.index].addr), *dot = strrchr(address, '.');
        size_t prefix = dot ? (size_t)(dot - address) : 0;
        if (!strcmp(dot ? dot + 1 : address, name) && strlen(scope) == prefix &&
            !memcmp(scope, address, prefix))
            return (int32_t)node->attr.index;
    }
    return -1;
}

// What is lost where more is asked for than there are rows.
static void bind_drops(Lower *l, uint32_t kernel, uint32_t n) {
    KernelDesc *d = &l->kernels[kernel].desc;
    const char *address = model_name(l->m, l->m->nodes[n].addr);
    int32_t load = record_of(l, n, "load"), dropped = record_of(l, n, "dropped");
    d->drops = true;
    d->stream = hash_bytes(address, strlen(address)).low;
    d->accumulate = load >= 0 && dropped >= 0;
    lower_bind(l, kernel, "index", lower_buffer(l, BUFFER_INPUT, 0, INPUT_index << 16), OPERAND_READ);
    lower_bind(l, kernel, "scalars", lower_buffer(l, BUFFER_SCALARS, 0, 0), OPERAND_READ);
    if (load < 0 || dropped < 0) return;
    lower_bind(l, kernel, "labels", lower_buffer(l, BUFFER_INPUT, 0, INPUT_labels << 16 | 1), OPERAND_READ);
    lower_bind(l, kernel, "load", lower_buffer(l, BUFFER_METRIC, 0, load), OPERAND_ADD);
    lower_bind(l, kernel, "dropped", lower_buffer(l, BUFFER_METRIC, 0, dropped), OPERAND_ADD);
}

// How often more rounds are asked for, as all ranks know it: what the repeats of the route are counted by. They
// tell each other when the first round's rows have been put, where they would meet anyway.
static void bind_rounds(Lower *l, uint32_t kernel, uint32_t n) {
    SegmentKind segment = (SegmentKind)l->kernels[kernel].segment;
    uint32_t own = lower_buffer(l, BUFFER_ROUNDS, n, 0), all = lower_buffer(l, BUFFER_ROUNDS, n, 1);
    l->kernels[kernel].desc.rounds = lower_rounds(l, n);
    lower_bind(l, kernel, "starts", lower_buffer(l, BUFFER_STARTS, n, 0), OPERAND_WRITE);
    lower_bind(l, kernel, "numbers", lower_buffer(l, BUFFER_NUMBERS, n, 0), OPERAND_WRITE);
    lower_bind(l, kernel, "rounds", own, OPERAND_WRITE);
    uint32_t gather = lower_add_crossing(l, segment, l->kernels[kernel].depth, PLAN_gather, GROUP_ep);
    l->kernels[gather].node = n;
    lower_bind(l, gather, "from", own, OPERAND_READ);
    lower_bind(l, gather, "to", all, OPERAND_WRITE);
}

void describe_route_ranks(Lower *l, uint32_t kernel, uint32_t n, uint32_t ids) {
    Type rows = { .row = ROW_R, .route = n };
    SegmentKind segment = (SegmentKind)l->kernels[kernel].segment;
    int32_t depth = l->kernels[kernel].depth;
    KernelDesc desc = { .rows = l->tokens,
                        .top_k = model_top_k(l->m, &rows),
                        .experts = model_experts(l->m, &rows),
                        .ranks = lower_ep(l),
                        .loc = l->m->nodes[n].loc };
    uint32_t counts = lower_buffer(l, BUFFER_COUNTS, n, 0), all = lower_buffer(l, BUFFER_COUNTS, n, 1),
             count = lower_add_kernel(l, segment, depth, FAMILY_COUNT),
             exchange = lower_add_crossing(l, segment, depth, PLAN_exchange, GROUP_ep);
    desc.family = FAMILY_COUNT;
    l->kernels[count].desc = desc;
    l->kernels[count].node = l->kernels[exchange].node = n;
    lower_bind(l, count, "ids", ids, OPERAND_READ);
    lower_bind(l, count, "counts", counts, OPERAND_WRITE);
    lower_bind(l, exchange, "from", counts, OPERAND_READ);
    lower_bind(l, exchange, "to", all, OPERAND_WRITE);
    desc.family = FAMILY_ROUTE_RANKS;
    desc.capacity = lower_capacity(l, n);
    if (lower_align(l) > 1) desc.align = lower_align(l);
    if (desc.align) desc.limit = limit_of(l, n);
    desc.owner = lower_owners(l, model_name(l->m, l->m->nodes[n].addr));
    l->kernels[kernel].desc = desc;
    lower_bind(l, kernel, "ids", ids, OPERAND_READ);
    lower_bind(l, kernel, "counts", all, OPERAND_READ);
    if (limit_of(l, n) < most_rows(l, n) && !lower_rounds(l, n)) bind_drops(l, kernel, n);
    lower_bind(l, kernel, "row_of_slot", lower_buffer(l, BUFFER_ROW_OF_SLOT, n, 0), OPERAND_WRITE);
    lower_bind(l, kernel, "offsets", lower_buffer(l, BUFFER_OFFSETS, n, 0), OPERAND_WRITE);
    if (lower_rounds(l, n)) bind_rounds(l, kernel, n);
    if (lower_in_blocks(l)) blocks_describe_route(l, segment, depth, n);
}

void describe_round(Lower *l, uint32_t kernel, uint32_t n) {
    uint32_t route = model_arg(l->m, n, 1);
    Type rows = { .row = ROW_R, .route = n };
    KernelDesc *d = &l->kernels[kernel].desc;
    *d = (KernelDesc){ .family = FAMILY_ROUND,
                       .rows = l->tokens,
                       .top_k = model_top_k(l->m, &rows),
                       .experts = model_experts(l->m, &rows),
                       .ranks = lower_ep(l),
                       .capacity = lower_capacity(l, n),
                       .align = lower_align(l) > 1 ? lower_align(l) : 0,
                       .loc = l->m->nodes[n].loc };
    lower_bind(l, kernel, "table", lower_buffer(l, BUFFER_ROW_OF_SLOT, route, 0), OPERAND_READ);
    lower_bind(l, kernel, "starts", lower_buffer(l, BUFFER_STARTS, route, 0), OPERAND_READ);
    lower_bind(l, kernel, "number", lower_buffer(l, BUFFER_NUMBERS, route, 0), OPERAND_READ);
    l->kernels[kernel].binds[l->kernels[kernel].n_binds - 1].step = dtype_bytes(DTYPE_I32);
    lower_bind(l, kernel, "row_of_slot", lower_buffer(l, BUFFER_ROW_OF_SLOT, n, 0), OPERAND_WRITE);
    lower_bind(l, kernel, "offsets", lower_buffer(l, BUFFER_OFFSETS, n, 0), OPERAND_WRITE);
    if (lower_in_blocks(l))
        blocks_describe_route(l, (SegmentKind)l->kernels[kernel].segment, l->kernels[kernel].depth, n);
}

/* Meetings ------------------------------------------------------------------------------------- */

void meet_start(Lower *l, Meetings *m) {
    *m = (Meetings){ .unmet = ARENA_ARRAY(l->arena, uint8_t, l->n_buffers) };
}

void meet_segment(Meetings *m) {
    m->met = false;
}

bool meet_is_due(const Lower *l, const Meetings *m, uint32_t kernel) {
    const Kernel *k = &l->kernels[kernel];
    for (uint32_t i = 0; i < k->n_binds; i++) {
        const Bind *bind = &k->binds[i];
        uint8_t unmet = m->unmet[bind->buffer];
        if (l->buffers[bind->buffer].region != REGION_sym) continue;
        if (bind->mode == OPERAND_WRITE && !m->met) return true;
        if (bind->mode == OPERAND_INPLACE && unmet & UNMET_PUT) return true;
        if (bind->mode == OPERAND_READ && unmet & (bind->remote ? UNMET_WRITE | UNMET_PUT : UNMET_PUT))
            return true;
    }
    return false;
}

// Whether the ranks that reach each other meet in the kernel. Buckets cross in halves, in which nobody meets
// (overlap.c).
static bool meets(const Lower *l, const Kernel *k) {
    bool of_group = k->op == PLAN_barrier || k->op == PLAN_gather || k->op == PLAN_exchange;
    const Buffer *from = k->n_binds ? &l->buffers[k->binds[0].buffer] : NULL;
    bool bucket = from && from->kind == BUFFER_RANGE && k->group != GROUP_world;
    return of_group && !bucket && plan_group_holds((PlanGroup)k->group, lower_reach(l));
}

void meet_run(const Lower *l, Meetings *m, uint32_t kernel) {
    const Kernel *k = &l->kernels[kernel];
    if (meets(l, k)) {
        memset(m->unmet, 0, l->n_buffers);
        m->met = true;
        m->open = false;
    }
    for (uint32_t i = 0; i < k->n_binds; i++) {
        const Bind *bind = &k->binds[i];
        if (l->buffers[bind->buffer].region != REGION_sym) continue;
        m->open |= bind->remote;
        bool writes = bind->mode == OPERAND_WRITE || bind->mode == OPERAND_INPLACE;
        if (writes) m->unmet[bind->buffer] |= bind->remote ? UNMET_PUT : UNMET_WRITE;
    }
}

// What a counted repeat did may not have happened: what held before it may still hold.
void meet_join(const Lower *l, Meetings *m, const Meetings *before) {
    for (uint32_t b = 0; b < l->n_buffers; b++) m->unmet[b] |= before->unmet[b];
    m->met = before->met;
    m->open |= before->open;
}

static uint32_t counted_of(const Lower *l, uint32_t kernel) {
    uint32_t repeat = l->kernels[kernel].repeat;
    return repeat && l->repeats[repeat - 1].count ? repeat : 0;
}

// Where a buffer of sym lives beyond what this rank does with it: other ranks may put from the meeting
// before the put on, and get until the one after the get. Meetings in a counted repeat, which may not run,
// count for its own kernels only.
void meet_lives(Lower *l) {
    int32_t n = (int32_t)l->n_kernels;
    int32_t *before = ARENA_ARRAY(l->arena, int32_t, n + 1), *after = ARENA_ARRAY(l->arena, int32_t, n + 1);
    for (int s = 0; s < N_SEGMENTS; s++) {
        int32_t first = l->segment_first[s], end = l->segment_first[s + 1];
        uint32_t inside = 0;
        for (int32_t t = first, last = first, outside = first; t < end; t++) {
            uint32_t repeat = counted_of(l, l->order[t]);
            if (inside && repeat != inside) last = outside;
            if (repeat != inside) outside = last;
            inside = repeat;
            before[t] = last;
            if (meets(l, &l->kernels[l->order[t]])) last = t;
        }
        inside = 0;
        for (int32_t t = end - 1, next = end, outside = end; t >= first; t--) {
            uint32_t repeat = counted_of(l, l->order[t]);
            if (inside && repeat != inside) next = outside;
            if (repeat != inside) outside = next;
            inside = repeat;
            after[t] = max_i64(next - 1, t);
            if (meets(l, &l->kernels[l->order[t]])) next = t;
        }
    }
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        const Kernel *kernel = &l->kernels[k];
        for (uint32_t i = 0; i < kernel->n_binds; i++) {
            Buffer *buffer = &l->buffers[kernel->binds[i].buffer];
            int32_t from = before[kernel->time], to = after[kernel->time];
            if (!kernel->binds[i].remote) continue;
            if (kernel->binds[i].mode == OPERAND_WRITE && from < buffer->first) buffer->first = from;
            if (kernel->binds[i].mode != OPERAND_WRITE && to > buffer->last) buffer->last = to;
        }
    }
}
