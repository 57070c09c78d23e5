// SPDX-License-Identifier: Apache-2.0
// Calls of groups that only begin: a thread beside the rank's own makes them, one after another in the
// order in which they began, which is the same on all members. It has cells, boxes, tags and requests of its
// own, so that the rank makes whole calls meanwhile. It starts with the first such call.
//
// Who a wait is about the rank's own thread finds out, when it waits for a call to end: the board has how
// many each rank has begun. This thread only stops when a failure is known, or the rank ends.
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "runtime/comm/process.h"

enum { LOOK_EVERY = 20000000 }; // nanoseconds between looks at the board

void behind_init(Process *p) {
    Behind *b = &p->behind;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->more, NULL);
    pthread_cond_init(&b->done, NULL);
}

static Status make_call(Process *p, const Begun *call) {
    Team *team = &p->behind.teams[call->group];
    Wait wait = { .process = p, .requests = &p->behind.requests, .behind = true };
    return call->op == PLAN_gather ? team_gather(team, &wait, call->from, call->to, call->bytes)
                                   : team_exchange(team, &wait, call->from, call->to, call->bytes);
}

static void *make_calls(void *user) {
    Process *p = user;
    Behind *b = &p->behind;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        while (!b->first && !atomic_load(&b->stop)) pthread_cond_wait(&b->more, &b->lock);
        if (atomic_load(&b->stop)) break;
        Begun *call = b->first;
        pthread_mutex_unlock(&b->lock);
        Status status = make_call(p, call);
        pthread_mutex_lock(&b->lock);
        b->first = call->next;
        call->status = status;
        if (status != OK) snprintf(call->message, sizeof call->message, "%s", status_message());
        call->done = true;
        pthread_cond_broadcast(&b->done);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

static Status start(Process *p) {
    sigset_t all, before;
    if (p->behind.started) return OK;
    // Signals are for the thread that runs the command.
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&p->behind.thread, NULL, make_calls, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return status_fail(status_errno(error), "no thread for what ranks send meanwhile: %s", strerror(error));
    p->behind.started = true;
    return OK;
}

static Begun *begun_new(Behind *b) {
    Begun *call = b->spare;
    if (call) b->spare = call->next;
    else call = memory_alloc(sizeof *call);
    return call;
}

Status process_begin(Comm *comm, PlanGroup group, PlanOp op, const void *from, void *to, int64_t bytes,
                     void **ticket) {
    Process *p = process_of(comm);
    Behind *b = &p->behind;
    TRY(start(p));
    Begun *call = *ticket = begun_new(b);
    uint32_t number = atomic_fetch_add(&p->control.board->entries[comm->rank].begun[group], 1) + 1;
    *call = (Begun){ .group = group, .op = op, .from = from, .to = to, .bytes = bytes, .number = number };
    pthread_mutex_lock(&b->lock);
    if (b->first) b->last->next = call;
    else b->first = call;
    b->last = call;
    pthread_cond_signal(&b->more);
    pthread_mutex_unlock(&b->lock);
    return OK;
}

static bool is_done(Behind *b, const Begun *call) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_EVERY;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&b->lock);
    if (!call->done) pthread_cond_timedwait(&b->done, &b->lock, &until);
    bool done = call->done;
    pthread_mutex_unlock(&b->lock);
    return done;
}

// One that fails is not used again: the thread may be at it still.
Status process_ended(Comm *comm, void *ticket) {
    Process *p = process_of(comm);
    Behind *b = &p->behind;
    Begun *call = ticket;
    Wait wait = { .process = p, .requests = &p->requests, .looked = board_now() };
    board_wait_begun(p->control.board, comm->rank, call->op == PLAN_gather ? CALL_gather : CALL_exchange,
                     (int)call->group, call->number);
    while (!is_done(b, call)) TRY(wait_look(&wait));
    wait_end(&wait);
    if (call->status != OK) return status_fail(call->status, "%s", call->message);
    call->next = b->spare;
    b->spare = call;
    return OK;
}

static void free_calls(Begun *call) {
    while (call) {
        Begun *next = call->next;
        memory_free(call);
        call = next;
    }
}

void behind_close(Process *p) {
    Behind *b = &p->behind;
    pthread_mutex_lock(&b->lock);
    atomic_store(&b->stop, true);
    pthread_cond_signal(&b->more);
    pthread_mutex_unlock(&b->lock);
    if (b->started) pthread_join(b->thread, NULL);
    free_calls(b->first);
    free_calls(b->spare);
    requests_free(&b->requests);
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->more);
    pthread_cond_destroy(&b->done);
}
