// SPDX-License-Identifier: Apache-2.0
// The executor over ranks: every rank is a thread, and runs its stage's plan.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "runtime/exec/exec.h"
#include "runtime/exec/link.h"
#include "tests/exec/own_cache.h"
#include "tests/plan/sample.h"

enum { MOST = 8, RUNS = 3 };

typedef struct Rank {
    pthread_t thread;
    Comm *comm;
    const Plan *plan;
    int run; // that fill is asked for
    float y[RUNS][4];
    char message[256]; // of a failure
} Rank;

static int32_t token(int rank, int run, int i) {
    return 1000 * rank + 100 * run + i;
}

static Status fill(void *user, Exec *exec, const PlanProgram *program, int microbatch) {
    const Rank *rank = user;
    (void)microbatch;
    int32_t *tokens = exec_input(exec, program, INPUT_tokens, 0);
    for (int i = 0; i < 4; i++) tokens[i] = token(rank->comm->rank, rank->run, i);
    return OK;
}

static Status run_all(Rank *rank) {
    Exec *exec;
    ExecOptions options = { .threads = 1, .comm = rank->comm, .poison = true };
    TRY(exec_create(rank->plan, &options, &exec));
    const PlanProgram *eval = plan_program(rank->plan, "eval");
    Status status = OK;
    for (rank->run = 0; rank->run < RUNS && status == OK; rank->run++) {
        status = exec_run(exec, eval, fill, rank);
        if (status == OK) memcpy(rank->y[rank->run], exec_buffer(exec, eval, 1), sizeof rank->y[0]);
    }
    exec_destroy(exec);
    return status;
}

static void *run_thread(void *user) {
    Rank *rank = user;
    if (run_all(rank) != OK) snprintf(rank->message, sizeof rank->message, "%s", status_message());
    comm_close(rank->comm);
    return NULL;
}

// Runs every rank of a mesh; each has its stage's plan.
static void run_plans(Rank *ranks, int pp, int dp, Plan *const *plans) {
    Comm *comms[MOST];
    comm_local(pp * dp, 60, comms);
    for (int i = 0; i < pp * dp; i++) {
        ranks[i] = (Rank){ .comm = comms[i], .plan = plans[i / dp] };
        if (pthread_create(&ranks[i].thread, NULL, run_thread, &ranks[i])) fail_msg("no thread");
    }
    for (int i = 0; i < pp * dp; i++) pthread_join(ranks[i].thread, NULL);
    for (int stage = 0; stage < pp; stage++) plan_destroy(plans[stage]);
    for (int i = 0; i < pp * dp; i++)
        if (ranks[i].message[0]) fail_msg("rank %d: %s", i, ranks[i].message);
}

static void run_ranks(Rank *ranks, int pp, int dp) {
    Plan *plans[MOST];
    for (int stage = 0; stage < pp; stage++) plans[stage] = sample_ranks(pp, dp, stage);
    run_plans(ranks, pp, dp, plans);
}

// Every rank gathers x, cuts the first n numbers, and gets number `rank` of those from everybody.
static void test_group(void **state) {
    (void)state;
    for (int n = 1; n <= 5; n++) {
        Rank ranks[MOST];
        run_ranks(ranks, 1, n);
        for (int r = 0; r < n; r++) {
            for (int run = 0; run < RUNS; run++) {
                float want[4] = { 0 };
                for (int j = 0; j < n; j++)
                    want[j % 4] += (float)token(r / 4, run, r % 4) * (float)(1 + j);
                assert_memory_equal(ranks[r].y[run], want, sizeof want);
            }
        }
    }
}

static void test_stages(void **state) {
    (void)state;
    for (int dp = 1; dp <= 2; dp++) {
        Rank ranks[MOST];
        run_ranks(ranks, 2, dp);
        for (int r = 0; r < dp; r++) {
            for (int i = 0; i < RUNS * 4; i++) {
                float sent = (float)token(r, i / 4, i % 4);
                assert_true(ranks[r].y[i / 4][i % 4] == 2 * sent);
                assert_true(ranks[dp + r].y[i / 4][i % 4] == sent);
            }
        }
    }
}

static char places[1024]; // of rank 0, one a line

static void note(Comm *comm, const char *where) {
    size_t n = strlen(places);
    if (comm->rank == 0 && where) snprintf(places + n, sizeof places - n, "%s\n", where);
}

static void *run_pack(void *user) {
    Rank *rank = user;
    Exec *exec;
    ExecOptions options = { .threads = 1, .comm = rank->comm };
    Status status = exec_create(rank->plan, &options, &exec);
    if (status == OK) {
        status = exec_run(exec, plan_program(rank->plan, "pack"), NULL, NULL);
        exec_destroy(exec);
    }
    if (status != OK) snprintf(rank->message, sizeof rank->message, "%s", status_message());
    comm_close(rank->comm);
    return NULL;
}

// What a report about a rank says of its place: the instruction by its name, and of which microbatch it is, if
// it is of one.
static void test_places(void **state) {
    (void)state;
    static const char *const wanted[2][2] = {
        { "\nprogram eval, step 0, forward of microbatch 0: instruction 0, real\n",
          "\nprogram eval, step 0, forward of microbatch 0: instruction 1, gather\n" },
        { "\nprogram pack, step 0, pack: instruction 0, twice\n", "compiling kernels\n" },
    };
    for (int which = 0; which < 2; which++) {
        Comm *comms[2];
        CommApi api[2];
        Rank ranks[2];
        Plan *plan = which ? sample_plan(4, 1) : sample_ranks(1, 2, 0);
        if (which) { // without its step, which ranks would have to share
            sample_pack(plan);
            memmove(plan->programs, plan->programs + 1, --plan->n_programs * sizeof *plan->programs);
            plan->region_bytes[REGION_totals] = 0;
            plan->mesh = (PlanMesh){ { 1, 2, 1 }, 0 };
        }
        comm_local(2, 60, comms);
        places[0] = 0;
        for (int i = 0; i < 2; i++) {
            api[i] = *comms[i]->api;
            api[i].at = note;
            comms[i]->api = &api[i];
            ranks[i] = (Rank){ .comm = comms[i], .plan = plan };
            if (pthread_create(&ranks[i].thread, NULL, which ? run_pack : run_thread, &ranks[i])) fail_msg("no thread");
        }
        for (int i = 0; i < 2; i++) pthread_join(ranks[i].thread, NULL);
        plan_destroy(plan);
        for (int i = 0; i < 2; i++)
            if (ranks[i].message[0]) fail_msg("rank %d: %s", i, ranks[i].message);
        if (!strstr(places, wanted[which][0]) || !strstr(places, wanted[which][1]))
            fail_msg("expected '%s' and '%s' in '%s'", wanted[which][0], wanted[which][1], places);
    }
}

// Messages of one lane keep their order; lanes do not wait for each other.
static void test_lanes(void **state) {
    (void)state;
    Comm *comms[2];
    comm_local(2, 60, comms);
    int sent[3] = { 1, 2, 3 }, got[3];
    static const PlanLane lanes[3] = { LANE_forward, LANE_forward, LANE_back };
    void *tickets[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            comms[0]->api->send(comms[0], 1, lanes[i], &sent[i], sizeof *sent, &tickets[i]), OK);
    static const int order[3] = { 2, 0, 1 };
    for (int i = 0; i < 3; i++)
        assert_int_equal(comms[1]->api->recv(comms[1], 0, lanes[order[i]], &got[i], sizeof *got), OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(got[i], sent[order[i]]);
        assert_int_equal(comms[0]->api->sent(comms[0], tickets[i]), OK);
    }
    comm_close(comms[0]);
    comm_close(comms[1]);
}

// Ranks that write and read each other's memory, row after row, through one address.
static void test_remote(void **state) {
    (void)state;
    for (int microbatches = 1; microbatches <= 3; microbatches++) {
        Rank ranks[MOST];
        Plan *plan = sample_remote(microbatches);
        run_plans(ranks, 1, 2, &plan);
        for (int i = 0; i < RUNS * 4; i++) {
            float x0 = (float)token(0, i / 4, i % 4), x1 = (float)token(1, i / 4, i % 4);
            for (int m = 0; m < 2; m++) {
                float put = (float)(1 + m), want = 5 * (x0 + 10 * x1) + x0 * put + x1 * put;
                assert_true(ranks[m].y[i / 4][i % 4] == want);
            }
        }
    }
}

// Two ranks that meet in a counted repeat: as often as the one that wants it most, or never.
static void test_rounds(void **state) {
    (void)state;
    for (int microbatches = 1; microbatches <= 3; microbatches++) {
        Rank ranks[MOST];
        Plan *plan = sample_rounds(microbatches);
        run_plans(ranks, 1, 2, &plan);
        for (int i = 0; i < RUNS * 4; i++) {
            float x0 = (float)token(0, i / 4, i % 4), x1 = (float)token(1, i / 4, i % 4);
            for (int m = 0; m < 2; m++) // rank 1 asks for as many trips as runs have been
                assert_true(ranks[m].y[i / 4][i % 4] == (float)(i / 4) * (x0 + x1) * (float)(1 + m));
        }
    }
}

// A plan that allows fewer trips than are asked for: both ranks say so, and none waits for the other.
static void test_too_many_rounds(void **state) {
    (void)state;
    Rank ranks[MOST];
    Plan *plan = sample_rounds(1);
    Comm *comms[MOST];
    plan->programs[0].repeats[0].trip = 1;
    comm_local(2, 60, comms);
    for (int i = 0; i < 2; i++) {
        ranks[i] = (Rank){ .comm = comms[i], .plan = plan };
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, run_thread, &ranks[i]), 0);
    }
    for (int i = 0; i < 2; i++) pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < 2; i++)
        assert_non_null(strstr(ranks[i].message, "\"rounds\" asks for 2 trips, expected at most 1"));
    plan_destroy(plan);
}

// A plan of more ranks than were started, and one of another stage.
static void test_refused(void **state) {
    (void)state;
    Plan *plan = sample_ranks(1, 3, 0);
    Exec *exec;
    ExecOptions options = { .threads = 1 };
    assert_int_equal(exec_create(plan, &options, &exec), ERR_ARGUMENT);
    assert_non_null(strstr(status_message(), "the layout has 3 ranks, 1 was started"));
    assert_non_null(strstr(status_message(), "mpirun -n 3"));
    plan_destroy(plan);
}

// What fits in the burst costs nothing; the rest waits for the rate; a pause fills up to the burst.
static void test_link(void **state) {
    (void)state;
    Link link = link_make(1e6, 10);
    double burst = link.burst;
    assert_true(burst > 0 && link_take(&link, 10, burst) == 0);
    assert_true(link_take(&link, 10, 5e5) == 0.5);
    assert_true(link_take(&link, 10.5, 2.5e5) == 0.25); // waited in between
    assert_true(link_take(&link, 10.5, 2.5e5) == 0.5);  // did not
    assert_true(link_take(&link, 1000, 1e6 + burst) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_remote),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_too_many_rounds),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("exec.cross", tests, own_cache_make, own_cache_remove);
}
