// SPDX-License-Identifier: Apache-2.0
// The cache of blobs: what was put comes back or nothing does.
#include <setjmp.h>
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

static char root[] = "/tmp/moec-test-cache-XXXXXX";
static char dir[64], path[160];
static Arena *arena;
static const Hash key = { 0x1122334455667788, 0x99aabbccddeeff00 };
static const char payload[] = "some bytes \0 with a zero, and more of them";

static int set_up(void **state) {
    (void)state;
    arena = arena_create();
    char hex[33];
    hash_hex(key, hex);
    if (!mkdtemp(root)) return 1;
    snprintf(dir, sizeof dir, "%s/deep/er", root);
    snprintf(path, sizeof path, "%s/%.2s/%s", dir, hex, hex);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    arena_destroy(arena);
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static bool found(void) {
    char *bytes;
    size_t n;
    assert_int_equal(cache_get(dir, key, arena, &bytes, &n), OK);
    if (!bytes) {
        assert_int_equal(n, 0);
        return false;
    }
    assert_int_equal(n, sizeof payload);
    assert_memory_equal(bytes, payload, n);
    assert_int_equal(bytes[n], 0);
    return true;
}

static void write_file(const char *name, const void *bytes, size_t n) {
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void test_put_get(void **state) {
    (void)state;
    assert_false(found()); // not even a folder
    assert_int_equal(cache_put(dir, key, payload, sizeof payload), OK);
    assert_true(found());
    assert_int_equal(cache_put(dir, key, payload, sizeof payload), OK);
    assert_true(found());
    Hash other = { 1, 2 };
    char *bytes;
    size_t n;
    assert_int_equal(cache_put(dir, other, "", 0), OK);
    assert_int_equal(cache_get(dir, other, arena, &bytes, &n), OK);
    assert_non_null(bytes);
    assert_int_equal(n, 0);
    assert_int_equal(cache_get(NULL, other, arena, &bytes, &n), OK);
    assert_null(bytes);
    assert_int_equal(cache_put(NULL, other, "", 0), ERR_IO);
}

// Every byte flipped, every length, an entry under another key's name: a miss each time.
static void test_damage(void **state) {
    (void)state;
    char *entry;
    size_t n;
    assert_int_equal(cache_put(dir, key, payload, sizeof payload), OK);
    assert_int_equal(file_read(path, arena, &entry, &n), OK);
    assert_true(n > sizeof payload);
    char *copy = arena_alloc(arena, n + 1);
    for (size_t i = 0; i < n; i++) {
        memcpy(copy, entry, n);
        copy[i] = (char)(copy[i] ^ (1 << (i % 8)));
        write_file(path, copy, n);
        assert_false(found());
    }
    memcpy(copy, entry, n);
    for (size_t length = 0; length < n; length++) {
        write_file(path, copy, length);
        assert_false(found());
    }
    copy[n] = 0;
    write_file(path, copy, n + 1);
    assert_false(found());
    write_file(path, copy, n);
    assert_true(found());

    Hash other = { key.low + 1, key.high };
    assert_int_equal(cache_put(dir, other, "x", 1), OK);
    char hex[33], from[160];
    hash_hex(other, hex);
    snprintf(from, sizeof from, "%s/%.2s/%s", dir, hex, hex);
    assert_int_equal(rename(from, path), 0);
    assert_false(found());
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0755), 0); // a folder where the entry should be
    assert_false(found());
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(cache_put(dir, key, payload, sizeof payload), OK);
    assert_true(found());
}

// A reader beside writers sees the entry whole or not at all.
static void test_processes(void **state) {
    (void)state;
    enum { WRITERS = 2, ROUNDS = 100 };
    pid_t pids[WRITERS];
    for (int w = 0; w < WRITERS; w++) {
        pids[w] = fork();
        assert_true(pids[w] >= 0);
        if (!pids[w]) {
            for (int i = 0; i < ROUNDS; i++) {
                if (cache_put(dir, key, payload, sizeof payload) != OK) _exit(1);
            }
            _exit(0);
        }
    }
    int hits = 0;
    for (int i = 0; i < ROUNDS; i++) hits += found();
    assert_int_equal(hits, ROUNDS); // it was there before and is only ever replaced
    for (int w = 0; w < WRITERS; w++) {
        int status;
        assert_int_equal(waitpid(pids[w], &status, 0), pids[w]);
        assert_int_equal(status, 0);
    }
    char command[128];
    snprintf(command, sizeof command, "test $(find %s -type f | wc -l) = 2",
             dir); // no temporary file is left
    assert_int_equal(system(command), 0);
}

static void test_folder(void **state) {
    (void)state;
    setenv("HOME", "/home/someone", 1);
    setenv("XDG_CACHE_HOME", "/xdg", 1);
    setenv("MOEC_CACHE_DIR", "relative/own", 1);
    assert_string_equal(jit_cache_dir(arena), "relative/own");
    setenv("MOEC_CACHE_DIR", "", 1);
    assert_string_equal(jit_cache_dir(arena), "/xdg/moec");
    setenv("XDG_CACHE_HOME", "relative", 1); // the XDG rules: ignored
    assert_string_equal(jit_cache_dir(arena), "/home/someone/.cache/moec");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("MOEC_CACHE_DIR");
    assert_string_equal(jit_cache_dir(arena), "/home/someone/.cache/moec");
}

static void test_unwritable(void **state) {
    (void)state;
    char file[96];
    snprintf(file, sizeof file, "%s/file", root);
    write_file(file, "x", 1);
    char *bytes;
    size_t n;
    assert_int_equal(cache_put(file, key, payload, sizeof payload), ERR_IO); // a file is no folder
    assert_int_equal(cache_get(file, key, arena, &bytes, &n), OK);
    assert_null(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_get),    cmocka_unit_test(test_damage),
        cmocka_unit_test(test_processes),  cmocka_unit_test(test_folder),
        cmocka_unit_test(test_unwritable),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
