// SPDX-License-Identifier: Apache-2.0
// The Lua form of layouts: the same fields, expert maps, rules of precision, and mistakes with their
// places.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compiler/layout/layout.h"
#include "compiler/spec/spec.h"

static const char spec_text[] =
    "local m = require 'moec'\n"
    "local function ffn(x) return m.linear('out', m.linear('in', x, 64, { precision = 'fp32' }), 32) end\n"
    "return m.model { name = 'a', vocab = 32, width = 32, sequence = 16,\n"
    "  layers = m.stack(3, function(i)\n"
    "    return m.block { attention = { heads = 2 },\n"
    "      ffn = i == 2 and ffn or m.experts { count = 4 * i, top_k = 2, expert = { hidden = 16 } } }\n"
    "  end),\n"
    "  parameters = { { 'layers.1.attention.w_q', precision = 'bf16' } } }\n";

typedef struct Case {
    Arena *arena;
    Model *m;
    Layout layout;
    Text error;
    bool done;
} Case;

static Case run(const char *text) {
    Case c = { .arena = arena_create(), .layout = layout_single() };
    c.m = spec_load_text("model.lua", spec_text, strlen(spec_text), NULL, &c.error);
    if (!c.m) fail_msg("%s", text_cstr(&c.error));
    Text whole = { 0 };
    text_printf(&whole, "local m = require 'moec'\n%s\n", text);
    c.done = spec_load_layout_text("l.lua", text_cstr(&whole), whole.bytes, c.m, c.arena, &c.layout,
                                   &c.error);
    text_finish(&whole);
    return c;
}

static void finish(Case *c) {
    arena_destroy(c->arena);
    model_destroy(c->m);
    text_finish(&c->error);
}

static Case accept(const char *text) {
    Case c = run(text);
    if (!c.done) fail_msg("%s", text_cstr(&c.error));
    assert_int_equal(c.error.bytes, 0);
    return c;
}

static void refuse(const char *text, const char *want) {
    Case c = run(text);
    if (c.done) fail_msg("expected '%s', but this is taken: %s", want, text);
    if (!strstr(text_cstr(&c.error), want))
        fail_msg("%s\nexpected: %s\ngot:\n%s", text, want, text_cstr(&c.error));
    finish(&c);
}

static void fields(void **state) {
    (void)state;
    static const struct { const char *lua, *text; } cases[] = {
        { "return m.layout {}", "dp=1" },
        { "return m.layout { mesh = { 'pp=2', 'dp=8', 'ep=4' } }", "pp=2,dp=8,ep=4" },
        { "return m.layout { mesh = { 'dp=4' }, params = 'fsdp', transport = 'blocks' }",
          "dp=4,params=fsdp,transport=blocks" },
        { "return m.layout { row_align = 32 }", "dp=1,row_align=32" },
        { "return m.layout { params = 'fsdp', expert_params = 'resident' }",
          "dp=1,params=fsdp,expert_params=resident" },
        { "return m.layout { mesh = { 'pp=2' }, schedule = 'interleaved', slots = 2,\n"
          "  stages = { 1, 1, 1, 2 / 2 - 1 }, microbatch = 2, recompute = 'block', capacity = 1.25 }",
          "pp=2,dp=1,schedule=interleaved,slots=2,stages=1*3:0,microbatch=2,recompute=block,"
          "capacity=1.25" },
        { "return m.layout { capacity = 'dropless', recompute = { 'none', 'cheap', 'block' } }",
          "dp=1,recompute=none:cheap:block,capacity=dropless" },
        { "return m.layout { mesh = { 'dp=4', 'ep=4' }, capacity = 'dropless', round = 1.25 }",
          "dp=4,ep=4,capacity=dropless,round=1.25" },
        { "return m.layout { round = 'whole' }", "dp=1,round=whole" },
        { "local base = m.layout { mesh = { 'dp=4' } }\nreturn base:with { mesh = { 'dp=2' } }",
          "dp=2" },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Case c = accept(cases[i].lua);
        Text text = { 0 };
        layout_print(&c.layout, &text);
        assert_string_equal(text_cstr(&text), cases[i].text);
        text_finish(&text);
        finish(&c);
    }
}

// What the file does not say stays as the caller had it.
static void leaves_the_rest(void **state) {
    (void)state;
    Case c = accept("return m.layout { mesh = { 'dp=2' } }");
    Layout layout = layout_single();
    layout.recompute = RECOMPUTE_NONE;
    layout.microbatch = 7;
    const char text[] = "return require('moec').layout { mesh = { 'dp=4' } }";
    assert_true(spec_load_layout_text("l.lua", text, strlen(text), c.m, c.arena, &layout, &c.error));
    assert_int_equal(layout.recompute, RECOMPUTE_NONE);
    assert_int_equal(layout.microbatch, 7);
    assert_int_equal(layout.dp, 4);
    finish(&c);
}

static void placement(void **state) {
    (void)state;
    Case c = accept("return m.layout { mesh = { 'dp=4', 'ep=4' },\n"
                    "  placement = function(layer, expert) return (expert + layer) % 4 end }");
    assert_int_equal(c.layout.experts, 12);
    for (int layer = 0; layer < 3; layer++) {
        int count = layer == 1 ? 0 : 4 * (layer + 1);
        for (int e = 0; e < 12; e++)
            assert_int_equal(c.layout.placement[layer * 12 + e],
                             e < count ? (e + layer + 1) % 4 : -1);
    }
    finish(&c);
    refuse("return m.layout { mesh = { 'dp=4', 'ep=4' },\n"
           "  placement = function(layer, expert) return expert end }",
           "l.lua:3:3: error: layout: placement(3, 4) must be a rank from 0 to ep - 1 = 3, got 4\n");
    refuse("return m.layout { placement = function(layer, expert) return nil + 1 end }",
           "l.lua:2");
    refuse("return m.layout { placement = function(layer, expert) while true do end end }",
           "l.lua:2");
}

static uint8_t precision_of(const Model *m, const char *address) {
    for (uint32_t i = 0; i < m->n_params; i++)
        if (!strcmp(model_name(m, m->params[i].addr), address)) return m->params[i].precision;
    fail_msg("no parameter %s", address);
    return 0;
}

static void precision(void **state) {
    (void)state;
    // Later rules win, gains and what built-in blocks state (the router) are passed by.
    Case c = accept("return m.layout { precision = {\n"
                    "  { 'layers.1.ffn.*', 'bf16' }, { '*.experts.w_out', 'fp32' } } }");
    assert_int_equal(precision_of(c.m, "layers.1.ffn.experts.w_in"), PRECISION_BF16);
    assert_int_equal(precision_of(c.m, "layers.1.ffn.experts.w_out"), PRECISION_FP32);
    assert_int_equal(precision_of(c.m, "layers.3.ffn.experts.w_out"), PRECISION_FP32);
    assert_int_equal(precision_of(c.m, "layers.3.ffn.experts.w_in"), PRECISION_OPEN);
    assert_int_equal(precision_of(c.m, "layers.1.ffn.router.w_score"), PRECISION_FP32);
    finish(&c);
    c = accept("return m.layout { precision = { { 'layers.1.attention.*', 'bf16' } } }");
    finish(&c);
    // By a rule of the spec, and by an operation of the spec: both lines are told.
    refuse("return m.layout { precision = {\n  { 'layers.1.attention.w_*', 'fp32' } } }",
           "l.lua:3:6: error: layout.precision: 'layers.1.attention.w_*' makes "
           "layers.1.attention.w_q fp32, against the spec\n"
           "   3 |   { 'layers.1.attention.w_*', 'fp32' } } }\n"
           "     |      ^~~~~~~~~~~~~~~~~~~~~~\n"
           "  note: the spec says bf16 at model.lua:8:  parameters = { { 'layers.1.attention.w_q', "
           "precision = 'bf16' } } }\n"
           "  hint: leave the weight out of the layout's rule, or the spec's open\n");
    refuse("return m.layout { precision = { { '*.w_in', 'bf16' } } }",
           "the spec says fp32 at model.lua:2:  local function ffn(x)");
    refuse("return m.layout { precision = { { '*.expert.*', 'bf16' } } }",
           "layout.precision: '*.expert.*' matches no parameter");
    refuse("return m.layout { precision = { { '*.experts.*', 'fp16' } } }",
           "layout.precision: that of '*.experts.*' must be \"fp32\", \"bf16\" or \"mxfp8\", got ");
    refuse("return m.layout { precision = { 'bf16' } }",
           "layout.precision: rule 1 must be { addresses, precision }");
}

static void mistakes(void **state) {
    (void)state;
    refuse("return m.layout { mesh = { 'dp=4' }, schedul = 'zb' }",
           "l.lua:2:38: error: layout has no field 'schedul'\n");
    refuse("return m.layout { mesh = { 'dp=4', 'pp=2' } }",
           "l.lua:2:37: error: layout: mesh has 'pp' after 'dp'\n");
    refuse("return m.layout { mesh = { 'tp=4' } }",
           "l.lua:2:29: error: layout: mesh has no axis 'tp=4'\n");
    refuse("return m.layout { mesh = { 'dp=0' } }",
           "l.lua:2:29: error: layout: dp is '0', expected a whole number from 1 to 1048576\n");
    refuse("return m.layout { schedule = 'zeb' }",
           "layout.schedule must be \"1f1b\", \"interleaved\" or \"zb\"");
    refuse("return m.layout { stages = { 1, -1 } }",
           "l.lua:2:19: error: layout: stages is '-1', expected a whole number from 0 to 1048576\n");
    refuse("return m.layout { stages = {} }", "layout: stages must be a list of numbers");
    refuse("return m.layout { recompute = { 'cheap', 'nothing' } }",
           "layout: recompute is 'nothing', expected one of cheap|none|block\n");
    refuse("return m.layout { capacity = 0 }",
           "layout: capacity is '0', expected a number above 0, up to 1048576, or dropless\n");
    refuse("return m.model { name = 'b', vocab = 8, width = 8, sequence = 8, layers = {} }",
           "the file must return a layout, it returns a model\n  hint: return m.layout { ... }\n");
    refuse("return 4", "the file must return a layout, it returns 4");
    refuse("return io", "'io' is not available in a spec");
}

// What is written from a layout gives the layout, and the same text, back.
static void written(void **state) {
    (void)state;
    static const char *const cases[] = {
        "return m.layout {}",
        "return m.layout { mesh = { 'dp=8', 'ep=2' }, params = 'fsdp', expert_params = 'resident' }",
        "return m.layout { mesh = { 'pp=3', 'dp=4' }, schedule = 'zb', stages = { 1, 1, 1 }, microbatch = 2,\n"
        "  recompute = { 'none', 'block', 'cheap' }, capacity = 1.1875 }",
        "return m.layout { mesh = { 'pp=1' }, stages = { 3 }, recompute = 'block', capacity = 'dropless' }",
        "return m.layout { mesh = { 'dp=4', 'ep=4' }, capacity = 'dropless', round = 1.5,\n"
        "  placement = function(layer, expert) return (expert * 3 + layer) % 4 end,\n"
        "  precision = { { '*.experts.*, *.w_o', 'fp32' }, { 'layers.3.ffn.experts.w_in', 'bf16' } } }",
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Case first = accept(cases[i]);
        Text file = { 0 }, again = { 0 }, text[2] = { { 0 }, { 0 } };
        layout_print_lua(&first.layout, first.m->n_layers, &file);
        Case second = accept(text_cstr(&file) + strlen("local m = require \"moec\"\n"));
        layout_print_lua(&second.layout, second.m->n_layers, &again);
        assert_string_equal(text_cstr(&again), text_cstr(&file));
        layout_print(&first.layout, &text[0]);
        layout_print(&second.layout, &text[1]);
        assert_string_equal(text_cstr(&text[1]), text_cstr(&text[0]));
        assert_int_equal(second.layout.experts, first.layout.experts);
        if (first.layout.placement)
            assert_memory_equal(second.layout.placement, first.layout.placement, sizeof(int32_t) * 3 * 12);
        for (uint32_t p = 0; p < first.m->n_params; p++)
            assert_int_equal(second.m->params[p].precision, first.m->params[p].precision);
        finish(&first);
        finish(&second);
        text_finish(&file), text_finish(&again), text_finish(&text[0]), text_finish(&text[1]);
    }
}

// The one that docs/layouts.md shows.
static void page(void **state) {
    (void)state;
    Arena *arena = arena_create();
    char *text;
    size_t n;
    assert_int_equal(file_read(MOEC_SOURCE_DIR "/docs/layouts.md", arena, &text, &n), OK);
    char *from = strstr(text, "```lua\n") + strlen("```lua\n");
    *strstr(from, "```") = 0;
    Case c = accept(from);
    Text printed = { 0 };
    layout_print(&c.layout, &printed);
    assert_string_equal(text_cstr(&printed),
                        "pp=2,dp=8,ep=4,stages=9:7,microbatch=2,recompute=block,capacity=1.25");
    assert_int_equal(c.layout.placement[3], 3);
    text_finish(&printed);
    finish(&c);
    arena_destroy(arena);
}

// Every field of the short form is one of m.layout, the axes of mesh aside.
static void same_fields(void **state) {
    (void)state;
    for (int i = LAYOUT_params; i < N_LAYOUT_FIELDS; i++) {
        Text text = { 0 };
        text_printf(&text, "local l = m.layout {} local f = l.%s return l", layout_field_name[i]);
        Case c = accept(text_cstr(&text));
        finish(&c);
        text_finish(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields),    cmocka_unit_test(leaves_the_rest),
        cmocka_unit_test(placement), cmocka_unit_test(precision),
        cmocka_unit_test(mistakes),  cmocka_unit_test(same_fields),
        cmocka_unit_test(written),   cmocka_unit_test(page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
