// SPDX-License-Identifier: Apache-2.0
// Construction of a Model: names, nodes, hash-consing.
//
// Every node passes through `model_node`: arity, shape rule, rewrites, then the table of
// existing nodes. Two calls with equal operation, attribute, type and operands give one node;
// its address, location and part are those of the first call. Parameters, states and effects are
// never merged.
#include "compiler/model/private.h"

// Operators print as symbols in errors; their names in printed graphs are listed here.
#define NAMED_ADD ~, "add"
#define NAMED_SUB ~, "sub"
#define NAMED_MUL ~, "mul"
#define NAMED_DIV ~, "div"
#define NAMED_POW ~, "pow"
#define NAMED_IDIV ~, "idiv"
#define NAMED_MOD ~, "mod"
#define SECOND_OF(a, b, ...) b
#define SECOND(...) SECOND_OF(__VA_ARGS__)

const OpInfo op_info[N_OPS] = { [OP_NONE] = { "none", "none", 0, 0, CLASS_SOURCE, 0 },
#define OP(name, text, lo, hi, class, shape, adjoint, flops)                                       \
    [OP_##name] = { SECOND(NAMED_##name, text, ~), text, lo, hi, CLASS_##class, flops },
                                OP_TABLE(OP)
#undef OP
};

const char *const program_name[N_PROGRAMS] = { "step", "eval", "prefill" };

static void model_start(Model *m) {
    m->cap_nodes = 256;
    m->nodes = ARENA_ARRAY(m->arena, Node, m->cap_nodes);
    m->n_nodes = 1;
    m->cap_args = 256; // never NULL: operands are found by adding to it
    m->args = ARENA_ARRAY(m->arena, uint32_t, m->cap_args);
    m->cap_cons = 512;
    m->cons = ARENA_ARRAY(m->arena, uint32_t, m->cap_cons);
    m->cap_name_slots = 256;
    m->name_slots = ARENA_ARRAY(m->arena, uint32_t, m->cap_name_slots);
    m->name = "";
    *ARENA_PUSH(m->arena, m->names, m->n_names, m->cap_names) = arena_strdup(m->arena, "");
}

Model *model_create(void) {
    Arena *arena = arena_create();
    Model *m = ARENA_NEW(arena, Model);
    m->arena = arena;
    model_start(m);
    return m;
}

void model_destroy(Model *m) {
    if (m) arena_destroy(m->arena);
}

static void *copy_items(Arena *arena, const void *items, size_t bytes, size_t cap_bytes) {
    return cap_bytes ? arena_grow(arena, (void *)(uintptr_t)items, bytes, cap_bytes) : NULL;
}

Model *model_copy(const Model *from) {
    Arena *arena = arena_create();
    Model *m = ARENA_NEW(arena, Model);
    *m = *from;
    m->arena = arena;
#define COPY(items, n, cap)                                                                        \
    m->items = copy_items(arena, from->items, sizeof *m->items * from->n, sizeof *m->items * from->cap)
    COPY(nodes, n_nodes, cap_nodes);
    COPY(args, n_args, cap_args);
    COPY(cons, cap_cons, cap_cons);
    COPY(names, n_names, cap_names);
    COPY(name_slots, cap_name_slots, cap_name_slots);
    COPY(constants, n_constants, cap_constants);
    COPY(params, n_params, cap_params);
    COPY(losses, n_losses, cap_losses);
    COPY(metrics, n_metrics, cap_metrics);
    COPY(updates, n_updates, cap_updates);
    COPY(effects, n_effects, cap_effects);
    COPY(records, n_records, cap_records);
    COPY(files, n_files, cap_files);
#undef COPY
    for (uint32_t i = 0; i < m->n_names; i++) m->names[i] = arena_strdup(arena, from->names[i]);
    for (uint32_t i = 0; i < m->n_files; i++) {
        const SourceFile *file = &from->files[i];
        m->files[i] = (SourceFile){ arena_strdup(arena, file->path), file->text ? arena_strdup(arena, file->text) : NULL };
    }
    m->name = arena_strdup(arena, from->name);
    return m;
}

/* Names ---------------------------------------------------------------------------------------- */

static uint32_t *name_slot(const Model *m, const char *name) {
    uint32_t mask = m->cap_name_slots - 1;
    uint32_t at = (uint32_t)hash_bytes(name, strlen(name)).low & mask;
    while (m->name_slots[at] && strcmp(m->names[m->name_slots[at]], name)) at = (at + 1) & mask;
    return &m->name_slots[at];
}

uint32_t model_intern(Model *m, const char *name) {
    if (!*name) return 0;
    uint32_t *slot = name_slot(m, name);
    if (*slot) return *slot;
    if (m->n_names * 2 >= m->cap_name_slots) {
        m->cap_name_slots *= 2;
        m->name_slots = ARENA_ARRAY(m->arena, uint32_t, m->cap_name_slots);
        for (uint32_t i = 1; i < m->n_names; i++) *name_slot(m, m->names[i]) = i;
        slot = name_slot(m, name);
    }
    char *copy = arena_strdup(m->arena, name);
    *slot = m->n_names;
    *ARENA_PUSH(m->arena, m->names, m->n_names, m->cap_names) = copy;
    return *slot;
}

uint32_t model_add_file(Model *m, const char *path, const char *text) {
    SourceFile file = { arena_strdup(m->arena, path), text ? arena_strdup(m->arena, text) : NULL };
    *ARENA_PUSH(m->arena, m->files, m->n_files, m->cap_files) = file;
    return m->n_files;
}

/* Hash-consing --------------------------------------------------------------------------------- */

bool op_is_consed(Op op) {
    return op != OP_PARAM && op != OP_STATE && op_info[op].class != CLASS_EFFECT;
}

bool op_is_free(Op op) {
    uint8_t class = op_info[op].class;
    return class == CLASS_SOURCE || (class == CLASS_GENERATOR && op != OP_TOTAL);
}

typedef struct Key {
    uint32_t op, n_args;
    uint32_t args[MAX_ARGS];
    Attr attr;
    Type type;
} Key;

static uint64_t key_hash(Op op, int n_args, const uint32_t *args, const Attr *attr,
                         const Type *type) {
    Key key;
    memset(&key, 0, sizeof key);
    key.op = op;
    key.n_args = (uint32_t)n_args;
    memcpy(key.args, args, sizeof *args * (size_t)n_args);
    key.attr = *attr;
    key.type = *type;
    return hash_bytes(&key, sizeof key).low;
}

static bool node_is(const Model *m, uint32_t id, const Draft *d) {
    const Node *n = &m->nodes[id];
    return n->op == d->op && n->n_args == d->n_args &&
           !memcmp(&n->attr, &d->attr, sizeof d->attr) && type_equal(&n->type, &d->type) &&
           !memcmp(m->args + n->args, d->args, sizeof *d->args * (size_t)d->n_args);
}

uint32_t model_find(const Model *m, const Draft *d) {
    uint32_t mask = m->cap_cons - 1;
    uint32_t at = (uint32_t)key_hash(d->op, d->n_args, d->args, &d->attr, &d->type) & mask;
    for (; m->cons[at]; at = (at + 1) & mask) {
        if (node_is(m, m->cons[at], d)) return m->cons[at];
    }
    return 0;
}

static void cons_insert(Model *m, uint32_t id) {
    const Node *n = &m->nodes[id];
    uint32_t mask = m->cap_cons - 1;
    uint32_t at =
        (uint32_t)key_hash(n->op, n->n_args, m->args + n->args, &n->attr, &n->type) & mask;
    while (m->cons[at]) at = (at + 1) & mask;
    m->cons[at] = id;
}

void model_cons_rebuild(Model *m) {
    while (m->n_nodes * 2 >= m->cap_cons) m->cap_cons *= 2;
    m->cons = ARENA_ARRAY(m->arena, uint32_t, m->cap_cons);
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        if (op_is_consed(m->nodes[id].op)) cons_insert(m, id);
    }
}

uint32_t model_append(Model *m, const Draft *d) {
    Node node = {
        .op = (uint16_t)d->op,
        .part = m->part,
        .n_args = (uint8_t)d->n_args,
        .args = m->n_args,
        .addr = m->addr,
        .of = m->of,
        .type = d->type,
        .attr = d->attr,
        .loc = m->loc,
    };
    for (int i = 0; i < d->n_args; i++)
        *ARENA_PUSH(m->arena, m->args, m->n_args, m->cap_args) = d->args[i];
    uint32_t id = m->n_nodes;
    *ARENA_PUSH(m->arena, m->nodes, m->n_nodes, m->cap_nodes) = node;
    if (!op_is_consed(d->op)) return id;
    if (m->n_nodes * 2 >= m->cap_cons)
        model_cons_rebuild(m);
    else
        cons_insert(m, id);
    return id;
}

/* Nodes ---------------------------------------------------------------------------------------- */

// A parameter that a contraction multiplies by is a weight, also through views and marks (a tied
// table).
static void mark_weight(Model *m, uint32_t id) {
    for (;;) {
        const Node *n = &m->nodes[id];
        if (n->op == OP_PARAM) {
            m->params[n->attr.index].is_weight = true;
            return;
        }
        if (op_info[n->op].class != CLASS_VIEW && n->op != OP_CAST) return;
        id = m->args[n->args];
    }
}

static bool check_args(Model *m, Op op, const uint32_t *args, int n_args) {
    const OpInfo *info = &op_info[op];
    if (n_args < info->lo || n_args > info->hi) {
        if (info->lo == info->hi) {
            diag_set(m, "%s: expected %d operand%s, got %d", info->text, info->lo,
                     info->lo == 1 ? "" : "s", n_args);
        } else {
            diag_set(m, "%s: expected %d to %d operands, got %d", info->text, info->lo, info->hi,
                     n_args);
        }
        return false;
    }
    for (int i = 0; i < n_args; i++) {
        if (!args[i]) return false; // its maker has said why
        if (args[i] >= m->n_nodes) {
            diag_set(m, "%s: expected operand %d to be a node, got id %u of %u", info->text, i + 1,
                     args[i], m->n_nodes - 1);
            return false;
        }
    }
    return true;
}

uint32_t model_node(Model *m, Op op, const Attr *attr, const Type *declared, const uint32_t *args,
                    int n_args) {
    if (op == OP_NONE || op >= N_OPS) {
        diag_set(m, "expected an operation, got number %d", (int)op);
        return 0;
    }
    if (!check_args(m, op, args, n_args)) return 0;
    Draft draft = { .op = op, .n_args = n_args };
    if (attr) draft.attr = *attr;
    if (n_args) memcpy(draft.args, args, sizeof *args * (size_t)n_args);
    if (!model_shape(m, &draft, declared)) return 0;
    if (op == OP_MATMUL) mark_weight(m, args[1]);
    uint32_t id = model_rewrite(m, &draft);
    if (!id && op_is_consed(op)) id = model_find(m, &draft);
    return id ? id : model_append(m, &draft);
}

uint32_t model_op1(Model *m, Op op, uint32_t a) { return model_node(m, op, NULL, NULL, &a, 1); }

uint32_t model_op2(Model *m, Op op, uint32_t a, uint32_t b) {
    return model_node(m, op, NULL, NULL, (uint32_t[]){ a, b }, 2);
}

uint32_t model_op3(Model *m, Op op, uint32_t a, uint32_t b, uint32_t c) {
    return model_node(m, op, NULL, NULL, (uint32_t[]){ a, b, c }, 3);
}

uint32_t model_const(Model *m, double value, Kind kind) {
    Attr attr = { .raw = { 0, 0 } };
    attr.num = value;
    Type type = { .kind = (uint8_t)kind };
    return model_node(m, OP_CONST, &attr, &type, NULL, 0);
}

bool model_is_const(const Model *m, uint32_t id, double value) {
    return m->nodes[id].op == OP_CONST && m->nodes[id].attr.num == value;
}

// Equal vectors share their numbers, so that they are one node: every layer asks for the same
// frequencies.
static uint32_t constant_offset(Model *m, const double *values, uint32_t n) {
    for (uint32_t at = 0; at + n <= m->n_constants; at++) {
        if (!memcmp(m->constants + at, values, sizeof *values * n)) return at;
    }
    uint32_t at = m->n_constants;
    for (uint32_t i = 0; i < n; i++)
        *ARENA_PUSH(m->arena, m->constants, m->n_constants, m->cap_constants) = values[i];
    return at;
}

uint32_t model_constant(Model *m, const double *values, int n) {
    if (n < 1) {
        diag_set(m, "constant: expected at least one number, got %d", n);
        return 0;
    }
    Attr attr = { .raw = { 0, 0 } };
    attr.index = constant_offset(m, values, (uint32_t)n);
    Type type = { .kind = KIND_REAL, .rank = 1, .dim = { n } };
    return model_node(m, OP_CONSTANT, &attr, &type, NULL, 0);
}

uint32_t model_generator(Model *m, Op op, int32_t k_or_set, const int32_t *dims, int rank) {
    Attr attr = { .raw = { 0, 0 } };
    Type type = { .kind = KIND_REAL, .row = ROW_T };
    if (rank < 0 || rank > MAX_RANK) {
        diag_set(m, "%s: expected at most %d feature axes, got %d", op_info[op].text, MAX_RANK,
                 rank);
        return 0;
    }
    type.rank = (uint8_t)rank;
    for (int i = 0; i < rank; i++) type.dim[i] = dims[i];
    switch (op) {
    case OP_TOKENS:
    case OP_LABELS:
        attr.k = k_or_set;
        type.kind = KIND_INT;
        break;
    case OP_POSITIONS:
    case OP_SEGMENTS: type.kind = KIND_INT; break;
    case OP_UNIFORM: attr.index = k_or_set ? (uint32_t)k_or_set : m->addr; break;
    case OP_N_VALID:
        attr.set = (uint8_t)k_or_set;
        type.row = k_or_set == SET_SEQUENCE ? ROW_S : ROW_NONE;
        break;
    case OP_INV_STEP: type.row = ROW_NONE; break;
    default: break;
    }
    return model_node(m, op, &attr, &type, NULL, 0);
}

uint32_t model_sum(Model *m, uint32_t x, uint32_t axes) {
    Attr attr = { .raw = { 0, 0 } };
    attr.axes = axes;
    return model_node(m, OP_SUM, &attr, NULL, &x, 1);
}

uint32_t model_row_sum(Model *m, uint32_t x, Set set) {
    Attr attr = { .raw = { 0, 0 } };
    attr.set = (uint8_t)set;
    return model_node(m, OP_ROW_SUM, &attr, NULL, &x, 1);
}

uint32_t model_reshape(Model *m, uint32_t x, const int32_t *dims, int rank) {
    if (!x) return 0;
    if (rank < 0 || rank > MAX_RANK) {
        diag_set(m, "reshape: expected at most %d feature axes, got %d", MAX_RANK, rank);
        return 0;
    }
    Type to = m->nodes[x].type;
    to.rank = (uint8_t)rank;
    memset(to.dim, 0, sizeof to.dim);
    for (int i = 0; i < rank; i++) to.dim[i] = dims[i];
    return model_node(m, OP_RESHAPE, NULL, &to, &x, 1);
}

uint32_t model_broadcast(Model *m, uint32_t x, const Type *to) {
    return model_node(m, OP_BROADCAST, NULL, to, &x, 1);
}

uint32_t model_slice(Model *m, uint32_t x, int axis, int32_t at, int32_t size) {
    if (!x) return 0;
    Type to = m->nodes[x].type;
    Attr attr = { .raw = { 0, 0 } };
    attr.cut.axis = axis;
    attr.cut.at = at;
    if (axis >= 0 && axis < to.rank) to.dim[axis] = size;
    return model_node(m, OP_SLICE, &attr, &to, &x, 1);
}

uint32_t model_param(Model *m, uint32_t addr, bool is_state, const int32_t *dims, int rank,
                     uint32_t route) {
    if (rank < 0 || rank > MAX_RANK) {
        diag_set(m, "%s '%s': expected at most %d axes, got %d", is_state ? "state" : "parameter",
                 model_name(m, addr), MAX_RANK, rank);
        return 0;
    }
    Type type = {
        .kind = KIND_REAL, .row = route ? ROW_E : ROW_NONE, .rank = (uint8_t)rank, .route = route
    };
    for (int i = 0; i < rank; i++) type.dim[i] = dims[i];
    Attr attr = { .raw = { 0, 0 } };
    attr.index = m->n_params;
    uint32_t outer = m->addr;
    m->addr = addr;
    uint32_t id = model_node(m, is_state ? OP_STATE : OP_PARAM, &attr, &type, NULL, 0);
    m->addr = outer;
    if (!id) return 0;
    Param param = {
        .node = id,
        .addr = addr,
        .is_state = is_state,
        .init = is_state ? INIT_ZEROS : INIT_NORMAL,
        .std = 0.02,
        .lr = 1,
        .loc = m->loc,
    };
    *ARENA_PUSH(m->arena, m->params, m->n_params, m->cap_params) = param;
    return id;
}

/* Types ---------------------------------------------------------------------------------------- */

bool type_equal(const Type *a, const Type *b) { return !memcmp(a, b, sizeof *a); }

int64_t type_features(const Type *t) {
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

int32_t model_experts(const Model *m, const Type *t) {
    return m->nodes[t->route].attr.route.experts;
}

int32_t model_top_k(const Model *m, const Type *t) {
    return model_type(m, model_arg(m, t->route, 0))->dim[0];
}
