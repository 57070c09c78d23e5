// SPDX-License-Identifier: Apache-2.0
// count and route_ranks over ranks: every rank's kernels run one after the other, what an exchange moves
// is moved by hand. The reference is written from the contract: plain counts, a sort, quotas checked by
// what makes them fair, not computed the kernel's way.
#include "tests/kernels/choices.h"
#include "tests/kernels/lab.h"

#include <stdlib.h>
#include <string.h>

typedef struct Case {
    int32_t ranks, rows, top_k, experts;
    Choices kind;
    int32_t limit;    // copies that a rank takes; 0: as many as can come
    bool turned;      // an expert map other than in order
    int32_t align;    // of experts' first rows; 0: 1
} Case;
static const Case cases[] = {
    { 1, 7, 2, 3, ANY, 0, false },
    { 2, 1, 1, 2, ANY, 0, false },
    { 2, 13, 2, 6, SOME_OUTSIDE, 0, true },
    { 4, 11, 3, 8, ANY, 0, true },
    { 4, 5, 2, 4, ONE_TAKES_ALL, 0, false },
    { 2, 9, 2, 4, NONE, 0, false },
    { 4, 17, 2, 8, ONE_RANK, 0, false },
    { 2, 21, 3, 6, SAME, 0, true },
    { 4, 9, 2, 8, UPPER_HALF, 0, false },
    { 8, 33, 4, 64, ANY, 0, true },
    // with drops
    { 1, 31, 2, 5, ANY, 40, false },
    { 2, 37, 2, 6, ANY, 74, false },
    { 2, 37, 2, 6, SOME_OUTSIDE, 50, true },
    { 4, 64, 2, 8, ANY, 128, true },
    { 4, 64, 2, 8, ONE_TAKES_ALL, 128, false },
    { 4, 23, 3, 8, SAME, 31, true },
    { 4, 23, 3, 8, UPPER_HALF, 1, false },
    { 4, 40, 2, 4, ONE_RANK, 13, false },
    { 8, 33, 4, 64, ANY, 120, true },
    // aligned
    { 1, 7, 2, 3, ANY, 0, false, 4 },
    { 2, 13, 2, 6, SOME_OUTSIDE, 0, true, 4 },
    { 4, 5, 2, 4, ONE_TAKES_ALL, 0, false, 32 },
    { 2, 9, 2, 4, NONE, 0, false, 128 },
    { 4, 17, 2, 8, ONE_RANK, 0, false, 128 },
    { 2, 21, 3, 6, SAME, 0, true, 32 },
    { 4, 9, 2, 8, UPPER_HALF, 0, false, 128 },
    { 8, 33, 4, 64, ANY, 0, true, 32 },
    { 2, 37, 2, 6, SOME_OUTSIDE, 50, true, 32 },
    { 4, 64, 2, 8, ONE_TAKES_ALL, 128, false, 4 }, // no pads
    { 4, 23, 3, 8, UPPER_HALF, 1, false, 128 },
    { 8, 33, 4, 64, ANY, 120, true, 128 },
};

static Chooser chooser(const Case *c) {
    return (Chooser){ c->kind, c->ranks, c->top_k, c->experts, c->turned, 3 };
}

static int32_t owner_of(const Case *c, int32_t e) {
    return choice_owner(chooser(c), e);
}

static int32_t align_of(const Case *c) {
    return c->align ? c->align : 1;
}

static int32_t limit_of(const Case *c) {
    return c->limit ? c->limit : c->ranks * c->rows * c->top_k;
}

// Rows of a rank: every expert may have to fill up to a multiple.
static int32_t capacity_of(const Case *c) {
    int32_t here = c->experts / c->ranks;
    return (limit_of(c) + here * (align_of(c) - 1)) / align_of(c) * align_of(c);
}

// What all ranks have and get.
typedef struct World {
    const Case *c;
    int64_t slots;
    int32_t capacity, limit;
    int32_t *ids[8], *index[8], *labels[8], *counts[8], *row_of_slot[8], *offsets[8];
    float *load[8], *dropped[8], *scalars;
} World;

static void world_open(World *w, const Case *c, bool reversed) {
    *w = (World){ .c = c, .slots = (int64_t)c->rows * c->top_k };
    w->capacity = capacity_of(c);
    w->limit = limit_of(c);
    w->scalars = lab_filled(N_SCALARS, 0);
    ((int32_t *)w->scalars)[SCALAR_seed] = 11;
    ((int32_t *)w->scalars)[SCALAR_step] = 5;
    for (int r = 0; r < c->ranks; r++) {
        w->ids[r] = lab_array(w->slots);
        w->index[r] = lab_array(c->rows);
        w->labels[r] = lab_array(c->rows);
        w->counts[r] = lab_array(c->ranks * (1 + c->experts));
        w->row_of_slot[r] = lab_array(w->slots);
        w->offsets[r] = lab_array((c->align > 1 ? 2 : 1) * c->experts / c->ranks + 1);
        w->load[r] = lab_filled(c->experts, 100);
        w->dropped[r] = lab_filled(1, 3);
        for (int32_t t = 0; t < c->rows; t++) {
            int32_t token = reversed ? c->rows - 1 - t : t;
            w->index[r][t] = r * c->rows + token;
            w->labels[r][t] = token % 5 == 4 ? -1 : token;
            for (int32_t k = 0; k < c->top_k; k++)
                w->ids[r][t * c->top_k + k] = choose(chooser(c), r, (int64_t)token * c->top_k + k);
        }
    }
}

static void world_close(World *w) {
    for (int r = 0; r < w->c->ranks; r++) {
        lab_free(w->ids[r]), lab_free(w->index[r]), lab_free(w->labels[r]), lab_free(w->counts[r]);
        lab_free(w->row_of_slot[r]), lab_free(w->offsets[r]);
        lab_free(w->load[r]), lab_free(w->dropped[r]);
    }
    lab_free(w->scalars);
}

static void world_run(World *w, Lab *lab, uint32_t count, uint32_t route) {
    const Case *c = w->c;
    int32_t record = 1 + c->experts;
    int32_t *all = lab_array((int64_t)c->ranks * record); // of one rank, exchanged
    for (int r = 0; r < c->ranks; r++) {
        Binding b[] = { READ_I32("ids", w->ids[r]), WRITE_I32("counts", w->counts[r]) };
        lab_run(lab, count, b, 2);
    }
    for (int r = 0; r < c->ranks; r++) {
        for (int s = 0; s < c->ranks; s++)
            memcpy(all + s * record, w->counts[s] + r * record, (size_t)record * 4);
        assert_int_equal(all[0], r);
        Binding b[] = { READ_I32("ids", w->ids[r]),
                        READ_I32("counts", all),
                        WRITE_I32("row_of_slot", w->row_of_slot[r]),
                        WRITE_I32("offsets", w->offsets[r]),
                        READ_I32("index", w->index[r]),
                        READ_F32("scalars", w->scalars),
                        READ_I32("labels", w->labels[r]),
                        WRITE_F32("load", w->load[r]),
                        WRITE_F32("dropped", w->dropped[r]) };
        lab_run(lab, route, b, c->limit ? 9 : 4);
    }
    lab_free(all);
}

/* Checks ---------------------------------------------------------------------------------------- */

static int64_t asked(const World *w, int rank, int32_t expert) {
    int64_t n = 0;
    for (int64_t s = 0; s < w->slots; s++) n += w->ids[rank][s] == expert;
    return n;
}

static int64_t kept(const World *w, int rank, int32_t expert) {
    int64_t n = 0;
    for (int64_t s = 0; s < w->slots; s++)
        n += w->ids[rank][s] == expert && w->row_of_slot[rank][s] >= 0;
    return n;
}

// Rows of a rank are given in the order expert, source rank, slot: nothing twice, nothing left out. Each expert's are
// a dense prefix of whole multiples, and of no more than it needs.
static void check_rows(const World *w, int owner) {
    const Case *c = w->c;
    int32_t row = 0, here = 0, n_here = c->experts / c->ranks;
    assert_int_equal(w->offsets[owner][0], 0);
    for (int32_t e = 0; e < c->experts; e++) {
        if (owner_of(c, e) != owner) continue;
        for (int r = 0; r < c->ranks; r++) {
            for (int64_t s = 0; s < w->slots; s++) {
                if (w->ids[r][s] != e || w->row_of_slot[r][s] < 0) continue;
                assert_int_equal(w->row_of_slot[r][s], owner * w->capacity + row);
                row++;
            }
        }
        if (c->align > 1) assert_int_equal(w->offsets[owner][n_here + 1 + here], row);
        while (row % align_of(c)) row++;
        assert_int_equal(w->offsets[owner][++here], row);
    }
    assert_int_equal(here, n_here);
    assert_true(row <= w->capacity);
}

// Of what a rank is asked for beyond its rows everybody bears a proportional part: nobody is a whole row
// away from it, and who was rounded up had no smaller rest than who was rounded down.
static void check_quotas(const World *w, int owner) {
    const Case *c = w->c;
    int64_t total = 0, given = 0, least_up = INT64_MAX, most_down = -1;
    for (int32_t e = 0; e < c->experts; e++)
        for (int r = 0; r < c->ranks; r++) total += owner_of(c, e) == owner ? asked(w, r, e) : 0;
    for (int32_t e = 0; e < c->experts; e++) {
        for (int r = 0; owner_of(c, e) == owner && r < c->ranks; r++) {
            int64_t want = asked(w, r, e), got = kept(w, r, e);
            given += got;
            if (total <= w->limit) {
                assert_int_equal(got, want);
                continue;
            }
            int64_t even = want * w->limit, rest = even % total, low = even / total;
            assert_true(got == low || got == low + 1);
            if (got > low && rest < least_up) least_up = rest;
            if (got == low && rest > most_down) most_down = rest;
        }
    }
    assert_int_equal(given, total < w->limit ? total : w->limit);
    if (total > w->limit) assert_true(least_up >= most_down);
}

static void check_metrics(const World *w, int rank) {
    const Case *c = w->c;
    double all = 3;
    for (int32_t e = 0; e < c->experts; e++) {
        double lost = 0;
        for (int64_t s = 0; s < w->slots; s++)
            lost += w->ids[rank][s] == e && w->row_of_slot[rank][s] < 0 &&
                    w->labels[rank][s / c->top_k] >= 0;
        assert_true(w->load[rank][e] == 100 - lost);
        all += lost;
    }
    assert_true(w->dropped[rank][0] == all);
}

static void check(const World *w) {
    for (int r = 0; r < w->c->ranks; r++) {
        check_rows(w, r);
        check_quotas(w, r);
        check_metrics(w, r);
        for (int64_t s = 0; s < w->slots; s++)
            if (w->ids[r][s] < 0 || w->ids[r][s] >= w->c->experts)
                assert_int_equal(w->row_of_slot[r][s], -1);
    }
}

// What is dropped belongs to tokens, not to places: in another order the same copies have rows.
static void check_order(const World *a, const World *b) {
    const Case *c = a->c;
    for (int r = 0; r < c->ranks; r++) {
        for (int32_t t = 0; t < c->rows; t++) {
            for (int32_t k = 0; k < c->top_k; k++) {
                int32_t one = a->row_of_slot[r][t * c->top_k + k],
                        other = b->row_of_slot[r][(c->rows - 1 - t) * c->top_k + k];
                assert_int_equal(one < 0, other < 0);
            }
        }
    }
}

/* Tests ----------------------------------------------------------------------------------------- */

static void describe(const Case *c, int32_t *owner, KernelDesc *count, KernelDesc *route) {
    for (int32_t e = 0; e < c->experts; e++) owner[e] = owner_of(c, e);
    *count = (KernelDesc){ .family = FAMILY_COUNT, .rows = c->rows, .top_k = c->top_k,
                           .experts = c->experts, .ranks = c->ranks };
    *route = *count;
    route->family = FAMILY_ROUTE_RANKS;
    route->capacity = capacity_of(c);
    route->drops = route->accumulate = c->limit;
    if (c->align > 1) route->align = c->align;
    if (c->align > 1) route->limit = limit_of(c);
    route->stream = 0x1234567890abcdef;
    route->owner = c->turned ? owner : NULL;
}

static void test_routes(void **state) {
    (void)state;
    Lab lab;
    uint32_t counts[COUNT_OF(cases)], routes[COUNT_OF(cases)];
    int32_t owner[64];
    lab_open(&lab);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        KernelDesc count, route;
        describe(&cases[i], owner, &count, &route);
        counts[i] = lab_add(&lab, &count);
        routes[i] = lab_add(&lab, &route);
    }
    lab_compile(&lab);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        World w, turned;
        world_open(&w, &cases[i], false);
        world_run(&w, &lab, counts[i], routes[i]);
        check(&w);
        world_open(&turned, &cases[i], true);
        world_run(&turned, &lab, counts[i], routes[i]);
        check(&turned);
        check_order(&w, &turned);
        world_close(&w);
        world_close(&turned);
    }
    lab_close(&lab);
}

// Another step, seed or route drops other copies, as many of each.
static void test_hash(void **state) {
    (void)state;
    static const Case c = { 2, 400, 2, 4, ANY, 400, false };
    Lab lab;
    int32_t owner[64];
    KernelDesc count, route, other;
    describe(&c, owner, &count, &route);
    other = route;
    other.stream ^= 1;
    lab_open(&lab);
    uint32_t counts = lab_add(&lab, &count), routes = lab_add(&lab, &route), others = lab_add(&lab, &other);
    lab_compile(&lab);
    World w, changed;
    world_open(&w, &c, false);
    world_run(&w, &lab, counts, routes);
    for (int change = 0; change < 3; change++) {
        world_open(&changed, &c, false);
        ((int32_t *)changed.scalars)[SCALAR_seed] += change == 0;
        ((int32_t *)changed.scalars)[SCALAR_step] += change == 1;
        world_run(&changed, &lab, counts, change == 2 ? others : routes);
        check(&changed);
        int64_t both = 0, lost = 0;
        for (int r = 0; r < c.ranks; r++) {
            for (int64_t s = 0; s < w.slots; s++) {
                bool a = w.row_of_slot[r][s] < 0, b = changed.row_of_slot[r][s] < 0;
                lost += a;
                both += a && b;
            }
        }
        // Half is dropped; of independent halves a quarter of all is dropped twice.
        assert_true(both > lost * 4 / 10 && both < lost * 6 / 10);
        world_close(&changed);
    }
    world_close(&w);
    lab_close(&lab);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests_name("kernels.route_ranks", tests, NULL, NULL);
}
