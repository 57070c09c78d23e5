// SPDX-License-Identifier: Apache-2.0
// Parameters that ranks share: the table of buckets, and what a step does with it. Every rank runs
// the same plan and has another shard, so that what is exchanged, added up and gathered are whole
// buckets here, whoever the rank is. Rules are listed in check.c.
#include "runtime/plan/check.h"

#include <math.h>
#include <stdlib.h>

#define REFUSE_BUCKET(number, format, ...)                                                         \
    REFUSE("buckets", "bucket %u: " format, number, __VA_ARGS__)

/* The table ----------------------------------------------------------------------------------- */

static int32_t members(const Plan *plan, const PlanBucket *bucket) {
    return plan_group_size(plan, (PlanGroup)bucket->group);
}

// Where the bucket before ends.
typedef struct Ends {
    int64_t row, grads, shards;
} Ends;

static Status check_bucket(const Plan *plan, uint32_t i, const Ends *ends) {
    const PlanBucket *bucket = &plan->buckets[i];
    if (bucket->group != GROUP_dp && bucket->group != GROUP_edp)
        REFUSE_BUCKET(i, "expected group dp or edp, found number %d", bucket->group);
    if (!isfinite(bucket->lr) || !isfinite(bucket->decay) || bucket->lr < 0 || bucket->decay < 0)
        REFUSE_BUCKET(i, "expected finite decay and lr, found %g and %g", bucket->decay,
                      bucket->lr);
    int64_t n = members(plan, bucket);
    if (bucket->offset != ends->row || bucket->bytes < 1 ||
        bucket->bytes > INT64_MAX / 4 - ends->row || bucket->bytes % (n * PLAN_GRAIN))
        REFUSE_BUCKET(i,
                      "expected to begin at %lld with a multiple of %lld bytes, found %lld at %lld",
                      (long long)ends->row, (long long)(n * PLAN_GRAIN), (long long)bucket->bytes,
                      (long long)bucket->offset);
    bool front = n == 1 || bucket->sharded; // its gradients lie where their sums do
    if (bucket->shard != ends->shards || bucket->grads != ends->grads ||
        (front && ends->grads != ends->shards))
        REFUSE_BUCKET(
            i,
            "expected its shard at %lld and its gradients at %lld, of groups of one and sharded "
            "ones at the same, found %lld and %lld",
            (long long)ends->shards, (long long)ends->grads, (long long)bucket->shard,
            (long long)bucket->grads);
    if (bucket->sharded && n == 1)
        REFUSE_BUCKET(i, "expected to be whole in a group of %lld", (long long)n);
    if (bucket->weights == -1) return OK;
    if (!front && bucket->weights >= 0 && bucket->weights % PLAN_GRAIN == 0) return OK;
    REFUSE_BUCKET(
        i,
        "expected weights of a group of several, in steps of %d, found them at %lld of %lld ranks",
        PLAN_GRAIN, (long long)bucket->weights, (long long)n);
}

static int64_t bytes_of(const PlanParam *param) {
    return checked_bytes(param->dims, param->n_dims, (int64_t)sizeof(float));
}

static Status check_member(const Plan *plan, const PlanParam *param) {
    const PlanBucket *bucket = plan_bucket(plan, param);
    int64_t bytes = bytes_of(param);
    if (!bucket || param->grad % PLAN_GRAIN || bytes > bucket->offset + bucket->bytes - param->grad)
        REFUSE("buckets",
               "parameter \"%s\": expected its gradient in a bucket, found %lld bytes at %lld",
               param->name, (long long)bytes, (long long)param->grad);
    PlanGroup group = param->per_expert ? GROUP_edp : GROUP_dp;
    if (bucket->group != group || bucket->lr != param->lr || bucket->decay != param->decay)
        REFUSE("buckets",
               "parameter \"%s\": expected a bucket of group %s, decay %g, lr %g, found %s, %g, %g",
               param->name, plan_group_words[group], param->decay, param->lr,
               plan_group_words[bucket->group], bucket->decay, bucket->lr);
    int64_t offset = bucket->weights < 0 ? -1 : bucket->weights + param->grad - bucket->offset;
    if (param->offset == offset) return OK;
    REFUSE("buckets", "parameter \"%s\": expected weights at %lld (-1: none), found %lld",
           param->name, (long long)offset, (long long)param->offset);
}

// Parameters share no number of a bucket, and buckets no byte of weights with anything.
static Status check_apart(const Plan *plan, Arena *scratch) {
    Spans grads = { 0 }, weights = { 0 };
    int64_t sum[2] = { 0 }, joined[2] = { 0 };
    for (uint32_t i = 0; i < plan->n_buckets; i++) {
        const PlanBucket *bucket = &plan->buckets[i];
        if (bucket->weights < 0) continue;
        spans_add(&weights, scratch, bucket->weights, bucket->bytes);
        sum[1] += bucket->bytes;
    }
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        bool state = param->is_state;
        spans_add(state ? &weights : &grads, scratch, state ? param->offset : param->grad,
                  bytes_of(param));
        sum[state] += bytes_of(param);
    }
    Spans *both[] = { &grads, &weights };
    for (int k = 0; k < 2; k++) {
        spans_merge(both[k]);
        for (uint32_t i = 0; i < both[k]->n; i++)
            joined[k] += both[k]->items[i].end - both[k]->items[i].begin;
        if (sum[k] != joined[k])
            REFUSE("buckets", "expected %s apart, found %lld bytes over %lld",
                   k ? "buckets and states in weights" : "parameters in grads", (long long)sum[k],
                   (long long)joined[k]);
    }
    return OK;
}

Status check_buckets(const Plan *plan, Arena *scratch) {
    Ends ends = { 0 };
    bool trains = plan_program(plan, "step") != NULL;
    if (plan->n_buckets && plan_ranks(plan) == 1)
        REFUSE("buckets", "expected none on one rank, found %u", plan->n_buckets);
    for (uint32_t i = 0; i < plan->n_buckets; i++) {
        const PlanBucket *bucket = &plan->buckets[i];
        TRY(check_bucket(plan, i, &ends));
        ends.row += bucket->bytes;
        ends.shards += plan_shard_bytes(plan, bucket);
        ends.grads += bucket->sharded ? plan_shard_bytes(plan, bucket) : bucket->bytes;
    }
    if (plan->n_buckets && ends.grads != plan->n_trained * (int64_t)sizeof(float))
        REFUSE("buckets", "expected them to hold the %lld bytes of grads, found %lld",
               (long long)(plan->n_trained * (int64_t)sizeof(float)), (long long)ends.grads);
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        if (plan->n_buckets && param->is_state && param->grad != -1)
            REFUSE("buckets", "state \"%s\": expected no gradient, found one at %lld", param->name,
                   (long long)param->grad);
        if (plan->n_buckets && !param->is_state) TRY(check_member(plan, param));
        if (!plan->n_buckets && !param->is_state && trains && plan_ranks(plan) > 1)
            REFUSE("buckets",
                   "parameter \"%s\": expected a bucket in a plan of many ranks that trains, "
                   "found none",
                   param->name);
    }
    return check_apart(plan, scratch);
}

/* A step -------------------------------------------------------------------------------------- */

typedef struct Shards {
    const ProgramCheck *c;
    uint32_t *landed; // by bucket: buffer that its gradients were exchanged into, + 1
    bool *sent;       // by bucket: their exchange has begun
    bool *done;       // by bucket: its shard holds the sum
    bool read;        // sums have been
    bool *gathered;   // by bucket: its weights hold the new masters
} Shards;

static const PlanBuffer *operand_buffer(const ProgramCheck *c, uint32_t number, uint32_t k) {
    return &c->program
                ->buffers[c->program->operands[c->program->instrs[number].operands + k].buffer];
}

static bool is_at(const PlanBuffer *buffer, Region region, int64_t offset, int64_t bytes) {
    return buffer->region == region && buffer->offset == offset && buffer->bytes == bytes;
}

static bool overlaps(const PlanBuffer *buffer, int64_t offset, int64_t bytes) {
    return buffer->offset < offset + bytes && offset < buffer->offset + buffer->bytes;
}

const PlanBucket *check_gathers(const ProgramCheck *c, uint32_t number) {
    const PlanInstr *instr = &c->program->instrs[number];
    if (instr->op != PLAN_gather) return NULL;
    for (uint32_t i = 0; i < c->plan->n_buckets; i++) {
        const PlanBucket *bucket = &c->plan->buckets[i];
        if (instr->group == bucket->group && bucket->weights >= 0 &&
            is_at(operand_buffer(c, number, 0), REGION_master, bucket->shard,
                  plan_shard_bytes(c->plan, bucket)) &&
            is_at(operand_buffer(c, number, 1), REGION_weights, bucket->weights, bucket->bytes))
            return bucket;
    }
    return NULL;
}

#define REFUSE_SHARDS(c, number, format, ...)                                                      \
    REFUSE("shards", "program \"%s\", instruction %u: " format, (c)->program->name, number,        \
           __VA_ARGS__)

static void note_exchange(Shards *s, uint32_t number) {
    const PlanInstr *instr = &s->c->program->instrs[number];
    if (instr->op != PLAN_exchange) return;
    for (uint32_t i = 0; i < s->c->plan->n_buckets; i++) {
        const PlanBucket *bucket = &s->c->plan->buckets[i];
        if (instr->group != bucket->group ||
            !is_at(operand_buffer(s->c, number, 0), REGION_grads, bucket->grads, bucket->bytes))
            continue;
        s->sent[i] = true;
        if (instr->half != HALF_start)
            s->landed[i] = s->c->program->operands[instr->operands + 1].buffer + 1;
    }
}

// After the microbatches only sums of exchanged buckets are written into grads, over nothing that
// is still to be exchanged.
static Status check_sum(Shards *s, uint32_t number, const PlanBuffer *to) {
    const Plan *plan = s->c->plan;
    const PlanInstr *instr = &s->c->program->instrs[number];
    bool sums = instr->op == PLAN_launch && instr->n_operands == 2 &&
                !strcmp(plan->kernels[instr->kernel].family, "reduce");
    uint32_t from = s->c->program->operands[instr->operands].buffer + 1, found = plan->n_buckets;
    for (uint32_t i = 0; i < plan->n_buckets; i++) {
        const PlanBucket *bucket = &plan->buckets[i];
        bool own = is_at(to, REGION_grads, bucket->shard, plan_shard_bytes(plan, bucket));
        if (sums && own && s->landed[i] == from && !s->done[i])
            found = i;
        else if (!bucket->sharded && members(plan, bucket) > 1 && !s->landed[i] &&
                 overlaps(to, bucket->grads, bucket->bytes))
            REFUSE_SHARDS(s->c, number,
                          "expected the gradients of bucket %u to be exchanged before \"%s\" is "
                          "written over them",
                          i, to->name);
    }
    if (found == plan->n_buckets)
        REFUSE_SHARDS(s->c, number,
                      "expected the sum of an exchanged bucket, as large as its shard and there, "
                      "found \"%s\"",
                      to->name);
    s->done[found] = true;
    return OK;
}

static Status check_all_summed(const Shards *s, uint32_t number) {
    for (uint32_t i = 0; i < s->c->plan->n_buckets; i++) {
        if (!s->done[i])
            REFUSE_SHARDS(s->c, number,
                          "expected the gradients of bucket %u added up before, found them not", i);
    }
    return OK;
}

// What another stage adds to the gradient of a parameter that both read comes before all else.
static Status check_added(const Shards *s, uint32_t number, const PlanBuffer *to) {
    for (uint32_t i = 0; i < s->c->plan->n_buckets; i++) {
        const PlanBucket *bucket = &s->c->plan->buckets[i];
        if (overlaps(to, bucket->grads, bucket->bytes) && (s->sent[i] || s->read))
            REFUSE_SHARDS(s->c, number,
                          "expected \"%s\" to be added to before gradients of bucket %u are read",
                          to->name, i);
    }
    return OK;
}

static Status check_write(Shards *s, uint32_t number, const PlanBuffer *to, uint8_t mode) {
    const Plan *plan = s->c->plan;
    if (to->region == REGION_grads && mode == OPERAND_ADD && s->c->pipelined)
        return check_added(s, number, to);
    if (to->region == REGION_grads) return check_sum(s, number, to);
    if (to->region == REGION_master) {
        memset(s->gathered, 0, plan->n_buckets * sizeof *s->gathered);
        return check_all_summed(s, number);
    }
    if (to->region != REGION_weights) return OK;
    const PlanBucket *bucket = check_gathers(s->c, number);
    if (bucket) s->gathered[bucket - plan->buckets] = true;
    for (uint32_t i = 0; !bucket && i < plan->n_buckets; i++) {
        const PlanBucket *other = &plan->buckets[i];
        if (other->weights >= 0 && overlaps(to, other->weights, other->bytes))
            REFUSE_SHARDS(
                s->c, number,
                "expected weights of bucket %u to be gathered from its masters, found \"%s\"", i,
                to->name);
    }
    return OK;
}

// Sums lie at the front of grads: only they, or what is exchanged, are read after the microbatches.
static Status check_read(Shards *s, uint32_t number, const PlanBuffer *from) {
    if (from->region != REGION_grads || s->c->program->instrs[number].op == PLAN_exchange)
        return OK;
    s->read = true;
    if (from->offset + from->bytes > plan_master_bytes(s->c->plan))
        REFUSE_SHARDS(s->c, number,
                      "expected to read sums, the first %lld bytes of grads, found \"%s\"",
                      (long long)plan_master_bytes(s->c->plan), from->name);
    return check_all_summed(s, number);
}

// Microbatches add to gradients that have not been sent, where no sum has come to lie.
static Status check_body(const Shards *s, uint32_t number, const PlanBuffer *to, uint8_t mode) {
    const Plan *plan = s->c->plan;
    for (uint32_t i = 0; to->region == REGION_grads && mode != OPERAND_READ && i < plan->n_buckets; i++) {
        const PlanBucket *bucket = &plan->buckets[i];
        bool whole = members(plan, bucket) > 1 && !bucket->sharded;
        if ((s->sent[i] && overlaps(to, bucket->grads, bucket->bytes)) ||
            (whole && s->done[i] && overlaps(to, bucket->shard, plan_shard_bytes(plan, bucket))))
            REFUSE_SHARDS(s->c, number,
                          "expected \"%s\" to be added to before gradients of bucket %u are exchanged",
                          to->name, i);
    }
    return OK;
}

static Status check_operands_of(Shards *s, uint32_t number, Spans *masters) {
    const ProgramCheck *c = s->c;
    const PlanInstr *instr = &c->program->instrs[number];
    bool body = c->phase[number] == PHASE_BODY && !instr->last;
    for (uint32_t k = 0; k < instr->n_operands; k++) {
        const PlanBuffer *buffer = operand_buffer(c, number, k);
        uint8_t mode = c->program->operands[instr->operands + k].mode;
        if (body) {
            TRY(check_body(s, number, buffer, mode));
        } else if (mode == OPERAND_READ) {
            TRY(check_read(s, number, buffer));
        } else {
            TRY(check_write(s, number, buffer, mode));
            if (buffer->region == REGION_master)
                spans_add(masters, c->scratch, buffer->offset, buffer->bytes);
        }
    }
    if (!body) note_exchange(s, number);
    return OK;
}

// All rows from the first one on that does anything of this.
static Status walk_shards(Shards *s, Spans *masters) {
    const PlanProgram *program = s->c->program;
    for (uint32_t r = check_once_from(s->c); r < program->n_rows; r++) {
        const PlanSegment *segment = &program->segments[program->rows[r].segment];
        for (int64_t i = segment->first; i < (int64_t)segment->first + segment->n; i++)
            if (check_runs(s->c, &program->instrs[i], r))
                TRY(check_operands_of(s, (uint32_t)i, masters));
    }
    return OK;
}

Status check_shards(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    uint32_t n = c->plan->n_buckets;
    Shards s = { .c = c,
                 .sent = ARENA_ARRAY(c->scratch, bool, n),
                 .landed = ARENA_ARRAY(c->scratch, uint32_t, n),
                 .done = ARENA_ARRAY(c->scratch, bool, n),
                 .gathered = ARENA_ARRAY(c->scratch, bool, n) };
    Spans masters = { 0 };
    for (uint32_t i = 0; i < n; i++)
        s.done[i] = c->plan->buckets[i].sharded || members(c->plan, &c->plan->buckets[i]) == 1;
    TRY(walk_shards(&s, &masters));
    spans_merge(&masters);
    if (!spans_cover(&masters, 0, plan_master_bytes(c->plan)))
        REFUSE(
            "shards",
            "program \"%s\": expected an update of all %lld bytes of masters, found a part without",
            program->name, (long long)plan_master_bytes(c->plan));
    for (uint32_t i = 0; i < n; i++) {
        if (c->plan->buckets[i].weights >= 0 && !s.gathered[i])
            REFUSE("shards",
                   "program \"%s\": expected weights of bucket %u to be gathered from the new "
                   "masters, found them not",
                   program->name, i);
    }
    return OK;
}
