// SPDX-License-Identifier: Apache-2.0
// Runs between measurements of their limit; memory as the executor gets it.
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/bench/bench.h"

enum { MAX_ROUNDS = 64 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median_of(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

Timing time_runs(Bench *bench, Limit limit, double work, double budget, int at_least,
                 void (*run)(void *user), void *user) {
    double seconds[MAX_ROUNDS], shares[MAX_ROUNDS];
    double begin = time_seconds(), before = limit_measure(bench, limit);
    Timing t = {.best = INFINITY};
    while (t.rounds < at_least ||
           (t.rounds < MAX_ROUNDS && time_seconds() - begin < budget)) {
        double start = time_seconds();
        run(user);
        double taken = time_seconds() - start, after = limit_measure(bench, limit);
        seconds[t.rounds] = taken;
        shares[t.rounds++] = 100 * work / taken / ((before + after) / 2);
        t.best = fmin(t.best, taken);
        t.mean += taken;
        before = after;
    }
    t.best_share = 100 * work / t.best / bench->best[limit];
    t.mean /= t.rounds;
    t.median = median_of(seconds, t.rounds);
    t.median_share = median_of(shares, t.rounds);
    return t;
}

void *map_memory(const Bench *bench, int64_t bytes) {
    void *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) give_up("no memory for %lld bytes of operands", (long long)bytes);
    madvise(at, (size_t)bytes, bench->huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return at;
}

void unmap_memory(void *at, int64_t bytes) { munmap(at, (size_t)bytes); }

void give_up(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fflush(stdout);
    fprintf(stderr, "moec-bench: error: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    exit(1);
}
