// SPDX-License-Identifier: Apache-2.0
// A small model and its runs.
#include <stdio.h>
#include <stdlib.h>

#include "tests/driver/small.h"

const char small_spec[] =
    "local m = require \"moec\"\n"
    "local width = m.arg(\"width\", 32)\n"
    "return m.model {\n"
    "  name = \"small\", vocab = 256, width = width, sequence = 32,\n"
    "  layers = m.stack(2, function(i)\n"
    "    return m.block {\n"
    "      attention = { heads = 2, kv_heads = 1, rope = { theta = 1e4 } },\n"
    "      ffn = i == 1 and { hidden = 48 } or m.experts {\n"
    "        count = 4, top_k = 2, expert = { hidden = 24 }, shared = { hidden = 16 },\n"
    "        router = { normalize = true, balance_loss = 0.01, correction = 0.001 },\n"
    "      },\n"
    "    }\n"
    "  end),\n"
    "}\n";

Small small_make(void) {
    static char moec[] = MOEC_BINARY_DIR "/moec";
    setenv("MOEC_CACHE_DIR", MOEC_BINARY_DIR "/test-cache", 0);
    Small small = { .folder = path_in(scratch_folder(), ""), .moec = moec };
    small.folder[strlen(small.folder) - 1] = 0;
    small.spec = path_in(small.folder, "small.lua");
    small.data = path_in(small.folder, "data");
    write_file(small.spec, small_spec, strlen(small_spec));
    static char text[SMALL_DATA];
    for (int i = 0; i < SMALL_DATA; i++)
        text[i] = "pack my box with five dozen jugs\n"[(i * (1 + i / 3000)) % 33];
    write_file(small.data, text, sizeof text);
    return small;
}

int small_train(const Small *small, char *run, const char *steps, char *const *more) {
    char *argv[48] = { small->moec, "train", small->spec, "--data", small->data, "--out", run };
    const char *usual[] = { "--steps", steps, "--held-out", "700", "--batch", "256",
                            "--microbatch", "128", "--save-interval", "3", "--warmup", "2" };
    int argc = 7;
    for (int i = 0; i < COUNT_OF(usual); i++) argv[argc++] = (char *)(uintptr_t)usual[i];
    for (; more && *more; more++) argv[argc++] = *more;
    return command_run(argv);
}

void expect_exit(int expected, int found) {
    if (expected != found)
        print_error("exit status %d\n%s\n%s\n", found, command_output(), command_errors());
    assert_int_equal(found, expected);
}

void expect_error(const char *part) {
    if (!strstr(command_errors(), part))
        print_error("'%s' is not in: %s\n", part, command_errors());
    assert_non_null(strstr(command_errors(), part));
}

void same_state(const char *a, const char *b, int step) {
    static const char *const files[] = { "weights", "moment1", "moment2" };
    for (int i = 0; i < 3; i++) {
        char name[96];
        snprintf(name, sizeof name, "checkpoints/step-%d/%s.safetensors", step, files[i]);
        size_t n, m;
        char *x, *y;
        Arena *arena = arena_create(); // of its own: some tests compare thousands of states
        EXPECT_OK(file_read(path_in(a, name), arena, &x, &n));
        EXPECT_OK(file_read(path_in(b, name), arena, &y, &m));
        assert_int_equal(n, m);
        assert_memory_equal(x, y, n);
        arena_destroy(arena);
    }
}

// The next line of a file of lines as an object without its times; NULL at the end.
static json_t *next_line(char **text) {
    if (!**text) return NULL;
    char *end = strchr(*text, '\n');
    assert_non_null(end);
    json_t *object = json_loadb(*text, (size_t)(end - *text), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(object);
    json_object_del(object, "time");
    json_object_del(object, "throughput/device/TPS");
    *text = end + 1;
    return object;
}

void same_history(const char *a, const char *b) {
    static const char *const files[] = { "metrics.jsonl", "eval.jsonl" };
    for (int i = 0; i < 2; i++) {
        size_t n;
        char *x = read_whole(path_in(a, files[i]), &n), *y = read_whole(path_in(b, files[i]), &n);
        for (;;) {
            json_t *p = next_line(&x), *q = next_line(&y);
            if (!p && !q) break;
            assert_true(json_equal(p, q));
            json_decref(p);
            json_decref(q);
        }
    }
}
