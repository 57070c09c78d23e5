// SPDX-License-Identifier: Apache-2.0
// Private to runtime/device: the functions of the CUDA driver that moec uses, resolved at run time
// from libcuda.so.1 or from the virtual GPU's library, which exports the same names. Own
// declarations after the driver's manual (CUDA 12 and 13); no header of NVIDIA's.
#ifndef MOEC_DEVICE_DRIVER_H
#define MOEC_DEVICE_DRIVER_H

#include "runtime/base/base.h"

typedef int CUresult; // 0: success
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;

enum {
    CU_OUT_OF_MEMORY = 2,
    CU_NO_DEVICE = 100,
    CU_INVALID_IMAGE = 200,
    CU_NO_BINARY = 209,
    CU_INVALID_PTX = 218,
    CU_PTX_TOO_NEW = 222,
    CU_NOT_READY = 600,
    CU_ATTR_MULTIPROCESSORS = 16,    // CUdevice_attribute
    CU_ATTR_CC_MAJOR = 75,
    CU_ATTR_CC_MINOR = 76,
    CU_ATTR_BLOCK_SHARED = 97,       // that a kernel may opt in to
    CU_FUNC_MAX_THREADS = 0,         // CUfunction_attribute
    CU_FUNC_STATIC_SHARED = 1,
    CU_FUNC_MAX_DYNAMIC_SHARED = 8,
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_NO_TIMING = 2,
    CU_CAPTURE_THREAD_LOCAL = 1,     // CUstreamCaptureMode
    CU_JIT_ERROR_LOG = 5,            // CUjit_option: buffer, then its size
    CU_JIT_ERROR_LOG_BYTES = 6,
};
#define CU_LAUNCH_PARAMS ((void *)1) // of `extra`: a buffer of packed parameters, its size, the end
#define CU_LAUNCH_PARAM_BYTES ((void *)2)
#define CU_LAUNCH_END ((void *)0)

// X(field, symbol, parameters): what moec cannot do without.
#define DRIVER_TABLE(X)                                                                            \
    X(init, cuInit, (unsigned flags))                                                              \
    X(version, cuDriverGetVersion, (int *version))                                                 \
    X(error_name, cuGetErrorName, (CUresult, const char **text))                                   \
    X(error_text, cuGetErrorString, (CUresult, const char **text))                                 \
    X(device_count, cuDeviceGetCount, (int *n))                                                    \
    X(device_get, cuDeviceGet, (CUdevice *, int ordinal))                                          \
    X(device_name, cuDeviceGetName, (char *name, int bytes, CUdevice))                             \
    X(device_memory, cuDeviceTotalMem_v2, (size_t *bytes, CUdevice))                               \
    X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, CUdevice))               \
    X(context_retain, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                           \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (CUdevice))                                   \
    X(context_set, cuCtxSetCurrent, (CUcontext))                                                   \
    X(mem_alloc, cuMemAlloc_v2, (CUdeviceptr *, size_t bytes))                                     \
    X(mem_free, cuMemFree_v2, (CUdeviceptr))                                                       \
    X(mem_info, cuMemGetInfo_v2, (size_t *unused, size_t *total))                                  \
    X(host_alloc, cuMemHostAlloc, (void **, size_t bytes, unsigned flags))                         \
    X(host_free, cuMemFreeHost, (void *))                                                          \
    X(copy_in, cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t bytes, CUstream))          \
    X(copy_out, cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t bytes, CUstream))               \
    X(fill, cuMemsetD32Async, (CUdeviceptr, unsigned word, size_t words, CUstream))                \
    X(stream_create, cuStreamCreate, (CUstream *, unsigned flags))                                 \
    X(stream_destroy, cuStreamDestroy_v2, (CUstream))                                              \
    X(stream_synchronize, cuStreamSynchronize, (CUstream))                                         \
    X(stream_query, cuStreamQuery, (CUstream))                                                     \
    X(stream_wait, cuStreamWaitEvent, (CUstream, CUevent, unsigned flags))                         \
    X(capture_begin, cuStreamBeginCapture_v2, (CUstream, int mode))                                \
    X(capture_end, cuStreamEndCapture, (CUstream, CUgraph *))                                      \
    X(graph_instantiate, cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))\
    X(graph_nodes, cuGraphGetNodes, (CUgraph, CUgraphNode *nodes, size_t *n))                      \
    X(graph_launch, cuGraphLaunch, (CUgraphExec, CUstream))                                        \
    X(graph_exec_destroy, cuGraphExecDestroy, (CUgraphExec))                                       \
    X(graph_destroy, cuGraphDestroy, (CUgraph))                                                    \
    X(event_create, cuEventCreate, (CUevent *, unsigned flags))                                    \
    X(event_destroy, cuEventDestroy_v2, (CUevent))                                                 \
    X(event_record, cuEventRecord, (CUevent, CUstream))                                            \
    X(event_elapsed, cuEventElapsedTime, (float *ms, CUevent from, CUevent to))                    \
    X(module_load, cuModuleLoadDataEx,                                                             \
      (CUmodule *, const void *image, unsigned n, int *options, void **values))                    \
    X(module_unload, cuModuleUnload, (CUmodule))                                                   \
    X(module_function, cuModuleGetFunction, (CUfunction *, CUmodule, const char *name))            \
    X(function_get, cuFuncGetAttribute, (int *value, int attribute, CUfunction))                   \
    X(function_set, cuFuncSetAttribute, (CUfunction, int attribute, int value))                    \
    X(launch, cuLaunchKernel,                                                                      \
      (CUfunction, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,   \
       unsigned shared, CUstream, void **params, void **extra))

// What cuIpcGetMemHandle writes and cuIpcOpenMemHandle takes by value.
typedef struct CUipcMemHandle { char bytes[64]; } CUipcMemHandle;
enum { CU_IPC_PEERS = 1 /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */ };

// Used where present: cuFuncGetParamInfo came with 12.4. The virtual GPU's own: which architecture
// it is, before cuInit; why a call failed; what it has found in kernels, how often, and who prints it.
#define DRIVER_OPTIONAL(X)                                                                         \
    X(function_param, cuFuncGetParamInfo, CUresult,                                                \
      (CUfunction, size_t index, size_t *offset, size_t *bytes))                                   \
    X(ipc_get, cuIpcGetMemHandle, CUresult, (CUipcMemHandle *, CUdeviceptr))                       \
    X(ipc_open, cuIpcOpenMemHandle_v2, CUresult, (CUdeviceptr *, CUipcMemHandle, unsigned flags))  \
    X(ipc_close, cuIpcCloseMemHandle, CUresult, (CUdeviceptr))                                     \
    X(vgpu_init, vgpuInit, CUresult, (const char *arch))                                           \
    X(vgpu_message, vgpuLastMessage, const char *, (void))                                         \
    X(vgpu_report, vgpuLastReport, const char *, (void))                                           \
    X(vgpu_reports, vgpuReportCount, int, (void))                                                  \
    X(vgpu_print_faults, vgpuPrintFaults, void, (int print))

typedef struct Driver {
#define X(field, symbol, parameters) CUresult (*field) parameters;
    DRIVER_TABLE(X)
#undef X
#define X(field, symbol, type, parameters) type(*field) parameters;
    DRIVER_OPTIONAL(X)
#undef X
} Driver;

/* driver.c */
// Opened once per process and kind. The virtual one is of one architecture at a time.
Status driver_open(bool virtual, const Driver **out);
// A failure as a Status: name and text of the error, and what the virtual GPU has to say of it.
Status driver_fail_with(const Driver *driver, CUresult result, const char *what);

#endif
