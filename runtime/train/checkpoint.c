// SPDX-License-Identifier: Apache-2.0
// Saves and loads checkpoints: which tensors, in which folder, in what order things reach disk.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/train/checkpoint.h"

enum { CHECKPOINT_VERSION = 1, N_FILES = 3 };
static const char *const file_names[N_FILES] = { "weights.safetensors", "moment1.safetensors",
                                                 "moment2.safetensors" };

/* Which tensors -------------------------------------------------------------------------------- */

// The entries of one file over `base`, the memory of weights offset 0. Moments: no states.
static Tensor *list_tensors(Arena *arena, const Plan *plan, const float *base, bool moments,
                            int *n) {
    int count = 0;
    for (uint32_t i = 0; i < plan->n_params; i++)
        count += plan->params[i].per_expert ? (int)plan->params[i].dims[0] : 1;
    Tensor *tensors = ARENA_ARRAY(arena, Tensor, count + 1);
    *n = 0;
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        if (moments && param->is_state) continue;
        int skip = param->per_expert ? 1 : 0, parts = skip ? (int)param->dims[0] : 1;
        int64_t numbers = 1;
        for (int d = skip; d < param->n_dims; d++) numbers *= param->dims[d];
        for (int e = 0; e < parts; e++) {
            Tensor *tensor = &tensors[(*n)++];
            tensor->name = skip ? arena_printf(arena, "%s.expert.%d", param->name, e) : param->name;
            tensor->n_dims = param->n_dims - skip;
            memcpy(tensor->dims, param->dims + skip, sizeof *param->dims * (size_t)tensor->n_dims);
            tensor->bytes = numbers * 4;
            tensor->at = base + param->offset / 4 + e * numbers;
        }
    }
    return tensors;
}

static float *memory_of(const TrainMemory *memory, int file) {
    return file == 0 ? memory->weights : file == 1 ? memory->moment1 : memory->moment2;
}

/* Folders -------------------------------------------------------------------------------------- */

static char *steps_folder(Arena *arena, const char *run) {
    return arena_printf(arena, "%s/checkpoints", run);
}

static Status sync_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return status_fail(ERR_IO, "cannot open the folder %s: %s", path, strerror(errno));
    int result = fsync(fd), error = errno;
    close(fd);
    // Some file systems cannot sync a folder and say EINVAL; their renames are as safe as they get.
    if (result < 0 && error != EINVAL)
        return status_fail(ERR_IO, "cannot sync the folder %s: %s", path, strerror(error));
    return OK;
}

// A checkpoint's folder and the files in it, no deeper.
static void remove_folder(const char *path) {
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    rmdir(path);
}

// The step of a folder's name, -1 if it is none.
static int64_t step_of(const char *name) {
    if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9') return -1;
    char *end;
    errno = 0;
    long long step = strtoll(name + 5, &end, 10);
    return errno || *end ? -1 : step;
}

static int falling(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a < b) - (a > b);
}

static void close_folder(void *dir) {
    closedir(dir);
}

typedef struct Steps {
    int64_t *at;
    int n, cap;
} Steps;

// Steps with a checkpoint, newest first; none where there is no folder. Leftovers of killed saves
// are removed if `clean`.
static Status list_steps(Arena *arena, const char *folder, bool clean, Steps *out) {
    *out = (Steps){ 0 };
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOENT) return OK;
    if (!dir)
        return status_fail(status_errno(errno), "cannot read the folder %s: %s", folder,
                           strerror(errno));
    Held held;
    memory_hold(&held, close_folder, dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        int64_t step = step_of(entry->d_name);
        if (step >= 0) *ARENA_PUSH(arena, out->at, out->n, out->cap) = step;
        else if (clean &&
                 (!strncmp(entry->d_name, "tmp-", 4) || !strncmp(entry->d_name, "old-", 4)))
            remove_folder(arena_printf(arena, "%s/%s", folder, entry->d_name));
    }
    memory_drop(&held);
    closedir(dir);
    if (out->n) qsort(out->at, (size_t)out->n, sizeof *out->at, falling);
    return OK;
}

Status checkpoint_any(const char *run, bool *any) {
    Arena *arena = arena_create();
    Steps steps;
    Status status = list_steps(arena, steps_folder(arena, run), false, &steps);
    *any = steps.n > 0;
    arena_destroy(arena);
    return status;
}

/* Saving --------------------------------------------------------------------------------------- */

static json_t *manifest_of(const Plan *plan, const TrainState *state, const json_t *extra,
                           json_t *files) {
    char hex[33];
    hash_hex(plan_hash(plan), hex);
    json_t *manifest =
        json_pack("{s:s, s:i, s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:I, s:o}", "format",
                  "moec checkpoint", "version", CHECKPOINT_VERSION, "model", plan->model, "plan",
                  hex, "step", (json_int_t)state->step, "tokens", (json_int_t)state->tokens,
                  "sample", (json_int_t)state->sample, "seconds", state->seconds, "lr", state->lr,
                  "skipped", (json_int_t)state->skipped, "files", files);
    if (manifest && extra && json_object_update_missing(manifest, (json_t *)(uintptr_t)extra)) {
        json_decref(manifest);
        return NULL;
    }
    return manifest;
}

// Everything of a checkpoint into the folder `path`.
static Status write_folder(Arena *arena, const char *path, const Plan *plan,
                           const TrainMemory *memory, const TrainState *state,
                           const json_t *extra) {
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return status_fail(ERR_IO, "cannot make the folder %s: %s", path, strerror(errno));
    json_t *files = json_array();
    Status status = OK;
    for (int i = 0; i < N_FILES; i++) {
        int n;
        Tensor *tensors = list_tensors(arena, plan, memory_of(memory, i), i > 0, &n);
        uint64_t bytes;
        Hash hash;
        TRY_GOTO(tensors_write(arena_printf(arena, "%s/%s", path, file_names[i]), tensors, n,
                               &bytes, &hash),
                 end);
        char hex[33];
        hash_hex(hash, hex);
        json_array_append_new(files, json_pack("{s:s, s:I, s:s}", "name", file_names[i], "bytes",
                                               (json_int_t)bytes, "hash", hex));
    }
    json_t *manifest = manifest_of(plan, state, extra, json_incref(files));
    status = manifest ? json_save(arena_printf(arena, "%s/manifest.json", path), manifest)
                      : status_fail(ERR_MEMORY, "no memory for a manifest");
    json_decref(manifest);
    if (status == OK) status = sync_folder(path);
end:
    json_decref(files);
    return status;
}

// Removes what is not to stay; a step past this one is of a future left. A folder loses its name
// before its files, so that one named step-N is whole. What cannot be removed stays until the next
// save.
static void prune(Arena *arena, const char *folder, int64_t step, CheckpointKeep keep) {
    Steps steps;
    if (list_steps(arena, folder, true, &steps) != OK) return;
    int64_t newest = 0;
    for (int i = 0; i < steps.n; i++) {
        int64_t at = steps.at[i];
        bool stays = newest < keep.newest || (keep.every && at % keep.every == 0);
        if (at <= step && stays) {
            newest++;
            continue;
        }
        const char *path = arena_printf(arena, "%s/step-%lld", folder, (long long)at);
        const char *old = arena_printf(arena, "%s/old-step-%lld", folder, (long long)at);
        if (rename(path, old) == 0) remove_folder(old);
    }
}

Status checkpoint_save(const char *run, const Plan *plan, const TrainMemory *memory,
                       const TrainState *state, const json_t *extra, CheckpointKeep keep) {
    Arena *arena = arena_create();
    const char *folder = steps_folder(arena, run),
               *name = arena_printf(arena, "step-%lld", (long long)state->step);
    const char *made = arena_printf(arena, "%s/tmp-%s", folder, name);
    const char *final = arena_printf(arena, "%s/%s", folder, name),
               *old = arena_printf(arena, "%s/old-%s", folder, name);
    Status status;
    TRY_GOTO(file_make_dirs(folder), end);
    remove_folder(made);
    status = write_folder(arena, made, plan, memory, state, extra);
    if (status != OK) {
        remove_folder(made);
        goto end;
    }
    remove_folder(old);
    rename(final, old); // there is one when a run is resumed from before it
    if (rename(made, final) < 0) {
        status = status_fail(ERR_IO, "cannot rename %s: %s", made, strerror(errno));
        goto end;
    }
    TRY_GOTO(sync_folder(folder), end);
    const char *line = arena_printf(arena, "%s\n", name);
    TRY_GOTO(file_write_atomic(arena_printf(arena, "%s/latest", folder), line, strlen(line)), end);
    prune(arena, folder, state->step, keep);
end:
    arena_destroy(arena);
    return status;
}

/* Loading -------------------------------------------------------------------------------------- */

static void shape_text(const Tensor *tensor, Text *out) {
    text_add(out, "[");
    for (int d = 0; d < tensor->n_dims; d++)
        text_printf(out, "%s%lld", d ? "," : "", (long long)tensor->dims[d]);
    text_add(out, "]");
}

static Status match_tensors(const char *path, const TensorFile *file, const Tensor *wanted, int n,
                            bool exact) {
    for (int i = 0; i < n; i++) {
        const Tensor *found = tensors_find(file, wanted[i].name);
        if (!found)
            return status_fail(ERR_FORMAT, "%s lacks the tensor '%s' of the plan", path,
                               wanted[i].name);
        if (found->n_dims == wanted[i].n_dims &&
            !memcmp(found->dims, wanted[i].dims, sizeof *found->dims * (size_t)found->n_dims))
            continue;
        Text text = { 0 };
        shape_text(found, &text);
        text_add(&text, ", the plan expects ");
        shape_text(&wanted[i], &text);
        Status status = status_fail(ERR_FORMAT, "%s: tensor '%s' is %s", path, wanted[i].name,
                                    text_cstr(&text));
        text_finish(&text);
        return status;
    }
    if (exact && file->n_tensors != n)
        return status_fail(ERR_FORMAT, "%s has %d tensors, the plan expects %d", path,
                           file->n_tensors, n);
    return OK;
}

// Size and hash of one file as its manifest has them.
static Status verify_file(const char *path, const char *name, const json_t *manifest,
                          const TensorFile *file) {
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(manifest, "files"), i, entry) {
        const char *listed = json_string_value(json_object_get(entry, "name"));
        if (!listed || strcmp(listed, name)) continue;
        int64_t bytes = json_integer_value(json_object_get(entry, "bytes"));
        if (bytes != (int64_t)file->bytes)
            return status_fail(
                ERR_FORMAT, "%s has %zu bytes, its manifest says %lld: it is truncated or damaged",
                path, file->bytes, (long long)bytes);
        char hex[33];
        hash_hex(hash_bytes(file->map, file->bytes), hex);
        const char *hash = json_string_value(json_object_get(entry, "hash"));
        if (!hash || strcmp(hash, hex))
            return status_fail(ERR_FORMAT,
                               "%s does not match the hash in its manifest: it is damaged", path);
        return OK;
    }
    return status_fail(ERR_FORMAT, "%s is not listed in its manifest", path);
}

static bool get_int(const json_t *manifest, const char *key, int64_t *out) {
    const json_t *value = json_object_get(manifest, key);
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= 0;
}

static Status read_manifest(const char *path, CheckpointInfo *out) {
    TRY(json_load_checked(path, "manifest", &out->manifest));
    const json_t *m = out->manifest;
    const char *format = json_string_value(json_object_get(m, "format"));
    if (!format || strcmp(format, "moec checkpoint"))
        return status_fail(ERR_FORMAT, "%s is not the manifest of a checkpoint", path);
    int64_t version = json_integer_value(json_object_get(m, "version"));
    if (version != CHECKPOINT_VERSION)
        return status_fail(ERR_VERSION, "%s has version %lld, expected %d", path,
                           (long long)version, CHECKPOINT_VERSION);
    TrainState *state = &out->state;
    const char *plan = json_string_value(json_object_get(m, "plan"));
    if (!get_int(m, "step", &state->step) || !get_int(m, "tokens", &state->tokens) ||
        !get_int(m, "sample", &state->sample) || !get_int(m, "skipped", &state->skipped) || !plan ||
        !hash_parse(plan, strlen(plan), &out->plan))
        return status_fail(ERR_FORMAT, "%s lacks a field: step, tokens, sample, skipped or plan",
                           path);
    state->seconds = json_number_value(json_object_get(m, "seconds"));
    state->lr = json_number_value(json_object_get(m, "lr"));
    return OK;
}

Status checkpoint_read(const char *folder, Arena *arena, const Plan *plan,
                       const TrainMemory *memory, CheckpointInfo *out) {
    *out = (CheckpointInfo) { 0 };
    TensorFile files[N_FILES] = { 0 };
    Tensor *wanted[N_FILES];
    int n_wanted[N_FILES], n_files = memory->moment1 ? N_FILES : 1;
    Status status;
    TRY_GOTO(read_manifest(arena_printf(arena, "%s/manifest.json", folder), out), end);
    for (int i = 0; i < n_files; i++) {
        const char *path = arena_printf(arena, "%s/%s", folder, file_names[i]);
        TRY_GOTO(tensors_open(path, arena, &files[i]), end);
        TRY_GOTO(verify_file(path, file_names[i], out->manifest, &files[i]), end);
        wanted[i] = list_tensors(arena, plan, memory_of(memory, i), i > 0, &n_wanted[i]);
        TRY_GOTO(match_tensors(path, &files[i], wanted[i], n_wanted[i], memory->moment1), end);
    }
    for (int i = 0; i < n_files; i++)
        for (int k = 0; k < n_wanted[i]; k++)
            memcpy((void *)(uintptr_t)wanted[i][k].at,
                   tensors_find(&files[i], wanted[i][k].name)->at, (size_t)wanted[i][k].bytes);
    const char *slash = strrchr(folder, '/');
    out->name = arena_strdup(arena, slash ? slash + 1 : folder);
end:
    for (int i = 0; i < N_FILES; i++) tensors_close(&files[i]);
    if (status != OK) {
        json_decref(out->manifest);
        out->manifest = NULL;
    }
    return status;
}

// The step `latest` names; the newest of all if it cannot be read or its checkpoint is gone.
static Status latest_step(Arena *arena, const char *folder, const Steps *steps, int64_t *out) {
    char *text;
    size_t bytes;
    *out = steps->at[0];
    Status status = file_read(arena_printf(arena, "%s/latest", folder), arena, &text, &bytes);
    if (status != OK) return status == ERR_MEMORY ? status : OK;
    text[strcspn(text, "\n")] = 0;
    for (int i = 0; i < steps->n; i++)
        if (steps->at[i] == step_of(text)) *out = steps->at[i];
    return OK;
}

Status checkpoint_load(const char *run, Arena *arena, const Plan *plan, const TrainMemory *memory,
                       CheckpointInfo *out) {
    const char *folder = steps_folder(arena, run);
    Steps steps;
    TRY(list_steps(arena, folder, false, &steps));
    if (!steps.n)
        return status_fail(
            ERR_INPUT,
            "%s holds no checkpoint\n  hint: expected %s/step-N, as 'moec train --out' makes it",
            run, folder);
    int64_t latest;
    TRY(latest_step(arena, folder, &steps, &latest));
    Status status = OK;
    for (int i = 0; i < steps.n; i++) {
        if (steps.at[i] > latest) continue;
        const char *path = arena_printf(arena, "%s/step-%lld", folder, (long long)steps.at[i]);
        status = checkpoint_read(path, arena, plan, memory, out);
        if (status == OK) return OK;
        if (status == ERR_MEMORY) break; // that says nothing of the checkpoint
        bool more = i + 1 < steps.n;
        if (more) log_warn("checkpoint passed over: %s", status_message());
    }
    return status_trail(status, __FILE__, __LINE__);
}
