// SPDX-License-Identifier: Apache-2.0
// A transport knows when ranks have failed, and says so in its next call. But a launcher's library waits
// where nobody can interrupt it: until all ranks have started, while they share memory, until all have
// ended. A rank that is stopped in one of those moments would hold the others forever. This thread ends
// the process then: it is the edge of a command, where processes may end.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "runtime/train/train.h"

enum { GRACE = 2 }; // seconds in which the command itself ends after a failure; a little more at its end

struct Guard {
    const char *program;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    Comm *comm;       // NULL: not opened, or closing
    double deadline;  // seconds that a rank may stand still
    double until;     // when what is under way has taken too long; 0: it may take any time
    int exit_status;  // of closing
    bool closing, over;
};

static void give_up(const Guard *g, const char *why) {
    fprintf(stderr, "%s%s: error: %s\n", log_prefix(), g->program, why);
    fflush(stderr);
    _exit(1);
}

// With the lock held; about twice a second.
static void look(Guard *g) {
    double now = time_seconds();
    if (g->comm && comm_check(g->comm) != OK) {
        if (g->until == 0) g->until = now + GRACE;
        if (now > g->until) give_up(g, status_message());
    } else if (g->closing && now > g->until) {
        _exit(g->exit_status); // all is done; another rank does not come to the end
    } else if (!g->comm && now > g->until) {
        give_up(g, "not all ranks that were started have come: one does not run, or hangs in its launcher's "
                   "library\n  hint: start them again");
    }
}

static void *watch(void *user) {
    Guard *g = user;
    pthread_mutex_lock(&g->lock);
    while (!g->over) {
        struct timespec next;
        clock_gettime(CLOCK_REALTIME, &next);
        next.tv_nsec += 500000000;
        if (next.tv_nsec >= 1000000000) next.tv_sec++, next.tv_nsec -= 1000000000;
        if (pthread_cond_timedwait(&g->changed, &g->lock, &next) == ETIMEDOUT) look(g);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

Guard *guard_start(const char *program, double deadline) {
    int ranks = comm_announced();
    if (ranks <= 1) return NULL;
    static Guard guard; // a command's end does not take it away from its thread
    Guard *g = &guard;
    // Many ranks take longer to start.
    *g = (Guard){ .program = program,
                  .deadline = deadline,
                  .until = time_seconds() + deadline + ranks / 20.0 };
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    sigset_t all, before;
    sigfillset(&all); // signals are for the thread that runs the command
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&g->thread, NULL, watch, g);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0 ? g : NULL; // without one it goes as well, unless a rank is stopped
}

void guard_open(Guard *g, Comm *comm) {
    if (!g) return;
    pthread_mutex_lock(&g->lock);
    g->comm = comm;
    g->until = 0;
    pthread_mutex_unlock(&g->lock);
}

void guard_close(Guard *g, int exit_status) {
    if (!g) return;
    pthread_mutex_lock(&g->lock);
    g->comm = NULL;
    g->closing = true;
    g->exit_status = exit_status;
    g->until = time_seconds() + g->deadline + GRACE;
    pthread_mutex_unlock(&g->lock);
}

void guard_stop(Guard *g) {
    if (!g) return;
    pthread_mutex_lock(&g->lock);
    g->over = true;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
}
