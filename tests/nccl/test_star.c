// SPDX-License-Identifier: Apache-2.0
// What hosts of GPUs say to each other under torchrun: meeting over TCP, calls of groups, ranks that go,
// messages of what is missing.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <netinet/in.h>

#include <cmocka.h>

#include "runtime/comm/star.h"

enum { MOST = 4 };

typedef struct Rank {
    pthread_t thread;
    StarPlace place;
    Status (*body)(Comm *comm);
    Status status;
    char message[1024];
} Rank;

// A port that is likely to be free, with those behind it.
static int some_port(void) {
    int end = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t n = sizeof at;
    assert_int_equal(bind(end, (void *)&at, sizeof at), 0);
    assert_int_equal(getsockname(end, (void *)&at, &n), 0);
    close(end);
    int port = ntohs(at.sin_port);
    return port > 65000 ? port - 1000 : port;
}

static void *run(void *user) {
    Rank *r = user;
    Comm *comm;
    r->status = star_open(&r->place, &comm);
    if (r->status == OK) {
        r->status = r->body(comm);
        if (r->status != OK) snprintf(r->message, sizeof r->message, "%s", status_message());
        comm_close(comm);
    } else {
        snprintf(r->message, sizeof r->message, "%s", status_message());
    }
    return NULL;
}

static void run_ranks(Rank *ranks, int n, Status (*body)(Comm *comm), int port) {
    for (int i = n; i-- > 0;) { // rank 0 comes last
        ranks[i] = (Rank){ .place = { .rank = i, .n_ranks = n, .address = "127.0.0.1", .job = "a test",
                                      .local_rank = i % 2, .port = port, .deadline = 20 }, .body = body };
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, run, &ranks[i]), 0);
    }
    for (int i = 0; i < n; i++) pthread_join(ranks[i].thread, NULL);
}

static Status calls(Comm *comm) {
    PlanMesh mesh = { { 2, 1, 2 }, 0 };
    TRY(comm_mesh(comm, &mesh));
    for (int i = 0; i < 4; i++)
        if (comm_node(comm, GROUP_world, i) != i / 2 * 2) return status_fail(ERR_INTERNAL, "wrong node");
    for (int g = 0; g < N_GROUPS; g++) {
        PlanGroup group = (PlanGroup)g;
        int n = comm_members(comm, group), own = comm_member(comm, group), all[MOST], from[MOST], to[MOST];
        for (int i = 0; i < n; i++) from[i] = 10 * comm->rank + i;
        TRY(comm->api->gather(comm, group, &comm->rank, all, sizeof *all));
        TRY(comm->api->barrier(comm, group));
        TRY(comm->api->exchange(comm, group, from, to, sizeof *to));
        TRY(comm_check(comm));
        for (int i = 0; i < n; i++) {
            int rank = comm_world_rank(comm, group, i);
            if (all[i] != rank || to[i] != 10 * rank + own) return status_fail(ERR_INTERNAL, "wrong bytes");
        }
    }
    char *large = memory_alloc(1 << 20), *every = memory_alloc(4 << 20);
    memset(large, comm->rank + 1, 1 << 20);
    Status status = comm->api->gather(comm, GROUP_world, large, every, 1 << 20);
    for (int i = 0; status == OK && i < 4 << 20; i++)
        if (every[i] != (i >> 20) + 1) status = status_fail(ERR_INTERNAL, "wrong bytes");
    memory_free(large);
    memory_free(every);
    return status;
}

static void test_calls(void **state) {
    (void)state;
    Rank ranks[MOST];
    int port = some_port(), taken = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    // Somebody else listens at the first port, and says nothing: rank 0 takes another.
    assert_int_equal(bind(taken, (void *)&at, sizeof at), 0);
    run_ranks(ranks, 4, calls, port);
    close(taken);
    for (int i = 0; i < 4; i++)
        if (ranks[i].status != OK) fail_msg("rank %d: %s", i, ranks[i].message);
}

static Status one_goes(Comm *comm) {
    int all[MOST];
    if (comm->rank == 2) return OK;
    return comm->api->gather(comm, GROUP_world, &comm->rank, all, sizeof *all);
}

static Status one_fails(Comm *comm) {
    if (comm->rank == 1) {
        comm_fail(comm, "no memory for tea");
        return OK;
    }
    for (int turn = 0; turn < 2000; turn++) {
        TRY(comm_check(comm));
        usleep(5000);
    }
    return OK;
}

static Status different(Comm *comm) {
    char all[64];
    PlanMesh mesh = { { 1, 1, 2 }, 0 };
    TRY(comm_mesh(comm, &mesh));
    return comm->api->gather(comm, GROUP_world, "bytes", all, comm->rank ? 4 : 5);
}

static void test_going(void **state) {
    (void)state;
    Rank ranks[MOST];
    run_ranks(ranks, 3, one_goes, some_port());
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, ERR_RANK);
        assert_non_null(strstr(ranks[i].message, "rank 2 is gone"));
    }
    run_ranks(ranks, 3, one_fails, some_port());
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(ranks[i].status, ERR_RANK);
        assert_non_null(strstr(ranks[i].message, "rank 1: no memory for tea"));
    }
    run_ranks(ranks, 2, different, some_port());
    for (int i = 0; i < 2; i++) assert_non_null(strstr(ranks[i].message, "internal error"));
}

static Status nothing(Comm *comm) {
    (void)comm;
    return OK;
}

static void test_not_coming(void **state) {
    (void)state;
    int port = some_port();
    Rank alone = { .place = { .rank = 0, .n_ranks = 3, .address = "127.0.0.1", .job = "", .port = port,
                              .deadline = 0.3 }, .body = nothing };
    run(&alone);
    assert_int_equal(alone.status, ERR_RANK);
    assert_non_null(strstr(alone.message, "for ranks 1, 2 of 3"));
    alone.place.rank = 2;
    run(&alone);
    assert_int_equal(alone.status, ERR_RANK);
    assert_non_null(strstr(alone.message, "rank 2 has found rank 0 at none of the ports"));
    assert_non_null(strstr(alone.message, "MASTER_ADDR"));
    // Ranks of another job do not meet.
    Rank ranks[2];
    for (int i = 0; i < 2; i++) {
        ranks[i] = (Rank){ .place = { .rank = i, .n_ranks = 2, .address = "127.0.0.1", .job = i ? "a" : "b",
                                      .port = port, .deadline = 0.5 }, .body = nothing };
        pthread_create(&ranks[i].thread, NULL, run, &ranks[i]);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(ranks[i].thread, NULL);
        assert_int_equal(ranks[i].status, ERR_RANK);
    }
}

static void test_variables(void **state) {
    (void)state;
    StarPlace place;
    static const char *const names[] = { "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
                                         "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE" };
    for (int i = 0; i < COUNT_OF(names); i++) unsetenv(names[i]);
    assert_false(star_started());
    setenv("WORLD_SIZE", "4", 1);
    setenv("LOCAL_RANK", "1", 1);
    setenv("MASTER_ADDR", "host7", 1);
    assert_true(star_started());
    assert_int_equal(star_place(&place), ERR_ARGUMENT);
    assert_non_null(strstr(status_message(), "expected RANK between 0 and 3, found none"));
    setenv("RANK", "4", 1);
    assert_int_equal(star_place(&place), ERR_ARGUMENT);
    assert_non_null(strstr(status_message(), "found '4'"));
    setenv("RANK", "3", 1);
    setenv("MASTER_PORT", "29500", 1);
    assert_int_equal(star_place(&place), OK);
    assert_true(place.rank == 3 && place.n_ranks == 4 && place.local_rank == 1 && place.port == 29500);
    assert_string_equal(place.address, "host7");
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    assert_int_equal(star_place(&place), OK);
    assert_int_equal(place.port, 29501); // the store is at the first
    for (int i = 0; i < COUNT_OF(names); i++) unsetenv(names[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_going),
        cmocka_unit_test(test_not_coming),
        cmocka_unit_test(test_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
