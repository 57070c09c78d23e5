// SPDX-License-Identifier: Apache-2.0
// Executable graphs: a graph's nodes in an order that its edges permit, child graphs dissolved.
//
// A launch makes one operation per node. The first ones follow what the stream's rules want, a last
// mark follows all of them and is the stream's new tail, and each launch of an executable follows
// the one before, since it cannot run twice at once. Which of several ready nodes runs is the
// queue's choice, as with streams.
#include <stdlib.h>

#include "runtime/vgpu/driver.h"

typedef struct Step {
    CUgraphNode node;        // of the graph it was made of: an identity, not read through
    CUgraphNodeType type;
    VgdWork work;
    CUevent event;
    bool disabled;
    uint32_t *after, n_after;
    bool followed;           // by another step
} Step;

struct CUgraphExec_st {
    CUcontext context;
    Step *steps;
    uint32_t n_steps;
    VgdOp *last;             // of the last launch
    cuuint64_t flags;
};

/* Making --------------------------------------------------------------------------------------- */

void vgd_exec_free(CUgraphExec exec) {
    for (uint32_t i = 0; i < exec->n_steps; i++) {
        vgd_work_finish(&exec->steps[i].work);
        free(exec->steps[i].after);
    }
    vgd_op_drop(exec->last);
    vgd_object_remove(exec);
    free(exec->steps);
    free(exec);
}

static uint32_t count_steps(CUgraph graph) {
    uint32_t n = graph->nodes.n;
    for (uint32_t i = 0; i < graph->nodes.n; i++)
        if (graph->nodes.at[i]->child) n += count_steps(graph->nodes.at[i]->child) + 1;
    return n;
}

static bool follow(Step *step, uint32_t before) {
    uint32_t *after = realloc(step->after, (step->n_after + 1) * sizeof *after);
    if (!after) return false;
    step->after = after;
    after[step->n_after++] = before;
    return true;
}

static CUresult add_graph(CUgraphExec exec, CUgraph graph, int entry);

// A node; of one that is a graph: a mark, the steps of the graph, a mark. node->index is the last.
static CUresult add_step(CUgraphExec exec, CUgraphNode node, int entry) {
    Step *step = &exec->steps[exec->n_steps++];
    *step = (Step){ .node = node, .type = node->type, .event = node->event };
    bool ok = node->child || vgd_work_copy(&step->work, &node->work);
    for (uint32_t i = 0; ok && i < node->after.n; i++)
        ok = follow(step, (uint32_t)node->after.at[i]->index);
    if (ok && entry >= 0 && !node->after.n) ok = follow(step, (uint32_t)entry);
    if (!ok) return CUDA_ERROR_OUT_OF_MEMORY;
    node->index = (int)exec->n_steps - 1;
    if (!node->child) return CUDA_SUCCESS;
    uint32_t first = exec->n_steps - 1;
    CUresult result = add_graph(exec, node->child, (int)first);
    if (result) return result;
    Step *exit = &exec->steps[exec->n_steps++];
    *exit = (Step){ .type = CU_GRAPH_NODE_TYPE_EMPTY };
    for (uint32_t i = first; ok && i < exec->n_steps - 1; i++) ok = follow(exit, i);
    node->index = (int)exec->n_steps - 1;
    return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Kahn's order, in rounds: nodes whose predecessors all have their place.
static CUresult add_graph(CUgraphExec exec, CUgraph graph, int entry) {
    VgdNodes *nodes = &graph->nodes;
    uint32_t placed = 0, before = UINT32_MAX;
    for (uint32_t i = 0; i < nodes->n; i++) nodes->at[i]->index = -1;
    while (placed < nodes->n && placed != before) {
        before = placed;
        for (uint32_t i = 0; i < nodes->n; i++) {
            CUgraphNode node = nodes->at[i];
            bool ready = node->index < 0;
            for (uint32_t k = 0; ready && k < node->after.n; k++)
                ready = node->after.at[k]->index >= 0;
            if (!ready) continue;
            CUresult result = add_step(exec, node, entry);
            if (result) return result;
            placed++;
        }
    }
    if (placed == nodes->n) return CUDA_SUCCESS;
    return vgd_fail(CUDA_ERROR_INVALID_VALUE, "the graph has a cycle: %u of its %u nodes wait for"
                    " each"
                    " other", nodes->n - placed, nodes->n);
}

static CUresult instantiate(CUgraph graph, cuuint64_t flags, CUgraphExec *made) {
    if (!made || !vgd_object_is(graph, VGD_GRAPH) ||
        graph->capturing) return CUDA_ERROR_INVALID_VALUE;
    if (flags & ~(cuuint64_t)15) return CUDA_ERROR_INVALID_VALUE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return vgd_fail(CUDA_ERROR_NOT_SUPPORTED, "graphs are not launched from kernels here");
    CUgraphExec exec = calloc(1, sizeof *exec);
    uint32_t n = count_steps(graph);
    if (exec) exec->steps = calloc(n + 1, sizeof *exec->steps);
    if (!exec || !exec->steps || !vgd_object_add(exec, VGD_EXEC, graph->context)) {
        if (exec) free(exec->steps);
        free(exec);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    exec->context = graph->context;
    exec->flags = flags;
    CUresult result = add_graph(exec, graph, -1);
    if (result) {
        vgd_exec_free(exec);
        return result;
    }
    for (uint32_t i = 0; i < exec->n_steps; i++)
        for (uint32_t k = 0; k < exec->steps[i].n_after; k++)
            exec->steps[exec->steps[i].after[k]].followed = true;
    *made = exec;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    return result ? result : vgd_leave(instantiate(graph, flags, exec));
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!params) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    result = instantiate(graph, params->flags, exec);
    params->hErrNode_out = NULL;
    params->result_out = result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return vgd_leave(result);
}

/* Running -------------------------------------------------------------------------------------- */

static CUresult enter_exec(CUgraphExec exec) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result || vgd_object_is(exec, VGD_EXEC)) return result;
    return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "%p is not an executable graph",
                              (void *)exec));
}

// The kernels may have gone with their modules since.
static CUresult check_steps(CUgraphExec exec) {
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; !result && i < exec->n_steps; i++)
        result = vgd_work_loaded(&exec->steps[i].work);
    return result;
}

// An operation for step `i`, ordered after its predecessors. NULL: out of memory.
static VgdOp *make_op(CUgraphExec exec, uint32_t i, VgdOp **ops, CUstream stream) {
    Step *step = &exec->steps[i];
    VgdWork work = { .kind = VGD_MARK };
    if (!step->disabled && !vgd_work_copy(&work, &step->work)) return NULL;
    VgdOp *op = vgd_op_create(exec->context, &work);
    if (!op) return NULL;
    bool ok = true;
    for (uint32_t k = 0; ok && k < step->n_after; k++) ok = vgd_op_follow(op, ops[step->after[k]]);
    if (ok && !step->n_after) ok = vgd_op_in_stream(op, stream) && vgd_op_follow(op, exec->last);
    bool event = vgd_object_is(step->event, VGD_EVENT);
    if (ok && event && step->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
        ok = vgd_op_follow(op, step->event->op);
    if (!ok) vgd_work_finish(&op->work); // it runs as a mark, so that the others are not in vain
    if (ok && event && step->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
        vgd_op_drop(step->event->op);
        step->event->op = vgd_op_keep(op);
        step->event->capture = 0;
    }
    return op;
}

static CUresult launch(CUgraphExec exec, CUstream stream) {
    uint32_t n = exec->n_steps;
    VgdWork mark = { .kind = VGD_MARK };
    VgdOp **ops = calloc((size_t)n + 1, sizeof *ops);
    VgdOp *end = vgd_op_create(exec->context, &mark);
    if (!ops || !end) {
        free(ops);
        vgd_op_drop(end);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++) {
        ops[i] = make_op(exec, i, ops, stream);
        ok = ops[i] != NULL;
        if (ok && !exec->steps[i].followed) ok = vgd_op_follow(end, ops[i]);
    }
    ok = ok && vgd_op_in_stream(end, stream) && vgd_op_follow(end, exec->last);
    // Issued in any case: operations that others follow must get done. After a failure as marks.
    for (uint32_t i = 0; i < n && ops[i]; i++) {
        if (!ok) vgd_work_finish(&ops[i]->work);
        vgd_op_issue(ops[i]);
        vgd_op_drop(ops[i]);
    }
    vgd_stream_advance(stream, end);
    vgd_op_issue(end);
    vgd_op_drop(exec->last);
    exec->last = end;
    free(ops);
    return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
    CUresult result = enter_exec(exec);
    if (result) return result;
    CUstream stream;
    result = vgd_stream_find(exec->context, handle, &stream);
    if (!result && stream->capture) {
        stream->capture->invalid = true;
        result = vgd_fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuGraphLaunch in a capture\n"
                          "  hint: build a graph with a child node");
    }
    if (!result && stream->legacy) result = vgd_capture_legacy(exec->context);
    if (!result) result = check_steps(exec);
    return vgd_leave(result ? result : launch(exec, stream));
}

// Everything is where it is needed.
CUresult cuGraphUpload(CUgraphExec exec, CUstream handle) {
    CUresult result = enter_exec(exec);
    if (result) return result;
    CUstream stream;
    return vgd_leave(vgd_stream_find(exec->context, handle, &stream));
}

// What was launched goes on without it.
CUresult cuGraphExecDestroy(CUgraphExec exec) {
    CUresult result = enter_exec(exec);
    if (result) return result;
    vgd_exec_free(exec);
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags) {
    CUresult result = enter_exec(exec);
    if (result) return result;
    if (flags) *flags = exec->flags;
    return vgd_leave(flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

/* Changing ------------------------------------------------------------------------------------- */

static Step *find_step(CUgraphExec exec, CUgraphNode node) {
    for (uint32_t i = 0; node && i < exec->n_steps; i++)
        if (exec->steps[i].node == node) return &exec->steps[i];
    return NULL;
}

VgdWork *vgd_exec_work(CUgraphExec exec, CUgraphNode node) {
    Step *step = vgd_object_is(node, VGD_NODE) ? find_step(exec, node) : NULL;
    return step ? &step->work : NULL;
}

static bool can_disable(const Step *step) {
    return step && (step->type == CU_GRAPH_NODE_TYPE_KERNEL ||
                    step->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                    step->type == CU_GRAPH_NODE_TYPE_MEMSET);
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled) {
    CUresult result = enter_exec(exec);
    if (result) return result;
    Step *step = find_step(exec, node);
    if (!can_disable(step)) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    step->disabled = !enabled;
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled) {
    CUresult result = enter_exec(exec);
    if (result) return result;
    Step *step = find_step(exec, node);
    if (!enabled || !can_disable(step)) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    *enabled = !step->disabled;
    return vgd_leave(CUDA_SUCCESS);
}

// The same nodes in the same places with the same edges; what they do may differ.
static CUgraphExecUpdateResult compare(const Step *a, const Step *b) {
    if (a->type != b->type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (a->n_after != b->n_after ||
        (a->n_after && memcmp(a->after, b->after, a->n_after * sizeof *a->after)))
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
    CUresult result = enter_exec(exec);
    if (result) return result;
    if (!info) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    *info = (CUgraphExecUpdateResultInfo){ .result = CU_GRAPH_EXEC_UPDATE_ERROR };
    CUgraphExec other;
    result = instantiate(graph, exec->flags, &other);
    if (result) return vgd_leave(result);
    info->result = other->n_steps == exec->n_steps ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                   : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (uint32_t i = 0; i < exec->n_steps && info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++) {
        info->result = compare(&exec->steps[i], &other->steps[i]);
        if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) info->errorNode = other->steps[i].node;
    }
    if (info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        // The nodes keep their names: those of the graph the executable was made of.
        for (uint32_t i = 0; i < exec->n_steps; i++) {
            VgdWork work = exec->steps[i].work;
            exec->steps[i].work = other->steps[i].work;
            exec->steps[i].event = other->steps[i].event;
            other->steps[i].work = work;
        }
    } else {
        result = vgd_fail(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graph has other nodes or"
                          " edges");
    }
    vgd_exec_free(other);
    return vgd_leave(result);
}
