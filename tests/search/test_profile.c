// SPDX-License-Identifier: Apache-2.0
// What a profile says of memory is what the plans of layouts take, and its FLOPs are those of the model.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compiler/search/profile.h"
#include "compiler/search/search.h"
#include "compiler/spec/spec.h"

static Model *load(const char *name, const char *key, const char *value) {
    Text path = { 0 }, error = { 0 };
    text_printf(&path, MOEC_SOURCE_DIR "/models/%s.lua", name);
    SpecArg args[] = { { key, value } };
    SpecOptions options = { .args = args, .n_args = key ? 1 : 0 };
    Model *m = spec_load(text_cstr(&path), &options, &error);
    if (!m) fail_msg("%s", text_cstr(&error));
    text_finish(&path);
    text_finish(&error);
    return m;
}

static void load_cluster(const char *name, CostCluster *out, Arena *arena) {
    Text error = { 0 };
    if (!spec_load_cluster(name, arena, out, &error)) fail_msg("%s", text_cstr(&error));
    text_finish(&error);
}

// Bytes of activations and window, and of parameters, of a layout with one stage.
static void predict(const CostProfile *p, const CostCluster *cluster, const Layout *l, double *moving, double *state) {
    Arena *arena = arena_create();
    CostPart *parts = ARENA_ARRAY(arena, CostPart, p->n_layers + 2);
    CostChoice choice = { .microbatch = l->microbatch, .ep = l->ep, .precision = PRECISION_BF16,
                          .recompute = l->recompute, .params = l->params, .expert_params = l->expert_params,
                          .alone = l->overlap == OVERLAP_OFF, .capacity = l->capacity, .round = l->round };
    int64_t bytes = 0;
    for (int32_t i = 0; i < p->n_layers + 2; i++) {
        int32_t part = i == 0 ? cost_part_before(p) : i > p->n_layers ? cost_part_after(p) : p->class_of[i - 1];
        assert_true(p->part(p, part, &choice, &parts[i]));
        bytes += cost_state_bytes(cost_stack_moec(&cluster->device), &parts[i], &choice, l->dp);
    }
    *moving = (double)cost_stage_bytes(parts, p->n_layers + 2, 1);
    *state = (double)bytes;
    arena_destroy(arena);
}

static void compare_on(const char *machines, const char *name, const char *key, const char *value,
                       const char *layout_text, double within) {
    Arena *arena = arena_create();
    CostCluster cluster;
    load_cluster(machines, &cluster, arena);
    Model *m = load(name, key, value);
    CostProfile *p = profile_create(m, &cluster);
    if (!p) fail_msg("%s: %s", name, m->diag.message);
    Layout layout = layout_single();
    assert_int_equal(layout_parse(layout_text, arena, &layout), OK);
    double moving, state;
    predict(p, &cluster, &layout, &moving, &state);
    LowerOptions options = { .microbatch = layout.microbatch, .microbatches = 1, .layout = &layout,
                             .precision = PRECISION_BF16, .programs[PROGRAM_STEP] = true };
    if (strcmp(cluster.device.arch, "cpu")) options.target = arena_printf(arena, "cuda:%s", cluster.device.arch);
    Plan *plan = lower_model(m, &options);
    if (!plan) fail_msg("%s %s: %s", name, layout_text, m->diag.message);
    double used = 0, kept = 0;
    for (int r = 0; r < N_REGIONS; r++) {
        if (r == REGION_act || r == REGION_sym) used += (double)plan->region_bytes[r];
        else if (r != REGION_io && r != REGION_totals) kept += (double)plan->region_bytes[r];
    }
    printf("%-14s %-50s act+sym %8.3f of %8.3f GiB (%+.2f %%), state %8.3f of %8.3f (%+.3f %%)\n", name, layout_text,
           moving / 0x1p30, used / 0x1p30, 100 * (moving / used - 1), state / 0x1p30, kept / 0x1p30,
           100 * (state / kept - 1));
    if (fabs(moving / used - 1) > within || fabs(state / kept - 1) > 0.01 ||
        (used + kept > 0x1p33 && fabs((moving + state) / (used + kept) - 1) > 0.03))
        fail_msg("%s %s: more than %g %% off", name, layout_text, 100 * within);
    plan_destroy(plan);
    profile_destroy(p);
    model_destroy(m);
    arena_destroy(arena);
}

static void compare(const char *name, const char *key, const char *value, const char *layout_text, double within) {
    compare_on("cpux8", name, key, value, layout_text, within);
}

static double plan_bytes(const Plan *plan) {
    double bytes = 0;
    for (int r = 0; r < N_REGIONS; r++) {
        if (r != REGION_io && r != REGION_totals) bytes += (double)plan->region_bytes[r];
    }
    return bytes;
}

// The fullest stage of a pipeline.
static void compare_stages(const char *name, const char *layout_text, int32_t microbatches, double within) {
    Arena *arena = arena_create();
    CostCluster cluster;
    load_cluster("cpux8", &cluster, arena);
    Model *m = load(name, NULL, NULL);
    CostProfile *p = profile_create(m, &cluster);
    Layout layout = layout_single();
    assert_int_equal(layout_parse(layout_text, arena, &layout), OK);
    CostRun run = { .layout = &layout, .precision = PRECISION_BF16,
                    .sequences = (int64_t)microbatches * layout.dp * layout.microbatch };
    CostStep step;
    assert_true(cost_step(p, &cluster, cost_stack_moec(&cluster.device), &run, &step));
    LowerOptions options = { .microbatch = layout.microbatch, .microbatches = microbatches, .layout = &layout,
                             .precision = PRECISION_BF16, .programs[PROGRAM_STEP] = true };
    double most = 0;
    for (options.stage = 0; options.stage < layout.pp; options.stage++) {
        Plan *plan = lower_model(m, &options);
        if (!plan) fail_msg("%s %s: %s", name, layout_text, m->diag.message);
        most = fmax(most, plan_bytes(plan));
        plan_destroy(plan);
    }
    double bytes = (double)(step.state_bytes + step.moving_bytes);
    printf("%-14s %-50s all %8.3f of %8.3f MiB (%+.2f %%)\n", name, layout_text, bytes / 0x1p20, most / 0x1p20,
           100 * (bytes / most - 1));
    if (fabs(bytes / most - 1) > within) fail_msg("%s %s: more than %g %% off", name, layout_text, 100 * within);
    profile_destroy(p);
    model_destroy(m);
    arena_destroy(arena);
}

// What lies between addresses (the plan's act is up to 5 % above its largest sum of live bytes) is not predicted; and
// the last layer is taken for one that others follow, whose gradients wait in the window. What a rank rounds of its
// shard is taken for that of a rank of two.
static void memory(void **state) {
    (void)state;
    compare("olmo3moe_8l", "experts", "32", "dp=8,ep=8,microbatch=2", 0.04);
    compare("olmo3moe_8l", "experts", "32", "dp=8,ep=8,microbatch=2,recompute=block", 0.05);
    compare("olmo3moe_8l", "experts", "32", "dp=8,ep=4,microbatch=1,recompute=none,capacity=2", 0.03);
    compare("olmo3moe_8l", "experts", "8", "dp=4,ep=1,microbatch=1,params=fsdp", 0.01);
    compare("olmo3moe_8l", "experts", "8", "dp=8,ep=1,microbatch=1,params=fsdp,overlap=off", 0.01);
    compare("olmo3moe_8l", "experts", "8", "dp=8,ep=4,microbatch=2,expert_params=fsdp,recompute=block", 0.05);
    compare("olmo3moe_8l", "experts", "8", "dp=8,ep=4,microbatch=2,expert_params=fsdp,recompute=block,overlap=off", 0.05);
    compare("olmo3moe_8l", "experts", "32", "dp=8,ep=8,transport=blocks,node=4,microbatch=2", 0.04);
    compare("olmo3moe_8l", "experts", "32", "dp=8,ep=8,transport=blocks,node=2,microbatch=2,recompute=block", 0.12);
    compare("tiny", NULL, NULL, "dp=4,ep=2,microbatch=8", 0.05);
    compare("tiny", NULL, NULL, "dp=4,ep=4,capacity=dropless,round=1.25,microbatch=8", 0.12);
    compare("tiny", NULL, NULL, "dp=2,params=fsdp,microbatch=4,recompute=block", 0.1);
    compare_on("h100x8", "tiny", NULL, NULL, "dp=4,ep=2,microbatch=8", 0.05);
    compare_on("h100x8", "tiny", NULL, NULL, "dp=2,params=fsdp,microbatch=4", 0.1);
}

static void memory_of_stages(void **state) {
    (void)state;
    compare_stages("tiny", "pp=2,dp=2,ep=2,microbatch=4", 4, 0.1);
    compare_stages("tiny", "pp=4,dp=2,microbatch=4,stages=1:1:1:1", 8, 0.1);
    compare_stages("tiny", "pp=2,dp=2,schedule=interleaved,slots=2,microbatch=4,recompute=block", 8, 0.1);
}

// A stage with the first layer and a stage with one from the middle. Updates of states and the table's gradient of
// further predictions run ahead of the layers in backward, while all that these save is there: no layer holds that. (Of
// stages as small as these the update takes most, which gathers a bucket at a time.)
static void memory_of_one_layer(void **state) {
    (void)state;
    Arena *arena = arena_create();
    CostCluster cluster;
    load_cluster("cpux8", &cluster, arena);
    Model *m = load("deepseek_v3", NULL, NULL);
    CostProfile *p = profile_create(m, &cluster);
    Layout layout = layout_single();
    const char *text = "pp=4,dp=16,ep=16,stages=1:30:1:29,microbatch=2,capacity=1.25";
    assert_int_equal(layout_parse(text, arena, &layout), OK);
    LowerOptions options = { .microbatch = 2, .microbatches = 1, .layout = &layout, .precision = PRECISION_BF16,
                             .programs[PROGRAM_STEP] = true };
    CostChoice choice = { .microbatch = 2, .ep = 16, .precision = PRECISION_BF16, .capacity = 1.25 };
    for (int stage = 0; stage < 4; stage += 2) {
        CostPart parts[2];
        int32_t n = 0;
        if (!stage) assert_true(p->part(p, cost_part_before(p), &choice, &parts[n++]));
        assert_true(p->part(p, p->class_of[stage ? 31 : 0], &choice, &parts[n++]));
        options.stage = stage;
        Plan *plan = lower_model(m, &options);
        if (!plan) fail_msg("%s: %s", text, m->diag.message);
        double moving = (double)cost_stage_bytes(parts, n, 1);
        double used = (double)(plan->region_bytes[REGION_act] + plan->region_bytes[REGION_sym]);
        printf("deepseek_v3    %s, stage %d: act+sym %.3f of %.3f GiB\n", text, stage, moving / 0x1p30, used / 0x1p30);
        if (fabs(moving / used - 1) > 0.25) fail_msg("stage %d: more than 25 %% off", stage);
        plan_destroy(plan);
    }
    profile_destroy(p);
    model_destroy(m);
    arena_destroy(arena);
}

// GFLOP per token, forward and backward: NVIDIA's TFLOP/s over tokens/s of published rows.
static void flops(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double gflop;
    } rows[] = { { "qwen3_30b_a3b", 23.1 }, { "deepseek_v3", 260.6 }, { "olmo3moe_8l", 18.19 }, { "qwen3_235b_a22b", 148.3 },
                 { "kimi_k2", 205.5 } };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        Model *m = load(rows[i].name, NULL, NULL);
        Counts c = model_counts(m);
        double gflop = (c.train_flops_per_token + c.router_flops_per_token) / 1e9;
        printf("%-16s %.2f GFLOP, published %.2f (%+.2f %%)\n", rows[i].name, gflop, rows[i].gflop, 100 * (gflop / rows[i].gflop - 1));
        if (fabs(gflop / rows[i].gflop - 1) > 0.005) fail_msg("%s: %.2f GFLOP per token", rows[i].name, gflop);
        model_destroy(m);
    }
}

// Parts together compute what the model does.
static void parts_add_up(void **state) {
    (void)state;
    Arena *arena = arena_create();
    CostCluster cluster;
    load_cluster("b300x8", &cluster, arena);
    Model *m = load("olmo3moe_8l", "experts", "32");
    CostProfile *p = profile_create(m, &cluster);
    for (int32_t ep = 1; ep <= 8; ep *= 8) {
        CostChoice choice = { .microbatch = 2, .ep = ep, .precision = PRECISION_BF16, .routing = COST_RANDOM };
        double sum = 0;
        for (int32_t i = -1; i <= p->n_layers; i++) {
            CostPart part;
            assert_true(p->part(p, i < 0 ? cost_part_before(p) : i == p->n_layers ? cost_part_after(p) : p->class_of[i],
                                &choice, &part));
            sum += part.flops;
        }
        double want = p->flops_per_token * 2 * p->sequence;
        if (fabs(sum / want - 1) > 0.001) fail_msg("ep=%d: %.4g FLOP, expected %.4g", ep, sum, want);
    }
    CostPart part;
    CostChoice odd = { .microbatch = 1, .ep = 3, .precision = PRECISION_BF16 };
    assert_false(p->part(p, p->class_of[1], &odd, &part)); // 3 does not divide 32
    assert_int_equal(p->n_classes, 2);
    profile_destroy(p);
    model_destroy(m);
    arena_destroy(arena);
}

// Of few layers and of all of them probes say the same: of layers that alternate, that differ by what they do to rows
// only, that come first; of what precedes and follows them; whatever is gathered ahead.
static void few_are_enough(void **state) {
    (void)state;
    static const char *const names[] = { "gpt_oss_20b", "latent_moe", "deepseek_v3" };
    Arena *arena = arena_create();
    CostCluster cluster;
    load_cluster("h100x8", &cluster, arena);
    for (int i = 0; i < COUNT_OF(names); i++) {
        Model *m = load(names[i], NULL, NULL);
        CostProfile *few = profile_create(m, &cluster), *whole = profile_create_whole(m, &cluster);
        for (int k = 0; k < 8; k++) {
            CostChoice c = { .microbatch = 1, .ep = k & 4 ? 2 : 1, .precision = PRECISION_BF16, .capacity = 2,
                             .recompute = (uint8_t)((k + i) % SEARCH_RECOMPUTES), .params = k & 1, .expert_params = k >> 1 & 1 };
            for (int32_t part = 0; part < few->n_classes + 2; part++) {
                CostPart a, b;
                assert_true(few->part(few, part, &c, &a) && whole->part(whole, part, &c, &b));
                if (memcmp(&a, &b, sizeof a)) fail_msg("%s: part %d of choice %d differs", names[i], part, k);
            }
        }
        profile_destroy(few);
        profile_destroy(whole);
        model_destroy(m);
    }
    arena_destroy(arena);
}

static CostPart part_of(const CostProfile *p, int32_t part, CostChoice choice) {
    CostPart out;
    assert_true(p->part(p, part, &choice, &out));
    return out;
}

static double seconds_of(const CostPart *part) {
    double sum = 0;
    for (int pass = 0; pass < N_COST_PASSES; pass++) {
        sum += part->rows_s[pass];
        for (int c = 0; c < N_COST_CLASSES; c++) sum += part->s[pass][c];
    }
    return sum;
}

// Buckets of gradients that are exchanged in every microbatch are cleared and added up as a whole; that is work of the
// layer they are of, not of what follows the layers, and of experts it is less where ranks divide them.
static void buckets_belong_to_layers(void **state) {
    (void)state;
    Arena *arena = arena_create();
    CostCluster cluster;
    load_cluster("b300x8", &cluster, arena);
    Model *m = load("olmo3moe_8l", "experts", "32");
    CostProfile *p = profile_create(m, &cluster);
    CostChoice kept = { .microbatch = 1, .ep = 2, .precision = PRECISION_BF16, .routing = COST_UNIFORM };
    CostChoice kept_wide = kept, sharded = kept, sharded_wide = kept;
    kept_wide.ep = sharded_wide.ep = 8;
    sharded.params = sharded.expert_params = sharded_wide.params = sharded_wide.expert_params = PARAMS_FSDP;
    int32_t layer = p->class_of[p->n_layers - 1], after = cost_part_after(p);
    CostPart head = part_of(p, after, kept), head_sharded = part_of(p, after, sharded);
    // its own bucket is cleared: of width x vocabulary, which takes a few of a hundred of its products
    if (seconds_of(&head_sharded) > 1.05 * seconds_of(&head))
        fail_msg("head: %g s, with fsdp %g s", seconds_of(&head), seconds_of(&head_sharded));
    CostPart two = part_of(p, layer, kept), two_sharded = part_of(p, layer, sharded);
    CostPart eight = part_of(p, layer, kept_wide), eight_sharded = part_of(p, layer, sharded_wide);
    double more_of_two = seconds_of(&two_sharded) - seconds_of(&two);
    double more_of_eight = seconds_of(&eight_sharded) - seconds_of(&eight);
    if (!(more_of_two > 0 && more_of_eight < more_of_two / 2))
        fail_msg("a layer's buckets: %g s of ep 2, %g s of ep 8", more_of_two, more_of_eight);
    profile_destroy(p);
    model_destroy(m);
    arena_destroy(arena);
}

// What other stacks do takes longer or shorter, and is nothing where the model has none of it.
static void habits_cost(void **state) {
    (void)state;
    static const struct {
        const char *model;
        uint8_t habits, precision;
        bool head;
        int sign; // of what it takes more
    } cases[] = {
        { "gpt_oss_20b", COST_BIAS_APART, PRECISION_BF16, false, 1 },
        { "olmo3moe_8l", COST_BIAS_APART, PRECISION_BF16, false, 0 }, // experts have no biases
        { "gpt_oss_20b", COST_ROPE_APART, PRECISION_BF16, false, 1 },
        { "olmo3moe_8l", COST_ROPE_APART, PRECISION_BF16, false, 0 }, // its cosines have no factor
        { "olmo3moe_8l", COST_ALL_TO_ALL, PRECISION_BF16, false, 1 },
        { "olmo3moe_8l", COST_WIDE_ROWS, PRECISION_MXFP8, false, 1 },
        { "olmo3moe_8l", COST_NARROW_WGRAD, PRECISION_MXFP8, false, -1 },
        { "olmo3moe_8l", COST_SHORT_ROUTER, PRECISION_BF16, false, -1 },
        { "olmo3moe_8l", COST_WHOLE_HEAD, PRECISION_BF16, true, -1 },
        { "olmo3moe_8l", COST_WHOLE_HEAD, PRECISION_BF16, false, 0 },
    };
    Arena *arena = arena_create();
    CostCluster cluster;
    load_cluster("b300x8", &cluster, arena);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Model *m = load(cases[i].model, NULL, NULL);
        CostProfile *p = profile_create(m, &cluster);
        if (!p) fail_msg("%s: %s", cases[i].model, m->diag.message);
        CostChoice choice = { .microbatch = 1, .ep = 8, .precision = cases[i].precision, .routing = COST_UNIFORM,
                              .transport = TRANSPORT_BLOCKS };
        int32_t which = cases[i].head ? cost_part_after(p) : p->class_of[p->n_layers - 1];
        CostPart moec = part_of(p, which, choice);
        choice.habits = cases[i].habits;
        CostPart other = part_of(p, which, choice);
        double more = seconds_of(&other) - seconds_of(&moec);
        if ((more > 0) - (more < 0) != cases[i].sign)
            fail_msg("%d of %s: %g s more", cases[i].habits, cases[i].model, more);
        assert_true(fabs(other.flops / moec.flops - 1) < 1e-9);
        profile_destroy(p);
        model_destroy(m);
    }
    arena_destroy(arena);
}

// By hand: 64 heads and 8 of 64 of 4096 tokens are read and written 20 bytes more in forward and 24 in backward, in 5 and 6
// kernels more for each of queries and keys; a layer that is computed again does forward's twice.
static void turned_apart(void **state) {
    (void)state;
    Arena *arena = arena_create();
    CostCluster cluster;
    load_cluster("b300x8", &cluster, arena);
    const CostDevice *d = &cluster.device;
    Model *m = load("gpt_oss_120b", NULL, NULL);
    CostProfile *p = profile_create(m, &cluster);
    if (!p) fail_msg("%s", m->diag.message);
    for (int block = 0; block < 2; block++) {
        CostChoice choice = { .microbatch = 1, .ep = 8, .precision = PRECISION_BF16, .routing = COST_UNIFORM,
                              .recompute = block ? RECOMPUTE_BLOCK : RECOMPUTE_NONE };
        CostPart without = part_of(p, p->class_of[1], choice);
        choice.habits = COST_ROPE_APART;
        CostPart with = part_of(p, p->class_of[1], choice);
        double numbers = 4096 * (64 + 8) * 64, rate = d->bytes_per_s * d->stream;
        double forward = numbers * 20 / rate + 2 * 5 * d->launch_s, back = numbers * 24 / rate + 2 * 6 * d->launch_s;
        double more = seconds_of(&with) - seconds_of(&without), want = (1 + block) * forward + back;
        if (fabs(more / want - 1) > 1e-6) fail_msg("%g s more, by hand %g", more, want);
    }
    profile_destroy(p);
    model_destroy(m);
    arena_destroy(arena);
}

// By hand: in mxfp8 rows of copies are copied once more where they come and where they go, in forward and in backward, and
// so are the fp32 weight of each and its gradient.
static void padded_apart(void **state) {
    (void)state;
    Arena *arena = arena_create();
    CostCluster cluster;
    load_cluster("b200x8", &cluster, arena);
    const CostDevice *d = &cluster.device;
    Model *m = load("qwen3_30b_a3b", NULL, NULL);
    CostProfile *p = profile_create(m, &cluster);
    if (!p) fail_msg("%s", m->diag.message);
    double moves[2][2]; // [blocks, an all-to-all][bf16, mxfp8]
    for (int copies = 0; copies < 2; copies++) {
        for (int narrow = 0; narrow < 2; narrow++) {
            CostChoice choice = { .microbatch = 1, .ep = 8, .precision = narrow ? PRECISION_MXFP8 : PRECISION_BF16,
                                  .routing = COST_UNIFORM, .transport = TRANSPORT_BLOCKS, .recompute = RECOMPUTE_NONE,
                                  .habits = COST_WIDE_ROWS | (copies ? COST_ALL_TO_ALL : 0) };
            CostPart part = part_of(p, p->class_of[1], choice);
            moves[copies][narrow] = 0;
            for (int pass = 0; pass < N_COST_PASSES; pass++) moves[copies][narrow] += part.s[pass][COST_move];
        }
    }
    double rows = 4096.0 * 8, bytes = rows * (4 * 2048 * (2 + 2) + 2 * (4 + 4));
    double want = bytes / (d->bytes_per_s * d->stream) + 5 * d->launch_s;
    assert_true(fabs(moves[0][1] / moves[0][0] - 1) < 1e-9);
    double more = moves[1][1] - moves[1][0];
    if (fabs(more / want - 1) > 1e-6) fail_msg("%g s more, by hand %g", more, want);
    profile_destroy(p);
    model_destroy(m);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_are_enough),
        cmocka_unit_test(flops),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(buckets_belong_to_layers),
        cmocka_unit_test(habits_cost),
        cmocka_unit_test(turned_apart),
        cmocka_unit_test(padded_apart),
        cmocka_unit_test(memory),
        cmocka_unit_test(memory_of_stages),
        cmocka_unit_test(memory_of_one_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
