// SPDX-License-Identifier: Apache-2.0
// Right use of the stand-in, by processes and by threads: the right bytes arrive, in the order of streams,
// recorded or not.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/nccl/ranks.h"

enum { SMALL = 5, LARGE = 100000 /* more than a ring holds */ };

static void gather(Rank *r) {
    for (int n = SMALL; n <= LARGE; n += LARGE - SMALL) {
        void *from = numbers(r, n, 1000 * r->rank), *to = empty(r, n * r->n);
        FINE(r, r->nccl->gather(from, to, (size_t)n, 2, r->comm, r->stream));
        CHECK(settle(r, r->comm));
        for (int i = 0; i < r->n; i++) expect_numbers(r, (char *)to + i * n * 4, n, 1000 * i);
        // in place, as bytes
        GOOD(r->device->api->copy_in(r->device, (char *)to + r->rank * n * 4, &(int){ 7 }, 4));
        FINE(r, r->nccl->gather((char *)to + r->rank * n * 4, to, (size_t)n * 4, NCCL_INT8, r->comm, r->stream));
        for (int i = 0; i < r->n; i++) expect_numbers(r, (char *)to + i * n * 4, 1, 7);
    }
    FINE(r, r->nccl->destroy(r->comm));
}

static void exchange(Rank *r) {
    for (int n = SMALL; n <= LARGE; n += LARGE - SMALL) {
        void *from = numbers(r, n * r->n, 1000 * r->rank), *to = empty(r, n * r->n);
        FINE(r, r->nccl->group_start());
        for (int i = 0; i < r->n; i++) {
            FINE(r, r->nccl->send((char *)from + i * n * 4, (size_t)n, 2, i, r->comm, r->stream));
            FINE(r, r->nccl->recv((char *)to + i * n * 4, (size_t)n, 2, i, r->comm, r->stream));
        }
        FINE(r, r->nccl->group_end());
        CHECK(settle(r, r->comm));
        for (int i = 0; i < r->n; i++)
            expect_numbers(r, (char *)to + i * n * 4, n, 1000 * i + r->rank * n);
    }
    FINE(r, r->nccl->destroy(r->comm));
}

// Down the line and back, without groups; a group's calls pass each other.
static void messages(Rank *r) {
    void *at = numbers(r, SMALL, 100 * r->rank), *got = empty(r, SMALL), *more = empty(r, SMALL);
    int next = r->rank + 1, before = r->rank - 1;
    if (before >= 0) FINE(r, r->nccl->recv(got, SMALL, 2, before, r->comm, r->stream));
    if (next < r->n) {
        FINE(r, r->nccl->send(at, SMALL, 2, next, r->comm, r->stream));
        FINE(r, r->nccl->group_start()); // sends before it receives, as its partner does
        FINE(r, r->nccl->send(at, SMALL, 2, next, r->comm, r->stream));
        FINE(r, r->nccl->recv(more, SMALL, 2, next, r->comm, r->stream));
        FINE(r, r->nccl->group_end());
    }
    if (before >= 0) {
        FINE(r, r->nccl->group_start());
        FINE(r, r->nccl->send(at, SMALL, 2, before, r->comm, r->stream));
        FINE(r, r->nccl->recv(got, SMALL, 2, before, r->comm, r->stream));
        FINE(r, r->nccl->group_end());
    }
    CHECK(settle(r, r->comm));
    if (before >= 0) expect_numbers(r, got, SMALL, 100 * before);
    if (next < r->n) expect_numbers(r, more, SMALL, 100 * next);
    FINE(r, r->nccl->destroy(r->comm));
}

// Who has sent its last leaves at once; another, which has waited for long, takes it all the same.
static void last_words(Rank *r) {
    void *at = numbers(r, SMALL, 100), *got = empty(r, SMALL);
    for (int i = 0; i < 20; i++) {
        NcclComm comm;
        FINE(r, r->nccl->split(r->comm, 0, r->rank, &comm, NULL));
        if (r->rank == 0) {
            usleep(3000);
            FINE(r, r->nccl->send(at, SMALL, 2, 1, comm, r->stream));
        } else {
            FINE(r, r->nccl->recv(got, SMALL, 2, 0, comm, r->stream));
            CHECK(settle(r, comm));
            expect_numbers(r, got, SMALL, 100);
        }
        FINE(r, r->nccl->destroy(comm));
    }
    FINE(r, r->nccl->destroy(r->comm));
}

// Halves, in opposite order; who has no color gets none.
static void split(Rank *r) {
    NcclComm half, none;
    FINE(r, r->nccl->split(r->comm, r->rank % 2, -r->rank, &half, NULL));
    FINE(r, r->nccl->split(r->comm, r->rank ? NCCL_NO_COLOR : 3, 0, &none, NULL));
    CHECK((none != NULL) == (r->rank == 0));
    int members = (r->n + 1 - r->rank % 2) / 2;
    void *from = numbers(r, 1, r->rank), *to = empty(r, members);
    FINE(r, r->nccl->gather(from, to, 1, 2, half, r->stream));
    CHECK(settle(r, half));
    for (int i = 0; i < members; i++)
        expect_numbers(r, (char *)to + 4 * i, 1, (members - 1 - i) * 2 + r->rank % 2);
    FINE(r, r->nccl->destroy(half));
    if (none) FINE(r, r->nccl->destroy(none));
    FINE(r, r->nccl->destroy(r->comm));
}

// Everyone writes its number into everyone's window.
static void windows(Rank *r) {
    enum { BYTES = 2 * NCCL_WINDOW_GRAIN };
    void *own, *peer, *word = numbers(r, 1, 0), *words = empty(r, r->n);
    NcclWindow window;
    FINE(r, r->nccl->mem_alloc(&own, BYTES));
    FINE(r, r->nccl->window_register(r->comm, own, BYTES, &window, NCCL_SYMMETRIC));
    for (int i = 0; i < r->n; i++) {
        FINE(r, r->nccl->peer_pointer(window, (size_t)(NCCL_WINDOW_GRAIN + 4 * r->rank), i, &peer));
        GOOD(r->device->api->copy_in(r->device, peer, &(int){ 100 + r->rank }, 4));
    }
    FINE(r, r->nccl->gather(word, words, 1, 2, r->comm, r->stream));
    CHECK(settle(r, r->comm));
    expect_numbers(r, (char *)own + NCCL_WINDOW_GRAIN, r->n, 100);
    FINE(r, r->nccl->gather(word, words, 1, 2, r->comm, r->stream));
    CHECK(settle(r, r->comm)); // nobody frees what another reads
    FINE(r, r->nccl->window_deregister(r->comm, window));
    FINE(r, r->nccl->mem_free(own));
    FINE(r, r->nccl->destroy(r->comm));
}

// A recorded ring of messages and a gather, replayed.
static void recorded(Rank *r) {
    enum { TURNS = 4 };
    const DeviceApi *api = r->device->api;
    void *from = numbers(r, SMALL, 0), *got = empty(r, SMALL), *all = empty(r, SMALL * r->n);
    int next = (r->rank + 1) % r->n, before = (r->rank + r->n - 1) % r->n;
    DeviceGraph *graph;
    GOOD(api->synchronize(r->device));
    GOOD(api->begin(r->device));
    FINE(r, r->nccl->group_start());
    FINE(r, r->nccl->send(from, SMALL, 2, next, r->comm, r->stream));
    FINE(r, r->nccl->recv(got, SMALL, 2, before, r->comm, r->stream));
    FINE(r, r->nccl->group_end());
    FINE(r, r->nccl->gather(got, all, SMALL, 2, r->comm, r->stream));
    GOOD(api->end(r->device, &graph));
    for (int turn = 0; turn < TURNS; turn++) {
        int host[SMALL];
        for (int i = 0; i < SMALL; i++) host[i] = 1000 * r->rank + 10 * turn + i;
        GOOD(api->copy_in(r->device, from, host, sizeof host));
        GOOD(api->replay(r->device, graph));
        CHECK(settle(r, r->comm));
        for (int i = 0; i < r->n; i++)
            expect_numbers(r, (char *)all + i * SMALL * 4, SMALL, 1000 * ((i + r->n - 1) % r->n) + 10 * turn);
    }
    api->drop(r->device, graph);
    FINE(r, r->nccl->destroy(r->comm));
}

// Two lanes: what one receives while the other sends.
static void lanes(Rank *r) {
    const DeviceApi *api = r->device->api;
    NcclComm up, down;
    DeviceLane *lane;
    DeviceMark *mark = NULL;
    void *at = numbers(r, LARGE, r->rank), *got = empty(r, LARGE), *stream;
    FINE(r, r->nccl->split(r->comm, 0, r->rank, &up, NULL));
    FINE(r, r->nccl->split(r->comm, 0, r->rank, &down, NULL));
    GOOD(api->lane(r->device, &lane));
    GOOD(api->mark(r->device, NULL, &mark));
    GOOD(api->after(r->device, lane, mark));
    GOOD(api->stream(r->device, lane, &stream));
    int other = 1 - r->rank;
    FINE(r, r->nccl->send(at, LARGE, 2, other, r->rank ? up : down, stream));
    FINE(r, r->nccl->recv(got, LARGE, 2, other, r->rank ? down : up, r->stream));
    GOOD(api->mark(r->device, lane, &mark));
    GOOD(api->after(r->device, NULL, mark));
    CHECK(settle(r, up) && settle(r, down));
    expect_numbers(r, got, LARGE, other);
    FINE(r, r->nccl->destroy(up));
    FINE(r, r->nccl->destroy(down));
    FINE(r, r->nccl->destroy(r->comm));
}

// A communicator that does not block is asked until it is ready.
static void not_blocking(Rank *r) {
    NcclComm comm;
    NcclConfig config = config_of(false);
    NcclResult state = NCCL_IN_PROGRESS;
    CHECK(r->nccl->split(r->comm, 0, r->rank, &comm, &config) == NCCL_OK); // the parent blocks
    void *from = numbers(r, 1, r->rank), *to = empty(r, r->n);
    EXPECT_ERROR(r, r->nccl->gather(from, to, 1, 2, comm, r->stream), "still in progress");
    while (state == NCCL_IN_PROGRESS) FINE(r, r->nccl->async_error(comm, &state));
    CHECK(r->nccl->gather(from, to, 1, 2, comm, r->stream) == NCCL_IN_PROGRESS);
    CHECK(settle(r, comm));
    expect_numbers(r, to, r->n, 0);
    FINE(r, r->nccl->destroy(comm));
    FINE(r, r->nccl->destroy(r->comm));
}

static void everywhere(void (*body)(Rank *), int from, int to) {
    for (int n = from; n <= to; n++) run_ranks(n, false, body);
    run_ranks(to, true, body);
}

#define TEST(body, from, to)                                                                       \
    static void test_##body(void **state) {                                                        \
        (void)state;                                                                               \
        everywhere(body, from, to);                                                                \
    }
TEST(gather, 1, 3)
TEST(exchange, 1, 3)
TEST(messages, 2, 3)
TEST(last_words, 2, 2)
TEST(split, 2, 5)
TEST(windows, 1, 3)
TEST(recorded, 1, 3)
TEST(lanes, 2, 2)
TEST(not_blocking, 2, 2)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather),   cmocka_unit_test(test_exchange), cmocka_unit_test(test_messages),
        cmocka_unit_test(test_split),    cmocka_unit_test(test_windows),  cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_lanes),    cmocka_unit_test(test_not_blocking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
