// SPDX-License-Identifier: Apache-2.0
// What a run changes of its spec, from the command line to the record: --routing, --set of blocks.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/driver/small.h"

enum { STEPS = 20, EXPERTS = 4, CHOICES = 2, BATCH = 256 };

static json_t *last_line(const char *run) {
    size_t n;
    const char *text = read_whole(path_in(run, "metrics.jsonl"), &n), *line = text;
    for (int step = 1; step < STEPS; step++) line = strchr(line, '\n') + 1;
    json_t *object = json_loadb(line, strcspn(line, "\n"), 0, NULL);
    assert_non_null(object);
    assert_int_equal(json_integer_value(json_object_get(object, "step")), STEPS);
    return object;
}

static double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_real(value)) fail_msg("no number '%s'", key);
    return json_real_value(value);
}

static void expect_recorded(const char *run, const char *routing) {
    json_t *record = json_load_file(path_in(run, "run.json"), 0, NULL);
    const json_t *options = json_object_get(record, "options");
    assert_string_equal(json_string_value(json_object_get(options, "train.routing")), routing);
    json_decref(record);
}

// Whether every expert has its share of the batch; none of it may be missing.
static bool loads_are_even(const json_t *line) {
    const json_t *load = json_object_get(line, "train/block 02/load");
    assert_int_equal(json_array_size(load), EXPERTS);
    double total = 0, largest = 0;
    for (size_t e = 0; e < EXPERTS; e++) {
        double rows = (double)json_integer_value(json_array_get(load, e));
        total += rows;
        largest = fmax(largest, rows);
    }
    assert_true(total == BATCH * CHOICES);
    return largest == BATCH * CHOICES / EXPERTS;
}

static void trains(void **state) {
    (void)state;
    Small small = small_make();
    static const char *const routings[] = { "uniform", "random" };
    for (int i = 0; i < COUNT_OF(routings); i++) {
        char *run = path_in(small.folder, routings[i]), *half = path_in(run, "../half");
        char *const more[] = { "--routing", (char *)(uintptr_t)routings[i], NULL };
        expect_exit(0, small_train(&small, run, "20", more));
        json_t *line = last_line(run);
        assert_int_equal(loads_are_even(line), i == 0);
        // The balance loss sees the same ids: its least value, 1 per choice, is that of even loads.
        double balance = number(line, "train/load balancing loss unscaled");
        if (i == 0) assert_true(fabs(balance - 1) < 1e-5 || fabs(balance - CHOICES) < 1e-5);
        assert_true(isfinite(number(line, "train/CE loss")));
        assert_true(isfinite(number(line, "optim/total grad norm")));
        json_decref(line);
        expect_recorded(run, routings[i]);
        // A resumed run goes on with the routing that its plan has.
        expect_exit(0, small_train(&small, half, "6", more));
        expect_exit(0, COMMAND(small.moec, "resume", half, "--steps", "20"));
        expect_recorded(half, routings[i]);
        line = last_line(half);
        assert_int_equal(loads_are_even(line), i == 0);
        json_decref(line);
        expect_exit(2, COMMAND(small.moec, "resume", run, "--routing", "learned"));
        expect_error("--routing is fixed for the life of a run");
        expect_exit(0, COMMAND("/bin/rm", "-r", half));
    }
}

static void refusals(void **state) {
    (void)state;
    Small small = small_make();
    char *const wrong[] = { "--routing", "unifrom", NULL };
    expect_exit(2, small_train(&small, path_in(small.folder, "wrong"), "1", wrong));
    expect_error("moec: error: --routing is 'unifrom', expected one of learned|uniform|random\n"
                 "  hint: did you mean 'uniform'?\n");
    expect_exit(2, COMMAND(small.moec, "plan", small.spec, "--routing", "even"));
    expect_error("moec: error: --routing is 'even', expected one of learned|uniform|random\n");
}

// Fields of blocks from the command line: the balancing loss goes, the run says why.
static void set_fields(void **state) {
    (void)state;
    Small small = small_make();
    char *run = path_in(small.folder, "set"), *zero = "layers.*.ffn.router.balance_loss=0";
    char *const more[] = { "--set", zero, "--set", "optim.lr=0.001", NULL };
    expect_exit(0, small_train(&small, run, "20", more));
    json_t *line = last_line(run);
    assert_null(json_object_get(line, "train/load balancing loss"));
    assert_true(isfinite(number(line, "train/CE loss")));
    json_decref(line);
    json_t *record = json_load_file(path_in(run, "run.json"), 0, NULL);
    const json_t *set = json_object_get(json_object_get(record, "origin"), "set");
    assert_int_equal(json_object_size(set), 1);
    const json_t *value = json_object_get(set, "layers.*.ffn.router.balance_loss");
    assert_string_equal(json_string_value(value), "0");
    const json_t *options = json_object_get(record, "options");
    assert_true(json_real_value(json_object_get(options, "optim.lr")) == 0.001);
    json_decref(record);

    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "--set", zero));
    expect_exit(0, COMMAND(small.moec, "check", small.spec, "--set", zero));
    assert_non_null(strstr(command_output(), " 1 loss, "));
    char *wrong = "--set=layers.*.fnn.router.balance_loss=0";
    const char *says = "error: --set: no block is called at 'layers.*.fnn.router'\n"
                       "  hint: did you mean 'layers.*.ffn.router.balance_loss'?\n";
    expect_exit(2, COMMAND(small.moec, "check", small.spec, wrong));
    expect_error(says);
    expect_exit(2, COMMAND(small.moec, "plan", small.spec, wrong));
    expect_error(says);
    char *const train_wrong[] = { wrong, NULL };
    expect_exit(2, small_train(&small, path_in(small.folder, "wrong"), "1", train_wrong));
    expect_error(says);
    char *const table[] = { "--set", "optim.lrr=1", NULL };
    expect_exit(2, small_train(&small, path_in(small.folder, "wrong"), "1", table));
    expect_error("--set: unknown path 'optim.lrr' of 'train'\n  hint: did you mean optim.lr?");
    expect_exit(2, COMMAND(small.moec, "check", small.spec, "--set"));
    expect_error("moec: error: --set needs a value\n");
    expect_exit(2, COMMAND(small.moec, "plan", small.spec, "--set", "a.b"));
    expect_error("moec: error: --set is given 'a.b', expected path=value\n  hint: for example --set layers.");
}

// Counts are exact where microbatches differ in targets (a line is a document, whose first byte is
// none) and where a router itself leaves choices out.
static void loads_are_counts(void **state) {
    (void)state;
    static const char spec[] =
        "local m = require \"moec\"\n"
        "return m.model { name = \"own\", vocab = 256, width = 32, sequence = 32,\n"
        "  layers = { m.block { ffn = m.experts { count = 4, top_k = 2, expert = { hidden = 24 },\n"
        "    router = function(x, count, top_k)\n"
        "      local score = m.softmax(m.linear(\"score\", x, count))\n"
        "      local ids = m.top_k(score, top_k)\n"
        "      return m.where(m.eq(m.positions() % 4, 0), -1, ids), m.gather(score, ids)\n"
        "    end } } } }\n";
    Small small = small_make();
    write_file(small.spec, spec, sizeof spec - 1);
    char *run = path_in(small.folder, "counts");
    expect_exit(0, small_train(&small, run, "6", (char *[]) { "--eos", "10", NULL }));
    size_t n;
    char *line = read_whole(path_in(run, "metrics.jsonl"), &n);
    int64_t before = 0, fewest = BATCH, dropped_in_all = 0;
    for (int step = 1; step <= 6; step++, line = strchr(line, '\n') + 1) {
        json_t *object = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        int64_t tokens = json_integer_value(json_object_get(object, "tokens")) - before, served = 0,
                dropped = json_integer_value(json_object_get(object, "train/block 01/dropped"));
        const json_t *load = json_object_get(object, "train/block 01/load");
        for (size_t e = 0; e < EXPERTS; e++) {
            assert_true(json_is_integer(json_array_get(load, e)));
            served += json_integer_value(json_array_get(load, e));
        }
        assert_int_equal(served + dropped, CHOICES * tokens);
        assert_true(dropped > 0 && dropped % CHOICES == 0);
        double rate = number(object, "train/block 01/token drop rate");
        assert_true(fabs(rate * (double)(CHOICES * tokens) - (double)dropped) < 1e-5);
        before += tokens;
        dropped_in_all += dropped;
        fewest = min_i64(fewest, tokens);
        json_decref(object);
    }
    assert_true(fewest < BATCH); // some targets are missing
    assert_in_range(dropped_in_all, before / 3, before); // about a quarter of the choices
}

// The plan differs where the run asks, and only there.
static void plans(void **state) {
    (void)state;
    Small small = small_make();
    static const char *const names[] = { "none", "learned", "uniform", "random" };
    char *text[COUNT_OF(names)];
    size_t n[COUNT_OF(names)];
    for (int i = 0; i < COUNT_OF(names); i++) {
        char *out = path_in(small.folder, names[i]);
        char *name = (char *)(uintptr_t)names[i];
        expect_exit(0, i ? COMMAND(small.moec, "plan", small.spec, "-o", out, "--routing", name)
                         : COMMAND(small.moec, "plan", small.spec, "-o", out));
        text[i] = read_whole(out, &n[i]);
    }
    // A saved plan has its routing: a runner cannot choose another, or the record would be wrong.
    char *runner = MOEC_BINARY_DIR "/moec-run", *plan = path_in(small.folder, "uniform");
    expect_exit(2, COMMAND(runner, plan, "--data", small.data, "--out",
                           path_in(small.folder, "run"), "--routing", "random"));
    expect_error("moec-run: error: --routing is decided by the plan\n");
    assert_string_equal(text[0], text[1]);
    assert_string_not_equal(text[1], text[2]);
    assert_string_not_equal(text[2], text[3]);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(trains), cmocka_unit_test(refusals),
                                        cmocka_unit_test(plans), cmocka_unit_test(set_fields),
                                        cmocka_unit_test(loads_are_counts) };
    return cmocka_run_group_tests_name("routing", tests, NULL, NULL);
}
