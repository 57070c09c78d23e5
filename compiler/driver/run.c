// SPDX-License-Identifier: Apache-2.0
// resume, eval, sample: the runtime's commands, with the driver's way of failing.
#include <stdio.h>

#include "compiler/driver/driver.h"
#include "runtime/train/train.h"

int driver_fail(Status status) {
    fprintf(stderr, "moec: error: %s\n", status_message());
    log_debug("%s", status_trail_text());
    return status_exit(status);
}

static int finish(Status status) {
    return status == OK ? 0 : driver_fail(status);
}

int cmd_resume(int argc, char **argv) {
    return finish(command_resume(argc, argv));
}

int cmd_eval(int argc, char **argv) {
    return finish(command_eval(argc, argv));
}

int cmd_sample(int argc, char **argv) {
    return finish(command_sample(argc, argv));
}
