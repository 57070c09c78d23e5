// SPDX-License-Identifier: Apache-2.0
// Fusion: which units share a kernel.
//
// Row units of equal (segment, depth, row axis, route) share one where an edge or a common stored
// input of some width joins them; rowless units share one along edges. The depth (pass.h) makes
// every such group legal: nothing outside a group lies on a path between two of its members. A
// group that reads one product of its own depth moves into the product's kernel (contract.c).
// Generators join nothing, so what merely shares a loss seed stays apart.
#include "compiler/lower/pass.h"

enum { COMMON_INPUT = 8 /* features */ };

uint32_t fuse_unit_at(const Lower *l, uint32_t i) {
    return i % 2 ? l->m->n_nodes + i / 2 : i / 2;
}

bool fuse_is_indexed(const Lower *l, const Unit *unit) {
    return unit->kind == UNIT_ROW && !l->info[unit->node].put &&
           op_info[l->m->nodes[unit->node].op].class == CLASS_INDEX;
}

uint32_t fuse_dependency(const Lower *l, uint32_t u, uint32_t i) {
    const Unit *unit = &l->units[u];
    if (unit->kind == UNIT_FINISH) return unit->node;
    return lower_producer(l, l->reads[unit->reads + i]);
}

// Dispatches that no kernel makes: what reads them can.
static void find_gathers(Lower *l) {
    bool *otherwise = ARENA_ARRAY(l->arena, bool, l->m->n_nodes);
    contract_find_otherwise(l, otherwise);
    for (uint32_t n = 1; n < l->m->n_nodes; n++) { // kernels of several terms take them as they lie
        if (l->units[n].kind != UNIT_KERNEL || !l->info[n].term) continue;
        for (uint32_t t = n; t; t = l->info[t].term)
            otherwise[lower_plain(l, model_arg(l->m, t, 0))] = true;
    }
    for (uint32_t n = 1; n < l->m->n_nodes; n++) {
        if (l->units[n].kind == UNIT_ROW && !l->info[n].into &&
            contract_can_gather(l, otherwise, n))
            l->info[n].gathered = true;
    }
}

/* Groups --------------------------------------------------------------------------------------- */

uint32_t fuse_find(Lower *l, uint32_t u) {
    while (l->units[u].leader != u) {
        l->units[u].leader = l->units[l->units[u].leader].leader;
        u = l->units[u].leader;
    }
    return u;
}

static void join(Lower *l, uint32_t a, uint32_t b) {
    a = fuse_find(l, a);
    b = fuse_find(l, b);
    if (a < b)
        l->units[b].leader = a;
    else
        l->units[a].leader = b;
}

static bool may_join(const Lower *l, const Unit *a, const Unit *b) {
    const Unit *both[] = { a, b };
    for (int i = 0; i < 2; i++) {
        if (both[i]->kind == UNIT_NONE || both[i]->kind == UNIT_KERNEL) return false;
        if (l->m->nodes[both[i]->node].op == OP_UPDATE) return false;
        if (l->info[both[i]->node].gathered) return false;
    }
    if (l->m->nodes[a->node].round != l->m->nodes[b->node].round) return false;
    return a->segment == b->segment && a->depth == b->depth && a->row == b->row && a->route == b->route;
}

// Readers of each node, as lists through the table of reads: head[node], next[read] are read index
// + 1.
typedef struct Readers {
    uint32_t *head, *next, *unit;
} Readers;

static Readers list_readers(Lower *l) {
    Readers r = { ARENA_ARRAY(l->arena, uint32_t, l->m->n_nodes),
                  ARENA_ARRAY(l->arena, uint32_t, l->n_reads),
                  ARENA_ARRAY(l->arena, uint32_t, l->n_reads) };
    for (uint32_t u = l->n_units - 1; u > 0; u--) {
        const Unit *unit = &l->units[u];
        for (uint32_t i = unit->n_reads; i-- > 0;) {
            uint32_t at = unit->reads + i, node = read_node(l->reads[at]);
            r.unit[at] = u;
            r.next[at] = r.head[node];
            r.head[node] = at + 1;
        }
    }
    return r;
}

static void join_along_edges(Lower *l) {
    for (uint32_t u = 1; u < l->n_units; u++) {
        for (uint32_t i = 0; i < l->units[u].n_reads; i++) {
            uint32_t from = fuse_dependency(l, u, i);
            if (from && may_join(l, &l->units[u], &l->units[from])) join(l, u, from);
        }
    }
}

static void join_by_input(Lower *l, const Readers *r) {
    for (uint32_t n = 1; n < l->m->n_nodes; n++) {
        const Type *type = model_type(l->m, n);
        Role role = l->info[n].role;
        bool wide = type->row != ROW_NONE && type_features(type) >= COMMON_INPUT;
        if (!wide || (role != ROLE_ROW && role != ROLE_KERNEL)) continue;
        for (uint32_t a = r->head[n]; a; a = r->next[a - 1]) {
            const Unit *first = &l->units[r->unit[a - 1]];
            if (first->row != type->row || first->route != type->route || fuse_is_indexed(l, first))
                continue;
            for (uint32_t b = r->next[a - 1]; b; b = r->next[b - 1]) {
                const Unit *second = &l->units[r->unit[b - 1]];
                if (fuse_is_indexed(l, second) || !may_join(l, first, second)) continue;
                join(l, r->unit[a - 1], r->unit[b - 1]);
                break; // the rest of the list joins through `second`
            }
        }
    }
}

// Groups of one layer that move into no contraction: a kernel for all of them. Outside of the
// layers only the ends of gradients: losses that meet in nothing but their seeds stay apart.
static void join_by_layer(Lower *l) {
    uint32_t *group = ARENA_ARRAY(l->arena, uint32_t, l->n_units);
    uint32_t *moves = ARENA_ARRAY(l->arena, uint32_t, 2 * l->n_units);
    for (uint32_t u = 1; u < l->n_units; u++) group[u] = fuse_find(l, u);
    contract_find_posts(l, group, moves);
    uint32_t *seen = NULL, n_seen = 0, cap_seen = 0;
    for (uint32_t u = 1; u < l->n_units; u++) {
        const Unit *unit = &l->units[u];
        if (unit->kind == UNIT_NONE || unit->kind == UNIT_KERNEL || group[u] != u || moves[u] ||
            l->info[unit->node].gathered ||
            (lower_layer(l, unit->node) < 0 && (unit->row || !is_backward(unit->segment))))
            continue;
        uint32_t i = 0;
        for (; i < n_seen; i++) {
            const Unit *other = &l->units[seen[i]];
            if (may_join(l, unit, other) &&
                lower_layer(l, unit->node) == lower_layer(l, other->node))
                break;
        }
        if (i < n_seen)
            join(l, seen[i], u);
        else
            *ARENA_PUSH(l->arena, seen, n_seen, cap_seen) = u;
    }
}

// Does the group of the indexed unit u also read u's first operand at the row itself?
static bool is_read_twice(Lower *l, uint32_t u, const Readers *r) {
    uint32_t read = l->reads[l->units[u].reads];
    uint32_t base = lower_indexed(l, model_arg(l->m, l->units[u].node, 0));
    for (uint32_t i = 0; i < l->units[u].n_reads; i++) {
        read = l->reads[l->units[u].reads + i];
        if (read_node(read) == base) break;
    }
    if (read & READ_STORED) return true; // elsewhere in a group it has another form
    for (uint32_t a = r->head[base]; a; a = r->next[a - 1]) {
        uint32_t other = r->unit[a - 1];
        if (fuse_find(l, other) != fuse_find(l, u)) continue;
        const Unit *unit = &l->units[other];
        if (!fuse_is_indexed(l, unit) || lower_indexed(l, model_arg(l->m, unit->node, 0)) != base)
            return true;
    }
    return false;
}

/* Kernels -------------------------------------------------------------------------------------- */

static bool same_operands(const Model *m, uint32_t a, uint32_t b) {
    const Node *x = model_at(m, a), *y = model_at(m, b);
    if (x->n_args != y->n_args) return false;
    Attr p = x->attr, q = y->attr;
    p.attend.part = q.attend.part = 0;
    return !memcmp(&p, &q, sizeof p) &&
           !memcmp(m->args + x->args, m->args + y->args, sizeof *m->args * x->n_args);
}

// attend with attend_lse, and the parts of attend_grad, come out of one kernel.
static void join_siblings(Lower *l) {
    const Model *m = l->m;
    uint32_t *seen = NULL, n_seen = 0, cap_seen = 0;
    for (uint32_t u = 1; u < m->n_nodes; u++) {
        Op op = m->nodes[u].op;
        bool grad = op == OP_ATTEND_GRAD;
        if (l->units[u].kind != UNIT_KERNEL || (op != OP_ATTEND && op != OP_ATTEND_LSE && !grad))
            continue;
        uint32_t i = 0;
        for (; i < n_seen; i++) {
            const Unit *other = &l->units[seen[i]];
            if ((m->nodes[seen[i]].op == OP_ATTEND_GRAD) != grad || !same_operands(m, seen[i], u))
                continue;
            if (other->segment == l->units[u].segment && other->depth == l->units[u].depth) break;
        }
        if (i < n_seen)
            join(l, seen[i], u);
        else
            *ARENA_PUSH(l->arena, seen, n_seen, cap_seen) = u;
    }
}

static void move_in(Lower *l, uint32_t *group) {
    uint32_t *moves = ARENA_ARRAY(l->arena, uint32_t, 2 * l->n_units);
    contract_find_posts(l, group, moves);
    for (uint32_t u = 1; u < l->n_units; u++)
        if (moves[group[u]]) group[u] = moves[group[u]];
}

static void make_kernels(Lower *l, const uint32_t *group) {
    uint32_t *kernel = ARENA_ARRAY(l->arena, uint32_t, 2 * l->n_units);
    for (uint32_t at = 2; at < l->n_units; at++) {
        uint32_t u = fuse_unit_at(l, at);
        Unit *unit = &l->units[u];
        if (unit->kind == UNIT_NONE || l->info[unit->node].gathered) continue;
        uint32_t *index = &kernel[group[u]];
        if (!*index) {
            Kernel *made = ARENA_PUSH(l->arena, l->kernels, l->n_kernels, l->cap_kernels);
            *index = l->n_kernels;
            made->depth = unit->depth;
            made->segment = unit->segment;
            made->node = unit->node;
        }
        Kernel *to = &l->kernels[*index - 1];
        if (unit->kind == UNIT_KERNEL && l->units[to->node].kind != UNIT_KERNEL)
            to->node = unit->node;
        unit->kernel = *index;
        l->kernels[*index - 1].n_units++;
    }
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        l->kernels[k].units = ARENA_ARRAY(l->arena, uint32_t, l->kernels[k].n_units);
        l->kernels[k].n_units = 0;
    }
    for (uint32_t at = 2; at < l->n_units; at++) {
        uint32_t u = fuse_unit_at(l, at);
        if (!l->units[u].kernel) continue;
        Kernel *to = &l->kernels[l->units[u].kernel - 1];
        to->units[to->n_units++] = u;
    }
}

bool pass_fuse(Lower *l) {
    l->info = ARENA_ARRAY(l->arena, NodeInfo, l->m->n_nodes);
    bool joins = !l->options->no_fusion && !l->tiled; // contractions with something else
    if (joins) contract_merge_terms(l);
    if (!lower_roles(l)) return false;
    if (joins) find_gathers(l);
    fuse_depths(l);
    Readers readers = list_readers(l);
    if (!l->options->no_fusion) {
        join_along_edges(l);
        join_by_input(l, &readers);
        if (joins) contract_join_siblings(l);
        join_by_layer(l);
    }
    join_siblings(l);
    uint32_t *group = ARENA_ARRAY(l->arena, uint32_t, l->n_units);
    for (uint32_t u = 1; u < l->n_units; u++) {
        if (l->units[u].kind == UNIT_NONE) continue;
        group[u] = fuse_find(l, u);
        // Alone it has no edge into it at its depth, so the rest of the group stays legal.
        if (fuse_is_indexed(l, &l->units[u]) && is_read_twice(l, u, &readers))
            group[u] = l->n_units + u;
    }
    if (joins) move_in(l, group);
    make_kernels(l, group);
    for (uint32_t u = 1; u < l->n_units; u++) {
        for (uint32_t i = 0; i < l->units[u].n_reads; i++) {
            uint32_t from = fuse_dependency(l, u, i);
            if (from && l->units[from].kernel != l->units[u].kernel) l->units[from].stored = true;
        }
    }
    return true;
}

void dump_fuse(const Lower *l, Text *out) {
    static const char row_letter[] = "-TRES";
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        const Kernel *kernel = &l->kernels[k];
        if (!kernel->n_units) continue; // the optimizer's
        const Unit *first = &l->units[kernel->units[0]];
        text_printf(out, "%s %d", lower_segment_name(l, kernel->segment), kernel->depth);
        if (!kernel_is_family(l, kernel)) text_printf(out, " %c", row_letter[first->row]);
        // Contractions first, then what follows them.
        for (uint32_t i = 0; i < 2 * kernel->n_units; i++) {
            const Unit *unit = &l->units[kernel->units[i % kernel->n_units]];
            if ((unit->kind == UNIT_KERNEL) != (i < kernel->n_units)) continue;
            const char *name = op_info[l->m->nodes[unit->node].op].name;
            const char *how = unit->kind == UNIT_STORE    ? "store:"
                              : unit->kind == UNIT_FINISH ? "finish:"
                                                          : "";
            text_printf(out, " %s%s%s", how, name, unit->stored ? "!" : "");
        }
        text_add(out, "\n");
    }
}
