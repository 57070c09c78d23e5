// SPDX-License-Identifier: Apache-2.0
// A profile from probes of lowering. A probe lists the kernels and buffers of a step of one sequence on one
// rank; every quantity of it is a sum of what stays, what grows with tokens and what grows with rows of
// experts, so other microbatches, ep and capacities need no other probe. Layers whose products are equal are
// one class, and the middle one of a class stands for it: the first and last of a model join with what
// surrounds them.
//
// Memory. In a part's kernels the live bytes, less what earlier parts save, are sums of the same kind; those
// that no other moment exceeds in all three terms are kept, and the largest is taken for each choice.
#include <stdlib.h>

#include "compiler/search/profile_private.h"

typedef struct Grows { double stays, tokens, rows, experts; } Grows; // bytes of the probe

typedef struct PartKernel {
    CostKernel kernel;
    uint8_t pass, rows; // CostPass; RowKind
    bool packs;
    double trips, weights; // weights: of its bytes, what does not grow
} PartKernel;

typedef struct Moments { Grows *items; uint32_t n, cap; } Moments;

struct ProbePart {
    PartKernel *kernels;
    uint32_t n_kernels, cap_kernels;
    Grows saved[2], waits[2], both[2]; // both: saved and waiting
    Moments moments[2], late[2]; // by region: act, sym; late: where what waits stays
};

/* Collecting a probe --------------------------------------------------------------------------- */

typedef struct Seen {
    Profile *p;
    const Few *few;
    Arena *scratch;
    ProbeKernel *kernels;
    CostKernel *costs;
    uint8_t *rows;
    double *weights;
    uint8_t *packs;
    uint32_t n_packs, cap_packs, n_kernels, cap_kernels, cap_costs, n_costs, cap_rows, n_rows, cap_weights, n_weights;
    ProbeBuffer *buffers;
    uint32_t n_buffers, cap_buffers;
    double expert_rows;
} Seen;

static uint8_t rows_of(const ProbeKernel *kernel) {
    const KernelDesc *d = kernel->desc;
    switch (d->family) {
    case FAMILY_ROW: return d->body.row;
    case FAMILY_MATMUL:
    case FAMILY_MATMUL_T:
    case FAMILY_MATMUL_W: return d->experts ? ROW_R : ROW_T;
    case FAMILY_SEGMENT_SUM: return d->experts ? ROW_R : ROW_T;
    case FAMILY_PACK: return d->experts ? ROW_E : ROW_NONE;
    case FAMILY_REDUCE:
    case FAMILY_CLEAR: return kernel->experts ? ROW_E : ROW_NONE;
    default: return ROW_T;
    }
}

static double weights_of(const KernelDesc *d, const CostKernel *k) {
    bool wgrad = d->family == FAMILY_MATMUL_W;
    if (!wgrad && d->family != FAMILY_MATMUL && d->family != FAMILY_MATMUL_T) return 0;
    double numbers = wgrad ? k->groups * k->m * k->n : k->groups * k->n * k->k;
    return numbers * (wgrad || d->precision != PRECISION_BF16 ? 4 : 2) * (wgrad && d->accumulate ? 2 : 1);
}

static void see_kernel(void *user, const ProbeKernel *kernel) {
    Seen *s = user;
    CostKernel cost;
    cost_of_kernel(kernel->desc, 1, &cost);
    if (kernel->desc->family != FAMILY_ROW && kernel->desc->experts && rows_of(kernel) == ROW_R)
        s->expert_rows = fmax(s->expert_rows, (double)kernel->desc->rows);
    *ARENA_PUSH(s->scratch, s->kernels, s->n_kernels, s->cap_kernels) = *kernel;
    *ARENA_PUSH(s->scratch, s->costs, s->n_costs, s->cap_costs) = cost;
    *ARENA_PUSH(s->scratch, s->rows, s->n_rows, s->cap_rows) = rows_of(kernel);
    *ARENA_PUSH(s->scratch, s->packs, s->n_packs, s->cap_packs) =
        kernel->desc->family == FAMILY_PACK || kernel->desc->family == FAMILY_REDUCE;
    *ARENA_PUSH(s->scratch, s->weights, s->n_weights, s->cap_weights) = weights_of(kernel->desc, &cost);
}

static void see_buffer(void *user, const ProbeBuffer *buffer) {
    Seen *s = user;
    *ARENA_PUSH(s->scratch, s->buffers, s->n_buffers, s->cap_buffers) = *buffer;
}

static void grow(Grows *to, const ProbeBuffer *b, double sign) {
    double bytes = sign * (double)b->bytes;
    if (b->rows == ROW_T || b->rows == ROW_S) to->tokens += bytes;
    else if (b->rows == ROW_R) to->rows += bytes;
    else if (b->rows == ROW_E) to->experts += bytes;
    else to->stays += bytes;
}

static void add_grows(Grows *to, const Grows *more, double sign) {
    to->stays += sign * more->stays;
    to->tokens += sign * more->tokens;
    to->rows += sign * more->rows;
    to->experts += sign * more->experts;
}

static void keep_moment(Arena *arena, Moments *m, Grows g) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        const Grows *o = &m->items[i];
        if (o->stays >= g.stays && o->tokens >= g.tokens && o->rows >= g.rows && o->experts >= g.experts) return;
    }
    for (uint32_t i = 0; i < m->n; i++) {
        Grows o = m->items[i];
        if (!(g.stays >= o.stays && g.tokens >= o.tokens && g.rows >= o.rows && g.experts >= o.experts))
            m->items[n++] = o;
    }
    m->n = n;
    *ARENA_PUSH(arena, m->items, m->n, m->cap) = g;
}

static int by_first(const void *a, const void *b) {
    const ProbeBuffer *x = a, *y = b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : 0;
}

// The layer whose turn it is when a kernel runs: its own, but in backward some run ahead of layers that come
// first, while all that those save is there (updates of states; the table's gradient of further predictions).
// due: the layer that products of backward have yet to come to then, whatever else is left of those before.
static int32_t *find_turns(const Seen *s, int32_t *due) {
    int32_t *turns = ARENA_ARRAY(s->scratch, int32_t, s->n_kernels + 1), latest = -1;
    for (uint32_t i = s->n_kernels; i-- > 0;) {
        const CostKernel *k = &s->costs[i];
        int32_t layer = s->kernels[i].layer;
        bool product = k->class == COST_dense || k->class == COST_experts || k->class == COST_attention;
        if (!s->kernels[i].backward) latest = -1;
        else if (product && k->role != COST_WGRAD && layer > latest) latest = layer;
        turns[i] = layer > latest ? layer : latest;
        due[i] = s->kernels[i].backward ? latest : turns[i];
    }
    return turns;
}

// Live bytes at the time of every kernel, less what parts before the one whose turn it is save.
static void fill_moments(const Seen *s, Probe *probe, int region) {
    const Profile *p = s->p;
    int32_t n_layers = p->base.n_layers, wanted = region ? REGION_sym : REGION_act, end = 1;
    Grows *saved = ARENA_ARRAY(s->scratch, Grows, n_layers + 3); // by layer + 1: of those before it
    Grows *waits = ARENA_ARRAY(s->scratch, Grows, n_layers + 4), *both = ARENA_ARRAY(s->scratch, Grows, n_layers + 4);
    for (uint32_t i = 0; i < s->n_buffers; i++) {
        const ProbeBuffer *b = &s->buffers[i];
        if (b->region == wanted && b->saved) grow(&saved[b->layer + 2], b, 1);
        if (b->region == wanted && b->waits) grow(&waits[b->layer + 2], b, 1);
        if (b->region == wanted && b->waits && b->saved) grow(&both[b->layer + 2], b, 1);
        if (b->last >= end) end = b->last + 1;
    }
    for (uint32_t i = 0; i < s->n_kernels; i++) end = s->kernels[i].time >= end ? s->kernels[i].time + 1 : end;
    for (int32_t layer = -1; layer <= n_layers; layer++) {
        int32_t part = part_of(p, s->few->middle, layer);
        if (part < 0) continue;
        probe->parts[part].saved[region] = saved[layer + 2];
        probe->parts[part].waits[region] = waits[layer + 2];
        probe->parts[part].both[region] = both[layer + 2];
    }
    for (int32_t i = 1; i < n_layers + 3; i++) add_grows(&saved[i], &saved[i - 1], 1);
    Grows *change = ARENA_ARRAY(s->scratch, Grows, end + 1), *late = ARENA_ARRAY(s->scratch, Grows, end + 1);
    Grows *made = ARENA_ARRAY(s->scratch, Grows, end + 1);
    for (uint32_t i = 0; i < s->n_buffers; i++) {
        const ProbeBuffer *b = &s->buffers[i];
        if (b->region != wanted || b->first < 0) continue;
        grow(&change[b->first], b, 1);
        grow(&change[b->last + 1], b, -1);
        if (b->waits) grow(&late[b->last + 1], b, 1);
        if (b->gradient) grow(&made[b->first], b, 1), grow(&made[b->last + 1], b, -1);
    }
    int32_t *due = ARENA_ARRAY(s->scratch, int32_t, s->n_kernels + 1);
    const int32_t *turns = find_turns(s, due);
    // waiting: kept for gradients of weights only; gradients: of weights, there when nothing else is under way
    Grows live = { 0 }, waiting = { 0 }, gradients = { 0 };
    int32_t t = 0;
    for (int32_t i = n_layers + 1; i >= 0; i--) add_grows(&waits[i], &waits[i + 1], 1); // of that layer and later ones
    for (uint32_t i = 0; i < s->n_kernels; i++) {
        for (; t <= s->kernels[i].time; t++) {
            add_grows(&live, &change[t], 1);
            add_grows(&waiting, &late[t], 1);
            add_grows(&gradients, &made[t], 1);
        }
        int32_t part = part_of(p, s->few->middle, turns[i]), late_part = part_of(p, s->few->middle, due[i]);
        Grows here = live, then = live;
        add_grows(&here, &saved[turns[i] + 1], -1);
        if (part >= 0) keep_moment(p->arena, &probe->parts[part].moments[region], here);
        int32_t own = s->kernels[i].layer, own_part = part_of(p, s->few->middle, own);
        if (s->kernels[i].backward && own_part >= 0) {
            Grows later = gradients;
            add_grows(&later, &waits[own + 2], 1);
            add_grows(&later, &waits[own + 3], -1);
            keep_moment(p->arena, &probe->parts[own_part].late[region], later);
        }
        if (late_part < 0 || s->kernels[i].weights) continue;
        add_grows(&then, &gradients, -1);
        add_grows(&then, &saved[due[i] + 1], -1);
        if (s->kernels[i].backward) {
            add_grows(&then, &waiting, 1);
            add_grows(&then, &waits[due[i] + 3], -1);
        }
        keep_moment(p->arena, &probe->parts[late_part].late[region], then);
    }
}

static void fill_parts(Seen *s, Probe *probe) {
    Profile *p = s->p;
    probe->parts = ARENA_ARRAY(p->arena, ProbePart, p->base.n_classes + 2);
    probe->rows = s->expert_rows;
    for (uint32_t i = 0; i < s->n_kernels; i++) {
        const ProbeKernel *at = &s->kernels[i];
        int32_t part = part_of(p, s->few->middle, at->layer);
        if (part < 0) continue;
        ProbePart *to = &probe->parts[part];
        CostPass pass = !at->backward ? PASS_forward : at->again ? PASS_again
                        : at->weights ? PASS_wgrad : PASS_dgrad;
        *ARENA_PUSH(p->arena, to->kernels, to->n_kernels, to->cap_kernels) =
            (PartKernel){ .kernel = s->costs[i], .pass = (uint8_t)pass, .rows = s->rows[i], .trips = at->trips,
                          .weights = s->weights[i], .packs = s->packs[i] };
    }
    qsort(s->buffers, s->n_buffers, sizeof *s->buffers, by_first);
    for (int region = 0; region < 2; region++) fill_moments(s, probe, region);
}

static int32_t smallest_divisor(int32_t n) {
    for (int32_t d = 2; d <= n; d++) {
        if (n % d == 0) return d;
    }
    return 1;
}

// Two ranks have each part of what is gathered.
static Layout layout_of(const Profile *p, const CostChoice *choice) {
    Layout layout = layout_single();
    layout.recompute = choice->recompute % 3;
    layout.microbatch = 1;
    layout.capacity = 1;
    if (choice->ep > 1) layout.dp = layout.ep = smallest_divisor((int32_t)p->base.experts);
    layout.params = choice->params;
    layout.expert_params = choice->expert_params;
    layout.overlap = choice->alone ? OVERLAP_OFF : OVERLAP_ON;
    if (choice->params || choice->expert_params) layout.dp *= 2;
    return layout;
}

// NULL: there is none, which lowering will say.
static const Model *graph_for(Profile *p, Few *few, const CostChoice *choice, int32_t ranks) {
    Model **graph = &few->graphs[(choice->ep > 1) * 2 + (choice->params || choice->expert_params)];
    if (*graph) return *graph;
    few->model->ranks = ranks;
    *graph = model_program(few->model, PROGRAM_STEP);
    if (*graph) p->made[p->n_made++] = *graph;
    return *graph;
}

static bool run_probe(Profile *p, uint8_t precision, const CostChoice *choice, Seen *seen) {
    Layout layout = layout_of(p, choice);
    LowerOptions options = { .microbatch = 1,
                             .microbatches = 1,
                             .target = p->target,
                             .precision = precision,
                             .recompute = layout.recompute,
                             .layout = &layout };
    Few *few = profile_few(p, choice);
    LowerProbe probe = { .kernel = see_kernel, .buffer = see_buffer, .user = seen,
                         .graph = graph_for(p, few, choice, layout.dp) };
    *seen = (Seen){ .p = p, .few = few, .scratch = arena_create() };
    bool done = lower_probe(few->model, &options, &probe);
    if (!done && few->model != p->model) p->model->diag = few->model->diag;
    return done;
}

bool profile_plans(const CostProfile *profile, const CostChoice *choice) {
    Profile *p = profile->user;
    if (choice->precision == PRECISION_MXFP8) {
        diag_set(p->model, "no plan is in mxfp8");
        return false;
    }
    CostChoice alone = { .alone = true };
    Model *few = profile_few(p, &alone)->model;
    Layout layout = layout_of(p, choice);
    layout.transport = choice->transport;
    if (isfinite(choice->round) && choice->round > 0 && layout.ep > 1) {
        layout.capacity = INFINITY;
        layout.round = 1;
    }
    LowerOptions options = { .microbatch = 1,
                             .microbatches = 1,
                             .target = p->target,
                             .precision = choice->precision,
                             .recompute = layout.recompute,
                             .layout = &layout,
                             .programs[PROGRAM_STEP] = true };
    Plan *plan = lower_model(few, &options);
    if (!plan && few != p->model) p->model->diag = few->diag;
    plan_destroy(plan);
    return plan != NULL;
}

static Probe *probe_for(Profile *p, const CostChoice *choice) {
    bool wide = choice->precision == PRECISION_FP32, apart = choice->ep > 1;
    int gathers = (choice->params ? 1 : 0) + (choice->expert_params ? 2 : 0);
    Probe *probe = &p->probes[((((wide * 3) + choice->recompute % 3) * 2 + apart) * 4 + gathers) * 2 + (gathers && choice->alone)];
    if (probe->made || probe->refused) return probe;
    Seen seen;
    probe->made = run_probe(p, wide ? PRECISION_FP32 : PRECISION_BF16, choice, &seen);
    probe->refused = !probe->made;
    if (probe->made) fill_parts(&seen, probe);
    arena_destroy(seen.scratch);
    return probe;
}

/* A choice ------------------------------------------------------------------------------------- */

typedef struct Scale {
    double tokens;     // over the probe's
    double room, rows; // rows of experts over the probe's: that there is room for; that the busiest rank has
    double even;       // that an even load would be
    double groups;     // experts of a rank
    double experts;    // of these over the probe's
    double load, n_tokens;
    // Where rows come in rounds, shares of what the busiest rank has: of the first round, of each of `further` ones.
    double first, each, further;
} Scale;

static Scale scale_of(const Profile *p, const Probe *probe, int32_t part, const CostChoice *c) {
    double tokens = (double)c->microbatch * p->base.sequence, chosen = tokens * p->base.top_k;
    Scale s = { .tokens = c->microbatch, .n_tokens = tokens, .room = c->microbatch, .rows = c->microbatch,
                .even = c->microbatch, .load = 1, .first = 1 };
    double experts = p->experts[part];
    s.groups = experts / c->ep;
    if (!experts || !probe->rows || c->ep == 1) return s;
    double capacity = c->capacity > 0 ? c->capacity : p->base.capacity;
    bool dropless = !isfinite(capacity), rounds = dropless && c->round > 0 && isfinite(c->round);
    double room = ceil(fmin(rounds ? c->round : capacity, c->ep) * chosen);
    s.load = cost_imbalance(c->routing, tokens * c->ep, p->base.top_k, experts, c->ep);
    if (c->imbalance > 0 && c->routing != COST_UNIFORM) { // and what a microbatch's tokens happen to choose
        double chance = cost_imbalance(COST_RANDOM, tokens * c->ep, p->base.top_k, experts, c->ep);
        s.load = fmin(1 + hypot(c->imbalance - 1, chance - 1), c->ep);
    }
    if (!dropless) s.load = fmin(s.load, room / chosen); // else further rounds take the rest
    s.room = room / probe->rows;
    s.even = (dropless ? chosen : fmin(chosen, room)) / probe->rows;
    s.rows = s.even * s.load;
    if (rounds && s.load > c->round) {
        s.further = ceil(s.load / c->round) - 1;
        s.first = c->round / s.load;
        s.each = (1 - s.first) / s.further;
    }
    return s;
}

static bool is_eighth(const CostChoice *c, const CostKernel *k, bool head) {
    if (c->precision != PRECISION_MXFP8 || head || k->precision != PRECISION_BF16) return false;
    if (k->class == COST_experts) return k->role != COST_WGRAD || c->habits & COST_NARROW_WGRAD;
    return k->class == COST_dense;
}

static CostKernel scaled(const PartKernel *from, const Scale *s, double rows, double probe_groups, bool whole) {
    CostKernel k = from->kernel;
    bool product = k.class == COST_dense || k.class == COST_experts;
    double groups = (k.class == COST_experts || from->rows == ROW_E) && probe_groups > 0 ? s->groups / probe_groups : 1;
    double grow = from->rows == ROW_R ? rows : from->rows == ROW_E ? groups : from->rows == ROW_NONE ? 1 : s->tokens;
    if (from->trips > 1) grow = whole ? from->trips * s->tokens : 1; // else more pieces, not larger ones
    if (product) {
        if (k.role == COST_WGRAD) k.k *= grow;
        else k.m *= grow;
        k.groups *= groups;
    } else {
        k.m *= grow;
    }
    k.flops *= grow;
    k.bytes = from->weights * groups + fmax(k.bytes - from->weights, 0) * grow;
    return k;
}

// Of one row as it crosses ranks. Rows that go by themselves are quantised before and dequantised after; in blocks
// only those that go to experts in forward are.
static double row_bytes(const CostChoice *c, CostPass pass, const CostKernel *k) {
    bool there = k->remote == COST_PUTS && (pass == PASS_forward || pass == PASS_again);
    bool eighth = c->precision == PRECISION_MXFP8 && !(c->habits & COST_WIDE_ROWS) &&
                  (c->transport != TRANSPORT_BLOCKS || there);
    return k->row_bytes * (eighth ? (1 + 1.0 / 32) / 2 : 1);
}

// Parts of one size have it whatever the share of a round is.
static double rows_seconds(const Profile *p, const CostChoice *c, const Scale *s, int32_t part, CostPass pass,
                           const CostKernel *k, double share) {
    CostRows rows = { .tokens = s->n_tokens * share, .top_k = p->base.top_k, .experts = p->experts[part],
                      .row_bytes = row_bytes(c, pass, k), .load = s->load, .combine = k->remote == COST_GETS,
                      .blocks = c->transport == TRANSPORT_BLOCKS, .whole = c->whole_blocks };
    CostGroup group = { c->ep, 1 };
    if (rows.blocks && c->habits & COST_ALL_TO_ALL)
        return cost_collective_s(p->cluster, COLLECTIVE_all_to_all, group,
                                 rows.tokens * rows.top_k * rows.row_bytes * rows.load);
    double seconds = cost_rows_s(p->cluster, group, &rows);
    if (!rows.blocks || !c->whole_blocks || share == 1) return seconds;
    rows.load = 1;
    rows.tokens = s->n_tokens;
    return fmax(seconds, cost_rows_s(p->cluster, group, &rows));
}

// Blocks come in order of ranks and experts want rows by expert, so either end copies rows in memory: what has come
// to a rank is read once and written for each of its experts, and the other way round. By an all-to-all of copies it
// is two permutations of all of them; in mxfp8, whose blocks are of 32 rows, all are copied once more, so that each
// expert's begin at a multiple (Megatron Core's TEGroupedMLP, Fp8Padding; blocks come so).
static double spread_s(const Profile *p, const CostChoice *c, const Scale *s, int32_t part, CostPass pass,
                       const CostKernel *k, double share) {
    if (c->transport != TRANSPORT_BLOCKS || c->ep <= 1) return 0;
    const CostDevice *d = &p->cluster->device;
    double top_k = p->base.top_k, bytes = row_bytes(c, pass, k) * s->n_tokens * share * s->load;
    bool copies = c->habits & COST_ALL_TO_ALL, pads = copies && c->precision == PRECISION_MXFP8;
    double moved = copies ? (1 + top_k) + 2 * top_k : cost_reached(p->experts[part], top_k, c->ep) + top_k;
    double padded = pads ? 2 * top_k * bytes / (d->bytes_per_s * d->stream) + d->launch_s : 0;
    return bytes * moved / (d->bytes_per_s * d->move) + (copies ? 2 : 1) * d->launch_s + padded;
}

// Operands of an expert's wgrad have come in eight bits, or are left so by forward, and are widened for it.
static double widen_s(const Profile *p, const CostChoice *c, const CostKernel *k) {
    bool narrow = c->precision != PRECISION_MXFP8 || c->habits & COST_NARROW_WGRAD;
    if (narrow || k->class != COST_experts || k->role != COST_WGRAD) return 0;
    const CostDevice *d = &p->cluster->device;
    return 3 * (k->m + k->n) * k->k / (d->bytes_per_s * d->stream) + 2 * d->launch_s;
}

static uint8_t precision_of(const CostChoice *c, const CostKernel *k, bool head) {
    if (is_eighth(c, k, head)) return PRECISION_MXFP8;
    bool router = k->class == COST_dense && k->precision == PRECISION_FP32 && c->precision != PRECISION_FP32;
    return router && c->habits & COST_SHORT_ROUTER ? PRECISION_BF16 : k->precision;
}

static double kernel_s(const Profile *p, const CostChoice *c, const Scale *s, const PartKernel *from,
                       double probe_groups, double rows, uint8_t precision) {
    CostKernel k = scaled(from, s, rows, probe_groups, c->habits & COST_WHOLE_HEAD);
    k.precision = precision;
    return cost_kernel_s(&p->cluster->device, &k) + widen_s(p, c, &k);
}

// What further rounds take of a kernel on rows of experts, or of one that moves them: less of it each, as often as there
// are rounds; of forward in backward once more.
static double add_further(const Profile *p, const CostChoice *c, const Scale *s, int32_t part, double probe_groups,
                          const PartKernel *from, uint8_t precision, CostPart *out) {
    double seconds = 0;
    if (from->rows == ROW_R) seconds = s->further * kernel_s(p, c, s, from, probe_groups, s->rows * s->each, precision);
    if (from->pass == PASS_forward) out->s[PASS_again][from->kernel.class] += seconds;
    if (!from->kernel.remote) return seconds;
    double moved = s->further * rows_seconds(p, c, s, part, (CostPass)from->pass, &from->kernel, s->each);
    double spread = s->further * spread_s(p, c, s, part, (CostPass)from->pass, &from->kernel, s->each);
    out->rows_s[from->pass] += moved;
    out->s[from->pass][COST_move] += spread;
    if (from->pass == PASS_forward) {
        out->rows_s[PASS_again] += moved;
        out->s[PASS_again][COST_move] += spread;
    }
    return seconds;
}

// What Megatron Core's TEGroupedMLP does between and behind its products, beside what a fused kernel would. The first
// product's result is clamped, gate and value by themselves, and put together again. Results of the second have
// weight x bias added, by expert, and are put together; in fp32, then rounded, where weights come so with their rows.
static void add_apart(const Profile *p, const CostChoice *c, int32_t part, double rows, CostPart *out) {
    const CostDevice *d = &p->cluster->device;
    bool wide = c->transport == TRANSPORT_BLOCKS && !(c->habits & COST_ALL_TO_ALL);
    double width = p->base.width, rate = d->bytes_per_s * d->stream;
    double inner = fmax(p->parameters[part].expert_other / p->experts[part] - width, 0); // biases of gate and value
    double forward = inner * (4 + 4) + width * (wide ? 4 + 10 + 8 + 6 : 2 + 6 + 4);
    double back = inner * (4 + 6) + width * (wide ? 6 + 6 + 4 + 12 + 12 : 6 + 6);
    out->s[PASS_forward][COST_row] += rows * forward / rate + 6 * d->launch_s;
    if (c->recompute != RECOMPUTE_NONE) out->s[PASS_again][COST_row] += rows * inner * (4 + 4) / rate + 3 * d->launch_s;
    out->s[PASS_dgrad][COST_row] += rows * back / rate + 7 * d->launch_s;
}

// What Megatron Core's _apply_rotary_pos_emb_bshd does beside what one kernel would, which reads and writes 2 bytes a
// number. Forward: times cosines 4, half negated 2, halves joined 4, times sines 4, added 6, joined with nothing 4. Back:
// times cosines 4, times sines 4, half negated 2, halves joined 4, added 6; zeros for what was nothing 2, added 6.
static void add_turned(const Profile *p, const CostChoice *c, const Scale *s, int32_t part, CostPart *out) {
    const CostDevice *d = &p->cluster->device;
    double numbers = s->n_tokens * p->turned[part].numbers, rate = d->bytes_per_s * d->stream;
    double launches = p->turned[part].tensors * d->launch_s;
    double forward = numbers * (24 - 4) / rate + 5 * launches, back = numbers * (28 - 4) / rate + 6 * launches;
    out->s[PASS_forward][COST_row] += forward;
    if (c->recompute == RECOMPUTE_BLOCK) out->s[PASS_again][COST_row] += forward;
    out->s[PASS_dgrad][COST_row] += back;
}

static void add_kernel(const Profile *p, const CostChoice *c, const Scale *s, int32_t part, double probe_groups,
                       const PartKernel *from, CostPart *out) {
    bool whole = c->habits & COST_WHOLE_HEAD, head = part == cost_part_after(&p->base) || part == cost_part_before(&p->base);
    CostKernel k = scaled(from, s, s->rows, probe_groups, whole);
    double trips = from->trips > 1 && !whole ? from->trips * s->tokens : 1;
    k.precision = precision_of(c, &k, head);
    double seconds = trips * kernel_s(p, c, s, from, probe_groups, s->rows * s->first, k.precision);
    if (s->further > 0 && (from->rows == ROW_R || k.remote))
        seconds += add_further(p, c, s, part, probe_groups, from, k.precision, out);
    if (from->packs) {
        out->packs_s += seconds;
        return;
    }
    if (k.remote) {
        double rows_s = rows_seconds(p, c, s, part, (CostPass)from->pass, &k, s->first);
        out->rows_s[from->pass] += rows_s;
        if (c->transport != TRANSPORT_BLOCKS) seconds = cost_remote_s(&p->cluster->device, &k, rows_s);
        else seconds += spread_s(p, c, s, part, (CostPass)from->pass, &k, s->first);
    }
    out->s[from->pass][k.class] += seconds;
    if (from->rows == ROW_R && s->rows > s->even)
        out->imbalance_s[from->pass] += seconds - trips * kernel_s(p, c, s, from, probe_groups, s->even, k.precision);
    bool counted = k.class == COST_attention || ((k.class == COST_dense || k.class == COST_experts) &&
                                                 k.role == COST_FORWARD);
    if (from->pass == PASS_forward && counted) out->flops += 3 * trips * k.flops / (from->rows == ROW_R ? s->load : 1);
}

static int64_t bytes_at(const Grows *g, const Scale *s) {
    return (int64_t)ceil(g->stays + g->tokens * s->tokens + g->rows * s->room + g->experts * s->experts);
}

// What further rounds take that probes, which have none, do not know (docs/layouts.md, "Rows that do not fit"): what they
// have brought back of every choice, a round's rows beside the first's, and what backward starts from.
static void add_rounds(const Profile *p, int32_t part, const CostChoice *c, const Scale *s, CostPart *out) {
    double capacity = c->capacity > 0 ? c->capacity : p->base.capacity;
    if (!p->experts[part] || c->ep == 1 || isfinite(capacity) || !(c->round > 0 && c->round < c->ep)) return;
    double row = p->base.width * (c->precision == PRECISION_FP32 ? 4 : 2), chosen = s->n_tokens * p->base.top_k;
    int64_t kept = c->recompute == RECOMPUTE_CHEAP ? 0 : (int64_t)ceil(s->n_tokens * row);
    int64_t moving = (int64_t)ceil((1 + fmin(c->round, c->ep)) * chosen * row);
    out->saved_bytes[0] += kept;
    out->transient_bytes[0] += moving;
    out->late_bytes[0] += moving;
}

static void add_memory(const ProbePart *from, const CostChoice *c, const Scale *s, CostPart *out) {
    for (int region = 0; region < 2; region++) {
        Scale here = *s;
        if (region && c->precision == PRECISION_MXFP8) here.room *= (1 + 1.0 / 32) / 2;
        int64_t saved = bytes_at(&from->saved[region], &here), most = saved;
        for (uint32_t i = 0; i < from->moments[region].n; i++)
            most = max_i64(most, bytes_at(&from->moments[region].items[i], &here));
        out->saved_bytes[region] = saved;
        int64_t waits = out->wait_bytes[region] = bytes_at(&from->waits[region], &here), larger = max_i64(saved, waits), late = larger;
        for (uint32_t i = 0; i < from->late[region].n; i++)
            late = max_i64(late, bytes_at(&from->late[region].items[i], &here));
        out->late_bytes[region] = late - larger;
        out->both_bytes[region] = bytes_at(&from->both[region], &here);
        out->transient_bytes[region] = most - saved;
    }
}

// What no layout may leave out (compiler/layout/check.c): one rank drops nothing, others leave every expert a row.
static bool has_room(const Profile *p, int32_t part, const CostChoice *c) {
    double experts = p->experts[part], capacity = c->capacity > 0 ? c->capacity : p->base.capacity;
    if (!experts || !isfinite(capacity)) return true;
    if (c->ep == 1) return capacity >= 1;
    double rows = ceil(fmin(capacity, c->ep) * (double)c->microbatch * p->base.sequence * p->base.top_k);
    return rows >= floor(experts / c->ep);
}

static bool compute(Profile *p, int32_t part, const CostChoice *c, CostPart *out) {
    *out = (CostPart){ 0 };
    double experts = p->experts[part];
    if (c->microbatch < 1 || c->ep < 1 || (experts && fmod(experts, c->ep) != 0) || (!p->base.experts && c->ep > 1))
        return false;
    if (c->precision == PRECISION_MXFP8 && p->cluster->device.matmul[PRECISION_MXFP8].flop_per_s <= 0) return false;
    if (!has_room(p, part, c)) return false;
    const Probe *probe = probe_for(p, c);
    if (!probe->made) return false;
    const ProbePart *from = &probe->parts[part];
    Scale s = scale_of(p, probe, part, c);
    // A part may hold memory for a neighbour's experts, so the model's count.
    double all = p->base.experts, probe_groups = c->ep > 1 ? experts / smallest_divisor((int32_t)all) : experts;
    s.experts = c->ep > 1 ? (double)smallest_divisor((int32_t)all) / c->ep : 1;
    for (uint32_t i = 0; i < from->n_kernels; i++)
        add_kernel(p, c, &s, part, probe_groups, &from->kernels[i], out);
    if (c->habits & COST_BIAS_APART && experts && p->parameters[part].expert_other > 0)
        add_apart(p, c, part, s.rows * probe->rows, out);
    if (c->habits & COST_ROPE_APART) add_turned(p, c, &s, part, out);
    add_memory(from, c, &s, out);
    add_rounds(p, part, c, &s, out);
    const CostPart *n = &p->parameters[part];
    out->dense_matrix = n->dense_matrix, out->dense_other = n->dense_other;
    out->expert_matrix = n->expert_matrix / c->ep, out->expert_other = n->expert_other / c->ep;
    out->dense_largest = n->dense_largest, out->expert_largest = n->expert_largest / c->ep;
    return true;
}

static uint64_t memo_slot(const Profile *p, int32_t part, const CostChoice *c) {
    uint64_t bits[3];
    memcpy(bits, (double[]){ c->capacity, c->round, c->imbalance }, sizeof bits);
    uint64_t rooms = hash_mix(bits[0], bits[1], bits[2]);
    uint64_t small = (uint64_t)c->precision << 40 | (uint64_t)c->habits << 32 | (uint64_t)c->recompute << 24 |
                     (uint64_t)c->alone << 21 | (uint64_t)c->whole_blocks << 20 | (uint64_t)c->transport << 16 |
                     (uint64_t)c->params << 12 | (uint64_t)c->expert_params << 8 | c->routing;
    return hash_mix((uint64_t)part << 32 ^ small, (uint64_t)c->microbatch << 32 | (uint32_t)c->ep, rooms) &
           (p->cap_memo - 1);
}

static bool same_choice(const CostChoice *a, const CostChoice *b) {
    return a->microbatch == b->microbatch && a->ep == b->ep && a->precision == b->precision &&
           a->recompute == b->recompute && a->transport == b->transport && a->whole_blocks == b->whole_blocks &&
           a->params == b->params && a->expert_params == b->expert_params && a->routing == b->routing &&
           a->habits == b->habits && a->alone == b->alone && a->capacity == b->capacity &&
           a->round == b->round && a->imbalance == b->imbalance;
}

static Memo *memo_at(Profile *p, int32_t part, const CostChoice *c) {
    uint64_t at = memo_slot(p, part, c);
    while (p->memo[at].part && !(p->memo[at].part == part + 1 && same_choice(&p->memo[at].choice, c)))
        at = (at + 1) & (p->cap_memo - 1);
    return &p->memo[at];
}

static void memo_grow(Profile *p) {
    Memo *old = p->memo;
    uint32_t n = p->cap_memo;
    p->cap_memo = n ? n * 2 : 256;
    p->memo = ARENA_ARRAY(p->arena, Memo, p->cap_memo);
    for (uint32_t i = 0; i < n; i++) {
        if (old[i].part) *memo_at(p, old[i].part - 1, &old[i].choice) = old[i];
    }
}

bool profile_part(const CostProfile *base, int32_t part, const CostChoice *choice, CostPart *out) {
    Profile *p = base->user;
    if (2 * p->n_memo >= p->cap_memo) memo_grow(p);
    Memo *memo = memo_at(p, part, choice);
    if (!memo->part) {
        p->n_memo++;
        memo->part = part + 1;
        memo->choice = *choice;
        memo->possible = compute(p, part, choice, &memo->value);
    }
    *out = memo->value;
    return memo->possible;
}
