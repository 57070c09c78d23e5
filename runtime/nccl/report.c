// SPDX-License-Identifier: Apache-2.0
// Errors: numbers for the program, words for people. What concerns a communicator is written into its
// room, so that all ranks say the same.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/nccl/standin.h"

static _Thread_local char text[REPORT + 256];

NcclResult say(NcclResult result, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return result;
}

const char *last_text(void) {
    return text;
}

void fail_room(NcclComm comm, NcclResult result, const char *report) {
    Room *room = comm->room;
    room_lock(comm);
    bool first = !atomic_load(&room->failed);
    if (first) {
        snprintf(room->report, sizeof room->report, "%s", report);
        atomic_store(&room->failed, (uint32_t)result);
    }
    room_unlock(comm);
    if (first && !getenv("MOEC_VGPU_QUIET")) fprintf(stderr, "moec-nccl: %s\n", report);
}

static NcclResult failed(NcclComm comm) {
    NcclResult result = (NcclResult)atomic_load(&comm->room->failed);
    return result ? say(result, "%s", comm->room->report) : NCCL_OK;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static NcclComm comms; // of this process, ever

void know_comm(NcclComm comm) {
    static uint64_t n;
    pthread_mutex_lock(&lock);
    comm->born = ++n;
    comm->next = comms;
    comms = comm;
    pthread_mutex_unlock(&lock);
}

static bool known(NcclComm comm) {
    pthread_mutex_lock(&lock);
    NcclComm at = comms;
    while (at && at != comm) at = at->next;
    pthread_mutex_unlock(&lock);
    return at != NULL;
}

NcclResult check_comm(NcclComm comm, const char *call) {
    if (!comm) return say(NCCL_WRONG_ARGUMENT, "%s: the communicator is NULL", call);
    if (!known(comm))
        return say(NCCL_WRONG_ARGUMENT, "%s: %p is no communicator", call, (void *)comm);
    if (comm->over)
        return say(NCCL_WRONG_ARGUMENT, "%s: the communicator was ended by %s before", call,
                   comm->over_by);
    if (comm->pending)
        return say(NCCL_WRONG_USE,
                   "%s: the call before is still in progress\n  hint: a communicator that does not "
                   "block is asked by ncclCommGetAsyncError until it says ncclSuccess", call);
    return failed(comm);
}

size_t type_bytes(int type) {
    static const uint8_t bytes[NCCL_N_TYPES] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };
    return type >= 0 && type < NCCL_N_TYPES ? bytes[type] : 0;
}

void call_text(Text *out, const Call *call) {
    static const char *const kinds[] = { "ncclAllGather", "ncclBroadcast", "ncclSend", "ncclRecv" };
    static const char *const types[NCCL_N_TYPES] = { "int8", "uint8", "int32", "uint32", "int64",
                                                     "uint64", "float16", "float32", "float64",
                                                     "bfloat16", "float8e4m3", "float8e5m2" };
    text_printf(out, "%s of %llu %s", kinds[call->kind], (unsigned long long)call->count,
                types[call->type]);
    if (call->kind == CALL_SEND) text_printf(out, " to rank %d", call->peer);
    if (call->kind == CALL_RECV) text_printf(out, " from rank %d", call->peer);
    if (call->kind == CALL_BROADCAST) text_printf(out, " from root %d", call->peer);
    if (!is_collective(call)) {
        text_printf(out, ", message %llu between them", (unsigned long long)call->number);
        return;
    }
    text_printf(out, ", collective %llu", (unsigned long long)call->number);
    if (call->of > 1) text_printf(out, ", %u of %u in its group", call->at + 1u, call->of);
    text_printf(out, ", on stream %u", call->stream);
}

/* NCCL's --------------------------------------------------------------------------------------- */

EXPORT const char *ncclGetErrorString(NcclResult result) {
    static const char *const names[] = { "no error", "unhandled cuda error", "unhandled system error",
                                         "internal error", "invalid argument", "invalid usage",
                                         "remote process exited or there was a network error",
                                         "in progress" };
    return result >= 0 && result < COUNT_OF(names) ? names[result] : "unknown result code";
}

EXPORT const char *ncclGetLastError(NcclComm comm) {
    if (comm && known(comm) && (!comm->over || comm->late) && atomic_load(&comm->room->failed))
        return comm->room->report;
    return text;
}

EXPORT NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult *error) {
    if (!error) return say(NCCL_WRONG_ARGUMENT, "ncclCommGetAsyncError: no place for the answer");
    if (comm && known(comm) && !comm->over && group_depth()) {
        *error = say(NCCL_WRONG_USE, "a group is open in this thread: %d call%s wait for ncclGroupEnd",
                     group_calls(), group_calls() == 1 ? "" : "s");
        return NCCL_OK;
    }
    if (comm && known(comm) && !comm->over && comm->pending && !failed(comm)) {
        *error = --comm->pending ? NCCL_IN_PROGRESS : NCCL_OK;
        return NCCL_OK;
    }
    NcclResult state = check_comm(comm, "ncclCommGetAsyncError");
    if (!comm || !known(comm) || comm->over) return state;
    *error = state;
    return NCCL_OK;
}
