// SPDX-License-Identifier: Apache-2.0
// Order: what waits for what between streams, and that what does not wait is not waited for. Every
// program runs in the three orders; a correct one gives the same in all, and the one whose event is
// missing gives another result in the late order.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/vgpu/api.h"

static const char *const orders[] = { "late", "issue", "random" };

// Producer in one stream, consumer in another: fill, then copy to the host.
static int consumer_sees(const char *order, bool with_event, unsigned int producer_flags,
                         unsigned int consumer_flags) {
    api_begin("sm_90a", order);
    CUstream producer, consumer;
    CUevent event;
    CUdeviceptr at;
    int *got;
    MUST(api.cuStreamCreate(&producer, producer_flags));
    MUST(api.cuStreamCreate(&consumer, consumer_flags));
    MUST(api.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(api.cuMemAlloc_v2(&at, 4));
    MUST(api.cuMemAllocHost_v2((void **)&got, 4));
    MUST(api.cuMemsetD32_v2(at, 1, 1));
    MUST(api.cuCtxSynchronize());
    MUST(api.cuMemsetD32Async(at, 2, 1, producer));
    MUST(api.cuEventRecord(event, producer));
    if (with_event) MUST(api.cuStreamWaitEvent(consumer, event, 0));
    MUST(api.cuMemcpyDtoHAsync_v2(got, at, 4, consumer));
    MUST(api.cuCtxSynchronize());
    int result = *got;
    api_end();
    return result;
}

static void test_event(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(consumer_sees(orders[i], true, CU_STREAM_NON_BLOCKING, 0), 2);
    assert_int_equal(consumer_sees("late", false, CU_STREAM_NON_BLOCKING, 0), 1); // stale
    // Two blocking streams are not ordered either; the kind order hides it.
    assert_int_equal(consumer_sees("late", false, 0, 0), 1);
    assert_int_equal(consumer_sees("issue", false, 0, 0), 2);
}

// The same the other way: a buffer is overwritten while another stream has still to read it.
static void test_reuse(void **state) {
    (void)state;
    for (int with_event = 0; with_event < 2; with_event++) {
        api_begin("sm_90a", "late");
        CUstream reader, writer;
        CUevent read;
        CUdeviceptr at;
        int *got;
        MUST(api.cuStreamCreate(&reader, CU_STREAM_NON_BLOCKING));
        MUST(api.cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
        MUST(api.cuEventCreate(&read, 0));
        MUST(api.cuMemAlloc_v2(&at, 4));
        MUST(api.cuMemAllocHost_v2((void **)&got, 4));
        MUST(api.cuMemsetD32Async(at, 1, 1, reader));
        MUST(api.cuMemcpyDtoHAsync_v2(got, at, 4, reader));
        MUST(api.cuEventRecord(read, reader));
        if (with_event) MUST(api.cuStreamWaitEvent(writer, read, 0));
        MUST(api.cuMemsetD32Async(at, 2, 1, writer));
        // Asked for the reader alone, the driver may still run the writer first.
        MUST(api.cuStreamSynchronize(reader));
        int last;
        MUST(api.cuMemcpyDtoH_v2(&last, at, 4));
        MUST(api.cuCtxSynchronize());
        MUST(api.cuMemcpyDtoH_v2(&last, at, 4));
        // Without the event the writer was overtaken by the reader's fill: 1 stays.
        assert_int_equal(*got, 1);
        assert_int_equal(last, with_event ? 2 : 1);
        api_end();
    }
}

// The legacy stream waits for blocking streams and they for it; non-blocking ones stay out.
static void test_legacy(void **state) {
    (void)state;
    for (int blocking = 0; blocking < 2; blocking++) {
        for (int i = 0; i < 3; i++) {
            api_begin("sm_90a", orders[i]);
            CUstream a, b;
            CUdeviceptr at;
            int *got;
            unsigned int flags = blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
            MUST(api.cuStreamCreate(&a, flags));
            MUST(api.cuStreamCreate(&b, flags));
            MUST(api.cuMemAlloc_v2(&at, 4));
            MUST(api.cuMemAllocHost_v2((void **)&got, 8));
            MUST(api.cuMemsetD32_v2(at, 1, 1));
            MUST(api.cuCtxSynchronize());
            MUST(api.cuMemsetD32Async(at, 2, 1, a));
            MUST(api.cuMemcpyDtoHAsync_v2(&got[0], at, 4, i ? NULL : CU_STREAM_LEGACY));
            MUST(api.cuMemcpyDtoHAsync_v2(&got[1], at, 4, b));
            MUST(api.cuCtxSynchronize());
            if (blocking) assert_true(got[0] == 2 && got[1] == 2);
            else if (i == 0) assert_true(got[0] == 1 && got[1] == 1);
            api_end();
        }
    }
}

// A chain through many streams and events ends with every step counted, in any order.
static void count(void *user) {
    int *values = user;
    values[0] = (int)((unsigned)values[0] * 3 + 1);
}

static void test_chain(void **state) {
    (void)state;
    enum { STREAMS = 7, STEPS = 200 };
    unsigned int expected = 0;
    for (int i = 0; i < STEPS; i++) expected = expected * 3 + 1;
    for (int i = 0; i < 3; i++) {
        api_begin("sm_90a", orders[i]);
        CUstream streams[STREAMS];
        CUevent events[STREAMS];
        int value = 0;
        for (int k = 0; k < STREAMS; k++) {
            MUST(api.cuStreamCreate(&streams[k], k % 2 ? CU_STREAM_NON_BLOCKING : 0));
            MUST(api.cuEventCreate(&events[k], 0));
        }
        for (int step = 0; step < STEPS; step++) {
            int k = (step * 5) % STREAMS, before = ((step - 1) * 5 + STREAMS) % STREAMS;
            if (step) MUST(api.cuStreamWaitEvent(streams[k], events[before], 0));
            MUST(api.cuLaunchHostFunc(streams[k], count, &value));
            MUST(api.cuEventRecord(events[k], streams[k])); // records again and again
        }
        MUST(api.cuEventSynchronize(events[((STEPS - 1) * 5) % STREAMS]));
        assert_int_equal((unsigned int)value, expected);
        // Streams that go away take nothing with them.
        MUST(api.cuLaunchHostFunc(streams[0], count, &value));
        MUST(api.cuStreamDestroy_v2(streams[0]));
        MUST(api.cuCtxSynchronize());
        assert_int_equal((unsigned int)value, expected * 3 + 1);
        api_end();
    }
}

typedef struct Gate { pthread_mutex_t lock; pthread_cond_t changed; bool open, entered; } Gate;

static void wait_at_gate(void *user) {
    Gate *gate = user;
    pthread_mutex_lock(&gate->lock);
    gate->entered = true;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->open) pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

// Queries tell the truth, and a host function that blocks holds up its own stream only.
static void test_query(void **state) {
    (void)state;
    api_begin("sm_90a", "late");
    Gate gate = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false };
    CUstream held, free_stream;
    CUevent event, never;
    CUdeviceptr at;
    int got = 0;
    MUST(api.cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    MUST(api.cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
    MUST(api.cuEventCreate(&event, 0));
    MUST(api.cuEventCreate(&never, 0));
    MUST(api.cuMemAlloc_v2(&at, 4));
    MUST(api.cuStreamQuery(held));
    MUST(api.cuLaunchHostFunc(held, wait_at_gate, &gate));
    MUST(api.cuEventRecord(event, held));
    pthread_mutex_lock(&gate.lock);
    // It starts though nobody waits for it.
    while (!gate.entered) pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    EXPECT(CUDA_ERROR_NOT_READY, api.cuStreamQuery(held));
    EXPECT(CUDA_ERROR_NOT_READY, api.cuEventQuery(event));
    float ms = -1;
    EXPECT(CUDA_ERROR_NOT_READY, api.cuEventElapsedTime_v2(&ms, event, event));
    MUST(api.cuMemsetD32Async(at, 9, 1, free_stream));
    MUST(api.cuMemcpyDtoHAsync_v2(&got, at, 4, free_stream));
    assert_int_equal(got, 9);
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    MUST(api.cuEventSynchronize(event));
    MUST(api.cuStreamQuery(held));
    MUST(api.cuEventQuery(event));
    MUST(api.cuEventQuery(never));
    MUST(api.cuEventElapsedTime_v2(&ms, event, event));
    assert_true(ms == 0);
    EXPECT(CUDA_ERROR_INVALID_HANDLE, api.cuEventElapsedTime_v2(&ms, event, never));
    api_end();
}

static CUresult inside;

static void call_driver(void *user) {
    CUdeviceptr at;
    (void)user;
    inside = api.cuMemAlloc_v2(&at, 4);
}

static CUresult told;

static void callback(CUstream stream, CUresult status, void *user) {
    *(CUstream *)user = stream;
    told = status;
}

static void test_host_functions(void **state) {
    (void)state;
    api_begin("sm_90a", "late");
    CUstream stream, seen = NULL;
    MUST(api.cuStreamCreate(&stream, 0));
    MUST(api.cuLaunchHostFunc(stream, call_driver, NULL));
    told = CUDA_ERROR_UNKNOWN;
    MUST(api.cuStreamAddCallback(stream, callback, &seen, 0));
    MUST(api.cuStreamSynchronize(stream));
    EXPECT(CUDA_ERROR_NOT_PERMITTED, inside);
    assert_int_equal(told, CUDA_SUCCESS);
    assert_ptr_equal(seen, stream);
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuLaunchHostFunc(stream, NULL, NULL));
    api_end();
}

static void test_properties(void **state) {
    (void)state;
    api_begin("sm_90a", "late");
    CUstream a, b;
    CUcontext context, current;
    unsigned int flags = 7;
    int priority = 7, least, greatest;
    unsigned long long ids[2];
    MUST(api.cuCtxGetStreamPriorityRange(&least, &greatest));
    assert_true(least == 0 && greatest < 0);
    MUST(api.cuStreamCreateWithPriority(&a, CU_STREAM_NON_BLOCKING, -100));
    MUST(api.cuStreamCreate(&b, 0));
    MUST(api.cuStreamGetPriority(a, &priority));
    assert_int_equal(priority, greatest);
    MUST(api.cuStreamGetFlags(a, &flags));
    assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
    MUST(api.cuStreamGetId(a, &ids[0]));
    MUST(api.cuStreamGetId(b, &ids[1]));
    assert_true(ids[0] != ids[1]);
    MUST(api.cuStreamGetCtx(a, &context));
    MUST(api.cuCtxGetCurrent(&current));
    assert_ptr_equal(context, current);
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuStreamCreate(&b, 2));
    api_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_event),  cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_legacy), cmocka_unit_test(test_chain),
        cmocka_unit_test(test_query),  cmocka_unit_test(test_host_functions),
        cmocka_unit_test(test_properties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
