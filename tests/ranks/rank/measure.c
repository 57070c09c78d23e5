// SPDX-License-Identifier: Apache-2.0
// Figures, not a test: what meeting and moving cost here. Rank 0 prints the medians of its times, and
// what it moves per second of its own processor time, which says more on a busy machine.
#include "tests/ranks/rank/rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int n) {
    qsort(times, (size_t)n, sizeof *times, by_value);
    return times[n / 2];
}

static double own_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void print(const Comm *comm, const char *what, int64_t part, double bytes, double time, double own) {
    if (comm->rank == 0)
        printf("%d ranks, %s, %lld KiB: %.1f us, %.2f GB/s a rank; %.2f GB per second of its own\n",
               comm->n_ranks, what, (long long)part >> 10, time * 1e6, bytes / time / 1e9, bytes / own / 1e9);
}

static Status meeting(Comm *comm, bool gathers) {
    enum { TIMES = 2000 };
    double times[TIMES], sum = 0;
    char from[32] = { 0 }, to[64 * 32];
    for (int i = 0; i < TIMES; i++) {
        double start = time_seconds();
        if (gathers) TRY(comm->api->gather(comm, GROUP_world, from, to, sizeof from));
        else TRY(comm->api->barrier(comm, GROUP_world));
        times[i] = time_seconds() - start;
        sum += times[i];
    }
    double mean = sum / TIMES;
    if (comm->rank == 0)
        printf("%d ranks, %s: median %.1f us, mean %.1f us\n", comm->n_ranks,
               gathers ? "gather of 32 bytes" : "barrier", median(times, TIMES) * 1e6, mean * 1e6);
    return OK;
}

// Bytes that a rank gets from others, per second, all at once.
static Status moving(Comm *comm, int64_t part, bool gathers) {
    enum { TIMES = 9 };
    int n = comm->n_ranks;
    double times[TIMES];
    char *from = malloc((size_t)(part * n)), *to = malloc((size_t)(part * n));
    Status status = OK;
    memset(from, 1, (size_t)(part * n));
    memset(to, 1, (size_t)(part * n));
    double own = own_time();
    for (int i = 0; i < TIMES; i++) {
        TRY_GOTO(comm->api->barrier(comm, GROUP_world), end);
        double start = time_seconds();
        if (gathers) TRY_GOTO(comm->api->gather(comm, GROUP_world, from, to, part), end);
        else TRY_GOTO(comm->api->exchange(comm, GROUP_world, from, to, part), end);
        times[i] = time_seconds() - start;
    }
    print(comm, gathers ? "gather" : "exchange", part, (double)(part * (n - 1)), median(times, TIMES),
          (own_time() - own) / TIMES);
end:
    free(from);
    free(to);
    return status;
}

static Status copying(Comm *comm, int64_t bytes) {
    enum { TIMES = 9 };
    int n = comm->n_ranks, next = (comm->rank + 1) % n;
    void **peers = calloc((size_t)n, sizeof *peers), *own;
    char *to = malloc((size_t)bytes);
    double times[TIMES];
    Status status = OK;
    TRY_GOTO(comm->api->window(comm, bytes, &own, peers), end);
    memset(own, 1, (size_t)bytes);
    memset(to, 1, (size_t)bytes);
    double used = own_time();
    for (int i = 0; peers[next] && i < TIMES; i++) {
        TRY_GOTO(comm->api->barrier(comm, GROUP_world), end);
        double start = time_seconds();
        memcpy(to, peers[next], (size_t)bytes);
        __asm__ volatile("" ::"r"(to) : "memory"); // somebody reads it
        times[i] = time_seconds() - start;
    }
    if (peers[next])
        print(comm, "from a peer's window", bytes, (double)bytes, median(times, TIMES),
              (own_time() - used) / TIMES);
    comm->api->release(comm, own, bytes);
end:
    free(peers);
    free(to);
    return status;
}

static Status sending(Comm *comm, int64_t bytes) {
    enum { TIMES = 9 };
    int n = comm->n_ranks, next = (comm->rank + 1) % n, before = (comm->rank + n - 1) % n;
    char *from = malloc((size_t)bytes), *to = malloc((size_t)bytes);
    double times[TIMES];
    void *ticket;
    Status status = OK;
    memset(from, 1, (size_t)bytes);
    memset(to, 1, (size_t)bytes);
    double own = own_time();
    for (int i = 0; i < TIMES; i++) {
        TRY_GOTO(comm->api->barrier(comm, GROUP_world), end);
        double start = time_seconds();
        TRY_GOTO(comm->api->send(comm, next, LANE_forward, from, bytes, &ticket), end);
        TRY_GOTO(comm->api->recv(comm, before, LANE_forward, to, bytes), end);
        TRY_GOTO(comm->api->sent(comm, ticket), end);
        times[i] = time_seconds() - start;
    }
    print(comm, "message around", bytes, (double)bytes, median(times, TIMES), (own_time() - own) / TIMES);
end:
    free(from);
    free(to);
    return status;
}

Status rank_measure(Comm *comm, char **arguments) {
    PlanMesh mesh = { .size = { 1, 1, comm->n_ranks } };
    (void)arguments;
    TRY(comm_mesh(comm, &mesh));
    TRY(meeting(comm, false));
    TRY(meeting(comm, true));
    for (int64_t part = 1 << 14; part <= 1 << 24; part <<= 5) {
        TRY(moving(comm, part, true));
        TRY(moving(comm, part, false));
    }
    TRY(copying(comm, 1 << 24));
    for (int64_t bytes = 1 << 10; bytes <= 1 << 25; bytes <<= 5) TRY(sending(comm, bytes));
    return OK;
}
