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

int driver_refuse(const Model *model) {
    const Diag *diag = &model->diag;
    Text text = { 0 };
    if (!diag->loc.file) text_add(&text, "moec: ");
    diag_print(model, diag->loc, diag->message, NULL, NULL, 0, diag->hint[0] ? diag->hint : NULL,
               &text);
    fputs(text_cstr(&text), stderr);
    text_finish(&text);
    return status_exit(ERR_INPUT);
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
