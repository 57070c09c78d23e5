// SPDX-License-Identifier: Apache-2.0
// `moec-run`: trains, resumes, evaluates and samples a saved plan; exit statuses and messages.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/train/command.h"
#include "tests/train/helpers.h"

static char program[] = MOEC_BINARY_DIR "/moec-run";
static char *folder, *plan_path, *data;

static int make(void **state) {
    (void)state;
    folder = path_in(scratch_folder(), "");
    setenv("MOEC_CACHE_DIR", path_in(folder, "cache"), 1);
    plan_path = path_in(folder, "bigram.plan");
    data = path_in(folder, "data");
    Plan *plan = bigram_plan(16, 2, 2);
    Text text = { 0 };
    plan_print(plan, &text);
    write_file(plan_path, text.at, text.bytes);
    text_finish(&text);
    plan_destroy(plan);
    static char bytes[4000];
    for (int i = 0; i < 4000; i++) bytes[i] = "to be or not to be, "[i % 20];
    write_file(data, bytes, sizeof bytes);
    return 0;
}

static void same_weights(const char *a, const char *b, const char *step) {
    char name[96];
    snprintf(name, sizeof name, "checkpoints/%s/weights.safetensors", step);
    size_t n, m;
    char *x = read_whole(path_in(a, name), &n), *y = read_whole(path_in(b, name), &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
}

static void expect_run(int expected, int found) {
    if (expected != found)
        print_error("exit status %d\n%s\n%s\n", found, command_output(), command_errors());
    assert_int_equal(found, expected);
}

static void expect_error(const char *part) {
    if (!strstr(command_errors(), part))
        print_error("'%s' is not in: %s\n", part, command_errors());
    assert_non_null(strstr(command_errors(), part));
}

static void a_run_from_end_to_end(void **state) {
    (void)state;
    char *run = path_in(folder, "run"), *other = path_in(folder, "other");
    expect_run(0, COMMAND(program, plan_path, "--data", data, "--held-out", "500", "--out", run,
                          "--steps", "40", "--lr", "0.1", "--warmup", "0", "--threads", "2"));
    assert_non_null(strstr(command_output(), "bits per byte over 500 bytes"));
    expect_error("step 40/40  loss ");
    char *result = strdup(command_output());
    expect_run(
        0, COMMAND(program, "eval", run, "--threads", "1")); // the same number, from the checkpoint
    assert_string_equal(result, command_output());
    free(result);
    char *end;
    expect_run(0, COMMAND(program, "eval", run, "--quiet", "--data", data, "--held-out", "500"));
    assert_true(strtod(command_output(), &end) > 0);
    assert_string_equal(end, "\n");
    assert_string_equal(command_errors(), "");
    expect_run(0, COMMAND(program, "eval", run, "--eval-data", data));
    assert_non_null(strstr(command_output(), "over 3999 bytes"));
    expect_run(0, COMMAND(program, "sample", run, "--prompt", "to ", "--bytes", "30",
                          "--temperature", "0"));
    assert_int_equal(strlen(command_output()), 3 + 30 + 1);
    assert_int_equal(strncmp(command_output(), "to ", 3), 0);
    // Interrupted by --steps and resumed with more, where the schedule does not depend on the end.
    char *words[] = { program, plan_path, "--data",     data,       "--held-out",
                      "500",   "--out",   other,        "--steps",  "15",
                      "--lr",  "0.1",     "--schedule", "constant", NULL };
    expect_run(0, command_run(words));
    expect_run(0, COMMAND(program, "resume", other, "--steps", "25"));
    expect_error("resuming");
    char *whole = path_in(folder, "whole");
    words[7] = whole;
    words[9] = "25";
    expect_run(0, command_run(words));
    same_weights(other, whole, "step-25");
    expect_run(0, COMMAND(program, "resume", other)); // its steps are done: evaluates again
}

static void killed_by_a_signal(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        char *run = path_in(folder, i ? "term" : "int"), *metrics = path_in(run, "metrics.jsonl");
        char *words[] = { program, plan_path, "--data",  data, "--out",
                          run,     "--steps", "1000000", NULL };
        char *said = path_in(folder, "said");
        int out = open(said, O_RDWR | O_CREAT | O_TRUNC, 0644);
        pid_t child = command_start(words, out, out);
        struct stat info;
        for (int k = 0; k < 120000 && (stat(metrics, &info) < 0 || !info.st_size); k++)
            usleep(1000);
        assert_int_equal(kill(child, i ? SIGTERM : SIGINT), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        close(out);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 1);               // not everything asked for was done
        size_t n;
        assert_non_null(strstr(read_whole(said, &n), "which is saved\n  hint: "));
        assert_true(file_exists(path_in(run, "checkpoints/latest")));
        expect_run(0, COMMAND(program, "sample", run, "--bytes", "1"));
    }
}

static void wrong_commands(void **state) {
    (void)state;
    char *run = path_in(folder, "wrong"), *missing = path_in(folder, "missing"),
         *bad = path_in(folder, "bad.plan");
    expect_run(2, COMMAND(program));
    expect_run(0, COMMAND(program, "--help"));
    assert_non_null(strstr(command_output(), "--weight-decay"));
    expect_run(0, COMMAND(program, "sample", "--help"));
    assert_non_null(strstr(command_output(), "--top-p"));
    assert_null(strstr(command_output(), "--weight-decay"));
    expect_run(0, COMMAND(program, "--version"));
    assert_string_equal(command_output(), "moec-run " MOEC_VERSION "\n");
    expect_run(2, COMMAND(program, missing, "--data", data, "--out", run, "--steps", "1"));
    expect_error("missing: No such file");
    write_file(bad, "plan 1\nmodel\n", 13);
    expect_run(2, COMMAND(program, bad, "--data", data, "--out", run, "--steps", "1"));
    expect_error("bad.plan: ");
    expect_run(2, COMMAND(program, plan_path, "--data", data, "--steps", "1"));
    expect_error("no place for the run\n  hint: --out FOLDER");
    expect_run(2, COMMAND(program, plan_path, "--data", data, "--out", run));
    expect_error("no end to the run");
    expect_run(2, COMMAND(program, plan_path, "--data", missing, "--out", run, "--steps", "1"));
    expect_error("cannot open the data file");
    expect_run(2, COMMAND(program, plan_path, "--batch", "9", "--data", data, "--out", run,
                          "--steps", "1"));
    expect_error("are decided by the plan");
    expect_run(2, COMMAND(program, plan_path, "--data", data, "--out", run, "--stepps", "1"));
    expect_error("did you mean --steps?");
    assert_false(file_exists(run)); // none of these left anything behind
    expect_run(2, COMMAND(program, "resume", folder));
    expect_error("is not the folder of a run");
    expect_run(2, COMMAND(program, "eval"));
    expect_error("no RUN given");
    expect_run(2, COMMAND(program, "sample", "a", "b"));
    expect_error("one RUN expected");
    expect_run(
        1, COMMAND(program, plan_path, "--data", data, "--out", "/proc/no/run", "--steps", "1"));
    expect_error("cannot make the folder");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_from_end_to_end),
        cmocka_unit_test(killed_by_a_signal),
        cmocka_unit_test(wrong_commands),
    };
    return cmocka_run_group_tests_name("run", tests, make, NULL);
}
