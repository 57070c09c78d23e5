// SPDX-License-Identifier: Apache-2.0
#include "tests/layouts/rounds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int32_t owners[8 * 8]; // of every layer

WorldJob rounds_job(const Rounds *c) {
    bool own = c->count != NULL;
    WorldJob job = { .spec = own ? "experts.lua" : c->mode, .microbatch = own ? 1 : 2, .microbatches = 2,
                     .steps = 3, .clip = 0.5, .lr = 3e-3, .decay = 0.1, .poison = true, .eval = true };
    const char *const set[][2] = { { "mode", own ? c->mode : NULL }, { "count", c->count }, { "top_k", c->top_k },
                                   { "sequence", c->sequence }, { "bias", c->bias } };
    for (int i = 0; i < COUNT_OF(set); i++)
        if (set[i][1]) job.args[job.n_args++] = (SpecArg){ set[i][0], set[i][1] };
    job.precision = c->bf16 ? PRECISION_BF16 : PRECISION_OPEN;
    if (c->bf16) job.args[job.n_args++] = (SpecArg){ "width", "70" }; // rows that lie in bf16
    job.layout = layout_single();
    job.layout.dp = c->dp;
    job.layout.ep = c->ep;
    job.layout.capacity = INFINITY;
    job.layout.round = c->round;
    job.layout.recompute = c->recompute;
    job.layout.params = job.layout.expert_params = c->fsdp ? PARAMS_FSDP : PARAMS_RESIDENT;
    if (c->node) {
        job.layout.transport = TRANSPORT_BLOCKS;
        job.layout.node = job.node_ranks = c->node;
    }
    if (c->pp) {
        bool chunks = c->schedule == SCHEDULE_INTERLEAVED;
        job.args[job.n_args++] = (SpecArg){ "layers", chunks ? "4" : "2" };
        job.layout.pp = c->pp;
        job.layout.schedule = c->schedule;
        job.layout.chunks = chunks ? 2 : 1;
        job.microbatches = chunks ? 4 : 3;
    }
    if (!c->turned) return job;
    int32_t experts = atoi(c->count);
    for (int32_t i = 0; i < COUNT_OF(owners); i++) owners[i] = (i * 3 + i / experts + 1) % c->ep;
    job.layout.placement = owners;
    job.layout.experts = experts;
    return job;
}

WorldJob rounds_at_once(WorldJob job) {
    job.layout.round = INFINITY;
    job.layout.transport = TRANSPORT_ROWS;
    job.layout.node = 1;
    job.node_ranks = 0;
    return job;
}

uint32_t rounds_counted(const PlanProgram *program) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < program->n_repeats; r++) n += program->repeats[r].count > 0;
    return n;
}

double rounds_compare(const Rounds *c) {
    WorldJob job = rounds_job(c), whole = rounds_at_once(job);
    World *a = world_run(&job), *b = world_run(&whole), *again = world_run(&job);
    const char *where = "", *heavy = "";
    double gradient = world_gradient_error(a, b, &where), loss = world_loss_error(a, b),
           weight = world_weight_error(a, b, &heavy);
    printf("%s pp %d dp %d ep %d round %g: gradients within %.2g (%s), losses within %.2g, weights within %.2g (%s)\n",
           c->mode, c->pp ? c->pp : 1, c->dp, c->ep, c->round, gradient, where, loss, weight, heavy);
    assert_true(rounds_counted(plan_program(a->plans[0], "step")) > 0);
    assert_int_equal(rounds_counted(plan_program(b->plans[0], "step")), 0);
    if (!c->node) assert_memory_equal(a->losses, b->losses, sizeof *a->losses); // of the first step
    assert_true(gradient <= (c->bf16 ? 2e-2 : 1e-6));
    assert_true(loss <= (c->bf16 ? 1e-3 : 1e-6));
    if (!c->bf16 || !c->node) // sums of nodes are rounded otherwise, and a token may choose otherwise
        assert_true(weight <= (c->bf16 ? 1e-2 : 1e-5));
    assert_true(fabs(a->eval - b->eval) <= (c->bf16 ? 1e-3 : 1e-6) * fabs(b->eval));
    assert_true(rounds_counted(plan_program(a->plans[0], "eval")) > 0);
    for (int s = 0; s < job.steps; s++) {
        assert_true(c->bf16 || a->served[s] == b->served[s]);
        assert_true(c->bf16 || a->dropped[s] == b->dropped[s]);
    }
    world_equal_bits(a, again);
    if (c->node) { // in parts of one size
        World *parts;
        job.whole_blocks = true;
        world_equal_bits(parts = world_run(&job), a);
        world_free(parts);
    }
    world_free(a), world_free(b), world_free(again);
    return gradient;
}
