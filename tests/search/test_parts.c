// SPDX-License-Identifier: Apache-2.0
// What the search stands on: exact counts, microbatches in flight, and the formula of a step beside schedules
// played out unit by unit.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compiler/layout/pipeline.h"
#include "compiler/search/private.h"

/* Counts ---------------------------------------------------------------------------------------------- */

static void expect_count(SearchCount count, const char *digits) {
    Text text = { 0 };
    search_count_print(&count, &text);
    assert_string_equal(text_cstr(&text), digits);
    text_finish(&text);
}

static void test_counts(void **state) {
    (void)state;
    expect_count(search_count(0), "0");
    expect_count(search_count(1000), "1 000");
    expect_count(search_count(1002003), "1 002 003");
    expect_count(search_count_power(2, 128), "340 282 366 920 938 463 463 374 607 431 768 211 456");
    expect_count(search_count_choose(60, 30), "118 264 581 564 861 424");
    expect_count(search_count_choose(5, 6), "0");
    SearchCount sum = search_count_power(3, 300), less = search_count_power(3, 299);
    search_count_times(&less, 3);
    assert_true(search_count_equal(&sum, &less));
    search_count_subtract(&sum, &less);
    expect_count(sum, "0");
    SearchCount rows = search_count(0); // a row of Pascal's triangle
    for (int32_t k = 0; k <= 129; k++) {
        SearchCount c = search_count_choose(129, k);
        search_count_add(&rows, &c);
    }
    SearchCount all = search_count_power(2, 129);
    assert_true(search_count_equal(&rows, &all));
    assert_true(fabs(search_count_double(&all) / 0x1p129 - 1) < 1e-15);
}

/* In flight --------------------------------------------------------------------------------------------- */

typedef void (*OnSchedule)(const SearchPoint *point, const Layout *layout, Arena *arena);

static void each_schedule(OnSchedule on) {
    for (int schedule = 0; schedule < 3; schedule++) {
        for (int32_t pp = 1; pp <= 8; pp++) {
            for (int32_t v = 1; v <= 4; v++) {
                for (int32_t m = 1; m <= 24; m++) {
                    bool interleaved = schedule == SCHEDULE_INTERLEAVED;
                    if (interleaved != (v > 1) || (pp == 1 && schedule) || (interleaved && m % pp)) continue;
                    SearchPoint point = { .choice = { .pp = pp, .dp = 1, .ep = 1, .microbatch = 1 },
                                          .schedule = (uint8_t)schedule, .chunks = v, .microbatches = m };
                    Layout layout = layout_single();
                    layout.pp = pp;
                    layout.chunks = v;
                    layout.schedule = (uint8_t)schedule;
                    Arena *arena = arena_create();
                    on(&point, &layout, arena);
                    arena_destroy(arena);
                }
            }
        }
    }
}

static void check_flight(const SearchPoint *point, const Layout *layout, Arena *arena) {
    for (int32_t stage = 0; stage < layout->pp; stage++) {
        PipelineUnit *units;
        uint32_t n = pipeline_units(layout, stage, point->microbatches, arena, &units);
        int32_t chunks[SEARCH_MOST_CHUNKS], all = 0;
        flight_count(point, stage, chunks);
        for (int32_t c = 0; c < layout->chunks; c++) all += chunks[c];
        assert_int_equal(all, pipeline_in_flight(units, n));
    }
}

static void test_flight(void **state) {
    (void)state;
    each_schedule(check_flight);
}

/* Schedules played out ------------------------------------------------------------------------------------ */

// Seconds of a virtual stage for one microbatch.
typedef struct Unit { double forward, backward, wgrad; } Unit; // backward without wgrad

typedef struct Play {
    const Layout *layout;
    int32_t m, n; // microbatches, virtual stages
    double *done; // [kind][virtual stage][microbatch]; NAN: not yet
} Play;

static double *done_at(const Play *p, int kind, int32_t vs, int32_t m) {
    return &p->done[((int64_t)kind * p->n + vs) * p->m + m];
}

// When the unit can start; NAN: what it needs is not there yet.
static double ready(const Play *p, const PipelineUnit *u, int32_t vs) {
    if (u->kind == PIPELINE_FORWARD) return vs ? *done_at(p, PIPELINE_FORWARD, vs - 1, u->microbatch) : 0;
    if (u->kind == PIPELINE_WGRAD) return *done_at(p, PIPELINE_BACKWARD, vs, u->microbatch);
    if (vs == p->n - 1) return *done_at(p, PIPELINE_FORWARD, vs, u->microbatch);
    return *done_at(p, PIPELINE_BACKWARD, vs + 1, u->microbatch);
}

static double play(const Layout *layout, int32_t m, const Unit *costs, Arena *arena) {
    int32_t pp = layout->pp, n = pp * layout->chunks;
    Play p = { layout, m, n, ARENA_ARRAY(arena, double, 3 * n * m) };
    for (int32_t i = 0; i < 3 * n * m; i++) p.done[i] = NAN;
    PipelineUnit *units[8];
    uint32_t count[8], at[8] = { 0 }, left = 0;
    double now[8] = { 0 }, end = 0;
    for (int32_t r = 0; r < pp; r++) left += count[r] = pipeline_units(layout, r, m, arena, &units[r]);
    bool splits = pipeline_splits(layout);
    while (left) {
        for (int32_t r = 0; r < pp; r++) {
            for (; at[r] < count[r]; at[r]++, left--) {
                const PipelineUnit *u = &units[r][at[r]];
                int32_t vs = u->chunk * pp + r;
                double start = ready(&p, u, vs);
                if (isnan(start)) break;
                double takes = u->kind == PIPELINE_FORWARD    ? costs[vs].forward
                               : u->kind == PIPELINE_BACKWARD ? costs[vs].backward + (splits ? 0 : costs[vs].wgrad)
                                                              : costs[vs].wgrad;
                now[r] = fmax(now[r], start) + takes;
                *done_at(&p, u->kind, vs, u->microbatch) = now[r];
                end = fmax(end, now[r]);
            }
        }
    }
    return end;
}

// search.h's formula of virtual stages alone.
static double formula(const Layout *layout, int32_t m, const Unit *costs) {
    double time[8] = { 0 }, fill[8] = { 0 }, most = 0, fills = 0;
    int32_t pp = layout->pp, v = layout->chunks;
    for (int32_t i = 0; i < pp * v; i++) {
        double t = costs[i].forward + costs[i].backward + costs[i].wgrad;
        double f = layout->schedule == SCHEDULE_ZERO_BUBBLE ? fmax(0, t - 2 * costs[i].wgrad) : t;
        time[i % pp] += t;
        fill[i % pp] += f / v;
        fills += f / v;
    }
    for (int32_t r = 0; r < pp; r++) most = fmax(most, m * time[r] - fill[r]);
    return most + fills;
}

// Stages that are alike: exact, but where fewer microbatches than stages leave zero bubble more to hide.
static void check_even(const SearchPoint *point, const Layout *layout, Arena *arena) {
    int32_t m = point->microbatches, n = layout->pp * layout->chunks;
    Unit costs[32];
    for (int32_t i = 0; i < n; i++) costs[i] = (Unit){ 1, 1, 1 };
    if (m < layout->pp) return;
    double played = play(layout, m, costs, arena), said = formula(layout, m, costs);
    assert_true(fabs(played - said) <= 1e-9 * said);
}

// Stages that are not: no schedule is faster than the busiest rank, and none takes longer than is said but for
// what the orders themselves lose.
static void check_uneven(const SearchPoint *point, const Layout *layout, Arena *arena) {
    int32_t m = point->microbatches, n = layout->pp * layout->chunks;
    Unit costs[32];
    double busy[8] = { 0 };
    for (int32_t i = 0; i < n; i++) {
        double f = 1 + (double)hash_uniform(7, (uint64_t)i, (uint64_t)m) * 0.5;
        costs[i] = (Unit){ f, f, f };
        busy[i % layout->pp] += 3 * f * m;
    }
    if (m < layout->pp) return;
    double played = play(layout, m, costs, arena), said = formula(layout, m, costs);
    for (int32_t r = 0; r < layout->pp; r++) assert_true(played >= busy[r] * (1 - 1e-9));
    if (layout->schedule == SCHEDULE_1F1B) assert_true(played <= said * (1 + 1e-9));
    assert_true(played >= 0.85 * said && played <= 1.2 * said);
}

static void test_formula(void **state) {
    (void)state;
    each_schedule(check_even);
    each_schedule(check_uneven);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_flight),
        cmocka_unit_test(test_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
