// SPDX-License-Identifier: Apache-2.0
// The row program of one kernel: nodes, loads and stores, in the order in which its stores need
// them.
//
// The order follows the stores and the operands, not node numbers, so equal computations traced at
// different times give equal kernels.
#include "compiler/lower/pass.h"

typedef struct Build {
    Lower *l;
    uint32_t kernel, stamp;
    char load, store; // prefixes of parameters
    uint32_t *nodes, n_nodes, cap_nodes;
    RowLoad *loads;
    uint32_t n_loads, cap_loads;
    RowStore *stores;
    uint32_t n_stores, cap_stores;
} Build;

static bool is_here(const Build *b, uint32_t unit) {
    return b->l->units[unit].kernel == b->kernel + 1;
}

// Marks node n as known to this kernel; true the first time.
static bool first_visit(Build *b, uint32_t n) {
    if (b->l->stamp[n] == b->stamp) return false;
    b->l->stamp[n] = b->stamp;
    return true;
}

static void add_node(Build *b, uint32_t n) {
    *ARENA_PUSH(b->l->arena, b->nodes, b->n_nodes, b->cap_nodes) = n;
}

static bool is_loaded(const Build *b, RowWhat what, uint32_t node) {
    for (uint32_t i = 0; i < b->n_loads; i++) {
        if (b->loads[i].node == node && b->loads[i].what == what) return true;
    }
    return false;
}

static void mark_remote(Build *b) {
    Kernel *kernel = &b->l->kernels[b->kernel];
    kernel->binds[kernel->n_binds - 1].remote = true;
}

static void add_load(Build *b, RowWhat what, uint32_t node, uint32_t buffer) {
    if (is_loaded(b, what, node)) return;
    const Buffer *from = &b->l->buffers[buffer];
    RowLoad load = { .node = node, .what = (uint8_t)what, .dtype = from->dtype };
    if (what == WHAT_PARTIALS) load.partials = (int32_t)from->dims[0];
    const char *name = arena_printf(b->l->arena, "%c%u", b->load, b->n_loads);
    *ARENA_PUSH(b->l->arena, b->loads, b->n_loads, b->cap_loads) = load;
    lower_bind(b->l, b->kernel, name, buffer, OPERAND_READ);
}

static void visit(Build *b, uint32_t n);

// A value that lies in memory, as its own result or as a stored copy.
static void load_memory(Build *b, uint32_t n) {
    uint32_t read = b->l->info[n].forced ? n | READ_STORED : n;
    add_load(b, WHAT_VALUE, n, lower_value(b->l, read));
}

// A value that is read at any row: views over one load. `apart`: rows of each rank where it lies on
// several, else 0.
static void visit_indexed(Build *b, uint32_t n, int64_t apart, bool summed) {
    Lower *l = b->l;
    if (!first_visit(b, n)) return;
    if (lower_indexed(l, n) == n) {
        if (apart && lower_in_blocks(l)) {
            add_load(b, WHAT_VALUE, n, blocks_back(l, n, l->kernels[b->kernel].segment, summed));
            return;
        }
        load_memory(b, n);
        if (apart) mark_remote(b);
        b->loads[b->n_loads - 1].apart = apart;
        return;
    }
    visit_indexed(b, model_arg(l->m, n, 0), apart, summed);
    add_node(b, n);
}

// Where a token's copies are: among all rows of a route, or in blocks among what came back.
static uint32_t row_of_slot(const Build *b, uint32_t collect) {
    uint32_t route = model_arg(b->l->m, collect, 1);
    if (!lower_in_blocks(b->l)) return lower_buffer(b->l, BUFFER_ROW_OF_SLOT, route, 0);
    return blocks_table(b->l, route, b->l->info[collect].summed ? TABLE_FIRST : TABLE_PLACE);
}

static void visit_args(Build *b, uint32_t n) {
    const Node *node = model_at(b->l->m, n);
    bool indexed = op_info[node->op].class == CLASS_INDEX;
    int64_t apart = node->op == OP_COLLECT && lower_ep(b->l) > 1
                        ? lower_capacity(b->l, model_arg(b->l->m, n, 1))
                        : 0;
    for (int i = 0; i < node->n_args; i++) {
        uint32_t arg = model_arg(b->l->m, n, i);
        if (indexed && i == 0)
            visit_indexed(b, arg, apart, b->l->info[n].summed);
        else if (node->op == OP_DISPATCH)
            add_load(b, WHAT_SLOT_OF_ROW, arg, lower_buffer(b->l, BUFFER_SLOT_OF_ROW, arg, 0));
        else if (node->op == OP_COLLECT && i == 1)
            add_load(b, WHAT_ROW_OF_SLOT, arg, row_of_slot(b, n));
        else
            visit(b, arg);
    }
}

static void visit_generator(Build *b, uint32_t n) {
    Lower *l = b->l;
    Op op = l->m->nodes[n].op;
    if (op == OP_UNIFORM || op == OP_INV_STEP)
        add_load(b, WHAT_SCALARS, 0, lower_buffer(l, BUFFER_SCALARS, 0, 0));
    if (op == OP_UNIFORM) {
        add_load(b, WHAT_INDEX, 0, lower_buffer(l, BUFFER_INPUT, 0, INPUT_index << 16));
        add_node(b, n);
    } else if (op != OP_INV_STEP) {
        add_load(b, WHAT_VALUE, n, lower_value(l, n));
    }
}

// Makes the value of n known: computed here, loaded, or a literal that needs neither.
static void visit(Build *b, uint32_t n) {
    Lower *l = b->l;
    if (!first_visit(b, n)) return;
    switch ((Role)l->info[n].role) {
    case ROLE_LITERAL:
    case ROLE_DEAD:
    case ROLE_EFFECT: return;
    case ROLE_GENERATOR: visit_generator(b, n); return;
    case ROLE_INLINE:
        visit_args(b, n);
        add_node(b, n);
        return;
    case ROLE_ROW:
        if (lower_is_partial(l, n) && is_here(b, l->m->n_nodes + n)) {
            add_load(b, WHAT_PARTIALS, n, lower_buffer(l, BUFFER_PARTIALS, n, 0));
        } else if (!lower_is_partial(l, n) && is_here(b, n)) {
            visit_args(b, n);
            add_node(b, n);
        } else {
            add_load(b, WHAT_VALUE, n, lower_value(l, n));
        }
        return;
    case ROLE_KERNEL:
        if (!is_here(b, n)) add_load(b, WHAT_VALUE, n, lower_value(l, n));
        return; // an accumulator
    case ROLE_SOURCE: add_load(b, WHAT_VALUE, n, lower_value(l, n)); return;
    }
}

static void add_store(Build *b, uint32_t node, uint32_t buffer, bool partial, bool add) {
    Lower *l = b->l;
    RowStore store = {
        .node = node, .dtype = l->buffers[buffer].dtype, .partial = partial, .add = add
    };
    const char *name = arena_printf(l->arena, "%c%u", b->store, b->n_stores);
    *ARENA_PUSH(l->arena, b->stores, b->n_stores, b->cap_stores) = store;
    lower_bind(l, b->kernel, name, buffer, add ? OPERAND_ADD : OPERAND_WRITE);
}

// A dispatch to other ranks: what each of the group's rows sends, and where to.
static void store_put(Build *b, uint32_t n) {
    Lower *l = b->l;
    uint32_t route = model_arg(l->m, n, 1);
    if (lower_in_blocks(l)) {
        uint32_t value = blocks_token_value(l, n);
        visit(b, value);
        add_store(b, value, lower_buffer(l, BUFFER_SENT, n, BLOCKS_ROWS), false, false);
        return;
    }
    visit(b, model_arg(l->m, n, 0));
    add_load(b, WHAT_ROW_OF_SLOT, route, lower_buffer(l, BUFFER_ROW_OF_SLOT, route, 0));
    add_store(b, n, lower_value(l, n), false, false);
    mark_remote(b);
    b->stores[b->n_stores - 1].apart = lower_capacity(l, route);
}

// What comes back in a further round: the others' places are left alone.
static void store_some(Build *b, uint32_t n) {
    Kernel *kernel = &b->l->kernels[b->kernel];
    visit(b, n);
    add_store(b, n, lower_value(b->l, n), false, false);
    kernel->binds[kernel->n_binds - 1].some = true;
    b->stores[b->n_stores - 1].some = true;
}

static uint32_t effect_buffer(Lower *l, uint32_t effect) {
    const Node *node = model_at(l->m, effect);
    switch (node->op) {
    case OP_ACCUMULATE: return lower_buffer(l, BUFFER_GRADIENT, model_arg(l->m, effect, 0), 0);
    case OP_UPDATE: return lower_buffer(l, BUFFER_PARAM, model_arg(l->m, effect, 0), 0);
    case OP_RECORD: return lower_buffer(l, BUFFER_METRIC, 0, (int32_t)node->attr.index);
    case OP_TOTAL: return lower_buffer(l, BUFFER_TOTAL, effect, 0);
    default: return lower_buffer(l, BUFFER_OUTPUT, effect, 0);
    }
}

static void store_unit(Build *b, uint32_t u) {
    Lower *l = b->l;
    const Unit *unit = &l->units[u];
    uint32_t n = unit->node;
    if (unit->kind == UNIT_EFFECT) {
        Op op = l->m->nodes[n].op;
        uint32_t value = model_arg(l->m, n, lower_effect_value(op));
        if (op == OP_UPDATE) {
            value = lower_plain(l, value);
            first_visit(b, value);
            load_memory(b, value);
        } else {
            visit(b, value);
        }
        add_store(b, value, effect_buffer(l, n), false, op != OP_UPDATE && op != OP_OUTPUT);
    } else if (unit->kind == UNIT_ROW && lower_is_partial(l, n)) {
        visit(b, model_arg(l->m, n, 0));
        add_node(b, n);
        add_store(b, n, lower_buffer(l, BUFFER_PARTIALS, n, 0), true, false);
    } else if (unit->kind == UNIT_STORE) {
        visit(b, n);
        add_store(b, n, lower_value(l, n | READ_STORED), false, false);
    } else if (l->info[n].put) {
        store_put(b, n);
    } else if (l->m->nodes[n].op == OP_COLLECT && l->m->nodes[n].round) {
        store_some(b, n);
    } else if (unit->stored || l->info[n].into) {
        visit(b, n);
        add_store(b, n, lower_value(l, n), false, false);
    }
}

// The accumulators of a contraction, one load per sibling, before all others.
static void load_accumulators(Build *b) {
    uint32_t parts[MAX_PARTS];
    int n = kernel_parts(b->l, &b->l->kernels[b->kernel], parts);
    if (b->l->m->nodes[parts[0]].op == OP_MATMUL_T) n = 1;
    for (int i = 0; i < n; i++)
        *ARENA_PUSH(b->l->arena, b->loads, b->n_loads, b->cap_loads) =
            (RowLoad){ .node = parts[i], .what = WHAT_ACC, .dtype = DTYPE_F32 };
}

static const Unit *first_row_unit(const Lower *l, const Kernel *kernel) {
    const Unit *unit = &l->units[kernel->units[0]];
    for (uint32_t i = 1; unit->kind == UNIT_KERNEL && i < kernel->n_units; i++)
        unit = &l->units[kernel->units[i]];
    return unit;
}

static void finish_body(const Build *b, RowBody *body) {
    body->nodes = b->nodes;
    body->n_nodes = b->n_nodes;
    body->loads = b->loads;
    body->n_loads = b->n_loads;
    body->stores = b->stores;
    body->n_stores = b->n_stores;
}

void body_describe_pre(Lower *l, uint32_t kernel, uint32_t n) {
    RowBody *body = &l->kernels[kernel].desc.pre;
    Build build = { .l = l, .kernel = kernel, .stamp = 2 * kernel + 2, .load = 'a', .store = 'b' };
    const Type *type = model_type(l->m, n);
    bool pairs = lower_is_bf16(l, l->kernels[kernel].node);
    if (lower_align(l) > 1) l->kernels[kernel].desc.align = lower_align(l);
    body->model = l->m;
    body->row = type->row;
    body->route = type->route;
    add_load(&build, WHAT_OFFSETS, type->route, lower_buffer(l, BUFFER_OFFSETS, type->route, 0));
    visit_args(&build, n);
    add_node(&build, n);
    *ARENA_PUSH(l->arena, build.stores, build.n_stores, build.cap_stores) =
        (RowStore){ .node = n, .dtype = pairs ? DTYPE_BF16 : DTYPE_F32, .operand = true };
    finish_body(&build, body);
}

bool body_describe(Lower *l, uint32_t kernel) {
    KernelDesc *desc = &l->kernels[kernel].desc;
    const Unit *first = first_row_unit(l, &l->kernels[kernel]);
    RowBody *body = &desc->body;
    Build build = { .l = l, .kernel = kernel, .stamp = 2 * kernel + 1, .load = 'l', .store = 's' };
    if (kernel_is_family(l, &l->kernels[kernel]))
        load_accumulators(&build);
    else
        desc->family = FAMILY_ROW;
    Type rows = { .row = first->row, .route = first->route };
    desc->rows = lower_rows(l, &rows);
    if (first->row == ROW_T || first->row == ROW_S) desc->sequence = l->m->sequence;
    if (first->row == ROW_R) desc->experts = lower_experts(l, &rows);
    if (first->row == ROW_R && lower_align(l) > 1) desc->align = lower_align(l);
    body->model = l->m;
    body->row = first->row;
    body->route = first->route;
    if (first->row == ROW_R)
        add_load(&build, WHAT_OFFSETS, first->route,
                 lower_buffer(l, BUFFER_OFFSETS, first->route, 0));
    for (uint32_t i = 0; i < l->kernels[kernel].n_units; i++)
        store_unit(&build, l->kernels[kernel].units[i]);
    finish_body(&build, body);
    for (uint32_t i = 0; i < body->n_nodes; i++)
        desc->flops += node_flops(l->m, body->nodes[i], l->tokens);
    return body->n_stores > 0 ||
           lower_fail(l, first->node, "internal error: a kernel without results");
}
