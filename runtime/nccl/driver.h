// SPDX-License-Identifier: Apache-2.0
// The driver's calls that the stand-in makes, of the virtual GPU that the program uses.
#ifndef MOEC_NCCL_DRIVER_H
#define MOEC_NCCL_DRIVER_H

#include "runtime/base/base.h"

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUevent_st *CUevent;
typedef struct CUstream_st *CUstream;
typedef struct CUipcMemHandle { char bytes[64]; } CUipcMemHandle;

enum { CU_RELAXED = 2, CU_NOT_READY = 600, CU_LAZY_PEERS = 1, CU_NO_TIMING = 2 };

#define DRIVER_CALLS(X)                                                                            \
    X(cuCtxGetCurrent, (CUcontext * context))                                                      \
    X(cuCtxSetCurrent, (CUcontext context))                                                        \
    X(cuCtxGetDevice, (CUdevice * device))                                                         \
    X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                            \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                             \
    X(cuMemAlloc_v2, (CUdeviceptr * at, size_t bytes))                                             \
    X(cuMemFree_v2, (CUdeviceptr at))                                                              \
    X(cuMemGetAddressRange_v2, (CUdeviceptr * start, size_t *bytes, CUdeviceptr at))               \
    X(cuMemHostAlloc, (void **at, size_t bytes, unsigned flags))                                   \
    X(cuMemFreeHost, (void *at))                                                                   \
    X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))           \
    X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))     \
    X(cuLaunchHostFunc, (CUstream stream, void (*function)(void *), void *user))                   \
    X(cuStreamIsCapturing, (CUstream stream, int *capturing))                                      \
    X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                         \
    X(cuThreadExchangeStreamCaptureMode, (int *mode))                                              \
    X(cuEventCreate, (CUevent * event, unsigned flags))                                            \
    X(cuEventDestroy_v2, (CUevent event))                                                          \
    X(cuEventRecord, (CUevent event, CUstream stream))                                             \
    X(cuEventQuery, (CUevent event))                                                               \
    X(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr at))                                \
    X(cuIpcOpenMemHandle_v2, (CUdeviceptr * at, CUipcMemHandle handle, unsigned flags))            \
    X(cuIpcCloseMemHandle, (CUdeviceptr at))

typedef struct Driver {
#define X(name, parameters) CUresult (*name) parameters;
    DRIVER_CALLS(X)
#undef X
    const char *(*message)(void); // why the last call of this thread failed
    void (*may_wait)(int);
} Driver;

// NULL: it is not there; last_text says so.
const Driver *driver(void);

#endif
