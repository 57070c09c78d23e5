// SPDX-License-Identifier: Apache-2.0
// The text form: print and parse are inverse, nothing else is accepted, and no bytes harm the
// parser.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/plan/sample.h"

static void expect_failure(const char *text, size_t bytes, Status status, const char *message) {
    Plan *plan = (Plan *)1;
    // Of its own size, so that a sanitizer sees reads past the end.
    char *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, text, bytes);
    assert_int_equal(plan_parse(copy, bytes, &plan), status);
    free(copy);
    assert_null(plan);
    if (!strstr(status_message(), message))
        fail_msg("expected \"%s\" in \"%s\"", message, status_message());
}

// Puts the right hash into the end line of a text without one.
static void sign(Text *text) {
    char hex[33];
    hash_hex(hash_bytes(text->at, text->bytes), hex);
    text_printf(text, "end %s\n", hex);
}

// The text with the first `from` replaced, signed again.
static Text edit(const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from), *end = strstr(text, "\nend ");
    assert_non_null(at);
    Text out = { 0 };
    text_add_n(&out, text, (size_t)(at - text));
    text_add(&out, to);
    text_add_n(&out, at + strlen(from), (size_t)(end + 1 - (at + strlen(from))));
    sign(&out);
    return out;
}

static void expect_edit(const char *text, const char *from, const char *to, const char *message) {
    Text edited = edit(text, from, to);
    expect_failure(edited.at, edited.bytes, ERR_FORMAT, message);
    text_finish(&edited);
}

static void round_trip(const Plan *plan) {
    Text first = { 0 }, second = { 0 };
    plan_print(plan, &first);
    Plan *again;
    if (plan_parse(first.at, first.bytes, &again) != OK) fail_msg("%s", status_message());
    plan_print(again, &second);
    assert_string_equal(first.at, second.at);
    assert_int_equal(first.bytes, second.bytes);
    assert_true(hash_equal(plan_hash(plan), plan_hash(again)));
    plan_destroy(again);
    text_finish(&first);
    text_finish(&second);
}

static void test_round_trip(void **state) {
    (void)state;
    Plan *plan = sample_plan(8, 2);
    round_trip(plan);
    plan_destroy(plan);
    Plan *empty = plan_create();
    round_trip(empty);
    plan_destroy(empty);
}

// The seed of the fuzzer is the sample's text: a change of the format shows here and is made on purpose.
static void test_golden(void **state) {
    (void)state;
    Arena *arena = arena_create();
    char *golden;
    size_t n;
    const char *path = MOEC_SOURCE_DIR "/tests/fuzz/corpus/plan/sample.plan";
    assert_int_equal(file_read(path, arena, &golden, &n), OK);
    Plan *plan = sample_plan(8, 2);
    Text text = { 0 };
    plan_print(plan, &text);
    assert_string_equal(text.at, golden);
    text_finish(&text);
    plan_destroy(plan);
    arena_destroy(arena);
}

static void test_values(void **state) {
    (void)state;
    Plan *plan = sample_plan(8, 1);
    plan->model = "a \"name\" \\ with\n\t\x01\x7f and \xc3\xa9";
    plan->target = "";
    plan->params[0].std = 5e-324;
    plan->params[0].decay = INFINITY;
    plan->params[0].lr = -INFINITY;
    plan->params[1].std = -0.0;
    plan->params[1].decay = 1.7976931348623157e308;
    plan->params[1].lr = 1.0 / 3;
    plan->params[0].per_expert = true;
    plan->params[2].n_dims = 0;
    plan->params[1].n_dims = PLAN_MAX_DIMS;
    plan->params[1].offset = INT64_MAX;
    for (int i = 0; i < PLAN_MAX_DIMS; i++) plan->params[1].dims[i] = i;
    plan->kernels[0].n_args = 0;
    plan->programs[0].buffers[0].first = INT32_MIN;
    plan->programs[0].buffers[0].last = INT32_MAX;
    plan->programs[0].metrics[0].weight = -2.5;
    plan->programs[1].metrics[0].weight = 0;
    plan->programs[1].metrics[0].sum = true;
    plan->programs[0].inputs[0].k = -3;
    sample_source(plan, "");
    sample_source(plan, "end 0\n\n kernel\xff\n");
    Text text = { 0 };
    plan_print(plan, &text);
    Plan *again;
    if (plan_parse(text.at, text.bytes, &again) != OK) fail_msg("%s", status_message());
    assert_string_equal(again->model, plan->model);
    assert_string_equal(again->target, "");
    assert_true(again->params[0].std == 5e-324);
    assert_true(again->programs[0].metrics[0].weight == -2.5);
    assert_false(again->programs[0].metrics[0].sum);
    assert_true(again->programs[1].metrics[0].sum);
    assert_true(isinf(again->params[0].decay) && again->params[0].lr == -INFINITY);
    assert_true(signbit(again->params[1].std));
    assert_true(again->params[1].lr == 1.0 / 3);
    assert_true(again->params[0].per_expert && !again->params[1].per_expert);
    assert_true(again->params[2].is_state && !again->params[0].is_state);
    assert_int_equal(again->params[2].n_dims, 0);
    assert_int_equal(again->params[1].dims[7], 7);
    assert_true(again->params[1].offset == INT64_MAX);
    assert_int_equal(again->programs[0].buffers[0].first, INT32_MIN);
    assert_int_equal(again->programs[0].inputs[0].k, -3);
    assert_string_equal(again->sources[again->n_sources - 1].text, "end 0\n\n kernel\xff\n");
    plan_destroy(again);
    text_finish(&text);
    round_trip(plan);
    plan_destroy(plan);
}

static void test_identity(void **state) {
    (void)state;
    Plan *plan = sample_plan(8, 2);
    Hash hash = plan_hash(plan);
    plan->programs[0].buffers[0].loc = "elsewhere.lua:3";
    assert_true(hash_equal(hash, plan_hash(plan)));
    plan->programs[0].buffers[0].offset += PLAN_GRAIN;
    assert_false(hash_equal(hash, plan_hash(plan)));
    plan->programs[0].buffers[0].offset -= PLAN_GRAIN;
    assert_true(hash_equal(hash, plan_hash(plan)));
    plan->params[0].lr = 2;
    assert_false(hash_equal(hash, plan_hash(plan)));
    plan_destroy(plan);
}

static void test_refusals(void **state) {
    (void)state;
    Plan *plan = sample_plan(8, 2);
    Text text = { 0 };
    plan_print(plan, &text);
    const char *at = text.at;
    expect_failure("", 0, ERR_FORMAT, "line 1: expected \"plan \", found the end of the text");
    expect_failure("\0\0\0\0\0\0\0\0", 8, ERR_FORMAT, "line 1: expected \"plan \", found \"\\x00");
    expect_failure("plan 2\n", 7, ERR_VERSION, "expected version 1, found version 2");
    expect_edit(at, "plan 1", "plan one", "line 1: expected a version");
    expect_edit(at, "tokens 8", "tokens 99999999999999999999", "line 2: expected tokens");
    expect_edit(at, "tokens 8", "tokens -8", "line 2: expected tokens");
    expect_edit(at, "tokens 8", "tokens 8x", "line 2: expected \" sequence \", found \"x\"");
    expect_edit(at, "tokens 8", "tokens  8", "line 2: expected tokens");
    expect_edit(at, "tokens 8", "tokens 08",
                "line 2: expected the canonical spelling \"8\", found \"08\"");
    expect_edit(at, "tokens 8", "tokens -0", "expected the canonical spelling \"0\", found \"-0\"");
    expect_edit(at, "model sample", "model \"sample\"",
                "expected the canonical spelling \"sample\"");
    expect_edit(at, "model sample", "model \"sam\\x00ple\"", "\\xHH other than \\x00");
    expect_edit(at, "model sample", "model \"sample", "closing quote");
    expect_edit(at, "model sample", "model \"\\q\"", "\\xHH");
    expect_edit(at, "model sample", "model ",
                "line 2: expected the model's name, found \" target\"");
    expect_edit(at, "region act", "region ack", "expected \"act\", found \"ack\"");
    expect_edit(at, "peak ", "peak 1", "line 3: expected the sum of the regions");
    expect_edit(at, "param layers.0.bias", "param layers.0.scale",
                "a parameter's name that is new");
    expect_edit(at, "layers.0.bias [70]", "layers.0.bias [70,]", "expected a dimension");
    expect_edit(at, "layers.0.bias [70]", "layers.0.bias [1,1,1,1,1,1,1,1,1]",
                "at most 8 dimensions");
    expect_edit(at, "init zeros", "init zeroes",
                "an initial value (normal, zeros, ones), found \"zeroes\"");
    expect_edit(at, "std 0x1p-1", "std 0.5", "expected a standard deviation (a number in C99 hex)");
    expect_edit(at, "std 0x1p-1", "std nan", "expected a standard deviation");
    expect_edit(at, "at 0x0", "at 0", "expected an address");
    expect_edit(at, "at 0x0", "at 0x00", "canonical spelling");
    expect_edit(at, "at 0x0", "at 0xffffffffffffffff", "expected an address");
    expect_edit(at, "source 1 ", "source 99 ", "expected a source above");
    expect_edit(at, "kernel clear_2", "kernel clear_1", "a kernel's name that is new");
    expect_edit(at, "arg x f32 mut", "arg x f16 mut",
                "expected a type (f32, i32, i64), found \"f16\"");
    expect_edit(at, "arg x f32 mut", "arg x f32 own", "expected const or mut, found \"own\"");
    expect_edit(at, "program eval", "program step", "a program's name that is new");
    expect_edit(at, "buffer loss", "buffer tokens", "a buffer's name that is new");
    expect_edit(at, "io+0x0", "oi+0x0", "expected a region, found \"oi+0x0\"");
    expect_edit(at, "input tokens 0 tokens", "input token 0 tokens", "expected a kind of input");
    expect_edit(at, "input tokens 0 tokens", "input tokens 0 token",
                "expected a buffer declared above, found \"token\"");
    expect_edit(at, "segment forward", "segment clear", "a segment's name that is new");
    expect_edit(at, "instr 1 ", "instr 2 ",
                "expected the next instruction's number (an integer of 1 to 1)");
    expect_edit(at, "instr 0 clear_1", "instr 0 clear_9",
                "expected a kernel declared above, found \"clear_9\"");
    expect_edit(at, "> all_grads", "=> all_grads", "expected a mode (<, >, +=, =, >>, <<, >?), found \"=>\"");
    expect_edit(at, "> all_grads", "> allgrads", "expected a buffer declared above");
    expect_edit(at, "row clear", "row clean", "expected a segment declared above, found \"clean\"");
    expect_edit(at, "mb -1", "mb -2", "expected a microbatch (an integer of -1 to 2147483647)");
    expect_edit(at, "mb -1 slot 0\n", "mb -1 slot 0 \n",
                "expected the end of the line, found \" \"");
    expect_edit(at, "row clear", "raw clear", "expected \"end \", found \"raw\"");

    Text more = { 0 };
    text_add(&more, at);
    text_add(&more, "\n");
    expect_failure(more.at, more.bytes, ERR_FORMAT, "expected the end of the text");
    more.at[more.bytes - 3] ^= 1; // a digit of the hash
    expect_failure(more.at, more.bytes - 1, ERR_FORMAT, "the hash of the text above");
    text_finish(&more);
    text_finish(&text);
    plan_destroy(plan);
}

// Messages name the line on which the problem stands.
static void test_lines(void **state) {
    (void)state;
    Plan *plan = sample_plan(8, 2);
    Text text = { 0 };
    plan_print(plan, &text);
    const char *row = strstr(text.at, "row update");
    int line = 1;
    for (const char *c = text.at; c < row; c++) line += *c == '\n';
    char expected[64];
    snprintf(expected, sizeof expected, "line %d: expected a segment declared above", line);
    expect_edit(text.at, "row update", "row upkeep", expected);
    text_finish(&text);
    plan_destroy(plan);
}

static void test_every_prefix_is_refused(void **state) {
    (void)state;
    Plan *plan = sample_plan(8, 1), *parsed;
    Text text = { 0 };
    plan_print(plan, &text);
    for (size_t n = 0; n < text.bytes; n++) {
        char *copy = malloc(n + 1);
        memcpy(copy, text.at, n);
        assert_int_not_equal(plan_parse(copy, n, &parsed), OK);
        free(copy);
    }
    text_finish(&text);
    plan_destroy(plan);
}

static void test_every_flipped_byte_is_refused(void **state) {
    (void)state;
    Plan *plan = sample_plan(8, 1), *parsed;
    Text text = { 0 };
    plan_print(plan, &text);
    for (size_t i = 0; i < text.bytes; i++) {
        char old = text.at[i];
        text.at[i] = (char)(old ^ (1 << (i % 8)));
        assert_int_not_equal(plan_parse(text.at, text.bytes, &parsed), OK);
        text.at[i] = old;
    }
    assert_int_equal(plan_parse(text.at, text.bytes, &parsed), OK);
    plan_destroy(parsed);
    text_finish(&text);
    plan_destroy(plan);
}

static uint64_t random_state = 1;
static uint64_t random_below(uint64_t n) {
    return hash_mix(7, random_state++, 0) % n;
}

// One random edit: of bytes, of lines, of numbers.
static void mutate(Text *text) {
    size_t at = random_below(text->bytes), n = random_below(12);
    if (n > text->bytes - at) n = text->bytes - at;
    switch (random_below(6)) {
    case 0: text->at[at] = (char)random_below(256); break;
    case 1: text->at[at] = "0123456789abcdef-x+. \n\"\\<>=[],"[random_below(30)]; break;
    case 2: // delete
        memmove(text->at + at, text->at + at + n, text->bytes - at - n);
        text->bytes -= n;
        break;
    case 3: { // copy a piece over another place
        size_t from = random_below(text->bytes - n + 1);
        memmove(text->at + at, text->at + from, n);
        break;
    }
    case 4: // a digit
        while (at < text->bytes && !(text->at[at] >= '0' && text->at[at] <= '9')) at++;
        if (at < text->bytes) text->at[at] = (char)('0' + random_below(10));
        break;
    case 5: // cut
        if (random_below(20) == 0) text->bytes = at;
        break;
    }
}

// Texts with edits and a right hash get as far as the parser lets them. What it accepts it prints
// back the same, and its identity differs unless only a place in a file changed.
static void test_mutations(void **state) {
    (void)state;
    Plan *plan = sample_plan(8, 2);
    Text text = { 0 };
    plan_print(plan, &text);
    size_t body = (size_t)(strstr(text.at, "\nend ") + 1 - text.at);
    int accepted = 0, refused = 0;
    for (int round = 0; round < 6000; round++) {
        Text edited = { 0 };
        text_add_n(&edited, text.at, body);
        for (int n = 1 + (int)random_below(3); n; n--) {
            if (edited.bytes) mutate(&edited);
        }
        bool same = edited.bytes == body && !memcmp(edited.at, text.at, body);
        sign(&edited);
        Plan *parsed;
        if (plan_parse(edited.at, edited.bytes, &parsed) == OK) {
            accepted++;
            Text again = { 0 };
            plan_print(parsed, &again);
            assert_int_equal(again.bytes, edited.bytes);
            assert_memory_equal(again.at, edited.at, edited.bytes);
            (void)plan_check(parsed); // any answer, no harm
            for (uint32_t p = 0; p < parsed->n_programs; p++) {
                for (uint32_t b = 0; b < parsed->programs[p].n_buffers; b++) {
                    if (same || p >= plan->n_programs || b >= plan->programs[p].n_buffers) continue;
                    parsed->programs[p].buffers[b].loc = plan->programs[p].buffers[b].loc;
                }
            }
            Text no_places = { 0 };
            plan_print(parsed, &no_places);
            bool only_places =
                no_places.bytes == text.bytes && !memcmp(no_places.at, text.at, text.bytes);
            assert_int_equal(hash_equal(plan_hash(plan), plan_hash(parsed)), only_places);
            text_finish(&no_places);
            text_finish(&again);
            plan_destroy(parsed);
        } else {
            refused++;
        }
        text_finish(&edited);
    }
    assert_true(accepted > 100 && refused > 1000); // the edits reach both sides
    text_finish(&text);
    plan_destroy(plan);
}

static void test_noise(void **state) {
    (void)state;
    for (int round = 0; round < 2000; round++) {
        char bytes[200];
        size_t n = random_below(sizeof bytes);
        for (size_t i = 0; i < n; i++) bytes[i] = (char)random_below(256);
        Plan *parsed;
        assert_int_not_equal(plan_parse(bytes, n, &parsed), OK);
        assert_null(parsed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_every_prefix_is_refused),
        cmocka_unit_test(test_every_flipped_byte_is_refused),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
