// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation, in the graph: the gradient of every parameter as ordinary nodes.
//
// Nodes are walked in falling id. A node's gradient is the sum of what its readers gave, in the
// order they gave it; then its adjoint rule passes it on. Backward nodes inherit address and
// location of the forward node. The order of every sum is thereby fixed by the forward graph
// alone.
#include "compiler/model/adjoint.h"

typedef struct Share {
    uint32_t node;
    struct Share *next;
} Share;

/* Which nodes matter --------------------------------------------------------------------------- */

static void (*const rules[N_OPS])(Adj *) = {
#define OP(name, text, lo, hi, class, shape, adjoint, flops) [OP_##name] = adjoint_##adjoint,
    OP_TABLE(OP)
#undef OP
};

// Operations without an adjoint pass no gradient on, by meaning. Attention's own gradient has none by
// omission: a gradient that arrives there is an error (adjoint_none).
static bool stops(Op op) {
    return rules[op] == adjoint_none && op != OP_ATTEND_LSE && op != OP_ATTEND_GRAD;
}

static uint8_t *find_reaches(const Model *m) {
    uint8_t *reaches = ARENA_ARRAY(m->arena, uint8_t, m->n_nodes);
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        const Node *n = &m->nodes[id];
        reaches[id] = n->op == OP_PARAM;
        if (n->type.kind != KIND_REAL || stops(n->op)) continue;
        for (int i = 0; i < n->n_args; i++) reaches[id] |= reaches[m->args[n->args + (uint32_t)i]];
    }
    return reaches;
}

/* Types ---------------------------------------------------------------------------------------- */

// Sums the features that broadcasting repeated, so that g has the features of `to` or fewer.
static uint32_t sum_features(Model *m, uint32_t g, const Type *to) {
    Type from = m->nodes[g].type;
    if (from.rank < to->rank) return g;
    int lead = from.rank - to->rank;
    uint32_t axes = 0;
    for (int i = 0; i < from.rank; i++) {
        if (from.dim[i] != 1 && (i < lead || to->dim[i - lead] == 1)) axes |= 1u << i;
    }
    if (axes) g = model_sum(m, g, axes);
    if (!lead || !g) return g;
    from = m->nodes[g].type;
    return model_reshape(m, g, from.dim + lead, to->rank);
}

static uint32_t sum_rows(Model *m, uint32_t g, const Type *to) {
    Type from = m->nodes[g].type;
    if (from.row == ROW_NONE || from.row == to->row) return g;
    switch (to->row) {
    case ROW_NONE: return model_row_sum(m, g, SET_ALL);
    case ROW_E: return from.row == ROW_R ? model_row_sum(m, g, SET_EXPERT) : g;
    case ROW_S: return model_row_sum(m, g, SET_SEQUENCE);
    default: return g;
    }
}

uint32_t sum_to(Model *m, uint32_t g, const Type *to) {
    if (g) g = sum_features(m, g, to);
    if (g) g = sum_rows(m, g, to);
    return g && !type_equal(&m->nodes[g].type, to) ? model_broadcast(m, g, to) : g;
}

/* Sums of shares ------------------------------------------------------------------------------- */

static void add_share(Adj *a, uint32_t to, uint32_t gradient) {
    Share *share = ARENA_NEW(a->m->arena, Share);
    share->node = gradient;
    Share **end = &a->shares[to];
    while (*end) end = &(*end)->next;
    *end = share;
}

void give(Adj *a, int i, uint32_t gradient) {
    uint32_t to = arg(a, i);
    if (a->failed || !a->reaches[to]) return;
    Type type = a->m->nodes[to].type;
    gradient = sum_to(a->m, gradient, &type);
    if (gradient)
        add_share(a, to, gradient);
    else
        a->failed = true;
}

// Concatenation of any number of nodes, in groups of at most MAX_ARGS.
static uint32_t concat_all(Model *m, uint32_t *nodes, uint32_t n, int32_t axis) {
    Attr attr = { .raw = { 0, 0 } };
    attr.cut.axis = axis;
    while (n > 1) {
        uint32_t groups = 0;
        for (uint32_t i = 0; i < n; i += MAX_ARGS) {
            int count = (int)(n - i < MAX_ARGS ? n - i : MAX_ARGS);
            uint32_t joined =
                count == 1 ? nodes[i] : model_node(m, OP_CONCAT, &attr, NULL, nodes + i, count);
            if (!joined) return 0;
            nodes[groups++] = joined;
        }
        n = groups;
    }
    return nodes[0];
}

static bool is_pad_along(const Model *m, uint32_t id, int32_t axis) {
    return m->nodes[id].op == OP_PAD && m->nodes[id].attr.cut.axis == axis;
}

// Finds pads along `axis` that tile it, and puts their concatenation in place of the first of
// them. False: out of nodes (m->diag). Slices that overlap or leave a gap stay as they are.
static bool join_pads(Model *m, Share **first, int32_t axis) {
    uint32_t n = 0;
    for (Share *s = *first; s; s = s->next) n += is_pad_along(m, s->node, axis);
    if (n < 2) return true;
    uint32_t *tiles = ARENA_ARRAY(m->arena, uint32_t, n);
    int32_t at = 0, whole = 0;
    for (uint32_t i = 0; i < n; i++) { // the next tile begins where the last one ends
        for (Share *s = *first; s; s = s->next) {
            if (!is_pad_along(m, s->node, axis)) continue;
            whole = m->nodes[s->node].type.dim[axis];
            if (m->nodes[s->node].attr.cut.at == at) tiles[i] = model_arg(m, s->node, 0);
        }
        if (!tiles[i]) return true;
        at += m->nodes[tiles[i]].type.dim[axis];
    }
    if (at != whole) return true;
    uint32_t joined = concat_all(m, tiles, n, axis);
    if (!joined) return false;
    bool placed = false;
    for (Share **s = first; *s;) {
        bool pad = is_pad_along(m, (*s)->node, axis);
        if (pad && !placed) {
            (*s)->node = joined;
            placed = true;
            s = &(*s)->next;
        } else if (pad) {
            *s = (*s)->next;
        } else {
            s = &(*s)->next;
        }
    }
    return true;
}

static uint32_t sum_shares(Model *m, Share *shares) {
    for (int32_t axis = 0; axis < MAX_RANK; axis++) {
        if (!join_pads(m, &shares, axis)) return 0;
    }
    uint32_t sum = shares->node;
    for (Share *s = shares->next; s && sum; s = s->next) sum = model_op2(m, OP_ADD, sum, s->node);
    return sum;
}

/* The walk ------------------------------------------------------------------------------------- */

static bool plant_seeds(Adj *a, const uint32_t *roots, const uint32_t *seeds, int n_roots) {
    for (int i = 0; i < n_roots; i++) {
        if (!roots[i] || !seeds[i]) return false; // its maker has said why
        if (!a->reaches[roots[i]]) continue;
        Type type = a->m->nodes[roots[i]].type;
        uint32_t seed = sum_to(a->m, seeds[i], &type);
        if (!seed) return false;
        add_share(a, roots[i], seed);
    }
    return true;
}

static bool walk(Adj *a, uint32_t n, uint32_t *gradients) {
    Model *m = a->m;
    for (uint32_t id = n - 1; id > 0; id--) {
        if (!a->shares[id]) continue;
        Node node = m->nodes[id];
        m->loc = node.loc;
        m->addr = node.addr;
        m->of = a->node = id;
        a->g = sum_shares(m, a->shares[id]);
        if (!a->g)
            a->failed = true;
        else if (node.op == OP_PARAM)
            gradients[node.attr.index] = a->g;
        else
            rules[node.op](a);
        if (a->failed) {
            m->diag.loc = node.loc;
            return false;
        }
    }
    return true;
}

bool model_gradients(Model *m, const uint32_t *roots, const uint32_t *seeds, int n_roots,
                     uint32_t *gradients) {
    uint32_t n = m->n_nodes, addr = m->addr;
    Loc loc = m->loc;
    uint8_t part = m->part;
    Adj a = { .m = m, .reaches = find_reaches(m), .shares = ARENA_ARRAY(m->arena, Share *, n) };
    for (uint32_t i = 0; i < m->n_params; i++) gradients[i] = 0;
    m->part = PART_BACKWARD;
    bool done = plant_seeds(&a, roots, seeds, n_roots) && walk(&a, n, gradients);
    m->of = 0;
    m->part = part;
    m->addr = addr;
    m->loc = loc;
    return done;
}
