// SPDX-License-Identifier: Apache-2.0
// The thread pool. One word, `ticket`, is all the workers agree on:
//
//   ticket = generation << 32 | next chunk          chunks of a launch are 0 .. n_chunks - 1
//
// A chunk is claimed by adding one to the ticket with compare-and-swap. To publish a launch the
// caller (1) closes the ticket (new generation, next = CLOSED), (2) stores the fields of the
// launch, (3) opens it (next = 0). A worker loads the ticket, then the fields, then claims: when
// the claim succeeds, the ticket did not change in between. Fields are stored with release and
// loaded with acquire, so a worker that saw a field of the next launch also sees the closed ticket,
// and its claim fails. Hence fields always belong to the launch whose chunk was claimed, though
// nobody waits for workers that claimed nothing.
//
// `finished` counts chunks done; the caller returns when it reaches n_chunks. Sleeping: workers on
// `epoch`, which every launch with work for others changes; the caller on `finished`. Each
// announces itself
// (`sleepers`, `caller_sleeps`) before a last look at the word, the other side changes the word
// before it looks for sleepers, both sequentially consistent: one of the two always notices.
#include "runtime/device/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPIN = 2000, MAX_THREADS = 1024, LINE = 64 };
#define CLOSED 0xffffffffu
#define MAX_CHUNKS ((int64_t)1 << 20) // a claim per 2^20th of the work is fine enough

struct Pool {
    _Alignas(LINE) _Atomic uint64_t ticket;
    _Alignas(LINE) _Atomic uint32_t finished;
    _Atomic uint32_t caller_sleeps;
    _Alignas(LINE) _Atomic uint32_t epoch;
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
    // The launch.
    _Alignas(LINE) _Atomic(PoolTile) function;
    _Atomic(void *const *) args;
    _Atomic int64_t tiles, grain; // grain: tiles per chunk
    _Atomic uint32_t n_chunks;
    uint32_t generation; // of the caller
    int threads;         // the caller included
    int n_workers;       // started
    pthread_t *workers;
    Held held;
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

// Claims and computes chunks until none is left.
static void help(Pool *pool) {
    for (;;) {
        uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
        PoolTile function = atomic_load_explicit(&pool->function, memory_order_acquire);
        void *const *args = atomic_load_explicit(&pool->args, memory_order_acquire);
        int64_t tiles = atomic_load_explicit(&pool->tiles, memory_order_acquire);
        int64_t grain = atomic_load_explicit(&pool->grain, memory_order_acquire);
        uint32_t n_chunks = atomic_load_explicit(&pool->n_chunks, memory_order_acquire);
        uint32_t chunk = (uint32_t)ticket;
        if (chunk == CLOSED || chunk >= n_chunks) return;
        if (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket + 1,
                                                   memory_order_acq_rel, memory_order_relaxed)) {
            continue;
        }
        int64_t begin = chunk * grain;
        function(args, begin, min_i64(begin + grain, tiles));
        if (atomic_fetch_add(&pool->finished, 1) + 1 == n_chunks &&
            atomic_load(&pool->caller_sleeps)) {
            futex_wake(&pool->finished, 1);
        }
    }
}

static void *worker(void *user) {
    Pool *pool = user;
    for (;;) {
        uint32_t seen = atomic_load(&pool->epoch);
        if (atomic_load(&pool->stop)) return NULL;
        help(pool);
        for (int i = 0; i < SPIN && atomic_load(&pool->epoch) == seen; i++) relax();
        if (atomic_load(&pool->epoch) != seen) continue;
        atomic_fetch_add(&pool->sleepers, 1);
        futex_wait(&pool->epoch, seen); // returns at once if the epoch has changed
        atomic_fetch_sub(&pool->sleepers, 1);
    }
}

static void wait_finished(Pool *pool, uint32_t n_chunks) {
    for (int i = 0; i < SPIN; i++) {
        if (atomic_load(&pool->finished) == n_chunks) return;
        relax();
    }
    atomic_store(&pool->caller_sleeps, 1);
    for (;;) {
        uint32_t finished = atomic_load(&pool->finished);
        if (finished == n_chunks) break;
        futex_wait(&pool->finished, finished);
    }
    atomic_store(&pool->caller_sleeps, 0);
}

void pool_run(Pool *pool, PoolTile function, void *const *args, int64_t tiles) {
    if (tiles <= 0) return;
    if (tiles == 1 || !pool->n_workers) {
        function(args, 0, tiles);
        return;
    }
    int64_t grain = div_up(tiles, MAX_CHUNKS);
    uint32_t n_chunks = (uint32_t)div_up(tiles, grain);
    uint64_t generation = (uint64_t)++pool->generation << 32;
    atomic_store_explicit(&pool->ticket, generation | CLOSED, memory_order_release);
    atomic_store_explicit(&pool->function, function, memory_order_release);
    atomic_store_explicit(&pool->args, args, memory_order_release);
    atomic_store_explicit(&pool->tiles, tiles, memory_order_release);
    atomic_store_explicit(&pool->grain, grain, memory_order_release);
    atomic_store_explicit(&pool->n_chunks, n_chunks, memory_order_release);
    atomic_store(&pool->finished, 0);
    atomic_store_explicit(&pool->ticket, generation, memory_order_release);
    atomic_fetch_add(&pool->epoch, 1);
    if (atomic_load(&pool->sleepers)) {
        futex_wake(&pool->epoch, (int)min_i64(n_chunks - 1, pool->n_workers));
    }
    help(pool);
    wait_finished(pool, n_chunks);
}

int pool_threads(const Pool *pool) {
    return pool->threads;
}

static int usable_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

// Workers take no signals: handlers run on the threads of the program.
static int start_workers(Pool *pool) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = 0;
    while (!error && pool->n_workers < pool->threads - 1) {
        error = pthread_create(&pool->workers[pool->n_workers], NULL, worker, pool);
        if (!error) pool->n_workers++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

static void give_back(void *pool) {
    pool_destroy(pool);
}

Status pool_create(int threads, Pool **out) {
    *out = NULL;
    if (threads < 0 || threads > MAX_THREADS) {
        return status_fail(ERR_ARGUMENT, "threads: expected 1 to %d, or 0 for all cores, found %d",
                           MAX_THREADS, threads);
    }
    if (!threads) threads = (int)min_i64(usable_cores(), MAX_THREADS);
    Pool *pool = aligned_alloc(LINE, sizeof *pool);
    pthread_t *workers = calloc((size_t)threads, sizeof *workers);
    if (!pool || !workers) {
        free(pool);
        free(workers);
        return status_fail(ERR_MEMORY, "no memory for a pool of %d threads", threads);
    }
    memset(pool, 0, sizeof *pool);
    atomic_init(&pool->ticket, CLOSED);
    pool->threads = threads;
    pool->workers = workers;
    int error = start_workers(pool);
    if (error) {
        int started = pool->n_workers + 1;
        pool_destroy(pool);
        return status_fail(ERR_MEMORY,
                           "cannot start %d threads: %s after %d\n"
                           "  hint: ask for fewer threads",
                           threads, strerror(error), started);
    }
    memory_hold(&pool->held, give_back, pool);
    *out = pool;
    return OK;
}

void pool_destroy(Pool *pool) {
    if (!pool) return;
    memory_drop(&pool->held);
    atomic_store(&pool->stop, true);
    atomic_fetch_add(&pool->epoch, 1);
    futex_wake(&pool->epoch, pool->n_workers);
    for (int i = 0; i < pool->n_workers; i++) pthread_join(pool->workers[i], NULL);
    free(pool->workers);
    free(pool);
}
