// SPDX-License-Identifier: Apache-2.0
// The short form of layouts: what it says, that printing and parsing agree, and what it refuses.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compiler/layout/layout.h"

// Parses, prints, parses and prints again; the result lives in the arena.
static const char *printed(const char *text, Arena *arena) {
    Layout layout = layout_single(), again = layout_single();
    if (layout_parse(text, arena, &layout) != OK) fail_msg("%s: %s", text, status_message());
    Text first = { 0 }, second = { 0 };
    layout_print(&layout, &first);
    if (layout_parse(text_cstr(&first), arena, &again) != OK)
        fail_msg("%s prints as %s: %s", text, text_cstr(&first), status_message());
    layout_print(&again, &second);
    assert_string_equal(text_cstr(&first), text_cstr(&second));
    const char *result = arena_strdup(arena, text_cstr(&first));
    text_finish(&first);
    text_finish(&second);
    return result;
}

static void prints(void **state) {
    (void)state;
    static const struct { const char *from, *to; } cases[] = {
        { "dp=1", "dp=1" },
        { "pp=1", "dp=1" },
        { "ep=4,dp=8,pp=2", "pp=2,dp=8,ep=4" },
        { " pp = 2 , dp=4\t", "pp=2,dp=4" },
        { "params=fsdp", "dp=1,params=fsdp" },
        { "params=fsdp,expert_params=fsdp", "dp=1,params=fsdp" },
        { "expert_params=resident,params=fsdp", "dp=1,params=fsdp,expert_params=resident" },
        { "expert_params=fsdp", "dp=1,expert_params=fsdp" },
        { "schedule=1f1b,slots=1", "dp=1" },
        { "pp=2,schedule=interleaved,slots=2,stages=4:4:3:2",
          "pp=2,dp=1,schedule=interleaved,slots=2,stages=4:4:3:2" },
        { "schedule=zb,transport=blocks", "dp=1,schedule=zb,transport=blocks" },
        { "row_align=32", "dp=1,row_align=32" },
        { "row_align=1,ep=2,dp=2", "dp=2,ep=2" },
        { "node=2,transport=blocks,ep=4,dp=8", "dp=8,ep=4,transport=blocks,node=2" },
        { "microbatch=2,recompute=block", "dp=1,microbatch=2,recompute=block" },
        { "recompute=cheap", "dp=1" },
        { "recompute=none:cheap:block", "dp=1,recompute=none:cheap:block" },
        { "recompute=none:cheap:cheap:cheap:block", "dp=1,recompute=none:cheap*3:block" },
        { "recompute=none*1:cheap*2:cheap", "dp=1,recompute=none:cheap*3" },
        { "recompute=block*2", "dp=1,recompute=block:block" },
        { "recompute=block*40", "dp=1,recompute=block*40" },
        { "pp=4,stages=4*3:3", "pp=4,dp=1,stages=4*3:3" },
        { "pp=4,stages=4:4:4:3", "pp=4,dp=1,stages=4*3:3" },
        { "capacity=1.250", "dp=1,capacity=1.25" },
        { "capacity=1e-1", "dp=1,capacity=0.1" },
        { "capacity=dropless", "dp=1,capacity=dropless" },
        { "ep=4,dp=4,round=1.250,capacity=dropless", "dp=4,ep=4,capacity=dropless,round=1.25" },
        { "round=whole", "dp=1,round=whole" },
    };
    Arena *arena = arena_create();
    for (int i = 0; i < COUNT_OF(cases); i++)
        assert_string_equal(printed(cases[i].from, arena), cases[i].to);
    arena_destroy(arena);
}

static void values(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Layout layout = layout_single();
    layout.recompute = RECOMPUTE_NONE; // what the run says
    assert_int_equal(layout_parse("pp=2,dp=8,ep=4,stages=5:2,capacity=dropless,params=fsdp", arena,
                                  &layout),
                     OK);
    assert_int_equal(layout_ranks(&layout), 16);
    assert_int_equal(layout.params, PARAMS_FSDP);
    assert_int_equal(layout.expert_params, PARAMS_FSDP);
    assert_int_equal(layout.recompute, RECOMPUTE_NONE);
    assert_int_equal(layout.stages[0], 5);
    assert_int_equal(layout.n_stages, 2);
    assert_true(isinf(layout.capacity));
    assert_int_equal(layout_stage_of_layer(&layout, 4, 7), 0);
    assert_int_equal(layout_stage_of_layer(&layout, 5, 7), 1);
    arena_destroy(arena);
}

static void refuses(void **state) {
    (void)state;
    static const struct { const char *text, *message; } cases[] = {
        { "", "layout: expected name=value, got ''\n  hint: for example pp=2,dp=4,ep=4; a file of "
              "Lua ends in .lua" },
        { "pp=2,", "layout: expected name=value, got ''" },
        { "four", "layout: expected name=value, got 'four'" },
        { "dq=2", "layout: a layout has no field 'dq'\n  hint: did you mean 'dp'? fields: pp, dp, "
                  "ep, params, expert_params, schedule, slots, stages, microbatch, recompute, "
                  "capacity, round, transport" },
        { "pp=2,dp=2,pp=4", "layout: pp is given twice" },
        { "pp=0", "layout: pp is '0', expected a whole number from 1 to 1024" },
        { "pp=-1", "layout: pp is '-1', expected a whole number from 1 to 1024" },
        { "dp=2x", "layout: dp is '2x', expected a whole number from 1 to 1048576" },
        { "dp=99999999999999999999", "expected a whole number from 1 to 1048576" },
        { "dp=", "layout: dp is '', expected a whole number" },
        { "stages=4::3", "layout: stages is '', expected a whole number from 0" },
        { "schedule=1f2b", "layout: schedule is '1f2b', expected one of 1f1b|interleaved|zb\n"
                           "  hint: did you mean '1f1b'?" },
        { "recompute=cheap:blok", "hint: did you mean 'block'?" },
        { "recompute=blok*3", "hint: did you mean 'block'?" },
        { "recompute=cheap*0", "layout: recompute is 'cheap*0', expected how many alike as a whole number behind '*'" },
        { "recompute=cheap*", "expected how many alike" },
        { "recompute=cheap*-1", "expected how many alike" },
        { "recompute=cheap*2x", "expected how many alike" },
        { "recompute=cheap*2*2", "expected how many alike" },
        { "recompute=cheap*65537", "expected fewer than 65537 entries" },
        { "recompute=none*65536:none", "expected fewer than 65537 entries" },
        { "stages=4*99999999999999999999", "expected fewer than 65537 entries" },
        { "stages=*3", "layout: stages is '', expected a whole number from 0" },
        { "capacity=0", "layout: capacity is '0', expected a number above 0, up to 1048576, or dropless" },
        { "capacity=inf", "expected a number above 0, up to 1048576, or dropless" },
        { "capacity=nan", "expected a number above 0, up to 1048576, or dropless" },
        { "round=0", "layout: round is '0', expected a number above 0, up to 1048576, or whole" },
        { "round=dropless", "expected a number above 0, up to 1048576, or whole" },
        { "row_align=24", "layout: row_align is '24', expected a power of two from 1 to 128" },
        { "row_align=256", "layout: row_align is '256', expected a power of two from 1 to 128" },
        { "transport=row", "layout: transport is 'row', expected one of rows|blocks" },
    };
    Arena *arena = arena_create();
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Layout layout = layout_single();
        assert_int_equal(layout_parse(cases[i].text, arena, &layout), ERR_ARGUMENT);
        if (!strstr(status_message(), cases[i].message))
            fail_msg("%s\nexpected: %s\ngot: %s", cases[i].text, cases[i].message,
                     status_message());
    }
    arena_destroy(arena);
}

// Every field has a line of help, and a value of the form that the line shows is taken.
static void helps(void **state) {
    (void)state;
    Text help = { 0 };
    layout_help(&help);
    for (int i = 0; i < N_LAYOUT_FIELDS; i++) {
        Text line = { 0 };
        text_printf(&line, "  %s=", layout_field_name[i]);
        assert_non_null(strstr(text_cstr(&help), text_cstr(&line)));
        text_finish(&line);
    }
    text_finish(&help);
}

/* docs/layouts.md ------------------------------------------------------------------------------ */

static const char page_path[] = MOEC_SOURCE_DIR "/docs/layouts.md";

// Its table of fields is layout_reference's. MOEC_UPDATE=1 writes it.
static void page_has_the_table(void **state) {
    (void)state;
    static const char head[] = "|---|---|---|\n";
    Arena *arena = arena_create();
    char *text;
    size_t n;
    assert_int_equal(file_read(page_path, arena, &text, &n), OK);
    Text table = { 0 };
    layout_reference(&table);
    char *from = strstr(text, head) + strlen(head), *to = strstr(from, "\n\n") + 1;
    bool same = (size_t)(to - from) == table.bytes && !memcmp(from, table.at, table.bytes);
    if (!same && getenv("MOEC_UPDATE")) {
        Text page = { 0 };
        text_add_n(&page, text, (size_t)(from - text));
        text_add(&page, table.at);
        text_add(&page, to);
        assert_int_equal(file_write_atomic(page_path, page.at, page.bytes), OK);
        text_finish(&page);
    } else if (!same) {
        fail_msg("docs/layouts.md is old: MOEC_UPDATE=1 ./dev test layout.text");
    }
    text_finish(&table);
    arena_destroy(arena);
}

// What it shows as short forms is taken.
static void page_shows_layouts(void **state) {
    (void)state;
    Arena *arena = arena_create();
    char *text;
    size_t n;
    int shown = 0;
    assert_int_equal(file_read(page_path, arena, &text, &n), OK);
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        char *option = strstr(line, "--layout "), *end = line + strcspn(line, "\n");
        bool plain = !strncmp(line, "pp=", 3) || !strncmp(line, "dp=", 3);
        const char *at = plain ? line : option && option < end ? option + strlen("--layout ") : NULL;
        if (!at || !strchr("pd", *at) || at[1] != 'p') continue;
        printed(arena_strndup(arena, at, strcspn(at, " \n`")), arena);
        shown++;
    }
    assert_true(shown >= 5);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints),
        cmocka_unit_test(values),
        cmocka_unit_test(refuses),
        cmocka_unit_test(helps),
        cmocka_unit_test(page_has_the_table),
        cmocka_unit_test(page_shows_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
