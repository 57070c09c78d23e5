// SPDX-License-Identifier: Apache-2.0
// Copies and fills.
//
// When host memory is read and written, as the real driver documents it. Page-locked memory: when
// the copy's turn comes in its stream, however late; the call does not wait. Pageable memory: a
// copy to the device has read it when the call returns (it was staged), a copy to the host has
// written it. Between device addresses nothing waits. In the legacy stream, calls without Async
// wait for their copy if the host takes part.
#include <stdlib.h>

#include "runtime/vgpu/driver.h"

/* Checks --------------------------------------------------------------------------------------- */

// slice * (depth - 1) + pitch * (height - 1) + width; SIZE_MAX, which nothing has, where that wraps.
static size_t extent(size_t slice, size_t depth, size_t pitch, size_t height, size_t width) {
    size_t slices, rows, bytes;
    if (!width || !height || !depth) return 0;
    bool wraps = __builtin_mul_overflow(slice, depth - 1, &slices) ||
                 __builtin_mul_overflow(pitch, height - 1, &rows) ||
                 __builtin_add_overflow(slices, rows, &bytes) ||
                 __builtin_add_overflow(bytes, width, &bytes);
    return wraps ? SIZE_MAX : bytes;
}

static size_t span(const VgdSide *side, const VgdWork *work) {
    return extent(side->slice, work->copy.depth, side->pitch, work->copy.height, work->copy.width);
}

static CUresult check_device(uint64_t at, size_t bytes, const char *what) {
    if (!bytes || vg_mem_host(vgd.memory, at, bytes)) return CUDA_SUCCESS;
    uint64_t start;
    size_t whole;
    const char *name;
    if (!vg_mem_find(vgd.memory, at, &start, &whole, &name))
        return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%s: no allocation at %#llx", what,
                        (unsigned long long)at);
    return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%s: %zu bytes at byte %llu of an allocation of %zu",
                    what,
                    bytes, (unsigned long long)(at - start), whole);
}

static CUresult check_copy(const VgdWork *work) {
    const VgdSide *sides[2] = { &work->copy.to, &work->copy.from };
    for (int i = 0; i < 2; i++) {
        if (!work->copy.width || !work->copy.height || !work->copy.depth) return CUDA_SUCCESS;
        if (work->copy.height > 1 && sides[i]->pitch < work->copy.width)
            return vgd_fail(CUDA_ERROR_INVALID_VALUE, "copy: pitch %zu is less than width %zu",
                            sides[i]->pitch, work->copy.width);
        if (sides[i]->host && !sides[i]->at)
            return vgd_fail(CUDA_ERROR_INVALID_VALUE, "copy: the host pointer is NULL");
        if (span(sides[i], work) > PTRDIFF_MAX)
            return vgd_fail(CUDA_ERROR_INVALID_VALUE, "copy: more bytes than there are addresses");
        CUresult result = sides[i]->host ? CUDA_SUCCESS
                                         : check_device(sides[i]->at, span(sides[i], work),
                                                        i ? "copy from the device" : "copy to the"
                                                        " device");
        if (result) return result;
    }
    return CUDA_SUCCESS;
}

/* Running, on the worker ----------------------------------------------------------------------- */

static CUresult failed(void) {
    vgd_report(VG_ILLEGAL_ADDRESS, status_message());
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

// A read of bytes that nothing wrote is reported and goes on: the padding of an array may be such.
static Status read_device(void *to, uint64_t from, size_t bytes) {
    if (!vg_mem_read(vgd.memory, from, to, bytes, false)) return OK;
    if (!vg_mem_host(vgd.memory, from, bytes)) return ERR_INPUT;
    vgd_report(VG_UNINITIALISED, status_message());
    return vg_mem_read(vgd.memory, from, to, bytes, true);
}

static Status copy_row(const VgdWork *work, uint64_t to, uint64_t from) {
    size_t bytes = work->copy.width;
    bool to_host = work->copy.to.host, from_host = work->copy.from.host;
    if (to_host && from_host) {
        memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
        return OK;
    }
    if (to_host) return read_device((void *)(uintptr_t)to, from, bytes);
    if (from_host) return vg_mem_write(vgd.memory, to, (const void *)(uintptr_t)from, bytes);
    return vg_mem_copy(vgd.memory, to, from, bytes);
}

CUresult vgd_copy_run(const VgdWork *work) {
    if (!work->copy.width) return CUDA_SUCCESS;
    for (size_t z = 0; z < work->copy.depth; z++) {
        for (size_t y = 0; y < work->copy.height; y++) {
            const VgdSide *to = &work->copy.to, *from = &work->copy.from;
            if (copy_row(work, to->at + z * to->slice + y * to->pitch,
                         from->at + z * from->slice + y * from->pitch))
                return failed();
        }
    }
    return CUDA_SUCCESS;
}

CUresult vgd_fill_run(const VgdWork *work) {
    for (size_t y = 0; y < work->fill.height && work->fill.width; y++)
        if (vg_mem_fill(vgd.memory, work->fill.to + y * work->fill.pitch, work->fill.value,
                        (int)work->fill.value_bytes, work->fill.width))
            return failed();
    return CUDA_SUCCESS;
}

/* Copies --------------------------------------------------------------------------------------- */

// Pageable source bytes are copied now, rows packed.
static CUresult stage(VgdWork *work) {
    VgdSide *from = &work->copy.from;
    size_t width = work->copy.width, height = work->copy.height, depth = work->copy.depth;
    char *staged = malloc(width * height * depth + 1);
    if (!staged) return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t z = 0; z < depth; z++)
        for (size_t y = 0; y < height; y++)
            memcpy(staged + (z * height + y) * width,
                   (const char *)(uintptr_t)from->at + z * from->slice + y * from->pitch, width);
    *from = (VgdSide){ true, (uintptr_t)staged, width, width * height };
    work->copy.staged = staged;
    return CUDA_SUCCESS;
}

static bool pageable(const VgdSide *side, const VgdWork *work) {
    return side->host && !vgd_pinned((void *)(uintptr_t)side->at, span(side, work), NULL, NULL);
}

// `async`: an Async call; in a capture nothing waits and nothing is staged.
static CUresult submit_copy(CUcontext context, CUstream handle, VgdWork *work, bool async) {
    CUstream stream;
    CUresult result = vgd_stream_find(context, handle, &stream);
    if (!result) result = check_copy(work);
    if (result) return result;
    bool wait = !async && (work->copy.to.host || work->copy.from.host);
    if (!stream->capture) {
        wait = wait || pageable(&work->copy.to, work);
        if (async && pageable(&work->copy.from, work) && (result = stage(work))) return result;
    }
    VgdOp *op;
    result = vgd_submit(stream, work, wait ? &op : NULL);
    if (result || !wait || !op) return result;
    vgd_wait(op);
    vgd_op_drop(op);
    return context->sticky;
}

static CUresult copy_linear(VgdSide to, VgdSide from, size_t bytes, CUstream stream, bool async) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    VgdWork work = { .kind = VGD_COPY, .copy = { to, from, bytes, 1, 1, NULL } };
    result = submit_copy(context, stream, &work, async);
    vgd_work_finish(&work);
    return vgd_leave(result);
}

static VgdSide host_side(const void *at) {
    return (VgdSide){ .host = true, .at = (uintptr_t)at };
}

static VgdSide device_side(CUdeviceptr at) {
    return (VgdSide){ .at = at };
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    return copy_linear(device_side(to), host_side(from), bytes, NULL, false);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    return copy_linear(host_side(to), device_side(from), bytes, NULL, false);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy_linear(device_side(to), device_side(from), bytes, NULL, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return copy_linear(device_side(to), host_side(from), bytes, stream, true);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_linear(host_side(to), device_side(from), bytes, stream, true);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_linear(device_side(to), device_side(from), bytes, stream, true);
}

// A pointer of either kind: page-locked memory is the host's, an allocation is the device's.
static VgdSide unified_side(CUdeviceptr at) {
    uint64_t start;
    size_t bytes;
    const char *what;
    bool pinned = vgd_pinned((void *)(uintptr_t)at, 0, NULL, NULL);
    if (!pinned && vg_mem_find(vgd.memory, at, &start, &bytes, &what)) return device_side(at);
    return host_side((void *)(uintptr_t)at);
}

static CUresult copy_unified(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream,
                             bool async) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    VgdSide sides[2] = { unified_side(to), unified_side(from) };
    vgd_leave(CUDA_SUCCESS);
    return copy_linear(sides[0], sides[1], bytes, stream, async);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy_unified(to, from, bytes, NULL, false);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_unified(to, from, bytes, stream, true);
}

/* In two and three dimensions ------------------------------------------------------------------ */

static CUresult side3d(CUmemorytype type, const void *host, CUdeviceptr device, size_t pitch,
                       size_t height, const size_t at[3], VgdSide *side) {
    if (type == CU_MEMORYTYPE_HOST) *side = host_side(host);
    else if (type == CU_MEMORYTYPE_DEVICE) *side = device_side(device);
    else if (type == CU_MEMORYTYPE_UNIFIED) *side = unified_side(device);
    else return vgd_fail(CUDA_ERROR_INVALID_VALUE, "copy: memory type %d; arrays are not had here",
                         type);
    side->pitch = pitch;
    side->slice = pitch * height;
    side->at += at[0] + at[1] * side->pitch + at[2] * side->slice;
    return CUDA_SUCCESS;
}

CUresult vgd_copy3d_prepare(const CUDA_MEMCPY3D *c, VgdWork *work) {
    if (!c) return CUDA_ERROR_INVALID_VALUE;
    size_t width = c->WidthInBytes, height = c->Height;
    *work = (VgdWork){ .kind = VGD_COPY, .copy = { .width = width, .height = height,
                                                   .depth = c->Depth } };
    CUresult result = side3d(c->dstMemoryType, c->dstHost, c->dstDevice,
                             c->dstPitch ? c->dstPitch : width,
                             c->dstHeight ? c->dstHeight : height,
                             (const size_t[]){ c->dstXInBytes, c->dstY, c->dstZ }, &work->copy.to);
    if (result) return result;
    result = side3d(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcPitch ? c->srcPitch : width,
                    c->srcHeight ? c->srcHeight : height,
                    (const size_t[]){ c->srcXInBytes, c->srcY, c->srcZ }, &work->copy.from);
    return result ? result : check_copy(work);
}

static CUresult copy3d(const CUDA_MEMCPY3D *copy, CUstream stream, bool async) {
    CUcontext context;
    VgdWork work = { 0 };
    CUresult result = vgd_enter(&context);
    if (result) return result;
    result = vgd_copy3d_prepare(copy, &work);
    if (!result) result = submit_copy(context, stream, &work, async);
    vgd_work_finish(&work);
    return vgd_leave(result);
}

static CUresult copy2d(const CUDA_MEMCPY2D *c, CUstream stream, bool async) {
    if (!c) return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D copy = {
        .srcXInBytes = c->srcXInBytes, .srcY = c->srcY, .srcMemoryType = c->srcMemoryType,
        .srcHost = c->srcHost, .srcDevice = c->srcDevice, .srcPitch = c->srcPitch,
        .dstXInBytes = c->dstXInBytes, .dstY = c->dstY, .dstMemoryType = c->dstMemoryType,
        .dstHost = c->dstHost, .dstDevice = c->dstDevice, .dstPitch = c->dstPitch,
        .WidthInBytes = c->WidthInBytes, .Height = c->Height, .Depth = 1,
    };
    return copy3d(&copy, stream, async);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy) { return copy2d(copy, NULL, false); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy) { return copy2d(copy, NULL, false); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream s) { return copy2d(copy, s, true); }
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy) { return copy3d(copy, NULL, false); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream s) { return copy3d(copy, s, true); }

/* Fills ---------------------------------------------------------------------------------------- */

CUresult vgd_fill_prepare(uint64_t to, size_t pitch, uint32_t value, uint32_t value_bytes,
                          size_t width, size_t height, VgdWork *work) {
    if (value_bytes != 1 && value_bytes != 2 && value_bytes != 4) return CUDA_ERROR_INVALID_VALUE;
    if (to % value_bytes || (height > 1 && pitch % value_bytes))
        return vgd_fail(CUDA_ERROR_INVALID_VALUE, "fill: address %#llx or pitch %zu is no"
                        " multiple of %u",
                        (unsigned long long)to, pitch, value_bytes);
    size_t row, bytes;
    if (__builtin_mul_overflow(width, (size_t)value_bytes, &row)) return CUDA_ERROR_INVALID_VALUE;
    if (height > 1 && pitch < row)
        return vgd_fail(CUDA_ERROR_INVALID_VALUE, "fill: pitch %zu is less than width %zu", pitch,
                        row);
    *work = (VgdWork){ .kind = VGD_FILL, .fill = { to, pitch, width, height, value, value_bytes } };
    bytes = extent(0, 1, pitch, height, row);
    return check_device(to, bytes, "fill");
}

static CUresult fill(CUdeviceptr to, size_t pitch, uint32_t value, uint32_t value_bytes,
                     size_t width,
                     size_t height, CUstream handle) {
    CUcontext context;
    CUstream stream;
    VgdWork work;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    result = vgd_stream_find(context, handle, &stream);
    if (!result) result = vgd_fill_prepare(to, pitch, value, value_bytes, width, height, &work);
    if (!result) result = vgd_submit(stream, &work, NULL);
    return vgd_leave(result);
}

#define FILLS(bits, type)                                                                          \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t n) {                          \
        return fill(to, 0, value, bits / 8, n, 1, NULL);                                           \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t n, CUstream stream) {       \
        return fill(to, 0, value, bits / 8, n, 1, stream);                                         \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width,        \
                                    size_t height) {                                               \
        return fill(to, pitch, value, bits / 8, width, height, NULL);                              \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width,      \
                                      size_t height, CUstream stream) {                            \
        return fill(to, pitch, value, bits / 8, width, height, stream);                            \
    }
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)
