// SPDX-License-Identifier: Apache-2.0
// Capture of streams into graphs.
//
// A captured stream has, instead of a tail, the set of nodes that its next node follows. Recording
// an event in it keeps that set; a stream that waits for the event joins the capture with it (a
// fork), and a captured stream that waits adds it to its own (a join). At the end everything that
// was captured must have been joined into the first stream. What would make the graph wrong, or
// hang, is refused and invalidates the capture: its end then gives no graph.
#include <stdlib.h>

#include "runtime/vgpu/driver.h"

static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static CUresult refuse(VgdCapture *capture, CUresult result, const char *why) {
    capture->invalid = true;
    return vgd_fail(result, "%s", why);
}

/* What a capture forbids ----------------------------------------------------------------------- */

// A call that may synchronise: forbidden by captures of this thread, and by those of others begun
// in global mode unless the thread opted out.
CUresult vgd_capture_unsafe(CUcontext context) {
    CUresult result = CUDA_SUCCESS;
    for (VgdCapture *capture = context->captures; capture; capture = capture->next) {
        bool mine = pthread_equal(capture->thread, pthread_self());
        bool forbids = thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
                       capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
                       (mine || (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                 thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL));
        if (forbids)
            result = refuse(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                            "the call may wait for the device, and a stream is captured\n"
                            "  hint: make it before the capture, or capture in relaxed mode");
    }
    return result;
}

// The legacy stream follows the blocking streams; a captured one has nothing that could be
// followed.
CUresult vgd_capture_legacy(CUcontext context) {
    CUresult result = CUDA_SUCCESS;
    for (CUstream stream = context->streams; stream; stream = stream->next)
        if (stream->capture && !(stream->flags & CU_STREAM_NON_BLOCKING))
            result = refuse(stream->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                            "the default stream would wait for a stream that is captured\n"
                            "  hint: use a stream of its own, or capture in a non-blocking one");
    return result;
}

CUresult vgd_capture_sync(CUstream stream) {
    if (stream->capture)
        return refuse(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                      "the stream is captured: nothing runs that could be waited for");
    return stream->legacy ? vgd_capture_legacy(stream->context) : CUDA_SUCCESS;
}

/* Adding --------------------------------------------------------------------------------------- */

static CUresult set_nodes(VgdNodes *to, const VgdNodes *from) {
    if (to == from) return CUDA_SUCCESS;
    to->n = 0;
    for (uint32_t i = 0; i < from->n; i++)
        if (!vgd_nodes_add(to, from->at[i])) return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

static CUresult check_valid(VgdCapture *capture) {
    if (!capture->invalid) return CUDA_SUCCESS;
    return vgd_fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "an earlier error invalidated the"
                    " capture");
}

static CUresult add_node(CUstream stream, CUgraphNodeType type, VgdWork *work, CUevent event) {
    VgdCapture *capture = stream->capture;
    CUresult result = check_valid(capture);
    if (result) {
        vgd_work_finish(work);
        return result;
    }
    CUgraphNode node = vgd_graph_add(capture->graph, type, work, stream->nodes.at, stream->nodes.n);
    if (!node) return refuse(capture, CUDA_ERROR_OUT_OF_MEMORY, "no memory for a node");
    node->event = event;
    stream->nodes.n = 0;
    return vgd_nodes_add(&stream->nodes, node) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgd_capture_add(CUstream stream, VgdWork *work) {
    static const CUgraphNodeType types[] = {
        [VGD_MARK] = CU_GRAPH_NODE_TYPE_EMPTY, [VGD_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
        [VGD_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY, [VGD_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,
        [VGD_HOST] = CU_GRAPH_NODE_TYPE_HOST,
    };
    return add_node(stream, types[work->kind], work, NULL);
}

CUresult vgd_capture_record(CUstream stream, CUevent event, bool external) {
    CUresult result = check_valid(stream->capture);
    if (result) return result;
    if (external) {
        VgdWork work = { .kind = VGD_MARK };
        return add_node(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &work, event);
    }
    vgd_op_drop(event->op);
    event->op = NULL;
    event->capture = stream->capture->id;
    return set_nodes(&event->nodes, &stream->nodes);
}

CUresult vgd_capture_wait(CUstream stream, CUevent event, bool external) {
    if (external && stream->capture) {
        VgdWork work = { .kind = VGD_MARK };
        return add_node(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &work, event);
    }
    VgdCapture *from = event->context->captures;
    while (from && from->id != event->capture) from = from->next;
    if (stream->capture && !event->capture)
        return refuse(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "a captured stream"
                      " waits for"
                      " an event recorded outside of the capture\n  hint: record it in the"
                      " capture, or"
                      " wait with CU_EVENT_WAIT_EXTERNAL");
    if (!from)
        return vgd_fail(CUDA_ERROR_CAPTURED_EVENT, "the event was last recorded in a capture that"
                        " ended");
    CUresult result = check_valid(from);
    if (result) return result;
    if (stream->capture && stream->capture != from) {
        from->invalid = true;
        return refuse(stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE,
                      "the stream and the event belong to different captures");
    }
    if (stream->legacy)
        return refuse(from, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                      "the default stream cannot join a capture\n  hint: create a stream");
    if (!stream->capture) {
        stream->capture = from;
        stream->nodes.n = 0;
    }
    for (uint32_t i = 0; i < event->nodes.n; i++)
        if (!vgd_nodes_add(&stream->nodes, event->nodes.at[i])) return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

/* Begin ---------------------------------------------------------------------------------------- */

static CUresult begin(CUstream stream, CUstreamCaptureMode mode) {
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy)
        return vgd_fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the default stream cannot be"
                        " captured\n"
                        "  hint: create a stream");
    if (stream->capture) return vgd_fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is captured"
                                         " already");
    VgdCapture *capture = calloc(1, sizeof *capture);
    CUgraph graph = capture ? vgd_graph_create(stream->context) : NULL;
    if (!graph) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    graph->capturing = true;
    *capture = (VgdCapture){ .next = stream->context->captures, .id = vgd_next_id(), .graph = graph,
                             .origin = stream, .mode = mode, .thread = pthread_self() };
    stream->context->captures = capture;
    stream->capture = capture;
    stream->nodes.n = 0;
    return CUDA_SUCCESS;
}

static CUresult find_stream(CUstream handle, CUstream *stream) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    result = vgd_stream_find(context, handle, stream);
    return result ? vgd_leave(result) : CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    CUstream stream;
    CUresult result = find_stream(handle, &stream);
    return result ? result : vgd_leave(begin(stream, mode));
}

/* End ------------------------------------------------------------------------------------------ */

// Every node is to be followed by the first stream. Nodes only follow earlier ones.
static bool joined(VgdCapture *capture) {
    VgdNodes *all = &capture->graph->nodes, *ends = &capture->origin->nodes;
    for (uint32_t i = 0; i < all->n; i++) all->at[i]->index = 0;
    for (uint32_t i = 0; i < ends->n; i++) ends->at[i]->index = 1;
    for (uint32_t i = all->n; i-- > 0;) {
        CUgraphNode node = all->at[i];
        if (!node->index) return false;
        for (uint32_t k = 0; k < node->after.n; k++) node->after.at[k]->index = 1;
    }
    return true;
}

// Takes the capture out of the context and its streams; the graph is the caller's.
static CUgraph finish(VgdCapture *capture) {
    CUcontext context = capture->graph->context;
    for (CUstream stream = context->streams; stream; stream = stream->next) {
        if (stream->capture != capture) continue;
        stream->capture = NULL;
        stream->nodes.n = 0;
    }
    for (VgdCapture **at = &context->captures; *at; at = &(*at)->next) {
        if (*at != capture) continue;
        *at = capture->next;
        break;
    }
    CUgraph graph = capture->graph;
    graph->capturing = false;
    free(capture);
    return graph;
}

void vgd_capture_forget(CUstream stream) {
    VgdCapture *capture = stream->capture;
    stream->capture = NULL;
    if (!capture) return;
    capture->invalid = true;
    if (capture->origin == stream) vgd_graph_free(finish(capture));
}

static CUresult end(CUstream stream, CUgraph *graph) {
    VgdCapture *capture = stream->capture;
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    *graph = NULL;
    if (!capture) return vgd_fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is not captured");
    if (capture->origin != stream)
        return refuse(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture was begun in"
                      " another"
                      " stream, and ends there");
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        !pthread_equal(capture->thread, pthread_self()))
        return refuse(capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                      "the capture was begun in another thread\n  hint: relaxed mode permits that");
    CUresult result = check_valid(capture);
    if (!result && !joined(capture))
        result = vgd_fail(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "work of another stream is not"
                          " joined into"
                          " the stream that began the capture\n  hint: record an event there and"
                          " wait"
                          " for it here");
    CUgraph made = finish(capture);
    if (result) vgd_graph_free(made);
    else *graph = made;
    return result;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    CUstream stream;
    CUresult result = find_stream(handle, &stream);
    return result ? result : vgd_leave(end(stream, graph));
}

/* Questions ------------------------------------------------------------------------------------ */

static CUstreamCaptureStatus status_of(CUstream stream) {
    return !stream->capture          ? CU_STREAM_CAPTURE_STATUS_NONE
           : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    CUstream stream;
    CUresult result = find_stream(handle, &stream);
    if (result) return result;
    if (stream->legacy && (result = vgd_capture_legacy(stream->context))) return vgd_leave(result);
    if (status) *status = status_of(stream);
    return vgd_leave(status ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **nodes,
                                   const CUgraphEdgeData **edges, size_t *n) {
    CUstream stream;
    CUresult result = find_stream(handle, &stream);
    if (result) return result;
    if (!status) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    *status = status_of(stream);
    if (edges) *edges = NULL; // all edges are of the default kind
    if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        if (id) *id = stream->capture->id;
        if (graph) *graph = stream->capture->graph;
        if (nodes) *nodes = stream->nodes.at;
        if (n) *n = stream->nodes.n;
    }
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **nodes, size_t *n) {
    return cuStreamGetCaptureInfo_v3(handle, status, id, graph, nodes, NULL, n);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode *nodes,
                                              const CUgraphEdgeData *edges, size_t n,
                                              unsigned int flags) {
    (void)edges;
    CUstream stream;
    CUresult result = find_stream(handle, &stream);
    if (result) return result;
    if (!stream->capture) return vgd_leave(CUDA_ERROR_ILLEGAL_STATE);
    if ((result = check_valid(stream->capture))) return vgd_leave(result);
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (n && !nodes))
        return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < n; i++)
        if (!vgd_object_is(nodes[i], VGD_NODE) || nodes[i]->graph != stream->capture->graph)
            return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "a node is not of the captured"
                                      " graph"));
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->nodes.n = 0;
    for (size_t i = 0; i < n; i++)
        if (!vgd_nodes_add(&stream->nodes, nodes[i])) return vgd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
