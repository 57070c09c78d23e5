// SPDX-License-Identifier: Apache-2.0
// The room of a communicator: a file in memory that its ranks map. Whoever comes first makes it; the last
// to come takes its name away, so that nothing is left behind. One lock for all that is not bytes under
// way; a word that rises with every change is what everybody sleeps on.
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/nccl/standin.h"

enum { ROOM_MAGIC = 0x6e63636c };

double patience(void) {
    const char *given = getenv("MOEC_NCCL_DEADLINE");
    double seconds = given ? atof(given) : 0;
    return seconds > 0 ? seconds : 300;
}

void room_change(Room *room) {
    atomic_fetch_add(&room->changed, 1);
    syscall(SYS_futex, &room->changed, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void room_sleep(Room *room, uint32_t seen) {
    struct timespec moment = { .tv_nsec = 50000000 };
    syscall(SYS_futex, &room->changed, FUTEX_WAIT, seen, &moment, NULL, 0);
}

// Who died with the lock left the room as it was: its entries are its own.
void room_lock(NcclComm comm) {
    if (pthread_mutex_lock(&comm->room->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&comm->room->lock);
}

void room_unlock(NcclComm comm) {
    pthread_mutex_unlock(&comm->room->lock);
    room_change(comm->room);
}

/* Joining -------------------------------------------------------------------------------------- */

static size_t room_bytes(int n) {
    return sizeof(Room) + (size_t)n * (size_t)n * 2 * sizeof(Ring);
}

static void furnish(Room *room, int n) {
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&room->lock, &how);
    pthread_mutexattr_destroy(&how);
    room->n_ranks = n;
    atomic_store(&room->ready, ROOM_MAGIC);
}

static void path_of(NcclComm comm, char path[128]) {
    snprintf(path, 128, "/dev/shm/%s", comm->name);
}

static NcclResult cannot(const char *what) {
    return say(NCCL_SYSTEM_ERROR, "%s: %s", what, strerror(errno));
}

// The file, as large as it gets: who makes it says how many ranks there are.
static NcclResult open_room(NcclComm comm, bool *made, size_t *bytes) {
    char path[128];
    path_of(comm, path);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    *made = file >= 0;
    if (file < 0) file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return cannot(path);
    struct stat found = { 0 };
    bool grown = *made && ftruncate(file, (off_t)room_bytes(comm->n_ranks)) == 0;
    for (double since = time_seconds(); !*made && time_seconds() - since < patience(); usleep(1000))
        if ((grown = fstat(file, &found) == 0 && found.st_size > 0)) break;
    *bytes = *made ? room_bytes(comm->n_ranks) : (size_t)found.st_size;
    void *at = grown ? mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    NcclResult result = at == MAP_FAILED ? cannot("shared memory of a communicator") : NCCL_OK;
    close(file);
    if (result == NCCL_OK) comm->room = at;
    return result;
}

static NcclResult take_place(NcclComm comm) {
    Room *room = comm->room;
    char path[128];
    room_lock(comm);
    Member *own = &room->members[comm->rank];
    NcclResult result = NCCL_OK;
    if (room->n_ranks != comm->n_ranks)
        result = say(NCCL_WRONG_ARGUMENT, "ranks of one communicator say it has %d and %d of them",
                     room->n_ranks, comm->n_ranks);
    else if (own->presence != ABSENT)
        result = say(NCCL_WRONG_ARGUMENT, "rank %d of %d comes twice", comm->rank, comm->n_ranks);
    if (result == NCCL_OK) {
        own->pid = getpid();
        own->presence = PRESENT;
        room->n_joined++;
    }
    path_of(comm, path);
    if (room->n_joined == room->n_ranks) unlink(path);
    room_unlock(comm);
    if (result != NCCL_OK) fail_room(comm, result, last_text());
    return result;
}

// Until all have come.
static NcclResult await_all(NcclComm comm) {
    Room *room = comm->room;
    char path[128], text[160];
    for (double since = time_seconds();;) {
        uint32_t seen = atomic_load(&room->changed);
        room_lock(comm);
        int joined = room->n_joined, absent = 0;
        while (absent < room->n_ranks && room->members[absent].presence != ABSENT) absent++;
        pthread_mutex_unlock(&room->lock);
        if (joined == room->n_ranks) return NCCL_OK;
        uint32_t failed = atomic_load(&room->failed);
        if (failed) return say((NcclResult)failed, "%s", room->report);
        if (time_seconds() - since < patience()) {
            room_sleep(room, seen);
            continue;
        }
        path_of(comm, path);
        unlink(path);
        snprintf(text, sizeof text, "%d of %d ranks have come in %.0f s; rank %d is missing", joined,
                 room->n_ranks, patience(), absent);
        fail_room(comm, NCCL_REMOTE_ERROR, text);
    }
}

NcclResult room_join(NcclComm comm) {
    bool made;
    size_t bytes;
    NcclResult result = open_room(comm, &made, &bytes);
    if (result != NCCL_OK) return result;
    if (made) furnish(comm->room, comm->n_ranks);
    for (double since = time_seconds(); atomic_load(&comm->room->ready) != ROOM_MAGIC; usleep(1000))
        if (time_seconds() - since > patience())
            return say(NCCL_SYSTEM_ERROR, "who made the communicator's memory did not finish it");
    result = take_place(comm);
    return result == NCCL_OK ? await_all(comm) : result;
}

// The mapping stays: host functions may still look.
void room_leave(NcclComm comm, int presence) {
    room_lock(comm);
    comm->room->members[comm->rank].presence = presence;
    room_unlock(comm);
}

/* Calls of the host ---------------------------------------------------------------------------- */

// Its offers begin with the name of the call.
enum { NAME = 32 };

static bool all_here(NcclComm comm, uint64_t meeting, int *missing) {
    Room *room = comm->room;
    for (int i = 0; i < room->n_ranks; i++) {
        if (room->members[i].meetings >= meeting) continue;
        *missing = i;
        return false;
    }
    return true;
}

static void compare(NcclComm comm, const char *what, const char *all) {
    for (int i = 0; i < comm->n_ranks; i++) {
        const char *theirs = all + i * OFFER;
        if (!strncmp(theirs, what, NAME)) continue;
        char text[256];
        snprintf(text, sizeof text, "rank %d is in %s, rank %d in %.*s\n  hint: all ranks of a "
                 "communicator make such calls in one order", comm->rank, what, i, NAME, theirs);
        fail_room(comm, NCCL_WRONG_USE, text);
        return;
    }
}

NcclResult room_meet(NcclComm comm, const char *what, const void *offer, size_t bytes, char *all) {
    Room *room = comm->room;
    Member *own = &room->members[comm->rank];
    uint64_t meeting = ++comm->meetings;
    int slot = meeting & 1, missing = 0;
    room_lock(comm);
    memset(own->offers[slot], 0, OFFER);
    snprintf(own->offers[slot], NAME, "%s", what);
    memcpy(own->offers[slot] + NAME, offer, bytes);
    own->meetings = meeting;
    room_unlock(comm);
    for (double since = time_seconds();;) {
        uint32_t seen = atomic_load(&room->changed), failed = atomic_load(&room->failed);
        if (failed) return say((NcclResult)failed, "%s", room->report);
        room_lock(comm);
        bool here = all_here(comm, meeting, &missing);
        const char *lost = here ? NULL : absence(&room->members[missing]);
        for (int i = 0; here && i < room->n_ranks; i++)
            memcpy(all + i * OFFER, room->members[i].offers[slot], OFFER);
        pthread_mutex_unlock(&room->lock);
        if (here) break;
        if (lost || time_seconds() - since > patience()) {
            char text[160];
            snprintf(text, sizeof text, "rank %d is in %s; rank %d %s", comm->rank, what, missing,
                     lost ? lost : "does not come");
            fail_room(comm, NCCL_REMOTE_ERROR, text);
            continue;
        }
        room_sleep(room, seen);
    }
    compare(comm, what, all);
    uint32_t failed = atomic_load(&room->failed);
    if (failed) return say((NcclResult)failed, "%s", room->report);
    for (int i = 0; i < comm->n_ranks; i++) memmove(all + i * OFFER, all + i * OFFER + NAME, OFFER - NAME);
    return NCCL_OK;
}
