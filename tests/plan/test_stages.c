// SPDX-License-Identifier: Apache-2.0
// Files of several stages' plans: each is found in its place; other numbers of them, and text after the
// last, are refused with the line.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/plan/sample.h"

static void add_stage(Text *text, int pp, int stage) {
    Plan *plan = sample_ranks(pp, 2, stage);
    // Sources may hold what looks like the end of a plan and the start of another.
    sample_source(plan, "\nend 0\nplan 1\nsource 0 5\n");
    plan_print(plan, text);
    plan_destroy(plan);
}

static void refused(const Text *text, int stage, const char *want) {
    Plan *plan;
    assert_int_not_equal(plan_parse_stage(text_cstr(text), text->bytes, stage, &plan), OK);
    assert_null(plan);
    if (!strstr(status_message(), want))
        fail_msg("expected: %s\ngot: %s", want, status_message());
}

static void finds_each(void **state) {
    (void)state;
    Text text = { 0 };
    add_stage(&text, 1, 0);
    Plan *plan;
    assert_int_equal(plan_parse_stage(text.at, text.bytes, 0, &plan), OK);
    plan_destroy(plan);
    refused(&text, 1, "the plan of stage 1 was asked for, and the text has only that of 0");
    text_finish(&text);

    for (int stage = 0; stage < 2; stage++) add_stage(&text, 2, stage);
    for (int stage = 0; stage < 2; stage++) {
        if (plan_parse_stage(text.at, text.bytes, stage, &plan) != OK)
            fail_msg("%s", status_message());
        assert_int_equal(plan->mesh.stage, stage);
        assert_int_equal(plan_check(plan), OK);
        plan_destroy(plan);
    }
    refused(&text, 2, "the plan of stage 2 was asked for, and the text has those of 0 to 1");
    refused(&text, -1, "the plan of stage -1 was asked for");
    text_finish(&text);
}

static void counts(void **state) {
    (void)state;
    Text text = { 0 };
    add_stage(&text, 2, 0);
    refused(&text, 0, "expected the plans of 2 stages one after another, found 1 plan");
    add_stage(&text, 2, 1);
    add_stage(&text, 2, 1);
    refused(&text, 1, "expected the plans of 2 stages one after another, found 3 plans");
    text_finish(&text);
    for (int stage = 1; stage >= 0; stage--) add_stage(&text, 2, stage);
    refused(&text, 0, "expected the plan of stage 0 in its place, found that of 1");
    text_finish(&text);
    add_stage(&text, 1, 0);
    add_stage(&text, 1, 0);
    refused(&text, 0, "expected the plans of 1 stage one after another, found 2 plans");
    text_finish(&text);
}

static int lines_of(const Text *text) {
    int n = 0;
    for (size_t i = 0; i < text->bytes; i++) n += text->at[i] == '\n';
    return n;
}

static void strays(void **state) {
    (void)state;
    Text text = { 0 }, want = { 0 };
    add_stage(&text, 2, 0);
    int first = lines_of(&text);
    add_stage(&text, 2, 1);
    text_printf(&want, "plan text, line %d: expected the end of the text, found more text",
                lines_of(&text) + 1);
    text_add(&text, "\n");
    refused(&text, 1, text_cstr(&want));
    // A mistake in the second stage has its line in the file.
    text.at[--text.bytes] = 0;
    char *edp = strstr(strstr(text.at, "stage 1\n") - 20, "edp 2");
    edp[4] = 'x';
    text_finish(&want);
    text_printf(&want, "plan text, line %d: expected", first + 3);
    refused(&text, 1, text_cstr(&want));
    text_finish(&want);
    text_finish(&text);
    text_add(&text, "nothing of the kind");
    refused(&text, 0, "plan text, line 1: expected \"plan \"");
    text_finish(&text);
    refused(&text, 0, "plan text, line 1: expected \"plan \"");
}

// Cut anywhere, a file is refused by one of its stages, and never read past its end.
static void any_end(void **state) {
    (void)state;
    Text text = { 0 };
    for (int stage = 0; stage < 2; stage++) add_stage(&text, 2, stage);
    for (size_t n = 0; n < text.bytes; n += 1 + n / 60) {
        char *copy = memory_alloc(n + 1);
        memcpy(copy, text.at, n);
        Plan *plan;
        int read = 0;
        for (int stage = 0; stage < 2; stage++) {
            read += plan_parse_stage(copy, n, stage, &plan) == OK;
            plan_destroy(plan);
        }
        if (read == 2) fail_msg("%zu bytes are enough", n);
        memory_free(copy);
    }
    text_finish(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_each),
        cmocka_unit_test(counts),
        cmocka_unit_test(strays),
        cmocka_unit_test(any_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
