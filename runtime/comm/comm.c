// SPDX-License-Identifier: Apache-2.0
// Coordinates in the mesh, and the transport of one rank.
#include "runtime/comm/comm.h"

// This rank's place on a side of the mesh.
static int place(const Comm *comm, int side) {
    int node = plan_side(&comm->mesh, SIDE_node);
    if (side == SIDE_node) return comm->coord[AXIS_ep] % node;
    return side == AXIS_ep ? comm->coord[AXIS_ep] / node : comm->coord[side];
}

Status comm_mesh(Comm *comm, const PlanMesh *mesh) {
    int n = 1;
    for (int axis = 0; axis < N_AXES; axis++) n *= mesh->size[axis];
    if (n != comm->n_ranks)
        return status_fail(ERR_ARGUMENT,
                           "the layout has %d ranks, %d %s started\n  hint: mpirun -n %d moec ...",
                           n, comm->n_ranks, comm->n_ranks == 1 ? "was" : "were", n);
    comm->mesh = *mesh;
    int rest = comm->rank;
    for (int axis = N_AXES - 1; axis >= 0; axis--) {
        comm->coord[axis] = rest % mesh->size[axis];
        rest /= mesh->size[axis];
    }
    comm->mesh.stage = comm->coord[AXIS_pp];
    return comm->api->mesh ? comm->api->mesh(comm) : OK;
}

int comm_members(const Comm *comm, PlanGroup group) {
    int n = 1;
    for (int side = 0; side < N_SIDES; side++)
        if (plan_group_along(group, side)) n *= plan_side(&comm->mesh, side);
    return n;
}

int comm_member(const Comm *comm, PlanGroup group) {
    int member = 0;
    for (int side = 0; side < N_SIDES; side++)
        if (plan_group_along(group, side)) member = member * plan_side(&comm->mesh, side) + place(comm, side);
    return member;
}

int comm_world_rank(const Comm *comm, PlanGroup group, int member) {
    int rank = 0, stride = 1;
    for (int side = N_SIDES - 1; side >= 0; side--) {
        int size = plan_side(&comm->mesh, side), at = place(comm, side);
        if (plan_group_along(group, side)) {
            at = member % size;
            member /= size;
        }
        rank += at * stride;
        stride *= size;
    }
    return rank;
}

int comm_node(const Comm *comm, PlanGroup group, int member) {
    return comm->api->node ? comm->api->node(comm, comm_world_rank(comm, group, member)) : 0;
}

int comm_nodes(const Comm *comm, PlanGroup group) {
    int nodes = 0;
    for (int i = 0, n = comm_members(comm, group); i < n; i++) {
        int before = 0;
        while (before < i && comm_node(comm, group, before) != comm_node(comm, group, i)) before++;
        nodes += before == i;
    }
    return nodes;
}

int comm_on_stage(const Comm *comm, int stage) {
    return comm_world_rank(comm, GROUP_pp, stage);
}

void comm_close(Comm *comm) {
    if (comm) comm->api->close(comm);
}

void comm_at(Comm *comm, const char *where) {
    if (comm && comm->api->at) comm->api->at(comm, where);
}

Status comm_check(void *comm) {
    Comm *c = comm;
    return c && c->api->check ? c->api->check(c) : OK;
}

Status comm_keep(Comm *comm, const char *folder) {
    return comm && comm->api->keep ? comm->api->keep(comm, folder) : OK;
}

void comm_fail(Comm *comm, const char *why) {
    if (comm && comm->api->fail) comm->api->fail(comm, why);
}

/* One rank ------------------------------------------------------------------------------------- */

static void self_close(Comm *comm) {
    memory_free(comm);
}

static Status self_barrier(Comm *comm, PlanGroup group) {
    (void)comm, (void)group;
    return OK;
}

static Status self_copy(Comm *comm, PlanGroup group, const void *from, void *to, int64_t bytes) {
    (void)comm, (void)group;
    if (from != to) memmove(to, from, (size_t)bytes);
    return OK;
}

static Status self_blocks(Comm *comm, PlanGroup group, const void *from, const int64_t *out, void *to,
                          const int64_t *in) {
    (void)in;
    return self_copy(comm, group, from, to, out[0]);
}

static Status nobody(int rank) {
    return status_fail(ERR_INTERNAL, "internal error: a message to or from rank %d of one", rank);
}

static Status self_send(Comm *comm, int rank, PlanLane lane, const void *from, int64_t bytes,
                        void **ticket) {
    (void)comm, (void)lane, (void)from, (void)bytes, (void)ticket;
    return nobody(rank);
}

static Status self_recv(Comm *comm, int rank, PlanLane lane, void *to, int64_t bytes) {
    (void)comm, (void)lane, (void)to, (void)bytes;
    return nobody(rank);
}

static Status self_window(Comm *comm, int64_t bytes, void **own, void **peers) {
    (void)comm;
    *own = peers[0] = memory_alloc((size_t)bytes);
    return OK;
}

static void self_release(Comm *comm, void *own, int64_t bytes) {
    (void)comm, (void)bytes;
    memory_free(own);
}

static const CommApi self_api = {
    .name = "self",
    .close = self_close,
    .barrier = self_barrier,
    .gather = self_copy,
    .exchange = self_copy,
    .blocks = self_blocks,
    .send = self_send,
    .recv = self_recv,
    .window = self_window,
    .release = self_release,
};

Comm *comm_self(void) {
    Comm *comm = memory_alloc(sizeof *comm);
    comm->api = &self_api;
    comm->n_ranks = 1;
    for (int axis = 0; axis < N_AXES; axis++) comm->mesh.size[axis] = 1;
    return comm;
}
