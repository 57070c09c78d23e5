// SPDX-License-Identifier: Apache-2.0
// Memory as other stacks account for theirs. Bytes a number are their documentation's (docs/search.md has the
// sources). What a microbatch leaves for backward: an eager stack keeps all that backward reads of forward; compiled
// blocks make row operations again where that saves bytes, as moec's do.
#include <math.h>

#include "compiler/cost/profile.h"

// Of a number, in bytes: on each rank that has it; divided over these; of the two parts at work while one is computed
// and the next gathered; of the part whose gradients have not been reduced yet.
typedef struct Bytes { double whole, divided, gathered, unreduced; } Bytes;

struct CostAccount {
    const char *name;
    bool compiled;  // blocks, by torch.compile
    Bytes of[2][2]; // [LayoutParams][fp32]
    double mxfp8;   // more of a matrix whose products are in mxfp8: both orientations of it, with scales
};

// Weights 2, gradients 4, masters and moments 12; in fp32 the weights are the masters.
#define DISTRIBUTED_OPTIMIZER { { 6, 12, 0, 0 }, { 8, 8, 0, 0 } }
// Masters, moments and gradients, all divided; weights are cast when they are gathered.
#define FULLY_SHARDED { { 0, 16, 2, 4 }, { 0, 16, 4, 4 } }

static const CostAccount accounts[] = {
    { "olmo-core", true, { [PARAMS_RESIDENT] = DISTRIBUTED_OPTIMIZER, [PARAMS_FSDP] = FULLY_SHARDED }, 2.0625 },
    { "megatron", false, { [PARAMS_RESIDENT] = DISTRIBUTED_OPTIMIZER,
                           [PARAMS_FSDP] = { { 0, 18, 2, 4 }, { 0, 16, 4, 4 } } }, 2.0625 },
    // Resident: gathered once a step and kept, reshard_after_forward=False.
    { "torchtitan", true, { [PARAMS_RESIDENT] = { { 2, 16, 0, 4 }, { 4, 16, 0, 4 } }, [PARAMS_FSDP] = FULLY_SHARDED }, 0 },
};

const CostAccount *cost_account(const char *name) {
    for (int i = 0; i < COUNT_OF(accounts); i++)
        if (!strcmp(accounts[i].name, name)) return &accounts[i];
    return NULL;
}

const char *cost_account_name(const CostAccount *account) {
    return account->name;
}

typedef struct Stage {
    double state, largest[2], unreduced; // largest: what is gathered of the two largest parts
    CostPart *parts;
    int32_t n_parts;
} Stage;

static void add_part(const CostAccount *account, const CostRun *run, const CostPart *part, Stage *stage) {
    const Layout *l = run->layout;
    double matrix[2] = { part->dense_matrix, part->expert_matrix }, other[2] = { part->dense_other, part->expert_other };
    double ranks[2] = { l->dp, fmax(l->dp / fmax(l->ep, 1), 1) }, gathered = 0, unreduced = 0;
    uint8_t params[2] = { l->params, l->expert_params };
    for (int i = 0; i < 2; i++) {
        const Bytes *b = &account->of[params[i]][run->precision == PRECISION_FP32];
        double numbers = matrix[i] + other[i];
        stage->state += numbers * (b->whole + b->divided / ranks[i]);
        if (run->precision == PRECISION_MXFP8) stage->state += matrix[i] * account->mxfp8;
        gathered += numbers * b->gathered;
        unreduced += numbers * b->unreduced;
    }
    stage->largest[1] = fmax(stage->largest[1], fmin(stage->largest[0], gathered));
    stage->largest[0] = fmax(stage->largest[0], gathered);
    stage->unreduced = fmax(stage->unreduced, unreduced);
    stage->parts[stage->n_parts++] = *part;
}

static bool add_parts(const CostProfile *p, const CostAccount *account, const CostRun *run, Stage *stages) {
    const Layout *l = run->layout;
    CostChoice choice = cost_run_choice(run);
    choice.params = choice.expert_params = PARAMS_RESIDENT; // what moec gathers is not theirs
    for (int32_t i = 0; i < p->n_layers + 2; i++) {
        CostPart part;
        CostPlace place = cost_place(p, l, i);
        bool eager = place.recompute == RECOMPUTE_CHEAP && !account->compiled;
        choice.recompute = eager ? RECOMPUTE_NONE : place.recompute;
        if (!p->part(p, place.part, &choice, &part)) return false;
        add_part(account, run, &part, &stages[place.stage % l->pp]);
    }
    return true;
}

bool cost_memory(const CostProfile *p, const CostAccount *account, const CostRun *run, CostMemory *out) {
    const Layout *l = run->layout;
    int64_t round = (int64_t)l->dp * l->microbatch;
    *out = (CostMemory){ .stage = -1 };
    if (l->microbatch < 1 || run->sequences < round || l->dp % l->ep || layout_stages(l) > p->n_layers) return false;
    Arena *arena = arena_create();
    Stage *stages = ARENA_ARRAY(arena, Stage, l->pp);
    for (int32_t i = 0; i < l->pp; i++) stages[i].parts = ARENA_ARRAY(arena, CostPart, p->n_layers + 2);
    bool done = add_parts(p, account, run, stages);
    for (int32_t i = 0; i < l->pp && done; i++) {
        const Stage *s = &stages[i];
        CostMemory m = { .stage = i, .state_bytes = (int64_t)s->state,
                         .gathered_bytes = (int64_t)(s->largest[0] + s->largest[1] + s->unreduced) };
        m.moving_bytes = cost_moving_bytes(p, run, i, s->parts, s->n_parts);
        if (i == l->pp - 1) m.moving_bytes += (int64_t)4 * l->microbatch * p->sequence * p->vocab; // logits, whole
        m.bytes = m.state_bytes + m.gathered_bytes + m.moving_bytes;
        if (m.bytes > out->bytes) *out = m;
    }
    arena_destroy(arena);
    return done;
}
