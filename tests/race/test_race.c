// SPDX-License-Identifier: Apache-2.0
// Tiles of a kernel that write the same number, in a build with ThreadSanitizer (the only one that
// has these tests): reported, which shows that kernels are seen by it. As they are, they are clean.
#include "tests/fence/changed.h"

static void unchanged(void **state) {
    (void)state;
    changed_template("clear.c", "x[i] = 0.0f", "x[i] = 0.0f");
    expect_exit(0, changed_train("3"));
}

// Which thread takes a tile is chance: each waits until another has taken one, or a while.
static void tiles_meet(void **state) {
    (void)state;
    changed_template("clear.c", "int64_t end =",
                     "for (volatile int wait = 0; wait < 3000000; wait = wait + 1) {}\n"
                     "    x[0] = (float)tile_begin;\n    int64_t end =");
    assert_int_not_equal(changed_train("3"), 0);
    expect_error("ThreadSanitizer: data race");
    expect_error("Write of size 4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unchanged),
        cmocka_unit_test(tiles_meet),
    };
    return cmocka_run_group_tests_name("race", tests, changed_make, NULL);
}
