// SPDX-License-Identifier: Apache-2.0
// Nodes of graphs by type: adding them, and getting and setting what they do, in a graph and in an
// executable made of it.
#include <stdlib.h>

#include "runtime/vgpu/driver.h"

/* From parameters to work, and back ------------------------------------------------------------ */

static CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS *params, const VgdWork *old,
                            VgdWork *work) {
    if (!params) return CUDA_ERROR_INVALID_VALUE;
    VgdLaunchAsked asked = {
        .function = params->func ? params->func : (CUfunction)params->kern,
        .grid = { params->gridDimX, params->gridDimY, params->gridDimZ },
        .block = { params->blockDimX, params->blockDimY, params->blockDimZ },
        .shared = params->sharedMemBytes,
        .params = params->kernelParams, .extra = params->extra,
    };
    if (old) { // attributes stay
        memcpy(asked.cluster, old->launch.cluster, sizeof asked.cluster);
        asked.cooperative = old->launch.cooperative;
    }
    return vgd_launch_prepare(&asked, work);
}

static void kernel_params(const VgdWork *work, CUcontext context, CUDA_KERNEL_NODE_PARAMS *params) {
    const uint32_t *grid = work->launch.grid, *block = work->launch.block;
    *params = (CUDA_KERNEL_NODE_PARAMS){
        .func = work->launch.function,
        .gridDimX = grid[0], .gridDimY = grid[1], .gridDimZ = grid[2],
        .blockDimX = block[0], .blockDimY = block[1], .blockDimZ = block[2],
        .sharedMemBytes = work->launch.shared,
        .kernelParams = work->launch.pointers,
        .ctx = context,
    };
}

static CUresult memset_work(const CUDA_MEMSET_NODE_PARAMS *params, VgdWork *work) {
    if (!params) return CUDA_ERROR_INVALID_VALUE;
    return vgd_fill_prepare(params->dst, params->pitch, params->value, params->elementSize,
                            params->width,
                            params->height, work);
}

// Whatever host memory a node names is read when it runs, page-locked or not.
static CUresult memcpy_work(const CUDA_MEMCPY3D *params, VgdWork *work) {
    return vgd_copy3d_prepare(params, work);
}

static void memcpy_params(const VgdWork *work, CUDA_MEMCPY3D *params) {
    const VgdSide *to = &work->copy.to, *from = &work->copy.from;
    *params = (CUDA_MEMCPY3D){
        .srcMemoryType = from->host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .srcHost = from->host ? (const void *)(uintptr_t)from->at : NULL,
        .srcDevice = from->host ? 0 : from->at,
        .srcPitch = from->pitch, .srcHeight = from->pitch ? from->slice / from->pitch : 0,
        .dstMemoryType = to->host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .dstHost = to->host ? (void *)(uintptr_t)to->at : NULL,
        .dstDevice = to->host ? 0 : to->at,
        .dstPitch = to->pitch, .dstHeight = to->pitch ? to->slice / to->pitch : 0,
        .WidthInBytes = work->copy.width, .Height = work->copy.height, .Depth = work->copy.depth,
    };
}

static CUresult host_work(const CUDA_HOST_NODE_PARAMS *params, VgdWork *work) {
    if (!params || !params->fn) return CUDA_ERROR_INVALID_VALUE;
    *work = (VgdWork){ .kind = VGD_HOST, .host = { .function = params->fn,
                                                   .user = params->userData } };
    return CUDA_SUCCESS;
}

/* Adding --------------------------------------------------------------------------------------- */

static CUresult enter_add(CUgraph graph, const CUgraphNode *after, size_t n, CUgraphNode *node) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!node || (n && !after)) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    if (!vgd_object_is(graph, VGD_GRAPH))
        return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "%p is not a graph", (void *)graph));
    for (size_t i = 0; i < n; i++)
        if (!vgd_object_is(after[i], VGD_NODE) || after[i]->graph != graph)
            return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "dependency %zu is not a node of"
                                      " the"
                                      " graph", i));
    return CUDA_SUCCESS;
}

static CUresult add(CUgraph graph, CUgraphNodeType type, VgdWork *work, const CUgraphNode *after,
                    size_t n, CUgraphNode *node) {
    *node = vgd_graph_add(graph, type, work, after, n);
    return *node ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                 size_t n,
                                 const CUDA_KERNEL_NODE_PARAMS *params) {
    VgdWork work;
    CUresult result = enter_add(graph, after, n, node);
    if (result) return result;
    result = kernel_work(params, NULL, &work);
    if (!result) result = add(graph, CU_GRAPH_NODE_TYPE_KERNEL, &work, after, n, node);
    return vgd_leave(result);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,
                              const CUDA_MEMCPY3D *params, CUcontext context) {
    (void)context;
    VgdWork work;
    CUresult result = enter_add(graph, after, n, node);
    if (result) return result;
    result = memcpy_work(params, &work);
    if (!result) result = add(graph, CU_GRAPH_NODE_TYPE_MEMCPY, &work, after, n, node);
    return vgd_leave(result);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,
                              const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context) {
    (void)context;
    VgdWork work;
    CUresult result = enter_add(graph, after, n, node);
    if (result) return result;
    result = memset_work(params, &work);
    if (!result) result = add(graph, CU_GRAPH_NODE_TYPE_MEMSET, &work, after, n, node);
    return vgd_leave(result);
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,
                            const CUDA_HOST_NODE_PARAMS *params) {
    VgdWork work;
    CUresult result = enter_add(graph, after, n, node);
    if (result) return result;
    result = host_work(params, &work);
    if (!result) result = add(graph, CU_GRAPH_NODE_TYPE_HOST, &work, after, n, node);
    return vgd_leave(result);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n) {
    VgdWork work = { .kind = VGD_MARK };
    CUresult result = enter_add(graph, after, n, node);
    if (result) return result;
    return vgd_leave(add(graph, CU_GRAPH_NODE_TYPE_EMPTY, &work, after, n, node));
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                  size_t n,
                                  CUgraph child) {
    VgdWork work = { .kind = VGD_MARK };
    CUresult result = enter_add(graph, after, n, node);
    if (result) return result;
    CUgraph clone = NULL;
    if (!vgd_object_is(child, VGD_GRAPH)) result = CUDA_ERROR_INVALID_VALUE;
    else if (!(clone = vgd_graph_clone(child))) result = CUDA_ERROR_OUT_OF_MEMORY;
    else result = add(graph, CU_GRAPH_NODE_TYPE_GRAPH, &work, after, n, node);
    if (!result) {
        clone->in = *node;
        (*node)->child = clone;
    } else if (clone) {
        vgd_graph_free(clone);
    }
    return vgd_leave(result);
}

static CUresult add_event(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,
                          CUevent event, CUgraphNodeType type) {
    VgdWork work = { .kind = VGD_MARK };
    CUresult result = enter_add(graph, after, n, node);
    if (result) return result;
    if (!vgd_object_is(event, VGD_EVENT)) result = CUDA_ERROR_INVALID_HANDLE;
    else result = add(graph, type, &work, after, n, node);
    if (!result) (*node)->event = event;
    return vgd_leave(result);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                   size_t n,
                                   CUevent event) {
    return add_event(node, graph, after, n, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                 size_t n,
                                 CUevent event) {
    return add_event(node, graph, after, n, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                           const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *params) {
    (void)edges; // a node starts when those before it are done, whatever the edge permits
    if (!params) return CUDA_ERROR_INVALID_VALUE;
    switch ((int)params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS kernel;
        memcpy(&kernel, &params->kernel, sizeof kernel);
        return cuGraphAddKernelNode_v2(node, graph, after, n, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphAddMemcpyNode(node, graph, after, n, &params->memcpy.copyParams, NULL);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS fill;
        memcpy(&fill, &params->memset, sizeof fill);
        return cuGraphAddMemsetNode(node, graph, after, n, &fill, NULL);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        CUDA_HOST_NODE_PARAMS host = { params->host.fn, params->host.userData };
        return cuGraphAddHostNode(node, graph, after, n, &host);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return cuGraphAddChildGraphNode(node, graph, after, n, params->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY: return cuGraphAddEmptyNode(node, graph, after, n);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphAddEventWaitNode(node, graph, after, n, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphAddEventRecordNode(node, graph, after, n, params->eventRecord.event);
    default:
        return vgd_fail(CUDA_ERROR_NOT_SUPPORTED, "graph node of type %d: semaphores, allocation"
                        " and"
                        " conditions are not had here", (int)params->type);
    }
}

/* Getting and setting -------------------------------------------------------------------------- */

static CUresult enter_node(CUgraphNode node, CUgraphNodeType type) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!vgd_object_is(node, VGD_NODE) || node->type != type)
        return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "not a node of the type asked for"));
    return CUDA_SUCCESS;
}

// Takes `work` over.
static CUresult set(CUgraphNode node, VgdWork *work) {
    vgd_work_finish(&node->work);
    node->work = *work;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params) {
    CUresult result = enter_node(node, CU_GRAPH_NODE_TYPE_KERNEL);
    if (result) return result;
    if (params) kernel_params(&node->work, node->graph->context, params);
    return vgd_leave(params ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params) {
    VgdWork work;
    CUresult result = enter_node(node, CU_GRAPH_NODE_TYPE_KERNEL);
    if (result) return result;
    result = kernel_work(params, &node->work, &work);
    return vgd_leave(result ? result : set(node, &work));
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *params) {
    CUresult result = enter_node(node, CU_GRAPH_NODE_TYPE_MEMCPY);
    if (result) return result;
    if (params) memcpy_params(&node->work, params);
    return vgd_leave(params ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params) {
    VgdWork work;
    CUresult result = enter_node(node, CU_GRAPH_NODE_TYPE_MEMCPY);
    if (result) return result;
    result = memcpy_work(params, &work);
    return vgd_leave(result ? result : set(node, &work));
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params) {
    CUresult result = enter_node(node, CU_GRAPH_NODE_TYPE_MEMSET);
    if (result) return result;
    if (!params) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    const VgdWork *work = &node->work;
    *params = (CUDA_MEMSET_NODE_PARAMS){
        .dst = work->fill.to, .pitch = work->fill.pitch, .value = work->fill.value,
        .elementSize = work->fill.value_bytes, .width = work->fill.width,
        .height = work->fill.height,
    };
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params) {
    VgdWork work;
    CUresult result = enter_node(node, CU_GRAPH_NODE_TYPE_MEMSET);
    if (result) return result;
    result = memset_work(params, &work);
    return vgd_leave(result ? result : set(node, &work));
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph) {
    CUresult result = enter_node(node, CU_GRAPH_NODE_TYPE_GRAPH);
    if (result) return result;
    if (graph) *graph = node->child;
    return vgd_leave(graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       CUkernelNodeAttrValue *value) {
    CUresult result = enter_node(node, CU_GRAPH_NODE_TYPE_KERNEL);
    if (result) return result;
    if (!value) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    memset(value, 0, sizeof *value);
    if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
        value->cooperative = node->work.launch.cooperative;
    } else if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
        value->clusterDim.x = node->work.launch.cluster[0];
        value->clusterDim.y = node->work.launch.cluster[1];
        value->clusterDim.z = node->work.launch.cluster[2];
    }
    return vgd_leave(CUDA_SUCCESS);
}

// Checked like a launch with that attribute.
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       const CUkernelNodeAttrValue *value) {
    CUresult result = enter_node(node, CU_GRAPH_NODE_TYPE_KERNEL);
    if (result) return result;
    if (!value) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    CUlaunchAttribute attribute = { .id = id, .value = *value };
    VgdWork *old = &node->work, work;
    if ((result = vgd_work_loaded(old))) return vgd_leave(result);
    VgdLaunchAsked asked = {
        .function = old->launch.function, .shared = old->launch.shared,
        .params = old->launch.pointers, .cooperative = old->launch.cooperative,
        .attributes = &attribute, .n_attributes = 1,
    };
    memcpy(asked.grid, old->launch.grid, sizeof asked.grid);
    memcpy(asked.block, old->launch.block, sizeof asked.block);
    memcpy(asked.cluster, old->launch.cluster, sizeof asked.cluster);
    result = vgd_launch_prepare(&asked, &work);
    return vgd_leave(result ? result : set(node, &work));
}

/* In an executable ----------------------------------------------------------------------------- */

// Takes `work` over.
static CUresult set_in_exec(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type,
                            VgdWork *work) {
    VgdWork *to = vgd_exec_work(exec, node);
    if (!to || node->type != type || to->kind != work->kind) {
        vgd_work_finish(work);
        return vgd_fail(CUDA_ERROR_INVALID_VALUE, "the executable has no node of that type made"
                        " of this"
                        " one");
    }
    vgd_work_finish(to);
    *to = *work;
    return CUDA_SUCCESS;
}

static CUresult enter_exec(CUgraphExec exec) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result || vgd_object_is(exec, VGD_EXEC)) return result;
    return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "%p is not an executable graph",
                              (void *)exec));
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *params) {
    VgdWork work;
    CUresult result = enter_exec(exec);
    if (result) return result;
    const VgdWork *old = vgd_exec_work(exec, node);
    result = kernel_work(params, old && old->kind == VGD_KERNEL ? old : NULL, &work);
    if (!result) result = set_in_exec(exec, node, CU_GRAPH_NODE_TYPE_KERNEL, &work);
    return vgd_leave(result);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D *params,
                                        CUcontext context) {
    (void)context;
    VgdWork work;
    CUresult result = enter_exec(exec);
    if (result) return result;
    result = memcpy_work(params, &work);
    if (!result) result = set_in_exec(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY, &work);
    return vgd_leave(result);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context) {
    (void)context;
    VgdWork work;
    CUresult result = enter_exec(exec);
    if (result) return result;
    result = memset_work(params, &work);
    if (!result) result = set_in_exec(exec, node, CU_GRAPH_NODE_TYPE_MEMSET, &work);
    return vgd_leave(result);
}
