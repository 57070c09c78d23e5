// SPDX-License-Identifier: Apache-2.0
// Whom a wait is about: what ranks have written on the board, and the rank that is named for it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "runtime/comm/board.h"

enum { N = 4 }; // mesh 1 x 2 x 2: ep {0, 1} {2, 3}, edp {0, 2} {1, 3}

// A rank's entry: state, what it waits in, meetings it has come to by group, and how long ago it moved.
typedef struct Entry {
    RankState state;
    int group, peer, entered[N_GROUPS], quiet; // seconds
} Entry;

typedef struct Case {
    const char *about;
    Entry ranks[N];
    int looks;
    const char *says; // NULL: nothing yet
} Case;

#define RUNS(...) { RANK_RUNS, -1, -1, { __VA_ARGS__ }, 20 }
#define WAITS(group, ...) { RANK_WAITS, group, -1, { __VA_ARGS__ }, 20 }
#define ASKS(peer) { RANK_WAITS, -1, peer, { 0 }, 20 }
#define EP(n) [GROUP_ep] = n
#define DP(n) [GROUP_dp] = n
#define WORLD(n) [GROUP_world] = n

static const Case cases[] = {
    { "one computes", { RUNS(0), WAITS(GROUP_ep, EP(1)), WAITS(GROUP_dp, DP(1)), RUNS(0) }, 1,
      "rank 0 (pid 0 on ) has come no further for" },
    { "one computes and moves",
      { { RANK_RUNS, -1, -1, { 0 }, 1 }, WAITS(GROUP_ep, EP(1)), RUNS(0), RUNS(0) }, 1, NULL },
    { "through another's wait",
      { RUNS(0), WAITS(GROUP_ep, EP(1)), WAITS(GROUP_ep, EP(1)), WAITS(GROUP_dp, DP(1)) }, 3,
      "rank 0 (pid 0 on ) has come no further for" },
    { "another call: all wait for each other",
      { WAITS(GROUP_world, WORLD(1)), WAITS(GROUP_ep, EP(1)), WAITS(GROUP_dp, DP(1)), WAITS(GROUP_dp, DP(1)) }, 2,
      "rank 0 (pid 0 on ) waits for ranks that wait for it, for" },
    // All have come to where it is, so nothing holds it: the others are a meeting further.
    { "within its call, not on a core",
      { WAITS(GROUP_ep, EP(2)), WAITS(GROUP_ep, EP(1)), RUNS(0), RUNS(0) }, 0,
      "rank 1 (pid 0 on ) has come no further for" },
    { "within its call, seen from afar",
      { WAITS(GROUP_dp, EP(2), DP(3)), WAITS(GROUP_dp, EP(2), DP(3)), WAITS(GROUP_dp, EP(2), DP(3)),
        WAITS(GROUP_ep, EP(1), DP(2)) },
      0, "rank 3 (pid 0 on ) has come no further for" },
    { "a message", { ASKS(3), RUNS(0), RUNS(0), ASKS(2) }, 0, "rank 2 (pid 0 on ) has come no further for" },
    { "messages in a circle", { ASKS(1), ASKS(0), RUNS(0), RUNS(0) }, 1,
      "rank 0 (pid 0 on ) waits for ranks that wait for it, for" },
    { "one has ended", { WAITS(GROUP_ep, EP(1)), { RANK_ENDED, -1, -1, { 0 }, 2 }, RUNS(0), RUNS(0) }, 0,
      "rank 1 (pid 0 on ) has ended" },
    { "one has just ended",
      { { RANK_WAITS, GROUP_ep, -1, { EP(1) }, 0 }, { RANK_ENDED, -1, -1, { 0 }, 0 }, RUNS(0), RUNS(0) }, 0, NULL },
};

static void named(void **state) {
    (void)state;
    for (int c = 0; c < COUNT_OF(cases); c++) {
        const Case *it = &cases[c];
        Board *board = memory_alloc((size_t)board_bytes(N));
        Comm *comm = comm_self();
        comm->n_ranks = board->n_ranks = N;
        comm->rank = it->looks;
        comm->mesh = (PlanMesh){ { 1, 2, 2 }, 0 };
        comm->coord[AXIS_edp] = it->looks / 2, comm->coord[AXIS_ep] = it->looks % 2;
        for (int r = 0; r < N; r++) {
            BoardEntry *e = &board->entries[r];
            const Entry *entry = &it->ranks[r];
            e->group = entry->group;
            e->peer = entry->peer;
            e->state = entry->state;
            e->call = CALL_gather;
            for (int g = 0; g < N_GROUPS; g++) e->entered[g] = (uint32_t)entry->entered[g];
            e->moved = board_now() - 1000 * entry->quiet;
        }
        bool vain = board_in_vain(board, comm, 10, NULL);
        if (vain != (it->says != NULL) || (vain && !strstr(board->report, it->says)))
            fail_msg("%s: expected \"%s\", found \"%s\"", it->about, it->says ? it->says : "", board->report);
        comm_close(comm);
        memory_free(board);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(named) };
    return cmocka_run_group_tests_name("ranks.board", tests, NULL, NULL);
}
