// SPDX-License-Identifier: Apache-2.0
// What each node of a program is to lowering, which units there are, and what each unit reads.
//
// Row programs look through views and evaluate maps of generators again wherever they are read:
// these nodes have no unit. Kernels with an entry of their own (contractions, routes, sums into
// sequences and experts) and indexed reads want memory: what has none is forced, that is, stored as
// it is seen by a unit of its own.
#include <stdlib.h>

#include "compiler/lower/pass.h"

static OpClass class_of(const Model *m, uint32_t n) {
    return op_info[m->nodes[n].op].class;
}

bool lower_is_partial(const Lower *l, uint32_t n) {
    return class_of(l->m, n) == CLASS_PARTIAL && l->m->nodes[n].type.row == ROW_NONE;
}

static bool moves_nothing(const Model *m, uint32_t n) {
    const Node *node = model_at(m, n);
    const Type *to = &node->type, *from = model_type(m, model_arg(m, n, 0));
    switch (node->op) {
    case OP_RESHAPE:
    case OP_KEEP:
    case OP_RECOMPUTE:
    case OP_STOP_GRADIENT: return true;
    case OP_BROADCAST:
    case OP_SLICE:
        return to->row == from->row && to->route == from->route &&
               type_features(to) == type_features(from);
    case OP_TRANSPOSE: return from->dim[from->rank - 1] == 1 || from->dim[from->rank - 2] == 1;
    default: return false;
    }
}

uint32_t lower_plain(const Lower *l, uint32_t n) {
    while (class_of(l->m, n) == CLASS_VIEW && moves_nothing(l->m, n)) n = model_arg(l->m, n, 0);
    return n;
}

uint32_t lower_base(const Lower *l, uint32_t n) {
    while (class_of(l->m, n) == CLASS_VIEW) n = model_arg(l->m, n, 0);
    return n;
}

// Packing looks through views that move nothing, and through one transposition of the [k, n] matrix
// of an operand with one axis each: it turns or does not.
uint32_t lower_weight(const Lower *l, uint32_t n, bool *turn) {
    const Node *node = model_at(l->m, n);
    uint32_t w = lower_plain(l, model_arg(l->m, n, 1));
    const Type *type = model_type(l->m, model_arg(l->m, n, 1)), *plain = model_type(l->m, w);
    *turn = l->m->nodes[w].op == OP_TRANSPOSE && type->rank == node->attr.mm.each + 2 &&
            type->rank == plain->rank && !memcmp(type->dim, plain->dim, sizeof type->dim);
    return *turn ? lower_plain(l, model_arg(l->m, w, 0)) : w;
}

// Do the types differ in unit axes at most?
static bool same_but_units(const Type *a, const Type *b) {
    int i = 0, j = 0;
    for (;;) {
        while (i < a->rank && a->dim[i] == 1) i++;
        while (j < b->rank && b->dim[j] == 1) j++;
        if (i == a->rank || j == b->rank) return i == a->rank && j == b->rank;
        if (a->dim[i++] != b->dim[j++]) return false;
    }
}

// What ends the walk: a broadcast to another row axis, whose row is not the row of what it reads, and a
// reshape of what lies in another order in memory, for which there may be no strides.
uint32_t lower_indexed(const Lower *l, uint32_t n) {
    while (class_of(l->m, n) == CLASS_VIEW) {
        uint32_t x = model_arg(l->m, n, 0);
        const Type *to = model_type(l->m, n), *from = model_type(l->m, x);
        if (to->row != from->row || to->route != from->route) break;
        bool moved = class_of(l->m, lower_plain(l, x)) == CLASS_VIEW;
        if (l->m->nodes[n].op == OP_RESHAPE && moved && !same_but_units(to, from)) break;
        n = x;
    }
    return n;
}

uint32_t lower_producer(const Lower *l, uint32_t read) {
    uint32_t n = read_node(read);
    const NodeInfo *info = &l->info[n];
    if (info->role == ROLE_KERNEL) return n;
    if (info->role == ROLE_ROW) return lower_is_partial(l, n) ? l->m->n_nodes + n : n;
    return (read & READ_STORED) && info->forced ? n : 0;
}

/* Roles ---------------------------------------------------------------------------------------- */

static void mark_live(Lower *l) {
    const Model *m = l->m;
    for (uint32_t i = 0; i < m->n_effects; i++) l->info[m->effects[i]].role = ROLE_ROW;
    for (uint32_t n = m->n_nodes - 1; n > 0; n--) {
        if (l->info[n].role == ROLE_DEAD) continue;
        for (uint32_t t = n; t; t = l->info[t].term) {
            for (int i = 0; i < m->nodes[t].n_args; i++)
                l->info[model_arg(m, t, i)].role = ROLE_ROW;
        }
        if (m->nodes[n].type.row == ROW_R) l->info[m->nodes[n].type.route].role = ROLE_ROW;
    }
}

// A function of generators and numbers that costs less to evaluate again than to store. A loss
// seed, say: stored, it would join what only happens to share it.
static bool is_float(const Lower *l, uint32_t n) {
    const Node *node = model_at(l->m, n);
    bool map = op_info[node->op].class == CLASS_MAP;
    if (l->options->no_fusion || !(map || node->op == OP_ONE_HOT)) return false;
    if (op_info[node->op].flops > 1 && type_features(&node->type) > 8) return false;
    for (int i = 0; i < node->n_args; i++) {
        uint32_t base = lower_base(l, model_arg(l->m, n, i));
        Role role = l->info[base].role;
        if (role != ROLE_LITERAL && role != ROLE_GENERATOR && role != ROLE_INLINE) return false;
    }
    return true;
}

// A value that backward computes again, each reader for itself. Of a further round these are what was
// cloned of forward.
static bool is_again(const Lower *l, uint32_t n) {
    OpClass class = class_of(l->m, n);
    const Node *node = model_at(l->m, n);
    bool round = node->round && node->part == PART_BACKWARD && !node->of &&
                 (class == CLASS_MAP || class == CLASS_REDUCE || class == CLASS_WHOLE);
    return round || (n >= l->first_again && n < l->end_again && class != CLASS_CONTRACT &&
                     class != CLASS_INDEX);
}

static Role role_of(const Lower *l, uint32_t n) {
    const Node *node = model_at(l->m, n);
    if (is_again(l, n)) return ROLE_INLINE;
    if (node->op == OP_CONST || node->op == OP_CONSTANT) return ROLE_LITERAL;
    if (node->op == OP_TOTAL) return ROLE_SOURCE;
    if (node->op == OP_SEND) return ROLE_KERNEL;
    switch (op_info[node->op].class) {
    case CLASS_SOURCE: return ROLE_SOURCE;
    case CLASS_GENERATOR: return ROLE_GENERATOR;
    case CLASS_VIEW: return ROLE_INLINE;
    case CLASS_EFFECT: return ROLE_EFFECT;
    case CLASS_CONTRACT:
    case CLASS_BARRIER: return ROLE_KERNEL;
    case CLASS_PARTIAL: return lower_is_partial(l, n) ? ROLE_ROW : ROLE_KERNEL;
    default: return is_float(l, n) ? ROLE_INLINE : ROLE_ROW;
    }
}

/* Reads ---------------------------------------------------------------------------------------- */

static bool is_input(Op op) {
    return op == OP_TOKENS || op == OP_LABELS || op == OP_POSITIONS || op == OP_SEGMENTS ||
           op == OP_N_VALID;
}

// The read of a reader that wants `n` in memory; forces a copy where there is none. `copy`: even of
// sources.
static uint32_t need_memory(Lower *l, uint32_t reader, uint32_t n, bool copy) {
    NodeInfo *info = &l->info[n];
    if (info->role == ROLE_ROW || info->role == ROLE_KERNEL) return n;
    if (info->role == ROLE_SOURCE && !copy) return n;
    if (info->role == ROLE_GENERATOR && is_input(l->m->nodes[n].op) && !copy) return n;
    int segment = lower_segment(l, reader);
    if (!info->forced || segment < info->forced_segment) info->forced_segment = (uint8_t)segment;
    info->forced = true;
    return n | READ_STORED;
}

static void add_read(Lower *l, Unit *unit, uint32_t read) {
    for (uint32_t i = 0; i < unit->n_reads; i++) {
        if (l->reads[unit->reads + i] == read) return;
    }
    *ARENA_PUSH(l->arena, l->reads, l->n_reads, l->cap_reads) = read;
    unit->n_reads++;
}

// What a row program reads to know `n`: through views and what it evaluates itself, down to memory.
static void add_row_reads(Lower *l, Unit *unit, uint32_t n) {
    Role role = l->info[n].role;
    if (role == ROLE_LITERAL) return;
    if (role != ROLE_INLINE) {
        add_read(l, unit, n);
        return;
    }
    if (l->stamp[n] == unit->leader) return; // seen for this unit
    l->stamp[n] = unit->leader;
    for (int i = 0; i < l->m->nodes[n].n_args; i++) add_row_reads(l, unit, model_arg(l->m, n, i));
}

int lower_layer(const Lower *l, uint32_t n) {
    const char *name = model_name(l->m, l->m->nodes[n].addr);
    return strncmp(name, "layers.", 7) ? -1 : atoi(name + 7);
}

int lower_effect_value(Op op) {
    return op == OP_ACCUMULATE || op == OP_UPDATE;
}

static void start_unit(Lower *l, uint32_t index, UnitKind kind, uint32_t node, const Type *rows) {
    Unit *unit = &l->units[index];
    *unit = (Unit){ .kind = (uint8_t)kind, .node = node, .leader = index, .reads = l->n_reads };
    if (!rows) return;
    unit->row = rows->row;
    unit->route = rows->route;
    if (rows->row == ROW_R) add_read(l, unit, rows->route);
}

static void read_operands(Lower *l, Unit *unit, uint32_t n) {
    const Node *node = model_at(l->m, n);
    bool grouped = false;
    for (int i = 0; i < node->n_args; i++) {
        uint32_t arg = model_arg(l->m, n, i);
        bool turn, packed = i == 1 && (node->op == OP_MATMUL || node->op == OP_MATMUL_T);
        uint32_t from = packed ? lower_weight(l, n, &turn) : lower_plain(l, arg);
        add_read(l, unit, need_memory(l, n, from, false));
        grouped |= model_type(l->m, arg)->row == ROW_R;
    }
    if (!grouped) return;
    for (int i = 0; i < node->n_args; i++) {
        const Type *type = model_type(l->m, model_arg(l->m, n, i));
        if (type->row == ROW_R) add_read(l, unit, type->route);
    }
}

static void read_kernel(Lower *l, uint32_t n) {
    for (uint32_t t = n; t; t = l->info[t].term) read_operands(l, &l->units[n], t);
}

static void read_row(Lower *l, uint32_t n) {
    const Node *node = model_at(l->m, n);
    Unit *unit = &l->units[n];
    for (int i = 0; i < node->n_args; i++) {
        uint32_t arg = model_arg(l->m, n, i);
        bool indexed = i == 0 && op_info[node->op].class == CLASS_INDEX && !l->info[n].put;
        if (indexed)
            add_read(l, unit, need_memory(l, n, lower_indexed(l, arg), false));
        else
            add_row_reads(l, unit, arg);
    }
}

static void make_units(Lower *l) {
    const Model *m = l->m;
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        const Node *node = &m->nodes[n];
        Role role = l->info[n].role;
        if (role == ROLE_ROW) {
            bool partial = lower_is_partial(l, n);
            start_unit(l, n, UNIT_ROW, n,
                       partial || l->info[n].put ? model_type(m, model_arg(m, n, 0)) : &node->type);
            read_row(l, n);
            if (!partial) continue;
            start_unit(l, m->n_nodes + n, UNIT_FINISH, n, NULL);
            add_read(l, &l->units[m->n_nodes + n], n);
        } else if (role == ROLE_KERNEL) {
            start_unit(l, n, UNIT_KERNEL, n, NULL);
            read_kernel(l, n);
        } else if (role == ROLE_EFFECT || node->op == OP_TOTAL) {
            if (role == ROLE_DEAD) continue;
            uint32_t value = model_arg(m, n, lower_effect_value(node->op));
            start_unit(l, n, UNIT_EFFECT, n, model_type(m, value));
            // A state is written last, and from a copy: other updates may still want its old value.
            if (node->op == OP_UPDATE)
                add_read(l, &l->units[n], need_memory(l, n, lower_plain(l, value), true));
            else
                add_row_reads(l, &l->units[n], value);
        }
    }
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        if (!l->info[n].forced) continue;
        // A forced source has a copy beside its own memory; nodes with units of their own are never
        // forced.
        start_unit(l, n, UNIT_STORE, n, &m->nodes[n].type);
        add_row_reads(l, &l->units[n], n);
    }
}

/* Effects done by the kernel of their value ---------------------------------------------------- */

static void count_readers(Lower *l) {
    for (uint32_t u = 1; u < l->n_units; u++) {
        const Unit *unit = &l->units[u];
        for (uint32_t i = 0; i < unit->n_reads; i++) {
            uint32_t read = l->reads[unit->reads + i];
            if (unit->kind != UNIT_FINISH && lower_producer(l, read))
                l->info[read_node(read)].n_readers++;
        }
    }
}

static bool can_add_in_place(const Lower *l, uint32_t n) {
    Op op = l->m->nodes[n].op;
    return l->info[n].role == ROLE_KERNEL && l->info[n].n_readers == 1 &&
           (op == OP_MATMUL_W || op == OP_EMBED_W || op == OP_ROW_SUM);
}

static void absorb_effects(Lower *l) {
    const Model *m = l->m;
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        Op op = m->nodes[n].op;
        if (l->info[n].role != ROLE_EFFECT || (op != OP_ACCUMULATE && op != OP_OUTPUT)) continue;
        uint32_t value = lower_plain(l, model_arg(m, n, lower_effect_value(op)));
        NodeInfo *info = &l->info[value];
        bool made =
            info->role == ROLE_KERNEL || (info->role == ROLE_ROW && !lower_is_partial(l, value));
        // What leaves the program is fp32; inside it may have to be bf16.
        bool whole =
            m->nodes[value].op != OP_ROUTE && !info->shared && !info->into && !(l->mixed && info->n_readers > 1);
        if (op == OP_ACCUMULATE ? !can_add_in_place(l, value) || info->into : !made || !whole)
            continue;
        info->into = n;
        l->info[n].absorbed = true;
        l->units[n].kind = UNIT_NONE;
        l->units[n].n_reads = 0;
    }
}

// With experts on other ranks dispatches write there, and collects read there.
static void find_shared(Lower *l) {
    for (uint32_t n = 1; n < l->m->n_nodes; n++) {
        if (l->info[n].role != ROLE_ROW) continue;
        Op op = l->m->nodes[n].op;
        if (op == OP_DISPATCH) l->info[n].put = l->info[n].shared = true;
        if (op == OP_COLLECT) l->info[lower_indexed(l, model_arg(l->m, n, 0))].shared = true;
    }
}

bool lower_roles(Lower *l) {
    const Model *m = l->m;
    l->n_units = 2 * m->n_nodes;
    l->units = ARENA_ARRAY(l->arena, Unit, l->n_units);
    l->stamp = ARENA_ARRAY(l->arena, uint32_t, m->n_nodes);
    mark_live(l);
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        if (l->info[n].role != ROLE_DEAD) l->info[n].role = (uint8_t)role_of(l, n);
    }
    if (lower_ep(l) > 1) find_shared(l);
    lower_find_weights(l);
    make_units(l);
    count_readers(l);
    absorb_effects(l);
    return true;
}
