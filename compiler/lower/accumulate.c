// SPDX-License-Identifier: Apache-2.0
// A parameter that is used in several places (a tied table, a head that predictions share) has a
// gradient that is a sum. Products and table gradients add to memory themselves, so each of them
// gets an accumulate of its own instead of a value that waits for the others.
#include "compiler/lower/pass.h"

typedef struct Split {
    Model *m;
    const Lower *l;
    uint32_t *uses; // by node
    uint32_t effect, leaves[64];
    int n;
} Split;

static uint32_t below_views(const Split *s, uint32_t n) {
    while (s->m->nodes[n].op != OP_TRANSPOSE && lower_plain(s->l, n) != n && s->uses[n] == 1)
        n = model_arg(s->m, n, 0);
    return n;
}

// The gradient of a transposed weight: the product the other way round.
static bool is_turned_product(const Split *s, uint32_t n) {
    const Node *node = model_at(s->m, n);
    if (node->op != OP_TRANSPOSE || node->type.rank != 2) return false;
    uint32_t product = model_arg(s->m, n, 0);
    const Node *of = model_at(s->m, product);
    return of->op == OP_MATMUL_W && s->uses[product] == 1 && of->attr.mm.each == 0;
}

static bool adds_itself(const Split *s, uint32_t n) {
    n = below_views(s, n);
    const Node *node = model_at(s->m, n);
    if (s->uses[n] != 1) return false;
    return node->op == OP_MATMUL_W || node->op == OP_EMBED_W || is_turned_product(s, n);
}

static bool is_sum(const Split *s, uint32_t n) {
    return s->m->nodes[n].op == OP_ADD && s->uses[n] == 1;
}

static void turn(Split *s, uint32_t n) {
    Model *m = s->m;
    n = below_views(s, n);
    if (!is_turned_product(s, n)) return;
    const Node of = m->nodes[model_arg(m, n, 0)];
    uint32_t first = m->n_args;
    for (uint32_t i = 0; i < 2; i++)
        *ARENA_PUSH(m->arena, m->args, m->n_args, m->cap_args) = m->args[of.args + 1 - i];
    Node *node = &m->nodes[n];
    node->op = OP_MATMUL_W;
    node->attr = of.attr;
    node->args = first;
    node->n_args = 2;
}

// The sum without what adds itself, whose leaves are collected; 0: nothing is left.
static uint32_t take_leaves(Split *s, uint32_t n) {
    if (!is_sum(s, n)) {
        if (!adds_itself(s, n) || s->n == COUNT_OF(s->leaves)) return n;
        s->leaves[s->n++] = n;
        return 0;
    }
    uint32_t *args = s->m->args + s->m->nodes[n].args;
    uint32_t left = take_leaves(s, args[0]), right = take_leaves(s, args[1]);
    if (!left || !right) return left ? left : right;
    args[0] = left;
    args[1] = right;
    return n;
}

static void add_effect(Split *s, uint32_t value) {
    Model *m = s->m;
    Node node = m->nodes[s->effect];
    uint32_t param = model_arg(m, s->effect, 0);
    node.args = m->n_args;
    *ARENA_PUSH(m->arena, m->args, m->n_args, m->cap_args) = param;
    *ARENA_PUSH(m->arena, m->args, m->n_args, m->cap_args) = value;
    *ARENA_PUSH(m->arena, m->nodes, m->n_nodes, m->cap_nodes) = node;
    *ARENA_PUSH(m->arena, m->effects, m->n_effects, m->cap_effects) = m->n_nodes - 1;
}

void accumulate_apart(Lower *l) {
    Model *m = l->m;
    Split s = { .m = m, .l = l, .uses = ARENA_ARRAY(l->arena, uint32_t, m->n_nodes) };
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        for (int i = 0; i < m->nodes[n].n_args; i++) s.uses[model_arg(m, n, i)]++;
    }
    for (uint32_t i = 0, n = m->n_effects; i < n; i++) {
        s.effect = m->effects[i];
        if (m->nodes[s.effect].op != OP_ACCUMULATE) continue;
        s.n = 0;
        uint32_t rest = take_leaves(&s, model_arg(m, s.effect, 1));
        for (int k = 0; k < s.n; k++) turn(&s, s.leaves[k]);
        int k = 0;
        m->args[m->nodes[s.effect].args + 1] = rest ? rest : s.leaves[k++];
        for (; k < s.n; k++) add_effect(&s, s.leaves[k]);
    }
}
