// SPDX-License-Identifier: Apache-2.0
// Device memory, page-locked host memory, and questions about pointers.
//
// Whether host memory is page-locked decides when a copy reads it: see driver_copy.c. Kernels do
// not reach host memory (CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY is 0).
#include <stdio.h>
#include <stdlib.h>

#include "runtime/vgpu/driver.h"

typedef struct Pinned {
    void *at;
    size_t bytes;
    unsigned int flags;
    bool ours;               // allocated here, not registered
    CUcontext context;
} Pinned;
static struct { Pinned *at; uint32_t n, cap; } pinned;

static const void *key(uint64_t address) {
    return (const void *)(uintptr_t)(address | 1);
}

/* Device memory -------------------------------------------------------------------------------- */

static CUresult allocate(CUcontext context, size_t bytes, CUdeviceptr *at) {
    if (!at || !bytes)
        return vgd_fail(CUDA_ERROR_INVALID_VALUE, "an allocation of %zu bytes", bytes);
    char what[48];
    uint64_t address;
    snprintf(what, sizeof what, "allocation %llu", (unsigned long long)vgd_next_id());
    vgd_pause();
    if (vg_mem_alloc(vgd.memory, VG_GLOBAL, bytes, 0, what, &address))
        return vgd_status(CUDA_ERROR_OUT_OF_MEMORY);
    if (!vgd_object_add(key(address), VGD_MEMORY, context)) {
        vg_mem_free(vgd.memory, address);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *at = address;
    return CUDA_SUCCESS;
}

static CUresult check_owned(CUdeviceptr at) {
    if (vgd_object_is(key(at), VGD_MEMORY)) return CUDA_SUCCESS;
    return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%#llx is not the start of an allocation, or was"
                    " freed",
                    at);
}

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    result = vgd_capture_unsafe(context);
    return vgd_leave(result ? result : allocate(context, bytes, at));
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t height,
                            unsigned int element) {
    if (!pitch || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
    size_t bytes;
    *pitch = (width + 511) & ~(size_t)511;
    if (*pitch < width || __builtin_mul_overflow(*pitch, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return cuMemAlloc_v2(at, bytes);
}

// Waits for everything, as the real one does: kernels that use the memory may be pending.
CUresult cuMemFree_v2(CUdeviceptr at) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!at) return vgd_leave(CUDA_SUCCESS);
    result = vgd_capture_unsafe(context);
    if (!result) result = check_owned(at);
    if (result) return vgd_leave(result);
    vgd_wait_context(vgd_object_owner(key(at)));
    vgd_pause();
    vgd_object_remove(key(at));
    vg_mem_free(vgd.memory, at);
    return vgd_leave(context->sticky);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!free_bytes || !total) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    uint64_t all, used;
    vg_mem_usage(vgd.memory, &all, &used);
    *free_bytes = all - used;
    *total = all;
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr at) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    uint64_t first;
    size_t n;
    const char *what;
    if (!vg_mem_find(vgd.memory, at, &first, &n, &what)) return vgd_leave(CUDA_ERROR_NOT_FOUND);
    if (start) *start = first;
    if (bytes) *bytes = n;
    return vgd_leave(CUDA_SUCCESS);
}

/* Allocation in stream order ------------------------------------------------------------------- */

// The memory is there from the call on and is freed in the stream's turn, so that a use after the
// free, in any stream, meets freed memory. One pool, with nothing to set.

static CUmemoryPool the_pool(void) {
    return (CUmemoryPool)&vgd;
}

CUresult cuMemAllocAsync(CUdeviceptr *at, size_t bytes, CUstream handle) {
    CUcontext context;
    CUstream stream;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    result = vgd_stream_find(context, handle, &stream);
    if (!result && stream->capture) {
        stream->capture->invalid = true;
        result = vgd_fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuMemAllocAsync in a capture:"
                          " graphs"
                          " do not allocate here\n  hint: allocate before the capture");
    }
    return vgd_leave(result ? result : allocate(stream->context, bytes, at));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *at, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
    if (pool != the_pool()) return CUDA_ERROR_INVALID_VALUE;
    return cuMemAllocAsync(at, bytes, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr at, CUstream handle) {
    CUcontext context;
    CUstream stream;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    result = vgd_stream_find(context, handle, &stream);
    if (!result) result = check_owned(at);
    if (!result && stream->capture) {
        stream->capture->invalid = true;
        result = vgd_fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuMemFreeAsync in a capture");
    }
    if (result) return vgd_leave(result);
    VgdWork work = { .kind = VGD_FREE, .address = at };
    result = vgd_submit(stream, &work, NULL);
    if (!result) vgd_object_remove(key(at)); // a second free is an error at once
    return vgd_leave(result);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    CUresult result = vgd_enter_device(device);
    if (result) return result;
    if (pool) *pool = the_pool();
    return vgd_leave(pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    return cuDeviceGetDefaultMemPool(pool, device);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    (void)keep; // nothing is kept
    return pool == the_pool() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void *value) {
    if (pool != the_pool() || !value) return CUDA_ERROR_INVALID_VALUE;
    if ((int)which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) return CUDA_SUCCESS; // nothing is kept
    return vgd_fail(CUDA_ERROR_NOT_SUPPORTED, "memory pool attribute %d", which);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void *value) {
    if (pool != the_pool() || !value) return CUDA_ERROR_INVALID_VALUE;
    uint64_t total, used = 0;
    CUresult result = vgd_enter_device(0);
    if (result) return result;
    if ((int)which == CU_MEMPOOL_ATTR_USED_MEM_CURRENT) vg_mem_usage(vgd.memory, &total, &used);
    else if ((int)which != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        return vgd_leave(vgd_fail(CUDA_ERROR_NOT_SUPPORTED, "memory pool attribute %d", which));
    *(uint64_t *)value = used;
    return vgd_leave(CUDA_SUCCESS);
}

/* Page-locked host memory ---------------------------------------------------------------------- */

static Pinned *find_pinned(const void *at) {
    for (uint32_t i = 0; i < pinned.n; i++) {
        Pinned *p = &pinned.at[i];
        if ((uintptr_t)at - (uintptr_t)p->at < p->bytes) return p;
    }
    return NULL;
}

bool vgd_pinned(const void *at, size_t bytes, void **start, size_t *whole) {
    Pinned *p = find_pinned(at);
    if (!p || bytes > p->bytes - (size_t)((const char *)at - (char *)p->at)) return false;
    if (start) *start = p->at;
    if (whole) *whole = p->bytes;
    return true;
}

static CUresult add_pinned(Pinned entry) {
    if (pinned.n == pinned.cap) {
        uint32_t cap = pinned.cap ? pinned.cap * 2 : 16;
        Pinned *at = realloc(pinned.at, cap * sizeof *at);
        if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
        pinned.at = at;
        pinned.cap = cap;
    }
    pinned.at[pinned.n++] = entry;
    return CUDA_SUCCESS;
}

static void remove_pinned(Pinned *p) {
    if (p->ours) free(p->at);
    *p = pinned.at[--pinned.n];
}

void vgd_pinned_free(CUcontext context) {
    for (uint32_t i = pinned.n; i-- > 0;)
        if (pinned.at[i].context == context) remove_pinned(&pinned.at[i]);
}

CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned int flags) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    result = vgd_capture_unsafe(context);
    if (result) return vgd_leave(result);
    if (!at || !bytes || flags & ~7u) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    Pinned entry = { NULL, bytes, flags, true, context };
    if (posix_memalign(&entry.at, 4096, bytes)) return vgd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    if ((result = add_pinned(entry))) {
        free(entry.at);
        return vgd_leave(result);
    }
    *at = entry.at;
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuMemAllocHost_v2(void **at, size_t bytes) {
    return cuMemHostAlloc(at, bytes, 0);
}

static CUresult release_pinned(void *at, bool ours, CUresult otherwise) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    Pinned *p = find_pinned(at);
    if (!p || p->at != at || p->ours != ours)
        return vgd_leave(vgd_fail(otherwise, "%p is not the start of page-locked memory that was"
                                  " %s",
                                  at, ours ? "allocated" : "registered"));
    vgd_wait_context(p->context); // copies may be pending
    if ((p = find_pinned(at))) remove_pinned(p);
    return vgd_leave(context->sticky);
}

CUresult cuMemFreeHost(void *at) {
    return release_pinned(at, true, CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemHostUnregister(void *at) {
    return release_pinned(at, false, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned int flags) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!at || !bytes || bytes > UINTPTR_MAX - (uintptr_t)at || flags & ~15u)
        return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    for (uint32_t i = 0; i < pinned.n; i++) {
        char *start = pinned.at[i].at, *asked = at;
        if (asked < start + pinned.at[i].bytes && start < asked + bytes)
            return vgd_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    return vgd_leave(add_pinned((Pinned){ at, bytes, flags, false, context }));
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *at) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    Pinned *p = find_pinned(at);
    if (!flags || !p) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = p->flags;
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device_at, void *at, unsigned int flags) {
    (void)device_at, (void)flags;
    return vgd_fail(CUDA_ERROR_NOT_SUPPORTED, "%p: kernels do not reach host memory here\n  hint:"
                    " copy,"
                    " or ask CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY first", at);
}

/* Questions about pointers --------------------------------------------------------------------- */

static CUresult pointer_attribute(void *value, CUpointer_attribute which, CUdeviceptr at) {
    uint64_t start = 0;
    size_t bytes = 0;
    const char *what;
    Pinned *p = find_pinned((void *)(uintptr_t)at);
    bool device = !p && vg_mem_find(vgd.memory, at, &start, &bytes, &what);
    if (!device && !p)
        return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%#llx is in no allocation, of the device or"
                        " page-locked", at);
    CUcontext owner = device ? vgd_object_owner(key(start)) : p->context;
    switch ((int)which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)value = owner; break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)value = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        if (!device) return CUDA_ERROR_INVALID_VALUE;
        *(CUdeviceptr *)value = at;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (device) return CUDA_ERROR_INVALID_VALUE;
        *(void **)value = (void *)(uintptr_t)at;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned int *)value = 0; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = 0; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(unsigned int *)value = 1; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = device ? start : (uintptr_t)p->at;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = device ? bytes : p->bytes; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)value = device ? start : (uintptr_t)p->at;
        break;
    default: return vgd_fail(CUDA_ERROR_NOT_SUPPORTED, "pointer attribute %d", which);
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute which, CUdeviceptr at) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!value) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    return vgd_leave(pointer_attribute(value, which, at));
}

// Of an unknown pointer, and of what a pointer does not have, the answers are 0.
CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *which, void **values,
                                CUdeviceptr at) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!which || !values) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    for (unsigned int i = 0; i < n; i++) {
        bool small = which[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
                     which[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
                     which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ||
                     which[i] == CU_POINTER_ATTRIBUTE_MAPPED;
        if (pointer_attribute(values[i], which[i], at)) memset(values[i], 0, small ? 4 : 8);
    }
    return vgd_leave(CUDA_SUCCESS);
}
