// SPDX-License-Identifier: Apache-2.0
// Constants of the CUDA driver API (CUDA 13) that this driver knows, as tables: the enums of
// cuda_api.h, the names and texts of errors, and the test that compares them with NVIDIA's header
// are all made of them.
#ifndef MOEC_VGPU_CUDA_TABLES_H
#define MOEC_VGPU_CUDA_TABLES_H

// X(name after CUDA_, value, text)
#define CUDA_RESULTS(X) \
    X(SUCCESS, 0, "no error") \
    X(ERROR_INVALID_VALUE, 1, "invalid argument") \
    X(ERROR_OUT_OF_MEMORY, 2, "out of memory") \
    X(ERROR_NOT_INITIALIZED, 3, "cuInit has not been called") \
    X(ERROR_DEINITIALIZED, 4, "driver is shutting down") \
    X(ERROR_PROFILER_DISABLED, 5, "profiler disabled") \
    X(ERROR_PROFILER_NOT_INITIALIZED, 6, "profiler not initialized") \
    X(ERROR_PROFILER_ALREADY_STARTED, 7, "profiler already started") \
    X(ERROR_PROFILER_ALREADY_STOPPED, 8, "profiler already stopped") \
    X(ERROR_STUB_LIBRARY, 34, "the library is a stand-in without a driver") \
    X(ERROR_CALL_REQUIRES_NEWER_DRIVER, 36, "call requires newer driver") \
    X(ERROR_DEVICE_UNAVAILABLE, 46, "device unavailable") \
    X(ERROR_NO_DEVICE, 100, "no device") \
    X(ERROR_INVALID_DEVICE, 101, "invalid device ordinal") \
    X(ERROR_DEVICE_NOT_LICENSED, 102, "device not licensed") \
    X(ERROR_INVALID_IMAGE, 200, "image is not a module") \
    X(ERROR_INVALID_CONTEXT, 201, "no context is current, or it is not valid") \
    X(ERROR_CONTEXT_ALREADY_CURRENT, 202, "context already current") \
    X(ERROR_MAP_FAILED, 205, "mapping failed") \
    X(ERROR_UNMAP_FAILED, 206, "unmap failed") \
    X(ERROR_ARRAY_IS_MAPPED, 207, "array is mapped") \
    X(ERROR_ALREADY_MAPPED, 208, "already mapped") \
    X(ERROR_NO_BINARY_FOR_GPU, 209, "no code for this device in the image") \
    X(ERROR_ALREADY_ACQUIRED, 210, "already acquired") \
    X(ERROR_NOT_MAPPED, 211, "not mapped") \
    X(ERROR_NOT_MAPPED_AS_ARRAY, 212, "not mapped as array") \
    X(ERROR_NOT_MAPPED_AS_POINTER, 213, "not mapped as pointer") \
    X(ERROR_ECC_UNCORRECTABLE, 214, "ecc uncorrectable") \
    X(ERROR_UNSUPPORTED_LIMIT, 215, "unsupported limit") \
    X(ERROR_CONTEXT_ALREADY_IN_USE, 216, "context already in use") \
    X(ERROR_PEER_ACCESS_UNSUPPORTED, 217, "peer access unsupported") \
    X(ERROR_INVALID_PTX, 218, "PTX did not compile") \
    X(ERROR_INVALID_GRAPHICS_CONTEXT, 219, "invalid graphics context") \
    X(ERROR_NVLINK_UNCORRECTABLE, 220, "nvlink uncorrectable") \
    X(ERROR_JIT_COMPILER_NOT_FOUND, 221, "jit compiler not found") \
    X(ERROR_UNSUPPORTED_PTX_VERSION, 222, "PTX version not supported") \
    X(ERROR_JIT_COMPILATION_DISABLED, 223, "jit compilation disabled") \
    X(ERROR_UNSUPPORTED_EXEC_AFFINITY, 224, "unsupported exec affinity") \
    X(ERROR_UNSUPPORTED_DEVSIDE_SYNC, 225, "unsupported devside sync") \
    X(ERROR_CONTAINED, 226, "contained") \
    X(ERROR_INVALID_SOURCE, 300, "invalid source") \
    X(ERROR_FILE_NOT_FOUND, 301, "file not found") \
    X(ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, 302, "shared object symbol not found") \
    X(ERROR_SHARED_OBJECT_INIT_FAILED, 303, "shared object init failed") \
    X(ERROR_OPERATING_SYSTEM, 304, "operating system call failed") \
    X(ERROR_INVALID_HANDLE, 400, "invalid handle") \
    X(ERROR_ILLEGAL_STATE, 401, "object is in a state that does not permit the call") \
    X(ERROR_LOSSY_QUERY, 402, "lossy query") \
    X(ERROR_NOT_FOUND, 500, "named symbol not found") \
    X(ERROR_NOT_READY, 600, "work is not complete") \
    X(ERROR_ILLEGAL_ADDRESS, 700, "a kernel accessed memory it must not") \
    X(ERROR_LAUNCH_OUT_OF_RESOURCES, 701, "too many resources requested for launch") \
    X(ERROR_LAUNCH_TIMEOUT, 702, "a launch timed out") \
    X(ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, 703, "launch incompatible texturing") \
    X(ERROR_PEER_ACCESS_ALREADY_ENABLED, 704, "peer access already enabled") \
    X(ERROR_PEER_ACCESS_NOT_ENABLED, 705, "peer access not enabled") \
    X(ERROR_PRIMARY_CONTEXT_ACTIVE, 708, "the primary context is active") \
    X(ERROR_CONTEXT_IS_DESTROYED, 709, "context is destroyed") \
    X(ERROR_ASSERT, 710, "a device assertion failed") \
    X(ERROR_TOO_MANY_PEERS, 711, "too many peers") \
    X(ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712, "host memory is registered already") \
    X(ERROR_HOST_MEMORY_NOT_REGISTERED, 713, "host memory is not registered") \
    X(ERROR_HARDWARE_STACK_ERROR, 714, "hardware stack error") \
    X(ERROR_ILLEGAL_INSTRUCTION, 715, "a kernel met an illegal instruction") \
    X(ERROR_MISALIGNED_ADDRESS, 716, "a kernel accessed a misaligned address") \
    X(ERROR_INVALID_ADDRESS_SPACE, 717, "a kernel accessed the wrong address space") \
    X(ERROR_INVALID_PC, 718, "a kernel jumped to no instruction") \
    X(ERROR_LAUNCH_FAILED, 719, "a kernel failed") \
    X(ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, 720, "blocks of a cooperative launch do not all fit") \
    X(ERROR_TENSOR_MEMORY_LEAK, 721, "tensor memory leak") \
    X(ERROR_NOT_PERMITTED, 800, "operation not permitted") \
    X(ERROR_NOT_SUPPORTED, 801, "operation not supported") \
    X(ERROR_SYSTEM_NOT_READY, 802, "system not ready") \
    X(ERROR_SYSTEM_DRIVER_MISMATCH, 803, "system driver mismatch") \
    X(ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804, "compat not supported on device") \
    X(ERROR_MPS_CONNECTION_FAILED, 805, "mps connection failed") \
    X(ERROR_MPS_RPC_FAILURE, 806, "mps rpc failure") \
    X(ERROR_MPS_SERVER_NOT_READY, 807, "mps server not ready") \
    X(ERROR_MPS_MAX_CLIENTS_REACHED, 808, "mps max clients reached") \
    X(ERROR_MPS_MAX_CONNECTIONS_REACHED, 809, "mps max connections reached") \
    X(ERROR_MPS_CLIENT_TERMINATED, 810, "mps client terminated") \
    X(ERROR_CDP_NOT_SUPPORTED, 811, "cdp not supported") \
    X(ERROR_CDP_VERSION_MISMATCH, 812, "cdp version mismatch") \
    X(ERROR_STREAM_CAPTURE_UNSUPPORTED, 900, "operation not permitted while a stream is captured") \
    X(ERROR_STREAM_CAPTURE_INVALIDATED, 901, "capture was invalidated by an earlier error") \
    X(ERROR_STREAM_CAPTURE_MERGE, 902, "operation would merge two captures") \
    X(ERROR_STREAM_CAPTURE_UNMATCHED, 903, "capture was not begun in this stream") \
    X(ERROR_STREAM_CAPTURE_UNJOINED, 904, "capture has work not joined to its first stream") \
    X(ERROR_STREAM_CAPTURE_ISOLATION, 905, "dependency would cross the border of a capture") \
    X(ERROR_STREAM_CAPTURE_IMPLICIT, 906, "implicit dependency on the legacy stream in a capture") \
    X(ERROR_CAPTURED_EVENT, 907, "event was last recorded in a capture") \
    X(ERROR_STREAM_CAPTURE_WRONG_THREAD, 908, "capture was begun in another thread") \
    X(ERROR_TIMEOUT, 909, "timeout") \
    X(ERROR_GRAPH_EXEC_UPDATE_FAILURE, 910, "graph differs too much for the update") \
    X(ERROR_EXTERNAL_DEVICE, 911, "external device") \
    X(ERROR_INVALID_CLUSTER_SIZE, 912, "cluster does not fit") \
    X(ERROR_FUNCTION_NOT_LOADED, 913, "function not loaded") \
    X(ERROR_INVALID_RESOURCE_TYPE, 914, "invalid resource type") \
    X(ERROR_INVALID_RESOURCE_CONFIGURATION, 915, "invalid resource configuration") \
    X(ERROR_KEY_ROTATION, 916, "key rotation") \
    X(ERROR_UNKNOWN, 999, "unknown error")

// X(name after CU_DEVICE_ATTRIBUTE_, value)
#define CUDA_DEVICE_ATTRIBUTES(X) \
    X(MAX_THREADS_PER_BLOCK, 1) X(MAX_BLOCK_DIM_X, 2) X(MAX_BLOCK_DIM_Y, 3) \
    X(MAX_BLOCK_DIM_Z, 4) X(MAX_GRID_DIM_X, 5) X(MAX_GRID_DIM_Y, 6) X(MAX_GRID_DIM_Z, 7) \
    X(MAX_SHARED_MEMORY_PER_BLOCK, 8) X(TOTAL_CONSTANT_MEMORY, 9) X(WARP_SIZE, 10) \
    X(MAX_PITCH, 11) X(MAX_REGISTERS_PER_BLOCK, 12) X(CLOCK_RATE, 13) X(TEXTURE_ALIGNMENT, 14) \
    X(GPU_OVERLAP, 15) X(MULTIPROCESSOR_COUNT, 16) X(KERNEL_EXEC_TIMEOUT, 17) X(INTEGRATED, 18) \
    X(CAN_MAP_HOST_MEMORY, 19) X(COMPUTE_MODE, 20) X(CONCURRENT_KERNELS, 31) X(ECC_ENABLED, 32) \
    X(PCI_BUS_ID, 33) X(PCI_DEVICE_ID, 34) X(TCC_DRIVER, 35) X(MEMORY_CLOCK_RATE, 36) \
    X(GLOBAL_MEMORY_BUS_WIDTH, 37) X(L2_CACHE_SIZE, 38) X(MAX_THREADS_PER_MULTIPROCESSOR, 39) \
    X(ASYNC_ENGINE_COUNT, 40) X(UNIFIED_ADDRESSING, 41) X(PCI_DOMAIN_ID, 50) \
    X(TEXTURE_PITCH_ALIGNMENT, 51) X(COMPUTE_CAPABILITY_MAJOR, 75) \
    X(COMPUTE_CAPABILITY_MINOR, 76) X(STREAM_PRIORITIES_SUPPORTED, 78) \
    X(GLOBAL_L1_CACHE_SUPPORTED, 79) X(LOCAL_L1_CACHE_SUPPORTED, 80) \
    X(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 81) X(MAX_REGISTERS_PER_MULTIPROCESSOR, 82) \
    X(MANAGED_MEMORY, 83) X(MULTI_GPU_BOARD, 84) X(HOST_NATIVE_ATOMIC_SUPPORTED, 86) \
    X(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 87) X(PAGEABLE_MEMORY_ACCESS, 88) \
    X(CONCURRENT_MANAGED_ACCESS, 89) X(COMPUTE_PREEMPTION_SUPPORTED, 90) \
    X(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91) X(COOPERATIVE_LAUNCH, 95) \
    X(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97) X(HOST_REGISTER_SUPPORTED, 99) \
    X(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102) X(MAX_BLOCKS_PER_MULTIPROCESSOR, 106) \
    X(MAX_PERSISTING_L2_CACHE_SIZE, 108) X(RESERVED_SHARED_MEMORY_PER_BLOCK, 111) \
    X(MEMORY_POOLS_SUPPORTED, 115) X(CLUSTER_LAUNCH, 120) X(CAN_USE_64_BIT_STREAM_MEM_OPS, 122) \
    X(CAN_USE_STREAM_WAIT_VALUE_NOR, 123) X(IPC_EVENT_SUPPORTED, 125) \
    X(MEM_SYNC_DOMAIN_COUNT, 126) X(TENSOR_MAP_ACCESS_SUPPORTED, 127) \
    X(UNIFIED_FUNCTION_POINTERS, 129) X(NUMA_CONFIG, 130) X(NUMA_ID, 131) \
    X(MULTICAST_SUPPORTED, 132) X(MPS_ENABLED, 133) X(HOST_NUMA_ID, 134)

// X(name after CU_FUNC_ATTRIBUTE_, value)
#define CUDA_FUNCTION_ATTRIBUTES(X) \
    X(MAX_THREADS_PER_BLOCK, 0) X(SHARED_SIZE_BYTES, 1) X(CONST_SIZE_BYTES, 2) \
    X(LOCAL_SIZE_BYTES, 3) X(NUM_REGS, 4) X(PTX_VERSION, 5) X(BINARY_VERSION, 6) \
    X(CACHE_MODE_CA, 7) X(MAX_DYNAMIC_SHARED_SIZE_BYTES, 8) \
    X(PREFERRED_SHARED_MEMORY_CARVEOUT, 9) X(CLUSTER_SIZE_MUST_BE_SET, 10) \
    X(REQUIRED_CLUSTER_WIDTH, 11) X(REQUIRED_CLUSTER_HEIGHT, 12) X(REQUIRED_CLUSTER_DEPTH, 13) \
    X(NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 14) X(CLUSTER_SCHEDULING_POLICY_PREFERENCE, 15)

// X(name after CU_POINTER_ATTRIBUTE_, value)
#define CUDA_POINTER_ATTRIBUTES(X) \
    X(CONTEXT, 1) X(MEMORY_TYPE, 2) X(DEVICE_POINTER, 3) X(HOST_POINTER, 4) X(BUFFER_ID, 7) \
    X(IS_MANAGED, 8) X(DEVICE_ORDINAL, 9) X(RANGE_START_ADDR, 11) X(RANGE_SIZE, 12) \
    X(MAPPED, 13)

// X(name after CU_JIT_, value)
#define CUDA_JIT_OPTIONS(X) \
    X(MAX_REGISTERS, 0) X(THREADS_PER_BLOCK, 1) X(WALL_TIME, 2) X(INFO_LOG_BUFFER, 3) \
    X(INFO_LOG_BUFFER_SIZE_BYTES, 4) X(ERROR_LOG_BUFFER, 5) X(ERROR_LOG_BUFFER_SIZE_BYTES, 6) \
    X(OPTIMIZATION_LEVEL, 7) X(TARGET_FROM_CUCONTEXT, 8) X(TARGET, 9) X(FALLBACK_STRATEGY, 10) \
    X(GENERATE_DEBUG_INFO, 11) X(LOG_VERBOSE, 12) X(GENERATE_LINE_INFO, 13) X(CACHE_MODE, 14) \
    X(NEW_SM3X_OPT, 15) X(FAST_COMPILE, 16) X(GLOBAL_SYMBOL_NAMES, 17) \
    X(GLOBAL_SYMBOL_ADDRESSES, 18) X(GLOBAL_SYMBOL_COUNT, 19) X(LTO, 20) X(FTZ, 21) \
    X(PREC_DIV, 22) X(PREC_SQRT, 23) X(FMA, 24) X(REFERENCED_KERNEL_NAMES, 25) \
    X(REFERENCED_KERNEL_COUNT, 26) X(REFERENCED_VARIABLE_NAMES, 27) \
    X(REFERENCED_VARIABLE_COUNT, 28) X(OPTIMIZE_UNUSED_DEVICE_VARIABLES, 29) \
    X(POSITION_INDEPENDENT_CODE, 30) X(MIN_CTA_PER_SM, 31) X(MAX_THREADS_PER_BLOCK, 32) \
    X(OVERRIDE_DIRECTIVE_VALUES, 33) X(SPLIT_COMPILE, 34)

// X(name after CU_LAUNCH_ATTRIBUTE_, value)
#define CUDA_LAUNCH_ATTRIBUTES(X) \
    X(IGNORE, 0) X(ACCESS_POLICY_WINDOW, 1) X(COOPERATIVE, 2) X(SYNCHRONIZATION_POLICY, 3) \
    X(CLUSTER_DIMENSION, 4) X(CLUSTER_SCHEDULING_POLICY_PREFERENCE, 5) \
    X(PROGRAMMATIC_STREAM_SERIALIZATION, 6) X(PROGRAMMATIC_EVENT, 7) X(PRIORITY, 8) \
    X(MEM_SYNC_DOMAIN_MAP, 9) X(MEM_SYNC_DOMAIN, 10) X(PREFERRED_CLUSTER_DIMENSION, 11) \
    X(LAUNCH_COMPLETION_EVENT, 12) X(DEVICE_UPDATABLE_KERNEL_NODE, 13) \
    X(PREFERRED_SHARED_MEMORY_CARVEOUT, 14) X(NVLINK_UTIL_CENTRIC_SCHEDULING, 16)

// X(name after CU_GRAPH_NODE_TYPE_, value)
#define CUDA_NODE_TYPES(X) \
    X(KERNEL, 0) X(MEMCPY, 1) X(MEMSET, 2) X(HOST, 3) X(GRAPH, 4) X(EMPTY, 5) X(WAIT_EVENT, 6) \
    X(EVENT_RECORD, 7) X(EXT_SEMAS_SIGNAL, 8) X(EXT_SEMAS_WAIT, 9) X(MEM_ALLOC, 10) \
    X(MEM_FREE, 11) X(BATCH_MEM_OP, 12) X(CONDITIONAL, 13)

// X(name after CU_GRAPH_EXEC_UPDATE_, value)
#define CUDA_UPDATE_RESULTS(X) \
    X(SUCCESS, 0x0) X(ERROR, 0x1) X(ERROR_TOPOLOGY_CHANGED, 0x2) X(ERROR_NODE_TYPE_CHANGED, 0x3) \
    X(ERROR_FUNCTION_CHANGED, 0x4) X(ERROR_PARAMETERS_CHANGED, 0x5) X(ERROR_NOT_SUPPORTED, 0x6) \
    X(ERROR_UNSUPPORTED_FUNCTION_CHANGE, 0x7) X(ERROR_ATTRIBUTES_CHANGED, 0x8)

// X(name after CUDA_GRAPH_INSTANTIATE_, value)
#define CUDA_INSTANTIATE_RESULTS(X) \
    X(SUCCESS, 0) X(ERROR, 1) X(INVALID_STRUCTURE, 2) X(NODE_OPERATION_NOT_SUPPORTED, 3) \
    X(MULTIPLE_CTXS_NOT_SUPPORTED, 4) X(CONDITIONAL_HANDLE_UNUSED, 5)

// X(name after CU_LIMIT_, value)
#define CUDA_LIMITS(X) \
    X(STACK_SIZE, 0x00) X(PRINTF_FIFO_SIZE, 0x01) X(MALLOC_HEAP_SIZE, 0x02) \
    X(DEV_RUNTIME_SYNC_DEPTH, 0x03) X(DEV_RUNTIME_PENDING_LAUNCH_COUNT, 0x04) \
    X(MAX_L2_FETCH_GRANULARITY, 0x05) X(PERSISTING_L2_CACHE_SIZE, 0x06) X(SHMEM_SIZE, 0x07)

#endif
