// SPDX-License-Identifier: Apache-2.0
// Rules that layouts can break, each told with the nearest layout that works; what is proposed passes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compiler/layout/layout.h"
#include "compiler/spec/spec.h"

// n layers of sequences of 16 tokens, each with `experts` experts, or dense if 0.
static Model *model(int layers, int experts, const char *more) {
    Text text = { 0 }, error = { 0 };
    text_printf(&text,
                "local m = require 'moec'\n"
                "return m.model { name = 'a', vocab = 32, width = 32, sequence = 16,\n"
                "  layers = m.stack(%d, m.block { attention = { heads = 2 }, ffn = %s }) }\n",
                layers, experts ? "FFN" : "{ hidden = 32 }");
    char *ffn = strstr(text_cstr(&text), "FFN");
    Text whole = { 0 };
    if (ffn) {
        text_add_n(&whole, text_cstr(&text), (size_t)(ffn - text_cstr(&text)));
        text_printf(&whole, "m.experts { count = %d, top_k = 2, expert = { hidden = 16 }%s }%s",
                    experts, more, ffn + 3);
    } else {
        text_add(&whole, text_cstr(&text));
    }
    Model *m = spec_load_text("a.lua", text_cstr(&whole), whole.bytes, NULL, &error);
    if (!m) fail_msg("%s", text_cstr(&error));
    text_finish(&text);
    text_finish(&whole);
    text_finish(&error);
    return m;
}

static Layout parsed(const char *text, Arena *arena) {
    Layout layout = layout_single();
    if (layout_parse(text, arena, &layout) != OK) fail_msg("%s: %s", text, status_message());
    return layout;
}

// Fails unless the layout of that text breaks a rule with that message and hint.
static void breaks(const Model *m, const char *text, LayoutRun run, const char *want) {
    Arena *arena = arena_create();
    Layout layout = parsed(text, arena);
    if (layout_check(&layout, m, &run) == OK) fail_msg("%s passes, expected: %s", text, want);
    if (strcmp(status_message(), want))
        fail_msg("%s\nexpected: %s\ngot:      %s", text, want, status_message());
    char *proposal = strstr(arena_strdup(arena, status_message()), "--layout ");
    if (proposal && !strstr(want, "none of")) {
        proposal += strlen("--layout ");
        layout = parsed(proposal, arena);
        if (layout_check(&layout, m, &run) != OK) fail_msg("%s: %s", proposal, status_message());
    }
    arena_destroy(arena);
}

static void passes(void **state) {
    (void)state;
    Model *m = model(6, 8, "");
    static const struct { const char *text; LayoutRun run; } cases[] = {
        { "dp=1", { 0 } },
        { "dp=8,ep=8", { .ranks = 8 } },
        { "pp=2,dp=4,ep=2,microbatch=2", { .ranks = 8, .batch = 16 * 2 * 4 * 3 } },
        { "pp=6,dp=3", { 0 } },
        { "pp=3,schedule=interleaved,slots=2", { .batch = 16 * 6 } },
        { "pp=2,schedule=interleaved,slots=2,stages=1:2:1:2", { 0 } },
        { "pp=2,schedule=zb,stages=5:1,recompute=none:none:none:cheap:cheap:block", { 0 } },
        { "dp=4,ep=4,capacity=1.25", { 0 } },
        { "dp=4,params=fsdp,transport=blocks", { 0 } },
        { "dp=4,ep=4,transport=blocks,node=2", { 0 } },
        { "dp=4,ep=4,transport=blocks,node=4", { 0 } },
    };
    Arena *arena = arena_create();
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Layout layout = parsed(cases[i].text, arena);
        if (layout_check(&layout, m, &cases[i].run) != OK)
            fail_msg("%s: %s", cases[i].text, status_message());
    }
    arena_destroy(arena);
    model_destroy(m);
}

static void rules(void **state) {
    (void)state;
    Model *m = model(6, 8, ""), *dense = model(2, 0, "");
    breaks(m, "pp=2,dp=8", (LayoutRun){ .ranks = 8 },
           "layout: pp=2 x dp=8 is 16 ranks, and 8 were started\n"
           "  hint: mpirun -n 16 starts as many; the nearest that works: --layout pp=2,dp=4");
    breaks(m, "dp=2", (LayoutRun){ .ranks = 1 },
           "layout: pp=1 x dp=2 is 2 ranks, and 1 was started\n"
           "  hint: mpirun -n 2 starts as many; the nearest that works: --layout dp=1");
    breaks(m, "dp=8,ep=3", (LayoutRun){ 0 },
           "layout: ep=3 does not divide dp=8\n  hint: the nearest that works: --layout dp=8,ep=4");
    breaks(m, "ep=4", (LayoutRun){ 0 },
           "layout: ep=4 does not divide dp=1\n  hint: the nearest that works: --layout dp=4,ep=4");
    breaks(m, "dp=6,ep=3", (LayoutRun){ 0 },
           "layout: ep=3 does not divide the 8 experts of layers.1.ffn\n"
           "  hint: the nearest that works: --layout dp=6,ep=2");
    breaks(dense, "dp=2,ep=2", (LayoutRun){ 0 },
           "layout: ep=2 divides experts, and the model has none\n"
           "  hint: the nearest that works: --layout dp=2");
    breaks(m, "dp=4,ep=4,node=2", (LayoutRun){ 0 },
           "layout: node=2 says between whom blocks go, and transport is rows\n"
           "  hint: the nearest that works: --layout dp=4,ep=4");
    breaks(m, "dp=8,ep=8,transport=blocks,node=3", (LayoutRun){ 0 },
           "layout: node=3 does not divide ep=8\n"
           "  hint: the nearest that works: --layout dp=8,ep=8,transport=blocks,node=2");
    breaks(m, "schedule=interleaved,slots=2", (LayoutRun){ 0 },
           "layout: schedule=interleaved needs more than one stage, got pp=1\n"
           "  hint: the nearest that works: --layout dp=1");
    breaks(m, "pp=2,schedule=interleaved", (LayoutRun){ 0 },
           "layout: schedule=interleaved needs several stages on each rank, got slots=1\n"
           "  hint: the nearest that works: --layout pp=2,dp=1,schedule=interleaved,slots=2");
    breaks(m, "pp=2,slots=2", (LayoutRun){ 0 },
           "layout: slots=2 needs schedule=interleaved\n"
           "  hint: the nearest that works: --layout pp=2,dp=1");
    breaks(m, "dp=2,schedule=zb", (LayoutRun){ .ranks = 2 },
           "layout: schedule=zb needs more than one stage, got pp=1\n"
           "  hint: the nearest that works: --layout dp=2");
    breaks(m, "pp=8,dp=2", (LayoutRun){ 0 },
           "layout: 6 layers do not fill pp=8 x slots=1 stages\n"
           "  hint: the nearest that works: --layout pp=4,dp=4");
    breaks(m, "pp=2,stages=2:2:2", (LayoutRun){ .ranks = 2 },
           "layout: stages has 3 numbers, expected pp=2 x slots=1\n"
           "  hint: the nearest that works: --layout pp=2,dp=1");
    breaks(m, "pp=2,stages=6:0", (LayoutRun){ 0 },
           "layout: stage 2 of stages has no layer\n"
           "  hint: the nearest that works: --layout pp=2,dp=1");
    breaks(m, "pp=3,stages=4:4:3", (LayoutRun){ 0 },
           "layout: stages has 11 layers, and the model 6\n"
           "  hint: the nearest that works: --layout pp=3,dp=1");
    breaks(m, "dp=4,microbatch=2", (LayoutRun){ .ranks = 4, .batch = 16 * 12 },
           "layout: a batch of 12 sequences is no multiple of dp=4 x microbatch=2\n"
           "  hint: the nearest that works: --layout dp=4,microbatch=1");
    breaks(m, "dp=5", (LayoutRun){ .batch = 16 * 12 },
           "layout: a batch of 12 sequences is no multiple of dp=5\n"
           "  hint: the nearest that works: --layout dp=6");
    breaks(m, "dp=5", (LayoutRun){ .ranks = 5, .batch = 16 * 12 },
           "layout: a batch of 12 sequences is no multiple of dp=5\n"
           "  hint: the nearest that works: --layout pp=5,dp=1");
    breaks(m, "dp=7", (LayoutRun){ .ranks = 7, .batch = 16 * 12 },
           "layout: a batch of 12 sequences is no multiple of dp=7\n"
           "  hint: none of 7 ranks works; the nearest of others: --layout dp=6");
    breaks(m, "dp=1", (LayoutRun){ .batch = 100 },
           "layout: a batch of 100 tokens is no whole number of sequences of 16\n"
           "  hint: a batch of 112 tokens is 7 sequences");
    breaks(m, "pp=2,schedule=interleaved,slots=2,microbatch=2",
           (LayoutRun){ .ranks = 2, .batch = 16 * 6 },
           "layout: schedule=interleaved takes microbatches by groups of pp=2, and a step has 3\n"
           "  hint: the nearest that works: --layout pp=2,dp=1,schedule=interleaved,slots=2,"
           "microbatch=1");
    breaks(m, "dp=4,ep=4,capacity=0.03125", (LayoutRun){ 0 },
           "layout: capacity=0.03125 leaves a rank 1 row for its 2 experts of layers.1.ffn\n"
           "  hint: the nearest that works: --layout dp=4,ep=4,capacity=1");
    breaks(m, "pp=2,recompute=none:cheap", (LayoutRun){ 0 },
           "layout: recompute has 2 words, and the model 6 layers\n"
           "  hint: the nearest that works: --layout pp=2,dp=1");
    m->sequence = 4096;
    breaks(m, "microbatch=100000,dp=8,ep=8", (LayoutRun){ 0 },
           "layout: layers.1.ffn has 6553600000 rows on a rank, expected up to 2147483647\n"
           "  hint: the nearest that works: --layout dp=8,ep=8,microbatch=25000");
    breaks(m, "microbatch=1000000", (LayoutRun){ 0 },
           "layout: a microbatch of 4096000000 tokens, expected up to 2147483647\n"
           "  hint: the nearest that works: --layout dp=1,microbatch=250000");
    model_destroy(m);
    model_destroy(dense);
}

static void placements(void **state) {
    (void)state;
    Model *m = model(2, 8, "");
    int32_t place[16] = { 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0 };
    Layout layout = layout_single();
    layout.dp = layout.ep = 2;
    layout.placement = place;
    layout.experts = 8;
    LayoutRun run = { .ranks = 2 };
    assert_int_equal(layout_check(&layout, m, &run), OK);
    place[9] = 1;
    assert_int_equal(layout_check(&layout, m, &run), ERR_ARGUMENT);
    assert_string_equal(status_message(),
                        "layout: placement puts 3 of the 8 experts of layers.2.ffn on rank 0 "
                        "of ep=2, expected 4 on each\n"
                        "  hint: the nearest that works: --layout dp=2,ep=2, without a placement");
    place[9] = 2;
    assert_int_equal(layout_check(&layout, m, &run), ERR_ARGUMENT);
    assert_non_null(strstr(status_message(), "puts expert 1 of layers.2.ffn on rank 2 of ep=2"));
    model_destroy(m);
}

static void microbatches(void **state) {
    (void)state;
    Model *m = model(4, 0, "");
    Arena *arena = arena_create();
    Layout layout = parsed("dp=2", arena);
    LayoutRun run = { .batch = 16 * 2 * 12 };
    assert_int_equal(layout_choose_microbatch(&layout, m, &run, 16 * 5), 4);
    assert_int_equal(layout_choose_microbatch(&layout, m, &run, 2048), 12);
    assert_int_equal(layout_choose_microbatch(&layout, m, &run, 1), 1);
    layout.microbatch = 4;
    assert_int_equal(layout_microbatches(&layout, m, &run), 3);
    layout = parsed("pp=2,schedule=interleaved,slots=2", arena);
    run.batch = 16 * 12;
    assert_int_equal(layout_choose_microbatch(&layout, m, &run, 16 * 5), 3);
    run.batch = 0;
    assert_int_equal(layout_choose_microbatch(&layout, m, &run, 16 * 5), 5);
    assert_int_equal(layout_microbatches(&layout, m, &run), 2);
    arena_destroy(arena);
    model_destroy(m);
}

/* Whatever is refused, what is proposed passes -------------------------------------------------- */

static uint64_t draw(uint64_t *at, uint64_t n) {
    return hash_mix(11, (*at)++, 3) % n;
}

static void random_layout(uint64_t *at, Text *text) {
    static const char *const schedules[] = { "1f1b", "interleaved", "zb" };
    text_printf(text, "pp=%d,dp=%d", 1 + (int)draw(at, 9), 1 + (int)draw(at, 24));
    if (draw(at, 2)) text_printf(text, ",ep=%d", 1 + (int)draw(at, 17));
    if (draw(at, 2)) text_printf(text, ",schedule=%s", schedules[draw(at, 3)]);
    if (!draw(at, 3)) text_printf(text, ",slots=%d", 1 + (int)draw(at, 4));
    if (draw(at, 2)) text_printf(text, ",microbatch=%d", 1 + (int)draw(at, 12));
    if (!draw(at, 3)) text_printf(text, ",capacity=0.%02d", 1 + (int)draw(at, 98));
    if (!draw(at, 4)) text_add(text, ",recompute=none:block");
    if (draw(at, 3)) return;
    text_add(text, ",stages=");
    for (uint64_t i = 0, n = 1 + draw(at, 4); i < n; i++)
        text_printf(text, "%s%d", i ? ":" : "", (int)draw(at, 5));
}

static void proposals_pass(void **state) {
    (void)state;
    static const struct { int layers, experts; } models[] = { { 1, 0 }, { 2, 6 }, { 7, 16 }, { 12, 8 } };
    uint64_t at = 0;
    int refused = 0, none = 0;
    for (int k = 0; k < COUNT_OF(models); k++) {
        Model *m = model(models[k].layers, models[k].experts, "");
        for (int i = 0; i < 400; i++) {
            Arena *arena = arena_create();
            Text text = { 0 };
            random_layout(&at, &text);
            LayoutRun run = { .ranks = draw(&at, 2) ? (int64_t)(1 + draw(&at, 40)) : 0,
                              .batch = draw(&at, 3) ? 16 * (int64_t)(1 + draw(&at, 400)) : 0 };
            Layout layout = parsed(text_cstr(&text), arena);
            if (layout_check(&layout, m, &run) != OK) {
                const char *message = arena_strdup(arena, status_message());
                char *proposal = strstr(message, "--layout ");
                if (!proposal) fail_msg("%s: %s", text_cstr(&text), message);
                if (strstr(message, "none of")) {
                    run.ranks = 0;
                    none++;
                }
                Layout better = parsed(proposal + strlen("--layout "), arena);
                if (layout_check(&better, m, &run) != OK)
                    fail_msg("%s: %s\nbut %s", text_cstr(&text), message, status_message());
                refused++;
            }
            text_finish(&text);
            arena_destroy(arena);
        }
        model_destroy(m);
    }
    print_message("%d of 1600 layouts refused, %d of them for want of any with that many ranks\n",
                  refused, none);
    assert_true(refused > 1000 && none > 10 && none < refused / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes),       cmocka_unit_test(rules),
        cmocka_unit_test(placements),   cmocka_unit_test(microbatches),
        cmocka_unit_test(proposals_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
