// SPDX-License-Identifier: Apache-2.0
// Memory of the driver: allocations, copies of every shape, fills, page-locked memory, pointers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/vgpu/api.h"

static int begin(void **state) {
    (void)state;
    api_begin("sm_90a", "late");
    return 0;
}

static int end(void **state) {
    (void)state;
    api_end();
    return 0;
}

static void test_allocations(void **state) {
    (void)state;
    CUdeviceptr a, b, start;
    size_t bytes, before, during, total;
    MUST(api.cuMemGetInfo_v2(&before, &total));
    MUST(api.cuMemAlloc_v2(&a, 1000));
    MUST(api.cuMemAlloc_v2(&b, 1));
    MUST(api.cuMemGetInfo_v2(&during, &total));
    assert_true(before - during >= 1001);
    assert_int_equal(a % 256, 0);
    MUST(api.cuMemGetAddressRange_v2(&start, &bytes, a + 999));
    assert_true(start == a && bytes == 1000);
    EXPECT(CUDA_ERROR_NOT_FOUND, api.cuMemGetAddressRange_v2(&start, &bytes, a + 1000));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemAlloc_v2(&b, 0));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, api.cuMemAlloc_v2(&start, (size_t)1 << 50));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemFree_v2(a + 4));
    MUST(api.cuMemFree_v2(0));
    MUST(api.cuMemFree_v2(a));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemFree_v2(a));
    char byte;
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyDtoH_v2(&byte, a, 1));
    MUST(api.cuMemFree_v2(b));
    size_t pitch;
    MUST(api.cuMemAllocPitch_v2(&a, &pitch, 100, 3, 4));
    assert_true(pitch >= 100 && pitch % 256 == 0);
    MUST(api.cuMemFree_v2(a));
}

static void test_linear_copies(void **state) {
    (void)state;
    char from[64], to[64] = { 0 };
    for (int i = 0; i < 64; i++) from[i] = (char)(i * 3);
    CUdeviceptr a, b;
    MUST(api.cuMemAlloc_v2(&a, 64));
    MUST(api.cuMemAlloc_v2(&b, 64));
    MUST(api.cuMemcpyHtoD_v2(a, from, 64));
    MUST(api.cuMemcpyDtoD_v2(b + 1, a, 63));
    MUST(api.cuMemcpyDtoH_v2(to, b + 1, 63));
    assert_memory_equal(to, from, 63);
    MUST(api.cuMemcpyDtoD_v2(a + 8, a, 40)); // overlapping
    MUST(api.cuMemcpy((CUdeviceptr)(uintptr_t)to, a, 48));
    assert_memory_equal(to, from, 8);
    assert_memory_equal(to + 8, from, 40);
    // Ends are checked at the call, with nothing done.
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyHtoD_v2(a + 1, from, 64));
    assert_non_null(strstr(api.vgpuLastMessage(), "64 bytes at byte 1 of an allocation of 64"));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyDtoH_v2(to, a - 1, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyHtoD_v2(a, NULL, 1));
    MUST(api.cuMemcpyHtoD_v2(a, NULL, 0));
}

static void test_unwritten_bytes(void **state) {
    (void)state;
    CUdeviceptr a;
    char to[16];
    MUST(api.cuMemAlloc_v2(&a, 16));
    MUST(api.cuMemsetD8_v2(a, 7, 12));
    api.vgpuClearReports();
    MUST(api.cuMemcpyDtoH_v2(to, a, 12));
    assert_int_equal(api.vgpuReportCount(), 0);
    MUST(api.cuMemcpyDtoH_v2(to, a, 16)); // goes on: it may be padding
    assert_int_equal(api.vgpuReportCount(), 1);
    assert_int_equal(to[11], 7);
    assert_string_not_equal(api.vgpuLastReport(), "");
}

static void test_fills(void **state) {
    (void)state;
    CUdeviceptr a;
    unsigned char bytes[48];
    MUST(api.cuMemAlloc_v2(&a, 48));
    MUST(api.cuMemsetD8_v2(a, 0xab, 48));
    MUST(api.cuMemsetD16_v2(a + 2, 0x1234, 2));
    MUST(api.cuMemsetD32_v2(a + 8, 0xdeadbeef, 1));
    MUST(api.cuMemsetD2D32_v2(a + 16, 12, 0x01020304, 2, 3)); // rows at 16, 28, 40
    MUST(api.cuMemcpyDtoH_v2(bytes, a, 48));
    unsigned char expected[48];
    memset(expected, 0xab, 48);
    memcpy(expected + 2, "\x34\x12\x34\x12", 4);
    memcpy(expected + 8, "\xef\xbe\xad\xde", 4);
    for (int row = 0; row < 3; row++) memcpy(expected + 16 + 12 * row, "\4\3\2\1\4\3\2\1", 8);
    assert_memory_equal(bytes, expected, 48);
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemsetD32_v2(a + 2, 0, 1));      // address
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemsetD32_v2(a, 0, 13));         // end
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemsetD2D8_v2(a, 4, 0, 5, 2));   // pitch
}

// A box out of a volume into another place of another volume, against a loop.
static void test_boxes(void **state) {
    (void)state;
    enum { X = 7, Y = 5, Z = 3 };
    unsigned char from[X * Y * Z], to[X * Y * Z], expected[X * Y * Z];
    for (int i = 0; i < X * Y * Z; i++) from[i] = (unsigned char)i;
    memset(to, 0xee, sizeof to);
    memset(expected, 0xee, sizeof expected);
    CUdeviceptr a;
    MUST(api.cuMemAlloc_v2(&a, sizeof from));
    MUST(api.cuMemcpyHtoD_v2(a, from, sizeof from));
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = a, .srcPitch = X, .srcHeight = Y,
        .srcXInBytes = 1, .srcY = 2, .srcZ = 1,
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = to, .dstPitch = X, .dstHeight = Y,
        .dstXInBytes = 3, .dstY = 0, .dstZ = 1,
        .WidthInBytes = 4, .Height = 3, .Depth = 2,
    };
    MUST(api.cuMemcpy3D_v2(&copy));
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 4; x++)
                expected[((z + 1) * Y + y) * X + x + 3] = from[((z + 1) * Y + y + 2) * X + x + 1];
    assert_memory_equal(to, expected, sizeof to);
    CUDA_MEMCPY2D flat = {
        .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = from, .srcPitch = X, .srcY = 1,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = a, .dstPitch = 16, .dstXInBytes = 2,
        .WidthInBytes = 5, .Height = 4,
    };
    MUST(api.cuMemcpy2D_v2(&flat));
    unsigned char rows[16 * 3 + 7];
    MUST(api.cuMemcpyDtoH_v2(rows, a, sizeof rows));
    for (int y = 0; y < 4; y++) assert_memory_equal(rows + 16 * y + 2, from + (y + 1) * X, 5);
    copy.srcZ = 2; // two slices from the last one on
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemcpy3D_v2(&copy));
    flat.dstPitch = 3;
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemcpy2D_v2(&flat));
}

// When host memory is read: page-locked in the stream's turn, pageable at the call.
static void test_when_read(void **state) {
    (void)state;
    CUstream stream, other;
    CUdeviceptr a;
    char *pinned, plain[4] = "old", got[4];
    MUST(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(api.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING)); // two: work waits for a waiter
    MUST(api.cuMemAlloc_v2(&a, 4));
    MUST(api.cuMemAllocHost_v2((void **)&pinned, 4));
    memcpy(pinned, "old", 4);
    MUST(api.cuMemcpyHtoDAsync_v2(a, pinned, 4, stream));
    memcpy(pinned, "new", 4);
    MUST(api.cuMemcpyDtoHAsync_v2(got, a, 4, stream)); // to pageable memory: waits
    assert_string_equal(got, "new");
    MUST(api.cuMemcpyHtoDAsync_v2(a, plain, 4, stream));
    memcpy(plain, "new", 4);
    MUST(api.cuMemcpyDtoHAsync_v2(got, a, 4, stream));
    assert_string_equal(got, "old");
    // A registered range is page-locked as a whole, and in the stream's turn written.
    char range[8] = "xxxxxxx";
    MUST(api.cuMemHostRegister_v2(range, 8, 0));
    EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, api.cuMemHostRegister_v2(range + 7, 8, 0));
    MUST(api.cuMemcpyDtoHAsync_v2(range + 2, a, 4, stream));
    assert_string_equal(range, "xxxxxxx");
    MUST(api.cuStreamSynchronize(stream));
    assert_memory_equal(range, "xxold", 6);
    MUST(api.cuMemHostUnregister(range));
    EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, api.cuMemHostUnregister(range));
    unsigned int flags = 9;
    MUST(api.cuMemHostGetFlags(&flags, pinned));
    assert_int_equal(flags, 0);
    MUST(api.cuMemFreeHost(pinned));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemFreeHost(pinned));
}

static void test_stream_order(void **state) {
    (void)state;
    CUstream stream;
    CUdeviceptr a, b;
    char got[8];
    MUST(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(api.cuMemAllocAsync(&a, 8, stream));
    MUST(api.cuMemsetD8Async(a, 5, 8, stream));
    MUST(api.cuMemFreeAsync(a, stream));
    MUST(api.cuStreamSynchronize(stream));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyDtoH_v2(got, a, 8));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemFreeAsync(a, stream));
    // A use that was issued before the free and is not ordered with it: the late order shows it.
    CUstream other;
    MUST(api.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(api.cuMemAlloc_v2(&b, 8));
    MUST(api.cuMemsetD8Async(b, 5, 8, other));
    MUST(api.cuMemFreeAsync(b, stream));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, api.cuCtxSynchronize());
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, api.cuMemAlloc_v2(&b, 8)); // sticky
    MUST(api.cuDevicePrimaryCtxReset_v2(0));
    MUST(api.cuMemAlloc_v2(&b, 8));
}

static void test_pointers(void **state) {
    (void)state;
    CUdeviceptr a, at;
    void *pinned;
    unsigned int type = 0;
    size_t bytes;
    MUST(api.cuMemAlloc_v2(&a, 100));
    MUST(api.cuMemHostAlloc(&pinned, 50, CU_MEMHOSTALLOC_PORTABLE));
    MUST(api.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 10));
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    MUST(api.cuPointerGetAttribute(&at, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, a + 10));
    assert_true(at == a);
    MUST(api.cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, a + 10));
    assert_int_equal(bytes, 100);
    at = (CUdeviceptr)(uintptr_t)pinned + 7;
    MUST(api.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    assert_int_equal(type, CU_MEMORYTYPE_HOST);
    at = (CUdeviceptr)(uintptr_t)&type;
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           api.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    CUpointer_attribute which[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_CONTEXT };
    CUcontext context = (CUcontext)&type;
    void *values[] = { &type, &context };
    MUST(api.cuPointerGetAttributes(2, which, values, at));
    assert_int_equal(type, 0);
    assert_null(context);
}

// Products and sums that wrap are refused, not cut.
static void test_sizes_that_wrap(void **state) {
    (void)state;
    CUdeviceptr at;
    size_t pitch;
    char host[64] = { 0 };
    MUST(api.cuMemAlloc_v2(&at, 64));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, api.cuMemAllocPitch_v2(&at, &pitch, 1024, (size_t)1 << 54, 4));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, api.cuMemAllocPitch_v2(&at, &pitch, SIZE_MAX, 1, 4));
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = at,
        .WidthInBytes = 16, .Height = ((size_t)1 << 60) + 1, .Depth = 1,
    };
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemcpy3D_v2(&copy));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemcpy3DAsync_v2(&copy, NULL));
    copy.Height = 1, copy.Depth = ((size_t)1 << 60) + 1;
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemcpy3D_v2(&copy));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemsetD2D32_v2(at, 4, 1, 1, ((size_t)1 << 62) + 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemsetD32_v2(at, 1, ((size_t)1 << 62) + 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemHostRegister_v2(host, SIZE_MAX, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_allocations, begin, end),
        cmocka_unit_test_setup_teardown(test_linear_copies, begin, end),
        cmocka_unit_test_setup_teardown(test_unwritten_bytes, begin, end),
        cmocka_unit_test_setup_teardown(test_fills, begin, end),
        cmocka_unit_test_setup_teardown(test_boxes, begin, end),
        cmocka_unit_test_setup_teardown(test_when_read, begin, end),
        cmocka_unit_test_setup_teardown(test_stream_order, begin, end),
        cmocka_unit_test_setup_teardown(test_pointers, begin, end),
        cmocka_unit_test_setup_teardown(test_sizes_that_wrap, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
