// SPDX-License-Identifier: Apache-2.0
// Initial values: parameters are made on the host by its threads, whatever the device, so that
// their bits do not depend on it. Of many ranks each makes its part of the masters.
#include "runtime/exec/private.h"

enum { INIT_TILE = 1 << 16 }; // numbers of a parameter per tile

typedef struct InitJob {
    const PlanParam *param;
    float *at;
    int64_t first, n; // numbers of the parameter, as this rank has it
    int32_t member;   // of ep
    uint64_t seed, name;
} InitJob;

static void init_tiles(void *const *args, int64_t tile_begin, int64_t tile_end) {
    const InitJob *job = args[0];
    int64_t end = min_i64(tile_end * INIT_TILE, job->n);
    int64_t each = job->param->experts ? plan_numbers(job->param) / job->param->dims[0] : INT64_MAX, whole = 0;
    for (int64_t i = tile_begin * INIT_TILE, next = i; i < end; i++) {
        if (i == next) { // another expert
            int64_t number = job->first + i;
            whole = plan_whole_number(job->param, job->member, number) - i;
            next = each == INT64_MAX ? end : i + each - number % each;
        }
        switch ((PlanInit)job->param->init) {
        case PLAN_INIT_NORMAL:
            job->at[i] = (float)(job->param->std * hash_normal(job->seed, job->name, (uint64_t)(whole + i)));
            break;
        case PLAN_INIT_ZEROS: job->at[i] = 0; break;
        case PLAN_INIT_ONES: job->at[i] = 1; break;
        }
    }
}

Status exec_init(Exec *exec, uint64_t seed) {
    const Plan *plan = exec->plan;
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        const PlanBucket *bucket = plan_bucket(plan, param);
        PlanPart part = plan_part(plan, param, bucket ? comm_member(exec->comm, (PlanGroup)bucket->group) : 0);
        if (!part.n) continue;
        InitJob job = {
            .param = param,
            .at = (float *)(exec->images[bucket ? REGION_master : REGION_weights] + part.at),
            .first = part.first,
            .member = comm_member(exec->comm, GROUP_ep),
            .n = part.n,
            .seed = seed,
            .name = hash_bytes(param->name, strlen(param->name)).low,
        };
        void *const args[] = { &job };
        pool_run(exec->pool, init_tiles, args, div_up(job.n, INIT_TILE));
    }
    TRY(exec_upload(exec, REGION_weights));
    TRY(exec_upload(exec, REGION_master));
    static const Region moments[] = { REGION_moment1, REGION_moment2 };
    for (int i = 0; i < COUNT_OF(moments); i++) {
        char *at = exec->regions[moments[i]];
        if (at) TRY(exec->api->fill(exec->device, at, 0, plan->region_bytes[moments[i]]));
    }
    return exec_pack(exec);
}
