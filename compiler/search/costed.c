// SPDX-License-Identifier: Apache-2.0
// From parts and seconds of kernels to what a layer takes: what crosses ranks runs beside compute as far as
// the choice says, and slows it.
#include "compiler/search/costed.h"

#include <math.h>

#include "compiler/search/private.h"

const char *const costed_kind_name[] = {
#define X(name, text) text,
    COSTED_KINDS(X)
#undef X
};
const char *const costed_bytes_name[] = {
#define X(name, text) text,
    COSTED_BYTES(X)
#undef X
};

// packs: of kind[COSTED_memory], what parameters take. gather: of `once`.
typedef struct Seconds { double kind[N_COSTED_KINDS], packs, forward, wgrad, once, gather; } Seconds;

static CostChoice cost_choice(const Costed *c, const SearchChoice *choice, int32_t part, int recompute) {
    bool recorded = c->placed && choice->ep > 1 && part < c->profile->n_classes;
    double imbalance =
        !recorded ? 0 : placed_imbalance(c->placed, c->profile->class_of, part, choice->ep, !choice->placement);
    CostChoice cost = { .microbatch = choice->microbatch,
                        .ep = choice->ep,
                        .precision = choice->precision,
                        .recompute = (uint8_t)recompute,
                        .transport = choice->transport,
                        .whole_blocks = cost_whole_blocks(c->cluster),
                        .params = choice->params,
                        .expert_params = choice->expert_params,
                        .alone = !choice->overlap,
                        .routing = c->routing,
                        .imbalance = imbalance,
                        .row_align = choice->row_align,
                        .capacity = choice->capacity,
                        .round = choice->round };
    return cost_settled(cost, choice->dp);
}

static bool find_part(const Costed *c, const SearchChoice *choice, int32_t part, int recompute, CostPart *out) {
    CostChoice cost = cost_choice(c, choice, part, recompute);
    return c->profile->part(c->profile, part, &cost, out);
}

static double sum_classes(const double s[N_COST_CLASSES]) {
    double sum = 0;
    for (int i = 0; i < N_COST_CLASSES; i++) sum += s[i];
    return sum;
}

// Gradients are exchanged beside the last backward, and no more of them are under way than compiler/lower/overlap.c lets:
// a layer's get ready together, so of more some are waited for. Weights are gathered behind it, beside nothing. Other
// stacks gather them beside the next forward.
static void find_once(const Costed *c, const SearchChoice *choice, const CostState *state, double share, double compute,
                      const CostPart *p, Seconds *out) {
    const CostDevice *device = &c->cluster->device;
    if (!c->stack.gathers_last) {
        out->once = cost_exposed_s(device, share, compute, state->step_s);
        return;
    }
    const double under_way = 128 << 20;
    CostChoice cost = cost_choice(c, choice, 0, 0);
    double most = fmax(under_way, (double)cost_update_bytes(c->profile, p, &cost, choice->dp));
    double backward = fmax(compute - sum_classes(p->s[PASS_forward]), 0), exchange = state->step_s - state->gather_s;
    if (state->exchanged_bytes > most) share *= most / state->exchanged_bytes;
    out->gather = state->gather_s;
    out->once = state->gather_s + cost_exposed_s(device, share, backward, exchange);
}

// Of a microbatch, by kind; `optimizer` and `once` of a step.
static void find_seconds(const Costed *c, const SearchChoice *choice, int32_t part, const CostPart *p, Seconds *out) {
    CostChoice cost = cost_choice(c, choice, part, 0);
    CostState state = cost_state(c->cluster, &c->stack, p, &cost, choice->dp);
    const CostDevice *device = &c->cluster->device;
    double compute = state.work_s, rows = 0;
    double rows_share = choice->overlap ? c->rows_hidden : 0, params_share = choice->overlap ? c->params_hidden : 0;
    *out = (Seconds){ .kind[COSTED_memory] = state.work_s, .packs = state.work_s };
    for (CostPass pass = 0; pass < N_COST_PASSES; pass++) {
        const double *s = p->s[pass];
        double imbalance = p->imbalance_s[pass] * c->load, even = -p->imbalance_s[pass];
        double move = s[COST_row] + s[COST_move] + s[COST_optimizer];
        double all = s[COST_dense] + s[COST_experts] + s[COST_attention] + move + even;
        rows += p->rows_s[pass];
        compute += all + imbalance;
        out->kind[COSTED_imbalance] += imbalance;
        if (pass == PASS_wgrad) out->wgrad = all + imbalance;
        if (pass == PASS_forward) out->forward = all + imbalance;
        if (pass == PASS_again) {
            out->kind[COSTED_again] += all;
            continue;
        }
        out->kind[COSTED_dense] += s[COST_dense];
        out->kind[COSTED_experts] += s[COST_experts] + even; // rows of experts wait for the busiest
        out->kind[COSTED_attention] += s[COST_attention];
        out->kind[COSTED_memory] += move;
    }
    out->kind[COSTED_optimizer] = state.optimizer_s;
    out->kind[COSTED_rows] = cost_exposed_s(device, rows_share, compute, rows);
    out->kind[COSTED_params] = cost_exposed_s(device, params_share, compute, state.microbatch_s);
    // Forward gathers once, backward again, and exchanges.
    if (rows > 0) out->forward += out->kind[COSTED_rows] * p->rows_s[PASS_forward] / rows;
    out->forward += out->kind[COSTED_params] / 3;
    find_once(c, choice, &state, params_share, compute, p, out);
}

static double of_microbatch(const Seconds *s) {
    double sum = 0;
    for (int i = 0; i < N_COSTED_KINDS; i++) sum += i == COSTED_optimizer ? 0 : s->kind[i];
    return sum;
}

// Rows go through memory inside a node, in blocks between nodes.
static bool transport_fits(const Costed *c, const SearchChoice *choice) {
    if (choice->ep == 1 || c->any_transport) return true;
    bool within = c->cluster->n_links && choice->ep <= c->cluster->links[0].size;
    return (choice->transport == TRANSPORT_ROWS) == within;
}

static bool costed_part(const void *user, const SearchChoice *choice, int32_t part, SearchLayer *out) {
    const Costed *c = user;
    *out = (SearchLayer){ 0 };
    if (!transport_fits(c, choice)) return false;
    bool layer = part < c->profile->n_classes, any = false;
    for (int r = 0; r < SEARCH_RECOMPUTES; r++) {
        CostPart p;
        Seconds s;
        out->seconds[r] = INFINITY;
        if ((!layer && r) || !find_part(c, choice, part, r, &p)) continue;
        CostChoice cost = cost_choice(c, choice, part, r);
        find_seconds(c, choice, part, &p, &s);
        out->seconds[r] = of_microbatch(&s);
        out->wgrad_s = s.wgrad;
        out->forward_s = s.forward;
        out->step_s = s.once + s.kind[COSTED_optimizer];
        out->state_bytes = (double)cost_state_bytes(&c->stack, &p, &cost, choice->dp);
        out->update_bytes = (double)cost_update_bytes(c->profile, &p, &cost, choice->dp);
        out->saved_bytes[r] = (double)(p.saved_bytes[0] + p.saved_bytes[1]);
        out->transient_bytes[r] = (double)(p.transient_bytes[0] + p.transient_bytes[1]);
        out->wait_bytes[r] = (double)(p.wait_bytes[0] + p.wait_bytes[1]);
        out->late_bytes[r] = (double)(p.late_bytes[0] + p.late_bytes[1]);
        out->both_bytes[r] = (double)(p.both_bytes[0] + p.both_bytes[1]);
        any = true;
    }
    return any;
}

static void add_pass(const Costed *c, const CostPart *p, CostPass pass, double *kinds) {
    const double *s = p->s[pass];
    double even = s[COST_experts] - p->imbalance_s[pass]; // below 0: of rows of experts, without a product
    kinds[WORK_dense] += s[COST_dense];
    kinds[WORK_experts] += fmax(even, 0);
    kinds[WORK_attention] += s[COST_attention];
    kinds[WORK_memory] += s[COST_row] + s[COST_move] + s[COST_optimizer] + fmin(even, 0);
    kinds[SIM_IMBALANCE] += p->imbalance_s[pass] * c->load;
}

static bool costed_work(const void *user, const SearchChoice *choice, int32_t part, int recompute, SearchWork *out) {
    const Costed *c = user;
    CostPart p;
    Seconds s;
    *out = (SearchWork){ 0 };
    if (!find_part(c, choice, part, recompute, &p)) return false;
    find_seconds(c, choice, part, &p, &s);
    double *forward = out->unit_s[PIPELINE_FORWARD], *backward = out->unit_s[PIPELINE_BACKWARD], rows = 0;
    add_pass(c, &p, PASS_forward, forward);
    add_pass(c, &p, PASS_again, backward);
    add_pass(c, &p, PASS_dgrad, backward);
    add_pass(c, &p, PASS_wgrad, out->unit_s[PIPELINE_WGRAD]);
    backward[WORK_memory] += s.packs;
    for (CostPass pass = 0; pass < N_COST_PASSES; pass++) rows += p.rows_s[pass];
    forward[WORK_rows] = rows > 0 ? s.kind[COSTED_rows] * p.rows_s[PASS_forward] / rows : 0;
    backward[WORK_rows] = s.kind[COSTED_rows] - forward[WORK_rows];
    // Forward gathers once, backward again, and exchanges.
    forward[WORK_gather] = backward[WORK_gather] = backward[WORK_exchange] = s.kind[COSTED_params] / 3;
    out->step_s[WORK_gather] = s.gather;
    out->step_s[WORK_exchange] = s.once - s.gather;
    out->step_s[WORK_optimizer] = s.kind[COSTED_optimizer];
    return true;
}

static bool has_plan(const Costed *c, const SearchChoice *choice) {
    if (!c->plans) return true;
    double capacity = choice->capacity > 0 ? choice->capacity : c->profile->capacity;
    bool blocks = choice->ep > 1 && choice->transport == TRANSPORT_BLOCKS;
    bool rounds = choice->ep > 1 && !isfinite(capacity) && choice->round < choice->ep;
    uint8_t *known = &c->plans_known[(choice->precision * 2 + blocks) * 2 + rounds];
    enum { YES = 1, NO };
    if (!*known) {
        CostChoice cost = { .ep = choice->ep,
                            .precision = choice->precision,
                            .params = choice->params,
                            .transport = blocks ? TRANSPORT_BLOCKS : TRANSPORT_ROWS,
                            .round = rounds ? choice->round : 0 };
        *known = c->plans(c->profile, &cost) ? YES : NO;
    }
    return *known == YES;
}

static bool costed_rest(const void *user, const SearchChoice *choice, SearchRest *out) {
    const Costed *c = user;
    if (!has_plan(c, choice)) return false;
    *out = (SearchRest){ .fixed_bytes = (double)c->cluster->device.reserved_bytes };
    if (choice->pp == 1) return true;
    out->boundary_bytes = cost_boundary_bytes(c->profile, choice->microbatch, choice->precision);
    out->send_s = cost_collective_s(c->cluster, COLLECTIVE_send, (CostGroup){ choice->pp, choice->dp },
                                    out->boundary_bytes);
    out->sent_s = choice->overlap ? 0 : 2 * out->send_s;
    return true;
}

Status costed_start(Costed *c, SearchProfile *out) {
    const CostProfile *p = c->profile;
    if (p->n_layers > SEARCH_MOST_LAYERS || p->n_classes > SEARCH_MOST_CLASSES)
        return status_fail(ERR_ARGUMENT, "%d layers of %d kinds, expected up to %d of %d", p->n_layers,
                           p->n_classes, SEARCH_MOST_LAYERS, SEARCH_MOST_CLASSES);
    for (int32_t i = 0; i < p->n_layers; i++) c->class_of[i] = (uint8_t)p->class_of[i];
    c->experts[0] = (int32_t)p->experts;
    *out = (SearchProfile){ .n_layers = p->n_layers, .n_classes = p->n_classes, .class_of = c->class_of,
                            .capacity = p->capacity, .sharing = c->cluster->device.sharing,
                            .experts = c->experts, .n_experts = p->experts > 0, .part = costed_part,
                            .rest = costed_rest, .work = costed_work, .user = c };
    return OK;
}

/* What is shown ---------------------------------------------------------------------------------- */

// Calls for every part of every virtual stage, in order.
typedef void (*OnPart)(void *user, int32_t vs, int32_t part, int recompute);

static void each_part(const Costed *c, const SearchLayout *l, OnPart on, void *user) {
    int32_t n = l->point.choice.pp * l->point.chunks, layer = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!i) on(user, 0, c->profile->n_classes, 0);
        for (int32_t k = 0; k < l->stages[i]; k++, layer++)
            on(user, i, c->profile->class_of[layer], l->recompute[layer]);
        if (i == n - 1) on(user, i, c->profile->n_classes + 1, 0);
    }
}

typedef struct Sums {
    const Costed *c;
    const SearchLayout *l;
    Seconds ranks[SEARCH_MOST_STAGES];
    double flops, (*bytes)[N_COSTED_BYTES];
    Flight *flights;
    double update_bytes[SEARCH_MOST_STAGES];
} Sums;

static void sum_seconds(void *user, int32_t vs, int32_t part, int recompute) {
    Sums *sums = user;
    int32_t rank = vs % sums->l->point.choice.pp;
    CostPart p;
    Seconds s;
    if (!find_part(sums->c, &sums->l->point.choice, part, recompute, &p)) return;
    find_seconds(sums->c, &sums->l->point.choice, part, &p, &s);
    for (int i = 0; i < N_COSTED_KINDS; i++) sums->ranks[rank].kind[i] += s.kind[i];
    sums->ranks[rank].once += s.once;
    sums->ranks[rank].wgrad += s.wgrad;
    sums->flops += p.flops * sums->l->point.microbatches * sums->l->point.choice.dp;
}

void costed_step(const Costed *c, const SearchLayout *l, CostedStep *out) {
    Arena *arena = arena_create();
    Sums *sums = ARENA_NEW(arena, Sums);
    *sums = (Sums){ .c = c, .l = l };
    each_part(c, l, sum_seconds, sums);
    const SearchPoint *p = &l->point;
    double m = p->microbatches, v = p->chunks, slowest = -INFINITY;
    *out = (CostedStep){ .flops = sums->flops };
    for (int32_t r = 0; r < p->choice.pp; r++) {
        const Seconds *s = &sums->ranks[r];
        double t = of_microbatch(s), fill = p->schedule == SCHEDULE_ZERO_BUBBLE ? fmax(0, t - 2 * s->wgrad) : t;
        double busy = m * t + s->once + s->kind[COSTED_optimizer] - fill / v;
        if (busy <= slowest) continue;
        slowest = busy;
        out->rank = r;
    }
    const Seconds *s = &sums->ranks[out->rank];
    SearchRest rest;
    costed_rest(c, &p->choice, &rest);
    double left = l->step_s;
    for (int i = 0; i < N_COSTED_KINDS; i++) {
        out->seconds[i] = i == COSTED_optimizer ? s->kind[i] : m * s->kind[i];
        if (i == COSTED_params) out->seconds[i] += s->once;
        if (i == COSTED_sends)
            out->seconds[i] = 2.0 * (p->choice.pp - 1) * rest.send_s + (p->choice.pp > 1 ? m * v * rest.sent_s : 0);
        left -= out->seconds[i];
    }
    // Where ranks share cores, all of it is faster while others wait.
    double faster = left < 0 && c->cluster->device.sharing > 1 ? l->step_s / (l->step_s - left) : 1;
    for (int i = 0; i < N_COSTED_KINDS && faster < 1; i++) out->seconds[i] *= faster;
    out->seconds[COSTED_bubble] = fmax(0, left);
    arena_destroy(arena);
}

static void sum_bytes(void *user, int32_t vs, int32_t part, int recompute) {
    Sums *sums = user;
    SearchLayer layer;
    const SearchPoint *point = &sums->l->point;
    int32_t pp = point->choice.pp;
    double *bytes = sums->bytes[vs % pp];
    if (!costed_part(sums->c, &point->choice, part, &layer)) return;
    bool late = point->schedule == SCHEDULE_ZERO_BUBBLE;
    double *update = &sums->update_bytes[vs % pp];
    *update = fmax(*update, layer.update_bytes);
    bytes[COSTED_BYTES_state] += layer.state_bytes;
    bytes[COSTED_BYTES_saved] += flight_bytes(point, &sums->flights[vs], &layer, recompute);
    bytes[COSTED_BYTES_transient] = fmax(bytes[COSTED_BYTES_transient],
                                         (late ? layer.late_bytes : layer.transient_bytes)[recompute]);
}

void costed_bytes(const Costed *c, const SearchLayout *l, double (*bytes)[N_COSTED_BYTES]) {
    Arena *arena = arena_create();
    Sums *sums = ARENA_NEW(arena, Sums);
    int32_t pp = l->point.choice.pp, n = pp * l->point.chunks;
    *sums = (Sums){ .c = c, .l = l, .bytes = bytes, .flights = ARENA_ARRAY(arena, Flight, n) };
    flight_fill(&l->point, sums->flights);
    memset(bytes, 0, sizeof *bytes * (size_t)pp);
    each_part(c, l, sum_bytes, sums);
    SearchRest rest;
    costed_rest(c, &l->point.choice, &rest);
    for (int32_t i = 0; i < n; i++)
        bytes[i % pp][COSTED_BYTES_saved] += sums->flights[i].crossings * rest.boundary_bytes;
    for (int32_t r = 0; r < pp; r++) {
        double *transient = &bytes[r][COSTED_BYTES_transient];
        *transient = fmax(*transient, sums->update_bytes[r] - bytes[r][COSTED_BYTES_saved]);
        bytes[r][COSTED_BYTES_fixed] = rest.fixed_bytes;
    }
    arena_destroy(arena);
}
