// SPDX-License-Identifier: Apache-2.0
// Host threads of a device: launches of few and of many blocks right after they were started, and
// blocks on several threads that use the same memory at once. What is wrong here hangs, or is for
// ThreadSanitizer to see (./dev tsan).
#include "tests/vgpu/gpu.h"

static const char text[] =
    ".visible .entry count(.param .u64 data) {\n"
    ".reg .b64 at, own; .reg .b32 t, c, x;\n"
    "ld.param.u64 at, [data]; mov.u32 t, %tid.x; mov.u32 c, %ctaid.x;\n"
    "mad.lo.u32 x, c, 32, t; mul.wide.u32 own, x, 4; add.u64 own, at, own;\n"
    "ld.global.u32 x, [at+65536]; add.u32 x, x, t; st.global.u32 [own], x;\n" // one word for all
    "st.volatile.global.u32 [at+65540], c; ld.volatile.global.u32 x, [at+65540];\n"
    "atom.global.add.u32 x, [at+65544], 1;\n"
    "ret; }\n";

enum { THREADS = 4, WORDS = 65536 / 4, BLOCKS = 64 };

static void launch(Gpu *gpu, uint64_t data, uint32_t blocks, uint32_t *counted) {
    uint32_t got[32 * BLOCKS], tail[3];
    if (gpu_launch(gpu, "count", blocks, 32, 1, data)) fail_msg("%s", gpu_report(gpu));
    gpu_get(gpu, data, got, 128 * (size_t)blocks);
    gpu_get(gpu, data + 4 * WORDS, tail, sizeof tail);
    for (uint32_t k = 0; k < 32 * blocks; k++) assert_int_equal(got[k], 500 + k % 32);
    *counted += 32 * blocks;
    assert_true(tail[1] < blocks);
    assert_int_equal(tail[2], *counted);
}

static void late_helpers(void **state) {
    (void)state;
    for (int k = 0; k < 30; k++) {
        Gpu gpu = gpu_open("sm_80", THREADS);
        gpu_load(&gpu, text);
        uint32_t words[WORDS + 3] = { [WORDS] = 500 }, counted = 0;
        uint64_t data = gpu_put(&gpu, words, sizeof words);
        for (int l = 0; l < 6; l++) launch(&gpu, data, l % 2 ? THREADS : 1, &counted);
        gpu_close(&gpu);
    }
}

static void shared_words(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_80", THREADS);
    gpu_load(&gpu, text);
    uint32_t words[WORDS + 3] = { [WORDS] = 500 }, counted = 0;
    uint64_t data = gpu_put(&gpu, words, sizeof words);
    for (int l = 0; l < 20; l++) launch(&gpu, data, BLOCKS, &counted);
    gpu_close(&gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_helpers), cmocka_unit_test(shared_words),
    };
    return cmocka_run_group_tests_name("vgpu.pool", tests, NULL, NULL);
}
