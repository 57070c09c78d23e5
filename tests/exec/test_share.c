// SPDX-License-Identifier: Apache-2.0
// Ranks that compile together: every source is one rank's, those dealt are even, and all ranks have
// all functions, whether the cache passes them on or not.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "runtime/comm/comm.h"
#include "runtime/jit/jit.h"
#include "tests/plan/sample.h"

enum { MOST = 5, KEYS = 40, KERNELS = 12 };

static char folder[] = "/tmp/moec-test-share-XXXXXX";

static int set_up(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}

static int tear_down(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

typedef struct Rank {
    pthread_t thread;
    Comm *comm;
    uint64_t place;
    Hash keys[KEYS];
    int n;
    bool mine[KEYS];
    Plan *plan;
    int compiled;      // kernels that were here before others' came
    float sums[KERNELS];
    char message[256]; // of a failure
} Rank;

static Status gather(void *user, const void *from, void *to, int64_t bytes) {
    Comm *comm = ((Rank *)user)->comm;
    return comm->api->gather(comm, GROUP_world, from, to, bytes);
}

static Status agree(void *user, Status status) {
    return comm_agree(((Rank *)user)->comm, status);
}

static void pulse(void *user) {
    (void)user;
}

static JitShare share_of(Rank *rank) {
    return (JitShare){ .rank = rank->comm->rank, .n = rank->comm->n_ranks, .place = rank->place,
                       .cores = 1, .gather = gather, .agree = agree, .pulse = pulse, .user = rank };
}

typedef struct Start {
    Rank *rank;
    Status (*body)(Rank *rank);
} Start;

static void *run_one(void *user) {
    const Start *start = user;
    Rank *rank = start->rank;
    PlanMesh mesh = { .size = { 1, rank->comm->n_ranks, 1 } };
    Status status = comm_mesh(rank->comm, &mesh);
    if (status == OK) status = start->body(rank);
    if (status != OK) snprintf(rank->message, sizeof rank->message, "%s", status_message());
    comm_close(rank->comm);
    return NULL;
}

static void run_ranks(Rank *ranks, int n, Status (*body)(Rank *rank)) {
    Comm *comms[MOST];
    Start starts[MOST];
    comm_local(n, 60, comms);
    for (int i = 0; i < n; i++) {
        ranks[i].comm = comms[i];
        starts[i] = (Start){ &ranks[i], body };
        if (pthread_create(&ranks[i].thread, NULL, run_one, &starts[i])) fail_msg("no thread");
    }
    for (int i = 0; i < n; i++) pthread_join(ranks[i].thread, NULL);
}

/* Dealing -------------------------------------------------------------------------------------- */

static Status deal(Rank *rank) {
    Arena *arena = arena_create();
    JitShare share = share_of(rank);
    Status status = share_deal(&share, rank->keys, rank->n, arena, rank->mine);
    arena_destroy(arena);
    return status;
}

static Hash key_of(int i) {
    return (Hash){ hash_mix(1, (uint64_t)i, 0), hash_mix(2, (uint64_t)i, 0) };
}

static int mine_of(const Rank *ranks, int n, int key, uint64_t place) {
    int count = 0;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < ranks[r].n && ranks[r].place == place; i++)
            count += hash_equal(ranks[r].keys[i], key_of(key)) && ranks[r].mine[i];
    return count;
}

// Everybody lacks everything: parts of equal size.
static void deals_evenly(void **state) {
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        Rank ranks[MOST] = { 0 };
        for (int r = 0; r < n; r++)
            for (int i = 0; i < KEYS; i++) ranks[r].keys[ranks[r].n++] = key_of((i + 7 * r) % KEYS);
        run_ranks(ranks, n, deal);
        for (int i = 0; i < KEYS; i++) assert_int_equal(mine_of(ranks, n, i, 0), 1);
        for (int r = 0; r < n; r++) {
            int own = 0;
            for (int i = 0; i < KEYS; i++) own += ranks[r].mine[i];
            assert_true(own == KEYS / n || own == KEYS / n + 1);
        }
    }
}

// Stages lack some sources in common, some alone; a rank may lack none; another machine's cache is
// of no use here.
static void deals_among_those_who_lack(void **state) {
    (void)state;
    Rank ranks[MOST] = { 0 };
    ranks[3].place = ranks[4].place = 1;
    for (int r = 0; r < MOST; r++)
        for (int i = 0; i < KEYS && r != 2; i++)
            if (r == 4 || i % 2 == r % 2 || i < 8) ranks[r].keys[ranks[r].n++] = key_of(i);
    run_ranks(ranks, MOST, deal);
    for (int i = 0; i < KEYS; i++)
        for (uint64_t place = 0; place < 2; place++)
            assert_int_equal(mine_of(ranks, MOST, i, place), 1);
}

static void nothing_to_deal(void **state) {
    (void)state;
    Rank ranks[MOST] = { 0 };
    run_ranks(ranks, MOST, deal);
    for (int r = 0; r < MOST; r++) assert_string_equal(ranks[r].message, "");
}

/* Loading -------------------------------------------------------------------------------------- */

static Plan *adders(bool broken) {
    Plan *plan = plan_create();
    sample_source(plan, "typedef int int32_t;\ntypedef long long int64_t;\n");
    for (int i = 0; i < KERNELS; i++) {
        char entry[32], body[96];
        snprintf(entry, sizeof entry, "plus_%d", i);
        snprintf(body, sizeof body, "    x[0] += %s(float)%d; (void)tile_begin; (void)tile_end;",
                 broken && i == 3 ? "nonsense " : "", i);
        sample_kernel(plan, entry, "mut f32 x", body, 1);
    }
    return plan;
}

static void progress(void *user, int done, int total, int cached) {
    Rank *rank = user;
    if (done < total && !cached) rank->compiled = done;
}

static Status load(Rank *rank) {
    JitShare share = share_of(rank);
    Jit *jit;
    TRY(jit_load(rank->plan, progress, rank, &share, &jit));
    for (int i = 0; i < KERNELS; i++) {
        void *const args[] = { &rank->sums[i] };
        jit_function(jit, (uint32_t)i)(args, 0, 1);
    }
    jit_destroy(jit);
    return OK;
}

static void load_all(Rank *ranks, const char *cache, bool broken) {
    char path[96];
    snprintf(path, sizeof path, "%s/%s", folder, cache);
    setenv("MOEC_CACHE_DIR", path, 1);
    for (int r = 0; r < 3; r++) ranks[r] = (Rank){ .plan = adders(broken) };
    run_ranks(ranks, 3, load);
    for (int r = 0; r < 3; r++) plan_destroy(ranks[r].plan);
}

static void expect_sums(const Rank *ranks) {
    for (int r = 0; r < 3; r++) {
        assert_string_equal(ranks[r].message, "");
        for (int i = 0; i < KERNELS; i++) assert_true(ranks[r].sums[i] == (float)i);
    }
}

static void loads_what_others_compiled(void **state) {
    (void)state;
    Rank ranks[3];
    load_all(ranks, "cold", false);
    expect_sums(ranks);
    for (int r = 0; r < 3; r++) assert_int_equal(ranks[r].compiled, KERNELS / 3);
    load_all(ranks, "cold", false); // by now warm
    expect_sums(ranks);
}

static void loads_without_a_cache(void **state) {
    (void)state;
    char path[96];
    snprintf(path, sizeof path, "%s/file", folder);
    fclose(fopen(path, "w")); // no folder can be made in it
    setenv("MOEC_LOG", "error", 1);
    Rank ranks[3];
    load_all(ranks, "file/cache", false);
    expect_sums(ranks);
}

// All hear of the failure, whoever compiled.
static void a_source_that_does_not_compile(void **state) {
    (void)state;
    Rank ranks[3];
    load_all(ranks, "broken", true);
    for (int r = 0; r < 3; r++)
        if (!strstr(ranks[r].message, "refused generated code")) fail_msg("%s", ranks[r].message);
    assert_string_equal(ranks[0].message, ranks[2].message);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deals_evenly),
        cmocka_unit_test(deals_among_those_who_lack),
        cmocka_unit_test(nothing_to_deal),
        cmocka_unit_test(loads_what_others_compiled),
        cmocka_unit_test(loads_without_a_cache),
        cmocka_unit_test(a_source_that_does_not_compile),
    };
    return cmocka_run_group_tests_name("share", tests, set_up, tear_down);
}
