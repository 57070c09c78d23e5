// SPDX-License-Identifier: Apache-2.0
// What a plan says of its kernels is what lowering asked for: the same seconds, from either, and after the plan
// has been written and read again.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "compiler/cost/launch.h"
#include "compiler/lower/lower.h"
#include "compiler/spec/spec.h"

typedef struct Sums { const CostCluster *cluster; double s[N_COST_CLASSES], launches; } Sums;

static void add(Sums *sums, const CostKernel *k, double times) {
    sums->s[k->class] += cost_kernel_s(&sums->cluster->device, k) * times;
    sums->launches += times;
}

static void add_described(void *user, const ProbeKernel *kernel) {
    CostKernel k;
    cost_of_kernel(kernel->desc, 1, &k);
    add(user, &k, kernel->trips);
}

static void ignore(void *user, const ProbeBuffer *buffer) {
    (void)user, (void)buffer;
}

// Of one microbatch, forward and backward.
static void add_planned(const Plan *plan, Sums *sums) {
    Arena *arena = arena_create();
    const PlanProgram *step = plan_program(plan, "step");
    const CostLaunch *launches = cost_of_program(plan, step, arena);
    for (uint32_t r = 0; r < step->n_rows; r++) {
        if (step->rows[r].microbatch != 0) continue;
        const PlanSegment *segment = &step->segments[step->rows[r].segment];
        for (int32_t i = segment->first; i < segment->first + segment->n; i++) {
            const PlanRepeat *repeat = plan_repeat(step, i);
            if (step->instrs[i].op == PLAN_launch) add(sums, &launches[i].kernel, repeat ? repeat->trip : 1);
        }
    }
    arena_destroy(arena);
}

static void same(const Sums *a, const Sums *b, const char *what) {
    assert_true(a->launches > 10);
    if (a->launches != b->launches) fail_msg("%s: %g launches and %g", what, a->launches, b->launches);
    for (int c = 0; c < N_COST_CLASSES; c++)
        if (fabs(a->s[c] - b->s[c]) > 1e-9 * fabs(a->s[c]))
            fail_msg("%s: %s %.9g s and %.9g", what, cost_class_name[c], a->s[c], b->s[c]);
}

static void compare(const char *name, uint8_t precision) {
    Arena *arena = arena_create();
    Text path = { 0 }, error = { 0 }, text = { 0 };
    text_printf(&path, MOEC_SOURCE_DIR "/models/%s.lua", name);
    Model *model = spec_load(text_cstr(&path), &(SpecOptions){ 0 }, &error);
    CostCluster cluster;
    if (!model || !spec_load_cluster("cpux8", arena, &cluster, &error)) fail_msg("%s", text_cstr(&error));
    LowerOptions options = { .microbatch = 1, .microbatches = 1, .precision = precision,
                             .programs[PROGRAM_STEP] = true };
    Sums asked = { .cluster = &cluster }, planned = asked, read = asked;
    assert_true(lower_probe(model, &options, &(LowerProbe){ add_described, ignore, &asked }));
    Plan *plan = lower_model(model, &options), *again;
    if (!plan) fail_msg("%s", model->diag.message);
    add_planned(plan, &planned);
    same(&asked, &planned, name);
    plan_print(plan, &text);
    assert_int_equal(plan_parse(text.at, text.bytes, &again), OK);
    add_planned(again, &read);
    same(&planned, &read, name);
    plan_destroy(plan);
    plan_destroy(again);
    model_destroy(model);
    text_finish(&path);
    text_finish(&error);
    text_finish(&text);
    arena_destroy(arena);
}

static void test_plans(void **state) {
    (void)state;
    compare("tiny", PRECISION_OPEN);
    compare("tiny", PRECISION_BF16);
    compare("latent_moe", PRECISION_BF16);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_plans) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
