// SPDX-License-Identifier: Apache-2.0
// Steps as a training run has them, in which one rank comes to grief: steps FOLDER VICTIM HOW.
//
//   kill, stop    by signal, in the middle of a step
//   loop          for ever, without a place
//   exit          the process ends without a word
//   end           closes while the others go on
//   fail          an error of its own
//   apart         it waits in another group's call than the others
//   slow          long work with progress: nothing is wrong, all end well
//   none
#include "tests/ranks/rank/rank.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 30, FATEFUL = 20, PART = 5000 };

static void nap(int milliseconds) {
    struct timespec time = { milliseconds / 1000, milliseconds % 1000 * 1000000L };
    nanosleep(&time, NULL);
}

// The launcher's first signal only asks: what the others say is still to come.
static void on_signal(int number) {
    (void)number;
}

// Of three times the deadline.
static Status long_work(Comm *comm) {
    const char *deadline = getenv("TEST_DEADLINE");
    int turns = (int)((deadline ? atof(deadline) : 8) * 30);
    for (int i = 0; i < turns; i++) {
        char where[64];
        snprintf(where, sizeof where, "compiling, %d of %d", i, turns);
        comm_at(comm, where);
        nap(100);
    }
    return OK;
}

static Status grief(Comm *comm, const char *how) {
    if (strcmp(how, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(how, "stop") == 0) kill(getpid(), SIGSTOP);
    if (strcmp(how, "exit") == 0) _exit(0);
    if (strcmp(how, "fail") == 0) return status_fail(ERR_NUMERIC, "the loss is not finite");
    if (strcmp(how, "apart") == 0) return comm->api->barrier(comm, GROUP_world);
    if (strcmp(how, "slow") == 0) return long_work(comm);
    for (volatile bool forever = strcmp(how, "loop") == 0; forever;) continue;
    return OK;
}

static Status step(Comm *comm, int number, char *from, char *to) {
    char where[64];
    int n = comm->n_ranks, next = (comm->rank + 1) % n, before = (comm->rank + n - 1) % n;
    void *ticket;
    snprintf(where, sizeof where, "step %d, instruction 7: exchange dp", number);
    comm_at(comm, where);
    TRY(comm->api->gather(comm, GROUP_ep, from, to, PART));
    TRY(comm->api->exchange(comm, GROUP_dp, from, to, PART));
    nap(1);
    TRY(comm->api->send(comm, next, LANE_forward, from, PART, &ticket));
    TRY(comm->api->recv(comm, before, LANE_forward, to, PART));
    TRY(comm->api->sent(comm, ticket));
    return comm->api->barrier(comm, GROUP_dp);
}

Status rank_steps(Comm *comm, char **arguments) {
    const char *folder = arguments[0], *how = arguments[2];
    int victim = atoi(arguments[1]);
    PlanMesh mesh = { .size = { 1, comm->n_ranks / 2, 2 } };
    if (comm->n_ranks % 2) mesh = (PlanMesh){ .size = { 1, 1, comm->n_ranks } };
    struct sigaction action = { .sa_handler = on_signal };
    sigaction(SIGTERM, &action, NULL);
    TRY(comm_mesh(comm, &mesh));
    TRY(comm_keep(comm, folder));
    char *from = calloc((size_t)comm->n_ranks, PART), *to = calloc((size_t)comm->n_ranks, PART);
    Status status = OK;
    for (int s = 0; s < STEPS && status == OK; s++) {
        if (comm->rank == victim && s == FATEFUL) {
            comm_at(comm, "step 20, instruction 3: k17");
            if (strcmp(how, "end") == 0) break;
            status = grief(comm, how);
        }
        if (status == OK) status = step(comm, s, from, to);
    }
    free(from);
    free(to);
    return status;
}
