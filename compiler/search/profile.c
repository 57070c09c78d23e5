// SPDX-License-Identifier: Apache-2.0
// A profile from probes of lowering. A probe lists the kernels and buffers of a step of one sequence on one
// rank; every quantity of it is a sum of what stays, what grows with tokens and what grows with rows of
// experts, so other microbatches, ep and capacities need no other probe. Layers whose products are equal are
// one class, and the middle one of a class stands for it: the first and last of a model join with what
// surrounds them.
//
// Memory. In a part's kernels the live bytes, less what earlier parts save, are sums of the same kind; those
// that no other moment exceeds in all three terms are kept, and the largest is taken for each choice.
#include "compiler/search/profile.h"

#include <math.h>
#include <stdlib.h>

#include "compiler/kernel/kernel.h"

typedef struct Grows { double stays, tokens, rows, experts; } Grows; // bytes of the probe

typedef struct PartKernel {
    CostKernel kernel;
    uint8_t pass, rows; // CostPass; RowKind
    bool packs;
    double trips, weights; // weights: of its bytes, what does not grow
} PartKernel;

typedef struct Moments { Grows *items; uint32_t n, cap; } Moments;

typedef struct ProbePart {
    PartKernel *kernels;
    uint32_t n_kernels, cap_kernels;
    Grows saved[2];
    Moments moments[2]; // by region: act, sym
} ProbePart;

typedef struct Probe {
    bool made, refused;
    ProbePart *parts; // [classes + 2]
    double rows;      // of experts, on this rank
} Probe;

enum { KEYS = 2 * 3 * 2 * 4 * 2 }; // fp32 or bf16; recomputation; experts elsewhere or here; what is gathered; ahead?

typedef struct Memo { int32_t part; CostChoice choice; bool possible; CostPart value; } Memo;

// A model with fewer layers, or the model itself; and by class the layer of it that stands for the class. graphs: of its
// step, one for each number of ranks that probes have (layout_of), made when first asked for.
enum { GRAPHS = 2 * 2 /* experts elsewhere or here; anything gathered? */, MOST_MADE = 2 * (1 + GRAPHS) };
typedef struct Few { Model *model; int32_t *middle; Model *graphs[GRAPHS]; } Few;

// What rotary positions with a factor turn: numbers of a token, in how many tensors.
typedef struct Turned { double numbers, tensors; } Turned;

typedef struct Profile {
    CostProfile base;
    Model *model;
    const CostCluster *cluster;
    Arena *arena;
    bool whole;                 // probes are of all layers
    int32_t *class_of, *middle; // [layers]; [classes]: the middle one of its layers
    uint64_t *looks;            // [layers]: of all kernels of forward, where classes go by products
    Few few[2];                 // what is probed; [1] where dense parameters are gathered. No model: not made yet
    Model *made[MOST_MADE]; int32_t n_made; // what of these is this profile's to destroy
    double *experts;            // [classes + 2]: of its layer
    CostPart *parameters;       // [classes + 2]: numbers, experts' of all ranks
    Turned *turned;             // [classes + 2]
    const char *target;
    Probe probes[KEYS];
    Memo *memo;
    uint32_t n_memo, cap_memo;
} Profile;

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

// The part that a layer stands for, or -1: another of its class does.
static int32_t part_of(const Profile *p, const int32_t *middle, int32_t layer) {
    if (layer < 0) return cost_part_before(&p->base);
    if (layer >= p->base.n_layers) return cost_part_after(&p->base);
    int32_t class = p->class_of[layer];
    return middle[class] == layer ? class : -1;
}

static int by_first(const void *a, const void *b) {
    const ProbeBuffer *x = a, *y = b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : 0;
}

// The layer whose turn it is when a kernel runs: its own, but in backward some run ahead of layers that come
// first, while all that those save is there (updates of states; the table's gradient of further predictions).
static int32_t *find_turns(const Seen *s) {
    int32_t *turns = ARENA_ARRAY(s->scratch, int32_t, s->n_kernels + 1), latest = -1;
    for (uint32_t i = s->n_kernels; i-- > 0;) {
        const CostKernel *k = &s->costs[i];
        int32_t layer = s->kernels[i].layer;
        bool product = k->class == COST_dense || k->class == COST_experts || k->class == COST_attention;
        if (!s->kernels[i].backward) latest = -1;
        else if (product && k->role != COST_WGRAD && layer > latest) latest = layer;
        turns[i] = layer > latest ? layer : latest;
    }
    return turns;
}

// Live bytes at the time of every kernel, less what parts before the one whose turn it is save.
static void fill_moments(const Seen *s, Probe *probe, int region) {
    const Profile *p = s->p;
    int32_t n_layers = p->base.n_layers, wanted = region ? REGION_sym : REGION_act, end = 1;
    Grows *saved = ARENA_ARRAY(s->scratch, Grows, n_layers + 3); // by layer + 1: of those before it
    for (uint32_t i = 0; i < s->n_buffers; i++) {
        const ProbeBuffer *b = &s->buffers[i];
        if (b->region == wanted && b->saved) grow(&saved[b->layer + 2], b, 1);
        if (b->last >= end) end = b->last + 1;
    }
    for (uint32_t i = 0; i < s->n_kernels; i++) end = s->kernels[i].time >= end ? s->kernels[i].time + 1 : end;
    for (int32_t layer = -1; layer <= n_layers; layer++) {
        int32_t part = part_of(p, s->few->middle, layer);
        if (part >= 0) probe->parts[part].saved[region] = saved[layer + 2];
    }
    for (int32_t i = 1; i < n_layers + 3; i++) add_grows(&saved[i], &saved[i - 1], 1);
    Grows *change = ARENA_ARRAY(s->scratch, Grows, end + 1);
    for (uint32_t i = 0; i < s->n_buffers; i++) {
        const ProbeBuffer *b = &s->buffers[i];
        if (b->region != wanted || b->first < 0) continue;
        grow(&change[b->first], b, 1);
        grow(&change[b->last + 1], b, -1);
    }
    const int32_t *turns = find_turns(s);
    Grows live = { 0 };
    int32_t t = 0;
    for (uint32_t i = 0; i < s->n_kernels; i++) {
        for (; t <= s->kernels[i].time; t++)
            add_grows(&live, &change[t], 1);
        int32_t part = part_of(p, s->few->middle, turns[i]);
        if (part < 0) continue;
        Grows here = live;
        add_grows(&here, &saved[turns[i] + 1], -1);
        keep_moment(p->arena, &probe->parts[part].moments[region], here);
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

/* Fewer layers -------------------------------------------------------------------------------- */

// Whether layers i and j, and those up to `near` layers away, compute the same; the ends of the model count.
static bool alike(const Profile *p, int32_t i, int32_t j, int32_t near) {
    for (int32_t k = -near; k <= near; k++) {
        bool here = i + k >= 0 && i + k < p->base.n_layers, there = j + k >= 0 && j + k < p->base.n_layers;
        if (here != there || (here && p->looks[i + k] != p->looks[j + k])) return false;
    }
    return true;
}

// The model with the first and last layers and, of each class, the first one around which all is as around the middle
// one: layers show in others that are near.
static void choose_few(Profile *p, int32_t near, Few *out) {
    int32_t n = p->base.n_layers, left = 0;
    bool *without = ARENA_ARRAY(p->arena, bool, n + 1);
    *out = (Few){ p->model, ARENA_ARRAY(p->arena, int32_t, p->base.n_classes + 1) };
    for (int32_t i = near + 1; i < n - 1 - near; i++) without[i] = true;
    for (int32_t k = 0; k < p->base.n_classes; k++) {
        int32_t *middle = &out->middle[k];
        while (!alike(p, *middle, p->middle[k], near)) ++*middle;
        for (int32_t i = *middle - near; i <= *middle + near; i++)
            if (i >= 0 && i < n) without[i] = false;
    }
    for (int32_t i = 0; i < n; i++) left += !without[i];
    Model *few = left < n ? model_without_layers(p->model, without) : NULL;
    if (few) out->model = p->made[p->n_made++] = few;
    else memcpy(out->middle, p->middle, sizeof *out->middle * (size_t)p->base.n_classes);
}

// How far away layers may show in one. Gathers begin ahead, as many as come to the bytes of the largest, which may be
// many times a layer's (overlap.c).
enum { NEAR = 3 };

static Few *few_for(Profile *p, const CostChoice *choice) {
    bool ahead = choice->params && !choice->alone;
    Few *few = &p->few[ahead];
    if (few->model) return few;
    double most = 0, least = INFINITY;
    for (int32_t i = 0; i < p->base.n_classes + 2; i++) {
        double n = p->parameters[i].dense_matrix + p->parameters[i].dense_other;
        most = fmax(most, n);
        if (i < p->base.n_classes) least = fmin(least, n);
    }
    int32_t near = ahead ? NEAR + (int32_t)fmin(2 * most / least, p->base.n_layers) : NEAR;
    choose_few(p, p->whole ? p->base.n_layers : near, few);
    return few;
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
    Few *few = few_for(p, choice);
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
    Model *few = few_for(p, &alone)->model;
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

static void add_memory(const ProbePart *from, const CostChoice *c, const Scale *s, CostPart *out) {
    for (int region = 0; region < 2; region++) {
        Scale here = *s;
        if (region && c->precision == PRECISION_MXFP8) here.room *= (1 + 1.0 / 32) / 2;
        int64_t saved = bytes_at(&from->saved[region], &here), most = saved;
        for (uint32_t i = 0; i < from->moments[region].n; i++)
            most = max_i64(most, bytes_at(&from->moments[region].items[i], &here));
        out->saved_bytes[region] = saved;
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
    const CostPart *n = &p->parameters[part];
    out->dense_matrix = n->dense_matrix, out->dense_other = n->dense_other;
    out->expert_matrix = n->expert_matrix / c->ep, out->expert_other = n->expert_other / c->ep;
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

static bool profile_part(const CostProfile *base, int32_t part, const CostChoice *choice, CostPart *out) {
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

/* Classes and parameters ----------------------------------------------------------------------- */

static uint64_t mix_kernel(uint64_t h, const CostKernel *k, const KernelDesc *d) {
    h = hash_mix(h, (uint64_t)d->family << 32 | (uint32_t)k->groups, (uint64_t)k->m);
    h = hash_mix(h, (uint64_t)k->n, (uint64_t)k->k);
    return hash_mix(h, (uint64_t)d->window, (uint64_t)d->heads << 32 | (uint32_t)d->kv_heads);
}

typedef struct Signatures { uint64_t *of, *looks; double *experts; int32_t n; } Signatures;

static void sign(void *user, const ProbeKernel *at) {
    Signatures *s = user;
    CostKernel k;
    cost_of_kernel(at->desc, 1, &k);
    bool product = k.class == COST_dense || k.class == COST_experts || k.class == COST_attention;
    if (at->backward || at->layer < 0 || at->layer >= s->n) return;
    uint64_t h = mix_kernel(0, &k, at->desc), flops = (uint64_t)k.flops, bytes = (uint64_t)k.bytes;
    s->looks[at->layer] += hash_mix(h, flops, bytes); // whatever their order
    if (!product) return;
    s->of[at->layer] += h;
    if (k.class == COST_experts) s->experts[at->layer] = at->desc->experts;
}

static void ignore_buffer(void *user, const ProbeBuffer *buffer) {
    (void)user;
    (void)buffer;
}

static void choose_middles(Profile *p) {
    int32_t *count = ARENA_ARRAY(p->arena, int32_t, p->base.n_classes + 1);
    int32_t *seen = ARENA_ARRAY(p->arena, int32_t, p->base.n_classes + 1);
    for (int32_t i = 0; i < p->base.n_layers; i++) count[p->class_of[i]]++;
    for (int32_t i = 0; i < p->base.n_layers; i++) {
        int32_t class = p->class_of[i];
        if (seen[class]++ == count[class] / 2) p->middle[class] = i;
    }
}

static bool find_classes(Profile *p, bool whole) {
    int32_t n = p->base.n_layers;
    p->looks = ARENA_ARRAY(p->arena, uint64_t, n + 1);
    Signatures s = { ARENA_ARRAY(p->arena, uint64_t, n + 1), p->looks, ARENA_ARRAY(p->arena, double, n + 1), n };
    Layout layout = layout_single();
    LowerOptions options = { .microbatch = 1, .microbatches = 1, .target = p->target, .layout = &layout,
                             .precision = PRECISION_BF16 };
    layout.microbatch = 1;
    layout.capacity = 1; // one rank drops nothing
    LowerProbe probe = { .kernel = sign, .buffer = ignore_buffer, .user = &s };
    if (!lower_probe(p->model, &options, &probe)) return false;
    p->class_of = ARENA_ARRAY(p->arena, int32_t, n + 1);
    p->middle = ARENA_ARRAY(p->arena, int32_t, n + 1);
    p->experts = ARENA_ARRAY(p->arena, double, n + 2);
    for (int32_t i = 0; i < n; i++) {
        int32_t k = 0;
        while (k < i && s.of[k] != s.of[i]) k++;
        p->class_of[i] = k < i ? p->class_of[k] : p->base.n_classes++;
        p->experts[p->class_of[i]] = s.experts[i];
        p->base.experts = fmax(p->base.experts, s.experts[i]);
    }
    choose_middles(p);
    p->whole = whole;
    return true;
}

// Experts beyond the layers (multi-token prediction) are those of the last part.
static void count_parameters(Profile *p) {
    const Model *m = p->model;
    p->parameters = ARENA_ARRAY(p->arena, CostPart, p->base.n_classes + 2);
    for (uint32_t i = 0; i < m->n_params; i++) {
        const Param *param = &m->params[i];
        const char *name = model_name(m, param->addr);
        if (param->is_state || !param->node) continue;
        int32_t layer = !strncmp(name, "layers.", 7)     ? atoi(name + 7) - 1
                        : !strncmp(name, "embedding", 9) ? -1
                                                         : m->n_layers;
        int32_t part = part_of(p, p->middle, layer);
        if (part < 0) continue;
        const Type *t = model_type(m, param->node);
        double n = (double)type_features(t);
        CostPart *to = &p->parameters[part];
        if (t->row == ROW_E) {
            n *= model_experts(m, t);
            p->experts[part] = model_experts(m, t);
        }
        *(t->row == ROW_E ? (param->is_weight ? &to->expert_matrix : &to->expert_other)
                          : (param->is_weight ? &to->dense_matrix : &to->dense_other)) += n;
    }
}

static void find_turned(Profile *p) {
    const Model *m = p->model;
    p->turned = ARENA_ARRAY(p->arena, Turned, p->base.n_classes + 2);
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        const Node *node = &m->nodes[n];
        const char *name = model_name(m, node->addr);
        if (node->op != OP_ROTATE || node->attr.turn.factor == 1 || strncmp(name, "layers.", 7)) continue;
        int32_t part = part_of(p, p->middle, atoi(name + 7) - 1);
        if (part < 0) continue;
        p->turned[part].numbers += (double)type_features(&node->type);
        p->turned[part].tensors++;
    }
}

static void find_routes(Profile *p) {
    const Model *m = p->model;
    p->base.capacity = INFINITY;
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        if (m->nodes[n].op != OP_ROUTE) continue;
        Type rows = { .row = ROW_R, .route = n };
        p->base.top_k = fmax(p->base.top_k, model_top_k(m, &rows));
        if (m->nodes[n].attr.route.capacity > 0) p->base.capacity = m->nodes[n].attr.route.capacity;
    }
}

static CostProfile *create(Model *model, const CostCluster *cluster, bool whole) {
    Arena *arena = arena_create();
    Profile *p = ARENA_NEW(arena, Profile);
    p->arena = arena;
    p->model = model;
    p->cluster = cluster;
    p->target = strcmp(cluster->device.arch, "cpu") ? arena_printf(arena, "cuda:%s", cluster->device.arch) : "cpu";
    p->base = (CostProfile){ .model = model->name, .n_layers = model->n_layers, .sequence = model->sequence,
                             .vocab = model->vocab, .width = model->width, .part = profile_part, .user = p };
    if (!find_classes(p, whole)) {
        arena_destroy(arena);
        return NULL;
    }
    p->base.class_of = p->class_of;
    find_routes(p);
    find_turned(p);
    count_parameters(p);
    Counts counts = model_counts(model);
    p->base.flops_per_token = counts.train_flops_per_token + counts.router_flops_per_token;
    return &p->base;
}

CostProfile *profile_create(Model *model, const CostCluster *cluster) {
    return create(model, cluster, false);
}

CostProfile *profile_create_whole(Model *model, const CostCluster *cluster) {
    return create(model, cluster, true);
}

CostProfile *profile_on(const CostProfile *profile, const CostCluster *cluster) {
    Arena *arena = arena_create();
    Profile *p = ARENA_NEW(arena, Profile);
    *p = *(const Profile *)profile->user;
    p->arena = arena;
    p->cluster = cluster;
    p->base.user = p;
    p->n_made = 0;
    p->memo = NULL;
    p->n_memo = p->cap_memo = 0;
    return &p->base;
}

void profile_destroy(CostProfile *profile) {
    if (!profile) return;
    Profile *p = profile->user;
    while (p->n_made) model_destroy(p->made[--p->n_made]);
    arena_destroy(p->arena);
}
