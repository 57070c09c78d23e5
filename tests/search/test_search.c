// SPDX-License-Identifier: Apache-2.0
// The search finds what trying every layout finds, its bounds are bounds, and its certificate adds up: of made-up costs by the
// hundred, and of models on machines.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compiler/search/costed.h"
#include "compiler/search/profile.h"
#include "compiler/spec/spec.h"
#include "tests/search/brute.h"

enum { PAIRS = 300, LEAST_LAYOUTS = 1000, MOST_LAYOUTS = 300000, NOT_OBVIOUS = 20, TOP = 5 };
static const double near_s = 1e-9;

typedef struct Seen { int pairs, uneven, mixed, below, obvious, interleaved, zero_bubble, alone, rounds, dropping, placed, stopped; } Seen;

static bool even_split(const SearchLayout *l, int32_t layers) {
    int32_t n = l->point.choice.pp * l->point.chunks;
    for (int32_t i = 0; i < n; i++)
        if (l->stages[i] != layers / n + (i < layers % n)) return false;
    return true;
}

static bool several(uint8_t set) {
    return (set & (set - 1)) || !set;
}

static void look_at(Seen *seen, const SearchLayout *l, const MadeUp *m) {
    int32_t layers = m->profile.n_layers;
    bool mixed = false, uneven = !even_split(l, layers);
    bool below = l->point.choice.ep > 1 && l->point.choice.ep < l->point.choice.dp;
    for (int32_t i = 1; i < layers; i++) mixed |= l->recompute[i] != l->recompute[0];
    seen->pairs++;
    seen->uneven += uneven;
    seen->mixed += mixed;
    seen->below += below;
    seen->obvious += !uneven && !mixed && !below;
    seen->interleaved += l->point.chunks > 1;
    seen->zero_bubble += l->point.schedule == SCHEDULE_ZERO_BUBBLE;
    seen->alone += several(m->space.overlaps) && !l->point.choice.overlap;
    seen->rounds += m->space.n_rounds > 1 && l->point.choice.round != m->space.rounds[0];
    seen->dropping += m->space.n_capacities > 1 && l->point.choice.capacity != m->space.capacities[0];
    seen->placed += l->point.choice.placement > 0;
}

static void assert_near(double a, double b) {
    if (!(fabs(a - b) <= near_s * fabs(b))) fail_msg("%.17g is not %.17g", a, b);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// The best of each of the first points.
static void check_top(const Brute *brute, const SearchFound *found, Arena *arena) {
    double *all = ARENA_ARRAY(arena, double, brute->n);
    int32_t n = 0;
    for (uint32_t i = 0; i < brute->n; i++)
        if (brute->points[i].seconds < INFINITY) all[n++] = brute->points[i].seconds;
    qsort(all, (size_t)n, sizeof *all, compare);
    assert_int_equal(found->n, n < TOP ? n : TOP);
    for (int32_t i = 0; i < found->n; i++) assert_near(found->best[i].step_s, all[i]);
}

static void check_certificate(const Brute *brute, const SearchCertificate *c) {
    SearchCount sum = c->cut_memory, all = search_count((uint64_t)brute->layouts);
    search_count_add(&sum, &c->cut_bound);
    search_count_add(&sum, &c->decided);
    assert_true(search_count_equal(&sum, &c->layouts));
    assert_true(search_count_equal(&all, &c->layouts));
    assert_int_equal(c->points, brute->n);
    assert_int_equal(c->points_memory + c->points_bound + c->points_decided, c->points);
    assert_true(c->complete && c->gap == 0);
}

static bool stop_at(void *user, int64_t decided, int64_t points, double best_s, double lower_s) {
    (void)decided, (void)points, (void)best_s, (void)lower_s;
    int *left = user;
    return (*left)-- > 0;
}

// Stopped, a search says of no point more than it knows: whatever may still be among the first is decided or open, and
// nothing is faster than it says. False: it was through before.
static bool check_stopped(Search *s, const Brute *brute, double memory, int after, Arena *arena) {
    SearchFound found;
    search_on_pulse(s, stop_at, &after);
    search_run(s, memory, TOP, arena, &found);
    search_on_pulse(s, NULL, NULL);
    const SearchCertificate *c = &found.certificate;
    SearchCount sum = c->cut_memory, all = search_count((uint64_t)brute->layouts);
    search_count_add(&sum, &c->cut_bound);
    search_count_add(&sum, &c->decided);
    search_count_add(&sum, &c->open);
    assert_true(search_count_equal(&sum, &all) && search_count_equal(&c->layouts, &all));
    assert_int_equal(c->points_memory + c->points_bound + c->points_decided + c->points_open, brute->n);
    assert_true(!c->complete || (c->gap == 0 && !c->points_open));
    double limit = found.n == TOP ? found.best[TOP - 1].step_s : INFINITY;
    int64_t among = 0, fit = 0;
    for (uint32_t i = 0; i < brute->n; i++) {
        among += brute->points[i].seconds < limit * (1 - near_s);
        fit += brute->points[i].seconds < INFINITY;
        assert_true(c->lower_s <= brute->points[i].seconds * (1 + near_s));
    }
    assert_true(among <= c->points_decided + c->points_open);
    assert_true(fit <= (int64_t)brute->n - c->points_memory);
    return !c->complete;
}

// Bounds of all points, and the point alone.
static void check_points(Search *s, const Brute *brute, double memory) {
    for (uint32_t i = 0; i < brute->n; i++) {
        const BrutePoint *p = &brute->points[i];
        double bound = search_bound(s, &p->point, memory);
        if (p->seconds < INFINITY) assert_true(bound <= p->seconds * (1 + near_s));
        Arena *arena = arena_create();
        SearchEvaluated one;
        search_point(s, &p->point, memory, arena, &one);
        assert_int_equal(one.verdict, p->seconds < INFINITY ? VERDICT_FITS : VERDICT_MEMORY);
        if (p->seconds < INFINITY) assert_near(one.layout.step_s, p->seconds);
        else assert_near(one.layout.peak_bytes, p->least_bytes);
        arena_destroy(arena);
    }
}

// What is said of the layout is what it is when weighed as it stands.
static void check_layout(Search *s, const SearchProfile *profile, const SearchLayout *layout, double memory, Arena *arena) {
    SearchLayout copy = *layout;
    copy.stage_bytes = NULL;
    SearchEvaluated again;
    search_layout(s, &copy, memory, arena, &again);
    assert_int_equal(again.verdict, VERDICT_FITS);
    assert_near(again.layout.step_s, layout->step_s);
    assert_true(layout->peak_bytes <= memory && again.layout.peak_bytes == layout->peak_bytes);
    assert_true(layout->bound_s <= layout->step_s * (1 + near_s));
    // Played out unit by unit it takes about as long: sends queue, unequal stages wait or need not.
    double played = search_play(profile, layout);
    assert_true(played >= 0.7 * layout->step_s && played <= 2 * layout->step_s);
}

static bool check_pair(uint64_t seed, Seen *seen) {
    MadeUp m;
    made_up_small(&m, seed);
    Arena *arena = arena_create();
    Brute brute;
    double memory = (double)m.space.memory_bytes;
    bool taken = brute_force(&m, memory, MOST_LAYOUTS, arena, &brute) && brute.fits >= LEAST_LAYOUTS;
    if (taken) {
        Search *s;
        assert_int_equal(search_create(&m.profile, &m.space, &s), OK);
        SearchFound found;
        search_run(s, memory, TOP, arena, &found);
        check_top(&brute, &found, arena);
        check_certificate(&brute, &found.certificate);
        check_points(s, &brute, memory);
        for (int32_t i = 0; i < found.n; i++) check_layout(s, &m.profile, &found.best[i], memory, arena);
        look_at(seen, &found.best[0], &m);
        seen->stopped += check_stopped(s, &brute, memory, (int)(seed % 4), arena);
        search_destroy(s);
    }
    arena_destroy(arena);
    return taken;
}

static void test_brute_force(void **state) {
    (void)state;
    Seen seen = { 0 };
    for (uint64_t seed = 1; seen.pairs < PAIRS; seed++) {
        assert_true(seed < 100 * PAIRS);
        check_pair(seed, &seen);
    }
    print_message("%d pairs: uneven splits %d, mixed recompute %d, 1 < ep < dp %d, none of these %d, "
                  "interleaved %d, zero bubble %d; not the first of several: overlap off %d, rounds %d, capacity %d, placement %d; "
                  "stopped early %d\n",
                  seen.pairs, seen.uneven, seen.mixed, seen.below, seen.obvious, seen.interleaved,
                  seen.zero_bubble, seen.alone, seen.rounds, seen.dropping, seen.placed, seen.stopped);
    assert_true(seen.uneven >= NOT_OBVIOUS && seen.mixed >= NOT_OBVIOUS && seen.below >= NOT_OBVIOUS);
    assert_true(seen.pairs - seen.obvious >= NOT_OBVIOUS);
    assert_true(seen.interleaved > 0 && seen.zero_bubble > 0);
    assert_true(seen.alone > 0 && seen.rounds > 0 && seen.dropping > 0 && seen.placed > 0);
    assert_true(seen.stopped >= PAIRS / 4);
}

/* Models on machines ------------------------------------------------------------------------------- */

typedef struct Machine {
    const char *spec, *cluster; // a name, or the text of a file
    SpecArg args[2];
    int n_args;
    int64_t sequences;
    uint8_t precision, recomputes, routing;
} Machine;

static const char two_nodes[] = "local m = require 'moec'\n"
                                "return m.cluster { name = 'two', device = { name = 'X', arch = 'sm_90a', units = 100, memory = 2^35,\n"
                                "  bandwidth = 2e12, bf16 = 5e14 }, links = { m.link { name = 'in', size = 4, rate = 3e11 },\n"
                                "  m.link { name = 'net', size = 2, rate = 2e10 } } }\n";
static const Machine machines[] = {
    { "tiny", "cpux4", { { "experts", "8" } }, 1, 32, PRECISION_FP32, 0, COST_LEARNED },
    { "tiny", "h100x8", { { "experts", "16" }, { "sequence", "512" } }, 2, 32, PRECISION_BF16, 0, COST_RANDOM },
    { "tiny", "rtx4090x6", { { "layers", "5" }, { "experts", "6" } }, 2, 36, PRECISION_BF16, 0, COST_UNIFORM },
    { "tiny", two_nodes, { { "experts", "8" } }, 1, 16, PRECISION_BF16, 0, COST_LEARNED },
    { "olmo3moe_8l", "b300x4", { { "experts", "32" } }, 1, 4, PRECISION_BF16, 1 << RECOMPUTE_CHEAP | 1 << RECOMPUTE_BLOCK,
      COST_LEARNED },
};

// Of all memory, and of less and less until hardly anything fits.
static void check_memories(const MadeUp *m, Seen *seen) {
    Arena *arena = arena_create();
    Brute all;
    Search *s;
    double least = INFINITY, most = 0;
    assert_true(brute_force(m, INFINITY, 10 * MOST_LAYOUTS, arena, &all));
    for (uint32_t i = 0; i < all.n; i++) least = fmin(least, all.points[i].least_bytes), most = fmax(most, all.points[i].least_bytes);
    assert_int_equal(search_create(&m->profile, &m->space, &s), OK);
    for (int k = 0; k < 4; k++) {
        double memory = k ? least * pow(most / least, 1 - 0.33 * k) : INFINITY;
        Brute brute;
        SearchFound found;
        brute_force(m, memory, 10 * MOST_LAYOUTS, arena, &brute);
        search_run(s, memory, TOP, arena, &found);
        check_top(&brute, &found, arena);
        check_certificate(&brute, &found.certificate);
        check_points(s, &brute, memory);
        check_stopped(s, &brute, memory, k, arena);
        if (found.n) look_at(seen, &found.best[0], m);
    }
    search_destroy(s);
    arena_destroy(arena);
}

// The costs of models on machines are no kinder than made-up ones.
static void test_machines(void **state) {
    (void)state;
    Seen seen = { 0 };
    for (int i = 0; i < COUNT_OF(machines); i++) {
        const Machine *of = &machines[i];
        Arena *arena = arena_create();
        Text error = { 0 };
        CostCluster cluster;
        bool loaded = strchr(of->cluster, '\n') ? spec_load_cluster_text("c.lua", of->cluster, strlen(of->cluster), arena, &cluster, &error)
                                                : spec_load_cluster(of->cluster, arena, &cluster, &error);
        if (!loaded) fail_msg("%s", text_cstr(&error));
        SpecOptions options = { .args = of->args, .n_args = of->n_args };
        Model *model = spec_load(arena_printf(arena, MOEC_SOURCE_DIR "/models/%s.lua", of->spec), &options, &error);
        if (!model) fail_msg("%s", text_cstr(&error));
        CostProfile *costs = profile_create(model, &cluster);
        Costed costed = { .profile = costs, .cluster = &cluster, .stack = *cost_stack_moec(&cluster.device),
                          .routing = of->routing, .load = 1, .params_hidden = 1 };
        MadeUp m = { .space = { .ranks = cost_cluster_devices(&cluster), .sequences = of->sequences, .most_microbatch = 8,
                                .recomputes = of->recomputes, .precisions = { of->precision }, .n_precisions = 1,
                                .n_capacities = 2, .capacities = { 0, 1.25 }, .n_rounds = 2, .rounds = { INFINITY, 1.25 },
                                .overlaps = 3, .placements = 1 } };
        assert_int_equal(costed_start(&costed, &m.profile), OK);
        check_memories(&m, &seen);
        profile_destroy(costs);
        model_destroy(model);
        text_finish(&error);
        arena_destroy(arena);
    }
    print_message("%d optima of models: uneven splits %d, mixed recompute %d, 1 < ep < dp %d, none of these %d\n", seen.pairs,
                  seen.uneven, seen.mixed, seen.below, seen.obvious);
    assert_true(seen.pairs == 4 * COUNT_OF(machines) && seen.pairs - seen.obvious >= 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_machines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
