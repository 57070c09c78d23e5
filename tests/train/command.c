// SPDX-License-Identifier: Apache-2.0
// Runs a command line of the built programs.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/train/command.h"

static char output[1 << 16], errors[1 << 16];

const char *command_output(void) {
    return output;
}

const char *command_errors(void) {
    return errors;
}

static void read_back(int fd, char *text) {
    lseek(fd, 0, SEEK_SET);
    ssize_t n = read(fd, text, (1 << 16) - 1);
    text[n > 0 ? n : 0] = 0;
    close(fd);
}

pid_t command_start(char *const *argv, int out, int err) {
    pid_t child = fork();
    if (child) return child;
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execv(argv[0], argv);
    _exit(127);
}

int command_run(char *const *argv) {
    char out_name[] = "/tmp/moec-out-XXXXXX", err_name[] = "/tmp/moec-err-XXXXXX";
    int out = mkstemp(out_name), err = mkstemp(err_name), status;
    unlink(out_name);
    unlink(err_name);
    pid_t child = command_start(argv, out, err);
    waitpid(child, &status, 0);
    read_back(out, output);
    read_back(err, errors);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
