// SPDX-License-Identifier: Apache-2.0
// Capture: what becomes of captured work, and each rule by which a capture is refused or
// invalidated.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/vgpu/api.h"

static CUstream a, b;
static CUevent fork_event, join_event;
static CUdeviceptr memory;
static CUgraph graph;

static int begin(void **state) {
    (void)state;
    api_begin("sm_90a", "late");
    MUST(api.cuStreamCreate(&a, 0));
    MUST(api.cuStreamCreate(&b, 0));
    MUST(api.cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    MUST(api.cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    MUST(api.cuMemAlloc_v2(&memory, 64));
    MUST(api.cuMemsetD8_v2(memory, 0, 64));
    MUST(api.cuCtxSynchronize());
    graph = NULL;
    return 0;
}

static int end(void **state) {
    (void)state;
    if (graph) MUST(api.cuGraphDestroy(graph));
    api_end();
    return 0;
}

static void start(CUstreamCaptureMode mode) {
    MUST(api.cuStreamBeginCapture_v2(a, mode));
}

static CUstreamCaptureStatus status(CUstream stream) {
    CUstreamCaptureStatus value;
    MUST(api.cuStreamIsCapturing(stream, &value));
    return value;
}

// The capture ends in that error, gives no graph, and its streams are free again.
static void ends_in(CUresult error) {
    graph = (CUgraph)&graph;
    EXPECT(error, api.cuStreamEndCapture(a, &graph));
    assert_null(graph);
    assert_int_equal(status(a), CU_STREAM_CAPTURE_STATUS_NONE);
    assert_int_equal(status(b), CU_STREAM_CAPTURE_STATUS_NONE);
}

static void add(void *user) {
    int *values = user;
    values[1] += values[0];
}

// A fork and a join with a dependency to be kept, replayed: b's fill between a's two copies.
static void test_fork_join(void **state) {
    (void)state;
    int *host;
    MUST(api.cuMemAllocHost_v2((void **)&host, 16));
    host[0] = 5, host[1] = 0;
    start(CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(status(b), CU_STREAM_CAPTURE_STATUS_NONE);
    MUST(api.cuMemcpyHtoDAsync_v2(memory, host, 4, a));
    MUST(api.cuEventRecord(fork_event, a));
    MUST(api.cuStreamWaitEvent(b, fork_event, 0));
    assert_int_equal(status(b), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    MUST(api.cuMemcpyDtoDAsync_v2(memory + 8, memory, 4, b));
    MUST(api.cuMemcpyDtoHAsync_v2(&host[2], memory, 4, a));
    MUST(api.cuEventRecord(join_event, b));
    MUST(api.cuStreamWaitEvent(a, join_event, 0));
    MUST(api.cuLaunchHostFunc(a, add, host));
    MUST(api.cuMemcpyDtoHAsync_v2(&host[3], memory + 8, 4, a));
    MUST(api.cuStreamEndCapture(a, &graph));
    assert_int_equal(status(b), CU_STREAM_CAPTURE_STATUS_NONE);
    assert_int_equal(host[1], 0); // nothing ran

    size_t n = 0, edges = 0, roots = 0;
    MUST(api.cuGraphGetNodes(graph, NULL, &n));
    assert_int_equal(n, 5);
    MUST(api.cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &edges));
    assert_int_equal(edges, 5); // 2 from the first copy, 2 into the function, 1 to the last copy
    MUST(api.cuGraphGetRootNodes(graph, NULL, &roots));
    assert_int_equal(roots, 1);
    CUgraphExec exec;
    MUST(api.cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 1; i <= 3; i++) {
        host[0] = i; // read by the copy in its turn
        MUST(api.cuGraphLaunch(exec, a));
        MUST(api.cuStreamSynchronize(a));
        assert_int_equal(host[2], i);
        assert_int_equal(host[3], i);
    }
    assert_int_equal(host[1], 1 + 2 + 3);
    MUST(api.cuGraphExecDestroy(exec));
}

static void test_states(void **state) {
    (void)state;
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, api.cuStreamEndCapture(a, &graph));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
           api.cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuStreamBeginCapture_v2(a, 3));
    start(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(CUDA_ERROR_ILLEGAL_STATE,
           api.cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUstreamCaptureStatus value;
    cuuint64_t id = 0;
    CUgraph inner = NULL;
    const CUgraphNode *nodes;
    size_t n = 9;
    MUST(api.cuMemsetD8Async(memory, 1, 4, a));
    MUST(api.cuStreamGetCaptureInfo_v3(a, &value, &id, &inner, &nodes, NULL, &n));
    assert_int_equal(value, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_true(id != 0 && inner && n == 1);
    CUgraphNodeType type;
    MUST(api.cuGraphNodeGetType(nodes[0], &type));
    assert_int_equal(type, CU_GRAPH_NODE_TYPE_MEMSET);
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuGraphDestroy(inner)); // it is the capture's still
    MUST(api.cuStreamEndCapture(a, &graph));
    assert_ptr_equal(graph, inner);
}

// Calls that a capture forbids, one at a time; each invalidates it.
static CUresult sync_stream(void) { return api.cuStreamSynchronize(a); }
static CUresult query_stream(void) { return api.cuStreamQuery(a); }
static CUresult sync_context(void) { return api.cuCtxSynchronize(); }
static CUresult allocate(void) {
    CUdeviceptr at;
    return api.cuMemAlloc_v2(&at, 4);
}
static CUresult release(void) { return api.cuMemFree_v2(memory); }
static CUresult ordered_allocate(void) {
    CUdeviceptr at;
    return api.cuMemAllocAsync(&at, 4, a);
}
static CUresult copy_in_legacy(void) { return api.cuMemcpyHtoD_v2(memory, "abc", 4); }
static CUresult fill_in_legacy(void) { return api.cuMemsetD8Async(memory, 0, 4, NULL); }
static CUresult record_in_legacy(void) { return api.cuEventRecord(fork_event, NULL); }
static CUresult wait_for_outside(void) {
    MUST(api.cuEventRecord(fork_event, b));
    return api.cuStreamWaitEvent(a, fork_event, 0);
}
static CUresult query_captured(void) {
    MUST(api.cuEventRecord(fork_event, a));
    return api.cuEventQuery(fork_event);
}
static CUresult legacy_joins(void) {
    MUST(api.cuEventRecord(fork_event, a));
    return api.cuStreamWaitEvent(NULL, fork_event, 0);
}

static void test_forbidden(void **state) {
    (void)state;
    static const struct { const char *name; CUresult (*call)(void); CUresult error; } rows[] = {
        { "synchronise the stream", sync_stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED },
        { "query the stream", query_stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED },
        { "synchronise the context", sync_context, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED },
        { "allocate", allocate, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED },
        { "free", release, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED },
        { "allocate in the stream", ordered_allocate, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED },
        { "copy at once", copy_in_legacy, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT },
        { "fill in the legacy stream", fill_in_legacy, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT },
        { "record in the legacy stream", record_in_legacy, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT },
        { "wait for an event of outside", wait_for_outside, CUDA_ERROR_STREAM_CAPTURE_ISOLATION },
        { "ask for a captured event", query_captured, CUDA_ERROR_CAPTURED_EVENT },
        { "join the legacy stream", legacy_joins, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        print_message("    %s\n", rows[i].name);
        start(CU_STREAM_CAPTURE_MODE_GLOBAL);
        MUST(api.cuMemsetD8Async(memory, 1, 4, a));
        EXPECT(rows[i].error, rows[i].call());
        assert_int_equal(status(a), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, api.cuMemsetD8Async(memory, 1, 4, a));
        ends_in(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    // Afterwards everything works as before.
    MUST(api.cuMemsetD8Async(memory, 1, 4, NULL));
    MUST(api.cuCtxSynchronize());
}

// Relaxed mode, and a relaxed thread, permit what only may wait. A non-blocking stream has nothing
// to do with the legacy one.
static void test_relaxed(void **state) {
    (void)state;
    CUdeviceptr at;
    start(CU_STREAM_CAPTURE_MODE_RELAXED);
    MUST(api.cuMemAlloc_v2(&at, 4));
    MUST(api.cuStreamEndCapture(a, &graph));
    MUST(api.cuGraphDestroy(graph));
    start(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(api.cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    MUST(api.cuMemAlloc_v2(&at, 4));
    MUST(api.cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    MUST(api.cuStreamEndCapture(a, &graph));
    MUST(api.cuGraphDestroy(graph));
    CUstream apart;
    MUST(api.cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
    MUST(api.cuStreamBeginCapture_v2(apart, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(api.cuMemsetD8Async(memory, 0, 4, NULL));
    MUST(api.cuStreamSynchronize(NULL));
    MUST(api.cuStreamEndCapture(apart, &graph));
}

static void test_unjoined(void **state) {
    (void)state;
    start(CU_STREAM_CAPTURE_MODE_GLOBAL);
    MUST(api.cuEventRecord(fork_event, a));
    MUST(api.cuStreamWaitEvent(b, fork_event, 0));
    MUST(api.cuMemsetD8Async(memory, 1, 4, b));
    ends_in(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    // Joined too early: work after the event is left.
    start(CU_STREAM_CAPTURE_MODE_GLOBAL);
    MUST(api.cuEventRecord(fork_event, a));
    MUST(api.cuStreamWaitEvent(b, fork_event, 0));
    MUST(api.cuMemsetD8Async(memory, 1, 4, b));
    MUST(api.cuEventRecord(join_event, b));
    MUST(api.cuMemsetD8Async(memory, 2, 4, b));
    MUST(api.cuStreamWaitEvent(a, join_event, 0));
    ends_in(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    // A fork ends where it began only.
    start(CU_STREAM_CAPTURE_MODE_GLOBAL);
    MUST(api.cuEventRecord(fork_event, a));
    MUST(api.cuStreamWaitEvent(b, fork_event, 0));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, api.cuStreamEndCapture(b, &graph));
    ends_in(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void test_merge(void **state) {
    (void)state;
    start(CU_STREAM_CAPTURE_MODE_GLOBAL);
    MUST(api.cuStreamBeginCapture_v2(b, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(api.cuMemsetD8Async(memory, 1, 4, b));
    MUST(api.cuEventRecord(fork_event, b));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_MERGE, api.cuStreamWaitEvent(a, fork_event, 0));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, api.cuStreamEndCapture(b, &graph));
    ends_in(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // Its capture is over.
    EXPECT(CUDA_ERROR_CAPTURED_EVENT, api.cuStreamWaitEvent(a, fork_event, 0));
    EXPECT(CUDA_ERROR_CAPTURED_EVENT, api.cuEventSynchronize(fork_event));
    MUST(api.cuEventRecord(fork_event, b)); // a point in time again
    MUST(api.cuEventSynchronize(fork_event));
}

static void *end_elsewhere(void *argument) {
    CUcontext context = argument;
    CUresult *result = malloc(sizeof *result);
    CUgraph made;
    CUdeviceptr at;
    if (!result || api.cuCtxSetCurrent(context)) return result;
    result[0] = api.cuMemAlloc_v2(&at, 4); // forbidden by others' captures in global mode
    if (!result[0]) result[0] = api.cuStreamEndCapture(a, &made);
    return result;
}

static CUresult in_thread(void) {
    CUcontext context;
    pthread_t thread;
    void *result;
    MUST(api.cuCtxGetCurrent(&context));
    assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, context), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
    CUresult value = *(CUresult *)result;
    free(result);
    return value;
}

static void test_threads(void **state) {
    (void)state;
    start(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, in_thread());
    ends_in(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    start(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, in_thread());
    ends_in(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    start(CU_STREAM_CAPTURE_MODE_RELAXED);
    MUST(in_thread());
}

// A stream that goes away ends what it captured.
static void test_forgotten(void **state) {
    (void)state;
    CUstream gone;
    MUST(api.cuStreamCreate(&gone, 0));
    MUST(api.cuStreamBeginCapture_v2(gone, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(api.cuMemsetD8Async(memory, 1, 4, gone));
    MUST(api.cuStreamDestroy_v2(gone));
    MUST(api.cuCtxSynchronize());
    start(CU_STREAM_CAPTURE_MODE_GLOBAL); // one left open for the context to clear
    MUST(api.cuMemsetD8Async(memory, 1, 4, a));
}

// A node of a graph that is being captured stays: later ones may follow it.
static void test_nodes_stay(void **state) {
    (void)state;
    CUstreamCaptureStatus status;
    CUgraph captured;
    const CUgraphNode *nodes;
    size_t n;
    start(CU_STREAM_CAPTURE_MODE_GLOBAL);
    MUST(api.cuMemsetD8Async(memory, 1, 4, a));
    MUST(api.cuStreamGetCaptureInfo_v2(a, &status, NULL, &captured, &nodes, &n));
    assert_int_equal(n, 1);
    CUgraphNode node = nodes[0];
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuGraphDestroyNode(node));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuGraphDestroy(captured));
    MUST(api.cuMemsetD8Async(memory, 2, 4, a));
    MUST(api.cuStreamEndCapture(a, &graph));
    MUST(api.cuGraphDestroyNode(node));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fork_join, begin, end),
        cmocka_unit_test_setup_teardown(test_states, begin, end),
        cmocka_unit_test_setup_teardown(test_forbidden, begin, end),
        cmocka_unit_test_setup_teardown(test_relaxed, begin, end),
        cmocka_unit_test_setup_teardown(test_unjoined, begin, end),
        cmocka_unit_test_setup_teardown(test_merge, begin, end),
        cmocka_unit_test_setup_teardown(test_threads, begin, end),
        cmocka_unit_test_setup_teardown(test_forgotten, begin, end),
        cmocka_unit_test_setup_teardown(test_nodes_stay, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
