// SPDX-License-Identifier: Apache-2.0
// Where each node of a program belongs, on a pipeline.
//
// A node of a layer belongs to its layer's virtual stage. Of the others, what only layers' results
// lead to and what leads to a layer again is made as early as it can be; what leads to none (head,
// losses, metrics) on the last stage; what needs no layer (embeddings, functions of weights) where
// its first reader is, all looks into one table together. Along edges of forward, stages never fall.
// What backward makes for a node belongs where the node does, so gradients mirror the values; along
// edges of backward, stages never rise.
//
// A parameter is held by every rank that reads it, and owned by the one whose virtual stage is lowest.
#include "compiler/lower/stages.h"

#include <stdlib.h>

static OpClass class_of(const Model *m, uint32_t n) {
    return op_info[m->nodes[n].op].class;
}

// Of "layers.3.ffn" 2, outside of the layers -1.
static int32_t layer_of(const Model *m, uint32_t addr) {
    const char *name = model_name(m, addr);
    return strncmp(name, "layers.", 7) ? -1 : atoi(name + 7) - 1;
}

static int32_t stage_of(const Stages *s, uint32_t addr) {
    int32_t layer = layer_of(s->m, addr);
    return layer < 0 ? -1 : layout_stage_of_layer(s->l->layout, layer, s->m->n_layers);
}

/* What is copied ------------------------------------------------------------------------------- */

static bool is_row_op(OpClass class) {
    return class == CLASS_VIEW || class == CLASS_MAP || class == CLASS_REDUCE || class == CLASS_WHOLE;
}

static void fill_places(Stages *s) {
    const Model *m = s->m;
    bool *free = ARENA_ARRAY(s->arena, bool, m->n_nodes); // of generators and numbers only
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        const Node *node = &m->nodes[n];
        OpClass class = class_of(m, n);
        bool weight = node->op == OP_PARAM || node->op == OP_STATE;
        free[n] =
            !weight && node->op != OP_TOTAL && (class == CLASS_SOURCE || class == CLASS_GENERATOR || is_row_op(class));
        for (int i = 0; i < node->n_args; i++) free[n] &= free[model_arg(m, n, i)];
        uint32_t arg = node->n_args ? model_arg(m, n, 0) : 0;
        if (weight)
            s->param[n] = node->attr.index;
        else if (class == CLASS_VIEW)
            s->param[n] = s->param[arg];
        weight |= class == CLASS_VIEW && s->place[arg] == COPIED_WEIGHT;
        bool after = node->part == PART_UPDATE && node->op != OP_TOTAL && class != CLASS_EFFECT;
        s->place[n] = weight ? COPIED_WEIGHT : free[n] || after || node->op == OP_ROUTE ? COPIED : PLACED;
    }
}

/* Forward -------------------------------------------------------------------------------------- */

static int32_t highest_arg(const Stages *s, uint32_t n) {
    int32_t at = -1;
    for (int i = 0; i < s->m->nodes[n].n_args; i++) {
        int32_t arg = s->at[model_arg(s->m, n, i)];
        at = arg > at ? arg : at;
    }
    return at;
}

// Does a node of a layer follow from it, in forward?
static bool *find_feeds(const Stages *s) {
    const Model *m = s->m;
    bool *feeds = ARENA_ARRAY(s->arena, bool, m->n_nodes);
    for (uint32_t n = m->n_nodes - 1; n > 0; n--) {
        if (m->nodes[n].part != PART_FORWARD) continue;
        for (int i = 0; i < m->nodes[n].n_args; i++)
            feeds[model_arg(m, n, i)] |= feeds[n] || layer_of(m, m->nodes[n].addr) >= 0;
    }
    return feeds;
}

// What needs no layer is at -1 until place_floating knows its readers.
static void place_forward(Stages *s) {
    const Model *m = s->m;
    const bool *feeds = find_feeds(s);
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        const Node *node = &m->nodes[n];
        if (node->part != PART_FORWARD) continue;
        int32_t own = stage_of(s, node->addr), args = highest_arg(s, n);
        s->at[n] = own > args ? own : args;
        if (s->place[n] != PLACED)
            s->at[n] = args;
        else if (own < 0 && args >= 0 && !feeds[n])
            s->at[n] = s->n - 1;
    }
}

// By node: the lowest stage that reads it in forward, through what is copied.
static void place_floating(Stages *s) {
    const Model *m = s->m;
    int32_t *first = ARENA_ARRAY(s->arena, int32_t, m->n_nodes);
    int32_t *table = ARENA_ARRAY(s->arena, int32_t, m->n_params + 1);
    for (uint32_t n = 0; n < m->n_nodes; n++) first[n] = s->n - 1;
    for (uint32_t p = 0; p < m->n_params; p++) table[p] = s->n;
    for (uint32_t n = m->n_nodes - 1; n > 0; n--) {
        const Node *node = &m->nodes[n];
        if (node->part != PART_FORWARD) continue;
        bool placed = s->place[n] == PLACED;
        if (placed && s->at[n] < 0) s->at[n] = first[n];
        int32_t reads = placed ? s->at[n] : first[n];
        bool looks = node->op == OP_EMBED && s->place[model_arg(m, n, 0)] == COPIED_WEIGHT &&
                     s->place[model_arg(m, n, 1)] != PLACED;
        int32_t *of = looks ? &table[s->param[model_arg(m, n, 0)]] : NULL;
        if (of && reads < *of) *of = reads;
        for (int i = 0; i < node->n_args; i++) {
            int32_t *arg = &first[model_arg(m, n, i)];
            if (reads < *arg) *arg = reads;
        }
    }
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        const Node *node = &m->nodes[n];
        if (node->op != OP_EMBED || s->place[model_arg(m, n, 0)] != COPIED_WEIGHT) continue;
        int32_t of = table[s->param[model_arg(m, n, 0)]];
        if (of < s->at[n] && layer_of(m, node->addr) < 0) s->at[n] = of;
    }
}

/* Backward, update ----------------------------------------------------------------------------- */

static void place_backward(Stages *s) {
    const Model *m = s->m;
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        const Node *node = &m->nodes[n];
        if (node->part != PART_BACKWARD) continue;
        bool mirrors = node->of && s->place[node->of] == PLACED && m->nodes[node->of].part == PART_FORWARD;
        // Sums of what readers gave begin where the latest of these are made.
        mirrors &= node->op != OP_ADD && node->op != OP_CONCAT;
        int32_t own = mirrors ? s->at[node->of] : s->n, forward = -1;
        bool any = mirrors;
        for (int i = 0; i < node->n_args; i++) {
            uint32_t arg = model_arg(m, n, i);
            if (s->at[arg] < 0) continue;
            if (m->nodes[arg].part != PART_BACKWARD) {
                forward = s->at[arg] > forward ? s->at[arg] : forward;
                continue;
            }
            any = true;
            own = s->at[arg] < own ? s->at[arg] : own;
        }
        s->at[n] = s->place[n] != PLACED ? -1 : any ? own : forward >= 0 ? forward : s->n - 1;
    }
}

// Totals lie where what they add up is made. What an update computes of them is copied.
static void place_update(Stages *s) {
    const Model *m = s->m;
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        const Node *node = &m->nodes[n];
        if (node->part != PART_UPDATE) continue;
        int32_t args = highest_arg(s, n);
        s->at[n] = args;
        if (node->op == OP_TOTAL && args < 0) s->at[n] = 0;
        if (node->op != OP_UPDATE || !s->l->shared->owner) continue;
        s->at[n] = s->l->shared->owner[m->nodes[model_arg(m, n, 0)].attr.index];
    }
}

void stages_find(Stages *s, Lower *l, Model *m, Arena *arena) {
    *s = (Stages){ .l = l, .m = m, .arena = arena };
    s->ranks = l->layout->pp;
    s->chunks = l->layout->chunks;
    s->n = s->ranks * s->chunks;
    s->place = ARENA_ARRAY(arena, uint8_t, m->n_nodes);
    s->at = ARENA_ARRAY(arena, int32_t, m->n_nodes);
    s->param = ARENA_ARRAY(arena, uint32_t, m->n_nodes);
    s->at[0] = -1;
    fill_places(s);
    place_forward(s);
    place_floating(s);
    place_backward(s);
    place_update(s);
}

/* Parameters ----------------------------------------------------------------------------------- */

// lowest: by parameter, the first virtual stage that reads it.
static void note_readers(const Stages *s, bool *held, int32_t *lowest) {
    const Model *m = s->m;
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        const Node *node = &m->nodes[n];
        if (s->place[n] != PLACED || node->part == PART_UPDATE || node->op == OP_ACCUMULATE) continue;
        for (int i = 0; i < node->n_args; i++) {
            uint32_t arg = model_arg(m, n, i), p = s->param[arg];
            if (s->place[arg] != COPIED_WEIGHT) continue;
            held[p * (uint32_t)s->ranks + (uint32_t)stages_rank(s, n)] = true;
            if (s->at[n] < lowest[p]) lowest[p] = s->at[n];
        }
    }
}

// An update may read other parameters and states than its own.
static void note_updates(const Stages *s, bool *held, const int32_t *owner) {
    const Model *m = s->m;
    bool *needed = ARENA_ARRAY(s->arena, bool, m->n_nodes);
    for (uint32_t i = 0; i < m->n_effects; i++) {
        uint32_t effect = m->effects[i];
        if (m->nodes[effect].op != OP_UPDATE) continue;
        int32_t rank = owner[m->nodes[model_arg(m, effect, 0)].attr.index];
        memset(needed, 0, sizeof *needed * m->n_nodes);
        needed[effect] = true;
        for (uint32_t n = effect; n > 0; n--) {
            if (!needed[n]) continue;
            if (s->place[n] == COPIED_WEIGHT) held[s->param[n] * (uint32_t)s->ranks + (uint32_t)rank] = true;
            for (int k = 0; m->nodes[n].op != OP_TOTAL && k < m->nodes[n].n_args; k++)
                needed[model_arg(m, n, k)] = true;
        }
    }
}

// The rank of a parameter that nothing reads: its layer's.
static int32_t usual_owner(const Lower *l, uint32_t p) {
    int32_t layer = layer_of(l->from, l->from->params[p].addr);
    return layer < 0 ? 0 : layout_stage_of_layer(l->layout, layer, l->from->n_layers) % l->layout->pp;
}

void stages_survey(Lower *l) {
    uint32_t ranks = (uint32_t)l->layout->pp, n = l->from->n_params;
    bool *held = ARENA_ARRAY(l->plan->arena, bool, (size_t)n *ranks + 1);
    int32_t *lowest = ARENA_ARRAY(l->plan->arena, int32_t, n + 1), *owner = ARENA_ARRAY(l->plan->arena, int32_t, n + 1);
    Model *models[N_PROGRAMS];
    Stages stages[N_PROGRAMS];
    for (uint32_t p = 0; p < n; p++) lowest[p] = INT32_MAX;
    for (int i = 0; i < N_PROGRAMS; i++) {
        models[i] = model_program(l->from, (Program)i); // what cannot be made is refused where it is wanted
        if (!models[i]) continue;
        stages_find(&stages[i], l, models[i], models[i]->arena);
        note_readers(&stages[i], held, lowest);
    }
    for (uint32_t p = 0; p < n; p++) {
        owner[p] = lowest[p] < INT32_MAX ? lowest[p] % (int32_t)ranks : usual_owner(l, p);
        held[p * ranks + (uint32_t)owner[p]] = true;
    }
    if (models[PROGRAM_STEP]) note_updates(&stages[PROGRAM_STEP], held, owner);
    for (int i = 0; i < N_PROGRAMS; i++) model_destroy(models[i]);
    l->shared->held = held;
    l->shared->owner = owner;
}

bool lower_holds(const Lower *l, uint32_t param) {
    const Shared *shared = l->shared;
    return !shared->held || shared->held[param * (uint32_t)l->layout->pp + (uint32_t)l->options->stage];
}

bool lower_owns(const Lower *l, uint32_t param) {
    return !l->shared->owner || l->shared->owner[param] == l->options->stage;
}
