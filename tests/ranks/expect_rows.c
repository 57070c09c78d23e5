// SPDX-License-Identifier: Apache-2.0
// Parts of any size, and rows that go to their owners and come back, on one node or several.
#include <stdlib.h>

#include "runtime/comm/rows.h"
#include "tests/ranks/expect.h"

/* Parts of any size ---------------------------------------------------------------------------- */

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

/* Rows ----------------------------------------------------------------------------------------- */

enum { ROWS = 23, SLOTS = 3 };

// Rank r has r % 3 * ROWS rows. A slot's owner is any, or none; its row there is its own.
static int64_t rows_of(int rank) {
    return (int64_t)(rank % 3) * ROWS;
}

static int32_t target_of(const Comm *comm, PlanGroup group, int member, int64_t i, int k) {
    int n = comm_members(comm, group), rank = comm_world_rank(comm, group, member);
    uint64_t random = hash_mix(11, (uint64_t)rank, (uint64_t)(i * SLOTS + k));
    if (random % 5 == 0) return -1;
    int64_t capacity = (int64_t)n * 2 * ROWS * SLOTS, row = ((int64_t)member * 2 * ROWS + i) * SLOTS + k;
    return (int32_t)((int64_t)(random / 5 % (uint64_t)n) * capacity + row);
}

static void fill_targets(const Comm *comm, PlanGroup group, int member, int64_t n_rows, int32_t *to) {
    for (int64_t i = 0; i < n_rows; i++)
        for (int k = 0; k < SLOTS; k++) to[i * SLOTS + k] = target_of(comm, group, member, i, k);
}

// Of what this rank owns: every row that some rank put here, and zeros elsewhere.
static Status check_put(const Comm *comm, const CommRows *rows, const uint8_t *own) {
    int n = comm_members(comm, rows->group), owner = comm_member(comm, rows->group);
    uint8_t *right = calloc((size_t)(rows->capacity + 1), (size_t)rows->row_bytes);
    for (int member = 0; member < n; member++) {
        int rank = comm_world_rank(comm, rows->group, member);
        for (int64_t i = 0; i < rows_of(rank); i++) {
            for (int k = 0; k < SLOTS; k++) {
                int32_t to = target_of(comm, rows->group, member, i, k);
                if (to < 0 || to / rows->capacity != owner) continue;
                expect_fill(right + to % rows->capacity * rows->row_bytes, rows->row_bytes, rank, (int)i, 6);
            }
        }
    }
    bool good = memcmp(own, right, (size_t)(rows->capacity * rows->row_bytes)) == 0;
    free(right);
    return good ? OK : status_fail(ERR_INTERNAL, "rank %d: rows that were put are not there", comm->rank);
}

static Status check_got(const Comm *comm, const CommRows *rows, const uint8_t *got) {
    for (int64_t i = 0; i < rows->n_rows * SLOTS; i++) {
        int32_t from = rows->row_of_slot[i];
        const uint8_t *row = got + i * rows->row_bytes;
        if (from < 0) {
            for (int64_t b = 0; b < rows->row_bytes; b++)
                if (row[b] != 0xee) return status_fail(ERR_INTERNAL, "a slot that is nowhere was written");
            continue;
        }
        int owner = comm_world_rank(comm, rows->group, (int)(from / rows->capacity));
        TRY(expect_same("row", comm, row, rows->row_bytes, owner, (int)(from % rows->capacity), 7));
    }
    return OK;
}

static Status there_and_back(Comm *comm, CommRows *rows, uint8_t *own, void *const *at, const uint8_t *from,
                             uint8_t *to) {
    PlanGroup group = rows->group;
    TRY(comm->api->barrier(comm, group));
    TRY(comm_put_rows(comm, rows, from, at));
    TRY(check_put(comm, rows, own));
    TRY(comm->api->barrier(comm, group));
    for (int64_t r = 0; r < rows->capacity; r++)
        expect_fill(own + r * rows->row_bytes, rows->row_bytes, comm->rank, (int)r, 7);
    TRY(comm_get_rows(comm, rows, at, to));
    TRY(check_got(comm, rows, to));
    memset(own, 0, (size_t)(rows->capacity * rows->row_bytes));
    return OK;
}

Status expect_rows(Comm *comm, PlanGroup group, int64_t row_bytes) {
    int n = comm_members(comm, group), members = comm_members(comm, GROUP_dp);
    int32_t targets[2 * ROWS * SLOTS];
    CommRows rows = { .group = group, .row_bytes = row_bytes, .n_rows = rows_of(comm->rank), .slots = SLOTS,
                      .capacity = (int64_t)n * 2 * ROWS * SLOTS, .row_of_slot = targets };
    fill_targets(comm, group, comm_member(comm, group), rows.n_rows, targets);
    int64_t window_bytes = rows.capacity * row_bytes, all = rows.n_rows * row_bytes;
    void **peers = calloc((size_t)members, sizeof *peers), **at = calloc((size_t)n, sizeof *at), *own;
    uint8_t *from = malloc((size_t)all + 1), *to = malloc((size_t)(all * SLOTS) + 1);
    memset(to, 0xee, (size_t)(all * SLOTS));
    for (int64_t i = 0; i < rows.n_rows; i++)
        expect_fill(from + i * row_bytes, row_bytes, comm->rank, (int)i, 6);
    Status status = comm->api->window(comm, window_bytes, &own, peers);
    for (int i = 0; i < n; i++)
        for (int m = 0; m < members; m++)
            if (comm_world_rank(comm, group, i) == comm_world_rank(comm, GROUP_dp, m)) at[i] = peers[m];
    for (int turn = 0; turn < 2 && status == OK; turn++)
        status = there_and_back(comm, &rows, own, at, from, to);
    comm_rows_finish(&rows);
    if (status == OK) comm->api->release(comm, own, window_bytes);
    free(peers);
    free(at);
    free(from);
    free(to);
    return status;
}
