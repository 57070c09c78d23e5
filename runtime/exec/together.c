// SPDX-License-Identifier: Apache-2.0
// Many ranks: those of a machine share its cores and its cache of kernels, and all tell where they are.
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "runtime/exec/private.h"

Status together_count(Exec *exec) {
    exec->n_here = 1;
    return comm_sum_here(exec->host, &exec->n_here);
}

// A launcher may have bound the rank to cores of its own; else it takes its part of all.
static int cores(const Exec *exec) {
    cpu_set_t set;
    int64_t usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1,
            all = sysconf(_SC_NPROCESSORS_ONLN);
    return (int)max_i64(min_i64(usable, all / exec->n_here), 1);
}

int together_threads(const Exec *exec, int asked) {
    return asked || exec->n_here == 1 ? asked : cores(exec);
}

static Status share_gather(void *user, const void *from, void *to, int64_t bytes) {
    Comm *comm = ((Exec *)user)->host;
    return comm->api->gather(comm, GROUP_world, from, to, bytes);
}

static Status share_agree(void *user, Status status) {
    return comm_agree(((Exec *)user)->host, status);
}

static void share_pulse(void *user) {
    Comm *comm = ((Exec *)user)->host;
    comm_at(comm, "compiling kernels");
}

const JitShare *together_share(Exec *exec) {
    if (exec->host->n_ranks == 1) return NULL;
    const char *cache = jit_cache_dir(exec->arena);
    exec->share = (JitShare){ .rank = exec->host->rank,
                              .n = exec->host->n_ranks,
                              .place = hash_mix(comm_machine(), hash_bytes(cache, strlen(cache)).low, 0),
                              .cores = cores(exec),
                              .gather = share_gather,
                              .agree = share_agree,
                              .pulse = share_pulse,
                              .user = exec };
    return &exec->share;
}

void together_at(Exec *exec, const PlanProgram *program, int32_t i, const PlanRow *row) {
    static const char *const ops[N_PLAN_OPS] = {
#define X(name) #name,
        PLAN_OPS(X)
#undef X
    };
    if (exec->host->n_ranks == 1 || !exec->host->api->at) return;
    const PlanInstr *instr = &program->instrs[i];
    static const char *const halves[N_HALVES] = { "", "start of ", "wait for " };
    bool launch = instr->op == PLAN_launch;
    char where[192], meanwhile[48] = "", of[32] = "";
    if (row->microbatch >= 0) snprintf(of, sizeof of, " of microbatch %d", row->microbatch);
    if (exec->n_begun && instr->half != HALF_wait)
        snprintf(meanwhile, sizeof meanwhile, " (%s %s under way)", ops[exec->begun[0].start->op],
                 plan_group_name((PlanGroup)exec->begun[0].start->group));
    snprintf(where, sizeof where, "program %s, step %d, %s%s: instruction %d, %s%s%s", program->name, exec->step,
             program->segments[row->segment].name, of, i,
             halves[instr->half], launch ? exec->plan->kernels[instr->kernel].entry : ops[instr->op], meanwhile);
    comm_at(exec->host, where);
}

Status together_wait(Exec *exec) {
    enum { EAGER = 64, SHORT = 20000, LONG = 500000 /* ns */ };
    bool asks = exec->host->n_ranks > 1 && exec->api->idle, idle = false;
    double since = time_seconds(), told = since;
    for (int turns = 0; asks; turns++) {
        TRY(exec->api->idle(exec->device, &idle));
        if (idle) break;
        double now = time_seconds();
        if (now - since > PATIENCE)
            return status_fail(ERR_DEVICE, "rank %d: the GPU has not come to an end in %d s", exec->host->rank,
                               PATIENCE);
        if (now - told > 0.25) {
            TRY(comm_check(exec->host));
            comm_at(exec->host, NULL);
            told = now;
        }
        nanosleep(&(struct timespec){ .tv_nsec = turns < EAGER ? SHORT : LONG }, NULL);
    }
    return exec->api->synchronize(exec->device);
}
