// SPDX-License-Identifier: Apache-2.0
// The calls of the driver, as one table: it declares them and is what cuGetProcAddress searches.
// Included by cuda_api.h only.
#ifndef MOEC_VGPU_CUDA_CALLS_H
#define MOEC_VGPU_CUDA_CALLS_H

// X(exported symbol, name asked for, CUDA version it came with, parameters)
#define CUDA_CALLS(X)                                                                              \
    CUDA_CALLS_DEVICE(X) CUDA_CALLS_MEMORY(X) CUDA_CALLS_STREAM(X) CUDA_CALLS_GRAPH(X)

#define CUDA_CALLS_DEVICE(X)                                                                       \
    X(cuInit, "cuInit", 2000, (unsigned int flags))                                                \
    X(cuDriverGetVersion, "cuDriverGetVersion", 2020, (int *version))                              \
    X(cuGetErrorName, "cuGetErrorName", 6000, (CUresult error, const char **text))                 \
    X(cuGetErrorString, "cuGetErrorString", 6000, (CUresult error, const char **text))             \
    X(cuGetProcAddress_v2, "cuGetProcAddress", 12000,                                              \
      (const char *symbol, void **function, int version, cuuint64_t flags,                         \
       CUdriverProcAddressQueryResult *status))                                                    \
    X(cuDeviceGet, "cuDeviceGet", 2000, (CUdevice *device, int ordinal))                           \
    X(cuDeviceGetCount, "cuDeviceGetCount", 2000, (int *count))                                    \
    X(cuDeviceGetName, "cuDeviceGetName", 2000, (char *name, int bytes, CUdevice device))          \
    X(cuDeviceGetUuid_v2, "cuDeviceGetUuid", 11040, (CUuuid *uuid, CUdevice device))               \
    X(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, (size_t *bytes, CUdevice device))             \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000,                                          \
      (int *value, CUdevice_attribute attribute, CUdevice device))                                 \
    X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", 4010, (char *id, int bytes, CUdevice device))    \
    X(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", 4000,                                        \
      (int *can, CUdevice device, CUdevice peer))                                                  \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000,                                  \
      (CUcontext *context, CUdevice device))                                                       \
    X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, (CUdevice device))         \
    X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, (CUdevice device))             \
    X(cuDevicePrimaryCtxSetFlags_v2, "cuDevicePrimaryCtxSetFlags", 11000,                          \
      (CUdevice device, unsigned int flags))                                                       \
    X(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", 7000,                              \
      (CUdevice device, unsigned int *flags, int *active))                                         \
    X(cuCtxCreate_v4, "cuCtxCreate", 12050,                                                        \
      (CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device))        \
    X(cuCtxDestroy_v2, "cuCtxDestroy", 4000, (CUcontext context))                                  \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, (CUcontext context))                               \
    X(cuCtxGetCurrent, "cuCtxGetCurrent", 4000, (CUcontext *context))                              \
    X(cuCtxPushCurrent_v2, "cuCtxPushCurrent", 4000, (CUcontext context))                          \
    X(cuCtxPopCurrent_v2, "cuCtxPopCurrent", 4000, (CUcontext *context))                           \
    X(cuCtxGetDevice, "cuCtxGetDevice", 2000, (CUdevice *device))                                  \
    X(cuCtxGetFlags, "cuCtxGetFlags", 7000, (unsigned int *flags))                                 \
    X(cuCtxGetApiVersion, "cuCtxGetApiVersion", 3020, (CUcontext context, unsigned int *version))  \
    X(cuCtxSynchronize, "cuCtxSynchronize", 2000, (void))                                          \
    X(cuCtxGetLimit, "cuCtxGetLimit", 3010, (size_t *value, CUlimit limit))                        \
    X(cuCtxSetLimit, "cuCtxSetLimit", 3010, (CUlimit limit, size_t value))                         \
    X(cuCtxGetCacheConfig, "cuCtxGetCacheConfig", 3020, (CUfunc_cache *config))                    \
    X(cuCtxSetCacheConfig, "cuCtxSetCacheConfig", 3020, (CUfunc_cache config))                     \
    X(cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", 5050,                            \
      (int *least, int *greatest))                                                                 \
    X(cuModuleLoad, "cuModuleLoad", 2000, (CUmodule *module, const char *path))                    \
    X(cuModuleLoadData, "cuModuleLoadData", 2000, (CUmodule *module, const void *image))           \
    X(cuModuleLoadDataEx, "cuModuleLoadDataEx", 2010,                                              \
      (CUmodule *module, const void *image, unsigned int n, CUjit_option *options, void **values)) \
    X(cuModuleUnload, "cuModuleUnload", 2000, (CUmodule module))                                   \
    X(cuModuleGetLoadingMode, "cuModuleGetLoadingMode", 11070, (CUmoduleLoadingMode *mode))        \
    X(cuModuleGetFunction, "cuModuleGetFunction", 2000,                                            \
      (CUfunction *function, CUmodule module, const char *name))                                   \
    X(cuModuleGetFunctionCount, "cuModuleGetFunctionCount", 12040,                                 \
      (unsigned int *count, CUmodule module))                                                      \
    X(cuModuleEnumerateFunctions, "cuModuleEnumerateFunctions", 12040,                             \
      (CUfunction *functions, unsigned int n, CUmodule module))                                    \
    X(cuModuleGetGlobal_v2, "cuModuleGetGlobal", 3020,                                             \
      (CUdeviceptr *at, size_t *bytes, CUmodule module, const char *name))                         \
    X(cuLibraryLoadData, "cuLibraryLoadData", 12000,                                               \
      (CUlibrary *library, const void *code, CUjit_option *options, void **values, unsigned int n, \
       CUlibraryOption *library_options, void **library_values, unsigned int n_library))           \
    X(cuLibraryUnload, "cuLibraryUnload", 12000, (CUlibrary library))                              \
    X(cuLibraryGetKernel, "cuLibraryGetKernel", 12000,                                             \
      (CUkernel *kernel, CUlibrary library, const char *name))                                     \
    X(cuLibraryGetKernelCount, "cuLibraryGetKernelCount", 12040,                                   \
      (unsigned int *count, CUlibrary library))                                                    \
    X(cuLibraryEnumerateKernels, "cuLibraryEnumerateKernels", 12040,                               \
      (CUkernel *kernels, unsigned int n, CUlibrary library))                                      \
    X(cuLibraryGetModule, "cuLibraryGetModule", 12000, (CUmodule *module, CUlibrary library))      \
    X(cuLibraryGetGlobal, "cuLibraryGetGlobal", 12000,                                             \
      (CUdeviceptr *at, size_t *bytes, CUlibrary library, const char *name))                       \
    X(cuKernelGetFunction, "cuKernelGetFunction", 12000, (CUfunction *function, CUkernel kernel))  \
    X(cuKernelGetLibrary, "cuKernelGetLibrary", 12050, (CUlibrary *library, CUkernel kernel))      \
    X(cuKernelGetName, "cuKernelGetName", 12030, (const char **name, CUkernel kernel))             \
    X(cuKernelGetAttribute, "cuKernelGetAttribute", 12000,                                         \
      (int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device))              \
    X(cuKernelSetAttribute, "cuKernelSetAttribute", 12000,                                         \
      (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device))               \
    X(cuKernelSetCacheConfig, "cuKernelSetCacheConfig", 12000,                                     \
      (CUkernel kernel, CUfunc_cache config, CUdevice device))                                     \
    X(cuKernelGetParamInfo, "cuKernelGetParamInfo", 12040,                                         \
      (CUkernel kernel, size_t i, size_t *offset, size_t *bytes))                                  \
    X(cuFuncGetAttribute, "cuFuncGetAttribute", 2020,                                              \
      (int *value, CUfunction_attribute attribute, CUfunction function))                           \
    X(cuFuncSetAttribute, "cuFuncSetAttribute", 9000,                                              \
      (CUfunction function, CUfunction_attribute attribute, int value))                            \
    X(cuFuncSetCacheConfig, "cuFuncSetCacheConfig", 3000,                                          \
      (CUfunction function, CUfunc_cache config))                                                  \
    X(cuFuncGetModule, "cuFuncGetModule", 11000, (CUmodule *module, CUfunction function))          \
    X(cuFuncGetName, "cuFuncGetName", 12030, (const char **name, CUfunction function))             \
    X(cuFuncGetParamInfo, "cuFuncGetParamInfo", 12040,                                             \
      (CUfunction function, size_t i, size_t *offset, size_t *bytes))                              \
    X(cuFuncIsLoaded, "cuFuncIsLoaded", 12040,                                                     \
      (CUfunctionLoadingState *state, CUfunction function))                                        \
    X(cuFuncLoad, "cuFuncLoad", 12040, (CUfunction function))                                      \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor",  \
      6050, (int *blocks, CUfunction function, int threads, size_t shared))                        \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,                                        \
      "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", 7000,                                \
      (int *blocks, CUfunction function, int threads, size_t shared, unsigned int flags))          \
    X(cuOccupancyMaxPotentialBlockSize, "cuOccupancyMaxPotentialBlockSize", 6050,                  \
      (int *grid, int *threads, CUfunction function, CUoccupancyB2DSize shared_of,                 \
       size_t shared, int limit))                                                                  \
    X(cuOccupancyAvailableDynamicSMemPerBlock, "cuOccupancyAvailableDynamicSMemPerBlock", 10020,   \
      (size_t *shared, CUfunction function, int blocks, int threads))                              \
    X(cuOccupancyMaxPotentialClusterSize, "cuOccupancyMaxPotentialClusterSize", 11070,             \
      (int *size, CUfunction function, const CUlaunchConfig *config))                              \
    X(cuOccupancyMaxActiveClusters, "cuOccupancyMaxActiveClusters", 11070,                         \
      (int *clusters, CUfunction function, const CUlaunchConfig *config))

#define CUDA_CALLS_MEMORY(X)                                                                       \
    X(cuMemGetInfo_v2, "cuMemGetInfo", 3020, (size_t *free_bytes, size_t *total))                  \
    X(cuMemAlloc_v2, "cuMemAlloc", 3020, (CUdeviceptr *at, size_t bytes))                          \
    X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020,                                                 \
      (CUdeviceptr *at, size_t *pitch, size_t width, size_t height, unsigned int element))         \
    X(cuMemFree_v2, "cuMemFree", 3020, (CUdeviceptr at))                                           \
    X(cuMemGetAddressRange_v2, "cuMemGetAddressRange", 3020,                                       \
      (CUdeviceptr *start, size_t *bytes, CUdeviceptr at))                                         \
    X(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, (CUipcMemHandle * handle, CUdeviceptr at))      \
    X(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000,                                          \
      (CUdeviceptr * at, CUipcMemHandle handle, unsigned int flags))                               \
    X(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, (CUdeviceptr at))                          \
    X(cuMemAllocAsync, "cuMemAllocAsync", 11020,                                                   \
      (CUdeviceptr *at, size_t bytes, CUstream stream))                                            \
    X(cuMemFreeAsync, "cuMemFreeAsync", 11020, (CUdeviceptr at, CUstream stream))                  \
    X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020,                                   \
      (CUdeviceptr *at, size_t bytes, CUmemoryPool pool, CUstream stream))                         \
    X(cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", 11020,                               \
      (CUmemoryPool *pool, CUdevice device))                                                       \
    X(cuDeviceGetMemPool, "cuDeviceGetMemPool", 11020, (CUmemoryPool *pool, CUdevice device))      \
    X(cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, (CUmemoryPool pool, size_t keep))                 \
    X(cuMemPoolSetAttribute, "cuMemPoolSetAttribute", 11020,                                       \
      (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))                             \
    X(cuMemPoolGetAttribute, "cuMemPoolGetAttribute", 11020,                                       \
      (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))                             \
    X(cuMemAllocHost_v2, "cuMemAllocHost", 3020, (void **at, size_t bytes))                        \
    X(cuMemHostAlloc, "cuMemHostAlloc", 2020, (void **at, size_t bytes, unsigned int flags))       \
    X(cuMemFreeHost, "cuMemFreeHost", 2000, (void *at))                                            \
    X(cuMemHostGetFlags, "cuMemHostGetFlags", 2030, (unsigned int *flags, void *at))               \
    X(cuMemHostGetDevicePointer_v2, "cuMemHostGetDevicePointer", 3020,                             \
      (CUdeviceptr *device_at, void *at, unsigned int flags))                                      \
    X(cuMemHostRegister_v2, "cuMemHostRegister", 6050,                                             \
      (void *at, size_t bytes, unsigned int flags))                                                \
    X(cuMemHostUnregister, "cuMemHostUnregister", 4000, (void *at))                                \
    X(cuPointerGetAttribute, "cuPointerGetAttribute", 4000,                                        \
      (void *value, CUpointer_attribute attribute, CUdeviceptr at))                                \
    X(cuPointerGetAttributes, "cuPointerGetAttributes", 7000,                                      \
      (unsigned int n, CUpointer_attribute *attributes, void **values, CUdeviceptr at))            \
    X(cuMemcpy, "cuMemcpy", 4000, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                \
    X(cuMemcpyAsync, "cuMemcpyAsync", 4000,                                                        \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                           \
    X(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020, (CUdeviceptr to, const void *from, size_t bytes))     \
    X(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020, (void *to, CUdeviceptr from, size_t bytes))           \
    X(cuMemcpyDtoD_v2, "cuMemcpyDtoD", 3020, (CUdeviceptr to, CUdeviceptr from, size_t bytes))     \
    X(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020,                                             \
      (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                           \
    X(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 3020,                                             \
      (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                                 \
    X(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", 3020,                                             \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                           \
    X(cuMemcpy2D_v2, "cuMemcpy2D", 3020, (const CUDA_MEMCPY2D *copy))                              \
    X(cuMemcpy2DUnaligned_v2, "cuMemcpy2DUnaligned", 3020, (const CUDA_MEMCPY2D *copy))            \
    X(cuMemcpy2DAsync_v2, "cuMemcpy2DAsync", 3020, (const CUDA_MEMCPY2D *copy, CUstream stream))   \
    X(cuMemcpy3D_v2, "cuMemcpy3D", 3020, (const CUDA_MEMCPY3D *copy))                              \
    X(cuMemcpy3DAsync_v2, "cuMemcpy3DAsync", 3020, (const CUDA_MEMCPY3D *copy, CUstream stream))   \
    X(cuMemsetD8_v2, "cuMemsetD8", 3020, (CUdeviceptr to, unsigned char value, size_t n))          \
    X(cuMemsetD16_v2, "cuMemsetD16", 3020, (CUdeviceptr to, unsigned short value, size_t n))       \
    X(cuMemsetD32_v2, "cuMemsetD32", 3020, (CUdeviceptr to, unsigned int value, size_t n))         \
    X(cuMemsetD8Async, "cuMemsetD8Async", 3020,                                                    \
      (CUdeviceptr to, unsigned char value, size_t n, CUstream stream))                            \
    X(cuMemsetD16Async, "cuMemsetD16Async", 3020,                                                  \
      (CUdeviceptr to, unsigned short value, size_t n, CUstream stream))                           \
    X(cuMemsetD32Async, "cuMemsetD32Async", 3020,                                                  \
      (CUdeviceptr to, unsigned int value, size_t n, CUstream stream))                             \
    X(cuMemsetD2D8_v2, "cuMemsetD2D8", 3020,                                                       \
      (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height))            \
    X(cuMemsetD2D16_v2, "cuMemsetD2D16", 3020,                                                     \
      (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height))           \
    X(cuMemsetD2D32_v2, "cuMemsetD2D32", 3020,                                                     \
      (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height))             \
    X(cuMemsetD2D8Async, "cuMemsetD2D8Async", 3020,                                                \
      (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,             \
       CUstream stream))                                                                           \
    X(cuMemsetD2D16Async, "cuMemsetD2D16Async", 3020,                                              \
      (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,            \
       CUstream stream))                                                                           \
    X(cuMemsetD2D32Async, "cuMemsetD2D32Async", 3020,                                              \
      (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height,              \
       CUstream stream))

#define CUDA_CALLS_STREAM(X)                                                                       \
    X(cuStreamCreate, "cuStreamCreate", 2000, (CUstream *stream, unsigned int flags))              \
    X(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", 5050,                              \
      (CUstream *stream, unsigned int flags, int priority))                                        \
    X(cuStreamDestroy_v2, "cuStreamDestroy", 4000, (CUstream stream))                              \
    X(cuStreamGetPriority, "cuStreamGetPriority", 5050, (CUstream stream, int *priority))          \
    X(cuStreamGetFlags, "cuStreamGetFlags", 5050, (CUstream stream, unsigned int *flags))          \
    X(cuStreamGetId, "cuStreamGetId", 12000, (CUstream stream, unsigned long long *id))            \
    X(cuStreamGetCtx, "cuStreamGetCtx", 9020, (CUstream stream, CUcontext *context))               \
    X(cuStreamWaitEvent, "cuStreamWaitEvent", 3020,                                                \
      (CUstream stream, CUevent event, unsigned int flags))                                        \
    X(cuStreamQuery, "cuStreamQuery", 2000, (CUstream stream))                                     \
    X(cuStreamSynchronize, "cuStreamSynchronize", 2000, (CUstream stream))                         \
    X(cuStreamAddCallback, "cuStreamAddCallback", 5000,                                            \
      (CUstream stream, CUstreamCallback function, void *user, unsigned int flags))                \
    X(cuLaunchHostFunc, "cuLaunchHostFunc", 10000,                                                 \
      (CUstream stream, CUhostFn function, void *user))                                            \
    X(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010,                                      \
      (CUstream stream, CUstreamCaptureMode mode))                                                 \
    X(cuStreamEndCapture, "cuStreamEndCapture", 10000, (CUstream stream, CUgraph *graph))          \
    X(cuStreamIsCapturing, "cuStreamIsCapturing", 10000,                                           \
      (CUstream stream, CUstreamCaptureStatus *status))                                            \
    X(cuStreamGetCaptureInfo_v2, "cuStreamGetCaptureInfo", 11030,                                  \
      (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,             \
       const CUgraphNode **nodes, size_t *n))                                                      \
    X(cuStreamGetCaptureInfo_v3, "cuStreamGetCaptureInfo", 12030,                                  \
      (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,             \
       const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *n))                       \
    X(cuStreamUpdateCaptureDependencies_v2, "cuStreamUpdateCaptureDependencies", 12030,            \
      (CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t n,                \
       unsigned int flags))                                                                        \
    X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 10010,               \
      (CUstreamCaptureMode *mode))                                                                 \
    X(cuEventCreate, "cuEventCreate", 2000, (CUevent *event, unsigned int flags))                  \
    X(cuEventDestroy_v2, "cuEventDestroy", 4000, (CUevent event))                                  \
    X(cuEventRecord, "cuEventRecord", 2000, (CUevent event, CUstream stream))                      \
    X(cuEventRecordWithFlags, "cuEventRecordWithFlags", 11010,                                     \
      (CUevent event, CUstream stream, unsigned int flags))                                        \
    X(cuEventQuery, "cuEventQuery", 2000, (CUevent event))                                         \
    X(cuEventSynchronize, "cuEventSynchronize", 2000, (CUevent event))                             \
    X(cuEventElapsedTime, "cuEventElapsedTime", 2000,                                              \
      (float *milliseconds, CUevent start, CUevent end))                                           \
    X(cuEventElapsedTime_v2, "cuEventElapsedTime", 12080,                                          \
      (float *milliseconds, CUevent start, CUevent end))                                           \
    X(cuLaunchKernel, "cuLaunchKernel", 4000,                                                      \
      (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,         \
       unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,      \
       CUstream stream, void **params, void **extra))                                              \
    X(cuLaunchKernelEx, "cuLaunchKernelEx", 11060,                                                 \
      (const CUlaunchConfig *config, CUfunction function, void **params, void **extra))            \
    X(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", 9000,                                \
      (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,         \
       unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,      \
       CUstream stream, void **params))

#define CUDA_CALLS_GRAPH(X)                                                                        \
    X(cuGraphCreate, "cuGraphCreate", 10000, (CUgraph *graph, unsigned int flags))                 \
    X(cuGraphDestroy, "cuGraphDestroy", 10000, (CUgraph graph))                                    \
    X(cuGraphClone, "cuGraphClone", 10000, (CUgraph *clone, CUgraph graph))                        \
    X(cuGraphNodeFindInClone, "cuGraphNodeFindInClone", 10000,                                     \
      (CUgraphNode *node, CUgraphNode original, CUgraph clone))                                    \
    X(cuGraphAddKernelNode_v2, "cuGraphAddKernelNode", 12000,                                      \
      (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,                       \
       const CUDA_KERNEL_NODE_PARAMS *params))                                                     \
    X(cuGraphKernelNodeGetParams_v2, "cuGraphKernelNodeGetParams", 12000,                          \
      (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params))                                         \
    X(cuGraphKernelNodeSetParams_v2, "cuGraphKernelNodeSetParams", 12000,                          \
      (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params))                                   \
    X(cuGraphKernelNodeGetAttribute, "cuGraphKernelNodeGetAttribute", 11000,                       \
      (CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue *value))                     \
    X(cuGraphKernelNodeSetAttribute, "cuGraphKernelNodeSetAttribute", 11000,                       \
      (CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue *value))               \
    X(cuGraphAddMemcpyNode, "cuGraphAddMemcpyNode", 10000,                                         \
      (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,                       \
       const CUDA_MEMCPY3D *params, CUcontext context))                                            \
    X(cuGraphMemcpyNodeGetParams, "cuGraphMemcpyNodeGetParams", 10000,                             \
      (CUgraphNode node, CUDA_MEMCPY3D *params))                                                   \
    X(cuGraphMemcpyNodeSetParams, "cuGraphMemcpyNodeSetParams", 10000,                             \
      (CUgraphNode node, const CUDA_MEMCPY3D *params))                                             \
    X(cuGraphAddMemsetNode, "cuGraphAddMemsetNode", 10000,                                         \
      (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,                       \
       const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context))                                  \
    X(cuGraphMemsetNodeGetParams, "cuGraphMemsetNodeGetParams", 10000,                             \
      (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params))                                         \
    X(cuGraphMemsetNodeSetParams, "cuGraphMemsetNodeSetParams", 10000,                             \
      (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params))                                   \
    X(cuGraphAddHostNode, "cuGraphAddHostNode", 10000,                                             \
      (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,                       \
       const CUDA_HOST_NODE_PARAMS *params))                                                       \
    X(cuGraphAddEmptyNode, "cuGraphAddEmptyNode", 10000,                                           \
      (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n))                      \
    X(cuGraphAddChildGraphNode, "cuGraphAddChildGraphNode", 10000,                                 \
      (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n, CUgraph child))       \
    X(cuGraphChildGraphNodeGetGraph, "cuGraphChildGraphNodeGetGraph", 10000,                       \
      (CUgraphNode node, CUgraph *graph))                                                          \
    X(cuGraphAddEventRecordNode, "cuGraphAddEventRecordNode", 11010,                               \
      (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n, CUevent event))       \
    X(cuGraphAddEventWaitNode, "cuGraphAddEventWaitNode", 11010,                                   \
      (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n, CUevent event))       \
    X(cuGraphAddNode_v2, "cuGraphAddNode", 12030,                                                  \
      (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,   \
       size_t n, CUgraphNodeParams *params))                                                       \
    X(cuGraphNodeGetType, "cuGraphNodeGetType", 10000, (CUgraphNode node, CUgraphNodeType *type))  \
    X(cuGraphGetNodes, "cuGraphGetNodes", 10000, (CUgraph graph, CUgraphNode *nodes, size_t *n))   \
    X(cuGraphGetRootNodes, "cuGraphGetRootNodes", 10000,                                           \
      (CUgraph graph, CUgraphNode *nodes, size_t *n))                                              \
    X(cuGraphGetEdges_v2, "cuGraphGetEdges", 12030,                                                \
      (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *n))      \
    X(cuGraphNodeGetDependencies_v2, "cuGraphNodeGetDependencies", 12030,                          \
      (CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *n))                   \
    X(cuGraphNodeGetDependentNodes_v2, "cuGraphNodeGetDependentNodes", 12030,                      \
      (CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *n))                   \
    X(cuGraphAddDependencies_v2, "cuGraphAddDependencies", 12030,                                  \
      (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,                              \
       const CUgraphEdgeData *edges, size_t n))                                                    \
    X(cuGraphRemoveDependencies_v2, "cuGraphRemoveDependencies", 12030,                            \
      (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,                              \
       const CUgraphEdgeData *edges, size_t n))                                                    \
    X(cuGraphDestroyNode, "cuGraphDestroyNode", 10000, (CUgraphNode node))                         \
    X(cuGraphInstantiateWithFlags, "cuGraphInstantiate", 11040,                                    \
      (CUgraphExec *exec, CUgraph graph, unsigned long long flags))                                \
    X(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 12000,                         \
      (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params))                   \
    X(cuGraphExecGetFlags, "cuGraphExecGetFlags", 12000, (CUgraphExec exec, cuuint64_t *flags))    \
    X(cuGraphUpload, "cuGraphUpload", 11010, (CUgraphExec exec, CUstream stream))                  \
    X(cuGraphLaunch, "cuGraphLaunch", 10000, (CUgraphExec exec, CUstream stream))                  \
    X(cuGraphExecDestroy, "cuGraphExecDestroy", 10000, (CUgraphExec exec))                         \
    X(cuGraphExecUpdate_v2, "cuGraphExecUpdate", 12000,                                            \
      (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info))                        \
    X(cuGraphExecKernelNodeSetParams_v2, "cuGraphExecKernelNodeSetParams", 12000,                  \
      (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params))                 \
    X(cuGraphExecMemcpyNodeSetParams, "cuGraphExecMemcpyNodeSetParams", 10020,                     \
      (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext context))        \
    X(cuGraphExecMemsetNodeSetParams, "cuGraphExecMemsetNodeSetParams", 10020,                     \
      (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params,                  \
       CUcontext context))                                                                         \
    X(cuGraphNodeSetEnabled, "cuGraphNodeSetEnabled", 11060,                                       \
      (CUgraphExec exec, CUgraphNode node, unsigned int enabled))                                  \
    X(cuGraphNodeGetEnabled, "cuGraphNodeGetEnabled", 11060,                                       \
      (CUgraphExec exec, CUgraphNode node, unsigned int *enabled))

#define X(symbol, name, version, params)                                                           \
    __attribute__((visibility("default"))) CUresult symbol params;
CUDA_CALLS(X)
#undef X

#endif
