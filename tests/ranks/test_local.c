// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads.
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <cmocka.h>

#include "tests/ranks/expect.h"

enum { MOST = 8 };

typedef struct Rank {
    Comm *comm;
    Status status;
    char message[512];
} Rank;

static void *run(void *user) {
    Rank *rank = user;
    PlanMesh meshes[64];
    int n = expect_meshes(rank->comm->n_ranks, meshes, COUNT_OF(meshes));
    for (int i = 0; i < n && rank->status == OK; i++) rank->status = expect_all(rank->comm, &meshes[i]);
    snprintf(rank->message, sizeof rank->message, "%s", rank->status == OK ? "" : status_message());
    return NULL;
}

// A rank that is to hang does so until the others have ended.
static sem_t others_ended;

static int node_ranks; // 0: one node

static void on_ranks(int n, double deadline, void *(*body)(void *), Rank *ranks) {
    Comm *comms[MOST];
    pthread_t threads[MOST];
    comm_local_nodes(n, node_ranks, deadline, comms);
    sem_init(&others_ended, 0, 0);
    for (int i = 0; i < n; i++) {
        ranks[i] = (Rank){ .comm = comms[i] };
        assert_int_equal(pthread_create(&threads[i], NULL, body, &ranks[i]), 0);
    }
    for (int i = 1; i < n; i++) pthread_join(threads[i], NULL);
    sem_post(&others_ended);
    pthread_join(threads[0], NULL);
    sem_destroy(&others_ended);
    for (int i = 0; i < n; i++) comm_close(comms[i]);
}

static void all_meshes(int n) {
    Rank ranks[MOST];
    on_ranks(n, 20, run, ranks);
    for (int i = 0; i < n; i++) assert_string_equal(ranks[i].message, "");
}

static void one_rank(void **state) { (void)state; all_meshes(1); }
static void two_ranks(void **state) { (void)state; all_meshes(2); }
static void three_ranks(void **state) { (void)state; all_meshes(3); }
static void four_ranks(void **state) { (void)state; all_meshes(4); }
static void six_ranks(void **state) { (void)state; all_meshes(6); }

static void nodes(void **state) {
    (void)state;
    for (node_ranks = 1; node_ranks <= 3; node_ranks++) all_meshes(5 - node_ranks % 2);
    node_ranks = 0;
}

// A single process is one rank of any transport.
static void self_rank(void **state) {
    (void)state;
    Comm *comm = comm_self();
    PlanMesh mesh = { .size = { 1, 1, 1 } };
    assert_int_equal(expect_all(comm, &mesh), OK);
    mesh.size[0] = 2;
    assert_int_equal(comm_mesh(comm, &mesh), ERR_ARGUMENT);
    assert_non_null(strstr(status_message(), "hint: mpirun -n 2"));
    comm_close(comm);
}

/* Grief ---------------------------------------------------------------------------------------- */

static Status meet(Comm *comm) {
    static const char from[4] = "abc"; // outlives a rank that leaves while others still read it
    char to[4 * MOST];
    TRY(comm->api->gather(comm, GROUP_ep, from, to, sizeof from));
    return comm->api->barrier(comm, GROUP_dp);
}

static Status hang(Comm *comm) {
    (void)comm;
    sem_wait(&others_ended);
    return OK;
}

static Status give_up(Comm *comm) {
    comm_fail(comm, "the loss is not finite\n  hint: a lower learning rate");
    return OK;
}

static Status stand_apart(Comm *comm) {
    return comm->api->barrier(comm, GROUP_world);
}

static Status work_long(Comm *comm) {
    struct timespec moment = { .tv_nsec = 100000000 };
    for (int i = 0; i < 30; i++) {
        comm_at(comm, "compiling");
        nanosleep(&moment, NULL);
    }
    return meet(comm);
}

// What rank 0 does while the others meet.
static Status (*rank_0)(Comm *comm);

static void *steps(void *user) {
    Rank *rank = user;
    Comm *comm = rank->comm;
    PlanMesh mesh = { .size = { 1, 2, 2 } };
    rank->status = comm_mesh(comm, &mesh);
    for (int i = 0; i < 3 && rank->status == OK; i++) {
        char where[32];
        snprintf(where, sizeof where, "step %d", i);
        comm_at(comm, where);
        rank->status = i == 2 && comm->rank == 0 ? rank_0(comm) : meet(comm);
    }
    snprintf(rank->message, sizeof rank->message, "%s", rank->status == OK ? "" : status_message());
    return NULL;
}

static void grief(Status (*body)(Comm *), const char *how) {
    Rank ranks[4];
    rank_0 = body;
    on_ranks(4, 1, steps, ranks);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(ranks[i].status, ERR_RANK);
        assert_string_equal(ranks[i].message, ranks[1].message);
    }
    const char *parts[] = { "rank 0 (pid ", how, "; its last place: step 2", "rank 1 waits in gather ep" };
    for (int i = 0; i < COUNT_OF(parts); i++)
        if (!strstr(ranks[1].message, parts[i])) fail_msg("no \"%s\" in: %s", parts[i], ranks[1].message);
}

static void hanging(void **state) { (void)state; grief(hang, " has come no further for "); }
static void failing(void **state) {
    (void)state;
    Rank ranks[4];
    rank_0 = give_up;
    on_ranks(4, 1, steps, ranks);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(ranks[i].status, ERR_RANK);
        assert_non_null(strstr(ranks[i].message, " failed: the loss is not finite; its last place: step 2"));
    }
}

static void apart(void **state) {
    (void)state;
    grief(stand_apart, " waits for ranks that wait for it, ");
}

static void slow(void **state) {
    (void)state;
    Rank ranks[4];
    rank_0 = work_long;
    on_ranks(4, 1, steps, ranks);
    for (int i = 0; i < 4; i++) assert_string_equal(ranks[i].message, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(self_rank),  cmocka_unit_test(one_rank),  cmocka_unit_test(two_ranks),
        cmocka_unit_test(three_ranks), cmocka_unit_test(four_ranks), cmocka_unit_test(six_ranks), cmocka_unit_test(nodes),
        cmocka_unit_test(hanging), cmocka_unit_test(failing), cmocka_unit_test(apart), cmocka_unit_test(slow),
    };
    return cmocka_run_group_tests_name("ranks.local", tests, NULL, NULL);
}
