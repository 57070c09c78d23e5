// SPDX-License-Identifier: Apache-2.0
// Probes: one for each precision, recomputation, whether experts are on other ranks and what is gathered, of the model
// of few layers, one sequence a microbatch, on one rank. A part takes the kernels of the layer that stands for it.
#include "compiler/search/profile_private.h"

/* What lowering tells -------------------------------------------------------------------------- */

static uint8_t rows_of(const ProbeKernel *kernel) {
    const KernelDesc *d = kernel->desc;
    switch (d->family) {
    case FAMILY_ROW: return d->body.row;
    case FAMILY_MATMUL:
    case FAMILY_MATMUL_T:
    case FAMILY_MATMUL_W: return d->experts ? ROW_R : ROW_T;
    case FAMILY_SEGMENT_SUM: return d->experts ? ROW_R : ROW_T;
    case FAMILY_PACK: return d->experts ? ROW_E : ROW_NONE;
    case FAMILY_REDUCE:
    case FAMILY_CLEAR: return kernel->experts ? ROW_E : ROW_NONE;
    default: return ROW_T;
    }
}

static double weights_of(const KernelDesc *d, const CostKernel *k) {
    bool wgrad = d->family == FAMILY_MATMUL_W;
    if (!wgrad && d->family != FAMILY_MATMUL && d->family != FAMILY_MATMUL_T) return 0;
    double numbers = wgrad ? k->groups * k->m * k->n : k->groups * k->n * k->k;
    return numbers * (wgrad || d->precision != PRECISION_BF16 ? 4 : 2) * (wgrad && d->accumulate ? 2 : 1);
}

static void see_kernel(void *user, const ProbeKernel *kernel) {
    Seen *s = user;
    const KernelDesc *d = kernel->desc;
    SeenKernel seen = { .at = *kernel, .rows = rows_of(kernel),
                        .packs = d->family == FAMILY_PACK || d->family == FAMILY_REDUCE };
    cost_of_kernel(d, 1, &seen.cost);
    seen.weights = weights_of(d, &seen.cost);
    if (d->family != FAMILY_ROW && d->experts && seen.rows == ROW_R)
        s->expert_rows = fmax(s->expert_rows, (double)d->rows);
    *ARENA_PUSH(s->scratch, s->kernels, s->n_kernels, s->cap_kernels) = seen;
}

static void see_buffer(void *user, const ProbeBuffer *buffer) {
    Seen *s = user;
    *ARENA_PUSH(s->scratch, s->buffers, s->n_buffers, s->cap_buffers) = *buffer;
}

static void fill_parts(const Seen *s, Arena *arena, Probe *probe) {
    probe->parts = ARENA_ARRAY(arena, ProbePart, s->p->base.n_classes + 2);
    probe->rows = s->expert_rows;
    for (uint32_t i = 0; i < s->n_kernels; i++) {
        const SeenKernel *seen = &s->kernels[i];
        const ProbeKernel *at = &seen->at;
        int32_t part = part_of(s->p, s->few->middle, at->layer);
        if (part < 0) continue;
        ProbePart *to = &probe->parts[part];
        CostPass pass = !at->backward ? PASS_forward : at->again ? PASS_again
                        : at->weights ? PASS_wgrad : PASS_dgrad;
        *ARENA_PUSH(arena, to->kernels, to->n_kernels, to->cap_kernels) =
            (PartKernel){ .kernel = seen->cost, .pass = (uint8_t)pass, .rows = seen->rows, .trips = at->trips,
                          .weights = seen->weights, .packs = seen->packs };
    }
    profile_see_memory(s, arena, probe);
}

/* Layouts of probes ---------------------------------------------------------------------------- */

static int32_t smallest_divisor(int32_t n) {
    for (int32_t d = 2; d <= n; d++) {
        if (n % d == 0) return d;
    }
    return 1;
}

int32_t profile_ranks(const Profile *p) {
    return smallest_divisor((int32_t)p->base.experts);
}

// Two ranks have each part of what is gathered.
static Layout layout_of(const Profile *p, const CostChoice *choice) {
    Layout layout = layout_single();
    layout.recompute = choice->recompute % 3;
    layout.microbatch = 1;
    layout.capacity = 1;
    if (choice->ep > 1) layout.dp = layout.ep = profile_ranks(p);
    layout.params = choice->params;
    layout.expert_params = choice->expert_params;
    layout.overlap = choice->alone ? OVERLAP_OFF : OVERLAP_ON;
    if (choice->params || choice->expert_params) layout.dp *= 2;
    return layout;
}

// NULL: there is none, which lowering will say.
static const Model *graph_for(Profile *p, Few *few, const CostChoice *choice, int32_t ranks) {
    Model **graph = &few->graphs[(choice->ep > 1) * 2 + (choice->params || choice->expert_params)];
    if (*graph) return *graph;
    few->model->ranks = ranks;
    *graph = model_program(few->model, PROGRAM_STEP);
    if (*graph) p->made[p->n_made++] = *graph;
    return *graph;
}

/* Probes --------------------------------------------------------------------------------------- */

static bool run_probe(Profile *p, uint8_t precision, const CostChoice *choice, Seen *seen) {
    Layout layout = layout_of(p, choice);
    LowerOptions options = { .microbatch = 1,
                             .microbatches = 1,
                             .target = p->target,
                             .precision = precision,
                             .recompute = layout.recompute,
                             .layout = &layout };
    Few *few = profile_few(p, choice);
    LowerProbe probe = { .kernel = see_kernel, .buffer = see_buffer, .user = seen,
                         .graph = graph_for(p, few, choice, layout.dp) };
    *seen = (Seen){ .p = p, .few = few, .scratch = arena_create() };
    bool done = lower_probe(few->model, &options, &probe);
    if (!done && few->model != p->model) p->model->diag = few->model->diag;
    return done;
}

bool profile_plans(const CostProfile *profile, const CostChoice *choice) {
    Profile *p = profile->user;
    if (choice->precision == PRECISION_MXFP8) {
        diag_set(p->model, "no plan is in mxfp8");
        return false;
    }
    CostChoice alone = { .alone = true };
    Model *few = profile_few(p, &alone)->model;
    Layout layout = layout_of(p, choice);
    layout.transport = choice->transport;
    if (isfinite(choice->round) && choice->round > 0 && layout.ep > 1) {
        layout.capacity = INFINITY;
        layout.round = 1;
    }
    LowerOptions options = { .microbatch = 1,
                             .microbatches = 1,
                             .target = p->target,
                             .precision = choice->precision,
                             .recompute = layout.recompute,
                             .layout = &layout,
                             .programs[PROGRAM_STEP] = true };
    Plan *plan = lower_model(few, &options);
    if (!plan && few != p->model) p->model->diag = few->diag;
    plan_destroy(plan);
    return plan != NULL;
}

const Probe *profile_probe(Profile *p, const CostChoice *choice) {
    bool wide = choice->precision == PRECISION_FP32, apart = choice->ep > 1;
    int gathers = (choice->params ? 1 : 0) + (choice->expert_params ? 2 : 0), key = wide;
    key = key * 3 + choice->recompute % 3;
    key = key * 2 + apart;
    key = key * 4 + gathers;
    key = key * 2 + (gathers && choice->alone);
    Probe *probe = &p->probes[key];
    if (probe->made || probe->refused) return probe;
    Seen seen;
    probe->made = run_probe(p, wide ? PRECISION_FP32 : PRECISION_BF16, choice, &seen);
    probe->refused = !probe->made;
    if (probe->made) fill_parts(&seen, p->arena, probe);
    arena_destroy(seen.scratch);
    return probe;
}
