// SPDX-License-Identifier: Apache-2.0
// Experts without drops on other ranks, in rounds: a rank has rows for one round (experts.c), and what does
// not fit into it comes in further ones, as many as the fullest rank asks for. The first round is what
// a layer is without this pass. For the further ones the graph gets two sets of clones per route:
//
//   forward    dispatch' -> experts' -> collect'. Collects read collect' where a slot has no row in the first
//   backward   dispatch' (of what forward's read, and of gradients) -> experts' again -> their backward ->
//              collect', and sums of weight gradients, added after those of the first round
//
// on a route of their own, route(ids, of): what one further round serves. All kernels of a set are one counted
// repeat of the plan, which nobody enters when all rows fit: what a set reads lies in memory (tokens' rows,
// never experts'), its rows live while the repeat runs, and of its results only those of tokens with
// a row in that round are written. So memory is that of one round, whatever the tokens choose.
//
// A layer may send rows of a route only before any come back; sums over expert rows may only be gradients.
#include "compiler/lower/pass.h"

typedef struct Rounds {
    Lower *l;
    Model *m;
    uint32_t route, again; // the route; a round of it
    uint32_t first;        // clone from here on
    uint8_t part;
    uint16_t set;
    bool *made;            // by node: rowless or E, made of the route's rows in this part
    bool *lone;            // by node: only its dispatches read it
    uint32_t *clone;       // by node
} Rounds;

static bool is_of_rows(const Rounds *r, uint32_t n) {
    const Type *type = model_type(r->m, n);
    return type->row == ROW_R && type->route == r->route;
}

// Argument i of an old node. A collect that has been given a further round reads one that is not: its own
// rows tell the same. 0: that one, of which nothing holds.
static uint32_t old_arg(const Rounds *r, uint32_t n, int i) {
    uint32_t arg = model_arg(r->m, n, i);
    return arg < r->first ? arg : 0;
}

static bool moves(const Rounds *r, uint32_t n, Op op) {
    return r->m->nodes[n].op == op && model_arg(r->m, n, 1) == r->route;
}

static bool refuse(const Rounds *r, uint32_t n, const char *what) {
    lower_fail(r->l, n, "further rounds of expert rows: %s", what);
    diag_hint(r->l->from, "round=whole has room for all rows at once; a number as capacity drops what does not fit");
    return false;
}

/* What is to be cloned ------------------------------------------------------------------------- */

static uint32_t n_old(const Rounds *r) {
    return r->first;
}

// Sums over the route's rows, and what follows from them.
static bool find_made(Rounds *r) {
    const Model *m = r->m;
    memset(r->made, 0, sizeof *r->made * n_old(r));
    for (uint32_t n = 1; n < n_old(r); n++) {
        const Node *node = &m->nodes[n];
        if (node->part != r->part || is_of_rows(r, n) || moves(r, n, OP_COLLECT)) continue;
        bool reads = false;
        for (int i = 0; i < node->n_args; i++)
            reads |= r->made[old_arg(r, n, i)] || is_of_rows(r, old_arg(r, n, i));
        if (!reads || node->op == OP_ACCUMULATE) continue;
        if (node->type.row != ROW_NONE && node->type.row != ROW_E)
            return refuse(r, n, "a sum over rows is read by what is no sum over rows");
        if (op_info[node->op].class == CLASS_EFFECT) return refuse(r, n, "a sum over rows is more than a gradient");
        r->made[n] = true;
    }
    for (uint32_t n = 1; n < n_old(r); n++) // back to rows
        for (int i = 0; is_of_rows(r, n) && i < m->nodes[n].n_args; i++)
            if (r->made[old_arg(r, n, i)]) return refuse(r, n, "a sum over rows is read by the rows");
    return true;
}

// Maps whose only readers are the route's dispatches: they run where these do.
static void find_lone(Rounds *r) {
    const Model *m = r->m;
    for (uint32_t n = 0; n < n_old(r); n++) r->lone[n] = true;
    for (uint32_t n = n_old(r) - 1; n > 0; n--) {
        OpClass class = op_info[m->nodes[n].op].class;
        r->lone[n] &= (class == CLASS_MAP || class == CLASS_VIEW) && m->nodes[n].type.row == ROW_T;
        if (r->lone[n] || moves(r, n, OP_DISPATCH)) continue;
        for (int i = 0; i < m->nodes[n].n_args; i++) r->lone[old_arg(r, n, i)] = false;
    }
}

// Nothing of the part is sent on a route after something has come back on it.
static bool check_order(const Rounds *r) {
    const Model *m = r->m;
    bool *back = ARENA_ARRAY(r->l->arena, bool, n_old(r));
    for (uint32_t n = 1; n < n_old(r); n++) {
        if (m->nodes[n].part != r->part) continue;
        back[n] = moves(r, n, OP_COLLECT);
        for (int i = 0; i < m->nodes[n].n_args; i++) back[n] |= back[old_arg(r, n, i)];
        if (back[n] && moves(r, n, OP_DISPATCH))
            return refuse(r, n, "rows of a route come back before others are sent on it");
    }
    return true;
}

/* Cloning -------------------------------------------------------------------------------------- */

static uint32_t append(Rounds *r, Node node, const uint32_t *args, int n_args) {
    Model *m = r->m;
    node.args = m->n_args;
    node.n_args = (uint8_t)n_args;
    for (int i = 0; i < n_args; i++) *ARENA_PUSH(m->arena, m->args, m->n_args, m->cap_args) = args[i];
    node.part = r->part;
    node.round = r->set;
    *ARENA_PUSH(m->arena, m->nodes, m->n_nodes, m->cap_nodes) = node;
    return m->n_nodes - 1;
}

static uint32_t clone(Rounds *r, uint32_t n);

// A gradient that other rows add to: those are added by the first round.
static uint32_t clone_sum(Rounds *r, uint32_t n) {
    const Model *m = r->m;
    bool left = r->made[model_arg(m, n, 0)], right = r->made[model_arg(m, n, 1)];
    if (left == right) return 0;
    return clone(r, model_arg(m, n, left ? 0 : 1));
}

static uint32_t clone_node(Rounds *r, uint32_t n) {
    Node node = r->m->nodes[n];
    uint32_t args[MAX_ARGS];
    if (node.op == OP_ADD && r->made[n]) {
        uint32_t alone = clone_sum(r, n);
        if (alone) return alone;
    }
    for (int i = 0; i < node.n_args; i++) {
        uint32_t arg = model_arg(r->m, n, i);
        args[i] = clone(r, arg);
    }
    if (is_of_rows(r, n)) node.type.route = r->again;
    return append(r, node, args, node.n_args);
}

// What a further round has in place of n: n itself where it is no row of experts.
static uint32_t clone(Rounds *r, uint32_t n) {
    if (n >= n_old(r) || (!is_of_rows(r, n) && n != r->route && !r->made[n] && !r->lone[n])) return n;
    if (!r->clone[n]) r->clone[n] = n == r->route ? r->again : clone_node(r, n);
    return r->clone[n];
}

// Other parts of a gradient than sums would be added once more.
static bool check_joined(const Rounds *r, uint32_t n) {
    const Model *m = r->m;
    if (!r->made[n] || m->nodes[n].op != OP_CONCAT) return true;
    for (int i = 0; i < m->nodes[n].n_args; i++)
        if (!r->made[model_arg(m, n, i)]) return refuse(r, n, "a gradient is joined of expert rows and of others");
    return true;
}

static void start_set(Rounds *r) {
    Node node = r->m->nodes[r->route];
    uint32_t args[] = { model_arg(r->m, r->route, 0), r->route };
    memset(r->clone, 0, sizeof *r->clone * n_old(r));
    r->set = ++r->l->n_rounds;
    r->again = append(r, node, args, 2);
}

static bool is_sink(const Rounds *r, uint32_t n) {
    const Node *node = &r->m->nodes[n];
    if (node->part != r->part) return false;
    return moves(r, n, OP_COLLECT) || (node->op == OP_ACCUMULATE && r->made[model_arg(r->m, n, 1)]);
}

static void clone_sink(Rounds *r, uint32_t n) {
    Model *m = r->m;
    Node node = m->nodes[n];
    uint32_t args[3];
    if (node.op == OP_ACCUMULATE) {
        args[0] = model_arg(m, n, 0);
        args[1] = clone(r, model_arg(m, n, 1));
        uint32_t effect = append(r, node, args, 2);
        *ARENA_PUSH(m->arena, m->effects, m->n_effects, m->cap_effects) = effect;
        r->clone[n] = effect;
        return;
    }
    args[0] = clone(r, model_arg(m, n, 0));
    args[1] = r->again;
    uint32_t rest = append(r, node, args, 2), first = m->n_args;
    *ARENA_PUSH(m->arena, m->args, m->n_args, m->cap_args) = model_arg(m, n, 0);
    *ARENA_PUSH(m->arena, m->args, m->n_args, m->cap_args) = r->route;
    *ARENA_PUSH(m->arena, m->args, m->n_args, m->cap_args) = rest;
    m->nodes[n].args = first;
    m->nodes[n].n_args = 3;
    r->clone[n] = rest;
}

// One set: of the route and the part.
static bool make_set(Rounds *r, uint32_t *after) {
    bool any = false;
    if (!check_order(r) || !find_made(r)) return false;
    for (uint32_t n = 1; n < n_old(r); n++) {
        if (!check_joined(r, n)) return false;
        if (!is_sink(r, n)) continue;
        if (!any) start_set(r);
        any = true;
        clone_sink(r, n);
        if (r->m->nodes[n].op == OP_ACCUMULATE) after[n] = r->clone[n];
    }
    return true;
}

/* Order ---------------------------------------------------------------------------------------- */

typedef struct Order {
    Model *m;
    uint32_t old, *list, n;
    bool *listed;
} Order;

// With the clones that it reads, which nothing has listed so far.
static void list(Order *o, uint32_t n) {
    if (o->listed[n]) return;
    o->listed[n] = true;
    const Node *node = &o->m->nodes[n];
    for (int i = 0; i < node->n_args; i++) list(o, model_arg(o->m, n, i));
    if (node->type.route) list(o, node->type.route);
    o->list[++o->n] = n;
}

// The order of the graph, clones right before who reads them; effects right behind those they go with.
static void order(Lower *l, uint32_t old, const uint32_t *after) {
    Model *m = l->m;
    Order o = { m, old, ARENA_ARRAY(l->arena, uint32_t, m->n_nodes + 1), 0,
                ARENA_ARRAY(l->arena, bool, m->n_nodes) };
    for (uint32_t n = 1; n < old; n++) {
        list(&o, n);
        if (after[n]) list(&o, after[n]);
    }
    model_renumber(m, o.list, o.n);
}

bool pass_rounds(Lower *l) {
    Model *m = l->m;
    uint32_t old = m->n_nodes;
    if (lower_ep(l) == 1) return true;
    Rounds r = { .l = l, .m = m, .first = old, .made = ARENA_ARRAY(l->arena, bool, old),
                 .lone = ARENA_ARRAY(l->arena, bool, old), .clone = ARENA_ARRAY(l->arena, uint32_t, old) };
    uint32_t *after = ARENA_ARRAY(l->arena, uint32_t, old);
    for (uint32_t n = 1; n < old; n++) {
        if (m->nodes[n].op != OP_ROUTE || !lower_rounds(l, n)) continue;
        r.route = n;
        find_lone(&r);
        for (r.part = PART_FORWARD; r.part <= PART_BACKWARD; r.part++)
            if (!make_set(&r, after)) return false;
    }
    if (l->n_rounds) order(l, old, after);
    return true;
}

/* Repeats -------------------------------------------------------------------------------------- */

// What moves a set's rows between nodes is made beside its kernels.
static bool is_between_nodes(const Kernel *kernel) {
    Family family = kernel->desc.family;
    if (kernel->op != PLAN_launch) return kernel->group == GROUP_rail;
    return family == FAMILY_BLOCKS || family == FAMILY_RAIL || family == FAMILY_MOVE;
}

static uint16_t set_of(const Lower *l, const Kernel *kernel) {
    if (kernel->desc.family == FAMILY_PADS || is_between_nodes(kernel)) return l->m->nodes[kernel->node].round;
    return kernel->n_units ? l->m->nodes[l->units[kernel->units[0]].node].round : 0;
}

// The route of which a set has a round, and the kernel that begins it.
static uint32_t route_of(const Lower *l, const Repeat *repeat) {
    return model_arg(l->m, l->kernels[repeat->kernels[0]].node, 1);
}

static bool reads_rows(const Lower *l, const Kernel *kernel, uint32_t route) {
    for (uint32_t i = 0; i < kernel->n_binds; i++) {
        const Buffer *buffer = &l->buffers[kernel->binds[i].buffer];
        if (buffer->kind == BUFFER_OFFSETS && buffer->node == route && kernel->binds[i].mode == OPERAND_READ)
            return true;
    }
    return false;
}

// Forward: experts of the first round follow, so that both rounds' rows are not there at once; in backward they
// precede, and their weight gradients with them.
static void order_rounds(Lower *l, uint32_t index) {
    const Repeat *repeat = &l->repeats[index];
    uint32_t route = route_of(l, repeat), first = repeat->kernels[0];
    uint8_t segment = l->kernels[first].segment;
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        if (l->kernels[k].segment != segment || l->kernels[k].repeat || !reads_rows(l, &l->kernels[k], route)) continue;
        if (!is_forward(segment)) lower_after(l, first, k);
        for (uint32_t i = 0; is_forward(segment) && i < repeat->n; i++) lower_after(l, k, repeat->kernels[i]);
    }
}

static bool puts_rows(const Lower *l, const Kernel *kernel, uint32_t route) {
    for (uint32_t i = 0; i < kernel->n_binds; i++) {
        const Bind *bind = &kernel->binds[i];
        const Buffer *buffer = &l->buffers[bind->buffer];
        if (bind->remote && bind->mode == OPERAND_WRITE && model_arg(l->m, buffer->node, 1) == route) return true;
    }
    return false;
}

// Ranks tell each other how many rounds they want when their rows of the first are on their way.
static void order_gather(Lower *l, uint32_t index) {
    const Repeat *repeat = &l->repeats[index];
    uint32_t route = route_of(l, repeat), first = repeat->kernels[0];
    uint8_t segment = l->kernels[first].segment;
    for (uint32_t g = 0; g < l->n_kernels; g++) {
        const Kernel *gather = &l->kernels[g];
        bool of_rounds = gather->op == PLAN_gather && gather->group == GROUP_ep;
        if (!of_rounds || gather->node != route || gather->segment != segment) continue;
        lower_after(l, first, g);
        for (uint32_t k = 0; k < l->n_kernels; k++)
            if (l->kernels[k].segment == segment && puts_rows(l, &l->kernels[k], route)) lower_after(l, g, k);
    }
}

static void begin_with_round(Lower *l, Repeat *repeat) {
    for (uint32_t i = 1; i < repeat->n; i++) {
        uint32_t kernel = repeat->kernels[i];
        if (l->kernels[kernel].desc.family != FAMILY_ROUND) continue;
        repeat->kernels[i] = repeat->kernels[0];
        repeat->kernels[0] = kernel;
    }
}

void describe_rounds(Lower *l) {
    uint32_t base = l->n_repeats;
    for (uint16_t set = 1; set <= l->n_rounds; set++) {
        *ARENA_PUSH(l->arena, l->repeats, l->n_repeats, l->cap_repeats) = (Repeat){ 0 };
    }
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        uint16_t set = set_of(l, &l->kernels[k]);
        if (!set) continue;
        Repeat *to = &l->repeats[base + set - 1];
        l->kernels[k].repeat = base + set;
        *ARENA_PUSH(l->arena, to->kernels, to->n, to->cap) = k;
    }
    for (uint32_t i = base; i < l->n_repeats; i++) {
        Repeat *repeat = &l->repeats[i];
        if (!repeat->n) continue;
        begin_with_round(l, repeat);
        uint32_t route = route_of(l, repeat);
        repeat->trip = lower_rounds(l, route);
        repeat->count = 1 + lower_buffer(l, BUFFER_ROUNDS, route, 1);
        order_gather(l, i);
        order_rounds(l, i);
    }
}
