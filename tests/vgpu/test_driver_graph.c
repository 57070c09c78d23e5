// SPDX-License-Identifier: Apache-2.0
// Graphs built by hand: nodes of each type, edges, clones, child graphs, executables and their
// changes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/vgpu/api.h"

static const char ptx[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    // add(unsigned *at, unsigned value): *at = *at * 10 + value
    ".visible .entry add(.param .u64 p, .param .u32 v)\n{\n"
    "  .reg .b64 %rd<2>; .reg .b32 %r<4>;\n  ld.param.u64 %rd1, [p];\n  ld.param.u32 %r1, [v];\n"
    "  ld.global.u32 %r2, [%rd1];\n  mad.lo.u32 %r3, %r2, 10, %r1;\n  st.global.u32 [%rd1], %r3;\n"
    "  ret;\n}\n";

static CUmodule module;
static CUfunction add;
static CUdeviceptr at;
static CUstream stream;
static CUgraph graph;

static int begin(void **state) {
    (void)state;
    api_begin("sm_90a", "late");
    add = api_kernel(&module, ptx, "add");
    MUST(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(api.cuMemAlloc_v2(&at, 16));
    MUST(api.cuMemsetD32_v2(at, 0, 4));
    MUST(api.cuCtxSynchronize());
    MUST(api.cuGraphCreate(&graph, 0));
    return 0;
}

static int end(void **state) {
    (void)state;
    MUST(api.cuGraphDestroy(graph));
    api_end();
    return 0;
}

static CUDA_KERNEL_NODE_PARAMS kernel_params(unsigned int *value, void *params[2]) {
    params[0] = &at;
    params[1] = value;
    return (CUDA_KERNEL_NODE_PARAMS){ .func = add, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                                      .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
                                      .kernelParams = params };
}

static CUgraphNode digit(CUgraph to, unsigned int value, const CUgraphNode *after, size_t n) {
    void *params[2];
    CUDA_KERNEL_NODE_PARAMS kernel = kernel_params(&value, params);
    CUgraphNode node;
    MUST(api.cuGraphAddKernelNode_v2(&node, to, after, n, &kernel));
    return node;
}

static unsigned int value_of(void) {
    unsigned int value;
    MUST(api.cuStreamSynchronize(stream));
    MUST(api.cuMemcpyDtoH_v2(&value, at, 4));
    return value;
}

static unsigned int launch(CUgraphExec exec) {
    MUST(api.cuMemsetD32Async(at, 0, 1, stream));
    MUST(api.cuGraphLaunch(exec, stream));
    return value_of();
}

static CUgraphExec instantiate(void) {
    CUgraphExec exec;
    MUST(api.cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void test_edges(void **state) {
    (void)state;
    // Made against the order they run in: 1 after 2 after 3.
    CUgraphNode one = digit(graph, 1, NULL, 0), two = digit(graph, 2, NULL, 0);
    CUgraphNode three = digit(graph, 3, NULL, 0);
    CUgraphNode from[] = { three, two }, to[] = { two, one };
    MUST(api.cuGraphAddDependencies_v2(graph, from, to, NULL, 2));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuGraphAddDependencies_v2(graph, from, to, NULL, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuGraphAddDependencies_v2(graph, from, from, NULL, 1));
    CUgraphExec exec = instantiate();
    assert_int_equal(launch(exec), 321);
    MUST(api.cuGraphExecDestroy(exec));
    CUgraphNode nodes[4];
    size_t n = 4;
    MUST(api.cuGraphNodeGetDependencies_v2(two, nodes, NULL, &n));
    assert_true(n == 1 && nodes[0] == three && nodes[1] == NULL);
    n = 4;
    MUST(api.cuGraphNodeGetDependentNodes_v2(two, nodes, NULL, &n));
    assert_true(n == 1 && nodes[0] == one);
    CUgraphNode back_from[] = { one }, back_to[] = { three };
    MUST(api.cuGraphAddDependencies_v2(graph, back_from, back_to, NULL, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuGraphInstantiateWithFlags(&exec, graph, 0));
    assert_non_null(strstr(api.vgpuLastMessage(), "3 of its 3 nodes"));
    MUST(api.cuGraphRemoveDependencies_v2(graph, back_from, back_to, NULL, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           api.cuGraphRemoveDependencies_v2(graph, back_from, back_to, NULL, 1));
    MUST(api.cuGraphDestroyNode(two)); // 1 and 3 are not ordered any more
    MUST(api.cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &n));
    assert_int_equal(n, 0);
}

static void set_seven(void *user) {
    *(int *)user = 7;
}

static void test_node_types(void **state) {
    (void)state;
    int *host;
    MUST(api.cuMemAllocHost_v2((void **)&host, 8));
    host[0] = host[1] = 0;
    CUevent recorded, awaited;
    MUST(api.cuEventCreate(&recorded, 0));
    MUST(api.cuEventCreate(&awaited, 0));
    CUgraphNode fn, copy, fill, wait, kernel, record, empty, back;
    CUDA_HOST_NODE_PARAMS call = { set_seven, host };
    MUST(api.cuGraphAddHostNode(&fn, graph, NULL, 0, &call));
    CUDA_MEMCPY3D up = {
        .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = at,
        .WidthInBytes = 4, .Height = 1, .Depth = 1,
    };
    MUST(api.cuGraphAddMemcpyNode(&copy, graph, &fn, 1, &up, NULL));
    CUDA_MEMSET_NODE_PARAMS zero = { .dst = at + 4, .value = 6, .elementSize = 4, .width = 1,
                                     .height = 1 };
    MUST(api.cuGraphAddMemsetNode(&fill, graph, &copy, 1, &zero, NULL));
    MUST(api.cuGraphAddEventWaitNode(&wait, graph, &fill, 1, awaited));
    // The same through the general call.
    unsigned int value = 5;
    void *params[2];
    CUgraphNodeParams general = { .type = CU_GRAPH_NODE_TYPE_KERNEL };
    general.kernel = kernel_params(&value, params);
    MUST(api.cuGraphAddNode_v2(&kernel, graph, &wait, NULL, 1, &general));
    general = (CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD };
    general.eventRecord.event = recorded;
    MUST(api.cuGraphAddNode_v2(&record, graph, &kernel, NULL, 1, &general));
    general = (CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_EMPTY };
    MUST(api.cuGraphAddNode_v2(&empty, graph, &record, NULL, 1, &general));
    general = (CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_MEMCPY };
    general.memcpy.copyParams = (CUDA_MEMCPY3D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = at,
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = &host[1],
        .WidthInBytes = 4, .Height = 1, .Depth = 1,
    };
    MUST(api.cuGraphAddNode_v2(&back, graph, &empty, NULL, 1, &general));
    general = (CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
    CUgraphNode never;
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, api.cuGraphAddNode_v2(&never, graph, NULL, NULL, 0, &general));
    static const CUgraphNodeType types[] = {
        CU_GRAPH_NODE_TYPE_HOST, CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMSET,
        CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        CU_GRAPH_NODE_TYPE_EMPTY, CU_GRAPH_NODE_TYPE_MEMCPY,
    };
    CUgraphNode nodes[8];
    size_t n = 8;
    MUST(api.cuGraphGetNodes(graph, nodes, &n));
    assert_int_equal(n, 8);
    for (int i = 0; i < 8; i++) {
        CUgraphNodeType type;
        MUST(api.cuGraphNodeGetType(nodes[i], &type));
        assert_int_equal(type, types[i]);
    }
    CUgraphExec exec = instantiate();
    MUST(api.cuGraphLaunch(exec, stream));
    MUST(api.cuEventSynchronize(recorded)); // an event of the graph is one to wait for
    MUST(api.cuStreamSynchronize(stream));
    assert_int_equal(host[1], 75);
    unsigned int six;
    MUST(api.cuMemcpyDtoH_v2(&six, at + 4, 4));
    assert_int_equal(six, 6);
    CUDA_MEMCPY3D got;
    CUDA_MEMSET_NODE_PARAMS got_fill;
    CUDA_KERNEL_NODE_PARAMS got_kernel;
    MUST(api.cuGraphMemcpyNodeGetParams(copy, &got));
    assert_true(got.srcHost == host && got.dstDevice == at && got.WidthInBytes == 4);
    MUST(api.cuGraphMemsetNodeGetParams(fill, &got_fill));
    assert_true(got_fill.dst == at + 4 && got_fill.value == 6 && got_fill.elementSize == 4);
    MUST(api.cuGraphKernelNodeGetParams_v2(kernel, &got_kernel));
    assert_true(got_kernel.func == add && *(unsigned int *)got_kernel.kernelParams[1] == 5);
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuGraphKernelNodeGetParams_v2(fill, &got_kernel));
}

static void test_children_and_clones(void **state) {
    (void)state;
    CUgraph child, clone, inner;
    MUST(api.cuGraphCreate(&child, 0));
    CUgraphNode two = digit(child, 2, NULL, 0);
    digit(child, 3, &two, 1);
    CUgraphNode one = digit(graph, 1, NULL, 0), both;
    MUST(api.cuGraphAddChildGraphNode(&both, graph, &one, 1, child));
    MUST(api.cuGraphDestroy(child)); // a copy is in the node
    digit(graph, 4, &both, 1);
    CUgraphExec exec = instantiate();
    assert_int_equal(launch(exec), 1234);
    MUST(api.cuGraphChildGraphNodeGetGraph(both, &inner));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuGraphDestroy(inner));

    MUST(api.cuGraphClone(&clone, graph));
    CUgraphNode one_there;
    MUST(api.cuGraphNodeFindInClone(&one_there, one, clone));
    unsigned int nine = 9;
    void *params[2];
    CUDA_KERNEL_NODE_PARAMS kernel = kernel_params(&nine, params);
    MUST(api.cuGraphKernelNodeSetParams_v2(one_there, &kernel));
    CUgraphExec other;
    MUST(api.cuGraphInstantiateWithFlags(&other, clone, 0));
    MUST(api.cuGraphDestroy(clone));
    assert_int_equal(launch(other), 9234);
    assert_int_equal(launch(exec), 1234);
}

static void test_executable(void **state) {
    (void)state;
    CUgraphNode one = digit(graph, 1, NULL, 0), two = digit(graph, 2, &one, 1);
    CUgraphExec exec = instantiate();
    unsigned int eight = 8, enabled = 7;
    void *params[2];
    CUDA_KERNEL_NODE_PARAMS kernel = kernel_params(&eight, params);
    MUST(api.cuGraphExecKernelNodeSetParams_v2(exec, two, &kernel));
    eight = 0; // copied
    assert_int_equal(launch(exec), 18);
    MUST(api.cuGraphNodeSetEnabled(exec, one, 0));
    MUST(api.cuGraphNodeGetEnabled(exec, one, &enabled));
    assert_int_equal(enabled, 0);
    assert_int_equal(launch(exec), 8);
    MUST(api.cuGraphNodeSetEnabled(exec, one, 1));
    // A launch in flight keeps what it was launched with.
    CUstream other;
    MUST(api.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(api.cuMemsetD32Async(at, 0, 1, stream));
    MUST(api.cuGraphLaunch(exec, stream));
    eight = 7;
    MUST(api.cuGraphExecKernelNodeSetParams_v2(exec, two, &kernel));
    // And two launches of one executable follow each other, in whatever streams.
    MUST(api.cuGraphLaunch(exec, other));
    MUST(api.cuStreamSynchronize(other));
    assert_int_equal(value_of(), 1817);
    // Update from another graph of that shape; one of another shape is refused and changes nothing.
    CUgraph next;
    CUgraphExecUpdateResultInfo info;
    MUST(api.cuGraphCreate(&next, 0));
    CUgraphNode three = digit(next, 3, NULL, 0);
    digit(next, 4, &three, 1);
    MUST(api.cuGraphExecUpdate_v2(exec, next, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    assert_int_equal(launch(exec), 34);
    digit(next, 5, &three, 1);
    EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, api.cuGraphExecUpdate_v2(exec, next, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    assert_int_equal(launch(exec), 34);
    MUST(api.cuGraphDestroy(next));
    // Destroyed while it is pending, it still runs; without its module it does not start.
    MUST(api.cuMemsetD32Async(at, 0, 1, stream));
    MUST(api.cuGraphLaunch(exec, stream));
    MUST(api.cuGraphExecDestroy(exec));
    EXPECT(CUDA_ERROR_INVALID_VALUE, api.cuGraphLaunch(exec, stream));
    assert_int_equal(value_of(), 34);
    exec = instantiate();
    MUST(api.cuModuleUnload(module));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, api.cuGraphLaunch(exec, stream));
}

static void test_attributes(void **state) {
    (void)state;
    CUgraphNode node = digit(graph, 1, NULL, 0);
    CUkernelNodeAttrValue value = { .clusterDim = { 2, 1, 1 } };
    // The grid is one block.
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           api.cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
    value = (CUkernelNodeAttrValue){ .cooperative = 1 };
    MUST(api.cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    memset(&value, 0, sizeof value);
    MUST(api.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    assert_int_equal(value.cooperative, 1);
    CUgraphExec exec = instantiate();
    assert_int_equal(launch(exec), 1);
    // In a captured launch the attribute is kept too.
    CUlaunchAttribute attribute = { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1 };
    unsigned int five = 5;
    void *params[] = { &at, &five };
    CUlaunchConfig config = { 1, 1, 1, 1, 1, 1, 0, stream, &attribute, 1 };
    CUgraph captured;
    size_t n = 1;
    MUST(api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(api.cuLaunchKernelEx(&config, add, params, NULL));
    MUST(api.cuStreamEndCapture(stream, &captured));
    MUST(api.cuGraphGetNodes(captured, &node, &n));
    memset(&value, 0, sizeof value);
    MUST(api.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    assert_int_equal(value.cooperative, 1);
    MUST(api.cuGraphDestroy(captured));
}

// Nodes that are not ordered run in any order, and all before what follows them.
static void test_width(void **state) {
    (void)state;
    enum { N = 100 };
    CUdeviceptr wide;
    CUgraphNode fills[N], back;
    unsigned int got[N];
    MUST(api.cuMemAlloc_v2(&wide, sizeof got));
    for (unsigned int i = 0; i < N; i++) {
        CUDA_MEMSET_NODE_PARAMS fill = { .dst = wide + 4 * i, .value = i + 1, .elementSize = 4,
                                         .width = 1, .height = 1 };
        MUST(api.cuGraphAddMemsetNode(&fills[i], graph, NULL, 0, &fill, NULL));
    }
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = wide,
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = got,
        .WidthInBytes = sizeof got, .Height = 1, .Depth = 1,
    };
    MUST(api.cuGraphAddMemcpyNode(&back, graph, fills, N, &copy, NULL));
    CUgraphExec exec = instantiate();
    MUST(api.cuGraphLaunch(exec, stream));
    MUST(api.cuStreamSynchronize(stream));
    for (unsigned int i = 0; i < N; i++) assert_int_equal(got[i], i + 1);
}

// What a graph holds of a kernel outlives the kernel's module, but is not launched; nor is a kernel
// that has come to lie where the old one lay.
static void test_unloaded(void **state) {
    (void)state;
    digit(graph, 1, NULL, 0);
    CUgraphNode node = digit(graph, 2, NULL, 0);
    CUgraphExec early = instantiate(), late;
    CUgraph clone;
    MUST(api.cuModuleUnload(module));
    for (int again = 0; again < 2; again++) {
        EXPECT(CUDA_ERROR_INVALID_HANDLE, api.cuGraphLaunch(early, stream));
        MUST(api.cuGraphInstantiateWithFlags(&late, graph, 0));
        EXPECT(CUDA_ERROR_INVALID_HANDLE, api.cuGraphLaunch(late, stream));
        MUST(api.cuGraphClone(&clone, graph));
        MUST(api.cuGraphDestroy(clone));
        CUkernelNodeAttrValue cooperative = { .cooperative = 1 };
        EXPECT(CUDA_ERROR_INVALID_HANDLE,
               api.cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                                 &cooperative));
        add = api_kernel(&module, ptx, "add"); // most likely in the same place
    }
    unsigned int value = 3, got;
    void *params[2];
    CUDA_KERNEL_NODE_PARAMS kernel = kernel_params(&value, params);
    CUgraphNode nodes[2];
    size_t n = 2;
    MUST(api.cuGraphGetNodes(graph, nodes, &n));
    for (int i = 0; i < 2; i++) MUST(api.cuGraphKernelNodeSetParams_v2(nodes[i], &kernel));
    MUST(api.cuGraphLaunch(instantiate(), stream));
    MUST(api.cuStreamSynchronize(stream));
    MUST(api.cuMemcpyDtoH_v2(&got, at, 4));
    assert_int_equal(got, 33);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_edges, begin, end),
        cmocka_unit_test_setup_teardown(test_node_types, begin, end),
        cmocka_unit_test_setup_teardown(test_children_and_clones, begin, end),
        cmocka_unit_test_setup_teardown(test_executable, begin, end),
        cmocka_unit_test_setup_teardown(test_attributes, begin, end),
        cmocka_unit_test_setup_teardown(test_width, begin, end),
        cmocka_unit_test_setup_teardown(test_unloaded, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
