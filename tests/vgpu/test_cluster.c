// SPDX-License-Identifier: Apache-2.0
// Clusters: addresses in other blocks, reads, writes and atomics there, the cluster's barrier,
// arrivals and bulk copies across blocks, multicast; and what is reported when a statement is
// missing.
#include "tests/vgpu/edit.h"

#include <stdio.h>

// Four blocks of 32 in clusters of CLUSTER; out[block * 32 + t]. Registers as the bodies need them.
static const char text[] =
    ".version 9.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry k(.param .u64 out, .param .u64 in) .reqnctapercluster CLUSTER {\n"
    ".reg .b64 %o, %i, %w, %g, %st; .reg .b32 %t, %c, %s, %r, %n, %x, %y, %z, %peer, %far; .reg "
    ".pred %p, %l0, %b0;\n"
    ".shared .align 128 .b8 buffer[512];\n"
    "ld.param.u64 %o, [out]; ld.param.u64 %i, [in]; mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; "
    "mov.u32 %s, buffer;\n"
    "mad.lo.u32 %x, %c, 32, %t; mul.wide.u32 %w, %x, 4; add.u64 %o, %o, %w; mov.u32 %r, "
    "%cluster_ctarank; mov.u32 %n, %cluster_nctarank;\n"
    "add.u32 %peer, %r, 1; rem.u32 %peer, %peer, %n; mapa.shared::cluster.u32 %far, %s, %peer; "
    "mad.lo.u32 %y, %t, 4, %s; mad.lo.u32 %far, %t, 4, %far;\n"
    "mov.u32 %z, 0; setp.eq.u32 %l0, %t, 0; setp.eq.u32 %b0, %r, 0; mul.lo.u32 %x, %c, 100; "
    "add.u32 %x, %x, %t;\n"
    "BODY\nret; }\n";
#define SYNC "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; "
#define OUT "st.global.u32 [%o], %x; "
// Word of the next block of the cluster.
#define NEXT "ld.shared::cluster.u32 %x, [%far]; "

static const char *body_text(Text *t, const char *cluster, const char *body) {
    const char *at = strstr(text, "CLUSTER"), *where = strstr(text, "BODY");
    text_add_n(t, text, (size_t)(at - text));
    text_add(t, cluster);
    text_add_n(t, at + 7, (size_t)(where - at - 7));
    text_add(t, body);
    text_add(t, where + 4);
    return text_cstr(t);
}

static VgFault run(Gpu *gpu, const char *cluster, const char *body, uint32_t *out) {
    uint32_t in[256];
    for (uint32_t k = 0; k < 256; k++) in[k] = 5000 + k, out[k % 128] = 0;
    uint64_t o = gpu_put(gpu, out, 512), i = gpu_put(gpu, in, sizeof in);
    Text t = { 0 };
    gpu_load(gpu, body_text(&t, cluster, body));
    text_finish(&t);
    VgFault fault = gpu_launch(gpu, "k", 4, 32, 2, o, i);
    gpu_get(gpu, o, out, 512);
    return fault;
}

typedef uint32_t Want(uint32_t block, uint32_t t, uint32_t n); // n: blocks of a cluster
static uint32_t next_of(uint32_t block, uint32_t n) {
    return block / n * n + (block % n + 1) % n;
}
static uint32_t want_next(uint32_t b, uint32_t t, uint32_t n) {
    return next_of(b, n) * 100 + t;
}
static uint32_t want_previous(uint32_t b, uint32_t t, uint32_t n) {
    return (b / n * n + (b % n + n - 1) % n) * 100 + t;
}
static uint32_t want_sum(uint32_t b, uint32_t t, uint32_t n) {
    (void)b;
    return n * (t + 1);
}
static uint32_t want_rank(uint32_t b, uint32_t t, uint32_t n) {
    (void)t;
    return b % n * 10 + (b % n + 1) % n;
}
static uint32_t want_in(uint32_t b, uint32_t t, uint32_t n) {
    (void)b, (void)n;
    return 5000 + t;
}

#define BARRIER                                                                                    \
    "@%l0 mbarrier.init.shared.b64 [%s+256], 1; fence.mbarrier_init.release.cluster; " SYNC
#define WAIT_IT                                                                                    \
    "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p, [%s+256], 0; @!%p bra W; "
static const struct {
    const char *body;
    Want *want;
} good[] = {
    { "st.shared.u32 [%y], %x; " SYNC NEXT OUT SYNC, want_next },
    { "st.shared.u32 [%y], %x; barrier.cluster.arrive.release.aligned; add.u32 %z, %z, 1; "
      "barrier.cluster.wait.acquire.aligned; " NEXT OUT SYNC,
      want_next },
    { "st.shared::cluster.u32 [%far], %x; " SYNC "ld.shared.u32 %x, [%y]; " OUT, want_previous },
    { "st.shared.u32 [%y], %x; " SYNC
      "cvt.u64.u32 %g, %far; cvta.shared.u64 %g, %g; ld.u32 %x, [%g]; " OUT SYNC,
      want_next }, // generic
    { "st.shared.u32 [%y], %x; " SYNC
      "cvt.u64.u32 %g, %y; cvta.shared.u64 %g, %g; mapa.u64 %g, %g, %peer; ld.u32 %x, [%g]; " OUT
          SYNC,
      want_next },
    { "st.shared.u32 [%y], %z; " SYNC "mapa.shared::cluster.u32 %far, %y, %z; add.u32 %x, %t, 1; "
                                      "atom.shared::cluster.cluster.add.u32 %x, [%far], %x; " SYNC
      "ld.shared::cluster.u32 %x, [%far]; " OUT SYNC,
      want_sum },
    { "getctarank.shared::cluster.u32 %x, %far; getctarank.shared::cluster.u32 %z, %y; mad.lo.u32 "
      "%x, %z, 10, %x; " OUT,
      want_rank },
    { "griddepcontrol.launch_dependents; griddepcontrol.wait; getctarank.shared::cluster.u32 %x, "
      "%far; mad.lo.u32 %x, %r, 10, %x; " OUT,
      want_rank },
    // The next block's mbarrier, from here; then its word is read there.
    { BARRIER "st.shared::cluster.u32 [%far], %x; mapa.shared::cluster.u32 %far, %s, %peer; "
              "bar.warp.sync -1; @%l0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, "
              "[%far+256]; " WAIT_IT "ld.shared.u32 %x, [%y]; " OUT SYNC,
      want_previous },
    // Shared memory to shared memory, in bulk.
    { "st.shared.u32 [%y], %x; fence.proxy.async; " BARRIER
      "mapa.shared::cluster.u32 %far, %s, %peer; @%l0 mbarrier.arrive.expect_tx.shared.b64 _, "
      "[%s+256], 128; " SYNC
      "@%l0 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%far+128], "
      "[%s], 128, [%far+256]; " WAIT_IT "ld.shared.u32 %x, [%y+128]; " OUT SYNC,
      want_previous },
    // One block fetches for all.
    { BARRIER
      "@%l0 mbarrier.arrive.expect_tx.shared.b64 _, [%s+256], 128; " SYNC
      "setp.eq.and.u32 %p, %t, 0, %b0; mov.u32 %z, 1; shl.b32 %z, %z, %n; sub.u32 %z, %z, 1; "
      "cvt.u16.u32 MASK, %z; "
      "@%p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%s], [%i], 128, [%s+256], MASK; " WAIT_IT "ld.shared.u32 %x, [%y]; " OUT SYNC,
      want_in },
};

static const char *with_mask(const char *body, Text *t) {
    text_add(t, "{ .reg .b16 MASK; ");
    text_add(t, body);
    text_add(t, " }");
    return text_cstr(t);
}

static void correct(void **state) {
    (void)state;
    static const struct {
        const char *cluster;
        uint32_t n;
    } sizes[] = { { "1", 1 }, { "2", 2 }, { "4", 4 } };
    uint32_t out[128];
    for (int s = 0; s < COUNT_OF(sizes); s++)
        for (int k = 0; k < COUNT_OF(good); k++)
            for (uint32_t quantum = 1; quantum <= 2001; quantum += 1000) {
                Gpu gpu = gpu_open("sm_90", 1);
                Text t = { 0 };
                vg_device_schedule(gpu.device, quantum, 0);
                VgFault fault = run(&gpu, sizes[s].cluster, with_mask(good[k].body, &t), out);
                if (fault)
                    fail_msg("cluster %s: %s\n%s", sizes[s].cluster, good[k].body,
                             gpu_report(&gpu));
                for (uint32_t i = 0; i < 128; i++) {
                    uint32_t want = good[k].want(i / 32, i % 32, sizes[s].n);
                    if (out[i] != want)
                        fail_msg("cluster %s: %s\nblock %u, thread %u: %u, not %u",
                                 sizes[s].cluster, good[k].body, i / 32, i % 32, out[i], want);
                }
                text_finish(&t);
                gpu_close(&gpu);
            }
}

static const struct {
    const char *body;
    VgFault fault;
    const char *says;
} bad[] = {
    { "st.shared.u32 [%y], %x; " NEXT OUT SYNC, VG_UNINITIALISED, "read of 4 bytes at shared" },
    { "st.shared.u32 [%y], %x; bar.sync 0; st.shared::cluster.u32 [%far], %x; " SYNC, VG_RACE,
      "write of 4 bytes at shared" },
    { "st.shared.u32 [%y], %x; barrier.cluster.arrive.relaxed.aligned; "
      "barrier.cluster.wait.aligned; " NEXT SYNC,
      VG_RACE, "read of 4 bytes" },
    { "st.shared.u32 [%y], %x; " SYNC "@%b0 bra L; exit; L: " NEXT OUT, VG_ILLEGAL_ADDRESS,
      "which has exited" }, // block 1 goes first
    { "st.shared.u32 [%y], %x; " SYNC "ld.shared.u32 %x, [%far]; " SYNC, VG_ILLEGAL_ADDRESS,
      "needs a .shared::cluster access" },
    { "mapa.shared::cluster.u32 %far, %s, %n;", VG_ILLEGAL_ADDRESS,
      "mapa: block 2 of a cluster of 2" },
    { "barrier.cluster.wait.aligned;", VG_BARRIER, "without an arrive" },
    { "barrier.cluster.arrive.aligned; barrier.cluster.arrive.aligned;", VG_BARRIER, "twice" },
    { "@%b0 bar.sync 0; @!%b0 bra L; W: ld.volatile.shared.u32 %z, [%y]; bra W; L: st.shared.u32 "
      "[%y], %x; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
      VG_UNINITIALISED, "shared" },
    { BARRIER
      "@!%b0 bra L; W: mbarrier.try_wait.parity.shared.b64 %p, [%s+256], 0; @!%p bra W; L: " SYNC,
      VG_DEADLOCK, "the cluster's barrier: 1 of 2 warps have arrived" },
    { BARRIER "mapa.shared::cluster.u32 %far, %s, %peer; @%l0 "
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%far], [%i], "
              "128, [%s+256]; " SYNC,
      VG_BARRIER, "of the cluster, the destination in block" },
    { "@%l0 mbarrier.init.shared.b64 [%s+256], 1; mapa.shared::cluster.u32 %far, %s, %peer; "
      "setp.ne.and.u32 %p, %r, 0, %l0; @%p mbarrier.arrive.release.cluster.shared::cluster.b64 _, "
      "[%far+256]; " SYNC,
      VG_RACE, "used without a barrier after its initialisation" },
    { "setp.lt.u32 %p, %t, 16; @%p barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
      VG_DIVERGED, "guard of a barrier" },
};

static void incorrect(void **state) {
    (void)state;
    uint32_t out[128];
    for (int k = 0; k < COUNT_OF(bad); k++) {
        Gpu gpu = gpu_open("sm_90", 1);
        VgFault fault = run(&gpu, "2", bad[k].body, out);
        if (fault != bad[k].fault || !strstr(gpu_report(&gpu), bad[k].says))
            fail_msg("%s: fault %d, expected %d with '%s'\n%s", bad[k].body, fault, bad[k].fault,
                     bad[k].says, gpu_report(&gpu));
        gpu_close(&gpu);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(correct), cmocka_unit_test(incorrect) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
