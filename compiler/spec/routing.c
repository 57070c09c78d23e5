// SPDX-License-Identifier: Apache-2.0
// Routing that the run chooses: the ids that reach a route are replaced in the traced graph, for
// every reader of theirs, so that loads, weights and losses see the experts that a token goes to. It
// works with any router, and what the router computed otherwise (scores, weights) stays.
//
//   uniform  choice j of the token at position p goes to expert (p * k + j + l) mod experts, l the
//            number of the route: loads are even over any experts / gcd(experts, k) tokens that
//            follow each other in a document.
//   random   the k experts with the largest of `experts` uniform numbers, drawn anew in every step.
//
// A token's experts differ while k <= experts; beyond, each is used before one is used again.
#include "compiler/spec/internal.h"

// A node of the replacement, made where the route is. 0 after a failure: m->diag says why.
static uint32_t op2(Spec *S, Op op, uint32_t a, uint32_t b) {
    return a && b ? model_op2(S->m, op, a, b) : 0;
}

// real [T, n]: larger for an earlier choice. The candidates are 0 .. n - 1.
static uint32_t rank_uniform(Spec *S, int32_t route, int32_t experts, int32_t k, int32_t n) {
    Model *m = S->m;
    double *numbers = ARENA_ARRAY(S->arena, double, n);
    for (int32_t i = 0; i < n; i++) numbers[i] = i;
    uint32_t candidates = model_constant(m, numbers, n);
    // Reduced at every step: no product leaves the exact integers.
    uint32_t size = model_const(m, experts, KIND_INT);
    uint32_t first = model_generator(m, OP_POSITIONS, 0, NULL, 0);
    first = op2(S, OP_MOD, first, size);
    first = op2(S, OP_MUL, first, model_const(m, k % experts, KIND_INT));
    first = op2(S, OP_ADD, first, model_const(m, route % experts, KIND_INT));
    first = op2(S, OP_MOD, first, size);
    if (!first || !candidates) return 0;
    // [T] against [n]: the feature axes align at the right, so the token's number gets one.
    first = model_reshape(m, first, (int32_t[]){ 1 }, 1);
    uint32_t ahead = op2(S, OP_SUB, candidates, first); // of the first choice, or behind it
    uint32_t behind = op2(S, OP_LT, ahead, model_const(m, 0, KIND_REAL));
    uint32_t around = op2(S, OP_ADD, ahead, model_const(m, n, KIND_REAL));
    if (!behind || !around) return 0;
    uint32_t distance = model_op3(m, OP_WHERE, behind, around, ahead);
    return distance ? model_op1(m, OP_NEG, distance) : 0;
}

static uint32_t rank_random(Spec *S, int32_t route, int32_t n) {
    Text name = { 0 };
    text_printf(&name, "routing.%d", route);
    uint32_t addr = model_intern(S->m, text_cstr(&name));
    text_finish(&name);
    return model_generator(S->m, OP_UNIFORM, (int32_t)addr, &n, 1);
}

// int [T, k] of experts, as the options ask.
static uint32_t chosen(Spec *S, int32_t route, int32_t experts, int32_t k) {
    Model *m = S->m;
    int64_t all = round_up(k, experts); // one round of the experts, or as many as k needs
    if (all > INT32_MAX) {
        diag_set(m, "routing: %d choices of %d experts are too many", k, experts);
        return 0;
    }
    int32_t n = (int32_t)all;
    bool uniform = S->options->routing == ROUTING_UNIFORM;
    uint32_t rank = uniform ? rank_uniform(S, route, experts, k, n) : rank_random(S, route, n);
    Attr attr = { .raw = { 0, 0 } };
    attr.k = k;
    uint32_t ids = rank ? model_node(m, OP_TOP_K, &attr, NULL, &rank, 1) : 0;
    return n == experts ? ids : op2(S, OP_MOD, ids, model_const(m, experts, KIND_INT));
}

static bool is_view(uint8_t op) {
    return op == OP_RESHAPE || op == OP_STOP_GRADIENT || op == OP_KEEP || op == OP_RECOMPUTE;
}

// The ids as their maker has them: other readers may not take the view that the route takes.
static uint32_t behind_views(const Model *m, uint32_t ids) {
    while (is_view(m->nodes[ids].op)) {
        uint32_t of = model_arg(m, ids, 0);
        uint8_t class = op_info[m->nodes[of].op].class;
        if (class == CLASS_SOURCE || class == CLASS_GENERATOR) break; // tokens are not only ids
        ids = of;
    }
    return ids;
}

void routing_apply(Spec *S) {
    Model *m = S->m;
    if (!S->options || S->options->routing == ROUTING_LEARNED) return;
    uint32_t n = m->n_nodes, *ids = ARENA_ARRAY(S->arena, uint32_t, n);
    int32_t *experts = ARENA_ARRAY(S->arena, int32_t, n); // by ids: the fewest of their routes
    for (uint32_t id = 1; id < n; id++) {
        if (m->nodes[id].op != OP_ROUTE) continue;
        ids[id] = behind_views(m, model_arg(m, id, 0));
        int32_t count = m->nodes[id].attr.route.experts, *least = &experts[ids[id]];
        *least = *least && *least < count ? *least : count;
    }
    uint32_t *with = ARENA_ARRAY(S->arena, uint32_t, n);
    int32_t routes = 0;
    for (uint32_t id = 1; id < n; id++) {
        if (!ids[id] || with[ids[id]]) continue;
        Node route = m->nodes[id]; // nodes move while new ones are made
        int32_t k = model_type(m, model_arg(m, id, 0))->dim[0];
        const Type type = *model_type(m, ids[id]);
        m->loc = route.loc;
        m->addr = route.addr;
        uint32_t own = chosen(S, routes++, experts[ids[id]], k);
        if (own && !type_equal(model_type(m, own), &type))
            own = model_reshape(m, own, type.dim, type.rank);
        if (!own) fault_of_model(S, NULL);
        if (own != ids[id]) with[ids[id]] = own; // a router may do the same already
    }
    uint32_t *all = ARENA_ARRAY(S->arena, uint32_t, m->n_nodes);
    memcpy(all, with, sizeof *with * n);
    if (!model_replace(m, all) || !model_verify(m)) fault_of_model(S, NULL);
}
