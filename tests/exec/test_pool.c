// SPDX-License-Identifier: Apache-2.0
// The thread pool: every tile once, for any number of threads and tiles, launch after launch.
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/device/pool.h"

// Counts per tile, without atomics: two runs of one tile at once are a race that a sanitizer sees.
static void count_tiles(void *const *args, int64_t tile_begin, int64_t tile_end) {
    int *counts = args[0];
    for (int64_t i = tile_begin; i < tile_end; i++) counts[i]++;
}

static void test_every_tile_once(void **state) {
    (void)state;
    static const int64_t tiles[] = { 0, 1, 2, 3, 5, 64, 1000 };
    for (int threads = 1; threads <= 4; threads++) {
        Pool *pool;
        assert_int_equal(pool_create(threads, &pool), OK);
        assert_int_equal(pool_threads(pool), threads);
        for (int t = 0; t < COUNT_OF(tiles); t++) {
            int counts[1001] = { 0 };
            void *const args[] = { counts };
            pool_run(pool, count_tiles, args, tiles[t]);
            for (int64_t i = 0; i < 1001; i++) assert_int_equal(counts[i], i < tiles[t]);
        }
        pool_destroy(pool);
    }
}

typedef struct Chain {
    int64_t n;
    const int64_t *from;
    int64_t *to;
} Chain;

// to[i] = from[i] + from[(i + 1) % n]: reads what other threads wrote in the launch before.
static void add_neighbour(void *const *args, int64_t tile_begin, int64_t tile_end) {
    const Chain *chain = args[0];
    for (int64_t i = tile_begin; i < tile_end; i++) {
        chain->to[i] = (chain->from[i] + chain->from[(i + 1) % chain->n]) % 1000003;
    }
}

static int64_t run_chain(int threads, int launches) {
    enum { MAX = 37 };
    int64_t a[MAX], b[MAX], sum = 0;
    for (int i = 0; i < MAX; i++) a[i] = i * i;
    Pool *pool;
    assert_int_equal(pool_create(threads, &pool), OK);
    for (int l = 0; l < launches; l++) {
        // The arguments change from launch to launch: a worker that is late must not see a mixture.
        Chain chain = { 1 + l % MAX, l % 2 ? b : a, l % 2 ? a : b };
        void *const args[] = { &chain };
        memcpy(chain.to, chain.from, sizeof a);
        pool_run(pool, add_neighbour, args, chain.n);
        if (l % 997 == 0) usleep(300); // long enough for workers to go to sleep
    }
    const int64_t *last = launches % 2 ? b : a;
    for (int i = 0; i < MAX; i++) sum = sum * 31 % 1000003 + last[i];
    pool_destroy(pool);
    return sum;
}

static void test_many_launches(void **state) {
    (void)state;
    int64_t expected = run_chain(1, 20000);
    assert_int_equal(run_chain(2, 20000), expected);
    assert_int_equal(run_chain(3, 20000), expected);
    assert_int_equal(run_chain(8, 5000), run_chain(1, 5000));
}

static void sum_range(void *const *args, int64_t tile_begin, int64_t tile_end) {
    atomic_fetch_add((_Atomic int64_t *)args[0], tile_end - tile_begin);
}

static void test_more_tiles_than_chunks(void **state) {
    (void)state;
    Pool *pool;
    assert_int_equal(pool_create(2, &pool), OK);
    static const int64_t tiles[] = { ((int64_t)1 << 22) + 5, ((int64_t)1 << 40) + 12345 };
    _Atomic int64_t sum = 0;
    void *const args[] = { (void *)&sum };
    pool_run(pool, sum_range, args, tiles[0]);
    assert_true(sum == tiles[0]);
    pool_destroy(pool);
    // One thread takes any number in one call.
    assert_int_equal(pool_create(1, &pool), OK);
    sum = 0;
    pool_run(pool, sum_range, args, tiles[1]);
    assert_true(sum == tiles[1]);
    pool_destroy(pool);
}

typedef struct Slow {
    _Atomic int running, most;
} Slow;

static void overlap(void *const *args, int64_t tile_begin, int64_t tile_end) {
    (void)tile_begin;
    (void)tile_end;
    Slow *slow = args[0];
    int now = atomic_fetch_add(&slow->running, 1) + 1, most = atomic_load(&slow->most);
    while (now > most && !atomic_compare_exchange_weak(&slow->most, &most, now)) {}
    usleep(2000);
    atomic_fetch_sub(&slow->running, 1);
}

// The caller and the workers do run at once, also when the caller has to sleep for the last tile.
static void test_threads_work_together(void **state) {
    (void)state;
    Pool *pool;
    assert_int_equal(pool_create(3, &pool), OK);
    Slow slow = { 0 };
    void *const args[] = { &slow };
    for (int i = 0; i < 20; i++) pool_run(pool, overlap, args, 7);
    assert_int_equal(slow.running, 0);
    assert_in_range(slow.most, 2, 3);
    pool_destroy(pool);
}

static void test_creation(void **state) {
    (void)state;
    Pool *pool = (Pool *)1;
    assert_int_equal(pool_create(-1, &pool), ERR_ARGUMENT);
    assert_null(pool);
    assert_int_equal(pool_create(100000, &pool), ERR_ARGUMENT);
    assert_non_null(strstr(status_message(), "threads: expected 1 to 1024"));
    assert_int_equal(pool_create(0, &pool), OK);
    assert_in_range(pool_threads(pool), 1, 1024);
    pool_destroy(pool);
    pool_destroy(NULL);
    for (int i = 0; i < 50; i++) { // destroyed while workers start, spin or sleep
        assert_int_equal(pool_create(4, &pool), OK);
        if (i % 3 == 0) usleep(200);
        pool_destroy(pool);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_tile_once),
        cmocka_unit_test(test_many_launches),
        cmocka_unit_test(test_more_tiles_than_chunks),
        cmocka_unit_test(test_threads_work_together),
        cmocka_unit_test(test_creation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
