// SPDX-License-Identifier: Apache-2.0
// Fused groups to kernel descriptions: family, sizes, and a buffer for every parameter.
#include "compiler/lower/pass.h"

// Operand i of a kernel node, in memory.
static uint32_t operand(Lower *l, uint32_t n, int i) {
    uint32_t plain = lower_plain(l, model_arg(l->m, n, i));
    bool copy = l->info[plain].forced && l->info[plain].role != ROLE_SOURCE;
    return lower_value(l, copy ? plain | READ_STORED : plain);
}

static void bind_operand(Lower *l, uint32_t kernel, const char *name, uint32_t n, int i) {
    uint32_t plain = lower_plain(l, model_arg(l->m, n, i));
    if (l->info[plain].gathered) {
        body_describe_pre(l, kernel, plain);
        return;
    }
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

static const char *numbered(const Lower *l, const char *name, int i) {
    return i ? arena_printf(l->arena, "%s%d", name, i) : name;
}

static void describe_matmul_w(Lower *l, uint32_t kernel, uint32_t n) {
    KernelDesc *d = &l->kernels[kernel].desc;
    contract_sizes(l, n, d);
    bind_operand(l, kernel, "x", n, 0);
    bind_operand(l, kernel, "g", n, 1);
    if (d->experts) bind_offsets(l, kernel, model_type(l->m, model_arg(l->m, n, 0))->route);
    bind_result(l, kernel, "w", n);
}

// Sizes of part i of a kernel of several: all columns, or the whole length of the sum.
static void add_part(Lower *l, uint32_t kernel, uint32_t n, int i) {
    KernelDesc part = { 0 };
    contract_sizes(l, n, &part);
    KernelDesc *d = &l->kernels[kernel].desc;
    d->parts = i + 1;
    d->part_n[i] = part.n;
    d->n = i ? d->n + part.n : part.n;
}

static void describe_matmul(Lower *l, uint32_t kernel, uint32_t n) {
    uint32_t parts[4];
    int n_parts = kernel_parts(l, &l->kernels[kernel], parts);
    bool turned = l->m->nodes[n].op == OP_MATMUL_T, post = kernel_has_post(l, &l->kernels[kernel]);
    contract_sizes(l, n, &l->kernels[kernel].desc);
    for (int i = 0; i < n_parts; i++) {
        if (i == 0 || turned)
            bind_operand(l, kernel, numbered(l, turned ? "g" : "x", i), parts[i], 0);
    }
    for (int i = 0; i < n_parts; i++) {
        contract_sizes(l, parts[i], &l->kernels[kernel].desc); // as packing reads them
        lower_bind(l, kernel, numbered(l, "w", i), lower_packed(l, kernel, parts[i]), OPERAND_READ);
    }
    for (int i = 0; n_parts > 1 && i < n_parts; i++) add_part(l, kernel, parts[i], i);
    if (l->kernels[kernel].desc.experts)
        bind_offsets(l, kernel, model_type(l->m, model_arg(l->m, n, 0))->route);
    for (int i = 0; !post && i < (turned ? 1 : n_parts); i++)
        bind_result(l, kernel, numbered(l, turned ? "x" : "y", i), turned ? n : parts[i]);
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
    if (l->m->nodes[n].n_args > 1) {
        describe_round(l, kernel, n);
        return;
    }
    if (lower_ep(l) > 1) {
        describe_route_ranks(l, kernel, n, operand(l, n, 0));
        return;
    }
    KernelDesc *d = &l->kernels[kernel].desc;
    Type rows = { .row = ROW_R, .route = n };
    d->family = FAMILY_ROUTE;
    d->rows = l->tokens;
    d->top_k = model_top_k(l->m, &rows);
    d->experts = model_experts(l->m, &rows);
    if (lower_align(l) > 1) d->align = lower_align(l);
    bind_operand(l, kernel, "ids", n, 0);
    lower_bind(l, kernel, "row_of_slot", lower_buffer(l, BUFFER_ROW_OF_SLOT, n, 0), OPERAND_WRITE);
    lower_bind(l, kernel, "slot_of_row", lower_buffer(l, BUFFER_SLOT_OF_ROW, n, 0), OPERAND_WRITE);
    lower_bind(l, kernel, "offsets", lower_buffer(l, BUFFER_OFFSETS, n, 0), OPERAND_WRITE);
}

// What every rank has is gathered by all, then added up by all in the same order.
static void describe_across(Lower *l, uint32_t kernel, uint32_t n) {
    uint32_t x = operand(l, n, 0);
    int32_t ranks = plan_group_size(l->plan, GROUP_dp);
    SegmentKind segment = (SegmentKind)l->kernels[kernel].segment;
    uint32_t parts = lower_range(l, arena_printf(l->arena, "%s.across.parts", model_name(l->m, l->m->nodes[n].addr)),
                                 REGION_act, 0, l->buffers[x].bytes * ranks);
    uint32_t gather = lower_add_crossing(l, segment, l->kernels[kernel].depth, PLAN_gather, GROUP_dp);
    lower_bind(l, gather, "from", x, OPERAND_READ);
    lower_bind(l, gather, "to", parts, OPERAND_WRITE);
    KernelDesc *d = &l->kernels[kernel].desc;
    d->family = FAMILY_REDUCE;
    d->ranks = ranks;
    d->n = type_features(model_type(l->m, n));
    lower_bind(l, kernel, "parts", parts, OPERAND_READ);
    bind_result(l, kernel, "y", n);
}

static void describe_segment_sum(Lower *l, uint32_t kernel, uint32_t n) {
    KernelDesc *d = &l->kernels[kernel].desc;
    const Type *x = model_type(l->m, model_arg(l->m, n, 0));
    d->family = FAMILY_SEGMENT_SUM;
    d->rows = lower_rows(l, x);
    d->n = type_features(x);
    if (x->row == ROW_R)
        d->experts = lower_experts(l, x);
    else
        d->sequence = l->m->sequence;
    bind_operand(l, kernel, "x", n, 0);
    if (x->row == ROW_R) bind_offsets(l, kernel, x->route);
    bind_result(l, kernel, "y", n);
}

/* Between stages ------------------------------------------------------------------------------- */

static void describe_transfer(Lower *l, uint32_t kernel, uint32_t n) {
    Kernel *to = &l->kernels[kernel];
    const Node *node = model_at(l->m, n);
    bool sends = node->op == OP_SEND;
    to->desc.family = N_FAMILIES;
    to->op = sends ? PLAN_send : PLAN_recv;
    to->group = GROUP_pp;
    to->peer = node->attr.cross.stage;
    to->lane = node->attr.cross.lane;
    if (sends) bind_operand(l, kernel, "x", n, 0);
    else bind_result(l, kernel, "x", n);
}

/* Kernels without nodes ------------------------------------------------------------------------ */

uint32_t lower_add_kernel(Lower *l, SegmentKind segment, int32_t depth, Family family) {
    Kernel *kernel = ARENA_PUSH(l->arena, l->kernels, l->n_kernels, l->cap_kernels);
    kernel->segment = (uint8_t)segment;
    kernel->depth = depth;
    kernel->desc.family = family;
    return l->n_kernels - 1;
}

uint32_t lower_add_crossing(Lower *l, SegmentKind segment, int32_t depth, PlanOp op, PlanGroup group) {
    uint32_t kernel = lower_add_kernel(l, segment, depth, N_FAMILIES);
    l->kernels[kernel].op = (uint8_t)op;
    l->kernels[kernel].group = (uint8_t)group;
    return kernel;
}

void lower_after(Lower *l, uint32_t kernel, uint32_t earlier) {
    Kernel *to = &l->kernels[kernel];
    *ARENA_PUSH(l->arena, to->after, to->n_after, to->cap_after) = earlier;
}

static uint8_t dtype_of(const Lower *l, const Kernel *kernel, const char *name) {
    for (uint32_t i = 0; i < kernel->n_binds; i++) {
        if (!strcmp(kernel->binds[i].name, name)) return l->buffers[kernel->binds[i].buffer].dtype;
    }
    return DTYPE_F32;
}

// How it computes, and the types of what it reads and writes: left operand, second, result.
static void set_precision(const Lower *l, Kernel *kernel) {
    static const struct {
        uint8_t family;
        const char *x, *g, *y;
    } names[] = {
        { FAMILY_MATMUL, "x", "", "y" },        { FAMILY_MATMUL_T, "g", "", "x" },
        { FAMILY_MATMUL_W, "x", "g", "w" },     { FAMILY_ATTEND, "q", "", "y" },
        { FAMILY_ATTEND_GRAD, "q", "g", "dq" }, { FAMILY_EMBED_W, "g", "", "w" },
        { FAMILY_SEGMENT_SUM, "x", "", "y" },
    };
    KernelDesc *d = &kernel->desc;
    if (lower_is_bf16(l, kernel->node)) d->precision = PRECISION_BF16;
    for (int i = 0; i < COUNT_OF(names); i++) {
        if (names[i].family != d->family) continue;
        d->x = dtype_of(l, kernel, names[i].x);
        d->g = dtype_of(l, kernel, names[i].g);
        d->y = dtype_of(l, kernel, names[i].y);
    }
}

/* The pass ------------------------------------------------------------------------------------- */

static void describe_kernel(Lower *l, uint32_t kernel) {
    uint32_t n = l->kernels[kernel].node;
    switch (l->m->nodes[n].op) {
    case OP_MATMUL:
    case OP_MATMUL_T: describe_matmul(l, kernel, n); break;
    case OP_MATMUL_W: describe_matmul_w(l, kernel, n); break;
    case OP_ATTEND:
    case OP_ATTEND_LSE: describe_attend(l, kernel, n); break;
    case OP_ATTEND_GRAD: describe_attend_grad(l, kernel, n); break;
    case OP_EMBED_W: describe_embed_w(l, kernel, n); break;
    case OP_ROUTE: describe_route(l, kernel, n); break;
    case OP_ACROSS: describe_across(l, kernel, n); break;
    case OP_SEND:
    case OP_RECV: describe_transfer(l, kernel, n); break;
    default: describe_segment_sum(l, kernel, n); break;
    }
    set_precision(l, &l->kernels[kernel]);
    for (uint32_t i = 0; i < l->kernels[kernel].n_units; i++) {
        const Unit *unit = &l->units[l->kernels[kernel].units[i]];
        for (uint32_t t = unit->node; unit->kind == UNIT_KERNEL && t; t = l->info[t].term)
            l->kernels[kernel].desc.flops += node_flops(l->m, t, l->tokens);
    }
}

bool pass_describe(Lower *l) {
    lower_types(l);
    if (lower_in_blocks(l)) blocks_find_sums(l);
    l->stamp = ARENA_ARRAY(l->arena, uint32_t, l->m->n_nodes);
    uint32_t n = l->n_kernels;
    for (uint32_t k = 0; k < n; k++) {
        l->kernels[k].desc.loc = l->m->nodes[l->kernels[k].node].loc;
        bool family = kernel_is_family(l, &l->kernels[k]);
        if (family) describe_kernel(l, k);
        if ((!family || kernel_has_post(l, &l->kernels[k])) && !body_describe(l, k)) return false;
    }
    if (lower_in_blocks(l)) blocks_describe(l);
    if (lower_align(l) > 1) pads_describe(l);
    lower_order_transfers(l);
    if (!l->trial) lower_place_described(l);
    if (l->program == PROGRAM_STEP && !l->trial && !l->probe) describe_update(l);
    if (!l->trial) describe_sharded(l);
    describe_rounds(l);
    return true;
}

const char *kernel_word(const Kernel *kernel) {
    static const char *const ops[N_HALVES][N_PLAN_OPS] = {
#define X(name) "@" #name,
        [HALF_whole] = { PLAN_OPS(X) },
#undef X
#define X(name) "@start " #name,
        [HALF_start] = { PLAN_OPS(X) },
#undef X
#define X(name) "@wait " #name,
        [HALF_wait] = { PLAN_OPS(X) },
#undef X
    };
    return kernel->op == PLAN_launch ? family_name[kernel->desc.family] : ops[kernel->half][kernel->op];
}

void dump_describe(const Lower *l, Text *out) {
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        text_printf(out, "%s ", lower_segment_name(l, l->kernels[k].segment));
        if (l->kernels[k].op != PLAN_launch)
            text_printf(out, "%s\n", kernel_word(&l->kernels[k]));
        else kernel_describe(&l->kernels[k].desc, out);
    }
}
