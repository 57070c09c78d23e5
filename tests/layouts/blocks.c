// SPDX-License-Identifier: Apache-2.0
#include "tests/layouts/blocks.h"

WorldJob blocks_job(const Blocks *c) {
    WorldJob job = world_experts(&(WorldExperts){ .microbatch = c->microbatch,
                                        .mode = c->mode, .count = c->count, .top_k = c->top_k, .sequence = c->sequence,
                                        .bias = c->bias, .dp = c->dp, .ep = c->ep, .turned = c->turned, .bf16 = c->bf16,
                                        .recompute = c->recompute, .pp = c->pp, .schedule = c->schedule });
    job.steps = 4;
    job.layout.capacity = c->capacity;
    job.layout.params = job.layout.expert_params = c->params;
    return job;
}

WorldJob blocks_layout(WorldJob job, int node) {
    job.layout.transport = TRANSPORT_BLOCKS;
    job.layout.node = job.node_ranks = node;
    return job;
}
