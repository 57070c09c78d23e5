// SPDX-License-Identifier: Apache-2.0
// Precision, and what kernels exist for. Everything here is computed and stored in fp32; what asks
// for less, and operations that no kernel covers, are refused by name and line before any work is
// done.
#include "compiler/lower/pass.h"

static const char *const precision_name[] = { "open", "fp32", "bf16", "mxfp8" };

static bool is_fp32(uint8_t precision) {
    return precision == PRECISION_OPEN || precision == PRECISION_FP32;
}

static bool refuse_precision(Lower *l, uint32_t node, const char *name, uint8_t precision) {
    lower_fail(l, node, "%s: kernels exist for fp32 only, asked for is %s", name,
               precision_name[precision]);
    diag_hint(l->from, "set precision = \"fp32\", or leave it out");
    return false;
}

static bool check_params(Lower *l) {
    const Model *m = l->m;
    for (uint32_t i = 0; i < m->n_params; i++) {
        const Param *param = &m->params[i];
        if (is_fp32(param->precision)) continue;
        refuse_precision(l, param->node, model_name(m, param->addr), param->precision);
        l->from->diag.loc = param->loc;
        return false;
    }
    return true;
}

static bool check_node(Lower *l, uint32_t n) {
    const Node *node = model_at(l->m, n);
    const char *text = op_info[node->op].text, *why = NULL;
    bool contraction = node->op == OP_MATMUL || node->op == OP_MATMUL_T || node->op == OP_MATMUL_W;
    if (contraction && !is_fp32(node->attr.mm.precision))
        return refuse_precision(l, n, text, node->attr.mm.precision);
    float capacity = node->op == OP_ROUTE ? node->attr.route.capacity : 0;
    if (capacity > 0 && capacity < 1) {
        lower_fail(
            l, n,
            "route: a capacity factor of %g drops copies, and no kernel drops any on one rank",
            (double)capacity);
        diag_hint(l->from,
                  "give 1 or more, or leave capacity out: one rank has room for every copy");
        return false;
    }
    if (capacity >= 1) return true; // never full on one rank
    OpClass class = op_info[node->op].class;
    if (class == CLASS_SOURCE || class == CLASS_EFFECT || kernel_covers(l->m, n, &why)) return true;
    lower_fail(l, n, "%s: no kernel covers %s", text, why ? why : "it");
    diag_hint(l->from, "moec check accepts the model; to run it, write this line with operations "
                       "that have kernels");
    return false;
}

bool pass_precision(Lower *l) {
    if (!check_params(l)) return false;
    for (uint32_t n = 1; n < l->m->n_nodes; n++) {
        if (!check_node(l, n)) return false;
    }
    return true;
}
