// SPDX-License-Identifier: Apache-2.0
// A unit of the pipeline is a segment: what comes in, its parts one after another, what goes out. Of a part what is
// hidden starts before its compute and is waited for after it.
#include "compiler/search/simulate_layout.h"

#include <math.h>

#include "compiler/layout/pipeline.h"

enum { KINDS = 3 /* of units */ };

typedef struct Building {
    const SimLayout *l;
    Arena *arena;
    SimOp *ops;
    uint32_t n, cap;
    double *loads; // by op
    uint32_t n_loads, cap_loads;
} Building;

static int32_t add(Building *b, SimOp op, double seconds, double load) {
    op.ps = sim_ps(fmax(seconds, 0));
    *ARENA_PUSH(b->arena, b->ops, b->n, b->cap) = op;
    *ARENA_PUSH(b->arena, b->loads, b->n_loads, b->cap_loads) = load;
    return (int32_t)b->n - 1;
}

static void compute(Building *b, PlanWork work, double seconds) {
    if (seconds > 0) add(b, (SimOp){ .what = SIM_COMPUTE, .work = work }, seconds, 1);
}

// A share of a crossing that goes on beside what follows, and the rest of it, which does not.
static int32_t begin(Building *b, PlanWork work, double seconds, double hidden) {
    if (seconds * (1 - hidden) > 0) add(b, (SimOp){ .what = SIM_CROSS, .work = work }, seconds * (1 - hidden), 1);
    return seconds * hidden > 0 ? add(b, (SimOp){ .what = SIM_START, .work = work }, seconds * hidden, 1) : -1;
}

static void wait_for(Building *b, int32_t start) {
    if (start >= 0)
        add(b, (SimOp){ .what = SIM_WAIT, .work = b->ops[start].work, .start = start }, 0, 1);
}

/* Parts ---------------------------------------------------------------------------------------- */

static Status find_part(const SimLayout *l, int32_t part, int32_t recompute, CostPart *out, CostState *state) {
    CostChoice choice = l->choice;
    choice.recompute = (uint8_t)recompute;
    if (!l->profile->part(l->profile, part, &choice, out))
        return status_fail(ERR_ARGUMENT, "simulate: the profile of %s has no part %d with %d ranks of ep",
                           l->profile->model, part, choice.ep);
    *state = cost_state(l->cluster, l->stack, out, &choice, l->dp);
    return OK;
}

static void add_pass(Building *b, const CostPart *p, CostPass pass) {
    const double *s = p->s[pass];
    double even = fmax(s[COST_experts] - p->imbalance_s[pass], 0);
    compute(b, WORK_dense, s[COST_dense]);
    compute(b, WORK_attention, s[COST_attention]);
    if (s[COST_experts] > 0)
        add(b, (SimOp){ .what = SIM_COMPUTE, .work = WORK_experts, .uneven = true }, even,
            even > 0 ? s[COST_experts] / even : 1);
    compute(b, WORK_memory, s[COST_row] + s[COST_move] + s[COST_optimizer]);
}

static void add_part(Building *b, PipelineKind kind, const CostPart *p, const CostState *state) {
    bool forward = kind == PIPELINE_FORWARD, splits = b->l->schedule == SCHEDULE_ZERO_BUBBLE;
    double rows = forward ? p->rows_s[PASS_forward] : p->rows_s[PASS_again] + p->rows_s[PASS_dgrad] + p->rows_s[PASS_wgrad];
    if (kind == PIPELINE_WGRAD) {
        add_pass(b, p, PASS_wgrad);
        return;
    }
    // Weights are gathered by both passes, gradients exchanged by the second: a third each.
    int32_t params = begin(b, forward ? WORK_gather : WORK_exchange, state->microbatch_s * (forward ? 1 : 2) / 3,
                           b->l->params_hidden);
    int32_t moving = begin(b, WORK_rows, rows, b->l->rows_hidden);
    if (forward) {
        add_pass(b, p, PASS_forward);
    } else {
        add_pass(b, p, PASS_again);
        add_pass(b, p, PASS_dgrad);
        if (!splits) add_pass(b, p, PASS_wgrad);
    }
    compute(b, WORK_memory, state->work_s / 2);
    wait_for(b, moving);
    wait_for(b, params);
    // The busiest rank of the layer's experts is waited for within it.
    if (rows > 0) add(b, (SimOp){ .what = SIM_CROSS, .work = WORK_barrier }, 0, 1);
}

typedef struct Parts { const CostPart *parts; const CostState *states; int32_t first, n; } Parts; // of a virtual stage

static Status find_parts(const SimLayout *l, Arena *arena, Parts **out) {
    int32_t n = l->pp * l->chunks, layers = l->profile->n_layers, at = 0;
    CostPart *parts = ARENA_ARRAY(arena, CostPart, layers + 2);
    CostState *states = ARENA_ARRAY(arena, CostState, layers + 2);
    TRY(find_part(l, cost_part_before(l->profile), 0, &parts[0], &states[0]));
    for (int32_t i = 0; i < layers; i++)
        TRY(find_part(l, l->profile->class_of[i], l->recompute[i], &parts[i + 1], &states[i + 1]));
    TRY(find_part(l, cost_part_after(l->profile), 0, &parts[layers + 1], &states[layers + 1]));
    *out = ARENA_ARRAY(arena, Parts, n);
    for (int32_t v = 0; v < n; v++) {
        (*out)[v] = (Parts){ parts, states, at, l->stages[v] + (v == 0) + (v == n - 1) };
        at += (*out)[v].n;
    }
    if (at == layers + 2) return OK;
    return status_fail(ERR_ARGUMENT, "simulate: expected stages of %d layers together, found %d", layers, at - 2);
}

/* Stages --------------------------------------------------------------------------------------- */

static double send_s(const SimLayout *l) {
    double number = l->choice.precision == PRECISION_FP32 ? 4 : 2;
    double bytes = (double)l->choice.microbatch * l->profile->sequence * l->profile->width * number;
    return cost_collective_s(l->cluster, COLLECTIVE_send, (CostGroup){ 2, l->dp }, bytes);
}

static void add_unit(Building *b, PipelineKind kind, int32_t v, const Parts *p) {
    const SimLayout *l = b->l;
    int32_t n = l->pp * l->chunks, way = kind == PIPELINE_FORWARD ? 1 : -1;
    bool talks = l->pp > 1 && kind != PIPELINE_WGRAD;
    SimOp message = { .work = WORK_messages, .lane = kind == PIPELINE_FORWARD ? LANE_forward : LANE_back };
    if (talks && v - way >= 0 && v - way < n) {
        message.what = SIM_RECV;
        message.peer = (v - way) % l->pp;
        add(b, message, 0, 1);
    }
    for (int32_t k = 0; k < p->n; k++) {
        int32_t i = p->first + (way > 0 ? k : p->n - 1 - k);
        add_part(b, kind, &p->parts[i], &p->states[i]);
    }
    if (talks && v + way >= 0 && v + way < n) {
        message.what = SIM_SEND;
        message.peer = (v + way) % l->pp;
        add(b, message, send_s(l), 1);
    }
}

// What is exchanged and updated once, of all virtual stages of the rank. What is hidden goes on beside the last
// backward, which here is the update's own arithmetic.
static void add_update(Building *b, int32_t s, const Parts *parts) {
    double crossing = 0, optimizer = 0;
    for (int32_t v = s; v < b->l->pp * b->l->chunks; v += b->l->pp)
        for (int32_t k = parts[v].first; k < parts[v].first + parts[v].n; k++) {
            crossing += parts[v].states[k].step_s;
            optimizer += parts[v].states[k].optimizer_s;
        }
    int32_t start = begin(b, WORK_exchange, crossing, b->l->params_hidden);
    compute(b, WORK_optimizer, optimizer);
    wait_for(b, start);
}

static SimStage make_stage(Building *b, int32_t s, const Parts *parts) {
    const SimLayout *l = b->l;
    Layout layout = layout_single();
    layout.pp = l->pp;
    layout.chunks = l->chunks;
    layout.schedule = l->schedule;
    PipelineUnit *units;
    uint32_t n = pipeline_units(&layout, s, l->microbatches, b->arena, &units);
    int32_t slots = pipeline_slots(units, n);
    PlanSegment *segments = ARENA_ARRAY(b->arena, PlanSegment, l->chunks * KINDS + 1);
    PlanRow *rows = ARENA_ARRAY(b->arena, PlanRow, n + 1);
    static const char *const names[] = { "forward", "backward", "wgrad" };
    for (int32_t i = 0; i <= l->chunks * KINDS; i++) {
        bool update = i == l->chunks * KINDS;
        segments[i] = (PlanSegment){ update ? "update" : names[i % KINDS], (int32_t)b->n, 0 };
        if (update) add_update(b, s, parts);
        else add_unit(b, (PipelineKind)(i % KINDS), i / KINDS * l->pp + s, &parts[i / KINDS * l->pp + s]);
        segments[i].n = (int32_t)b->n - segments[i].first;
    }
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (PlanRow){ (uint32_t)(units[i].chunk * KINDS + units[i].kind), units[i].microbatch,
                             units[i].microbatch % slots };
    rows[n] = (PlanRow){ (uint32_t)(l->chunks * KINDS), -1, 0 };
    return (SimStage){ .ops = b->ops, .n_ops = (int32_t)b->n, .segments = segments,
                       .n_segments = (uint32_t)(l->chunks * KINDS + 1), .rows = rows, .n_rows = n + 1 };
}

static double load_of(void *user, int32_t stage, int32_t row, int32_t op) {
    double *const *loads = user;
    (void)row;
    return loads[stage][op];
}

Status sim_layout(const SimLayout *l, Arena *arena, Sim *out) {
    Parts *parts;
    TRY(find_parts(l, arena, &parts));
    SimStage *stages = ARENA_ARRAY(arena, SimStage, l->pp);
    double **loads = ARENA_ARRAY(arena, double *, l->pp);
    for (int32_t s = 0; s < l->pp; s++) {
        Building b = { .l = l, .arena = arena };
        stages[s] = make_stage(&b, s, parts);
        loads[s] = b.loads;
    }
    SimOptions options = { .contention = l->cluster->device.contention, .posted = l->posted, .load_of = load_of,
                           .user = loads };
    return simulate(stages, l->pp, &options, arena, out);
}
