// SPDX-License-Identifier: Apache-2.0
// One rank of a test, started by a launcher: rank WHAT [argument...]. Prints what goes wrong and exits
// with the status's number.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ranks/expect.h"
#include "tests/ranks/rank/rank.h"

// all: every mesh of this number of ranks.
static Status all(Comm *comm, char **arguments) {
    (void)arguments;
    PlanMesh meshes[64];
    int n = expect_meshes(comm->n_ranks, meshes, COUNT_OF(meshes));
    for (int i = 0; i < n; i++) TRY(expect_all(comm, &meshes[i]));
    if (comm->rank == 0)
        printf("%d meshes of %d ranks, nodes: %d\n", n, comm->n_ranks, comm_nodes(comm, GROUP_world));
    return OK;
}

typedef Status (*Body)(Comm *comm, char **arguments);

static const struct { const char *name; Body body; } bodies[] = {
    { "all", all }, { "measure", rank_measure }, { "steps", rank_steps },
};

static Body find(const char *name) {
    for (int i = 0; i < COUNT_OF(bodies); i++)
        if (strcmp(bodies[i].name, name) == 0) return bodies[i].body;
    fprintf(stderr, "no test is named %s\n", name);
    exit(2);
}

int main(int n, char **arguments) {
    if (n < 2) return 2;
    Body body = find(arguments[1]);
    const char *node = getenv("TEST_NODE_RANKS"), *deadline = getenv("TEST_DEADLINE");
    CommOptions options = { .node_ranks = node ? atoi(node) : 0, .deadline = deadline ? atof(deadline) : 0 };
    Comm *comm = NULL;
    Status status = comm_open(&options, &comm);
    if (status == OK) status = body(comm, arguments + 2);
    if (status != OK) {
        fprintf(stderr, "%d: %s\n", comm ? comm->rank : -1, status_message());
        comm_fail(comm, status_message());
    }
    comm_close(comm);
    return status_exit(status);
}
