// SPDX-License-Identifier: Apache-2.0
// The optimizer's part of a step: what is cleared before the microbatches, and what follows them.
//
// On one rank: the gradient's norm, clipping, AdamW over all numbers at once. On many, each rank
// updates its shards (plan.h, PlanBucket):
//
//   per bucket of a group of several   @exchange gradients; add what the ranks have into the shard (overlap.c)
//   shards, which lie side by side     sum of squares; @gather one number per rank of the world;
//                                      clip by what they add up to; AdamW
//   per bucket of a group of several   @gather masters: into weights, or to be packed from
//   sums for m.update                  @gather; add up what the ranks have, unless it is the same
//
// Sums over ranks are in their order.
#include "compiler/lower/pass.h"

// The optimizer precedes whatever else runs in the update part: phases, as negative depths.
enum { TOTALS = -7, SQUARES, FOLD, NORMS, CLIP, ADAMW };

static uint32_t add_flat(Lower *l, SegmentKind segment, int32_t depth, Family family, int64_t n) {
    uint32_t kernel = lower_add_kernel(l, segment, depth, family);
    l->kernels[kernel].desc.n = n;
    return kernel;
}

static void bind_flat(Lower *l, uint32_t kernel, const char *name, Region region,
                      OperandMode mode) {
    lower_bind(l, kernel, name, lower_buffer(l, BUFFER_FLAT, 0, (int32_t)region), mode);
}

static void clear(Lower *l, Region region, int64_t n) {
    if (!n) return;
    uint32_t kernel = add_flat(l, SEGMENT_CLEAR, 0, FAMILY_CLEAR, n);
    bind_flat(l, kernel, "x", region, OPERAND_WRITE);
}

/* Ranks ---------------------------------------------------------------------------------------- */

int64_t lower_numbers(int64_t bytes) {
    return bytes / dtype_bytes(DTYPE_F32);
}

// `dst` = what the ranks of a group have at `src`, of the same size each.
uint32_t lower_add_reduce(Lower *l, SegmentKind segment, int32_t depth, uint32_t parts,
                          uint32_t dst, int32_t ranks, bool accumulate) {
    int64_t n = lower_numbers(l->buffers[dst].bytes);
    uint32_t kernel = add_flat(l, segment, depth, FAMILY_REDUCE, n);
    l->kernels[kernel].desc.accumulate = accumulate;
    l->kernels[kernel].desc.ranks = ranks;
    l->kernels[kernel].desc.flops = (double)(ranks - 1) * (double)n;
    lower_bind(l, kernel, "parts", parts, OPERAND_READ);
    lower_bind(l, kernel, "y", dst, accumulate ? OPERAND_ADD : OPERAND_WRITE);
    return kernel;
}

// One number of each rank of the world; returns what all of them have.
static uint32_t gather_norms(Lower *l, uint32_t partials, int64_t n) {
    int64_t number = dtype_bytes(DTYPE_F32);
    uint32_t own = lower_range(l, "norm.own", REGION_act, 0, number),
             all = lower_range(l, "norm.all", REGION_act, 0, number * plan_ranks(l->plan));
    uint32_t fold = add_flat(l, SEGMENT_UPDATE, FOLD, FAMILY_FOLD, n);
    lower_bind(l, fold, "x", partials, OPERAND_READ);
    lower_bind(l, fold, "sum", own, OPERAND_WRITE);
    uint32_t gather = lower_add_crossing(l, SEGMENT_UPDATE, NORMS, PLAN_gather, GROUP_world);
    lower_bind(l, gather, "from", own, OPERAND_READ);
    lower_bind(l, gather, "to", all, OPERAND_WRITE);
    return all;
}

/* The optimizer -------------------------------------------------------------------------------- */

// AdamW over n numbers that lie at the front of grads, of `masters` and of moments.
static void describe_adamw(Lower *l, int64_t n, Region masters) {
    uint32_t scalars = lower_buffer(l, BUFFER_SCALARS, 0, 0),
             partials = lower_buffer(l, BUFFER_NORM, 0, 0);
    bool ranks = l->plan->n_buckets != 0;
    uint32_t sums = ranks
                        ? lower_range(l, "grads.sums", REGION_grads, 0, n * dtype_bytes(DTYPE_F32))
                        : lower_buffer(l, BUFFER_FLAT, 0, REGION_grads);
    uint32_t sumsq = add_flat(l, SEGMENT_UPDATE, SQUARES, FAMILY_SUMSQ, n);
    l->kernels[sumsq].desc.flops = 2.0 * (double)n;
    lower_bind(l, sumsq, "x", sums, OPERAND_READ);
    lower_bind(l, sumsq, "partials", partials, OPERAND_WRITE);
    int64_t n_partials = div_up(n, SUMSQ_TILE);
    uint32_t squares = ranks ? gather_norms(l, partials, n_partials) : partials;
    uint32_t clip =
        add_flat(l, SEGMENT_UPDATE, CLIP, FAMILY_CLIP, ranks ? plan_ranks(l->plan) : n_partials);
    lower_bind(l, clip, "partials", squares, OPERAND_READ);
    lower_bind(l, clip, "scalars", scalars, OPERAND_INPLACE);
    uint32_t adamw = add_flat(l, SEGMENT_UPDATE, ADAMW, FAMILY_ADAMW, n);
    KernelDesc *d = &l->kernels[adamw].desc;
    d->flops = 14.0 * (double)n;
    d->params = ranks ? NULL : l->plan->params;
    d->n_params = ranks ? 0 : l->plan->n_params;
    d->buckets = l->plan->buckets;
    d->n_buckets = l->plan->n_buckets;
    lower_bind(l, adamw, "grads", sums, OPERAND_READ);
    bind_flat(l, adamw, "weights", masters, OPERAND_INPLACE);
    bind_flat(l, adamw, "moment1", REGION_moment1, OPERAND_INPLACE);
    bind_flat(l, adamw, "moment2", REGION_moment2, OPERAND_INPLACE);
    lower_bind(l, adamw, "scalars", scalars, OPERAND_READ);
}

// Totals over the microbatches of this rank become those of all ranks that divide the tokens.
static void sum_totals(Lower *l) {
    int32_t ranks = plan_group_size(l->plan, GROUP_dp);
    if (ranks == 1) return;
    bool *varies = model_varies(l->m, l->arena);
    for (uint32_t b = 0, n = l->n_buffers; b < n; b++) {
        uint32_t node = l->buffers[b].node;
        if (l->buffers[b].kind != BUFFER_TOTAL || !varies[model_arg(l->m, node, 0)]) continue;
        if (l->m->nodes[node].attr.cross.order) continue; // another stage's gradient: there they meet
        const char *name =
            arena_printf(l->arena, "%s.total.parts", model_name(l->m, l->m->nodes[node].addr));
        uint32_t parts = lower_range(l, name, REGION_act, 0, l->buffers[b].bytes * ranks);
        uint32_t gather = lower_add_crossing(l, SEGMENT_UPDATE, TOTALS, PLAN_gather, GROUP_dp);
        lower_bind(l, gather, "from", b, OPERAND_READ);
        lower_bind(l, gather, "to", parts, OPERAND_WRITE);
        lower_add_reduce(l, SEGMENT_UPDATE, TOTALS, parts, b, ranks, false);
    }
}

// Weights of a bucket that kernels read as they are.
static void gather_weights(Lower *l) {
    for (uint32_t i = 0; i < l->plan->n_buckets; i++) {
        if (l->plan->buckets[i].weights >= 0) lower_gathered(l, i, SEGMENT_UPDATE);
    }
}

void describe_update(Lower *l) {
    int64_t n = l->plan->n_trained;
    clear(l, REGION_totals, l->totals_bytes / dtype_bytes(DTYPE_F32));
    if (n) {
        clear(l, REGION_grads, n);
        Region masters = plan_master(l->plan);
        describe_adamw(l, l->plan->n_buckets ? lower_numbers(plan_master_bytes(l->plan)) : n, masters);
    }
    sum_totals(l);
    gather_weights(l);
    pack_again(l);
}

// This rank's masters of a bucket in bf16.
static uint32_t round_masters(Lower *l, const char *name, uint32_t own, SegmentKind segment) {
    int64_t n = lower_numbers(l->buffers[own].bytes);
    uint32_t rounded = lower_range_of(l, arena_printf(l->arena, "%s.rounded", name), REGION_act, 0,
                                      n * dtype_bytes(DTYPE_BF16), DTYPE_BF16);
    uint32_t kernel = add_flat(l, segment, 0, FAMILY_REDUCE, n);
    l->kernels[kernel].desc.ranks = 1;
    l->kernels[kernel].desc.y = DTYPE_BF16;
    lower_bind(l, kernel, "parts", own, OPERAND_READ);
    lower_bind(l, kernel, "y", rounded, OPERAND_WRITE);
    return rounded;
}

uint32_t lower_gathered(Lower *l, uint32_t number, SegmentKind segment) {
    for (uint32_t i = 0; i < l->n_gathered; i++) {
        if (l->gathered[i].bucket == number && l->gathered[i].segment == segment) return i;
    }
    const PlanBucket *bucket = &l->plan->buckets[number];
    const char *name = arena_printf(l->arena, "bucket.%u", number);
    bool direct = bucket->weights >= 0;
    uint32_t own = lower_range(l, arena_printf(l->arena, "%s.master", name), REGION_master,
                               bucket->shard, plan_shard_bytes(l->plan, bucket)), all;
    if (l->shared->rounded[number]) {
        own = round_masters(l, name, own, segment);
        all = lower_range_of(l, arena_printf(l->arena, "%s.weights", name), REGION_act, 0,
                             lower_numbers(bucket->bytes) * dtype_bytes(DTYPE_BF16), DTYPE_BF16);
    } else {
        all = lower_range(l, arena_printf(l->arena, "%s.weights", name),
                          direct ? REGION_weights : REGION_act, direct ? bucket->weights : 0,
                          bucket->bytes);
    }
    uint32_t gather = lower_add_crossing(l, segment, 0, PLAN_gather, (PlanGroup)bucket->group);
    lower_bind(l, gather, "from", own, OPERAND_READ);
    lower_bind(l, gather, "to", all, OPERAND_WRITE);
    l->kernels[gather].bucket = number + 1;
    if (l->shared->rounded[number]) l->kernels[l->buffers[own].writer - 1].bucket = number + 1;
    *ARENA_PUSH(l->arena, l->gathered, l->n_gathered, l->cap_gathered) =
        (Gathered){ number, segment, gather, all };
    return l->n_gathered - 1;
}
