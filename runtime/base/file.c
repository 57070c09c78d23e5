// SPDX-License-Identifier: Apache-2.0
// Whole files in and out. Writes go to a temporary name, are synced, then renamed.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/base.h"

// A pipe tells no size and may never end.
enum { MOST_OF_A_PIPE = 64 << 20 };

static void close_file(void *fd) {
    close((int)(intptr_t)fd);
}

Status file_read(const char *path, Arena *arena, char **bytes, size_t *n_bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return status_fail(errno == ENOENT ? ERR_INPUT : status_errno(errno), "cannot open %s: %s",
                           path, strerror(errno));
    Held held;
    memory_hold(&held, close_file, (void *)(intptr_t)fd);
    Status status = OK;
    struct stat info;
    if (fstat(fd, &info) < 0) {
        status = status_fail(ERR_IO, "cannot read %s: %s", path, strerror(errno));
    } else if (S_ISDIR(info.st_mode)) {
        status = status_fail(ERR_INPUT, "%s is a folder, expected a file", path);
    } else if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode)) {
        status = status_fail(ERR_INPUT, "%s is a device or a socket, expected a file", path);
    } else {
        size_t cap = info.st_size > 0 ? (size_t)info.st_size : 4096, n = 0;
        char *at = arena_alloc(arena, cap + 1);
        for (;;) {
            ssize_t got = read(fd, at + n, cap - n);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) { status = status_fail(ERR_IO, "cannot read %s: %s", path, strerror(errno)); break; }
            n += (size_t)got;
            if (got == 0) break;
            if (S_ISFIFO(info.st_mode) && n > MOST_OF_A_PIPE) {
                status = status_fail(ERR_INPUT, "the pipe %s gives more than %d MiB, expected less",
                                     path, MOST_OF_A_PIPE >> 20);
                break;
            }
            if (n == cap) { // the file grew, or tells no size (a pipe, /proc)
                at = arena_grow(arena, at, cap, cap * 2 + 1);
                cap *= 2;
            }
        }
        at[n] = 0;
        *bytes = at;
        *n_bytes = n;
    }
    memory_drop(&held);
    close(fd);
    return status;
}

static bool write_all(int fd, const char *bytes, size_t n) {
    while (n) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return false;
        bytes += done;
        n -= (size_t)done;
    }
    return true;
}

static Status write_in_place(const char *path, const void *bytes, size_t n_bytes) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write_all(fd, bytes, n_bytes);
    int error = errno;
    if (fd >= 0 && close(fd) < 0 && good) { good = false; error = errno; }
    if (good) return OK;
    return status_fail(ERR_IO, "cannot write %s: %s", path, strerror(error));
}

bool file_target(const char *path, char out[PATH_MAX]) {
    enum { MOST_LINKS = 40 };
    char aim[PATH_MAX];
    errno = ENAMETOOLONG;
    if (strlen(path) >= PATH_MAX) return false;
    strcpy(out, path);
    for (int i = 0; i < MOST_LINKS; i++) {
        ssize_t n = readlink(out, aim, sizeof aim - 1);
        if (n < 0) return errno == EINVAL || errno == ENOENT || errno == ENOTDIR || errno == EACCES;
        aim[n] = 0;
        char *slash = strrchr(out, '/');
        size_t folder = slash && aim[0] != '/' ? (size_t)(slash - out) + 1 : 0;
        errno = ENAMETOOLONG;
        if (folder + (size_t)n >= PATH_MAX) return false;
        memcpy(out + folder, aim, (size_t)n + 1);
    }
    errno = ELOOP;
    return false;
}

Status file_write_atomic(const char *path, const void *bytes, size_t n_bytes) {
    struct stat info;
    bool there = stat(path, &info) == 0;
    if (there && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return write_in_place(path, bytes, n_bytes);
    char temporary[4096], target[PATH_MAX];
    const char *named = path;
    if (!file_target(path, target)) return status_fail(ERR_IO, "cannot write %s: %s", path, strerror(errno));
    path = target;
    int length = snprintf(temporary, sizeof temporary, "%s.%ld.XXXXXX", path, (long)getpid());
    if (length >= (int)sizeof temporary) return status_fail(ERR_IO, "path too long: %s", named);
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) return status_fail(ERR_IO, "cannot write %s: %s", named, strerror(errno));
    bool good = write_all(fd, bytes, n_bytes) && fchmod(fd, 0644) == 0 && fsync(fd) == 0;
    int error = errno;
    if (close(fd) < 0 && good) { good = false; error = errno; }
    if (good && rename(temporary, path) < 0) { good = false; error = errno; }
    if (good) return OK;
    unlink(temporary);
    return status_fail(ERR_IO, "cannot write %s: %s", named, strerror(error));
}

Status file_make_dirs(const char *path) {
    char part[4096];
    size_t n = strlen(path);
    if (n >= sizeof part) return status_fail(ERR_IO, "path too long: %s", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return status_fail(ERR_IO, "cannot make the folder %s: %s", part, strerror(errno));
    }
    struct stat info;
    if (stat(path, &info) < 0 || !S_ISDIR(info.st_mode)) return status_fail(ERR_IO, "%s is not a folder", path);
    return OK;
}

void file_hold_standard(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 1 ? O_RDONLY : O_RDWR) < 0) return;
    }
}

bool file_exists(const char *path) {
    return access(path, F_OK) == 0;
}

double time_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
