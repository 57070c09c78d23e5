// SPDX-License-Identifier: Apache-2.0
// Schedules of a pipeline. pipeline.h has the idea.
//
// 1F1B and interleaved: so many forward units that the first backward one finds its gradient made, then
// one forward and one backward unit in turns, then the backward units that are left. Zero bubble: after
// each backward unit, the oldest gradients of weights once more than `stage` are waiting; a stage that
// holds fewer microbatches because it lies later may let as many more wait, so none holds more than
// the first.
#include "compiler/layout/pipeline.h"

typedef struct Rows {
    PipelineUnit *units;
    uint32_t n;
} Rows;

bool pipeline_splits(const Layout *layout) {
    return layout->schedule == SCHEDULE_ZERO_BUBBLE && layout->pp > 1;
}

// All units of a kind. With a last group of fewer than pp microbatches the list is that of whole groups
// without the units of microbatches that are not there: what remains of an order without a cycle has
// none.
static void list_units(const Layout *layout, int32_t microbatches, PipelineKind kind, Rows *rows) {
    int32_t group = layout->chunks > 1 ? layout->pp : 1;
    for (int32_t first = 0; first < microbatches; first += group) {
        for (int32_t i = 0; i < layout->chunks; i++) {
            int32_t chunk = kind == PIPELINE_FORWARD ? i : layout->chunks - 1 - i;
            for (int32_t m = first; m < first + group; m++)
                rows->units[rows->n++] = (PipelineUnit){ (uint8_t)kind, chunk, m };
        }
    }
}

static int32_t warm_up(const Layout *layout, int32_t stage) {
    int32_t behind = layout->pp - stage - 1;
    return layout->chunks > 1 ? 2 * behind + (layout->chunks - 1) * layout->pp : behind;
}

static void add(Rows *rows, PipelineUnit unit, int32_t microbatches) {
    if (unit.microbatch < microbatches) rows->units[rows->n++] = unit;
}

static void add_weights(Rows *rows, PipelineUnit unit, int32_t microbatches) {
    unit.kind = PIPELINE_WGRAD;
    add(rows, unit, microbatches);
}

uint32_t pipeline_units(const Layout *layout, int32_t stage, int32_t microbatches, Arena *arena, PipelineUnit **units) {
    int32_t group = layout->chunks > 1 ? layout->pp : 1;
    uint32_t whole = (uint32_t)(round_up(microbatches, group) * layout->chunks);
    Rows forward = { ARENA_ARRAY(arena, PipelineUnit, whole), 0 },
         backward = { ARENA_ARRAY(arena, PipelineUnit, whole), 0 },
         rows = { ARENA_ARRAY(arena, PipelineUnit, 3 * whole), 0 };
    list_units(layout, microbatches, PIPELINE_FORWARD, &forward);
    list_units(layout, microbatches, PIPELINE_BACKWARD, &backward);
    bool splits = pipeline_splits(layout);
    uint32_t first = (uint32_t)min_i64(warm_up(layout, stage), whole), waiting = 0;
    for (uint32_t i = 0; i < first; i++) add(&rows, forward.units[i], microbatches);
    for (uint32_t i = 0; i < whole; i++) {
        if (first + i < whole) add(&rows, forward.units[first + i], microbatches);
        add(&rows, backward.units[i], microbatches);
        if (splits && i - waiting >= (uint32_t)stage) add_weights(&rows, backward.units[waiting++], microbatches);
    }
    for (; splits && waiting < whole; waiting++) add_weights(&rows, backward.units[waiting], microbatches);
    *units = rows.units;
    return rows.n;
}

/* In flight ------------------------------------------------------------------------------------ */

// Does the unit end its pair of chunk and microbatch?
static bool is_last(const PipelineUnit *units, uint32_t n, uint32_t i) {
    if (units[i].kind == PIPELINE_FORWARD) return false;
    return units[i].kind == PIPELINE_WGRAD || units[n - 1].kind != PIPELINE_WGRAD;
}

int32_t pipeline_slots(const PipelineUnit *units, uint32_t n) {
    // Begun with the forward unit of chunk 0, ended with the last unit of chunk 0.
    int32_t begun = 0, ended = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (units[i].chunk) continue;
        begun += units[i].kind == PIPELINE_FORWARD;
        most = begun - ended > most ? begun - ended : most;
        ended += is_last(units, n, i);
    }
    return most;
}

int32_t pipeline_in_flight(const PipelineUnit *units, uint32_t n) {
    int32_t now = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        now += units[i].kind == PIPELINE_FORWARD;
        most = now > most ? now : most;
        now -= is_last(units, n, i);
    }
    return most;
}
