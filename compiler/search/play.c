// SPDX-License-Identifier: Apache-2.0
// A layout through the simulator: its pipeline unit by unit, from the costs of its layers. What the formula of
// search.h sums up, this plays: how stages of unequal length wait for each other, and sends.
#include "compiler/layout/pipeline.h"
#include "compiler/search/private.h"
#include "compiler/search/simulate.h"

typedef struct Unit { double forward_s, backward_s, wgrad_s; } Unit; // of a virtual stage and microbatch

typedef struct Play {
    const SearchProfile *profile;
    const SearchLayout *layout;
    Arena *arena;
    SearchRest rest;
    Unit *units;      // [virtual stages]
    double *step_s;   // [ranks]
} Play;

static bool add_part(Play *p, int32_t vs, int32_t part, int recompute) {
    const SearchPoint *point = &p->layout->point;
    SearchLayer layer;
    if (!p->profile->part(p->profile->user, &point->choice, part, &layer)) return false;
    double backward = layer.seconds[recompute] - layer.forward_s - layer.wgrad_s;
    p->units[vs].forward_s += layer.forward_s;
    p->units[vs].backward_s += fmax(backward, 0);
    p->units[vs].wgrad_s += layer.wgrad_s;
    p->step_s[vs % point->choice.pp] += layer.step_s;
    return true;
}

static bool fill_units(Play *p) {
    const SearchLayout *l = p->layout;
    int32_t n = l->point.choice.pp * l->point.chunks, classes = p->profile->n_classes, layer = 0;
    p->units = ARENA_ARRAY(p->arena, Unit, n);
    p->step_s = ARENA_ARRAY(p->arena, double, l->point.choice.pp);
    bool can = p->profile->rest(p->profile->user, &l->point.choice, &p->rest) && add_part(p, 0, classes, 0);
    for (int32_t vs = 0; vs < n && can; vs++)
        for (int32_t k = 0; k < l->stages[vs] && can; k++, layer++)
            can = add_part(p, vs, p->profile->class_of[layer], l->recompute[layer]);
    return can && add_part(p, n - 1, classes + 1, 0);
}

static void add(SimOp *ops, int32_t *n, SimOp op) {
    ops[(*n)++] = op;
}

// recv, compute, send of one unit of a virtual stage.
static void add_segment(const Play *p, int32_t vs, PipelineKind kind, bool splits, SimOp *ops, int32_t *n) {
    int32_t pp = p->layout->point.choice.pp, all = pp * p->layout->point.chunks;
    const Unit *u = &p->units[vs];
    double seconds = kind == PIPELINE_FORWARD ? u->forward_s
                     : kind == PIPELINE_WGRAD ? u->wgrad_s
                                              : u->backward_s + (splits ? 0 : u->wgrad_s);
    int32_t step = kind == PIPELINE_FORWARD ? 1 : -1, from = vs - step, to = vs + step;
    uint8_t lane = kind == PIPELINE_FORWARD ? LANE_forward : LANE_back;
    bool talks = kind != PIPELINE_WGRAD && pp > 1;
    if (talks && from >= 0 && from < all)
        add(ops, n, (SimOp){ .what = SIM_RECV, .work = WORK_messages, .lane = lane, .peer = from % pp });
    add(ops, n, (SimOp){ .what = SIM_COMPUTE, .work = WORK_dense, .ps = sim_ps(seconds) });
    if (talks && to >= 0 && to < all)
        add(ops, n, (SimOp){ .what = SIM_SEND, .work = WORK_messages, .lane = lane, .peer = to % pp,
                             .ps = sim_ps(p->rest.send_s) });
}

// Segments: kind by kind, chunks inside; the last one is what is due once a step.
static SimStage fill_stage(const Play *p, const Layout *layout, int32_t rank, int32_t microbatches) {
    bool splits = pipeline_splits(layout);
    int32_t pp = layout->pp, v = layout->chunks, n_ops = 0;
    uint32_t n_segments = (uint32_t)(3 * v + 1), n_rows;
    SimOp *ops = ARENA_ARRAY(p->arena, SimOp, 9 * v + 1);
    PlanSegment *segments = ARENA_ARRAY(p->arena, PlanSegment, n_segments);
    for (int32_t i = 0; i < 3 * v; i++) {
        segments[i] = (PlanSegment){ .name = "unit", .first = n_ops };
        add_segment(p, i % v * pp + rank, (PipelineKind)(i / v), splits, ops, &n_ops);
        segments[i].n = n_ops - segments[i].first;
    }
    segments[3 * v] = (PlanSegment){ .name = "step", .first = n_ops, .n = 1 };
    add(ops, &n_ops, (SimOp){ .what = SIM_COMPUTE, .work = WORK_optimizer, .ps = sim_ps(p->step_s[rank]) });
    PipelineUnit *units;
    n_rows = pipeline_units(layout, rank, microbatches, p->arena, &units);
    PlanRow *rows = ARENA_ARRAY(p->arena, PlanRow, n_rows + 1);
    int32_t slots = pipeline_slots(units, n_rows);
    for (uint32_t i = 0; i < n_rows; i++)
        rows[i] = (PlanRow){ (uint32_t)(units[i].kind * v + units[i].chunk), units[i].microbatch,
                             units[i].microbatch % slots };
    rows[n_rows] = (PlanRow){ (uint32_t)(3 * v), -1, 0 };
    return (SimStage){ ops, n_ops, segments, n_segments, rows, (int32_t)n_rows + 1 };
}

// Seconds of so many microbatches; NAN: the simulator refuses.
static double play(const Play *p, int32_t microbatches) {
    const SearchPoint *point = &p->layout->point;
    Layout layout = layout_single();
    layout.pp = point->choice.pp;
    layout.chunks = point->chunks;
    layout.schedule = point->schedule;
    SimStage *stages = ARENA_ARRAY(p->arena, SimStage, layout.pp);
    for (int32_t r = 0; r < layout.pp; r++) stages[r] = fill_stage(p, &layout, r, microbatches);
    SimOptions options = { .posted = true };
    Sim sim;
    if (simulate(stages, layout.pp, &options, p->arena, &sim) != OK) return NAN;
    return (double)sim.step_ps * 1e-12;
}

double search_play(const SearchProfile *profile, const SearchLayout *layout) {
    Arena *arena = arena_create();
    Play p = { .profile = profile, .layout = layout, .arena = arena };
    double seconds = NAN;
    int32_t m = layout->point.microbatches, pp = layout->point.choice.pp;
    // Once every stage is busy a microbatch takes as long as any other.
    int32_t few = 2 * pp, enough = 4 * pp;
    if (fill_units(&p)) {
        seconds = play(&p, m < enough ? m : enough);
        if (m > enough) seconds += (m - enough) * (seconds - play(&p, few)) / (enough - few);
        if (pp > 1) seconds += (double)m * layout->point.chunks * p.rest.sent_s;
    }
    arena_destroy(arena);
    return seconds;
}
