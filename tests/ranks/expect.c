// SPDX-License-Identifier: Apache-2.0
// Every byte has one right value, a function of who gave it and to whom.
#include "tests/ranks/expect.h"

#include <pthread.h>
#include <stdlib.h>

static const int64_t sizes[] = { 0, 1, 3, 32, 1000, 4096, 65537, 700001 };

enum { PATTERN = 1 << 16 };

static uint8_t pattern[PATTERN];

static void make_pattern(void) {
    for (int i = 0; i < PATTERN; i++) pattern[i] = (uint8_t)hash_mix(1, 2, (uint64_t)i);
}

static int64_t place_of(int giver, int taker, int salt) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_pattern);
    return (int64_t)(hash_mix((uint64_t)salt, (uint64_t)giver, (uint64_t)taker) % PATTERN);
}

void expect_fill(uint8_t *to, int64_t bytes, int giver, int taker, int salt) {
    for (int64_t i = 0, place = place_of(giver, taker, salt), n; i < bytes; i += n, place = 0) {
        n = min_i64(PATTERN - place, bytes - i);
        memcpy(to + i, pattern + place, (size_t)n);
    }
}

Status expect_same(const char *what, const Comm *comm, const uint8_t *at, int64_t bytes, int giver,
                   int taker, int salt) {
    for (int64_t i = 0, place = place_of(giver, taker, salt), n; i < bytes; i += n, place = 0) {
        n = min_i64(PATTERN - place, bytes - i);
        if (memcmp(at + i, pattern + place, (size_t)n) == 0) continue;
        int64_t k = 0;
        while (at[i + k] == pattern[place + k]) k++;
        return status_fail(ERR_INTERNAL, "rank %d, %s of %lld bytes from rank %d: byte %lld is %d, "
                           "expected %d", comm->rank, what, (long long)bytes, giver, (long long)(i + k),
                           at[i + k], pattern[place + k]);
    }
    return OK;
}

static Status gathers(Comm *comm, PlanGroup group, int64_t bytes, int salt, bool in_place) {
    int n = comm_members(comm, group), own = comm_member(comm, group);
    uint8_t *from = malloc((size_t)bytes + 1), *to = calloc(1, (size_t)(bytes * n) + 1);
    Status status = OK;
    uint8_t *given = in_place ? to + own * bytes : from;
    expect_fill(given, bytes, comm->rank, 0, salt);
    TRY_GOTO(comm->api->gather(comm, group, given, to, bytes), end);
    memset(from, 0, (size_t)bytes); // may be reused at once
    for (int i = 0; i < n; i++)
        TRY_GOTO(expect_same("gather", comm, to + i * bytes, bytes, comm_world_rank(comm, group, i), 0, salt), end);
end:
    free(from);
    free(to);
    return status;
}

static Status exchanges(Comm *comm, PlanGroup group, int64_t bytes, int salt) {
    int n = comm_members(comm, group);
    uint8_t *from = malloc((size_t)(bytes * n) + 1), *to = calloc(1, (size_t)(bytes * n) + 1);
    Status status = OK;
    for (int i = 0; i < n; i++)
        expect_fill(from + i * bytes, bytes, comm->rank, comm_world_rank(comm, group, i), salt);
    TRY_GOTO(comm->api->exchange(comm, group, from, to, bytes), end);
    memset(from, 0, (size_t)(bytes * n));
    for (int i = 0; i < n; i++)
        TRY_GOTO(expect_same("exchange", comm, to + i * bytes, bytes, comm_world_rank(comm, group, i),
                      comm->rank, salt), end);
end:
    free(from);
    free(to);
    return status;
}

// Three that only begin, two of one kind; whole calls of the same group come between, and none of it is mixed up.
static Status meanwhile(Comm *comm, PlanGroup group, int64_t bytes, int salt) {
    enum { CALLS = 3 };
    static const PlanOp ops[CALLS] = { PLAN_exchange, PLAN_gather, PLAN_exchange };
    int n = comm_members(comm, group);
    int64_t all = bytes * n + 1;
    uint8_t *from = malloc((size_t)(all * CALLS)), *to = calloc(1, (size_t)(all * CALLS));
    void *tickets[CALLS];
    Status status = OK;
    for (int k = 0; k < CALLS; k++) {
        uint8_t *given = from + k * all;
        for (int i = 0; i < (ops[k] == PLAN_gather ? 1 : n); i++)
            expect_fill(given + i * bytes, bytes, comm->rank,
                        ops[k] == PLAN_gather ? 0 : comm_world_rank(comm, group, i), salt + k);
        TRY_GOTO(comm->api->begin(comm, group, ops[k], given, to + k * all, bytes, &tickets[k]), end);
        TRY_GOTO(exchanges(comm, group, bytes, salt + 10 + k), end);
    }
    for (int k = 0; k < CALLS; k++) {
        TRY_GOTO(gathers(comm, group, bytes, salt + 20 + k, false), end);
        TRY_GOTO(comm->api->ended(comm, tickets[k]), end);
        memset(from + k * all, 0, (size_t)all);
        for (int i = 0; i < n; i++)
            TRY_GOTO(expect_same(ops[k] == PLAN_gather ? "gather that began" : "exchange that began", comm,
                                 to + k * all + i * bytes, bytes, comm_world_rank(comm, group, i),
                                 ops[k] == PLAN_gather ? 0 : comm->rank, salt + k), end);
    }
end:
    free(from);
    free(to);
    return status;
}

// Every rank to every other: three messages of different sizes per lane, the lanes taken last first, the
// tickets waited for last first.
static Status messages(Comm *comm, int64_t bytes, int salt) {
    enum { EACH = 3, ALL = EACH * N_LANES };
    int n = comm->n_ranks;
    void **tickets = calloc((size_t)(n * ALL), sizeof *tickets);
    uint8_t *from = malloc((size_t)(bytes + ALL) * (size_t)(n * ALL)), *to = malloc((size_t)bytes + ALL);
    Status status = OK;
    for (int k = 0; k < ALL; k++) {
        for (int r = 0; r < n; r++) {
            uint8_t *at = from + (bytes + ALL) * (k * n + r);
            expect_fill(at, bytes + k, comm->rank, r, salt + k);
            if (r == comm->rank) continue;
            TRY_GOTO(comm->api->send(comm, r, (PlanLane)(k / EACH), at, bytes + k, &tickets[k * n + r]), end);
        }
    }
    for (int i = n * N_LANES; i-- > 0;) {
        int r = i % n, lane = i / n;
        for (int k = lane * EACH; r != comm->rank && k < (lane + 1) * EACH; k++) {
            TRY_GOTO(comm->api->recv(comm, r, (PlanLane)lane, to, bytes + k), end);
            TRY_GOTO(expect_same("message", comm, to, bytes + k, r, comm->rank, salt + k), end);
        }
    }
    for (int i = n * ALL; i-- > 0;)
        if (i % n != comm->rank) TRY_GOTO(comm->api->sent(comm, tickets[i]), end);
end:
    free(tickets);
    free(from);
    free(to);
    return status;
}

// What a rank writes into another's window the other sees after a barrier, and the other way round.
static Status windows(Comm *comm, int64_t bytes, int salt) {
    int n = comm_members(comm, GROUP_dp), own = comm_member(comm, GROUP_dp);
    int64_t all = bytes * n;
    uint8_t **peers = calloc((size_t)n, sizeof *peers), *window, *copy = malloc((size_t)all + 1);
    Status status = OK;
    TRY_GOTO(comm->api->window(comm, all, (void **)&window, (void **)peers), end);
    for (int64_t i = 0; i < all; i++)
        if (window[i]) TRY_GOTO(status_fail(ERR_INTERNAL, "rank %d: a new window has %d at %lld",
                                            comm->rank, window[i], (long long)i), end);
    if (peers[own] != window) TRY_GOTO(status_fail(ERR_INTERNAL, "the own window is elsewhere"), end);
    TRY_GOTO(comm->api->barrier(comm, GROUP_dp), end);
    for (int i = 0; i < n; i++)
        if (peers[i]) expect_fill(peers[i] + own * bytes, bytes, comm->rank, comm_world_rank(comm, GROUP_dp, i), salt);
    TRY_GOTO(comm->api->barrier(comm, GROUP_dp), end);
    for (int i = 0; i < n; i++) {
        int rank = comm_world_rank(comm, GROUP_dp, i);
        if (!peers[i]) continue;
        TRY_GOTO(expect_same("window", comm, window + i * bytes, bytes, rank, comm->rank, salt), end);
        memcpy(copy, peers[i] + own * bytes, (size_t)bytes);
        TRY_GOTO(expect_same("peer's window", comm, copy, bytes, comm->rank, rank, salt), end);
    }
    comm->api->release(comm, window, all);
end:
    free(peers);
    free(copy);
    return status;
}

Status expect_all(Comm *comm, const PlanMesh *mesh) {
    TRY(comm_mesh(comm, mesh));
    for (int s = 0; s < COUNT_OF(sizes); s++) {
        for (int g = 0; g < N_GROUPS; g++) {
            TRY(gathers(comm, (PlanGroup)g, sizes[s], 10 * s + g, false));
            TRY(gathers(comm, (PlanGroup)g, sizes[s], 10 * s + g + 1000, true));
            TRY(exchanges(comm, (PlanGroup)g, sizes[s], 10 * s + g + 2000));
            TRY(comm->api->barrier(comm, (PlanGroup)g));
            if (comm->api->begin && plan_group_holds(GROUP_dp, (PlanGroup)g))
                TRY(meanwhile(comm, (PlanGroup)g, sizes[s], 5000 + 100 * s + 30 * g));
        }
        if (comm->n_ranks > 1) TRY(messages(comm, sizes[s], 3000 + s));
        TRY(windows(comm, sizes[s], 4000 + s));
    }
    for (int g = 0; g < N_GROUPS; g++) TRY(expect_blocks(comm, (PlanGroup)g));
    return OK;
}

int expect_meshes(int n, PlanMesh *meshes, int most) {
    int count = 0;
    for (int pp = 1; pp <= n; pp++)
        for (int edp = 1; edp <= n; edp++)
            for (int ep = 1; ep <= n; ep++)
                for (int node = 1; node < ep || node == 1; node++)
                    if (pp * edp * ep == n && ep % node == 0 && count < most)
                        meshes[count++] = (PlanMesh){ .size = { pp, edp, ep }, .node = node };
    return count;
}
