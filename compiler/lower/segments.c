// SPDX-License-Identifier: Apache-2.0
// Segments of a program: which node is computed in which, what they are called, in which order rows run
// them.
//
// Where gradients of weights are apart (zero bubble), products that only add to gradients run in wgrad,
// with what is made of them; rows that both need are made in backward, what hangs on forward values
// alone in wgrad. Sums over rows stay: their records come out of row programs that run anyway.
#include "compiler/layout/pipeline.h"
#include "compiler/lower/pass.h"

int lower_segment(const Lower *l, uint32_t n) {
    const Node *node = model_at(l->m, n);
    int falling = l->chunks - 1 - node->chunk;
    switch ((Part)node->part) {
    case PART_FORWARD: return SEGMENT_FORWARD + node->chunk;
    case PART_BACKWARD: return (l->info[n].weights ? SEGMENT_WGRAD : SEGMENT_BACKWARD) + falling;
    default: return SEGMENT_UPDATE;
    }
}

bool lower_has_segment(const Lower *l, int segment) {
    bool step = l->program == PROGRAM_STEP;
    if (is_forward(segment)) return segment - SEGMENT_FORWARD < l->chunks;
    if (segment < SEGMENT_FORWARD || segment >= SEGMENT_UPDATE) return step && segment < N_SEGMENTS;
    if (is_backward(segment)) return step && segment - SEGMENT_BACKWARD < l->chunks;
    return step && pipeline_splits(l->layout) && segment - SEGMENT_WGRAD < l->chunks;
}

const char *lower_segment_name(const Lower *l, int segment) {
    if (segment < SEGMENT_FORWARD) return "clear";
    if (segment >= SEGMENT_UPDATE) return "update";
    int chunk = is_forward(segment)    ? segment - SEGMENT_FORWARD
                : is_backward(segment) ? l->chunks - 1 - (segment - SEGMENT_BACKWARD)
                                       : l->chunks - 1 - (segment - SEGMENT_WGRAD);
    const char *kind = is_forward(segment) ? "forward" : is_backward(segment) ? "backward" : "wgrad";
    return l->chunks > 1 ? arena_printf(l->plan->arena, "%s.%d", kind, chunk) : kind;
}

/* Gradients of weights ------------------------------------------------------------------------- */

static bool is_weight_product(Op op) {
    return op == OP_MATMUL_W || op == OP_EMBED_W;
}

void lower_mark_weights(const Lower *l, bool *weights) {
    const Model *m = l->m;
    bool *other = ARENA_ARRAY(l->arena, bool, m->n_nodes); // read by more than sums of gradients
    for (uint32_t n = m->n_nodes - 1; n > 0; n--) {
        const Node *node = &m->nodes[n];
        bool total = node->op == OP_TOTAL && node->part == PART_UPDATE;
        bool ends = node->round ? false // further rounds keep nothing for later
                    : node->op == OP_ACCUMULATE || total ||
                    (node->part == PART_BACKWARD && l->info[n].role != ROLE_DEAD && !other[n]);
        for (int i = 0; !ends && i < node->n_args; i++) other[model_arg(m, n, i)] = true;
    }
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        const Node *node = &m->nodes[n];
        if (node->part != PART_BACKWARD || other[n] || l->info[n].role == ROLE_DEAD) continue;
        bool made = is_weight_product((Op)node->op);
        for (int i = 0; i < node->n_args; i++) made |= weights[model_arg(m, n, i)];
        weights[n] = made;
    }
}

void lower_find_weights(Lower *l) {
    if (!pipeline_splits(l->layout)) return;
    bool *weights = ARENA_ARRAY(l->arena, bool, l->m->n_nodes);
    lower_mark_weights(l, weights);
    for (uint32_t n = 1; n < l->m->n_nodes; n++) l->info[n].weights = weights[n];
}

/* Rows ----------------------------------------------------------------------------------------- */

static int segment_of_unit(const Lower *l, const PipelineUnit *unit) {
    int falling = l->chunks - 1 - unit->chunk;
    return unit->kind == PIPELINE_FORWARD    ? SEGMENT_FORWARD + unit->chunk
           : unit->kind == PIPELINE_BACKWARD ? SEGMENT_BACKWARD + falling
                                             : SEGMENT_WGRAD + falling;
}

// A gradient for a stage further back than the one before (of a table that further predictions read at the end, too) is
// taken when that stage has come to the microbatch, up to pp of them later. What is sent keeps its slot until then.
static bool sends_far_back(const Lower *l) {
    for (uint32_t n = 1; n < l->m->n_nodes; n++) {
        const Node *node = &l->m->nodes[n];
        if (node->op == OP_SEND && node->attr.cross.when == CROSS_VALUE && node->attr.cross.stage < l->options->stage - 1)
            return true;
    }
    return false;
}

void lower_list_rows(Lower *l) {
    PlanRow *rows;
    uint32_t n = 0, n_units = 0;
    l->slots = 1;
    if (l->program != PROGRAM_STEP) {
        rows = ARENA_ARRAY(l->arena, PlanRow, (uint32_t)l->chunks);
        for (int c = 0; c < l->chunks; c++) rows[n++] = (PlanRow){ (uint32_t)(SEGMENT_FORWARD + c), 0, 0 };
    } else {
        PipelineUnit *units;
        n_units = pipeline_units(l->layout, l->options->stage, l->plan->microbatches, l->arena, &units);
        l->slots = pipeline_slots(units, n_units);
        if (sends_far_back(l)) l->slots = (int32_t)max_i64(l->slots, min_i64(l->layout->pp, l->plan->microbatches));
        rows = ARENA_ARRAY(l->arena, PlanRow, n_units + 2);
        rows[n++] = (PlanRow){ SEGMENT_CLEAR, -1, 0 };
        for (uint32_t i = 0; i < n_units; i++)
            rows[n++] = (PlanRow){ (uint32_t)segment_of_unit(l, &units[i]), units[i].microbatch,
                                   units[i].microbatch % l->slots };
        rows[n++] = (PlanRow){ SEGMENT_UPDATE, -1, 0 };
    }
    l->rows = rows;
    l->n_rows = n;
}

/* Between stages ------------------------------------------------------------------------------- */

bool lower_crosses_wide(const Type *type) {
    return type->kind == KIND_REAL && (type->row == ROW_T || type->row == ROW_R) && type_features(type) >= LOWER_WIDE;
}

// Transfers between two stages on one lane are made by both in one order.
void lower_order_transfers(Lower *l) {
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        const Kernel *kernel = &l->kernels[k];
        if (kernel->op != PLAN_send && kernel->op != PLAN_recv) continue;
        uint32_t order = l->m->nodes[kernel->node].attr.cross.order, before = k;
        for (uint32_t i = 0; i < l->n_kernels; i++) {
            const Kernel *other = &l->kernels[i];
            if (other->op != kernel->op || other->peer != kernel->peer || other->lane != kernel->lane ||
                other->segment != kernel->segment || l->m->nodes[other->node].attr.cross.order >= order)
                continue;
            if (before == k ||
                l->m->nodes[other->node].attr.cross.order > l->m->nodes[l->kernels[before].node].attr.cross.order)
                before = i;
        }
        if (before != k) lower_after(l, k, before);
    }
}
