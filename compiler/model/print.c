// SPDX-License-Identifier: Apache-2.0
// The printed form of a Model: one line a node, stable for equal graphs.
#include "compiler/model/private.h"

#include <stdio.h>

const char *const kind_name[] = { "real", "int", "bool", "route", "effect" };
const char *const row_name[] = { "no row axis", "tokens", "expert rows", "experts", "sequences" };
static const char *const set_name[] = { "all", "microbatch", "sequence", "global", "expert" };
static const char *const precision_name[] = { "open", "fp32", "bf16", "mxfp8" };

void type_format(const Model *m, const Type *t, char *out, size_t bytes) {
    size_t at = 0;
    static const char letter[] = "-TRES";
    at += (size_t)snprintf(out, bytes, "[");
    if (t->row == ROW_E && t->route && t->route < m->n_nodes) {
        at += (size_t)snprintf(out + at, bytes - at, "E=%d", model_experts(m, t));
    } else if (t->row && t->row <= ROW_S) {
        at += (size_t)snprintf(out + at, bytes - at, "%c", letter[t->row]);
    }
    for (int i = 0; i < t->rank && i < MAX_RANK; i++) {
        at += (size_t)snprintf(out + at, bytes - at, "%s%d", i || t->row ? ", " : "", t->dim[i]);
    }
    snprintf(out + at, bytes - at, "]");
}

void type_print(const Model *m, const Type *t, Text *out) {
    char text[128];
    type_format(m, t, text, sizeof text);
    text_add(out, text);
}

static void print_attend(const Attr *a, Text *out, bool with_part) {
    text_add(out, " scale=");
    text_add_decimal(out, (double)a->attend.scale);
    if (a->attend.window) text_printf(out, " window=%d", a->attend.window);
    if (a->attend.causal) text_add(out, " causal");
    if (with_part) text_printf(out, " part=%d", a->attend.part);
}

static void print_constant(const Model *m, const Node *n, Text *out) {
    for (int32_t i = 0; i < n->type.dim[0]; i++) {
        text_add(out, " ");
        text_add_decimal(out, m->constants[n->attr.index + (uint32_t)i]);
    }
}

static void print_attr(const Model *m, const Node *n, Text *out) {
    const Attr *a = &n->attr;
    switch (n->op) {
    case OP_CONST:
        text_add(out, " ");
        text_add_decimal(out, a->num);
        break;
    case OP_CONSTANT: print_constant(m, n, out); break;
    case OP_UNIFORM: text_printf(out, " at=%s", model_name(m, a->index)); break;
    case OP_TOKENS:
    case OP_LABELS:
    case OP_SHIFT:
    case OP_TOP_K:
    case OP_ONE_HOT:
    case OP_SCATTER:
    case OP_EMBED_W: text_printf(out, " k=%d", a->k); break;
    case OP_N_VALID:
    case OP_ROW_SUM:
    case OP_ROW_MAX: text_printf(out, " set=%s", set_name[a->set]); break;
    case OP_SUM:
    case OP_AMAX:
        text_add(out, " axes=");
        for (int i = 0, first = 1; i < MAX_RANK; i++) {
            if (a->axes & 1u << i) text_printf(out, "%s%d", first ? "" : ",", i + 1), first = 0;
        }
        break;
    case OP_SLICE:
    case OP_PAD: text_printf(out, " axis=%d at=%d", a->cut.axis + 1, a->cut.at); break;
    case OP_CONCAT: text_printf(out, " axis=%d", a->cut.axis + 1); break;
    case OP_CAST: text_printf(out, " to=%s", precision_name[a->precision]); break;
    case OP_MATMUL:
    case OP_MATMUL_T:
    case OP_MATMUL_W:
        text_printf(out, " over=%d", a->mm.over);
        if (a->mm.each) text_printf(out, " each=%d", a->mm.each);
        if (a->mm.precision) text_printf(out, " precision=%s", precision_name[a->mm.precision]);
        break;
    case OP_ATTEND:
    case OP_ATTEND_LSE: print_attend(a, out, false); break;
    case OP_ATTEND_GRAD: print_attend(a, out, true); break;
    case OP_ROTATE:
        text_add(out, " factor=");
        text_add_decimal(out, (double)a->turn.factor);
        text_printf(out, " sign=%d pairs=%s", a->turn.sign,
                    a->turn.pairs == PAIRS_HALF ? "half" : "adjacent");
        break;
    case OP_ROUTE:
        text_printf(out, " experts=%d", a->route.experts);
        if (a->route.capacity > 0) {
            text_add(out, " capacity=");
            text_add_decimal(out, (double)a->route.capacity);
        }
        break;
    case OP_RECORD:
    case OP_OUTPUT: text_printf(out, " index=%u", a->index); break;
    default: break;
    }
}

void model_print(const Model *m, Text *out, bool locations) {
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        const Node *n = &m->nodes[id];
        text_printf(out, "%%%u = %s", id, op_info[n->op].name);
        for (int i = 0; i < n->n_args; i++) text_printf(out, " %%%u", model_arg(m, id, i));
        print_attr(m, n, out);
        text_printf(out, " : %s", kind_name[n->type.kind]);
        if (n->type.kind < KIND_ROUTE) {
            text_add(out, " ");
            type_print(m, &n->type, out);
        }
        if (n->addr) text_printf(out, "  %s", model_name(m, n->addr));
        if (locations && n->loc.file && n->loc.file <= m->n_files) {
            text_printf(out, "  @%s:%u", m->files[n->loc.file - 1].path, n->loc.line);
        }
        text_add(out, "\n");
    }
}
