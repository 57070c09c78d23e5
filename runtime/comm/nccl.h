// SPDX-License-Identifier: Apache-2.0
// Private to nccl*.c: one rank's end of NCCL.
#ifndef MOEC_COMM_NCCL_H
#define MOEC_COMM_NCCL_H

#include "runtime/comm/comm.h"
#include "runtime/comm/nccl_api.h"
#include "runtime/device/device.h"

typedef struct NcclShared { // a window
    struct NcclShared *next;
    void *own;
    NcclWindow window;
    bool shown;           // to the others
} NcclShared;

typedef struct NcclTicket { // a send, or a call that has only begun, under way
    struct NcclTicket *next;
    DeviceMark *mark;
} NcclTicket;

typedef struct NcclRank {
    Comm base;
    const Nccl *api;
    CommNccl options;
    int version;
    PlanMesh made;                    // of the communicators
    NcclComm world, groups[N_GROUPS]; // of equal members: the same one
    // Of calls that only begin, on a lane of the device beside its own: one for each group that may make such;
    // NULL: it has one member, or makes none.
    NcclComm behind[N_GROUPS];
    DeviceLane *beside;
    NcclComm *owned;                  // all but `world`, in the order they were made
    int n_owned;
    // [stages][N_LANES]; NULL: no messages there. What goes one way between two ranks on one lane has a
    // communicator of its own, and what this rank sends a lane of the device on which it waits to be taken.
    NcclComm *to, *from;
    DeviceLane **lanes;
    DeviceMark *fork;
    NcclTicket *tickets, *spare;      // under way; to be used again
    Device *device;                   // whose lanes and marks these are
    char *words;                      // [n_ranks + 1] of 4 bytes: what barriers gather
    NcclShared *windows;
    bool failed;
    char call[64], where[96];         // for messages: the last call, and what the executor was at
} NcclRank;

/* nccl.c */
// A call has returned `result`: waits until it has begun. `comm` may be NULL.
Status nccl_begun(NcclRank *rank, NcclComm comm, NcclResult result);
// The stream of a lane (NULL: the device's own), the device made current.
Status nccl_stream(NcclRank *rank, const DeviceLane *lane, NcclStream *out);
// What is called next, of which group; for messages.
void nccl_at(NcclRank *rank, const char *call, PlanGroup group);

/* nccl_mesh.c: communicators */
Status nccl_mesh(Comm *comm);
// Lanes and marks are of comm->device from now on.
void nccl_meet_device(NcclRank *rank);
void nccl_drop_groups(NcclRank *rank);

/* nccl_window.c */
Status nccl_window(Comm *comm, int64_t bytes, void **own, void **peers);
void nccl_release(Comm *comm, void *own, int64_t bytes);

#endif
