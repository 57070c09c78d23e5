// SPDX-License-Identifier: Apache-2.0
// The rules that make a layout possible for a model, in the order in which they are told. A rule may
// count on those before it. What lowering cannot do yet is not a rule: lowering says so itself.
#include <math.h>
#include <stdlib.h>

#include "compiler/layout/private.h"

#define BROKEN(why, ...)                                                                           \
    do {                                                                                           \
        if (why) text_printf(why, __VA_ARGS__);                                                    \
        return false;                                                                              \
    } while (0)

/* Facts ---------------------------------------------------------------------------------------- */

// Layer, from 0, of an address "layers.3.ffn"; -1 outside of the layers.
static int32_t layer_of(const Model *m, uint32_t addr) {
    const char *name = model_name(m, addr);
    int32_t layer = strncmp(name, "layers.", 7) ? 0 : atoi(name + 7);
    return layer >= 1 && layer <= m->n_layers ? layer - 1 : -1;
}

void layout_experts(const Model *m, int32_t *experts) {
    memset(experts, 0, sizeof *experts * (size_t)m->n_layers);
    for (uint32_t i = 1; i < m->n_nodes; i++) {
        const Node *n = &m->nodes[i];
        int32_t layer = n->op == OP_ROUTE ? layer_of(m, n->addr) : -1;
        if (layer >= 0 && n->attr.route.experts > experts[layer])
            experts[layer] = n->attr.route.experts;
    }
}

static Facts gather_facts(const Model *m, const LayoutRun *run, Arena *arena) {
    RouteFact *routes = NULL;
    uint32_t n_routes = 0, cap = 0;
    for (uint32_t i = 1; i < m->n_nodes; i++) {
        const Node *n = &m->nodes[i];
        if (n->op != OP_ROUTE) continue;
        const Type *ids = model_type(m, model_arg(m, i, 0));
        *ARENA_PUSH(arena, routes, n_routes, cap) =
            (RouteFact){ .layer = layer_of(m, n->addr),
                         .name = model_name(m, n->addr),
                         .experts = n->attr.route.experts,
                         .top_k = ids->dim[0],
                         .capacity = (double)n->attr.route.capacity };
    }
    return (Facts){ .n_layers = m->n_layers,
                    .sequence = m->sequence,
                    .ranks = run->ranks,
                    .batch = run->batch,
                    .routes = routes,
                    .n_routes = (int32_t)n_routes,
                    .devices = run->devices };
}

static int64_t sequences(const Layout *l) {
    return max_i64(l->microbatch, 1); // an open one can be as small
}

/* Rules ---------------------------------------------------------------------------------------- */

static bool rule_ranks(const Facts *f, const Layout *l, Text *why) {
    int64_t ranks = (int64_t)l->pp * l->dp;
    if (ranks > LAYOUT_MOST_RANKS)
        BROKEN(why, "pp=%d x dp=%d is %lld ranks, expected up to %d", l->pp, l->dp,
               (long long)ranks, LAYOUT_MOST_RANKS);
    if (!f->ranks || ranks == f->ranks) return true;
    if (f->devices)
        BROKEN(why, "pp=%d x dp=%d is %lld rank%s, and the search is for %lld device%s", l->pp, l->dp,
               (long long)ranks, ranks == 1 ? "" : "s", (long long)f->ranks, f->ranks == 1 ? "" : "s");
    BROKEN(why, "pp=%d x dp=%d is %lld rank%s, and %lld %s started", l->pp, l->dp, (long long)ranks,
           ranks == 1 ? "" : "s", (long long)f->ranks, f->ranks == 1 ? "was" : "were");
}

static bool rule_ep(const Facts *f, const Layout *l, Text *why) {
    (void)f;
    if (l->dp % l->ep == 0) return true;
    BROKEN(why, "ep=%d does not divide dp=%d", l->ep, l->dp);
}

static bool rule_experts(const Facts *f, const Layout *l, Text *why) {
    if (l->ep > 1 && !f->n_routes)
        BROKEN(why, "ep=%d divides experts, and the model has none", l->ep);
    for (int32_t i = 0; i < f->n_routes; i++) {
        if (f->routes[i].experts % l->ep)
            BROKEN(why, "ep=%d does not divide the %d experts of %s", l->ep, f->routes[i].experts,
                   f->routes[i].name);
    }
    return true;
}

static bool rule_node(const Facts *f, const Layout *l, Text *why) {
    (void)f;
    if (l->node > 1 && l->transport != TRANSPORT_BLOCKS)
        BROKEN(why, "node=%d says between whom blocks go, and transport is rows", l->node);
    if (l->node > 1 && l->ep % l->node) BROKEN(why, "node=%d does not divide ep=%d", l->node, l->ep);
    return true;
}

static bool rule_schedule(const Facts *f, const Layout *l, Text *why) {
    (void)f;
    bool interleaved = l->schedule == SCHEDULE_INTERLEAVED;
    if (interleaved && l->pp < 2) BROKEN(why, "schedule=interleaved needs more than one stage, got pp=1");
    if (interleaved && l->chunks < 2)
        BROKEN(why, "schedule=interleaved needs several stages on each rank, got slots=%d", l->chunks);
    if (!interleaved && l->chunks > 1)
        BROKEN(why, "slots=%d needs schedule=interleaved", l->chunks);
    if (l->schedule == SCHEDULE_ZERO_BUBBLE && l->pp < 2)
        BROKEN(why, "schedule=zb needs more than one stage, got pp=1");
    return true;
}

static bool rule_stages(const Facts *f, const Layout *l, Text *why) {
    int64_t n = (int64_t)l->pp * l->chunks, sum = 0;
    if (!l->stages && n > f->n_layers && n > 1)
        BROKEN(why, "%d layers do not fill pp=%d x slots=%d stages", f->n_layers, l->pp, l->chunks);
    if (!l->stages) return true;
    if (layout_stages(l) != n)
        BROKEN(why, "stages has %d numbers, expected pp=%d x slots=%d", layout_stages(l), l->pp,
               l->chunks);
    for (int64_t i = 0; i < n; i++) {
        if (l->stages[i] < 1) BROKEN(why, "stage %lld of stages has no layer", (long long)i + 1);
        sum += l->stages[i];
    }
    if (sum == f->n_layers) return true;
    BROKEN(why, "stages has %lld layers, and the model %d", (long long)sum, f->n_layers);
}

static bool rule_batch(const Facts *f, const Layout *l, Text *why) {
    if (f->batch % f->sequence)
        BROKEN(why, "a batch of %lld tokens is no whole number of sequences of %lld",
               (long long)f->batch, (long long)f->sequence);
    int64_t all = f->batch / f->sequence, each = (int64_t)l->dp * sequences(l);
    if (all % each == 0) return true;
    if (l->microbatch)
        BROKEN(why, "a batch of %lld sequences is no multiple of dp=%d x microbatch=%d",
               (long long)all, l->dp, l->microbatch);
    BROKEN(why, "a batch of %lld sequences is no multiple of dp=%d", (long long)all, l->dp);
}

static int64_t microbatches(const Facts *f, const Layout *l) {
    int64_t least = l->schedule == SCHEDULE_INTERLEAVED ? l->pp : 1;
    return f->batch ? f->batch / f->sequence / l->dp / sequences(l) : least;
}

static bool rule_microbatches(const Facts *f, const Layout *l, Text *why) {
    int64_t n = microbatches(f, l);
    if (l->schedule != SCHEDULE_INTERLEAVED || n % l->pp == 0) return true;
    BROKEN(why, "schedule=interleaved takes microbatches by groups of pp=%d, and a step has %lld",
           l->pp, (long long)n);
}

double layout_rows_of(const Facts *f, const Layout *l, const RouteFact *route) {
    double even = (double)sequences(l) * (double)f->sequence * route->top_k;
    double capacity = l->capacity ? l->capacity : route->capacity ? route->capacity : INFINITY;
    return ceil(fmin(capacity, l->ep) * even);
}

static bool rule_rows(const Facts *f, const Layout *l, Text *why) {
    int64_t tokens = sequences(l) * f->sequence;
    if (tokens > INT32_MAX)
        BROKEN(why, "a microbatch of %lld tokens, expected up to %d", (long long)tokens, INT32_MAX);
    for (int32_t i = 0; i < f->n_routes; i++) {
        double pads = (double)(f->routes[i].experts / l->ep) * (l->row_align > 1 ? l->row_align - 1 : 0);
        double rows = layout_rows_of(f, l, &f->routes[i]) + pads;
        if (rows > INT32_MAX)
            BROKEN(why, "%s has %.0f rows on a rank, expected up to %d", f->routes[i].name, rows,
                   INT32_MAX);
    }
    return true;
}

// Every expert of a rank can have a row.
static bool rule_capacity(const Facts *f, const Layout *l, Text *why) {
    for (int32_t i = 0; i < f->n_routes && l->ep > 1; i++) {
        int32_t mine = f->routes[i].experts / l->ep;
        double rows = layout_rows_of(f, l, &f->routes[i]);
        if (rows < mine)
            BROKEN(why, "capacity=%g leaves a rank %.0f row%s for its %d experts of %s",
                   l->capacity ? l->capacity : f->routes[i].capacity, rows, rows == 1 ? "" : "s",
                   mine, f->routes[i].name);
    }
    return true;
}

static bool rule_recompute(const Facts *f, const Layout *l, Text *why) {
    if (!l->layer_recompute || l->n_layer_recompute == f->n_layers) return true;
    BROKEN(why, "recompute has %d words, and the model %d layers", l->n_layer_recompute,
           f->n_layers);
}

static bool places_evenly(const Facts *f, const Layout *l, const RouteFact *route, int32_t *held,
                          Text *why) {
    (void)f;
    int32_t share = route->experts / l->ep;
    memset(held, 0, sizeof *held * (size_t)l->ep);
    if (route->experts > l->experts)
        BROKEN(why, "placement has %d experts, and %s %d", l->experts, route->name, route->experts);
    const int32_t *ranks = l->placement + (int64_t)route->layer * l->experts;
    for (int32_t e = 0; e < route->experts; e++) {
        if (ranks[e] < 0 || ranks[e] >= l->ep)
            BROKEN(why, "placement puts expert %d of %s on rank %d of ep=%d", e, route->name,
                   ranks[e], l->ep);
        held[ranks[e]]++;
    }
    for (int32_t r = 0; r < l->ep; r++) {
        if (held[r] != share)
            BROKEN(why, "placement puts %d of the %d experts of %s on rank %d of ep=%d, expected %d "
                        "on each",
                   held[r], route->experts, route->name, r, l->ep, share);
    }
    return true;
}

static bool rule_placement(const Facts *f, const Layout *l, Text *why) {
    if (!l->placement) return true;
    Arena *arena = arena_create();
    int32_t *held = ARENA_ARRAY(arena, int32_t, l->ep);
    bool even = true;
    for (int32_t i = 0; i < f->n_routes && even; i++)
        even = f->routes[i].layer < 0 || places_evenly(f, l, &f->routes[i], held, why);
    arena_destroy(arena);
    return even;
}

const Rule layout_rules[N_RULES] = {
    rule_ranks, rule_ep,   rule_experts,  rule_node,      rule_schedule,  rule_stages,    rule_batch,
    rule_microbatches, rule_rows, rule_capacity, rule_recompute, rule_placement,
};

int layout_first_broken(const Facts *facts, const Layout *layout, Text *why) {
    for (int i = 0; i < N_RULES; i++)
        if (!layout_rules[i](facts, layout, why)) return i;
    return N_RULES;
}

/* The check ------------------------------------------------------------------------------------ */

// The next step: the nearest layout, of the ranks that were started if one exists.
static void add_hint(const Facts *facts, const Layout *layout, Arena *arena, Text *hint) {
    Facts free = *facts;
    free.ranks = 0;
    Layout near;
    if (facts->batch % facts->sequence) {
        text_printf(hint, "a batch of %lld tokens is %lld sequences",
                    (long long)round_up(facts->batch, facts->sequence),
                    (long long)div_up(facts->batch, facts->sequence));
        return;
    }
    int64_t ranks = (int64_t)layout->pp * layout->dp;
    if (!facts->devices && facts->ranks != ranks && layout_first_broken(&free, layout, NULL) == N_RULES)
        text_printf(hint, "mpirun -n %lld starts as many; ", (long long)ranks);
    bool found = layout_nearest(facts, layout, arena, &near);
    if (found) {
        text_add(hint, "the nearest that works: --layout ");
    } else if (facts->ranks && layout_nearest(&free, layout, arena, &near)) {
        text_printf(hint, "none of %lld ranks works; the nearest of others: --layout ",
                    (long long)facts->ranks);
    } else {
        text_add(hint, "no layout works: fewer tokens per sequence");
        return;
    }
    layout_print(&near, hint);
    if (layout->placement && !near.placement) text_add(hint, ", without a placement");
}

Status layout_check(const Layout *layout, const Model *model, const LayoutRun *run) {
    Arena *arena = arena_create();
    Facts facts = gather_facts(model, run, arena);
    Text why = { 0 }, hint = { 0 };
    Status status = OK;
    if (layout_first_broken(&facts, layout, &why) < N_RULES) {
        add_hint(&facts, layout, arena, &hint);
        status = status_fail(ERR_ARGUMENT, "layout: %s\n  hint: %s", text_cstr(&why),
                             text_cstr(&hint));
    }
    text_finish(&why);
    text_finish(&hint);
    arena_destroy(arena);
    return status;
}

int32_t layout_choose_microbatch(const Layout *layout, const Model *model, const LayoutRun *run,
                                 int64_t usual) {
    int64_t most = min_i64(max_i64(1, usual / model->sequence), LAYOUT_MOST_SEQUENCES);
    int64_t all = run->batch / model->sequence / layout->dp;
    int64_t group = layout->schedule == SCHEDULE_INTERLEAVED ? layout->pp : 1;
    if (!run->batch) return (int32_t)most;
    while (most > 1 && (all % most || all / most % group)) most--;
    return (int32_t)most;
}

int64_t layout_microbatches(const Layout *layout, const Model *model, const LayoutRun *run) {
    Facts facts = { .sequence = model->sequence, .batch = run->batch };
    return microbatches(&facts, layout);
}
