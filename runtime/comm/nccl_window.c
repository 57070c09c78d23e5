// SPDX-License-Identifier: Apache-2.0
// Windows: memory that NCCL allocates and, registered by all ranks of a stage as a symmetric window, maps
// into the address space of every GPU that reaches it by NVLink (or PCIe, peer to peer).
//
// Where a peer's part lies, NCCL's headers tell kernels: inline functions read four fields of the
// window's record in the GPU's memory. No kernel is needed for that. From 2.29 on the library has the
// same for the host; before, the host reads the fields. Then every rank looks for every other one's
// number at the address it found, so that a library of another layout is refused, not believed.
#include "runtime/comm/nccl.h"

enum { TAG = 0x4d4f0000 };

static Status too_old(const NcclRank *r) {
    return status_fail(ERR_VERSION,
                       "ranks that write into each other's memory need NCCL 2.28 or newer, found %d.%d.%d\n"
                       "  hint: set MOEC_NCCL_LIBRARY to a newer one",
                       r->version / 10000, r->version / 100 % 100, r->version % 100);
}

// The address of `member`'s part; NULL: out of reach.
static Status find_peer(NcclRank *r, NcclComm comm, NcclWindow window, int member, void **out) {
    *out = NULL;
    if (r->api->peer_pointer)
        return nccl_begun(r, comm, r->api->peer_pointer(window, 0, member, out));
    NcclWindowHead head;
    Device *device = r->base.device;
    TRY(device->api->copy_out(device, &head, window, sizeof head));
    TRY(device->api->synchronize(device));
    int at = head.lsa_rank + member - head.world_rank;
    if (at < 0 || at >= r->api->team_lsa(comm).n_ranks) return OK;
    *out = head.flat + (int64_t)at * ((int64_t)head.stride_4g << 32);
    return OK;
}

static Status show_tag(NcclRank *r, void *own) {
    Comm *comm = &r->base;
    uint32_t tag = TAG + (uint32_t)comm->rank;
    TRY(comm->device->api->copy_in(comm->device, own, &tag, sizeof tag));
    TRY(comm->api->barrier(comm, GROUP_dp));
    return comm->api->settle(comm);
}

static Status check_peers(NcclRank *r, void *const *peers) {
    Comm *comm = &r->base;
    for (int i = 0, n = comm_members(comm, GROUP_dp); i < n; i++) {
        int rank = comm_world_rank(comm, GROUP_dp, i);
        uint32_t found = 0;
        if (!peers[i]) continue;
        TRY(comm->device->api->copy_out(comm->device, &found, peers[i], sizeof found));
        TRY(comm->device->api->synchronize(comm->device));
        if (found != TAG + (uint32_t)rank)
            return status_fail(ERR_VERSION,
                               "rank %d: what NCCL %d calls rank %d's window is not there (%#x)\n"
                               "  hint: set MOEC_NCCL_LIBRARY to NCCL 2.29 or newer, which tells "
                               "addresses itself",
                               comm->rank, r->version, rank, found);
    }
    return OK;
}

static Status hide_tag(NcclRank *r, void *own) {
    Comm *comm = &r->base;
    TRY(comm->api->barrier(comm, GROUP_dp)); // everybody has looked
    TRY(comm->device->api->fill(comm->device, own, 0, sizeof(uint32_t)));
    TRY(comm->api->barrier(comm, GROUP_dp));
    return comm->api->settle(comm);
}

static Status open_window(NcclRank *r, NcclShared *shared, int64_t bytes, void **peers) {
    NcclComm comm = r->groups[GROUP_dp];
    Device *device = r->base.device;
    TRY(nccl_begun(r, comm, r->api->mem_alloc(&shared->own, (size_t)bytes)));
    TRY(device->api->fill(device, shared->own, 0, bytes));
    TRY(nccl_begun(r, comm, r->api->window_register(comm, shared->own, (size_t)bytes, &shared->window,
                                                    NCCL_SYMMETRIC)));
    if (!shared->window) return status_fail(ERR_DEVICE, "NCCL gives no symmetric window here\n"
                                            "  hint: NCCL_DEBUG=INFO makes it say why");
    int own = comm_member(&r->base, GROUP_dp);
    for (int i = 0, n = comm_members(&r->base, GROUP_dp); i < n; i++)
        TRY(find_peer(r, comm, shared->window, i, &peers[i]));
    shared->shown = true;
    TRY(show_tag(r, shared->own));
    TRY(check_peers(r, peers));
    peers[own] = shared->own; // NCCL has another address for it too
    return hide_tag(r, shared->own);
}

Status nccl_window(Comm *comm, int64_t bytes, void **own, void **peers) {
    NcclRank *r = (NcclRank *)comm;
    NcclStream unused;
    *own = NULL;
    nccl_at(r, "a window", GROUP_dp);
    TRY(nccl_stream(r, NULL, &unused));
    bool windows = r->version >= NCCL_FIRST_WINDOWS && r->api->window_register &&
                   r->api->window_deregister && (r->api->peer_pointer || r->api->team_lsa);
    if (!windows) return too_old(r);
    NcclShared *shared = memory_alloc(sizeof *shared);
    shared->next = r->windows;
    r->windows = shared;
    Status status = open_window(r, shared, round_up(max_i64(bytes, 4), NCCL_WINDOW_GRAIN), peers);
    *own = shared->own;
    if (status != OK) nccl_release(comm, shared->own, bytes);
    return status;
}

void nccl_release(Comm *comm, void *own, int64_t bytes) {
    (void)bytes;
    NcclRank *r = (NcclRank *)comm;
    NcclShared **at = &r->windows;
    while (*at && (*at)->own != own) at = &(*at)->next;
    NcclShared *shared = *at;
    if (!shared) return;
    *at = shared->next;
    // Others may be at work in it. Where one of them has failed there is nothing to wait for.
    if (shared->shown && !r->failed && comm->api->barrier(comm, GROUP_dp) == OK) comm->api->settle(comm);
    if (shared->window && !r->failed)
        r->api->window_deregister(r->groups[GROUP_dp], shared->window);
    if (shared->own) r->api->mem_free(shared->own);
    memory_free(shared);
}
