// SPDX-License-Identifier: Apache-2.0
// Streams and events as orders between operations.
//
// An operation of a stream follows the stream's tail, the operation issued before it. The legacy
// stream (NULL) and the blocking streams of a context also follow each other: an operation of the
// legacy stream follows the tails of all blocking streams, an operation of a blocking stream that
// of the legacy stream. Streams created with CU_STREAM_NON_BLOCKING keep out of that. An event is a
// mark in a stream; to wait for it is a mark in another one that follows it.
#include <stdlib.h>

#include "runtime/vgpu/driver.h"

/* Finding and ordering ------------------------------------------------------------------------- */

static CUstream add_stream(CUcontext context, unsigned int flags, int priority) {
    CUstream stream = calloc(1, sizeof *stream);
    if (!stream || !vgd_object_add(stream, VGD_STREAM, context)) {
        free(stream);
        return NULL;
    }
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = vgd_next_id();
    stream->next = context->streams;
    context->streams = stream;
    return stream;
}

static CUstream per_thread(CUcontext context) {
    for (CUstream stream = context->streams; stream; stream = stream->next)
        if (stream->per_thread && pthread_equal(stream->thread, pthread_self())) return stream;
    CUstream stream = add_stream(context, CU_STREAM_DEFAULT, 0);
    if (stream) {
        stream->per_thread = true;
        stream->thread = pthread_self();
    }
    return stream;
}

CUresult vgd_stream_find(CUcontext context, CUstream handle, CUstream *stream) {
    if (!handle || handle == CU_STREAM_LEGACY) {
        *stream = &context->legacy_stream;
        return CUDA_SUCCESS;
    }
    if (handle == CU_STREAM_PER_THREAD) {
        *stream = per_thread(context);
        return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!vgd_object_is(handle, VGD_STREAM))
        return vgd_fail(CUDA_ERROR_INVALID_HANDLE, "%p is not a stream, or no longer one",
                        (void *)handle);
    *stream = handle;
    return handle->context->sticky;
}

static bool blocking(CUstream stream) {
    return !stream->legacy && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

bool vgd_op_in_stream(VgdOp *op, CUstream stream) {
    CUcontext context = stream->context;
    bool ok = vgd_op_follow(op, stream->tail);
    if (blocking(stream)) ok = vgd_op_follow(op, context->legacy_stream.tail) && ok;
    if (stream->legacy)
        for (CUstream other = context->streams; other; other = other->next)
            if (blocking(other)) ok = vgd_op_follow(op, other->tail) && ok;
    return ok;
}

void vgd_stream_advance(CUstream stream, VgdOp *op) {
    vgd_op_keep(op);
    vgd_op_drop(stream->tail);
    stream->tail = op;
}

// Issues `op` in the stream, after `also` if there is one. On failure it is dropped.
static CUresult issue(CUstream stream, VgdOp *op, VgdOp *also) {
    // An operation that cannot be ordered runs never; it is issued so that nothing waits for it in
    // vain.
    bool ok = vgd_op_in_stream(op, stream) && vgd_op_follow(op, also);
    if (!ok) {
        vgd_work_finish(&op->work);
        vgd_op_issue(op);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    vgd_stream_advance(stream, op);
    vgd_op_issue(op);
    return CUDA_SUCCESS;
}

CUresult vgd_submit(CUstream stream, VgdWork *work, VgdOp **op) {
    if (op) *op = NULL;
    if (stream->capture) return vgd_capture_add(stream, work);
    CUresult result = stream->legacy ? vgd_capture_legacy(stream->context) : CUDA_SUCCESS;
    if (result) {
        vgd_work_finish(work);
        return result;
    }
    VgdOp *made = vgd_op_create(stream->context, work);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    result = issue(stream, made, NULL);
    if (op && !result) *op = made;
    else vgd_op_drop(made);
    return result;
}

/* Streams -------------------------------------------------------------------------------------- */

CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned int flags, int priority) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!handle ||
        flags & ~(unsigned)CU_STREAM_NON_BLOCKING) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    *handle = add_stream(context, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
    return vgd_leave(*handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuStreamCreate(CUstream *handle, unsigned int flags) {
    return cuStreamCreateWithPriority(handle, flags, 0);
}

// What was issued goes on without it.
void vgd_stream_free(CUstream stream) {
    vgd_capture_forget(stream);
    for (CUstream *at = &stream->context->streams; *at; at = &(*at)->next) {
        if (*at != stream) continue;
        *at = stream->next;
        break;
    }
    vgd_op_drop(stream->tail);
    vgd_nodes_finish(&stream->nodes);
    vgd_object_remove(stream);
    free(stream);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!vgd_object_is(handle, VGD_STREAM))
        return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_HANDLE, "%p is not a stream that can be"
                                  " destroyed",
                                  (void *)handle));
    vgd_stream_free(handle);
    return vgd_leave(CUDA_SUCCESS);
}

static CUresult enter_stream(CUstream handle, CUstream *stream) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    result = vgd_stream_find(context, handle, stream);
    return result ? vgd_leave(result) : CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority) {
    CUstream stream;
    CUresult result = enter_stream(handle, &stream);
    if (result) return result;
    if (priority) *priority = stream->priority;
    return vgd_leave(priority ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags) {
    CUstream stream;
    CUresult result = enter_stream(handle, &stream);
    if (result) return result;
    if (flags) *flags = stream->flags;
    return vgd_leave(flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id) {
    CUstream stream;
    CUresult result = enter_stream(handle, &stream);
    if (result) return result;
    if (id) *id = stream->id;
    return vgd_leave(id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
    CUstream stream;
    CUresult result = enter_stream(handle, &stream);
    if (result) return result;
    if (context) *context = stream->context;
    return vgd_leave(context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

// The operations a wait for the stream waits for: for the legacy stream those of the others too.
static CUresult mark(CUstream stream, VgdOp **op) {
    VgdWork work = { .kind = VGD_MARK };
    *op = vgd_op_create(stream->context, &work);
    if (!*op) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = issue(stream, *op, NULL);
    if (result) vgd_op_drop(*op);
    return result;
}

CUresult cuStreamSynchronize(CUstream handle) {
    CUstream stream;
    CUresult result = enter_stream(handle, &stream);
    if (result) return result;
    CUcontext context = stream->context;
    result = vgd_capture_sync(stream);
    VgdOp *op = NULL;
    if (!result) result = mark(stream, &op);
    if (result) return vgd_leave(result);
    vgd_wait(op);
    vgd_op_drop(op);
    return vgd_leave(context->sticky);
}

static bool idle(CUstream stream) {
    if (stream->tail && !stream->tail->done) return false;
    for (CUstream other = stream->context->streams; stream->legacy && other; other = other->next)
        if (blocking(other) && other->tail && !other->tail->done) return false;
    return true;
}

CUresult cuStreamQuery(CUstream handle) {
    CUstream stream;
    CUresult result = enter_stream(handle, &stream);
    if (result) return result;
    result = vgd_capture_sync(stream);
    if (result) return vgd_leave(result);
    bool done = idle(stream);
    if (!done) vgd_poll();
    return vgd_leave(done ? stream->context->sticky : CUDA_ERROR_NOT_READY);
}

/* Host functions ------------------------------------------------------------------------------- */

static CUresult host_function(CUstream handle, CUhostFn function, CUstreamCallback callback,
                              void *user) {
    CUstream stream;
    CUresult result = enter_stream(handle, &stream);
    if (result) return result;
    if (!function && !callback) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    if (callback && stream->capture) {
        stream->capture->invalid = true;
        return vgd_leave(vgd_fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamAddCallback in a"
                                  " capture\n  hint: cuLaunchHostFunc can be captured"));
    }
    VgdWork work = { .kind = VGD_HOST, .host = { function, callback, handle, user } };
    return vgd_leave(vgd_submit(stream, &work, NULL));
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *user) {
    return host_function(stream, function, NULL, user);
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void *user,
                             unsigned int flags) {
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    return host_function(stream, NULL, function, user);
}

/* Events --------------------------------------------------------------------------------------- */

CUresult cuEventCreate(CUevent *handle, unsigned int flags) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!handle || flags & ~3u)
        return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_VALUE, "event flags %#x: those for other"
                                  " processes"
                                  " and unknown ones are not had here", flags));
    CUevent event = calloc(1, sizeof *event);
    if (!event || !vgd_object_add(event, VGD_EVENT, context)) {
        free(event);
        return vgd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    event->context = context;
    event->flags = flags;
    *handle = event;
    return vgd_leave(CUDA_SUCCESS);
}

void vgd_event_free(CUevent event) {
    vgd_op_drop(event->op);
    vgd_nodes_finish(&event->nodes);
    vgd_object_remove(event);
    free(event);
}

static CUresult enter_event(CUevent event) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result || vgd_object_is(event, VGD_EVENT)) return result;
    return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_HANDLE, "%p is not an event, or no longer one",
                              (void *)event));
}

CUresult cuEventDestroy_v2(CUevent event) {
    CUresult result = enter_event(event);
    if (result) return result;
    vgd_event_free(event);
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned int flags) {
    CUresult result = enter_event(event);
    if (result) return result;
    CUstream stream;
    result = vgd_stream_find(event->context, handle, &stream);
    if (!result && flags > CU_EVENT_RECORD_EXTERNAL) result = CUDA_ERROR_INVALID_VALUE;
    if (!result && stream->context != event->context)
        result = vgd_fail(CUDA_ERROR_INVALID_HANDLE, "event and stream are of different contexts");
    if (result) return vgd_leave(result);
    if (stream->capture) return vgd_leave(vgd_capture_record(stream, event, flags));
    if (stream->legacy && (result = vgd_capture_legacy(stream->context))) return vgd_leave(result);
    VgdOp *op;
    result = mark(stream, &op);
    if (result) return vgd_leave(result);
    vgd_op_drop(event->op);
    event->op = op;
    event->capture = 0;
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

// What was recorded last before this call is waited for, whatever is recorded later.
CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags) {
    CUresult result = enter_event(event);
    if (result) return result;
    CUstream stream;
    result = vgd_stream_find(vgd_context_current(), handle, &stream);
    if (!result && flags > CU_EVENT_WAIT_EXTERNAL) result = CUDA_ERROR_INVALID_VALUE;
    if (result) return vgd_leave(result);
    if (stream->capture || event->capture)
        return vgd_leave(vgd_capture_wait(stream, event, flags));
    if (stream->legacy && (result = vgd_capture_legacy(stream->context))) return vgd_leave(result);
    if (!event->op || event->op->done) return vgd_leave(CUDA_SUCCESS);
    VgdWork work = { .kind = VGD_MARK };
    VgdOp *op = vgd_op_create(stream->context, &work);
    if (!op) return vgd_leave(CUDA_ERROR_OUT_OF_MEMORY);
    result = issue(stream, op, event->op);
    vgd_op_drop(op);
    return vgd_leave(result);
}

static CUresult captured(CUevent event) {
    if (!event->capture) return CUDA_SUCCESS;
    for (VgdCapture *capture = event->context->captures; capture; capture = capture->next)
        if (capture->id == event->capture) capture->invalid = true;
    return vgd_fail(CUDA_ERROR_CAPTURED_EVENT, "the event was last recorded in a capture: it is"
                    " no point"
                    " in time");
}

CUresult cuEventQuery(CUevent event) {
    CUresult result = enter_event(event);
    if (result) return result;
    result = captured(event);
    if (!result) result = vgd_capture_unsafe(event->context);
    if (!result && event->op && !event->op->done) {
        result = CUDA_ERROR_NOT_READY;
        vgd_poll();
    }
    return vgd_leave(result ? result : event->context->sticky);
}

CUresult cuEventSynchronize(CUevent event) {
    CUresult result = enter_event(event);
    if (result) return result;
    CUcontext context = event->context;
    result = captured(event);
    if (!result) result = vgd_capture_unsafe(context);
    if (result) return vgd_leave(result);
    vgd_wait(event->op);
    return vgd_leave(context->sticky);
}

// Time of this machine between the two points, which is the interpreter's and nobody's GPU's.
CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    CUresult result = enter_event(start);
    if (result) return result;
    if (!milliseconds) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    if (!vgd_object_is(end, VGD_EVENT) || !start->op || !end->op ||
        (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
        return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_HANDLE, "elapsed time between two events:"
                                  " both have"
                                  " to be recorded, and to be created with timing"));
    if (!start->op->done || !end->op->done) {
        vgd_poll();
        return vgd_leave(CUDA_ERROR_NOT_READY);
    }
    *milliseconds = (float)((end->op->finished - start->op->finished) * 1e3);
    return vgd_leave(CUDA_SUCCESS);
}

// The older symbol of the same call.
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}
