// SPDX-License-Identifier: Apache-2.0
// Parameters that no rank keeps whole (fsdp). A segment that reads one gathers the masters of its
// bucket into act, where kernels and packing find them; a segment that makes its gradient adds to a
// bucket in act, which is exchanged when all of it is there and added to this rank's sum.
//
// What all readers pack in bf16 is rounded before it is gathered: half the bytes, the same bits.
//
// Kernels are described as if parameters and gradients lay in memory; then their operands are
// replaced. Of a bucket there is one gathered copy and one gradient per segment; the scheduler puts
// both next to who needs them, so what lives at a time is about a layer's.
#include "compiler/lower/pass.h"

// Gradients of a bucket in one segment.
typedef struct Whole {
    uint32_t bucket, segment, clear, exchange, reduce, buffer;
} Whole;

typedef struct Sharded {
    Lower *l;
    Whole *gradients;
    uint32_t n, cap;
} Sharded;

// What several stages read stays whole: their gradients meet after the microbatches.
static bool is_shared(const Lower *l, uint32_t index) {
    int stages = 0;
    for (int32_t stage = 0; l->shared->held && stage < l->layout->pp; stage++)
        stages += l->shared->held[index * (uint32_t)l->layout->pp + (uint32_t)stage];
    return stages > 1;
}

bool lower_is_sharded(const Lower *l, uint32_t index) {
    const Layout *layout = l->layout;
    if (!layout || !lower_is_trained(l, index) || is_shared(l, index)) return false;
    const PlanParam *param = lower_param(l, index);
    PlanGroup group = param->per_expert ? GROUP_edp : GROUP_dp;
    uint8_t how = param->per_expert ? layout->expert_params : layout->params;
    return how == PARAMS_FSDP && plan_group_size(l->plan, group) > 1;
}

static Whole *gradient_of(Sharded *s, uint32_t number, SegmentKind segment) {
    Lower *l = s->l;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->gradients[i].bucket == number && s->gradients[i].segment == segment)
            return &s->gradients[i];
    }
    const PlanBucket *bucket = &l->plan->buckets[number];
    int32_t ranks = lower_bucket_ranks(l, bucket);
    const char *name = arena_printf(l->arena, "bucket.%u", number);
    uint32_t whole = lower_range(l, arena_printf(l->arena, "%s.gradient", name), REGION_act, 0,
                                 bucket->bytes),
             parts = lower_range(l, arena_printf(l->arena, "%s.parts", name), REGION_act, 0,
                                 bucket->bytes),
             shard = lower_range(l, arena_printf(l->arena, "%s.sum", name), REGION_grads,
                                 bucket->grads, bucket->bytes / ranks);
    uint32_t clear = lower_add_kernel(l, segment, 0, FAMILY_CLEAR);
    l->kernels[clear].desc.n = bucket->bytes / dtype_bytes(DTYPE_F32);
    lower_bind(l, clear, "x", whole, OPERAND_WRITE);
    uint32_t exchange =
        lower_add_crossing(l, segment, INT16_MAX, PLAN_exchange, (PlanGroup)bucket->group);
    lower_bind(l, exchange, "from", whole, OPERAND_READ);
    lower_bind(l, exchange, "to", parts, OPERAND_WRITE);
    uint32_t reduce = lower_add_reduce(l, segment, INT16_MAX, parts, shard, ranks, true);
    l->kernels[clear].bucket = l->kernels[exchange].bucket = l->kernels[reduce].bucket = number + 1;
    Whole *made = ARENA_PUSH(l->arena, s->gradients, s->n, s->cap);
    *made = (Whole){ number, segment, clear, exchange, reduce, whole };
    return made;
}

static void read_gathered(Sharded *s, uint32_t kernel, uint32_t i, uint32_t number) {
    Lower *l = s->l;
    uint32_t at = lower_gathered(l, number, (SegmentKind)l->kernels[kernel].segment);
    Bind *bind = &l->kernels[kernel].binds[i];
    l->buffers[bind->buffer].n_readers--;
    bind->buffer = l->gathered[at].buffer;
    if (l->shared->rounded[number]) l->kernels[kernel].desc.x = DTYPE_BF16; // a pack: buckets.c
    l->buffers[bind->buffer].n_readers++;
}

static void add_to_whole(Sharded *s, uint32_t kernel, uint32_t i, uint32_t number) {
    Lower *l = s->l;
    Whole *whole = gradient_of(s, number, (SegmentKind)l->kernels[kernel].segment);
    l->kernels[kernel].binds[i].buffer = whole->buffer;
    // What follows is wanted right after the first addend: the scheduler clears not much earlier.
    int32_t depth = l->kernels[kernel].depth + 1;
    if (depth < l->kernels[whole->exchange].depth)
        l->kernels[whole->exchange].depth = l->kernels[whole->reduce].depth = depth;
    lower_after(l, kernel, whole->clear);
    lower_after(l, whole->exchange, kernel);
}

static void replace(Sharded *s, uint32_t kernel, uint32_t i) {
    Lower *l = s->l;
    const Buffer *buffer = &l->buffers[l->kernels[kernel].binds[i].buffer];
    if (buffer->kind != BUFFER_PARAM && buffer->kind != BUFFER_GRADIENT) return;
    const PlanParam *param = lower_param(l, l->m->nodes[buffer->node].attr.index);
    const PlanBucket *bucket = plan_bucket(l->plan, param);
    if (!bucket || !bucket->sharded) return;
    uint32_t number = (uint32_t)(bucket - l->plan->buckets);
    if (buffer->kind == BUFFER_PARAM)
        read_gathered(s, kernel, i, number);
    else
        add_to_whole(s, kernel, i, number);
    lower_bind_part(l, kernel, i, param, bucket);
}

void describe_sharded(Lower *l) {
    Sharded s = { .l = l };
    for (uint32_t k = 0, n = l->n_kernels; k < n; k++)
        for (uint32_t i = 0; i < l->kernels[k].n_binds; i++) replace(&s, k, i);
}
