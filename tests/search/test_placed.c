// SPDX-License-Identifier: Apache-2.0
// Recorded loads in a search: of each number of ranks the placement, and what it and the order of experts leave.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/search/costed.h"
#include "compiler/search/placed.h"
#include "compiler/search/profile.h"
#include "compiler/spec/spec.h"

static Model *tiny(void) {
    Text error = { 0 };
    SpecOptions options = { 0 };
    Model *m = spec_load(MOEC_SOURCE_DIR "/models/tiny.lua", &options, &error);
    if (!m) fail_msg("%s", text_cstr(&error));
    return m;
}

// 8 experts of layers 2 to 4; layer 1 has none. The first two of each have half of the rows: in order they are on one
// rank. In the second step the loads are turned around.
static Load record(Arena *arena, const char *experts_of_layer_2) {
    Text text = { 0 };
    for (int step = 1; step <= 2; step++) {
        text_printf(&text, "{\"step\":%d", step);
        for (int layer = 2; layer <= 4; layer++)
            text_printf(&text, ",\"train/block %02d/load\":[%s]", layer,
                        layer == 2  ? experts_of_layer_2
                        : step == 1 ? "30,30,10,10,10,10,10,10"
                                    : "10,10,10,10,10,10,30,30");
        text_add(&text, "}\n");
    }
    Load load;
    if (load_parse("record", text_cstr(&text), text.bytes, 0, arena, &load) != OK) fail_msg("%s", status_message());
    text_finish(&text);
    return load;
}

static void places(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Model *m = tiny();
    Load load = record(arena, "30,30,10,10,10,10,10,10");
    Placed *placed;
    assert_int_equal(placed_create(m, "record", &load, arena, &placed), OK);
    int32_t class_of[4] = { 3, 1, 0, 0 }, experts;
    // Layer 2, always the same: in order the busiest of 4 ranks has 60 of a mean of 30, of 2 has 80 of 60; placed both
    // have what there is, 40 and 60.
    assert_true(fabs(placed_imbalance(placed, class_of, 1, 4, true) - 2) < 1e-12);
    assert_true(fabs(placed_imbalance(placed, class_of, 1, 4, false) - 4.0 / 3) < 1e-12);
    assert_true(fabs(placed_imbalance(placed, class_of, 1, 2, true) - 4.0 / 3) < 1e-12);
    assert_true(fabs(placed_imbalance(placed, class_of, 1, 2, false) - 1) < 1e-12);
    // The others by the sums of both steps, judged step by step: sums are 40, 40, 20, .., 40, 40.
    assert_true(fabs(placed_imbalance(placed, class_of, 0, 4, true) - 2) < 1e-12);
    assert_true(placed_imbalance(placed, class_of, 0, 4, false) < 2);
    assert_true(placed_imbalance(placed, class_of, 2, 4, false) == 0); // no layer is of that class
    double bound, left = placed_left(placed, 4, false, &bound);
    assert_true(bound >= 1 && left >= 1 && left < placed_left(placed, 4, true, &bound));
    const int32_t *ranks = placed_ranks(placed, 4, &experts);
    assert_int_equal(experts, 8);
    for (int layer = 1; layer < 4; layer++) {
        int32_t held[4] = { 0 };
        for (int e = 0; e < 8; e++) held[ranks[layer * 8 + e]]++;
        for (int r = 0; r < 4; r++) assert_int_equal(held[r], 2);
        assert_true(ranks[layer * 8] != ranks[layer * 8 + 1]);
    }
    model_destroy(m);
    arena_destroy(arena);
}

// What is waited for is what the record leaves, and it decides the placement.
static void costs(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Model *m = tiny();
    Load load = record(arena, "30,30,10,10,10,10,10,10");
    Text error = { 0 };
    CostCluster cluster;
    if (!spec_load_cluster("cpux4", arena, &cluster, &error)) fail_msg("%s", text_cstr(&error));
    CostProfile *profile = profile_create(m, &cluster);
    Costed costed = { .profile = profile,
                      .cluster = &cluster,
                      .stack = *cost_stack_moec(&cluster.device),
                      .routing = COST_LEARNED,
                      .load = 1,
                      .params_hidden = 1 };
    assert_int_equal(placed_create(m, "record", &load, arena, &costed.placed), OK);
    SearchProfile of;
    assert_int_equal(costed_start(&costed, &of), OK);
    SearchChoice choice = { .pp = 1,
                            .dp = 4,
                            .ep = 4,
                            .microbatch = 1,
                            .precision = PRECISION_FP32,
                            .overlap = 1,
                            .capacity = INFINITY,
                            .round = INFINITY };
    SearchLayer in_order, placed, rounds;
    int32_t class = profile->class_of[1];
    assert_true(of.part(&costed, &choice, class, &in_order));
    choice.placement = 1;
    assert_true(of.part(&costed, &choice, class, &placed));
    assert_true(placed.seconds[RECOMPUTE_NONE] < in_order.seconds[RECOMPUTE_NONE]);
    assert_true(placed.saved_bytes[RECOMPUTE_NONE] == in_order.saved_bytes[RECOMPUTE_NONE]);
    // Rows come in two rounds where the busiest rank has twice the even share: memory is less, time more. Where it
    // has no more than a round, rounds cost nothing.
    choice.placement = 0;
    choice.round = 1.25;
    assert_true(of.part(&costed, &choice, class, &rounds));
    assert_true(rounds.seconds[RECOMPUTE_NONE] > in_order.seconds[RECOMPUTE_NONE]);
    assert_true(rounds.saved_bytes[RECOMPUTE_NONE] < in_order.saved_bytes[RECOMPUTE_NONE]);
    choice.round = 3;
    assert_true(of.part(&costed, &choice, class, &rounds));
    assert_true(rounds.seconds[RECOMPUTE_NONE] == in_order.seconds[RECOMPUTE_NONE]);
    // The search takes the placement that the record speaks for.
    SearchSpace space = { .ranks = 4,
                          .sequences = 16,
                          .memory_bytes = (int64_t)1 << 40,
                          .params = 1,
                          .expert_params = 1,
                          .precisions = { PRECISION_FP32 },
                          .n_precisions = 1,
                          .placements = 2 };
    Search *search;
    assert_int_equal(search_create(&of, &space, &search), OK);
    SearchPoint point = { .choice = choice, .chunks = 1 };
    point.choice.capacity = 0;
    point.choice.round = INFINITY;
    SearchEvaluated with[2];
    for (int k = 0; k < 2; k++) {
        point.choice.placement = (uint8_t)k;
        search_point(search, &point, 0x1p40, arena, &with[k]);
        assert_int_equal(with[k].verdict, VERDICT_FITS);
    }
    assert_true(with[1].layout.step_s < with[0].layout.step_s);
    search_destroy(search);
    profile_destroy(profile);
    model_destroy(m);
    arena_destroy(arena);
}

static void refuses(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Model *m = tiny();
    Load load = record(arena, "30,30,10"), none = { 0 };
    Placed *placed;
    assert_int_equal(placed_create(m, "record", &load, arena, &placed), ERR_INPUT);
    assert_non_null(strstr(status_message(), "loads of 3 experts of layer 2, and tiny has 8 there"));
    assert_int_equal(placed_create(m, "record", &none, arena, &placed), ERR_INPUT);
    model_destroy(m);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places),
        cmocka_unit_test(costs),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
