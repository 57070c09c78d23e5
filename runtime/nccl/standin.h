// SPDX-License-Identifier: Apache-2.0
// libmoec-nccl.so: NCCL's names without NCCL, for virtual GPUs. Ranks are processes of one machine, or
// threads of one process. It moves the bytes, and checks what NCCL trusts: calls of all ranks of a
// communicator are compared with each other, and what would hang or corrupt is reported, on all ranks,
// in words.
//
//   enqueue.c  a group of calls becomes work of its stream: what is sent is copied to the host, a host
//              function meets the other ranks, what was received is copied to the device. So calls
//              can be captured, and happen in the stream's order.
//   meet.c     the host function: every message begins with a description of its call, which the
//              receiver compares with its own; bytes go through rings in shared memory.
//   wait.c     who waits for whom. Groups of one communicator follow each other, so ranks that wait in
//              a circle for each other's next group wait for ever: that is told at once.
//   room.c     the shared memory of a communicator; calls of the host that all ranks make.
//   comm.c, window.c  NCCL's calls for communicators, memory and windows.
#ifndef MOEC_NCCL_STANDIN_H
#define MOEC_NCCL_STANDIN_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "runtime/comm/nccl_api.h"
#include "runtime/nccl/driver.h"

enum {
    MOST_RANKS = 64,
    MOST_CALLS = 256,     // of one communicator in a group
    RING = 1 << 16,       // bytes between two ranks in one direction
    REPORT = 2048,
    OFFER = 192,          // what a rank shows in a call of the host
};

/* Calls ---------------------------------------------------------------------------------------- */

typedef enum Kind { CALL_ALL_GATHER, CALL_BROADCAST, CALL_SEND, CALL_RECV } Kind;

// What ranks compare. Messages: type and count. Collectives: everything.
typedef struct Call {
    uint8_t kind, type;
    uint16_t at, of;      // which of the group's collectives
    uint16_t stream;      // of the communicator's streams, in the order of their first collective
    int32_t peer;         // or root; -1
    uint64_t count, number; // `number`: of the communicator's collectives, or of messages to the peer
} Call;

// A call with its memory.
typedef struct Op {
    Call call;
    const char *from;     // on the device
    char *to;
    size_t in, out;       // bytes sent from here, received here
    char *sends, *takes;  // on the host
} Op;

static inline bool is_collective(const Call *call) {
    return call->kind == CALL_ALL_GATHER || call->kind == CALL_BROADCAST;
}
size_t type_bytes(int type);
void call_text(Text *text, const Call *call);

/* Shared by the ranks of a communicator -------------------------------------------------------- */

typedef enum Presence { ABSENT, PRESENT, LEFT, ABORTED } Presence;

typedef struct Member {
    pid_t pid;
    int presence;
    uint64_t groups;      // begun
    bool busy;            // in one of them
    int n_calls;          // its calls, for reports
    Call calls[MOST_CALLS];
    uint64_t collectives; // begun, this group's included
    uint64_t sent[MOST_RANKS], received[MOST_RANKS]; // messages, the same
    uint64_t meetings;    // calls of the host
    char offers[2][OFFER]; // of the last two
} Member;

// One direction between two ranks. Who writes moves `head`, who reads `tail`.
typedef struct Ring {
    _Alignas(64) _Atomic uint64_t head;
    _Alignas(64) _Atomic uint64_t tail;
    char bytes[RING];
} Ring;

typedef struct Room {
    _Atomic uint32_t ready;   // ROOM_MAGIC once it is
    int n_ranks, n_joined;
    pthread_mutex_t lock;     // of all but rings
    _Atomic uint32_t changed; // rises with everything that somebody may wait for
    _Atomic uint32_t failed;  // an NcclResult
    char report[REPORT];
    Member members[MOST_RANKS];
    Ring rings[];             // [from][to][2]: of collectives, of messages
} Room;

/* One rank's end ------------------------------------------------------------------------------- */

typedef struct Group Group;

struct ncclComm {
    NcclComm next;        // of this process; never freed, so that a late use is told
    bool over, late;      // destroyed or aborted; and then used by a recorded call
    const char *over_by;
    Room *room;
    int rank, n_ranks;
    char name[64];        // of the room
    uint64_t born;        // of this process's communicators
    bool blocking;
    int pending;          // times that GetAsyncError says "in progress" yet
    CUcontext context;
    CUdevice device;
    NcclStream streams[16]; // of collectives
    int n_streams;
    NcclStream last;      // of the last group
    CUevent after_last;
    Group *groups;        // newest first
    pthread_mutex_t run;  // one group at a time
    _Atomic bool stop;    // aborted
    uint64_t collectives, sent[MOST_RANKS], received[MOST_RANKS], n_groups;
    uint64_t meetings;
    _Atomic int running;  // host functions
};

// Calls of one communicator that go together, and their stream.
struct Group {
    Group *next;
    NcclComm comm;
    NcclStream stream;
    Op *ops;
    int n_ops;
    char *staging;        // page-locked
    size_t staged;
    CUevent ended;        // NULL: captured, kept as long as the communicator
};

#define X(field, symbol, type, parameters) type symbol parameters;
NCCL_TABLE(X)
NCCL_OPTIONAL(X)
#undef X
NcclResult ncclCommInitRank(NcclComm *out, int n, NcclId id, int rank);
NcclResult ncclBroadcast(const void *from, void *to, size_t count, NcclType type, int root, NcclComm comm,
                         NcclStream stream);

/* report.c: errors. The text is of this thread, until its next. */
NcclResult say(NcclResult result, const char *format, ...) PRINTF_LIKE(2, 3);
const char *last_text(void);
// Every rank's calls end with this. The first one counts; it is printed where it was found.
void fail_room(NcclComm comm, NcclResult result, const char *text);
// Whether the communicator can be used: known, not over, not failed, not in progress.
NcclResult check_comm(NcclComm comm, const char *call);
void know_comm(NcclComm comm);    // so that it can be
#define EXPORT __attribute__((visibility("default")))

/* room.c */
NcclResult room_join(NcclComm comm);
void room_leave(NcclComm comm, int presence);
void room_lock(NcclComm comm);
void room_unlock(NcclComm comm);  // something has changed
void room_change(Room *room);
// Until something changes, or a moment has passed.
void room_sleep(Room *room, uint32_t seen);
static inline Ring *ring_of(Room *room, int from, int to, bool message) {
    return &room->rings[(from * room->n_ranks + to) * 2 + message];
}
// All ranks show an offer of `bytes` and get all of them, [n_ranks][OFFER]. Those that meet for another
// `what` are told.
NcclResult room_meet(NcclComm comm, const char *what, const void *offer, size_t bytes, char *all);
double patience(void);            // seconds

/* wait.c: under the room's lock */
// Whether this rank, in a group, waits in a circle; *text says who for whom.
bool waits_in_circle(NcclComm comm, Text *text);
const char *absence(const Member *member); // NULL: it is there
void room_text(NcclComm comm, Text *text); // what all ranks do

/* meet.c */
void meet_group(void *group);     // a CUhostFn

/* enqueue.c */
NcclResult driver_said(const char *what); // why its call failed
int group_depth(void), group_calls(void); // of this thread
void free_groups(NcclComm comm);  // that have ended
bool groups_ended(NcclComm comm);

/* comm.c */
// A call that all ranks make on the host, not in a group.
NcclResult check_host_call(NcclComm comm, const char *call);
// What a call returns that takes time: a communicator that does not block is asked until it is ready.
NcclResult in_progress(NcclComm comm);

/* window.c */
void free_windows(NcclComm comm);

#endif
