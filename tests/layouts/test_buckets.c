// SPDX-License-Identifier: Apache-2.0
// Plans whose parameters lie in buckets: every number is somebody's once, the text form keeps all
// of it, and each rule of the checker about buckets, shards and copies has edits that trip it.
#include "tests/layouts/world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static Plan *plan_with(int dp, LayoutParams params) {
    WorldJob job = { .spec = "moe.lua", .microbatch = 1, .microbatches = 2, .bucket = 16 << 10 };
    job.layout = layout_single();
    job.layout.overlap = OVERLAP_OFF;
    job.layout.dp = dp;
    job.layout.params = job.layout.expert_params = params;
    return world_plan(&job, 0);
}

static Plan *plan_of(int dp) {
    return plan_with(dp, PARAMS_RESIDENT);
}

static Plan *again(const Plan *plan) {
    Text text = { 0 };
    Plan *copy;
    plan_print(plan, &text);
    if (plan_parse(text.at, text.bytes, &copy) != OK) fail_msg("%s", status_message());
    text_finish(&text);
    return copy;
}

/* Places --------------------------------------------------------------------------------------- */

static void test_parts(void **state) {
    (void)state;
    for (int dp = 2; dp <= 5; dp++) {
        Plan *plan = plan_with(dp, dp == 4 ? PARAMS_FSDP : PARAMS_RESIDENT);
        int64_t shards = plan_master_bytes(plan),
                *taken = calloc((size_t)(dp * shards / 4), sizeof *taken);
        assert_int_equal(plan->n_trained * 4, dp == 4 ? shards : dp * shards);
        for (uint32_t i = 0; i < plan->n_params; i++) {
            const PlanParam *param = &plan->params[i];
            int64_t next = 0;
            if (param->is_state) {
                assert_null(plan_bucket(plan, param));
                assert_int_equal(plan_part(plan, param, 0).n, plan_numbers(param));
                assert_int_equal(plan_part(plan, param, 0).at, param->offset);
                continue;
            }
            for (int member = 0; member < dp; member++) {
                PlanPart part = plan_part(plan, param, member);
                if (!part.n) continue;
                assert_int_equal(part.first, next);
                assert_true(part.at % 4 == 0 && part.at >= 0 && part.at + 4 * part.n <= shards);
                for (int64_t k = 0; k < part.n; k++)
                    assert_int_equal(taken[member * shards / 4 + part.at / 4 + k]++, 0);
                next += part.n;
            }
            assert_int_equal(next, plan_numbers(param));
        }
        free(taken);
        plan_destroy(plan);
    }
}

static void test_text(void **state) {
    (void)state;
    Plan *plan = plan_of(2), *copy = again(plan);
    Hash a = plan_hash(plan), b = plan_hash(copy);
    assert_true(hash_equal(a, b));
    assert_int_equal(plan_check(copy), OK);
    assert_int_equal(copy->n_buckets, plan->n_buckets);
    for (uint32_t i = 0; i < plan->n_params; i++) {
        assert_int_equal(copy->params[i].offset, plan->params[i].offset);
        assert_int_equal(copy->params[i].grad, plan->params[i].grad);
    }
    Text text = { 0 };
    plan_print(plan, &text);
    text_add(&text, "");
    assert_non_null(strstr(text_cstr(&text), " at 0x0 bytes "));
    assert_non_null(strstr(text_cstr(&text), "\nregion master "));
    text_finish(&text);
    plan_destroy(plan), plan_destroy(copy);
}

// Lines of the parameters and of the step, but for those of what all programs share: sources, inputs and metrics.
static char *step_text(const WorldJob *job, bool eval, int stage, Arena *arena) {
    WorldJob with = *job;
    with.eval = eval;
    Plan *plan = world_plan(&with, stage);
    Text text = { 0 }, out = { 0 };
    plan_print(plan, &text);
    char *all = arena_strdup(arena, text_cstr(&text)), *rest = NULL;
    bool step = false;
    for (char *line = strtok_r(all, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (!strncmp(line, "program ", 8)) step = !strncmp(line + 8, "step", 4);
        bool shared = strstr(line, " io+") || !(strncmp(line, "program ", 8) && strncmp(line, "end ", 4));
        if (!shared && (step || !strncmp(line, "param ", 6))) text_printf(&out, "%s\n", line);
    }
    char *kept = arena_strdup(arena, text_cstr(&out));
    text_finish(&text), text_finish(&out);
    plan_destroy(plan);
    return kept;
}

// Programs are lowered twice where there are several, to learn where parameters lie, and a step alone once.
static void a_step_alone_is_the_step_among_others(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        WorldJob job = world_experts(
            &(WorldExperts){ .dp = 4, .ep = 2, .microbatch = 1, .bf16 = i % 2, .pp = i == 3 ? 2 : 1 });
        Arena *arena = arena_create();
        job.bucket = 16 << 10;
        if (i == 1 || i == 2) job.layout.params = PARAMS_FSDP;
        if (i == 2) job.layout.expert_params = PARAMS_FSDP;
        if (i == 4) job.layout.capacity = INFINITY, job.layout.round = 1;
        for (int stage = 0; stage < job.layout.pp; stage++)
            assert_string_equal(step_text(&job, false, stage, arena), step_text(&job, true, stage, arena));
        arena_destroy(arena);
    }
}

/* Edits ---------------------------------------------------------------------------------------- */

static PlanProgram *step_of(Plan *plan) {
    return plan_program(plan, "step");
}

static const char *operand_name(const PlanProgram *program, uint32_t i, uint32_t k) {
    return program->buffers[program->operands[program->instrs[i].operands + k].buffer].name;
}

// The first instruction of the program that does `op` with operand k a buffer so named.
static uint32_t find(const PlanProgram *program, PlanOp op, uint32_t k, const char *name) {
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        if (instr->op == op && instr->n_operands > k && !strcmp(operand_name(program, i, k), name))
            return i;
    }
    fail_msg("no instruction with %s", name);
    return 0;
}

static PlanBuffer *buffer(PlanProgram *program, const char *name) {
    for (uint32_t i = 0; i < program->n_buffers; i++)
        if (!strcmp(program->buffers[i].name, name)) return &program->buffers[i];
    fail_msg("no buffer %s", name);
    return NULL;
}

static PlanOperand *operand(PlanProgram *program, uint32_t instr, uint32_t k) {
    return &program->operands[program->instrs[instr].operands + k];
}

static uint32_t bucket_where(const Plan *plan, bool direct) {
    for (uint32_t i = 0; i < plan->n_buckets; i++)
        if ((plan->buckets[i].weights >= 0) == direct) return i;
    fail_msg("no such bucket");
    return 0;
}

static const char *bucket_name(Plan *plan, bool direct, const char *what) {
    return arena_printf(plan->arena, "bucket.%u.%s", bucket_where(plan, direct), what);
}

static PlanParam *trained(Plan *plan, bool direct) {
    for (uint32_t i = 0; i < plan->n_params; i++)
        if (!plan->params[i].is_state && (plan->params[i].offset >= 0) == direct)
            return &plan->params[i];
    fail_msg("no such parameter");
    return NULL;
}

// Lives in act become what accesses need, and nothing shares a byte: only the order can be wrong.
static void spread(Plan *plan, PlanProgram *program) {
    int64_t end = 0;
    program->act_bound = 0;
    for (uint32_t i = 0; i < program->n_buffers; i++) {
        PlanBuffer *to = &program->buffers[i];
        if (to->region != REGION_act) continue;
        for (uint32_t k = 0; k < program->n_instrs; k++) {
            for (uint32_t o = 0; o < program->instrs[k].n_operands; o++) {
                if (operand(program, k, o)->buffer != i) continue;
                if ((int32_t)k < to->first) to->first = (int32_t)k;
                if ((int32_t)k > to->last) to->last = (int32_t)k;
            }
        }
        to->offset = end;
        end += round_up(to->bytes, PLAN_GRAIN);
    }
    for (int32_t k = 0; k < (int32_t)program->n_instrs; k++) {
        int64_t live = 0;
        for (uint32_t i = 0; i < program->n_buffers; i++) {
            const PlanBuffer *b = &program->buffers[i];
            if (b->region == REGION_act && b->first <= k && k <= b->last) live += b->bytes;
        }
        program->act_bound = max_i64(program->act_bound, live);
    }
    program->act_bytes = plan->region_bytes[REGION_act] = end;
}

static void swap(Plan *plan, PlanProgram *program, uint32_t a, uint32_t b) {
    PlanInstr instr = program->instrs[a];
    program->instrs[a] = program->instrs[b];
    program->instrs[b] = instr;
    spread(plan, program);
}

#define EDIT(name, ...)                                                                            \
    static void name(Plan *plan) {                                                                 \
        __VA_ARGS__;                                                                               \
    }

EDIT(bucket_gap, plan->buckets[1].offset += PLAN_GRAIN)
EDIT(bucket_size, plan->buckets[0].bytes -= PLAN_GRAIN)
EDIT(bucket_shard, plan->buckets[1].shard += PLAN_GRAIN)
EDIT(bucket_group, plan->buckets[0].group = GROUP_world)
EDIT(bucket_other_group,
     plan->buckets[0].group = plan->buckets[0].group == GROUP_dp ? GROUP_edp : GROUP_dp)
EDIT(bucket_rate, plan->buckets[0].lr = 0.5)
EDIT(bucket_decay, plan->buckets[0].decay = -1)
EDIT(bucket_weights, plan->buckets[bucket_where(plan, true)].weights += PLAN_GRAIN)
EDIT(bucket_no_weights, plan->buckets[bucket_where(plan, true)].weights = -1)
EDIT(bucket_new_weights, plan->buckets[bucket_where(plan, false)].weights = 0)
EDIT(bucket_of_one_rank, plan->mesh.size[AXIS_edp] = 1)
EDIT(no_buckets, plan->n_buckets = 0)
EDIT(fewer_buckets, plan->n_buckets--)
EDIT(grad_elsewhere, trained(plan, true)->grad += PLAN_GRAIN)
EDIT(grad_nowhere, trained(plan, false)->grad = -1)
EDIT(grad_of_a_state, trained(plan, false)->is_state = true)
EDIT(weights_elsewhere, trained(plan, true)->offset += PLAN_GRAIN)
EDIT(weights_of_packed, trained(plan, false)->offset = 0)
EDIT(small_master, plan->region_bytes[REGION_master] -= PLAN_GRAIN)
EDIT(large_moments, plan->region_bytes[REGION_moment1] *= 2)

EDIT(sum_over_gradients, buffer(step_of(plan), "bucket.1.sum")->offset = plan->buckets[2].offset)
EDIT(gradients_elsewhere, plan->buckets[1].grads += PLAN_GRAIN)
EDIT(resident_as_sharded, plan->buckets[0].sharded = true; plan->buckets[0].grads = PLAN_GRAIN)
static void exchange_missing(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t first = find(step, PLAN_exchange, 0, "bucket.0.gradient"),
             second = find(step, PLAN_exchange, 0, "bucket.1.gradient");
    step->instrs[first].op = step->instrs[second].op; // the same
    operand(step, first, 0)->buffer = operand(step, second, 0)->buffer;
}
static void sum_elsewhere(Plan *plan) {
    PlanBuffer *sum = buffer(step_of(plan), "bucket.1.sum");
    sum->offset += PLAN_GRAIN;
}
static void sums_read_early(Plan *plan) {
    PlanProgram *step = step_of(plan);
    char last[32];
    snprintf(last, sizeof last, "bucket.%u.sum", plan->n_buckets - 1);
    swap(plan, step, find(step, PLAN_launch, 1, last), find(step, PLAN_launch, 0, "grads.sums"));
}
static void gradients_read_late(Plan *plan) {
    PlanBuffer *sums = buffer(step_of(plan), "grads.sums");
    sums->dims[0] += PLAN_GRAIN / 4, sums->bytes += PLAN_GRAIN;
}
static void part_of_masters(Plan *plan) {
    PlanBuffer *masters = buffer(step_of(plan), "master.all");
    masters->dims[0] -= PLAN_GRAIN / 4, masters->bytes -= PLAN_GRAIN;
}
static void weights_gathered_early(Plan *plan) {
    PlanProgram *step = step_of(plan);
    swap(plan, step, find(step, PLAN_gather, 1, bucket_name(plan, true, "weights")),
         find(step, PLAN_launch, 1, "master.all"));
}
static void move_by_a_grain(PlanBuffer *to) {
    to->offset += to->offset ? -PLAN_GRAIN : PLAN_GRAIN;
}
static void weights_of_another(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t i = find(step, PLAN_gather, 1, bucket_name(plan, true, "weights"));
    move_by_a_grain(&step->buffers[operand(step, i, 0)->buffer]);
}
static void masters_in_forward(Plan *plan) {
    PlanProgram *step = step_of(plan);
    for (uint32_t i = 0; i < step->n_buffers; i++)
        if (step->buffers[i].region == REGION_grads &&
            !strcmp(step->buffers[i].name, "head.w.gradient"))
            step->buffers[i].region = REGION_master, step->buffers[i].offset = 0;
}
static void packed_from_another(Plan *plan) {
    PlanProgram *step = step_of(plan);
    for (uint32_t i = 0; i < step->n_instrs; i++)
        for (uint32_t k = 0; k < step->instrs[i].n_operands; k++)
            if (operand(step, i, k)->offset) {
                operand(step, i, k)->offset -= PLAN_GRAIN;
                return;
            }
    fail_msg("nothing is packed from within a bucket");
}
static void offset_outside(Plan *plan) {
    PlanProgram *step = step_of(plan);
    PlanOperand *sums = operand(step, find(step, PLAN_launch, 0, "grads.sums"), 0);
    sums->offset = PLAN_GRAIN, sums->bytes = buffer(step, "grads.sums")->bytes;
}
static void offset_written(Plan *plan) {
    PlanProgram *step = step_of(plan);
    operand(step, find(step, PLAN_launch, 1, "bucket.0.sum"), 1)->bytes = PLAN_GRAIN;
}
static void exchange_of_a_part(Plan *plan) {
    PlanProgram *step = step_of(plan);
    operand(step, find(step, PLAN_exchange, 0, "bucket.0.gradient"), 0)->bytes = PLAN_GRAIN;
}
static void pack_gathers_another(Plan *plan) {
    PlanProgram *pack = plan_program(plan, "pack");
    move_by_a_grain(buffer(pack, bucket_name(plan, true, "master")));
}

typedef struct Case {
    const char *what;
    void (*edit)(Plan *plan);
    const char *rule, *message;
} Case;
#define CASE(name, rule, message)                                                                  \
    { #name, name, rule, message }
static const Case cases[] = {
    CASE(bucket_gap, "buckets", "bucket 1: expected to begin at"),
    CASE(bucket_size, "buckets", "bucket 0: expected to begin at 0 with a multiple of 512 bytes"),
    CASE(bucket_shard, "buckets", "bucket 1: expected its shard at"),
    CASE(bucket_group, "buckets", "bucket 0: expected group dp or edp"),
    CASE(bucket_other_group, "buckets", "expected a bucket of group"),
    CASE(bucket_rate, "buckets", "expected a bucket of group"),
    CASE(bucket_decay, "buckets", "bucket 0: expected finite decay and lr"),
    CASE(bucket_weights, "buckets", "expected weights at"),
    CASE(bucket_no_weights, "buckets", "expected weights at -1"),
    CASE(bucket_new_weights, "buckets", "expected weights at"),
    CASE(bucket_of_one_rank, "buckets", "expected none on one rank"),
    CASE(no_buckets, "params", "expected an offset in steps"),
    CASE(fewer_buckets, "buckets", "expected them to hold the"),
    CASE(grad_elsewhere, "buckets", "expected weights at"),
    CASE(grad_nowhere, "buckets", "expected its gradient in a bucket"),
    CASE(grad_of_a_state, "params", "expected an offset in steps"),
    CASE(weights_elsewhere, "params", "expected to begin at or after the end of"),
    CASE(weights_of_packed, "params", "expected to begin at or after the end of"),
    CASE(small_master, "sizes", "\"master.all\": expected to end inside the"),
    CASE(large_moments, "regions", "region moment1"),
    CASE(sum_over_gradients, "shards", "expected the gradients of bucket 2 to be exchanged before"),
    CASE(exchange_missing, "crossing", "as large as"),
    CASE(sum_elsewhere, "shards",
         "expected the sum of an exchanged bucket, as large as its shard and there"),
    CASE(sums_read_early, "shards", "added up before"),
    CASE(gradients_read_late, "shards", "expected to read sums"),
    CASE(part_of_masters, "shards", "expected an update of all"),
    CASE(weights_gathered_early, "shards", "to be gathered from the new masters"),
    CASE(weights_of_another, "shards", "to be gathered from its masters"),
    CASE(masters_in_forward, "order", "writes to weights and moments only in a step's update"),
    CASE(packed_from_another, "packed", "expected packed weights to be written as program"),
    CASE(gradients_elsewhere, "buckets", "bucket 1: expected its shard at"),
    CASE(resident_as_sharded, "buckets",
         "bucket 0: expected its shard at 0 and its gradients at 0"),
    CASE(offset_outside, "launch", "expected a part inside its"),
    CASE(offset_written, "launch", "expected a part inside its"),
    CASE(exchange_of_a_part, "crossing", "without a step or an offset"),
    CASE(pack_gathers_another, "order", "expected writes to weights and moments only"),
};

/* Edits of what no rank keeps whole ------------------------------------------------------------ */

// The first launch in the microbatches that is given a part of a buffer in this mode.
static PlanOperand *part(Plan *plan, OperandMode mode) {
    PlanProgram *step = step_of(plan);
    for (uint32_t i = 0; i < step->n_instrs; i++)
        for (uint32_t k = 0; k < step->instrs[i].n_operands; k++)
            if (operand(step, i, k)->bytes && operand(step, i, k)->mode == mode)
                return operand(step, i, k);
    fail_msg("nothing is given a part");
    return NULL;
}

static uint32_t first_of(const PlanProgram *program, PlanOp op) {
    uint32_t i = 0;
    while (program->instrs[i].op != op) i++;
    return i;
}

EDIT(not_sharded, plan->buckets[0].sharded = false)
EDIT(read_of_half, part(plan, OPERAND_READ)->bytes -= 4)
EDIT(read_from_elsewhere, PlanOperand *read = part(plan, OPERAND_READ); read->bytes -= PLAN_GRAIN;
     read->offset += PLAN_GRAIN)
EDIT(gradient_of_half, part(plan, OPERAND_ADD)->bytes -= 4)
EDIT(masters_of_half,
     PlanBuffer *own = buffer(step_of(plan),
                              operand_name(step_of(plan), first_of(step_of(plan), PLAN_gather), 0));
     own->offset += PLAN_GRAIN)
EDIT(masters_of_others,
     step_of(plan)->instrs[first_of(step_of(plan), PLAN_gather)].group = GROUP_world)
static void sum_replaced(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t exchange = first_of(step, PLAN_exchange);
    for (uint32_t i = exchange; i < step->n_instrs; i++)
        if (step->instrs[i].n_operands == 2 &&
            operand(step, i, 0)->buffer == operand(step, exchange, 1)->buffer) {
            operand(step, i, 1)->mode = OPERAND_WRITE;
            return;
        }
}
static void sum_of_another(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t exchange = first_of(step, PLAN_exchange);
    for (uint32_t i = exchange; i < step->n_instrs; i++)
        if (step->instrs[i].n_operands == 2 &&
            operand(step, i, 0)->buffer == operand(step, exchange, 1)->buffer)
            step->buffers[operand(step, i, 1)->buffer].offset -= PLAN_GRAIN;
}
static void added_late(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t exchange = first_of(step, PLAN_exchange), last = 0;
    for (uint32_t i = 0; i < exchange; i++)
        for (uint32_t k = 0; k < step->instrs[i].n_operands; k++)
            if (operand(step, i, k)->mode == OPERAND_ADD &&
                operand(step, i, k)->buffer == operand(step, exchange, 0)->buffer)
                last = i;
    PlanInstr late = step->instrs[last]; // all between one earlier
    memmove(&step->instrs[last], &step->instrs[last + 1], (exchange - last) * sizeof late);
    step->instrs[exchange] = late;
    spread(plan, step);
}

static const Case sharded_cases[] = {
    CASE(not_sharded, "buckets", "bucket 1: expected its shard at"),
    CASE(read_of_half, "sharded", "expected to read one parameter of"),
    CASE(read_from_elsewhere, "sharded", "expected to read one parameter of"),
    CASE(gradient_of_half, "sharded", "expected its gradient made, exchanged and summed"),
    CASE(masters_of_half, "sharded", "expected the masters of a bucket gathered over its group"),
    CASE(masters_of_others, "sharded", "expected the masters of a bucket gathered over its group"),
    CASE(sum_replaced, "order", "expected += where several microbatches add up"),
    CASE(sum_of_another, "sharded", "to be added to the shard of its bucket"),
    CASE(added_late, "sharded", "before they are exchanged"),
};

static int count_wrong(const Plan *good, const Case *list, int n) {
    int wrong = 0;
    assert_int_equal(plan_check(good), OK);
    for (int i = 0; i < n; i++) {
        const Case *c = &list[i];
        Plan *plan = again(good);
        c->edit(plan);
        Status status = plan_check(plan);
        char rule[64];
        snprintf(rule, sizeof rule, "plan check, %s", c->rule);
        bool right = status == ERR_FORMAT && strstr(status_message(), rule) &&
                     strstr(status_message(), c->message);
        if (!right)
            print_error("%s: expected \"%s ... %s\", found \"%s\"\n", c->what, rule, c->message,
                        status == OK ? "nothing" : status_message());
        wrong += !right;
        plan_destroy(plan);
    }
    return wrong;
}

static void test_edits(void **state) {
    (void)state;
    Plan *good = plan_of(2);
    assert_int_equal(count_wrong(good, cases, COUNT_OF(cases)), 0);
    plan_destroy(good);
}

static void test_sharded_edits(void **state) {
    (void)state;
    Plan *good = plan_with(2, PARAMS_FSDP);
    assert_int_equal(count_wrong(good, sharded_cases, COUNT_OF(sharded_cases)), 0);
    plan_destroy(good);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_parts), cmocka_unit_test(test_text),
                                        cmocka_unit_test(a_step_alone_is_the_step_among_others),
                                        cmocka_unit_test(test_edits),
                                        cmocka_unit_test(test_sharded_edits) };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
