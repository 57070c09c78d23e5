// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes with a GPU each. Data goes from GPU to GPU through NCCL, words through the
// hosts' transport. A virtual GPU has its host carry the data, unless its NCCL is asked for
// (MOEC_NCCL_LIBRARY) or the hosts share words only.
#include <stdlib.h>

#include "runtime/exec/private.h"

static Status words_only(const Comm *host) {
    return status_fail(ERR_ARGUMENT, "torchrun has started %d ranks; ranks of CPUs are started by mpirun\n"
                       "  hint: mpirun -n %d ..., or --device cuda", host->n_ranks, host->n_ranks);
}

Status gpus_connect(Exec *exec, const char *device) {
    Comm *host = exec->host;
    const char *library = getenv("MOEC_NCCL_LIBRARY");
    bool words = !host->api->window, is_virtual = !strncmp(device, "vgpu:", 5);
    if (exec->comm != host || host->n_ranks == 1 || !host->api->processes) return OK;
    if (!strcmp(device, "cpu")) return words ? words_only(host) : OK;
    if (is_virtual && !words && !(library && *library)) return OK;
    TRY(comm_nccl(&(CommNccl){ .rank = host->rank, .n_ranks = host->n_ranks, .is_virtual = is_virtual,
                               .deadline = PATIENCE, .host = host },
                  &exec->gpus));
    exec->comm = exec->gpus;
    return OK;
}

// "cuda" on the k-th rank of a node is its GPU k.
const char *gpus_own(Exec *exec, const char *device) {
    const Comm *host = exec->host;
    int lower = 0;
    if (strcmp(device, "cuda") || host->n_ranks == 1) return device;
    for (int i = 0; i < host->rank; i++)
        lower += !host->api->node || host->api->node(host, i) == host->api->node(host, host->rank);
    return arena_printf(exec->arena, "cuda:%d", lower);
}
