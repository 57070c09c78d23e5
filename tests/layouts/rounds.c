// SPDX-License-Identifier: Apache-2.0
#include "tests/layouts/rounds.h"

#include <math.h>
#include <stdio.h>

WorldJob rounds_job(const Rounds *c) {
    bool own = c->count != NULL;
    WorldJob job = world_experts(&(WorldExperts){ .spec = own ? NULL : c->mode, .microbatch = own ? 1 : 2,
                                        .mode = c->mode, .count = c->count, .top_k = c->top_k, .sequence = c->sequence,
                                        .bias = c->bias, .dp = c->dp, .ep = c->ep, .turned = c->turned, .bf16 = c->bf16,
                                        .recompute = c->recompute, .pp = c->pp, .schedule = c->schedule });
    job.steps = 3;
    job.eval = true;
    job.layout.capacity = INFINITY;
    job.layout.round = c->round;
    job.layout.params = job.layout.expert_params = c->fsdp ? PARAMS_FSDP : PARAMS_RESIDENT;
    if (c->node) {
        job.layout.transport = TRANSPORT_BLOCKS;
        job.layout.node = job.node_ranks = c->node;
    }
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
