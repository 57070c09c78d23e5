// SPDX-License-Identifier: Apache-2.0
// Who waits for whom. A rank in a group waits for another if one of its calls has its counterpart in none
// of the groups that the other has begun: what is to come begins when the group there has ended. So a
// circle of ranks in groups that wait for each other stays for ever.
#include <stdio.h>

#include "runtime/nccl/standin.h"

// Whether the counterpart, at `other`, of a call of `rank` is in no group begun there.
static bool unmet(const Member *other, int rank, const Call *call) {
    if (is_collective(call)) return other->collectives < call->number;
    if (call->kind == CALL_SEND) return other->received[rank] < call->number;
    return other->sent[rank] < call->number;
}

// The call for which `rank` waits for `other`; NULL: none.
static const Call *waits_for(const Room *room, int rank, int other) {
    const Member *own = &room->members[rank];
    for (int i = 0; own->busy && rank != other && i < own->n_calls; i++) {
        const Call *call = &own->calls[i];
        bool concerns = is_collective(call) || call->peer == other;
        if (concerns && unmet(&room->members[other], rank, call)) return call;
    }
    return NULL;
}

static void line(Text *text, const Room *room, int rank, int other) {
    const Call *call = waits_for(room, rank, other);
    text_printf(text, "\n  rank %d, in group %llu: ", rank, (unsigned long long)room->members[rank].groups);
    call_text(text, call);
    text_printf(text, "; waits for rank %d", other);
}

// A way along the waiting, from a rank back to itself: next[i] is whom i waits for on it.
static bool find_circle(const Room *room, int from, int next[MOST_RANKS]) {
    int queue[MOST_RANKS], before[MOST_RANKS], n = 0;
    bool seen[MOST_RANKS] = { false };
    queue[n++] = from;
    for (int i = 0; i < n; i++) {
        int at = queue[i];
        if (at != from && waits_for(room, at, from)) {
            next[at] = from;
            for (; at != from; at = before[at]) next[before[at]] = at;
            return true;
        }
        for (int other = 0; other < room->n_ranks; other++) {
            if (other == from || seen[other] || !waits_for(room, at, other)) continue;
            seen[other] = true;
            before[other] = at;
            queue[n++] = other;
        }
    }
    return false;
}

// A process that has ended stays as a zombie until its parent asks.
static bool runs(pid_t pid) {
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'R'; // a name with brackets
    fclose(file);
    return state != 'Z' && state != 'X';
}

const char *absence(const Member *member) {
    if (member->presence == LEFT) return "has destroyed its communicator";
    if (member->presence == ABORTED) return "has aborted its communicator";
    return runs(member->pid) ? NULL : "is gone: its process has ended";
}

bool waits_in_circle(NcclComm comm, Text *text) {
    const Room *room = comm->room;
    int next[MOST_RANKS];
    if (!find_circle(room, comm->rank, next)) return false;
    text_add(text, "ranks wait for each other, in a circle");
    int at = comm->rank;
    do {
        line(text, room, at, next[at]);
        at = next[at];
    } while (at != comm->rank);
    text_add(text, "\n  hint: what needs each other goes between one ncclGroupStart and ncclGroupEnd; "
                   "collectives have one order on all ranks");
    return true;
}

void room_text(NcclComm comm, Text *text) {
    const Room *room = comm->room;
    for (int i = 0; i < room->n_ranks; i++) {
        const Member *member = &room->members[i];
        text_printf(text, "\n  rank %d: ", i);
        const char *why = absence(member);
        if (why || !member->busy) {
            text_printf(text, "%s", why ? why : "in no group");
            continue;
        }
        text_printf(text, "in group %llu: ", (unsigned long long)member->groups);
        if (member->n_calls) call_text(text, &member->calls[0]);
        if (member->n_calls > 1) text_printf(text, " and %d more", member->n_calls - 1);
    }
}
