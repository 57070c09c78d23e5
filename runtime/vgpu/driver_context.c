// SPDX-License-Identifier: Apache-2.0
// Contexts: the primary one and others, the stack of each thread, what a context owns. Contexts
// share the one device; destroying a context waits for its work and frees its memory, modules and
// streams.
#include <stdlib.h>

#include "runtime/vgpu/driver.h"

enum { STACK = 64 };
static _Thread_local struct { CUcontext at[STACK]; int n; } stack;

static const size_t limits[8] = { [CU_LIMIT_STACK_SIZE] = 1024,
                                  [CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20,
                                  [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20 };

CUcontext vgd_context_current(void) {
    CUcontext context = stack.n ? stack.at[stack.n - 1] : NULL;
    return vgd_object_is(context, VGD_CONTEXT) ? context : NULL;
}

/* Life ----------------------------------------------------------------------------------------- */

static CUcontext create(unsigned int flags) {
    CUcontext context = calloc(1, sizeof *context);
    if (!context || !vgd_object_add(context, VGD_CONTEXT, NULL)) {
        free(context);
        return NULL;
    }
    context->id = vgd_next_id();
    context->flags = flags;
    context->next = vgd.contexts;
    context->legacy_stream = (struct CUstream_st){ .context = context, .legacy = true };
    memcpy(context->limits, limits, sizeof limits);
    vgd.contexts = context;
    return context;
}

// Frees everything of the context. Its work is done or, after a fault, dropped.
static void clear(CUcontext context) {
    vgd_wait_context(context);
    vgd_pause();
    const void *object;
    while ((object = vgd_object_of(context, VGD_EXEC))) vgd_exec_free((CUgraphExec)object);
    for (CUstream stream; (stream = context->streams);) vgd_stream_free(stream);
    vgd_capture_forget(&context->legacy_stream);
    vgd_op_drop(context->legacy_stream.tail);
    context->legacy_stream.tail = NULL;
    while ((object = vgd_object_of(context, VGD_EVENT))) vgd_event_free((CUevent)object);
    while ((object = vgd_object_of(context, VGD_GRAPH))) {
        CUgraph graph = (CUgraph)object;
        while (graph->in) graph = graph->in->graph;
        vgd_graph_free(graph);
    }
    while ((object = vgd_object_of(context, VGD_MODULE))) vgd_module_free((CUmodule)object);
    while ((object = vgd_object_of(context, VGD_MEMORY))) {
        vg_mem_free(vgd.memory, (uint64_t)(uintptr_t)object & ~1ull);
        vgd_object_remove(object);
    }
    vgd_guests_free(context);
    vgd_pinned_free(context);
    context->sticky = CUDA_SUCCESS;
}

// From the first moment on nobody finds it: another thread may come while its work is waited for.
static void destroy(CUcontext context) {
    vgd_object_remove(context);
    if (vgd.primary == context) vgd.primary = NULL;
    clear(context);
    for (CUcontext *at = &vgd.contexts; *at; at = &(*at)->next) {
        if (*at != context) continue;
        *at = context->next;
        break;
    }
    free(context);
}

/* The primary context -------------------------------------------------------------------------- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CUresult result = vgd_enter_device(device);
    if (result) return result;
    if (!context) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    if (!vgd.primary) vgd.primary = create(vgd.primary_flags);
    if (!vgd.primary) return vgd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    vgd.primary->primary = true;
    vgd.primary->refs++;
    *context = vgd.primary;
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    CUresult result = vgd_enter_device(device);
    if (result) return result;
    if (!vgd.primary)
        return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_CONTEXT, "the primary context is not held"));
    if (!--vgd.primary->refs) destroy(vgd.primary);
    return vgd_leave(CUDA_SUCCESS);
}

// Those who retained it keep a context that is as new.
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    CUresult result = vgd_enter_device(device);
    if (result) return result;
    if (vgd.primary) clear(vgd.primary);
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
    CUresult result = vgd_enter_device(device);
    if (result) return result;
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    vgd.primary_flags = flags;
    if (vgd.primary) vgd.primary->flags = flags;
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
    CUresult result = vgd_enter_device(device);
    if (result) return result;
    if (!flags || !active) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = vgd.primary_flags;
    *active = vgd.primary != NULL;
    return vgd_leave(CUDA_SUCCESS);
}

/* Others, and the stack of the thread ---------------------------------------------------------- */

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
                        CUdevice device) {
    CUresult result = vgd_enter_device(device);
    if (result) return result;
    if (!context || flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    if (params)
        return vgd_leave(vgd_fail(CUDA_ERROR_NOT_SUPPORTED, "cuCtxCreate: no execution affinity"
                                  " and no graphics here\n  hint: give NULL parameters"));
    if (stack.n == STACK) return vgd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *context = create(flags);
    if (!*context) return vgd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    stack.at[stack.n++] = *context;
    return vgd_leave(CUDA_SUCCESS);
}

static CUresult check(CUcontext context) {
    if (vgd_object_is(context, VGD_CONTEXT)) return CUDA_SUCCESS;
    return vgd_fail(CUDA_ERROR_INVALID_CONTEXT, "%p is not a context, or no longer one",
                    (void *)context);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    CUresult result = vgd_enter_device(0);
    if (result) return result;
    result = check(context);
    if (!result && context->primary)
        result = vgd_fail(CUDA_ERROR_INVALID_CONTEXT, "the primary context is not destroyed\n"
                          "  hint: cuDevicePrimaryCtxRelease");
    if (result) return vgd_leave(result);
    if (stack.n && stack.at[stack.n - 1] == context) stack.n--;
    destroy(context);
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext context) {
    CUresult result = vgd_enter_device(0);
    if (result) return result;
    if (context && (result = check(context))) return vgd_leave(result);
    if (stack.n) stack.n--;
    if (context) stack.at[stack.n++] = context;
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    CUresult result = vgd_enter_device(0);
    if (result) return result;
    if (context) *context = vgd_context_current();
    return vgd_leave(context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    CUresult result = vgd_enter_device(0);
    if (result) return result;
    if ((result = check(context))) return vgd_leave(result);
    if (stack.n == STACK) return vgd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    stack.at[stack.n++] = context;
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    CUresult result = vgd_enter_device(0);
    if (result) return result;
    if (!stack.n) return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_CONTEXT, "no context to pop"));
    if (context) *context = stack.at[stack.n - 1];
    stack.n--;
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *device) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (device) *device = 0;
    return vgd_leave(device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuCtxGetFlags(unsigned int *flags) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (flags) *flags = context->flags;
    return vgd_leave(flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version) {
    CUresult result = vgd_enter_device(0);
    if (result) return result;
    if (context && (result = check(context))) return vgd_leave(result);
    if (version) *version = 13000;
    return vgd_leave(version ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuCtxSynchronize(void) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (context->captures) {
        for (VgdCapture *capture = context->captures; capture; capture = capture->next)
            capture->invalid = true;
        return vgd_leave(vgd_fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                                  "cuCtxSynchronize: a stream of the context is captured"));
    }
    vgd_wait_context(context);
    return vgd_leave(context->sticky);
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!value) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    if ((unsigned)limit >= 8) return vgd_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = context->limits[limit];
    return vgd_leave(CUDA_SUCCESS);
}

// Kept and told; the stack of a thread is as large as its kernel asks.
CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if ((unsigned)limit >= 8) return vgd_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    context->limits[limit] = value;
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (config) *config = CU_FUNC_CACHE_PREFER_NONE;
    return vgd_leave(config ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    (void)config; // a preference only
    CUcontext context;
    CUresult result = vgd_enter(&context);
    return result ? result : vgd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return vgd_leave(CUDA_SUCCESS);
}
