// SPDX-License-Identifier: Apache-2.0
// Placements by number of ranks. Each is made of the sums over all steps and judged step by step: loads drift.
#include "compiler/search/placed.h"

#include <math.h>

#include "compiler/layout/layout.h"
#include "compiler/search/placement.h"

// Of a placement that a search looks at there is one per layer and divisor; what branch and bound would still gain is
// far below what loads change from step to step.
enum { BUDGET = 1000 };
static const double tolerance = 1e-3; // of `moec place`: experts stay where moving them gains no more

typedef struct At {
    int32_t ep;
    int32_t *ranks;  // [layers][experts]
    double *left[2]; // [layers of the record]: as placed; in order
    double bound;    // mean over these, of the sums
} At;

struct Placed {
    const Load *load;
    Arena *arena;
    int32_t n_layers, experts; // experts: of the layer with most
    int32_t *count;            // [n_layers] of the model
    double *sum;               // [load->width]
    At *at;
    uint32_t n_at, cap_at;
};

Status placed_create(const Model *model, const char *name, const Load *load, Arena *arena, Placed **out) {
    Placed *p = ARENA_NEW(arena, Placed);
    *p = (Placed){ .load = load, .arena = arena, .n_layers = model->n_layers };
    if (!load->n_steps) return status_fail(ERR_INPUT, "%s has no loads", name);
    p->count = ARENA_ARRAY(arena, int32_t, model->n_layers + 1);
    layout_experts(model, p->count);
    for (int32_t i = 0; i < model->n_layers; i++) p->experts = (int32_t)max_i64(p->experts, p->count[i]);
    for (int32_t i = 0; i < load->n_layers; i++) {
        const LoadLayer *layer = &load->layers[i];
        int32_t has = layer->layer <= model->n_layers ? p->count[layer->layer - 1] : 0;
        if (layer->experts != has)
            return status_fail(ERR_INPUT,
                               "%s has loads of %d experts of layer %d, and %s has %d there\n"
                               "  hint: a record of this model, with the same key=value",
                               name, layer->experts, layer->layer, model->name, has);
    }
    p->sum = ARENA_ARRAY(arena, double, load->width + 1);
    load_sum(load, 0, load->n_steps, p->sum);
    *out = p;
    return OK;
}

// Mean over steps of the busiest rank's rows over the mean's.
static double step_by_step(const Placed *p, const LoadLayer *layer, const int32_t *owner, int32_t ep, double *scratch) {
    double sum = 0;
    int32_t n = 0;
    for (int32_t s = 0; s < p->load->n_steps; s++) {
        const double *load = p->load->rows + (int64_t)s * p->load->width + layer->at;
        double all = 0;
        for (int32_t e = 0; e < layer->experts; e++) all += load[e];
        if (all <= 0) continue;
        sum += placement_busiest(load, owner, layer->experts, ep, scratch) * ep / all;
        n++;
    }
    return n ? sum / n : 1;
}

static void place_layer(Placed *p, At *at, int32_t i) {
    const LoadLayer *layer = &p->load->layers[i];
    Arena *scratch = arena_create();
    int32_t *row = at->ranks + (int64_t)(layer->layer - 1) * p->experts,
            *order = ARENA_ARRAY(scratch, int32_t, layer->experts);
    double *rank_load = ARENA_ARRAY(scratch, double, at->ep);
    memcpy(order, row, sizeof *row * (size_t)layer->experts);
    PlacementJob job = { .load = p->sum + layer->at,
                         .n = layer->experts,
                         .ranks = at->ep,
                         .slots = layer->experts / at->ep,
                         .budget = BUDGET,
                         .owner = order,
                         .tolerance = tolerance };
    Placement placement;
    placement_find(&job, scratch, &placement);
    placement_stay(&placement, order, scratch);
    placement_owners(&placement, row);
    at->left[0][i] = step_by_step(p, layer, row, at->ep, rank_load);
    at->left[1][i] = step_by_step(p, layer, order, at->ep, rank_load);
    at->bound += (placement.mean > 0 ? placement.bound / placement.mean : 1) / p->load->n_layers;
    arena_destroy(scratch);
}

// Else no layout has so many ranks.
static bool divides(const Placed *p, int32_t layer, int32_t ep) {
    return p->count[layer] > 0 && p->count[layer] % ep == 0;
}

static const At *at_of(Placed *p, int32_t ep) {
    for (uint32_t i = 0; i < p->n_at; i++)
        if (p->at[i].ep == ep) return &p->at[i];
    At *at = ARENA_PUSH(p->arena, p->at, p->n_at, p->cap_at);
    *at = (At){ .ep = ep,
                .ranks = ARENA_ARRAY(p->arena, int32_t, (int64_t)p->n_layers * p->experts),
                .left = { ARENA_ARRAY(p->arena, double, p->load->n_layers + 1),
                          ARENA_ARRAY(p->arena, double, p->load->n_layers + 1) } };
    for (int32_t layer = 0; layer < p->n_layers; layer++)
        for (int32_t e = 0; e < p->experts; e++)
            at->ranks[(int64_t)layer * p->experts + e] =
                e < p->count[layer] && divides(p, layer, ep) ? e / (p->count[layer] / ep) : -1;
    for (int32_t i = 0; i < p->load->n_layers; i++)
        if (divides(p, p->load->layers[i].layer - 1, ep)) place_layer(p, at, i);
    return at;
}

double placed_imbalance(Placed *p, const int32_t *class_of, int32_t class, int32_t ep, bool in_order) {
    const At *at = at_of(p, ep);
    double sum = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < p->load->n_layers; i++) {
        if (class_of[p->load->layers[i].layer - 1] != class) continue;
        sum += at->left[in_order][i];
        n++;
    }
    return n ? sum / n : 0;
}

double placed_left(Placed *p, int32_t ep, bool in_order, double *bound) {
    const At *at = at_of(p, ep);
    double sum = 0;
    for (int32_t i = 0; i < p->load->n_layers; i++) sum += at->left[in_order][i];
    *bound = at->bound;
    return sum / p->load->n_layers;
}

int32_t *placed_ranks(Placed *p, int32_t ep, int32_t *experts) {
    *experts = p->experts;
    return at_of(p, ep)->ranks;
}
