// SPDX-License-Identifier: Apache-2.0
// Placement against a checker of its own: nothing alive at one time overlaps, and the peak and the
// lower bound are what they are said to be.
#include "tests/lower/helper.h"

#include <stdio.h>

// Compares every pair, byte by byte of their ranges; the bound is a plain sum per time.
static double check(const Interval *items, uint32_t n, int64_t peak, int64_t bound) {
    int64_t top = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(items[i].offset % PLAN_GRAIN, 0);
        assert_true(items[i].offset >= 0);
        top = max_i64(top, items[i].offset + round_up(items[i].bytes, PLAN_GRAIN));
        int64_t alive = 0;
        for (uint32_t j = 0; j < n; j++) {
            const Interval *a = &items[i], *b = &items[j];
            if (b->first <= a->first && a->first <= b->last)
                alive += round_up(b->bytes, PLAN_GRAIN);
            if (i == j || a->last < b->first || b->last < a->first) continue;
            bool apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            if (!apart) fail_msg("items %u and %u overlap", i, j);
        }
        most = max_i64(most, alive);
    }
    assert_int_equal(peak, top);
    assert_int_equal(bound, most); // live bytes peak where some item begins
    return most ? (double)peak / (double)most : 1;
}

static double place(Interval *items, uint32_t n) {
    Arena *arena = arena_create();
    int64_t bound, peak = place_intervals(items, n, arena, &bound);
    arena_destroy(arena);
    return check(items, n, peak, bound);
}

static void nothing_and_one(void **state) {
    (void)state;
    place(NULL, 0);
    Interval one = { .bytes = 1, .first = 3, .last = 3 };
    assert_true(place(&one, 1) == 1);
    assert_int_equal(one.offset, 0);
    Interval empty[] = { { .bytes = 0, .first = 0, .last = 5 },
                         { .bytes = 300, .first = 0, .last = 1 } };
    place(empty, 2);
}

static void a_gap_is_used(void **state) {
    (void)state;
    // The last two fit below and above the long one only if both are put where the first two were.
    Interval items[] = {
        { 1024, 0, 1, 0 }, { 512, 0, 9, 0 }, { 1024, 2, 9, 0 }, { 256, 0, 3, 0 }, { 256, 4, 9, 0 },
    };
    assert_true(place(items, COUNT_OF(items)) == 1);
}

static void random_lives(void **state) {
    (void)state;
    double worst = 1, sum = 0;
    enum { ROUNDS = 60, MOST = 200 };
    for (uint64_t round = 0; round < ROUNDS; round++) {
        Interval items[MOST];
        uint32_t n = 1 + (uint32_t)(hash_uniform(1, round, 0) * (MOST - 1));
        for (uint32_t i = 0; i < n; i++) {
            int32_t first = (int32_t)(hash_uniform(2, round, i) * 100);
            int32_t life = (int32_t)(hash_uniform(3, round, i) * (i % 4 ? 8 : 100));
            int64_t bytes = 1 + (int64_t)(hash_uniform(4, round, i) * (i % 7 ? 4000 : 100000));
            items[i] = (Interval){ .bytes = bytes, .first = first, .last = first + life };
        }
        double ratio = place(items, n);
        worst = ratio > worst ? ratio : worst;
        sum += ratio;
    }
    printf("random lives: peak over lower bound %.4f on average, %.4f at worst\n", sum / ROUNDS,
           worst);
    assert_true(worst < 1.3);
}

// Forward makes, backward takes in reverse order: a stack, which has no excuse for waste.
static void a_stack_is_exact(void **state) {
    (void)state;
    Interval items[64];
    for (int i = 0; i < COUNT_OF(items); i++)
        items[i] = (Interval){ .bytes = 256 * (1 + i * 37 % 11),
                               .first = i,
                               .last = 2 * COUNT_OF(items) - i };
    assert_true(place(items, COUNT_OF(items)) == 1);
}

static void programs(void **state) {
    (void)state;
    for (int fused = 0; fused < 2; fused++) {
        Model *m = moe_model();
        Lab lab;
        lab_start(&lab, m, PROGRAM_STEP, !fused);
        const Lower *l = &lab.l;
        Interval items[2000];
        uint32_t n = 0;
        for (uint32_t b = 0; b < l->n_buffers; b++) {
            const Buffer *buffer = &l->buffers[b];
            if (buffer->region != REGION_act) continue;
            assert_in_range(n, 0, COUNT_OF(items) - 1);
            items[n++] = (Interval){ buffer->bytes, buffer->first, buffer->last, buffer->offset };
        }
        double ratio = check(items, n, l->act_bytes, l->act_bound);
        printf("moe, %s: %u buffers, peak %lld, ratio to the lower bound %.4f\n",
               fused ? "fused" : "not fused", n, (long long)l->act_bytes, ratio);
        assert_true(ratio < 1.1);
        lab_end(&lab);
        model_destroy(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_and_one), cmocka_unit_test(a_gap_is_used),
        cmocka_unit_test(random_lives),    cmocka_unit_test(a_stack_is_exact),
        cmocka_unit_test(programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
