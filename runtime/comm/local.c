// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of one process. Everybody reads everybody's memory; what there is to do is
// to wait for each other. One lock and one condition for all: this serves tests, where ranks are few
// and a waiting one must not take the time of those it waits for. The board, too, is under the lock.
//
// Every pair of rank and group counts the calls it has entered and left. A call of a group first shows
// what it gives, then waits until every member has entered as many, takes what it wants from their
// memory, and waits until every member has taken it. A message is taken by who receives it.
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "runtime/comm/board.h"

typedef struct Local Local;

typedef struct Message {
    struct Message *next;
    const void *from;
    int64_t bytes;
    int rank; // that takes it
    bool taken;
} Message;

// Messages of one rank to another on one lane, oldest first.
typedef struct Queue {
    Message *first, *last;
} Queue;

typedef struct World {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    double deadline;
    int n_ranks, n_open, node_ranks;
    Local *ranks;
    Queue *queues; // [to][from][lane]
    Message *spare;
    Board *board;
} World;

// A call that has begun: of its rank's thread.
typedef struct Begun {
    struct Begun *next;
    PlanGroup group;
    PlanOp op;
    const void *from;
    void *to;
    int64_t bytes;
} Begun;

struct Local {
    Comm base;
    Begun *begun; // not waited for
    World *world;
    uint64_t entered[N_GROUPS], left[N_GROUPS];
    const void *given[N_GROUPS];
};

static Local *local_of(Comm *comm) {
    return (Local *)comm;
}

/* Waiting -------------------------------------------------------------------------------------- */

typedef bool (*Ready)(const Local *l, int rank, int group, uint64_t count);

static bool has_entered(const Local *l, int rank, int group, uint64_t count) {
    return l->world->ranks[rank].entered[group] >= count;
}

static bool has_left(const Local *l, int rank, int group, uint64_t count) {
    return l->world->ranks[rank].left[group] >= count;
}

static Queue *queue_of(const World *w, int to, int from, int lane) {
    return &w->queues[(to * w->n_ranks + from) * N_LANES + lane];
}

// With the lock held: until something has changed, or a moment has passed.
static Status await_change(const Local *l) {
    World *w = l->world;
    struct timespec until;
    if (atomic_load(&w->board->failed)) return board_status(w->board);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 50000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&w->changed, &w->lock, &until) == 0) return OK;
    if (!board_in_vain(w->board, &l->base, w->deadline, NULL)) return OK;
    pthread_cond_broadcast(&w->changed);
    return board_status(w->board);
}

static Status await_all(Local *l, PlanGroup group, uint64_t count, Ready ready) {
    for (int i = 0, n = comm_members(&l->base, group); i < n; i++) {
        int rank = comm_world_rank(&l->base, group, i);
        while (!ready(l, rank, (int)group, count)) TRY(await_change(l));
    }
    return OK;
}

/* Calls of groups ------------------------------------------------------------------------------ */

static Status enter(Local *l, PlanGroup group, BoardCall call, const void *given) {
    World *w = l->world;
    pthread_mutex_lock(&w->lock);
    l->given[group] = given;
    uint64_t count = ++l->entered[group];
    atomic_fetch_add(&w->board->entries[l->base.rank].entered[group], 1);
    board_wait(w->board, l->base.rank, call, (int)group, -1);
    pthread_cond_broadcast(&w->changed);
    Status status = await_all(l, group, count, has_entered);
    pthread_mutex_unlock(&w->lock);
    return status;
}

static Status leave(Local *l, PlanGroup group) {
    World *w = l->world;
    pthread_mutex_lock(&w->lock);
    uint64_t count = ++l->left[group];
    atomic_fetch_add(&w->board->entries[l->base.rank].entered[group], 1);
    pthread_cond_broadcast(&w->changed);
    Status status = await_all(l, group, count, has_left);
    if (status == OK) board_go_on(w->board, l->base.rank);
    pthread_mutex_unlock(&w->lock);
    return status;
}

static const char *given_by(const Local *l, PlanGroup group, int member) {
    return l->world->ranks[comm_world_rank(&l->base, group, member)].given[group];
}

static Status local_barrier(Comm *comm, PlanGroup group) {
    TRY(enter(local_of(comm), group, CALL_barrier, NULL));
    return leave(local_of(comm), group);
}

static Status local_gather(Comm *comm, PlanGroup group, const void *from, void *to, int64_t bytes) {
    Local *l = local_of(comm);
    TRY(enter(l, group, CALL_gather, from));
    for (int i = 0, n = comm_members(comm, group); i < n; i++) {
        char *at = (char *)to + i * bytes;
        if (at != given_by(l, group, i)) memcpy(at, given_by(l, group, i), (size_t)bytes);
    }
    return leave(l, group);
}

static Status local_exchange(Comm *comm, PlanGroup group, const void *from, void *to,
                             int64_t bytes) {
    Local *l = local_of(comm);
    TRY(enter(l, group, CALL_exchange, from));
    int own = comm_member(comm, group);
    for (int i = 0, n = comm_members(comm, group); i < n; i++)
        memcpy((char *)to + i * bytes, given_by(l, group, i) + own * bytes, (size_t)bytes);
    return leave(l, group);
}

// Threads that share the machine's cores have nobody to move bytes meanwhile: the call is made where it
// is waited for.
static Status local_begin(Comm *comm, PlanGroup group, PlanOp op, const void *from, void *to, int64_t bytes,
                          void **ticket) {
    Local *l = local_of(comm);
    Begun *begun = *ticket = memory_alloc(sizeof *begun);
    *begun = (Begun){ l->begun, group, op, from, to, bytes };
    l->begun = begun;
    return OK;
}

static Status local_ended(Comm *comm, void *ticket) {
    Begun **at = &local_of(comm)->begun, begun = *(const Begun *)ticket;
    while (*at != ticket) at = &(*at)->next;
    *at = begun.next;
    memory_free(ticket);
    return begun.op == PLAN_gather ? local_gather(comm, begun.group, begun.from, begun.to, begun.bytes)
                                   : local_exchange(comm, begun.group, begun.from, begun.to, begun.bytes);
}

typedef struct Parts {
    const char *from;
    const int64_t *out;
} Parts;

static Status local_blocks(Comm *comm, PlanGroup group, const void *from, const int64_t *out, void *to,
                           const int64_t *in) {
    Local *l = local_of(comm);
    Parts given = { from, out };
    TRY(enter(l, group, CALL_blocks, &given));
    int own = comm_member(comm, group);
    char *at = to;
    Status status = OK;
    for (int i = 0, n = comm_members(comm, group); i < n; i++) {
        const Parts *theirs = (const Parts *)given_by(l, group, i);
        const char *part = theirs->from;
        for (int k = 0; k < own; k++) part += theirs->out[k];
        if (theirs->out[own] != in[i])
            status = status_fail(ERR_INTERNAL, "internal error: member %d gives %lld bytes, member %d expects "
                                 "%lld", i, (long long)theirs->out[own], own, (long long)in[i]);
        else if (in[i]) memcpy(at, part, (size_t)in[i]);
        at += in[i];
    }
    TRY(leave(l, group));
    return status;
}

static int local_node(const Comm *comm, int rank) {
    const World *w = ((const Local *)comm)->world;
    return w->node_ranks ? rank / w->node_ranks * w->node_ranks : 0;
}

/* Messages ------------------------------------------------------------------------------------- */

// Nothing is copied before the receiver asks.
static Status local_send(Comm *comm, int rank, PlanLane lane, const void *from, int64_t bytes,
                         void **ticket) {
    World *w = local_of(comm)->world;
    pthread_mutex_lock(&w->lock);
    Message *message = w->spare;
    if (message) w->spare = message->next;
    else message = memory_alloc(sizeof *message);
    *message = (Message){ .from = from, .bytes = bytes, .rank = rank };
    Queue *queue = queue_of(w, rank, comm->rank, lane);
    if (queue->first) queue->last->next = message;
    else queue->first = message;
    queue->last = message;
    *ticket = message;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return OK;
}

static Status local_sent(Comm *comm, void *ticket) {
    World *w = local_of(comm)->world;
    Message *message = ticket;
    Status status = OK;
    pthread_mutex_lock(&w->lock);
    board_wait(w->board, comm->rank, CALL_send, -1, message->rank);
    while (!message->taken && status == OK) status = await_change(local_of(comm));
    if (status == OK) {
        message->next = w->spare;
        w->spare = message;
        board_go_on(w->board, comm->rank);
    }
    pthread_mutex_unlock(&w->lock);
    return status;
}

// While a message waits, its sender may have fenced its own memory against its own kernels
// (runtime/device/fence.h): sanitizers must not mind this one read. Byte by byte, lest it becomes a memcpy.
#if defined __clang__ || defined __GNUC__
__attribute__((no_sanitize_address))
#endif
static void take(void *to, const void *from, int64_t bytes) {
    const volatile char *at = from;
    for (int64_t i = 0; i < bytes; i++) ((volatile char *)to)[i] = at[i];
}

static Status local_recv(Comm *comm, int rank, PlanLane lane, void *to, int64_t bytes) {
    Local *l = local_of(comm);
    World *w = l->world;
    pthread_mutex_lock(&w->lock);
    Queue *queue = queue_of(w, comm->rank, rank, lane);
    Status status = OK;
    board_wait(w->board, comm->rank, CALL_recv, -1, rank);
    while (!queue->first && status == OK) status = await_change(l);
    Message *message = queue->first;
    if (status == OK && message->bytes != bytes)
        status = status_fail(ERR_INTERNAL,
                             "internal error: rank %d sends %lld bytes, rank %d expects %lld", rank,
                             (long long)message->bytes, comm->rank, (long long)bytes);
    if (status == OK) {
        take(to, message->from, bytes);
        queue->first = message->next;
        message->taken = true;
        board_go_on(w->board, comm->rank);
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return status;
}

/* Windows, life -------------------------------------------------------------------------------- */

static Status local_window(Comm *comm, int64_t bytes, void **own, void **peers) {
    Local *l = local_of(comm);
    *own = memory_alloc((size_t)bytes);
    TRY(enter(l, GROUP_dp, CALL_window, *own));
    for (int i = 0, n = comm_members(comm, GROUP_dp); i < n; i++) {
        bool near = comm_node(comm, GROUP_dp, i) == local_node(comm, comm->rank);
        peers[i] = near ? (void *)(uintptr_t)given_by(l, GROUP_dp, i) : NULL;
    }
    return leave(l, GROUP_dp);
}

// Nobody reads it any more once all have come, or one is gone.
static void local_release(Comm *comm, void *own, int64_t bytes) {
    (void)local_barrier(comm, GROUP_dp);
    (void)bytes;
    memory_free(own);
}

static void local_at(Comm *comm, const char *where) {
    World *w = local_of(comm)->world;
    pthread_mutex_lock(&w->lock);
    if (where) board_at(w->board, comm->rank, where);
    else board_moved(w->board, comm->rank);
    pthread_mutex_unlock(&w->lock);
}

static Status local_check(Comm *comm) {
    World *w = local_of(comm)->world;
    pthread_mutex_lock(&w->lock);
    Status status = atomic_load(&w->board->failed) ? board_status(w->board) : OK;
    pthread_mutex_unlock(&w->lock);
    return status;
}

static void local_fail(Comm *comm, const char *why) {
    World *w = local_of(comm)->world;
    pthread_mutex_lock(&w->lock);
    board_give_up(w->board, comm, why, NULL);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void free_list(Message *message) {
    while (message) {
        Message *next = message->next;
        memory_free(message);
        message = next;
    }
}

static void local_close(Comm *comm) {
    Local *l = local_of(comm);
    World *w = l->world;
    while (l->begun) { // after a failure
        Begun *next = l->begun->next;
        memory_free(l->begun);
        l->begun = next;
    }
    pthread_mutex_lock(&w->lock);
    board_end(w->board, comm->rank); // those who wait for it learn that
    bool last = --w->n_open == 0;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (!last) return;
    for (int i = 0; i < w->n_ranks * w->n_ranks * N_LANES; i++) free_list(w->queues[i].first);
    free_list(w->spare);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    memory_free(w->ranks);
    memory_free(w->queues);
    memory_free(w->board);
    memory_free(w);
}

static const CommApi local_api = {
    .name = "local",
    .close = local_close,
    .barrier = local_barrier,
    .gather = local_gather,
    .exchange = local_exchange,
    .begin = local_begin,
    .ended = local_ended,
    .blocks = local_blocks,
    .node = local_node,
    .send = local_send,
    .sent = local_sent,
    .recv = local_recv,
    .window = local_window,
    .release = local_release,
    .at = local_at,
    .check = local_check,
    .fail = local_fail,
};

void comm_local(int n, double deadline, Comm **out) {
    comm_local_nodes(n, 0, deadline, out);
}

void comm_local_nodes(int n, int node_ranks, double deadline, Comm **out) {
    World *w = memory_alloc(sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->deadline = deadline;
    w->node_ranks = node_ranks;
    w->n_ranks = w->n_open = n;
    w->ranks = memory_alloc(sizeof(Local) * (size_t)n);
    w->queues = memory_alloc(sizeof(Queue) * (size_t)n * (size_t)n * N_LANES);
    w->board = memory_alloc((size_t)board_bytes(n));
    w->board->n_ranks = n;
    for (int i = 0; i < n; i++) {
        board_enter(w->board, i);
        w->ranks[i] = (Local){ .base = { .api = &local_api, .rank = i, .n_ranks = n }, .world = w };
        for (int axis = 0; axis < N_AXES; axis++) w->ranks[i].base.mesh.size[axis] = 1;
        out[i] = &w->ranks[i].base;
    }
}
