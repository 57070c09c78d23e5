// SPDX-License-Identifier: Apache-2.0
// Fused groups to kernel descriptions: family, sizes, and a buffer for every parameter.
#include "compiler/lower/pass.h"

static int64_t product(const Type *type, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= type->dim[i];
    return n;
}

// Operand i of a kernel node, in memory.
static uint32_t operand(Lower *l, uint32_t n, int i) {
    uint32_t plain = lower_plain(l, model_arg(l->m, n, i));
    bool copy = l->info[plain].forced && l->info[plain].role != ROLE_SOURCE;
    return lower_value(l, copy ? plain | READ_STORED : plain);
}

static void bind_operand(Lower *l, uint32_t kernel, const char *name, uint32_t n, int i) {
    lower_bind(l, kernel, name, operand(l, n, i), OPERAND_READ);
}

static void bind_offsets(Lower *l, uint32_t kernel, uint32_t route) {
    lower_bind(l, kernel, "offsets", lower_buffer(l, BUFFER_OFFSETS, route, 0), OPERAND_READ);
}

// The result of a kernel: its own buffer, or the gradient it adds to.
static void bind_result(Lower *l, uint32_t kernel, const char *name, uint32_t n) {
    uint32_t into = l->info[n].into;
    bool add = into && l->m->nodes[into].op == OP_ACCUMULATE;
    l->kernels[kernel].desc.accumulate = add;
    if (add)
        lower_bind(l, kernel, name, lower_buffer(l, BUFFER_GRADIENT, model_arg(l->m, into, 0), 0),
                   OPERAND_ADD);
    else
        lower_bind(l, kernel, name, lower_value(l, n), OPERAND_WRITE);
}

/* Contractions --------------------------------------------------------------------------------- */

static void describe_matmul(Lower *l, uint32_t kernel, uint32_t n) {
    KernelDesc *d = &l->kernels[kernel].desc;
    const Node *node = model_at(l->m, n);
    const Type *x = model_type(l->m, model_arg(l->m, n, 0)),
               *w = model_type(l->m, model_arg(l->m, n, 1));
    int each = node->attr.mm.each, over = node->attr.mm.over, mid;
    d->rows = lower_rows(l, x);
    d->each = (int32_t)product(x, 0, each);
    if (node->op == OP_MATMUL_T) {
        int n_axes = w->rank - each - over;
        mid = x->rank - each - n_axes;
        d->k = (int32_t)product(w, each, each + over);
        d->n = product(w, each + over, w->rank);
    } else {
        mid = x->rank - each - over;
        d->k = (int32_t)product(x, each + mid, x->rank);
        d->n = node->op == OP_MATMUL ? product(w, each + over, w->rank)
                                     : product(w, each + mid, w->rank);
    }
    d->mid = (int32_t)product(x, each, each + mid);
    bool grouped = node->op == OP_MATMUL_W ? x->row == ROW_R : w->row == ROW_E;
    if (grouped) d->experts = model_experts(l->m, x);
    d->family = node->op == OP_MATMUL     ? FAMILY_MATMUL
                : node->op == OP_MATMUL_T ? FAMILY_MATMUL_T
                                          : FAMILY_MATMUL_W;
    bind_operand(l, kernel, node->op == OP_MATMUL_T ? "g" : "x", n, 0);
    bind_operand(l, kernel, node->op == OP_MATMUL_W ? "g" : "w", n, 1);
    if (grouped) bind_offsets(l, kernel, x->route);
    bind_result(l, kernel, node->op == OP_MATMUL ? "y" : node->op == OP_MATMUL_T ? "x" : "w", n);
}

static void set_attend(Lower *l, KernelDesc *d, uint32_t n) {
    const Node *node = model_at(l->m, n);
    const Type *q = model_type(l->m, model_arg(l->m, n, 0)),
               *k = model_type(l->m, model_arg(l->m, n, 1));
    d->rows = l->tokens;
    d->sequence = l->m->sequence;
    d->heads = q->dim[0];
    d->kv_heads = k->dim[0];
    d->qk = q->dim[1];
    d->v = model_type(l->m, model_arg(l->m, n, 2))->dim[1];
    d->window = node->attr.attend.window;
    d->scale = node->attr.attend.scale;
    d->causal = node->attr.attend.causal;
}

// The unit of the kernel whose node has this op and attend.part; 0 if nobody wants that result.
static uint32_t sibling(const Lower *l, uint32_t kernel, Op op, int part) {
    for (uint32_t i = 0; i < l->kernels[kernel].n_units; i++) {
        uint32_t n = l->units[l->kernels[kernel].units[i]].node;
        const Node *node = model_at(l->m, n);
        if (node->op == op && (op != OP_ATTEND_GRAD || node->attr.attend.part == part)) return n;
    }
    return 0;
}

static void bind_or_spare(Lower *l, uint32_t kernel, const char *name, uint32_t n, uint32_t any,
                          int32_t spare) {
    if (n)
        bind_result(l, kernel, name, n);
    else
        lower_bind(l, kernel, name, lower_buffer(l, BUFFER_SPARE, any, spare), OPERAND_WRITE);
}

static void describe_attend(Lower *l, uint32_t kernel, uint32_t n) {
    KernelDesc *d = &l->kernels[kernel].desc;
    static const char *const names[] = { "q", "k", "v", "segments", "sinks" };
    int n_args = l->m->nodes[n].n_args;
    d->family = FAMILY_ATTEND;
    set_attend(l, d, n);
    d->sinks = n_args == 5;
    for (int i = 0; i < n_args; i++) bind_operand(l, kernel, names[i], n, i);
    bind_or_spare(l, kernel, "y", sibling(l, kernel, OP_ATTEND, 0), n, 0);
    bind_or_spare(l, kernel, "lse", sibling(l, kernel, OP_ATTEND_LSE, 0), n, 1);
}

static void describe_attend_grad(Lower *l, uint32_t kernel, uint32_t n) {
    KernelDesc *d = &l->kernels[kernel].desc;
    static const char *const names[] = { "q", "k", "v", "segments", "y", "lse", "g", "sinks" };
    static const char *const results[] = { "dq", "dk", "dv", "dsinks" };
    int n_args = l->m->nodes[n].n_args;
    d->family = FAMILY_ATTEND_GRAD;
    set_attend(l, d, n);
    d->sinks = n_args == 8;
    for (int i = 0; i < n_args; i++) bind_operand(l, kernel, names[i], n, i);
    for (int part = 0; part < 3 + d->sinks; part++)
        bind_or_spare(l, kernel, results[part], sibling(l, kernel, OP_ATTEND_GRAD, part), n,
                      8 + part);
}

static void describe_embed_w(Lower *l, uint32_t kernel, uint32_t n) {
    KernelDesc *d = &l->kernels[kernel].desc;
    const Type *g = model_type(l->m, model_arg(l->m, n, 0)),
               *ids = model_type(l->m, model_arg(l->m, n, 1));
    d->family = FAMILY_EMBED_W;
    d->rows = lower_rows(l, g);
    d->vocab = l->m->nodes[n].attr.k;
    d->ids = (int32_t)type_features(ids);
    d->n = type_features(g) / d->ids;
    bind_operand(l, kernel, "g", n, 0);
    bind_operand(l, kernel, "ids", n, 1);
    bind_result(l, kernel, "w", n);
}

/* Moves ---------------------------------------------------------------------------------------- */

static void describe_route(Lower *l, uint32_t kernel, uint32_t n) {
    KernelDesc *d = &l->kernels[kernel].desc;
    Type rows = { .row = ROW_R, .route = n };
    d->family = FAMILY_ROUTE;
    d->rows = l->tokens;
    d->top_k = model_top_k(l->m, &rows);
    d->experts = model_experts(l->m, &rows);
    bind_operand(l, kernel, "ids", n, 0);
    lower_bind(l, kernel, "row_of_slot", lower_buffer(l, BUFFER_ROW_OF_SLOT, n, 0), OPERAND_WRITE);
    lower_bind(l, kernel, "slot_of_row", lower_buffer(l, BUFFER_SLOT_OF_ROW, n, 0), OPERAND_WRITE);
    lower_bind(l, kernel, "offsets", lower_buffer(l, BUFFER_OFFSETS, n, 0), OPERAND_WRITE);
}

static void describe_segment_sum(Lower *l, uint32_t kernel, uint32_t n) {
    KernelDesc *d = &l->kernels[kernel].desc;
    const Type *x = model_type(l->m, model_arg(l->m, n, 0));
    d->family = FAMILY_SEGMENT_SUM;
    d->rows = lower_rows(l, x);
    d->n = type_features(x);
    if (x->row == ROW_R)
        d->experts = model_experts(l->m, x);
    else
        d->sequence = l->m->sequence;
    bind_operand(l, kernel, "x", n, 0);
    if (x->row == ROW_R) bind_offsets(l, kernel, x->route);
    bind_result(l, kernel, "y", n);
}

/* The optimizer -------------------------------------------------------------------------------- */

static uint32_t add_kernel(Lower *l, SegmentKind segment, int32_t depth, Family family, int64_t n) {
    Kernel *kernel = ARENA_PUSH(l->arena, l->kernels, l->n_kernels, l->cap_kernels);
    kernel->segment = (uint8_t)segment;
    kernel->depth = depth;
    kernel->desc.family = family;
    kernel->desc.n = n;
    return l->n_kernels - 1;
}

static void bind_flat(Lower *l, uint32_t kernel, const char *name, Region region,
                      OperandMode mode) {
    lower_bind(l, kernel, name, lower_buffer(l, BUFFER_FLAT, 0, (int32_t)region), mode);
}

// Negative depths: the optimizer precedes whatever else runs in the update part.
static void describe_optimizer(Lower *l) {
    int64_t n = l->plan->n_trained;
    if (l->totals_bytes) {
        uint32_t clear = add_kernel(l, SEGMENT_CLEAR, 0, FAMILY_CLEAR, l->totals_bytes / 4);
        bind_flat(l, clear, "x", REGION_totals, OPERAND_WRITE);
    }
    if (!n) return;
    uint32_t clear = add_kernel(l, SEGMENT_CLEAR, 0, FAMILY_CLEAR, n);
    bind_flat(l, clear, "x", REGION_grads, OPERAND_WRITE);
    uint32_t scalars = lower_buffer(l, BUFFER_SCALARS, 0, 0),
             norm = lower_buffer(l, BUFFER_NORM, 0, 0);
    uint32_t sumsq = add_kernel(l, SEGMENT_UPDATE, -3, FAMILY_SUMSQ, n);
    l->kernels[sumsq].desc.flops = 2.0 * (double)n;
    bind_flat(l, sumsq, "x", REGION_grads, OPERAND_READ);
    lower_bind(l, sumsq, "partials", norm, OPERAND_WRITE);
    uint32_t clip = add_kernel(l, SEGMENT_UPDATE, -2, FAMILY_CLIP, div_up(n, SUMSQ_TILE));
    lower_bind(l, clip, "partials", norm, OPERAND_READ);
    lower_bind(l, clip, "scalars", scalars, OPERAND_INPLACE);
    uint32_t adamw = add_kernel(l, SEGMENT_UPDATE, -1, FAMILY_ADAMW, n);
    l->kernels[adamw].desc.flops = 14.0 * (double)n;
    l->kernels[adamw].desc.params = l->plan->params;
    l->kernels[adamw].desc.n_params = l->plan->n_params;
    bind_flat(l, adamw, "grads", REGION_grads, OPERAND_READ);
    bind_flat(l, adamw, "weights", REGION_weights, OPERAND_INPLACE);
    bind_flat(l, adamw, "moment1", REGION_moment1, OPERAND_INPLACE);
    bind_flat(l, adamw, "moment2", REGION_moment2, OPERAND_INPLACE);
    lower_bind(l, adamw, "scalars", scalars, OPERAND_READ);
}

/* The pass ------------------------------------------------------------------------------------- */

static void describe_kernel(Lower *l, uint32_t kernel) {
    uint32_t n = l->kernels[kernel].node;
    switch (l->m->nodes[n].op) {
    case OP_MATMUL:
    case OP_MATMUL_T:
    case OP_MATMUL_W: describe_matmul(l, kernel, n); break;
    case OP_ATTEND:
    case OP_ATTEND_LSE: describe_attend(l, kernel, n); break;
    case OP_ATTEND_GRAD: describe_attend_grad(l, kernel, n); break;
    case OP_EMBED_W: describe_embed_w(l, kernel, n); break;
    case OP_ROUTE: describe_route(l, kernel, n); break;
    default: describe_segment_sum(l, kernel, n); break;
    }
    for (uint32_t i = 0; i < l->kernels[kernel].n_units; i++) {
        uint32_t node = l->units[l->kernels[kernel].units[i]].node;
        l->kernels[kernel].desc.flops += node_flops(l->m, node, l->tokens);
    }
}

bool pass_describe(Lower *l) {
    l->stamp = ARENA_ARRAY(l->arena, uint32_t, l->m->n_nodes);
    uint32_t n = l->n_kernels;
    for (uint32_t k = 0; k < n; k++) {
        l->kernels[k].desc.loc = l->m->nodes[l->kernels[k].node].loc;
        if (l->units[l->kernels[k].units[0]].kind == UNIT_KERNEL)
            describe_kernel(l, k);
        else if (!body_describe(l, k))
            return false;
    }
    if (l->program == PROGRAM_STEP) describe_optimizer(l);
    return true;
}

void dump_describe(const Lower *l, Text *out) {
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        text_printf(out, "%s ", segment_name[l->kernels[k].segment]);
        kernel_describe(&l->kernels[k].desc, out);
    }
}
