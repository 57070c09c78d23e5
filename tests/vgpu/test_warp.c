// SPDX-License-Identifier: Apache-2.0
// Instructions across lanes: every shuffle mode and width against its definition, votes, match,
// redux, elect; clocks move.
#include "tests/vgpu/gpu.h"

#include <stdio.h>

static Gpu gpu;

static void shuffles(void **state) {
    (void)state;
    static const char *const modes[] = { "up", "down", "bfly", "idx" };
    uint64_t a[32], b[32], d[32];
    for (int mode = 0; mode < 4; mode++)
        for (uint32_t width = 4; width <= 32; width *= 2)
            for (uint32_t by = 0; by < 33; by++) {
                uint32_t c = (32 - width) << 8 | (mode == 0 ? 0 : 31);
                char text[160];
                snprintf(text, sizeof text,
                         "{ .reg .pred q; .reg .b32 t; shfl.sync.%s.b32 t|q, a, b, %u, -1; "
                         "selp.u32 d, 1000, 0, q; add.u32 d, d, t; }",
                         modes[mode], c);
                for (uint32_t l = 0; l < 32; l++) a[l] = 40 + l * 3, b[l] = by, d[l] = 0;
                gpu_op(&gpu, &(GpuOp){ text, 32, 32, 32, 0 }, 32, a, b, NULL, d);
                for (int l = 0; l < 32; l++) {
                    int n = (int)(by & 31), base = l & ~(int)(width - 1),
                        end = base + (int)width - 1;
                    int from = mode == 0   ? l - n
                               : mode == 1 ? l + n
                               : mode == 2 ? l ^ n
                                           : base | (n & (int)(width - 1));
                    bool in = mode == 0 ? from >= base : from <= end;
                    if (mode == 2 && from < base) in = true; // bfly below the segment passes
                    if (!in) from = l;
                    if (d[l] != (in ? 1000u : 0) + 40 + (uint32_t)from * 3)
                        fail_msg("%s width %u by %u lane %d: %llu", modes[mode], width, by, l,
                                 (unsigned long long)d[l]);
                }
            }
}

static void votes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t want[3];
    } rows[] = {
        // none, some (lanes 3, 17), all
        { "vote.sync.all.pred d, a, -1;", { 0, 0, 1 } },
        { "vote.sync.any.pred d, a, -1;", { 0, 1, 1 } },
        { "vote.sync.uni.pred d, a, -1;", { 1, 0, 1 } },
        { "vote.sync.all.pred d, !a, -1;", { 1, 0, 0 } },
        { "vote.sync.ballot.b32 d, a, -1;", { 0, 0x20008, 0xffffffff } },
        { "vote.sync.ballot.b32 d, !a, 0xffffffff;", { 0xffffffff, 0xfffdfff7, 0 } },
    };
    for (int r = 0; r < COUNT_OF(rows); r++)
        for (int which = 0; which < 3; which++) {
            uint64_t a[32], d[32] = { 0 };
            for (int l = 0; l < 32; l++) a[l] = which == 2 || (which == 1 && (l == 3 || l == 17));
            gpu_op(&gpu, &(GpuOp){ rows[r].text, strstr(rows[r].text, "ballot") ? 32 : 1, 1, 0, 0 },
                   32, a, NULL, NULL, d);
            for (int l = 0; l < 32; l++) assert_int_equal(d[l], rows[r].want[which]);
        }
}

static void matches_and_reductions(void **state) {
    (void)state;
    uint64_t a[32], d[32];
    for (uint32_t l = 0; l < 32; l++) a[l] = (l % 5 == 4 ? 0x80000000u : 0) + l % 5, d[l] = 0;
    uint64_t wide[32];
    for (int l = 0; l < 32; l++) wide[l] = (uint64_t)(l % 2) << 40;
    gpu_op(&gpu, &(GpuOp){ "match.any.sync.b32 d, a, -1;", 32, 32, 0, 0 }, 32, a, NULL, NULL, d);
    for (int l = 0; l < 32; l++) {
        uint32_t want = 0;
        for (int k = 0; k < 32; k++) want |= (uint32_t)(k % 5 == l % 5) << k;
        assert_int_equal(d[l], want);
    }
    gpu_op(&gpu, &(GpuOp){ "match.any.sync.b64 d, a, -1;", 32, 64, 0, 0 }, 32, wide, NULL, NULL, d);
    for (int l = 0; l < 32; l++) assert_int_equal(d[l], l % 2 ? 0xaaaaaaaa : 0x55555555);
    gpu_op(&gpu,
           &(GpuOp){ "{ .reg .pred q; match.all.sync.b32 d|q, a, -1; selp.u32 d, 7, d, q; }", 32,
                     32, 0, 0 },
           32, a, NULL, NULL, d);
    for (int l = 0; l < 32; l++) assert_int_equal(d[l], 0);
    static const struct { const char *text; uint32_t want;
    } rows[] = {
        { "redux.sync.add.s32 d, a, -1;", 61 },
        { "redux.sync.min.s32 d, a, -1;", 0x80000004 },
        { "redux.sync.max.s32 d, a, -1;", 3 },
        { "redux.sync.min.u32 d, a, -1;", 0 },
        { "redux.sync.max.u32 d, a, -1;", 0x80000004 },
        { "redux.sync.and.b32 d, a, -1;", 0 },
        { "redux.sync.or.b32 d, a, -1;", 0x80000007 },
        { "redux.sync.xor.b32 d, a, -1;", 0 },
    };
    for (int r = 0; r < COUNT_OF(rows); r++) {
        uint32_t want = rows[r].want;
        if (r == 0 || r == 7) {
            want = 0;
            for (int l = 0; l < 32; l++) want = r ? want ^ (uint32_t)a[l] : want + (uint32_t)a[l];
        }
        gpu_op(&gpu, &(GpuOp){ rows[r].text, 32, 32, 0, 0 }, 32, a, NULL, NULL, d);
        for (int l = 0; l < 32; l++) assert_int_equal(d[l], want);
    }
}

static void tiles(void **state) { // groups of 8 lanes, each naming itself
    (void)state;
    uint64_t a[32], b[32], d[32];
    static const char *const texts[] = {
        "shfl.sync.down.b32 d, a, 1, 0x181f, b;",
        "redux.sync.add.u32 d, a, b;",
        "match.any.sync.b32 d, a, b;",
        "{ .reg .pred q; setp.eq.s32 q, a, 13; vote.sync.ballot.b32 d, q, b; }",
    };
    for (int t = 0; t < 4; t++) {
        for (uint32_t l = 0; l < 32; l++) a[l] = l, b[l] = 0xffu << (l & 24), d[l] = 0;
        gpu_op(&gpu, &(GpuOp){ texts[t], 32, 32, 32, 0 }, 32, a, b, NULL, d);
        for (uint32_t l = 0; l < 32; l++) {
            uint32_t first = l & 24, sum = 8 * first + 28;
            uint32_t want = t == 0       ? (l & 7) == 7 ? l : l + 1
                            : t == 1     ? sum
                            : t == 2     ? 1u << l
                            : first == 8 ? 1u << 13
                                         : 0;
            assert_int_equal(d[l], want);
        }
    }
}

static void elections(void **state) {
    (void)state;
    const char *text = "{ .reg .pred q; .reg .b32 t; setp.ne.s32 q, a, 0; @!q bra OUT; elect.sync "
                       "t|q, b; selp.u32 d, 100, 0, q; add.u32 d, d, t; OUT: }";
    int other = 0;
    for (uint64_t seed = 0; seed < 8; seed++) {
        Gpu ninety = gpu_open("sm_90", 1);
        vg_device_schedule(ninety.device, 2000, seed);
        uint64_t a[32], b[32], d[32];
        uint32_t members = 0x00ff00f0, leader = 99;
        for (int l = 0; l < 32; l++) a[l] = members >> l & 1, b[l] = members, d[l] = 55;
        gpu_op(&ninety, &(GpuOp){ text, 32, 32, 32, 0 }, 32, a, b, NULL, d);
        for (uint32_t l = 0; l < 32; l++) if (d[l] >= 100) leader = l;
        assert_true(leader < 32 && members >> leader & 1);
        for (uint32_t l = 0; l < 32; l++)
            assert_int_equal(d[l], !a[l] ? 55 : (l == leader ? 100 : 0) + leader);
        if (!seed) assert_int_equal(leader, 4);
        other += leader != 4;
        gpu_close(&ninety);
    }
    assert_true(other > 2);
}

static void clocks(void **state) {
    (void)state;
    uint64_t d[32] = { 0 };
    gpu_op(&gpu,
           &(GpuOp){ "{ .reg .b64 s, t; mov.u64 s, %clock64; nanosleep.u32 20; mov.u64 t, "
                     "%clock64; sub.u64 d, t, s; }",
                     64, 0, 0, 0 },
           32, NULL, NULL, NULL, d);
    for (int l = 0; l < 32; l++) assert_true(d[l] > 0 && d[l] < 1000000);
    uint64_t e[32] = { 0 };
    gpu_op(&gpu,
           &(GpuOp){ "{ .reg .b32 m; mov.u32 d, %laneid; mov.u32 m, %lanemask_le; popc.b32 m, m; "
                     "mad.lo.u32 d, m, 100, d; mov.u32 m, WARP_SZ; mad.lo.u32 d, m, 10000, d; }",
                     32, 0, 0, 0 },
           32, NULL, NULL, NULL, e);
    for (uint32_t l = 0; l < 32; l++) assert_int_equal(e[l], 320000 + (l + 1) * 100 + l);
}

static int setup(void **state) { (void)state; gpu = gpu_open("sm_80", 1); return 0; }
static int teardown(void **state) { (void)state; gpu_close(&gpu); return 0; }

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(shuffles),
                                        cmocka_unit_test(votes),
                                        cmocka_unit_test(matches_and_reductions),
                                        cmocka_unit_test(tiles),
                                        cmocka_unit_test(elections),
                                        cmocka_unit_test(clocks) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
