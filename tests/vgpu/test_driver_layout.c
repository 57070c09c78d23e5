// SPDX-License-Identifier: Apache-2.0
// Constants and layouts of the driver API against NVIDIA's header, and against themselves: tables
// have no value twice, and error names are those of the table.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/vgpu/api.h"
#include "tests/vgpu/layout.h"

static void test_against_nvidia(void **state) {
    (void)state;
    if (!layout_theirs[0].name) {
        print_message("skipped: no cuda.h of CUDA 13 in the compiler's search path\n");
        skip();
    }
    int n = 0, wrong = 0;
    for (; layout_ours[n].name; n++) {
        assert_string_equal(layout_ours[n].name, layout_theirs[n].name);
        if (layout_ours[n].value == layout_theirs[n].value) continue;
        print_error("%s: %lld, NVIDIA's is %lld\n", layout_ours[n].name, layout_ours[n].value,
                    layout_theirs[n].value);
        wrong++;
    }
    assert_null(layout_theirs[n].name);
    assert_true(n > 300);
    assert_int_equal(wrong, 0);
}

// Figures that any 64-bit build has, toolkit or not.
static void test_known(void **state) {
    (void)state;
    static const Layout known[] = {
        { "sizeof CUlaunchConfig", 56 },          { "CUlaunchConfig.hStream", 32 },
        { "sizeof CUlaunchAttribute", 72 },       { "CUlaunchAttribute.value", 8 },
        { "sizeof CUDA_MEMCPY3D", 200 },          { "sizeof CUDA_MEMCPY2D", 128 },
        { "sizeof CUDA_KERNEL_NODE_PARAMS", 72 }, { "sizeof CUgraphNodeParams", 256 },
        { "CUDA_ERROR_ILLEGAL_ADDRESS", 700 },    { "CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH", 120 },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const Layout *row = layout_ours;
        while (row->name && strcmp(row->name, known[i].name)) row++;
        assert_non_null(row->name);
        if (row->value != known[i].value)
            fail_msg("%s: %lld, not %lld", row->name, row->value, known[i].value);
    }
}

static void test_names(void **state) {
    (void)state;
    api_open();
    const char *name, *text;
#define X(symbol, value, meaning)                                                                  \
    MUST(api.cuGetErrorName(value, &name));                                                        \
    assert_string_equal(name, "CUDA_" #symbol);                                                    \
    MUST(api.cuGetErrorString(value, &text));                                                      \
    assert_true(strlen(text) > 3);
    CUDA_RESULTS(X)
#undef X
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_nvidia),
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
