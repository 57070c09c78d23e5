// SPDX-License-Identifier: Apache-2.0
// --layout on the command line: what `moec plan` prints of ranks and writes of stages, and what is refused.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/plan/plan.h"
#include "tests/driver/small.h"

static const char *line_after(const char *heading, int n) {
    const char *at = strstr(command_output(), heading);
    if (!at) fail_msg("no '%s' in:\n%s", heading, command_output());
    for (; n > 0; n--) at = strchr(at, '\n') + 1;
    return at;
}

static void expect_line(const char *heading, int n, const char *want) {
    const char *at = line_after(heading, n);
    if (strncmp(at, want, strlen(want)))
        fail_msg("expected: %s\ngot: %.*s", want, (int)strcspn(at, "\n"), at);
}

// One rank with a layout is one rank.
static void of_one(void **state) {
    (void)state;
    Small small = small_make();
    char *plain = path_in(small.folder, "plain.plan"), *laid = path_in(small.folder, "laid.plan");
    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "--microbatch", "64", "-o", plain));
    assert_null(strstr(command_output(), "layout"));
    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "--layout", "dp=1,microbatch=2", "-o", laid));
    expect_line("layout", 0, "layout  dp=1,microbatch=2: 1 rank\n");
    assert_null(strstr(command_output(), "given by a rank"));
    size_t n[2];
    char *a = read_whole(plain, &n[0]), *b = read_whole(laid, &n[1]);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(a, b, n[0]);
}

static void of_many(void **state) {
    (void)state;
    Small small = small_make();
    char *file = path_in(small.folder, "stages.plan");
    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "--layout", "pp=2,dp=2", "--microbatch=64",
                           "--microbatches=3", "-o", file));
    expect_line("layout", 0, "layout  pp=2,dp=2,microbatch=2: 4 ranks\n");
    expect_line("memory of a rank", 2, "  0..1      1 ");
    expect_line("memory of a rank", 3, "  2..3      2 ");
    expect_line("given by a rank", 2, "  0..1 ");
    expect_line("given by a rank", 3, "  2..3 ");
    line_after("\nstage 1\nplan ", 1);
    size_t bytes;
    char *text = read_whole(file, &bytes);
    for (int stage = 0; stage < 2; stage++) {
        Plan *plan;
        if (plan_parse_stage(text, bytes, stage, &plan) != OK) fail_msg("%s", status_message());
        assert_int_equal(plan->mesh.stage, stage);
        assert_int_equal(plan->mesh.size[AXIS_edp], 2);
        assert_int_equal(plan->microbatches, 3);
        assert_int_equal(plan->tokens, 64);
        plan_destroy(plan);
    }
}

// Between nodes: what a plan shows of it, and what none does.
static void blocks(void **state) {
    (void)state;
    Small small = small_make();
    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "--layout", "dp=2,ep=2,transport=blocks",
                           "--microbatch", "64"));
    assert_non_null(strstr(command_output(), " blocks  in the stage"));
    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "--layout", "dp=2,ep=2", "--microbatch", "64"));
    assert_null(strstr(command_output(), " blocks "));
    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "--layout", "dp=2,ep=2,transport=blocks,round=1",
                           "--microbatch", "64"));
    assert_non_null(strstr(command_output(), " blocks  in the stage"));
    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "--layout", "dp=2,ep=2,transport=blocks",
                           "--microbatch", "64", "--target", "cuda:sm_80"));
    assert_null(strstr(command_output(), " blocks ")); // gathers and exchanges have them
}

static void files(void **state) {
    (void)state;
    Small small = small_make();
    char *file = path_in(small.folder, "wide.lua");
    static const char text[] = "local m = require \"moec\"\n"
                               "return m.layout { mesh = { \"dp=4\" }, microbatch = 3 }\n";
    write_file(file, text, strlen(text));
    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "--layout", file, "--microbatch", "64"));
    expect_line("layout", 0, "layout  dp=4,microbatch=3: 4 ranks\n");
    expect_line("plan ", 0, "plan    small on cpu, 96 tokens in sequences of 32, 1 microbatch a step");
    expect_exit(2, COMMAND(small.moec, "plan", small.spec, "--layout", "nowhere.lua"));
    expect_error("nowhere.lua");
    static const char wrong[] = "return require(\"moec\").layout { mesh = { \"dp=4\" }, slot = 3 }\n";
    write_file(file, wrong, strlen(wrong));
    expect_exit(2, COMMAND(small.moec, "plan", small.spec, "--layout", file));
    expect_error("wide.lua:1:52: error: layout has no field 'slot'\n");
}

static void refusals(void **state) {
    (void)state;
    Small small = small_make();
    char *run = path_in(small.folder, "run");
    expect_exit(2, COMMAND(small.moec, "plan", small.spec, "--layout", "pp=4"));
    expect_error("moec: error: layout: 2 layers do not fill pp=4 x slots=1 stages\n"
                 "  hint: the nearest that works: --layout pp=2,dp=2\n");
    expect_exit(0, COMMAND(small.moec, "plan", "--help"));
    assert_non_null(strstr(command_output(), "\n  schedule=1f1b|interleaved|zb"));
    expect_exit(2, COMMAND(small.moec, "plan", small.spec, "--microbatch", "33"));
    expect_error("--microbatch is 33 tokens, expected a multiple of the sequence of 32");
    expect_exit(2, COMMAND(small.moec, "plan", small.spec, "--layout", "pp=2,dq=3"));
    expect_error("layout: a layout has no field 'dq'\n  hint: did you mean 'dp'?");
    expect_exit(2, COMMAND(small.moec, "plan", small.spec, "--layout", "dp=2", "--microbatch=33"));
    expect_error("--microbatch is 33 tokens, expected a multiple of the sequence of 32");
    expect_exit(2, COMMAND(small.moec, "train", small.spec, "--data", small.data, "--out", run,
                           "--steps", "1", "--layout", "dp=2"));
    expect_error("layout: pp=1 x dp=2 is 2 ranks, and 1 was started\n"
                 "  hint: mpirun -n 2 starts as many; the nearest that works: --layout dp=1\n");
    expect_exit(2, COMMAND(small.moec, "train", small.spec, "--data", small.data, "--out", run,
                           "--steps", "1", "--layout", "dp=1,microbatch=2", "--batch", "96"));
    expect_error("layout: a batch of 3 sequences is no multiple of dp=1 x microbatch=2\n");
    assert_false(file_exists(run));
}

// A layout of one rank trains to the same bits, and stays in the run's record.
static void trains(void **state) {
    (void)state;
    Small small = small_make();
    char *runs[] = { path_in(small.folder, "plain"), path_in(small.folder, "laid") };
    char *const none[] = { NULL }, *const laid[] = { "--layout", "dp=1,microbatch=4", NULL };
    expect_exit(0, small_train(&small, runs[0], "3", none));
    expect_exit(0, small_train(&small, runs[1], "3", laid));
    same_state(runs[0], runs[1], 3);
    size_t n;
    char *record = read_whole(path_in(runs[1], "run.json"), &n);
    assert_non_null(strstr(record, "\"train.layout\": \"dp=1,microbatch=4\""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_one),   cmocka_unit_test(of_many), cmocka_unit_test(blocks), cmocka_unit_test(files),
        cmocka_unit_test(refusals), cmocka_unit_test(trains),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
