// SPDX-License-Identifier: Apache-2.0
// A block for a gate is
//
//   int64 rows, targets    int32 first [rows + 1]    int32 target [targets]    (to 64)  data
//
// with target = owner * capacity + row, those of row i from first[i] on. A put's data is [rows] rows. A
// get's block has no data; its answer has [targets] rows, in order.
#include "runtime/comm/rows.h"

typedef struct Block {
    int64_t n_rows, n_targets;
    int64_t bytes;              // of the block
    int32_t *slot;              // [n_targets] of a get: row * slots + slot
    int64_t cap;
} Block;

typedef struct RowsWork {
    int n;                      // members
    int *node, *gate;           // [n] of each member; [n] of each node (a node's name: its first member)
    Block *blocks;              // [n] by node
    int64_t *out, *in, *back_out, *back_in; // [n] bytes by member
    char *send, *receive;
    int64_t send_cap, receive_cap;
} RowsWork;

// There is something afterwards, even of no bytes.
static void grow(char **at, int64_t *cap, int64_t bytes) {
    bytes = max_i64(bytes, 64);
    if (bytes <= *cap) return;
    *at = memory_grow(*at, (size_t)bytes);
    *cap = bytes;
}

/* Nodes ---------------------------------------------------------------------------------------- */

// The gate of a node: its member with this rank's number among the members here, counted around.
static void find_gates(Comm *comm, PlanGroup group, RowsWork *w) {
    int own = comm_member(comm, group), place = 0;
    for (int i = 0; i < w->n; i++) {
        int first = 0;
        while (comm_node(comm, group, first) != comm_node(comm, group, i)) first++;
        w->node[i] = first;
    }
    for (int i = 0; i < own; i++) place += w->node[i] == w->node[own];
    for (int node = 0; node < w->n; node++) {
        int members = 0, number = 0;
        for (int i = 0; i < w->n; i++) members += w->node[i] == node;
        for (int i = 0; members && i < w->n; i++)
            if (w->node[i] == node && number++ == place % members) w->gate[node] = i;
    }
}

static RowsWork *work_of(Comm *comm, CommRows *rows) {
    if (rows->work) return rows->work;
    size_t n = (size_t)comm_members(comm, rows->group);
    RowsWork *w = rows->work = memory_alloc(sizeof *w);
    w->n = (int)n;
    w->node = memory_alloc(n * sizeof *w->node);
    w->gate = memory_alloc(n * sizeof *w->gate);
    w->blocks = memory_alloc(n * sizeof *w->blocks);
    int64_t **counts[] = { &w->out, &w->in, &w->back_out, &w->back_in };
    for (int i = 0; i < COUNT_OF(counts); i++) *counts[i] = memory_alloc(n * sizeof(int64_t));
    find_gates(comm, rows->group, w);
    return w;
}

void comm_rows_finish(CommRows *rows) {
    RowsWork *w = rows->work;
    if (!w) return;
    for (int i = 0; i < w->n; i++) memory_free(w->blocks[i].slot);
    void *all[] = { w->node, w->gate, w->blocks, w->out, w->in, w->back_out, w->back_in,
                    w->send, w->receive, w };
    for (int i = 0; i < COUNT_OF(all); i++) memory_free(all[i]);
    rows->work = NULL;
}

/* Blocks --------------------------------------------------------------------------------------- */

static int64_t head_bytes(int64_t n_rows, int64_t n_targets) {
    return round_up(16 + 4 * (n_rows + 1) + 4 * n_targets, 64);
}

// Rows and targets of every other node.
static void count_blocks(const CommRows *rows, RowsWork *w, int own_node) {
    for (int node = 0; node < w->n; node++) w->blocks[node].n_rows = w->blocks[node].n_targets = 0;
    for (int64_t i = 0; i < rows->n_rows; i++) {
        const int32_t *targets = rows->row_of_slot + i * rows->slots;
        for (int k = 0; k < rows->slots; k++) {
            if (targets[k] < 0) continue;
            int node = w->node[targets[k] / rows->capacity], before = 0;
            if (node == own_node) continue;
            while (before < k && (targets[before] < 0 || w->node[targets[before] / rows->capacity] != node))
                before++;
            w->blocks[node].n_rows += before == k;
            w->blocks[node].n_targets++;
        }
    }
}

static void write_block(const CommRows *rows, const RowsWork *w, int node, Block *block, char *at,
                        const char *from) {
    int64_t *counts = (int64_t *)at;
    int32_t *first = (int32_t *)(at + 16), *target = first + block->n_rows + 1;
    char *data = at + head_bytes(block->n_rows, block->n_targets);
    int64_t n_rows = 0, n_targets = 0;
    counts[0] = block->n_rows;
    counts[1] = block->n_targets;
    for (int64_t i = 0; i < rows->n_rows; i++) {
        int64_t begin = n_targets;
        for (int k = 0; k < rows->slots; k++) {
            int32_t to = rows->row_of_slot[i * rows->slots + k];
            if (to < 0 || w->node[to / rows->capacity] != node) continue;
            if (!from) block->slot[n_targets] = (int32_t)(i * rows->slots + k);
            target[n_targets++] = to;
        }
        if (n_targets == begin) continue;
        first[n_rows] = (int32_t)begin;
        if (from) memcpy(data + n_rows * rows->row_bytes, from + i * rows->row_bytes, (size_t)rows->row_bytes);
        n_rows++;
    }
    first[n_rows] = (int32_t)n_targets;
}

// from: the rows of a put; NULL: a get. What goes to gates, in order of members, in w->send.
static void make_blocks(const CommRows *rows, RowsWork *w, int own_node, const char *from) {
    int64_t bytes = 0;
    count_blocks(rows, w, own_node);
    for (int i = 0; i < w->n; i++) w->out[i] = 0;
    for (int node = 0; node < w->n; node++) {
        Block *block = &w->blocks[node];
        if (!block->n_targets) continue;
        block->bytes = head_bytes(block->n_rows, block->n_targets) +
                       (from ? round_up(block->n_rows * rows->row_bytes, 64) : 0);
        w->out[w->gate[node]] = block->bytes;
        bytes += block->bytes;
        if (block->n_targets <= block->cap) continue;
        block->slot = memory_grow(block->slot, (size_t)block->n_targets * sizeof *block->slot);
        block->cap = block->n_targets;
    }
    grow(&w->send, &w->send_cap, bytes);
    char *at = w->send;
    for (int i = 0; i < w->n; i++) {
        for (int node = 0; node < w->n; node++)
            if (w->out[i] && w->gate[node] == i && w->blocks[node].n_targets)
                write_block(rows, w, node, &w->blocks[node], at, from);
        at += w->out[i];
    }
}

static int64_t sum(const int64_t *values, int n) {
    int64_t total = 0;
    for (int i = 0; i < n; i++) total += values[i];
    return total;
}

// Every member says how much it sends to each, then sends it; what came is in w->receive.
static Status trade(Comm *comm, PlanGroup group, RowsWork *w) {
    TRY(comm->api->exchange(comm, group, w->out, w->in, sizeof *w->out));
    grow(&w->receive, &w->receive_cap, sum(w->in, w->n));
    return comm->api->blocks(comm, group, w->send, w->out, w->receive, w->in);
}

static char *row_at(const CommRows *rows, void *const *at, int32_t target) {
    return (char *)at[target / rows->capacity] + target % rows->capacity * rows->row_bytes;
}

/* Put ------------------------------------------------------------------------------------------ */

static void put_near(const CommRows *rows, const RowsWork *w, int own_node, const char *from,
                     void *const *at) {
    for (int64_t i = 0; i < rows->n_rows * rows->slots; i++) {
        int32_t to = rows->row_of_slot[i];
        if (to < 0 || w->node[to / rows->capacity] != own_node) continue;
        memcpy(row_at(rows, at, to), from + i / rows->slots * rows->row_bytes, (size_t)rows->row_bytes);
    }
}

// As a gate: what came from one member.
static void hand_out(const CommRows *rows, const char *block, void *const *at) {
    const int64_t *counts = (const int64_t *)block;
    const int32_t *first = (const int32_t *)(block + 16), *target = first + counts[0] + 1;
    const char *data = block + head_bytes(counts[0], counts[1]);
    for (int64_t i = 0; i < counts[0]; i++, data += rows->row_bytes)
        for (int32_t k = first[i]; k < first[i + 1]; k++)
            memcpy(row_at(rows, at, target[k]), data, (size_t)rows->row_bytes);
}

Status comm_put_rows(Comm *comm, CommRows *rows, const void *from, void *const *at) {
    RowsWork *w = work_of(comm, rows);
    int own_node = w->node[comm_member(comm, rows->group)];
    put_near(rows, w, own_node, from, at);
    if (comm_nodes(comm, rows->group) > 1) {
        make_blocks(rows, w, own_node, from);
        TRY(trade(comm, rows->group, w));
        const char *block = w->receive;
        for (int i = 0; i < w->n; block += w->in[i++])
            if (w->in[i]) hand_out(rows, block, at);
    }
    return comm->api->barrier(comm, rows->group);
}

/* Get ------------------------------------------------------------------------------------------ */

static void get_near(const CommRows *rows, const RowsWork *w, int own_node, void *const *at, char *to) {
    for (int64_t i = 0; i < rows->n_rows * rows->slots; i++) {
        int32_t from = rows->row_of_slot[i];
        if (from < 0 || w->node[from / rows->capacity] != own_node) continue;
        memcpy(to + i * rows->row_bytes, row_at(rows, at, from), (size_t)rows->row_bytes);
    }
}

// As a gate: the rows that one member asks for.
static char *answer(const CommRows *rows, const char *block, void *const *at, char *to) {
    const int64_t *counts = (const int64_t *)block;
    const int32_t *target = (const int32_t *)(block + 16) + counts[0] + 1;
    for (int64_t k = 0; k < counts[1]; k++, to += rows->row_bytes)
        memcpy(to, row_at(rows, at, target[k]), (size_t)rows->row_bytes);
    return to;
}

static Status get_far(Comm *comm, CommRows *rows, RowsWork *w, void *const *at, char *to) {
    char *answers;
    const char *block = w->receive;
    for (int i = 0; i < w->n; i++) {
        w->back_out[i] = w->in[i] ? ((const int64_t *)block)[1] * rows->row_bytes : 0;
        w->back_in[i] = 0;
        block += w->in[i];
    }
    for (int node = 0; node < w->n; node++)
        if (w->blocks[node].n_targets)
            w->back_in[w->gate[node]] = w->blocks[node].n_targets * rows->row_bytes;
    grow(&w->send, &w->send_cap, sum(w->back_out, w->n));
    answers = w->send;
    block = w->receive;
    for (int i = 0; i < w->n; block += w->in[i++])
        if (w->in[i]) answers = answer(rows, block, at, answers);
    grow(&w->receive, &w->receive_cap, sum(w->back_in, w->n));
    TRY(comm->api->blocks(comm, rows->group, w->send, w->back_out, w->receive, w->back_in));
    const char *row = w->receive;
    for (int i = 0; i < w->n; i++) {
        if (!w->back_in[i]) continue;
        const Block *from = &w->blocks[w->node[i]];
        for (int64_t k = 0; k < from->n_targets; k++, row += rows->row_bytes)
            memcpy(to + from->slot[k] * rows->row_bytes, row, (size_t)rows->row_bytes);
    }
    return OK;
}

Status comm_get_rows(Comm *comm, CommRows *rows, void *const *at, void *to) {
    RowsWork *w = work_of(comm, rows);
    int own_node = w->node[comm_member(comm, rows->group)];
    TRY(comm->api->barrier(comm, rows->group));
    get_near(rows, w, own_node, at, to);
    if (comm_nodes(comm, rows->group) > 1) {
        make_blocks(rows, w, own_node, NULL);
        TRY(trade(comm, rows->group, w));
        TRY(get_far(comm, rows, w, at, to));
    }
    return comm->api->barrier(comm, rows->group);
}
