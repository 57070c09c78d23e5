// SPDX-License-Identifier: Apache-2.0
// The interpreter's frame: inputs, memory, the order of evaluation, losses of a traced graph.
#include "tests/oracle/interp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Inputs ---------------------------------------------------------------------------------------- */

static int32_t *ints(int64_t n) {
    return calloc((size_t)(n ? n : 1), sizeof(int32_t));
}

Batch batch_make(uint64_t seed, int64_t tokens, int64_t sequence, int32_t vocab, int32_t first) {
    Batch b = { .tokens = tokens, .sequence = sequence };
    b.positions = ints(tokens), b.segments = ints(tokens), b.index = ints(tokens);
    for (int64_t t = 0, segment = -1, left = 0; t < tokens; t++, left--) {
        bool starts = t % sequence == 0 || left == 0;
        if (starts) {
            segment++;
            left = 1 + (int64_t)(hash_uniform(seed, 1, (uint64_t)t) * 1.3f * (float)sequence);
        }
        b.segments[t] = (int32_t)segment;
        b.positions[t] = starts ? 0 : b.positions[t - 1] + 1;
        b.index[t] = first + (int32_t)t;
    }
    for (int k = 0; k < INTERP_AHEAD; k++) {
        b.ahead[k] = ints(tokens), b.labels[k] = ints(tokens);
        for (int64_t t = 0; t < tokens; t++) {
            bool inside = t + k < tokens && b.segments[t + k] == b.segments[t];
            int32_t id = (int32_t)(hash_uniform(seed, 2, (uint64_t)(t + k)) * (float)vocab);
            bool masked = hash_uniform(seed, 3, (uint64_t)(t + k)) < 1.0f / 6;
            b.ahead[k][t] = inside ? id : -1;
            // The last token of a sequence may have a target that lies past it.
            bool target = inside || hash_uniform(seed, 4, (uint64_t)t) < 0.5f;
            b.labels[k][t] = target && !masked ? id : -1;
        }
    }
    return b;
}

void batch_free(Batch *b) {
    for (int k = 0; k < INTERP_AHEAD; k++) free(b->ahead[k]), free(b->labels[k]);
    free(b->positions), free(b->segments), free(b->index);
    *b = (Batch){ 0 };
}

int64_t batch_valid(const Batch *b, int64_t from, int64_t to) {
    int64_t n = 0;
    for (int64_t t = from; t < to; t++) n += b->labels[1][t] >= 0;
    return n;
}

/* Shapes: only products of the declared sizes, and how many rows an axis has ----------------------- */

int64_t features(const Type *type) {
    int64_t n = 1;
    for (int i = 0; i < type->rank; i++) n *= type->dim[i];
    return n;
}

int64_t interp_rows(const Interp *in, const Type *type) {
    switch (type->row) {
    case ROW_T: return in->batch->tokens;
    case ROW_S: return in->batch->tokens / in->batch->sequence;
    case ROW_R: return in->routes[type->route].rows;
    case ROW_E: return in->m->nodes[type->route].attr.route.experts;
    default: return 1;
    }
}

// The row of an operand that row `row` of the result meets.
int64_t interp_row(const Interp *in, const Type *from, const Type *to, int64_t row) {
    if (from->row == ROW_NONE) return 0;
    if (from->row == to->row) return row;
    if (from->row == ROW_E && to->row == ROW_R) return in->routes[to->route].expert_of_row[row];
    if (from->row == ROW_S && to->row == ROW_T) return row / in->batch->sequence;
    fprintf(stderr, "interp: row axis %d meets %d\n", from->row, to->row);
    abort();
}

_Noreturn void interp_fail(const Interp *in, uint32_t id, const char *why) {
    fprintf(stderr, "interp: node %u (%s): %s\n", id, op_info[in->m->nodes[id].op].name, why);
    abort();
}

/* Life ---------------------------------------------------------------------------------------------- */

static int64_t param_size(const Model *m, uint32_t param) {
    const Type *type = &m->nodes[m->params[param].node].type;
    int64_t rows = type->row == ROW_E ? m->nodes[type->route].attr.route.experts : 1;
    return rows * features(type);
}

Interp *interp_create(const Model *m) {
    Interp *in = calloc(1, sizeof *in);
    in->m = m;
    in->seed = TEST_SEED, in->step = TEST_STEP;
    in->n_nodes = m->n_nodes, in->n_params = m->n_params, in->n_records = m->n_records;
    in->values = calloc(m->n_nodes, sizeof *in->values);
    in->routes = calloc(m->n_nodes, sizeof *in->routes);
    in->needed = calloc(m->n_nodes, sizeof *in->needed);
    in->late = calloc(m->n_nodes, sizeof *in->late);
    size_t n = m->n_params + 1;
    in->params = calloc(n, sizeof *in->params);
    in->gradients = calloc(n, sizeof *in->gradients);
    in->next = calloc(n, sizeof *in->next);
    in->param_n = calloc(n, sizeof *in->param_n);
    in->accumulated = calloc(n, sizeof *in->accumulated);
    in->records = calloc(m->n_records + 1, sizeof *in->records);
    in->losses = calloc(m->n_losses + 1, sizeof *in->losses);
    for (uint32_t i = 0; i < m->n_params; i++) {
        if (!m->params[i].node) continue;
        in->param_n[i] = param_size(m, i);
        in->params[i] = calloc((size_t)in->param_n[i], sizeof(double));
        in->gradients[i] = calloc((size_t)in->param_n[i], sizeof(double));
    }
    for (uint32_t i = 0; i < m->n_records; i++) {
        in->records[i] = (Value){ calloc((size_t)m->records[i].n, sizeof(double)), 1, m->records[i].n };
    }
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        in->needed[id] = true;
        in->late[id] = m->nodes[id].op == OP_TOTAL;
        for (int i = 0; i < m->nodes[id].n_args; i++) in->late[id] |= in->late[model_arg(m, id, i)];
    }
    return in;
}

static void route_free(RouteMap *route) {
    free(route->row_of_slot), free(route->slot_of_row), free(route->expert_of_row);
    *route = (RouteMap){ 0 };
}

static void drop_held(Interp *in) {
    for (int b = 0; b < in->n_held; b++) {
        for (uint32_t id = 0; id < in->n_nodes; id++) free(in->held[b][id]);
        free(in->held[b]);
    }
    free(in->held);
    in->held = NULL, in->n_held = 0;
}

void interp_destroy(Interp *in) {
    if (!in) return;
    for (uint32_t id = 0; id < in->n_nodes; id++) {
        free(in->values[id].x);
        route_free(&in->routes[id]);
    }
    for (uint32_t i = 0; i < in->n_params; i++) { free(in->params[i]), free(in->gradients[i]), free(in->next[i]); }
    for (uint32_t i = 0; i < in->n_records; i++) free(in->records[i].x);
    for (int i = 0; i < COUNT_OF(in->outputs); i++) free(in->outputs[i].x);
    drop_held(in);
    free(in->values), free(in->routes), free(in->needed), free(in->late), free(in->params);
    free(in->gradients), free(in->next), free(in->param_n), free(in->accumulated), free(in->records);
    free(in->losses), free(in);
}

void interp_need(Interp *in, const uint32_t *roots, int n) {
    memset(in->needed, 0, in->n_nodes * sizeof *in->needed);
    for (int i = 0; i < n; i++) in->needed[roots[i]] = true;
    for (uint32_t id = in->n_nodes - 1; id > 0; id--) {
        if (!in->needed[id]) continue;
        for (int i = 0; i < in->m->nodes[id].n_args; i++) in->needed[model_arg(in->m, id, i)] = true;
        if (in->m->nodes[id].type.route) in->needed[in->m->nodes[id].type.route] = true;
    }
}

void interp_fill(Interp *in, uint64_t seed, double std) {
    for (uint32_t i = 0; i < in->n_params; i++) {
        double mean = in->m->params[i].init == INIT_ONES ? 1 : 0;
        for (int64_t j = 0; j < in->param_n[i]; j++) {
            // Rounded to fp32: the lowered plan can be given the very same numbers.
            in->params[i][j] = (float)(mean + std * hash_normal(seed, i, (uint64_t)j));
        }
    }
}

/* Evaluation ------------------------------------------------------------------------------------------ */

static void place_value(Interp *in, uint32_t id) {
    const Type *type = &in->m->nodes[id].type;
    if (type->kind == KIND_ROUTE || type->kind == KIND_EFFECT) return;
    Value *v = &in->values[id];
    int64_t rows = interp_rows(in, type), n = features(type);
    if (v->x && v->rows == rows && v->n == n) return;
    free(v->x);
    *v = (Value){ malloc((size_t)(rows * n + 1) * sizeof(double)), rows, n };
}

// What `hold` keeps from the recorded run, see interp.h.
static void hold_value(Interp *in, uint32_t id, int microbatch) {
    const Node *node = &in->m->nodes[id];
    if (node->op != OP_TOP_K && node->op != OP_STOP_GRADIENT && node->op != OP_CAST) return;
    const Value *v = &in->values[id];
    const Value *x = &in->values[model_arg(in->m, id, 0)];
    int64_t n = v->rows * v->n;
    double **slot = &in->held[microbatch][id];
    if (!in->hold) {
        *slot = realloc(*slot, (size_t)(n + 1) * sizeof(double));
        for (int64_t i = 0; i < n; i++) (*slot)[i] = node->op == OP_CAST ? v->x[i] - x->x[i] : v->x[i];
    } else {
        if (!*slot) interp_fail(in, id, "nothing was recorded to hold");
        for (int64_t i = 0; i < n; i++) v->x[i] = node->op == OP_CAST ? x->x[i] + (*slot)[i] : (*slot)[i];
    }
}

static void evaluate(Interp *in, bool late, int microbatch) {
    for (uint32_t id = 1; id < in->n_nodes; id++) {
        if (!in->needed[id] || in->late[id] != late) continue;
        for (int i = 0; i < in->m->nodes[id].n_args; i++) {
            if (model_arg(in->m, id, i) >= id) interp_fail(in, id, "an operand does not precede its user");
        }
        if (in->m->nodes[id].op == OP_TOTAL) continue; // summed over microbatches by add_totals
        place_value(in, id);
        interp_node(in, id);
        if (!late) hold_value(in, id, microbatch);
    }
}

static void add_totals(Interp *in, bool first) {
    for (uint32_t id = 1; id < in->n_nodes; id++) {
        if (!in->needed[id] || in->m->nodes[id].op != OP_TOTAL) continue;
        place_value(in, id);
        const Value *x = &in->values[model_arg(in->m, id, 0)], *sum = &in->values[id];
        for (int64_t i = 0; i < sum->rows * sum->n; i++) sum->x[i] = (first ? 0 : sum->x[i]) + x->x[i];
    }
}

// dsl.md section 3: [T] values are summed over the valid tokens of the step and divided by their number;
// a scalar weighs as the valid tokens of its microbatch, an [S] value as those of its sequence.
static void add_losses(Interp *in) {
    const Batch *b = in->batch;
    for (uint32_t i = 0; i < in->m->n_losses; i++) {
        uint32_t id = in->m->losses[i].node;
        if (!id || !in->needed[id]) continue;
        const Type *type = &in->m->nodes[id].type;
        const Value *v = &in->values[id];
        if (v->n != 1) interp_fail(in, id, "a loss has features");
        double sum = 0;
        for (int64_t row = 0; row < v->rows; row++) {
            int64_t from = type->row == ROW_T ? row : type->row == ROW_S ? row * b->sequence : 0;
            int64_t to = type->row == ROW_T ? row + 1 : type->row == ROW_S ? from + b->sequence : b->tokens;
            int64_t weight = batch_valid(b, from, to);
            if (weight) sum += v->x[row] * (double)weight;
        }
        in->losses[i] += sum * in->inv_step;
    }
}

static void start_step(Interp *in, const Batch *batches, int n) {
    int64_t valid = 0;
    for (int b = 0; b < n; b++) valid += batch_valid(&batches[b], 0, batches[b].tokens);
    in->inv_step = 1.0 / (double)max_i64(1, valid);
    for (uint32_t i = 0; i < in->n_params; i++) {
        if (in->gradients[i]) memset(in->gradients[i], 0, (size_t)in->param_n[i] * sizeof(double));
        in->accumulated[i] = false;
    }
    for (uint32_t i = 0; i < in->n_records; i++) {
        memset(in->records[i].x, 0, (size_t)in->records[i].n * sizeof(double));
    }
    memset(in->losses, 0, in->m->n_losses * sizeof(double));
    if (!in->hold && in->n_held != n) {
        drop_held(in);
        in->held = calloc((size_t)n, sizeof *in->held);
        for (int b = 0; b < n; b++) in->held[b] = calloc(in->n_nodes, sizeof **in->held);
        in->n_held = n;
    }
}

void interp_run(Interp *in, const Batch *batches, int n) {
    start_step(in, batches, n);
    for (int b = 0; b < n; b++) {
        in->batch = &batches[b];
        evaluate(in, false, b);
        add_totals(in, b == 0);
        add_losses(in);
    }
    evaluate(in, true, n - 1);
    in->loss = 0;
    for (uint32_t i = 0; i < in->m->n_losses; i++) in->loss += in->m->losses[i].weight * in->losses[i];
}
