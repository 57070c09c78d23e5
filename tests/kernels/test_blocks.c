// SPDX-License-Identifier: Apache-2.0
// Rows in blocks between nodes: the kernels of all ranks run one after the other, what crosses is moved by hand.
// The reference puts every copy where it belongs, one by one. Blocks of any size, as CPUs send them, and in parts of
// one size, as GPUs do: every token goes to every node.
#include "tests/kernels/lab.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8 };
typedef enum Choices {
    ANY,       // some copies are nowhere
    NEAR,      // nobody leaves the node
    ONE_NODE,  // all go to the last one
    ONE_RANK,  // only the last rank has tokens
    NOWHERE,
    LATER,     // what does not fit comes in further rounds
} Choices;

typedef struct Case {
    int32_t nodes, node, rows, top_k, capacity, n;
    Choices kind;
    bool apart; // every choice has numbers of its own
    Dtype type;
} Case; // n: also of rows that GPUs cut into units of 16 bytes, of 4, or not
static const Case cases[] = {
    { 2, 1, 9, 2, 36, 3, ANY, false, DTYPE_F32 },      { 2, 2, 7, 3, 84, 1, ANY, true, DTYPE_F32 },
    { 4, 1, 5, 4, 80, 33, ANY, false, DTYPE_BF16 },    { 2, 4, 6, 2, 96, 17, ANY, false, DTYPE_I32 },
    { 4, 2, 70, 1, 560, 2, ANY, false, DTYPE_F32 },    { 1, 4, 8, 2, 64, 5, ANY, false, DTYPE_F32 },
    { 2, 2, 8, 3, 96, 4, NEAR, false, DTYPE_F32 },     { 4, 2, 6, 2, 96, 4, ONE_NODE, false, DTYPE_F32 },
    { 4, 2, 6, 3, 144, 2, ONE_RANK, true, DTYPE_F32 }, { 2, 2, 3, 2, 24, 1, NOWHERE, false, DTYPE_F32 },
    { 2, 2, 40, 3, 31, 3, ANY, false, DTYPE_F32 },     { 3, 2, 11, 2, 5, 2, ANY, false, DTYPE_F32 }, // few rows
    { 2, 2, 12, 4, 11, 3, LATER, false, DTYPE_F32 },   { 3, 1, 9, 3, 4, 2, LATER, true, DTYPE_F32 },
    { 2, 2, 9, 3, 108, 40, ANY, false, DTYPE_BF16 },   { 3, 2, 5, 3, 90, 34, ANY, false, DTYPE_BF16 },
    { 4, 1, 7, 3, 84, 512, ANY, false, DTYPE_F32 },    { 2, 2, 5, 2, 40, 2, ANY, true, DTYPE_BF16 },
};

typedef struct Rank {
    int32_t *row_of_slot, *all, *there, *token, *put, *home, *first, *back, *get, *place;
    char *x, *out, *in, *owned, *returned, *came, *sums, *summed; // rows
} Rank;

typedef struct World {
    const Case *c;
    bool whole;             // parts of one size
    int32_t n_ranks, parts; // parts: rows of n numbers to a token
    int64_t go, come, copies, back, number_bytes, row_bytes; // of n numbers
    Rank ranks[MOST_RANKS];
} World;

static int32_t pick(const World *w, int rank, int64_t slot) {
    const Case *c = w->c;
    uint64_t any = hash_mix(5, (uint64_t)rank, (uint64_t)slot);
    if (c->kind == NOWHERE || (c->kind == ONE_RANK && rank != w->n_ranks - 1)) return -1;
    if (c->kind == NEAR) return rank / c->node * c->node + (int32_t)(any % (uint64_t)c->node);
    if (c->kind == ONE_NODE) return w->n_ranks - 1 - (int32_t)(any % (uint64_t)c->node);
    return any % 7 == 0 ? -1 : (int32_t)(any / 7 % (uint64_t)w->n_ranks);
}

// Every owner gives its rows in turn, to those who come first.
static void choose_rows(World *w) {
    const Case *c = w->c;
    int32_t taken[MOST_RANKS] = { 0 };
    for (int r = 0; r < w->n_ranks; r++) {
        for (int64_t slot = 0; slot < (int64_t)c->rows * c->top_k; slot++) {
            int32_t owner = pick(w, r, slot), free = owner >= 0 && taken[owner] < c->capacity;
            int32_t round = owner >= 0 ? taken[owner] / c->capacity : 0, row = -1; // route_ranks.c
            if (round > 0 && c->kind == LATER)
                row = -2 - (((round - 1) * w->n_ranks + owner) * c->capacity + taken[owner]++ % c->capacity);
            w->ranks[r].row_of_slot[slot] = free ? owner * c->capacity + taken[owner]++ : row;
        }
    }
}

static char *rows(const World *w, int64_t n, int32_t parts) {
    char *at = lab_memory((size_t)(n * parts * w->row_bytes));
    memset(at, 0x5a, (size_t)(n * parts * w->row_bytes));
    return at;
}

static void set_number(const World *w, char *at, int64_t i, int r) {
    uint64_t any = hash_mix(7, (uint64_t)r, (uint64_t)i) % 1000;
    float real = (float)any / 7;
    uint16_t half = lab_bf16(real);
    int32_t whole = (int32_t)any;
    const void *from = w->c->type == DTYPE_F32    ? (void *)&real
                       : w->c->type == DTYPE_BF16 ? (void *)&half
                                                  : (void *)&whole;
    memcpy(at + i * w->number_bytes, from, (size_t)w->number_bytes);
}

static float number(const World *w, const char *at, int64_t i) {
    float real;
    uint16_t half;
    memcpy(&real, at + i * w->number_bytes, w->c->type == DTYPE_F32 ? 4 : 0);
    memcpy(&half, at + i * w->number_bytes, 2);
    return w->c->type == DTYPE_F32 ? real : lab_wide(half);
}

static void world_open(World *w, const Case *c, bool whole) {
    *w = (World){ .c = c, .whole = whole, .n_ranks = c->nodes * c->node, .parts = c->apart ? c->top_k : 1 };
    int64_t tokens = c->nodes * (int64_t)c->rows, node_rows = (int64_t)c->node * c->capacity;
    w->go = whole ? tokens : c->rows * min_i64(c->nodes, c->top_k);
    w->come = whole ? tokens : min_i64(tokens, node_rows);
    w->copies = whole ? tokens * c->top_k : round_up(min_i64(tokens * c->top_k, node_rows), c->top_k);
    w->back = whole ? tokens * c->top_k : (int64_t)c->rows * c->top_k;
    w->number_bytes = dtype_bytes(c->type);
    w->row_bytes = c->n * w->number_bytes;
    for (int r = 0; r < w->n_ranks; r++) {
        Rank *to = &w->ranks[r];
        to->row_of_slot = lab_array(c->rows * c->top_k);
        to->all = lab_array(tokens * c->top_k);
        to->there = lab_array(2 * c->nodes), to->back = lab_array(2 * c->nodes), to->home = lab_array(2 * c->nodes);
        to->first = lab_array(c->rows * c->top_k);
        to->token = lab_array(w->go), to->put = lab_array(w->come * c->top_k);
        to->get = lab_array(w->copies), to->place = lab_array(c->rows * c->top_k);
        to->x = rows(w, c->rows, w->parts), to->out = rows(w, w->go, w->parts), to->in = rows(w, w->come, w->parts);
        to->owned = rows(w, c->capacity, 1), to->returned = rows(w, w->copies, 1);
        to->came = rows(w, w->back, 1);
        to->sums = rows(w, w->come, 1), to->summed = rows(w, w->go, 1);
        for (int64_t i = 0; i < c->rows * w->parts * c->n; i++) set_number(w, to->x, i, r);
    }
    choose_rows(w);
}

static void world_close(World *w) {
    for (int r = 0; r < w->n_ranks; r++) {
        Rank *to = &w->ranks[r];
        void *all[] = { to->row_of_slot, to->all,   to->there, to->token, to->put,      to->home,
                        to->first,       to->back,  to->get,   to->place, to->x,        to->out,
                        to->in,          to->owned, to->came,  to->sums,  to->returned, to->summed };
        for (int i = 0; i < COUNT_OF(all); i++) lab_free(all[i]);
    }
}

typedef struct Kernels { uint32_t blocks, here, spread, fetch, sum; } Kernels;

static Kernels add_kernels(Lab *lab, const Case *c, bool whole) {
    World w;
    world_open(&w, c, whole);
    KernelDesc blocks = { .family = whole ? FAMILY_RAIL : FAMILY_BLOCKS, .rows = c->rows, .top_k = c->top_k, .ranks = c->nodes,
                          .each = c->node, .capacity = c->capacity };
    KernelDesc move = { .family = FAMILY_MOVE, .rows = w.go, .top_k = 1, .n = c->n * w.parts, .each = 1,
                        .x = (uint8_t)c->type };
    KernelDesc spread = { .family = FAMILY_MOVE, .way = MOVE_SPREAD, .rows = w.come, .top_k = c->top_k, .n = c->n,
                          .each = w.parts, .capacity = c->capacity, .x = (uint8_t)c->type };
    KernelDesc fetch = { .family = FAMILY_MOVE, .way = MOVE_FETCH, .rows = w.copies, .top_k = 1, .n = c->n, .each = 1,
                         .capacity = c->capacity, .whole = whole, .x = (uint8_t)c->type };
    KernelDesc sum = { .family = FAMILY_MOVE, .way = MOVE_SUM, .rows = w.come, .top_k = c->top_k, .n = c->n, .each = 1,
                       .capacity = c->capacity, .whole = whole, .x = (uint8_t)c->type };
    Kernels k = { lab_add(lab, &blocks), lab_add(lab, &move), lab_add(lab, &spread), lab_add(lab, &fetch) };
    if (c->type != DTYPE_I32) k.sum = lab_add(lab, &sum);
    world_close(&w);
    return k;
}

static Binding of_type(const World *w, const char *name, bool is_const, void *at) {
    return (Binding){ name, w->c->type, is_const, at };
}

// Parts of `from`, by sizes, to the members of a rail; whole: of `size` rows of n numbers.
static void cross(World *w, const int32_t *(*sizes)(const Rank *), char *(*from)(const Rank *),
                  char *(*to)(const Rank *), int32_t parts, int64_t size) {
    int64_t bytes = parts * w->row_bytes;
    for (int r = 0; r < w->n_ranks; r++) {
        int own = r / w->c->node;
        char *at = to(&w->ranks[r]);
        for (int i = 0; i < w->c->nodes; i++) {
            const Rank *member = &w->ranks[i * w->c->node + r % w->c->node];
            const char *part = from(member);
            if (w->whole) {
                memcpy(at, part + own * size * bytes, (size_t)(size * bytes));
                at += size * bytes;
                continue;
            }
            for (int k = 0; k < own; k++) part += sizes(member)[k] * bytes;
            assert_int_equal(sizes(member)[own], sizes(&w->ranks[r])[w->c->nodes + i]); // both know
            memcpy(at, part, (size_t)(sizes(member)[own] * bytes));
            at += sizes(member)[own] * bytes;
        }
    }
}
static const int32_t *there(const Rank *r) { return r->there; }
static const int32_t *back(const Rank *r) { return r->back; }
static const int32_t *home(const Rank *r) { return r->home; }
static char *sums(const Rank *r) { return r->sums; }
static char *summed(const Rank *r) { return r->summed; }
static char *out(const Rank *r) { return r->out; }
static char *in(const Rank *r) { return r->in; }
static char *returned(const Rank *r) { return r->returned; }
static char *came(const Rank *r) { return r->came; }

static void make_tables(World *w, Lab *lab, const Kernels *k) {
    const Case *c = w->c;
    int64_t slots = (int64_t)c->rows * c->top_k;
    for (int r = 0; r < w->n_ranks; r++) {
        Rank *at = &w->ranks[r];
        int32_t *counts = lab_array(3);
        counts[0] = r;
        for (int i = 0; i < c->nodes; i++)
            memcpy(at->all + i * slots, w->ranks[i * c->node + r % c->node].row_of_slot, (size_t)slots * 4);
        Binding b[] = { READ_I32("all", at->all),      READ_I32("counts", counts),  WRITE_I32("there", at->there),
                        WRITE_I32("token", at->token), WRITE_I32("put", at->put),   WRITE_I32("home", at->home),
                        WRITE_I32("first", at->first), WRITE_I32("back", at->back), WRITE_I32("get", at->get),
                        WRITE_I32("place", at->place) };
        Binding rail[] = { b[0], b[1], WRITE_I32("here", at->put), WRITE_I32("first", at->first), b[9] };
        if (w->whole) lab_run(lab, k->blocks, rail, COUNT_OF(rail));
        else lab_run(lab, k->blocks, b, COUNT_OF(b));
        if (w->whole) memcpy(at->get, at->put, (size_t)w->copies * 4); // one table for both ways
        lab_free(counts);
    }
}

// The addresses of what the ranks of r's node own.
static Binding of_node(World *w, int r, const char *name, int64_t *table, void **far) {
    for (int i = 0; i < w->c->node; i++) far[i] = w->ranks[r / w->c->node * w->c->node + i].owned;
    return (Binding){ name, DTYPE_I64, true, table, far, w->c->node };
}

// Every token to every node, as it is.
static void gather_rows(World *w) {
    int64_t bytes = w->c->rows * w->parts * w->row_bytes;
    for (int r = 0; r < w->n_ranks; r++)
        for (int i = 0; i < w->c->nodes; i++)
            memcpy(w->ranks[r].in + i * bytes, w->ranks[i * w->c->node + r % w->c->node].x, (size_t)bytes);
}

static void go_there(World *w, Lab *lab, const Kernels *k) {
    void *far[MOST_RANKS];
    for (int r = 0; r < w->n_ranks; r++) {
        Rank *at = &w->ranks[r];
        for (int i = 0; w->whole && i < w->go; i++) at->token[i] = i % 3 ? i % w->c->rows : -1;
        Binding b[] = { of_type(w, "x", true, at->x), READ_I32("table", at->token), of_type(w, "y", false, at->out) };
        lab_run(lab, k->here, b, 3);
        for (int64_t i = 0, bytes = w->parts * w->row_bytes; i < w->go; i++)
            if (at->token[i] >= 0) assert_memory_equal(at->out + i * bytes, at->x + at->token[i] * bytes, (size_t)bytes);
    }
    if (w->whole) gather_rows(w);
    else cross(w, there, out, in, w->parts, 0);
    for (int r = 0; r < w->n_ranks; r++) {
        int64_t *table = lab_memory(8 * (size_t)w->c->node);
        Binding b[] = { of_type(w, "x", true, w->ranks[r].in), READ_I32("table", w->ranks[r].put),
                        of_node(w, r, "y", table, far) };
        lab_run(lab, k->spread, b, 3);
        lab_free(table);
    }
}

// Rows of `to` that have no copy are zeros. `to` has one for `k` places of the table each.
static void check_zeros(const World *w, const int32_t *table, int64_t n, int k, const char *to) {
    for (int64_t i = 0; i < n; i++) {
        bool any = false;
        for (int64_t j = i * k; j < i * k + k; j++) any |= table[j] >= 0;
        for (int64_t b = i * w->row_bytes; !any && b < (i + 1) * w->row_bytes; b++) assert_int_equal(to[b], 0);
    }
}

static void come_back(World *w, Lab *lab, const Kernels *k) {
    void *far[MOST_RANKS];
    for (int r = 0; r < w->n_ranks; r++) {
        int64_t *table = lab_memory(8 * (size_t)w->c->node);
        Binding x = of_node(w, r, "x", table, far);
        Binding b[] = { x, READ_I32("table", w->ranks[r].get), of_type(w, "y", false, w->ranks[r].returned) };
        lab_run(lab, k->fetch, b, 3);
        Binding s[] = { x, READ_I32("table", w->ranks[r].put), of_type(w, "y", false, w->ranks[r].sums) };
        if (w->c->type != DTYPE_I32) lab_run(lab, k->sum, s, 3);
        lab_free(table);
        if (!w->whole) continue;
        check_zeros(w, w->ranks[r].get, w->copies, 1, w->ranks[r].returned);
        if (w->c->type != DTYPE_I32) check_zeros(w, w->ranks[r].put, w->come, w->c->top_k, w->ranks[r].sums);
    }
    cross(w, back, returned, came, 1, (int64_t)w->c->rows * w->c->top_k);
    if (w->c->type != DTYPE_I32) cross(w, home, sums, summed, 1, w->c->rows);
}

// What rank r has for a slot.
static const char *value(const World *w, int r, int64_t slot) {
    int64_t k = w->parts > 1 ? slot : slot / w->c->top_k;
    return w->ranks[r].x + k * w->row_bytes;
}

// The sum of a token's copies on one node, from slot on, is where `first` says; `seen`: slots.
static void check_sum(const World *w, int r, int64_t slot, bool *seen) {
    const Case *c = w->c;
    int64_t end = (slot / c->top_k + 1) * c->top_k;
    const int32_t *to = w->ranks[r].row_of_slot;
    int32_t first = w->ranks[r].first[slot], node = to[slot] / c->capacity / c->node;
    if (seen[slot]) assert_int_equal(first, -1);
    if (seen[slot] || c->type == DTYPE_I32) return;
    assert_true(first >= 0);
    for (int64_t i = slot; i < end; i++) seen[i] |= to[i] >= 0 && to[i] / c->capacity / c->node == node;
    for (int64_t j = 0; j < c->n; j++) {
        float sum = number(w, value(w, r, slot), j);
        for (int64_t i = slot + 1; i < end; i++)
            if (to[i] >= 0 && to[i] / c->capacity / c->node == node) sum += number(w, value(w, r, i), j);
        float got = number(w, w->ranks[r].summed + first * w->row_bytes, j);
        assert_true(got == (c->type == DTYPE_BF16 ? lab_wide(lab_bf16(sum)) : sum));
    }
}

// A slot without a row here: one of a further round takes the sum of its round and node, if nobody before it does.
static void check_later(const World *w, int r, int64_t slot) {
    const int32_t *to = w->ranks[r].row_of_slot, node_rows = w->c->capacity * w->c->node;
    bool later = to[slot] < -1, is_first = later;
    for (int64_t i = slot / w->c->top_k * w->c->top_k; i < slot; i++)
        if (to[i] < -1 && (-2 - to[i]) / node_rows == (-2 - to[slot]) / node_rows) is_first = false;
    assert_int_equal(w->ranks[r].place[slot], later ? -2 : -1);
    assert_int_equal(w->ranks[r].first[slot], is_first ? -2 : -1);
}

static void check(Lab *lab, const Case *c, const Kernels *k, bool whole) {
    World w;
    world_open(&w, c, whole);
    size_t bytes = (size_t)(c->capacity * w.row_bytes);
    char *right[MOST_RANKS];
    for (int r = 0; r < w.n_ranks; r++) right[r] = memcpy(malloc(bytes), w.ranks[r].owned, bytes);
    make_tables(&w, lab, k);
    go_there(&w, lab, k);
    for (int r = 0; r < w.n_ranks; r++) {
        bool *sent = calloc((size_t)c->rows * (size_t)c->nodes, sizeof *sent);
        int32_t n = 0, all = 0;
        for (int64_t slot = 0; slot < (int64_t)c->rows * c->top_k; slot++) {
            int32_t to = w.ranks[r].row_of_slot[slot];
            if (to < 0) continue;
            memcpy(right[to / c->capacity] + to % c->capacity * w.row_bytes, value(&w, r, slot), (size_t)w.row_bytes);
            bool *once = &sent[slot / c->top_k * c->nodes + to / c->capacity / c->node];
            n += !*once;
            *once = true;
        }
        for (int i = 0; i < c->nodes && !whole; i++) all += w.ranks[r].there[i];
        assert_true(whole || all == n); // a token once for every node
        free(sent);
    }
    for (int r = 0; r < w.n_ranks; r++) assert_memory_equal(w.ranks[r].owned, right[r], bytes);
    come_back(&w, lab, k);
    for (int r = 0; r < w.n_ranks; r++) {
        bool *seen = calloc((size_t)c->rows * (size_t)c->top_k, sizeof *seen);
        for (int64_t slot = 0; slot < (int64_t)c->rows * c->top_k; slot++) {
            int32_t place = w.ranks[r].place[slot];
            assert_int_equal(place < 0, w.ranks[r].row_of_slot[slot] < 0);
            if (place < 0) check_later(&w, r, slot);
            if (place < 0) continue;
            assert_memory_equal(w.ranks[r].came + place * w.row_bytes, value(&w, r, slot), (size_t)w.row_bytes);
            check_sum(&w, r, slot, seen);
        }
        free(seen);
    }
    for (int r = 0; r < w.n_ranks; r++) free(right[r]);
    world_close(&w);
}

static void check_all(bool whole) {
    Lab lab;
    Kernels kernels[COUNT_OF(cases)];
    lab_open(&lab);
    for (int i = 0; i < COUNT_OF(cases); i++) kernels[i] = add_kernels(&lab, &cases[i], whole);
    lab_compile(&lab);
    for (int i = 0; i < COUNT_OF(cases); i++) check(&lab, &cases[i], &kernels[i], whole);
    lab_close(&lab);
}

static void test_blocks(void **state) {
    (void)state;
    if (lab_gpu()) skip(); // nobody there reads how large they are
    check_all(false);
}

static void test_whole(void **state) {
    (void)state;
    check_all(true);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_blocks), cmocka_unit_test(test_whole) };
    return cmocka_run_group_tests_name("kernels.blocks", tests, NULL, NULL);
}
