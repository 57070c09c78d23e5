// SPDX-License-Identifier: Apache-2.0
// From calls to work of a stream. Calls outside of a group are groups of one; a group's calls of one
// communicator go together, on one stream.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/nccl/standin.h"

typedef struct Asked {
    NcclComm comm;
    NcclStream stream;
    Op op;
} Asked;

static _Thread_local struct {
    int depth, n, cap;
    Asked *asked;
    NcclResult result; // of the first call that was refused
} open_group;

int group_depth(void) {
    return open_group.depth;
}

int group_calls(void) {
    return open_group.n;
}

NcclResult driver_said(const char *what) {
    return say(NCCL_CUDA_ERROR, "%s: the driver says: %s", what, driver()->message());
}

/* Checks --------------------------------------------------------------------------------------- */

static NcclResult check_memory(const void *at, size_t bytes, const char *name, const char *what) {
    CUdeviceptr start, asked = (CUdeviceptr)(uintptr_t)at;
    size_t whole;
    if (!bytes) return NCCL_OK;
    if (driver()->cuMemGetAddressRange_v2(&start, &whole, asked) != 0)
        return say(NCCL_WRONG_ARGUMENT, "%s: the %s buffer %#llx is no memory of the device", name, what,
                   asked);
    if (asked + bytes <= start + whole) return NCCL_OK;
    return say(NCCL_WRONG_ARGUMENT,
               "%s: %zu bytes at byte %llu of the %s buffer's allocation, which has %zu", name, bytes,
               asked - start, what, whole);
}

static bool overlap(const char *a, size_t n, const char *b, size_t m) {
    return n && m && a < b + m && b < a + n;
}

// Nothing that is written is read or written by another call of the group; an all-gather may have its own
// part in place.
static NcclResult check_overlaps(NcclComm comm, const Op *ops, int n) {
    for (int i = 0; i < n; i++) {
        const Op *w = &ops[i];
        for (int k = 0; k < n && w->out; k++) {
            const Op *r = &ops[k];
            const char *place = w->call.kind == CALL_ALL_GATHER ? w->to + (size_t)comm->rank * w->in : w->to;
            bool in_place = i == k && r->from == place;
            if ((!in_place && overlap(w->to, w->out, r->from, r->in)) ||
                (k != i && overlap(w->to, w->out, r->to, r->out)))
                return say(NCCL_WRONG_ARGUMENT,
                           "calls of one group use memory that one of them writes: %zu bytes at %p",
                           w->out, (const void *)w->to);
        }
    }
    return NCCL_OK;
}

// Messages to oneself are sent and taken in one group.
static NcclResult check_own(NcclComm comm, const Op *ops, int n) {
    int takes = 0;
    for (int i = 0; i < n; i++) takes += ops[i].call.kind == CALL_RECV && ops[i].call.peer == comm->rank;
    for (int i = 0, k = 0; i < n; i++) {
        if (ops[i].call.kind != CALL_SEND || ops[i].call.peer != comm->rank) continue;
        takes--;
        while (k < n && (ops[k].call.kind != CALL_RECV || ops[k].call.peer != comm->rank)) k++;
        if (k == n) break;
        if (ops[i].in != ops[k].out || ops[i].call.type != ops[k].call.type)
            return say(NCCL_WRONG_USE, "rank %d sends itself %zu bytes and takes %zu", comm->rank,
                       ops[i].in, ops[k].out);
        k++;
    }
    if (!takes) return NCCL_OK;
    return say(NCCL_WRONG_USE, "rank %d sends to itself and receives from itself in different groups: "
               "neither ends\n  hint: both go between one ncclGroupStart and ncclGroupEnd", comm->rank);
}

/* Work ----------------------------------------------------------------------------------------- */

static size_t padded(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static bool ended(const Group *group) {
    return group->ended && driver()->cuEventQuery(group->ended) != CU_NOT_READY;
}

// One that has ended, with as much memory, or a new one.
static Group *take_group(NcclComm comm, size_t bytes, bool captured) {
    const Driver *d = driver();
    for (Group *group = captured ? NULL : comm->groups; group; group = group->next)
        if (group->staged >= bytes && group->staged <= 4 * bytes + 4096 && ended(group)) return group;
    int mode = CU_RELAXED; // a capture forbids neither
    void *staging = NULL;
    Group *group = memory_alloc(sizeof *group);
    d->cuThreadExchangeStreamCaptureMode(&mode);
    bool good = d->cuMemHostAlloc(&staging, bytes + 64, 0) == 0 &&
                (captured || d->cuEventCreate(&group->ended, CU_NO_TIMING) == 0);
    d->cuThreadExchangeStreamCaptureMode(&mode);
    if (!good) {
        memory_free(group);
        return NULL;
    }
    group->comm = comm;
    group->staging = staging;
    group->staged = bytes;
    group->next = comm->groups;
    comm->groups = group;
    return group;
}

static NcclResult submit(Group *group, bool captured) {
    const Driver *d = driver();
    NcclComm comm = group->comm;
    CUstream stream = group->stream;
    if (!captured && comm->last && comm->last != stream && comm->after_last &&
        d->cuStreamWaitEvent(stream, comm->after_last, 0) != 0)
        return driver_said("the order of a communicator's calls");
    for (int i = 0; i < group->n_ops; i++) {
        const Op *op = &group->ops[i];
        if (op->in && d->cuMemcpyDtoHAsync_v2(op->sends, (CUdeviceptr)(uintptr_t)op->from, op->in, stream))
            return driver_said("what is sent");
    }
    if (d->cuLaunchHostFunc(stream, meet_group, group)) return driver_said("a group");
    for (int i = 0; i < group->n_ops; i++) {
        const Op *op = &group->ops[i];
        if (op->out && d->cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)op->to, op->takes, op->out, stream))
            return driver_said("what is received");
    }
    if (captured) return NCCL_OK;
    if (!comm->after_last && d->cuEventCreate(&comm->after_last, CU_NO_TIMING))
        return driver_said("the order of a communicator's calls");
    comm->last = stream;
    if (d->cuEventRecord(group->ended, stream) || d->cuEventRecord(comm->after_last, stream))
        return driver_said("the end of a group");
    return NCCL_OK;
}

// Which of the communicator's streams.
static int stream_number(NcclComm comm, NcclStream stream) {
    int i = 0;
    while (i < comm->n_streams && comm->streams[i] != stream) i++;
    if (i == comm->n_streams && i < COUNT_OF(comm->streams)) comm->streams[comm->n_streams++] = stream;
    return i;
}

static void number_collectives(NcclComm comm, NcclStream stream, Op *ops, int n) {
    uint16_t of = 0, at = 0;
    for (int i = 0; i < n; i++) of += is_collective(&ops[i].call);
    int number = of ? stream_number(comm, stream) : 0;
    for (int i = 0; i < n; i++) {
        if (!is_collective(&ops[i].call)) continue;
        ops[i].call.at = at++;
        ops[i].call.of = of;
        ops[i].call.stream = (uint16_t)number;
    }
}

// Takes `ops` over.
static NcclResult start(NcclComm comm, NcclStream stream, Op *ops, int n) {
    int capturing = 0;
    size_t bytes = 0;
    NcclResult result = check_own(comm, ops, n);
    if (result == NCCL_OK) result = check_overlaps(comm, ops, n);
    if (result == NCCL_OK && driver()->cuStreamIsCapturing(stream, &capturing) != 0)
        result = driver_said("the stream");
    for (int i = 0; i < n; i++) bytes += padded(ops[i].in) + padded(ops[i].out);
    Group *group = result == NCCL_OK ? take_group(comm, bytes, capturing) : NULL;
    if (!group) {
        memory_free(ops);
        return result == NCCL_OK ? driver_said("memory on the host") : result;
    }
    number_collectives(comm, stream, ops, n);
    char *at = group->staging;
    for (int i = 0; i < n; i++) {
        ops[i].sends = at;
        ops[i].takes = at + padded(ops[i].in);
        at = ops[i].takes + padded(ops[i].out);
    }
    memory_free(group->ops);
    group->ops = ops;
    group->n_ops = n;
    group->stream = stream;
    result = submit(group, capturing);
    return result == NCCL_OK ? in_progress(comm) : result;
}

/* Groups --------------------------------------------------------------------------------------- */

static NcclResult start_all(void) {
    NcclResult result = NCCL_OK;
    for (int i = 0; i < open_group.n; i++) {
        NcclComm comm = open_group.asked[i].comm;
        if (!comm) continue;
        NcclStream stream = open_group.asked[i].stream;
        Op *ops = memory_alloc(sizeof *ops * (size_t)open_group.n);
        int n = 0;
        NcclResult own = NCCL_OK;
        for (int k = i; k < open_group.n; k++) {
            Asked *asked = &open_group.asked[k];
            if (asked->comm != comm) continue;
            if (asked->stream != stream)
                own = say(NCCL_WRONG_USE, "calls of one communicator in a group are on several streams: "
                          "the stand-in wants one");
            ops[n++] = asked->op;
            asked->comm = NULL;
        }
        if (n > MOST_CALLS) own = say(NCCL_WRONG_USE, "%d calls in a group: the stand-in takes %d", n, MOST_CALLS);
        if (own == NCCL_OK) own = start(comm, stream, ops, n);
        else memory_free(ops);
        if (result == NCCL_OK || result == NCCL_IN_PROGRESS) result = own != NCCL_OK ? own : result;
    }
    open_group.n = 0;
    return result;
}

// Of a call: a group that holds it starts nothing.
static NcclResult refuse(NcclResult result) {
    if (result != NCCL_OK && open_group.depth && open_group.result == NCCL_OK) open_group.result = result;
    return result;
}

static NcclResult enqueue(NcclComm comm, NcclStream stream, const Op *op, const char *name) {
    NcclResult result = check_comm(comm, name);
    if (result == NCCL_OK && !type_bytes(op->call.type))
        result = say(NCCL_WRONG_ARGUMENT, "%s: no such data type", name);
    if (result == NCCL_OK && op->call.peer >= comm->n_ranks)
        result = say(NCCL_WRONG_ARGUMENT, "%s: rank %d of a communicator of %d", name, op->call.peer,
                     comm->n_ranks);
    if (result == NCCL_OK) result = check_memory(op->from, op->in, name, "send");
    if (result == NCCL_OK) result = check_memory(op->to, op->out, name, "receive");
    if (result != NCCL_OK) return refuse(result);
    if (open_group.n == open_group.cap) {
        open_group.cap = open_group.cap ? 2 * open_group.cap : 16;
        open_group.asked = memory_grow(open_group.asked, sizeof(Asked) * (size_t)open_group.cap);
    }
    open_group.asked[open_group.n++] = (Asked){ comm, stream, *op };
    return open_group.depth ? NCCL_OK : start_all();
}

EXPORT NcclResult ncclGroupStart(void) {
    open_group.depth++;
    return NCCL_OK;
}

// A group of which a call was refused starts nothing.
EXPORT NcclResult ncclGroupEnd(void) {
    if (!open_group.depth) return say(NCCL_WRONG_USE, "ncclGroupEnd without ncclGroupStart");
    if (--open_group.depth) return NCCL_OK;
    NcclResult refused = open_group.result;
    open_group.result = NCCL_OK;
    if (refused == NCCL_OK) return start_all();
    open_group.n = 0;
    return refused;
}

bool groups_ended(NcclComm comm) {
    for (Group *group = comm->groups; group; group = group->next)
        if (group->ended && !ended(group)) return false;
    return true;
}

void free_groups(NcclComm comm) {
    for (Group **at = &comm->groups; *at;) {
        Group *group = *at;
        if (!ended(group)) { // recorded, or aborted under way
            at = &group->next;
            continue;
        }
        *at = group->next;
        driver()->cuMemFreeHost(group->staging);
        driver()->cuEventDestroy_v2(group->ended);
        memory_free(group->ops);
        memory_free(group);
    }
}

/* Calls ---------------------------------------------------------------------------------------- */

static Op op_of(Kind kind, int type, int peer, size_t count) {
    bool is_type = type_bytes(type) > 0;
    return (Op){ .call = { .kind = kind, .type = is_type ? (uint8_t)type : UINT8_MAX, .peer = peer, .count = count } };
}

EXPORT NcclResult ncclAllGather(const void *from, void *to, size_t count, NcclType type, NcclComm comm,
                                NcclStream stream) {
    NcclResult result = check_comm(comm, "ncclAllGather");
    if (result != NCCL_OK) return refuse(result);
    Op op = op_of(CALL_ALL_GATHER, type, -1, count);
    op.from = from;
    op.to = to;
    op.in = count * type_bytes(type);
    op.out = op.in * (size_t)comm->n_ranks;
    return enqueue(comm, stream, &op, "ncclAllGather");
}

EXPORT NcclResult ncclBroadcast(const void *from, void *to, size_t count, NcclType type, int root,
                                NcclComm comm, NcclStream stream) {
    NcclResult result = check_comm(comm, "ncclBroadcast");
    if (result != NCCL_OK) return refuse(result);
    if (root < 0) return refuse(say(NCCL_WRONG_ARGUMENT, "ncclBroadcast: root %d", root));
    Op op = op_of(CALL_BROADCAST, type, root, count);
    op.from = from;
    op.to = to;
    op.out = count * type_bytes(type);
    op.in = root == comm->rank ? op.out : 0;
    return enqueue(comm, stream, &op, "ncclBroadcast");
}

EXPORT NcclResult ncclSend(const void *from, size_t count, NcclType type, int peer, NcclComm comm,
                           NcclStream stream) {
    if (peer < 0) return refuse(say(NCCL_WRONG_ARGUMENT, "ncclSend: to rank %d", peer));
    Op op = op_of(CALL_SEND, type, peer, count);
    op.from = from;
    op.in = count * type_bytes(type);
    return enqueue(comm, stream, &op, "ncclSend");
}

EXPORT NcclResult ncclRecv(void *to, size_t count, NcclType type, int peer, NcclComm comm,
                           NcclStream stream) {
    if (peer < 0) return refuse(say(NCCL_WRONG_ARGUMENT, "ncclRecv: from rank %d", peer));
    Op op = op_of(CALL_RECV, type, peer, count);
    op.to = to;
    op.out = count * type_bytes(type);
    return enqueue(comm, stream, &op, "ncclRecv");
}
