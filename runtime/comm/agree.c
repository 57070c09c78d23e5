// SPDX-License-Identifier: Apache-2.0
// What ranks agree on outside of a plan: all go on with the same answer.
#include <stdio.h>
#include <unistd.h>

#include "runtime/comm/comm.h"

enum { TOLD_BYTES = 1024 };

// How it went on a rank.
typedef struct Report {
    int32_t status;
    char message[TOLD_BYTES];
} Report;

// The message of the last failure that all ranks know of.
static _Thread_local char agreed[TOLD_BYTES + 32];

static bool alike(const Report *reports, int n) {
    for (int i = 1; i < n; i++)
        if (reports[i].status != reports[0].status || strcmp(reports[i].message, reports[0].message))
            return false;
    return true;
}

static Status judge(const Report *reports, int n) {
    int bad = 0;
    while (bad < n && reports[bad].status == OK) bad++;
    if (bad == n) return OK;
    const Report *report = &reports[bad];
    Status status = (Status)report->status;
    if (alike(reports, n)) status_fail(status, "%s", report->message);
    else status_fail(status, "rank %d: %s", bad, report->message);
    snprintf(agreed, sizeof agreed, "%s", status_message());
    return status;
}

Status comm_agree(Comm *comm, Status status) {
    int n = comm->n_ranks;
    if (n == 1 || status == ERR_RANK) return status; // then there is nobody to ask
    Report own = { .status = status }, *all = memory_alloc(sizeof *all * (size_t)n);
    if (status != OK) snprintf(own.message, sizeof own.message, "%s", status_message());
    Status gathered = comm->api->gather(comm, GROUP_world, &own, all, sizeof own);
    if (gathered == OK) gathered = judge(all, n);
    memory_free(all);
    return gathered;
}

bool comm_agreed(void) {
    return agreed[0] && !strcmp(status_message(), agreed);
}

// A report about rank 0 is told by rank 1.
bool comm_tells(const Comm *comm, Status status) {
    static const char of_first[] = "rank 0 ";
    if (!comm || comm->n_ranks == 1) return true;
    if (status == ERR_RANK)
        return comm->rank == (strncmp(status_message(), of_first, sizeof of_first - 1) ? 0 : 1);
    return comm->rank == 0 || !comm_agreed();
}

Status comm_first(Comm *comm, void *value, int64_t bytes) {
    if (comm->n_ranks == 1) return OK;
    char *all = memory_alloc((size_t)bytes * (size_t)comm->n_ranks);
    Status status = comm->api->gather(comm, GROUP_world, value, all, bytes);
    if (status == OK) memcpy(value, all, (size_t)bytes);
    memory_free(all);
    return status;
}

Status comm_sum(Comm *comm, PlanGroup group, int64_t *values, int n) {
    int members = comm_members(comm, group);
    if (members == 1) return OK;
    int64_t bytes = (int64_t)sizeof *values * n, *all = memory_alloc((size_t)(bytes * members));
    Status status = comm->api->gather(comm, group, values, all, bytes);
    for (int k = 0; status == OK && k < n; k++) {
        values[k] = 0;
        for (int i = 0; i < members; i++) values[k] += all[i * n + k];
    }
    memory_free(all);
    return status;
}

// All as long as the longest.
Status comm_texts(Comm *comm, PlanGroup group, const char *own, Arena *arena, char ***texts) {
    int n = comm_members(comm, group);
    int64_t length = (int64_t)strlen(own) + 1, *lengths = ARENA_ARRAY(arena, int64_t, n);
    TRY(comm->api->gather(comm, group, &length, lengths, sizeof length));
    for (int i = 0; i < n; i++) length = max_i64(length, lengths[i]);
    char *padded = ARENA_ARRAY(arena, char, length), *all = ARENA_ARRAY(arena, char, length * n);
    memcpy(padded, own, strlen(own));
    TRY(comm->api->gather(comm, group, padded, all, length));
    *texts = ARENA_ARRAY(arena, char *, n);
    for (int i = 0; i < n; i++) (*texts)[i] = all + i * length;
    return OK;
}

uint64_t comm_machine(void) {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return hash_bytes(name, strlen(name)).low;
}

Status comm_sum_here(Comm *comm, int64_t *value) {
    typedef struct Here { uint64_t machine; int64_t value; } Here;
    Here own = { comm_machine(), *value }, *all = memory_alloc(sizeof own * (size_t)comm->n_ranks);
    Status status = comm->api->gather(comm, GROUP_world, &own, all, sizeof own);
    *value = 0;
    for (int i = 0; status == OK && i < comm->n_ranks; i++)
        if (all[i].machine == own.machine) *value += all[i].value;
    memory_free(all);
    return status;
}
