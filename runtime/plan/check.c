// SPDX-License-Identifier: Apache-2.0
// What must hold of any plan before it runs. Every refusal names its rule:
//
//   head        sizes of the run are positive, sequences divide the microbatch
//   names       of parameters, kernels, programs, buffers, segments, metrics, outputs: set, unique
//   references  indices are in range, segments cover the instructions
//   sources     the text has the hash that stands beside it
//   kernels     entries and parameters are C identifiers, sources not the prelude, tiles >= 0; blocks
//               of a shape that GPUs launch, on those
//   params      shapes, numbers, alignment; none overlap; trained ones first, states after them
//   buckets     of plans of many ranks only: one after another in grads, their shards in master; every
//               trained parameter in one with its group, lr and decay; where its weights lie
//   sizes       of buffers: dimensions times type; aligned; inside the region
//   regions     as large as what lies in them, up to the end of a page
//   launch      number, types and constness of operands as the kernel's entry has them
//   crossing    what crosses ranks: number, modes and sizes of operands; another stage; in repeats
//               only where they are counted and the group has agreed on the count
//   alias       no buffer twice in an instruction that writes it
//   rows        once before, each microbatch in order, once after; every segment; names of a step. Of a
//               pipeline's stage: each segment in every microbatch once, microbatches in order; forward,
//               backward, gradients of weights; a slot is one microbatch's until its last row
//   last        what is done in last rows only lies in the microbatches of a step, writes act or grads, and
//               shares no value of act with what every row does
//   halves      a start has one wait after it, with its operands, in its row or, of last rows, later in the
//               step; between the two nobody touches what comes, or writes what goes
//   repeats     lie in one segment, ascending, apart; what their operands step over they step over
//               in whole; what is written in steps is read in steps, what each trip writes anew
//               only inside; every buffer of act they touch lives through all of it. What counts trips
//               is i32 of act that gathers alone make; then nothing is written in steps
//   lives       accesses lie inside [first, last]
//   clash       over all rows, no two buffers of act, or of sym, share bytes while both live; act's size and lower bound
//   remote      what other ranks read and write lies in sym; between uses of its bytes by several ranks,
//               over all rows, the ranks meet
//   align       with row_align above 1: expert rows are whole multiples of it, their offsets say where rows end,
//               and what other ranks have put is not read before its pads are zero
//   interface   inputs, metrics and outputs are the buffers of io, apart, of the right shape
//   order       act is read after a write in the same microbatch; who may write which region
//   gradients   of every trained parameter cleared and written, the parameter updated once
//   shards      gradients of a bucket are exchanged once the microbatches have left them, added up into its
//               shard before anything reads that, over nothing that is still to be sent or added to; masters change after all are; weights are gathered from
//               the new masters
//   sharded     what no rank keeps whole is gathered from its masters before it is read, a parameter at
//               a time; its gradients are added to what was cleared, exchanged once all are there, and
//               added to the shard
//   packed      copies are what program "pack" makes, apart, and made again by a step that changes
//               their weights
//
// check.c has the plan's tables, check_program.c a program's form, check_rows.c rows of a pipeline, check_crossing.c what crosses
// ranks, check_halves.c what goes on meanwhile, check_remote.c what they read and write of each other, check_align.c rows that are none, check_buckets.c parameters that they
// share, check_memory.c lives and addresses, check_repeat.c repeats, check_flow.c who writes what and when, check_packed.c copies
// of weights. Code that makes plans is not used here.
#include "runtime/plan/check.h"

#include <math.h>
#include <stdlib.h>

enum { PAGE = 4096 };

/* Helpers ------------------------------------------------------------------------------------- */

int64_t checked_bytes(const int64_t *dims, int n_dims, int64_t item) {
    int64_t bytes = item;
    for (int i = 0; i < n_dims; i++) {
        if (dims[i] < 1 || __builtin_mul_overflow(bytes, dims[i], &bytes)) return -1;
    }
    return bytes;
}

void spans_add(Spans *spans, Arena *arena, int64_t begin, int64_t bytes) {
    *ARENA_PUSH(arena, spans->items, spans->n, spans->cap) = (Span){ begin, begin + bytes };
}

static int span_compare(const void *left, const void *right) {
    const Span *a = left, *b = right;
    return a->begin != b->begin ? (a->begin > b->begin ? 1 : -1)
                                : (a->end > b->end) - (a->end < b->end);
}

void spans_merge(Spans *spans) {
    if (!spans->n) return;
    qsort(spans->items, spans->n, sizeof *spans->items, span_compare);
    uint32_t n = 1;
    for (uint32_t i = 1; i < spans->n; i++) {
        Span *last = &spans->items[n - 1];
        if (spans->items[i].begin <= last->end) {
            last->end = max_i64(last->end, spans->items[i].end);
        } else {
            spans->items[n++] = spans->items[i];
        }
    }
    spans->n = n;
}

bool spans_cover(const Spans *merged, int64_t begin, int64_t bytes) {
    uint32_t low = 0, high = merged->n; // the last span that begins at or before `begin`
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (merged->items[middle].begin <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && merged->items[low - 1].end >= begin + bytes;
}

static bool is_identifier(const char *name) {
    if (!name || !*name || (*name >= '0' && *name <= '9')) return false;
    for (const char *c = name; *c; c++) {
        if (!plan_bare_byte(*c) || strchr(".$:/-", *c)) return false;
    }
    return true;
}

static bool is_amount(double value) {
    return isfinite(value) && value >= 0;
}

/* Tables -------------------------------------------------------------------------------------- */

static Status check_head(const Plan *plan) {
    if (!plan->model || !*plan->model) REFUSE("head", "expected a name of the model, found none");
    PlanTarget target;
    if (!plan->target || !plan_target(plan->target, &target)) {
        REFUSE("head", "expected a target cpu or cuda:sm_N, found \"%s\"",
               plan->target ? plan->target : "");
    }
    if (plan->tokens < 1 || plan->sequence < 1 || plan->tokens % plan->sequence) {
        REFUSE("head",
               "expected tokens of a microbatch in whole sequences, found %lld tokens in sequences "
               "of %lld",
               (long long)plan->tokens, (long long)plan->sequence);
    }
    if (plan->microbatches < 1) {
        REFUSE("head", "expected at least 1 microbatch, found %d", plan->microbatches);
    }
    int64_t ranks = 1;
    for (int axis = 0; axis < N_AXES; axis++) {
        int32_t size = plan->mesh.size[axis];
        if (size >= 1) ranks *= size;
        if (size < 1 || ranks > PLAN_MOST_RANKS)
            REFUSE("head", "expected axes of 1 or more, %d ranks at most, found %s of %d",
                   PLAN_MOST_RANKS, plan_axis_words[axis], size);
    }
    if (plan->mesh.node < 0 || (plan->mesh.node && plan->mesh.size[AXIS_ep] % plan->mesh.node))
        REFUSE("head", "expected nodes that divide %d ranks of ep, found nodes of %d", plan->mesh.size[AXIS_ep],
               plan->mesh.node);
    if (plan->mesh.stage < 0 || plan->mesh.stage >= plan->mesh.size[AXIS_pp])
        REFUSE("head", "expected a stage below %d, found %d", plan->mesh.size[AXIS_pp],
               plan->mesh.stage);
    int32_t align = plan->row_align;
    if (align < 1 || align > PLAN_MOST_ALIGN || align & (align - 1))
        REFUSE("head", "expected a row_align that is a power of two up to %d, found %d", PLAN_MOST_ALIGN, align);
    if (plan->vocab < 0)
        REFUSE("head", "expected a vocabulary of 0 or more, found %lld", (long long)plan->vocab);
    if (plan->n_trained < 0 || plan->n_trained > INT64_MAX / 8) {
        REFUSE("head", "expected a number of trained weights, found %lld",
               (long long)plan->n_trained);
    }
    return OK;
}

static Status check_sources(const Plan *plan) {
    for (uint32_t i = 0; i < plan->n_sources; i++) {
        const PlanSource *source = &plan->sources[i];
        if (!source->text || source->bytes < 0 || strlen(source->text) != (size_t)source->bytes) {
            REFUSE("sources", "source %u: expected %lld bytes of text, found %lld", i,
                   (long long)source->bytes, source->text ? (long long)strlen(source->text) : 0);
        }
        Hash actual = hash_bytes(source->text, (size_t)source->bytes);
        if (!hash_equal(actual, source->hash)) {
            char expected[33], found[33];
            hash_hex(actual, expected);
            hash_hex(source->hash, found);
            REFUSE("sources", "source %u: expected the hash of its text %s, found %s", i, expected,
                   found);
        }
    }
    return OK;
}

static Status check_args(const PlanKernel *kernel) {
    for (uint32_t i = 0; i < kernel->n_args; i++) {
        const PlanArg *arg = &kernel->args[i];
        if (!is_identifier(arg->name)) {
            REFUSE("kernels", "kernel \"%s\", parameter %u: expected a C identifier, found \"%s\"",
                   kernel->entry, i, arg->name ? arg->name : "");
        }
        if (arg->dtype >= N_DTYPES) {
            REFUSE("kernels", "kernel \"%s\", parameter \"%s\": expected a type below %d, found %d",
                   kernel->entry, arg->name, N_DTYPES, arg->dtype);
        }
        for (uint32_t j = 0; j < i; j++) {
            if (!strcmp(arg->name, kernel->args[j].name)) {
                REFUSE("names",
                       "kernel \"%s\": expected parameters of different names, found \"%s\" twice",
                       kernel->entry, arg->name);
            }
        }
    }
    return OK;
}

// Blocks of whole warps that a GPU of the target can launch (CUDA C++ Programming Guide, table of
// compute capabilities: 1024 threads a block, its shared memory, 2^31 - 1 blocks along x).
static Status check_block(const PlanTarget *target, const PlanKernel *kernel) {
    enum { MOST_THREADS = 1024, WARP = 32 };
    const int32_t most_shared = plan_shared_bytes(target);
    if (!target->cuda) {
        if (!kernel->threads && !kernel->shared) return OK;
        REFUSE("kernels", "kernel \"%s\": expected no threads and no shared memory on a CPU, found %d and %d",
               kernel->entry, kernel->threads, kernel->shared);
    }
    if (kernel->threads < WARP || kernel->threads > MOST_THREADS || kernel->threads % WARP) {
        REFUSE("kernels", "kernel \"%s\": expected %d to %d threads in steps of %d, found %d",
               kernel->entry, WARP, MOST_THREADS, WARP, kernel->threads);
    }
    if (kernel->shared < 0 || kernel->shared > most_shared) {
        REFUSE("kernels", "kernel \"%s\": expected up to %d bytes of shared memory, found %d",
               kernel->entry, most_shared, kernel->shared);
    }
    if (kernel->tiles > INT32_MAX) {
        REFUSE("kernels", "kernel \"%s\": expected up to %d blocks, found %lld", kernel->entry,
               INT32_MAX, (long long)kernel->tiles);
    }
    return OK;
}

static Status check_kernels(const Plan *plan, Arena *scratch) {
    Names names = { 0 };
    PlanTarget target;
    plan_target(plan->target, &target);
    for (uint32_t i = 0; i < plan->n_kernels; i++) {
        const PlanKernel *kernel = &plan->kernels[i];
        if (!is_identifier(kernel->entry)) {
            REFUSE("kernels", "kernel %u: expected a C identifier as entry, found \"%s\"", i,
                   kernel->entry ? kernel->entry : "");
        }
        if (!names_add(&names, scratch, kernel->entry, i)) {
            REFUSE("names", "expected kernels of different entries, found \"%s\" twice",
                   kernel->entry);
        }
        if (!kernel->family || !*kernel->family) {
            REFUSE("names", "kernel \"%s\": expected a family, found none", kernel->entry);
        }
        if (kernel->source < 1 || kernel->source >= plan->n_sources) {
            REFUSE("kernels",
                   "kernel \"%s\": expected a source from 1 (0 is the prelude) below %u, found %u",
                   kernel->entry, plan->n_sources, kernel->source);
        }
        if (kernel->tiles < 0) {
            REFUSE("kernels", "kernel \"%s\": expected 0 or more tiles, found %lld", kernel->entry,
                   (long long)kernel->tiles);
        }
        if (!is_amount(kernel->flops) || !is_amount(kernel->bytes)) {
            REFUSE("kernels",
                   "kernel \"%s\": expected finite counts of operations and bytes, found %g and %g",
                   kernel->entry, kernel->flops, kernel->bytes);
        }
        TRY(check_block(&target, kernel));
        TRY(check_args(kernel));
    }
    return OK;
}

// Experts are shared out evenly over the ranks of ep; each has one owner.
static Status check_experts(const Plan *plan, const PlanParam *param) {
    int32_t ep = plan->mesh.size[AXIS_ep];
    if (!param->experts && !param->owner) return OK;
    if (!param->per_expert || param->dims[0] * ep != param->experts) {
        REFUSE("params", "parameter \"%s\": expected %lld experts on each of %d ranks, found %d in all",
               param->name, (long long)param->dims[0], ep, param->experts);
    }
    for (int32_t rank = 0; param->owner && rank < ep; rank++) {
        int32_t n = 0;
        for (int32_t e = 0; e < param->experts; e++) n += param->owner[e] == rank;
        if (n != param->dims[0])
            REFUSE("params", "parameter \"%s\": expected %lld experts on rank %d of ep, found %d",
                   param->name, (long long)param->dims[0], rank, n);
    }
    return OK;
}

static Status check_param(const Plan *plan, const PlanParam *param) {
    if (param->n_dims > PLAN_MAX_DIMS || (param->per_expert && !param->n_dims)) {
        REFUSE("params", "parameter \"%s\": expected %d to %d dimensions, found %d", param->name,
               param->per_expert, PLAN_MAX_DIMS, param->n_dims);
    }
    int64_t bytes = checked_bytes(param->dims, param->n_dims, (int64_t)sizeof(float));
    if (bytes < 0)
        REFUSE("params", "parameter \"%s\": expected dimensions of 1 or more that fit",
               param->name);
    TRY(check_experts(plan, param));
    if (param->init > PLAN_INIT_ONES) {
        REFUSE("params", "parameter \"%s\": expected an init below %d, found %d", param->name,
               PLAN_INIT_ONES + 1, param->init);
    }
    if (!is_amount(param->std) || !is_amount(param->decay) || !is_amount(param->lr)) {
        REFUSE("params", "parameter \"%s\": expected finite std, decay, lr, found %g, %g, %g",
               param->name, param->std, param->decay, param->lr);
    }
    if (plan->n_buckets && !param->is_state) return OK; // check_buckets
    if (param->offset < 0 || param->offset % PLAN_GRAIN) {
        REFUSE("params", "parameter \"%s\": expected an offset in steps of %d, found %lld",
               param->name, PLAN_GRAIN, (long long)param->offset);
    }
    int64_t trained = plan->n_trained * (int64_t)sizeof(float);
    int64_t low = param->is_state && !plan->n_buckets ? trained : 0;
    int64_t high = param->is_state ? plan->region_bytes[REGION_weights] : trained;
    if (param->offset < low || param->offset > high || bytes > high - param->offset) {
        REFUSE(
            "params",
            "%s \"%s\": expected to lie in bytes %lld..%lld of weights, found %lld bytes at %lld",
            param->is_state ? "state" : "parameter", param->name, (long long)low, (long long)high,
            (long long)bytes, (long long)param->offset);
    }
    return OK;
}

typedef struct Place {
    Span span;
    const char *name;
} Place;

static int place_compare(const void *left, const void *right) {
    return span_compare(&((const Place *)left)->span, &((const Place *)right)->span);
}

static Status check_params(const Plan *plan, Arena *scratch) {
    Names names = { 0 };
    Place *places = ARENA_ARRAY(scratch, Place, plan->n_params);
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        if (!param->name || !*param->name)
            REFUSE("names", "parameter %u: expected a name, found none", i);
        if (!names_add(&names, scratch, param->name, i)) {
            REFUSE("names", "expected parameters of different names, found \"%s\" twice",
                   param->name);
        }
        TRY(check_param(plan, param));
        if (param->offset < 0) continue;
        int64_t bytes = checked_bytes(param->dims, param->n_dims, (int64_t)sizeof(float));
        places[n++] = (Place){ { param->offset, param->offset + bytes }, param->name };
    }
    if (n) qsort(places, n, sizeof *places, place_compare);
    for (uint32_t i = 1; i < n; i++) {
        if (places[i].span.begin < places[i - 1].span.end) {
            REFUSE("params",
                   "parameter \"%s\": expected to begin at or after the end of \"%s\", %lld, found "
                   "%lld",
                   places[i].name, places[i - 1].name, (long long)places[i - 1].span.end,
                   (long long)places[i].span.begin);
        }
    }
    for (uint32_t i = 0; !plan->n_buckets && i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        int64_t grad = param->is_state ? -1 : param->offset;
        if (param->grad != grad)
            REFUSE("params", "parameter \"%s\": expected its gradient at %lld, found %lld",
                   param->name, (long long)grad, (long long)param->grad);
    }
    return OK;
}

// Regions hold what lies in them and nothing more than the rest of a page.
static Status check_regions(const Plan *plan) {
    int64_t need[N_REGIONS] = { 0 }, sum = 0;
    int64_t trained = plan->n_trained * (int64_t)sizeof(float), own = plan_master_bytes(plan);
    need[REGION_weights] = plan->n_buckets ? 0 : trained;
    need[REGION_master] = own;
    need[REGION_scalars] = N_SCALARS * (int64_t)sizeof(float);
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        if (param->offset < 0) continue;
        int64_t end =
            param->offset + checked_bytes(param->dims, param->n_dims, (int64_t)sizeof(float));
        need[REGION_weights] = max_i64(need[REGION_weights], end);
    }
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const PlanProgram *program = &plan->programs[p];
        for (uint32_t i = 0; i < program->n_buffers; i++) {
            const PlanBuffer *buffer = &program->buffers[i];
            for (int32_t slot = 0; slot <= buffer->n_further; slot++)
                need[buffer->region] =
                    max_i64(need[buffer->region], plan_offset(buffer, slot) + buffer->bytes);
        }
    }
    for (uint32_t i = 0; i < plan->n_buckets; i++) {
        const PlanBucket *bucket = &plan->buckets[i];
        if (bucket->weights >= 0)
            need[REGION_weights] = max_i64(need[REGION_weights], bucket->weights + bucket->bytes);
    }
    static const Region twins[] = { REGION_grads, REGION_moment1, REGION_moment2 };
    for (int i = 0; i < COUNT_OF(twins); i++) {
        bool shards = plan->n_buckets && twins[i] != REGION_grads;
        if (need[twins[i]] || plan->region_bytes[twins[i]])
            need[twins[i]] = max_i64(need[twins[i]], shards ? own : trained);
    }
    need[REGION_sym] = plan_window(plan) + plan_tables(plan);
    for (int i = 0; i < N_REGIONS; i++) {
        int64_t bytes = plan->region_bytes[i];
        if (bytes < need[i] || bytes > round_up(need[i], PAGE)) {
            REFUSE("regions", "region %s: expected %lld bytes, at most %lld, found %lld",
                   plan_region_words[i], (long long)need[i], (long long)round_up(need[i], PAGE),
                   (long long)bytes);
        }
        if (__builtin_add_overflow(sum, bytes, &sum))
            REFUSE("regions", "expected regions whose sum fits");
    }
    return OK;
}

static Status check_plan(const Plan *plan, Arena *scratch) {
    TRY(check_head(plan));
    for (int i = 0; i < N_REGIONS; i++) {
        if (plan->region_bytes[i] < 0 || plan->region_bytes[i] > INT64_MAX / 2) {
            REFUSE("regions", "region %s: expected a size in bytes, found %lld",
                   plan_region_words[i], (long long)plan->region_bytes[i]);
        }
    }
    TRY(check_sources(plan));
    TRY(check_kernels(plan, scratch));
    TRY(check_params(plan, scratch));
    TRY(check_buckets(plan, scratch));
    Names names = { 0 };
    for (uint32_t i = 0; i < plan->n_programs; i++) {
        const PlanProgram *program = &plan->programs[i];
        if (!program->name || !*program->name)
            REFUSE("names", "program %u: expected a name, found none", i);
        if (!names_add(&names, scratch, program->name, i)) {
            REFUSE("names", "expected programs of different names, found \"%s\" twice",
                   program->name);
        }
        TRY(check_program(plan, program, scratch));
    }
    TRY(check_packed(plan, scratch));
    return check_regions(plan);
}

Status plan_check(const Plan *plan) {
    Arena *scratch = arena_create();
    Status status = check_plan(plan, scratch);
    arena_destroy(scratch);
    return status;
}
