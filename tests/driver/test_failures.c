// SPDX-License-Identifier: Apache-2.0
// A full disk, a folder that may not be written, too little memory: a clear error, nothing lost, and
// the same bits once there is what was missing. A limit on file sizes stands for a full disk; where
// the test may mount, a small file system is one. A limit on the address space stands for memory.
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/driver/small.h"

static Small small;
static char *reference;

static int make(void **state) {
    (void)state;
    small = small_make();
    reference = path_in(small.folder, "reference");
    expect_exit(0, small_train(&small, reference, "6", NULL));
    return 0;
}

// Runs shell commands in a name space of mounts of its own: $D, a folder with a file system of
// `size` on it, $M, moec, and $TRAIN, its command line up to the run.
static int with_mount(const char *size, const char *commands) {
    static const char usual[] = "--held-out 700 --steps 6 --batch 256 --microbatch 128 "
                                "--save-interval 3 --warmup 2 --out";
    char *folder = path_in(small.folder, "mounted"), *path = path_in(small.folder, "commands");
    mkdir(folder, 0755);
    Text text = { 0 };
    text_printf(&text, "D=%s M=%s\nTRAIN=\"$M train %s --data %s %s\"\n", folder, small.moec,
                small.spec, small.data, usual);
    text_printf(&text, "mount -t tmpfs -o size=%s none $D || exit 99\n%s", size, commands);
    write_file(path, text.at, text.bytes);
    text_finish(&text);
    return COMMAND("/usr/bin/unshare", "-m", "/bin/sh", path);
}

static bool may_mount(void) {
    return geteuid() == 0 && with_mount("1m", "exit 0") == 0;
}

static void no_space_for_a_checkpoint(void **state) {
    (void)state;
#ifdef MOEC_SANITIZE
    skip(); // kernels compiled with a sanitizer are larger than the limit
#endif
    char *run = path_in(small.folder, "limited");
    expect_exit(0, small_train(&small, run, "3", NULL));
    size_t n, m;
    char *before = read_whole(path_in(run, "checkpoints/step-3/weights.safetensors"), &n);
    assert_true(n > 140000); // the limit lies between kernels, metrics and this
    expect_exit(1, COMMAND("/usr/bin/prlimit", "--fsize=140000", small.moec, "resume", run,
                           "--steps", "6"));
    expect_error("/weights.safetensors: File too large\n  hint: free some space; the last complete "
                 "checkpoint is untouched");
    char *after = read_whole(path_in(run, "checkpoints/step-3/weights.safetensors"), &m);
    assert_int_equal(n, m);
    assert_memory_equal(before, after, n);
    assert_false(file_exists(path_in(run, "checkpoints/tmp-step-6")));
    expect_exit(0, COMMAND(small.moec, "resume", run, "--steps", "6"));
    // Its schedule was that of three steps until then, so it is no twin of the reference.
    json_t *last = NULL;
    char *line = read_whole(path_in(run, "metrics.jsonl"), &n);
    for (int step = 1; step <= 6; step++, line = strchr(line, '\n') + 1) {
        json_decref(last);
        last = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(last, "step")), step);
    }
    json_decref(last);
    assert_string_equal(line, "");
}

// A file that may not grow is an error of its write, in every command.
static void no_space_for_a_plan(void **state) {
    (void)state;
    char *plan = path_in(small.folder, "small.plan");
    expect_exit(1, COMMAND("/usr/bin/prlimit", "--fsize=1000", small.moec, "plan", small.spec, "-o",
                           plan));
    expect_error("small.plan: File too large");
    assert_false(file_exists(plan));
}

// The folder is full during the plan, the first lines, the first checkpoint, the second one.
static void full_file_system(void **state) {
    (void)state;
    if (!may_mount()) skip();
    static const struct { const char *size, *part; } cases[] = {
        { "64k", "/run/plan.txt: No space left on device" },
        { "400k", "No space left on device" },
        { "600k", "No space left on device\n  hint: free some space" },
        { "1100k", "No space left on device\n  hint: free some space" },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        char *copy = path_in(small.folder, "copied-0"), commands[1024];
        copy[strlen(copy) - 1] += (char)i;
        snprintf(commands, sizeof commands,
                 "$TRAIN $D/run; [ $? = 1 ] || exit 98\n"
                 "mount -o remount,size=64m $D\n"
                 "if [ -e $D/run/run.json ]; then $M resume $D/run 2>$D/said; else\n"
                 "    $TRAIN $D/run 2>$D/said; fi || { cat $D/said; exit 97; }\n"
                 "cp -r $D/run %s\n",
                 copy);
        expect_exit(0, with_mount(cases[i].size, commands));
        expect_error(cases[i].part);
        same_state(reference, copy, 6);
        same_history(reference, copy);
    }
}

// A run is evaluated and sampled where it may not be written; it does not go on there, nor does
// another begin.
static void folder_may_not_be_written(void **state) {
    (void)state;
    if (geteuid() != 0) { // root writes whatever the permissions
        char *folder = path_in(small.folder, "closed");
        assert_int_equal(mkdir(folder, 0555), 0);
        expect_exit(1, small_train(&small, path_in(folder, "run"), "1", NULL));
        expect_error("/closed/run: Permission denied");
        return;
    }
    if (!may_mount()) skip();
    char commands[1024];
    snprintf(commands, sizeof commands,
             "cp -r %s $D/run && mount -o remount,ro $D || exit 98\n"
             "$M eval $D/run --quiet || exit 97\n"
             "$M sample $D/run --bytes 4 >/dev/null || exit 96\n"
             "$M resume $D/run --steps 9; [ $? = 1 ] || exit 95\n"
             "$TRAIN $D/new; [ $? = 1 ] || exit 94\n",
             reference);
    expect_exit(0, with_mount("64m", commands));
    expect_error("moec: error: cannot open ");
    expect_error("/run/lock: Read-only file system");
    expect_error("moec: error: cannot make the folder ");
    expect_error("/new: Read-only file system");
    assert_true(strtod(command_output(), NULL) > 1); // bits per byte
}

// Damage of the newest checkpoint, seen from the command line: said, and gone around.
static void damaged_checkpoint(void **state) {
    (void)state;
    char *run = path_in(small.folder, "damaged");
    expect_exit(0, small_train(&small, run, "6", NULL));
    char *path = path_in(run, "checkpoints/step-6/moment2.safetensors");
    size_t n;
    char *bytes = read_whole(path, &n);
    bytes[n / 2] ^= 1;
    write_file(path, bytes, n);
    expect_exit(0, COMMAND(small.moec, "resume", run));
    expect_error("checkpoint passed over: ");
    expect_error("moment2.safetensors does not match the hash in its manifest: it is damaged");
    expect_error("resuming ");
    same_state(reference, run, 6);
    same_history(reference, run);
    for (int step = 3; step <= 6; step += 3) { // both
        char name[64];
        snprintf(name, sizeof name, "checkpoints/step-%d/manifest.json", step);
        write_file(path_in(run, name), "{}", 2);
    }
    expect_exit(2, COMMAND(small.moec, "resume", run));
    expect_error("the manifest does not match its own hash");
}

// From a limit under which nothing runs to one under which all does. The space that a sanitizer
// reserves fits under none.
static void too_little_memory(void **state) {
    (void)state;
#ifdef MOEC_SANITIZE
    skip();
#endif
    char *run = path_in(small.folder, "starved"), limit[32];
    int refused = 0, done = 0;
    for (int mebibytes = 8; mebibytes <= 32; mebibytes++) {
        COMMAND("/bin/rm", "-rf", run);
        COMMAND("/bin/cp", "-r", reference, run);
        COMMAND("/bin/rm", "-r", path_in(run, "checkpoints/step-6"));
        snprintf(limit, sizeof limit, "--as=%d", mebibytes << 20);
        int status = COMMAND("/usr/bin/prlimit", limit, small.moec, "resume", run);
        if (strstr(command_errors(), "error while loading shared libraries")) continue;
        if (status) {
            expect_exit(1, status);
            expect_error("moec: error: ");
            assert_true(file_exists(path_in(run, "checkpoints/step-3/manifest.json")));
            expect_exit(0, COMMAND(small.moec, "resume", run));
            refused++;
        } else {
            done++;
        }
        same_state(reference, run, 6);
        same_history(reference, run);
    }
    assert_true(refused > 0 && done > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_space_for_a_checkpoint),
        cmocka_unit_test(no_space_for_a_plan),
        cmocka_unit_test(full_file_system),
        cmocka_unit_test(folder_may_not_be_written),
        cmocka_unit_test(damaged_checkpoint),
        cmocka_unit_test(too_little_memory),
    };
    return cmocka_run_group_tests_name("failures", tests, make, NULL);
}
