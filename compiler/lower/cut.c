// SPDX-License-Identifier: Apache-2.0
// A program cut into the stages of a pipeline: the graph of one rank.
//
// What a rank computes is what is placed on it (stages.c), what it needs of the rest that every stage
// makes for itself, and a `recv` for each value of another rank. A value is sent once to each rank that
// reads it, straight there:
//
//   forward lane   to a later virtual stage: at the end of the forward segment that made it; received by the
//                  first forward segment of that rank after it
//   back lane      to an earlier one: from the backward segment of its virtual stage; received by the first
//                  backward segment of that rank after it
//
// Since one rank's segments follow one list of units (layout/pipeline.h), both ends of a lane see one
// order. A value of two segments of one rank just stays where it is.
//
// A parameter that several ranks read belongs to one of them. To the others it is a state: what they
// would add to its gradient they add up over the step and send to the owner before the optimizer, which
// adds it in order of ranks; after it the owner sends the new value back.
#include "compiler/lower/stages.h"

typedef struct Transfer {
    uint32_t node;
    int32_t from, to; // ranks
    uint8_t lane, part;
    uint16_t send_chunk, recv_chunk;
} Transfer;

typedef struct Cut {
    Stages s;
    Model *m;
    Arena *arena;
    int32_t rank;
    uint32_t n_nodes; // before the cut adds any
    bool *gone;       // sums of gradients that ranks add to apart
    uint8_t *seen;    // by node and rank: lanes it is sent on
    int32_t *phase;   // by node: first phase that needs it on the rank looked at; or NEVER
    Transfer *transfers;
    uint32_t n_transfers, cap_transfers;
    bool *varies; // by node: model_varies
    bool mixed;   // some contraction computes in bf16
    bool failed;
} Cut;

enum { NEVER = INT32_MAX };
static const uint32_t order_of_gradient = 1u << 30, order_of_weight = 1u << 31;

/* Phases --------------------------------------------------------------------------------------- */

// Forward chunk by chunk, backward the other way round, update.
static int32_t phase_of(const Cut *c, uint8_t part, int32_t chunk) {
    return part == PART_FORWARD ? chunk : part == PART_BACKWARD ? 2 * c->s.chunks - 1 - chunk : 2 * c->s.chunks;
}

static int32_t chunk_of(const Cut *c, int32_t phase) {
    return phase < c->s.chunks ? phase : phase < 2 * c->s.chunks ? 2 * c->s.chunks - 1 - phase : 0;
}

/* Transfers ------------------------------------------------------------------------------------ */

static bool fail(Cut *c, uint32_t n, const char *what) {
    c->failed = true;
    c->s.l->m = c->m;
    return lower_fail(c->s.l, n, "internal error: %s", what);
}

// The value n of another rank is read on `rank` in a phase.
static void add_transfer(Cut *c, uint32_t n, int32_t rank, int32_t phase) {
    const Stages *s = &c->s;
    uint8_t part = c->m->nodes[n].part;
    int32_t at = s->at[n], reader = chunk_of(c, phase) * s->ranks + rank, to;
    bool update = phase == 2 * s->chunks, back = !update && reader < at;
    if (update ? part != PART_UPDATE : part == PART_UPDATE || (part == PART_BACKWARD && !back)) {
        fail(c, n, "a value goes against the order of stages");
        return;
    }
    uint8_t lane = back ? LANE_back : LANE_forward, *seen = &c->seen[n * (uint32_t)s->ranks + (uint32_t)rank];
    if (*seen & 1 << lane) return;
    *seen |= (uint8_t)(1 << lane);
    int32_t step = back ? -1 : 1;
    for (to = at + step; to % s->ranks != rank;) to += step;
    *ARENA_PUSH(c->arena, c->transfers, c->n_transfers, c->cap_transfers) = (Transfer){
        .node = n,
        .from = at % s->ranks,
        .to = rank,
        .lane = lane,
        .part = update ? PART_UPDATE
                : back ? PART_BACKWARD
                       : PART_FORWARD,
        .send_chunk = (uint16_t)(at / s->ranks),
        .recv_chunk = (uint16_t)(to / s->ranks),
    };
}

static void demand(Cut *c, uint32_t n, int32_t rank, int32_t phase) {
    if (!n) return;
    if (c->s.place[n] != PLACED) {
        c->phase[n] = phase < c->phase[n] ? phase : c->phase[n];
    } else if (stages_rank(&c->s, n) != rank) {
        add_transfer(c, n, rank, phase);
        demand(c, c->m->nodes[n].type.route, rank, phase);
    }
}

// What a rank has, and what it needs of others. Sums and parameters of gradients: cut_gradient.
static void find_needs(Cut *c, int32_t rank) {
    const Model *m = c->m;
    for (uint32_t n = 0; n < m->n_nodes; n++) c->phase[n] = NEVER;
    for (uint32_t n = m->n_nodes - 1; n > 0; n--) {
        const Node *node = &m->nodes[n];
        bool own = c->s.place[n] == PLACED && stages_rank(&c->s, n) == rank;
        if (c->gone[n] || node->op == OP_ACCUMULATE) continue;
        if (own) c->phase[n] = phase_of(c, node->part, c->s.at[n] / c->s.ranks);
        if (c->phase[n] == NEVER) continue;
        for (int i = 0; i < node->n_args; i++) demand(c, model_arg(m, n, i), rank, c->phase[n]);
        demand(c, node->type.route, rank, c->phase[n]);
    }
}

/* Nodes ---------------------------------------------------------------------------------------- */

static uint32_t append(Cut *c, Node node, const uint32_t *args, uint8_t n_args) {
    Model *m = c->m;
    node.n_args = n_args;
    node.args = m->n_args;
    for (int i = 0; i < n_args; i++) *ARENA_PUSH(m->arena, m->args, m->n_args, m->cap_args) = args[i];
    *ARENA_PUSH(m->arena, m->nodes, m->n_nodes, m->cap_nodes) = node;
    return m->n_nodes - 1;
}

static void add_effect(Cut *c, uint32_t effect) {
    Model *m = c->m;
    *ARENA_PUSH(m->arena, m->effects, m->n_effects, m->cap_effects) = effect;
}

// A node that looks like n to people: its address and line.
static Node like(const Cut *c, uint32_t n, Op op, uint8_t part, uint16_t chunk) {
    const Node *of = &c->m->nodes[n];
    return (
        Node){ .op = (uint16_t)op, .part = part, .chunk = chunk, .addr = of->addr, .loc = of->loc, .type = of->type };
}

static void set_cross(Node *node, int32_t stage, uint8_t lane, CrossWhen when, uint32_t order) {
    node->attr.cross.stage = stage;
    node->attr.cross.lane = lane;
    node->attr.cross.when = (uint8_t)when;
    node->attr.cross.order = order;
}

static void add_send(Cut *c, uint32_t value, const Node *node) {
    Node send = *node;
    send.type = (Type){ .kind = KIND_EFFECT };
    add_effect(c, append(c, send, &value, 1));
}

// The value as rows of both ends see it, whatever else reads it there: with contractions in bf16 among
// those in fp32, its type in memory may follow from its readers, which the other end does not know.
static uint32_t as_row_value(Cut *c, uint32_t value, const Node *of) {
    Node cast = *of;
    cast.op = OP_CAST;
    cast.attr = (Attr){ .raw = { 0, 0 } };
    cast.attr.precision = PRECISION_FP32;
    return append(c, cast, &value, 1);
}

static bool is_wide_bf16(const Cut *c, uint32_t n) {
    return c->s.l->options->precision == PRECISION_BF16 && lower_crosses_wide(&c->m->nodes[n].type);
}

static bool is_rows(const Type *type) {
    return type->kind == KIND_REAL && (type->row == ROW_T || type->row == ROW_R);
}

static bool is_exact(const Cut *c, uint32_t n) {
    while (op_info[c->m->nodes[n].op].class == CLASS_VIEW) n = model_arg(c->m, n, 0);
    const Node *node = model_at(c->m, n);
    return node->op == OP_ATTEND_LSE || (node->op == OP_MATMUL && node->attr.mm.precision == PRECISION_FP32);
}

static void send_value(Cut *c, const Transfer *t) {
    uint32_t value = t->node;
    Node node = like(c, value, OP_SEND, t->part, t->send_chunk);
    set_cross(&node, t->to, t->lane, CROSS_VALUE, t->node);
    bool plain = !c->mixed || !is_rows(&node.type) || (is_wide_bf16(c, value) && !is_exact(c, value));
    if (!plain) value = as_row_value(c, value, &node);
    add_send(c, value, &node);
}

static uint32_t receive_value(Cut *c, const Transfer *t) {
    Node node = like(c, t->node, OP_RECV, t->part, t->recv_chunk);
    set_cross(&node, t->from, t->lane, CROSS_VALUE, t->node);
    node.attr.cross.varies = c->varies[t->node];
    uint32_t got = append(c, node, NULL, 0);
    if (!c->mixed || !is_rows(&node.type) || is_wide_bf16(c, t->node)) return got;
    return as_row_value(c, got, &node);
}

/* Gradients and parameters of several ranks ----------------------------------------------------- */

// The addends of a sum that nothing else reads, in its order.
static void list_addends(const Cut *c, uint32_t n, const uint32_t *uses, uint32_t **list, uint32_t *count,
                         uint32_t *cap) {
    const Node *node = model_at(c->m, n);
    if (node->op != OP_ADD || uses[n] != 1 || !type_equal(&node->type, model_type(c->m, model_arg(c->m, n, 0))) ||
        !type_equal(&node->type, model_type(c->m, model_arg(c->m, n, 1)))) {
        *ARENA_PUSH(c->arena, *list, *count, *cap) = n;
        return;
    }
    for (int i = 0; i < 2; i++) list_addends(c, model_arg(c->m, n, i), uses, list, count, cap);
}

typedef struct Gradient {
    uint32_t effect, param, *addends, n;
} Gradient;

// A gradient that no stage's values are part of is the owner's.
static int32_t rank_of_addend(const Cut *c, const Gradient *g, uint32_t i) {
    uint32_t n = g->addends[i];
    return c->s.at[n] < 0 ? c->s.l->shared->owner[g->param] : stages_rank(&c->s, n);
}

static void mark_gone(Cut *c, uint32_t n, const Gradient *gradient) {
    for (uint32_t i = 0; i < gradient->n; i++)
        if (gradient->addends[i] == n) return;
    c->gone[n] = true;
    for (int i = 0; i < 2; i++) mark_gone(c, model_arg(c->m, n, i), gradient);
}

// Of every parameter's gradient, what is added and where. A sum whose addends lie on several ranks goes.
static Gradient *list_gradients(Cut *c, uint32_t *n) {
    const Model *m = c->m;
    uint32_t *uses = ARENA_ARRAY(c->arena, uint32_t, m->n_nodes);
    Gradient *gradients = ARENA_ARRAY(c->arena, Gradient, m->n_effects + 1);
    for (uint32_t id = 1; id < m->n_nodes; id++)
        for (int i = 0; i < m->nodes[id].n_args; i++) uses[model_arg(m, id, i)]++;
    *n = 0;
    for (uint32_t i = 0; i < m->n_effects; i++) {
        uint32_t effect = m->effects[i], cap = 0;
        if (m->nodes[effect].op != OP_ACCUMULATE) continue;
        Gradient *g = &gradients[(*n)++];
        uint32_t sum = model_arg(m, effect, 1);
        *g = (Gradient){ .effect = effect, .param = m->nodes[model_arg(m, effect, 0)].attr.index };
        list_addends(c, sum, uses, &g->addends, &g->n, &cap);
        bool apart = false;
        for (uint32_t k = 1; k < g->n; k++) apart |= rank_of_addend(c, g, k) != rank_of_addend(c, g, 0);
        if (apart) {
            mark_gone(c, sum, g);
            continue;
        }
        g->addends[0] = sum;
        g->n = 1;
    }
    return gradients;
}

// The sum of the addends on a rank, 0 if there are none. Made as late as the last of them.
static uint32_t sum_on(Cut *c, const Gradient *g, int32_t rank) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t addend = g->addends[i], args[2] = { sum, addend };
        if (rank_of_addend(c, g, i) != rank) continue;
        uint16_t chunk = c->m->nodes[addend].chunk;
        if (sum && c->m->nodes[sum].op == OP_ADD && c->m->nodes[sum].chunk < chunk) chunk = c->m->nodes[sum].chunk;
        sum = sum ? append(c, like(c, addend, OP_ADD, PART_BACKWARD, chunk), args, 2) : addend;
    }
    return sum;
}

static bool adds_on(const Cut *c, const Gradient *g, int32_t rank) {
    for (uint32_t i = 0; i < g->n; i++)
        if (rank_of_addend(c, g, i) == rank) return true;
    return false;
}

static void cut_gradient(Cut *c, const Gradient *g, uint32_t **effects, uint32_t *n, uint32_t *cap) {
    Model *m = c->m;
    uint32_t node = m->params[g->param].node, sum = sum_on(c, g, c->rank);
    int32_t owner = c->s.l->shared->owner[g->param];
    uint32_t order = order_of_gradient | g->param;
    if (owner != c->rank && sum && m->nodes[node].type.row == ROW_E) {
        c->failed = true;
        lower_fail(c->s.l, 0, "the layout lets stages %d and %d share the weights '%s' of experts", owner, c->rank,
                   model_name(m, m->params[g->param].addr));
        diag_hint(c->s.l->from, "stages=... that keep the layers which share experts on one rank");
        return;
    }
    if (owner != c->rank) {
        if (!sum) return;
        Node total = like(c, node, OP_TOTAL, PART_UPDATE, 0);
        Node send = like(c, node, OP_SEND, PART_UPDATE, 0);
        set_cross(&send, owner, LANE_forward, CROSS_GRADIENT, order);
        set_cross(&total, owner, LANE_forward, CROSS_GRADIENT, order); // the owner adds up over ranks of a stage
        uint32_t value = append(c, total, &sum, 1);
        send.type = (Type){ .kind = KIND_EFFECT };
        *ARENA_PUSH(c->arena, *effects, *n, *cap) = append(c, send, &value, 1);
        return;
    }
    if (sum) {
        m->args[m->nodes[g->effect].args + 1] = sum;
        *ARENA_PUSH(c->arena, *effects, *n, *cap) = g->effect;
    }
    for (int32_t rank = 0; rank < c->s.ranks; rank++) {
        if (rank == owner || !adds_on(c, g, rank)) continue;
        Node recv = like(c, node, OP_RECV, PART_UPDATE, 0);
        set_cross(&recv, rank, LANE_forward, CROSS_GRADIENT, order);
        uint32_t args[2] = { node, append(c, recv, NULL, 0) };
        Node add = m->nodes[g->effect];
        add.part = PART_UPDATE;
        *ARENA_PUSH(c->arena, *effects, *n, *cap) = append(c, add, args, 2);
    }
}

static bool holds(const Cut *c, uint32_t param, int32_t rank) {
    return c->s.l->shared->held[param * (uint32_t)c->s.ranks + (uint32_t)rank];
}

// The new value of a parameter or state that a step changes, from its owner to those that read it too.
static void refresh(Cut *c, uint32_t param, uint32_t **effects, uint32_t *n, uint32_t *cap) {
    uint32_t node = c->m->params[param].node;
    int32_t owner = c->s.l->shared->owner[param];
    for (int32_t rank = 0; rank < c->s.ranks; rank++) {
        if (rank == owner || !holds(c, param, rank)) continue;
        bool sends = owner == c->rank;
        if (!sends && rank != c->rank) continue;
        Node cross = like(c, node, sends ? OP_SEND : OP_RECV, PART_UPDATE, 0);
        set_cross(&cross, sends ? rank : owner, LANE_forward, CROSS_WEIGHT, order_of_weight | param);
        if (sends) cross.type = (Type){ .kind = KIND_EFFECT };
        uint32_t made = append(c, cross, &node, sends), args[2] = { node, made };
        Node update = like(c, node, OP_UPDATE, PART_UPDATE, 0);
        update.type = (Type){ .kind = KIND_EFFECT };
        *ARENA_PUSH(c->arena, *effects, *n, *cap) = sends ? made : append(c, update, args, 2);
    }
}

/* The graph of a rank -------------------------------------------------------------------------- */

// What present nodes read of other ranks is what they receive.
static void read_received(Cut *c, uint32_t *const received[N_LANES]) {
    Model *m = c->m;
    for (uint32_t n = 1; n < c->n_nodes; n++) {
        if (c->phase[n] == NEVER || m->nodes[n].op == OP_ACCUMULATE) continue;
        int32_t reader = chunk_of(c, c->phase[n]) * c->s.ranks + c->rank;
        for (int i = 0; i < m->nodes[n].n_args; i++) {
            uint32_t *arg = &m->args[m->nodes[n].args + (uint32_t)i];
            if (c->s.place[*arg] != PLACED || stages_rank(&c->s, *arg) == c->rank) continue;
            bool back = c->phase[n] < 2 * c->s.chunks && reader < c->s.at[*arg];
            *arg = received[back ? LANE_back : LANE_forward][*arg];
        }
    }
}

static void cross(Cut *c) {
    uint32_t *received[N_LANES];
    for (int lane = 0; lane < N_LANES; lane++) received[lane] = ARENA_ARRAY(c->arena, uint32_t, c->n_nodes);
    for (uint32_t i = 0; i < c->n_transfers; i++) {
        const Transfer *t = &c->transfers[i];
        if (t->to == c->rank) received[t->lane][t->node] = receive_value(c, t);
    }
    read_received(c, received);
    for (uint32_t i = 0; i < c->n_transfers; i++)
        if (c->transfers[i].from == c->rank) send_value(c, &c->transfers[i]);
}

static void order_by_part(Model *m, Arena *arena) {
    uint32_t *order = ARENA_ARRAY(arena, uint32_t, m->n_nodes), n = 0;
    for (uint8_t part = PART_FORWARD; part <= PART_UPDATE; part++)
        for (uint32_t id = 1; id < m->n_nodes; id++)
            if (m->nodes[id].part == part) order[++n] = id;
    model_renumber(m, order, n);
}

// Drops what is not reached from the effects.
static void keep_needed(Cut *c) {
    Model *m = c->m;
    bool *needed = ARENA_ARRAY(c->arena, bool, m->n_nodes);
    uint32_t *order = ARENA_ARRAY(c->arena, uint32_t, m->n_nodes), *stack = order, n = 0, top = 0;
    stack = ARENA_ARRAY(c->arena, uint32_t, m->n_nodes + m->n_effects);
    for (uint32_t i = 0; i < m->n_effects; i++) {
        needed[m->effects[i]] = true;
        stack[top++] = m->effects[i];
    }
    while (top) {
        uint32_t id = stack[--top];
        const Node *node = &m->nodes[id];
        for (int i = 0; i <= node->n_args; i++) {
            uint32_t arg = i < node->n_args ? model_arg(m, id, i) : node->type.route;
            if (!arg || needed[arg]) continue;
            needed[arg] = true;
            stack[top++] = arg;
        }
    }
    for (uint32_t id = 1; id < m->n_nodes; id++)
        if (needed[id]) order[++n] = id;
    model_renumber(m, order, n);
    model_sort(m);
    order_by_part(m, c->arena);
}

static bool is_updated(const Model *m, const uint32_t *effects, uint32_t n, uint32_t param) {
    for (uint32_t i = 0; i < n; i++) {
        Op op = (Op)m->nodes[effects[i]].op;
        if ((op == OP_ACCUMULATE || op == OP_UPDATE) && m->nodes[model_arg(m, effects[i], 0)].attr.index == param)
            return true;
    }
    return false;
}

static void set_effects(Cut *c, const Gradient *gradients, uint32_t n_gradients) {
    Model *m = c->m;
    uint32_t *effects = NULL, n = 0, cap = 0, n_all = m->n_effects;
    uint32_t *all = ARENA_ARRAY(c->arena, uint32_t, n_all + 1);
    memcpy(all, m->effects, sizeof *all * n_all);
    for (uint32_t i = 0; i < n_all; i++) {
        bool own = m->nodes[all[i]].op != OP_ACCUMULATE && stages_rank(&c->s, all[i]) == c->rank;
        if (own) *ARENA_PUSH(c->arena, effects, n, cap) = all[i];
    }
    for (uint32_t i = 0; i < n_gradients; i++) cut_gradient(c, &gradients[i], &effects, &n, &cap);
    for (uint32_t p = 0; p < m->n_params; p++)
        if (m->params[p].node && is_updated(m, all, n_all, p)) refresh(c, p, &effects, &n, &cap);
    m->n_effects = 0;
    for (uint32_t i = 0; i < n; i++) add_effect(c, effects[i]);
}

// Parameters of other ranks that this one reads are states here.
static void make_copies(Cut *c) {
    Model *m = c->m;
    for (uint32_t p = 0; p < m->n_params; p++) {
        if (c->s.l->shared->owner[p] == c->rank || !m->params[p].node) continue;
        m->params[p].is_state = true;
        m->nodes[m->params[p].node].op = OP_STATE;
    }
}

static bool is_mixed(const Model *m) {
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        Op op = (Op)m->nodes[n].op;
        bool product = op == OP_MATMUL || op == OP_MATMUL_T || op == OP_MATMUL_W;
        if (product && m->nodes[n].attr.mm.precision == PRECISION_BF16) return true;
    }
    return false;
}

bool cut_program(Lower *l, Model *m) {
    Arena *arena = arena_create();
    Cut c = { .m = m, .arena = arena, .rank = l->options->stage, .n_nodes = m->n_nodes };
    stages_find(&c.s, l, m, arena);
    c.gone = ARENA_ARRAY(arena, bool, m->n_nodes);
    c.seen = ARENA_ARRAY(arena, uint8_t, (size_t)m->n_nodes * (size_t)c.s.ranks);
    c.phase = ARENA_ARRAY(arena, int32_t, m->n_nodes);
    c.varies = model_varies(m, arena);
    c.mixed = l->options->precision == PRECISION_BF16 || is_mixed(m);
    uint32_t n_gradients;
    Gradient *gradients = list_gradients(&c, &n_gradients);
    for (int32_t i = 1; i <= c.s.ranks; i++) find_needs(&c, (c.rank + i) % c.s.ranks); // this one last
    bool done = !c.failed;
    if (done) {
        for (uint32_t n = 1; n < c.n_nodes; n++) {
            if (c.s.place[n] == PLACED)
                m->nodes[n].chunk = (uint16_t)(c.s.at[n] / c.s.ranks);
            else if (c.phase[n] != NEVER)
                m->nodes[n].chunk = (uint16_t)chunk_of(&c, c.phase[n]);
        }
        set_effects(&c, gradients, n_gradients);
        cross(&c);
        keep_needed(&c);
        make_copies(&c);
        done = !c.failed;
    }
    if (done) {
        done = model_verify(m);
        if (!done) lower_fail(l, 0, "internal error: a stage of the program: %s", m->diag.message);
    }
    arena_destroy(arena);
    return done;
}
