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
    expect_error("nothing to train: the run has 25 steps, --steps is 25");
    // Lost output is a failure.
    expect_run(1, COMMAND("/bin/sh", "-c", "\"$0\" eval \"$1\" >/dev/full", program, run));
    expect_error("moec-run: error: the standard output cannot be written: No space left");
    // Without its checkpoint or program nothing is compiled first.
    expect_run(0, COMMAND("/bin/rm", "-r", path_in(other, "checkpoints")));
    expect_run(2, COMMAND(program, "eval", other));
    expect_error("holds no checkpoint\n  hint: 'moec resume ");
    assert_null(strstr(command_errors(), "compiling"));
}

static json_t *load_trace(const char *path) {
    json_error_t error;
    json_t *trace = json_load_file(path, 0, &error);
    if (!trace) fail_msg("%s:%d: %s", path, error.line, error.text);
    return trace;
}

// --trace: the steps that were asked for, in JSON, every span of a thread beside or within the others.
static void a_trace(void **state) {
    (void)state;
    char *run = path_in(folder, "traced"), *file = path_in(folder, "trace.json");
    expect_run(0, COMMAND(program, plan_path, "--data", data, "--out", run, "--steps", "5", "--trace", file,
                          "--trace-steps", "2"));
    expect_error("traced in ");
    // A trace replaces traces; what else is there stays.
    expect_run(2, COMMAND(program, plan_path, "--data", data, "--out", path_in(folder, "untraced"), "--steps", "5",
                          "--trace", data));
    expect_error("is there and is no trace that moec wrote");
    json_t *trace = load_trace(file), *events = json_object_get(trace, "traceEvents"), *event;
    size_t i, n;
    int steps = 0, launches = 0;
    double end = 0;
    json_array_foreach(events, i, event) {
        const char *category = json_string_value(json_object_get(event, "cat"));
        double at = json_number_value(json_object_get(event, "ts"));
        if (!category || strcmp(json_string_value(json_object_get(event, "ph")), "X")) continue;
        if (!strcmp(category, "step")) {
            int64_t step = json_integer_value(json_object_get(json_object_get(event, "args"), "step"));
            assert_int_equal(step, 3 + steps++);
        } else if (strcmp(category, "row")) {
            assert_true(at >= end - 1e-6);
            end = at + json_number_value(json_object_get(event, "dur"));
            launches += json_object_get(json_object_get(event, "args"), "kernel") != NULL;
        }
    }
    json_decref(trace);
    assert_int_equal(steps, 2);
    assert_true(launches >= 8);
    // Fewer steps than usual: the last. Others: those that are asked for, of a run that goes on too.
    expect_run(0, COMMAND(program, plan_path, "--data", data, "--out", path_in(folder, "short"), "--steps", "1",
                          "--trace", file));
    assert_non_null(strstr(read_whole(file, &n), "\"name\":\"step 1\""));
    expect_run(0, COMMAND(program, "resume", run, "--steps", "9", "--trace", file, "--trace-step", "9"));
    assert_non_null(strstr(read_whole(file, &n), "\"name\":\"step 9\""));
    expect_run(2, COMMAND(program, "resume", run, "--steps", "12", "--trace", file, "--trace-step", "12",
                          "--trace-steps", "2"));
    expect_error("expected steps 12 to 13 among those of this run, which are 10 to 12");
    expect_run(1, COMMAND(program, "resume", run, "--steps", "12", "--trace", "/nowhere/trace.json"));
    expect_error("/nowhere");
}

// Starts a long run and waits for its first step.
static pid_t start_long(char *run, int out, int err) {
    char *words[] = { program, plan_path, "--data",  data, "--out",
                      run,     "--steps", "1000000", NULL };
    char *metrics = path_in(run, "metrics.jsonl");
    pid_t child = command_start(words, out, err);
    struct stat info;
    for (int k = 0; k < 120000 && (stat(metrics, &info) < 0 || !info.st_size); k++) usleep(1000);
    return child;
}

// Sends the signal; the run ends with 1, as not everything asked for was done, having said `part`.
static void end_long(pid_t child, int number, int out, const char *part) {
    assert_int_equal(kill(child, number), 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    char said[8192] = "";
    assert_true(pread(out, said, sizeof said - 1, 0) > 0);
    close(out);
    if (!strstr(said, part)) print_error("'%s' is not in: %s\n", part, said);
    assert_non_null(strstr(said, part));
}

static int said(void) {
    return open(path_in(folder, "said"), O_RDWR | O_CREAT | O_TRUNC, 0644);
}

static void killed_by_a_signal(void **state) {
    (void)state;
    static const struct { int number; const char *name; } signals[] = {
        { SIGINT, "int" }, { SIGTERM, "term" }, { SIGHUP, "hup" } };
    for (int i = 0; i < COUNT_OF(signals); i++) {
        char *run = path_in(folder, signals[i].name);
        int out = said();
        end_long(start_long(run, out, out), signals[i].number, out,
                 "which is saved\n  hint: ");
        assert_true(file_exists(path_in(run, "checkpoints/latest")));
        expect_run(0, COMMAND(program, "sample", run, "--bytes", "1"));
    }
}

// Under nohup a hang-up ends nothing; nor does a reader of stderr that has gone.
static void signals_that_end_nothing(void **state) {
    (void)state;
    int out = said(), ends[2];
    signal(SIGHUP, SIG_IGN);
    pid_t child = start_long(path_in(folder, "nohup"), out, out);
    signal(SIGHUP, SIG_DFL);
    assert_int_equal(kill(child, SIGHUP), 0);
    usleep(50000);
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
    end_long(child, SIGTERM, out, "which is saved");
    char *run = path_in(folder, "unread");
    char *words[] = { program,   plan_path, "--data",         data, "--out", run,
                      "--steps", "3",       "--log-interval", "0",  NULL };
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    out = said();
    child = command_start(words, out, ends[1]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    close(out);
    close(ends[1]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(file_exists(path_in(run, "checkpoints/step-3")));
}

static void folder_moved_while_training(void **state) {
    (void)state;
    char *run = path_in(folder, "here"), *moved = path_in(folder, "there");
    int out = said();
    pid_t child = start_long(run, out, out);
    assert_int_equal(rename(run, moved), 0);
    end_long(child, SIGTERM, out, "here is no longer the folder of this run: it was moved or del");
    assert_false(file_exists(run));
    assert_true(file_exists(path_in(moved, "run.json")));
}

// The signal of a terminal reaches the compiler too.
static void interrupted_while_compiling(void **state) {
    (void)state;
    static const char script[] = "#!/bin/sh\nkill -INT $PPID\nexit 1\n";
    char *compiler = path_in(folder, "compiler"), *run = path_in(folder, "early");
    write_file(compiler, script, sizeof script - 1);
    assert_int_equal(chmod(compiler, 0755), 0);
    const char *command = "MOEC_CACHE_DIR=\"$5\" MOEC_CC=\"$4\" \"$0\" \"$1\" --data \"$2\" "
                          "--out \"$3\" --steps 2";
    expect_run(1, COMMAND("/bin/sh", "-c", (char *)(uintptr_t)command, program, plan_path, data,
                          run, compiler, path_in(folder, "empty-cache")));
    expect_error("interrupted while the kernels were compiled, before a step was done\n  hint: "
                 "'moec resume ");
    expect_run(0, COMMAND(program, "resume", run));
    assert_true(file_exists(path_in(run, "checkpoints/step-2")));
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
    assert_null(strstr(command_output(), "moec plan SPEC"));
    write_file(bad, "local m = 1\n", 12); // a spec, say
    expect_run(2, COMMAND(program, bad, "--data", data, "--out", run, "--steps", "1"));
    expect_error("expected \"plan \", found \"local\"\n  hint: 'moec plan SPEC -o FILE' writes a plan");
    expect_run(2, COMMAND(program, plan_path, "--data", data, "--steps", "1"));
    expect_error("no place for the run\n  hint: --out FOLDER");
    expect_run(2, COMMAND(program, plan_path, "--data", data, "--out", run));
    expect_error("no end to the run");
    expect_run(2, COMMAND(program, plan_path, "--data", missing, "--out", run, "--steps", "1"));
    expect_error("cannot open the data file");
    expect_run(2, COMMAND(program, plan_path, "--batch", "9", "--data", data, "--out", run,
                          "--steps", "1"));
    expect_error("is decided by the plan");
    expect_run(2, COMMAND(program, plan_path, "--data", data, "--out", run, "--stepps", "1"));
    expect_error("did you mean --steps?");
    assert_false(file_exists(run)); // none of these left anything behind
    expect_run(2, COMMAND(program, plan_path, "--data", data, "--out", bad, "--steps", "1"));
    expect_error("bad.plan is a file, expected a folder\n  hint: give another --out");
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
        cmocka_unit_test(a_run_from_end_to_end), cmocka_unit_test(a_trace),
        cmocka_unit_test(killed_by_a_signal),
        cmocka_unit_test(signals_that_end_nothing),
        cmocka_unit_test(folder_moved_while_training),
        cmocka_unit_test(interrupted_while_compiling),
        cmocka_unit_test(wrong_commands),
    };
    return cmocka_run_group_tests_name("run", tests, make, NULL);
}
