// SPDX-License-Identifier: Apache-2.0
// resume, eval, sample: the runtime's commands, with the driver's way of failing.
#include <stdio.h>

#include "compiler/driver/driver.h"
#include "runtime/train/train.h"

static Text *held;

void driver_hold(Text *into) {
    held = into;
}

void driver_say(const char *text) {
    if (held) text_add(held, text);
    else fputs(text, stderr);
}

int driver_fail(Status status) {
    Text text = { 0 };
    text_printf(&text, "moec: error: %s\n", status_message());
    driver_say(text_cstr(&text));
    text_finish(&text);
    log_debug("%s", status_trail_text());
    return status_exit(status);
}

int driver_refuse(const Model *model) {
    const Diag *diag = &model->diag;
    Text text = { 0 };
    if (!diag->loc.file) text_add(&text, "moec: ");
    diag_print(model, diag->loc, diag->message, NULL, NULL, 0, diag->hint[0] ? diag->hint : NULL,
               &text);
    driver_say(text_cstr(&text));
    text_finish(&text);
    return status_exit(ERR_INPUT);
}

int cmd_resume(int argc, char **argv) {
    return command_on_ranks("moec", command_resume, driver_plan_again, argc, argv);
}

int cmd_eval(int argc, char **argv) {
    return command_on_ranks("moec", command_eval, driver_plan_again, argc, argv);
}

int cmd_sample(int argc, char **argv) {
    return command_on_ranks("moec", command_sample, NULL, argc, argv);
}
