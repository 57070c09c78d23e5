// SPDX-License-Identifier: Apache-2.0
// Kernels that leave their operands, in a build with AddressSanitizer (the only one that has these
// tests): templates are changed so that they read or write one number too many, and the run ends
// with a report. The place after the operand is another buffer's, so nothing else would notice.
#include "tests/fence/changed.h"

static int train(void) {
    return changed_train("2");
}

static void reported(const char *kind) {
    assert_int_not_equal(train(), 0);
    expect_error("AddressSanitizer: use-after-poison");
    expect_error(kind);
}

static void unchanged(void **state) {
    (void)state;
    changed_template("clear.c", "x[i] = 0.0f", "x[i] = 0.0f");
    expect_exit(0, train());
}

static void write_past_the_end(void **state) {
    (void)state;
    changed_template("clear.c", "i < end;", "i < end + (end == $n);");
    reported("WRITE of size");
}

static void write_before_the_start(void **state) {
    (void)state;
    changed_template("clear.c", "int64_t end =",
                     "if (!tile_begin) x[-1] = 0.0f;\n    int64_t end =");
    reported("WRITE of size 4");
}

static void read_past_the_end(void **state) {
    (void)state;
    changed_template("sumsq.c", "low += high;", "low += high;\n        low[0] += x[$n];");
    reported("READ of size 4");
}

// One that belongs to nobody's memory but the kernel's own stack.
static void stack_of_a_kernel(void **state) {
    (void)state;
    changed_template("clear.c", "int64_t end =",
                     "volatile float own[4], *at = own;\n"
                     "    at[tile_end + 4 - tile_begin] = 1;\n    int64_t end =");
    assert_int_not_equal(train(), 0);
    expect_error("AddressSanitizer: stack-buffer-overflow");
}

static void undefined_behaviour(void **state) {
    (void)state;
    changed_template("clear.c", "int64_t end =",
                     "volatile int32_t much = 2147483647;\n"
                     "    much += (int32_t)(tile_end - tile_begin);\n    int64_t end =");
    assert_int_not_equal(train(), 0);
    expect_error("runtime error: signed integer overflow");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unchanged),
        cmocka_unit_test(write_past_the_end),
        cmocka_unit_test(write_before_the_start),
        cmocka_unit_test(read_past_the_end),
        cmocka_unit_test(stack_of_a_kernel),
        cmocka_unit_test(undefined_behaviour),
    };
    return cmocka_run_group_tests_name("fence", tests, changed_make, NULL);
}
