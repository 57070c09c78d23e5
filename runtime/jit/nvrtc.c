// SPDX-License-Identifier: Apache-2.0
// NVRTC in worker processes. Its front end takes one lock per process, so threads do not help a
// list of small programs, and processes do. Workers are forked, not started: the library is loaded
// once, and there is no second program to find. A worker takes programs from a counter in shared
// memory and writes what came out into its pipe: a Reply, then PTX, cubin and log or message. This
// thread reads the pipes, and kills and reaps only workers it started.
#include "runtime/jit/nvrtc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/library.h"
#include "runtime/jit/compile.h"

enum { MAX_WORKERS = 64, MOST_OPTIONS = 16, MESSAGE_LINES = 8, MESSAGE_BYTES = 1200 };

/* The library --------------------------------------------------------------------------------- */

typedef struct Program *ProgramRef; // nvrtcProgram
#define NVRTC_TABLE(X)                                                                             \
    X(nvrtcVersion, (int *major, int *minor))                                                      \
    X(nvrtcCreateProgram, (ProgramRef *, const char *source, const char *name, int n_headers,      \
                           const char *const *headers, const char *const *names))                  \
    X(nvrtcDestroyProgram, (ProgramRef *))                                                         \
    X(nvrtcCompileProgram, (ProgramRef, int n_options, const char *const *options))                \
    X(nvrtcGetPTXSize, (ProgramRef, size_t *))                                                     \
    X(nvrtcGetPTX, (ProgramRef, char *))                                                           \
    X(nvrtcGetCUBINSize, (ProgramRef, size_t *))                                                   \
    X(nvrtcGetCUBIN, (ProgramRef, char *))                                                         \
    X(nvrtcGetProgramLogSize, (ProgramRef, size_t *))                                              \
    X(nvrtcGetProgramLog, (ProgramRef, char *))

static struct Nvrtc {
#define X(name, parameters) int (*name) parameters;
    NVRTC_TABLE(X)
#undef X
    int major, minor;
    Status status; // of loading it
    char message[2048];
} nvrtc;

static Status open_nvrtc(Arena *arena) {
    LibraryPlaces places = { .arena = arena };
    const char *own = getenv("MOEC_NVRTC"), *where;
    void *handle;
    static const char *const names[] = { "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so" };
    if (own && *own) {
        library_add(&places, own);
    } else {
        for (int i = 0; i < COUNT_OF(names); i++) library_add(&places, names[i]);
        static const char *const variables[] = { "CUDA_HOME", "CUDA_PATH" };
        for (int i = 0; i < COUNT_OF(variables) * COUNT_OF(names); i++) {
            const char *home = getenv(variables[i / COUNT_OF(names)]);
            if (home && *home)
                library_add(&places, arena_printf(arena, "%s/lib64/%s", home,
                                                  names[i % COUNT_OF(names)]));
        }
        for (int i = 0; i < COUNT_OF(names); i++) {
            library_add_folders(&places, "/usr/local/cuda/lib64", names[i]);
            library_add_folders(&places, "/usr/local/cuda-*/lib64", names[i]);
        }
    }
    TRY(library_open(&places, "NVRTC, which compiles kernels for GPUs,",
                     "install NVIDIA's CUDA toolkit 12 or newer (a GPU is not needed), or set "
                     "MOEC_NVRTC to the path of its libnvrtc.so",
                     &handle, &where));
    static const LibrarySymbol symbols[] = {
#define X(name, parameters) { #name, offsetof(struct Nvrtc, name), false },
        NVRTC_TABLE(X)
#undef X
    };
    TRY(library_fill(handle, where, symbols, COUNT_OF(symbols), &nvrtc));
    if (nvrtc.nvrtcVersion(&nvrtc.major, &nvrtc.minor) != 0)
        return status_fail(ERR_COMPILE, "%s does not tell its version", where);
    return OK; // stays open for the life of the process
}

static void load_nvrtc(void) {
    Arena *arena = arena_create();
    nvrtc.status = arena ? open_nvrtc(arena) : status_fail(ERR_MEMORY, "no memory for NVRTC");
    if (nvrtc.status != OK) snprintf(nvrtc.message, sizeof nvrtc.message, "%s", status_message());
    arena_destroy(arena);
}

Status nvrtc_version(int *major, int *minor) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_nvrtc);
    if (nvrtc.status != OK) return status_fail(nvrtc.status, "%s", nvrtc.message);
    *major = nvrtc.major;
    *minor = nvrtc.minor;
    return OK;
}

/* A worker ------------------------------------------------------------------------------------ */

// What a worker writes; the three texts follow, each with a 0 behind it that does not count.
typedef struct Reply {
    int32_t unit, result; // of nvrtcCompileProgram
    double ms;
    uint64_t n_ptx, n_cubin, n_log;
} Reply;

typedef struct Jobs {
    CudaUnit *units;
    int n, code, n_options;
    const char *const *options;
    _Atomic int *next; // shared between processes
    const JitShare *share;
} Jobs;

static bool write_all(int fd, const void *bytes, size_t n) {
    for (const char *at = bytes; n;) {
        ssize_t wrote = write(fd, at, n);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return false;
        at += wrote;
        n -= (size_t)wrote;
    }
    return true;
}

typedef int (*GetSize)(ProgramRef, size_t *);
typedef int (*GetText)(ProgramRef, char *);

// The text of a program with a 0 behind it; NULL without one.
static char *get(ProgramRef program, GetSize size, GetText text, uint64_t *n) {
    size_t bytes = 0;
    *n = 0;
    if (size(program, &bytes) != 0 || !bytes) return NULL;
    char *at = calloc(1, bytes + 1);
    if (!at || text(program, at) != 0) {
        free(at);
        return NULL;
    }
    *n = at[bytes - 1] ? bytes : bytes - 1; // texts are counted with their 0, cubins have none
    return at;
}

// Of this process: what a compilation costs, whoever else uses the machine.
static double cpu_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static bool compile_one(const Jobs *jobs, int unit, int fd) {
    const CudaUnit *u = &jobs->units[unit];
    ProgramRef program;
    Reply reply = { .unit = unit, .result = -1 };
    double start = cpu_ms();
    if (nvrtc.nvrtcCreateProgram(&program, u->source, u->name, 0, NULL, NULL) != 0)
        return write_all(fd, &reply, sizeof reply);
    reply.result = nvrtc.nvrtcCompileProgram(program, jobs->n_options, jobs->options);
    reply.ms = cpu_ms() - start;
    bool good = reply.result == 0;
    char *log = get(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, &reply.n_log),
         *ptx = NULL, *cubin = NULL;
    if (good && (jobs->code & JIT_PTX))
        ptx = get(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, &reply.n_ptx);
    if (good && (jobs->code & JIT_CUBIN)) {
        size_t n = 0;
        cubin = get(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, &reply.n_cubin);
        if (cubin && nvrtc.nvrtcGetCUBINSize(program, &n) == 0) reply.n_cubin = n;
    }
    bool wrote = write_all(fd, &reply, sizeof reply) &&
                 write_all(fd, ptx ? ptx : "", reply.n_ptx) &&
                 write_all(fd, cubin ? cubin : "", reply.n_cubin) &&
                 write_all(fd, log ? log : "", reply.n_log);
    free(log);
    free(ptx);
    free(cubin);
    nvrtc.nvrtcDestroyProgram(&program);
    return wrote;
}

// Signals are at their defaults here: handlers and what they set belong to the other process.
static _Noreturn void work(const Jobs *jobs, int fd) {
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
    for (int i = 0; i < COUNT_OF(numbers); i++) signal(numbers[i], SIG_DFL);
    for (int unit; (unit = atomic_fetch_add(jobs->next, 1)) < jobs->n;)
        if (!compile_one(jobs, unit, fd)) _exit(1);
    _exit(0);
}

/* The caller ---------------------------------------------------------------------------------- */

typedef struct Worker {
    pid_t pid;
    int fd; // of its pipe, -1: ended
} Worker;

static bool read_all(int fd, void *bytes, size_t n) {
    for (char *at = bytes; n;) {
        ssize_t got = read(fd, at, n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

// The lines from the first error on, as many as a message holds.
static Status refused(const Jobs *jobs, const CudaUnit *unit, const JitImage *image,
                      const Reply *reply) {
    const char *from = image->log ? strstr(image->log, "error") : NULL;
    if (!from) from = image->log ? image->log : "";
    while (image->log && from > image->log && from[-1] != '\n') from--;
    int bytes = 0;
    for (int lines = 0; from[bytes] && bytes < MESSAGE_BYTES; bytes++)
        if (from[bytes] == '\n' && ++lines == MESSAGE_LINES) break;
    while (bytes && from[bytes - 1] == '\n') bytes--;
    enum { INVALID_OPTION = 5 };
    if (reply->result == INVALID_OPTION) // nothing else in the options depends on what is asked for
        return status_fail(ERR_COMPILE,
                           "NVRTC %d.%d does not take %s:\n%.*s\n"
                           "  hint: an architecture newer than it needs a newer toolkit's: set "
                           "MOEC_NVRTC to the path of its libnvrtc.so",
                           nvrtc.major, nvrtc.minor, jobs->options[0], bytes, from);
    return status_fail(ERR_COMPILE,
                       "NVRTC %d.%d refused %s with %s (%d):\n%.*s\n"
                       "  hint: set MOEC_JIT_DUMP=DIR to keep the source",
                       nvrtc.major, nvrtc.minor, unit->name, jobs->options[0], reply->result, bytes,
                       from);
}

// A worker whose pipe ended: all is well if it found no more work.
static Status ended(Worker *worker) {
    close(worker->fd);
    worker->fd = -1;
    int status = process_reap(worker->pid);
    worker->pid = 0;
    if (status < 0 || status == 0) return OK;
    if (!WIFSIGNALED(status))
        return status_fail(ERR_COMPILE, "NVRTC's process ended with status %d",
                           WEXITSTATUS(status));
    int number = WTERMSIG(status);
    bool asked = number == SIGINT || number == SIGTERM || number == SIGHUP;
    return status_fail(asked ? ERR_INTERRUPTED : ERR_COMPILE,
                       "NVRTC's process was stopped by signal %d (%s)", number, strsignal(number));
}

// Reads one reply. *unit -1: the worker has ended.
static Status take(const Jobs *jobs, Worker *worker, int *unit) {
    Reply reply;
    *unit = -1;
    if (!read_all(worker->fd, &reply, sizeof reply)) return ended(worker);
    CudaUnit *u = &jobs->units[reply.unit];
    size_t n = reply.n_ptx + reply.n_cubin + reply.n_log;
    char *block = calloc(1, n + 3);
    if (!block) return status_fail(ERR_MEMORY, "no memory for compiled kernels");
    char *cubin = block + reply.n_ptx + 1, *log = cubin + reply.n_cubin + 1;
    u->block = block;
    u->image = (JitImage){ .ptx = reply.n_ptx ? block : NULL, .n_ptx = reply.n_ptx,
                           .cubin = reply.n_cubin ? cubin : NULL, .n_cubin = reply.n_cubin,
                           .log = log, .n_log = reply.n_log, .ms = reply.ms };
    if (!read_all(worker->fd, block, reply.n_ptx) || !read_all(worker->fd, cubin, reply.n_cubin) ||
        !read_all(worker->fd, log, reply.n_log))
        return ended(worker);
    if (reply.result != 0) return refused(jobs, u, &u->image, &reply);
    if (((jobs->code & JIT_PTX) && !reply.n_ptx) || ((jobs->code & JIT_CUBIN) && !reply.n_cubin))
        return status_fail(ERR_COMPILE, "NVRTC %d.%d gave no code for %s", nvrtc.major, nvrtc.minor,
                           u->name);
    *unit = reply.unit;
    return OK;
}

static Status start_workers(const Jobs *jobs, Worker *workers, int *n) {
    int wanted = (int)min_i64(min_i64(compiler_cores(jobs->share), MAX_WORKERS), jobs->n);
    for (*n = 0; *n < wanted;) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) break;
        pid_t pid = fork();
        if (pid == 0) {
            close(ends[0]);
            work(jobs, ends[1]);
        }
        close(ends[1]);
        if (pid < 0) {
            close(ends[0]);
            break;
        }
        workers[(*n)++] = (Worker){ pid, ends[0] };
    }
    if (*n) return OK; // fewer than wanted do it too
    return status_fail(ERR_MEMORY, "cannot start a process for NVRTC: %s", strerror(errno));
}

static Status collect(const Jobs *jobs, Worker *workers, int n,
                      void (*done)(void *user, int unit), void *user) {
    struct pollfd polls[MAX_WORKERS];
    for (int taken = 0, left = n; left;) {
        for (int i = 0; i < n; i++)
            polls[i] = (struct pollfd){ .fd = workers[i].fd, .events = POLLIN };
        int ready = poll(polls, (nfds_t)n, jobs->share ? 1000 : -1);
        if (jobs->share) jobs->share->pulse(jobs->share->user);
        if (ready < 0 && errno != EINTR)
            return status_fail(ERR_IO, "cannot wait for NVRTC: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            if (workers[i].fd < 0 || !(polls[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
            int unit;
            TRY(take(jobs, &workers[i], &unit));
            if (unit < 0) left--;
            else taken++;
            if (unit >= 0) done(user, unit);
        }
        if (!left && taken < jobs->n)
            return status_fail(ERR_COMPILE, "NVRTC's processes ended after %d of %d kernels", taken,
                               jobs->n);
    }
    return OK;
}

// From 12.9 on NVRTC has a cache of its own, for which it calls the CUDA driver where there is one: in a worker,
// forked from a process that may have opened a GPU, where no driver may be called. It is of no use beside ours.
// What is compiled does not depend on it, so it is in no key.
static int without_driver(const char *const *options, int n, const char *all[MOST_OPTIONS]) {
    n = (int)min_i64(n, MOST_OPTIONS - 1);
    memcpy(all, options, sizeof *all * (size_t)n);
    if (100 * nvrtc.major + nvrtc.minor >= 1209) all[n++] = "--no-cache";
    return n;
}

Status nvrtc_compile(CudaUnit *units, int n, const char *const *options, int n_options, int code,
                     const JitShare *share, void (*done)(void *user, int unit), void *user) {
    int major, minor, n_workers = 0;
    const char *all[MOST_OPTIONS];
    if (!n) return OK;
    TRY(nvrtc_version(&major, &minor));
    Worker workers[MAX_WORKERS];
    _Atomic int *next = mmap(NULL, sizeof *next, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (next == MAP_FAILED) return status_fail(ERR_MEMORY, "no memory for a list of kernels");
    Jobs jobs = { units, n, code, without_driver(options, n_options, all), all, next, share };
    Status status = start_workers(&jobs, workers, &n_workers);
    if (status == OK) status = collect(&jobs, workers, n_workers, done, user);
    for (int i = 0; i < n_workers; i++) {
        if (workers[i].fd < 0) continue;
        kill(workers[i].pid, SIGTERM); // not reaped yet: the number is its own
        close(workers[i].fd);
        process_reap(workers[i].pid);
    }
    munmap(next, sizeof *next);
    return status;
}
