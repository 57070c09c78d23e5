// SPDX-License-Identifier: Apache-2.0
// Waiting, and messages of the engine.
//
// A wait first looks a few times, then sleeps: on the word it waits for, or on its own bell when it waits
// for a message. Sleeps are short while messages are open, since only calls move those on, and longer
// otherwise. Between sleeps it looks whether it waits in vain.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/process.h"

enum {
    LOOKS = 200,                // before the first sleep: a few microseconds
    TESTS = 16,                 // of messages, likewise
    LOOK_EVERY = 50,            // milliseconds between looks at the board
    LONG_NAP = 20000000,        // nanoseconds
    FIRST_NAP = 20000, LAST_NAP = 500000,
};

struct Ticket {
    Ticket *before, *next;      // of those that are open, until done
    void *request;
    int rank;
    bool done;
};

/* Sleeping ------------------------------------------------------------------------------------- */

static void sleep_on(_Atomic uint32_t *word, uint32_t old, int64_t nanoseconds) {
    struct timespec limit = { .tv_nsec = nanoseconds };
    syscall(SYS_futex, word, FUTEX_WAIT, old, &limit, NULL, 0);
}

void wake_all(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void ring(Process *p, int rank) {
    if (p->node_of[rank] != p->node_of[p->base.rank]) return;
    Bell *bell = &p->control.bells[rank];
    atomic_fetch_add(&bell->rings, 1);
    if (atomic_load(&bell->sleeping)) wake_all(&bell->rings);
}

static void relax(void) {
    __builtin_ia32_pause();
}

Wait wait_begin(Process *p, BoardCall call, int group, int peer) {
    board_wait(p->control.board, p->base.rank, call, group, peer);
    return (Wait){ .process = p, .requests = &p->requests, .looked = board_now() };
}

void wait_end(Wait *wait) {
    board_go_on(wait->process->control.board, wait->process->base.rank);
}

Status wait_look(Wait *wait) {
    Process *p = wait->process;
    Board *board = p->control.board;
    if (atomic_load_explicit(&board->failed, memory_order_relaxed)) return board_status(board);
    if (wait->behind) // whom the rank waits for its own thread finds out
        return atomic_load(&p->behind.stop) ? status_fail(ERR_RANK, "this rank ends") : OK;
    int64_t now = board_now();
    if (now - wait->looked < LOOK_EVERY) return OK;
    wait->looked = now;
    return board_in_vain(board, &p->base, p->deadline, p->folder) ? board_status(board) : OK;
}

static int64_t next_nap(Wait *wait) {
    int64_t nap = (int64_t)FIRST_NAP << (wait->naps < 16 ? wait->naps++ : 16);
    return min_i64(nap, wait->requests->open ? LAST_NAP : LONG_NAP);
}

static Status move_on(Wait *wait);

Status wait_word(Wait *wait, _Atomic uint32_t *word, uint32_t old) {
    for (int i = 0; i < LOOKS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old) return OK;
        relax();
    }
    while (atomic_load_explicit(word, memory_order_acquire) == old) {
        TRY(wait_look(wait));
        TRY(move_on(wait));
        sleep_on(word, old, wait->requests->open ? next_nap(wait) : LONG_NAP);
    }
    return OK;
}

/* Requests ------------------------------------------------------------------------------------- */

Status request_send(Process *p, int rank, int tag, const void *from, int64_t bytes, void **request) {
    pthread_mutex_lock(&p->engine_lock);
    const char *problem = p->engine->send(rank, tag, from, bytes, request);
    pthread_mutex_unlock(&p->engine_lock);
    return process_said("a message", problem);
}

Status request_recv(Process *p, int rank, int tag, void *to, int64_t bytes, void **request) {
    pthread_mutex_lock(&p->engine_lock);
    const char *problem = p->engine->recv(rank, tag, to, bytes, request);
    pthread_mutex_unlock(&p->engine_lock);
    return process_said("a message", problem);
}

Status request_test(Process *p, void *request, bool *done) {
    pthread_mutex_lock(&p->engine_lock);
    const char *problem = p->engine->test(request, done);
    pthread_mutex_unlock(&p->engine_lock);
    return process_said("a message", problem);
}

static Status test(Wait *wait, Ticket *ticket) {
    if (ticket->done) return OK;
    TRY(request_test(wait->process, ticket->request, &ticket->done));
    if (!ticket->done) return OK;
    if (ticket->before) ticket->before->next = ticket->next;
    else wait->requests->open = ticket->next;
    if (ticket->next) ticket->next->before = ticket->before;
    return OK;
}

// One test moves on all of the engine's messages; a second finds what the first moved.
static Status move_on(Wait *wait) {
    for (Ticket *ticket = wait->requests->open, *next; ticket; ticket = next) {
        next = ticket->next;
        TRY(test(wait, ticket));
    }
    return OK;
}

static Ticket *ticket_new(Requests *requests) {
    Ticket *ticket = requests->spare;
    if (ticket) requests->spare = ticket->next;
    else ticket = memory_alloc(sizeof *ticket);
    *ticket = (Ticket){ .next = requests->open };
    if (requests->open) requests->open->before = ticket;
    requests->open = ticket;
    return ticket;
}

Status ticket_send(Wait *wait, int rank, int tag, const void *from, int64_t bytes, Ticket **out) {
    void *request;
    TRY(request_send(wait->process, rank, tag, from, bytes, &request));
    *out = ticket_new(wait->requests);
    (*out)->request = request, (*out)->rank = rank;
    ring(wait->process, rank);
    return OK;
}

Status ticket_recv(Wait *wait, int rank, int tag, void *to, int64_t bytes, Ticket **out) {
    void *request;
    TRY(request_recv(wait->process, rank, tag, to, bytes, &request));
    *out = ticket_new(wait->requests);
    (*out)->request = request, (*out)->rank = rank;
    return OK;
}

// The bell is for the rank's own thread.
static void nap(Wait *wait, uint32_t rings) {
    Bell *bell = &wait->process->control.bells[wait->process->base.rank];
    struct timespec time = { .tv_nsec = next_nap(wait) };
    if (wait->behind) {
        nanosleep(&time, NULL);
        return;
    }
    atomic_store(&bell->sleeping, 1);
    sleep_on(&bell->rings, rings, time.tv_nsec);
    atomic_store(&bell->sleeping, 0);
}

Status wait_ticket(Wait *wait, Ticket *ticket) {
    Bell *bell = &wait->process->control.bells[wait->process->base.rank];
    for (int i = 0; i < TESTS && !ticket->done; i++) TRY(move_on(wait));
    for (;;) {
        uint32_t rings = atomic_load(&bell->rings);
        TRY(move_on(wait));
        if (ticket->done) break;
        TRY(wait_look(wait));
        nap(wait, rings);
    }
    ticket->next = wait->requests->spare;
    wait->requests->spare = ticket;
    return OK;
}

static void free_list(Ticket *ticket) {
    while (ticket) {
        Ticket *next = ticket->next;
        memory_free(ticket);
        ticket = next;
    }
}

// Open ones are left after a failure only.
void requests_free(Requests *requests) {
    free_list(requests->spare);
    free_list(requests->open);
    *requests = (Requests){ 0 };
}

/* Messages ------------------------------------------------------------------------------------- */

Status process_send(Comm *comm, int rank, PlanLane lane, const void *from, int64_t bytes,
                    void **ticket) {
    Process *p = process_of(comm);
    Wait begin = { .process = p, .requests = &p->requests };
    return ticket_send(&begin, rank, TAG_MESSAGE + (int)lane, from, bytes, (Ticket **)ticket);
}

Status process_sent(Comm *comm, void *ticket) {
    Ticket *t = ticket;
    Process *p = process_of(comm);
    Wait wait = { .process = p, .requests = &p->requests };
    if (!t->done) TRY(test(&wait, t));
    wait = wait_begin(p, CALL_send, -1, t->rank);
    TRY(wait_ticket(&wait, t));
    wait_end(&wait);
    return OK;
}

Status process_recv(Comm *comm, int rank, PlanLane lane, void *to, int64_t bytes) {
    Process *p = process_of(comm);
    Ticket *ticket;
    Wait wait = { .process = p, .requests = &p->requests };
    TRY(ticket_recv(&wait, rank, TAG_MESSAGE + (int)lane, to, bytes, &ticket));
    wait = wait_begin(p, CALL_recv, -1, rank);
    TRY(wait_ticket(&wait, ticket));
    wait_end(&wait);
    ring(p, rank);
    return OK;
}
