// SPDX-License-Identifier: Apache-2.0
// Second operands of contractions, packed as their kernels read them.
//
// A parameter is packed once, into a region of its own: by program "pack" when the host has written
// the weights, and again at the end of a step, which has changed them. Any other value is packed by
// a kernel right before it is used, once per segment. Views that move nothing are looked through,
// and a transposition costs nothing: packing turns or does not.
#include "compiler/lower/pass.h"

enum { PANEL = 32 };

void pack_dims(const Pack *pack, int64_t dims[PLAN_MAX_DIMS], int *n_dims) {
    int64_t over = pack->turned ? pack->n : pack->k, columns = pack->turned ? pack->k : pack->n;
    bool pairs = pack->dtype == DTYPE_BF16;
    int n = 0;
    if (pack->experts) dims[n++] = pack->experts;
    if (pack->each > 1) dims[n++] = pack->each;
    dims[n++] = div_up(columns, PANEL);
    dims[n++] = pairs ? div_up(over, 2) : over;
    dims[n++] = PANEL;
    if (pairs) dims[n++] = 2;
    *n_dims = n;
}

static int64_t pack_bytes(const Pack *pack) {
    int64_t dims[PLAN_MAX_DIMS], bytes = dtype_bytes((Dtype)pack->dtype);
    int n;
    pack_dims(pack, dims, &n);
    for (int i = 0; i < n; i++) bytes *= dims[i];
    return bytes;
}

static bool same_pack(const Pack *a, const Pack *b) {
    return a->of == b->of && a->segment == b->segment && a->dtype == b->dtype &&
           a->turned == b->turned && a->experts == b->experts && a->each == b->each &&
           a->k == b->k && a->n == b->n;
}

static void describe_pack(KernelDesc *d, const Pack *pack) {
    d->family = FAMILY_PACK;
    d->experts = pack->experts;
    d->each = pack->each;
    d->k = pack->k;
    d->n = pack->n;
    d->turned = pack->turned;
    d->y = pack->dtype;
    if (pack->dtype == DTYPE_BF16) d->precision = PRECISION_BF16;
}

/* Parameters ----------------------------------------------------------------------------------- */

static uint32_t packed_param(Lower *l, uint32_t node, const Pack *pack) {
    Shared *shared = l->shared;
    uint32_t i = 0;
    while (i < shared->n_packs && !same_pack(&shared->packs[i], pack)) i++;
    if (i == shared->n_packs) {
        int64_t *end = &l->plan->region_bytes[REGION_packed];
        Pack *to = ARENA_PUSH(l->plan->arena, shared->packs, shared->n_packs, shared->cap_packs);
        *to = *pack;
        to->offset = *end;
        *end += round_up(pack_bytes(pack), PLAN_GRAIN);
    }
    return lower_buffer(l, BUFFER_PACKED, node, (int32_t)i);
}

static bool is_updated(const Lower *l, uint32_t param) {
    const Model *m = l->m;
    if (lower_is_trained(l, param)) return true;
    for (uint32_t i = 0; i < m->n_effects; i++) {
        uint32_t n = m->effects[i];
        if (m->nodes[n].op == OP_UPDATE && m->nodes[model_arg(m, n, 0)].attr.index == param)
            return true;
    }
    return false;
}

void pack_again(Lower *l) {
    for (uint32_t i = 0; i < l->shared->n_packs; i++) {
        const Pack *pack = &l->shared->packs[i];
        uint32_t node = l->m->params[pack->of].node;
        if (!is_updated(l, pack->of)) continue;
        uint32_t kernel = lower_add_kernel(l, SEGMENT_UPDATE, INT16_MAX, FAMILY_PACK);
        l->kernels[kernel].node = node;
        l->kernels[kernel].desc.loc = l->m->params[pack->of].loc;
        describe_pack(&l->kernels[kernel].desc, pack);
        lower_bind(l, kernel, "w", lower_buffer(l, BUFFER_PARAM, node, 0), OPERAND_READ);
        lower_bind(l, kernel, "packed", lower_buffer(l, BUFFER_PACKED, node, (int32_t)i),
                   OPERAND_WRITE);
    }
}

/* Values --------------------------------------------------------------------------------------- */

static uint32_t packed_value(Lower *l, uint32_t kernel, uint32_t from, const Pack *pack) {
    uint32_t i = 0;
    while (i < l->n_packs && !same_pack(&l->packs[i], pack)) i++;
    if (i < l->n_packs) return lower_buffer(l, BUFFER_PACKED_VALUE, pack->of, (int32_t)i);
    *ARENA_PUSH(l->arena, l->packs, l->n_packs, l->cap_packs) = *pack;
    uint32_t packed = lower_buffer(l, BUFFER_PACKED_VALUE, pack->of, (int32_t)i);
    uint32_t made =
        lower_add_kernel(l, (SegmentKind)pack->segment, l->kernels[kernel].depth, FAMILY_PACK);
    l->kernels[made].node = pack->of;
    l->kernels[made].desc.loc = l->m->nodes[pack->of].loc;
    describe_pack(&l->kernels[made].desc, pack);
    lower_bind(l, made, "w", from, OPERAND_READ);
    lower_bind(l, made, "packed", packed, OPERAND_WRITE);
    return packed;
}

/* Both ----------------------------------------------------------------------------------------- */

uint32_t lower_packed(Lower *l, uint32_t kernel, uint32_t n) {
    const KernelDesc *d = &l->kernels[kernel].desc;
    bool turn;
    uint32_t plain = lower_weight(l, n, &turn);
    Pack pack = { .dtype = lower_is_bf16(l, n) ? DTYPE_BF16 : DTYPE_F32,
                  .turned = turn != (l->m->nodes[n].op == OP_MATMUL_T),
                  .experts = d->experts,
                  .each = d->each,
                  .k = turn ? (int32_t)d->n : d->k,
                  .n = turn ? d->k : d->n };
    const NodeInfo *info = &l->info[plain];
    if (info->role == ROLE_SOURCE && l->m->nodes[plain].op != OP_TOTAL) {
        pack.of = l->m->nodes[plain].attr.index;
        return packed_param(l, plain, &pack);
    }
    pack.of = plain;
    pack.segment = l->kernels[kernel].segment;
    return packed_value(l, kernel, lower_value(l, info->forced ? plain | READ_STORED : plain),
                        &pack);
}

/* Program "pack" ------------------------------------------------------------------------------- */

static uint32_t emit_buffer(Plan *plan, PlanProgram *program, const PlanBuffer *buffer) {
    for (uint32_t i = 0; i < program->n_buffers; i++) {
        if (!strcmp(program->buffers[i].name, buffer->name)) return i;
    }
    *ARENA_PUSH(plan->arena, program->buffers, program->n_buffers, program->cap_buffers) = *buffer;
    return program->n_buffers - 1;
}

static bool emit_pack(Lower *l, PlanProgram *program, const Pack *pack) {
    Plan *plan = l->plan;
    const PlanParam *param = lower_param(l, pack->of);
    KernelDesc desc = { .loc = l->from->params[pack->of].loc };
    PlanBuffer from = { .name = param->name,
                        .region = REGION_weights,
                        .n_dims = param->n_dims,
                        .offset = param->offset,
                        .bytes = dtype_bytes(DTYPE_F32) };
    PlanBuffer to = { .dtype = pack->dtype,
                      .region = REGION_packed,
                      .offset = pack->offset,
                      .bytes = pack_bytes(pack) };
    int n_dims;
    describe_pack(&desc, pack);
    for (int i = 0; i < from.n_dims; i++) from.bytes *= from.dims[i] = param->dims[i];
    pack_dims(pack, to.dims, &n_dims);
    to.n_dims = (uint8_t)n_dims;
    to.name = arena_printf(plan->arena, "%s.packed.%u", param->name, program->n_instrs);
    desc.bytes = (double)(from.bytes + to.bytes);
    PlanInstr instr = { .operands = program->n_operands, .n_operands = 2 };
    if (codegen_kernel(l->codegen, &desc, &instr.kernel) != OK)
        return lower_fail(l, 0, "%s", status_message());
    const PlanKernel *kernel = &plan->kernels[instr.kernel];
    for (uint32_t i = 0; i < kernel->n_args; i++) {
        bool read = kernel->args[i].is_const;
        *ARENA_PUSH(plan->arena, program->operands, program->n_operands, program->cap_operands) =
            (PlanOperand){ .buffer = emit_buffer(plan, program, read ? &from : &to),
                           .mode = read ? OPERAND_READ : OPERAND_WRITE };
    }
    *ARENA_PUSH(plan->arena, program->instrs, program->n_instrs, program->cap_instrs) = instr;
    return true;
}

bool emit_pack_program(Lower *l) {
    Plan *plan = l->plan;
    if (!l->shared->n_packs) return true;
    PlanProgram *program =
        ARENA_PUSH(plan->arena, plan->programs, plan->n_programs, plan->cap_programs);
    program->name = "pack";
    for (uint32_t i = 0; i < l->shared->n_packs; i++) {
        if (!emit_pack(l, program, &l->shared->packs[i])) return false;
    }
    int32_t n = (int32_t)program->n_instrs;
    for (uint32_t i = 0; i < program->n_buffers; i++) program->buffers[i].last = n - 1;
    *ARENA_PUSH(plan->arena, program->segments, program->n_segments, program->cap_segments) =
        (PlanSegment){ "pack", 0, n };
    *ARENA_PUSH(plan->arena, program->rows, program->n_rows, program->cap_rows) =
        (PlanRow){ 0, -1, 0 };
    return true;
}
