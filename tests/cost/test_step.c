// SPDX-License-Identifier: Apache-2.0
// Steps of layouts from made-up parts: sums by hand, pipelines, splits.
#include "compiler/cost/profile.h"
#include "tests/cost/help.h"

// Two classes of layers: of 1 and of 3 ms forward; dgrad and wgrad take as long each. The head takes 2 ms.
static bool part_of(const CostProfile *p, int32_t part, const CostChoice *c, CostPart *out) {
    double ms = part == 0 ? 1 : part == 1 ? 3 : part == cost_part_after(p) ? 2 : 0;
    *out = (CostPart){ .dense_matrix = 1e6, .flops = 1e9 * ms };
    if (c->ep > 8) return false;
    for (CostPass pass = PASS_forward; pass <= PASS_wgrad; pass++) out->s[pass][COST_dense] = ms * 1e-3 * c->microbatch;
    if (c->recompute == RECOMPUTE_BLOCK) out->s[PASS_again][COST_dense] = ms * 1e-3 * c->microbatch;
    out->saved_bytes[0] = c->recompute == RECOMPUTE_BLOCK ? 100 : 1000;
    out->transient_bytes[0] = 500 + 100 * part;
    out->saved_bytes[1] = 10;
    return true;
}

static const int32_t classes[8] = { 0, 0, 0, 0, 1, 1, 1, 1 };
static const CostProfile made_up = { .model = "made up", .n_layers = 8, .sequence = 16, .width = 1, .n_classes = 2,
                                     .class_of = classes, .part = part_of };
// Nothing but products takes time.
static const CostStack free_stack = { .name = "free", .master = 12, .gradient = 4, .weight = 2, .orders = 2, .narrow_orders = 2 };

static CostCluster fast(void) {
    CostCluster c = { .name = "fast", .n_links = 1, .device = { .bytes_per_s = 1e30, .adam = 1, .stream = 1,
                                                                .contention = 1.2, .sustained = 1 } };
    c.links[0] = (CostLink){ .name = "a", .size = 64, .bytes_per_s = 1e30, .share = 1 };
    return c;
}

static CostStep step(Layout *layout, int64_t sequences) {
    CostCluster c = fast();
    CostRun run = { .layout = layout, .precision = PRECISION_BF16, .sequences = sequences };
    CostStep out;
    assert_true(cost_step(&made_up, &c, &free_stack, &run, &out));
    return out;
}

static void near(double got, double want) {
    if (fabs(got - want) > 1e-9 * fabs(want) + 1e-15) fail_msg("%.12g, expected %.12g", got, want);
}

static void sums(void **state) {
    (void)state;
    Layout l = layout_single();
    l.microbatch = 1;
    CostStep one = step(&l, 1);
    near(one.seconds, 3e-3 * (4 * 1 + 4 * 3 + 2));
    near(one.class_s[COST_dense], one.seconds);
    near(one.bubble_s, 0);
    near(one.flops, 1e9 * 18);
    assert_int_equal(one.moving_bytes, 10 * 1000 + 800 + 10 * 10); // the head, when all is saved
    near(step(&l, 5).seconds, 5 * one.seconds);
    l.recompute = RECOMPUTE_BLOCK;
    near(step(&l, 1).seconds, 4.0 / 3 * one.seconds);
    assert_true(step(&l, 1).moving_bytes < one.moving_bytes);
    l.dp = 2;
    CostRun run = { .layout = &l, .precision = PRECISION_BF16, .sequences = 3 };
    CostCluster c = fast();
    assert_false(cost_step(&made_up, &c, &free_stack, &run, &one)); // 3 sequences on 2 ranks
    l.ep = 3;
    run.sequences = 4;
    assert_false(cost_step(&made_up, &c, &free_stack, &run, &one));
}

static void pipelines(void **state) {
    (void)state;
    Layout l = layout_single();
    l.microbatch = 1, l.pp = 2;
    // Stages of 4 and 14 ms: one way through, then the slower one for each further microbatch.
    near(step(&l, 6).seconds, 3e-3 * (4 + 14 + 5 * 14));
    CostCluster c = fast();
    CostRun run = { .layout = &l, .precision = PRECISION_BF16, .sequences = 6 };
    Arena *arena = arena_create();
    l.stages = cost_split(&made_up, &c, &free_stack, &run, arena);
    l.n_stages = 2;
    assert_int_equal(l.stages[0] + l.stages[1], 8); // 5 + 3: 7 and 11; 6 + 2: 10 and 8
    assert_int_equal(l.stages[0], 6);
    near(step(&l, 6).seconds, 3e-3 * (10 + 8 + 5 * 10));
    // Zero bubble fills with gradients of weights; interleaving halves what is waited.
    l.schedule = SCHEDULE_ZERO_BUBBLE;
    assert_true(step(&l, 6).seconds < 3e-3 * (10 + 8 + 5 * 10));
    l.schedule = SCHEDULE_INTERLEAVED, l.chunks = 2, l.stages = NULL;
    double even = 3e-3 * (2 + 6 + 2 + 6 + 2); // ranks: 1 + 3 and 1 + 3 + 2 (ms) of two layers each
    near(step(&l, 6).seconds, 6 * 3e-3 * 10 - 3e-3 * 10 / 2 + even / 2);
    l.pp = 5; // 10 virtual stages of 8 layers
    CostStep out;
    assert_false(cost_step(&made_up, &c, &free_stack, &run, &out));
    assert_null(cost_split(&made_up, &c, &free_stack, &run, arena));
    arena_destroy(arena);
}

// Every split of eight layers into stages is no better than the one that is found.
static void splits(void **state) {
    (void)state;
    Arena *arena = arena_create();
    CostCluster c = fast();
    for (int32_t pp = 2; pp <= 4; pp++) {
        Layout l = layout_single();
        l.microbatch = 1, l.pp = pp;
        CostRun run = { .layout = &l, .precision = PRECISION_BF16, .sequences = 1000 };
        int32_t *found = cost_split(&made_up, &c, &free_stack, &run, arena), stages[4] = { 0 };
        l.stages = found, l.n_stages = pp;
        double best = step(&l, 1000).seconds;
        for (int cut = 0; cut < 512; cut++) { // digits: layers of the first stages
            int left = 8, code = cut;
            for (int i = 0; i < pp - 1; i++, code /= 8) left -= stages[i] = 1 + code % 8;
            if (left < 1 || code) continue;
            stages[pp - 1] = left;
            l.stages = stages;
            if (step(&l, 1000).seconds < best * (1 - 0.01)) fail_msg("pp=%d: a better split", pp);
        }
    }
    arena_destroy(arena);
}

static void bytes(void **state) {
    (void)state;
    CostPart part = { .dense_matrix = 1600, .dense_other = 100, .expert_matrix = 8000, .expert_other = 0 };
    CostChoice choice = { .microbatch = 1, .ep = 2, .precision = PRECISION_BF16 };
    const CostDevice devices[] = { { .arch = "cpu" }, { .arch = "sm_90a" } };
    for (int i = 0; i < COUNT_OF(devices); i++) {
        const CostStack *stack = cost_stack_moec(&devices[i]);
        int orders = i ? 1 : 2;
        // docs/layouts.md: 4 + 2 an order + 12 / D of a matrix, 8 + 12 / D of others, read in fp32; experts D / ep
        choice.precision = PRECISION_BF16;
        assert_int_equal(cost_state_bytes(stack, &part, &choice, 8),
                         9600 * (4 + 2 * orders) + 100 * 8 + 1700 * 12 / 8 + 8000 * 12 / 4);
        choice.precision = PRECISION_MXFP8; // blocks along the sum, so two orders
        assert_int_equal(cost_state_bytes(stack, &part, &choice, 8),
                         9600 * 4 + 9600 * 2 * 33 / 32 + 100 * 8 + 1700 * 12 / 8 + 8000 * 12 / 4);
        choice.params = choice.expert_params = PARAMS_FSDP;
        assert_int_equal(cost_state_bytes(stack, &part, &choice, 8), 1700 * 16 / 8 + 8000 * 16 / 4);
        choice.params = choice.expert_params = PARAMS_RESIDENT;
        choice.precision = PRECISION_FP32;
        assert_int_equal(cost_state_bytes(stack, &part, &choice, 1), 9700 * 16 + 9600 * 4 * orders);
    }
    CostPart parts[2] = { { .saved_bytes = { 100, 5 }, .transient_bytes = { 300, 0 } },
                          { .saved_bytes = { 50, 0 }, .transient_bytes = { 10, 7 } } };
    assert_int_equal(cost_stage_bytes(parts, 2, 1), 400 + 12); // the first part's transient, the second's window
    assert_int_equal(cost_stage_bytes(parts, 2, 3), 400 + 12 + 2 * 155);
}

// Bytes by hand, of parts of 1e6 numbers each: eight layers, what precedes and what follows them.
static void accounts(void **state) {
    (void)state;
    Layout l = layout_single();
    l.microbatch = 1, l.dp = 4;
    CostRun run = { .layout = &l, .precision = PRECISION_BF16, .sequences = 4 };
    CostMemory m;
    const CostAccount *megatron = cost_account("megatron"), *olmo = cost_account("olmo-core"),
                      *titan = cost_account("torchtitan");
    assert_true(megatron && olmo && titan && !cost_account("moec"));
    assert_true(cost_memory(&made_up, megatron, &run, &m));
    assert_int_equal(m.state_bytes, 10e6 * (6 + 12.0 / 4));
    assert_int_equal(m.gathered_bytes, 0);
    int64_t moving = m.moving_bytes;
    assert_int_equal(moving, 10 * 1000 + 800 + 10 * 10); // sums(): vocab is 0 here
    assert_int_equal(m.bytes, m.state_bytes + moving);
    l.params = l.expert_params = PARAMS_FSDP;
    assert_true(cost_memory(&made_up, megatron, &run, &m));
    assert_int_equal(m.state_bytes, 10e6 * 18 / 4);
    assert_int_equal(m.gathered_bytes, 1e6 * (2 + 2 + 4));
    assert_int_equal(m.moving_bytes, moving);
    assert_true(cost_memory(&made_up, titan, &run, &m));
    assert_int_equal(m.state_bytes, 10e6 * 16 / 4);
    l.params = l.expert_params = PARAMS_RESIDENT;
    assert_true(cost_memory(&made_up, titan, &run, &m));
    assert_int_equal(m.state_bytes, 10e6 * (2 + 16.0 / 4));
    run.precision = PRECISION_FP32;
    assert_true(cost_memory(&made_up, olmo, &run, &m));
    assert_int_equal(m.state_bytes, 10e6 * (8 + 8.0 / 4));
    run.precision = PRECISION_MXFP8;
    assert_true(cost_memory(&made_up, olmo, &run, &m));
    assert_int_equal(m.state_bytes, 10e6 * (6 + 2.0625 + 12.0 / 4));
    // Of two stages the first is fuller: it holds a microbatch more.
    l.pp = 2, l.recompute = RECOMPUTE_BLOCK, run.sequences = 16;
    assert_true(cost_memory(&made_up, olmo, &run, &m));
    assert_int_equal(m.stage, 0);
    l.ep = 16;
    assert_false(cost_memory(&made_up, olmo, &run, &m));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums), cmocka_unit_test(pipelines), cmocka_unit_test(splits), cmocka_unit_test(bytes),
        cmocka_unit_test(accounts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
