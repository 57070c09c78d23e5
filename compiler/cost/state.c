// SPDX-License-Identifier: Apache-2.0
// Where parameters live and what that costs: docs/layouts.md in numbers.
#include <math.h>
#include <string.h>

#include "compiler/cost/profile.h"

#define MOEC                                                                                       \
    .name = "moec", .master = 12, .gradient = 4, .weight = 2, .narrow_orders = 2, .packs = true, .other = 4,         \
    .gathers_last = true, .exchanges_parts = true, .gathered = 4, .exchanged = 4, .shard_traffic = 36
static const CostStack on_cpus = { MOEC, .orders = 2, .whole_traffic = 16 };
static const CostStack on_gpus = { MOEC, .orders = 1, .whole_traffic = 10 };

const CostStack *cost_stack_moec(const CostDevice *device) {
    return strcmp(device->arch, "cpu") ? &on_gpus : &on_cpus;
}

// Of a number of a matrix, in all orders.
static double weight_bytes(const CostStack *stack, const CostChoice *choice) {
    if (choice->precision == PRECISION_MXFP8) return (1 + 1.0 / 32) * stack->narrow_orders; // elements and scales of 32
    return (choice->precision == PRECISION_FP32 ? 4 : stack->weight) * stack->orders;
}

static double bytes_of(const CostStack *stack, const CostChoice *choice, double matrix, double other, bool fsdp,
                       double ranks) {
    double numbers = matrix + other;
    if (fsdp && ranks > 1) return numbers * (stack->master + stack->gradient) / ranks;
    double read = matrix * weight_bytes(stack, choice);
    if (ranks > 1) read += other * stack->other; // one rank reads its masters
    return numbers * (stack->master / ranks + stack->gradient) + read;
}

static double expert_ranks(const CostChoice *choice, int32_t dp) {
    return fmax(dp / (choice->ep > 0 ? choice->ep : 1), 1);
}

CostChoice cost_settled(CostChoice choice, int32_t dp) {
    if (dp <= 1) choice.params = PARAMS_RESIDENT;
    if (expert_ranks(&choice, dp) <= 1) choice.expert_params = PARAMS_RESIDENT;
    return choice;
}

int64_t cost_state_bytes(const CostStack *stack, const CostPart *part, const CostChoice *choice, int32_t dp) {
    double bytes = bytes_of(stack, choice, part->dense_matrix, part->dense_other, choice->params, dp) +
                   bytes_of(stack, choice, part->expert_matrix, part->expert_other, choice->expert_params,
                            expert_ranks(choice, dp));
    return (int64_t)ceil(bytes);
}

int64_t cost_update_bytes(const CostProfile *profile, const CostPart *part, const CostChoice *choice, int32_t dp) {
    const double bucket = 32 << 20; // of small parameters together
    double ranks = expert_ranks(choice, dp), most = 0;
    if (dp > 1 && !choice->params) most = fmax(4 * part->dense_largest, fmin(4 * profile->dense_numbers, bucket));
    if (ranks > 1 && !choice->expert_params && profile->expert_numbers > 0) {
        double all = profile->expert_numbers / (choice->ep > 0 ? choice->ep : 1);
        most = fmax(most, fmax(4 * part->expert_largest, fmin(4 * all, bucket)));
    }
    return (int64_t)ceil(most);
}

// Sharded matrices are rounded to what kernels read in bf16 before they are gathered.
static double gathered_bytes(const CostStack *stack, const CostChoice *choice, double matrix, double other,
                             bool divided) {
    bool rounded = divided && choice->precision != PRECISION_FP32;
    return matrix * (rounded ? fmin(stack->gathered, 2) : stack->gathered) + other * stack->gathered;
}

static void add_group(const CostCluster *cluster, const CostStack *stack, const CostChoice *choice, double matrix,
                      double other, bool fsdp, CostGroup group, CostState *s) {
    double numbers = matrix + other;
    if (numbers <= 0) return;
    const CostDevice *device = &cluster->device;
    double gather = cost_collective_s(cluster, COLLECTIVE_gather, group,
                                      gathered_bytes(stack, choice, matrix, other, fsdp && group.members > 1));
    double exchange = cost_collective_s(cluster, stack->exchanges_parts ? COLLECTIVE_all_to_all : COLLECTIVE_reduce_scatter,
                                        group, numbers * stack->exchanged);
    double ranks = group.members > 1 ? group.members : 1, stream = device->bytes_per_s * device->stream;
    bool divided = fsdp && ranks > 1;
    if (divided) {
        s->microbatch_s += 2 * gather + exchange;
    } else {
        s->step_s += gather + exchange;
        s->gather_s += gather;
        if (ranks > 1) s->exchanged_bytes += numbers * stack->exchanged;
        s->work_s += numbers * stack->accumulated / stream;
    }
    double traffic = numbers / ranks * stack->shard_traffic + (divided ? numbers / ranks : numbers) * stack->whole_traffic;
    s->optimizer_s += traffic / (device->bytes_per_s * device->adam);
}

CostState cost_state(const CostCluster *cluster, const CostStack *stack, const CostPart *part,
                     const CostChoice *choice, int32_t dp) {
    CostState s = { .work_s = stack->packs ? part->packs_s : 0 };
    int32_t ep = choice->ep > 0 ? choice->ep : 1;
    add_group(cluster, stack, choice, part->dense_matrix, part->dense_other, choice->params, (CostGroup){ dp, 1 },
              &s);
    add_group(cluster, stack, choice, part->expert_matrix, part->expert_other, choice->expert_params,
              (CostGroup){ (int32_t)expert_ranks(choice, dp), ep }, &s);
    return s;
}

int64_t cost_stage_bytes(const CostPart *parts, int32_t n, int32_t in_flight) {
    int64_t sum = 0;
    for (int region = 0; region < 2; region++) {
        int64_t saved = 0, most = 0;
        for (int32_t i = 0; i < n; i++) {
            saved += parts[i].saved_bytes[region];
            most = max_i64(most, saved + parts[i].transient_bytes[region]);
        }
        sum += most + (in_flight > 1 ? in_flight - 1 : 0) * saved;
    }
    return sum;
}
