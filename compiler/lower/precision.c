// SPDX-License-Identifier: Apache-2.0
// Precision of contractions, and what kernels exist for.
//
// A contraction computes in the precision that its operation states, else in that of a rule for its
// weight (both are in the graph), else in the run's. Products that no row of tokens takes part in
// stay in fp32 when nothing is stated. Operations that no kernel covers are refused by name and
// line before any work is done.
#include "compiler/lower/pass.h"

static bool is_product(Op op) {
    return op == OP_MATMUL || op == OP_MATMUL_T || op == OP_MATMUL_W;
}

static bool is_of_rows(const Model *m, uint32_t n) {
    uint8_t row = model_type(m, model_arg(m, n, 0))->row;
    return row == ROW_T || row == ROW_R;
}

static bool choose(Lower *l, uint32_t n) {
    Node *node = &l->m->nodes[n];
    uint8_t *precision = &node->attr.mm.precision;
    bool rows = is_of_rows(l->m, n);
    // In an fp32 run it stays open: what states fp32 is told apart from what merely is.
    if (*precision == PRECISION_OPEN && rows && l->options->precision == PRECISION_BF16)
        *precision = PRECISION_BF16;
    if (*precision == PRECISION_MXFP8 || (*precision == PRECISION_BF16 && !rows)) {
        lower_fail(l, n, "%s: no kernel computes %s", op_info[node->op].text,
                   rows ? "in mxfp8" : "a product of parameters in bf16");
        diag_hint(l->from, "set precision = \"%s\", or leave it out", rows ? "bf16" : "fp32");
        return false;
    }
    l->mixed |= *precision == PRECISION_BF16;
    return true;
}

static bool check_node(Lower *l, uint32_t n) {
    const Node *node = model_at(l->m, n);
    const char *text = op_info[node->op].text, *why = NULL;
    if (node->op == OP_ROUTE) return lower_check_route(l, n);
    OpClass class = op_info[node->op].class;
    if (class == CLASS_SOURCE || class == CLASS_EFFECT || kernel_covers(l->m, n, &why)) return true;
    lower_fail(l, n, "%s: no kernel covers %s", text, why ? why : "it");
    diag_hint(l->from, "moec check accepts the model; to run it, write this line with operations "
                       "that have kernels");
    return false;
}

bool pass_precision(Lower *l) {
    l->mixed = false;
    for (uint32_t n = 1; n < l->m->n_nodes; n++) {
        if (is_product((Op)l->m->nodes[n].op) && !choose(l, n)) return false;
        if (!check_node(l, n)) return false;
    }
    return true;
}
