// SPDX-License-Identifier: Apache-2.0
// What lies between ranks is measured on several nodes too, where a rank may not see its neighbour's memory.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "compiler/driver/measure.h"
#include "runtime/comm/comm.h"

enum { MOST_RANKS = 4 };

typedef struct Ranked {
    Comm *comm;
    CostLink link;
    Status status;
    char message[256];
} Ranked;

static Status go_on(void *user, const char *what) {
    (void)user;
    (void)what;
    return OK;
}

static void *measure(void *user) {
    Ranked *r = user;
    MeasureOptions options = { .seconds = 0.01, .pulse = go_on };
    r->status = comm_mesh(r->comm, &(PlanMesh){ .size = { 1, 1, r->comm->n_ranks } });
    if (r->status == OK) r->status = measure_link(r->comm, &options, &r->link);
    snprintf(r->message, sizeof r->message, "%s", r->status == OK ? "" : status_message());
    comm_close(r->comm);
    return NULL;
}

static void nodes(void **state) {
    (void)state;
    static const struct { int ranks, node; } worlds[] = { { 2, 0 }, { 3, 2 }, { 2, 1 }, { 4, 2 } };
    for (int w = 0; w < COUNT_OF(worlds); w++) {
        int n = worlds[w].ranks, node = worlds[w].node ? worlds[w].node : n;
        Comm *comms[MOST_RANKS];
        Ranked ranks[MOST_RANKS] = { 0 };
        pthread_t threads[MOST_RANKS];
        comm_local_nodes(n, worlds[w].node, 20, comms);
        for (int i = 0; i < n; i++) {
            ranks[i].comm = comms[i];
            assert_int_equal(pthread_create(&threads[i], NULL, measure, &ranks[i]), 0);
        }
        for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < n; i++) {
            const CostLink *link = &ranks[i].link;
            if (ranks[i].status != OK) fail_msg("%d ranks on nodes of %d: rank %d: %s", n, node, i, ranks[i].message);
            assert_int_equal(link->size, n);
            assert_true(link->bytes_per_s > 0 && link->latency_s > 0);
            bool sees = i / node == (i + 1) % n / node;
            for (int back = 0; back < 2; back++) assert_true((link->row_bytes_per_s[back] > 0) == sees);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(nodes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
