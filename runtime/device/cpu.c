// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: regions are anonymous pages that the system zeroes at first touch, so that
// `resident` counts exactly the pages a run used; a launch is a turn of the pool.
#include "runtime/device/device.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/device/fence.h"
#include "runtime/jit/jit.h"

typedef struct Cpu {
    Device base;
    Jit *jit;
} Cpu;

static Status cpu_alloc(Device *device, int64_t bytes, bool small_pages, const char *what,
                        void **out) {
    (void)device;
    int64_t whole = bytes + 2 * FENCE_MARGIN;
    char *at = mmap(NULL, (size_t)whole, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return status_fail(ERR_MEMORY,
                           "cannot map %lld bytes for %s: %s\n"
                           "  hint: use a smaller microbatch or model",
                           (long long)bytes, what, strerror(errno));
    // Both are wishes. Huge pages save table walks; small ones count exactly what is touched.
    madvise(at, (size_t)whole, small_pages ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    fence(at, whole, true);
    fence(at + FENCE_MARGIN, bytes, false);
    *out = at + FENCE_MARGIN;
    return OK;
}

static Status cpu_alloc_host(Device *device, int64_t bytes, const char *what, void **out) {
    return cpu_alloc(device, bytes, false, what, out);
}

static void cpu_release(Device *device, void *at, int64_t bytes) {
    (void)device;
    if (!at) return;
    char *first = (char *)at - FENCE_MARGIN;
    fence(first, bytes + 2 * FENCE_MARGIN, false);
    munmap(first, (size_t)(bytes + 2 * FENCE_MARGIN));
}

static int64_t cpu_resident(const Device *device, const void *at, int64_t bytes) {
    enum { CHUNK = 4096 };
    (void)device;
    unsigned char resident[CHUNK];
    int64_t page = sysconf(_SC_PAGESIZE), pages = div_up(bytes, page), touched = 0;
    for (int64_t first = 0; at && first < pages; first += CHUNK) {
        int64_t n = min_i64(CHUNK, pages - first);
        char *from = (char *)(uintptr_t)at + first * page;
        if (mincore(from, (size_t)(n * page), resident) != 0) break;
        for (int64_t i = 0; i < n; i++) touched += resident[i] & 1;
    }
    return touched * page;
}

static Status cpu_copy(Device *device, void *to, const void *from, int64_t bytes) {
    (void)device;
    if (to != from) memmove(to, from, (size_t)bytes);
    return OK;
}

static Status cpu_fill(Device *device, void *at, uint32_t word, int64_t bytes) {
    (void)device;
    if (!word) {
        memset(at, 0, (size_t)bytes);
        return OK;
    }
    uint32_t *words = at;
    for (int64_t i = 0; i < bytes / 4; i++) words[i] = word;
    return OK;
}

static Status cpu_load(Device *device, const Plan *plan, DeviceProgress progress, void *user,
                       const JitShare *share, DeviceKernel *kernels) {
    Cpu *cpu = (Cpu *)device;
    TRY(jit_load(plan, progress, user, share, &cpu->jit));
    for (uint32_t i = 0; i < plan->n_kernels; i++)
        kernels[i] = (DeviceKernel){ .tiles = jit_function(cpu->jit, i),
                                     .entry = plan->kernels[i].entry,
                                     .n_tiles = plan->kernels[i].tiles,
                                     .n_args = plan->kernels[i].n_args };
    return OK;
}

static Status cpu_launch(Device *device, const DeviceKernel *kernel, void *const *args,
                         double *seconds) {
    double start = seconds ? time_seconds() : 0;
    pool_run(device->pool, kernel->tiles, args, kernel->n_tiles);
    if (seconds) *seconds += time_seconds() - start;
    return OK;
}

static Status cpu_stamp(Device *device, double *at) {
    (void)device;
    *at = time_seconds();
    return OK;
}

static Status cpu_stamps(Device *device, int64_t n) {
    (void)device, (void)n;
    return OK;
}

static Status cpu_synchronize(Device *device) {
    (void)device;
    return OK;
}

static DeviceInfo cpu_info(const Device *device) {
    int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    return (DeviceInfo){ .name = "CPU", .target = "cpu", .memory = memory,
                         .units = pool_threads(device->pool) };
}

static void cpu_close(Device *device) {
    jit_destroy(((Cpu *)device)->jit);
    memory_free(device);
}

static const DeviceApi api = {
    .kind = "cpu",
    .on_host = true,
    .close = cpu_close,
    .info = cpu_info,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .alloc_host = cpu_alloc_host,
    .release_host = cpu_release,
    .resident = cpu_resident,
    .copy_in = cpu_copy,
    .copy_out = cpu_copy,
    .fill = cpu_fill,
    .load = cpu_load,
    .launch = cpu_launch,
    .stamp = cpu_stamp,
    .stamps = cpu_stamps,
    .synchronize = cpu_synchronize,
};

Status cpu_open(Pool *pool, Device **out) {
    Cpu *cpu = memory_alloc(sizeof *cpu);
    cpu->base = (Device){ &api, pool };
    *out = &cpu->base;
    return OK;
}
