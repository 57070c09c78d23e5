// SPDX-License-Identifier: Apache-2.0
// Modules and launches: parameters in both forms, every refusal before a kernel runs, what a fault
// leaves behind, attributes and occupancy.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/vgpu/api.h"

#define HEAD ".version 8.3\n.target sm_80\n.address_size 64\n"

// mix(int *out, const int *in, short scale, int add): out[i] = in[i] * scale + add, bump[0] at the
// end
static const char mix[] = HEAD
    ".visible .global .align 4 .u32 bump[4] = {41, 2, 3, 4};\n"
    ".visible .entry mix(.param .u64 o, .param .u64 n, .param .u16 s, .param .u32 a)\n"
    ".maxntid 256, 1, 1\n{\n"
    "  .shared .align 4 .b8 fixed[128];\n"
    "  .reg .b64 %rd<8>; .reg .b32 %r<12>; .reg .b16 %h<2>;\n"
    "  ld.param.u64 %rd1, [o];\n  ld.param.u64 %rd2, [n];\n  ld.param.u16 %h1, [s];\n"
    "  ld.param.u32 %r1, [a];\n  cvt.s32.s16 %r2, %h1;\n"
    "  mov.u32 %r3, %ctaid.x;\n  mov.u32 %r4, %ntid.x;\n  mov.u32 %r5, %tid.x;\n"
    "  mad.lo.u32 %r6, %r3, %r4, %r5;\n  mul.wide.u32 %rd3, %r6, 4;\n"
    "  add.s64 %rd4, %rd1, %rd3;\n  add.s64 %rd5, %rd2, %rd3;\n  ld.global.u32 %r7, [%rd5];\n"
    "  mad.lo.s32 %r8, %r7, %r2, %r1;\n  st.global.u32 [%rd4], %r8;\n  ret;\n}\n"
    ".visible .entry poke(.param .u64 at)\n{\n"
    "  .reg .b64 %rd<2>;\n  ld.param.u64 %rd1, [at];\n  st.global.u32 [%rd1], 1;\n  ret;\n}\n"
    ".visible .entry stop()\n{\n  trap;\n  ret;\n}\n"
    ".visible .entry exact()\n.reqntid 32, 2, 1\n{\n  ret;\n}\n";

static CUmodule module;
static CUfunction kernel;
static CUdeviceptr in, out;

static void load(void) {
    kernel = api_kernel(&module, mix, "mix");
    int values[64];
    for (int i = 0; i < 64; i++) values[i] = i;
    MUST(api.cuMemAlloc_v2(&in, sizeof values));
    MUST(api.cuMemAlloc_v2(&out, sizeof values));
    MUST(api.cuMemcpyHtoD_v2(in, values, sizeof values));
}

static int begin(void **state) {
    (void)state;
    api_begin("sm_90a", "late");
    load();
    return 0;
}

static int end(void **state) {
    (void)state;
    api_end();
    return 0;
}

static void check(int scale, int add) {
    int values[64];
    MUST(api.cuMemcpyDtoH_v2(values, out, sizeof values));
    for (int i = 0; i < 64; i++) assert_int_equal(values[i], i * scale + add);
}

static void test_parameters(void **state) {
    (void)state;
    short scale = -3;
    int add = 100;
    void *params[] = { &out, &in, &scale, &add };
    MUST(api.cuLaunchKernel(kernel, 4, 1, 1, 16, 1, 1, 0, NULL, params, NULL));
    scale = 9, add = 0; // they were copied
    check(-3, 100);
    // Packed in a buffer, as the offsets say.
    size_t offset[4], bytes[4], n;
    for (n = 0; n < 4; n++) MUST(api.cuFuncGetParamInfo(kernel, n, &offset[n], &bytes[n]));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuFuncGetParamInfo(kernel, 4, &offset[0], NULL));
    assert_true(offset[1] == 8 && offset[2] == 16 && bytes[2] == 2 && offset[3] == 20);
    char buffer[24] = { 0 };
    memcpy(buffer, &out, 8);
    memcpy(buffer + 8, &in, 8);
    memcpy(buffer + 16, &(short){ 7 }, 2);
    memcpy(buffer + 20, &(int){ 5 }, 4);
    size_t size = sizeof buffer;
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                      CU_LAUNCH_PARAM_END };
    MUST(api.cuLaunchKernel(kernel, 2, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    check(7, 5);
    size = 23;
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           api.cuLaunchKernel(kernel, 2, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           api.cuLaunchKernel(kernel, 2, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    params[2] = NULL;
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           api.cuLaunchKernel(kernel, 2, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
}

static CUresult with(CUfunction function, CUlaunchAttributeID id, CUlaunchAttributeValue value,
                     unsigned int grid, unsigned int block, unsigned int shared) {
    static short scale = 1;
    static int add;
    void *params[] = { &out, &in, &scale, &add };
    CUlaunchAttribute attribute = { .id = id, .value = value };
    CUlaunchConfig config = { grid, 1, 1, block, 1, 1, shared, NULL, &attribute, 1 };
    return api.cuLaunchKernelEx(&config, function, params, NULL);
}

static CUresult cluster(unsigned int x, unsigned int grid) {
    CUlaunchAttributeValue value = { .clusterDim = { x, 1, 1 } };
    return with(kernel, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value, grid, 1, 0);
}

static void test_refusals(void **state) {
    (void)state;
    CUlaunchAttributeValue none = { 0 };
    const CUlaunchAttributeID nothing = CU_LAUNCH_ATTRIBUTE_IGNORE;
    MUST(with(kernel, nothing, none, 1, 64, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, with(kernel, nothing, none, 0, 64, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, with(kernel, nothing, none, 1, 0, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, with(kernel, nothing, none, 1, 257, 0)); // .maxntid
    assert_non_null(strstr(api.vgpuLastMessage(), "257 threads in a block; the kernel takes 256"));
    EXPECT(CUDA_ERROR_INVALID_VALUE, with(kernel, nothing, none, 0x80000000u, 1, 0));
    // Dynamic shared memory: 48 KiB with the declared 128 bytes, more after opting in.
    int size = 0;
    MUST(api.cuFuncGetAttribute(&size, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel));
    assert_int_equal(size, (48 << 10) - 128);
    MUST(with(kernel, nothing, none, 1, 64, (48 << 10) - 128));
    EXPECT(CUDA_ERROR_INVALID_VALUE, with(kernel, nothing, none, 1, 64, (48 << 10) - 127));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           api.cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                  (227 << 10) - 127));
    MUST(api.cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                200 << 10));
    MUST(with(kernel, nothing, none, 1, 64, 200 << 10));
    // Clusters.
    MUST(cluster(2, 4));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cluster(2, 5));
    EXPECT(CUDA_ERROR_INVALID_CLUSTER_SIZE, cluster(16, 16));
    MUST(api.cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    MUST(cluster(16, 16));
    EXPECT(CUDA_ERROR_INVALID_CLUSTER_SIZE, cluster(32, 32));
    // Cooperative: all blocks at once.
    CUlaunchAttributeValue yes = { .cooperative = 1 };
    int each, sms;
    MUST(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, 256, 100 << 10));
    MUST(api.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    assert_int_equal(each, 2); // 228 KiB, two of 101
    const CUlaunchAttributeID together = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    EXPECT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
           with(kernel, together, yes, (unsigned int)(each * sms + 1), 256, 100 << 10));
    // The exact block.
    CUfunction exact;
    MUST(api.cuModuleGetFunction(&exact, module, "exact"));
    MUST(api.cuLaunchKernel(exact, 1, 1, 1, 32, 2, 1, 0, NULL, NULL, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           api.cuLaunchKernel(exact, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL));
    // Nothing of that was an error that stays; the launches that went are within the arrays.
    MUST(api.cuCtxSynchronize());
}

static void test_clusters_by_architecture(void **state) {
    (void)state;
    api_end();
    api_begin("sm_80", "late");
    kernel = api_kernel(&module, mix, "mix");
    EXPECT(CUDA_ERROR_INVALID_VALUE, cluster(2, 2));
    assert_non_null(strstr(api.vgpuLastMessage(), "clusters need sm_90"));
}

static void run(const char *name, CUdeviceptr at) {
    CUfunction function;
    void *params[] = { &at };
    MUST(api.cuModuleGetFunction(&function, module, name));
    MUST(api.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
}

// A fault stops what follows in the context, in every stream, and every call tells of it.
static void test_sticky(void **state) {
    (void)state;
    static const struct {
        const char *kernel;
        int offset;
        CUresult error;
        const char *says;
    } rows[] = {
        { "poke", 256, CUDA_ERROR_ILLEGAL_ADDRESS, "illegal address" },
        { "poke", 2, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned" },
        { "stop", 0, CUDA_ERROR_LAUNCH_FAILED, "trap" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CUstream stream;
        CUdeviceptr at;
        CUcontext apart, primary;
        char *got;
        MUST(api.cuCtxGetCurrent(&primary));
        MUST(api.cuStreamCreate(&stream, 0));
        MUST(api.cuMemAllocHost_v2((void **)&got, 1));
        *got = 'x';
        MUST(api.cuMemsetD8_v2(out, 'y', 1));
        MUST(api.cuCtxSynchronize());
        api.vgpuClearReports();
        run(rows[i].kernel, out + (CUdeviceptr)rows[i].offset);
        MUST(api.cuMemcpyDtoHAsync_v2(got, out, 1, stream)); // after the kernel: it is blocking
        EXPECT(rows[i].error, api.cuCtxSynchronize());
        assert_int_equal(*got, 'x'); // dropped
        assert_int_equal(api.vgpuReportCount(), 1);
        if (!strstr(api.vgpuLastReport(), rows[i].says)) fail_msg("%s", api.vgpuLastReport());
        if (!strstr(api.vgpuLastReport(), rows[i].kernel)) fail_msg("%s", api.vgpuLastReport());
        EXPECT(rows[i].error, api.cuMemAlloc_v2(&at, 4));
        EXPECT(rows[i].error, api.cuStreamSynchronize(stream));
        EXPECT(rows[i].error, api.cuStreamQuery(stream));
        EXPECT(rows[i].error, api.cuMemcpyDtoH_v2(got, out, 1));
        // Another context is not touched by it.
        MUST(api.cuCtxCreate_v4(&apart, NULL, 0, 0));
        MUST(api.cuMemAlloc_v2(&at, 4));
        MUST(api.cuCtxDestroy_v2(apart));
        MUST(api.cuDevicePrimaryCtxReset_v2(0));
        MUST(api.cuCtxSetCurrent(primary));
        load(); // all is gone, and all works
        MUST(api.cuMemAlloc_v2(&at, 4));
    }
}

static void test_modules(void **state) {
    (void)state;
    CUmodule made;
    CUfunction function;
    CUdeviceptr at;
    size_t bytes;
    unsigned int value, count;
    const char *name;
    MUST(api.cuModuleGetGlobal_v2(&at, &bytes, module, "bump"));
    assert_int_equal(bytes, 16);
    MUST(api.cuMemcpyDtoH_v2(&value, at, 4));
    assert_int_equal(value, 41);
    EXPECT(CUDA_ERROR_NOT_FOUND, api.cuModuleGetGlobal_v2(&at, &bytes, module, "bumps"));
    EXPECT(CUDA_ERROR_NOT_FOUND, api.cuModuleGetFunction(&function, module, "mixed"));
    MUST(api.cuModuleGetFunctionCount(&count, module));
    assert_int_equal(count, 4);
    CUfunction all[4];
    MUST(api.cuModuleEnumerateFunctions(all, 4, module));
    MUST(api.cuFuncGetName(&name, all[3]));
    assert_string_equal(name, "exact");

    char log[512] = "";
    CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER };
    void *values[] = { (void *)sizeof log, log };
    EXPECT(CUDA_ERROR_INVALID_PTX,
           api.cuModuleLoadDataEx(&made, HEAD ".visible .entry k()\n{\n  frob.u32 %r1;\n}\n", 2,
                                  options, values));
    if (!strstr(log, "frob")) fail_msg("log: %s", log);
    assert_int_equal((size_t)values[0], strlen(log) + 1);
    EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, api.cuModuleLoadData(&made, "\x7f" "ELF\2\1\1"));
    assert_non_null(strstr(api.vgpuLastMessage(), "nvrtcGetPTX"));
    EXPECT(CUDA_ERROR_FILE_NOT_FOUND, api.cuModuleLoad(&made, "/nowhere/k.ptx"));

    // A library is the same text under other handles.
    CUlibrary library;
    CUkernel one;
    MUST(api.cuLibraryLoadData(&library, mix, NULL, NULL, 0, NULL, NULL, 0));
    MUST(api.cuLibraryGetKernel(&one, library, "stop"));
    MUST(api.cuKernelGetFunction(&function, one));
    MUST(api.cuFuncGetName(&name, function));
    assert_string_equal(name, "stop");
    MUST(api.cuLibraryGetModule(&made, library));
    MUST(api.cuLibraryUnload(library));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, api.cuFuncGetName(&name, function));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, api.cuModuleUnload(made));
    MUST(api.cuModuleUnload(module));
    EXPECT(CUDA_ERROR_INVALID_HANDLE,
           api.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

static void test_target(void **state) {
    (void)state;
    CUmodule made;
    static const char newer[] = ".version 8.6\n.target sm_100\n.address_size 64\n"
                                ".visible .entry k()\n{\n  ret;\n}\n";
    static const char special[] = ".version 8.0\n.target sm_90a\n.address_size 64\n"
                                  ".visible .entry k()\n{\n  ret;\n}\n";
    EXPECT(CUDA_ERROR_INVALID_PTX, api.cuModuleLoadData(&made, newer));
    MUST(api.cuModuleLoadData(&made, special));
    api_end();
    api_begin("sm_100a", "late");
    EXPECT(CUDA_ERROR_INVALID_PTX, api.cuModuleLoadData(&made, special)); // not upwards
    MUST(api.cuModuleLoadData(&made, newer));
}

static int attribute(CUfunction_attribute which) {
    int value = -7;
    MUST(api.cuFuncGetAttribute(&value, which, kernel));
    return value;
}

static size_t shared_for(int threads) {
    return (size_t)threads * 1024;
}

static void test_attributes(void **state) {
    (void)state;
    assert_int_equal(attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 256);
    assert_int_equal(attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 128);
    assert_int_equal(attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES), 0);
    assert_int_equal(attribute(CU_FUNC_ATTRIBUTE_PTX_VERSION), 80);
    assert_int_equal(attribute(CU_FUNC_ATTRIBUTE_BINARY_VERSION), 90);
    assert_true(attribute(CU_FUNC_ATTRIBUTE_NUM_REGS) > 0);
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           api.cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_NUM_REGS, 3));
    int grid, block, sms;
    MUST(api.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    MUST(api.cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel, NULL, 0, 0));
    assert_int_equal(block, 256);
    assert_int_equal(grid, 8 * sms); // 2048 threads
    MUST(api.cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel, shared_for, 0, 128));
    assert_true(block == 128 || block == 96 || block == 64 || block == 32);
    size_t room;
    MUST(api.cuOccupancyAvailableDynamicSMemPerBlock(&room, kernel, 2, 256));
    int each;
    MUST(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, 256, room));
    assert_true(each >= 2);
    MUST(api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, 256, room + 1));
    assert_true(each < 2);
}

// Events of launch attributes come after the kernel.
static void test_completion_event(void **state) {
    (void)state;
    CUevent event;
    CUstream other;
    int got[64];
    MUST(api.cuEventCreate(&event, 0));
    MUST(api.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(api.cuMemHostRegister_v2(got, sizeof got, 0));
    CUlaunchAttributeValue value = { .launchCompletionEvent = { event, 0 } };
    MUST(with(kernel, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, value, 1, 64, 0));
    MUST(api.cuStreamWaitEvent(other, event, 0));
    MUST(api.cuMemcpyDtoHAsync_v2(got, out, sizeof got, other));
    MUST(api.cuCtxSynchronize());
    assert_int_equal(got[63], 63);
    MUST(api.cuMemHostUnregister(got));
}

// Memory that was to be freed in the turn of a stream that failed is freed all the same.
static void test_freed_after_fault(void **state) {
    (void)state;
    size_t before, after, total;
    CUcontext primary, apart;
    CUdeviceptr at;
    CUstream stream;
    MUST(api.cuCtxGetCurrent(&primary));
    MUST(api.cuMemGetInfo_v2(&before, &total));
    MUST(api.cuCtxCreate_v4(&apart, NULL, 0, 0));
    CUmodule own;
    CUfunction stop = api_kernel(&own, mix, "stop");
    MUST(api.cuStreamCreate(&stream, 0));
    MUST(api.cuMemAlloc_v2(&at, 1 << 20));
    MUST(api.cuLaunchKernel(stop, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    MUST(api.cuMemFreeAsync(at, stream));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, api.cuCtxSynchronize());
    MUST(api.cuCtxDestroy_v2(apart));
    MUST(api.cuCtxSetCurrent(primary));
    MUST(api.cuMemGetInfo_v2(&after, &total));
    assert_int_equal(before, after);
}

// Images that are shorter than any mark, and parameters in both forms.
static void test_small_refusals(void **state) {
    (void)state;
    CUmodule none;
    char *image = calloc(1, 1);
    EXPECT(CUDA_ERROR_INVALID_PTX, api.cuModuleLoadData(&none, image));
    *image = 0x7f;
    char *two = memcpy(malloc(2), "\x7f", 2);
    EXPECT(CUDA_ERROR_INVALID_PTX, api.cuModuleLoadData(&none, two));
    free(image);
    free(two);
    CUfunction poke;
    MUST(api.cuModuleGetFunction(&poke, module, "poke"));
    size_t bytes = sizeof out;
    void *params[] = { &out };
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &out, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                      CU_LAUNCH_PARAM_END };
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           api.cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, params, extra));
    MUST(api.cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    MUST(api.cuCtxSynchronize());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_parameters, begin, end),
        cmocka_unit_test_setup_teardown(test_refusals, begin, end),
        cmocka_unit_test_setup_teardown(test_clusters_by_architecture, begin, end),
        cmocka_unit_test_setup_teardown(test_sticky, begin, end),
        cmocka_unit_test_setup_teardown(test_modules, begin, end),
        cmocka_unit_test_setup_teardown(test_target, begin, end),
        cmocka_unit_test_setup_teardown(test_attributes, begin, end),
        cmocka_unit_test_setup_teardown(test_completion_event, begin, end),
        cmocka_unit_test_setup_teardown(test_freed_after_fault, begin, end),
        cmocka_unit_test_setup_teardown(test_small_refusals, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
