// SPDX-License-Identifier: Apache-2.0
// Where parameters lie. On one rank: one after another in weights, trained ones first, and the same
// in grads and moments. On many: in buckets (plan.h), of which a rank updates its shard.
//
// Whether kernels read a parameter as it is or only packed is known once kernels are described,
// which needs no address: programs are lowered that far first, and dropped; where there is one only, it goes on from
// there. So it is known which gradients are done first: their buckets come first, and cross ranks first.
#include <stdlib.h>

#include "compiler/lower/pass.h"

enum { MOST_BYTES = 32 << 20 /* of a bucket: what is gathered or exchanged at a time */ };

static int64_t param_bytes(const PlanParam *param) {
    return plan_numbers(param) * dtype_bytes(DTYPE_F32);
}

/* What a trial says ---------------------------------------------------------------------------- */

// Of a parameter: whether kernels read it as it is, and when in a step its gradient is done: segment and depth of
// the last kernel that adds to it.
typedef struct Trial {
    bool direct, wide; // as it is; packed in fp32
    int64_t done;
} Trial;

static void note_kernels(const Lower *l, Trial *trials) {
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        const Kernel *kernel = &l->kernels[k];
        for (uint32_t i = 0; i < kernel->n_binds; i++) {
            const Buffer *buffer = &l->buffers[kernel->binds[i].buffer];
            if (buffer->kind != BUFFER_PARAM && buffer->kind != BUFFER_GRADIENT) continue;
            Trial *trial = &trials[l->m->nodes[buffer->node].attr.index];
            int64_t time = ((int64_t)kernel->segment << 32) + kernel->depth;
            if (buffer->kind == BUFFER_GRADIENT) trial->done = max_i64(trial->done, time);
            else if (kernel->desc.family != FAMILY_PACK) trial->direct = true;
            else if (kernel->desc.y == DTYPE_F32) trial->wide = true;
        }
    }
}

// trials: by parameter of the model.
static bool run_trials(Lower *l, Trial *trials) {
    Shared trial = { .param_index = l->shared->param_index,
                     .has_gradient = l->shared->has_gradient,
                     .held = l->shared->held,
                     .owner = l->shared->owner };
    int64_t packed = l->plan->region_bytes[REGION_packed];
    bool done = true;
    for (int program = 0; done && program < N_PROGRAMS; program++) {
        if (!l->options->programs[program]) continue;
        Lower here = *l;
        here.shared = &trial;
        if (program == PROGRAM_STEP && l->shared->step) trial.step = model_copy(l->shared->step);
        here.trial = true;
        here.arena = arena_create();
        done = lower_start(&here, (Program)program) && lower_until_described(&here);
        if (done) note_kernels(&here, trials);
        model_destroy(here.m);
        arena_destroy(here.arena);
    }
    l->plan->region_bytes[REGION_packed] = packed;
    return done;
}

/* Buckets -------------------------------------------------------------------------------------- */

// Parameters that may share a bucket. Sharded ones: of one layer, or of what else is needed at one
// time.
typedef struct Class {
    uint8_t group;
    bool direct, sharded, rounded;
    int unit; // of the name that they have in common: bytes
    const char *name;
    double decay, lr;
} Class;

typedef struct Member {
    uint32_t class, param; // in the plan
    int32_t n;             // ranks of the group
    int place;             // groups of one, sharded ones, others
    int64_t grain;         // bytes: as many of bf16 are a plan's grain, if it is gathered so
    int64_t done;          // of others: when the gradient is; of the last in its bucket
    uint32_t bucket;       // of a class, from 0
} Member;

static int by_class(const void *a, const void *b) {
    const Member *x = a, *y = b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    if (x->class != y->class) return x->class < y->class ? -1 : 1;
    if (x->done != y->done) return x->done < y->done ? -1 : 1;
    return x->param < y->param ? -1 : x->param > y->param;
}

// Of buckets, once members have that of their bucket.
static int by_bucket(const void *a, const void *b) {
    const Member *x = a, *y = b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    if (x->done != y->done) return x->done < y->done ? -1 : 1;
    if (x->class != y->class) return x->class < y->class ? -1 : 1;
    if (x->bucket != y->bucket) return x->bucket < y->bucket ? -1 : 1;
    return x->param < y->param ? -1 : x->param > y->param;
}

// "layers.12" of "layers.12.ffn.gain", "head" of "head.w".
static int unit_bytes(const char *name) {
    size_t first = strcspn(name, "."),
           digits = name[first] ? strspn(name + first + 1, "0123456789") : 0;
    return (int)(first + (digits ? 1 + digits : 0));
}

static Class class_of(const Lower *l, uint32_t index, const Trial *trial) {
    const PlanParam *param = lower_param(l, index);
    bool sharded = lower_is_sharded(l, index);
    return (Class){ param->per_expert ? GROUP_edp : GROUP_dp,
                    trial->direct && !sharded,
                    sharded,
                    sharded && !trial->direct && !trial->wide,
                    sharded ? unit_bytes(param->name) : 0,
                    param->name,
                    param->decay,
                    param->lr };
}

static bool same_class(const Class *a, const Class *b) {
    return a->group == b->group && a->direct == b->direct && a->sharded == b->sharded &&
           a->rounded == b->rounded && a->decay == b->decay && a->lr == b->lr && a->unit == b->unit &&
           !strncmp(a->name, b->name, (size_t)a->unit);
}

static Member *list_members(Lower *l, const Trial *trials, Class *classes, uint32_t *n) {
    Plan *plan = l->plan;
    Member *members = ARENA_ARRAY(plan->arena, Member, plan->n_params);
    uint32_t n_classes = 0;
    *n = 0;
    for (uint32_t i = 0; i < l->from->n_params; i++) {
        uint32_t index = l->shared->param_index[i], c = 0;
        if (!lower_holds(l, i)) continue;
        if (plan->params[index].is_state) continue;
        Class class = class_of(l, i, &trials[i]);
        int32_t ranks = plan_group_size(plan, (PlanGroup) class.group);
        while (c < n_classes && !same_class(&classes[c], &class)) c++;
        if (c == n_classes) classes[n_classes++] = class;
        int place = ranks == 1 ? 0 : class.sharded ? 1 : 2;
        members[(*n)++] = (Member){ c, index, ranks, place, class.rounded ? 2 * PLAN_GRAIN : PLAN_GRAIN,
                                          place == 2 ? trials[i].done : 0, 0 };
    }
    if (*n) qsort(members, *n, sizeof *members, by_class);
    return members;
}

static int64_t member_bytes(const Plan *plan, const Member *member) {
    return round_up(param_bytes(&plan->params[member->param]), member->grain);
}

// Members of a class fill its buckets one after another; buckets of others go in the order in which they are done.
static void assign_buckets(const Plan *plan, Member *members, uint32_t n, int64_t most) {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        const Member *last = i ? &members[i - 1] : NULL;
        bool same = last && last->class == members[i].class && last->place == members[i].place;
        int64_t own = member_bytes(plan, &members[i]);
        bool fits = same && bytes + own <= most;
        members[i].bucket = same ? last->bucket + !fits : 0;
        bytes = fits ? bytes + own : own;
    }
    for (uint32_t i = n; i-- > 1;) {
        Member *to = &members[i - 1];
        const Member *next = &members[i];
        if (to->class == next->class && to->place == next->place && to->bucket == next->bucket) to->done = next->done;
    }
    if (n) qsort(members, n, sizeof *members, by_bucket);
}

// Where the last bucket ends.
typedef struct Ends {
    int64_t row, shards, grads;
} Ends;

// The bytes are whole grains for every member of the group; padding is nobody's.
static void close_bucket(Plan *plan, const Member *last, bool direct, Ends *ends) {
    PlanBucket *bucket = &plan->buckets[plan->n_buckets - 1];
    bucket->bytes = round_up(bucket->bytes, (int64_t)last->n * last->grain);
    bucket->shard = ends->shards;
    bucket->grads = ends->grads;
    bucket->weights = -1;
    ends->row += bucket->bytes;
    ends->shards += bucket->bytes / last->n;
    ends->grads += bucket->sharded ? bucket->bytes / last->n : bucket->bytes;
    if (!direct || last->n == 1) return;
    bucket->weights = plan->region_bytes[REGION_weights];
    plan->region_bytes[REGION_weights] += bucket->bytes;
}

static void place_in_buckets(Lower *l, const Trial *trials) {
    Plan *plan = l->plan;
    Class *classes = ARENA_ARRAY(plan->arena, Class, plan->n_params);
    uint32_t n;
    Member *members = list_members(l, trials, classes, &n);
    assign_buckets(plan, members, n, l->options->bucket ? l->options->bucket : MOST_BYTES);
    Ends ends = { 0 };
    PlanBucket *last = NULL;
    l->shared->rounded = ARENA_ARRAY(plan->arena, bool, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        PlanParam *param = &plan->params[members[i].param];
        const Class *class = &classes[members[i].class];
        int64_t bytes = member_bytes(plan, &members[i]);
        bool fits = last && members[i].class == members[i - 1].class && members[i].bucket == members[i - 1].bucket;
        if (last && !fits)
            close_bucket(plan, &members[i - 1], classes[members[i - 1].class].direct, &ends);
        if (!fits) {
            last = ARENA_PUSH(plan->arena, plan->buckets, plan->n_buckets, plan->cap_buckets);
            *last = (PlanBucket){
                class->group, class->sharded, ends.row, .decay = class->decay, .lr = class->lr
            };
        }
        l->shared->rounded[plan->n_buckets - 1] = class->rounded;
        param->grad = last->offset + last->bytes;
        last->bytes += bytes;
    }
    if (last) close_bucket(plan, &members[n - 1], classes[members[n - 1].class].direct, &ends);
    plan->n_trained = ends.grads / dtype_bytes(DTYPE_F32);
    plan->region_bytes[REGION_master] = ends.shards;
}

// Parameters of buckets that have weights lie in them as in the row.
static void place_direct(Plan *plan) {
    for (uint32_t i = 0; i < plan->n_params; i++) {
        PlanParam *param = &plan->params[i];
        const PlanBucket *bucket = plan_bucket(plan, param);
        if (bucket && bucket->weights >= 0)
            param->offset = bucket->weights + param->grad - bucket->offset;
    }
}

/* Places --------------------------------------------------------------------------------------- */

static void place_in_weights(Plan *plan, bool states) {
    for (uint32_t i = 0; i < plan->n_params; i++) {
        PlanParam *param = &plan->params[i];
        if (param->is_state != states) continue;
        param->offset = plan->region_bytes[REGION_weights];
        param->grad = states ? -1 : param->offset;
        plan->region_bytes[REGION_weights] += round_up(param_bytes(param), PLAN_GRAIN);
    }
}

static void place_after(Lower *l, const Trial *trials) {
    place_in_buckets(l, trials);
    place_direct(l->plan);
    place_in_weights(l->plan, true);
}

bool lower_place_params(Lower *l) {
    Plan *plan = l->plan;
    int n_programs = 0;
    for (int program = 0; program < N_PROGRAMS; program++) n_programs += l->options->programs[program];
    for (uint32_t i = 0; i < plan->n_params; i++)
        plan->params[i].offset = plan->params[i].grad = -1;
    if (plan_ranks(plan) == 1) {
        place_in_weights(plan, false);
        plan->n_trained = plan->region_bytes[REGION_weights] / dtype_bytes(DTYPE_F32);
        place_in_weights(plan, true);
        return true;
    }
    l->unplaced = n_programs == 1;
    if (l->unplaced) return true;
    Trial *trials = ARENA_ARRAY(plan->arena, Trial, l->from->n_params);
    if (!run_trials(l, trials)) return false;
    place_after(l, trials);
    return true;
}

void lower_place_described(Lower *l) {
    if (!l->unplaced) return;
    Trial *trials = ARENA_ARRAY(l->arena, Trial, l->from->n_params);
    note_kernels(l, trials);
    place_after(l, trials);
    l->unplaced = false;
    for (uint32_t b = 0; b < l->n_buffers; b++) {
        Buffer *buffer = &l->buffers[b];
        int64_t offset;
        if (buffer->kind != BUFFER_PARAM) continue;
        buffer->region = (uint8_t)lower_param_place(l, lower_param(l, l->m->nodes[buffer->node].attr.index), &offset);
    }
}

Region lower_param_place(const Lower *l, const PlanParam *param, int64_t *offset) {
    const PlanBucket *bucket = param->offset < 0 ? plan_bucket(l->plan, param) : NULL;
    *offset = bucket ? bucket->shard + param->grad - bucket->offset : param->offset;
    return bucket ? REGION_master : REGION_weights;
}

int32_t lower_bucket_ranks(const Lower *l, const PlanBucket *bucket) {
    return plan_group_size(l->plan, (PlanGroup)bucket->group);
}

void lower_bind_part(Lower *l, uint32_t kernel, uint32_t i, const PlanParam *param,
                     const PlanBucket *bucket) {
    Bind *bind = &l->kernels[kernel].binds[i];
    int64_t each = dtype_bytes((Dtype)l->buffers[bind->buffer].dtype);
    bind->offset = (param->grad - bucket->offset) / dtype_bytes(DTYPE_F32) * each;
    bind->bytes = plan_numbers(param) * each;
}
