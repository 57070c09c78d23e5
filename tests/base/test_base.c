// SPDX-License-Identifier: Apache-2.0
// The ground floor: arenas, texts, exact doubles, hashes, files, failures.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/base.h"

static void arena_memory_is_zeroed_aligned_and_apart(void **state) {
    (void)state;
    Arena *arena = arena_create();
    unsigned char *before = NULL;
    size_t before_bytes = 0;
    for (size_t bytes = 0; bytes < 9000; bytes = bytes * 3 / 2 + 1) {
        unsigned char *at = arena_alloc(arena, bytes);
        assert_int_equal((uintptr_t)at % 16, 0);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(at[i], 0);
        memset(at, 0xa5, bytes);
        for (size_t i = 0; i < before_bytes; i++) assert_int_equal(before[i], 0xa5);
        before = at;
        before_bytes = bytes;
    }
    assert_true(arena_bytes(arena) >= 9000);
    assert_string_equal(arena_printf(arena, "%s.%d", "layers", 3), "layers.3");
    assert_string_equal(arena_strndup(arena, "abcdef", 3), "abc");
    arena_destroy(arena);
    arena_destroy(NULL);
}

static void arena_push_keeps_what_is_there(void **state) {
    (void)state;
    Arena *arena = arena_create();
    int *items = NULL;
    uint32_t n = 0, cap = 0;
    for (int i = 0; i < 1000; i++) *ARENA_PUSH(arena, items, n, cap) = i;
    assert_int_equal(n, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal(items[i], i);
    arena_destroy(arena);
}

/* Guards --------------------------------------------------------------------------------------- */

typedef struct Trace { char given[8]; int n; Arena *older; const char *stop; Arena *survivor; } Trace;
static Trace *trace;

static void give_x(void *what) {
    trace->given[trace->n++] = *(const char *)what;
}

// Takes a, an arena, b; drops c and a block; then wants what nobody has, where `stop` says.
static Status take_and_want(void *user) {
    trace = user;
    Held a, b, c;
    memory_hold(&a, give_x, "a");
    Arena *arena = arena_create();
    Held *in_arena = ARENA_NEW(arena, Held);
    memory_hold(in_arena, give_x, "r");
    Text text = { 0 };
    text_add(&text, "some text");
    memory_hold(&c, give_x, "c");
    memory_hold(&b, give_x, "b");
    memory_drop(&c);
    memory_drop(&c); // twice is fine
    char *block = memory_alloc(10);
    assert_int_equal(block[9], 0);
    block = memory_grow(block, 100000);
    memory_free(block);
    if (!strcmp(trace->stop, "arena")) arena_alloc(trace->older, SIZE_MAX / 2 + 1);
    if (!strcmp(trace->stop, "block")) memory_alloc(SIZE_MAX / 2);
    if (!strcmp(trace->stop, "grow")) memory_grow(memory_alloc(1), SIZE_MAX / 2);
    memory_drop(in_arena);
    memory_drop(&a);
    memory_drop(&b);
    text_finish(&text);
    arena_destroy(arena);
    trace->survivor = arena_create();
    return ERR_INPUT;
}

// With AddressSanitizer nothing may leak either.
static void a_guard_gives_back_what_was_taken(void **state) {
    (void)state;
    static const char *const stops[] = { "arena", "block", "grow" };
    Trace t = { .older = arena_create() };
    strcpy(arena_alloc(t.older, 5), "kept");
    for (int i = 0; i < COUNT_OF(stops); i++) {
        t.stop = stops[i];
        t.n = 0;
        assert_int_equal(memory_guard(take_and_want, &t), ERR_MEMORY);
        assert_int_equal(t.n, 3);
        assert_memory_equal(t.given, "bra", 3); // newest first
        assert_non_null(strstr(status_message(), "out of memory: "));
    }
    t.stop = "nowhere";
    t.n = 0;
    assert_int_equal(memory_guard(take_and_want, &t), ERR_INPUT);
    assert_int_equal(t.n, 0);
    assert_non_null(arena_alloc(t.survivor, 1 << 20));
    arena_destroy(t.survivor);
    arena_destroy(t.older);
}

static Status inner_then_want(void *user) {
    Trace *t = user;
    t->stop = "arena";
    assert_int_equal(memory_guard(take_and_want, t), ERR_MEMORY);
    assert_int_equal(t->n, 3);
    t->stop = "nowhere"; // its survivor is this guard's from then on
    assert_int_equal(memory_guard(take_and_want, t), ERR_INPUT);
    Held d;
    memory_hold(&d, give_x, "d");
    memory_alloc(SIZE_MAX / 2);
    return OK;
}

static void guards_nest(void **state) {
    (void)state;
    Trace t = { .older = arena_create() };
    assert_int_equal(memory_guard(inner_then_want, &t), ERR_MEMORY);
    assert_int_equal(t.n, 4);
    assert_memory_equal(t.given, "brad", 4);
    arena_destroy(t.older);
}

static void doubles_read_back_to_the_same_bits(void **state) {
    (void)state;
    static const struct { double value; const char *text; } known[] = {
        { 0, "0x0p+0" }, { -0.0, "-0x0p+0" }, { 1, "0x1p+0" }, { 0.02, "0x1.47ae147ae147bp-6" },
        { -3, "-0x1.8p+1" }, { INFINITY, "inf" }, { -INFINITY, "-inf" }, { 0x1p-1074, "0x1p-1074" },
        { 0x1.fffffffffffffp+1023, "0x1.fffffffffffffp+1023" }, { 0x1.8p-1073, "0x1.8p-1073" },
    };
    for (int i = 0; i < COUNT_OF(known); i++) {
        Text text = { 0 };
        text_add_double(&text, known[i].value);
        assert_string_equal(text_cstr(&text), known[i].text);
        text_finish(&text);
    }
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        seed = hash_mix(seed, (uint64_t)i, 0);
        double value, back;
        memcpy(&value, &seed, 8);
        if (isnan(value)) continue;
        Text text = { 0 };
        text_add_double(&text, value);
        assert_true(text_parse_double(text.at, text.bytes, &back));
        assert_memory_equal(&value, &back, 8);
        text_finish(&text);
    }
}

static void other_spellings_of_doubles_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = { "", "-", "1", "nan", "0x1", "0x1p", "0x1p+", "0x1.p+0", "0x1.80p+1",
                                         "0x2p+0", "0x1p+2000", "0x1p-1080", "0x1p+01", " 0x1p+0", "0x1p+0 ",
                                         "0x1.8P+1", "0X1p+0", "+inf", "infinity", "0x1.ffffffffffffffp+1" };
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        double value;
        assert_false(text_parse_double(wrong[i], strlen(wrong[i]), &value));
    }
}

static void decimals_are_short_and_exact(void **state) {
    (void)state;
    static const struct { double value; const char *text; } known[] = {
        { 0.1, "0.1" }, { 1e-6, "1e-06" }, { 3, "3" }, { 1.0 / 3, "0.3333333333333333" } };
    for (int i = 0; i < COUNT_OF(known); i++) {
        Text text = { 0 };
        text_add_decimal(&text, known[i].value);
        assert_string_equal(text_cstr(&text), known[i].text);
        text_finish(&text);
    }
}

static void the_nearest_word_is_near(void **state) {
    (void)state;
    static const char *const words[] = { "heads", "kv_heads", "head_dim", "rope", "window" };
    assert_string_equal(text_nearest("num_heads", words, 5), "heads");
    assert_string_equal(text_nearest("windw", words, 5), "window");
    assert_string_equal(text_nearest("ROPE", words, 5), "rope");
    assert_null(text_nearest("xyzzyplugh", words, 5));
    assert_null(text_nearest("anything", words, 0));
}

static void hashes_print_and_parse(void **state) {
    (void)state;
    char hex[33];
    Hash hash = hash_bytes("moec", 4), back;
    hash_hex(hash, hex);
    assert_true(hash_parse(hex, 32, &back) && hash_equal(hash, back));
    assert_false(hash_parse(hex, 31, &back));
    hex[5] = 'G';
    assert_false(hash_parse(hex, 32, &back));
    assert_false(hash_equal(hash, hash_bytes("moed", 4)));
}

static void random_numbers_have_the_moments_they_claim(void **state) {
    (void)state;
    double sum = 0, square = 0, fourth = 0, uniform = 0;
    int n = 200000;
    for (int i = 0; i < n; i++) {
        double x = hash_normal(7, 3, (uint64_t)i);
        sum += x;
        square += x * x;
        fourth += x * x * x * x;
        float u = hash_uniform(7, (uint64_t)i, 3);
        assert_true(u >= 0 && u < 1);
        uniform += u;
    }
    // Four standard errors of each mean.
    assert_true(fabs(sum / n) < 4 * 1.0 / sqrt(n));
    assert_true(fabs(square / n - 1) < 4 * sqrt(2.0 / n));
    assert_true(fabs(fourth / n - 3) < 4 * sqrt(96.0 / n));
    assert_true(fabs(uniform / n - 0.5) < 4 * sqrt(1.0 / 12 / n));
    assert_true(hash_mix(1, 2, 3) != hash_mix(1, 3, 2));
}

static void files_are_replaced_whole_or_not_at_all(void **state) {
    (void)state;
    char folder[] = "/tmp/moec-base-XXXXXX", path[64], deep[80];
    assert_non_null(mkdtemp(folder));
    snprintf(deep, sizeof deep, "%s/a/b", folder);
    assert_int_equal(file_make_dirs(deep), OK);
    assert_int_equal(file_make_dirs(deep), OK);
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(file_write_atomic(path, "old", 3), OK);
    assert_int_equal(file_write_atomic(path, "newer", 5), OK);
    Arena *arena = arena_create();
    char *bytes;
    size_t n;
    assert_int_equal(file_read(path, arena, &bytes, &n), OK);
    assert_int_equal(n, 5);
    assert_string_equal(bytes, "newer");
    assert_int_equal(file_read("/proc/self/status", arena, &bytes, &n), OK); // tells no size
    assert_true(n > 100);
    assert_int_equal(file_read(folder, arena, &bytes, &n), ERR_INPUT);
    assert_non_null(strstr(status_message(), "is a folder"));
    assert_int_equal(file_read("/nowhere/at/all", arena, &bytes, &n), ERR_INPUT);
    assert_int_equal(file_make_dirs(path), ERR_IO);
    assert_int_equal(file_write_atomic("/nowhere/at/all", "x", 1), ERR_IO);
    // A link keeps pointing to its file; a device stays one.
    char link[64], aim[8] = "";
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(file_write_atomic(link, "by link", 7), OK);
    assert_int_equal(readlink(link, aim, sizeof aim), 4);
    assert_int_equal(file_read(path, arena, &bytes, &n), OK);
    assert_string_equal(bytes, "by link");
    unlink(path); // what a link leads to is made where it leads
    assert_int_equal(file_write_atomic(link, "new", 3), OK);
    assert_int_equal(readlink(link, aim, sizeof aim), 4);
    assert_int_equal(file_read(path, arena, &bytes, &n), OK);
    assert_string_equal(bytes, "new");
    unlink(link);
    assert_int_equal(symlink("link", link), 0);
    assert_int_equal(file_write_atomic(link, "circle", 6), ERR_IO);
    unlink(link);
    assert_int_equal(symlink("/nowhere/at/all", link), 0);
    assert_int_equal(file_write_atomic(link, "x", 1), ERR_IO);
    unlink(link);
    assert_int_equal(mkfifo(link, 0600), 0);
    int reader = open(link, O_RDONLY | O_NONBLOCK);
    assert_int_equal(file_write_atomic(link, "in place", 8), OK);
    char got[9] = "";
    assert_int_equal(read(reader, got, sizeof got), 8);
    assert_string_equal(got, "in place");
    close(reader);
    unlink(link);
    arena_destroy(arena);
    unlink(path);
    rmdir(deep);
    snprintf(deep, sizeof deep, "%s/a", folder);
    rmdir(deep);
    assert_int_equal(rmdir(folder), 0); // no temporary file is left
}

// Endless ones end: a device is not read, a pipe up to a limit.
static void only_files_and_pipes_are_read(void **state) {
    (void)state;
    Arena *arena = arena_create();
    char *bytes, path[64];
    size_t n;
    assert_int_equal(file_read("/dev/zero", arena, &bytes, &n), ERR_INPUT);
    assert_non_null(strstr(status_message(), "/dev/zero is a device or a socket"));
    FILE *short_pipe = popen("echo text", "r");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(short_pipe));
    assert_int_equal(file_read(path, arena, &bytes, &n), OK);
    assert_string_equal(bytes, "text\n");
    pclose(short_pipe);
    FILE *endless = popen("yes", "r");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(endless));
    assert_int_equal(file_read(path, arena, &bytes, &n), ERR_INPUT);
    assert_non_null(strstr(status_message(), "gives more than 64 MiB"));
    pclose(endless);
    arena_destroy(arena);
}

static Status inner(void) {
    return status_fail(ERR_INPUT, "expected %d, found %d", 1, 2);
}

static Status outer(void) {
    TRY(inner());
    return OK;
}

static void a_failure_keeps_its_message_and_its_trail(void **state) {
    (void)state;
    assert_int_equal(outer(), ERR_INPUT);
    assert_string_equal(status_message(), "expected 1, found 2");
    assert_non_null(strstr(status_trail_text(), "test_base.c:"));
    assert_int_equal(status_exit(ERR_INPUT), 2);
    assert_int_equal(status_exit(ERR_IO), 1);
    assert_int_equal(status_exit(OK), 0);
    status_fail(ERR_IO, "while saving: %s", status_message());
    assert_string_equal(status_message(), "while saving: expected 1, found 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_memory_is_zeroed_aligned_and_apart),
        cmocka_unit_test(arena_push_keeps_what_is_there),
        cmocka_unit_test(a_guard_gives_back_what_was_taken),
        cmocka_unit_test(guards_nest),
        cmocka_unit_test(doubles_read_back_to_the_same_bits),
        cmocka_unit_test(other_spellings_of_doubles_are_refused),
        cmocka_unit_test(decimals_are_short_and_exact),
        cmocka_unit_test(the_nearest_word_is_near),
        cmocka_unit_test(hashes_print_and_parse),
        cmocka_unit_test(random_numbers_have_the_moments_they_claim),
        cmocka_unit_test(files_are_replaced_whole_or_not_at_all),
        cmocka_unit_test(only_files_and_pipes_are_read),
        cmocka_unit_test(a_failure_keeps_its_message_and_its_trail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
