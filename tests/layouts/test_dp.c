// SPDX-License-Identifier: Apache-2.0
// Data parallelism, with parameters that every rank keeps and with sharded ones: dp ranks compute
// what one rank computes.
#include "tests/layouts/world.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

static WorldJob job_of(const char *spec, const char *set, int dp) {
    WorldJob job = { .spec = spec,
                     .microbatch = 2,
                     .microbatches = 2,
                     .steps = 6,
                     .clip = 0.5,
                     .lr = 3e-3,
                     .decay = 0.1,
                     .poison = true };
    if (set) job.args[job.n_args++] = (SpecArg){ "set", set };
    job.layout = layout_single();
    job.layout.dp = dp;
    return job;
}

// The same step on one rank. With sums over the microbatch its microbatches are the ranks', in
// turn; with sums over all ranks' microbatches they are as large as these together.
static WorldJob alone(WorldJob job, bool global) {
    int dp = job.layout.dp;
    job.layout = layout_single();
    if (global)
        job.microbatch *= dp;
    else
        job.microbatches *= dp;
    return job;
}

static void compare(const char *what, const WorldJob *job, bool global) {
    WorldJob single = alone(*job, global);
    World *a = world_run(job), *b = world_run(&single), *again = world_run(job);
    const char *where = "", *heavy = "", *measured = "";
    double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b),
           weight = world_weight_error(a, b, &heavy), metric = world_metric_error(a, b, &measured);
    printf("%s dp %d: gradients within %.2g (%s), losses %.2g, metrics %.2g (%s), weights after %d "
           "steps %.2g (%s)\n",
           what, job->layout.dp, gradient, where, loss, metric, measured, job->steps, weight,
           heavy);
    assert_true(gradient <= 1e-5);
    assert_true(loss <= 1e-6);
    assert_true(metric <= 1e-5);
    assert_true(weight <= 1e-4);
    assert_true(b->norms[0] > job->clip); // clipping is at work
    world_equal_bits(a, again);
    for (uint32_t i = 0; i < a->n_params; i++) {
        const WorldParam *param = &a->params[i];
        for (int64_t k = 0; k < param->n; k++)
            assert_int_equal(param->seen[k], param->is_state ? a->n_ranks : 1);
    }
    world_free(a), world_free(b), world_free(again);
}

static void test_moe(void **state) {
    (void)state;
    for (int dp = 2; dp <= 4; dp++) {
        WorldJob job = job_of("moe.lua", "microbatch", dp);
        job.steps = dp == 3 ? 6 : 50;
        compare("moe", &job, false);
    }
}

// Products in bf16 round alike, so that only sums over ranks differ.
static void test_bf16(void **state) {
    (void)state;
    for (int fsdp = 0; fsdp < 2; fsdp++) {
        WorldJob job = job_of("moe.lua", "microbatch", 2);
        job.layout.params = job.layout.expert_params = fsdp ? PARAMS_FSDP : PARAMS_RESIDENT;
        job.precision = PRECISION_BF16;
        job.steps = 2;
        compare(fsdp ? "moe, bf16, fsdp," : "moe, bf16,", &job, false);
    }
}

static void test_global_balance(void **state) {
    (void)state;
    WorldJob job = job_of("moe.lua", "global", 3);
    compare("moe, global balance,", &job, true);
}

static void test_sums(void **state) {
    (void)state;
    for (int dp = 2; dp <= 3; dp++) {
        WorldJob job = job_of("sums.lua", NULL, dp);
        compare("sums", &job, true);
    }
}

// A state that the load corrects, balance per sequence, several predictions.
static void test_deepseek(void **state) {
    (void)state;
    WorldJob job = job_of("tests/oracle/specs/deepseek.lua", NULL, 2);
    compare("deepseek", &job, false);
}

// Weights that no rank keeps: dense ones, experts, both. And a loss in pieces, whose head is
// gathered for all.
static void test_fsdp(void **state) {
    (void)state;
    for (int which = 1; which <= 3; which++) {
        WorldJob job = job_of("moe.lua", "microbatch", which == 3 ? 4 : 2);
        job.layout.params = which & 1 ? PARAMS_FSDP : PARAMS_RESIDENT;
        job.layout.expert_params = which & 2 ? PARAMS_FSDP : PARAMS_RESIDENT;
        compare(which == 1   ? "moe, dense fsdp,"
                : which == 2 ? "moe, experts fsdp,"
                             : "moe, all fsdp,",
                &job, false);
    }
    WorldJob job = job_of("sums.lua", NULL, 3);
    job.layout.params = job.layout.expert_params = PARAMS_FSDP;
    job.microbatch = 64;
    job.steps = 2;
    job.piece = 64;
    compare("sums, fsdp, in pieces,", &job, true);
    Plan *plan = world_plan(&job, 0);
    assert_true(plan_program(plan, "step")->n_repeats > 0);
    plan_destroy(plan);
}

// Beside other axes: experts on their own ranks, whose copies are sharded; stages, which gather for
// themselves, with a table that two of them read and that stays whole.
static void test_other_axes(void **state) {
    (void)state;
    static const struct {
        int pp, dp, ep;
        const char *spec;
        LayoutParams params;
        LayoutSchedule schedule;
    } cases[] = { { 1, 4, 2, "moe.lua", PARAMS_FSDP },
                  { 2, 2, 1, "deep.lua", PARAMS_RESIDENT },
                  { 2, 2, 1, "deep.lua", PARAMS_FSDP },
                  { 2, 2, 2, "deep.lua", PARAMS_FSDP },
                  { 2, 2, 1, "deep.lua", PARAMS_FSDP, SCHEDULE_INTERLEAVED },
                  { 2, 2, 1, "deep.lua", PARAMS_FSDP, SCHEDULE_ZERO_BUBBLE } };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        WorldJob job = job_of(cases[i].spec, NULL, cases[i].dp);
        job.layout.pp = cases[i].pp;
        job.layout.ep = cases[i].ep;
        job.layout.schedule = cases[i].schedule;
        if (cases[i].schedule == SCHEDULE_INTERLEAVED) job.layout.chunks = 2;
        job.layout.params = job.layout.expert_params = cases[i].params;
        job.steps = 4;
        WorldJob single = alone(job, false);
        World *a = world_run(&job), *b = world_run(&single), *again = world_run(&job);
        const char *where = "";
        double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b);
        printf("%s%s, pp %d dp %d ep %d schedule %d: gradients within %.2g (%s), losses %.2g\n",
               cases[i].spec, cases[i].params ? ", fsdp" : "", cases[i].pp, cases[i].dp,
               cases[i].ep, cases[i].schedule, gradient, where, loss);
        assert_true(gradient <= 1e-5);
        assert_true(loss <= 1e-6);
        world_equal_bits(a, again);
        bool sharded = false;
        for (uint32_t k = 0; k < a->plans[0]->n_buckets; k++)
            sharded |= a->plans[0]->buckets[k].sharded;
        assert_int_equal(sharded, cases[i].params == PARAMS_FSDP);
        world_free(a), world_free(b), world_free(again);
    }
}

// A program without gradients reads the same weights.
static void test_eval(void **state) {
    (void)state;
    for (int fsdp = 0; fsdp < 2; fsdp++) {
        WorldJob job = job_of("moe.lua", "global", 2);
        job.layout.params = job.layout.expert_params = fsdp ? PARAMS_FSDP : PARAMS_RESIDENT;
        job.steps = 2;
        job.eval = true;
        WorldJob single = alone(job, true);
        World *a = world_run(&job), *b = world_run(&single);
        assert_true(b->eval > 0);
        assert_true(fabs(a->eval - b->eval) <= 1e-6 * b->eval);
        world_free(a), world_free(b);
    }
}

// A gradient that is not finite on one rank: the step is skipped by all.
static void test_spoilt(void **state) {
    (void)state;
    WorldJob job = job_of("moe.lua", "microbatch", 2), clean = job;
    job.spoil = job.steps = 2;
    clean.steps = 1;
    World *a = world_run(&job), *b = world_run(&clean);
    for (int i = 0; i < a->n_ranks; i++) {
        assert_true(a->ranks[i].skipped == 1);
        assert_false(isfinite(a->ranks[i].grad_norm));
        assert_true(b->ranks[i].skipped == 0);
    }
    for (uint32_t i = 0; i < a->n_params; i++) { // as the first step left them
        const WorldParam *x = &a->params[i], *y = world_param(b, x->name);
        if (!x->is_state)
            assert_memory_equal(x->weights, y->weights, (size_t)x->n * sizeof *x->weights);
    }
    world_free(a), world_free(b);
}

// Of fp32, beside copies as kernels read them: 4 bytes of gradient per number, and 12 / dp of
// master and moments. Padding apart: what the plan says is what a step touches and moves.
static void test_bytes(void **state) {
    (void)state;
    WorldJob job = job_of("moe.lua", "microbatch", 4);
    job.bucket = 8 << 10;
    World *world = world_run(&job);
    const Plan *plan = world->plans[0];
    int64_t numbers = 0, direct = 0, states = 0, page = sysconf(_SC_PAGESIZE);
    assert_true(plan->n_buckets > 4);
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        if (param->is_state)
            states += round_up(4 * plan_numbers(param), PLAN_GRAIN);
        else
            numbers += plan_numbers(param);
    }
    for (uint32_t i = 0; i < plan->n_buckets; i++)
        if (plan->buckets[i].weights >= 0) direct += plan->buckets[i].bytes;
    int64_t grads = plan->region_bytes[REGION_grads],
            most_padding = (int64_t)(plan->n_params + 4 * plan->n_buckets) * PLAN_GRAIN;
    assert_true(grads >= 4 * numbers && grads <= 4 * numbers + most_padding);
    assert_int_equal(plan->region_bytes[REGION_master], grads / 4);
    assert_int_equal(plan->region_bytes[REGION_moment1], grads / 4);
    assert_int_equal(plan->region_bytes[REGION_moment2], grads / 4);
    assert_int_equal(plan->region_bytes[REGION_weights], direct + states);
    for (int i = 0; i < world->n_ranks; i++) {
        for (int r = 0; r < N_REGIONS; r++) {
            int64_t bytes = plan->region_bytes[r], used = world->ranks[i].touched[r];
            assert_true(used <= round_up(bytes, page));
            if (r != REGION_io && r != REGION_scalars && r != REGION_totals)
                assert_true(used >= bytes - page);
        }
        PlanTraffic traffic;
        plan_traffic(plan, plan_program(plan, "step"), &traffic);
        for (int move = 0; move < N_MOVES; move++)
            for (int link = 0; link < N_LINKS; link++)
                assert_true(world->ranks[i].moved.bytes[move][link] ==
                            job.steps * traffic.bytes[move][link]);
        assert_true(traffic.bytes[MOVE_exchange][LINK_stage] == (double)(grads * 3 / 4));
    }
    world_free(world);
}

// What no rank keeps whole is nobody's between microbatches, and moves in every one of them:
// weights twice, for forward and backward, gradients once.
static void test_bytes_of_fsdp(void **state) {
    (void)state;
    WorldJob job = job_of("moe.lua", "microbatch", 4);
    job.layout.params = job.layout.expert_params = PARAMS_FSDP;
    job.steps = 2;
    World *world = world_run(&job);
    const Plan *plan = world->plans[0];
    int64_t own = plan_master_bytes(plan), whole = 0;
    for (uint32_t i = 0; i < plan->n_buckets; i++) whole += plan->buckets[i].bytes;
    static const Region shards[] = { REGION_master, REGION_grads, REGION_moment1, REGION_moment2 };
    for (int i = 0; i < COUNT_OF(shards); i++) assert_int_equal(plan->region_bytes[shards[i]], own);
    assert_int_equal(own, whole / 4);
    assert_int_equal(plan->region_bytes[REGION_weights], 0);
    assert_int_equal(plan->region_bytes[REGION_packed], 0);
    PlanTraffic traffic;
    plan_traffic(plan, plan_program(plan, "step"), &traffic);
    double number = 3 * dtype_bytes(DTYPE_F32); // of the norm
    assert_true(traffic.bytes[MOVE_exchange][LINK_stage] ==
                (double)(job.microbatches * whole * 3 / 4));
    assert_true(traffic.bytes[MOVE_gather][LINK_stage] <=
                (double)(job.microbatches * 2 * own * 3) + number);
    assert_true(traffic.bytes[MOVE_gather][LINK_stage] >
                (double)(job.microbatches * own * 3) + number);
    for (int i = 0; i < world->n_ranks; i++)
        for (int move = 0; move < N_MOVES; move++)
            assert_true(world->ranks[i].moved.bytes[move][LINK_stage] ==
                        job.steps * traffic.bytes[move][LINK_stage]);
    world_free(world);
}

// The run does not depend on how parameters are cut into buckets, but for the order in which
// squares of gradients are added up.
static void test_bucket_sizes(void **state) {
    (void)state;
    WorldJob job = job_of("moe.lua", "microbatch", 3);
    job.clip = 0;
    World *a = world_run(&job);
    job.bucket = 1;
    World *b = world_run(&job);
    assert_true(b->plans[0]->n_buckets > a->plans[0]->n_buckets);
    world_equal_bits(a, b);
    world_free(a), world_free(b);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe),           cmocka_unit_test(test_global_balance),
        cmocka_unit_test(test_sums),          cmocka_unit_test(test_deepseek),
        cmocka_unit_test(test_bf16),          cmocka_unit_test(test_fsdp),
        cmocka_unit_test(test_other_axes),    cmocka_unit_test(test_eval),
        cmocka_unit_test(test_spoilt),        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_bytes_of_fsdp), cmocka_unit_test(test_bucket_sizes)
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
