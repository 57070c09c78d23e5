// SPDX-License-Identifier: Apache-2.0
// SIGKILL at random moments of training and of checkpointing, in both precisions. After each: every
// checkpoint that bears its name is whole, and `moec resume` goes on. In the end nothing is lost:
// state, metrics and evaluations are those of a run that nobody interrupted, bit for bit.
//
// The moments are of three kinds: so long after the start (compiling, loading, cutting files), so
// long after a step (training), and so long after a checkpoint's temporary folder appears (saving).
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver/small.h"

enum { KILLS = 50, STEPS = 160, SEED = 20 };
static Small small;
static char *reference;
static uint64_t draws;
static int while_saving, whole_seen, made; // kills with a temporary folder left; checkpoints verified

static int64_t draw(int64_t below) {
    return (int64_t)(hash_mix(SEED, 1, draws++) % (uint64_t)below);
}

static char steps_text[16], threads_text[2], precision_text[8];
static char *const more[] = { "--save-interval", "2",         "--eval-interval", "5",
                              "--eval-limit",    "100",       "--keep",          "3",
                              "--keep-every",    "50",        "--threads",       threads_text,
                              "--schedule",      "wsd",       "--precision",     precision_text,
                              NULL };

static int make(void **state) {
    (void)state;
    small = small_make();
    snprintf(steps_text, sizeof steps_text, "%d", STEPS);
    return 0;
}

/* One session ---------------------------------------------------------------------------------- */

// The run's first session, or the next one.
static pid_t start(char *run) {
    char *argv[48] = { small.moec, "train", small.spec, "--data", small.data, "--out", run };
    static char *const usual[] = { "--steps", steps_text, "--held-out", "700", "--batch", "256",
                                   "--microbatch", "128", "--warmup", "2" };
    int argc = 7;
    snprintf(threads_text, sizeof threads_text, "%d", 1 + (int)draw(2));
    if (file_exists(path_in(run, "run.json"))) {
        argv[1] = "resume", argv[2] = run, argv[3] = "--threads", argv[4] = threads_text;
        argv[5] = argv[6] = NULL;
    } else {
        for (int i = 0; i < COUNT_OF(usual); i++) argv[argc++] = usual[i];
        for (int i = 0; more[i]; i++) argv[argc++] = more[i];
    }
    int log = open(path_in(small.folder, "log"), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    pid_t child = command_start(argv, log, log);
    close(log);
    return child;
}

static bool temporary(const char *name) {
    return !strncmp(name, "tmp-", 4) || !strncmp(name, "old-", 4);
}

// Whether a checkpoint is being written or removed, or was when its writer died.
static bool has_temporary(const char *run) {
    DIR *folder = opendir(path_in(run, "checkpoints"));
    bool found = false;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        found |= temporary(entry->d_name);
    if (folder) closedir(folder);
    return found;
}

static off_t size_of(const char *path) {
    struct stat info;
    return stat(path, &info) ? 0 : info.st_size;
}

// Waits for the moment; false: the session has ended by itself.
static bool wait_for_moment(char *run, pid_t child, int kind, int *status) {
    const char *metrics = path_in(run, "metrics.jsonl");
    off_t before = size_of(metrics), more_bytes = 400 * (1 + draw(6));
    bool was = has_temporary(run); // left by the last one; it goes with the next save
    for (int i = 0; kind > 0 && i < 600000; i++) {
        if (waitpid(child, status, WNOHANG) == child) return false;
        if (kind == 1 && size_of(metrics) > before + more_bytes) break;
        bool now = kind == 2 && has_temporary(run);
        if (now && !was) break;
        was = was && now;
        usleep(100);
    }
    static const int64_t longest[] = { 400000, 8000, 4000 }; // microseconds
    usleep((useconds_t)draw(longest[kind]));
    return waitpid(child, status, WNOHANG) != child;
}

/* What must hold after a kill ------------------------------------------------------------------ */

static void checkpoints_are_whole(const char *run) {
    DIR *folder = opendir(path_in(run, "checkpoints"));
    if (!folder) return;
    Plan *plan;
    EXPECT_OK(run_read_plan(run, NULL, &plan));
    size_t bytes = (size_t)plan->region_bytes[REGION_weights];
    TrainMemory memory = { calloc(1, bytes), calloc(1, bytes), calloc(1, bytes) };
    Arena *arena = arena_create();
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strncmp(entry->d_name, "step-", 5)) continue;
        char *path = arena_printf(arena, "%s/checkpoints/%s", run, entry->d_name);
        CheckpointInfo info;
        EXPECT_OK(checkpoint_read(path, arena, plan, &memory, &info));
        json_decref(info.manifest);
        whole_seen++;
    }
    closedir(folder);
    arena_destroy(arena);
    free(memory.weights), free(memory.moment1), free(memory.moment2);
    plan_destroy(plan);
}

static void complete_and_compare(char *run) {
    int status;
    pid_t child = start(run);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    same_state(reference, run, STEPS);
    same_state(reference, run, 50);
    same_history(reference, run);
    assert_false(has_temporary(run));
    size_t n;
    const char *svg = read_whole(path_in(run, "loss.svg"), &n);
    assert_string_equal(svg + n - 7, "</svg>\n");
}

static void kill_at_random_moments(const char *precision) {
    int kills[3] = { 0 }, runs = 0, unhurt = 0;
    strcpy(precision_text, precision);
    strcpy(threads_text, "1");
    while_saving = whole_seen = 0;
    reference = path_in(small.folder, precision);
    expect_exit(0, small_train(&small, reference, steps_text, more));
    while (kills[0] + kills[1] + kills[2] < KILLS) {
        char *run = path_in(small.folder, "killed-00");
        snprintf(run + strlen(run) - 2, 3, "%02d", made++);
        assert_true(++runs < 10);
        bool ended = false;
        while (!ended && kills[0] + kills[1] + kills[2] < KILLS) {
            pid_t child = start(run);
            // Starting ends in few places; most moments are of steps and of saves.
            static const int kinds[] = { 1, 2, 2, 1, 0, 2, 1, 2 };
            int kind = kinds[draw(8)], status;
            ended = !wait_for_moment(run, child, kind, &status);
            if (ended) {
                if (!WIFEXITED(status) || WEXITSTATUS(status)) {
                    size_t n;
                    print_error("%s\n", read_whole(path_in(small.folder, "log"), &n));
                }
                assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
                unhurt++;
                continue;
            }
            kill(child, SIGKILL);
            assert_int_equal(waitpid(child, &status, 0), child);
            kills[kind]++;
            while_saving += has_temporary(run);
            checkpoints_are_whole(run);
        }
        complete_and_compare(run);
    }
    print_message("killed %d times while starting, %d after a step, %d in a save; %d with a "
                  "checkpoint under way; %d runs, %d sessions ended by themselves; %d checkpoints "
                  "read\n",
                  kills[0], kills[1], kills[2], while_saving, runs, unhurt, whole_seen);
    assert_true(kills[0] && kills[1] && kills[2]);
    assert_true(while_saving >= 5); // the moments are where they should be
}

static void killed_at_random_moments(void **state) {
    (void)state;
    kill_at_random_moments("fp32");
}

static void killed_in_bf16(void **state) {
    (void)state;
    kill_at_random_moments("bf16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_random_moments),
        cmocka_unit_test(killed_in_bf16),
    };
    return cmocka_run_group_tests_name("kill", tests, make, NULL);
}
