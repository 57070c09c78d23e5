// SPDX-License-Identifier: Apache-2.0
// Buckets that no rank keeps whole: where their parameters are read from, and how their gradients
// get into this rank's shard. Rules are listed in check.c.
#include "runtime/plan/check.h"

#define REFUSE_SHARDED(c, number, format, ...)                                                     \
    REFUSE("sharded", "program \"%s\", instruction %u: " format, (c)->program->name, number,       \
           __VA_ARGS__)

// A part of a buffer that a microbatch adds to.
typedef struct Addend {
    uint32_t buffer;
    int64_t offset, bytes;
} Addend;

typedef struct Sharded {
    const ProgramCheck *c;
    uint32_t *gathered; // by buffer: bucket whose masters it holds, + 1
    uint32_t *rounded;  // by buffer: bucket of which it holds this rank's masters in bf16, + 1
    uint32_t *source;   // by buffer: what was exchanged into it, + 1
    bool *cleared, *sent;
    Addend *addends;
    uint32_t n_addends, cap_addends;
    Spans covered; // of the row of buckets
} Sharded;

static const PlanBuffer *buffer_of(const Sharded *s, const PlanOperand *operand) {
    return &s->c->program->buffers[operand->buffer];
}

// The sharded bucket whose shard lies at these bytes of a region: the same in master and grads; its
// number + 1.
static uint32_t bucket_at(const Plan *plan, const PlanBuffer *buffer) {
    for (uint32_t i = 0; i < plan->n_buckets; i++) {
        const PlanBucket *bucket = &plan->buckets[i];
        if (bucket->sharded && buffer->offset == bucket->shard &&
            buffer->bytes == plan_shard_bytes(plan, bucket))
            return i + 1;
    }
    return 0;
}

static bool touches_sharded(const Plan *plan, const PlanBuffer *buffer) {
    for (uint32_t i = 0; i < plan->n_buckets; i++) {
        const PlanBucket *bucket = &plan->buckets[i];
        if (bucket->sharded && buffer->offset < bucket->shard + plan_shard_bytes(plan, bucket) &&
            bucket->shard < buffer->offset + buffer->bytes)
            return true;
    }
    return false;
}

// each: bytes of a number there.
static bool is_parameter(const Plan *plan, const PlanBucket *bucket, const PlanOperand *operand, int64_t each) {
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        if (!param->is_state && plan_bucket(plan, param) == bucket &&
            (param->grad - bucket->offset) / (int64_t)sizeof(float) * each == operand->offset &&
            plan_numbers(param) * each == operand->bytes)
            return true;
    }
    return false;
}

static Status check_crossed(Sharded *s, uint32_t number, const PlanInstr *instr,
                            const PlanOperand *operands) {
    if (instr->op != PLAN_gather && instr->op != PLAN_exchange) return OK;
    if (instr->half == HALF_wait) return OK;
    const Plan *plan = s->c->plan;
    const PlanBuffer *from = buffer_of(s, &operands[0]), *to = buffer_of(s, &operands[1]);
    if (instr->op == PLAN_gather && from->region == REGION_master && touches_sharded(plan, from)) {
        uint32_t bucket = bucket_at(plan, from);
        if (!bucket || plan->buckets[bucket - 1].group != instr->group || to->region != REGION_act)
            REFUSE_SHARDED(s->c, number,
                           "expected the masters of a bucket gathered over its group into act, "
                           "found \"%s\" into \"%s\"",
                           from->name, to->name);
        s->gathered[operands[1].buffer] = bucket;
    } else if (instr->op == PLAN_gather && s->rounded[operands[0].buffer]) {
        uint32_t bucket = s->rounded[operands[0].buffer];
        if (plan->buckets[bucket - 1].group != instr->group || to->region != REGION_act)
            REFUSE_SHARDED(s->c, number,
                           "expected rounded masters of a bucket gathered over its group into act, found \"%s\" "
                           "into \"%s\"", from->name, to->name);
        s->gathered[operands[1].buffer] = bucket;
    }
    if (instr->op == PLAN_exchange) {
        s->source[operands[1].buffer] = operands[0].buffer + 1;
        s->sent[operands[0].buffer] = true;
    }
    return OK;
}

// The sum of what the group exchanged, into the shard of its bucket.
static Status check_sum(Sharded *s, uint32_t number, const PlanInstr *instr,
                        const PlanOperand *operands) {
    const Plan *plan = s->c->plan;
    const PlanBuffer *to = buffer_of(s, &operands[1]);
    uint32_t bucket = bucket_at(plan, to), source = s->source[operands[0].buffer];
    bool reduces =
        !strcmp(plan->kernels[instr->kernel].family, "reduce") && operands[1].mode == OPERAND_ADD;
    const PlanBuffer *whole = source ? &s->c->program->buffers[source - 1] : NULL;
    if (!bucket || !reduces || !whole || whole->bytes != plan->buckets[bucket - 1].bytes ||
        !s->cleared[source - 1])
        REFUSE_SHARDED(s->c, number,
                       "expected what was cleared, added to and exchanged to be added to the shard "
                       "of its bucket, found \"%s\"",
                       to->name);
    for (uint32_t i = 0; i < s->n_addends; i++) {
        const Addend *addend = &s->addends[i];
        if (addend->buffer != source - 1) continue;
        spans_add(&s->covered, s->c->scratch, plan->buckets[bucket - 1].offset + addend->offset,
                  addend->bytes);
    }
    return OK;
}

static Status check_operand(Sharded *s, uint32_t number, const PlanInstr *instr,
                            const PlanOperand *operand) {
    const Plan *plan = s->c->plan;
    const PlanBuffer *buffer = buffer_of(s, operand);
    uint32_t bucket = s->gathered[operand->buffer];
    if (bucket &&
        (operand->mode != OPERAND_READ ||
         !is_parameter(plan, &plan->buckets[bucket - 1], operand, dtype_bytes((Dtype)buffer->dtype))))
        REFUSE_SHARDED(s->c, number,
                       "expected to read one parameter of \"%s\", found %lld bytes from %lld",
                       buffer->name, (long long)operand->bytes, (long long)operand->offset);
    if (buffer->region != REGION_act) return OK;
    if (operand->mode == OPERAND_WRITE)
        s->cleared[operand->buffer] = !strcmp(plan->kernels[instr->kernel].family, "clear");
    if (operand->mode != OPERAND_ADD) return OK;
    if (s->sent[operand->buffer])
        REFUSE_SHARDED(s->c, number, "expected gradients in \"%s\" before they are exchanged",
                       buffer->name);
    int64_t bytes = operand->bytes ? operand->bytes : buffer->bytes;
    *ARENA_PUSH(s->c->scratch, s->addends, s->n_addends, s->cap_addends) =
        (Addend){ operand->buffer, operand->offset, bytes };
    return OK;
}

// A sum of one rank is what it reads, rounded where the result is bf16.
static void note_rounded(Sharded *s, const PlanInstr *instr, const PlanOperand *operands) {
    const Plan *plan = s->c->plan;
    for (uint32_t k = 0; k < instr->n_operands; k++)
        if (operands[k].mode != OPERAND_READ) s->rounded[operands[k].buffer] = 0;
    if (instr->n_operands != 2 || strcmp(plan->kernels[instr->kernel].family, "reduce") ||
        operands[1].mode != OPERAND_WRITE)
        return;
    const PlanBuffer *from = buffer_of(s, &operands[0]), *to = buffer_of(s, &operands[1]);
    if (from->region == REGION_master && to->region == REGION_act && to->dtype == DTYPE_BF16 &&
        to->bytes * 2 == from->bytes)
        s->rounded[operands[1].buffer] = bucket_at(plan, from);
}

static Status check_instr(Sharded *s, uint32_t number) {
    const ProgramCheck *c = s->c;
    const PlanInstr *instr = &c->program->instrs[number];
    const PlanOperand *operands = check_operands(c->program, instr);
    if (instr->op != PLAN_launch) return check_crossed(s, number, instr, operands);
    note_rounded(s, instr, operands);
    for (uint32_t k = 0; k < instr->n_operands; k++) {
        const PlanBuffer *buffer = buffer_of(s, &operands[k]);
        TRY(check_operand(s, number, instr, &operands[k]));
        if (c->phase[number] == PHASE_BODY && buffer->region == REGION_grads &&
            operands[k].mode != OPERAND_READ && touches_sharded(c->plan, buffer)) {
            if (instr->n_operands != 2 || k != 1)
                REFUSE_SHARDED(c, number, "expected a sum over ranks to write \"%s\"",
                               buffer->name);
            TRY(check_sum(s, number, instr, operands));
        }
    }
    return OK;
}

Status check_sharded(const ProgramCheck *c) {
    const Plan *plan = c->plan;
    uint32_t n = c->program->n_buffers;
    bool any = false;
    for (uint32_t i = 0; i < plan->n_buckets; i++) any |= plan->buckets[i].sharded;
    if (!any) return OK;
    Sharded s = { .c = c,
                  .gathered = ARENA_ARRAY(c->scratch, uint32_t, n),
                  .rounded = ARENA_ARRAY(c->scratch, uint32_t, n),
                  .source = ARENA_ARRAY(c->scratch, uint32_t, n),
                  .cleared = ARENA_ARRAY(c->scratch, bool, n),
                  .sent = ARENA_ARRAY(c->scratch, bool, n) };
    for (uint32_t i = 0; i < c->program->n_instrs; i++) TRY(check_instr(&s, i));
    spans_merge(&s.covered);
    for (uint32_t i = 0; c->is_step && i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        const PlanBucket *bucket = plan_bucket(plan, param);
        int64_t bytes = plan_numbers(param) * (int64_t)sizeof(float);
        if (bucket && bucket->sharded && !spans_cover(&s.covered, param->grad, bytes))
            REFUSE("sharded",
                   "program \"%s\", parameter \"%s\": expected its gradient made, exchanged and "
                   "summed in a microbatch, found a part without",
                   c->program->name, param->name);
    }
    return OK;
}
