// SPDX-License-Identifier: Apache-2.0
// The folder of a run: what is written once when it starts, and the lock.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/train/train.h"

enum { PATH_BYTES = 4096 };

static Status join(char out[PATH_BYTES], const char *run, const char *name) {
    int n = snprintf(out, PATH_BYTES, "%s/%s", run, name);
    return n < PATH_BYTES ? OK : status_fail(ERR_ARGUMENT, "path too long: %s/%s", run, name);
}

static Status write_text(const char *run, const char *name, const char *text) {
    char path[PATH_BYTES];
    TRY(join(path, run, name));
    return file_write_atomic(path, text, strlen(text));
}

static Status write_plan(const char *run, const char *name, const Plan *plan) {
    Text text = { 0 };
    plan_print(plan, &text);
    Status status = write_text(run, name, text_cstr(&text));
    text_finish(&text);
    return status;
}

Status run_plans(Comm *comm, const Plan *plan, Arena *arena, const char **out) {
    Text text = { 0 };
    char **texts = NULL;
    plan_print(plan, &text);
    Status status = comm_texts(comm, GROUP_pp, text_cstr(&text), arena, &texts);
    text.bytes = 0;
    for (int stage = 0; status == OK && stage < comm_members(comm, GROUP_pp); stage++)
        text_add(&text, texts[stage]);
    *out = arena_strndup(arena, text.at, text.bytes);
    text_finish(&text);
    return status;
}

Status run_write_plans(const char *run, const char *text) {
    return write_text(run, "plan.txt", text);
}

static Status write_file(const char *run, const RunFile *file) {
    char path[PATH_BYTES];
    TRY(join(path, run, file->name));
    char *slash = strrchr(path, '/');
    *slash = 0;
    Status status = file_make_dirs(path);
    *slash = '/';
    TRY(status);
    return file_write_atomic(path, file->text, file->bytes);
}

// run.json without its options, which change.
static json_t *record_of(const RunSource *source, const Options *options) {
    char hex[33];
    hash_hex(plan_hash(source->plan), hex);
    json_t *origin =
        source->origin ? json_incref((json_t *)(uintptr_t)source->origin) : json_object();
    json_t *settings = options_record(options);
    if (!settings) {
        json_decref(origin);
        return NULL;
    }
    return json_pack("{s:s, s:i, s:s, s:s, s:s, s:o, s:o}", "format", "moec run", "version", 1,
                     "moec", MOEC_VERSION, "model", source->plan->model, "plan", hex, "origin",
                     origin, "options", settings);
}

static Status write_record(const char *run, const json_t *record) {
    char path[PATH_BYTES];
    TRY(join(path, run, "run.json"));
    return json_save(path, record);
}

/* A new run ------------------------------------------------------------------------------------ */

static Status write_run(const char *run, const RunSource *source, const Options *options) {
    TRY(file_make_dirs(run));
    if (source->plans) TRY(run_write_plans(run, source->plans));
    else TRY(write_plan(run, "plan.txt", source->plan));
    if (source->sample_plan) TRY(write_plan(run, "plan-sample.txt", source->sample_plan));
    for (int i = 0; i < source->n_files; i++) TRY(write_file(run, &source->files[i]));
    json_t *record = record_of(source, options);
    if (!record)
        return status_fail(
            ERR_ARGUMENT,
            "the run cannot be recorded\n  hint: a file name that is not UTF-8 has no "
            "place in run.json");
    Status status = write_record(run, record); // last: its presence makes the folder a run
    json_decref(record);
    return status;
}

RunBefore run_before(const char *run) {
    RunBefore before = { 0 };
    size_t n = strlen(run);
    for (size_t i = 1; i <= n && i < PATH_BYTES; i++) {
        char part[PATH_BYTES];
        if (run[i] != '/' && run[i] != 0) continue;
        memcpy(part, run, i);
        part[i] = 0;
        if (file_exists(part)) before.there = i;
    }
    before.whole = before.there == n;
    return before;
}

static int remove_any(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path) && errno != ENOENT;
}

// The file, and folders above it within the run that it leaves empty.
static void remove_file(const char *run, const char *name) {
    char path[PATH_BYTES];
    if (join(path, run, name) != OK || unlink(path) != 0) return;
    for (char *slash = strrchr(path, '/'); slash && slash > path + strlen(run); slash = strrchr(path, '/')) {
        *slash = 0;
        if (rmdir(path) != 0) return;
    }
}

void run_forget(const char *run, const RunSource *source, const RunBefore *before) {
    static const char *const names[] = { "run.json", "plan.txt", "plan-sample.txt", "ranks.board", "lock" };
    for (int i = 0; before->whole && i < COUNT_OF(names); i++) remove_file(run, names[i]);
    for (int i = 0; before->whole && i < source->n_files; i++) remove_file(run, source->files[i].name);
    if (before->whole) return;
    nftw(run, remove_any, 16, FTW_DEPTH | FTW_PHYS);
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s", run);
    for (size_t n = strlen(path); n > before->there; n--)
        if (path[n] == '/' || path[n] == 0) path[n] = 0, rmdir(path);
}

Status run_create(const char *run, const RunSource *source, const Options *options) {
    char path[PATH_BYTES];
    TRY(join(path, run, "run.json"));
    if (file_exists(path))
        return status_fail(ERR_ARGUMENT,
                           "%s already holds a run\n  hint: 'moec resume %s' continues it; or give "
                           "another --out",
                           run, run);
    struct stat info;
    if (stat(run, &info) == 0 && !S_ISDIR(info.st_mode))
        return status_fail(ERR_ARGUMENT,
                           "--out %s is a file, expected a folder\n  hint: give another --out",
                           run);
    RunBefore before = run_before(run);
    Status status = write_run(run, source, options);
    if (status != OK) run_forget(run, source, &before);
    return status;
}

Status run_read_options(const char *run, Options *options, json_t **out) {
    char path[PATH_BYTES];
    TRY(join(path, run, "run.json"));
    if (!file_exists(path))
        return status_fail(
            ERR_INPUT,
            "%s is not the folder of a run: it has no run.json\n  hint: give the folder that "
            "'moec train --out' made",
            run);
    json_t *record;
    TRY(json_load_checked(path, "run record", &record));
    int64_t version = json_integer_value(json_object_get(record, "version"));
    Status status =
        version == 1
            ? options_read_record(options, json_object_get(record, "options"), path)
            : status_fail(ERR_VERSION, "%s has version %lld, expected 1", path, (long long)version);
    if (status == OK) options->out = arena_strdup(options->arena, run);
    if (status == OK && out) *out = record;
    else json_decref(record);
    return status;
}

Status run_write_options(const char *run, const Options *options) {
    Options *old = options_create();
    json_t *record = NULL;
    Status status = run_read_options(run, old, &record);
    json_t *settings = status == OK ? options_record(options) : NULL;
    if (settings && !json_object_set_new(record, "options", settings))
        status = write_record(run, record);
    else if (status == OK) status = status_fail(ERR_MEMORY, "out of memory");
    json_decref(record);
    options_destroy(old);
    return status;
}

double run_flops(const char *run) {
    Options *unused = options_create();
    json_t *record = NULL;
    double flops = 0;
    if (unused && run_read_options(run, unused, &record) == OK)
        flops = json_number_value(
            json_object_get(json_object_get(record, "origin"), "flops per token"));
    json_decref(record);
    options_destroy(unused);
    return flops;
}

Status plan_read(const char *path, int32_t stage, Plan **out) {
    Arena *arena = arena_create();
    char *text;
    size_t bytes;
    Status status = file_read(path, arena, &text, &bytes);
    if (status == OK && plan_parse_stage(text, bytes, stage, out) != OK) {
        char *message = arena_strdup(arena, status_message());
        bool other = bytes < 5 || memcmp(text, "plan ", 5); // a spec, perhaps
        status = status_fail(ERR_FORMAT, "%s: %s%s", path, message,
                             other ? "\n  hint: 'moec plan SPEC -o FILE' writes a plan" : "");
    }
    arena_destroy(arena);
    return status;
}

// Any stage's plan says how many ranks there are to each.
Status plan_read_rank(const char *path, const Comm *comm, Plan **out) {
    Plan *first;
    if (!comm) return plan_read(path, 0, out);
    TRY(plan_read(path, 0, &first));
    int stage = comm->rank / plan_group_size(first, GROUP_dp);
    bool other = stage > 0 && stage < first->mesh.size[AXIS_pp];
    if (!other) *out = first;
    else plan_destroy(first);
    return other ? plan_read(path, stage, out) : OK;
}

Status run_read_plan(const char *run, const Comm *comm, Plan **out) {
    char path[PATH_BYTES];
    TRY(join(path, run, "plan.txt"));
    return plan_read_rank(path, comm, out);
}

Status run_read_sample_plan(const char *run, Plan **out) {
    char path[PATH_BYTES];
    TRY(join(path, run, "plan-sample.txt"));
    if (file_exists(path)) return plan_read(path, 0, out);
    TRY(join(path, run, "plan.txt"));
    return plan_read(path, 0, out);
}

// "loss.svg.1234.AbCdEf", as file_write_atomic names what it has not renamed yet.
static bool unfinished(const char *name) {
    static const char *const written[] = { "run.json.", "loss.svg.", "latest." };
    for (int i = 0; i < COUNT_OF(written); i++)
        if (!strncmp(name, written[i], strlen(written[i]))) return true;
    return false;
}

static void sweep(const char *path) {
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (unfinished(entry->d_name)) unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
}

Status run_lock(const char *run, int *fd) {
    char path[PATH_BYTES], checkpoints[PATH_BYTES];
    TRY(join(path, run, "lock"));
    TRY(join(checkpoints, run, "checkpoints"));
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (*fd < 0) return status_fail(ERR_IO, "cannot open %s: %s", path, strerror(errno));
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0) {
        sweep(run);
        sweep(checkpoints);
        return OK;
    }
    Status status = errno == EWOULDBLOCK
                        ? status_fail(ERR_ARGUMENT, "another process is training in %s", run)
                        : status_fail(ERR_IO, "cannot lock %s: %s", path, strerror(errno));
    close(*fd);
    *fd = -1;
    return status;
}

Status run_still_there(const char *run, int lock) {
    char path[PATH_BYTES];
    TRY(join(path, run, "lock"));
    struct stat held, found;
    if (fstat(lock, &held) < 0)
        return status_fail(ERR_IO, "cannot read %s: %s", path, strerror(errno));
    if (stat(path, &found) == 0 && found.st_dev == held.st_dev && found.st_ino == held.st_ino)
        return OK;
    return status_fail(ERR_IO,
                       "%s is no longer the folder of this run: it was moved or deleted while the "
                       "run trained\n  hint: if it was moved, 'moec resume' of where it is now "
                       "goes on from its newest checkpoint",
                       run);
}
