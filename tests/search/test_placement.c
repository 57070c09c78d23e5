// SPDX-License-Identifier: Apache-2.0
// Placement of experts: against every placement of small cases, against cases that are known to mislead
// simpler rules, and what must hold of any.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compiler/search/pack.h"
#include "compiler/search/placement.h"

enum { MOST = 24 };

/* Cases ---------------------------------------------------------------------------------------- */

static uint64_t seed;
static uint64_t draw(uint64_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

// Loads of a kind: even, skewed, few values, one that has nearly all, fractions.
static void draw_loads(int kind, int n, double *load) {
    for (int e = 0; e < n; e++) {
        switch (kind) {
        case 0: load[e] = (double)draw(100); break;
        case 1: load[e] = floor(1000 / (1.0 + (double)draw(50))); break;
        case 2: load[e] = (double)(1 + draw(3)) * 7; break;
        case 3: load[e] = e == 2 ? 500 : (double)draw(20); break;
        default: load[e] = (double)draw(1 << 20) / 1000.0; break;
        }
    }
}

static Placement find(const double *load, int n, int ranks, int slots, Arena *arena) {
    Placement p;
    PlacementJob job = { load, n, ranks, slots, 1000000, NULL, 0 };
    placement_find(&job, arena, &p);
    return p;
}

// What a placement says of itself is so.
static void check(const double *load, const Placement *p) {
    int32_t seen[1000] = { 0 };
    double most = 0, sum = 0;
    for (int32_t r = 0; r < p->ranks; r++) {
        double rows = 0;
        for (int32_t s = 0; s < p->slots; s++) {
            int32_t e = p->held[r * p->slots + s];
            assert_in_range(e, 0, p->n - 1);
            seen[e]++;
            rows += load[e] / p->copies[e];
        }
        assert_true(fabs(rows - p->rank_load[r]) <= 1e-9 * (1 + rows));
        most = fmax(most, p->rank_load[r]);
    }
    for (int32_t e = 0; e < p->n; e++) {
        sum += load[e];
        assert_int_equal(seen[e], p->copies[e]);
        assert_in_range(seen[e], 1, p->ranks);
    }
    assert_true(most == p->most);
    assert_true(fabs(p->mean * p->ranks - sum) <= 1e-9 * (1 + sum));
    assert_true(p->bound <= p->most);
    assert_true(p->mean <= p->bound * (1 + 1e-9));
}

/* Every placement ------------------------------------------------------------------------------ */

// The least busiest rank of all ways to put n items, `slots` on each rank.
static double brute(const double *x, int n, int ranks, int slots, int i, double *load, int *held, double best) {
    if (i == n) {
        double most = 0;
        for (int r = 0; r < ranks; r++) most = fmax(most, load[r]);
        return fmin(best, most);
    }
    for (int r = 0; r < ranks; r++) {
        if (held[r] == slots) continue;
        double before = load[r];
        load[r] += x[i];
        held[r]++;
        best = brute(x, n, ranks, slots, i + 1, load, held, best);
        load[r] = before;
        held[r]--;
        if (!held[r]) break; // an empty rank is as good as any other
    }
    return best;
}

static double least_of(const double *x, int n, int ranks, int slots) {
    double load[MOST] = { 0 };
    int held[MOST] = { 0 };
    return brute(x, n, ranks, slots, 0, load, held, INFINITY);
}

static void equals_brute_force(void **state) {
    (void)state;
    static const int shapes[][2] = { { 2, 2 }, { 2, 4 }, { 3, 3 }, { 4, 2 }, { 5, 2 }, { 2, 5 }, { 4, 1 }, { 1, 6 } };
    Arena *arena = arena_create();
    int improved = 0;
    for (int i = 0; i < 400; i++) {
        const int *shape = shapes[i % COUNT_OF(shapes)];
        int ranks = shape[0], slots = shape[1], n = ranks * slots;
        double load[MOST];
        draw_loads((int)draw(5), n, load);
        double least = least_of(load, n, ranks, slots);
        Placement p = find(load, n, ranks, slots, arena);
        check(load, &p);
        if (fabs(p.most - least) > 1e-9 * (1 + least))
            fail_msg("case %d, %d x %d: %.17g, expected %.17g", i, ranks, slots, p.most, least);
        assert_true(p.exact);
        // The bound that needs no search, and what the first rule alone gives.
        double sorted[MOST];
        int32_t rank_of[MOST];
        double of_rank[MOST];
        memcpy(sorted, load, sizeof sorted);
        for (int a = 0; a < n; a++)
            for (int b = a + 1; b < n; b++)
                if (sorted[b] > sorted[a]) {
                    double x = sorted[a];
                    sorted[a] = sorted[b], sorted[b] = x;
                }
        Pack pack = { sorted, n, ranks, slots, rank_of, of_rank, 0 };
        assert_true(pack_bound(&pack, arena) <= least);
        pack_first(&pack, arena);
        assert_true(pack.most <= least * 4 / 3 + 1e-9);
        improved += pack.most > least * (1 + 1e-9);
    }
    printf("of 400 cases the first rule alone misses %d\n", improved);
    assert_true(improved > 50);
    arena_destroy(arena);
}

// All numbers of copies, and all ways to place those.
static double least_of_copies(const double *load, int n, int ranks, int slots, int e, int left, int *copies) {
    double best = INFINITY;
    if (e == n) {
        double x[MOST];
        int places = 0;
        if (left) return best;
        for (int i = 0; i < n; i++)
            for (int c = 0; c < copies[i]; c++) x[places++] = load[i] / copies[i];
        return least_of(x, places, ranks, slots);
    }
    for (copies[e] = 1; copies[e] <= ranks && copies[e] <= left; copies[e]++)
        best = fmin(best, least_of_copies(load, n, ranks, slots, e + 1, left - copies[e], copies));
    return best;
}

static void copies_equal_brute_force(void **state) {
    (void)state;
    static const int shapes[][3] = { { 3, 2, 2 }, { 4, 3, 2 }, { 5, 3, 2 }, { 4, 4, 2 }, { 5, 2, 4 }, { 2, 3, 1 } };
    Arena *arena = arena_create();
    for (int i = 0; i < 120; i++) {
        const int *shape = shapes[i % COUNT_OF(shapes)];
        double load[MOST];
        int copies[MOST];
        draw_loads((int)draw(5), shape[0], load);
        double least = least_of_copies(load, shape[0], shape[1], shape[2], 0, shape[1] * shape[2], copies);
        Placement p = find(load, shape[0], shape[1], shape[2], arena);
        check(load, &p);
        if (fabs(p.most - least) > 1e-9 * (1 + least))
            fail_msg("case %d, %d experts on %d x %d: %.17g, expected %.17g", i, shape[0], shape[1], shape[2],
                     p.most, least);
        assert_true(p.exact);
    }
    arena_destroy(arena);
}

/* What misleads -------------------------------------------------------------------------------- */

// A case of vllm-ascend's discussion 3042: apportioning first and packing then, as EPLB does, gives 232 for
// the busiest rank, FlashLB's search 205. The least is 196.7.
static void known_case(void **state) {
    (void)state;
    static const double load[] = { 600, 560, 120, 120, 20, 10, 10, 10 };
    Arena *arena = arena_create();
    Placement p = find(load, 8, 8, 2, arena);
    check(load, &p);
    assert_true(fabs(p.most - 590.0 / 3) < 1e-9);
    assert_true(p.exact);
    // Without a search that is through, still better than both.
    PlacementJob job = { load, 8, 8, 2, 5000, NULL, 0 };
    placement_find(&job, arena, &p);
    check(load, &p);
    assert_true(p.most <= 205);
    arena_destroy(arena);
}

// The largest first is 4/3 - 1/(3 * 2) of the least here, and no swap of two helps.
static void first_rule_misses(void **state) {
    (void)state;
    static const double load[] = { 3, 3, 2, 2, 2, 0 };
    Arena *arena = arena_create();
    Placement p = find(load, 6, 2, 3, arena);
    assert_true(p.most == 6);
    arena_destroy(arena);
}

static void apportions(void **state) {
    (void)state;
    for (int i = 0; i < 200; i++) {
        double load[4], least = INFINITY, got = 0;
        int32_t copies[4];
        int places = 4 + (int)draw(6);
        draw_loads((int)draw(5), 4, load);
        for (int a = 1; a <= places; a++)
            for (int b = 1; b <= places; b++)
                for (int c = 1; c <= places; c++) {
                    int d = places - a - b - c;
                    if (d >= 1)
                        least = fmin(least, fmax(fmax(load[0] / a, load[1] / b), fmax(load[2] / c, load[3] / d)));
                }
        placement_apportion(load, 4, places, places, copies);
        assert_int_equal(copies[0] + copies[1] + copies[2] + copies[3], places);
        for (int e = 0; e < 4; e++) got = fmax(got, load[e] / copies[e]);
        assert_true(got == least);
    }
}

/* Large ones, and numbers of ranks ------------------------------------------------------------- */

// As many experts as models have: within a hundredth of the bound unless one expert decides, and the same
// again.
static void large(void **state) {
    (void)state;
    static const int shapes[][3] = { { 128, 8, 16 }, { 256, 64, 4 }, { 384, 32, 12 }, { 128, 8, 17 }, { 64, 32, 3 } };
    Arena *arena = arena_create();
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        double load[384], largest = 0;
        const int *shape = shapes[i];
        for (int e = 0; e < shape[0]; e++) {
            load[e] = floor(100000 / (1.0 + (double)draw(shape[0])));
            largest = fmax(largest, load[e]);
        }
        PlacementJob job = { load, shape[0], shape[1], shape[2], PLACEMENT_BUDGET, NULL, 0 };
        Placement p, again;
        placement_find(&job, arena, &p);
        placement_find(&job, arena, &again);
        check(load, &p);
        assert_memory_equal(p.held, again.held, sizeof *p.held * (size_t)(shape[1] * shape[2]));
        printf("%d experts on %d x %d: %.5f of the bound\n", shape[0], shape[1], shape[2], p.most / p.bound);
        assert_true(p.most <= 1.02 * p.bound);
    }
    arena_destroy(arena);
}

static void nothing_to_do(void **state) {
    (void)state;
    Arena *arena = arena_create();
    double load[12] = { 0 };
    Placement p = find(load, 12, 4, 3, arena);
    check(load, &p);
    assert_true(p.most == 0 && p.exact);
    for (int e = 0; e < 12; e++) load[e] = 5;
    p = find(load, 12, 4, 3, arena);
    check(load, &p);
    assert_true(p.most == 15 && p.exact);
    arena_destroy(arena);
}

// What is nearly as good where it is moves little: one swap, or none.
static void swaps_from(void **state) {
    (void)state;
    Arena *arena = arena_create();
    static const double load[] = { 40, 40, 10, 10, 10, 10, 10, 10 }, almost[] = { 100, 100, 99.9, 100 };
    static const int32_t owner[] = { 0, 0, 1, 1, 2, 2, 3, 3 }, two[] = { 0, 0, 1, 1 };
    Placement p;
    PlacementJob job = { load, 8, 4, 2, PLACEMENT_BUDGET, owner, 0 };
    int32_t place[8], moved = 0;
    placement_find(&job, arena, &p);
    check(load, &p);
    assert_true(p.most == 50 && p.exact);
    placement_owners(&p, place);
    for (int e = 0; e < 8; e++) moved += place[e] != owner[e];
    assert_int_equal(moved, 2);
    job = (PlacementJob){ almost, 4, 2, 2, PLACEMENT_BUDGET, two, 1e-3 };
    placement_find(&job, arena, &p);
    placement_owners(&p, place);
    assert_memory_equal(place, two, sizeof two);
    // As good as without, on random ones.
    for (int i = 0; i < 100; i++) {
        double x[12];
        int32_t from[12];
        draw_loads((int)draw(5), 12, x);
        for (int e = 0; e < 12; e++) from[e] = e % 3;
        job = (PlacementJob){ x, 12, 3, 4, PLACEMENT_BUDGET, from, 0 };
        placement_find(&job, arena, &p);
        check(x, &p);
        assert_true(fabs(p.most - find(x, 12, 3, 4, arena).most) <= 1e-9 * (1 + p.most));
    }
    arena_destroy(arena);
}

// Against all orders of four ranks.
static void stays(void **state) {
    (void)state;
    Arena *arena = arena_create();
    for (int i = 0; i < 100; i++) {
        enum { RANKS = 4, SLOTS = 3, N = RANKS * SLOTS };
        double load[N];
        int32_t owner[N], place[N];
        draw_loads(0, N, load);
        for (int e = 0; e < N; e++) owner[e] = (e * 5 + (int)draw(2) + i) % RANKS;
        Placement p = find(load, N, RANKS, SLOTS, arena);
        int most = 0;
        placement_owners(&p, place);
        for (int order = 0; order < 256; order++) {
            int to[RANKS], stay = 0, used = 0;
            for (int r = 0; r < RANKS; r++) used |= 1 << (to[r] = order >> 2 * r & 3);
            for (int e = 0; e < N; e++) stay += to[place[e]] == owner[e];
            if (used == 15 && stay > most) most = stay;
        }
        placement_stay(&p, owner, arena);
        check(load, &p);
        placement_owners(&p, place);
        int stay = 0;
        for (int e = 0; e < N; e++) stay += place[e] == owner[e];
        assert_int_equal(stay, most);
        double rows[RANKS];
        assert_true(fabs(placement_busiest(load, place, N, RANKS, rows) - p.most) < 1e-9);
        for (int r = 0; r < RANKS; r++) assert_true(fabs(rows[r] - p.rank_load[r]) < 1e-9);
    }
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_brute_force), cmocka_unit_test(copies_equal_brute_force),
        cmocka_unit_test(known_case),         cmocka_unit_test(first_rule_misses),
        cmocka_unit_test(apportions),         cmocka_unit_test(large),
        cmocka_unit_test(nothing_to_do),      cmocka_unit_test(swaps_from),
        cmocka_unit_test(stays),
    };
    return cmocka_run_group_tests_name("search.placement", tests, NULL, NULL);
}
