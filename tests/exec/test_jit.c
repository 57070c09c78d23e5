// SPDX-License-Identifier: Apache-2.0
// From sources to functions: what is compiled, what comes from the cache, what is said when it
// fails. The compiler is a script that leaves a line in a file and runs the real one, so that
// starts can be counted.
#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/jit/jit.h"
#include "tests/plan/sample.h"

static char root[] = "/tmp/moec-test-jit-XXXXXX";
static char cache[64], script[64], starts[64], temporary[64];

static void run(const char *format, ...) PRINTF_LIKE(1, 2);
static void run(const char *format, ...) {
    Text command = { 0 };
    va_list list;
    va_start(list, format);
    text_vprintf(&command, format, list);
    va_end(list);
    assert_int_equal(system(command.at), 0);
    text_finish(&command);
}

static void write_script(const char *text) {
    FILE *file = fopen(script, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(script, 0755), 0);
}

static void use_counting_script(void) {
    char text[512];
    snprintf(
        text, sizeof text,
        "#!/bin/sh\necho start >> %s\n"
        "for cc in clang-19 clang gcc; do command -v $cc > /dev/null && exec $cc \"$@\"; done\n",
        starts);
    write_script(text);
}

static int set_up_group(void **state) {
    (void)state;
    if (!mkdtemp(root)) return 1;
    snprintf(cache, sizeof cache, "%s/cache", root);
    snprintf(script, sizeof script, "%s/cc", root);
    snprintf(starts, sizeof starts, "%s/starts", root);
    snprintf(temporary, sizeof temporary, "%s/tmp", root);
    return mkdir(temporary, 0755);
}

static int tear_down_group(void **state) {
    (void)state;
    run("rm -rf %s", root);
    return 0;
}

// Each test starts with an empty cache.
static int set_up(void **state) {
    (void)state;
    run("rm -rf %s %s", cache, starts);
    use_counting_script();
    setenv("MOEC_CACHE_DIR", cache, 1);
    setenv("MOEC_CC", script, 1);
    setenv("TMPDIR", temporary, 1);
    unsetenv("MOEC_ISA");
    unsetenv("MOEC_JIT_DUMP");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    return rmdir(temporary) != 0 ||
           mkdir(temporary, 0755) != 0; // nothing is left behind, also by failures
}

static int n_starts(void) {
    FILE *file = fopen(starts, "r");
    if (!file) return 0;
    int n = 0;
    for (int c; (c = fgetc(file)) != EOF;) n += c == '\n';
    fclose(file);
    return n;
}

// Plan of n kernels, kernel i adds i + offset to x[0].
static Plan *adders(int n, int offset) {
    Plan *plan = plan_create();
    sample_source(plan, "typedef int int32_t;\ntypedef long long int64_t;\n");
    for (int i = 0; i < n; i++) {
        char entry[32], body[96];
        snprintf(entry, sizeof entry, "add_%d", i);
        snprintf(body, sizeof body, "    x[0] += (float)%d; (void)tile_begin; (void)tile_end;",
                 i + offset);
        sample_kernel(plan, entry, "mut f32 x", body, 1);
    }
    return plan;
}

static void expect_adders(const Jit *jit, int n, int offset) {
    for (int i = 0; i < n; i++) {
        float x = 0.5f;
        void *const args[] = { &x };
        jit_function(jit, (uint32_t)i)(args, 0, 1);
        assert_true(x == 0.5f + (float)(i + offset));
    }
}

static void expect_load(int n, int offset) {
    Plan *plan = adders(n, offset);
    Jit *jit;
    if (jit_load(plan, NULL, NULL, NULL, &jit) != OK) fail_msg("%s", status_message());
    expect_adders(jit, n, offset);
    jit_destroy(jit);
    plan_destroy(plan);
}

static void expect_refusal(Plan *plan, Status status, const char *message) {
    Jit *jit = (Jit *)1;
    assert_int_equal(jit_load(plan, NULL, NULL, NULL, &jit), status);
    assert_null(jit);
    if (!strstr(status_message(), message))
        fail_msg("expected \"%s\" in \"%s\"", message, status_message());
    plan_destroy(plan);
}

typedef struct Progress {
    int calls, done, total, cached;
    bool fell;
} Progress;

static void progress(void *user, int done, int total, int cached) {
    Progress *p = user;
    p->fell |= done < p->done;
    *p = (Progress){ p->calls + 1, done, total, cached, p->fell };
}

static void test_cold_and_warm(void **state) {
    (void)state;
    Plan *plan = adders(20, 0);
    Jit *jit, *second;
    Progress cold = { 0 }, warm = { 0 };
    if (jit_load(plan, progress, &cold, NULL, &jit) != OK) fail_msg("%s", status_message());
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    int batches =
        (int)max_i64(3, min_i64(20, CPU_COUNT(&set))); // of at most 8, and work for every core
    assert_int_equal(n_starts(), 1 + batches);         // and --version
    assert_int_equal(cold.done, 20);
    assert_int_equal(cold.total, 20);
    assert_int_equal(cold.cached, 0);
    assert_int_equal(cold.calls, 1 + batches);
    assert_false(cold.fell);
    expect_adders(jit, 20, 0);

    assert_int_equal(jit_load(plan, progress, &warm, NULL, &second), OK);
    assert_int_equal(n_starts(), 1 + batches); // none
    assert_int_equal(warm.done, 20);
    assert_int_equal(warm.cached, 20);
    run("rm -rf %s", cache); // what is loaded does not need it
    expect_adders(second, 20, 0);
    jit_destroy(jit);
    expect_adders(second, 20, 0); // nor the other
    jit_destroy(second);
    plan_destroy(plan);
    jit_destroy(NULL);
}

static void test_only_what_is_new(void **state) {
    (void)state;
    expect_load(5, 0);
    int before = n_starts();
    Progress p = { 0 };
    Plan *plan = adders(6, 0); // one more
    Jit *jit;
    assert_int_equal(jit_load(plan, progress, &p, NULL, &jit), OK);
    expect_adders(jit, 6, 0);
    assert_int_equal(p.cached, 5);
    assert_int_equal(n_starts(), before + 1);
    jit_destroy(jit);
    plan_destroy(plan);
    expect_load(6, 100); // other sources under the same entries
    assert_true(n_starts() > before + 1);
}

static void test_key(void **state) {
    (void)state;
    expect_load(1, 0);
    int n = n_starts();
    Plan *plan = adders(1, 0); // another prelude
    plan->sources[0].text = "typedef int int32_t;\ntypedef long int64_t;\n";
    plan->sources[0].bytes = (int64_t)strlen(plan->sources[0].text);
    Jit *jit;
    assert_int_equal(jit_load(plan, NULL, NULL, NULL, &jit), OK);
    jit_destroy(jit);
    plan_destroy(plan);
    assert_int_equal(n_starts(), n + 1);
#if defined(__x86_64__)
    setenv("MOEC_ISA", "x86-64", 1); // another level
    expect_load(1, 0);
    assert_int_equal(n_starts(), n + 2);
    expect_load(1, 0);
    assert_int_equal(n_starts(), n + 2);
    unsetenv("MOEC_ISA");
#endif
    char text[512]; // another compiler, as far as it tells
    snprintf(
        text, sizeof text,
        "#!/bin/sh\necho start >> %s\n[ \"$1\" = --version ] && { echo other 1.0; exit; }\n"
        "for cc in clang-19 clang gcc; do command -v $cc > /dev/null && exec $cc \"$@\"; done\n",
        starts);
    n = n_starts();
    write_script(text);
    expect_load(1, 0);
    assert_int_equal(n_starts(), n + 2);
}

static void test_empty(void **state) {
    (void)state;
    setenv("MOEC_CC", "/nowhere", 1);
    Plan *plan = plan_create();
    Jit *jit;
    assert_int_equal(jit_load(plan, NULL, NULL, NULL, &jit), OK); // no kernel, no compiler
    jit_destroy(jit);
    plan_destroy(plan);
}

static void test_no_compiler(void **state) {
    (void)state;
    setenv("MOEC_CC", "no-such-compiler", 1);
    expect_refusal(adders(1, 0), ERR_COMPILE,
                   "MOEC_CC: expected a C compiler, found no program \"no-such-compiler\"");
    setenv("MOEC_CC", root, 1); // a folder
    expect_refusal(adders(1, 0), ERR_COMPILE, "MOEC_CC: expected a C compiler");
    unsetenv("MOEC_CC");
    char *path = strdup(getenv("PATH"));
    setenv("PATH", "/nowhere:", 1);
    expect_refusal(adders(1, 0), ERR_COMPILE,
                   "expected clang-19, clang or gcc in PATH, found none");
    assert_non_null(strstr(status_message(), "hint: apt-get install clang-19"));
    setenv("PATH", path, 1);
    free(path);
    setenv("MOEC_CC", "/bin/false", 1);
    expect_refusal(adders(1, 0), ERR_COMPILE,
                   "/bin/false --version: expected a line that names the compiler");
    setenv("MOEC_CC", "/bin/true", 1);
    expect_refusal(adders(1, 0), ERR_COMPILE, "/bin/true ended well but wrote no object");
}

static void test_isa(void **state) {
    (void)state;
    setenv("MOEC_ISA", "pdp-11", 1);
    expect_refusal(adders(1, 0), ERR_ARGUMENT, "MOEC_ISA: expected a level of this machine (");
    assert_non_null(strstr(status_message(), "found \"pdp-11\""));
}

static void test_errors(void **state) {
    (void)state;
    Plan *plan = adders(3, 0);
    sample_kernel(plan, "wrong", "mut f32 x", "    x[0] = undeclared_thing;", 1);
    expect_refusal(plan, ERR_COMPILE, "undeclared_thing");
    assert_non_null(strstr(status_message(), "source 4 of the plan"));
    assert_non_null(strstr(status_message(), "hint: set MOEC_JIT_DUMP=DIR"));

    char dump[96];
    snprintf(dump, sizeof dump, "%s/dump", root);
    setenv("MOEC_JIT_DUMP", dump, 1);
    plan = adders(0, 0);
    sample_kernel(plan, "wrong", "mut f32 x", "    x[0] = undeclared_thing;", 1);
    expect_refusal(plan, ERR_COMPILE, "the source is kept in ");
    run("grep -q undeclared_thing %s/*.c && grep -q undeclared_thing %s/*.log", dump, dump);
    run("rm -rf %s", dump);
    expect_load(2, 3); // a dump of what compiles
    run("grep -q add_1 %s/*.c", dump);
    run("rm -rf %s", dump);
    unsetenv("MOEC_JIT_DUMP");

    plan = adders(1, 0);
    plan->kernels[0].entry = "missing";
    expect_refusal(plan, ERR_COMPILE,
                   "kernel \"missing\": expected source 1 to define missing_launch");
    plan = adders(1, 0);
    sample_kernel(plan, "loose", "mut f32 x",
                  "    extern void moec_no_such_function(float *); moec_no_such_function(x);", 1);
    expect_refusal(plan, ERR_COMPILE, "moec_no_such_function");
}

// One failure of many: the others are stopped, none is left running.
static void test_failure_stops_others(void **state) {
    (void)state;
    char text[1024], pids[96];
    snprintf(pids, sizeof pids, "%s/pids", root);
    snprintf(text, sizeof text,
             "#!/bin/sh\n[ \"$1\" = --version ] && { echo slow 1; exit; }\n"
             "for last; do :; done\nif grep -q 'float)0;' $last; then echo 'x.c:1:1: error: no' "
             ">&2; exit 1; fi\n"
             "echo $$ >> %s\nexec sleep 1000\n",
             pids);
    write_script(text);
    // The failing unit is among those that start; the sleeping ones would hold the test for good.
    expect_refusal(adders(2, 0), ERR_COMPILE, "x.c:1:1: error: no");
    FILE *file = fopen(pids, "r");
    int pid;
    while (file && fscanf(file, "%d", &pid) == 1) assert_int_not_equal(kill(pid, 0), 0);
    if (file) fclose(file);
    unlink(pids);
}

static void test_interrupt(void **state) {
    (void)state;
    write_script("#!/bin/sh\n[ \"$1\" = --version ] && { echo dying 1; exit; }\nkill -INT $$\n");
    expect_refusal(adders(1, 0), ERR_INTERRUPTED, "stopped by signal 2");
    write_script("#!/bin/sh\n[ \"$1\" = --version ] && { echo dying 2; exit; }\nkill -SEGV $$\n");
    expect_refusal(adders(1, 0), ERR_COMPILE, "stopped by signal 11");
}

typedef void (*Damage)(const char *path);

static void cut_to_nothing(const char *path) {
    assert_int_equal(truncate(path, 0), 0);
}
static void cut_in_half(const char *path) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size / 2), 0);
}
static void flip_middle(const char *path) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    FILE *file = fopen(path, "r+b");
    fseek(file, info.st_size / 2, SEEK_SET);
    int c = fgetc(file);
    fseek(file, info.st_size / 2, SEEK_SET);
    fputc(c ^ 16, file);
    fclose(file);
}
static void remove_it(const char *path) {
    assert_int_equal(unlink(path), 0);
}

// Calls `damage` on the files of the cache larger (smaller) than `limit`.
static void damage_files(Damage damage, off_t above, off_t below) {
    Text list = { 0 };
    text_printf(&list, "find %s -type f", cache);
    FILE *find = popen(list.at, "r");
    char path[256];
    while (fgets(path, sizeof path, find)) {
        path[strcspn(path, "\n")] = 0;
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        if (info.st_size > above && info.st_size < below) damage(path);
    }
    pclose(find);
    text_finish(&list);
}

// Whatever becomes of entries (objects, or what points to them, or all), loading works and heals
// the cache.
static void test_damaged_entries(void **state) {
    (void)state;
    static const Damage damages[] = { cut_to_nothing, cut_in_half, flip_middle, remove_it };
    static const off_t ranges[][2] = { { 1024, INT64_MAX }, { -1, 1024 }, { -1, INT64_MAX } };
    expect_load(3, 0);
    for (int d = 0; d < COUNT_OF(damages); d++) {
        for (int r = 0; r < COUNT_OF(ranges); r++) {
            damage_files(damages[d], ranges[r][0], ranges[r][1]);
            int before = n_starts();
            expect_load(3, 0);
            assert_true(n_starts() > before);
            int after = n_starts();
            expect_load(3, 0);
            assert_int_equal(n_starts(), after);
        }
    }
}

// An entry that is valid but holds no object that loads here: compiled again.
static void test_foreign_object(void **state) {
    (void)state;
    expect_load(1, 0);
    static const char foreign[] = "this is no shared object";
    Hash hash = hash_bytes(foreign, sizeof foreign);
    // Point every source of the cache to the foreign object: entries of 32 + 16 + 16 bytes are the
    // pointers.
    assert_int_equal(cache_put(cache, hash, foreign, sizeof foreign), OK);
    DIR *folders = opendir(cache);
    int pointers = 0;
    for (const struct dirent *f; (f = readdir(folders));) {
        if (f->d_name[0] == '.') continue;
        char folder[512];
        snprintf(folder, sizeof folder, "%s/%s", cache, f->d_name);
        DIR *entries = opendir(folder);
        for (const struct dirent *e; (e = readdir(entries));) {
            char path[1024];
            struct stat info;
            Hash key;
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            if (!hash_parse(e->d_name, strlen(e->d_name), &key) || stat(path, &info) ||
                info.st_size != 64)
                continue;
            assert_int_equal(cache_put(cache, key, &hash, sizeof hash), OK);
            pointers++;
        }
        closedir(entries);
    }
    closedir(folders);
    assert_int_equal(pointers, 1);
    int before = n_starts();
    expect_load(1, 0);
    assert_int_equal(n_starts(), before + 1);
}

static void test_unwritable_cache(void **state) {
    (void)state;
    char file[96];
    snprintf(file, sizeof file, "%s/file", root);
    run("touch %s", file);
    setenv("MOEC_CACHE_DIR", file, 1);
    setenv("MOEC_LOG", "error", 1); // it warns; not in the output of a test that passes
    expect_load(2, 0);
    unsetenv("MOEC_LOG");
    int n = n_starts();
    assert_true(n > 1);
    run("rm %s", file);
}

// Two processes at once fill one cache; both work, and what they leave is whole.
static void test_two_processes(void **state) {
    (void)state;
    pid_t pids[2];
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i]) continue;
        Plan *plan = adders(9, 7);
        Jit *jit;
        if (jit_load(plan, NULL, NULL, NULL, &jit) != OK) _exit(1);
        float x = 0;
        void *const args[] = { &x };
        for (uint32_t k = 0; k < 9; k++) jit_function(jit, k)(args, 0, 1);
        _exit(x == 9 * 7 + 36 ? 0 : 2);
    }
    for (int i = 0; i < 2; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    int n = n_starts();
    expect_load(9, 7);
    assert_int_equal(n_starts(), n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_cold_and_warm),   TEST(test_only_what_is_new),     TEST(test_key),
        TEST(test_empty),           TEST(test_no_compiler),          TEST(test_isa),
        TEST(test_errors),          TEST(test_failure_stops_others), TEST(test_interrupt),
        TEST(test_damaged_entries), TEST(test_foreign_object),       TEST(test_unwritable_cache),
        TEST(test_two_processes),
    };
    return cmocka_run_group_tests(tests, set_up_group, tear_down_group);
}
