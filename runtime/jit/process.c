// SPDX-License-Identifier: Apache-2.0
// Child processes and their scratch folder.
#include "runtime/jit/compile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void give_back(void *scratch) {
    scratch_remove(scratch);
}

Status scratch_create(Arena *arena, Scratch *out) {
    const char *parent = getenv("TMPDIR");
    if (!parent || !*parent) parent = "/tmp";
    char *path = arena_printf(arena, "%s/moec-XXXXXX", parent);
    if (!mkdtemp(path)) {
        return status_fail(ERR_IO,
                           "cannot make a temporary folder %s: %s\n"
                           "  hint: point TMPDIR at a folder that can be written",
                           path, strerror(errno));
    }
    out->dir = path;
    memory_hold(&out->held, give_back, out);
    return OK;
}

// The linker of a compiler that was killed may write one more file: hence a few rounds.
void scratch_remove(Scratch *scratch) {
    const char *dir = scratch->dir;
    memory_drop(&scratch->held);
    for (int round = 0; round < 20; round++) {
        DIR *entries = opendir(dir);
        if (!entries && errno != ENOMEM) return;
        if (!entries) continue;
        for (const struct dirent *entry; (entry = readdir(entries));) {
            unlinkat(dirfd(entries), entry->d_name, 0);
        }
        closedir(entries);
        if (rmdir(dir) == 0 || errno != ENOTEMPTY) return;
        usleep(20000);
    }
}

// The environment with TMPDIR set to `dir`. To be freed.
static char **environment(const char *dir) {
    size_t n = 0, kept = 0, bytes = strlen("TMPDIR=") + strlen(dir) + 1;
    while (environ[n]) n++;
    char **out = malloc((n + 2) * sizeof *out + bytes);
    if (!out) return NULL;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(environ[i], "TMPDIR=", 7)) out[kept++] = environ[i];
    }
    char *own = (char *)(out + n + 2);
    snprintf(own, bytes, "TMPDIR=%s", dir);
    out[kept++] = own;
    out[kept] = NULL;
    return out;
}

Status process_start(const char *const *argv, const char *scratch, const char *output, pid_t *pid) {
    char **variables = environment(scratch);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    if (!variables || posix_spawn_file_actions_init(&files) != 0) {
        free(variables);
        return status_fail(ERR_MEMORY, "no memory to run %s", argv[0]);
    }
    if (posix_spawnattr_init(&how) != 0) {
        free(variables);
        posix_spawn_file_actions_destroy(&files);
        return status_fail(ERR_MEMORY, "no memory to run %s", argv[0]);
    }
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGTERM);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &defaults);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int error = posix_spawn(pid, argv[0], &files, &how, (char *const *)argv, variables);
    free(variables);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    if (!error) return OK;
    return status_fail(ERR_COMPILE, "cannot run %s: %s", argv[0], strerror(error));
}

void process_wait(pid_t pid) {
    siginfo_t info;
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {}
}

int process_reap(pid_t pid) {
    int status;
    pid_t got;
    while ((got = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {}
    return got == pid ? status : -1;
}
