// SPDX-License-Identifier: Apache-2.0
// Random programs against the reference: a few hundred of each kind, more in test_long_random.c.
#include "tests/vgpu/compare.h"

static void straight(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_90a", 1);
    for (uint64_t seed = 0; seed < 300; seed++) compare_program(&gpu, PROGRAM_STRAIGHT, seed);
    gpu_close(&gpu);
}

static void flow(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_90a", 1);
    for (uint64_t seed = 0; seed < 300; seed++) compare_program(&gpu, PROGRAM_FLOW, seed);
    // Warps that take turns after every instruction, in random order.
    for (uint64_t seed = 300; seed < 360; seed++) {
        vg_device_schedule(gpu.device, 1, seed);
        compare_program(&gpu, PROGRAM_FLOW, seed);
    }
    gpu_close(&gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(straight), cmocka_unit_test(flow) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
