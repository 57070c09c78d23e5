// SPDX-License-Identifier: Apache-2.0
// In which type each stored value lies in memory.
//
// What a bf16 contraction or attention reads is bf16. In a bf16 run so is every other value of a
// row with some width, unless a product in fp32 makes it or is all that reads it. Statistics, sums
// over rows, gradients of parameters and what leaves the program are fp32.
#include "compiler/lower/pass.h"

static bool is_attention(Op op) {
    return op == OP_ATTEND || op == OP_ATTEND_LSE || op == OP_ATTEND_GRAD;
}

bool lower_is_bf16(const Lower *l, uint32_t n) {
    const Node *node = model_at(l->m, n);
    if (is_attention(node->op)) return l->info[n].pairs;
    bool product = node->op == OP_MATMUL || node->op == OP_MATMUL_T || node->op == OP_MATMUL_W;
    return product && node->attr.mm.precision == PRECISION_BF16;
}

// Marks the memory of a real operand; true if it was not marked before.
static bool mark(Lower *l, uint32_t n) {
    uint32_t plain = lower_plain(l, n);
    bool is_new = l->info[plain].dtype != DTYPE_BF16;
    l->info[plain].dtype = DTYPE_BF16;
    return is_new;
}

/* Attention ------------------------------------------------------------------------------------ */

// q, k, v, y, the gradient of y: operands of attend or attend_grad whose type is its own.
static int tensors_of(const Lower *l, uint32_t n, uint32_t out[6]) {
    static const int operands[] = { 0, 1, 2, 4, 6 };
    const Node *node = model_at(l->m, n);
    int count = node->op == OP_ATTEND_GRAD ? 5 : 3, at = 0;
    for (int i = 0; i < count; i++) out[at++] = model_arg(l->m, n, operands[i]);
    if (node->op == OP_ATTEND || (node->op == OP_ATTEND_GRAD && node->attr.attend.part < 3))
        out[at++] = n;
    return at;
}

// An attention is bf16 as a whole, forward and backward, if the run is or one of its tensors has to
// be.
static bool spread_attention(Lower *l, uint32_t n) {
    uint32_t tensors[6];
    int count = tensors_of(l, n, tensors);
    bool pairs = l->options->precision == PRECISION_BF16, changed = false;
    for (int i = 0; i < count; i++)
        pairs |= l->info[lower_plain(l, tensors[i])].dtype == DTYPE_BF16;
    if (!pairs) return false;
    l->info[n].pairs = true;
    for (int i = 0; i < count; i++) changed |= mark(l, tensors[i]);
    return changed;
}

/* Rows ----------------------------------------------------------------------------------------- */

typedef struct Reads {
    bool any, by_rows; // by other things than contractions in fp32
} Reads;

static void note_reads(const Lower *l, Reads *reads) {
    for (uint32_t u = 1; u < l->n_units; u++) {
        const Unit *unit = &l->units[u];
        if (unit->kind == UNIT_NONE) continue;
        Op op = l->m->nodes[unit->node].op;
        bool contraction = op == OP_MATMUL || op == OP_MATMUL_T || op == OP_MATMUL_W;
        bool fp32 = unit->kind == UNIT_KERNEL && contraction && !lower_is_bf16(l, unit->node);
        for (uint32_t i = 0; i < unit->n_reads; i++) {
            Reads *of = &reads[read_node(l->reads[unit->reads + i])];
            of->any = true;
            of->by_rows |= !fp32;
        }
    }
}

static bool is_row_value(const Lower *l, uint32_t n) {
    const Node *node = model_at(l->m, n);
    const NodeInfo *info = &l->info[n];
    bool stored = info->forced || info->role == ROLE_ROW || info->role == ROLE_KERNEL;
    bool exact = node->op == OP_ATTEND_LSE ||
                 (node->op == OP_MATMUL && node->attr.mm.precision == PRECISION_FP32);
    return stored && !exact && node->type.kind == KIND_REAL && !info->into &&
           (node->type.row == ROW_T || node->type.row == ROW_R);
}

// In a bf16 run.
static void round_rows(Lower *l) {
    const Model *m = l->m;
    Reads *reads = ARENA_ARRAY(l->arena, Reads, m->n_nodes);
    note_reads(l, reads);
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        bool wide = type_features(&m->nodes[n].type) >= LOWER_WIDE;
        bool only_fp32 = reads[n].any && !reads[n].by_rows;
        if (wide && (!only_fp32 || m->nodes[n].op == OP_RECV) && is_row_value(l, n)) l->info[n].dtype = DTYPE_BF16;
    }
}

void lower_types(Lower *l) {
    const Model *m = l->m;
    if (!l->mixed) return;
    for (uint32_t u = 1; u < m->n_nodes; u++) {
        if (l->units[u].kind != UNIT_KERNEL) continue;
        for (uint32_t n = u; n; n = l->info[n].term) {
            if (!lower_is_bf16(l, n)) continue;
            mark(l, model_arg(m, n, 0));
            if (m->nodes[n].op == OP_MATMUL_W) mark(l, model_arg(m, n, 1));
        }
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t n = 1; n < m->n_nodes; n++) {
            if (is_attention(m->nodes[n].op) && l->units[n].kind == UNIT_KERNEL)
                changed |= spread_attention(l, n);
        }
    }
    if (l->options->precision == PRECISION_BF16) round_rows(l);
    for (uint32_t n = 1; n < m->n_nodes; n++) // what further rounds bring back, as it lay there
        if (m->nodes[n].op == OP_COLLECT && m->nodes[n].round)
            l->info[n].dtype = l->info[lower_indexed(l, model_arg(m, n, 0))].dtype;
}
