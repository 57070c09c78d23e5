// SPDX-License-Identifier: Apache-2.0
// row_align: expert rows at multiples of it, zeros between them. Nothing that is computed changes, whatever experts
// make of zero rows: forward, gradients of inputs and weights have the bits of dense rows, as no sum takes its numbers
// in another order. Two do: a parameter that rows of all experts share sums over tiles of 64 of their rows, and where
// rounds cut rows, so n rows agree within n * 2^-24 of the sum of magnitudes, which here is below 1e-6. Tails of expert
// rows and memory that holds nothing are NaN throughout (poison).
#include "tests/layouts/world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Case {
    int ep;
    const char *spec, *mode;
    int row_align;
    double capacity, round;
    bool blocks, whole; // whole: in parts of one size
} Case;
static const Case same[] = {
    { 1, "experts.lua", "some", 32 },
    { 2, "experts.lua", "some", 32 },                  // tokens without experts
    { 2, "experts.lua", "hot", 128 },                  // one expert takes all
    { 2, "experts.lua", "lower", 4, .capacity = 0.5 }, // a rank without rows; drops
    { 2, "experts.lua", "some", 32, .blocks = true },
    { 2, "experts.lua", "some", 32, .blocks = true, .whole = true },
};
static const Case near[] = {
    { 2, "pads.lua", NULL, 32 },
    { 2, "experts.lua", "hot", 4, .capacity = INFINITY, .round = 0.5 },
};

static WorldJob job_of(const Case *c) {
    WorldJob job = { .spec = c->spec, .microbatch = 1, .microbatches = 2, .steps = 3, .clip = 0.5, .lr = 3e-3,
                     .decay = 0.1, .poison = true };
    const char *const set[][2] = { { "mode", c->mode }, { "count", "8" }, { "top_k", "3" }, { "bias", "true" } };
    for (int i = 0; i < COUNT_OF(set) && c->mode; i++) job.args[job.n_args++] = (SpecArg){ set[i][0], set[i][1] };
    job.layout = layout_single();
    job.layout.dp = job.layout.ep = c->ep;
    job.layout.capacity = c->capacity;
    job.layout.round = c->round;
    if (c->blocks) job.layout.transport = TRANSPORT_BLOCKS;
    job.node_ranks = c->blocks;
    job.whole_blocks = c->whole;
    job.layout.row_align = c->row_align;
    return job;
}

static WorldJob dense(WorldJob job) {
    job.layout.row_align = 1;
    return job;
}

// The same step on one rank: its microbatches are the ranks', in turn.
static WorldJob alone(WorldJob job) {
    job.microbatches *= job.layout.dp;
    job.layout = layout_single();
    job.node_ranks = 0;
    return job;
}

static void test_same(void **state) {
    (void)state;
    for (int i = 0; i < COUNT_OF(same); i++) {
        WorldJob job = job_of(&same[i]), other = dense(job);
        World *a = world_run(&job), *b = world_run(&other);
        assert_true(isfinite(a->losses[job.steps - 1]));
        world_equal_bits(a, b);
        for (int s = 0; s < job.steps; s++) assert_true(a->dropped[s] == b->dropped[s] && a->served[s] == b->served[s]);
        if (same[i].capacity > 0) assert_true(a->dropped[0] > 0);
        world_free(a), world_free(b);
    }
}

static void compare(const WorldJob *a, const WorldJob *b, const char *what, double bound) {
    World *x = world_run(a), *y = world_run(b), *again = world_run(a);
    const char *where = "";
    double gradient = world_gradient_error(x, y, &where), loss = world_loss_error(x, y);
    printf("%s, row_align %d on %d ranks, against %s: gradients within %.2g (%s), losses within %.2g\n", a->spec,
           a->layout.row_align, x->n_ranks, what, gradient, where, loss);
    assert_true(gradient <= bound);
    assert_true(loss <= 1e-6);
    world_equal_bits(x, again);
    world_free(x), world_free(y), world_free(again);
}

static void test_near(void **state) {
    (void)state;
    for (int i = 0; i < COUNT_OF(near); i++) {
        WorldJob job = job_of(&near[i]), other = dense(job), single = alone(job);
        compare(&job, &other, "dense rows", 1e-6);
        if (!near[i].mode) compare(&job, &single, "one rank", 1e-6);
    }
}

// Of what experts share alone sums take another order: the first gradients of all else have equal bits.
static void test_shared(void **state) {
    (void)state;
    WorldJob job = job_of(&near[0]), other = dense(job);
    job.steps = other.steps = 1;
    World *a = world_run(&job), *b = world_run(&other);
    assert_true(a->losses[0] == b->losses[0]);
    for (uint32_t i = 0; i < a->n_params; i++) {
        const WorldParam *x = &a->params[i], *y = world_param(b, x->name);
        if (x->gradient && !strstr(x->name, "gain"))
            assert_memory_equal(x->gradient, y->gradient, (size_t)x->n * sizeof *x->gradient);
    }
    world_free(a), world_free(b);
}

// Two virtual GPUs, whose kernels reach into each other's memory.
static void test_gpus(void **state) {
    (void)state;
    static const char device[] = "vgpu:sm_80";
    world_needs_gpus();
    WorldJob job = job_of(&near[0]), other = alone(job);
    job.steps = other.steps = job.microbatches = 1;
    other.microbatches = 2;
    job.device = device;
    compare(&job, &other, "dense rows of a CPU", 1e-5);
}

/* Plans ---------------------------------------------------------------------------------------- */

static int64_t most(int64_t rows, int64_t experts, int64_t align) {
    return (rows + experts * (align - 1)) / align * align;
}

// The buffer whose name has such an end; the test fails without one.
static const PlanBuffer *buffer_of(const PlanProgram *program, const char *end) {
    for (uint32_t i = 0; i < program->n_buffers; i++) {
        size_t n = strlen(program->buffers[i].name);
        if (n >= strlen(end) && !strcmp(program->buffers[i].name + n - strlen(end), end)) return &program->buffers[i];
    }
    fail_msg("no buffer %s", end);
    return NULL;
}

// Rows have room for as many pads as there can be; plans say row_align where it is not 1, and keep it.
static void test_plan(void **state) {
    (void)state;
    static const int aligns[] = { 1, 4, 32, 128 };
    for (int ep = 1; ep <= 4; ep *= 2) {
        for (int i = 0; i < COUNT_OF(aligns); i++) {
            Case c = { ep, "experts.lua", "learned", aligns[i] };
            WorldJob job = job_of(&c);
            Plan *plan = world_plan(&job, 0), *again;
            const PlanProgram *step = plan_program(plan, "step");
            int64_t rows = 7 * 3 * ep, experts = 8 / ep, pads = aligns[i] > 1 ? experts : 0;
            assert_int_equal(buffer_of(step, ".dispatch")->dims[0], most(rows, experts, aligns[i]));
            assert_int_equal(buffer_of(step, ".route.offsets")->dims[0], experts + 1 + pads);
            Text text = { 0 }, second = { 0 };
            plan_print(plan, &text);
            assert_int_equal(strstr(text_cstr(&text), "\nrow_align ") != NULL, aligns[i] > 1);
            if (plan_parse(text.at, text.bytes, &again) != OK) fail_msg("%s", status_message());
            plan_print(again, &second);
            assert_string_equal(text_cstr(&text), text_cstr(&second));
            assert_int_equal(again->row_align, aligns[i]);
            assert_int_equal(plan_check(again), OK);
            text_finish(&text), text_finish(&second);
            plan_destroy(plan), plan_destroy(again);
        }
    }
}

static void expect_refused(const Plan *plan, const char *part) {
    assert_int_equal(plan_check(plan), ERR_FORMAT);
    if (!strstr(status_message(), part)) fail_msg("expected %s, found: %s", part, status_message());
}

// Every launch that zeroes pads is needed, and rows that are no multiple are refused.
static void test_refused(void **state) {
    (void)state;
    WorldJob job = job_of(&same[1]);
    Plan *plan = world_plan(&job, 0);
    PlanProgram *step = plan_program(plan, "step");
    int n = 0;
    for (uint32_t i = 0; i < step->n_instrs; i++) {
        PlanInstr *instr = &step->instrs[i], kept = *instr;
        if (instr->op != PLAN_launch || strcmp(plan->kernels[instr->kernel].family, "pads")) continue;
        *instr = (PlanInstr){ .op = PLAN_barrier, .group = GROUP_ep };
        expect_refused(plan, "plan check, align: program \"step\"");
        *instr = kept;
        n++;
    }
    assert_int_equal(n, 2); // rows, and the gradients that come back
    static const int32_t wrong[] = { 0, -32, 3, 256 };
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        plan->row_align = wrong[i];
        expect_refused(plan, "plan check, head: expected a row_align that is a power of two up to 128, found");
    }
    plan->row_align = 128;
    expect_refused(plan, "expected a multiple of row_align 128 as rows of");
    plan->row_align = 32;
    PlanBuffer *offsets = &step->buffers[buffer_of(step, ".route.offsets") - step->buffers], whole = *offsets;
    offsets->dims[0]--;
    offsets->bytes -= dtype_bytes(DTYPE_I32);
    expect_refused(plan, "expected i32 [2 experts + 1] as offsets, firsts and ends of rows aligned to 32, found");
    *offsets = whole;
    assert_int_equal(plan_check(plan), OK);
    plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan), cmocka_unit_test(test_refused), cmocka_unit_test(test_same),
        cmocka_unit_test(test_near), cmocka_unit_test(test_shared),  cmocka_unit_test(test_gpus),
    };
    return cmocka_run_group_tests_name("layouts.align", tests, world_setup, world_teardown);
}
