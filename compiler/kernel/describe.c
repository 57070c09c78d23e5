// SPDX-License-Identifier: Apache-2.0
// Kernel descriptions as text: a kernel's identity.
//
// Two descriptions with equal text have equal sources. Whatever the source depends on is therefore
// printed; what differs between equal kernels (node ids, names, parameters, locations) is not:
// nodes, routes and types are numbered in the order in which the description first mentions them.
#include "compiler/kernel/kernel.h"

const char *const family_name[N_FAMILIES] = {
    "row",   "pack", "matmul",      "matmul_t", "matmul_w", "attend", "attend_grad", "embed_w",
    "route", "segment_sum", "clear",    "sumsq",    "clip",   "adamw",
    "reduce", "fold", "count", "route_ranks", "blocks", "move", "round", "rail", "pads",
};

/* sizes -------------------------------------------------------------------------------------- */

static void size(Text *out, const char *name, int64_t value) {
    if (value) text_printf(out, " %s %lld", name, (long long)value);
}

static void describe_sizes(const KernelDesc *d, Text *out) {
    size(out, "rows", d->rows);
    size(out, "sequence", d->sequence);
    size(out, "experts", d->experts);
    size(out, "mid", d->mid);
    size(out, "each", d->each);
    size(out, "k", d->k);
    size(out, "n", d->n);
    size(out, "heads", d->heads);
    size(out, "kv_heads", d->kv_heads);
    size(out, "qk", d->qk);
    size(out, "v", d->v);
    size(out, "window", d->window);
    size(out, "top_k", d->top_k);
    size(out, "vocab", d->vocab);
    size(out, "ids", d->ids);
    size(out, "ranks", d->ranks);
    size(out, "causal", d->causal);
    size(out, "sinks", d->sinks);
    size(out, "accumulate", d->accumulate);
    size(out, "turned", d->turned);
    size(out, "across", d->across);
    size(out, "capacity", d->capacity);
    size(out, "limit", d->limit);
    size(out, "align", d->align);
    size(out, "way", d->way);
    size(out, "whole", d->whole);
    size(out, "rounds", d->rounds);
    if (d->drops) text_printf(out, " drops %llx", (unsigned long long)d->stream);
    for (int32_t i = 0; d->owner && i < d->experts; i++)
        text_printf(out, i ? ",%d" : " owner %d", d->owner[i]);
    if (d->precision == PRECISION_BF16) text_add(out, " precision bf16");
    if (d->precision == PRECISION_MXFP8) text_add(out, " precision mxfp8");
    if (d->x != DTYPE_F32) text_printf(out, " x %s", dtype_name(d->x));
    if (d->g != DTYPE_F32) text_printf(out, " g %s", dtype_name(d->g));
    if (d->y != DTYPE_F32) text_printf(out, " y %s", dtype_name(d->y));
    int n_parts = d->parts > 1 ? (int)min_i64(d->parts, COUNT_OF(d->part_n)) : 0;
    for (int i = 0; i < n_parts; i++)
        text_printf(out, i ? ",%lld" : " parts %lld", (long long)d->part_n[i]);
    if (d->scale != 0) {
        text_add(out, " scale ");
        text_add_double(out, d->scale);
    }
    text_add(out, "\n");
}

static void describe_rate(int64_t at, double lr, double decay, Text *out) {
    text_printf(out, "at %lld lr ", (long long)at);
    text_add_double(out, lr);
    text_add(out, " decay ");
    text_add_double(out, decay);
    text_add(out, "\n");
}

static void describe_table(const KernelDesc *d, Text *out) {
    for (uint32_t i = 0; i < d->n_params; i++) {
        const PlanParam *p = &d->params[i];
        if (!p->is_state) describe_rate(p->offset, p->lr, p->decay, out);
    }
    for (uint32_t i = 0; i < d->n_buckets; i++)
        describe_rate(d->buckets[i].shard, d->buckets[i].lr, d->buckets[i].decay, out);
}

/* row programs ------------------------------------------------------------------------------- */

// Local numbers by first mention.
typedef struct Numbers {
    uint32_t *ids, n, cap;
    Arena *arena;
} Numbers;

static uint32_t number(Numbers *numbers, uint32_t id) {
    for (uint32_t i = 0; i < numbers->n; i++)
        if (numbers->ids[i] == id) return i;
    *ARENA_PUSH(numbers->arena, numbers->ids, numbers->n, numbers->cap) = id;
    return numbers->n - 1;
}

static void type(Numbers *numbers, const Type *t, Text *out) {
    static const char rows[] = "-TRES", kinds[] = "ribRe";
    text_printf(out, "%c%c", kinds[t->kind], rows[t->row]);
    if (t->route) text_printf(out, "%u", number(numbers, t->route));
    for (int i = 0; i < t->rank; i++) text_printf(out, "%c%d", i ? 'x' : '[', t->dim[i]);
    text_add(out, t->rank ? "]" : "");
}

static void attribute(const Model *m, const Node *node, Text *out) {
    switch (node->op) {
    case OP_CONST:
        text_add(out, " ");
        text_add_double(out, node->attr.num);
        break;
    case OP_CONSTANT:
        for (int64_t i = 0; i < type_features(&node->type); i++) {
            text_add(out, i ? "," : " ");
            text_add_double(out, m->constants[node->attr.index + i]);
        }
        break;
    case OP_UNIFORM: text_printf(out, " \"%s\"", model_name(m, node->attr.index)); break;
    case OP_RECORD:
    case OP_OUTPUT:
    case OP_PARAM:
    case OP_STATE:
    case OP_ACCUMULATE:
    case OP_UPDATE: break;
    default:
        text_printf(out, " %llx:%llx", (unsigned long long)node->attr.raw[0],
                    (unsigned long long)node->attr.raw[1]);
    }
}

// Loads are described by type alone, unless how they are read depends on the operation.
static void load_node(Numbers *numbers, const Model *m, uint32_t id, Text *out) {
    const Node *node = model_at(m, id);
    int class = op_info[node->op].class;
    text_printf(out, " %u ", number(numbers, id));
    if (class == CLASS_GENERATOR || class == CLASS_PARTIAL) {
        text_add(out, op_info[node->op].name);
        if (node->op != OP_UNIFORM) attribute(m, node, out);
        text_add(out, " ");
    }
    type(numbers, &node->type, out);
}

static void operand(Numbers *numbers, const Model *m, uint32_t id, Text *out) {
    const Node *node = model_at(m, id);
    text_printf(out, " %u", number(numbers, id));
    if (node->op != OP_CONST && node->op != OP_CONSTANT) return;
    text_printf(out, "(%s", op_info[node->op].name);
    attribute(m, node, out);
    text_add(out, " ");
    type(numbers, &node->type, out);
    text_add(out, ")");
}

static void describe_body(const RowBody *b, Text *out) {
    static const char *const what[] = {"value",   "partials",    "scalars",    "index",
                                       "offsets", "slot_of_row", "row_of_slot", "acc"};
    const Model *m = b->model;
    Numbers numbers = {.arena = arena_create()};
    text_printf(out, "on %c", "-TRES"[b->row]);
    if (b->route) text_printf(out, " %u", number(&numbers, b->route));
    text_add(out, "\n");
    for (uint32_t i = 0; i < b->n_loads; i++) {
        const RowLoad *l = &b->loads[i];
        text_printf(out, "load %s %s", what[l->what], dtype_name(l->dtype));
        if (l->what == WHAT_PARTIALS) text_printf(out, " %d", l->partials);
        if (l->apart) text_printf(out, " apart %lld", (long long)l->apart);
        if (l->node) load_node(&numbers, m, l->node, out);
        text_add(out, "\n");
    }
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        const Node *node = model_at(m, b->nodes[i]);
        text_printf(out, "%u = %s", number(&numbers, b->nodes[i]), op_info[node->op].name);
        attribute(m, node, out);
        for (int k = 0; k < node->n_args; k++)
            operand(&numbers, m, model_arg(m, b->nodes[i], k), out);
        text_add(out, " : ");
        type(&numbers, &node->type, out);
        text_add(out, "\n");
    }
    for (uint32_t i = 0; i < b->n_stores; i++) {
        const RowStore *s = &b->stores[i];
        text_printf(out, "store %s%s%s%s", dtype_name(s->dtype), s->partial ? " partial" : "",
                    s->add ? " add" : "", s->operand ? " operand" : "");
        if (s->apart) text_printf(out, " apart %lld", (long long)s->apart);
        if (s->some) text_add(out, " some");
        operand(&numbers, m, s->node, out);
        for (int k = 0; s->apart && k < 2; k++)
            operand(&numbers, m, model_arg(m, s->node, k), out);
        if (s->partial) { // the only stored nodes that are not among those computed here
            text_printf(out, " = %s", op_info[model_at(m, s->node)->op].name);
            operand(&numbers, m, model_arg(m, s->node, 0), out);
        }
        text_add(out, "\n");
    }
    arena_destroy(numbers.arena);
}

void kernel_describe(const KernelDesc *desc, Text *out) {
    text_add(out, family_name[desc->family]);
    describe_sizes(desc, out);
    if (desc->family == FAMILY_ADAMW) describe_table(desc, out);
    if (desc->pre.n_stores) {
        text_add(out, "pre ");
        describe_body(&desc->pre, out);
    }
    if (desc->family != FAMILY_ROW && desc->body.n_stores) text_add(out, "post ");
    if (desc->family == FAMILY_ROW || desc->body.n_stores) describe_body(&desc->body, out);
}
