// SPDX-License-Identifier: Apache-2.0
// mbarriers and bulk copies: a pipeline of one producer and three consumers of which each edit of a
// statement is reported; states, counts and parities step by step; copies out of shared memory.
#include "tests/vgpu/edit.h"

#include <stdio.h>

#define HEAD ".version 9.0\n.target sm_90\n.address_size 64\n"

/* a pipeline ----------------------------------------------------------------------------------- */

// Warp 0 copies tiles of 1 KiB into two stages, warps 1..3 add word t of each up. Parameters: in,
// out, tiles. Shared: stages at 0, full barriers at 2048 and 2056, empty ones at 2064 and 2072.
static const char pipeline[] = HEAD
    ".visible .entry k(.param .u64 in, .param .u64 out, .param .u64 tiles) {\n"
    ".reg .b64 %a, %o, %w; .reg .b32 %t, %n, %k, %s, %f, %e, %x, %v, %sum, %par, %d; .reg .pred "
    "%p, %q;\n"
    ".shared .align 128 .b8 buffer[2080];\n"
    "ld.param.u64 %a, [in]; ld.param.u64 %o, [out]; ld.param.u32 %n, [tiles]; mov.u32 %t, %tid.x;\n"
    "mov.u32 %s, buffer; setp.ne.u32 %p, %t, 0; @%p bra READY;\n"
    "mbarrier.init.shared::cta.b64 [%s+2048], 1; mbarrier.init.shared.b64 [%s+2056], 1;\n"
    "mbarrier.init.shared.b64 [%s+2064], 96; mbarrier.init.shared.b64 [%s+2072], 96; // init\n"
    "fence.mbarrier_init.release.cluster; fence.proxy.async;\n"
    "READY: bar.sync 0; // made\n mov.u32 %k, 0; mov.u32 %sum, 0; setp.ge.u32 %q, %t, 32; @%q bra "
    "CONSUMER;\n"
    "setp.ne.u32 %p, %t, 0; @%p bra END;\n"
    "PRODUCE: and.b32 %x, %k, 1; shl.b32 %d, %x, 10; add.u32 %d, %d, %s; shl.b32 %x, %x, 3; "
    "add.u32 %x, %x, %s;\n"
    "shr.u32 %par, %k, 1; and.b32 %par, %par, 1; xor.b32 %par, %par, 1;\n"
    "FREE: mbarrier.try_wait.parity.shared.b64 %p, [%x+2064], %par; // free\n @!%p bra FREE;\n"
    "mbarrier.arrive.expect_tx.shared.b64 _, [%x+2048], 1024; // expect\n"
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%d], [%a], 1024, "
    "[%x+2048]; // copy\n"
    "add.u64 %a, %a, 1024; add.u32 %k, %k, 1; setp.lt.u32 %p, %k, %n; @%p bra PRODUCE; bra END;\n"
    "CONSUMER: and.b32 %x, %k, 1; shl.b32 %d, %x, 10; add.u32 %d, %d, %s; shl.b32 %x, %x, 3; "
    "add.u32 %x, %x, %s;\n"
    "shr.u32 %par, %k, 1; and.b32 %par, %par, 1; mad.lo.u32 %d, %t, 4, %d;\n"
    "FULL: mbarrier.try_wait.parity.shared.b64 %p, [%x+2048], %par; // full\n @!%p bra FULL; // "
    "again\n"
    "ld.shared.u32 %v, [%d+256]; // use\n add.u32 %sum, %sum, %v; mbarrier.arrive.shared.b64 _, "
    "[%x+2064]; // done\n"
    "add.u32 %k, %k, 1; setp.lt.u32 %p, %k, %n; @%p bra CONSUMER;\n"
    "mul.wide.u32 %w, %t, 4; add.u64 %o, %o, %w; st.global.u32 [%o], %sum; END: ret; }\n";

static VgFault run_pipeline(Gpu *gpu, const Edit *edit, uint32_t *out) {
    uint32_t in[5 * 256], zeros[128] = { 0 };
    for (uint32_t i = 0; i < 5 * 256; i++) in[i] = i * 2654435761u;
    uint64_t a = gpu_put(gpu, in, sizeof in), o = gpu_put(gpu, zeros, sizeof zeros);
    edit_load(gpu, pipeline, edit);
    VgFault fault = gpu_launch(gpu, "k", 1, 128, 3, a, o, (uint64_t)5);
    gpu_get(gpu, o, out, sizeof zeros);
    return fault;
}

static void pipelines(void **state) {
    (void)state;
    uint32_t out[128];
    static const uint32_t quanta[] = { 2000, 1, 5 };
    for (int q = 0; q < COUNT_OF(quanta); q++) {
        Gpu gpu = gpu_open("sm_90", 1);
        vg_device_schedule(gpu.device, quanta[q], (uint64_t)q);
        VgFault fault = run_pipeline(&gpu, &(Edit){ "", "", VG_OK, { 0 } }, out);
        if (fault) fail_msg("%s", gpu_report(&gpu));
        for (uint32_t t = 32; t < 128; t++) {
            uint32_t sum = 0;
            for (uint32_t tile = 0; tile < 5; tile++) sum += (tile * 256 + t + 64) * 2654435761u;
            assert_int_equal(out[t], sum);
        }
        gpu_close(&gpu);
    }
}

static void pipeline_edits(void **state) {
    (void)state;
    static const Edit edits[] = {
        { "@!%p bra FULL; // again",
          "",
          VG_OK,
          { 0 } }, // try_wait blocks here; only seeds may fail it
        { "FULL: mbarrier.try_wait.parity.shared.b64 %p, [%x+2048], %par; // full\n @!%p bra FULL;",
          "nanosleep.u32 100; bra NAP; NAP:",
          VG_RACE,
          { "read of 4 bytes at shared", "an asynchronous write by block (0,0,0), warp 0",
            "// copy", "still in flight" } },
        { "FREE: mbarrier.try_wait.parity.shared.b64 %p, [%x+2064], %par; // free\n @!%p bra FREE;",
          "",
          VG_BARRIER,
          { "1 arrivals at an mbarrier at offset 2048 that expects 0 more in phase 0",
            "// expect" } },
        { "mbarrier.arrive.expect_tx.shared.b64 _, [%x+2048], 1024; // expect",
          "mbarrier.arrive.shared.b64 _, [%x+2048];",
          VG_RACE,
          { "an asynchronous write", "// use" } }, // the phase ends at once
        { "_, [%x+2048], 1024; // expect",
          "_, [%x+2048], 2048;",
          VG_DEADLOCK,
          { "mbarrier at shared offset 2048", "phase 0, 0 of 1 arrivals are missing",
            "2048 bytes are expected and 1024 in flight" } },
        { "_, [%x+2048], 1024; // expect",
          "_, [%x+2048], 1008;",
          VG_DEADLOCK,
          { "1008 bytes are expected and 1024 in flight" } },
        { "mbarrier.arrive.shared.b64 _, [%x+2064]; // done",
          "",
          VG_DEADLOCK,
          { "mbarrier at shared offset 2064", "96 of 96 arrivals are missing" } },
        { "mbarrier.arrive.shared.b64 _, [%x+2064]; // done",
          "mbarrier.arrive.shared.b64 _, [%x+2064], 5;",
          VG_BARRIER,
          { "5 arrivals at an mbarrier at offset", "expects 1 more" } },
        { "mbarrier.init.shared.b64 [%s+2072], 96; // init",
          "",
          VG_BARRIER,
          { "no mbarrier has been initialised at offset 2072" } },
        { "mbarrier.init.shared.b64 [%s+2072], 96; // init",
          "mbarrier.init.shared.b64 [%s+2064], 96;",
          VG_BARRIER,
          { "in use already" } },
        { "mbarrier.init.shared.b64 [%s+2072], 96; // init",
          "mbarrier.init.shared.b64 [%s+2068], 96;",
          VG_MISALIGNED,
          { "multiple of 8" } },
        { "mbarrier.init.shared.b64 [%s+2072], 96; // init",
          "mbarrier.init.shared.b64 [%s+2072], 0;",
          VG_BARRIER,
          { "a count of 0" } },
        { "READY: bar.sync 0; // made",
          "READY:",
          VG_RACE,
          { "used without a barrier after its initialisation" } },
        { "[%d], [%a], 1024, [%x+2048]; // copy",
          "[%d], [%a], 1000, [%x+2048];",
          VG_MISALIGNED,
          { "1000 bytes", "multiple of 16" } },
        { "[%d], [%a], 1024, [%x+2048]; // copy",
          "[%d+8], [%a], 1024, [%x+2048];",
          VG_MISALIGNED,
          { "multiples of 16" } },
        { "[%d], [%a], 1024, [%x+2048]; // copy",
          "[%d], [%a+4352], 1024, [%x+2048]; // copy",
          VG_ILLEGAL_ADDRESS,
          { "255 bytes past the end of test (5120 bytes)", "// copy" } },
        { "ld.shared.u32 %v, [%d+256]; // use",
          "ld.shared.u32 %v, [%s+2048];",
          VG_RACE,
          { "live mbarrier" } },
        { "add.u32 %sum, %sum, %v;",
          "add.u32 %sum, %sum, %v; st.shared.u32 [%d+256], %v;",
          VG_OK,
          { 0 } }, // its own word, before done
        { "add.u32 %k, %k, 1; setp.lt.u32 %p, %k, %n; @%p bra CONSUMER;",
          "st.shared.u32 [%d+256], %v; add.u32 %k, %k, 1; setp.lt.u32 %p, %k, %n; @%p bra "
          "CONSUMER;",
          VG_RACE,
          { "at shared", "by block (0,0,0), warp" } }, // after done
    };
    Gpu gpu = gpu_open("sm_90", 1);
    uint32_t out[128];
    for (int k = 0; k < COUNT_OF(edits); k++)
        edit_expect(&gpu, &edits[k], run_pipeline(&gpu, &edits[k], out));
    gpu_close(&gpu);
}

/* step by step --------------------------------------------------------------------------------- */

// One warp; %s is 64 bytes of shared memory, results go to out[0..7] by PUT.
static const char steps[] =
    HEAD ".visible .entry k(.param .u64 out, .param .u64 in) {\n"
         ".reg .b64 %o, %i, %st, %s2, %w; .reg .b32 %t, %s, %x, %y, %z; .reg .pred %p, %q, %l0; "
         ".shared .align 128 .b8 buffer[1024];\n"
         "ld.param.u64 %o, [out]; ld.param.u64 %i, [in]; mov.u32 %t, %tid.x; mov.u32 %s, buffer; "
         "setp.eq.u32 %l0, %t, 0; mov.u32 %z, 0;\n"
         "mul.wide.u32 %w, %t, 16; mad.lo.u32 %y, %t, 16, %s; add.u32 %y, %y, 512;\n"
         "BODY\nret; }\n";
#define P(at) "selp.u32 %x, 1, 0, %p; @%l0 st.global.u32 [%o+" #at "], %x;\n"
#define V(at) "@%l0 st.global.u32 [%o+" #at "], %x;\n"

typedef struct Step {
    const char *body;
    VgFault fault;
    const char *says;
    uint32_t want[8];
} Step;
static const Step rows[] = {
    // A fresh barrier: parity 1 passes, parity 0 does not; one arrival of 32 lanes turns it over.
    {
        "@%l0 mbarrier.init.shared.b64 [%s], 32; bar.sync 0; mbarrier.test_wait.parity.shared.b64 "
        "%p, [%s], 1;" P(0) "mbarrier.test_wait.parity.shared.b64 %p, [%s], 0;" P(
            4) "mbarrier.arrive.shared.b64 %st, [%s];"
               "mbarrier.test_wait.parity.shared.b64 %p, [%s], 0;" P(
                   8) "mbarrier.test_wait.shared.b64 %p, [%s], %st;" P(12) "mbarrier.test_wait."
                                                                           "parity.shared.b64 %p, "
                                                                           "[%s], 1;" P(16) "mbarri"
                                                                                            "er."
                                                                                            "pendin"
                                                                                            "g_"
                                                                                            "count."
                                                                                            "b64 "
                                                                                            "%x, "
                                                                                            "%st"
     ";" V(20),
        VG_OK,
        NULL,
        { 1, 0, 1, 1, 0, 32 } },
    { "@!%l0 exit; mbarrier.init.shared.b64 [%s], 4; mbarrier.arrive.shared.b64 %st, [%s], 3; "
      "mbarrier.pending_count.b64 %x, %st;" V(
          0) "mbarrier.arrive.noComplete.release.cta.shared.b64 %st, [%s], 1;",
      VG_BARRIER,
      ".noComplete completes",
      { 4 } },
    { "@!%l0 exit; mbarrier.init.shared.b64 [%s], 4; mbarrier.arrive.noComplete.shared.b64 %st, "
      "[%s], 3; mbarrier.arrive.shared.b64 %s2, [%s];"
      "mbarrier.pending_count.b64 %x, %s2;" V(0) "mbarrier.test_wait.shared.b64 %p, [%s], %st;" P(
          4),
      VG_OK,
      NULL,
      { 1, 1 } },
    // One that leaves: the next phase expects less.
    { "@!%l0 exit; mbarrier.init.shared.b64 [%s], 3; mbarrier.arrive_drop.shared.b64 _, [%s]; "
      "mbarrier.arrive.shared.b64 _, [%s], 2;"
      "mbarrier.arrive.shared.b64 %st, [%s], 2; mbarrier.pending_count.b64 %x, %st;" V(
          0) "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p, [%s], 1;" P(4),
      VG_OK,
      NULL,
      { 2, 1 } },
    // Transactions may come before they are expected; the phase waits for both.
    { "@!%l0 exit; mbarrier.init.shared.b64 [%s], 1; "
      "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%s], 64;"
      "mbarrier.arrive.shared.b64 _, [%s]; mbarrier.test_wait.parity.shared.b64 %p, [%s], 0;" P(
          0) "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%s], 64; "
             "mbarrier.test_wait.parity.shared.b64 %p, [%s], 0;" P(4),
      VG_OK,
      NULL,
      { 0, 1 } },
    { "@!%l0 exit; mbarrier.init.shared.b64 [%s], 1; "
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%s], 1048575;"
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%s], 1;",
      VG_BARRIER,
      "1048576 bytes outstanding",
      { 0 } },
    { "@!%l0 exit; mbarrier.init.shared.b64 [%s], 1; mbarrier.inval.shared.b64 [%s]; st.shared.u32 "
      "[%s], %z; ld.shared.u32 %x, [%s];" V(
          0) "mbarrier.init.shared.b64 [%s], 1; mbarrier.arrive.shared.b64 _, [%s];",
      VG_OK,
      NULL,
      { 0 } },
    { "@!%l0 exit; mbarrier.init.shared.b64 [%s], 1; mbarrier.inval.shared.b64 [%s]; "
      "mbarrier.arrive.shared.b64 _, [%s];",
      VG_BARRIER,
      "no mbarrier has been initialised",
      { 0 } },
    { "@%l0 mbarrier.init.shared.b64 [%s], 31; bar.sync 0; mbarrier.arrive.shared.b64 _, [%s]; "
      "mbarrier.test_wait.parity.shared.b64 %p, [%s], 0;" P(0),
      VG_OK,
      NULL,
      { 1 } }, // the 32nd is of the next phase
    { "@!%l0 exit; mbarrier.init.shared.b64 [%s], 2; mbarrier.arrive.shared.b64 _, [%s], 3;",
      VG_BARRIER,
      "3 arrivals at an mbarrier",
      { 0 } },
    { "@%l0 mbarrier.init.shared.b64 [%s], 33; bar.sync 0; mbarrier.arrive.shared.b64 %st, [%s];"
      "W: mbarrier.try_wait.shared.b64 %p, [%s], %st; @!%p bra W;",
      VG_DEADLOCK,
      "phase 0, 1 of 33 arrivals are missing",
      { 0 } },
    { "@%l0 mbarrier.init.shared.b64 [%s], 33; bar.sync 0; mbarrier.arrive.shared.b64 %st, [%s];"
      "W: mbarrier.test_wait.shared.b64 %p, [%s], %st; @!%p bra W;",
      VG_DEADLOCK,
      "spin",
      { 0 } },
    // Lanes that wait for different barriers; copies that nobody waits for.
    { "@%l0 mbarrier.init.shared.b64 [%s], 1; @%l0 mbarrier.init.shared.b64 [%s+8], 1; bar.sync 0; "
      "@%l0 mbarrier.arrive.expect_tx.shared.b64 _, [%s], 16; "
      "@%l0 mbarrier.arrive.expect_tx.shared.b64 _, [%s+8], 32; "
      "@%l0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%s+512], [%i], 16, [%s]; "
      "@%l0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%s+528], [%i+32], 32, [%s+8]; "
      "and.b32 %x, %t, 1; mad.lo.u32 %y, %x, 8, %s; "
      "W: mbarrier.try_wait.parity.shared.b64 %p, [%y], 0; @!%p bra W; "
      "ld.shared.u32 %x, [%s+528];" V(0),
      VG_OK,
      NULL,
      { 1008 } },
    { "@%l0 mbarrier.init.shared.b64 [%s], 32; bar.sync 0; add.u64 %w, %w, %i; "
      "cp.async.cg.shared.global [%y], [%w], 16; cp.async.mbarrier.arrive.noinc.shared.b64 [%s];",
      VG_OK,
      NULL,
      { 0 } },
    // cp.async that arrives when it is done: with and without an arrival of its own.
    { "@%l0 mbarrier.init.shared.b64 [%s], 32; bar.sync 0; add.u64 %w, %w, %i; "
      "cp.async.cg.shared.global [%y], [%w], 16;"
      "cp.async.mbarrier.arrive.noinc.shared.b64 [%s]; W: mbarrier.try_wait.parity.shared.b64 %p, "
      "[%s], 0; @!%p bra W;"
      "xor.b32 %x, %t, 31; shl.b32 %x, %x, 4; add.u32 %x, %x, %s; ld.shared.u32 %x, [%y+12];" V(0),
      VG_OK,
      NULL,
      { 1003 } },
    { "@%l0 mbarrier.init.shared.b64 [%s], 32; bar.sync 0; add.u64 %w, %w, %i; "
      "cp.async.cg.shared.global [%y], [%w], 16;"
      "cp.async.mbarrier.arrive.shared.b64 [%s]; mbarrier.arrive.shared.b64 %st, [%s]; W: "
      "mbarrier.try_wait.shared.b64 %p, [%s], %st; @!%p bra W;"
      "ld.shared.u32 %x, [%y+8];" V(0),
      VG_OK,
      NULL,
      { 1002 } },
    { "@%l0 mbarrier.init.shared.b64 [%s], 32; bar.sync 0; add.u64 %w, %w, %i; "
      "cp.async.cg.shared.global [%y], [%w], 16;"
      "cp.async.mbarrier.arrive.noinc.shared.b64 [%s]; ld.shared.u32 %x, [%y+8];",
      VG_RACE,
      "an asynchronous write",
      { 0 } },
    // Out of shared memory: in groups; .read gives the source back.
    { "st.shared.v4.u32 [%y], {%t, %t, %z, %t}; fence.proxy.async.shared::cta; bar.sync 0; @!%l0 "
      "exit; cp.async.bulk.prefetch.L2.global [%i], 512;"
      "cp.async.bulk.global.shared::cta.bulk_group [%i], [%s+512], 512; "
      "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"
      "st.shared.u32 [%s+512], %z; cp.async.bulk.wait_group 0; ld.global.u32 %x, [%i+496];" V(
          0) "ld.global.u32 %x, [%i+504];" V(4),
      VG_OK,
      NULL,
      { 31, 0 } },
    { "st.shared.v4.u32 [%y], {%t, %t, %z, %t}; fence.proxy.async.shared::cta; bar.sync 0; @!%l0 "
      "exit;"
      "cp.async.bulk.global.shared::cta.bulk_group [%i], [%s+512], 512; "
      "cp.async.bulk.commit_group; st.shared.u32 [%s+516], %z;"
      "cp.async.bulk.wait_group 0;",
      VG_RACE,
      "an asynchronous read",
      { 0 } },
    { "st.shared.v4.u32 [%y], {%t, %t, %z, %t}; fence.proxy.async.shared::cta; bar.sync 0; @!%l0 "
      "exit;"
      "cp.async.bulk.global.shared::cta.bulk_group [%i], [%s+512], 512; "
      "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"
      "ld.global.u32 %x, [%i];",
      VG_RACE,
      "an asynchronous write",
      { 0 } },
    { "st.shared.v4.u32 [%y], {%t, %t, %z, %t}; fence.proxy.async.shared::cta; bar.sync 0; @!%l0 "
      "exit;"
      "cp.async.bulk.global.shared::cta.bulk_group [%i], [%s+512], 512; "
      "cp.async.bulk.commit_group;",
      VG_BARRIER,
      "cp.async.bulk.wait_group.read is missing",
      { 0 } },
    { "@!%l0 exit; mbarrier.init.shared.b64 [%s], 1; mbarrier.arrive.expect_tx.shared.b64 _, [%s], "
      "512;"
      "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s+512], [%i], 512, [%s];",
      VG_BARRIER,
      "the block ends, and nobody has waited for this copy",
      { 0 } },
};

static void step_by_step(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_90", 1);
    for (int r = 0; r < COUNT_OF(rows); r++) {
        uint32_t in[128], out[8] = { 0 };
        for (uint32_t k = 0; k < 128; k++) in[k] = 1000 + k;
        uint64_t i = gpu_put(&gpu, in, sizeof in), o = gpu_put(&gpu, out, sizeof out);
        Edit edit = { "BODY", rows[r].body, rows[r].fault, { rows[r].says } };
        edit_load(&gpu, steps, &edit);
        edit_expect(&gpu, &edit, gpu_launch(&gpu, "k", 1, 32, 2, o, i));
        gpu_get(&gpu, o, out, sizeof out);
        for (int k = 0; k < 8 && !rows[r].fault; k++)
            if (out[k] != rows[r].want[k])
                fail_msg("%s: result %d is %u, not %u", rows[r].body, k, out[k], rows[r].want[k]);
    }
    gpu_close(&gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(pipelines),
                                        cmocka_unit_test(pipeline_edits),
                                        cmocka_unit_test(step_by_step) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
