// SPDX-License-Identifier: Apache-2.0
// What forward saves for backward, and what backward computes again.
//
// A value that backward reads is saved, or computed again from saved ones by row operations of its
// own layer: a minimum cut. Every forward value is an edge whose capacity is its bytes; a value
// that may not be computed again hangs on the source, one that backward reads on the sink, and
// operands lead to what is made of them without limit. The values that the cut separates are saved.
// What lies behind the cut is cloned into backward, where each reader evaluates it for itself.
//
// Not computed again: contractions, moves, sums over rows, choices, what another layer reads (else
// backward would build the stream again from the first layer on), statistics (reductions to a
// sixteenth or less), and what m.keep marks. Rows that products gather for themselves cost nothing.
// m.recompute marks what is not saved, contractions and moves included.
//
// That is the policy "cheap". Where a layer's policy is "block", contractions, attention and moves are
// computed again too: what is saved of it is what enters it, choices, and statistics, which are small.
// Of a layer's whose policy is "none" everything is saved. What lies outside of the layers has no policy
// beyond "cheap". Effects are never cloned: what backward computes again reports nothing.
#include "compiler/lower/pass.h"

enum { NARROW = 16 };
static const int64_t ENDLESS = INT64_C(1) << 60;

/* Maximum flow by levels (Dinic) --------------------------------------------------------------- */

typedef struct Edge {
    uint32_t to, next; // index + 1
    int64_t left;      // capacity
} Edge;

typedef struct Net {
    Arena *arena;
    Edge *edges; // an edge and its reverse are neighbours
    uint32_t n_edges, cap_edges, n, *head, *at, *queue, *path;
    int32_t *level;
    bool *behind; // the cut
} Net;

static void add_edge(Net *net, uint32_t from, uint32_t to, int64_t capacity) {
    for (int i = 0; i < 2; i++) {
        uint32_t *head = &net->head[i ? to : from];
        *ARENA_PUSH(net->arena, net->edges, net->n_edges, net->cap_edges) =
            (Edge){ i ? from : to, *head, i ? 0 : capacity };
        *head = net->n_edges;
    }
}

// Levels of what can still be reached from vertex 0; false: vertex 1 cannot.
static bool fill_levels(Net *net) {
    uint32_t first = 0, last = 0;
    for (uint32_t v = 0; v < net->n; v++) net->level[v] = -1;
    net->level[0] = 0;
    net->queue[last++] = 0;
    while (first < last) {
        uint32_t v = net->queue[first++];
        for (uint32_t e = net->head[v]; e; e = net->edges[e - 1].next) {
            const Edge *edge = &net->edges[e - 1];
            if (!edge->left || net->level[edge->to] >= 0) continue;
            net->level[edge->to] = net->level[v] + 1;
            net->queue[last++] = edge->to;
        }
    }
    return net->level[1] >= 0;
}

// One path of unused capacity along rising levels, and its flow; without recursion.
static int64_t push_path(Net *net) {
    uint32_t v = 0, n = 0;
    while (v != 1) {
        uint32_t e = net->at[v];
        while (e &&
               (!net->edges[e - 1].left || net->level[net->edges[e - 1].to] != net->level[v] + 1))
            e = net->edges[e - 1].next;
        net->at[v] = e;
        if (e) {
            net->path[n++] = e - 1;
            v = net->edges[e - 1].to;
        } else {
            if (!n) return 0;
            v = net->edges[net->path[--n] ^ 1].to;
            net->at[v] = net->edges[net->at[v] - 1].next;
        }
    }
    int64_t flow = ENDLESS;
    for (uint32_t i = 0; i < n; i++) flow = min_i64(flow, net->edges[net->path[i]].left);
    for (uint32_t i = 0; i < n; i++) {
        net->edges[net->path[i]].left -= flow;
        net->edges[net->path[i] ^ 1].left += flow;
    }
    return flow;
}

// What can still reach the sink. Of all minimum cuts this one leaves the least behind it.
static void fill_behind(Net *net) {
    uint32_t first = 0, last = 0;
    net->behind[1] = true;
    net->queue[last++] = 1;
    while (first < last) {
        uint32_t v = net->queue[first++];
        for (uint32_t e = net->head[v]; e; e = net->edges[e - 1].next) {
            uint32_t from = net->edges[e - 1].to;
            if (!net->edges[(e - 1) ^ 1].left || net->behind[from]) continue;
            net->behind[from] = true;
            net->queue[last++] = from;
        }
    }
}

static void find_cut(Net *net) {
    net->behind = ARENA_ARRAY(net->arena, bool, net->n);
    net->level = ARENA_ARRAY(net->arena, int32_t, net->n);
    net->at = ARENA_ARRAY(net->arena, uint32_t, net->n);
    net->queue = ARENA_ARRAY(net->arena, uint32_t, net->n);
    net->path = ARENA_ARRAY(net->arena, uint32_t, net->n);
    while (fill_levels(net)) {
        memcpy(net->at, net->head, sizeof *net->at * net->n);
        while (push_path(net)) continue;
    }
    fill_behind(net);
}

/* Which values --------------------------------------------------------------------------------- */

typedef struct Choice {
    Lower *l;
    bool *kept, *marked, *far, *read; // m.keep, m.recompute, by another layer, by backward
    bool *otherwise;                  // contract.c
    uint32_t *clone;
    Net net;
} Choice;

static OpClass class_of(const Model *m, uint32_t n) {
    return op_info[m->nodes[n].op].class;
}

static bool is_free(const Model *m, uint32_t n) {
    OpClass class = class_of(m, n);
    return class == CLASS_SOURCE || class == CLASS_GENERATOR;
}

static LayoutRecompute policy_of_layer(const LowerOptions *options, int layer) {
    const Layout *layout = options->layout;
    uint8_t policy = layout ? layout->recompute : options->recompute;
    if (layer >= 1 && layout && layout->layer_recompute) policy = layout->layer_recompute[layer - 1];
    return layer < 1 && policy == RECOMPUTE_BLOCK ? RECOMPUTE_CHEAP : (LayoutRecompute)policy;
}

static LayoutRecompute policy_of(const Choice *c, uint32_t n) {
    return policy_of_layer(c->l->options, lower_layer(c->l, n));
}

// Kernels that a policy of blocks runs again.
static bool is_of_block(const Model *m, uint32_t n) {
    Op op = m->nodes[n].op;
    return class_of(m, n) == CLASS_INDEX || op == OP_MATMUL || op == OP_ATTEND ||
           op == OP_ATTEND_LSE;
}

static bool can_gather(const Choice *c, uint32_t n) {
    return policy_of(c, n) != RECOMPUTE_NONE && contract_can_gather(c->l, c->otherwise, n);
}

// In a block also a sum of few numbers to one: in another row program it may be taken in another order,
// and the gradients of the policies would differ in their last bits.
static bool is_statistic(const Choice *c, uint32_t n) {
    const Model *m = c->l->m;
    int64_t to = type_features(model_type(m, n));
    int64_t from = type_features(model_type(m, model_arg(m, n, 0)));
    return to * NARROW <= from || (to == 1 && policy_of(c, n) == RECOMPUTE_BLOCK);
}

static bool can_repeat(const Choice *c, uint32_t n) {
    const Model *m = c->l->m;
    const Node *node = model_at(m, n);
    bool rows = node->type.row == ROW_T || node->type.row == ROW_R;
    OpClass class = class_of(m, n);
    LayoutRecompute policy = policy_of(c, n);
    if (node->round || (node->op == OP_COLLECT && node->n_args > 2)) return false; // a repeat of its own
    if (class == CLASS_VIEW || can_gather(c, n)) return true;
    if (!rows || c->kept[n] || c->far[n] || node->op == OP_TOP_K || policy == RECOMPUTE_NONE)
        return false;
    if (c->marked[n] && (class == CLASS_INDEX || node->op == OP_MATMUL)) return true;
    if (policy == RECOMPUTE_BLOCK && is_of_block(m, n)) return true;
    if (class == CLASS_REDUCE && !c->marked[n] && is_statistic(c, n)) return false;
    return class == CLASS_MAP || class == CLASS_REDUCE || class == CLASS_WHOLE;
}

static int64_t bytes_of(const Choice *c, uint32_t n) {
    const Type *type = model_type(c->l->m, n);
    if (is_free(c->l->m, n)) return 0;
    if (class_of(c->l->m, n) == CLASS_VIEW || can_gather(c, n) ||
        (c->marked[n] && can_repeat(c, n)))
        return ENDLESS;
    bool half = c->l->options->precision == PRECISION_BF16 && type->kind == KIND_REAL &&
                type_features(type) >= 64;
    return lower_rows(c->l, type) * type_features(type) * (half ? 2 : 4);
}

static void mark_nodes(Choice *c) {
    const Model *m = c->l->m;
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        const Node *node = &m->nodes[n];
        for (int i = 0; i < node->n_args; i++) {
            uint32_t arg = model_arg(m, n, i);
            if (node->part == PART_BACKWARD) c->read[arg] = true;
            if (node->part == PART_FORWARD && lower_layer(c->l, n) != lower_layer(c->l, arg))
                c->far[arg] = true;
            // Clones are made in the backward of their own chunk.
            if (node->chunk != m->nodes[arg].chunk) c->far[arg] = true;
        }
        if (node->op != OP_KEEP && node->op != OP_RECOMPUTE) continue;
        uint32_t value = model_arg(m, n, 0);
        while (class_of(m, value) == CLASS_VIEW) value = model_arg(m, value, 0);
        (node->op == OP_KEEP ? c->kept : c->marked)[value] = true;
    }
    // What a view shows another layer is read there.
    for (uint32_t n = m->n_nodes - 1; n > 0; n--)
        if (class_of(m, n) == CLASS_VIEW && c->far[n]) c->far[model_arg(m, n, 0)] = true;
}

// Vertices: 0 source, 1 sink, 2n and 2n + 1 the ends of value n.
static void make_net(Choice *c) {
    const Model *m = c->l->m;
    c->net = (Net){ .arena = c->l->arena, .n = 2 * m->n_nodes };
    c->net.head = ARENA_ARRAY(c->l->arena, uint32_t, c->net.n);
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        if (m->nodes[n].part != PART_FORWARD) continue;
        add_edge(&c->net, 2 * n, 2 * n + 1, bytes_of(c, n));
        if (c->read[n]) add_edge(&c->net, 2 * n + 1, 1, ENDLESS);
        if (!can_repeat(c, n)) {
            add_edge(&c->net, 0, 2 * n, ENDLESS);
            continue;
        }
        for (int i = 0; i < m->nodes[n].n_args; i++)
            add_edge(&c->net, 2 * model_arg(m, n, i) + 1, 2 * n, ENDLESS);
    }
}

/* Cloning -------------------------------------------------------------------------------------- */

static bool is_repeated(const Choice *c, uint32_t n) {
    const Model *m = c->l->m;
    return m->nodes[n].part == PART_FORWARD && c->net.behind[2 * n] && !is_free(m, n) &&
           can_repeat(c, n);
}

// Marks what backward needs behind the cut.
static void mark_needed(const Choice *c, bool *needed) {
    const Model *m = c->l->m;
    for (uint32_t n = m->n_nodes - 1; n > 0; n--) {
        if (!is_repeated(c, n) || !(needed[n] || c->read[n])) {
            needed[n] = false;
            continue;
        }
        needed[n] = true;
        for (int i = 0; i < m->nodes[n].n_args; i++) needed[model_arg(m, n, i)] = true;
    }
}

static void append_clone(Choice *c, uint32_t n) {
    Model *m = c->l->m;
    Node node = m->nodes[n];
    uint32_t first = m->n_args;
    for (int i = 0; i < node.n_args; i++) {
        uint32_t arg = m->args[node.args + (uint32_t)i], clone = c->clone[arg];
        *ARENA_PUSH(m->arena, m->args, m->n_args, m->cap_args) = clone ? clone : arg;
    }
    node.args = first;
    node.part = PART_BACKWARD;
    *ARENA_PUSH(m->arena, m->nodes, m->n_nodes, m->cap_nodes) = node;
    c->clone[n] = m->n_nodes - 1;
}

static void clone_needed(Choice *c) {
    Model *m = c->l->m;
    uint32_t n_nodes = m->n_nodes, n = 0;
    bool *needed = ARENA_ARRAY(c->l->arena, bool, n_nodes);
    c->clone = ARENA_ARRAY(c->l->arena, uint32_t, n_nodes);
    mark_needed(c, needed);
    for (uint32_t i = 1; i < n_nodes; i++)
        if (needed[i]) append_clone(c, i);
    for (uint32_t i = 1; i < n_nodes; i++) {
        if (m->nodes[i].part != PART_BACKWARD) continue;
        uint32_t *args = m->args + m->nodes[i].args;
        for (int k = 0; k < m->nodes[i].n_args; k++)
            if (c->clone[args[k]]) args[k] = c->clone[args[k]];
    }
    // Between the parts, so that the order stays topological.
    uint32_t *order = ARENA_ARRAY(c->l->arena, uint32_t, m->n_nodes + 1), at = 1;
    for (; at < n_nodes && m->nodes[at].part == PART_FORWARD; at++) order[++n] = at;
    c->l->first_again = n + 1;
    for (uint32_t i = n_nodes; i < m->n_nodes; i++) order[++n] = i;
    c->l->end_again = n + 1;
    for (; at < n_nodes; at++) order[++n] = at;
    model_renumber(m, order, n);
}

static bool saves_all(const Lower *l) {
    for (int layer = 0; layer <= l->m->n_layers; layer++)
        if (policy_of_layer(l->options, layer) != RECOMPUTE_NONE) return false;
    return true;
}

bool pass_recompute(Lower *l) {
    l->first_again = l->end_again = 0;
    if (l->program != PROGRAM_STEP || l->options->no_fusion || saves_all(l)) return true;
    uint32_t n = l->m->n_nodes;
    Choice c = { .l = l };
    bool **tables[] = { &c.kept, &c.marked, &c.far, &c.read, &c.otherwise };
    for (int i = 0; i < COUNT_OF(tables); i++) *tables[i] = ARENA_ARRAY(l->arena, bool, n);
    mark_nodes(&c);
    contract_find_otherwise(l, c.otherwise);
    make_net(&c);
    find_cut(&c.net);
    clone_needed(&c);
    return true;
}
