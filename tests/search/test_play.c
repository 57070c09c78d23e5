// SPDX-License-Identifier: Apache-2.0
// Layouts in the simulator: made-up costs against closed forms, with and without kinds; those of models against their
// plans.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "compiler/lower/lower.h"
#include "compiler/search/costed.h"
#include "compiler/search/profile.h"
#include "compiler/search/simulate_plan.h"
#include "compiler/spec/spec.h"
#include "tests/search/made_up.h"

static void must(Status status) {
    if (status != OK) fail_msg("%s", status_message());
}

static Sim simulated(const SearchProfile *profile, const SearchLayout *layout, Arena *arena) {
    SimStage *stages;
    Sim sim;
    must(search_stages(profile, layout, arena, &stages));
    must(simulate(stages, layout->point.choice.pp, &(SimOptions){ .posted = true, .sharing = profile->sharing },
                  arena, &sim));
    for (int32_t s = 0; s < sim.n; s++) {
        int64_t all = 0;
        for (int kind = 0; kind < N_SIM_KINDS; kind++) all += sim.stage_ps[s][kind];
        assert_int_equal(all, sim.step_ps);
    }
    return sim;
}

/* Closed forms --------------------------------------------------------------------------------- */

// Layers of a second forward, a second dgrad, a second wgrad; nothing before and after them, no parameters.
static bool even_part(const void *user, const SearchChoice *choice, int32_t part, SearchLayer *out) {
    (void)user;
    *out = (SearchLayer){ 0 };
    if (!part) *out = (SearchLayer){ .seconds = { 3, 3, 4 }, .forward_s = 1, .wgrad_s = 1 };
    return choice->ep == 1;
}

static bool even_rest(const void *user, const SearchChoice *choice, SearchRest *out) {
    (void)user, (void)choice;
    *out = (SearchRest){ .send_s = 1e-6 };
    return true;
}

static void expect_s(const SearchProfile *profile, const SearchLayout *layout, double seconds) {
    Arena *arena = arena_create();
    Sim sim = simulated(profile, layout, arena);
    double sends = 1e-3; // seconds that messages may take of it
    assert_true(fabs((double)sim.step_ps * 1e-12 - seconds) < sends);
    assert_true((double)sim.step_ps * 1e-12 == search_play(profile, layout));
    arena_destroy(arena);
}

static void test_closed_forms(void **state) {
    (void)state;
    Arena *arena = arena_create();
    static const uint8_t one_class[16];
    SearchProfile profile = { .n_layers = 16, .n_classes = 1, .class_of = one_class, .part = even_part,
                              .rest = even_rest };
    int32_t stages[] = { 4, 4, 4, 4 }, halves[] = { 2, 2, 2, 2, 2, 2, 2, 2 };
    uint8_t recompute[16] = { 0 };
    SearchChoice choice = { .pp = 4, .dp = 1, .ep = 1, .microbatch = 1 };
    SearchLayout l = { .point = { .choice = choice, .chunks = 1, .microbatches = 8 }, .stages = stages,
                       .recompute = recompute };
    expect_s(&profile, &l, (8 + 3) * 12);
    l.point.chunks = 2;
    l.point.schedule = SCHEDULE_INTERLEAVED;
    l.stages = halves;
    expect_s(&profile, &l, 8 * 12 + 3 * 6);
    l.point.chunks = 1;
    l.point.schedule = SCHEDULE_ZERO_BUBBLE;
    l.stages = stages;
    expect_s(&profile, &l, 8 * 12 + 3 * 4);
    memset(recompute, RECOMPUTE_BLOCK, sizeof recompute);
    l.point.schedule = SCHEDULE_1F1B;
    expect_s(&profile, &l, (8 + 3) * 16);
    profile.sharing = 4; // a core that four share: whoever works has what the others leave
    expect_s(&profile, &l, 8 * 16);
    profile.sharing = 1e9;
    expect_s(&profile, &l, 8 * 16);
    for (double sharing = 1.125; sharing < 4; sharing *= 1.125) { // never faster than alone, nor less work together
        profile.sharing = sharing;
        double s = (double)simulated(&profile, &l, arena).step_ps * 1e-12;
        assert_true(s < (8 + 3) * 16 && s > fmax((8 + 3) * 16 / sharing, 8 * 16) - 1e-3);
    }
    l.point.microbatches = 1; // one works at a time, twice as fast
    profile.sharing = 2;
    expect_s(&profile, &l, 4 * 16 / 2);
    l.point.microbatches = 8;
    profile.sharing = 0;
    SimStage *refused;
    l.point.choice.ep = 2;
    assert_int_equal(search_stages(&profile, &l, arena, &refused), ERR_ARGUMENT);
    assert_true(isnan(search_play(&profile, &l)));
    l.point.choice.ep = 1;
    l.stages = halves;
    assert_int_equal(search_stages(&profile, &l, arena, &refused), ERR_ARGUMENT);
    arena_destroy(arena);
}

/* Kinds ---------------------------------------------------------------------------------------- */

// Thirds of which nobody could say how they add up, some of them nothing.
static bool odd_work(const void *user, const SearchChoice *choice, int32_t part, int recompute, SearchWork *out) {
    (void)user, (void)choice;
    *out = (SearchWork){ 0 };
    for (int kind = 0; kind < SIM_BUBBLE; kind++) {
        for (int k = 0; k < N_PIPELINE_KINDS; k++)
            out->unit_s[k][kind] = (kind + k + part) % 3 ? 1 / (3.0 + kind + k + recompute) : 0;
        out->step_s[kind] = kind == WORK_optimizer || kind == part ? 0.7 : 0;
    }
    return true;
}

static void compare_kinds(uint64_t seed, const SearchLayout *layout, const SearchProfile *profile, Arena *arena) {
    SearchProfile told = *profile;
    told.work = odd_work;
    Sim whole = simulated(profile, layout, arena), apart = simulated(&told, layout, arena);
    if (whole.step_ps != apart.step_ps) fail_msg("seed %llu: kinds change the step", (unsigned long long)seed);
    for (int32_t s = 0; s < whole.n; s++)
        assert_int_equal(whole.stage_ps[s][SIM_BUBBLE], apart.stage_ps[s][SIM_BUBBLE]);
    double seconds = (double)whole.step_ps * 1e-12, played = search_play(profile, layout);
    int32_t enough = 4 * layout->point.choice.pp;
    if (layout->point.microbatches <= enough) assert_true(played == seconds);
    if (fabs(played / seconds - 1) > 0.02)
        fail_msg("seed %llu: %d microbatches take %g s, from the first %d %g s", (unsigned long long)seed,
                 layout->point.microbatches, seconds, enough, played);
}

// A layout that was found is the same one after it has been one of compiler/layout.
static void compare_forms(const SearchLayout *found, const SearchProfile *profile, Arena *arena) {
    Layout layout = search_to_layout(found, profile, arena);
    SearchLayout again = search_from_layout(&layout, found->point.choice.precision, profile->n_layers, arena);
    Layout same = search_to_layout(&again, profile, arena);
    Text text[2] = { { 0 }, { 0 } };
    layout_print(&layout, &text[0]);
    layout_print(&same, &text[1]);
    assert_string_equal(text_cstr(&text[0]), text_cstr(&text[1]));
    int32_t n = layout.pp * layout.chunks;
    assert_memory_equal(again.stages, found->stages, sizeof *found->stages * (size_t)n);
    assert_memory_equal(again.recompute, found->recompute, (size_t)profile->n_layers);
    assert_int_equal(again.point.choice.overlap, found->point.choice.overlap);
    for (int i = 0; i < 2; i++) text_finish(&text[i]);
}

static void test_kinds(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        MadeUp m;
        made_up_small(&m, seed);
        Arena *arena = arena_create();
        Search *s;
        SearchFound found;
        if (search_create(&m.profile, &m.space, &s) == OK) {
            search_run(s, (double)m.space.memory_bytes, 6, arena, &found);
            for (int32_t i = 0; i < found.n; i++) {
                compare_kinds(seed, &found.best[i], &m.profile, arena);
                compare_forms(&found.best[i], &m.profile, arena);
            }
            search_destroy(s);
        }
        arena_destroy(arena);
    }
}

/* Models --------------------------------------------------------------------------------------- */

typedef struct Ground { Model *model; CostCluster cluster; CostProfile *costs; Arena *arena; } Ground;

// `links`: how fast they are, to what the cluster says.
static Ground ground_with(const char *cluster, double links, const char *experts, Routing routing) {
    Ground g = { .arena = arena_create() };
    Text error = { 0 };
    SpecOptions options = { .args = &(SpecArg){ "experts", experts }, .n_args = 1, .routing = routing };
    g.model = spec_load(MOEC_SOURCE_DIR "/models/tiny.lua", &options, &error);
    if (!g.model) fail_msg("%s", text_cstr(&error));
    if (!spec_load_cluster(cluster, g.arena, &g.cluster, &error)) fail_msg("%s", text_cstr(&error));
    text_finish(&error);
    g.cluster = cost_cluster_scaled(&g.cluster, 0, links);
    g.costs = profile_create(g.model, &g.cluster);
    if (!g.costs) fail_msg("%s", g.model->diag.message);
    return g;
}

static Ground ground_of(const char *cluster, Routing routing) {
    return ground_with(cluster, 1, "8", routing);
}

static void ground_finish(Ground *g) {
    profile_destroy(g->costs);
    model_destroy(g->model);
    arena_destroy(g->arena);
}

static Layout layout_of(const Ground *g, const char *text) {
    Layout layout = layout_single();
    must(layout_parse(text, g->arena, &layout));
    layout.microbatch = 8;
    return layout;
}

static Costed costed_of(Ground *g, CostRouting routing, double hidden) {
    return (Costed){ .profile = g->costs, .cluster = &g->cluster, .stack = *cost_stack_moec(&g->cluster.device),
                     .routing = (uint8_t)routing, .load = 1, .params_hidden = hidden, .rows_hidden = hidden / 2,
                     .any_transport = true };
}

// What a part takes in units and once a step is the sum of its kinds.
static void compare_work(const SearchProfile *p, const SearchLayout *l, int32_t part, int recompute) {
    const SearchChoice *choice = &l->point.choice;
    SearchLayer layer;
    SearchWork work;
    assert_true(p->part(p->user, choice, part, &layer));
    if (layer.seconds[recompute] == INFINITY) return;
    assert_true(p->work(p->user, choice, part, recompute, &work));
    double units[N_PIPELINE_KINDS] = { 0 }, step = 0;
    for (int kind = 0; kind < N_SIM_KINDS; kind++) {
        for (int k = 0; k < N_PIPELINE_KINDS; k++) {
            assert_true(work.unit_s[k][kind] >= -1e-12);
            units[k] += work.unit_s[k][kind];
        }
        step += work.step_s[kind];
    }
    assert_true(fabs(units[0] + units[1] + units[2] - layer.seconds[recompute]) <= 1e-9 * layer.seconds[recompute]);
    assert_true(fabs(units[PIPELINE_WGRAD] - layer.wgrad_s) <= 1e-9 * layer.seconds[recompute]);
    assert_true(fabs(step - layer.step_s) <= 1e-9 * layer.step_s);
}

static void test_work(void **state) {
    (void)state;
    Ground g = ground_of("h100x16", ROUTING_LEARNED);
    static const char *const layouts[] = { "dp=1",
                                           "pp=2,dp=2,ep=2",
                                           "dp=4,ep=4,params=fsdp",
                                           "dp=8,ep=2,params=fsdp,overlap=off",
                                           "dp=16,ep=8,transport=blocks,node=8",
                                           "dp=4,ep=4,capacity=dropless,round=1.25" };
    for (int i = 0; i < COUNT_OF(layouts); i++) {
        for (int hidden = 0; hidden < 2; hidden++) {
            Layout layout = layout_of(&g, layouts[i]);
            SearchLayout l = search_from_layout(&layout, PRECISION_BF16, g.model->n_layers, g.arena);
            Costed costed = costed_of(&g, COST_LEARNED, hidden);
            SearchProfile profile;
            must(costed_start(&costed, &profile));
            for (int32_t part = 0; part < profile.n_classes + 2; part++)
                for (int r = 0; r < (part < profile.n_classes ? SEARCH_RECOMPUTES : 1); r++)
                    compare_work(&profile, &l, part, r);
        }
    }
    ground_finish(&g);
}

// What one rank holds is gathered by nobody, whatever the layout says of it.
static void test_held_by_one(void **state) {
    (void)state;
    Ground g = ground_of("cpux8", ROUTING_UNIFORM);
    Layout resident = layout_of(&g, "dp=4,ep=4"), divided = layout_of(&g, "dp=4,ep=4,expert_params=fsdp");
    Costed costed = costed_of(&g, COST_UNIFORM, 1);
    SearchProfile profile;
    must(costed_start(&costed, &profile));
    SearchLayout a = search_from_layout(&resident, PRECISION_BF16, g.model->n_layers, g.arena),
                 b = search_from_layout(&divided, PRECISION_BF16, g.model->n_layers, g.arena);
    a.point.microbatches = b.point.microbatches = 3;
    assert_int_equal(b.point.choice.expert_params, PARAMS_FSDP);
    assert_int_equal(simulated(&profile, &a, g.arena).step_ps, simulated(&profile, &b, g.arena).step_ps);
    ground_finish(&g);
}

// A profile knows nearly as much as plans do.
static void compare_plans(Ground *g, const char *text) {
    Layout layout = layout_of(g, text);
    Plan *plans[4];
    SimSeconds *seconds[4];
    int32_t m = 2 * layout.pp;
    for (int32_t s = 0; s < layout.pp; s++) {
        LowerOptions options = { .microbatch = 8, .microbatches = m, .layout = &layout, .stage = s,
                                 .precision = PRECISION_BF16, .programs[PROGRAM_STEP] = true };
        plans[s] = lower_model(g->model, &options);
        if (!plans[s]) fail_msg("%s: %s", text, g->model->diag.message);
        seconds[s] = sim_seconds(plans[s], plan_program(plans[s], "step"), &g->cluster, g->arena);
    }
    SimStage *ops;
    Sim exact;
    must(sim_stages((const Plan *const *)plans, layout.pp, "step", seconds, g->arena, &ops));
    must(simulate(ops, layout.pp, &(SimOptions){ .contention = g->cluster.device.contention }, g->arena, &exact));
    SearchLayout l = search_from_layout(&layout, PRECISION_BF16, g->model->n_layers, g->arena);
    l.point.microbatches = m;
    Costed costed = costed_of(g, COST_UNIFORM, 0);
    costed.params_hidden = 0.9;
    SearchProfile profile;
    must(costed_start(&costed, &profile));
    Sim quick = simulated(&profile, &l, g->arena);
    double ratio = (double)quick.step_ps / (double)exact.step_ps;
    print_message("%-24s plans %9.3f ms, profile %+.1f %%\n", text, (double)exact.step_ps * 1e-9, 100 * (ratio - 1));
    if (ratio < 0.85 || ratio > 1.15) fail_msg("%s: %.3f of what plans take", text, ratio);
    for (int32_t s = 0; s < layout.pp; s++) plan_destroy(plans[s]);
}

static void test_against_plans(void **state) {
    (void)state;
    Ground g = ground_of("cpux8", ROUTING_UNIFORM);
    static const char *const layouts[] = { "dp=1", "pp=2", "pp=2,schedule=zb", "pp=2,dp=2,ep=2", "dp=4,ep=4" };
    for (int i = 0; i < COUNT_OF(layouts); i++) compare_plans(&g, layouts[i]);
    ground_finish(&g);
}

// Where links are slow, too: what is gathered when a step ends, and what of gradients backward does not hide.
static void test_slow_links(void **state) {
    (void)state;
    static const char *const experts[] = { "8", "256" };
    for (int k = 0; k < COUNT_OF(experts); k++) {
        Ground g = ground_with("cpux8", 0.01, experts[k], ROUTING_UNIFORM);
        static const char *const layouts[] = { "dp=2", "dp=4", "pp=2,dp=2" };
        for (int i = 0; i < COUNT_OF(layouts); i++) compare_plans(&g, layouts[i]);
        ground_finish(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_closed_forms), cmocka_unit_test(test_kinds),
                                        cmocka_unit_test(test_work), cmocka_unit_test(test_held_by_one),
                                        cmocka_unit_test(test_against_plans),
                                        cmocka_unit_test(test_slow_links) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
