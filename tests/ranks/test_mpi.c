// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes, started by mpirun, on one node and on several (which then are this machine,
// divided); and what the others say when a rank comes to grief.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/base/base.h"

static char folder[64], *output;
static Arena *arena;

static int set_up(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/moec-ranks-XXXXXX");
    arena = arena_create();
    return !mkdtemp(folder);
}

static int tear_down(void **state) {
    (void)state;
    char *command = arena_printf(arena, "rm -r %s", folder);
    int status = system(command);
    arena_destroy(arena);
    return status;
}

static char *read_file(const char *name) {
    char *bytes = NULL;
    size_t n;
    Status status = file_read(arena_printf(arena, "%s/%s", folder, name), arena, &bytes, &n);
    return status == OK ? bytes : NULL;
}

// n ranks of moec-rank; `output` is what they printed. The exit status. Three minutes are more than any
// of this takes: a hang.
static int mpirun(int n, int node_ranks, double deadline, const char *what) {
    setenv("TEST_DEADLINE", arena_printf(arena, "%g", deadline), 1);
    setenv("TEST_NODE_RANKS", arena_printf(arena, "%d", node_ranks), 1);
    char *command = arena_printf(arena, "timeout 180 %s/tests/mpirun.sh %s %d %s/tests/moec-rank %s "
                                 "> %s/output 2>&1", MOEC_SOURCE_DIR, MOEC_BINARY_DIR, n,
                                 MOEC_BINARY_DIR, what, folder);
    int status = system(command);
    output = read_file("output");
    assert_non_null(output);
    if (WEXITSTATUS(status) == 77) skip();
    return WEXITSTATUS(status);
}

static void expect_text(const char *text, const char *part) {
    assert_non_null(text);
    if (!strstr(text, part)) fail_msg("expected \"%s\" in:\n%s", part, text);
}

/* What is moved -------------------------------------------------------------------------------- */

static void all_meshes(int n, int node_ranks) {
    if (mpirun(n, node_ranks, 30, "all") != 0) fail_msg("%s", output);
    int nodes = node_ranks ? (n + node_ranks - 1) / node_ranks : 1;
    expect_text(output, arena_printf(arena, "meshes of %d ranks, nodes: %d", n, nodes));
}

static void two_ranks(void **state) { (void)state; all_meshes(2, 0); }
static void three_ranks(void **state) { (void)state; all_meshes(3, 0); }
static void four_ranks(void **state) { (void)state; all_meshes(4, 0); }
static void two_nodes(void **state) { (void)state; all_meshes(4, 2); }
static void uneven_nodes(void **state) { (void)state; all_meshes(4, 3); }
static void single_nodes(void **state) { (void)state; all_meshes(3, 1); }

/* Grief ---------------------------------------------------------------------------------------- */

// Of four ranks, number 2 at a place of its own. The report says who, how, and where everyone was.
static void grief(const char *how, const char *sign, int node_ranks) {
    int status = mpirun(4, node_ranks, 2, arena_printf(arena, "steps %s 2 %s", folder, how));
    if (status == 0) fail_msg("all is well:\n%s", output);
    char *report = read_file("failure.txt");
    expect_text(report, "rank 2 (pid ");
    expect_text(report, sign);
    expect_text(report, "; its last place: step 20, instruction 3: k17");
    expect_text(report, "rank 3, pid ");
    expect_text(output, "3: rank 2 (pid ");
    expect_text(read_file(node_ranks ? "ranks.1.board" : "ranks.board"), "at step 20, instruction 3: k17");
}

static void killed(void **state) {
    (void)state;
    grief("kill", "is gone", 0);
    // Alone, or by then with rank 0.
    const char *failure = read_file("failure.txt");
    if (!strstr(failure, "ranks 0, 3 wait in gather ep")) expect_text(failure, "rank 3 waits in gather ep");
}

static void stopped(void **state) { (void)state; grief("stop", "does not run", 0); }
static void looping(void **state) { (void)state; grief("loop", "has come no further for", 0); }
static void gone(void **state) { (void)state; grief("exit", "is gone", 0); }
static void ended(void **state) { (void)state; grief("end", "has ended", 0); }
static void failed(void **state) { (void)state; grief("fail", "failed: the loss is not finite", 0); }
static void looping_elsewhere(void **state) { (void)state; grief("loop", "has come no further for", 2); }
static void failed_elsewhere(void **state) { (void)state; grief("fail", "failed: the loss is not finite", 2); }

// Ranks that wait in different calls are found out, too.
static void apart(void **state) {
    (void)state;
    assert_int_not_equal(mpirun(4, 0, 2, arena_printf(arena, "steps %s 2 apart", folder)), 0);
    char *report = read_file("failure.txt");
    expect_text(report, "waits for ranks that wait for it");
    expect_text(report, "rank 2 waits in barrier world");
    expect_text(report, "rank 3 waits in gather ep");
}

// Longer than the deadline, but with progress.
static void slow(void **state) {
    (void)state;
    for (int node_ranks = 0; node_ranks <= 2; node_ranks += 2) {
        if (mpirun(4, node_ranks, 1.5, arena_printf(arena, "steps %s 2 slow", folder)) != 0)
            fail_msg("%s", output);
        assert_null(read_file("failure.txt"));
    }
}

// A new run in the folder begins without the report of the last.
static void report_goes(void **state) {
    (void)state;
    grief("exit", "is gone", 0);
    assert_int_equal(mpirun(4, 0, 20, arena_printf(arena, "steps %s 2 none", folder)), 0);
    assert_null(read_file("failure.txt"));
}

/* Launchers ------------------------------------------------------------------------------------ */

static int launched(const char *environment) {
    char *command = arena_printf(arena, "env -i PATH=\"$PATH\" %s %s/tests/moec-rank all > %s/output 2>&1",
                                 environment, MOEC_BINARY_DIR, folder);
    int status = system(command);
    output = read_file("output");
    return WEXITSTATUS(status);
}

static void launchers(void **state) {
    (void)state;
    assert_int_equal(launched(""), 0);
    expect_text(output, "1 meshes of 1 ranks");
    assert_int_equal(launched("OMPI_COMM_WORLD_SIZE=1"), 0);
    assert_int_equal(launched("SLURM_STEP_NUM_TASKS=1"), 0);
    assert_int_equal(launched("WORLD_SIZE=4 LOCAL_RANK=0 MASTER_ADDR=localhost"), 2);
    expect_text(output, "expected RANK between 0 and 3, found none\n  hint: torchrun sets it");
    assert_int_equal(launched("SLURM_STEP_NUM_TASKS=4"), 2);
    expect_text(output, "hint: srun --mpi=pmix -n 4");
}

static void no_module(void **state) {
    (void)state;
    assert_int_equal(launched("OMPI_COMM_WORLD_SIZE=4 MOEC_COMM_LIBRARY=/nowhere/moec-mpi.so"), 2);
    expect_text(output, "mpirun (Open MPI) has started 4 ranks; the module for MPI was not found");
    expect_text(output, "hint: install Open MPI");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(two_ranks), TEST(three_ranks), TEST(four_ranks), TEST(two_nodes), TEST(uneven_nodes),
        TEST(single_nodes), TEST(killed), TEST(stopped), TEST(looping), TEST(gone), TEST(ended),
        TEST(failed), TEST(looping_elsewhere), TEST(failed_elsewhere), TEST(apart), TEST(slow),
        TEST(report_goes), TEST(launchers), TEST(no_module),
    };
    return cmocka_run_group_tests_name("ranks.mpi", tests, NULL, NULL);
}
