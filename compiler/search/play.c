// SPDX-License-Identifier: Apache-2.0
// A layout through the simulator: its pipeline unit by unit, from the costs of its layers. What the formula of
// search.h sums up, this plays: how stages of unequal length wait for each other, and sends.
//
// A unit (pipeline.h) is a segment: recv, what it computes, send; a last segment is what is due once a step. What a
// unit computes is one op, or one for each kind of a waterfall. These are cut from the one in whole picoseconds, so
// that a step takes the same either way.
#include "compiler/search/private.h"

typedef struct Job {
    double seconds;
    double kinds[N_SIM_KINDS]; // where they go: shares count. All 0: not asked for
} Job;

typedef struct Unit { Job jobs[N_PIPELINE_KINDS]; } Unit; // of a virtual stage and microbatch

typedef struct Play {
    const SearchProfile *profile;
    const SearchLayout *layout;
    Arena *arena;
    bool by_kind;
    Layout order;  // what pipeline.h reads of the layout
    SearchRest rest;
    Unit *units;   // [virtual stages]
    Job *steps;    // [ranks] once a step
} Play;

/* What layers take --------------------------------------------------------------------------------- */

static void add_seconds(Unit *unit, Job *step, const SearchLayer *layer, int recompute) {
    double backward = layer->seconds[recompute] - layer->forward_s - layer->wgrad_s;
    unit->jobs[PIPELINE_FORWARD].seconds += layer->forward_s;
    unit->jobs[PIPELINE_BACKWARD].seconds += fmax(backward, 0);
    unit->jobs[PIPELINE_WGRAD].seconds += layer->wgrad_s;
    step->seconds += layer->step_s;
}

static void add_kinds(Unit *unit, Job *step, const SearchWork *work) {
    for (int kind = 0; kind < N_SIM_KINDS; kind++) {
        for (int k = 0; k < N_PIPELINE_KINDS; k++) unit->jobs[k].kinds[kind] += work->unit_s[k][kind];
        step->kinds[kind] += work->step_s[kind];
    }
}

static bool add_part(Play *p, int32_t stage, int32_t part, int recompute) {
    const SearchChoice *choice = &p->layout->point.choice;
    Unit *unit = &p->units[stage];
    Job *step = &p->steps[stage % choice->pp];
    SearchLayer layer;
    if (!p->profile->part(p->profile->user, choice, part, &layer)) return false;
    if (!(layer.seconds[recompute] < INFINITY)) return false;
    add_seconds(unit, step, &layer, recompute);
    SearchWork work;
    if (!p->by_kind) return true;
    if (!p->profile->work(p->profile->user, choice, part, recompute, &work)) return false;
    add_kinds(unit, step, &work);
    return true;
}

// False: the profile has no costs of the layout.
static bool start(Play *p, const SearchProfile *profile, const SearchLayout *layout, bool by_kind, Arena *arena) {
    const SearchPoint *point = &layout->point;
    int32_t n = point->choice.pp * point->chunks, classes = profile->n_classes, layer = 0;
    *p = (Play){ .profile = profile, .layout = layout, .arena = arena, .by_kind = by_kind, .order = layout_single() };
    p->order.pp = point->choice.pp;
    p->order.chunks = point->chunks;
    p->order.schedule = point->schedule;
    p->units = ARENA_ARRAY(arena, Unit, n);
    p->steps = ARENA_ARRAY(arena, Job, point->choice.pp);
    bool can = profile->rest(profile->user, &point->choice, &p->rest) && add_part(p, 0, classes, 0);
    for (int32_t stage = 0; stage < n && can; stage++)
        for (int32_t k = 0; k < layout->stages[stage] && can; k++, layer++)
            can = add_part(p, stage, profile->class_of[layer], layout->recompute[layer]);
    return can && add_part(p, n - 1, classes + 1, 0);
}

/* Ops ---------------------------------------------------------------------------------------------- */

typedef struct Ops { SimOp *at; int32_t n; } Ops;

static void add(Ops *ops, SimOp op) {
    op.instr = ops->n; // each is a span of a picture
    ops->at[ops->n++] = op;
}

// Kinds in the order in which most layers come to them.
static const uint8_t in_turn[N_SIM_KINDS] = { WORK_gather,   WORK_dense,    WORK_attention, WORK_rows,
                                              WORK_experts,  SIM_IMBALANCE, WORK_memory,    WORK_barrier,
                                              WORK_exchange, WORK_messages, WORK_optimizer, SIM_BUBBLE };

static void add_job(Ops *ops, const Job *job, PlanWork work) {
    double all = 0, passed = 0;
    int64_t from = 0;
    for (int i = 0; i < N_SIM_KINDS; i++) all += job->kinds[in_turn[i]];
    if (!(all > 0)) {
        add(ops, (SimOp){ .what = SIM_COMPUTE, .work = work, .ps = sim_ps(job->seconds) });
        return;
    }
    for (int i = 0; i < N_SIM_KINDS; i++) {
        uint8_t kind = in_turn[i];
        if (job->kinds[kind] <= 0) continue;
        passed += job->kinds[kind];
        int64_t until = sim_ps(job->seconds * (passed / all));
        bool crosses = kind >= WORK_rows && kind < N_WORK;
        add(ops, (SimOp){ .what = crosses ? SIM_CROSS : SIM_COMPUTE, .work = kind, .ps = until - from });
        from = until;
    }
}

static Job both(const Job *a, const Job *b) {
    Job sum = { .seconds = a->seconds + b->seconds };
    for (int kind = 0; kind < N_SIM_KINDS; kind++) sum.kinds[kind] = a->kinds[kind] + b->kinds[kind];
    return sum;
}

// recv, compute, send of one unit of a virtual stage.
static void add_unit(const Play *p, int32_t stage, PipelineKind kind, Ops *ops) {
    int32_t pp = p->order.pp, all = pp * p->order.chunks, step = kind == PIPELINE_FORWARD ? 1 : -1;
    int32_t from = stage - step, to = stage + step;
    const Job *jobs = p->units[stage].jobs;
    Job job = jobs[kind];
    if (kind == PIPELINE_BACKWARD && !pipeline_splits(&p->order)) job = both(&jobs[kind], &jobs[PIPELINE_WGRAD]);
    bool talks = kind != PIPELINE_WGRAD && pp > 1;
    SimOp message = { .work = WORK_messages, .lane = kind == PIPELINE_FORWARD ? LANE_forward : LANE_back };
    if (talks && from >= 0 && from < all) {
        message.what = SIM_RECV;
        message.peer = from % pp;
        add(ops, message);
    }
    add_job(ops, &job, WORK_dense);
    if (talks && to >= 0 && to < all) {
        message.what = SIM_SEND;
        message.peer = to % pp;
        message.ps = sim_ps(p->rest.send_s);
        add(ops, message);
    }
}

// What is due once a step, and what of sends no unit hides.
static void add_step(const Play *p, int32_t rank, int32_t microbatches, Ops *ops) {
    Job job = p->steps[rank];
    double sent_s = p->order.pp > 1 ? (double)microbatches * p->order.chunks * p->rest.sent_s : 0;
    job.seconds += sent_s;
    if (p->by_kind) job.kinds[WORK_messages] += sent_s;
    add_job(ops, &job, WORK_optimizer);
}

/* Stages ------------------------------------------------------------------------------------------- */

// Segments: kind by kind, chunks inside; the last one is what is due once a step.
static SimStage make_stage(const Play *p, int32_t rank, int32_t microbatches) {
    static const char *const names[N_PIPELINE_KINDS] = { "forward", "backward", "wgrad" };
    int32_t pp = p->order.pp, v = p->order.chunks, n_segments = N_PIPELINE_KINDS * v + 1;
    int32_t most = (p->by_kind ? N_SIM_KINDS : 1) + 2; // ops of a segment
    Ops ops = { .at = ARENA_ARRAY(p->arena, SimOp, n_segments * most) };
    PlanSegment *segments = ARENA_ARRAY(p->arena, PlanSegment, n_segments);
    for (int32_t i = 0; i < n_segments; i++) {
        bool step = i == N_PIPELINE_KINDS * v;
        segments[i] = (PlanSegment){ .name = step ? "update" : names[i / v], .first = ops.n };
        if (step) add_step(p, rank, microbatches, &ops);
        else add_unit(p, i % v * pp + rank, (PipelineKind)(i / v), &ops);
        segments[i].n = ops.n - segments[i].first;
    }
    PipelineUnit *units;
    uint32_t n_rows = pipeline_units(&p->order, rank, microbatches, p->arena, &units);
    PlanRow *rows = ARENA_ARRAY(p->arena, PlanRow, n_rows + 1);
    int32_t slots = pipeline_slots(units, n_rows);
    for (uint32_t i = 0; i < n_rows; i++)
        rows[i] = (PlanRow){ (uint32_t)(units[i].kind * v + units[i].chunk), units[i].microbatch,
                             units[i].microbatch % slots };
    rows[n_rows] = (PlanRow){ (uint32_t)(N_PIPELINE_KINDS * v), -1, 0 };
    return (SimStage){ ops.at, ops.n, segments, (uint32_t)n_segments, rows, n_rows + 1 };
}

static SimStage *make_stages(const Play *p, int32_t microbatches) {
    SimStage *stages = ARENA_ARRAY(p->arena, SimStage, p->order.pp);
    for (int32_t r = 0; r < p->order.pp; r++) stages[r] = make_stage(p, r, microbatches);
    return stages;
}

Status search_stages(const SearchProfile *profile, const SearchLayout *layout, Arena *arena, SimStage **out) {
    const SearchPoint *point = &layout->point;
    int32_t layers = 0;
    for (int32_t i = 0; i < point->choice.pp * point->chunks; i++) layers += layout->stages[i];
    if (layers != profile->n_layers)
        return status_fail(ERR_ARGUMENT, "expected stages of %d layers together, found %d", profile->n_layers, layers);
    Play p;
    if (!start(&p, profile, layout, profile->work != NULL, arena))
        return status_fail(ERR_ARGUMENT, "no costs are known of such a layout: ep=%d, microbatch=%d", point->choice.ep,
                           point->choice.microbatch);
    *out = make_stages(&p, point->microbatches);
    return OK;
}

/* Seconds ------------------------------------------------------------------------------------------ */

// Of so many microbatches; NAN: the simulator refuses.
static double play(const Play *p, int32_t microbatches) {
    SimOptions options = { .posted = true, .sharing = p->profile->sharing };
    Sim sim;
    if (simulate(make_stages(p, microbatches), p->order.pp, &options, p->arena, &sim) != OK) return NAN;
    return (double)sim.step_ps * 1e-12;
}

double search_play(const SearchProfile *profile, const SearchLayout *layout) {
    Arena *arena = arena_create();
    Play p;
    double seconds = NAN;
    int32_t m = layout->point.microbatches, pp = layout->point.choice.pp;
    // Once every stage is busy a microbatch takes as long as any other.
    int32_t few = 2 * pp, enough = 4 * pp;
    if (start(&p, profile, layout, false, arena)) {
        seconds = play(&p, m < enough ? m : enough);
        if (m > enough) seconds += (m - enough) * (seconds - play(&p, few)) / (enough - few);
    }
    arena_destroy(arena);
    return seconds;
}
