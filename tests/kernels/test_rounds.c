// SPDX-License-Identifier: Apache-2.0
// route_ranks with rounds, and round: every rank's kernels run one after the other, what an exchange moves is
// moved by hand. The reference puts the rows of a rank in order (expert, source rank, slot) and cuts the list:
// every slot with an expert is served in one round, rows of a round are a dense prefix, and all ranks
// know how many rounds there are.
#include "tests/kernels/choices.h"
#include "tests/kernels/lab.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8, MOST_EXPERTS = 64 };

typedef struct Case {
    int32_t ranks, rows, top_k, experts, capacity; // of a round
    Choices kind;
    bool turned; // an expert map other than in order
    int32_t align; // of experts' first rows, divides capacity; 0: 1
} Case;
static const Case cases[] = {
    { 2, 13, 2, 6, 26, ANY, false },
    { 2, 13, 2, 6, 5, SOME_OUTSIDE, true },
    { 4, 11, 3, 8, 34, ANY, true },
    { 4, 11, 3, 8, 17, SAME, true },
    { 4, 5, 2, 4, 7, ONE_TAKES_ALL, false },
    { 4, 5, 2, 4, 1, ONE_TAKES_ALL, true }, // a row a round
    { 2, 9, 2, 4, 3, NONE, false },
    { 4, 17, 2, 8, 16, ONE_RANK, false },
    { 4, 9, 2, 8, 9, UPPER_HALF, false },
    { 8, 33, 4, 64, 140, ANY, true },
    { 2, 13, 2, 6, 8, SOME_OUTSIDE, true, 4 },
    { 4, 11, 3, 8, 32, SAME, true, 32 },
    { 4, 5, 2, 4, 4, ONE_TAKES_ALL, true, 4 },
    { 2, 9, 2, 4, 128, NONE, false, 128 },
    { 4, 9, 2, 8, 32, UPPER_HALF, false, 16 },
    { 8, 33, 4, 64, 256, ANY, true, 128 },
};

static Chooser chooser(const Case *c) {
    return (Chooser){ c->kind, c->ranks, c->top_k, c->experts, c->turned, 5 };
}

static int32_t owner_of(const Case *c, int32_t e) {
    return choice_owner(chooser(c), e);
}

static int32_t most_rounds(const Case *c) { // further ones
    int64_t pads = c->align > 1 ? (int64_t)c->experts / c->ranks * (c->align - 1) : 0;
    return (int32_t)div_up((int64_t)c->ranks * c->rows * c->top_k + pads, c->capacity) - 1;
}

// What all ranks have and get.
typedef struct World {
    const Case *c;
    int64_t slots;
    int32_t here; // experts of a rank
    int32_t *ids[MOST_RANKS], *counts[MOST_RANKS], *table[MOST_RANKS], *offsets[MOST_RANKS], *starts[MOST_RANKS],
        *numbers[MOST_RANKS], *rounds[MOST_RANKS];
    int32_t *row[MOST_RANKS]; // reference: by slot, the row on its owner of all rounds; -1: none
    int32_t asked[MOST_RANKS]; // rows of a rank, pads among them
    int32_t first[MOST_RANKS][2 * MOST_EXPERTS + 1], n_first; // of its experts, and, aligned, their ends
} World;

static void refer(World *w) {
    const Case *c = w->c;
    for (int owner = 0; owner < c->ranks; owner++) {
        int32_t n = 0, here = 0;
        w->first[owner][0] = 0;
        for (int32_t e = 0; e < c->experts; e++) {
            if (owner_of(c, e) != owner) continue;
            for (int r = 0; r < c->ranks; r++)
                for (int64_t s = 0; s < w->slots; s++)
                    if (w->ids[r][s] == e) w->row[r][s] = n++;
            w->first[owner][w->here + 1 + here] = n;
            while (c->align > 1 && n % c->align) n++;
            w->first[owner][++here] = n;
        }
        w->asked[owner] = n;
    }
}

static void world_open(World *w, const Case *c) {
    *w = (World){ .c = c, .slots = (int64_t)c->rows * c->top_k, .here = c->experts / c->ranks };
    w->n_first = (c->align > 1 ? 2 : 1) * w->here + 1;
    for (int r = 0; r < c->ranks; r++) {
        w->ids[r] = lab_array(w->slots);
        w->counts[r] = lab_array(c->ranks * (1 + c->experts));
        w->table[r] = lab_array(w->slots);
        w->offsets[r] = lab_array(w->n_first);
        w->starts[r] = lab_array(w->n_first);
        w->numbers[r] = lab_array(most_rounds(c));
        w->rounds[r] = lab_array(1);
        w->row[r] = lab_array(w->slots);
        for (int64_t s = 0; s < w->slots; s++) {
            w->ids[r][s] = choose(chooser(c), r, s);
            w->row[r][s] = -1;
        }
    }
    refer(w);
}

static void world_close(World *w) {
    for (int r = 0; r < w->c->ranks; r++) {
        lab_free(w->ids[r]), lab_free(w->counts[r]), lab_free(w->table[r]), lab_free(w->offsets[r]);
        lab_free(w->starts[r]), lab_free(w->numbers[r]), lab_free(w->rounds[r]), lab_free(w->row[r]);
    }
}

static void world_route(World *w, Lab *lab, uint32_t count, uint32_t route) {
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
        Binding b[] = { READ_I32("ids", w->ids[r]),           READ_I32("counts", all),
                        WRITE_I32("row_of_slot", w->table[r]), WRITE_I32("offsets", w->offsets[r]),
                        WRITE_I32("starts", w->starts[r]),     WRITE_I32("numbers", w->numbers[r]),
                        WRITE_I32("rounds", w->rounds[r]) };
        lab_run(lab, route, b, 7);
    }
    lab_free(all);
}

/* Checks ---------------------------------------------------------------------------------------- */

// What a round, 0 the first, serves: `rows` by slot of rank r, `offsets` of its own experts.
static void check_round(const World *w, int r, int32_t round, const int32_t *rows, const int32_t *offsets) {
    const Case *c = w->c;
    for (int64_t s = 0; s < w->slots; s++) {
        int32_t row = w->row[r][s], want = -1;
        if (row >= 0 && row / c->capacity == round)
            want = owner_of(c, w->ids[r][s]) * c->capacity + row % c->capacity;
        if (round || want >= 0 || row < 0) assert_int_equal(rows[s], want);
        else assert_true(rows[s] < -1); // elsewhere
    }
    for (int32_t e = 0; e < w->n_first; e++) {
        int64_t row = (int64_t)w->first[r][e] - (int64_t)round * c->capacity;
        assert_int_equal(offsets[e], row < 0 ? 0 : row > c->capacity ? c->capacity : row);
    }
}

static void check_routes(const World *w) {
    const Case *c = w->c;
    int32_t most = 0;
    for (int r = 0; r < c->ranks; r++) most = w->asked[r] > most ? w->asked[r] : most;
    for (int r = 0; r < c->ranks; r++) {
        check_round(w, r, 0, w->table[r], w->offsets[r]);
        assert_int_equal(w->rounds[r][0], most ? (most - 1) / c->capacity : 0);
        assert_true(w->rounds[r][0] <= most_rounds(c));
        for (int32_t i = 0; i < most_rounds(c); i++) assert_int_equal(w->numbers[r][i], i + 1);
        assert_memory_equal(w->starts[r], w->first[r], sizeof(int32_t) * (size_t)w->n_first);
    }
}

// Rounds that nobody asks for serve nothing.
static void check_rounds(const World *w, Lab *lab, uint32_t kernel) {
    const Case *c = w->c;
    int32_t *rows = lab_array(w->slots), *offsets = lab_array(w->n_first), *number = lab_array(1);
    for (int r = 0; r < c->ranks; r++) {
        for (int32_t round = 1; round <= most_rounds(c); round++) {
            number[0] = w->numbers[r][round - 1];
            Binding b[] = { READ_I32("table", w->table[r]), READ_I32("starts", w->starts[r]),
                            READ_I32("number", number), WRITE_I32("row_of_slot", rows),
                            WRITE_I32("offsets", offsets) };
            lab_run(lab, kernel, b, 5);
            check_round(w, r, round, rows, offsets);
            if (round > w->rounds[r][0]) assert_int_equal(offsets[w->here], 0);
        }
    }
    lab_free(rows), lab_free(offsets), lab_free(number);
}

static void test_rounds(void **state) {
    (void)state;
    Lab lab;
    uint32_t counts[COUNT_OF(cases)], routes[COUNT_OF(cases)], rounds[COUNT_OF(cases)];
    int32_t owner[MOST_EXPERTS];
    lab_open(&lab);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const Case *c = &cases[i];
        for (int32_t e = 0; e < c->experts; e++) owner[e] = owner_of(c, e);
        KernelDesc desc = { .family = FAMILY_COUNT, .rows = c->rows, .top_k = c->top_k, .experts = c->experts,
                            .ranks = c->ranks };
        counts[i] = lab_add(&lab, &desc);
        desc.capacity = c->capacity;
        desc.align = c->align;
        desc.family = FAMILY_ROUND;
        rounds[i] = lab_add(&lab, &desc);
        desc.family = FAMILY_ROUTE_RANKS;
        desc.rounds = most_rounds(c);
        desc.owner = c->turned ? owner : NULL;
        routes[i] = lab_add(&lab, &desc);
    }
    lab_compile(&lab);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        World w;
        world_open(&w, &cases[i]);
        world_route(&w, &lab, counts[i], routes[i]);
        check_routes(&w);
        check_rounds(&w, &lab, rounds[i]);
        world_close(&w);
    }
    lab_close(&lab);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rounds) };
    return cmocka_run_group_tests_name("kernels.rounds", tests, NULL, NULL);
}
