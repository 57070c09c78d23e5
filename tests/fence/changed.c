// SPDX-License-Identifier: Apache-2.0
// A folder of templates with one in it, named by MOEC_TEMPLATES.
#include "tests/fence/changed.h"

#include <stdio.h>
#include <stdlib.h>

static Small small;
static char *folder;

int changed_make(void **state) {
    (void)state;
    small = small_make();
    folder = path_in(scratch_folder(), "templates");
    EXPECT_OK(file_make_dirs(path_in(folder, "cpu")));
    setenv("MOEC_TEMPLATES", folder, 1);
    return 0;
}

void changed_template(const char *name, const char *from, const char *to) {
    COMMAND("/bin/sh", "-c", "rm -f $MOEC_TEMPLATES/cpu/*");
    char source[256];
    snprintf(source, sizeof source, MOEC_SOURCE_DIR "/templates/cpu/%s", name);
    size_t n;
    const char *text = read_whole(source, &n), *found = strstr(text, from);
    assert_non_null(found);
    assert_null(strstr(found + 1, from));
    Text out = { 0 };
    text_add_n(&out, text, (size_t)(found - text));
    text_add(&out, to);
    text_add(&out, found + strlen(from));
    write_file(path_in(path_in(folder, "cpu"), name), out.at, out.bytes);
    text_finish(&out);
}

int changed_train(const char *threads) {
    char *run = path_in(small.folder, "run");
    COMMAND("/bin/rm", "-rf", run);
    char *const more[] = { "--threads", (char *)(uintptr_t)threads, NULL };
    return small_train(&small, run, "1", more);
}
