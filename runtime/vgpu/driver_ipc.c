// SPDX-License-Identifier: Apache-2.0
// Memory of other processes: an allocation whose handle was asked for lies in a file that other virtual
// GPUs map, with what is known of its bytes: those that nobody wrote are found in every process. The
// file has no name; a handle says where the process holds it.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/vgpu/driver.h"

enum { MAGIC = 0x5647495d };

// What a handle's 64 bytes hold.
typedef struct Handle {
    uint32_t magic;
    int32_t pid, file;
    uint64_t node, bytes, at; // of the file; of the allocation, in its process
} Handle;
_Static_assert(sizeof(Handle) <= sizeof(CUipcMemHandle), "a handle holds it");

// Mapped here. A context has each once.
typedef struct Guest {
    struct Guest *next;
    CUcontext context;
    uint64_t node, at;
    int refs;
} Guest;
static Guest *guests;

static const void *key(uint64_t address) {
    return (const void *)(uintptr_t)(address | 1);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr at) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!out || !vgd_object_is(key(at), VGD_MEMORY))
        return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "%#llx is not the start of an allocation,"
                                  " or was freed", at));
    Handle handle = { .magic = MAGIC, .pid = getpid(), .at = at };
    uint64_t start;
    size_t bytes;
    const char *what;
    struct stat found;
    vgd_pause();
    if (vg_mem_share(vgd.memory, at, &handle.file) || fstat(handle.file, &found) != 0)
        return vgd_leave(vgd_status(CUDA_ERROR_OUT_OF_MEMORY));
    vg_mem_find(vgd.memory, at, &start, &bytes, &what);
    handle.node = found.st_ino;
    handle.bytes = bytes;
    memset(out, 0, sizeof *out);
    memcpy(out, &handle, sizeof handle);
    return vgd_leave(CUDA_SUCCESS);
}

static int open_file(const Handle *handle) {
    char path[64];
    struct stat found;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return -1;
    if (fstat(file, &found) == 0 && found.st_ino == handle->node &&
        found.st_size >= (off_t)handle->bytes)
        return file;
    close(file);
    return -1;
}

static CUresult open_guest(CUcontext context, const Handle *handle, CUdeviceptr *at) {
    char what[64];
    snprintf(what, sizeof what, "memory of process %d, there at %#llx", handle->pid,
             (unsigned long long)handle->at);
    int file = open_file(handle);
    if (file < 0)
        return vgd_fail(CUDA_ERROR_INVALID_HANDLE, "%s: it is not there, or was freed", what);
    Guest *guest = calloc(1, sizeof *guest);
    uint64_t address;
    if (!guest) {
        close(file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    vgd_pause();
    if (vg_mem_guest(vgd.memory, file, handle->bytes, what, &address)) {
        free(guest);
        return vgd_status(CUDA_ERROR_MAP_FAILED);
    }
    *guest = (Guest){ guests, context, handle->node, address, 1 };
    guests = guest;
    *at = address;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle given, unsigned int flags) {
    CUcontext context;
    Handle handle;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    memcpy(&handle, &given, sizeof handle);
    if (!at || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "flags of a handle of memory are %d, not %u",
                                  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, flags));
    if (handle.magic != MAGIC)
        return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_HANDLE, "this is no handle of memory"));
    if (handle.pid == getpid())
        return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_CONTEXT, "the memory is of this process"
                                  "\n  hint: its address serves here"));
    for (Guest *guest = guests; guest; guest = guest->next) {
        if (guest->context != context || guest->node != handle.node) continue;
        guest->refs++;
        *at = guest->at;
        return vgd_leave(CUDA_SUCCESS);
    }
    return vgd_leave(open_guest(context, &handle, at));
}

static void free_guest(Guest **at) {
    Guest *guest = *at;
    *at = guest->next;
    vg_mem_free(vgd.memory, guest->at);
    free(guest);
}

// Waits for everything, as a free does.
CUresult cuIpcCloseMemHandle(CUdeviceptr at) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    Guest **guest = &guests;
    while (*guest && ((*guest)->context != context || (*guest)->at != at)) guest = &(*guest)->next;
    if (!*guest)
        return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "%#llx is not memory of another process", at));
    if (--(*guest)->refs) return vgd_leave(CUDA_SUCCESS);
    vgd_wait_context(context);
    vgd_pause();
    free_guest(guest);
    return vgd_leave(context->sticky);
}

void vgd_guests_free(CUcontext context) {
    for (Guest **at = &guests; *at;) {
        if ((*at)->context == context) free_guest(at);
        else at = &(*at)->next;
    }
}
