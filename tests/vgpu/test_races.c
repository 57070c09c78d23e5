// SPDX-License-Identifier: Apache-2.0
// Data races: each pattern with the edge that orders it, which must be quiet, and without, which
// must be told. In shared memory, in global memory within a block and between blocks, by scope.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/vgpu/rig.h"

static const RigShape two_blocks = { .n_ctas = 2, .threads = 128, .shared = 4096 };
static const RigShape cluster = {
    .n_ctas = 4, .cluster = 2, .threads = 64, .shared = 4096, .ranked = true
};

typedef struct Setup {
    Rig rig;
    VgSite st, ld, gst, gld;
    uint64_t a;
} Setup;

static Setup *begin(const RigShape *shape) {
    Setup *s = calloc(1, sizeof *s);
    assert_non_null(s);
    rig_begin(&s->rig, shape);
    s->st = rig_site(VG_WRITE, VG_SHARED, 4, 1);
    s->ld = rig_site(VG_READ, VG_SHARED, 4, 1);
    s->gst = rig_site(VG_WRITE, VG_GLOBAL, 4, 1);
    s->gld = rig_site(VG_READ, VG_GLOBAL, 4, 1);
    s->a = rig_alloc(&s->rig, 4096, "data");
    assert_int_equal(vg_mem_fill(s->rig.memory, s->a, 0, 1, 4096), OK);
    return s;
}

static void end(Setup *s) {
    rig_end(&s->rig);
    free(s);
}

#define WARP(t, w) (&s->rig.warp[t][w])
#define RUN(warp, site, address) rig_run(&s->rig, warp, &s->site, ~0u, address, 4)

static void expect_race(Setup *s, VgFault fault, VgAccess other, uint32_t cta, uint32_t warp,
                        uint32_t site) {
    assert_int_equal(fault, VG_RACE);
    const VgRecord *r = rig_record(&s->rig);
    assert_int_equal(r->fault, VG_RACE);
    assert_true(r->other.known);
    assert_int_equal(r->other.access, other);
    assert_int_equal(r->other.cta, cta);
    assert_int_equal(r->other.warp, warp);
    assert_int_equal(r->other.site, site);
}

static void shared_barrier(void **state) {
    (void)state;
    Setup *s = begin(&two_blocks);
    for (int round = 0; round < 3; round++) { // the tile loop: store, barrier, load, barrier
        assert_int_equal(RUN(WARP(0, 0), st, 0), VG_OK);
        assert_int_equal(RUN(WARP(0, 1), st, 128), VG_OK);
        vg_team_barrier(s->rig.team[0]);
        for (uint32_t w = 0; w < 4; w++) {
            assert_int_equal(RUN(WARP(0, w), ld, 0), VG_OK);
            assert_int_equal(RUN(WARP(0, w), ld, 128), VG_OK);
        }
        if (round < 2) vg_team_barrier(s->rig.team[0]);
    }
    expect_race(s, RUN(WARP(0, 0), st, 0), VG_READ, 0, 1, s->ld.id); // the second barrier is gone
    end(s);
}

static void shared_write_read(void **state) {
    (void)state;
    Setup *s = begin(&two_blocks);
    assert_int_equal(RUN(WARP(0, 2), st, 256), VG_OK);
    assert_int_equal(RUN(WARP(0, 2), ld, 256), VG_OK); // its own
    expect_race(s, rig_run(&s->rig, WARP(0, 1), &s->ld, 1u << 7, 256, 4), VG_WRITE, 0, 2, s->st.id);
    assert_int_equal(rig_record(&s->rig)->lane, 7);
    expect_race(s, RUN(WARP(0, 3), st, 252), VG_WRITE, 0, 2, s->st.id);
    end(s);
}

// bar.arrive and bar.sync of a producer and a consumer: arrive releases, sync acquires.
static void named_barrier(void **state) {
    (void)state;
    Setup *s = begin(&two_blocks);
    VgClock *full = vg_clock_create(s->rig.team[0]);
    assert_int_equal(RUN(WARP(0, 0), st, 0), VG_OK);
    vg_clock_release(full, WARP(0, 0));
    assert_int_equal(RUN(WARP(0, 0), st, 512), VG_OK); // after the arrival
    vg_clock_release(full, WARP(0, 1));
    vg_clock_acquire(full, WARP(0, 1));
    assert_int_equal(RUN(WARP(0, 1), ld, 0), VG_OK);
    expect_race(s, RUN(WARP(0, 1), ld, 512), VG_WRITE, 0, 0, s->st.id);
    expect_race(s, RUN(WARP(0, 2), ld, 0), VG_WRITE, 0, 0, s->st.id); // took no part
    vg_clock_clear(full);
    vg_clock_acquire(full, WARP(0, 2));
    expect_race(s, RUN(WARP(0, 2), ld, 0), VG_WRITE, 0, 0, s->st.id);
    end(s);
}

// Knowledge passes on: 0 to 1 to 2.
static void transitive(void **state) {
    (void)state;
    Setup *s = begin(&two_blocks);
    VgClock *one = vg_clock_create(s->rig.team[0]), *two = vg_clock_create(s->rig.team[0]);
    assert_int_equal(RUN(WARP(0, 0), st, 0), VG_OK);
    vg_clock_release(one, WARP(0, 0));
    vg_clock_acquire(one, WARP(0, 1));
    vg_clock_release(two, WARP(0, 1));
    vg_clock_acquire(two, WARP(0, 2));
    assert_int_equal(RUN(WARP(0, 2), st, 0), VG_OK);
    vg_team_barrier(s->rig.team[0]);
    vg_clock_acquire(one, WARP(0, 3)); // of an older generation: says nothing new, loses nothing
    assert_int_equal(RUN(WARP(0, 3), st, 0), VG_OK);
    end(s);
}

// Bytes of one word by different warps are no race; the same bytes are.
static void narrow(void **state) {
    (void)state;
    Setup *s = begin(&two_blocks);
    VgSite st2 = rig_site(VG_WRITE, VG_SHARED, 2, 1), gst2 = rig_site(VG_WRITE, VG_GLOBAL, 2, 1);
    VgSite ld1 = rig_site(VG_READ, VG_SHARED, 1, 1);
    assert_int_equal(rig_run(&s->rig, WARP(0, 0), &st2, 1, 0, 0), VG_OK);
    assert_int_equal(rig_run(&s->rig, WARP(0, 1), &st2, 1, 2, 0), VG_OK);
    assert_int_equal(rig_run(&s->rig, WARP(0, 1), &ld1, 1, 3, 0), VG_OK);
    expect_race(s, rig_run(&s->rig, WARP(0, 1), &ld1, 1, 1, 0), VG_WRITE, 0, 0, st2.id);
    assert_int_equal(rig_run(&s->rig, WARP(0, 0), &gst2, ~0u, s->a + 2, 2), VG_OK);
    assert_int_equal(rig_run(&s->rig, WARP(1, 0), &gst2, ~0u, s->a + 66, 2), VG_OK);
    expect_race(s, rig_run(&s->rig, WARP(1, 1), &gst2, ~0u, s->a + 64, 2), VG_WRITE, 0, 0, gst2.id);
    end(s);
}

static void lanes_of_one_store(void **state) {
    (void)state;
    Setup *s = begin(&two_blocks);
    for (uint32_t l = 0; l < 32; l++) rig_u32(&s->rig, RIG_DATA)[l] = 5;
    assert_int_equal(rig_run(&s->rig, WARP(0, 0), &s->st, ~0u, 0, 0), VG_OK); // all the same
    rig_u32(&s->rig, RIG_DATA)[9] = 6;
    assert_int_equal(rig_run(&s->rig, WARP(0, 0), &s->st, ~0u, 0, 0), VG_RACE);
    assert_non_null(strstr(rig_report(&s->rig), "lanes of one store write different values"));
    assert_int_equal(rig_run(&s->rig, WARP(0, 0), &s->gst, ~0u, s->a, 0), VG_RACE);
    rig_u32(&s->rig, RIG_DATA)[9] = 5;
    assert_int_equal(rig_run(&s->rig, WARP(0, 0), &s->gst, ~0u, s->a, 0), VG_OK);
    end(s);
    RigShape lenient = two_blocks;
    lenient.options.lanes_may_conflict = true;
    s = begin(&lenient);
    rig_u32(&s->rig, RIG_DATA)[9] = 6;
    assert_int_equal(rig_run(&s->rig, WARP(0, 0), &s->st, ~0u, 0, 0), VG_OK);
    end(s);
}

static void global_in_block(void **state) {
    (void)state;
    Setup *s = begin(&two_blocks);
    assert_int_equal(RUN(WARP(0, 0), gst, s->a), VG_OK);
    vg_team_barrier(s->rig.team[0]);
    assert_int_equal(RUN(WARP(0, 1), gld, s->a), VG_OK);
    assert_int_equal(RUN(WARP(0, 2), gld, s->a), VG_OK);
    expect_race(s, RUN(WARP(0, 3), gst, s->a), VG_READ, 0, 1, s->gld.id);
    vg_team_barrier(s->rig.team[0]);
    assert_int_equal(RUN(WARP(0, 3), gst, s->a), VG_OK); // in place: all read, barrier, one writes
    expect_race(s, RUN(WARP(0, 0), gld, s->a), VG_WRITE, 0, 3, s->gst.id);
    assert_non_null(strstr(rig_record(&s->rig)->hint, "a barrier"));
    expect_race(s, RUN(WARP(1, 0), gld, s->a), VG_WRITE, 0, 3, s->gst.id);
    assert_non_null(strstr(rig_record(&s->rig)->hint, "blocks of one launch"));
    end(s);
}

static void global_between_blocks(void **state) {
    (void)state;
    Setup *s = begin(&two_blocks);
    assert_int_equal(RUN(WARP(0, 0), gld, s->a), VG_OK); // readers do not race
    assert_int_equal(RUN(WARP(1, 0), gld, s->a), VG_OK);
    assert_int_equal(RUN(WARP(0, 1), gst, s->a + 128), VG_OK);
    assert_int_equal(RUN(WARP(1, 1), gst, s->a + 256), VG_OK);
    vg_team_barrier(s->rig.team[0]); // orders nothing between blocks
    vg_team_barrier(s->rig.team[1]);
    expect_race(s, RUN(WARP(1, 2), gld, s->a + 128), VG_WRITE, 0, 1, s->gst.id);
    expect_race(s, RUN(WARP(0, 2), gst, s->a + 256), VG_WRITE, 1, 1, s->gst.id);
    expect_race(s, RUN(WARP(0, 2), gst, s->a), VG_READ, 1, 0, s->gld.id);
    rig_relaunch(&s->rig, &two_blocks); // the next launch comes after
    assert_int_equal(RUN(WARP(1, 2), gld, s->a + 128), VG_OK);
    assert_int_equal(RUN(WARP(0, 2), gst, s->a), VG_OK);
    end(s);
}

// Many blocks read what one then writes: the list of readers is no longer kept, the race is.
static void many_readers(void **state) {
    (void)state;
    RigShape eight = { .n_ctas = 8, .threads = 64, .shared = 64 };
    Setup *s = begin(&eight);
    for (uint32_t t = 0; t < 8; t++)
        for (uint32_t w = 0; w < 2; w++) assert_int_equal(RUN(WARP(t, w), gld, s->a), VG_OK);
    for (uint32_t t = 0; t < 8; t++) {
        assert_int_equal(RUN(WARP(t, 0), gst, s->a), VG_RACE);
        const VgRecord *r = rig_record(&s->rig);
        assert_true(r->other.known && r->other.cta != t && r->other.access == VG_READ);
    }
    end(s);
}

/* Observation: who read what a strong store left comes after that store, though after nothing that
 * was before it ------------------------------------------------------------------------------- */

// '!': a strong store, '?': a strong load, 's' and 'l': weak ones.
typedef struct Step { int who; char what; bool races; } Step;

static void steps_in(VgSpace space, const Step *steps) {
    Setup *s = begin(&two_blocks);
    VgScope scope = space == VG_SHARED ? VG_SCOPE_CTA : VG_SCOPE_GPU;
    VgSite up = rig_strong(VG_WRITE, space, 4, VG_RELAXED, scope);
    VgSite look = rig_strong(VG_READ, space, 4, VG_RELAXED, scope);
    VgSite st = rig_site(VG_WRITE, space, 4, 1), ld = rig_site(VG_READ, space, 4, 1);
    uint64_t at = space == VG_SHARED ? 64 : s->a;
    if (space == VG_SHARED) {
        assert_int_equal(rig_run(&s->rig, WARP(0, 3), &st, 1, at, 0), VG_OK);
        vg_team_barrier(s->rig.team[0]);
    }
    for (; steps->what; steps++) {
        VgWarpMem *warp = space == VG_SHARED ? WARP(0, steps->who)
                                             : WARP(steps->who & 1, steps->who / 2);
        const VgSite *site = steps->what == '!' ? &up : steps->what == '?' ? &look
                             : steps->what == 's' ? &st : &ld;
        VgFault fault = rig_run(&s->rig, warp, site, 1, at, 0);
        assert_int_equal(fault, steps->races ? VG_RACE : VG_OK);
        if (steps->races) break;
    }
    end(s);
}

static void observation(void **state) {
    (void)state;
    static const Step rows[][8] = {
        { { 0, '!' }, { 1, '?' }, { 1, 's' } },                 // saw it, puts it back
        { { 0, '!' }, { 1, '?' }, { 1, 'l' }, { 1, 's' } },
        { { 0, '!' }, { 1, '?' }, { 1, '?' }, { 1, 's' } },     // polled
        { { 0, '!' }, { 1, 's', true } },                       // did not look
        { { 0, '!' }, { 1, '?' }, { 0, 's', true } },           // the other one has seen nothing
        { { 1, '?' }, { 0, 's', true } },
        { { 0, '!' }, { 1, '?' }, { 2, 's', true } },
        { { 0, '!' }, { 2, '!' }, { 1, '?' }, { 1, 's', true } }, // saw only the later one
        { { 0, '!' }, { 1, '?' }, { 2, '!' }, { 1, 's', true } },
        { { 0, '!' }, { 1, '?' }, { 2, '!' }, { 1, '?' }, { 1, 's' } }, // saw both
        { { 0, '!' }, { 1, '?' }, { 1, '!' }, { 2, '?' }, { 2, 's' } }, // handed on
        { { 0, '!' }, { 1, '?' }, { 1, '!' }, { 0, '?' }, { 0, 's' }, { 1, 's', true } },
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        steps_in(VG_SHARED, rows[i]);
        steps_in(VG_GLOBAL, rows[i]);
    }
}

/* Flags: release and acquire ------------------------------------------------------------------- */

typedef struct Flag { VgSem store, load; bool fence_before, fence_after, ordered; } Flag;

static void flags_in(Setup *s, VgSpace space, uint64_t data, uint64_t flag, const Flag *f,
                     VgScope scope, VgWarpMem *from, VgWarpMem *to) {
    VgSite st = rig_site(VG_WRITE, space, 4, 1), ld = rig_site(VG_READ, space, 4, 1);
    VgSite raise = rig_strong(VG_WRITE, space, 4, f->store, scope);
    VgSite look = rig_strong(VG_READ, space, 4, f->load, scope);
    assert_int_equal(rig_run(&s->rig, from, &st, ~0u, data, 4), VG_OK);
    if (f->fence_before) vg_fence(from, VG_ACQ_REL, scope);
    assert_int_equal(rig_run(&s->rig, from, &raise, 1, flag, 0), VG_OK);
    assert_int_equal(rig_run(&s->rig, to, &look, 1, flag, 0), VG_OK);
    if (f->fence_after) vg_fence(to, VG_ACQ_REL, scope);
    VgFault fault = rig_run(&s->rig, to, &ld, ~0u, data, 4);
    if (f->ordered)
        assert_int_equal(fault, VG_OK);
    else
        expect_race(s, fault, VG_WRITE, from->cta, from->index, st.id);
}

static void flags(void **state) {
    (void)state;
    static const Flag rows[] = {
        { VG_RELEASE, VG_ACQUIRE, false, false, true },
        { VG_RELEASE, VG_RELAXED, false, false, false },
        { VG_RELAXED, VG_ACQUIRE, false, false, false },
        { VG_RELAXED, VG_ACQUIRE, true, false, true },
        { VG_RELEASE, VG_RELAXED, false, true, true },
        { VG_VOLATILE, VG_VOLATILE, true, true, true },
        { VG_VOLATILE, VG_VOLATILE, true, false, false },
        { VG_VOLATILE, VG_VOLATILE, false, true, false },
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        Setup *s = begin(&two_blocks);
        flags_in(s, VG_GLOBAL, s->a, s->a + 1024, &rows[i], VG_SCOPE_GPU, WARP(0, 1), WARP(1, 2));
        flags_in(s, VG_GLOBAL, s->a + 2048, s->a + 3072, &rows[i], VG_SCOPE_CTA, WARP(0, 0),
                 WARP(0, 3));
        flags_in(s, VG_SHARED, 0, 1024, &rows[i], VG_SCOPE_CTA, WARP(0, 0), WARP(0, 3));
        end(s);
    }
}

// The last block done sums up: fence, atomic, fence. And a counter passed through a third block.
static void ticket(void **state) {
    (void)state;
    RigShape three = { .n_ctas = 3, .threads = 64, .shared = 64 };
    for (int fence = 0; fence < 2; fence++) {
        Setup *s = begin(&three);
        VgSite add = rig_atom(VG_GLOBAL, VG_ATOM_ADD, VG_ATOM_B32, 4);
        add.scope = VG_SCOPE_GPU;
        for (uint32_t t = 0; t < 3; t++) {
            assert_int_equal(RUN(WARP(t, 0), gst, s->a + 128 * t), VG_OK);
            if (fence || t != 0) vg_fence(WARP(t, 0), VG_SC, VG_SCOPE_GPU);
            assert_int_equal(rig_run(&s->rig, WARP(t, 0), &add, 1, s->a + 1024, 0), VG_OK);
        }
        vg_fence(WARP(2, 0), VG_SC, VG_SCOPE_GPU);
        vg_team_barrier(s->rig.team[2]); // warp 1 learns it through the barrier
        assert_int_equal(RUN(WARP(2, 1), gld, s->a + 128), VG_OK);
        VgFault fault = RUN(WARP(2, 1), gld, s->a);
        if (fence)
            assert_int_equal(fault, VG_OK);
        else
            expect_race(s, fault, VG_WRITE, 0, 0, s->gst.id);
        end(s);
    }
}

// Who takes the last ticket may put the counter back: it has seen all that came before, without any
// fence. Who took an earlier one may not.
static void reset(void **state) {
    (void)state;
    for (int space = 0; space < 2; space++) {
        for (int last = 0; last < 2; last++) {
            Setup *s = begin(&two_blocks);
            VgSpace where = space ? VG_SHARED : VG_GLOBAL;
            VgSite add = rig_atom(where, VG_ATOM_ADD, VG_ATOM_B32, 4);
            add.scope = VG_SCOPE_GPU;
            VgSite *store = space ? &s->st : &s->gst;
            VgWarpMem *first = WARP(0, 0), *second = space ? WARP(0, 1) : WARP(1, 0);
            uint64_t at = space ? 64 : s->a;
            if (space) {
                assert_int_equal(rig_run(&s->rig, first, store, 1, at, 0), VG_OK);
                vg_team_barrier(s->rig.team[0]);
            }
            assert_int_equal(rig_run(&s->rig, first, &add, 1, at, 0), VG_OK);
            assert_int_equal(rig_run(&s->rig, second, &add, 1, at, 0), VG_OK);
            VgFault fault = rig_run(&s->rig, last ? second : first, store, 1, at, 0);
            if (last)
                assert_int_equal(fault, VG_OK);
            else
                expect_race(s, fault, VG_ATOMIC, space ? 0 : 1, space ? 1 : 0, add.id);
            end(s);
        }
    }
}

static void scopes(void **state) {
    (void)state;
    Setup *s = begin(&two_blocks);
    VgSite cta = rig_atom(VG_GLOBAL, VG_ATOM_ADD, VG_ATOM_B32, 4), gpu = cta, none = s->gld;
    cta.scope = VG_SCOPE_CTA;
    gpu.scope = VG_SCOPE_GPU;
    gpu.id++;
    assert_int_equal(rig_run(&s->rig, WARP(0, 0), &cta, 1, s->a, 0), VG_OK);
    assert_int_equal(rig_run(&s->rig, WARP(0, 1), &cta, 1, s->a, 0), VG_OK);
    assert_int_equal(rig_run(&s->rig, WARP(0, 1), &gpu, 1, s->a, 0), VG_OK);
    assert_int_equal(rig_run(&s->rig, WARP(1, 0), &gpu, 1, s->a, 0), VG_SCOPE);
    assert_int_equal(rig_record(&s->rig)->other.cta, 0);
    assert_int_equal(rig_run(&s->rig, WARP(1, 0), &gpu, 1, s->a + 64, 0), VG_OK);
    assert_int_equal(rig_run(&s->rig, WARP(0, 0), &gpu, 1, s->a + 64, 0), VG_OK);
    expect_race(s, rig_run(&s->rig, WARP(0, 2), &none, 1, s->a + 64, 0), VG_ATOMIC, 1, 0, gpu.id);
    end(s);
}

static void clusters(void **state) {
    (void)state;
    Setup *s = begin(&cluster);
    VgSite remote = rig_site(VG_WRITE, VG_SHARED, 4, 1),
           add = rig_atom(VG_SHARED, VG_ATOM_ADD, VG_ATOM_B32, 4);
    uint64_t own = 0x400, peer = (1u << 24) + 0x400;
    remote.cluster = true;
    VgSite look = remote;
    look.access = VG_READ;
    look.run = vg_access_select(&look);
    assert_int_equal(RUN(WARP(0, 0), st, own), VG_OK);
    assert_int_equal(RUN(WARP(0, 0), st, peer), VG_ILLEGAL_ADDRESS); // .shared::cta
    assert_non_null(strstr(rig_report(&s->rig), "shared::cluster"));
    assert_int_equal(rig_run(&s->rig, WARP(0, 0), &remote, ~0u, peer, 4), VG_OK);
    expect_race(s, rig_run(&s->rig, WARP(0, 2), &s->ld, ~0u, peer, 4), VG_WRITE, 0, 0, remote.id);
    vg_team_barrier(s->rig.team[0]);
    assert_int_equal(rig_run(&s->rig, WARP(0, 2), &s->ld, ~0u, peer, 4), VG_OK);
    // Generic addresses reach the peer too.
    VgSite generic = rig_site(VG_READ, VG_GENERIC, 4, 1);
    assert_int_equal(rig_run(&s->rig, WARP(0, 1), &generic, ~0u, VG_SHARED_WINDOW + peer, 4),
                     VG_OK);
    add.cluster = true;
    add.scope = VG_SCOPE_CTA;
    assert_int_equal(rig_run(&s->rig, WARP(0, 0), &add, 1, own, 0), VG_OK);
    assert_int_equal(rig_run(&s->rig, WARP(0, 1), &add, 1, own, 0), VG_OK);
    assert_int_equal(rig_run(&s->rig, WARP(0, 2), &add, 1, own, 0), VG_SCOPE);
    vg_warp_exit(WARP(0, 2));
    vg_warp_exit(WARP(0, 3));
    assert_int_equal(rig_run(&s->rig, WARP(0, 0), &look, 1, peer, 0), VG_ILLEGAL_ADDRESS);
    assert_non_null(strstr(rig_report(&s->rig), "has exited"));
    assert_int_equal(rig_run(&s->rig, WARP(0, 0), &look, 1, (2u << 24) + 0x400, 0),
                     VG_ILLEGAL_ADDRESS);
    end(s);
}

static void turned_off(void **state) {
    (void)state;
    RigShape shape = two_blocks;
    shape.options.no_races = true;
    Setup *s = begin(&shape);
    assert_int_equal(RUN(WARP(0, 0), ld, 0), VG_UNINITIALISED);
    assert_int_equal(RUN(WARP(0, 0), st, 0), VG_OK);
    assert_int_equal(RUN(WARP(0, 1), ld, 0), VG_OK);
    assert_int_equal(RUN(WARP(0, 0), gst, s->a), VG_OK);
    assert_int_equal(RUN(WARP(1, 0), gld, s->a), VG_OK);
    end(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_barrier),  cmocka_unit_test(shared_write_read),
        cmocka_unit_test(named_barrier),   cmocka_unit_test(transitive),
        cmocka_unit_test(narrow),          cmocka_unit_test(lanes_of_one_store),
        cmocka_unit_test(global_in_block), cmocka_unit_test(global_between_blocks),
        cmocka_unit_test(many_readers),    cmocka_unit_test(flags),
        cmocka_unit_test(ticket),          cmocka_unit_test(reset),
        cmocka_unit_test(observation),
        cmocka_unit_test(scopes),          cmocka_unit_test(clusters),
        cmocka_unit_test(turned_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
