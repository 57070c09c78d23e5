// SPDX-License-Identifier: Apache-2.0
// moec check: what it prints, and its exit status.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "compiler/driver/driver.h"

#define MODELS MOEC_SOURCE_DIR "/models/"

typedef struct Output {
    int status;
    char out[16384], err[4096];
} Output;

static void read_back(FILE *file, char *text, size_t bytes) {
    rewind(file);
    text[fread(text, 1, bytes - 1, file)] = 0;
    fclose(file);
}

// Runs `check` with the words of `arguments`, stdout and stderr caught.
static Output check(const char *arguments) {
    Output o = { 0 };
    char *words[8] = { "check" }, *copy = strdup(arguments);
    int n = 1;
    for (char *save, *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        words[n++] = w;
    FILE *files[2] = { tmpfile(), tmpfile() };
    int kept[2] = { dup(1), dup(2) };
    fflush(NULL);
    for (int i = 0; i < 2; i++) dup2(fileno(files[i]), i + 1);
    o.status = cmd_check(n, words);
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        dup2(kept[i], i + 1);
        close(kept[i]);
    }
    read_back(files[0], o.out, sizeof o.out);
    read_back(files[1], o.err, sizeof o.err);
    free(copy);
    return o;
}

static void ultra(void **state) {
    (void)state;
    clock_t start = clock();
    Output o = check(MODELS "olmo3moe.lua size=ultra");
    assert_true(clock() - start < CLOCKS_PER_SEC); // 0.03 s of processor time on a fast core
    assert_int_equal(o.status, 0);
    assert_string_equal(o.err, "");
    static const char *const lines[] = {
        "olmo3moe-ultra: 63 layers, width 6144, vocabulary 100352, sequence 8192\n",
        "  parameters   1200.4845 B total, 58.3588 B active (57.7422 B without the input table)\n",
        "  tensors      943, 0 numbers of state\n",
        " nodes, 124 losses, 122 metrics, 0 updates\n",
        "  training     371.52 GFLOP per token, 287.834 MFLOP more in fp32 (routers)\n",
    };
    for (int i = 0; i < COUNT_OF(lines); i++) {
        if (!strstr(o.out, lines[i])) fail_msg("no line '%s' in\n%s", lines[i], o.out);
    }
}

static void parts(void **state) {
    (void)state;
    Output o = check("-v " MODELS "tiny.lua experts=16");
    assert_int_equal(o.status, 0);
    assert_non_null(strstr(o.out, "embedding.w"));
    assert_non_null(strstr(o.out, "[E=16, 256, 2, 256]"));
    assert_non_null(strstr(o.out, "ones  decay 0  lr 1\n"));
    o = check("-v -- " MODELS "tiny.lua experts=16"); // what follows `--` is no option
    assert_int_equal(o.status, 0);
    assert_non_null(strstr(o.out, "embedding.w"));
    o = check(MODELS "deepseek_v3.lua");
    assert_non_null(strstr(o.out, "+ 11.6101 B for multi-token prediction"));
    assert_null(strstr(o.out, "embedding.w")); // the list comes with -v only
    o = check(MODELS "gpt_oss_20b.lua");
    assert_non_null(strstr(o.out, " nodes, 1 loss, "));
    o = check(MODELS "olmo3_7b.lua"); // no router
    assert_non_null(strstr(o.out, " GFLOP per token\n"));
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        const char *arguments, *want;
    } cases[] = {
        { MODELS "tiny.lua expert=16", "hint: did you mean 'experts'? arguments: experts" },
        { MODELS "tiny.lua experts=many", "expected an integer like 8" },
        { MODELS "none.lua", "moec: error: cannot open " MODELS "none.lua" },
        { MODELS, "moec: error: " MODELS " is a folder, expected a file" },
        { "", "no SPEC given" },
        { "-- -v", "-v" },
        { "-- " MODELS "tiny.lua -v", "unexpected '-v': after SPEC come key=value" },
        { "-x " MODELS "tiny.lua", "unknown option '-x' of 'check'" },
        { MODELS "tiny.lua " MODELS "tiny.lua", "unexpected '" MODELS "tiny.lua': after SPEC come" },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Output o = check(cases[i].arguments);
        assert_int_equal(o.status, 2);
        assert_string_equal(o.out, "");
        if (!strstr(o.err, cases[i].want)) fail_msg("%s: %s", cases[i].arguments, o.err);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(ultra), cmocka_unit_test(parts),
                                        cmocka_unit_test(refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
