// SPDX-License-Identifier: Apache-2.0
// Programs: what a run computes, derived from the traced model.
//
// A program is a set of effects; everything they do not need is gone, and ids are compact,
// topological and ordered by part (forward, backward, update). Losses and metrics become
// records, sums over the microbatch that add up to the step's mean whatever the microbatches
// are:
//
//   [T]     row_sum(x * valid) * inv_step
//   scalar  x * n_valid(microbatch) * inv_step
//   [S]     row_sum(x * n_valid(sequence)) * inv_step
//
// The seed of a loss is its weight * inv_step, times valid, n_valid(microbatch),
// n_valid(sequence).
//
// Seeds are made of generators only: no backward starts from a stored tensor.
//
// Where ranks divide the tokens (model->ranks), a microbatch is one rank's and each of them adds to the
// step's mean or sum; sums of set global are taken across the ranks, and so are their gradients.
#include "compiler/model/private.h"

#include <stdio.h>

typedef struct Copy {
    const Model *from;
    Model *to;
    uint32_t *map;     // of forward nodes: old id to new
    uint32_t *updates; // of nodes computed after the optimizer
} Copy;

static bool program_fail(Model *m, Loc loc) {
    m->diag.loc = loc;
    return false;
}

/* Copying -------------------------------------------------------------------------------------- */

// What a rule says of the contraction of this weight. Its gradients take it over.
static uint8_t ruled_precision(const Model *m, uint32_t weight) {
    while (op_info[m->nodes[weight].op].class == CLASS_VIEW) weight = model_arg(m, weight, 0);
    return m->nodes[weight].op == OP_PARAM ? m->params[m->nodes[weight].attr.index].precision
                                           : PRECISION_OPEN;
}

static void copy_node(Copy *c, uint32_t id, const uint32_t *map, uint8_t part, uint32_t *out) {
    const Node *n = &c->from->nodes[id];
    Draft draft = { .op = n->op, .attr = n->attr, .type = n->type, .n_args = n->n_args };
    for (int i = 0; i < n->n_args; i++) draft.args[i] = map[model_arg(c->from, id, i)];
    draft.type.route = c->map[n->type.route];
    if (n->op == OP_MATMUL && !draft.attr.mm.precision)
        draft.attr.mm.precision = ruled_precision(c->from, model_arg(c->from, id, 1));
    c->to->loc = n->loc;
    c->to->addr = n->addr;
    c->to->part = part;
    out[id] = model_append(c->to, &draft);
    bool global = n->op == OP_ROW_SUM && n->attr.set == SET_GLOBAL;
    if (global && c->to->ranks > 1) out[id] = model_op1(c->to, OP_ACROSS, out[id]);
    if (n->op == OP_PARAM || n->op == OP_STATE) c->to->params[n->attr.index].node = out[id];
}

/* Weights at rows ----------------------------------------------------------------------------- */

// collect(h W) * w, the weighted results of experts, as collect((h * dispatch(w)) W): one number
// per row goes there and its gradient comes back, instead of the weights meeting every feature of
// every choice, and what experts return need not be kept for backward.
typedef struct Weighted {
    uint32_t collect, product, weights;
} Weighted;

static bool is_expert_product(const Model *m, uint32_t id) {
    const Node *n = &m->nodes[id];
    if (n->op != OP_MATMUL || n->type.row != ROW_R || n->attr.mm.each) return false;
    uint32_t h = model_arg(m, id, 0);
    while (op_info[m->nodes[h].op].class == CLASS_VIEW) h = model_arg(m, h, 0);
    return m->nodes[model_arg(m, id, 1)].type.row == ROW_E && m->nodes[h].op != OP_DISPATCH;
}

// A number per choice: [T, k, 1..].
static bool is_per_choice(const Model *m, uint32_t id, const Type *like) {
    const Type *t = model_type(m, id);
    if (t->row != ROW_T || t->rank != like->rank || t->dim[0] != like->dim[0]) return false;
    for (int i = 1; i < t->rank; i++)
        if (t->dim[i] != 1) return false;
    return t->kind == KIND_REAL;
}

static bool find_weighted(const Model *m, const uint32_t *uses, uint32_t id, Weighted *out) {
    if (m->nodes[id].op != OP_MUL) return false;
    for (int i = 0; i < 2; i++) {
        uint32_t collect = model_arg(m, id, i), weights = model_arg(m, id, 1 - i);
        if (m->nodes[collect].op != OP_COLLECT || uses[collect] != 1) continue;
        uint32_t product = model_arg(m, collect, 0);
        *out = (Weighted){ collect, product, weights };
        if (uses[product] == 1 && is_expert_product(m, product) &&
            is_per_choice(m, weights, model_type(m, collect)))
            return true;
    }
    return false;
}

static uint32_t weigh_rows(Copy *c, const Weighted *w) {
    const Model *from = c->from;
    Model *to = c->to;
    const Node *product = &from->nodes[w->product], *collect = &from->nodes[w->collect];
    uint32_t route = c->map[model_arg(from, w->collect, 1)];
    to->part = PART_FORWARD;
    to->loc = collect->loc;
    to->addr = collect->addr;
    int32_t dims[2] = { collect->type.dim[0], 1 };
    uint32_t per_row = model_op2(to, OP_DISPATCH,
                                 model_reshape(to, c->map[w->weights], dims, 2), route);
    to->loc = product->loc;
    to->addr = product->addr;
    uint32_t args[2] = { model_op2(to, OP_MUL, c->map[model_arg(from, w->product, 0)], per_row),
                         c->map[model_arg(from, w->product, 1)] };
    const Attr attr = to->nodes[c->map[w->product]].attr; // with what a rule says
    uint32_t rows = model_node(to, OP_MATMUL, &attr, NULL, args, 2);
    to->loc = collect->loc;
    to->addr = collect->addr;
    return model_op2(to, OP_COLLECT, rows, route);
}

static void count_uses(const Model *m, const uint8_t *live, uint32_t *uses) {
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        for (int i = 0; live[id] && i < m->nodes[id].n_args; i++) uses[model_arg(m, id, i)]++;
    }
    for (uint32_t i = 0; i < m->n_losses; i++) uses[m->losses[i].node]++;
    for (uint32_t i = 0; i < m->n_metrics; i++) uses[m->metrics[i].node]++;
    uses[m->logits]++;
}

static void mark(uint8_t *live, uint32_t id) { live[id] = 1; }

// Everything that marked nodes need, their routes included, in falling id.
static void mark_needs(const Model *m, uint8_t *live) {
    for (uint32_t id = m->n_nodes - 1; id > 0; id--) {
        if (!live[id]) continue;
        for (int i = 0; i < m->nodes[id].n_args; i++) mark(live, model_arg(m, id, i));
        mark(live, m->nodes[id].type.route);
    }
}

static void copy_forward(Copy *c, Program program) {
    const Model *from = c->from;
    uint8_t *live = ARENA_ARRAY(c->to->arena, uint8_t, from->n_nodes);
    if (program == PROGRAM_PREFILL) {
        mark(live, from->logits);
    } else {
        for (uint32_t i = 0; i < from->n_losses; i++) mark(live, from->losses[i].node);
        for (uint32_t i = 0; i < from->n_metrics; i++) mark(live, from->metrics[i].node);
    }
    for (uint32_t i = 0; program == PROGRAM_STEP && i < from->n_updates; i++) {
        mark(live, from->updates[i].state);
        mark(live, model_arg(from, from->updates[i].total, 0));
    }
    mark_needs(from, live);
    uint32_t *uses = ARENA_ARRAY(c->to->arena, uint32_t, from->n_nodes);
    count_uses(from, live, uses);
    for (uint32_t id = 1; id < from->n_nodes; id++) {
        Weighted weighted;
        if (live[id] && find_weighted(from, uses, id, &weighted))
            c->map[id] = weigh_rows(c, &weighted);
        else if (live[id])
            copy_node(c, id, c->map, PART_FORWARD, c->map);
    }
}

// Names, files, numbers and parameters keep their indices: attributes refer to them.
void model_copy_tables(Model *to, const Model *from) {
    for (uint32_t i = 1; i < from->n_names; i++) model_intern(to, from->names[i]);
    for (uint32_t i = 0; i < from->n_files; i++)
        model_add_file(to, from->files[i].path, from->files[i].text);
    for (uint32_t i = 0; i < from->n_constants; i++) {
        *ARENA_PUSH(to->arena, to->constants, to->n_constants, to->cap_constants) =
            from->constants[i];
    }
    for (uint32_t i = 0; i < from->n_params; i++) {
        Param param = from->params[i];
        param.node = 0; // set when the node is copied
        *ARENA_PUSH(to->arena, to->params, to->n_params, to->cap_params) = param;
    }
    to->name = arena_strdup(to->arena, from->name);
    to->vocab = from->vocab;
    to->width = from->width;
    to->sequence = from->sequence;
    to->n_layers = from->n_layers;
    to->ranks = from->ranks;
}

// The largest value over all ranks is not computed: its gradient goes to the ties of all of them.
static bool check_maxima(const Model *from, Model *to) {
    for (uint32_t id = 1; from->ranks > 1 && id < from->n_nodes; id++) {
        const Node *n = &from->nodes[id];
        if (n->op != OP_ROW_MAX || n->attr.set != SET_GLOBAL) continue;
        diag_set(to, "the largest value over a global set is not computed on several ranks");
        diag_hint(to, "take it over the microbatch, or use one rank");
        return program_fail(to, n->loc);
    }
    return true;
}

/* Records and seeds ---------------------------------------------------------------------------- */

static uint32_t add_effect(Model *m, Op op, uint32_t index, const uint32_t *args, int n_args) {
    Attr attr = { .raw = { 0, 0 } };
    attr.index = index;
    uint32_t id = model_node(m, op, &attr, NULL, args, n_args);
    if (id) *ARENA_PUSH(m->arena, m->effects, m->n_effects, m->cap_effects) = id;
    return id;
}

// How many tokens of the step a row of `row` stands for.
static uint32_t tokens_of_row(Model *m, uint8_t row) {
    switch (row) {
    case ROW_T: return model_generator(m, OP_VALID, 0, NULL, 0);
    case ROW_S: return model_generator(m, OP_N_VALID, SET_SEQUENCE, NULL, 0);
    default: return model_generator(m, OP_N_VALID, SET_MICROBATCH, NULL, 0);
    }
}

bool *model_varies(const Model *m, Arena *arena) {
    bool *varies = ARENA_ARRAY(arena, bool, m->n_nodes);
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        const Node *n = &m->nodes[id];
        if (n->op == OP_ACROSS || n->op == OP_TOTAL) continue;
        varies[id] = (op_info[n->op].class == CLASS_GENERATOR && n->op != OP_INV_STEP) ||
                     (n->op == OP_RECV && n->attr.cross.varies);
        for (int i = 0; i < n->n_args; i++) varies[id] |= varies[model_arg(m, id, i)];
    }
    return varies;
}

static uint32_t as_real(Model *m, uint32_t x) {
    uint32_t one = model_const(m, 1, KIND_REAL);
    if (m->nodes[x].type.kind == KIND_BOOL)
        return model_op3(m, OP_WHERE, x, one, model_const(m, 0, KIND_REAL));
    return m->nodes[x].type.kind == KIND_INT ? model_op2(m, OP_MUL, x, one) : x;
}

// A loss or a metric that is reduced like one: its part of the step's mean over valid tokens.
static uint32_t share_of_mean(Model *m, uint32_t value) {
    uint8_t row = m->nodes[value].type.row;
    value = model_op2(m, OP_MUL, value, tokens_of_row(m, row));
    if (row) value = model_row_sum(m, value, SET_ALL);
    return model_op2(m, OP_MUL, value, model_generator(m, OP_INV_STEP, 0, NULL, 0));
}

// A metric that is added up: over valid tokens, over sequences, or as it is.
static uint32_t share_of_sum(Model *m, uint32_t value) {
    uint8_t row = m->nodes[value].type.row;
    if (m->ranks > 1 && !row && !model_varies(m, m->arena)[value]) // all ranks add the same
        return model_op2(m, OP_MUL, value, model_const(m, 1.0 / m->ranks, KIND_REAL));
    if (row == ROW_T) value = model_op2(m, OP_MUL, value, tokens_of_row(m, row));
    return row ? model_row_sum(m, value, SET_ALL) : value;
}

static bool record(Model *m, uint32_t x, Loc loc, Record row, const char *what, int max_rank) {
    uint32_t addr = row.addr;
    m->loc = loc;
    m->addr = addr;
    m->part = PART_FORWARD;
    Type t = m->nodes[x].type;
    if (t.kind > KIND_BOOL || t.row == ROW_R || t.row == ROW_E || t.rank > max_rank) {
        char shape[128];
        type_format(m, &t, shape, sizeof shape);
        diag_set(m, "%s '%s' must be [T], [S] or a scalar%s; it is %s", what, model_name(m, addr),
                 max_rank ? ", or a vector without row axis" : "", shape);
        if (t.row == ROW_R)
            diag_hint(m, "m.combine(rows, weights) brings rows back to tokens");
        else if (t.rank)
            diag_hint(m, "m.sum(x) and m.mean(x) reduce a feature axis");
        return program_fail(m, loc);
    }
    uint32_t value = as_real(m, x);
    value = row.sum ? share_of_sum(m, value) : share_of_mean(m, value);
    row.n = (int32_t)type_features(&t);
    uint32_t index = m->n_records;
    *ARENA_PUSH(m->arena, m->records, m->n_records, m->cap_records) = row;
    return add_effect(m, OP_RECORD, index, &value, 1) || program_fail(m, loc);
}

static bool add_records(Copy *c) {
    for (uint32_t i = 0; i < c->from->n_losses; i++) {
        const Loss *loss = &c->from->losses[i];
        Record row = { .addr = loss->addr, .weight = loss->weight };
        if (!record(c->to, c->map[loss->node], loss->loc, row, "loss", 0)) return false;
    }
    for (uint32_t i = 0; i < c->from->n_metrics; i++) {
        const Metric *metric = &c->from->metrics[i];
        Record row = { .addr = metric->addr, .sum = metric->sum };
        if (!record(c->to, c->map[metric->node], metric->loc, row, "metric", 1)) return false;
    }
    return true;
}

/* Backward ------------------------------------------------------------------------------------- */

static bool add_gradients(Copy *c) {
    Model *m = c->to;
    uint32_t n = c->from->n_losses, n_roots = 0;
    uint32_t *roots = ARENA_ARRAY(m->arena, uint32_t, n + 1),
             *seeds = ARENA_ARRAY(m->arena, uint32_t, n + 1);
    uint32_t *gradients = ARENA_ARRAY(m->arena, uint32_t, m->n_params + 1);
    m->part = PART_BACKWARD;
    for (uint32_t i = 0; i < n; i++) {
        const Loss *loss = &c->from->losses[i];
        if (loss->weight == 0) continue;
        m->loc = loss->loc;
        m->addr = loss->addr;
        roots[n_roots] = c->map[loss->node];
        uint32_t weight = model_const(m, loss->weight, KIND_REAL);
        uint32_t scale = model_op2(m, OP_MUL, weight, model_generator(m, OP_INV_STEP, 0, NULL, 0));
        seeds[n_roots++] =
            model_op2(m, OP_MUL, tokens_of_row(m, m->nodes[c->map[loss->node]].type.row), scale);
    }
    if (!model_gradients(m, roots, seeds, (int)n_roots, gradients)) return false;
    for (uint32_t i = 0; i < m->n_params; i++) {
        if (!gradients[i]) continue;
        m->loc = m->params[i].loc;
        m->addr = m->params[i].addr;
        m->part = PART_BACKWARD;
        uint32_t args[2] = { m->params[i].node, gradients[i] };
        if (!add_effect(m, OP_ACCUMULATE, 0, args, 2)) return program_fail(m, m->loc);
    }
    return true;
}

// Rowless backward values of sums that forward has made (the coefficient of a balance loss) move
// there, with the numbers they need: forward ends those sums anyway.
static void move_to_forward(Model *m) {
    uint8_t *summed = ARENA_ARRAY(m->arena, uint8_t, m->n_nodes);
    uint8_t *ready = ARENA_ARRAY(m->arena, uint8_t, m->n_nodes); // all of it could be in forward
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        const Node *n = &m->nodes[id];
        uint8_t class = op_info[n->op].class;
        bool plain = class == CLASS_MAP || class == CLASS_VIEW || class == CLASS_REDUCE ||
                     class == CLASS_WHOLE || n->op == OP_ACROSS;
        summed[id] = class == CLASS_PARTIAL;
        ready[id] = plain && n->type.row == ROW_NONE;
        for (int i = 0; i < n->n_args; i++) {
            summed[id] |= summed[model_arg(m, id, i)];
            ready[id] &= ready[model_arg(m, id, i)];
        }
        ready[id] |= n->part == PART_FORWARD || op_is_free(n->op);
    }
    for (uint32_t id = m->n_nodes - 1; id > 0; id--) {
        Node *n = &m->nodes[id];
        if (n->part == PART_BACKWARD && ready[id] && summed[id]) n->part = PART_FORWARD;
        for (int i = 0; n->part == PART_FORWARD && i < n->n_args; i++) {
            m->nodes[model_arg(m, id, i)].part = PART_FORWARD;
        }
    }
}

/* Updates -------------------------------------------------------------------------------------- */

// After the optimizer there are no tokens: states, parameters, numbers and totals only.
static bool fits_update(Copy *c, uint32_t id, Loc loc) {
    const Node *n = &c->from->nodes[id];
    bool rows = n->type.row == ROW_T || n->type.row == ROW_R || n->type.row == ROW_S;
    if (!rows && n->op != OP_N_VALID) return true;
    char shape[128];
    type_format(c->from, &n->type, shape, sizeof shape);
    diag_set(c->to,
             "update: the new state may depend on the old one and the total only, it reads %s %s",
             op_info[n->op].text, shape);
    diag_hint(
        c->to,
        "pass what it needs as the contribution: m.update(state, x, f) calls f(state, total of x)");
    return program_fail(c->to, loc);
}

static bool copy_update(Copy *c, const Update *update) {
    const Model *from = c->from;
    uint8_t *live = ARENA_ARRAY(c->to->arena, uint8_t, from->n_nodes);
    mark(live, update->next);
    for (uint32_t id = from->n_nodes - 1; id > 0; id--) {
        for (int i = 0; live[id] && from->nodes[id].op != OP_TOTAL && i < from->nodes[id].n_args;
             i++) {
            mark(live, model_arg(from, id, i));
        }
    }
    for (uint32_t id = 1; id < from->n_nodes; id++) {
        if (!live[id] || c->updates[id]) continue;
        const Node *n = &from->nodes[id];
        uint8_t class = op_info[n->op].class;
        if (!fits_update(c, id, update->loc)) return false;
        bool source = class == CLASS_SOURCE || class == CLASS_GENERATOR;
        if (n->op == OP_TOTAL) {
            copy_node(c, id, c->map, PART_UPDATE, c->updates);
        } else if (source && c->map[id]) {
            c->updates[id] = c->map[id];
        } else {
            copy_node(c, id, c->updates, source ? PART_FORWARD : PART_UPDATE, c->updates);
            if (source) c->map[id] = c->updates[id];
        }
    }
    return true;
}

static bool add_updates(Copy *c) {
    for (uint32_t i = 0; i < c->from->n_updates; i++) {
        const Update *update = &c->from->updates[i];
        if (!copy_update(c, update)) return false;
        uint32_t args[2] = { c->map[update->state], c->updates[update->next] };
        c->to->loc = update->loc;
        c->to->addr = c->from->nodes[update->state].addr;
        c->to->part = PART_UPDATE;
        if (!add_effect(c->to, OP_UPDATE, 0, args, 2)) return program_fail(c->to, update->loc);
    }
    return true;
}

/* The whole ------------------------------------------------------------------------------------ */

// Drops what no effect needs and orders by part. Sources belong to no part; they count as
// forward, so that an edge never leads back to an earlier part and the order stays topological.
static void compact(Model *m) {
    uint8_t *live = ARENA_ARRAY(m->arena, uint8_t, m->n_nodes);
    uint32_t *order = ARENA_ARRAY(m->arena, uint32_t, m->n_nodes), n = 0;
    for (uint32_t i = 0; i < m->n_effects; i++) mark(live, m->effects[i]);
    mark_needs(m, live);
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        if (op_is_free(m->nodes[id].op)) m->nodes[id].part = PART_FORWARD;
    }
    for (uint8_t part = PART_FORWARD; part <= PART_UPDATE; part++) {
        for (uint32_t id = 1; id < m->n_nodes; id++) {
            if (live[id] && m->nodes[id].part == part) order[++n] = id;
        }
    }
    model_renumber(m, order, n);
}

static bool build(Model *to, const Model *from, Program program) {
    Copy c = { .from = from, .to = to };
    c.map = ARENA_ARRAY(to->arena, uint32_t, from->n_nodes);
    c.updates = ARENA_ARRAY(to->arena, uint32_t, from->n_nodes);
    model_copy_tables(to, from);
    if (!check_maxima(from, to)) return false;
    if (program == PROGRAM_PREFILL && !from->logits) {
        diag_set(to, "prefill: expected a model with logits, got none");
        return false;
    }
    copy_forward(&c, program);
    to->logits = c.map[from->logits];
    if (program == PROGRAM_PREFILL) {
        to->part = PART_FORWARD;
        if (!add_effect(to, OP_OUTPUT, 0, &to->logits, 1)) return false;
    } else if (!add_records(&c)) {
        return false;
    }
    if (program == PROGRAM_STEP && (!add_gradients(&c) || !add_updates(&c))) return false;
    move_to_forward(to);
    compact(to);
    to->loc = (Loc){ 0 };
    to->addr = 0;
    to->part = PART_FORWARD;
    return model_verify(to);
}

Model *model_program(Model *from, Program program) {
    Model *to = model_create();
    if (!build(to, from, program)) {
        from->diag = to->diag;
        memset(from->diag.blame, 0, sizeof from->diag.blame); // ids of the other graph
        model_destroy(to);
        return NULL;
    }
    return to;
}
