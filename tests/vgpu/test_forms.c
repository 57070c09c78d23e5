// SPDX-License-Identifier: Apache-2.0
// Every arithmetic form by itself over edge values, against the reference.
#include "tests/vgpu/compare.h"

static void one(void **state) {
    Gpu gpu = gpu_open("sm_90a", 1);
    compare_form(&gpu, *(int *)*state);
    gpu_close(&gpu);
}

int main(void) {
    static struct CMUnitTest tests[1000];
    static int numbers[1000];
    for (int i = 0; i < program_n_forms; i++) {
        numbers[i] = i;
        tests[i] = (struct CMUnitTest){ program_forms[i].op, one, NULL, NULL, &numbers[i] };
    }
    return _cmocka_run_group_tests("forms", tests, (size_t)program_n_forms, NULL, NULL);
}
