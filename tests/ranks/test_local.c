// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
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

static void on_ranks(int n, void *(*body)(void *), Rank *ranks) {
    Comm *comms[MOST];
    pthread_t threads[MOST];
    comm_local(n, 20, comms);
    for (int i = 0; i < n; i++) {
        ranks[i] = (Rank){ .comm = comms[i] };
        assert_int_equal(pthread_create(&threads[i], NULL, body, &ranks[i]), 0);
    }
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < n; i++) comm_close(comms[i]);
}

static void all_meshes(int n) {
    Rank ranks[MOST];
    on_ranks(n, run, ranks);
    for (int i = 0; i < n; i++) assert_string_equal(ranks[i].message, "");
}

static void one_rank(void **state) { (void)state; all_meshes(1); }
static void two_ranks(void **state) { (void)state; all_meshes(2); }
static void three_ranks(void **state) { (void)state; all_meshes(3); }
static void four_ranks(void **state) { (void)state; all_meshes(4); }
static void six_ranks(void **state) { (void)state; all_meshes(6); }

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(self_rank),  cmocka_unit_test(one_rank),  cmocka_unit_test(two_ranks),
        cmocka_unit_test(three_ranks), cmocka_unit_test(four_ranks), cmocka_unit_test(six_ranks),
    };
    return cmocka_run_group_tests_name("ranks.local", tests, NULL, NULL);
}
