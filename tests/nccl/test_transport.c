// SPDX-License-Identifier: Apache-2.0
// The transport of GPUs over the stand-in: plans of many ranks on virtual GPUs, recorded or not, give what
// they give on CPUs; ranks that are gone and calls that differ end in errors with names.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/exec/exec.h"
#include "tests/exec/cuda.h"
#include "tests/exec/own_cache.h"
#include "tests/nccl/ranks.h"

enum { RUNS = 3 };

static Comm *open_comm(Rank *r, double deadline) {
    Comm *comm;
    CommNccl options = { .rank = r->rank, .n_ranks = r->n, .is_virtual = true, .deadline = deadline,
                         .share = rank_share, .user = r };
    GOOD(comm_nccl(&options, &comm));
    return comm;
}

static Comm *open_mesh(Rank *r, double deadline, PlanMesh mesh) {
    Comm *comm = open_comm(r, deadline);
    comm->device = r->device;
    GOOD(comm_mesh(comm, &mesh));
    return comm;
}

/* Plans ---------------------------------------------------------------------------------------- */

static int32_t token(int rank, int run, int i) {
    return 1000 * rank + 100 * run + i;
}

typedef struct Run {
    int rank, run;
} Run;

static Status fill(void *user, Exec *exec, const PlanProgram *program, int microbatch) {
    const Run *run = user;
    (void)microbatch;
    int32_t *tokens = exec_input(exec, program, INPUT_tokens, 0);
    for (int i = 0; i < 4; i++) tokens[i] = token(run->rank, run->run, i);
    return OK;
}

static void run_plan(Rank *r, Plan *plan, bool graph, float y[RUNS][4]) {
    Comm *comm = open_comm(r, 60);
    sample_cuda(plan, "cuda:sm_80");
    ExecOptions options = { .device = "vgpu:sm_80", .threads = 1, .comm = comm, .graph = graph };
    Exec *exec;
    GOOD(exec_create(plan, &options, &exec));
    const PlanProgram *eval = plan_program(plan, "eval");
    for (int run = 0; run < RUNS; run++) {
        GOOD(exec_run(exec, eval, fill, &(Run){ r->rank, run }));
        memcpy(y[run], exec_buffer(exec, eval, 1), sizeof y[run]);
    }
    CHECK(!graph || exec_graph_nodes(exec, eval) > 2);
    exec_destroy(exec);
    comm_close(comm);
    plan_destroy(plan);
    FINE(r, r->nccl->destroy(r->comm));
}

static void run_group(Rank *r, bool graph) {
    float y[RUNS][4];
    run_plan(r, sample_ranks(1, r->n, 0), graph, y);
    for (int run = 0; run < RUNS; run++) {
        float want[4] = { 0 };
        for (int j = 0; j < r->n; j++)
            want[j % 4] += (float)token(r->rank / 4, run, r->rank % 4) * (float)(1 + j);
        CHECK(!memcmp(y[run], want, sizeof want));
    }
}

// Its gather and its exchange begin and are waited for.
static void run_halves(Rank *r, bool graph) {
    float y[RUNS][4];
    Plan *plan = sample_ranks(1, r->n, 0);
    sample_begun(plan, plan_program(plan, "eval"));
    run_plan(r, plan, graph, y);
    for (int run = 0; run < RUNS; run++) {
        float want[4] = { 0 };
        for (int j = 0; j < r->n; j++)
            want[j % 4] += (float)token(r->rank / 4, run, r->rank % 4) * (float)(1 + j);
        CHECK(!memcmp(y[run], want, sizeof want));
    }
}

static void run_stages(Rank *r, bool graph) {
    float y[RUNS][4];
    int dp = r->n / 2, stage = r->rank / dp;
    run_plan(r, sample_ranks(2, dp, stage), graph, y);
    for (int i = 0; i < RUNS * 4; i++)
        CHECK(y[i / 4][i % 4] == (float)(2 - stage) * (float)token(r->rank % dp, i / 4, i % 4));
}

static void run_remote(Rank *r, bool graph) {
    float y[RUNS][4];
    run_plan(r, sample_remote(2), graph, y);
    for (int i = 0; i < RUNS * 4; i++) {
        float x0 = (float)token(0, i / 4, i % 4), x1 = (float)token(1, i / 4, i % 4);
        float put = (float)(1 + r->rank);
        CHECK(y[i / 4][i % 4] == 5 * (x0 + 10 * x1) + x0 * put + x1 * put);
    }
}

#define PLAN_TEST(name)                                                                            \
    static void name##_walked(Rank *r) { run_##name(r, false); }                                   \
    static void name##_recorded(Rank *r) { run_##name(r, true); }
PLAN_TEST(group)
PLAN_TEST(halves)
PLAN_TEST(stages)
PLAN_TEST(remote)

static void test_group(void **state) {
    (void)state;
    if (!has_nvrtc()) skip();
    run_ranks(1, false, group_walked);
    run_ranks(3, false, group_walked);
    run_ranks(3, false, group_recorded);
    run_ranks(2, true, group_walked);
}

static void test_halves(void **state) {
    (void)state;
    if (!has_nvrtc()) skip();
    run_ranks(3, false, halves_walked);
    run_ranks(3, false, halves_recorded);
    run_ranks(2, true, halves_walked);
}

static void test_stages(void **state) {
    (void)state;
    if (!has_nvrtc()) skip();
    run_ranks(2, false, stages_walked);
    run_ranks(4, false, stages_walked);
    run_ranks(2, false, stages_recorded);
    run_ranks(2, true, stages_recorded);
}

static void test_remote(void **state) {
    (void)state;
    if (!has_nvrtc()) skip();
    run_ranks(2, false, remote_walked);
    run_ranks(2, false, remote_recorded);
    run_ranks(2, true, remote_walked);
}

/* The interface -------------------------------------------------------------------------------- */

// Every group of a mesh, with gathers, exchanges and barriers.
static void groups_of(Rank *r, PlanMesh mesh) {
    Comm *comm = open_mesh(r, 60, mesh);
    for (int g = 0; g < N_GROUPS; g++) {
        PlanGroup group = (PlanGroup)g;
        int n = comm_members(comm, group), own = comm_member(comm, group);
        void *from = numbers(r, n, 10 * r->rank), *to = empty(r, n), *all = empty(r, n);
        GOOD(comm->api->gather(comm, group, from, all, 4));
        GOOD(comm->api->barrier(comm, group));
        GOOD(comm->api->exchange(comm, group, from, to, 4));
        GOOD(comm->api->settle(comm));
        for (int i = 0; i < n; i++) {
            int rank = comm_world_rank(comm, group, i);
            expect_numbers(r, (char *)all + 4 * i, 1, 10 * rank);
            expect_numbers(r, (char *)to + 4 * i, 1, 10 * rank + own);
        }
    }
    comm_close(comm);
    FINE(r, r->nccl->destroy(r->comm));
}

static void groups(Rank *r) { groups_of(r, (PlanMesh){ { 1, 2, 2 }, 0 }); }

// Two nodes of two, and the two rails between them.
static void rails(Rank *r) { groups_of(r, (PlanMesh){ { 1, 1, 4 }, 0, 2 }); }

// Who gives more than the other member of its rail takes.
static void rail_differs(Rank *r) {
    Comm *comm = open_mesh(r, 60, (PlanMesh){ { 1, 1, 4 }, 0, 2 });
    void *from = numbers(r, 4, 0), *to = empty(r, 4);
    Status status = comm->api->exchange(comm, GROUP_rail, from, to, r->rank == 1 ? 8 : 4);
    if (status == OK) status = comm->api->settle(comm);
    CHECK(r->rank % 2 ? status == ERR_INTERNAL && strstr(status_message(), "8 int8") : status == OK || status == ERR_RANK);
    comm_close(comm);
}

static void windows(Rank *r) {
    Comm *comm = open_mesh(r, 60, (PlanMesh){ { 1, 1, 3 }, 0 });
    void *own[2], *peers[2][3];
    for (int w = 0; w < 2; w++) {
        GOOD(comm->api->window(comm, 5000, &own[w], peers[w]));
        expect_numbers(r, own[w], 1, 0);
        CHECK(peers[w][r->rank] == own[w]);
    }
    GOOD(comm->api->barrier(comm, GROUP_dp));
    GOOD(comm->api->settle(comm));
    for (int i = 0; i < 3; i++)
        GOOD(r->device->api->copy_in(r->device, (char *)peers[1][i] + 4 * r->rank, &(int){ 5 + r->rank }, 4));
    GOOD(comm->api->barrier(comm, GROUP_dp));
    GOOD(comm->api->settle(comm));
    expect_numbers(r, own[1], 3, 5);
    expect_numbers(r, own[0], 1, 0);
    comm->api->release(comm, own[0], 5000);
    comm->api->release(comm, own[1], 5000);
    comm_close(comm);
    FINE(r, r->nccl->destroy(r->comm));
}

static void gone(Rank *r) {
    Comm *comm = open_mesh(r, 3, (PlanMesh){ { 1, 1, 3 }, 0 });
    void *from = numbers(r, 1, 0), *to = empty(r, 3);
    comm->api->at(comm, "step 3, instr 7");
    if (r->rank == 1) _exit(0);
    Status status = comm->api->gather(comm, GROUP_ep, from, to, 4);
    if (status == OK) status = comm->api->settle(comm);
    CHECK(status == ERR_RANK);
    CHECK(strstr(status_message(), "gather over ep") && strstr(status_message(), "step 3, instr 7"));
    CHECK(comm->api->barrier(comm, GROUP_ep) == ERR_RANK); // and every call after it
    comm_close(comm);
}

// Nobody is gone, but one does not come.
static void wedged(Rank *r) {
    Comm *comm = open_mesh(r, 1, (PlanMesh){ { 1, 1, 2 }, 0 });
    void *from = numbers(r, 1, 0), *to = empty(r, 2);
    if (r->rank == 1) {
        sleep(3);
        comm_close(comm);
        return;
    }
    GOOD(comm->api->gather(comm, GROUP_ep, from, to, 4));
    CHECK(comm->api->settle(comm) == ERR_RANK);
    CHECK(strstr(status_message(), "rank 0 has waited 1 s for other ranks; its last call: gather over ep"));
    comm_close(comm);
}

static Status told(void *user) {
    (void)user;
    return status_fail(ERR_RANK, "somebody else knows");
}

static void watched(Rank *r) {
    CommNccl options = { .rank = r->rank, .n_ranks = 2, .is_virtual = true, .deadline = 60,
                         .share = rank_share, .watch = r->rank ? NULL : told, .user = r };
    Comm *comm;
    PlanMesh mesh = { { 1, 1, 2 }, 0 };
    GOOD(comm_nccl(&options, &comm));
    comm->device = r->device;
    GOOD(comm_mesh(comm, &mesh));
    void *from = numbers(r, 1, 0), *to = empty(r, 2);
    if (r->rank == 0) {
        GOOD(comm->api->gather(comm, GROUP_ep, from, to, 4));
        CHECK(comm->api->settle(comm) == ERR_RANK);
        CHECK(!strcmp(status_message(), "somebody else knows"));
    } else {
        sleep(1);
    }
    comm_close(comm);
}

static void differs(Rank *r) {
    Comm *comm = open_mesh(r, 60, (PlanMesh){ { 1, 1, 2 }, 0 });
    void *from = numbers(r, 2, 0), *to = empty(r, 4);
    Status status = comm->api->gather(comm, GROUP_ep, from, to, r->rank ? 4 : 8);
    if (status == OK) status = comm->api->settle(comm);
    CHECK(status == ERR_INTERNAL);
    CHECK(strstr(status_message(), "rank 0: ncclAllGather of 8 int8"));
    CHECK(strstr(status_message(), "rank 1: ncclAllGather of 4 int8"));
    comm_close(comm);
}

#define TEST(body, n)                                                                              \
    static void test_##body(void **state) {                                                        \
        (void)state;                                                                               \
        run_ranks(n, false, body);                                                                 \
    }
TEST(groups, 4)
TEST(rails, 4)
TEST(rail_differs, 4)
TEST(windows, 3)
TEST(gone, 3)
TEST(wedged, 2)
TEST(watched, 2)
TEST(differs, 2)

// What is missing is named, and where it was looked for.
static void missing(Rank *r) {
    (void)r;
    const Nccl *nccl;
    setenv("MOEC_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
    CHECK(nccl_open(false, &nccl) == ERR_INPUT);
    CHECK(strstr(status_message(), "NCCL") && strstr(status_message(), "/nowhere/libnccl.so.2") &&
          strstr(status_message(), "MOEC_NCCL_LIBRARY"));
    FINE(r, r->nccl->destroy(r->comm));
}
TEST(missing, 1)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group),   cmocka_unit_test(test_stages),  cmocka_unit_test(test_remote),
        cmocka_unit_test(test_groups),  cmocka_unit_test(test_windows), cmocka_unit_test(test_gone),
        cmocka_unit_test(test_wedged),  cmocka_unit_test(test_watched), cmocka_unit_test(test_differs),
        cmocka_unit_test(test_missing), cmocka_unit_test(test_halves),  cmocka_unit_test(test_rails),
        cmocka_unit_test(test_rail_differs),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, own_cache_make, own_cache_remove);
}
