// SPDX-License-Identifier: Apache-2.0
// Reads and writes safetensors files of F32 tensors.
//
// The reader trusts nothing: the header's length, its JSON, each name, type and shape are checked,
// and the tensors must cover the data exactly, in any order, without overlap or hole, as the format
// demands.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/train/checkpoint.h"

enum { HEADER_LIMIT = 100 * 1000 * 1000 }; // the format's own

static Status write_failed(const char *path, int error) {
    return status_fail(ERR_IO, "cannot write %s: %s%s", path, strerror(error),
                       error == ENOSPC || error == EFBIG || error == EDQUOT
                           ? "\n  hint: free some space; the last complete checkpoint is untouched"
                           : "");
}

/* Writing -------------------------------------------------------------------------------------- */

static void add_json_string(Text *out, const char *string) {
    text_add(out, "\"");
    for (const char *c = string; *c; c++) {
        if (*c == '"' || *c == '\\') text_printf(out, "\\%c", *c);
        else if ((unsigned char)*c < 0x20) text_printf(out, "\\u%04x", *c);
        else text_add_n(out, c, 1);
    }
    text_add(out, "\"");
}

static void print_header(const Tensor *tensors, int n, Text *out) {
    text_add(out, "{\"__metadata__\":{\"format\":\"moec\"}");
    for (int i = 0; i < n; i++) {
        text_add(out, ",");
        add_json_string(out, tensors[i].name);
        text_add(out, ":{\"dtype\":\"F32\",\"shape\":[");
        for (int d = 0; d < tensors[i].n_dims; d++)
            text_printf(out, "%s%lld", d ? "," : "", (long long)tensors[i].dims[d]);
        text_printf(out, "],\"data_offsets\":[%lld,%lld]}", (long long)tensors[i].offset,
                    (long long)(tensors[i].offset + tensors[i].bytes));
    }
    text_add(out, "}");
    while (out->bytes % 8) text_add(out, " ");
}

static bool write_at(int fd, const void *from, int64_t n, int64_t at) {
    const char *bytes = from;
    while (n) {
        ssize_t done = pwrite(fd, bytes, (size_t)n, at);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return false;
        bytes += done;
        at += done;
        n -= done;
    }
    return true;
}

Status tensors_create(const char *path, const Tensor *tensors, int n) {
    Text header = { 0 };
    print_header(tensors, n, &header);
    uint64_t length = header.bytes;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool good = fd >= 0 && write_at(fd, &length, sizeof length, 0) &&
                write_at(fd, header.at, (int64_t)length, sizeof length) && fsync(fd) == 0;
    Status status = good ? OK : write_failed(path, errno);
    text_finish(&header);
    if (fd >= 0 && close(fd) < 0 && status == OK) status = write_failed(path, errno);
    return status;
}

static void say_alive(void *comm) {
    comm_at(comm, "writing or reading a checkpoint");
}

// Where other ranks wait, it is synced as it goes: a disk takes a while.
static bool write_piece(int fd, const TensorPiece *piece, int64_t to, Comm *comm, int64_t *unsynced) {
    enum { PART = 64 << 20 };
    for (int64_t at = 0; at < piece->bytes; at += PART) {
        int64_t bytes = min_i64(piece->bytes - at, PART);
        if (!write_at(fd, (const char *)piece->memory + at, bytes, to + at)) return false;
        *unsynced += bytes;
        if (!comm || *unsynced < PART) continue;
        if (fdatasync(fd) < 0) return false;
        *unsynced = 0;
        say_alive(comm);
    }
    return true;
}

Status tensors_fill(const char *path, const Tensor *tensors, const TensorPiece *pieces, int n,
                    Comm *comm) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return write_failed(path, errno);
    uint64_t length = 0;
    int64_t unsynced = 0;
    bool good = pread(fd, &length, sizeof length, 0) == sizeof length;
    int64_t data = (int64_t)(sizeof length + length);
    for (int i = 0; good && i < n; i++)
        good = write_piece(fd, &pieces[i], data + tensors[pieces[i].tensor].offset + pieces[i].at, comm,
                           &unsynced);
    good = good && fsync(fd) == 0;
    Status status = good ? OK : write_failed(path, errno);
    if (close(fd) < 0 && status == OK) status = write_failed(path, errno);
    return status;
}

Status tensors_hash(const char *path, Comm *comm, int64_t *bytes, Hash *hash) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    void *map = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &info) == 0)
        map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    Status status = OK;
    if (map == MAP_FAILED)
        status = status_fail(status_errno(errno), "cannot read back %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    TRY(status);
    *bytes = info.st_size;
    *hash = hash_long(map, (size_t)info.st_size, say_alive, comm);
    munmap(map, (size_t)info.st_size);
    return OK;
}

/* Reading -------------------------------------------------------------------------------------- */

static Status damaged(const char *path, const char *what) {
    return status_fail(ERR_FORMAT, "%s is not a whole safetensors file: %s", path, what);
}

// {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
static Status read_entry(const char *path, const char *name, const json_t *entry,
                         uint64_t data_bytes, const uint8_t *data, Tensor *out) {
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape"),
                 *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (!dtype || !json_is_array(shape) || json_array_size(offsets) != 2 ||
        !json_is_integer(begin) || !json_is_integer(end) || json_object_size(entry) != 3)
        return status_fail(ERR_FORMAT, "%s: the entry of tensor '%s' is malformed", path, name);
    if (strcmp(dtype, "F32"))
        return status_fail(ERR_FORMAT, "%s: tensor '%s' is %s, expected F32", path, name, dtype);
    if (json_array_size(shape) > PLAN_MAX_DIMS)
        return status_fail(ERR_FORMAT, "%s: tensor '%s' has %zu dimensions, expected at most %d",
                           path, name, json_array_size(shape), PLAN_MAX_DIMS);
    out->n_dims = (int)json_array_size(shape);
    int64_t bytes = 4;
    for (int d = 0; d < out->n_dims; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        out->dims[d] = json_integer_value(size);
        if (!json_is_integer(size) || out->dims[d] < 0 ||
            __builtin_mul_overflow(bytes, out->dims[d], &bytes))
            return status_fail(ERR_FORMAT, "%s: tensor '%s' has an impossible shape", path, name);
    }
    int64_t from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from || (uint64_t)to > data_bytes)
        return status_fail(ERR_FORMAT, "%s: tensor '%s' lies outside the file's data", path, name);
    if (to - from != bytes)
        return status_fail(ERR_FORMAT,
                           "%s: tensor '%s' has %lld bytes, expected %lld for its shape", path,
                           name, (long long)(to - from), (long long)bytes);
    if (from % 4) return status_fail(ERR_FORMAT, "%s: tensor '%s' is not aligned", path, name);
    out->bytes = bytes;
    out->at = (const float *)(const void *)(data + from);
    return OK;
}

static int by_address(const void *left, const void *right) {
    const Tensor *a = left, *b = right;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int by_name(const void *left, const void *right) {
    return strcmp(((const Tensor *)left)->name, ((const Tensor *)right)->name);
}

static Status read_header(const char *path, Arena *arena, const json_t *header, const uint8_t *data,
                          uint64_t data_bytes, TensorFile *out) {
    out->tensors =
        ARENA_ARRAY(arena, Tensor, json_object_size(header) + 1); // one more: never of no bytes
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)(uintptr_t)header, name, entry) {
        if (!strcmp(name, "__metadata__")) {
            if (!json_is_object(entry)) return damaged(path, "its metadata is malformed");
            continue;
        }
        Tensor *tensor = &out->tensors[out->n_tensors];
        tensor->name = arena_strdup(arena, name);
        TRY(read_entry(path, tensor->name, entry, data_bytes, data, tensor));
        out->n_tensors++;
    }
    qsort(out->tensors, (size_t)out->n_tensors, sizeof *out->tensors, by_address);
    const uint8_t *at = data;
    for (int i = 0; i < out->n_tensors; i++) {
        if ((const uint8_t *)out->tensors[i].at != at)
            return status_fail(ERR_FORMAT, "%s: tensor '%s' does not follow the one before it",
                               path, out->tensors[i].name);
        at += out->tensors[i].bytes;
    }
    if (at != data + data_bytes) return damaged(path, "data follows its last tensor");
    qsort(out->tensors, (size_t)out->n_tensors, sizeof *out->tensors, by_name); // for tensors_find
    return OK;
}

static Status read_map(const char *path, Arena *arena, TensorFile *out) {
    uint64_t length;
    if (out->bytes < sizeof length) return damaged(path, "it is shorter than 8 bytes");
    memcpy(&length, out->map, sizeof length);
    if (length > HEADER_LIMIT || length > out->bytes - sizeof length)
        return damaged(path, "its header is longer than the file");
    if (length % 4) return damaged(path, "its data is not aligned");
    json_error_t error;
    json_t *header =
        json_loadb((const char *)out->map + sizeof length, length, JSON_REJECT_DUPLICATES, &error);
    if (!header)
        return status_fail(ERR_FORMAT, "%s: its header is not JSON: at byte %d: %s", path,
                           error.position, error.text);
    Status status = json_is_object(header)
                        ? read_header(path, arena, header, out->map + sizeof length + length,
                                      out->bytes - sizeof length - length, out)
                        : damaged(path, "its header is not an object");
    json_decref(header);
    return status;
}

static void give_back(void *file) {
    tensors_close(file);
}

Status tensors_open(const char *path, Arena *arena, TensorFile *out) {
    *out = (TensorFile) { 0 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return status_fail(status_errno(errno) == ERR_MEMORY ? ERR_MEMORY : ERR_FORMAT,
                           "cannot open %s: %s", path, strerror(errno));
    struct stat info;
    Status status = OK;
    if (fstat(fd, &info) < 0)
        status = status_fail(ERR_IO, "cannot read %s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode) || info.st_size < 8)
        status = damaged(path, "it is shorter than 8 bytes");
    if (status == OK) {
        out->bytes = (size_t)info.st_size;
        out->map = mmap(NULL, out->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (out->map == MAP_FAILED) {
            out->map = NULL;
            status = status_fail(status_errno(errno), "cannot map %s: %s", path, strerror(errno));
        } else {
            memory_hold(&out->held, give_back, out);
        }
    }
    close(fd);
    if (status == OK) status = read_map(path, arena, out);
    if (status != OK) tensors_close(out);
    return status;
}

void tensors_close(TensorFile *file) {
    memory_drop(&file->held);
    if (file->map) munmap(file->map, file->bytes);
    *file = (TensorFile) { 0 };
}

const Tensor *tensors_find(const TensorFile *file, const char *name) {
    Tensor key = { .name = name };
    return bsearch(&key, file->tensors, (size_t)file->n_tensors, sizeof key, by_name);
}
