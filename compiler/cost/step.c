// SPDX-License-Identifier: Apache-2.0
// Seconds and bytes of one layout, from the parts of a profile.
#include <math.h>

#include "compiler/cost/profile.h"

typedef struct Stage { // of a rank of the pipeline, all its chunks
    double microbatch_s, fill_s, once_s;
    CostStep of; // per microbatch, but optimizer_s and the seconds once a step
    double once_params_s;
    int64_t state_bytes;
    CostPart *parts;
    int32_t n_parts;
} Stage;

typedef struct Stepper {
    const CostProfile *p;
    const CostCluster *cluster;
    const CostStack *stack;
    const CostRun *run;
    Stage *stages; // [pp]
} Stepper;

static double total(const double s[N_COST_CLASSES]) {
    double sum = 0;
    for (int i = 0; i < N_COST_CLASSES; i++) sum += s[i];
    return sum;
}

// Of seconds that ranks talk, what is not hidden.
static double exposed(const Stepper *s, double share, double compute_s, double talk_s) {
    if (s->run->layout->overlap == OVERLAP_OFF) share = 0;
    return cost_exposed_s(&s->cluster->device, share, compute_s, talk_s);
}

static void add_part(const Stepper *s, Stage *stage, const CostPart *part, const CostChoice *choice) {
    double compute = 0, rows = 0, imbalance = 0;
    int32_t dp = s->run->layout->dp;
    CostState state = cost_state(s->cluster, s->stack, part, choice, dp);
    for (CostPass pass = 0; pass < N_COST_PASSES; pass++) {
        compute += total(part->s[pass]);
        rows += part->rows_s[pass];
        imbalance += part->imbalance_s[pass];
        for (int c = 0; c < N_COST_CLASSES; c++) stage->of.class_s[c] += part->s[pass][c];
    }
    compute += state.work_s;
    stage->of.class_s[COST_row] += state.work_s;
    stage->of.class_s[COST_experts] -= imbalance; // rows of experts wait for the busiest
    double rows_s = exposed(s, s->run->rows_hidden, compute, rows);
    double params_s = exposed(s, s->run->params_hidden, compute, state.microbatch_s);
    double t = compute + rows_s + params_s, wgrad = total(part->s[PASS_wgrad]);
    stage->microbatch_s += t;
    stage->fill_s += s->run->layout->schedule == SCHEDULE_ZERO_BUBBLE ? fmax(t - 2 * wgrad, 0) : t;
    stage->of.rows_s += rows_s;
    stage->of.params_s += params_s;
    stage->of.imbalance_s += imbalance;
    stage->of.flops += part->flops;
    stage->once_params_s += state.step_s;
    stage->of.optimizer_s += state.optimizer_s;
    stage->state_bytes += cost_state_bytes(s->stack, part, choice, dp);
    stage->parts[stage->n_parts++] = *part;
}

CostChoice cost_run_choice(const CostRun *run) {
    const Layout *l = run->layout;
    CostChoice choice = { .microbatch = l->microbatch, .ep = l->ep, .precision = run->precision,
                          .recompute = l->recompute, .transport = l->transport, .params = l->params,
                          .expert_params = l->expert_params, .alone = l->overlap == OVERLAP_OFF,
                          .routing = run->routing, .habits = run->habits, .row_align = l->row_align,
                          .capacity = l->capacity, .round = l->round };
    return cost_settled(choice, l->dp);
}

CostPlace cost_place(const CostProfile *p, const Layout *l, int32_t i) {
    int32_t n = p->n_layers, layer = i - 1;
    if (i == 0) return (CostPlace){ cost_part_before(p), 0, l->recompute };
    if (i > n) return (CostPlace){ cost_part_after(p), layout_stages(l) - 1, l->recompute };
    return (CostPlace){ p->class_of[layer], layout_stage_of_layer(l, layer, n),
                        l->layer_recompute ? l->layer_recompute[layer] : l->recompute };
}

static bool add_parts(Stepper *s) {
    const Layout *l = s->run->layout;
    CostChoice choice = cost_run_choice(s->run);
    for (int32_t i = 0; i < s->p->n_layers + 2; i++) {
        CostPart part;
        CostPlace place = cost_place(s->p, l, i);
        choice.recompute = place.recompute;
        if (!s->p->part(s->p, place.part, &choice, &part)) return false;
        add_part(s, &s->stages[place.stage % l->pp], &part, &choice);
    }
    return true;
}

double cost_boundary_bytes(const CostProfile *p, int32_t microbatch, uint8_t precision) {
    return (double)microbatch * p->sequence * p->width * (precision == PRECISION_FP32 ? 4 : 2);
}

static int32_t in_flight(const Layout *l, int32_t stage, int64_t microbatches) {
    int64_t depth = l->pp - stage;
    if (l->chunks > 1) depth = (int64_t)ceil((double)(2 * (l->pp - stage - 1) + (l->chunks - 1) * l->pp + 1) / l->chunks);
    return (int32_t)min_i64(depth, microbatches);
}

// What each chunk but the first of all begins with is kept beside what parts keep, and gradients that come.
int64_t cost_moving_bytes(const CostProfile *p, const CostRun *run, int32_t stage, const CostPart *parts, int32_t n) {
    const Layout *l = run->layout;
    int32_t saved = in_flight(l, stage, run->sequences / ((int64_t)l->dp * l->microbatch));
    int64_t moving = cost_stage_bytes(parts, n, saved);
    double bytes = cost_boundary_bytes(p, l->microbatch, run->precision);
    if (l->pp > 1)
        moving += (int64_t)(bytes * ((l->chunks - (stage == 0)) * saved + (stage < l->pp - 1 || l->chunks > 1)));
    return moving;
}

// After the slowest rank has worked `microbatches` times, what the others wait for. `once` is a step's.
static void finish(Stepper *s, int64_t microbatches, CostStep *out) {
    const Layout *l = s->run->layout;
    double fill = 0, slowest = -INFINITY, v = l->chunks, m = (double)microbatches;
    const Stage *of = s->stages;
    double bytes = cost_boundary_bytes(s->p, l->microbatch, s->run->precision);
    for (int32_t i = 0; i < l->pp; i++) {
        Stage *stage = &s->stages[i];
        double params = exposed(s, s->run->params_hidden, stage->microbatch_s, stage->once_params_s);
        stage->once_s = params + stage->of.optimizer_s;
        fill += stage->fill_s;
        double busy = m * stage->microbatch_s + stage->once_s - stage->fill_s / v;
        if (busy > slowest) slowest = busy, of = stage;
        int64_t moving = cost_moving_bytes(s->p, s->run, i, stage->parts, stage->n_parts);
        if (stage->state_bytes + moving <= out->state_bytes + out->moving_bytes) continue;
        out->state_bytes = stage->state_bytes;
        out->moving_bytes = moving;
        out->fullest = i;
    }
    double send = l->pp > 1 ? cost_collective_s(s->cluster, COLLECTIVE_send, (CostGroup){ l->pp, l->dp }, bytes) : 0;
    double waits = 1 - fmax(s->run->rows_hidden, s->run->sends_hidden);
    out->send_s = 2 * (l->pp - 1) * send + (l->chunks > 1 ? m * 2 * v * send * waits : 0);
    for (int c = 0; c < N_COST_CLASSES; c++) out->class_s[c] = m * of->of.class_s[c];
    out->imbalance_s = m * of->of.imbalance_s;
    out->rows_s = m * of->of.rows_s;
    out->params_s = m * of->of.params_s + of->once_s - of->of.optimizer_s;
    out->optimizer_s = of->of.optimizer_s;
    out->bubble_s = (fill - of->fill_s) / v;
    out->seconds = slowest + fill / v + out->send_s;
    for (int32_t i = 0; i < l->pp; i++) out->flops += m * l->dp * s->stages[i].of.flops;
}

bool cost_step(const CostProfile *profile, const CostCluster *cluster, const CostStack *stack, const CostRun *run,
               CostStep *out) {
    const Layout *l = run->layout;
    int64_t round = (int64_t)l->dp * l->microbatch;
    *out = (CostStep){ 0 };
    if (l->microbatch < 1 || run->sequences < round || run->sequences % round || l->dp % l->ep ||
        (int64_t)l->pp * l->chunks > profile->n_layers)
        return false;
    Arena *arena = arena_create();
    Stepper s = { profile, cluster, stack, run, ARENA_ARRAY(arena, Stage, l->pp) };
    for (int32_t i = 0; i < l->pp; i++) s.stages[i].parts = ARENA_ARRAY(arena, CostPart, profile->n_layers + 2);
    bool done = add_parts(&s);
    if (done) finish(&s, run->sequences / round, out);
    arena_destroy(arena);
    return done;
}

/* Splits --------------------------------------------------------------------------------------- */

// Stages of at most `limit` seconds, filled in turn, each with a layer at least and leaving one for each after it.
// False: the last would have more. seconds: [n + 2], what precedes and follows the layers included.
static bool fill_stages(const double *seconds, int32_t n, int32_t n_stages, double limit, int32_t *stages) {
    int32_t layer = 0;
    for (int32_t i = 0; i < n_stages; i++) {
        double sum = i ? 0 : seconds[0];
        if (i == n_stages - 1) sum += seconds[n + 1];
        stages[i] = 0;
        while (layer < n && n - layer > n_stages - 1 - i &&
               (!stages[i] || i == n_stages - 1 || sum + seconds[layer + 1] <= limit)) {
            sum += seconds[layer++ + 1];
            stages[i]++;
        }
        if (sum > limit) return false;
    }
    return layer == n;
}

int32_t *cost_split(const CostProfile *profile, const CostCluster *cluster, const CostStack *stack,
                    const CostRun *run, Arena *arena) {
    const Layout *l = run->layout;
    int32_t n = profile->n_layers, n_stages = l->pp * l->chunks;
    if (n_stages > n || l->microbatch < 1 || l->ep < 1) return NULL;
    double *seconds = ARENA_ARRAY(arena, double, n + 2), low = 0, high = 0;
    for (int32_t i = 0; i < n + 2; i++) {
        Stage one = { .parts = ARENA_ARRAY(arena, CostPart, 1) };
        Stepper s = { profile, cluster, stack, run, &one };
        CostChoice choice = cost_run_choice(run);
        CostPart part;
        if (!profile->part(profile, cost_place(profile, l, i).part, &choice, &part)) return NULL;
        add_part(&s, &one, &part, &choice);
        seconds[i] = one.microbatch_s;
        high += seconds[i];
    }
    int32_t *stages = ARENA_ARRAY(arena, int32_t, n_stages);
    for (int round = 0; round < 50; round++) {
        double middle = (low + high) / 2;
        if (fill_stages(seconds, n, n_stages, middle, stages)) high = middle;
        else low = middle;
    }
    fill_stages(seconds, n, n_stages, high * (1 + 1e-12), stages);
    return stages;
}
