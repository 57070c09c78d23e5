// SPDX-License-Identifier: Apache-2.0
// The machinery of histories at its edges: generations that wrap, states and views that run out,
// lists that grow, many launches over the same words, and random programs against a model that
// keeps every access and decides each race from the definition.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/vgpu/shadow.h"
#include "tests/vgpu/rig.h"

static const RigShape block = { .n_ctas = 1, .threads = 128, .shared = 4096 };

static VgFault at(Rig *rig, uint32_t team, uint32_t warp, const VgSite *site, uint64_t address) {
    return rig_run(rig, &rig->warp[team][warp], site, 1, address, 0);
}

static void generations_wrap(void **state) {
    (void)state;
    Rig rig;
    rig_begin(&rig, &block);
    VgSite st = rig_site(VG_WRITE, VG_SHARED, 4, 1), ld = rig_site(VG_READ, VG_SHARED, 4, 1);
    assert_int_equal(at(&rig, 0, 0, &st, 0), VG_OK);
    for (int i = 0; i < 65536; i++) { // as many as there are: the word's generation would be now's
        vg_team_barrier(rig.team[0]);
        if (i % 1000 == 0) assert_int_equal(at(&rig, 0, 1, &ld, 0), VG_OK);
    }
    assert_int_equal(at(&rig, 0, 2, &st, 0), VG_OK);
    assert_int_equal(at(&rig, 0, 1, &ld, 0), VG_RACE);
    assert_int_equal(at(&rig, 0, 1, &ld, 4), VG_UNINITIALISED);
    rig_end(&rig);
}

// More views, then more states, than there is room for: interning begins again, written bytes stay.
static void tables_run_out(void **state) {
    (void)state;
    Rig rig;
    rig_begin(&rig, &block);
    VgSite st = rig_site(VG_WRITE, VG_SHARED, 4, 1), ld = rig_site(VG_READ, VG_SHARED, 4, 1);
    VgClock *clock = vg_clock_create(rig.team[0]);
    for (uint32_t w = 0; w < 8; w++) assert_int_equal(at(&rig, 0, 0, &st, w * 4), VG_OK);
    uint32_t resets = 0;
    uint64_t before = 0;
    for (uint32_t i = 0; i < 3 * VG_MAX_VIEWS; i++) {
        vg_clock_release(clock, &rig.warp[0][i % 4]); // all in turn: ordered, one view each
        vg_clock_acquire(clock, &rig.warp[0][(i + 1) % 4]);
        assert_int_equal(at(&rig, 0, (i + 1) % 4, i % 3 ? &ld : &st, i % 8 * 4), VG_OK);
        resets += rig.launch->forgotten > before;
        before = rig.launch->forgotten;
    }
    assert_true(resets >= 2);
    assert_int_equal(at(&rig, 0, 0, &ld, 32), VG_UNINITIALISED);
    assert_int_equal(at(&rig, 0, 0, &st, 64), VG_OK);
    assert_int_equal(at(&rig, 0, 1, &ld, 64), VG_RACE); // still alert
    rig_end(&rig);
}

// Ids of touches run out of a launch: checks stop, nothing breaks, the next launch checks again.
static void touches_run_out(void **state) {
    (void)state;
    Rig rig;
    RigShape shape = { .n_ctas = 2, .threads = 32, .shared = 64 };
    rig_begin(&rig, &shape);
    uint64_t a = rig_alloc(&rig, 4096, "data");
    VgSite st = rig_site(VG_WRITE, VG_GLOBAL, 4, 1);
    rig.launch->n_chunks = VG_MAX_CHUNKS - 1;
    for (int i = 0; i < 3 << VG_CHUNK_SHIFT; i++) {
        assert_int_equal(at(&rig, 0, 0, &st, a), VG_OK);
        vg_team_barrier(rig.team[0]);
    }
    assert_true(rig.launch->forgotten > 0);
    rig_relaunch(&rig, &shape);
    assert_int_equal(rig.launch->forgotten, 0);
    assert_int_equal(at(&rig, 0, 0, &st, a), VG_OK);
    assert_int_equal(at(&rig, 1, 0, &st, a), VG_RACE);
    rig_end(&rig);
}

// Launch after launch over one word, past the end of all ids.
static void ids_wrap(void **state) {
    (void)state;
    Rig rig;
    RigShape shape = { .n_ctas = 2, .threads = 32, .shared = 64 };
    rig_begin(&rig, &shape);
    uint64_t a = rig_alloc(&rig, 4096, "data");
    VgSite st = rig_site(VG_WRITE, VG_GLOBAL, 4, 1), ld = rig_site(VG_READ, VG_GLOBAL, 4, 1);
    bool wrapped = false;
    for (int i = 0; i < 12; i++) {
        uint32_t first = rig.launch->first_id;
        assert_int_equal(at(&rig, (uint32_t)i % 2, 0, &st, a), VG_OK);
        assert_int_equal(at(&rig, (uint32_t)i % 2, 0, &ld, a), VG_OK);
        assert_int_equal(at(&rig, (uint32_t)(i + 1) % 2, 0, &ld, a), VG_RACE);
        if (i == 5) rig.memory->next_id = UINT32_MAX - VG_LAUNCH_IDS / 2;
        rig_relaunch(&rig, &shape);
        wrapped |= rig.launch->first_id < first;
        assert_true(rig.launch->races);
    }
    assert_true(wrapped);
    rig_end(&rig);
}

// All 32 warps of a block read a word: each is remembered.
static void long_lists(void **state) {
    (void)state;
    for (uint32_t skip = 0; skip < 32; skip += 7) {
        Rig rig;
        RigShape shape = { .n_ctas = 1, .threads = 1024, .shared = 64 };
        rig_begin(&rig, &shape);
        uint64_t a = rig_alloc(&rig, 64, "data");
        VgSite st[2] = { rig_site(VG_WRITE, VG_SHARED, 4, 1), rig_site(VG_WRITE, VG_GLOBAL, 4, 1) };
        VgSite ld[2] = { rig_site(VG_READ, VG_SHARED, 4, 1), rig_site(VG_READ, VG_GLOBAL, 4, 1) };
        uint64_t where[2] = { 0, a };
        for (int k = 0; k < 2; k++) {
            VgClock *clock = vg_clock_create(rig.team[0]);
            assert_int_equal(at(&rig, 0, 0, &st[k], where[k]), VG_OK);
            vg_team_barrier(rig.team[0]);
            for (uint32_t w = 0; w < 32; w++)
                assert_int_equal(at(&rig, 0, w, &ld[k], where[k]), VG_OK);
            for (uint32_t w = 0; w < 32; w++)
                if (w != skip) vg_clock_release(clock, &rig.warp[0][w]);
            vg_clock_acquire(clock, &rig.warp[0][(skip + 1) % 32]);
            assert_int_equal(at(&rig, 0, (skip + 1) % 32, &st[k], where[k]), VG_RACE);
            assert_int_equal(rig_record(&rig)->other.warp, skip);
            vg_team_barrier(rig.team[0]);
        }
        rig_end(&rig);
    }
}

/* Against the definition ----------------------------------------------------------------------- */

// Happens-before by full knowledge: every warp has, per warp, how many of its events it knows of.
typedef struct Event { uint32_t team, warp, number, bytes, granule; bool write; } Event;
#define MAX_EVENTS 4000
typedef struct Truth {
    Event events[MAX_EVENTS];
    int n;
    uint32_t knows[2][4][2][4], clock[4][2][4],
        count[2][4]; // [of whom] knows [whom]; of 4 barrier objects
} Truth;

static bool truth_race(const Truth *truth, const Event *e) {
    for (int i = 0; i < truth->n; i++) {
        const Event *old = &truth->events[i];
        if (old->granule != e->granule || !(old->bytes & e->bytes) || !(old->write || e->write))
            continue;
        if (old->number > truth->knows[e->team][e->warp][old->team][old->warp]) return true;
    }
    return false;
}

static void truth_join(uint32_t to[2][4], uint32_t from[2][4]) {
    for (int t = 0; t < 2; t++)
        for (int w = 0; w < 4; w++)
            if (from[t][w] > to[t][w]) to[t][w] = from[t][w];
}

static uint64_t seed;
static uint32_t draw(uint32_t n) {
    seed = hash_mix(seed, 11, 8);
    return (uint32_t)(seed >> 33) % n;
}

static void random_step(Rig *rig, Truth *truth, VgClock *clocks[4], const VgSite sites[2][3][2],
                        uint64_t a) {
    static const uint32_t sizes[3] = { 1, 2, 4 };
    bool global = a != 0;
    uint32_t t = global ? draw(2) : 0, w = draw(4), c = draw(2) + 2 * t, kind = draw(12);
    VgWarpMem *warp = &rig->warp[t][w];
    if (kind == 0) {
        vg_clock_release(clocks[c], warp);
        truth_join(truth->clock[c], truth->knows[t][w]);
    } else if (kind == 1) {
        vg_clock_acquire(clocks[c], warp);
        truth_join(truth->knows[t][w], truth->clock[c]);
    } else if (kind == 2 && draw(4) == 0) {
        uint32_t all[2][4] = { { 0 } };
        vg_team_barrier(rig->team[t]);
        for (int k = 0; k < 4; k++) truth_join(all, truth->knows[t][k]);
        for (int k = 0; k < 4; k++) truth_join(truth->knows[t][k], all);
    } else if (kind > 2) {
        uint32_t size = draw(3), byte = draw(24) / sizes[size] * sizes[size];
        Event e = {
            t,        w,           truth->count[t][w] + 1, ((1u << sizes[size]) - 1) << byte % 4,
            byte / 4, draw(3) == 0
        };
        VgFault fault = at(rig, t, w, &sites[global][size][e.write], a + byte);
        bool race = truth_race(truth, &e);
        if (race != (fault == VG_RACE)) print_message("%s", rig_report(rig));
        assert_int_equal(fault, race ? VG_RACE : VG_OK);
        if (race || truth->n == MAX_EVENTS) return; // a race stops a launch; here it did not happen
        truth->knows[t][w][t][w] = ++truth->count[t][w];
        truth->events[truth->n++] = e;
    }
}

// Global lists forget readers of many teams and keep partly covered touches: two teams are exact.
static void random_programs(bool global) {
    RigShape shape = { .n_ctas = 2, .threads = 128, .shared = 64 };
    static Truth truth;
    int n_races = 0;
    for (int program = 0; program < 40; program++) {
        Rig rig;
        rig_begin(&rig, &shape);
        seed = (uint64_t)program * 2 + global;
        memset(&truth, 0, sizeof truth);
        uint64_t a = global ? rig_alloc(&rig, 64, "data") : 0;
        VgSite sites[2][3][2];
        VgClock *clocks[4];
        for (int i = 0; i < 4; i++) clocks[i] = vg_clock_create(rig.team[i / 2]);
        for (int g = 0; g < 2; g++)
            for (int k = 0; k < 6; k++)
                sites[g][k / 2][k % 2] =
                    rig_site(k % 2 ? VG_WRITE : VG_READ, g ? VG_GLOBAL : VG_SHARED, 1u << k / 2, 1);
        if (global) {
            assert_int_equal(vg_mem_fill(rig.memory, a, 0, 1, 64), OK);
        } else {
            VgSite st = rig_site(VG_WRITE, VG_SHARED, 1, 1);
            assert_int_equal(rig_run(&rig, &rig.warp[0][0], &st, ~0u, 0, 1), VG_OK);
            vg_team_barrier(rig.team[0]);
        }
        for (int i = 0; i < 800; i++) random_step(&rig, &truth, clocks, sites, a);
        n_races += truth.n < 500;
        rig_end(&rig);
    }
    assert_true(n_races > 0); // programs did race
}

static void random_shared(void **state) { (void)state; random_programs(false); }
static void random_global(void **state) { (void)state; random_programs(true); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generations_wrap), cmocka_unit_test(tables_run_out),
        cmocka_unit_test(touches_run_out), cmocka_unit_test(ids_wrap), cmocka_unit_test(long_lists),
        cmocka_unit_test(random_shared), cmocka_unit_test(random_global),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
