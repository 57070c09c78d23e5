// SPDX-License-Identifier: Apache-2.0
// What the stand-in finds: every rank hears of it, in the words of both sides. NCCL itself would hang, or
// leave wrong bytes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/nccl/ranks.h"

enum { N = 8, INT32 = 2 };

// Calls before EXPECT_ASYNC may hear of the error already, if another rank was faster.

// What a rank ends with after an error: the others may still be reading what is wrong.
static void leave(Rank *r) {
    r->nccl->abort(r->comm);
}

static void counts_differ(Rank *r) {
    void *from = numbers(r, N, 0), *to = empty(r, N * r->n);
    r->nccl->gather(from, to, (size_t)N - (r->rank == 1), INT32, r->comm, r->stream);
    EXPECT_ASYNC(r, r->comm, "different calls", "ncclAllGather of 8 int32, collective 1",
                 "rank 1: ncclAllGather of 7 int32, collective 1");
    leave(r);
}

static void types_differ(Rank *r) {
    void *from = numbers(r, N, 0), *to = empty(r, N * r->n);
    r->nccl->gather(from, to, N, r->rank ? INT32 : NCCL_FLOAT32, r->comm, r->stream);
    EXPECT_ASYNC(r, r->comm, "rank 0: ncclAllGather of 8 float32", "rank 1: ncclAllGather of 8 int32");
    leave(r);
}

static void orders_differ(Rank *r) {
    void *from = numbers(r, N, 0), *to = empty(r, N * r->n);
    size_t first = r->rank ? 4 : 8, second = 12 - first;
    r->nccl->gather(from, to, first, INT32, r->comm, r->stream);
    r->nccl->gather(from, to, second, INT32, r->comm, r->stream);
    EXPECT_ASYNC(r, r->comm, "rank 0: ncclAllGather of 8", "rank 1: ncclAllGather of 4");
    leave(r);
}

// One rank has two in a group, the other one by one.
static void groups_differ(Rank *r) {
    void *from = numbers(r, N, 0), *to = empty(r, N * r->n), *too = empty(r, N * r->n);
    if (r->rank) FINE(r, r->nccl->group_start());
    r->nccl->gather(from, to, N, INT32, r->comm, r->stream);
    r->nccl->gather(from, too, N, INT32, r->comm, r->stream);
    if (r->rank) FINE(r, r->nccl->group_end());
    EXPECT_ASYNC(r, r->comm, "rank 1: ncclAllGather of 8 int32, collective 1, 1 of 2 in its group");
    leave(r);
}

static void streams_differ(Rank *r) {
    void *from = numbers(r, N, 0), *to = empty(r, N * r->n), *other;
    DeviceLane *lane;
    GOOD(r->device->api->lane(r->device, &lane));
    GOOD(r->device->api->stream(r->device, lane, &other));
    GOOD(r->device->api->synchronize(r->device));
    FINE(r, r->nccl->gather(from, to, N, INT32, r->comm, r->stream));
    CHECK(settle(r, r->comm));
    FINE(r, r->nccl->gather(from, to, N, INT32, r->comm, r->rank ? (NcclStream)other : r->stream));
    NcclResult state = NCCL_OK;
    while (state == NCCL_OK) {
        bool idle;
        GOOD(r->device->api->idle(r->device, &idle));
        GOOD(r->device->api->stream(r->device, lane, &other));
        FINE(r, r->nccl->async_error(r->comm, &state));
    }
    expect_text(r, (const char *const[]){ "rank 0: ncclAllGather of 8 int32, collective 2, on stream 0",
                                          "rank 1: ncclAllGather of 8 int32, collective 2, on stream 1", NULL });
    leave(r);
}

static void message_differs(Rank *r) {
    void *at = numbers(r, N, 0);
    if (r->rank) r->nccl->recv(at, 7, INT32, 0, r->comm, r->stream);
    else r->nccl->send(at, 8, INT32, 1, r->comm, r->stream);
    EXPECT_ASYNC(r, r->comm, "not what its receiver expects", "rank 0: ncclSend of 8 int32 to rank 1",
                 "rank 1: ncclRecv of 7 int32 from rank 0");
    leave(r);
}

static void both_send_first(Rank *r) {
    void *at = numbers(r, N, 0), *to = empty(r, N);
    r->nccl->send(at, N, INT32, 1 - r->rank, r->comm, r->stream);
    r->nccl->recv(to, N, INT32, 1 - r->rank, r->comm, r->stream); // may hear of it already
    EXPECT_ASYNC(r, r->comm, "in a circle", "rank 0, in group 1: ncclSend of 8 int32 to rank 1",
                 "rank 1, in group 1: ncclSend of 8 int32 to rank 0", "waits for rank 0", "ncclGroupStart");
    leave(r);
}

// Three in a ring, each waits for the one before it.
static void all_receive_first(Rank *r) {
    void *at = numbers(r, N, 0), *to = empty(r, N);
    r->nccl->recv(to, N, INT32, (r->rank + 2) % 3, r->comm, r->stream);
    r->nccl->send(at, N, INT32, (r->rank + 1) % 3, r->comm, r->stream);
    EXPECT_ASYNC(r, r->comm, "in a circle", "rank 0, in", "rank 1, in", "rank 2, in");
    leave(r);
}

static void collective_against_message(Rank *r) {
    void *at = numbers(r, N, 0), *to = empty(r, N * r->n);
    if (r->rank) r->nccl->send(at, N, INT32, 0, r->comm, r->stream);
    r->nccl->gather(at, to, N, INT32, r->comm, r->stream);
    if (!r->rank) r->nccl->recv(at, N, INT32, 1, r->comm, r->stream);
    EXPECT_ASYNC(r, r->comm, "in a circle", "ncclAllGather of 8 int32", "ncclSend of 8 int32 to rank 0");
    leave(r);
}

static void message_to_oneself(Rank *r) {
    void *at = numbers(r, N, 0);
    EXPECT_ERROR(r, r->nccl->send(at, N, INT32, r->rank, r->comm, r->stream), "sends to itself");
    FINE(r, r->nccl->group_start());
    FINE(r, r->nccl->send(at, N, INT32, r->rank, r->comm, r->stream));
    FINE(r, r->nccl->recv(empty(r, N), N - 1, INT32, r->rank, r->comm, r->stream));
    EXPECT_ERROR(r, r->nccl->group_end(), "sends itself 32 bytes and takes 28");
    FINE(r, r->nccl->destroy(r->comm));
}

static void unmatched_groups(Rank *r) {
    void *at = numbers(r, N, 0), *to = empty(r, N * r->n);
    EXPECT_ERROR(r, r->nccl->group_end(), "ncclGroupEnd without ncclGroupStart");
    FINE(r, r->nccl->group_start());
    FINE(r, r->nccl->gather(at, to, N, INT32, r->comm, r->stream));
    NcclResult state = NCCL_OK;
    FINE(r, r->nccl->async_error(r->comm, &state));
    CHECK(state == NCCL_WRONG_USE);
    expect_text(r, (const char *const[]){ "a group is open", "1 call", NULL });
    NcclComm half;
    EXPECT_ERROR(r, r->nccl->split(r->comm, 0, 0, &half, NULL), "in a group");
    EXPECT_ERROR(r, r->nccl->destroy(r->comm), "in a group");
    FINE(r, r->nccl->group_end());
    CHECK(settle(r, r->comm));
    // a call that was refused takes its group with it
    FINE(r, r->nccl->group_start());
    CHECK(r->nccl->send(at, N, INT32, 77, r->comm, r->stream) != NCCL_OK);
    FINE(r, r->nccl->gather(at, to, N, INT32, r->comm, r->stream));
    EXPECT_ERROR(r, r->nccl->group_end(), "rank 77 of a communicator of 2");
    FINE(r, r->nccl->destroy(r->comm));
}

static void freed_communicator(Rank *r) {
    void *at = numbers(r, N, 0), *to = empty(r, N * r->n);
    NcclComm comm = r->comm;
    FINE(r, r->nccl->gather(at, to, N, INT32, comm, r->stream));
    CHECK(settle(r, comm));
    FINE(r, r->nccl->destroy(comm));
    EXPECT_ERROR(r, r->nccl->gather(at, to, N, INT32, comm, r->stream), "ended by ncclCommDestroy");
    EXPECT_ERROR(r, r->nccl->destroy(comm), "ended by ncclCommDestroy");
    EXPECT_ERROR(r, r->nccl->send(at, N, INT32, 0, NULL, r->stream), "the communicator is NULL");
    EXPECT_ERROR(r, r->nccl->send(at, N, INT32, 0, (NcclComm)at, r->stream), "is no communicator");
}

// A rank that has destroyed its communicator is still waited for.
static void left_alone(Rank *r) {
    void *at = numbers(r, N, 0), *to = empty(r, N * r->n);
    if (r->rank) {
        FINE(r, r->nccl->destroy(r->comm));
        return;
    }
    r->nccl->gather(at, to, N, INT32, r->comm, r->stream);
    EXPECT_ASYNC(r, r->comm, "rank 1 has destroyed its communicator", "rank 0 waits for it in: ncclAllGather");
    leave(r);
}

static void dead(Rank *r) {
    void *at = numbers(r, N, 0), *to = empty(r, N * r->n);
    if (r->rank) _exit(0);
    r->nccl->gather(at, to, N, INT32, r->comm, r->stream);
    EXPECT_ASYNC(r, r->comm, "rank 1", "its process has ended");
    leave(r);
}

static void aborted(Rank *r) {
    void *at = numbers(r, N, 0), *to = empty(r, N * r->n);
    if (r->rank) {
        usleep(50000);
        FINE(r, r->nccl->abort(r->comm));
        EXPECT_ERROR(r, r->nccl->gather(at, to, N, INT32, r->comm, r->stream), "ended by ncclCommAbort");
        return;
    }
    r->nccl->gather(at, to, N, INT32, r->comm, r->stream);
    EXPECT_ASYNC(r, r->comm, "rank 1 has aborted its communicator");
    leave(r);
}

// Nobody knows why, but everybody hears what all are at.
static void late(Rank *r) {
    void *at = numbers(r, N, 0), *to = empty(r, N * r->n);
    setenv("MOEC_NCCL_DEADLINE", "0.2", 1);
    if (r->rank) {
        sleep(1);
        EXPECT_ERROR(r, r->nccl->gather(at, to, N, INT32, r->comm, r->stream), "rank 1: in no group");
    } else {
        r->nccl->gather(at, to, N, INT32, r->comm, r->stream);
        EXPECT_ASYNC(r, r->comm, "rank 0 has waited 0 s", "rank 1: in no group", "rank 0: in group 1: ncclAllGather");
    }
    leave(r);
}

static void wrong_buffers(Rank *r) {
    void *at = numbers(r, N, 0), *to = empty(r, N * r->n);
    int host[N];
    EXPECT_ERROR(r, r->nccl->gather(at, to, N + 1, INT32, r->comm, r->stream),
                 "36 bytes at byte 0 of the send buffer's allocation, which has 32");
    EXPECT_ERROR(r, r->nccl->gather(at, host, N, INT32, r->comm, r->stream), "no memory of the device");
    EXPECT_ERROR(r, r->nccl->gather((char *)to + 4, to, N, INT32, r->comm, r->stream), "use memory that one of them writes");
    EXPECT_ERROR(r, r->nccl->gather(at, to, N, 99, r->comm, r->stream), "no such data type");
    FINE(r, r->nccl->group_start());
    FINE(r, r->nccl->recv(to, N, INT32, 1 - r->rank, r->comm, r->stream));
    FINE(r, r->nccl->send(to, N, INT32, 1 - r->rank, r->comm, r->stream));
    EXPECT_ERROR(r, r->nccl->group_end(), "use memory that one of them writes");
    FINE(r, r->nccl->destroy(r->comm));
}

static void wrong_windows(Rank *r) {
    void *own, *peer, *plain = empty(r, 4 * NCCL_WINDOW_GRAIN);
    NcclWindow window;
    FINE(r, r->nccl->mem_alloc(&own, 2 * NCCL_WINDOW_GRAIN));
    if (r->rank)
        EXPECT_ERROR(r, r->nccl->window_register(r->comm, plain, NCCL_WINDOW_GRAIN, &window, NCCL_SYMMETRIC),
                     "not within ncclMemAlloc's memory");
    else
        EXPECT_ERROR(r, r->nccl->window_register(r->comm, own, NCCL_WINDOW_GRAIN, &window, NCCL_SYMMETRIC),
                     "rank 1 cannot register its window");
    EXPECT_ERROR(r, r->nccl->window_register(r->comm, own, (size_t)(1 + r->rank) * NCCL_WINDOW_GRAIN, &window,
                                             NCCL_SYMMETRIC),
                 "different windows", "rank 0: 4096 bytes", "rank 1: 8192 bytes");
    EXPECT_ERROR(r, r->nccl->peer_pointer((NcclWindow)own, 0, 0, &peer), "is no window");
    FINE(r, r->nccl->window_register(r->comm, own, NCCL_WINDOW_GRAIN, &window, NCCL_SYMMETRIC));
    EXPECT_ERROR(r, r->nccl->mem_free(own), "is registered as a window");
    EXPECT_ERROR(r, r->nccl->peer_pointer(window, NCCL_WINDOW_GRAIN, 0, &peer), "byte 4096 of 4096");
    EXPECT_ERROR(r, r->nccl->peer_pointer(window, 0, 2, &peer), "rank 2 of 2");
    void *word = numbers(r, 1, 0), *words = empty(r, r->n);
    FINE(r, r->nccl->gather(word, words, 1, INT32, r->comm, r->stream));
    CHECK(settle(r, r->comm));
    FINE(r, r->nccl->window_deregister(r->comm, window));
    EXPECT_ERROR(r, r->nccl->window_deregister(r->comm, window), "was deregistered");
    EXPECT_ERROR(r, r->nccl->peer_pointer(window, 0, 0, &peer), "was deregistered");
    FINE(r, r->nccl->mem_free(own));
    EXPECT_ERROR(r, r->nccl->mem_free(own), "or was freed");
    FINE(r, r->nccl->destroy(r->comm));
}

static void host_calls_differ(Rank *r) {
    void *own;
    NcclWindow window;
    NcclComm half;
    FINE(r, r->nccl->mem_alloc(&own, NCCL_WINDOW_GRAIN));
    if (r->rank) CHECK(r->nccl->split(r->comm, 0, 0, &half, NULL) != NCCL_OK);
    else CHECK(r->nccl->window_register(r->comm, own, NCCL_WINDOW_GRAIN, &window, NCCL_SYMMETRIC) != NCCL_OK);
    expect_text(r, (const char *const[]){ "ncclCommSplit", "ncclCommWindowRegister", "one order", NULL });
    leave(r);
}

// A recorded call runs after its communicator's end.
static void recorded_too_long(Rank *r) {
    void *at = numbers(r, N, 0), *to = empty(r, N * r->n);
    DeviceGraph *graph;
    GOOD(r->device->api->synchronize(r->device));
    GOOD(r->device->api->begin(r->device));
    FINE(r, r->nccl->gather(at, to, N, INT32, r->comm, r->stream));
    GOOD(r->device->api->end(r->device, &graph));
    GOOD(r->device->api->replay(r->device, graph));
    CHECK(settle(r, r->comm));
    FINE(r, r->nccl->destroy(r->comm));
    GOOD(r->device->api->replay(r->device, graph));
    GOOD(r->device->api->synchronize(r->device));
    expect_text(r, (const char *const[]){ "a recorded call runs after its communicator was destroyed", NULL });
    r->device->api->drop(r->device, graph);
}

static void wrong_start(Rank *r) {
    NcclComm comm;
    NcclConfig config = { 0 };
    NcclId id = { "something else" };
    EXPECT_ERROR(r, r->nccl->init(&comm, 2, r->id, 2, NULL), "rank 2 of 2");
    EXPECT_ERROR(r, r->nccl->init(&comm, 2, id, 0, NULL), "none of ncclGetUniqueId's");
    EXPECT_ERROR(r, r->nccl->init(&comm, 2, r->id, 0, &config), "was not initialised");
    EXPECT_ERROR(r, r->nccl->split(r->comm, -2, 0, &comm, NULL), "color -2");
    FINE(r, r->nccl->destroy(r->comm));
}

#define TEST(body, n)                                                                              \
    static void test_##body(void **state) {                                                        \
        (void)state;                                                                               \
        run_ranks(n, false, body);                                                                 \
        run_ranks(n, true, body);                                                                  \
    }
TEST(counts_differ, 3)
TEST(types_differ, 2)
TEST(orders_differ, 2)
TEST(groups_differ, 2)
TEST(streams_differ, 2)
TEST(message_differs, 2)
TEST(both_send_first, 2)
TEST(all_receive_first, 3)
TEST(collective_against_message, 2)
TEST(message_to_oneself, 2)
TEST(unmatched_groups, 2)
TEST(freed_communicator, 2)
TEST(left_alone, 2)
TEST(aborted, 2)
TEST(late, 2)
TEST(wrong_buffers, 2)
TEST(wrong_windows, 2)
TEST(host_calls_differ, 2)
TEST(recorded_too_long, 1)
TEST(wrong_start, 2)

static void test_dead(void **state) {
    (void)state;
    run_ranks(2, false, dead);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_differ),     cmocka_unit_test(test_types_differ),
        cmocka_unit_test(test_orders_differ),     cmocka_unit_test(test_groups_differ),
        cmocka_unit_test(test_streams_differ),    cmocka_unit_test(test_message_differs),
        cmocka_unit_test(test_both_send_first),   cmocka_unit_test(test_all_receive_first),
        cmocka_unit_test(test_collective_against_message),
        cmocka_unit_test(test_message_to_oneself), cmocka_unit_test(test_unmatched_groups),
        cmocka_unit_test(test_freed_communicator), cmocka_unit_test(test_left_alone),
        cmocka_unit_test(test_aborted),           cmocka_unit_test(test_late),
        cmocka_unit_test(test_wrong_buffers),     cmocka_unit_test(test_wrong_windows),
        cmocka_unit_test(test_host_calls_differ), cmocka_unit_test(test_recorded_too_long),
        cmocka_unit_test(test_wrong_start),       cmocka_unit_test(test_dead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
