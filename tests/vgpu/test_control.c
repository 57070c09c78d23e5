// SPDX-License-Identifier: Apache-2.0
// Divergence, calls, barriers and scheduling: kernels whose every lane's result is known, and
// misuse that must be reported.
#include "tests/vgpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

#define REGS                                                                                       \
    ".reg .b64 %rd<8>; .reg .b32 %r<32>; .reg .pred %p<8>; .reg .f32 %f<4>;\n"
#define ENTRY(name) \
    ".visible .entry " name "(.param .u64 out) {\n" REGS \
    "ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r9, %ctaid.x; mov.u32 %r8, " \
    "%ntid.x;\n" \
    "mad.lo.u32 %r9, %r9, %r8, %r1; mad.wide.u32 %rd2, %r9, 4, %rd1;\n"
#define STORE(r) "st.global.u32 [%rd2], " r ";\n"

// Runs kernel k with one output word per thread.
static void outputs(Gpu *gpu, const char *ptx, uint32_t blocks, uint32_t threads, uint32_t *out) {
    gpu_load(gpu, ptx);
    uint64_t at = gpu_alloc(gpu, 4ull * blocks * threads);
    VgFault fault = gpu_launch(gpu, "k", blocks, threads, 1, at);
    if (fault) fail_msg("%s", gpu_report(gpu));
    gpu_get(gpu, at, out, 4ull * blocks * threads);
}

static void expect_fault(Gpu *gpu, const char *ptx, uint32_t blocks, uint32_t threads, VgFault want,
                         const char *says) {
    gpu_load(gpu, ptx);
    uint64_t at = gpu_alloc(gpu, 4ull * blocks * threads);
    VgFault fault = gpu_launch(gpu, "k", blocks, threads, 1, at);
    if (fault != want || !strstr(gpu_report(gpu), says))
        fail_msg("fault %d, expected %d with '%s':\n%s", fault, want, says, gpu_report(gpu));
}

static void collatz(void **state) { // loops that lanes leave at different times, with an if inside
    Gpu *gpu = *state;
    uint32_t out[96];
    outputs(gpu,
            ENTRY("k") "add.u32 %r2, %r1, 1; mov.u32 %r3, 0;\n"
                       "LOOP: setp.eq.u32 %p1, %r2, 1; @%p1 bra DONE;\n"
                       "and.b32 %r4, %r2, 1; setp.ne.u32 %p2, %r4, 0; @%p2 bra ODD;\n"
                       "shr.u32 %r2, %r2, 1; bra NEXT;\n"
                       "ODD: mad.lo.u32 %r2, %r2, 3, 1;\n"
                       "NEXT: add.u32 %r3, %r3, 1; bra LOOP;\n"
                       "DONE: activemask.b32 %r5; popc.b32 %r5, %r5; mad.lo.u32 %r3, %r5, 1000, "
                       "%r3;" STORE("%r3") "ret; }",
            1, 90, out);
    for (uint32_t t = 0; t < 90; t++) {
        uint32_t n = t + 1, steps = 0;
        while (n != 1) n = n & 1 ? 3 * n + 1 : n / 2, steps++;
        uint32_t lanes = t / 32 == 2 ? 26 : 32; // all lanes have met again
        assert_int_equal(out[t], lanes * 1000 + steps);
    }
}

static void early_exit(void **state) { // lanes that left are not waited for
    Gpu *gpu = *state;
    uint32_t out[64];
    outputs(gpu,
            ENTRY("k") "setp.lt.u32 %p1, %r1, 7; @%p1 exit; and.b32 %r2, %r1, 1; setp.eq.u32 %p2, "
                       "%r2, 0;\n"
                       "@%p2 bra EVEN; setp.gt.u32 %p3, %r1, 20; @%p3 ret; EVEN: bar.sync 0; "
                       "activemask.b32 %r3;" STORE("%r3") "ret; }",
            1, 64, out);
    for (uint32_t t = 0; t < 64; t++) {
        bool lives = t >= 7 && !(t & 1 && t > 20);
        assert_int_equal(out[t], !lives ? 0 : t < 32 ? 0x555fff80 : 0x55555555);
    }
    outputs(gpu, // nor are those that went to the end, where all would have met
            ENTRY("k") "setp.gt.u32 %p1, %r1, 11; @%p1 bra END; bar.warp.sync -1;\n"
                       "shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;" STORE("%r3") "END: ret; }",
            1, 32, out);
    for (uint32_t t = 0; t < 32; t++) assert_int_equal(out[t], t < 12 ? t ^ 1 : 0);
}

static void switch_table(void **state) {
    Gpu *gpu = *state;
    uint32_t out[32];
    outputs(gpu,
            ENTRY("k") "rem.u32 %r2, %r1, 5; T: .branchtargets A, B, C, B, A; brx.idx %r2, T;\n"
                       "A: mov.u32 %r3, 100; bra END; B: mov.u32 %r3, 200; bra END; C: mov.u32 "
                       "%r3, 300;\n"
                       "END: activemask.b32 %r4; popc.b32 %r4, %r4; add.u32 %r3, %r3, %r4;" STORE(
                           "%r3") "ret; }",
            1, 32, out);
    static const uint32_t want[] = { 132, 232, 332, 232, 132 };
    for (int t = 0; t < 32; t++) assert_int_equal(out[t], want[t % 5]);
    expect_fault(gpu, ENTRY("k") "T: .branchtargets A, A; brx.idx %r1, T; A: ret; }", 1, 3,
                 VG_ILLEGAL_INSTRUCTION, "index 2 of 2");
}

static const char calls_text[] =
    ".func (.param .b32 r) fact(.param .b32 n);\n.func (.param .b32 r) twice(.param .b32 n);\n"
    ".global .u64 table[2] = {fact, twice};\n"
    ".func (.param .b32 r) fact(.param .b32 n) { .reg .b32 %a, %b; .reg .pred %p; ld.param.u32 %a, "
    "[n];\n"
    "setp.gt.u32 %p, %a, 1; @%p bra REC; st.param.b32 [r], 1; ret;\n"
    "REC: sub.u32 %b, %a, 1; { .param .b32 x; st.param.b32 [x], %b; .param .b32 y; call.uni (y), "
    "fact, (x); ld.param.b32 %b, [y]; }\n"
    "mul.lo.u32 %b, %b, %a; st.param.b32 [r], %b; ret; }\n"
    ".func (.param .b32 r) twice(.param .b32 n) { .reg .b32 %a; ld.param.u32 %a, [n]; shl.b32 %a, "
    "%a, 1; st.param.b32 [r+0], %a; ret; }\n" ENTRY(
        "k") "and.b32 %r2, %r1, 7; shr.u32 %r3, %r1, 3; and.b32 %r3, %r3, 1; mov.u64 %rd3, table; "
             "mad.wide.u32 %rd3, %r3, 8, %rd3;\n"
             "ld.global.u64 %rd4, [%rd3]; setp.ne.u32 %p1, %r2, 3; mov.u32 %r4, 77;\n"
             "{ .param .b32 x; st.param.b32 [x+0], %r2; .param .b32 y; st.param.b32 [y], %r4; P: "
             ".callprototype (.param .b32 _) _ (.param .b32 _);\n"
             "@%p1 call (y), %rd4, (x), P; ld.param.b32 %r4, [y]; }\n"
             "activemask.b32 %r5; popc.b32 %r5, %r5; shl.b32 %r5, %r5, 20; or.b32 %r4, %r4, "
             "%r5;" STORE("%r4") "ret; }";

static void calls(void **state) { // recursion of different depth, through pointers, under a guard
    Gpu *gpu = *state;
    uint32_t out[64];
    outputs(gpu, calls_text, 1, 64, out);
    for (uint32_t t = 0; t < 64; t++) {
        uint32_t n = t & 7, f = 1;
        for (uint32_t k = 2; k <= n; k++) f *= k;
        assert_int_equal(out[t], 32 << 20 | (n == 3 ? 77 : t >> 3 & 1 ? 2 * n : f));
    }
}

// A function of parameters that lie elsewhere than the call puts them, and a kernel, are not called.
static void wrong_calls(void **state) {
    Gpu *gpu = *state;
    static const char *const functions[] = { "longs", "ints", "three", "kernel" };
    for (int i = 0; i < COUNT_OF(functions); i++) {
        Text text = { 0 };
        text_printf(&text,
                    ".func longs(.param .b64 a, .param .b32 b) { ret; }\n"
                    ".func ints(.param .b32 a, .param .b64 b) { ret; }\n"
                    ".func three(.param .b32 a, .param .b32 b, .param .b32 c) { ret; }\n"
                    ".visible .entry kernel(.param .b64 a, .param .b32 b) { ret; }\n"
                    ".visible .entry k(.param .u64 p) { .reg .b64 %%f; mov.u64 %%f, %s;\n"
                    "{ .param .b64 x; st.param.b64 [x], 1; .param .b32 y; st.param.b32 [y], 2;"
                    " P: .callprototype _ (.param .b64 _, .param .b32 _); call %%f, (x, y), P; }\n"
                    "ret; }\n", functions[i]);
        gpu_load(gpu, text_cstr(&text));
        text_finish(&text);
        assert_int_equal(gpu_launch(gpu, "k", 1, 64, 1, (uint64_t)0),
                         i ? VG_ILLEGAL_INSTRUCTION : VG_OK);
        if (i)
            assert_non_null(strstr(gpu_report(gpu), i == 3 ? "which is a kernel"
                                                           : "a function of other parameters"));
    }
    assert_int_not_equal(gpu_try_load(gpu, ".visible .entry kernel() { ret; }\n"
                                      ".visible .entry k() { call kernel; ret; }\n"), OK);
    assert_non_null(strstr(status_message(), "kernels are not called"));
}

// A lock taken by one lane after the other: legal since lanes make progress on their own.
static void lock_in_a_warp(void **state) {
    Gpu *gpu = *state;
    uint32_t out[64];
    outputs(gpu,
            ".global .u32 lock; .global .u32 count;\n" ENTRY(
                "k") "mov.u64 %rd3, lock; mov.u64 %rd4, count;\n"
                     "SPIN: atom.global.acquire.gpu.cas.b32 %r2, [%rd3], 0, 1; setp.ne.u32 %p1, "
                     "%r2, 0; @%p1 bra SPIN;\n"
                     "ld.relaxed.gpu.global.u32 %r4, [%rd4]; add.u32 %r4, %r4, 1; "
                     "st.relaxed.gpu.global.u32 [%rd4], %r4;\n"
                     "st.release.gpu.global.u32 [%rd3], 0;" STORE("%r4") "ret; }",
            1, 64, out);
    uint64_t seen = 0;
    for (int t = 0; t < 64; t++) seen |= 1ull << (out[t] - 1);
    assert_int_equal(seen, ~0ull);
}

// Every block waits for the one before: needs all of them at once, more than host threads.
static void blocks_wait_for_blocks(void **state) {
    Gpu *gpu = *state;
    uint32_t out[24 * 32];
    outputs(gpu,
            ".global .u32 turn;\n" ENTRY(
                "k") "mov.u64 %rd3, turn; mov.u32 %r2, %ctaid.x; mov.u32 %r7, 23; sub.u32 %r2, "
                     "%r7, %r2; setp.ne.u32 %p1, %r1, 0; @%p1 bra WAIT;\n"
                     "SPIN: ld.acquire.gpu.global.u32 %r3, [%rd3]; setp.ne.u32 %p2, %r3, %r2; @%p2 "
                     "bra SPIN;\n"
                     "add.u32 %r3, %r3, 1; st.release.gpu.global.u32 [%rd3], %r3; WAIT: bar.sync "
                     "0;" STORE("%r2") "ret; }",
            24, 32, out);
    for (uint32_t t = 0; t < 24 * 32; t++) assert_int_equal(out[t], 23 - t / 32);
}

// The last block frees all others, which wait for it: it has to be resident with them. A block takes 48
// KiB of shared memory: 12 fit on the multiprocessors of these tests' device.
#define WAIT_FOR_LAST                                                                              \
    ".global .u32 flag;\n" ENTRY("k") ".shared .align 4 .b8 big[49152]; mov.u64 %rd3, flag; "      \
                                      "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x; "            \
                                      "sub.u32 %r3, %r3, 1; setp.ne.u32 %p1, %r2, %r3; "           \
                                      "@%p1 bra SPIN; mov.u32 %r4, 1; "                            \
                                      "st.release.gpu.global.u32 [%rd3], %r4; bra END;\n"          \
                                      "SPIN: ld.acquire.gpu.global.u32 %r4, [%rd3]; "              \
                                      "setp.eq.u32 %p2, %r4, 0; @%p2 bra SPIN; END:" STORE("%r4")  \
                                      "ret; }"
static void blocks_wait_for_one_that_is_not_resident(void **state) {
    Gpu *gpu = *state;
    uint32_t out[12 * 32];
    outputs(gpu, WAIT_FOR_LAST, 12, 32, out);
    for (uint32_t t = 0; t < 12 * 32; t++) assert_int_equal(out[t], 1);
    expect_fault(gpu, WAIT_FOR_LAST, 13, 32, VG_DEADLOCK,
                 "(0 of 13 blocks have ended, 12 are resident at once)");
}

static void named_barriers(void **state) { // producers arrive, consumers sync; then a reduction
    Gpu *gpu = *state;
    uint32_t out[128];
    outputs(
        gpu,
        ENTRY("k") ".shared .align 4 .b8 box[512]; mov.u32 %r2, box; mad.lo.u32 %r3, %r1, 4, %r2;\n"
                   "setp.ge.u32 %p1, %r1, 64; @%p1 bra CONSUME; mul.lo.u32 %r4, %r1, 3; "
                   "st.shared.u32 [%r3], %r4; bar.arrive 5, 128; mov.u32 %r5, 0; bra END;\n"
                   "CONSUME: bar.sync 5, 128; ld.shared.u32 %r5, [%r3+-256];\n"
                   "END: setp.eq.u32 %p2, %r5, 9; bar.red.popc.u32 %r6, 0, %p2; setp.lt.u32 %p3, "
                   "%r1, 128; bar.red.and.pred %p4, 0, %p3;\n"
                   "selp.u32 %r7, 1000, 0, %p4; bar.red.or.pred %p5, 0, %p2; selp.u32 %r8, 5000, "
                   "0, %p5; mad.lo.u32 %r6, %r6, 10000, %r7;\n"
                   "add.u32 %r6, %r6, %r8; add.u32 %r6, %r6, %r5;" STORE("%r6") "ret; }",
        1, 128, out);
    for (uint32_t t = 0; t < 128; t++)
        assert_int_equal(out[t], 10000 + 6000 + (t >= 64 ? (t - 64) * 3 : 0));
}

static void
warp_sync(void **state) { // halves that have parted meet at bar.warp.sync and at a shuffle
    Gpu *gpu = *state;
    uint32_t out[32];
    outputs(gpu,
            ENTRY("k") "setp.lt.u32 %p1, %r1, 16; @%p1 bra LOW; mov.u32 %r2, 1; bar.warp.sync -1; "
                       "add.u32 %r2, %r2, 10; bra BOTH;\n"
                       "LOW: mov.u32 %r2, 2; bar.warp.sync -1; add.u32 %r2, %r2, 20;\n"
                       "BOTH: shfl.sync.bfly.b32 %r3|%p2, %r2, 16, 31, -1;" STORE("%r3") "ret; }",
            1, 32, out);
    for (int t = 0; t < 32; t++) assert_int_equal(out[t], t < 16 ? 11 : 22);
}

static void misuse(void **state) {
    Gpu *gpu = *state;
    expect_fault(
        gpu,
        ENTRY("k") "setp.lt.u32 %p1, %r1, 16; @%p1 bra L; bar.sync 0; ret; L: bar.sync 1; ret; }",
        1, 32, VG_DIVERGED, "have diverged");
    expect_fault(gpu,
                 ENTRY("k") "setp.lt.u32 %p1, %r1, 16; @%p1 bra L; shfl.sync.idx.b32 %r2, %r1, 0, "
                            "31, 1; L: ret; }",
                 1, 32, VG_DIVERGED, "not in their membermask");
    expect_fault(gpu, ENTRY("k") "shfl.sync.idx.b32 %r2, %r1, 9, 31, 255; ret; }", 1, 8,
                 VG_DIVERGED, "do not take part");
    expect_fault(gpu, ENTRY("k") "setp.lt.u32 %p1, %r1, 64; @%p1 bra L; bar.sync 0, 64; L: ret; }",
                 1, 96, VG_DEADLOCK, "barrier 0: 32 of 64 threads arrived");
    expect_fault(gpu, ENTRY("k") "bar.arrive 3, 64; bar.arrive 3, 64; ret; }", 1, 32, VG_BARRIER,
                 "expected a multiple of 32");
    expect_fault(gpu, ENTRY("k") "bar.arrive 3, 64; bar.arrive 3, 64; ret; }", 1, 64, VG_BARRIER,
                 "arrived in this phase");
    expect_fault(gpu, ENTRY("k") "bar.sync 16; ret; }", 1, 32, VG_BARRIER, "there are 16");
    expect_fault(gpu, ENTRY("k") "setp.lt.u32 %p1, %r1, 4; @%p1 bra.uni L; L: ret; }", 1, 32,
                 VG_DIVERGED, "bra.uni");
    expect_fault(gpu, ENTRY("k") "setp.eq.u32 %p1, %r1, 37; @%p1 trap; ret; }", 1, 64, VG_TRAP,
                 "lane 5, thread (37,0,0)");
    expect_fault(
        gpu,
        ".global .u32 flag;" ENTRY("k") "mov.u64 %rd3, flag; S: ld.volatile.global.u32 %r2, "
                                        "[%rd3]; setp.eq.u32 %p1, %r2, 0; @%p1 bra S; ret; }",
        3, 64, VG_DEADLOCK, "spin on memory that nobody will change");
    expect_fault(gpu,
                 ".func f(.param .b32 n) { .reg .b32 %a; ld.param.u32 %a, [n]; { .param .b32 x; "
                 "st.param.b32 [x], %a; call f, (x); } ret; }\n" ENTRY(
                     "k") "{ .param .b32 x; st.param.b32 [x], %r1; call f, (x); } ret; }",
                 1, 32, VG_ILLEGAL_ADDRESS, "nested too deeply");
}

// The system's part of shared memory: behind the kernel's own, zero at the start of every block.
#define RESERVED(body)                                                                             \
    "{ .shared .align 4 .b8 own[200];\n"                                                           \
    "mov.u32 %r2, %reserved_smem_offset_1; mov.u32 %r3, own; mov.u32 %r6, 7;\n" body " }\n"
static void system_shared(void **state) {
    Gpu *gpu = *state;
    uint32_t out[8];
    outputs(gpu, // thread t: word t is zero, then counts; own memory begins 256 bytes before
            ENTRY("k") RESERVED("mad.lo.u32 %r4, %r1, 4, %r2; atom.shared.add.u32 %r5, [%r4], 5;"
                                "ld.shared.u32 %r6, [%r4]; mad.lo.u32 %r6, %r5, 100, %r6;"
                                "sub.u32 %r7, %r2, %r3; mad.lo.u32 %r6, %r7, 1000, %r6;")
                STORE("%r6") "ret; }",
            2, 4, out);
    for (int t = 0; t < 8; t++) assert_int_equal(out[t], 256005);
    outputs(gpu,
            ENTRY("k") RESERVED("mov.u32 %r4, %reserved_smem_offset_begin; sub.u32 %r4, %r4, %r2;"
                                "mov.u32 %r5, %reserved_smem_offset_end; sub.u32 %r5, %r5, %r2;"
                                "mov.u32 %r6, %reserved_smem_offset_cap; sub.u32 %r6, %r6, %r2;"
                                "mad.lo.u32 %r6, %r5, 10000, %r6; add.u32 %r6, %r6, %r4;")
                STORE("%r6") "ret; }",
            1, 1, out);
    assert_int_equal(out[0], 2881024);
    expect_fault(gpu,
                 ENTRY("k") RESERVED("st.shared.u32 [%r2+284], %r6; ld.shared.u32 %r6, [%r2+288];")
                     STORE("%r6") "ret; }",
                 1, 1, VG_ILLEGAL_ADDRESS, "read of 4 bytes at shared");
    expect_fault(gpu, // the kernel's own memory starts unwritten all the same
                 ENTRY("k") RESERVED("ld.shared.u32 %r6, [%r3+196];") STORE("%r6") "ret; }", 1, 1,
                 VG_UNINITIALISED, "read of 4 bytes at shared");
    expect_fault(gpu, // and ends there where nothing is said of the system's
                 ENTRY("k") "{ .shared .align 4 .b8 own[200]; mov.u32 %r3, own; mov.u32 %r6, 7;\n"
                            "st.shared.u32 [%r3+256], %r6; }" STORE("%r6") "ret; }",
                 1, 1, VG_ILLEGAL_ADDRESS, "shared memory of 200 bytes");
}

// The same results whatever the order of warps and splits.
static void any_schedule(void **state) {
    (void)state;
    for (uint32_t quantum = 1; quantum < 3000; quantum = quantum * 5 + 1) {
        Gpu gpu = gpu_open("sm_80", 2);
        vg_device_schedule(gpu.device, quantum, quantum);
        void *p = &gpu;
        collatz(&p);
        calls(&p);
        named_barriers(&p);
        warp_sync(&p);
        lock_in_a_warp(&p);
        blocks_wait_for_blocks(&p);
        gpu_close(&gpu);
    }
}

static Gpu gpu;
static int setup(void **state) { gpu = gpu_open("sm_80", 2); *state = &gpu; return 0; }
static int teardown(void **state) { gpu_close(*state); return 0; }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collatz),        cmocka_unit_test(early_exit),
        cmocka_unit_test(switch_table),   cmocka_unit_test(calls),
        cmocka_unit_test(wrong_calls),
        cmocka_unit_test(lock_in_a_warp), cmocka_unit_test(blocks_wait_for_blocks),
        cmocka_unit_test(blocks_wait_for_one_that_is_not_resident),
        cmocka_unit_test(named_barriers), cmocka_unit_test(warp_sync),
        cmocka_unit_test(misuse),         cmocka_unit_test(any_schedule),
        cmocka_unit_test(system_shared),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
