// SPDX-License-Identifier: Apache-2.0
// Launches: what is checked before a kernel runs, running it, and occupancy.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/vgpu/driver.h"

enum { PORTABLE_CLUSTER = 8, LARGEST_CLUSTER = 16 };

/* Checks --------------------------------------------------------------------------------------- */

static CUresult check_shape(const VgdLaunchAsked *asked, const VgKernelInfo *info) {
    static const uint32_t grid_limit[3] = { INT32_MAX, 65535, 65535 };
    static const uint32_t block_limit[3] = { 1024, 1024, 64 };
    const uint32_t *grid = asked->grid, *block = asked->block;
    for (int i = 0; i < 3; i++)
        if (!grid[i] || grid[i] > grid_limit[i] || !block[i] || block[i] > block_limit[i])
            return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%s: grid (%u,%u,%u) of blocks (%u,%u,%u):"
                            " each is"
                            " at least 1 and at most (2147483647,65535,65535) and (1024,1024,64)",
                            info->name, grid[0], grid[1], grid[2], block[0], block[1], block[2]);
    uint32_t threads = block[0] * block[1] * block[2];
    if (threads > info->max_threads)
        return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%s: %u threads in a block; the kernel takes %u\n"
                        "  hint: __launch_bounds__ (.maxntid) says so", info->name, threads,
                        info->max_threads);
    for (int i = 0; i < 3; i++)
        if (info->reqntid[0] && block[i] != info->reqntid[i])
            return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%s: block (%u,%u,%u); the kernel requires"
                            " (%u,%u,%u) (.reqntid)", info->name, block[0], block[1], block[2],
                            info->reqntid[0], info->reqntid[1], info->reqntid[2]);
    return CUDA_SUCCESS;
}

static CUresult check_shared(const VgdLaunchAsked *asked, const VgKernelInfo *info) {
    int dynamic = asked->function->max_dynamic;
    if ((int64_t)asked->shared <= dynamic) return CUDA_SUCCESS;
    return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%s: %u bytes of dynamic shared memory; at most %d"
                    " beside"
                    " %u declared\n  hint: cuFuncSetAttribute("
                    "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)", info->name, asked->shared,
                    dynamic, info->static_shared);
}

// Decides the cluster: of the launch, of the kernel, or none.
static CUresult check_cluster(VgdLaunchAsked *asked, const VgKernelInfo *info) {
    uint32_t *cluster = asked->cluster;
    bool given = cluster[0] != 0;
    for (int i = 0; i < 3; i++) {
        if (!given) cluster[i] = info->cluster[0] ? info->cluster[i] : 1;
        else if (info->cluster[0] && cluster[i] != info->cluster[i])
            return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%s: cluster (%u,%u,%u); the kernel requires"
                            " (%u,%u,%u)", info->name, cluster[0], cluster[1], cluster[2],
                            info->cluster[0], info->cluster[1], info->cluster[2]);
    }
    uint64_t size = (uint64_t)cluster[0] * cluster[1] * cluster[2];
    uint32_t most = asked->function->non_portable ? LARGEST_CLUSTER : PORTABLE_CLUSTER;
    if (!size) return CUDA_ERROR_INVALID_VALUE;
    if (size > 1 && vgd.cc < 90)
        return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%s: clusters need sm_90, this is %s", info->name,
                        vgd.arch);
    if (size > most)
        return vgd_fail(CUDA_ERROR_INVALID_CLUSTER_SIZE, "%s: a cluster of %llu blocks; at most"
                        " %u\n"
                        "  hint: up to 16 with CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED",
                        info->name, (unsigned long long)size, most);
    for (int i = 0; i < 3; i++)
        if (asked->grid[i] % cluster[i])
            return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%s: grid (%u,%u,%u) is no multiple of"
                            " cluster"
                            " (%u,%u,%u)", info->name, asked->grid[0], asked->grid[1],
                            asked->grid[2],
                            cluster[0], cluster[1], cluster[2]);
    return CUDA_SUCCESS;
}

static CUresult check_resident(const VgdLaunchAsked *asked, const VgKernelInfo *info) {
    uint32_t threads = asked->block[0] * asked->block[1] * asked->block[2];
    int each = vg_occupancy(vgd.device, asked->function->kernel, threads, asked->shared);
    if (each < 1)
        return vgd_fail(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "%s: not one block of %u threads and %u"
                        " bytes of shared memory fits a multiprocessor", info->name, threads,
                        asked->shared + info->static_shared);
    uint64_t blocks = (uint64_t)asked->grid[0] * asked->grid[1] * asked->grid[2];
    uint64_t room = (uint64_t)each * (uint64_t)vg_device_sm_count(vgd.device);
    if (asked->cooperative && blocks > room)
        return vgd_fail(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "%s: a cooperative grid of %llu"
                        " blocks;"
                        " %llu are resident at once", info->name, (unsigned long long)blocks,
                        (unsigned long long)room);
    return CUDA_SUCCESS;
}

static CUresult read_attributes(VgdLaunchAsked *asked) {
    for (uint32_t i = 0; i < asked->n_attributes; i++) {
        const CUlaunchAttributeValue *value = &asked->attributes[i].value;
        CUevent event = NULL;
        switch ((int)asked->attributes[i].id) {
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            asked->cluster[0] = value->clusterDim.x;
            asked->cluster[1] = value->clusterDim.y;
            asked->cluster[2] = value->clusterDim.z;
            break;
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: asked->cooperative = value->cooperative != 0; break;
        // Recorded when the whole kernel is done, which is the latest they may be.
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT: event = value->programmaticEvent.event; break;
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
            event = value->launchCompletionEvent.event;
            break;
        // A kernel never starts before the one before it is done, which both permit.
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        // Advice without effect on results.
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING: break;
        default:
            return vgd_fail(CUDA_ERROR_NOT_SUPPORTED, "launch attribute %d",
                            (int)asked->attributes[i].id);
        }
        if (!event) continue;
        if (!vgd_object_is(event, VGD_EVENT) || asked->n_events == COUNT_OF(asked->events))
            return CUDA_ERROR_INVALID_HANDLE;
        asked->events[asked->n_events++] = event;
    }
    return CUDA_SUCCESS;
}

/* Parameters ----------------------------------------------------------------------------------- */

static CUresult read_extra(void **extra, const VgKernelInfo *info, void *to) {
    const void *at = NULL;
    const size_t *bytes = NULL;
    for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) at = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = extra[i + 1];
        else return CUDA_ERROR_INVALID_VALUE;
    }
    if (!bytes || (!at && *bytes) || *bytes < info->param_bytes)
        return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%s: a parameter buffer of %zu bytes; the"
                        " kernel takes"
                        " %u", info->name, bytes ? *bytes : 0, info->param_bytes);
    if (info->param_bytes) memcpy(to, at, info->param_bytes);
    return CUDA_SUCCESS;
}

static CUresult read_params(const VgdLaunchAsked *asked, const VgKernelInfo *info, VgdWork *work) {
    char *params = calloc(1, info->param_bytes + 1);
    void **pointers = calloc(info->n_params + 1, sizeof *pointers);
    work->launch.params = params;
    work->launch.pointers = pointers;
    if (!params || !pointers) return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < info->n_params; i++) pointers[i] = params + info->params[i].offset;
    if (asked->params && asked->extra)
        return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%s: parameters in both forms: one by one, and as"
                        " a buffer", info->name);
    if (asked->extra) return read_extra(asked->extra, info, params);
    if (info->n_params && !asked->params)
        return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%s: takes %u parameters, none are given",
                        info->name,
                        info->n_params);
    for (uint32_t i = 0; i < info->n_params; i++) {
        if (!asked->params[i])
            return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%s: parameter %u: NULL", info->name, i);
        memcpy(pointers[i], asked->params[i], info->params[i].bytes);
    }
    return CUDA_SUCCESS;
}

CUresult vgd_launch_prepare(VgdLaunchAsked *asked, VgdWork *work) {
    *work = (VgdWork){ 0 };
    CUresult result = vgd_function(asked->function, &asked->function);
    if (result) return result;
    const VgKernelInfo *info = asked->function->info;
    if ((result = read_attributes(asked))) return result;
    if ((result = check_shape(asked, info))) return result;
    if ((result = check_shared(asked, info))) return result;
    if ((result = check_cluster(asked, info))) return result;
    if ((result = check_resident(asked, info))) return result;
    work->kind = VGD_KERNEL;
    work->launch.function = asked->function;
    work->launch.id = asked->function->id;
    work->launch.n_params = info->n_params;
    work->launch.param_bytes = info->param_bytes;
    work->launch.shared = asked->shared;
    work->launch.cooperative = asked->cooperative;
    memcpy(work->launch.grid, asked->grid, sizeof asked->grid);
    memcpy(work->launch.block, asked->block, sizeof asked->block);
    memcpy(work->launch.cluster, asked->cluster, sizeof asked->cluster);
    result = read_params(asked, info, work);
    if (result) vgd_work_finish(work);
    return result;
}

/* Running -------------------------------------------------------------------------------------- */

static CUresult error_of(VgFault fault) {
    switch (fault) {
    case VG_OK: return CUDA_SUCCESS;
    case VG_ILLEGAL_ADDRESS:
    case VG_USE_AFTER_FREE:
    case VG_READ_ONLY: return CUDA_ERROR_ILLEGAL_ADDRESS;
    case VG_MISALIGNED: return CUDA_ERROR_MISALIGNED_ADDRESS;
    case VG_ILLEGAL_INSTRUCTION: return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case VG_ASSERT: return CUDA_ERROR_ASSERT;
    case VG_DEADLOCK: return CUDA_ERROR_LAUNCH_TIMEOUT;
    case VG_NO_MEMORY: return CUDA_ERROR_OUT_OF_MEMORY;
    default: return CUDA_ERROR_LAUNCH_FAILED;
    }
}

CUresult vgd_launch_run(const VgdWork *work) {
    VgLaunch launch = {
        .kernel = work->launch.function->kernel,
        .dynamic_shared = work->launch.shared,
        .params = work->launch.params,
        .cooperative = work->launch.cooperative,
    };
    memcpy(launch.grid, work->launch.grid, sizeof launch.grid);
    memcpy(launch.block, work->launch.block, sizeof launch.block);
    memcpy(launch.cluster, work->launch.cluster, sizeof launch.cluster);
    int before = vg_reports_count(vgd.reports, VG_OK);
    VgFault fault = vg_run(vgd.device, &launch);
    // The run has filed its findings, warnings included; here they only get printed.
    bool print = !vgd.quiet && (fault == VG_OK || !vgd.untold);
    if (print && vg_reports_count(vgd.reports, VG_OK) > before)
        fprintf(stderr, "moec-vgpu: %s\n", vg_reports_last(vgd.reports));
    return error_of(fault);
}

/* Calls ---------------------------------------------------------------------------------------- */

static CUresult launch(CUcontext context, CUstream handle, VgdLaunchAsked *asked) {
    CUstream stream;
    VgdWork work;
    CUresult result = vgd_stream_find(context, handle, &stream);
    if (!result) result = vgd_launch_prepare(asked, &work);
    if (result) return result;
    if (stream->context != asked->function->module->context) {
        vgd_work_finish(&work);
        return vgd_fail(CUDA_ERROR_INVALID_HANDLE, "kernel and stream are of different contexts");
    }
    return vgd_submit(stream, &work, NULL);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!config || (config->numAttrs && !config->attrs)) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    VgdLaunchAsked asked = {
        .function = function,
        .grid = { config->gridDimX, config->gridDimY, config->gridDimZ },
        .block = { config->blockDimX, config->blockDimY, config->blockDimZ },
        .shared = config->sharedMemBytes,
        .params = params, .extra = extra,
        .attributes = config->attrs, .n_attributes = config->numAttrs,
    };
    result = vgd_leave(launch(context, config->hStream, &asked));
    for (int i = 0; !result && i < asked.n_events; i++)
        result = cuEventRecord(asked.events[i], config->hStream);
    return result;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared, CUstream stream, void **params,
                        void **extra) {
    CUlaunchConfig config = { grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                              NULL, 0 };
    return cuLaunchKernelEx(&config, function, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared, CUstream stream,
                                   void **params) {
    CUlaunchAttribute attribute = { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1 };
    CUlaunchConfig config = { grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                              &attribute, 1 };
    return cuLaunchKernelEx(&config, function, params, NULL);
}

/* Occupancy ------------------------------------------------------------------------------------ */

static CUresult enter_function(CUfunction function) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    result = vgd_function(function, &function);
    return result ? vgd_leave(result) : CUDA_SUCCESS;
}

static int occupancy(CUfunction function, int threads, size_t shared) {
    if (threads > (int)function->info->max_threads || shared > UINT32_MAX) return 0;
    return vg_occupancy(vgd.device, function->kernel, (uint32_t)threads, (uint32_t)shared);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int threads, size_t shared,
                                                              unsigned int flags) {
    CUresult result = enter_function(function);
    if (result) return result;
    if (!blocks || threads < 1 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
        return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    *blocks = occupancy(function, threads, shared);
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t shared) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared,
                                                                0);
}

// The block size with the most threads resident; of equals the larger.
CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *threads, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t shared, int limit) {
    CUresult result = enter_function(function);
    if (result) return result;
    if (!grid || !threads) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    int most = (int)function->info->max_threads, best = 0, best_blocks = 0;
    if (limit > 0 && limit < most) most = limit;
    for (int n = (most + 31) / 32 * 32; n > 0; n -= 32) {
        int size = n < most ? n : most;
        int blocks = occupancy(function, size, shared_of ? shared_of(size) : shared);
        if (blocks * size <= best_blocks * best) continue;
        best = size;
        best_blocks = blocks;
    }
    *threads = best;
    *grid = best_blocks * vg_device_sm_count(vgd.device);
    return vgd_leave(best ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *shared, CUfunction function, int blocks,
                                                 int threads) {
    CUresult result = enter_function(function);
    if (result) return result;
    if (!shared || blocks < 1 || threads < 1) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    int low = -1,
    high = vgd_device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    while (low < high) { // the largest with which that many fit
        int middle = low + (high - low + 1) / 2;
        if (occupancy(function, threads, (size_t)middle) >= blocks) low = middle;
        else high = middle - 1;
    }
    *shared = low < 0 ? 0 : (size_t)low;
    return vgd_leave(low < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function,
                                            const CUlaunchConfig *config) {
    CUresult result = enter_function(function);
    if (result) return result;
    if (!size || !config) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    *size = vgd.cc < 90 ? 1 : function->non_portable ? LARGEST_CLUSTER : PORTABLE_CLUSTER;
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function,
                                      const CUlaunchConfig *config) {
    CUresult result = enter_function(function);
    if (result) return result;
    if (!clusters || !config) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    const VgKernelInfo *info = function->info;
    int size = info->cluster[0] ? (int)(info->cluster[0] * info->cluster[1] * info->cluster[2]) : 1;
    for (unsigned int i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttributeValue *value = &config->attrs[i].value;
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            size = (int)(value->clusterDim.x * value->clusterDim.y * value->clusterDim.z);
    }
    if (size < 1) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    int threads = (int)(config->blockDimX * config->blockDimY * config->blockDimZ);
    *clusters = occupancy(function, threads, config->sharedMemBytes) *
                vg_device_sm_count(vgd.device) / size;
    return vgd_leave(CUDA_SUCCESS);
}
