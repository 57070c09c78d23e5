// SPDX-License-Identifier: Apache-2.0
#include "tests/layouts/blocks.h"

#include <stdlib.h>

static int32_t owners[8 * 8];

WorldJob blocks_job(const Blocks *c) {
    WorldJob job = { .spec = "experts.lua", .microbatch = c->microbatch, .microbatches = 2, .steps = 4, .clip = 0.5,
                     .lr = 3e-3, .decay = 0.1, .poison = true };
    const char *const set[][2] = { { "mode", c->mode }, { "count", c->count }, { "top_k", c->top_k },
                                   { "sequence", c->sequence }, { "bias", c->bias } };
    for (int i = 0; i < COUNT_OF(set); i++) job.args[job.n_args++] = (SpecArg){ set[i][0], set[i][1] };
    job.precision = c->bf16 ? PRECISION_BF16 : PRECISION_OPEN;
    if (c->bf16) job.args[job.n_args++] = (SpecArg){ "width", "70" }; // rows that lie in bf16
    job.layout = layout_single();
    job.layout.dp = c->dp;
    job.layout.ep = c->ep;
    job.layout.recompute = c->recompute;
    job.layout.capacity = c->capacity;
    job.layout.params = job.layout.expert_params = c->params;
    if (c->pp) {
        job.args[job.n_args++] = (SpecArg){ "layers", "2" };
        job.layout.pp = c->pp;
        job.layout.schedule = c->schedule;
        job.microbatches = 3;
    }
    if (!c->turned) return job;
    int32_t experts = atoi(c->count);
    for (int32_t i = 0; i < COUNT_OF(owners); i++) owners[i] = (i * 3 + i / experts + 1) % c->ep;
    job.layout.placement = owners;
    job.layout.experts = experts;
    return job;
}

WorldJob blocks_layout(WorldJob job, int node) {
    job.layout.transport = TRANSPORT_BLOCKS;
    job.layout.node = job.node_ranks = node;
    return job;
}
