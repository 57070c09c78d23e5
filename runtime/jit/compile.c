// SPDX-License-Identifier: Apache-2.0
// Translation units to shared objects. One thread per core takes units in order, starts a compiler
// and waits for it, then a linker; this thread waits for theirs, reads what came out and reports. A
// pid is killed only under the lock and only while its process has not been reaped, so it cannot be
// someone else's. The linker is started by us: a compiler that is to link too starts itself again to
// compile, which takes longer than compiling a small kernel.
#include "runtime/jit/compile.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

enum { MAX_WORKERS = 64, MESSAGE_LINES = 8, MESSAGE_BYTES = 1200 };

// What ld cannot link, for want of the compiler's own library, the compiler links.
typedef enum Step { COMPILE, LINK, LINK_BY_COMPILER } Step;

typedef struct Outcome {
    int unit;
    Step step; // the last that was started
    Status start;
    int end;
    char message[512];
} Outcome;

typedef struct Jobs {
    const Compiler *compiler;
    const JitShare *share;
    const char *scratch;
    const char *const *sources, *const *parts, *const *objects, *const *logs; // paths, per unit
    int n_units;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int next; // unit to start
    bool stop;
    pid_t pids[MAX_WORKERS]; // running, 0: none
    Outcome *outcomes;
    int n_outcomes;
    int n_started; // workers that exist; each has a slot in pids
    pthread_t threads[MAX_WORKERS];
    int n_threads;
} Jobs;

// Kernels of a build with sanitizers call their runtime, which is the program's.
#ifdef MOEC_SANITIZE
#define LINK_FLAGS "-shared"
#else
#define LINK_FLAGS "-shared", "-zdefs", "-lm", "-lc"
#endif

static Status start_step(const Jobs *jobs, int unit, Step step, pid_t *pid) {
    const Compiler *compiler = jobs->compiler;
    const char *part = jobs->parts[unit], *object = jobs->objects[unit];
    const char *const link[] = { compiler->linker, "-o", object, part, LINK_FLAGS, NULL };
    const char *argv[JIT_MAX_FLAGS + 6] = { compiler->path };
    int n = 1;
    for (const char *const *flag = compiler->flags; *flag; flag++) argv[n++] = *flag;
    argv[n++] = step == COMPILE ? "-c" : "-shared";
    argv[n++] = "-o";
    argv[n++] = step == COMPILE ? part : object;
    argv[n++] = step == COMPILE ? jobs->sources[unit] : part;
    argv[n] = NULL;
    return process_start(step == LINK ? link : argv, jobs->scratch, jobs->logs[unit], pid);
}

// With the lock held, which it gives back while the process runs.
static void run_step(Jobs *jobs, int slot, Outcome *outcome) {
    pid_t pid = 0;
    outcome->start = start_step(jobs, outcome->unit, outcome->step, &pid);
    if (outcome->start != OK) {
        const char *message = status_message();
        memcpy(outcome->message, message, strnlen(message, sizeof outcome->message - 1));
        return;
    }
    jobs->pids[slot] = pid;
    pthread_mutex_unlock(&jobs->lock);
    process_wait(pid);
    pthread_mutex_lock(&jobs->lock);
    jobs->pids[slot] = 0;
    outcome->end = process_reap(pid);
}

// With the lock held: whether the step went well and there is a next one.
static bool goes_on(const Jobs *jobs, const Outcome *outcome) {
    return outcome->start == OK && outcome->end == 0 && !jobs->stop;
}

static void make_unit(Jobs *jobs, int slot, Outcome *outcome) {
    run_step(jobs, slot, outcome);
    if (!goes_on(jobs, outcome) || !file_exists(jobs->parts[outcome->unit])) return;
    outcome->step = LINK;
    if (jobs->compiler->linker) run_step(jobs, slot, outcome);
    if (jobs->stop || (jobs->compiler->linker && goes_on(jobs, outcome))) return;
    outcome->step = LINK_BY_COMPILER;
    run_step(jobs, slot, outcome);
}

static void *work(void *user) {
    Jobs *jobs = user;
    pthread_mutex_lock(&jobs->lock);
    int slot = jobs->n_started++;
    while (!jobs->stop && jobs->next < jobs->n_units) {
        Outcome outcome = { .unit = jobs->next++ };
        make_unit(jobs, slot, &outcome);
        jobs->outcomes[jobs->n_outcomes++] = outcome;
        pthread_cond_signal(&jobs->changed);
    }
    pthread_mutex_unlock(&jobs->lock);
    return NULL;
}

static void stop_all(Jobs *jobs) {
    pthread_mutex_lock(&jobs->lock);
    jobs->stop = true;
    for (int i = 0; i < MAX_WORKERS; i++) {
        if (jobs->pids[i]) kill(jobs->pids[i], SIGTERM);
    }
    pthread_mutex_unlock(&jobs->lock);
}

static void join_all(Jobs *jobs) {
    for (int i = 0; i < jobs->n_threads; i++) pthread_join(jobs->threads[i], NULL);
}

// No room for what the workers make: they end first.
static void give_up(void *jobs) {
    stop_all(jobs);
    join_all(jobs);
}

// The compiler's lines from its first error on.
static const char *first_errors(const char *log) {
    const char *at = strstr(log, "error:");
    if (!at) return log;
    while (at > log && at[-1] != '\n') at--;
    return at;
}

static Status compile_error(const Jobs *jobs, const Outcome *outcome, bool kept, Arena *arena) {
    const Compiler *compiler = jobs->compiler;
    const char *program = outcome->step == LINK ? compiler->linker : compiler->path;
    if (outcome->start != OK) return status_fail(outcome->start, "%s", outcome->message);
    if (outcome->end >= 0 && WIFSIGNALED(outcome->end)) {
        int signal = WTERMSIG(outcome->end);
        bool asked = signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
        return status_fail(asked ? ERR_INTERRUPTED : ERR_COMPILE,
                           "%s was stopped by signal %d (%s)", program, signal, strsignal(signal));
    }
    char *log = "";
    size_t n;
    if (file_read(jobs->logs[outcome->unit], arena, &log, &n) != OK) log = "";
    const char *from = first_errors(log);
    int bytes = 0;
    for (int lines = 0; from[bytes] && bytes < MESSAGE_BYTES; bytes++) {
        if (from[bytes] == '\n' && ++lines == MESSAGE_LINES) break;
    }
    while (bytes && from[bytes - 1] == '\n') bytes--;
    const char *source = jobs->sources[outcome->unit];
    return status_fail(ERR_COMPILE, "%s refused generated code (status %d):\n%.*s\n  hint: %s%s",
                       program, WIFEXITED(outcome->end) ? WEXITSTATUS(outcome->end) : -1, bytes,
                       from,
                       kept ? "the source is kept in " : "set MOEC_JIT_DUMP=DIR to keep the source",
                       kept ? source : "");
}

// With the lock held. Other ranks hear about every second that this one is at work.
static void await_outcome(Jobs *jobs) {
    if (!jobs->share) {
        pthread_cond_wait(&jobs->changed, &jobs->lock);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&jobs->changed, &jobs->lock, &until);
    jobs->share->pulse(jobs->share->user);
}

// Takes outcomes as they come. Called with the workers running; returns with the failure of the
// first.
static Status collect(Jobs *jobs, Unit *units, bool kept, Arena *arena,
                      void (*done)(void *user, int unit), void *user) {
    for (int taken = 0; taken < jobs->n_units; taken++) {
        pthread_mutex_lock(&jobs->lock);
        while (jobs->n_outcomes == taken) await_outcome(jobs);
        Outcome outcome = jobs->outcomes[taken];
        pthread_mutex_unlock(&jobs->lock);
        Unit *unit = &units[outcome.unit];
        if (outcome.start != OK || outcome.end != 0)
            return compile_error(jobs, &outcome, kept, arena);
        const char *object = jobs->objects[outcome.unit];
        if (!file_exists(object))
            return status_fail(ERR_COMPILE, "%s ended well but wrote no object\n"
                               "  hint: set MOEC_CC to a working C compiler", jobs->compiler->path);
        TRY(file_read(object, arena, &unit->object, &unit->object_bytes));
        done(user, outcome.unit);
    }
    return OK;
}

static Status run_jobs(Jobs *jobs, Unit *units, bool kept, Arena *arena,
                       void (*done)(void *user, int unit), void *user) {
    int wanted = (int)min_i64(min_i64(compiler_cores(jobs->share), MAX_WORKERS), jobs->n_units);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); // handlers run on the program's own threads
    while (jobs->n_threads < wanted &&
           pthread_create(&jobs->threads[jobs->n_threads], NULL, work, jobs) == 0)
        jobs->n_threads++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    Held held;
    memory_hold(&held, give_up, jobs);
    Status status = jobs->n_threads
                      ? collect(jobs, units, kept, arena, done, user)
                      : status_fail(ERR_MEMORY, "cannot start a thread to wait for the compiler");
    if (status != OK) stop_all(jobs);
    memory_drop(&held);
    join_all(jobs);
    return status;
}

Status compile_units(const Compiler *compiler, Unit *units, int n, const JitShare *share, Arena *arena,
                     void (*done)(void *user, int unit), void *user) {
    if (!n) return OK;
    Scratch scratch;
    const char *dump = getenv("MOEC_JIT_DUMP");
    bool kept = dump && *dump;
    if (kept) TRY(file_make_dirs(dump));
    TRY(scratch_create(arena, &scratch));
    const char **sources = ARENA_ARRAY(arena, const char *, n);
    const char **parts = ARENA_ARRAY(arena, const char *, n);
    const char **objects = ARENA_ARRAY(arena, const char *, n);
    const char **logs = ARENA_ARRAY(arena, const char *, n);
    Jobs jobs = {
        .compiler = compiler,
        .share = share,
        .scratch = scratch.dir,
        .sources = sources,
        .parts = parts,
        .objects = objects,
        .logs = logs,
        .n_units = n,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
        .outcomes = ARENA_ARRAY(arena, Outcome, n),
    };
    Status status = OK;
    for (int i = 0; i < n; i++) {
        const char *keep = kept ? dump : scratch.dir;
        sources[i] = arena_printf(arena, "%s/%s.c", keep, units[i].name);
        logs[i] = arena_printf(arena, "%s/%s.log", keep, units[i].name);
        parts[i] = arena_printf(arena, "%s/%s.o", scratch.dir, units[i].name);
        objects[i] = arena_printf(arena, "%s/%s.so", scratch.dir, units[i].name);
        TRY_GOTO(file_write_atomic(sources[i], units[i].source, strlen(units[i].source)), done);
    }
    TRY_GOTO(run_jobs(&jobs, units, kept, arena, done, user), done);
done:
    scratch_remove(&scratch);
    return status;
}
