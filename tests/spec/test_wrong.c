// SPDX-License-Identifier: Apache-2.0
// Wrong specs: wrong/NAME.lua must be refused with exactly the text of wrong/NAME.err. A first line
// "-- args: key=value" gives arguments. Ten of the texts are those of the language's description.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/spec/helper.h"

#define FOLDER MOEC_SOURCE_DIR "/tests/spec/wrong"

static void wrong_spec(void **state) {
    const char *name = *state;
    Arena *arena = arena_create();
    char *text, *want;
    size_t bytes;
    assert_int_equal(file_read(arena_printf(arena, FOLDER "/%s.lua", name), arena, &text, &bytes),
                     OK);
    assert_int_equal(file_read(arena_printf(arena, FOLDER "/%s.err", name), arena, &want, &bytes),
                     OK);
    char *args = NULL;
    if (!strncmp(text, "-- args: ", 9))
        args = arena_strndup(arena, text + 9, strcspn(text + 9, "\n"));
    Loaded l = load_text(text, args);
    assert_null(l.m);
    assert_string_equal(text_cstr(&l.error), want);
    loaded_finish(&l);
    arena_destroy(arena);
}

static int is_spec(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');
    return dot && !strcmp(dot, ".lua");
}

int main(void) {
    struct dirent **found;
    int n = scandir(FOLDER, &found, is_spec, alphasort);
    if (n < 10) {
        fprintf(stderr, "%s has %d specs\n", FOLDER, n);
        return 1;
    }
    struct CMUnitTest *tests = calloc((size_t)n, sizeof *tests);
    for (int i = 0; i < n; i++) {
        *strrchr(found[i]->d_name, '.') = 0;
        tests[i] =
            (struct CMUnitTest){ found[i]->d_name, wrong_spec, NULL, NULL, found[i]->d_name };
    }
    int failed = _cmocka_run_group_tests("wrong specs", tests, (size_t)n, NULL, NULL);
    for (int i = 0; i < n; i++) free(found[i]);
    free(found);
    free(tests);
    return failed;
}
