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

enum { CHECKPOINT_VERSION = 1 };
static const char *const file_names[CHECKPOINT_FILES] = { "weights.safetensors", "moment1.safetensors",
                                                 "moment2.safetensors" };

/* Ranks ---------------------------------------------------------------------------------------- */

// NULL where there is one.
static Comm *others(const TrainMemory *memory) {
    return memory->comm && memory->comm->n_ranks > 1 ? memory->comm : NULL;
}

static bool is_first(const TrainMemory *memory) {
    return !memory->comm || memory->comm->rank == 0;
}

static Status agree(const TrainMemory *memory, Status status) {
    return memory->comm ? comm_agree(memory->comm, status) : status;
}

// Files are dealt to ranks for what only one needs to do.
static bool is_mine(const TrainMemory *memory, int file) {
    return !memory->comm || memory->comm->rank == file % memory->comm->n_ranks;
}

// Of all stages.
static Status hash_plans(const Plan *plan, const TrainMemory *memory, Arena *arena, Hash *out) {
    *out = plan_hash(plan);
    int stages = memory->comm ? comm_members(memory->comm, GROUP_pp) : 1;
    if (stages == 1) return OK;
    Hash own = *out, *all = ARENA_ARRAY(arena, Hash, stages);
    TRY(memory->comm->api->gather(memory->comm, GROUP_pp, &own, all, sizeof own));
    *out = hash_bytes(all, sizeof own * (size_t)stages);
    return OK;
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

// A save under way.
typedef struct Saving {
    Arena *arena;
    const char *folder;   // of the checkpoints
    const char *made;     // where it is written
    const char *name;
    const TrainMemory *memory;
    Pieces *pieces;
    int64_t bytes[CHECKPOINT_FILES];
    Hash hashes[CHECKPOINT_FILES];
} Saving;

static const char *path_of(const Saving *s, int file) {
    return arena_printf(s->arena, "%s/%s", s->made, file_names[file]);
}

static json_t *manifest_of(const Plan *plan, Hash plans, const TrainState *state, const json_t *extra,
                           json_t *files) {
    char hex[33];
    hash_hex(plans, hex);
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

static json_t *list_files(const Saving *s) {
    json_t *files = json_array();
    for (int i = 0; files && i < CHECKPOINT_FILES; i++) {
        char hex[33];
        hash_hex(s->hashes[i], hex);
        json_array_append_new(files, json_pack("{s:s, s:I, s:s}", "name", file_names[i], "bytes",
                                               (json_int_t)s->bytes[i], "hash", hex));
    }
    return files;
}

// Rank 0's: an empty folder with files that have headers.
static Status make_files(const Saving *s) {
    TRY(file_make_dirs(s->folder));
    remove_folder(s->made);
    if (mkdir(s->made, 0755) < 0 && errno != EEXIST)
        return status_fail(ERR_IO, "cannot make the folder %s: %s", s->made, strerror(errno));
    for (int i = 0; i < CHECKPOINT_FILES; i++) {
        int n;
        const Tensor *tensors = pieces_tensors(s->pieces, i, &n);
        TRY(tensors_create(path_of(s, i), tensors, n));
    }
    return OK;
}

static Status fill_files(const Saving *s) {
    for (int i = 0; i < CHECKPOINT_FILES; i++) {
        int n, unused;
        const TensorPiece *pieces = pieces_list(s->pieces, s->memory, i, true, s->arena, &n);
        const Tensor *tensors = pieces_tensors(s->pieces, i, &unused);
        TRY(tensors_fill(path_of(s, i), tensors, pieces, n, others(s->memory)));
    }
    return OK;
}

static Status hash_files(Saving *s) {
    for (int i = 0; i < CHECKPOINT_FILES; i++)
        if (is_mine(s->memory, i))
            TRY(tensors_hash(path_of(s, i), others(s->memory), &s->bytes[i], &s->hashes[i]));
    return OK;
}

// Everybody's hashes to everybody.
static Status tell_hashes(Saving *s) {
    Comm *comm = others(s->memory);
    if (!comm) return OK;
    struct Files {
        int64_t bytes[CHECKPOINT_FILES];
        Hash hashes[CHECKPOINT_FILES];
    } own, *all = ARENA_ARRAY(s->arena, struct Files, comm->n_ranks);
    memcpy(own.bytes, s->bytes, sizeof own.bytes);
    memcpy(own.hashes, s->hashes, sizeof own.hashes);
    TRY(comm->api->gather(comm, GROUP_world, &own, all, sizeof own));
    for (int i = 0; i < CHECKPOINT_FILES; i++) {
        s->bytes[i] = all[i % comm->n_ranks].bytes[i];
        s->hashes[i] = all[i % comm->n_ranks].hashes[i];
    }
    return OK;
}

// Rank 0's: the manifest, then the name.
static Status complete(const Saving *s, const Plan *plan, Hash plans, const TrainState *state,
                       const json_t *extra) {
    json_t *manifest = manifest_of(plan, plans, state, extra, list_files(s));
    Status status = manifest ? json_save(arena_printf(s->arena, "%s/manifest.json", s->made), manifest)
                             : status_fail(ERR_MEMORY, "no memory for a manifest");
    json_decref(manifest);
    TRY(status);
    TRY(sync_folder(s->made));
    const char *final = arena_printf(s->arena, "%s/%s", s->folder, s->name),
               *old = arena_printf(s->arena, "%s/old-%s", s->folder, s->name);
    remove_folder(old);
    rename(final, old); // there is one when a run is resumed from before it
    if (rename(s->made, final) < 0)
        return status_fail(ERR_IO, "cannot rename %s: %s", s->made, strerror(errno));
    TRY(sync_folder(s->folder));
    const char *line = arena_printf(s->arena, "%s\n", s->name);
    return file_write_atomic(arena_printf(s->arena, "%s/latest", s->folder), line, strlen(line));
}

// A step that one rank may not get through ends with an agreement.
static Status save_together(Saving *s, const Plan *plan, const TrainState *state, const json_t *extra) {
    const TrainMemory *memory = s->memory;
    Hash plans;
    TRY(pieces_open(plan, memory->comm, s->arena, &s->pieces));
    TRY(hash_plans(plan, memory, s->arena, &plans));
    TRY(agree(memory, is_first(memory) ? make_files(s) : OK));
    TRY(agree(memory, fill_files(s)));
    TRY(agree(memory, hash_files(s)));
    TRY(tell_hashes(s));
    return agree(memory, is_first(memory) ? complete(s, plan, plans, state, extra) : OK);
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
    Saving saving = { .arena = arena, .memory = memory, .folder = steps_folder(arena, run) };
    saving.name = arena_printf(arena, "step-%lld", (long long)state->step);
    saving.made = arena_printf(arena, "%s/tmp-%s", saving.folder, saving.name);
    Status status = save_together(&saving, plan, state, extra);
    if (is_first(memory) && status == OK) prune(arena, saving.folder, state->step, keep);
    if (is_first(memory) && status != OK && status != ERR_RANK) remove_folder(saving.made);
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
static void say_alive(void *comm) {
    comm_at(comm, "reading a checkpoint");
}

static Status verify_file(const char *path, const char *name, const json_t *manifest,
                          const TensorFile *file, Comm *comm) {
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
        hash_hex(hash_long(file->map, file->bytes, say_alive, comm), hex);
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

typedef struct Loading {
    Arena *arena;
    const char *folder;
    const TrainMemory *memory;
    Pieces *pieces;
    int n_files;
    TensorFile files[CHECKPOINT_FILES];
} Loading;

// Changes nothing but *l and *out.
static Status check_folder(Loading *l, CheckpointInfo *out) {
    TRY(read_manifest(arena_printf(l->arena, "%s/manifest.json", l->folder), out));
    for (int i = 0; i < l->n_files; i++) {
        const char *path = arena_printf(l->arena, "%s/%s", l->folder, file_names[i]);
        TRY(tensors_open(path, l->arena, &l->files[i]));
        if (is_mine(l->memory, i))
            TRY(verify_file(path, file_names[i], out->manifest, &l->files[i], others(l->memory)));
        int n;
        const Tensor *wanted = pieces_tensors(l->pieces, i, &n);
        TRY(match_tensors(path, &l->files[i], wanted, n, l->memory->moment1));
    }
    return OK;
}

static void take_pieces(const Loading *l) {
    for (int i = 0; i < l->n_files; i++) {
        int n, unused;
        const TensorPiece *pieces = pieces_list(l->pieces, l->memory, i, false, l->arena, &n);
        const Tensor *tensors = pieces_tensors(l->pieces, i, &unused);
        for (int k = 0; k < n; k++) {
            const Tensor *found = tensors_find(&l->files[i], tensors[pieces[k].tensor].name);
            memcpy(pieces[k].memory, (const char *)found->at + pieces[k].at, (size_t)pieces[k].bytes);
            comm_at(others(l->memory), "reading a checkpoint");
        }
    }
}

static Status load_folder(Loading *l, const Plan *plan, CheckpointInfo *out) {
    TRY(pieces_open(plan, l->memory->comm, l->arena, &l->pieces));
    TRY(agree(l->memory, check_folder(l, out)));
    take_pieces(l);
    return OK;
}

Status checkpoint_read(const char *folder, Arena *arena, const Plan *plan,
                       const TrainMemory *memory, CheckpointInfo *out) {
    *out = (CheckpointInfo) { 0 };
    Loading loading = { .arena = arena, .folder = folder, .memory = memory,
                        .n_files = memory->moment1 ? CHECKPOINT_FILES : 1 };
    Status status = load_folder(&loading, plan, out);
    const char *slash = strrchr(folder, '/');
    out->name = arena_strdup(arena, slash ? slash + 1 : folder);
    for (int i = 0; i < CHECKPOINT_FILES; i++) tensors_close(&loading.files[i]);
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

// Steps to try, newest first.
static Status list_tries(const char *run, Arena *arena, Steps *out) {
    const char *folder = steps_folder(arena, run);
    TRY(list_steps(arena, folder, false, out));
    if (!out->n)
        return status_fail(
            ERR_INPUT,
            "%s holds no checkpoint\n  hint: expected %s/step-N, as 'moec train --out' makes it",
            run, folder);
    int64_t latest;
    int kept = 0;
    TRY(latest_step(arena, folder, out, &latest));
    for (int i = 0; i < out->n; i++)
        if (out->at[i] <= latest) out->at[kept++] = out->at[i];
    out->n = kept;
    return OK;
}

// Rank 0's, should others see more or fewer by now.
static Status share_steps(Comm *comm, Arena *arena, Steps *steps) {
    TRY(comm_first(comm, &steps->n, sizeof steps->n));
    int64_t *at = ARENA_ARRAY(arena, int64_t, steps->n + 1);
    if (comm->rank == 0) memcpy(at, steps->at, sizeof *at * (size_t)steps->n);
    steps->at = at;
    return comm_first(comm, at, (int64_t)sizeof *at * steps->n);
}

Status checkpoint_load(const char *run, Arena *arena, const Plan *plan, const TrainMemory *memory,
                       CheckpointInfo *out) {
    Steps steps = { 0 };
    TRY(agree(memory, is_first(memory) ? list_tries(run, arena, &steps) : OK));
    if (memory->comm) TRY(share_steps(memory->comm, arena, &steps));
    Status status = OK;
    for (int i = 0; i < steps.n; i++) {
        const char *path =
            arena_printf(arena, "%s/step-%lld", steps_folder(arena, run), (long long)steps.at[i]);
        status = checkpoint_read(path, arena, plan, memory, out);
        if (status == OK) return OK;
        if (status == ERR_MEMORY || status == ERR_RANK) break; // that says nothing of the checkpoint
        if (i + 1 < steps.n && is_first(memory)) log_warn("checkpoint passed over: %s", status_message());
    }
    return status_trail(status, __FILE__, __LINE__);
}
