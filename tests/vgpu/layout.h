// SPDX-License-Identifier: Apache-2.0
// Constants and layouts of the driver API, measured twice: with the declarations of this project
// (layout_ours.c) and, where the toolkit is, with NVIDIA's (layout_theirs.c).
#ifndef TESTS_VGPU_LAYOUT_H
#define TESTS_VGPU_LAYOUT_H

#include <stddef.h>

typedef struct Layout { const char *name; long long value; } Layout;
extern const Layout layout_ours[], layout_theirs[]; // ended by a NULL name; theirs empty without

// The rows of both, in terms of whichever declarations were included.
#define LAYOUT_ROWS                                                                                \
    CUDA_RESULTS(LAYOUT_RESULT)                                                                    \
    CUDA_DEVICE_ATTRIBUTES(LAYOUT_DEVICE) CUDA_FUNCTION_ATTRIBUTES(LAYOUT_FUNCTION)                \
    CUDA_POINTER_ATTRIBUTES(LAYOUT_POINTER) CUDA_JIT_OPTIONS(LAYOUT_JIT)                           \
    CUDA_LAUNCH_ATTRIBUTES(LAYOUT_LAUNCH) CUDA_NODE_TYPES(LAYOUT_NODE)                             \
    CUDA_UPDATE_RESULTS(LAYOUT_UPDATE) CUDA_INSTANTIATE_RESULTS(LAYOUT_INSTANTIATE)                \
    CUDA_LIMITS(LAYOUT_LIMIT) LAYOUT_CONSTANTS(LAYOUT_CONSTANT) LAYOUT_STRUCTS

#define LAYOUT_CONSTANT(name) { #name, (long long)(name) },
#define LAYOUT_RESULT(name, value, text) LAYOUT_CONSTANT(CUDA_##name)
#define LAYOUT_DEVICE(name, value) LAYOUT_CONSTANT(CU_DEVICE_ATTRIBUTE_##name)
#define LAYOUT_FUNCTION(name, value) LAYOUT_CONSTANT(CU_FUNC_ATTRIBUTE_##name)
#define LAYOUT_POINTER(name, value) LAYOUT_CONSTANT(CU_POINTER_ATTRIBUTE_##name)
#define LAYOUT_JIT(name, value) LAYOUT_CONSTANT(CU_JIT_##name)
#define LAYOUT_LAUNCH(name, value) LAYOUT_CONSTANT(CU_LAUNCH_ATTRIBUTE_##name)
#define LAYOUT_NODE(name, value) LAYOUT_CONSTANT(CU_GRAPH_NODE_TYPE_##name)
#define LAYOUT_UPDATE(name, value) LAYOUT_CONSTANT(CU_GRAPH_EXEC_UPDATE_##name)
#define LAYOUT_INSTANTIATE(name, value) LAYOUT_CONSTANT(CUDA_GRAPH_INSTANTIATE_##name)
#define LAYOUT_LIMIT(name, value) LAYOUT_CONSTANT(CU_LIMIT_##name)

#define LAYOUT_CONSTANTS(X)                                                                        \
    X(CU_CTX_SCHED_MASK) X(CU_CTX_MAP_HOST) X(CU_CTX_FLAGS_MASK) X(CU_STREAM_DEFAULT)              \
    X(CU_STREAM_NON_BLOCKING) X(CU_EVENT_DEFAULT) X(CU_EVENT_BLOCKING_SYNC)                        \
    X(CU_EVENT_DISABLE_TIMING) X(CU_EVENT_INTERPROCESS) X(CU_EVENT_RECORD_DEFAULT)                 \
    X(CU_EVENT_RECORD_EXTERNAL) X(CU_EVENT_WAIT_DEFAULT) X(CU_EVENT_WAIT_EXTERNAL)                 \
    X(CU_STREAM_ADD_CAPTURE_DEPENDENCIES) X(CU_STREAM_SET_CAPTURE_DEPENDENCIES)                    \
    X(CU_GET_PROC_ADDRESS_DEFAULT) X(CU_GET_PROC_ADDRESS_LEGACY_STREAM)                            \
    X(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) X(CU_GET_PROC_ADDRESS_SUCCESS)                \
    X(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) X(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)          \
    X(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) X(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)       \
    X(CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) X(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)  \
    X(CU_GRAPH_DEPENDENCY_TYPE_DEFAULT) X(CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)                   \
    X(CU_OCCUPANCY_DEFAULT) X(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) X(CU_MEMHOSTALLOC_PORTABLE)   \
    X(CU_MEMHOSTALLOC_DEVICEMAP) X(CU_MEMHOSTALLOC_WRITECOMBINED) X(CU_MEMHOSTREGISTER_PORTABLE)   \
    X(CU_MEMHOSTREGISTER_DEVICEMAP) X(CU_MEMHOSTREGISTER_IOMEMORY)                                 \
    X(CU_MEMHOSTREGISTER_READ_ONLY) X(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)                          \
    X(CU_LAUNCH_PARAM_END) X(CU_LAUNCH_PARAM_BUFFER_POINTER)                                       \
    X(CU_LAUNCH_PARAM_BUFFER_SIZE) X(CU_MEMORYTYPE_HOST) X(CU_MEMORYTYPE_DEVICE)                   \
    X(CU_MEMORYTYPE_ARRAY) X(CU_MEMORYTYPE_UNIFIED) X(CU_STREAM_CAPTURE_STATUS_NONE)               \
    X(CU_STREAM_CAPTURE_STATUS_ACTIVE) X(CU_STREAM_CAPTURE_STATUS_INVALIDATED)                     \
    X(CU_STREAM_CAPTURE_MODE_GLOBAL) X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)                        \
    X(CU_STREAM_CAPTURE_MODE_RELAXED) X(CU_MODULE_EAGER_LOADING) X(CU_MODULE_LAZY_LOADING)         \
    X(CU_FUNCTION_LOADING_STATE_UNLOADED) X(CU_FUNCTION_LOADING_STATE_LOADED)                      \
    X(CU_FUNC_CACHE_PREFER_NONE) X(CU_LIBRARY_BINARY_IS_PRESERVED)                                 \
    X(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) X(CU_MEMPOOL_ATTR_USED_MEM_CURRENT)                       \
    X(CU_STREAM_LEGACY) X(CU_STREAM_PER_THREAD)

#define LAYOUT_SIZE(type) { "sizeof " #type, sizeof(type) },
#define LAYOUT_AT(type, field) { #type "." #field, offsetof(type, field) },
#define LAYOUT_STRUCTS                                                                             \
    LAYOUT_SIZE(CUdeviceptr) LAYOUT_SIZE(CUuuid) LAYOUT_SIZE(CUipcMemHandle) LAYOUT_SIZE(CUresult) \
    LAYOUT_SIZE(CUlaunchAttributeValue) LAYOUT_AT(CUlaunchAttributeValue, clusterDim.z)            \
    LAYOUT_AT(CUlaunchAttributeValue, accessPolicyWindow.missProp)                                 \
    LAYOUT_AT(CUlaunchAttributeValue, programmaticEvent.triggerAtBlockStart)                       \
    LAYOUT_AT(CUlaunchAttributeValue, launchCompletionEvent.flags)                                 \
    LAYOUT_AT(CUlaunchAttributeValue, deviceUpdatableKernelNode.devNode)                           \
    LAYOUT_SIZE(CUlaunchAttribute) LAYOUT_AT(CUlaunchAttribute, value)                             \
    LAYOUT_SIZE(CUlaunchConfig) LAYOUT_AT(CUlaunchConfig, blockDimX)                               \
    LAYOUT_AT(CUlaunchConfig, sharedMemBytes) LAYOUT_AT(CUlaunchConfig, hStream)                   \
    LAYOUT_AT(CUlaunchConfig, attrs) LAYOUT_AT(CUlaunchConfig, numAttrs)                           \
    LAYOUT_SIZE(CUDA_MEMCPY2D) LAYOUT_AT(CUDA_MEMCPY2D, srcMemoryType)                             \
    LAYOUT_AT(CUDA_MEMCPY2D, srcHost) LAYOUT_AT(CUDA_MEMCPY2D, srcDevice)                          \
    LAYOUT_AT(CUDA_MEMCPY2D, srcPitch) LAYOUT_AT(CUDA_MEMCPY2D, dstXInBytes)                       \
    LAYOUT_AT(CUDA_MEMCPY2D, dstHost) LAYOUT_AT(CUDA_MEMCPY2D, dstDevice)                          \
    LAYOUT_AT(CUDA_MEMCPY2D, dstPitch) LAYOUT_AT(CUDA_MEMCPY2D, WidthInBytes)                      \
    LAYOUT_AT(CUDA_MEMCPY2D, Height) LAYOUT_SIZE(CUDA_MEMCPY3D)                                    \
    LAYOUT_AT(CUDA_MEMCPY3D, srcZ) LAYOUT_AT(CUDA_MEMCPY3D, srcMemoryType)                         \
    LAYOUT_AT(CUDA_MEMCPY3D, srcHost) LAYOUT_AT(CUDA_MEMCPY3D, srcDevice)                          \
    LAYOUT_AT(CUDA_MEMCPY3D, srcPitch) LAYOUT_AT(CUDA_MEMCPY3D, srcHeight)                         \
    LAYOUT_AT(CUDA_MEMCPY3D, dstXInBytes) LAYOUT_AT(CUDA_MEMCPY3D, dstZ)                           \
    LAYOUT_AT(CUDA_MEMCPY3D, dstHost) LAYOUT_AT(CUDA_MEMCPY3D, dstDevice)                          \
    LAYOUT_AT(CUDA_MEMCPY3D, dstPitch) LAYOUT_AT(CUDA_MEMCPY3D, dstHeight)                         \
    LAYOUT_AT(CUDA_MEMCPY3D, WidthInBytes) LAYOUT_AT(CUDA_MEMCPY3D, Depth)                         \
    LAYOUT_SIZE(CUDA_KERNEL_NODE_PARAMS) LAYOUT_AT(CUDA_KERNEL_NODE_PARAMS, gridDimX)              \
    LAYOUT_AT(CUDA_KERNEL_NODE_PARAMS, blockDimZ) LAYOUT_AT(CUDA_KERNEL_NODE_PARAMS, kernelParams) \
    LAYOUT_AT(CUDA_KERNEL_NODE_PARAMS, extra) LAYOUT_AT(CUDA_KERNEL_NODE_PARAMS, kern)             \
    LAYOUT_AT(CUDA_KERNEL_NODE_PARAMS, ctx) LAYOUT_SIZE(CUDA_MEMSET_NODE_PARAMS)                   \
    LAYOUT_AT(CUDA_MEMSET_NODE_PARAMS, value) LAYOUT_AT(CUDA_MEMSET_NODE_PARAMS, elementSize)      \
    LAYOUT_AT(CUDA_MEMSET_NODE_PARAMS, width) LAYOUT_AT(CUDA_MEMSET_NODE_PARAMS, height)           \
    LAYOUT_SIZE(CUDA_HOST_NODE_PARAMS) LAYOUT_AT(CUDA_HOST_NODE_PARAMS, userData)                  \
    LAYOUT_SIZE(CUgraphNodeParams) LAYOUT_AT(CUgraphNodeParams, kernel)                            \
    LAYOUT_AT(CUgraphNodeParams, kernel.ctx) LAYOUT_AT(CUgraphNodeParams, memcpy.copyParams)       \
    LAYOUT_AT(CUgraphNodeParams, memset.ctx) LAYOUT_AT(CUgraphNodeParams, host.userData)           \
    LAYOUT_AT(CUgraphNodeParams, graph.graph) LAYOUT_AT(CUgraphNodeParams, eventWait.event)        \
    LAYOUT_AT(CUgraphNodeParams, eventRecord.event) LAYOUT_AT(CUgraphNodeParams, reserved2)        \
    LAYOUT_SIZE(CUgraphEdgeData) LAYOUT_AT(CUgraphEdgeData, type)                                  \
    LAYOUT_SIZE(CUgraphExecUpdateResultInfo) LAYOUT_AT(CUgraphExecUpdateResultInfo, errorNode)     \
    LAYOUT_AT(CUgraphExecUpdateResultInfo, errorFromNode)                                          \
    LAYOUT_SIZE(CUDA_GRAPH_INSTANTIATE_PARAMS)                                                     \
    LAYOUT_AT(CUDA_GRAPH_INSTANTIATE_PARAMS, hErrNode_out)                                         \
    LAYOUT_AT(CUDA_GRAPH_INSTANTIATE_PARAMS, result_out)

#endif
