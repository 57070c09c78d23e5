// SPDX-License-Identifier: Apache-2.0
// Runs a command line of the built programs and keeps what it printed.
#ifndef MOEC_TEST_COMMAND_H
#define MOEC_TEST_COMMAND_H

#include <sys/types.h>

// Waits. The exit status, or 128 + the signal.
int command_run(char *const *argv);
#define COMMAND(...) command_run((char *[]) { __VA_ARGS__, NULL })
pid_t command_start(char *const *argv, int out, int err);
const char *command_output(void);                              // of the last one: stdout
const char *command_errors(void);                              // stderr

#endif
