// SPDX-License-Identifier: Apache-2.0
// Graphs: nodes, what they follow, clones. What nodes do is in driver_node.c, running them in
// driver_exec.c.
#include <stdlib.h>

#include "runtime/vgpu/driver.h"

/* Sets of nodes -------------------------------------------------------------------------------- */

// Without looking for it: where it is known to be new.
static bool append(VgdNodes *nodes, CUgraphNode node) {
    if (nodes->n == nodes->cap) {
        uint32_t cap = nodes->cap ? nodes->cap * 2 : 4;
        CUgraphNode *at = realloc(nodes->at, cap * sizeof *at);
        if (!at) return false;
        nodes->at = at;
        nodes->cap = cap;
    }
    nodes->at[nodes->n++] = node;
    return true;
}

bool vgd_nodes_add(VgdNodes *nodes, CUgraphNode node) {
    for (uint32_t i = 0; i < nodes->n; i++)
        if (nodes->at[i] == node) return true;
    return append(nodes, node);
}

static bool nodes_remove(VgdNodes *nodes, CUgraphNode node) {
    for (uint32_t i = 0; i < nodes->n; i++) {
        if (nodes->at[i] != node) continue;
        memmove(nodes->at + i, nodes->at + i + 1, (nodes->n - i - 1) * sizeof *nodes->at);
        nodes->n--;
        return true;
    }
    return false;
}

void vgd_nodes_finish(VgdNodes *nodes) {
    free(nodes->at);
    *nodes = (VgdNodes){ 0 };
}

/* Life ----------------------------------------------------------------------------------------- */

CUgraph vgd_graph_create(CUcontext context) {
    CUgraph graph = calloc(1, sizeof *graph);
    if (!graph || !vgd_object_add(graph, VGD_GRAPH, context)) {
        free(graph);
        return NULL;
    }
    graph->context = context;
    return graph;
}

static void node_free(CUgraphNode node) {
    vgd_work_finish(&node->work);
    if (node->child) vgd_graph_free(node->child);
    vgd_nodes_finish(&node->after);
    vgd_object_remove(node);
    free(node);
}

void vgd_graph_free(CUgraph graph) {
    for (uint32_t i = 0; i < graph->nodes.n; i++) node_free(graph->nodes.at[i]);
    vgd_nodes_finish(&graph->nodes);
    vgd_object_remove(graph);
    free(graph);
}

CUgraphNode vgd_graph_add(CUgraph graph, CUgraphNodeType type, VgdWork *work,
                          const CUgraphNode *after, size_t n) {
    CUgraphNode node = calloc(1, sizeof *node);
    if (!node || !vgd_object_add(node, VGD_NODE, graph->context)) {
        vgd_work_finish(work);
        free(node);
        return NULL;
    }
    node->graph = graph;
    node->type = type;
    node->work = *work;
    *work = (VgdWork){ 0 };
    bool ok = append(&graph->nodes, node);
    for (size_t i = 0; ok && i < n; i++) ok = vgd_nodes_add(&node->after, after[i]);
    if (ok) return node;
    nodes_remove(&graph->nodes, node);
    node_free(node);
    return NULL;
}

// Nodes know their originals: that is how the nodes of a clone, and of an executable, are found.
CUgraph vgd_graph_clone(CUgraph graph) {
    CUgraph clone = vgd_graph_create(graph->context);
    if (!clone) return NULL;
    clone->original = graph;
    bool ok = true;
    for (uint32_t i = 0; ok && i < graph->nodes.n; i++) {
        CUgraphNode from = graph->nodes.at[i];
        VgdWork work;
        from->index = (int)i;
        CUgraphNode node = NULL;
        if (vgd_work_copy(&work, &from->work))
            node = vgd_graph_add(clone, from->type, &work, NULL, 0);
        ok = node != NULL;
        if (!ok) break;
        node->original = from;
        node->event = from->event;
        if (!from->child) continue;
        node->child = vgd_graph_clone(from->child);
        ok = node->child != NULL;
        if (ok) node->child->in = node;
    }
    for (uint32_t i = 0; ok && i < graph->nodes.n; i++) {
        VgdNodes *after = &graph->nodes.at[i]->after;
        for (uint32_t k = 0; ok && k < after->n; k++)
            ok = vgd_nodes_add(&clone->nodes.at[i]->after, clone->nodes.at[after->at[k]->index]);
    }
    if (ok) return clone;
    vgd_graph_free(clone);
    return NULL;
}

static CUresult enter_graph(CUgraph graph) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result || vgd_object_is(graph, VGD_GRAPH)) return result;
    return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "%p is not a graph, or no longer one",
                              (void *)graph));
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!graph || flags) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    *graph = vgd_graph_create(context);
    return vgd_leave(*graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuGraphDestroy(CUgraph graph) {
    CUresult result = enter_graph(graph);
    if (result) return result;
    if (graph->in || graph->capturing)
        return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "the graph belongs to a %s",
                                  graph->in ? "node" : "capture"));
    vgd_graph_free(graph);
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph) {
    CUresult result = enter_graph(graph);
    if (result) return result;
    if (!clone) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    *clone = vgd_graph_clone(graph);
    return vgd_leave(*clone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph clone) {
    CUresult result = enter_graph(clone);
    if (result) return result;
    if (!node) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    for (uint32_t i = 0; i < clone->nodes.n; i++) {
        if (clone->nodes.at[i]->original != original) continue;
        *node = clone->nodes.at[i];
        return vgd_leave(CUDA_SUCCESS);
    }
    return vgd_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphDestroyNode(CUgraphNode node) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!vgd_object_is(node, VGD_NODE)) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    if (node->graph->capturing)
        return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "the node's graph is being captured:"
                                  " what follows it there may be yet to come"));
    VgdNodes *all = &node->graph->nodes;
    for (uint32_t i = 0; i < all->n; i++) nodes_remove(&all->at[i]->after, node);
    nodes_remove(all, node);
    node_free(node);
    return vgd_leave(CUDA_SUCCESS);
}

/* Questions: arrays that may be NULL to ask for the count -------------------------------------- */

// Fills up to *n entries, the rest with NULL, and sets *n to how many there are.
static CUresult give(CUgraphNode *to, size_t *n, const VgdNodes *from) {
    if (!n) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; to && i < *n; i++) to[i] = i < from->n ? from->at[i] : NULL;
    if (!to || *n > from->n) *n = from->n;
    return CUDA_SUCCESS;
}

static void clear_edges(CUgraphEdgeData *edges, size_t n) {
    if (edges) memset(edges, 0, n * sizeof *edges);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n) {
    CUresult result = enter_graph(graph);
    return result ? result : vgd_leave(give(nodes, n, &graph->nodes));
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *n) {
    CUresult result = enter_graph(graph);
    if (result) return result;
    VgdNodes roots = { 0 };
    for (uint32_t i = 0; i < graph->nodes.n; i++)
        if (!graph->nodes.at[i]->after.n && !append(&roots, graph->nodes.at[i]))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!result) result = give(nodes, n, &roots);
    vgd_nodes_finish(&roots);
    return vgd_leave(result);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *edges,
                            size_t *n) {
    CUresult result = enter_graph(graph);
    if (result) return result;
    if (!n || !from != !to) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    size_t count = 0;
    for (uint32_t i = 0; i < graph->nodes.n; i++) {
        VgdNodes *after = &graph->nodes.at[i]->after;
        for (uint32_t k = 0; k < after->n; k++, count++) {
            if (!from || count >= *n) continue;
            from[count] = after->at[k];
            to[count] = graph->nodes.at[i];
        }
    }
    clear_edges(from ? edges : NULL, *n);
    if (!from || *n > count) *n = count;
    return vgd_leave(CUDA_SUCCESS);
}

static CUresult enter_node(CUgraphNode node) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result || vgd_object_is(node, VGD_NODE)) return result;
    return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "%p is not a node, or no longer one",
                              (void *)node));
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    CUresult result = enter_node(node);
    if (result) return result;
    if (type) *type = node->type;
    return vgd_leave(type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges,
                                       size_t *n) {
    CUresult result = enter_node(node);
    if (result) return result;
    if (nodes && n) clear_edges(edges, *n);
    return vgd_leave(give(nodes, n, &node->after));
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes,
                                         CUgraphEdgeData *edges,
                                         size_t *n) {
    CUresult result = enter_node(node);
    if (result) return result;
    VgdNodes found = { 0 };
    VgdNodes *all = &node->graph->nodes;
    for (uint32_t i = 0; i < all->n; i++)
        for (uint32_t k = 0; k < all->at[i]->after.n; k++)
            if (all->at[i]->after.at[k] == node && !append(&found, all->at[i]))
                result = CUDA_ERROR_OUT_OF_MEMORY;
    if (nodes && n) clear_edges(edges, *n);
    if (!result) result = give(nodes, n, &found);
    vgd_nodes_finish(&found);
    return vgd_leave(result);
}

/* Edges ---------------------------------------------------------------------------------------- */

static CUresult check_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                            const CUgraphEdgeData *edges, size_t n) {
    if (n && (!from || !to)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        if (!vgd_object_is(from[i], VGD_NODE) || !vgd_object_is(to[i], VGD_NODE) ||
            from[i]->graph != graph || to[i]->graph != graph || from[i] == to[i])
            return vgd_fail(CUDA_ERROR_INVALID_VALUE, "edge %zu is not between two nodes of the"
                            " graph", i);
        if (edges && edges[i].type != CU_GRAPH_DEPENDENCY_TYPE_DEFAULT &&
            edges[i].type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

// Programmatic edges are held to be full ones: a node starts when those before it are done.
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edges, size_t n) {
    CUresult result = enter_graph(graph);
    if (result) return result;
    result = check_edges(graph, from, to, edges, n);
    for (size_t i = 0; !result && i < n; i++)
        for (uint32_t k = 0; k < to[i]->after.n; k++)
            if (to[i]->after.at[k] == from[i])
                result = vgd_fail(CUDA_ERROR_INVALID_VALUE, "edge %zu is in the graph already", i);
    for (size_t i = 0; !result && i < n; i++)
        if (!vgd_nodes_add(&to[i]->after, from[i])) result = CUDA_ERROR_OUT_OF_MEMORY;
    return vgd_leave(result);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *edges, size_t n) {
    CUresult result = enter_graph(graph);
    if (result) return result;
    result = check_edges(graph, from, to, edges, n);
    for (size_t i = 0; !result && i < n; i++)
        if (!nodes_remove(&to[i]->after, from[i]))
            result = vgd_fail(CUDA_ERROR_INVALID_VALUE, "edge %zu is not in the graph", i);
    return vgd_leave(result);
}
