// SPDX-License-Identifier: Apache-2.0
// Operations: a graph of what waits for what, and the threads that run what is ready.
//
// Correct programs give the same results in every order the graph allows, so the order is chosen to
// show those that are not. With the default, MOEC_VGPU_ORDER=late,
//   - nothing runs before somebody waits or asks, except when there is only one stream to run it
//     in, when 4096 operations are pending, or when nothing was issued for 0.2 s;
//   - of the ready operations the one issued last runs first.
// So an operation that should have waited for one in another stream, issued before, overtakes it.
// MOEC_VGPU_ORDER=issue runs in order of issue and at once, =random draws by MOEC_VGPU_SEED.
//
// After a fault the rest of the context's operations are dropped: they are done without having run.
#include <stdlib.h>
#include <time.h>

#include "runtime/vgpu/driver.h"

enum { PENDING_LIMIT = 4096 };
static const double QUIET_SECONDS = 0.2;

static struct {
    pthread_cond_t wake, done;   // something became ready or wanted; something was done
    VgdOp **ready;               // not taken, in no order
    uint32_t n_ready, cap_ready; // room for every operation there is
    uint32_t live;
    int pending, waiters, pausers;
    bool polled, running, started;
    bool hosts_may_wait;         // a host function has a thread for itself
    int hosts_idle;              // threads for host functions that have none
    double issued;               // time of the last issue
    uint64_t picks;              // drawn so far
} queue = { .wake = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER };

/* Operations ----------------------------------------------------------------------------------- */

// Any operation may become ready, so the list of those has room for all: issuing cannot fail.
static bool make_room(void) {
    if (queue.live < queue.cap_ready) return true;
    uint32_t cap = queue.cap_ready ? queue.cap_ready * 2 : 256;
    VgdOp **ready = realloc(queue.ready, cap * sizeof *ready);
    if (!ready) return false;
    queue.ready = ready;
    queue.cap_ready = cap;
    return true;
}

VgdOp *vgd_op_create(CUcontext context, VgdWork *work) {
    VgdOp *op = make_room() ? calloc(1, sizeof *op) : NULL;
    if (!op) {
        vgd_work_finish(work);
        return NULL;
    }
    queue.live++;
    op->id = vgd_next_id();
    op->refs = 1;
    op->context = context;
    op->work = *work;
    *work = (VgdWork){ 0 };
    return op;
}

VgdOp *vgd_op_keep(VgdOp *op) {
    if (op) op->refs++;
    return op;
}

void vgd_op_drop(VgdOp *op) {
    if (!op || --op->refs) return;
    vgd_work_finish(&op->work);
    queue.live--;
    free(op->after);
    free(op);
}

bool vgd_op_follow(VgdOp *op, VgdOp *before) {
    if (!before || before->done || before == op) return true;
    for (uint32_t i = 0; i < before->n_after; i++)
        if (before->after[i] == op) return true;
    if (before->n_after == before->cap_after) {
        uint32_t cap = before->cap_after ? before->cap_after * 2 : 4;
        VgdOp **after = realloc(before->after, cap * sizeof *after);
        if (!after) return false;
        before->after = after;
        before->cap_after = cap;
    }
    before->after[before->n_after++] = op;
    op->waits++;
    return true;
}

static void add_ready(VgdOp *op) {
    queue.ready[queue.n_ready++] = op;
}

/* Choice --------------------------------------------------------------------------------------- */

// Operations of two streams can be in any order only if there are two streams.
static bool one_stream(void) {
    int n = 0;
    for (CUcontext context = vgd.contexts; context; context = context->next) {
        n += context->legacy_stream.tail != NULL;
        for (CUstream stream = context->streams; stream; stream = stream->next) n++;
    }
    return n <= 1;
}

static bool may_run(double now) {
    return queue.waiters || queue.polled || vgd.order != VGD_ORDER_LATE ||
           queue.pending > PENDING_LIMIT || one_stream() || now - queue.issued >= QUIET_SECONDS;
}

// Takes the ready operation that is next, of host functions or of the rest.
static VgdOp *take(bool host) {
    uint32_t best = UINT32_MAX, n = 0;
    for (uint32_t i = 0; i < queue.n_ready; i++) {
        VgdOp *op = queue.ready[i];
        if ((op->work.kind == VGD_HOST) != host) continue;
        n++;
        bool better = best == UINT32_MAX;
        if (!better) {
            bool later = op->id > queue.ready[best]->id;
            better = vgd.order == VGD_ORDER_LATE    ? later
                     : vgd.order == VGD_ORDER_ISSUE ? !later
                                                    : hash_mix(vgd.seed, queue.picks, n) % n == 0;
        }
        if (better) best = i;
    }
    if (best == UINT32_MAX) return NULL;
    queue.picks++;
    VgdOp *op = queue.ready[best];
    queue.ready[best] = queue.ready[--queue.n_ready];
    return op;
}

/* Threads -------------------------------------------------------------------------------------- */

static CUresult run(const VgdWork *work, CUcontext context) {
    switch (work->kind) {
    case VGD_KERNEL: return vgd_launch_run(work);
    case VGD_COPY: return vgd_copy_run(work);
    case VGD_FILL: return vgd_fill_run(work);
    case VGD_HOST:
        vgd_in_callback = true;
        if (work->host.callback)
            work->host.callback(work->host.stream, context->sticky, work->host.user);
        else
            work->host.function(work->host.user);
        vgd_in_callback = false;
        return CUDA_SUCCESS;
    default: return CUDA_SUCCESS;
    }
}

// Under the lock: what needs the driver's own tables. Memory is freed after a fault too.
static void run_locked(VgdOp *op) {
    if (op->work.kind == VGD_FREE) vg_mem_free(vgd.memory, op->work.address);
}

static void complete(VgdOp *op, CUresult result) {
    CUcontext context = op->context;
    if (result && !context->sticky) context->sticky = result;
    op->done = true;
    op->finished = time_seconds();
    context->pending--;
    queue.pending--;
    for (uint32_t i = 0; i < op->n_after; i++)
        if (!--op->after[i]->waits) add_ready(op->after[i]);
    op->n_after = 0;
    vgd_op_drop(op);
    pthread_cond_broadcast(&queue.done);
    pthread_cond_broadcast(&queue.wake);
}

static void sleep_quiet(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(QUIET_SECONDS * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&queue.wake, &vgd.lock, &until);
}

static void *worker(void *argument);

static bool start(bool host) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, worker, host ? &queue : NULL)) return false;
    pthread_detach(thread);
    queue.hosts_idle += host;
    return true;
}

static void *worker(void *argument) {
    bool host = argument != NULL;
    pthread_mutex_lock(&vgd.lock);
    for (;;) {
        bool paused = !host && queue.pausers;
        bool put_off = queue.n_ready && !may_run(time_seconds());
        VgdOp *op = paused || put_off ? NULL : take(host);
        if (!op) {
            if (put_off) sleep_quiet();
            else pthread_cond_wait(&queue.wake, &vgd.lock);
            continue;
        }
        queue.polled = false;
        CUresult result = CUDA_SUCCESS;
        // A callback of a stream hears of the error; nothing else runs after one.
        bool skip = op->context->sticky && !(op->work.kind == VGD_HOST && op->work.host.callback);
        if (!skip && op->work.kind != VGD_MARK && op->work.kind != VGD_FREE) {
            if (!host) queue.running = true;
            queue.hosts_idle -= host;
            if (host && queue.hosts_may_wait && !queue.hosts_idle) start(true);
            pthread_mutex_unlock(&vgd.lock);
            result = run(&op->work, op->context);
            pthread_mutex_lock(&vgd.lock);
            queue.hosts_idle += host;
            if (!host) queue.running = false;
        } else {
            run_locked(op);
        }
        complete(op, result);
    }
    return NULL;
}

bool vgd_queue_start(void) {
    for (int i = queue.started ? 2 : 0; i < 2; i++)
        if (!start(i)) return false;
    queue.started = true;
    return true;
}

void vgpuHostFunctionsMayWait(int they_may) {
    pthread_mutex_lock(&vgd.lock);
    queue.hosts_may_wait = they_may;
    pthread_mutex_unlock(&vgd.lock);
}

void vgd_op_issue(VgdOp *op) {
    queue.pending++;
    op->context->pending++;
    queue.issued = time_seconds();
    vgd_op_keep(op);
    if (op->waits) return;
    add_ready(op);
    pthread_cond_broadcast(&queue.wake);
}

/* Waiting -------------------------------------------------------------------------------------- */

static void wait_once(void) {
    queue.waiters++;
    pthread_cond_broadcast(&queue.wake);
    pthread_cond_wait(&queue.done, &vgd.lock);
    queue.waiters--;
}

void vgd_wait(VgdOp *op) {
    if (!op) return;
    vgd_op_keep(op);
    while (!op->done) wait_once();
    vgd_op_drop(op);
}

void vgd_wait_context(CUcontext context) {
    while (context->pending) wait_once();
}

void vgd_poll(void) {
    queue.polled = true;
    pthread_cond_broadcast(&queue.wake);
}

void vgd_pause(void) {
    queue.pausers++;
    while (queue.running) pthread_cond_wait(&queue.done, &vgd.lock);
    queue.pausers--;
    pthread_cond_broadcast(&queue.wake);
}

/* Work ----------------------------------------------------------------------------------------- */

void vgd_work_finish(VgdWork *work) {
    if (work->kind == VGD_KERNEL) {
        free(work->launch.params);
        free(work->launch.pointers);
    }
    if (work->kind == VGD_COPY) free(work->copy.staged);
    *work = (VgdWork){ 0 };
}

bool vgd_work_copy(VgdWork *to, const VgdWork *from) {
    *to = *from;
    if (from->kind == VGD_KERNEL) {
        // The function may have gone with its module: nothing is read through it.
        uint32_t bytes = from->launch.param_bytes, n = from->launch.n_params;
        to->launch.params = malloc((size_t)bytes + 1);
        to->launch.pointers = malloc(((size_t)n + 1) * sizeof(void *));
        if (!to->launch.params || !to->launch.pointers) {
            vgd_work_finish(to);
            return false;
        }
        memcpy(to->launch.params, from->launch.params, bytes);
        for (uint32_t i = 0; i < n; i++)
            to->launch.pointers[i] = (char *)to->launch.params +
                                     ((char *)from->launch.pointers[i] - (char *)from->launch.params);
    }
    // Only copies that are in no graph are staged.
    return true;
}
