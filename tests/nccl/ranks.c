// SPDX-License-Identifier: Apache-2.0
#include "tests/nccl/ranks.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT = 60 /* seconds */ };

static _Thread_local int this_rank;

_Noreturn void rank_fail(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: rank %d: %s\n", file, line, this_rank, what);
    _exit(1);
}

void rank_good(Status status, const char *file, int line, const char *what) {
    if (status == OK) return;
    fprintf(stderr, "%s\n", status_message());
    rank_fail(file, line, what);
}

void rank_fine(Rank *r, NcclResult result, const char *file, int line, const char *what) {
    if (result == NCCL_OK) return;
    fprintf(stderr, "%s: %s\n", r->nccl->error_text(result), r->nccl->last_error(r->comm));
    rank_fail(file, line, what);
}

void expect_text(Rank *r, const char *const *parts) {
    const char *text = r->nccl->last_error(r->comm);
    for (; *parts; parts++) {
        if (strstr(text, *parts)) continue;
        fprintf(stderr, "rank %d: expected \"%s\" in:\n%s\n", r->rank, *parts, text);
        _exit(1);
    }
}

bool settle(Rank *r, NcclComm comm) {
    for (;;) {
        bool idle;
        NcclResult error;
        GOOD(r->device->api->idle(r->device, &idle));
        FINE(r, r->nccl->async_error(comm, &error));
        if (error != NCCL_OK && error != NCCL_IN_PROGRESS) return false;
        if (idle) break;
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    }
    GOOD(r->device->api->synchronize(r->device));
    return true;
}

/* Memory --------------------------------------------------------------------------------------- */

void *empty(Rank *r, int n) {
    void *at;
    GOOD(r->device->api->alloc(r->device, n * (int64_t)sizeof(int), false, "a test", &at));
    return at;
}

void *numbers(Rank *r, int n, int from) {
    void *at = empty(r, n);
    int *host = malloc((size_t)n * sizeof *host);
    for (int i = 0; i < n; i++) host[i] = from + i;
    GOOD(r->device->api->copy_in(r->device, at, host, n * (int64_t)sizeof *host));
    free(host);
    return at;
}

void expect_numbers(Rank *r, const void *at, int n, int from) {
    int *host = malloc((size_t)n * sizeof *host);
    GOOD(r->device->api->copy_out(r->device, host, (void *)(uintptr_t)at, n * (int64_t)sizeof *host));
    GOOD(r->device->api->synchronize(r->device));
    for (int i = 0; i < n; i++) {
        if (host[i] == from + i) continue;
        fprintf(stderr, "rank %d: number %d is %d, expected %d\n", r->rank, i, host[i], from + i);
        rank_fail(__FILE__, __LINE__, "wrong bytes");
    }
    free(host);
}

NcclConfig config_of(bool blocking) {
    return (NcclConfig){ sizeof(NcclConfig), NCCL_CONFIG_MAGIC, NCCL_CONFIG_VERSION, blocking,
                         NCCL_UNSET, NCCL_UNSET, NCCL_UNSET, NULL, NCCL_UNSET, NCCL_UNSET, NULL,
                         NCCL_UNSET, NCCL_UNSET, NCCL_UNSET, NCCL_UNSET, NCCL_UNSET, NCCL_UNSET };
}

struct Page {
    _Atomic int turn;
    char bytes[4000];
};

Status rank_share(void *user, void *bytes, int64_t n) {
    Rank *r = user;
    if (r->rank == 0) {
        memcpy(r->page->bytes, bytes, (size_t)n);
        r->page->turn = 1;
    }
    while (!r->page->turn) usleep(1000);
    memcpy(bytes, r->page->bytes, (size_t)n);
    return OK;
}

/* Running -------------------------------------------------------------------------------------- */

typedef struct Start {
    Rank rank;
    void (*body)(Rank *rank);
} Start;

static void *run_rank(void *user) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    Start *start = user;
    Rank *r = &start->rank;
    void *stream;
    NcclConfig config = config_of(true);
    this_rank = r->rank;
    pthread_mutex_lock(&one);
    GOOD(device_open("vgpu:sm_80", NULL, &r->device));
    pthread_mutex_unlock(&one);
    GOOD(r->device->api->stream(r->device, NULL, &stream));
    r->stream = stream;
    FINE(r, r->nccl->init(&r->comm, r->n, r->id, r->rank, &config));
    start->body(r);
    pthread_mutex_lock(&one);
    device_close(r->device);
    pthread_mutex_unlock(&one);
    return NULL;
}

static void run_threads(Start *starts, int n) {
    pthread_t threads[16];
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, run_rank, &starts[i])) abort();
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

static bool wait_for(pid_t child) {
    int how;
    for (int turn = 0; turn < LIMIT * 100; turn++) {
        pid_t got = waitpid(child, &how, WNOHANG);
        if (got == child && WIFSIGNALED(how)) fprintf(stderr, "a rank ended by signal %d\n", WTERMSIG(how));
        if (got == child) return WIFEXITED(how) && WEXITSTATUS(how) == 0;
        usleep(10000);
    }
    kill(child, SIGKILL);
    waitpid(child, &how, 0);
    fprintf(stderr, "a rank was not done in %d s\n", LIMIT);
    return false;
}

// The driver has threads, so it is opened in children only.
void run_ranks(int n, bool threads, void (*body)(Rank *rank)) {
    const Nccl *nccl;
    NcclId id;
    Start starts[16];
    pid_t children[16];
    setenv("MOEC_NCCL_LIBRARY", MOEC_BINARY_DIR "/libmoec-nccl.so", 1);
    setenv("MOEC_VGPU_LIBRARY", MOEC_BINARY_DIR "/libmoec-vgpu.so", 1);
    setenv("MOEC_VGPU_QUIET", "1", 1);
    if (nccl_open(true, &nccl) != OK) fail_msg("%s", status_message());
    assert_int_equal(nccl->unique_id(&id), NCCL_OK);
    Page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) fail_msg("no page for all ranks");
    for (int i = 0; i < n; i++)
        starts[i] = (Start){ { .rank = i, .n = n, .id = id, .nccl = nccl, .page = page }, body };
    int n_children = threads ? 1 : n;
    fflush(NULL);
    for (int i = 0; i < n_children; i++) {
        children[i] = fork();
        if (children[i]) continue;
        if (threads) run_threads(starts, n);
        else run_rank(&starts[i]);
        _exit(0);
    }
    bool good = true;
    for (int i = 0; i < n_children; i++) good &= wait_for(children[i]);
    munmap(page, sizeof *page);
    assert_true(good);
}
