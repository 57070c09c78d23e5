// SPDX-License-Identifier: Apache-2.0
// Checkpoints: what is saved comes back; damage of any byte, truncation, missing pieces and full
// disks are refused with a message and lose nothing.
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/train/helpers.h"

static const char *const files[] = { "weights.safetensors", "moment1.safetensors",
                                     "moment2.safetensors" };
static Plan *plan;
static Arena *arena;
static int64_t n_weights, n_trained;
static TrainMemory saved, loaded;

static int make(void **state) {
    (void)state;
    setenv("MOEC_LOG", "error", 1);
    arena = arena_create();
    plan = bigram_plan(8, 1, 1);
    plan->params[0].dims[0] = 3; // a small table, so that every byte can be damaged
    plan->params[0].dims[1] = 5;
    n_weights = plan->region_bytes[REGION_weights] / 4;
    n_trained = plan->n_trained;
    for (int m = 0; m < 2; m++) {
        TrainMemory *memory = m ? &loaded : &saved;
        memory->weights = ARENA_ARRAY(arena, float, n_weights);
        memory->moment1 = ARENA_ARRAY(arena, float, n_trained);
        memory->moment2 = ARENA_ARRAY(arena, float, n_trained);
    }
    for (int64_t i = 0; i < n_weights; i++)
        saved.weights[i] = (float)hash_normal(1, 0, (uint64_t)i);
    for (int64_t i = 0; i < n_trained; i++) {
        saved.moment1[i] = (float)hash_normal(1, 1, (uint64_t)i);
        saved.moment2[i] = (float)hash_normal(1, 2, (uint64_t)i);
    }
    return 0;
}

static int drop(void **state) {
    (void)state;
    plan_destroy(plan);
    arena_destroy(arena);
    return 0;
}

static void clear_loaded(void) {
    memset(loaded.weights, 0, (size_t)n_weights * 4);
    memset(loaded.moment1, 0, (size_t)n_trained * 4);
    memset(loaded.moment2, 0, (size_t)n_trained * 4);
}

// What `memory` holds of the parameters: compares or, without `with`, says whether all are zero.
static bool params_equal(const float *a, const float *b, bool states) {
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        if (param->is_state && !states) continue;
        int64_t n = 1;
        for (int d = 0; d < param->n_dims; d++) n *= param->dims[d];
        for (int64_t k = param->offset / 4; k < param->offset / 4 + n; k++)
            if (memcmp(&a[k], b ? &b[k] : &(float) { 0 }, 4)) return false;
    }
    return true;
}

static bool all_equal(void) {
    return params_equal(saved.weights, loaded.weights, true) &&
           params_equal(saved.moment1, loaded.moment1, false) &&
           params_equal(saved.moment2, loaded.moment2, false);
}

static bool all_zero(void) {
    return params_equal(loaded.weights, NULL, true) && params_equal(loaded.moment1, NULL, false) &&
           params_equal(loaded.moment2, NULL, false);
}

static void save_keeping(const char *run, int64_t step, CheckpointKeep keep) {
    TrainState state = { .step = step,
                         .tokens = step * 100,
                         .sample = step * 7,
                         .seconds = 0.1 * (double)step,
                         .lr = 1.0 / 3,
                         .skipped = 1 };
    json_t *extra = json_pack("{s:{s:s}}", "options", "data.files", "x");
    EXPECT_OK(checkpoint_save(run, plan, &saved, &state, extra, keep));
    json_decref(extra);
}

static void save_step(const char *run, int64_t step, int64_t keep) {
    save_keeping(run, step, (CheckpointKeep) { keep, 0 });
}

static Status load(const char *run, CheckpointInfo *info) {
    Status status = checkpoint_load(run, arena, plan, &loaded, info);
    if (status == OK) json_decref(info->manifest);
    return status;
}

static void comes_back(void **state) {
    (void)state;
    const char *run = scratch_folder();
    bool any = true;
    EXPECT_OK(checkpoint_any(run, &any));
    assert_false(any);
    CheckpointInfo info;
    expect_failure(load(run, &info), ERR_INPUT, "holds no checkpoint");
    save_step(run, 12, 2);
    EXPECT_OK(checkpoint_any(run, &any));
    assert_true(any);
    clear_loaded();
    EXPECT_OK(load(run, &info));
    assert_true(all_equal());
    assert_string_equal(info.name, "step-12");
    assert_true(info.state.step == 12 && info.state.tokens == 1200 && info.state.sample == 84 &&
                info.state.skipped == 1);
    assert_true(info.state.seconds == 0.1 * 12 && info.state.lr == 1.0 / 3);
    assert_true(hash_equal(info.plan, plan_hash(plan)));
    // Weights alone, as evaluation reads them.
    clear_loaded();
    TrainMemory weights = { .weights = loaded.weights };
    EXPECT_OK(checkpoint_load(run, arena, plan, &weights, &info));
    json_decref(info.manifest);
    assert_true(params_equal(saved.weights, loaded.weights, true) &&
                params_equal(loaded.moment1, NULL, false));
}

// Memory of its own that this process has, in bytes.
static int64_t data_now(void) {
    char line[128];
    long long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (kib < 0 && fgets(line, sizeof line, file)) sscanf(line, "VmData: %lld", &kib);
    fclose(file);
    assert_true(kib >= 0);
    return kib << 10;
}

// 48 MiB of parameters and moments are written from where they lie: less than 4 MiB more must do.
static void saving_takes_no_memory(void **state) {
    (void)state;
#ifdef MOEC_SANITIZE
    skip(); // whose allocators end the process when there is no more
#endif
    enum { SIDE = 2048, NUMBERS = SIDE * SIDE };
    const char *run = scratch_folder();
    Plan *small = plan;
    TrainMemory of_small = saved;
    plan = bigram_plan(8, 1, 1);
    plan->n_params = 1;
    plan->params[0].dims[0] = plan->params[0].dims[1] = SIDE;
    plan->n_trained = NUMBERS;
    float **regions[] = { &saved.weights, &saved.moment1, &saved.moment2 };
    for (int i = 0; i < COUNT_OF(regions); i++) {
        *regions[i] = malloc(NUMBERS * sizeof(float));
        assert_non_null(*regions[i]);
        for (int k = 0; k < NUMBERS; k++) (*regions[i])[k] = (float)k;
    }
    struct rlimit usual, tight;
    assert_int_equal(getrlimit(RLIMIT_DATA, &usual), 0);
    tight = usual;
    tight.rlim_cur = (rlim_t)(data_now() + (4 << 20));
    assert_int_equal(setrlimit(RLIMIT_DATA, &tight), 0);
    void *volatile more = malloc(8 << 20);
    assert_null(more); // the limit holds
    save_step(run, 1, 1);
    assert_int_equal(setrlimit(RLIMIT_DATA, &usual), 0);
    for (int i = 0; i < COUNT_OF(regions); i++) free(*regions[i]);
    plan_destroy(plan);
    plan = small;
    saved = of_small;
}

static void keeps_the_newest(void **state) {
    (void)state;
    const char *run = scratch_folder();
    for (int64_t step = 8; step <= 12; step++) save_step(run, step, 2);
    assert_false(file_exists(path_in(run, "checkpoints/step-10")));
    assert_true(file_exists(path_in(run, "checkpoints/step-11")) &&
                file_exists(path_in(run, "checkpoints/step-12")));
    // Saving again at an earlier step: what lay after it belongs to a future that was left.
    save_step(run, 11, 2);
    assert_true(file_exists(path_in(run, "checkpoints/step-11")));
    assert_false(file_exists(path_in(run, "checkpoints/step-12")));
    // What a killed save left is cleaned up by the next one.
    const char *left = path_in(run, "checkpoints/tmp-step-99");
    assert_int_equal(mkdir(left, 0755), 0);
    write_file(path_in(left, "weights.safetensors"), "x", 1);
    CheckpointInfo info;
    EXPECT_OK(load(run, &info)); // and is no checkpoint
    assert_string_equal(info.name, "step-11");
    save_step(run, 13, 2);
    assert_false(file_exists(left));
}

// Refused, with nothing changed in memory; `what` is only for the message.
static void expect_refused(const char *folder, const char *what, size_t at) {
    CheckpointInfo info;
    Status status = checkpoint_read(folder, arena, plan, &loaded, &info);
    if (status == OK) {
        print_error("%s, byte %zu: damage was accepted\n", what, at);
        json_decref(info.manifest);
    }
    assert_int_not_equal(status, OK);
    assert_true(strlen(status_message()) > 20);
}

static void every_byte_matters(void **state) {
    (void)state;
    const char *run = scratch_folder(), *folder = path_in(run, "checkpoints/step-1");
    save_step(run, 1, 1);
    clear_loaded();
    for (int f = 0; f < COUNT_OF(files); f++) {
        const char *path = path_in(folder, files[f]);
        size_t n;
        char *bytes = read_whole(path, &n);
        for (size_t at = 0; at < n; at++) {
            bytes[at] ^= (char)(1 << (at % 8));
            write_file(path, bytes, n);
            expect_refused(folder, files[f], at);
            bytes[at] ^= (char)(1 << (at % 8));
        }
        for (size_t cut = 0; cut < n; cut += cut < 64 ? 1 : 37) {
            write_file(path, bytes, cut);
            expect_refused(folder, files[f], cut);
        }
        write_file(path, bytes, n);
        char *longer = malloc(n + 1);
        memcpy(longer, bytes, n);
        longer[n] = 0;
        write_file(path, longer, n + 1);
        expect_refused(folder, files[f], n + 1);
        free(longer);
        unlink(path);
        expect_refused(folder, files[f], 0);
        write_file(path, bytes, n);
    }
    assert_true(all_zero());
    CheckpointInfo info;
    EXPECT_OK(load(run, &info));
    assert_true(all_equal());
}

static void every_byte_of_the_manifest_matters(void **state) {
    (void)state;
    const char *run = scratch_folder(), *folder = path_in(run, "checkpoints/step-1");
    save_step(run, 1, 1);
    const char *path = path_in(folder, "manifest.json");
    size_t n;
    char *bytes = read_whole(path, &n);
    json_t *original = json_loadb(bytes, n, 0, NULL);
    for (size_t at = 0; at < n; at++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[at] ^= (char)(1 << bit);
            write_file(path, bytes, n);
            CheckpointInfo info;
            if (checkpoint_read(folder, arena, plan, &loaded, &info) == OK) {
                json_object_set_new(info.manifest, "check",
                                    json_incref(json_object_get(original, "check")));
                assert_true(json_equal(info.manifest, original)); // white space for white space
                json_decref(info.manifest);
            }
            bytes[at] ^= (char)(1 << bit);
        }
    for (size_t cut = 0; cut + 1 < n; cut += 5) {
        write_file(path, bytes, cut);
        expect_refused(folder, "manifest", cut);
    }
    unlink(path);
    expect_refused(folder, "manifest", 0);
    // A version of the future, well formed.
    json_object_del(original, "check");
    json_object_set_new(original, "version", json_integer(2));
    EXPECT_OK(json_save(path, original));
    CheckpointInfo info;
    expect_failure(checkpoint_read(folder, arena, plan, &loaded, &info), ERR_VERSION,
                   "has version 2, expected 1");
    json_decref(original);
}

static void falls_back(void **state) {
    (void)state;
    const char *run = scratch_folder();
    for (int64_t step = 1; step <= 3; step++) save_step(run, step, 3);
    write_file(path_in(run, "checkpoints/step-3/moment2.safetensors"), "torn", 4);
    CheckpointInfo info;
    EXPECT_OK(load(run, &info));
    assert_string_equal(info.name, "step-2");
    unlink(path_in(run, "checkpoints/step-2/manifest.json"));
    EXPECT_OK(load(run, &info));
    assert_string_equal(info.name, "step-1");
    unlink(path_in(run, "checkpoints/step-1/weights.safetensors"));
    expect_failure(load(run, &info), ERR_FORMAT, "step-1/weights.safetensors");
    // `latest` chooses; without it, or with nonsense in it, the newest counts.
    save_step(run, 4, 9);
    save_step(run, 5, 9);
    write_file(path_in(run, "checkpoints/latest"), "step-4\n", 7);
    EXPECT_OK(load(run, &info));
    assert_string_equal(info.name, "step-4");
    write_file(path_in(run, "checkpoints/latest"), "step-x", 6);
    EXPECT_OK(load(run, &info));
    assert_string_equal(info.name, "step-5");
    unlink(path_in(run, "checkpoints/latest"));
    EXPECT_OK(load(run, &info));
    assert_string_equal(info.name, "step-5");
}

static void another_plan_is_told_apart(void **state) {
    (void)state;
    const char *run = scratch_folder(), *folder = path_in(run, "checkpoints/step-1");
    save_step(run, 1, 1);
    CheckpointInfo info;
    plan->params[0].dims[0] = 2;
    expect_failure(checkpoint_read(folder, arena, plan, &loaded, &info), ERR_FORMAT,
                   "tensor 'table' is [3,5], the plan expects [2,5]");
    plan->params[0].dims[0] = 3;
    plan->params[0].name = "tables";
    expect_failure(checkpoint_read(folder, arena, plan, &loaded, &info), ERR_FORMAT,
                   "lacks the tensor 'tables' of the plan");
    plan->params[0].name = "table";
    plan->n_params--; // the plan has no "seen"
    expect_failure(checkpoint_read(folder, arena, plan, &loaded, &info), ERR_FORMAT,
                   "weights.safetensors has 4 tensors, the plan expects 3");
    TrainMemory weights = { .weights = loaded.weights };
    EXPECT_OK(checkpoint_read(folder, arena, plan, &weights, &info)); // evaluation may need fewer
    json_decref(info.manifest);
    plan->n_params++;
    plan->params[1].dims[0] = 3; // another expert
    expect_failure(checkpoint_read(folder, arena, plan, &loaded, &info), ERR_FORMAT,
                   "lacks the tensor 'experts.w.expert.2'");
    plan->params[1].dims[0] = 2;
}

static void some_stay_for_good(void **state) {
    (void)state;
    const char *run = scratch_folder();
    for (int64_t step = 2; step <= 24; step += 2)
        save_keeping(run, step, (CheckpointKeep) { 2, 10 });
    for (int64_t step = 2; step <= 24; step += 2) {
        char name[64];
        snprintf(name, sizeof name, "checkpoints/step-%d", (int)step);
        assert_int_equal(file_exists(path_in(run, name)), step % 10 == 0 || step > 20);
    }
    save_keeping(run, 12, (CheckpointKeep) { 1, 0 }); // gone back to: what is later is no more
    assert_true(file_exists(path_in(run, "checkpoints/step-12")));
    assert_false(file_exists(path_in(run, "checkpoints/step-20")));
    assert_false(file_exists(path_in(run, "checkpoints/step-10")));
    assert_false(file_exists(path_in(run, "checkpoints/old-step-10")));
}

// A file-size limit stands for a full disk: write fails with EFBIG after so many bytes.
static void no_space(void **state) {
    (void)state;
    const char *run = scratch_folder();
    save_step(run, 1, 2);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit old, tight;
    getrlimit(RLIMIT_FSIZE, &old);
    const rlim_t limits[] = { 0, 5, 100, 200, 300, 400, 500 };
    for (int i = 0; i < COUNT_OF(limits); i++) {
        tight = (struct rlimit) { limits[i], old.rlim_max };
        setrlimit(RLIMIT_FSIZE, &tight);
        TrainState at = { .step = 2 };
        Status status = checkpoint_save(run, plan, &saved, &at, NULL, (CheckpointKeep){ 2, 0 });
        char *message = arena_strdup(arena, status_message());
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(status, ERR_IO);
        assert_non_null(strstr(message, "File too large"));
        assert_false(file_exists(path_in(run, "checkpoints/step-2")));
        assert_false(file_exists(path_in(run, "checkpoints/tmp-step-2")));
        clear_loaded();
        CheckpointInfo info;
        EXPECT_OK(load(run, &info));
        assert_true(all_equal());
        assert_int_equal(info.state.step, 1);
    }
}

/* safetensors on its own: no hash stands before the reader here -------------------------------- */

static void write_tensor_file(const char *path, const char *header, size_t data) {
    char bytes[4096] = { 0 };
    uint64_t length = round_up((int64_t)strlen(header), 4);
    memset(bytes + 8, ' ', length);
    memcpy(bytes + 8, header, strlen(header));
    memcpy(bytes, &length, 8);
    write_file(path, bytes, 8 + length + data);
}

static void wrong_headers(void **state) {
    (void)state;
    const char *path = path_in(scratch_folder(), "f.safetensors");
    static const struct { const char *header; size_t data; const char *message;
    } cases[] = {
        { "[]", 0, "its header is not an object" },
        { "{\"a\":1}", 0, "the entry of tensor 'a' is malformed" },
        { "{", 0, "its header is not JSON" },
        { "{\"a\":{},\"a\":{}}", 0, "its header is not JSON" },
        { "{\"__metadata__\":1}", 0, "its metadata is malformed" },
        { "{}", 4, "data follows its last tensor" },
        { "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
          "tensor 'a' is BF16, expected F32" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
          "has 4 bytes, expected 8 for its shape" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
          "impossible shape" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4,
          "impossible shape" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
          "impossible shape" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
          "has 9 dimensions" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 4,
          "lies outside the file's data" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4,
          "lies outside the file's data" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4,
          "lies outside the file's data" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
          "the entry of tensor 'a' is malformed" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
          "tensor 'a' does not follow the one before" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
          4, "does not follow the one before" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}", 8, "is not aligned" },
    };
    TensorFile file;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        write_tensor_file(path, cases[i].header, cases[i].data);
        expect_failure(tensors_open(path, arena, &file), ERR_FORMAT, cases[i].message);
    }
    const uint64_t lengths[] = { 9, 1000, UINT64_MAX, (uint64_t)1 << 63, UINT64_MAX - 7 };
    for (int i = 0; i < COUNT_OF(lengths); i++) {
        char bytes[16] = { 0 };
        memcpy(bytes, &lengths[i], 8);
        write_file(path, bytes, sizeof bytes);
        expect_failure(tensors_open(path, arena, &file), ERR_FORMAT,
                       "its header is longer than the file");
    }
    for (size_t n = 0; n < 8; n++) {
        write_file(path, "\0\0\0\0\0\0\0", n);
        expect_failure(tensors_open(path, arena, &file), ERR_FORMAT, "it is shorter than 8 bytes");
    }
}

static void tensors_in_any_order(void **state) {
    (void)state;
    const char *path = path_in(scratch_folder(), "f.safetensors");
    write_tensor_file(path, "{\"b\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[4,12]},"
                            "\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},"
                            "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 12);
    TensorFile file;
    EXPECT_OK(tensors_open(path, arena, &file));
    assert_int_equal(file.n_tensors, 3);
    assert_int_equal(tensors_find(&file, "a")->n_dims, 0);
    assert_int_equal(tensors_find(&file, "b")->dims[1], 2);
    assert_ptr_equal(tensors_find(&file, "b")->at, tensors_find(&file, "a")->at + 1);
    assert_null(tensors_find(&file, "c"));
    tensors_close(&file);
    // Names that JSON must escape survive.
    const float value = 3;
    Tensor odd = {
        .name = "a \"b\" \\ \t \xc3\xa9", .n_dims = 1, .dims = { 1 }, .at = &value, .bytes = 4
    };
    int64_t bytes;
    Hash hash;
    EXPECT_OK(write_tensors(path, &odd, 1));
    EXPECT_OK(tensors_hash(path, NULL, &bytes, &hash));
    EXPECT_OK(tensors_open(path, arena, &file));
    assert_int_equal(file.bytes, bytes);
    assert_true(hash_equal(hash, hash_bytes(file.map, file.bytes)));
    assert_true(tensors_find(&file, odd.name)->at[0] == 3);
    tensors_close(&file);
}

static void flipped_headers_never_crash(void **state) {
    (void)state;
    const char *path = path_in(scratch_folder(), "f.safetensors");
    const float values[6] = { 1, 2, 3, 4, 5, 6 };
    Tensor tensors[] = { { "one", 2, { 2, 2 }, values, 16, 0 },
                         { "two", 1, { 2 }, values + 4, 8, 0 } };
    EXPECT_OK(write_tensors(path, tensors, 2));
    size_t n;
    char *bytes = read_whole(path, &n);
    int refused = 0;
    for (size_t at = 0; at < n - 24; at++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[at] ^= (char)(1 << bit);
            write_file(path, bytes, n);
            TensorFile file;
            if (tensors_open(path, arena, &file) == OK) {
                double sum = 0; // all of it can be read
                for (int i = 0; i < file.n_tensors; i++)
                    for (int64_t k = 0; k < file.tensors[i].bytes / 4; k++)
                        sum += file.tensors[i].at[k];
                assert_true(sum == 21);
                tensors_close(&file);
            } else refused++;
            bytes[at] ^= (char)(1 << bit);
        }
    assert_true(refused > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back),
        cmocka_unit_test(saving_takes_no_memory),
        cmocka_unit_test(keeps_the_newest),
        cmocka_unit_test(every_byte_matters),
        cmocka_unit_test(every_byte_of_the_manifest_matters),
        cmocka_unit_test(falls_back),
        cmocka_unit_test(another_plan_is_told_apart),
        cmocka_unit_test(some_stay_for_good),
        cmocka_unit_test(no_space),
        cmocka_unit_test(wrong_headers),
        cmocka_unit_test(tensors_in_any_order),
        cmocka_unit_test(flipped_headers_never_crash),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, make, drop);
}
