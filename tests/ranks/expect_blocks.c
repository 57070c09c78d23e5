// SPDX-License-Identifier: Apache-2.0
// Parts of any size.
#include <stdlib.h>

#include "tests/ranks/expect.h"

// Nothing for some, much for others.
static int64_t part_bytes(int giver, int taker) {
    static const int64_t sizes[] = { 0, 1, 40, 4099, 0, 70001 };
    return sizes[hash_mix(7, (uint64_t)giver, (uint64_t)taker) % COUNT_OF(sizes)];
}

Status expect_blocks(Comm *comm, PlanGroup group) {
    int n = comm_members(comm, group);
    int64_t *out = calloc((size_t)n, sizeof *out), *in = calloc((size_t)n, sizeof *in), gives = 0, takes = 0;
    for (int i = 0; i < n; i++) {
        int other = comm_world_rank(comm, group, i);
        gives += out[i] = part_bytes(comm->rank, other);
        takes += in[i] = part_bytes(other, comm->rank);
    }
    uint8_t *from = malloc((size_t)gives + 1), *to = malloc((size_t)takes + 1), *at = from;
    Status status = OK;
    for (int i = 0; i < n; at += out[i++])
        expect_fill(at, out[i], comm->rank, comm_world_rank(comm, group, i), 5);
    TRY_GOTO(comm->api->blocks(comm, group, from, out, to, in), end);
    at = to;
    for (int i = 0; i < n; at += in[i++])
        TRY_GOTO(expect_same("block", comm, at, in[i], comm_world_rank(comm, group, i), comm->rank, 5), end);
end:
    free(out);
    free(in);
    free(from);
    free(to);
    return status;
}
