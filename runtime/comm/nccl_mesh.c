// SPDX-License-Identifier: Apache-2.0
// Communicators: one of all ranks, made from an id that rank 0 draws; from it one per group of the mesh.
// Messages have communicators of two, as many as the plan has pairs of stages, ways and lanes: their
// senders draw ids, which all ranks of a pipeline gather. Every rank makes all in the same order.
#include "runtime/comm/nccl.h"

#include <stdio.h>

// A send that waits to be taken holds as many of the GPU's multiprocessors; a call beside kernels as many.
enum { MESSAGE_CTAS = 4, BEHIND_CTAS = 8 };

static NcclConfig settings(void) {
    return (NcclConfig){ .size = sizeof(NcclConfig), .magic = NCCL_CONFIG_MAGIC,
                         .version = NCCL_CONFIG_VERSION, .blocking = 0,
                         .cluster_size = NCCL_UNSET, .min_ctas = NCCL_UNSET,
                         .max_ctas = NCCL_UNSET, .split_share = NCCL_UNSET,
                         .traffic_class = NCCL_UNSET, .collnet = NCCL_UNSET,
                         .cta_policy = NCCL_UNSET, .shrink_share = NCCL_UNSET,
                         .nvls_ctas = NCCL_UNSET, .channels_per_peer = NCCL_UNSET,
                         .nvlink_centric = NCCL_UNSET };
}

static Status make_world(NcclRank *r) {
    NcclConfig config = settings();
    NcclId id = { 0 };
    snprintf(r->call, sizeof r->call, "meeting %d ranks", r->base.n_ranks);
    if (r->base.rank == 0) TRY(nccl_begun(r, NULL, r->api->unique_id(&id)));
    if (r->options.host) TRY(comm_first(r->options.host, &id, sizeof id));
    else if (r->base.n_ranks > 1) TRY(r->options.share(r->options.user, &id, sizeof id));
    NcclResult result = r->api->init(&r->world, r->base.n_ranks, id, r->base.rank, &config);
    return nccl_begun(r, r->world, result);
}

// Waits until it is ready.
static Status own(NcclRank *r, NcclComm comm, NcclResult result) {
    if (comm) {
        r->owned = memory_grow(r->owned, (size_t)(r->n_owned + 1) * sizeof *r->owned);
        r->owned[r->n_owned++] = comm;
    }
    return nccl_begun(r, comm, result);
}

// Ranks of one color get a communicator, ordered by key; the others get none.
static Status split(NcclRank *r, int color, int key, int most_ctas, NcclComm *out) {
    NcclConfig config = settings();
    config.max_ctas = most_ctas;
    *out = NULL;
    TRY(nccl_begun(r, r->world, r->api->split(r->world, color, key, out, &config)));
    return own(r, *out, NCCL_IN_PROGRESS);
}

static bool same_members(const Comm *comm, PlanGroup a, PlanGroup b) {
    int n = comm_members(comm, a);
    if (n != comm_members(comm, b)) return false;
    for (int i = 0; i < n; i++)
        if (comm_world_rank(comm, a, i) != comm_world_rank(comm, b, i)) return false;
    return true;
}

static Status make_group(NcclRank *r, PlanGroup group) {
    const Comm *comm = &r->base;
    if (same_members(comm, group, GROUP_world)) {
        r->groups[group] = r->world;
        return OK;
    }
    for (int other = 0; other < (int)group; other++) {
        if (!r->groups[other] || !same_members(comm, group, (PlanGroup)other)) continue;
        r->groups[group] = r->groups[other];
        return OK;
    }
    nccl_at(r, "a communicator", group);
    return split(r, comm_world_rank(comm, group, 0), comm_member(comm, group), NCCL_UNSET,
                 &r->groups[group]);
}

// Stages may differ in what their plans begin, so the mesh decides: groups over which parameters are shared.
static Status make_behind(NcclRank *r, PlanGroup group, PlanGroup other) {
    const Comm *comm = &r->base;
    if (comm_members(comm, group) == 1) return OK;
    if (r->behind[other] && same_members(comm, group, other)) {
        r->behind[group] = r->behind[other];
        return OK;
    }
    nccl_at(r, "a communicator for calls that only begin", group);
    return split(r, comm_world_rank(comm, group, 0), comm_member(comm, group), BEHIND_CTAS,
                 &r->behind[group]);
}

/* Messages ------------------------------------------------------------------------------------- */

// What a rank of a pipeline tells the others: which messages its plan sends, and their ids.
typedef struct Offer {
    NcclId id;
    uint8_t sends, pad[127];
} Offer;

// The plan's messages: sends, receives [stages][N_LANES].
static void find_messages(const Plan *plan, bool *sends, bool *receives) {
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const PlanProgram *program = &plan->programs[p];
        for (uint32_t i = 0; i < program->n_instrs; i++) {
            const PlanInstr *instr = &program->instrs[i];
            if (instr->op == PLAN_send) sends[instr->peer * N_LANES + instr->lane] = true;
            if (instr->op == PLAN_recv) receives[instr->peer * N_LANES + instr->lane] = true;
        }
    }
}

static Status draw_ids(NcclRank *r, const bool *sends, int n, Offer *offers) {
    for (int i = 0; i < n; i++) {
        if (!sends[i] || r->to[i]) continue;
        offers[i].sends = 1;
        TRY(nccl_begun(r, NULL, r->api->unique_id(&offers[i].id)));
    }
    return OK;
}

// own [n] -> all [stages][n], by way of the device.
static Status gather_offers(NcclRank *r, const Offer *offers, int n, Offer *all) {
    Comm *comm = &r->base;
    Device *device = comm->device;
    int stages = comm_members(comm, GROUP_pp);
    int64_t bytes = n * (int64_t)sizeof *offers;
    void *at;
    TRY(nccl_begun(r, NULL, r->api->mem_alloc(&at, (size_t)(bytes * (stages + 1)))));
    char *there = at;
    Status status = device->api->copy_in(device, there, offers, bytes);
    if (status == OK) status = comm->api->gather(comm, GROUP_pp, there, there + bytes, bytes);
    if (status == OK) status = comm->api->settle(comm);
    if (status == OK) status = device->api->copy_out(device, all, there + bytes, bytes * stages);
    if (status == OK) status = device->api->synchronize(device);
    r->api->mem_free(at);
    return status;
}

static Status make_message(NcclRank *r, const Offer *offer, int role, NcclComm *out) {
    NcclConfig config = settings();
    config.max_ctas = MESSAGE_CTAS;
    NcclResult result = r->api->init(out, 2, offer->id, role, &config);
    return own(r, *out, result);
}

// In order of sender, receiver and lane, so that no two ranks wait for each other's.
static Status make_messages(NcclRank *r, const Offer *all, const bool *receives) {
    int stages = comm_members(&r->base, GROUP_pp), own_stage = comm_member(&r->base, GROUP_pp);
    int n = stages * N_LANES;
    for (int from = 0; from < stages; from++) {
        for (int i = 0; i < n; i++) {
            const Offer *offer = &all[from * n + i];
            int to = i / N_LANES, here = from * N_LANES + i % N_LANES;
            bool sends = from == own_stage, takes = to == own_stage;
            if (takes && !sends && receives[here] && !r->from[here] && !offer->sends)
                return status_fail(ERR_INTERNAL, "internal error: stage %d receives from stage %d, "
                                   "which does not send", to, from);
            if (!offer->sends || sends == takes) continue;
            snprintf(r->call, sizeof r->call, "a communicator from stage %d to %d", from, to);
            TRY(make_message(r, offer, takes, sends ? &r->to[i] : &r->from[here]));
        }
    }
    return OK;
}

static Status meet_stages(NcclRank *r) {
    int stages = comm_members(&r->base, GROUP_pp), n = stages * N_LANES;
    if (stages == 1 || !r->base.plan) return OK;
    Arena *arena = arena_create();
    bool *sends = ARENA_ARRAY(arena, bool, n), *receives = ARENA_ARRAY(arena, bool, n);
    Offer *offers = ARENA_ARRAY(arena, Offer, n), *all = ARENA_ARRAY(arena, Offer, n * stages);
    find_messages(r->base.plan, sends, receives);
    Status status = draw_ids(r, sends, n, offers);
    if (status == OK) status = gather_offers(r, offers, n, all);
    if (status == OK) status = make_messages(r, all, receives);
    arena_destroy(arena);
    return status;
}

/* The mesh ------------------------------------------------------------------------------------- */

static Status make_groups(NcclRank *r) {
    size_t places = (size_t)comm_members(&r->base, GROUP_pp) * N_LANES;
    for (int group = 0; group < N_GROUPS; group++) TRY(make_group(r, (PlanGroup)group));
    TRY(make_behind(r, GROUP_dp, GROUP_dp));
    TRY(make_behind(r, GROUP_edp, GROUP_dp));
    r->to = memory_alloc(places * sizeof *r->to);
    r->from = memory_alloc(places * sizeof *r->from);
    r->lanes = memory_alloc(places * sizeof *r->lanes);
    return OK;
}

void nccl_drop_groups(NcclRank *r) {
    for (int i = r->n_owned; i-- > 0;) r->api->destroy(r->owned[i]);
    memory_free(r->owned);
    memory_free(r->to);
    memory_free(r->from);
    memory_free(r->lanes);
    r->owned = r->to = r->from = NULL;
    r->lanes = NULL;
    r->n_owned = 0;
    memset(r->groups, 0, sizeof r->groups);
    memset(r->behind, 0, sizeof r->behind);
}

static Status make_words(NcclRank *r) {
    int64_t bytes = (r->base.n_ranks + 1) * (int64_t)sizeof(uint32_t);
    void *words;
    TRY(nccl_begun(r, NULL, r->api->mem_alloc(&words, (size_t)bytes)));
    r->words = words;
    return r->base.device->api->fill(r->base.device, words, 0, bytes);
}

static void free_tickets(NcclTicket **list) {
    while (*list) {
        NcclTicket *next = (*list)->next;
        memory_free(*list);
        *list = next;
    }
}

// Those of a device that is gone went with it.
void nccl_meet_device(NcclRank *r) {
    int places = comm_members(&r->base, GROUP_pp) * N_LANES;
    r->device = r->base.device;
    r->fork = NULL;
    r->beside = NULL;
    for (int i = 0; r->lanes && i < places; i++) r->lanes[i] = NULL;
    free_tickets(&r->tickets);
    free_tickets(&r->spare);
}

Status nccl_mesh(Comm *comm) {
    NcclRank *r = (NcclRank *)comm;
    NcclStream unused;
    if (!comm->device || !comm->device->api->stream)
        return status_fail(ERR_ARGUMENT, "NCCL connects GPUs, and this rank's device is none\n"
                           "  hint: mpirun starts ranks on CPUs");
    snprintf(r->call, sizeof r->call, "its start");
    bool known = r->to && !memcmp(r->made.size, comm->mesh.size, sizeof r->made.size);
    if (!known) nccl_drop_groups(r);
    nccl_meet_device(r);
    TRY(nccl_stream(r, NULL, &unused));
    if (!r->world) TRY(make_world(r));
    if (!known) TRY(make_groups(r));
    r->made = comm->mesh;
    if (!r->words) TRY(make_words(r));
    return meet_stages(r);
}
