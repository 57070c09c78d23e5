// SPDX-License-Identifier: Apache-2.0
// A model without some of its layers: what is known of one layer of many equal ones can be learned from fewer.
//
// Layers are joined where one value passes from each to the next. Of a run of layers [a, b) that goes, exactly
// one value is read behind it, and exactly one is read by it and not behind it; the first takes the place of the
// second there. What does not depend on a parameter (positions, tables of angles, numbers) may be shared by any layers;
// so may what a layer before the run made and layers behind it read. Layers keep their names, so also their numbers.
#include <stdlib.h>

#include "compiler/model/private.h"

typedef struct Shorten {
    const Model *m;
    Arena *arena;
    int32_t *at;      // by node: its layer, from 0; of what is no layer's the highest that it needs, or -1
    bool *depends;    // by node: on a parameter, and is none itself
    bool *live;       // by node: the tables need it
} Shorten;

static int32_t layer_of(const Model *m, uint32_t addr) {
    const char *name = model_name(m, addr);
    return strncmp(name, "layers.", 7) ? -1 : atoi(name + 7) - 1;
}

static bool goes(const Model *m, const bool *without, uint32_t addr) {
    int32_t layer = layer_of(m, addr);
    return layer >= 0 && layer < m->n_layers && without[layer];
}

// What a node reads: its operands, then the route of its rows. 0: none there.
static uint32_t read_of(const Model *m, uint32_t id, int i) {
    return i < m->nodes[id].n_args ? model_arg(m, id, i) : m->nodes[id].type.route;
}

/* What stays ------------------------------------------------------------------------------------- */

static void mark(const Model *m, bool *live) {
    for (uint32_t id = m->n_nodes - 1; id > 0; id--)
        for (int i = 0; live[id] && i <= m->nodes[id].n_args; i++) live[read_of(m, id, i)] = true;
}

static void mark_tables(const Model *m, const bool *without, bool *live) {
    for (uint32_t i = 0; i < m->n_losses; i++)
        if (!goes(m, without, m->losses[i].addr)) live[m->losses[i].node] = true;
    for (uint32_t i = 0; i < m->n_metrics; i++)
        if (!goes(m, without, m->metrics[i].addr)) live[m->metrics[i].node] = true;
    for (uint32_t i = 0; i < m->n_updates; i++) {
        const Update *u = &m->updates[i];
        if (goes(m, without, m->nodes[u->state].addr)) continue;
        live[u->state] = live[u->total] = live[u->next] = true;
    }
    live[m->logits] = true;
}

static Shorten survey(const Model *m, Arena *arena) {
    Shorten s = { m, arena, ARENA_ARRAY(arena, int32_t, m->n_nodes), ARENA_ARRAY(arena, bool, m->n_nodes),
                  ARENA_ARRAY(arena, bool, m->n_nodes) };
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        const Node *n = &m->nodes[id];
        int32_t own = layer_of(m, n->addr), most = -1;
        for (int i = 0; i <= n->n_args; i++) {
            uint32_t arg = read_of(m, id, i);
            bool weight = m->nodes[arg].op == OP_PARAM || m->nodes[arg].op == OP_STATE;
            s.depends[id] |= arg && (weight || s.depends[arg]);
            if (arg && s.at[arg] > most) most = s.at[arg];
        }
        s.at[id] = own >= 0 ? own : most;
    }
    // As the whole model would have it: what the tables of layers that go need is read by these.
    bool *none = ARENA_ARRAY(arena, bool, m->n_layers + 1);
    mark_tables(m, none, s.live);
    mark(m, s.live);
    return s;
}

/* Joints ------------------------------------------------------------------------------------------- */

typedef struct Joint { uint32_t into, out; bool fits; } Joint; // what a run reads of before, what is read behind it

static void add_end(uint32_t id, uint32_t *end, bool *fits) {
    if (*end && *end != id) *fits = false;
    *end = id;
}

static Joint find_joint(const Shorten *s, const bool *without, int32_t a, int32_t b) {
    const Model *m = s->m;
    Joint joint = { .fits = true };
    bool *behind = ARENA_ARRAY(s->arena, bool, m->n_nodes); // read behind the run
    mark_tables(m, without, behind);
    for (uint32_t id = 1; id < m->n_nodes; id++) behind[id] &= s->at[id] >= a;
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        bool reads = s->live[id] && s->at[id] >= b;
        for (int i = 0; reads && i <= m->nodes[id].n_args; i++) behind[read_of(m, id, i)] = true;
    }
    for (uint32_t id = 1; id < m->n_nodes; id++)
        if (s->depends[id] && behind[id] && s->at[id] >= a && s->at[id] < b) add_end(id, &joint.out, &joint.fits);
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        if (!s->live[id] || s->at[id] < a || s->at[id] >= b) continue;
        for (int i = 0; i <= m->nodes[id].n_args; i++) {
            uint32_t arg = read_of(m, id, i);
            if (s->depends[arg] && s->at[arg] < a && !behind[arg]) add_end(arg, &joint.into, &joint.fits);
        }
    }
    joint.fits &= joint.into && joint.out && type_equal(&m->nodes[joint.into].type, &m->nodes[joint.out].type);
    return joint;
}

/* The copy ----------------------------------------------------------------------------------------- */

static void copy_nodes(Model *to, const Model *from) {
    to->n_nodes = to->cap_nodes = from->n_nodes;
    to->nodes = ARENA_ARRAY(to->arena, Node, from->n_nodes);
    memcpy(to->nodes, from->nodes, sizeof *to->nodes * from->n_nodes);
    to->n_args = to->cap_args = from->n_args;
    to->args = ARENA_ARRAY(to->arena, uint32_t, from->n_args + 1);
    if (from->n_args) memcpy(to->args, from->args, sizeof *to->args * from->n_args);
    for (uint32_t i = 0; i < from->n_params; i++) to->params[i].node = from->params[i].node;
    to->logits = from->logits;
}

static void copy_roots(Model *to, const Model *from, const bool *without) {
    for (uint32_t i = 0; i < from->n_losses; i++)
        if (!goes(from, without, from->losses[i].addr))
            *ARENA_PUSH(to->arena, to->losses, to->n_losses, to->cap_losses) = from->losses[i];
    for (uint32_t i = 0; i < from->n_metrics; i++)
        if (!goes(from, without, from->metrics[i].addr))
            *ARENA_PUSH(to->arena, to->metrics, to->n_metrics, to->cap_metrics) = from->metrics[i];
    for (uint32_t i = 0; i < from->n_updates; i++)
        if (!goes(from, without, from->nodes[from->updates[i].state].addr))
            *ARENA_PUSH(to->arena, to->updates, to->n_updates, to->cap_updates) = from->updates[i];
}

// Drops nodes that nothing needs, and then parameters of the layers that went.
static void compact(Model *m, const bool *without, Arena *scratch) {
    bool *live = ARENA_ARRAY(scratch, bool, m->n_nodes);
    uint32_t *order = ARENA_ARRAY(scratch, uint32_t, m->n_nodes), *index, n = 0;
    for (uint32_t i = 0; i < m->n_params; i++)
        if (!goes(m, without, m->params[i].addr)) live[m->params[i].node] = true;
    mark_tables(m, without, live);
    mark(m, live);
    for (uint32_t id = 1; id < m->n_nodes; id++)
        if (live[id]) order[++n] = id;
    model_renumber(m, order, n);
    index = ARENA_ARRAY(scratch, uint32_t, m->n_params + 1);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m->n_params; i++) {
        if (!m->params[i].node && goes(m, without, m->params[i].addr)) continue;
        index[i] = kept;
        m->params[kept++] = m->params[i];
    }
    m->n_params = kept;
    for (uint32_t id = 1; id < m->n_nodes; id++)
        if (m->nodes[id].op == OP_PARAM || m->nodes[id].op == OP_STATE)
            m->nodes[id].attr.index = index[m->nodes[id].attr.index];
    model_cons_rebuild(m);
}

// with[id] takes the place of node id, which is younger, so the order stays.
static Model *make(const Model *from, const bool *without, const uint32_t *with, Arena *scratch) {
    Model *to = model_create();
    model_copy_tables(to, from);
    copy_nodes(to, from);
    copy_roots(to, from, without);
    for (uint32_t i = 0; i < to->n_args; i++)
        if (with[to->args[i]]) to->args[i] = with[to->args[i]];
    compact(to, without, scratch);
    return to;
}

Model *model_without_layers(const Model *from, const bool *without) {
    Arena *scratch = arena_create();
    Shorten s = survey(from, scratch);
    uint32_t *with = ARENA_ARRAY(scratch, uint32_t, from->n_nodes);
    bool fits = from->n_layers > 0 && !without[from->n_layers - 1]; // what follows counts as of the last one
    for (int32_t a = 0, b; a < from->n_layers && fits; a = b) {
        for (b = a; b < from->n_layers && without[b];) b++;
        if (b == a) {
            b++;
            continue;
        }
        Joint joint = find_joint(&s, without, a, b);
        fits = joint.fits;
        with[joint.out] = joint.into;
    }
    Model *out = fits ? make(from, without, with, scratch) : NULL;
    arena_destroy(scratch);
    return out;
}
