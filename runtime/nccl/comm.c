// SPDX-License-Identifier: Apache-2.0
// Communicators: made, split, ended.
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "runtime/nccl/standin.h"

enum { VERSION = 22902 }; // the first with all the calls that are here

EXPORT NcclResult ncclGetVersion(int *version) {
    if (!version) return say(NCCL_WRONG_ARGUMENT, "ncclGetVersion: no place for the answer");
    *version = VERSION;
    return NCCL_OK;
}

// The name of a room that nobody has.
EXPORT NcclResult ncclGetUniqueId(NcclId *id) {
    uint64_t random[2];
    if (!id) return say(NCCL_WRONG_ARGUMENT, "ncclGetUniqueId: no place for the answer");
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return say(NCCL_SYSTEM_ERROR, "no random numbers for an id");
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "moec-nccl-%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    return NCCL_OK;
}

NcclResult check_host_call(NcclComm comm, const char *call) {
    if (group_depth())
        return say(NCCL_WRONG_USE, "%s in a group: the stand-in makes it outside of groups", call);
    return check_comm(comm, call);
}

NcclResult in_progress(NcclComm comm) {
    if (comm->blocking) return NCCL_OK;
    comm->pending = 2;
    return NCCL_IN_PROGRESS;
}

/* Making --------------------------------------------------------------------------------------- */

static NcclResult check_config(const NcclConfig *config, bool *blocking) {
    *blocking = true;
    if (!config) return NCCL_OK;
    if (config->magic != NCCL_CONFIG_MAGIC || config->size < offsetof(NcclConfig, cluster_size))
        return say(NCCL_WRONG_ARGUMENT, "a configuration that was not initialised");
    if (config->blocking != NCCL_UNSET && config->blocking != 0 && config->blocking != 1)
        return say(NCCL_WRONG_ARGUMENT, "config.blocking: expected 0 or 1, found %d", config->blocking);
    *blocking = config->blocking != 0;
    return NCCL_OK;
}

// The device of this thread, kept as long as the communicator.
static NcclResult take_device(NcclComm comm) {
    const Driver *d = driver();
    CUcontext current = NULL;
    if (!d) return NCCL_SYSTEM_ERROR;
    if (d->cuCtxGetCurrent(&current) != 0 || !current || d->cuCtxGetDevice(&comm->device) != 0)
        return say(NCCL_CUDA_ERROR, "a communicator is made where a device is current: there is none");
    if (d->cuDevicePrimaryCtxRetain(&comm->context, comm->device) != 0) return driver_said("the device");
    if (comm->context == current) return NCCL_OK;
    d->cuDevicePrimaryCtxRelease_v2(comm->device);
    return say(NCCL_CUDA_ERROR, "the context that is current is not the device's primary one");
}

static NcclResult make(NcclComm *out, int n, const char *name, int rank, bool blocking) {
    NcclComm comm = memory_alloc(sizeof *comm);
    snprintf(comm->name, sizeof comm->name, "%s", name);
    comm->rank = rank;
    comm->n_ranks = n;
    comm->blocking = blocking;
    pthread_mutex_init(&comm->run, NULL);
    NcclResult result = take_device(comm);
    if (result == NCCL_OK) {
        result = room_join(comm);
        if (result != NCCL_OK) driver()->cuDevicePrimaryCtxRelease_v2(comm->device);
    }
    if (result != NCCL_OK) {
        memory_free(comm); // its room stays mapped for those who have come
        return result;
    }
    know_comm(comm);
    *out = comm;
    return in_progress(comm);
}

EXPORT NcclResult ncclCommInitRankConfig(NcclComm *out, int n, NcclId id, int rank, NcclConfig *config) {
    bool blocking;
    if (!out) return say(NCCL_WRONG_ARGUMENT, "ncclCommInitRankConfig: no place for the communicator");
    *out = NULL;
    if (group_depth()) return check_host_call(NULL, "ncclCommInitRankConfig");
    if (n < 1 || n > MOST_RANKS || rank < 0 || rank >= n)
        return say(NCCL_WRONG_ARGUMENT, "rank %d of %d ranks: the stand-in has up to %d", rank, n, MOST_RANKS);
    id.bytes[sizeof id.bytes - 1] = 0;
    if (strncmp(id.bytes, "moec-nccl-", 10) || strchr(id.bytes, '/') || strlen(id.bytes) > 42)
        return say(NCCL_WRONG_ARGUMENT, "the id is none of ncclGetUniqueId's");
    NcclResult result = check_config(config, &blocking);
    return result == NCCL_OK ? make(out, n, id.bytes, rank, blocking) : result;
}

EXPORT NcclResult ncclCommInitRank(NcclComm *out, int n, NcclId id, int rank) {
    return ncclCommInitRankConfig(out, n, id, rank, NULL);
}

typedef struct Part { int color, key; } Part;

// Rank and number of those of the same color, by key, then by rank.
static void place_in(const char *all, int n, int rank, int *place, int *members) {
    Part own, other;
    memcpy(&own, all + rank * OFFER, sizeof own);
    *place = *members = 0;
    for (int i = 0; i < n; i++) {
        memcpy(&other, all + i * OFFER, sizeof other);
        if (other.color != own.color) continue;
        ++*members;
        *place += other.key < own.key || (other.key == own.key && i < rank);
    }
}

EXPORT NcclResult ncclCommSplit(NcclComm comm, int color, int key, NcclComm *out, NcclConfig *config) {
    bool blocking;
    char name[128], *all;
    int place, members;
    NcclResult result = check_host_call(comm, "ncclCommSplit");
    if (result != NCCL_OK) return result;
    if (!out || color < NCCL_NO_COLOR) return say(NCCL_WRONG_ARGUMENT, "ncclCommSplit: color %d", color);
    *out = NULL;
    result = check_config(config, &blocking);
    if (result != NCCL_OK) return result;
    if (!config) blocking = comm->blocking;
    all = memory_alloc((size_t)comm->n_ranks * OFFER);
    result = room_meet(comm, "ncclCommSplit", &(Part){ color, key }, sizeof(Part), all);
    if (result == NCCL_OK) place_in(all, comm->n_ranks, comm->rank, &place, &members);
    memory_free(all);
    if (result != NCCL_OK) return result;
    if (color == NCCL_NO_COLOR) return in_progress(comm);
    Text of = { 0 };
    text_printf(&of, "%s/%llu/%d", comm->name, (unsigned long long)comm->meetings, color);
    char hex[33];
    hash_hex(hash_bytes(of.at, of.bytes), hex);
    text_finish(&of);
    snprintf(name, sizeof name, "moec-nccl-%s", hex);
    result = make(out, members, name, place, blocking);
    if (result != NCCL_OK && result != NCCL_IN_PROGRESS) return result;
    return in_progress(comm);
}

/* Ending --------------------------------------------------------------------------------------- */

typedef struct Away { CUcontext back; } Away;

static Away go_to(NcclComm comm) {
    Away away = { NULL };
    driver()->cuCtxGetCurrent(&away.back);
    driver()->cuCtxSetCurrent(comm->context);
    return away;
}

static void come_back(NcclComm comm, Away away) {
    driver()->cuDevicePrimaryCtxRelease_v2(comm->device);
    driver()->cuCtxSetCurrent(away.back);
}

// What was called has ended, or nothing will.
static void drain(NcclComm comm) {
    double since = time_seconds();
    while (!atomic_load(&comm->room->failed) && time_seconds() - since < patience()) {
        if (groups_ended(comm) && !atomic_load(&comm->running)) return;
        usleep(200);
    }
}

static void finish(NcclComm comm, int presence, const char *by) {
    comm->over = true;
    comm->over_by = by;
    comm->pending = 0;
    room_leave(comm, presence);
    free_windows(comm);
    free_groups(comm);
    if (comm->after_last) driver()->cuEventDestroy_v2(comm->after_last);
}

EXPORT NcclResult ncclCommFinalize(NcclComm comm) {
    NcclResult result = check_host_call(comm, "ncclCommFinalize");
    if (result != NCCL_OK) return result;
    drain(comm);
    return in_progress(comm);
}

EXPORT NcclResult ncclCommDestroy(NcclComm comm) {
    if (group_depth()) return check_host_call(comm, "ncclCommDestroy");
    NcclResult result = check_comm(comm, "ncclCommDestroy");
    if (result == NCCL_WRONG_ARGUMENT) return result;
    Away away = go_to(comm);
    drain(comm);
    finish(comm, LEFT, "ncclCommDestroy");
    come_back(comm, away);
    return NCCL_OK;
}

EXPORT NcclResult ncclCommAbort(NcclComm comm) {
    NcclResult result = check_comm(comm, "ncclCommAbort");
    if (result == NCCL_WRONG_ARGUMENT) return result;
    Away away = go_to(comm);
    atomic_store(&comm->stop, true);
    room_change(comm->room);
    while (atomic_load(&comm->running)) usleep(200);
    finish(comm, ABORTED, "ncclCommAbort");
    come_back(comm, away);
    return NCCL_OK;
}
