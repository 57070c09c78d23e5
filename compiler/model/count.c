// SPDX-License-Identifier: Apache-2.0
// Counts: parameters, model FLOPs per token, FLOPs and bytes of single nodes.
//
// Model FLOPs are those of the traced graph's contractions, forward once and backward twice, 2
// per multiply-add. Attention counts the keys a query may see on average: half the sequence if
// causal, and w - w^2 / 2s under a window of w. Contractions that the spec itself states to be
// fp32 (a router's) are counted apart, as published numbers leave them out.
#include "compiler/model/private.h"

/* Sizes ---------------------------------------------------------------------------------------- */

// Rows of a value per `tokens` tokens; 1 for rowless values.
static double rows_of(const Model *m, const Type *t, double tokens) {
    switch (t->row) {
    case ROW_T: return tokens;
    case ROW_R: return tokens * model_top_k(m, t);
    case ROW_E: return model_experts(m, t);
    case ROW_S: return m->sequence ? tokens / m->sequence : 1;
    default: return 1;
    }
}

static double elements_of(const Model *m, uint32_t id, double tokens) {
    const Type *t = model_type(m, id);
    if (t->kind == KIND_EFFECT) return 0;
    if (t->kind == KIND_ROUTE)
        return tokens * model_type(m, model_arg(m, id, 0))->dim[0] * 2; // row_of_slot, slot_of_row
    return rows_of(m, t, tokens) * (double)type_features(t);
}

/* Multiply-adds -------------------------------------------------------------------------------- */

static double product(const int32_t *dim, int n) {
    double p = 1;
    for (int i = 0; i < n; i++) p *= dim[i];
    return p;
}

// Per row: every entry of the weight once for each index of the middle axes.
static double matmul_macs(const Model *m, uint32_t id) {
    const Node *n = &m->nodes[id];
    const Type *weight = n->op == OP_MATMUL_W ? &n->type : model_type(m, model_arg(m, id, 1));
    const Type *x = n->op == OP_MATMUL_T ? &n->type : model_type(m, model_arg(m, id, 0));
    double middle =
        (double)type_features(x) / product(weight->dim, n->attr.mm.each + n->attr.mm.over);
    return (double)type_features(weight) * middle;
}

static double attend_keys(const Model *m, const Attr *a, double tokens) {
    double s = m->sequence ? m->sequence : tokens, w = a->attend.window;
    if (w > 0 && w < s) return a->attend.causal ? w - w * w / (2 * s) : w;
    return a->attend.causal ? s / 2 : s;
}

// Forward: scores and values. Backward makes the scores again, their gradient, then three
// products.
static double attend_macs(const Model *m, uint32_t id, double tokens) {
    const Node *n = &m->nodes[id];
    double heads = model_type(m, model_arg(m, id, 0))->dim[0];
    double qk = model_type(m, model_arg(m, id, 0))->dim[1],
           v = model_type(m, model_arg(m, id, 2))->dim[1];
    double each = heads * attend_keys(m, &n->attr, tokens);
    if (n->op == OP_ATTEND) return each * (qk + v);
    static const double qk_of_part[4] = { 2, 1, 0, 0 }, v_of_part[4] = { 1, 0, 1, 0 };
    return each *
           (qk_of_part[n->attr.attend.part & 3] * qk + v_of_part[n->attr.attend.part & 3] * v);
}

static double contraction_macs(const Model *m, uint32_t id, double tokens) {
    const Node *n = &m->nodes[id];
    switch (n->op) {
    case OP_MATMUL:
    case OP_MATMUL_T: return rows_of(m, &n->type, tokens) * matmul_macs(m, id);
    case OP_MATMUL_W:
        return rows_of(m, model_type(m, model_arg(m, id, 0)), tokens) * matmul_macs(m, id);
    case OP_ATTEND:
    case OP_ATTEND_GRAD: return tokens * attend_macs(m, id, tokens);
    default: return 0;
    }
}

/* Single nodes --------------------------------------------------------------------------------- */

double node_flops(const Model *m, uint32_t id, int64_t tokens) {
    const Node *n = &m->nodes[id];
    const OpInfo *info = &op_info[n->op];
    double t = (double)tokens;
    switch (info->class) {
    case CLASS_CONTRACT: // a table's gradient adds, the log-sum-exp comes with its attention
        return n->op == OP_EMBED_W ? elements_of(m, model_arg(m, id, 0), t)
                                   : 2 * contraction_macs(m, id, t);
    case CLASS_REDUCE:
    case CLASS_PARTIAL: return info->flops * elements_of(m, model_arg(m, id, 0), t);
    case CLASS_WHOLE:
        if (n->op == OP_TOP_K) return (double)n->attr.k * elements_of(m, model_arg(m, id, 0), t);
        return info->flops * elements_of(m, id, t);
    case CLASS_EFFECT:
        return n->op == OP_ACCUMULATE || n->op == OP_RECORD
                   ? elements_of(m, model_arg(m, id, n->n_args - 1), t)
                   : 0;
    default: return info->flops * elements_of(m, id, t);
    }
}

// Elements read for an operand: those of what its views look at, or of the view where it shows
// fewer.
static double elements_read(const Model *m, uint32_t id, double tokens) {
    double shown = elements_of(m, id, tokens);
    while (op_info[m->nodes[id].op].class == CLASS_VIEW) id = model_arg(m, id, 0);
    const Node *n = &m->nodes[id];
    if (n->op == OP_CONST || op_info[n->op].class == CLASS_GENERATOR) return 0;
    double stored = elements_of(m, id, tokens);
    return shown < stored ? shown : stored;
}

double node_bytes(const Model *m, uint32_t id, int64_t tokens) {
    const Node *n = &m->nodes[id];
    const uint8_t class = op_info[n->op].class;
    double t = (double)tokens, elements = 0;
    if (class == CLASS_VIEW || class == CLASS_GENERATOR || class == CLASS_SOURCE) return 0;
    for (int i = 0; i < n->n_args; i++) {
        uint32_t a = model_arg(m, id, i);
        bool seen = false;
        for (int j = 0; j < i; j++) seen |= model_arg(m, id, j) == a;
        if (seen) continue;
        if (n->op == OP_EMBED && i == 0)
            elements += elements_of(m, id, t); // the rows touched
        else if (n->op == OP_UPDATE && i == 0)
            elements += elements_of(m, a, t); // written
        else
            elements += elements_read(m, a, t);
    }
    if (n->op == OP_ACCUMULATE)
        elements += elements_of(m, model_arg(m, id, 0), t); // read and written
    if (n->op == OP_OUTPUT || n->op == OP_RECORD)
        elements += elements_of(m, model_arg(m, id, 0), t);
    return 4 * (elements + elements_of(m, id, t));
}

/* The model ------------------------------------------------------------------------------------ */

// What training computes: everything a loss or the logits depend on.
static uint8_t *mark_used(const Model *m) {
    uint8_t *used = ARENA_ARRAY(m->arena, uint8_t, m->n_nodes);
    for (uint32_t i = 0; i < m->n_losses; i++) used[m->losses[i].node] = 1;
    used[m->logits] = 1;
    for (uint32_t id = m->n_nodes - 1; id > 0; id--) {
        if (!used[id]) continue;
        for (int i = 0; i < m->nodes[id].n_args; i++) used[model_arg(m, id, i)] = 1;
    }
    return used;
}

static double macs_per_token(const Model *m, uint32_t id) {
    const Node *n = &m->nodes[id];
    if (n->op == OP_ATTEND) return attend_macs(m, id, 1);
    if (n->op != OP_MATMUL) return 0;
    bool per_token =
        n->type.row == ROW_T || n->type.row == ROW_R || (n->type.row == ROW_S && m->sequence);
    return per_token ? contraction_macs(m, id, 1)
                     : 0; // products of parameters do not grow with tokens
}

static bool is_table(const Model *m, const Param *p) {
    if (p->is_weight) return false;
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        if (m->nodes[id].op == OP_EMBED && model_arg(m, id, 0) == p->node) return true;
    }
    return false;
}

static void count_param(const Model *m, const Param *p, Counts *counts) {
    const Type *t = model_type(m, p->node);
    int64_t features = type_features(t);
    int64_t total = t->row == ROW_E ? features * model_experts(m, t) : features;
    int64_t active = t->row == ROW_E ? features * model_top_k(m, t) : features;
    if (p->is_state) {
        counts->state += total;
        return;
    }
    counts->tensors++;
    if (!strncmp(model_name(m, p->addr), "mtp", 3)) {
        counts->mtp += total;
        return;
    }
    counts->total += total;
    counts->active += active;
    if (!is_table(m, p)) counts->active_without_table += active;
}

Counts model_counts(const Model *m) {
    Counts counts = { 0 };
    for (uint32_t i = 0; i < m->n_params; i++) {
        if (m->params[i].node) count_param(m, &m->params[i], &counts);
    }
    const uint8_t *used = mark_used(m);
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        double macs = used[id] ? macs_per_token(m, id) : 0;
        const Node *n = &m->nodes[id];
        bool stated = n->op == OP_MATMUL && n->attr.mm.precision == PRECISION_FP32;
        counts.forward_flops_per_token += 2 * macs;
        *(stated ? &counts.router_flops_per_token : &counts.train_flops_per_token) += 6 * macs;
    }
    return counts;
}
