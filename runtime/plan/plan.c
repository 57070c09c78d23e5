// SPDX-License-Identifier: Apache-2.0
// A plan's life and its small look-ups. Everything a plan holds lives in its arena.
#include "runtime/plan/plan.h"

Plan *plan_create(void) {
    Arena *arena = arena_create();
    Plan *plan = ARENA_NEW(arena, Plan);
    plan->arena = arena;
    plan->model = "";
    plan->target = "cpu";
    for (int axis = 0; axis < N_AXES; axis++) plan->mesh.size[axis] = 1;
    plan->row_align = 1;
    return plan;
}

void plan_destroy(Plan *plan) {
    if (plan) arena_destroy(plan->arena);
}

int64_t plan_peak(const Plan *plan) {
    int64_t sum = 0;
    for (int region = 0; region < N_REGIONS; region++) sum += plan->region_bytes[region];
    return sum;
}

PlanProgram *plan_program(const Plan *plan, const char *name) {
    for (uint32_t i = 0; i < plan->n_programs; i++) {
        if (!strcmp(plan->programs[i].name, name)) return &plan->programs[i];
    }
    return NULL;
}

static const uint8_t group_sides[N_GROUPS] = {
#define X(name, set) set,
    PLAN_GROUPS(X)
#undef X
};

bool plan_group_along(PlanGroup group, int side) {
    return group_sides[group] >> side & 1;
}

int32_t plan_group_size(const Plan *plan, PlanGroup group) {
    int32_t n = 1;
    for (int side = 0; side < N_SIDES; side++)
        if (plan_group_along(group, side)) n *= plan_side(&plan->mesh, side);
    return n;
}

bool plan_group_holds(PlanGroup group, PlanGroup inner) {
    return (group_sides[group] & group_sides[inner]) == group_sides[inner];
}

int64_t plan_window(const Plan *plan) {
    int64_t end = 0;
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const PlanProgram *program = &plan->programs[p];
        for (uint32_t i = 0; i < program->n_buffers; i++) {
            const PlanBuffer *buffer = &program->buffers[i];
            for (int32_t slot = 0; buffer->region == REGION_sym && slot <= buffer->n_further; slot++)
                end = max_i64(end, plan_offset(buffer, slot) + buffer->bytes);
        }
    }
    return round_up(end, PLAN_GRAIN);
}

int64_t plan_tables(const Plan *plan) {
    int64_t bytes = 0;
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const PlanProgram *program = &plan->programs[p];
        for (uint32_t i = 0; i < program->n_operands; i++) {
            const PlanOperand *operand = &program->operands[i];
            if (operand_is_remote(operand->mode))
                bytes += 8 * (int64_t)plan_group_size(plan, (PlanGroup)operand->group) *
                         (1 + program->buffers[operand->buffer].n_further);
        }
    }
    return bytes;
}

int32_t plan_slots(const PlanProgram *program) {
    int32_t slots = 1;
    for (uint32_t i = 0; i < program->n_rows; i++)
        if (program->rows[i].slot >= slots && (uint32_t)program->rows[i].slot < program->n_rows) slots = program->rows[i].slot + 1;
    return slots;
}

bool *plan_last_rows(const PlanProgram *program, Arena *arena) {
    bool *last = ARENA_ARRAY(arena, bool, program->n_rows + 1),
         *later = ARENA_ARRAY(arena, bool, program->n_segments + 1);
    for (uint32_t r = program->n_rows; r-- > 0;) {
        uint32_t segment = program->rows[r].segment;
        last[r] = !later[segment];
        later[segment] = true;
    }
    return last;
}

int32_t plan_ranks(const Plan *plan) {
    return plan_group_size(plan, GROUP_world);
}

int64_t plan_numbers(const PlanParam *param) {
    int64_t n = 1;
    for (int i = 0; i < param->n_dims; i++) n *= param->dims[i];
    return n;
}

int64_t plan_shard_bytes(const Plan *plan, const PlanBucket *bucket) {
    return bucket->bytes / plan_group_size(plan, (PlanGroup)bucket->group);
}

int64_t plan_master_bytes(const Plan *plan) {
    const PlanBucket *last = plan->n_buckets ? &plan->buckets[plan->n_buckets - 1] : NULL;
    return last ? last->shard + plan_shard_bytes(plan, last) : 0;
}

const PlanBucket *plan_bucket(const Plan *plan, const PlanParam *param) {
    for (uint32_t i = 0; !param->is_state && i < plan->n_buckets; i++) {
        const PlanBucket *bucket = &plan->buckets[i];
        if (param->grad >= bucket->offset && param->grad < bucket->offset + bucket->bytes)
            return bucket;
    }
    return NULL;
}

int64_t plan_gradient(const Plan *plan, const PlanParam *param) {
    const PlanBucket *bucket = plan_bucket(plan, param);
    if (!bucket) return param->grad;
    return bucket->sharded ? -1 : bucket->grads + param->grad - bucket->offset;
}

Region plan_master(const Plan *plan) {
    return plan->n_buckets ? REGION_master : REGION_weights;
}

PlanPart plan_part(const Plan *plan, const PlanParam *param, int32_t member) {
    enum { NUMBER = sizeof(float) };
    const PlanBucket *bucket = plan_bucket(plan, param);
    int64_t numbers = plan_numbers(param);
    if (!bucket) return (PlanPart){ 0, numbers, param->offset };
    int64_t shard = plan_shard_bytes(plan, bucket), from = bucket->offset + member * shard;
    int64_t begin = max_i64(param->grad, from),
            end = min_i64(param->grad + numbers * NUMBER, from + shard);
    if (end <= begin) return (PlanPart){ .at = bucket->shard };
    return (PlanPart){ (begin - param->grad) / NUMBER, (end - begin) / NUMBER,
                       bucket->shard + begin - from };
}

const PlanRepeat *plan_repeat(const PlanProgram *program, int64_t instr) {
    for (uint32_t i = 0; i < program->n_repeats; i++) {
        const PlanRepeat *repeat = &program->repeats[i];
        if (instr >= repeat->first && instr < (int64_t)repeat->first + repeat->n) return repeat;
    }
    return NULL;
}

int32_t plan_trips(const PlanProgram *program, int64_t instr) {
    const PlanRepeat *repeat = plan_repeat(program, instr);
    return !repeat ? 1 : repeat->count ? 0 : repeat->trip;
}

bool plan_target(const char *text, PlanTarget *out) {
    *out = (PlanTarget){ 0 };
    if (!strcmp(text, "cpu")) return true;
    static const char prefix[] = "cuda:sm_";
    if (strncmp(text, prefix, sizeof prefix - 1)) return false;
    const char *at = text + sizeof prefix - 1;
    int digits = 0;
    while (at[digits] >= '0' && at[digits] <= '9' && digits < 4) out->sm = out->sm * 10 + at[digits++] - '0';
    if (digits < 2 || *at == '0') return false;
    if (at[digits] == 'a' || at[digits] == 'f') out->letter = at[digits++];
    out->cuda = !at[digits];
    return out->cuda;
}

int32_t plan_shared_bytes(const PlanTarget *target) {
    if (!target->cuda) return 0;
    if (target->sm >= 90 && target->sm < 120) return 227 << 10;
    return (target->sm == 80 || target->sm == 87 ? 163 : 99) << 10;
}

int dtype_bytes(Dtype dtype) {
    static const int bytes[N_DTYPES] = {
#define X(name, text, c_type, size) size,
        PLAN_DTYPES(X)
#undef X
    };
    return bytes[dtype];
}

const char *dtype_name(Dtype dtype) {
    static const char *const names[N_DTYPES] = {
#define X(name, text, c_type, size) text,
        PLAN_DTYPES(X)
#undef X
    };
    return names[dtype];
}

int32_t plan_expert(const PlanParam *param, int32_t member, int32_t i) {
    if (!param->experts) return i;
    if (!param->owner) return member * (int32_t)param->dims[0] + i;
    int32_t e = 0;
    for (; e < param->experts; e++)
        if (param->owner[e] == member && i-- == 0) break;
    return e;
}

int64_t plan_whole_numbers(const PlanParam *param) {
    int64_t here = plan_numbers(param);
    return param->experts ? here / param->dims[0] * param->experts : here;
}

int64_t plan_whole_number(const PlanParam *param, int32_t member, int64_t i) {
    if (!param->experts) return i;
    int64_t each = plan_numbers(param) / param->dims[0];
    return plan_expert(param, member, (int32_t)(i / each)) * each + i % each;
}
