// SPDX-License-Identifier: Apache-2.0
// A group of calls, carried out: on a thread of the driver's, when its turn in the stream has come and
// what it sends lies on the host.
//
// Every call becomes flows, one per peer and direction. A flow begins with the call's description, then
// come its bytes, through the ring between the two ranks; flows of one ring follow each other. What
// leaves has ended when the other rank has taken it, so no rank is ahead of a call's partners.
#include <stdio.h>

#include "runtime/nccl/standin.h"

typedef struct Flow {
    Ring *ring;
    bool out, described, moved, ended; // description and bytes through; out: and taken
    const Call *call;
    char *at;              // on the host
    size_t bytes, done;
    uint64_t end;          // out: `head` behind its last byte
    int peer;
} Flow;

typedef struct Meeting {
    NcclComm comm;
    Group *group;
    Call calls[MOST_CALLS];
    Flow *flows;
    int n_flows, cap_flows;
    bool moved;            // anything, in this round
    bool wrong;
} Meeting;

/* Flows ---------------------------------------------------------------------------------------- */

static void add_flow(Meeting *m, const Call *call, int peer, bool out, char *at, size_t bytes) {
    NcclComm comm = m->comm;
    if (m->n_flows == m->cap_flows) {
        m->cap_flows = m->cap_flows ? 2 * m->cap_flows : 16;
        m->flows = memory_grow(m->flows, (size_t)m->cap_flows * sizeof *m->flows);
    }
    Ring *ring = ring_of(comm->room, out ? comm->rank : peer, out ? peer : comm->rank,
                         !is_collective(call));
    m->flows[m->n_flows++] = (Flow){ .ring = ring, .out = out, .call = call, .at = at,
                                     .bytes = bytes, .peer = peer };
}

// The receive of this group that takes a send of a rank to itself.
static const Op *own_receive(const Meeting *m, int skip) {
    for (int i = 0; i < m->group->n_ops; i++) {
        const Op *op = &m->group->ops[i];
        if (op->call.kind == CALL_RECV && op->call.peer == m->comm->rank && !skip--) return op;
    }
    return NULL;
}

static void add_message(Meeting *m, const Op *op, const Call *call, int *own_sends) {
    if (call->peer != m->comm->rank) {
        bool out = call->kind == CALL_SEND;
        add_flow(m, call, call->peer, out, out ? op->sends : op->takes, out ? op->in : op->out);
    } else if (call->kind == CALL_SEND) {
        const Op *to = own_receive(m, (*own_sends)++);
        memcpy(to->takes, op->sends, op->in); // enqueue has compared them
    }
}

static void add_collective(Meeting *m, const Op *op, const Call *call) {
    NcclComm comm = m->comm;
    bool all = call->kind == CALL_ALL_GATHER;
    size_t part = all ? op->in : call->count * type_bytes(call->type);
    bool root = !all && call->peer == comm->rank;
    if (all) memcpy(op->takes + (size_t)comm->rank * part, op->sends, part);
    else if (root) memcpy(op->takes, op->sends, part);
    for (int peer = 0; peer < comm->n_ranks; peer++) {
        if (peer == comm->rank) continue;
        // Everybody describes the call to everybody; who has nothing to give sends that alone.
        bool gives = all || root, gets = all || peer == call->peer;
        add_flow(m, call, peer, true, op->sends, gives ? part : 0);
        add_flow(m, call, peer, false, all ? op->takes + (size_t)peer * part : op->takes, gets ? part : 0);
    }
}

/* Rings ---------------------------------------------------------------------------------------- */

static size_t put(Ring *ring, const char *from, size_t bytes) {
    uint64_t head = atomic_load(&ring->head);
    size_t room = RING - (size_t)(head - atomic_load(&ring->tail));
    if (bytes > room) bytes = room;
    size_t at = head % RING, first = bytes < RING - at ? bytes : RING - at;
    memcpy(ring->bytes + at, from, first);
    memcpy(ring->bytes, from + first, bytes - first);
    atomic_store(&ring->head, head + bytes);
    return bytes;
}

static size_t get(Ring *ring, char *to, size_t bytes) {
    uint64_t tail = atomic_load(&ring->tail);
    size_t there = (size_t)(atomic_load(&ring->head) - tail);
    if (bytes > there) bytes = there;
    size_t at = tail % RING, first = bytes < RING - at ? bytes : RING - at;
    memcpy(to, ring->bytes + at, first);
    memcpy(to + first, ring->bytes, bytes - first);
    atomic_store(&ring->tail, tail + bytes);
    return bytes;
}

static bool has_room(const Ring *ring, size_t bytes) {
    return RING - (size_t)(atomic_load(&ring->head) - atomic_load(&ring->tail)) >= bytes;
}

static bool has_bytes(const Ring *ring, size_t bytes) {
    return (size_t)(atomic_load(&ring->head) - atomic_load(&ring->tail)) >= bytes;
}

/* Comparison ----------------------------------------------------------------------------------- */

static bool same_call(const Call *a, const Call *b) {
    if (!is_collective(a))
        return a->type == b->type && a->count == b->count && a->number == b->number;
    return a->kind == b->kind && a->type == b->type && a->count == b->count && a->number == b->number &&
           a->peer == b->peer && a->at == b->at && a->of == b->of && a->stream == b->stream;
}

static void compare(Meeting *m, const Flow *flow, const Call *theirs) {
    if (same_call(flow->call, theirs)) return;
    bool ours_first = m->comm->rank < flow->peer;
    Text text = { 0 };
    text_add(&text, is_collective(theirs) ? "ranks make different calls where all make the same one"
                                          : "a message is not what its receiver expects");
    for (int i = 0; i < 2; i++) {
        bool ours = ours_first == (i == 0);
        text_printf(&text, "\n  rank %d: ", ours ? m->comm->rank : flow->peer);
        call_text(&text, ours ? flow->call : theirs);
    }
    fail_room(m->comm, NCCL_WRONG_USE, text_cstr(&text));
    text_finish(&text);
    m->wrong = true;
}

static void move_out(Meeting *m, Flow *flow) {
    if (!flow->described) {
        if (!has_room(flow->ring, sizeof(Call))) return;
        put(flow->ring, (const char *)flow->call, sizeof(Call));
        flow->described = m->moved = true;
    }
    size_t n = flow->done < flow->bytes ? put(flow->ring, flow->at + flow->done, flow->bytes - flow->done) : 0;
    flow->done += n;
    m->moved |= n > 0;
    if (flow->moved || flow->done < flow->bytes) return;
    flow->moved = true;
    flow->end = atomic_load(&flow->ring->head);
}

static void move_in(Meeting *m, Flow *flow) {
    if (!flow->described) {
        Call theirs;
        if (!has_bytes(flow->ring, sizeof theirs)) return;
        get(flow->ring, (char *)&theirs, sizeof theirs);
        flow->described = m->moved = true;
        compare(m, flow, &theirs);
        if (m->wrong) return;
    }
    size_t n = flow->done < flow->bytes ? get(flow->ring, flow->at + flow->done, flow->bytes - flow->done) : 0;
    flow->done += n;
    m->moved |= n > 0;
    flow->moved = flow->ended = flow->done == flow->bytes;
}

static bool behind_another(const Meeting *m, int i) {
    const Flow *flow = &m->flows[i];
    while (i-- > 0)
        if (m->flows[i].ring == flow->ring && m->flows[i].out == flow->out && !m->flows[i].moved) return true;
    return false;
}

// True: all has ended.
static bool move_all(Meeting *m) {
    bool ended = true;
    m->moved = false;
    for (int i = 0; i < m->n_flows && !m->wrong; i++) {
        Flow *flow = &m->flows[i];
        if (flow->ended) continue;
        if (!flow->moved && !behind_another(m, i)) {
            if (flow->out) move_out(m, flow);
            else move_in(m, flow);
        }
        if (flow->out && flow->moved && atomic_load(&flow->ring->tail) >= flow->end) flow->ended = true;
        ended = ended && flow->ended;
    }
    return ended;
}

/* A group -------------------------------------------------------------------------------------- */

// Numbers its calls and shows them.
static void begin(Meeting *m) {
    NcclComm comm = m->comm;
    Member *own = &comm->room->members[comm->rank];
    for (int i = 0; i < m->group->n_ops; i++) {
        Call *call = &m->calls[i];
        *call = m->group->ops[i].call;
        call->number = is_collective(call)       ? ++comm->collectives
                       : call->kind == CALL_SEND ? ++comm->sent[call->peer]
                                                 : ++comm->received[call->peer];
    }
    room_lock(comm);
    own->busy = true;
    own->groups = ++comm->n_groups;
    own->n_calls = m->group->n_ops;
    memcpy(own->calls, m->calls, sizeof *m->calls * (size_t)m->group->n_ops);
    own->collectives = comm->collectives;
    memcpy(own->sent, comm->sent, sizeof own->sent);
    memcpy(own->received, comm->received, sizeof own->received);
    room_unlock(comm);
}

static void end(Meeting *m) {
    room_lock(m->comm);
    m->comm->room->members[m->comm->rank].busy = false;
    room_unlock(m->comm);
    memory_free(m->flows);
}

// Whether somebody who has something to give or to take is not there.
static bool is_deserted(const Meeting *m, Text *text) {
    for (int i = 0; i < m->n_flows; i++) {
        const Flow *flow = &m->flows[i];
        const char *why = flow->ended ? NULL : absence(&m->comm->room->members[flow->peer]);
        if (!why) continue;
        text_printf(text, "rank %d %s, and rank %d waits for it in: ", flow->peer, why, m->comm->rank);
        call_text(text, flow->call);
        return true;
    }
    return false;
}

// Nothing has moved in `idle` rounds, the last of which saw all that others had done by the change `seen`. Who
// has left since may have given what is waited for, and taken what it was given, before.
static void look_around(Meeting *m, double since, int idle, uint32_t seen) {
    NcclComm comm = m->comm;
    NcclResult result = NCCL_REMOTE_ERROR;
    Text text = { 0 };
    room_lock(comm);
    bool vain = idle > 2 && is_deserted(m, &text);
    if (vain && atomic_load(&comm->room->changed) != seen) {
        vain = false;
        text.bytes = 0;
    }
    if (!vain && waits_in_circle(comm, &text)) {
        vain = true;
        result = NCCL_WRONG_USE;
    }
    if (!vain && time_seconds() - since > patience()) {
        vain = true;
        text_printf(&text, "rank %d has waited %.0f s", comm->rank, patience());
        room_text(comm, &text);
    }
    pthread_mutex_unlock(&comm->room->lock);
    if (vain) fail_room(comm, result, text_cstr(&text));
    text_finish(&text);
}

static void run(Meeting *m) {
    NcclComm comm = m->comm;
    Room *room = comm->room;
    int own_sends = 0;
    begin(m);
    for (int i = 0; i < m->group->n_ops; i++) {
        if (is_collective(&m->calls[i])) add_collective(m, &m->group->ops[i], &m->calls[i]);
        else add_message(m, &m->group->ops[i], &m->calls[i], &own_sends);
    }
    double since = time_seconds();
    int idle = 0;
    while (!atomic_load(&room->failed) && !atomic_load(&comm->stop)) {
        uint32_t seen = atomic_load(&room->changed);
        bool ended = move_all(m);
        if (m->moved || ended) {
            room_change(room);
            since = time_seconds();
            idle = 0;
        }
        if (ended) break;
        if (m->moved) continue;
        look_around(m, since, ++idle, seen);
        room_sleep(room, seen);
    }
    end(m);
}

void meet_group(void *user) {
    Group *group = user;
    NcclComm comm = group->comm;
    atomic_fetch_add(&comm->running, 1);
    pthread_mutex_lock(&comm->run);
    char text[128];
    snprintf(text, sizeof text, "rank %d: a recorded call runs after its communicator was destroyed", comm->rank);
    comm->late = comm->over;
    if (comm->over && !atomic_load(&comm->stop)) fail_room(comm, NCCL_WRONG_USE, text);
    else if (!atomic_load(&comm->room->failed) && !atomic_load(&comm->stop)) {
        Meeting meeting = { .comm = comm, .group = group };
        run(&meeting);
    }
    pthread_mutex_unlock(&comm->run);
    atomic_fetch_sub(&comm->running, 1);
}
