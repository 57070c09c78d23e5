// SPDX-License-Identifier: Apache-2.0
// A thread beside the rank's own. It beats as long as the process runs, hears at once when a process of
// its node is gone, and sees which ones do not beat. What it sees it reports before a launcher, which
// ends all ranks once one is gone, gets to this one. On a node's lowest rank it keeps the boards of the
// nodes alike (news.c); a node that sends none counts as a rank that does not beat.
//
// A beat is missed when this process has seen none in as many turns of its own: time in which the whole
// machine stood still counts for nobody.
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/comm/process.h"

enum { BEAT = 250 }; // milliseconds

typedef struct Watch {
    Process *process;
    struct pollfd *polls;      // [ranks of the node + 1]: the pipe, then those of `ranks`
    int *ranks, n;
    uint32_t *beats, *missed;  // [n]
} Watch;

static bool over(const Process *p, int rank) {
    return atomic_load(&p->control.board->entries[rank].state) == RANK_ENDED;
}

static void report(Process *p, int rank, const char *what) {
    pthread_mutex_lock(&p->lock);
    board_fail(p->control.board, &p->base, rank, what, p->folder);
    pthread_mutex_unlock(&p->lock);
}

static void look_at(Watch *w, int i, bool beat) {
    Process *p = w->process;
    const BoardEntry *e = &p->control.board->entries[w->ranks[i]];
    struct pollfd *poll = &w->polls[i + 1];
    bool gone = poll->fd >= 0 ? poll->revents != 0 : e->pid_space && kill(e->pid, 0) != 0;
    if (gone) {
        if (!over(p, w->ranks[i])) report(p, w->ranks[i], "is gone: its process has ended");
        if (poll->fd >= 0) close(poll->fd);
        poll->fd = -1;
        w->missed[i] = UINT32_MAX; // said
    }
    if (!beat || w->missed[i] == UINT32_MAX) return;
    uint32_t beats = atomic_load(&e->beats);
    w->missed[i] = beats == w->beats[i] ? w->missed[i] + 1 : 0;
    w->beats[i] = beats;
    if (w->missed[i] * BEAT < p->deadline * 500 || over(p, w->ranks[i])) return;
    report(p, w->ranks[i], e->pid_space ? "does not run: its process is stopped or starved"
                                        : "is not heard of: its process is stopped, or its node gone");
    w->missed[i] = UINT32_MAX;
}

static void watch_free(Watch *w) {
    for (int i = 1; i <= w->n; i++)
        if (w->polls[i].fd >= 0) close(w->polls[i].fd);
    memory_free(w->polls);
    memory_free(w->ranks);
    memory_free(w->beats);
    memory_free(w->missed);
    memory_free(w);
}

static void *watch(void *user) {
    Watch *w = user;
    Process *p = w->process;
    int64_t next = board_now();
    for (;;) {
        int64_t now = board_now();
        bool beat = now >= next;
        if (beat) {
            atomic_fetch_add(&p->control.board->entries[p->base.rank].beats, 1);
            next = now + BEAT;
        }
        if (beat) (void)news_turn(p); // what fails there the rank's own thread hears too
        for (int i = 0; i < w->n; i++) look_at(w, i, beat);
        poll(w->polls, (nfds_t)w->n + 1, (int)(next - now));
        if (w->polls[0].revents) break;
    }
    watch_free(w);
    return NULL;
}

// Ranks of this node in this process's space of process numbers; a lowest rank looks after those of
// other nodes (whose entries have no such space).
static Watch *watch_new(Process *p) {
    const BoardEntry *entries = p->control.board->entries, *own = &entries[p->base.rank];
    size_t n = (size_t)p->base.n_ranks;
    Watch *w = memory_alloc(sizeof *w);
    *w = (Watch){ p, memory_alloc((n + 1) * sizeof *w->polls), memory_alloc(n * sizeof *w->ranks), 0,
                  memory_alloc(n * sizeof *w->beats), memory_alloc(n * sizeof *w->missed) };
    w->polls[0] = (struct pollfd){ p->stop[0], POLLIN, 0 };
    for (int i = 0; i < p->n_node; i++) {
        const BoardEntry *e = &entries[p->node[i]];
        if (e == own || e->pid_space != own->pid_space) continue;
        w->ranks[w->n++] = p->node[i];
        w->polls[w->n] = (struct pollfd){ (int)syscall(SYS_pidfd_open, e->pid, 0), POLLIN, 0 };
    }
    for (int r = 0; p->news && r < p->base.n_ranks; r++) {
        if (p->node_of[r] != r || r == p->base.rank) continue;
        w->ranks[w->n++] = r;
        w->polls[w->n] = (struct pollfd){ .fd = -1 };
    }
    return w;
}

Status watch_start(Process *p) {
    sigset_t all, before;
    if (pipe(p->stop) != 0) return status_fail(ERR_IO, "no pipe for the thread that watches ranks");
    Watch *w = watch_new(p);
    // Signals are for the thread that runs the command.
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&p->watcher, NULL, watch, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) return OK;
    watch_free(w);
    return status_fail(status_errno(error), "no thread that watches ranks: %s", strerror(error));
}

void watch_stop(Process *p) {
    close(p->stop[1]);
    pthread_join(p->watcher, NULL);
    close(p->stop[0]);
}
