// SPDX-License-Identifier: Apache-2.0
// The driver's first calls: device, attributes, errors, cuGetProcAddress, contexts, handles.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/vgpu/api.h"

static void test_start(void **state) {
    (void)state;
    api_open();
    int count = -1, version = 0;
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, api.cuDeviceGetCount(&count));
    assert_int_equal(count, -1);
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuInit(1));
    setenv("MOEC_VGPU", "sm_17", 1);
    EXPECT(CUDA_ERROR_NO_DEVICE, api.cuInit(0));
    assert_non_null(strstr(api.vgpuLastMessage(), "sm_17"));
    setenv("MOEC_VGPU", "sm_80", 1);
    setenv("MOEC_VGPU_ORDER", "sideways", 1);
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuInit(0));
    assert_non_null(strstr(api.vgpuLastMessage(), "late, issue or random"));
    unsetenv("MOEC_VGPU_ORDER");
    MUST(api.cuInit(0));
    MUST(api.cuInit(0));
    MUST(api.cuDeviceGetCount(&count));
    assert_int_equal(count, 1);
    MUST(api.cuDriverGetVersion(&version));
    assert_int_equal(version, 13000);
    CUdevice device = 7;
    MUST(api.cuDeviceGet(&device, 0));
    assert_int_equal(device, 0);
    EXPECT(CUDA_ERROR_INVALID_DEVICE, api.cuDeviceGet(&device, 1));
    char name[64];
    MUST(api.cuDeviceGetName(name, sizeof name, 0));
    assert_string_equal(name, "moec virtual GPU sm_80");
}

static int attribute(CUdevice_attribute which) {
    int value = -7;
    MUST(api.cuDeviceGetAttribute(&value, which, 0));
    return value;
}

static void test_architectures(void **state) {
    (void)state;
    static const struct { const char *arch; int major, minor, optin, cluster, threads; } rows[] = {
        { "sm_80", 8, 0, 163, 0, 2048 },   { "sm_89", 8, 9, 99, 0, 1536 },
        { "sm_90a", 9, 0, 227, 1, 2048 },  { "sm_100a", 10, 0, 227, 1, 2048 },
        { "sm_120a", 12, 0, 99, 1, 1536 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        api_begin(rows[i].arch, "late");
        assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), rows[i].major);
        assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), rows[i].minor);
        assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
                         rows[i].optin << 10);
        assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH), rows[i].cluster);
        assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
                         rows[i].threads);
        assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK), 48 << 10);
        assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
        assert_true(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) >= 1);
        int value;
        EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuDeviceGetAttribute(&value, 0, 0));
        EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuDeviceGetAttribute(&value, 148, 0));
        // Another device cannot take the place of one in use.
        EXPECT(CUDA_ERROR_ILLEGAL_STATE, api.vgpuInit(i == 2 ? "sm_80" : "sm_90a"));
        MUST(api.vgpuInit(rows[i].arch)); // it is there
        api_end();
    }
}

// Blocks that one multiprocessor holds are those of its architecture.
static void test_occupancy(void **state) {
    (void)state;
    static const struct { const char *arch; int wide, shared; } rows[] = {
        { "sm_80", 2, 4 }, { "sm_87", 1, 4 }, { "sm_89", 1, 2 }, { "sm_90a", 2, 5 },
        { "sm_120a", 1, 2 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CUmodule module;
        int blocks;
        api_begin(rows[i].arch, "late");
        CUfunction kernel = api_kernel(
            &module, ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { ret; }", "k");
        MUST(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 1024, 0));
        assert_int_equal(blocks, rows[i].wide);
        MUST(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 32, 40 << 10));
        assert_int_equal(blocks, rows[i].shared);
        api_end();
    }
}

static void test_errors(void **state) {
    (void)state;
    const char *text = "";
    MUST(api.cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
    assert_string_equal(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    MUST(api.cuGetErrorName(CUDA_SUCCESS, &text));
    assert_string_equal(text, "CUDA_SUCCESS");
    MUST(api.cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    assert_string_equal(text, "out of memory");
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuGetErrorName(12345, &text));
    assert_null(text);
}

static void test_proc_address(void **state) {
    (void)state;
    api_begin("sm_90a", "late");
    CUdriverProcAddressQueryResult status;
    void *at;
    MUST(api.cuGetProcAddress_v2("cuMemAlloc", &at, 12000, 0, &status));
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
    assert_ptr_equal(at, *(void **)&api.cuMemAlloc_v2);
    // The newest that is old enough.
    MUST(api.cuGetProcAddress_v2("cuStreamGetCaptureInfo", &at, 12000, 0, &status));
    assert_ptr_equal(at, *(void **)&api.cuStreamGetCaptureInfo_v2);
    MUST(api.cuGetProcAddress_v2("cuStreamGetCaptureInfo", &at, 13000, 0, &status));
    assert_ptr_equal(at, *(void **)&api.cuStreamGetCaptureInfo_v3);
    MUST(api.cuGetProcAddress_v2("cuEventElapsedTime", &at, 12000, 0, &status));
    assert_ptr_equal(at, *(void **)&api.cuEventElapsedTime);
    MUST(api.cuGetProcAddress_v2("cuLaunchKernelEx", &at, 11000, 0, &status));
    assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    assert_null(at);
    MUST(api.cuGetProcAddress_v2("cuFrobnicate", &at, 13000, 0, &status));
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT(CUDA_ERROR_NOT_FOUND, api.cuGetProcAddress_v2("cuFrobnicate", &at, 13000, 0, NULL));
    api_end();
}

static void *other_thread(void *argument) {
    CUcontext *contexts = argument;
    size_t free_bytes, total;
    contexts[1] = NULL;
    // A context is current by thread.
    if (api.cuMemGetInfo_v2(&free_bytes, &total) != CUDA_ERROR_INVALID_CONTEXT) return "a context";
    if (api.cuCtxSetCurrent(contexts[0])) return "cuCtxSetCurrent";
    if (api.cuMemGetInfo_v2(&free_bytes, &total)) return "cuMemGetInfo";
    return NULL;
}

static void test_contexts(void **state) {
    (void)state;
    api_begin("sm_90a", "late");
    CUcontext primary, again, other, current;
    MUST(api.cuCtxGetCurrent(&primary));
    MUST(api.cuDevicePrimaryCtxRetain(&again, 0));
    assert_ptr_equal(primary, again);
    MUST(api.cuDevicePrimaryCtxRelease_v2(0)); // one reference is left
    MUST(api.cuCtxSynchronize());
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxDestroy_v2(primary));

    MUST(api.cuCtxCreate_v4(&other, NULL, 0, 0)); // becomes current
    MUST(api.cuCtxGetCurrent(&current));
    assert_ptr_equal(current, other);
    CUdeviceptr at;
    MUST(api.cuMemAlloc_v2(&at, 100));
    MUST(api.cuCtxPushCurrent_v2(primary));
    MUST(api.cuCtxPopCurrent_v2(&current));
    assert_ptr_equal(current, primary);
    size_t before, after, total;
    MUST(api.cuMemGetInfo_v2(&before, &total));
    MUST(api.cuCtxDestroy_v2(other)); // and pops it
    MUST(api.cuCtxGetCurrent(&current));
    assert_ptr_equal(current, primary);
    MUST(api.cuMemGetInfo_v2(&after, &total));
    assert_true(after > before); // its memory went with it
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxSetCurrent(other));

    CUcontext contexts[2] = { primary };
    pthread_t thread;
    void *trouble;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, contexts), 0);
    assert_int_equal(pthread_join(thread, &trouble), 0);
    assert_null(trouble);

    MUST(api.cuCtxSetCurrent(NULL));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxSynchronize());
    assert_non_null(strstr(api.vgpuLastMessage(), "cuCtxSetCurrent"));
    MUST(api.cuCtxSetCurrent(primary));
    api_end();
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxSetCurrent(primary)); // the last reference went
}

static void test_handles(void **state) {
    (void)state;
    api_begin("sm_90a", "late");
    long wild[16] = { 0 };
    CUstream stream;
    CUevent event;
    CUfunction function;
    EXPECT(CUDA_ERROR_INVALID_HANDLE, api.cuStreamSynchronize((CUstream)wild));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, api.cuEventSynchronize((CUevent)wild));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, api.cuModuleGetFunction(&function, (CUmodule)wild, "k"));
    EXPECT(CUDA_ERROR_INVALID_HANDLE,
           api.cuLaunchKernel((CUfunction)wild, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    MUST(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(api.cuEventCreate(&event, CU_EVENT_DEFAULT));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, api.cuStreamSynchronize((CUstream)event));
    MUST(api.cuEventDestroy_v2(event));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, api.cuEventRecord(event, stream));
    MUST(api.cuStreamDestroy_v2(stream));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, api.cuStreamDestroy_v2(stream));
    // Many of them, to make the table grow and close its gaps.
    CUevent many[300];
    for (int i = 0; i < 300; i++) MUST(api.cuEventCreate(&many[i], 0));
    for (int i = 0; i < 300; i += 3) MUST(api.cuEventDestroy_v2(many[i]));
    for (int i = 0; i < 300; i++)
        EXPECT(i % 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE, api.cuEventQuery(many[i]));
    api_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start),        cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_occupancy),
        cmocka_unit_test(test_errors),       cmocka_unit_test(test_proc_address),
        cmocka_unit_test(test_contexts),     cmocka_unit_test(test_handles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
