// SPDX-License-Identifier: Apache-2.0
// The functions that the linker's --wrap puts in place of the C library's.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/starve/allocator.h"

static atomic_long asked, failing, mappings, objects;
static atomic_bool armed, lasting;

void allocator_starve(long n, bool for_good) {
    atomic_store(&asked, 0);
    atomic_store(&failing, n);
    atomic_store(&lasting, for_good);
    atomic_store(&armed, true);
}

long allocator_feed(void) {
    atomic_store(&armed, false);
    return atomic_load(&asked);
}

static bool refused(void) {
    if (!atomic_load(&armed)) return false;
    long n = atomic_fetch_add(&asked, 1) + 1, at = atomic_load(&failing);
    if (!at || n < at || (n > at && !atomic_load(&lasting))) return false;
    errno = ENOMEM;
    return true;
}

#define WRAP(type, name, parameters, arguments, none)                                              \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        return refused() ? none : __real_##name arguments;                                         \
    }
WRAP(void *, malloc, (size_t n), (n), NULL)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), NULL)
WRAP(void *, realloc, (void *old, size_t n), (old, n), NULL)
WRAP(void *, aligned_alloc, (size_t align, size_t n), (align, n), NULL)
WRAP(char *, strdup, (const char *text), (text), NULL)
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL)
WRAP(DIR *, opendir, (const char *path), (path), NULL)
WRAP(ssize_t, getline, (char **line, size_t *cap, FILE *file), (line, cap, file), -1)
WRAP(ssize_t, __getdelim, (char **line, size_t *cap, int end, FILE *file),
     (line, cap, end, file), -1)
WRAP(int, pthread_create,
     (pthread_t *thread, const pthread_attr_t *how, void *(*body)(void *), void *user),
     (thread, how, body, user), EAGAIN)

void *__real_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    void *got = refused() ? MAP_FAILED : __real_mmap(at, n, protection, flags, fd, offset);
    if (got != MAP_FAILED) atomic_fetch_add(&mappings, 1);
    return got;
}

int __real_munmap(void *at, size_t n);
int __wrap_munmap(void *at, size_t n);
int __wrap_munmap(void *at, size_t n) {
    atomic_fetch_sub(&mappings, 1);
    return __real_munmap(at, n);
}

void *__real_dlopen(const char *path, int how);
void *__wrap_dlopen(const char *path, int how);
void *__wrap_dlopen(const char *path, int how) {
    void *got = __real_dlopen(path, how);
    if (got && !strncmp(path, "/proc/", 6)) atomic_fetch_add(&objects, 1); // libclang stays
    return got;
}

int __real_dlclose(void *object);
int __wrap_dlclose(void *object);
int __wrap_dlclose(void *object) {
    atomic_fetch_sub(&objects, 1);
    return __real_dlclose(object);
}

static long entries_in(const char *folder) {
    DIR *dir = __real_opendir(folder);
    long n = 0;
    while (dir && readdir(dir)) n++;
    if (dir) closedir(dir);
    return n;
}

Balance allocator_balance(void) {
    return (Balance){ atomic_load(&mappings), atomic_load(&objects), entries_in("/proc/self/fd"),
                      entries_in("/proc/self/task") };
}
