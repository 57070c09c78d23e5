// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for what is read back from a run's folder: a safetensors file, a manifest (as it
// is, and signed anew so that edits get past its hash), and a record of options. What a reader
// accepts must lie inside the file. Build with -DMOEC_FUZZ=ON (clang), run
//     fuzz_checkpoint -max_len=4096 -dict=tests/fuzz/json.dict tests/fuzz/corpus/checkpoint
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/train/checkpoint.h"
#include "runtime/train/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *folder;       // of a checkpoint, in memory
static Plan *plan;

static void remove_folder(void) {
    static const char *const names[] = { "weights.safetensors", "manifest.json" };
    char path[256];
    for (int i = 0; i < COUNT_OF(names); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void set_up(void) {
    static char path[] = "/dev/shm/moec-fuzz-XXXXXX";
    setenv("MOEC_LOG", "error", 1);
    folder = mkdtemp(path);
    if (!folder) abort();
    atexit(remove_folder);
    plan = plan_create();
    plan->model = "fuzz";
    *ARENA_PUSH(plan->arena, plan->params, plan->n_params, plan->cap_params) =
        (PlanParam) { .name = "a", .n_dims = 1, .dims = { 2 } };
    static float numbers[2];
    Tensor tensor = { .name = "a", .n_dims = 1, .dims = { 2 }, .bytes = sizeof numbers };
    TensorPiece piece = { .bytes = sizeof numbers, .memory = numbers };
    char name[256];
    snprintf(name, sizeof name, "%s/weights.safetensors", folder);
    if (tensors_create(name, &tensor, 1) != OK || tensors_fill(name, &tensor, &piece, 1, NULL) != OK)
        abort();
}

static void try_tensors(const char *path, Arena *arena) {
    TensorFile file;
    if (tensors_open(path, arena, &file) != OK) return;
    uint32_t sum = 0;
    for (int i = 0; i < file.n_tensors; i++) {
        const Tensor *tensor = &file.tensors[i];
        const uint8_t *at = (const uint8_t *)tensor->at;
        if (at < file.map || at + tensor->bytes > file.map + file.bytes) abort();
        for (int64_t k = 0; k < tensor->bytes; k++) sum += at[k];
        if (tensor->bytes && tensors_find(&file, tensor->name)->bytes < 0) abort();
    }
    tensors_close(&file);
    (void)sum;
}

static void try_manifest(const json_t *document, Arena *arena) {
    char path[256];
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    if (json_save(path, document) != OK) return; // a string that is not UTF-8
    float weights[2];
    TrainMemory memory = { .weights = weights };
    CheckpointInfo info;
    if (checkpoint_read(folder, arena, plan, &memory, &info) != OK) return;
    if (info.state.step < 0 || info.state.sample < 0 || info.state.tokens < 0) abort();
    json_decref(info.manifest);
}

static void try_record(const json_t *document) {
    Options *options = options_create();
    if (options_read_record(options, document, "record") == OK) {
        json_t *again = options_record(options);
        if (!again) abort();
        json_decref(again);
    }
    options_destroy(options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!folder) set_up();
    Arena *arena = arena_create();
    char path[64];
    int fd = memfd_create("input", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    try_tensors(path, arena);
    json_t *document;
    if (json_load_checked(path, "manifest", &document) == OK) json_decref(document);
    close(fd);
    document = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(document)) {
        try_record(document);
        json_object_del(document, "check");
        try_manifest(document, arena);
    }
    json_decref(document);
    arena_destroy(arena);
    return 0;
}
