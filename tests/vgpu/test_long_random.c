// SPDX-License-Identifier: Apache-2.0
// Ten thousand random programs against the reference, half of them of control flow, under schedules
// from one instruction at a time to none at all.
#include "tests/vgpu/compare.h"

static void thousands(ProgramKind kind) {
    Gpu gpu = gpu_open("sm_90a", 1);
    for (uint64_t seed = 1000; seed < 6000; seed++) {
        static const uint32_t quantum[] = { 2000, 1, 3, 17 };
        vg_device_schedule(gpu.device, quantum[seed % 4], seed % 8 < 4 ? 0 : seed);
        compare_program(&gpu, kind, seed);
    }
    gpu_close(&gpu);
}

static void straight(void **state) {
    (void)state;
    thousands(PROGRAM_STRAIGHT);
}

static void flow(void **state) {
    (void)state;
    thousands(PROGRAM_FLOW);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(straight), cmocka_unit_test(flow) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
