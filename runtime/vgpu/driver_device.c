// SPDX-License-Identifier: Apache-2.0
// Start, the one device and its attributes, names of errors, cuGetProcAddress.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/vgpu/driver.h"

/* Start ---------------------------------------------------------------------------------------- */

// Created under the lock; another one only while no context holds anything of the old.
static CUresult open_device(const char *name) {
    const char *threads = getenv("MOEC_VGPU_THREADS");
    VgDevice *device;
    if (vg_device_create(name, threads ? atoi(threads) : 0, &device))
        return vgd_status(CUDA_ERROR_NO_DEVICE);
    vg_device_destroy(vgd.device);
    snprintf(vgd.arch, sizeof vgd.arch, "%s", name);
    vgd.device = device;
    vgd.memory = vg_device_memory(device);
    vgd.reports = vg_device_reports(device);
    vgd.cc = vg_device_cc(device);
    const char *seed = getenv("MOEC_VGPU_SEED"), *order = getenv("MOEC_VGPU_ORDER");
    vgd.seed = seed ? strtoull(seed, NULL, 0) : 0;
    const char *quantum = getenv("MOEC_VGPU_QUANTUM");
    if (seed || quantum)
        vg_device_schedule(device, quantum ? (uint32_t)atoi(quantum) : 2000, vgd.seed);
    vgd.quiet = getenv("MOEC_VGPU_QUIET") != NULL;
    vgd.order = VGD_ORDER_LATE;
    if (!order || !strcmp(order, "late")) return CUDA_SUCCESS;
    if (!strcmp(order, "issue")) vgd.order = VGD_ORDER_ISSUE;
    else if (!strcmp(order, "random")) vgd.order = VGD_ORDER_RANDOM;
    else return vgd_fail(CUDA_ERROR_INVALID_VALUE, "MOEC_VGPU_ORDER=%s\n"
                         "  hint: it is late, issue or random", order);
    return CUDA_SUCCESS;
}

static CUresult init(const char *name) {
    if (vgd.contexts && !strcmp(vgd.arch, name)) return CUDA_SUCCESS; // it is this device already
    if (vgd.contexts)
        return vgd_fail(CUDA_ERROR_ILLEGAL_STATE, "vgpuInit: a context of %s exists\n"
                        "  hint: destroy it, or release the primary one, first", vgd.arch);
    CUresult result = open_device(name);
    if (result) return result;
    if (!vgd_queue_start()) return vgd_fail(CUDA_ERROR_OPERATING_SYSTEM, "no threads to be had");
    vgd.initialised = true;
    return CUDA_SUCCESS;
}

int vgpuInit(const char *name) {
    if (!name) return vgd_fail(CUDA_ERROR_INVALID_VALUE, "vgpuInit: no architecture given");
    pthread_mutex_lock(&vgd.lock);
    return vgd_leave(init(name));
}

CUresult cuInit(unsigned int flags) {
    if (flags) return vgd_fail(CUDA_ERROR_INVALID_VALUE, "cuInit: flags are 0, not %u", flags);
    pthread_mutex_lock(&vgd.lock);
    if (vgd.initialised) return vgd_leave(CUDA_SUCCESS);
    const char *name = getenv("MOEC_VGPU");
    return vgd_leave(init(name && *name ? name : "sm_90a"));
}

CUresult cuDriverGetVersion(int *version) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = 13000;
    return CUDA_SUCCESS;
}

/* The device ----------------------------------------------------------------------------------- */

CUresult cuDeviceGetCount(int *count) {
    CUresult result = vgd_enter_device(0);
    if (result) return result;
    if (count) *count = 1;
    return vgd_leave(count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    CUresult result = vgd_enter_device(ordinal);
    if (result) return result;
    if (device) *device = 0;
    return vgd_leave(device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
    CUresult result = vgd_enter_device(device);
    if (result) return result;
    if (!name || bytes < 1) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    snprintf(name, (size_t)bytes, "moec virtual GPU %s", vgd.arch);
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    CUresult result = vgd_enter_device(device);
    if (result) return result;
    if (!uuid) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    char name[sizeof uuid->bytes] = "moec-vgpu";
    memcpy(name + 10, vgd.arch, strnlen(vgd.arch, sizeof name - 10));
    memcpy(uuid->bytes, name, sizeof uuid->bytes);
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetPCIBusId(char *id, int bytes, CUdevice device) {
    CUresult result = vgd_enter_device(device);
    if (result) return result;
    if (!id || bytes < 13) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    snprintf(id, (size_t)bytes, "0000:00:00.0");
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    CUresult result = vgd_enter_device(device);
    if (result) return result;
    if (!bytes) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    uint64_t total, used;
    vg_mem_usage(vgd.memory, &total, &used);
    *bytes = total;
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    CUresult result = vgd_enter_device(device);
    if (result) return result;
    if (can) *can = 0;
    if (peer) return vgd_leave(CUDA_ERROR_INVALID_DEVICE);
    return vgd_leave(can ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

// Attributes not named here are 0: textures, peers, managed memory, sharing between processes are
// not had; times and rates of a device that has no clock are not made up.
int vgd_device_attribute(CUdevice_attribute which) {
    const VgSm *a = vg_device_sm(vgd.device);
    switch ((int)which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return INT32_MAX;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 48 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return (int)(a->optin << 10);
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return (int)(a->shared << 10);
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return 1 << 10;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: return 64 << 10;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH: return INT32_MAX;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 64 << 10;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return vg_device_sm_count(vgd.device);
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return (int)a->threads;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return (int)a->blocks;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return vgd.cc / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return vgd.cc % 10;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 32 << 20;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT: return 512;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: return vgd.cc >= 90;
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT: return vgd.cc >= 90 ? 4 : 1;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID: return -1;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: return 0;
    default: return 0;
    }
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
    CUresult result = vgd_enter_device(device);
    if (result) return result;
    if (!value || (int)which < 1 || which >= CU_DEVICE_ATTRIBUTE_MAX)
        return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "device attribute %d: not one", which));
    *value = vgd_device_attribute(which);
    return vgd_leave(CUDA_SUCCESS);
}

/* Errors --------------------------------------------------------------------------------------- */

CUresult cuGetErrorName(CUresult error, const char **text) {
    if (!text) return CUDA_ERROR_INVALID_VALUE;
    *text = NULL;
    switch (error) {
#define X(name, value, meaning) case CUDA_##name: *text = "CUDA_" #name; return CUDA_SUCCESS;
        CUDA_RESULTS(X)
#undef X
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    if (!text) return CUDA_ERROR_INVALID_VALUE;
    *text = NULL;
    switch (error) {
#define X(name, value, meaning) case CUDA_##name: *text = meaning; return CUDA_SUCCESS;
        CUDA_RESULTS(X)
#undef X
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* cuGetProcAddress ----------------------------------------------------------------------------- */

static const struct Call { const char *symbol, *name; int version; void *function; } calls[] = {
#define X(symbol, name, version, params) { #symbol, name, version, (void *)symbol },
    CUDA_CALLS(X)
#undef X
};

// The newest form of the name that is no newer than `version`; a full symbol names itself.
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    if (!symbol || !function) return CUDA_ERROR_INVALID_VALUE;
    const struct Call *best = NULL;
    bool known = false;
    for (int i = 0; i < COUNT_OF(calls); i++) {
        bool exact = !strcmp(calls[i].symbol, symbol) && strcmp(calls[i].name, symbol);
        if (!exact && strcmp(calls[i].name, symbol)) continue;
        known = true;
        if (calls[i].version > version && !exact) continue;
        if (!best || calls[i].version > best->version) best = &calls[i];
    }
    // There are no calls whose default stream is the thread's.
    if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) best = NULL;
    *function = best ? best->function : NULL;
    if (status)
        *status = best    ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                          : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return best || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
