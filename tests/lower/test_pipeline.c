// SPDX-License-Identifier: Apache-2.0
// Schedules of pipelines: properties of all of them up to 8 stages, 4 chunks, 32 microbatches, found by
// walking all stages at once under the rules of the executor (runtime/exec/cross.c): a send only begins,
// and must have been taken when its segment and slot run again; a recv waits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "compiler/layout/pipeline.h"

enum { MOST_STAGES = 8, MOST_CHUNKS = 4, MOST_BATCHES = 32 };

typedef struct Stage {
    PipelineUnit *units;
    uint32_t n, at;
    int32_t slots;
    double clock;
} Stage;

typedef struct Walk {
    Layout layout;
    int32_t batches;
    Stage stages[MOST_STAGES];
    double done[3][MOST_STAGES * MOST_CHUNKS][MOST_BATCHES]; // when a unit ended, by virtual stage; 0: not yet
} Walk;

static Layout layout_of(int pp, int chunks, bool splits) {
    Layout layout = layout_single();
    layout.pp = pp;
    layout.chunks = chunks;
    layout.schedule = splits       ? SCHEDULE_ZERO_BUBBLE
                      : chunks > 1 ? SCHEDULE_INTERLEAVED
                                   : SCHEDULE_1F1B;
    return layout;
}

static int virtual_of(const Walk *w, int stage, const PipelineUnit *unit) {
    return unit->chunk * w->layout.pp + stage;
}

// What a unit needs that another made, or NULL.
static const double *needs(const Walk *w, int stage, const PipelineUnit *unit) {
    int v = virtual_of(w, stage, unit), last = w->layout.pp * w->layout.chunks - 1;
    if (unit->kind == PIPELINE_FORWARD) return v ? &w->done[PIPELINE_FORWARD][v - 1][unit->microbatch] : NULL;
    if (unit->kind == PIPELINE_WGRAD) return &w->done[PIPELINE_BACKWARD][v][unit->microbatch];
    return v < last ? &w->done[PIPELINE_BACKWARD][v + 1][unit->microbatch]
                    : &w->done[PIPELINE_FORWARD][v][unit->microbatch];
}

// Has the receiver taken what this segment and slot sent the last time?
static bool is_settled(const Walk *w, int stage, const PipelineUnit *unit) {
    int v = virtual_of(w, stage, unit), last = w->layout.pp * w->layout.chunks - 1;
    int before = unit->microbatch - w->stages[stage].slots;
    int to = unit->kind == PIPELINE_FORWARD ? v + 1 : v - 1;
    if (unit->kind == PIPELINE_WGRAD || before < 0 || to < 0 || to > last) return true;
    return w->done[unit->kind][to][before] > 0;
}

static double length(const Walk *w, const PipelineUnit *unit) {
    return unit->kind == PIPELINE_BACKWARD && !pipeline_splits(&w->layout) ? 2 : 1;
}

static bool step(Walk *w, int s) {
    Stage *stage = &w->stages[s];
    if (stage->at == stage->n) return false;
    const PipelineUnit *unit = &stage->units[stage->at];
    const double *before = needs(w, s, unit);
    if ((before && *before == 0) || !is_settled(w, s, unit)) return false;
    if (before && *before > stage->clock) stage->clock = *before;
    stage->clock += length(w, unit);
    double *done = &w->done[unit->kind][virtual_of(w, s, unit)][unit->microbatch];
    assert_true(*done == 0); // each once
    if (unit->kind != PIPELINE_FORWARD)
        assert_true(w->done[PIPELINE_FORWARD][virtual_of(w, s, unit)][unit->microbatch] > 0);
    *done = stage->clock;
    stage->at++;
    return true;
}

static double run(Walk *w, Arena *arena) {
    double end = 0;
    for (int s = 0; s < w->layout.pp; s++) {
        Stage *stage = &w->stages[s];
        stage->n = pipeline_units(&w->layout, s, w->batches, arena, &stage->units);
        stage->slots = pipeline_slots(stage->units, stage->n);
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < w->layout.pp; s++)
            while (step(w, s)) moved = true;
    }
    for (int s = 0; s < w->layout.pp; s++) {
        const Stage *stage = &w->stages[s];
        if (stage->at != stage->n)
            fail_msg("pp %d chunks %d batches %d schedule %d: stage %d stops at %u of %u", w->layout.pp,
                     w->layout.chunks, w->batches, w->layout.schedule, s, stage->at, stage->n);
        if (stage->clock > end) end = stage->clock;
    }
    return end;
}

// Every gradient adds microbatches in order: units that add are in order of microbatches, chunk by chunk.
static void check_order(const Walk *w, const Stage *stage) {
    int32_t next[3][MOST_CHUNKS] = { { 0 } };
    for (uint32_t i = 0; i < stage->n; i++) {
        const PipelineUnit *unit = &stage->units[i];
        assert_int_equal(unit->microbatch, next[unit->kind][unit->chunk]++);
    }
    for (int chunk = 0; chunk < w->layout.chunks; chunk++) {
        assert_int_equal(next[PIPELINE_FORWARD][chunk], w->batches);
        assert_int_equal(next[PIPELINE_BACKWARD][chunk], w->batches);
        assert_int_equal(next[PIPELINE_WGRAD][chunk], pipeline_splits(&w->layout) ? w->batches : 0);
    }
}

// No slot is used again before the last unit of the microbatch that had it.
static void check_slots(const Walk *w, const Stage *stage) {
    int32_t left[MOST_BATCHES], holder[MOST_BATCHES];
    int32_t per = (pipeline_splits(&w->layout) ? 3 : 2) * w->layout.chunks;
    for (int i = 0; i < w->batches; i++) {
        left[i] = per;
        holder[i] = -1;
    }
    for (uint32_t i = 0; i < stage->n; i++) {
        int32_t m = stage->units[i].microbatch, slot = m % stage->slots;
        if (left[m] == per) {
            assert_true(holder[slot] < 0 || left[holder[slot]] == 0);
            holder[slot] = m;
        }
        assert_int_equal(holder[slot], m);
        left[m]--;
    }
}

static void test_properties(void **state) {
    (void)state;
    for (int pp = 1; pp <= MOST_STAGES; pp++)
        for (int chunks = 1; chunks <= (pp > 1 ? MOST_CHUNKS : 1); chunks++)
            for (int batches = 1; batches <= MOST_BATCHES; batches++)
                for (int splits = 0; splits < 2; splits++) {
                    Arena *arena = arena_create();
                    Walk *w = ARENA_NEW(arena, Walk);
                    w->layout = layout_of(pp, chunks, splits);
                    w->batches = batches;
                    run(w, arena);
                    for (int s = 0; s < pp; s++) {
                        check_order(w, &w->stages[s]);
                        check_slots(w, &w->stages[s]);
                    }
                    arena_destroy(arena);
                }
}

// In flight on each of 4 stages with 8 microbatches, and the share of time the pipeline idles over the time
// its work takes, where forward, backward and gradients of weights take as long.
static void test_table(void **state) {
    (void)state;
    static const struct {
        int chunks;
        bool splits;
        int in_flight[4];
        double idle;
    } rows[] = {
        { 1, false, { 4, 3, 2, 1 }, 0.375 },
        { 1, true, { 4, 4, 4, 4 }, 0.125 },
        { 2, false, { 11, 9, 7, 5 }, 0.1875 },
        { 2, true, { 11, 10, 9, 8 }, 0.0625 },
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        Arena *arena = arena_create();
        Walk *w = ARENA_NEW(arena, Walk);
        w->layout = layout_of(4, rows[i].chunks, rows[i].splits);
        w->batches = 8;
        double work = 3.0 * 8 * rows[i].chunks, idle = run(w, arena) / work - 1;
        for (int s = 0; s < 4; s++)
            assert_int_equal(pipeline_in_flight(w->stages[s].units, w->stages[s].n),
                             rows[i].in_flight[s]);
        if (idle < rows[i].idle - 1e-9 || idle > rows[i].idle + 1e-9)
            fail_msg("row %d: expected idle %g, found %g", i, rows[i].idle, idle);
        arena_destroy(arena);
    }
}

// One stage runs each microbatch forward and back.
static void test_single(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Layout layout = layout_single();
    PipelineUnit *units;
    assert_int_equal(pipeline_units(&layout, 0, 3, arena, &units), 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(units[i].kind, i % 2 ? PIPELINE_BACKWARD : PIPELINE_FORWARD);
        assert_int_equal(units[i].microbatch, i / 2);
    }
    assert_int_equal(pipeline_slots(units, 6), 1);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_properties),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_single),
    };
    return cmocka_run_group_tests_name("lower.pipeline", tests, NULL, NULL);
}
