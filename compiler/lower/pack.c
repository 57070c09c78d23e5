// SPDX-License-Identifier: Apache-2.0
// Second operands of contractions, packed as their kernels read them.
//
// A parameter is packed once, into a region of its own: by program "pack" when the host has written
// the weights, and again at the end of a step, which has changed them. Any other value is packed by
// a kernel right before it is used, once per segment. Views that move nothing are looked through,
// and a transposition costs nothing: packing turns or does not. CPUs read panels along the sum, so a
// parameter has a copy for forward and one for the gradient of its input; GPUs read one copy either way.
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

// In the update the parameter is read where it is new.
static void bind_new(Lower *l, uint32_t kernel, uint32_t node, uint32_t param) {
    const PlanParam *of = lower_param(l, param);
    const PlanBucket *bucket = plan_bucket(l->plan, of);
    bool several = bucket && lower_bucket_ranks(l, bucket) > 1;
    uint32_t from = several ? lower_gathered(l, (uint32_t)(bucket - l->plan->buckets), SEGMENT_UPDATE) : 0;
    bool packed = several && bucket->weights < 0;
    lower_bind(l, kernel, "w", packed ? l->gathered[from].buffer : lower_buffer(l, BUFFER_PARAM, node, 0),
               OPERAND_READ);
    if (packed) {
        lower_bind_part(l, kernel, 0, of, bucket);
        l->kernels[kernel].desc.bytes += (double)(l->kernels[kernel].binds[0].bytes - bucket->bytes);
    } else if (several) lower_after(l, kernel, l->gathered[from].kernel);
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
        bind_new(l, kernel, node, pack->of);
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
    KernelDesc *d = &l->kernels[kernel].desc;
    bool turn;
    uint32_t plain = lower_weight(l, n, &turn);
    bool turned = turn != (l->m->nodes[n].op == OP_MATMUL_T);
    d->across = l->one_order && turned;
    Pack pack = { .dtype = lower_is_bf16(l, n) ? DTYPE_BF16 : DTYPE_F32,
                  .turned = turned && !l->one_order,
                  .experts = d->experts,
                  .each = d->each,
                  .k = turn ? (int32_t)d->n : d->k,
                  .n = turn ? d->k : d->n };
    const NodeInfo *info = &l->info[plain];
    bool param = info->role == ROLE_SOURCE && l->m->nodes[plain].op != OP_TOTAL;
    if (param && !lower_is_sharded(l, l->m->nodes[plain].attr.index)) {
        pack.of = l->m->nodes[plain].attr.index;
        return packed_param(l, plain, &pack);
    }
    pack.of = plain;
    pack.segment = l->kernels[kernel].segment;
    return packed_value(l, kernel, lower_value(l, info->forced ? plain | READ_STORED : plain),
                        &pack);
}

/* Program "pack" ------------------------------------------------------------------------------- */

// The program is small and needs no passes: its buffers are made by hand.
typedef struct PackProgram {
    Lower *l;
    PlanProgram *program;
    uint32_t gathered; // buffer that the current bucket is gathered into, in act
} PackProgram;

static uint32_t emit_buffer(PackProgram *p, PlanBuffer buffer, const int64_t *dims, int n_dims) {
    PlanProgram *program = p->program;
    buffer.n_dims = (uint8_t)n_dims;
    buffer.bytes = dtype_bytes((Dtype)buffer.dtype);
    for (int i = 0; i < n_dims; i++) buffer.bytes *= buffer.dims[i] = dims[i];
    for (uint32_t i = 0; i < program->n_buffers; i++) {
        if (!strcmp(program->buffers[i].name, buffer.name)) return i;
    }
    *ARENA_PUSH(p->l->plan->arena, program->buffers, program->n_buffers, program->cap_buffers) = buffer;
    return program->n_buffers - 1;
}

static void emit_operand(PackProgram *p, uint32_t buffer, OperandMode mode, int64_t offset,
                         int64_t bytes) {
    PlanProgram *program = p->program;
    *ARENA_PUSH(p->l->plan->arena, program->operands, program->n_operands, program->cap_operands) =
        (PlanOperand){ .buffer = buffer, .mode = (uint8_t)mode, .offset = offset, .bytes = bytes };
}

static void emit_instr(PackProgram *p, PlanInstr instr, uint32_t n_operands) {
    PlanProgram *program = p->program;
    instr.operands = program->n_operands;
    instr.n_operands = n_operands;
    *ARENA_PUSH(p->l->plan->arena, program->instrs, program->n_instrs, program->cap_instrs) = instr;
}

// The buffer that a parameter is packed from, and where in it.
static uint32_t emit_source(PackProgram *p, const PlanParam *param, int64_t *offset, int64_t *bytes) {
    const PlanBucket *bucket = plan_bucket(p->l->plan, param);
    PlanBuffer from = { .name = param->name };
    *offset = *bytes = 0;
    if (bucket && bucket->weights < 0 && lower_bucket_ranks(p->l, bucket) > 1) {
        *offset = param->grad - bucket->offset;
        *bytes = plan_numbers(param) * dtype_bytes(DTYPE_F32);
        return p->gathered;
    }
    from.region = (uint8_t)lower_param_place(p->l, param, &from.offset);
    return emit_buffer(p, from, param->dims, param->n_dims);
}

static bool emit_pack(PackProgram *p, const Pack *pack) {
    Lower *l = p->l;
    const PlanParam *param = lower_param(l, pack->of);
    KernelDesc desc = { .loc = l->from->params[pack->of].loc };
    PlanBuffer to = { .dtype = pack->dtype, .region = REGION_packed, .offset = pack->offset };
    int64_t dims[PLAN_MAX_DIMS], offset, bytes;
    int n_dims;
    describe_pack(&desc, pack);
    pack_dims(pack, dims, &n_dims);
    to.name = arena_printf(l->plan->arena, "%s.packed.%u", param->name, p->program->n_instrs);
    desc.bytes = (double)(plan_numbers(param) * dtype_bytes(DTYPE_F32) + pack_bytes(pack));
    PlanInstr instr = { 0 };
    if (codegen_kernel(l->codegen, &desc, &instr.kernel) != OK)
        return lower_fail(l, 0, "%s", status_message());
    const PlanKernel *kernel = &l->plan->kernels[instr.kernel];
    uint32_t from = emit_source(p, param, &offset, &bytes), packed = emit_buffer(p, to, dims, n_dims);
    emit_instr(p, instr, kernel->n_args);
    for (uint32_t i = 0; i < kernel->n_args; i++) {
        bool read = kernel->args[i].is_const;
        emit_operand(p, read ? from : packed, read ? OPERAND_READ : OPERAND_WRITE, read ? offset : 0,
                     read ? bytes : 0);
    }
    return true;
}

static void emit_gather(PackProgram *p, uint32_t number) {
    const Plan *plan = p->l->plan;
    const PlanBucket *bucket = &plan->buckets[number];
    bool direct = bucket->weights >= 0;
    const char *name = arena_printf(plan->arena, "bucket.%u", number);
    PlanBuffer own = { .name = arena_printf(plan->arena, "%s.master", name),
                       .region = REGION_master,
                       .offset = bucket->shard };
    PlanBuffer all = { .name = arena_printf(plan->arena, "%s.weights", name),
                       .region = direct ? REGION_weights : REGION_act,
                       .offset = direct ? bucket->weights : 0,
                       .first = (int32_t)p->program->n_instrs };
    int64_t numbers = plan_shard_bytes(plan, bucket) / dtype_bytes(DTYPE_F32),
            whole = bucket->bytes / dtype_bytes(DTYPE_F32);
    uint32_t from = emit_buffer(p, own, &numbers, 1), to = emit_buffer(p, all, &whole, 1);
    emit_instr(p, (PlanInstr){ .op = PLAN_gather, .group = bucket->group }, 2);
    emit_operand(p, from, OPERAND_READ, 0, 0);
    emit_operand(p, to, OPERAND_WRITE, 0, 0);
    p->gathered = to;
}

// Copies of the parameters of one bucket, or (NULL) of those in none.
static bool emit_bucket(PackProgram *p, const PlanBucket *bucket) {
    Lower *l = p->l;
    const Shared *shared = l->shared;
    bool needed = bucket && bucket->weights >= 0, several = bucket && lower_bucket_ranks(l, bucket) > 1;
    for (uint32_t i = 0; i < shared->n_packs; i++)
        needed |= plan_bucket(l->plan, lower_param(l, shared->packs[i].of)) == bucket;
    if (several && needed) emit_gather(p, (uint32_t)(bucket - l->plan->buckets));
    for (uint32_t i = 0; i < shared->n_packs; i++) {
        if (plan_bucket(l->plan, lower_param(l, shared->packs[i].of)) != bucket) continue;
        if (!emit_pack(p, &shared->packs[i])) return false;
    }
    if (!several || !needed || bucket->weights >= 0) return true;
    p->program->buffers[p->gathered].last = (int32_t)p->program->n_instrs - 1;
    p->program->act_bytes = p->program->act_bound = max_i64(p->program->act_bytes, bucket->bytes);
    return true;
}

static void finish_program(PackProgram *p) {
    PlanProgram *program = p->program;
    Plan *plan = p->l->plan;
    int32_t n = (int32_t)program->n_instrs;
    for (uint32_t i = 0; i < program->n_buffers; i++) {
        if (program->buffers[i].region == REGION_act) continue;
        program->buffers[i].first = 0;
        program->buffers[i].last = n - 1;
    }
    *ARENA_PUSH(plan->arena, program->segments, program->n_segments, program->cap_segments) =
        (PlanSegment){ "pack", 0, n };
    *ARENA_PUSH(plan->arena, program->rows, program->n_rows, program->cap_rows) =
        (PlanRow){ 0, -1, 0 };
    plan->region_bytes[REGION_act] = max_i64(plan->region_bytes[REGION_act], program->act_bytes);
}

bool emit_pack_program(Lower *l) {
    Plan *plan = l->plan;
    bool direct = false;
    for (uint32_t i = 0; i < plan->n_buckets; i++) direct |= plan->buckets[i].weights >= 0;
    if (!l->shared->n_packs && !direct) return true;
    PackProgram p = { l, ARENA_PUSH(plan->arena, plan->programs, plan->n_programs, plan->cap_programs), 0 };
    p.program->name = "pack";
    for (uint32_t i = 0; i < plan->n_buckets; i++)
        if (!emit_bucket(&p, &plan->buckets[i])) return false;
    if (!emit_bucket(&p, NULL)) return false;
    finish_program(&p);
    return true;
}
