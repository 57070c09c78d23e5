// SPDX-License-Identifier: Apache-2.0
// Ranks that are GPUs: NCCL moves bytes in the order of the device's work, and the host goes on.
//
// Communicators do not block: a call that needs other ranks to come (the making of one) is waited for
// here, with a deadline. What the device was given is waited for in `settle`, which asks NCCL for
// errors meanwhile. The first error ends all communicators: what kernels wait for then ends too.
//
// A message of NCCL's blocks its stream until the other rank takes it, and those of one communicator
// follow each other. A send that only begins is therefore on a lane of its own per rank and PlanLane it goes
// to, behind what the device was given before it, with a communicator of its own; a receive is in the
// device's order. So a pipeline's ranks wait for each other only where the plan has them receive. A gather or an
// exchange that only begins is on a lane for all of these, with communicators for them.
#include "runtime/comm/nccl.h"

#include <stdio.h>
#include <time.h>

static NcclRank *rank_of(Comm *comm) {
    return (NcclRank *)comm;
}

void nccl_at(NcclRank *rank, const char *call, PlanGroup group) {
    snprintf(rank->call, sizeof rank->call, "%s over %s", call, plan_group_name(group));
}

/* Failing -------------------------------------------------------------------------------------- */

// Everybody's kernels stop waiting.
static void end_all(NcclRank *r) {
    if (r->failed) return;
    r->failed = true;
    for (int i = r->n_owned; i-- > 0;) r->api->abort(r->owned[i]);
    if (r->world) r->api->abort(r->world);
    r->n_owned = 0;
    r->world = NULL;
}

static const char *place_of(const NcclRank *r) {
    return r->where[0] ? r->where : "its start";
}

static Status fail(NcclRank *r, NcclComm comm, NcclResult result) {
    bool ours = result == NCCL_WRONG_ARGUMENT || result == NCCL_WRONG_USE;
    const char *more = r->api->last_error(comm);
    char text[1024];
    snprintf(text, sizeof text, "%s%s%s", r->api->error_text(result), more && *more ? ": " : "",
             more ? more : "");
    end_all(r);
    return status_fail(ours                        ? ERR_INTERNAL
                       : result == NCCL_CUDA_ERROR ? ERR_DEVICE
                                                   : ERR_RANK,
                       "rank %d, %s, at: %s: NCCL says: %s\n  hint: NCCL_DEBUG=INFO makes it say more",
                       r->base.rank, r->call, place_of(r), text);
}

static Status too_late(NcclRank *r) {
    end_all(r);
    return status_fail(ERR_RANK,
                       "rank %d has waited %.0f s for other ranks; its last call: %s, at: %s\n"
                       "  hint: the report of a rank that stopped earlier says more",
                       r->base.rank, r->options.deadline, r->call, place_of(r));
}

static Status gone(const NcclRank *r) {
    return status_fail(ERR_RANK, "rank %d: NCCL was ended after an error", r->base.rank);
}

/* Waiting -------------------------------------------------------------------------------------- */

typedef struct Wait {
    double since, told;
    int turns;
} Wait;

static Status watch(const NcclRank *r) {
    if (r->options.host) TRY(comm_check(r->options.host));
    return r->options.watch ? r->options.watch(r->options.user) : OK;
}

// Once per turn of a loop that waits: often at first.
static Status wait_turn(NcclRank *r, Wait *wait) {
    enum { EAGER = 64, SHORT = 20000, LONG = 500000 /* ns */ };
    double now = time_seconds();
    if (!wait->turns) wait->since = now;
    if (now - wait->since > r->options.deadline) return too_late(r);
    if (wait->turns++ > EAGER) {
        Status status = watch(r);
        if (status != OK) {
            end_all(r);
            return status;
        }
    }
    nanosleep(&(struct timespec){ .tv_nsec = wait->turns < EAGER ? SHORT : LONG }, NULL);
    return OK;
}

Status nccl_begun(NcclRank *r, NcclComm comm, NcclResult result) {
    for (Wait wait = { 0 }; result == NCCL_IN_PROGRESS && comm;) {
        NcclResult asked = r->api->async_error(comm, &result);
        if (asked != NCCL_OK) result = asked;
        if (result == NCCL_IN_PROGRESS) TRY(wait_turn(r, &wait));
    }
    return result == NCCL_OK ? OK : fail(r, comm, result);
}

static Status ask_all(NcclRank *r) {
    for (int i = -1; i < r->n_owned; i++) {
        NcclComm comm = i < 0 ? r->world : r->owned[i];
        NcclResult state = NCCL_OK, asked = comm ? r->api->async_error(comm, &state) : NCCL_OK;
        if (asked != NCCL_OK) state = asked;
        if (state != NCCL_OK && state != NCCL_IN_PROGRESS) return fail(r, comm, state);
    }
    return OK;
}

static Status nccl_settle(Comm *comm) {
    NcclRank *r = rank_of(comm);
    if (r->failed) return gone(r);
    bool idle = false;
    for (Wait wait = { 0 };;) {
        TRY(comm->device->api->idle(comm->device, &idle));
        TRY(ask_all(r));
        if (idle) return OK;
        TRY(wait_turn(r, &wait));
        // The device is at work, as far as one knows: whom the hosts of other ranks wait for is moving.
        if (time_seconds() - wait.told < 0.25) continue;
        comm_at(r->options.host, NULL);
        wait.told = time_seconds();
    }
}

/* Calls of groups ------------------------------------------------------------------------------ */

Status nccl_stream(NcclRank *r, const DeviceLane *lane, NcclStream *out) {
    void *stream;
    if (r->failed) return gone(r);
    if (r->device != r->base.device) nccl_meet_device(r);
    TRY(r->base.device->api->stream(r->base.device, lane, &stream));
    *out = stream;
    return OK;
}

static Status gather_on(NcclRank *r, NcclComm with, NcclStream stream, const void *from, void *to, int64_t bytes) {
    return nccl_begun(r, with, r->api->gather(from, to, (size_t)bytes, NCCL_INT8, with, stream));
}

static Status nccl_gather(Comm *comm, PlanGroup group, const void *from, void *to, int64_t bytes) {
    NcclRank *r = rank_of(comm);
    NcclStream stream;
    nccl_at(r, "gather", group);
    TRY(nccl_stream(r, NULL, &stream));
    return gather_on(r, r->groups[group], stream, from, to, bytes);
}

static Status nccl_barrier(Comm *comm, PlanGroup group) {
    NcclRank *r = rank_of(comm);
    NcclComm with = r->groups[group];
    NcclStream stream;
    if (comm_members(comm, group) == 1) return OK;
    nccl_at(r, "barrier", group);
    TRY(nccl_stream(r, NULL, &stream));
    return nccl_begun(r, with, r->api->gather(r->words, r->words + 4, 1, NCCL_UINT32, with, stream));
}

static bool is_fine(NcclResult result) {
    return result == NCCL_OK || result == NCCL_IN_PROGRESS;
}

static Status exchange_on(NcclRank *r, NcclComm with, NcclStream stream, int n, const void *from, void *to,
                          int64_t bytes) {
    NcclResult result = r->api->group_start();
    for (int i = 0; i < n && is_fine(result); i++) {
        result = r->api->send((const char *)from + i * bytes, (size_t)bytes, NCCL_INT8, i, with, stream);
        if (is_fine(result))
            result = r->api->recv((char *)to + i * bytes, (size_t)bytes, NCCL_INT8, i, with, stream);
    }
    NcclResult ended = r->api->group_end();
    return nccl_begun(r, with, is_fine(result) ? ended : result);
}

static Status nccl_exchange(Comm *comm, PlanGroup group, const void *from, void *to, int64_t bytes) {
    NcclRank *r = rank_of(comm);
    NcclStream stream;
    nccl_at(r, "exchange", group);
    TRY(nccl_stream(r, NULL, &stream));
    return exchange_on(r, r->groups[group], stream, comm_members(comm, group), from, to, bytes);
}

static Status nccl_blocks(Comm *comm, PlanGroup group, const void *from, const int64_t *out, void *to,
                          const int64_t *in) {
    NcclRank *r = rank_of(comm);
    NcclComm with = r->groups[group];
    NcclStream stream;
    const char *source = from;
    char *target = to;
    nccl_at(r, "blocks", group);
    TRY(nccl_stream(r, NULL, &stream));
    NcclResult result = r->api->group_start();
    for (int i = 0, n = comm_members(comm, group); i < n && is_fine(result); i++) {
        if (out[i]) result = r->api->send(source, (size_t)out[i], NCCL_INT8, i, with, stream);
        if (in[i] && is_fine(result))
            result = r->api->recv(target, (size_t)in[i], NCCL_INT8, i, with, stream);
        source += out[i];
        target += in[i];
    }
    NcclResult ended = r->api->group_end();
    return nccl_begun(r, with, is_fine(result) ? ended : result);
}

static int nccl_node(const Comm *comm, int rank) {
    const Comm *host = ((const NcclRank *)comm)->options.host;
    return host && host->api->node ? host->api->node(host, rank) : 0;
}

/* Messages ------------------------------------------------------------------------------------- */

// Where [stages][N_LANES] arrays have the messages with `rank`; -1: nowhere.
static int place_in(const Comm *comm, int rank, PlanLane lane) {
    for (int i = 0, n = comm_members(comm, GROUP_pp); i < n; i++)
        if (comm_world_rank(comm, GROUP_pp, i) == rank) return i * N_LANES + (int)lane;
    return -1;
}

static Status no_message(const Comm *comm, int from, int to) {
    return status_fail(ERR_INTERNAL,
                       "internal error: rank %d: the plan has no message from rank %d to rank %d",
                       comm->rank, from, to);
}

static NcclTicket *take_ticket(NcclRank *r) {
    NcclTicket *ticket = r->spare;
    if (ticket) r->spare = ticket->next;
    else ticket = memory_alloc(sizeof *ticket);
    return ticket;
}

static void keep_ticket(NcclRank *r, void **ticket) {
    NcclTicket *taken = take_ticket(r);
    taken->next = r->tickets;
    r->tickets = taken;
    *ticket = taken;
}

// What the lane is given next comes behind all that the device was given before.
static Status fork_lane(NcclRank *r, DeviceLane **lane) {
    Device *device = r->base.device;
    if (!*lane) TRY(device->api->lane(device, lane));
    TRY(device->api->mark(device, NULL, &r->fork));
    return device->api->after(device, *lane, r->fork);
}

static Status nccl_send(Comm *comm, int rank, PlanLane lane, const void *from, int64_t bytes,
                        void **ticket) {
    enum { THERE = 1 }; // in a communicator of messages, the sender is 0
    NcclRank *r = rank_of(comm);
    Device *device = comm->device;
    int at = place_in(comm, rank, lane);
    NcclStream stream;
    if (at < 0 || !r->to[at]) return no_message(comm, comm->rank, rank);
    snprintf(r->call, sizeof r->call, "send to rank %d", rank);
    TRY(nccl_stream(r, NULL, &stream));
    TRY(fork_lane(r, &r->lanes[at]));
    TRY(nccl_stream(r, r->lanes[at], &stream));
    TRY(nccl_begun(r, r->to[at],
                   r->api->send(from, (size_t)bytes, NCCL_INT8, THERE, r->to[at], stream)));
    keep_ticket(r, ticket);
    return device->api->mark(device, r->lanes[at], &r->tickets->mark);
}

static Status nccl_sent(Comm *comm, void *ticket) {
    NcclRank *r = rank_of(comm);
    NcclTicket *taken = ticket, **at = &r->tickets;
    while (*at && *at != taken) at = &(*at)->next;
    if (!*at) return status_fail(ERR_INTERNAL, "internal error: what has begun is waited for twice");
    *at = taken->next;
    taken->next = r->spare;
    r->spare = taken;
    if (r->failed) return gone(r);
    return comm->device->api->after(comm->device, NULL, taken->mark);
}

static Status nccl_recv(Comm *comm, int rank, PlanLane lane, void *to, int64_t bytes) {
    enum { THERE = 0 };
    NcclRank *r = rank_of(comm);
    int at = place_in(comm, rank, lane);
    NcclStream stream;
    if (at < 0 || !r->from[at]) return no_message(comm, rank, comm->rank);
    snprintf(r->call, sizeof r->call, "receive from rank %d", rank);
    TRY(nccl_stream(r, NULL, &stream));
    return nccl_begun(r, r->from[at],
                      r->api->recv(to, (size_t)bytes, NCCL_INT8, THERE, r->from[at], stream));
}

/* Calls that only begin ------------------------------------------------------------------------- */

static Status nccl_begin(Comm *comm, PlanGroup group, PlanOp op, const void *from, void *to, int64_t bytes,
                         void **ticket) {
    NcclRank *r = rank_of(comm);
    NcclComm with = r->behind[group];
    NcclStream stream;
    int n = comm_members(comm, group);
    if (!with)
        return status_fail(ERR_INTERNAL, "internal error: a call over %s begins, and NCCL knows of none",
                           plan_group_name(group));
    nccl_at(r, op == PLAN_gather ? "gather beside" : "exchange beside", group);
    TRY(nccl_stream(r, NULL, &stream));
    TRY(fork_lane(r, &r->beside));
    TRY(nccl_stream(r, r->beside, &stream));
    if (op == PLAN_gather) TRY(gather_on(r, with, stream, from, to, bytes));
    else TRY(exchange_on(r, with, stream, n, from, to, bytes));
    keep_ticket(r, ticket);
    return comm->device->api->mark(comm->device, r->beside, &r->tickets->mark);
}

/* Life ----------------------------------------------------------------------------------------- */

static void note_where(Comm *comm, const char *where) {
    NcclRank *r = rank_of(comm);
    if (where) snprintf(r->where, sizeof r->where, "%s", where);
    comm_at(r->options.host, where);
}

static void nccl_close(Comm *comm) {
    NcclRank *r = rank_of(comm);
    // The device may be gone by now, and the others: nobody is waited for.
    for (NcclShared *window = r->windows; window; window = window->next) window->shown = false;
    while (r->windows) nccl_release(comm, r->windows->own, 0);
    if (r->words) r->api->mem_free(r->words);
    nccl_drop_groups(r);
    if (r->world) r->api->destroy(r->world);
    nccl_meet_device(r); // its lanes and tickets
    memory_free(r);
}

static const CommApi nccl_transport = {
    .name = "nccl",
    .on_device = true,
    .close = nccl_close,
    .mesh = nccl_mesh,
    .barrier = nccl_barrier,
    .gather = nccl_gather,
    .exchange = nccl_exchange,
    .begin = nccl_begin,
    .ended = nccl_sent,
    .blocks = nccl_blocks,
    .node = nccl_node,
    .send = nccl_send,
    .sent = nccl_sent,
    .recv = nccl_recv,
    .window = nccl_window,
    .release = nccl_release,
    .at = note_where,
    .settle = nccl_settle,
};

Status comm_nccl(const CommNccl *options, Comm **out) {
    const Nccl *api;
    *out = NULL;
    TRY(nccl_open(options->is_virtual, &api));
    NcclRank *r = memory_alloc(sizeof *r);
    r->base = (Comm){ .api = &nccl_transport, .rank = options->rank, .n_ranks = options->n_ranks };
    for (int axis = 0; axis < N_AXES; axis++) r->base.mesh.size[axis] = 1;
    r->api = api;
    r->options = *options;
    api->version(&r->version);
    *out = &r->base;
    return OK;
}
