// SPDX-License-Identifier: Apache-2.0
// Which operations have a kernel. What is refused here is refused by the plan, by name and line.
#include "compiler/kernel/kernel.h"

static bool refuse(const char **why, const char *text) {
    *why = text;
    return false;
}

static bool covers_precision(uint8_t precision, const char **why) {
    if (precision == PRECISION_MXFP8)
        return refuse(why, "a contraction in mxfp8 (this target computes in fp32 and bf16)");
    return true;
}

static bool covers_rows(const Model *m, uint32_t node, const char **why) {
    bool max = model_at(m, node)->op == OP_ROW_MAX;
    uint8_t from = model_type(m, model_arg(m, node, 0))->row, to = model_type(m, node)->row;
    if (to == ROW_NONE) return true;
    if (max && to == ROW_S) return refuse(why, "row_max over the tokens of a sequence");
    if (max) return refuse(why, "row_max over the rows of an expert");
    if (to == ROW_S && from == ROW_T) return true;
    if (to == ROW_E && from == ROW_R) return true;
    return refuse(why, "a sum over these rows");
}

bool kernel_covers(const Model *m, uint32_t node, const char **why) {
    const Node *at = model_at(m, node);
    switch (at->op) {
    case OP_MATMUL:
    case OP_MATMUL_T:
    case OP_MATMUL_W: return covers_precision(at->attr.mm.precision, why);
    case OP_ROW_SUM:
    case OP_ROW_MAX: return covers_rows(m, node, why);
    default: return true;
    }
}
