// SPDX-License-Identifier: Apache-2.0
// Layouts in the simulator without plans: a made-up profile against closed forms, and a model's profile against
// its plans.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "compiler/lower/lower.h"
#include "compiler/search/profile.h"
#include "compiler/search/simulate_layout.h"
#include "compiler/search/simulate_plan.h"
#include "compiler/spec/spec.h"

static void must(Status status) {
    if (status != OK) fail_msg("%s", status_message());
}

static CostCluster cluster_of(const char *name, Arena *arena) {
    CostCluster cluster;
    Text error = { 0 };
    if (!spec_load_cluster(name, arena, &cluster, &error)) fail_msg("%s", text_cstr(&error));
    text_finish(&error);
    return cluster;
}

// Layers of a second forward, a second dgrad, a second wgrad; nothing before and after them, no parameters.
static bool even_part(const CostProfile *profile, int32_t part, const CostChoice *choice, CostPart *out) {
    *out = (CostPart){ 0 };
    if (part < profile->n_classes) {
        for (CostPass pass = PASS_forward; pass <= PASS_wgrad; pass++) out->s[pass][COST_dense] = 1;
        if (choice->recompute) out->s[PASS_again][COST_dense] = 1;
    }
    return choice->ep == 1;
}

static const int32_t one_class[16];

static void test_closed_forms(void **state) {
    (void)state;
    Arena *arena = arena_create();
    CostCluster cluster = cluster_of("h100x8", arena);
    CostProfile profile = { .model = "made up", .n_layers = 16, .sequence = 1, .width = 1, .n_classes = 1,
                            .class_of = one_class, .part = even_part };
    static const int32_t stages[] = { 4, 4, 4, 4 }, halves[] = { 2, 2, 2, 2, 2, 2, 2, 2 };
    uint8_t recompute[16] = { 0 };
    SimLayout l = { .profile = &profile, .cluster = &cluster, .stack = cost_stack_moec(&cluster.device),
                    .choice = { .microbatch = 1, .ep = 1, .precision = PRECISION_BF16 }, .pp = 4, .dp = 1,
                    .chunks = 1, .microbatches = 8, .stages = stages, .recompute = recompute, .posted = true };
    Sim sim;
    must(sim_layout(&l, arena, &sim));
    double sends = 1e-3; // seconds that messages may take of it
    assert_true(fabs((double)sim.step_ps * 1e-12 - (8 + 3) * 12) < sends);
    l.chunks = 2;
    l.schedule = SCHEDULE_INTERLEAVED;
    l.stages = halves;
    must(sim_layout(&l, arena, &sim));
    assert_true(fabs((double)sim.step_ps * 1e-12 - (8 * 12 + 3 * 6)) < sends);
    l.chunks = 1;
    l.schedule = SCHEDULE_ZERO_BUBBLE;
    l.stages = stages;
    must(sim_layout(&l, arena, &sim));
    assert_true(fabs((double)sim.step_ps * 1e-12 - (8 * 12 + 3 * 4)) < sends);
    memset(recompute, 1, sizeof recompute);
    l.schedule = SCHEDULE_1F1B;
    must(sim_layout(&l, arena, &sim));
    assert_true(fabs((double)sim.step_ps * 1e-12 - (8 + 3) * 16) < sends);
    l.choice.ep = 2;
    assert_int_equal(sim_layout(&l, arena, &sim), ERR_ARGUMENT);
    l.choice.ep = 1;
    l.stages = halves;
    assert_int_equal(sim_layout(&l, arena, &sim), ERR_ARGUMENT);
    arena_destroy(arena);
}

// A profile knows nearly as much as plans do.
static void compare(Model *model, const CostProfile *profile, const CostCluster *cluster, const char *text,
                    Arena *arena) {
    Layout layout = layout_single();
    must(layout_parse(text, arena, &layout));
    layout.microbatch = 8;
    Plan *plans[4];
    SimSeconds *seconds[4];
    int32_t stages[4], m = 2 * layout.pp;
    for (int32_t s = 0; s < layout.pp; s++) {
        LowerOptions options = { .microbatch = 8, .microbatches = m, .layout = &layout, .stage = s,
                                 .precision = PRECISION_BF16, .programs[PROGRAM_STEP] = true };
        plans[s] = lower_model(model, &options);
        if (!plans[s]) fail_msg("%s: %s", text, model->diag.message);
        seconds[s] = sim_seconds(plans[s], plan_program(plans[s], "step"), cluster, arena);
        stages[s] = model->n_layers / layout.pp;
    }
    SimStage *ops;
    Sim exact, quick;
    must(sim_stages((const Plan *const *)plans, layout.pp, "step", seconds, arena, &ops));
    must(simulate(ops, layout.pp, &(SimOptions){ .contention = cluster->device.contention }, arena, &exact));
    uint8_t recompute[8] = { 0 };
    SimLayout l = { .profile = profile, .cluster = cluster, .stack = cost_stack_moec(&cluster->device),
                    .choice = { .microbatch = 8, .ep = layout.ep, .precision = PRECISION_BF16,
                                .params = layout.params, .expert_params = layout.expert_params,
                                .routing = COST_UNIFORM },
                    .pp = layout.pp, .dp = layout.dp, .chunks = 1, .microbatches = m, .schedule = layout.schedule,
                    .stages = stages, .recompute = recompute, .params_hidden = 0.9 };
    must(sim_layout(&l, arena, &quick));
    double ratio = (double)quick.step_ps / (double)exact.step_ps;
    print_message("%-24s plans %9.3f ms, profile %+.1f %%\n", text, (double)exact.step_ps * 1e-9, 100 * (ratio - 1));
    if (ratio < 0.85 || ratio > 1.15) fail_msg("%s: %.3f of what plans take", text, ratio);
    for (int32_t s = 0; s < layout.pp; s++) plan_destroy(plans[s]);
}

static void test_against_plans(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Text error = { 0 };
    Model *model = spec_load(MOEC_SOURCE_DIR "/models/tiny.lua", &(SpecOptions){ .routing = ROUTING_UNIFORM }, &error);
    if (!model) fail_msg("%s", text_cstr(&error));
    CostCluster cluster = cluster_of("cpux8", arena);
    CostProfile *profile = profile_create(model, &cluster);
    if (!profile) fail_msg("%s", model->diag.message);
    static const char *const layouts[] = { "dp=1", "pp=2", "pp=2,schedule=zb", "pp=2,dp=2,ep=2", "dp=4,ep=4" };
    for (int i = 0; i < COUNT_OF(layouts); i++) compare(model, profile, &cluster, layouts[i], arena);
    profile_destroy(profile);
    model_destroy(model);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_closed_forms), cmocka_unit_test(test_against_plans) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
