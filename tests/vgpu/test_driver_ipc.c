// SPDX-License-Identifier: Apache-2.0
// Memory of two processes, each with its own virtual GPU: both reach it, what nobody wrote is found in
// both, and misuse is refused. Host functions that wait for each other.
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dlfcn.h>

#include <cmocka.h>

#include "tests/vgpu/api.h"

enum { N = 3000 };

static void say(int to, const void *what, size_t bytes) {
    assert_int_equal(write(to, what, bytes), bytes);
}

static void hear(int from, void *what, size_t bytes) {
    assert_int_equal(read(from, what, bytes), bytes);
}

// Adds one to the numbers that the other process shows, twice.
static void guest(int peer) {
    CUipcMemHandle handle;
    CUdeviceptr at, again;
    int numbers[N];
    char go;
    api_begin("sm_80", "issue");
    hear(peer, &handle, sizeof handle);
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuIpcOpenMemHandle_v2(&at, handle, 0));
    MUST(api.cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(api.cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    assert_true(at == again);
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemFree_v2(at)); // not this one's to free
    for (int turn = 0; turn < 2; turn++) {
        hear(peer, &go, 1);
        MUST(api.cuMemcpyDtoH_v2(numbers, at, sizeof numbers));
        for (int i = 0; i < N; i++) numbers[i]++;
        MUST(api.cuMemcpyHtoD_v2(at, numbers, sizeof numbers));
        say(peer, &go, 1);
    }
    assert_int_equal(api.vgpuReportCount(), 0);
    MUST(api.cuMemcpyDtoH_v2(numbers, at + sizeof numbers, 4)); // neither wrote it
    assert_int_equal(api.vgpuReportCount(), 1);
    assert_non_null(strstr(api.vgpuLastReport(), "memory of process"));
    MUST(api.cuIpcCloseMemHandle(again));
    MUST(api.cuMemcpyDtoH_v2(numbers, at, 4));
    MUST(api.cuIpcCloseMemHandle(at));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuIpcCloseMemHandle(at));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuMemcpyDtoH_v2(numbers, at, 4));
    say(peer, &go, 1);
    hear(peer, &go, 1); // freed there
    EXPECT(CUDA_ERROR_INVALID_HANDLE,
           api.cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    memset(&handle, 1, sizeof handle);
    EXPECT(CUDA_ERROR_INVALID_HANDLE,
           api.cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    api_end();
}

static void owner(int peer) {
    CUipcMemHandle handle, same;
    CUdeviceptr at, none;
    int numbers[N];
    char go = 1;
    api_begin("sm_80", "issue");
    MUST(api.cuMemAlloc_v2(&at, sizeof numbers + 4));
    for (int i = 0; i < N; i++) numbers[i] = i;
    MUST(api.cuMemcpyHtoD_v2(at, numbers, sizeof numbers)); // before it is shared
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuIpcGetMemHandle(&handle, at + 512));
    MUST(api.cuIpcGetMemHandle(&handle, at));
    MUST(api.cuIpcGetMemHandle(&same, at));
    assert_memory_equal(&handle, &same, sizeof handle);
    EXPECT(CUDA_ERROR_INVALID_CONTEXT,
           api.cuIpcOpenMemHandle_v2(&none, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    say(peer, &handle, sizeof handle);
    for (int turn = 0; turn < 2; turn++) {
        say(peer, &go, 1);
        hear(peer, &go, 1);
        MUST(api.cuMemcpyDtoH_v2(numbers, at, sizeof numbers));
        for (int i = 0; i < N; i++) assert_int_equal(numbers[i], i + 1 + 10 * turn + turn);
        for (int i = 0; i < N; i++) numbers[i] += 10;
        MUST(api.cuMemcpyHtoD_v2(at, numbers, sizeof numbers));
    }
    hear(peer, &go, 1);
    MUST(api.cuMemFree_v2(at));
    say(peer, &go, 1);
    assert_int_equal(api.vgpuReportCount(), 0);
    api_end();
}

static void test_two_processes(void **state) {
    (void)state;
    int ends[2], how;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid_t child = fork(); // before the driver has threads
    if (child == 0) {
        close(ends[0]);
        guest(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    owner(ends[0]);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static atomic_int arrived;

static void meet(void *unused) {
    (void)unused;
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < 3) usleep(100);
}

static void test_host_functions_wait(void **state) {
    (void)state;
    CUstream streams[3];
    void (*may_wait)(int);
    api_begin("sm_80", "late");
    *(void **)&may_wait = dlsym(api.library, "vgpuHostFunctionsMayWait");
    may_wait(1);
    for (int i = 0; i < 3; i++) {
        MUST(api.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        MUST(api.cuLaunchHostFunc(streams[i], meet, NULL));
    }
    for (int i = 0; i < 3; i++) MUST(api.cuStreamSynchronize(streams[i]));
    may_wait(0);
    api_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_processes),
        cmocka_unit_test(test_host_functions_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
