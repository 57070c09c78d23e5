// SPDX-License-Identifier: Apache-2.0
// `moec simulate`: specs and plans, machines, pictures, steps that were measured, and what is refused.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/train/train.h"
#include "tests/driver/small.h"

static void expect(const char *part) {
    if (!strstr(command_output(), part)) fail_msg("expected '%s' in:\n%s", part, command_output());
}

// The waterfall of what was printed adds up, as far as digits go.
static double check_sum(void) {
    const char *step = strstr(command_output(), "\nstep "), *at = strstr(command_output(), "of the step");
    assert_non_null(step);
    assert_non_null(at);
    double ms = strtod(step + 6, NULL), sum = 0, share = 0;
    for (at = strchr(at, '\n') + 1; !strncmp(at, "  ", 2); at = strchr(at, '\n') + 1) {
        double one, part;
        if (sscanf(at + 20, "%lf %lf", &one, &part) != 2) break;
        sum += one;
        share += part;
    }
    assert_true(fabs(sum - ms) < 0.02);
    assert_true(fabs(share - 100) < 0.2);
    return ms;
}

static json_t *load_events(const char *path) {
    json_error_t error;
    json_t *trace = json_load_file(path, 0, &error);
    if (!trace) fail_msg("%s:%d: %s", path, error.line, error.text);
    json_t *events = json_incref(json_object_get(trace, "traceEvents"));
    json_decref(trace);
    return events;
}

static int count(const json_t *events, const char *phase, const char *category) {
    size_t i;
    json_t *event;
    int n = 0;
    json_array_foreach((json_t *)(uintptr_t)events, i, event) {
        const char *is = json_string_value(json_object_get(event, "cat"));
        n += !strcmp(json_string_value(json_object_get(event, "ph")), phase) && is && !strcmp(is, category);
    }
    return n;
}

// A spec and its saved plan are the same; a picture of both kinds comes with it.
static void specs_and_plans(void **state) {
    (void)state;
    Small small = small_make();
    char *plan = path_in(small.folder, "a.plan"), *trace = path_in(small.folder, "a.json"),
         *svg = path_in(small.folder, "a.svg");
    static char layout[] = "pp=2,dp=2,ep=2,schedule=zb,microbatch=2";
    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "--layout", layout, "--microbatches", "4", "-o", plan));
    expect_exit(0, COMMAND(small.moec, "simulate", small.spec, "--layout", layout, "--microbatches", "4", "--cluster",
                           "cpux4", "--trace", trace, "--svg", svg));
    expect("on cpux4, pp=2,dp=2,ep=2,schedule=zb,microbatch=2\n");
    expect(" of each of 4 ranks");
    expect("\n  stage 0   |");
    expect("\n  stage 1   |");
    expect("bubble");
    expect("rows to experts");
    double ms = check_sum();
    char *from_spec = strdup(strstr(command_output(), "\npeak "));
    expect_exit(0, COMMAND(small.moec, "simulate", plan));
    assert_string_equal(strstr(command_output(), "\npeak "), from_spec);
    assert_true(check_sum() == ms);
    free(from_spec);
    json_t *events = load_events(trace);
    assert_int_equal(count(events, "X", "step"), 2);
    assert_int_equal(count(events, "s", "message"), count(events, "f", "message"));
    assert_true(count(events, "s", "message") >= 8);
    assert_true(count(events, "X", "row") >= 2 * (3 * 4 + 2));
    json_decref(events);
    size_t n;
    char *picture = read_whole(svg, &n);
    assert_int_equal(strncmp(picture, "<svg ", 5), 0);
    assert_string_equal(picture + n - 7, "</svg>\n");
    // Twice as busy is slower; GPUs compile for their own architecture.
    expect_exit(0, COMMAND(small.moec, "simulate", plan, "--load", "2"));
    assert_true(check_sum() > ms);
    expect("imbalance");
    expect_exit(0, COMMAND(small.moec, "simulate", small.spec, "--layout", "dp=2,ep=2", "--cluster", "b300"));
    expect("on b300x2, dp=2,ep=2");
    expect_exit(0, COMMAND(small.moec, "simulate", small.spec, "--layout", "dp=2", "--cluster", "rtx4090", "--quick"));
    expect("on rtx4090x2, dp=2"); // a name with an x and digits behind it
    check_sum();
}

// How uneven loads are follows from the routing and the ranks of ep, however rows reach them.
static void loads(void **state) {
    (void)state;
    Small small = small_make();
    static char *const layouts[] = { "dp=2,ep=2", "dp=2,ep=2,transport=blocks", "dp=2,ep=2,row_align=4",
                                     "dp=2,ep=2,transport=blocks,node=2", "pp=2,dp=2,ep=2,transport=blocks" };
    double first = 0;
    for (int i = 0; i < COUNT_OF(layouts); i++) {
        expect_exit(0, COMMAND(small.moec, "simulate", small.spec, "--layout", layouts[i], "--microbatch", "64"));
        const char *at = strstr(command_output(), "\nload ");
        if (!at) fail_msg("%s: loads count as even in:\n%s", layouts[i], command_output());
        double load = strtod(at + 6, NULL);
        if (!i) first = load;
        if (!(load > 1 && load == first)) fail_msg("%s: load %g, by rows %g", layouts[i], load, first);
        expect("imbalance");
        check_sum();
    }
    expect_exit(0, COMMAND(small.moec, "simulate", small.spec, "--layout", layouts[1], "--routing", "uniform"));
    assert_null(strstr(command_output(), "imbalance"));
}

// With the times of a step that was run, kernels take what they took.
static void measured_steps(void **state) {
    (void)state;
    Small small = small_make();
    char *run = path_in(small.folder, "run"), *trace = path_in(small.folder, "run.json"),
         *both = path_in(small.folder, "both.json");
    expect_exit(0, small_train(&small, run, "4", (char *[]) { "--trace", trace, "--trace-steps", "2", NULL }));
    expect_exit(0, COMMAND(small.moec, "simulate", path_in(run, "plan.txt"), "--times", trace, "--trace", both));
    double ms = check_sum();
    const char *found = strstr(command_output(), "; ");
    int had, all;
    assert_int_equal(sscanf(found, "; %d of %d kernels", &had, &all), 2);
    assert_int_equal(had, all);
    const char *measured = strstr(command_output(), "\nmeasured  ");
    assert_non_null(measured);
    assert_true(ms <= strtod(measured + 11, NULL) * 1.001); // one rank: kernels, without what lies between
    expect("mean of 2 steps");
    json_t *events = load_events(both);
    assert_int_equal(count(events, "X", "step"), 3);
    json_decref(events);
    // Another layout of the same kernels.
    expect_exit(0, COMMAND(small.moec, "simulate", small.spec, "--layout", "dp=2", "--microbatch", "64", "--times",
                           trace));
    expect("on 1 rank");
}

// Without plans: nearly the same, and what no plan has yet.
static void quick(void **state) {
    (void)state;
    Small small = small_make();
    static char layout[] = "pp=2,dp=2,ep=2,microbatch=2";
    double ms[2];
    for (int i = 0; i < 2; i++) {
        expect_exit(0, COMMAND(small.moec, "simulate", small.spec, "--layout", layout, "--cluster", "h100x4",
                               "--precision", "bf16", "--routing", "uniform", i ? "--quick" : "--target",
                               i ? "--" : "cpu"));
        ms[i] = check_sum();
    }
    assert_true(ms[1] > 0.6 * ms[0] && ms[1] < 1.4 * ms[0]);
    expect("without plans");
    expect_exit(0, COMMAND(small.moec, "simulate", small.spec, "--precision", "mxfp8", "--quick", "--cluster", "b300"));
    expect("on b300x1, dp=1");
    expect("mxfp8 (costs are known, plans cannot yet)");
    expect_exit(2, COMMAND(small.moec, "simulate", small.spec, "--precision", "mxfp8"));
    expect_error("hint: --quick simulates what it would cost");
    expect_exit(2, COMMAND(small.moec, "simulate", small.spec, "--quick", "--load", "2"));
    expect_error("--quick has no instructions");
}

// What a search finds takes by --quick what the search has played; with the same pictures as of plans.
static void quick_pictures(void **state) {
    (void)state;
    Small small = small_make();
    char *best = path_in(small.folder, "best.lua"), *trace = path_in(small.folder, "q.json"),
         *svg = path_in(small.folder, "q.svg");
    expect_exit(0, COMMAND(small.moec, "search", small.spec, "--cluster", "cpux4", "--tokens", "2048", "--brief", "-o", best));
    double played;
    char unit[8], count_of[16];
    int dp, microbatch = 1;
    const char *table = strstr(command_output(), "formula ");
    assert_non_null(table);
    assert_int_equal(sscanf(table, "formula %7s", unit), 1);
    table = strchr(table, '\n');
    assert_int_equal(sscanf(table, " 1 %*f %lf %*f %*s %*f pp=%*d,dp=%d", &played, &dp) == 2 ||
                     sscanf(table, " 1 %*f %lf %*f %*s %*f dp=%d", &played, &dp) == 2, 1);
    assert_int_equal(sscanf(strstr(table, "microbatch="), "microbatch=%d", &microbatch), 1);
    snprintf(count_of, sizeof count_of, "%d", 2048 / 32 / dp / microbatch);
    expect_exit(0, COMMAND(small.moec, "simulate", small.spec, "--layout", best, "--cluster", "cpux4", "--quick",
                           "--microbatches", count_of));
    expect(", 2048 tokens,");
    double found = check_sum() / (!strcmp(unit, "s") ? 1e3 : !strcmp(unit, "us") ? 1e-3 : 1);
    if (fabs(found - played) > 2e-3 * played) fail_msg("played %g %s, --quick %g", played, unit, found);

    static char layout[] = "pp=2,dp=2,ep=2,schedule=zb,microbatch=2";
    expect_exit(0, COMMAND(small.moec, "simulate", small.spec, "--layout", layout, "--microbatches", "4", "--cluster", "cpux4",
                           "--quick", "--trace", trace, "--svg", svg));
    expect("\n  stage 1   |");
    check_sum();
    json_t *events = load_events(trace);
    assert_int_equal(count(events, "X", "step"), 2);
    assert_int_equal(count(events, "X", "row"), 2 * (3 * 4 + 1));
    assert_int_equal(count(events, "s", "message"), 2 * 4);
    assert_int_equal(count(events, "f", "message"), 2 * 4);
    assert_true(count(events, "X", "compute") >= 2 * 3 * 4 * 3);
    json_decref(events);
    size_t n;
    char *picture = read_whole(svg, &n);
    assert_int_equal(strncmp(picture, "<svg ", 5), 0);
}

// Every stack of the table has an account, with plans and without.
static void other_stacks(void **state) {
    (void)state;
    Small small = small_make();
    char *const stacks[] = { "olmo-core", "megatron", "torchtitan" };
    int n = 1;
    for (const char *at = option_info[OPT_memory_of].unit; (at = strchr(at, '|')); at++) n++;
    assert_int_equal(n, 1 + COUNT_OF(stacks));
    for (int i = 0; i < COUNT_OF(stacks); i++) {
        char want[64];
        snprintf(want, sizeof want, "\n%-9s ", stacks[i]);
        expect_exit(0, COMMAND(small.moec, "simulate", small.spec, "--layout", "dp=2", "--memory-of", stacks[i]));
        if (!strstr(command_output(), want)) fail_msg("%s: %s", stacks[i], command_output());
        expect_exit(0, COMMAND(small.moec, "simulate", small.spec, "--quick", "--memory-of", stacks[i]));
        if (!strstr(command_output(), want)) fail_msg("%s: %s", stacks[i], command_output());
    }
    expect_exit(0, COMMAND(small.moec, "simulate", small.spec, "--quick"));
    assert_null(strstr(command_output(), " gathered, "));
}

static void refused(void **state) {
    (void)state;
    Small small = small_make();
    char *plan = path_in(small.folder, "b.plan");
    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "-o", plan));
    expect_exit(2, COMMAND(small.moec, "simulate"));
    expect_error("hint: moec simulate models/tiny.lua");
    // A core is no stand-in for the GPU that a plan is for.
    expect_exit(2, COMMAND(small.moec, "simulate", small.spec, "--target", "cuda:sm_90a"));
    expect_error("no --cluster given, and the plan is for cuda:sm_90a");
    // Nothing that is read is written over; traces of the simulator are no measurements.
    char *trace = path_in(small.folder, "c.json"), *other = path_in(small.folder, "./c.json");
    expect_exit(2, COMMAND(small.moec, "simulate", plan, "--svg", plan));
    expect_error("would overwrite");
    expect_exit(2, COMMAND(small.moec, "simulate", small.spec, "--trace", small.spec));
    expect_error("would overwrite");
    char *link = path_in(small.folder, "link.json");
    assert_int_equal(symlink("c.json", link), 0); // to what is not there yet
    for (int there = 0; there < 2; there++) {
        expect_exit(2, COMMAND(small.moec, "simulate", plan, "--trace", trace, "--svg", other));
        expect_error("would overwrite");
        expect_exit(2, COMMAND(small.moec, "simulate", plan, "--trace", link, "--svg", trace));
        expect_error("would overwrite");
        assert_int_equal(file_exists(trace), there);
        if (!there) expect_exit(0, COMMAND(small.moec, "simulate", plan, "--trace", trace));
    }
    expect_exit(2, COMMAND(small.moec, "simulate", plan, "--times", trace));
    expect_error("hint: give the trace that 'moec train ... --trace FILE' has written");
    expect_exit(2, COMMAND(small.moec, "simulate", plan, "--quick"));
    expect_error("a saved plan is simulated without --quick");
    expect_exit(2, COMMAND(small.moec, "simulate", small.spec, "--quick", "--precision", "mxfp8"));
    expect_error("has no products in it");
    expect_exit(2, COMMAND(small.moec, "simulate", small.spec, "--layout", "pp=9"));
    expect_error("the nearest that works");
    expect_exit(2, COMMAND(small.moec, "simulate", plan, "--layout", "dp=2"));
    expect_error("is a plan, which has decided how it runs");
    expect_exit(2, COMMAND(small.moec, "simulate", plan, "--memory-of", "megatron"));
    expect_error("is a plan, which has decided how it runs");
    expect_exit(2, COMMAND(small.moec, "simulate", small.spec, "--memory-of", "megatorn"));
    expect_error("hint: did you mean 'megatron'?");
    expect_exit(2, COMMAND(small.moec, "simulate", small.spec, "--layout", "dp=4", "--cluster", "cpux2"));
    expect_error("--cluster cpux2 has 2 devices, the layout 4 ranks\n  hint: ");
    expect_exit(2, COMMAND(small.moec, "simulate", small.spec, "--cluster", "b3000"));
    expect_error("no machine 'b3000");
    expect_exit(2, COMMAND(small.moec, "simulate", small.spec, "--load", "0.5"));
    expect_error("--load is 0.5, expected at least 1");
    expect_exit(2, COMMAND(small.moec, "simulate", small.spec, "--times", small.spec));
    expect_error("expected a trace in JSON");
    char *empty = path_in(small.folder, "empty.json");
    write_file(empty, "{\"traceEvents\":[]}", 18);
    expect_exit(2, COMMAND(small.moec, "simulate", small.spec, "--times", empty));
    expect_error("has no step of a run\n  hint: 'moec train");
    expect_exit(2, COMMAND(small.moec, "simulate", small.spec, "-o", "x"));
    expect_error("unknown option '-o' of 'simulate'\n  hint: it is one of plan, ");
    // What is read is not written over, and what cannot be written is refused before anything takes time.
    char *fields = path_in(small.folder, "fields.lua");
    write_file(fields, "return 1\n", 9);
    expect_exit(2, COMMAND(small.moec, "simulate", small.spec, "--layout", fields, "--svg", fields));
    expect_error("would overwrite");
    expect_exit(1, COMMAND(small.moec, "simulate", small.spec, "--svg", "/nowhere/a.svg"));
    expect_error("/nowhere");
    assert_string_equal(command_output(), "");
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(specs_and_plans), cmocka_unit_test(loads),
                                        cmocka_unit_test(measured_steps), cmocka_unit_test(quick), cmocka_unit_test(quick_pictures), cmocka_unit_test(other_stacks),
                                        cmocka_unit_test(refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
