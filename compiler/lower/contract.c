// SPDX-License-Identifier: Apache-2.0
// Contractions that share a kernel, and row groups that move into one.
//
//   terms     matmul_t whose only readers are one tree of adds are summed in one kernel, which
//             computes what the last of them stands for; the adds go
//   siblings  matmul of one left operand: several weights, one kernel
//   posts     a row group that reads one contraction of its own depth runs on its rows as they are
//             finished
//
// All three where an operation is a plain product of rows: one group of columns, nothing between.
#include "compiler/lower/pass.h"

static int64_t product(const Type *type, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= type->dim[i];
    return n;
}

void contract_sizes(const Lower *l, uint32_t n, KernelDesc *d) {
    const Node *node = model_at(l->m, n);
    const Type *x = model_type(l->m, model_arg(l->m, n, 0)),
               *w = model_type(l->m, model_arg(l->m, n, 1));
    int each = node->attr.mm.each, over = node->attr.mm.over, mid;
    d->rows = lower_rows(l, x);
    d->each = (int32_t)product(x, 0, each);
    if (node->op == OP_MATMUL_T) {
        int n_axes = w->rank - each - over;
        mid = x->rank - each - n_axes;
        d->k = (int32_t)product(w, each, each + over);
        d->n = product(w, each + over, w->rank);
    } else {
        mid = x->rank - each - over;
        d->k = (int32_t)product(x, each + mid, x->rank);
        d->n = node->op == OP_MATMUL ? product(w, each + over, w->rank)
                                     : product(w, each + mid, w->rank);
    }
    d->mid = (int32_t)product(x, each, each + mid);
    bool grouped = node->op == OP_MATMUL_W ? x->row == ROW_R : w->row == ROW_E;
    d->experts = grouped ? lower_experts(l, x) : 0;
    d->family = node->op == OP_MATMUL     ? FAMILY_MATMUL
                : node->op == OP_MATMUL_T ? FAMILY_MATMUL_T
                                          : FAMILY_MATMUL_W;
}

bool contract_is_simple(const Lower *l, uint32_t n) {
    KernelDesc d = { 0 };
    contract_sizes(l, n, &d);
    return d.each == 1 && d.mid == 1;
}

// A product of rows of tokens with a matrix, or of expert rows with their expert's.
static bool is_plain(const Lower *l, uint32_t n) {
    const Node *node = model_at(l->m, n);
    if (node->op != OP_MATMUL && node->op != OP_MATMUL_T) return false;
    KernelDesc d = { 0 };
    contract_sizes(l, n, &d);
    bool rows = node->type.row == ROW_T || (node->type.row == ROW_R && d.experts);
    return rows && d.each == 1 && d.mid == 1;
}

/* Terms ---------------------------------------------------------------------------------------- */

typedef struct Terms {
    Lower *l;
    uint32_t *uses; // by node
    uint32_t found[64];
    int n;
    uint32_t keep; // the term that stands for all
    uint8_t precision;
} Terms;

static bool same_segment(const Node *a, const Node *b) {
    return a->part == b->part && a->chunk == b->chunk;
}

static bool is_inner(const Terms *t, uint32_t n, uint32_t root) {
    const Node *node = model_at(t->l->m, n), *top = model_at(t->l->m, root);
    return node->op == OP_ADD && t->uses[n] == 1 && same_segment(node, top) &&
           type_equal(&node->type, &top->type);
}

static bool is_term(const Terms *t, uint32_t n, uint32_t root) {
    const Model *m = t->l->m;
    const Node *node = model_at(m, n);
    return node->op == OP_MATMUL_T && t->uses[n] == 1 && same_segment(node, &m->nodes[root]) &&
           type_equal(&node->type, &m->nodes[root].type) && is_plain(t->l, n);
}

static void collect_terms(Terms *t, uint32_t n, uint32_t root) {
    for (int i = 0; i < 2; i++) {
        uint32_t arg = model_arg(t->l->m, n, i);
        if (is_inner(t, arg, root))
            collect_terms(t, arg, root);
        else if (is_term(t, arg, root) && t->n < COUNT_OF(t->found))
            t->found[t->n++] = arg;
    }
}

static bool is_gone(const Terms *t, uint32_t n) {
    for (int i = 0; i < t->n; i++) {
        if (t->found[i] == n) return n != t->keep;
    }
    return false;
}

// The tree under n without the terms that are gone; 0: nothing is left.
static uint32_t prune(const Terms *t, uint32_t n, uint32_t root) {
    const Model *m = t->l->m;
    uint32_t *args = m->args + m->nodes[n].args, left[2];
    for (int i = 0; i < 2; i++) {
        left[i] = args[i];
        if (is_inner(t, args[i], root))
            left[i] = prune(t, args[i], root);
        else if (is_gone(t, args[i]))
            left[i] = 0;
    }
    if (!left[0] || !left[1]) return left[0] ? left[0] : left[1];
    args[0] = left[0];
    args[1] = left[1];
    return n;
}

// Keeps of the terms found the first ones of one precision that fit a kernel.
static void choose_terms(Terms *t) {
    uint8_t precision = t->l->m->nodes[t->found[0]].attr.mm.precision;
    const Type *g = model_type(t->l->m, model_arg(t->l->m, t->found[0], 0));
    int n = 0;
    for (int i = 0; i < t->n && n < MAX_PARTS; i++) {
        const Type *other = model_type(t->l->m, model_arg(t->l->m, t->found[i], 0));
        if (t->l->m->nodes[t->found[i]].attr.mm.precision != precision || other->row != g->row ||
            other->route != g->route)
            continue;
        t->found[n++] = t->found[i];
    }
    t->n = n;
    t->keep = 0;
    for (int i = 0; i < n; i++) {
        if (t->found[i] > t->keep) t->keep = t->found[i]; // all operands precede it
    }
}

// What the readers of the root read now.
static uint32_t merge_tree(Terms *t, uint32_t root) {
    t->n = 0;
    collect_terms(t, root, root);
    if (t->n) choose_terms(t);
    // In fp32 among bf16, left operands may have either type; a kernel takes one.
    bool alike = !t->l->mixed || (t->n && lower_is_bf16(t->l, t->found[0]));
    if (t->n < 2 || !alike) return root;
    uint32_t *link = &t->l->info[t->keep].term;
    for (int i = 0; i < t->n; i++) {
        if (t->found[i] == t->keep) continue;
        *link = t->found[i];
        link = &t->l->info[t->found[i]].term;
    }
    return prune(t, root, root);
}

void contract_merge_terms(Lower *l) {
    Model *m = l->m;
    Terms t = { .l = l, .uses = ARENA_ARRAY(l->arena, uint32_t, m->n_nodes) };
    uint32_t *now = ARENA_ARRAY(l->arena, uint32_t, m->n_nodes);
    bool *inner = ARENA_ARRAY(l->arena, bool, m->n_nodes);
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        for (int i = 0; i < m->nodes[n].n_args; i++) t.uses[model_arg(m, n, i)]++;
    }
    for (uint32_t n = m->n_nodes - 1; n > 0; n--) { // from the roots down
        now[n] = n;
        if (m->nodes[n].op != OP_ADD || !t.uses[n]) continue;
        for (int i = 0; i < 2; i++) {
            uint32_t arg = model_arg(m, n, i);
            const Node *node = model_at(m, arg);
            if (node->op == OP_ADD && t.uses[arg] == 1 && same_segment(node, &m->nodes[n]) &&
                type_equal(&node->type, &m->nodes[n].type))
                inner[arg] = true;
        }
        if (!inner[n]) now[n] = merge_tree(&t, n);
    }
    for (uint32_t i = 0; i < m->n_args; i++) m->args[i] = now[m->args[i]];
}

// Siblings of a matmul are units of the kernel, terms of a matmul_t hang on its unit.
int kernel_parts(const Lower *l, const Kernel *kernel, uint32_t parts[4]) {
    int n = 0;
    if (l->m->nodes[kernel->node].op == OP_MATMUL_T) {
        for (uint32_t t = kernel->node; t; t = l->info[t].term) parts[n++] = t;
        return n;
    }
    for (uint32_t i = 0; i < kernel->n_units; i++) {
        const Unit *unit = &l->units[kernel->units[i]];
        if (unit->kind == UNIT_KERNEL) parts[n++] = unit->node;
    }
    return n;
}

bool kernel_has_post(const Lower *l, const Kernel *kernel) {
    for (uint32_t i = 0; kernel_is_family(l, kernel) && i < kernel->n_units; i++) {
        if (l->units[kernel->units[i]].kind != UNIT_KERNEL) return true;
    }
    return false;
}

/* Gathers -------------------------------------------------------------------------------------- */

// A product on expert rows whose left operand a kernel may make for itself.
static bool is_grouped(const Lower *l, uint32_t n) {
    const Node *node = model_at(l->m, n);
    if (node->op != OP_MATMUL && node->op != OP_MATMUL_T && node->op != OP_MATMUL_W) return false;
    KernelDesc d = { 0 };
    contract_sizes(l, n, &d);
    return d.experts && d.each == 1 && d.mid == 1;
}

void contract_find_otherwise(const Lower *l, bool *otherwise) {
    const Model *m = l->m;
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        if (op_info[m->nodes[n].op].class == CLASS_VIEW && lower_plain(l, n) != n) continue;
        for (int i = 0; i < m->nodes[n].n_args; i++)
            otherwise[lower_plain(l, model_arg(m, n, i))] |= i > 0 || !is_grouped(l, n);
    }
}

bool contract_can_gather(const Lower *l, const bool *otherwise, uint32_t n) {
    return l->m->nodes[n].op == OP_DISPATCH && lower_ep(l) == 1 && l->m->nodes[n].type.kind == KIND_REAL &&
           !otherwise[n];
}

/* Siblings ------------------------------------------------------------------------------------- */

static bool are_siblings(const Lower *l, uint32_t a, uint32_t b) {
    const Unit *p = &l->units[a], *q = &l->units[b];
    const Node *x = model_at(l->m, a), *y = model_at(l->m, b);
    return p->segment == q->segment && p->depth == q->depth &&
           x->attr.mm.precision == y->attr.mm.precision && x->type.row == y->type.row &&
           x->type.route == y->type.route &&
           model_type(l->m, model_arg(l->m, a, 1))->row ==
               model_type(l->m, model_arg(l->m, b, 1))->row &&
           lower_plain(l, model_arg(l->m, a, 0)) == lower_plain(l, model_arg(l->m, b, 0));
}

void contract_join_siblings(Lower *l) {
    const Model *m = l->m;
    uint32_t *first = NULL, *count = NULL, n_first = 0, cap_first = 0, n_count = 0, cap_count = 0;
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        if (m->nodes[n].op != OP_MATMUL || l->units[n].kind != UNIT_KERNEL || !is_plain(l, n))
            continue;
        uint32_t i = 0;
        while (i < n_first && (count[i] == MAX_PARTS || !are_siblings(l, first[i], n))) i++;
        if (i < n_first) {
            l->units[n].leader = fuse_find(l, first[i]);
            count[i]++;
            continue;
        }
        *ARENA_PUSH(l->arena, first, n_first, cap_first) = n;
        *ARENA_PUSH(l->arena, count, n_count, cap_count) = 1;
    }
}

/* Posts ---------------------------------------------------------------------------------------- */

// What a row group reads of its own depth.
typedef struct Reading {
    uint32_t contraction; // its group; 0: none
    bool several, refused;
} Reading;

static void note_read(const Lower *l, const uint32_t *group, uint32_t u, Reading *reading) {
    const Unit *unit = &l->units[u];
    for (uint32_t i = 0; i < unit->n_reads; i++) {
        uint32_t from = fuse_dependency(l, u, i);
        if (!from) continue;
        const Unit *made = &l->units[from];
        if (made->kind != UNIT_KERNEL || made->segment != unit->segment || made->depth != unit->depth)
            continue;
        if (reading->contraction && reading->contraction != group[from]) reading->several = true;
        reading->contraction = group[from];
        const Type *type = &l->m->nodes[made->node].type;
        bool together = l->m->nodes[made->node].round == l->m->nodes[unit->node].round;
        if (!is_plain(l, made->node) || !together || type->row != unit->row || type->route != unit->route)
            reading->refused = true;
    }
    if (unit->row == ROW_R && unit->kind == UNIT_ROW && lower_is_partial(l, unit->node))
        reading->refused = true; // expert rows end where a chunk need not
    if (l->m->nodes[unit->node].op == OP_UPDATE) reading->refused = true;
}

void contract_find_posts(Lower *l, const uint32_t *group, uint32_t *moves) {
    Reading *readings = ARENA_ARRAY(l->arena, Reading, 2 * l->n_units);
    for (uint32_t u = 1; u < l->n_units; u++) {
        const Unit *unit = &l->units[u];
        if (unit->kind != UNIT_NONE && unit->kind != UNIT_KERNEL)
            note_read(l, group, u, &readings[group[u]]);
    }
    for (uint32_t g = 1; g < 2 * l->n_units; g++) {
        const Reading *reading = &readings[g];
        moves[g] = reading->several || reading->refused ? 0 : reading->contraction;
    }
}
