// SPDX-License-Identifier: Apache-2.0
// Checkpoints of many ranks, as threads: what is saved under any layout has the bytes that one rank
// would save, and comes back under any other. The plans have parameters and buckets, nothing else.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/train/helpers.h"

enum { MOST = 8, EXPERTS = 4 };

// The model: stage 1 of two has the parameters marked so.
static const struct { const char *name; bool state, expert, second; int n_dims; int64_t dims[3];
} params[] = {
    { "table", false, false, false, 2, { 50, 3 } },
    { "layers.1.w", false, true, false, 3, { EXPERTS, 20, 5 } },
    { "layers.1.seen", true, false, false, 1, { 5 } },
    { "layers.1.gain", false, false, false, 1, { 7 } },
    { "layers.2.w", false, true, true, 2, { EXPERTS, 33 } },
    { "layers.2.tally", true, true, true, 2, { EXPERTS, 2 } },
    { "layers.2.gain", false, false, true, 1, { 300 } },
};

typedef struct Mesh { int pp, dp, ep; bool map; /* experts not in order */ } Mesh;
static const Mesh meshes[] = {
    { 1, 1, 1, false }, { 1, 2, 1, false }, { 1, 4, 1, false }, { 1, 2, 2, false }, { 1, 4, 2, true },
    { 1, 4, 4, true },  { 2, 1, 1, false }, { 2, 2, 2, true },  { 2, 4, 2, false },
};
static const int32_t owners[2][EXPERTS] = { { 1, 0, 1, 0 }, { 2, 0, 3, 1 } }; // of ep 2, 4

static int set_up(void **state) {
    (void)state;
    return setenv("MOEC_LOG", "error", 1);
}

/* A rank's plan and memory --------------------------------------------------------------------- */

typedef struct Rank {
    pthread_t thread;
    Mesh mesh;
    const char *run;
    int64_t step;
    bool load;
    Comm *comm;
    Arena *arena;
    Plan *plan;
    TrainMemory memory;
    Status status;
    char message[512];
} Rank;

// A bucket over every trained parameter of one kind. Returns the bytes of its shard.
static void add_bucket(Plan *plan, bool expert, PlanGroup group, int64_t *grads, int64_t *shards) {
    int64_t begin = *grads, at = begin, n = plan_group_size(plan, group);
    for (uint32_t i = 0; i < plan->n_params; i++) {
        PlanParam *param = &plan->params[i];
        if (param->is_state || param->per_expert != expert) continue;
        param->offset = -1;
        param->grad = at;
        at += round_up(plan_numbers(param) * 4, 64); // closer than buffers lie: parts begin anywhere
    }
    if (at == begin) return;
    PlanBucket *bucket = ARENA_PUSH(plan->arena, plan->buckets, plan->n_buckets, plan->cap_buckets);
    *bucket = (PlanBucket){ .group = (uint8_t)group, .offset = begin,
                            .bytes = round_up(at - begin, n * PLAN_GRAIN), .shard = *shards,
                            .weights = -1 };
    *grads += bucket->bytes;
    *shards += bucket->bytes / n;
}

static Plan *plan_of(Mesh mesh, int stage) {
    Plan *plan = plan_create();
    plan->model = "ranks";
    plan->mesh = (PlanMesh){ .size = { mesh.pp, mesh.dp / mesh.ep, mesh.ep }, .stage = stage };
    for (int state = 0; state < 2; state++)
        for (int i = 0; i < COUNT_OF(params); i++) {
            if (params[i].state != state || (mesh.pp == 2 && params[i].second != stage)) continue;
            PlanParam *to = ARENA_PUSH(plan->arena, plan->params, plan->n_params, plan->cap_params);
            *to = (PlanParam){ .name = params[i].name, .is_state = params[i].state,
                               .per_expert = params[i].expert, .n_dims = (uint8_t)params[i].n_dims,
                               .grad = -1, .number = i };
            memcpy(to->dims, params[i].dims, sizeof params[i].dims);
            if (to->per_expert && mesh.ep > 1) {
                to->experts = EXPERTS;
                to->dims[0] /= mesh.ep;
                if (mesh.map) to->owner = owners[mesh.ep == 4];
            }
        }
    if (stage == 1) // reads the other stage's table
        *ARENA_PUSH(plan->arena, plan->params, plan->n_params, plan->cap_params) = (PlanParam){
            .name = "table", .is_state = true, .n_dims = 2, .dims = { 50, 3 }, .grad = -1, .number = 0,
        };
    int64_t grads = 0, shards = 0, weights = 0;
    if (plan_ranks(plan) > 1) {
        add_bucket(plan, true, GROUP_edp, &grads, &shards);
        add_bucket(plan, false, GROUP_dp, &grads, &shards);
    }
    for (uint32_t i = 0; i < plan->n_params; i++) {
        PlanParam *param = &plan->params[i];
        if (param->offset < 0) continue;
        param->offset = weights;
        if (!param->is_state) param->grad = weights;
        weights += round_up(plan_numbers(param) * 4, PLAN_GRAIN);
    }
    plan->region_bytes[REGION_weights] = weights;
    plan->region_bytes[REGION_master] = shards;
    plan->region_bytes[REGION_moment1] = plan->region_bytes[REGION_moment2] = max_i64(weights, shards);
    return plan;
}

static float *numbers(Rank *rank, Region region) {
    return ARENA_ARRAY(rank->arena, float, rank->plan->region_bytes[region] / 4 + 1);
}

// Number i of the whole parameter in a file.
static float value_of(const char *name, int file, int64_t i) {
    return (float)hash_normal(hash_bytes(name, strlen(name)).low, (uint64_t)file, (uint64_t)i);
}

static bool visit_part(Rank *rank, const PlanParam *param, int file, bool check) {
    const PlanBucket *bucket = plan_bucket(rank->plan, param);
    PlanPart part =
        plan_part(rank->plan, param, bucket ? comm_member(rank->comm, (PlanGroup)bucket->group) : 0);
    float *base = file == 1   ? rank->memory.moment1
                  : file == 2 ? rank->memory.moment2
                  : bucket    ? rank->memory.master
                              : rank->memory.weights;
    for (int64_t i = 0; i < part.n; i++) {
        int64_t whole = plan_whole_number(param, comm_member(rank->comm, GROUP_ep), part.first + i);
        float value = value_of(param->name, file, whole);
        if (check && base[part.at / 4 + i] != value) return false;
        base[part.at / 4 + i] = value;
    }
    return true;
}

static Status visit(Rank *rank, bool check) {
    for (int file = 0; file < CHECKPOINT_FILES; file++)
        for (uint32_t i = 0; i < rank->plan->n_params; i++) {
            const PlanParam *param = &rank->plan->params[i];
            if (file && param->is_state) continue;
            if (!visit_part(rank, param, file, check))
                return status_fail(ERR_INTERNAL, "%s of file %d came back wrong", param->name, file);
        }
    return OK;
}

/* Saving and loading --------------------------------------------------------------------------- */

static Status work(Rank *rank) {
    TRY(comm_mesh(rank->comm, &rank->plan->mesh));
    if (rank->load) {
        CheckpointInfo info;
        TRY(checkpoint_load(rank->run, rank->arena, rank->plan, &rank->memory, &info));
        json_decref(info.manifest);
        return visit(rank, true);
    }
    TRY(visit(rank, false));
    TrainState state = { .step = rank->step };
    return checkpoint_save(rank->run, rank->plan, &rank->memory, &state, NULL,
                           (CheckpointKeep){ .newest = 100 });
}

static void *run_rank(void *user) {
    Rank *rank = user;
    rank->arena = arena_create();
    rank->plan = plan_of(rank->mesh, rank->comm->rank / rank->mesh.dp);
    rank->memory = (TrainMemory){ numbers(rank, REGION_weights), numbers(rank, REGION_moment1),
                                  numbers(rank, REGION_moment2), numbers(rank, REGION_master),
                                  rank->comm };
    rank->status = work(rank);
    if (rank->status != OK) snprintf(rank->message, sizeof rank->message, "%s", status_message());
    comm_close(rank->comm);
    plan_destroy(rank->plan);
    arena_destroy(rank->arena);
    return NULL;
}

static void run_ranks(Mesh mesh, const char *run, int64_t step, bool load, Rank *ranks) {
    Comm *comms[MOST];
    int n = mesh.pp * mesh.dp;
    comm_local(n, 60, comms);
    for (int i = 0; i < n; i++) {
        ranks[i] = (Rank){ .mesh = mesh, .run = run, .step = step, .load = load, .comm = comms[i] };
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
    }
    for (int i = 0; i < n; i++) pthread_join(ranks[i].thread, NULL);
}

static void expect_ranks(Mesh mesh, const char *run, int64_t step, bool load) {
    Rank ranks[MOST];
    run_ranks(mesh, run, step, load, ranks);
    for (int i = 0; i < mesh.pp * mesh.dp; i++)
        if (ranks[i].status != OK) fail_msg("rank %d of %d x %d, ep %d: %s", i, mesh.pp, mesh.dp,
                                            mesh.ep, ranks[i].message);
}

static char *file_of(const char *run, int64_t step, int file, size_t *n) {
    static const char *const names[] = { "weights", "moment1", "moment2" };
    char name[96];
    snprintf(name, sizeof name, "checkpoints/step-%lld/%s.safetensors", (long long)step, names[file]);
    return read_whole(path_in(run, name), n);
}

static void layouts_do_not_show(void **state) {
    (void)state;
    const char *run = scratch_folder();
    for (int i = 0; i < COUNT_OF(meshes); i++) {
        expect_ranks(meshes[i], run, i + 1, false);
        for (int file = 0; file < CHECKPOINT_FILES; file++) {
            size_t n, m;
            char *one = file_of(run, 1, file, &n), *many = file_of(run, i + 1, file, &m);
            assert_int_equal(n, m);
            assert_memory_equal(one, many, n);
        }
    }
}

static void any_layout_reads_any(void **state) {
    (void)state;
    const char *run = scratch_folder();
    for (int i = 0; i < COUNT_OF(meshes); i++) {
        expect_ranks(meshes[i], run, i + 1, false);
        for (int k = 0; k < COUNT_OF(meshes); k++) expect_ranks(meshes[k], run, 0, true);
    }
}

/* Failures ------------------------------------------------------------------------------------- */

// All pass over a damaged one together, whichever rank reads the damage.
static void damage_is_everybodys(void **state) {
    (void)state;
    const char *run = scratch_folder();
    const Mesh mesh = { 2, 2, 2, true };
    static const char *const names[] = { "manifest.json", "weights.safetensors", "moment1.safetensors",
                                         "moment2.safetensors" };
    expect_ranks(mesh, run, 1, false);
    for (int i = 0; i < COUNT_OF(names); i++) {
        expect_ranks(mesh, run, 2, false);
        char *path = path_in(path_in(run, "checkpoints/step-2"), names[i]);
        size_t n;
        char *bytes = read_whole(path, &n);
        bytes[n / 2] ^= 1;
        write_file(path, bytes, n);
        expect_ranks(mesh, run, 0, true); // step 1
    }
    Rank ranks[MOST];
    char *path = path_in(run, "checkpoints/step-1/moment1.safetensors");
    assert_int_equal(truncate(path, 100), 0);
    run_ranks(mesh, run, 0, true, ranks);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ranks[i].status, ERR_FORMAT);
        assert_string_equal(ranks[i].message, ranks[0].message);
    }
}

// A checkpoint of another model, or none.
static void refusals_are_everybodys(void **state) {
    (void)state;
    const char *run = scratch_folder();
    const Mesh mesh = { 1, 4, 2, false };
    Rank ranks[MOST];
    run_ranks(mesh, run, 0, true, ranks);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ranks[i].status, ERR_INPUT);
        if (!strstr(ranks[i].message, "holds no checkpoint")) fail_msg("%s", ranks[i].message);
    }
    // A file where the folder of checkpoints should be.
    write_file(path_in(run, "checkpoints"), "x", 1);
    run_ranks(mesh, run, 1, false, ranks);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ranks[i].status, ranks[0].status);
        assert_true(ranks[i].status != OK);
        assert_string_equal(ranks[i].message, ranks[0].message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_do_not_show),
        cmocka_unit_test(any_layout_reads_any),
        cmocka_unit_test(damage_is_everybodys),
        cmocka_unit_test(refusals_are_everybodys),
    };
    return cmocka_run_group_tests_name("ranks", tests, set_up, NULL);
}
